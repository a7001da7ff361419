//! cuBLASLt: NVIDIA's matrix products, where they are installed.

mod entry;
mod product;

use std::ffi::OsString;
use std::fmt;
use std::sync::Arc;

use douse_core::{Code, Error, Result};

use crate::driver::device::Device;
use crate::find::{Wanted, candidates};
use crate::library::{Opened, open_first};
use entry::{Opaque, Status, Table};
pub use product::{Form, Matrix, Product};

const ADVICE: &str = "cuBLASLt is part of the CUDA toolkit, and of a Python package: pip install nvidia-cublas. If it lies elsewhere, name the \
                      file in DOUSE_CUBLASLT.";

const WANTED: Wanted = Wanted {
    variable: "DOUSE_CUBLASLT",
    names: if cfg!(windows) {
        &["cublasLt64_13.dll", "cublasLt64_12.dll"]
    } else {
        &["libcublasLt.so.13", "libcublasLt.so.12"]
    },
    packages: &["nvidia/cu13/lib", "nvidia/cublas/lib"],
};

/// cuBLASLt, open for a device. Clones are the same one.
#[derive(Clone)]
pub struct Blas(Arc<Inner>);

struct Inner {
    device: Device,
    table: Table,
    name: OsString,
    handle: Opaque,
}

// SAFETY: the handle is a number to the process; the library may be called with it from any thread, by several at a time.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Blas {
    /// Opens the cuBLASLt that `DOUSE_CUBLASLT` names, else one that the system finds, of a CUDA toolkit, or of a Python package.
    ///
    /// # Errors
    /// `NotFound` where there is none, with what was tried; `NotSupported` for one without a function that is needed; what it says where it
    /// does not start on the device.
    pub fn open(device: &Device) -> Result<Blas> {
        Blas::open_as(device, &candidates(&WANTED))
    }

    /// The same from the first of these files that is there.
    ///
    /// # Errors
    /// As [`Blas::open`].
    pub fn open_as(device: &Device, names: &[OsString]) -> Result<Blas> {
        let Opened { library, name } = open_first("cuBLASLt", names, ADVICE)?;
        let missing = |symbol| Error::not_supported(format!("{} has no {symbol}. {ADVICE}", name.display()));
        let table = Table::load(library).map_err(missing)?;
        let current = device.enter()?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: the pointer is to a variable; the device's context is current. Destroyed when the last clone goes.
        check("cublasLtCreate", unsafe { (table.cublasLtCreate)(&raw mut handle) })?;
        drop(current);
        Ok(Blas(Arc::new(Inner { device: device.clone(), table, name, handle })))
    }

    /// The file it was loaded from, as it was asked for.
    pub fn name(&self) -> &OsString {
        &self.0.name
    }
}

impl fmt::Debug for Blas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cuBLASLt ({})", self.0.name.display())
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let status = self.device.enter().map(|_current| {
            // SAFETY: created by us; what was made of it is gone.
            unsafe { (self.table.cublasLtDestroy)(self.handle) }
        });
        if let Err(error) = status.and_then(|status| check("cublasLtDestroy", status)) {
            tracing::warn!("{error}");
        }
    }
}

fn check(call: &str, status: Status) -> Result<()> {
    match status {
        0 => Ok(()),
        // CUBLAS_STATUS_NOT_SUPPORTED
        15 => Err(Error::not_supported(format!("{call} does not support this (15)"))),
        status => Err(Error::new(Code::AccessFailed, format!("{call} failed with cublasStatus_t {status}"))),
    }
}
