//! Memory for intermediate results, kept from call to call.

use bytemuck::Pod;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, PoisonError};

/// A pool of buffers. What is taken goes back when dropped, so that running the same operations again allocates nothing.
#[derive(Debug, Default)]
pub struct Scratch {
    free: Mutex<Vec<Vec<u64>>>,
}

impl Scratch {
    pub fn new() -> Scratch {
        Scratch::default()
    }

    /// A buffer of `len` elements with arbitrary contents.
    pub fn take<T: Pod>(&self, len: usize) -> Buffer<'_, T> {
        let words = (len * size_of::<T>()).div_ceil(size_of::<u64>());
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        // The smallest that is large enough, else the largest, which then grows.
        let best = (0..free.len()).min_by_key(|&i| {
            let capacity = free[i].capacity();
            if capacity >= words { (0, capacity) } else { (1, usize::MAX - capacity) }
        });
        let mut buffer = best.map(|i| free.swap_remove(i)).unwrap_or_default();
        drop(free);
        if buffer.len() < words {
            buffer.resize(words, 0);
        }
        Buffer { words: buffer, len, pool: self, element: PhantomData }
    }

    /// A buffer of `len` zeros.
    pub fn zeros<T: Pod>(&self, len: usize) -> Buffer<'_, T> {
        let mut buffer = self.take::<T>(len);
        buffer.fill(T::zeroed());
        buffer
    }
}

/// A buffer on loan from a [`Scratch`].
#[derive(Debug)]
pub struct Buffer<'a, T: Pod> {
    words: Vec<u64>,
    len: usize,
    pool: &'a Scratch,
    element: PhantomData<T>,
}

impl<T: Pod> Deref for Buffer<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // The words may be more than asked for, and not a whole number of elements.
        let bytes: &[u8] = bytemuck::cast_slice(&self.words);
        bytemuck::cast_slice(&bytes[..self.len * size_of::<T>()])
    }
}

impl<T: Pod> DerefMut for Buffer<'_, T> {
    fn deref_mut(&mut self) -> &mut [T] {
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut self.words);
        bytemuck::cast_slice_mut(&mut bytes[..self.len * size_of::<T>()])
    }
}

impl<T: Pod> Drop for Buffer<'_, T> {
    fn drop(&mut self) {
        let words = std::mem::take(&mut self.words);
        self.pool.free.lock().unwrap_or_else(PoisonError::into_inner).push(words);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_used_again() {
        let scratch = Scratch::new();
        let first = scratch.take::<f32>(1000);
        let small = scratch.take::<u8>(3);
        let address = first.as_ptr() as usize;
        drop((first, small));
        let again = scratch.take::<u16>(1500);
        assert_eq!(again.as_ptr() as usize, address);
        assert_eq!(again.len(), 1500);
        drop(again);
        assert!(scratch.zeros::<f64>(10).iter().all(|&x| x == 0.0));
        assert_eq!(scratch.free.lock().unwrap().len(), 2);
    }
}
