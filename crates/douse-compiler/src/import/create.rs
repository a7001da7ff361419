//! Operators that make tensors from sizes and numbers.

use douse_core::sym::Expr;
use douse_core::{DType, Result, Scalar};

use super::args::{Args, Val};
use super::importer::{Importer, Row};

pub const ROWS: &[Row] = &[
    ("aten.full.default", full),
    ("aten.zeros.default", |i, a| filled(i, a, Scalar::Int(0))),
    ("aten.ones.default", |i, a| filled(i, a, Scalar::Int(1))),
    ("aten.empty.memory_format", |i, a| filled(i, a, Scalar::Int(0))),
    ("aten.arange.default", arange),
    ("aten.arange.start", arange),
    ("aten.arange.start_step", arange),
];

fn full(imp: &mut Importer, a: &Args) -> Result<Val> {
    let shape = a.exprs("size")?;
    let number = a.number("fill_value")?;
    let default = imp.result_type(a, &["fill_value"])?;
    let dtype = a.dtype("dtype")?.unwrap_or(default);
    if dtype.is_complex() {
        return Err(a.unsupported("a complex tensor here"));
    }
    let value = imp.number_value(&number, dtype);
    Ok(imp.b.expand(value, shape)?.into())
}

fn filled(imp: &mut Importer, a: &Args, scalar: Scalar) -> Result<Val> {
    let dtype = a.dtype("dtype")?.unwrap_or(DType::F32);
    if dtype.is_complex() {
        return Err(a.unsupported("a complex tensor here"));
    }
    Ok(imp.b.full(dtype, a.exprs("size")?, scalar).into())
}

/// start, start + step, ... below end.
fn arange(imp: &mut Importer, a: &Args) -> Result<Val> {
    let dtype = a.dtype("dtype")?;
    let get = |name: &str, default: Scalar| {
        if a.has(name) { a.number(name) } else { Ok(super::args::Number::Scalar(default)) }
    };
    use super::args::Number;
    let (start, end, step) = (get("start", Scalar::Int(0))?, a.number("end")?, get("step", Scalar::Int(1))?);
    let integer = |n: &Number| match n {
        Number::Scalar(s @ (Scalar::Int(_) | Scalar::Bool(_))) => Some(Expr::int(s.to_i64())),
        Number::Int(e) => Some(e.clone()),
        _ => None,
    };
    if let (Some(start), Some(end), Some(step)) = (integer(&start), integer(&end), integer(&step)) {
        let length = (&end - &start).ceil_div(&step).maximum(&Expr::int(0)).simplify(imp.b.ranges());
        let iota = imp.b.iota(vec![length], &start + &(&Expr::loop_var(0) * &step));
        return Ok(imp.b.cast(iota, dtype.unwrap_or(DType::I64)).into());
    }
    let float = |n: &Number| match n {
        Number::Scalar(s) => Ok(s.to_f64()),
        _ => Err(a.unsupported("a float range with bounds known only at run time")),
    };
    let (start, end, step) = (float(&start)?, float(&end)?, float(&step)?);
    let dtype = dtype.unwrap_or(DType::F32);
    let length = ((end - start) / step).ceil().max(0.0) as i64;
    let iota = imp.b.iota(vec![Expr::int(length)], Expr::loop_var(0));
    let at = imp.b.cast(iota, DType::F64);
    let scaled = imp.b.binary_scalar(douse_core::pointwise::Binary::Mul, at, Scalar::Float(step))?;
    let value = imp.b.binary_scalar(douse_core::pointwise::Binary::Add, scaled, Scalar::Float(start))?;
    Ok(imp.b.cast(value, dtype).into())
}
