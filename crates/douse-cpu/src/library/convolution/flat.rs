//! Convolution of float32 with few channels a group: sums over lines of a padded copy of the input.
//!
//! With zeros around the input no element of the kernel ever falls outside, so that a line of the output is a sum of whole vectors,
//! at any offset; a step of more than one along the line picks from a line computed at every position.

use fearless_simd::{Simd, SimdBase, SimdFloat};

use super::super::work::Work;
use super::geometry::Geometry;
use crate::simd::{WithSimd, dispatch_best};

/// Output channels computed together.
const ROWS: usize = 4;

/// Positions computed together, a vector of AVX-512.
const PIECE: usize = 16;

/// Pieces computed together, so that enough sums are under way.
const PIECES: usize = 4;

/// Whether there is too little to share for products of matrices: groups with no more output channels than a tile has rows.
pub fn suits(g: &Geometry) -> bool {
    g.groups > 1 && g.out_channels <= 2 * ROWS && g.depth() <= 1024
}

/// The padded input of one group.
struct Padded {
    /// Sizes of a channel, its first elements being those that the first output meets.
    sizes: [usize; 3],
    /// Positions of a line of the output before some are picked.
    line: usize,
}

impl Padded {
    fn new(g: &Geometry) -> Padded {
        let reach = |d: usize| (g.output[d] - 1) * g.stride[d] + (g.kernel[d].max(1) - 1) * g.dilation[d] + 1;
        Padded { sizes: [reach(0), reach(1), reach(2)], line: (g.output[2] - 1) * g.stride[2] + 1 }
    }

    fn plane(&self) -> usize {
        self.sizes.iter().product()
    }

    /// Copies a channel, with zeros where there is no input.
    fn fill(&self, g: &Geometry, input: &[f32], to: &mut [f32]) {
        to.fill(0.0);
        // Per dimension: the first position that has input, the input there, and how many there are.
        let [z, y, x] = std::array::from_fn(|d| {
            let start = g.padding[d].clamp(0, self.sizes[d] as isize) as usize;
            let skipped = (-g.padding[d]).clamp(0, g.input[d] as isize) as usize;
            (start, skipped, (g.input[d] - skipped).min(self.sizes[d] - start))
        });
        for i in 0..z.2 {
            for j in 0..y.2 {
                let from = ((z.1 + i) * g.input[1] + y.1 + j) * g.input[2] + x.1;
                let at = ((z.0 + i) * self.sizes[1] + y.0 + j) * self.sizes[2] + x.0;
                to[at..at + x.2].copy_from_slice(&input[from..from + x.2]);
            }
        }
    }

    /// The pieces of a plane of the output.
    fn pieces(&self, g: &Geometry) -> Vec<Piece> {
        let step = g.stride[2];
        let mut pieces = Vec::new();
        for z in 0..g.output[0] {
            for y in 0..g.output[1] {
                let line = (z * g.stride[0] * self.sizes[1] + y * g.stride[1]) * self.sizes[2];
                for at in (0..self.line).step_by(PIECE) {
                    let (from, to) = (at.div_ceil(step), (at + PIECE).min(self.line).div_ceil(step));
                    if from < to {
                        pieces.push(Piece {
                            input: line + at,
                            skip: from * step - at,
                            out: (z * g.output[1] + y) * g.output[2] + from,
                            count: to - from,
                        });
                    }
                }
            }
        }
        pieces
    }
}

/// [`PIECE`] positions of a line.
#[derive(Clone, Copy)]
struct Piece {
    /// Where the first element of the kernel meets it.
    input: usize,
    /// Positions before the first output.
    skip: usize,
    /// Where its outputs stand, and how many there are.
    out: usize,
    count: usize,
}

/// `out` of a convolution that is not transposed, all dense.
pub fn convolve(g: &Geometry, input: &[f32], weight: &[f32], bias: Option<&[f32]>, out: &mut [f32], work: &Work) {
    let plane = g.output_plane();
    if plane == 0 || out.is_empty() {
        return;
    }
    let padded = Padded::new(g);
    let pieces = padded.pieces(g);
    // Where the kernel's elements stand, from the position that the first one meets.
    let [_, kernel_rows, kernel_columns] = g.kernel;
    let taps: Vec<usize> = (0..g.taps())
        .map(|tap| {
            let z = tap / kernel_columns / kernel_rows * g.dilation[0];
            let y = tap / kernel_columns % kernel_rows * g.dilation[1];
            (z * padded.sizes[1] + y) * padded.sizes[2] + tap % kernel_columns * g.dilation[2]
        })
        .collect();
    let (in_plane, padded_plane) = (g.input_plane(), padded.plane());
    let jobs = work.chunk(g.batch * g.groups, 1);
    work.each_chunk(out, jobs * g.out_channels * plane, |block, out| {
        let mut copy = work.scratch.take::<f32>(g.in_channels * padded_plane + PIECE);
        // What whole vectors read past the end must be numbers, though they are not used.
        copy[g.in_channels * padded_plane..].fill(0.0);
        for (i, out) in out.chunks_exact_mut(g.out_channels * plane).enumerate() {
            let job = block * jobs + i;
            let first = job % g.groups * g.out_channels;
            for (c, to) in copy.chunks_exact_mut(padded_plane).take(g.in_channels).enumerate() {
                padded.fill(g, &input[(job * g.in_channels + c) * in_plane..][..in_plane], to);
            }
            dispatch_best(Lines {
                pieces: &pieces,
                step: g.stride[2],
                plane,
                padded_plane,
                channels: g.in_channels,
                taps: &taps,
                input: &copy,
                weight: &weight[first * g.depth()..],
                bias: bias.map(|bias| &bias[first..first + g.out_channels]),
                out,
            });
        }
    });
}

/// All outputs of one group.
struct Lines<'a> {
    pieces: &'a [Piece],
    /// From one output to the next along a line.
    step: usize,
    plane: usize,
    padded_plane: usize,
    channels: usize,
    taps: &'a [usize],
    input: &'a [f32],
    weight: &'a [f32],
    bias: Option<&'a [f32]>,
    out: &'a mut [f32],
}

impl WithSimd for Lines<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        let out = std::mem::take(&mut self.out);
        for (block, out) in out.chunks_mut(ROWS * self.plane).enumerate() {
            // One channel alone does not pay for the products of others.
            if out.len() == self.plane {
                self.rows::<S, 1>(simd, block * ROWS, out);
            } else {
                self.rows::<S, ROWS>(simd, block * ROWS, out);
            }
        }
    }
}

impl Lines<'_> {
    /// Up to R channels from `first` on.
    #[inline(always)]
    fn rows<S: Simd, const R: usize>(&self, simd: S, first: usize, out: &mut [f32]) {
        let count = out.len() / self.plane;
        let depth = self.channels * self.taps.len();
        // Past the last channel that one is computed again, and left out when stored.
        let channel = |r: usize| first + r.min(count - 1);
        let (mut weights, mut start): ([&[f32]; R], _) = ([&[]; R], [0.0; R]);
        for r in 0..R {
            weights[r] = &self.weight[channel(r) * depth..][..depth];
            start[r] = self.bias.map_or(0.0, |bias| bias[channel(r)]);
        }
        for pieces in self.pieces.chunks(PIECES) {
            let mut inputs = [0; PIECES];
            for (p, input) in inputs.iter_mut().enumerate() {
                *input = pieces[p.min(pieces.len() - 1)].input;
            }
            let mut sums = [[[0.0; PIECE]; PIECES]; R];
            for lane in (0..PIECE).step_by(S::f32s::LEN) {
                self.sums(simd, &inputs, lane, &weights, &start, &mut sums);
            }
            for (sums, out) in sums.iter().zip(out.chunks_exact_mut(self.plane)) {
                for (piece, sums) in pieces.iter().zip(sums) {
                    let out = &mut out[piece.out..piece.out + piece.count];
                    let sums = &sums[piece.skip..];
                    if self.step == 1 {
                        out.copy_from_slice(&sums[..piece.count]);
                    } else {
                        for (out, sum) in out.iter_mut().zip(sums.iter().step_by(self.step)) {
                            *out = *sum;
                        }
                    }
                }
            }
        }
    }

    /// `sums[r][p] = start[r] + sum over channels and taps of weights[r] * input at p`, for one vector of each piece.
    #[inline(always)]
    fn sums<S: Simd, const R: usize>(
        &self,
        simd: S,
        inputs: &[usize; PIECES],
        lane: usize,
        weights: &[&[f32]; R],
        start: &[f32; R],
        sums: &mut [[[f32; PIECE]; PIECES]; R],
    ) {
        // Plain loops over arrays: what is not marked to be inlined always, as `array::map` is not, is compiled without vector
        // instructions.
        let mut vectors = [[S::f32s::splat(simd, 0.0); PIECES]; R];
        for r in 0..R {
            vectors[r] = [S::f32s::splat(simd, start[r]); PIECES];
        }
        for c in 0..self.channels {
            for (tap, at) in self.taps.iter().enumerate() {
                let at = c * self.padded_plane + at + lane;
                let mut from = [S::f32s::splat(simd, 0.0); PIECES];
                for p in 0..PIECES {
                    from[p] = S::f32s::from_slice(simd, &self.input[at + inputs[p]..][..S::f32s::LEN]);
                }
                for r in 0..R {
                    let weight = S::f32s::splat(simd, weights[r][c * self.taps.len() + tap]);
                    for p in 0..PIECES {
                        vectors[r][p] = weight.mul_add(from[p], vectors[r][p]);
                    }
                }
            }
        }
        for r in 0..R {
            for p in 0..PIECES {
                vectors[r][p].store_slice(&mut sums[r][p][lane..lane + S::f32s::LEN]);
            }
        }
    }
}
