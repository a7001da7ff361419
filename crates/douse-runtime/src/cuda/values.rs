//! A call's inputs on their way to the device, and its outputs on their way back.

use std::sync::Arc;

use douse_core::sym::Expr;
use douse_core::{Aligned, DType, Error, HostTensor, Result, Scalar};
use douse_cpu::executor::number;
use douse_cpu::{InputValue, OutputValue, Threads};
use douse_program::plan::{BufferId, InputKind, OutputKind};

use super::executor::{Call, Prepared};
use super::outputs::{Output, Taken};
use super::tensor::DeviceTensor;
use super::walk::Walk;
use crate::symbols::eval;

/// The shape of an output.
#[derive(Debug)]
pub(super) struct Shape {
    sizes: Vec<usize>,
    /// In elements.
    strides: Vec<usize>,
    /// Outputs are dense.
    bytes: usize,
}

impl Shape {
    /// `None` where a symbol is not known yet, or there are more elements than can be counted.
    pub fn new(sizes: &[Expr], strides: &[Expr], dtype: DType, symbols: &[Option<i64>]) -> Option<Shape> {
        let count = |expr: &Expr| usize::try_from(eval(expr, symbols)?).ok();
        let sizes = sizes.iter().map(count).collect::<Option<Vec<usize>>>()?;
        let strides = strides.iter().map(count).collect::<Option<Vec<usize>>>()?;
        let bytes = sizes.iter().try_fold(dtype.size(), |bytes, size| bytes.checked_mul(*size))?;
        Some(Shape { sizes, strides, bytes })
    }
}

impl Prepared {
    /// Puts the inputs and the random state where the call's first segment takes them from: pinned memory, but for large inputs, which go to
    /// the device right away.
    pub fn upload(&self, walk: &mut Walk<'_>, inputs: &[InputValue<'_>], call: &Call<'_>) -> Result<()> {
        let (slots, room) = (&walk.frame.slots, &mut *walk.room);
        if let Some(range) = slots.random() {
            let (seed, number) = call.random;
            room.pinned.write(range.start, &seed.to_le_bytes())?;
            room.pinned.write(range.start + size_of::<u64>(), &number.to_le_bytes())?;
        }
        if inputs.len() != self.plan.inputs.len() {
            return Err(Error::internal(format!("{} inputs for {}", inputs.len(), self.plan.inputs.len())));
        }
        for (input, value) in self.plan.inputs.iter().zip(inputs) {
            let (InputKind::Tensor { buffer, .. } | InputKind::Number { buffer, .. }) = &input.kind else { continue };
            // One that is on the device already has no value here.
            let range = match (slots.raw(*buffer), value) {
                (Some(raw), _) => raw,
                (None, InputValue::None) => continue,
                (None, _) => match slots.get(*buffer) {
                    Some(range) => range,
                    None => continue,
                },
            };
            let number;
            let bytes: &[u8] = match (value, &input.kind) {
                (InputValue::Tensor(bytes), _) => bytes,
                (InputValue::TensorMut(bytes), _) => bytes,
                (InputValue::Number(value), InputKind::Number { dtype, .. }) => {
                    number = number::write(*value, *dtype)?;
                    &number
                }
                _ => return Err(Error::internal(format!("input {:?} is no tensor", input.name))),
            };
            let len = range.len();
            let bytes = bytes.get(..len).ok_or_else(|| {
                Error::invalid_argument(format!("input {:?} has {} bytes, expected {len}", input.name, bytes.len()))
            })?;
            match slots.staged(&range) {
                Some(start) => room.pinned.write(start, bytes)?,
                None => {
                    let values = room.values.place().ok_or_else(|| Error::internal("no memory for values"))?;
                    self.device.upload_with(bytes, values.part(range)?, call.threads)?;
                }
            }
        }
        Ok(())
    }

    /// The outputs, after everything is done; written inputs get their bytes.
    pub fn collect(
        &self,
        walk: &mut Walk<'_>,
        inputs: &mut [InputValue<'_>],
        call: &Call<'_>,
        taken: &Taken,
    ) -> Result<Vec<Output>> {
        let mut outputs = Vec::with_capacity(self.plan.outputs.len());
        for (output, shape) in self.plan.outputs.iter().zip(&walk.frame.shapes) {
            let unknown = || Error::internal(format!("output {:?} is not known", output.name));
            outputs.push(match &output.kind {
                OutputKind::Tensor { dtype, sizes, strides, buffer } => {
                    let found;
                    let shape = match shape {
                        Some(shape) => shape,
                        // The call has found it out.
                        None => {
                            found = Shape::new(sizes, strides, *dtype, &walk.symbols).ok_or_else(unknown)?;
                            &found
                        }
                    };
                    if call.outputs_on_device {
                        Output::Device(self.kept(walk, *buffer, *dtype, shape, taken).map_err(|e| e.at(&output.name))?)
                    } else {
                        let mut bytes = Aligned::zeros(shape.bytes)?;
                        self.fetch(walk, *buffer, &mut bytes, call.threads)?;
                        Output::Tensor(HostTensor::new(*dtype, &shape.sizes, &shape.strides, bytes)?)
                    }
                }
                OutputKind::Int(expr) => {
                    let value = eval(expr, &walk.symbols).ok_or_else(unknown)?;
                    Output::Host(OutputValue::Number(Scalar::Int(value)))
                }
                OutputKind::Bool(cond) => Output::Host(OutputValue::Number(Scalar::Bool(walk.holds(cond)?))),
                OutputKind::Number { dtype, buffer } => {
                    let mut bytes = Aligned::zeros(dtype.size())?;
                    self.fetch(walk, *buffer, &mut bytes, call.threads)?;
                    Output::Host(OutputValue::Number(number::from_bytes(&bytes, *dtype)?))
                }
                OutputKind::Fixed(fixed) => Output::Host(OutputValue::Fixed(fixed.clone())),
            });
        }
        for (input, value) in self.plan.inputs.iter().zip(inputs) {
            if let (InputKind::Tensor { buffer, .. }, InputValue::TensorMut(bytes)) = (&input.kind, value) {
                let len = walk.frame.slots.get(*buffer).map_or(0, |range| range.len());
                if let Some(bytes) = bytes.get_mut(..len) {
                    self.fetch(walk, *buffer, bytes, call.threads)?;
                }
            }
        }
        Ok(outputs)
    }

    /// An output that stays on the device.
    fn kept(
        &self,
        walk: &mut Walk<'_>,
        buffer: BufferId,
        dtype: DType,
        shape: &Shape,
        taken: &Taken,
    ) -> Result<DeviceTensor> {
        let memory = match taken.iter().find(|(taken, _)| *taken == buffer) {
            Some((_, memory)) => memory.clone(),
            // Its size was found out by the call.
            None => {
                let memory = self.device.allocate(shape.bytes, || "an output".to_owned())?;
                self.device.copy(walk.place(buffer)?.part(0..shape.bytes)?, memory.all())?;
                Arc::new(memory)
            }
        };
        let place = memory.part(0..shape.bytes)?;
        let (sizes, strides) = (shape.sizes.clone(), shape.strides.clone());
        Ok(DeviceTensor::new(&self.device, dtype, sizes, strides, place, Some(memory)))
    }

    /// The first bytes of a buffer: from pinned memory where they were downloaded, else from the device.
    fn fetch(&self, walk: &mut Walk<'_>, buffer: BufferId, bytes: &mut [u8], threads: &Threads) -> Result<()> {
        let slots = &walk.frame.slots;
        match slots.get(buffer).and_then(|range| slots.staged(&range)) {
            Some(start) => walk.room.pinned.read(start, bytes),
            None => {
                let place = walk.place(buffer)?.part(0..bytes.len())?;
                self.device.download_with(place, bytes, threads)
            }
        }
    }
}
