//! Copies of any length between host and device, in chunks through a ring of pinned memory: while some are filled or emptied, by as many threads
//! as there are, the device copies others.

use std::sync::{Mutex, MutexGuard, PoisonError};

use douse_core::{Error, Result};
use douse_cpu::Threads;
use douse_cuda::{Device, Event, PinnedMemory, Place, Stream};

/// Bytes of a chunk: long enough that the copy's own cost is small.
const CHUNK: usize = 512 << 10;
/// Chunks of the ring: enough that each thread has one, and the device others.
const SLOTS: usize = 32;

#[derive(Debug)]
pub(super) struct Transfer {
    device: Device,
    // Dropped before the stream: pinned memory waits for the device.
    ring: Vec<Mutex<Slot>>,
    stream: Stream,
}

/// Pinned memory for a chunk, and when the device was done with it.
#[derive(Debug)]
struct Slot {
    pinned: PinnedMemory,
    copied: Event,
}

impl Transfer {
    pub fn new(device: &Device) -> Result<Transfer> {
        let slot = |_| Ok(Mutex::new(Slot { pinned: device.pinned(CHUNK)?, copied: device.event(false)? }));
        let ring = (0..SLOTS).map(slot).collect::<Result<_>>()?;
        Ok(Transfer { device: device.clone(), ring, stream: device.stream()? })
    }

    pub fn upload(&mut self, bytes: &[u8], place: Place, threads: &Threads) -> Result<()> {
        same_length(bytes, place)?;
        let _current = self.device.enter()?;
        if bytes.len() > CHUNK && self.device.is_pinned(bytes) {
            return self.device.upload_pinned(bytes, place, &self.stream);
        }
        let chunks: Vec<&[u8]> = bytes.chunks(CHUNK).collect();
        self.each(chunks.len(), threads, |number, slot| {
            let Some(chunk) = chunks.get(number) else { return Ok(()) };
            // An event that was never recorded counts as reached.
            slot.copied.synchronize()?;
            slot.pinned.write(0, chunk)?;
            self.device.upload(&slot.pinned, 0, part(place, number)?, &self.stream)?;
            slot.copied.record(&self.stream)
        })?;
        self.stream.synchronize()
    }

    pub fn download(&mut self, place: Place, bytes: &mut [u8], threads: &Threads) -> Result<()> {
        same_length(bytes, place)?;
        let _current = self.device.enter()?;
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
        self.each(chunks.len(), threads, |number, slot| {
            slot.copied.synchronize()?;
            if let Some(chunk) = chunks.get(number) {
                slot.pinned.read(0, &mut lock(chunk))?;
            }
            begin(number + SLOTS, slot)
        })
    }

    /// Works on every chunk in its slot of the ring, those of one slot in order.
    fn each(
        &self,
        chunks: usize,
        threads: &Threads,
        work: impl Fn(usize, &mut Slot) -> Result<()> + Sync,
    ) -> Result<()> {
        if threads.count() == 1 || chunks == 1 {
            return (0..chunks).try_for_each(|number| match self.ring.get(number % SLOTS) {
                Some(slot) => work(number, &mut lock(slot)),
                None => Ok(()),
            });
        }
        let failed = Mutex::new(Ok(()));
        threads.each(SLOTS.min(chunks), |first| {
            let Some(slot) = self.ring.get(first) else { return };
            let mut slot = lock(slot);
            let done = self
                .device
                .enter()
                .and_then(|_current| (first..chunks).step_by(SLOTS).try_for_each(|number| work(number, &mut slot)));
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

/// A thread that panicked left a chunk half copied, which its call is told.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
