//! Integer arithmetic with PyTorch's conventions. Overflow wraps, as two's complement does.

/// The quotient rounded towards minus infinity. PyTorch refuses a zero divisor; here it gives 0, and the caller checks.
pub fn floor_divide(a: i64, b: i64) -> i64 {
    if b == 0 {
        return 0;
    }
    let quotient = a.wrapping_div(b);
    let inexact = a.wrapping_rem(b) != 0;
    if inexact && (a < 0) != (b < 0) { quotient - 1 } else { quotient }
}

/// The quotient rounded towards zero; 0 for a zero divisor.
pub fn trunc_divide(a: i64, b: i64) -> i64 {
    if b == 0 { 0 } else { a.wrapping_div(b) }
}

/// The remainder of `trunc_divide`, with the dividend's sign; 0 for a zero divisor.
pub fn fmod(a: i64, b: i64) -> i64 {
    if b == 0 { 0 } else { a.wrapping_rem(b) }
}

/// The remainder of `floor_divide`, with the divisor's sign; 0 for a zero divisor.
pub fn remainder(a: i64, b: i64) -> i64 {
    if b == 0 {
        return 0;
    }
    let rest = a.wrapping_rem(b);
    if rest != 0 && (rest < 0) != (b < 0) { rest + b } else { rest }
}

/// `base` to the power `exponent`. Negative exponents give what integers can hold: 1 for base 1, 1 or -1 for base -1,
/// else 0.
pub fn pow(base: i64, exponent: i64) -> i64 {
    if exponent < 0 {
        return match base {
            1 => 1,
            -1 if exponent % 2 == 0 => 1,
            -1 => -1,
            _ => 0,
        };
    }
    let (mut result, mut square, mut rest) = (1i64, base, exponent);
    while rest > 0 {
        if rest & 1 == 1 {
            result = result.wrapping_mul(square);
        }
        square = square.wrapping_mul(square);
        rest >>= 1;
    }
    result
}

/// The greatest common divisor, never negative unless it is -2^63; gcd(0, 0) is 0.
pub fn gcd(a: i64, b: i64) -> i64 {
    let (mut a, mut b) = (a.unsigned_abs(), b.unsigned_abs());
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a as i64
}

/// The least common multiple, never negative unless it overflows; 0 if either is.
pub fn lcm(a: i64, b: i64) -> i64 {
    match gcd(a, b) {
        0 => 0,
        divisor => a.wrapping_div(divisor).wrapping_mul(b).wrapping_abs(),
    }
}

pub fn sign(x: i64) -> i64 {
    x.signum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn division_rounds_down_and_the_remainder_follows_the_divisor() {
        for (a, b, quotient, rest) in
            [(7, 2, 3, 1), (-7, 2, -4, 1), (7, -2, -4, -1), (-7, -2, 3, -1), (6, -3, -2, 0), (0, -3, 0, 0)]
        {
            assert_eq!((floor_divide(a, b), remainder(a, b)), (quotient, rest), "{a} {b}");
            assert_eq!(quotient * b + rest, a);
            assert_eq!(trunc_divide(a, b) * b + fmod(a, b), a);
            assert!(fmod(a, b).signum() * a.signum() >= 0);
        }
        assert_eq!(floor_divide(i64::MIN, -1), i64::MIN);
        assert_eq!(remainder(i64::MIN, -1), 0);
        assert_eq!([floor_divide(5, 0), remainder(5, 0), trunc_divide(5, 0), fmod(5, 0)], [0; 4]);
    }

    #[test]
    fn powers() {
        assert_eq!(pow(-3, 3), -27);
        assert_eq!(pow(0, 0), 1);
        assert_eq!(pow(2, 64), 0);
        assert_eq!(pow(3, 41), 3i64.wrapping_pow(41));
        assert_eq!([pow(1, -5), pow(-1, -5), pow(-1, -4), pow(2, -1), pow(0, -1)], [1, -1, 1, 0, 0]);
    }

    #[test]
    fn common_divisors_and_multiples() {
        assert_eq!([gcd(12, -18), gcd(0, -5), gcd(0, 0), gcd(-7, 3)], [6, 5, 0, 1]);
        assert_eq!([lcm(4, -6), lcm(0, 5), lcm(0, 0), lcm(-3, -7)], [12, 0, 0, 21]);
        assert_eq!(gcd(i64::MIN, 0), i64::MIN);
        assert_eq!(gcd(i64::MIN, 6), 2);
        assert_eq!(lcm(i64::MIN, 1), i64::MIN);
    }
}
