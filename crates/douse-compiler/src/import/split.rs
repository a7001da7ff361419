//! Splits: a tensor as a list of views along one dimension.

use douse_core::sym::{Compare, Cond, Expr};
use douse_core::{Error, Result};
use douse_ir::coordinates;

use super::args::{Args, Val};
use super::importer::{Importer, Row};
use super::tensor::Tensor;
use super::view::{clamp_bound, mapped, selected};

pub const ROWS: &[Row] = &[
    ("aten.unbind.int", unbind),
    ("aten.split.Tensor", split),
    ("aten.split.default", split_sizes),
    ("aten.split.sizes", split_sizes),
    ("aten.unsafe_split.Tensor", split),
    ("aten.split_with_sizes.default", split_sizes),
    ("aten.unsafe_split_with_sizes.default", split_sizes),
    ("aten.chunk.default", chunk),
    ("aten.unsafe_chunk.default", chunk),
    ("aten.tensor_split.sections", tensor_split),
    ("aten.tensor_split.indices", tensor_split),
    ("aten.hsplit.int", |i, a| axis_split(i, a, 1)),
    ("aten.hsplit.array", |i, a| axis_split(i, a, 1)),
    ("aten.vsplit.int", |i, a| axis_split(i, a, 0)),
    ("aten.vsplit.array", |i, a| axis_split(i, a, 0)),
    ("aten.dsplit.int", |i, a| axis_split(i, a, 2)),
    ("aten.dsplit.array", |i, a| axis_split(i, a, 2)),
];

fn unbind(imp: &mut Importer, a: &Args) -> Result<Val> {
    let t = a.tensor("self")?;
    let shape = imp.shape_of(t)?;
    let dim = imp.dim(a, a.int_or("dim", 0)?, shape.len())?;
    let n = shape[dim].as_int().ok_or_else(|| a.unsupported("unbinding a size known only at run time"))?;
    (0..n).map(|i| selected(imp, t, dim, &Expr::int(i)).map(Val::Tensor)).collect::<Result<_>>().map(Val::List)
}

/// Begins and sizes of consecutive pieces of these sizes.
fn one_after_another(sizes: impl IntoIterator<Item = Expr>) -> Vec<(Expr, Expr)> {
    let next = |at: &mut Expr, size: Expr| Some((std::mem::replace(at, &*at + &size), size));
    sizes.into_iter().scan(Expr::int(0), next).collect()
}

/// Pieces along a dimension, by their begins and sizes.
fn pieces(imp: &mut Importer, t: Tensor, dim: usize, pieces: Vec<(Expr, Expr)>) -> Result<Val> {
    let mut list = Vec::new();
    for (start, size) in pieces {
        let mut shape = imp.shape_of(t)?;
        shape[dim] = size;
        let mut map = coordinates(shape.len());
        map[dim] = &start + &map[dim];
        list.push(Val::Tensor(mapped(imp, t, shape, map)?));
    }
    Ok(Val::List(list))
}

/// Pieces of `step` elements, the last perhaps shorter; a symbolic size must give a known number of pieces. Of nothing there are
/// `of_nothing` pieces.
fn equal_pieces(imp: &mut Importer, a: &Args, t: Tensor, dim: usize, step: &Expr, of_nothing: i64) -> Result<Val> {
    let size = imp.shape_of(t)?[dim].clone();
    let count = if step.is_int(0) { Expr::int(1) } else { size.ceil_div(step).simplify(imp.b.ranges()) };
    let count = match count.as_int() {
        Some(count) => count.max(1),
        // As many as when the program was exported, which each call checks.
        None if imp.results > 0 => {
            let count = imp.results as i64;
            let pieces = size.ceil_div(&step.maximum(&Expr::int(1)));
            let mut same = Cond::compare(Compare::Eq, &pieces, &Expr::int(count));
            if count == of_nothing {
                same = same.or(&Cond::compare(Compare::Eq, &size, &Expr::int(0)));
            }
            imp.require(same, format_args!("{}: a size {size} that does not give {count} pieces", a.target));
            count
        }
        None => return Err(a.unsupported("a number of pieces known only at run time")),
    };
    let mut sizes = vec![step.clone(); count as usize - 1];
    sizes.push((&size - &(step * (count - 1))).simplify(imp.b.ranges()));
    pieces(imp, t, dim, one_after_another(sizes))
}

fn split(imp: &mut Importer, a: &Args) -> Result<Val> {
    let t = a.tensor("self")?;
    let rank = imp.shape_of(t)?.len();
    let dim = imp.dim(a, a.int_or("dim", 0)?, rank)?;
    equal_pieces(imp, a, t, dim, &a.expr("split_size")?, 1)
}

fn split_sizes(imp: &mut Importer, a: &Args) -> Result<Val> {
    let t = a.tensor("self")?;
    let rank = imp.shape_of(t)?.len();
    let dim = imp.dim(a, a.int_or("dim", 0)?, rank)?;
    let sizes = a.exprs(if a.has("split_sizes") { "split_sizes" } else { "split_size" })?;
    pieces(imp, t, dim, one_after_another(sizes))
}

fn chunk(imp: &mut Importer, a: &Args) -> Result<Val> {
    let t = a.tensor("self")?;
    let shape = imp.shape_of(t)?;
    let dim = imp.dim(a, a.int_or("dim", 0)?, shape.len())?;
    let chunks = a.int("chunks")?;
    let step = shape[dim].ceil_div(&Expr::int(chunks)).simplify(imp.b.ranges());
    if step.is_int(0) {
        let sizes = vec![Expr::int(0); chunks as usize];
        return pieces(imp, t, dim, one_after_another(sizes));
    }
    if step.as_int().is_none() && (&step * chunks) == shape[dim] {
        let sizes = vec![step; chunks as usize];
        return pieces(imp, t, dim, one_after_another(sizes));
    }
    equal_pieces(imp, a, t, dim, &step, chunks)
}

/// Begins and sizes of `sections` pieces that differ by one at most, the larger first, or of the pieces between indices.
fn sections(imp: &mut Importer, a: &Args, size: &Expr) -> Result<Vec<(Expr, Expr)>> {
    if a.has("sections") {
        let n = a.int("sections")?;
        if n <= 0 {
            return Err(Error::invalid_program(format!("{}: {n} sections", a.target)));
        }
        let piece = |i: i64| (size + (n - 1 - i)).floor_div(&Expr::int(n)).simplify(imp.b.ranges());
        return Ok(one_after_another((0..n).map(piece)));
    }
    let mut bounds = vec![Expr::int(0)];
    for index in a.exprs("indices")? {
        bounds.push(clamp_bound(imp, &index, size));
    }
    bounds.push(size.clone());
    Ok(bounds.windows(2).map(|w| (w[0].clone(), (&w[1] - &w[0]).maximum(&Expr::int(0)))).collect())
}

fn split_in_sections(imp: &mut Importer, a: &Args, t: Tensor, dim: usize) -> Result<Val> {
    let size = imp.shape_of(t)?[dim].clone();
    let sections = sections(imp, a, &size)?;
    pieces(imp, t, dim, sections)
}

fn tensor_split(imp: &mut Importer, a: &Args) -> Result<Val> {
    let t = a.tensor("self")?;
    let rank = imp.shape_of(t)?.len();
    let dim = imp.dim(a, a.int_or("dim", 0)?, rank)?;
    split_in_sections(imp, a, t, dim)
}

fn axis_split(imp: &mut Importer, a: &Args, dim: usize) -> Result<Val> {
    let t = a.tensor("self")?;
    let shape = imp.shape_of(t)?;
    let dim = if shape.len() == 1 { 0 } else { dim };
    if let (Some(size), Some(n)) = (shape.get(dim), a.opt_int("sections")?.filter(|n| *n > 0)) {
        let whole = Cond::compare(Compare::Eq, &size.modulo(&Expr::int(n)), &Expr::int(0));
        imp.require(whole, format_args!("{}: {n} does not divide the size {size}", a.target));
    }
    split_in_sections(imp, a, t, dim)
}
