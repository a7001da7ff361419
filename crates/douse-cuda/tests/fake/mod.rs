//! A driver of a test's own, on machines without a GPU: softgpu, with the kernels of `kernels.cu`.

#![allow(dead_code)]

use std::collections::BTreeMap;
use std::ffi::{CString, OsString, c_char};
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use douse_cuda::soft::{Compiler, Source};

const KERNELS: &str = include_str!("kernels.cu");

/// A driver, and its log. Each is a file of its own, so that tests do not share what it knows.
pub struct Fake {
    folder: PathBuf,
}

impl Fake {
    /// For the kernels of `kernels.cu`, with options that softgpu describes: `version=12000`. It keeps a log. `None`, with a note, where there
    /// is no C++ compiler.
    pub fn new(options: &[&str]) -> Option<Fake> {
        if compiled().is_empty() {
            return None;
        }
        let fake = Fake::bare();
        fake.configure(&format!("capability=90 log={} {}", fake.log_file().display(), options.join(" ")));
        Some(fake)
    }

    /// For programs that are compiled for the target `soft`.
    pub fn bare() -> Fake {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("douse-fake-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let fake = Fake { folder };
        let built = std::env::current_exe().unwrap().with_file_name("libcuda.so");
        std::fs::copy(&built, fake.library()).unwrap_or_else(|e| panic!("{}: {e}", built.display()));
        fake
    }

    /// Takes a function out of the driver: its file names another of the same length in its place. Before the driver is opened.
    pub fn without(self, function: &str) -> Fake {
        let mut bytes = std::fs::read(self.library()).unwrap();
        let name = [&[0], function.as_bytes(), &[0]].concat();
        let places: Vec<usize> = (0..bytes.len() - name.len()).filter(|at| bytes[*at..].starts_with(&name)).collect();
        assert!(!places.is_empty(), "softgpu has no {function}");
        places.iter().for_each(|at| bytes[at + 1] = b'_');
        // Another file: the one before may be mapped.
        std::fs::remove_file(self.library()).unwrap();
        std::fs::write(self.library(), bytes).unwrap();
        self
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

    /// Changes options: `fail=cuMemAlloc_v2:1:2`.
    pub fn configure(&self, options: &str) {
        let options = CString::new(options).unwrap();
        // SAFETY: softgpu's function takes text that ends in 0. The library is kept open, as drivers are.
        unsafe {
            let library = libloading::Library::new(self.library()).unwrap();
            let configure: unsafe extern "C" fn(*const c_char) -> i32 = *library.get(b"softgpu_configure\0").unwrap();
            assert_eq!(configure(options.as_ptr()), 0, "{options:?}");
            std::mem::forget(library);
        }
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

    /// What was made and is not gone, in words.
    pub fn left(&self) -> String {
        self.told(b"softgpu_left\0")
    }

    /// Checks that everything that was made is gone.
    pub fn assert_clean(&self) {
        assert_eq!(self.left(), "", "{:?}", self.log());
    }

    /// How often each of the driver's functions was called.
    pub fn calls(&self) -> BTreeMap<String, u64> {
        let calls = self.told(b"softgpu_calls\0");
        let each = calls.lines().filter_map(|line| line.split_once(' '));
        each.map(|(call, count)| (call.to_owned(), count.parse().unwrap())).collect()
    }

    /// What one of softgpu's own functions says.
    fn told(&self, function: &[u8]) -> String {
        let mut text = [0u8; 10000];
        // SAFETY: softgpu's functions of this type write at most that many bytes.
        let len = unsafe {
            let library = libloading::Library::new(self.library()).unwrap();
            let tell: unsafe extern "C" fn(*mut u8, usize) -> usize = *library.get(function).unwrap();
            tell(text.as_mut_ptr(), text.len())
        };
        String::from_utf8_lossy(&text[..len]).into_owned()
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// The module of `kernels.cu`. (Of no bytes where there is no compiler: no test gets that far.)
pub fn code() -> Vec<u8> {
    compiled().to_vec()
}

fn compiled() -> &'static [u8] {
    static CODE: OnceLock<Vec<u8>> = OnceLock::new();
    CODE.get_or_init(|| {
        let compiler = match Compiler::find() {
            Ok(compiler) => compiler,
            Err(error) => {
                println!("skipped: {error}");
                return Vec::new();
            }
        };
        let names = KERNELS.lines().filter_map(|line| line.split_once("__global__ void ")?.1.split('(').next());
        let source = Source { text: KERNELS.to_owned(), kernels: names.map(str::to_owned).collect() };
        compiler.compile_all(&[source], None).unwrap().remove(0)
    })
}
