//! The inner product of float32 matrix products and convolutions: rows of weights times a panel ([`super::panel`]).

use fearless_simd::{Level, Simd, SimdBase, SimdFloat};
use std::ops::Range;

use super::panel::WIDTH;
use crate::simd::WithSimd;

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

/// Whether there are 32 vector registers: AVX-512 and Neon have them.
#[inline(always)]
fn has_many_registers(level: Level) -> bool {
    match level {
        #[cfg(target_arch = "x86_64")]
        Level::Avx512(_) => true,
        #[cfg(target_arch = "aarch64")]
        Level::Neon(_) => true,
        _ => false,
    }
}

impl WithSimd for Product<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        if has_many_registers(simd.level()) { self.run::<S, ROWS>(simd) } else { self.run::<S, FEW_ROWS>(simd) }
    }
}

impl Product<'_, '_> {
    #[inline(always)]
    fn run<S: Simd, const R: usize>(mut self, simd: S) {
        let vectors = self.width / S::f32s::LEN;
        let mut sums = [0.0; ROWS * WIDTH];
        for first in (0..self.rows).step_by(R) {
            // Past the last row that one is computed again, and left out when stored.
            let mut weights: [&[f32]; R] = [&[]; R];
            for (r, row) in weights.iter_mut().enumerate() {
                let start = (first + r).min(self.rows - 1) * self.row_stride;
                *row = &self.weight[start + self.depth.start..start + self.depth.end];
            }
            let to = &mut sums[..R * self.width];
            if vectors.is_multiple_of(3) {
                tile::<S, R, 3>(simd, &weights, self.panel, self.width, to);
            } else if vectors.is_multiple_of(2) {
                tile::<S, R, 2>(simd, &weights, self.panel, self.width, to);
            } else {
                tile::<S, R, 1>(simd, &weights, self.panel, self.width, to);
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

/// Elements of a row that are looked up together.
const BLOCK: usize = 8;

/// `to[r] = sum_k weights[r][k] * panel[k]`, where a row of the panel has `width` elements, a multiple of V vectors. Rows have the same length.
///
/// Plain loops over arrays: what is not marked to be inlined always, as `array::map` is not, is compiled without vector instructions.
#[inline(always)]
#[allow(clippy::needless_range_loop, reason = "one index for several arrays")]
fn tile<S: Simd, const R: usize, const V: usize>(
    simd: S,
    weights: &[&[f32]; R],
    panel: &[f32],
    width: usize,
    to: &mut [f32],
) {
    let lanes = S::f32s::LEN;
    for column in (0..width).step_by(V * lanes) {
        let columns = column..column + V * lanes;
        let mut sums = [[S::f32s::splat(simd, 0.0); V]; R];
        let blocks = panel.chunks_exact(BLOCK * width);
        let rest = blocks.remainder();
        for (block, panel) in blocks.enumerate() {
            let mut parts = [&[0.0; BLOCK]; R];
            for r in 0..R {
                if let Some(part) = weights[r].as_chunks::<BLOCK>().0.get(block) {
                    parts[r] = part;
                }
            }
            for k in 0..BLOCK {
                let row = &panel[k * width..(k + 1) * width][columns.clone()];
                for r in 0..R {
                    let weight = S::f32s::splat(simd, parts[r][k]);
                    for v in 0..V {
                        let vector = S::f32s::from_slice(simd, &row[v * lanes..(v + 1) * lanes]);
                        sums[r][v] = weight.mul_add(vector, sums[r][v]);
                    }
                }
            }
        }
        let mut lasts = [&[][..]; R];
        for r in 0..R {
            lasts[r] = weights[r].as_chunks::<BLOCK>().1;
        }
        for (k, row) in rest.chunks_exact(width).enumerate() {
            let row = &row[columns.clone()];
            for r in 0..R {
                let weight = S::f32s::splat(simd, lasts[r][k]);
                for v in 0..V {
                    let vector = S::f32s::from_slice(simd, &row[v * lanes..(v + 1) * lanes]);
                    sums[r][v] = weight.mul_add(vector, sums[r][v]);
                }
            }
        }
        for r in 0..R {
            for v in 0..V {
                sums[r][v].store_slice(&mut to[r * width + column + v * lanes..][..lanes]);
            }
        }
    }
}
