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

    /// As [`Importer::wide`], but integers stay in their common dtype, in which eager takes differences and products (and wraps) before it
    /// goes to float. The last is the dtype to go to: what formulas compute in.
    pub fn exact<const N: usize>(&mut self, a: &Args, names: [&str; N]) -> Result<([Formula; N], DType, DType)> {
        let common = self.result_type(a, &names)?;
        let compute = self.compute_dtype(float_dtype(common));
        if common.is_float() || common.is_complex() {
            let (operands, dtype) = self.wide(a, names)?;
            return Ok((operands, dtype, compute));
        }
        let mut operands = Vec::with_capacity(N);
        for name in names {
            operands.push(Formula::from(self.operand(a, name, common)?));
        }
        match operands.try_into() {
            Ok(operands) => Ok((operands, common, compute)),
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

#[cfg(test)]
mod tests {
    use douse_core::sym::Expr;
    use douse_ir::{Builder, Module, node_text};

    use super::*;

    fn importer() -> Importer {
        Importer::new(Builder::new(Module::default()))
    }

    fn vector(imp: &mut Importer, number: u32, dtype: DType) -> Val {
        let value = imp.b.input(number, dtype.real(), vec![Expr::int(3)]);
        Val::Tensor(imp.new_tensor(value, dtype))
    }

    fn call(imp: &mut Importer, target: &str, values: Vec<(&str, Val)>) -> Val {
        let values = values.into_iter().map(|(name, val)| (name.to_string(), val)).collect();
        imp.call(&Args { target: target.to_string(), values }).unwrap()
    }

    /// The names of the operations that an operator becomes, inputs and numbers left out.
    fn operations(imp: &Importer) -> Vec<&str> {
        let names = imp.b.module.graph.nodes.iter().map(|n| n.op.name());
        names.filter(|n| !["input", "full"].contains(n)).collect()
    }

    /// The names of all operations that lead to a value.
    fn sources(imp: &Importer, value: Value) -> Vec<&str> {
        let Some(node) = imp.b.definition(value) else { return vec![] };
        let deeper = node.operands.iter().flat_map(|v| sources(imp, *v));
        std::iter::once(node.op.name()).chain(deeper).collect()
    }

    #[test]
    fn a_number_keeps_its_digits_beside_a_half() {
        let mut imp = importer();
        let x = vector(&mut imp, 0, DType::F16);
        call(&mut imp, "aten.mul.Tensor", vec![("self", x), ("other", Val::Float(0.1))]);
        assert_eq!(operations(&imp), ["cast", "mul", "cast"]);
        let texts: Vec<String> = imp.b.module.graph.nodes.iter().map(|n| node_text(&imp.b.module, n)).collect();
        assert!(texts.iter().any(|t| t.contains("float32") && t.contains("full") && t.contains("0.1")), "{texts:?}");
    }

    #[test]
    fn powers_that_have_a_function_use_it() {
        for (exponent, wanted) in [
            (Val::Float(0.5), vec!["sqrt"]),
            (Val::Float(-0.5), vec!["rsqrt"]),
            (Val::Int(Expr::int(2)), vec!["mul"]),
            (Val::Float(-2.0), vec!["mul", "reciprocal"]),
            (Val::Float(1.5), vec!["pow"]),
            (Val::Int(Expr::int(1)), vec![]),
        ] {
            let mut imp = importer();
            let x = vector(&mut imp, 0, DType::F32);
            call(&mut imp, "aten.pow.Tensor_Scalar", vec![("self", x), ("exponent", exponent.clone())]);
            assert_eq!(operations(&imp), wanted, "{exponent:?}");
        }
    }

    #[test]
    fn integers_divide_in_float32() {
        let mut imp = importer();
        let (x, y) = (vector(&mut imp, 0, DType::I64), vector(&mut imp, 1, DType::I32));
        let Val::Value(result) = call(&mut imp, "aten.div.Tensor", vec![("self", x), ("other", y)]) else {
            panic!("not a value")
        };
        assert_eq!(imp.b.dtype(result), DType::F32);
    }

    #[test]
    fn an_order_of_complex_numbers_is_refused() {
        let mut imp = importer();
        let value = imp.b.input(0, DType::F32, vec![Expr::int(3), Expr::int(2)]);
        let z = Val::Tensor(imp.new_tensor(value, DType::C64));
        let values = vec![("self".to_string(), z), ("other".to_string(), Val::Float(1.0))];
        let error = imp.call(&Args { target: "aten.lt.Scalar".to_string(), values }).unwrap_err();
        assert_eq!(error.code, douse_core::Code::NotSupported);
    }

    /// `z.conj().fill_(1 + 2j)` leaves `1 - 2j` in z.
    #[test]
    fn a_write_into_a_conjugate_reaches_the_tensor() {
        let mut imp = importer();
        let value = imp.b.input(0, DType::F32, vec![Expr::int(2)]);
        let z = imp.new_tensor(value, DType::C64);
        let view = call(&mut imp, "aten.conj.default", vec![("self", Val::Tensor(z))]);
        call(&mut imp, "aten.fill_.Scalar", vec![("self", view), ("value", Val::ComplexScalar(1.0, 2.0))]);
        let root = imp.read(z).unwrap();
        let sources = sources(&imp, root);
        assert!(sources.contains(&"neg"), "the imaginary part is turned back: {sources:?}");
        assert!(!sources.contains(&"input"), "nothing of the old content is left: {sources:?}");
    }

    /// `sqrt(-inf)` is NaN, the power is inf: float16 has no rule of its own in eager.
    #[test]
    fn a_half_to_the_half_stays_a_power() {
        for (dtype, wanted) in [(DType::F16, "pow"), (DType::BF16, "sqrt")] {
            let mut imp = importer();
            let x = vector(&mut imp, 0, dtype);
            call(&mut imp, "aten.pow.Tensor_Scalar", vec![("self", x), ("exponent", Val::Float(0.5))]);
            assert_eq!(operations(&imp), ["cast", wanted, "cast"]);
        }
    }

    /// By a number the quotient of halves is cut in float32; of two tensors it is rounded first.
    #[test]
    fn halves_are_cut_before_or_after_rounding() {
        let (mut by_number, mut by_tensor) = (importer(), importer());
        let mode = || ("rounding_mode", Val::Str("trunc".to_string()));
        let x = vector(&mut by_number, 0, DType::F16);
        call(&mut by_number, "aten.div.Scalar_mode", vec![("self", x), ("other", Val::Float(0.3)), mode()]);
        assert_eq!(operations(&by_number), ["cast", "div", "trunc", "cast"]);
        let (x, y) = (vector(&mut by_tensor, 0, DType::F16), vector(&mut by_tensor, 1, DType::F16));
        call(&mut by_tensor, "aten.div.Tensor_mode", vec![("self", x), ("other", y), mode()]);
        assert_eq!(operations(&by_tensor), ["cast", "cast", "div", "cast", "trunc"]);
    }

    /// `z.conj().resolve_conj()` is a copy, `z.resolve_conj()` is z.
    #[test]
    fn a_resolved_conjugate_is_a_copy() {
        let mut imp = importer();
        let value = imp.b.input(0, DType::F32, vec![Expr::int(2)]);
        let z = imp.new_tensor(value, DType::C64);
        let view = call(&mut imp, "aten.conj.default", vec![("self", Val::Tensor(z))]);
        for (name, tensor, written) in [("copy", view, false), ("itself", Val::Tensor(z), true)] {
            let resolved = call(&mut imp, "aten.resolve_conj.default", vec![("self", tensor)]);
            let before = imp.read(z).unwrap();
            call(&mut imp, "aten.fill_.Scalar", vec![("self", resolved), ("value", Val::Float(1.0))]);
            assert_eq!(imp.read(z).unwrap() != before, written, "{name}");
        }
    }
}
