//! Where results go: files, whole or not at all, or standard output.

use std::fmt::Display;
use std::fs::canonicalize;
use std::io::{ErrorKind, Write, stderr, stdout};
use std::path::{Path, PathBuf};

use douse::{Code, Error, Result};
use serde::Serialize;

use super::failure::{Done, Failure};

/// Prints a line, or several, to standard output.
///
/// # Errors
/// `Closed` where nobody reads any more, `No` where it cannot be written for another reason.
pub fn line(text: impl Display) -> Done {
    writeln!(stdout(), "{text}").map_err(not_printed)
}

/// Prints a line to standard error. Nothing is left to do where that fails.
pub fn note(text: impl Display) {
    let _ = writeln!(stderr(), "{text}");
}

fn not_printed(error: std::io::Error) -> Failure {
    match error.kind() {
        ErrorKind::BrokenPipe => Failure::Closed,
        _ => Failure::No(format!("cannot write to standard output: {error}")),
    }
}

/// Writes JSON to a file, or to standard output where the path is `-`.
pub fn json<T: Serialize>(path: &Path, value: &T) -> Done {
    let text = serde_json::to_string_pretty(value).map_err(|e| Error::internal(e.to_string()))?;
    if is_stdout(path) {
        return line(text);
    }
    Ok(bytes(path, format!("{text}\n").as_bytes())?)
}

/// Writes a file whole or not at all.
pub fn bytes(path: &Path, bytes: &[u8]) -> Result<()> {
    douse_program::container::replace(path, |out| {
        out.write_all(bytes).map_err(|e| Error::new(Code::AccessFailed, e.to_string()))
    })
}

pub fn is_stdout(path: &Path) -> bool {
    path == Path::new("-")
}

/// Refuses to write a file over one that the command reads.
pub fn keep(path: &Path, inputs: &[PathBuf]) -> Done {
    let Ok(target) = canonicalize(path) else { return Ok(()) };
    match inputs.iter().find(|input| canonicalize(input).is_ok_and(|input| input == target)) {
        Some(input) => Err(Failure::Usage(format!("{} would be written over {}", path.display(), input.display()))),
        None => Ok(()),
    }
}
