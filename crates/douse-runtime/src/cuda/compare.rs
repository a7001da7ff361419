//! Comparing a replayed call with a plain one, for users who distrust a graph.

use std::collections::BTreeMap;

use douse_core::{Code, Error, Result, Scalar};
use douse_cpu::{InputValue, OutputValue, State};
use douse_program::plan::Plan;

use super::outputs::Output;
use super::state::DeviceState;

/// Copies of the inputs that a program writes, for a call that must not change them.
pub(super) struct Copies(BTreeMap<usize, Vec<u8>>);

impl Copies {
    pub fn of(inputs: &[InputValue<'_>]) -> Copies {
        let written = inputs.iter().enumerate().filter_map(|(number, input)| match input {
            InputValue::TensorMut(bytes) => Some((number, bytes.to_vec())),
            InputValue::Tensor(_) | InputValue::Number(_) | InputValue::None => None,
        });
        Copies(written.collect())
    }

    /// The inputs with the copies in place of what is written.
    pub fn inputs<'a>(&'a mut self, inputs: &'a [InputValue<'_>]) -> Vec<InputValue<'a>> {
        let mut copies = self.0.values_mut();
        let of = |input: &'a InputValue<'_>| match input {
            InputValue::Tensor(bytes) => InputValue::Tensor(bytes),
            InputValue::TensorMut(_) => copies.next().map_or(InputValue::None, |copy| InputValue::TensorMut(copy)),
            InputValue::Number(value) => InputValue::Number(*value),
            InputValue::None => InputValue::None,
        };
        inputs.iter().map(of).collect()
    }
}

fn differs(what: &str) -> Error {
    Error::new(Code::Internal, format!("the call gives another {what} by its CUDA graph than without"))
}

pub(super) fn outputs(plan: &Plan, plain: &[Output], replayed: &[Output]) -> Result<()> {
    let name = |number: usize| plan.outputs.get(number).map_or("", |output| output.name.as_str());
    for (number, pair) in plain.iter().zip(replayed).enumerate() {
        let same = match pair {
            (Output::Host(a), Output::Host(b)) => equal(a, b),
            (Output::Tensor(a), Output::Tensor(b)) => {
                (a.sizes(), a.strides(), a.bytes()) == (b.sizes(), b.strides(), b.bytes())
            }
            (Output::Device(a), Output::Device(b)) => {
                let (a, b) = (a.to_host()?, b.to_host()?);
                (a.sizes(), a.strides(), a.bytes()) == (b.sizes(), b.strides(), b.bytes())
            }
            _ => false,
        };
        if !same {
            return Err(differs(&format!("output {number} ({})", name(number))));
        }
    }
    Ok(())
}

fn equal(a: &OutputValue, b: &OutputValue) -> bool {
    match (a, b) {
        (
            OutputValue::Tensor { bytes, dtype, sizes, strides },
            OutputValue::Tensor { bytes: other, dtype: d, sizes: n, strides: s },
        ) => dtype == d && sizes == n && strides == s && **bytes == **other,
        (OutputValue::Number(a), OutputValue::Number(b)) => bits(*a) == bits(*b),
        (OutputValue::Fixed(a), OutputValue::Fixed(b)) => a == b,
        _ => false,
    }
}

/// A number so that NaN is equal to itself.
fn bits(value: Scalar) -> (u64, u64) {
    match value {
        Scalar::Bool(value) => (u64::from(value), 0),
        Scalar::Int(value) => (value as u64, 1),
        Scalar::Float(value) => (value.to_bits(), 2),
        Scalar::Complex(re, im) => (re.to_bits(), im.to_bits()),
    }
}

pub(super) fn inputs(plan: &Plan, plain: &Copies, replayed: &[InputValue<'_>]) -> Result<()> {
    for (number, bytes) in &plain.0 {
        if let Some(InputValue::TensorMut(written)) = replayed.get(*number)
            && **written != **bytes
        {
            let name = plan.inputs.get(*number).map_or("", |input| input.name.as_str());
            return Err(differs(&format!("value of the written input {number} ({name})")));
        }
    }
    Ok(())
}

pub(super) fn states(plain: &DeviceState, replayed: &DeviceState) -> Result<()> {
    let (mut a, mut b) = (State::default(), State::default());
    plain.to_host(&mut a)?;
    replayed.to_host(&mut b)?;
    for ((name, a), (_, b)) in a.iter().zip(b.iter()) {
        if *a != *b {
            return Err(differs(&format!("state {name}")));
        }
    }
    Ok(())
}
