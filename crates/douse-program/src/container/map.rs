//! Maps the files to be read.

use douse_core::bytes::Bytes;
use douse_core::{Code, Error, Result};
use std::path::Path;

/// Maps a file for reading.
///
/// # Errors
/// `AccessFailed` when it cannot be opened or mapped, or is not a regular file.
pub fn map(path: &Path) -> Result<Bytes> {
    let failed = |e: String| Error::new(Code::AccessFailed, format!("cannot read {}: {e}", path.display()));
    let file = std::fs::File::open(path).map_err(|e| failed(e.to_string()))?;
    if !file.metadata().map_err(|e| failed(e.to_string()))?.is_file() {
        return Err(failed("it is not a regular file".to_owned()));
    }
    Bytes::map(&file).map_err(|e| failed(e.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_file_is_refused() {
        let folder = std::env::temp_dir();
        for (path, reason) in [(folder.clone(), "not a regular file"), (folder.join("no such file"), "cannot read")] {
            let error = map(&path).unwrap_err();
            assert_eq!(error.code, Code::AccessFailed);
            assert!(error.message.contains(reason), "{error}");
        }
    }
}
