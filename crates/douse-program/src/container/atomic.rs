//! Replaces a file all at once or not at all.

use douse_core::{Code, Error, Result};
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};

/// Removes the temporary file unless it has become the destination.
struct Temporary {
    path: PathBuf,
    kept: bool,
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.kept {
            // Nothing more can be done about a file that cannot be removed, and the first error matters more.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Lets `write` write a file beside `path`, syncs it to disk and renames it over `path`.
///
/// On any error what was at `path` stays as it was and the temporary file is removed. A symbolic link is followed, so
/// that its target is replaced; what is no regular file (`/dev/stdout`) is written to directly.
///
/// # Errors
/// Those of `write`, and `AccessFailed`; both with the path.
pub fn replace<T>(path: &Path, write: impl FnOnce(&mut dyn Write) -> Result<T>) -> Result<T> {
    replace_at(path, write).map_err(|e| e.at(format!("cannot write {}", path.display())))
}

fn failed(e: io::Error) -> Error {
    Error::new(Code::AccessFailed, e.to_string())
}

fn replace_at<T>(path: &Path, write: impl FnOnce(&mut dyn Write) -> Result<T>) -> Result<T> {
    let target = match std::fs::canonicalize(path) {
        Ok(target) => target,
        Err(e) if e.kind() == ErrorKind::NotFound => path.to_owned(),
        Err(e) => return Err(failed(e)),
    };
    let existing = std::fs::metadata(&target).ok();
    if existing.as_ref().is_some_and(|m| m.is_dir()) {
        return Err(failed(io::Error::from(ErrorKind::IsADirectory)));
    }
    if existing.as_ref().is_some_and(|m| !m.is_file()) {
        let file = OpenOptions::new().write(true).open(&target).map_err(failed)?;
        return fill(&file, write);
    }
    let (file, mut temporary) = create_beside(&target)?;
    let value = fill(&file, write)?;
    if let Some(existing) = existing {
        file.set_permissions(existing.permissions()).map_err(failed)?;
    }
    file.sync_all().map_err(failed)?;
    std::fs::rename(&temporary.path, &target).map_err(failed)?;
    temporary.kept = true;
    // Makes the rename itself durable. Some file systems cannot sync a directory; the file is whole either way.
    if let Some(Ok(folder)) = target.parent().map(File::open) {
        let _ = folder.sync_all();
    }
    Ok(value)
}

fn fill<T>(file: &File, write: impl FnOnce(&mut dyn Write) -> Result<T>) -> Result<T> {
    // Large pieces pass the buffer by.
    let mut out = BufWriter::new(file);
    let value = write(&mut out)?;
    out.flush().map_err(failed)?;
    Ok(value)
}

fn create_beside(target: &Path) -> Result<(File, Temporary)> {
    let name = target.file_name().ok_or_else(|| failed(io::Error::from(ErrorKind::InvalidFilename)))?;
    let process = std::process::id();
    let mut attempt = 0u32;
    loop {
        let mut temporary = name.to_owned();
        temporary.push(format!(".{process}-{attempt}.tmp"));
        let path = target.with_file_name(temporary);
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            Ok(file) => return Ok((file, Temporary { path, kept: false })),
            // Another thread's, or left by a process that was killed.
            Err(e) if e.kind() == ErrorKind::AlreadyExists && attempt < 1000 => attempt += 1,
            Err(e) => return Err(failed(e)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("douse-atomic-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder).unwrap();
        entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn a_failure_leaves_the_old_file_alone() {
        let folder = folder("failure");
        let path = folder.join("a.pte");
        std::fs::write(&path, "old").unwrap();
        let error = replace(&path, |out| {
            out.write_all(&[0; 100_000]).unwrap();
            assert_eq!(names(&folder).len(), 2);
            Err::<(), _>(failed(io::Error::from(ErrorKind::StorageFull)))
        })
        .unwrap_err();
        assert!(error.message.contains("a.pte"), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        assert_eq!(names(&folder), ["a.pte"]);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn success_replaces_it() {
        let folder = folder("success");
        let path = folder.join("a.pte");
        std::fs::write(&path, "old").unwrap();
        replace(&path, |out| out.write_all(b"new").map_err(failed)).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
        assert_eq!(names(&folder), ["a.pte"]);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_full_device_is_an_error() {
        let full = Path::new("/dev/full");
        let error = replace(full, |out| out.write_all(&[1; 100]).map_err(failed)).unwrap_err();
        assert_eq!(error.code, Code::AccessFailed);
        assert!(full.exists());
    }

    #[cfg(unix)]
    #[test]
    fn a_symbolic_link_keeps_pointing() {
        let folder = folder("link");
        let (target, link) = (folder.join("target"), folder.join("link"));
        std::fs::write(&target, "old").unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        replace(&link, |out| out.write_all(b"new").map_err(failed)).unwrap();
        assert!(link.is_symlink());
        assert_eq!(std::fs::read(&target).unwrap(), b"new");
        std::fs::remove_dir_all(folder).unwrap();
    }
}
