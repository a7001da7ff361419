//! Pooling: averages and extremes of windows, and their inverse.

use douse_core::pointwise::{Binary, Combine, Unary};
use douse_core::sym::{Compare, Cond, Expr, Symbol};
use douse_core::{DType, Result, Scalar};
use douse_ir::{Value, coordinates};

use super::args::{Args, Val};
use super::convolution::spatial;
use super::importer::{Importer, Row};

pub const ROWS: &[Row] = &[
    ("aten.avg_pool1d.default", |i, a| average(i, a, 1)),
    ("aten.avg_pool2d.default", |i, a| average(i, a, 2)),
    ("aten.avg_pool3d.default", |i, a| average(i, a, 3)),
    ("aten.adaptive_avg_pool1d.default", |i, a| adaptive_average(i, a, 1)),
    ("aten.adaptive_avg_pool2d.default", |i, a| adaptive_average(i, a, 2)),
    ("aten._adaptive_avg_pool2d.default", |i, a| adaptive_average(i, a, 2)),
    ("aten.adaptive_avg_pool3d.default", |i, a| adaptive_average(i, a, 3)),
    ("aten._adaptive_avg_pool3d.default", |i, a| adaptive_average(i, a, 3)),
    ("aten.max_pool1d.default", |i, a| max(i, a, 1)),
    ("aten.max_pool2d.default", |i, a| max(i, a, 2)),
    ("aten.max_pool3d.default", |i, a| max(i, a, 3)),
    ("aten.max_pool1d_with_indices.default", |i, a| max_with_indices(i, a, 1)),
    ("aten.max_pool2d_with_indices.default", |i, a| max_with_indices(i, a, 2)),
    ("aten.max_pool3d_with_indices.default", |i, a| max_with_indices(i, a, 3)),
    ("aten.adaptive_max_pool1d.default", |i, a| adaptive_max(i, a, 1)),
    ("aten.adaptive_max_pool2d.default", |i, a| adaptive_max(i, a, 2)),
    ("aten.adaptive_max_pool3d.default", |i, a| adaptive_max(i, a, 3)),
    ("aten.max_unpool2d.default", |i, a| max_unpool(i, a, 2)),
    ("aten.max_unpool3d.default", |i, a| max_unpool(i, a, 3)),
];

/// The windows along one dimension of size `input`. Window `i` starts at `start(i)` and has elements `dilation` apart, `kernel` of them, of
/// which those outside the dimension, or at `end(i)` and after, do not count.
struct Windows {
    input: Expr,
    count: Expr,
    kernel: Expr,
    dilation: i64,
    /// Over the coordinate of the result in this dimension.
    start: Expr,
    end: Option<Expr>,
}

/// A tensor seen as windows: leading dimensions, the windows, and the elements of each.
struct Windowed {
    value: Value,
    lead: usize,
    all: Vec<Windows>,
    /// Every element counts.
    whole: bool,
}

/// The number of spatial dimensions, after any leading ones.
fn lead(imp: &Importer, a: &Args, x: Value, count: usize) -> Result<usize> {
    imp.b.rank(x).checked_sub(count).ok_or_else(|| a.wrong("self", &format!("of rank {count} or more")))
}

/// Windows of fixed size, as the arguments say, at least one. Of [batch, channels, spatial...] only the batch may be empty.
fn regular(imp: &mut Importer, a: &Args, x: Value, count: usize) -> Result<Vec<Windows>> {
    let lead = lead(imp, a, x, count)?;
    let own = imp.b.shape(x).to_vec();
    imp.require_filled(&own[lead.saturating_sub(1)..], "pooling");
    let all = regular_windows(imp, a, x, lead, count)?;
    let counts: Vec<Expr> = all.iter().map(|w| w.count.clone()).collect();
    imp.require_filled(&counts, "a result of pooling");
    Ok(all)
}

fn regular_windows(imp: &Importer, a: &Args, x: Value, lead: usize, count: usize) -> Result<Vec<Windows>> {
    let kernel = spatial(a, "kernel_size", a.ints("kernel_size")?, count)?;
    let stride = match a.opt_ints("stride")?.filter(|s| !s.is_empty()) {
        Some(stride) => spatial(a, "stride", stride, count)?,
        None => kernel.clone(),
    };
    let padding = spatial(a, "padding", a.ints_or("padding", &[0])?, count)?;
    let dilation = spatial(a, "dilation", a.ints_or("dilation", &[1])?, count)?;
    let ceil = a.bool_or("ceil_mode", false)?;
    let shape = imp.b.shape(x);
    Ok((0..count)
        .map(|d| {
            let input = shape[lead + d].clone();
            let reach = dilation[d] * (kernel[d] - 1) + 1;
            let room = &input + (2 * padding[d] - reach + if ceil { stride[d] - 1 } else { 0 });
            let mut windows = room.floor_div(&Expr::int(stride[d])) + 1;
            if ceil {
                // The last window starts within the input or the padding before it.
                let last = &(&windows - 1) * stride[d];
                let outside = Cond::compare(Compare::Ge, &last, &(&input + padding[d]));
                windows = Expr::select(&outside, &(&windows - 1), &windows).simplify(imp.b.ranges());
            }
            // With `ceil_mode` a window may be far longer than the padded input, and nothing counts past its end.
            let padded = (&input + 2 * padding[d]).ceil_div(&Expr::int(dilation[d]));
            let taps = padded.as_int().map_or(kernel[d], |padded| kernel[d].min(padded.max(1)));
            Windows {
                input,
                count: windows,
                kernel: Expr::int(taps),
                dilation: dilation[d],
                start: &(&Expr::loop_var(lead + d) * stride[d]) - padding[d],
                end: None,
            }
        })
        .collect())
}

/// Windows that share a dimension out as evenly as can be: window `i` of `n` holds the elements from floor(i * size / n) to
/// ceil((i + 1) * size / n).
fn adaptive(imp: &Importer, a: &Args, x: Value, count: usize) -> Result<Vec<Windows>> {
    let lead = lead(imp, a, x, count)?;
    let wanted = spatial(a, "output_size", a.exprs("output_size")?, count)?;
    let shape = imp.b.shape(x);
    let windows = |(d, out): (usize, Expr)| {
        let (input, at) = (shape[lead + d].clone(), Expr::loop_var(lead + d));
        let out_or_one = out.maximum(&Expr::int(1)).simplify(imp.b.ranges());
        let mut windows = Windows {
            count: out.clone(),
            kernel: input.floor_div(&out_or_one),
            dilation: 1,
            start: (&at * &input).floor_div(&out_or_one),
            end: None,
            input: input.clone(),
        };
        if !input.modulo(&out_or_one).simplify(imp.b.ranges()).is_int(0) {
            let end = (&(&at + 1) * &input).ceil_div(&out_or_one);
            windows.kernel = match (input.as_int(), out.as_int()) {
                (Some(n), Some(out)) => Expr::int(longest(n, out)),
                _ => input.ceil_div(&out_or_one) + 1,
            };
            windows.end = Some(end);
        }
        windows
    };
    Ok(wanted.into_iter().enumerate().map(windows).collect())
}

/// The length of the longest of `out` windows that share out `size` elements.
fn longest(size: i64, out: i64) -> i64 {
    (0..out).map(|i| ((i + 1) * size + out - 1) / out - i * size / out).max().unwrap_or(0)
}

/// Each window's elements in new last dimensions, `fill` where an element does not count.
fn windowed(imp: &mut Importer, x: Value, all: Vec<Windows>, fill: Scalar) -> Result<Windowed> {
    let lead = imp.b.rank(x) - all.len();
    let mut shape = imp.b.shape(x)[..lead].to_vec();
    shape.extend(all.iter().map(|w| w.count.clone()));
    shape.extend(all.iter().map(|w| w.kernel.clone()));
    let mut map = coordinates(lead);
    let mut guard = Cond::Bool(true);
    for (d, w) in all.iter().enumerate() {
        let at = &w.start + &(&Expr::loop_var(lead + all.len() + d) * w.dilation);
        guard = guard.and(&Cond::compare(Compare::Ge, &at, &Expr::int(0))).and(&Cond::compare(
            Compare::Lt,
            &at,
            w.end.as_ref().unwrap_or(&w.input),
        ));
        map.push(at);
    }
    let whole = guard.simplify(&imp.b.ranges().with_loops(&shape)).as_bool() == Some(true);
    let value = imp.b.move_(x, &[], shape, map, guard, fill)?;
    Ok(Windowed { value, lead, all, whole })
}

impl Windowed {
    /// The dimensions of the elements of a window.
    fn dims(&self) -> Vec<usize> {
        let first = self.lead + self.all.len();
        (first..first + self.all.len()).collect()
    }
}

/// How many elements the windows hold, as a product over dimensions: within the input, or, `padded` by as much at both ends, there.
fn element_count(imp: &mut Importer, windows: &Windowed, padding: Option<&[i64]>, dtype: DType) -> Result<Value> {
    let sizes = imp.b.shape(windows.value)[..windows.lead + windows.all.len()].to_vec();
    let mut product = Expr::int(1);
    for (d, w) in windows.all.iter().enumerate() {
        let end = w.end.clone().unwrap_or_else(|| &w.start + &w.kernel);
        let (low, high) = match padding {
            Some(padding) => (w.start.clone(), end.minimum(&(&w.input + padding[d]))),
            None => (w.start.maximum(&Expr::int(0)), end.minimum(&w.input)),
        };
        product = &product * &(&high - &low).maximum(&Expr::int(0));
    }
    // A window that holds nothing has the sum 0, and that is its average.
    let product = product.maximum(&Expr::int(1)).simplify(&imp.b.ranges().with_loops(&sizes));
    let count = imp.b.iota(sizes, product);
    Ok(imp.b.cast(count, dtype))
}

fn average(imp: &mut Importer, a: &Args, count: usize) -> Result<Val> {
    let x = imp.value(a, "self")?;
    let all = regular(imp, a, x, count)?;
    let padding = spatial(a, "padding", a.ints_or("padding", &[0])?, count)?;
    let padded = a.bool_or("count_include_pad", true)?.then_some(padding.as_slice());
    average_of(imp, x, all, padded, a.opt_int("divisor_override")?)
}

fn adaptive_average(imp: &mut Importer, a: &Args, count: usize) -> Result<Val> {
    let x = imp.value(a, "self")?;
    let all = adaptive(imp, a, x, count)?;
    if imp.b.dtype(x).is_float() && all.iter().all(|w| w.count.is_int(1)) {
        return mean_of_all(imp, x, count);
    }
    require_filled(imp, x, if count == 3 { 1 } else { imp.b.rank(x) - count });
    average_of(imp, x, all, None, None)
}

/// The mean of the last dimensions, which stay with size 1; of nothing it is NaN.
fn mean_of_all(imp: &mut Importer, x: Value, count: usize) -> Result<Val> {
    let (dtype, rank) = (imp.b.dtype(x), imp.b.rank(x));
    let dims: Vec<usize> = (rank - count..rank).collect();
    let wide = imp.b.cast(x, imp.compute_dtype(dtype));
    let total = imp.b.reduce_keep(Combine::Sum, wide, &dims)?;
    let count = super::reduce::count(imp, wide, &dims, imp.b.dtype(total));
    let mean = imp.b.binary(Binary::Div, total, count)?;
    Ok(imp.b.cast(mean, dtype).into())
}

/// Makes the call fail where a dimension from `first` on is empty.
fn require_filled(imp: &mut Importer, x: Value, first: usize) {
    let shape = imp.b.shape(x).to_vec();
    imp.require_filled(shape.get(first..).unwrap_or_default(), "adaptive pooling");
}

fn average_of(
    imp: &mut Importer,
    x: Value,
    all: Vec<Windows>,
    padded: Option<&[i64]>,
    divisor: Option<i64>,
) -> Result<Val> {
    let dtype = imp.b.dtype(x);
    let wide = imp.b.cast(x, imp.compute_dtype(dtype));
    let windows = windowed(imp, wide, all, Scalar::Int(0))?;
    let total = imp.b.reduce(Combine::Sum, windows.value, &windows.dims())?;
    let divisor = match divisor {
        Some(n) => imp.b.full_like(total, Scalar::Int(n)),
        None => element_count(imp, &windows, padded, imp.b.dtype(total))?,
    };
    let op = if dtype.is_float() { Binary::Div } else { Binary::TruncDivide };
    let mean = imp.b.binary(op, total, divisor)?;
    Ok(imp.b.cast(mean, dtype).into())
}

/// What is below every number of a dtype, or equal to the least.
fn lowest(dtype: DType) -> Scalar {
    match dtype.is_float() {
        true => Scalar::Float(f64::NEG_INFINITY),
        false if dtype.is_signed() => Scalar::Int(i64::MIN >> (64 - 8 * dtype.size())),
        false => Scalar::Int(0),
    }
}

fn max(imp: &mut Importer, a: &Args, count: usize) -> Result<Val> {
    let x = imp.value(a, "self")?;
    let all = regular(imp, a, x, count)?;
    let windows = windowed(imp, x, all, lowest(imp.b.dtype(x)))?;
    Ok(imp.b.reduce(Combine::Max, windows.value, &windows.dims())?.into())
}

fn max_with_indices(imp: &mut Importer, a: &Args, count: usize) -> Result<Val> {
    let x = imp.value(a, "self")?;
    let all = regular(imp, a, x, count)?;
    max_and_place(imp, x, all)
}

fn adaptive_max(imp: &mut Importer, a: &Args, count: usize) -> Result<Val> {
    let x = imp.value(a, "self")?;
    let all = adaptive(imp, a, x, count)?;
    require_filled(imp, x, 1);
    max_and_place(imp, x, all)
}

/// The maximum of each window and its place in row-major order of the input's spatial dimensions: the first of equals, but the last of NaNs.
fn max_and_place(imp: &mut Importer, x: Value, all: Vec<Windows>) -> Result<Val> {
    let dtype = imp.b.dtype(x);
    let windows = windowed(imp, x, all, lowest(dtype))?;
    let dims = windows.dims();
    let (max, mut at) = imp.b.arg_reduce(true, windows.value, &dims)?;
    if dtype.is_float() {
        let last = last_nan(imp, &windows)?;
        let none = imp.b.full_like(last, Scalar::Int(0));
        let found = imp.b.binary(Binary::Ge, last, none)?;
        at = imp.b.select(found, last, at)?;
    }
    let place = place(imp, &windows, at)?;
    Ok((max, place).into())
}

/// The number within its window of the last NaN, -1 where there is none.
fn last_nan(imp: &mut Importer, windows: &Windowed) -> Result<Value> {
    let shape = imp.b.shape(windows.value).to_vec();
    let mut number = Expr::int(0);
    for d in windows.dims() {
        number = &(&number * &shape[d]) + &Expr::loop_var(d);
    }
    let number = imp.b.iota(shape, number);
    let nan = imp.b.unary(Unary::IsNan, windows.value)?;
    let none = imp.b.full_like(number, Scalar::Int(-1));
    let marked = imp.b.select(nan, number, none)?;
    imp.b.reduce(Combine::Max, marked, &windows.dims())
}

/// From an element's number within its window to its place in the input. An element that does not count can only win where all that do
/// are as low as can be; then the first of those is meant.
fn place(imp: &mut Importer, windows: &Windowed, at: Value) -> Result<Value> {
    let shape = imp.b.shape(at).to_vec();
    let full = |imp: &mut Importer, expr: &Expr| imp.b.iota(shape.clone(), expr.clone());
    let mut rest = at;
    let mut elements = Vec::new();
    for (d, w) in windows.all.iter().enumerate().rev() {
        let kernel = full(imp, &w.kernel);
        let k = if d == 0 { rest } else { imp.b.binary(Binary::Remainder, rest, kernel)? };
        rest = imp.b.binary(Binary::FloorDivide, rest, kernel)?;
        let offset = imp.b.binary_scalar(Binary::Mul, k, Scalar::Int(w.dilation))?;
        let start = full(imp, &w.start);
        elements.push(imp.b.binary(Binary::Add, start, offset)?);
    }
    elements.reverse();
    let zero = full(imp, &Expr::int(0));
    let (mut place, mut first) = (zero, Expr::int(0));
    let mut counts = None;
    for (w, element) in windows.all.iter().zip(elements) {
        let size = full(imp, &w.input);
        let row = imp.b.binary(Binary::Mul, place, size)?;
        place = imp.b.binary(Binary::Add, row, element)?;
        if windows.whole {
            continue;
        }
        let end = full(imp, w.end.as_ref().unwrap_or(&w.input));
        let not_before = imp.b.binary(Binary::Ge, element, zero)?;
        let not_after = imp.b.binary(Binary::Lt, element, end)?;
        for inside in [not_before, not_after] {
            counts = Some(match counts {
                Some(counts) => imp.b.binary(Binary::And, counts, inside)?,
                None => inside,
            });
        }
        let skipped = (-&w.start).maximum(&Expr::int(0)).ceil_div(&Expr::int(w.dilation));
        first = &(&first * &w.input) + &(&w.start + &(&skipped * w.dilation));
    }
    let Some(counts) = counts else { return Ok(place) };
    let first = full(imp, &first);
    imp.b.select(counts, place, first)
}

/// Zeros, with each element at the place that its index names in row-major order of the result's spatial dimensions.
fn max_unpool(imp: &mut Importer, a: &Args, count: usize) -> Result<Val> {
    let x = imp.value(a, "self")?;
    let lead = lead(imp, a, x, count)?;
    let size = spatial(a, "output_size", a.exprs("output_size")?, count)?;
    let index = imp.value(a, "indices")?;
    let index = imp.b.cast(index, DType::I64);
    let shape = imp.b.shape(x).to_vec();
    let plane = Expr::product(&size);
    let message = imp.message("an index of max_unpool is outside the result");
    let index = imp.b.check(index, plane.clone(), false, message)?;
    let mut base = shape[..lead].to_vec();
    base.push(plane);
    let zeros = imp.b.full(imp.b.dtype(x), base, Scalar::Int(0));
    let mut map = coordinates(lead);
    map.push(Expr::symbol(Symbol::Value(0)));
    let filled = imp.b.scatter(zeros, x, &[index], map, None)?;
    let mut to = shape[..lead].to_vec();
    to.extend(size);
    Ok(imp.b.reshape(filled, to)?.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_windows_overlap_where_the_size_does_not_divide() {
        assert_eq!((longest(6, 3), longest(7, 3), longest(10, 4), longest(3, 5), longest(4, 1)), (2, 3, 3, 2, 4));
    }

    #[test]
    fn padding_is_below_every_number() {
        assert_eq!(lowest(DType::I8), Scalar::Int(-128));
        assert_eq!(lowest(DType::I64), Scalar::Int(i64::MIN));
        assert_eq!(lowest(DType::U8), Scalar::Int(0));
        assert_eq!(lowest(DType::BF16), Scalar::Float(f64::NEG_INFINITY));
    }
}
