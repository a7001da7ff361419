//! Arithmetic of two and three operands: sums, products, divisions, powers, extremes.

use std::f64::consts::LN_2;

use douse_core::pointwise::{Binary, Unary};
use douse_core::sym::Expr;
use douse_core::{DType, Error, Result, Scalar};
use douse_ir::Value;

use super::args::{Args, Number, Val};
use super::complex;
use super::formula::Formula;
use super::importer::{Importer, Row};
use super::pointwise::{float_dtype, promoted};

pub const ROWS: &[Row] = &[
    ("aten.add.Tensor", |i, a| add_sub(i, a, Binary::Add)),
    ("aten.add.Scalar", |i, a| add_sub(i, a, Binary::Add)),
    ("aten.sub.Tensor", |i, a| add_sub(i, a, Binary::Sub)),
    ("aten.sub.Scalar", |i, a| add_sub(i, a, Binary::Sub)),
    ("aten.subtract.Tensor", |i, a| add_sub(i, a, Binary::Sub)),
    ("aten.subtract.Scalar", |i, a| add_sub(i, a, Binary::Sub)),
    ("aten.rsub.Tensor", rsub),
    ("aten.rsub.Scalar", rsub),
    ("aten.mul.Tensor", mul),
    ("aten.mul.Scalar", mul),
    ("aten.multiply.Tensor", mul),
    ("aten.multiply.Scalar", mul),
    ("aten.div.Tensor", div),
    ("aten.div.Scalar", div),
    ("aten.divide.Tensor", div),
    ("aten.divide.Scalar", div),
    ("aten.true_divide.Tensor", div),
    ("aten.true_divide.Scalar", div),
    ("aten.div.Tensor_mode", div_mode),
    ("aten.div.Scalar_mode", div_mode),
    ("aten.divide.Tensor_mode", div_mode),
    ("aten.divide.Scalar_mode", div_mode),
    ("aten.floor_divide.default", floor_divide),
    ("aten.floor_divide.Scalar", floor_divide),
    ("aten.floor_divide_.Tensor", |i, a| floor_divide(i, a).and_then(|v| write(i, a, v))),
    ("aten.remainder.Tensor", |i, a| number_pair(i, a, Binary::Remainder)),
    ("aten.remainder.Scalar", |i, a| number_pair(i, a, Binary::Remainder)),
    ("aten.remainder.Scalar_Tensor", |i, a| number_pair(i, a, Binary::Remainder)),
    ("aten.fmod.Tensor", |i, a| number_pair(i, a, Binary::Fmod)),
    ("aten.fmod.Scalar", |i, a| number_pair(i, a, Binary::Fmod)),
    ("aten.pow.Tensor_Tensor", pow),
    ("aten.pow.Tensor_Scalar", pow),
    ("aten.pow.Scalar", pow),
    ("aten.pow_.Tensor", |i, a| pow(i, a).and_then(|v| write(i, a, v))),
    ("aten.float_power.Tensor_Tensor", float_power),
    ("aten.float_power.Tensor_Scalar", float_power),
    ("aten.float_power.Scalar", float_power),
    ("aten.float_power_.Tensor", |i, a| float_power(i, a).and_then(|v| write(i, a, v))),
    ("aten.square.default", square),
    ("aten.maximum.default", |i, a| extreme(i, a, Binary::Maximum)),
    ("aten.max.other", |i, a| extreme(i, a, Binary::Maximum)),
    ("aten.minimum.default", |i, a| extreme(i, a, Binary::Minimum)),
    ("aten.min.other", |i, a| extreme(i, a, Binary::Minimum)),
    ("aten.fmax.default", |i, a| extreme(i, a, Binary::Fmax)),
    ("aten.fmin.default", |i, a| extreme(i, a, Binary::Fmin)),
    ("aten.clamp.default", clamp),
    ("aten.clamp.Tensor", clamp),
    ("aten.clip.default", clamp),
    ("aten.clip.Tensor", clamp),
    ("aten.clamp_min.default", clamp),
    ("aten.clamp_min.Tensor", clamp),
    ("aten.clamp_max.default", clamp),
    ("aten.clamp_max.Tensor", clamp),
    ("aten.addcmul.default", |i, a| add_scaled(i, a, Binary::Mul)),
    ("aten.addcdiv.default", |i, a| add_scaled(i, a, Binary::Div)),
    ("aten.lerp.Scalar", lerp),
    ("aten.lerp.Tensor", lerp),
    ("aten.ldexp.Tensor", ldexp),
    ("aten.ldexp_.default", |i, a| ldexp(i, a).and_then(|v| write(i, a, v))),
    ("aten.hypot.default", |i, a| float_pair(i, a, Binary::Hypot)),
    ("aten.atan2.default", |i, a| float_pair(i, a, Binary::Atan2)),
    ("aten.arctan2.default", |i, a| float_pair(i, a, Binary::Atan2)),
    ("aten.copysign.Tensor", |i, a| float_pair(i, a, Binary::Copysign)),
    ("aten.copysign.Scalar", |i, a| float_pair(i, a, Binary::Copysign)),
    ("aten.nextafter.default", |i, a| float_pair(i, a, Binary::Nextafter)),
    ("aten.heaviside.default", heaviside),
    ("aten.gcd.default", |i, a| number_pair(i, a, Binary::Gcd)),
    ("aten.lcm.default", |i, a| number_pair(i, a, Binary::Lcm)),
    ("aten.logaddexp.default", logaddexp),
    ("aten.logaddexp2.default", logaddexp2),
];

/// What an in-place operator's functional row gave, written into `self`.
fn write(imp: &mut Importer, a: &Args, result: Val) -> Result<Val> {
    let t = a.tensor("self")?;
    let value = imp.result_value(result)?;
    imp.write_cast(t, value)?;
    Ok(Val::Tensor(t))
}

/// One core operation on `self` and `other` in their common dtype.
fn number_pair(imp: &mut Importer, a: &Args, op: Binary) -> Result<Val> {
    let (x, y) = promoted(imp, a)?;
    let dtype = imp.b.dtype(x);
    if !op.takes().accepts(dtype) {
        return Err(a.unsupported(format!("{dtype}")));
    }
    Ok(imp.b.binary(op, x, y)?.into())
}

/// One core operation on `self` and `other` in their common dtype, integers as float32.
fn float_pair(imp: &mut Importer, a: &Args, op: Binary) -> Result<Val> {
    let dtype = float_dtype(imp.result_type(a, &["self", "other"])?);
    if dtype.is_complex() {
        return Err(a.unsupported("a complex tensor here"));
    }
    let (x, y) = (imp.operand(a, "self", dtype)?, imp.operand(a, "other", dtype)?);
    Ok(imp.b.binary(op, x, y)?.into())
}

/// Sums, products and quotients: on reduced floats in float32, so that a number keeps its digits.
fn widened(imp: &mut Importer, a: &Args, op: Binary, dtype: DType) -> Result<Val> {
    let (x, y) = (imp.wide_operand(a, "self", dtype)?, imp.wide_operand(a, "other", dtype)?);
    let result = imp.b.binary(op, x, y)?;
    Ok(imp.b.cast(result, dtype).into())
}

/// The factor of one operand; `None` where it is 1.
fn alpha(imp: &mut Importer, a: &Args, dtype: DType) -> Result<Option<Value>> {
    match a.get("alpha") {
        None => Ok(None),
        Some(_) => match a.number("alpha")? {
            Number::Scalar(s) if s.to_complex() == (1.0, 0.0) => Ok(None),
            number => Ok(Some(imp.number_value(&number, imp.compute_dtype(dtype)))),
        },
    }
}

/// x + alpha * y, x - alpha * y; on bool, addition is or.
fn add_sub(imp: &mut Importer, a: &Args, op: Binary) -> Result<Val> {
    let dtype = imp.result_type(a, &["self", "other"])?;
    if dtype.is_complex() {
        return complex::arithmetic(imp, a, op, dtype);
    }
    let (x, mut y) = (imp.wide_operand(a, "self", dtype)?, imp.wide_operand(a, "other", dtype)?);
    let alpha = alpha(imp, a, dtype)?;
    if dtype == DType::Bool {
        if op != Binary::Add {
            return Err(a.unsupported("subtraction of bools"));
        }
        if let Some(alpha) = alpha {
            y = imp.b.binary(Binary::And, y, alpha)?;
        }
        return Ok(imp.b.binary(Binary::Or, x, y)?.into());
    }
    if let Some(alpha) = alpha {
        y = imp.b.binary(Binary::Mul, y, alpha)?;
    }
    let result = imp.b.binary(op, x, y)?;
    Ok(imp.b.cast(result, dtype).into())
}

/// other - alpha * self.
fn rsub(imp: &mut Importer, a: &Args) -> Result<Val> {
    let swapped = a
        .values
        .iter()
        .map(|(name, val)| {
            let name = match name.as_str() {
                "self" => "other",
                "other" => "self",
                name => name,
            };
            (name.to_string(), val.clone())
        })
        .collect();
    add_sub(imp, &Args { target: a.target.clone(), values: swapped }, Binary::Sub)
}

fn mul(imp: &mut Importer, a: &Args) -> Result<Val> {
    let dtype = imp.result_type(a, &["self", "other"])?;
    if dtype.is_complex() {
        return complex::arithmetic(imp, a, Binary::Mul, dtype);
    }
    widened(imp, a, if dtype == DType::Bool { Binary::And } else { Binary::Mul }, dtype)
}

/// True division: of integers in float32.
fn div(imp: &mut Importer, a: &Args) -> Result<Val> {
    let dtype = float_dtype(imp.result_type(a, &["self", "other"])?);
    if dtype.is_complex() {
        return complex::arithmetic(imp, a, Binary::Div, dtype);
    }
    widened(imp, a, Binary::Div, dtype)
}

/// Whether `other` is a number or a tensor of one element. Eager then divides reduced floats in float32 from start to end.
fn one_divisor(imp: &mut Importer, a: &Args) -> Result<bool> {
    match a.get("other") {
        Some(Val::Tensor(t)) => Ok(Expr::product(&imp.shape_of(*t)?).is_int(1)),
        _ => Ok(true),
    }
}

/// Division rounded towards negative infinity.
fn floor_divide(imp: &mut Importer, a: &Args) -> Result<Val> {
    let dtype = imp.result_type(a, &["self", "other"])?;
    if !dtype.is_reduced_float() {
        return number_pair(imp, a, Binary::FloorDivide);
    }
    if one_divisor(imp, a)? {
        return widened(imp, a, Binary::FloorDivide, dtype);
    }
    // Two tensors of a reduced float: eager rounds each step to the dtype, which shows in the whole number that comes out.
    let (x, y) = promoted(imp, a)?;
    let (x, y) = (Formula::from(x), Formula::from(y));
    let rest = x.binary(Binary::Fmod, &y);
    let exact = (&x - &rest) / &y;
    let crosses = rest.ne(0.0).and(y.lt(0.0).ne(rest.lt(0.0)));
    let exact = crosses.select(&exact - 1.0, &exact);
    let floor = exact.floor();
    let floor = (&exact - &floor).gt(0.5).select(&floor + 1.0, &floor);
    let quotient = &x / &y;
    let zero = x.like(0.0).binary(Binary::Copysign, &quotient);
    let result = y.eq(0.0).select(&quotient, exact.ne(0.0).select(floor, zero));
    imp.rounded(&result, dtype)
}

fn div_mode(imp: &mut Importer, a: &Args) -> Result<Val> {
    match a.str_or("rounding_mode", "")? {
        "" => div(imp, a),
        "floor" => floor_divide(imp, a),
        "trunc" => {
            let dtype = imp.result_type(a, &["self", "other"])?;
            if dtype.is_int() {
                return number_pair(imp, a, Binary::TruncDivide);
            }
            if dtype.is_reduced_float() && one_divisor(imp, a)? {
                let (x, y) = (imp.wide_operand(a, "self", dtype)?, imp.wide_operand(a, "other", dtype)?);
                return imp.rounded(&(Formula::from(x) / Formula::from(y)).trunc(), dtype);
            }
            // The quotient of two tensors is rounded to the dtype before it is cut.
            let quotient = div(imp, a)?;
            let quotient = imp.result_value(quotient)?;
            Ok(imp.b.unary(Unary::Trunc, quotient)?.into())
        }
        _ => Err(a.wrong("rounding_mode", "floor or trunc")),
    }
}

/// The exponent, where it is one number for all.
fn constant_exponent(a: &Args) -> Option<Scalar> {
    match a.get("exponent") {
        Some(Val::Tensor(_)) | None => None,
        Some(_) => a.scalar("exponent").ok(),
    }
}

/// A power. With a float exponent that is a number, the exponents that have a function of their own use it.
fn pow(imp: &mut Importer, a: &Args) -> Result<Val> {
    let dtype = imp.result_type(a, &["self", "exponent"])?;
    if dtype.is_complex() {
        return complex::pow(imp, a, dtype);
    }
    if dtype.is_bool() {
        return Err(a.unsupported("bool"));
    }
    let x = imp.operand(a, "self", dtype)?;
    if let Some(exponent) = constant_exponent(a) {
        return raise(imp, a, x, exponent);
    }
    let y = imp.operand(a, "exponent", dtype)?;
    Ok(imp.b.binary(Binary::Pow, x, y)?.into())
}

fn raise(imp: &mut Importer, a: &Args, value: Value, exponent: Scalar) -> Result<Val> {
    let dtype = imp.b.dtype(value);
    let n = exponent.to_f64();
    if n == 0.0 {
        return Ok(imp.b.full_like(value, Scalar::Int(1)).into());
    }
    if n == 1.0 {
        return Ok(value.into());
    }
    if dtype.is_int() {
        if n < 0.0 {
            return Err(a.unsupported("an integer to a negative power"));
        }
        return Ok(imp.b.binary_scalar(Binary::Pow, value, exponent)?.into());
    }
    let wide = imp.b.cast(value, imp.compute_dtype(dtype));
    let x = Formula::from(wide);
    let result = match n {
        // Of float16 these stay powers, which differ at -0 and -inf.
        0.5 if dtype != DType::F16 => x.sqrt(),
        -0.5 if dtype != DType::F16 => x.unary(Unary::Rsqrt),
        -1.0 => x.reciprocal(),
        2.0 => x.square(),
        3.0 => x.square() * &x,
        -2.0 => x.square().reciprocal(),
        _ => x.pow(n),
    };
    imp.rounded(&result, dtype)
}

/// A power in float64.
fn float_power(imp: &mut Importer, a: &Args) -> Result<Val> {
    if imp.result_type(a, &["self", "exponent"])?.is_complex() {
        return complex::pow(imp, a, DType::C128);
    }
    let x = imp.operand(a, "self", DType::F64)?;
    if let Some(exponent) = constant_exponent(a) {
        return raise(imp, a, x, exponent);
    }
    let y = imp.operand(a, "exponent", DType::F64)?;
    Ok(imp.b.binary(Binary::Pow, x, y)?.into())
}

/// x^2; of bools, in int64.
fn square(imp: &mut Importer, a: &Args) -> Result<Val> {
    let t = a.tensor("self")?;
    if imp.is_complex(t) {
        let dtype = imp.dtype_of(t);
        let z = imp.complex_operand(a, "self", dtype)?;
        return imp.complex_result(&z.mul(&z), dtype);
    }
    let mut x = imp.value(a, "self")?;
    if imp.b.dtype(x).is_bool() {
        x = imp.b.cast(x, DType::I64);
    }
    Ok(imp.b.binary(Binary::Mul, x, x)?.into())
}

fn extreme(imp: &mut Importer, a: &Args, op: Binary) -> Result<Val> {
    let (x, y) = promoted(imp, a)?;
    let op = match op {
        Binary::Fmax if !imp.b.dtype(x).is_float() => Binary::Maximum,
        Binary::Fmin if !imp.b.dtype(x).is_float() => Binary::Minimum,
        op => op,
    };
    Ok(imp.b.binary(op, x, y)?.into())
}

/// min(max(x, low), high), so that the upper bound wins over a greater lower one.
fn clamp(imp: &mut Importer, a: &Args) -> Result<Val> {
    let names: Vec<&str> = ["self", "min", "max"].into_iter().filter(|n| a.has(n)).collect();
    let dtype = imp.result_type(a, &names)?;
    let mut x = imp.operand(a, "self", dtype)?;
    for (name, op) in [("min", Binary::Maximum), ("max", Binary::Minimum)] {
        let bounds = match a.get(name) {
            None => false,
            Some(Val::Tensor(_)) => true,
            Some(_) => match a.number(name)? {
                Number::Scalar(bound) => binds(a, op, bound, dtype)?,
                _ => true,
            },
        };
        if dtype.is_float() {
            imp.require_fits(a, name, dtype)?;
        }
        if bounds {
            let bound = imp.operand(a, name, dtype)?;
            x = imp.b.binary(op, x, bound)?;
        }
    }
    Ok(x.into())
}

/// Whether a number that is a bound from below (`Maximum`) or above (`Minimum`) excludes any value of an integer dtype. One that excludes all
/// of them is refused, as eager refuses it.
pub fn binds(a: &Args, op: Binary, bound: Scalar, dtype: DType) -> Result<bool> {
    let Some((least, greatest)) = dtype.int_range() else { return Ok(true) };
    let number = match bound {
        Scalar::Float(f) => f as i128,
        other => i128::from(other.to_i64()),
    };
    let (free, never) = match op {
        Binary::Maximum => (number <= least, number > greatest),
        _ => (number >= greatest, number < least),
    };
    if never {
        return Err(Error::invalid_program(format!("{}: the bound {bound} lies outside of {dtype}", a.target)));
    }
    Ok(!free)
}

/// self + value * tensor1 * tensor2, or over tensor2.
fn add_scaled(imp: &mut Importer, a: &Args, op: Binary) -> Result<Val> {
    let dtype = imp.result_type(a, &["self", "tensor1", "tensor2"])?;
    if dtype.is_complex() {
        return complex::add_scaled(imp, a, op, dtype);
    }
    let compute = imp.compute_dtype(dtype);
    let mut operands = Vec::new();
    for name in ["self", "tensor1", "tensor2"] {
        let x = imp.operand(a, name, dtype)?;
        operands.push(imp.b.cast(x, compute));
    }
    let mut product = operands[1];
    if a.has("value") {
        let value = imp.operand(a, "value", compute)?;
        product = imp.b.binary(Binary::Mul, value, product)?;
    }
    let term = imp.b.binary(op, product, operands[2])?;
    let result = imp.b.binary(Binary::Add, operands[0], term)?;
    Ok(imp.b.cast(result, dtype).into())
}

/// From the nearer end, so that a weight of 1 gives exactly `end`.
fn lerp(imp: &mut Importer, a: &Args) -> Result<Val> {
    let dtype = imp.result_type(a, &["self", "end"])?;
    if !dtype.is_float() {
        return Err(a.unsupported(format!("{dtype}")));
    }
    let start = Formula::from(imp.wide_operand(a, "self", dtype)?);
    let end = Formula::from(imp.wide_operand(a, "end", dtype)?);
    let weight = Formula::from(imp.wide_operand(a, "weight", dtype)?);
    let way = &end - &start;
    let result = weight.abs().lt(0.5).select(&start + &weight * &way, &end - &way * (1.0 - &weight));
    imp.rounded(&result, dtype)
}

/// x * 2^other. A whole exponent of a float only moves the binary point, so that the power alone may lie outside of the dtype; else the power is
/// a number of the exponent's own float dtype.
fn ldexp(imp: &mut Importer, a: &Args) -> Result<Val> {
    /// No float64 stays finite and not zero through more.
    const REACH: f64 = 2200.0;
    /// Powers of two up to here are normal float64.
    const NORMAL: f64 = 1000.0;
    let dtype = float_dtype(imp.result_type(a, &["self", "other"])?);
    let exponent = imp.value(a, "other")?;
    let own = imp.b.dtype(exponent);
    if own.is_float() || !imp.dtype_of(a.tensor("self")?).is_float() {
        let exponent = imp.b.cast(exponent, float_dtype(own));
        let power = imp.b.unary(Unary::Exp2, exponent)?;
        let power = imp.b.cast(power, dtype);
        let x = imp.operand(a, "self", dtype)?;
        return Ok(imp.b.binary(Binary::Mul, x, power)?.into());
    }
    // In float64 with one rounding; a float64 itself needs its power in parts. Eager takes the exponent as an int32.
    let exponent = imp.b.cast(exponent, DType::I32);
    let mut rest = Formula::from(exponent).cast(DType::F64).maximum(-REACH).minimum(REACH);
    let mut x = Formula::from(imp.operand(a, "self", dtype)?).cast(DType::F64);
    for _ in 0..3 {
        let part = rest.maximum(-NORMAL).minimum(NORMAL);
        x = x * part.exp2();
        rest = rest - part;
    }
    imp.rounded(&x, dtype)
}

/// 0 below 0 and for NaN, `values` at 0, 1 above.
fn heaviside(imp: &mut Importer, a: &Args) -> Result<Val> {
    let (x, values) = (imp.value(a, "self")?, imp.value(a, "values")?);
    let zero = imp.b.full_like(x, Scalar::Int(0));
    let positive = imp.b.binary(Binary::Gt, x, zero)?;
    let positive = imp.b.cast(positive, imp.b.dtype(x));
    let at_zero = imp.b.binary(Binary::Eq, x, zero)?;
    Ok(imp.b.select(at_zero, values, positive)?.into())
}

/// log(exp(x) + exp(y)) without overflow: equal infinities stay.
fn logaddexp(imp: &mut Importer, a: &Args) -> Result<Val> {
    let ([x, y], dtype) = imp.wide(a, ["self", "other"])?;
    if dtype.is_complex() {
        return Err(a.unsupported("a complex tensor here"));
    }
    let sum = x.maximum(&y) + (-(&x - &y).abs()).exp().log1p();
    let result = x.is_inf().and(x.eq(&y)).select(&x, sum);
    imp.rounded(&result, dtype)
}

/// log2(2^x + 2^y) without overflow.
fn logaddexp2(imp: &mut Importer, a: &Args) -> Result<Val> {
    let ([x, y], dtype) = imp.wide(a, ["self", "other"])?;
    if dtype.is_complex() {
        return Err(a.unsupported("a complex tensor here"));
    }
    let sum = x.maximum(&y) + (-(&x - &y).abs()).exp2().log1p() * (1.0 / LN_2);
    let result = x.is_inf().and(x.eq(&y)).select(&x, sum);
    imp.rounded(&result, dtype)
}
