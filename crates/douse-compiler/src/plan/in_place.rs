//! Scatters that may write their base's memory instead of a copy of it.
//!
//! A base that nothing else reads is overwritten. For state (a KV cache) this changes memory that must stay as it was if the call fails, so
//! it is done only where everything that can fail depends on nothing but inputs, and is checked before the first step
//! ([`Planner::checks_first`](super::Planner)).

use std::collections::HashSet;

use douse_core::Result;
use douse_core::pointwise::Binary;
use douse_core::sym::Symbol;
use douse_ir::{Block, Module, NodeId, Op, Value, WriteTarget};
use douse_program::plan::SymbolSource;

use super::Planner;
use super::block::Item;
use crate::fuse::fate::{Fate, Fates};
use crate::fuse::layout::Layouts;
use crate::fuse::member::loops_over;

#[derive(Debug, Default)]
pub(crate) struct InPlace {
    nodes: HashSet<NodeId>,
    /// Their results.
    results: HashSet<Value>,
    /// Whether state is written in place, so that checks come first.
    state: bool,
}

impl InPlace {
    pub fn is(&self, node: NodeId) -> bool {
        self.nodes.contains(&node)
    }

    /// Whether state is written in place, so that checks come first.
    pub fn writes_state(&self) -> bool {
        self.state
    }

    /// Whether a value lies in its base's buffer.
    pub fn reuses(&self, value: Value) -> bool {
        self.results.contains(&value)
    }
}

/// Finds them: base and result must lie alike. Scatters in branches and loops copy.
pub(crate) fn find(module: &Module, definitions: &[Option<NodeId>], layouts: &Layouts, fates: &Fates) -> InPlace {
    let graph = &module.graph;
    let mut reads = vec![0u32; graph.values.len()];
    for node in &graph.nodes {
        node.operands.iter().for_each(|o| reads[o.0 as usize] += 1);
        for block in node.op.blocks() {
            block.results.iter().for_each(|r| reads[r.0 as usize] += 1);
        }
    }
    for root in module.roots() {
        reads[root.0 as usize] += 1;
    }
    let mut found = InPlace::default();
    let safe = early_failures(module, definitions).is_some();
    // The state whose memory each value is.
    let mut state_of: Vec<Option<u32>> = vec![None; graph.values.len()];
    for id in &module.body.nodes {
        let node = graph.node(*id);
        if !matches!(node.op, Op::Scatter { .. }) {
            continue;
        }
        let (base, result) = (node.operands[0], node.results[0]);
        if reads[base.0 as usize] != 1 || layouts.strides(graph, base) != layouts.strides(graph, result) {
            continue;
        }
        let Some(definition) = definitions[base.0 as usize].map(|d| &graph.node(d).op) else { continue };
        let state = match definition {
            Op::State(i) => Some(*i),
            Op::Scatter { .. } => state_of[base.0 as usize],
            _ => None,
        };
        let allowed = match state {
            // The last of a chain must be what the state becomes; then every one of the chain is on the way to it.
            Some(i) => safe && becomes(module, definitions, result, i),
            None => {
                fates.of(base) == Fate::Stored
                    && !matches!(
                        definition,
                        Op::Input(_) | Op::Constant(_) | Op::While { .. } | Op::If { .. } | Op::IfCond { .. }
                    )
                    && !module.roots().any(|r| r == base)
            }
        };
        if allowed {
            found.nodes.insert(*id);
            found.results.insert(result);
            state_of[result.0 as usize] = state;
            found.state |= state.is_some();
        }
    }
    found
}

/// Whether a value is what a state becomes, perhaps after more scatters that nothing else reads between.
fn becomes(module: &Module, definitions: &[Option<NodeId>], value: Value, state: u32) -> bool {
    let Some(write) = module.writes.iter().find(|w| w.target == WriteTarget::State(state)) else { return false };
    let mut at = write.value;
    loop {
        if at == value {
            return true;
        }
        match definitions[at.0 as usize].map(|d| module.graph.node(d)) {
            Some(node) if matches!(node.op, Op::Scatter { .. }) => at = node.operands[0],
            _ => return false,
        }
    }
}

/// The nodes that can make a call fail, if each can be evaluated before the first step; `None` if one cannot.
fn early_failures(module: &Module, definitions: &[Option<NodeId>]) -> Option<Vec<NodeId>> {
    let graph = &module.graph;
    let mut failing = Vec::new();
    let mut blocks: Vec<&Block> = vec![&module.body];
    while let Some(block) = blocks.pop() {
        for id in &block.nodes {
            let node = graph.node(*id);
            match &node.op {
                Op::Check { .. } | Op::Assert { .. } => {}
                Op::Binary(Binary::FloorDivide | Binary::TruncDivide | Binary::Remainder | Binary::Fmod) => {
                    let floats = graph.dtype(node.operands[0]).is_float();
                    let divisor = definitions[node.operands[1].0 as usize].map(|d| &graph.node(d).op);
                    if floats || matches!(divisor, Some(Op::Full(s)) if s.to_i64() != 0) {
                        continue;
                    }
                    return None;
                }
                Op::Require { cond, .. } => {
                    let mut known = true;
                    cond.visit(&mut |s| {
                        if let Symbol::Size(i) = s {
                            known &= module.symbols.get(i as usize).is_some_and(|s| s.source != SymbolSource::Step);
                        }
                    });
                    if !known {
                        return None;
                    }
                }
                Op::Linalg(_)
                | Op::Item { .. }
                | Op::Nonzero { .. }
                | Op::VarlenAttention { .. }
                | Op::SegmentReduce { .. }
                | Op::While { .. } => return None,
                Op::If { .. } | Op::IfCond { .. } => return None,
                _ => {}
            }
            if matches!(node.op, Op::Check { .. } | Op::Assert { .. }) {
                if !early(module, definitions, node.operands[0], &mut 200) {
                    return None;
                }
                failing.push(*id);
            }
        }
    }
    Some(failing)
}

/// Whether a value is computed elementwise from inputs, state and constants, in a few nodes.
fn early(module: &Module, definitions: &[Option<NodeId>], value: Value, budget: &mut u32) -> bool {
    if *budget == 0 {
        return false;
    }
    *budget -= 1;
    let Some(node) = definitions[value.0 as usize].map(|d| module.graph.node(d)) else { return false };
    match &node.op {
        Op::Input(_) | Op::Constant(_) | Op::State(_) => true,
        op if op.is_elementwise() => node.operands.iter().all(|o| early(module, definitions, *o, budget)),
        _ => false,
    }
}

impl Planner<'_> {
    /// Where state is written in place: kernels that make every check of the call, before anything is written. Conditions on sizes come
    /// before them ([`Planner::first_items`]): all of them are on inputs' then.
    pub(super) fn checks_first(&mut self) -> Result<Vec<Item>> {
        if !self.in_place.state {
            return Ok(vec![]);
        }
        let failing = early_failures(self.module, &self.definitions).unwrap_or_default();
        let mut steps = Vec::new();
        for id in failing {
            let node = self.module.graph.node(id);
            let operand = node.operands[0];
            // The elements of the index itself, not those that it is repeated to.
            let shape = self.module.graph.shape(operand).to_vec();
            let mut loops = Vec::new();
            let (at, _) = loops_over(&shape, &mut loops);
            let (mut single, index) = self.single(loops, |e| {
                e.deep = true;
                e.element(operand, &at, None)
            })?;
            use douse_program::kernel::{Effect, Inst, Op as K};
            match &node.op {
                Op::Check { size, wrap, message } => {
                    let check = K::Check { index, size: size.clone(), wrap: *wrap, guard: None, message: *message };
                    single.body.push(Inst { op: check, dtype: douse_core::DType::I64 });
                }
                Op::Assert { message } => single.effects.push(Effect::Assert { value: index, message: *message }),
                _ => {}
            }
            single.origins.push(node.origin);
            steps.push(self.finish_single(single, "check"));
        }
        Ok(vec![Item::Steps(steps)])
    }
}
