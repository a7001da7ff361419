//! Order along a dimension: sort, the k best, the k-th, medians, modes, quantiles. NaN is the largest; equals keep their order.

use douse_core::pointwise::{Binary, Combine, Unary};
use douse_core::sym::{Compare, Cond, Expr};
use douse_core::{DType, Error, Result, Scalar};
use douse_ir::{Value, coordinates};

use super::args::{Args, Val};
use super::importer::{Importer, Row};
use super::index::{element, raised};

pub const ROWS: &[Row] = &[
    ("aten.sort.default", |i, a| sort(i, a).map(Val::from)),
    ("aten.sort.stable", |i, a| sort(i, a).map(Val::from)),
    ("aten.argsort.default", |i, a| sort(i, a).map(|(_, at)| at.into())),
    ("aten.argsort.stable", |i, a| sort(i, a).map(|(_, at)| at.into())),
    ("aten.msort.default", msort),
    ("aten.topk.default", topk),
    ("aten.kthvalue.default", kth_value),
    ("aten.median.default", |i, a| median_of_all(i, a, false)),
    ("aten.nanmedian.default", |i, a| median_of_all(i, a, true)),
    ("aten.median.dim", |i, a| median(i, a, false)),
    ("aten.nanmedian.dim", |i, a| median(i, a, true)),
    ("aten.mode.default", mode),
    ("aten.quantile.default", |i, a| quantile(i, a, false)),
    ("aten.quantile.scalar", |i, a| quantile(i, a, false)),
    ("aten.nanquantile.default", |i, a| quantile(i, a, true)),
    ("aten.nanquantile.scalar", |i, a| quantile(i, a, true)),
];

/// Sorted along the last dimension, with the positions; bools as 0 and 1.
pub fn sorted(imp: &mut Importer, x: Value, descending: bool) -> (Value, Value) {
    let dtype = imp.b.dtype(x);
    let ordered = if dtype.is_bool() { imp.b.cast(x, DType::U8) } else { x };
    let (values, at) = imp.b.sort(ordered, descending);
    (imp.b.cast(values, dtype), at)
}

/// A tensor with the dimension that is ordered last, and where that dimension belongs.
struct Rows {
    x: Value,
    dim: usize,
    /// The tensor has no dimension at all.
    single: bool,
}

impl Rows {
    fn of(imp: &mut Importer, a: &Args, default: i64) -> Result<Rows> {
        let x = imp.value(a, "self")?;
        Rows::along(imp, a, x, a.int_or("dim", default)?)
    }

    fn along(imp: &mut Importer, a: &Args, x: Value, dim: i64) -> Result<Rows> {
        let single = imp.b.rank(x) == 0;
        let x = raised(imp, x)?;
        let rank = imp.b.rank(x);
        let dim = imp.dim(a, dim, rank)?;
        Ok(Rows { x: imp.b.transpose(x, dim, rank - 1)?, dim, single })
    }

    fn size(&self, imp: &Importer) -> Expr {
        imp.b.shape(self.x).last().cloned().unwrap_or_default()
    }

    /// A result with the ordered dimension last, as the program has it.
    fn back(&self, imp: &mut Importer, y: Value) -> Result<Value> {
        if self.single {
            return imp.b.reshape(y, vec![]);
        }
        let last = imp.b.rank(y) - 1;
        imp.b.transpose(y, self.dim, last)
    }

    /// A result without the ordered dimension; with it, of size 1, if it is kept.
    fn reduced(&self, imp: &mut Importer, a: &Args, y: Value) -> Result<Value> {
        let rank = imp.b.rank(y);
        let wide = imp.b.unsqueeze(y, rank)?;
        if a.bool_or("keepdim", false)? || self.single {
            return self.back(imp, wide);
        }
        let wide = self.back(imp, wide)?;
        imp.b.squeeze(wide, self.dim)
    }
}

fn sort(imp: &mut Importer, a: &Args) -> Result<(Value, Value)> {
    let rows = Rows::of(imp, a, -1)?;
    let (values, at) = sorted(imp, rows.x, a.bool_or("descending", false)?);
    Ok((rows.back(imp, values)?, rows.back(imp, at)?))
}

fn msort(imp: &mut Importer, a: &Args) -> Result<Val> {
    let rows = Rows::of(imp, a, 0)?;
    let (values, _) = sorted(imp, rows.x, false);
    Ok(rows.back(imp, values)?.into())
}

fn topk(imp: &mut Importer, a: &Args) -> Result<Val> {
    let rows = Rows::of(imp, a, -1)?;
    let dtype = imp.b.dtype(rows.x);
    if rows.single {
        // Whatever k says.
        let zero = imp.b.full(DType::I64, vec![], Scalar::Int(0));
        return Ok((rows.back(imp, rows.x)?, zero).into());
    }
    let k = a.expr("k")?;
    let size = rows.size(imp);
    let enough = Cond::compare(Compare::Le, &k, &size);
    imp.require(enough, format_args!("topk: k {k} is larger than the dimension's size {size}"));
    let ordered = if dtype.is_bool() { imp.b.cast(rows.x, DType::U8) } else { rows.x };
    let (values, at) = imp.b.topk(ordered, k, a.bool_or("largest", true)?)?;
    let values = imp.b.cast(values, dtype);
    Ok((rows.back(imp, values)?, rows.back(imp, at)?).into())
}

/// The k-th smallest, k from 1.
fn kth_value(imp: &mut Importer, a: &Args) -> Result<Val> {
    let rows = Rows::of(imp, a, -1)?;
    let (k, size) = (a.expr("k")?, rows.size(imp));
    let within = Cond::compare(Compare::Ge, &k, &Expr::int(1)).and(&Cond::compare(Compare::Le, &k, &size));
    imp.require(within, format_args!("kthvalue: k {k} is out of range for a dimension of size {size}"));
    let (values, at) = sorted(imp, rows.x, false);
    let last = imp.b.rank(values) - 1;
    let values = imp.b.select_index(values, last, &(&k - 1))?;
    let at = imp.b.select_index(at, last, &(&k - 1))?;
    Ok((rows.reduced(imp, a, values)?, rows.reduced(imp, a, at)?).into())
}

/// `x[..., index]` along the last dimension, one for each row; an index below 0 gives NaN, or 0.
fn pick(imp: &mut Importer, x: Value, index: Value) -> Result<Value> {
    let shape = imp.b.shape(index).to_vec();
    let mut map = coordinates(shape.len());
    map.push(element(0));
    let fill = if imp.b.dtype(x).is_float() { Scalar::Float(f64::NAN) } else { Scalar::Int(0) };
    let inside = Cond::compare(Compare::Ge, &element(0), &Expr::int(0));
    imp.b.move_(x, &[index], shape, map, inside, fill)
}

/// How many NaNs each row holds.
fn nans(imp: &mut Importer, x: Value) -> Result<Value> {
    let is_nan = imp.b.unary(Unary::IsNan, x)?;
    let ones = imp.b.cast(is_nan, DType::I64);
    let last = imp.b.rank(x) - 1;
    imp.b.reduce(Combine::Sum, ones, &[last])
}

/// The lower median of each row and its position. With `skip` NaNs do not count; otherwise they win.
fn middle(imp: &mut Importer, x: Value, skip: bool) -> Result<(Value, Value)> {
    let (values, at) = sorted(imp, x, false);
    let shape = imp.b.shape(x).to_vec();
    let (size, rows) = match shape.split_last() {
        Some((size, rows)) => (size.clone(), rows.to_vec()),
        None => return Err(Error::internal("a median without a dimension")),
    };
    let half = (&size - 1).floor_div(&Expr::int(2));
    let mut index = imp.b.iota(rows, half);
    if imp.b.dtype(x).is_float() {
        let nans = nans(imp, x)?;
        let n = imp.b.size_value(size);
        let numbers = imp.b.binary(Binary::Sub, n, nans)?;
        let any = imp.b.binary_scalar(Binary::Gt, nans, Scalar::Int(0))?;
        let other = if skip {
            let less = imp.b.binary_scalar(Binary::Sub, numbers, Scalar::Int(1))?;
            let half = imp.b.binary_scalar(Binary::FloorDivide, less, Scalar::Int(2))?;
            imp.b.binary_scalar(Binary::Maximum, half, Scalar::Int(0))?
        } else {
            numbers
        };
        index = imp.b.select(any, other, index)?;
    }
    Ok((pick(imp, values, index)?, pick(imp, at, index)?))
}

fn median(imp: &mut Importer, a: &Args, skip: bool) -> Result<Val> {
    let rows = Rows::of(imp, a, -1)?;
    require_some(imp, a, &rows.size(imp));
    let (value, at) = middle(imp, rows.x, skip)?;
    Ok((rows.reduced(imp, a, value)?, rows.reduced(imp, a, at)?).into())
}

/// A dimension that must not be empty.
fn require_some(imp: &mut Importer, a: &Args, size: &Expr) {
    let name = a.target.split('.').nth(1).unwrap_or(&a.target);
    let some = Cond::compare(Compare::Ge, size, &Expr::int(1));
    imp.require(some, format_args!("{name}: the dimension must not be empty"));
}

/// Of no element the median is NaN.
fn median_of_all(imp: &mut Importer, a: &Args, skip: bool) -> Result<Val> {
    let x = imp.value(a, "self")?;
    let numel = imp.b.numel(x);
    let flat = imp.b.reshape(x, vec![numel])?;
    Ok(middle(imp, flat, skip)?.0.into())
}

/// The value that occurs most often, of several the smallest, and its last position.
fn mode(imp: &mut Importer, a: &Args) -> Result<Val> {
    let rows = Rows::of(imp, a, -1)?;
    require_some(imp, a, &rows.size(imp));
    let (values, at) = sorted(imp, rows.x, false);
    let shape = imp.b.shape(values).to_vec();
    let last = shape.len() - 1;
    let place = imp.b.iota(shape, Expr::loop_var(last));
    let starts = run_starts(imp, values)?;
    let zero = imp.b.full_like(place, Scalar::Int(0));
    let start = imp.b.select(starts, place, zero)?;
    // Where the run that an element belongs to starts, and how many of it came before.
    let start = imp.b.scan(Combine::Max, start, last)?;
    let before = imp.b.binary(Binary::Sub, place, start)?;
    let (_, end) = imp.b.arg_reduce(true, before, &[last])?;
    let (value, at) = (pick(imp, values, end)?, pick(imp, at, end)?);
    Ok((rows.reduced(imp, a, value)?, rows.reduced(imp, a, at)?).into())
}

/// Whether an element of a row differs from the one before it; the first does.
pub fn run_starts(imp: &mut Importer, x: Value) -> Result<Value> {
    let shape = imp.b.shape(x).to_vec();
    let last = shape.len() - 1;
    let mut map = coordinates(shape.len());
    map[last] = (&map[last] - 1).maximum(&Expr::int(0));
    let before = imp.b.remap(x, shape.clone(), map)?;
    let differs = imp.b.binary(Binary::Ne, x, before)?;
    let first = Cond::compare(Compare::Gt, &Expr::loop_var(last), &Expr::int(0));
    imp.b.move_(differs, &[], shape.clone(), coordinates(shape.len()), first, Scalar::Bool(true))
}

/// Values at fractions of the way through the sorted rows, in the input's own dtype throughout.
fn quantile(imp: &mut Importer, a: &Args, skip: bool) -> Result<Val> {
    let own = imp.value(a, "self")?;
    let dtype = imp.b.dtype(own);
    if !matches!(dtype, DType::F32 | DType::F64) {
        return Err(Error::invalid_program(format!("quantile of {dtype}")));
    }
    let shape = imp.b.shape(own).to_vec();
    imp.require_filled(&shape, "quantile");
    let (x, dim) = match a.opt_int("dim")? {
        Some(dim) => (own, dim),
        None => {
            let numel = imp.b.numel(own);
            (imp.b.reshape(own, vec![numel])?, 0)
        }
    };
    let rows = Rows::along(imp, a, x, dim)?;
    let (values, _) = sorted(imp, rows.x, false);
    let q = imp.operand(a, "q", dtype)?;
    let listed = imp.b.rank(q) == 1;
    // Over [rows..., quantiles].
    let q = raised(imp, q)?;
    let mut shape = imp.b.shape(values).to_vec();
    let last = shape.len() - 1;
    let size = shape[last].clone();
    shape[last] = imp.b.numel(q);
    let q = imp.b.expand(q, shape.clone())?;
    let nans = nans(imp, rows.x)?;
    let nans = imp.b.unsqueeze(nans, last)?;
    let end = imp.b.size_value(&size - 1);
    let ranks = if skip {
        let end = imp.b.binary(Binary::Sub, end, nans)?;
        let end = imp.b.cast(end, dtype);
        let ranks = imp.b.binary(Binary::Mul, q, end)?;
        imp.b.binary_scalar(Binary::Maximum, ranks, Scalar::Int(0))?
    } else {
        let end = imp.b.cast(end, dtype);
        let ranks = imp.b.binary(Binary::Mul, q, end)?;
        let any = imp.b.binary_scalar(Binary::Gt, nans, Scalar::Int(0))?;
        imp.b.select(any, end, ranks)?
    };
    let mode = a.str_or("interpolation", "linear")?;
    let ranks = match mode {
        "lower" => imp.b.unary(Unary::Floor, ranks)?,
        "higher" => imp.b.unary(Unary::Ceil, ranks)?,
        "nearest" => imp.b.unary(Unary::Round, ranks)?,
        "linear" | "midpoint" => ranks,
        other => return Err(a.unsupported(format!("the interpolation {other}"))),
    };
    let below = imp.b.cast(ranks, DType::I64);
    let mut result = row_pick(imp, values, below)?;
    if mode == "linear" || mode == "midpoint" {
        let weight = if mode == "midpoint" {
            imp.b.full_like(ranks, Scalar::Float(0.5))
        } else {
            let whole = imp.b.cast(below, dtype);
            imp.b.binary(Binary::Sub, ranks, whole)?
        };
        let above = imp.b.unary(Unary::Ceil, ranks)?;
        let above = imp.b.cast(above, DType::I64);
        let above = row_pick(imp, values, above)?;
        result = interpolated(imp, result, above, weight)?;
    }
    // The quantiles' dimension goes first, or away where there is only one number.
    let keep = a.bool_or("keepdim", false)?;
    let mut out = result;
    if !rows.single {
        let back = rows.back(imp, result)?;
        let mut order: Vec<usize> = (0..imp.b.rank(back)).filter(|d| *d != rows.dim).collect();
        order.insert(0, rows.dim);
        out = imp.b.permute(back, &order)?;
        if keep && a.has("dim") {
            out = imp.b.unsqueeze(out, rows.dim + 1)?;
        } else if keep {
            let mut to = vec![imp.b.numel(out)];
            to.extend(vec![Expr::int(1); imp.b.rank(own)]);
            out = imp.b.reshape(out, to)?;
        }
    }
    Ok(if listed { out } else { imp.b.squeeze(out, 0)? }.into())
}

/// `x[row, index[row, i]]`, along the last dimension.
fn row_pick(imp: &mut Importer, x: Value, index: Value) -> Result<Value> {
    let last = imp.b.rank(x) - 1;
    imp.b.gather(x, last, index)
}

/// a + w (b - a), from the nearer end as `torch.lerp`.
fn interpolated(imp: &mut Importer, a: Value, b: Value, w: Value) -> Result<Value> {
    let span = imp.b.binary(Binary::Sub, b, a)?;
    let step = imp.b.binary(Binary::Mul, w, span)?;
    let low = imp.b.binary(Binary::Add, a, step)?;
    let one = imp.b.full_like(w, Scalar::Int(1));
    let rest = imp.b.binary(Binary::Sub, one, w)?;
    let step = imp.b.binary(Binary::Mul, span, rest)?;
    let high = imp.b.binary(Binary::Sub, b, step)?;
    let near = imp.b.binary_scalar(Binary::Lt, w, Scalar::Float(0.5))?;
    imp.b.select(near, low, high)
}
