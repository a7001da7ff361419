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

/// In the control block: the error flag, the random state, and, in the host's half, a number that is read.
pub(super) const FLAG: Range<usize> = 0..super::flag::BYTES;
pub(super) const RANDOM: Range<usize> = 32..48;
pub(super) const NUMBER: Range<usize> = 64..80;
/// Bytes of the control block that the device has.
pub(super) const CONTROL: usize = 48;

/// Memory that only grows.
#[derive(Debug, Default)]
pub(super) struct Growing {
    memory: Option<DeviceMemory>,
    /// How often it has moved.
    moves: u64,
}

impl Growing {
    /// At least that many bytes. What was in it is lost where it grows.
    pub fn at_least(&mut self, len: usize, device: &CudaDevice, what: impl FnOnce() -> String) -> Result<Place> {
        if self.memory.as_ref().is_none_or(|memory| memory.len() < len) {
            // The old memory first: both may not fit. The driver waits for work that uses it.
            self.memory = None;
            self.moves += 1;
            self.memory = Some(device.allocate(len, what)?);
        }
        self.place().ok_or_else(|| Error::internal("memory that is not there"))
    }

    pub fn place(&self) -> Option<Place> {
        self.memory.as_ref().map(DeviceMemory::all)
    }
}

/// Inputs and outputs of a call: where they lie in the memory for values, and in its pinned twin.
///
/// First the inputs, of those the ones that are written last; then the control block, then outputs: what goes to the device is one copy, and
/// what comes back another. Values too large for pinned memory lie behind.
#[derive(Clone, Debug, Default)]
pub(super) struct Slots {
    ranges: BTreeMap<BufferId, Range<usize>>,
    /// Where the control block begins.
    control: usize,
    /// Where what comes back begins.
    returned: usize,
    /// What has a pinned twin.
    pub staged: usize,
    pub total: usize,
}

impl Slots {
    /// Places inputs (`written`: by the program) and outputs of these bytes.
    pub fn new(inputs: &[(BufferId, usize, bool)], outputs: &[(BufferId, usize)]) -> Slots {
        let mut slots = Slots::default();
        let small = |len: usize| len <= STAGED;
        let inputs_where = |keep: &dyn Fn(usize, bool) -> bool| -> Vec<(BufferId, usize)> {
            let kept = inputs.iter().filter(|(_, len, written)| keep(*len, *written));
            kept.map(|(buffer, len, _)| (*buffer, *len)).collect()
        };
        let outputs_where = |keep: &dyn Fn(usize) -> bool| -> Vec<(BufferId, usize)> {
            outputs.iter().copied().filter(|(_, len)| keep(*len)).collect()
        };
        slots.add(&inputs_where(&|len, written| small(len) && !written));
        slots.returned = slots.total;
        slots.add(&inputs_where(&|len, written| small(len) && written));
        slots.control = slots.total;
        slots.total += ALIGNMENT;
        slots.add(&outputs_where(&small));
        slots.staged = slots.total;
        slots.add(&inputs_where(&|len, _| !small(len)));
        slots.add(&outputs_where(&|len| !small(len)));
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

    /// A part of the control block.
    pub fn control(&self, part: Range<usize>) -> Range<usize> {
        self.control + part.start..self.control + part.end
    }

    /// What goes to the device when a call begins.
    pub fn uploaded(&self) -> Range<usize> {
        0..self.control + CONTROL
    }

    /// What comes back and nothing writes: what lies between values.
    pub fn gaps(&self) -> Vec<Range<usize>> {
        let mut taken: Vec<Range<usize>> = self.ranges.values().cloned().collect();
        taken.push(self.control(0..CONTROL));
        taken.retain(|range| range.start >= self.returned && range.start < self.staged);
        taken.sort_by_key(|range| range.start);
        let ends = std::iter::once(self.returned).chain(taken.iter().map(|range| range.end));
        let starts = taken.iter().map(|range| range.start).chain([self.staged]);
        ends.zip(starts).map(|(end, start)| end..start).filter(|gap| !gap.is_empty()).collect()
    }

    /// What comes back when it ends.
    pub fn downloaded(&self) -> Range<usize> {
        self.returned..self.staged
    }
}

/// What a method's calls use besides weights and state.
#[derive(Debug)]
pub(super) struct Room {
    // Memory goes before the stream.
    pub memory: Memory,
    /// Copies of state that a failed call would leave changed.
    pub snapshot: Growing,
    /// The stream of calls that are given none.
    pub own: Stream,
}

impl Room {
    pub fn new(device: &CudaDevice) -> Result<Room> {
        let memory = Memory {
            pinned: device.device().pinned(ALIGNMENT)?,
            pinning: 0,
            values: Growing::default(),
            arena: Growing::default(),
            scratch: Growing::default(),
            late: BTreeMap::new(),
        };
        Ok(Room { memory, snapshot: Growing::default(), own: device.device().stream()? })
    }
}

/// The memory that a call's commands name.
#[derive(Debug)]
pub(super) struct Memory {
    pub pinned: PinnedMemory,
    /// How often pinned memory has moved.
    pub pinning: u64,
    /// Inputs, the control block, outputs.
    pub values: Growing,
    pub arena: Growing,
    pub scratch: Growing,
    /// Buffers whose size a call found out.
    pub late: BTreeMap<BufferId, Growing>,
}

impl Memory {
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
            self.pinning += 1;
        }
        let values = self.values.at_least(slots.total, device, || format!("the inputs and outputs of {method:?}"))?;
        let arena = self.arena.at_least(arena, device, || format!("the temporaries of {method:?}"))?;
        Ok((values, arena))
    }

    /// How often anything has moved: places that were found before are those of now while this stays.
    pub fn moves(&self) -> u64 {
        let late: u64 = self.late.values().map(|late| late.moves).sum();
        self.pinning + self.values.moves + self.arena.moves + self.scratch.moves + late
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_copied_together_lies_together_and_large_values_are_not_pinned() {
        let slots = Slots::new(&[(0, STAGED + 1, false), (1, 10, true), (4, 20, false)], &[(2, 300), (3, STAGED + 1)]);
        assert_eq!((slots.get(4), slots.get(1)), (Some(0..20), Some(256..266)));
        assert_eq!((slots.control(FLAG).start, slots.get(2)), (512, Some(768..1068)));
        assert_eq!((slots.uploaded(), slots.downloaded()), (0..560, 256..1280));
        assert_eq!((slots.staged(2), slots.staged(0), slots.staged(3)), (Some(768), None, None));
        assert!(slots.get(0).unwrap().end <= slots.get(3).unwrap().start);
        assert_eq!(slots.gaps(), [266..512, 560..768, 1068..1280]);
    }
}
