//! The gamma function's family: its logarithm, the logarithm's derivatives, and Hurwitz's zeta function.

use std::f64::consts::PI;

/// The Bernoulli numbers B(2), B(4), ... divided by (2k)!, for the Euler-Maclaurin formula.
const BERNOULLI_OVER_FACTORIAL: [f64; 12] = [
    1.0 / 12.0,
    -1.0 / 720.0,
    1.0 / 30_240.0,
    -1.0 / 1_209_600.0,
    1.0 / 47_900_160.0,
    -691.0 / 1_307_674_368_000.0,
    1.0 / 74_724_249_600.0,
    -3617.0 / 10_670_622_842_880_000.0,
    43_867.0 / 5_109_094_217_170_944_000.0,
    -174_611.0 / 802_857_662_698_291_200_000.0,
    77_683.0 / 14_101_100_039_391_805_440_000.0,
    -236_364_091.0 / 1_693_824_136_731_743_669_452_800_000.0,
];

/// ln |gamma(x)|; infinite at 0 and the negative integers.
pub fn lgamma(x: f64) -> f64 {
    libm::lgamma(x)
}

/// The derivative of ln gamma. As in PyTorch, -inf at 0, inf at -0 and NaN at the negative integers.
///
/// Recurrence up to 10, then the asymptotic series (Abramowitz and Stegun, 6.3.18).
pub fn digamma(x: f64) -> f64 {
    /// B(2k) / 2k.
    const SERIES: [f64; 7] =
        [1.0 / 12.0, -1.0 / 120.0, 1.0 / 252.0, -1.0 / 240.0, 1.0 / 132.0, -691.0 / 32_760.0, 1.0 / 12.0];
    if x == 0.0 {
        return f64::INFINITY.copysign(-x);
    }
    if x < 0.0 {
        // The tangent of the fraction alone: pi * x would lose the fraction of a large x.
        return if x == x.trunc() { f64::NAN } else { digamma(1.0 - x) - PI / (PI * x.fract()).tan() };
    }
    let (mut shifted, mut sum) = (x, 0.0);
    while shifted < 10.0 {
        sum -= 1.0 / shifted;
        shifted += 1.0;
    }
    let inverse_square = 1.0 / (shifted * shifted);
    let tail = SERIES.iter().rev().fold(0.0, |acc, c| (acc + c) * inverse_square);
    sum + shifted.ln() - 0.5 / shifted - tail
}

/// The n-th derivative of digamma, n a whole number. NaN for n below 0; callers refuse it earlier, as PyTorch does.
pub fn polygamma(n: f64, x: f64) -> f64 {
    match n {
        _ if n.is_nan() || n < 0.0 => f64::NAN,
        0.0 => digamma(x),
        1.0 => trigamma(x),
        _ => {
            let sign = if n % 2.0 == 0.0 { -1.0 } else { 1.0 };
            sign * libm::lgamma(n + 1.0).exp() * zeta(n + 1.0, x)
        }
    }
}

/// The first derivative of digamma. The poles at the negative integers are as large as the rounding of pi leaves them,
/// as in PyTorch.
fn trigamma(x: f64) -> f64 {
    if x < 0.5 {
        let sine = (PI * x).sin();
        return PI * PI / (sine * sine) - trigamma(1.0 - x);
    }
    if x.is_infinite() { 0.0 } else { zeta(2.0, x) }
}

/// Hurwitz's zeta function, the sum of (q + k)^-x over k from 0. Infinite at x = 1 and at q = 0, -1, ...; NaN for x
/// below 1, for negative q unless x is an integer, and, as in PyTorch, at infinite q.
pub fn zeta(x: f64, q: f64) -> f64 {
    if x == 1.0 {
        return f64::INFINITY;
    }
    if x < 1.0 {
        return f64::NAN;
    }
    if q <= 0.0 {
        if q == q.floor() {
            return f64::INFINITY;
        }
        if x != x.floor() {
            return f64::NAN;
        }
        return zeta_left(x, q);
    }
    zeta_right(x, q)
}

/// The terms left of zero are a difference of two sums over positive numbers, so no loop is as long as q is large.
fn zeta_left(x: f64, q: f64) -> f64 {
    let below = -q.floor();
    let fraction = q + below;
    let sign = if x % 2.0 == 0.0 { 1.0 } else { -1.0 };
    zeta_right(x, fraction) + sign * (zeta_right(x, 1.0 - fraction) - zeta_right(x, 1.0 - q))
}

/// Euler and Maclaurin's formula from the first q + k of 10 or more, where the corrections fall quickly.
fn zeta_right(x: f64, q: f64) -> f64 {
    if q.is_infinite() {
        return f64::NAN;
    }
    let mut sum = 0.0;
    let mut base = q;
    while base < 10.0 {
        let term = base.powf(-x);
        sum += term;
        if term <= f64::EPSILON / 16.0 * sum {
            return sum;
        }
        base += 1.0;
    }
    let power = base.powf(-x);
    sum += power * base / (x - 1.0) + 0.5 * power;
    let mut factor = power * x / base;
    for (k, coefficient) in BERNOULLI_OVER_FACTORIAL.iter().enumerate() {
        let term = factor * coefficient;
        sum += term;
        if term.abs() <= f64::EPSILON / 16.0 * sum.abs() {
            break;
        }
        let step = x + (2 * k) as f64;
        factor *= (step + 1.0) * (step + 2.0) / (base * base);
    }
    sum
}

/// The regularised lower incomplete gamma function P(a, x).
pub fn igamma(a: f64, x: f64) -> f64 {
    match igamma_edge(a, x) {
        Some((lower, _)) => lower,
        None => incomplete_gamma(a, x).0,
    }
}

/// The regularised upper incomplete gamma function Q(a, x) = 1 - P(a, x).
pub fn igammac(a: f64, x: f64) -> f64 {
    match igamma_edge(a, x) {
        Some((_, upper)) => upper,
        None => incomplete_gamma(a, x).1,
    }
}

/// (P, Q) at the edges of the domain; nothing inside it. In PyTorch's order: a zero or infinity on one side decides before
/// NaN on the other.
fn igamma_edge(a: f64, x: f64) -> Option<(f64, f64)> {
    if a < 0.0 || x < 0.0 {
        return Some((f64::NAN, f64::NAN));
    }
    if a == 0.0 {
        return Some(if x > 0.0 { (1.0, 0.0) } else { (f64::NAN, f64::NAN) });
    }
    if x == 0.0 {
        return Some((0.0, 1.0));
    }
    if a.is_infinite() {
        return Some(if x.is_infinite() { (f64::NAN, f64::NAN) } else { (0.0, 1.0) });
    }
    if x.is_infinite() {
        return Some((1.0, 0.0));
    }
    if a.is_nan() || x.is_nan() { Some((f64::NAN, f64::NAN)) } else { None }
}

/// Above this `a` the number of terms, which grows with its root, is not worth what the expansion leaves out.
const UNIFORM_FROM: f64 = 1e6;

/// (P, Q) for positive finite a and x: a series or a continued fraction, whichever gives the smaller of the two, and
/// for huge a the uniform expansion.
fn incomplete_gamma(a: f64, x: f64) -> (f64, f64) {
    if a > UNIFORM_FROM {
        return incomplete_gamma_uniform(a, x);
    }
    let scale = gamma_density(a, x);
    if x < a + 1.0 {
        let lower = scale * gamma_series(a, x);
        // For small a and x, P is near 1 and Q is not; Q = 1 - P then loses what the expansion at 0 keeps.
        let upper = if a < 0.5 && x < 1.0 { small_upper(a, x) } else { 1.0 - lower };
        (lower.min(1.0), upper)
    } else {
        let upper = scale * gamma_fraction(a, x);
        (1.0 - upper, upper)
    }
}

/// x^a e^-x / gamma(a + 1). Near x = a the large logarithms cancel, so they are taken together with Stirling's formula.
fn gamma_density(a: f64, x: f64) -> f64 {
    if a < 20.0 {
        return (a * x.ln() - x - libm::lgamma(a + 1.0)).exp();
    }
    let inverse_square = 1.0 / (a * a);
    let stirling =
        (1.0 / 12.0 - (1.0 / 360.0 - (1.0 / 1260.0 - inverse_square / 1680.0) * inverse_square) * inverse_square) / a;
    (a * log1p_minus(x / a, (x - a) / a) - stirling).exp() / (2.0 * PI * a).sqrt()
}

/// ln(ratio) - excess for excess = ratio - 1, by its series where the two nearly cancel.
fn log1p_minus(ratio: f64, excess: f64) -> f64 {
    if excess.abs() > 0.3 {
        return ratio.ln() - excess;
    }
    let (mut power, mut sum) = (-excess * excess, 0.0);
    for k in 2..64 {
        let term = power / k as f64;
        sum += term;
        if term.abs() <= f64::EPSILON / 8.0 * sum.abs() {
            break;
        }
        power *= -excess;
    }
    sum
}

/// 1 + x/(a+1) + x^2/((a+1)(a+2)) + ...
fn gamma_series(a: f64, x: f64) -> f64 {
    let (mut term, mut sum, mut denominator) = (1.0, 1.0, a);
    for _ in 0..20_000 {
        denominator += 1.0;
        term *= x / denominator;
        sum += term;
        if term <= f64::EPSILON / 8.0 * sum {
            break;
        }
    }
    sum
}

/// Legendre's continued fraction for gamma(a, x) e^x x^-a, times a, evaluated by Lentz's method.
fn gamma_fraction(a: f64, x: f64) -> f64 {
    const TINY: f64 = 1e-300;
    let mut b = x + 1.0 - a;
    let mut c = 1.0 / TINY;
    let mut d = 1.0 / b;
    let mut h = d;
    for i in 1..20_000 {
        let numerator = -(i as f64) * (i as f64 - a);
        b += 2.0;
        d = 1.0 / nonzero(numerator * d + b, TINY);
        c = nonzero(b + numerator / c, TINY);
        let step = d * c;
        h *= step;
        if (step - 1.0).abs() <= f64::EPSILON {
            break;
        }
    }
    a * h
}

fn nonzero(x: f64, tiny: f64) -> f64 {
    if x.abs() < tiny { tiny } else { x }
}

/// Q(a, x) = 1 - x^a / gamma(a + 1) * (1 + a * sum of (-x)^k / (k! (a + k))).
fn small_upper(a: f64, x: f64) -> f64 {
    let (mut power, mut sum) = (1.0, 0.0);
    for k in 1..40 {
        power *= -x / k as f64;
        let term = power / (a + k as f64);
        sum += term;
        if term.abs() <= f64::EPSILON / 8.0 * sum.abs() {
            break;
        }
    }
    let log_scale = a * x.ln() - libm::lgamma(a + 1.0);
    -log_scale.exp_m1() - log_scale.exp() * a * sum
}

/// The first term of Temme's uniform expansion ("The asymptotic expansion of the incomplete gamma functions", 1979); the
/// next is smaller by 1 / a.
fn incomplete_gamma_uniform(a: f64, x: f64) -> (f64, f64) {
    let excess = (x - a) / a;
    let half_square = -log1p_minus(x / a, excess);
    let eta = (2.0 * half_square).sqrt().copysign(excess);
    let correction = if eta.abs() < 1e-2 {
        -1.0 / 3.0 + eta / 12.0 - 2.0 * eta * eta / 135.0 + eta * eta * eta / 864.0
    } else {
        1.0 / excess - 1.0 / eta
    };
    let rest = (-a * half_square).exp() / (2.0 * PI * a).sqrt() * correction;
    let argument = eta * (a / 2.0).sqrt();
    (0.5 * libm::erfc(-argument) - rest, 0.5 * libm::erfc(argument) + rest)
}
