//! Variances and covariances.

use douse_core::pointwise::{Binary, Combine, Unary};
use douse_core::sym::Expr;
use douse_core::{DType, Result, Scalar};
use douse_ir::Value;

use super::args::{Args, Number, Val};
use super::importer::{Importer, Row};
use super::matmul;
use super::reduce::{count, dims, size_as};

pub const ROWS: &[Row] = &[
    ("aten.var.default", |i, a| spread(i, a, false).map(|(v, _)| v)),
    ("aten.var.dim", |i, a| spread(i, a, false).map(|(v, _)| v)),
    ("aten.var.correction", |i, a| spread(i, a, false).map(|(v, _)| v)),
    ("aten.std.default", |i, a| spread(i, a, true).map(|(v, _)| v)),
    ("aten.std.dim", |i, a| spread(i, a, true).map(|(v, _)| v)),
    ("aten.std.correction", |i, a| spread(i, a, true).map(|(v, _)| v)),
    ("aten.var_mean.default", |i, a| both(i, a, false)),
    ("aten.var_mean.dim", |i, a| both(i, a, false)),
    ("aten.var_mean.correction", |i, a| both(i, a, false)),
    ("aten.std_mean.default", |i, a| both(i, a, true)),
    ("aten.std_mean.dim", |i, a| both(i, a, true)),
    ("aten.std_mean.correction", |i, a| both(i, a, true)),
    ("aten.cov.default", cov),
    ("aten.corrcoef.default", corrcoef),
];

/// A mean and the sum of squared deviations from it, over dimensions that stay with size 1.
pub struct Moments {
    pub mean: Value,
    pub squares: Value,
}

/// In two passes, with the second corrected by the sum of its deviations, which rounding of the mean leaves
/// (Chan, Golub, LeVeque: Algorithms for computing the sample variance, 1983).
pub fn moments(imp: &mut Importer, x: Value, dims: &[usize]) -> Result<Moments> {
    let dtype = imp.b.dtype(x);
    let n = count(imp, x, dims, dtype);
    let total = imp.b.reduce_keep(Combine::Sum, x, dims)?;
    let mean = imp.b.binary(Binary::Div, total, n)?;
    let centred = imp.b.binary(Binary::Sub, x, mean)?;
    let square = imp.b.binary(Binary::Mul, centred, centred)?;
    let squares = imp.b.reduce_keep(Combine::Sum, square, dims)?;
    let rest = imp.b.reduce_keep(Combine::Sum, centred, dims)?;
    let rest = imp.b.binary(Binary::Mul, rest, rest)?;
    let rest = imp.b.binary(Binary::Div, rest, n)?;
    let corrected = imp.b.binary(Binary::Sub, squares, rest)?;
    // Of equal numbers, both are their mean's rounding alone, and may differ either way. Beyond the finite numbers, there is nothing to correct.
    let corrected = imp.b.binary_scalar(Binary::Maximum, corrected, Scalar::Int(0))?;
    let infinite = imp.b.unary(Unary::IsInf, squares)?;
    let squares = imp.b.select(infinite, squares, corrected)?;
    Ok(Moments { mean, squares })
}

/// A mean and a biased variance, over dimensions that stay with size 1, as normalisations use them.
pub fn mean_and_variance(imp: &mut Importer, x: Value, dims: &[usize]) -> Result<(Value, Value)> {
    let dtype = imp.b.dtype(x);
    let n = count(imp, x, dims, dtype);
    let total = imp.b.reduce_keep(Combine::Sum, x, dims)?;
    let mean = imp.b.binary(Binary::Div, total, n)?;
    let centred = imp.b.binary(Binary::Sub, x, mean)?;
    let square = imp.b.binary(Binary::Mul, centred, centred)?;
    let squares = imp.b.reduce_keep(Combine::Sum, square, dims)?;
    let variance = imp.b.binary(Binary::Div, squares, n)?;
    Ok((mean, variance))
}

/// What is subtracted from the count: `correction`, or 1 where `unbiased`.
fn correction(imp: &mut Importer, a: &Args, dtype: DType) -> Result<Value> {
    let number = if a.has("correction") {
        a.number("correction")?
    } else {
        Number::Scalar(Scalar::Int(a.bool_or("unbiased", true)? as i64))
    };
    Ok(imp.number_value(&number, dtype))
}

/// Variance or its root, and the mean.
fn spread(imp: &mut Importer, a: &Args, root: bool) -> Result<(Val, Val)> {
    let t = a.tensor("self")?;
    let (value, complex) = (imp.read(t)?, imp.is_complex(t));
    let own = imp.b.dtype(value);
    let rank = imp.shape_of(t)?.len();
    let dims = dims(imp, a, "dim", rank)?;
    let keep = a.bool_or("keepdim", false)?;
    let x = imp.b.cast(value, imp.compute_dtype(own));
    let dtype = imp.b.dtype(x);
    let Moments { mean, mut squares } = moments(imp, x, &dims)?;
    if complex {
        // The variance of the real part plus that of the imaginary part.
        squares = imp.b.reduce(Combine::Sum, squares, &[rank])?;
    }
    let n = count(imp, x, &dims, dtype);
    let correction = correction(imp, a, dtype)?;
    let divisor = imp.b.binary(Binary::Sub, n, correction)?;
    let zero = imp.b.full(dtype, vec![], Scalar::Int(0));
    let divisor = imp.b.binary(Binary::Maximum, divisor, zero)?;
    let mut spread = imp.b.binary(Binary::Div, squares, divisor)?;
    if root {
        spread = imp.b.unary(Unary::Sqrt, spread)?;
    }
    let (spread, mean) = if keep { (spread, mean) } else { (drop(imp, spread, &dims)?, drop(imp, mean, &dims)?) };
    let (spread, mean) = (imp.b.cast(spread, own), imp.b.cast(mean, own));
    Ok((spread.into(), if complex { Val::Complex(mean) } else { mean.into() }))
}

fn both(imp: &mut Importer, a: &Args, root: bool) -> Result<Val> {
    let (spread, mean) = spread(imp, a, root)?;
    Ok(Val::List(vec![spread, mean]))
}

/// Without dimensions of size 1.
pub fn drop(imp: &mut Importer, x: Value, dims: &[usize]) -> Result<Value> {
    let shape = imp.b.shape(x).iter().enumerate().filter(|(d, _)| !dims.contains(d)).map(|(_, s)| s.clone()).collect();
    imp.b.reshape(x, shape)
}

/// The covariance matrix of variables in rows, and their number.
fn covariance(imp: &mut Importer, a: &Args) -> Result<(Value, Expr)> {
    if a.has("fweights") || a.has("aweights") {
        return Err(a.unsupported("a weight of observations"));
    }
    let x = imp.value(a, "self")?;
    let x = super::pointwise::as_float(imp, x);
    let x = match imp.b.rank(x) {
        0 => imp.b.reshape(x, vec![Expr::int(1), Expr::int(1)])?,
        1 => imp.b.unsqueeze(x, 0)?,
        _ => x,
    };
    let own = imp.b.dtype(x);
    let x = imp.b.cast(x, imp.compute_dtype(own));
    let dtype = imp.b.dtype(x);
    let shape = imp.b.shape(x).to_vec();
    let n = size_as(imp, &shape[1], dtype);
    let total = imp.b.reduce_keep(Combine::Sum, x, &[1])?;
    let mean = imp.b.binary(Binary::Div, total, n)?;
    let centred = imp.b.binary(Binary::Sub, x, mean)?;
    let turned = imp.b.transpose(centred, 0, 1)?;
    let product = imp.b.matmul(centred, turned)?;
    let less = imp.b.full(dtype, vec![], Scalar::Int(a.int_or("correction", 1)?));
    let divisor = imp.b.binary(Binary::Sub, n, less)?;
    let zero = imp.b.full(dtype, vec![], Scalar::Int(0));
    let divisor = imp.b.binary(Binary::Maximum, divisor, zero)?;
    let cov = imp.b.binary(Binary::Div, product, divisor)?;
    Ok((imp.b.cast(cov, own), shape[0].clone()))
}

fn cov(imp: &mut Importer, a: &Args) -> Result<Val> {
    let (cov, variables) = covariance(imp, a)?;
    Ok(if variables.is_int(1) { imp.b.reshape(cov, vec![])? } else { cov }.into())
}

/// The covariances over both standard deviations, within [-1, 1].
fn corrcoef(imp: &mut Importer, a: &Args) -> Result<Val> {
    let (cov, variables) = covariance(imp, a)?;
    if variables.is_int(1) {
        let one = imp.b.reshape(cov, vec![])?;
        return Ok(imp.b.binary(Binary::Div, one, one)?.into());
    }
    let variance = matmul::diagonal(imp, cov)?;
    let deviation = imp.b.unary(Unary::Sqrt, variance)?;
    let (column, row) = (imp.b.unsqueeze(deviation, 1)?, imp.b.unsqueeze(deviation, 0)?);
    let scaled = imp.b.binary(Binary::Div, cov, column)?;
    let scaled = imp.b.binary(Binary::Div, scaled, row)?;
    let bounded = imp.b.binary_scalar(Binary::Minimum, scaled, Scalar::Int(1))?;
    Ok(imp.b.binary_scalar(Binary::Maximum, bounded, Scalar::Int(-1))?.into())
}
