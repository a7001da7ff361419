//! The inner product of float32 matrix products and convolutions: rows of weights times a panel ([`super::panel`]).

use pulp::{Simd, WithSimd};
use std::ops::Range;

use super::panel::WIDTH;

/// Which elements of the result lie next to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Those of a row.
    Rows,
    /// Those of a column.
    Columns,
}

/// `out[row, column] = start + sum_k weight[row, depth][k] * panel[k, column]`, where `start` is the bias (0 without) for the first part
/// of the depth and what stands in `out` for later ones.
pub struct Product<'a, 'b> {
    /// Rows that lie `row_stride` apart.
    pub weight: &'a [f32],
    pub rows: usize,
    pub row_stride: usize,
    /// The part of each row that the panel has.
    pub depth: Range<usize>,
    /// `width` columns a row.
    pub panel: &'a [f32],
    pub width: usize,
    pub bias: Option<&'a [f32]>,
    /// One slice for each row of the result, or each column.
    pub out: &'a mut [&'b mut [f32]],
    pub layout: Layout,
    /// Where the panel's columns stand in the result; may be fewer than the panel has.
    pub columns: Range<usize>,
}

/// Rows computed together where there are 32 vector registers.
const ROWS: usize = 8;

/// Rows computed together where there are 16.
const FEW_ROWS: usize = 4;

impl WithSimd for Product<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        if S::REGISTER_COUNT >= 32 { self.run::<S, ROWS>(simd) } else { self.run::<S, FEW_ROWS>(simd) }
    }
}

impl Product<'_, '_> {
    #[inline(always)]
    fn run<S: Simd, const R: usize>(mut self, simd: S) {
        let (panel, _) = S::as_simd_f32s(self.panel);
        let vectors = self.width / S::F32_LANES;
        let mut sums = [0.0; ROWS * WIDTH];
        for first in (0..self.rows).step_by(R) {
            // Past the last row that one is computed again, and left out when stored.
            let weights: [&[f32]; R] = std::array::from_fn(|r| {
                let start = (first + r).min(self.rows - 1) * self.row_stride;
                &self.weight[start + self.depth.start..start + self.depth.end]
            });
            let mut at = 0;
            while at < vectors {
                let (to, _) = S::as_mut_simd_f32s(&mut sums[..R * self.width]);
                at += match vectors - at {
                    1 => tile::<S, R, 1>(simd, weights, panel, vectors, at, to),
                    2 | 4 => tile::<S, R, 2>(simd, weights, panel, vectors, at, to),
                    _ => tile::<S, R, 3>(simd, weights, panel, vectors, at, to),
                };
            }
            self.store(first, R.min(self.rows - first), &sums);
        }
    }

    /// Stores `count` rows of sums from `first` on.
    #[inline(always)]
    fn store(&mut self, first: usize, count: usize, sums: &[f32]) {
        let bias = |row: usize| self.bias.map_or(0.0, |bias| bias[row]);
        let begin = self.depth.start == 0;
        match self.layout {
            Layout::Rows => {
                for (r, out) in self.out[first..first + count].iter_mut().enumerate() {
                    let out = &mut out[self.columns.clone()];
                    let sums = &sums[r * self.width..][..out.len()];
                    if begin {
                        let start = bias(first + r);
                        for (out, sum) in out.iter_mut().zip(sums) {
                            *out = start + sum;
                        }
                    } else {
                        for (out, sum) in out.iter_mut().zip(sums) {
                            *out += sum;
                        }
                    }
                }
            }
            Layout::Columns => {
                for (c, out) in self.out[self.columns.clone()].iter_mut().enumerate() {
                    for (r, out) in out[first..first + count].iter_mut().enumerate() {
                        let start = if begin { bias(first + r) } else { *out };
                        *out = start + sums[r * self.width + c];
                    }
                }
            }
        }
    }
}

/// `to[r][at..at + V] = sum_k weights[r][k] * panel[k][at..at + V]`, with rows of `vectors`. Returns V.
#[inline(always)]
fn tile<S: Simd, const R: usize, const V: usize>(
    simd: S,
    weights: [&[f32]; R],
    panel: &[S::f32s],
    vectors: usize,
    at: usize,
    to: &mut [S::f32s],
) -> usize {
    let depth = weights[0].len();
    let weights = weights.map(|row| &row[..depth]);
    let mut sums = [[simd.splat_f32s(0.0); V]; R];
    for (k, row) in panel.chunks_exact(vectors).enumerate().take(depth) {
        let row = &row[at..at + V];
        for r in 0..R {
            let weight = simd.splat_f32s(weights[r][k]);
            for v in 0..V {
                sums[r][v] = simd.mul_add_f32s(weight, row[v], sums[r][v]);
            }
        }
    }
    for r in 0..R {
        to[r * vectors + at..][..V].copy_from_slice(&sums[r]);
    }
    V
}
