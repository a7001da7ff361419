//! Constants computed when lowering, by the CPU executor.

use std::sync::Arc;

use douse_core::bytes::Bytes;
use douse_core::{Error, Result};
use douse_cpu::{Executor, Options, OutputValue};
use douse_ir::{Module, OutputDecl, OutputKind, Value};
use douse_program::plan::SymbolSource;

use crate::content::content_key;
use crate::fuse::layout::row_major;
use crate::passes::{Context, Evaluate, run_named};
use crate::plan::{Planned, plan};

/// Runs what leads to the values as a program of its own.
#[derive(Debug)]
pub struct OnCpu;

impl Evaluate for OnCpu {
    fn evaluate(&self, module: &Module, values: &[Value]) -> Result<Vec<Bytes>> {
        let mut part = module.clone();
        part.inputs.clear();
        for symbol in &mut part.symbols {
            symbol.source = SymbolSource::Step;
        }
        part.writes.clear();
        part.outputs = values
            .iter()
            .map(|value| {
                let (dtype, strides) = (part.graph.dtype(*value), row_major(part.graph.shape(*value)));
                OutputDecl { name: String::new(), kind: OutputKind::Tensor { value: *value, dtype, strides } }
            })
            .collect();
        // Nothing of the whole program's own effects belongs to the part.
        part.body.nodes.retain(|id| {
            let node = part.graph.node(*id);
            !node.results.is_empty() && node.op.blocks().is_empty()
        });
        run_named("dce", &mut part, &mut Context::default())?;
        part.states.clear();
        let Planned { plan, data } = plan(&part, true, content_key)?;
        let find = |key: &str| data.get(key).cloned().ok_or_else(|| Error::internal("a constant without data"));
        let mut executor = Executor::new(Arc::new(plan), &find)?;
        let mut state = executor.initial_state();
        let outputs = executor.run(&mut state, &[], vec![], &Options::default())?;
        let bytes = |output: OutputValue| match output {
            OutputValue::Tensor { bytes, .. } => Ok(Bytes::from(bytes.to_vec())),
            _ => Err(Error::internal("a constant that is not a tensor")),
        };
        outputs.into_iter().map(bytes).collect()
    }
}
