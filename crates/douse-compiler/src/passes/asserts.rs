//! Checks of the program's own: dropped where that is asked for, put off where nothing waits for them.

use std::collections::{BTreeMap, BTreeSet};

use douse_core::Result;
use douse_core::sym::Symbol;
use douse_ir::{InputKind, Module, Node, NodeId, Op, OutputKind};

use super::Context;
use super::rebuild::without;
use super::symbols::visit;

/// Removes tensor asserts, if asked to. What only fed them is dead then.
pub(super) fn drop_asserts(module: &mut Module, context: &mut Context<'_>) -> Result<()> {
    if !context.drop_asserts {
        return Ok(());
    }
    let mut gone = vec![false; module.graph.nodes.len()];
    for (gone, node) in gone.iter_mut().zip(&module.graph.nodes) {
        if matches!(node.op, Op::Assert { .. }) && context.may() {
            context.done();
            *gone = true;
        }
    }
    if !gone.contains(&true) {
        return Ok(());
    }
    without(module, &|id| gone[id.0 as usize])
}

/// Moves a host read whose symbol only requirements mention to the end of the body, with these requirements, so that the call
/// reads it once everything else is under way. Reads within blocks stay.
pub(super) fn defer_asserts(module: &mut Module, context: &mut Context<'_>) -> Result<()> {
    let readers = readers(module);
    let mut deferred: BTreeSet<NodeId> = BTreeSet::new();
    for id in &module.body.nodes {
        let Op::Item { symbol } = module.graph.node(*id).op else { continue };
        let required = match readers.get(&symbol) {
            Some(readers) => readers,
            None => continue,
        };
        let top = |reader: &Reader| match reader {
            Reader::Require(reader) => module.body.nodes.contains(reader),
            Reader::Other => false,
        };
        if required.iter().all(top) && context.may() {
            deferred.insert(*id);
            deferred.extend(required.iter().filter_map(|r| match r {
                Reader::Require(id) => Some(*id),
                Reader::Other => None,
            }));
            context.done();
        }
    }
    let (last, first): (Vec<NodeId>, Vec<NodeId>) =
        module.body.nodes.iter().copied().partition(|id| deferred.contains(id));
    module.body.nodes = first;
    module.body.nodes.extend(last);
    Ok(())
}

/// What mentions a symbol.
enum Reader {
    Require(NodeId),
    Other,
}

fn readers(module: &Module) -> BTreeMap<u32, Vec<Reader>> {
    let mut readers: BTreeMap<u32, Vec<Reader>> = BTreeMap::new();
    let mut add = |symbol: Symbol, reader: Reader| {
        if let Symbol::Size(n) = symbol {
            readers.entry(n).or_default().push(reader);
        }
    };
    let nodes = module.graph.nodes.iter().enumerate();
    for (i, node) in nodes {
        let require = matches!(node, Node { op: Op::Require { .. }, .. });
        visit(&node.op, &mut |s| {
            add(s, if require { Reader::Require(NodeId(i as u32)) } else { Reader::Other });
        });
    }
    let shapes = module.graph.values.iter().flat_map(|v| &v.shape);
    let bounds = module.symbols.iter().filter_map(|s| s.bound.as_ref());
    let inputs = module.inputs.iter().flat_map(|i| match &i.kind {
        InputKind::Tensor { sizes, strides, .. } => sizes.iter().chain(strides).collect(),
        _ => Vec::new(),
    });
    shapes.chain(bounds).chain(inputs).for_each(|e| e.visit(&mut |s| add(s, Reader::Other)));
    for output in &module.outputs {
        match &output.kind {
            OutputKind::Int(expr) => expr.visit(&mut |s| add(s, Reader::Other)),
            OutputKind::Bool(cond) => cond.visit(&mut |s| add(s, Reader::Other)),
            OutputKind::Tensor { strides, .. } => {
                strides.iter().for_each(|e| e.visit(&mut |s| add(s, Reader::Other)));
            }
            OutputKind::Number(_) | OutputKind::Fixed(_) => {}
        }
    }
    readers
}
