//! Linear systems by factors, and what follows from solutions and singular values.

use douse_core::pointwise::{Binary, Combine, Unary};
use douse_core::sym::{Compare, Cond, Expr};
use douse_core::{DType, Error, Result, Scalar};
use douse_ir::{Value, coordinates};

use super::args::{Args, Val};
use super::importer::{Importer, Row};
use super::linalg::{eigenvalues, inverted, matrix, own, singular_values, solved, threshold, turned};

pub const ROWS: &[Row] = &[
    ("aten.linalg_cholesky_ex.default", |i, a| with_info(i, a, "aten.linalg_cholesky.default")),
    ("aten.linalg_inv_ex.default", |i, a| with_info(i, a, "aten.linalg_inv.default")),
    ("aten.linalg_solve_ex.default", |i, a| with_info(i, a, "aten.linalg_solve.default")),
    ("aten.linalg_solve_triangular.default", solve_triangular),
    ("aten.cholesky_solve.default", cholesky_solve),
    ("aten.linalg_matrix_rank.default", matrix_rank),
    ("aten.linalg_matrix_rank.tol_tensor", matrix_rank),
    ("aten.linalg_matrix_rank.atol_rtol_tensor", matrix_rank),
    ("aten.linalg_matrix_rank.atol_rtol_float", matrix_rank),
    ("aten.linalg_cond.default", condition_number),
    ("aten.linalg_cond.p_str", condition_number),
    ("aten.linalg_tensorinv.default", tensor_inverse),
    ("aten.linalg_tensorsolve.default", tensor_solve),
];

/// A result with the code of what went wrong, int32 for each matrix: always 0, since a matrix that has none fails the call.
fn with_info(imp: &mut Importer, a: &Args, target: &str) -> Result<Val> {
    let values = a.values.iter().filter(|(name, _)| name != "check_errors").cloned().collect();
    let result = imp.call(&Args { target: target.to_string(), values })?;
    let value = imp.result_value(result)?;
    let matrix = if a.has("A") { own(imp, a)? } else { value };
    let batch = imp.b.shape(matrix)[..imp.b.rank(matrix) - 2].to_vec();
    let info = imp.b.full(DType::I32, batch, Scalar::Int(0));
    Ok((value, info).into())
}

/// A matrix's part on and above its diagonal, or on and below; `unit`: with ones on it.
fn triangle(imp: &mut Importer, x: Value, upper: bool, unit: bool) -> Result<Value> {
    let (rank, shape) = (imp.b.rank(x), imp.b.shape(x).to_vec());
    if rank < 2 {
        return Err(Error::invalid_program("a triangle of what is not a matrix"));
    }
    let (row, column) = (Expr::loop_var(rank - 2), Expr::loop_var(rank - 1));
    let (less, more) = if upper { (&row, &column) } else { (&column, &row) };
    let inside = Cond::compare(if unit { Compare::Lt } else { Compare::Le }, less, more);
    let part = imp.b.move_(x, &[], shape.clone(), coordinates(rank), inside, Scalar::Int(0))?;
    if !unit {
        return Ok(part);
    }
    let one = imp.b.full(imp.b.dtype(x), vec![], Scalar::Int(1));
    let diagonal = Cond::compare(Compare::Eq, &row, &column);
    let ones = imp.b.move_(one, &[], shape, vec![], diagonal, Scalar::Int(0))?;
    imp.b.binary(Binary::Add, part, ones)
}

fn solve_triangular(imp: &mut Importer, a: &Args) -> Result<Val> {
    let (x, y) = (own(imp, a)?, matrix(imp, a, "B")?);
    let x = triangle(imp, x, a.bool_or("upper", false)?, a.bool_or("unitriangular", false)?)?;
    Ok(solved(imp, x, y, a.bool_or("left", true)?)?.into())
}

/// X of L L^T X = B (or U^T U).
fn cholesky_solve(imp: &mut Importer, a: &Args) -> Result<Val> {
    let (y, factor) = (own(imp, a)?, matrix(imp, a, "input2")?);
    let upper = a.bool_or("upper", false)?;
    let factor = triangle(imp, factor, upper, false)?;
    let other = turned(imp, factor)?;
    let (first, second) = if upper { (other, factor) } else { (factor, other) };
    let half = solved(imp, first, y, true)?;
    Ok(solved(imp, second, half, true)?.into())
}

/// How many singular values (of a hermitian matrix: lengths of eigenvalues) are above a threshold.
fn matrix_rank(imp: &mut Importer, a: &Args) -> Result<Val> {
    let x = matrix(imp, a, if a.has("input") { "input" } else { "self" })?;
    let shape = imp.b.shape(x).to_vec();
    let [.., rows, columns] = shape.as_slice() else { return Err(a.wrong("self", "a matrix")) };
    let values = if a.bool_or("hermitian", false)? {
        let values = eigenvalues(imp, x)?;
        imp.b.unary(Unary::Abs, values)?
    } else {
        singular_values(imp, x)?
    };
    let last = imp.b.rank(values) - 1;
    let largest = imp.b.reduce_keep(Combine::Max, values, &[last])?;
    // What is called tol is absolute.
    let mut named = a.clone();
    named.values.iter_mut().filter(|(name, _)| name == "tol").for_each(|(name, _)| *name = "atol".to_string());
    let least = threshold(imp, &named, largest, rows, columns)?;
    let counts = imp.b.binary(Binary::Gt, values, least)?;
    let ones = imp.b.cast(counts, DType::I64);
    Ok(imp.b.reduce(Combine::Sum, ones, &[last])?.into())
}

/// The greatest singular value over the least, or the reverse; for other orders the norm times the norm of the inverse.
fn condition_number(imp: &mut Importer, a: &Args) -> Result<Val> {
    let x = own(imp, a)?;
    let order = match a.get("p") {
        None => 2.0,
        Some(Val::Str(_)) => 0.0,
        Some(_) => a.scalar("p")?.to_f64(),
    };
    if order.abs() == 2.0 {
        let values = singular_values(imp, x)?;
        let last = imp.b.rank(values) - 1;
        let greatest = imp.b.reduce(Combine::Max, values, &[last])?;
        let least = imp.b.reduce(Combine::Min, values, &[last])?;
        let (over, under) = if order > 0.0 { (greatest, least) } else { (least, greatest) };
        return Ok(imp.b.binary(Binary::Div, over, under)?.into());
    }
    let inverse = inverted(imp, x)?;
    let mut norm = |x: Value| -> Result<Value> {
        let tensor = imp.new_tensor(x, imp.b.dtype(x));
        let order = a.get("p").cloned().unwrap_or(Val::None);
        let values = vec![("self".to_string(), Val::Tensor(tensor)), ("ord".to_string(), order)];
        let norm = imp.call(&Args { target: "aten.linalg_matrix_norm.default".to_string(), values })?;
        imp.result_value(norm)
    };
    let (own, other) = (norm(x)?, norm(inverse)?);
    Ok(imp.b.binary(Binary::Mul, own, other)?.into())
}

/// The inverse of the matrix whose rows are all but the last dimensions, from `ind` on.
fn tensor_inverse(imp: &mut Importer, a: &Args) -> Result<Val> {
    let x = own(imp, a)?;
    let shape = imp.b.shape(x).to_vec();
    let split = usize::try_from(a.int_or("ind", 2)?).ok().filter(|at| *at > 0 && *at < shape.len());
    let (rows, columns) = shape.split_at(split.ok_or_else(|| a.wrong("ind", "a dimension of the tensor"))?);
    let flat = imp.b.reshape(x, vec![Expr::product(rows), Expr::product(columns)])?;
    let inverse = inverted(imp, flat)?;
    Ok(imp.b.reshape(inverse, [columns, rows].concat())?.into())
}

/// The tensor whose product with `self`, over its dimensions, is `other`.
fn tensor_solve(imp: &mut Importer, a: &Args) -> Result<Val> {
    if a.has("dims") {
        return Err(a.unsupported("a choice of dimensions"));
    }
    let (x, y) = (own(imp, a)?, matrix(imp, a, "other")?);
    let (shape, rows) = (imp.b.shape(x).to_vec(), imp.b.rank(y));
    let columns = shape.get(rows..).ok_or_else(|| Error::invalid_program("tensorsolve of a smaller tensor"))?.to_vec();
    let n = imp.b.numel(y);
    let flat = imp.b.reshape(x, vec![n.clone(), Expr::product(&columns)])?;
    let column = imp.b.reshape(y, vec![n, Expr::int(1)])?;
    let solution = solved(imp, flat, column, true)?;
    Ok(imp.b.reshape(solution, columns)?.into())
}
