//! What a command runs on, and what programs are lowered for.

use clap::Args;
use douse::{CudaDevice, LoadOptions, LowerOptions};

use super::failure::{Done, Failure};

#[derive(Args)]
pub struct DeviceArguments {
    /// What to run on: cpu, or cuda[:N]
    #[arg(long, default_value = "cpu")]
    device: String,
    /// Record calls into a CUDA graph
    #[arg(long)]
    cuda_graph: bool,
    /// Threads of a call on the CPU; 0 for as many as the machine runs at once
    #[arg(long, default_value_t = 0)]
    pub threads: usize,
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
            Device::Cuda(device) => {
                let (major, minor) = device.device().compute_capability();
                // Hopper's own instructions multiply matrices nearly twice as fast.
                let specific = if (major, minor) == (9, 0) { "a" } else { "" };
                format!("sm_{major}{minor}{specific}")
            }
        };
        LowerOptions { targets: vec![target], ..LowerOptions::default() }
    }
}

/// Checks the names of targets.
pub fn check_targets(targets: &[String]) -> Done {
    for target in targets.iter().filter(|target| !["cpu", "ptx"].contains(&target.as_str())) {
        if target.parse::<douse_cuda::Architecture>().is_err() {
            return Err(Failure::Usage(format!("--target {target}: expected cpu, sm_NN or ptx")));
        }
    }
    Ok(())
}
