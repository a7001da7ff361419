//! Matrix products of float32 and float64 by the `gemm` crates: the one place here that hands out pointers.

use douse_core::{Error, Result};
use gemm_common::Parallelism;

use super::element::Real;

/// The crates' function of one dtype: sizes `m`, `n`, `k`; `out`, whether it is added to, `a`, `b`, each with the steps between its columns and
/// its rows; what `out` and the product are multiplied by; three conjugations; threads.
pub type GemmFunction<T> = unsafe fn(
    usize,
    usize,
    usize,
    *mut T,
    isize,
    isize,
    bool,
    *const T,
    isize,
    isize,
    *const T,
    isize,
    isize,
    T,
    T,
    bool,
    bool,
    bool,
    Parallelism,
);

/// A matrix in a slice, to read.
#[derive(Clone, Copy, Debug)]
pub struct Matrix<'a, T> {
    pub data: &'a [T],
    pub offset: usize,
    pub rows: usize,
    pub cols: usize,
    pub row_stride: isize,
    pub col_stride: isize,
}

/// A matrix in a slice, to write; its elements are distinct.
#[derive(Debug)]
pub struct MatrixMut<'a, T> {
    pub data: &'a mut [T],
    pub offset: usize,
    pub rows: usize,
    pub cols: usize,
    pub row_stride: isize,
    pub col_stride: isize,
}

impl<'a, T> Matrix<'a, T> {
    /// Rows that lie `row_stride` apart, without gaps within.
    pub fn rows(data: &'a [T], rows: usize, cols: usize, row_stride: usize) -> Matrix<'a, T> {
        Matrix { data, offset: 0, rows, cols, row_stride: row_stride as isize, col_stride: 1 }
    }

    pub fn transposed(self) -> Matrix<'a, T> {
        Matrix { rows: self.cols, cols: self.rows, row_stride: self.col_stride, col_stride: self.row_stride, ..self }
    }
}

impl<'a, T> MatrixMut<'a, T> {
    /// Rows that lie `row_stride` apart, without gaps within.
    pub fn rows(data: &'a mut [T], rows: usize, cols: usize, row_stride: usize) -> MatrixMut<'a, T> {
        MatrixMut { data, offset: 0, rows, cols, row_stride: row_stride as isize, col_stride: 1 }
    }

    fn transposed(self) -> MatrixMut<'a, T> {
        MatrixMut { rows: self.cols, cols: self.rows, row_stride: self.col_stride, col_stride: self.row_stride, ..self }
    }
}

/// The offset and the stride of the same elements from last to first.
fn reversed(offset: usize, len: usize, stride: isize) -> (usize, isize) {
    (offset.wrapping_add_signed(len.saturating_sub(1) as isize * stride), -stride)
}

/// Whether all elements of a matrix lie in `len` elements of memory.
fn fits(len: usize, offset: usize, dims: [(usize, isize); 2]) -> bool {
    if len > isize::MAX as usize {
        return false;
    }
    let (mut low, mut high) = (offset as i128, offset as i128);
    for (size, stride) in dims {
        let span = (size as i128 - 1) * stride as i128;
        low += span.min(0);
        high += span.max(0);
    }
    low >= 0 && high < len as i128
}

/// `out = alpha * a @ b`, or with `accumulate` `out += alpha * a @ b`; on all threads if `parallel`.
///
/// Fails where sizes disagree, an operand leaves its slice, or `out` overlaps itself.
pub fn gemm<T: Real>(
    a: Matrix<'_, T>,
    b: Matrix<'_, T>,
    out: MatrixMut<'_, T>,
    alpha: T,
    accumulate: bool,
    parallel: bool,
) -> Result<()> {
    let (m, k, n) = (a.rows, a.cols, b.cols);
    if b.rows != k || out.rows != m || out.cols != n {
        return Err(Error::internal(format!(
            "a product of [{m}, {k}] and [{}, {n}] into [{}, {}]",
            b.rows, out.rows, out.cols
        )));
    }
    if m == 0 || n == 0 {
        return Ok(());
    }
    let out_dims = [(m, out.row_stride), (n, out.col_stride)];
    let inside = fits(out.data.len(), out.offset, out_dims)
        && (k == 0
            || fits(a.data.len(), a.offset, [(m, a.row_stride), (k, a.col_stride)])
                && fits(b.data.len(), b.offset, [(k, b.row_stride), (n, b.col_stride)]));
    if !inside || !super::tensor::is_injective(&[m, n], &[out.row_stride, out.col_stride]) {
        return Err(Error::internal("an operand of a matrix product leaves its memory or overlaps itself"));
    }
    // An empty product reads nothing, so its operands may be empty slices with any offset.
    let (a_offset, b_offset) = if k == 0 { (0, 0) } else { (a.offset, b.offset) };
    let a = Matrix { offset: a_offset, ..a };
    let b = Matrix { offset: b_offset, ..b };
    // The kernels want columns without gaps in `out`, and steps that are positive there and along the rows of `a`.
    let (mut a, mut b, mut out) = match out.col_stride.abs() < out.row_stride.abs() {
        true => (b.transposed(), a.transposed(), out.transposed()),
        false => (a, b, out),
    };
    if out.row_stride < 0 {
        (out.offset, out.row_stride) = reversed(out.offset, out.rows, out.row_stride);
        (a.offset, a.row_stride) = reversed(a.offset, a.rows, a.row_stride);
    }
    if out.col_stride < 0 {
        (out.offset, out.col_stride) = reversed(out.offset, out.cols, out.col_stride);
        (b.offset, b.col_stride) = reversed(b.offset, b.cols, b.col_stride);
    }
    if a.col_stride < 0 && k > 0 {
        (a.offset, a.col_stride) = reversed(a.offset, k, a.col_stride);
        (b.offset, b.row_stride) = reversed(b.offset, k, b.row_stride);
    }
    let parallelism = if parallel { Parallelism::Rayon(0) } else { Parallelism::None };
    // SAFETY: `fits` has shown that every element of each operand lies in its slice, so offsets and all steps between
    // elements stay in bounds, from whichever end they are counted; `out` is borrowed mutably, hence does not alias `a` or `b`, and its elements
    // are distinct, so that threads may write them.
    unsafe {
        T::gemm_function()(
            out.rows,
            out.cols,
            k,
            out.data.as_mut_ptr().add(out.offset),
            out.col_stride,
            out.row_stride,
            accumulate,
            a.data.as_ptr().add(a.offset),
            a.col_stride,
            a.row_stride,
            b.data.as_ptr().add(b.offset),
            b.col_stride,
            b.row_stride,
            T::ONE,
            alpha,
            false,
            false,
            false,
            parallelism,
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn product_with_transposed_and_reversed_operands() {
        let a = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0f32];
        let b = [1.0, 0.0, 2.0, 1.0f32];
        let mut out = [10.0; 6];
        let left = Matrix::rows(&a, 3, 2, 2);
        // The columns of b from last to first.
        let right = Matrix { data: &b, offset: 1, rows: 2, cols: 2, row_stride: 2, col_stride: -1 };
        gemm(left, right, MatrixMut::rows(&mut out, 3, 2, 2), 1.0, true, false).unwrap();
        assert_eq!(out, [12.0, 15.0, 14.0, 21.0, 16.0, 27.0]);
        let mut out = [0.0; 4];
        gemm(left.transposed(), left, MatrixMut::rows(&mut out, 2, 2, 2), 2.0, false, true).unwrap();
        assert_eq!(out, [70.0, 88.0, 88.0, 112.0]);
        // Its columns and its rows from last to first, each the nearer ones.
        let mut out = [0.0; 6];
        let to = |data| MatrixMut { data, offset: 5, rows: 3, cols: 2, row_stride: -2, col_stride: -1 };
        gemm(left, right, to(&mut out), 1.0, false, false).unwrap();
        assert_eq!(out, [17.0, 6.0, 11.0, 4.0, 5.0, 2.0]);
        let to = |data| MatrixMut { data, offset: 5, rows: 3, cols: 2, row_stride: -1, col_stride: -3 };
        gemm(left, right, to(&mut out), 1.0, false, false).unwrap();
        assert_eq!(out, [17.0, 11.0, 5.0, 6.0, 4.0, 2.0]);
    }

    #[test]
    fn operands_outside_their_memory_are_refused() {
        let a = [0.0f64; 6];
        let mut out = [1.0; 4];
        let short = Matrix { offset: 1, ..Matrix::rows(&a, 2, 3, 3) };
        let b = Matrix::rows(&a, 3, 2, 2);
        assert!(gemm(short, b, MatrixMut::rows(&mut out, 2, 2, 2), 1.0, false, false).is_err());
        let a = Matrix::rows(&a, 2, 3, 3);
        assert!(gemm(a, b, MatrixMut::rows(&mut out, 2, 2, 1), 1.0, false, false).is_err());
        let empty = Matrix::rows(&[], 2, 0, 0);
        gemm(empty, Matrix::rows(&[], 0, 2, 2), MatrixMut::rows(&mut out, 2, 2, 2), 1.0, false, false).unwrap();
        assert_eq!(out, [0.0; 4]);
    }
}
