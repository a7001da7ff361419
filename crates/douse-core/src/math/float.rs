//! Floating-point arithmetic with PyTorch's conventions: division that rounds, signs, steps and NaN.

/// The quotient rounded towards minus infinity, as Python's `//`; a zero divisor gives the true quotient.
///
/// Computed from the exact remainder, so that it is never one too large where a / b rounds up to an integer.
pub fn floor_divide(a: f64, b: f64) -> f64 {
    if b == 0.0 {
        return a / b;
    }
    let rest = a % b;
    let mut quotient = (a - rest) / b;
    if rest != 0.0 && (b < 0.0) != (rest < 0.0) {
        quotient -= 1.0;
    }
    if quotient == 0.0 {
        return 0f64.copysign(a / b);
    }
    let floor = quotient.floor();
    if quotient - floor > 0.5 { floor + 1.0 } else { floor }
}

/// `floor_divide` in float32, whose roundings differ.
pub fn floor_divide_f32(a: f32, b: f32) -> f32 {
    if b == 0.0 {
        return a / b;
    }
    let rest = a % b;
    let mut quotient = (a - rest) / b;
    if rest != 0.0 && (b < 0.0) != (rest < 0.0) {
        quotient -= 1.0;
    }
    if quotient == 0.0 {
        return 0f32.copysign(a / b);
    }
    let floor = quotient.floor();
    if quotient - floor > 0.5 { floor + 1.0 } else { floor }
}

/// The remainder with the divisor's sign, as Python's `%`; NaN for a zero divisor.
pub fn remainder(a: f64, b: f64) -> f64 {
    let rest = a % b;
    if rest != 0.0 && (b < 0.0) != (rest < 0.0) { rest + b } else { rest }
}

/// `remainder` in float32.
pub fn remainder_f32(a: f32, b: f32) -> f32 {
    let rest = a % b;
    if rest != 0.0 && (b < 0.0) != (rest < 0.0) { rest + b } else { rest }
}

/// The remainder with the dividend's sign, as C's `fmod`.
pub fn fmod(a: f64, b: f64) -> f64 {
    a % b
}

/// The larger; NaN if either is. Of two zeros, the first.
pub fn maximum(a: f64, b: f64) -> f64 {
    if a.is_nan() || a >= b { a } else { b }
}

/// The smaller; NaN if either is. Of two zeros, the first.
pub fn minimum(a: f64, b: f64) -> f64 {
    if a.is_nan() || a <= b { a } else { b }
}

/// The larger; a NaN gives way to a number.
pub fn fmax(a: f64, b: f64) -> f64 {
    a.max(b)
}

/// The smaller; a NaN gives way to a number.
pub fn fmin(a: f64, b: f64) -> f64 {
    a.min(b)
}

/// -1, 0 or 1. PyTorch's sign of NaN is 0.
pub fn sign(x: f64) -> f64 {
    (x > 0.0) as i32 as f64 - (x < 0.0) as i32 as f64
}

/// The fraction, with x's sign: x - trunc(x).
pub fn frac(x: f64) -> f64 {
    x - x.trunc()
}

/// 0 below zero, 1 above, `at_zero` at it. NaN counts as below, as in PyTorch.
pub fn heaviside(x: f64, at_zero: f64) -> f64 {
    if x == 0.0 { at_zero } else { (x > 0.0) as i32 as f64 }
}

pub fn copysign(magnitude: f64, sign: f64) -> f64 {
    magnitude.copysign(sign)
}

/// The square root of a^2 + b^2, without overflow on the way.
pub fn hypot(a: f64, b: f64) -> f64 {
    a.hypot(b)
}

/// To the nearest integer, ties to even.
pub fn round(x: f64) -> f64 {
    x.round_ties_even()
}

/// To `decimals` places after the point (before it, if negative), ties of the scaled number to even.
pub fn round_decimals(x: f64, decimals: i64) -> f64 {
    let scale = 10f64.powf(decimals.unsigned_abs() as f64);
    if decimals < 0 { round(x / scale) * scale } else { round(x * scale) / scale }
}

/// x 2^exponent, as PyTorch computes it: through the power, which may overflow or vanish before the product would.
pub fn ldexp(x: f64, exponent: f64) -> f64 {
    x * exponent.exp2()
}

/// x as a fraction in [0.5, 1) with x's sign, and a power of two. Zero, infinities and NaN stay, with exponent 0.
pub fn frexp(x: f64) -> (f64, i32) {
    libm::frexp(x)
}

/// The next float32 after x towards `to`; NaN if either is, `to` if they are equal.
pub fn nextafter_f32(x: f32, to: f32) -> f32 {
    match () {
        _ if x.is_nan() || to.is_nan() => f32::NAN,
        _ if x == to => to,
        _ if x < to => x.next_up(),
        _ => x.next_down(),
    }
}

/// `nextafter_f32` for float64.
pub fn nextafter(x: f64, to: f64) -> f64 {
    match () {
        _ if x.is_nan() || to.is_nan() => f64::NAN,
        _ if x == to => to,
        _ if x < to => x.next_up(),
        _ => x.next_down(),
    }
}

/// `nextafter_f32` for float16.
pub fn nextafter_f16(x: half::f16, to: half::f16) -> half::f16 {
    match () {
        _ if x.is_nan() || to.is_nan() => half::f16::NAN,
        _ if x == to => to,
        _ => half::f16::from_bits(step_16(x.to_bits(), x < to)),
    }
}

/// `nextafter_f32` for bfloat16.
pub fn nextafter_bf16(x: half::bf16, to: half::bf16) -> half::bf16 {
    match () {
        _ if x.is_nan() || to.is_nan() => half::bf16::NAN,
        _ if x == to => to,
        _ => half::bf16::from_bits(step_16(x.to_bits(), x < to)),
    }
}

/// One step up or down among 16-bit floats, whose bits are sign and magnitude; from zero, the smallest of the sign
/// stepped to.
fn step_16(bits: u16, up: bool) -> u16 {
    const SIGN: u16 = 0x8000;
    let negative = bits & SIGN != 0;
    if bits & !SIGN == 0 {
        return if up { 1 } else { SIGN | 1 };
    }
    if negative == up { bits - 1 } else { bits + 1 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::{bf16, f16};

    const INF: f64 = f64::INFINITY;

    fn same(a: f64, b: f64) -> bool {
        a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan()
    }

    #[test]
    fn floor_division_is_exact_where_the_quotient_rounds_up() {
        // 1 / 0.1 rounds to 10, but 0.1 is a little more than a tenth.
        assert_eq!(floor_divide(1.0, 0.1), 9.0);
        assert_eq!(floor_divide_f32(1.0, 0.1), 9.0);
        for (a, b, quotient, rest) in [
            (7.5, 2.0, 3.0, 1.5),
            (-7.5, 2.0, -4.0, 0.5),
            (7.5, -2.0, -4.0, -0.5),
            (-1.0, INF, -1.0, INF),
            (0.0, -3.0, -0.0, 0.0),
            (1.0, 0.0, INF, f64::NAN),
            (-1.0, 0.0, -INF, f64::NAN),
            (INF, 2.0, f64::NAN, f64::NAN),
        ] {
            assert!(same(floor_divide(a, b), quotient), "{a} // {b}");
            assert!(same(remainder(a, b), rest), "{a} % {b}");
            let narrow = floor_divide_f32(a as f32, b as f32) as f64;
            assert!(
                same(narrow, quotient) && same(remainder_f32(a as f32, b as f32) as f64, rest),
                "{a} {b} in float32"
            );
        }
        assert_eq!(fmod(-7.5, 2.0), -1.5);
    }

    #[test]
    fn nan_wins_or_loses() {
        let nan = f64::NAN;
        for (a, b) in [(nan, 1.0), (1.0, nan)] {
            assert!(maximum(a, b).is_nan() && minimum(a, b).is_nan());
            assert_eq!((fmax(a, b), fmin(a, b)), (1.0, 1.0));
        }
        assert_eq!((maximum(1.0, 2.0), minimum(1.0, 2.0)), (2.0, 1.0));
        assert_eq!((sign(nan), heaviside(nan, 7.0), heaviside(0.0, 7.0)), (0.0, 0.0, 7.0));
    }

    #[test]
    fn rounding() {
        assert_eq!([round(0.5), round(1.5), round(-2.5), round(2.6)], [0.0, 2.0, -2.0, 3.0]);
        assert_eq!(round_decimals(2.675, 2), 2.68);
        assert_eq!(round_decimals(1234.5, -2), 1200.0);
        assert_eq!(round_decimals(0.125, 2), 0.12);
    }

    #[test]
    fn powers_of_two() {
        assert_eq!(ldexp(3.0, 4.0), 48.0);
        assert_eq!(frexp(-48.0), (-0.75, 6));
        assert_eq!(frexp(0.0), (0.0, 0));
        assert_eq!(frexp(5e-324), (0.5, -1073));
        assert_eq!(frexp(INF), (INF, 0));
    }

    /// Stepping up through every float16 and bfloat16 visits each once, in order.
    #[test]
    fn next_after_visits_every_small_float() {
        let mut x = f16::NEG_INFINITY;
        let mut count = 0;
        while x < f16::INFINITY {
            let next = nextafter_f16(x, f16::INFINITY);
            assert!(next > x || x == f16::ZERO);
            if next != f16::ZERO {
                assert_eq!(nextafter_f16(next, f16::NEG_INFINITY).to_f32(), x.to_f32());
            }
            (x, count) = (next, count + 1);
        }
        assert_eq!(count, 2 * 0x7C00);
        assert_eq!(nextafter_bf16(bf16::ONE, bf16::INFINITY).to_bits(), 0x3F81);
        assert_eq!(nextafter_bf16(bf16::ZERO, bf16::NEG_INFINITY).to_bits(), 0x8001);
        assert_eq!(nextafter_bf16(bf16::MAX, bf16::INFINITY), bf16::INFINITY);
        assert!(nextafter_bf16(bf16::NAN, bf16::ONE).is_nan());
    }

    #[test]
    fn next_after() {
        assert_eq!(nextafter(1.0, 2.0), 1.0 + f64::EPSILON);
        assert_eq!(nextafter(0.0, -1.0), -5e-324);
        assert!(same(nextafter(0.0, -0.0), -0.0));
        assert_eq!(nextafter(INF, 0.0), f64::MAX);
        assert_eq!(nextafter_f32(1.0, 0.0), 1.0 - f32::EPSILON / 2.0);
        assert!(nextafter_f32(1.0, f32::NAN).is_nan());
    }
}
