//! Embeddings: rows of a table, bags of rows, rows in segments.

use douse_core::pointwise::{Binary, Combine, Unary};
use douse_core::sym::{Cond, Expr};
use douse_core::{DType, Error, Result, Scalar};
use douse_ir::{Value, coordinates};

use super::args::{Args, Val};
use super::importer::{Importer, Row};
use super::index::{checked, element};

pub const ROWS: &[Row] = &[
    ("aten.embedding.default", embedding),
    ("aten.embedding_bag.default", embedding_bag),
    ("aten.embedding_bag.padding_idx", embedding_bag),
    ("aten._embedding_bag.default", embedding_bag),
    ("aten._embedding_bag_forward_only.default", embedding_bag),
    ("aten.embedding_renorm.default", embedding_renorm),
    ("aten.segment_reduce.default", segment_reduce),
];

fn embedding(imp: &mut Importer, a: &Args) -> Result<Val> {
    let weight = imp.data(a, "weight")?;
    let index = imp.value(a, "indices")?;
    let index = checked(imp, a, index, &weight.shape[0], false)?;
    let mut shape = imp.b.shape(index).to_vec();
    let rank = shape.len();
    shape.extend_from_slice(&weight.shape[1..]);
    let index = imp.b.remap(index, shape.clone(), coordinates(rank))?;
    let mut map = vec![element(0)];
    map.extend((rank..shape.len()).map(Expr::loop_var));
    Ok(weight.moved(imp, &[index], shape, map, Cond::Bool(true), Scalar::Int(0))?.val())
}

/// Rows in bags that `offsets` delimit: summed (mode 0), averaged (1) or the largest (2). Rows of the padding index do not count.
/// The other three results serve the gradient alone and cannot be read.
fn embedding_bag(imp: &mut Importer, a: &Args) -> Result<Val> {
    let weight = imp.value(a, "weight")?;
    let dtype = imp.b.dtype(weight);
    let index = imp.value(a, "indices")?;
    let offsets = imp.value(a, "offsets")?;
    let offsets = imp.b.cast(offsets, DType::I64);
    let mode = a.int_or("mode", 0)?;
    let (rows, width) = match imp.b.shape(weight) {
        [rows, width] => (rows.clone(), width.clone()),
        _ => return Err(Error::invalid_program("embedding_bag: the weight is not a matrix")),
    };
    let index = checked(imp, a, index, &rows, false)?;
    let n = imp.b.numel(index);
    let index = imp.b.reshape(index, vec![n.clone()])?;
    let all = imp.b.numel(offsets);
    let bags = if a.bool_or("include_last_offset", false)? { &all - 1 } else { all };
    let starts = imp.b.slice(offsets, 0, &Expr::int(0), &Expr::int(1), bags.clone())?;
    // The bag of each row: the last that starts at or before it.
    let place = imp.b.iota(vec![n.clone()], Expr::loop_var(0));
    let bag = imp.b.search_sorted(starts, place, true)?;
    let bag = imp.b.binary_scalar(Binary::Sub, bag, Scalar::Int(1))?;
    let mut counts = imp.b.full(DType::Bool, vec![n.clone()], Scalar::Bool(true));
    if let Some(padding) = a.opt_int("padding_idx")?.filter(|p| *p >= 0 || a.target.ends_with("padding_idx")) {
        let padding = match (padding < 0, rows.as_int()) {
            (false, _) => padding,
            (true, Some(rows)) => padding + rows,
            (true, None) => return Err(a.unsupported("a negative padding index in a table of unknown size")),
        };
        counts = imp.b.binary_scalar(Binary::Ne, index, Scalar::Int(padding))?;
    }
    // Rows that do not count, or stand before the first bag, go to one bag more, which is cut off.
    let started = imp.b.binary_scalar(Binary::Ge, bag, Scalar::Int(0))?;
    let counted = imp.b.binary(Binary::And, counts, started)?;
    let none = imp.b.size_value(bags.clone());
    let target = imp.b.select(counted, bag, none)?;
    let wide = imp.compute_dtype(dtype);
    let shape = vec![n.clone(), width.clone()];
    let mut source = imp.b.take(weight, 0, index)?;
    source = imp.b.cast(source, wide);
    if let Some(weights) = imp.opt_value(a, "per_sample_weights")? {
        let weights = imp.b.cast(weights, wide);
        let weights = imp.b.reshape(weights, vec![n.clone(), Expr::int(1)])?;
        source = imp.b.binary(Binary::Mul, source, weights)?;
    }
    let spread = imp.b.remap(target, shape, vec![Expr::loop_var(0)])?;
    let room = vec![&bags + 1, width.clone()];
    let map = vec![element(0), Expr::loop_var(1)];
    let one = imp.b.full(DType::I64, vec![n], Scalar::Int(1));
    let zeros = imp.b.full(DType::I64, vec![&bags + 1], Scalar::Int(0));
    let size = imp.b.scatter(zeros, one, &[target], vec![element(0)], Some(Combine::Sum))?;
    let size = imp.b.slice(size, 0, &Expr::int(0), &Expr::int(1), bags.clone())?;
    let cut = |imp: &mut Importer, x: Value| imp.b.slice(x, 0, &Expr::int(0), &Expr::int(1), bags.clone());
    let out = match mode {
        0 | 1 => {
            let base = imp.b.full(wide, room, Scalar::Int(0));
            let sum = imp.b.scatter(base, source, &[spread], map, Some(Combine::Sum))?;
            let sum = cut(imp, sum)?;
            if mode == 0 {
                sum
            } else {
                let n = imp.b.binary_scalar(Binary::Maximum, size, Scalar::Int(1))?;
                let n = imp.b.cast(n, wide);
                let n = imp.b.unsqueeze(n, 1)?;
                imp.b.binary(Binary::Div, sum, n)?
            }
        }
        2 => {
            let base = imp.b.full(wide, room, Scalar::Float(f64::NEG_INFINITY));
            let max = imp.b.scatter(base, source, &[spread], map, Some(Combine::Max))?;
            let max = cut(imp, max)?;
            let some = imp.b.binary_scalar(Binary::Gt, size, Scalar::Int(0))?;
            let some = imp.b.unsqueeze(some, 1)?;
            let zero = imp.b.full_like(max, Scalar::Int(0));
            imp.b.select(some, max, zero)?
        }
        _ => return Err(a.unsupported(format!("the mode {mode}"))),
    };
    let out = imp.b.cast(out, dtype);
    Ok(Val::List(vec![out.into(), Val::Other, Val::Other, Val::Other]))
}

/// Rows that the indices name and whose norm is above the limit are scaled to it; the others stay.
fn embedding_renorm(imp: &mut Importer, a: &Args) -> Result<Val> {
    let weight = imp.value(a, "self")?;
    let dtype = imp.b.dtype(weight);
    let (max, p) = (a.float("max_norm")?, a.float_or("norm_type", 2.0)?);
    let rows = imp.b.shape(weight)[0].clone();
    let index = imp.value(a, "indices")?;
    let index = checked(imp, a, index, &rows, false)?;
    let n = imp.b.numel(index);
    let index = imp.b.reshape(index, vec![n.clone()])?;
    let base = imp.b.full(DType::Bool, vec![rows], Scalar::Bool(false));
    let yes = imp.b.full(DType::Bool, vec![n], Scalar::Bool(true));
    let named = imp.b.scatter(base, yes, &[index], vec![element(0)], None)?;
    let wide = imp.compute_dtype(dtype);
    let x = imp.b.cast(weight, wide);
    let size = imp.b.unary(Unary::Abs, x)?;
    let norm = if p.is_infinite() && p > 0.0 {
        imp.b.reduce(Combine::Max, size, &[1])?
    } else if p == 1.0 {
        imp.b.reduce(Combine::Sum, size, &[1])?
    } else if p == 2.0 {
        let square = imp.b.binary(Binary::Mul, x, x)?;
        let sum = imp.b.reduce(Combine::Sum, square, &[1])?;
        imp.b.unary(Unary::Sqrt, sum)?
    } else if p > 0.0 {
        let power = imp.b.binary_scalar(Binary::Pow, size, Scalar::Float(p))?;
        let sum = imp.b.reduce(Combine::Sum, power, &[1])?;
        imp.b.binary_scalar(Binary::Pow, sum, Scalar::Float(1.0 / p))?
    } else {
        return Err(a.unsupported(format!("the norm {p}")));
    };
    // The norm is of the table's dtype, the factor computed from it in float64.
    let norm = imp.b.cast(norm, dtype);
    let norm = imp.b.cast(norm, DType::F64);
    let above = imp.b.binary_scalar(Binary::Gt, norm, Scalar::Float(max))?;
    let scaled = imp.b.binary(Binary::And, named, above)?;
    let bottom = imp.b.binary_scalar(Binary::Add, norm, Scalar::Float(1e-7))?;
    let top = imp.b.full_like(bottom, Scalar::Float(max));
    let factor = imp.b.binary(Binary::Div, top, bottom)?;
    let factor = imp.b.cast(factor, wide);
    let factor = imp.b.unsqueeze(factor, 1)?;
    let smaller = imp.b.binary(Binary::Mul, x, factor)?;
    let smaller = imp.b.cast(smaller, dtype);
    let scaled = imp.b.unsqueeze(scaled, 1)?;
    Ok(imp.b.select(scaled, smaller, weight)?.into())
}

/// Where segments of a dimension begin and end, int64 [..., segments + 1]: bounds that do not fall and lie within it. Lengths add up to its
/// size, unless `unsafe` says that they need not.
fn segment_bounds(imp: &mut Importer, a: &Args, axis: usize, size: &Expr) -> Result<Value> {
    let (given, summed) = match imp.opt_value(a, "offsets")? {
        Some(offsets) => (offsets, false),
        None => (imp.value(a, "lengths")?, true),
    };
    if imp.b.rank(given) != axis + 1 {
        return Err(Error::invalid_program("segment_reduce: lengths have another rank than the dimensions up to axis"));
    }
    let given = imp.b.cast(given, DType::I64);
    let bounds = if summed {
        let ends = imp.b.scan(Combine::Sum, given, axis)?;
        let mut low = vec![Expr::int(0); axis + 1];
        let high = low.clone();
        low[axis] = Expr::int(1);
        imp.b.pad(ends, &low, &high, Scalar::Int(0))?
    } else {
        given
    };
    let count = (&imp.b.shape(bounds)[axis] - 1).simplify(imp.b.ranges());
    let starts = imp.b.slice(bounds, axis, &Expr::int(0), &Expr::int(1), count.clone())?;
    let ends = imp.b.slice(bounds, axis, &Expr::int(1), &Expr::int(1), count.clone())?;
    let size = imp.b.size_value(size.clone());
    let rising = imp.b.binary(Binary::Le, starts, ends)?;
    let begins = imp.b.binary_scalar(Binary::Ge, starts, Scalar::Int(0))?;
    let ended = imp.b.binary(Binary::Le, ends, size)?;
    let mut valid = imp.b.binary(Binary::And, rising, begins)?;
    valid = imp.b.binary(Binary::And, valid, ended)?;
    if summed && !a.bool_or("unsafe", false)? {
        let last = imp.b.select_index(bounds, axis, &count)?;
        let whole = imp.b.binary(Binary::Eq, last, size)?;
        let whole = imp.b.unsqueeze(whole, axis)?;
        valid = imp.b.binary(Binary::And, valid, whole)?;
    }
    let all: Vec<usize> = (0..=axis).collect();
    let valid = imp.b.reduce(Combine::And, valid, &all)?;
    imp.b.assert(valid, format!("segment_reduce: segments that are no parts of the dimension ({})", imp.place))?;
    Ok(bounds)
}

/// Combines the elements of segments of the dimension `axis`, which `lengths` or `offsets` [..., segments] give for each row of the
/// dimensions before it.
fn segment_reduce(imp: &mut Importer, a: &Args) -> Result<Val> {
    let x = imp.value(a, "data")?;
    let dtype = imp.b.dtype(x);
    if a.has("indices") {
        return Err(a.unsupported("indices of segments"));
    }
    let shape = imp.b.shape(x).to_vec();
    let axis = imp.dim(a, a.int_or("axis", 0)?, shape.len())?;
    let bounds = segment_bounds(imp, a, axis, &shape[axis])?;
    let segments = (&imp.b.shape(bounds)[axis] - 1).simplify(imp.b.ranges());
    let ends = imp.b.slice(bounds, axis, &Expr::int(1), &Expr::int(1), segments.clone())?;
    let starts = imp.b.slice(bounds, axis, &Expr::int(0), &Expr::int(1), segments.clone())?;
    // The segment of each element: how many bounds stand at or before it, but one. What lies outside of all goes to one segment more.
    let rows = shape[..=axis].to_vec();
    let place = imp.b.iota(rows.clone(), Expr::loop_var(axis));
    let passed = imp.b.search_sorted(bounds, place, true)?;
    let segment = imp.b.binary_scalar(Binary::Sub, passed, Scalar::Int(1))?;
    let outside = imp.b.iota(rows, segments.clone());
    let inside = imp.b.binary_scalar(Binary::Ge, segment, Scalar::Int(0))?;
    let segment = imp.b.select(inside, segment, outside)?;
    let spread = imp.b.remap(segment, shape.clone(), (0..=axis).map(Expr::loop_var).collect())?;
    let mut room = shape.clone();
    room[axis] = &segments + 1;
    let mut map = coordinates(shape.len());
    map[axis] = element(0);
    let reduce = a.str("reduce")?;
    let (combine, neutral) = match reduce {
        "sum" | "mean" => (Combine::Sum, 0.0),
        "prod" => (Combine::Prod, 1.0),
        "max" => (Combine::Max, f64::NEG_INFINITY),
        "min" => (Combine::Min, f64::INFINITY),
        other => return Err(a.unsupported(format!("the reduction {other}"))),
    };
    let wide = if combine == Combine::Sum { imp.compute_dtype(dtype) } else { dtype };
    let initial = a.opt_float("initial")?;
    let base = imp.b.full(wide, room, Scalar::Float(initial.unwrap_or(neutral)));
    let source = imp.b.cast(x, wide);
    let mut out = imp.b.scatter(base, source, &[spread], map.clone(), Some(combine))?;
    out = imp.b.slice(out, axis, &Expr::int(0), &Expr::int(1), segments.clone())?;
    if reduce == "mean" {
        let length = imp.b.binary(Binary::Sub, ends, starts)?;
        let to = imp.b.shape(out).to_vec();
        let length = imp.b.remap(length, to, (0..=axis).map(Expr::loop_var).collect())?;
        let empty = imp.b.binary_scalar(Binary::Eq, length, Scalar::Int(0))?;
        let n = imp.b.cast(length, wide);
        let mean = imp.b.binary(Binary::Div, out, n)?;
        // An empty segment's mean is NaN, or the initial value.
        let none = imp.b.full(wide, vec![], Scalar::Float(initial.unwrap_or(f64::NAN)));
        out = imp.b.select(empty, none, mean)?;
    }
    Ok(imp.b.cast(out, dtype).into())
}
