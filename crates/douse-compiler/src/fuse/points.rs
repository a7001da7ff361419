//! What is computed from a product's result point by point: it can be done while the results are in registers, as the product's epilogue.
//!
//! A value is *at the points* of a product if it is computed element by element from the product's result and from what is there before the
//! product. Where something else than such a value reads one, it is stored: so chains end there, and what reads it sees memory. Where something
//! else reads the result itself, the result is stored, and nothing is gained: no value is at its points.

use douse_core::sym::{Expr, Ranges};
use douse_ir::{Graph, NodeId, Op, Value};

use super::fate::widens;
use super::layout::{affine_move, row_major, takes_strides};

#[derive(Debug)]
pub struct Points {
    /// For each value the result of the product at whose points it is computed.
    of: Vec<Option<Value>>,
    /// Ends of chains.
    stored: Vec<bool>,
    /// Results of products that something else reads too.
    shared: Vec<bool>,
}

impl Points {
    /// No value is at the points of any product.
    pub fn none(graph: &Graph) -> Points {
        let n = graph.values.len();
        Points { of: vec![None; n], stored: vec![false; n], shared: vec![false; n] }
    }

    /// `results_elsewhere`: what is needed beside the nodes that read it.
    pub fn find(
        graph: &Graph,
        definitions: &[Option<NodeId>],
        ranges: &Ranges,
        results_elsewhere: impl IntoIterator<Item = Value>,
    ) -> Points {
        let mut points = Points::none(graph);
        let heights = heights(graph);
        for value in results_elsewhere {
            points.shared[value.0 as usize] = true;
        }
        // First what is shared is found, then the ends; then what reads them is at no points for their sake.
        for round in 0..3 {
            if round == 1 {
                points.stored.fill(false);
            }
            for (number, node) in graph.nodes.iter().enumerate() {
                let at = points.node(graph, definitions, &heights, ranges, NodeId(number as u32));
                if let (Some(result), true) = (node.results.first(), node.op.is_elementwise()) {
                    points.of[result.0 as usize] = at;
                }
            }
        }
        points
    }

    /// The result of the product at whose points a value is computed.
    pub fn of(&self, value: Value) -> Option<Value> {
        self.of[value.0 as usize]
    }

    /// Whether the value must be stored: what reads it is not at the same points.
    pub fn is_end(&self, value: Value) -> bool {
        self.stored[value.0 as usize]
    }

    /// The points of an elementwise node's result; ends the chains that do not go on there.
    fn node(
        &mut self,
        graph: &Graph,
        definitions: &[Option<NodeId>],
        heights: &[u32],
        ranges: &Ranges,
        id: NodeId,
    ) -> Option<Value> {
        let node = graph.node(id);
        let goes_on = match &node.op {
            Op::Move { .. } => is_reshape(graph, id, ranges),
            op => op.is_elementwise(),
        };
        let origin = |points: &Points, operand: Value| match definitions[operand.0 as usize] {
            Some(by) if is_product(&graph.node(by).op) => (!points.shared[operand.0 as usize]).then_some((by, operand)),
            _ if points.is_end(operand) => None,
            _ => points.of(operand).and_then(|result| Some((definitions[result.0 as usize]?, result))),
        };
        let latest = node.operands.iter().filter_map(|o| origin(self, *o)).max_by_key(|(by, _)| by.0);
        let latest = latest.filter(|(by, result)| {
            let others = node.operands.iter().filter(|o| origin(self, **o).map(|(_, r)| r) != Some(*result));
            goes_on && others.into_iter().all(|o| heights[o.0 as usize] < by.0)
        });
        for operand in &node.operands {
            let carried = origin(self, *operand).map(|(_, result)| result) == latest.map(|(_, result)| result);
            let operand = if carried { operand } else { &looked_at(graph, definitions, ranges, &node.op, *operand) };
            if !carried && self.of(*operand).is_some() {
                self.stored[operand.0 as usize] = true;
            }
            if !carried && origin(self, *operand).is_some_and(|(_, result)| result == *operand) {
                self.shared[operand.0 as usize] = true;
            }
        }
        latest.map(|(_, result)| result)
    }
}

/// The value whose memory a node reads for an operand: library operations look through reshapes, and what is a wider form of a value is
/// made where that is read.
fn looked_at(graph: &Graph, definitions: &[Option<NodeId>], ranges: &Ranges, op: &Op, operand: Value) -> Value {
    match (op, definitions[operand.0 as usize]) {
        (op, Some(id)) if takes_strides(op) && is_reshape(graph, id, ranges) => {
            graph.node(id).operands.first().copied().unwrap_or(operand)
        }
        (_, Some(id)) if widens(graph, graph.node(id)) => graph.node(id).operands.first().copied().unwrap_or(operand),
        _ => operand,
    }
}

fn is_product(op: &Op) -> bool {
    matches!(op, Op::MatMul | Op::Convolution(_))
}

/// For each value the last node, of those that are not elementwise, that it is computed from.
fn heights(graph: &Graph) -> Vec<u32> {
    let mut heights = vec![0; graph.values.len()];
    // Nodes are numbered in the order they were built, so operands come first.
    for (number, node) in graph.nodes.iter().enumerate() {
        let height = match &node.op {
            // There before any step.
            Op::Input(_) | Op::State(_) | Op::Constant(_) => 0,
            op if op.is_elementwise() => node.operands.iter().map(|o| heights[o.0 as usize]).max().unwrap_or(0),
            _ => number as u32,
        };
        node.results.iter().for_each(|r| heights[r.0 as usize] = height);
    }
    heights
}

/// Whether a move keeps all elements in their row-major order.
fn is_reshape(graph: &Graph, id: NodeId, ranges: &Ranges) -> bool {
    let node = graph.node(id);
    let (Some(data), Some(result)) = (node.operands.first(), node.results.first()) else { return false };
    let (from, to) = (graph.shape(*data), graph.shape(*result));
    let Some((offset, strides)) = affine_move(graph, id, &row_major(from), ranges) else { return false };
    let kept = strides.iter().zip(row_major(to)).zip(to).all(|((own, wanted), size)| size.is_int(1) || *own == wanted);
    offset.is_int(0) && kept && Expr::product(from) == Expr::product(to)
}
