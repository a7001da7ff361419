//! What is done with the coordinates of each mask.

use std::collections::{BTreeMap, BTreeSet};

use douse_core::sym::Symbol;
use douse_ir::{Block, Module, NodeId, Op, OutputKind, Value};

use super::lift::Planner;
use super::{Copy, Finished, View};
use crate::passes::symbols::visit;

/// The scatters, ascending, at the coordinates of masks whose coordinates and counts only such scatters use in the end.
pub(super) fn convertible(module: &Module) -> Vec<NodeId> {
    let view = Finished {
        graph: &module.graph,
        definitions: module.graph.definitions(),
        depends: vec![Vec::new(); module.graph.values.len()],
    };
    let mut walk = Walk { module, view, symbols: BTreeMap::new(), scatters: BTreeMap::new(), other: BTreeSet::new() };
    walk.block(&module.body);
    walk.ends();
    let Walk { scatters, other, .. } = walk;
    let mut found: Vec<NodeId> =
        scatters.into_iter().filter(|(mask, _)| !other.contains(mask)).flat_map(|(_, s)| s).collect();
    found.sort_unstable();
    found
}

/// Masks are named by their [`Op::Nonzero`] nodes.
struct Walk<'a> {
    module: &'a Module,
    view: Finished<'a>,
    /// What counts a symbol is.
    symbols: BTreeMap<u32, NodeId>,
    scatters: BTreeMap<NodeId, Vec<NodeId>>,
    /// Masks whose coordinates or counts have another use.
    other: BTreeSet<NodeId>,
}

impl Walk<'_> {
    fn counts(&self, symbol: Symbol, found: &mut BTreeSet<NodeId>) {
        if let Symbol::Size(n) = symbol {
            found.extend(self.symbols.get(&n));
        }
    }

    fn shape(&self, value: Value, found: &mut BTreeSet<NodeId>) {
        self.module.graph.shape(value).iter().for_each(|e| e.visit(&mut |s| self.counts(s, found)));
    }

    fn block(&mut self, block: &Block) {
        for id in &block.nodes {
            self.node(*id);
            for inner in self.module.graph.node(*id).op.blocks() {
                self.block(inner);
                for result in &inner.results {
                    self.other.extend(&self.view.depends[result.0 as usize]);
                }
                let mut found = BTreeSet::new();
                inner.params.iter().for_each(|v| self.shape(*v, &mut found));
                self.other.extend(found);
            }
        }
    }

    fn node(&mut self, id: NodeId) {
        let module = self.module;
        let node = module.graph.node(id);
        let mut found: BTreeSet<NodeId> =
            node.operands.iter().flat_map(|v| self.view.depends[v.0 as usize].iter().copied()).collect();
        visit(&node.op, &mut |s| self.counts(s, &mut found));
        node.results.iter().for_each(|v| self.shape(*v, &mut found));
        if let Op::Nonzero { symbol } = node.op {
            self.other.extend(found);
            self.symbols.insert(symbol, id);
            self.view.depends[node.results[0].0 as usize] = vec![id];
            return;
        }
        if found.is_empty() {
            return;
        }
        match &node.op {
            Op::Scatter { .. } => match self.mask_of(id) {
                Some(mask) if found.iter().eq([&mask]) => self.scatters.entry(mask).or_default().push(id),
                _ => self.other.extend(found),
            },
            Op::Full(_) | Op::Iota(_) | Op::Unary(_) | Op::Binary(_) | Op::Select | Op::Cast | Op::Bitcast => {
                self.pass_on(&node.results, &found);
            }
            Op::Check { .. } | Op::Move { .. } => self.pass_on(&node.results, &found),
            _ => self.other.extend(found),
        }
    }

    fn pass_on(&mut self, results: &[Value], found: &BTreeSet<NodeId>) {
        for result in results {
            self.view.depends[result.0 as usize] = found.iter().copied().collect();
        }
    }

    /// The mask of a scatter that can become a select.
    fn mask_of(&self, id: NodeId) -> Option<NodeId> {
        let node = self.module.graph.node(id);
        let copy = Copy::of(&self.view, node)?;
        if self.view.depends(copy.base) || self.view.depends(copy.mask) {
            return None;
        }
        Planner::plan(&self.view, &copy)?;
        // All columns are of one mask, whose node is the only one that the indices depend on.
        match self.view.depends[node.operands.get(2)?.0 as usize].as_slice() {
            [mask] => Some(*mask),
            _ => None,
        }
    }

    fn ends(&mut self) {
        let module = self.module;
        let mut found = BTreeSet::new();
        for value in module.roots() {
            self.other.extend(&self.view.depends[value.0 as usize]);
            self.shape(value, &mut found);
        }
        for output in &module.outputs {
            match &output.kind {
                OutputKind::Int(expr) => expr.visit(&mut |s| self.counts(s, &mut found)),
                OutputKind::Bool(cond) => cond.visit(&mut |s| self.counts(s, &mut found)),
                OutputKind::Tensor { strides, .. } => {
                    strides.iter().for_each(|e| e.visit(&mut |s| self.counts(s, &mut found)));
                }
                OutputKind::Number(_) | OutputKind::Fixed(_) => {}
            }
        }
        for bound in module.symbols.iter().filter_map(|s| s.bound.as_ref()) {
            bound.visit(&mut |s| self.counts(s, &mut found));
        }
        self.other.extend(found);
    }
}
