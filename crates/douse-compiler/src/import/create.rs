//! Operators that make tensors from sizes and numbers.

use douse_core::pointwise::Binary;
use douse_core::sym::{Compare, Cond, Expr};
use douse_core::{DType, Error, Result, Scalar};
use douse_ir::Value;

use super::args::{Args, Number, Val};
use super::data::Data;
use super::formula::Formula;
use super::importer::{Importer, Row};
use super::reduce::size_as;

/// An operator's value everywhere.
type Fill = Option<Scalar>;

const ZERO: Fill = Some(Scalar::Int(0));
const ONE: Fill = Some(Scalar::Int(1));
/// What `fill_value` says.
const GIVEN: Fill = None;

pub const ROWS: &[Row] = &[
    ("aten.full.default", full),
    ("aten.scalar_tensor.default", scalar_tensor),
    ("aten.zeros.default", |i, a| filled(i, a, ZERO)),
    ("aten.ones.default", |i, a| filled(i, a, ONE)),
    // The content of an empty tensor is anything: zeros.
    ("aten.empty.memory_format", |i, a| filled(i, a, ZERO)),
    ("aten.empty_strided.default", |i, a| filled(i, a, ZERO)),
    ("aten.empty_permuted.default", |i, a| filled(i, a, ZERO)),
    ("aten.full_like.default", |i, a| filled_like(i, a, GIVEN)),
    ("aten.zeros_like.default", |i, a| filled_like(i, a, ZERO)),
    ("aten.ones_like.default", |i, a| filled_like(i, a, ONE)),
    ("aten.empty_like.default", |i, a| filled_like(i, a, ZERO)),
    ("aten.new_full.default", |i, a| filled_like(i, a, GIVEN)),
    ("aten.new_zeros.default", |i, a| filled_like(i, a, ZERO)),
    ("aten.new_ones.default", |i, a| filled_like(i, a, ONE)),
    ("aten.new_empty.default", |i, a| filled_like(i, a, ZERO)),
    ("aten.new_empty_strided.default", |i, a| filled_like(i, a, ZERO)),
    ("aten.zero.default", |i, a| filled_like(i, a, ZERO)),
    ("aten.fill.Scalar", |i, a| broadcast_into(i, a, "value")),
    ("aten.fill.Tensor", |i, a| broadcast_into(i, a, "value")),
    ("aten.copy.default", |i, a| broadcast_into(i, a, "src")),
    ("aten.arange.default", arange),
    ("aten.arange.start", arange),
    ("aten.arange.start_step", arange),
    ("aten.range.default", |_, a| Err(a.unsupported("torch.range, which is deprecated,"))),
    ("aten.linspace.default", linspace),
    ("aten.linspace.Tensor_Tensor", linspace),
    ("aten.linspace.Tensor_Scalar", linspace),
    ("aten.linspace.Scalar_Tensor", linspace),
    ("aten.logspace.default", logspace),
    ("aten.logspace.Tensor_Tensor", logspace),
    ("aten.logspace.Tensor_Scalar", logspace),
    ("aten.logspace.Scalar_Tensor", logspace),
    ("aten.eye.default", eye),
    ("aten.eye.m", eye),
    ("aten.tril_indices.default", |i, a| triangle(i, a, |row, col, offset| col <= row.saturating_add(offset))),
    ("aten.triu_indices.default", |i, a| triangle(i, a, |row, col, offset| col >= row.saturating_add(offset))),
];

/// One number, or what an argument is, everywhere.
fn everywhere(imp: &mut Importer, a: &Args, name: &str, fill: Fill, dtype: DType, shape: Vec<Expr>) -> Result<Val> {
    let data = match fill {
        Some(scalar) => Data::full(imp, dtype, shape, scalar)?,
        None => {
            // A number set by `x[i] = number` is a fill in the file, and there PyTorch rounds it.
            if name == "fill_value" {
                imp.require_fits(a, name, dtype)?;
            }
            imp.operand_data(a, name, dtype)?.expand(imp, shape)?
        }
    };
    Ok(data.val())
}

fn full(imp: &mut Importer, a: &Args) -> Result<Val> {
    let dtype = match a.dtype("dtype")? {
        Some(dtype) => dtype,
        None => imp.result_type(a, &["fill_value"])?,
    };
    everywhere(imp, a, "fill_value", GIVEN, dtype, a.exprs("size")?)
}

fn scalar_tensor(imp: &mut Importer, a: &Args) -> Result<Val> {
    let dtype = a.dtype("dtype")?.unwrap_or(DType::F32);
    everywhere(imp, a, "s", GIVEN, dtype, vec![])
}

fn filled(imp: &mut Importer, a: &Args, fill: Fill) -> Result<Val> {
    let dtype = a.dtype("dtype")?.unwrap_or(DType::F32);
    everywhere(imp, a, "fill_value", fill, dtype, a.exprs("size")?)
}

/// With the tensor's dtype, and its shape where no size is given.
fn filled_like(imp: &mut Importer, a: &Args, fill: Fill) -> Result<Val> {
    let t = a.tensor("self")?;
    let dtype = a.dtype("dtype")?.unwrap_or(imp.dtype_of(t));
    let shape = match a.opt_exprs("size")? {
        Some(size) => size,
        None => imp.shape_of(t)?,
    };
    everywhere(imp, a, "fill_value", fill, dtype, shape)
}

/// An argument's elements in the tensor's dtype and shape.
fn broadcast_into(imp: &mut Importer, a: &Args, name: &str) -> Result<Val> {
    let t = a.tensor("self")?;
    let (dtype, shape) = (imp.dtype_of(t), imp.shape_of(t)?);
    everywhere(imp, a, name, GIVEN, dtype, shape)
}

/// start, start + step, ... below end. Floats are computed in float64 and rounded once; for an integer dtype the numbers are cut first.
fn arange(imp: &mut Importer, a: &Args) -> Result<Val> {
    let get = |name: &str, default: i64| {
        if a.has(name) { a.number(name) } else { Ok(Number::Scalar(Scalar::Int(default))) }
    };
    let (start, end, step) = (get("start", 0)?, a.number("end")?, get("step", 1)?);
    let integer = |n: &Number| match n {
        Number::Scalar(s @ (Scalar::Int(_) | Scalar::Bool(_))) => Some(Expr::int(s.to_i64())),
        Number::Int(e) => Some(e.clone()),
        _ => None,
    };
    if let (Some(start), Some(end), Some(step)) = (integer(&start), integer(&end), integer(&step)) {
        let length = (&end - &start).ceil_div(&step).maximum(&Expr::int(0)).simplify(imp.b.ranges());
        let iota = imp.b.iota(vec![length], &start + &(&Expr::loop_var(0) * &step));
        return Ok(imp.b.cast(iota, a.dtype("dtype")?.unwrap_or(DType::I64)).into());
    }
    let float = |n: &Number| match n {
        Number::Scalar(s) => Ok(s.to_f64()),
        _ => Err(a.unsupported("a float range with bounds known only at run time")),
    };
    let (start, end, step) = (float(&start)?, float(&end)?, float(&step)?);
    let dtype = a.dtype("dtype")?.unwrap_or(DType::F32);
    if step == 0.0 {
        return Err(Error::invalid_program("arange: step must be nonzero"));
    }
    let length = ((end - start) / step).ceil().max(0.0) as i64;
    if dtype.is_int() {
        let at = &Expr::int(start as i64) + &(&Expr::loop_var(0) * &Expr::int(step as i64));
        let iota = imp.b.iota(vec![Expr::int(length)], at);
        return Ok(imp.b.cast(iota, dtype).into());
    }
    let iota = imp.b.iota(vec![Expr::int(length)], Expr::loop_var(0));
    let at = imp.b.cast(iota, DType::F64);
    imp.rounded(&(Formula::from(at) * step + start), dtype)
}

/// `steps` numbers from start to end, as a value in the dtype that they are computed in: from the nearer end, so that both ends are exact.
/// `computed` is the dtype of the steps.
fn ladder(imp: &mut Importer, a: &Args, dtype: DType, computed: DType) -> Result<Value> {
    let steps = a.expr("steps")?;
    let start = imp.operand(a, "start", dtype)?;
    let start = imp.b.cast(start, computed);
    if steps.is_int(1) {
        return imp.b.expand(start, vec![steps]);
    }
    let end = imp.operand(a, "end", dtype)?;
    let end = imp.b.cast(end, computed);
    let gaps = size_as(imp, &(&steps - 1), computed);
    let index = imp.b.iota(vec![steps.clone()], Expr::loop_var(0));
    let index = imp.b.cast(index, computed);
    let half = size_as(imp, &steps.floor_div(&Expr::int(2)), computed);
    let (start, end, gaps, index) =
        (Formula::from(start), Formula::from(end), Formula::from(gaps), Formula::from(index));
    let step = (&end - &start) / &gaps;
    let mut result = index.lt(Formula::from(half)).select(&start + &step * &index, &end - &step * (&gaps - &index));
    if steps.as_int().is_none() {
        // With one step there is no gap.
        result = gaps.eq(0.0).select(&start, result);
    }
    let result = result.build(&mut imp.b)?;
    imp.b.expand(result, vec![steps])
}

fn ladder_dtype(a: &Args) -> Result<DType> {
    let dtype = a.dtype("dtype")?.unwrap_or(DType::F32);
    if dtype.is_complex() || a.get("start").or(a.get("end")).is_some_and(|v| matches!(v, Val::ComplexScalar(..))) {
        return Err(a.unsupported("a complex range"));
    }
    Ok(dtype)
}

fn linspace(imp: &mut Importer, a: &Args) -> Result<Val> {
    let dtype = ladder_dtype(a)?;
    // Integers take steps in float64 and are cut.
    let value = ladder(imp, a, dtype, if dtype.is_float() { dtype } else { DType::F64 })?;
    Ok(imp.b.cast(value, dtype).into())
}

fn logspace(imp: &mut Importer, a: &Args) -> Result<Val> {
    let dtype = ladder_dtype(a)?;
    let exponents = ladder(imp, a, dtype, if dtype.is_float() { dtype } else { DType::F32 })?;
    let base = imp.b.full_like(exponents, Scalar::Float(a.float_or("base", 10.0)?));
    let value = imp.b.binary(Binary::Pow, base, exponents)?;
    Ok(imp.b.cast(value, dtype).into())
}

fn eye(imp: &mut Importer, a: &Args) -> Result<Val> {
    let n = a.expr("n")?;
    let m = a.opt_expr("m")?.unwrap_or_else(|| n.clone());
    let dtype = a.dtype("dtype")?.unwrap_or(DType::F32);
    let one = imp.b.full(dtype.real(), vec![], Scalar::Int(1));
    let diagonal = Cond::compare(Compare::Eq, &Expr::loop_var(0), &Expr::loop_var(1));
    let value = imp.b.move_(one, &[], vec![n, m], vec![], diagonal, Scalar::Int(0))?;
    Ok(Data::real(imp, value).cast(imp, dtype)?.val())
}

/// Rows and columns of the elements of a matrix for which the test of (row, column, offset) holds, in row-major order.
fn triangle(imp: &mut Importer, a: &Args, test: fn(i64, i64, i64) -> bool) -> Result<Val> {
    let (rows, cols, offset) = (a.int("row")?, a.int("col")?, a.int_or("offset", 0)?);
    let pairs: Vec<(i64, i64)> = (0..rows)
        .flat_map(|row| (0..cols).map(move |col| (row, col)))
        .filter(|(row, col)| test(*row, *col, offset))
        .collect();
    let numbers = pairs.iter().map(|p| p.0).chain(pairs.iter().map(|p| p.1));
    let bytes = numbers.flat_map(i64::to_le_bytes).collect();
    let value = imp.literal(DType::I64, vec![Expr::int(2), Expr::int(pairs.len() as i64)], bytes);
    Ok(imp.b.cast(value, a.dtype("dtype")?.unwrap_or(DType::I64)).into())
}
