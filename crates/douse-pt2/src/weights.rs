//! The tensors of a program: parameters, buffers and lifted constants, wherever the archive keeps them.

use crate::meta::{Layout, TensorMeta};
use crate::package::{Package, Part};
use crate::pickle::Value;
use crate::symbolic::{SymInt, Symbolic};
use crate::tensor::{Storage, StorageIds, TensorData};
use crate::torch_save;
use douse_core::bytes::Bytes;
use douse_core::{Error, Result};
use indexmap::IndexMap;
use serde::Deserialize;

/// Tensors and custom objects by fully qualified name.
#[derive(Default)]
pub(crate) struct Weights {
    pub tensors: IndexMap<String, TensorData>,
    pub custom_objects: IndexMap<String, Bytes>,
}

#[derive(Deserialize)]
struct Config {
    config: IndexMap<String, Payload>,
}

#[derive(Deserialize)]
struct Payload {
    path_name: String,
    #[serde(default)]
    use_pickle: bool,
    #[serde(default)]
    tensor_meta: Option<TensorMeta>,
}

/// Reads where every tensor of a model is.
///
/// # Errors
/// When a list or pickle is damaged, or a tensor lies outside its payload.
pub(crate) fn read(package: &mut Package, model: &str, ids: &mut StorageIds) -> Result<Weights> {
    let mut weights = Weights::default();
    for part in [Part::Weights, Part::Constants] {
        if package.is_flat() {
            read_pickle(package, part, ids, &mut weights)?;
        } else if let Some((json, name)) = package.config(model, part)? {
            read_config(package, part, &json, ids, &mut weights).map_err(|error| error.at(name))?;
        }
    }
    Ok(weights)
}

fn read_config(
    package: &mut Package,
    part: Part,
    json: &[u8],
    ids: &mut StorageIds,
    weights: &mut Weights,
) -> Result<()> {
    let config: Config = serde_json::from_slice(json)
        .map_err(|error| Error::invalid_program(format!("not the JSON of a list of tensors: {error}")))?;
    let mut storages: IndexMap<String, Storage> = IndexMap::new();
    for (fqn, payload) in config.config {
        let path = &payload.path_name;
        let storage = match storages.get(path) {
            Some(storage) => storage.clone(),
            None => {
                let Some(bytes) = package.payload(part, path)? else {
                    return Err(Error::invalid_program(format!("`{fqn}` is in `{path}`, which the archive lacks")));
                };
                let storage = ids.storage(bytes);
                storages.insert(path.clone(), storage.clone());
                storage
            }
        };
        match (payload.tensor_meta, payload.use_pickle) {
            (Some(meta), false) => {
                let tensor = tensor(&meta, storage).map_err(|error| error.at(&fqn))?;
                weights.tensors.insert(fqn, tensor);
            }
            (Some(_), true) => match torch_save::read(&storage.bytes, ids).map_err(|error| error.at(&fqn))? {
                Value::Tensor(tensor) => {
                    weights.tensors.insert(fqn, tensor);
                }
                _ => return Err(Error::not_supported("the pickle holds no tensor").at(fqn)),
            },
            (None, _) => {
                weights.custom_objects.insert(fqn, storage.bytes);
            }
        }
    }
    Ok(())
}

fn tensor(meta: &TensorMeta, storage: Storage) -> Result<TensorData> {
    if meta.layout != Layout::Strided {
        return Err(Error::not_supported(format!("the layout is {:?}; only strided tensors can be read", meta.layout)));
    }
    let sizes = meta.sizes.iter().map(known).collect::<Result<Vec<usize>>>()?;
    if storage.bytes.is_empty() && !sizes.contains(&0) {
        return Err(Error::invalid_program(
            "the file describes the tensor and holds no values for it: the model was exported with fake or meta \
             tensors; export it with its weights",
        ));
    }
    let strides = meta.strides.iter().map(known).collect::<Result<_>>()?;
    TensorData::new(meta.dtype, sizes, strides, known(&meta.storage_offset)?, storage)
}

fn known(size: &SymInt) -> Result<usize> {
    let known = if let Symbolic::Value(value) = size { usize::try_from(*value).ok() } else { None };
    known.ok_or_else(|| Error::invalid_program(format!("a stored tensor has the size, stride or offset {size}")))
}

fn read_pickle(package: &mut Package, part: Part, ids: &mut StorageIds, weights: &mut Weights) -> Result<()> {
    let Some((bytes, entry)) = package.pickle(part)? else { return Ok(()) };
    // PyTorch writes nothing at all where there is nothing to write.
    if bytes.is_empty() {
        return Ok(());
    }
    let Value::Dict(items) = torch_save::read(&bytes, ids).map_err(|error| error.at(entry))? else {
        return Err(Error::invalid_program("the pickle holds no dict of tensors").at(entry));
    };
    for (key, value) in items {
        match (key, value) {
            (Value::Str(fqn), Value::Tensor(tensor)) => {
                weights.tensors.insert(fqn, tensor);
            }
            (Value::Str(fqn), other) => {
                return Err(Error::not_supported(format!("`{fqn}` is no tensor but {}", what(&other))).at(entry));
            }
            _ => return Err(Error::invalid_program("a name is no text").at(entry)),
        }
    }
    Ok(())
}

fn what(value: &Value) -> &'static str {
    match value {
        Value::None => "None",
        Value::Bool(_) => "a bool",
        Value::Int(_) | Value::Float(_) => "a number",
        Value::Str(_) => "a text",
        Value::List(_) => "a list",
        Value::Dict(_) => "a dict",
        Value::Tensor(_) => "a tensor",
        Value::Other(what) => what,
    }
}
