//! torchvision's operators on boxes: suppression of overlaps, and features of regions.

use douse_core::pointwise::{Binary, Combine};
use douse_core::sym::{Cond, Expr, Symbol};
use douse_core::{DType, Error, Result, Scalar};
use douse_ir::{Op, Value};

use super::args::{Args, Val};
use super::formula::Formula;
use super::importer::{Importer, Row};
use super::reduce::size_as;

pub const ROWS: &[Row] = &[("torchvision.nms.default", suppressed), ("torchvision.roi_align.default", region_features)];

/// The coordinates of boxes [n, 4], each [n]: left, top, right, bottom.
fn sides(imp: &mut Importer, boxes: Value) -> Result<[Formula; 4]> {
    let mut side = |d: i64| imp.b.select_index(boxes, 1, &Expr::int(d)).map(Formula::from);
    Ok([side(0)?, side(1)?, side(2)?, side(3)?])
}

/// Positions of the boxes that no better box overlaps by more than a threshold (intersection over union), the best first: int64 [kept].
fn suppressed(imp: &mut Importer, a: &Args) -> Result<Val> {
    let (boxes, scores) = (imp.value(a, "dets")?, imp.value(a, "scores")?);
    let dtype = imp.compute_dtype(imp.b.dtype(boxes));
    let boxes = imp.b.cast(boxes, dtype);
    let n = imp.b.shape(scores).first().cloned().ok_or_else(|| a.wrong("scores", "a vector"))?;
    let (_, order) = imp.b.sort(scores, true);
    // The boxes in that order, as rows and as columns of a table of pairs.
    let own = Expr::symbol(Symbol::Value(0));
    let index = imp.b.unsqueeze(order, 1)?;
    let sorted = vec![n.clone(), Expr::int(4)];
    let index = imp.b.expand(index, sorted.clone())?;
    let boxes = imp.b.move_(boxes, &[index], sorted, vec![own, Expr::loop_var(1)], Cond::Bool(true), Scalar::Int(0))?;
    let pairs = vec![n.clone(), n.clone()];
    let table = |imp: &mut Importer, d: usize| -> Result<[Formula; 4]> {
        let all = sides(imp, boxes)?;
        let mut out = Vec::new();
        for side in all {
            let side = side.build(&mut imp.b)?;
            out.push(Formula::from(imp.b.remap(side, pairs.clone(), vec![Expr::loop_var(d)])?));
        }
        out.try_into().map_err(|_| Error::internal("another number of sides"))
    };
    let ([left, top, right, bottom], [other_left, other_top, other_right, other_bottom]) =
        (table(imp, 0)?, table(imp, 1)?);
    let width = (right.minimum(&other_right) - left.maximum(&other_left)).maximum(0.0);
    let height = (bottom.minimum(&other_bottom) - top.maximum(&other_top)).maximum(0.0);
    let both = width * height;
    let areas = (&right - &left) * (&bottom - &top);
    let other_areas = (&other_right - &other_left) * (&other_bottom - &other_top);
    let overlap = &both / (areas + other_areas - &both);
    let over = overlap.cast(DType::F64).gt(a.float("iou_threshold")?).build(&mut imp.b)?;
    let (row, column) = (imp.b.iota(pairs.clone(), Expr::loop_var(0)), imp.b.iota(pairs, Expr::loop_var(1)));
    let later = imp.b.binary(Binary::Gt, column, row)?;
    let over = imp.b.binary(Binary::And, over, later)?;
    let kept = survivors(imp, over, &n)?;
    let (found, count) = imp.nonzero(kept)?;
    let found = imp.b.select_index(found, 1, &Expr::int(0))?;
    let own = Expr::symbol(Symbol::Value(0));
    Ok(imp.b.move_(order, &[found], vec![count], vec![own], Cond::Bool(true), Scalar::Int(0))?.into())
}

/// Going through the rows of a table [n, n] in turn: each that is still there strikes out the columns where it is true. Bool [n].
fn survivors(imp: &mut Importer, strikes: Value, n: &Expr) -> Result<Value> {
    let types = vec![(DType::I64, vec![]), (DType::Bool, vec![n.clone()])];
    let start = imp.scope_start();
    let params = imp.b.open_block(&types);
    let count = imp.b.size_value(n.clone());
    let more = imp.b.binary(Binary::Lt, params[0], count);
    let test = imp.b.close_block(more.iter().copied().collect());
    imp.close_scope(start);
    more?;
    let start = imp.scope_start();
    let params = imp.b.open_block(&types);
    let round = round(imp, strikes, n, params[0], params[1]);
    let body = imp.b.close_block(round.iter().flatten().copied().collect());
    imp.close_scope(start);
    round?;
    let first = imp.b.full(DType::I64, vec![], Scalar::Int(0));
    let all = imp.b.full(DType::Bool, vec![n.clone()], Scalar::Bool(true));
    let results = imp.b.push(Op::While { test, body }, vec![first, all], types);
    results.get(1).copied().ok_or_else(|| Error::internal("a loop without results"))
}

fn round(imp: &mut Importer, strikes: Value, n: &Expr, at: Value, kept: Value) -> Result<[Value; 2]> {
    let shape = vec![n.clone()];
    let index = imp.b.expand(at, shape.clone())?;
    let own = Expr::symbol(Symbol::Value(0));
    let (yes, none) = (Cond::Bool(true), Scalar::Int(0));
    let row = imp.b.move_(strikes, &[index], shape.clone(), vec![own.clone(), Expr::loop_var(0)], yes.clone(), none)?;
    let there = imp.b.move_(kept, &[index], shape, vec![own], yes, none)?;
    let struck = imp.b.binary(Binary::And, row, there)?;
    let kept = Formula::from(kept).and(Formula::from(struck).not()).build(&mut imp.b)?;
    Ok([imp.b.binary_scalar(Binary::Add, at, Scalar::Int(1))?, kept])
}

/// The two elements between which samples lie along an axis, their weights, and whether a sample counts; each [regions, bins, samples].
struct Samples {
    places: [Value; 2],
    weights: [Formula; 2],
    inside: Formula,
}

/// `count` points in each of `bins` equal parts of regions [n] from `from` to `to`, on an axis of `size` elements.
fn samples(
    imp: &mut Importer,
    (from, to): (&Formula, &Formula),
    at_least_one: bool,
    bins: i64,
    count: i64,
    size: &Expr,
) -> Result<Samples> {
    let (start, mut length) = (from.clone(), to - from);
    if at_least_one {
        length = length.maximum(1.0);
    }
    let column = |imp: &mut Importer, v: &Formula| -> Result<Formula> {
        let v = v.build(&mut imp.b)?;
        let n = imp.b.numel(v);
        Ok(imp.b.reshape(v, vec![n, Expr::int(1), Expr::int(1)])?.into())
    };
    let (start, bin) = (column(imp, &start)?, column(imp, &(length / bins as f64))?);
    let first = start.build(&mut imp.b)?;
    let dtype = imp.b.dtype(first);
    let numbers = |imp: &mut Importer, shape: [i64; 3], d: usize| -> Formula {
        let iota = imp.b.iota(shape.map(Expr::int).to_vec(), Expr::loop_var(d));
        imp.b.cast(iota, dtype).into()
    };
    let (p, g) = (numbers(imp, [1, bins, 1], 1), numbers(imp, [1, 1, count], 2));
    let at = start + p * &bin + (g + 0.5) * bin / count as f64;
    let limit = Formula::from(size_as(imp, size, dtype));
    let inside = at.ge(-1.0).and(at.le(&limit));
    let at = at.maximum(0.0);
    let last = imp.b.size_value(size - 1);
    let low = at.cast(DType::I64).maximum(Scalar::Int(0)).minimum(last);
    let high = (&low + &Formula::from(imp.b.full(DType::I64, vec![], Scalar::Int(1)))).minimum(last);
    // At and beyond the last element there is nothing to go towards.
    let beyond = (at - low.cast(dtype)).minimum(1.0);
    let beyond = low.ge(last).select(beyond.like(0.0), &beyond);
    let places = [low.build(&mut imp.b)?, high.build(&mut imp.b)?];
    Ok(Samples { places, weights: [1.0 - &beyond, beyond], inside })
}

/// The means of bilinear samples in the bins of regions: [regions, channels, height, width].
fn region_features(imp: &mut Importer, a: &Args) -> Result<Val> {
    let (input, regions) = (imp.value(a, "input")?, imp.value(a, "rois")?);
    let own = imp.b.dtype(input);
    let wide = imp.compute_dtype(own);
    let (input, regions) = (imp.b.cast(input, wide), imp.b.cast(regions, wide));
    let [batch, channels, height, width] =
        imp.b.shape(input).to_vec().try_into().map_err(|_| a.wrong("input", "of rank 4"))?;
    let (rows, columns, ratio) = (a.int("pooled_height")?, a.int("pooled_width")?, a.int("sampling_ratio")?);
    if ratio <= 0 {
        return Err(a.unsupported("a number of samples that depends on the size of a region"));
    }
    let (aligned, scale) = (a.bool_or("aligned", false)?, a.float("spatial_scale")?);
    let offset = if aligned { 0.5 } else { 0.0 };
    let side = |imp: &mut Importer, d: i64| -> Result<Formula> {
        let v = imp.b.select_index(regions, 1, &Expr::int(d))?;
        Ok(Formula::from(v) * scale - offset)
    };
    let (left, top, right, bottom) = (side(imp, 1)?, side(imp, 2)?, side(imp, 3)?, side(imp, 4)?);
    let y = samples(imp, (&top, &bottom), !aligned, rows, ratio, &height)?;
    let x = samples(imp, (&left, &right), !aligned, columns, ratio, &width)?;
    let count = imp.b.shape(regions)[0].clone();
    let image = imp.b.select_index(regions, 1, &Expr::int(0))?;
    let image = imp.b.cast(image, DType::I64);
    let message = imp.message("roi_align: a region of an image that is not there");
    let image = imp.b.check(image, batch, false, message)?;
    // Over [regions, channels, rows, columns, samples down, samples across].
    let (one, n) = (Expr::int(1), Expr::int(ratio));
    let (rows, columns) = (Expr::int(rows), Expr::int(columns));
    let whole = vec![count.clone(), channels, rows.clone(), columns.clone(), n.clone(), n.clone()];
    let spread = |imp: &mut Importer, v: Value, shape: Vec<Expr>| {
        let v = imp.b.reshape(v, shape)?;
        imp.b.expand(v, whole.clone())
    };
    let down = vec![count.clone(), one.clone(), rows, one.clone(), n.clone(), one.clone()];
    let across = vec![count.clone(), one.clone(), one.clone(), columns, one.clone(), n];
    let image = spread(imp, image, vec![count, one.clone(), one.clone(), one.clone(), one.clone(), one])?;
    let mut total: Option<Formula> = None;
    for (row, row_weight) in y.places.iter().zip(&y.weights) {
        for (column, column_weight) in x.places.iter().zip(&x.weights) {
            let at = [image, spread(imp, *row, down.clone())?, spread(imp, *column, across.clone())?];
            let place = |i: u32| Expr::symbol(Symbol::Value(i));
            let map = vec![place(0), Expr::loop_var(1), place(1), place(2)];
            let found = imp.b.move_(input, &at, whole.clone(), map, Cond::Bool(true), Scalar::Int(0))?;
            let (row_weight, column_weight) = (row_weight.build(&mut imp.b)?, column_weight.build(&mut imp.b)?);
            let row_weight = Formula::from(spread(imp, row_weight, down.clone())?);
            let weight = row_weight * Formula::from(spread(imp, column_weight, across.clone())?);
            let part = weight * Formula::from(found);
            total = Some(match total {
                Some(total) => total + part,
                None => part,
            });
        }
    }
    let total = total.ok_or_else(|| Error::internal("samples without neighbours"))?;
    let (above, beside) = (y.inside.build(&mut imp.b)?, x.inside.build(&mut imp.b)?);
    let inside = Formula::from(spread(imp, above, down)?).and(Formula::from(spread(imp, beside, across)?));
    let counted = inside.select(&total, total.like(0.0)).build(&mut imp.b)?;
    let sum = imp.b.reduce(Combine::Sum, counted, &[4, 5])?;
    imp.rounded(&(Formula::from(sum) / (ratio * ratio) as f64), own)
}
