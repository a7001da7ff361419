//! Expressions: canonical, and over symbols that are in scope.

use douse_core::Result;
use douse_core::sym::{Atom, Cond, Expr, Symbol};

use super::fault;

/// Which symbols an expression may mention.
pub struct Scope<'a> {
    /// Sizes in scope, by number.
    pub sizes: &'a [bool],
    /// The number of loops.
    pub loops: usize,
    /// Whether each register is an integer, for those that are defined.
    pub values: &'a [bool],
}

impl<'a> Scope<'a> {
    pub fn of_sizes(sizes: &'a [bool]) -> Scope<'a> {
        Scope { sizes, loops: 0, values: &[] }
    }

    fn symbol(&self, symbol: Symbol) -> Result<()> {
        match symbol {
            Symbol::Size(n) if self.sizes.get(n as usize).copied() == Some(true) => Ok(()),
            Symbol::Size(n) if (n as usize) < self.sizes.len() => fault(format!("{symbol} is not known here")),
            Symbol::Size(_) => fault(format!("{symbol} of {} symbols", self.sizes.len())),
            Symbol::Loop(n) if (n as usize) < self.loops => Ok(()),
            Symbol::Loop(_) => fault(format!("loop {symbol} of {}", self.loops)),
            Symbol::Value(n) => match self.values.get(n as usize) {
                Some(true) => Ok(()),
                Some(false) => fault(format!("register {symbol} is no integer")),
                None => fault(format!("register {symbol} is not defined here")),
            },
        }
    }

    /// # Errors
    /// `InvalidProgram` where the expression mentions what is not in scope or is not in canonical form.
    pub fn expr(&self, expr: &Expr) -> Result<()> {
        let terms = expr.terms();
        let sorted = terms.windows(2).all(|pair| match pair {
            [a, b] => a.factors < b.factors,
            _ => true,
        });
        if !sorted {
            return fault("an expression whose terms are not in order");
        }
        for term in terms {
            if term.coefficient == 0 || term.factors.is_empty() || !term.factors.is_sorted() {
                return fault("an expression with a term that is not in canonical form");
            }
            for atom in &term.factors {
                self.atom(atom)?;
            }
        }
        Ok(())
    }

    fn atom(&self, atom: &Atom) -> Result<()> {
        match atom {
            Atom::Symbol(symbol) => self.symbol(*symbol),
            Atom::FloorDiv(ab) | Atom::Mod(ab) | Atom::Min(ab) | Atom::Max(ab) => {
                self.expr(&ab.0)?;
                self.expr(&ab.1)
            }
            Atom::Select(cab) => {
                self.cond(&cab.0)?;
                self.expr(&cab.1)?;
                self.expr(&cab.2)
            }
            Atom::Scale(a, _) => self.expr(a),
        }
    }

    /// # Errors
    /// As [`expr`](Scope::expr).
    pub fn cond(&self, cond: &Cond) -> Result<()> {
        match cond {
            Cond::Bool(_) => Ok(()),
            Cond::Compare(_, a, b) => {
                self.expr(a)?;
                self.expr(b)
            }
            Cond::And(ab) | Cond::Or(ab) => {
                self.cond(&ab.0)?;
                self.cond(&ab.1)
            }
        }
    }

    /// # Errors
    /// As [`expr`](Scope::expr).
    pub fn exprs<'e>(&self, exprs: impl IntoIterator<Item = &'e Expr>) -> Result<()> {
        exprs.into_iter().try_for_each(|e| self.expr(e))
    }
}
