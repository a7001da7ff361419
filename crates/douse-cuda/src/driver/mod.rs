//! The driver: what it is, and its errors.

pub mod device;
pub(crate) mod entry;
pub mod graph;
pub mod memory;
pub mod module;
mod staging;
pub mod stream;
pub mod tensor_map;

use std::ffi::{CStr, OsString, c_char};
use std::fmt;
use std::sync::Arc;

use douse_core::{Code, Error, Result};

use crate::library::{Opened, open_first};
use device::Device;
use entry::{Status, Table};

/// What the driver's library is called.
#[cfg(windows)]
const NAMES: &[&str] = &["nvcuda.dll"];
#[cfg(not(windows))]
const NAMES: &[&str] = &["libcuda.so.1"];

const ADVICE: &str = "Running on a GPU needs the NVIDIA driver (https://www.nvidia.com/drivers), version 570 or later; \
                      in a container, start it with the GPUs passed in (docker run --gpus all).";

/// The oldest version of CUDA that a driver must speak: the one that Douse was tested with first.
const OLDEST: Version = Version { major: 12, minor: 8 };

/// A version of CUDA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    pub major: u32,
    pub minor: u32,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// The CUDA driver, open. Clones are the same one.
#[derive(Clone)]
pub struct Driver {
    table: Arc<Table>,
    version: Version,
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CUDA driver {}", self.version)
    }
}

impl Driver {
    /// Opens the system's driver.
    ///
    /// # Errors
    /// `NotFound` where there is none, with what was tried; `NotSupported` where it is too old; what the driver says where it
    /// does not start (no device among the reasons).
    pub fn open() -> Result<Driver> {
        Driver::open_as(&NAMES.iter().map(OsString::from).collect::<Vec<_>>())
    }

    /// The same from the first of these files that is there: tests bring a driver of their own.
    ///
    /// # Errors
    /// As [`Driver::open`].
    pub fn open_as(names: &[OsString]) -> Result<Driver> {
        let Opened { library, name } = open_first("the CUDA driver", names, ADVICE)?;
        let table = Table::load(library).map_err(|symbol| {
            Error::not_supported(format!("{} is too old a CUDA driver: it has no {symbol}. {ADVICE}", name.display()))
        })?;
        let mut driver = Driver { table: Arc::new(table), version: Version { major: 0, minor: 0 } };
        // The version is asked first: it is known even where the driver does not start.
        let mut number = 0;
        // SAFETY: the pointer is to a variable.
        driver.check("cuDriverGetVersion", unsafe { (driver.table.cuDriverGetVersion)(&raw mut number) })?;
        driver.version = Version { major: (number / 1000).unsigned_abs(), minor: (number % 1000 / 10).unsigned_abs() };
        if driver.version < OLDEST {
            return Err(Error::not_supported(format!(
                "the driver supports CUDA {}, and Douse needs {OLDEST} or later. {ADVICE}",
                driver.version
            )));
        }
        // SAFETY: 0 is the one flag there is.
        driver.check("cuInit", unsafe { (driver.table.cuInit)(0) })?;
        Ok(driver)
    }

    /// The newest version of CUDA that the driver supports.
    pub fn version(&self) -> Version {
        self.version
    }

    /// How many devices there are.
    ///
    /// # Errors
    /// What the driver says.
    pub fn device_count(&self) -> Result<u32> {
        let mut count = 0;
        // SAFETY: the pointer is to a variable.
        self.check("cuDeviceGetCount", unsafe { (self.table.cuDeviceGetCount)(&raw mut count) })?;
        Ok(count.unsigned_abs())
    }

    /// The device of that number, its primary context retained.
    ///
    /// # Errors
    /// `NotFound` where there are not that many; what the driver says otherwise.
    pub fn device(&self, ordinal: u32) -> Result<Device> {
        Device::open(self, ordinal)
    }

    pub(crate) fn table(&self) -> &Table {
        &self.table
    }

    /// The error of a call that did not return success.
    pub(crate) fn check(&self, call: &str, status: Status) -> Result<()> {
        if status == 0 {
            return Ok(());
        }
        let name = self.text(status, self.table.cuGetErrorName);
        let text = self.text(status, self.table.cuGetErrorString);
        let code = CODES.iter().find(|(number, _)| *number == status).map_or(Code::AccessFailed, |(_, code)| *code);
        let name = name.as_deref().unwrap_or("an unknown error");
        let message = match text {
            Some(text) => format!("{call} failed with {name} ({status}): {text}"),
            None => format!("{call} failed with {name} ({status})"),
        };
        Err(Error::new(code, message))
    }

    /// What a handle's drop does with a status: nobody is there to take an error.
    pub(crate) fn log(&self, call: &str, status: Status) {
        if let Err(error) = self.check(call, status) {
            tracing::warn!("{error}");
        }
    }

    fn text(&self, status: Status, ask: unsafe extern "C" fn(Status, *mut *const c_char) -> Status) -> Option<String> {
        let mut text: *const c_char = std::ptr::null();
        // SAFETY: the pointer is to a variable.
        if unsafe { ask(status, &raw mut text) } != 0 || text.is_null() {
            return None;
        }
        // SAFETY: the driver returns text that ends in 0 and lives as long as the driver.
        Some(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
    }
}

/// The codes of Douse's errors for the driver's; others are `AccessFailed`.
const CODES: &[(Status, Code)] = &[
    // CUDA_ERROR_INVALID_VALUE: a fault in how we call.
    (1, Code::Internal),
    // CUDA_ERROR_OUT_OF_MEMORY
    (2, Code::MemoryAllocationFailed),
    // CUDA_ERROR_NO_DEVICE, CUDA_ERROR_INVALID_DEVICE
    (100, Code::NotFound),
    (101, Code::NotFound),
    // CUDA_ERROR_INVALID_IMAGE, CUDA_ERROR_NO_BINARY_FOR_GPU, CUDA_ERROR_INVALID_PTX, CUDA_ERROR_UNSUPPORTED_PTX_VERSION
    (200, Code::InvalidProgram),
    (209, Code::DelegateInvalidCompatibility),
    (218, Code::InvalidProgram),
    (222, Code::DelegateInvalidCompatibility),
    // CUDA_ERROR_NOT_FOUND: a symbol that the code should have.
    (500, Code::InvalidProgram),
    // CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, CUDA_ERROR_NOT_SUPPORTED
    (701, Code::OutOfResources),
    (801, Code::NotSupported),
];
