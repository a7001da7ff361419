//! Symbolic numbers: expressions over the program's symbols.

use crate::argument::Plain;
use crate::sympy::infix_of;
use crate::union::{Float, Union, union};
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess};
use std::fmt;

/// A number, or an expression for it.
#[derive(Clone, Debug, PartialEq)]
pub enum Symbolic<T> {
    Value(T),
    Expr {
        tree: SymTree,
        /// The value in the call that the program was traced with, where it is known.
        hint: Option<T>,
    },
}

pub type SymInt = Symbolic<i64>;
pub type SymFloat = Symbolic<f64>;
pub type SymBool = Symbolic<bool>;

/// An expression as the file writes it; nothing is simplified.
#[derive(Clone, Debug, PartialEq)]
pub enum SymTree {
    Int(i64),
    Float(f64),
    /// Numerator and denominator.
    Rational(i64, i64),
    Bool(bool),
    Infinity,
    NegativeInfinity,
    Symbol(String),
    /// A function by the name it has in SymPy or PyTorch: `Add`, `FloorDiv`, `Equality`, `Piecewise`.
    Call(String, Vec<SymTree>),
}

impl SymTree {
    /// Every symbol in the expression, in the order they stand, repeated where they are.
    pub fn symbols(&self) -> Vec<&str> {
        let mut symbols = Vec::new();
        let mut rest = vec![self];
        while let Some(tree) = rest.pop() {
            match tree {
                SymTree::Symbol(name) => symbols.push(name.as_str()),
                SymTree::Call(_, args) => rest.extend(args.iter().rev()),
                _ => {}
            }
        }
        symbols
    }

    /// The expression as Python writes it, for people: `s0 + 1`, `(s0 + s1) // 2`.
    pub fn formula(&self) -> String {
        let power = |tree: &SymTree| match tree {
            SymTree::Call(name, args) if args.len() > 1 => infix_of(name),
            _ => None,
        };
        let SymTree::Call(name, args) = self else { return self.to_string() };
        let Some((operator, own)) = power(self) else {
            return format!("{name}({})", args.iter().map(SymTree::formula).collect::<Vec<_>>().join(", "));
        };
        let operand = |tree: &SymTree| {
            let loose = match tree {
                SymTree::Int(value) => *value < 0,
                SymTree::Rational(..) => true,
                _ => power(tree).is_some_and(|(_, inner)| inner <= own),
            };
            if loose { format!("({})", tree.formula()) } else { tree.formula() }
        };
        args.iter().map(operand).collect::<Vec<_>>().join(&format!(" {operator} "))
    }
}

impl fmt::Display for SymTree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SymTree::Int(value) => write!(f, "{value}"),
            SymTree::Float(value) => write!(f, "{value:?}"),
            SymTree::Rational(numerator, denominator) => write!(f, "{numerator}/{denominator}"),
            SymTree::Bool(value) => write!(f, "{value}"),
            SymTree::Infinity => f.write_str("oo"),
            SymTree::NegativeInfinity => f.write_str("-oo"),
            SymTree::Symbol(name) => f.write_str(name),
            SymTree::Call(name, args) => {
                write!(f, "{name}(")?;
                for (i, arg) in args.iter().enumerate() {
                    write!(f, "{}{arg}", if i == 0 { "" } else { ", " })?;
                }
                f.write_str(")")
            }
        }
    }
}

impl<T: fmt::Display> Symbolic<T> {
    /// As [`SymTree::formula`].
    pub fn formula(&self) -> String {
        match self {
            Symbolic::Value(value) => value.to_string(),
            Symbolic::Expr { tree, .. } => tree.formula(),
        }
    }
}

impl<T: fmt::Display> fmt::Display for Symbolic<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Symbolic::Value(value) => value.fmt(f),
            Symbolic::Expr { tree, .. } => tree.fmt(f),
        }
    }
}

#[derive(serde::Deserialize)]
struct RawExpr {
    expr_str: String,
    #[serde(default)]
    hint: Option<Hint>,
}

/// The value of a symbolic number in the traced call.
#[derive(Clone, Copy)]
pub(crate) enum Hint {
    Int(i64),
    Float(f64),
    Bool(bool),
}

impl Union for Hint {
    const WHAT: &'static str = "hint";

    fn read<'de, A: MapAccess<'de>>(kind: &str, map: &mut A) -> Result<Option<Self>, A::Error> {
        Ok(Some(match kind {
            "as_int" => Hint::Int(map.next_value()?),
            "as_float" => Hint::Float(map.next_value::<Float>()?.0),
            "as_bool" => Hint::Bool(map.next_value()?),
            _ => return Ok(None),
        }))
    }
}

impl<'de> Deserialize<'de> for Hint {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Hint, D::Error> {
        union(deserializer)
    }
}

impl<T: Plain> Union for Symbolic<T> {
    const WHAT: &'static str = "symbolic number";

    fn read<'de, A: MapAccess<'de>>(kind: &str, map: &mut A) -> Result<Option<Self>, A::Error> {
        match kind {
            "as_expr" => {
                let raw: RawExpr = map.next_value()?;
                let tree = crate::sympy::parse(&raw.expr_str).map_err(A::Error::custom)?;
                Ok(Some(Symbolic::Expr { tree, hint: raw.hint.and_then(T::from_hint) }))
            }
            kind if kind == T::KIND => Ok(Some(Symbolic::Value(T::read(map)?))),
            _ => Ok(None),
        }
    }
}

impl<'de, T: Plain> Deserialize<'de> for Symbolic<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Symbolic<T>, D::Error> {
        union(deserializer)
    }
}
