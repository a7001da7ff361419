//! The polynomial form of symbolic integers.

use serde::{Deserialize, Serialize};
use std::ops::{Add, Mul, Neg, Sub};
use std::sync::Arc;

use super::Cond;

/// A name for an integer that is not known yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Symbol {
    /// A size or a number read from data, known once per call: `s3`.
    Size(u32),
    /// The variable of a loop, or the coordinate of a dimension: `i3`.
    Loop(u32),
    /// An integer computed inside a kernel (an index loaded from memory): `v3`.
    Value(u32),
}

/// What a polynomial is made of. The operands of the compound atoms are canonical themselves.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Atom {
    Symbol(Symbol),
    /// Quotient rounded towards negative infinity.
    FloorDiv(Arc<(Expr, Expr)>),
    /// Remainder with the sign of the divisor.
    Mod(Arc<(Expr, Expr)>),
    Min(Arc<(Expr, Expr)>),
    Max(Arc<(Expr, Expr)>),
    /// The second operand where the condition holds, else the third.
    Select(Arc<(Cond, Expr, Expr)>),
    /// Floor of the operand times a float64, given by its bits: sizes computed from scale factors.
    Scale(Arc<Expr>, u64),
}

/// A coefficient times a product of atoms, which are sorted and may repeat.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Term {
    pub factors: Vec<Atom>,
    pub coefficient: i64,
}

/// A symbolic integer: a constant plus terms, sorted by their factors, none with coefficient 0.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Expr {
    pub(super) terms: Vec<Term>,
    pub(super) constant: i64,
}

impl Expr {
    pub fn int(value: i64) -> Expr {
        Expr { terms: Vec::new(), constant: value }
    }

    pub fn symbol(symbol: Symbol) -> Expr {
        Expr::atom(Atom::Symbol(symbol))
    }

    /// The variable of loop `i`.
    pub fn loop_var(i: usize) -> Expr {
        Expr::symbol(Symbol::Loop(i as u32))
    }

    pub(super) fn atom(atom: Atom) -> Expr {
        Expr { terms: vec![Term { factors: vec![atom], coefficient: 1 }], constant: 0 }
    }

    pub(super) fn from_term(term: Term) -> Expr {
        if term.factors.is_empty() || term.coefficient == 0 {
            return Expr::int(term.coefficient);
        }
        Expr { terms: vec![term], constant: 0 }
    }

    pub fn as_int(&self) -> Option<i64> {
        self.terms.is_empty().then_some(self.constant)
    }

    pub fn is_int(&self, value: i64) -> bool {
        self.as_int() == Some(value)
    }

    /// The one symbol that this expression is.
    pub fn as_symbol(&self) -> Option<Symbol> {
        match (self.constant, self.terms.as_slice()) {
            (0, [Term { factors, coefficient: 1 }]) => match factors.as_slice() {
                [Atom::Symbol(symbol)] => Some(*symbol),
                _ => None,
            },
            _ => None,
        }
    }

    /// The loop whose variable this expression is.
    pub fn as_loop(&self) -> Option<usize> {
        match self.as_symbol() {
            Some(Symbol::Loop(i)) => Some(i as usize),
            _ => None,
        }
    }

    pub fn terms(&self) -> &[Term] {
        &self.terms
    }

    pub fn constant(&self) -> i64 {
        self.constant
    }

    /// The expression as a single term, where it is one (a constant counts).
    pub(super) fn as_term(&self) -> Option<Term> {
        match (self.constant, self.terms.as_slice()) {
            (c, []) => Some(Term { factors: Vec::new(), coefficient: c }),
            (0, [term]) => Some(term.clone()),
            _ => None,
        }
    }

    fn add_term(&mut self, term: Term) {
        if term.coefficient == 0 {
            return;
        }
        if term.factors.is_empty() {
            self.constant = self.constant.wrapping_add(term.coefficient);
            return;
        }
        match self.terms.binary_search_by(|t| t.factors.cmp(&term.factors)) {
            Ok(i) => {
                self.terms[i].coefficient = self.terms[i].coefficient.wrapping_add(term.coefficient);
                if self.terms[i].coefficient == 0 {
                    self.terms.remove(i);
                }
            }
            Err(i) => self.terms.insert(i, term),
        }
    }

    /// Quotient rounded towards negative infinity. The divisor must not be 0 when evaluated.
    pub fn floor_div(&self, divisor: &Expr) -> Expr {
        super::simplify::floor_div(self, divisor, None)
    }

    /// Remainder with the sign of the divisor, which must not be 0 when evaluated.
    pub fn modulo(&self, divisor: &Expr) -> Expr {
        super::simplify::modulo(self, divisor, None)
    }

    /// Quotient rounded towards positive infinity.
    pub fn ceil_div(&self, divisor: &Expr) -> Expr {
        -&(-self).floor_div(divisor)
    }

    pub fn minimum(&self, other: &Expr) -> Expr {
        match (self - other).as_int() {
            Some(d) if d <= 0 => self.clone(),
            Some(_) => other.clone(),
            None => {
                let (a, b) = if self <= other { (self, other) } else { (other, self) };
                Expr::atom(Atom::Min(Arc::new((a.clone(), b.clone()))))
            }
        }
    }

    pub fn maximum(&self, other: &Expr) -> Expr {
        match (self - other).as_int() {
            Some(d) if d >= 0 => self.clone(),
            Some(_) => other.clone(),
            None => {
                let (a, b) = if self <= other { (self, other) } else { (other, self) };
                Expr::atom(Atom::Max(Arc::new((a.clone(), b.clone()))))
            }
        }
    }

    /// `then` where `cond` holds, else `otherwise`.
    pub fn select(cond: &Cond, then: &Expr, otherwise: &Expr) -> Expr {
        match cond.as_bool() {
            Some(true) => then.clone(),
            Some(false) => otherwise.clone(),
            None if then == otherwise => then.clone(),
            None => Expr::atom(Atom::Select(Arc::new((cond.clone(), then.clone(), otherwise.clone())))),
        }
    }

    /// Floor of the expression times a float64.
    pub fn scale(&self, factor: f64) -> Expr {
        match self.as_int() {
            Some(c) => Expr::int((c as f64 * factor).floor() as i64),
            None => Expr::atom(Atom::Scale(Arc::new(self.clone()), factor.to_bits())),
        }
    }

    /// The product of all sizes of a shape.
    pub fn product<'a>(sizes: impl IntoIterator<Item = &'a Expr>) -> Expr {
        sizes.into_iter().fold(Expr::int(1), |a, b| &a * b)
    }

    /// Replaces symbols; those that `replace` has no answer for stay.
    pub fn substitute(&self, replace: &dyn Fn(Symbol) -> Option<Expr>) -> Expr {
        if self.terms.is_empty() {
            return self.clone();
        }
        let mut sum = Expr::int(self.constant);
        for term in &self.terms {
            let mut product = Expr::int(term.coefficient);
            for factor in &term.factors {
                product = &product * &factor.substitute(replace);
            }
            sum = &sum + &product;
        }
        sum
    }

    /// Calls `f` for every symbol, inside compound atoms too, repeats included.
    pub fn visit(&self, f: &mut dyn FnMut(Symbol)) {
        for factor in self.terms.iter().flat_map(|t| &t.factors) {
            match factor {
                Atom::Symbol(symbol) => f(*symbol),
                Atom::FloorDiv(ab) | Atom::Mod(ab) | Atom::Min(ab) | Atom::Max(ab) => {
                    ab.0.visit(f);
                    ab.1.visit(f);
                }
                Atom::Select(cab) => {
                    cab.0.visit(f);
                    cab.1.visit(f);
                    cab.2.visit(f);
                }
                Atom::Scale(a, _) => a.visit(f),
            }
        }
    }

    pub fn mentions(&self, wanted: impl Fn(Symbol) -> bool) -> bool {
        let mut found = false;
        self.visit(&mut |s| found |= wanted(s));
        found
    }

    pub fn mentions_loops(&self) -> bool {
        self.mentions(|s| matches!(s, Symbol::Loop(_)))
    }

    /// Splits into `coefficient * symbol + rest` with the symbol in neither; `None` where it is not affine in the symbol.
    pub fn affine(&self, symbol: Symbol) -> Option<(Expr, Expr)> {
        let (mut coefficient, mut rest) = (Expr::int(0), Expr::int(self.constant));
        for term in &self.terms {
            let hits = term.factors.iter().filter(|a| **a == Atom::Symbol(symbol)).count();
            let others: Vec<Atom> = term.factors.iter().filter(|a| **a != Atom::Symbol(symbol)).cloned().collect();
            if hits > 1 || others.iter().any(|a| Expr::atom(a.clone()).mentions(|s| s == symbol)) {
                return None;
            }
            let part = Term { factors: others, coefficient: term.coefficient };
            if hits == 1 {
                coefficient.add_term(part);
            } else {
                rest.add_term(part);
            }
        }
        Some((coefficient, rest))
    }

    /// The value, once every symbol is known. `None` on overflow, division by zero or an unknown symbol.
    pub fn eval(&self, value: &dyn Fn(Symbol) -> Option<i64>) -> Option<i64> {
        let mut sum = self.constant;
        for term in &self.terms {
            let mut product = term.coefficient;
            for factor in &term.factors {
                product = product.checked_mul(factor.eval(value)?)?;
            }
            sum = sum.checked_add(product)?;
        }
        Some(sum)
    }
}

impl Term {
    /// The term as an expression of its own.
    pub fn to_expr(&self) -> Expr {
        Expr::from_term(self.clone())
    }
}

impl Atom {
    fn substitute(&self, replace: &dyn Fn(Symbol) -> Option<Expr>) -> Expr {
        match self {
            Atom::Symbol(symbol) => replace(*symbol).unwrap_or_else(|| Expr::symbol(*symbol)),
            Atom::FloorDiv(ab) => ab.0.substitute(replace).floor_div(&ab.1.substitute(replace)),
            Atom::Mod(ab) => ab.0.substitute(replace).modulo(&ab.1.substitute(replace)),
            Atom::Min(ab) => ab.0.substitute(replace).minimum(&ab.1.substitute(replace)),
            Atom::Max(ab) => ab.0.substitute(replace).maximum(&ab.1.substitute(replace)),
            Atom::Select(cab) => {
                Expr::select(&cab.0.substitute(replace), &cab.1.substitute(replace), &cab.2.substitute(replace))
            }
            Atom::Scale(a, bits) => a.substitute(replace).scale(f64::from_bits(*bits)),
        }
    }

    fn eval(&self, value: &dyn Fn(Symbol) -> Option<i64>) -> Option<i64> {
        match self {
            Atom::Symbol(symbol) => value(*symbol),
            Atom::FloorDiv(ab) => floor_div(ab.0.eval(value)?, ab.1.eval(value)?),
            Atom::Mod(ab) => {
                let (a, b) = (ab.0.eval(value)?, ab.1.eval(value)?);
                a.checked_sub(floor_div(a, b)?.checked_mul(b)?)
            }
            Atom::Min(ab) => Some(ab.0.eval(value)?.min(ab.1.eval(value)?)),
            Atom::Max(ab) => Some(ab.0.eval(value)?.max(ab.1.eval(value)?)),
            Atom::Select(cab) => {
                if cab.0.eval(value)? {
                    cab.1.eval(value)
                } else {
                    cab.2.eval(value)
                }
            }
            Atom::Scale(a, bits) => Some((a.eval(value)? as f64 * f64::from_bits(*bits)).floor() as i64),
        }
    }
}

/// Floor division of numbers; `None` for a zero divisor or overflow.
pub(super) fn floor_div(a: i64, b: i64) -> Option<i64> {
    let quotient = a.checked_div(b)?;
    Some(if a % b != 0 && (a < 0) != (b < 0) { quotient - 1 } else { quotient })
}

impl Add<&Expr> for &Expr {
    type Output = Expr;
    fn add(self, other: &Expr) -> Expr {
        let mut sum = self.clone();
        sum.constant = sum.constant.wrapping_add(other.constant);
        for term in &other.terms {
            sum.add_term(term.clone());
        }
        sum
    }
}

impl Neg for &Expr {
    type Output = Expr;
    fn neg(self) -> Expr {
        let mut negated = self.clone();
        negated.constant = negated.constant.wrapping_neg();
        for term in &mut negated.terms {
            term.coefficient = term.coefficient.wrapping_neg();
        }
        negated
    }
}

impl Sub<&Expr> for &Expr {
    type Output = Expr;
    fn sub(self, other: &Expr) -> Expr {
        self + &-other
    }
}

impl Mul<&Expr> for &Expr {
    type Output = Expr;
    fn mul(self, other: &Expr) -> Expr {
        let all = |e: &Expr| {
            let constant = Term { factors: Vec::new(), coefficient: e.constant };
            e.terms.iter().cloned().chain(std::iter::once(constant)).collect::<Vec<_>>()
        };
        let mut product = Expr::int(0);
        for a in all(self) {
            for b in all(other) {
                let mut factors = a.factors.clone();
                factors.extend(b.factors.iter().cloned());
                factors.sort();
                product.add_term(Term { factors, coefficient: a.coefficient.wrapping_mul(b.coefficient) });
            }
        }
        product
    }
}

macro_rules! operators {
    ($($trait:ident $method:ident),*) => {$(
        impl $trait<Expr> for Expr {
            type Output = Expr;
            fn $method(self, other: Expr) -> Expr { $trait::$method(&self, &other) }
        }
        impl $trait<&Expr> for Expr {
            type Output = Expr;
            fn $method(self, other: &Expr) -> Expr { $trait::$method(&self, other) }
        }
        impl $trait<i64> for &Expr {
            type Output = Expr;
            fn $method(self, other: i64) -> Expr { $trait::$method(self, &Expr::int(other)) }
        }
        impl $trait<i64> for Expr {
            type Output = Expr;
            fn $method(self, other: i64) -> Expr { $trait::$method(&self, &Expr::int(other)) }
        }
    )*};
}
operators!(Add add, Sub sub, Mul mul);

impl Neg for Expr {
    type Output = Expr;
    fn neg(self) -> Expr {
        -&self
    }
}

impl From<i64> for Expr {
    fn from(value: i64) -> Expr {
        Expr::int(value)
    }
}
