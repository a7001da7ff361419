//! Kernels for softgpu, the driver that runs them on the host's processor: the host's C++ compiler in NVRTC's place. For tests.
//!
//! A module is a shared object, made of `soft.cuh`, which supplies what CUDA adds to C++, the very text that NVRTC would get, and a table of
//! its kernels.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use douse_core::{Code, Error, Result};
use rayon::prelude::*;

use crate::cache::{Cache, Key};

const HEADER: &str = include_str!("soft.cuh");

/// Every operation rounds by itself, as on the device; integers wrap; nothing is assumed of how memory is typed.
const FLAGS: &[&str] = &[
    "-std=c++17",
    "-O1",
    "-w",
    "-shared",
    "-fPIC",
    "-fvisibility=hidden",
    "-fno-exceptions",
    "-fno-rtti",
    "-fno-math-errno",
    "-fno-strict-aliasing",
    "-fwrapv",
    "-ffp-contract=off",
];

/// Nothing but mathematics is called.
const LIBRARIES: &[&str] = &["-nostdlib", "-lm", "-lc"];

/// The C++ compiler: GCC, which the environment variable `DOUSE_CXX` may name.
#[derive(Clone, Debug)]
pub struct Compiler {
    name: String,
    /// What it says of itself.
    version: String,
    flags: Vec<String>,
}

/// A module to be.
#[derive(Clone, Debug)]
pub struct Source {
    /// CUDA C++.
    pub text: String,
    /// The names of the functions that can be launched.
    pub kernels: Vec<String>,
}

impl Compiler {
    /// Finds the compiler. The environment variable `DOUSE_SOFT_FLAGS` adds to its options: `-fsanitize=address`.
    ///
    /// # Errors
    /// `NotFound` where there is none, `NotSupported` where softgpu does not run.
    pub fn find() -> Result<Compiler> {
        if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
            return Err(Error::not_supported("the target soft is for tests, on Linux on x86-64 alone"));
        }
        let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        let name = variable("DOUSE_CXX").unwrap_or_else(|| "g++".to_owned());
        let missing = |why: String| {
            Error::new(
                Code::NotFound,
                format!(
                    "the target soft, which is for tests, needs GCC's C++ compiler, and {name} does not run: {why}"
                ),
            )
        };
        let said = Command::new(&name).arg("--version").output().map_err(|e| missing(e.to_string()))?;
        if !said.status.success() {
            return Err(missing(said.status.to_string()));
        }
        let version = String::from_utf8_lossy(&said.stdout).lines().next().unwrap_or_default().to_owned();
        let mut flags: Vec<String> = FLAGS.iter().map(|flag| (*flag).to_owned()).collect();
        flags.extend(processor().iter().map(|flag| (*flag).to_owned()));
        flags.extend(variable("DOUSE_SOFT_FLAGS").iter().flat_map(|all| all.split_whitespace()).map(str::to_owned));
        Ok(Compiler { name, version, flags })
    }

    /// Compiles sources side by side; what the cache holds is taken from it. Results are in the order of the sources.
    ///
    /// # Errors
    /// `Internal` for text that does not compile, with what the compiler says.
    pub fn compile_all(&self, sources: &[Source], cache: Option<&Cache>) -> Result<Vec<Vec<u8>>> {
        sources.par_iter().map(|source| self.compile_cached(source, cache)).collect()
    }

    fn compile_cached(&self, source: &Source, cache: Option<&Cache>) -> Result<Vec<u8>> {
        let text = complete(source);
        let Some(cache) = cache else { return self.compile(&text) };
        let key = Key::of(&["soft", &self.name, &self.version, &self.flags.join(" "), &text]);
        if let Some(code) = cache.get(&key) {
            return Ok(code);
        }
        let code = self.compile(&text)?;
        cache.put(&key, &code);
        Ok(code)
    }

    fn compile(&self, text: &str) -> Result<Vec<u8>> {
        let failed = |e: std::io::Error| Error::new(Code::AccessFailed, format!("{}: {e}", self.name));
        let object = Temporary::new();
        let mut child = Command::new(&self.name)
            .args(&self.flags)
            .args(["-x", "c++", "-", "-o"])
            .arg(&object.0)
            .args(LIBRARIES)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        if let Some(mut input) = child.stdin.take() {
            // A compiler that stops early says why below.
            let _ = input.write_all(text.as_bytes());
        }
        let output = child.wait_with_output().map_err(failed)?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(Error::internal(format!("{} does not compile the code for softgpu:\n{said}", self.name)));
        }
        std::fs::read(&object.0).map_err(failed)
    }
}

/// A file that goes when it is dropped: linkers write to nothing else.
struct Temporary(PathBuf);

impl Temporary {
    fn new() -> Temporary {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Temporary(std::env::temp_dir().join(format!("douse-soft-{}-{number}.so", std::process::id())))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// The text with what stands before and after it. A namespace without a name, so that the compiler keeps no function that is not used.
fn complete(source: &Source) -> String {
    let kernels: Vec<String> = source.kernels.iter().map(|name| format!("SOFT_KERNEL({name})")).collect();
    format!("{HEADER}\nnamespace {{\n{}\n}}\nSOFT_MODULE({})\n", source.text, kernels.join(" "))
}

/// Instructions that make a difference: without them, each fused multiplication and addition is a call.
fn processor() -> &'static [&'static str] {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("fma") && std::arch::is_x86_feature_detected!("f16c") {
        return &["-mfma", "-mf16c"];
    }
    &[]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_compile_says_why() {
        let Ok(compiler) = Compiler::find() else { return };
        let source =
            Source { text: "extern \"C\" __global__ void f(int *x) { *x = y; }".into(), kernels: vec!["f".into()] };
        let error = compiler.compile_all(&[source], None).unwrap_err();
        assert!(error.code == Code::Internal && error.message.contains("was not declared"), "{error}");
    }
}
