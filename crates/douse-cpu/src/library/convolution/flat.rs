//! Convolution of float32 with few channels a group: sums over lines of a padded copy of the input.
//!
//! With zeros around the input no element of the kernel ever falls outside, so that a line of the output is a sum of whole vectors,
//! at any offset; a step of more than one along the line picks from a line computed at every position.

use pulp::{Simd, WithSimd};

use super::super::work::Work;
use super::geometry::Geometry;

/// Output channels computed together.
const ROWS: usize = 4;

/// A line has room for this many elements more, which whole vectors may read and write.
const SLACK: usize = 64;

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
        let inside = |d: usize, i: usize| usize::try_from(i as isize - g.padding[d]).ok().filter(|i| *i < g.input[d]);
        for (i, to) in to.chunks_exact_mut(self.sizes[2]).enumerate() {
            let (Some(z), Some(y)) = (inside(0, i / self.sizes[1]), inside(1, i % self.sizes[1])) else {
                to.fill(0.0);
                continue;
            };
            let line = &input[(z * g.input[1] + y) * g.input[2]..][..g.input[2]];
            // The first and the last position of the line that have input.
            let start = g.padding[2].clamp(0, to.len() as isize) as usize;
            let skipped = (-g.padding[2]).clamp(0, line.len() as isize) as usize;
            let count = (line.len() - skipped).min(to.len() - start);
            to[..start].fill(0.0);
            to[start..start + count].copy_from_slice(&line[skipped..skipped + count]);
            to[start + count..].fill(0.0);
        }
    }
}

/// `out` of a convolution that is not transposed, all dense.
pub fn convolve(g: &Geometry, input: &[f32], weight: &[f32], bias: Option<&[f32]>, out: &mut [f32], work: &Work) {
    let plane = g.output_plane();
    if plane == 0 || out.is_empty() {
        return;
    }
    let padded = Padded::new(g);
    // Where the kernel's elements stand, from the position that the first one meets.
    let [_, kernel_rows, kernel_columns] = g.kernel;
    let taps: Vec<usize> = (0..g.taps())
        .map(|tap| {
            let z = tap / kernel_columns / kernel_rows * g.dilation[0];
            let y = tap / kernel_columns % kernel_rows * g.dilation[1];
            (z * padded.sizes[1] + y) * padded.sizes[2] + tap % kernel_columns * g.dilation[2]
        })
        .collect();
    work.each_chunk(out, g.out_channels * plane, |job, out| {
        let group = job % g.groups;
        let (in_plane, padded_plane) = (g.input_plane(), padded.plane());
        let mut copy = work.scratch.take::<f32>(g.in_channels * padded_plane + SLACK);
        // What whole vectors read past the end must be numbers, though they are not used.
        copy[g.in_channels * padded_plane..].fill(0.0);
        for (c, to) in copy[..g.in_channels * padded_plane].chunks_exact_mut(padded_plane).enumerate() {
            padded.fill(g, &input[(job * g.in_channels + c) * in_plane..][..in_plane], to);
        }
        let first = group * g.out_channels;
        pulp::Arch::new().dispatch(Lines {
            g,
            padded: &padded,
            taps: &taps,
            input: &copy,
            weight: &weight[first * g.depth()..],
            bias: bias.map(|bias| &bias[first..first + g.out_channels]),
            out,
        });
    });
}

/// All outputs of one group.
struct Lines<'a> {
    g: &'a Geometry,
    padded: &'a Padded,
    taps: &'a [usize],
    input: &'a [f32],
    weight: &'a [f32],
    bias: Option<&'a [f32]>,
    out: &'a mut [f32],
}

impl WithSimd for Lines<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Lines { g, padded, taps, input, weight, bias, out } = self;
        let (plane, depth) = (g.output_plane(), g.depth());
        let step = g.stride[2];
        for (block, out) in out.chunks_mut(ROWS * plane).enumerate() {
            let first = block * ROWS;
            let count = out.len() / plane;
            // Past the last channel that one is computed again, and left out when stored.
            let channel = |r: usize| first + r.min(count - 1);
            let weights: [&[f32]; ROWS] = std::array::from_fn(|r| &weight[channel(r) * depth..][..depth]);
            let start: [f32; ROWS] = std::array::from_fn(|r| bias.map_or(0.0, |bias| bias[channel(r)]));
            for line in 0..g.output[0] * g.output[1] {
                let z = line / g.output[1] * g.stride[0];
                let y = line % g.output[1] * g.stride[1];
                let base = (z * padded.sizes[1] + y) * padded.sizes[2];
                let mut at = 0;
                while at < padded.line {
                    let from = &input[base + at..];
                    let channels = (padded.plane(), g.in_channels);
                    let mut sums = [[0.0; 32]; ROWS];
                    let width = if padded.line - at > S::F32_LANES && S::F32_LANES <= 16 {
                        lanes::<S, 2>(simd, from, channels, taps, weights, count, start, &mut sums)
                    } else {
                        lanes::<S, 1>(simd, from, channels, taps, weights, count, start, &mut sums)
                    };
                    // The positions of this piece that are outputs.
                    let end = (at + width).min(padded.line);
                    let (from, to) = (at.div_ceil(step), end.div_ceil(step));
                    let skip = from * step - at;
                    at = end;
                    if from == to {
                        continue;
                    }
                    for (sums, out) in sums.iter().zip(out.chunks_exact_mut(plane)) {
                        let out = &mut out[line * g.output[2]..][..g.output[2]];
                        let sums = &sums[skip..];
                        if step == 1 {
                            out[from..to].copy_from_slice(&sums[..to - from]);
                        } else {
                            for (out, sum) in out[from..to].iter_mut().zip(sums.iter().step_by(step)) {
                                *out = *sum;
                            }
                        }
                    }
                }
            }
        }
    }
}

/// `sums[r] = start[r] + sum over channels and taps of weights[r] * input`, for V vectors of positions. Returns how many positions.
#[inline(always)]
fn lanes<S: Simd, const V: usize>(
    simd: S,
    input: &[f32],
    (plane, channels): (usize, usize),
    taps: &[usize],
    weights: [&[f32]; ROWS],
    count: usize,
    start: [f32; ROWS],
    sums: &mut [[f32; 32]; ROWS],
) -> usize {
    // One channel alone does not pay for the others' products.
    if count == 1 {
        return some_lanes::<S, V, 1>(simd, input, (plane, channels), taps, [weights[0]], [start[0]], sums);
    }
    some_lanes::<S, V, ROWS>(simd, input, (plane, channels), taps, weights, start, sums)
}

#[inline(always)]
fn some_lanes<S: Simd, const V: usize, const R: usize>(
    simd: S,
    input: &[f32],
    (plane, channels): (usize, usize),
    taps: &[usize],
    weights: [&[f32]; R],
    start: [f32; R],
    sums: &mut [[f32; 32]; ROWS],
) -> usize {
    let width = V * S::F32_LANES;
    let mut vectors = start.map(|start| [simd.splat_f32s(start); V]);
    for c in 0..channels {
        let input = &input[c * plane..];
        for (tap, at) in taps.iter().enumerate() {
            let (from, _) = S::as_simd_f32s(&input[*at..*at + width]);
            for r in 0..R {
                let weight = simd.splat_f32s(weights[r][c * taps.len() + tap]);
                for v in 0..V {
                    vectors[r][v] = simd.mul_add_f32s(weight, from[v], vectors[r][v]);
                }
            }
        }
    }
    for (sums, vectors) in sums.iter_mut().zip(&vectors) {
        let (to, _) = S::as_mut_simd_f32s(&mut sums[..width]);
        to[..V].copy_from_slice(vectors);
    }
    width
}
