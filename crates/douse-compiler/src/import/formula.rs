//! Formulas: pointwise expressions written as arithmetic, then built as core operations.
//!
//! ```ignore
//! let x = Formula::from(value);
//! let half = &x * 0.5 * (1.0 + (&x * FRAC_1_SQRT_2).erf());
//! let result = half.build(&mut imp.b)?;
//! ```
//!
//! A number takes the dtype and shape of the operand beside it. A part that is used twice is built once.

use std::collections::HashMap;
use std::ops::{Add, Div, Mul, Neg, Sub};
use std::rc::Rc;

use douse_core::pointwise::{Binary, Unary};
use douse_core::{DType, Error, Result, Scalar};
use douse_ir::{Builder, Value};

/// A pointwise expression over values of the graph.
#[derive(Clone, Debug)]
pub struct Formula(Rc<Part>);

#[derive(Debug)]
enum Part {
    Value(Value),
    Number(Scalar),
    Unary(Unary, Formula),
    Binary(Binary, Formula, Formula),
    /// Condition, then, otherwise.
    Select(Formula, Formula, Formula),
    Cast(Formula, DType),
    /// A number in the dtype and shape of a formula.
    Like(Formula, Scalar),
}

impl Formula {
    fn new(part: Part) -> Formula {
        Formula(Rc::new(part))
    }

    pub fn unary(&self, op: Unary) -> Formula {
        Formula::new(Part::Unary(op, self.clone()))
    }

    pub fn binary(&self, op: Binary, other: impl Into<Formula>) -> Formula {
        Formula::new(Part::Binary(op, self.clone(), other.into()))
    }

    /// Where this bool holds `then`, else `otherwise`; one of them is not a number.
    pub fn select(&self, then: impl Into<Formula>, otherwise: impl Into<Formula>) -> Formula {
        Formula::new(Part::Select(self.clone(), then.into(), otherwise.into()))
    }

    pub fn cast(&self, dtype: DType) -> Formula {
        Formula::new(Part::Cast(self.clone(), dtype))
    }

    /// A number everywhere, in the dtype and shape of this.
    pub fn like(&self, number: f64) -> Formula {
        Formula::new(Part::Like(self.clone(), Scalar::Float(number)))
    }

    /// x * x.
    pub fn square(&self) -> Formula {
        self * self
    }

    /// Appends the operations.
    ///
    /// # Errors
    /// Those of the builder, for operands whose dtypes do not fit, and a fault of ours for a formula without values.
    pub fn build(&self, b: &mut Builder) -> Result<Value> {
        self.built(b, &mut HashMap::new())
    }

    fn built(&self, b: &mut Builder, done: &mut HashMap<*const Part, Value>) -> Result<Value> {
        let key = Rc::as_ptr(&self.0);
        if let Some(value) = done.get(&key) {
            return Ok(*value);
        }
        let value = match &*self.0 {
            Part::Value(value) => *value,
            Part::Number(number) => {
                return Err(Error::internal(format!("a formula that is the number {number} alone")));
            }
            Part::Unary(op, x) => {
                let x = x.built(b, done)?;
                b.unary(*op, x)?
            }
            Part::Binary(op, x, y) => {
                let (x, y) = pair(b, done, x, y)?;
                b.binary(*op, x, y)?
            }
            Part::Select(cond, x, y) => {
                let cond = cond.built(b, done)?;
                let (x, y) = pair(b, done, x, y)?;
                b.select(cond, x, y)?
            }
            Part::Cast(x, dtype) => {
                let x = x.built(b, done)?;
                b.cast(x, *dtype)
            }
            Part::Like(x, number) => {
                let x = x.built(b, done)?;
                b.full_like(x, *number)
            }
        };
        done.insert(key, value);
        Ok(value)
    }
}

/// Two operands, of which one may be a number.
fn pair(b: &mut Builder, done: &mut HashMap<*const Part, Value>, x: &Formula, y: &Formula) -> Result<(Value, Value)> {
    match (&*x.0, &*y.0) {
        (Part::Number(number), _) => {
            let y = y.built(b, done)?;
            Ok((b.full_like(y, *number), y))
        }
        (_, Part::Number(number)) => {
            let x = x.built(b, done)?;
            Ok((x, b.full_like(x, *number)))
        }
        _ => Ok((x.built(b, done)?, y.built(b, done)?)),
    }
}

impl From<Value> for Formula {
    fn from(value: Value) -> Formula {
        Formula::new(Part::Value(value))
    }
}

impl From<f64> for Formula {
    fn from(number: f64) -> Formula {
        Formula::new(Part::Number(Scalar::Float(number)))
    }
}

impl From<Scalar> for Formula {
    fn from(number: Scalar) -> Formula {
        Formula::new(Part::Number(number))
    }
}

impl From<&Formula> for Formula {
    fn from(formula: &Formula) -> Formula {
        formula.clone()
    }
}

macro_rules! operators {
    ($($trait:ident $method:ident $op:ident;)*) => {$(
        operators!(@impl $trait $method $op: Formula, Formula; Formula, &Formula; Formula, f64; &Formula, Formula;
            &Formula, &Formula; &Formula, f64; f64, Formula; f64, &Formula;);
    )*};
    (@impl $trait:ident $method:ident $op:ident: $($left:ty, $right:ty;)*) => {$(
        impl $trait<$right> for $left {
            type Output = Formula;
            fn $method(self, other: $right) -> Formula {
                Formula::new(Part::Binary(Binary::$op, self.into(), other.into()))
            }
        }
    )*};
}

operators! {
    Add add Add;
    Sub sub Sub;
    Mul mul Mul;
    Div div Div;
}

impl Neg for &Formula {
    type Output = Formula;
    fn neg(self) -> Formula {
        self.unary(Unary::Neg)
    }
}

impl Neg for Formula {
    type Output = Formula;
    fn neg(self) -> Formula {
        self.unary(Unary::Neg)
    }
}

macro_rules! methods {
    (unary $($name:ident $op:ident)*; binary $($two:ident $binary:ident)*;) => {
        impl Formula {
            $(pub fn $name(&self) -> Formula { self.unary(Unary::$op) })*
            $(pub fn $two(&self, other: impl Into<Formula>) -> Formula { self.binary(Binary::$binary, other) })*
        }
    };
}

methods! {
    unary abs Abs sign Sign sqrt Sqrt exp Exp exp2 Exp2 expm1 Expm1 log Log log2 Log2 log1p Log1p sin Sin cos Cos tan Tan sinh Sinh
        cosh Cosh tanh Tanh sigmoid Sigmoid erf Erf erfc Erfc lgamma Lgamma trunc Trunc round Round ceil Ceil floor Floor
        is_nan IsNan is_inf IsInf not Not reciprocal Reciprocal;
    binary minimum Minimum maximum Maximum eq Eq ne Ne lt Lt le Le gt Gt ge Ge and And or Or xor Xor pow Pow atan2 Atan2 hypot Hypot;
}

#[cfg(test)]
mod tests {
    use super::*;
    use douse_core::sym::Expr;
    use douse_ir::Module;

    #[test]
    fn a_shared_part_is_built_once() {
        let mut b = Builder::new(Module::default());
        let v = b.input(0, DType::F32, vec![Expr::int(3)]);
        let x = Formula::from(v);
        let e = x.exp();
        let f = &e / (1.0 + &e) - x.gt(0.0).select(&e, 2.0);
        f.build(&mut b).unwrap();
        let exps = b.module.graph.nodes.iter().filter(|n| n.op.name() == "exp").count();
        assert_eq!(exps, 1);
    }

    #[test]
    fn a_number_alone_is_refused() {
        let mut b = Builder::new(Module::default());
        assert!((Formula::from(1.0) + Formula::from(2.0)).build(&mut b).is_err());
    }
}
