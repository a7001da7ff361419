//! Conditions on sizes without which a call has no answer.

use std::fmt::Display;

use douse_core::sym::{Compare, Cond, Expr};
use douse_core::{DType, Result, Scalar};

use super::args::{Args, Number, Val};
use super::function::largest;
use super::importer::Importer;

/// Whether a dtype can hold a number, cut to an integer or rounded. Infinities and NaN fit in floats, and negative numbers wrap in unsigned dtypes.
fn fits(scalar: Scalar, dtype: DType) -> bool {
    let number = scalar.to_f64();
    match dtype.int_range() {
        Some((least, greatest)) => {
            let lowest = if dtype.is_signed() { least } else { -greatest };
            match scalar {
                Scalar::Float(_) => number.is_nan() || (lowest as f64 <= number && number <= greatest as f64),
                _ => (lowest..=greatest).contains(&i128::from(scalar.to_i64())),
            }
        }
        None => !dtype.is_float() || !number.is_finite() || number.abs() <= largest(dtype),
    }
}

impl Importer {
    /// Makes the call fail unless a condition holds; `what` says what is wrong then.
    pub fn require(&mut self, cond: Cond, what: impl Display) {
        let cond = cond.simplify(self.b.ranges());
        if cond.as_bool() != Some(true) {
            let text = format!("{what} ({})", self.place);
            self.b.require(cond, text);
        }
    }

    /// Makes the call fail where one of the sizes is 0.
    pub fn require_filled(&mut self, sizes: &[Expr], what: impl Display) {
        for (d, size) in sizes.iter().enumerate() {
            let some = Cond::compare(Compare::Ge, size, &Expr::int(1));
            self.require(some, format_args!("{what}: dimension {d} of {} is empty", douse_ir::shape_text(sizes)));
        }
    }

    /// Makes the call fail where an argument is a number that a dtype cannot hold.
    pub fn require_fits(&mut self, a: &Args, name: &str, dtype: DType) -> Result<()> {
        match a.get(name) {
            None | Some(Val::Tensor(_)) => return Ok(()),
            Some(_) => {}
        }
        if let Number::Scalar(scalar) = a.number(name)? {
            let what = format_args!("{}: {scalar} does not fit in {dtype}", a.target);
            self.require(Cond::Bool(fits(scalar, dtype)), what);
        }
        Ok(())
    }

    /// Whether none of the sizes can be 0.
    pub fn is_filled(&self, sizes: &[Expr]) -> bool {
        sizes.iter().all(|size| self.b.ranges().min(size).is_some_and(|least| least >= 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_fit_as_pytorch_has_it() {
        for (scalar, dtype, expected) in [
            (Scalar::Float(1e9), DType::F16, false),
            (Scalar::Float(f64::NEG_INFINITY), DType::F16, true),
            (Scalar::Int(65504), DType::F16, true),
            (Scalar::Float(1e39), DType::F32, false),
            (Scalar::Int(300), DType::I8, false),
            (Scalar::Float(127.5), DType::I8, false),
            (Scalar::Int(-1), DType::U8, true),
            (Scalar::Int(-256), DType::U8, false),
            (Scalar::Int(300), DType::Bool, true),
        ] {
            assert_eq!(fits(scalar, dtype), expected, "{scalar} {dtype}");
        }
    }
}
