//! How a kernel's loops become lanes and blocks.

use douse_program::kernel::{Access, Kernel};

use super::bind::BoundStage;
use super::lanes::LANES;
use super::lower::{Lowered, LoweredEffect, NodeOp, Place};
use super::space::{Dim, Space};

/// Places of elements that a stage loads and stores.
fn places(stage: &Lowered) -> impl Iterator<Item = &Place> {
    let loads = stage.nodes.iter().filter_map(|node| match &node.op {
        NodeOp::Load { place, .. } => Some(place),
        _ => None,
    });
    loads.chain(stage.effects.iter().flat_map(LoweredEffect::writes).map(|(_, place)| place))
}

/// What an access costs a lane, by its stride.
fn stride_cost(stride: i64) -> f64 {
    match stride.unsigned_abs() {
        0 => 0.2,
        1 => 1.0,
        2..=8 => 2.0,
        _ => 5.0,
    }
}

/// What a lane costs, where lanes run in runs of `run` through the loop `of`, `lanes` at once.
fn lane_cost<'a>(places: impl Iterator<Item = &'a Place>, of: Option<usize>, run: usize, lanes: usize) -> f64 {
    const STEP: f64 = 30.0;
    const RUN: f64 = 16.0;
    let lanes = lanes.max(1) as f64;
    let per_access = RUN / run.clamp(1, LANES) as f64;
    let accesses: f64 = places
        .map(|place| {
            let stride = of.map_or(0, |of| place.affine.coefs[of]);
            per_access + if place.extra.is_some() { 3.0 } else { stride_cost(stride) }
        })
        .sum();
    accesses + STEP / lanes
}

/// Puts the dimension last that lanes run through best; the others keep their order.
pub(crate) fn bring_best_last(outer: &mut Space, stages: &[Lowered]) {
    let cost = |d: usize| {
        let dim = outer.dims[d];
        let size = dim.size as usize;
        stages.iter().map(|s| lane_cost(places(s), Some(dim.of), size, size.min(LANES))).sum::<f64>()
    };
    let Some(last) = outer.dims.len().checked_sub(1) else { return };
    let mut best = (last, cost(last));
    for d in 0..last {
        let cost = cost(d);
        if cost < best.1 * 0.8 {
            best = (d, cost);
        }
    }
    let dim = outer.dims.remove(best.0);
    outer.dims.push(dim);
}

/// In what order outer points are taken, and what a block of them is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// In row-major order, blocks of as many points each.
    Flat,
    /// In row-major order, blocks that lie within the last dimension.
    Rows,
    /// Blocks within the last dimension, those of one range of it one after the other: tiles.
    Tiles,
}

/// By stage: whether lanes run through its inner points.
pub(crate) fn lanes_inner(kernel: &Kernel, outer: &Space, inners: &[Space], stages: &[Lowered]) -> Vec<bool> {
    let outer_of = outer.dims.last().map(|d| d.of);
    let prefer = |stage: &Lowered, inner: &Space| {
        if inner.points <= 1 {
            return false;
        }
        if kernel.ordered {
            return true;
        }
        let of = inner.dims.last().map(|d| d.of);
        let along_inner = lane_cost(places(stage), of, inner.last(), inner.points.min(LANES));
        let along_outer = lane_cost(places(stage), outer_of, outer.last(), outer.points.min(LANES));
        along_inner <= along_outer
    };
    stages.iter().zip(inners).map(|(s, inner)| prefer(s, inner)).collect()
}

/// Whether an ordered kernel has to take point after point: where more than one effect, or a load, could see the order.
fn sees_order(kernel: &Kernel, stages: &[Lowered]) -> bool {
    let effects: usize = stages.iter().map(|s| s.effects.len()).sum();
    let updated = |p: usize| kernel.params.get(p).is_some_and(|param| param.access == Access::Update);
    let mut nodes = stages.iter().flat_map(|s| &s.nodes);
    kernel.ordered && (effects > 1 || nodes.any(|n| matches!(n.op, NodeOp::Load { param, .. } if updated(param))))
}

/// Most lanes at once, where a lane takes that many bytes of registers: they should fit the first-level cache.
pub(crate) fn lanes(kernel: &Kernel, stages: &[Lowered], bytes: usize) -> usize {
    const CACHE: usize = 40 * 1024;
    if sees_order(kernel, stages) { 1 } else { (CACHE / bytes.max(1)).clamp(256, LANES) / 64 * 64 }
}

/// A number of lanes, at most `most`, that `points` divide into evenly.
pub(crate) fn even(points: usize, most: usize) -> usize {
    let parts = points.div_ceil(most).max(1);
    points.div_ceil(parts).next_multiple_of(16).min(most).max(1)
}

/// How outer points become blocks: their order, and the points of a block.
pub(crate) fn blocks(
    kernel: &Kernel,
    outer: &Space,
    stages: &[Lowered],
    bound: &[BoundStage],
    lanes: usize,
) -> (Order, usize) {
    let points = outer.points.max(1);
    if sees_order(kernel, stages) || kernel.ordered && stages.len() > 1 {
        return (Order::Flat, 1);
    }
    if bound.iter().any(|s| s.lanes_inner) {
        // A block's rows stay in the caches from stage to stage.
        let largest = bound.iter().map(|s| s.inner.points).max().unwrap_or(1).max(1);
        return (Order::Flat, (8192 / largest).clamp(1, 64).min(points));
    }
    let last = outer.last();
    let Some(of) = outer.dims.last().map(|d| d.of).filter(|_| outer.dims.len() > 1) else {
        return (Order::Flat, even(points, lanes));
    };
    // A transposition: what is read across rows comes again with the next rows.
    let crosses = |place: &Place| {
        let near = |d: &Dim| (1..8).contains(&place.affine.coefs[d.of].unsigned_abs());
        place.affine.coefs[of].unsigned_abs() > 8 && outer.dims.iter().any(near)
    };
    if !kernel.ordered && last >= 64 && stages.iter().flat_map(places).any(crosses) {
        return (Order::Tiles, even(last, 128));
    }
    // Within a row, what does not change along it is one value for all lanes.
    let constant = |place: &Place| place.extra.is_some() || place.affine.coefs[of] == 0;
    if last >= 256 || last >= 96 && stages.iter().flat_map(places).any(constant) {
        return (Order::Rows, even(last, lanes));
    }
    (Order::Flat, even(points, lanes))
}
