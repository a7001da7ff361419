//! The verifier: every fault of a module, with its place.
//!
//! Passes and the plan trust what it has accepted: values are defined once, before they are used and in a block that encloses the
//! use; results follow the rule of their operation; expressions mention only what exists; declarations fit their values.

use std::fmt;

use douse_core::sym::{Cond, Expr, Symbol};
use douse_core::{Error, Result};
use douse_program::plan::SymbolSource;

use crate::build::shape_text;
use crate::graph::{Block, InputKind, Module, Node, NodeId, OutputKind, Value, WriteTarget};
use crate::op::Op;
use crate::rules::{Rule, compatible_shapes};

/// Blocks nested deeper than this are refused, so that no walk over them can exhaust the stack.
pub const DEPTH: usize = 64;

/// What is wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    pub node: Option<NodeId>,
    /// The node's first result, or the value that is at fault.
    pub value: Option<Value>,
    pub message: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.value, self.node) {
            (Some(value), _) => write!(f, "{value}: {}", self.message),
            (None, Some(node)) => write!(f, "node {}: {}", node.0, self.message),
            (None, None) => f.write_str(&self.message),
        }
    }
}

/// Checks a whole module.
///
/// # Errors
/// All faults, in the order of the graph.
pub fn verify(module: &Module) -> Result<(), Vec<Fault>> {
    let mut verifier = Verifier {
        module,
        faults: Vec::new(),
        defined: vec![State::Never; module.graph.values.len()],
        symbols: vec![State::Never; module.symbols.len()],
        seen: vec![false; module.graph.nodes.len()],
        at: None,
    };
    verifier.declarations();
    verifier.block(&module.body, 0);
    verifier.ends();
    if verifier.faults.is_empty() { Ok(()) } else { Err(verifier.faults) }
}

/// [`verify`], its faults as one error of ours, `place` in front.
///
/// # Errors
/// Where there are faults.
pub fn verified(module: &Module, place: &str) -> Result<()> {
    verify(module).map_err(|faults| {
        let all: Vec<String> = faults.iter().map(Fault::to_string).collect();
        Error::internal(format!("{place}: {}", all.join("; ")))
    })
}

/// Whether a name may be used.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Never,
    Visible,
    /// Defined in a block that has ended.
    Gone,
}

struct Verifier<'a> {
    module: &'a Module,
    faults: Vec<Fault>,
    defined: Vec<State>,
    symbols: Vec<State>,
    /// Nodes that stand in a block.
    seen: Vec<bool>,
    at: Option<NodeId>,
}

impl<'a> Verifier<'a> {
    fn say(&mut self, message: impl Into<String>) {
        let value = self.at.and_then(|n| self.module.graph.nodes.get(n.0 as usize)?.results.first().copied());
        self.faults.push(Fault { node: self.at, value, message: message.into() });
    }

    fn expr(&mut self, what: &str, expr: &Expr) {
        let mut bad = None;
        expr.visit(&mut |s| bad = bad.or(self.unknown(s)));
        if let Some(symbol) = bad {
            self.say(format!("{what} {expr} mentions {symbol}, which is not known there"));
        }
    }

    fn cond(&mut self, what: &str, cond: &Cond) {
        let mut bad = None;
        cond.visit(&mut |s| bad = bad.or(self.unknown(s)));
        if let Some(symbol) = bad {
            self.say(format!("{what} {cond} mentions {symbol}, which is not known there"));
        }
    }

    /// The symbol, where it is a size that has no value yet.
    fn unknown(&self, symbol: Symbol) -> Option<Symbol> {
        match symbol {
            Symbol::Size(n) if self.symbols.get(n as usize) != Some(&State::Visible) => Some(symbol),
            _ => None,
        }
    }

    fn only_sizes(&mut self, what: &str, sizes: &[Expr]) {
        if sizes.iter().any(|e| e.mentions(|s| !matches!(s, Symbol::Size(_)))) {
            self.say(format!("{what} {} mentions more than sizes", shape_text(sizes)));
        }
        for size in sizes {
            self.expr(what, size);
        }
    }

    fn declarations(&mut self) {
        let module = self.module;
        for (i, symbol) in module.symbols.iter().enumerate() {
            let wanted = match symbol.source {
                SymbolSource::Size { input, dim, scale, .. } => {
                    match module.inputs.get(input as usize).map(|i| &i.kind) {
                        Some(InputKind::Tensor { sizes, .. }) => (dim as usize) < sizes.len() && scale != 0,
                        _ => false,
                    }
                }
                SymbolSource::Int { input } => {
                    matches!(module.inputs.get(input as usize).map(|i| &i.kind), Some(InputKind::Int))
                }
                SymbolSource::Step => true,
            };
            if !wanted {
                self.say(format!("symbol s{i} comes from {:?}, which does not exist", symbol.source));
            }
            if symbol.source != SymbolSource::Step {
                self.symbols[i] = State::Visible;
            }
            if let Some(bound) = &symbol.bound {
                if bound.mentions(|s| !matches!(s, Symbol::Size(n) if (n as usize) < i)) {
                    self.say(format!("the bound {bound} of s{i} mentions more than earlier symbols"));
                }
            }
        }
        for input in &module.inputs {
            if let InputKind::Tensor { sizes, strides, .. } = &input.kind {
                self.only_sizes("a size of an input in", sizes);
                self.only_sizes("a stride of an input in", strides);
                if sizes.len() != strides.len() {
                    self.say(format!("input {} has {} sizes and {} strides", input.name, sizes.len(), strides.len()));
                }
            }
        }
        for state in &module.states {
            if state.dtype.is_complex() {
                self.say(format!("state {} is {}", state.name, state.dtype));
            }
            self.only_sizes("a size of a state in", &state.sizes);
            let bytes = (&Expr::product(&state.sizes) * state.dtype.size() as i64).as_int();
            if bytes.is_none_or(|n| n != state.initial.len() as i64) {
                let (name, shape) = (&state.name, shape_text(&state.sizes));
                self.say(format!("state {name} of {}{shape} begins as {} bytes", state.dtype, state.initial.len()));
            }
        }
    }

    fn define(&mut self, value: Value, scope: &mut Vec<Value>) {
        match self.defined.get(value.0 as usize) {
            None => self.say(format!("{value} does not exist")),
            Some(State::Never) => {
                self.defined[value.0 as usize] = State::Visible;
                scope.push(value);
                if self.module.graph.dtype(value).is_complex() {
                    self.say(format!("{value} is {}", self.module.graph.dtype(value)));
                }
                let module = self.module;
                self.only_sizes("the shape", module.graph.shape(value));
            }
            Some(_) => self.say(format!("{value} is defined twice")),
        }
    }

    fn define_symbol(&mut self, symbol: u32, scope: &mut Vec<u32>) {
        match self.symbols.get(symbol as usize) {
            None => self.say(format!("symbol s{symbol} does not exist")),
            Some(State::Never) => {
                self.symbols[symbol as usize] = State::Visible;
                scope.push(symbol);
            }
            Some(_) => self.say(format!("symbol s{symbol} is defined twice")),
        }
    }

    fn visible(&mut self, value: Value) -> bool {
        match self.defined.get(value.0 as usize) {
            Some(State::Visible) => return true,
            Some(State::Never) => self.say(format!("{value} is used before it is defined")),
            Some(State::Gone) => self.say(format!("{value} is used outside the block that defines it")),
            None => self.say(format!("{value} does not exist")),
        }
        false
    }

    fn block(&mut self, block: &'a Block, depth: usize) {
        if depth > DEPTH {
            return self.say("blocks are nested too deeply");
        }
        let outside = self.at;
        let (mut values, mut symbols) = (Vec::new(), Vec::new());
        for param in &block.params {
            self.define(*param, &mut values);
        }
        let mut effect = false;
        for id in &block.nodes {
            self.at = Some(*id);
            let module = self.module;
            match (module.graph.nodes.get(id.0 as usize), self.seen.get_mut(id.0 as usize)) {
                (Some(node), Some(seen)) if !*seen => {
                    *seen = true;
                    effect |= node.op.has_effect();
                    self.node(node, &mut values, &mut symbols, depth);
                }
                (Some(_), _) => self.say("the node stands in two places"),
                (None, _) => self.say("the node does not exist"),
            }
        }
        self.at = outside;
        for result in &block.results {
            self.visible(*result);
        }
        if effect != block.has_effect {
            self.say(format!("a block is said to have effects: {}, and has: {effect}", block.has_effect));
        }
        if depth > 0 {
            values.iter().for_each(|v| self.defined[v.0 as usize] = State::Gone);
            symbols.iter().for_each(|s| self.symbols[*s as usize] = State::Gone);
        }
    }

    fn node(&mut self, node: &'a Node, values: &mut Vec<Value>, symbols: &mut Vec<u32>, depth: usize) {
        let operands = node.operands.iter().filter(|v| !self.visible(**v)).count() == 0;
        self.expressions(&node.op);
        let at = self.at;
        for block in node.op.blocks() {
            self.block(block, depth + 1);
            self.at = at;
        }
        match &node.op {
            Op::Nonzero { symbol } | Op::Item { symbol } => self.define_symbol(*symbol, symbols),
            // Sizes that differ between the blocks are symbols of the node's own.
            Op::If { .. } | Op::IfCond { .. } => {
                for value in &node.results {
                    let Some(info) = self.module.graph.values.get(value.0 as usize) else { continue };
                    for size in &info.shape {
                        if let Some(Symbol::Size(n)) = size.as_symbol() {
                            if self.symbols.get(n as usize) == Some(&State::Never) {
                                self.define_symbol(n, symbols);
                            }
                        }
                    }
                }
            }
            _ => {}
        }
        for result in &node.results {
            self.define(*result, values);
        }
        let exist = node.results.iter().all(|v| (v.0 as usize) < self.module.graph.values.len());
        if operands && exist {
            let mut rule = Rule { module: self.module, node, faults: Vec::new() };
            rule.check();
            rule.faults.into_iter().for_each(|message| self.say(message));
            self.control(node);
        }
    }

    /// Symbols of sizes in the operation's own expressions.
    fn expressions(&mut self, op: &Op) {
        match op {
            Op::Iota(expr) => self.expr("the expression", expr),
            Op::Check { size, .. } => self.expr("the size", size),
            Op::Move { map, guard, .. } => {
                map.iter().for_each(|e| self.expr("the map", e));
                self.cond("the guard", guard);
            }
            Op::Scatter { map, .. } => map.iter().for_each(|e| self.expr("the map", e)),
            Op::Convolution(conv) => {
                conv.padding.iter().chain(&conv.padding_end).for_each(|e| self.expr("the padding", e));
            }
            Op::TopK { k, .. } => self.expr("k", k),
            Op::Require { cond, .. } | Op::IfCond { cond, .. } => self.cond("the condition", cond),
            _ => {}
        }
    }

    /// Whether the blocks of a node give what it says.
    fn control(&mut self, node: &Node) {
        let types = |values: &[Value]| -> Option<Vec<_>> {
            values.iter().map(|v| self.module.graph.values.get(v.0 as usize)).collect()
        };
        let fits = |a: &[Value], b: &[Value], shapes: bool| match (types(a), types(b)) {
            (Some(a), Some(b)) => {
                a.len() == b.len()
                    && a.iter().zip(&b).all(|(a, b)| {
                        a.dtype == b.dtype
                            && a.shape.len() == b.shape.len()
                            && (!shapes || compatible_shapes(&a.shape, &b.shape))
                    })
            }
            _ => false,
        };
        let faults: Vec<&str> = match &node.op {
            Op::If { then, otherwise } | Op::IfCond { then, otherwise, .. } => [
                (then.params.is_empty() && otherwise.params.is_empty(), "a branch has parameters"),
                (fits(&then.results, &node.results, false), "the first branch gives other values than the node"),
                (fits(&otherwise.results, &node.results, false), "the second branch gives other values than the node"),
            ]
            .iter()
            .filter(|(holds, _)| !holds)
            .map(|(_, text)| *text)
            .collect(),
            Op::While { test, body } => {
                let one = match types(&test.results).as_deref() {
                    Some([info]) => info.dtype.is_bool() && info.shape.is_empty(),
                    _ => false,
                };
                [
                    (one, "the test of a loop does not give one bool"),
                    (fits(&test.params, &node.operands, true), "the test takes other values than the loop carries"),
                    (fits(&body.params, &node.operands, true), "the body takes other values than the loop carries"),
                    (fits(&body.results, &node.operands, true), "the body gives other values than the loop carries"),
                    (fits(&node.results, &node.operands, true), "the loop gives other values than it carries"),
                ]
                .iter()
                .filter(|(holds, _)| !holds)
                .map(|(_, text)| *text)
                .collect()
            }
            _ => Vec::new(),
        };
        faults.into_iter().for_each(|text| self.say(text));
    }

    fn ends(&mut self) {
        self.at = None;
        let module = self.module;
        if !module.body.params.is_empty() || !module.body.results.is_empty() {
            self.say("the body has parameters or results");
        }
        for output in &module.outputs {
            let name = &output.name;
            match &output.kind {
                OutputKind::Tensor { value, dtype, strides } => {
                    if self.visible(*value) {
                        let info = module.graph.info(*value);
                        let rank = strides.len() + usize::from(dtype.is_complex());
                        if info.dtype != dtype.real() || info.shape.len() != rank {
                            let shape = shape_text(&info.shape);
                            self.say(format!("output {name} of {dtype}, rank {rank}, is {}{shape}", info.dtype));
                        }
                    }
                    self.only_sizes("a stride of an output in", strides);
                }
                OutputKind::Number(value) => {
                    if self.visible(*value) && !module.graph.shape(*value).is_empty() {
                        let shape = shape_text(module.graph.shape(*value));
                        self.say(format!("output {name}, a number, has shape {shape}"));
                    }
                }
                OutputKind::Int(expr) => self.expr("an output", expr),
                OutputKind::Bool(cond) => self.cond("an output", cond),
                OutputKind::Fixed(_) => {}
            }
        }
        for write in &module.writes {
            if !self.visible(write.value) {
                continue;
            }
            let info = module.graph.info(write.value);
            let wanted = match write.target {
                WriteTarget::State(n) => module.states.get(n as usize).map(|s| (s.dtype, s.sizes.clone())),
                WriteTarget::Input(n) => match module.inputs.get(n as usize).map(|i| &i.kind) {
                    Some(InputKind::Tensor { dtype, sizes, .. }) => {
                        let complex = dtype.is_complex().then(|| Expr::int(2));
                        Some((dtype.real(), sizes.iter().cloned().chain(complex).collect()))
                    }
                    _ => None,
                },
            };
            match wanted {
                None => self.say(format!("a write to {:?}, which does not exist", write.target)),
                Some((dtype, shape)) if dtype != info.dtype || !compatible_shapes(&shape, &info.shape) => {
                    let (own, wanted) = (shape_text(&info.shape), shape_text(&shape));
                    self.say(format!("a write of {}{own} to {:?}, {dtype}{wanted}", info.dtype, write.target));
                }
                Some(_) => {}
            }
        }
    }
}
