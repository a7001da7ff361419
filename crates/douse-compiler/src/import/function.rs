//! Functions of one tensor: elementary functions, rounding, sign.

use douse_core::pointwise::Unary;
use douse_core::{DType, Result, Scalar};

use super::args::{Args, Val};
use super::complex;
use super::formula::Formula;
use super::importer::{Importer, Row};
use super::pointwise::as_float;

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
    "aten.arcsin.default" Asin,
    "aten.arccos.default" Acos,
    "aten.arctan.default" Atan,
    "aten.sinh.default" Sinh,
    "aten.cosh.default" Cosh,
    "aten.tanh.default" Tanh,
    "aten.asinh.default" Asinh,
    "aten.acosh.default" Acosh,
    "aten.atanh.default" Atanh,
    "aten.arcsinh.default" Asinh,
    "aten.arccosh.default" Acosh,
    "aten.arctanh.default" Atanh,
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
    ("aten.neg.default", neg),
    ("aten.negative.default", neg),
    ("aten.abs.default", abs),
    ("aten.absolute.default", abs),
    ("aten.sign.default", sign),
    ("aten.sgn.default", sign),
    ("aten.floor.default", |i, a| whole(i, a, Unary::Floor)),
    ("aten.ceil.default", |i, a| whole(i, a, Unary::Ceil)),
    ("aten.trunc.default", |i, a| whole(i, a, Unary::Trunc)),
    ("aten.fix.default", |i, a| whole(i, a, Unary::Trunc)),
    ("aten.round.default", |i, a| whole(i, a, Unary::Round)),
    ("aten.round.decimals", round_decimals),
    ("aten.special_round.default", round_decimals),
    ("aten.frac.default", frac),
    ("aten.frexp.Tensor", frexp),
    ("aten.deg2rad.default", |i, a| scaled(i, a, std::f64::consts::PI / 180.0)),
    ("aten.rad2deg.default", |i, a| scaled(i, a, 180.0 / std::f64::consts::PI)),
    ("aten.sinc.default", sinc),
    ("aten.special_sinc.default", sinc),
    ("aten.nan_to_num.default", nan_to_num),
];

/// The operation on floats; on integers and bools, on float32.
fn float_unary(imp: &mut Importer, a: &Args, op: Unary) -> Result<Val> {
    // Some special functions call their argument x.
    let name = if a.has("self") { "self" } else { "x" };
    if imp.is_complex(a.tensor(name)?) {
        return complex::unary(imp, a, op);
    }
    let x = imp.value(a, name)?;
    let x = as_float(imp, x);
    Ok(imp.b.unary(op, x)?.into())
}

fn neg(imp: &mut Importer, a: &Args) -> Result<Val> {
    let t = a.tensor("self")?;
    // Of a complex number, both parts.
    let value = imp.read(t)?;
    let result = imp.b.unary(Unary::Neg, value)?;
    Ok(if imp.is_complex(t) { Val::Complex(result) } else { result.into() })
}

/// The length of a complex number; unsigned integers and bools are their own.
fn abs(imp: &mut Importer, a: &Args) -> Result<Val> {
    let t = a.tensor("self")?;
    if imp.is_complex(t) {
        let dtype = imp.dtype_of(t);
        let z = imp.complex_operand(a, "self", dtype)?;
        return imp.rounded(&z.abs(), dtype.real());
    }
    let x = imp.value(a, "self")?;
    if imp.b.dtype(x).is_signed() { Ok(imp.b.unary(Unary::Abs, x)?.into()) } else { Ok(x.into()) }
}

/// -1, 0 or 1; of a complex number, the number over its length.
fn sign(imp: &mut Importer, a: &Args) -> Result<Val> {
    let t = a.tensor("self")?;
    if imp.is_complex(t) {
        let dtype = imp.dtype_of(t);
        let z = imp.complex_operand(a, "self", dtype)?;
        let length = z.abs();
        let zero = length.eq(0.0);
        let part = |part: &Formula| zero.select(0.0, part / &length);
        let unit = complex::Complex { re: part(&z.re), im: part(&z.im) };
        return imp.complex_result(&unit, dtype);
    }
    let x = imp.value(a, "self")?;
    if imp.b.dtype(x).is_bool() { Ok(x.into()) } else { Ok(imp.b.unary(Unary::Sign, x)?.into()) }
}

/// Rounding to whole numbers; integers are whole.
fn whole(imp: &mut Importer, a: &Args, op: Unary) -> Result<Val> {
    let x = imp.value(a, "self")?;
    if imp.b.dtype(x).is_float() { Ok(imp.b.unary(op, x)?.into()) } else { Ok(x.into()) }
}

/// Rounds the number times a power of ten; reduced floats in float32.
fn round_decimals(imp: &mut Importer, a: &Args) -> Result<Val> {
    let x = imp.value(a, "self")?;
    let decimals = a.int_or("decimals", 0)?;
    if !imp.b.dtype(x).is_float() {
        return Ok(x.into());
    }
    if decimals == 0 {
        return whole(imp, a, Unary::Round);
    }
    let dtype = imp.b.dtype(x);
    let x = Formula::from(x).cast(imp.compute_dtype(dtype));
    let power = 10f64.powi(i32::try_from(decimals.unsigned_abs()).unwrap_or(i32::MAX));
    let result = if decimals < 0 { (x / power).round() * power } else { (x * power).round() / power };
    imp.rounded(&result, dtype)
}

fn frac(imp: &mut Importer, a: &Args) -> Result<Val> {
    let x = imp.value(a, "self")?;
    let x = Formula::from(x);
    Ok((&x - x.trunc()).build(&mut imp.b)?.into())
}

fn frexp(imp: &mut Importer, a: &Args) -> Result<Val> {
    let x = imp.value(a, "self")?;
    Ok((imp.b.unary(Unary::FrexpMantissa, x)?, imp.b.unary(Unary::FrexpExponent, x)?).into())
}

fn scaled(imp: &mut Importer, a: &Args, factor: f64) -> Result<Val> {
    let ([x], dtype) = imp.wide(a, ["self"])?;
    imp.rounded(&(x * factor), dtype)
}

/// sin(pi x) / (pi x), 1 at 0.
fn sinc(imp: &mut Importer, a: &Args) -> Result<Val> {
    let ([x], dtype) = imp.wide(a, ["self"])?;
    let angle = &x * std::f64::consts::PI;
    let result = x.eq(0.0).select(1.0, angle.sin() / &angle);
    imp.rounded(&result, dtype)
}

/// The largest finite number of a float dtype.
pub fn largest(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 65504.0,
        DType::BF16 => f64::from(f32::from_bits(0x7F7F_0000)),
        DType::F32 => f64::from(f32::MAX),
        _ => f64::MAX,
    }
}

/// NaN and infinities replaced by numbers: by default 0 and the dtype's extremes.
fn nan_to_num(imp: &mut Importer, a: &Args) -> Result<Val> {
    let t = a.tensor("self")?;
    let value = imp.read(t)?;
    let dtype = imp.b.dtype(value);
    if !dtype.is_float() {
        return Ok(value.into());
    }
    if dtype.size() == 1 {
        return Err(a.unsupported(format!("{dtype}")));
    }
    let number = |name: &str, default: f64| a.float_or(name, default).map(|n| Formula::from(Scalar::Float(n)));
    let (nan, positive, negative) =
        (number("nan", 0.0)?, number("posinf", largest(dtype))?, number("neginf", -largest(dtype))?);
    let x = Formula::from(value);
    let finite = x.eq(f64::NEG_INFINITY).select(negative, &x);
    let finite = x.eq(f64::INFINITY).select(positive, finite);
    let result = x.is_nan().select(nan, finite).build(&mut imp.b)?;
    Ok(if imp.is_complex(t) { Val::Complex(result) } else { result.into() })
}
