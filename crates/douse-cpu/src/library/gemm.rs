//! Matrix products of float32 and float64 by the `matrixmultiply` crate: the one place here that hands out pointers.
//!
//! The crate's products are cut into pieces here, one a thread. Each element of the result is the same sum in the same order wherever its piece
//! begins and ends, so that the answer does not depend on how many threads there are.

use douse_core::{Error, Result};

use super::element::Real;
use crate::threads::Threads;

/// The crate's function of one dtype: rows of `a`, its columns, columns of `b`; what the product is multiplied by; `a` and `b`, each with the steps
/// between its rows and its columns; what `out` is multiplied by (for 0 it is not read), and `out`, likewise.
pub type GemmFunction<T> =
    unsafe fn(usize, usize, usize, T, *const T, isize, isize, *const T, isize, isize, T, *mut T, isize, isize);

/// Rows and columns of a piece are a multiple of this: of the crate's tiles for all processors.
const TILE: usize = 16;

/// Multiplications below which a piece is not worth a thread.
const LEAST_WORK: usize = 1 << 18;

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
}

/// Where the result is written, for threads to share.
#[derive(Clone, Copy)]
struct Target<T>(*mut T);

// SAFETY: threads write elements of their own pieces alone, and pieces have no element in common.
unsafe impl<T: Send> Sync for Target<T> {}

impl<T> Target<T> {
    /// The address of an element that is known to be there.
    fn at(&self, offset: isize) -> *mut T {
        self.0.wrapping_offset(offset)
    }
}

/// The rows and the columns of a piece of a product [m, k] by [k, n], about one a thread. Each packs its rows and columns for itself, so they are
/// as near to squares as threads allow.
fn piece(m: usize, k: usize, n: usize, threads: usize) -> (usize, usize) {
    let most = (m * n).saturating_mul(k) / LEAST_WORK;
    let count = threads.min(most).max(1);
    let size = |len: usize, parts: usize| len.div_ceil(parts).next_multiple_of(TILE);
    let sizes = (1..=count).map(|rows| (size(m, rows), size(n, count / rows)));
    // What is done per element of a piece takes 16 times what is done per element of its sides, nearly.
    sizes.min_by_key(|(rows, columns)| rows * columns + TILE * (rows + columns)).unwrap_or((m, n))
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

/// `out = alpha * a @ b`, or with `accumulate` `out += alpha * a @ b`.
///
/// Fails where sizes disagree, an operand leaves its slice, or `out` overlaps itself.
pub fn gemm<T: Real>(
    a: Matrix<'_, T>,
    b: Matrix<'_, T>,
    out: MatrixMut<'_, T>,
    alpha: T,
    accumulate: bool,
    threads: &Threads,
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
    let target = Target(out.data.as_mut_ptr());
    let (rows, columns) = piece(m, k, n, threads.count());
    let across = n.div_ceil(columns);
    threads.each(m.div_ceil(rows) * across, |i| {
        let (row, column) = (i / across * rows, i % across * columns);
        let at = |offset: usize, steps: usize, stride: isize| offset.wrapping_add_signed(steps as isize * stride);
        // An empty product reads nothing, so its operands may be empty slices with any offset.
        let (from_a, from_b) = match k {
            0 => (0, 0),
            _ => (at(a.offset, row, a.row_stride), at(b.offset, column, b.col_stride)),
        };
        // SAFETY: `fits` has shown that every element of each operand lies in its slice, so offsets of elements and all steps between them stay in
        // bounds, from whichever end they are counted; `row` and `column` are those of an element of `out`. It is borrowed mutably, hence does not
        // alias `a` or `b`, its elements are distinct, and pieces have none in common.
        unsafe {
            T::gemm_function()(
                rows.min(m - row),
                k,
                columns.min(n - column),
                alpha,
                a.data.as_ptr().add(from_a),
                a.row_stride,
                a.col_stride,
                b.data.as_ptr().add(from_b),
                b.row_stride,
                b.col_stride,
                if accumulate { T::ONE } else { T::ZERO },
                target.at(at(at(out.offset, row, out.row_stride), column, out.col_stride) as isize),
                out.row_stride,
                out.col_stride,
            );
        }
    });
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
        gemm(left, right, MatrixMut::rows(&mut out, 3, 2, 2), 1.0, true, &Threads::one()).unwrap();
        assert_eq!(out, [12.0, 15.0, 14.0, 21.0, 16.0, 27.0]);
        let mut out = [0.0; 4];
        gemm(left.transposed(), left, MatrixMut::rows(&mut out, 2, 2, 2), 2.0, false, &Threads::one()).unwrap();
        assert_eq!(out, [70.0, 88.0, 88.0, 112.0]);
        // Its columns and its rows from last to first, each the nearer ones.
        let mut out = [0.0; 6];
        let to = |data| MatrixMut { data, offset: 5, rows: 3, cols: 2, row_stride: -2, col_stride: -1 };
        gemm(left, right, to(&mut out), 1.0, false, &Threads::one()).unwrap();
        assert_eq!(out, [17.0, 6.0, 11.0, 4.0, 5.0, 2.0]);
        let to = |data| MatrixMut { data, offset: 5, rows: 3, cols: 2, row_stride: -1, col_stride: -3 };
        gemm(left, right, to(&mut out), 1.0, false, &Threads::one()).unwrap();
        assert_eq!(out, [17.0, 11.0, 5.0, 6.0, 4.0, 2.0]);
    }

    #[test]
    fn operands_outside_their_memory_are_refused() {
        let a = [0.0f64; 6];
        let mut out = [1.0; 4];
        let short = Matrix { offset: 1, ..Matrix::rows(&a, 2, 3, 3) };
        let b = Matrix::rows(&a, 3, 2, 2);
        assert!(gemm(short, b, MatrixMut::rows(&mut out, 2, 2, 2), 1.0, false, &Threads::one()).is_err());
        let a = Matrix::rows(&a, 2, 3, 3);
        assert!(gemm(a, b, MatrixMut::rows(&mut out, 2, 2, 1), 1.0, false, &Threads::one()).is_err());
        let empty = Matrix::rows(&[], 2, 0, 0);
        gemm(empty, Matrix::rows(&[], 0, 2, 2), MatrixMut::rows(&mut out, 2, 2, 2), 1.0, false, &Threads::one())
            .unwrap();
        assert_eq!(out, [0.0; 4]);
    }
    #[test]
    fn pieces_cover_a_product_and_are_as_many_as_threads() {
        assert_eq!(piece(512, 512, 512, 4), (256, 256));
        assert_eq!(piece(16, 4096, 4096, 4), (16, 1024));
        assert_eq!(piece(4096, 4096, 3, 2), (2048, 16));
        // Too little to share.
        assert_eq!(piece(64, 64, 64, 8), (64, 64));
    }

    #[test]
    fn any_number_of_threads_gives_the_same_bits() {
        let (m, k, n) = (149, 301, 203);
        let mut random = super::super::check::Random::new(1);
        let a: Vec<f32> = (0..m * k).map(|_| random.float() as f32).collect();
        let b: Vec<f32> = (0..k * n).map(|_| random.float() as f32).collect();
        let answer = |threads: &Threads, accumulate: bool| {
            let mut out = vec![0.7; m * n];
            let right = Matrix::rows(&b, n, k, k).transposed();
            gemm(Matrix::rows(&a, m, k, k), right, MatrixMut::rows(&mut out, m, n, n), 0.3, accumulate, threads)
                .unwrap();
            out
        };
        for accumulate in [false, true] {
            let want = answer(&Threads::one(), accumulate);
            for count in [2, 3, 7] {
                assert!(answer(&Threads::new(count).unwrap(), accumulate) == want, "{count} threads");
            }
        }
    }
}
