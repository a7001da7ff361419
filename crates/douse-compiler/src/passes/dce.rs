//! Dead code: what neither the outside nor a check reads.

use std::collections::BTreeMap;

use douse_core::Result;
use douse_core::sym::Symbol;
use douse_ir::{Block, InputKind, Module, NodeId, Op, OutputKind, Value};

use super::Context;
use super::rebuild::without;
use super::symbols::visit;

/// Removes nodes that nothing needs, results of branches that nothing reads, and constants without a reader.
///
/// Needed are outputs, writes, asserts and requirements, and what they read: values, and the nodes that define symbols in their
/// shapes and expressions. A host read whose symbol nothing mentions goes. All that is dead is one rewrite.
pub(super) fn dce(module: &mut Module, context: &mut Context<'_>) -> Result<()> {
    let live = Live::of(module);
    let dead = |id: NodeId| !live.nodes[id.0 as usize];
    let prunable = prunable(module, &live);
    if context.may() && (any_dead(&module.body, module, &dead) || !prunable.is_empty()) {
        prune_branches(module, &prunable);
        without(module, &dead)?;
        context.done();
    }
    drop_constants(module);
    Ok(())
}

fn any_dead(block: &Block, module: &Module, dead: &dyn Fn(NodeId) -> bool) -> bool {
    block
        .nodes
        .iter()
        .any(|id| dead(*id) || module.graph.node(*id).op.blocks().iter().any(|b| any_dead(b, module, dead)))
}

/// Branches that stay, with results that go, and which of them are kept.
fn prunable(module: &Module, live: &Live) -> Vec<(NodeId, Vec<bool>)> {
    let nodes = module.graph.nodes.iter().enumerate();
    nodes
        .filter(|(i, node)| live.nodes[*i] && matches!(node.op, Op::If { .. } | Op::IfCond { .. }))
        .map(|(i, node)| (NodeId(i as u32), node.results.iter().map(|v| live.values[v.0 as usize]).collect::<Vec<_>>()))
        .filter(|(_, keep)| keep.contains(&false))
        .collect()
}

/// if c { a, b } else { d, e } = if c { b } else { e } where the first result has no reader
fn prune_branches(module: &mut Module, prunable: &[(NodeId, Vec<bool>)]) {
    for (id, keep) in prunable {
        let node = module.graph.node_mut(*id);
        let prune = |values: &mut Vec<Value>| {
            let mut flags = keep.iter();
            values.retain(|_| flags.next().copied().unwrap_or(true));
        };
        prune(&mut node.results);
        node.op.blocks_mut().into_iter().for_each(|b| prune(&mut b.results));
    }
}

/// Constants that no node reads go; the others are numbered anew.
fn drop_constants(module: &mut Module) {
    let mut used = vec![false; module.constants.len()];
    for node in &module.graph.nodes {
        if let Op::Constant(n) = node.op {
            used[n as usize] = true;
        }
    }
    let mut numbers = Vec::with_capacity(used.len());
    let mut next = 0;
    for used in &used {
        numbers.push(next);
        next += u32::from(*used);
    }
    for node in &mut module.graph.nodes {
        if let Op::Constant(n) = &mut node.op {
            *n = numbers[*n as usize];
        }
    }
    let mut flags = used.iter();
    module.constants.retain(|_| flags.next().copied().unwrap_or(true));
}

struct Live {
    nodes: Vec<bool>,
    values: Vec<bool>,
}

/// What is left to look at.
enum Todo {
    Node(NodeId),
    Value(Value),
    Symbol(u32),
}

struct Marker<'a> {
    module: &'a Module,
    definitions: Vec<Option<NodeId>>,
    /// The node whose block holds a node.
    parents: Vec<Option<NodeId>>,
    /// The node that holds the block a value is a parameter of.
    owners: BTreeMap<Value, NodeId>,
    /// What defines a symbol of a step: a node, or results of a branch.
    symbols: BTreeMap<u32, Vec<Todo>>,
    live: Live,
    seen_symbols: Vec<bool>,
    todo: Vec<Todo>,
}

impl Live {
    fn of(module: &Module) -> Live {
        let mut marker = Marker {
            module,
            definitions: module.graph.definitions(),
            parents: vec![None; module.graph.nodes.len()],
            owners: BTreeMap::new(),
            symbols: BTreeMap::new(),
            live: Live { nodes: vec![false; module.graph.nodes.len()], values: vec![false; module.graph.values.len()] },
            seen_symbols: vec![false; module.symbols.len()],
            todo: Vec::new(),
        };
        marker.index(&module.body, None);
        marker.roots();
        while let Some(todo) = marker.todo.pop() {
            match todo {
                Todo::Node(id) => marker.node(id),
                Todo::Value(value) => marker.value(value),
                Todo::Symbol(symbol) => marker.symbol(symbol),
            }
        }
        marker.live
    }
}

impl Marker<'_> {
    fn index(&mut self, block: &Block, parent: Option<NodeId>) {
        if let Some(parent) = parent {
            self.owners.extend(block.params.iter().map(|v| (*v, parent)));
        }
        for id in &block.nodes {
            self.parents[id.0 as usize] = parent;
            let node = self.module.graph.node(*id);
            match &node.op {
                Op::Nonzero { symbol } | Op::Item { symbol } => {
                    self.symbols.entry(*symbol).or_default().push(Todo::Node(*id));
                }
                Op::If { .. } | Op::IfCond { .. } => {
                    for value in &node.results {
                        for size in self.module.graph.shape(*value) {
                            if let Some(Symbol::Size(n)) = size.as_symbol() {
                                self.symbols.entry(n).or_default().push(Todo::Value(*value));
                            }
                        }
                    }
                }
                // A check stays for its own sake.
                Op::Assert { .. } | Op::Require { .. } => self.todo.push(Todo::Node(*id)),
                _ => {}
            }
            for inner in node.op.blocks() {
                self.index(inner, Some(*id));
            }
        }
    }

    fn roots(&mut self) {
        let module = self.module;
        self.todo.extend(module.roots().map(Todo::Value));
        let mut mentioned = Vec::new();
        for output in &module.outputs {
            match &output.kind {
                OutputKind::Int(expr) => expr.visit(&mut |s| mentioned.push(s)),
                OutputKind::Bool(cond) => cond.visit(&mut |s| mentioned.push(s)),
                OutputKind::Tensor { strides, .. } => {
                    strides.iter().for_each(|e| e.visit(&mut |s| mentioned.push(s)));
                }
                _ => {}
            }
        }
        for input in &module.inputs {
            if let InputKind::Tensor { sizes, strides, .. } = &input.kind {
                sizes.iter().chain(strides).for_each(|e| e.visit(&mut |s| mentioned.push(s)));
            }
        }
        self.mentioned(&mentioned);
    }

    fn mentioned(&mut self, symbols: &[Symbol]) {
        for symbol in symbols {
            if let Symbol::Size(n) = symbol {
                self.todo.push(Todo::Symbol(*n));
            }
        }
    }

    fn shape(&mut self, value: Value) {
        let mut mentioned = Vec::new();
        self.module.graph.shape(value).iter().for_each(|e| e.visit(&mut |s| mentioned.push(s)));
        self.mentioned(&mentioned);
    }

    fn symbol(&mut self, symbol: u32) {
        if std::mem::replace(&mut self.seen_symbols[symbol as usize], true) {
            return;
        }
        self.todo.extend(self.symbols.remove(&symbol).unwrap_or_default());
        let mut mentioned = Vec::new();
        if let Some(bound) = &self.module.symbols[symbol as usize].bound {
            bound.visit(&mut |s| mentioned.push(s));
        }
        self.mentioned(&mentioned);
    }

    fn value(&mut self, value: Value) {
        if std::mem::replace(&mut self.live.values[value.0 as usize], true) {
            return;
        }
        self.shape(value);
        let definition = self.definitions[value.0 as usize].or_else(|| self.owners.get(&value).copied());
        let Some(id) = definition else { return };
        self.todo.push(Todo::Node(id));
        // Of a branch only the results that are read are needed.
        let node = self.module.graph.node(id);
        if let (Op::If { .. } | Op::IfCond { .. }, Some(k)) = (&node.op, node.results.iter().position(|v| *v == value))
        {
            let results = node.op.blocks().into_iter().filter_map(|b| b.results.get(k));
            self.todo.extend(results.map(|v| Todo::Value(*v)));
        }
    }

    fn node(&mut self, id: NodeId) {
        if std::mem::replace(&mut self.live.nodes[id.0 as usize], true) {
            return;
        }
        let node = self.module.graph.node(id);
        self.todo.extend(self.parents[id.0 as usize].map(Todo::Node));
        self.todo.extend(node.operands.iter().map(|v| Todo::Value(*v)));
        let mut mentioned = Vec::new();
        visit(&node.op, &mut |s| mentioned.push(s));
        self.mentioned(&mentioned);
        if matches!(node.op, Op::If { .. } | Op::IfCond { .. }) {
            return;
        }
        node.results.iter().for_each(|v| self.shape(*v));
        for block in node.op.blocks() {
            self.todo.extend(block.results.iter().chain(&block.params).map(|v| Todo::Value(*v)));
        }
    }
}
