//! Inner loops in a shape that compilers turn into vector instructions.
//!
//! The functions here take effect when inlined into code that [`vectorised`] runs, which is compiled once for each
//! instruction set and chosen by what the machine has.

use fearless_simd::Simd;

use super::element::{Number, Real};
use crate::simd::WithSimd;

/// Partial sums kept side by side: two AVX-512 registers of float32.
const LANES: usize = 32;

/// Evaluates an expression, compiled for the widest vector instructions there are. What it calls must be `#[inline(always)]`: what is not
/// inlined is compiled for the least of processors. (A macro, because a function could not ask that of the closure it is given.)
macro_rules! vectorised {
    ($body:expr) => {
        $crate::simd::dispatch_best($crate::library::simd::Body(
            #[inline(always)]
            || $body,
        ))
    };
}

/// What [`vectorised`] evaluates. Called through `FnMut`, which is the closure itself; `FnOnce` would put a function of its own around it
/// that is not always inlined.
pub struct Body<F>(pub F);

impl<R, F: FnMut() -> R> WithSimd for Body<F> {
    type Output = R;

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, _: S) -> R {
        (self.0)()
    }
}

pub(super) use vectorised;

/// The sum of products over the shorter length.
#[inline(always)]
pub fn dot<T: Number>(a: &[T], b: &[T]) -> T {
    let n = a.len().min(b.len());
    let (a, b) = (&a[..n], &b[..n]);
    let mut lanes = [T::ZERO; LANES];
    let (a_chunks, a_rest) = a.as_chunks::<LANES>();
    let (b_chunks, b_rest) = b.as_chunks::<LANES>();
    for (a, b) in a_chunks.iter().zip(b_chunks) {
        for i in 0..LANES {
            lanes[i] = a[i].multiply_add(b[i], lanes[i]);
        }
    }
    for i in 0..a_rest.len() {
        lanes[i] = a_rest[i].multiply_add(b_rest[i], lanes[i]);
    }
    sum_lanes(lanes)
}

/// The sum of all lanes, pairwise.
#[inline(always)]
pub fn sum_lanes<T: Number, const N: usize>(mut lanes: [T; N]) -> T {
    let mut width = N / 2;
    while width > 0 {
        for i in 0..width {
            lanes[i] = lanes[i].plus(lanes[i + width]);
        }
        width /= 2;
    }
    lanes[0]
}

/// `y += a * x`.
#[inline(always)]
pub fn axpy<T: Number>(a: T, x: &[T], y: &mut [T]) {
    for (y, x) in y.iter_mut().zip(x) {
        *y = x.multiply_add(a, *y);
    }
}

/// `y *= a`.
#[inline(always)]
pub fn scale<T: Real>(a: T, y: &mut [T]) {
    for y in y {
        *y = *y * a;
    }
}

/// The largest element that is not NaN; negative infinity where there is none.
#[inline(always)]
pub fn max<T: Real>(row: &[T]) -> T {
    let mut lanes = [T::NEG_INFINITY; 16];
    let (chunks, rest) = row.as_chunks::<16>();
    for chunk in chunks {
        for i in 0..16 {
            lanes[i] = if chunk[i] > lanes[i] { chunk[i] } else { lanes[i] };
        }
    }
    rest.iter().chain(&lanes).fold(T::NEG_INFINITY, |best, &x| if x > best { x } else { best })
}

/// `exp(x)` to about one unit in the last place for x <= 88; results below the normal numbers are 0.
#[inline(always)]
fn exp_f32(x: f32) -> f32 {
    // exp(x) = 2^n * exp(r) with n the nearest integer to x / ln 2 and |r| <= ln(2) / 2; ln 2 is split in two so that
    // n * LN2_HIGH is exact (Cody and Waite, 1980). Adding and subtracting 1.5 * 2^23 rounds to an integer.
    const ROUND: f32 = 12582912.0;
    const LN2_HIGH: f32 = 355.0 / 512.0;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    const LOWEST: f32 = -87.336_54;
    let clamped = if x < LOWEST { LOWEST } else { x };
    let n = clamped.mul_add(std::f32::consts::LOG2_E, ROUND) - ROUND;
    let r = n.mul_add(-LN2_LOW, n.mul_add(-LN2_HIGH, clamped));
    // Taylor's series to the 7th power: its remainder is below 2^-27 on the interval.
    let mut p = 1.0 / 5040.0;
    for c in [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0] {
        p = r.mul_add(p, c);
    }
    let power = f32::from_bits(((n as i32 + 127) as u32) << 23);
    if x < LOWEST { 0.0 } else { p * power }
}

/// See [`Real::exp_minus`].
#[inline(always)]
pub fn exp_minus_f32(row: &mut [f32], max: f32) -> f32 {
    let mut lanes = [0.0; 16];
    let (chunks, rest) = row.as_chunks_mut::<16>();
    for chunk in chunks {
        for i in 0..16 {
            chunk[i] = exp_f32(chunk[i] - max);
            lanes[i] += chunk[i];
        }
    }
    for (x, lane) in rest.iter_mut().zip(&mut lanes) {
        *x = exp_f32(*x - max);
        *lane += *x;
    }
    sum_lanes(lanes)
}

/// See [`Real::exp_minus`].
#[inline(always)]
pub fn exp_minus_f64(row: &mut [f64], max: f64) -> f64 {
    let mut sum = 0.0;
    for x in row {
        *x = (*x - max).exp();
        sum += *x;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_accurate_and_exact_at_zero() {
        for i in 0..200_000 {
            let x = -(i as f32) * 5e-4;
            let exact = (x as f64).exp();
            let got = exp_f32(x) as f64;
            let tolerance = if x < -87.3 { 2e-38 } else { exact * 1.3e-7 };
            assert!((got - exact).abs() <= tolerance, "exp({x}) = {got}, not {exact}");
        }
        assert_eq!(exp_f32(0.0), 1.0);
        assert_eq!(exp_f32(f32::NEG_INFINITY), 0.0);
        assert!(exp_f32(f32::NAN).is_nan());
    }

    #[test]
    fn dot_and_max_of_any_length() {
        for n in [0, 1, 5, 63, 64, 65, 200] {
            let a: Vec<i64> = (0..n).collect();
            assert_eq!(dot(&a, &a), (0..n).map(|x| x * x).sum::<i64>());
            let x: Vec<f32> = (0..n).map(|i| ((i * 37) % 101) as f32).collect();
            assert_eq!(max(&x), x.iter().copied().fold(f32::NEG_INFINITY, f32::max));
        }
        assert_eq!(max(&[f32::NAN, 2.0]), 2.0);
    }
}
