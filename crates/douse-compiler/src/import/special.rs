//! Special functions of two operands, and those that are a formula: entropies, logits, multivariate gamma, orthogonal polynomials.

use std::f64::consts::{PI, SQRT_2};

use douse_core::pointwise::{Binary, Combine, Unary};
use douse_core::sym::Expr;
use douse_core::{Error, Result, Scalar};

use super::args::{Args, Val};
use super::formula::Formula;
use super::importer::{Importer, Row};
use super::pointwise::as_float;

/// Rows of the polynomials of x and degree n, for an overload that all of them have.
macro_rules! polynomials {
    ($overload:literal) => {
        polynomials! { @ $overload
            chebyshev_polynomial_t ChebyshevT; chebyshev_polynomial_u ChebyshevU; chebyshev_polynomial_v ChebyshevV;
            chebyshev_polynomial_w ChebyshevW; shifted_chebyshev_polynomial_t ShiftedChebyshevT;
            shifted_chebyshev_polynomial_u ShiftedChebyshevU; shifted_chebyshev_polynomial_v ShiftedChebyshevV;
            shifted_chebyshev_polynomial_w ShiftedChebyshevW; hermite_polynomial_h HermiteH;
            hermite_polynomial_he HermiteHe; laguerre_polynomial_l LaguerreL; legendre_polynomial_p LegendreP;
        }
    };
    (@ $overload:literal $($name:ident $op:ident;)*) => {
        &[$((concat!("aten.special_", stringify!($name), ".", $overload), |i, a| binary(i, a, ["x", "n"], Binary::$op)),)*]
    };
}

pub const POLYNOMIAL_ROWS: &[Row] = polynomials!("default");
pub const POLYNOMIAL_N_ROWS: &[Row] = polynomials!("n_scalar");
pub const POLYNOMIAL_X_ROWS: &[Row] = polynomials!("x_scalar");

pub const ROWS: &[Row] = &[
    ("aten.xlogy.Tensor", |i, a| times_log(i, a, Unary::Log)),
    ("aten.xlogy.Scalar_Other", |i, a| times_log(i, a, Unary::Log)),
    ("aten.xlogy.Scalar_Self", |i, a| times_log(i, a, Unary::Log)),
    ("aten.special_xlogy.default", |i, a| times_log(i, a, Unary::Log)),
    ("aten.special_xlogy.other_scalar", |i, a| times_log(i, a, Unary::Log)),
    ("aten.special_xlogy.self_scalar", |i, a| times_log(i, a, Unary::Log)),
    ("aten.special_xlog1py.default", |i, a| times_log(i, a, Unary::Log1p)),
    ("aten.special_xlog1py.other_scalar", |i, a| times_log(i, a, Unary::Log1p)),
    ("aten.special_xlog1py.self_scalar", |i, a| times_log(i, a, Unary::Log1p)),
    ("aten.logit.default", logit),
    ("aten.special_logit.default", logit),
    ("aten.special_entr.default", entr),
    ("aten.special_ndtr.default", ndtr),
    ("aten.igamma.default", |i, a| binary(i, a, ["self", "other"], Binary::Igamma)),
    ("aten.special_gammainc.default", |i, a| binary(i, a, ["self", "other"], Binary::Igamma)),
    ("aten.igammac.default", |i, a| binary(i, a, ["self", "other"], Binary::Igammac)),
    ("aten.special_gammaincc.default", |i, a| binary(i, a, ["self", "other"], Binary::Igammac)),
    ("aten.special_zeta.default", |i, a| binary(i, a, ["self", "other"], Binary::Zeta)),
    ("aten.special_zeta.other_scalar", |i, a| binary(i, a, ["self", "other"], Binary::Zeta)),
    ("aten.special_zeta.self_scalar", |i, a| binary(i, a, ["self", "other"], Binary::Zeta)),
    ("aten.polygamma.default", polygamma),
    ("aten.special_polygamma.default", polygamma),
    ("aten.mvlgamma.default", mvlgamma),
    ("aten.special_multigammaln.default", mvlgamma),
];

fn binary(imp: &mut Importer, a: &Args, names: [&str; 2], op: Binary) -> Result<Val> {
    let ([x, y], dtype) = imp.wide(a, names)?;
    imp.rounded(&x.binary(op, y), dtype)
}

/// x log(y), 0 where x is 0 unless y is NaN.
fn times_log(imp: &mut Importer, a: &Args, log: Unary) -> Result<Val> {
    let ([x, y], dtype) = imp.wide(a, ["self", "other"])?;
    let product = x.eq(0.0).select(0.0, &x * y.unary(log));
    imp.rounded(&y.is_nan().select(&y, product), dtype)
}

/// log(x / (1 - x)), of x brought into [eps, 1 - eps] where eps is given.
fn logit(imp: &mut Importer, a: &Args) -> Result<Val> {
    let ([mut x], dtype) = imp.wide(a, ["self"])?;
    if let Some(eps) = a.opt_float("eps")? {
        x = x.lt(eps).select(x.like(eps), x.gt(1.0 - eps).select(1.0 - eps, &x));
    }
    imp.rounded(&(&x / (1.0 - &x)).log(), dtype)
}

/// -x log(x): 0 at 0, -inf below.
fn entr(imp: &mut Importer, a: &Args) -> Result<Val> {
    let ([x], dtype) = imp.wide(a, ["self"])?;
    let rest = x.eq(0.0).select(x.like(0.0), f64::NEG_INFINITY);
    let result = x.gt(0.0).select(-&x * x.log(), rest);
    imp.rounded(&x.is_nan().select(&x, result), dtype)
}

/// The normal distribution function.
fn ndtr(imp: &mut Importer, a: &Args) -> Result<Val> {
    let ([x], dtype) = imp.wide(a, ["self"])?;
    imp.rounded(&((1.0 + (x / SQRT_2).erf()) * 0.5), dtype)
}

/// The n-th derivative of digamma.
fn polygamma(imp: &mut Importer, a: &Args) -> Result<Val> {
    let ([x], dtype) = imp.wide(a, ["self"])?;
    let n = a.int("n")?;
    if n < 0 {
        return Err(Error::invalid_program("polygamma(n, x) does not support negative n"));
    }
    let result = if n == 0 { x.unary(Unary::Digamma) } else { x.like(n as f64).binary(Binary::Polygamma, &x) };
    imp.rounded(&result, dtype)
}

/// The logarithm of the multivariate gamma function: lgamma(x + (1 - j) / 2) for j = 1..p added up, and p (p - 1) / 4 log(pi).
fn mvlgamma(imp: &mut Importer, a: &Args) -> Result<Val> {
    let p = a.int("p")?;
    let x = imp.value(a, "self")?;
    let x = as_float(imp, x);
    let dtype = imp.b.dtype(x);
    let wide = imp.b.cast(x, imp.compute_dtype(dtype));
    let rank = imp.b.rank(wide);
    let column = imp.b.unsqueeze(wide, rank)?;
    let compute = imp.b.dtype(wide);
    let iota = imp.b.iota(vec![Expr::int(p)], Expr::loop_var(0));
    let shift = Formula::from(iota).cast(compute) * 0.5 - (p - 1) as f64 / 2.0;
    let terms = (Formula::from(column) + shift).lgamma().build(&mut imp.b)?;
    let sum = imp.b.reduce(Combine::Sum, terms, &[rank])?;
    let constant = (p * (p - 1)) as f64 / 4.0 * PI.ln();
    let sum = imp.b.binary_scalar(Binary::Add, sum, Scalar::Float(constant))?;
    Ok(imp.b.cast(sum, dtype).into())
}
