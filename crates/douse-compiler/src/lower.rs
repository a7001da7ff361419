//! The whole way, for one method.

use douse_core::bytes::Bytes;
use douse_ir::{Module, Op, OutputDecl, OutputKind};
use douse_program::plan::Plan;
use douse_pt2::ExportedProgram;
use indexmap::IndexMap;

use crate::content::content_key;
use crate::evaluate::OnCpu;
use crate::fuse::layout::row_major;
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
    /// What the method returns.
    pub watch: Watch,
}

/// What a lowered method returns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Watch {
    /// The program's outputs.
    #[default]
    Outputs,
    /// The first result of every node of the graph's body, as the passes leave it, instead.
    Nodes,
    /// Only that of the node of this number among them.
    Node(usize),
}

impl Default for Options {
    fn default() -> Options {
        Options { fuse: true, drop_asserts: false, watch: Watch::Outputs }
    }
}

/// A method's plan and the data it names.
#[derive(Debug)]
pub struct Lowered {
    pub plan: Plan,
    /// Weights and constants by content hash.
    pub data: IndexMap<String, Bytes>,
}

/// Replaces the module's outputs by what is watched, each named after its node and the user's line.
fn watch(module: &mut Module, watch: Watch) {
    if watch == Watch::Outputs {
        return;
    }
    let mut outputs = Vec::new();
    for id in &module.body.nodes {
        let node = module.graph.node(*id);
        let Some(value) = node.results.first().copied() else { continue };
        if matches!(node.op, Op::Input(_) | Op::State(_) | Op::Constant(_) | Op::Full(_) | Op::Iota(_)) {
            continue;
        }
        let origin = module.origin(node.origin).cloned().unwrap_or_default();
        let line = origin.line.map_or(String::new(), |l| format!(" at {l}"));
        let name = format!("{} of {} ({}){line}", node.op.name(), origin.node, origin.target);
        let (dtype, strides) = (module.graph.dtype(value), row_major(module.graph.shape(value)));
        outputs.push(OutputDecl { name, kind: OutputKind::Tensor { value, dtype, strides } });
    }
    if let Watch::Node(wanted) = watch {
        outputs = outputs.into_iter().skip(wanted).take(1).collect();
    }
    module.outputs = outputs;
}

/// Lowers a program as the method `name`.
///
/// # Errors
/// Everything in the program that is not supported, or the first thing that is wrong with it.
pub fn lower(program: &ExportedProgram, name: &str, options: &Options) -> Result<Lowered, ImportError> {
    let mut module = import(program, name)?;
    let mut context = Context { drop_asserts: options.drop_asserts, evaluator: Some(&OnCpu), ..Context::default() };
    passes::run(&mut module, &mut context)?;
    watch(&mut module, options.watch);
    let Planned { plan, data } = plan(&module, options.fuse, content_key)?;
    Ok(Lowered { plan, data })
}
