//! Code for GPUs: what the compiler emits, compiled by NVRTC; for softgpu, by the host's C++ compiler.

use std::collections::BTreeSet;

use douse_compiler::content_key;
use douse_compiler::emit::{self, Emitted};
use douse_core::bytes::Bytes;
use douse_cuda::arch::Form;
use douse_cuda::nvrtc::Source;
use douse_cuda::soft::{self, Compiler};
use douse_cuda::{Architecture, Cache, Nvrtc};
use douse_program::plan::Plan;
use douse_program::target::{CudaTarget, ProductOptions};

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
    /// The same for softgpu.
    soft: Option<Compiler>,
    architectures: Vec<Architecture>,
    products: ProductOptions,
}

impl Coder {
    /// Checks the targets, and opens the compilers that they need.
    ///
    /// # Errors
    /// `InvalidArgument` for what is no target, `NotFound` where a compiler is missing, `NotSupported` for an architecture that it does not
    /// compile for.
    pub fn new(targets: &[String], products: ProductOptions) -> Result<Coder> {
        let mut architectures: Vec<Architecture> = Vec::new();
        for target in targets.iter().filter(|target| *target != CPU) {
            let name = if target == PTX.0 { PTX.1 } else { target };
            let architecture = name.parse().map_err(|e: Error| Error::invalid_argument(e.message))?;
            if !architectures.contains(&architecture) {
                architectures.push(architecture);
            }
        }
        let (soft, gpus): (Vec<Architecture>, Vec<_>) = architectures.iter().partition(|a| a.form == Form::Soft);
        let nvrtc = if gpus.is_empty() { None } else { Some(Nvrtc::open()?) };
        if let Some(nvrtc) = &nvrtc {
            gpus.iter().try_for_each(|architecture| nvrtc.check(*architecture))?;
        }
        let soft = if soft.is_empty() { None } else { Some(Compiler::find()?) };
        Ok(Coder { nvrtc, soft, architectures, products })
    }

    /// A plan's code for every architecture, and the data that it is in, by content. All modules compile side by side.
    ///
    /// # Errors
    /// `NotSupported` for what has no code for GPUs yet; `Internal` for emitted code that does not compile.
    pub fn code(&self, plan: &Plan) -> Result<Code> {
        let (mut targets, mut data) = (Vec::new(), Vec::new());
        let mut sources = Vec::new();
        for architecture in &self.architectures {
            let arch = architecture.to_string();
            let emitted = emit::emit(plan, &arch, self.products)?;
            let mut target = CudaTarget {
                arch,
                modules: Vec::new(),
                kernels: Vec::new(),
                library: Vec::new(),
                copy: emitted.copy.clone(),
                guarded_copy: emitted.guarded_copy.clone(),
                finish: emitted.finish.clone(),
                rearrange: emitted.rearrange.clone(),
                set_condition: emitted.set_condition.clone(),
                products: self.products,
                overlaps: architecture.overlaps_launches(),
            };
            if let (Form::Soft, Some(compiler)) = (architecture.form, &self.soft) {
                let modules = compiler.compile_all(&soft_sources(&emitted), Cache::user("soft").as_ref())?;
                keep(&mut target, &mut data, modules);
            } else {
                for (number, text) in emitted.modules.iter().enumerate() {
                    let name = format!("{}_{number}.cu", plan.name);
                    let options = emit::OPTIONS.iter().map(|option| (*option).to_owned()).collect();
                    let source = Source { name, text: text.clone(), architecture: *architecture, options };
                    sources.push((targets.len(), source));
                }
            }
            (target.kernels, target.library) = (emitted.kernels, emitted.library);
            targets.push(target);
        }
        let Some(nvrtc) = &self.nvrtc else { return Ok((targets, data)) };
        // Of all architectures side by side.
        let (owners, sources): (Vec<usize>, Vec<Source>) = sources.into_iter().unzip();
        let modules = nvrtc.compile_all(&sources, Cache::user("nvrtc").as_ref())?;
        for (owner, module) in owners.into_iter().zip(modules) {
            if let Some(target) = targets.get_mut(owner) {
                keep(target, &mut data, vec![module]);
            }
        }
        Ok((targets, data))
    }
}

/// Adds modules to a target and their code to the data.
fn keep(target: &mut CudaTarget, data: &mut Vec<(String, Bytes)>, modules: Vec<Vec<u8>>) {
    for code in modules {
        let key = content_key(&code);
        target.modules.push(key.clone());
        data.push((key, Bytes::from(code)));
    }
}

/// The modules with the names of their functions, as softgpu needs them.
fn soft_sources(emitted: &Emitted) -> Vec<soft::Source> {
    let library = emitted.library.iter().flat_map(|step| &step.launches).map(|launch| &launch.launch);
    let launched = emitted.kernels.iter().flat_map(|kernel| &kernel.launches).chain(library);
    let launched = launched.map(|launch| (launch.module, &launch.function));
    let always = [&emitted.copy, &emitted.finish, &emitted.rearrange].into_iter();
    let service = always.chain(&emitted.guarded_copy).chain(&emitted.set_condition);
    let all: BTreeSet<_> = launched.chain(service.map(|name| (name.module, &name.function))).collect();
    let modules = emitted.modules.iter().enumerate().map(|(number, text)| {
        let here = all.iter().filter(|(module, _)| *module as usize == number);
        soft::Source { text: text.clone(), kernels: here.map(|(_, function)| (*function).clone()).collect() }
    });
    modules.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_checked_before_anything_is_compiled() {
        let coder = Coder::new(&["cpu".to_owned()], ProductOptions::default()).unwrap();
        assert!(coder.nvrtc.is_none() && coder.architectures.is_empty());
        let error = Coder::new(&["cpu".to_owned(), "gpu".to_owned()], ProductOptions::default()).err().unwrap();
        assert!(error.message.contains("\"gpu\" is no GPU architecture"), "{error}");
        match Coder::new(&["ptx".to_owned(), "compute_80".to_owned()], ProductOptions::default()) {
            Ok(coder) => assert_eq!(coder.architectures.len(), 1),
            Err(error) => assert!(error.message.contains("NVRTC"), "{error}"),
        }
    }
}
