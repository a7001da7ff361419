//! Tensors as slices with offset, sizes and strides.

use bytemuck::Pod;
use douse_core::{Error, Result};
use std::ops::Deref;

use super::scratch::{Buffer, Scratch};

/// A tensor to read. Strides and offset count elements.
#[derive(Clone, Copy, Debug)]
pub struct Tensor<'a, T> {
    data: &'a [T],
    offset: usize,
    sizes: &'a [usize],
    strides: &'a [isize],
}

/// A tensor to write, whose elements are distinct. Strides and offset count elements.
#[derive(Debug)]
pub struct TensorMut<'a, T> {
    data: &'a mut [T],
    offset: usize,
    sizes: &'a [usize],
    strides: &'a [isize],
}

/// The number of elements.
pub fn numel(sizes: &[usize]) -> usize {
    sizes.iter().product()
}

/// Strides in row-major order without gaps.
pub fn contiguous_strides(sizes: &[usize]) -> Vec<isize> {
    let mut strides = vec![1; sizes.len()];
    for i in (1..sizes.len()).rev() {
        strides[i - 1] = strides[i] * sizes[i].max(1) as isize;
    }
    strides
}

/// Whether elements lie in row-major order without gaps.
pub fn is_contiguous(sizes: &[usize], strides: &[isize]) -> bool {
    let mut expected = 1;
    for (&size, &stride) in sizes.iter().zip(strides).rev() {
        if size == 0 {
            return true;
        }
        if size != 1 && stride != expected {
            return false;
        }
        expected *= size as isize;
    }
    true
}

/// Whether no two elements share a place, by the sufficient test that each stride steps over what the smaller ones span.
pub fn is_injective(sizes: &[usize], strides: &[isize]) -> bool {
    if sizes.contains(&0) {
        return true;
    }
    let mut dims: Vec<(usize, usize)> =
        sizes.iter().zip(strides).filter(|(size, _)| **size > 1).map(|(&n, &s)| (s.unsigned_abs(), n)).collect();
    dims.sort_unstable();
    let mut span = 1;
    dims.iter().all(|&(stride, size)| {
        let apart = stride >= span;
        span += stride * (size - 1);
        apart
    })
}

/// Refuses a tensor with an element outside the `len` elements of its memory.
fn check(len: usize, offset: usize, sizes: &[usize], strides: &[isize]) -> Result<()> {
    if sizes.len() != strides.len() {
        return Err(Error::internal("a view with as many strides as sizes was expected"));
    }
    if sizes.contains(&0) {
        return Ok(());
    }
    let (mut low, mut high) = (offset as i128, offset as i128);
    for (&size, &stride) in sizes.iter().zip(strides) {
        let span = (size as i128 - 1) * stride as i128;
        if span < 0 {
            low += span;
        } else {
            high += span;
        }
    }
    if low < 0 || high >= len as i128 {
        return Err(Error::internal(format!(
            "a view of sizes {sizes:?}, strides {strides:?} and offset {offset} leaves its memory of {len} elements"
        )));
    }
    Ok(())
}

impl<'a, T> Tensor<'a, T> {
    /// Fails where an element would lie outside `data`.
    pub fn new(data: &'a [T], offset: usize, sizes: &'a [usize], strides: &'a [isize]) -> Result<Tensor<'a, T>> {
        check(data.len(), offset, sizes, strides)?;
        Ok(Tensor { data, offset, sizes, strides })
    }

    pub fn data(&self) -> &'a [T] {
        self.data
    }

    pub fn offset(&self) -> usize {
        self.offset
    }

    pub fn sizes(&self) -> &'a [usize] {
        self.sizes
    }

    pub fn strides(&self) -> &'a [isize] {
        self.strides
    }

    pub fn rank(&self) -> usize {
        self.sizes.len()
    }

    pub fn numel(&self) -> usize {
        numel(self.sizes)
    }

    /// The elements as a slice where they are contiguous.
    pub fn as_slice(&self) -> Option<&'a [T]> {
        let len = self.numel();
        if len == 0 {
            return Some(&[]);
        }
        is_contiguous(self.sizes, self.strides).then(|| &self.data[self.offset..self.offset + len])
    }
}

impl<'a, T: Pod> Tensor<'a, T> {
    /// The elements in row-major order: in place where they are contiguous, copied otherwise.
    pub fn dense(&self, scratch: &'a Scratch) -> Dense<'a, T> {
        match self.as_slice() {
            Some(slice) => Dense::Borrowed(slice),
            None => {
                let mut buffer = scratch.take(self.numel());
                gather(self.data, self.offset, self.sizes, self.strides, &mut buffer);
                Dense::Copied(buffer)
            }
        }
    }
}

/// Elements in row-major order, in place or copied.
#[derive(Debug)]
pub enum Dense<'a, T: Pod> {
    Borrowed(&'a [T]),
    Copied(Buffer<'a, T>),
}

impl<T: Pod> Deref for Dense<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match self {
            Dense::Borrowed(slice) => slice,
            Dense::Copied(buffer) => buffer,
        }
    }
}

impl<'a, T> TensorMut<'a, T> {
    /// Fails where an element would lie outside `data`, or two elements share a place.
    pub fn new(data: &'a mut [T], offset: usize, sizes: &'a [usize], strides: &'a [isize]) -> Result<TensorMut<'a, T>> {
        check(data.len(), offset, sizes, strides)?;
        if !is_injective(sizes, strides) {
            return Err(Error::internal(format!(
                "an output of sizes {sizes:?} and strides {strides:?} overlaps itself"
            )));
        }
        Ok(TensorMut { data, offset, sizes, strides })
    }

    pub fn sizes(&self) -> &'a [usize] {
        self.sizes
    }

    pub fn strides(&self) -> &'a [isize] {
        self.strides
    }

    pub fn offset(&self) -> usize {
        self.offset
    }

    pub fn data(&mut self) -> &mut [T] {
        self.data
    }

    pub fn rank(&self) -> usize {
        self.sizes.len()
    }

    pub fn numel(&self) -> usize {
        numel(self.sizes)
    }

    /// The elements as a slice where they are contiguous.
    pub fn as_slice(&mut self) -> Option<&mut [T]> {
        let len = self.numel();
        if len == 0 {
            return Some(&mut []);
        }
        is_contiguous(self.sizes, self.strides).then(|| &mut self.data[self.offset..self.offset + len])
    }
}

/// With the second element moved to the end.
fn rotated<T: Copy>(from: &[T]) -> Vec<T> {
    [&from[..1], &from[2..], &from[1..2]].concat()
}

impl<T> TensorMut<'_, T> {
    /// The elements as a slice where they are contiguous with the second dimension moved to the end (channels last), and not as they
    /// stand.
    pub fn as_rotated_slice(&mut self) -> Option<&mut [T]> {
        if self.rank() < 3 || self.numel() == 0 || is_contiguous(self.sizes, self.strides) {
            return None;
        }
        let (sizes, strides) = (rotated(self.sizes), rotated(self.strides));
        let len = numel(&sizes);
        is_contiguous(&sizes, &strides).then(|| &mut self.data[self.offset..self.offset + len])
    }
}

impl<T: Pod> TensorMut<'_, T> {
    /// Runs `write` on a slice for all elements in row-major order: the memory itself where it is contiguous, otherwise a
    /// buffer that is copied to its place afterwards.
    pub fn write<R>(&mut self, scratch: &Scratch, write: impl FnOnce(&mut [T]) -> Result<R>) -> Result<R> {
        if let Some(slice) = self.as_slice() {
            return write(slice);
        }
        let mut buffer = scratch.take(self.numel());
        let result = write(&mut buffer)?;
        self.scatter(&buffer);
        Ok(result)
    }

    /// Copies elements in row-major order to their places.
    pub fn scatter(&mut self, from: &[T]) {
        let Some((&inner, outer)) = self.sizes.split_last() else {
            if let (Some(to), Some(from)) = (self.data.get_mut(self.offset), from.first()) {
                *to = *from;
            }
            return;
        };
        if inner == 0 {
            return;
        }
        let step = self.strides[outer.len()];
        for (row, start) in from.chunks_exact(inner).zip(Offsets::new(outer, self.strides, self.offset)) {
            if step == 1 {
                self.data[start..start + inner].copy_from_slice(row);
            } else {
                for (j, x) in row.iter().enumerate() {
                    self.data[start.wrapping_add_signed(j as isize * step)] = *x;
                }
            }
        }
    }
}

/// Copies a strided tensor into row-major order.
fn gather<T: Copy>(data: &[T], offset: usize, sizes: &[usize], strides: &[isize], to: &mut [T]) {
    let Some((&inner, outer)) = sizes.split_last() else {
        if let (Some(to), Some(from)) = (to.first_mut(), data.get(offset)) {
            *to = *from;
        }
        return;
    };
    if inner == 0 {
        return;
    }
    let step = strides[outer.len()];
    for (row, start) in to.chunks_exact_mut(inner).zip(Offsets::new(outer, strides, offset)) {
        if step == 1 {
            row.copy_from_slice(&data[start..start + inner]);
        } else {
            for (j, x) in row.iter_mut().enumerate() {
                *x = data[start.wrapping_add_signed(j as isize * step)];
            }
        }
    }
}

/// The offsets of all elements in row-major order, over as many dimensions as there are sizes.
#[derive(Clone, Debug)]
pub struct Offsets<'a> {
    sizes: &'a [usize],
    strides: &'a [isize],
    index: Vec<usize>,
    next: Option<usize>,
}

impl<'a> Offsets<'a> {
    pub fn new(sizes: &'a [usize], strides: &'a [isize], offset: usize) -> Offsets<'a> {
        let next = (!sizes.contains(&0)).then_some(offset);
        Offsets { sizes, strides, index: vec![0; sizes.len()], next }
    }
}

impl Iterator for Offsets<'_> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let current = self.next?;
        let mut offset = current;
        self.next = None;
        for ((i, &size), &stride) in self.index.iter_mut().zip(self.sizes).zip(self.strides).rev() {
            if *i + 1 < size {
                *i += 1;
                self.next = Some(offset.wrapping_add_signed(stride));
                break;
            }
            offset = offset.wrapping_add_signed(-(*i as isize) * stride);
            *i = 0;
        }
        Some(current)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_follow_row_major_order() {
        assert_eq!(Offsets::new(&[2, 3], &[1, 10], 5).collect::<Vec<_>>(), [5, 15, 25, 6, 16, 26]);
        assert_eq!(Offsets::new(&[3], &[-1], 2).collect::<Vec<_>>(), [2, 1, 0]);
        assert_eq!(Offsets::new(&[], &[], 7).collect::<Vec<_>>(), [7]);
        assert_eq!(Offsets::new(&[2, 0], &[1, 1], 0).count(), 0);
    }

    #[test]
    fn views_that_leave_their_memory_are_refused() {
        let data = [0u8; 6];
        assert!(Tensor::new(&data, 0, &[2, 3], &[3, 1]).is_ok());
        assert!(Tensor::new(&data, 1, &[2, 3], &[3, 1]).is_err());
        assert!(Tensor::new(&data, 1, &[3], &[-1]).is_err());
        assert!(Tensor::new(&data, 9, &[0, 3], &[3, 1]).is_ok());
        let mut data = [0u8; 6];
        assert!(TensorMut::new(&mut data, 0, &[2, 3], &[0, 1]).is_err());
        assert!(TensorMut::new(&mut data, 0, &[3, 2], &[1, 3]).is_ok());
    }

    #[test]
    fn dense_and_scatter_undo_each_other() {
        let scratch = Scratch::new();
        let data: Vec<i32> = (0..24).collect();
        let (sizes, strides) = ([4, 2, 3], [1, 12, 4]);
        let dense = Tensor::new(&data, 0, &sizes, &strides).unwrap().dense(&scratch);
        assert_eq!(dense[..4], [0, 4, 8, 12]);
        let mut back = vec![0; 24];
        TensorMut::new(&mut back, 0, &sizes, &strides).unwrap().scatter(&dense);
        assert_eq!(back, data);
    }
}
