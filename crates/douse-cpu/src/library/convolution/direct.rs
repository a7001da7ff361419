//! Convolution as loops over lines, in any dtype: for depthwise convolutions, where there is little to reuse, and for dtypes
//! that have no matrix product of their own.

use super::super::element::Number;
use super::super::simd::{axpy, vectorised};
use super::super::work::Work;
use super::geometry::Geometry;

/// `out` of a convolution that is not transposed, all dense.
pub fn convolve<T: Number>(g: &Geometry, input: &[T], weight: &[T], bias: Option<&[T]>, out: &mut [T], work: &Work) {
    let plane = g.output_plane();
    if plane == 0 || out.is_empty() {
        return;
    }
    let channels = g.groups * g.out_channels;
    let in_plane = g.input_plane();
    work.each_chunk(out, plane, |i, out| {
        let (image, channel) = (i / channels, i % channels);
        let group = channel / g.out_channels;
        out.fill(bias.map_or(T::ZERO, |bias| bias[channel]));
        // A phase of a transposed convolution may have no kernel elements.
        let channels_in = if g.taps() == 0 { 0 } else { g.in_channels };
        for c in 0..channels_in {
            let input = &input[((image * g.groups + group) * g.in_channels + c) * in_plane..][..in_plane];
            let weight = &weight[(channel * g.in_channels + c) * g.taps()..][..g.taps()];
            vectorised!(add_plane(g, input, weight, out));
        }
    });
}

/// Adds what one input channel gives to an output channel.
#[inline(always)]
fn add_plane<T: Number>(g: &Geometry, input: &[T], weight: &[T], out: &mut [T]) {
    let [_, kernel_rows, kernel_columns] = g.kernel;
    let [_, out_rows, out_columns] = g.output;
    for (line, out) in out.chunks_exact_mut(out_columns).enumerate() {
        let (depth, row) = (line / out_rows, line % out_rows);
        for (tap, weights) in weight.chunks_exact(kernel_columns).enumerate() {
            let (z, y) = (g.inside(0, depth, tap / kernel_rows), g.inside(1, row, tap % kernel_rows));
            if let (Some(z), Some(y)) = (z, y) {
                let start = (z * g.input[1] + y) * g.input[2];
                add_line(g, &input[start..start + g.input[2]], weights, out);
            }
        }
    }
}

/// Adds what a line of the input gives to a line of the output, through a line of the kernel.
#[inline(always)]
fn add_line<T: Number>(g: &Geometry, line: &[T], weights: &[T], out: &mut [T]) {
    let step = g.stride[2];
    for (x, weight) in weights.iter().enumerate() {
        let first = g.position(2, 0, x);
        let inside = g.inside_run(first, out.len());
        if inside.is_empty() {
            continue;
        }
        let from = &line[first.wrapping_add_unsigned(inside.start * step) as usize..];
        let out = &mut out[inside];
        match step {
            1 => axpy(*weight, from, out),
            2 => {
                for (out, pair) in out.iter_mut().zip(from.chunks(2)) {
                    *out = pair[0].multiply_add(*weight, *out);
                }
            }
            _ => {
                for (out, x) in out.iter_mut().zip(from.iter().step_by(step)) {
                    *out = x.multiply_add(*weight, *out);
                }
            }
        }
    }
}
