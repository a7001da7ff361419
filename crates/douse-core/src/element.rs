//! Elements of a tensor read and written one at a time: for printing, comparing and small conversions, not for computing.

use half::{bf16, f16};

use crate::float8;
use crate::{DType, HostTensor, Scalar};

/// The element that these bytes hold; `None` where there are too few. A uint64 beyond int64 wraps to a negative number.
pub fn read(dtype: DType, bytes: &[u8]) -> Option<Scalar> {
    macro_rules! number {
        ($type:ty) => {
            <$type>::from_le_bytes(*bytes.first_chunk()?)
        };
    }
    let byte = || bytes.first().copied();
    let complex = |real: DType| {
        let (re, im) = bytes.split_at_checked(real.size())?;
        Some(Scalar::Complex(read(real, re)?.to_f64(), read(real, im)?.to_f64()))
    };
    Some(match dtype {
        DType::Bool => Scalar::Bool(byte()? != 0),
        DType::U8 => Scalar::Int(byte()?.into()),
        DType::I8 => Scalar::Int(number!(i8).into()),
        DType::I16 => Scalar::Int(number!(i16).into()),
        DType::U16 => Scalar::Int(number!(u16).into()),
        DType::I32 => Scalar::Int(number!(i32).into()),
        DType::U32 => Scalar::Int(number!(u32).into()),
        DType::I64 => Scalar::Int(number!(i64)),
        DType::U64 => Scalar::Int(number!(u64) as i64),
        DType::F16 => Scalar::Float(f16::from_le_bytes(*bytes.first_chunk()?).to_f64()),
        DType::BF16 => Scalar::Float(bf16::from_le_bytes(*bytes.first_chunk()?).to_f64()),
        DType::F32 => Scalar::Float(number!(f32).into()),
        DType::F64 => Scalar::Float(number!(f64)),
        DType::F8E4M3FN => Scalar::Float(float8::e4m3fn_to_f32(byte()?).into()),
        DType::F8E5M2 => Scalar::Float(float8::e5m2_to_f32(byte()?).into()),
        DType::F8E4M3FNUZ => Scalar::Float(float8::e4m3fnuz_to_f32(byte()?).into()),
        DType::F8E5M2FNUZ => Scalar::Float(float8::e5m2fnuz_to_f32(byte()?).into()),
        DType::C32 | DType::C64 | DType::C128 => complex(dtype.real())?,
    })
}

/// The bytes of an element with this value, rounded or wrapped to the dtype.
pub fn write(dtype: DType, value: Scalar) -> Vec<u8> {
    let (int, float) = (value.to_i64(), value.to_f64());
    match dtype {
        DType::Bool => vec![value.to_bool().into()],
        dtype if dtype.is_int() => int.to_le_bytes().get(..dtype.size()).unwrap_or_default().to_vec(),
        DType::F16 => f16::from_f64(float).to_le_bytes().to_vec(),
        DType::BF16 => bf16::from_f64(float).to_le_bytes().to_vec(),
        DType::F32 => (float as f32).to_le_bytes().to_vec(),
        DType::F8E4M3FN => vec![float8::e4m3fn_from_f32(float as f32)],
        DType::F8E5M2 => vec![float8::e5m2_from_f32(float as f32)],
        DType::F8E4M3FNUZ => vec![float8::e4m3fnuz_from_f32(float as f32)],
        DType::F8E5M2FNUZ => vec![float8::e5m2fnuz_from_f32(float as f32)],
        DType::C32 | DType::C64 | DType::C128 => {
            let (re, im) = value.to_complex();
            [write(dtype.real(), Scalar::Float(re)), write(dtype.real(), Scalar::Float(im))].concat()
        }
        _ => float.to_le_bytes().to_vec(),
    }
}

/// All elements in row-major order.
pub fn elements(tensor: &HostTensor) -> Vec<Scalar> {
    let (dtype, size) = (tensor.dtype(), tensor.dtype().size());
    let mut elements = Vec::with_capacity(tensor.numel());
    crate::layout::for_each_run(tensor.sizes(), tensor.strides(), tensor.strides(), &mut |at, _, count, step, _| {
        let each = (0..count).filter_map(|i| read(dtype, tensor.bytes().get((at + i * step) * size..)?));
        elements.extend(each);
    });
    elements
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_dtype_reads_what_it_wrote() {
        for dtype in DType::ALL {
            let value = match dtype.class() {
                crate::dtype::Class::Bool => Scalar::Bool(true),
                crate::dtype::Class::Int if dtype.is_signed() => Scalar::Int(-3),
                crate::dtype::Class::Int => Scalar::Int(200),
                crate::dtype::Class::Float => Scalar::Float(-1.5),
                crate::dtype::Class::Complex => Scalar::Complex(-1.5, 0.25),
            };
            let bytes = write(dtype, value);
            assert_eq!(bytes.len(), dtype.size(), "{dtype}");
            assert_eq!(read(dtype, &bytes), Some(value), "{dtype}");
            assert_eq!(read(dtype, &bytes[1..]), None, "{dtype}");
        }
    }

    #[test]
    fn elements_come_in_row_major_order() {
        let tensor = HostTensor::from_i32(&[2, 2], &[1, 2, 3, 4]).unwrap().to_strides(&[1, 2]).unwrap();
        assert_eq!(elements(&tensor), [1, 2, 3, 4].map(Scalar::Int));
        assert_eq!(elements(&HostTensor::from_i32(&[0, 2], &[]).unwrap()), []);
        assert_eq!(elements(&HostTensor::from_i32(&[], &[7]).unwrap()), [Scalar::Int(7)]);
    }
}
