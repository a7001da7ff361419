//! Random inputs, when none are given.

use douse::{HostTensor, Result, Value, ValueKind, ValueMeta};
use douse_core::dtype::Class;
use douse_core::sym::{Expr, Symbol};
use douse_core::{DType, Error, Scalar, element};
use douse_program::plan::{InputKind, Plan, SymbolSource};

/// The size taken for a dimension that is free: large enough to show that it is one, where its range allows.
const FREE_SIZE: i64 = 2;

/// A generator that gives the same inputs each time, so that two runs can be compared (SplitMix64).
pub struct Random(u64);

impl Random {
    pub fn new() -> Random {
        Random(0)
    }

    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Between -1 and 1.
    fn float(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }

    /// Floats between -1 and 1; integers 0 or 1, which are indices of nearly everything; bools.
    pub fn tensor(&mut self, dtype: DType, sizes: &[usize]) -> Result<HostTensor> {
        let mut tensor = HostTensor::zeros(dtype, sizes)?;
        let size = dtype.size();
        for place in tensor.bytes_mut().chunks_exact_mut(size) {
            let value = match dtype.class() {
                Class::Bool => Scalar::Bool(self.bits() >> 63 == 1),
                Class::Int => Scalar::Int((self.bits() >> 63) as i64),
                Class::Float => Scalar::Float(self.float()),
                Class::Complex => Scalar::Complex(self.float(), self.float()),
            };
            place.copy_from_slice(&element::write(dtype, value));
        }
        Ok(tensor)
    }
}

/// Inputs for a method. Where examples are given they have the examples' shapes, and integers and plain values are the
/// examples' own: random ones are rarely good indices.
pub fn inputs(plan: &Plan, meta: &[ValueMeta], examples: Option<&[Value]>) -> Result<Vec<Value>> {
    let mut random = Random::new();
    let symbols = symbols(plan);
    let mut values = Vec::with_capacity(meta.len());
    for (i, (input, meta)) in plan.inputs.iter().zip(meta).enumerate() {
        let example = examples.and_then(|e| e.get(i));
        values.push(match (&meta.kind, &input.kind, example) {
            (ValueKind::Tensor { dtype, .. }, _, Some(Value::Tensor(example))) if dtype.is_float() => {
                Value::Tensor(random.tensor(*dtype, example.sizes())?)
            }
            (_, _, Some(example)) => example.clone(),
            (ValueKind::Tensor { dtype, .. }, InputKind::Tensor { sizes, .. }, None) => {
                Value::Tensor(random.tensor(*dtype, &evaluate(sizes, &symbols)?)?)
            }
            (ValueKind::Int, ..) => Value::Int(int_value(plan, i, &symbols)),
            (ValueKind::Bool, ..) => Value::Bool(true),
            (ValueKind::Fixed(value), ..) => value.clone(),
            (ValueKind::Float | ValueKind::Tensor { .. }, ..) => Value::Float(0.5),
        });
    }
    Ok(values)
}

/// A value for each symbol that the inputs give.
fn symbols(plan: &Plan) -> Vec<i64> {
    let value =
        |min: Option<i64>, max: Option<i64>| FREE_SIZE.max(min.unwrap_or(FREE_SIZE)).min(max.unwrap_or(i64::MAX));
    plan.symbols.iter().map(|s| value(s.min, s.max)).collect()
}

fn int_value(plan: &Plan, input: usize, symbols: &[i64]) -> i64 {
    let from = |source: &SymbolSource| matches!(source, SymbolSource::Int { input: i } if *i as usize == input);
    let symbol = plan.symbols.iter().position(|s| from(&s.source));
    symbol.and_then(|n| symbols.get(n)).copied().unwrap_or(FREE_SIZE)
}

fn evaluate(sizes: &[Expr], symbols: &[i64]) -> Result<Vec<usize>> {
    let value = |symbol| match symbol {
        Symbol::Size(n) => symbols.get(n as usize).copied(),
        Symbol::Loop(_) | Symbol::Value(_) => None,
    };
    let size = |size: &Expr| size.eval(&value).and_then(|v| usize::try_from(v).ok());
    let missing = |s: &Expr| Error::invalid_argument(format!("no random input has a size of {s}: give the inputs"));
    sizes.iter().map(|s| size(s).ok_or_else(|| missing(s))).collect()
}
