//! What the library operations need of an element type.
//!
//! Bool stands as bytes of 0 and 1 and is read as `u8`.

use bytemuck::Pod;
use douse_core::Result;
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

use super::gemm::{GemmFunction, Matrix};
use super::matvec;
use super::work::Work;

/// An element that can be stored, compared and sorted.
pub trait Element: Pod + Send + Sync + PartialEq {
    /// How many low bits of [`Element::order_key`] are used.
    const KEY_BITS: u32;

    /// A number that orders as the element does: NaN after everything, -0.0 equal to 0.0.
    fn order_key(self) -> u64;
}

/// An element that adds and multiplies in its own dtype. Integers wrap.
pub trait Number: Element {
    const ZERO: Self;
    const ONE: Self;

    fn plus(self, other: Self) -> Self;

    /// `self * factor + addend`, rounded once where the dtype is a float.
    fn multiply_add(self, factor: Self, addend: Self) -> Self;
}

/// A floating dtype and the one its arithmetic is done in.
pub trait Float: Element {
    type Wide: Real;

    fn to_wide(self) -> Self::Wide;
    fn from_wide(wide: Self::Wide) -> Self;

    /// Converts as many elements as the shorter slice has.
    fn widen(from: &[Self], to: &mut [Self::Wide]);
    /// Converts as many elements as the shorter slice has, each rounded to nearest, ties to even.
    fn narrow(from: &[Self::Wide], to: &mut [Self]);

    /// The slice itself, where the dtype is its own wide dtype.
    fn as_wide(slice: &[Self]) -> Option<&[Self::Wide]>;
    fn as_wide_mut(slice: &mut [Self]) -> Option<&mut [Self::Wide]>;

    /// `out[j] = sum_k x[k] * b[k, first + j]`, where the columns of `b` have no gaps.
    fn dots(x: &[Self::Wide], b: Matrix<'_, Self>, first: usize, out: &mut [Self::Wide]);
    /// `out[j] += sum_k x[k] * b[k, first + j]`, where the rows of `b` have no gaps.
    fn add_sums(x: &[Self::Wide], b: Matrix<'_, Self>, first: usize, out: &mut [Self::Wide]);
}

/// A dtype that arithmetic is done in: float32 or float64.
pub trait Real:
    Number + Float<Wide = Self> + PartialOrd + std::ops::Div<Output = Self> + std::ops::Mul<Output = Self>
{
    const NEG_INFINITY: Self;

    fn from_f64(x: f64) -> Self;
    fn to_f64(self) -> f64;

    /// Replaces each element x by exp(x - max) and returns the sum of the results. Meant to be called where vector
    /// instructions are enabled.
    fn exp_minus(row: &mut [Self], max: Self) -> Self;

    fn gemm_function() -> GemmFunction<Self>;

    /// `out = a @ b`, rows of `out` without gaps; on all threads.
    fn product(a: Matrix<'_, Self>, b: Matrix<'_, Self>, out: &mut [Self], work: &Work) -> Result<()>;
}

/// The order of a float as an unsigned number of the same width.
macro_rules! float_key {
    ($bits:expr, $nan:expr, $zero:expr, $word:ty) => {{
        const SIGN: $word = 1 << (<$word>::BITS - 1);
        if $nan {
            <$word>::MAX as u64
        } else {
            let bits: $word = if $zero { 0 } else { $bits };
            (if bits & SIGN == 0 { bits | SIGN } else { !bits }) as u64
        }
    }};
}

macro_rules! integers {
    ($($t:ident $unsigned:ident $flip:expr;)*) => {$(
        impl Element for $t {
            const KEY_BITS: u32 = <$t>::BITS;

            #[inline]
            fn order_key(self) -> u64 {
                // Signed numbers order as unsigned ones once the sign bit is inverted.
                (self as $unsigned ^ $flip) as u64
            }
        }

        impl Number for $t {
            const ZERO: $t = 0;
            const ONE: $t = 1;

            #[inline(always)]
            fn plus(self, other: $t) -> $t {
                self.wrapping_add(other)
            }

            #[inline(always)]
            fn multiply_add(self, factor: $t, addend: $t) -> $t {
                self.wrapping_mul(factor).wrapping_add(addend)
            }
        }
    )*};
}

integers! {
    u8 u8 0;
    u16 u16 0;
    u32 u32 0;
    u64 u64 0;
    i8 u8 0x80;
    i16 u16 0x8000;
    i32 u32 0x8000_0000;
    i64 u64 0x8000_0000_0000_0000;
}

macro_rules! reals {
    ($($t:ident $word:ident $exp:path, $dots:ident $sums:ident $product:path, $gemm:path;)*) => {$(
        impl Element for $t {
            const KEY_BITS: u32 = <$word>::BITS;

            #[inline]
            fn order_key(self) -> u64 {
                float_key!(self.to_bits(), self.is_nan(), self == 0.0, $word)
            }
        }

        impl Number for $t {
            const ZERO: $t = 0.0;
            const ONE: $t = 1.0;

            #[inline(always)]
            fn plus(self, other: $t) -> $t {
                self + other
            }

            #[inline(always)]
            fn multiply_add(self, factor: $t, addend: $t) -> $t {
                self.mul_add(factor, addend)
            }
        }

        impl Float for $t {
            type Wide = $t;

            #[inline(always)]
            fn to_wide(self) -> $t {
                self
            }

            #[inline(always)]
            fn from_wide(wide: $t) -> $t {
                wide
            }

            #[inline(always)]
            fn widen(from: &[$t], to: &mut [$t]) {
                copy(from, to);
            }

            #[inline(always)]
            fn narrow(from: &[$t], to: &mut [$t]) {
                copy(from, to);
            }

            #[inline(always)]
            fn as_wide(slice: &[$t]) -> Option<&[$t]> {
                Some(slice)
            }

            #[inline(always)]
            fn as_wide_mut(slice: &mut [$t]) -> Option<&mut [$t]> {
                Some(slice)
            }

            fn dots(x: &[$t], b: Matrix<'_, $t>, first: usize, out: &mut [$t]) {
                matvec::$dots(x, b, first, out);
            }

            fn add_sums(x: &[$t], b: Matrix<'_, $t>, first: usize, out: &mut [$t]) {
                matvec::$sums(x, b, first, out);
            }
        }

        impl Real for $t {
            const NEG_INFINITY: $t = $t::NEG_INFINITY;

            #[inline(always)]
            fn from_f64(x: f64) -> $t {
                x as $t
            }

            #[inline(always)]
            fn to_f64(self) -> f64 {
                self as f64
            }

            #[inline(always)]
            fn exp_minus(row: &mut [$t], max: $t) -> $t {
                $exp(row, max)
            }

            fn gemm_function() -> GemmFunction<$t> {
                $gemm
            }

            fn product(a: Matrix<'_, $t>, b: Matrix<'_, $t>, out: &mut [$t], work: &Work) -> Result<()> {
                $product(a, b, out, work)
            }
        }
    )*};
}

reals! {
    f32 u32 super::simd::exp_minus_f32, dots_f32 add_sums_f32 super::product::multiply, matrixmultiply::sgemm;
    f64 u64 super::simd::exp_minus_f64, dots_f64 add_sums_f64 super::product::by_crate, matrixmultiply::dgemm;
}

#[inline(always)]
fn copy<T: Copy>(from: &[T], to: &mut [T]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to = *from;
    }
}

#[inline(always)]
fn widen_f16(from: &[f16], to: &mut [f32]) {
    from.convert_to_f32_slice(to);
}

#[inline(always)]
fn narrow_f16(from: &[f32], to: &mut [f16]) {
    to.convert_from_f32_slice(from);
}

/// A bfloat16 is the upper half of a float32.
#[inline(always)]
fn widen_bf16(from: &[bf16], to: &mut [f32]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to = f32::from_bits((from.to_bits() as u32) << 16);
    }
}

/// Without branches, so that it becomes vector instructions.
#[inline(always)]
fn narrow_bf16(from: &[f32], to: &mut [bf16]) {
    for (to, from) in to.iter_mut().zip(from) {
        let bits = from.to_bits();
        let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
        // A NaN keeps its upper bits and is made quiet, so that it does not round to infinity.
        let quiet = bits >> 16 | 0x40;
        *to = bf16::from_bits(if from.is_nan() { quiet } else { rounded } as u16);
    }
}

macro_rules! halves {
    ($($t:ident $widen:ident $narrow:ident $dots:path;)*) => {$(
        impl Element for $t {
            const KEY_BITS: u32 = 16;

            #[inline]
            fn order_key(self) -> u64 {
                float_key!(self.to_bits(), self.is_nan(), self.to_bits() << 1 == 0, u16)
            }
        }

        impl Float for $t {
            type Wide = f32;

            #[inline(always)]
            fn to_wide(self) -> f32 {
                self.to_f32()
            }

            #[inline(always)]
            fn from_wide(wide: f32) -> $t {
                $t::from_f32(wide)
            }

            #[inline(always)]
            fn widen(from: &[$t], to: &mut [f32]) {
                let n = from.len().min(to.len());
                $widen(&from[..n], &mut to[..n]);
            }

            #[inline(always)]
            fn narrow(from: &[f32], to: &mut [$t]) {
                let n = from.len().min(to.len());
                $narrow(&from[..n], &mut to[..n]);
            }

            #[inline(always)]
            fn as_wide(_: &[$t]) -> Option<&[f32]> {
                None
            }

            #[inline(always)]
            fn as_wide_mut(_: &mut [$t]) -> Option<&mut [f32]> {
                None
            }

            fn dots(x: &[f32], b: Matrix<'_, $t>, first: usize, out: &mut [f32]) {
                $dots(x, b, first, out);
            }

            fn add_sums(x: &[f32], b: Matrix<'_, $t>, first: usize, out: &mut [f32]) {
                matvec::add_sums_widened(x, b, first, out);
            }
        }
    )*};
}

halves! {
    f16 widen_f16 narrow_f16 matvec::dots_widened;
    bf16 widen_bf16 narrow_bf16 matvec::dots_bf16;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_order_as_the_elements_do() {
        let floats = [f32::NEG_INFINITY, -1.0, -f32::MIN_POSITIVE, 0.0, 1e-40, 2.0, f32::INFINITY, f32::NAN];
        for pair in floats.windows(2) {
            assert!(pair[0].order_key() < pair[1].order_key(), "{pair:?}");
            assert!((pair[0] as f64).order_key() < (pair[1] as f64).order_key(), "{pair:?}");
        }
        assert_eq!((-0.0f32).order_key(), 0.0f32.order_key());
        assert_eq!((-f32::NAN).order_key(), f32::NAN.order_key());
        assert_eq!(f16::NEG_ZERO.order_key(), f16::ZERO.order_key());
        assert!(bf16::INFINITY.order_key() < bf16::NAN.order_key());
        assert!(i64::MIN.order_key() < 0i64.order_key() && 0i64.order_key() < i64::MAX.order_key());
        assert!((-1i8).order_key() < 0i8.order_key());
    }

    #[test]
    fn bfloat16_rounds_as_the_half_crate_does() {
        let values: Vec<f32> = (0..100_000u32).map(|i| f32::from_bits(i.wrapping_mul(2_654_435_761))).collect();
        let mut narrow = vec![bf16::ZERO; values.len()];
        bf16::narrow(&values, &mut narrow);
        for (x, y) in values.iter().zip(&narrow) {
            assert_eq!(bf16::from_f32(*x).to_bits(), y.to_bits(), "{x}");
        }
        let mut wide = vec![0.0; values.len()];
        bf16::widen(&narrow, &mut wide);
        assert!(narrow.iter().zip(&wide).all(|(n, w)| n.is_nan() || n.to_f32() == *w));
    }
}
