//! The error function's family: erf, its complements and inverse, and the normal distribution built on them.

use std::f64::consts::{FRAC_1_SQRT_2, LN_2, PI, SQRT_2};

const FRAC_1_SQRT_PI: f64 = std::f64::consts::FRAC_2_SQRT_PI / 2.0;

pub fn erf(x: f64) -> f64 {
    libm::erf(x)
}

pub fn erfc(x: f64) -> f64 {
    libm::erfc(x)
}

/// e^(x^2) erfc(x), which stays of moderate size where erfc vanishes.
pub fn erfcx(x: f64) -> f64 {
    /// From here the asymptotic series reaches double precision in ten terms.
    const ASYMPTOTIC: f64 = 12.0;
    if x < ASYMPTOTIC {
        return exp_square(x) * libm::erfc(x);
    }
    let step = 0.5 / (x * x);
    let series = (1..12).rev().fold(1.0, |acc, k| 1.0 - (2 * k - 1) as f64 * step * acc);
    FRAC_1_SQRT_PI / x * series
}

/// e^(x^2), with the square's rounding error put back: at 26 it would cost 10 bits.
fn exp_square(x: f64) -> f64 {
    let square = x * x;
    let high = f64::from_bits(x.to_bits() & !0x07FF_FFFF);
    let error = (high * high - square) + (x - high) * (x + high);
    let power = square.exp();
    if power.is_finite() { power + power * error } else { power }
}

/// The x with erf(x) = y: infinite at -1 and 1, NaN beyond.
pub fn erfinv(y: f64) -> f64 {
    let magnitude = y.abs();
    if magnitude > 1.0 || y.is_nan() {
        return f64::NAN;
    }
    if magnitude == 1.0 {
        return f64::INFINITY.copysign(y);
    }
    // 1 - |y| is exact from 0.5 on, and the complement keeps its relative accuracy in the tail.
    let root = if magnitude < 0.5 { central_erfinv(magnitude) } else { erfcinv(1.0 - magnitude) };
    root.copysign(y)
}

/// erfinv for y in [0, 0.5): Halley's steps on erf(x) - y from Winitzki's approximation.
fn central_erfinv(y: f64) -> f64 {
    if y < 1e-10 {
        return y / (2.0 * FRAC_1_SQRT_PI);
    }
    let mut x = winitzki(-(-y * y).ln_1p());
    for _ in 0..2 {
        let newton = (libm::erf(x) - y) / (2.0 * FRAC_1_SQRT_PI * (-x * x).exp());
        x -= newton / (1.0 + x * newton);
    }
    x
}

/// The x >= 0 with erfc(x) = t, for t in (0, 1]: Newton's steps on ln erfc, which is nearly a parabola.
fn erfcinv(t: f64) -> f64 {
    let target = t.ln();
    let mut x = winitzki(-(target + (2.0 - t).ln()));
    for _ in 0..4 {
        let scaled = erfcx(x);
        x += (scaled.ln() - x * x - target) * scaled / (2.0 * FRAC_1_SQRT_PI);
    }
    x
}

/// Winitzki's approximation of erfinv (2008), within 0.2 %, from l = -ln(1 - y^2).
fn winitzki(l: f64) -> f64 {
    const A: f64 = 0.147;
    let center = 2.0 / (PI * A) - l / 2.0;
    // sqrt(center^2 + l / A) - center, without the cancellation for small l.
    let ratio = l / A;
    let root = (center * center + ratio).sqrt();
    let square = if center > 0.0 { ratio / (root + center) } else { root - center };
    square.sqrt()
}

/// The normal distribution's cumulative function.
pub fn ndtr(x: f64) -> f64 {
    0.5 * libm::erfc(-x * FRAC_1_SQRT_2)
}

/// The x with ndtr(x) = p: infinite at 0 and 1, NaN outside.
pub fn ndtri(p: f64) -> f64 {
    if p.is_nan() || !(0.0..=1.0).contains(&p) {
        return f64::NAN;
    }
    match p {
        0.0 => f64::NEG_INFINITY,
        1.0 => f64::INFINITY,
        // 2p - 1 loses nothing here that the root, near zero, would need.
        _ if (0.25..=0.75).contains(&p) => SQRT_2 * erfinv(2.0 * (p - 0.5)),
        _ if p < 0.5 => -SQRT_2 * erfcinv(2.0 * p),
        _ => SQRT_2 * erfcinv(2.0 * (1.0 - p)),
    }
}

/// ln ndtr(x), without underflow for very negative x.
pub fn log_ndtr(x: f64) -> f64 {
    let t = x * FRAC_1_SQRT_2;
    if x < -1.0 {
        return if x == f64::NEG_INFINITY { x } else { erfcx(-t).ln() - LN_2 - t * t };
    }
    (-0.5 * libm::erfc(t)).ln_1p()
}
