//! `douse devices`.

use clap::Args;
use douse_cuda::{Driver, Nvrtc};

use super::failure::Done;
use super::{output, show};

#[derive(Args)]
pub struct Devices {}

impl Devices {
    pub fn run(self) -> Done {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let mut lines = vec![format!("cpu     {threads} thread{}", if threads == 1 { "" } else { "s" })];
        match list() {
            Ok(devices) => lines.extend(devices),
            Err(error) => lines.push(format!("cuda    none: {error}")),
        }
        lines.push(match Nvrtc::open() {
            Ok(nvrtc) => format!("nvrtc   {} ({})", nvrtc.version(), nvrtc.name().display()),
            Err(error) => format!("nvrtc   none: {error}"),
        });
        output::line(lines.join("\n"))
    }
}

/// A line for each CUDA device.
fn list() -> douse::Result<Vec<String>> {
    let driver = Driver::open()?;
    let line = |ordinal| {
        let device = driver.device(ordinal)?;
        let (major, minor) = device.compute_capability();
        let (free, total) = (show::bytes(device.free_memory()? as u64), show::bytes(device.total_memory() as u64));
        let (name, version) = (device.name(), driver.version());
        Ok(format!("cuda:{ordinal}  {name}  sm_{major}{minor}  {free} of {total} free  driver for CUDA {version}"))
    };
    (0..driver.device_count()?).map(line).collect()
}
