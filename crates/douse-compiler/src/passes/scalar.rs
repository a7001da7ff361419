//! Operations on single numbers, in the exact arithmetic of their dtypes.
//!
//! Only what every target computes alike is here: integers, bool, and float32 and float64 operations that IEEE 754 rounds correctly.

use douse_core::math::integer;
use douse_core::pointwise::{Binary, Unary};
use douse_core::{DType, Scalar};

/// An integer cut to a dtype's width. uint64 keeps its bits.
fn wrap(dtype: DType, x: i64) -> Scalar {
    Scalar::Int(match dtype {
        DType::U8 => i64::from(x as u8),
        DType::I8 => i64::from(x as i8),
        DType::U16 => i64::from(x as u16),
        DType::I16 => i64::from(x as i16),
        DType::U32 => i64::from(x as u32),
        DType::I32 => i64::from(x as i32),
        _ => x,
    })
}

/// A float rounded to its dtype; `None` for dtypes of 16 bits and fewer.
fn round(dtype: DType, x: f64) -> Option<f64> {
    match dtype {
        DType::F32 => Some(f64::from(x as f32)),
        DType::F64 => Some(x),
        _ => None,
    }
}

/// A number of one dtype as one of another.
pub(super) fn cast(from: DType, to: DType, x: Scalar) -> Option<Scalar> {
    let float = if from.is_float() { Some(round(from, x.to_f64())?) } else { None };
    if to.is_bool() {
        return Some(Scalar::Bool(float.map_or(x.to_bool(), |f| f != 0.0)));
    }
    if to.is_float() {
        // An integer above 2^53 would be rounded twice on its way to float32, and uint64 is kept as its bits.
        let exact = float.or_else(|| Some(x.to_i64()).filter(|i| i.unsigned_abs() <= 1 << 53).map(|i| i as f64))?;
        return (from != DType::U64).then(|| round(to, exact).map(Scalar::Float)).flatten();
    }
    match float {
        None => Some(wrap(to, x.to_i64())),
        // What lies outside the dtype is undefined, and targets differ.
        Some(f) => {
            let cut = wrap(to, f.trunc() as i64);
            (to != DType::U64 && cut.to_f64() == f.trunc() && f.abs() < 9e15).then_some(cut)
        }
    }
}

pub(super) fn unary(op: Unary, dtype: DType, x: Scalar) -> Option<Scalar> {
    if dtype.is_bool() {
        return (op == Unary::Not).then(|| Scalar::Bool(!x.to_bool()));
    }
    if dtype.is_int() {
        let x = x.to_i64();
        return Some(match op {
            Unary::Neg => wrap(dtype, x.wrapping_neg()),
            Unary::BitwiseNot => wrap(dtype, !x),
            Unary::Abs if dtype.is_signed() => wrap(dtype, x.wrapping_abs()),
            Unary::Sign if dtype != DType::U64 => wrap(dtype, x.signum()),
            _ => return None,
        });
    }
    let x = round(dtype, x.to_f64())?;
    let float = |f: f64| round(dtype, f).map(Scalar::Float);
    match op {
        Unary::Neg => float(-x),
        Unary::Abs => float(x.abs()),
        Unary::Floor => float(x.floor()),
        Unary::Ceil => float(x.ceil()),
        Unary::Trunc => float(x.trunc()),
        Unary::Round => float(x.round_ties_even()),
        // Rounding a float64 quotient or root again to float32 is exact: 53 bits are more than twice 24 and 2.
        Unary::Sqrt => float(x.sqrt()),
        Unary::Reciprocal => float(1.0 / x),
        Unary::IsNan => Some(Scalar::Bool(x.is_nan())),
        Unary::IsInf => Some(Scalar::Bool(x.is_infinite())),
        Unary::Signbit => Some(Scalar::Bool(x.is_sign_negative())),
        _ => None,
    }
}

pub(super) fn binary(op: Binary, dtype: DType, a: Scalar, b: Scalar) -> Option<Scalar> {
    if let Some(holds) = compare(op, dtype, a, b) {
        return Some(Scalar::Bool(holds));
    }
    if dtype.is_bool() {
        let (a, b) = (a.to_bool(), b.to_bool());
        return Some(Scalar::Bool(match op {
            Binary::And | Binary::Minimum => a && b,
            Binary::Or | Binary::Maximum => a || b,
            Binary::Xor => a != b,
            _ => return None,
        }));
    }
    if dtype.is_int() {
        let (a, b) = (a.to_i64(), b.to_i64());
        let narrow = dtype != DType::U64;
        return Some(wrap(
            dtype,
            match op {
                Binary::Add => a.wrapping_add(b),
                Binary::Sub => a.wrapping_sub(b),
                Binary::Mul => a.wrapping_mul(b),
                Binary::And => a & b,
                Binary::Or => a | b,
                Binary::Xor => a ^ b,
                Binary::Minimum if narrow => a.min(b),
                Binary::Maximum if narrow => a.max(b),
                Binary::FloorDivide if narrow && b != 0 => integer::floor_divide(a, b),
                Binary::TruncDivide if narrow && b != 0 => integer::trunc_divide(a, b),
                Binary::Remainder if narrow && b != 0 => integer::remainder(a, b),
                Binary::Fmod if narrow && b != 0 => integer::fmod(a, b),
                _ => return None,
            },
        ));
    }
    let (a, b) = (round(dtype, a.to_f64())?, round(dtype, b.to_f64())?);
    let float = |f: f64| round(dtype, f).map(Scalar::Float);
    match op {
        Binary::Add => float(a + b),
        Binary::Sub => float(a - b),
        Binary::Mul => float(a * b),
        Binary::Div => float(a / b),
        Binary::Minimum if a.is_nan() || b.is_nan() => float(f64::NAN),
        Binary::Maximum if a.is_nan() || b.is_nan() => float(f64::NAN),
        // Which zero is the smaller is not said.
        Binary::Minimum if a != b => float(a.min(b)),
        Binary::Maximum if a != b => float(a.max(b)),
        _ => None,
    }
}

fn compare(op: Binary, dtype: DType, a: Scalar, b: Scalar) -> Option<bool> {
    fn of<T: PartialOrd>(op: Binary, a: T, b: T) -> Option<bool> {
        Some(match op {
            Binary::Eq => a == b,
            Binary::Ne => a != b,
            Binary::Lt => a < b,
            Binary::Le => a <= b,
            Binary::Gt => a > b,
            Binary::Ge => a >= b,
            _ => return None,
        })
    }
    if dtype.is_float() {
        of(op, round(dtype, a.to_f64())?, round(dtype, b.to_f64())?)
    } else if dtype == DType::U64 {
        of(op, a.to_i64() as u64, b.to_i64() as u64)
    } else {
        of(op, a.to_i64(), b.to_i64())
    }
}

/// Whether `to` holds every value of `from`, so that nothing is lost on the way there.
pub(super) fn lossless(from: DType, to: DType) -> bool {
    // Binary digits that every value of an integer dtype fits in, or the significant digits of a float dtype.
    let digits = |dtype: DType| match dtype {
        DType::F64 => 53,
        DType::F32 => 24,
        DType::F16 => 11,
        DType::BF16 => 8,
        DType::F8E4M3FN | DType::F8E4M3FNUZ => 4,
        DType::F8E5M2 | DType::F8E5M2FNUZ => 3,
        DType::Bool => 1,
        int => 8 * int.size() as u32 - u32::from(int.is_signed()),
    };
    if from.is_complex() || to.is_complex() {
        return false;
    }
    match (from.is_float(), to.is_float()) {
        _ if from == to || from.is_bool() => true,
        (false, false) => !to.is_bool() && digits(from) <= digits(to) && (!from.is_signed() || to.is_signed()),
        // float16 ends at 65504, so that it must not be asked for 16 digits; 11 and fewer fit.
        (false, true) => to.size() >= 2 && digits(from) <= digits(to),
        (true, false) => false,
        // Of float16 and bfloat16 neither holds the other; both hold what has 8 bits, and float32 holds all.
        (true, true) => to.size() > from.size(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_wrap_at_their_width() {
        assert_eq!(binary(Binary::Add, DType::I8, Scalar::Int(127), Scalar::Int(1)), Some(Scalar::Int(-128)));
        assert_eq!(binary(Binary::Mul, DType::U8, Scalar::Int(16), Scalar::Int(17)), Some(Scalar::Int(16)));
        assert_eq!(binary(Binary::FloorDivide, DType::I32, Scalar::Int(-7), Scalar::Int(2)), Some(Scalar::Int(-4)));
        assert_eq!(binary(Binary::FloorDivide, DType::I32, Scalar::Int(-7), Scalar::Int(0)), None);
        assert_eq!(unary(Unary::Neg, DType::I8, Scalar::Int(-128)), Some(Scalar::Int(-128)));
        assert_eq!(binary(Binary::Lt, DType::U64, Scalar::Int(-1), Scalar::Int(1)), Some(Scalar::Bool(false)));
    }

    #[test]
    fn floats_round_to_their_dtype() {
        let third = |dtype| binary(Binary::Div, dtype, Scalar::Float(1.0), Scalar::Float(3.0));
        assert_eq!(third(DType::F32), Some(Scalar::Float(f64::from(1.0f32 / 3.0))));
        assert_eq!(third(DType::F64), Some(Scalar::Float(1.0 / 3.0)));
        assert_eq!(third(DType::F16), None);
        // 0.1 is not a float32, and what is compared is.
        assert_eq!(
            binary(Binary::Eq, DType::F32, Scalar::Float(0.1), Scalar::Float(f64::from(0.1f32))),
            Some(Scalar::Bool(true))
        );
    }

    #[test]
    fn casts_do_what_every_target_does_or_nothing() {
        assert_eq!(cast(DType::F32, DType::I32, Scalar::Float(-2.7)), Some(Scalar::Int(-2)));
        assert_eq!(cast(DType::F32, DType::U8, Scalar::Float(-2.7)), None);
        assert_eq!(cast(DType::F32, DType::I32, Scalar::Float(f64::NAN)), None);
        assert_eq!(cast(DType::I64, DType::U8, Scalar::Int(-1)), Some(Scalar::Int(255)));
        assert_eq!(cast(DType::F64, DType::F32, Scalar::Float(0.1)), Some(Scalar::Float(f64::from(0.1f32))));
        assert_eq!(cast(DType::F64, DType::Bool, Scalar::Float(0.5)), Some(Scalar::Bool(true)));
    }

    #[test]
    fn lossless_casts() {
        for (from, to, wanted) in [
            (DType::U8, DType::I16, true),
            (DType::U8, DType::I8, false),
            (DType::I8, DType::U16, false),
            (DType::I8, DType::BF16, true),
            (DType::I16, DType::F16, false),
            (DType::I32, DType::F32, false),
            (DType::I32, DType::F64, true),
            (DType::F16, DType::BF16, false),
            (DType::BF16, DType::F32, true),
            (DType::F32, DType::F16, false),
            (DType::Bool, DType::F8E5M2, true),
            (DType::F32, DType::I64, false),
            (DType::I64, DType::Bool, false),
        ] {
            assert_eq!(lossless(from, to), wanted, "{from} in {to}");
        }
    }
}
