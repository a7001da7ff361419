//! Concatenations that are computed where they are read: rotary embeddings, for instance, turn a vector's halves and go on point by point.

use douse_core::pointwise::Binary;
use douse_core::sym::{Compare, Cond, Expr};
use douse_core::{Result, Scalar};
use douse_ir::{Block, Builder, Module, Node, NodeId, Op, coordinates};

use super::Context;
use super::rebuild::{Action, Place, Visit, rebuild};

/// More parts than these are sooner written side by side.
const MOST_PARTS: usize = 4;
/// More readers than these sooner read a copy than choose at every point.
const MOST_READERS: u32 = 2;

/// concat(a, b) along d = select(i_d < size(a), a[i], b[i - size(a)])
///
/// where nothing but kernels reads it: what a library step reads, or what is returned, is written there part by part.
pub(super) fn join(module: &mut Module, context: &mut Context<'_>) -> Result<()> {
    let joined = joined(module);
    if joined.is_empty() {
        return Ok(());
    }
    rebuild(module, &mut State { joined, context })
}

/// The concatenations that become selections, ascending.
fn joined(module: &Module) -> Vec<NodeId> {
    let graph = &module.graph;
    let mut readers = vec![0u32; graph.values.len()];
    let mut elsewhere = vec![false; graph.values.len()];
    for node in &graph.nodes {
        let kernel = node.op.is_elementwise() || matches!(node.op, Op::Reduce { .. } | Op::ArgReduce { .. });
        for operand in &node.operands {
            readers[operand.0 as usize] += 1;
            elsewhere[operand.0 as usize] |= !kernel;
        }
    }
    module.roots().for_each(|root| elsewhere[root.0 as usize] = true);
    results(module, &module.body, &mut elsewhere);
    let suits = |node: &Node| {
        let result = node.results.first().map_or(usize::MAX, |r| r.0 as usize);
        matches!(node.op, Op::Concat { .. })
            && (2..=MOST_PARTS).contains(&node.operands.len())
            && elsewhere.get(result) == Some(&false)
            && readers.get(result).is_some_and(|count| (1..=MOST_READERS).contains(count))
    };
    (0u32..).zip(&graph.nodes).filter(|(_, node)| suits(node)).map(|(number, _)| NodeId(number)).collect()
}

/// Notes what blocks give back.
fn results(module: &Module, block: &Block, noted: &mut [bool]) {
    block.results.iter().for_each(|value| noted[value.0 as usize] = true);
    for id in &block.nodes {
        module.graph.node(*id).op.blocks().iter().for_each(|inner| results(module, inner, noted));
    }
}

struct State<'a, 'b> {
    joined: Vec<NodeId>,
    context: &'a mut Context<'b>,
}

impl Visit for State<'_, '_> {
    fn node(&mut self, builder: &mut Builder, node: &Node, place: &Place) -> Result<Action> {
        let Op::Concat { dim } = node.op else { return Ok(Action::Keep) };
        let Some((_, shape)) = place.infos.first() else { return Ok(Action::Keep) };
        if self.joined.binary_search(&place.id).is_err() || !self.context.may() {
            return Ok(Action::Keep);
        }
        let (shape, along) = (shape.clone(), Expr::loop_var(dim));
        let mut start = Expr::int(0);
        let mut parts = Vec::with_capacity(node.operands.len());
        for operand in &node.operands {
            let end = &start + &builder.shape(*operand)[dim];
            let inside = Cond::compare(Compare::Ge, &along, &start).and(&Cond::compare(Compare::Lt, &along, &end));
            let mut map = coordinates(shape.len());
            map[dim] = &along - &start;
            parts.push((builder.move_(*operand, &[], shape.clone(), map, inside, Scalar::Int(0))?, end.clone()));
            start = end;
        }
        let Some((mut value, _)) = parts.pop() else { return Ok(Action::Keep) };
        for (part, end) in parts.into_iter().rev() {
            let (position, end) = (builder.iota(shape.clone(), along.clone()), builder.iota(shape.clone(), end));
            let before = builder.binary(Binary::Lt, position, end)?;
            value = builder.select(before, part, value)?;
        }
        self.context.done();
        Ok(Action::Replace(vec![value]))
    }
}
