//! Float32 functions for inner loops: no branches, calls or tables, so that a loop over a slice becomes vector code.
//!
//! Within 1.5 units in the last place (sigmoid 2.2), subnormal results included, and exact at zeros, infinities and NaN. Multiplication and
//! addition are written apart: a fused one is a slow call where the processor has none. A `for` loop that calls one of
//! these compiles for the processor features of the function around it.
//!
//! Each reduces its argument to a short interval and there uses a polynomial; `scripts/fit_polynomials.py` made them.
//! sin and cos hold for |x| up to `TRIG_BOUND`; `sin_slice` and `cos_slice` for every x.

use std::f32::consts::{FRAC_1_SQRT_2, LN_2, LOG2_E};

/// (e^r - 1 - r) / r^2.
const EXP: [f32; 6] = [0.5, 0.166_666_67, 0.041_666_493, 0.008_333_205, 0.001_393_232, 0.000_199_467_8];
/// (2^r - 1) / r.
const EXP2: [f32; 6] = [LN_2, 0.240_226_5, 0.055_503_603, 0.009_618_064, 0.001_339_064_8, 0.000_154_620_82];
/// (ln(1 + f) - f + f^2 / 2) / f^3.
const LOG: [f32; 9] = [
    0.333_333_13,
    -0.249_999_87,
    0.200_020_64,
    -0.166_691_68,
    0.142_213_87,
    -0.123_869_28,
    0.118_575_156,
    -0.117_710_58,
    0.069_257_02,
];
/// (log2(1 + f) - f) / f.
const LOG2: [f32; 10] = [
    0.442_695_05,
    -0.721_347_5,
    0.480_896_4,
    -0.360_683_08,
    0.288_629_6,
    -0.239_946_62,
    0.203_896_73,
    -0.188_015_65,
    0.188_592_54,
    -0.119_229_33,
];
/// (tanh(x) - x) / x^3, in x^2.
const TANH: [f32; 5] = [-0.333_332_9, 0.133_316_1, -0.053_751_692, 0.020_673_66, -0.005_739_907];
/// (erf(x) - x) / x, in x^2.
const ERF: [f32; 7] =
    [0.128_379_17, -0.376_126_3, 0.112_836_18, -0.026_855_126, 0.005_190_734, -0.000_803_076_14, 7.920_368e-5];
/// ln(erfc(x)) / x.
const ERFC: [f32; 8] = [
    -1.128_599_6,
    -0.635_409_83,
    -0.105_669_655,
    0.023_092_313,
    -0.003_182_461_3,
    0.000_138_923_79,
    2.839_836_8e-5,
    -3.553_709e-6,
];
/// (sin(r) - r) / r^3, in r^2.
const SIN: [f32; 4] = [-0.166_666_67, 0.008_333_381, -0.000_198_539_11, 2.841_622_5e-6];
/// (cos(r) - 1 + r^2 / 2) / r^4, in r^2.
const COS: [f32; 3] = [0.041_666_646, -0.001_388_729_9, 2.443_021e-5];

/// ln 2 in two parts, the first with so few bits that its product with an exponent is exact.
const LN2_HIGH: f32 = 0.693_359_4;
const LN2_LOW: f32 = -2.121_944_4e-4;

/// Adding this to a float32 below 2^22 leaves the nearest integer in the low bits.
const ROUND: f32 = 12_582_912.0;

/// The polynomial with these coefficients, constant first.
#[inline(always)]
fn polynomial<const N: usize>(x: f32, coefficients: [f32; N]) -> f32 {
    let mut sum = 0.0;
    for c in coefficients.into_iter().rev() {
        sum = sum * x + c;
    }
    sum
}

/// x within bounds; NaN stays.
#[inline(always)]
fn clamp(x: f32, low: f32, high: f32) -> f32 {
    let x = if x < low { low } else { x };
    if x > high { high } else { x }
}

/// The nearest integer, as float and integer, for |x| below 2^22.
#[inline(always)]
fn nearest(x: f32) -> (f32, i32) {
    let shifted = x + ROUND;
    (shifted - ROUND, shifted.to_bits().wrapping_sub(ROUND.to_bits()) as i32)
}

/// 2^k for -126 <= k <= 127.
#[inline(always)]
fn power_of_two(k: i32) -> f32 {
    f32::from_bits((k.wrapping_add(127) as u32) << 23)
}

/// x 2^k for results from subnormal to infinite, rounded once: each half of k is a normal number's exponent.
#[inline(always)]
fn scale(x: f32, k: i32) -> f32 {
    let half = k >> 1;
    x * power_of_two(half) * power_of_two(k.wrapping_sub(half))
}

/// x = k ln 2 + r, |r| <= ln 2 / 2: (r, k), for |x| below 2^15.
#[inline(always)]
fn reduce_exp(x: f32) -> (f32, i32) {
    let (k, exponent) = nearest(x * LOG2_E);
    (x - k * LN2_HIGH - k * LN2_LOW, exponent)
}

/// e^r - 1 for |r| <= ln 2 / 2.
#[inline(always)]
fn exp_minus_one(r: f32) -> f32 {
    r + r * r * polynomial(r, EXP)
}

#[inline(always)]
pub fn exp(x: f32) -> f32 {
    // Beyond these the result is 0 or infinite.
    let (r, k) = reduce_exp(clamp(x, -104.0, 89.0));
    scale(1.0 + exp_minus_one(r), k)
}

#[inline(always)]
pub fn exp2(x: f32) -> f32 {
    let x = clamp(x, -151.0, 129.0);
    let (k, exponent) = nearest(x);
    let r = x - k;
    scale(1.0 + r * polynomial(r, EXP2), exponent)
}

#[inline(always)]
pub fn expm1(x: f32) -> f32 {
    let (r, k) = reduce_exp(clamp(x, -20.0, 89.0));
    let p = exp_minus_one(r);
    // Half of 2^k, since 2^128 is no float32 though most of what it scales is.
    let half = power_of_two(k.wrapping_sub(1));
    let scaled = (half * p + (half - 0.5)) * 2.0;
    let value = if k == 0 { p } else { scaled };
    value.copysign(x)
}

/// m, e with x = m 2^e and sqrt(1/2) <= m < sqrt(2), for positive normal x.
#[inline(always)]
fn split(x: f32) -> (f32, i32) {
    let shifted = x.to_bits().wrapping_sub(FRAC_1_SQRT_2.to_bits());
    let exponent = shifted as i32 >> 23;
    (f32::from_bits(x.to_bits().wrapping_sub((exponent << 23) as u32)), exponent)
}

/// `split` for every positive x: subnormals are scaled first.
#[inline(always)]
fn split_any(x: f32) -> (f32, f32) {
    let small = x < f32::MIN_POSITIVE;
    let (m, e) = split(if small { x * 8_388_608.0 } else { x });
    (m, e as f32 - if small { 23.0 } else { 0.0 })
}

/// ln(1 + f) + e ln 2 + low, for |f| < 0.42 and a small `low`.
#[inline(always)]
fn log_sum(f: f32, e: f32, low: f32) -> f32 {
    let square = f * f;
    let rest = square * f * polynomial(f, LOG) + (e * LN2_LOW + low) - 0.5 * square;
    e * LN2_HIGH + (f + rest)
}

/// `value` where a logarithm's argument is positive and finite, else -inf, NaN or infinity.
#[inline(always)]
fn log_edges(argument: f32, value: f32) -> f32 {
    let value = if argument < f32::INFINITY { value } else { argument };
    let value = if argument == 0.0 { f32::NEG_INFINITY } else { value };
    if argument < 0.0 { f32::NAN } else { value }
}

#[inline(always)]
pub fn log(x: f32) -> f32 {
    let (m, e) = split_any(x);
    log_edges(x, log_sum(m - 1.0, e, 0.0))
}

#[inline(always)]
pub fn log2(x: f32) -> f32 {
    let (m, e) = split_any(x);
    let f = m - 1.0;
    log_edges(x, e + (f + f * polynomial(f, LOG2)))
}

#[inline(always)]
pub fn log1p(x: f32) -> f32 {
    let u = 1.0 + x;
    let (m, e) = split(u);
    // What rounding took from 1 + x, put back to first order; near 0 the logarithm's own argument is used instead.
    let lost = if x < 1.0 { x - (u - 1.0) } else { 1.0 - (u - x) } / u;
    let near = e == 0;
    let f = if near { x } else { m - 1.0 };
    let value = log_sum(f, e as f32, if near { 0.0 } else { lost });
    log_edges(u, if x == 0.0 { x } else { value })
}

#[inline(always)]
pub fn tanh(x: f32) -> f32 {
    let magnitude = x.abs();
    let square = x * x;
    let near = magnitude + magnitude * square * polynomial(square, TANH);
    let far = 1.0 - 2.0 / (exp(2.0 * magnitude) + 1.0);
    (if magnitude < 0.625 { near } else { far }).copysign(x)
}

/// 1 / (1 + e^-x).
#[inline(always)]
pub fn sigmoid(x: f32) -> f32 {
    // e^-|x| cannot overflow, so that far left the result fades through the subnormals.
    let e = exp(-x.abs());
    let above = if x < 0.0 { e } else { 1.0 };
    above / (1.0 + e)
}

#[inline(always)]
pub fn erf(x: f32) -> f32 {
    let magnitude = x.abs();
    let square = x * x;
    let near = magnitude + magnitude * polynomial(square, ERF);
    // From 4 on erfc is below half a unit in the last place of 1.
    let t = clamp(magnitude, 0.0, 4.0);
    let far = 1.0 - exp(t * polynomial(t, ERFC));
    (if magnitude < 1.0 { near } else { far }).copysign(x)
}

#[inline(always)]
pub fn rsqrt(x: f32) -> f32 {
    1.0 / x.sqrt()
}

/// Up to here `sin` and `cos` keep their accuracy.
pub const TRIG_BOUND: f32 = 1e6;

/// x = k pi/2 + r, |r| <= pi/4: (r, k mod 2^32), for |x| <= `TRIG_BOUND`. In float64, where 33 bits of pi/2 times k are
/// exact.
#[inline(always)]
fn reduce_quadrant(x: f32) -> (f32, u32) {
    const ROUND: f64 = 6_755_399_441_055_744.0;
    const HIGH: f64 = 1.570_796_326_734_125_6;
    const LOW: f64 = 6.077_100_506_506_192e-11;
    let x = x as f64;
    let shifted = x * std::f64::consts::FRAC_2_PI + ROUND;
    let k = shifted - ROUND;
    ((x - k * HIGH - k * LOW) as f32, shifted.to_bits() as u32)
}

/// sin(r), or cos(r) for odd quadrants, negated for the quadrants 2 and 3.
#[inline(always)]
fn quadrant(r: f32, quadrant: u32) -> f32 {
    let square = r * r;
    let sine = r + r * square * polynomial(square, SIN);
    let cosine = 1.0 - 0.5 * square + square * square * polynomial(square, COS);
    let value = if quadrant & 1 == 0 { sine } else { cosine };
    f32::from_bits(value.to_bits() ^ ((quadrant & 2) << 30))
}

/// For |x| <= `TRIG_BOUND`; NaN at infinity.
#[inline(always)]
pub fn sin(x: f32) -> f32 {
    let (r, k) = reduce_quadrant(x);
    let value = quadrant(r, k);
    if x == 0.0 { x } else { value }
}

/// For |x| <= `TRIG_BOUND`; NaN at infinity.
#[inline(always)]
pub fn cos(x: f32) -> f32 {
    let (r, k) = reduce_quadrant(x);
    quadrant(r, k.wrapping_add(1))
}

/// `out[i] = sin(x[i])` for every x; a block with an argument beyond `TRIG_BOUND` takes the slower way.
#[inline(always)]
pub fn sin_slice(x: &[f32], out: &mut [f32]) {
    trig_slice(x, out, sin, f32::sin);
}

/// `out[i] = cos(x[i])` for every x; a block with an argument beyond `TRIG_BOUND` takes the slower way.
#[inline(always)]
pub fn cos_slice(x: &[f32], out: &mut [f32]) {
    trig_slice(x, out, cos, f32::cos);
}

#[inline(always)]
fn trig_slice(x: &[f32], out: &mut [f32], near: impl Fn(f32) -> f32, any: impl Fn(f32) -> f32) {
    const BLOCK: usize = 256;
    for (x, out) in x.chunks(BLOCK).zip(out.chunks_mut(BLOCK)) {
        let beyond = x.iter().fold(false, |beyond, x| beyond | (x.abs() > TRIG_BOUND));
        if beyond {
            for (out, &x) in out.iter_mut().zip(x) {
                *out = any(x);
            }
        } else {
            for (out, &x) in out.iter_mut().zip(x) {
                *out = near(x);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Case = (&'static str, fn(f32) -> f32, fn(f64) -> f64, f64);

    /// Name, function, the same in float64, and the allowed error in units in the last place.
    const CASES: &[Case] = &[
        ("exp", exp, f64::exp, 1.5),
        ("exp2", exp2, f64::exp2, 1.5),
        ("expm1", expm1, f64::exp_m1, 1.5),
        ("log", log, f64::ln, 1.5),
        ("log2", log2, f64::log2, 1.5),
        ("log1p", log1p, f64::ln_1p, 1.5),
        ("tanh", tanh, f64::tanh, 1.5),
        ("sigmoid", sigmoid, |x| 1.0 / (1.0 + (-x).exp()), 2.2),
        ("erf", erf, libm::erf, 1.5),
        ("rsqrt", rsqrt, |x| 1.0 / x.sqrt(), 1.5),
        ("sin", sin, f64::sin, 1.5),
        ("cos", cos, f64::cos, 1.5),
    ];

    /// The distance between a float32 and an exact value in units of the float32 grid at that value.
    fn error(found: f32, exact: f64) -> f64 {
        let rounded = exact as f32;
        if found.to_bits() == rounded.to_bits() || found.is_nan() && exact.is_nan() {
            return 0.0;
        }
        if !found.is_finite() || !rounded.is_finite() || found.is_sign_negative() != rounded.is_sign_negative() {
            return f64::INFINITY;
        }
        let exponent = (rounded.abs().to_bits() >> 23).max(1) as i32 - 127;
        (found as f64 - exact).abs() / 2f64.powi(exponent - 23)
    }

    /// Every 4099th bit pattern, and all near the edges of the domains and of the reductions.
    fn arguments() -> impl Iterator<Item = f32> {
        const AT: [f32; 18] = [
            0.0,
            1e-38,
            1.2e-38,
            0.34657,
            0.625,
            FRAC_1_SQRT_2,
            1.0,
            std::f32::consts::SQRT_2,
            2.0,
            4.0,
            16.6,
            88.72,
            87.33,
            103.97,
            127.5,
            149.5,
            3.4028235e38,
            1e6,
        ];
        let strided = (0..=u32::MAX / 4099).map(|i| f32::from_bits(i * 4099));
        let near = AT.into_iter().flat_map(|at| {
            let bits = at.to_bits();
            (bits.saturating_sub(3000)..=(bits + 3000).min(f32::INFINITY.to_bits() + 1)).map(f32::from_bits)
        });
        strided.chain(near.flat_map(|x| [x, -x]))
    }

    #[test]
    fn errors_are_within_the_units_promised() {
        let mut wrong = Vec::new();
        for &(name, function, exact, allowed) in CASES {
            let trigonometric = ["sin", "cos"].contains(&name);
            let (mut worst, mut at) = (0.0, 0.0);
            for x in arguments().filter(|x| !trigonometric || !x.is_finite() || x.abs() <= TRIG_BOUND) {
                let found = error(function(x), exact(x as f64));
                if found > worst {
                    (worst, at) = (found, x);
                }
            }
            if worst > allowed {
                wrong.push(format!(
                    "{name}({at:e}) = {:e} is {worst:.2} units from {:e}",
                    function(at),
                    exact(at as f64)
                ));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn sines_of_any_size() {
        let x: Vec<f32> = (0..1000).map(|i| (i as f32 - 500.0) * if i < 300 { 0.1 } else { 1e5 }).collect();
        let (mut sines, mut cosines) = (vec![0.0; 1000], vec![0.0; 1000]);
        sin_slice(&x, &mut sines);
        cos_slice(&x, &mut cosines);
        for (i, &x) in x.iter().enumerate() {
            assert!(error(sines[i], (x as f64).sin()) < 1.5 && error(cosines[i], (x as f64).cos()) < 1.5, "{x}");
        }
    }
}
