//! Owned bytes at an address that suits every dtype and vector width.

use std::fmt;
use std::ops::{Deref, DerefMut};

/// The address of [`AlignedBytes`] is a multiple of this: a cache line, and the widest vector register.
pub const ALIGNMENT: usize = 64;

/// Bytes that begin at a multiple of [`ALIGNMENT`].
#[derive(Default)]
pub struct AlignedBytes {
    /// Holds the bytes from `start`; a vector of bytes may begin anywhere, so it is that much longer.
    storage: Vec<u8>,
    start: usize,
    len: usize,
}

impl AlignedBytes {
    /// That many zero bytes; memory that is never touched costs nothing.
    pub fn zeroed(len: usize) -> AlignedBytes {
        if len == 0 {
            return AlignedBytes::default();
        }
        let storage = vec![0u8; len.saturating_add(ALIGNMENT - 1)];
        // `align_offset` may decline, which it does for no real allocation; the start then stays unaligned.
        let start = storage.as_ptr().align_offset(ALIGNMENT);
        AlignedBytes { start: if start < ALIGNMENT { start } else { 0 }, storage, len }
    }

    /// As [`zeroed`](AlignedBytes::zeroed), or `None` where there is not that much memory.
    pub fn try_zeroed(len: usize) -> Option<AlignedBytes> {
        // Asking first and allocating zeroed pages after keeps untouched memory free.
        let mut probe = Vec::<u8>::new();
        probe.try_reserve_exact(len.checked_add(ALIGNMENT - 1)?).ok()?;
        drop(probe);
        Some(AlignedBytes::zeroed(len))
    }
}

impl Deref for AlignedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.storage.get(self.start..self.start + self.len).unwrap_or_default()
    }
}

impl DerefMut for AlignedBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.storage.get_mut(self.start..self.start + self.len).unwrap_or_default()
    }
}

impl From<&[u8]> for AlignedBytes {
    fn from(bytes: &[u8]) -> AlignedBytes {
        let mut aligned = AlignedBytes::zeroed(bytes.len());
        aligned.copy_from_slice(bytes);
        aligned
    }
}

/// A clone has an allocation of its own, so the start is found anew.
impl Clone for AlignedBytes {
    fn clone(&self) -> AlignedBytes {
        AlignedBytes::from(&**self)
    }
}

impl PartialEq for AlignedBytes {
    fn eq(&self, other: &AlignedBytes) -> bool {
        **self == **other
    }
}

impl fmt::Debug for AlignedBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_and_moves_stay_aligned() {
        for len in [1, 63, 64, 1000] {
            let mut bytes = AlignedBytes::zeroed(len);
            bytes[len - 1] = 7;
            let moved = vec![bytes.clone(), bytes];
            for bytes in &moved {
                assert_eq!(bytes.as_ptr().align_offset(ALIGNMENT), 0);
                assert_eq!((bytes.len(), bytes[len - 1]), (len, 7));
            }
        }
        assert!(AlignedBytes::zeroed(0).is_empty());
        assert!(AlignedBytes::try_zeroed(usize::MAX - 5).is_none());
    }
}
