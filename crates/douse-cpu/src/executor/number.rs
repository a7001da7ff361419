//! Single elements as numbers, and numbers as elements.

use douse_core::bytes::Aligned;
use douse_core::{DType, Error, Result, Scalar, float8};
use half::{bf16, f16};

use crate::memory::{Outside, Region};

/// The first element of a buffer. A uint64 above the largest int64 comes out negative.
pub(super) fn read(region: &Region, dtype: DType) -> Result<Scalar> {
    fn first<T: bytemuck::Pod + Default>(region: &Region) -> Result<T> {
        let mut value = [T::default()];
        let read = region.read(0, 1, &mut value, |x: T| x);
        read.map_err(|Outside| Error::internal("a number is read from a buffer without elements"))?;
        Ok(value[0])
    }
    Ok(match dtype {
        DType::Bool => Scalar::Bool(first::<u8>(region)? != 0),
        DType::U8 => Scalar::Int(first::<u8>(region)? as i64),
        DType::I8 => Scalar::Int(first::<i8>(region)? as i64),
        DType::U16 => Scalar::Int(first::<u16>(region)? as i64),
        DType::I16 => Scalar::Int(first::<i16>(region)? as i64),
        DType::U32 => Scalar::Int(first::<u32>(region)? as i64),
        DType::I32 => Scalar::Int(first::<i32>(region)? as i64),
        DType::U64 | DType::I64 => Scalar::Int(first::<i64>(region)?),
        DType::F32 => Scalar::Float(first::<f32>(region)? as f64),
        DType::F64 => Scalar::Float(first::<f64>(region)?),
        DType::F16 => Scalar::Float(f16::from_bits(first::<u16>(region)?).to_f64()),
        DType::BF16 => Scalar::Float(bf16::from_bits(first::<u16>(region)?).to_f64()),
        DType::F8E4M3FN => Scalar::Float(float8::e4m3fn_to_f32(first::<u8>(region)?) as f64),
        DType::F8E5M2 => Scalar::Float(float8::e5m2_to_f32(first::<u8>(region)?) as f64),
        DType::F8E4M3FNUZ => Scalar::Float(float8::e4m3fnuz_to_f32(first::<u8>(region)?) as f64),
        DType::F8E5M2FNUZ => Scalar::Float(float8::e5m2fnuz_to_f32(first::<u8>(region)?) as f64),
        DType::C32 | DType::C64 | DType::C128 => return Err(Error::internal("a buffer is complex")),
    })
}

/// The first element of these bytes. A uint64 above the largest int64 comes out negative.
///
/// # Errors
/// `Internal` where there is none.
pub fn from_bytes(bytes: &[u8], dtype: DType) -> Result<Scalar> {
    read(&Region::read_only(bytes), dtype)
}

/// Memory of one number: float64, bool or int64.
///
/// # Errors
/// `Internal` for another dtype; where there is no memory.
pub fn write(value: Scalar, dtype: DType) -> Result<Aligned> {
    match dtype {
        DType::F64 => Aligned::copy(&value.to_f64().to_ne_bytes()),
        DType::I64 => Aligned::copy(&value.to_i64().to_ne_bytes()),
        DType::Bool => Aligned::copy(&[value.to_bool() as u8]),
        other => Err(Error::internal(format!("a number is kept as {other}"))),
    }
}
