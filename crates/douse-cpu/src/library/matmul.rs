//! Matrix products over leading dimensions.

use douse_core::{Error, Result};

use super::element::{Float, Number, Real};
use super::gemm::Matrix;
use super::matvec::vector_matrix;
use super::simd::{axpy, vectorised};
use super::tensor::{Offsets, Tensor, TensorMut};
use super::work::Work;

/// Sizes of a product and the operands' strides in their last two dimensions.
struct Product {
    m: usize,
    k: usize,
    n: usize,
    a: (isize, isize),
    b: (isize, isize),
}

impl Product {
    /// Checks that `[..., m, k] @ [..., k, n]` gives `out`, all with the same leading sizes.
    fn new<T, O>(a: &Tensor<'_, T>, b: &Tensor<'_, T>, out: &TensorMut<'_, O>) -> Result<Product> {
        let split = |sizes: &[usize]| match sizes {
            [lead @ .., x, y] => Some((lead.to_vec(), *x, *y)),
            _ => None,
        };
        let strides = |strides: &[isize]| match strides {
            [.., x, y] => (*x, *y),
            _ => (0, 0),
        };
        match (split(a.sizes()), split(b.sizes()), split(out.sizes())) {
            (Some((lead_a, m, k)), Some((lead_b, k_b, n)), Some((lead, m_out, n_out)))
                if lead_a == lead && lead_b == lead && k == k_b && m == m_out && n == n_out =>
            {
                Ok(Product { m, k, n, a: strides(a.strides()), b: strides(b.strides()) })
            }
            _ => Err(Error::internal(format!(
                "a matrix product of {:?} and {:?} into {:?}",
                a.sizes(),
                b.sizes(),
                out.sizes()
            ))),
        }
    }

    fn left<'a, T>(&self, a: &Tensor<'a, T>, offset: usize) -> Matrix<'a, T> {
        Matrix { data: a.data(), offset, rows: self.m, cols: self.k, row_stride: self.a.0, col_stride: self.a.1 }
    }

    fn right<'a, T>(&self, b: &Tensor<'a, T>, offset: usize) -> Matrix<'a, T> {
        Matrix { data: b.data(), offset, rows: self.k, cols: self.n, row_stride: self.b.0, col_stride: self.b.1 }
    }
}

/// The offsets of the matrices of a tensor.
fn matrices<'a, T>(tensor: &Tensor<'a, T>) -> Offsets<'a> {
    let lead = tensor.rank().saturating_sub(2);
    Offsets::new(&tensor.sizes()[..lead], &tensor.strides()[..lead], tensor.offset())
}

/// The product of floats. 16-bit floats accumulate in float32 and round once, to `O`.
pub fn matmul_float<T: Float, O: Float<Wide = T::Wide>>(
    a: Tensor<'_, T>,
    b: Tensor<'_, T>,
    mut out: TensorMut<'_, O>,
    work: &Work,
) -> Result<()> {
    let product = Product::new(&a, &b, &out)?;
    let (m, k, n) = (product.m, product.k, product.n);
    if out.numel() == 0 {
        return Ok(());
    }
    out.write(work.scratch, |out| {
        if m > 1 && n > 1 && a.rank() > 2 && out.len() / (m * n) >= work.threads() && k * m * n < 1 << 20 {
            // Many small products: one a task.
            let pairs: Vec<_> = matrices(&a).zip(matrices(&b)).collect();
            let group = work.chunk(pairs.len(), 1);
            let failed = std::sync::Mutex::new(None);
            work.each_chunk(out, group * m * n, |i, out| {
                for (out, (a_offset, b_offset)) in out.chunks_mut(m * n).zip(&pairs[i * group..]) {
                    let alone = Work { threads: &crate::threads::Threads::one(), ..*work };
                    let (a, b) = (product.left(&a, *a_offset), product.right(&b, *b_offset));
                    if let Err(e) = matrix(a, b, out, &alone) {
                        *failed.lock().unwrap_or_else(|e| e.into_inner()) = Some(e);
                    }
                }
            });
            return failed.into_inner().unwrap_or_else(|e| e.into_inner()).map_or(Ok(()), Err);
        }
        let offsets = matrices(&a).zip(matrices(&b));
        for (out, (a_offset, b_offset)) in out.chunks_mut(m * n).zip(offsets) {
            matrix(product.left(&a, a_offset), product.right(&b, b_offset), out, work)?;
        }
        Ok(())
    })
}

/// One product into rows without gaps.
fn matrix<T: Float, O: Float<Wide = T::Wide>>(
    a: Matrix<'_, T>,
    b: Matrix<'_, T>,
    out: &mut [O],
    work: &Work,
) -> Result<()> {
    let (m, n) = (a.rows, b.cols);
    if a.cols == 0 {
        out.fill(O::zeroed());
        return Ok(());
    }
    if m == 1 || n == 1 {
        let (row, matrix) = if m == 1 { (a, b) } else { (b.transposed(), a.transposed()) };
        if vector(row, matrix, out, work) {
            return Ok(());
        }
    }
    if let (Some(a_data), Some(b_data), Some(out)) = (T::as_wide(a.data), T::as_wide(b.data), O::as_wide_mut(out)) {
        let a = Matrix { data: a_data, ..relocate(&a) };
        let b = Matrix { data: b_data, ..relocate(&b) };
        return T::Wide::product(a, b, out, work);
    }
    // Widened by blocks of columns of b that stay in the cache.
    let cols = (COLUMN_BLOCK / a.cols.max(1)).clamp(16, 512).min(n);
    let mut wide_a = work.scratch.take(m * a.cols);
    widen_matrix(a, &mut wide_a, work);
    let mut wide_b = work.scratch.take(a.cols * cols);
    let mut wide_out = work.scratch.take(m * cols);
    for first in (0..n).step_by(cols) {
        let width = cols.min(n - first);
        // Transposed, so that weights stored [n, k] are read along their rows.
        let block = Matrix { offset: offset(b.offset, first, b.col_stride), cols: width, ..b }.transposed();
        let wide_b = &mut wide_b[..a.cols * width];
        widen_matrix(block, wide_b, work);
        let wide_out = &mut wide_out[..m * width];
        let right = Matrix::rows(wide_b, width, a.cols, a.cols).transposed();
        T::Wide::product(Matrix::rows(&wide_a, m, a.cols, a.cols), right, wide_out, work)?;
        for (row, out) in wide_out.chunks_exact(width).zip(out.chunks_exact_mut(n)) {
            vectorised!(O::narrow(row, &mut out[first..first + width]));
        }
    }
    Ok(())
}

/// Elements of `b` widened at a time: 2 MiB as float32.
const COLUMN_BLOCK: usize = 1 << 19;

/// A matrix of the same place with no data yet.
fn relocate<'a, T, U>(from: &Matrix<'_, T>) -> Matrix<'a, U> {
    Matrix {
        data: &[],
        offset: from.offset,
        rows: from.rows,
        cols: from.cols,
        row_stride: from.row_stride,
        col_stride: from.col_stride,
    }
}

fn offset(base: usize, index: usize, stride: isize) -> usize {
    base.wrapping_add_signed(index as isize * stride)
}

/// Copies a matrix to rows without gaps, in its wide dtype.
fn widen_matrix<T: Float>(from: Matrix<'_, T>, to: &mut [T::Wide], work: &Work) {
    let cols = from.cols.max(1);
    let rows = work.chunk(from.rows, 4096 / cols);
    work.each_chunk(to, rows * cols, |i, to| {
        for (r, row) in to.chunks_exact_mut(cols).enumerate() {
            let start = offset(from.offset, i * rows + r, from.row_stride);
            if from.col_stride == 1 {
                vectorised!(T::widen(&from.data[start..start + cols], row));
            } else {
                for (j, x) in row.iter_mut().enumerate() {
                    *x = from.data[offset(start, j, from.col_stride)].to_wide();
                }
            }
        }
    });
}

/// A row times a matrix. Returns false where the matrix has gaps in both directions, and does nothing.
fn vector<T: Float, O: Float<Wide = T::Wide>>(
    row: Matrix<'_, T>,
    matrix: Matrix<'_, T>,
    out: &mut [O],
    work: &Work,
) -> bool {
    let mut x = work.scratch.take(row.cols);
    for (k, x) in x.iter_mut().enumerate() {
        *x = row.data[offset(row.offset, k, row.col_stride)].to_wide();
    }
    if let Some(out) = O::as_wide_mut(out) {
        return vector_matrix(&x, matrix, out, work);
    }
    let mut wide = work.scratch.take(out.len());
    let done = vector_matrix(&x, matrix, &mut wide, work);
    O::narrow(&wide, out);
    done
}

/// The product of integers, which wrap.
pub fn matmul_int<T: Number>(a: Tensor<'_, T>, b: Tensor<'_, T>, mut out: TensorMut<'_, T>, work: &Work) -> Result<()> {
    let product = Product::new(&a, &b, &out)?;
    let (m, k, n) = (product.m, product.k, product.n);
    if out.numel() == 0 {
        return Ok(());
    }
    let (a, b) = (a.dense(work.scratch), b.dense(work.scratch));
    out.write(work.scratch, |out| {
        work.each_chunk(out, n, |row, out| {
            let a = &a[row * k..][..k];
            let b = &b[row / m * k * n..][..k * n];
            vectorised!({
                out.fill(T::ZERO);
                if n == 1 {
                    out[0] = super::simd::dot(a, b);
                } else {
                    for (x, b) in a.iter().zip(b.chunks_exact(n)) {
                        axpy(*x, b, out);
                    }
                }
            });
        });
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::super::check::{Random, close, strided};
    use super::*;
    use crate::library::scratch::Scratch;
    use crate::threads::Threads;
    use half::{bf16, f16};

    /// The product in float64, from dense operands.
    fn naive(batch: usize, m: usize, k: usize, n: usize, a: &[f64], b: &[f64]) -> Vec<f64> {
        let mut out = vec![0.0; batch * m * n];
        for (i, out) in out.iter_mut().enumerate() {
            let (batch, row, col) = (i / (m * n), i / n % m, i % n);
            *out = (0..k).map(|x| a[(batch * m + row) * k + x] * b[(batch * k + x) * n + col]).sum();
        }
        out
    }

    fn check<T: Float>(random: &mut Random, tolerance: f64) {
        let scratch = Scratch::default();
        let threads = [Threads::one(), Threads::new(2).unwrap()];
        for round in 0..60 {
            let work = Work { scratch: &scratch, threads: &threads[round % 2] };
            let size = |random: &mut Random| [0, 1, 1, 2, 5, 33, 70][random.below(7)];
            let (batch, m, k, n) = (1 + random.below(3), size(random), size(random), size(random));
            let a = strided(random, &[batch, m, k], |r| T::from_wide(T::Wide::from_f64(r.float())));
            let b = strided(random, &[batch, k, n], |r| T::from_wide(T::Wide::from_f64(r.float())));
            let mut out = strided(random, &[batch, m, n], |_| T::from_wide(T::Wide::from_f64(f64::NAN)));
            matmul_float(a.tensor(), b.tensor(), out.tensor_mut(), &work).unwrap();
            let wide = |x: Vec<T>| -> Vec<f64> { x.iter().map(|x| x.to_wide().to_f64()).collect() };
            let want = naive(batch, m, k, n, &wide(a.dense()), &wide(b.dense()));
            close(&wide(out.dense()), &want, tolerance, &format!("[{batch}, {m}, {k}, {n}]"));
        }
    }

    #[test]
    fn floats_in_all_strides() {
        let mut random = Random::new(1);
        check::<f32>(&mut random, 1e-5);
        check::<f64>(&mut random, 1e-13);
        check::<f16>(&mut random, 1e-3);
        check::<bf16>(&mut random, 8e-3);
    }

    #[test]
    fn half_rounds_once() {
        // 2048 + 1 needs 12 bits: adding ones in half would stay at 2048.
        let (scratch, threads) = (Scratch::default(), Threads::one());
        let work = Work { scratch: &scratch, threads: &threads };
        let ones = vec![f16::ONE; 4100];
        for m in [1, 2] {
            let (a_sizes, sizes) = ([m, 4100], [m, 2]);
            let a = Tensor::new(&ones, 0, &a_sizes, &[0, 1]).unwrap();
            let b = Tensor::new(&ones, 0, &[4100, 2], &[1, 0]).unwrap();
            let mut out = vec![f16::ZERO; 2 * m];
            matmul_float(a, b, TensorMut::new(&mut out, 0, &sizes, &[2, 1]).unwrap(), &work).unwrap();
            assert!(out.iter().all(|x| x.to_f32() == 4100.0), "{out:?}");
        }
    }

    #[test]
    fn integers_wrap() {
        let mut random = Random::new(2);
        let (scratch, threads) = (Scratch::default(), Threads::new(2).unwrap());
        let work = Work { scratch: &scratch, threads: &threads };
        for (m, k, n) in [(3, 40, 5), (1, 7, 1), (2, 0, 3), (0, 2, 2)] {
            let a = strided(&mut random, &[2, m, k], |r| r.below(256) as u8 as i8);
            let b = strided(&mut random, &[2, k, n], |r| r.below(256) as u8 as i8);
            let mut out = strided(&mut random, &[2, m, n], |_| 1i8);
            matmul_int(a.tensor(), b.tensor(), out.tensor_mut(), &work).unwrap();
            let wide = |x: Vec<i8>| -> Vec<f64> { x.iter().map(|x| *x as f64).collect() };
            let want = naive(2, m, k, n, &wide(a.dense()), &wide(b.dense()));
            assert_eq!(out.dense(), want.iter().map(|x| *x as i64 as i8).collect::<Vec<_>>());
        }
    }

    #[test]
    fn sizes_that_disagree_are_refused() {
        let (scratch, threads) = (Scratch::default(), Threads::one());
        let work = Work { scratch: &scratch, threads: &threads };
        let data = [0.0f32; 6];
        let a = Tensor::new(&data, 0, &[2, 3], &[3, 1]).unwrap();
        let mut out = [0.0f32; 4];
        let out = TensorMut::new(&mut out, 0, &[2, 2], &[2, 1]).unwrap();
        assert!(matmul_float(a, a, out, &work).is_err());
    }
}
