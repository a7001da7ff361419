//! The product of a row vector and a matrix, at the speed memory is read with.
//!
//! The kernels are plain loops over arrays: what is not marked to be inlined always, as `array::map` is not, is compiled without vector
//! instructions.

use bytemuck::Pod;
use fearless_simd::{Bytes, Simd, SimdBase, SimdFloat};
use half::bf16;

use super::element::{Float, Number};
use super::gemm::Matrix;
use super::simd::vectorised;
use super::work::Work;
use crate::simd::{WithSimd, dispatch_best};

/// `out[j] = sum_k x[k] * b[k, j]`, with one of the strides of `b` being 1. Returns false where neither is, and does nothing.
pub fn vector_matrix<T: Float>(x: &[T::Wide], b: Matrix<'_, T>, out: &mut [T::Wide], work: &Work) -> bool {
    if b.row_stride == 1 && b.col_stride >= 0 {
        // Columns lie in memory without gaps: one dot product each.
        let columns = work.chunk(b.cols, 32);
        work.each_chunk(out, columns, |i, out| T::dots(x, b, i * columns, out));
        true
    } else if b.col_stride == 1 && b.row_stride >= 0 {
        // Long pieces of rows, but few enough columns that their sums stay in the cache.
        let columns = b.cols.div_ceil(work.threads()).clamp(256, 8192);
        work.each_chunk(out, columns, |i, out| {
            out.fill(T::Wide::ZERO);
            T::add_sums(x, b, i * columns, out);
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

/// `width` elements from column `first` on of row `k` of a matrix whose rows have no gaps.
#[inline(always)]
fn row<'a, T>(b: Matrix<'a, T>, k: usize, first: usize, width: usize) -> &'a [T] {
    let start = b.offset + k * b.row_stride as usize + first;
    &b.data[start..start + width]
}

/// Columns `first..` of the product with a matrix whose columns have no gaps; four at a time, so that enough loads are on their way.
struct Dots<'a, T: Float> {
    x: &'a [T::Wide],
    b: Matrix<'a, T>,
    first: usize,
    out: &'a mut [T::Wide],
}

/// Adds columns `first..` of the product with a matrix whose rows have no gaps, as a sum of rows.
struct Sums<'a, T: Float> {
    x: &'a [T::Wide],
    b: Matrix<'a, T>,
    first: usize,
    out: &'a mut [T::Wide],
}

/// The vector of that number in a slice.
#[inline(always)]
fn vector<S: Simd, V: SimdBase<S>>(simd: S, from: &[V::Element], i: usize) -> V {
    V::from_slice(simd, &from[i * V::LEN..(i + 1) * V::LEN])
}

macro_rules! kernels {
    ($t:ident $vector:ident $dots:ident $sums:ident) => {
        /// See [`Float::dots`].
        pub fn $dots(x: &[$t], b: Matrix<'_, $t>, first: usize, out: &mut [$t]) {
            dispatch_best(Dots { x, b, first, out });
        }

        /// See [`Float::add_sums`].
        pub fn $sums(x: &[$t], b: Matrix<'_, $t>, first: usize, out: &mut [$t]) {
            dispatch_best(Sums { x, b, first, out });
        }

        impl WithSimd for Dots<'_, $t> {
            type Output = ();

            #[inline(always)]
            fn with_simd<S: Simd>(self, simd: S) {
                let Dots { x, b, first, out } = self;
                let lanes = S::$vector::LEN;
                let (count, vectors) = (out.len(), x.len() / lanes);
                for j in (0..count).step_by(4) {
                    let mut columns = [&[][..]; 4];
                    for c in 0..4 {
                        columns[c] = &column(b, first + (j + c).min(count - 1))[..x.len()];
                    }
                    let mut sums = [[S::$vector::splat(simd, 0.0); 2]; 4];
                    for i in 0..vectors / 2 {
                        for h in 0..2 {
                            let x: S::$vector = vector(simd, x, 2 * i + h);
                            for c in 0..4 {
                                sums[c][h] =
                                    x.mul_add(vector::<S, S::$vector>(simd, columns[c], 2 * i + h), sums[c][h]);
                            }
                        }
                    }
                    for c in 0..4.min(count - j) {
                        if vectors % 2 == 1 {
                            let x: S::$vector = vector(simd, x, vectors - 1);
                            sums[c][0] = x.mul_add(vector::<S, S::$vector>(simd, columns[c], vectors - 1), sums[c][0]);
                        }
                        let mut sum = (sums[c][0] + sums[c][1]).reduce_sum();
                        for (x, y) in x[vectors * lanes..].iter().zip(&columns[c][vectors * lanes..]) {
                            sum = x.multiply_add(*y, sum);
                        }
                        out[j + c] = sum;
                    }
                }
            }
        }

        impl WithSimd for Sums<'_, $t> {
            type Output = ();

            #[inline(always)]
            fn with_simd<S: Simd>(self, simd: S) {
                let Sums { x, b, first, out } = self;
                let lanes = S::$vector::LEN;
                let width = out.len();
                let (out, out_rest) = out.split_at_mut(width / lanes * lanes);
                let tail = out.len();
                let (fours, rest) = x.as_chunks::<4>();
                for (i, x) in fours.iter().enumerate() {
                    let mut rows = [&[][..]; 4];
                    let mut factors = [S::$vector::splat(simd, 0.0); 4];
                    for r in 0..4 {
                        rows[r] = row(b, 4 * i + r, first, width);
                        factors[r] = S::$vector::splat(simd, x[r]);
                    }
                    for (j, out) in out.chunks_exact_mut(lanes).enumerate() {
                        let mut sum = S::$vector::from_slice(simd, out);
                        for r in 0..4 {
                            sum = factors[r].mul_add(vector::<S, S::$vector>(simd, rows[r], j), sum);
                        }
                        sum.store_slice(out);
                    }
                    for (r, x) in x.iter().enumerate() {
                        for (out, y) in out_rest.iter_mut().zip(&rows[r][tail..]) {
                            *out = x.multiply_add(*y, *out);
                        }
                    }
                }
                for (i, x) in rest.iter().enumerate() {
                    let row = row(b, 4 * fours.len() + i, first, width);
                    let factor = S::$vector::splat(simd, *x);
                    for (j, out) in out.chunks_exact_mut(lanes).enumerate() {
                        let sum =
                            factor.mul_add(vector::<S, S::$vector>(simd, row, j), S::$vector::from_slice(simd, out));
                        sum.store_slice(out);
                    }
                    for (out, y) in out_rest.iter_mut().zip(&row[tail..]) {
                        *out = x.multiply_add(*y, *out);
                    }
                }
            }
        }
    };
}

kernels!(f32 f32s dots_f32 add_sums_f32);
kernels!(f64 f64s dots_f64 add_sums_f64);

/// See [`Float::dots`], for 16-bit floats: four columns at a time are widened.
pub fn dots_widened<T: Float<Wide = f32>>(x: &[f32], b: Matrix<'_, T>, first: usize, out: &mut [f32]) {
    let rows = b.rows;
    let mut wide = vec![0.0; 4 * rows];
    for (i, out) in out.chunks_mut(4).enumerate() {
        for (c, wide) in wide.chunks_exact_mut(rows.max(1)).take(out.len()).enumerate() {
            let column = column(b, first + 4 * i + c);
            vectorised!(T::widen(column, wide));
        }
        let columns = Matrix::rows(&wide, out.len(), rows, rows).transposed();
        dots_f32(x, columns, 0, out);
    }
}

/// See [`Float::add_sums`], for 16-bit floats: rows are widened piece by piece.
pub fn add_sums_widened<T: Float<Wide = f32>>(x: &[f32], b: Matrix<'_, T>, first: usize, out: &mut [f32]) {
    const BLOCK: usize = 128;
    let width = out.len();
    vectorised!({
        for start in (0..x.len()).step_by(4) {
            let x = &x[start..x.len().min(start + 4)];
            for (i, out) in out.chunks_mut(BLOCK).enumerate() {
                let out_len = out.len().min(BLOCK);
                let out = &mut out[..out_len];
                for (k, x) in x.iter().enumerate() {
                    let mut wide = [0.0; BLOCK];
                    let row = &row(b, start + k, first, width)[i * BLOCK..][..out_len];
                    T::widen(row, &mut wide[..out_len]);
                    for (out, y) in out.iter_mut().zip(&wide) {
                        *out = x.multiply_add(*y, *out);
                    }
                }
            }
        }
    });
}

/// Columns of bfloat16 as pairs in 32-bit words: of a word, the lower half is the even element, and the upper half the odd one.
struct PairDots<'a> {
    /// The vector's even and odd elements.
    even: &'a [f32],
    odd: &'a [f32],
    columns: [&'a [u32]; 4],
}

impl WithSimd for PairDots<'_> {
    type Output = [f32; 4];

    #[inline(always)]
    #[allow(clippy::needless_range_loop, reason = "one index for several arrays")]
    fn with_simd<S: Simd>(self, simd: S) -> [f32; 4] {
        let PairDots { even, odd, columns } = self;
        let lanes = S::f32s::LEN;
        let count = even.len();
        let vectors = count / lanes;
        let odd = &odd[..count];
        let mut words = [&[][..]; 4];
        for c in 0..4 {
            words[c] = &columns[c][..count];
        }
        let upper = S::u32s::splat(simd, 0xffff_0000);
        let mut sums = [[S::f32s::splat(simd, 0.0); 2]; 4];
        for i in 0..vectors {
            let (even, odd): (S::f32s, S::f32s) = (vector(simd, even, i), vector(simd, odd, i));
            for c in 0..4 {
                let word: S::u32s = vector(simd, words[c], i);
                let (low, high): (S::f32s, S::f32s) = ((word << 16).bitcast(), (word & upper).bitcast());
                sums[c][0] = even.mul_add(low, sums[c][0]);
                sums[c][1] = odd.mul_add(high, sums[c][1]);
            }
        }
        let mut results = [0.0; 4];
        for c in 0..4 {
            let mut sum = (sums[c][0] + sums[c][1]).reduce_sum();
            for i in vectors * lanes..count {
                sum = even[i].multiply_add(f32::from_bits(words[c][i] << 16), sum);
                sum = odd[i].multiply_add(f32::from_bits(words[c][i] & 0xffff_0000), sum);
            }
            results[c] = sum;
        }
        results
    }
}

/// See [`Float::dots`], for bfloat16: pairs of elements are widened in registers.
pub fn dots_bf16(x: &[f32], b: Matrix<'_, bf16>, first: usize, out: &mut [f32]) {
    let pairs = b.rows / 2;
    let words = |j: usize| words::<bf16>(&column(b, j)[..2 * pairs]);
    if cfg!(target_endian = "big") || (0..out.len().min(2)).any(|j| words(first + j).is_none()) {
        return dots_widened(x, b, first, out);
    }
    let even: Vec<f32> = x[..2 * pairs].iter().step_by(2).copied().collect();
    let odd: Vec<f32> = x[..2 * pairs].iter().skip(1).step_by(2).copied().collect();
    let count = out.len();
    for j in (0..count).step_by(4) {
        // That two columns in a row are aligned shows it for all.
        let columns = std::array::from_fn(|i| words(first + (j + i).min(count - 1)).unwrap_or_default());
        let sums = dispatch_best(PairDots { even: &even, odd: &odd, columns });
        for (i, (out, sum)) in out[j..].iter_mut().zip(sums).enumerate() {
            let last = if b.rows % 2 == 1 { x[2 * pairs] * column(b, first + j + i)[2 * pairs].to_f32() } else { 0.0 };
            *out = sum + last;
        }
    }
}

/// Two 16-bit elements a word, where they are aligned for that.
fn words<T: Pod>(elements: &[T]) -> Option<&[u32]> {
    bytemuck::try_cast_slice(elements).ok()
}
