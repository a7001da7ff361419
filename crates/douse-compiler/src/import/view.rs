//! Views: operators that give another look at a tensor's storage, and those that copy only where the layout asks for it.

use douse_core::sym::{Compare, Cond, Expr};
use douse_core::{Error, Result};
use douse_ir::coordinates;
use douse_pt2::MemoryFormat;

use super::args::{Args, Val};
use super::importer::{Importer, Row};
use super::tensor::{Step, Tensor, can_view, contiguous_strides, is_contiguous};

pub const ROWS: &[Row] = &[
    ("aten.alias.default", alias),
    ("aten.detach.default", alias),
    ("aten.lift_fresh.default", alias),
    ("aten.lift_fresh_copy.default", clone),
    ("aten.clone.default", clone),
    ("aten.contiguous.default", contiguous),
    ("aten.view.default", view),
    ("aten._unsafe_view.default", view),
    ("aten.reshape.default", reshape),
    ("aten._reshape_alias.default", reshape),
    ("aten._reshape_copy.default", |i, a| reshape(i, a).and_then(|v| fresh(i, v))),
    ("aten.view_as.default", like_other),
    ("aten.reshape_as.default", like_other),
    ("aten.flatten.using_ints", flatten),
    ("aten.ravel.default", ravel),
    ("aten.unflatten.int", unflatten),
    ("aten.transpose.int", transpose),
    ("aten.transpose_.default", transpose),
    ("aten.swapaxes.default", transpose),
    ("aten.swapdims.default", transpose),
    ("aten.t.default", t),
    ("aten.numpy_T.default", reverse),
    ("aten.mT.default", matrix_transpose),
    ("aten.adjoint.default", matrix_transpose),
    ("aten.matrix_H.default", matrix_transpose),
    ("aten.mH.default", matrix_transpose),
    ("aten.permute.default", permute),
    ("aten.movedim.int", movedim),
    ("aten.movedim.intlist", movedim),
    ("aten.moveaxis.int", movedim),
    ("aten.moveaxis.intlist", movedim),
    ("aten.unsqueeze.default", unsqueeze),
    ("aten.squeeze.default", squeeze),
    ("aten.squeeze.dim", squeeze),
    ("aten.squeeze.dims", squeeze),
    ("aten.expand.default", expand),
    ("aten.expand_as.default", expand_as),
    ("aten.broadcast_to.default", expand),
    ("aten.slice.Tensor", slice),
    ("aten.narrow.default", narrow),
    ("aten.select.int", select),
    ("aten.diagonal.default", diagonal),
    ("aten.linalg_diagonal.default", diagonal),
    ("aten.unfold.default", unfold),
    ("aten.atleast_1d.default", |i, a| at_least(i, a, 1)),
    ("aten.atleast_2d.default", |i, a| at_least(i, a, 2)),
    ("aten.atleast_3d.default", |i, a| at_least(i, a, 3)),
    ("aten.atleast_1d.Sequence", |i, a| at_least(i, a, 1)),
    ("aten.atleast_2d.Sequence", |i, a| at_least(i, a, 2)),
    ("aten.atleast_3d.Sequence", |i, a| at_least(i, a, 3)),
    ("aten.resolve_neg.default", alias),
    ("aten.positive.default", alias),
];

pub fn alias(imp: &mut Importer, a: &Args) -> Result<Val> {
    let t = a.tensor("self")?;
    Ok(Val::Tensor(imp.alias(t)))
}

/// A new storage with what a row returned.
pub fn fresh(imp: &mut Importer, val: Val) -> Result<Val> {
    let Val::Tensor(t) = val else { return Ok(val) };
    let (value, dtype) = (imp.read(t)?, imp.dtype_of(t));
    Ok(Val::Tensor(imp.new_tensor(value, dtype)))
}

pub fn clone(imp: &mut Importer, a: &Args) -> Result<Val> {
    let t = a.tensor("self")?;
    fresh(imp, Val::Tensor(t))
}

/// Strides of a tensor, where they are not stated those of a fresh one.
pub fn strides(imp: &mut Importer, t: Tensor) -> Result<Vec<Expr>> {
    match imp.strides_of(t) {
        Some(strides) => Ok(strides),
        None => Ok(contiguous_strides(&imp.shape_of(t)?)),
    }
}

/// The strides of a shape in a memory format.
pub fn format_strides(shape: &[Expr], format: MemoryFormat) -> Vec<Expr> {
    let order: Vec<usize> = match (format, shape.len()) {
        (MemoryFormat::ChannelsLast, 4) => vec![0, 2, 3, 1],
        (MemoryFormat::ChannelsLast3d, 5) => vec![0, 2, 3, 4, 1],
        _ => (0..shape.len()).collect(),
    };
    let mut strides = vec![Expr::int(1); shape.len()];
    let mut stride = Expr::int(1);
    for d in order.into_iter().rev() {
        strides[d] = stride.clone();
        stride = &stride * &shape[d];
    }
    strides
}

fn contiguous(imp: &mut Importer, a: &Args) -> Result<Val> {
    let t = a.tensor("self")?;
    let (shape, own) = (imp.shape_of(t)?, strides(imp, t)?);
    let already = match a.memory_format("memory_format") {
        None | Some(MemoryFormat::Contiguous | MemoryFormat::Preserve) => is_contiguous(&shape, &own),
        Some(format) => {
            let wanted = format_strides(&shape, format);
            shape.iter().zip(&own).zip(&wanted).all(|((n, s), w)| n.is_int(1) || s == w)
        }
    };
    if already { alias(imp, a) } else { clone(imp, a) }
}

/// Sizes with a -1 replaced by what is left of the elements.
pub fn infer_size(shape: &[Expr], sizes: &[Expr]) -> Vec<Expr> {
    let known = Expr::product(sizes.iter().filter(|s| !s.is_int(-1)));
    let rest = Expr::product(shape).floor_div(&known);
    sizes.iter().map(|s| if s.is_int(-1) { rest.clone() } else { s.clone() }).collect()
}

/// A reshaped view, without regard to strides.
pub fn reshaped(imp: &mut Importer, t: Tensor, mut shape: Vec<Expr>) -> Result<Tensor> {
    if imp.is_complex(t) {
        shape.push(Expr::int(2));
    }
    imp.view(t, Step::Reshape { shape })
}

/// `reshape`: a view where the strides allow it, else a copy.
fn reshape_or_copy(imp: &mut Importer, t: Tensor, to: Vec<Expr>) -> Result<Val> {
    let (shape, own) = (imp.shape_of(t)?, strides(imp, t)?);
    let shares = can_view(&shape, &own, &to);
    let view = Val::Tensor(reshaped(imp, t, to)?);
    if shares { Ok(view) } else { fresh(imp, view) }
}

fn view(imp: &mut Importer, a: &Args) -> Result<Val> {
    let t = a.tensor("self")?;
    let shape = imp.shape_of(t)?;
    let to = infer_size(&shape, &a.exprs("size")?);
    Ok(Val::Tensor(reshaped(imp, t, to)?))
}

fn reshape(imp: &mut Importer, a: &Args) -> Result<Val> {
    let t = a.tensor("self")?;
    let shape = imp.shape_of(t)?;
    let to = infer_size(&shape, &a.exprs(if a.has("shape") { "shape" } else { "size" })?);
    reshape_or_copy(imp, t, to)
}

fn like_other(imp: &mut Importer, a: &Args) -> Result<Val> {
    let (t, other) = (a.tensor("self")?, a.tensor("other")?);
    let to = imp.shape_of(other)?;
    reshape_or_copy(imp, t, to)
}

fn flatten(imp: &mut Importer, a: &Args) -> Result<Val> {
    let t = a.tensor("self")?;
    let shape = imp.shape_of(t)?;
    if shape.is_empty() {
        return Ok(Val::Tensor(reshaped(imp, t, vec![Expr::int(1)])?));
    }
    let first = imp.dim(a, a.int_or("start_dim", 0)?, shape.len())?;
    let last = imp.dim(a, a.int_or("end_dim", -1)?, shape.len())?;
    if first > last {
        return Err(Error::invalid_program("flatten: start_dim comes after end_dim"));
    }
    let mut to = shape[..first].to_vec();
    to.push(Expr::product(&shape[first..=last]));
    to.extend_from_slice(&shape[last + 1..]);
    if to == shape { alias(imp, a) } else { reshape_or_copy(imp, t, to) }
}

fn ravel(imp: &mut Importer, a: &Args) -> Result<Val> {
    let t = a.tensor("self")?;
    let to = vec![Expr::product(&imp.shape_of(t)?)];
    reshape_or_copy(imp, t, to)
}

fn unflatten(imp: &mut Importer, a: &Args) -> Result<Val> {
    let t = a.tensor("self")?;
    let shape = imp.shape_of(t)?;
    let dim = imp.dim(a, a.int("dim")?, shape.len())?;
    let sizes = infer_size(&shape[dim..=dim], &a.exprs("sizes")?);
    let mut to = shape[..dim].to_vec();
    to.extend(sizes);
    to.extend_from_slice(&shape[dim + 1..]);
    Ok(Val::Tensor(reshaped(imp, t, to)?))
}

fn transpose(imp: &mut Importer, a: &Args) -> Result<Val> {
    let t = a.tensor("self")?;
    let rank = imp.shape_of(t)?.len();
    let either = |x: &str, y: &str| if a.has(x) { a.int(x) } else { a.int(y) };
    let (d0, d1) = (imp.dim(a, either("dim0", "axis0")?, rank)?, imp.dim(a, either("dim1", "axis1")?, rank)?);
    let mut dims: Vec<usize> = (0..rank).collect();
    if rank > 0 {
        dims.swap(d0, d1);
    }
    Ok(Val::Tensor(imp.permuted(t, &dims)?))
}

fn t(imp: &mut Importer, a: &Args) -> Result<Val> {
    let t = a.tensor("self")?;
    let rank = imp.shape_of(t)?.len();
    let dims: Vec<usize> = (0..rank).rev().collect();
    Ok(Val::Tensor(imp.permuted(t, &dims)?))
}

fn reverse(imp: &mut Importer, a: &Args) -> Result<Val> {
    t(imp, a)
}

fn matrix_transpose(imp: &mut Importer, a: &Args) -> Result<Val> {
    let mut t = a.tensor("self")?;
    // All but mT conjugate.
    if imp.is_complex(t) && !a.target.contains("mT") {
        t = imp.view(t, Step::Conjugate)?;
    }
    let rank = imp.shape_of(t)?.len();
    let mut dims: Vec<usize> = (0..rank).collect();
    if rank >= 2 {
        dims.swap(rank - 1, rank - 2);
    }
    Ok(Val::Tensor(imp.permuted(t, &dims)?))
}

fn permute(imp: &mut Importer, a: &Args) -> Result<Val> {
    let t = a.tensor("self")?;
    let rank = imp.shape_of(t)?.len();
    let dims: Vec<usize> = a.ints("dims")?.iter().map(|d| imp.dim(a, *d, rank)).collect::<Result<_>>()?;
    Ok(Val::Tensor(imp.permuted(t, &dims)?))
}

fn movedim(imp: &mut Importer, a: &Args) -> Result<Val> {
    let t = a.tensor("self")?;
    let rank = imp.shape_of(t)?.len();
    let list = |name: &str| a.ints(name)?.iter().map(|d| imp.dim(a, *d, rank)).collect::<Result<Vec<_>>>();
    let (source, destination) = (list("source")?, list("destination")?);
    let mut dims = vec![None; rank];
    for (s, d) in source.iter().zip(&destination) {
        dims[*d] = Some(*s);
    }
    let mut rest = (0..rank).filter(|d| !source.contains(d));
    let dims: Option<Vec<usize>> = dims.into_iter().map(|d| d.or_else(|| rest.next())).collect();
    let dims = dims.ok_or_else(|| a.wrong("destination", "a list of different dimensions"))?;
    Ok(Val::Tensor(imp.permuted(t, &dims)?))
}

/// A view given by a map over the tensor's own dimensions.
pub fn mapped(imp: &mut Importer, t: Tensor, mut shape: Vec<Expr>, mut map: Vec<Expr>) -> Result<Tensor> {
    imp.complete(t, &mut shape, &mut map);
    imp.view(t, Step::Move { shape, map })
}

fn unsqueeze(imp: &mut Importer, a: &Args) -> Result<Val> {
    let t = a.tensor("self")?;
    let mut shape = imp.shape_of(t)?;
    let dim = imp.dim(a, a.int("dim")?, shape.len() + 1)?;
    shape.insert(dim, Expr::int(1));
    let mut map = coordinates(shape.len());
    map.remove(dim);
    Ok(Val::Tensor(mapped(imp, t, shape, map)?))
}

fn squeeze(imp: &mut Importer, a: &Args) -> Result<Val> {
    let t = a.tensor("self")?;
    let shape = imp.shape_of(t)?;
    let dims: Vec<usize> = if a.has("dim") {
        a.ints("dim")?.iter().map(|d| imp.dim(a, *d, shape.len())).collect::<Result<_>>()?
    } else {
        (0..shape.len()).collect()
    };
    let gone = |d: usize| dims.contains(&d) && shape[d].is_int(1);
    // The rank was fixed when the program was exported: a size that happens to be 1 in a call would change it.
    for d in dims.iter().filter(|d| shape.get(**d).is_some_and(|n| n.as_int().is_none())) {
        let cond = Cond::compare(Compare::Ne, &shape[*d], &Expr::int(1));
        let what = format_args!("squeeze: dimension {d}, of a size that was not 1 when the program was exported, is 1");
        imp.require(cond, what);
    }
    let kept: Vec<Expr> = (0..shape.len()).filter(|d| !gone(*d)).map(|d| shape[d].clone()).collect();
    let mut next = 0;
    let mut map = Vec::new();
    for d in 0..shape.len() {
        if gone(d) {
            map.push(Expr::int(0));
        } else {
            map.push(Expr::loop_var(next));
            next += 1;
        }
    }
    Ok(Val::Tensor(mapped(imp, t, kept, map)?))
}

fn expanded(imp: &mut Importer, t: Tensor, sizes: &[Expr]) -> Result<Val> {
    let shape = imp.shape_of(t)?;
    let Some(added) = sizes.len().checked_sub(shape.len()) else {
        return Err(Error::invalid_program("expand to fewer dimensions"));
    };
    let mut to = sizes.to_vec();
    let mut map = Vec::new();
    for (d, size) in shape.iter().enumerate() {
        if to[added + d].is_int(-1) {
            to[added + d] = size.clone();
        }
        let wanted = to[added + d].clone();
        if size.is_int(1) && !wanted.is_int(1) {
            map.push(Expr::int(0));
        } else {
            imp.b.require_equal(size, &wanted, "the sizes of an expanded dimension");
            map.push(Expr::loop_var(added + d));
        }
    }
    Ok(Val::Tensor(mapped(imp, t, to, map)?))
}

fn expand(imp: &mut Importer, a: &Args) -> Result<Val> {
    let (t, sizes) = (a.tensor("self")?, a.exprs("size")?);
    expanded(imp, t, &sizes)
}

fn expand_as(imp: &mut Importer, a: &Args) -> Result<Val> {
    let (t, other) = (a.tensor("self")?, a.tensor("other")?);
    let sizes = imp.shape_of(other)?;
    expanded(imp, t, &sizes)
}

/// A slice bound brought into [0, size]: negative ones count from the end.
pub fn clamp_bound(imp: &Importer, bound: &Expr, size: &Expr) -> Expr {
    let ranges = imp.b.ranges();
    let from_end = if bound.as_int().is_some_and(|b| b < 0) || ranges.max(bound).is_some_and(|m| m < 0) {
        bound + size
    } else if ranges.non_negative(bound) {
        bound.clone()
    } else {
        Expr::select(&Cond::compare(Compare::Lt, bound, &Expr::int(0)), &(bound + size), bound)
    };
    from_end.maximum(&Expr::int(0)).minimum(size).simplify(ranges)
}

/// Elements `start..end` in steps along a dimension, with Python's rules for bounds.
pub fn sliced(
    imp: &mut Importer,
    t: Tensor,
    dim: usize,
    start: Option<&Expr>,
    end: Option<&Expr>,
    step: i64,
) -> Result<Tensor> {
    let mut shape = imp.shape_of(t)?;
    let size = shape[dim].clone();
    let zero = Expr::int(0);
    let start = clamp_bound(imp, start.unwrap_or(&zero), &size);
    let end = match end {
        Some(end) if end.as_int().is_none_or(|e| e < i64::MAX / 2) => clamp_bound(imp, end, &size),
        _ => size,
    };
    let length = (&end - &start).maximum(&zero).ceil_div(&Expr::int(step)).simplify(imp.b.ranges());
    shape[dim] = length;
    let mut map = coordinates(shape.len());
    map[dim] = &start + &(&map[dim] * step);
    mapped(imp, t, shape, map)
}

fn slice(imp: &mut Importer, a: &Args) -> Result<Val> {
    let t = a.tensor("self")?;
    let rank = imp.shape_of(t)?.len();
    let dim = imp.dim(a, a.int_or("dim", 0)?, rank)?;
    let (start, end) = (a.opt_expr("start")?, a.opt_expr("end")?);
    Ok(Val::Tensor(sliced(imp, t, dim, start.as_ref(), end.as_ref(), a.int_or("step", 1)?)?))
}

fn narrow(imp: &mut Importer, a: &Args) -> Result<Val> {
    let t = a.tensor("self")?;
    let mut shape = imp.shape_of(t)?;
    let dim = imp.dim(a, a.int("dim")?, shape.len())?;
    let start = wrapped(imp, &a.expr("start")?, &shape[dim]);
    let length = a.expr("length")?;
    require_within(imp, &start, &(&start + &length), &shape[dim], "narrow");
    shape[dim] = length;
    let mut map = coordinates(shape.len());
    map[dim] = &start + &map[dim];
    Ok(Val::Tensor(mapped(imp, t, shape, map)?))
}

/// An index that may be negative, counted from the start.
pub fn wrapped(imp: &Importer, index: &Expr, size: &Expr) -> Expr {
    match index.as_int() {
        Some(i) if i < 0 => index + size,
        Some(_) => index.clone(),
        None if imp.b.ranges().non_negative(index) => index.clone(),
        None => Expr::select(&Cond::compare(Compare::Lt, index, &Expr::int(0)), &(index + size), index),
    }
}

/// Makes the call fail unless `0 <= low` and `high <= size`, where that is not known.
pub fn require_within(imp: &mut Importer, low: &Expr, high: &Expr, size: &Expr, what: &str) {
    let cond = Cond::compare(Compare::Ge, low, &Expr::int(0)).and(&Cond::compare(Compare::Le, high, size));
    imp.require(cond, format_args!("{what}: indices {low} to {high} are out of range for a dimension of size {size}"));
}

/// `t` at one index of a dimension, which goes.
pub fn selected(imp: &mut Importer, t: Tensor, dim: usize, index: &Expr) -> Result<Tensor> {
    let mut shape = imp.shape_of(t)?;
    let size = shape.remove(dim);
    let at = wrapped(imp, index, &size);
    require_within(imp, &at, &(&at + 1), &size, "select");
    let mut map = coordinates(shape.len());
    map.insert(dim, at);
    mapped(imp, t, shape, map)
}

fn select(imp: &mut Importer, a: &Args) -> Result<Val> {
    let t = a.tensor("self")?;
    let rank = imp.shape_of(t)?.len();
    let dim = imp.dim(a, a.int("dim")?, rank)?;
    Ok(Val::Tensor(selected(imp, t, dim, &a.expr("index")?)?))
}

fn diagonal(imp: &mut Importer, a: &Args) -> Result<Val> {
    let t = a.tensor(if a.has("A") { "A" } else { "self" })?;
    let default = if a.target.contains("linalg") { (-2, -1) } else { (0, 1) };
    let (offset, d1, d2) = (a.int_or("offset", 0)?, a.int_or("dim1", default.0)?, a.int_or("dim2", default.1)?);
    let shape = imp.shape_of(t)?;
    let (d1, d2) = (imp.dim(a, d1, shape.len())?, imp.dim(a, d2, shape.len())?);
    Ok(Val::Tensor(diagonal_of(imp, t, offset, d1, d2)?))
}

/// The diagonal `offset` above the main one in two dimensions, as the last dimension.
pub fn diagonal_of(imp: &mut Importer, t: Tensor, offset: i64, d1: usize, d2: usize) -> Result<Tensor> {
    let shape = imp.shape_of(t)?;
    let (up, down) = (Expr::int(offset.max(0)), Expr::int((-offset).max(0)));
    let length = (&shape[d1] - &down).minimum(&(&shape[d2] - &up)).maximum(&Expr::int(0)).simplify(imp.b.ranges());
    let mut to = Vec::new();
    let mut map = vec![Expr::int(0); shape.len()];
    for d in (0..shape.len()).filter(|d| *d != d1 && *d != d2) {
        map[d] = Expr::loop_var(to.len());
        to.push(shape[d].clone());
    }
    let along = Expr::loop_var(to.len());
    map[d1] = &along + &down;
    map[d2] = &along + &up;
    to.push(length);
    mapped(imp, t, to, map)
}

fn unfold(imp: &mut Importer, a: &Args) -> Result<Val> {
    let t = a.tensor("self")?;
    let mut shape = imp.shape_of(t)?;
    let rank = shape.len();
    let (size, step) = (a.expr("size")?, a.int("step")?);
    if rank == 0 {
        let map = vec![];
        return Ok(Val::Tensor(mapped(imp, t, vec![size], map)?));
    }
    let dim = imp.dim(a, a.int("dimension")?, rank)?;
    require_within(imp, &Expr::int(0), &size, &shape[dim], "unfold");
    shape[dim] = (&shape[dim] - &size).floor_div(&Expr::int(step)) + 1;
    let mut map = coordinates(rank);
    map[dim] = &(&map[dim] * step) + &Expr::loop_var(rank);
    shape.push(size);
    Ok(Val::Tensor(mapped(imp, t, shape, map)?))
}

fn at_least(imp: &mut Importer, a: &Args, rank: usize) -> Result<Val> {
    let raise = |imp: &mut Importer, t: Tensor| -> Result<Val> {
        let shape = imp.shape_of(t)?;
        let one = Expr::int(1);
        let to = match (rank, shape.as_slice()) {
            (r, s) if s.len() >= r => return Ok(Val::Tensor(imp.alias(t))),
            (r, []) => vec![one; r],
            (2, [n]) => vec![one, n.clone()],
            (_, [n]) => vec![one.clone(), n.clone(), one],
            (_, s) => [s, &[one]].concat(),
        };
        Ok(Val::Tensor(reshaped(imp, t, to)?))
    };
    match a.get("tensors") {
        Some(_) => {
            let all = a.tensors("tensors")?;
            all.into_iter().map(|t| raise(imp, t)).collect::<Result<_>>().map(Val::List)
        }
        None => raise(imp, a.tensor("self")?),
    }
}
