//! Transposed convolution as ordinary ones, one for each phase of the output.
//!
//! Along one dimension with stride s and dilation d, output y gets `input[(y + padding - k d) / s] * weight[k]` from the kernel elements k
//! for which that is whole. For the outputs y = s t + f of one phase f these are every (s / gcd(s, d))-th element, and the input
//! index moves by -d / gcd(s, d) from one to the next: a convolution of stride 1 with those elements in reverse.

use bytemuck::Pod;
use douse_core::Result;

use super::super::scratch::Scratch;
use super::geometry::Geometry;

/// What one phase takes of one dimension.
#[derive(Clone, Copy, Debug, Default)]
struct Phase {
    phase: usize,
    /// Outputs of this phase.
    outputs: usize,
    /// Kernel elements, the last one first: `last - i * step`.
    taps: usize,
    last: usize,
    step: usize,
    padding: isize,
    dilation: usize,
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// The phases of dimension `d` that have outputs.
fn phases(g: &Geometry, d: usize) -> Vec<Phase> {
    let (stride, dilation) = (g.stride[d], g.dilation[d]);
    let common = gcd(stride, dilation);
    let step = stride / common;
    let whole = |phase: usize, k: usize| {
        (phase as isize + g.padding[d] - (k * dilation) as isize).rem_euclid(stride as isize) == 0
    };
    (0..stride.min(g.output[d]))
        .map(|phase| {
            let outputs = (g.output[d] - phase).div_ceil(stride);
            let first = (0..g.kernel[d].min(step)).find(|k| whole(phase, *k));
            let Some(first) = first else {
                return Phase { phase, outputs, ..Phase::default() };
            };
            let taps = (g.kernel[d] - first).div_ceil(step);
            let last = first + (taps - 1) * step;
            let at = (phase as isize + g.padding[d] - (last * dilation) as isize) / stride as isize;
            Phase { phase, outputs, taps, last, step, padding: -at, dilation: dilation / common }
        })
        .collect()
}

/// Runs `convolve(geometry, weight, out)` for each phase and puts the results in their places in `out` [batch, channels, output...].
/// `weight` is [groups, in_channels, out_channels, kernel...]; what `convolve` gets has out_channels first, as it expects.
pub fn by_phases<T: Pod>(
    g: &Geometry,
    weight: &[T],
    out: &mut [T],
    scratch: &Scratch,
    mut convolve: impl FnMut(&Geometry, &[T], &mut [T]) -> Result<()>,
) -> Result<()> {
    let dims: [Vec<Phase>; 3] = std::array::from_fn(|d| phases(g, d));
    for z in &dims[0] {
        for y in &dims[1] {
            for x in &dims[2] {
                let phase = [*z, *y, *x];
                // Without products there is still the bias: one channel less of nothing is a convolution of depth 0.
                let empty = phase.iter().any(|p| p.taps == 0);
                let part = Geometry {
                    output: phase.map(|p| p.outputs),
                    kernel: if empty { [0; 3] } else { phase.map(|p| p.taps) },
                    stride: [1; 3],
                    padding: phase.map(|p| p.padding),
                    dilation: phase.map(|p| p.dilation.max(1)),
                    ..*g
                };
                let mut part_weight = scratch.take(g.groups * g.out_channels * part.depth());
                pick(g, &part, &phase, weight, &mut part_weight);
                let channels = g.batch * g.groups * g.out_channels;
                let mut part_out = scratch.take(channels * part.output_plane());
                convolve(&part, &part_weight, &mut part_out)?;
                place(g, &part, &phase, &part_out, out);
            }
        }
    }
    Ok(())
}

/// The kernel elements of a phase, reversed, with the output channels first.
fn pick<T: Copy>(g: &Geometry, part: &Geometry, phase: &[Phase; 3], weight: &[T], to: &mut [T]) {
    let taps = part.taps();
    if taps == 0 {
        return;
    }
    let [_, rows, columns] = part.kernel;
    let places: Vec<usize> = (0..taps)
        .map(|tap| {
            let index = [tap / columns / rows, tap / columns % rows, tap % columns];
            let [z, y, x] = std::array::from_fn(|d| phase[d].last - index[d] * phase[d].step);
            (z * g.kernel[1] + y) * g.kernel[2] + x
        })
        .collect();
    let (from_taps, depth) = (g.taps(), part.depth());
    let (froms, tos) = (g.in_channels * g.out_channels * from_taps, g.out_channels * depth);
    for (from, to) in weight.chunks_exact(froms).zip(to.chunks_exact_mut(tos)) {
        // Blocks of output channels, so that what is read and what is written both stay in the cache.
        for first in (0..g.out_channels).step_by(16) {
            let count = (g.out_channels - first).min(16);
            for c in 0..g.in_channels {
                for (tap, place) in places.iter().enumerate() {
                    let from = &from[(c * g.out_channels + first) * from_taps + place..];
                    let to = &mut to[first * depth + c * taps + tap..];
                    for o in 0..count {
                        to[o * depth] = from[o * from_taps];
                    }
                }
            }
        }
    }
}

/// Copies the outputs of a phase to their places.
fn place<T: Copy>(g: &Geometry, part: &Geometry, phase: &[Phase; 3], from: &[T], out: &mut [T]) {
    let (plane, line) = (g.output_plane(), g.output[2]);
    if part.output_plane() == 0 {
        return;
    }
    for (from, out) in from.chunks_exact(part.output_plane()).zip(out.chunks_exact_mut(plane)) {
        for (i, from) in from.chunks_exact(part.output[2]).enumerate() {
            let z = i / part.output[1] * g.stride[0] + phase[0].phase;
            let y = i % part.output[1] * g.stride[1] + phase[1].phase;
            let out = &mut out[(z * g.output[1] + y) * line..][..line];
            for (to, from) in out[phase[2].phase..].iter_mut().step_by(g.stride[2]).zip(from) {
                *to = *from;
            }
        }
    }
}
