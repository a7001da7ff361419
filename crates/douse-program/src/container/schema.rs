//! The schema of `.pte` and `.ptd`, as plain data with the schema's own names.
//!
//! Fields the schema makes optional are `Option` where absence means something; a vector that is absent reads as empty.

use douse_core::bytes::Bytes;
use douse_core::{DType, Error, Result};
use std::fmt;

/// An enum with the schema's numbers, from one table.
macro_rules! numbered {
    ($(#[$doc:meta])* $name:ident { $($(#[$row_doc:meta])* $variant:ident = $number:literal),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub enum $name {
            $($(#[$row_doc])* $variant = $number),*
        }

        impl $name {
            pub const ALL: &[$name] = &[$($name::$variant),*];

            pub fn from_number(number: i8) -> Option<$name> {
                $name::ALL.iter().copied().find(|v| v.number() == number)
            }

            pub const fn number(self) -> i8 {
                self as i8
            }
        }
    };
}

numbered! {
    /// How the sizes of a tensor may differ from those in the file.
    Dynamism {
        #[default]
        Static = 0,
        /// The sizes are upper bounds.
        Bound = 1,
        Unbound = 2,
    }
}

numbered! {
    /// Where a delegate's payload is.
    DataLocation {
        /// In `Program::backend_delegate_data`.
        #[default]
        Inline = 0,
        /// In `Program::segments`.
        Segment = 1,
    }
}

numbered! {
    /// Where a constant tensor's bytes are.
    TensorDataLocation {
        /// In the program's constant segment or buffers.
        #[default]
        Segment = 0,
        /// In a `.ptd` file or the named data, under the tensor's fully qualified name.
        External = 1,
    }
}

numbered! {
    DeviceType {
        #[default]
        Cpu = 0,
        Cuda = 1,
    }
}

/// An element type by ExecuTorch's number; some of them (quantized, bits) are no [`DType`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ScalarType(i8);

/// The scalar types that no [`DType`] stands for: number, name, bytes an element.
const FOREIGN_SCALAR_TYPES: &[(i8, &str, u64)] = &[
    (12, "qint8", 1),
    (13, "quint8", 1),
    (14, "qint32", 4),
    (16, "quint4x2", 1),
    (17, "quint2x4", 1),
    (22, "bits16", 2),
];

impl ScalarType {
    /// The type with this number, if there is one.
    pub fn from_number(number: i8) -> Option<ScalarType> {
        let known = DType::from_executorch(number).is_some() || FOREIGN_SCALAR_TYPES.iter().any(|r| r.0 == number);
        known.then_some(ScalarType(number))
    }

    /// # Errors
    /// `NotSupported` for a dtype that ExecuTorch has no number for.
    pub fn from_dtype(dtype: DType) -> Result<ScalarType> {
        let number = dtype.executorch();
        number.map(ScalarType).ok_or_else(|| Error::not_supported(format!("{dtype} has no place in a program file")))
    }

    pub const fn number(self) -> i8 {
        self.0
    }

    pub fn dtype(self) -> Option<DType> {
        DType::from_executorch(self.0)
    }

    fn foreign(self) -> Option<&'static (i8, &'static str, u64)> {
        FOREIGN_SCALAR_TYPES.iter().find(|r| r.0 == self.0)
    }

    /// Bytes an element.
    pub fn size(self) -> u64 {
        self.dtype().map(|d| d.size() as u64).or(self.foreign().map(|r| r.2)).unwrap_or(1)
    }
}

impl fmt::Display for ScalarType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.dtype().map(DType::name).or(self.foreign().map(|r| r.1));
        f.write_str(name.unwrap_or("unknown"))
    }
}

impl fmt::Debug for ScalarType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// The root of a `.pte`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Program {
    pub version: u32,
    pub execution_plan: Vec<ExecutionPlan>,
    /// Constants inside the FlatBuffer; entry 0 is reserved for "none".
    pub constant_buffer: Vec<Bytes>,
    pub backend_delegate_data: Vec<Bytes>,
    pub segments: Vec<DataSegment>,
    pub constant_segment: Option<SubsegmentOffsets>,
    pub mutable_data_segments: Vec<SubsegmentOffsets>,
    pub named_data: Vec<NamedData>,
}

/// A method.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ExecutionPlan {
    pub name: String,
    pub container_meta_type: Option<ContainerMetadata>,
    pub values: Vec<EValue>,
    /// Indices of `values`.
    pub inputs: Vec<i32>,
    /// Indices of `values`.
    pub outputs: Vec<i32>,
    pub chains: Vec<Chain>,
    pub operators: Vec<Operator>,
    pub delegates: Vec<BackendDelegate>,
    /// Bytes of each planned memory; entry 0 is reserved and 0.
    pub non_const_buffer_sizes: Vec<i64>,
    pub non_const_buffer_device: Vec<NonConstBufferDevice>,
}

/// The pytree of the inputs and outputs, as PyTorch writes it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ContainerMetadata {
    pub encoded_inp_str: String,
    pub encoded_out_str: String,
}

/// A value of a method.
#[derive(Clone, Debug, PartialEq)]
pub enum EValue {
    Null,
    Int(i64),
    Bool(bool),
    Double(f64),
    Tensor(Box<Tensor>),
    String(String),
    /// Indices of the method's values, each an `Int`.
    IntList(Vec<i64>),
    DoubleList(Vec<f64>),
    BoolList(Vec<bool>),
    /// Indices of the method's values, each a `Tensor`.
    TensorList(Vec<i32>),
    /// As `TensorList`, -1 for an absent tensor.
    OptionalTensorList(Vec<i32>),
}

impl EValue {
    /// The schema's name of this kind.
    pub fn kind(&self) -> &'static str {
        match self {
            EValue::Null => "Null",
            EValue::Int(_) => "Int",
            EValue::Bool(_) => "Bool",
            EValue::Double(_) => "Double",
            EValue::Tensor(_) => "Tensor",
            EValue::String(_) => "String",
            EValue::IntList(_) => "IntList",
            EValue::DoubleList(_) => "DoubleList",
            EValue::BoolList(_) => "BoolList",
            EValue::TensorList(_) => "TensorList",
            EValue::OptionalTensorList(_) => "OptionalTensorList",
        }
    }

    pub fn tensor(&self) -> Option<&Tensor> {
        match self {
            EValue::Tensor(tensor) => Some(tensor),
            _ => None,
        }
    }
}

/// A tensor's type, and where its bytes are.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    pub scalar_type: ScalarType,
    /// In elements.
    pub storage_offset: i32,
    /// Upper bounds where `shape_dynamism` is `Bound`.
    pub sizes: Vec<i32>,
    /// The dimensions from outermost to innermost in memory.
    pub dim_order: Vec<u8>,
    pub requires_grad: bool,
    /// Which constant this is; 0 for none.
    pub data_buffer_idx: u32,
    pub allocation_info: Option<AllocationDetails>,
    pub layout: i8,
    pub shape_dynamism: Dynamism,
    pub extra_tensor_info: Option<ExtraTensorInfo>,
}

impl Tensor {
    /// An input or output whose memory the caller gives.
    ///
    /// `sizes` are upper bounds unless the dynamism is `Static`; `dim_order` is a permutation, outermost first.
    ///
    /// # Errors
    /// `NotSupported` for a dtype or size the container cannot hold; `InvalidArgument` where `dim_order` is no
    /// permutation of the dimensions.
    pub fn unplanned(dtype: DType, sizes: &[u64], dim_order: &[u8], dynamism: Dynamism) -> Result<Tensor> {
        if !is_permutation(dim_order, sizes.len()) {
            let message = format!("dim order {dim_order:?} is no permutation of {} dimensions", sizes.len());
            return Err(Error::invalid_argument(message));
        }
        let size = |&s: &u64| {
            i32::try_from(s).map_err(|_| Error::not_supported(format!("a size of {s}: program files hold 31 bits")))
        };
        Ok(Tensor {
            scalar_type: ScalarType::from_dtype(dtype)?,
            storage_offset: 0,
            sizes: sizes.iter().map(size).collect::<Result<_>>()?,
            dim_order: dim_order.to_vec(),
            requires_grad: false,
            data_buffer_idx: 0,
            allocation_info: None,
            layout: 0,
            shape_dynamism: dynamism,
            extra_tensor_info: None,
        })
    }

    /// Bytes of the elements at the sizes given, or nothing where a size is negative or the product overflows.
    pub fn bytes(&self) -> Option<u64> {
        bytes_of(self.scalar_type, &self.sizes)
    }
}

pub(super) fn bytes_of(scalar_type: ScalarType, sizes: &[i32]) -> Option<u64> {
    sizes.iter().try_fold(scalar_type.size(), |product, &size| product.checked_mul(u64::try_from(size).ok()?))
}

/// Whether `order` holds each of `0..rank` once.
pub(super) fn is_permutation(order: &[u8], rank: usize) -> bool {
    let mut seen = [false; 256];
    order.len() == rank && order.iter().all(|&d| (d as usize) < rank && !std::mem::replace(&mut seen[d as usize], true))
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct ExtraTensorInfo {
    pub mutable_data_segments_idx: u64,
    pub fully_qualified_name: Option<String>,
    pub location: TensorDataLocation,
    pub device_type: DeviceType,
    pub device_index: i8,
}

/// A place in planned memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AllocationDetails {
    /// Index of `ExecutionPlan::non_const_buffer_sizes`, from 1.
    pub memory_id: u32,
    /// In bytes; the file splits it in two words.
    pub memory_offset: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Operator {
    pub name: String,
    pub overload: String,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Chain {
    pub inputs: Vec<i32>,
    pub outputs: Vec<i32>,
    pub instructions: Vec<Instruction>,
    /// One list of frames an instruction, or none at all.
    pub stacktrace: Vec<Vec<Frame>>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Instruction {
    KernelCall { op_index: i32, args: Vec<i32> },
    DelegateCall { delegate_index: i32, args: Vec<i32> },
    MoveCall { move_from: i32, move_to: i32 },
    JumpFalseCall { cond_value_index: i32, destination_instruction: i32 },
    FreeCall { value_index: i32 },
}

/// A line of the source an instruction comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frame {
    pub filename: String,
    pub lineno: i32,
    pub name: String,
    pub context: String,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct BackendDelegate {
    pub id: String,
    pub processed: BackendDelegateDataReference,
    pub compile_specs: Vec<CompileSpec>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackendDelegateDataReference {
    pub location: DataLocation,
    pub index: u32,
}

#[derive(Clone, Debug, PartialEq)]
pub struct CompileSpec {
    pub key: String,
    pub value: Bytes,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NonConstBufferDevice {
    pub buffer_idx: i32,
    pub device_type: DeviceType,
    pub device_index: i8,
}

/// A part of the file, in bytes from the segment base.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DataSegment {
    pub offset: u64,
    pub size: u64,
}

/// Places inside one segment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SubsegmentOffsets {
    pub segment_index: u32,
    pub offsets: Vec<u64>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct NamedData {
    pub key: String,
    pub segment_index: u32,
    /// What tensor the bytes are; `.ptd` only, absent for plain bytes.
    pub tensor_layout: Option<TensorLayout>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorLayout {
    pub scalar_type: ScalarType,
    pub sizes: Vec<i32>,
    /// The dimensions from outermost to innermost in memory.
    pub dim_order: Vec<u8>,
}

impl TensorLayout {
    /// Bytes of the elements, or nothing where a size is negative or the product overflows.
    pub fn bytes(&self) -> Option<u64> {
        bytes_of(self.scalar_type, &self.sizes)
    }
}

/// The root of a `.ptd`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FlatTensor {
    pub version: u32,
    pub segments: Vec<DataSegment>,
    pub named_data: Vec<NamedData>,
}
