//! Norms of vectors and matrices, and what is built on them.

use douse_core::pointwise::{Binary, Combine, Unary};
use douse_core::{DType, Result, Scalar};
use douse_ir::Value;

use super::args::{Args, Val};
use super::importer::{Importer, Row};
use super::linalg;
use super::parts::Parts;
use super::reduce::dims;

pub const ROWS: &[Row] = &[
    ("aten.linalg_vector_norm.default", vector_norm),
    ("aten.norm.Scalar", vector_norm),
    ("aten.norm.ScalarOpt_dim", vector_norm),
    ("aten.norm.ScalarOpt_dtype", vector_norm),
    ("aten.norm.ScalarOpt_dim_dtype", vector_norm),
    ("aten.frobenius_norm.dim", vector_norm),
    ("aten.linalg_norm.default", norm),
    ("aten.linalg_norm.ord_str", norm),
    ("aten.linalg_matrix_norm.default", |i, a| matrix_norm_row(i, a)),
    ("aten.linalg_matrix_norm.str_ord", |i, a| matrix_norm_row(i, a)),
    ("aten.dist.default", dist),
    ("aten.renorm.default", renorm),
    ("aten._weight_norm.default", weight_norm),
    ("aten.norm_except_dim.default", norm_except_dim),
];

/// The magnitudes of a real or complex tensor.
pub fn magnitude(imp: &mut Importer, x: Parts) -> Result<Value> {
    match x.im {
        Some(im) => imp.b.binary(Binary::Hypot, x.re, im),
        None => imp.b.unary(Unary::Abs, x.re),
    }
}

/// The p-norm over dimensions, which stay with size 1, in the operand's dtype (float32 or wider). Of nothing, a norm without an identity is
/// refused.
pub fn p_norm(imp: &mut Importer, x: Parts, p: f64, dims: &[usize]) -> Result<Value> {
    if p < 0.0 || p == f64::INFINITY {
        let sizes: Vec<_> = dims.iter().map(|d| imp.b.shape(x.re)[*d].clone()).collect();
        imp.require_filled(&sizes, format_args!("a norm of order {p}"));
    }
    if p == 2.0 {
        let mut square = imp.b.binary(Binary::Mul, x.re, x.re)?;
        if let Some(im) = x.im {
            let other = imp.b.binary(Binary::Mul, im, im)?;
            square = imp.b.binary(Binary::Add, square, other)?;
        }
        let total = imp.b.reduce_keep(Combine::Sum, square, dims)?;
        return imp.b.unary(Unary::Sqrt, total);
    }
    let size = magnitude(imp, x)?;
    if p == f64::INFINITY {
        return imp.b.reduce_keep(Combine::Max, size, dims);
    }
    if p == f64::NEG_INFINITY {
        return imp.b.reduce_keep(Combine::Min, size, dims);
    }
    if p == 0.0 {
        let zero = imp.b.full_like(size, Scalar::Int(0));
        let some = imp.b.binary(Binary::Ne, size, zero)?;
        let ones = imp.b.cast(some, imp.b.dtype(size));
        return imp.b.reduce_keep(Combine::Sum, ones, dims);
    }
    if p == 1.0 {
        return imp.b.reduce_keep(Combine::Sum, size, dims);
    }
    let power = imp.b.binary_scalar(Binary::Pow, size, Scalar::Float(p))?;
    let total = imp.b.reduce_keep(Combine::Sum, power, dims)?;
    imp.b.binary_scalar(Binary::Pow, total, Scalar::Float(1.0 / p))
}

/// The operand in its compute dtype, and the result's dtype: `dtype`, or the operand's own real one.
fn operand(imp: &mut Importer, a: &Args) -> Result<(Parts, DType)> {
    let x = imp.parts(a, "self")?;
    let dtype = a.dtype("dtype")?.map_or(imp.b.dtype(x.re), DType::real);
    if !dtype.is_float() {
        return Err(a.unsupported(format!("a norm of {dtype}")));
    }
    let x = x.cast(imp, dtype);
    Ok((x.cast(imp, imp.compute_dtype(dtype)), dtype))
}

/// An order as a number: absent 2, `fro` 2.
fn order(a: &Args) -> Result<f64> {
    let name = if a.has("ord") { "ord" } else { "p" };
    match a.get(name) {
        None => Ok(2.0),
        Some(Val::Str(s)) if s == "fro" => Ok(2.0),
        Some(Val::Str(s)) if s == "inf" => Ok(f64::INFINITY),
        Some(Val::Str(s)) if s == "-inf" => Ok(f64::NEG_INFINITY),
        Some(_) => a.scalar(name).map(Scalar::to_f64),
    }
}

/// A result with kept dimensions, as `keepdim` asks, in the result's dtype.
fn finish(imp: &mut Importer, a: &Args, kept: Value, dims: &[usize], dtype: DType) -> Result<Val> {
    let value = if a.bool_or("keepdim", false)? { kept } else { super::statistics::drop(imp, kept, dims)? };
    Ok(imp.b.cast(value, dtype).into())
}

fn vector_norm(imp: &mut Importer, a: &Args) -> Result<Val> {
    let (x, dtype) = operand(imp, a)?;
    let dims = dims(imp, a, "dim", imp.b.rank(x.re))?;
    let norm = p_norm(imp, x, order(a)?, &dims)?;
    finish(imp, a, norm, &dims, dtype)
}

/// Of a matrix over its two dimensions, or of a vector over one; without an order the 2-norm of all elements.
fn norm(imp: &mut Importer, a: &Args) -> Result<Val> {
    let rank = imp.parts(a, "self").map(|x| imp.b.rank(x.re))?;
    let over = dims(imp, a, "dim", rank)?;
    if a.has("ord") && over.len() == 2 { matrix_norm(imp, a, &over) } else { vector_norm(imp, a) }
}

fn matrix_norm_row(imp: &mut Importer, a: &Args) -> Result<Val> {
    let rank = imp.parts(a, "self").map(|x| imp.b.rank(x.re))?;
    let over: Vec<usize> = a.ints_or("dim", &[-2, -1])?.iter().map(|d| imp.dim(a, *d, rank)).collect::<Result<_>>()?;
    matrix_norm(imp, a, &over)
}

fn matrix_norm(imp: &mut Importer, a: &Args, over: &[usize]) -> Result<Val> {
    let &[rows, columns] = over else { return Err(a.wrong("dim", "two dimensions")) };
    let (x, dtype) = operand(imp, a)?;
    let nuclear = matches!(a.get("ord"), Some(Val::Str(s)) if s == "nuc");
    let frobenius = match a.get("ord") {
        None => true,
        Some(Val::Str(s)) => s == "fro",
        Some(_) => false,
    };
    if frobenius {
        let norm = p_norm(imp, x, 2.0, over)?;
        return finish(imp, a, norm, over, dtype);
    }
    let order = if nuclear { 2.0 } else { order(a)? };
    let kept = if order.abs() == 2.0 {
        if x.is_complex() {
            return Err(a.unsupported("a complex tensor here"));
        }
        // Singular values, along a last dimension.
        let mut to: Vec<usize> = (0..imp.b.rank(x.re)).filter(|d| !over.contains(d)).collect();
        to.extend([rows, columns]);
        let matrix = imp.b.permute(x.re, &to)?;
        let values = linalg::singular_values(imp, matrix)?;
        let last = imp.b.rank(values) - 1;
        let op = match (nuclear, order > 0.0) {
            (true, _) => Combine::Sum,
            (false, true) => Combine::Max,
            (false, false) => Combine::Min,
        };
        let norm = extreme(imp, op, values, &[last])?;
        let mut shape = imp.b.shape(x.re).to_vec();
        shape[rows] = 1.into();
        shape[columns] = 1.into();
        imp.b.reshape(norm, shape)?
    } else if order.abs() == 1.0 || order.is_infinite() {
        // The greatest (or least) sum of a column (1) or row (infinity).
        let (inner, outer) = if order.is_infinite() { (columns, rows) } else { (rows, columns) };
        let sums = p_norm(imp, x, 1.0, &[inner])?;
        extreme(imp, if order > 0.0 { Combine::Max } else { Combine::Min }, sums, &[outer])?
    } else {
        return Err(a.unsupported(format!("a matrix norm of order {order}")));
    };
    finish(imp, a, kept, over, dtype)
}

/// The greatest, least or sum of numbers that are not negative, over dimensions, which stay with size 1. Of nothing the greatest is 0.
fn extreme(imp: &mut Importer, op: Combine, x: Value, dims: &[usize]) -> Result<Value> {
    let sizes: Vec<_> = dims.iter().map(|d| imp.b.shape(x)[*d].clone()).collect();
    if op == Combine::Min {
        imp.require_filled(&sizes, "the least of a matrix norm");
    }
    let value = imp.b.reduce_keep(op, x, dims)?;
    if op != Combine::Max || imp.is_filled(&sizes) {
        return Ok(value);
    }
    imp.b.binary_scalar(Binary::Maximum, value, Scalar::Int(0))
}

/// The norm of the difference of two tensors.
fn dist(imp: &mut Importer, a: &Args) -> Result<Val> {
    let dtype = imp.result_type(a, &["self", "other"])?.real();
    let (x, y) = (imp.parts(a, "self")?.cast(imp, dtype), imp.parts(a, "other")?.cast(imp, dtype));
    let difference = x.add(imp, y, Binary::Sub)?;
    let wide = difference.cast(imp, imp.compute_dtype(dtype));
    let all: Vec<usize> = (0..imp.b.rank(wide.re)).collect();
    let norm = p_norm(imp, wide, order(a)?, &all)?;
    let norm = imp.b.reshape(norm, vec![])?;
    Ok(imp.b.cast(norm, dtype).into())
}

/// Slices along a dimension whose norm is above `maxnorm` are scaled down to it, by a factor rounded to the tensor's dtype.
fn renorm(imp: &mut Importer, a: &Args) -> Result<Val> {
    let x = imp.parts(a, "self")?;
    let (own, rank) = (imp.b.dtype(x.re), imp.b.rank(x.re));
    let dim = imp.dim(a, a.int("dim")?, rank)?;
    let others: Vec<usize> = (0..rank).filter(|d| *d != dim).collect();
    let wide = x.cast(imp, imp.compute_dtype(own));
    let norm = p_norm(imp, wide, a.scalar("p")?.to_f64(), &others)?;
    let max = imp.b.full_like(norm, a.scalar("maxnorm")?);
    let above = imp.b.binary(Binary::Gt, norm, max)?;
    // PyTorch's guard against a norm of zero.
    let guarded = imp.b.binary_scalar(Binary::Add, norm, Scalar::Float(1e-7))?;
    let ratio = imp.b.binary(Binary::Div, max, guarded)?;
    let one = imp.b.full_like(ratio, Scalar::Int(1));
    let factor = imp.b.select(above, ratio, one)?;
    let factor = imp.b.cast(factor, own);
    x.mul(imp, factor.into())?.val(imp)
}

/// The dimensions that a weight's norm is taken over: all but one, or all for -1.
fn weight_dims(imp: &Importer, a: &Args, rank: usize) -> Result<Vec<usize>> {
    let dim = a.int_or("dim", 0)?;
    if dim == -1 {
        return Ok((0..rank).collect());
    }
    let dim = imp.dim(a, dim, rank)?;
    Ok((0..rank).filter(|d| *d != dim).collect())
}

/// v * (g / |v|), the norm over all dimensions but one.
fn weight_norm(imp: &mut Importer, a: &Args) -> Result<Val> {
    let (v, g) = (imp.value(a, "v")?, imp.value(a, "g")?);
    let own = imp.b.dtype(v);
    let wide = imp.compute_dtype(own);
    let (v, g) = (imp.b.cast(v, wide), imp.b.cast(g, wide));
    let over = weight_dims(imp, a, imp.b.rank(v))?;
    let norm = p_norm(imp, v.into(), 2.0, &over)?;
    let scale = imp.b.binary(Binary::Div, g, norm)?;
    let weight = imp.b.binary(Binary::Mul, v, scale)?;
    Ok(imp.b.cast(weight, own).into())
}

fn norm_except_dim(imp: &mut Importer, a: &Args) -> Result<Val> {
    let v = imp.value(a, "v")?;
    let own = imp.b.dtype(v);
    let wide = imp.b.cast(v, imp.compute_dtype(own));
    let over = weight_dims(imp, a, imp.b.rank(v))?;
    let norm = p_norm(imp, wide.into(), a.int_or("pow", 2)? as f64, &over)?;
    // Over all dimensions the norm is a number; over all but one they are kept.
    let norm = if a.int_or("dim", 0)? == -1 { imp.b.reshape(norm, vec![])? } else { norm };
    Ok(imp.b.cast(norm, own).into())
}
