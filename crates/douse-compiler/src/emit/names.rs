//! What C++ calls dtypes, numbers and operations.

use douse_core::pointwise::Combine;
use douse_core::{DType, Error, Result, Scalar};

/// The type of an element in memory.
///
/// # Errors
/// `Internal` for a complex dtype: kernels have none.
pub(super) fn element(dtype: DType) -> Result<&'static str> {
    Ok(match dtype {
        DType::U8 => "uint8",
        DType::I8 => "int8",
        DType::I16 => "int16",
        DType::I32 => "int32",
        DType::I64 => "int64",
        DType::F16 => "float16",
        DType::F32 => "float",
        DType::F64 => "double",
        DType::Bool => "boolean",
        DType::BF16 => "bfloat16",
        DType::U16 => "uint16",
        DType::U32 => "uint32",
        DType::U64 => "uint64",
        DType::F8E4M3FN => "float8_e4m3fn",
        DType::F8E5M2 => "float8_e5m2",
        DType::F8E4M3FNUZ => "float8_e4m3fnuz",
        DType::F8E5M2FNUZ => "float8_e5m2fnuz",
        DType::C32 | DType::C64 | DType::C128 => return Err(Error::internal(format!("a kernel over {dtype}"))),
    })
}

/// The type that holds a value in a register.
pub(super) fn register(dtype: DType) -> Result<&'static str> {
    match dtype {
        DType::Bool => Ok("bool"),
        dtype if dtype.is_reduced_float() => Ok("float"),
        dtype => element(dtype),
    }
}

/// A value of a register of this dtype, rounded to it.
pub(super) fn rounded(dtype: DType, value: String) -> Result<String> {
    Ok(if dtype.is_reduced_float() { format!("round_to<{}>({value})", element(dtype)?) } else { value })
}

/// An integer, in 64 bits where 32 are too few.
pub(super) fn integer(value: i64) -> String {
    match value {
        i64::MIN => "(-9223372036854775807ll - 1)".to_owned(),
        value if i32::try_from(value).is_ok() => value.to_string(),
        value => format!("{value}ll"),
    }
}

pub(super) fn float64(value: f64) -> String {
    match value {
        v if v.is_nan() => "NAN_D".to_owned(),
        f64::INFINITY => "INFINITY_D".to_owned(),
        f64::NEG_INFINITY => "-INFINITY_D".to_owned(),
        v => format!("{v:?}"),
    }
}

fn float32(value: f32) -> String {
    match value {
        v if v.is_nan() => "NAN_F".to_owned(),
        f32::INFINITY => "INFINITY_F".to_owned(),
        f32::NEG_INFINITY => "-INFINITY_F".to_owned(),
        v => format!("{v:?}f"),
    }
}

/// A constant of a dtype.
pub(super) fn constant(dtype: DType, value: Scalar) -> Result<String> {
    Ok(match dtype {
        DType::F64 => float64(value.to_f64()),
        DType::Bool => value.to_bool().to_string(),
        dtype if dtype.is_float() => rounded(dtype, float32(value.to_f64() as f32))?,
        dtype => format!("({}){}", element(dtype)?, integer(value.to_i64())),
    })
}

/// The class of `combine.cuh` that combines registers of a dtype; `scan`: in order, one by one.
pub(super) fn combine(op: Combine, dtype: DType, scan: bool) -> Result<String> {
    let name = match op {
        Combine::Sum if scan => "ScanSum",
        Combine::Sum => "Sum",
        Combine::Prod => "Prod",
        Combine::Min => "Min",
        Combine::Max => "Max",
        Combine::And => "And",
        Combine::Or => "Or",
        Combine::Xor if dtype.is_bool() => "XorBool",
        Combine::Xor => "Xor",
        Combine::LogAddExp => "LogAddExp",
    };
    Ok(format!("{name}<{}>", register(dtype)?))
}

/// The class that combines values one by one, each time rounded to the element.
pub(super) fn one_by_one(op: Combine, dtype: DType) -> Result<String> {
    Ok(combine(op, dtype, true)?.replace("ScanSum", "PlainSum"))
}

/// A function's name: letters, digits and underscores, apart from every name of the prelude.
pub(super) fn function(name: &str) -> String {
    let plain: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    format!("douse_{plain}")
}
