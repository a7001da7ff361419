//! Linear algebra that needs a decomposition: library steps over the last two dimensions.

use douse_core::pointwise::{Binary, Combine, Unary};
use douse_core::sym::Expr;
use douse_core::{DType, Error, Result, Scalar};
use douse_ir::Value;
use douse_program::library::Linalg;

use super::args::{Args, Val};
use super::importer::{Importer, Row};
use super::matmul::product;
use super::parts::Parts;
use super::reduce::size_as;

pub const ROWS: &[Row] = &[
    ("aten.linalg_det.default", det),
    ("aten.det.default", det),
    ("aten._linalg_det.default", det),
    ("aten.linalg_slogdet.default", slogdet),
    ("aten.slogdet.default", slogdet),
    ("aten.logdet.default", logdet),
    ("aten.linalg_inv.default", inverse),
    ("aten.inverse.default", inverse),
    ("aten.linalg_solve.default", solve),
    ("aten.linalg_cholesky.default", cholesky),
    ("aten.cholesky.default", cholesky),
    ("aten.cholesky_inverse.default", cholesky_inverse),
    ("aten.linalg_eigh.default", |i, a| eigh(i, a).map(|(values, vectors)| (values, vectors).into())),
    ("aten.linalg_eigvalsh.default", |i, a| eigh(i, a).map(|(values, _)| values.into())),
    ("aten._linalg_eigh.default", |i, a| eigh(i, a).map(|(values, vectors)| (values, vectors).into())),
    ("aten._linalg_slogdet.default", slogdet),
    ("aten._linalg_svd.default", svd),
    ("aten.linalg_svd.default", svd),
    ("aten.linalg_svdvals.default", svdvals),
    ("aten.linalg_qr.default", qr),
    ("aten.linalg_matrix_exp.default", matrix_exp),
    ("aten.matrix_exp.default", matrix_exp),
    ("aten.linalg_matrix_power.default", matrix_power),
    ("aten.matrix_power.default", matrix_power),
    ("aten.linalg_pinv.default", pinv),
    ("aten.linalg_pinv.atol_rtol_tensor", pinv),
    ("aten.linalg_pinv.atol_rtol_float", pinv),
    ("aten.pinverse.default", pinv),
    ("aten.linalg_vander.default", vander),
    ("aten.vander.default", vander),
];

/// A matrix argument of a dtype that decompositions have.
pub fn matrix(imp: &mut Importer, a: &Args, name: &str) -> Result<Value> {
    let x = imp.value(a, name)?;
    let dtype = imp.b.dtype(x);
    if !matches!(dtype, DType::F32 | DType::F64) {
        return Err(a.unsupported(format!("a matrix of {dtype}")));
    }
    Ok(x)
}

/// The operand, whatever the schema calls it.
pub fn own(imp: &mut Importer, a: &Args) -> Result<Value> {
    matrix(imp, a, if a.has("A") { "A" } else { "self" })
}

fn first(results: Vec<Value>) -> Result<Value> {
    results.first().copied().ok_or_else(|| Error::internal("a decomposition without a result"))
}

fn det(imp: &mut Importer, a: &Args) -> Result<Val> {
    let x = own(imp, a)?;
    let det = imp.b.linalg(Linalg::Det, &[x]).and_then(first)?;
    Ok(det.into())
}

fn slogdet(imp: &mut Importer, a: &Args) -> Result<Val> {
    let x = own(imp, a)?;
    Ok(imp.b.linalg(Linalg::Slogdet, &[x])?.into())
}

/// The logarithm of the determinant; NaN where it is negative.
fn logdet(imp: &mut Importer, a: &Args) -> Result<Val> {
    let x = own(imp, a)?;
    let results = imp.b.linalg(Linalg::Slogdet, &[x])?;
    let &[sign, log] = results.as_slice() else { return Err(a.unsupported("its result")) };
    let zero = imp.b.full_like(sign, Scalar::Int(0));
    let negative = imp.b.binary(Binary::Lt, sign, zero)?;
    let nan = imp.b.full_like(log, Scalar::Float(f64::NAN));
    Ok(imp.b.select(negative, nan, log)?.into())
}

fn inverse(imp: &mut Importer, a: &Args) -> Result<Val> {
    let x = own(imp, a)?;
    Ok(inverted(imp, x)?.into())
}

pub fn inverted(imp: &mut Importer, x: Value) -> Result<Value> {
    imp.b.linalg(Linalg::Inverse, &[x]).and_then(first)
}

/// Ascending eigenvalues of a symmetric matrix, whose lower part is read.
pub fn eigenvalues(imp: &mut Importer, x: Value) -> Result<Value> {
    imp.b.linalg(Linalg::Eigh, &[x]).and_then(first)
}

/// X of A X = B (or X A = B); a B of one dimension less than A is a batch of vectors.
fn solve(imp: &mut Importer, a: &Args) -> Result<Val> {
    let (x, y) = (matrix(imp, a, "A")?, matrix(imp, a, "B")?);
    let left = a.bool_or("left", true)?;
    let (rx, sx) = (imp.b.rank(x), imp.b.shape(x).to_vec());
    let vectors = imp.b.rank(y) == 1 || (rx - 1 == imp.b.rank(y) && imp.b.shape(y) == &sx[..rx - 1]);
    let y = if vectors { imp.b.unsqueeze(y, imp.b.rank(y))? } else { y };
    let solved = solved(imp, x, y, left || vectors)?;
    Ok(if vectors {
        let last = imp.b.rank(solved) - 1;
        imp.b.squeeze(solved, last)?
    } else {
        solved
    }
    .into())
}

/// X of A X = B, or of X A = B, for matrices whose leading dimensions broadcast.
pub fn solved(imp: &mut Importer, x: Value, y: Value, left: bool) -> Result<Value> {
    if imp.b.rank(x) < 2 || imp.b.rank(y) < 2 {
        return Err(Error::invalid_program("a system of linear equations of what is not a matrix"));
    }
    let (x, y) = if left { (x, y) } else { (turned(imp, x)?, turned(imp, y)?) };
    let batch = |imp: &Importer, v: Value| imp.b.shape(v)[..imp.b.rank(v) - 2].to_vec();
    let (bx, by) = (batch(imp, x), batch(imp, y));
    let leading = imp.b.broadcast_shapes(&bx, &by)?;
    let wide = |imp: &mut Importer, v: Value| {
        let tail = imp.b.shape(v)[imp.b.rank(v) - 2..].to_vec();
        imp.b.expand(v, [leading.as_slice(), &tail].concat())
    };
    let (x, y) = (wide(imp, x)?, wide(imp, y)?);
    let solved = imp.b.linalg(Linalg::Solve, &[x, y]).and_then(first)?;
    if left { Ok(solved) } else { turned(imp, solved) }
}

/// The transpose of the last two dimensions.
pub fn turned(imp: &mut Importer, x: Value) -> Result<Value> {
    let rank = imp.b.rank(x);
    imp.b.transpose(x, rank - 2, rank - 1)
}

/// The lower factor, from the lower part; upper: the upper one, from the upper part.
fn cholesky(imp: &mut Importer, a: &Args) -> Result<Val> {
    let x = own(imp, a)?;
    let upper = a.bool_or("upper", false)?;
    let x = if upper { turned(imp, x)? } else { x };
    let lower = imp.b.linalg(Linalg::Cholesky, &[x]).and_then(first)?;
    Ok(if upper { turned(imp, lower)? } else { lower }.into())
}

/// The inverse of L L^T (or U^T U).
fn cholesky_inverse(imp: &mut Importer, a: &Args) -> Result<Val> {
    let x = own(imp, a)?;
    let rank = imp.b.rank(x);
    let shape = imp.b.shape(x).to_vec();
    let upper = a.bool_or("upper", false)?;
    let (row, column) = (Expr::loop_var(rank - 2), Expr::loop_var(rank - 1));
    let ascending = if upper { (&row, &column) } else { (&column, &row) };
    let inside = douse_core::sym::Cond::compare(douse_core::sym::Compare::Le, ascending.0, ascending.1);
    let factor = imp.b.move_(x, &[], shape, douse_ir::coordinates(rank), inside, Scalar::Int(0))?;
    let other = turned(imp, factor)?;
    let whole = if upper { imp.b.matmul(other, factor)? } else { imp.b.matmul(factor, other)? };
    let inverse = imp.b.linalg(Linalg::Inverse, &[whole]).and_then(first)?;
    Ok(inverse.into())
}

/// Ascending eigenvalues and their vectors of a symmetric matrix, of which one part is read.
fn eigh(imp: &mut Importer, a: &Args) -> Result<(Value, Value)> {
    let x = own(imp, a)?;
    let upper = matches!(a.str_or("UPLO", "L")?, "U" | "u");
    let x = if upper { turned(imp, x)? } else { x };
    match imp.b.linalg(Linalg::Eigh, &[x])?.as_slice() {
        &[values, vectors] => Ok((values, vectors)),
        _ => Err(a.unsupported("its result")),
    }
}

/// Descending singular values of the last two dimensions.
pub fn singular_values(imp: &mut Importer, x: Value) -> Result<Value> {
    let dtype = imp.b.dtype(x);
    match imp.b.linalg(Linalg::Svd, &[x])?.as_slice() {
        [_, values, _] => Ok(*values),
        _ => Err(Error::internal(format!("singular values of {dtype}"))),
    }
}

fn svdvals(imp: &mut Importer, a: &Args) -> Result<Val> {
    let x = own(imp, a)?;
    Ok(singular_values(imp, x)?.into())
}

/// U, S, V^H; with full matrices only where they are no larger than the reduced ones.
fn svd(imp: &mut Importer, a: &Args) -> Result<Val> {
    let x = own(imp, a)?;
    // The inner operator gives reduced matrices unless it is told otherwise.
    if a.bool_or("full_matrices", !a.target.starts_with("aten._"))? && !is_square(imp, x) {
        return Err(a.unsupported("full_matrices of a matrix that is not square"));
    }
    Ok(imp.b.linalg(Linalg::Svd, &[x])?.into())
}

fn is_square(imp: &Importer, x: Value) -> bool {
    matches!(imp.b.shape(x), [.., rows, columns] if rows == columns)
}

fn qr(imp: &mut Importer, a: &Args) -> Result<Val> {
    let x = own(imp, a)?;
    match a.str_or("mode", "reduced")? {
        "reduced" => {}
        "complete" if is_square(imp, x) => {}
        mode => return Err(a.unsupported(format!("mode {mode}"))),
    }
    Ok(imp.b.linalg(Linalg::Qr, &[x])?.into())
}

fn matrix_exp(imp: &mut Importer, a: &Args) -> Result<Val> {
    let x = own(imp, a)?;
    let exp = imp.b.linalg(Linalg::MatrixExp, &[x]).and_then(first)?;
    Ok(exp.into())
}

/// The identity, of a square matrix's dtype and shape.
fn identity_like(imp: &mut Importer, x: Value) -> Result<Value> {
    let (dtype, shape, rank) = (imp.b.dtype(x), imp.b.shape(x).to_vec(), imp.b.rank(x));
    let one = imp.b.full(dtype, vec![], Scalar::Int(1));
    let (row, column) = (Expr::loop_var(rank - 2), Expr::loop_var(rank - 1));
    let guard = douse_core::sym::Cond::compare(douse_core::sym::Compare::Eq, &row, &column);
    imp.b.move_(one, &[], shape, vec![], guard, Scalar::Int(0))
}

/// Repeated squaring; negative powers are those of the inverse.
fn matrix_power(imp: &mut Importer, a: &Args) -> Result<Val> {
    let n = a.int("n")?;
    let mut x = imp.parts(a, "self")?;
    if n == 0 {
        let one = identity_like(imp, x.re)?;
        let im = x.im.map(|im| imp.b.full_like(im, Scalar::Int(0)));
        return Parts { re: one, im }.val(imp);
    }
    if n < 0 {
        let own = own(imp, a)?;
        x = imp.b.linalg(Linalg::Inverse, &[own]).and_then(first)?.into();
    }
    let mut rest = n.unsigned_abs();
    let mut square = x;
    let mut result: Option<Parts> = None;
    loop {
        if rest & 1 == 1 {
            result = Some(match result {
                Some(r) => product(imp, r, square)?,
                None => square,
            });
        }
        rest >>= 1;
        if rest == 0 {
            break;
        }
        square = product(imp, square, square)?;
    }
    result.unwrap_or(square).val(imp)
}

/// What singular values must be above: `max(atol, rtol * largest)`, where rtol is `max(m, n) * epsilon` unless one of both is given.
pub fn threshold(imp: &mut Importer, a: &Args, largest: Value, rows: &Expr, columns: &Expr) -> Result<Value> {
    let dtype = imp.b.dtype(largest);
    let given = |imp: &mut Importer, name: &str| -> Result<Option<Value>> {
        if !a.has(name) {
            return Ok(None);
        }
        let v = imp.operand(a, name, dtype)?;
        let rank = imp.b.rank(v);
        // One for each matrix of a batch, or for all.
        if rank == 0 { Ok(Some(v)) } else { imp.b.unsqueeze(v, rank).map(Some) }
    };
    let relative = given(imp, if a.has("rcond") { "rcond" } else { "rtol" })?;
    let absolute = given(imp, "atol")?;
    let relative = match (relative, absolute) {
        (Some(v), _) => v,
        (None, Some(_)) => imp.b.full(dtype, vec![], Scalar::Int(0)),
        (None, None) if a.target.contains("pinverse") => imp.b.full(dtype, vec![], Scalar::Float(1e-15)),
        (None, None) => {
            let epsilon = if dtype == DType::F64 { f64::EPSILON } else { f64::from(f32::EPSILON) };
            let larger = size_as(imp, &rows.maximum(columns), dtype);
            imp.b.binary_scalar(Binary::Mul, larger, Scalar::Float(epsilon))?
        }
    };
    let least = imp.b.binary(Binary::Mul, largest, relative)?;
    match absolute {
        Some(absolute) => imp.b.binary(Binary::Maximum, least, absolute),
        None => Ok(least),
    }
}

/// V S^-1 U^T, without the singular values at or below `max(atol, rtol * largest)`.
fn pinv(imp: &mut Importer, a: &Args) -> Result<Val> {
    let x = own(imp, a)?;
    let shape = imp.b.shape(x).to_vec();
    let [.., rows, columns] = shape.as_slice() else { return Err(a.wrong("self", "a matrix")) };
    let results = imp.b.linalg(Linalg::Svd, &[x])?;
    let &[u, s, vh] = results.as_slice() else { return Err(a.unsupported("its result")) };
    let last = imp.b.rank(s) - 1;
    let largest = imp.b.reduce_keep(Combine::Max, s, &[last])?;
    let least = threshold(imp, a, largest, rows, columns)?;
    let counts = imp.b.binary(Binary::Gt, s, least)?;
    let inverse = imp.b.unary(Unary::Reciprocal, s)?;
    let zero = imp.b.full_like(s, Scalar::Int(0));
    let inverse = imp.b.select(counts, inverse, zero)?;
    let inverse = imp.b.unsqueeze(inverse, last)?;
    let v = turned(imp, vh)?;
    let scaled = imp.b.binary(Binary::Mul, v, inverse)?;
    let turned = turned(imp, u)?;
    Ok(imp.b.matmul(scaled, turned)?.into())
}

/// Powers 0, 1, ... of each element along a new last dimension, by repeated products.
fn vander(imp: &mut Importer, a: &Args) -> Result<Val> {
    let x = imp.value(a, "x")?;
    let dtype = imp.b.dtype(x);
    let dtype = if dtype.is_int() || dtype.is_bool() { DType::I64 } else { dtype };
    let x = if imp.b.rank(x) == 0 { imp.b.unsqueeze(x, 0)? } else { x };
    let rank = imp.b.rank(x);
    let own = imp.b.shape(x).to_vec();
    let n = a.opt_expr("N")?.unwrap_or(own[rank - 1].clone());
    let x = imp.b.cast(x, imp.compute_dtype(dtype));
    let x = imp.b.unsqueeze(x, rank)?;
    let mut shape = own;
    shape.push(n.clone());
    let x = imp.b.expand(x, shape.clone())?;
    let column = Expr::loop_var(rank);
    let later = douse_core::sym::Cond::compare(douse_core::sym::Compare::Gt, &column, &Expr::int(0));
    let factors = imp.b.move_(x, &[], shape, douse_ir::coordinates(rank + 1), later, Scalar::Int(1))?;
    let powers = imp.b.scan(Combine::Prod, factors, rank)?;
    // `torch.vander` puts the highest power first unless it is told otherwise.
    let flipped = a.target.starts_with("aten.vander") && !a.bool_or("increasing", false)?;
    let powers = if flipped { imp.b.flip(powers, &[rank])? } else { powers };
    Ok(imp.b.cast(powers, dtype).into())
}
