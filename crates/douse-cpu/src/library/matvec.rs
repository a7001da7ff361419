//! The product of a row vector and a matrix, at the speed memory is read with.
//!
//! The kernels are plain loops over arrays: what is not marked to be inlined always, as `array::map` is not, is compiled without vector
//! instructions.

use bytemuck::Pod;
use half::bf16;
use pulp::{Simd, WithSimd};

use super::element::{Float, Number};
use super::gemm::Matrix;
use super::simd::vectorised;
use super::work::Work;

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

macro_rules! kernels {
    ($t:ident $dots:ident $sums:ident $as_simd:ident $as_mut_simd:ident $splat:ident $mul_add:ident $add:ident $reduce_sum:ident) => {
        /// See [`Float::dots`].
        pub fn $dots(x: &[$t], b: Matrix<'_, $t>, first: usize, out: &mut [$t]) {
            pulp::Arch::new().dispatch(Dots { x, b, first, out });
        }

        /// See [`Float::add_sums`].
        pub fn $sums(x: &[$t], b: Matrix<'_, $t>, first: usize, out: &mut [$t]) {
            pulp::Arch::new().dispatch(Sums { x, b, first, out });
        }

        impl WithSimd for Dots<'_, $t> {
            type Output = ();

            #[inline(always)]
            fn with_simd<S: Simd>(self, simd: S) {
                let Dots { x, b, first, out } = self;
                let (x_vectors, x_rest) = S::$as_simd(x);
                let (x_pairs, x_single) = x_vectors.as_chunks::<2>();
                let count = out.len();
                for j in (0..count).step_by(4) {
                    let (mut columns, mut vectors, mut pairs) = ([&[][..]; 4], [&[][..]; 4], [&[][..]; 4]);
                    for c in 0..4 {
                        columns[c] = column(b, first + (j + c).min(count - 1));
                        vectors[c] = S::$as_simd(columns[c]).0;
                        pairs[c] = &vectors[c].as_chunks::<2>().0[..x_pairs.len()];
                    }
                    let mut sums = [[simd.$splat(0.0); 2]; 4];
                    for (i, x) in x_pairs.iter().enumerate() {
                        for c in 0..4 {
                            for h in 0..2 {
                                sums[c][h] = simd.$mul_add(x[h], pairs[c][i][h], sums[c][h]);
                            }
                        }
                    }
                    for c in 0..4.min(count - j) {
                        if let ([x], Some(last)) = (x_single, vectors[c].last()) {
                            sums[c][0] = simd.$mul_add(*x, *last, sums[c][0]);
                        }
                        let mut sum = simd.$reduce_sum(simd.$add(sums[c][0], sums[c][1]));
                        for (x, y) in x_rest.iter().zip(&columns[c][x.len() - x_rest.len()..]) {
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
                let width = out.len();
                let (out_vectors, out_rest) = S::$as_mut_simd(out);
                let tail = width - out_rest.len();
                let (fours, rest) = x.as_chunks::<4>();
                for (i, x) in fours.iter().enumerate() {
                    let (mut rows, mut vectors) = ([&[][..]; 4], [&[][..]; 4]);
                    let mut factors = [simd.$splat(0.0); 4];
                    for r in 0..4 {
                        rows[r] = row(b, 4 * i + r, first, width);
                        vectors[r] = &S::$as_simd(rows[r]).0[..out_vectors.len()];
                        factors[r] = simd.$splat(x[r]);
                    }
                    for (j, out) in out_vectors.iter_mut().enumerate() {
                        let mut sum = *out;
                        for r in 0..4 {
                            sum = simd.$mul_add(factors[r], vectors[r][j], sum);
                        }
                        *out = sum;
                    }
                    for (r, x) in x.iter().enumerate() {
                        for (out, y) in out_rest.iter_mut().zip(&rows[r][tail..]) {
                            *out = x.multiply_add(*y, *out);
                        }
                    }
                }
                for (i, x) in rest.iter().enumerate() {
                    let row = row(b, 4 * fours.len() + i, first, width);
                    let factor = simd.$splat(*x);
                    for (out, y) in out_vectors.iter_mut().zip(S::$as_simd(row).0) {
                        *out = simd.$mul_add(factor, *y, *out);
                    }
                    for (out, y) in out_rest.iter_mut().zip(&row[tail..]) {
                        *out = x.multiply_add(*y, *out);
                    }
                }
            }
        }
    };
}

kernels!(f32 dots_f32 add_sums_f32 as_simd_f32s as_mut_simd_f32s splat_f32s mul_add_f32s add_f32s reduce_sum_f32s);
kernels!(f64 dots_f64 add_sums_f64 as_simd_f64s as_mut_simd_f64s splat_f64s mul_add_f64s add_f64s reduce_sum_f64s);

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
        let (even, even_rest) = S::as_simd_f32s(self.even);
        let (odd, odd_rest) = S::as_simd_f32s(self.odd);
        let odd = &odd[..even.len()];
        let mut vectors = [&[][..]; 4];
        for c in 0..4 {
            vectors[c] = &S::as_simd_u32s(self.columns[c]).0[..even.len()];
        }
        let (shift, upper) = (simd.splat_u32s(16), simd.splat_u32s(0xffff_0000));
        let mut sums = [[simd.splat_f32s(0.0); 2]; 4];
        for i in 0..even.len() {
            for c in 0..4 {
                let word = vectors[c][i];
                let low = simd.transmute_f32s_u32s(simd.wrapping_dyn_shl_u32s(word, shift));
                let high = simd.transmute_f32s_u32s(simd.and_u32s(word, upper));
                sums[c][0] = simd.mul_add_f32s(even[i], low, sums[c][0]);
                sums[c][1] = simd.mul_add_f32s(odd[i], high, sums[c][1]);
            }
        }
        let mut results = [0.0; 4];
        for c in 0..4 {
            let mut sum = simd.reduce_sum_f32s(simd.add_f32s(sums[c][0], sums[c][1]));
            let rest = &self.columns[c][self.even.len() - even_rest.len()..];
            for ((word, even), odd) in rest.iter().zip(even_rest).zip(odd_rest) {
                sum = even.multiply_add(f32::from_bits(word << 16), sum);
                sum = odd.multiply_add(f32::from_bits(word & 0xffff_0000), sum);
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
        let sums = pulp::Arch::new().dispatch(PairDots { even: &even, odd: &odd, columns });
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
