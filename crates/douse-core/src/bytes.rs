//! Bytes that are shared (a range of a mapped file or of memory) and bytes that are owned and aligned.

use crate::{Code, Error, Result};
use memmap2::Mmap;
use std::fmt;
use std::fs::{self, File};
use std::ops::{Deref, DerefMut, Range};
use std::path::Path;
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
    pub fn map(file: &File) -> std::io::Result<Bytes> {
        // SAFETY: the map is private and read only. Another process that changes the file changes what is read, which
        // every reader of the bytes tolerates, as it checks each offset against the length before use.
        let map = unsafe { Mmap::map(file) }?;
        let range = 0..map.len();
        Ok(Bytes { source: Source::Mapped(Arc::new(map)), range })
    }

    /// Maps the file at a path, which may be empty.
    ///
    /// # Errors
    /// `AccessFailed` when it cannot be opened or mapped, or is no regular file: a pipe has no size, and opening one waits for a writer.
    pub fn open(path: &Path) -> Result<Bytes> {
        let failed = |e: String| Error::new(Code::AccessFailed, format!("cannot read {}: {e}", path.display()));
        let metadata = fs::metadata(path).map_err(|e| failed(e.to_string()))?;
        if metadata.is_dir() {
            return Err(failed("it is a directory, give the file itself".to_owned()));
        }
        if !metadata.is_file() {
            return Err(failed("it is a pipe or a device, give a regular file".to_owned()));
        }
        let file = File::open(path).map_err(|e| failed(e.to_string()))?;
        if file.metadata().map_err(|e| failed(e.to_string()))?.len() == 0 {
            // An empty file cannot be mapped.
            return Ok(Vec::new().into());
        }
        Bytes::map(&file).map_err(|e| failed(e.to_string()))
    }

    /// That many zero bytes.
    ///
    /// # Errors
    /// Where there is not enough memory.
    pub fn zeros(len: u64) -> Result<Bytes> {
        // What no address reaches is more than there is memory for.
        Ok(Aligned::zeros(usize::try_from(len).unwrap_or(usize::MAX))?.into())
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
        let lines = bytemuck::allocation::try_zeroed_vec(len.div_ceil(ALIGNMENT))
            .map_err(|()| Error::new(Code::MemoryAllocationFailed, format!("there is no memory for {len} bytes")))?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_zeros_than_memory_are_refused() {
        assert_eq!(&*Bytes::zeros(3).unwrap(), [0; 3]);
        for len in [1 << 60, 1 << 62, i64::MAX as u64, u64::MAX] {
            assert_eq!(Bytes::zeros(len).unwrap_err().code, Code::MemoryAllocationFailed, "{len}");
        }
    }

    #[test]
    fn only_regular_files_are_opened() {
        let folder = std::env::temp_dir().join(format!("douse-bytes-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (empty, full) = (folder.join("empty"), folder.join("full"));
        fs::write(&empty, "").unwrap();
        fs::write(&full, "abc").unwrap();
        assert_eq!((&*Bytes::open(&empty).unwrap(), &*Bytes::open(&full).unwrap()), (&b""[..], &b"abc"[..]));
        let refused = |path: &Path, reason: &str| {
            let error = Bytes::open(path).unwrap_err();
            assert_eq!(error.code, Code::AccessFailed);
            assert!(error.message.starts_with(&format!("cannot read {}: ", path.display())), "{error}");
            assert!(error.message.contains(reason), "{error}");
        };
        refused(&folder, "a directory");
        refused(&folder.join("missing"), "");
        #[cfg(unix)]
        {
            refused(Path::new("/dev/null"), "a device");
            let pipe = folder.join("pipe");
            if std::process::Command::new("mkfifo").arg(&pipe).status().is_ok_and(|s| s.success()) {
                refused(&pipe, "a pipe");
            }
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}
