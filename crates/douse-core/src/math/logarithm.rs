//! Functions around the logarithm, and others that need only a line: entropy terms, sums of exponentials, sinc.

/// -x ln x: 0 at 0, -inf below.
pub fn entr(x: f64) -> f64 {
    match x {
        _ if x.is_nan() => x,
        _ if x > 0.0 => -x * x.ln(),
        0.0 => 0.0,
        _ => f64::NEG_INFINITY,
    }
}

/// x ln y, and 0 where x is 0, unless y is NaN.
pub fn xlogy(x: f64, y: f64) -> f64 {
    match x {
        _ if y.is_nan() => f64::NAN,
        0.0 => 0.0,
        _ => x * y.ln(),
    }
}

/// x ln(1 + y), and 0 where x is 0, unless y is NaN.
pub fn xlog1py(x: f64, y: f64) -> f64 {
    match x {
        _ if y.is_nan() => f64::NAN,
        0.0 => 0.0,
        _ => x * y.ln_1p(),
    }
}

/// ln(x / (1 - x)).
pub fn logit(x: f64) -> f64 {
    (x / (1.0 - x)).ln()
}

/// ln(e^a + e^b).
pub fn logaddexp(a: f64, b: f64) -> f64 {
    if a.is_infinite() && a == b {
        return a;
    }
    super::float::maximum(a, b) + (-(a - b).abs()).exp().ln_1p()
}

/// log2(2^a + 2^b).
pub fn logaddexp2(a: f64, b: f64) -> f64 {
    if a.is_infinite() && a == b {
        return a;
    }
    super::float::maximum(a, b) + (-(a - b).abs()).exp2().ln_1p() * std::f64::consts::LOG2_E
}

/// sin(pi x) / (pi x).
pub fn sinc(x: f64) -> f64 {
    if x == 0.0 {
        return 1.0;
    }
    let product = std::f64::consts::PI * x;
    product.sin() / product
}
