//! Resizing of the spatial dimensions of [batch, channels, spatial...].
//!
//! Every mode is separable: one dimension after the other, the last first, is replaced by weighted sums of its elements. Positions and
//! weights are computed in the tensor's compute dtype from sizes that need not be known before the call, in the order of PyTorch's own
//! arithmetic, as a position that rounds to another integer is another element.

use douse_core::pointwise::{Binary, Combine};
use douse_core::sym::{Compare, Cond, Expr};
use douse_core::{DType, Result, Scalar};
use douse_ir::{Value, coordinates};

use super::args::{Args, Val};
use super::formula::Formula;
use super::importer::{Importer, Row};
use super::reduce::size_as;
use super::resize_bytes::{self, Kernel};
use super::resize_nearest::nearest;

pub const ROWS: &[Row] = &[
    ("aten.upsample_nearest1d.vec", |i, a| nearest(i, a, false)),
    ("aten.upsample_nearest2d.vec", |i, a| nearest(i, a, false)),
    ("aten.upsample_nearest3d.vec", |i, a| nearest(i, a, false)),
    ("aten.upsample_nearest1d.default", |i, a| nearest(i, a, false)),
    ("aten.upsample_nearest2d.default", |i, a| nearest(i, a, false)),
    ("aten.upsample_nearest3d.default", |i, a| nearest(i, a, false)),
    ("aten._upsample_nearest_exact1d.vec", |i, a| nearest(i, a, true)),
    ("aten._upsample_nearest_exact2d.vec", |i, a| nearest(i, a, true)),
    ("aten._upsample_nearest_exact3d.vec", |i, a| nearest(i, a, true)),
    ("aten._upsample_nearest_exact1d.default", |i, a| nearest(i, a, true)),
    ("aten._upsample_nearest_exact2d.default", |i, a| nearest(i, a, true)),
    ("aten._upsample_nearest_exact3d.default", |i, a| nearest(i, a, true)),
    ("aten.upsample_linear1d.vec", |i, a| weighted(i, a, Kernel::Linear)),
    ("aten.upsample_linear1d.default", |i, a| weighted(i, a, Kernel::Linear)),
    ("aten.upsample_bilinear2d.vec", |i, a| weighted(i, a, Kernel::Linear)),
    ("aten.upsample_bilinear2d.default", |i, a| weighted(i, a, Kernel::Linear)),
    ("aten.upsample_trilinear3d.vec", |i, a| weighted(i, a, Kernel::Linear)),
    ("aten.upsample_trilinear3d.default", |i, a| weighted(i, a, Kernel::Linear)),
    ("aten.upsample_bicubic2d.vec", |i, a| weighted(i, a, Kernel::Cubic(-0.75))),
    ("aten.upsample_bicubic2d.default", |i, a| weighted(i, a, Kernel::Cubic(-0.75))),
    ("aten._upsample_bilinear2d_aa.vec", |i, a| antialiased(i, a, &LINEAR)),
    ("aten._upsample_bilinear2d_aa.default", |i, a| antialiased(i, a, &LINEAR)),
    ("aten._upsample_bicubic2d_aa.vec", |i, a| antialiased(i, a, &CUBIC)),
    ("aten._upsample_bicubic2d_aa.default", |i, a| antialiased(i, a, &CUBIC)),
    ("aten._upsample_lanczos2d_aa.vec", |i, a| antialiased(i, a, &LANCZOS)),
    ("aten._upsample_lanczos2d_aa.default", |i, a| antialiased(i, a, &LANCZOS)),
];

/// A dimension that is resized.
pub struct Axis {
    pub dim: usize,
    pub input: Expr,
    pub output: Expr,
    /// Output over input, where the program gave the factor and not the size.
    pub scale: Option<f64>,
}

/// The tensor and its spatial dimensions, all but the first two.
pub fn operand(imp: &mut Importer, a: &Args) -> Result<(Value, Vec<Axis>)> {
    let x = imp.value(a, if a.has("input") { "input" } else { "self" })?;
    let shape = imp.b.shape(x).to_vec();
    let count = shape.len().checked_sub(2).ok_or_else(|| a.wrong("input", "of rank 3 or more"))?;
    imp.require_filled(&shape[1..], "resizing");
    let scales = scales(a, count)?;
    let sizes = a.opt_exprs("output_size")?;
    let mut axes = Vec::new();
    for (d, scale) in scales.into_iter().enumerate() {
        let input = shape[d + 2].clone();
        let output = match (&sizes, scale) {
            (Some(sizes), _) => sizes.get(d).cloned().ok_or_else(|| a.wrong("output_size", "of all dimensions"))?,
            (None, Some(scale)) => input.scale(scale),
            (None, None) => return Err(a.wrong("output_size", "given")),
        };
        axes.push(Axis { dim: d + 2, input, output, scale: scale.filter(|s| *s > 0.0) });
    }
    Ok((x, axes))
}

/// The scale factor of each dimension, as the overload names them.
fn scales(a: &Args, count: usize) -> Result<Vec<Option<f64>>> {
    if a.has("scale_factors") {
        let all: Vec<Option<f64>> = a.floats("scale_factors")?.into_iter().map(Some).collect();
        return if all.len() == count { Ok(all) } else { Err(a.wrong("scale_factors", "of all dimensions")) };
    }
    if count == 1 {
        return Ok(vec![a.opt_float("scales")?]);
    }
    let names = ["scales_d", "scales_h", "scales_w"];
    names[3 - count.min(3)..].iter().map(|name| a.opt_float(name)).collect()
}

/// The distance of neighbouring elements of the result, in elements of the tensor: 0-d, of that dtype.
pub fn ratio(imp: &mut Importer, axis: &Axis, align_corners: bool, dtype: DType) -> Result<Formula> {
    if let (false, Some(scale)) = (align_corners, axis.scale) {
        return Ok(imp.b.full(dtype, vec![], Scalar::Float(1.0 / scale)).into());
    }
    // With aligned corners, the one element of a result of size 1 is the first.
    let (input, output) = match align_corners {
        true => {
            let one = Cond::compare(Compare::Le, &axis.output, &Expr::int(1));
            let steps = Expr::select(&one, &Expr::int(0), &(&axis.input - 1)).simplify(imp.b.ranges());
            (steps, (&axis.output - 1).maximum(&Expr::int(1)).simplify(imp.b.ranges()))
        }
        false => (axis.input.clone(), axis.output.clone()),
    };
    let (input, output) = (size_as(imp, &input, dtype), size_as(imp, &output, dtype));
    Ok(Formula::from(input) / Formula::from(output))
}

/// The coordinate along the result's dimension, as a vector.
pub fn places(imp: &mut Importer, axis: &Axis, dtype: DType) -> Formula {
    let at = imp.b.iota(vec![axis.output.clone()], Expr::loop_var(0));
    Formula::from(imp.b.cast(at, dtype))
}

/// `then` where two sizes are equal, which may show at run time only, else `otherwise`.
pub fn where_equal(imp: &mut Importer, a: &Expr, b: &Expr, then: Formula, otherwise: Formula) -> Formula {
    let equal = Cond::compare(Compare::Eq, a, b).simplify(imp.b.ranges());
    match equal.as_bool() {
        Some(true) => then,
        Some(false) => otherwise,
        None => {
            let equal = imp.b.size_value(Expr::select(&equal, &Expr::int(1), &Expr::int(0)));
            Formula::from(equal).cast(DType::Bool).select(then, otherwise)
        }
    }
}

/// Where each element of the result stands between the tensor's elements.
pub fn positions(imp: &mut Importer, axis: &Axis, align_corners: bool, dtype: DType) -> Result<Formula> {
    let (ratio, at) = (ratio(imp, axis, align_corners, dtype)?, places(imp, axis, dtype));
    Ok(if align_corners { ratio * at } else { ratio * (at + 0.5) - 0.5 })
}

/// The integer below, at most `last`. Float64 positions round to float32 first, as in PyTorch.
pub fn floor(imp: &mut Importer, x: &Formula, last: &Expr, dtype: DType) -> Formula {
    let last = Formula::from(size_as(imp, last, dtype));
    x.cast(DType::F32).floor().cast(dtype).minimum(last)
}

/// The elements along an axis that each element of the result is a sum of, with their weights: vectors of the result's size.
type Taps = Vec<(Value, Value)>;

fn weighted(imp: &mut Importer, a: &Args, kernel: Kernel) -> Result<Val> {
    let (x, axes) = operand(imp, a)?;
    let own = imp.b.dtype(x);
    if !own.is_float() {
        return whole_numbers(imp, a, x, &axes, kernel, false);
    }
    let dtype = imp.compute_dtype(own);
    let align_corners = a.bool_or("align_corners", false)?;
    let mut y = imp.b.cast(x, dtype);
    for axis in axes.iter().rev() {
        let taps = match kernel {
            Kernel::Linear => linear_taps(imp, axis, align_corners, dtype)?,
            Kernel::Cubic(_) => cubic_taps(imp, axis, align_corners, dtype)?,
        };
        let mut total: Option<Value> = None;
        for (index, weight) in taps {
            let taken = imp.b.take(y, axis.dim, index)?;
            let weight = along(imp, weight, axis.dim, imp.b.rank(y))?;
            let part = imp.b.binary(Binary::Mul, taken, weight)?;
            total = Some(match total {
                Some(total) => imp.b.binary(Binary::Add, total, part)?,
                None => part,
            });
        }
        y = total.unwrap_or(y);
    }
    Ok(imp.b.cast(y, own).into())
}

/// Of integers, only uint8 is interpolated, in two dimensions.
fn whole_numbers(
    imp: &mut Importer,
    a: &Args,
    x: Value,
    axes: &[Axis],
    kernel: Kernel,
    antialias: bool,
) -> Result<Val> {
    let dtype = imp.b.dtype(x);
    if dtype != DType::U8 || axes.len() != 2 {
        return Err(a.unsupported(format!("interpolation of {dtype} in {} dimensions", axes.len())));
    }
    // Up to four channels have a kernel of their own.
    let many = Cond::compare(Compare::Gt, &imp.b.shape(x)[1], &Expr::int(4));
    let align_corners = a.bool_or("align_corners", false)?;
    let mut y = x;
    for axis in axes.iter().rev() {
        y = resize_bytes::resized(imp, a, y, axis, kernel, align_corners, antialias)?;
    }
    Ok(narrow_rows(imp, a, y, axes, &many)?.into())
}

/// A vector as a tensor of size 1 in all dimensions but one.
fn along(imp: &mut Importer, vector: Value, dim: usize, rank: usize) -> Result<Value> {
    let mut shape = vec![Expr::int(1); rank];
    shape[dim] = imp.b.shape(vector)[0].clone();
    imp.b.reshape(vector, shape)
}

/// The elements on both sides; an axis that keeps its size is left as it is.
fn linear_taps(imp: &mut Importer, axis: &Axis, align_corners: bool, dtype: DType) -> Result<Taps> {
    if axis.input == axis.output {
        return Ok(vec![]);
    }
    let last = &axis.input - 1;
    let mut position = positions(imp, axis, align_corners, dtype)?.maximum(0.0);
    if axis.scale.is_some() && !align_corners {
        let at = places(imp, axis, dtype);
        position = where_equal(imp, &axis.input, &axis.output, at, position);
    }
    let below = floor(imp, &position, &last, dtype);
    let share = (&position - &below).maximum(0.0).minimum(1.0);
    let first = below.cast(DType::I64).build(&mut imp.b)?;
    let next = imp.b.binary_scalar(Binary::Add, first, Scalar::Int(1))?;
    let last = imp.b.size_value(last);
    let next = imp.b.binary(Binary::Minimum, next, last)?;
    let share = share.build(&mut imp.b)?;
    let rest = (1.0 - Formula::from(share)).build(&mut imp.b)?;
    Ok(vec![(first, rest), (next, share)])
}

/// Four elements around, those past the ends repeated, with the weights of cubic convolution (Keys 1981) for a = -0.75.
fn cubic_taps(imp: &mut Importer, axis: &Axis, align_corners: bool, dtype: DType) -> Result<Taps> {
    let last = &axis.input - 1;
    let position = positions(imp, axis, align_corners, dtype)?.build(&mut imp.b)?;
    let position = Formula::from(position);
    let below = floor(imp, &position, &last, dtype).build(&mut imp.b)?;
    let share = (position - Formula::from(below)).maximum(0.0).minimum(1.0).build(&mut imp.b)?;
    let last = imp.b.size_value(last);
    let below = imp.b.cast(below, DType::I64);
    let mut taps = Vec::new();
    for (offset, weight) in (-1..).zip(cubic_weights(&Formula::from(share))) {
        let index = imp.b.binary_scalar(Binary::Add, below, Scalar::Int(offset))?;
        let index = imp.b.binary_scalar(Binary::Maximum, index, Scalar::Int(0))?;
        let index = imp.b.binary(Binary::Minimum, index, last)?;
        taps.push((index, weight.build(&mut imp.b)?));
    }
    Ok(taps)
}

/// The weights of the four elements around a place that is `t` past the second.
pub fn cubic_weights(t: &Formula) -> [Formula; 4] {
    let u = &(1.0 - t);
    [cubic_far(&(t + 1.0), -0.75), cubic_near(t, -0.75), cubic_near(u, -0.75), cubic_far(&(u + 1.0), -0.75)]
}

/// Cubic convolution at a distance of up to 1.
fn cubic_near(x: &Formula, a: f64) -> Formula {
    (x * (a + 2.0) - (a + 3.0)) * x * x + 1.0
}

/// Cubic convolution at a distance of 1 to 2.
fn cubic_far(x: &Formula, a: f64) -> Formula {
    ((x * a - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a
}

/// A filter that is widened when the result is smaller than the tensor.
struct Filter {
    /// How far it reaches to each side at scale 1.
    reach: i64,
    /// Its value at a distance, not negative.
    weight: fn(&Formula) -> Formula,
    /// Which it is where whole numbers are resized.
    kernel: Option<Kernel>,
}

const LINEAR: Filter =
    Filter { reach: 1, kernel: Some(Kernel::Linear), weight: |x| x.lt(1.0).select(1.0 - x, x.like(0.0)) };

/// Cubic convolution for a = -0.5.
const CUBIC: Filter = Filter {
    reach: 2,
    kernel: Some(Kernel::Cubic(-0.5)),
    weight: |x| x.lt(1.0).select(cubic_near(x, -0.5), x.lt(2.0).select(cubic_far(x, -0.5), x.like(0.0))),
};

/// A sinc under a sinc three times as wide (Duchon 1979).
const LANCZOS: Filter = Filter {
    reach: 3,
    kernel: None,
    weight: |x| {
        let angle = x * std::f64::consts::PI;
        let sinc = |angle: Formula| angle.eq(0.0).select(1.0, angle.sin() / &angle);
        let product = sinc(angle.clone()) * sinc(angle / 3.0);
        x.lt(3.0).select(&product, product.like(0.0))
    },
};

fn antialiased(imp: &mut Importer, a: &Args, filter: &Filter) -> Result<Val> {
    let (x, axes) = operand(imp, a)?;
    let own = imp.b.dtype(x);
    if !own.is_float() {
        let kernel = filter.kernel.ok_or_else(|| a.unsupported(format!("{own}")))?;
        return whole_numbers(imp, a, x, &axes, kernel, true);
    }
    let dtype = imp.compute_dtype(own);
    let align_corners = a.bool_or("align_corners", false)?;
    let mut y = imp.b.cast(x, dtype);
    for axis in axes.iter().rev().filter(|axis| axis.input != axis.output) {
        y = filtered(imp, y, axis, align_corners, filter)?;
    }
    y = narrow_rows(imp, a, y, &axes, &Cond::Bool(true))?;
    Ok(imp.b.cast(y, own).into())
}

/// PyTorch's separable kernels repeat the first row where the result is one element wide and changes its height, unless the tensor has its
/// channels last. They run where `when` holds.
fn narrow_rows(imp: &mut Importer, a: &Args, y: Value, axes: &[Axis], when: &Cond) -> Result<Value> {
    let [rows, columns] = axes else { return Ok(y) };
    let t = a.tensor(if a.has("input") { "input" } else { "self" })?;
    let channels_last = imp.strides_of(t).is_some_and(|strides| strides.get(1).is_some_and(|s| s.is_int(1)));
    let mut shape = imp.b.shape(y).to_vec();
    if channels_last && !shape[1].is_int(1) {
        return Ok(y);
    }
    let one = Expr::int(1);
    let repeats = Cond::compare(Compare::Eq, &columns.output, &one)
        .and(&Cond::compare(Compare::Ne, &rows.output, &rows.input))
        .and(when)
        .simplify(imp.b.ranges());
    if repeats.as_bool() == Some(false) {
        return Ok(y);
    }
    let mut map = coordinates(shape.len());
    map[rows.dim] = Expr::select(&repeats, &Expr::int(0), &map[rows.dim]);
    shape[rows.dim] = rows.output.clone();
    imp.b.remap(y, shape, map)
}

/// The most elements that a filter of this reach covers: both sides of the widened filter, and one.
fn most_elements(imp: &Importer, axis: &Axis, align_corners: bool, reach: i64) -> Expr {
    let widened = match axis.scale {
        Some(scale) if !align_corners => Expr::int((reach as f64 / scale).ceil() as i64),
        _ if align_corners => {
            let steps = (&axis.output - 1).maximum(&Expr::int(1));
            (&(&axis.input - 1) * reach).ceil_div(&steps)
        }
        _ => (&axis.input * reach).ceil_div(&axis.output.maximum(&Expr::int(1))),
    };
    (&(&widened.maximum(&Expr::int(reach)) * 2) + 1).simplify(imp.b.ranges())
}

/// Sums along an axis of the elements under the filter around each place, with weights that add up to 1.
fn filtered(imp: &mut Importer, x: Value, axis: &Axis, align_corners: bool, filter: &Filter) -> Result<Value> {
    let dtype = imp.b.dtype(x);
    let most = most_elements(imp, axis, align_corners, filter.reach);
    let mut ratio = ratio(imp, axis, align_corners, dtype)?;
    if axis.scale.is_some() && !align_corners {
        ratio = where_equal(imp, &axis.input, &axis.output, ratio.like(1.0), ratio);
    }
    let ratio = ratio.build(&mut imp.b)?;
    let widening = Formula::from(ratio).maximum(1.0);
    let support = &widening * filter.reach as f64;
    let shape = vec![axis.output.clone(), most.clone()];
    let place = imp.b.iota(shape.clone(), Expr::loop_var(0));
    let number = imp.b.iota(shape, Expr::loop_var(1));
    let center = Formula::from(ratio) * (Formula::from(place).cast(dtype) + 0.5);
    // The first element and the count of elements, cut to the axis.
    let size = Formula::from(size_as(imp, &axis.input, DType::I64));
    let first = (&center - &support + 0.5).cast(DType::I64).maximum(0.0);
    let end = (&center + &support + 0.5).cast(DType::I64).minimum(&size);
    let index = &first + Formula::from(number);
    let distance = ((index.cast(dtype) - &center + 0.5) / &widening).abs();
    let weight = (filter.weight)(&distance);
    let covered = index.lt(&end);
    let weight = covered.select(&weight, weight.like(0.0)).build(&mut imp.b)?;
    let total = imp.b.reduce_keep(Combine::Sum, weight, &[1])?;
    let total = Formula::from(total);
    let weight = (Formula::from(weight) / total.eq(0.0).select(total.like(1.0), &total)).build(&mut imp.b)?;
    let index = index.minimum(size - 1.0).build(&mut imp.b)?;
    // [..., output, elements, ...], then without the elements.
    let taken = imp.b.take(x, axis.dim, index)?;
    let mut wide = vec![Expr::int(1); imp.b.rank(taken)];
    wide[axis.dim] = axis.output.clone();
    wide[axis.dim + 1] = most;
    let weight = imp.b.reshape(weight, wide)?;
    let products = imp.b.binary(Binary::Mul, taken, weight)?;
    imp.b.reduce(Combine::Sum, products, &[axis.dim + 1])
}
