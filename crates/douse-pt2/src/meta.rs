//! What the file says of a value that is a tensor.

use crate::symbolic::SymInt;
use douse_core::DType;
use serde::de::{Deserialize, Deserializer, Error as _};

/// A tensor value's description.
#[derive(Clone, Debug, PartialEq, serde::Deserialize)]
pub struct TensorMeta {
    #[serde(deserialize_with = "dtype")]
    pub dtype: DType,
    pub sizes: Vec<SymInt>,
    /// In elements, one for each size.
    pub strides: Vec<SymInt>,
    /// In elements, from the start of the storage.
    pub storage_offset: SymInt,
    pub requires_grad: bool,
    pub device: Device,
    pub layout: Layout,
}

/// A device as PyTorch names it: `cpu`, `cuda:1`.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize)]
pub struct Device {
    #[serde(rename = "type")]
    pub kind: String,
    #[serde(default)]
    pub index: Option<i64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    SparseCoo,
    SparseCsr,
    SparseCsc,
    SparseBsr,
    SparseBsc,
    Mkldnn,
    Strided,
}

/// The schema's numbers.
const LAYOUTS: [(i64, Layout); 7] = [
    (1, Layout::SparseCoo),
    (2, Layout::SparseCsr),
    (3, Layout::SparseCsc),
    (4, Layout::SparseBsr),
    (5, Layout::SparseBsc),
    (6, Layout::Mkldnn),
    (7, Layout::Strided),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryFormat {
    Contiguous,
    ChannelsLast,
    ChannelsLast3d,
    Preserve,
}

/// The schema's numbers.
const MEMORY_FORMATS: [(i64, MemoryFormat); 4] = [
    (1, MemoryFormat::Contiguous),
    (2, MemoryFormat::ChannelsLast),
    (3, MemoryFormat::ChannelsLast3d),
    (4, MemoryFormat::Preserve),
];

pub(crate) fn dtype<'de, D: Deserializer<'de>>(deserializer: D) -> Result<DType, D::Error> {
    let number = i64::deserialize(deserializer)?;
    DType::from_pt2(number).ok_or_else(|| D::Error::custom(format!("unknown dtype number {number}")))
}

fn numbered<'de, D: Deserializer<'de>, T: Copy>(
    deserializer: D,
    table: &[(i64, T)],
    what: &str,
) -> Result<T, D::Error> {
    let number = i64::deserialize(deserializer)?;
    match table.iter().find(|row| row.0 == number) {
        Some(row) => Ok(row.1),
        None => Err(D::Error::custom(format!("unknown {what} number {number}"))),
    }
}

impl<'de> Deserialize<'de> for Layout {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Layout, D::Error> {
        numbered(deserializer, &LAYOUTS, "layout")
    }
}

impl<'de> Deserialize<'de> for MemoryFormat {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<MemoryFormat, D::Error> {
        numbered(deserializer, &MEMORY_FORMATS, "memory format")
    }
}
