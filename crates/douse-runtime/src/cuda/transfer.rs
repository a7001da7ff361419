//! Copies of any length between host and device through pinned memory: while as many threads as there are fill or empty parts of it, the device
//! copies others.

use std::sync::{Mutex, MutexGuard, PoisonError};

use douse_core::{Error, Result};
use douse_cpu::Threads;
use douse_cuda::{Device, Event, PinnedMemory, Place, Stream};

/// Bytes that go to the device through one piece of pinned memory, while another is filled.
const PIECE: usize = 16 << 20;
/// Bytes that a thread copies at a time.
const PART: usize = 256 << 10;
/// Bytes of a chunk that comes back: long enough that the copy's own cost is small.
const CHUNK: usize = 512 << 10;
/// Chunks of the ring for what comes back: enough that each thread has one, and the device others.
const SLOTS: usize = 32;

#[derive(Debug)]
pub(super) struct Transfer {
    device: Device,
    // Dropped before the stream: pinned memory waits for the device.
    /// For uploads, made when they are needed.
    pieces: Vec<Slot>,
    /// For downloads, likewise.
    ring: Vec<Mutex<Slot>>,
    stream: Stream,
}

/// Pinned memory, and when the device was done with it.
#[derive(Debug)]
struct Slot {
    pinned: PinnedMemory,
    copied: Event,
}

impl Slot {
    fn new(device: &Device, len: usize) -> Result<Slot> {
        Ok(Slot { pinned: device.pinned(len)?, copied: device.event(false)? })
    }
}

impl Transfer {
    pub fn new(device: &Device) -> Result<Transfer> {
        Ok(Transfer { device: device.clone(), pieces: Vec::new(), ring: Vec::new(), stream: device.stream()? })
    }

    pub fn upload(&mut self, bytes: &[u8], place: Place, threads: &Threads) -> Result<()> {
        same_length(bytes, place)?;
        let _current = self.device.enter()?;
        if bytes.len() > CHUNK && self.device.is_pinned(bytes) {
            return self.device.upload_pinned(bytes, place, &self.stream);
        }
        for (number, part) in bytes.chunks(PIECE).enumerate() {
            let at = number % 2;
            // Weights and state are often small; what needs more than a chunk takes whole pieces.
            let len = if bytes.len() <= CHUNK { CHUNK } else { PIECE };
            if self.pieces.get(at).is_none_or(|slot| slot.pinned.len() < part.len()) {
                self.pieces.truncate(at);
                self.pieces.push(Slot::new(&self.device, len)?);
            }
            let slot = self.pieces.get_mut(at).ok_or_else(|| Error::internal("no pinned memory"))?;
            // An event that was never recorded counts as reached.
            slot.copied.synchronize()?;
            let start = number * PIECE;
            let to = place.part(start..start + part.len())?;
            let sent = self.device.upload_by(part, &mut slot.pinned, to, &self.stream, PART, |copy| {
                if part.len() > PART {
                    threads.each(threads.count(), |_| while copy() {});
                }
            });
            let recorded = sent.and_then(|()| slot.copied.record(&self.stream));
            if recorded.is_err() {
                // What was sent may still be read.
                self.stream.synchronize()?;
            }
            recorded?;
        }
        self.stream.synchronize()
    }

    pub fn download(&mut self, place: Place, bytes: &mut [u8], threads: &Threads) -> Result<()> {
        same_length(bytes, place)?;
        let _current = self.device.enter()?;
        while self.ring.len() < SLOTS.min(bytes.len().div_ceil(CHUNK)) {
            self.ring.push(Mutex::new(Slot::new(&self.device, CHUNK)?));
        }
        // Each is taken by the one thread that copies it.
        let chunks: Vec<Mutex<&mut [u8]>> = bytes.chunks_mut(CHUNK).map(Mutex::new).collect();
        let begin = |number: usize, slot: &Slot| -> Result<()> {
            if number < chunks.len() {
                self.device.download(part(place, number)?, &slot.pinned, 0, &self.stream)?;
                slot.copied.record(&self.stream)?;
            }
            Ok(())
        };
        for (number, slot) in self.ring.iter().enumerate() {
            begin(number, &lock(slot))?;
        }
        let slots = self.ring.len();
        self.each(chunks.len(), threads, |number, slot| {
            slot.copied.synchronize()?;
            if let Some(chunk) = chunks.get(number) {
                slot.pinned.read(0, &mut lock(chunk))?;
            }
            begin(number + slots, slot)
        })
    }

    /// Works on every chunk in its slot of the ring, those of one slot in order.
    fn each(
        &self,
        chunks: usize,
        threads: &Threads,
        work: impl Fn(usize, &mut Slot) -> Result<()> + Sync,
    ) -> Result<()> {
        let slots = self.ring.len().max(1);
        if threads.count() == 1 || chunks == 1 {
            return (0..chunks).try_for_each(|number| match self.ring.get(number % slots) {
                Some(slot) => work(number, &mut lock(slot)),
                None => Ok(()),
            });
        }
        let failed = Mutex::new(Ok(()));
        threads.each(slots.min(chunks), |first| {
            let Some(slot) = self.ring.get(first) else { return };
            let mut slot = lock(slot);
            let done = self
                .device
                .enter()
                .and_then(|_current| (first..chunks).step_by(slots).try_for_each(|number| work(number, &mut slot)));
            if done.is_err() {
                *lock(&failed) = done;
            }
        });
        failed.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn copy(&mut self, from: Place, to: Place) -> Result<()> {
        self.device.copy(from, to, &self.stream)?;
        self.stream.synchronize()
    }
}

fn same_length(bytes: &[u8], place: Place) -> Result<()> {
    if bytes.len() == place.len() {
        return Ok(());
    }
    Err(Error::internal(format!("{} bytes for {} on the device", bytes.len(), place.len())))
}

/// Where a chunk lies.
fn part(place: Place, number: usize) -> Result<Place> {
    let start = number * CHUNK;
    place.part(start..place.len().min(start + CHUNK))
}

/// What another thread's panic left behind may be used: the panic ends the call, and no call reads what it has not copied itself.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
