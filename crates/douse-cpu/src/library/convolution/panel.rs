//! Panels of a convolution's matrix product: what a block of neighbouring outputs sees of the input.
//!
//! A panel has a row for each product that an output sums (input channel, then kernel element) and a column for each output.

use std::ops::Range;

use super::super::panel::STEP;
use super::geometry::Geometry;

/// A piece of a line of the input that a kernel element meets.
#[derive(Clone, Copy, Debug)]
struct Piece {
    /// In the channel of the input.
    from: usize,
    /// In the panel's row.
    to: usize,
    len: usize,
}

/// The outputs of a panel: for each kernel element, where its row comes from. The same for all channels.
#[derive(Debug)]
pub struct Outputs {
    /// By kernel element, one after the other.
    pieces: Vec<Piece>,
    /// Where the pieces of a kernel element end, and whether they leave gaps, which are zeros.
    taps: Vec<(usize, bool)>,
    len: usize,
    /// From one element of a piece to the next.
    step: usize,
}

impl Outputs {
    /// The outputs `positions` of a plane, in row-major order.
    pub fn new(g: &Geometry, positions: Range<usize>) -> Outputs {
        let [_, rows, columns] = g.output;
        let [_, kernel_rows, kernel_columns] = g.kernel;
        let (mut pieces, mut taps) = (Vec::new(), Vec::new());
        for tap in 0..g.taps() {
            let mut covered = 0;
            let mut at = positions.start;
            while at < positions.end {
                let (line, column) = (at / columns, at % columns);
                let len = (columns - column).min(positions.end - at);
                let z = g.inside(0, line / rows, tap / kernel_columns / kernel_rows);
                let y = g.inside(1, line % rows, tap / kernel_columns % kernel_rows);
                if let (Some(z), Some(y)) = (z, y) {
                    let first = g.position(2, column, tap % kernel_columns);
                    let inside = g.inside_run(first, len);
                    if !inside.is_empty() {
                        let x = first.wrapping_add_unsigned(inside.start * g.stride[2]) as usize;
                        let from = (z * g.input[1] + y) * g.input[2] + x;
                        pieces.push(Piece { from, to: at - positions.start + inside.start, len: inside.len() });
                        covered += inside.len();
                    }
                }
                at += len;
            }
            taps.push((pieces.len(), covered < positions.len()));
        }
        Outputs { pieces, taps, len: positions.len(), step: g.stride[2] }
    }

    /// Fills rows `rows` of the panel from the input channels of one group.
    pub fn pack(&self, g: &Geometry, input: &[f32], rows: Range<usize>, panel: &mut [f32]) {
        if rows.is_empty() {
            return;
        }
        let plane = g.input_plane();
        let width = self.len.next_multiple_of(STEP);
        let (mut channel, mut tap) = (rows.start / self.taps.len(), rows.start % self.taps.len());
        for to in panel.chunks_exact_mut(width).take(rows.len()) {
            let input = &input[channel * plane..][..plane];
            let (end, gaps) = self.taps[tap];
            if gaps || self.len < width {
                to.fill(0.0);
            }
            let begin = if tap == 0 { 0 } else { self.taps[tap - 1].0 };
            for piece in &self.pieces[begin..end] {
                copy(&input[piece.from..], self.step, &mut to[piece.to..piece.to + piece.len]);
            }
            tap += 1;
            if tap == self.taps.len() {
                (channel, tap) = (channel + 1, 0);
            }
        }
    }
}

/// Every `step`-th element.
#[inline(always)]
fn copy(from: &[f32], step: usize, to: &mut [f32]) {
    match step {
        1 => to.copy_from_slice(&from[..to.len()]),
        2 => {
            let (pairs, _) = from.as_chunks::<2>();
            let whole = to.len().min(pairs.len());
            for (to, pair) in to.iter_mut().zip(pairs) {
                *to = pair[0];
            }
            // The last one may have no neighbour.
            if let (Some(to), Some(last)) = (to.get_mut(whole), from.get(2 * whole)) {
                *to = *last;
            }
        }
        _ => {
            for (to, from) in to.iter_mut().zip(from.iter().step_by(step)) {
                *to = *from;
            }
        }
    }
}
