//! What a command runs on, and what programs are lowered for.

use clap::Args;
use douse::LoadOptions;

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

impl DeviceArguments {
    /// Refuses what this build cannot run on.
    pub fn check(&self) -> Done {
        let (kind, index) = self.device.split_once(':').unwrap_or((&self.device, "0"));
        match (kind, index.parse::<u32>()) {
            ("cpu", _) if kind != self.device => Err(Failure::Usage("--device cpu takes no number".into())),
            ("cpu", _) if self.cuda_graph => Err(Failure::Usage("--cuda-graph needs --device cuda".into())),
            ("cpu", _) => Ok(()),
            ("cuda", Ok(_)) => Err(Failure::No(
                "this version of Douse runs on the CPU only: --device cuda is not supported yet".into(),
            )),
            _ => Err(Failure::Usage(format!("--device {}: expected cpu or cuda[:N]", self.device))),
        }
    }

    pub fn options(&self) -> Done<LoadOptions> {
        self.check()?;
        Ok(LoadOptions::cpu(self.threads)?)
    }
}

/// Checks the targets to lower for; only `cpu` can be, so far.
pub fn check_targets(targets: &[String]) -> Done {
    for target in targets {
        let architecture = target.strip_prefix("sm_").or_else(|| target.strip_prefix("compute_"));
        match architecture {
            _ if target == "cpu" => {}
            Some(number) if !number.is_empty() && number.chars().all(|c| c.is_ascii_alphanumeric()) => {
                return Err(Failure::No(format!(
                    "this version of Douse lowers for the CPU only: --target {target} is not supported yet"
                )));
            }
            _ => return Err(Failure::Usage(format!("--target {target}: expected cpu or sm_NN"))),
        }
    }
    Ok(())
}
