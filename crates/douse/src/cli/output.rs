//! Where results go: files, whole or not at all, or standard output.

use std::io::Write;
use std::path::Path;

use douse::{Code, Error, Result};
use serde::Serialize;

/// Writes JSON to a file, or to standard output where the path is `-`.
pub fn json<T: Serialize>(path: &Path, value: &T) -> Result<()> {
    let mut text = serde_json::to_string_pretty(value).map_err(|e| Error::internal(e.to_string()))?;
    text.push('\n');
    bytes(path, text.as_bytes())
}

/// Writes a file whole or not at all; `-` is standard output.
pub fn bytes(path: &Path, bytes: &[u8]) -> Result<()> {
    let failed = |e: std::io::Error| Error::new(Code::AccessFailed, e.to_string());
    if is_stdout(path) {
        return std::io::stdout().write_all(bytes).map_err(failed);
    }
    douse_program::container::replace(path, |out| out.write_all(bytes).map_err(failed))
}

pub fn is_stdout(path: &Path) -> bool {
    path == Path::new("-")
}
