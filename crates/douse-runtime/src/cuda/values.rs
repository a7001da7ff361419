//! A call's inputs on their way to the device, and its outputs on their way back.

use douse_core::sym::Expr;
use douse_core::{Aligned, Error, Result, Scalar};
use douse_cpu::executor::number;
use douse_cpu::{InputValue, OutputValue, Threads};
use douse_program::plan::{BufferId, InputKind, OutputKind};
use std::sync::Arc;

use super::executor::{Call, Prepared};
use super::outputs::{Output, Taken};
use super::tensor::DeviceTensor;
use super::walk::Walk;
use crate::symbols::{counts, eval};

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
        for output in &self.plan.outputs {
            let integer = |expr: &Expr| {
                eval(expr, &walk.symbols)
                    .ok_or_else(|| Error::internal(format!("output {:?} is not known", output.name)))
            };
            outputs.push(Output::Host(match &output.kind {
                OutputKind::Tensor { dtype, sizes, strides, buffer } => {
                    let sizes = sizes.iter().map(integer).collect::<Result<Vec<_>>>()?;
                    let strides = strides.iter().map(integer).collect::<Result<Vec<_>>>()?;
                    let elements = sizes.iter().try_fold(1i64, |n, size| n.checked_mul(*size));
                    let len = elements.and_then(|n| usize::try_from(n).ok()).and_then(|n| n.checked_mul(dtype.size()));
                    let len = len.ok_or_else(|| Error::internal(format!("output {:?} of {sizes:?}", output.name)))?;
                    if call.outputs_on_device {
                        let memory = match taken.get(buffer) {
                            Some(memory) => memory.clone(),
                            // Its size was found out by the call.
                            None => {
                                let memory = self.device.allocate(len, || format!("output {:?}", output.name))?;
                                self.device.copy(walk.place(*buffer)?.part(0..len)?, memory.all())?;
                                Arc::new(memory)
                            }
                        };
                        let (place, [sizes, strides]) = (memory.part(0..len)?, [counts(&sizes)?, counts(&strides)?]);
                        let tensor = DeviceTensor::new(&self.device, *dtype, sizes, strides, place, Some(memory));
                        outputs.push(Output::Device(tensor));
                        continue;
                    }
                    let mut bytes = Aligned::zeros(len)?;
                    self.fetch(walk, *buffer, &mut bytes, call.threads)?;
                    OutputValue::Tensor { bytes, dtype: *dtype, sizes, strides }
                }
                OutputKind::Int(expr) => OutputValue::Number(Scalar::Int(integer(expr)?)),
                OutputKind::Bool(cond) => OutputValue::Number(Scalar::Bool(walk.holds(cond)?)),
                OutputKind::Number { dtype, buffer } => {
                    let mut bytes = Aligned::zeros(dtype.size())?;
                    self.fetch(walk, *buffer, &mut bytes, call.threads)?;
                    OutputValue::Number(number::from_bytes(&bytes, *dtype)?)
                }
                OutputKind::Fixed(fixed) => OutputValue::Fixed(fixed.clone()),
            }));
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
