//! Tensors whose values the file holds: weights, buffers, constants, example inputs.

use douse_core::bytes::Bytes;
use douse_core::{DType, Error, Result};

/// A tensor over a storage. Every element lies within the storage: that is checked when it is made.
#[derive(Clone, Debug)]
pub struct TensorData {
    dtype: DType,
    sizes: Vec<usize>,
    strides: Vec<usize>,
    storage_offset: usize,
    storage: Storage,
}

/// PyTorch has no tensors of more dimensions.
pub(crate) const MAX_RANK: usize = 64;

/// Bytes of the file that one or more tensors look at.
#[derive(Clone, Debug)]
pub struct Storage {
    /// Tensors with the same number share memory; numbers are those of one opened program.
    pub id: usize,
    pub bytes: Bytes,
}

/// Numbers the storages of a program.
#[derive(Debug, Default)]
pub(crate) struct StorageIds {
    next: usize,
}

impl StorageIds {
    /// A storage that no tensor has yet.
    pub(crate) fn storage(&mut self, bytes: Bytes) -> Storage {
        let id = self.next;
        self.next += 1;
        Storage { id, bytes }
    }
}

impl TensorData {
    /// A tensor over `storage`; strides and offset are in elements.
    ///
    /// # Errors
    /// When sizes and strides differ in number, or when an element lies outside the storage.
    pub fn new(
        dtype: DType,
        sizes: Vec<usize>,
        strides: Vec<usize>,
        storage_offset: usize,
        storage: Storage,
    ) -> Result<TensorData> {
        if sizes.len() != strides.len() {
            let message = format!("a tensor has {} sizes and {} strides", sizes.len(), strides.len());
            return Err(Error::invalid_program(message));
        }
        if sizes.len() > MAX_RANK {
            let message = format!("a tensor has {} dimensions; {MAX_RANK} is the most", sizes.len());
            return Err(Error::invalid_program(message));
        }
        let end = end(&sizes, &strides, storage_offset).and_then(|end| end.checked_mul(dtype.size()));
        if end.is_none_or(|end| end > storage.bytes.len()) {
            return Err(Error::invalid_program(format!(
                "a {dtype} tensor of sizes {sizes:?}, strides {strides:?} and offset {storage_offset} reaches beyond the \
                 {} bytes that the file holds for it",
                storage.bytes.len()
            )));
        }
        Ok(TensorData { dtype, sizes, strides, storage_offset, storage })
    }

    pub fn dtype(&self) -> DType {
        self.dtype
    }

    pub fn sizes(&self) -> &[usize] {
        &self.sizes
    }

    /// In elements, one for each size.
    pub fn strides(&self) -> &[usize] {
        &self.strides
    }

    /// In elements, from the start of the storage.
    pub fn storage_offset(&self) -> usize {
        self.storage_offset
    }

    /// What the tensor looks at, whole.
    pub fn storage(&self) -> &Storage {
        &self.storage
    }

    /// The number of elements.
    pub fn numel(&self) -> usize {
        if self.sizes.contains(&0) { 0 } else { self.sizes.iter().fold(1, |n, size| n.saturating_mul(*size)) }
    }

    /// Whether the elements lie row by row without gaps.
    pub fn is_contiguous(&self) -> bool {
        let mut expected = 1usize;
        for (size, stride) in self.sizes.iter().zip(&self.strides).rev() {
            if *size != 1 && *stride != expected {
                return self.numel() == 0;
            }
            expected = expected.saturating_mul(*size);
        }
        true
    }

    /// The bytes of the elements in order, where they lie row by row without gaps.
    pub fn contiguous_bytes(&self) -> Option<&[u8]> {
        if !self.is_contiguous() {
            return None;
        }
        let start = self.storage_offset.checked_mul(self.dtype.size())?;
        let len = self.numel().checked_mul(self.dtype.size())?;
        if len == 0 { Some(&[]) } else { self.storage.bytes.get(start..start.checked_add(len)?) }
    }
}

/// One past the last element's index in the storage, 0 where there is no element; `None` beyond what can be counted.
fn end(sizes: &[usize], strides: &[usize], offset: usize) -> Option<usize> {
    if sizes.contains(&0) {
        return Some(0);
    }
    // Broadcast sizes do not lengthen the reach, but a count of elements that overflows is no tensor.
    sizes.iter().try_fold(1usize, |numel, size| numel.checked_mul(*size))?;
    let mut last = offset;
    for (size, stride) in sizes.iter().zip(strides) {
        last = last.checked_add(size.checked_sub(1)?.checked_mul(*stride)?)?;
    }
    last.checked_add(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(sizes: &[usize], strides: &[usize], offset: usize, bytes: usize) -> Result<TensorData> {
        let storage = Storage { id: 0, bytes: (0..bytes as u8).collect::<Vec<u8>>().into() };
        TensorData::new(DType::I16, sizes.to_vec(), strides.to_vec(), offset, storage)
    }

    #[test]
    fn every_element_lies_in_the_storage() {
        assert!(tensor(&[2, 3], &[3, 1], 0, 12).is_ok());
        assert!(tensor(&[2, 3], &[3, 1], 1, 12).is_err());
        assert!(tensor(&[2, 3], &[0, 1], 3, 12).is_ok());
        assert!(tensor(&[0, 3], &[3, 1], 100, 0).is_ok());
        assert!(tensor(&[], &[], 0, 1).is_err());
        assert!(tensor(&[2, usize::MAX], &[1, usize::MAX], 0, 12).is_err());
        assert!(tensor(&[usize::MAX, usize::MAX], &[0, 0], 0, 12).is_err());
        assert!(tensor(&[2], &[1, 1], 0, 12).is_err());
    }

    #[test]
    fn contiguous_bytes_begin_at_the_offset() {
        assert_eq!(tensor(&[1, 2], &[7, 1], 1, 6).unwrap().contiguous_bytes(), Some(&[2, 3, 4, 5][..]));
        assert_eq!(tensor(&[2, 2], &[1, 2], 0, 8).unwrap().contiguous_bytes(), None);
        assert_eq!(tensor(&[0, 2], &[1, 2], 9, 0).unwrap().contiguous_bytes(), Some(&[][..]));
        assert_eq!(tensor(&[], &[], 0, 2).unwrap().numel(), 1);
    }
}
