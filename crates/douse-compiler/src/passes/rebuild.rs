//! Writes a module anew, node by node, with a say in each.
//!
//! The new module's values and nodes are numbered in the order they stand, and what no block holds is gone. What is said of a
//! node is said with its operands already those of the new module, so that rewrites see what earlier ones made.

use std::collections::BTreeMap;

use douse_core::sym::{Expr, Symbol};
use douse_core::{DType, Error, Result};
use douse_ir::{Block, Builder, Graph, InputKind, Module, Node, NodeId, OutputKind, Value};

use super::symbols::substitute;

/// A value's dtype and shape.
pub(crate) type Info = (DType, Vec<Expr>);

/// What becomes of a node.
pub(crate) enum Action {
    Keep,
    /// It goes; nothing reads its results.
    Drop,
    /// These values of the new module take the place of its results.
    Replace(Vec<Value>),
    /// As `Replace`, and the symbol that it defined is this expression.
    ReplaceSymbol(Vec<Value>, u32, Expr),
    /// The nodes of its block of that number stand in its place. The block's results must be of the node's own dtypes and shapes.
    Inline(usize),
}

/// What else there is to know about a node.
pub(crate) struct Place {
    /// The node's number in the old module.
    pub id: NodeId,
    /// What its results are in the new module.
    pub infos: Vec<Info>,
    /// What the results of each of its blocks are.
    pub given: Vec<Vec<Info>>,
}

pub(crate) trait Visit {
    /// Whether the node of that number in the old module goes, before its operands, which may be gone, are looked at.
    fn gone(&self, _id: NodeId) -> bool {
        false
    }

    /// `node` has the new module's operands, but old blocks and results.
    fn node(&mut self, builder: &mut Builder, node: &Node, place: &Place) -> Result<Action>;

    /// A node was kept and has these results.
    fn kept(&mut self, _node: &Node, _infos: &[Info], _results: &[Value]) {}

    /// A block begins or ends.
    fn enter(&mut self) {}
    fn leave(&mut self) {}
}

/// # Errors
/// What `visit` fails with; a value that is read though its node was dropped.
pub(crate) fn rebuild(module: &mut Module, visit: &mut dyn Visit) -> Result<()> {
    let mut taken = std::mem::take(module);
    let old = std::mem::take(&mut taken.graph);
    let body = std::mem::take(&mut taken.body);
    let map = vec![None; old.values.len()];
    let mut state = State { old, map, symbols: BTreeMap::new(), builder: Builder::new(taken), visit };
    state.nodes(&body)?;
    let State { map, symbols, builder, .. } = state;
    *module = builder.finish();
    let mapped = |value: Value| lookup(&map, value);
    let with = |symbol: Symbol| replaced(&symbols, symbol);
    for output in &mut module.outputs {
        match &mut output.kind {
            OutputKind::Tensor { value, strides, .. } => {
                *value = mapped(*value)?;
                strides.iter_mut().for_each(|s| *s = s.substitute(&with));
            }
            OutputKind::Number(value) => *value = mapped(*value)?,
            OutputKind::Int(expr) => *expr = expr.substitute(&with),
            OutputKind::Bool(cond) => *cond = cond.substitute(&with),
            OutputKind::Fixed(_) => {}
        }
    }
    for write in &mut module.writes {
        write.value = mapped(write.value)?;
    }
    if !symbols.is_empty() {
        let bounds = module.symbols.iter_mut().filter_map(|s| s.bound.as_mut());
        bounds.for_each(|bound| *bound = bound.substitute(&with));
    }
    debug_assert!(module.inputs.iter().all(|i| match &i.kind {
        InputKind::Tensor { sizes, .. } => sizes.iter().all(|s| s.substitute(&with) == *s),
        _ => true,
    }));
    Ok(())
}

/// Does nothing but leave out nodes.
pub(crate) fn without(module: &mut Module, gone: &dyn Fn(NodeId) -> bool) -> Result<()> {
    struct Filter<'a>(&'a dyn Fn(NodeId) -> bool);
    impl Visit for Filter<'_> {
        fn gone(&self, id: NodeId) -> bool {
            (self.0)(id)
        }

        fn node(&mut self, _: &mut Builder, _: &Node, _: &Place) -> Result<Action> {
            Ok(Action::Keep)
        }
    }
    rebuild(module, &mut Filter(gone))
}

struct State<'a> {
    old: Graph,
    map: Vec<Option<Value>>,
    symbols: BTreeMap<u32, Expr>,
    builder: Builder,
    visit: &'a mut dyn Visit,
}

fn lookup(map: &[Option<Value>], value: Value) -> Result<Value> {
    map.get(value.0 as usize)
        .copied()
        .flatten()
        .ok_or_else(|| Error::internal(format!("{value} is read but was removed")))
}

fn replaced(symbols: &BTreeMap<u32, Expr>, symbol: Symbol) -> Option<Expr> {
    match symbol {
        Symbol::Size(n) => symbols.get(&n).cloned(),
        _ => None,
    }
}

impl State<'_> {
    fn values(&self, values: &[Value]) -> Result<Vec<Value>> {
        values.iter().map(|v| lookup(&self.map, *v)).collect()
    }

    /// The dtype and shape of an old value in the new module.
    fn info(&self, value: Value) -> Info {
        let info = self.old.info(value);
        let with = |symbol: Symbol| replaced(&self.symbols, symbol);
        let shape = match self.symbols.is_empty() {
            true => info.shape.clone(),
            false => info.shape.iter().map(|s| s.substitute(&with)).collect(),
        };
        (info.dtype, shape)
    }

    fn set(&mut self, old: &[Value], new: &[Value]) -> Result<()> {
        if old.len() != new.len() {
            return Err(Error::internal(format!("{} values take the place of {}", new.len(), old.len())));
        }
        for (old, new) in old.iter().zip(new) {
            self.map[old.0 as usize] = Some(*new);
        }
        Ok(())
    }

    fn nodes(&mut self, block: &Block) -> Result<()> {
        for id in &block.nodes {
            if self.visit.gone(*id) {
                continue;
            }
            let mut node = self.old.node(*id).clone();
            node.operands = self.values(&node.operands)?;
            if !self.symbols.is_empty() {
                substitute(&mut node.op, &|symbol| replaced(&self.symbols, symbol));
            }
            self.builder.origin = node.origin;
            let infos = |values: &[Value]| values.iter().map(|v| self.info(*v)).collect::<Vec<_>>();
            let given = node.op.blocks().iter().map(|b| infos(&b.results)).collect();
            let place = Place { id: *id, infos: infos(&node.results), given };
            match self.visit.node(&mut self.builder, &node, &place)? {
                Action::Keep => self.keep(node, place.infos)?,
                Action::Drop => {}
                Action::Replace(values) => self.set(&node.results, &values)?,
                Action::ReplaceSymbol(values, symbol, expr) => {
                    self.set(&node.results, &values)?;
                    self.symbols.insert(symbol, expr);
                }
                Action::Inline(number) => {
                    let Some(block) = node.op.blocks().get(number).map(|b| (*b).clone()) else {
                        return Err(Error::internal(format!("there is no block {number}")));
                    };
                    self.nodes(&block)?;
                    let results = self.values(&block.results)?;
                    self.set(&node.results, &results)?;
                }
            }
        }
        Ok(())
    }

    fn keep(&mut self, mut node: Node, infos: Vec<Info>) -> Result<()> {
        for block in node.op.blocks_mut() {
            let params: Vec<_> = block.params.iter().map(|v| self.info(*v)).collect();
            let new = self.builder.open_block(&params);
            self.set(&block.params, &new)?;
            self.visit.enter();
            self.nodes(block)?;
            self.visit.leave();
            let results = self.values(&block.results)?;
            *block = self.builder.close_block(results);
        }
        self.builder.origin = node.origin;
        let results = self.builder.push(node.op.clone(), node.operands.clone(), infos.clone());
        self.set(&node.results, &results)?;
        self.visit.kept(&node, &infos, &results);
        Ok(())
    }
}
