//! How a kernel's loops become lanes and blocks.

use douse_program::kernel::{Access, Kernel};

use super::lanes::LANES;
use super::lower::{Lowered, LoweredEffect, NodeOp, Place};
use super::space::Space;

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

/// How a kernel's loops become lanes and blocks.
pub(crate) struct Nest {
    pub lanes_inner: Vec<bool>,
    pub block: usize,
    pub tiled: bool,
    pub lanes: usize,
}

impl Nest {
    pub fn choose(kernel: &Kernel, outer: &Space, inners: &[Space], stages: &[Lowered]) -> Nest {
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
        let lanes_inner: Vec<bool> = stages.iter().zip(inners).map(|(s, inner)| prefer(s, inner)).collect();
        let largest = inners.iter().map(|s| s.points).max().unwrap_or(1).max(1);
        // A block's rows stay in the caches from stage to stage.
        let mut block = if lanes_inner.contains(&true) { (8192 / largest).clamp(1, 64) } else { LANES };
        let mut lanes = LANES;
        if kernel.ordered {
            // Points one after the other, where more than one effect, or a load, could see the order.
            let updates: usize = stages.iter().map(|s| s.effects.len()).sum();
            let reads_updated = kernel.params.iter().enumerate().any(|(p, param)| {
                param.access == Access::Update
                    && stages
                        .iter()
                        .any(|s| s.nodes.iter().any(|n| matches!(n.op, NodeOp::Load { param, .. } if param == p)))
            });
            if updates > 1 || reads_updated {
                (block, lanes) = (1, 1);
            } else if stages.len() > 1 {
                block = 1;
            }
        }
        let last = outer.last();
        let strides = |place: &Place| outer_of.map_or(0, |of| place.affine.coefs[of].unsigned_abs());
        let crosses = |place: &Place| {
            strides(place) > 8 && outer.dims.iter().any(|d| (1..8).contains(&place.affine.coefs[d.of].unsigned_abs()))
        };
        // A transposition: tiles of both matrices fit the caches.
        let tiled = !kernel.ordered
            && !lanes_inner.contains(&true)
            && last >= 64
            && outer.dims.len() > 1
            && stages.iter().flat_map(places).any(crosses);
        if tiled {
            block = 128.min(last);
        }
        Nest { lanes_inner, block: block.min(outer.points.max(1)), tiled, lanes }
    }
}
