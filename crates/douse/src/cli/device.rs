//! What a command runs on, and what programs are lowered for.

use std::ffi::OsString;

use clap::Args;
use douse::{CudaDevice, LoadOptions, LowerOptions, Threads};
use douse_cuda::Architecture;

use super::failure::{Done, Failure};

#[derive(Args)]
pub struct DeviceArguments {
    /// What to run on: cpu, cuda[:N], or soft, a GPU that is simulated, for tests
    #[arg(long, default_value = "cpu")]
    device: String,
    /// Record calls into a CUDA graph (not supported yet)
    #[arg(long)]
    cuda_graph: bool,
    /// Threads of a call on the CPU; 0 for as many as the machine runs at once
    #[arg(long, default_value_t = 0, value_parser = threads)]
    pub threads: usize,
}

/// A number of threads that can be.
fn threads(text: &str) -> Result<usize, String> {
    let count = text.parse().map_err(|_| "expected a number".to_owned())?;
    if count > Threads::MAX { Err(format!("at most {} threads", Threads::MAX)) } else { Ok(count) }
}

/// What a command runs on, ready.
pub enum Device {
    Cpu,
    Cuda(CudaDevice),
}

impl DeviceArguments {
    /// Opens what to run on.
    pub fn open(&self) -> Done<Device> {
        let (kind, index) = self.device.split_once(':').unwrap_or((&self.device, "0"));
        match (kind, index.parse::<u32>()) {
            ("cpu", _) if kind != self.device => Err(Failure::Usage("--device cpu takes no number".into())),
            ("cpu", _) if self.cuda_graph => Err(Failure::Usage("--cuda-graph needs --device cuda".into())),
            ("cpu", _) => Ok(Device::Cpu),
            ("cuda", Ok(_)) if self.cuda_graph => Err(Failure::No(
                "this version of Douse launches kernels plainly: --cuda-graph is not supported yet".into(),
            )),
            ("soft", _) if kind != self.device => Err(Failure::Usage("--device soft takes no number".into())),
            ("soft", _) => Ok(Device::Cuda(CudaDevice::open_with(&[softgpu()], 0)?)),
            ("cuda", Ok(ordinal)) => Ok(Device::Cuda(CudaDevice::open(ordinal)?)),
            _ => Err(Failure::Usage(format!("--device {}: expected cpu or cuda[:N]", self.device))),
        }
    }
}

impl Device {
    /// Loads onto the device; calls on the CPU use that many threads, 0 for as many as the machine runs at once.
    pub fn load(&self, threads: usize) -> Done<LoadOptions> {
        match self {
            Device::Cpu => Ok(LoadOptions::cpu(threads)?),
            Device::Cuda(device) => Ok(LoadOptions::on(device)),
        }
    }

    /// Lowers for the device alone.
    pub fn lower(&self) -> LowerOptions {
        let target = match self {
            Device::Cpu => "cpu".to_owned(),
            Device::Cuda(device) => Architecture::of(device.device().compute_capability()).to_string(),
        };
        LowerOptions { targets: vec![target], ..LowerOptions::default() }
    }
}

/// The driver that simulates a GPU: the file that `DOUSE_SOFTGPU` names, else the one beside the program, where the crate softgpu is built to.
fn softgpu() -> OsString {
    let named = std::env::var_os("DOUSE_SOFTGPU").filter(|name| !name.is_empty());
    let beside = || Some(std::env::current_exe().ok()?.parent()?.join("libcuda.so").into_os_string());
    named.or_else(beside).unwrap_or_else(|| "libcuda.so".into())
}

/// Checks the names of targets.
pub fn check_targets(targets: &[String]) -> Done {
    for target in targets.iter().filter(|target| !["cpu", "ptx"].contains(&target.as_str())) {
        if target.parse::<Architecture>().is_err() {
            return Err(Failure::Usage(format!("--target {target}: expected cpu, sm_NN or ptx")));
        }
    }
    Ok(())
}
