//! The product of a row vector and a matrix, at the speed memory is read with.

use super::element::{Float, Number, Real};
use super::gemm::Matrix;
use super::simd::{dot, sum_lanes, vectorised};
use super::work::Work;

/// Partial sums of a row's dot product.
const LANES: usize = 32;

/// Elements widened at a time where the matrix is of a 16-bit float.
const BLOCK: usize = 512;

/// `out[j] = sum_k x[k] * b[k, j]`, with one of the strides of `b` being 1, or of no consequence. Returns false where
/// neither is, and does nothing.
pub fn vector_matrix<T: Float>(x: &[T::Wide], b: Matrix<'_, T>, out: &mut [T::Wide], work: &Work) -> bool {
    if b.row_stride == 1 && b.col_stride >= 0 {
        // Columns lie in memory without gaps: one dot product each.
        let rows = work.chunk(b.cols, 16);
        work.each_chunk(out, rows, |i, out| vectorised(|| dots(x, b, i * rows, out)));
        true
    } else if b.col_stride == 1 && b.row_stride >= 0 {
        let cols = work.chunk(b.cols, 256).min(4096);
        work.each_chunk(out, cols, |i, out| {
            out.fill(T::Wide::ZERO);
            vectorised(|| add_sums(x, b, i * cols, out));
        });
        true
    } else {
        false
    }
}

/// Column `j` of a matrix whose columns have no gaps.
#[inline(always)]
fn column<'a, T>(b: Matrix<'a, T>, j: usize) -> &'a [T] {
    let start = b.offset + j * b.col_stride as usize;
    &b.data[start..start + b.rows]
}

/// Columns `first..` of the product, each as a dot product; four at a time, so that enough loads are on their way.
#[inline(always)]
pub fn dots<T: Float>(x: &[T::Wide], b: Matrix<'_, T>, first: usize, out: &mut [T::Wide]) {
    let (fours, rest) = out.as_chunks_mut::<4>();
    for (i, four) in fours.iter_mut().enumerate() {
        let j = first + 4 * i;
        *four = dot4(x, [column(b, j), column(b, j + 1), column(b, j + 2), column(b, j + 3)]);
    }
    let first = first + 4 * fours.len();
    for (i, out) in rest.iter_mut().enumerate() {
        let c = column(b, first + i);
        *out = dot4(x, [c, c, c, c])[0];
    }
}

#[inline(always)]
fn dot4<T: Float>(x: &[T::Wide], columns: [&[T]; 4]) -> [T::Wide; 4] {
    if let (Some(a), Some(b), Some(c), Some(d)) =
        (T::as_wide(columns[0]), T::as_wide(columns[1]), T::as_wide(columns[2]), T::as_wide(columns[3]))
    {
        return dot4_wide(x, [a, b, c, d]);
    }
    let mut sums = [T::Wide::ZERO; 4];
    let mut wide = [T::Wide::ZERO; BLOCK];
    for (sum, column) in sums.iter_mut().zip(columns) {
        for (x, column) in x.chunks(BLOCK).zip(column.chunks(BLOCK)) {
            T::widen(column, &mut wide);
            *sum = sum.plus(dot(x, &wide));
        }
    }
    sums
}

#[inline(always)]
fn dot4_wide<R: Real>(x: &[R], columns: [&[R]; 4]) -> [R; 4] {
    let n = x.len();
    let [a, b, c, d] = columns.map(|column| &column[..n]);
    let mut lanes = [[R::ZERO; LANES]; 4];
    let (x_chunks, x_rest) = x.as_chunks::<LANES>();
    let (a_chunks, a_rest) = a.as_chunks::<LANES>();
    let (b_chunks, b_rest) = b.as_chunks::<LANES>();
    let (c_chunks, c_rest) = c.as_chunks::<LANES>();
    let (d_chunks, d_rest) = d.as_chunks::<LANES>();
    for ((((x, a), b), c), d) in x_chunks.iter().zip(a_chunks).zip(b_chunks).zip(c_chunks).zip(d_chunks) {
        for i in 0..LANES {
            lanes[0][i] = x[i].multiply_add(a[i], lanes[0][i]);
        }
        for i in 0..LANES {
            lanes[1][i] = x[i].multiply_add(b[i], lanes[1][i]);
        }
        for i in 0..LANES {
            lanes[2][i] = x[i].multiply_add(c[i], lanes[2][i]);
        }
        for i in 0..LANES {
            lanes[3][i] = x[i].multiply_add(d[i], lanes[3][i]);
        }
    }
    for i in 0..x_rest.len() {
        lanes[0][i] = x_rest[i].multiply_add(a_rest[i], lanes[0][i]);
        lanes[1][i] = x_rest[i].multiply_add(b_rest[i], lanes[1][i]);
        lanes[2][i] = x_rest[i].multiply_add(c_rest[i], lanes[2][i]);
        lanes[3][i] = x_rest[i].multiply_add(d_rest[i], lanes[3][i]);
    }
    lanes.map(sum_lanes)
}

/// Adds columns `first..` of the product to `out`, as a sum of the matrix's rows, which have no gaps.
#[inline(always)]
pub fn add_sums<T: Float>(x: &[T::Wide], b: Matrix<'_, T>, first: usize, out: &mut [T::Wide]) {
    let width = out.len();
    let row = |k: usize| {
        let start = b.offset + k * b.row_stride as usize + first;
        &b.data[start..start + width]
    };
    let (fours, rest) = x.as_chunks::<4>();
    for (i, x) in fours.iter().enumerate() {
        add_rows(x, [row(4 * i), row(4 * i + 1), row(4 * i + 2), row(4 * i + 3)], out);
    }
    for (i, x) in rest.iter().enumerate() {
        add_rows(&[*x], [row(4 * fours.len() + i)], out);
    }
}

/// `out += sum_i x[i] * rows[i]`.
#[inline(always)]
fn add_rows<T: Float, const N: usize>(x: &[T::Wide; N], rows: [&[T]; N], out: &mut [T::Wide]) {
    const BLOCK: usize = 128;
    let mut wide = [[T::Wide::ZERO; BLOCK]; N];
    for (i, out) in out.chunks_mut(BLOCK).enumerate() {
        let part = i * BLOCK..i * BLOCK + out.len();
        let mut sources = [&[][..]; N];
        for ((source, wide), row) in sources.iter_mut().zip(&mut wide).zip(rows) {
            let row = &row[part.clone()];
            *source = match T::as_wide(row) {
                Some(row) => row,
                None => {
                    T::widen(row, wide);
                    &wide[..row.len()]
                }
            };
        }
        for (j, out) in out.iter_mut().enumerate() {
            let mut sum = *out;
            for n in 0..N {
                sum = sources[n][j].multiply_add(x[n], sum);
            }
            *out = sum;
        }
    }
}
