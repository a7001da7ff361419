//! Memory on a device, and pinned memory of the host.

use std::ffi::c_void;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use douse_core::{Code, Error, Result};

use super::device::Device;
use super::entry::{Address, HOST};
use super::stream::Stream;

/// Memory on a device, freed when dropped. (The driver frees it when the work that uses it is done.)
#[derive(Debug)]
pub struct DeviceMemory {
    device: Device,
    address: Address,
    len: usize,
}

/// A run of bytes on a device: what copies and launches take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    address: Address,
    len: usize,
}

/// `CU_POINTER_ATTRIBUTE_MEMORY_TYPE`
const POINTER_KIND: i32 = 2;
/// `CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL`
const POINTER_DEVICE: i32 = 9;

impl Device {
    /// Memory of that many bytes, with unspecified contents.
    ///
    /// # Errors
    /// `MemoryAllocationFailed`, with the bytes asked for and those that were free.
    pub fn allocate(&self, len: usize) -> Result<DeviceMemory> {
        let _current = self.enter()?;
        let mut address = 0;
        if len > 0 {
            // SAFETY: the pointer is to a variable; freed when the memory is dropped.
            let status = unsafe { (self.table().cuMemAlloc)(&raw mut address, len) };
            self.check("cuMemAlloc", status).map_err(|error| self.short_of(len, error))?;
        }
        Ok(DeviceMemory { device: self.clone(), address, len })
    }

    fn short_of(&self, len: usize, error: Error) -> Error {
        if error.code != Code::MemoryAllocationFailed {
            return error;
        }
        let free = self.free_memory().map_or_else(|_| "an unknown number".to_owned(), |free| free.to_string());
        let (name, total) = (self.name(), self.total_memory());
        let message = format!(
            "cuda:{} ({name}) has no memory for {len} bytes: {free} of its {total} bytes are free ({})",
            self.ordinal(),
            error.message
        );
        Error::new(Code::MemoryAllocationFailed, message)
    }

    /// Memory of the host that the device copies from and to without a detour, zeroed.
    ///
    /// # Errors
    /// `MemoryAllocationFailed`; what the driver says otherwise.
    pub fn pinned(&self, len: usize) -> Result<PinnedMemory> {
        let _current = self.enter()?;
        let mut start: *mut c_void = std::ptr::null_mut();
        if len > 0 {
            // SAFETY: the pointer is to a variable; freed when the memory is dropped.
            let status = unsafe { (self.table().cuMemHostAlloc)(&raw mut start, len, 0) };
            self.check("cuMemHostAlloc", status).map_err(|e| e.at(format!("{len} bytes of pinned memory")))?;
            // SAFETY: the memory is of that length and ours.
            unsafe { std::ptr::write_bytes(start.cast::<u8>(), 0, len) };
        }
        Ok(PinnedMemory(Arc::new(PinnedBytes { device: self.clone(), start: start.cast(), len })))
    }

    /// A caller's memory on this device.
    ///
    /// # Errors
    /// `InvalidArgument` where the driver knows no such memory, or it is another device's.
    ///
    /// # Safety
    /// It must be that long, and stay allocated until all work that is given the place is done.
    pub unsafe fn borrow_memory(&self, address: u64, len: usize) -> Result<Place> {
        let _current = self.enter()?;
        let mut ordinal: i32 = -1;
        // SAFETY: the pointer is to a variable of the attribute's type; the driver refuses addresses that it does not know.
        let status =
            unsafe { (self.table().cuPointerGetAttribute)((&raw mut ordinal).cast(), POINTER_DEVICE, address) };
        let known = self.check("cuPointerGetAttribute", status);
        known.map_err(|e| Error::invalid_argument(format!("{address:#x} is no memory of a CUDA device: {e}")))?;
        if ordinal.unsigned_abs() != self.ordinal() {
            return Err(Error::invalid_argument(format!(
                "{address:#x} is memory of cuda:{ordinal}, expected cuda:{}",
                self.ordinal()
            )));
        }
        Ok(Place { address, len })
    }

    /// Copies between two places of one length, which may lie on one device only.
    ///
    /// # Errors
    /// What the driver says; `Internal` where the lengths differ.
    pub fn copy(&self, from: Place, to: Place, stream: &Stream) -> Result<()> {
        if from.len != to.len {
            return Err(Error::internal(format!("a copy of {} bytes to {}", from.len, to.len)));
        }
        if from.len == 0 || from.address == to.address {
            return Ok(());
        }
        let _current = self.enter()?;
        // SAFETY: both places are memory of the device and of that length.
        let status = unsafe { (self.table().cuMemcpyDtoDAsync)(to.address, from.address, from.len, stream.raw()) };
        self.check("cuMemcpyDtoDAsync", status)
    }

    /// Sets every byte of a place.
    ///
    /// # Errors
    /// What the driver says.
    pub fn fill(&self, place: Place, value: u8, stream: &Stream) -> Result<()> {
        if place.len == 0 {
            return Ok(());
        }
        let _current = self.enter()?;
        // SAFETY: the place is memory of the device and of that length.
        let status = unsafe { (self.table().cuMemsetD8Async)(place.address, value, place.len, stream.raw()) };
        self.check("cuMemsetD8Async", status)
    }

    /// Copies a part of pinned memory to a place.
    ///
    /// # Errors
    /// What the driver says; `Internal` where the part does not fit.
    pub fn upload(&self, from: &PinnedMemory, start: usize, to: Place, stream: &Stream) -> Result<()> {
        let from = from.part(start, to.len)?;
        if to.len == 0 {
            return Ok(());
        }
        let _current = self.enter()?;
        // SAFETY: the pinned part has the place's length. Its owner waits for the device before it frees it.
        let status = unsafe { (self.table().cuMemcpyHtoDAsync)(to.address, from.cast(), to.len, stream.raw()) };
        self.check("cuMemcpyHtoDAsync", status)
    }

    /// Whether bytes lie in memory that a caller has pinned (`cuMemHostAlloc`, `cuMemHostRegister`, PyTorch's `pin_memory`).
    pub fn is_pinned(&self, bytes: &[u8]) -> bool {
        let Ok(_current) = self.enter() else { return false };
        let knows = |at: Option<&u8>| {
            let mut kind: u32 = 0;
            let Some(at) = at.map(|byte| std::ptr::from_ref(byte).addr() as u64) else { return false };
            // SAFETY: the pointer is to a variable of the attribute's type; the driver refuses addresses that it does not know.
            let status = unsafe { (self.table().cuPointerGetAttribute)((&raw mut kind).cast(), POINTER_KIND, at) };
            status == 0 && kind == HOST
        };
        knows(bytes.first()) && knows(bytes.last())
    }

    /// Copies bytes that are [pinned](Device::is_pinned) to a place of their length, and waits.
    ///
    /// # Errors
    /// What the driver says; `Internal` where the lengths differ.
    pub fn upload_pinned(&self, from: &[u8], to: Place, stream: &Stream) -> Result<()> {
        if from.len() != to.len {
            return Err(Error::internal(format!("a copy of {} bytes to {}", from.len(), to.len)));
        }
        let _current = self.enter()?;
        // SAFETY: both are of that length; the bytes are borrowed until the copy is done, or can never be done.
        let status =
            unsafe { (self.table().cuMemcpyHtoDAsync)(to.address, from.as_ptr().cast(), to.len, stream.raw()) };
        let copied = self.check("cuMemcpyHtoDAsync", status);
        stream.synchronize()?;
        copied
    }

    /// Copies a place into a part of pinned memory.
    ///
    /// # Errors
    /// What the driver says; `Internal` where the part does not fit.
    pub fn download(&self, from: Place, to: &PinnedMemory, start: usize, stream: &Stream) -> Result<()> {
        let to = to.part(start, from.len)?;
        if from.len == 0 {
            return Ok(());
        }
        let _current = self.enter()?;
        // SAFETY: the pinned part has the place's length. Its owner waits for the device before it frees it.
        let status = unsafe { (self.table().cuMemcpyDtoHAsync)(to.cast(), from.address, from.len, stream.raw()) };
        self.check("cuMemcpyDtoHAsync", status)
    }
}

impl DeviceMemory {
    pub fn device(&self) -> &Device {
        &self.device
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// All of it.
    pub fn all(&self) -> Place {
        Place { address: self.address, len: self.len }
    }

    /// A part of it.
    ///
    /// # Errors
    /// `Internal` where it reaches outside.
    pub fn part(&self, range: Range<usize>) -> Result<Place> {
        self.all().part(range)
    }

    /// Sets every byte of a part.
    ///
    /// # Errors
    /// As [`Device::fill`] and [`DeviceMemory::part`].
    pub fn fill(&self, range: Range<usize>, value: u8, stream: &Stream) -> Result<()> {
        self.device.fill(self.part(range)?, value, stream)
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        if self.len > 0 {
            // SAFETY: allocated by us; the driver waits for work that uses it.
            self.device.release("cuMemFree", || unsafe { (self.device.table().cuMemFree)(self.address) });
        }
    }
}

impl Place {
    pub fn address(&self) -> u64 {
        self.address
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// A part of it.
    ///
    /// # Errors
    /// `Internal` where it reaches outside.
    pub fn part(&self, range: Range<usize>) -> Result<Place> {
        if range.start > range.end || range.end > self.len {
            return Err(Error::internal(format!("bytes {range:?} of {} on the device", self.len)));
        }
        Ok(Place { address: self.address + range.start as u64, len: range.end - range.start })
    }
}

/// Pinned memory of the host. Bytes are copied in and out, and no reference into it is given away: the device may be writing.
#[derive(Debug)]
pub struct PinnedMemory(Arc<PinnedBytes>);

/// What is pinned; graphs that copy from or to it keep it.
#[derive(Debug)]
pub(super) struct PinnedBytes {
    device: Device,
    start: *mut u8,
    len: usize,
}

// SAFETY: the memory is the owner's; the driver may be called from any thread.
unsafe impl Send for PinnedBytes {}
// SAFETY: through a shared reference it is read, and written by the device alone; `write` takes a unique one of its owner.
unsafe impl Sync for PinnedBytes {}

impl PinnedMemory {
    pub fn len(&self) -> usize {
        self.0.len
    }

    pub fn is_empty(&self) -> bool {
        self.0.len == 0
    }

    /// The address that a kernel takes for a place in it. (Pinned memory lies in the address space that the host and its devices share.)
    ///
    /// # Errors
    /// `Internal` where there is no such place.
    pub fn address(&self, start: usize) -> Result<u64> {
        Ok(self.part(start, 0)?.addr() as u64)
    }

    /// The word at a multiple of four bytes, which a kernel may be writing; what it wrote before that, beyond a fence, can be read then.
    ///
    /// # Errors
    /// `Internal` where there is none.
    pub fn word(&self, start: usize) -> Result<u32> {
        Ok(self.word_at(start)?.load(Ordering::Acquire))
    }

    /// Sets a word.
    ///
    /// # Errors
    /// `Internal` where there is none.
    pub fn set_word(&mut self, start: usize, value: u32) -> Result<()> {
        self.word_at(start)?.store(value, Ordering::Release);
        Ok(())
    }

    fn word_at(&self, start: usize) -> Result<&AtomicU32> {
        let word = self.part(start, size_of::<u32>())?;
        if !start.is_multiple_of(size_of::<u32>()) {
            return Err(Error::internal(format!("a word at byte {start} of pinned memory")));
        }
        // SAFETY: the part is ours, of a word's length, and aligned as the memory is; it lives as long as `self`.
        Ok(unsafe { AtomicU32::from_ptr(word.cast()) })
    }

    pub(super) fn bytes(&self) -> Arc<PinnedBytes> {
        self.0.clone()
    }

    pub(super) fn part(&self, start: usize, len: usize) -> Result<*mut u8> {
        match start.checked_add(len) {
            Some(end) if end <= self.0.len => Ok(self.0.start.wrapping_add(start)),
            _ => Err(Error::internal(format!("{len} bytes from {start} of {} bytes of pinned memory", self.0.len))),
        }
    }

    /// Copies bytes in. What a copy to the device that is under way sees of them is unspecified.
    ///
    /// # Errors
    /// `Internal` where they do not fit.
    pub fn write(&mut self, start: usize, bytes: &[u8]) -> Result<()> {
        let to = self.part(start, bytes.len())?;
        // SAFETY: the part is of that length and ours; a slice elsewhere cannot overlap it, as no reference into it exists.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
        Ok(())
    }

    /// Copies bytes out.
    ///
    /// # Errors
    /// `Internal` where they do not lie within.
    pub fn read(&self, start: usize, bytes: &mut [u8]) -> Result<()> {
        let from = self.part(start, bytes.len())?;
        // SAFETY: as in `write`.
        unsafe { std::ptr::copy_nonoverlapping(from.cast_const(), bytes.as_mut_ptr(), bytes.len()) };
        Ok(())
    }
}

impl Drop for PinnedBytes {
    fn drop(&mut self) {
        if self.len > 0 {
            let table = self.device.table();
            // Copies from or to it may be under way where a call failed half-way.
            // SAFETY: the context is current.
            self.device.release("cuCtxSynchronize", || unsafe { (table.cuCtxSynchronize)() });
            // SAFETY: allocated by us; no copy is under way any more.
            self.device.release("cuMemFreeHost", || unsafe { (table.cuMemFreeHost)(self.start.cast()) });
        }
    }
}
