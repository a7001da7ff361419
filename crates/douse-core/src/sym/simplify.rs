//! Removal of divisions and remainders whose outcome is known.

use std::sync::Arc;

use super::expr::floor_div as divide;
use super::{Atom, Cond, Expr, Ranges, Term};

impl Expr {
    /// An equal expression with fewer divisions, remainders, minima and maxima, by what `ranges` knows.
    pub fn simplify(&self, ranges: &Ranges) -> Expr {
        let compound = |t: &Term| t.factors.iter().any(|a| !matches!(a, Atom::Symbol(_)));
        if !self.terms.iter().any(compound) {
            return self.clone();
        }
        let mut sum = Expr::int(self.constant);
        for term in &self.terms {
            let mut product = Expr::int(term.coefficient);
            for factor in &term.factors {
                product = &product * &simplify_atom(factor, ranges);
            }
            sum = &sum + &product;
        }
        sum.rejoin(ranges)
    }

    /// k*(x // k) + x % k = x
    fn rejoin(&self, ranges: &Ranges) -> Expr {
        let mut whole = self.clone();
        'again: loop {
            for (i, term) in whole.terms.iter().enumerate() {
                for (f, factor) in term.factors.iter().enumerate() {
                    let Atom::Mod(xk) = factor else { continue };
                    let mut others = term.factors.clone();
                    others.remove(f);
                    let others = Expr::from_term(Term { factors: others, coefficient: term.coefficient });
                    let quotient = &others * &(&floor_div(&xk.0, &xk.1, Some(ranges)) * &xk.1);
                    let Some(wanted) = quotient.as_term() else { continue };
                    if !whole.terms.contains(&wanted) {
                        continue;
                    }
                    let both = &Expr::from_term(whole.terms[i].clone()) + &quotient;
                    whole = &(&whole - &both) + &(&others * &xk.0);
                    continue 'again;
                }
            }
            return whole;
        }
    }
}

fn simplify_atom(atom: &Atom, ranges: &Ranges) -> Expr {
    match atom {
        Atom::Symbol(_) => Expr::atom(atom.clone()),
        Atom::FloorDiv(ab) => floor_div(&ab.0.simplify(ranges), &ab.1.simplify(ranges), Some(ranges)),
        Atom::Mod(ab) => modulo(&ab.0.simplify(ranges), &ab.1.simplify(ranges), Some(ranges)),
        Atom::Min(ab) | Atom::Max(ab) => {
            let (a, b) = (ab.0.simplify(ranges), ab.1.simplify(ranges));
            let least = matches!(atom, Atom::Min(_));
            if ranges.non_negative(&(&b - &a)) {
                return if least { a } else { b };
            }
            if ranges.non_negative(&(&a - &b)) {
                return if least { b } else { a };
            }
            if least { a.minimum(&b) } else { a.maximum(&b) }
        }
        Atom::Select(cab) => Expr::select(&cab.0.simplify(ranges), &cab.1.simplify(ranges), &cab.2.simplify(ranges)),
        Atom::Scale(a, bits) => a.simplify(ranges).scale(f64::from_bits(*bits)),
    }
}

impl Cond {
    /// An equal condition, constant where `ranges` decides it.
    pub fn simplify(&self, ranges: &Ranges) -> Cond {
        use super::Compare::*;
        match self {
            Cond::Bool(_) => self.clone(),
            Cond::Compare(op, a, b) => {
                let (a, b) = (a.simplify(ranges), b.simplify(ranges));
                let (less, at_most) = (ranges.less(&a, &b), ranges.non_negative(&(&b - &a)));
                let (greater, at_least) = (ranges.less(&b, &a), ranges.non_negative(&(&a - &b)));
                let known = match op {
                    Eq if less || greater => Some(false),
                    Ne if less || greater => Some(true),
                    Lt if less => Some(true),
                    Lt if at_least => Some(false),
                    Le if at_most => Some(true),
                    Le if greater => Some(false),
                    Gt if greater => Some(true),
                    Gt if at_most => Some(false),
                    Ge if at_least => Some(true),
                    Ge if less => Some(false),
                    _ => None,
                };
                known.map_or_else(|| Cond::compare(*op, &a, &b), Cond::Bool)
            }
            Cond::And(ab) => ab.0.simplify(ranges).and(&ab.1.simplify(ranges)),
            Cond::Or(ab) => ab.0.simplify(ranges).or(&ab.1.simplify(ranges)),
        }
    }
}

fn gcd(a: i64, b: i64) -> i64 {
    let (mut a, mut b) = (a.unsigned_abs(), b.unsigned_abs());
    while b != 0 {
        (a, b) = (b, a % b);
    }
    i64::try_from(a).unwrap_or(1)
}

/// The greatest term that divides both: gcd of the coefficients, common factors.
fn common(a: &Term, b: &Term) -> Term {
    let mut rest = b.factors.clone();
    let mut factors = Vec::new();
    for factor in &a.factors {
        if let Some(i) = rest.iter().position(|f| f == factor) {
            factors.push(rest.remove(i));
        }
    }
    Term { factors, coefficient: gcd(a.coefficient, b.coefficient).max(1) }
}

/// `term / divisor` where that is a term.
fn exact(term: &Term, divisor: &Term) -> Option<Term> {
    if divisor.coefficient == 0 || term.coefficient.checked_rem(divisor.coefficient)? != 0 {
        return None;
    }
    let mut factors = term.factors.clone();
    for factor in &divisor.factors {
        let i = factors.iter().position(|f| f == factor)?;
        factors.remove(i);
    }
    Some(Term { factors, coefficient: term.coefficient / divisor.coefficient })
}

/// Splits `expr` into `quotient * divisor + rest`, with in `rest` what the divisor does not divide.
/// A constant splits only by a constant, into a rest between 0 and the divisor.
fn split(expr: &Expr, divisor: &Term) -> (Expr, Expr) {
    let (mut quotient, mut rest) = (Expr::int(0), Expr::int(0));
    for term in &expr.terms {
        match exact(term, divisor) {
            Some(q) => quotient = quotient + Expr::from_term(q),
            None => rest = rest + Expr::from_term(term.clone()),
        }
    }
    match divide(expr.constant, divisor.coefficient) {
        Some(q) if divisor.factors.is_empty() && divisor.coefficient > 0 => {
            quotient = quotient + q;
            rest = rest + (expr.constant - q * divisor.coefficient);
        }
        _ => rest = rest + expr.constant,
    }
    (quotient, rest)
}

/// Whether `0 <= expr < bound` is known.
fn within(expr: &Expr, bound: &Expr, ranges: Option<&Ranges>) -> bool {
    match (expr.as_int(), bound.as_int(), ranges) {
        (Some(e), Some(b), _) => 0 <= e && e < b,
        (_, _, Some(ranges)) => ranges.non_negative(expr) && ranges.less(expr, bound),
        _ => false,
    }
}

/// Terms `g` that divide `divisor` such that, in `a`, what `g` does not divide is known to lie in `[0, g)`; with the split by it.
fn coarser(a: &Expr, divisor: &Term, ranges: Option<&Ranges>) -> Option<(Term, Expr, Expr)> {
    for term in &a.terms {
        let g = common(term, divisor);
        if g.factors.is_empty() && g.coefficient <= 1 {
            continue;
        }
        let (quotient, rest) = split(a, &g);
        if within(&rest, &Expr::from_term(g.clone()), ranges) {
            return Some((g, quotient, rest));
        }
    }
    None
}

pub(super) fn floor_div(a: &Expr, b: &Expr, ranges: Option<&Ranges>) -> Expr {
    if b.is_int(1) || a.is_int(0) {
        return a.clone();
    }
    if let (Some(x), Some(y)) = (a.as_int(), b.as_int()) {
        if let Some(q) = divide(x, y) {
            return Expr::int(q);
        }
    }
    let plain = |a: &Expr, b: &Expr| Expr::atom(Atom::FloorDiv(Arc::new((a.clone(), b.clone()))));
    let Some(divisor) = b.as_term() else {
        if a == b {
            return Expr::int(1);
        }
        return if within(a, b, ranges) { Expr::int(0) } else { plain(a, b) };
    };
    if divisor.coefficient <= 0 {
        return plain(a, b);
    }
    // (q*b + r) // b = q + r // b
    let (quotient, rest) = split(a, &divisor);
    if within(&rest, b, ranges) {
        return quotient;
    }
    if !quotient.is_int(0) {
        return quotient + floor_div(&rest, b, ranges);
    }
    // (g*x + r) // (g*y) = x // y  for 0 <= r < g
    if let Some((g, x, _)) = coarser(a, &divisor, ranges) {
        if let Some(y) = exact(&divisor, &g) {
            return floor_div(&x, &Expr::from_term(y), ranges);
        }
    }
    // (a // m) // n = a // (m*n)  for positive m, n
    if let (Some(n), Some(Term { factors, coefficient: 1 })) = (b.as_int(), a.as_term()) {
        if let [Atom::FloorDiv(inner)] = factors.as_slice() {
            if let Some(m) = inner.1.as_int() {
                if let (true, Some(product)) = (m > 0, m.checked_mul(n)) {
                    return floor_div(&inner.0, &Expr::int(product), ranges);
                }
            }
        }
    }
    plain(a, b)
}

pub(super) fn modulo(a: &Expr, b: &Expr, ranges: Option<&Ranges>) -> Expr {
    if b.is_int(1) || a.is_int(0) || a == b {
        return Expr::int(0);
    }
    if let (Some(x), Some(y)) = (a.as_int(), b.as_int()) {
        if let Some(q) = divide(x, y) {
            return Expr::int(x.wrapping_sub(q.wrapping_mul(y)));
        }
    }
    let plain = |a: &Expr, b: &Expr| Expr::atom(Atom::Mod(Arc::new((a.clone(), b.clone()))));
    let Some(divisor) = b.as_term() else {
        return if within(a, b, ranges) { a.clone() } else { plain(a, b) };
    };
    if divisor.coefficient <= 0 {
        return plain(a, b);
    }
    // (q*b + r) % b = r % b
    let (_, rest) = split(a, &divisor);
    if within(&rest, b, ranges) {
        return rest;
    }
    if rest != *a {
        return modulo(&rest, b, ranges);
    }
    // (g*x + r) % (g*y) = g*(x % y) + r  for 0 <= r < g
    if let Some((g, x, r)) = coarser(a, &divisor, ranges) {
        if let Some(y) = exact(&divisor, &g) {
            return &(&Expr::from_term(g) * &modulo(&x, &Expr::from_term(y), ranges)) + &r;
        }
    }
    // (a % m) % n = a % n  where n divides m
    if let (Some(n), Some(Term { factors, coefficient: 1 })) = (b.as_int(), a.as_term()) {
        if let [Atom::Mod(inner)] = factors.as_slice() {
            if inner.1.as_int().is_some_and(|m| m > 0 && m % n == 0) {
                return modulo(&inner.0, b, ranges);
            }
        }
    }
    plain(a, b)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sym::Symbol;

    fn i(n: usize) -> Expr {
        Expr::loop_var(n)
    }

    fn s(n: u32) -> Expr {
        Expr::symbol(Symbol::Size(n))
    }

    #[test]
    fn linear_index_splits_back_into_its_parts() {
        let mut ranges = Ranges::new();
        ranges.set(Symbol::Size(0), Some(0), None);
        ranges.set_loops(&[Expr::int(7), s(0), Expr::int(64)]);
        let linear = (i(0) * &s(0) + i(1)) * 64 + i(2);
        assert_eq!(linear.modulo(&Expr::int(64)).simplify(&ranges), i(2));
        let row = linear.floor_div(&Expr::int(64)).simplify(&ranges);
        assert_eq!(row, i(0) * &s(0) + i(1));
        assert_eq!(row.floor_div(&s(0)).simplify(&ranges), i(0));
        assert_eq!(row.modulo(&s(0)).simplify(&ranges), i(1));
        assert_eq!(linear.floor_div(&(s(0) * 64)).simplify(&ranges), i(0));
    }

    #[test]
    fn a_split_dimension_merges() {
        let mut ranges = Ranges::new();
        ranges.set_loops(&[Expr::int(12)]);
        let (a, b) = (i(0).floor_div(&Expr::int(4)), i(0).modulo(&Expr::int(4)));
        assert_eq!((&a * 4 + &b).simplify(&ranges), i(0));
        let thirds = i(0).floor_div(&Expr::int(2)).modulo(&Expr::int(3));
        let three = i(0).floor_div(&Expr::int(6)) * 6 + thirds * 2 + i(0).modulo(&Expr::int(2));
        assert_eq!(three.simplify(&ranges), i(0));
        assert_eq!((i(0) * 8 + 3).floor_div(&Expr::int(16)).simplify(&ranges), i(0).floor_div(&Expr::int(2)));
    }

    /// Every simplification, against evaluation over the whole range of the loops.
    #[test]
    fn simplification_keeps_every_value() {
        let mut state = 12345u64;
        let mut next = |n: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % n
        };
        for _ in 0..3000 {
            let sizes = [next(5) as i64 + 1, next(5) as i64 + 1];
            let size0 = next(6) as i64 + 1;
            let mut ranges = Ranges::new();
            ranges.set(Symbol::Size(0), Some(1), None);
            ranges.set_loops(&[Expr::int(sizes[0]), s(0)]);
            let mut e = i(0);
            for _ in 0..6 {
                let c = Expr::int(next(12) as i64 + 1);
                let d = [c.clone(), s(0), &c * &s(0)][next(3) as usize].clone();
                e = match next(9) {
                    0 => e + i(1),
                    1 => e * &c,
                    2 => e.floor_div(&d),
                    3 => e.modulo(&d),
                    4 => e * &s(0) + i(1),
                    5 => e - next(9) as i64,
                    6 => e.minimum(&d),
                    7 => e.maximum(&i(1)),
                    _ => e * -1,
                };
            }
            let simple = e.simplify(&ranges);
            for x in 0..sizes[0] {
                for y in 0..size0 {
                    let value = |symbol| match symbol {
                        Symbol::Size(0) => Some(size0),
                        Symbol::Loop(0) => Some(x),
                        Symbol::Loop(1) => Some(y),
                        _ => None,
                    };
                    assert_eq!(e.eval(&value), simple.eval(&value), "{e} became {simple} at {x} {y} {size0}");
                    let v = e.eval(&value).unwrap();
                    assert!(ranges.min(&e).is_none_or(|m| m <= v), "{e}");
                    assert!(ranges.max(&e).is_none_or(|m| m >= v), "{e}");
                    assert_eq!(e, e.to_string().parse().unwrap());
                }
            }
        }
    }
}
