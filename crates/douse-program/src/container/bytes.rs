//! Bytes of a file: shared, mapped or owned, never copied.

use douse_core::{Code, Error, Result};
use std::fmt;
use std::ops::{Deref, Range};
use std::path::Path;
use std::sync::Arc;

enum Source {
    Owned(Vec<u8>),
    Mapped(memmap2::Mmap),
}

/// A range of a mapped file or of a buffer. Cloning and slicing share the memory and keep it alive.
#[derive(Clone)]
pub struct Bytes {
    source: Arc<Source>,
    range: Range<usize>,
}

impl Bytes {
    /// Maps a file for reading.
    ///
    /// # Errors
    /// `AccessFailed` when it cannot be opened or mapped, or is not a regular file.
    pub fn map(path: &Path) -> Result<Bytes> {
        let failed = |e: std::io::Error| Error::new(Code::AccessFailed, format!("cannot read {}: {e}", path.display()));
        let file = std::fs::File::open(path).map_err(failed)?;
        if !file.metadata().map_err(failed)?.is_file() {
            let message = format!("cannot read {}: not a regular file", path.display());
            return Err(Error::new(Code::AccessFailed, message));
        }
        // SAFETY: the mapping is private and read-only. As with every mapped file, whoever changes or truncates it in
        // place while it is mapped changes what is read; our own writer replaces files by renaming and never does.
        let map = unsafe { memmap2::Mmap::map(&file) }.map_err(failed)?;
        let range = 0..map.len();
        Ok(Bytes { source: Arc::new(Source::Mapped(map)), range })
    }

    /// The part `range` of these bytes, or nothing where it runs past their end.
    pub fn slice(&self, range: Range<usize>) -> Option<Bytes> {
        if range.start > range.end || range.end > self.len() {
            return None;
        }
        let start = self.range.start;
        Some(Bytes { source: self.source.clone(), range: start + range.start..start + range.end })
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let all: &[u8] = match &*self.source {
            Source::Owned(bytes) => bytes,
            Source::Mapped(map) => map,
        };
        // The range was checked when it was made.
        all.get(self.range.clone()).unwrap_or_default()
    }
}

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Bytes {
        let range = 0..bytes.len();
        Bytes { source: Arc::new(Source::Owned(bytes)), range }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_of_slices_stay_inside() {
        let all = Bytes::from((0..10).collect::<Vec<u8>>());
        let middle = all.slice(2..8).unwrap();
        assert_eq!(&*middle, &[2, 3, 4, 5, 6, 7]);
        assert_eq!(&*middle.slice(4..6).unwrap(), &[6, 7]);
        assert!(middle.slice(4..7).is_none());
        #[expect(clippy::reversed_empty_ranges)]
        let reversed = middle.slice(3..2);
        assert!(reversed.is_none());
    }

    #[test]
    fn a_directory_is_refused() {
        let error = Bytes::map(&std::env::temp_dir()).unwrap_err();
        assert_eq!(error.code, Code::AccessFailed);
    }
}
