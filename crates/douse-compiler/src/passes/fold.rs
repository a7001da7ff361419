//! Constant folding: what depends on constants alone is computed when lowering.

use std::collections::BTreeSet;

use douse_core::bytes::Bytes;
use douse_core::sym::{Expr, Symbol};
use douse_core::{Error, Result};
use douse_ir::{Block, Builder, Constant, Module, Node, NodeId, Op, Value};

use super::Context;
use super::rebuild::{Action, Place, Visit, rebuild};
use super::symbols::visit;

/// Computes values of a module that depend on its constants alone.
pub trait Evaluate {
    /// The bytes of each value, dense in row-major order.
    ///
    /// # Errors
    /// Where a value cannot be computed.
    fn evaluate(&self, module: &Module, values: &[Value]) -> Result<Vec<Bytes>>;
}

/// Folded constants of more bytes than this would weigh more than what they save.
const LARGEST: i64 = 1 << 20;

/// How much larger than the constants it replaces a folded one may be.
const GROWTH: i64 = 4;

/// Folded constants of so few bytes need replace none.
const SMALL: i64 = 256;

/// Replaces the last values that depend on constants alone by constants of their own. State is never one: the program writes it.
/// A chain of moves stays, as reading through it costs nothing; so does what repeats elements.
pub(super) fn fold(module: &mut Module, context: &mut Context<'_>) -> Result<()> {
    let Some(evaluator) = context.evaluator else { return Ok(()) };
    let constants = Constants::of(module);
    let mut nodes = constants.last(module);
    nodes.truncate(usize::try_from(context.left()).unwrap_or(usize::MAX));
    if nodes.is_empty() {
        return Ok(());
    }
    let values: Vec<Value> = nodes.iter().flat_map(|id| module.graph.node(*id).results.iter().copied()).collect();
    let bytes = evaluator.evaluate(module, &values)?;
    if bytes.len() != values.len() {
        return Err(Error::internal(format!("{} values were asked for and {} given", values.len(), bytes.len())));
    }
    context.count += nodes.len() as u64;
    rebuild(module, &mut Folded { nodes, bytes: bytes.into_iter() })
}

struct Folded {
    nodes: Vec<NodeId>,
    bytes: std::vec::IntoIter<Bytes>,
}

impl Visit for Folded {
    fn node(&mut self, builder: &mut Builder, _: &Node, place: &Place) -> Result<Action> {
        if !self.nodes.contains(&place.id) {
            return Ok(Action::Keep);
        }
        let mut values = Vec::new();
        for ((dtype, shape), bytes) in place.infos.iter().zip(&mut self.bytes) {
            let constants = &mut builder.module.constants;
            let number = constants.len() as u32;
            let mut name = format!("folded.{number}");
            while constants.iter().any(|c| c.name == name) {
                name.push('_');
            }
            constants.push(Constant { name, bytes });
            values.push(builder.constant(number, *dtype, shape.clone()));
        }
        Ok(Action::Replace(values))
    }
}

/// What is known of a value that depends on constants alone.
#[derive(Clone)]
struct Known {
    /// Constants that it depends on.
    of: BTreeSet<u32>,
    /// Whether it is more than a move of constants.
    computed: bool,
}

struct Constants {
    known: Vec<Option<Known>>,
}

impl Constants {
    fn of(module: &Module) -> Constants {
        let mut constants = Constants { known: vec![None; module.graph.values.len()] };
        for id in &module.body.nodes {
            let node = module.graph.node(*id);
            if let Some(known) = constants.node(module, node) {
                for result in &node.results {
                    constants.known[result.0 as usize] = Some(known.clone());
                }
            }
        }
        constants
    }

    fn node(&self, module: &Module, node: &Node) -> Option<Known> {
        let mut known = Known { of: BTreeSet::new(), computed: false };
        match &node.op {
            Op::Full(_) | Op::Iota(_) => {}
            Op::Constant(n) => drop(known.of.insert(*n)),
            op if foldable(op) => {
                known.computed = !matches!(op, Op::Move { .. });
                for operand in &node.operands {
                    let other = self.known[operand.0 as usize].as_ref()?;
                    known.of.extend(&other.of);
                    known.computed |= other.computed;
                }
            }
            _ => return None,
        }
        let mut fixed = true;
        visit(&node.op, &mut |s| fixed &= !matches!(s, Symbol::Size(_)));
        let bytes = |value: &Value| {
            let info = module.graph.info(*value);
            (&Expr::product(&info.shape) * info.dtype.size() as i64).as_int()
        };
        let size: i64 = node.results.iter().map(bytes).try_fold(0i64, |sum, b| sum.checked_add(b?))?;
        let source = matches!(node.op, Op::Constant(_) | Op::Full(_) | Op::Iota(_));
        let replaced: i64 = known.of.iter().map(|n| module.constants[*n as usize].bytes.len() as i64).sum();
        let repeats = matches!(node.op, Op::Move { .. }) && size > bytes(node.operands.first()?)?;
        let small = size <= LARGEST && size <= SMALL.max(replaced.saturating_mul(GROWTH)) && !repeats;
        (fixed && (source || small)).then_some(known)
    }

    /// Computed nodes that something reads which is not constant, in the order they run.
    fn last(&self, module: &Module) -> Vec<NodeId> {
        let mut read = vec![false; self.known.len()];
        module.roots().for_each(|v| read[v.0 as usize] = true);
        self.reads(module, &module.body, &mut read);
        let wanted = |id: &NodeId| {
            let results = &module.graph.node(*id).results;
            results
                .iter()
                .any(|v| read[v.0 as usize] && self.known[v.0 as usize].as_ref().is_some_and(|known| known.computed))
        };
        module.body.nodes.iter().copied().filter(wanted).collect()
    }

    fn reads(&self, module: &Module, block: &Block, read: &mut [bool]) {
        for id in &block.nodes {
            let node = module.graph.node(*id);
            let constant = node.results.first().is_some_and(|v| self.known[v.0 as usize].is_some());
            if !constant {
                node.operands.iter().for_each(|v| read[v.0 as usize] = true);
            }
            for inner in node.op.blocks() {
                self.reads(module, inner, read);
            }
        }
        block.results.iter().for_each(|v| read[v.0 as usize] = true);
    }
}

/// Operations that always give the same, never fail, and read nothing but their operands.
fn foldable(op: &Op) -> bool {
    matches!(
        op,
        Op::Unary(_)
            | Op::Binary(_)
            | Op::Select
            | Op::Cast
            | Op::Bitcast
            | Op::Move { .. }
            | Op::Concat { .. }
            | Op::Scatter { .. }
            | Op::Reduce { .. }
            | Op::ArgReduce { .. }
            | Op::Scan { .. }
            | Op::ArgScan { .. }
            | Op::MatMul
            | Op::Convolution(_)
            | Op::Sort { .. }
            | Op::TopK { .. }
            | Op::SearchSorted { .. }
    )
}
