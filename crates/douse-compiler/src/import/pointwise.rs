//! What elementwise rows share: operands in a common dtype, and results rounded once.

use douse_core::pointwise::Unary;
use douse_core::{DType, Result};
use douse_ir::Value;

use super::args::{Args, Val};
use super::formula::Formula;
use super::importer::Importer;

/// A dtype as float functions return it: floats and complex dtypes are kept, integers and bools become float32.
pub fn float_dtype(dtype: DType) -> DType {
    if dtype.is_float() || dtype.is_complex() { dtype } else { DType::F32 }
}

/// Integers and bools as float32.
pub fn as_float(imp: &mut Importer, x: Value) -> Value {
    let dtype = float_dtype(imp.b.dtype(x));
    imp.b.cast(x, dtype)
}

/// Rows (target, the argument's name, operation) of one core operation that keeps the dtype.
pub fn unary(imp: &mut Importer, a: &Args, op: Unary) -> Result<Val> {
    let x = imp.value(a, "self")?;
    Ok(imp.b.unary(op, x)?.into())
}

/// `self` and `other` in their common dtype.
pub fn promoted(imp: &mut Importer, a: &Args) -> Result<(Value, Value)> {
    let dtype = imp.result_type(a, &["self", "other"])?;
    Ok((imp.operand(a, "self", dtype)?, imp.operand(a, "other", dtype)?))
}

impl Importer {
    /// Arguments, tensors or numbers, in the dtype that formulas compute in, and the float dtype that the result is rounded to. Tensors with
    /// dimensions are first brought to the common dtype; numbers and 0-d tensors keep what the wider dtype can hold of them.
    pub fn wide<const N: usize>(&mut self, a: &Args, names: [&str; N]) -> Result<([Formula; N], DType)> {
        let dtype = float_dtype(self.result_type(a, &names)?);
        let mut operands = Vec::with_capacity(N);
        for name in names {
            operands.push(Formula::from(self.wide_operand(a, name, dtype)?));
        }
        match operands.try_into() {
            Ok(operands) => Ok((operands, dtype)),
            Err(_) => Err(douse_core::Error::internal("another number of operands")),
        }
    }

    /// An argument brought to a dtype and widened to what formulas of that dtype compute in.
    pub fn wide_operand(&mut self, a: &Args, name: &str, dtype: DType) -> Result<Value> {
        let compute = self.compute_dtype(dtype);
        match a.get(name) {
            Some(Val::Tensor(_)) => {
                let x = self.value(a, name)?;
                let x = if self.b.rank(x) > 0 { self.b.cast(x, dtype) } else { x };
                Ok(self.b.cast(x, compute))
            }
            _ => self.operand(a, name, compute),
        }
    }

    /// A formula's value, rounded to a dtype.
    pub fn rounded(&mut self, formula: &Formula, dtype: DType) -> Result<Val> {
        let value = formula.build(&mut self.b)?;
        Ok(self.b.cast(value, dtype).into())
    }
}
