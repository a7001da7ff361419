//! Tensors in host memory: owned ones and views of a caller's memory.

use std::cell::Cell;

use crate::bytes::Aligned;
use crate::layout;
use crate::{DType, Error, Result};

/// A tensor that owns its memory. Strides count elements; the first element is at byte 0.
#[derive(Clone, Debug)]
pub struct HostTensor {
    dtype: DType,
    sizes: Vec<usize>,
    strides: Vec<usize>,
    bytes: Aligned,
}

/// A caller's tensor: where it lies, and whether it may be written. Strides count elements.
#[derive(Clone, Copy)]
pub struct TensorView<'a> {
    dtype: DType,
    sizes: &'a [usize],
    strides: &'a [usize],
    memory: Memory<'a>,
}

/// The bytes of a view, from its first element on.
#[derive(Clone, Copy)]
pub enum Memory<'a> {
    Read(&'a [u8]),
    /// Memory that may be written, and that other views may see too.
    Write(&'a [Cell<u8>]),
}

impl<'a> Memory<'a> {
    pub fn writable(bytes: &'a mut [u8]) -> Memory<'a> {
        Memory::Write(Cell::from_mut(bytes).as_slice_of_cells())
    }

    pub fn len(&self) -> usize {
        match self {
            Memory::Read(bytes) => bytes.len(),
            Memory::Write(cells) => cells.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The first byte's address, to compare with others.
    pub fn address(&self) -> usize {
        match self {
            Memory::Read(bytes) => bytes.as_ptr().addr(),
            Memory::Write(cells) => cells.as_ptr().addr(),
        }
    }
}

impl<'a> TensorView<'a> {
    /// # Errors
    /// `InvalidArgument` where sizes and strides differ in number, or an element lies outside the memory.
    pub fn new(dtype: DType, sizes: &'a [usize], strides: &'a [usize], memory: Memory<'a>) -> Result<TensorView<'a>> {
        check(dtype, sizes, strides, memory.len())?;
        Ok(TensorView { dtype, sizes, strides, memory })
    }

    pub fn dtype(&self) -> DType {
        self.dtype
    }

    pub fn sizes(&self) -> &'a [usize] {
        self.sizes
    }

    /// In elements, one for each size.
    pub fn strides(&self) -> &'a [usize] {
        self.strides
    }

    pub fn memory(&self) -> Memory<'a> {
        self.memory
    }

    pub fn is_writable(&self) -> bool {
        matches!(self.memory, Memory::Write(_))
    }

    pub fn numel(&self) -> usize {
        layout::numel(self.sizes).unwrap_or(0)
    }

    /// The addresses from the first element to past the last; empty where there are no elements.
    pub fn span(&self) -> std::ops::Range<usize> {
        let start = self.memory.address();
        start..start + extent_bytes(self.dtype, self.sizes, self.strides).unwrap_or(0)
    }

    /// The bytes themselves, where the elements lie in just these strides, in memory that is only read, at an address
    /// that suits the dtype: what can be used without a copy.
    pub fn borrow_as(&self, strides: &[usize]) -> Option<&'a [u8]> {
        let Memory::Read(bytes) = self.memory else { return None };
        let aligned = bytes.as_ptr().addr().is_multiple_of(self.dtype.size());
        let len = extent_bytes(self.dtype, self.sizes, strides)?;
        if aligned && layout::same(self.sizes, self.strides, strides) { bytes.get(..len) } else { None }
    }

    /// Copies the elements into `to`, laid out in `strides`.
    ///
    /// # Errors
    /// `InvalidArgument` where `to` is too small.
    pub fn copy_to(&self, to: &mut [u8], strides: &[usize]) -> Result<()> {
        check(self.dtype, self.sizes, strides, to.len())?;
        let size = self.dtype.size();
        layout::for_each_run(self.sizes, self.strides, strides, &mut |a, b, count, step_a, step_b| match self.memory {
            Memory::Read(from) if step_a == 1 && step_b == 1 => {
                let (from, to) = (from.get(a * size..(a + count) * size), to.get_mut(b * size..(b + count) * size));
                if let (Some(from), Some(to)) = (from, to) {
                    to.copy_from_slice(from);
                }
            }
            Memory::Read(from) => match size {
                1 => copy_elements::<1>(count, (a, step_a), (b, step_b), from, to),
                2 => copy_elements::<2>(count, (a, step_a), (b, step_b), from, to),
                4 => copy_elements::<4>(count, (a, step_a), (b, step_b), from, to),
                8 => copy_elements::<8>(count, (a, step_a), (b, step_b), from, to),
                _ => copy_steps(size, count, (a, step_a), (b, step_b), &|i| from.get(i).copied(), to),
            },
            Memory::Write(from) => {
                copy_steps(size, count, (a, step_a), (b, step_b), &|i| from.get(i).map(Cell::get), to);
            }
        });
        Ok(())
    }

    /// Overwrites the elements with those of `from`, which are laid out in `strides`.
    ///
    /// # Errors
    /// `InvalidArgument` where the view may not be written, where elements of it share memory, or where `from` is too small.
    pub fn copy_from(&self, from: &[u8], strides: &[usize]) -> Result<()> {
        let Memory::Write(cells) = self.memory else {
            return Err(Error::invalid_argument("the tensor may only be read"));
        };
        if layout::overlaps_itself(self.sizes, self.strides) {
            return Err(Error::invalid_argument("elements of the tensor share memory, so it cannot be written"));
        }
        check(self.dtype, self.sizes, strides, from.len())?;
        let size = self.dtype.size();
        layout::for_each_run(self.sizes, self.strides, strides, &mut |a, b, count, step_a, step_b| {
            for i in 0..count {
                let (at, source) = ((a + i * step_a) * size, (b + i * step_b) * size);
                if let (Some(to), Some(from)) = (cells.get(at..at + size), from.get(source..source + size)) {
                    to.iter().zip(from).for_each(|(to, from)| to.set(*from));
                }
            }
        });
        Ok(())
    }

    /// An owned copy in row-major order.
    ///
    /// # Errors
    /// `MemoryAllocationFailed` where memory is short.
    pub fn to_tensor(&self) -> Result<HostTensor> {
        let mut tensor = HostTensor::zeros(self.dtype, self.sizes)?;
        let strides = std::mem::take(&mut tensor.strides);
        self.copy_to(&mut tensor.bytes, &strides)?;
        tensor.strides = strides;
        Ok(tensor)
    }
}

impl std::fmt::Debug for TensorView<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {:?} strides {:?}", self.dtype, self.sizes, self.strides)
    }
}

/// Copies elements of `SIZE` bytes, each at once. Places and steps count elements.
fn copy_elements<const SIZE: usize>(
    count: usize,
    (a, step_a): (usize, usize),
    (b, step_b): (usize, usize),
    from: &[u8],
    to: &mut [u8],
) {
    let (from, to) = (from.as_chunks::<SIZE>().0, to.as_chunks_mut::<SIZE>().0);
    for i in 0..count {
        if let (Some(from), Some(to)) = (from.get(a + i * step_a), to.get_mut(b + i * step_b)) {
            *to = *from;
        }
    }
}

fn copy_steps(
    size: usize,
    count: usize,
    (a, step_a): (usize, usize),
    (b, step_b): (usize, usize),
    from: &dyn Fn(usize) -> Option<u8>,
    to: &mut [u8],
) {
    for i in 0..count {
        let (start_a, start_b) = ((a + i * step_a) * size, (b + i * step_b) * size);
        for byte in 0..size {
            if let (Some(value), Some(place)) = (from(start_a + byte), to.get_mut(start_b + byte)) {
                *place = value;
            }
        }
    }
}

fn extent_bytes(dtype: DType, sizes: &[usize], strides: &[usize]) -> Option<usize> {
    layout::extent(sizes, strides)?.checked_mul(dtype.size())
}

fn check(dtype: DType, sizes: &[usize], strides: &[usize], bytes: usize) -> Result<()> {
    if sizes.len() != strides.len() {
        let message = format!("a tensor has {} sizes and {} strides", sizes.len(), strides.len());
        return Err(Error::invalid_argument(message));
    }
    // A repeated dimension does not lengthen the reach, but an uncountable number of elements is no tensor.
    let extent = layout::numel(sizes).and_then(|_| extent_bytes(dtype, sizes, strides));
    match extent {
        Some(extent) if extent <= bytes => Ok(()),
        _ => Err(Error::invalid_argument(format!(
            "a {dtype} tensor of sizes {sizes:?} and strides {strides:?} does not fit {bytes} bytes"
        ))),
    }
}

impl HostTensor {
    /// # Errors
    /// `InvalidArgument` where the elements do not fit the bytes.
    pub fn new(dtype: DType, sizes: &[usize], strides: &[usize], bytes: Aligned) -> Result<HostTensor> {
        check(dtype, sizes, strides, bytes.len())?;
        Ok(HostTensor { dtype, sizes: sizes.to_vec(), strides: strides.to_vec(), bytes })
    }

    /// A tensor of zeros in row-major order.
    ///
    /// # Errors
    /// `InvalidArgument` for more elements than can be counted, `MemoryAllocationFailed` where memory is short.
    pub fn zeros(dtype: DType, sizes: &[usize]) -> Result<HostTensor> {
        HostTensor::zeros_strided(dtype, sizes, &layout::contiguous_strides(sizes))
    }

    /// A tensor of zeros in these strides.
    ///
    /// # Errors
    /// As [`zeros`](HostTensor::zeros).
    pub fn zeros_strided(dtype: DType, sizes: &[usize], strides: &[usize]) -> Result<HostTensor> {
        let extent = layout::numel(sizes).and_then(|_| extent_bytes(dtype, sizes, strides));
        let extent =
            extent.ok_or_else(|| Error::invalid_argument(format!("a tensor of sizes {sizes:?} is too large")))?;
        let bytes = Aligned::zeros(extent).map_err(|e| e.at(format!("a {dtype} tensor of sizes {sizes:?}")))?;
        HostTensor::new(dtype, sizes, strides, bytes)
    }

    /// A row-major tensor with these bytes.
    ///
    /// # Errors
    /// `InvalidArgument` unless there are just as many bytes as the elements take.
    pub fn from_bytes(dtype: DType, sizes: &[usize], bytes: &[u8]) -> Result<HostTensor> {
        let expected = layout::numel(sizes).and_then(|n| n.checked_mul(dtype.size()));
        if expected != Some(bytes.len()) {
            let message = format!("{} bytes for a {dtype} tensor of sizes {sizes:?}", bytes.len());
            return Err(Error::invalid_argument(message));
        }
        HostTensor::new(dtype, sizes, &layout::contiguous_strides(sizes), Aligned::copy(bytes)?)
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

    pub fn numel(&self) -> usize {
        layout::numel(&self.sizes).unwrap_or(0)
    }

    /// The memory, gaps included.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    pub fn view(&self) -> TensorView<'_> {
        TensorView { dtype: self.dtype, sizes: &self.sizes, strides: &self.strides, memory: Memory::Read(&self.bytes) }
    }

    /// A view through which the program may write the tensor.
    pub fn view_mut(&mut self) -> TensorView<'_> {
        let memory = Memory::writable(&mut self.bytes);
        TensorView { dtype: self.dtype, sizes: &self.sizes, strides: &self.strides, memory }
    }

    /// The same elements in these strides, in memory of their own.
    ///
    /// # Errors
    /// As [`zeros`](HostTensor::zeros).
    pub fn to_strides(&self, strides: &[usize]) -> Result<HostTensor> {
        let mut laid_out = HostTensor::zeros_strided(self.dtype, &self.sizes, strides)?;
        self.view().copy_to(&mut laid_out.bytes, strides)?;
        Ok(laid_out)
    }

    /// The same elements in row-major order; no copy where they lie so already.
    ///
    /// # Errors
    /// As [`zeros`](HostTensor::zeros).
    pub fn into_contiguous(mut self) -> Result<HostTensor> {
        if layout::is_contiguous(&self.sizes, &self.strides) {
            self.strides = layout::contiguous_strides(&self.sizes);
            return Ok(self);
        }
        self.view().to_tensor()
    }
}

macro_rules! elements {
    ($($type:ty: $dtype:ident, $make:ident, $values:ident;)*) => {
        impl HostTensor {$(
            #[doc = concat!("A row-major ", stringify!($dtype), " tensor with these elements.")]
            ///
            /// # Errors
            /// `InvalidArgument` unless there are as many values as elements.
            pub fn $make(sizes: &[usize], values: &[$type]) -> Result<HostTensor> {
                let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
                HostTensor::from_bytes(DType::$dtype, sizes, &bytes)
            }

            #[doc = concat!("The elements of a ", stringify!($dtype), " tensor, row by row whatever its strides.")]
            ///
            /// # Errors
            /// `InvalidArgument` for a tensor of another dtype.
            pub fn $values(&self) -> Result<Vec<$type>> {
                if self.dtype() != DType::$dtype {
                    let (found, asked) = (self.dtype(), DType::$dtype);
                    return Err(Error::invalid_argument(format!("the tensor holds {found}, {asked} elements were asked for")));
                }
                let mut dense = Aligned::zeros(self.numel() * size_of::<$type>())?;
                self.view().copy_to(&mut dense, &layout::contiguous_strides(self.sizes()))?;
                let (elements, _) = dense.as_chunks();
                Ok(elements.iter().map(|bytes| <$type>::from_le_bytes(*bytes)).collect())
            }
        )*}
    };
}
elements! {
    f32: F32, from_f32, f32_values;
    f64: F64, from_f64, f64_values;
    i64: I64, from_i64, i64_values;
    i32: I32, from_i32, i32_values;
    u8: U8, from_u8, u8_values;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_read_row_by_row() {
        let tensor = HostTensor::from_f32(&[2, 2], &[1.0, 2.0, 3.0, f32::INFINITY]).unwrap();
        let transposed = tensor.to_strides(&[1, 2]).unwrap();
        assert_eq!(transposed.f32_values().unwrap(), [1.0, 2.0, 3.0, f32::INFINITY]);
        assert_eq!(HostTensor::from_u8(&[0], &[]).unwrap().u8_values().unwrap(), []);
        let error = tensor.i64_values().unwrap_err();
        assert_eq!(error.message, "the tensor holds float32, int64 elements were asked for");
    }

    #[test]
    fn a_transposed_copy_and_back() {
        let tensor = HostTensor::from_i32(&[2, 3], &[0, 1, 2, 3, 4, 5]).unwrap();
        let transposed = tensor.to_strides(&[1, 2]).unwrap();
        assert_eq!(transposed.bytes(), HostTensor::from_i32(&[6], &[0, 3, 1, 4, 2, 5]).unwrap().bytes());
        let back = transposed.into_contiguous().unwrap();
        assert_eq!((back.bytes(), back.strides()), (tensor.bytes(), tensor.strides()));
    }

    #[test]
    fn views_stay_in_their_memory() {
        let bytes = [0u8; 16];
        let view = |sizes, strides| TensorView::new(DType::F32, sizes, strides, Memory::Read(&bytes));
        assert!(view(&[2, 2], &[2, 1]).is_ok());
        assert!(view(&[2, 2], &[3, 1]).is_err());
        assert!(view(&[1000, 4], &[0, 1]).is_ok());
        assert!(view(&[usize::MAX, 4], &[0, 1]).is_err());
        assert!(view(&[0, 4], &[4, 1]).is_ok());
        assert!(view(&[4], &[1, 1]).is_err());
    }

    #[test]
    fn writing_reaches_the_owner_and_refuses_what_cannot_be_written() {
        let mut tensor = HostTensor::from_u8(&[2, 2], &[0; 4]).unwrap().to_strides(&[1, 2]).unwrap();
        tensor.view_mut().copy_from(&[1, 2, 3, 4], &[2, 1]).unwrap();
        assert_eq!(tensor.bytes(), &[1, 3, 2, 4]);
        assert!(tensor.view().copy_from(&[0; 4], &[2, 1]).is_err());
        let mut memory = [0u8; 2];
        let expanded = TensorView::new(DType::U8, &[2, 2], &[0, 1], Memory::writable(&mut memory)).unwrap();
        assert!(expanded.copy_from(&[0; 4], &[2, 1]).unwrap_err().message.contains("share memory"));
    }

    #[test]
    fn only_matching_aligned_memory_is_borrowed() {
        let tensor = HostTensor::from_f32(&[3], &[1.0, 2.0, 3.0]).unwrap();
        assert!(tensor.view().borrow_as(&[1]).is_some());
        assert!(tensor.view().borrow_as(&[2]).is_none());
        let shifted = TensorView::new(DType::F32, &[2], &[1], Memory::Read(&tensor.bytes()[1..])).unwrap();
        assert!(shifted.borrow_as(&[1]).is_none());
    }

    #[test]
    fn elements_of_every_width_are_transposed() {
        for dtype in [DType::U8, DType::F16, DType::F32, DType::F64, DType::C128] {
            let size = dtype.size();
            // Element `i` is `i` in every byte.
            let bytes: Vec<u8> = (0..6u8).flat_map(|i| std::iter::repeat_n(i, size)).collect();
            let tensor = HostTensor::from_bytes(dtype, &[2, 3], &bytes).unwrap();
            let mut to = vec![9; 6 * size];
            tensor.view().copy_to(&mut to, &[1, 2]).unwrap();
            let expected: Vec<u8> = [0, 3, 1, 4, 2, 5].into_iter().flat_map(|i| std::iter::repeat_n(i, size)).collect();
            assert_eq!(to, expected, "{dtype}");
        }
    }
}
