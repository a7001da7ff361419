//! `.safetensors` files.

use douse::{DType, Error, HostTensor, Result};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};

use super::Named;

fn failed(e: impl std::fmt::Display) -> Error {
    Error::invalid_argument(format!("not a safetensors file that can be read: {e}"))
}

/// Reads all tensors, sorted by name.
pub fn read(bytes: &[u8]) -> Result<Named> {
    let file = SafeTensors::deserialize(bytes).map_err(failed)?;
    let mut names = file.names();
    names.sort_unstable();
    let one = |name: &str| {
        let view = file.tensor(name).map_err(failed)?;
        let dtype = DType::from_safetensors(&view.dtype().to_string());
        let dtype = dtype.ok_or_else(|| Error::not_supported(format!("{name}: elements of {}", view.dtype())))?;
        Ok((Some(name.to_owned()), HostTensor::from_bytes(dtype, view.shape(), view.data())?))
    };
    names.into_iter().map(one).collect()
}

pub fn write(named: &[(String, HostTensor)]) -> Result<Vec<u8>> {
    let views = named.iter().map(|(name, tensor)| {
        let dtype = tensor.dtype();
        let known = dtype.safetensors().and_then(|n| serde_json::from_value::<Dtype>(n.into()).ok());
        let known = known.ok_or_else(|| Error::not_supported(format!("{name}: safetensors has no {dtype}")))?;
        let view = TensorView::new(known, tensor.sizes().to_vec(), tensor.bytes()).map_err(failed)?;
        Ok((name.as_str(), view))
    });
    safetensors::serialize(views.collect::<Result<Vec<_>>>()?, None).map_err(failed)
}
