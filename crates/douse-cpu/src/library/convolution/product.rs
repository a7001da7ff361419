//! Convolution of float32 as products of weights and panels.

use super::super::product::{Left, split};
use super::super::tile::Layout;
use super::super::work::Work;
use super::geometry::Geometry;
use super::panel::Outputs;

/// `out` of a convolution that is not transposed, all dense but for `layout`: with [`Layout::Columns`] the channels of the output are its last
/// dimension, and there is one group.
pub fn convolve(
    g: &Geometry,
    input: &[f32],
    weight: &[f32],
    bias: Option<&[f32]>,
    out: &mut [f32],
    layout: Layout,
    work: &Work,
) {
    let plane = g.output_plane();
    if plane == 0 || out.is_empty() {
        return;
    }
    let jobs = g.batch * g.groups;
    let wanted = if work.threads() == 1 { 1 } else { (work.threads() * 4).div_ceil(jobs) };
    let tasks: Vec<_> = out
        .chunks_mut(g.out_channels * plane)
        .enumerate()
        .flat_map(|(job, out)| {
            split(out, g.out_channels, plane, layout, wanted).into_iter().map(move |task| (job, task))
        })
        .collect();
    let depth = g.depth();
    work.each_task(tasks, |(job, task)| {
        let (image, group) = (job / g.groups, job % g.groups);
        let input = &input[(image * g.groups + group) * g.in_channels * g.input_plane()..];
        let first = group * g.out_channels;
        let left = Left { data: &weight[first * depth..], stride: depth, depth, bias: bias.map(|bias| &bias[first..]) };
        task.run(left, work, |positions, rows, panel| Outputs::new(g, positions).pack(g, input, rows, panel));
    });
}
