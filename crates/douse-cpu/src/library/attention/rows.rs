//! Attention of a few query rows over keys: the part that scaled dot-product and packed attention share.
//!
//! Keys are taken by blocks, with a running maximum and sum for each row (Milakov and Gimelshein, "Online normalizer calculation
//! for softmax", 2018), so that no row of scores is ever held whole.

use douse_core::Result;
use std::ops::Range;

use super::super::element::{Float, Number, Real};
use super::super::gemm::{Matrix, MatrixMut, gemm};
use super::super::scratch::Buffer;
use super::super::simd::{max, scale, vectorised};
use super::super::work::Work;
use crate::threads::Threads;

/// Keys in a block.
pub const KEYS: usize = 256;

/// Query rows in a task.
pub const ROWS: usize = 128;

/// Rows up to which products are taken row by row, which reads keys and values where they lie.
const FEW: usize = 6;

/// One query row.
#[derive(Clone, Debug)]
pub struct Row {
    /// Where it starts in the memory of the queries.
    pub query: usize,
    /// The keys it may see.
    pub keys: Range<usize>,
    /// Where its row of the mask starts.
    pub mask: usize,
}

/// A mask; strides may be 0.
#[derive(Clone, Copy, Debug)]
pub enum Mask<'a, T> {
    /// Keys take part where it is not 0.
    Allow { data: &'a [u8], stride: isize },
    /// Added to the scores.
    Add { data: &'a [T], stride: isize },
}

/// Query rows that see the same keys and values.
pub struct Rows<'a, T: Float> {
    pub query: &'a [T],
    /// Between the elements of a query.
    pub query_stride: isize,
    pub rows: Vec<Row>,
    /// [keys, head size]
    pub key: Matrix<'a, T>,
    /// [keys, value size]
    pub value: Matrix<'a, T>,
    pub mask: Option<Mask<'a, T>>,
    pub scale: T::Wide,
}

fn at(base: usize, index: usize, stride: isize) -> usize {
    base.wrapping_add_signed(index as isize * stride)
}

impl<T: Float> Mask<'_, T> {
    fn allows(&self, row: usize, key: usize) -> bool {
        match self {
            Mask::Allow { data, stride } => data[at(row, key, *stride)] != 0,
            // Negative infinity is the one value that leaves a key out whatever its score.
            Mask::Add { data, stride } => data[at(row, key, *stride)].to_wide() != T::Wide::NEG_INFINITY,
        }
    }

    /// The smallest range that has all of the allowed ones of `keys`.
    fn narrow(&self, row: usize, mut keys: Range<usize>) -> Range<usize> {
        while keys.start < keys.end && !self.allows(row, keys.end - 1) {
            keys.end -= 1;
        }
        while keys.start < keys.end && !self.allows(row, keys.start) {
            keys.start += 1;
        }
        keys
    }

    /// Applies the mask's elements `first..` of a row to scores.
    #[inline(always)]
    fn apply(&self, row: usize, first: usize, scores: &mut [T::Wide]) {
        match self {
            Mask::Allow { data, stride: 1 } => {
                for (score, allow) in scores.iter_mut().zip(&data[row + first..]) {
                    *score = if *allow != 0 { *score } else { T::Wide::NEG_INFINITY };
                }
            }
            Mask::Add { data, stride: 1 } => {
                for (score, x) in scores.iter_mut().zip(&data[row + first..]) {
                    *score = score.plus(x.to_wide());
                }
            }
            Mask::Allow { data, stride } => {
                for (j, score) in scores.iter_mut().enumerate() {
                    if data[at(row, first + j, *stride)] == 0 {
                        *score = T::Wide::NEG_INFINITY;
                    }
                }
            }
            Mask::Add { data, stride } => {
                for (j, score) in scores.iter_mut().enumerate() {
                    *score = score.plus(data[at(row, first + j, *stride)].to_wide());
                }
            }
        }
    }
}

/// Running maximum and sum of a row's weights.
#[derive(Clone, Copy)]
struct State<R> {
    max: R,
    sum: R,
}

impl<T: Float> Rows<'_, T> {
    /// Writes the result of each row to `out` [rows, value size].
    pub fn attend(mut self, out: &mut [T::Wide], work: &Work) -> Result<()> {
        let (size, value_size) = (self.key.cols, self.value.cols);
        out.fill(T::Wide::ZERO);
        let keys = self.limit();
        if keys.is_empty() || value_size == 0 {
            return Ok(());
        }
        let count = self.rows.len();
        let mut query = work.scratch.take::<T::Wide>(count * size);
        for (row, query) in self.rows.iter().zip(query.chunks_exact_mut(size.max(1))) {
            for (j, x) in query.iter_mut().enumerate() {
                *x = self.query[at(row.query, j, self.query_stride)].to_wide();
            }
        }
        let mut states = vec![State { max: T::Wide::NEG_INFINITY, sum: T::Wide::ZERO }; count];
        let block = KEYS.min(keys.len());
        let mut scores = work.scratch.take::<T::Wide>(count * block);
        let mut products = Products::new(self.key, self.value, count, block, work);
        for first in (keys.start..keys.end).step_by(block) {
            let width = block.min(keys.end - first);
            let scores = &mut scores[..count * width];
            products.scores(&query, first, width, self.scale, scores)?;
            vectorised!(self.weigh(first, width, scores, &mut states, out));
            products.add_values(scores, first, width, out)?;
        }
        for (state, out) in states.iter().zip(out.chunks_exact_mut(value_size)) {
            // Division, not a product with the reciprocal: equal values must come out as they went in.
            if state.sum != T::Wide::ZERO {
                out.iter_mut().for_each(|x| *x = *x / state.sum);
            }
        }
        Ok(())
    }

    /// Narrows each row's keys by the mask; returns the range that any row needs.
    fn limit(&mut self) -> Range<usize> {
        if let Some(mask) = self.mask {
            // Rows often share a row of the mask.
            let mut last: Option<(usize, Range<usize>, Range<usize>)> = None;
            for row in &mut self.rows {
                let known = last.as_ref().filter(|(at, keys, _)| *at == row.mask && *keys == row.keys);
                let narrow =
                    known.map_or_else(|| mask.narrow(row.mask, row.keys.clone()), |(_, _, known)| known.clone());
                last = Some((row.mask, row.keys.clone(), narrow.clone()));
                row.keys = narrow;
            }
        }
        let seeing = || self.rows.iter().map(|row| &row.keys).filter(|keys| !keys.is_empty());
        let start = seeing().map(|keys| keys.start).min().unwrap_or(0);
        start..seeing().map(|keys| keys.end).max().unwrap_or(start)
    }

    /// Turns the scores of keys `first..` into weights relative to each row's new maximum, and brings what stands in `out` to it.
    #[inline(always)]
    fn weigh(
        &self,
        first: usize,
        width: usize,
        scores: &mut [T::Wide],
        states: &mut [State<T::Wide>],
        out: &mut [T::Wide],
    ) {
        let rows = scores.chunks_exact_mut(width).zip(states).zip(out.chunks_exact_mut(self.value.cols));
        for (row, ((scores, state), out)) in self.rows.iter().zip(rows) {
            let start = row.keys.start.clamp(first, first + width) - first;
            let end = (row.keys.end.clamp(first, first + width) - first).max(start);
            scores[..start].fill(T::Wide::ZERO);
            scores[end..].fill(T::Wide::ZERO);
            let scores = &mut scores[start..end];
            if let Some(mask) = &self.mask {
                mask.apply(row.mask, first + start, scores);
            }
            let mut new = max(scores);
            if new < state.max {
                new = state.max;
            }
            if new == T::Wide::NEG_INFINITY {
                // No key is allowed yet; but a NaN stays one.
                if scores.iter().all(|x| *x == T::Wide::NEG_INFINITY) {
                    scores.fill(T::Wide::ZERO);
                    continue;
                }
                new = T::Wide::ZERO;
            }
            if new != state.max {
                let mut correction = [state.max];
                T::Wide::exp_minus(&mut correction, new);
                state.sum = state.sum * correction[0];
                scale(correction[0], out);
                state.max = new;
            }
            state.sum = state.sum.plus(T::Wide::exp_minus(scores, new));
        }
    }
}

/// The two matrix products, on blocks of keys.
struct Products<'a, T: Float> {
    key: Matrix<'a, T>,
    value: Matrix<'a, T>,
    /// Query rows.
    count: usize,
    /// A block of keys, or values, as its wide dtype and without gaps, where it is not used in place.
    wide: Option<Buffer<'a, T::Wide>>,
}

impl<'a, T: Float> Products<'a, T> {
    fn new(key: Matrix<'a, T>, value: Matrix<'a, T>, count: usize, block: usize, work: &Work<'a>) -> Products<'a, T> {
        let few = count <= FEW;
        let in_place = if few { key.col_stride == 1 && value.col_stride == 1 } else { T::as_wide(&[]).is_some() };
        let wide = (!in_place).then(|| work.scratch.take(block * key.cols.max(value.cols)));
        Products { key, value, count, wide }
    }

    /// Rows `first..first + count` of a matrix.
    fn block<U: Copy>(matrix: Matrix<'_, U>, first: usize, count: usize) -> Matrix<'_, U> {
        Matrix { offset: at(matrix.offset, first, matrix.row_stride), rows: count, ..matrix }
    }

    /// Copies a block to rows without gaps.
    fn widen<'b>(matrix: Matrix<'_, T>, to: &'b mut [T::Wide]) -> Matrix<'b, T::Wide> {
        let (rows, cols) = (matrix.rows, matrix.cols);
        for (i, to) in to.chunks_exact_mut(cols.max(1)).take(rows).enumerate() {
            let start = at(matrix.offset, i, matrix.row_stride);
            if matrix.col_stride == 1 {
                vectorised!(T::widen(&matrix.data[start..start + cols], to));
            } else {
                for (j, to) in to.iter_mut().enumerate() {
                    *to = matrix.data[at(start, j, matrix.col_stride)].to_wide();
                }
            }
        }
        Matrix::rows(to, rows, cols, cols)
    }

    /// The matrix as one of its own wide dtype.
    fn as_wide(matrix: Matrix<'_, T>) -> Option<Matrix<'_, T::Wide>> {
        let Matrix { offset, rows, cols, row_stride, col_stride, .. } = matrix;
        T::as_wide(matrix.data).map(|data| Matrix { data, offset, rows, cols, row_stride, col_stride })
    }

    /// `scores[r, j] = scale * query[r] . key[first + j]`
    fn scores(
        &mut self,
        query: &[T::Wide],
        first: usize,
        width: usize,
        by: T::Wide,
        scores: &mut [T::Wide],
    ) -> Result<()> {
        let block = Self::block(self.key, first, width);
        if let Some(wide) = &mut self.wide {
            let block = Self::widen(block, wide);
            return score_block(query, block, self.count, by, scores);
        }
        if self.count > FEW {
            return match Self::as_wide(block) {
                Some(block) => score_block(query, block, self.count, by, scores),
                None => Ok(()),
            };
        }
        score_rows(query, block, self.count, by, scores);
        Ok(())
    }

    /// `out[r] += sum_j weights[r, j] * value[first + j]`
    fn add_values(&mut self, weights: &[T::Wide], first: usize, width: usize, out: &mut [T::Wide]) -> Result<()> {
        let block = Self::block(self.value, first, width);
        if let Some(wide) = &mut self.wide {
            let block = Self::widen(block, wide);
            return add_block(weights, block, self.count, out);
        }
        if self.count > FEW {
            return match Self::as_wide(block) {
                Some(block) => add_block(weights, block, self.count, out),
                None => Ok(()),
            };
        }
        add_rows(weights, block, out);
        Ok(())
    }
}

fn score_rows<T: Float>(query: &[T::Wide], key: Matrix<'_, T>, count: usize, by: T::Wide, scores: &mut [T::Wide]) {
    let size = key.cols;
    for (r, scores) in scores.chunks_exact_mut(key.rows).take(count).enumerate() {
        let query = &query[r * size..][..size];
        T::dots(query, key.transposed(), 0, scores);
        vectorised!(scale(by, scores));
    }
}

fn add_rows<T: Float>(weights: &[T::Wide], value: Matrix<'_, T>, out: &mut [T::Wide]) {
    for (weights, out) in weights.chunks_exact(value.rows).zip(out.chunks_exact_mut(value.cols)) {
        T::add_sums(weights, value, 0, out);
    }
}

fn score_block<R: Real>(query: &[R], key: Matrix<'_, R>, count: usize, by: R, scores: &mut [R]) -> Result<()> {
    if count <= FEW && key.col_stride == 1 {
        score_rows::<R>(query, key, count, by, scores);
        return Ok(());
    }
    let query = Matrix::rows(query, count, key.cols, key.cols);
    let width = key.rows;
    gemm(query, key.transposed(), MatrixMut::rows(scores, count, width, width), by, false, &Threads::one())
}

fn add_block<R: Real>(weights: &[R], value: Matrix<'_, R>, count: usize, out: &mut [R]) -> Result<()> {
    if count <= FEW && value.col_stride == 1 {
        add_rows::<R>(weights, value, out);
        return Ok(());
    }
    let weights = Matrix::rows(weights, count, value.rows, value.rows);
    let size = value.cols;
    gemm(weights, value, MatrixMut::rows(out, count, size, size), R::ONE, true, &Threads::one())
}
