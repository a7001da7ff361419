//! The classes and functions that pickles of tensors name: one table, and what calling each gives.

use crate::pickle::{Object, Objects};
use crate::tensor::{MAX_RANK, TensorData};
use douse_core::{DType, Error, Result};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Global {
    OrderedDict,
    /// `(storage, offset, sizes, strides)`, and things that do not matter here.
    RebuildTensor,
    /// `(storage, offset, sizes, strides, requires_grad, hooks, dtype)`: for dtypes that have no storage class.
    RebuildTensorV3,
    /// `(tensor, requires_grad, hooks)`.
    RebuildParameter,
    /// `(function, type, arguments, state)`.
    RebuildFromType,
    /// `torch.Tensor` or `torch.nn.Parameter`: tensors with no behaviour of their own.
    PlainTensorType,
    Size,
    Device,
    DType(DType),
    /// A storage class, with the type of its elements (`None`: bytes).
    Storage(Option<DType>),
}

const GLOBALS: [(&str, &str, Global); 29] = [
    ("collections", "OrderedDict", Global::OrderedDict),
    ("torch._utils", "_rebuild_tensor", Global::RebuildTensor),
    ("torch._utils", "_rebuild_tensor_v2", Global::RebuildTensor),
    ("torch._utils", "_rebuild_tensor_v3", Global::RebuildTensorV3),
    ("torch._utils", "_rebuild_parameter", Global::RebuildParameter),
    ("torch._utils", "_rebuild_parameter_with_state", Global::RebuildParameter),
    ("torch._tensor", "_rebuild_from_type_v2", Global::RebuildFromType),
    ("torch", "Tensor", Global::PlainTensorType),
    ("torch._tensor", "Tensor", Global::PlainTensorType),
    ("torch.nn.parameter", "Parameter", Global::PlainTensorType),
    ("torch.nn.parameter", "Buffer", Global::PlainTensorType),
    ("torch", "Size", Global::Size),
    ("torch", "device", Global::Device),
    ("torch.storage", "UntypedStorage", Global::Storage(None)),
    ("torch", "UntypedStorage", Global::Storage(None)),
    ("torch", "ByteStorage", Global::Storage(Some(DType::U8))),
    ("torch", "CharStorage", Global::Storage(Some(DType::I8))),
    ("torch", "ShortStorage", Global::Storage(Some(DType::I16))),
    ("torch", "IntStorage", Global::Storage(Some(DType::I32))),
    ("torch", "LongStorage", Global::Storage(Some(DType::I64))),
    ("torch", "HalfStorage", Global::Storage(Some(DType::F16))),
    ("torch", "FloatStorage", Global::Storage(Some(DType::F32))),
    ("torch", "DoubleStorage", Global::Storage(Some(DType::F64))),
    ("torch", "BoolStorage", Global::Storage(Some(DType::Bool))),
    ("torch", "BFloat16Storage", Global::Storage(Some(DType::BF16))),
    ("torch", "ComplexFloatStorage", Global::Storage(Some(DType::C64))),
    ("torch", "ComplexDoubleStorage", Global::Storage(Some(DType::C128))),
    ("torch", "Float8_e4m3fnStorage", Global::Storage(Some(DType::F8E4M3FN))),
    ("torch", "Float8_e5m2Storage", Global::Storage(Some(DType::F8E5M2))),
];

/// The class or function of this name.
///
/// # Errors
/// When it is none of those that plain tensors need.
pub(crate) fn find(module: &str, name: &str) -> Result<Global> {
    let known = GLOBALS.iter().find(|row| row.0 == module && row.1 == name).map(|row| row.2);
    let dtype = || if module == "torch" { DType::from_name(name).map(Global::DType) } else { None };
    known
        .or_else(dtype)
        .ok_or_else(|| Error::not_supported(format!("the pickle needs `{module}.{name}`, which only Python can make")))
}

fn misused(global: Global) -> Error {
    Error::invalid_program(format!("the pickle is damaged: {global:?} is called with the wrong arguments"))
}

/// The most arguments that a call can have, so that many calls with one long tuple take no time.
const MAX_ARGUMENTS: usize = 16;

/// The objects that a tuple of arguments holds.
pub(crate) fn gather<'a>(ids: &[usize], objects: &'a dyn Objects) -> Result<Vec<&'a Object>> {
    if ids.len() > MAX_ARGUMENTS {
        return Err(Error::invalid_program("the pickle is damaged: a call has too many arguments"));
    }
    ids.iter().map(|id| objects.get(*id)).collect()
}

/// What a call of `global` gives.
pub(crate) fn call(global: Global, arguments: &[&Object], objects: &dyn Objects) -> Result<Object> {
    match (global, arguments) {
        (Global::OrderedDict, []) => Ok(Object::Dict(Vec::new())),
        (Global::RebuildTensor, [Object::Storage(Some(dtype), _), _, _, _, rest @ ..]) => {
            // After the hooks come marks that the stored numbers are not the tensor's own.
            if let [_, _, Object::Dict(marks), ..] = rest
                && !marks.is_empty()
            {
                return Err(Error::not_supported("the pickle holds a conjugated or negated tensor"));
            }
            tensor(*dtype, arguments, objects)
        }
        (Global::RebuildTensorV3, [_, _, _, _, _, _, Object::Global(Global::DType(dtype)), ..]) => {
            tensor(*dtype, arguments, objects)
        }
        (Global::RebuildParameter, [Object::Tensor(tensor), ..]) => Ok(Object::Tensor(tensor.clone())),
        (Global::RebuildFromType, [Object::Global(function), Object::Global(kind), Object::Tuple(ids), ..]) => {
            if *kind != Global::PlainTensorType || *function == Global::RebuildFromType {
                return Err(misused(global));
            }
            call(*function, &gather(ids, objects)?, objects)
        }
        (Global::Size, [Object::Tuple(sizes)]) if sizes.len() <= MAX_RANK => Ok(Object::Tuple(sizes.clone())),
        (Global::Device, _) => Ok(Object::Device),
        _ => Err(misused(global)),
    }
}

/// A tensor from the first four arguments: storage, offset, sizes, strides.
fn tensor(dtype: DType, arguments: &[&Object], objects: &dyn Objects) -> Result<Object> {
    let damaged = || misused(Global::RebuildTensor);
    let [Object::Storage(_, storage), Object::Int(offset), sizes, strides, ..] = arguments else {
        return Err(damaged());
    };
    let numbers = |object: &Object| match object {
        Object::Tuple(ids) | Object::List(ids) => {
            let number = |id: &usize| match objects.get(*id)? {
                Object::Int(number) => usize::try_from(*number).map_err(|_| damaged()),
                _ => Err(damaged()),
            };
            // More dimensions than there can be need not be gathered to be refused.
            ids.iter().take(MAX_RANK + 1).map(number).collect::<Result<Vec<usize>>>()
        }
        _ => Err(damaged()),
    };
    let offset = usize::try_from(*offset).map_err(|_| damaged())?;
    let tensor = TensorData::new(dtype, numbers(sizes)?, numbers(strides)?, offset, storage.clone())?;
    Ok(Object::Tensor(Box::new(tensor)))
}
