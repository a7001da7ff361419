//! Bessel functions of order 0 and 1, the modified ones, and Airy's function.
//!
//! Sums and integrals rather than tables of rational fits: power series where their terms have one sign or stay small,
//! asymptotic series far out, and between them the trapezoidal rule on K's integral, which converges geometrically.
//! Only where PyTorch is off by more than 1e-7 are its own fits used (`oscillating`).
//! Formula numbers are those of the NIST Digital Library of Mathematical Functions.

use super::oscillating as far;
use std::f64::consts::PI;

const EULER: f64 = 0.577_215_664_901_532_9;

/// J0; NaN at infinity, as in PyTorch.
pub fn bessel_j0(x: f64) -> f64 {
    let x = x.abs();
    if x > far::FROM { far::first_kind(x, 0) } else { libm::j0(x) }
}

/// J1; NaN at infinity, as in PyTorch.
pub fn bessel_j1(x: f64) -> f64 {
    let magnitude = x.abs();
    let value = if magnitude > far::FROM { far::first_kind(magnitude, 1) } else { libm::j1(magnitude) };
    if x.is_sign_negative() { -value } else { value }
}

/// Y0: -inf at 0, NaN for negative x and at infinity.
pub fn bessel_y0(x: f64) -> f64 {
    match x {
        _ if x > far::FROM => far::second_kind(x, 0),
        _ if x < 0.0 => f64::NAN,
        0.0 => f64::NEG_INFINITY,
        _ => libm::y0(x),
    }
}

/// Y1: -inf at 0, NaN for negative x and at infinity.
pub fn bessel_y1(x: f64) -> f64 {
    match x {
        _ if x > far::FROM => far::second_kind(x, 1),
        _ if x < 0.0 => f64::NAN,
        0.0 => f64::NEG_INFINITY,
        _ => libm::y1(x),
    }
}

/// sin(x) / x.
pub fn spherical_bessel_j0(x: f64) -> f64 {
    if x.is_infinite() {
        return 0.0;
    }
    if x == 0.0 { 1.0 } else { x.sin() / x }
}

/// I0; NaN at infinity, as in PyTorch.
pub fn i0(x: f64) -> f64 {
    let x = x.abs();
    if x <= SERIES_TO { i_series(x, 0) } else { i_asymptotic(x, 0) * x.exp() }
}

/// e^-|x| I0(x).
pub fn i0e(x: f64) -> f64 {
    let x = x.abs();
    if x <= SERIES_TO { i_series(x, 0) * (-x).exp() } else { i_asymptotic(x, 0) }
}

/// I1; NaN at infinity, as in PyTorch.
pub fn i1(x: f64) -> f64 {
    let magnitude = x.abs();
    let value =
        if magnitude <= SERIES_TO { i_series(magnitude, 1) } else { i_asymptotic(magnitude, 1) * magnitude.exp() };
    odd(value, x)
}

/// e^-|x| I1(x).
pub fn i1e(x: f64) -> f64 {
    let magnitude = x.abs();
    let value =
        if magnitude <= SERIES_TO { i_series(magnitude, 1) * (-magnitude).exp() } else { i_asymptotic(magnitude, 1) };
    odd(value, x)
}

/// An odd function's value at x from that at |x|. As in PyTorch, -0 goes with 0.
fn odd(value: f64, x: f64) -> f64 {
    if x < 0.0 { -value } else { value }
}

/// K0: infinite at 0, NaN for negative x.
pub fn modified_bessel_k0(x: f64) -> f64 {
    match x {
        0.0 => f64::INFINITY,
        _ if x < 0.0 => f64::NAN,
        _ if x <= 2.0 => k0_series(x),
        _ => k_scaled(0.0, x) * (-x).exp(),
    }
}

/// e^x K0(x).
pub fn scaled_modified_bessel_k0(x: f64) -> f64 {
    if x > 2.0 { k_scaled(0.0, x) } else { modified_bessel_k0(x) * x.exp() }
}

/// K1: infinite at 0, NaN for negative x.
pub fn modified_bessel_k1(x: f64) -> f64 {
    match x {
        0.0 => f64::INFINITY,
        _ if x < 0.0 => f64::NAN,
        // The Wronskian I0 K1 + I1 K0 = 1 / x (10.28.2).
        _ if x <= 2.0 => (1.0 / x - i_series(x, 1) * k0_series(x)) / i_series(x, 0),
        _ => k_scaled(1.0, x) * (-x).exp(),
    }
}

/// e^x K1(x).
pub fn scaled_modified_bessel_k1(x: f64) -> f64 {
    if x > 2.0 { k_scaled(1.0, x) } else { modified_bessel_k1(x) * x.exp() }
}

/// Airy's function Ai; NaN at both infinities, as in PyTorch.
pub fn airy_ai(x: f64) -> f64 {
    match x {
        _ if x.is_infinite() => f64::NAN,
        _ if x < far::AIRY_BELOW => far::airy(-x),
        _ if x <= 1.0 => airy_series(x),
        _ => {
            // 9.6.2
            let zeta = 2.0 / 3.0 * x * x.sqrt();
            (x / 3.0).sqrt() / PI * k_scaled(1.0 / 3.0, zeta) * (-zeta).exp()
        }
    }
}

/// Up to here I's power series, whose terms are all positive; beyond, its asymptotic series is complete.
const SERIES_TO: f64 = 24.0;

/// I_order by its power series (10.25.2), order 0 or 1.
fn i_series(x: f64, order: u32) -> f64 {
    let quarter = x * x / 4.0;
    let mut term = if order == 0 { 1.0 } else { x / 2.0 };
    let mut sum = term;
    for k in 1..200 {
        term *= quarter / (k as f64 * (k + order) as f64);
        sum += term;
        if term <= f64::EPSILON / 8.0 * sum {
            break;
        }
    }
    sum
}

/// e^-x I_order by the asymptotic series (10.40.1).
fn i_asymptotic(x: f64, order: u32) -> f64 {
    let mu = (4 * order * order) as f64;
    let (mut term, mut sum) = (1.0, 1.0);
    for k in 1..40 {
        let odd = (2 * k - 1) as f64;
        term *= (odd * odd - mu) / (8.0 * k as f64 * x);
        sum += term;
        if term.abs() <= f64::EPSILON / 8.0 * sum.abs() {
            break;
        }
    }
    if x.is_infinite() { 0.0 } else { sum / (2.0 * PI * x).sqrt() }
}

/// K0 for 0 < x <= 2 (10.31.2).
fn k0_series(x: f64) -> f64 {
    let quarter = x * x / 4.0;
    let (mut term, mut harmonic, mut sum) = (1.0, 0.0, 0.0);
    for k in 1..30 {
        term *= quarter / (k * k) as f64;
        harmonic += 1.0 / k as f64;
        sum += term * harmonic;
        if term * harmonic <= f64::EPSILON / 8.0 * sum {
            break;
        }
    }
    sum - ((x / 2.0).ln() + EULER) * i_series(x, 0)
}

/// e^x K_order(x) for x above about 0.6, from the integral of e^(-x (cosh t - 1)) cosh(order t) over t > 0 (10.32.9).
/// With sinh(t / 2) = u / sqrt(2 x) the integrand is e^(-u^2) times a smooth factor.
fn k_scaled(order: f64, x: f64) -> f64 {
    const STEP: f64 = 0.25;
    const STEPS: u32 = 26;
    let root = (2.0 * x).sqrt();
    let mut sum = 0.5;
    for i in 1..=STEPS {
        let u = STEP * i as f64;
        let s = u / root;
        let angle = if order == 0.0 { 1.0 } else { (order * 2.0 * s.asinh()).cosh() };
        sum += (-u * u).exp() * angle / (1.0 + s * s).sqrt();
    }
    sum * STEP * 2.0 / root
}

/// Ai by its power series (9.4.1).
fn airy_series(x: f64) -> f64 {
    /// Ai(0) and -Ai'(0).
    const VALUE: f64 = 0.355_028_053_887_817_2;
    const SLOPE: f64 = 0.258_819_403_792_806_8;
    let cube = x * x * x;
    let (mut even, mut odd) = (VALUE, SLOPE * x);
    let mut sum = even - odd;
    for k in 1..100 {
        let n = 3.0 * k as f64;
        even *= cube / (n * (n - 1.0));
        odd *= cube / (n * (n + 1.0));
        sum += even - odd;
        if even.abs() + odd.abs() <= f64::EPSILON / 16.0 * sum.abs() {
            break;
        }
    }
    sum
}
