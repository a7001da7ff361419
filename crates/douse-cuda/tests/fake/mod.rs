//! Builds the driver of `driver.c`, for tests on machines without a GPU.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// A driver of a test's own, and its log.
pub struct Fake {
    folder: PathBuf,
}

impl Fake {
    /// With definitions that `driver.c` describes: `VERSION=12000`. `None`, with a note, where there is no C compiler.
    pub fn new(definitions: &[&str]) -> Option<Fake> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("douse-fake-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let fake = Fake { folder };
        let source = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../douse-cuda/tests/fake/driver.c");
        let built = Command::new("gcc")
            .args(["-shared", "-fPIC", "-O1", "-w", "-pthread", "-o"])
            .arg(fake.library())
            .arg(format!("-DLOG=\"{}\"", fake.log_file().display()))
            .args(definitions.iter().map(|definition| format!("-D{definition}")))
            .arg(source)
            .output();
        match built {
            Ok(output) if output.status.success() => Some(fake),
            Ok(output) => panic!("{}", String::from_utf8_lossy(&output.stderr)),
            Err(error) => {
                println!("skipped: there is no gcc ({error})");
                None
            }
        }
    }

    fn library(&self) -> PathBuf {
        self.folder.join("libcuda.so.1")
    }

    fn log_file(&self) -> PathBuf {
        self.folder.join("log")
    }

    /// What a driver is opened as.
    pub fn names(&self) -> Vec<OsString> {
        vec![self.library().into_os_string()]
    }

    /// The calls so far.
    pub fn log(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.log_file()).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// How many lines of the log begin with this word.
    pub fn count(&self, word: &str) -> usize {
        self.log().iter().filter(|line| line.split(' ').next() == Some(word)).count()
    }

    /// Checks that everything that was made is gone.
    pub fn assert_clean(&self) {
        let pairs = [
            ("retain", "release"),
            ("alloc", "free"),
            ("pin", "unpin"),
            ("stream", "unstream"),
            ("event", "unevent"),
            ("module", "unmodule"),
            ("graph", "ungraph"),
            ("exec", "unexec"),
        ];
        for (made, gone) in pairs {
            assert_eq!(self.count(made), self.count(gone), "{made} and {gone}: {:?}", self.log());
        }
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
