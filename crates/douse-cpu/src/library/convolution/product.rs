//! Convolution of float32 as products of weights and panels.

use super::super::work::Work;
use super::geometry::Geometry;
use super::panel::{Outputs, STEP, WIDTH};
use super::tile::Product;

/// Rows of a panel packed at a time: with [`WIDTH`] columns they stay in the second-level cache.
const DEPTH: usize = 1024;

/// Output channels below which splitting them among threads costs more in packing than it gains.
const LEAST_CHANNELS: usize = 64;

/// A piece of the output: channels `channel..` of a group, positions `position..`.
struct Task<'a> {
    image: usize,
    group: usize,
    channel: usize,
    position: usize,
    /// One slice a channel.
    out: Vec<&'a mut [f32]>,
}

/// `out` of a convolution that is not transposed, all dense.
pub fn convolve(g: &Geometry, input: &[f32], weight: &[f32], bias: Option<&[f32]>, out: &mut [f32], work: &Work) {
    let plane = g.output_plane();
    if plane == 0 || out.is_empty() {
        return;
    }
    let tasks = split(g, out, work.threads());
    let (in_plane, depth) = (g.input_plane(), g.depth());
    work.each_task(tasks, |mut task| {
        let channels = g.groups * g.in_channels;
        let input = &input[(task.image * channels + task.group * g.in_channels) * in_plane..];
        let first = task.group * g.out_channels + task.channel;
        let weight = &weight[first * depth..];
        let bias = bias.map(|bias| &bias[first..]);
        let positions = task.out.first().map_or(0, |row| row.len());
        let mut buffer = work.scratch.take(depth.min(DEPTH) * WIDTH);
        for start in (0..positions).step_by(WIDTH) {
            let columns = start..(start + WIDTH).min(positions);
            let outputs = Outputs::new(g, task.position + columns.start..task.position + columns.end);
            let width = outputs.width();
            // Once even without any product, for the bias.
            for from in (0..depth.max(1)).step_by(DEPTH) {
                let rows = from..(from + DEPTH).min(depth);
                let panel = &mut buffer[..rows.len() * width];
                outputs.pack(g, input, rows.clone(), panel);
                let out = &mut task.out;
                let columns = columns.clone();
                pulp::Arch::new().dispatch(Product {
                    weight,
                    row_len: depth,
                    depth: rows,
                    panel,
                    width,
                    bias,
                    out,
                    columns,
                });
            }
        }
    });
}

/// Cuts the output into several tasks for each thread: by image, group and position first, which share nothing; by channel where
/// that is not enough.
fn split<'a>(g: &Geometry, out: &'a mut [f32], threads: usize) -> Vec<Task<'a>> {
    let plane = g.output_plane();
    let wanted = if threads == 1 { 1 } else { threads * 4 };
    let jobs = (g.batch * g.groups).max(1);
    let panels = plane.div_ceil(WIDTH);
    let by_position = wanted.div_ceil(jobs).clamp(1, panels);
    let positions = panels.div_ceil(by_position) * WIDTH;
    let by_channel = wanted.div_ceil(jobs * by_position).clamp(1, (g.out_channels / LEAST_CHANNELS).max(1));
    let channels = g.out_channels.div_ceil(by_channel).next_multiple_of(STEP);
    let mut tasks = Vec::new();
    for (job, rows) in out.chunks_mut(g.out_channels * plane).enumerate() {
        for (c, rows) in rows.chunks_mut(channels * plane).enumerate() {
            let first = tasks.len();
            for position in (0..plane).step_by(positions) {
                tasks.push(Task {
                    image: job / g.groups,
                    group: job % g.groups,
                    channel: c * channels,
                    position,
                    out: Vec::with_capacity(channels),
                });
            }
            for row in rows.chunks_mut(plane) {
                for (task, part) in tasks[first..].iter_mut().zip(row.chunks_mut(positions)) {
                    task.out.push(part);
                }
            }
        }
    }
    tasks
}
