//! Element types: one table, used by everything that needs a fact about a dtype.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The type of a tensor's elements, named as PyTorch names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum DType {
    U8,
    I8,
    I16,
    I32,
    I64,
    F16,
    F32,
    F64,
    /// Two float16: real part, imaginary part.
    C32,
    /// Two float32: real part, imaginary part.
    C64,
    /// Two float64: real part, imaginary part.
    C128,
    Bool,
    BF16,
    U16,
    U32,
    U64,
    F8E4M3FN,
    F8E5M2,
    F8E4M3FNUZ,
    F8E5M2FNUZ,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    Bool,
    Int,
    Float,
    Complex,
}

/// What there is to know about a dtype.
struct Row {
    dtype: DType,
    /// PyTorch's name, as in `torch.float32`.
    name: &'static str,
    /// The name in a `.safetensors` file, where the format has the dtype.
    safetensors: Option<&'static str>,
    /// Bytes an element.
    size: usize,
    class: Class,
    signed: bool,
    /// The number in the `.pt2` schema (`torch/_export/serde/schema.py`, `ScalarType`).
    pt2: Option<i64>,
    /// The number in ExecuTorch's containers (`scalar_type.fbs`).
    executorch: Option<i8>,
}

const fn row(
    dtype: DType,
    name: &'static str,
    safetensors: Option<&'static str>,
    size: usize,
    class: Class,
    signed: bool,
    pt2: Option<i64>,
    executorch: Option<i8>,
) -> Row {
    Row { dtype, name, safetensors, size, class, signed, pt2, executorch }
}

/// In the order of the enum.
const TABLE: [Row; 20] = [
    row(DType::U8, "uint8", Some("U8"), 1, Class::Int, false, Some(1), Some(0)),
    row(DType::I8, "int8", Some("I8"), 1, Class::Int, true, Some(2), Some(1)),
    row(DType::I16, "int16", Some("I16"), 2, Class::Int, true, Some(3), Some(2)),
    row(DType::I32, "int32", Some("I32"), 4, Class::Int, true, Some(4), Some(3)),
    row(DType::I64, "int64", Some("I64"), 8, Class::Int, true, Some(5), Some(4)),
    row(DType::F16, "float16", Some("F16"), 2, Class::Float, true, Some(6), Some(5)),
    row(DType::F32, "float32", Some("F32"), 4, Class::Float, true, Some(7), Some(6)),
    row(DType::F64, "float64", Some("F64"), 8, Class::Float, true, Some(8), Some(7)),
    row(DType::C32, "complex32", None, 4, Class::Complex, true, Some(9), Some(8)),
    row(DType::C64, "complex64", Some("C64"), 8, Class::Complex, true, Some(10), Some(9)),
    row(DType::C128, "complex128", None, 16, Class::Complex, true, Some(11), Some(10)),
    row(DType::Bool, "bool", Some("BOOL"), 1, Class::Bool, false, Some(12), Some(11)),
    row(DType::BF16, "bfloat16", Some("BF16"), 2, Class::Float, true, Some(13), Some(15)),
    row(DType::U16, "uint16", Some("U16"), 2, Class::Int, false, Some(28), Some(27)),
    row(DType::U32, "uint32", Some("U32"), 4, Class::Int, false, Some(34), Some(28)),
    row(DType::U64, "uint64", Some("U64"), 8, Class::Int, false, Some(35), Some(29)),
    row(DType::F8E4M3FN, "float8_e4m3fn", Some("F8_E4M3"), 1, Class::Float, true, Some(29), Some(24)),
    row(DType::F8E5M2, "float8_e5m2", Some("F8_E5M2"), 1, Class::Float, true, Some(30), Some(23)),
    row(DType::F8E4M3FNUZ, "float8_e4m3fnuz", None, 1, Class::Float, true, Some(31), Some(26)),
    row(DType::F8E5M2FNUZ, "float8_e5m2fnuz", None, 1, Class::Float, true, Some(32), Some(25)),
];

impl DType {
    pub const ALL: [DType; 20] = {
        let mut all = [DType::U8; 20];
        let mut i = 0;
        while i < 20 {
            all[i] = TABLE[i].dtype;
            i += 1;
        }
        all
    };

    const fn row(self) -> &'static Row {
        &TABLE[self as usize]
    }

    /// PyTorch's name without `torch.`: `float32`.
    pub const fn name(self) -> &'static str {
        self.row().name
    }

    pub fn from_name(name: &str) -> Option<DType> {
        TABLE.iter().find(|r| r.name == name).map(|r| r.dtype)
    }

    pub const fn safetensors(self) -> Option<&'static str> {
        self.row().safetensors
    }

    pub fn from_safetensors(name: &str) -> Option<DType> {
        TABLE.iter().find(|r| r.safetensors == Some(name)).map(|r| r.dtype)
    }

    /// The dtype with this number in the `.pt2` schema.
    pub fn from_pt2(number: i64) -> Option<DType> {
        TABLE.iter().find(|r| r.pt2 == Some(number)).map(|r| r.dtype)
    }

    pub const fn executorch(self) -> Option<i8> {
        self.row().executorch
    }

    pub fn from_executorch(number: i8) -> Option<DType> {
        TABLE.iter().find(|r| r.executorch == Some(number)).map(|r| r.dtype)
    }

    /// Bytes an element.
    pub const fn size(self) -> usize {
        self.row().size
    }

    pub const fn class(self) -> Class {
        self.row().class
    }

    pub fn is_float(self) -> bool {
        self.class() == Class::Float
    }

    pub fn is_complex(self) -> bool {
        self.class() == Class::Complex
    }

    /// An integer dtype; bool is not one.
    pub fn is_int(self) -> bool {
        self.class() == Class::Int
    }

    pub fn is_bool(self) -> bool {
        self == DType::Bool
    }

    pub const fn is_signed(self) -> bool {
        self.row().signed
    }

    /// The least and the greatest value of an integer dtype.
    pub fn int_range(self) -> Option<(i128, i128)> {
        let bits = 8 * self.size() as u32;
        let half = 1i128 << (bits - 1);
        self.is_int().then_some(if self.is_signed() { (-half, half - 1) } else { (0, 2 * half - 1) })
    }

    /// A float of 16 bits or fewer, whose arithmetic is done in float32.
    pub fn is_reduced_float(self) -> bool {
        self.is_float() && self.size() < 4
    }

    /// The float dtype of a complex dtype's parts; other dtypes are their own.
    pub const fn real(self) -> DType {
        match self {
            DType::C32 => DType::F16,
            DType::C64 => DType::F32,
            DType::C128 => DType::F64,
            other => other,
        }
    }

    /// The complex dtype whose parts have this dtype.
    pub const fn complex(self) -> Option<DType> {
        match self {
            DType::F16 | DType::C32 => Some(DType::C32),
            DType::F32 | DType::C64 => Some(DType::C64),
            DType::F64 | DType::C128 => Some(DType::C128),
            _ => None,
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_is_in_the_order_of_the_enum() {
        for (i, row) in TABLE.iter().enumerate() {
            assert_eq!(row.dtype as usize, i, "{}", row.name);
            assert_eq!(DType::from_name(row.name), Some(row.dtype));
        }
    }
}
