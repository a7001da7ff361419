//! Sampling of images and volumes at the places of a grid, and grids of affine maps.

use douse_core::pointwise::Binary;
use douse_core::sym::{Compare, Cond, Expr, Symbol};
use douse_core::{DType, Error, Result, Scalar};
use douse_ir::Value;

use super::args::{Args, Val};
use super::formula::Formula;
use super::importer::{Importer, Row};
use super::reduce::size_as;
use super::resize::cubic_weights;

pub const ROWS: &[Row] = &[
    ("aten.grid_sampler.default", grid_sampler),
    ("aten.grid_sampler_2d.default", grid_sampler),
    ("aten.grid_sampler_3d.default", grid_sampler),
    ("aten._grid_sampler_2d_cpu_fallback.default", grid_sampler),
    ("aten.affine_grid_generator.default", affine_grid),
];

/// What stands for elements past the ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Padding {
    Zeros,
    Border,
    Reflection,
}

/// A sampling: the input [batch, channels, spatial...] in its compute dtype, and how places are read.
struct Sampler {
    input: Value,
    padding: Padding,
    align_corners: bool,
}

/// Modes by number: linear, nearest, cubic; paddings: zeros, border, reflection. The grid is [batch, places..., coordinates], of
/// which the first is along the last dimension.
fn grid_sampler(imp: &mut Importer, a: &Args) -> Result<Val> {
    let (input, grid) = (imp.value(a, "input")?, imp.value(a, "grid")?);
    let padding = match a.int("padding_mode")? {
        0 => Padding::Zeros,
        1 => Padding::Border,
        2 => Padding::Reflection,
        other => return Err(a.unsupported(format!("padding mode {other}"))),
    };
    let own = imp.b.dtype(input);
    if !own.is_float() || imp.b.dtype(grid) != own {
        return Err(a.unsupported("sampling of and by other tensors than floats of one dtype"));
    }
    let dtype = imp.compute_dtype(own);
    let (input, grid) = (imp.b.cast(input, dtype), imp.b.cast(grid, dtype));
    let spatial = imp.b.rank(input).saturating_sub(2);
    if imp.b.rank(grid) != spatial + 2 || !(1..=3).contains(&spatial) {
        return Err(a.wrong("grid", "of the input's rank"));
    }
    let shape = imp.b.shape(input).to_vec();
    imp.require_filled(&shape[2..], "grid_sample");
    let sampler = Sampler { input, padding, align_corners: a.bool_or("align_corners", false)? };
    let mut places = Vec::new();
    for d in 0..spatial {
        let coordinate = imp.b.select_index(grid, spatial + 1, &Expr::int((spatial - 1 - d) as i64))?;
        places.push(sampler.unnormalized(imp, &Formula::from(coordinate), d));
    }
    let result = match a.int("interpolation_mode")? {
        0 => sampler.linear(imp, places)?,
        1 => sampler.nearest(imp, places)?,
        2 => sampler.cubic(imp, places)?,
        other => return Err(a.unsupported(format!("interpolation mode {other}"))),
    };
    Ok(imp.b.cast(result, own).into())
}

/// The input [batch, channels, spatial...] at places given in elements, one [batch, places...] for each spatial dimension; zeros outside.
pub(super) fn bilinear(imp: &mut Importer, input: Value, places: Vec<Formula>) -> Result<Value> {
    Sampler { input, padding: Padding::Zeros, align_corners: false }.linear(imp, places)
}

impl Sampler {
    fn dtype(&self, imp: &Importer) -> DType {
        imp.b.dtype(self.input)
    }

    fn size(&self, imp: &Importer, d: usize) -> Expr {
        imp.b.shape(self.input)[d + 2].clone()
    }

    fn size_formula(&self, imp: &mut Importer, d: usize) -> Formula {
        let (size, dtype) = (self.size(imp, d), self.dtype(imp));
        size_as(imp, &size, dtype).into()
    }

    /// From [-1, 1] to elements: the ends are the centers of the outer elements, or their outer edges.
    fn unnormalized(&self, imp: &mut Importer, place: &Formula, d: usize) -> Formula {
        let size = self.size_formula(imp, d);
        match self.align_corners {
            true => (place + 1.0) / 2.0 * (size - 1.0),
            false => ((place + 1.0) * size - 1.0) / 2.0,
        }
    }

    /// The place within the input that stands for one outside.
    fn padded(&self, imp: &mut Importer, place: &Formula, d: usize) -> Formula {
        let size = self.size_formula(imp, d);
        let last = &size - 1.0;
        match self.padding {
            Padding::Zeros => place.clone(),
            // In this order NaN is read as the first element.
            Padding::Border => last.minimum(place.binary(Binary::Fmax, 0.0)),
            Padding::Reflection => {
                let (low, span) = if self.align_corners { (0.0, last.clone()) } else { (-0.5, size) };
                let distance = (place - low).abs();
                let extra = distance.binary(Binary::Fmod, &span);
                let flips = (&distance / &span).floor();
                let even = (&flips - (&flips * 0.5).floor() * 2.0).eq(0.0);
                let reflected = even.select(&extra + low, &span - &extra + low);
                let reflected = span.eq(0.0).select(span.like(0.0), reflected);
                last.minimum(reflected.binary(Binary::Fmax, 0.0))
            }
        }
    }

    /// The input's elements at whole places, [batch, channels, places...]; zeros outside.
    fn elements(&self, imp: &mut Importer, places: &[Formula]) -> Result<Value> {
        let shape = imp.b.shape(self.input).to_vec();
        let mut indices = Vec::new();
        let mut wide = shape[..2].to_vec();
        let mut map = vec![Expr::loop_var(0), Expr::loop_var(1)];
        let mut guard = Cond::Bool(true);
        for (d, place) in places.iter().enumerate() {
            let index = place.build(&mut imp.b)?;
            if d == 0 {
                wide.extend_from_slice(&imp.b.shape(index)[1..]);
            }
            let index = imp.b.cast(index, DType::I64);
            indices.push(self.over_channels(imp, index, &wide)?);
            let at = Expr::symbol(Symbol::Value(d as u32));
            guard = guard.and(&Cond::compare(Compare::Ge, &at, &Expr::int(0))).and(&Cond::compare(
                Compare::Lt,
                &at,
                &shape[d + 2],
            ));
            map.push(at);
        }
        imp.b.move_(self.input, &indices, wide, map, guard, Scalar::Int(0))
    }

    /// [batch, places...] as [batch, channels, places...].
    fn over_channels(&self, imp: &mut Importer, x: Value, wide: &[Expr]) -> Result<Value> {
        let map = (0..imp.b.rank(x)).map(|d| Expr::loop_var(if d == 0 { 0 } else { d + 1 })).collect();
        imp.b.remap(x, wide.to_vec(), map)
    }

    /// The sum of elements at places times weights [batch, places...].
    fn weigh(&self, imp: &mut Importer, parts: Vec<(Value, Formula)>) -> Result<Value> {
        let mut total: Option<Value> = None;
        for (element, weight) in parts {
            let weight = weight.build(&mut imp.b)?;
            let wide = imp.b.shape(element).to_vec();
            let weight = self.over_channels(imp, weight, &wide)?;
            let part = imp.b.binary(Binary::Mul, element, weight)?;
            total = Some(match total {
                Some(total) => imp.b.binary(Binary::Add, total, part)?,
                None => part,
            });
        }
        total.ok_or_else(|| Error::internal("a weighted sum of nothing"))
    }

    /// The element next to each place; halves go to the even one.
    fn nearest(&self, imp: &mut Importer, places: Vec<Formula>) -> Result<Value> {
        let mut whole = Vec::new();
        for (d, place) in places.iter().enumerate() {
            whole.push(self.padded(imp, place, d).round());
        }
        self.elements(imp, &whole)
    }

    /// The corners around each place, weighted by how near they are in each dimension.
    fn linear(&self, imp: &mut Importer, places: Vec<Formula>) -> Result<Value> {
        let mut sides = Vec::new();
        for (d, place) in places.iter().enumerate() {
            let place = Formula::from(self.padded(imp, place, d).build(&mut imp.b)?);
            let below = Formula::from(place.floor().build(&mut imp.b)?);
            let share = Formula::from((&place - &below).build(&mut imp.b)?);
            sides.push([(below.clone(), 1.0 - &share), (below + 1.0, share)]);
        }
        let mut parts = Vec::new();
        for corner in 0..1usize << sides.len() {
            // The last dimension changes first.
            let chosen: Vec<&(Formula, Formula)> =
                sides.iter().enumerate().map(|(d, side)| &side[(corner >> (sides.len() - 1 - d)) & 1]).collect();
            let at: Vec<Formula> = chosen.iter().map(|(at, _)| at.clone()).collect();
            let weight = chosen.iter().rev().map(|(_, w)| w.clone()).reduce(|a, b| a * b);
            let weight = weight.ok_or_else(|| Error::internal("a sample without dimensions"))?;
            parts.push((self.elements(imp, &at)?, weight));
        }
        self.weigh(imp, parts)
    }

    /// Four elements around each place in each dimension, by cubic convolution; padding is by element.
    fn cubic(&self, imp: &mut Importer, places: Vec<Formula>) -> Result<Value> {
        let mut axes = Vec::new();
        for (d, place) in places.iter().enumerate() {
            let place = Formula::from(place.build(&mut imp.b)?);
            let below = Formula::from(place.floor().build(&mut imp.b)?);
            let share = Formula::from((&place - &below).build(&mut imp.b)?);
            let mut taps = Vec::new();
            for (offset, weight) in [-1.0, 0.0, 1.0, 2.0].into_iter().zip(cubic_weights(&share)) {
                let at = self.padded(imp, &(&below + offset), d).build(&mut imp.b)?;
                taps.push((Formula::from(at).trunc(), Formula::from(weight.build(&mut imp.b)?)));
            }
            axes.push(taps);
        }
        self.cubic_from(imp, &axes, &mut Vec::new())
    }

    /// The interpolation over the dimensions that are left, for the places chosen in those before.
    fn cubic_from(
        &self,
        imp: &mut Importer,
        axes: &[Vec<(Formula, Formula)>],
        chosen: &mut Vec<Formula>,
    ) -> Result<Value> {
        let Some((axis, rest)) = axes.split_first() else { return self.elements(imp, chosen) };
        let mut parts = Vec::new();
        for (at, weight) in axis {
            chosen.push(at.clone());
            parts.push((self.cubic_from(imp, rest, chosen)?, weight.clone()));
            chosen.pop();
        }
        self.weigh(imp, parts)
    }
}

/// theta [batch, d, d + 1] times (x, y, ..., 1) for every place of a result of `size`, [batch, spatial..., d].
fn affine_grid(imp: &mut Importer, a: &Args) -> Result<Val> {
    let theta = imp.value(a, "theta")?;
    let size = a.exprs("size")?;
    let align_corners = a.bool_or("align_corners", false)?;
    let own = imp.b.dtype(theta);
    let spatial = size.len().saturating_sub(2);
    let (dtype, rank) = (imp.compute_dtype(own), spatial + 2);
    let theta = imp.b.cast(theta, dtype);
    let mut shape = vec![size[0].clone()];
    shape.extend_from_slice(&size[2..]);
    shape.push(Expr::int(spatial as i64));
    let column = |imp: &mut Importer, k: usize| {
        let map = vec![Expr::loop_var(0), Expr::loop_var(rank - 1), Expr::int(k as i64)];
        imp.b.remap(theta, shape.clone(), map).map(Formula::from)
    };
    let mut total = column(imp, spatial)?;
    for k in (0..spatial).rev() {
        let d = spatial - 1 - k;
        let base = base_places(imp, &size[d + 2], align_corners, dtype)?;
        let base = imp.b.remap(base, shape.clone(), vec![Expr::loop_var(d + 1)])?;
        total = column(imp, k)? * Formula::from(base) + total;
    }
    let grid = total.build(&mut imp.b)?;
    Ok(imp.b.cast(grid, own).into())
}

/// Places from -1 to 1, the centers of the outer elements at the ends or half an element within; 0 for one.
fn base_places(imp: &mut Importer, size: &Expr, align_corners: bool, dtype: DType) -> Result<Value> {
    let at = imp.b.iota(vec![size.clone()], Expr::loop_var(0));
    let at = Formula::from(imp.b.cast(at, dtype));
    let count = Formula::from(size_as(imp, size, dtype));
    let steps = (&count - 1.0).maximum(1.0);
    let step = 2.0 / &steps;
    // Counted from the nearer end, as `linspace` does.
    let half = size_as(imp, &size.floor_div(&Expr::int(2)), dtype);
    let line = at.lt(Formula::from(half)).select(&step * &at - 1.0, 1.0 - &step * (&count - &at - 1.0));
    let line = count.le(1.0).select(line.like(0.0), line);
    let line = if align_corners { line } else { line * (&count - 1.0) / &count };
    line.build(&mut imp.b)
}
