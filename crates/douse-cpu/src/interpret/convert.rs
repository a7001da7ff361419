//! The narrow floats and integers: how lanes become elements and back, and how they round.

use douse_core::{DType, float8};

use super::lanes::Loops;

/// The float32 of a float16, given by its bits. Branch-free, so that loops become vector code.
#[inline(always)]
pub(crate) fn f32_from_f16(bits: u16) -> f32 {
    let magnitude = (bits as u32 & 0x7fff) << 13;
    // The exponents' biases differ by 112; the product also makes subnormals normal.
    let scaled = (f32::from_bits(magnitude) * f32::from_bits((127 + 112) << 23)).to_bits();
    let special = magnitude | 0x7f80_0000;
    let value = if bits & 0x7c00 == 0x7c00 { special } else { scaled };
    f32::from_bits(value | (bits as u32 & 0x8000) << 16)
}

/// The bits of the nearest float16, halves to even.
#[inline(always)]
pub(crate) fn f16_from_f32(value: f32) -> u16 {
    let bits = value.to_bits();
    let sign = (bits >> 16) & 0x8000;
    let magnitude = bits & 0x7fff_ffff;
    // From 65536 on: infinity, or a quiet NaN. What rounds up to 65536 gets there by the carry of `normal`.
    let large = if magnitude > 0x7f80_0000 { 0x7e00 } else { 0x7c00 };
    // Below 2^-14 the unit is 2^-24, which is that of float32 in [0.5, 1).
    let small = (f32::from_bits(magnitude) + 0.5).to_bits().wrapping_sub(0.5f32.to_bits());
    let odd = (magnitude >> 13) & 1;
    let normal = magnitude.wrapping_sub(112 << 23).wrapping_add(0xfff + odd) >> 13;
    let rest = if magnitude < 0x3880_0000 { small } else { normal };
    let value = if magnitude >= 0x4780_0000 { large } else { rest };
    (value | sign) as u16
}

#[inline(always)]
pub(crate) fn f32_from_bf16(bits: u16) -> f32 {
    f32::from_bits((bits as u32) << 16)
}

/// The bits of the nearest bfloat16, halves to even.
#[inline(always)]
pub(crate) fn bf16_from_f32(value: f32) -> u16 {
    let bits = value.to_bits();
    let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16;
    (if value.is_nan() { (bits >> 16) | 0x40 } else { rounded }) as u16
}

/// From and to the bits of a float of 8 bits.
type Float8 = (fn(u8) -> f32, fn(f32) -> u8);

/// The functions of a dtype of 8 bits.
pub(crate) fn float8_functions(dtype: DType) -> Float8 {
    match dtype {
        DType::F8E4M3FN => (float8::e4m3fn_to_f32, float8::e4m3fn_from_f32),
        DType::F8E5M2 => (float8::e5m2_to_f32, float8::e5m2_from_f32),
        DType::F8E4M3FNUZ => (float8::e4m3fnuz_to_f32, float8::e4m3fnuz_from_f32),
        _ => (float8::e5m2fnuz_to_f32, float8::e5m2fnuz_from_f32),
    }
}

/// Rounds a value held in float32 to a dtype.
pub(crate) fn round(dtype: DType, value: f32) -> f32 {
    match dtype {
        DType::F16 => f32_from_f16(f16_from_f32(value)),
        DType::BF16 => f32_from_bf16(bf16_from_f32(value)),
        DType::F32 => value,
        _ => {
            let (decode, encode) = float8_functions(dtype);
            decode(encode(value))
        }
    }
}

/// Rounds values held in float32 to a dtype.
pub(crate) fn round_all(loops: &Loops, dtype: DType, values: &mut [f32]) {
    match dtype {
        DType::F32 => {}
        DType::F16 => loops.each(values, |x| f32_from_f16(f16_from_f32(x))),
        DType::BF16 => loops.each(values, |x| f32_from_bf16(bf16_from_f32(x))),
        _ => values.iter_mut().for_each(|x| *x = round(dtype, *x)),
    }
}

/// Wraps a value held in int64 to the width of a dtype.
#[inline(always)]
pub(crate) fn wrap(dtype: DType, value: i64) -> i64 {
    match dtype {
        DType::I8 => value as i8 as i64,
        DType::U8 => value as u8 as i64,
        DType::I16 => value as i16 as i64,
        DType::U16 => value as u16 as i64,
        DType::I32 => value as i32 as i64,
        DType::U32 => value as u32 as i64,
        _ => value,
    }
}

/// Wraps values held in int64 to the width of a dtype.
pub(crate) fn wrap_all(loops: &Loops, dtype: DType, values: &mut [i64]) {
    match dtype {
        DType::I8 => loops.each(values, |x| x as i8 as i64),
        DType::U8 => loops.each(values, |x| x as u8 as i64),
        DType::I16 => loops.each(values, |x| x as i16 as i64),
        DType::U16 => loops.each(values, |x| x as u16 as i64),
        DType::I32 => loops.each(values, |x| x as i32 as i64),
        DType::U32 => loops.each(values, |x| x as u32 as i64),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_agree_with_the_half_crate() {
        for bits in 0..=u16::MAX {
            let (ours, theirs) = (f32_from_f16(bits), half::f16::from_bits(bits).to_f32());
            assert!(ours.to_bits() == theirs.to_bits() || ours.is_nan() && theirs.is_nan(), "{bits:x}");
            // Every float32 around the halfway points to the next float16.
            for offset in [0u32, 1, 0xfff, 0x1000, 0x1001, 0x1fff] {
                let x = f32::from_bits(theirs.to_bits().wrapping_add(offset));
                let (a, b) = (f16_from_f32(x), half::f16::from_f32(x).to_bits());
                assert!(a == b || x.is_nan() && half::f16::from_bits(a).is_nan(), "{x:e}: {a:x} {b:x}");
            }
            let x = f32::from_bits((bits as u32) << 16 | 0x8000);
            for x in [x, f32::from_bits(x.to_bits() + 1), f32::from_bits(x.to_bits() - 1)] {
                let (a, b) = (bf16_from_f32(x), half::bf16::from_f32(x).to_bits());
                assert!(a == b || x.is_nan() && half::bf16::from_bits(a).is_nan(), "{x:e}: {a:x} {b:x}");
            }
        }
    }

    #[test]
    fn integers_wrap_to_their_width() {
        assert_eq!([wrap(DType::I8, 200), wrap(DType::U8, -1), wrap(DType::U32, -1)], [-56, 255, 4294967295]);
        assert_eq!([wrap(DType::I64, i64::MIN), wrap(DType::I16, 0x18000)], [i64::MIN, -32768]);
    }
}
