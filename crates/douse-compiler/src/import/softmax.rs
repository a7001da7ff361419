//! Softmax and its kin.

use douse_core::pointwise::{Binary, Combine, Unary};
use douse_core::{DType, Result, Scalar};
use douse_ir::Value;

use super::args::{Args, Val};
use super::convert::converted;
use super::importer::{Importer, Row};

pub const ROWS: &[Row] = &[
    ("aten.softmax.int", softmax),
    ("aten._softmax.default", softmax),
    ("aten.special_softmax.default", softmax),
    ("aten._safe_softmax.default", safe_softmax),
    ("aten.log_softmax.int", log_softmax),
    ("aten._log_softmax.default", log_softmax),
    ("aten.special_log_softmax.default", log_softmax),
];

/// The operand in its compute dtype, at least of one dimension, the dimension, and the result's dtype. With a `dtype`, rounded to it first.
fn operand(imp: &mut Importer, a: &Args) -> Result<(Value, usize, DType)> {
    let t = a.tensor("self")?;
    let dtype = match a.dtype("dtype")? {
        Some(dtype) => dtype,
        None if a.bool_or("half_to_float", false)? => DType::F32,
        None => imp.dtype_of(t),
    };
    if dtype.is_complex() {
        return Err(a.unsupported("a complex tensor here"));
    }
    let x = converted(imp, t, dtype)?;
    let x = imp.result_value(x)?;
    let x = imp.b.cast(x, imp.compute_dtype(dtype));
    let dim = imp.dim(a, a.int("dim")?, imp.b.rank(x))?;
    let x = if imp.b.rank(x) == 0 { imp.b.unsqueeze(x, 0)? } else { x };
    Ok((x, dim, dtype))
}

/// In the result's dtype and the argument's rank.
fn result(imp: &mut Importer, a: &Args, y: Value, dtype: DType) -> Result<Val> {
    let own = a.tensor("self")?;
    let shape = imp.shape_of(own)?;
    let y = imp.b.reshape(y, shape)?;
    Ok(imp.b.cast(y, dtype).into())
}

/// exp(x - max) and its sum along a dimension.
fn exponentials(imp: &mut Importer, x: Value, dim: usize) -> Result<(Value, Value, Value)> {
    let max = imp.b.reduce_keep(Combine::Max, x, &[dim])?;
    let shifted = imp.b.binary(Binary::Sub, x, max)?;
    let exp = imp.b.unary(Unary::Exp, shifted)?;
    let total = imp.b.reduce_keep(Combine::Sum, exp, &[dim])?;
    Ok((shifted, exp, total))
}

/// exp(x - max) over its sum.
pub fn softmax_of(imp: &mut Importer, x: Value, dim: usize) -> Result<Value> {
    let (_, exp, total) = exponentials(imp, x, dim)?;
    imp.b.binary(Binary::Div, exp, total)
}

/// x - max - log(sum(exp(x - max))).
pub fn log_softmax_of(imp: &mut Importer, x: Value, dim: usize) -> Result<Value> {
    let (shifted, _, total) = exponentials(imp, x, dim)?;
    let log = imp.b.unary(Unary::Log, total)?;
    imp.b.binary(Binary::Sub, shifted, log)
}

fn softmax(imp: &mut Importer, a: &Args) -> Result<Val> {
    let (x, dim, dtype) = operand(imp, a)?;
    let y = softmax_of(imp, x, dim)?;
    result(imp, a, y, dtype)
}

fn log_softmax(imp: &mut Importer, a: &Args) -> Result<Val> {
    let (x, dim, dtype) = operand(imp, a)?;
    let y = log_softmax_of(imp, x, dim)?;
    result(imp, a, y, dtype)
}

/// Softmax that gives zeros for a row of only -inf.
fn safe_softmax(imp: &mut Importer, a: &Args) -> Result<Val> {
    let (x, dim, dtype) = operand(imp, a)?;
    let y = softmax_of(imp, x, dim)?;
    let max = imp.b.reduce_keep(Combine::Max, x, &[dim])?;
    let lowest = imp.b.full_like(max, Scalar::Float(f64::NEG_INFINITY));
    let masked = imp.b.binary(Binary::Eq, max, lowest)?;
    let zero = imp.b.full_like(y, Scalar::Int(0));
    let y = imp.b.select(masked, zero, y)?;
    result(imp, a, y, dtype)
}
