//! Modules: shared objects made of kernels and `soft.cuh`.

use std::ffi::{CStr, CString, c_char, c_uint, c_void};
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::block::Shape;
use crate::status::{INVALID_IMAGE, NOT_FOUND, Outcome, fail};

/// The version of what modules and softgpu know of each other (`SoftModule` in `soft.cuh`).
const VERSION: c_uint = 2;
/// Of a parameter's number: a pointer.
const POINTER: u16 = 0x100;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Vector {
    pub x: u32,
    pub y: u32,
    pub z: u32,
}

/// `SoftIndices`
#[repr(C)]
pub struct Indices {
    pub thread: Vector,
    block: Vector,
    threads: Vector,
    blocks: Vector,
}

/// `SoftRuntime`
#[repr(C)]
pub struct Runtime {
    pub next: unsafe extern "C" fn() -> bool,
    pub barrier: unsafe extern "C" fn(),
    pub exchange: unsafe extern "C" fn(u32, *const c_void, u32) -> *const u8,
    pub set_condition: unsafe extern "C" fn(u64, u32),
    pub pause: unsafe extern "C" fn(),
}

/// `SoftKernel`
#[repr(C)]
struct RawKernel {
    name: *const c_char,
    run: unsafe extern "C" fn(*mut *mut c_void),
    parameters: *const u16,
    count: c_uint,
}

/// `SoftModule`
#[repr(C)]
struct RawModule {
    version: c_uint,
    count: c_uint,
    kernels: *const RawKernel,
    indices: *mut Indices,
    shared: *mut u8,
    shared_end: *mut u8,
    runtime: *const Runtime,
    dynamic: *mut c_void,
}

/// A loaded module.
#[derive(Debug)]
pub struct Module {
    library: *mut c_void,
    raw: *mut RawModule,
    /// Open as long as the library: the system knows it by the name that the descriptor gives it.
    _file: File,
    /// Its kernels have variables in common: one runs at a time.
    running: Mutex<()>,
}

// SAFETY: what the pointers lead to is constant, but for what `running` guards.
unsafe impl Send for Module {}
// SAFETY: as above.
unsafe impl Sync for Module {}

/// A kernel of a module, which must stay loaded.
#[derive(Clone, Debug)]
pub struct Kernel {
    pub name: String,
    pub run: unsafe extern "C" fn(*mut *mut c_void),
    pub indices: *mut Indices,
    /// Of each parameter its size, and whether it is a pointer.
    pub parameters: Vec<(usize, bool)>,
    raw: *mut RawModule,
}

// SAFETY: as for modules.
unsafe impl Send for Kernel {}
// SAFETY: as above.
unsafe impl Sync for Kernel {}

impl Module {
    /// Loads a shared object from memory.
    ///
    /// # Errors
    /// `INVALID_IMAGE` for what is no module.
    ///
    /// # Safety
    /// The image must be as long as its ELF header says, or end in 0 where it is none.
    pub unsafe fn load(image: *const u8) -> Outcome<Module> {
        // SAFETY: the caller's promise.
        let Some(bytes) = (unsafe { elf(image) }) else {
            return fail(INVALID_IMAGE, "no shared object for the target soft");
        };
        // SAFETY: the name ends in 0.
        let file = unsafe { libc::memfd_create(c"softgpu-module".as_ptr(), libc::MFD_CLOEXEC) };
        if file < 0 {
            return fail(INVALID_IMAGE, "the system gives no memory for a module");
        }
        // SAFETY: a new descriptor, which nobody else closes.
        let mut file = unsafe { File::from_raw_fd(file) };
        if file.write_all(bytes).is_err() {
            return fail(INVALID_IMAGE, "the system gives no memory for a module");
        }
        let path = CString::new(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap_or_default();
        // SAFETY: opening runs the module's initialisers, of which it has none.
        let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if library.is_null() {
            // SAFETY: text that ends in 0, or null.
            let said = unsafe {
                let text = libc::dlerror();
                if text.is_null() { String::new() } else { CStr::from_ptr(text).to_string_lossy().into_owned() }
            };
            return fail(INVALID_IMAGE, said);
        }
        // SAFETY: the library is open.
        let raw: *mut RawModule = unsafe { libc::dlsym(library, c"soft_module".as_ptr()) }.cast();
        let module = Module { library, raw, _file: file, running: Mutex::new(()) };
        // SAFETY: of this type in every module; the version is first in every version of it.
        if raw.is_null() || unsafe { (*raw).version } != VERSION {
            return fail(INVALID_IMAGE, format!("no module, or not of version {VERSION}"));
        }
        Ok(module)
    }

    /// The kernel of that name.
    ///
    /// # Errors
    /// `NOT_FOUND`.
    pub fn kernel(&self, name: &CStr) -> Outcome<Kernel> {
        // SAFETY: the module's table, which lives as long as it.
        let kernels = unsafe { std::slice::from_raw_parts((*self.raw).kernels, (*self.raw).count as usize) };
        // SAFETY: names end in 0.
        let Some(found) = kernels.iter().find(|kernel| unsafe { CStr::from_ptr(kernel.name) } == name) else {
            return fail(NOT_FOUND, format!("no kernel {}", name.to_string_lossy()));
        };
        // SAFETY: as many as it says.
        let parameters = unsafe { std::slice::from_raw_parts(found.parameters, found.count as usize) };
        Ok(Kernel {
            name: name.to_string_lossy().into_owned(),
            run: found.run,
            // SAFETY: the module's table.
            indices: unsafe { (*self.raw).indices },
            parameters: parameters.iter().map(|p| ((p & !POINTER) as usize, p & POINTER != 0)).collect(),
            raw: self.raw,
        })
    }

    /// While it is held, nothing else runs code of the module.
    pub fn running(&self) -> MutexGuard<'_, ()> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes of shared memory of all kernels together.
    pub fn shared(&self) -> usize {
        // SAFETY: the module's table.
        unsafe { (*self.raw).shared_end as usize - (*self.raw).shared as usize }
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        // SAFETY: opened by `load`; kernels hold the module while they run.
        unsafe { libc::dlclose(self.library) };
    }
}

impl Kernel {
    /// Where a parameter stands among all, and its size, in bytes: each is aligned to the largest power of two that divides its size, up to 64, as a tensor
    /// map is.
    pub fn parameter(&self, index: usize) -> Option<(usize, usize)> {
        let (mut at, mut found) = (0usize, None);
        for (size, _) in self.parameters.get(..=index)? {
            at = at.next_multiple_of(1 << size.trailing_zeros().min(6));
            found = Some((at, *size));
            at += size;
        }
        found
    }

    /// Before a launch. Only while [`Module::running`] is held.
    pub fn prepare(&self, runtime: &'static Runtime, dynamic: *mut c_void, shape: Shape) {
        let vector = |[x, y, z]: [u32; 3]| Vector { x, y, z };
        // SAFETY: the module's table and variables, which nobody else uses.
        unsafe {
            (*self.raw).runtime = runtime;
            (*self.raw).dynamic = dynamic;
            (*self.indices).threads = vector(shape.threads);
            (*self.indices).blocks = vector(shape.blocks);
        }
    }

    /// Before each block.
    pub fn begin(&self, block: Vector) {
        // SAFETY: as above; the section lies between its two ends.
        unsafe {
            (*self.indices).block = block;
            let (start, end) = ((*self.raw).shared, (*self.raw).shared_end);
            std::ptr::write_bytes(start, 0xff, end as usize - start as usize);
        }
    }
}

/// The bytes of an ELF file for this processor: it ends with its section headers.
///
/// # Safety
/// As [`Module::load`].
unsafe fn elf<'a>(image: *const u8) -> Option<&'a [u8]> {
    const MAGIC: &[u8] = b"\x7fELF\x02\x01\x01";
    const X86_64: u16 = 62;
    // SAFETY: bytes are read up to the first that differs, which the 0 at the end does.
    let is_elf = MAGIC.iter().enumerate().all(|(i, byte)| unsafe { *image.add(i) } == *byte);
    if !is_elf {
        return None;
    }
    // SAFETY: an ELF file has a header of 64 bytes.
    let header = unsafe { std::slice::from_raw_parts(image, 64) };
    let number = |range: std::ops::Range<usize>| {
        header.get(range).map_or(0, |bytes| bytes.iter().rev().fold(0u64, |n, byte| n << 8 | u64::from(*byte)))
    };
    let len = number(40..48) + number(58..60) * number(60..62);
    // SAFETY: the caller's promise.
    (number(18..20) == u64::from(X86_64)).then(|| unsafe { std::slice::from_raw_parts(image, len as usize) })
}
