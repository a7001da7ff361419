//! The memory of a method's calls, kept from call to call.

use std::collections::BTreeMap;
use std::ops::Range;

use douse_core::{Error, Result};
use douse_cuda::{Argument, DeviceMemory, PinnedMemory, Place, Stream};
use douse_program::plan::BufferId;
use douse_program::target::{CONTROL_BYTES, TOLD_BYTES};

use super::device::CudaDevice;

/// Where values begin, on the device: what any vector load and copy likes.
const ALIGNMENT: usize = 256;

/// Larger values do not get pinned memory of their own, but go through the device's, in pieces.
const STAGED: usize = 1 << 20;

/// On the device: the error flag, in what [`CONTROL_BYTES`] says.
const FLAG: Range<usize> = 0..super::flag::BYTES;
/// What the host is told ([`TOLD_BYTES`]): the error flag, and whether all is there.
const DONE: usize = super::flag::BYTES;
/// Behind it: a number that is read.
pub(super) const NUMBER: Range<usize> = 64..80;
const _: () = assert!(TOLD_BYTES <= NUMBER.start && FLAG.end <= CONTROL_BYTES);
/// Bytes of the random state.
pub(super) const RANDOM: usize = 16;

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

/// How an input comes to its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// With the others, in one copy.
    Copied,
    /// The program writes it: it comes back.
    Written,
    /// In another layout than the program reads: the device brings what was copied into that. The bytes that are copied.
    Rearranged(usize),
    /// From where it lies on the device, in another layout.
    OnDevice,
}

/// An input for [`Slots::new`]: its buffer, its bytes, its way.
pub(super) type Given = (BufferId, usize, Way);

/// Inputs and outputs of a call: where they lie in the memory for values, and in its pinned twin.
///
/// First inputs that are copied, then the random state, then inputs that the program writes, then outputs: what goes to the device is one copy,
/// and what comes back another. What is too large for pinned memory, or is only on the device, lies behind.
#[derive(Clone, Debug, Default)]
pub(super) struct Slots {
    /// By buffer.
    ranges: Vec<Option<Range<usize>>>,
    /// Where the bytes of inputs lie that are rearranged then, by buffer.
    raw: Vec<Option<Range<usize>>>,
    /// Where the random state is, if there is one.
    random: Option<usize>,
    /// Where what comes back begins.
    returned: usize,
    /// Where what is copied to the device ends.
    uploaded: usize,
    /// What has a pinned twin.
    pub staged: usize,
    pub total: usize,
}

impl Slots {
    /// Places inputs and outputs of these bytes, and the random state where it is needed.
    pub fn new(buffers: usize, inputs: &[Given], outputs: &[(BufferId, usize)], random: bool) -> Slots {
        let mut slots = Slots { ranges: vec![None; buffers], raw: vec![None; buffers], ..Slots::default() };
        let small = |len: usize| len <= STAGED;
        for (buffer, len, way) in inputs {
            match way {
                Way::Copied if small(*len) => slots.add(*buffer, *len),
                Way::Rearranged(raw) if small(*raw) => slots.add_raw(*buffer, *raw),
                _ => {}
            }
        }
        if random {
            slots.random = Some(slots.total);
            slots.total += ALIGNMENT;
        }
        slots.returned = slots.total;
        for (buffer, len, way) in inputs {
            if *way == Way::Written && small(*len) {
                slots.add(*buffer, *len);
            }
        }
        slots.uploaded = slots.total;
        outputs.iter().filter(|(_, len)| small(*len)).for_each(|(buffer, len)| slots.add(*buffer, *len));
        slots.staged = slots.total;
        for (buffer, len, way) in inputs {
            if let Way::Rearranged(raw) = way
                && !small(*raw)
            {
                slots.add_raw(*buffer, *raw);
            }
            if slots.get(*buffer).is_none() {
                slots.add(*buffer, *len);
            }
        }
        outputs.iter().filter(|(_, len)| !small(*len)).for_each(|(buffer, len)| slots.add(*buffer, *len));
        slots
    }

    fn range(&mut self, len: usize) -> Range<usize> {
        let range = self.total..self.total + len;
        self.total = range.end.next_multiple_of(ALIGNMENT);
        range
    }

    fn add(&mut self, buffer: BufferId, len: usize) {
        let range = self.range(len);
        if let Some(slot) = self.ranges.get_mut(buffer as usize) {
            *slot = Some(range);
        }
    }

    fn add_raw(&mut self, buffer: BufferId, len: usize) {
        let range = self.range(len);
        if let Some(slot) = self.raw.get_mut(buffer as usize) {
            *slot = Some(range);
        }
    }

    pub fn get(&self, buffer: BufferId) -> Option<Range<usize>> {
        self.ranges.get(buffer as usize).cloned().flatten()
    }

    /// Where the bytes of an input lie that is rearranged then.
    pub fn raw(&self, buffer: BufferId) -> Option<Range<usize>> {
        self.raw.get(buffer as usize).cloned().flatten()
    }

    /// Where a value begins in pinned memory, if it is there.
    pub fn staged(&self, range: &Range<usize>) -> Option<usize> {
        (range.end <= self.staged).then_some(range.start)
    }

    /// The random state, if there is one.
    pub fn random(&self) -> Option<Range<usize>> {
        self.random.map(|start| start..start + RANDOM)
    }

    /// What goes to the device when a call begins.
    pub fn uploaded(&self) -> Range<usize> {
        0..self.uploaded
    }

    /// What comes back and nothing writes: what lies between values.
    pub fn gaps(&self) -> Vec<Range<usize>> {
        let mut taken: Vec<Range<usize>> = self.ranges.iter().flatten().cloned().collect();
        taken.retain(|range| range.start >= self.returned && range.end <= self.staged);
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
        let own = device.device().stream()?;
        let control = device.allocate(CONTROL_BYTES, || "a control block".to_owned())?;
        control.fill(0..CONTROL_BYTES, 0, &own)?;
        let memory = Memory {
            control,
            told: Told(device.device().pinned(ALIGNMENT)?),
            pinned: device.device().pinned(0)?,
            pinning: 0,
            values: Growing::default(),
            arena: Growing::default(),
            scratch: Growing::default(),
            late: BTreeMap::new(),
        };
        own.synchronize()?;
        Ok(Room { memory, snapshot: Growing::default(), own })
    }
}

/// What the device tells the host: pinned memory that its last kernel writes.
#[derive(Debug)]
pub(super) struct Told(PinnedMemory);

impl Told {
    /// Nothing is told yet.
    pub fn clear(&mut self) -> Result<()> {
        self.0.set_word(DONE, 0)
    }

    /// Whether everything was told since [`Told::clear`].
    pub fn is_done(&self) -> Result<bool> {
        Ok(self.0.word(DONE)? != 0)
    }

    /// The error flag as it was told.
    pub fn flag(&self) -> Result<[u8; super::flag::BYTES]> {
        let mut bytes = [0; super::flag::BYTES];
        self.0.read(0, &mut bytes)?;
        Ok(bytes)
    }

    /// The first bytes of the number that was read.
    pub fn number(&self, bytes: &mut [u8]) -> Result<()> {
        self.0.read(NUMBER.start, bytes)
    }

    /// A place in it as a kernel takes it.
    pub fn argument(&self, start: usize) -> Result<Argument> {
        Ok(Argument::U64(self.0.address(start)?))
    }
}

/// The memory that a call's commands name.
#[derive(Debug)]
pub(super) struct Memory {
    control: DeviceMemory,
    pub told: Told,
    pub pinned: PinnedMemory,
    /// How often pinned memory has moved.
    pub pinning: u64,
    /// Inputs and outputs.
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

    /// The control block: all zero between calls.
    pub fn control(&self) -> Place {
        self.control.all()
    }

    /// The error flag, on the device.
    pub fn flag(&self) -> Result<Place> {
        self.control.part(FLAG)
    }

    /// How often inputs, outputs or temporaries have moved.
    pub fn laid(&self) -> u64 {
        self.pinning + self.values.moves + self.arena.moves
    }

    /// How often anything has moved: places that were found before are those of now while this stays.
    pub fn moves(&self) -> u64 {
        let late: u64 = self.late.values().map(|late| late.moves).sum();
        self.laid() + self.scratch.moves + late
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_copied_together_lies_together_and_large_values_are_not_pinned() {
        let large = STAGED + 1;
        let inputs =
            [(0, large, Way::Copied), (1, 10, Way::Written), (4, 20, Way::Copied), (5, 40, Way::Rearranged(30))];
        let slots = Slots::new(6, &inputs, &[(2, 300), (3, large)], true);
        assert_eq!((slots.get(4), slots.raw(5)), (Some(0..20), Some(256..286)));
        assert_eq!((slots.random(), slots.get(1), slots.get(2)), (Some(512..528), Some(768..778), Some(1024..1324)));
        assert_eq!((slots.uploaded(), slots.downloaded()), (0..1024, 768..1536));
        assert_eq!([4, 2, 5, 0].map(|id| slots.staged(&slots.get(id).unwrap())), [Some(0), Some(1024), None, None]);
        assert!(slots.get(0).unwrap().end <= slots.get(3).unwrap().start);
        assert_eq!(slots.gaps(), [778..1024, 1324..1536]);
    }
}
