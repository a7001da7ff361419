//! Loops: which are one loop in truth, in what order their points are taken, and runs of points along the last of them.

use std::ops::Range;

use super::lower::Affine;

/// A loop, or neighbouring loops that every index runs through as through one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dim {
    pub size: i64,
    /// The kernel's loop whose coefficients are those of this dimension: the last of the merged ones.
    pub of: usize,
}

/// Dimensions whose points are numbered in row-major order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Space {
    pub dims: Vec<Dim>,
    pub points: usize,
}

/// Neighbouring points that differ in the last dimension only.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    /// The lane of its first point.
    pub lane: usize,
    pub len: usize,
}

/// Points of a space as lanes: runs, and where each begins.
#[derive(Debug, Default)]
pub(crate) struct Runs {
    pub runs: Vec<Run>,
    /// Coordinates of the first point of each run, `rank` numbers each.
    pub at: Vec<i64>,
    pub rank: usize,
}

impl Space {
    /// Loops `loops` of these sizes, merged where all index expressions allow; `apart` keeps the last loop as it is.
    pub fn merged(loops: Range<usize>, sizes: &[i64], indices: &[&Affine], apart: bool) -> Space {
        let points = sizes.iter().map(|s| *s as usize).product();
        let mut dims: Vec<Dim> = Vec::new();
        let last = loops.end;
        for (of, &size) in loops.zip(sizes) {
            let kept = apart && of + 1 == last;
            if size == 1 && !kept {
                continue;
            }
            let joins = |before: &Dim| {
                !kept
                    && indices
                        .iter()
                        .all(|i| i.coefs[of].checked_mul(size).is_some_and(|reach| i.coefs[before.of] == reach))
            };
            match dims.last_mut() {
                Some(before) if joins(before) => *before = Dim { size: before.size * size, of },
                _ => dims.push(Dim { size, of }),
            }
        }
        Space { dims, points }
    }

    /// Size of the last dimension.
    pub fn last(&self) -> usize {
        self.dims.last().map_or(1, |d| d.size as usize)
    }

    /// The coefficients of an index in this space.
    pub fn coefs(&self, index: &Affine) -> Vec<i64> {
        self.dims.iter().map(|d| index.coefs[d.of]).collect()
    }

    /// The points `first..first + n` as runs.
    pub fn runs(&self, first: usize, n: usize, out: &mut Runs) {
        out.runs.clear();
        out.at.clear();
        out.rank = self.dims.len();
        let Some(last) = self.dims.last().map(|d| d.size as usize) else {
            out.runs.push(Run { lane: 0, len: n });
            return;
        };
        let mut lane = 0;
        while lane < n {
            let mut rest = first + lane;
            let start = out.at.len();
            out.at.resize(start + out.rank, 0);
            for (at, dim) in out.at[start..].iter_mut().zip(&self.dims).rev() {
                *at = (rest % dim.size as usize) as i64;
                rest /= dim.size as usize;
            }
            let column = out.at[start + out.rank - 1] as usize;
            let len = (last - column).min(n - lane);
            out.runs.push(Run { lane, len });
            lane += len;
        }
    }
}

impl Runs {
    /// One point of a space without dimensions.
    pub fn one() -> Runs {
        Runs { runs: vec![Run { lane: 0, len: 1 }], at: Vec::new(), rank: 0 }
    }

    /// Runs and the coordinates of their first points.
    pub fn iter(&self) -> impl Iterator<Item = (Run, &[i64])> {
        self.runs.iter().enumerate().map(|(i, run)| (*run, &self.at[i * self.rank..(i + 1) * self.rank]))
    }
}

/// An affine index as lanes see it: along the space that lanes run through, and along the other one.
#[derive(Clone, Debug)]
pub(crate) struct Walk {
    pub base: i64,
    pub lanes: Vec<i64>,
    pub fixed: Vec<i64>,
}

impl Walk {
    /// The index of the first lane of a run that begins `at`, with the other space's coordinates `fixed`.
    #[inline]
    pub fn start(&self, fixed: &[i64], at: &[i64]) -> i64 {
        let dot = |coefs: &[i64], at: &[i64]| -> i64 {
            coefs.iter().zip(at).fold(0i64, |sum, (c, x)| sum.wrapping_add(c.wrapping_mul(*x)))
        };
        self.base.wrapping_add(dot(&self.fixed, fixed)).wrapping_add(dot(&self.lanes, at))
    }

    /// The step from lane to lane within a run.
    #[inline]
    pub fn stride(&self) -> i64 {
        self.lanes.last().copied().unwrap_or(0)
    }
}

/// Adds one to a point's coordinates, in row-major order.
pub(crate) fn advance(at: &mut [i64], space: &Space) {
    for (at, dim) in at.iter_mut().zip(&space.dims).rev() {
        *at += 1;
        if *at < dim.size {
            return;
        }
        *at = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loops_merge_where_every_index_runs_on() {
        let dense = Affine { base: 0, coefs: vec![12, 4, 1] };
        let rows = Affine { base: 0, coefs: vec![3, 1, 0] };
        let sizes = [2, 3, 4];
        assert_eq!(Space::merged(0..3, &sizes, &[&dense], false).dims, [Dim { size: 24, of: 2 }]);
        let two = Space::merged(0..3, &sizes, &[&dense, &rows], false);
        assert_eq!(two.dims, [Dim { size: 6, of: 1 }, Dim { size: 4, of: 2 }]);
        assert_eq!(Space::merged(0..3, &sizes, &[&dense], true).dims.len(), 2);
    }

    #[test]
    fn runs_end_with_the_last_dimension() {
        let space = Space { dims: vec![Dim { size: 3, of: 0 }, Dim { size: 4, of: 1 }], points: 12 };
        let mut runs = Runs::default();
        space.runs(2, 8, &mut runs);
        let found: Vec<_> = runs.iter().map(|(r, at)| (r.lane, r.len, at.to_vec())).collect();
        assert_eq!(found, [(0, 2, vec![0, 2]), (2, 4, vec![1, 0]), (6, 2, vec![2, 0])]);
    }
}
