//! Search in sorted sequences, membership, counts of values in bins.

use douse_core::pointwise::{Binary, Combine, Unary};
use douse_core::sym::{Expr, Symbol};
use douse_core::{DType, Error, Result, Scalar};
use douse_ir::Value;

use super::args::{Args, Val};
use super::importer::{Importer, Row};
use super::index::{checked, element};
use super::promote::{ResultType, promote_types};
use super::sort::sorted;

pub const ROWS: &[Row] = &[
    ("aten.searchsorted.Tensor", |i, a| search_sorted(i, a, "sorted_sequence")),
    ("aten.searchsorted.Scalar", |i, a| search_sorted(i, a, "sorted_sequence")),
    ("aten.bucketize.Tensor", |i, a| search_sorted(i, a, "boundaries")),
    ("aten.bucketize.Scalar", |i, a| search_sorted(i, a, "boundaries")),
    ("aten.isin.Tensor_Tensor", is_in),
    ("aten.isin.Tensor_Scalar", is_in),
    ("aten.isin.Scalar_Tensor", is_in),
    ("aten.bincount.default", bin_count),
    ("aten.histc.default", histc),
    ("aten.histogram.bin_ct", histogram),
    ("aten.histogram.bins_tensor", histogram),
    ("aten.histogramdd.default", histogram_dd),
    ("aten.histogramdd.int_bins", histogram_dd),
    ("aten.histogramdd.TensorList_bins", histogram_dd),
];

/// A value or sequence of bools or numbers, as numbers.
fn as_number(imp: &mut Importer, x: Value) -> Value {
    if imp.b.dtype(x).is_bool() { imp.b.cast(x, DType::U8) } else { x }
}

/// Where each value could be inserted; after equals with `right`. Values and sequence are compared in their common dtype.
fn search_sorted(imp: &mut Importer, a: &Args, sequence: &str) -> Result<Val> {
    let mut sequence = imp.value(a, sequence)?;
    if let Some(sorter) = imp.opt_value(a, "sorter")? {
        let last = imp.b.rank(sequence).checked_sub(1).ok_or_else(|| a.wrong("sorted_sequence", "a sequence"))?;
        let size = imp.b.shape(sequence)[last].clone();
        let sorter = checked(imp, a, sorter, &size, false)?;
        sequence = imp.b.gather(sequence, last, sorter)?;
    }
    let mut kind = ResultType::default();
    kind.tensor(imp.b.dtype(sequence), imp.b.rank(sequence));
    let values = match a.get("self") {
        Some(Val::Tensor(_)) => {
            let values = imp.value(a, "self")?;
            // Two tensors meet in the dtype both promote to, whatever their ranks.
            kind = ResultType::default();
            kind.tensor(promote_types(imp.b.dtype(sequence), imp.b.dtype(values)), 1);
            values
        }
        _ => {
            let scalar = a.scalar("self")?;
            kind.number(scalar);
            imp.operand(a, "self", kind.dtype())?
        }
    };
    let dtype = kind.dtype();
    let (sequence, values) = (imp.b.cast(sequence, dtype), imp.b.cast(values, dtype));
    let (sequence, values) = (as_number(imp, sequence), as_number(imp, values));
    let right = a.bool_or("right", false)? || a.str_or("side", "left")? == "right";
    let at = imp.b.search_sorted(sequence, values, right)?;
    let int32 = a.bool_or("out_int32", false)?;
    Ok(imp.b.cast(at, if int32 { DType::I32 } else { DType::I64 }).into())
}

/// Up to this many test elements are compared one by one.
const FEW: i64 = 32;

/// Whether each element is equal to one of the test elements; NaN equals nothing.
fn is_in(imp: &mut Importer, a: &Args) -> Result<Val> {
    let name = |tensor: &'static str, scalar: &'static str| if a.has(tensor) { tensor } else { scalar };
    let (elements, tests) = (name("elements", "element"), name("test_elements", "test_element"));
    let dtype = imp.result_type(a, &[elements, tests])?;
    let (x, tests) = (imp.operand(a, elements, dtype)?, imp.operand(a, tests, dtype)?);
    let (x, tests) = (as_number(imp, x), as_number(imp, tests));
    let count = imp.b.numel(tests);
    let tests = imp.b.reshape(tests, vec![count.clone()])?;
    let many = count.as_int().is_some_and(|n| n > FEW);
    let found = if many {
        let (mut tests, _) = sorted(imp, tests, false);
        if imp.b.dtype(tests).is_float() {
            // NaNs equal nothing and would lead the search astray: the smallest number stands for them.
            let smallest = imp.b.select_index(tests, 0, &Expr::int(0))?;
            let nan = imp.b.unary(Unary::IsNan, tests)?;
            let numbers = imp.b.select(nan, smallest, tests)?;
            (tests, _) = sorted(imp, numbers, false);
        }
        let at = imp.b.search_sorted(tests, x, false)?;
        let at = imp.b.binary_scalar(Binary::Minimum, at, Scalar::Int(count.constant() - 1))?;
        let near = imp.b.take(tests, 0, at)?;
        imp.b.binary(Binary::Eq, near, x)?
    } else {
        let rank = imp.b.rank(x);
        let wide = imp.b.unsqueeze(x, rank)?;
        let equal = imp.b.binary(Binary::Eq, wide, tests)?;
        imp.b.reduce(Combine::Or, equal, &[rank])?
    };
    let invert = a.bool_or("invert", false)?;
    Ok(if invert { imp.b.unary(Unary::Not, found)? } else { found }.into())
}

/// A 0-d int64 value as a symbol that is known to be at least `min`.
pub fn read_size(imp: &mut Importer, value: Value, name: &str, min: i64) -> Result<Expr> {
    let name = format!("{name}_{}", imp.b.module.symbols.len());
    let symbol = imp.b.new_symbol(&name, Some(min), None, None);
    imp.b.item(value, symbol)?;
    Ok(Expr::symbol(Symbol::Size(symbol)))
}

/// How often each number from 0 occurs, or the sum of its weights.
fn bin_count(imp: &mut Importer, a: &Args) -> Result<Val> {
    let x = imp.value(a, "self")?;
    let x = imp.b.cast(x, DType::I64);
    let weights = imp.opt_value(a, "weights")?;
    let least = a.int_or("minlength", 0)?;
    // The size is one more than the largest; of no number, the least there may be.
    let largest = imp.b.reduce(Combine::Max, x, &[0])?;
    let floor = imp.b.full(DType::I64, vec![], Scalar::Int(least - 1));
    let largest = imp.b.binary(Binary::Maximum, largest, floor)?;
    let size = imp.b.binary_scalar(Binary::Add, largest, Scalar::Int(1))?;
    let size = read_size(imp, size, "bins", least.max(0))?;
    let at = checked(imp, a, x, &size, false)?;
    let (dtype, source) = match weights {
        None => (DType::I64, imp.b.full_like(x, Scalar::Int(1))),
        Some(w) => {
            let dtype = if imp.b.dtype(w) == DType::F32 { DType::F32 } else { DType::F64 };
            (dtype, imp.b.cast(w, dtype))
        }
    };
    let base = imp.b.full(dtype, vec![size], Scalar::Int(0));
    Ok(imp.b.scatter(base, source, &[at], vec![element(0)], Some(Combine::Sum))?.into())
}

/// The number of values that fall into each bin: `source` added at bins, where these are not negative.
fn into_bins(imp: &mut Importer, at: Value, inside: Value, source: Value, bins: i64) -> Result<Value> {
    // What is outside goes to one place more, which is cut off.
    let rest = imp.b.full_like(at, Scalar::Int(bins));
    let at = imp.b.select(inside, at, rest)?;
    let base = imp.b.full(imp.b.dtype(source), vec![Expr::int(bins + 1)], Scalar::Int(0));
    let counts = imp.b.scatter(base, source, &[at], vec![element(0)], Some(Combine::Sum))?;
    imp.b.slice(counts, 0, &Expr::int(0), &Expr::int(1), Expr::int(bins))
}

/// The ends of a range given by numbers, or else of the data, 0 and 1 for none; an empty range grows by `apart` at each end. 0-d.
fn range_of(imp: &mut Importer, x: Value, given: Option<(f64, f64)>, apart: f64) -> Result<(Value, Value)> {
    let dtype = imp.b.dtype(x);
    let (low, high) = match given {
        Some((low, high)) => {
            let low = imp.b.full(dtype, vec![], Scalar::Float(low));
            (low, imp.b.full(dtype, vec![], Scalar::Float(high)))
        }
        None if imp.b.numel(x).is_int(0) => {
            let zero = imp.b.full(dtype, vec![], Scalar::Int(0));
            (zero, imp.b.full(dtype, vec![], Scalar::Int(1)))
        }
        None => {
            let low = imp.b.reduce(Combine::Min, x, &[0])?;
            let high = imp.b.reduce(Combine::Max, x, &[0])?;
            let (low, high) = unless_empty(imp, x, low, high)?;
            let width = imp.b.binary(Binary::Sub, high, low)?;
            // Neither infinite nor NaN: then the difference to itself is 0.
            let none = imp.b.binary(Binary::Sub, width, width)?;
            let finite = imp.b.binary_scalar(Binary::Eq, none, Scalar::Int(0))?;
            let text = format!("the range of a histogram is not finite ({})", imp.place);
            imp.b.assert(finite, text)?;
            (low, high)
        }
    };
    let empty = imp.b.binary(Binary::Eq, low, high)?;
    let lower = imp.b.binary_scalar(Binary::Sub, low, Scalar::Float(apart))?;
    let higher = imp.b.binary_scalar(Binary::Add, high, Scalar::Float(apart))?;
    Ok((imp.b.select(empty, lower, low)?, imp.b.select(empty, higher, high)?))
}

/// The extremes of a vector; 0 and 1 where it is found to be empty when running.
fn unless_empty(imp: &mut Importer, x: Value, low: Value, high: Value) -> Result<(Value, Value)> {
    let numel = imp.b.numel(x);
    if imp.b.ranges().min(&numel).is_some_and(|n| n > 0) {
        return Ok((low, high));
    }
    let numel = imp.b.size_value(numel);
    let some = imp.b.cast(numel, DType::Bool);
    let (zero, one) = (imp.b.full_like(low, Scalar::Int(0)), imp.b.full_like(high, Scalar::Int(1)));
    Ok((imp.b.select(some, low, zero)?, imp.b.select(some, high, one)?))
}

/// Whether values lie between two ends, both included.
fn within(imp: &mut Importer, x: Value, low: Value, high: Value) -> Result<Value> {
    let above = imp.b.binary(Binary::Ge, x, low)?;
    let below = imp.b.binary(Binary::Le, x, high)?;
    imp.b.binary(Binary::And, above, below)
}

/// Counts in equal bins between `min` and `max`, in the tensor's own dtype. The last bin includes its end.
fn histc(imp: &mut Importer, a: &Args) -> Result<Val> {
    let x = imp.value(a, "self")?;
    let dtype = imp.b.dtype(x);
    if !dtype.is_float() {
        return Err(a.unsupported(format!("a histogram of {dtype}")));
    }
    let numel = imp.b.numel(x);
    let x = imp.b.reshape(x, vec![numel])?;
    let bins = a.int_or("bins", 100)?;
    let (min, max) = (a.float_or("min", 0.0)?, a.float_or("max", 0.0)?);
    let (low, high) = range_of(imp, x, (min != max).then_some((min, max)), 1.0)?;
    let from_low = imp.b.binary(Binary::Sub, x, low)?;
    let scaled = imp.b.binary_scalar(Binary::Mul, from_low, Scalar::Int(bins))?;
    let width = imp.b.binary(Binary::Sub, high, low)?;
    let place = imp.b.binary(Binary::Div, scaled, width)?;
    let inside = within(imp, x, low, high)?;
    let zero = imp.b.full_like(place, Scalar::Int(0));
    let place = imp.b.select(inside, place, zero)?;
    let at = imp.b.cast(place, DType::I64);
    let at = imp.b.binary_scalar(Binary::Minimum, at, Scalar::Int(bins - 1))?;
    let wide = imp.compute_dtype(dtype);
    let ones = imp.b.full(wide, imp.b.shape(x).to_vec(), Scalar::Int(1));
    let counts = into_bins(imp, at, inside, ones, bins)?;
    Ok(imp.b.cast(counts, dtype).into())
}

/// `bins + 1` equally spaced edges, as `torch.linspace`: from both ends towards the middle.
fn edges(imp: &mut Importer, low: Value, high: Value, bins: i64) -> Result<Value> {
    let dtype = imp.b.dtype(low);
    let width = imp.b.binary(Binary::Sub, high, low)?;
    let step = imp.b.binary_scalar(Binary::Div, width, Scalar::Int(bins))?;
    let count = vec![Expr::int(bins + 1)];
    let up = imp.b.iota(count.clone(), Expr::loop_var(0));
    let down = imp.b.iota(count, &Expr::int(bins) - &Expr::loop_var(0));
    let (up_f, down_f) = (imp.b.cast(up, dtype), imp.b.cast(down, dtype));
    let forward = imp.b.binary(Binary::Mul, step, up_f)?;
    let forward = imp.b.binary(Binary::Add, low, forward)?;
    let backward = imp.b.binary(Binary::Mul, step, down_f)?;
    let backward = imp.b.binary(Binary::Sub, high, backward)?;
    let first_half = imp.b.binary_scalar(Binary::Lt, up, Scalar::Int((bins + 1) / 2))?;
    imp.b.select(first_half, forward, backward)
}

/// The bin of each value between sorted edges, and whether it is in one. The last bin includes its end.
fn bin_of(imp: &mut Importer, x: Value, edges: Value, bins: i64) -> Result<(Value, Value)> {
    let low = imp.b.select_index(edges, 0, &Expr::int(0))?;
    let high = imp.b.select_index(edges, 0, &Expr::int(bins))?;
    let inside = within(imp, x, low, high)?;
    let after = imp.b.search_sorted(edges, x, true)?;
    let at = imp.b.binary_scalar(Binary::Sub, after, Scalar::Int(1))?;
    Ok((imp.b.binary_scalar(Binary::Minimum, at, Scalar::Int(bins - 1))?, inside))
}

/// The edges of one dimension's bins: given, or equally spaced over a range.
enum Bins {
    Edges(Value),
    Count(i64),
}

/// Counts (or sums of weights) of points [n, d] in the bins of d dimensions, and the edges.
fn histogram_of(
    imp: &mut Importer,
    a: &Args,
    points: Value,
    bins: Vec<Bins>,
    weight: Option<Value>,
) -> Result<(Value, Vec<Value>)> {
    let dtype = imp.b.dtype(points);
    let n = imp.b.shape(points)[0].clone();
    let range = if a.has("range") { Some(a.floats("range")?) } else { None };
    let mut at = imp.b.full(DType::I64, vec![n.clone()], Scalar::Int(0));
    let mut inside = imp.b.full(DType::Bool, vec![n.clone()], Scalar::Bool(true));
    let (mut sizes, mut all_edges) = (Vec::new(), Vec::new());
    for (d, bins) in bins.into_iter().enumerate() {
        let x = imp.b.select_index(points, 1, &Expr::int(d as i64))?;
        let (edges, count) = match bins {
            Bins::Edges(edges) => {
                let count = imp.b.numel(edges).as_int().filter(|n| *n >= 2);
                let count = count.ok_or_else(|| a.unsupported("edges of a number known only at run time"))?;
                (edges, count - 1)
            }
            Bins::Count(count) => {
                let given = match &range {
                    Some(r) => match r.get(2 * d..2 * d + 2) {
                        Some([low, high]) => Some((*low, *high)),
                        _ => return Err(a.wrong("range", "two numbers for each dimension")),
                    },
                    None => None,
                };
                let (low, high) = range_of(imp, x, given, 0.5)?;
                (edges(imp, low, high, count)?, count)
            }
        };
        let (bin, within) = bin_of(imp, x, edges, count)?;
        let scaled = imp.b.binary_scalar(Binary::Mul, at, Scalar::Int(count))?;
        at = imp.b.binary(Binary::Add, scaled, bin)?;
        inside = imp.b.binary(Binary::And, inside, within)?;
        sizes.push(Expr::int(count));
        all_edges.push(edges);
    }
    let source = match weight {
        Some(w) => {
            let w = imp.b.cast(w, dtype);
            imp.b.reshape(w, vec![n])?
        }
        None => imp.b.full(dtype, vec![n], Scalar::Int(1)),
    };
    let total = Expr::product(&sizes).as_int().ok_or_else(|| Error::internal("bins without a number"))?;
    let counts = into_bins(imp, at, inside, source, total)?;
    let mut counts = imp.b.reshape(counts, sizes.clone())?;
    if a.bool_or("density", false)? {
        let dims: Vec<usize> = (0..sizes.len()).collect();
        let sum = imp.b.reduce(Combine::Sum, counts, &dims)?;
        counts = imp.b.binary(Binary::Div, counts, sum)?;
        for (d, edges) in all_edges.iter().enumerate() {
            let next = imp.b.slice(*edges, 0, &Expr::int(1), &Expr::int(1), sizes[d].clone())?;
            let own = imp.b.slice(*edges, 0, &Expr::int(0), &Expr::int(1), sizes[d].clone())?;
            let width = imp.b.binary(Binary::Sub, next, own)?;
            let width = imp.b.remap(width, sizes.clone(), vec![Expr::loop_var(d)])?;
            counts = imp.b.binary(Binary::Div, counts, width)?;
        }
    }
    Ok((counts, all_edges))
}

fn histogram(imp: &mut Importer, a: &Args) -> Result<Val> {
    let x = imp.value(a, "self")?;
    let numel = imp.b.numel(x);
    let points = imp.b.reshape(x, vec![numel, Expr::int(1)])?;
    let weight = imp.opt_value(a, "weight")?;
    let bins = match a.get("bins") {
        Some(Val::Tensor(_)) => Bins::Edges(imp.value(a, "bins")?),
        _ => Bins::Count(a.int_or("bins", 100)?),
    };
    let (counts, edges) = histogram_of(imp, a, points, vec![bins], weight)?;
    Ok(Val::List(std::iter::once(counts).chain(edges).map(Val::Value).collect()))
}

fn histogram_dd(imp: &mut Importer, a: &Args) -> Result<Val> {
    let x = imp.value(a, "self")?;
    let shape = imp.b.shape(x).to_vec();
    let Some((last, rest)) = shape.split_last() else {
        return Err(Error::invalid_program("histogramdd of a tensor without dimensions"));
    };
    let dims = last.as_int().ok_or_else(|| a.unsupported("a number of dimensions known only at run time"))?;
    let points = imp.b.reshape(x, vec![Expr::product(rest), last.clone()])?;
    let weight = imp.opt_value(a, "weight")?;
    let bins = if a.target.contains("TensorList") {
        imp.values(a, "bins")?.into_iter().map(Bins::Edges).collect()
    } else {
        let given = a.ints("bins")?;
        let one = a.target.contains("int_bins");
        let all = if one { vec![given.first().copied().unwrap_or(0); dims as usize] } else { given };
        all.into_iter().map(Bins::Count).collect::<Vec<_>>()
    };
    let (counts, edges) = histogram_of(imp, a, points, bins, weight)?;
    let edges = edges.into_iter().map(Val::Value);
    Ok(Val::List(std::iter::once(Val::Value(counts)).chain(edges).collect()))
}
