//! Tensors put together: concatenation, stacking, products of sequences.

use douse_core::sym::{Compare, Cond, Expr, Symbol};
use douse_core::{DType, Error, Result, Scalar};

use super::args::{Args, Val};
use super::data::Data;
use super::importer::{Importer, Row};
use super::promote::ResultType;

pub const ROWS: &[Row] = &[
    ("aten.cat.default", cat),
    ("aten.concat.default", cat),
    ("aten.concatenate.default", cat),
    ("aten.stack.default", stack),
    ("aten.hstack.default", hstack),
    ("aten.vstack.default", vstack),
    ("aten.row_stack.default", vstack),
    ("aten.dstack.default", dstack),
    ("aten.column_stack.default", column_stack),
    ("aten.block_diag.default", block_diag),
    ("aten._chunk_cat.default", chunk_cat),
    ("aten.cartesian_prod.default", cartesian_prod),
    ("aten.combinations.default", combinations),
    ("aten.pad_sequence.default", pad_sequence),
];

/// A list of tensors in their common dtype.
fn promoted(imp: &mut Importer, a: &Args, name: &str) -> Result<Vec<Data>> {
    let all = imp.all_data(a, name)?;
    let mut result = ResultType::default();
    for data in &all {
        result.tensor(data.dtype, data.rank());
    }
    let dtype = result.dtype();
    all.into_iter().map(|d| d.cast(imp, dtype)).collect()
}

/// Concatenation; a tensor of shape [0] stands aside, whatever the others' rank.
fn cat(imp: &mut Importer, a: &Args) -> Result<Val> {
    let all = promoted(imp, a, "tensors")?;
    let rank = all.iter().map(Data::rank).max().unwrap_or(0);
    let dim = imp.dim(a, a.int_or("dim", 0)?, rank)?;
    joined(imp, all, dim)
}

fn joined(imp: &mut Importer, all: Vec<Data>, dim: usize) -> Result<Val> {
    let empty = |d: &Data| d.rank() == 1 && d.shape[0].is_int(0);
    let some = all.iter().any(|d| !empty(d));
    let kept: Vec<Data> = all.into_iter().filter(|d| !some || !empty(d)).collect();
    Ok(Data::concat(imp, &kept, dim)?.val())
}

fn stack(imp: &mut Importer, a: &Args) -> Result<Val> {
    let all = promoted(imp, a, "tensors")?;
    let rank = all.first().map_or(0, Data::rank);
    let dim = imp.dim(a, a.int_or("dim", 0)?, rank + 1)?;
    let all: Vec<Data> = all.iter().map(|d| d.unsqueeze(imp, dim)).collect::<Result<_>>()?;
    Ok(Data::concat(imp, &all, dim)?.val())
}

fn hstack(imp: &mut Importer, a: &Args) -> Result<Val> {
    let all = promoted(imp, a, "tensors")?;
    let all: Vec<Data> = all.iter().map(|d| d.raised(imp)).collect::<Result<_>>()?;
    let dim = if all.first().is_some_and(|d| d.rank() == 1) { 0 } else { 1 };
    joined(imp, all, dim)
}

/// Adds dimensions as `atleast_2d` does: [n] becomes [1, n].
fn at_least_2d(imp: &mut Importer, data: &Data) -> Result<Data> {
    match data.rank() {
        0 => data.reshape(imp, vec![Expr::int(1); 2]),
        1 => data.unsqueeze(imp, 0),
        _ => Ok(data.clone()),
    }
}

fn vstack(imp: &mut Importer, a: &Args) -> Result<Val> {
    let all = promoted(imp, a, "tensors")?;
    let all: Vec<Data> = all.iter().map(|d| at_least_2d(imp, d)).collect::<Result<_>>()?;
    joined(imp, all, 0)
}

fn dstack(imp: &mut Importer, a: &Args) -> Result<Val> {
    let all = promoted(imp, a, "tensors")?;
    let raise = |imp: &mut Importer, d: &Data| {
        let flat = at_least_2d(imp, d)?;
        if flat.rank() == 2 { flat.unsqueeze(imp, 2) } else { Ok(flat) }
    };
    let all: Vec<Data> = all.iter().map(|d| raise(imp, d)).collect::<Result<_>>()?;
    joined(imp, all, 2)
}

/// [n] becomes [n, 1], a number [1, 1].
fn column_stack(imp: &mut Importer, a: &Args) -> Result<Val> {
    let all = promoted(imp, a, "tensors")?;
    let raise = |imp: &mut Importer, d: &Data| {
        if d.rank() <= 1 { d.reshape(imp, vec![d.numel(), Expr::int(1)]) } else { Ok(d.clone()) }
    };
    let all: Vec<Data> = all.iter().map(|d| raise(imp, d)).collect::<Result<_>>()?;
    joined(imp, all, 1)
}

/// Matrices along a diagonal, zeros elsewhere. A vector counts as one row.
fn block_diag(imp: &mut Importer, a: &Args) -> Result<Val> {
    let all = promoted(imp, a, "tensors")?;
    if all.is_empty() {
        return Ok(Data::full(imp, DType::F32, vec![Expr::int(1), Expr::int(0)], Scalar::Int(0))?.val());
    }
    let all: Vec<Data> = all.iter().map(|d| at_least_2d(imp, d)).collect::<Result<_>>()?;
    let width = all.iter().fold(Expr::int(0), |sum, d| &sum + &d.shape[1]);
    let mut at = Expr::int(0);
    let mut rows = Vec::new();
    for block in &all {
        let after = &width - &(&at + &block.shape[1]);
        let row = padded(imp, block, &[(Expr::int(0), Expr::int(0)), (at.clone(), after)])?;
        at = &at + &block.shape[1];
        rows.push(row);
    }
    Ok(Data::concat(imp, &rows, 0)?.val())
}

/// Zeros before and after each dimension.
fn padded(imp: &mut Importer, data: &Data, pads: &[(Expr, Expr)]) -> Result<Data> {
    super::pad::constant(imp, data, pads, Scalar::Int(0))
}

/// Each tensor padded with zeros so that `num_chunks` divides it along `dim`, cut into chunks, the rest flattened, and put together:
/// [..., num_chunks, sum of the chunks' elements].
fn chunk_cat(imp: &mut Importer, a: &Args) -> Result<Val> {
    let all = promoted(imp, a, "tensors")?;
    let (dim, chunks) = (a.int("dim")?, a.int("num_chunks")?);
    let mut parts = Vec::new();
    let mut at = 0;
    for data in &all {
        at = imp.dim(a, dim, data.rank())?;
        let size = data.shape[at].ceil_div(&Expr::int(chunks)).simplify(imp.b.ranges());
        let mut pads = vec![(Expr::int(0), Expr::int(0)); data.rank()];
        pads[at].1 = &(&size * chunks) - &data.shape[at];
        let whole = padded(imp, data, &pads)?;
        let mut shape = data.shape[..at].to_vec();
        shape.push(Expr::int(chunks));
        shape.push(&size * &Expr::product(&data.shape[at + 1..]));
        parts.push(whole.reshape(imp, shape)?);
    }
    Ok(Data::concat(imp, &parts, at + 1)?.val())
}

/// Sequences of different lengths, [length, ...] each, filled up to the longest and stacked: [longest, sequences, ...], or the first two
/// dimensions turned.
fn pad_sequence(imp: &mut Importer, a: &Args) -> Result<Val> {
    let all = promoted(imp, a, "sequences")?;
    let lengths = all.iter().map(|d| d.shape.first().cloned().ok_or_else(|| a.wrong("sequences", "of rank 1 or more")));
    let lengths: Vec<Expr> = lengths.collect::<Result<_>>()?;
    let longest =
        lengths.iter().skip(1).fold(lengths.first().cloned().unwrap_or_else(|| Expr::int(0)), |m, n| m.maximum(n));
    let longest = longest.simplify(imp.b.ranges());
    let fill = a.scalar_or("padding_value", Scalar::Int(0))?;
    let left = a.str_or("padding_side", "right")? == "left";
    let dim = usize::from(!a.bool_or("batch_first", false)?);
    let mut rows = Vec::new();
    for (data, length) in all.iter().zip(&lengths) {
        let missing = (&longest - length).simplify(imp.b.ranges());
        let mut pads = vec![(Expr::int(0), Expr::int(0)); data.rank()];
        pads[0] = if left { (missing, Expr::int(0)) } else { (Expr::int(0), missing) };
        let mut whole = super::pad::constant(imp, data, &pads, fill)?;
        whole.shape[0] = longest.clone();
        rows.push(whole.unsqueeze(imp, dim)?);
    }
    Ok(Data::concat(imp, &rows, dim)?.val())
}

/// All combinations of one element of each vector, the last changing fastest: [product of the lengths, number of vectors].
fn cartesian_prod(imp: &mut Importer, a: &Args) -> Result<Val> {
    let all = promoted(imp, a, "tensors")?;
    if let [one] = all.as_slice() {
        return Ok(one.clone().val());
    }
    let sizes: Vec<Expr> = all.iter().map(Data::numel).collect();
    let mut columns = Vec::new();
    for (d, data) in all.iter().enumerate() {
        let grid = data.remap(imp, sizes.clone(), vec![Expr::loop_var(d)])?;
        let flat = grid.flat(imp)?;
        columns.push(flat.unsqueeze(imp, 1)?);
    }
    Ok(Data::concat(imp, &columns, 1)?.val())
}

/// Combinations of a number of elements known only at run time: of all rows of `r` places, those in order.
fn chosen_of_all(imp: &mut Importer, data: &Data, r: usize, repeats: bool) -> Result<Val> {
    if r == 0 {
        return Ok(Data::full(imp, data.dtype, vec![Expr::int(0)], Scalar::Int(0))?.val());
    }
    let compare = if repeats { Compare::Le } else { Compare::Lt };
    let ordered = |d: usize| Cond::compare(compare, &Expr::loop_var(d - 1), &Expr::loop_var(d));
    let guard = (1..r).fold(Cond::Bool(true), |all, d| all.and(&ordered(d)));
    let yes = imp.b.full(DType::Bool, vec![], Scalar::Bool(true));
    let mask = imp.b.move_(yes, &[], vec![data.numel(); r], vec![], guard, Scalar::Bool(false))?;
    let (found, count) = imp.nonzero(mask)?;
    let shape = vec![count, Expr::int(r as i64)];
    let at = Expr::symbol(Symbol::Value(0));
    Ok(data.moved(imp, &[found], shape, vec![at], Cond::Bool(true), Scalar::Int(0))?.val())
}

/// Rows of `r` elements in index order, each index greater than the one before (or equal, with replacement).
fn combinations(imp: &mut Importer, a: &Args) -> Result<Val> {
    const MOST: usize = 1 << 16;
    let data = imp.data(a, "self")?;
    let (r, repeats) = (a.int_or("r", 2)?, a.bool_or("with_replacement", false)?);
    let r = usize::try_from(r).map_err(|_| Error::invalid_program("combinations of a negative number of elements"))?;
    let Some(n) = data.numel().as_int() else { return chosen_of_all(imp, &data, r, repeats) };
    let mut rows: Vec<Vec<i64>> = vec![vec![]];
    for _ in 0..r {
        let mut longer = Vec::new();
        for row in &rows {
            let first = row.last().map_or(0, |last| if repeats { *last } else { last + 1 });
            longer.extend((first..n).map(|i| [row.as_slice(), &[i]].concat()));
        }
        rows = longer;
        if rows.len() > MOST {
            return Err(a.unsupported("more than 65536 combinations"));
        }
    }
    if r == 0 {
        return Ok(Data::full(imp, data.dtype, vec![Expr::int(0)], Scalar::Int(0))?.val());
    }
    let shape = vec![Expr::int(rows.len() as i64), Expr::int(r as i64)];
    if rows.is_empty() {
        return Ok(Data::full(imp, data.dtype, shape, Scalar::Int(0))?.val());
    }
    let bytes: Vec<u8> = rows.iter().flatten().flat_map(|i| i.to_le_bytes()).collect();
    let index = imp.literal(DType::I64, shape.clone(), bytes);
    let at = Expr::symbol(Symbol::Value(0));
    Ok(data.moved(imp, &[index], shape, vec![at], Cond::Bool(true), Scalar::Int(0))?.val())
}
