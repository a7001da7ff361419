//! What a method takes, gives and keeps.

use douse_core::sym::{Expr, Ranges};
use douse_core::{DType, Error, Result};
use douse_program::bounds::{ranges, size_bounds};
use douse_program::payload::Payload;
use douse_program::plan::{BufferKind, InputKind, OutputKind};

use crate::value::Value;

/// What there is to know about a method without running it.
#[derive(Clone, Debug)]
pub struct MethodMeta {
    pub name: String,
    /// What the method was lowered for: `cpu`, `sm_90`.
    pub targets: Vec<String>,
    pub inputs: Vec<ValueMeta>,
    pub outputs: Vec<ValueMeta>,
    /// What the method keeps from call to call.
    pub states: Vec<StateMeta>,
    /// The structure of arguments and results, as PyTorch's pytree specification writes it (JSON).
    pub in_spec: Option<String>,
    pub out_spec: Option<String>,
}

#[derive(Clone, Debug)]
pub struct ValueMeta {
    pub name: String,
    pub kind: ValueKind,
}

#[derive(Clone, Debug)]
pub enum ValueKind {
    Tensor {
        dtype: DType,
        sizes: Vec<Size>,
        /// In elements, as text: `3*s0`. An input in another layout is copied.
        strides: Vec<String>,
        /// The method writes this input.
        written: bool,
    },
    Int,
    Float,
    Bool,
    /// Always this value.
    Fixed(Value),
}

/// A size with its bounds, both included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Size {
    /// `3`, or an expression over the names of the exported program: `2*s77 + 1`.
    pub text: String,
    pub min: i64,
    /// `None`: unbounded.
    pub max: Option<i64>,
}

impl Size {
    pub fn is_fixed(&self) -> bool {
        self.max == Some(self.min)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateMeta {
    pub name: String,
    pub dtype: DType,
    pub elements: i64,
}

impl MethodMeta {
    pub(crate) fn new(payload: &Payload) -> Result<MethodMeta> {
        let plan = &payload.plan;
        let reader = Reader { ranges: ranges(plan), names: plan.symbols.iter().map(|s| s.name.as_str()).collect() };
        let input = |kind: &InputKind| {
            Ok(match kind {
                InputKind::Tensor { dtype, sizes, strides, written, .. } => {
                    reader.tensor(*dtype, sizes, strides, *written)
                }
                InputKind::Int => ValueKind::Int,
                InputKind::Number { dtype, .. } => number(*dtype),
                InputKind::Fixed(value) => ValueKind::Fixed(Value::fixed(value)?),
            })
        };
        let output = |kind: &OutputKind| {
            Ok(match kind {
                OutputKind::Tensor { dtype, sizes, strides, .. } => reader.tensor(*dtype, sizes, strides, false),
                OutputKind::Int(_) => ValueKind::Int,
                OutputKind::Bool(_) => ValueKind::Bool,
                OutputKind::Number { dtype, .. } => number(*dtype),
                OutputKind::Fixed(value) => ValueKind::Fixed(Value::fixed(value)?),
            })
        };
        let states = plan.buffers.iter().filter_map(|buffer| match &buffer.kind {
            BufferKind::State { name, .. } => {
                let elements = buffer.elements.as_int().unwrap_or(0);
                Some(StateMeta { name: name.clone(), dtype: buffer.dtype, elements })
            }
            _ => None,
        });
        let inputs =
            plan.inputs.iter().map(|i| Ok::<_, Error>(ValueMeta { name: i.name.clone(), kind: input(&i.kind)? }));
        let outputs =
            plan.outputs.iter().map(|o| Ok::<_, Error>(ValueMeta { name: o.name.clone(), kind: output(&o.kind)? }));
        Ok(MethodMeta {
            name: plan.name.clone(),
            targets: payload.targets.clone(),
            inputs: inputs.collect::<Result<_>>()?,
            outputs: outputs.collect::<Result<_>>()?,
            states: states.collect(),
            in_spec: plan.in_spec.clone(),
            out_spec: plan.out_spec.clone(),
        })
    }
}

fn number(dtype: DType) -> ValueKind {
    match dtype {
        DType::Bool => ValueKind::Bool,
        dtype if dtype.is_int() => ValueKind::Int,
        _ => ValueKind::Float,
    }
}

struct Reader<'a> {
    ranges: Ranges,
    names: Vec<&'a str>,
}

impl Reader<'_> {
    fn tensor(&self, dtype: DType, sizes: &[Expr], strides: &[Expr], written: bool) -> ValueKind {
        let size = |size: &Expr| {
            let bounds = size_bounds(&self.ranges, size);
            Size { text: named(size, &self.names), min: bounds.min, max: bounds.max }
        };
        let sizes = sizes.iter().map(size).collect();
        ValueKind::Tensor { dtype, sizes, strides: strides.iter().map(|s| named(s, &self.names)).collect(), written }
    }
}

/// An expression with the exported program's names for its symbols instead of `s0`, `s1`.
pub(crate) fn named(expr: &Expr, names: &[&str]) -> String {
    let text = expr.to_string();
    let mut out = String::with_capacity(text.len());
    let mut rest = text.as_str();
    while let Some(at) = rest.find('s') {
        let (before, from) = rest.split_at(at);
        let digits: String = from.chars().skip(1).take_while(char::is_ascii_digit).collect();
        let after_letter = before.ends_with(|c: char| c.is_ascii_alphanumeric());
        let name = if after_letter { None } else { digits.parse::<usize>().ok().and_then(|n| names.get(n)) };
        out.push_str(before);
        match name {
            Some(name) => {
                out.push_str(name);
                rest = from.get(1 + digits.len()..).unwrap_or_default();
            }
            None => {
                out.push('s');
                rest = from.get(1..).unwrap_or_default();
            }
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_replace_whole_symbols_only() {
        let expr: Expr = "3*s1 + scale(s0, 0x3ff8000000000000) + select(s1 == s0, 1, s12)".parse().unwrap();
        let text = named(&expr, &["batch", "s77"]);
        assert!(text.contains("3*s77") && text.contains("scale(batch, 0x3ff8000000000000)"), "{text}");
        assert!(text.contains("select(") && text.contains("s12"), "{text}");
    }
}
