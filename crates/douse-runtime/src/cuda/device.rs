//! A CUDA device and what programs share on it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use douse_core::bytes::{Aligned, Bytes};
use douse_core::{Code, Error, Result};
use douse_cpu::Threads;
use douse_cuda::{Blas, Device, DeviceMemory, Driver, Place};

use super::product::Tried;
use super::transfer::Transfer;

/// A CUDA device that methods are loaded onto. Clones are the same one; weights that are on it are shared by all methods of a program
/// that are loaded through it.
#[derive(Clone, Debug)]
pub struct CudaDevice(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    device: Device,
    /// By the key of their content. The last method that holds one frees it.
    weights: Mutex<BTreeMap<String, Weak<DeviceMemory>>>,
    transfer: Mutex<Option<Transfer>>,
    /// Where cuBLASLt may be, when it is the driver's file itself.
    brings: Vec<OsString>,
    /// cuBLASLt once it was asked for, or why there is none.
    blas: Mutex<Option<Result<Blas, String>>>,
    /// What products have shown, by what was tried.
    tried: Mutex<BTreeMap<String, Tried>>,
}

impl CudaDevice {
    /// Opens the driver and the device of that number.
    ///
    /// # Errors
    /// `NotFound` where there is no driver or no such device, with what was looked for; `NotSupported` for a driver that is too old.
    pub fn open(ordinal: u32) -> Result<CudaDevice> {
        Ok(CudaDevice::of(Driver::open()?.device(ordinal)?, &[]))
    }

    /// The same with the driver in the first of these files that is there. Where that is a cuBLASLt too, it is used as such.
    ///
    /// # Errors
    /// As [`CudaDevice::open`].
    pub fn open_with(driver: &[OsString], ordinal: u32) -> Result<CudaDevice> {
        Ok(CudaDevice::of(Driver::open_as(driver)?.device(ordinal)?, driver))
    }

    fn of(device: Device, brings: &[OsString]) -> CudaDevice {
        let (weights, transfer, blas, tried) = (Mutex::default(), Mutex::default(), Mutex::default(), Mutex::default());
        CudaDevice(Arc::new(Shared { device, weights, transfer, brings: brings.to_vec(), blas, tried }))
    }

    /// cuBLASLt, opened when it is asked for first; why not, where it is not there or does not start.
    pub(super) fn blas(&self) -> Result<Blas, String> {
        let mut blas = lock(&self.0.blas);
        let open = || {
            let brought = Blas::open_as(&self.0.device, &self.0.brings);
            brought.or_else(|_| Blas::open(&self.0.device)).map_err(|error| error.message)
        };
        blas.get_or_insert_with(open).clone()
    }

    /// What a product has shown, tried now where it was not before.
    pub(super) fn tried(&self, name: &str, trial: impl FnOnce() -> Result<Tried>) -> Result<Tried> {
        let mut tried = lock(&self.0.tried);
        if let Some(known) = tried.get(name) {
            return Ok(known.clone());
        }
        let new = trial()?;
        tried.insert(name.to_owned(), new.clone());
        Ok(new)
    }

    /// Bytes a second that a copy within the device reads and writes, measured now: the least time of work is its bytes over this.
    ///
    /// # Errors
    /// What the driver says; `MemoryAllocationFailed` where half a gigabyte is not free.
    pub fn copy_bandwidth(&self) -> Result<f64> {
        const BYTES: usize = 256 << 20;
        const COPIES: usize = 8;
        let what = || "measuring the bandwidth of copies".to_owned();
        let (from, to) = (self.allocate(BYTES, what)?, self.allocate(BYTES, what)?);
        let stream = self.device().stream()?;
        let (begin, end) = (self.device().event(true)?, self.device().event(true)?);
        self.device().fill(from.all(), 0, &stream)?;
        for number in 0..=COPIES {
            if number == 1 {
                // The first one warms up.
                begin.record(&stream)?;
            }
            self.device().copy(from.all(), to.all(), &stream)?;
        }
        end.record(&stream)?;
        stream.synchronize()?;
        let seconds = f64::from(end.milliseconds_since(&begin)?) / 1e3;
        Ok((2 * BYTES * COPIES) as f64 / seconds)
    }

    pub fn device(&self) -> &Device {
        &self.0.device
    }

    /// A weight's memory: the one that is there already, or one that is filled now.
    pub(super) fn weight(&self, key: &str, bytes: impl FnOnce() -> Result<Bytes>) -> Result<Arc<DeviceMemory>> {
        let mut weights = lock(&self.0.weights);
        if let Some(memory) = weights.get(key).and_then(Weak::upgrade) {
            return Ok(memory);
        }
        let bytes = bytes()?;
        let memory = self.allocate(bytes.len(), || format!("the weights {key}"))?;
        self.upload(&bytes, memory.all())?;
        let memory = Arc::new(memory);
        weights.retain(|_, memory| memory.strong_count() > 0);
        weights.insert(key.to_owned(), Arc::downgrade(&memory));
        Ok(memory)
    }

    /// Device memory; an error says what it was for.
    pub(super) fn allocate(&self, len: usize, what: impl FnOnce() -> String) -> Result<DeviceMemory> {
        self.0.device.allocate(len).map_err(|error| match error.code {
            Code::MemoryAllocationFailed => error.at(what()),
            _ => error,
        })
    }

    /// Copies bytes to the device, through pinned memory, and waits.
    pub(super) fn upload(&self, bytes: &[u8], place: Place) -> Result<()> {
        self.upload_with(bytes, place, &Threads::one())
    }

    /// The same, by these threads; bytes that are pinned go without a detour.
    pub(super) fn upload_with(&self, bytes: &[u8], place: Place, threads: &Threads) -> Result<()> {
        self.transfer(|transfer| transfer.upload(bytes, place, threads))
    }

    /// Copies a place to the host, by these threads, and waits. Work that writes the place must be done.
    pub(super) fn download_with(&self, place: Place, bytes: &mut [u8], threads: &Threads) -> Result<()> {
        self.transfer(|transfer| transfer.download(place, bytes, threads))
    }

    /// The bytes of a place.
    pub(crate) fn read(&self, place: Place) -> Result<Aligned> {
        let mut bytes = Aligned::zeros(place.len())?;
        self.download_with(place, &mut bytes, &Threads::one())?;
        Ok(bytes)
    }

    /// Copies within the device, and waits.
    pub(super) fn copy(&self, from: Place, to: Place) -> Result<()> {
        self.transfer(|transfer| transfer.copy(from, to))
    }

    fn transfer<T>(&self, run: impl FnOnce(&mut Transfer) -> Result<T>) -> Result<T> {
        let mut transfer = lock(&self.0.transfer);
        if transfer.is_none() {
            *transfer = Some(Transfer::new(&self.0.device)?);
        }
        match transfer.as_mut() {
            Some(transfer) => run(transfer),
            None => Err(Error::internal("no transfer")),
        }
    }

    pub(crate) fn same(&self, other: &CudaDevice) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0.device.same(&other.0.device)
    }
}

/// A thread that panicked left maps of memory as they were between two statements, which is well.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The devices that methods of a program are on.
#[derive(Debug, Default)]
pub(crate) struct Devices(Mutex<BTreeMap<u32, Weak<Shared>>>);

impl Devices {
    /// The device of that number: the one that other methods are on, where there are any.
    pub fn get(&self, ordinal: u32) -> Result<CudaDevice> {
        let mut devices = lock(&self.0);
        if let Some(shared) = devices.get(&ordinal).and_then(Weak::upgrade) {
            return Ok(CudaDevice(shared));
        }
        let device = CudaDevice::open(ordinal)?;
        devices.insert(ordinal, Arc::downgrade(&device.0));
        Ok(device)
    }
}
