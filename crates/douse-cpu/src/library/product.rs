//! Matrix products of float32 by tiles: rows that are read where they lie times panels that are packed.
//!
//! The side whose elements lie next to each other along the depth is taken as rows. Weights stored [n, k], as linear layers have them,
//! are so read once and never copied; then the result comes out with rows and columns exchanged ([`Layout::Columns`]).

use douse_core::Result;
use std::ops::Range;

use super::element::Real;
use super::gemm::{Matrix, MatrixMut, gemm};
use super::panel::{DEPTH, STEP, WIDTH, pack};
use super::tile::{Layout, Product};
use super::work::Work;
use crate::simd::dispatch_best;

/// Rows below which splitting them among threads costs more in packing than it gains.
const LEAST_ROWS: usize = 64;

/// Depth below which tiles are stored too often; the crate keeps more of the result in its cache.
const LEAST_DEPTH: usize = 128;

/// A piece of a product: some rows and columns of the result.
pub struct Task<'a> {
    pub row: usize,
    pub rows: usize,
    pub column: usize,
    pub columns: usize,
    pub layout: Layout,
    /// One slice a row, or a column, as the layout says.
    out: Vec<&'a mut [f32]>,
}

/// Left sides of a product: rows without gaps.
#[derive(Clone, Copy)]
pub struct Left<'a> {
    pub data: &'a [f32],
    /// From one row to the next.
    pub stride: usize,
    pub depth: usize,
    /// What each row's sums start with.
    pub bias: Option<&'a [f32]>,
}

/// Cuts a result of `rows` by `columns` that lies in `out` into about `wanted` tasks: by columns where there are enough of them, also by
/// rows otherwise.
pub fn split<'a>(out: &'a mut [f32], rows: usize, columns: usize, layout: Layout, wanted: usize) -> Vec<Task<'a>> {
    let by_row = wanted.clamp(1, (rows / LEAST_ROWS).max(1));
    let panels = columns.div_ceil(WIDTH).max(1);
    let by_column = wanted.clamp(1, panels);
    // Whichever alone is enough; columns first where channels are few, since each task packs its own panels.
    let (by_row, by_column) = match layout {
        Layout::Rows => (wanted.div_ceil(by_column).min(by_row), by_column),
        Layout::Columns => (by_row, wanted.div_ceil(by_row).min(by_column)),
    };
    let row_step = rows.div_ceil(by_row).next_multiple_of(STEP);
    let column_step = panels.div_ceil(by_column) * WIDTH;
    let mut tasks = Vec::new();
    let (outer, outer_step, inner, inner_step) = match layout {
        Layout::Rows => (rows, row_step, columns, column_step),
        Layout::Columns => (columns, column_step, rows, row_step),
    };
    if rows == 0 || columns == 0 {
        return tasks;
    }
    for (i, block) in out.chunks_mut(outer_step * inner).enumerate() {
        let first = tasks.len();
        let outer = i * outer_step..outer.min((i + 1) * outer_step);
        for start in (0..inner).step_by(inner_step) {
            let inner = start..inner.min(start + inner_step);
            let (row, column) = match layout {
                Layout::Rows => (&outer, &inner),
                Layout::Columns => (&inner, &outer),
            };
            tasks.push(Task {
                row: row.start,
                rows: row.len(),
                column: column.start,
                columns: column.len(),
                layout,
                out: Vec::with_capacity(outer.len()),
            });
        }
        for line in block.chunks_mut(inner) {
            for (task, part) in tasks[first..].iter_mut().zip(line.chunks_mut(inner_step)) {
                task.out.push(part);
            }
        }
    }
    tasks
}

impl Task<'_> {
    /// Computes the piece. `pack` fills a panel with the given columns and rows of the right side, padded with zeros to a multiple of
    /// [`STEP`] columns.
    pub fn run(mut self, left: Left<'_>, work: &Work, pack: impl Fn(Range<usize>, Range<usize>, &mut [f32])) {
        let mut buffer = work.scratch.take(left.depth.min(DEPTH) * WIDTH);
        let weight = &left.data[self.row * left.stride..];
        let bias = left.bias.map(|bias| &bias[self.row..self.row + self.rows]);
        // Once even without any product, for the bias.
        for from in (0..left.depth.max(1)).step_by(DEPTH) {
            let depth = from..(from + DEPTH).min(left.depth);
            for start in (0..self.columns).step_by(WIDTH) {
                let columns = start..(start + WIDTH).min(self.columns);
                let width = columns.len().next_multiple_of(STEP);
                let panel = &mut buffer[..depth.len() * width];
                pack(self.column + columns.start..self.column + columns.end, depth.clone(), panel);
                dispatch_best(Product {
                    weight,
                    rows: self.rows,
                    row_stride: left.stride,
                    depth: depth.clone(),
                    panel,
                    width,
                    bias,
                    out: &mut self.out,
                    layout: self.layout,
                    columns,
                });
            }
        }
    }
}

/// `out = a @ b` on all threads, rows of `out` without gaps.
pub fn multiply(a: Matrix<'_, f32>, b: Matrix<'_, f32>, out: &mut [f32], work: &Work) -> Result<()> {
    let (m, n) = (a.rows, b.cols);
    if a.cols < LEAST_DEPTH && m >= STEP && n >= STEP {
        return by_crate(a, b, out, work);
    }
    let rows_of_a = a.col_stride == 1 && a.row_stride >= 0;
    let columns_of_b = b.row_stride == 1 && b.col_stride >= 0;
    // The smaller side is packed.
    let (left, right, layout) = if columns_of_b && (m <= n || !rows_of_a) {
        (b.transposed(), a.transposed(), Layout::Columns)
    } else if rows_of_a {
        (a, b, Layout::Rows)
    } else {
        return by_crate(a, b, out, work);
    };
    let wanted = if work.threads() == 1 { 1 } else { work.threads() * 2 };
    let tasks = split(out, left.rows, right.cols, layout, wanted);
    let left = Left { data: &left.data[left.offset..], stride: left.row_stride as usize, depth: left.cols, bias: None };
    work.each_task(tasks, |task| task.run(left, work, |columns, depth, panel| pack(right, columns, depth, panel)));
    Ok(())
}

/// The same by the crate of [`super::gemm`], for any dtype and strides.
pub fn by_crate<R: Real>(a: Matrix<'_, R>, b: Matrix<'_, R>, out: &mut [R], work: &Work) -> Result<()> {
    let (m, n) = (a.rows, b.cols);
    gemm(a, b, MatrixMut::rows(out, m, n, n), R::ONE, false, work.threads)
}

#[cfg(test)]
mod tests {
    use super::super::check::{Random, close};
    use super::super::scratch::Scratch;
    use super::*;
    use crate::threads::Threads;

    #[test]
    fn tasks_cover_everything_once() {
        for layout in [Layout::Rows, Layout::Columns] {
            for (rows, columns, wanted) in
                [(1, 1, 8), (200, 49, 8), (64, 3136, 8), (300, 300, 1), (5, 1000, 3), (1000, 4, 4)]
            {
                let mut out = vec![0.0; rows * columns];
                for mut task in split(&mut out, rows, columns, layout, wanted) {
                    let lines = if layout == Layout::Rows { task.rows } else { task.columns };
                    assert_eq!(task.out.len(), lines);
                    task.out.iter_mut().flat_map(|line| line.iter_mut()).for_each(|x| *x += 1.0);
                    assert_eq!(task.out.iter().map(|line| line.len()).sum::<usize>(), task.rows * task.columns);
                }
                assert!(out.iter().all(|x| *x == 1.0));
            }
        }
    }

    #[test]
    fn deep_and_wide_products() {
        let mut random = Random::new(1);
        let (scratch, threads) = (Scratch::default(), [Threads::one(), Threads::new(2).unwrap()]);
        for (i, (m, k, n)) in
            [(5, 2100, 70), (70, 1030, 5), (150, 33, 150), (17, 9, 300), (9, 64, 11)].into_iter().enumerate()
        {
            let work = Work { scratch: &scratch, threads: &threads[i % 2] };
            let a: Vec<f32> = (0..m * k).map(|_| random.float() as f32).collect();
            let b: Vec<f32> = (0..k * n).map(|_| random.float() as f32).collect();
            let column_major = |data, rows, cols| Matrix::rows(data, cols, rows, rows).transposed();
            for which in 0..4 {
                let a = if which & 1 == 0 { Matrix::rows(&a, m, k, k) } else { column_major(&a, m, k) };
                let b = if which & 2 == 0 { Matrix::rows(&b, k, n, n) } else { column_major(&b, k, n) };
                let (mut got, mut want) = (vec![f32::NAN; m * n], vec![0.0; m * n]);
                multiply(a, b, &mut got, &work).unwrap();
                by_crate(a, b, &mut want, &work).unwrap();
                let wide = |x: Vec<f32>| -> Vec<f64> { x.into_iter().map(f64::from).collect() };
                close(&wide(got), &wide(want), 1e-5, &format!("{m} {k} {n}, {which}"));
            }
        }
    }
}
