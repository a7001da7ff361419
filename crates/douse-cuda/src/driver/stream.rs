//! Streams and events.

use std::ffi::c_uint;

use douse_core::{Error, Result};

use super::device::Device;
use super::entry::{RawEvent, RawStream};

/// `CU_STREAM_NON_BLOCKING`: no implicit order with the default stream.
const NON_BLOCKING: c_uint = 1;
/// `CU_EVENT_DISABLE_TIMING`.
const NO_TIMING: c_uint = 2;
/// `CUDA_ERROR_NOT_READY`: work is still under way.
const NOT_READY: i32 = 600;

/// Work in order on a device. Dropping it does not wait: the work goes on.
#[derive(Debug)]
pub struct Stream {
    device: Device,
    raw: RawStream,
    owned: bool,
}

impl Device {
    /// A stream that does not wait for the default stream.
    ///
    /// # Errors
    /// What the driver says.
    pub fn stream(&self) -> Result<Stream> {
        let _current = self.enter()?;
        let mut raw = RawStream::NULL;
        // SAFETY: the pointer is to a variable; destroyed when the stream is dropped.
        self.check("cuStreamCreate", unsafe { (self.table().cuStreamCreate)(&raw mut raw, NON_BLOCKING) })?;
        Ok(Stream { device: self.clone(), raw, owned: true })
    }

    /// A caller's stream (`CUstream`, `cudaStream_t`), which stays the caller's.
    ///
    /// # Safety
    /// It must be a stream of this device's primary context, and outlive what is returned.
    pub unsafe fn borrow_stream(&self, raw: *mut std::ffi::c_void) -> Stream {
        Stream { device: self.clone(), raw: RawStream(raw), owned: false }
    }

    /// A point in a stream's work, with the time it was reached where `timed`.
    ///
    /// # Errors
    /// What the driver says.
    pub fn event(&self, timed: bool) -> Result<Event> {
        let _current = self.enter()?;
        let mut raw = RawEvent::NULL;
        let flags = if timed { 0 } else { NO_TIMING };
        // SAFETY: the pointer is to a variable; destroyed when the event is dropped.
        self.check("cuEventCreate", unsafe { (self.table().cuEventCreate)(&raw mut raw, flags) })?;
        Ok(Event { device: self.clone(), raw })
    }
}

impl Stream {
    pub fn device(&self) -> &Device {
        &self.device
    }

    pub(crate) fn raw(&self) -> RawStream {
        self.raw
    }

    /// Waits for all work that was put on the stream.
    ///
    /// # Errors
    /// What went wrong in the work, if anything.
    pub fn synchronize(&self) -> Result<()> {
        let _current = self.device.enter()?;
        // SAFETY: the stream lives.
        self.device.check("cuStreamSynchronize", unsafe { (self.device.table().cuStreamSynchronize)(self.raw) })
    }

    /// Whether all work is done.
    ///
    /// # Errors
    /// What went wrong in the work, if anything.
    pub fn is_done(&self) -> Result<bool> {
        let _current = self.device.enter()?;
        // SAFETY: the stream lives.
        match unsafe { (self.device.table().cuStreamQuery)(self.raw) } {
            NOT_READY => Ok(false),
            status => self.device.check("cuStreamQuery", status).map(|()| true),
        }
    }

    /// Later work on this stream begins when the event was reached.
    ///
    /// # Errors
    /// What the driver says.
    pub fn wait(&self, event: &Event) -> Result<()> {
        let _current = self.device.enter()?;
        // SAFETY: both live; 0 is the one flag there is.
        let status = unsafe { (self.device.table().cuStreamWaitEvent)(self.raw, event.raw, 0) };
        self.device.check("cuStreamWaitEvent", status)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.owned {
            // SAFETY: created by us, and used by nobody any more.
            self.device.release("cuStreamDestroy", || unsafe { (self.device.table().cuStreamDestroy)(self.raw) });
        }
    }
}

/// A point in a stream's work.
#[derive(Debug)]
pub struct Event {
    device: Device,
    raw: RawEvent,
}

impl Event {
    /// Marks the work that the stream has so far.
    ///
    /// # Errors
    /// `InvalidArgument` for another device's stream; what the driver says.
    pub fn record(&self, stream: &Stream) -> Result<()> {
        if !stream.device.same(&self.device) {
            return Err(Error::invalid_argument("an event is recorded on another device's stream"));
        }
        let _current = self.device.enter()?;
        // SAFETY: both live.
        self.device.check("cuEventRecord", unsafe { (self.device.table().cuEventRecord)(self.raw, stream.raw) })
    }

    /// Waits until the event was reached.
    ///
    /// # Errors
    /// What went wrong in the work, if anything.
    pub fn synchronize(&self) -> Result<()> {
        let _current = self.device.enter()?;
        // SAFETY: the event lives.
        self.device.check("cuEventSynchronize", unsafe { (self.device.table().cuEventSynchronize)(self.raw) })
    }

    /// Whether it was reached.
    ///
    /// # Errors
    /// What went wrong in the work, if anything.
    pub fn is_done(&self) -> Result<bool> {
        let _current = self.device.enter()?;
        // SAFETY: the event lives.
        match unsafe { (self.device.table().cuEventQuery)(self.raw) } {
            NOT_READY => Ok(false),
            status => self.device.check("cuEventQuery", status).map(|()| true),
        }
    }

    /// Milliseconds from an earlier event to this one; both timed and reached.
    ///
    /// # Errors
    /// What the driver says.
    pub fn milliseconds_since(&self, earlier: &Event) -> Result<f32> {
        let _current = self.device.enter()?;
        let mut time = 0.0;
        // SAFETY: the pointer is to a variable; both events live.
        let status = unsafe { (self.device.table().cuEventElapsedTime)(&raw mut time, earlier.raw, self.raw) };
        self.device.check("cuEventElapsedTime", status)?;
        Ok(time)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: created by us, and used by nobody any more.
        self.device.release("cuEventDestroy", || unsafe { (self.device.table().cuEventDestroy)(self.raw) });
    }
}
