//! Whether threads may share a kernel's outer points: shown on the numbers, or the kernel runs on one thread.

use douse_program::kernel::{Access, Kernel};

use super::lower::{Lowered, LoweredEffect, NodeOp, Place};
use super::space::Space;
use crate::memory::Region;

/// How a kernel reaches a parameter that it writes, or that shares memory with one.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Reach {
    base: i64,
    /// Coefficients of the outer dimensions.
    outer: Vec<i64>,
    /// Coefficients and sizes of the inner loops.
    inner: Vec<(i64, i64)>,
}

/// All accesses of a kernel, by parameter. `None`: some access has no affine index.
#[derive(Clone, Debug)]
pub(crate) struct Accesses {
    sizes: Vec<i64>,
    params: Vec<Option<Vec<Reach>>>,
    element: Vec<usize>,
    written: Vec<bool>,
    ordered: bool,
}

impl Accesses {
    pub fn of(kernel: &Kernel, stages: &[Lowered], outer_loops: usize, outer: &Space) -> Accesses {
        let mut params = vec![Some(Vec::new()); kernel.params.len()];
        let mut note = |param: usize, place: &Place, inner: &[i64]| {
            let Some(slot) = params.get_mut(param) else { return };
            let affine = &place.affine;
            let reach = Reach {
                base: affine.base,
                outer: outer.coefs(affine),
                inner: affine.coefs.iter().skip(outer_loops).copied().zip(inner.iter().copied()).collect(),
            };
            match slot {
                Some(known) if place.extra.is_none() => {
                    if !known.contains(&reach) {
                        known.push(reach);
                    }
                }
                _ => *slot = None,
            }
        };
        for stage in stages {
            for node in &stage.nodes {
                if let NodeOp::Load { param, place, .. } = &node.op {
                    note(*param, place, &stage.inner);
                }
            }
            for (param, place) in stage.effects.iter().flat_map(LoweredEffect::writes) {
                note(param, place, &stage.inner);
            }
        }
        Accesses {
            sizes: outer.dims.iter().map(|d| d.size).collect(),
            params,
            element: kernel.params.iter().map(|p| p.dtype.size()).collect(),
            written: kernel.params.iter().map(|p| p.access != Access::Read).collect(),
            ordered: kernel.ordered,
        }
    }

    /// Whether no element that is written for one outer point is read or written for another, given where parameters lie.
    pub fn parallel(&self, regions: &[Region]) -> bool {
        !self.ordered && (0..regions.len()).all(|p| !self.written[p] || self.apart(p, regions))
    }

    fn apart(&self, param: usize, regions: &[Region]) -> bool {
        let mut reaches: Vec<&Reach> = Vec::new();
        for (other, region) in regions.iter().enumerate() {
            if other != param && !region.overlaps(&regions[param]) {
                continue;
            }
            // The same memory under another name, or a part of it under other numbers.
            if !region.begins_with(&regions[param]) || self.element[other] != self.element[param] {
                return false;
            }
            let Some(known) = &self.params[other] else { return false };
            reaches.extend(known);
        }
        let Some(first) = reaches.first() else { return true };
        if reaches.iter().any(|r| r.outer != first.outer) {
            return false;
        }
        reaches.iter().all(|r| *r == *first) && self.injective(first, &[])
            || self.windows(&reaches)
            || self.shifted(&reaches)
    }

    /// Whether different outer points always have different elements, with further inner loops.
    fn injective(&self, reach: &Reach, further: &[(i64, i64)]) -> bool {
        let outer = reach.outer.iter().zip(&self.sizes).map(|(c, s)| (c.unsigned_abs(), *s, true));
        let inner = reach.inner.iter().chain(further).map(|(c, s)| (c.unsigned_abs(), *s, false));
        let mut dims: Vec<(u64, i64, bool)> = outer.chain(inner).filter(|(_, size, _)| *size > 1).collect();
        dims.sort_unstable();
        let mut span = 0u64;
        for (coefficient, size, outer) in dims {
            if coefficient == 0 && !outer {
                continue;
            }
            if coefficient <= span {
                return false;
            }
            span = span.saturating_add(coefficient.saturating_mul(size as u64 - 1));
        }
        true
    }

    /// Whether all that a point reaches lies in a window that the next point's begins after.
    fn windows(&self, reaches: &[&Reach]) -> bool {
        let ends = reaches.iter().map(|r| {
            let (mut low, mut high) = (r.base, r.base);
            for (c, size) in &r.inner {
                let end = c.saturating_mul((size - 1).max(0));
                low = low.saturating_add(end.min(0));
                high = high.saturating_add(end.max(0));
            }
            (low, high)
        });
        let (low, high) = ends.fold((i64::MAX, i64::MIN), |(l, h), (low, high)| (l.min(low), h.max(high)));
        let Some(first) = reaches.first() else { return true };
        let window = Reach { base: low, outer: first.outer.clone(), inner: vec![(1, high.saturating_sub(low) + 1)] };
        self.injective(&window, &[])
    }

    /// Whether the accesses are one, repeated at even distances.
    fn shifted(&self, reaches: &[&Reach]) -> bool {
        let Some(first) = reaches.first() else { return true };
        let mut bases: Vec<i64> = reaches.iter().map(|r| r.base).collect();
        bases.sort_unstable();
        bases.dedup();
        let (Some(low), Some(next), Some(high)) = (bases.first(), bases.get(1), bases.last()) else { return false };
        let step = next - low;
        reaches.iter().all(|r| r.inner == first.inner)
            && bases.iter().all(|b| (b - low) % step == 0)
            && self.injective(first, &[(step, (high - low) / step + 1)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accesses(sizes: &[i64], reaches: Vec<Reach>) -> Accesses {
        Accesses {
            sizes: sizes.to_vec(),
            params: vec![Some(reaches)],
            element: vec![4],
            written: vec![true],
            ordered: false,
        }
    }

    fn reach(base: i64, outer: &[i64], inner: &[(i64, i64)]) -> Reach {
        Reach { base, outer: outer.to_vec(), inner: inner.to_vec() }
    }

    #[test]
    fn threads_share_only_what_lies_apart() {
        let mut bytes = [0u8; 64];
        let regions = [Region::writable(&mut bytes)];
        let parallel = |sizes: &[i64], reaches| accesses(sizes, reaches).parallel(&regions);
        // Rows, and columns.
        assert!(parallel(&[4], vec![reach(0, &[8], &[(1, 8)])]));
        assert!(parallel(&[8], vec![reach(0, &[1], &[(8, 4)])]));
        // Overlapping windows, and one element for all.
        assert!(!parallel(&[4], vec![reach(0, &[1], &[(1, 2)])]));
        assert!(!parallel(&[4], vec![reach(0, &[0], &[])]));
        // Real and imaginary parts; halves of a whole; a shift onto the neighbour.
        assert!(parallel(&[4], vec![reach(0, &[2], &[]), reach(1, &[2], &[])]));
        assert!(parallel(&[4], vec![reach(0, &[1], &[]), reach(4, &[1], &[])]));
        assert!(!parallel(&[4], vec![reach(0, &[1], &[]), reach(1, &[1], &[])]));
    }
}
