//! NVRTC: CUDA C++ to cubins and PTX, on any machine.

use std::ffi::{CString, OsString, c_char, c_int, c_void};

use douse_core::{Code, Error, Result};
use rayon::prelude::*;

use crate::arch::{Architecture, Form};
use crate::cache::{Cache, Key};
use crate::driver::Version;
use crate::find::{Wanted, candidates};
use crate::library::{Opened, entry_points, open_beside, open_first};

const ADVICE: &str = "Lowering for a GPU needs NVRTC 12.8 or later, NVIDIA's compiler library. It is part of the CUDA toolkit, and a Python \
                      package of its own: pip install nvidia-cuda-nvrtc. If it lies elsewhere, name the file in DOUSE_NVRTC.";

/// The Python packages are `nvidia-cuda-nvrtc` (13 and later) and `nvidia-cuda-nvrtc-cu12`.
const WANTED: Wanted = Wanted {
    variable: "DOUSE_NVRTC",
    names: if cfg!(windows) {
        &["nvrtc64_130_0.dll", "nvrtc64_120_0.dll"]
    } else {
        &["libnvrtc.so.13", "libnvrtc.so.12"]
    },
    packages: &["nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib"],
};

/// The oldest NVRTC that knows every architecture that Douse emits for.
const OLDEST: Version = Version { major: 12, minor: 8 };

/// `NVRTC_ERROR_OUT_OF_MEMORY`, `NVRTC_ERROR_COMPILATION`
const OUT_OF_MEMORY: c_int = 1;
const COMPILATION: c_int = 6;

type RawProgram = *mut c_void;

entry_points! {
    #[allow(non_snake_case)]
    Table -> c_int;

    nvrtcVersion = "nvrtcVersion"(*mut c_int, *mut c_int);
    nvrtcGetNumSupportedArchs = "nvrtcGetNumSupportedArchs"(*mut c_int);
    nvrtcGetSupportedArchs = "nvrtcGetSupportedArchs"(*mut c_int);
    nvrtcCreateProgram = "nvrtcCreateProgram"(
        *mut RawProgram, *const c_char, *const c_char, c_int, *const *const c_char, *const *const c_char
    );
    nvrtcDestroyProgram = "nvrtcDestroyProgram"(*mut RawProgram);
    nvrtcCompileProgram = "nvrtcCompileProgram"(RawProgram, c_int, *const *const c_char);
    nvrtcGetCUBINSize = "nvrtcGetCUBINSize"(RawProgram, *mut usize);
    nvrtcGetCUBIN = "nvrtcGetCUBIN"(RawProgram, *mut c_char);
    nvrtcGetPTXSize = "nvrtcGetPTXSize"(RawProgram, *mut usize);
    nvrtcGetPTX = "nvrtcGetPTX"(RawProgram, *mut c_char);
    nvrtcGetProgramLogSize = "nvrtcGetProgramLogSize"(RawProgram, *mut usize);
    nvrtcGetProgramLog = "nvrtcGetProgramLog"(RawProgram, *mut c_char);
}

/// NVRTC, open.
pub struct Nvrtc {
    table: Table,
    version: Version,
    name: OsString,
}

/// A piece of CUDA C++ and what becomes of it.
#[derive(Clone, Debug)]
pub struct Source {
    /// A file name for messages and debuggers: `kernels_0.cu`.
    pub name: String,
    pub text: String,
    pub architecture: Architecture,
    /// NVRTC's options, without the architecture's: `--std=c++17`.
    pub options: Vec<String>,
}

impl Nvrtc {
    /// Opens the NVRTC that `DOUSE_NVRTC` names, else one that the system finds, of a CUDA toolkit, or of a Python package.
    ///
    /// # Errors
    /// `NotFound` where there is none, with what was tried; `NotSupported` where it is too old.
    pub fn open() -> Result<Nvrtc> {
        Nvrtc::open_as(&candidates(&WANTED))
    }

    /// The same from the first of these files that is there.
    ///
    /// # Errors
    /// As [`Nvrtc::open`].
    pub fn open_as(names: &[OsString]) -> Result<Nvrtc> {
        let Opened { library, name } = open_first("NVRTC", names, ADVICE)?;
        // It opens this one by name when it compiles, and the Python packages before 13.1 do not say that it lies beside.
        open_beside(&name, |file| file.starts_with("libnvrtc-builtins.so."));
        let old = |what: &str| Error::not_supported(format!("{} is too old: {what}. {ADVICE}", name.display()));
        let table = Table::load(library).map_err(|symbol| old(&format!("it has no {symbol}")))?;
        let (mut major, mut minor) = (0, 0);
        // SAFETY: the pointers are to variables.
        let status = unsafe { (table.nvrtcVersion)(&raw mut major, &raw mut minor) };
        check("nvrtcVersion", status)?;
        let version = Version { major: major.unsigned_abs(), minor: minor.unsigned_abs() };
        if version < OLDEST {
            return Err(old(&format!("it is version {version}")));
        }
        Ok(Nvrtc { table, version, name })
    }

    pub fn version(&self) -> Version {
        self.version
    }

    /// The file it was loaded from, as it was asked for.
    pub fn name(&self) -> &OsString {
        &self.name
    }

    /// The compute capabilities that it compiles for: 90 for 9.0.
    ///
    /// # Errors
    /// `Internal` only.
    pub fn capabilities(&self) -> Result<Vec<u32>> {
        let mut count = 0;
        // SAFETY: the pointer is to a variable.
        let status = unsafe { (self.table.nvrtcGetNumSupportedArchs)(&raw mut count) };
        check("nvrtcGetNumSupportedArchs", status)?;
        let mut all = vec![0; usize::try_from(count).unwrap_or(0)];
        // SAFETY: there is room for as many as it said.
        let status = unsafe { (self.table.nvrtcGetSupportedArchs)(all.as_mut_ptr()) };
        check("nvrtcGetSupportedArchs", status)?;
        Ok(all.into_iter().map(c_int::unsigned_abs).collect())
    }

    /// Refuses an architecture that it does not compile for.
    ///
    /// # Errors
    /// `NotSupported`, listing those that it does.
    pub fn check(&self, architecture: Architecture) -> Result<()> {
        let all = self.capabilities()?;
        if all.contains(&(architecture.major * 10 + architecture.minor)) {
            return Ok(());
        }
        let all: Vec<String> = all.iter().map(|number| format!("sm_{number}")).collect();
        Err(Error::not_supported(format!(
            "NVRTC {} ({}) does not compile for {architecture}; it does for {}",
            self.version,
            self.name.display(),
            all.join(", ")
        )))
    }

    /// Compiles sources side by side, each at most once for all: what the cache holds is taken from it. Results are in the order of the
    /// sources: cubins, or PTX where the architecture says so.
    ///
    /// # Errors
    /// As [`Nvrtc::compile`], for the first source that fails.
    pub fn compile_all(&self, sources: &[Source], cache: Option<&Cache>) -> Result<Vec<Vec<u8>>> {
        sources.par_iter().map(|source| self.compile_cached(source, cache)).collect()
    }

    fn compile_cached(&self, source: &Source, cache: Option<&Cache>) -> Result<Vec<u8>> {
        let Some(cache) = cache else { return self.compile(source) };
        let version = self.version.to_string();
        let architecture = source.architecture.to_string();
        let mut parts = vec![version.as_str(), &architecture, &source.name, &source.text];
        parts.extend(source.options.iter().map(String::as_str));
        let key = Key::of(&parts);
        if let Some(code) = cache.get(&key) {
            return Ok(code);
        }
        let code = self.compile(source)?;
        cache.put(&key, &code);
        Ok(code)
    }

    /// Compiles one source.
    ///
    /// # Errors
    /// `Internal` with NVRTC's log, and the lines it is about, where the source has faults.
    pub fn compile(&self, source: &Source) -> Result<Vec<u8>> {
        let text = |text: &str| {
            CString::new(text).map_err(|_| Error::internal(format!("{}: a zero byte in the source", source.name)))
        };
        let (code, name) = (text(&source.text)?, text(&source.name)?);
        let mut options = vec![text(&format!("--gpu-architecture={}", source.architecture))?];
        for option in &source.options {
            options.push(text(option)?);
        }
        let program = Program::create(&self.table, &code, &name)?;
        let pointers: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
        // SAFETY: the program lives; there are as many options as said, and each ends in 0.
        let status =
            unsafe { (self.table.nvrtcCompileProgram)(program.raw, pointers.len() as c_int, pointers.as_ptr()) };
        if status == COMPILATION {
            let log = program.text(self.table.nvrtcGetProgramLogSize, self.table.nvrtcGetProgramLog)?;
            let log = String::from_utf8_lossy(&log);
            return Err(Error::internal(format!(
                "emitted code does not compile for {}:\n{}",
                source.architecture,
                with_lines(&log, source)
            )));
        }
        check("nvrtcCompileProgram", status).map_err(|e| e.at(&source.name))?;
        match source.architecture.form {
            Form::Cubin => program.text(self.table.nvrtcGetCUBINSize, self.table.nvrtcGetCUBIN),
            Form::Soft => Err(Error::internal("NVRTC does not compile for softgpu")),
            Form::Ptx => program.text(self.table.nvrtcGetPTXSize, self.table.nvrtcGetPTX),
        }
    }
}

struct Program<'a> {
    table: &'a Table,
    raw: RawProgram,
}

impl<'a> Program<'a> {
    fn create(table: &'a Table, code: &CString, name: &CString) -> Result<Program<'a>> {
        let mut raw = std::ptr::null_mut();
        let none = std::ptr::null();
        // SAFETY: both texts end in 0; there are no headers. Destroyed when dropped.
        let status = unsafe { (table.nvrtcCreateProgram)(&raw mut raw, code.as_ptr(), name.as_ptr(), 0, none, none) };
        check("nvrtcCreateProgram", status)?;
        Ok(Program { table, raw })
    }

    /// Bytes of which NVRTC gives the length first.
    fn text(
        &self,
        length: unsafe extern "C" fn(RawProgram, *mut usize) -> c_int,
        get: unsafe extern "C" fn(RawProgram, *mut c_char) -> c_int,
    ) -> Result<Vec<u8>> {
        let mut len = 0;
        // SAFETY: the program lives; the pointer is to a variable.
        check("NVRTC, asked for a size,", unsafe { length(self.raw, &raw mut len) })?;
        let mut bytes = vec![0u8; len];
        // SAFETY: there is room for as many bytes as it said.
        check("NVRTC, asked for a result,", unsafe { get(self.raw, bytes.as_mut_ptr().cast()) })?;
        Ok(bytes)
    }
}

impl Drop for Program<'_> {
    fn drop(&mut self) {
        // SAFETY: created by us, and used by nobody any more.
        let status = unsafe { (self.table.nvrtcDestroyProgram)(&raw mut self.raw) };
        if let Err(error) = check("nvrtcDestroyProgram", status) {
            tracing::warn!("{error}");
        }
    }
}

fn check(call: &str, status: c_int) -> Result<()> {
    match status {
        0 => Ok(()),
        OUT_OF_MEMORY => {
            Err(Error::new(Code::MemoryAllocationFailed, format!("{call} failed: NVRTC has not enough memory")))
        }
        other => Err(Error::internal(format!("{call} failed with NVRTC error {other}"))),
    }
}

/// The log, each error (`kernels_0.cu(12): error: ...`) followed by the line of source that it is about.
fn with_lines(log: &str, source: &Source) -> String {
    let lines: Vec<&str> = source.text.lines().collect();
    let mut out = String::new();
    for line in log.trim_end_matches(['\0', '\n']).lines() {
        out.push_str(line);
        out.push('\n');
        let number = line
            .strip_prefix(source.name.as_str())
            .and_then(|rest| rest.strip_prefix('('))
            .and_then(|rest| rest.split_once("): error"))
            .and_then(|(number, _)| number.parse::<usize>().ok());
        if let Some(text) = number.and_then(|n| lines.get(n.checked_sub(1)?)) {
            out.push_str(&format!("    in: {}\n", text.trim()));
        }
    }
    out
}

#[cfg(test)]
mod tests;
