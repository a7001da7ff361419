//! Results whose size comes from data: places of true elements, unique elements, repetitions by counts.

use douse_core::pointwise::{Binary, Combine, Unary};
use douse_core::sym::{Compare, Cond, Expr};
use douse_core::{DType, Error, Result, Scalar};
use douse_ir::{Value, coordinates};

use super::args::{Args, Val};
use super::data::Data;
use super::host::read;
use super::importer::{Importer, Row};
use super::index::{checked, element};
use super::search::read_size;
use super::sort::{run_starts, sorted};

pub const ROWS: &[Row] = &[
    ("aten.nonzero.default", nonzero),
    ("aten.argwhere.default", nonzero),
    ("aten.nonzero_numpy.default", nonzero_numpy),
    ("aten.where.default", nonzero_numpy),
    ("aten.nonzero_static.default", nonzero_static),
    ("aten._unique.default", unique),
    ("aten._unique2.default", unique),
    ("aten.unique_consecutive.default", unique_consecutive),
    ("aten.unique_dim.default", unique_dim),
    ("aten.unique_dim_consecutive.default", unique_consecutive),
    ("aten.repeat_interleave.Tensor", repeat_indices),
    ("aten.repeat_interleave.self_Tensor", repeat_by_counts),
    ("aten.one_hot.default", one_hot),
    ("aten.tensor_split.tensor_indices_or_sections", split_at_values),
];

/// Whether elements are not zero; a complex one is where a part is.
fn truth(imp: &mut Importer, a: &Args) -> Result<Value> {
    let data = imp.data(a, "self")?;
    if !data.is_complex() {
        return Ok(imp.b.cast(data.value, DType::Bool));
    }
    let parts = imp.b.cast(data.value, DType::Bool);
    imp.b.reduce(Combine::Or, parts, &[data.rank()])
}

fn nonzero(imp: &mut Importer, a: &Args) -> Result<Val> {
    let mask = truth(imp, a)?;
    Ok(imp.nonzero(mask)?.0.into())
}

/// The coordinates of each dimension by itself; a number counts as one dimension.
fn nonzero_numpy(imp: &mut Importer, a: &Args) -> Result<Val> {
    let mask = if a.has("condition") {
        let condition = imp.value(a, "condition")?;
        imp.b.cast(condition, DType::Bool)
    } else {
        truth(imp, a)?
    };
    let mask = super::index::raised(imp, mask)?;
    let (found, _) = imp.nonzero(mask)?;
    let rank = imp.b.rank(mask);
    let columns: Result<Vec<Value>> = (0..rank).map(|d| imp.b.select_index(found, 1, &Expr::int(d as i64))).collect();
    Ok(columns?.into())
}

/// The first `size` coordinates, `fill_value` where there are fewer: no count is read.
fn nonzero_static(imp: &mut Importer, a: &Args) -> Result<Val> {
    let mask = truth(imp, a)?;
    let (rank, total) = (imp.b.rank(mask), imp.b.numel(mask));
    let (size, fill) = (a.expr("size")?, a.int_or("fill_value", -1)?);
    let shape = imp.b.shape(mask).to_vec();
    let columns = Expr::int(rank as i64);
    if rank == 0 {
        return Ok(imp.b.full(DType::I64, vec![size, columns], Scalar::Int(0)).into());
    }
    let flat = imp.b.reshape(mask, vec![total])?;
    let ones = imp.b.cast(flat, DType::I64);
    let before = imp.b.scan(Combine::Sum, ones, 0)?;
    let place = imp.b.binary_scalar(Binary::Sub, before, Scalar::Int(1))?;
    let room = imp.b.size_value(size.clone());
    // Elements that are false or past the room go to one row more, which is cut off.
    let fits = imp.b.binary(Binary::Lt, place, room)?;
    let kept = imp.b.binary(Binary::And, flat, fits)?;
    let row = imp.b.select(kept, place, room)?;
    let row = imp.b.reshape(row, shape.clone())?;
    let mut wide = shape.clone();
    wide.push(columns.clone());
    let row = imp.b.remap(row, wide.clone(), coordinates(rank))?;
    let mut parts = Vec::new();
    for d in 0..rank {
        let at = imp.b.iota(shape.clone(), Expr::loop_var(d));
        parts.push(imp.b.unsqueeze(at, rank)?);
    }
    let at = imp.b.concat(&parts, rank)?;
    let base = imp.b.full(DType::I64, vec![&size + 1, columns], Scalar::Int(fill));
    let out = imp.b.scatter(base, at, &[row], vec![element(0), Expr::loop_var(rank)], None)?;
    Ok(imp.b.slice(out, 0, &Expr::int(0), &Expr::int(1), size)?.into())
}

/// Which of a sequence's elements stay, and of which of these each one is.
struct Groups {
    /// The places of the elements that stay, [count].
    first: Value,
    count: Expr,
    /// For each element the number of its group, [n].
    group: Value,
    n: Expr,
}

impl Groups {
    /// By a bool [n]: where a group starts.
    fn of(imp: &mut Importer, starts: Value) -> Result<Groups> {
        let n = imp.b.numel(starts);
        let (found, count) = imp.nonzero(starts)?;
        let first = imp.b.select_index(found, 1, &Expr::int(0))?;
        let ones = imp.b.cast(starts, DType::I64);
        let number = imp.b.scan(Combine::Sum, ones, 0)?;
        let group = imp.b.binary_scalar(Binary::Sub, number, Scalar::Int(1))?;
        Ok(Groups { first, count, group, n })
    }

    /// How many elements each group has.
    fn counts(&self, imp: &mut Importer) -> Result<Value> {
        // The next group's first place, the end for the last.
        let shape = vec![self.count.clone()];
        let map = vec![(&Expr::loop_var(0) + 1).minimum(&(&self.count - 1))];
        let after = imp.b.remap(self.first, shape.clone(), map)?;
        let place = imp.b.iota(shape, Expr::loop_var(0));
        let last = imp.b.size_value(&self.count - 1);
        let is_last = imp.b.binary(Binary::Eq, place, last)?;
        let end = imp.b.size_value(self.n.clone());
        let after = imp.b.select(is_last, end, after)?;
        imp.b.binary(Binary::Sub, after, self.first)
    }
}

fn empty(imp: &mut Importer) -> Value {
    imp.b.full(DType::I64, vec![Expr::int(0)], Scalar::Int(0))
}

/// The sorted values that occur, the number of each element's among them, and how often each occurs. NaN is different from NaN.
fn unique(imp: &mut Importer, a: &Args) -> Result<Val> {
    let x = imp.value(a, "self")?;
    let (shape, n) = (imp.b.shape(x).to_vec(), imp.b.numel(x));
    let flat = imp.b.reshape(x, vec![n.clone()])?;
    let (values, from) = sorted(imp, flat, false);
    let starts = run_starts(imp, values)?;
    let groups = Groups::of(imp, starts)?;
    let out = imp.b.take(values, 0, groups.first)?;
    let wants_inverse = a.bool_or("return_inverse", false)? || !a.target.contains("unique2");
    let inverse = match wants_inverse && (a.has("return_inverse") || a.target.contains("unique2")) {
        true => {
            let base = imp.b.full(DType::I64, vec![n], Scalar::Int(0));
            let inverse = imp.b.scatter(base, groups.group, &[from], vec![element(0)], None)?;
            imp.b.reshape(inverse, shape)?
        }
        false => empty(imp),
    };
    let mut results = vec![out, inverse];
    if a.target.contains("unique2") {
        results.push(if a.bool_or("return_counts", false)? { groups.counts(imp)? } else { empty(imp) });
    }
    Ok(results.into())
}

/// Elements, or slices of a dimension, that differ from the one before.
fn unique_consecutive(imp: &mut Importer, a: &Args) -> Result<Val> {
    let x = imp.value(a, "self")?;
    let shape = imp.b.shape(x).to_vec();
    let (starts, rows, dim) = match a.opt_int("dim")? {
        Some(dim) => {
            // PyTorch takes the result's other sizes from slices that a negative dimension makes too long.
            imp.misdescribed = dim < 0;
            let dim = imp.dim(a, dim, shape.len())?;
            let x = super::index::raised(imp, x)?;
            let first = imp.b.transpose(x, 0, dim)?;
            (slice_starts(imp, first)?, x, dim)
        }
        None => {
            let n = imp.b.numel(x);
            let flat = imp.b.reshape(x, vec![n])?;
            (run_starts(imp, flat)?, flat, 0)
        }
    };
    let groups = Groups::of(imp, starts)?;
    let out = imp.b.take(rows, dim, groups.first)?;
    // By dimension, all three are always there.
    let by_dim = a.has("dim");
    let inverse = match by_dim || a.bool_or("return_inverse", false)? {
        true if by_dim => groups.group,
        true => imp.b.reshape(groups.group, shape)?,
        false => empty(imp),
    };
    let counts = match by_dim || a.bool_or("return_counts", false)? {
        true => groups.counts(imp)?,
        false => empty(imp),
    };
    Ok(vec![out, inverse, counts].into())
}

/// Whether slice i of the first dimension differs from the one before it; the first does. [n]
fn slice_starts(imp: &mut Importer, x: Value) -> Result<Value> {
    let shape = imp.b.shape(x).to_vec();
    let mut map = coordinates(shape.len());
    map[0] = (&map[0] - 1).maximum(&Expr::int(0));
    let before = imp.b.remap(x, shape.clone(), map)?;
    let differs = imp.b.binary(Binary::Ne, x, before)?;
    let rest: Vec<usize> = (1..shape.len()).collect();
    let any = imp.b.reduce(Combine::Or, differs, &rest)?;
    let inner = Cond::compare(Compare::Gt, &Expr::loop_var(0), &Expr::int(0));
    imp.b.move_(any, &[], vec![shape[0].clone()], coordinates(1), inner, Scalar::Bool(true))
}

/// Slices of up to this many elements are sorted by one element after the other; longer ones are compared with each other.
const KEYS: i64 = 256;

/// The order of rows [n, keys]: sorted by the last element, then, stably, by the one before, and so on. Int64 [n].
fn order_by_keys(imp: &mut Importer, rows: Value, keys: i64) -> Result<Value> {
    let n = imp.b.shape(rows)[0].clone();
    let mut from = imp.b.iota(vec![n], Expr::loop_var(0));
    for key in (0..keys).rev() {
        let column = imp.b.select_index(rows, 1, &Expr::int(key))?;
        let column = imp.b.take(column, 0, from)?;
        let (_, at) = sorted(imp, column, false);
        from = imp.b.take(from, 0, at)?;
    }
    Ok(from)
}

/// The same, for any number of keys: a row's place is the number of rows that come before it, which the first element that differs
/// decides, or their order where none does.
fn order_by_pairs(imp: &mut Importer, rows: Value) -> Result<Value> {
    let (n, keys) = (imp.b.shape(rows)[0].clone(), imp.b.shape(rows)[1].clone());
    let cube = vec![n.clone(), n.clone(), keys.clone()];
    let own = imp.b.remap(rows, cube.clone(), vec![Expr::loop_var(0), Expr::loop_var(2)])?;
    let other = imp.b.remap(rows, cube, vec![Expr::loop_var(1), Expr::loop_var(2)])?;
    let differs = imp.b.binary(Binary::Ne, own, other)?;
    let differs = imp.b.cast(differs, DType::I64);
    let (any, at) = imp.b.arg_reduce(true, differs, &[2])?;
    let square = vec![n.clone(), n.clone()];
    // Of rows without elements nothing is read.
    let inside = Cond::compare(Compare::Lt, &element(0), &keys);
    let pick = |imp: &mut Importer, dim: usize| {
        let map = vec![Expr::loop_var(dim), element(0)];
        imp.b.move_(rows, &[at], square.clone(), map, inside.clone(), Scalar::Int(0))
    };
    let (own, other) = (pick(imp, 0)?, pick(imp, 1)?);
    let mut smaller = imp.b.binary(Binary::Lt, other, own)?;
    let mut decided = imp.b.binary_scalar(Binary::Gt, any, Scalar::Int(0))?;
    if imp.b.dtype(rows).is_float() {
        // NaN is the largest; two NaNs decide nothing.
        let (own, other) = (imp.b.unary(Unary::IsNan, own)?, imp.b.unary(Unary::IsNan, other)?);
        let less = imp.b.binary(Binary::Lt, other, own)?;
        smaller = imp.b.binary(Binary::Or, smaller, less)?;
        let both = imp.b.binary(Binary::And, own, other)?;
        let one = imp.b.unary(Unary::Not, both)?;
        decided = imp.b.binary(Binary::And, decided, one)?;
    }
    let own = imp.b.iota(square.clone(), Expr::loop_var(0));
    let other = imp.b.iota(square, Expr::loop_var(1));
    let earlier = imp.b.binary(Binary::Lt, other, own)?;
    let before = imp.b.select(decided, smaller, earlier)?;
    let before = imp.b.cast(before, DType::I64);
    let place = imp.b.reduce(Combine::Sum, before, &[1])?;
    let base = imp.b.full(DType::I64, vec![n.clone()], Scalar::Int(0));
    let number = imp.b.iota(vec![n], Expr::loop_var(0));
    imp.b.scatter(base, number, &[place], vec![element(0)], None)
}

/// The sorted slices of a dimension that occur. Slices are compared element by element.
fn unique_dim(imp: &mut Importer, a: &Args) -> Result<Val> {
    let x = imp.value(a, "self")?;
    let x = super::index::raised(imp, x)?;
    let dim = imp.dim(a, a.int("dim")?, imp.b.rank(x))?;
    let first = imp.b.transpose(x, 0, dim)?;
    let shape = imp.b.shape(first).to_vec();
    let n = shape[0].clone();
    let keys = Expr::product(&shape[1..]);
    // Elements in PyTorch's order: the dimension in front of the others, which keep theirs.
    let mut order: Vec<usize> = (0..imp.b.rank(x)).filter(|d| *d != dim).collect();
    order.insert(0, dim);
    let rows = imp.b.permute(x, &order)?;
    let rows = imp.b.reshape(rows, vec![n.clone(), keys.clone()])?;
    let from = match keys.as_int().filter(|k| *k <= KEYS) {
        Some(keys) => order_by_keys(imp, rows, keys)?,
        None => order_by_pairs(imp, rows)?,
    };
    let ordered = imp.b.take(rows, 0, from)?;
    let starts = slice_starts(imp, ordered)?;
    let groups = Groups::of(imp, starts)?;
    let picked = imp.b.take(from, 0, groups.first)?;
    let out = imp.b.take(x, dim, picked)?;
    let base = imp.b.full(DType::I64, vec![n], Scalar::Int(0));
    let inverse = imp.b.scatter(base, groups.group, &[from], vec![element(0)], None)?;
    let counts = groups.counts(imp)?;
    Ok(vec![out, inverse, counts].into())
}

/// How often each index is repeated gives the row: [sum of the counts].
fn indices_of(imp: &mut Importer, a: &Args, counts: Value) -> Result<Value> {
    let counts = imp.b.cast(counts, DType::I64);
    let ends = imp.b.scan(Combine::Sum, counts, 0)?;
    let total = match a.opt_expr("output_size")? {
        Some(size) => size,
        None => {
            let total = imp.b.reduce(Combine::Sum, counts, &[0])?;
            read_size(imp, total, "repeated", 0)?
        }
    };
    let place = imp.b.iota(vec![total], Expr::loop_var(0));
    imp.b.search_sorted(ends, place, true)
}

fn repeat_indices(imp: &mut Importer, a: &Args) -> Result<Val> {
    let counts = imp.value(a, "repeats")?;
    Ok(indices_of(imp, a, counts)?.into())
}

/// Each slice of a dimension (or element of all) as often as its count says; one count counts for all.
fn repeat_by_counts(imp: &mut Importer, a: &Args) -> Result<Val> {
    let mut data = imp.data(a, "self")?;
    let dim = match a.opt_int("dim")? {
        Some(dim) => {
            data = data.raised(imp)?;
            imp.dim(a, dim, data.rank())?
        }
        None => {
            data = data.flat(imp)?;
            0
        }
    };
    let counts = imp.value(a, "repeats")?;
    let counts = super::index::raised(imp, counts)?;
    let size = data.shape[dim].clone();
    if imp.b.rank(counts) != 1 {
        return Err(Error::invalid_program("repeat_interleave: repeats has more than one dimension"));
    }
    let counts = imp.b.expand(counts, vec![size.clone()])?;
    let index = indices_of(imp, a, counts)?;
    let total = imp.b.numel(index);
    let mut shape = data.shape.clone();
    shape[dim] = total;
    let index = checked(imp, a, index, &size, false)?;
    let index = imp.b.remap(index, shape.clone(), vec![Expr::loop_var(dim)])?;
    let mut map = coordinates(data.rank());
    map[dim] = element(0);
    let out: Data = data.moved(imp, &[index], shape, map, Cond::Bool(true), Scalar::Int(0))?;
    Ok(out.val())
}

/// A last dimension with 1 at the place that the element says, else 0.
fn one_hot(imp: &mut Importer, a: &Args) -> Result<Val> {
    let x = imp.value(a, "self")?;
    let x = imp.b.cast(x, DType::I64);
    let classes = match a.opt_int("num_classes")? {
        Some(n) if n >= 0 => Expr::int(n),
        _ => {
            let dims: Vec<usize> = (0..imp.b.rank(x)).collect();
            let largest = imp.b.reduce(Combine::Max, x, &dims)?;
            let count = imp.b.binary_scalar(Binary::Add, largest, Scalar::Int(1))?;
            read_size(imp, count, "classes", 0)?
        }
    };
    let x = checked(imp, a, x, &classes, false)?;
    let rank = imp.b.rank(x);
    let mut shape = imp.b.shape(x).to_vec();
    shape.push(classes);
    let place = imp.b.iota(shape.clone(), Expr::loop_var(rank));
    let x = imp.b.remap(x, shape, coordinates(rank))?;
    let hit = imp.b.binary(Binary::Eq, place, x)?;
    Ok(imp.b.cast(hit, DType::I64).into())
}

/// Pieces between indices that a tensor holds.
fn split_at_values(imp: &mut Importer, a: &Args) -> Result<Val> {
    let indices = imp.value(a, "tensor_indices_or_sections")?;
    let count = match imp.b.shape(indices) {
        [count] => count.as_int(),
        _ => None,
    };
    let count = count.ok_or_else(|| a.unsupported("a number of pieces known only at run time"))?;
    let mut list = Vec::new();
    for i in 0..count {
        let index = imp.b.select_index(indices, 0, &Expr::int(i))?;
        let index = imp.b.cast(index, DType::I64);
        list.push(Val::Int(read(imp, index)?));
    }
    let mut values: Vec<(String, Val)> = a.values.iter().filter(|(n, _)| n == "self" || n == "dim").cloned().collect();
    values.push(("indices".to_string(), Val::List(list)));
    imp.call(&Args { target: "aten.tensor_split.indices".to_string(), values })
}
