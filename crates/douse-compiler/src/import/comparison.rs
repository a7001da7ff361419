//! Comparisons, logic, bits, and questions about numbers.

use douse_core::pointwise::{Binary, Unary};
use douse_core::{DType, Result, Scalar};
use douse_ir::Value;

use super::args::{Args, Val};
use super::complex;
use super::formula::Formula;
use super::importer::{Importer, Row};
use super::pointwise::{promoted, unary};

/// Rows of one core operation on `self` and `other`, for an overload that all these operators have.
macro_rules! pairs {
    ($overload:literal) => {
        pairs! { @ $overload
            eq compare Eq; ne compare Ne; lt compare Lt; le compare Le; gt compare Gt; ge compare Ge;
            not_equal compare Ne; less compare Lt; less_equal compare Le; greater compare Gt; greater_equal compare Ge;
            bitwise_and bits And; bitwise_or bits Or; bitwise_xor bits Xor;
            __and__ bits And; __or__ bits Or; __xor__ bits Xor; __lshift__ bits ShiftLeft; __rshift__ bits ShiftRight;
        }
    };
    (@ $overload:literal $($name:ident $function:ident $op:ident;)*) => {
        &[$((concat!("aten.", stringify!($name), ".", $overload), |i, a| $function(i, a, Binary::$op)),)*]
    };
}

pub const TENSOR_ROWS: &[Row] = pairs!("Tensor");
pub const SCALAR_ROWS: &[Row] = pairs!("Scalar");

pub const ROWS: &[Row] = &[
    ("aten.__iand__.Tensor", |i, a| bits_in_place(i, a, Binary::And)),
    ("aten.__iand__.Scalar", |i, a| bits_in_place(i, a, Binary::And)),
    ("aten.__ior__.Tensor", |i, a| bits_in_place(i, a, Binary::Or)),
    ("aten.__ior__.Scalar", |i, a| bits_in_place(i, a, Binary::Or)),
    ("aten.__ixor__.Tensor", |i, a| bits_in_place(i, a, Binary::Xor)),
    ("aten.__ixor__.Scalar", |i, a| bits_in_place(i, a, Binary::Xor)),
    ("aten.__ilshift__.Tensor", |i, a| bits_in_place(i, a, Binary::ShiftLeft)),
    ("aten.__ilshift__.Scalar", |i, a| bits_in_place(i, a, Binary::ShiftLeft)),
    ("aten.__irshift__.Tensor", |i, a| bits_in_place(i, a, Binary::ShiftRight)),
    ("aten.__irshift__.Scalar", |i, a| bits_in_place(i, a, Binary::ShiftRight)),
    ("aten.bitwise_and.Scalar_Tensor", |i, a| bits(i, a, Binary::And)),
    ("aten.bitwise_or.Scalar_Tensor", |i, a| bits(i, a, Binary::Or)),
    ("aten.bitwise_xor.Scalar_Tensor", |i, a| bits(i, a, Binary::Xor)),
    ("aten.bitwise_left_shift.Tensor", |i, a| bits(i, a, Binary::ShiftLeft)),
    ("aten.bitwise_left_shift.Tensor_Scalar", |i, a| bits(i, a, Binary::ShiftLeft)),
    ("aten.bitwise_left_shift.Scalar_Tensor", |i, a| bits(i, a, Binary::ShiftLeft)),
    ("aten.bitwise_right_shift.Tensor", |i, a| bits(i, a, Binary::ShiftRight)),
    ("aten.bitwise_right_shift.Tensor_Scalar", |i, a| bits(i, a, Binary::ShiftRight)),
    ("aten.bitwise_right_shift.Scalar_Tensor", |i, a| bits(i, a, Binary::ShiftRight)),
    ("aten.bitwise_not.default", bitwise_not),
    ("aten.logical_not.default", logical_not),
    ("aten.logical_and.default", |i, a| logical(i, a, Binary::And)),
    ("aten.logical_or.default", |i, a| logical(i, a, Binary::Or)),
    ("aten.logical_xor.default", |i, a| logical(i, a, Binary::Xor)),
    ("aten.isclose.default", isclose),
    ("aten.isnan.default", |i, a| question(i, a, Question::Nan)),
    ("aten.isinf.default", |i, a| question(i, a, Question::Inf)),
    ("aten.isfinite.default", |i, a| question(i, a, Question::Finite)),
    ("aten.isposinf.default", |i, a| question(i, a, Question::PosInf)),
    ("aten.isneginf.default", |i, a| question(i, a, Question::NegInf)),
    ("aten.isreal.default", isreal),
    ("aten.signbit.default", signbit),
    ("aten.where.self", where_),
    ("aten.where.ScalarOther", where_),
    ("aten.where.ScalarSelf", where_),
    ("aten.where.Scalar", where_),
    ("aten.masked_fill.Scalar", masked_fill),
    ("aten.masked_fill.Tensor", masked_fill),
];

fn compare(imp: &mut Importer, a: &Args, op: Binary) -> Result<Val> {
    let dtype = imp.result_type(a, &["self", "other"])?;
    if dtype.is_complex() {
        return complex::equal(imp, a, op, dtype);
    }
    let (x, y) = promoted(imp, a)?;
    Ok(imp.b.binary(op, x, y)?.into())
}

fn bits(imp: &mut Importer, a: &Args, op: Binary) -> Result<Val> {
    let (x, y) = promoted(imp, a)?;
    let dtype = imp.b.dtype(x);
    if !op.takes().accepts(dtype) {
        return Err(a.unsupported(format!("{dtype}")));
    }
    Ok(imp.b.binary(op, x, y)?.into())
}

fn bits_in_place(imp: &mut Importer, a: &Args, op: Binary) -> Result<Val> {
    let written = a.tensor("self")?;
    let result = bits(imp, a, op)?;
    let value = imp.result_value(result)?;
    imp.write_cast(written, value)?;
    Ok(Val::Tensor(written))
}

fn bitwise_not(imp: &mut Importer, a: &Args) -> Result<Val> {
    let x = imp.value(a, "self")?;
    let op = if imp.b.dtype(x).is_bool() { Unary::Not } else { Unary::BitwiseNot };
    unary(imp, a, op)
}

/// A tensor as conditions: what is not zero; NaN is not.
pub fn truth(imp: &mut Importer, a: &Args, name: &str) -> Result<Value> {
    let t = a.tensor(name)?;
    let value = imp.read(t)?;
    let mask = imp.b.cast(value, DType::Bool);
    if !imp.is_complex(t) {
        return Ok(mask);
    }
    let last = imp.b.rank(mask) - 1;
    imp.b.reduce(douse_core::pointwise::Combine::Or, mask, &[last])
}

fn logical_not(imp: &mut Importer, a: &Args) -> Result<Val> {
    let x = truth(imp, a, "self")?;
    Ok(imp.b.unary(Unary::Not, x)?.into())
}

fn logical(imp: &mut Importer, a: &Args, op: Binary) -> Result<Val> {
    let (x, y) = (truth(imp, a, "self")?, truth(imp, a, "other")?);
    Ok(imp.b.binary(op, x, y)?.into())
}

/// |x - y| <= atol + |rtol * y|, or equal; integers are compared as float32.
fn isclose(imp: &mut Importer, a: &Args) -> Result<Val> {
    let (x, y) = promoted(imp, a)?;
    let dtype = imp.b.dtype(x);
    let (rtol, atol) = (a.float_or("rtol", 1e-5)?, a.float_or("atol", 1e-8)?);
    let (x, y) = (Formula::from(x), Formula::from(y));
    let mut close = x.eq(&y);
    if a.bool_or("equal_nan", false)? && dtype.is_float() {
        close = close.or(x.is_nan().and(y.is_nan()));
    }
    if rtol != 0.0 || atol != 0.0 {
        let (x, y) = if dtype.is_float() { (x, y) } else { (x.cast(DType::F32), y.cast(DType::F32)) };
        let error = (&x - &y).abs();
        let allowed = (&y * rtol).abs() + atol;
        let finite = error.is_nan().or(error.is_inf()).not();
        close = close.or(finite.and(error.le(allowed)));
    }
    Ok(close.build(&mut imp.b)?.into())
}

#[derive(Clone, Copy)]
enum Question {
    Nan,
    Inf,
    Finite,
    PosInf,
    NegInf,
}

/// The question of each part of a tensor: integers are finite numbers; of a complex number both parts must be finite, or one NaN or infinite.
fn question(imp: &mut Importer, a: &Args, question: Question) -> Result<Val> {
    let t = a.tensor("self")?;
    let value = imp.read(t)?;
    if !imp.b.dtype(value).is_float() {
        let shape = imp.b.shape(value).to_vec();
        let answer = Scalar::Bool(matches!(question, Question::Finite));
        return Ok(imp.b.full(DType::Bool, shape, answer).into());
    }
    let x = Formula::from(value);
    let answer = match question {
        Question::Nan => x.is_nan(),
        Question::Inf => x.is_inf(),
        Question::Finite => x.is_nan().or(x.is_inf()).not(),
        Question::PosInf => x.eq(f64::INFINITY),
        Question::NegInf => x.eq(f64::NEG_INFINITY),
    };
    let answer = answer.build(&mut imp.b)?;
    if !imp.is_complex(t) {
        return Ok(answer.into());
    }
    use douse_core::pointwise::Combine;
    let combine = if matches!(question, Question::Finite) { Combine::And } else { Combine::Or };
    let last = imp.b.rank(answer) - 1;
    Ok(imp.b.reduce(combine, answer, &[last])?.into())
}

fn isreal(imp: &mut Importer, a: &Args) -> Result<Val> {
    let t = a.tensor("self")?;
    if imp.is_complex(t) {
        let z = imp.complex_operand(a, "self", imp.dtype_of(t))?;
        return Ok(z.im.eq(0.0).build(&mut imp.b)?.into());
    }
    let shape = imp.shape_of(t)?;
    Ok(imp.b.full(DType::Bool, shape, Scalar::Bool(true)).into())
}

fn signbit(imp: &mut Importer, a: &Args) -> Result<Val> {
    let x = imp.value(a, "self")?;
    let dtype = imp.b.dtype(x);
    if dtype.is_float() {
        return unary(imp, a, Unary::Signbit);
    }
    if dtype.is_signed() {
        return Ok(imp.b.binary_scalar(Binary::Lt, x, Scalar::Int(0))?.into());
    }
    let shape = imp.b.shape(x).to_vec();
    Ok(imp.b.full(DType::Bool, shape, Scalar::Bool(false)).into())
}

fn where_(imp: &mut Importer, a: &Args) -> Result<Val> {
    let cond = imp.value(a, "condition")?;
    let cond = imp.b.cast(cond, DType::Bool);
    let dtype = imp.result_type(a, &["self", "other"])?;
    if dtype.is_complex() {
        let (x, y) = (imp.complex_operand(a, "self", dtype)?, imp.complex_operand(a, "other", dtype)?);
        return imp.complex_result(&x.chosen_over(&y, &Formula::from(cond)), dtype);
    }
    let (x, y) = promoted(imp, a)?;
    Ok(imp.b.select(cond, x, y)?.into())
}

/// `value`, in the tensor's dtype, where the mask holds.
fn masked_fill(imp: &mut Importer, a: &Args) -> Result<Val> {
    let mask = imp.value(a, "mask")?;
    let mask = imp.b.cast(mask, DType::Bool);
    let dtype = imp.dtype_of(a.tensor("self")?);
    if dtype.is_complex() {
        let (x, value) = (imp.complex_operand(a, "self", dtype)?, imp.complex_operand(a, "value", dtype)?);
        return imp.complex_result(&value.chosen_over(&x, &Formula::from(mask)), dtype);
    }
    imp.require_fits(a, "value", dtype)?;
    let (x, value) = (imp.operand(a, "self", dtype)?, imp.operand(a, "value", dtype)?);
    Ok(imp.b.select(mask, value, x)?.into())
}
