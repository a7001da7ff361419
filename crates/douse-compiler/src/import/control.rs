//! Control flow: branches and loops over graphs.
//!
//! A branch sees the tensors of the graph around it, and what it makes is seen nowhere else. Storages that a branch writes become
//! results of the branch: the other gives what the storage held before.

use std::collections::BTreeMap;

use douse_core::sym::{Cond, Expr, Symbol};
use douse_core::{DType, Error, Result, Scalar};
use douse_ir::{Block, Op, Value};
use douse_pt2::{Argument, Graph, Sym};

use super::args::{Args, Val};
use super::host::{condition, condition_value};
use super::importer::{Importer, Row};

pub const ROWS: &[Row] = &[
    ("higher_order.cond", cond),
    ("higher_order.while_loop", while_loop),
    ("higher_order.run_const_graph", inline),
    ("higher_order.wrap_with_set_grad_enabled", inline),
    ("higher_order.wrap_with_autocast", inline_autocast),
    ("higher_order.invoke_subgraph", inline),
    ("higher_order.wrap", inline),
    ("higher_order.strict_mode", inline),
    ("higher_order.tag_activation_checkpoint", inline),
    ("higher_order.wrap_activation_checkpoint", inline),
];

/// A result of a branch or an iteration: a value, and what kind of the program's values it stands for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    /// Of this dtype of the program, perhaps complex.
    Tensor(DType),
    Int,
    Float,
    Bool,
    None,
}

impl Kind {
    /// A carried value as the program's.
    fn bind(self, imp: &mut Importer, value: Option<Value>) -> Result<Val> {
        let Some(value) = value else { return Ok(Val::None) };
        Ok(match self {
            Kind::Tensor(dtype) => Val::Tensor(imp.new_tensor(value, dtype)),
            Kind::Int => {
                let name = format!("carried_{}", imp.b.module.symbols.len());
                let symbol = imp.b.new_symbol(&name, None, None, None);
                imp.b.item(value, symbol)?;
                Val::Int(Expr::symbol(Symbol::Size(symbol)))
            }
            Kind::Float => Val::SymFloat(value),
            Kind::Bool => Val::BoolValue(value),
            Kind::None => Val::None,
        })
    }
}

/// What the program's value is as a carried one.
fn carried(imp: &mut Importer, a: &Args, val: &Val) -> Result<(Kind, Option<Value>)> {
    Ok(match val {
        Val::Tensor(t) => (Kind::Tensor(imp.dtype_of(*t)), Some(imp.read(*t)?)),
        Val::Int(e) => (Kind::Int, Some(imp.b.size_value(e.clone()))),
        Val::Float(f) => {
            let value = imp.b.full(DType::F64, vec![], Scalar::Float(*f));
            (Kind::Float, Some(value))
        }
        Val::SymFloat(v) => (Kind::Float, Some(*v)),
        Val::Bool(_) | Val::SymBool(_) | Val::BoolValue(_) => (Kind::Bool, Some(condition_value(imp, a, val)?)),
        Val::None => (Kind::None, None),
        _ => return Err(a.unsupported("a result that is neither tensor nor number")),
    })
}

/// The operands of a higher-order operator: tensors and numbers, lists flattened.
fn flattened<'a>(values: impl Iterator<Item = &'a Val>) -> Vec<Val> {
    let mut all = Vec::new();
    for value in values {
        match value {
            Val::List(list) => all.extend(list.iter().cloned()),
            other => all.push(other.clone()),
        }
    }
    all
}

pub(super) fn graph_at(a: &Args, at: usize) -> Result<&Graph> {
    match a.values.get(at) {
        Some((_, Val::Graph(graph))) => Ok(graph),
        _ => Err(Error::invalid_program(format!("{}: operand {at} is not a graph", a.target))),
    }
}

/// Imports a graph's nodes with its inputs bound to these values, and gives its outputs.
pub(super) fn run(imp: &mut Importer, a: &Args, graph: &Graph, inputs: &[Val]) -> Result<Vec<Val>> {
    if graph.inputs.len() != inputs.len() {
        let (own, given) = (graph.inputs.len(), inputs.len());
        return Err(Error::invalid_program(format!("{}: a graph of {own} inputs gets {given}", a.target)));
    }
    let outside = (std::mem::take(&mut imp.env), imp.place.clone(), imp.b.origin, imp.symbols.clone());
    for (input, value) in graph.inputs.iter().zip(inputs) {
        if let Some(name) = input_name(input) {
            imp.env.insert(name.to_string(), value.clone());
        }
    }
    let outputs = imp
        .nodes(graph)
        .and_then(|()| graph.outputs.iter().map(|output| imp.output(output)).collect::<Result<Vec<_>>>())
        .map(|outputs| flattened(outputs.iter()));
    (imp.env, imp.place, imp.b.origin, imp.symbols) = outside;
    outputs
}

fn input_name(input: &Argument) -> Option<&str> {
    match input {
        Argument::Tensor(name)
        | Argument::SymInt(Sym::Name(name))
        | Argument::SymFloat(Sym::Name(name))
        | Argument::SymBool(Sym::Name(name)) => Some(name),
        _ => None,
    }
}

/// A graph that simply runs: the operands after it are its inputs, but for the name that `invoke_subgraph` gives.
fn inline(imp: &mut Importer, a: &Args) -> Result<Val> {
    let at = a.values.iter().position(|(_, v)| matches!(v, Val::Graph(_)));
    let at = at.ok_or_else(|| Error::invalid_program(format!("{} without a graph", a.target)))?;
    let graph = graph_at(a, at)?.clone();
    let inputs = flattened(a.values.iter().skip(at + 1).map(|(_, v)| v).filter(|v| !matches!(v, Val::Str(_))));
    run(imp, a, &graph, &inputs).map(Val::List)
}

/// A region with autocast on or off, for the CPU; see `autocast.rs`.
fn inline_autocast(imp: &mut Importer, a: &Args) -> Result<Val> {
    let argument = |at: usize| a.values.get(at).map(|(_, val)| val);
    let inside = match (argument(0), argument(1), argument(2)) {
        (_, _, Some(Val::Bool(false))) => None,
        (Some(Val::Str(device)), Some(Val::DType(dtype)), Some(Val::Bool(true))) if device == "cpu" => Some(*dtype),
        (Some(Val::Str(device)), Some(Val::None), Some(Val::Bool(true))) if device == "cpu" => Some(DType::BF16),
        _ => return Err(a.unsupported("a region with autocast on for another device than the CPU")),
    };
    let outside = std::mem::replace(&mut imp.autocast, inside);
    let results = inline(imp, a);
    imp.autocast = outside;
    results
}

/// A branch that was imported.
struct Branch {
    block: Block,
    results: Vec<(Kind, Option<Value>)>,
    /// What it left in storages of the outside.
    written: BTreeMap<usize, Value>,
}

fn branch(imp: &mut Importer, a: &Args, graph: &Graph, inputs: &[Val]) -> Result<Branch> {
    let before: Vec<(Value, u32)> = imp.storages.iter().map(|s| (s.root, s.version)).collect();
    let start = imp.scope_start();
    imp.b.open_block(&[]);
    let results = run(imp, a, graph, inputs)
        .and_then(|outputs| outputs.iter().map(|val| carried(imp, a, val)).collect::<Result<Vec<_>>>());
    let block = imp.b.close_block(vec![]);
    imp.close_scope(start);
    let mut written = BTreeMap::new();
    for (i, (root, version)) in before.into_iter().enumerate() {
        if imp.storages[i].version != version {
            written.insert(i, imp.storages[i].root);
            // A version of its own, so that nothing read in the branch is taken for what the storage holds.
            let next = imp.storages[i].version + 1;
            (imp.storages[i].root, imp.storages[i].version) = (root, next);
        }
    }
    Ok(Branch { block, results: results?, written })
}

fn cond(imp: &mut Importer, a: &Args) -> Result<Val> {
    let predicate = a.values.first().map(|(_, v)| v.clone());
    let predicate = predicate.ok_or_else(|| Error::invalid_program("cond without a predicate"))?;
    let (then, otherwise) = (graph_at(a, 1)?.clone(), graph_at(a, 2)?.clone());
    let inputs = flattened(a.values.iter().skip(3).map(|(_, v)| v));
    let on_device = match &predicate {
        Val::Tensor(_) | Val::BoolValue(_) => Some(condition_value(imp, a, &predicate)?),
        _ => None,
    };
    let on_host = match on_device {
        Some(_) => Cond::Bool(true),
        None => condition(imp, a, &predicate)?.simplify(imp.b.ranges()),
    };
    if let (None, Some(known)) = (on_device, on_host.as_bool()) {
        return run(imp, a, if known { &then } else { &otherwise }, &inputs).map(Val::List);
    }
    let known = imp.b.module.symbols.len();
    // Both are imported before either's fault counts, so that all that is unsupported is listed.
    let (then, otherwise) = (branch(imp, a, &then, &inputs), branch(imp, a, &otherwise, &inputs));
    let (mut then, mut otherwise) = (then?, otherwise?);
    if then.results.len() != otherwise.results.len() {
        return Err(Error::invalid_program("the branches of cond have different numbers of results"));
    }
    let mut kinds = Vec::new();
    for ((kind, x), (_, y)) in then.results.iter().zip(&otherwise.results) {
        kinds.push((*kind, x.is_some()));
        match (x, y) {
            (Some(x), Some(y)) => {
                then.block.results.push(*x);
                otherwise.block.results.push(*y);
            }
            (None, None) => {}
            _ => return Err(a.unsupported("a result that only one branch has")),
        }
    }
    let mut storages: Vec<usize> = then.written.keys().chain(otherwise.written.keys()).copied().collect();
    storages.sort_unstable();
    storages.dedup();
    for i in &storages {
        let old = imp.storages[*i].root;
        then.block.results.push(then.written.get(i).copied().unwrap_or(old));
        otherwise.block.results.push(otherwise.written.get(i).copied().unwrap_or(old));
    }
    let types = joined_types(imp, a, known, &then.block.results, &otherwise.block.results)?;
    let values = match on_device {
        Some(value) => imp.b.push(Op::If { then: then.block, otherwise: otherwise.block }, vec![value], types),
        None => {
            let op = Op::IfCond { cond: on_host, then: then.block, otherwise: otherwise.block };
            imp.b.push(op, vec![], types)
        }
    };
    let mut values = values.into_iter();
    let mut results = Vec::new();
    for (kind, some) in kinds {
        let value = if some { values.next() } else { None };
        results.push(kind.bind(imp, value)?);
    }
    for (i, value) in storages.into_iter().zip(values) {
        imp.storages[i].root = value;
        imp.storages[i].version += 1;
    }
    Ok(Val::List(results))
}

/// The most that a size of a branch can be, where that follows from the first `known` symbols.
fn bound(imp: &Importer, known: usize, size: &Expr) -> Option<Expr> {
    let outside = |e: &Expr| !e.mentions(|s| matches!(s, Symbol::Size(n) if n as usize >= known));
    if outside(size) {
        return Some(size.clone());
    }
    match size.as_symbol() {
        Some(Symbol::Size(n)) => imp.b.module.symbols.get(n as usize)?.bound.clone().filter(outside),
        _ => None,
    }
}

/// The dtypes and shapes of a branch node's results: where the branches' sizes differ, symbols that the node defines. `known` symbols
/// were there before the branches.
fn joined_types(
    imp: &mut Importer,
    a: &Args,
    known: usize,
    xs: &[Value],
    ys: &[Value],
) -> Result<Vec<(DType, Vec<Expr>)>> {
    let mut symbols: BTreeMap<(Expr, Expr), Expr> = BTreeMap::new();
    let mut types = Vec::new();
    for (x, y) in xs.iter().zip(ys) {
        let (dtype, sx, sy) = (imp.b.dtype(*x), imp.b.shape(*x).to_vec(), imp.b.shape(*y).to_vec());
        if dtype != imp.b.dtype(*y) || sx.len() != sy.len() {
            return Err(a.unsupported("branches whose results differ in dtype or rank"));
        }
        let mut shape = Vec::new();
        for (p, q) in sx.into_iter().zip(sy) {
            if p == q {
                shape.push(p);
                continue;
            }
            let size = symbols.entry((p.clone(), q.clone())).or_insert_with(|| {
                let name = format!("branch_{}", imp.b.module.symbols.len());
                let bound = bound(imp, known, &p).zip(bound(imp, known, &q)).map(|(p, q)| p.maximum(&q));
                let symbol = imp.b.new_symbol(&name, Some(0), None, bound);
                Expr::symbol(Symbol::Size(symbol))
            });
            shape.push(size.clone());
        }
        types.push((dtype, shape));
    }
    Ok(types)
}

pub(super) fn list_at(a: &Args, at: usize) -> Vec<Val> {
    flattened(a.values.get(at).map(|(_, v)| v).into_iter())
}

/// `test` and `body` take the carried values, then what both only read.
fn while_loop(imp: &mut Importer, a: &Args) -> Result<Val> {
    let (test, body) = (graph_at(a, 0)?.clone(), graph_at(a, 1)?.clone());
    let (initial, extra) = (list_at(a, 2), list_at(a, 3));
    let initial = beginning(imp, a, &initial)?;
    let types = types_of(imp, &initial);
    let kinds: Vec<Kind> = initial.iter().map(|(k, _)| *k).collect();
    let with_extra = |inputs: Vec<Val>| [inputs, extra.clone()].concat();
    let test = iteration(imp, a, &kinds, &types, |imp, inputs| {
        let outputs = run(imp, a, &test, &with_extra(inputs))?;
        let [one] = outputs.as_slice() else {
            return Err(Error::invalid_program("the test of a loop has other results"));
        };
        Ok(vec![condition_value(imp, a, one)?])
    });
    let body = iteration(imp, a, &kinds, &types, |imp, inputs| {
        let outputs = run(imp, a, &body, &with_extra(inputs))?;
        next_round(imp, a, &outputs, &types)
    });
    // Both are imported before either's fault counts, so that all that is unsupported is listed.
    finished(imp, (test?, body?), &initial, types).map(Val::List)
}

/// A block over the carried values. It may not write what is outside.
pub(super) fn iteration(
    imp: &mut Importer,
    a: &Args,
    kinds: &[Kind],
    types: &[(DType, Vec<Expr>)],
    body: impl FnOnce(&mut Importer, Vec<Val>) -> Result<Vec<Value>>,
) -> Result<Block> {
    let versions: Vec<u32> = imp.storages.iter().map(|s| s.version).collect();
    let start = imp.scope_start();
    let params = imp.b.open_block(types);
    let bind = |imp: &mut Importer| -> Result<Vec<Val>> {
        kinds.iter().zip(&params).map(|(kind, param)| kind.bind(imp, Some(*param))).collect()
    };
    let results = match bind(imp).and_then(|inputs| body(imp, inputs)) {
        Ok(results) => results,
        Err(error) => {
            imp.b.close_block(vec![]);
            imp.close_scope(start);
            return Err(error);
        }
    };
    let block = imp.b.close_block(results);
    imp.close_scope(start);
    if draws(imp, &block) {
        return Err(a.unsupported("a loop that draws random numbers, the same in each round,"));
    }
    if imp.storages.iter().zip(&versions).any(|(s, version)| s.version != *version) {
        return Err(a.unsupported("a loop that writes a tensor of the outside"));
    }
    Ok(block)
}

/// What is carried to the next round, which must be of these types.
pub(super) fn next_round(
    imp: &mut Importer,
    a: &Args,
    outputs: &[Val],
    types: &[(DType, Vec<Expr>)],
) -> Result<Vec<Value>> {
    if outputs.len() != types.len() {
        return Err(Error::invalid_program("the body of a loop has another number of results"));
    }
    let mut values = Vec::new();
    for (output, (dtype, shape)) in outputs.iter().zip(types) {
        let (_, value) = carried(imp, a, output)?;
        let value = value.ok_or_else(|| a.unsupported("a carried value that is neither tensor nor number"))?;
        let own = imp.b.shape(value).to_vec();
        if imp.b.dtype(value) != *dtype || own.len() != shape.len() {
            return Err(a.unsupported("a carried value that changes its dtype or rank"));
        }
        for (own, size) in own.iter().zip(shape) {
            if own.as_int().zip(size.as_int()).is_some_and(|(x, y)| x != y) {
                return Err(a.unsupported("a carried value that changes its shape"));
            }
            imp.b.require_equal(own, size, "the sizes of a loop's carried value");
        }
        values.push(value);
    }
    Ok(values)
}

/// Values that a loop begins with, and what they stand for.
pub(super) fn beginning(imp: &mut Importer, a: &Args, all: &[Val]) -> Result<Vec<(Kind, Value)>> {
    all.iter()
        .map(|val| match carried(imp, a, val)? {
            (kind, Some(value)) => Ok((kind, value)),
            _ => Err(a.unsupported("a carried value that is neither tensor nor number")),
        })
        .collect()
}

/// The loop: its carried values when the test fails.
pub(super) fn finished(
    imp: &mut Importer,
    blocks: (Block, Block),
    initial: &[(Kind, Value)],
    types: Vec<(DType, Vec<Expr>)>,
) -> Result<Vec<Val>> {
    let operands = initial.iter().map(|(_, v)| *v).collect();
    let values = imp.b.push(Op::While { test: blocks.0, body: blocks.1 }, operands, types);
    initial.iter().zip(values).map(|((kind, _), value)| kind.bind(imp, Some(value))).collect()
}

pub(super) fn types_of(imp: &Importer, values: &[(Kind, Value)]) -> Vec<(DType, Vec<Expr>)> {
    values.iter().map(|(_, v)| (imp.b.dtype(*v), imp.b.shape(*v).to_vec())).collect()
}

/// Whether a block draws random numbers. A draw is of a place in the program, so that every round of a loop would draw the same.
fn draws(imp: &Importer, block: &Block) -> bool {
    block.nodes.iter().any(|id| {
        let op = &imp.b.module.graph.node(*id).op;
        matches!(op, Op::Random { .. }) || op.blocks().iter().any(|inner| draws(imp, inner))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use douse_ir::{Builder, Module};

    #[test]
    fn a_draw_in_a_branch_of_a_loop_is_found() {
        let mut imp = Importer::new(Builder::new(Module::default()));
        imp.b.open_block(&[]);
        imp.b.open_block(&[]);
        let without = imp.b.close_block(vec![]);
        imp.b.open_block(&[]);
        imp.b.random(vec![], 1);
        let with = imp.b.close_block(vec![]);
        assert!(!draws(&imp, &without));
        imp.b.push(Op::IfCond { cond: Cond::Bool(true), then: without, otherwise: with }, vec![], vec![]);
        let body = imp.b.close_block(vec![]);
        assert!(draws(&imp, &body));
    }
}
