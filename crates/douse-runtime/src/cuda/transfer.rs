//! Copies of any length between host and device through two pieces of pinned memory, one filled while the other is copied.

use douse_core::{Error, Result};
use douse_cpu::Threads;
use douse_cuda::{Device, Event, PinnedMemory, Place, Stream};

/// Bytes of a piece: long enough that the copy's own cost is small.
const PIECE: usize = 8 << 20;
/// Bytes that a thread copies at a time: one alone copies a fraction of what the bus takes.
const PART: usize = 256 << 10;

#[derive(Debug)]
pub(super) struct Transfer {
    device: Device,
    // Dropped before the stream: pinned memory waits for the device.
    pieces: [(PinnedMemory, Event); 2],
    stream: Stream,
}

impl Transfer {
    pub fn new(device: &Device) -> Result<Transfer> {
        let piece = || Ok((device.pinned(PIECE)?, device.event(false)?));
        Ok(Transfer { device: device.clone(), pieces: [piece()?, piece()?], stream: device.stream()? })
    }

    pub fn upload(&mut self, bytes: &[u8], place: Place, threads: &Threads) -> Result<()> {
        if bytes.len() != place.len() {
            return Err(Error::internal(format!("{} bytes for {} on the device", bytes.len(), place.len())));
        }
        let _current = self.device.enter()?;
        if bytes.len() > PART && self.device.is_pinned(bytes) {
            return self.device.upload_pinned(bytes, place, &self.stream);
        }
        for (number, chunk) in bytes.chunks(PIECE).enumerate() {
            let (pinned, copied) = &mut self.pieces[number % 2];
            // An event that was never recorded counts as reached.
            copied.synchronize()?;
            pinned.write_by(chunk, PART, |count, part| threads.each(count, part))?;
            let start = number * PIECE;
            self.device.upload(pinned, 0, place.part(start..start + chunk.len())?, &self.stream)?;
            copied.record(&self.stream)?;
        }
        self.stream.synchronize()
    }

    pub fn download(&mut self, place: Place, bytes: &mut [u8], threads: &Threads) -> Result<()> {
        if bytes.len() != place.len() {
            return Err(Error::internal(format!("{} bytes for {} on the device", bytes.len(), place.len())));
        }
        let _current = self.device.enter()?;
        let part = |number: usize, len: usize| place.part(number * PIECE..number * PIECE + len);
        let mut chunks = bytes.chunks_mut(PIECE).enumerate().peekable();
        if let Some((number, chunk)) = chunks.peek() {
            let (pinned, copied) = &self.pieces[0];
            self.device.download(part(*number, chunk.len())?, pinned, 0, &self.stream)?;
            copied.record(&self.stream)?;
        }
        while let Some((number, chunk)) = chunks.next() {
            if let Some((next, chunk)) = chunks.peek() {
                let (pinned, copied) = &self.pieces[next % 2];
                self.device.download(part(*next, chunk.len())?, pinned, 0, &self.stream)?;
                copied.record(&self.stream)?;
            }
            let (pinned, copied) = &self.pieces[number % 2];
            copied.synchronize()?;
            pinned.read_by(chunk, PART, |count, part| threads.each(count, part))?;
        }
        Ok(())
    }

    pub fn copy(&mut self, from: Place, to: Place) -> Result<()> {
        self.device.copy(from, to, &self.stream)?;
        self.stream.synchronize()
    }
}
