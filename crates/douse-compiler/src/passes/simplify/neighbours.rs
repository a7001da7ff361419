//! Concatenations of neighbours: what `unbind`, `split`, `chunk` or a loop over a tensor took apart, and `stack` or `cat` puts together again.
//!
//! A part is a *run* of a tensor: where its elements lie is a map of the tensor's dimensions at its first element along the concatenation, and *levels*,
//! each an extent and the steps it takes in every dimension, the outermost first. A part of one element has no levels, a slice has one. Two runs, one
//! behind the other, are one run where the second lies where the first would go on, or where both have the same levels and lie a constant step apart, which
//! then is an outer level of extent 2. The rows of an image, taken apart into points and put together, are runs of points, then a run of rows.
//!
//! Deliberately absent: parts whose maps are not affine along the concatenation, and those that are guarded or that data chooses.

use douse_core::Scalar;
use douse_core::sym::{Cond, Expr, Ranges, Symbol};
use douse_ir::{Builder, Node, Op, Value, coordinates};

use super::Rewrite;
use crate::passes::rebuild::Info;

/// Indices `0..extent`, each of which goes so many elements further in every dimension of the tensor.
#[derive(Clone, PartialEq)]
struct Level {
    extent: Expr,
    steps: Vec<Expr>,
}

/// One or more parts.
struct Run {
    /// The tensor; or the part itself, where it is not known to be of another.
    of: Value,
    /// Of the first element, over the coordinates of the other dimensions; `None` where the part is not known to be of another tensor.
    first: Option<Vec<Expr>>,
    levels: Vec<Level>,
    /// The part alone.
    part: Value,
    parts: usize,
}

impl Run {
    fn of(b: &Builder, part: Value, dim: usize) -> Run {
        let alone = || Run { of: part, first: None, levels: vec![], part, parts: 1 };
        let shape = b.shape(part);
        let Some(extent) = shape.get(dim) else { return alone() };
        let (of, map) = match b.definition(part) {
            Some(Node { op: Op::Move { map, guard, .. }, operands, .. })
                if operands.len() == 1 && guard.as_bool() == Some(true) =>
            {
                (operands[0], map.clone())
            }
            _ => (part, coordinates(shape.len())),
        };
        let Some(affine) = map.iter().map(|e| e.affine(Symbol::Loop(dim as u32))).collect::<Option<Vec<_>>>() else {
            return alone();
        };
        let (steps, first): (Vec<_>, Vec<_>) = affine.into_iter().unzip();
        if steps.iter().any(|step| step.as_int().is_none()) {
            return alone();
        }
        let levels = if extent.is_int(1) { vec![] } else { vec![Level { extent: extent.clone(), steps }] };
        Run { of, first: Some(first), levels, part, parts: 1 }
    }

    /// Takes a run that lies behind this one, where both are one.
    fn take(&mut self, next: &Run, ranges: &Ranges) -> bool {
        let (Some(first), Some(then)) = (&self.first, &next.first) else { return false };
        if self.of != next.of || first.len() != then.len() {
            return false;
        }
        let apart: Vec<Expr> = first.iter().zip(then).map(|(a, b)| (b - a).simplify(ranges)).collect();
        let one = Expr::int(1);
        let longer = match (self.levels.as_slice(), next.levels.as_slice()) {
            // The second goes on where the first ends: by another of its outer steps, or by several.
            ([outer, inner @ ..], levels)
                if levels == inner
                    || levels.split_first().is_some_and(|(l, rest)| l.steps == outer.steps && rest == inner) =>
            {
                let goes_on = apart
                    .iter()
                    .zip(&outer.steps)
                    .all(|(apart, step)| *apart == (step * &outer.extent).simplify(ranges));
                let more = if levels == inner { &one } else { &levels[0].extent };
                goes_on
                    .then(|| Level { extent: &outer.extent + more, steps: outer.steps.clone() })
                    .map(|level| (level, 1))
            }
            _ => None,
        };
        let alike = self.levels == next.levels && self.levels.iter().all(|level| level.extent.as_int().is_some());
        let twice = || {
            (alike && apart.iter().all(|step| step.as_int().is_some()))
                .then(|| (Level { extent: Expr::int(2), steps: apart.clone() }, 0))
        };
        let Some((level, replaced)) = longer.or_else(twice) else { return false };
        self.levels.splice(..replaced, [level]);
        self.parts += next.parts;
        true
    }

    /// The run as a value.
    fn build(&self, b: &mut Builder, dim: usize) -> douse_core::Result<Value> {
        let (Some(first), 2..) = (&self.first, self.parts) else { return Ok(self.part) };
        let mut map = first.clone();
        let mut shape = b.shape(self.part).to_vec();
        let mut inside = Expr::int(1);
        for (number, level) in self.levels.iter().enumerate().rev() {
            let at = Expr::loop_var(dim).floor_div(&inside);
            let at = if number == 0 { at } else { at.modulo(&level.extent) };
            map.iter_mut().zip(&level.steps).for_each(|(place, step)| *place = &*place + &(&at * step));
            inside = &inside * &level.extent;
        }
        shape[dim] = inside;
        b.move_(self.of, &[], shape, map, Cond::Bool(true), Scalar::Int(0))
    }
}

/// concat(x[f], x[g]) = x[h], where h goes on as f begins, and as g does; concat(x) = x, concat(x, empty) = x
pub(super) fn concat(b: &mut Builder, node: &Node, infos: &[Info]) -> Rewrite {
    let (Op::Concat { dim }, [(_, shape)]) = (&node.op, infos) else { return Ok(None) };
    let empty = |v: &Value| b.shape(*v).get(*dim).is_some_and(|s| s.is_int(0));
    let mut parts: Vec<Value> = node.operands.iter().copied().filter(|v| !empty(v)).collect();
    if parts.is_empty() {
        parts.extend(node.operands.first());
    }
    let ranges = b.ranges().with_loops(shape);
    let mut runs: Vec<Run> = parts.iter().map(|part| Run::of(b, *part, *dim)).collect();
    // Runs of elements are those of which runs of runs are made.
    loop {
        let before = runs.len();
        let mut joined: Vec<Run> = Vec::with_capacity(before);
        for run in runs {
            if !joined.last_mut().is_some_and(|last| last.take(&run, &ranges)) {
                joined.push(run);
            }
        }
        runs = joined;
        if runs.len() == before {
            break;
        }
    }
    if runs.len() == node.operands.len() && runs.len() > 1 {
        return Ok(None);
    }
    let values = runs.iter().map(|run| run.build(b, *dim)).collect::<douse_core::Result<Vec<_>>>()?;
    b.concat(&values, *dim).map(|v| Some(vec![v]))
}
