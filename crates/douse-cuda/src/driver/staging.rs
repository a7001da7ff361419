//! Uploads through pinned memory that several threads fill.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use douse_core::{Error, Result};

use super::device::Device;
use super::memory::{PinnedMemory, Place};
use super::stream::Stream;

/// An upload under way.
struct Staging<'a> {
    device: &'a Device,
    bytes: &'a [u8],
    through: &'a PinnedMemory,
    to: Place,
    stream: &'a Stream,
    part: usize,
    /// The next part to be copied.
    next: AtomicUsize,
    /// Which parts are in pinned memory.
    ready: Vec<AtomicBool>,
    /// How many parts are on the stream.
    sent: Mutex<Result<usize>>,
}

impl Device {
    /// Copies bytes to a place through pinned memory of at least their length. `run` gets what copies the next part, of `part` bytes, to pinned
    /// memory and puts on the stream what has come together there; it says whether there was a part left. Several threads may call it, as
    /// often as they like; what is left when `run` returns is done then. The copies from pinned memory may be under way at the end.
    ///
    /// # Errors
    /// What the driver says; `Internal` where lengths do not fit.
    pub fn upload_by(
        &self,
        bytes: &[u8],
        through: &mut PinnedMemory,
        to: Place,
        stream: &Stream,
        part: usize,
        run: impl FnOnce(&(dyn Fn() -> bool + Sync)),
    ) -> Result<()> {
        if bytes.len() != to.len() || part == 0 {
            return Err(Error::internal(format!("a copy of {} bytes to {}", bytes.len(), to.len())));
        }
        through.part(0, bytes.len())?;
        let parts = bytes.len().div_ceil(part);
        let ready = (0..parts).map(|_| AtomicBool::new(false)).collect();
        let (next, sent) = (AtomicUsize::new(0), Mutex::new(Ok(0)));
        let staging = Staging { device: self, bytes, through, to, stream, part, next, ready, sent };
        run(&|| staging.step());
        while staging.step() {}
        staging.send();
        match staging.sent.into_inner() {
            Ok(Ok(sent)) if sent == parts => Ok(()),
            Ok(Err(error)) => Err(error),
            _ => Err(Error::internal("an upload that was left half done")),
        }
    }
}

impl Staging<'_> {
    fn step(&self) -> bool {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (Some(ready), start) = (self.ready.get(number), number.saturating_mul(self.part)) else { return false };
        let bytes = self.bytes.get(start..self.bytes.len().min(start + self.part)).unwrap_or_default();
        if let Ok(to) = self.through.part(start, bytes.len()) {
            // SAFETY: the part lies in pinned memory, which is borrowed as ours alone, and is this call's alone, by its number.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
        }
        ready.store(true, Ordering::Release);
        self.send();
        true
    }

    /// Puts on the stream what follows what is there, unless another thread is at it.
    fn send(&self) {
        let Ok(mut sent) = self.sent.try_lock() else { return };
        let Ok(first) = *sent else { return };
        let more = self.ready.iter().skip(first).take_while(|ready| ready.load(Ordering::Acquire)).count();
        if more == 0 {
            return;
        }
        let range = first * self.part..self.bytes.len().min((first + more) * self.part);
        let place = self.to.part(range.clone());
        let copied = place.and_then(|place| self.device.upload(self.through, range.start, place, self.stream));
        *sent = copied.map(|()| first + more);
    }
}
