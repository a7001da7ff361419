//! A device and its primary context.

use std::ffi::{CStr, c_char, c_int};
use std::fmt;
use std::sync::Arc;

use douse_core::{Code, Error, Result};

use super::Driver;
use super::entry::{DeviceNumber, RawContext};

/// A device whose primary context is retained; clones are the same one. Other libraries of the process that use the primary
/// context, as PyTorch does, share memory with it.
#[derive(Clone)]
pub struct Device(Arc<Inner>);

struct Inner {
    driver: Driver,
    ordinal: u32,
    number: DeviceNumber,
    context: RawContext,
    name: String,
    capability: (u32, u32),
    memory: usize,
}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: retained once, in `open`; every handle of the context has held this and is gone.
        let status = unsafe { (self.driver.table().cuDevicePrimaryCtxRelease)(self.number) };
        self.driver.log("cuDevicePrimaryCtxRelease", status);
    }
}

/// What a device can be asked, with the driver's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Attribute {
    MaxThreadsPerBlock = 1,
    /// Bytes that a block may have without asking.
    SharedMemoryPerBlock = 8,
    MultiprocessorCount = 16,
    /// Bytes.
    L2CacheSize = 38,
    ComputeCapabilityMajor = 75,
    ComputeCapabilityMinor = 76,
    /// Bytes that a block may have where its function asked ([`super::module::FunctionAttribute::MaxDynamicSharedMemory`]).
    SharedMemoryPerBlockOptin = 97,
}

impl Device {
    pub(super) fn open(driver: &Driver, ordinal: u32) -> Result<Device> {
        let count = driver.device_count()?;
        if ordinal >= count {
            let plural = if count == 1 { "" } else { "s" };
            return Err(Error::new(
                Code::NotFound,
                format!("there is no CUDA device {ordinal}: this machine has {count} CUDA device{plural}"),
            ));
        }
        let table = driver.table();
        let mut number = 0;
        // SAFETY: the pointer is to a variable; the number is that of a device, as checked.
        driver.check("cuDeviceGet", unsafe { (table.cuDeviceGet)(&raw mut number, ordinal as c_int) })?;
        let ask = |attribute| attribute_of(driver, number, attribute);
        let capability =
            (ask(Attribute::ComputeCapabilityMajor)? as u32, ask(Attribute::ComputeCapabilityMinor)? as u32);
        let mut memory = 0;
        // SAFETY: the pointer is to a variable.
        driver.check("cuDeviceTotalMem", unsafe { (table.cuDeviceTotalMem)(&raw mut memory, number) })?;
        let mut text = [0 as c_char; 256];
        // SAFETY: the driver writes at most that many characters.
        let status = unsafe { (table.cuDeviceGetName)(text.as_mut_ptr(), text.len() as c_int - 1, number) };
        driver.check("cuDeviceGetName", status)?;
        // SAFETY: the text ends in 0 at the latest where the driver may not write.
        let name = unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy().into_owned();
        let mut context = RawContext::NULL;
        // SAFETY: the pointer is to a variable. Released when the last clone goes.
        let status = unsafe { (table.cuDevicePrimaryCtxRetain)(&raw mut context, number) };
        driver.check("cuDevicePrimaryCtxRetain", status).map_err(|e| e.at(&name))?;
        let driver = driver.clone();
        Ok(Device(Arc::new(Inner { driver, ordinal, number, context, name, capability, memory })))
    }

    pub fn driver(&self) -> &Driver {
        &self.0.driver
    }

    /// The device's number, from 0.
    pub fn ordinal(&self) -> u32 {
        self.0.ordinal
    }

    /// `NVIDIA H200`.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Major and minor: (9, 0) for Hopper.
    pub fn compute_capability(&self) -> (u32, u32) {
        self.0.capability
    }

    /// Bytes of memory in all.
    pub fn total_memory(&self) -> usize {
        self.0.memory
    }

    /// Bytes of memory that are free now, whoever holds the others.
    ///
    /// # Errors
    /// What the driver says.
    pub fn free_memory(&self) -> Result<usize> {
        let _current = self.enter()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: the pointers are to variables.
        self.check("cuMemGetInfo", unsafe { (self.table().cuMemGetInfo)(&raw mut free, &raw mut total) })?;
        Ok(free)
    }

    /// # Errors
    /// What the driver says.
    pub fn attribute(&self, attribute: Attribute) -> Result<i32> {
        attribute_of(&self.0.driver, self.0.number, attribute)
    }

    /// Waits for all work on the device's context.
    ///
    /// # Errors
    /// What went wrong in the work, if anything.
    pub fn synchronize(&self) -> Result<()> {
        let _current = self.enter()?;
        // SAFETY: the context is current.
        self.check("cuCtxSynchronize", unsafe { (self.table().cuCtxSynchronize)() })
    }

    /// Makes the device's context current until the guard is dropped. Every call does so itself; who makes many of them
    /// holds a guard meanwhile, which makes theirs cheap.
    ///
    /// # Errors
    /// What the driver says.
    pub fn enter(&self) -> Result<Current<'_>> {
        let mut current = RawContext::NULL;
        // SAFETY: the pointer is to a variable.
        self.check("cuCtxGetCurrent", unsafe { (self.table().cuCtxGetCurrent)(&raw mut current) })?;
        let pushed = current != self.0.context;
        if pushed {
            // SAFETY: the context is retained.
            self.check("cuCtxPushCurrent", unsafe { (self.table().cuCtxPushCurrent)(self.0.context) })?;
        }
        Ok(Current { device: self, pushed, thread: std::marker::PhantomData })
    }

    pub(super) fn context(&self) -> RawContext {
        self.0.context
    }

    pub(super) fn table(&self) -> &super::entry::Table {
        self.0.driver.table()
    }

    pub(super) fn check(&self, call: &str, status: super::entry::Status) -> Result<()> {
        self.0.driver.check(call, status)
    }

    /// Runs the last call of a handle, whose error can only be logged.
    pub(super) fn release(&self, call: &str, free: impl FnOnce() -> super::entry::Status) {
        match self.enter() {
            Ok(_current) => self.0.driver.log(call, free()),
            Err(error) => tracing::warn!("{call} was not called: {error}"),
        }
    }

    /// Whether the two are one device of one driver.
    pub fn same(&self, other: &Device) -> bool {
        self.0.context == other.0.context
    }
}

fn attribute_of(driver: &Driver, number: DeviceNumber, attribute: Attribute) -> Result<i32> {
    let mut value = 0;
    // SAFETY: the pointer is to a variable; the attribute is one of the driver's.
    let status = unsafe { (driver.table().cuDeviceGetAttribute)(&raw mut value, attribute as c_int, number) };
    driver.check("cuDeviceGetAttribute", status)?;
    Ok(value)
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (major, minor) = self.0.capability;
        write!(f, "cuda:{} ({}, sm_{major}{minor})", self.0.ordinal, self.0.name)
    }
}

/// While it lives, the device's context is the thread's current one. It stays on its thread.
pub struct Current<'a> {
    device: &'a Device,
    pushed: bool,
    thread: std::marker::PhantomData<*const ()>,
}

impl Drop for Current<'_> {
    fn drop(&mut self) {
        if self.pushed {
            let mut popped = RawContext::NULL;
            // SAFETY: what is popped is what this guard pushed: guards of a thread are dropped in reverse order.
            let status = unsafe { (self.device.table().cuCtxPopCurrent)(&raw mut popped) };
            self.device.driver().log("cuCtxPopCurrent", status);
        }
    }
}
