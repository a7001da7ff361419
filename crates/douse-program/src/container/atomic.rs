//! Replaces a file all at once or not at all.

use douse_core::{Code, Error, Result};
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};

/// A file beside the destination that is to become it.
struct Temporary {
    file: File,
    target: PathBuf,
    /// Its name, while it has one; it is removed unless it becomes the destination.
    path: Option<PathBuf>,
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            // Nothing more can be done about a file that cannot be removed, and the first error matters more.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Lets `write` write a file beside `path`, syncs it to disk and renames it over `path`.
///
/// On any error what was at `path` stays as it was and the temporary file is removed. Where the system has files without a
/// name (Linux), a process that is killed while it writes leaves nothing behind either. A symbolic link is followed, so that
/// its target is replaced; what is no regular file (`/dev/stdout`) is written to directly.
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
    let mut temporary = Temporary::create(target)?;
    let value = fill(&temporary.file, write)?;
    if let Some(existing) = existing {
        temporary.file.set_permissions(existing.permissions()).map_err(failed)?;
    }
    temporary.file.sync_all().map_err(failed)?;
    temporary.rename().map_err(failed)?;
    // Makes the rename itself durable. Some file systems cannot sync a directory; the file is whole either way.
    if let Some(Ok(folder)) = temporary.target.parent().map(File::open) {
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

impl Temporary {
    fn create(target: PathBuf) -> Result<Temporary> {
        if target.file_name().is_none() {
            return Err(failed(io::Error::from(ErrorKind::InvalidFilename)));
        }
        if let Some(file) = nameless::create(&target) {
            return Ok(Temporary { file, target, path: None });
        }
        let create = |path: &Path| OpenOptions::new().write(true).create_new(true).open(path);
        let (path, file) = free_name(&target, create).map_err(failed)?;
        Ok(Temporary { file, target, path: Some(path) })
    }

    fn rename(&mut self) -> io::Result<()> {
        let path = match self.path.take() {
            Some(path) => path,
            None => free_name(&self.target, |path| nameless::link(&self.file, path))?.0,
        };
        let path = self.path.insert(path);
        std::fs::rename(path, &self.target)?;
        self.path = None;
        Ok(())
    }
}

/// Lets `create` make a file beside `target`, under the first name that is free. The name is short: the target's own may be
/// as long as names can be.
fn free_name<T>(target: &Path, create: impl Fn(&Path) -> io::Result<T>) -> io::Result<(PathBuf, T)> {
    let process = std::process::id();
    let mut attempt = 0u32;
    loop {
        let path = target.with_file_name(format!(".douse-{process}-{attempt}.tmp"));
        match create(&path) {
            Ok(made) => return Ok((path, made)),
            // Another thread's, or left by a process that was killed.
            Err(e) if e.kind() == ErrorKind::AlreadyExists && attempt < 1000 => attempt += 1,
            Err(e) => return Err(e),
        }
    }
}

/// Files that have no name until they are whole.
#[cfg(target_os = "linux")]
mod nameless {
    use std::ffi::CString;
    use std::fs::{File, OpenOptions};
    use std::io;
    use std::os::fd::AsRawFd;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::OpenOptionsExt;
    use std::path::Path;

    /// Where a file without a name can be found to be given one.
    const FILES: &str = "/proc/self/fd";

    /// `None` where the file system has no such files.
    pub fn create(target: &Path) -> Option<File> {
        let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        if !Path::new(FILES).exists() {
            return None;
        }
        OpenOptions::new().write(true).custom_flags(libc::O_TMPFILE).mode(0o666).open(folder).ok()
    }

    pub fn link(file: &File, path: &Path) -> io::Result<()> {
        let file = CString::new(format!("{FILES}/{}", file.as_raw_fd()))?;
        let path = CString::new(path.as_os_str().as_bytes())?;
        // `std::fs::hard_link` would link what stands in the folder of files, which is a symbolic link, and not what it leads to.
        // SAFETY: both are strings that end in a zero byte and outlive the call, which keeps neither.
        let failed = unsafe {
            libc::linkat(libc::AT_FDCWD, file.as_ptr(), libc::AT_FDCWD, path.as_ptr(), libc::AT_SYMLINK_FOLLOW)
        };
        if failed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

#[cfg(not(target_os = "linux"))]
mod nameless {
    use std::fs::File;
    use std::io::{self, ErrorKind};
    use std::path::Path;

    pub fn create(_: &Path) -> Option<File> {
        None
    }

    pub fn link(_: &File, _: &Path) -> io::Result<()> {
        Err(ErrorKind::Unsupported.into())
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

    #[test]
    fn the_longest_name_and_every_byte_are_kept() {
        let folder = folder("long");
        let name = "n".repeat(255);
        let bytes: Vec<u8> = (0..100_000u32).map(|i| i as u8).collect();
        for _ in 0..2 {
            replace(&folder.join(&name), |out| out.write_all(&bytes).map_err(failed)).unwrap();
            assert_eq!(std::fs::read(folder.join(&name)).unwrap(), bytes);
            assert_eq!(names(&folder), std::slice::from_ref(&name));
        }
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn many_writers_of_one_file_leave_one_whole_file() {
        let folder = folder("many");
        let path = folder.join("a.pte");
        std::thread::scope(|scope| {
            for byte in 0..8u8 {
                let path = &path;
                scope.spawn(move || {
                    for _ in 0..20 {
                        replace(path, |out| out.write_all(&[byte; 50_000]).map_err(failed)).unwrap();
                        let found = std::fs::read(path).unwrap();
                        assert!(found.len() == 50_000 && found.iter().all(|b| *b == found[0]));
                    }
                });
            }
        });
        assert_eq!(names(&folder), ["a.pte"]);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_file_with_a_name_becomes_the_destination_too() {
        let folder = folder("named");
        let target = folder.join("a.pte");
        let create = |path: &Path| OpenOptions::new().write(true).create_new(true).open(path);
        for kept in [false, true] {
            let (path, file) = free_name(&target, create).unwrap();
            let mut temporary = Temporary { file, target: target.clone(), path: Some(path) };
            assert_eq!(names(&folder).len(), 1);
            if kept {
                temporary.rename().unwrap();
            }
        }
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
