//! What `torch.save` writes: a zip archive with a pickle, and a file for each storage the pickle refers to.

use crate::archive::Archive;
use crate::pickle::{self, Value};
use crate::tensor::{Storage, StorageIds};
use douse_core::bytes::Bytes;
use douse_core::{Code, Error, Result};
use indexmap::IndexMap;

/// Reads what was saved. Storages stay where they are in `bytes`.
///
/// # Errors
/// When the archive is damaged, or holds something that only Python can make.
pub(crate) fn read(bytes: &Bytes, ids: &mut StorageIds) -> Result<Value> {
    if !bytes.starts_with(b"PK") {
        return Err(Error::not_supported("it is no zip archive of `torch.save`, as PyTorch writes since 1.6"));
    }
    let mut archive = Archive::open(bytes.clone())?;
    let folder = archive.names().find_map(|name| name.strip_suffix("data.pkl")).map(str::to_owned);
    let Some(folder) = folder else {
        return Err(Error::invalid_program("it holds no data.pkl, so `torch.save` did not write it"));
    };
    if let Some(order) = archive.entry(&format!("{folder}byteorder"))?
        && order.trim_ascii() != b"little"
    {
        return Err(Error::new(Code::NotSupported, "its numbers are big-endian; save it on a little-endian machine"));
    }
    let Some(pickle) = archive.entry(&format!("{folder}data.pkl"))? else {
        return Err(Error::invalid_program("it holds no data.pkl, so `torch.save` did not write it"));
    };
    let mut storages: IndexMap<String, Storage> = IndexMap::new();
    let mut find = |key: &str, len: usize| {
        let storage = match storages.get(key) {
            Some(storage) => storage.clone(),
            None => {
                let name = format!("{folder}data/{key}");
                let Some(bytes) = archive.entry(&name)? else {
                    return Err(Error::invalid_program(format!("the storage `{name}` is missing")));
                };
                let storage = ids.storage(bytes);
                storages.insert(key.to_owned(), storage.clone());
                storage
            }
        };
        if storage.bytes.len() < len {
            let message = format!("the storage `{key}` has {} bytes where the pickle says {len}", storage.bytes.len());
            return Err(Error::invalid_program(message));
        }
        Ok(storage)
    };
    pickle::read(&pickle, &mut find)
}
