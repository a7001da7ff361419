//! Numbers of the host: sizes, elements read from tensors, arithmetic and comparisons of them, and checks.
//!
//! Integers are expressions over symbols; what is read from a tensor is a new symbol. Floats and bools that come from data stay on the
//! device as 0-d values, and are read only where an integer or a condition of the host is made of them.

use douse_core::math::float;
use douse_core::pointwise::{Binary, Unary};
use douse_core::sym::{Compare, Cond, Expr, Symbol};
use douse_core::{DType, Error, Result, Scalar};
use douse_ir::{Op, Value};

use super::args::{Args, Val};
use super::importer::{Importer, Row};
use super::strided::storage_offset;
use super::tensor::contiguous_strides;

pub const ROWS: &[Row] = &[
    ("aten.sym_size.int", sym_size),
    ("aten.sym_size.default", sym_sizes),
    ("aten.sym_numel.default", sym_numel),
    ("aten.sym_stride.int", sym_stride),
    ("aten.sym_stride.default", sym_strides),
    ("aten.sym_storage_offset.default", sym_storage_offset),
    ("aten.item.default", item),
    ("aten._local_scalar_dense.default", item),
    ("aten.is_nonzero.default", is_nonzero),
    ("aten.equal.default", equal),
    ("aten._assert_tensor_metadata.default", assert_metadata),
    ("aten._assert_scalar.default", assert_scalar),
    ("aten._assert_async.msg", assert_async),
    ("aten._assert_async.default", assert_async),
    ("aten.sym_constrain_range.default", constrain_range),
    ("aten.sym_constrain_range_for_size.default", constrain_range),
    ("_operator.add", |i, a| arithmetic(i, a, &ADD)),
    ("_operator.sub", |i, a| arithmetic(i, a, &SUB)),
    ("_operator.mul", |i, a| arithmetic(i, a, &MUL)),
    ("_operator.floordiv", |i, a| arithmetic(i, a, &FLOOR_DIV)),
    ("_operator.mod", |i, a| arithmetic(i, a, &MOD)),
    ("_operator.truediv", true_divide),
    ("_operator.pow", power),
    ("_operator.neg", negative),
    ("_operator.pos", |_, a| one(a).cloned()),
    ("_operator.abs", absolute),
    ("builtins.abs", absolute),
    ("torch.sym_max", |i, a| arithmetic(i, a, &MAX)),
    ("torch.sym_min", |i, a| arithmetic(i, a, &MIN)),
    ("torch.sym_float", sym_float),
    ("torch.sym_int", |i, a| rounded(i, a, Unary::Trunc)),
    ("math.trunc", |i, a| rounded(i, a, Unary::Trunc)),
    ("math.floor", |i, a| rounded(i, a, Unary::Floor)),
    ("math.ceil", |i, a| rounded(i, a, Unary::Ceil)),
    ("torch.sym_sqrt", |i, a| float_function(i, a, Unary::Sqrt)),
    ("torch._sym_sqrt", |i, a| float_function(i, a, Unary::Sqrt)),
    ("math.sqrt", |i, a| float_function(i, a, Unary::Sqrt)),
    ("_operator.eq", |i, a| comparison(i, a, Compare::Eq)),
    ("_operator.ne", |i, a| comparison(i, a, Compare::Ne)),
    ("_operator.lt", |i, a| comparison(i, a, Compare::Lt)),
    ("_operator.le", |i, a| comparison(i, a, Compare::Le)),
    ("_operator.gt", |i, a| comparison(i, a, Compare::Gt)),
    ("_operator.ge", |i, a| comparison(i, a, Compare::Ge)),
    ("_operator.and_", |i, a| logic(i, a, Binary::And)),
    ("_operator.or_", |i, a| logic(i, a, Binary::Or)),
    ("_operator.not_", logical_not),
    ("torch.sym_not", logical_not),
    ("torch.sym_ite", if_then_else),
];

fn sym_size(imp: &mut Importer, a: &Args) -> Result<Val> {
    let t = a.tensor("self")?;
    let shape = imp.shape_of(t)?;
    let dim = imp.dim(a, a.int("dim")?, shape.len())?;
    shape.get(dim).cloned().map(Val::Int).ok_or_else(|| a.wrong("dim", "a dimension of the tensor"))
}

fn sym_sizes(imp: &mut Importer, a: &Args) -> Result<Val> {
    let t = a.tensor("self")?;
    Ok(Val::List(imp.shape_of(t)?.into_iter().map(Val::Int).collect()))
}

/// The program's own strides.
fn strides(imp: &mut Importer, a: &Args) -> Result<Vec<Expr>> {
    let t = a.tensor("self")?;
    match imp.strides_of(t) {
        Some(strides) => Ok(strides),
        None => Ok(contiguous_strides(&imp.shape_of(t)?)),
    }
}

fn sym_strides(imp: &mut Importer, a: &Args) -> Result<Val> {
    Ok(Val::List(strides(imp, a)?.into_iter().map(Val::Int).collect()))
}

fn sym_stride(imp: &mut Importer, a: &Args) -> Result<Val> {
    let strides = strides(imp, a)?;
    let dim = imp.dim(a, a.int("dim")?, strides.len())?;
    strides.get(dim).cloned().map(Val::Int).ok_or_else(|| a.wrong("dim", "a dimension of the tensor"))
}

fn sym_storage_offset(imp: &mut Importer, a: &Args) -> Result<Val> {
    let t = a.tensor("self")?;
    storage_offset(imp, a, t).map(Val::Int)
}

/// The one element as a number of the program.
fn item(imp: &mut Importer, a: &Args) -> Result<Val> {
    let x = imp.value(a, "self")?;
    let x = imp.b.reshape(x, vec![])?;
    let dtype = imp.b.dtype(x);
    if dtype.is_bool() {
        return Ok(Val::BoolValue(x));
    }
    if dtype.is_float() {
        return Ok(Val::SymFloat(imp.b.cast(x, DType::F64)));
    }
    if let Some(Scalar::Int(i)) = imp.b.constant_scalar(x) {
        return Ok(Val::Int(Expr::int(i)));
    }
    read(imp, x).map(Val::Int)
}

/// A 0-d integer or bool as a new symbol.
pub fn read(imp: &mut Importer, x: Value) -> Result<Expr> {
    let (min, max) = if imp.b.dtype(x).is_bool() { (Some(0), Some(1)) } else { (None, None) };
    let name = format!("item_{}", imp.b.module.symbols.len());
    let symbol = imp.b.new_symbol(&name, min, max, None);
    imp.b.item(x, symbol)?;
    Ok(Expr::symbol(Symbol::Size(symbol)))
}

fn is_nonzero(imp: &mut Importer, a: &Args) -> Result<Val> {
    let x = imp.value(a, "self")?;
    let x = imp.b.reshape(x, vec![])?;
    Ok(Val::BoolValue(imp.b.cast(x, DType::Bool)))
}

/// Whether two tensors have one shape and the same elements.
fn equal(imp: &mut Importer, a: &Args) -> Result<Val> {
    let (x, y) = (imp.value(a, "self")?, imp.value(a, "other")?);
    let (sx, sy) = (imp.b.shape(x).to_vec(), imp.b.shape(y).to_vec());
    let known = |s: &[Expr]| s.iter().map(Expr::as_int).collect::<Option<Vec<_>>>();
    if sx != sy {
        return match (known(&sx), known(&sy)) {
            (Some(_), Some(_)) => Ok(Val::Bool(false)),
            _ if sx.len() != sy.len() => Ok(Val::Bool(false)),
            _ => Err(a.unsupported("a comparison of tensors of unknown shapes")),
        };
    }
    let same = imp.b.binary(Binary::Eq, x, y)?;
    let dims: Vec<usize> = (0..sx.len()).collect();
    Ok(Val::BoolValue(imp.b.reduce(douse_core::pointwise::Combine::And, same, &dims)?))
}

fn sym_numel(imp: &mut Importer, a: &Args) -> Result<Val> {
    let t = a.tensor("self")?;
    Ok(Val::Int(Expr::product(&imp.shape_of(t)?)))
}

/// Checked when lowering: dtype, and sizes where both are known. Strides may differ, since layouts are ours.
fn assert_metadata(imp: &mut Importer, a: &Args) -> Result<Val> {
    let t = a.tensor("a")?;
    if let Some(dtype) = a.dtype("dtype")? {
        if dtype != imp.dtype_of(t) {
            return Err(Error::invalid_program(format!(
                "the program asserts {dtype} of a tensor of {}",
                imp.dtype_of(t)
            )));
        }
    }
    if let Some(sizes) = a.opt_exprs("size")? {
        let shape = imp.shape_of(t)?;
        for (own, wanted) in shape.iter().zip(&sizes) {
            imp.b.require_equal(own, wanted, "a size that the program asserts");
        }
    }
    Ok(Val::None)
}

fn assert_scalar(imp: &mut Importer, a: &Args) -> Result<Val> {
    let text = a.str_or("assert_msg", "an assertion of the program failed")?.to_string();
    let text = format!("{text} ({})", imp.place);
    match a.get("self") {
        Some(Val::BoolValue(v)) => imp.b.assert(*v, text)?,
        Some(val) => {
            let cond = condition(imp, a, val)?;
            require(imp, cond, text);
        }
        None => return Err(a.wrong("self", "a condition")),
    }
    Ok(Val::None)
}

/// Makes the call fail unless a condition holds, and takes it for granted from there on.
fn require(imp: &mut Importer, cond: Cond, text: String) {
    let cond = cond.simplify(imp.b.ranges());
    if cond.as_bool() != Some(true) {
        imp.b.require(cond.clone(), text);
        imp.b.assume(&cond);
    }
}

/// `min <= size <= max`; a bound that is not given does not hold anything.
fn constrain_range(imp: &mut Importer, a: &Args) -> Result<Val> {
    let size = a.expr("size")?;
    let least = if a.target.contains("for_size") { Some(Expr::int(0)) } else { None };
    let bounds = [(Compare::Ge, a.opt_expr("min")?.or(least)), (Compare::Le, a.opt_expr("max")?)];
    for (op, bound) in bounds {
        let Some(bound) = bound else { continue };
        let text = format!("a value read from data is not {} {bound} ({})", op.sign(), imp.place);
        require(imp, Cond::compare(op, &size, &bound), text);
    }
    Ok(Val::None)
}

fn assert_async(imp: &mut Importer, a: &Args) -> Result<Val> {
    let text = a.str_or("assert_msg", "Expected Tensor with single nonzero value, but got zero")?.to_string();
    let text = format!("{text} ({})", imp.place);
    let x = imp.value(a, "self")?;
    let x = imp.b.cast(x, DType::Bool);
    imp.b.assert(x, text)?;
    Ok(Val::None)
}

/// The operands of a Python operator, by position.
fn pair(a: &Args) -> Result<(&Val, &Val)> {
    match a.values.as_slice() {
        [(_, x), (_, y)] => Ok((x, y)),
        _ => Err(a.unsupported("another number of operands")),
    }
}

fn one(a: &Args) -> Result<&Val> {
    match a.values.as_slice() {
        [(_, x)] => Ok(x),
        _ => Err(a.unsupported("another number of operands")),
    }
}

/// An integer or bool as an expression; a bool of the device is read.
fn integer(imp: &mut Importer, a: &Args, val: &Val) -> Result<Expr> {
    match val {
        Val::Int(e) => Ok(e.clone()),
        Val::Bool(b) => Ok(Expr::int(i64::from(*b))),
        Val::SymBool(c) => Ok(Expr::select(c, &Expr::int(1), &Expr::int(0))),
        Val::BoolValue(v) => read(imp, *v),
        _ => Err(a.unsupported("an operand that is not an integer")),
    }
}

/// A value as a condition of the host, which what is on the device is read for.
pub fn condition(imp: &mut Importer, a: &Args, val: &Val) -> Result<Cond> {
    match val {
        Val::SymBool(cond) => Ok(cond.clone()),
        Val::Tensor(_) => {
            let value = condition_value(imp, a, val)?;
            condition(imp, a, &Val::BoolValue(value))
        }
        _ => {
            let number = integer(imp, a, val)?;
            Ok(Cond::compare(Compare::Ne, &number, &Expr::int(0)))
        }
    }
}

/// A value as a 0-d bool on the device.
pub fn condition_value(imp: &mut Importer, a: &Args, val: &Val) -> Result<Value> {
    match val {
        Val::BoolValue(v) => Ok(*v),
        Val::Tensor(t) => {
            let value = imp.real(a, *t)?;
            let value = imp.b.reshape(value, vec![])?;
            Ok(imp.b.cast(value, DType::Bool))
        }
        _ => {
            let number = integer(imp, a, val)?;
            let value = imp.b.size_value(number);
            Ok(imp.b.cast(value, DType::Bool))
        }
    }
}

/// A number as a 0-d float64.
fn float_value(imp: &mut Importer, a: &Args, val: &Val) -> Result<Value> {
    match val {
        Val::Float(f) => Ok(imp.b.full(DType::F64, vec![], Scalar::Float(*f))),
        Val::SymFloat(v) | Val::BoolValue(v) => Ok(imp.b.cast(*v, DType::F64)),
        _ => {
            let number = integer(imp, a, val)?;
            let value = imp.b.size_value(number);
            Ok(imp.b.cast(value, DType::F64))
        }
    }
}

/// A number that is known when lowering.
fn known(val: &Val) -> Option<f64> {
    match val {
        Val::Float(f) => Some(*f),
        Val::Int(e) => e.as_int().map(|i| i as f64),
        Val::Bool(b) => Some(f64::from(u8::from(*b))),
        _ => None,
    }
}

fn is_float(val: &Val) -> bool {
    matches!(val, Val::Float(_) | Val::SymFloat(_))
}

/// One Python operator on numbers: of integers, of floats known when lowering, of floats on the device.
struct Arithmetic {
    integers: fn(&Expr, &Expr) -> Expr,
    floats: fn(f64, f64) -> f64,
    values: Binary,
}

const ADD: Arithmetic = Arithmetic { integers: |x, y| x + y, floats: |x, y| x + y, values: Binary::Add };
const SUB: Arithmetic = Arithmetic { integers: |x, y| x - y, floats: |x, y| x - y, values: Binary::Sub };
const MUL: Arithmetic = Arithmetic { integers: |x, y| x * y, floats: |x, y| x * y, values: Binary::Mul };
const FLOOR_DIV: Arithmetic =
    Arithmetic { integers: Expr::floor_div, floats: float::floor_divide, values: Binary::FloorDivide };
const MOD: Arithmetic = Arithmetic { integers: Expr::modulo, floats: float::remainder, values: Binary::Remainder };
const MAX: Arithmetic = Arithmetic { integers: Expr::maximum, floats: f64::max, values: Binary::Maximum };
const MIN: Arithmetic = Arithmetic { integers: Expr::minimum, floats: f64::min, values: Binary::Minimum };

fn arithmetic(imp: &mut Importer, a: &Args, op: &Arithmetic) -> Result<Val> {
    let (x, y) = pair(a)?;
    if !is_float(x) && !is_float(y) {
        let (x, y) = (integer(imp, a, x)?, integer(imp, a, y)?);
        return Ok(Val::Int((op.integers)(&x, &y)));
    }
    if let (Some(x), Some(y)) = (known(x), known(y)) {
        return Ok(Val::Float((op.floats)(x, y)));
    }
    let (x, y) = (float_value(imp, a, x)?, float_value(imp, a, y)?);
    Ok(Val::SymFloat(imp.b.binary(op.values, x, y)?))
}

fn true_divide(imp: &mut Importer, a: &Args) -> Result<Val> {
    let (x, y) = pair(a)?;
    if let (Some(x), Some(y)) = (known(x), known(y)) {
        return Ok(Val::Float(x / y));
    }
    let (x, y) = (float_value(imp, a, x)?, float_value(imp, a, y)?);
    Ok(Val::SymFloat(imp.b.binary(Binary::Div, x, y)?))
}

/// Integers to a power that is known, or floats.
fn power(imp: &mut Importer, a: &Args) -> Result<Val> {
    let (x, y) = pair(a)?;
    if let (false, Val::Int(exponent)) = (is_float(x), y) {
        let n = exponent.as_int().filter(|n| (0..=16).contains(n));
        let n = n.ok_or_else(|| a.unsupported("an integer to a power that is unknown, negative or above 16"))?;
        let base = integer(imp, a, x)?;
        return Ok(Val::Int((0..n).fold(Expr::int(1), |product, _| &product * &base)));
    }
    if let (Some(x), Some(y)) = (known(x), known(y)) {
        return Ok(Val::Float(x.powf(y)));
    }
    let (x, y) = (float_value(imp, a, x)?, float_value(imp, a, y)?);
    Ok(Val::SymFloat(imp.b.binary(Binary::Pow, x, y)?))
}

fn negative(imp: &mut Importer, a: &Args) -> Result<Val> {
    match one(a)? {
        Val::Float(f) => Ok(Val::Float(-f)),
        Val::SymFloat(v) => Ok(Val::SymFloat(imp.b.unary(Unary::Neg, *v)?)),
        other => Ok(Val::Int(-&integer(imp, a, other)?)),
    }
}

fn absolute(imp: &mut Importer, a: &Args) -> Result<Val> {
    match one(a)? {
        Val::Float(f) => Ok(Val::Float(f.abs())),
        Val::SymFloat(v) => Ok(Val::SymFloat(imp.b.unary(Unary::Abs, *v)?)),
        other => {
            let number = integer(imp, a, other)?;
            Ok(Val::Int(number.maximum(&-&number).simplify(imp.b.ranges())))
        }
    }
}

fn sym_float(imp: &mut Importer, a: &Args) -> Result<Val> {
    match one(a)? {
        Val::Float(f) => Ok(Val::Float(*f)),
        val => match known(val) {
            Some(f) => Ok(Val::Float(f)),
            None => Ok(Val::SymFloat(float_value(imp, a, val)?)),
        },
    }
}

fn float_function(imp: &mut Importer, a: &Args, op: Unary) -> Result<Val> {
    let x = float_value(imp, a, one(a)?)?;
    Ok(Val::SymFloat(imp.b.unary(op, x)?))
}

/// A float as an integer, rounded by `op`. A size times a known number stays on the host; anything else is read from the device.
fn rounded(imp: &mut Importer, a: &Args, op: Unary) -> Result<Val> {
    let value = match one(a)? {
        Val::SymFloat(v) => *v,
        Val::Float(f) => {
            let whole = match op {
                Unary::Floor => f.floor(),
                Unary::Ceil => f.ceil(),
                _ => f.trunc(),
            };
            return Ok(Val::Int(Expr::int(whole as i64)));
        }
        other => return integer(imp, a, other).map(Val::Int),
    };
    if let Some((size, factor)) = scaled_size(imp, value) {
        // ceil(x) = -floor(-x); towards zero is downwards for what is not negative.
        match op {
            Unary::Ceil => return Ok(Val::Int(-&size.scale(-factor))),
            Unary::Floor => return Ok(Val::Int(size.scale(factor))),
            _ if factor >= 0.0 && imp.b.ranges().non_negative(&size) => return Ok(Val::Int(size.scale(factor))),
            _ => {}
        }
    }
    let whole = imp.b.unary(op, value)?;
    let whole = imp.b.cast(whole, DType::I64);
    read(imp, whole).map(Val::Int)
}

/// What a float64 is the product of: a host integer and a known number.
fn scaled_size(imp: &Importer, value: Value) -> Option<(Expr, f64)> {
    let size = |v: Value| {
        let cast = imp.b.definition(v).filter(|node| node.op == Op::Cast)?;
        match &imp.b.definition(*cast.operands.first()?)?.op {
            Op::Iota(expr) if !expr.mentions_loops() => Some(expr.clone()),
            _ => None,
        }
    };
    let number = |v: Value| imp.b.constant_scalar(v).map(|s| s.to_f64());
    if let Some(size) = size(value) {
        return Some((size, 1.0));
    }
    let node = imp.b.definition(value)?;
    let [x, y] = node.operands.as_slice() else { return None };
    match node.op {
        Op::Binary(Binary::Mul) => match (size(*x), number(*y), number(*x), size(*y)) {
            (Some(size), Some(factor), ..) | (_, _, Some(factor), Some(size)) => Some((size, factor)),
            _ => None,
        },
        // Division by a power of two is multiplication by its inverse.
        Op::Binary(Binary::Div) => {
            let (size, divisor) = (size(*x)?, number(*y)?);
            let exact = divisor.is_normal() && divisor.to_bits() & ((1 << 52) - 1) == 0;
            exact.then(|| (size, 1.0 / divisor))
        }
        _ => None,
    }
}

fn comparison(imp: &mut Importer, a: &Args, op: Compare) -> Result<Val> {
    let (x, y) = pair(a)?;
    if is_float(x) || is_float(y) {
        if let (Some(x), Some(y)) = (known(x), known(y)) {
            return Ok(Val::Bool(op.holds(&x, &y)));
        }
        let (x, y) = (float_value(imp, a, x)?, float_value(imp, a, y)?);
        let op = match op {
            Compare::Eq => Binary::Eq,
            Compare::Ne => Binary::Ne,
            Compare::Lt => Binary::Lt,
            Compare::Le => Binary::Le,
            Compare::Gt => Binary::Gt,
            Compare::Ge => Binary::Ge,
        };
        return Ok(Val::BoolValue(imp.b.binary(op, x, y)?));
    }
    let cond = Cond::compare(op, &integer(imp, a, x)?, &integer(imp, a, y)?);
    Ok(bool_val(imp, cond))
}

fn bool_val(imp: &Importer, cond: Cond) -> Val {
    let cond = cond.simplify(imp.b.ranges());
    cond.as_bool().map_or(Val::SymBool(cond.clone()), Val::Bool)
}

/// `and`, `or`: on the device if a side is there.
fn logic(imp: &mut Importer, a: &Args, op: Binary) -> Result<Val> {
    let (x, y) = pair(a)?;
    if matches!(x, Val::BoolValue(_)) || matches!(y, Val::BoolValue(_)) {
        let (x, y) = (condition_value(imp, a, x)?, condition_value(imp, a, y)?);
        return Ok(Val::BoolValue(imp.b.binary(op, x, y)?));
    }
    let bools = |val: &Val| matches!(val, Val::Bool(_) | Val::SymBool(_));
    if !bools(x) || !bools(y) {
        return Err(a.unsupported("operands that are not bools"));
    }
    let (x, y) = (condition(imp, a, x)?, condition(imp, a, y)?);
    Ok(bool_val(imp, if op == Binary::And { x.and(&y) } else { x.or(&y) }))
}

fn logical_not(imp: &mut Importer, a: &Args) -> Result<Val> {
    match one(a)? {
        Val::BoolValue(v) => Ok(Val::BoolValue(imp.b.unary(Unary::Not, *v)?)),
        val => {
            let cond = condition(imp, a, val)?;
            Ok(bool_val(imp, cond.not()))
        }
    }
}

fn if_then_else(imp: &mut Importer, a: &Args) -> Result<Val> {
    let [(_, b), (_, t), (_, f)] = a.values.as_slice() else { return Err(a.unsupported("other operands")) };
    if let Val::Bool(b) = b {
        return Ok(if *b { t.clone() } else { f.clone() });
    }
    if is_float(t) || is_float(f) {
        let cond = condition_value(imp, a, b)?;
        let (t, f) = (float_value(imp, a, t)?, float_value(imp, a, f)?);
        return Ok(Val::SymFloat(imp.b.select(cond, t, f)?));
    }
    let cond = condition(imp, a, b)?;
    let (t, f) = (integer(imp, a, t)?, integer(imp, a, f)?);
    Ok(Val::Int(Expr::select(&cond, &t, &f)))
}
