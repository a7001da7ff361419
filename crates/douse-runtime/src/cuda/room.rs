//! The memory of a method's calls, kept from call to call.

use std::collections::BTreeMap;
use std::ops::Range;

use douse_core::{Error, Result};
use douse_cuda::{DeviceMemory, PinnedMemory, Place, Stream};
use douse_program::plan::BufferId;

use super::device::CudaDevice;

/// Where values begin, on the device: what any vector load and copy likes.
const ALIGNMENT: usize = 256;

/// Larger values do not get pinned memory of their own, but go through the device's.
const STAGED: usize = 16 << 20;

/// The control block at the start of a call's values: the error flag, the random state, and, in the host's half, a number that is read.
pub(super) const FLAG: Range<usize> = 0..super::flag::BYTES;
pub(super) const RANDOM: Range<usize> = 32..48;
pub(super) const NUMBER: Range<usize> = 64..80;
/// What is uploaded of it when a call begins.
pub(super) const CONTROL: Range<usize> = 0..48;

/// Memory that only grows.
#[derive(Debug, Default)]
pub(super) struct Growing(Option<DeviceMemory>);

impl Growing {
    /// At least that many bytes. What was in it is lost where it grows.
    pub fn at_least(&mut self, len: usize, device: &CudaDevice, what: impl FnOnce() -> String) -> Result<Place> {
        if self.0.as_ref().is_none_or(|memory| memory.len() < len) {
            // The old memory first: both may not fit. The driver waits for work that uses it.
            self.0 = None;
            self.0 = Some(device.allocate(len, what)?);
        }
        self.place().ok_or_else(|| Error::internal("memory that is not there"))
    }

    pub fn place(&self) -> Option<Place> {
        self.0.as_ref().map(DeviceMemory::all)
    }
}

/// Inputs and outputs of a call: where they lie in the memory for values, and in its pinned twin.
#[derive(Clone, Debug, Default)]
pub(super) struct Slots {
    ranges: BTreeMap<BufferId, Range<usize>>,
    /// What is uploaded at once: the control block and the inputs that are staged.
    pub uploaded: usize,
    /// What has a pinned twin.
    pub staged: usize,
    pub total: usize,
}

impl Slots {
    /// Places inputs and outputs of these bytes.
    pub fn new(inputs: &[(BufferId, usize)], outputs: &[(BufferId, usize)]) -> Slots {
        let mut slots = Slots { total: ALIGNMENT, ..Slots::default() };
        let small = |all: &[(BufferId, usize)], small: bool| {
            all.iter().copied().filter(|(_, len)| (*len <= STAGED) == small).collect::<Vec<_>>()
        };
        slots.add(&small(inputs, true));
        slots.uploaded = slots.total;
        slots.add(&small(outputs, true));
        slots.staged = slots.total;
        slots.add(&small(inputs, false));
        slots.add(&small(outputs, false));
        slots
    }

    fn add(&mut self, values: &[(BufferId, usize)]) {
        for (buffer, len) in values {
            self.ranges.insert(*buffer, self.total..self.total + len);
            self.total = (self.total + len).next_multiple_of(ALIGNMENT);
        }
    }

    pub fn get(&self, buffer: BufferId) -> Option<Range<usize>> {
        self.ranges.get(&buffer).cloned()
    }

    /// Where a value begins in pinned memory, if it is there.
    pub fn staged(&self, buffer: BufferId) -> Option<usize> {
        self.ranges.get(&buffer).map(|range| range.start).filter(|start| *start < self.staged)
    }
}

/// A method's memory and stream.
#[derive(Debug)]
pub(super) struct Room {
    // Pinned memory and buffers go before the stream.
    pub pinned: PinnedMemory,
    pub values: Growing,
    pub arena: Growing,
    pub scratch: Growing,
    /// Buffers whose size a call found out.
    pub late: BTreeMap<BufferId, Growing>,
    /// Copies of state that a failed call would leave changed.
    pub snapshot: Growing,
    pub stream: Stream,
}

impl Room {
    pub fn new(device: &CudaDevice) -> Result<Room> {
        Ok(Room {
            pinned: device.device().pinned(ALIGNMENT)?,
            values: Growing::default(),
            arena: Growing::default(),
            scratch: Growing::default(),
            late: BTreeMap::new(),
            snapshot: Growing::default(),
            stream: device.device().stream()?,
        })
    }

    /// Room for a call's values and temporaries.
    pub fn prepare(
        &mut self,
        device: &CudaDevice,
        slots: &Slots,
        arena: usize,
        method: &str,
    ) -> Result<(Place, Place)> {
        if self.pinned.len() < slots.staged {
            self.pinned = device.device().pinned(slots.staged)?;
        }
        let values = self.values.at_least(slots.total, device, || format!("the inputs and outputs of {method:?}"))?;
        let arena = self.arena.at_least(arena, device, || format!("the temporaries of {method:?}"))?;
        Ok((values, arena))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_inputs_come_first_and_large_values_are_not_pinned() {
        let slots = Slots::new(&[(0, STAGED + 1), (1, 10)], &[(2, 300), (3, STAGED + 1)]);
        assert_eq!(slots.get(1), Some(256..266));
        assert_eq!((slots.uploaded, slots.get(2)), (512, Some(512..812)));
        assert_eq!(slots.staged, 1024);
        assert_eq!((slots.staged(2), slots.staged(0), slots.staged(3)), (Some(512), None, None));
        assert!(slots.get(0).unwrap().end <= slots.get(3).unwrap().start);
    }
}
