//! Memory for outputs that stay on the device.

use std::collections::BTreeMap;
use std::sync::Arc;

use douse_core::Result;
use douse_cpu::OutputValue;
use douse_cuda::{DeviceMemory, Place};
use douse_program::arena;
use douse_program::plan::{BufferId, BufferKind, Plan};

use super::device::CudaDevice;
use super::tensor::DeviceTensor;

/// An output of a call.
#[derive(Clone, Debug)]
pub(crate) enum Output {
    Host(OutputValue),
    Device(DeviceTensor),
}

/// What was given out before, by the buffer it was for. It is given out again once its last tensor is gone: a caller that drops an output
/// before the next call gets the same memory, and a graph keeps its nodes.
#[derive(Debug, Default)]
pub(super) struct Pool(BTreeMap<BufferId, Vec<Arc<DeviceMemory>>>);

/// Memory of a call's outputs.
pub(super) type Taken = BTreeMap<BufferId, Arc<DeviceMemory>>;

impl Pool {
    /// Memory for every output whose size is known when the call begins.
    ///
    /// # Errors
    /// `MemoryAllocationFailed`, with the output.
    pub fn take(&mut self, plan: &Plan, symbols: &[Option<i64>], device: &CudaDevice) -> Result<Taken> {
        let mut taken = Taken::new();
        for (id, buffer) in plan.buffers.iter().enumerate() {
            let (BufferKind::Output(number), Some(bytes)) = (&buffer.kind, arena::bytes(plan, id, symbols)?) else {
                continue;
            };
            let kept = self.0.entry(id as BufferId).or_default();
            // What has another size and is not in use goes.
            kept.retain(|memory| memory.len() == bytes || Arc::strong_count(memory) > 1);
            let free = kept.iter().find(|memory| memory.len() == bytes && Arc::strong_count(memory) == 1);
            let memory = match free {
                Some(memory) => memory.clone(),
                None => {
                    let memory = Arc::new(device.allocate(bytes, || format!("output {number}"))?);
                    kept.push(memory.clone());
                    memory
                }
            };
            taken.insert(id as BufferId, memory);
        }
        Ok(taken)
    }
}

/// Buffers that lie where the caller has them, or gets them.
pub(super) fn direct(plan: &Plan, inputs: &[Option<Place>], outputs: &Taken) -> Vec<(BufferId, Place)> {
    let inputs = plan.buffers.iter().enumerate().filter_map(|(id, buffer)| match &buffer.kind {
        BufferKind::Input(number) => Some((id as BufferId, inputs.get(*number as usize).copied().flatten()?)),
        _ => None,
    });
    inputs.chain(outputs.iter().map(|(buffer, memory)| (*buffer, memory.all()))).collect()
}
