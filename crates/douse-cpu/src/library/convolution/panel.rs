//! Panels of a convolution's matrix product: what a block of neighbouring outputs sees of the input.
//!
//! A panel has a row for each product that an output sums (input channel, then kernel element) and a column for each output.

use std::ops::Range;

use super::super::panel::STEP;
use super::geometry::Geometry;

/// A piece of a panel's outputs that lie in one row of the output.
#[derive(Clone, Copy, Debug)]
struct Run {
    depth: usize,
    row: usize,
    column: usize,
    /// Where it starts in the panel.
    start: usize,
    len: usize,
}

/// The outputs of a panel.
#[derive(Debug)]
pub struct Outputs {
    runs: Vec<Run>,
    len: usize,
}

impl Outputs {
    /// The outputs `positions` of a plane, in row-major order.
    pub fn new(geometry: &Geometry, positions: Range<usize>) -> Outputs {
        let [_, rows, columns] = geometry.output;
        let mut runs = Vec::new();
        let mut at = positions.start;
        while at < positions.end {
            let (line, column) = (at / columns, at % columns);
            let len = (columns - column).min(positions.end - at);
            runs.push(Run { depth: line / rows, row: line % rows, column, start: at - positions.start, len });
            at += len;
        }
        Outputs { runs, len: positions.len() }
    }

    /// Columns of the panel, padding included.
    pub fn width(&self) -> usize {
        self.len.next_multiple_of(STEP)
    }

    /// Fills rows `rows` of the panel from the input channels of one group.
    pub fn pack(&self, geometry: &Geometry, input: &[f32], rows: Range<usize>, panel: &mut [f32]) {
        let [_, kernel_rows, kernel_columns] = geometry.kernel;
        let taps = geometry.taps();
        let plane = geometry.input_plane();
        let width = self.width();
        for (k, to) in rows.zip(panel.chunks_exact_mut(width)) {
            let (channel, tap) = (k / taps, k % taps);
            let input = &input[channel * plane..][..plane];
            let tap = [tap / kernel_columns / kernel_rows, tap / kernel_columns % kernel_rows, tap % kernel_columns];
            for run in &self.runs {
                let to = &mut to[run.start..run.start + run.len];
                match (geometry.inside(0, run.depth, tap[0]), geometry.inside(1, run.row, tap[1])) {
                    (Some(depth), Some(row)) => {
                        let line = (depth * geometry.input[1] + row) * geometry.input[2];
                        let line = &input[line..line + geometry.input[2]];
                        fill(geometry, line, geometry.position(2, run.column, tap[2]), to);
                    }
                    _ => to.fill(0.0),
                }
            }
            to[self.len..].fill(0.0);
        }
    }
}

/// Fills a run from a line of the input that its first output meets at `first`.
#[inline(always)]
fn fill(geometry: &Geometry, line: &[f32], first: isize, to: &mut [f32]) {
    let step = geometry.stride[2];
    let inside = geometry.inside_run(first, to.len());
    to[..inside.start].fill(0.0);
    to[inside.end..].fill(0.0);
    if inside.is_empty() {
        return;
    }
    let from = &line[first.wrapping_add_unsigned(inside.start * step) as usize..];
    let to = &mut to[inside];
    match step {
        1 => to.copy_from_slice(&from[..to.len()]),
        2 => {
            for (to, pair) in to.iter_mut().zip(from.chunks(2)) {
                *to = pair[0];
            }
        }
        _ => {
            for (to, from) in to.iter_mut().zip(from.iter().step_by(step)) {
                *to = *from;
            }
        }
    }
}
