//! Modules, functions and launches.

use std::ffi::{CString, c_int, c_uint, c_void};
use std::sync::Arc;

use douse_core::{Error, Result};

use super::device::Device;
use super::entry::{RawFunction, RawModule};
use super::memory::Place;
use super::stream::Stream;
use super::tensor_map::TensorMap;

/// Code on a device.
#[derive(Debug)]
pub struct Module {
    device: Device,
    raw: RawModule,
}

/// What a function can be asked, with the driver's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum FunctionAttribute {
    MaxThreadsPerBlock = 0,
    /// Bytes of shared memory that every block has.
    StaticSharedMemory = 1,
    /// Bytes of local memory a thread: spilled registers and arrays.
    LocalMemory = 3,
    Registers = 4,
    /// Bytes of dynamic shared memory that a launch may ask for; set to ask for more than 48 KiB.
    MaxDynamicSharedMemory = 8,
}

/// `CU_JIT_ERROR_LOG_BUFFER`, `CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES`
const ERROR_LOG: [c_int; 2] = [5, 6];
const ERROR_LOG_BYTES: usize = 8192;

impl Device {
    /// Loads a cubin, or PTX, which the driver compiles for the device.
    ///
    /// # Errors
    /// `DelegateInvalidCompatibility` for code that this device or driver cannot run, `InvalidProgram` for what is no code;
    /// with the driver's log where it compiled.
    pub fn load(&self, image: &[u8]) -> Result<Arc<Module>> {
        let _current = self.enter()?;
        // PTX is text, which must end in 0; a cubin does not mind.
        let mut text = image.to_vec();
        text.push(0);
        let mut log = vec![0u8; ERROR_LOG_BYTES];
        let mut options = ERROR_LOG;
        // The driver takes numbers in place of pointers.
        let mut values = [log.as_mut_ptr().cast(), std::ptr::without_provenance_mut::<c_void>(ERROR_LOG_BYTES)];
        let mut raw = RawModule::NULL;
        // SAFETY: the image ends in 0; the options are two, and their log is as long as they say.
        let status = unsafe {
            let load = self.table().cuModuleLoadDataEx;
            load(&raw mut raw, text.as_ptr().cast(), 2, options.as_mut_ptr(), values.as_mut_ptr())
        };
        self.check("cuModuleLoadDataEx", status).map_err(|error| {
            let end = log.iter().position(|byte| *byte == 0).unwrap_or(log.len());
            match String::from_utf8_lossy(log.get(..end).unwrap_or_default()).trim() {
                "" => error,
                said => Error::new(error.code, format!("{}; the driver's log: {said}", error.message)),
            }
        })?;
        Ok(Arc::new(Module { device: self.clone(), raw }))
    }
}

impl Module {
    /// # Errors
    /// `InvalidProgram` where the module has no such function.
    pub fn function(self: &Arc<Module>, name: &str) -> Result<Function> {
        let text = CString::new(name).map_err(|_| Error::invalid_program(format!("{name:?} is no name")))?;
        let _current = self.device.enter()?;
        let mut raw = RawFunction::NULL;
        // SAFETY: the pointer is to a variable; the module lives; the name ends in 0.
        let status = unsafe { (self.device.table().cuModuleGetFunction)(&raw mut raw, self.raw, text.as_ptr()) };
        self.device.check("cuModuleGetFunction", status).map_err(|e| e.at(name))?;
        Ok(Function { module: self.clone(), raw, name: name.into() })
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        // SAFETY: loaded by us; its functions hold the module, so none is left.
        self.device.release("cuModuleUnload", || unsafe { (self.device.table().cuModuleUnload)(self.raw) });
    }
}

/// A kernel. It keeps its module loaded.
#[derive(Clone, Debug)]
pub struct Function {
    module: Arc<Module>,
    raw: RawFunction,
    name: Arc<str>,
}

/// The shape of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    pub blocks: [u32; 3],
    pub threads: [u32; 3],
    /// Bytes of dynamic shared memory a block.
    pub shared: u32,
}

/// An argument of a launch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Argument {
    Place(Place),
    /// A null pointer, for what a kernel does not use.
    Null,
    I64(i64),
    U64(u64),
    I32(i32),
    F32(f32),
    Map(TensorMap),
}

/// The values of a launch's arguments, as the driver takes them.
pub(super) struct Values {
    words: Vec<u64>,
    /// Where each begins.
    starts: Vec<usize>,
}

impl Values {
    pub fn of(arguments: &[Argument]) -> Values {
        let (mut words, mut starts) = (Vec::with_capacity(arguments.len()), Vec::with_capacity(arguments.len()));
        for argument in arguments {
            starts.push(words.len());
            match argument {
                Argument::Map(map) => words.extend(map.words()),
                other => words.push(other.bits()),
            }
        }
        Values { words, starts }
    }

    /// A pointer to each.
    pub fn pointers(&mut self) -> Vec<*mut c_void> {
        let all = self.words.as_mut_ptr();
        self.starts.iter().map(|start| all.wrapping_add(*start).cast()).collect()
    }
}

impl Argument {
    /// Bytes of a pointer, and of each number that programs pass.
    pub const WORD: usize = 8;
    /// Bytes of a tensor map.
    pub const MAP: usize = 128;

    /// The bytes of the parameter that it is for.
    pub fn size(self) -> usize {
        match self {
            Argument::Place(_) | Argument::Null | Argument::I64(_) | Argument::U64(_) => Argument::WORD,
            Argument::I32(_) | Argument::F32(_) => 4,
            Argument::Map(_) => Argument::MAP,
        }
    }

    /// The bits, in the lowest bytes (the hosts of CUDA devices are little-endian).
    fn bits(self) -> u64 {
        match self {
            Argument::Place(place) => place.address(),
            Argument::Null => 0,
            Argument::I64(value) => value as u64,
            Argument::U64(value) => value,
            Argument::I32(value) => u64::from(value as u32),
            Argument::F32(value) => u64::from(value.to_bits()),
            // Not of one word.
            Argument::Map(_) => 0,
        }
    }
}

impl PartialEq for Function {
    fn eq(&self, other: &Function) -> bool {
        self.raw == other.raw
    }
}

impl Function {
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn module(&self) -> &Arc<Module> {
        &self.module
    }

    pub(super) fn raw(&self) -> RawFunction {
        self.raw
    }

    /// # Errors
    /// What the driver says.
    pub fn attribute(&self, attribute: FunctionAttribute) -> Result<i32> {
        let device = &self.module.device;
        let _current = device.enter()?;
        let mut value = 0;
        // SAFETY: the pointer is to a variable; the function's module lives.
        let status = unsafe { (device.table().cuFuncGetAttribute)(&raw mut value, attribute as c_int, self.raw) };
        device.check("cuFuncGetAttribute", status)?;
        Ok(value)
    }

    /// The bytes of each of its parameters; `None` with a driver that cannot be asked (before CUDA 12.4).
    ///
    /// # Errors
    /// What the driver says.
    pub fn parameters(&self) -> Result<Option<Vec<usize>>> {
        /// `CUDA_ERROR_INVALID_VALUE`: there is no parameter of that number. Nothing else tells their number; compute-sanitizer's memcheck counts
        /// this answer as an error of the API.
        const NO_MORE: c_int = 1;
        let device = &self.module.device;
        let Some(ask) = device.table().cuFuncGetParamInfo else { return Ok(None) };
        let _current = device.enter()?;
        let mut sizes = Vec::new();
        loop {
            let (mut offset, mut size) = (0, 0);
            // SAFETY: the pointers are to variables; the function's module lives.
            match unsafe { ask(self.raw, sizes.len(), &raw mut offset, &raw mut size) } {
                NO_MORE => return Ok(Some(sizes)),
                status => device.check("cuFuncGetParamInfo", status).map_err(|e| e.at(&self.name))?,
            }
            sizes.push(size);
        }
    }

    /// Checks that it takes parameters of these sizes in bytes: a launch reads each argument as what the code declares, whatever is passed. Nothing
    /// is checked where the driver [cannot be asked](Function::parameters).
    ///
    /// # Errors
    /// `InvalidProgram` where it takes others, with both; what the driver says.
    pub fn expect_parameters(&self, expected: &[usize]) -> Result<()> {
        match self.parameters()? {
            Some(found) if found != expected => {
                let (expected, found) = (list(expected), list(&found));
                let message =
                    format!("code that is not the plan's: the plan passes {expected}, and the kernel takes {found}");
                Err(Error::invalid_program(message).at(&self.name))
            }
            _ => Ok(()),
        }
    }

    /// Allows launches with that many bytes of dynamic shared memory: beyond 48 KiB, a function has to ask.
    ///
    /// # Errors
    /// What the driver says, where the device has not as much.
    pub fn allow_shared(&self, bytes: u32) -> Result<()> {
        let device = &self.module.device;
        let _current = device.enter()?;
        let attribute = FunctionAttribute::MaxDynamicSharedMemory as c_int;
        // SAFETY: the function's module lives.
        let status = unsafe { (device.table().cuFuncSetAttribute)(self.raw, attribute, bytes as c_int) };
        device.check("cuFuncSetAttribute", status).map_err(|e| e.at(format!("{bytes} bytes of shared memory")))
    }

    /// How many blocks of that shape a multiprocessor runs at once.
    ///
    /// # Errors
    /// What the driver says.
    pub fn occupancy(&self, threads: u32, shared: u32) -> Result<i32> {
        let device = &self.module.device;
        let _current = device.enter()?;
        let mut blocks = 0;
        // SAFETY: the pointer is to a variable; the function's module lives.
        let status = unsafe {
            let ask = device.table().cuOccupancyMaxActiveBlocksPerMultiprocessor;
            ask(&raw mut blocks, self.raw, threads as c_int, shared as usize)
        };
        device.check("cuOccupancyMaxActiveBlocksPerMultiprocessor", status)?;
        Ok(blocks)
    }

    /// Puts a launch on a stream. The arguments must be those the kernel declares: the code is trusted.
    ///
    /// # Errors
    /// What the driver says: a shape beyond the device's, or a fault of earlier work.
    pub fn launch(&self, grid: &Grid, arguments: &[Argument], stream: &Stream) -> Result<()> {
        let device = &self.module.device;
        let _current = device.enter()?;
        let mut values = Values::of(arguments);
        let mut pointers = values.pointers();
        let ([gx, gy, gz], [bx, by, bz]) = (grid.blocks, grid.threads);
        let shared: c_uint = grid.shared;
        // SAFETY: the function's module lives; there is a pointer to the value of each argument, copied before the call returns.
        let status = unsafe {
            let launch = device.table().cuLaunchKernel;
            let none = std::ptr::null_mut();
            launch(self.raw, gx, gy, gz, bx, by, bz, shared, stream.raw(), pointers.as_mut_ptr(), none)
        };
        device.check("cuLaunchKernel", status).map_err(|e| e.at(&self.name))
    }
}

/// Parameters in words: `3 parameters (8, 8, 128 bytes)`.
fn list(sizes: &[usize]) -> String {
    match sizes {
        [] => "no parameters".to_owned(),
        [size] => format!("1 parameter ({size} bytes)"),
        _ => {
            let each: Vec<String> = sizes.iter().map(usize::to_string).collect();
            format!("{} parameters ({} bytes)", sizes.len(), each.join(", "))
        }
    }
}
