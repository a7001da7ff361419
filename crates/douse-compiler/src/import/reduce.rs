//! Reductions, softmax, norms.

use douse_core::pointwise::{Binary, Combine, Unary};
use douse_core::{DType, Result, Scalar};
use douse_ir::Value;

use super::args::{Args, Val};
use super::importer::{Importer, Row};

pub const ROWS: &[Row] = &[
    ("aten.sum.default", sum),
    ("aten.sum.dim_IntList", sum),
    ("aten.mean.default", mean),
    ("aten.mean.dim", mean),
    ("aten.softmax.int", softmax),
    ("aten._softmax.default", softmax),
];

/// The dimensions that an argument names; all where it is absent or empty.
pub fn dims(imp: &Importer, a: &Args, name: &str, rank: usize) -> Result<Vec<usize>> {
    let named = a.opt_ints(name)?.unwrap_or_default();
    if named.is_empty() || rank == 0 {
        return Ok((0..rank).collect());
    }
    named.iter().map(|d| imp.dim(a, *d, rank)).collect()
}

/// Combines over dimensions, kept with size 1 if `keepdim` says so.
pub fn reduced(imp: &mut Importer, a: &Args, op: Combine, x: Value, dims: &[usize]) -> Result<Value> {
    if a.bool_or("keepdim", false)? { imp.b.reduce_keep(op, x, dims) } else { imp.b.reduce(op, x, dims) }
}

/// Sums of bools and integers are int64, of half and bfloat16 are added in float32.
fn sum(imp: &mut Importer, a: &Args) -> Result<Val> {
    let x = imp.value(a, "self")?;
    let own = imp.b.dtype(x);
    let dtype = a.dtype("dtype")?.unwrap_or(if own.is_float() { own } else { DType::I64 });
    let dims = dims(imp, a, "dim", imp.b.rank(x))?;
    let x = imp.b.cast(x, dtype);
    let wide = imp.b.cast(x, imp.compute_dtype(dtype));
    let total = reduced(imp, a, Combine::Sum, wide, &dims)?;
    Ok(imp.b.cast(total, dtype).into())
}

/// The number of elements in dimensions, as a 0-d value of a dtype.
pub fn count(imp: &mut Importer, x: Value, dims: &[usize], dtype: DType) -> Value {
    let shape = imp.b.shape(x).to_vec();
    let n = douse_core::sym::Expr::product(dims.iter().map(|d| &shape[*d]));
    let n = imp.b.size_value(n);
    imp.b.cast(n, dtype)
}

fn mean(imp: &mut Importer, a: &Args) -> Result<Val> {
    let x = imp.value(a, "self")?;
    let dtype = a.dtype("dtype")?.unwrap_or(imp.b.dtype(x));
    let dims = dims(imp, a, "dim", imp.b.rank(x))?;
    let x = imp.b.cast(x, dtype);
    let wide = imp.b.cast(x, imp.compute_dtype(dtype));
    let total = reduced(imp, a, Combine::Sum, wide, &dims)?;
    let n = count(imp, x, &dims, imp.compute_dtype(dtype));
    let mean = imp.b.binary(Binary::Div, total, n)?;
    Ok(imp.b.cast(mean, dtype).into())
}

/// exp(x - max) over its sum, in float32 or wider.
fn softmax(imp: &mut Importer, a: &Args) -> Result<Val> {
    let x = imp.value(a, "self")?;
    let dtype = a.dtype("dtype")?.unwrap_or(imp.b.dtype(x));
    let x = imp.b.cast(x, imp.compute_dtype(dtype));
    if imp.b.rank(x) == 0 {
        let one = imp.b.full(dtype, vec![], Scalar::Int(1));
        return Ok(one.into());
    }
    let dim = imp.dim(a, a.int("dim")?, imp.b.rank(x))?;
    let max = imp.b.reduce_keep(Combine::Max, x, &[dim])?;
    let shifted = imp.b.binary(Binary::Sub, x, max)?;
    let exp = imp.b.unary(Unary::Exp, shifted)?;
    let total = imp.b.reduce_keep(Combine::Sum, exp, &[dim])?;
    let result = imp.b.binary(Binary::Div, exp, total)?;
    Ok(imp.b.cast(result, dtype).into())
}
