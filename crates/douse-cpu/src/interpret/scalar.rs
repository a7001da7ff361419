//! The operations on single numbers, where no loop over lanes is worth its own code.

use douse_core::DType;
use douse_core::math::{self, Function, float, integer};
use douse_core::pointwise::{Binary, Unary};
use half::{bf16, f16};

use super::convert;

/// The function on float64 behind an operation whose result is a float.
pub(crate) fn unary_f64(op: Unary) -> fn(f64) -> f64 {
    match op {
        Unary::Neg => |x| -x,
        Unary::Abs => f64::abs,
        Unary::Sign => float::sign,
        Unary::Reciprocal => |x| 1.0 / x,
        Unary::Sqrt => f64::sqrt,
        Unary::Rsqrt => |x| 1.0 / x.sqrt(),
        Unary::Exp => f64::exp,
        Unary::Exp2 => f64::exp2,
        Unary::Expm1 => f64::exp_m1,
        Unary::Log => f64::ln,
        Unary::Log2 => f64::log2,
        Unary::Log10 => f64::log10,
        Unary::Log1p => f64::ln_1p,
        Unary::Sin => f64::sin,
        Unary::Cos => f64::cos,
        Unary::Tan => f64::tan,
        Unary::Asin => f64::asin,
        Unary::Acos => f64::acos,
        Unary::Atan => f64::atan,
        Unary::Sinh => f64::sinh,
        Unary::Cosh => f64::cosh,
        Unary::Tanh => f64::tanh,
        Unary::Asinh => f64::asinh,
        Unary::Acosh => f64::acosh,
        Unary::Atanh => f64::atanh,
        Unary::Sigmoid => |x| 1.0 / (1.0 + (-x).exp()),
        Unary::Floor => f64::floor,
        Unary::Ceil => f64::ceil,
        Unary::Round => f64::round_ties_even,
        Unary::Trunc => f64::trunc,
        Unary::FrexpMantissa => |x| float::frexp(x).0,
        // The rest has the names of the table of special functions.
        other => match math::find(other.name()).map(|row| row.function) {
            Some(Function::Unary(f)) => f,
            _ => |_| f64::NAN,
        },
    }
}

/// The function on float64 behind an operation of two operands whose result is a float.
pub(crate) fn binary_f64(op: Binary) -> Box<dyn Fn(f64, f64) -> f64> {
    match op {
        Binary::Pow => Box::new(f64::powf),
        Binary::Atan2 => Box::new(f64::atan2),
        Binary::ChebyshevT => row("chebyshev_polynomial_t"),
        other => row(other.name()),
    }
}

fn row(name: &'static str) -> Box<dyn Fn(f64, f64) -> f64> {
    match math::find(name) {
        Some(row) => Box::new(|x, y| row.call(x, y)),
        None => Box::new(|_, _| f64::NAN),
    }
}

/// The next number of a dtype after `x` towards `to`, all held in float32.
pub(crate) fn nextafter(dtype: DType, x: f32, to: f32) -> f32 {
    match dtype {
        DType::F16 => float::nextafter_f16(f16::from_f32(x), f16::from_f32(to)).to_f32(),
        DType::BF16 => float::nextafter_bf16(bf16::from_f32(x), bf16::from_f32(to)).to_f32(),
        _ => float::nextafter_f32(x, to),
    }
}

/// An integer operation of two operands held in int64, unwrapped. A zero divisor gives 0.
pub(crate) fn binary_i64(op: Binary, dtype: DType) -> fn(i64, i64) -> i64 {
    if dtype == DType::U64 {
        match op {
            Binary::FloorDivide | Binary::TruncDivide => {
                return |a, b| (a as u64).checked_div(b as u64).unwrap_or(0) as i64;
            }
            Binary::Remainder | Binary::Fmod => return |a, b| (a as u64).checked_rem(b as u64).unwrap_or(0) as i64,
            Binary::Minimum => return |a, b| (a as u64).min(b as u64) as i64,
            Binary::Maximum => return |a, b| (a as u64).max(b as u64) as i64,
            Binary::Pow => return pow_u64,
            Binary::ShiftRight => return |a, b| if (0..64).contains(&b) { (a as u64 >> b) as i64 } else { 0 },
            Binary::Gcd => return |a, b| gcd_u64(a as u64, b as u64) as i64,
            Binary::Lcm => {
                return |a, b| match gcd_u64(a as u64, b as u64) {
                    0 => 0,
                    divisor => (a as u64 / divisor).wrapping_mul(b as u64) as i64,
                };
            }
            _ => {}
        }
    }
    match op {
        Binary::Add => i64::wrapping_add,
        Binary::Sub => i64::wrapping_sub,
        Binary::Mul => i64::wrapping_mul,
        Binary::FloorDivide => integer::floor_divide,
        Binary::TruncDivide => integer::trunc_divide,
        Binary::Remainder => integer::remainder,
        Binary::Fmod => integer::fmod,
        Binary::Pow => integer::pow,
        Binary::Minimum => |a, b| a.min(b),
        Binary::Maximum => |a, b| a.max(b),
        Binary::And => |a, b| a & b,
        Binary::Or => |a, b| a | b,
        Binary::Xor => |a, b| a ^ b,
        Binary::Gcd => integer::gcd,
        Binary::Lcm => integer::lcm,
        Binary::ShiftLeft => match dtype.size() {
            1 => |a, b| if (0..8).contains(&b) { a << b } else { 0 },
            2 => |a, b| if (0..16).contains(&b) { a << b } else { 0 },
            4 => |a, b| if (0..32).contains(&b) { a << b } else { 0 },
            _ => |a, b| if (0..64).contains(&b) { a << b } else { 0 },
        },
        // What is held in int64 already has the sign's fill above its width.
        Binary::ShiftRight => |a, b| a >> if (0..63).contains(&b) { b } else { 63 },
        _ => |_, _| 0,
    }
}

/// Exponents of uint64 are never negative.
fn pow_u64(base: i64, exponent: i64) -> i64 {
    let (mut result, mut square, mut rest) = (1i64, base, exponent as u64);
    while rest > 0 {
        if rest & 1 == 1 {
            result = result.wrapping_mul(square);
        }
        square = square.wrapping_mul(square);
        rest >>= 1;
    }
    result
}

fn gcd_u64(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// A float cut to an integer as x86 and PyTorch cut it: towards zero in 64 bits; the caller wraps it to the width.
#[inline(always)]
pub(crate) fn cut(dtype: DType, x: f64) -> i64 {
    if dtype == DType::U64 && x >= 9_223_372_036_854_775_808.0 { x as u64 as i64 } else { x as i64 }
}

/// The bits of a value of a dtype, from how registers hold it.
pub(crate) trait Bits {
    fn bits(self, dtype: DType) -> u64;
    fn of_bits(dtype: DType, bits: u64) -> Self;
}

impl Bits for f32 {
    fn bits(self, dtype: DType) -> u64 {
        match dtype {
            DType::F32 => f32::to_bits(self) as u64,
            DType::F16 => convert::f16_from_f32(self) as u64,
            DType::BF16 => convert::bf16_from_f32(self) as u64,
            other => (convert::float8_functions(other).1)(self) as u64,
        }
    }
    fn of_bits(dtype: DType, bits: u64) -> f32 {
        match dtype {
            DType::F32 => f32::from_bits(bits as u32),
            DType::F16 => convert::f32_from_f16(bits as u16),
            DType::BF16 => convert::f32_from_bf16(bits as u16),
            other => (convert::float8_functions(other).0)(bits as u8),
        }
    }
}

impl Bits for f64 {
    fn bits(self, _: DType) -> u64 {
        f64::to_bits(self)
    }
    fn of_bits(_: DType, bits: u64) -> f64 {
        f64::from_bits(bits)
    }
}

impl Bits for i64 {
    fn bits(self, _: DType) -> u64 {
        self as u64
    }
    fn of_bits(dtype: DType, bits: u64) -> i64 {
        convert::wrap(dtype, bits as i64)
    }
}

impl Bits for u8 {
    fn bits(self, _: DType) -> u64 {
        self as u64
    }
    fn of_bits(_: DType, bits: u64) -> u8 {
        (bits as u8 != 0) as u8
    }
}
