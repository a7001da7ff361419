//! The operations of one and two operands over lanes.
//!
//! Results are not yet rounded or wrapped to their dtype; [`super::block`] does that after each operation.

use douse_core::DType;
use douse_core::math::{float, vector};
use douse_core::pointwise::{Binary, Unary};

use super::lanes::{Arg, Loops, Slot};
use super::scalar;

/// float32 to float32.
pub(crate) fn unary_f32(loops: &Loops, op: Unary, a: Arg<f32>, out: &mut Slot<f32>, n: usize) {
    match op {
        Unary::Neg => loops.map1(a, out, n, |x| -x),
        Unary::Abs => loops.map1(a, out, n, f32::abs),
        Unary::Sign => loops.map1(a, out, n, |x: f32| (x > 0.0) as i32 as f32 - (x < 0.0) as i32 as f32),
        Unary::Reciprocal => loops.map1(a, out, n, |x| 1.0 / x),
        Unary::Sqrt => loops.map1(a, out, n, f32::sqrt),
        Unary::Rsqrt => loops.map1(a, out, n, vector::rsqrt),
        Unary::Exp => loops.map1(a, out, n, vector::exp),
        Unary::Exp2 => loops.map1(a, out, n, vector::exp2),
        Unary::Expm1 => loops.map1(a, out, n, vector::expm1),
        Unary::Log => loops.map1(a, out, n, vector::log),
        Unary::Log2 => loops.map1(a, out, n, vector::log2),
        Unary::Log1p => loops.map1(a, out, n, vector::log1p),
        Unary::Tanh => loops.map1(a, out, n, vector::tanh),
        Unary::Sigmoid => loops.map1(a, out, n, vector::sigmoid),
        Unary::Erf => loops.map1(a, out, n, vector::erf),
        Unary::Sin => loops.slices(a, out, n, vector::sin_slice),
        Unary::Cos => loops.slices(a, out, n, vector::cos_slice),
        Unary::Floor => loops.map1(a, out, n, f32::floor),
        Unary::Ceil => loops.map1(a, out, n, f32::ceil),
        Unary::Round => loops.map1(a, out, n, f32::round_ties_even),
        Unary::Trunc => loops.map1(a, out, n, f32::trunc),
        other => {
            let f = scalar::unary_f64(other);
            loops.map1(a, out, n, |x| f(x as f64) as f32);
        }
    }
}

pub(crate) fn unary_f64(loops: &Loops, op: Unary, a: Arg<f64>, out: &mut Slot<f64>, n: usize) {
    match op {
        Unary::Neg => loops.map1(a, out, n, |x| -x),
        Unary::Abs => loops.map1(a, out, n, f64::abs),
        Unary::Reciprocal => loops.map1(a, out, n, |x| 1.0 / x),
        Unary::Sqrt => loops.map1(a, out, n, f64::sqrt),
        Unary::Rsqrt => loops.map1(a, out, n, |x| 1.0 / x.sqrt()),
        Unary::Floor => loops.map1(a, out, n, f64::floor),
        Unary::Ceil => loops.map1(a, out, n, f64::ceil),
        Unary::Round => loops.map1(a, out, n, f64::round_ties_even),
        Unary::Trunc => loops.map1(a, out, n, f64::trunc),
        other => {
            let f = scalar::unary_f64(other);
            loops.map1(a, out, n, f);
        }
    }
}

pub(crate) fn unary_i64(loops: &Loops, op: Unary, a: Arg<i64>, out: &mut Slot<i64>, n: usize, dtype: DType) {
    match op {
        Unary::Neg => loops.map1(a, out, n, i64::wrapping_neg),
        Unary::Abs if dtype.is_signed() => loops.map1(a, out, n, i64::wrapping_abs),
        Unary::Sign if dtype.is_signed() => loops.map1(a, out, n, i64::signum),
        Unary::Sign => loops.map1(a, out, n, |x: i64| (x != 0) as i64),
        Unary::BitwiseNot => loops.map1(a, out, n, |x: i64| !x),
        _ => loops.map1(a, out, n, |x| x),
    }
}

/// isnan, isinf, signbit.
pub(crate) fn classify_f32(loops: &Loops, op: Unary, a: Arg<f32>, out: &mut Slot<u8>, n: usize) {
    match op {
        Unary::IsNan => loops.map1(a, out, n, |x: f32| x.is_nan() as u8),
        Unary::IsInf => loops.map1(a, out, n, |x: f32| x.is_infinite() as u8),
        _ => loops.map1(a, out, n, |x: f32| x.is_sign_negative() as u8),
    }
}

pub(crate) fn classify_f64(loops: &Loops, op: Unary, a: Arg<f64>, out: &mut Slot<u8>, n: usize) {
    match op {
        Unary::IsNan => loops.map1(a, out, n, |x: f64| x.is_nan() as u8),
        Unary::IsInf => loops.map1(a, out, n, |x: f64| x.is_infinite() as u8),
        _ => loops.map1(a, out, n, |x: f64| x.is_sign_negative() as u8),
    }
}

/// NaN wins; of equals, the first.
macro_rules! extreme {
    ($a:ident $op:tt $b:ident) => {
        if $a.is_nan() || $a $op $b { $a } else { $b }
    };
}

#[inline(always)]
pub(crate) fn maximum_f32(a: f32, b: f32) -> f32 {
    extreme!(a >= b)
}

#[inline(always)]
pub(crate) fn minimum_f32(a: f32, b: f32) -> f32 {
    extreme!(a <= b)
}

#[inline(always)]
pub(crate) fn maximum_f64(a: f64, b: f64) -> f64 {
    extreme!(a >= b)
}

#[inline(always)]
pub(crate) fn minimum_f64(a: f64, b: f64) -> f64 {
    extreme!(a <= b)
}

pub(crate) fn binary_f32(
    loops: &Loops,
    op: Binary,
    a: Arg<f32>,
    b: Arg<f32>,
    out: &mut Slot<f32>,
    n: usize,
    dtype: DType,
) {
    match op {
        Binary::Add => loops.map2(a, b, out, n, |a, b| a + b),
        Binary::Sub => loops.map2(a, b, out, n, |a, b| a - b),
        Binary::Mul => loops.map2(a, b, out, n, |a, b| a * b),
        Binary::Div => loops.map2(a, b, out, n, |a, b| a / b),
        Binary::Minimum => loops.map2(a, b, out, n, minimum_f32),
        Binary::Maximum => loops.map2(a, b, out, n, maximum_f32),
        Binary::Fmin => loops.map2(a, b, out, n, |a: f32, b| if b.is_nan() || a <= b { a } else { b }),
        Binary::Fmax => loops.map2(a, b, out, n, |a: f32, b| if b.is_nan() || a >= b { a } else { b }),
        Binary::Copysign => loops.map2(a, b, out, n, f32::copysign),
        Binary::FloorDivide => loops.map2(a, b, out, n, float::floor_divide_f32),
        Binary::Remainder => loops.map2(a, b, out, n, float::remainder_f32),
        Binary::Fmod => loops.map2(a, b, out, n, |a, b| a % b),
        Binary::Nextafter => loops.map2(a, b, out, n, |a, b| scalar::nextafter(dtype, a, b)),
        Binary::Pow => match b {
            // The powers that programs use most, exactly as the general function gives them.
            Arg::One(2.0) => loops.map1(a, out, n, |a| a * a),
            Arg::One(1.0) => loops.map1(a, out, n, |a| a),
            b => loops.map2(a, b, out, n, f32::powf),
        },
        other => {
            let f = scalar::binary_f64(other);
            loops.map2(a, b, out, n, |a, b| f(a as f64, b as f64) as f32);
        }
    }
}

pub(crate) fn binary_f64(loops: &Loops, op: Binary, a: Arg<f64>, b: Arg<f64>, out: &mut Slot<f64>, n: usize) {
    match op {
        Binary::Add => loops.map2(a, b, out, n, |a, b| a + b),
        Binary::Sub => loops.map2(a, b, out, n, |a, b| a - b),
        Binary::Mul => loops.map2(a, b, out, n, |a, b| a * b),
        Binary::Div => loops.map2(a, b, out, n, |a, b| a / b),
        Binary::Minimum => loops.map2(a, b, out, n, minimum_f64),
        Binary::Maximum => loops.map2(a, b, out, n, maximum_f64),
        Binary::Fmin => loops.map2(a, b, out, n, |a: f64, b| if b.is_nan() || a <= b { a } else { b }),
        Binary::Fmax => loops.map2(a, b, out, n, |a: f64, b| if b.is_nan() || a >= b { a } else { b }),
        Binary::FloorDivide => loops.map2(a, b, out, n, float::floor_divide),
        Binary::Remainder => loops.map2(a, b, out, n, float::remainder),
        Binary::Fmod => loops.map2(a, b, out, n, |a, b| a % b),
        other => {
            let f = scalar::binary_f64(other);
            loops.map2(a, b, out, n, f);
        }
    }
}

pub(crate) fn binary_i64(
    loops: &Loops,
    op: Binary,
    a: Arg<i64>,
    b: Arg<i64>,
    out: &mut Slot<i64>,
    n: usize,
    dtype: DType,
) {
    match (op, b) {
        (Binary::Add, b) => loops.map2(a, b, out, n, i64::wrapping_add),
        (Binary::Sub, b) => loops.map2(a, b, out, n, i64::wrapping_sub),
        (Binary::Mul, b) => loops.map2(a, b, out, n, i64::wrapping_mul),
        (Binary::And, b) => loops.map2(a, b, out, n, |a, b| a & b),
        (Binary::Or, b) => loops.map2(a, b, out, n, |a, b| a | b),
        (Binary::Xor, b) => loops.map2(a, b, out, n, |a, b| a ^ b),
        (Binary::Minimum, b) if dtype != DType::U64 => loops.map2(a, b, out, n, |a: i64, b| a.min(b)),
        (Binary::Maximum, b) if dtype != DType::U64 => loops.map2(a, b, out, n, |a: i64, b| a.max(b)),
        (Binary::FloorDivide, Arg::One(d)) => match divisor(loops, a, d) {
            Some(by) => loops.map1(a, out, n, |x| by.divide(x).0),
            None => loops.map1(a, out, n, |x| scalar::binary_i64(op, dtype)(x, d)),
        },
        (Binary::Remainder, Arg::One(d)) => match divisor(loops, a, d) {
            Some(by) => loops.map1(a, out, n, |x| by.divide(x).1),
            None => loops.map1(a, out, n, |x| scalar::binary_i64(op, dtype)(x, d)),
        },
        (op, b) => {
            let f = scalar::binary_i64(op, dtype);
            loops.map2(a, b, out, n, f);
        }
    }
}

/// Division of numbers below 2^32 by one divisor, by multiplication.
#[derive(Clone, Copy)]
struct Divisor {
    divisor: u64,
    /// floor(2^32 / divisor), below 2^32.
    inverse: u64,
}

/// Nothing where the divisor or a lane is out of range.
fn divisor(loops: &Loops, a: Arg<i64>, d: i64) -> Option<Divisor> {
    let all = match a {
        Arg::One(a) => a as u64,
        Arg::Many(a) => loops.fold(a, 0i64, |x, y| x | y, |x, y| x | y) as u64,
    };
    (all >> 32 == 0 && d > 1 && d >> 32 == 0).then(|| Divisor { divisor: d as u64, inverse: (1 << 32) / d as u64 })
}

impl Divisor {
    /// Quotient and remainder.
    #[inline(always)]
    fn divide(self, x: i64) -> (i64, i64) {
        let x = x as u32 as u64;
        // The estimate is exact or one too small: x / d - x * inverse / 2^32 < x / 2^32 < 1.
        let estimate = (x * (self.inverse as u32 as u64)) >> 32;
        let rest = x - (estimate as u32 as u64) * (self.divisor as u32 as u64);
        let short = (rest >= self.divisor) as u64;
        ((estimate + short) as i64, (rest - short * (self.divisor as u32 as u64)) as i64)
    }
}

macro_rules! comparison {
    ($(#[$doc:meta])* $name:ident, $t:ty, $key:expr) => {
        $(#[$doc])*
        pub(crate) fn $name(loops: &Loops, op: Binary, a: Arg<$t>, b: Arg<$t>, out: &mut Slot<u8>, n: usize) {
            let key = $key;
            match op {
                Binary::Eq => loops.map2(a, b, out, n, |a, b| (key(a) == key(b)) as u8),
                Binary::Ne => loops.map2(a, b, out, n, |a, b| (key(a) != key(b)) as u8),
                Binary::Lt => loops.map2(a, b, out, n, |a, b| (key(a) < key(b)) as u8),
                Binary::Le => loops.map2(a, b, out, n, |a, b| (key(a) <= key(b)) as u8),
                Binary::Gt => loops.map2(a, b, out, n, |a, b| (key(a) > key(b)) as u8),
                _ => loops.map2(a, b, out, n, |a, b| (key(a) >= key(b)) as u8),
            }
        }
    };
}
comparison!(compare_f32, f32, |x: f32| x);
comparison!(compare_f64, f64, |x: f64| x);
comparison!(compare_i64, i64, |x: i64| x);
comparison!(compare_u64, i64, |x: i64| x as u64);
comparison!(compare_bool, u8, |x: u8| x);

pub(crate) fn binary_bool(loops: &Loops, op: Binary, a: Arg<u8>, b: Arg<u8>, out: &mut Slot<u8>, n: usize) {
    match op {
        Binary::And | Binary::Minimum => loops.map2(a, b, out, n, |a, b| a & b),
        Binary::Or | Binary::Maximum => loops.map2(a, b, out, n, |a, b| a | b),
        Binary::Xor => loops.map2(a, b, out, n, |a, b| a ^ b),
        comparison => compare_bool(loops, comparison, a, b, out, n),
    }
}
