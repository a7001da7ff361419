//! Which of a method's code fits a device.

use douse_core::{Code, Error, Result};
use douse_cuda::Architecture;
use douse_program::payload::Payload;
use douse_program::target::CudaTarget;

use super::device::CudaDevice;

/// The code that fits the device best: its own architecture's, else a compatible one's, else PTX.
///
/// # Errors
/// `DelegateInvalidCompatibility`, listing what the program has and what the device needs.
pub(super) fn choose<'a>(payload: &'a Payload, device: &CudaDevice) -> Result<&'a CudaTarget> {
    let capability = device.device().compute_capability();
    let mut fitting: Vec<(Architecture, &CudaTarget)> = Vec::new();
    for target in &payload.cuda {
        let architecture: Architecture = target.arch.parse().map_err(|e: Error| Error::invalid_program(e.message))?;
        if architecture.runs_on(capability) {
            fitting.push((architecture, target));
        }
    }
    fitting.sort_by_key(|(architecture, _)| architecture.preference());
    fitting.first().map(|(_, target)| *target).ok_or_else(|| {
        let name = &payload.plan.name;
        let has = match payload.targets.join(", ") {
            none if none.is_empty() => "nothing".to_owned(),
            some => some,
        };
        let needed = Architecture::of(capability);
        let message = format!(
            "method {name:?} has no code for {:?}: it was lowered for {has}, and the device needs {needed}; lower it again \
             with --target {needed}",
            device.device()
        );
        Error::new(Code::DelegateInvalidCompatibility, message)
    })
}
