//! Memory for outputs that stay on the device.

use std::sync::Arc;

use douse_core::{HostTensor, Result};
use douse_cpu::OutputValue;
use douse_cuda::{DeviceMemory, Place, Stream};
use douse_program::arena;
use douse_program::plan::{BufferId, BufferKind, InputKind, OutputKind, Plan};

use super::device::CudaDevice;
use super::tensor::DeviceTensor;

/// An output of a call.
#[derive(Clone, Debug)]
pub(crate) enum Output {
    /// A number or a value that is always the same; from the CPU, tensors too.
    Host(OutputValue),
    Tensor(HostTensor),
    Device(DeviceTensor),
}

impl Output {
    /// The output, which work on a stream still has to write.
    pub fn written_on(self, stream: &Arc<Stream>) -> Output {
        match self {
            Output::Device(tensor) => Output::Device(tensor.written_on(stream.clone())),
            other => other,
        }
    }
}

/// What was given out before, by the output it was for. It is given out again once its last tensor is gone: a caller that drops an output
/// before the next call gets the same memory, and a graph keeps its nodes.
#[derive(Debug, Default)]
pub(super) struct Pool(Vec<Vec<Arc<DeviceMemory>>>);

/// Memory of a call's outputs, by buffer.
pub(super) type Taken = Vec<(BufferId, Arc<DeviceMemory>)>;

impl Pool {
    /// Memory for every output (`outputs`: their buffers) whose size is known when the call begins.
    ///
    /// # Errors
    /// `MemoryAllocationFailed`, with the output.
    pub fn take(
        &mut self,
        plan: &Plan,
        outputs: &[BufferId],
        symbols: &[Option<i64>],
        device: &CudaDevice,
    ) -> Result<Taken> {
        self.0.resize_with(outputs.len(), Vec::new);
        let mut taken = Taken::with_capacity(outputs.len());
        for (number, (id, kept)) in outputs.iter().zip(&mut self.0).enumerate() {
            let Some(bytes) = arena::bytes(plan, *id as usize, symbols)? else { continue };
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
            taken.push((*id, memory));
        }
        Ok(taken)
    }
}

/// The buffers of outputs, each once.
pub(super) fn buffers(plan: &Plan) -> Vec<BufferId> {
    let all = plan.buffers.iter().enumerate().filter(|(_, buffer)| matches!(buffer.kind, BufferKind::Output(_)));
    all.map(|(id, _)| id as BufferId).collect()
}

/// Whether all outputs stay in memory that was taken for them: nothing has to be read when the call ends.
pub(super) fn stay(plan: &Plan, taken: &Taken) -> bool {
    plan.outputs.iter().all(|output| match &output.kind {
        OutputKind::Tensor { buffer, .. } => taken.iter().any(|(taken, _)| taken == buffer),
        OutputKind::Number { .. } => false,
        OutputKind::Int(_) | OutputKind::Bool(_) | OutputKind::Fixed(_) => true,
    })
}

/// Buffers that lie where the caller has them, or gets them.
pub(super) fn direct(plan: &Plan, inputs: &[Option<Place>], outputs: &Taken) -> Vec<(BufferId, Place)> {
    let inputs = plan.inputs.iter().zip(inputs).filter_map(|(input, place)| match &input.kind {
        InputKind::Tensor { buffer, .. } => Some((*buffer, (*place)?)),
        _ => None,
    });
    inputs.chain(outputs.iter().map(|(buffer, memory)| (*buffer, memory.all()))).collect()
}
