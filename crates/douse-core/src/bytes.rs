//! Bytes that are shared (a range of a mapped file or of memory) and bytes that are owned and aligned.

use crate::{Error, Result};
use memmap2::Mmap;
use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::sync::Arc;

/// A range of bytes that many can hold. Clones and slices share what they were made from.
#[derive(Clone)]
pub struct Bytes {
    source: Source,
    range: Range<usize>,
}

#[derive(Clone)]
enum Source {
    Mapped(Arc<Mmap>),
    Memory(Arc<[u8]>),
    Aligned(Arc<Aligned>),
}

impl Bytes {
    /// Maps a whole file. It must not be truncated while mapped: a later read past its end would stop the process.
    pub fn map(file: &std::fs::File) -> std::io::Result<Bytes> {
        // SAFETY: the map is private and read only. Another process that changes the file changes what is read, which
        // every reader of the bytes tolerates, as it checks each offset against the length before use.
        let map = unsafe { Mmap::map(file) }?;
        let range = 0..map.len();
        Ok(Bytes { source: Source::Mapped(Arc::new(map)), range })
    }

    /// The bytes from `start`, `len` of them, sharing the same source.
    ///
    /// # Errors
    /// When they do not lie within these bytes.
    pub fn slice(&self, start: usize, len: usize) -> Result<Bytes> {
        let end = start.checked_add(len).filter(|end| *end <= self.len());
        let Some(end) = end else {
            return Err(Error::invalid_program(format!(
                "the file is damaged: bytes {start}.. ({len} of them) are asked for where there are {}",
                self.len()
            )));
        };
        Ok(Bytes { source: self.source.clone(), range: self.range.start + start..self.range.start + end })
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let all: &[u8] = match &self.source {
            Source::Mapped(map) => map,
            Source::Memory(memory) => memory,
            Source::Aligned(memory) => memory,
        };
        all.get(self.range.clone()).unwrap_or_default()
    }
}

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(memory: Vec<u8>) -> Bytes {
        Bytes { range: 0..memory.len(), source: Source::Memory(memory.into()) }
    }
}

impl From<Aligned> for Bytes {
    fn from(memory: Aligned) -> Bytes {
        Bytes { range: 0..memory.len(), source: Source::Aligned(Arc::new(memory)) }
    }
}

impl From<Arc<[u8]>> for Bytes {
    fn from(memory: Arc<[u8]>) -> Bytes {
        Bytes { range: 0..memory.len(), source: Source::Memory(memory) }
    }
}

impl PartialEq for Bytes {
    fn eq(&self, other: &Bytes) -> bool {
        **self == **other
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.len())
    }
}

/// The alignment of the buffers that Douse allocates, in bytes: a cache line and a vector register.
pub const ALIGNMENT: usize = 64;

#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(64))]
struct Line([u8; ALIGNMENT]);

/// Owned bytes that begin at a multiple of [`ALIGNMENT`].
#[derive(Clone, Default)]
pub struct Aligned {
    lines: Vec<Line>,
    len: usize,
}

impl Aligned {
    /// That many zero bytes.
    ///
    /// # Errors
    /// Where there is not enough memory.
    pub fn zeros(len: usize) -> Result<Aligned> {
        let lines = bytemuck::allocation::try_zeroed_vec(len.div_ceil(ALIGNMENT)).map_err(|()| {
            Error::new(crate::Code::MemoryAllocationFailed, format!("there is no memory for {len} bytes"))
        })?;
        Ok(Aligned { lines, len })
    }

    /// A copy of these bytes.
    ///
    /// # Errors
    /// Where there is not enough memory.
    pub fn copy(bytes: &[u8]) -> Result<Aligned> {
        let mut aligned = Aligned::zeros(bytes.len())?;
        aligned.copy_from_slice(bytes);
        Ok(aligned)
    }

    /// Forgets what stands after the first `len` bytes.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }
}

impl Deref for Aligned {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        bytemuck::cast_slice(&self.lines).get(..self.len).unwrap_or_default()
    }
}

impl DerefMut for Aligned {
    fn deref_mut(&mut self) -> &mut [u8] {
        bytemuck::cast_slice_mut(&mut self.lines).get_mut(..self.len).unwrap_or_default()
    }
}

impl fmt::Debug for Aligned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.len)
    }
}
