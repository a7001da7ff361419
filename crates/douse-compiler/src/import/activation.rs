//! Activations: each a formula in float32 or wider, rounded once.

use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI, SQRT_2};

use douse_core::pointwise::Binary;
use douse_core::sym::Expr;
use douse_core::{Error, Result, Scalar};

use super::args::{Args, Val};
use super::arithmetic::binds;
use super::formula::Formula;
use super::importer::{Importer, Row};

pub const ROWS: &[Row] = &[
    ("aten.relu.default", relu),
    ("aten.relu6.default", |i, a| bounded(i, a, Scalar::Int(0), Scalar::Int(6))),
    ("aten.hardtanh.default", |i, a| {
        let dtype = i.dtype_of(a.tensor("self")?);
        if dtype.is_float() {
            i.require_fits(a, "min_val", dtype)?;
            i.require_fits(a, "max_val", dtype)?;
        }
        bounded(i, a, a.scalar_or("min_val", Scalar::Int(-1))?, a.scalar_or("max_val", Scalar::Int(1))?)
    }),
    ("aten.gelu.default", gelu),
    ("aten.silu.default", |i, a| of_x(i, a, |x| x / (1.0 + (-x).exp()))),
    ("aten.mish.default", |i, a| of_x(i, a, |x| x * x.exp().log1p().tanh())),
    ("aten.elu.default", |i, a| {
        elu(i, a, a.float_or("alpha", 1.0)?, a.float_or("scale", 1.0)?, a.float_or("input_scale", 1.0)?)
    }),
    ("aten.selu.default", |i, a| elu(i, a, SELU_ALPHA, SELU_SCALE, 1.0)),
    ("aten.celu.default", |i, a| {
        let alpha = a.float_or("alpha", 1.0)?;
        elu(i, a, alpha, 1.0, 1.0 / alpha)
    }),
    ("aten.leaky_relu.default", |i, a| {
        let slope = a.float_or("negative_slope", 0.01)?;
        of_x(i, a, |x| x.gt(0.0).select(x, x * slope))
    }),
    ("aten.prelu.default", prelu),
    ("aten._prelu_kernel.default", prelu),
    ("aten.hardsigmoid.default", |i, a| of_x(i, a, |x| (x + 3.0).maximum(0.0).minimum(6.0) / 6.0)),
    ("aten.hardswish.default", |i, a| of_x(i, a, |x| x * (x + 3.0).maximum(0.0).minimum(6.0) / 6.0)),
    ("aten.hardshrink.default", |i, a| {
        let lambd = a.float_or("lambd", 0.5)?;
        of_x(i, a, |x| x.ge(-lambd).and(x.le(lambd)).select(0.0, x))
    }),
    ("aten.softshrink.default", |i, a| {
        let lambd = a.float_or("lambd", 0.5)?;
        // What lies between becomes 0, but NaN stays.
        of_x(i, a, |x| x.gt(lambd).select(x - lambd, x.lt(-lambd).select(x + lambd, x * 0.0)))
    }),
    ("aten.softplus.default", softplus),
    ("aten.log_sigmoid.default", |i, a| of_x(i, a, |x| x.minimum(0.0) - (-x.abs()).exp().log1p())),
    ("aten.glu.default", glu),
    ("aten.threshold.default", threshold),
];

/// Klambauer and others, "Self-normalizing neural networks" (2017).
const SELU_ALPHA: f64 = 1.673_263_242_354_377_2;
const SELU_SCALE: f64 = 1.050_700_987_355_480_5;

/// A formula of the tensor alone.
fn of_x(imp: &mut Importer, a: &Args, f: impl Fn(&Formula) -> Formula) -> Result<Val> {
    let ([x], dtype) = imp.wide(a, ["self"])?;
    imp.rounded(&f(&x), dtype)
}

fn relu(imp: &mut Importer, a: &Args) -> Result<Val> {
    let x = imp.value(a, "self")?;
    Ok(imp.b.binary_scalar(Binary::Maximum, x, Scalar::Int(0))?.into())
}

/// min(max(x, low), high) in the tensor's dtype.
fn bounded(imp: &mut Importer, a: &Args, low: Scalar, high: Scalar) -> Result<Val> {
    let mut x = imp.value(a, "self")?;
    for (op, bound) in [(Binary::Maximum, low), (Binary::Minimum, high)] {
        if binds(a, op, bound, imp.b.dtype(x))? {
            x = imp.b.binary_scalar(op, x, bound)?;
        }
    }
    Ok(x.into())
}

/// Hendrycks and Gimpel, "Gaussian error linear units" (2016): exact, or by the hyperbolic tangent.
fn gelu(imp: &mut Importer, a: &Args) -> Result<Val> {
    match a.str_or("approximate", "none")? {
        "none" => of_x(imp, a, |x| x * 0.5 * (1.0 + (x * FRAC_1_SQRT_2).erf())),
        "tanh" => of_x(imp, a, |x| {
            let inner = (x + x.square() * x * 0.044715) * (SQRT_2 * FRAC_2_SQRT_PI * 0.5);
            x * 0.5 * (1.0 + inner.tanh())
        }),
        _ => Err(a.wrong("approximate", "none or tanh")),
    }
}

fn elu(imp: &mut Importer, a: &Args, alpha: f64, scale: f64, input_scale: f64) -> Result<Val> {
    of_x(imp, a, |x| x.le(0.0).select((x * input_scale).expm1() * (alpha * scale), x * scale))
}

/// The weight is one number, or one for each channel (dimension 1).
fn prelu(imp: &mut Importer, a: &Args) -> Result<Val> {
    let (x, weight) = (imp.value(a, "self")?, imp.value(a, "weight")?);
    let (rank, dtype) = (imp.b.rank(x), imp.b.dtype(x));
    let weight = if imp.b.rank(weight) == 1 {
        let mut shape = vec![Expr::int(1); rank];
        if let Some(channels) = shape.get_mut(1) {
            *channels = imp.b.shape(weight)[0].clone();
        }
        imp.b.reshape(weight, shape)?
    } else {
        weight
    };
    let compute = imp.compute_dtype(dtype);
    let (x, weight) = (Formula::from(x).cast(compute), Formula::from(weight).cast(compute));
    imp.rounded(&x.gt(0.0).select(&x, &weight * &x), dtype)
}

/// log(1 + exp(beta x)) / beta; above the threshold, x.
fn softplus(imp: &mut Importer, a: &Args) -> Result<Val> {
    let (beta, threshold) = (a.float_or("beta", 1.0)?, a.float_or("threshold", 20.0)?);
    of_x(imp, a, |x| {
        let scaled = x * beta;
        scaled.gt(threshold).select(x, scaled.exp().log1p() / beta)
    })
}

/// The first half along a dimension, times the sigmoid of the second.
fn glu(imp: &mut Importer, a: &Args) -> Result<Val> {
    let x = imp.value(a, "self")?;
    let (dtype, dim) = (imp.b.dtype(x), imp.dim(a, a.int_or("dim", -1)?, imp.b.rank(x))?);
    let size = imp.b.shape(x).get(dim).cloned().ok_or_else(|| Error::invalid_program("glu of a 0-d tensor"))?;
    let half = size.floor_div(&Expr::int(2));
    let wide = imp.b.cast(x, imp.compute_dtype(dtype));
    let first = imp.b.slice(wide, dim, &Expr::int(0), &Expr::int(1), half.clone())?;
    let second = imp.b.slice(wide, dim, &half, &Expr::int(1), half.clone())?;
    imp.rounded(&(Formula::from(first) * Formula::from(second).sigmoid()), dtype)
}

/// `value` where x is at most the threshold; NaN stays.
fn threshold(imp: &mut Importer, a: &Args) -> Result<Val> {
    let x = imp.value(a, "self")?;
    for name in ["threshold", "value"] {
        imp.require_fits(a, name, imp.b.dtype(x))?;
    }
    let (threshold, value) = (a.scalar("threshold")?, a.scalar("value")?);
    let x = Formula::from(x);
    Ok(x.le(threshold).select(value, &x).build(&mut imp.b)?.into())
}
