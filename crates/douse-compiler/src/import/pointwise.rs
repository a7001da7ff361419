//! Elementwise operators: arithmetic, comparisons, logic, elementary and special functions.

use douse_core::pointwise::{Binary, Unary};
use douse_core::{DType, Result, Scalar};
use douse_ir::Value;

use super::args::{Args, Val};
use super::importer::{Importer, Row};

/// Rows of a function of one tensor that is float on floats and takes integers as float32.
macro_rules! float_functions {
    ($($name:literal $op:ident,)*) => {
        &[$(($name, |imp: &mut Importer, a: &Args| float_unary(imp, a, Unary::$op)),)*]
    };
}

pub const FUNCTIONS: &[Row] = float_functions! {
    "aten.exp.default" Exp,
    "aten.exp2.default" Exp2,
    "aten.special_exp2.default" Exp2,
    "aten.expm1.default" Expm1,
    "aten.special_expm1.default" Expm1,
    "aten.log.default" Log,
    "aten.log2.default" Log2,
    "aten.log10.default" Log10,
    "aten.log1p.default" Log1p,
    "aten.special_log1p.default" Log1p,
    "aten.sqrt.default" Sqrt,
    "aten.rsqrt.default" Rsqrt,
    "aten.sin.default" Sin,
    "aten.cos.default" Cos,
    "aten.tan.default" Tan,
    "aten.asin.default" Asin,
    "aten.acos.default" Acos,
    "aten.atan.default" Atan,
    "aten.sinh.default" Sinh,
    "aten.cosh.default" Cosh,
    "aten.tanh.default" Tanh,
    "aten.asinh.default" Asinh,
    "aten.acosh.default" Acosh,
    "aten.atanh.default" Atanh,
    "aten.sigmoid.default" Sigmoid,
    "aten.special_expit.default" Sigmoid,
    "aten.erf.default" Erf,
    "aten.special_erf.default" Erf,
    "aten.erfc.default" Erfc,
    "aten.special_erfc.default" Erfc,
    "aten.erfinv.default" Erfinv,
    "aten.special_erfinv.default" Erfinv,
    "aten.reciprocal.default" Reciprocal,
    "aten.lgamma.default" Lgamma,
    "aten.special_gammaln.default" Lgamma,
    "aten.digamma.default" Digamma,
    "aten.special_digamma.default" Digamma,
    "aten.special_psi.default" Digamma,
    "aten.special_erfcx.default" Erfcx,
    "aten.special_ndtri.default" Ndtri,
    "aten.special_log_ndtr.default" LogNdtr,
    "aten.i0.default" I0,
    "aten.special_i0.default" I0,
    "aten.special_i0e.default" I0e,
    "aten.special_i1.default" I1,
    "aten.special_i1e.default" I1e,
    "aten.special_modified_bessel_i0.default" I0,
    "aten.special_modified_bessel_i1.default" I1,
    "aten.special_bessel_j0.default" BesselJ0,
    "aten.special_bessel_j1.default" BesselJ1,
    "aten.special_bessel_y0.default" BesselY0,
    "aten.special_bessel_y1.default" BesselY1,
    "aten.special_modified_bessel_k0.default" ModifiedBesselK0,
    "aten.special_modified_bessel_k1.default" ModifiedBesselK1,
    "aten.special_scaled_modified_bessel_k0.default" ScaledModifiedBesselK0,
    "aten.special_scaled_modified_bessel_k1.default" ScaledModifiedBesselK1,
    "aten.special_spherical_bessel_j0.default" SphericalBesselJ0,
    "aten.special_airy_ai.default" AiryAi,
};

pub const ROWS: &[Row] = &[
    ("aten.add.Tensor", |i, a| add_sub(i, a, Binary::Add)),
    ("aten.add.Scalar", |i, a| add_sub(i, a, Binary::Add)),
    ("aten.sub.Tensor", |i, a| add_sub(i, a, Binary::Sub)),
    ("aten.sub.Scalar", |i, a| add_sub(i, a, Binary::Sub)),
    ("aten.subtract.Tensor", |i, a| add_sub(i, a, Binary::Sub)),
    ("aten.rsub.Tensor", rsub),
    ("aten.rsub.Scalar", rsub),
    ("aten.mul.Tensor", mul),
    ("aten.mul.Scalar", mul),
    ("aten.multiply.Tensor", mul),
    ("aten.div.Tensor", div),
    ("aten.div.Scalar", div),
    ("aten.divide.Tensor", div),
    ("aten.true_divide.Tensor", div),
    ("aten.true_divide.Scalar", div),
    ("aten.eq.Tensor", |i, a| compare(i, a, Binary::Eq)),
    ("aten.eq.Scalar", |i, a| compare(i, a, Binary::Eq)),
    ("aten.ne.Tensor", |i, a| compare(i, a, Binary::Ne)),
    ("aten.ne.Scalar", |i, a| compare(i, a, Binary::Ne)),
    ("aten.lt.Tensor", |i, a| compare(i, a, Binary::Lt)),
    ("aten.lt.Scalar", |i, a| compare(i, a, Binary::Lt)),
    ("aten.le.Tensor", |i, a| compare(i, a, Binary::Le)),
    ("aten.le.Scalar", |i, a| compare(i, a, Binary::Le)),
    ("aten.gt.Tensor", |i, a| compare(i, a, Binary::Gt)),
    ("aten.gt.Scalar", |i, a| compare(i, a, Binary::Gt)),
    ("aten.ge.Tensor", |i, a| compare(i, a, Binary::Ge)),
    ("aten.ge.Scalar", |i, a| compare(i, a, Binary::Ge)),
    ("aten.neg.default", |i, a| unary(i, a, Unary::Neg)),
    ("aten.relu.default", relu),
    ("aten.where.self", where_),
    ("aten.where.ScalarOther", where_),
    ("aten.where.ScalarSelf", where_),
    ("aten.where.Scalar", where_),
];

/// The operation on floats; on integers and bools, on float32.
fn float_unary(imp: &mut Importer, a: &Args, op: Unary) -> Result<Val> {
    let x = imp.value(a, "self")?;
    let x = as_float(imp, x);
    Ok(imp.b.unary(op, x)?.into())
}

/// Integers and bools as float32.
pub fn as_float(imp: &mut Importer, x: Value) -> Value {
    if imp.b.dtype(x).is_float() { x } else { imp.b.cast(x, DType::F32) }
}

fn unary(imp: &mut Importer, a: &Args, op: Unary) -> Result<Val> {
    let x = imp.value(a, "self")?;
    Ok(imp.b.unary(op, x)?.into())
}

/// `self` and `other` in their common dtype.
pub fn promoted(imp: &mut Importer, a: &Args) -> Result<(Value, Value)> {
    let dtype = imp.result_type(a, &["self", "other"])?;
    Ok((imp.operand(a, "self", dtype)?, imp.operand(a, "other", dtype)?))
}

/// x + alpha * y, x - alpha * y; on bool, addition is or.
fn add_sub(imp: &mut Importer, a: &Args, op: Binary) -> Result<Val> {
    let (x, mut y) = promoted(imp, a)?;
    if imp.b.dtype(x) == DType::Bool {
        return Ok(imp.b.binary(Binary::Or, x, y)?.into());
    }
    if a.has("alpha") {
        let dtype = imp.b.dtype(x);
        let alpha = imp.operand(a, "alpha", dtype)?;
        if imp.b.constant_scalar(alpha).is_none_or(|s| s.to_f64() != 1.0) {
            y = imp.b.binary(Binary::Mul, y, alpha)?;
        }
    }
    Ok(imp.b.binary(op, x, y)?.into())
}

fn rsub(imp: &mut Importer, a: &Args) -> Result<Val> {
    let (mut x, y) = promoted(imp, a)?;
    if a.has("alpha") {
        let dtype = imp.b.dtype(x);
        let alpha = imp.operand(a, "alpha", dtype)?;
        x = imp.b.binary(Binary::Mul, x, alpha)?;
    }
    Ok(imp.b.binary(Binary::Sub, y, x)?.into())
}

fn mul(imp: &mut Importer, a: &Args) -> Result<Val> {
    let (x, y) = promoted(imp, a)?;
    let op = if imp.b.dtype(x) == DType::Bool { Binary::And } else { Binary::Mul };
    Ok(imp.b.binary(op, x, y)?.into())
}

fn div(imp: &mut Importer, a: &Args) -> Result<Val> {
    let (x, y) = promoted(imp, a)?;
    let (x, y) = (as_float(imp, x), as_float(imp, y));
    Ok(imp.b.binary(Binary::Div, x, y)?.into())
}

fn compare(imp: &mut Importer, a: &Args, op: Binary) -> Result<Val> {
    let (x, y) = promoted(imp, a)?;
    Ok(imp.b.binary(op, x, y)?.into())
}

fn relu(imp: &mut Importer, a: &Args) -> Result<Val> {
    let x = imp.value(a, "self")?;
    Ok(imp.b.binary_scalar(Binary::Maximum, x, Scalar::Int(0))?.into())
}

fn where_(imp: &mut Importer, a: &Args) -> Result<Val> {
    let cond = imp.value(a, "condition")?;
    let cond = imp.b.cast(cond, DType::Bool);
    let (x, y) = promoted(imp, a)?;
    Ok(imp.b.select(cond, x, y)?.into())
}
