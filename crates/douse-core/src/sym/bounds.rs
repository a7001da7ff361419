//! What is known of the values that symbols can take.

use std::collections::BTreeMap;

use super::{Atom, Expr, Symbol};

/// Both ends are included; a missing end is unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bound {
    pub min: Option<i64>,
    pub max: Option<Expr>,
}

/// Bounds by symbol. A loop over a symbolic size has a symbolic maximum.
#[derive(Clone, Debug, Default)]
pub struct Ranges {
    bounds: BTreeMap<Symbol, Bound>,
}

type Interval = (Option<i128>, Option<i128>);

impl Ranges {
    pub fn new() -> Ranges {
        Ranges::default()
    }

    pub fn set(&mut self, symbol: Symbol, min: Option<i64>, max: Option<Expr>) {
        self.bounds.insert(symbol, Bound { min, max });
    }

    pub fn get(&self, symbol: Symbol) -> Option<&Bound> {
        self.bounds.get(&symbol)
    }

    /// Says that loops 0, 1, ... run over these sizes.
    pub fn set_loops(&mut self, sizes: &[Expr]) {
        for (i, size) in sizes.iter().enumerate() {
            self.set(Symbol::Loop(i as u32), Some(0), Some(size - 1));
        }
    }

    /// `self` with loops over these sizes instead of the loops it had.
    #[must_use]
    pub fn with_loops(&self, sizes: &[Expr]) -> Ranges {
        let mut ranges = Ranges {
            bounds: self
                .bounds
                .iter()
                .filter(|(s, _)| matches!(s, Symbol::Size(_)))
                .map(|(s, b)| (*s, b.clone()))
                .collect(),
        };
        ranges.set_loops(sizes);
        ranges
    }

    /// The least value an expression can take, where it is known.
    pub fn min(&self, expr: &Expr) -> Option<i64> {
        self.interval(&self.extreme(expr, false), 0).0.and_then(|v| i64::try_from(v).ok())
    }

    /// The greatest value an expression can take, where it is known.
    pub fn max(&self, expr: &Expr) -> Option<i64> {
        self.interval(&self.extreme(expr, true), 0).1.and_then(|v| i64::try_from(v).ok())
    }

    /// Whether the expression is known never to be negative.
    pub fn non_negative(&self, expr: &Expr) -> bool {
        if let Some(c) = expr.as_int() {
            return c >= 0;
        }
        self.interval(expr, 0).0.is_some_and(|v| v >= 0) || self.min(expr).is_some_and(|v| v >= 0)
    }

    /// Whether `a < b` is known.
    pub fn less(&self, a: &Expr, b: &Expr) -> bool {
        self.non_negative(&(b - a - 1))
    }

    /// `expr` with each loop variable at the end where a term that is monotone in it is greatest (or least).
    /// Terms with atoms other than symbols that may not be negative are kept.
    fn extreme(&self, expr: &Expr, greatest: bool) -> Expr {
        let mut sum = Expr::int(expr.constant);
        for term in &expr.terms {
            let monotone = term.factors.iter().all(|a| match a {
                Atom::Symbol(s) => self.get(*s).and_then(|b| b.min).is_some_and(|m| m >= 0),
                _ => false,
            });
            let mut product = Expr::int(term.coefficient);
            for factor in &term.factors {
                let mut replaced = Expr::atom(factor.clone());
                if let (true, Atom::Symbol(s @ Symbol::Loop(_))) = (monotone, factor) {
                    if let Some(bound) = self.get(*s) {
                        if (term.coefficient > 0) == greatest {
                            if let Some(max) = &bound.max {
                                replaced = max.clone();
                            }
                        } else if let Some(min) = bound.min {
                            replaced = Expr::int(min);
                        }
                    }
                }
                product = &product * &replaced;
            }
            sum = &sum + &product;
        }
        sum
    }

    /// Bounds of the bounds are followed this deep.
    const DEPTH: usize = 8;

    fn interval(&self, expr: &Expr, depth: usize) -> Interval {
        let mut sum: Interval = (Some(expr.constant as i128), Some(expr.constant as i128));
        if depth > Self::DEPTH {
            return (None, None);
        }
        for term in &expr.terms {
            let mut product: Interval = (Some(1), Some(1));
            for factor in &term.factors {
                product = multiply(product, self.atom_interval(factor, depth + 1));
            }
            let scaled = multiply(product, (Some(term.coefficient as i128), Some(term.coefficient as i128)));
            let add = |a: Option<i128>, b: Option<i128>| a.zip(b).and_then(|(a, b)| a.checked_add(b));
            sum = (add(sum.0, scaled.0), add(sum.1, scaled.1));
        }
        sum
    }

    fn atom_interval(&self, atom: &Atom, depth: usize) -> Interval {
        match atom {
            Atom::Symbol(symbol) => match self.get(*symbol) {
                None => (None, None),
                Some(bound) => {
                    let max = bound.max.as_ref().and_then(|m| self.interval(m, depth + 1).1);
                    (bound.min.map(i128::from), max)
                }
            },
            Atom::FloorDiv(ab) => {
                let (a, b) = (self.interval(&ab.0, depth + 1), self.interval(&ab.1, depth + 1));
                match (a, b) {
                    ((Some(lo), hi), (Some(d), e)) if lo >= 0 && d > 0 => {
                        (Some(e.map_or(0, |e| lo / e)), hi.map(|h| h / d))
                    }
                    ((lo, hi), (Some(d), Some(e))) if d > 0 && d == e => {
                        (lo.map(|l| l.div_euclid(d)), hi.map(|h| h.div_euclid(d)))
                    }
                    _ => (None, None),
                }
            }
            Atom::Mod(ab) => match self.interval(&ab.1, depth + 1) {
                (Some(lo), hi) if lo > 0 => {
                    let own = self.interval(&ab.0, depth + 1);
                    let top = match own {
                        (Some(l), Some(h)) if l >= 0 => Some(hi.map_or(h, |e| h.min(e - 1))),
                        _ => hi.map(|e| e - 1),
                    };
                    (Some(0), top)
                }
                _ => (None, None),
            },
            Atom::Min(ab) => {
                let (a, b) = (self.interval(&ab.0, depth + 1), self.interval(&ab.1, depth + 1));
                let hi = match (a.1, b.1) {
                    (Some(x), Some(y)) => Some(x.min(y)),
                    (x, y) => x.or(y),
                };
                (a.0.zip(b.0).map(|(x, y)| x.min(y)), hi)
            }
            Atom::Max(ab) => {
                let (a, b) = (self.interval(&ab.0, depth + 1), self.interval(&ab.1, depth + 1));
                let lo = match (a.0, b.0) {
                    (Some(x), Some(y)) => Some(x.max(y)),
                    (x, y) => x.or(y),
                };
                (lo, a.1.zip(b.1).map(|(x, y)| x.max(y)))
            }
            Atom::Select(cab) => {
                let (a, b) = (self.interval(&cab.1, depth + 1), self.interval(&cab.2, depth + 1));
                (a.0.zip(b.0).map(|(x, y)| x.min(y)), a.1.zip(b.1).map(|(x, y)| x.max(y)))
            }
            Atom::Scale(a, bits) => {
                let factor = f64::from_bits(*bits);
                let a = self.interval(a, depth + 1);
                let scaled = |v: i128| (v as f64 * factor).floor() as i128;
                if factor >= 0.0 { (a.0.map(scaled), a.1.map(scaled)) } else { (None, None) }
            }
        }
    }
}

fn multiply(a: Interval, b: Interval) -> Interval {
    // The common case first: neither can be negative.
    if let (Some(x), Some(y)) = (a.0, b.0) {
        if x >= 0 && y >= 0 {
            return (x.checked_mul(y), a.1.zip(b.1).and_then(|(x, y)| x.checked_mul(y)));
        }
    }
    if let ((Some(c), Some(d)), other) | (other, (Some(c), Some(d))) = (a, b) {
        if c == d {
            let scaled = |v: Option<i128>| v.and_then(|v| v.checked_mul(c));
            return if c >= 0 { (scaled(other.0), scaled(other.1)) } else { (scaled(other.1), scaled(other.0)) };
        }
    }
    match (a, b) {
        ((Some(a0), Some(a1)), (Some(b0), Some(b1))) => {
            let all = [a0.checked_mul(b0), a0.checked_mul(b1), a1.checked_mul(b0), a1.checked_mul(b1)];
            if all.iter().any(Option::is_none) {
                return (None, None);
            }
            (all.iter().flatten().min().copied(), all.iter().flatten().max().copied())
        }
        _ => (None, None),
    }
}
