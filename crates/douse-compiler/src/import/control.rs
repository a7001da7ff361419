//! Host scalars, checks, and control flow.

use douse_core::sym::{Compare, Cond, Expr};
use douse_core::{DType, Error, Result};

use super::args::{Args, Val};
use super::importer::{Importer, Row};

pub const ROWS: &[Row] = &[
    ("aten.sym_size.int", sym_size),
    ("aten.sym_numel.default", sym_numel),
    ("aten._assert_tensor_metadata.default", assert_metadata),
    ("aten._assert_scalar.default", assert_scalar),
    ("aten._assert_async.msg", assert_async),
    ("aten._assert_async.default", assert_async),
    ("_operator.add", |i, a| arithmetic(i, a, |x, y| x + y)),
    ("_operator.sub", |i, a| arithmetic(i, a, |x, y| x - y)),
    ("_operator.mul", |i, a| arithmetic(i, a, |x, y| x * y)),
    ("_operator.floordiv", |i, a| arithmetic(i, a, Expr::floor_div)),
    ("_operator.mod", |i, a| arithmetic(i, a, Expr::modulo)),
    ("torch.sym_max", |i, a| arithmetic(i, a, Expr::maximum)),
    ("torch.sym_min", |i, a| arithmetic(i, a, Expr::minimum)),
    ("_operator.eq", |i, a| comparison(i, a, Compare::Eq)),
    ("_operator.ne", |i, a| comparison(i, a, Compare::Ne)),
    ("_operator.lt", |i, a| comparison(i, a, Compare::Lt)),
    ("_operator.le", |i, a| comparison(i, a, Compare::Le)),
    ("_operator.gt", |i, a| comparison(i, a, Compare::Gt)),
    ("_operator.ge", |i, a| comparison(i, a, Compare::Ge)),
];

fn sym_size(imp: &mut Importer, a: &Args) -> Result<Val> {
    let t = a.tensor("self")?;
    let shape = imp.shape_of(t)?;
    let dim = imp.dim(a, a.int("dim")?, shape.len())?;
    shape.get(dim).cloned().map(Val::Int).ok_or_else(|| a.wrong("dim", "a dimension of the tensor"))
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
        Some(Val::Bool(true)) => {}
        Some(Val::Bool(false)) => imp.b.require(Cond::Bool(false), text),
        Some(Val::SymBool(cond)) => {
            let cond = cond.simplify(imp.b.ranges());
            if cond.as_bool() != Some(true) {
                imp.b.require(cond, text);
            }
        }
        Some(Val::BoolValue(v)) => imp.b.assert(*v, text)?,
        Some(Val::Int(e)) => {
            let cond = Cond::compare(Compare::Ne, e, &Expr::int(0)).simplify(imp.b.ranges());
            if cond.as_bool() != Some(true) {
                imp.b.require(cond, text);
            }
        }
        _ => return Err(a.wrong("self", "a condition")),
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
fn pair<'a>(a: &'a Args) -> Result<(&'a Val, &'a Val)> {
    match a.values.as_slice() {
        [(_, x), (_, y)] => Ok((x, y)),
        _ => Err(a.unsupported("another number of operands")),
    }
}

fn integer(a: &Args, val: &Val) -> Result<Expr> {
    match val {
        Val::Int(e) => Ok(e.clone()),
        Val::Bool(b) => Ok(Expr::int(*b as i64)),
        _ => Err(a.unsupported("an operand that is not an integer")),
    }
}

fn arithmetic(_: &mut Importer, a: &Args, f: fn(&Expr, &Expr) -> Expr) -> Result<Val> {
    let (x, y) = pair(a)?;
    Ok(Val::Int(f(&integer(a, x)?, &integer(a, y)?)))
}

fn comparison(imp: &mut Importer, a: &Args, op: Compare) -> Result<Val> {
    let (x, y) = pair(a)?;
    let cond = Cond::compare(op, &integer(a, x)?, &integer(a, y)?).simplify(imp.b.ranges());
    Ok(cond.as_bool().map_or(Val::SymBool(cond.clone()), Val::Bool))
}
