//! The functions of float64 by name, for whatever looks them up or goes through all of them.

use super::{bessel, error_function, float, gamma, logarithm, polynomial};

#[derive(Clone, Copy, Debug)]
pub enum Function {
    Unary(fn(f64) -> f64),
    Binary(fn(f64, f64) -> f64),
    /// A family's member `n` at x.
    Degree(fn(f64, i64) -> f64),
}

/// A function and the name PyTorch gives it, as in `torch.special.NAME` or `torch.NAME`.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    pub name: &'static str,
    pub function: Function,
}

impl Row {
    /// Arguments, the degree included.
    pub const fn arity(&self) -> usize {
        match self.function {
            Function::Unary(_) => 1,
            Function::Binary(_) | Function::Degree(_) => 2,
        }
    }

    /// The function of `x` and, where it takes a second argument, `y`; a degree becomes an integer by
    /// `polynomial::degree`.
    pub fn call(&self, x: f64, y: f64) -> f64 {
        match self.function {
            Function::Unary(f) => f(x),
            Function::Binary(f) => f(x, y),
            Function::Degree(f) => f(x, polynomial::degree(y)),
        }
    }
}

/// The function with this name.
pub fn find(name: &str) -> Option<&'static Row> {
    FUNCTIONS.iter().find(|row| row.name == name)
}

macro_rules! functions {
    ($($kind:ident { $($module:ident: $($name:ident)*;)* })*) => {
        &[$($($(Row { name: stringify!($name), function: Function::$kind($module::$name) },)*)*)*]
    };
}

pub const FUNCTIONS: &[Row] = functions! {
    Unary {
        bessel: airy_ai bessel_j0 bessel_j1 bessel_y0 bessel_y1 i0 i0e i1 i1e modified_bessel_k0 modified_bessel_k1
            scaled_modified_bessel_k0 scaled_modified_bessel_k1 spherical_bessel_j0;
        error_function: erf erfc erfcx erfinv log_ndtr ndtr ndtri;
        float: frac round sign;
        gamma: digamma lgamma;
        logarithm: entr logit sinc;
    }
    Binary {
        float: copysign floor_divide fmax fmin fmod heaviside hypot ldexp maximum minimum nextafter remainder;
        gamma: igamma igammac polygamma zeta;
        logarithm: logaddexp logaddexp2 xlog1py xlogy;
    }
    Degree {
        float: round_decimals;
        polynomial: chebyshev_polynomial_t chebyshev_polynomial_u chebyshev_polynomial_v chebyshev_polynomial_w
            hermite_polynomial_h hermite_polynomial_he laguerre_polynomial_l legendre_polynomial_p
            shifted_chebyshev_polynomial_t shifted_chebyshev_polynomial_u shifted_chebyshev_polynomial_v
            shifted_chebyshev_polynomial_w;
    }
};

#[cfg(test)]
mod tests {
    use super::*;

    fn agrees(found: f64, expected: f64) -> bool {
        if expected == 0.0 || !expected.is_finite() {
            let sign = expected.is_nan() || found.is_sign_negative() == expected.is_sign_negative();
            return sign && (found == expected || found.is_nan() && expected.is_nan());
        }
        (found - expected).abs() <= 1e-8 * expected.abs()
    }

    /// PyTorch's answers, recorded by `scripts/make_math_reference.py`.
    #[test]
    fn every_function_gives_pytorchs_answer() {
        let mut wrong = Vec::new();
        let mut seen = Vec::new();
        for line in include_str!("reference.txt").lines() {
            let mut items = line.split(' ');
            let name = items.next().unwrap();
            let row = find(name).unwrap_or_else(|| panic!("{name} is not in the table"));
            seen.push(name);
            for item in items {
                let (arguments, expected) = item.split_once('=').unwrap();
                let numbers: Vec<f64> = arguments.split(',').map(|a| a.parse().unwrap()).collect();
                assert_eq!(numbers.len(), row.arity(), "{name}");
                let expected: f64 = expected.parse().unwrap();
                let found = row.call(numbers[0], numbers.get(1).copied().unwrap_or(0.0));
                if !agrees(found, expected) {
                    wrong.push(format!("{name}({arguments}) = {found:e}, PyTorch {expected:e}"));
                }
            }
        }
        assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
        let untested: Vec<_> = FUNCTIONS.iter().filter(|row| !seen.contains(&row.name)).map(|row| row.name).collect();
        assert!(untested.is_empty(), "no reference for {untested:?}");
    }
}
