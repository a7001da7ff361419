//! Distances and similarities.

use douse_core::pointwise::Binary;
use douse_core::sym::Expr;
use douse_core::{Result, Scalar};
use douse_ir::Value;

use super::args::{Args, Val};
use super::importer::{Importer, Row};
use super::norm::p_norm;
use super::pointwise::as_float;
use super::statistics::drop;

pub const ROWS: &[Row] = &[
    ("aten.cdist.default", cdist),
    ("aten._euclidean_dist.default", cdist),
    ("aten._cdist_forward.default", cdist),
    ("aten.pdist.default", pdist),
    ("aten._pdist_forward.default", pdist),
    ("aten.pairwise_distance.default", pairwise_distance),
    ("aten.cosine_similarity.default", cosine_similarity),
];

/// The p-norm of differences along the last dimension, which goes, rounded once.
fn distance(imp: &mut Importer, x: Value, y: Value, p: f64) -> Result<Value> {
    let own = imp.b.dtype(x);
    let wide = imp.compute_dtype(own);
    let (x, y) = (imp.b.cast(x, wide), imp.b.cast(y, wide));
    let difference = imp.b.binary(Binary::Sub, x, y)?;
    let last = imp.b.rank(difference) - 1;
    let norm = p_norm(imp, difference.into(), p, &[last])?;
    let norm = drop(imp, norm, &[last])?;
    Ok(imp.b.cast(norm, own))
}

/// Distances of each row of x1 to each of x2: [..., p, d], [..., r, d] to [..., p, r].
fn cdist(imp: &mut Importer, a: &Args) -> Result<Val> {
    let (x, y) = (imp.value(a, "x1")?, imp.value(a, "x2")?);
    let (rx, ry) = (imp.b.rank(x), imp.b.rank(y));
    if rx < 2 || ry < 2 {
        return Err(a.wrong("x1", "of rank 2 or more"));
    }
    let (x, y) = (imp.b.unsqueeze(x, rx - 1)?, imp.b.unsqueeze(y, ry - 2)?);
    Ok(distance(imp, x, y, a.float_or("p", 2.0)?)?.into())
}

/// Distances of all pairs of rows i < j, in row-major order of (i, j).
fn pdist(imp: &mut Importer, a: &Args) -> Result<Val> {
    let x = imp.value(a, "self")?;
    let shape = imp.b.shape(x).to_vec();
    let [n, columns] = shape.as_slice() else { return Err(a.wrong("self", "of rank 2")) };
    // The pairs of row i begin at i * (2n - i - 1) / 2.
    let i = Expr::loop_var(0);
    let begin = (&i * &(&(n * 2) - &(&i + 1))).floor_div(&Expr::int(2));
    let begins = imp.b.iota(vec![n.clone()], begin);
    let pairs = (n * &(n - 1)).floor_div(&Expr::int(2)).simplify(imp.b.ranges());
    let pair = imp.b.iota(vec![pairs.clone()], Expr::loop_var(0));
    let after = imp.b.search_sorted(begins, pair, true)?;
    let row = imp.b.binary_scalar(Binary::Sub, after, Scalar::Int(1))?;
    let begin = imp.b.take(begins, 0, row)?;
    let past = imp.b.binary(Binary::Sub, pair, begin)?;
    // `after` is i + 1.
    let column = imp.b.binary(Binary::Add, past, after)?;
    let mut rows = |index: Value| {
        let wide = imp.b.unsqueeze(index, 1)?;
        let wide = imp.b.expand(wide, vec![pairs.clone(), columns.clone()])?;
        imp.b.gather(x, 0, wide)
    };
    let (x, y) = (rows(row)?, rows(column)?);
    Ok(distance(imp, x, y, a.float_or("p", 2.0)?)?.into())
}

/// The p-norm of x1 - x2 + eps along the last dimension.
fn pairwise_distance(imp: &mut Importer, a: &Args) -> Result<Val> {
    let dtype = imp.result_type(a, &["x1", "x2"])?;
    let (x, y) = (imp.operand(a, "x1", dtype)?, imp.operand(a, "x2", dtype)?);
    let difference = imp.b.binary(Binary::Sub, x, y)?;
    // eps is a float, so differences of integers become float32 here.
    let difference = as_float(imp, difference);
    let dtype = imp.b.dtype(difference);
    let shifted = imp.b.binary_scalar(Binary::Add, difference, Scalar::Float(a.float_or("eps", 1e-6)?))?;
    let wide = imp.b.cast(shifted, imp.compute_dtype(dtype));
    let Some(last) = imp.b.rank(wide).checked_sub(1) else { return Err(a.wrong("x1", "of rank 1 or more")) };
    let norm = p_norm(imp, wide.into(), a.float_or("p", 2.0)?, &[last])?;
    let norm = if a.bool_or("keepdim", false)? { norm } else { drop(imp, norm, &[last])? };
    Ok(imp.b.cast(norm, dtype).into())
}

/// The sum of products of both, each over its norm (at least eps, which half rounds to 0). Steps round as PyTorch's do.
fn cosine_similarity(imp: &mut Importer, a: &Args) -> Result<Val> {
    let dtype = imp.result_type(a, &["x1", "x2"])?;
    let wide = imp.compute_dtype(dtype);
    let (x, y) = (imp.operand(a, "x1", dtype)?, imp.operand(a, "x2", dtype)?);
    let all = imp.b.broadcast_all(&[x, y])?;
    let rank = imp.b.rank(all[0]);
    let dim = imp.dim(a, a.int_or("dim", 1)?, rank)?;
    let mut unit = |v: Value| {
        let over: &[usize] = if rank == 0 { &[] } else { &[dim] };
        let wider = imp.b.cast(v, wide);
        let norm = p_norm(imp, wider.into(), 2.0, over)?;
        let norm = imp.b.cast(norm, dtype);
        let least = imp.b.binary_scalar(Binary::Maximum, norm, Scalar::Float(a.float_or("eps", 1e-8)?))?;
        imp.b.binary(Binary::Div, v, least)
    };
    let (x, y) = (unit(all[0])?, unit(all[1])?);
    let product = imp.b.binary(Binary::Mul, x, y)?;
    let product = imp.b.cast(product, wide);
    let over: &[usize] = if rank == 0 { &[] } else { &[dim] };
    let total = imp.b.reduce(douse_core::pointwise::Combine::Sum, product, over)?;
    Ok(imp.b.cast(total, dtype).into())
}
