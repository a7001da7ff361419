//! Orthogonal polynomials of degree n at x, by their three-term recurrences and, inside [-1, 1] and for higher degrees,
//! Chebyshev's by trigonometry, switching where PyTorch switches. Degrees below 0 give 0.

/// One past the highest degree of a Hermite polynomial PyTorch computes in float64; higher ones are NaN.
const HERMITE_LIMIT: i64 = 512;

/// The degree a floating-point argument means: cut to an integer, and below 0 where no integer is that large or NaN, as
/// PyTorch's conversion on x86 has it.
pub fn degree(n: f64) -> i64 {
    if n.abs() < 9.2e18 { n as i64 } else { -1 }
}

/// T_n: first kind.
pub fn chebyshev_polynomial_t(x: f64, n: i64) -> f64 {
    if x.abs() == 1.0 {
        return if n < 0 { 0.0 } else { edge(x, n, 1.0, 1.0) };
    }
    if n > 6 && x.abs() < 1.0 {
        return (n as f64 * x.acos()).cos();
    }
    chebyshev(x, n, x)
}

/// U_n: second kind.
pub fn chebyshev_polynomial_u(x: f64, n: i64) -> f64 {
    if x.abs() == 1.0 {
        return if n < 0 { 0.0 } else { edge(x, n, n as f64 + 1.0, n as f64 + 1.0) };
    }
    if n > 8 && x.abs() < 1.0 {
        return second_kind(x, n);
    }
    chebyshev(x, n, x + x)
}

/// V_n: third kind.
pub fn chebyshev_polynomial_v(x: f64, n: i64) -> f64 {
    if x.abs() == 1.0 {
        return if n < 0 { 0.0 } else { edge(x, n, 1.0, (n + n + 1) as f64) };
    }
    if n > 8 && x.abs() < 1.0 {
        return third_kind(x, n);
    }
    chebyshev(x, n, x + x - 1.0)
}

/// W_n: fourth kind.
pub fn chebyshev_polynomial_w(x: f64, n: i64) -> f64 {
    if x.abs() == 1.0 {
        return if n < 0 { 0.0 } else { edge(x, n, (n + n + 1) as f64, 1.0) };
    }
    if n > 8 && x.abs() < 1.0 {
        return fourth_kind(x, n);
    }
    chebyshev(x, n, x + x + 1.0)
}

/// T_n(2x - 1).
pub fn shifted_chebyshev_polynomial_t(x: f64, n: i64) -> f64 {
    let x = x + x - 1.0;
    if n > 6 && x.abs() < 1.0 { (n as f64 * x.acos()).cos() } else { chebyshev_polynomial_t(x, n) }
}

/// U_n(2x - 1).
pub fn shifted_chebyshev_polynomial_u(x: f64, n: i64) -> f64 {
    let x = x + x - 1.0;
    if n > 6 && x.abs() < 1.0 { second_kind(x, n) } else { chebyshev_polynomial_u(x, n) }
}

/// V_n(2x - 1).
pub fn shifted_chebyshev_polynomial_v(x: f64, n: i64) -> f64 {
    let x = x + x - 1.0;
    if n > 6 && x.abs() < 1.0 { third_kind(x, n) } else { chebyshev_polynomial_v(x, n) }
}

/// W_n(2x - 1).
pub fn shifted_chebyshev_polynomial_w(x: f64, n: i64) -> f64 {
    let x = x + x - 1.0;
    if n > 4 && x.abs() < 1.0 { fourth_kind(x, n) } else { chebyshev_polynomial_w(x, n) }
}

/// The physicists' H_n.
pub fn hermite_polynomial_h(x: f64, n: i64) -> f64 {
    if n > HERMITE_LIMIT {
        return f64::NAN;
    }
    recur(n, x + x, |k, q, p| (x + x) * q - (k + k) * p)
}

/// The probabilists' He_n.
pub fn hermite_polynomial_he(x: f64, n: i64) -> f64 {
    if n > HERMITE_LIMIT {
        return f64::NAN;
    }
    recur(n, x, |k, q, p| x * q - k * p)
}

/// L_n.
pub fn laguerre_polynomial_l(x: f64, n: i64) -> f64 {
    if x == 0.0 {
        return if n < 0 { 0.0 } else { 1.0 };
    }
    recur(n, 1.0 - x, |k, q, p| ((k + k + 1.0 - x) * q - k * p) / (k + 1.0))
}

/// P_n.
pub fn legendre_polynomial_p(x: f64, n: i64) -> f64 {
    if x.abs() == 1.0 {
        return if n < 0 { 0.0 } else { edge(x, n, 1.0, 1.0) };
    }
    recur(n, x, |k, q, p| ((k + k + 1.0) * x * q - k * p) / (k + 1.0))
}

/// The value at 1, or at -1 with its alternating sign.
fn edge(x: f64, n: i64, right: f64, left: f64) -> f64 {
    match (x > 0.0, n % 2 == 0) {
        (true, _) => right,
        (false, true) => left,
        (false, false) => -left,
    }
}

/// The recurrence all four kinds share; they differ in degree 1.
fn chebyshev(x: f64, n: i64, first: f64) -> f64 {
    recur(n, first, |_, q, p| (x + x) * q - p)
}

/// Degree n from degree 0, which is 1, and degree 1; `step(k, q, p)` gives degree k + 1 from degrees k and k - 1.
/// Stops at NaN, which no further step can leave.
fn recur(n: i64, first: f64, step: impl Fn(f64, f64, f64) -> f64) -> f64 {
    if n < 1 {
        return if n < 0 { 0.0 } else { 1.0 };
    }
    let (mut p, mut q) = (1.0, first);
    for k in 1..n {
        if q.is_nan() {
            break;
        }
        (p, q) = (q, step(k as f64, q, p));
    }
    q
}

fn second_kind(x: f64, n: i64) -> f64 {
    let angle = x.acos();
    let degree = (n + 1) as f64;
    match angle.sin() {
        0.0 => degree * (degree * angle).cos() / x,
        sine => (degree * angle).sin() / sine,
    }
}

fn third_kind(x: f64, n: i64) -> f64 {
    let angle = x.acos();
    let degree = n as f64 + 0.5;
    if (angle / 2.0).sin() != 1.0 {
        return (degree * angle).cos() / (angle / 2.0).cos();
    }
    edge(-1.0, n, 1.0, (n + n + 1) as f64)
}

fn fourth_kind(x: f64, n: i64) -> f64 {
    let angle = x.acos();
    let degree = n as f64 + 0.5;
    if (angle / 2.0).cos() != 1.0 {
        return (degree * angle).sin() / (angle / 2.0).sin();
    }
    edge(x, n, (n + n + 1) as f64, 1.0)
}
