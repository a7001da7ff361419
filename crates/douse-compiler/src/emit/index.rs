//! Symbolic integers as C++.

use std::fmt::Write;

use douse_core::sym::{Atom, Cond, Expr, Ranges, Symbol};

use super::names;

/// The width an expression is computed in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Width {
    Narrow,
    Wide,
}

impl Width {
    pub fn name(self) -> &'static str {
        match self {
            Width::Narrow => "int",
            Width::Wide => "int64",
        }
    }
}

/// Writes expressions over loops (`i0`, of the width its range needs), sizes (`s0`, int64) and registers (`r0`, int64).
#[derive(Clone, Debug)]
pub(super) struct Indexer {
    pub ranges: Ranges,
}

/// Values of no more than this size, sums of them included, are computed in 32 bits.
const NARROW: i64 = i32::MAX as i64;

impl Indexer {
    /// The largest magnitude that a value, or anything on the way to it, can have; `None`: unknown.
    fn magnitude(&self, expr: &Expr) -> Option<i64> {
        let mut sum = expr.constant().checked_abs()?;
        for term in expr.terms() {
            let mut product = term.coefficient.checked_abs()?;
            for factor in &term.factors {
                product = product.checked_mul(self.atom_magnitude(factor)?.max(1))?;
            }
            sum = sum.checked_add(product)?;
        }
        Some(sum)
    }

    fn atom_magnitude(&self, atom: &Atom) -> Option<i64> {
        match atom {
            Atom::Symbol(symbol) => {
                let expr = Expr::symbol(*symbol);
                Some(self.ranges.min(&expr)?.checked_abs()?.max(self.ranges.max(&expr)?.checked_abs()?))
            }
            Atom::FloorDiv(ab) | Atom::Mod(ab) | Atom::Min(ab) | Atom::Max(ab) => {
                Some(self.magnitude(&ab.0)?.max(self.magnitude(&ab.1)?))
            }
            Atom::Select(cab) => {
                let cond = self.cond_magnitude(&cab.0)?;
                Some(cond.max(self.magnitude(&cab.1)?).max(self.magnitude(&cab.2)?))
            }
            Atom::Scale(..) => None,
        }
    }

    fn cond_magnitude(&self, cond: &Cond) -> Option<i64> {
        match cond {
            Cond::Bool(_) => Some(0),
            Cond::Compare(_, a, b) => Some(self.magnitude(a)?.max(self.magnitude(b)?)),
            Cond::And(ab) | Cond::Or(ab) => Some(self.cond_magnitude(&ab.0)?.max(self.cond_magnitude(&ab.1)?)),
        }
    }

    /// The width of a loop's variable.
    pub fn loop_width(&self, number: usize) -> Width {
        self.width(&Expr::loop_var(number))
    }

    /// The width that an expression needs.
    pub fn width(&self, expr: &Expr) -> Width {
        match self.magnitude(expr) {
            Some(magnitude) if magnitude <= NARROW => Width::Narrow,
            _ => Width::Wide,
        }
    }

    /// The expression, in the width that it needs.
    pub fn write(&self, expr: &Expr) -> String {
        let expr = expr.simplify(&self.ranges);
        self.expr(&expr, self.width(&expr))
    }

    /// The expression as an int64.
    pub fn wide(&self, expr: &Expr) -> String {
        let expr = expr.simplify(&self.ranges);
        match self.width(&expr) {
            Width::Narrow if expr.as_int().is_some() => self.expr(&expr, Width::Narrow),
            Width::Narrow => format!("(int64)({})", self.expr(&expr, Width::Narrow)),
            Width::Wide => self.expr(&expr, Width::Wide),
        }
    }

    fn expr(&self, expr: &Expr, width: Width) -> String {
        let mut text = String::new();
        for term in expr.terms() {
            let negative = term.coefficient < 0;
            text.push_str(match (text.is_empty(), negative) {
                (true, true) => "-",
                (true, false) => "",
                (false, true) => " - ",
                (false, false) => " + ",
            });
            let mut star = "";
            if term.coefficient.unsigned_abs() != 1 {
                let size = term.coefficient.checked_abs().unwrap_or(i64::MAX);
                text.push_str(&names::integer(size));
                star = "*";
            }
            for factor in &term.factors {
                text.push_str(star);
                text.push_str(&self.atom(factor, width));
                star = "*";
            }
        }
        let constant = expr.constant();
        match constant {
            c if text.is_empty() => text = names::integer(c),
            0 => {}
            c if c < 0 && c != i64::MIN => {
                let _ = write!(text, " - {}", names::integer(-c));
            }
            c => {
                let _ = write!(text, " + {}", names::integer(c));
            }
        }
        text
    }

    fn atom(&self, atom: &Atom, width: Width) -> String {
        let two = |name: &str, ab: &(Expr, Expr)| {
            format!("{name}<{}>({}, {})", width.name(), self.expr(&ab.0, width), self.expr(&ab.1, width))
        };
        // Where nothing is negative, C++ divides as Python does.
        let plain = |ab: &(Expr, Expr)| {
            self.ranges.non_negative(&ab.0) && self.ranges.min(&ab.1).is_some_and(|least| least > 0)
        };
        match atom {
            Atom::Symbol(Symbol::Loop(n)) if self.loop_width(*n as usize) == width => format!("i{n}"),
            Atom::Symbol(Symbol::Loop(n)) => format!("({})i{n}", width.name()),
            Atom::Symbol(Symbol::Size(n)) if width == Width::Wide => format!("s{n}"),
            Atom::Symbol(Symbol::Size(n)) => format!("(int)s{n}"),
            Atom::Symbol(Symbol::Value(n)) if width == Width::Wide => format!("(int64)r{n}"),
            Atom::Symbol(Symbol::Value(n)) => format!("(int)r{n}"),
            Atom::FloorDiv(ab) if plain(ab) => {
                format!("(({}) / ({}))", self.expr(&ab.0, width), self.expr(&ab.1, width))
            }
            Atom::FloorDiv(ab) => two("floor_div", ab),
            Atom::Mod(ab) if plain(ab) => {
                format!("(({}) % ({}))", self.expr(&ab.0, width), self.expr(&ab.1, width))
            }
            Atom::Mod(ab) => two("floor_mod", ab),
            Atom::Min(ab) => two("smaller", ab),
            Atom::Max(ab) => two("larger", ab),
            Atom::Select(cab) => {
                let (then, otherwise) = (self.expr(&cab.1, width), self.expr(&cab.2, width));
                format!("({} ? {then} : {otherwise})", self.cond(&cab.0, width))
            }
            Atom::Scale(a, bits) => {
                let factor = names::float64(f64::from_bits(*bits));
                format!("({})scale_floor({}, {factor})", width.name(), self.expr(a, Width::Wide))
            }
        }
    }

    fn cond(&self, cond: &Cond, width: Width) -> String {
        match cond {
            Cond::Bool(value) => value.to_string(),
            Cond::Compare(op, a, b) => {
                format!("{} {} {}", self.expr(a, width), op.sign(), self.expr(b, width))
            }
            Cond::And(ab) => format!("({}) && ({})", self.cond(&ab.0, width), self.cond(&ab.1, width)),
            Cond::Or(ab) => format!("({}) || ({})", self.cond(&ab.0, width), self.cond(&ab.1, width)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn indexer(sizes: &[i64]) -> Indexer {
        let mut ranges = Ranges::new();
        ranges.set_loops(&sizes.iter().map(|s| Expr::int(*s)).collect::<Vec<_>>());
        Indexer { ranges }
    }

    fn expr(text: &str) -> Expr {
        text.parse().unwrap()
    }

    #[test]
    fn what_is_large_is_computed_in_64_bits() {
        let small = indexer(&[100, 768]);
        assert_eq!(small.write(&expr("768*i0 + i1 - 3")), "768*i0 + i1 - 3");
        let large = indexer(&[1 << 22, 768]);
        assert_eq!(large.write(&expr("768*i0 + i1")), "768*(int64)i0 + (int64)i1");
        assert_eq!(large.write(&expr("i1 + s0")), "s0 + (int64)i1");
    }

    #[test]
    fn division_is_plain_where_nothing_is_negative() {
        let indexer = indexer(&[100, 768]);
        assert_eq!(indexer.write(&expr("div(i1, 3)")), "((i1) / (3))");
        // The constant is brought into the range of the divisor.
        assert_eq!(indexer.write(&expr("mod(i0 - 5, 7)")), "((i0 + 2) % (7))");
    }
}
