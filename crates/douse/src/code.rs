//! Code for GPUs: what the compiler emits, compiled by NVRTC.

use douse_compiler::emit::{self, Emitted};
use douse_core::bytes::Bytes;
use douse_cuda::nvrtc::{Cache, Source};
use douse_cuda::{Architecture, Nvrtc};
use douse_program::container::pte::content_key;
use douse_program::plan::Plan;
use douse_program::target::CudaTarget;

use crate::{Error, Result};

/// What programs are lowered for besides architectures: the CPU, and every GPU that can compile PTX, in the oldest form that the
/// emitted code allows (asynchronous copies and bfloat16 products begin with 8.0).
pub(crate) const CPU: &str = "cpu";
const PTX: (&str, &str) = ("ptx", "compute_80");

/// Code for each architecture, and the data it is in, by key.
type Code = (Vec<CudaTarget>, Vec<(String, Bytes)>);

/// Compiles for the GPU targets among a program's.
pub(crate) struct Coder {
    /// Where there is such a target.
    nvrtc: Option<Nvrtc>,
    cache: Option<Cache>,
    architectures: Vec<Architecture>,
}

impl Coder {
    /// Checks the targets, and opens NVRTC where one needs it.
    ///
    /// # Errors
    /// `InvalidArgument` for what is no target, `NotFound` where NVRTC is missing, `NotSupported` for an architecture that it does not
    /// compile for.
    pub fn new(targets: &[String]) -> Result<Coder> {
        let mut architectures: Vec<Architecture> = Vec::new();
        for target in targets.iter().filter(|target| *target != CPU) {
            let name = if target == PTX.0 { PTX.1 } else { target };
            let architecture = name.parse().map_err(|e: Error| Error::invalid_argument(e.message))?;
            if !architectures.contains(&architecture) {
                architectures.push(architecture);
            }
        }
        let nvrtc = if architectures.is_empty() { None } else { Some(Nvrtc::open()?) };
        if let Some(nvrtc) = &nvrtc {
            architectures.iter().try_for_each(|architecture| nvrtc.check(*architecture))?;
        }
        Ok(Coder { nvrtc, cache: Cache::user(), architectures })
    }

    /// A plan's code for every architecture, and the data that it is in, by content. All modules compile side by side.
    ///
    /// # Errors
    /// `NotSupported` for what has no code for GPUs yet; `Internal` for emitted code that does not compile.
    pub fn code(&self, plan: &Plan) -> Result<Code> {
        let Some(nvrtc) = &self.nvrtc else { return Ok((Vec::new(), Vec::new())) };
        let mut sources = Vec::new();
        let mut targets = Vec::new();
        for architecture in &self.architectures {
            let arch = architecture.to_string();
            let Emitted { modules, kernels, library, guarded_copy, set_condition } = emit::emit(plan, &arch)?;
            for (number, text) in modules.into_iter().enumerate() {
                let name = format!("{}_{number}.cu", plan.name);
                let options = emit::OPTIONS.iter().map(|option| (*option).to_owned()).collect();
                sources.push((targets.len(), Source { name, text, architecture: *architecture, options }));
            }
            targets.push(CudaTarget { arch, modules: Vec::new(), kernels, library, guarded_copy, set_condition });
        }
        let (owners, sources): (Vec<usize>, Vec<Source>) = sources.into_iter().unzip();
        let mut data = Vec::new();
        for (owner, code) in owners.into_iter().zip(nvrtc.compile_all(&sources, self.cache.as_ref())?) {
            let key = content_key(&code);
            if let Some(target) = targets.get_mut(owner) {
                target.modules.push(key.clone());
            }
            data.push((key, Bytes::from(code)));
        }
        Ok((targets, data))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_checked_before_anything_is_compiled() {
        let coder = Coder::new(&["cpu".to_owned()]).unwrap();
        assert!(coder.nvrtc.is_none() && coder.architectures.is_empty());
        let error = Coder::new(&["cpu".to_owned(), "gpu".to_owned()]).err().unwrap();
        assert!(error.message.contains("\"gpu\" is no GPU architecture"), "{error}");
        match Coder::new(&["ptx".to_owned(), "compute_80".to_owned()]) {
            Ok(coder) => assert_eq!(coder.architectures.len(), 1),
            Err(error) => assert!(error.message.contains("NVRTC"), "{error}"),
        }
    }
}
