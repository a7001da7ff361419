//! The inner product of a convolution: rows of weights times a panel.

use pulp::{Simd, WithSimd};
use std::ops::Range;

use super::panel::WIDTH;

/// `out[r][columns] = start + sum_k weight[r, depth][k] * panel[k]`, where `start` is the bias (0 without) for the first part of
/// the depth and what stands in `out` for later ones.
pub struct Product<'a, 'b> {
    /// Rows of `row_len` elements, one an output channel.
    pub weight: &'a [f32],
    pub row_len: usize,
    /// The part of each row that the panel has.
    pub depth: Range<usize>,
    /// `width` columns a row.
    pub panel: &'a [f32],
    pub width: usize,
    pub bias: Option<&'a [f32]>,
    /// One slice an output channel.
    pub out: &'a mut [&'b mut [f32]],
    /// Which elements of each slice; may be fewer than the panel has columns.
    pub columns: Range<usize>,
}

/// Output channels computed together where there are 32 vector registers.
const ROWS: usize = 8;

/// Output channels computed together where there are 16.
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
    fn run<S: Simd, const R: usize>(self, simd: S) {
        let Product { weight, row_len, depth, panel, width, bias, out, columns } = self;
        let (panel, _) = S::as_simd_f32s(panel);
        let vectors = width / S::F32_LANES;
        let mut result = [0.0; ROWS * WIDTH];
        let rows = out.len();
        for first in (0..rows).step_by(R) {
            // Past the last channel the last one is computed again, and left out below.
            let weights: [&[f32]; R] = std::array::from_fn(|r| {
                let start = (first + r).min(rows - 1) * row_len;
                &weight[start + depth.start..start + depth.end]
            });
            let mut at = 0;
            while at < vectors {
                let (to, _) = S::as_mut_simd_f32s(&mut result[..R * width]);
                at += match vectors - at {
                    1 => tile::<S, R, 1>(simd, weights, panel, vectors, at, to),
                    2 | 4 => tile::<S, R, 2>(simd, weights, panel, vectors, at, to),
                    _ => tile::<S, R, 3>(simd, weights, panel, vectors, at, to),
                };
            }
            for (r, out) in out[first..].iter_mut().take(R).enumerate() {
                let out = &mut out[columns.clone()];
                let sums = &result[r * width..][..out.len()];
                if depth.start == 0 {
                    let start = bias.map_or(0.0, |bias| bias[first + r]);
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
