//! Lowering: from exported programs to a program.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use douse_core::bytes::Bytes;
use douse_program::payload::Payload;
pub use douse_program::target::{ProductOptions, Products};
use douse_pt2::ExportedProgram;

use crate::code::{CPU, Coder};
use crate::{Code, Error, Program, Result};

pub use douse_compiler::Watch;
use douse_compiler::import::ImportError;
pub use douse_compiler::import::Unsupported;

/// How a program is lowered.
#[derive(Clone, Debug)]
pub struct LowerOptions {
    /// Join operators into kernels; without, each core operation is a kernel of its own.
    pub fuse: bool,
    /// Remove the program's own checks, with the arithmetic that only feeds them.
    pub drop_asserts: bool,
    /// What to lower for: `cpu`, architectures of GPUs (`sm_90`), `ptx` for every GPU of compute capability 8.0 and later.
    pub targets: Vec<String>,
    /// Name, without `.ptd`, of the file that the weights go into, beside the program; `None`: into the program.
    pub data_file: Option<String>,
    /// How matrix products and convolutions are done on GPUs.
    pub products: ProductOptions,
    /// What the methods return: for finding faults.
    pub watch: Watch,
}

impl Default for LowerOptions {
    fn default() -> LowerOptions {
        LowerOptions {
            fuse: true,
            drop_asserts: false,
            targets: vec![CPU.to_owned()],
            data_file: None,
            products: ProductOptions::default(),
            watch: Watch::Outputs,
        }
    }
}

/// A lowered program, in memory.
#[derive(Clone, Debug)]
pub struct Lowered {
    pub methods: Vec<Payload>,
    /// Weights by content.
    pub data: BTreeMap<String, Bytes>,
}

/// Why a program was not lowered.
#[derive(Clone, Debug)]
pub enum Refused {
    /// What is missing, all of it, with the user's lines.
    Unsupported(Vec<Unsupported>),
    Error(Error),
}

impl From<Error> for Refused {
    fn from(error: Error) -> Refused {
        Refused::Error(error)
    }
}

impl From<Refused> for Error {
    fn from(refused: Refused) -> Error {
        match refused {
            Refused::Unsupported(_) => Error::new(Code::OperatorMissing, refused.to_string()),
            Refused::Error(error) => error,
        }
    }
}

/// The user's lines that are printed for each thing that is missing.
const PLACES: usize = 5;

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let missing = match self {
            Refused::Error(error) => return error.fmt(f),
            Refused::Unsupported(missing) => missing,
        };
        f.write_str("the program uses what is not supported:")?;
        for item in missing {
            write!(f, "\n  {} ({} time{})", item.what, item.count, if item.count == 1 { "" } else { "s" })?;
            for place in item.places.iter().take(PLACES) {
                write!(f, "\n      {place}")?;
            }
        }
        Ok(())
    }
}

impl std::error::Error for Refused {}

impl Lowered {
    /// The program, ready to be loaded.
    ///
    /// # Errors
    /// `Internal`, where a plan does not pass the check that every loaded plan must pass.
    pub fn into_program(self) -> Result<Program> {
        Program::from_parts(self.methods, self.data).map_err(|e| Error::internal(e.message))
    }

    /// Writes the program file, and the file of weights where the options named one. Returns their sizes in bytes.
    ///
    /// # Errors
    /// `AccessFailed` with the path; what was there before stays.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(u64, Option<u64>)> {
        douse_program::file::write(path.as_ref(), &self.methods, &|key| self.data.get(key).cloned())
    }
}

/// Lowers one exported program as the method `forward`.
///
/// # Errors
/// What the file is, where it is no exported program; `OperatorMissing` with everything that is not supported.
pub fn lower(path: impl AsRef<Path>, options: &LowerOptions) -> Result<Lowered> {
    Ok(lower_methods(&[("forward", path.as_ref())], options)?)
}

/// Lowers exported programs as the methods of one program. Weights that are equal are stored once.
///
/// # Errors
/// As [`lower`], for the first program that is refused.
pub fn lower_methods(methods: &[(&str, &Path)], options: &LowerOptions) -> Result<Lowered, Refused> {
    check_names(methods, options)?;
    let coder = Coder::new(&options.targets, options.products)?;
    let mut all = Lowered { methods: Vec::new(), data: BTreeMap::new() };
    for (name, path) in methods {
        let exported = ExportedProgram::open(path)?;
        let lowered = lower_with(&exported, name, options, &coder).map_err(|refused| match refused {
            Refused::Error(error) => Refused::Error(error.at(path.display())),
            missing => missing,
        })?;
        all.methods.extend(lowered.methods);
        all.data.extend(lowered.data);
    }
    Ok(all)
}

/// Refuses names that cannot be, before anything is compiled.
fn check_names(methods: &[(&str, &Path)], options: &LowerOptions) -> Result<()> {
    for (i, (name, _)) in methods.iter().enumerate() {
        if name.is_empty() {
            return Err(Error::invalid_argument("a method without a name"));
        }
        if let Some((other, _)) = methods.iter().take(i).find(|(other, _)| other.eq_ignore_ascii_case(name)) {
            let message =
                format!("the methods {other:?} and {name:?} have the same name, or one that differs only in case");
            return Err(Error::invalid_argument(message));
        }
    }
    match options.data_file.as_deref() {
        Some(name) if !douse_program::file::is_data_name(name) => Err(Error::invalid_argument(format!(
            "{name:?} is no name for a file of weights: give one without a folder"
        ))),
        _ => Ok(()),
    }
}

/// Lowers an exported program that is open.
///
/// # Errors
/// As [`lower`].
pub fn lower_exported(exported: &ExportedProgram, name: &str, options: &LowerOptions) -> Result<Lowered, Refused> {
    lower_with(exported, name, options, &Coder::new(&options.targets, options.products)?)
}

fn lower_with(
    exported: &ExportedProgram,
    name: &str,
    options: &LowerOptions,
    coder: &Coder,
) -> Result<Lowered, Refused> {
    let compiler =
        douse_compiler::Options { fuse: options.fuse, drop_asserts: options.drop_asserts, watch: options.watch };
    let lowered = douse_compiler::lower(exported, name, &compiler).map_err(|e| match e {
        ImportError::Unsupported(missing) => Refused::Unsupported(missing),
        ImportError::Fault(error) => Refused::Error(error),
    })?;
    let (cuda, code) = coder.code(&lowered.plan)?;
    let payload = Payload {
        targets: options.targets.clone(),
        data_files: options.data_file.iter().cloned().collect(),
        plan: lowered.plan.into(),
        cuda,
    };
    Ok(Lowered { methods: vec![payload], data: lowered.data.into_iter().chain(code).collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_refused_before_anything_is_opened() {
        let missing = Path::new("/nowhere/model.pt2");
        let refused = |methods: &[(&str, &Path)], data_file: Option<&str>| {
            let options = LowerOptions { data_file: data_file.map(str::to_owned), ..LowerOptions::default() };
            Error::from(lower_methods(methods, &options).unwrap_err())
        };
        for name in ["", "a/b", "..", "a\\b"] {
            let error = refused(&[("forward", missing)], Some(name));
            assert!(error.message.contains("no name for a file of weights"), "{error}");
        }
        assert!(refused(&[("", missing)], None).message.contains("without a name"));
        assert!(refused(&[("step", missing), ("Step", missing)], None).message.contains("differs only in case"));
        assert!(refused(&[("forward", missing)], Some("weights")).message.contains("/nowhere/model.pt2"));
    }

    #[test]
    fn a_refusal_lists_everything_that_is_missing() {
        let item =
            |what: &str, count| Unsupported { what: what.into(), count, places: vec!["model.py:3: f(x)".into()] };
        let refused = Refused::Unsupported(vec![item("aten.a.default", 1), item("aten.b.default", 2)]);
        let error = Error::from(refused);
        assert_eq!(error.code, Code::OperatorMissing);
        assert_eq!(
            error.message,
            "the program uses what is not supported:\n  aten.a.default (1 time)\n      model.py:3: f(x)\n  \
             aten.b.default (2 times)\n      model.py:3: f(x)"
        );
    }
}
