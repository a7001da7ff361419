//! A program: methods and weights, immutable and shared.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use douse_core::bytes::Bytes;
use douse_core::{Code, Error, Result};
use douse_cpu::{Executor, Threads};
use douse_program::check::check;
use douse_program::file::{ProgramFile, data_keys};
use douse_program::payload::Payload;
use douse_program::plan::Plan;

use crate::cuda::{self, CudaDevice, CudaGraph, Devices};
use crate::meta::MethodMeta;
use crate::method::{Engine, Method};

/// A program that was opened or lowered. Clones are the same program.
#[derive(Clone, Debug)]
pub struct Program(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    source: Source,
    /// The devices that methods of the program are on.
    devices: Devices,
}

#[derive(Debug)]
enum Source {
    File(Box<ProgramFile>),
    Memory { methods: Vec<Payload>, data: BTreeMap<String, Bytes> },
}

/// Where and how a method runs.
#[derive(Clone, Default)]
pub struct LoadOptions {
    /// The threads that its calls use; by default the calling thread alone.
    pub threads: Threads,
    pub device: Device,
    /// Whether, and how, the method uses CUDA graphs; nothing on the CPU.
    pub cuda_graph: Option<CudaGraph>,
    /// Tensors that a method on a CUDA device returns stay on it.
    pub outputs_on_device: bool,
}

/// What a method runs on.
#[derive(Clone, Debug, Default)]
pub enum Device {
    #[default]
    Cpu,
    /// The CUDA device of that number; opened when a method is loaded, and shared by the methods of a program.
    Cuda(u32),
    /// A CUDA device that is open.
    Open(CudaDevice),
}

impl LoadOptions {
    /// On the CPU, with this many threads; 0 stands for as many as the machine runs at once.
    ///
    /// # Errors
    /// `OutOfResources` where the system refuses to start a thread.
    pub fn cpu(threads: usize) -> Result<LoadOptions> {
        Ok(LoadOptions { threads: Threads::new(threads)?, ..LoadOptions::default() })
    }

    /// On the CUDA device of that number, from 0.
    pub fn cuda(ordinal: u32) -> LoadOptions {
        LoadOptions { device: Device::Cuda(ordinal), ..LoadOptions::default() }
    }

    /// With CUDA graphs: the first calls run plainly, then a call is recorded, later ones replay it.
    #[must_use]
    pub fn with_cuda_graph(self) -> LoadOptions {
        LoadOptions { cuda_graph: Some(CudaGraph::default()), ..self }
    }

    /// With outputs that stay on the CUDA device.
    #[must_use]
    pub fn with_outputs_on_device(self) -> LoadOptions {
        LoadOptions { outputs_on_device: true, ..self }
    }

    /// On a CUDA device that is open.
    pub fn on(device: &CudaDevice) -> LoadOptions {
        LoadOptions { device: Device::Open(device.clone()), ..LoadOptions::default() }
    }
}

impl Program {
    fn new(source: Source) -> Program {
        Program(Arc::new(Shared { source, devices: Devices::default() }))
    }

    /// Opens a program file and the files of weights beside it. Weights are mapped, not read.
    ///
    /// # Errors
    /// `AccessFailed` when it cannot be read, `InvalidProgram` when it is not what it says, `NotSupported` for a program of
    /// ExecuTorch's own, `DelegateInvalidCompatibility` for one of another version of Douse.
    pub fn open(path: impl AsRef<Path>) -> Result<Program> {
        Program::open_with_data(path.as_ref(), &[])
    }

    /// The same with these files of weights (`.ptd`) instead of those beside the program.
    ///
    /// # Errors
    /// As [`open`](Program::open), and `InvalidExternalData` for a damaged file of weights.
    pub fn open_with_data(path: &Path, data: &[&Path]) -> Result<Program> {
        let file = ProgramFile::open(path, data)?;
        tracing::debug!(path = %path.display(), methods = file.methods().len(), "program opened");
        Ok(Program::new(Source::File(Box::new(file))))
    }

    /// A program that was lowered in memory, with its named data.
    ///
    /// # Errors
    /// `InvalidProgram` for a faulty plan or two methods of one name.
    pub fn from_parts(methods: Vec<Payload>, data: BTreeMap<String, Bytes>) -> Result<Program> {
        for (i, method) in methods.iter().enumerate() {
            let name = &method.plan.name;
            check(&method.plan).map_err(|e| e.at(format!("method {name:?}")))?;
            if methods.iter().take(i).any(|other| other.plan.name == *name) {
                return Err(Error::invalid_program(format!("two methods are named {name:?}")));
            }
        }
        Ok(Program::new(Source::Memory { methods, data }))
    }

    /// The methods as they are in the file: plans and targets.
    pub fn methods(&self) -> &[Payload] {
        match &self.0.source {
            Source::File(file) => file.methods(),
            Source::Memory { methods, .. } => methods,
        }
    }

    /// In the order of the file.
    pub fn method_names(&self) -> impl Iterator<Item = &str> {
        self.methods().iter().map(|m| m.plan.name.as_str())
    }

    fn method(&self, name: &str) -> Result<&Payload> {
        self.methods().iter().find(|m| m.plan.name == name).ok_or_else(|| {
            let names: Vec<&str> = self.method_names().collect();
            Error::invalid_argument(format!("no method {name:?}; there are {}", names.join(", ")))
        })
    }

    /// What a method takes, gives and keeps.
    ///
    /// # Errors
    /// `InvalidArgument` when there is no such method; the message lists those there are.
    pub fn method_meta(&self, name: &str) -> Result<MethodMeta> {
        MethodMeta::new(self.method(name)?)
    }

    /// The bytes of named data (weights).
    ///
    /// # Errors
    /// `NotFound`, saying where they should be.
    pub fn data(&self, key: &str) -> Result<Bytes> {
        match &self.0.source {
            Source::File(file) => file.data(key),
            Source::Memory { data, .. } => {
                let missing = || Error::new(Code::NotFound, format!("the weights {key} are missing"));
                data.get(key).cloned().ok_or_else(missing)
            }
        }
    }

    /// Makes a method ready to run.
    ///
    /// # Errors
    /// `InvalidArgument` when there is no such method, `NotFound` when weights are missing (all of them are named),
    /// `NotSupported` when it was not lowered for the CPU; on a CUDA device, `NotFound` when there is none, or no driver,
    /// `DelegateInvalidCompatibility` when no code fits, `MemoryAllocationFailed` with what did not fit its memory.
    pub fn load(&self, name: &str, options: &LoadOptions) -> Result<Method> {
        let payload = self.method(name)?;
        let device = match &options.device {
            Device::Cpu => return self.load_on_cpu(payload, options),
            Device::Cuda(ordinal) => self.0.devices.get(*ordinal)?,
            Device::Open(device) => device.clone(),
        };
        self.check_data(&payload.plan)?;
        let executor = cuda::Executor::new(payload, &device, options.cuda_graph.as_ref(), &|key| self.data(key));
        let executor = executor.map_err(|e| e.at(format!("method {name:?}")))?;
        Ok(Method::new(Engine::Cuda(Box::new(executor)), options))
    }

    fn load_on_cpu(&self, payload: &Payload, options: &LoadOptions) -> Result<Method> {
        let name = &payload.plan.name;
        if !payload.targets.iter().any(|t| t == "cpu") {
            let targets = payload.targets.join(", ");
            return Err(Error::not_supported(format!("method {name:?} was lowered for {targets}, not for cpu")));
        }
        self.check_data(&payload.plan)?;
        let executor =
            Executor::new(payload.plan.clone(), &|key| self.data(key)).map_err(|e| e.at(format!("method {name:?}")))?;
        Ok(Method::new(Engine::Cpu(Box::new(executor)), options))
    }

    /// Names every weight that is missing, not only the first.
    fn check_data(&self, plan: &Plan) -> Result<()> {
        let missing: Vec<Error> = data_keys([plan]).into_iter().filter_map(|key| self.data(key).err()).collect();
        match missing.split_first() {
            None => Ok(()),
            Some((first, [])) => Err(first.clone()),
            Some((first, rest)) => {
                let message = format!("{} (and {} more)", first.message, rest.len());
                Err(Error::new(Code::NotFound, message))
            }
        }
    }
}
