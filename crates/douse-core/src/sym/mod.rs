//! Symbolic integers: sizes that are known only at run time, and the index expressions over them.
//!
//! An [`Expr`] is a polynomial with integer coefficients over *atoms* (symbols, floor divisions,
//! remainders, minima, maxima, ...), kept in one canonical order, so that two expressions that are equal as polynomials are
//! equal as values. Constants are polynomials without terms and cost nothing.
//!
//! Division and remainder floor, as Python's do. [`Ranges`] says what is known of each symbol;
//! [`Expr::simplify`] uses it to remove divisions and remainders whose outcome is known.

mod bounds;
mod cond;
mod expr;
mod simplify;
mod text;

pub use bounds::{Bound, Ranges};
pub use cond::{Compare, Cond};
pub use expr::{Atom, Expr, Symbol, Term};
pub use text::ParseError;
