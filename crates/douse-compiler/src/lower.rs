//! The whole way, for one method.

use douse_core::bytes::Bytes;
use douse_program::plan::Plan;
use douse_pt2::ExportedProgram;
use indexmap::IndexMap;

use crate::evaluate::OnCpu;
use crate::import::{ImportError, import};
use crate::passes::{self, Context};
use crate::plan::{Planned, plan};

/// How a method is lowered.
#[derive(Clone, Debug)]
pub struct Options {
    /// Computes several nodes in one kernel. Off, each node has its own: for finding faults.
    pub fuse: bool,
    /// Removes the checks on tensors that the program makes itself, and what only feeds them.
    pub drop_asserts: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options { fuse: true, drop_asserts: false }
    }
}

/// A method's plan and the data it names.
#[derive(Debug)]
pub struct Lowered {
    pub plan: Plan,
    /// Weights and constants by content hash.
    pub data: IndexMap<String, Bytes>,
}

/// Lowers a program as the method `name`.
///
/// # Errors
/// Everything in the program that is not supported, or the first thing that is wrong with it.
pub fn lower(program: &ExportedProgram, name: &str, options: &Options) -> Result<Lowered, ImportError> {
    let mut module = import(program, name)?;
    let mut context = Context { drop_asserts: options.drop_asserts, evaluator: Some(&OnCpu), ..Context::default() };
    passes::run(&mut module, &mut context)?;
    let Planned { plan, data } = plan(&module, options.fuse, douse_program::container::pte::content_key)?;
    Ok(Lowered { plan, data })
}
