//! Conditions over symbolic integers.

use serde::{Deserialize, Serialize};
use std::sync::Arc;

use super::{Expr, Symbol};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Compare {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

impl Compare {
    pub fn holds<T: PartialOrd>(self, a: &T, b: &T) -> bool {
        match self {
            Compare::Eq => a == b,
            Compare::Ne => a != b,
            Compare::Lt => a < b,
            Compare::Le => a <= b,
            Compare::Gt => a > b,
            Compare::Ge => a >= b,
        }
    }

    pub fn sign(self) -> &'static str {
        match self {
            Compare::Eq => "==",
            Compare::Ne => "!=",
            Compare::Lt => "<",
            Compare::Le => "<=",
            Compare::Gt => ">",
            Compare::Ge => ">=",
        }
    }

    fn negated(self) -> Compare {
        match self {
            Compare::Eq => Compare::Ne,
            Compare::Ne => Compare::Eq,
            Compare::Lt => Compare::Ge,
            Compare::Le => Compare::Gt,
            Compare::Gt => Compare::Le,
            Compare::Ge => Compare::Lt,
        }
    }
}

/// A condition on symbolic integers, evaluated once its symbols are known.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Cond {
    Bool(bool),
    Compare(Compare, Expr, Expr),
    And(Arc<(Cond, Cond)>),
    Or(Arc<(Cond, Cond)>),
}

impl Cond {
    pub fn compare(op: Compare, a: &Expr, b: &Expr) -> Cond {
        match (a - b).as_int() {
            Some(d) => Cond::Bool(op.holds(&d, &0)),
            None => Cond::Compare(op, a.clone(), b.clone()),
        }
    }

    pub fn and(&self, other: &Cond) -> Cond {
        match (self.as_bool(), other.as_bool()) {
            (Some(false), _) | (_, Some(false)) => Cond::Bool(false),
            (Some(true), _) => other.clone(),
            (_, Some(true)) => self.clone(),
            _ if self == other => self.clone(),
            _ => Cond::And(Arc::new((self.clone(), other.clone()))),
        }
    }

    pub fn or(&self, other: &Cond) -> Cond {
        match (self.as_bool(), other.as_bool()) {
            (Some(true), _) | (_, Some(true)) => Cond::Bool(true),
            (Some(false), _) => other.clone(),
            (_, Some(false)) => self.clone(),
            _ if self == other => self.clone(),
            _ => Cond::Or(Arc::new((self.clone(), other.clone()))),
        }
    }

    #[must_use]
    pub fn not(&self) -> Cond {
        match self {
            Cond::Bool(b) => Cond::Bool(!b),
            Cond::Compare(op, a, b) => Cond::Compare(op.negated(), a.clone(), b.clone()),
            Cond::And(ab) => ab.0.not().or(&ab.1.not()),
            Cond::Or(ab) => ab.0.not().and(&ab.1.not()),
        }
    }

    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Cond::Bool(b) => Some(*b),
            _ => None,
        }
    }

    pub fn substitute(&self, replace: &dyn Fn(Symbol) -> Option<Expr>) -> Cond {
        match self {
            Cond::Bool(b) => Cond::Bool(*b),
            Cond::Compare(op, a, b) => Cond::compare(*op, &a.substitute(replace), &b.substitute(replace)),
            Cond::And(ab) => ab.0.substitute(replace).and(&ab.1.substitute(replace)),
            Cond::Or(ab) => ab.0.substitute(replace).or(&ab.1.substitute(replace)),
        }
    }

    pub fn visit(&self, f: &mut dyn FnMut(Symbol)) {
        match self {
            Cond::Bool(_) => {}
            Cond::Compare(_, a, b) => {
                a.visit(f);
                b.visit(f);
            }
            Cond::And(ab) | Cond::Or(ab) => {
                ab.0.visit(f);
                ab.1.visit(f);
            }
        }
    }

    pub fn eval(&self, value: &dyn Fn(Symbol) -> Option<i64>) -> Option<bool> {
        Some(match self {
            Cond::Bool(b) => *b,
            Cond::Compare(op, a, b) => op.holds(&a.eval(value)?, &b.eval(value)?),
            Cond::And(ab) => ab.0.eval(value)? && ab.1.eval(value)?,
            Cond::Or(ab) => ab.0.eval(value)? || ab.1.eval(value)?,
        })
    }
}
