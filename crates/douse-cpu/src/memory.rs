//! The memory of a call: where each buffer lies.
//!
//! All of the crate's access to tensors' bytes by address is here. A [`Region`] is a run of bytes that the call may use while it
//! runs; regions of different buffers may overlap where the plan places a result over an operand that is no longer needed, so elements
//! are copied in and out, and no reference into a region lives longer than one copy. Every access is checked against the
//! region's length, one check a block.
//!
//! Threads: a region may be used by several threads at once. Who hands regions to threads (the kernel interpreter) first shows that
//! no element written by one thread is read or written by another.

use bytemuck::Pod;
use douse_core::bytes::Aligned;
use douse_core::{Error, Result};
use douse_program::plan::BufferId;
use std::marker::PhantomData;
use std::ops::Range;

/// A run of bytes that may be read and, where so made, written.
#[derive(Clone, Copy)]
pub(crate) struct Region<'m> {
    start: *mut u8,
    len: usize,
    writable: bool,
    life: PhantomData<&'m mut [u8]>,
}

// SAFETY: the bytes outlive 'm and belong to the call; that threads do not use one element in conflicting ways is the
// duty of who shares regions, as the module's documentation says.
unsafe impl Send for Region<'_> {}
// SAFETY: as above.
unsafe impl Sync for Region<'_> {}

/// An access outside of a region, or a write to one that may only be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outside;

impl<'m> Region<'m> {
    pub fn read_only(bytes: &'m [u8]) -> Region<'m> {
        Region { start: bytes.as_ptr().cast_mut(), len: bytes.len(), writable: false, life: PhantomData }
    }

    pub fn writable(bytes: &'m mut [u8]) -> Region<'m> {
        Region { start: bytes.as_mut_ptr(), len: bytes.len(), writable: true, life: PhantomData }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    /// A part of the region.
    pub fn part(self, range: Range<usize>) -> Result<Region<'m>, Outside> {
        if range.start > range.end || range.end > self.len {
            return Err(Outside);
        }
        Ok(Region { start: self.start.wrapping_add(range.start), len: range.end - range.start, ..self })
    }

    /// Whether the two have a byte in common.
    pub fn overlaps(&self, other: &Region) -> bool {
        let (a, b) = (self.start as usize, other.start as usize);
        a < b + other.len && b < a + self.len
    }

    /// Whether all elements `first + k * stride` for k below `count` of this size lie in the region.
    #[inline(always)]
    fn check<T>(&self, first: i64, stride: i64, count: usize) -> Result<(), Outside> {
        if count == 0 {
            return Ok(());
        }
        let last = stride.checked_mul(count as i64 - 1).and_then(|reach| first.checked_add(reach)).ok_or(Outside)?;
        let elements = (self.len / size_of::<T>()) as i64;
        if first < 0 || last < 0 || first >= elements || last >= elements { Err(Outside) } else { Ok(()) }
    }

    /// Whether the two begin at the same byte.
    pub fn begins_with(&self, other: &Region) -> bool {
        self.start == other.start
    }

    /// `out[k] = f(element first + k * stride)`.
    #[inline(always)]
    pub fn read<T: Pod, L>(&self, first: i64, stride: i64, out: &mut [L], f: impl Fn(T) -> L) -> Result<(), Outside> {
        self.check::<T>(first, stride, out.len())?;
        let base = self.start.cast_const().cast::<T>().wrapping_offset(first as isize);
        match stride {
            1 => {
                for (k, out) in out.iter_mut().enumerate() {
                    // SAFETY: the elements first to first + out.len() - 1 lie in the region, as checked.
                    *out = f(unsafe { base.wrapping_add(k).read_unaligned() });
                }
            }
            _ => {
                for (k, out) in out.iter_mut().enumerate() {
                    // SAFETY: the first and the last of these elements lie in the region, as checked, so all between do.
                    *out = f(unsafe { base.wrapping_offset(k as isize * stride as isize).read_unaligned() });
                }
            }
        }
        Ok(())
    }

    /// `out[k] = f(element index[k])`.
    #[inline(always)]
    pub fn gather<T: Pod, L>(&self, index: &[i64], out: &mut [L], f: impl Fn(T) -> L) -> Result<(), Outside> {
        let elements = (self.len / size_of::<T>()) as u64;
        if !index.iter().fold(true, |inside, &i| inside & ((i as u64) < elements)) {
            return Err(Outside);
        }
        let base = self.start.cast_const().cast::<T>();
        for (out, &i) in out.iter_mut().zip(index) {
            // SAFETY: every index is below the number of elements, as checked.
            *out = f(unsafe { base.wrapping_offset(i as isize).read_unaligned() });
        }
        Ok(())
    }

    /// `element first + k * stride = f(values[k])`, in order.
    #[inline(always)]
    pub fn write<T: Pod, L: Copy>(
        &self,
        first: i64,
        stride: i64,
        values: &[L],
        f: impl Fn(L) -> T,
    ) -> Result<(), Outside> {
        self.check::<T>(first, stride, values.len())?;
        if !self.writable {
            return Err(Outside);
        }
        let base = self.start.cast::<T>().wrapping_offset(first as isize);
        match stride {
            1 => {
                for (k, value) in values.iter().enumerate() {
                    // SAFETY: the elements lie in the region, as checked, which may be written.
                    unsafe { base.wrapping_add(k).write_unaligned(f(*value)) };
                }
            }
            _ => {
                for (k, value) in values.iter().enumerate() {
                    // SAFETY: the first and the last lie in the region, as checked, which may be written.
                    unsafe { base.wrapping_offset(k as isize * stride as isize).write_unaligned(f(*value)) };
                }
            }
        }
        Ok(())
    }

    /// `element index[k] = f(values[k])`, in order.
    #[inline(always)]
    pub fn scatter<T: Pod, L: Copy>(&self, index: &[i64], values: &[L], f: impl Fn(L) -> T) -> Result<(), Outside> {
        let elements = (self.len / size_of::<T>()) as u64;
        if !self.writable || !index.iter().fold(true, |inside, &i| inside & ((i as u64) < elements)) {
            return Err(Outside);
        }
        let base = self.start.cast::<T>();
        for (value, &i) in values.iter().zip(index) {
            // SAFETY: every index is below the number of elements, as checked, and the region may be written.
            unsafe { base.wrapping_offset(i as isize).write_unaligned(f(*value)) };
        }
        Ok(())
    }

    /// `element index[k] = f(element index[k], values[k])`, in order, each seeing what the ones before it wrote.
    #[inline(always)]
    pub fn update<T: Pod, L: Copy>(&self, index: &[i64], values: &[L], f: impl Fn(T, L) -> T) -> Result<(), Outside> {
        let elements = (self.len / size_of::<T>()) as u64;
        if !self.writable || !index.iter().fold(true, |inside, &i| inside & ((i as u64) < elements)) {
            return Err(Outside);
        }
        let base = self.start.cast::<T>();
        for (value, &i) in values.iter().zip(index) {
            let element = base.wrapping_offset(i as isize);
            // SAFETY: every index is below the number of elements, as checked, and the region may be written.
            unsafe { element.write_unaligned(f(element.read_unaligned(), *value)) };
        }
        Ok(())
    }

    /// Copies all bytes of another region of the same length, which may overlap.
    pub fn copy_from(&self, from: &Region) -> Result<(), Outside> {
        if !self.writable || self.len != from.len {
            return Err(Outside);
        }
        // SAFETY: both runs are of this length; `copy` allows overlap.
        unsafe { std::ptr::copy(from.start, self.start, self.len) };
        Ok(())
    }
}

/// Regions by buffer. A buffer whose size is not known yet has none.
#[derive(Default)]
pub struct Memory<'m> {
    regions: Vec<Option<Region<'m>>>,
    /// Memory that the call itself allocated.
    owned: Vec<Aligned>,
}

/// The number of a piece of memory that [`Memory`] owns.
pub(crate) type Owned = usize;

impl<'m> Memory<'m> {
    pub(crate) fn new(buffers: usize) -> Memory<'m> {
        Memory { regions: vec![None; buffers], owned: Vec::new() }
    }

    pub(crate) fn set(&mut self, buffer: BufferId, region: Region<'m>) {
        if let Some(slot) = self.regions.get_mut(buffer as usize) {
            *slot = Some(region);
        }
    }

    /// Owns memory until [`Memory::release`]. The region is for buffers of this call.
    pub(crate) fn own(&mut self, mut bytes: Aligned) -> (Owned, Region<'m>) {
        // The bytes lie on the heap, so the region stays right when their owner moves.
        let region = Region { start: bytes.as_mut_ptr(), len: bytes.len(), writable: true, life: PhantomData };
        self.owned.push(bytes);
        (self.owned.len() - 1, region)
    }

    /// What [`Memory::own`] took, in its order. No buffer can be used any more.
    pub(crate) fn release(self) -> Vec<Aligned> {
        self.owned
    }

    pub(crate) fn get(&self, buffer: BufferId) -> Result<Region<'m>> {
        self.try_get(buffer)
            .ok_or_else(|| Error::internal(format!("buffer {buffer} has no memory when a step uses it")))
    }

    pub(crate) fn try_get(&self, buffer: BufferId) -> Option<Region<'m>> {
        self.regions.get(buffer as usize).copied().flatten()
    }

    /// Byte ranges of buffers, as slices: those that are read, those that are written.
    #[allow(clippy::type_complexity)]
    pub(crate) fn split(
        &mut self,
        read: &[(BufferId, Range<usize>)],
        written: &[(BufferId, Range<usize>)],
    ) -> Result<(Vec<&[u8]>, Vec<&mut [u8]>)> {
        let part = |(buffer, range): &(BufferId, Range<usize>)| {
            let region = self.get(*buffer)?.part(range.clone());
            region.map_err(|Outside| Error::internal(format!("a view of buffer {buffer} reaches outside of it")))
        };
        let inputs = read.iter().map(part).collect::<Result<Vec<_>>>()?;
        let outputs = written.iter().map(part).collect::<Result<Vec<_>>>()?;
        for (i, output) in outputs.iter().enumerate() {
            let others = inputs.iter().chain(outputs.iter().skip(i + 1));
            if !output.writable || others.into_iter().any(|other| other.overlaps(output)) {
                return Err(Error::internal("a library step writes what it reads, or what may only be read"));
            }
        }
        // SAFETY: the bytes live for 'm, are lent for as long as `self` is borrowed, and no written range overlaps another range.
        let slices =
            inputs.iter().map(|r| unsafe { std::slice::from_raw_parts(r.start.cast_const(), r.len) }).collect();
        let slices_mut = outputs.iter().map(|r| unsafe { std::slice::from_raw_parts_mut(r.start, r.len) }).collect();
        Ok((slices, slices_mut))
    }
}
