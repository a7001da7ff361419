//! Library steps as functions that call the templates in `cuda/`.

use douse_core::sym::Ranges;
use douse_core::{Code, Error, Result};
use douse_program::library::Library;
use douse_program::plan::Plan;
use douse_program::target::{LibraryLaunches, library_steps};

use super::Modules;

/// The launches of every library step.
///
/// # Errors
/// `NotSupported` for a step that has no code for GPUs.
pub(super) fn emit(plan: &Plan, _ranges: &Ranges, arch: &str, _modules: &mut Modules) -> Result<Vec<LibraryLaunches>> {
    library_steps(plan).into_iter().map(|step| Err(unsupported(step, arch))).collect()
}

fn unsupported(step: &Library, arch: &str) -> Error {
    let name = match step {
        Library::MatMul { .. } => "a matrix product",
        Library::Convolution(_) => "a convolution",
        Library::Attention(_) => "attention",
        Library::Sort { .. } => "a sort",
        Library::TopK { .. } => "a top-k",
        Library::Nonzero { .. } => "the coordinates of a mask",
        Library::SearchSorted { .. } => "a search in sorted values",
        Library::Linalg { .. } => "linear algebra",
        Library::VarlenAttention(_) => "attention over packed sequences",
        Library::SegmentReduce { .. } => "a reduction of segments",
    };
    Error::new(Code::NotSupported, format!("{name} cannot be lowered for {arch} yet: only for cpu"))
}
