//! Differences, gradients and integrals of samples.

use douse_core::pointwise::{Binary, Combine};
use douse_core::sym::{Compare, Cond, Expr};
use douse_core::{DType, Result, Scalar};
use douse_ir::{Value, coordinates};

use super::args::{Args, Number, Val};
use super::convert::converted;
use super::importer::{Importer, Row};
use super::pointwise::as_float;

pub const ROWS: &[Row] = &[
    ("aten.diff.default", diff),
    ("aten.gradient.scalarint", gradient),
    ("aten.gradient.scalararray", gradient),
    ("aten.gradient.array", gradient),
    ("aten.gradient.scalarrayint", gradient),
    ("aten.gradient.scalarrayarray", gradient),
    ("aten.gradient.tensorarray", gradient),
    ("aten.gradient.tensorarrayint", gradient),
    ("aten.trapezoid.dx", |i, a| trapezoid(i, a, false)),
    ("aten.trapezoid.x", |i, a| trapezoid(i, a, false)),
    ("aten.trapz.dx", |i, a| trapezoid(i, a, false)),
    ("aten.trapz.x", |i, a| trapezoid(i, a, false)),
    ("aten.cumulative_trapezoid.dx", |i, a| trapezoid(i, a, true)),
    ("aten.cumulative_trapezoid.x", |i, a| trapezoid(i, a, true)),
];

/// All but `low` first and `high` last elements of a dimension; none where there are not as many.
fn inner(imp: &mut Importer, x: Value, dim: usize, low: i64, high: i64) -> Result<Value> {
    let length = (&imp.b.shape(x)[dim] - (low + high)).maximum(&Expr::int(0)).simplify(imp.b.ranges());
    imp.b.slice(x, dim, &Expr::int(low), &Expr::int(1), length)
}

/// The element at a place of a dimension, which stays with size 1; a negative place counts from the end. 0 where there is none.
fn at(imp: &mut Importer, x: Value, dim: usize, place: i64) -> Result<Value> {
    let mut shape = imp.b.shape(x).to_vec();
    let size = std::mem::replace(&mut shape[dim], Expr::int(1));
    let start = if place < 0 { &size + place } else { Expr::int(place) };
    let inside = Cond::compare(Compare::Ge, &start, &Expr::int(0)).and(&Cond::compare(Compare::Lt, &start, &size));
    let mut map = coordinates(shape.len());
    map[dim] = start;
    imp.b.move_(x, &[], shape, map, inside, Scalar::Int(0))
}

/// Differences of neighbours, n times; of bools, whether they differ.
fn diff(imp: &mut Importer, a: &Args) -> Result<Val> {
    let dtype = imp.result_type(a, &["self", "prepend", "append"])?;
    let own = a.tensor("self")?;
    let rank = imp.shape_of(own)?.len();
    let dim = imp.dim(a, a.int_or("dim", -1)?, rank)?;
    let mut n = a.int_or("n", 1)?;
    let mut all = Vec::new();
    for name in ["prepend", "self", "append"] {
        let wanted = n > 0 || name == "self";
        if let (Some(t), true) = (a.opt_tensor(name)?, wanted) {
            let value = converted(imp, t, dtype)?;
            all.push(imp.result_value(value)?);
        }
    }
    let mut x = imp.b.concat(&all, dim)?;
    if let Some(size) = imp.b.shape(x).get(dim).and_then(Expr::as_int) {
        n = n.min(size);
    }
    let op = if dtype.is_bool() { Binary::Xor } else { Binary::Sub };
    for _ in 0..n {
        let (next, own) = (inner(imp, x, dim, 1, 0)?, inner(imp, x, dim, 0, 1)?);
        x = imp.b.binary(op, next, own)?;
    }
    Ok(if dtype.is_complex() { Val::Complex(x) } else { x.into() })
}

/// How far samples along a dimension lie apart.
enum Spacing {
    Even(Number),
    /// Coordinates, of one dimension.
    At(Value),
}

/// One derivative a dimension, by central differences inside and one-sided ones of `edge_order` at the ends.
fn gradient(imp: &mut Importer, a: &Args) -> Result<Val> {
    let x = imp.value(a, "self")?;
    let rank = imp.b.rank(x);
    let dims: Vec<usize> = match a.opt_ints("dim")? {
        Some(dims) => dims.iter().map(|d| imp.dim(a, *d, rank)).collect::<Result<_>>()?,
        None => (0..rank).collect(),
    };
    let mut spacings = Vec::new();
    match a.get("spacing") {
        None => spacings.resize_with(dims.len(), || Spacing::Even(Number::Scalar(Scalar::Int(1)))),
        Some(Val::List(list)) => {
            for item in list {
                spacings.push(match item {
                    Val::Tensor(t) => Spacing::At(imp.real(a, *t)?),
                    Val::Float(f) => Spacing::Even(Number::Scalar(Scalar::Float(*f))),
                    Val::Int(e) if e.as_int().is_some() => Spacing::Even(Number::Scalar(Scalar::Int(e.constant()))),
                    _ => return Err(a.wrong("spacing", "a list of numbers known when lowering or of tensors")),
                });
            }
        }
        Some(_) => {
            let number = a.number("spacing")?;
            spacings.resize_with(dims.len(), || Spacing::Even(number.clone()));
        }
    }
    if spacings.len() != dims.len() {
        return Err(a.wrong("spacing", "one for each dimension"));
    }
    let second = match a.int_or("edge_order", 1)? {
        1 => false,
        2 => true,
        _ => return Err(a.wrong("edge_order", "1 or 2")),
    };
    for dim in &dims {
        let enough = Cond::compare(Compare::Ge, &imp.b.shape(x)[*dim], &Expr::int(if second { 3 } else { 2 }));
        imp.require(enough, format_args!("gradient: too few samples along dimension {dim}"));
    }
    let mut all = Vec::new();
    for (dim, spacing) in dims.into_iter().zip(&spacings) {
        all.push(match spacing {
            Spacing::Even(step) => even_gradient(imp, x, dim, step, second)?,
            Spacing::At(coordinates) => uneven_gradient(imp, x, dim, *coordinates, second)?,
        });
    }
    Ok(all.into())
}

/// Differences are taken in the tensor's own dtype, then divided as floats.
fn even_gradient(imp: &mut Importer, x: Value, dim: usize, step: &Number, second: bool) -> Result<Value> {
    let over = |imp: &mut Importer, v: Value| {
        let v = as_float(imp, v);
        let step = imp.number_value(step, imp.b.dtype(v));
        imp.b.binary(Binary::Div, v, step)
    };
    let (ahead, behind) = (inner(imp, x, dim, 2, 0)?, inner(imp, x, dim, 0, 2)?);
    let span = imp.b.binary(Binary::Sub, ahead, behind)?;
    let slope = over(imp, span)?;
    let centre = imp.b.binary_scalar(Binary::Div, slope, Scalar::Int(2))?;
    let edge = |imp: &mut Importer, places: &[(i64, f64)]| {
        let mut total: Option<Value> = None;
        for (place, factor) in places {
            let v = at(imp, x, dim, *place)?;
            let v = as_float(imp, v);
            let term = imp.b.binary_scalar(Binary::Mul, v, Scalar::Float(*factor))?;
            total = Some(match total {
                Some(sum) => imp.b.binary(Binary::Add, sum, term)?,
                None => term,
            });
        }
        total.ok_or_else(|| douse_core::Error::internal("an edge of nothing"))
    };
    let (first, last) = if second {
        (edge(imp, &[(0, -1.5), (1, 2.0), (2, -0.5)])?, edge(imp, &[(-3, 0.5), (-2, -2.0), (-1, 1.5)])?)
    } else {
        let mut difference = |i: i64, j: i64| {
            let (x1, x0) = (at(imp, x, dim, i)?, at(imp, x, dim, j)?);
            imp.b.binary(Binary::Sub, x1, x0)
        };
        (difference(1, 0)?, difference(-1, -2)?)
    };
    let (first, last) = (over(imp, first)?, over(imp, last)?);
    imp.b.concat(&[first, centre, last], dim)
}

/// The derivative of the parabola through three neighbours, and at the ends of the line through two or the parabola through three.
fn uneven_gradient(imp: &mut Importer, x: Value, dim: usize, coordinates: Value, second: bool) -> Result<Value> {
    let mut kind = super::promote::ResultType::default();
    kind.tensor(imp.b.dtype(x), imp.b.rank(x)).tensor(imp.b.dtype(coordinates), 1);
    let dtype = kind.dtype();
    let dtype = if dtype.is_float() { dtype } else { DType::F32 };
    let x = imp.b.cast(x, dtype);
    let coordinates = imp.b.cast(coordinates, dtype);
    let (later, earlier) = (inner(imp, coordinates, 0, 1, 0)?, inner(imp, coordinates, 0, 0, 1)?);
    let steps = imp.b.binary(Binary::Sub, later, earlier)?;
    let rank = imp.b.rank(x);
    let along = |imp: &mut Importer, v: Value| {
        let mut shape = vec![Expr::int(1); rank];
        shape[dim] = imp.b.shape(v)[0].clone();
        imp.b.reshape(v, shape)
    };
    let (h1, h2) = (inner(imp, steps, 0, 0, 1)?, inner(imp, steps, 0, 1, 0)?);
    let (h1, h2) = (along(imp, h1)?, along(imp, h2)?);
    let three = [inner(imp, x, dim, 0, 2)?, inner(imp, x, dim, 1, 1)?, inner(imp, x, dim, 2, 0)?];
    let centre = parabola(imp, h1, h2, three, 1)?;
    let step = |imp: &mut Importer, place: i64| {
        let step = at(imp, steps, 0, place)?;
        along(imp, step)
    };
    let edge = |imp: &mut Importer, places: [i64; 3], end: usize| {
        let at_end = if end == 0 { 0 } else { -1 };
        if second {
            let (h1, h2) = if end == 0 { (step(imp, 0)?, step(imp, 1)?) } else { (step(imp, -2)?, step(imp, -1)?) };
            let three = [at(imp, x, dim, places[0])?, at(imp, x, dim, places[1])?, at(imp, x, dim, places[2])?];
            return parabola(imp, h1, h2, three, end);
        }
        let (i, j) = if end == 0 { (1, 0) } else { (-1, -2) };
        let (x1, x0) = (at(imp, x, dim, i)?, at(imp, x, dim, j)?);
        let difference = imp.b.binary(Binary::Sub, x1, x0)?;
        let step = step(imp, at_end)?;
        imp.b.binary(Binary::Div, difference, step)
    };
    let (first, last) = (edge(imp, [0, 1, 2], 0)?, edge(imp, [-3, -2, -1], 2)?);
    imp.b.concat(&[first, centre, last], dim)
}

/// The derivative at point 0, 1 or 2 of the parabola through three points that lie `h1` and `h2` apart (Lagrange's form).
fn parabola(imp: &mut Importer, h1: Value, h2: Value, points: [Value; 3], place: usize) -> Result<Value> {
    let b = &mut imp.b;
    let sum = b.binary(Binary::Add, h1, h2)?;
    let (left, middle, right) =
        (b.binary(Binary::Mul, h1, sum)?, b.binary(Binary::Mul, h1, h2)?, b.binary(Binary::Mul, h2, sum)?);
    let twice = |b: &mut douse_ir::Builder, x: Value| b.binary_scalar(Binary::Mul, x, Scalar::Int(2));
    let negative = |b: &mut douse_ir::Builder, x: Value| b.unary(douse_core::pointwise::Unary::Neg, x);
    let numerators = match place {
        0 => {
            let two = twice(b, h1)?;
            let first = b.binary(Binary::Add, two, h2)?;
            [negative(b, first)?, sum, negative(b, h1)?]
        }
        1 => [negative(b, h2)?, b.binary(Binary::Sub, h2, h1)?, h1],
        _ => {
            let two = twice(b, h2)?;
            [h2, negative(b, sum)?, b.binary(Binary::Add, two, h1)?]
        }
    };
    let mut total: Option<Value> = None;
    for ((numerator, denominator), point) in numerators.into_iter().zip([left, middle, right]).zip(points) {
        let factor = b.binary(Binary::Div, numerator, denominator)?;
        let term = b.binary(Binary::Mul, factor, point)?;
        total = Some(match total {
            Some(sum) => b.binary(Binary::Add, sum, term)?,
            None => term,
        });
    }
    total.ok_or_else(|| douse_core::Error::internal("a parabola through nothing"))
}

/// Integrals by the trapezoid rule along a dimension: the whole, or running from the second sample on. Steps round as the operators
/// would that PyTorch composes it of.
fn trapezoid(imp: &mut Importer, a: &Args, running: bool) -> Result<Val> {
    let y = imp.value(a, "y")?;
    let rank = imp.b.rank(y);
    let dim = imp.dim(a, a.int_or("dim", -1)?, rank)?;
    let width = match imp.opt_value(a, "x")? {
        Some(x) => {
            let x = samples(imp, x, rank, dim)?;
            let (later, earlier) = (inner(imp, x, dim, 1, 0)?, inner(imp, x, dim, 0, 1)?);
            Some(imp.b.binary(Binary::Sub, later, earlier)?)
        }
        None => None,
    };
    if imp.b.shape(y)[dim].is_int(0) {
        let mut shape = imp.b.shape(y).to_vec();
        if !running {
            shape.remove(dim);
        }
        return Ok(imp.b.full(imp.b.dtype(y), shape, Scalar::Int(0)).into());
    }
    let (left, right) = (inner(imp, y, dim, 0, 1)?, inner(imp, y, dim, 1, 0)?);
    let pairs = imp.b.binary(Binary::Add, left, right)?;
    if let Some(width) = width {
        let mut kind = super::promote::ResultType::default();
        kind.tensor(imp.b.dtype(pairs), rank).tensor(imp.b.dtype(width), imp.b.rank(width));
        let dtype = kind.dtype();
        let (pairs, width) = (imp.b.cast(pairs, dtype), imp.b.cast(width, dtype));
        let areas = imp.b.binary(Binary::Mul, pairs, width)?;
        let total = accumulated(imp, areas, dim, running)?;
        let total = as_float(imp, total);
        return Ok(imp.b.binary_scalar(Binary::Div, total, Scalar::Int(2))?.into());
    }
    let step = if a.has("dx") { a.number("dx")? } else { Number::Scalar(Scalar::Int(1)) };
    if running {
        let half = match &step {
            Number::Scalar(step) => Scalar::Float(step.to_f64() / 2.0),
            _ => return Err(a.unsupported("a step known only at run time")),
        };
        let pairs = as_float(imp, pairs);
        let areas = imp.b.binary_scalar(Binary::Mul, pairs, half)?;
        return Ok(accumulated(imp, areas, dim, true)?.into());
    }
    // The sum of all samples less half of both ends.
    let total = accumulated(imp, y, dim, false)?;
    let (first, last) = (at(imp, y, dim, 0)?, at(imp, y, dim, -1)?);
    let ends = imp.b.binary(Binary::Add, first, last)?;
    let ends = imp.b.squeeze(ends, dim)?;
    let (total, ends) = (as_float(imp, total), as_float(imp, ends));
    let half = imp.b.binary_scalar(Binary::Mul, ends, Scalar::Float(0.5))?;
    let rest = imp.b.binary(Binary::Sub, total, half)?;
    let step = imp.number_value(&step, imp.b.dtype(rest));
    Ok(imp.b.binary(Binary::Mul, rest, step)?.into())
}

/// Sample points of the rank of the samples: one row along `dim`, or of fewer leading dimensions.
fn samples(imp: &mut Importer, x: Value, rank: usize, dim: usize) -> Result<Value> {
    let own = imp.b.shape(x).to_vec();
    if own.len() >= rank {
        return Ok(x);
    }
    let mut shape = vec![Expr::int(1); rank];
    match own.as_slice() {
        [n] => shape[dim] = n.clone(),
        all => shape[rank - own.len()..].clone_from_slice(all),
    }
    imp.b.reshape(x, shape)
}

/// A sum, or running sums, along a dimension: integers in int64, half in float32 and rounded once.
fn accumulated(imp: &mut Importer, x: Value, dim: usize, running: bool) -> Result<Value> {
    let own = imp.b.dtype(x);
    let dtype = if own.is_float() { own } else { DType::I64 };
    let x = imp.b.cast(x, imp.compute_dtype(dtype));
    let total = if running { imp.b.scan(Combine::Sum, x, dim)? } else { imp.b.reduce(Combine::Sum, x, &[dim])? };
    Ok(imp.b.cast(total, dtype))
}
