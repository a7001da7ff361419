//! Flat tensor files (`.ptd`): weights outside the program.

use super::layout::{self, FLAT_TENSOR, Segment};
use super::pte::check_alignment;
use super::schema::*;
use super::{atomic, check, decode, encode, flatbuffer};
use douse_core::bytes::Bytes;
use douse_core::{Code, Error, Result};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::Path;

/// A checked flat tensor file, mapped.
#[derive(Clone, Debug)]
pub struct File {
    tables: FlatTensor,
    segments: Vec<Bytes>,
    /// Key to index of `tables.named_data`.
    named: BTreeMap<String, usize>,
}

impl File {
    /// Maps and checks a flat tensor file.
    ///
    /// # Errors
    /// `AccessFailed` when it cannot be read, `InvalidExternalData` when it is malformed; both with the path.
    pub fn open(path: &Path) -> Result<File> {
        File::from_bytes(Bytes::open(path)?).map_err(|e| e.at(path.display()))
    }

    /// # Errors
    /// `InvalidExternalData`, saying what is wrong and where.
    pub fn from_bytes(file: impl Into<Bytes>) -> Result<File> {
        let file = file.into();
        let layout = FLAT_TENSOR.parse(&file)?;
        let tables = decode::flat_tensor(&file.slice(0, layout.flatbuffer)?)?;
        let segments = layout::slice_segments(&FLAT_TENSOR, &file, &layout, &tables.segments)?;
        check::flat_tensor(&tables)?;
        let named = tables.named_data.iter().enumerate().map(|(i, n)| (n.key.clone(), i)).collect();
        Ok(File { tables, segments, named })
    }

    /// Everything in the FlatBuffer; its indices are all valid.
    pub fn tables(&self) -> &FlatTensor {
        &self.tables
    }

    /// The keys, sorted.
    pub fn keys(&self) -> impl ExactSizeIterator<Item = &str> {
        self.named.keys().map(String::as_str)
    }

    fn entry(&self, key: &str) -> Result<&NamedData> {
        let entry = self.named.get(key).and_then(|&i| self.tables.named_data.get(i));
        entry.ok_or_else(|| Error::new(Code::NotFound, format!("no data {key:?} in the .ptd file")))
    }

    /// The bytes under a key; at least those of its tensor, where it is one.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn data(&self, key: &str) -> Result<&Bytes> {
        let segment = self.segments.get(self.entry(key)?.segment_index as usize);
        segment.ok_or_else(|| Error::internal("a segment index that was not checked"))
    }

    /// What tensor is under a key; nothing for plain bytes.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn layout(&self, key: &str) -> Result<Option<&TensorLayout>> {
        Ok(self.entry(key)?.tensor_layout.as_ref())
    }
}

/// Collects tensors and bytes and writes them. Data may be borrowed from mapped files; it is never copied.
#[derive(Default)]
pub struct Writer<'a> {
    named: Vec<NamedData>,
    keys: BTreeSet<String>,
    segments: Vec<(Cow<'a, [u8]>, u64)>,
}

impl<'a> Writer<'a> {
    pub fn new() -> Writer<'a> {
        Writer::default()
    }

    /// Adds bytes, of a tensor where `layout` is given, aligned to `alignment` bytes in the file and where it is mapped.
    ///
    /// # Errors
    /// `InvalidArgument` when the key is taken, `alignment` is not a power of two, or the layout does not fit the
    /// bytes.
    pub fn data(
        &mut self,
        key: impl Into<String>,
        layout: Option<TensorLayout>,
        bytes: impl Into<Cow<'a, [u8]>>,
        alignment: u64,
    ) -> Result<()> {
        let (key, bytes) = (key.into(), bytes.into());
        check_alignment(alignment)?;
        if self.keys.contains(&key) {
            return Err(Error::invalid_argument(format!("data {key:?} is there twice")));
        }
        if let Some(layout) = &layout
            && (!is_permutation(&layout.dim_order, layout.sizes.len()) || layout.bytes() != Some(bytes.len() as u64))
        {
            let message = format!("data {key:?}: {} bytes are no tensor of {layout:?}", bytes.len());
            return Err(Error::invalid_argument(message));
        }
        let segment_index = u32::try_from(self.segments.len());
        let segment_index = segment_index.map_err(|_| Error::not_supported("more than 2^32 segments"))?;
        self.segments.push((bytes, alignment));
        self.keys.insert(key.clone());
        self.named.push(NamedData { key, segment_index, tensor_layout: layout });
        Ok(())
    }

    /// Writes the file to `path`, replacing what is there only once all of it is on disk. Returns its size in bytes.
    ///
    /// # Errors
    /// `AccessFailed` with the path; what was at `path` is untouched then.
    pub fn save(self, path: &Path) -> Result<u64> {
        atomic::replace(path, |out| self.write(out))
    }

    /// # Errors
    /// `AccessFailed` when `out` fails.
    pub fn write(self, out: &mut dyn Write) -> Result<u64> {
        let segments: Vec<Segment> =
            self.segments.iter().map(|(bytes, alignment)| Segment { bytes, alignment: *alignment }).collect();
        let tables = FlatTensor { version: check::VERSION, segments: layout::place(&segments), named_data: self.named };
        let root = encode::flat_tensor(&tables);
        let flatbuffer = flatbuffer::build(FLAT_TENSOR.reserved(), &FLAT_TENSOR.identifier, root)?;
        layout::write(&FLAT_TENSOR, flatbuffer, &segments, out)
    }
}

#[cfg(test)]
mod tests;
