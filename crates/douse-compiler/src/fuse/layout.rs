//! Layouts: the strides of stored values, and views of them.

use douse_core::DType;
use douse_core::sym::{Expr, Ranges, Symbol};
use douse_ir::{Graph, InputKind, Module, NodeId, Op, OutputKind, Value};

/// The strides that each value has where it is stored; row-major where nothing else is said.
#[derive(Debug)]
pub struct Layouts {
    strides: Vec<Option<Vec<Expr>>>,
}

/// A stored value seen through strides, in elements of its buffer.
#[derive(Clone, Debug, PartialEq)]
pub struct Strided {
    pub value: Value,
    pub offset: Expr,
    pub strides: Vec<Expr>,
}

/// Row-major strides.
pub fn row_major(shape: &[Expr]) -> Vec<Expr> {
    let mut strides = vec![Expr::int(1); shape.len()];
    for d in (0..shape.len().saturating_sub(1)).rev() {
        strides[d] = &strides[d + 1] * &shape[d + 1];
    }
    strides
}

/// Strides of [batch, channels, ...] with the channels as the last dimension in memory.
fn channels_last(shape: &[Expr]) -> Vec<Expr> {
    let order: Vec<usize> = (0..shape.len().min(1)).chain(2..shape.len()).chain((1..shape.len()).take(1)).collect();
    permuted(shape, &order)
}

/// Orders of [batch, heads, length, head size] in memory after attention, whose heads are merged.
const HEADS_MERGE: [&[usize]; 2] = [&[0, 2, 1, 3], &[2, 0, 1, 3]];
/// Orders of rows in memory, where what follows numbers them in another.
const ROWS_CHANGE: [&[usize]; 6] =
    [&[1, 0, 2], &[0, 2, 1, 3], &[1, 0, 2, 3], &[1, 2, 0, 3], &[2, 0, 1, 3], &[2, 1, 0, 3]];

/// Operations that read memory through strides, so that a move before them costs nothing where it is a view.
pub fn takes_strides(op: &Op) -> bool {
    matches!(op, Op::MatMul | Op::Convolution(_) | Op::Attention { .. })
}

/// Strides of dimensions that follow each other in memory in this order, the last one's elements being neighbours.
fn permuted(shape: &[Expr], order: &[usize]) -> Vec<Expr> {
    let ordered: Vec<Expr> = order.iter().filter_map(|d| shape.get(*d).cloned()).collect();
    let mut strides = vec![Expr::int(0); shape.len()];
    order.iter().zip(row_major(&ordered)).for_each(|(d, stride)| strides[*d] = stride);
    strides
}

/// Strides of a value in the first of these orders with which all of the moves that read it are views.
fn suiting(graph: &Graph, value: Value, moves: &[NodeId], orders: &[&[usize]], ranges: &Ranges) -> Option<Vec<Expr>> {
    let shape = graph.shape(value);
    let found = orders.iter().filter(|order| order.len() == shape.len()).map(|order| permuted(shape, order));
    found.into_iter().find(|strides| moves.iter().all(|m| affine_move(graph, *m, strides, ranges).is_some()))
}

/// Whether strides give each element of a shape a place of its own, without gaps: those of a permuted row-major tensor.
pub fn is_dense(shape: &[Expr], strides: &[Expr]) -> bool {
    let mut dims: Vec<(&Expr, &Expr)> = shape.iter().zip(strides).filter(|(n, _)| !n.is_int(1)).collect();
    let mut expected = Expr::int(1);
    while !dims.is_empty() {
        let Some(i) = dims.iter().position(|(_, s)| **s == expected) else { return false };
        expected = &expected * dims[i].0;
        dims.remove(i);
    }
    true
}

/// Strides of the real value of a complex tensor with these strides.
pub fn real_strides(strides: &[Expr], complex: bool) -> Vec<Expr> {
    if !complex {
        return strides.to_vec();
    }
    strides.iter().map(|s| s * 2).chain([Expr::int(1)]).collect()
}

impl Layouts {
    /// Inputs lie as the program was exported with; outputs as PyTorch returns them, where that is dense; results of library operations so
    /// that their readers can look at them without a copy, and images in 16-bit floats with their channels last.
    pub fn choose(module: &Module, definitions: &[Option<NodeId>], ranges: &Ranges) -> Layouts {
        let graph = &module.graph;
        let mut layouts = Layouts { strides: vec![None; graph.values.len()] };
        let mut readers: Vec<Vec<NodeId>> = vec![Vec::new(); graph.values.len()];
        for (i, node) in graph.nodes.iter().enumerate() {
            for operand in &node.operands {
                readers[operand.0 as usize].push(NodeId(i as u32));
            }
        }
        // Moves that nothing but operations which look at memory reads.
        let is_looked_at = |id: NodeId| {
            let node = graph.node(id);
            let own = node.results.first().map_or(&[][..], |r| &readers[r.0 as usize]);
            matches!(node.op, Op::Move { .. })
                && !own.is_empty()
                && own.iter().all(|r| takes_strides(&graph.node(*r).op))
        };
        for node in &graph.nodes {
            let Some(result) = node.results.first() else { continue };
            match &node.op {
                Op::Input(i) => {
                    if let Some(InputKind::Tensor { dtype, strides, .. }) =
                        module.inputs.get(*i as usize).map(|d| &d.kind)
                    {
                        layouts.strides[result.0 as usize] = Some(real_strides(strides, dtype.is_complex()));
                    }
                }
                Op::Attention { .. } => {
                    let moves = &readers[result.0 as usize];
                    if !moves.is_empty() {
                        layouts.strides[result.0 as usize] = suiting(graph, *result, moves, &HEADS_MERGE, ranges);
                    }
                }
                op if op.is_elementwise() && !matches!(op, Op::Move { .. }) => {
                    let moves: Vec<NodeId> =
                        readers[result.0 as usize].iter().copied().filter(|m| is_looked_at(*m)).collect();
                    let fits = |m: &NodeId| affine_move(graph, *m, &row_major(graph.shape(*result)), ranges).is_some();
                    if !moves.iter().all(fits) {
                        layouts.strides[result.0 as usize] = suiting(graph, *result, &moves, &ROWS_CHANGE, ranges);
                    }
                }
                _ => {}
            }
        }
        for output in &module.outputs {
            if let OutputKind::Tensor { value, dtype, strides } = &output.kind {
                let strides = real_strides(strides, dtype.is_complex());
                let slot = &mut layouts.strides[value.0 as usize];
                // A mask's coordinates are written before their count is known.
                let fixed = |op: &Op| matches!(op, Op::Input(_) | Op::State(_) | Op::Constant(_) | Op::Nonzero { .. });
                let leaf = definitions[value.0 as usize].is_none_or(|n| fixed(&graph.node(n).op));
                if slot.is_none() && !leaf && is_dense(graph.shape(*value), &strides) {
                    *slot = Some(strides);
                }
            }
        }
        layouts.channels_last(graph, definitions);
        layouts
    }

    /// Images in 16-bit floats that convolutions make, and what is computed from them point by point, have their channels last: tensor cores
    /// take elements that are neighbours along the channels. What has a layout already keeps it.
    fn channels_last(&mut self, graph: &Graph, definitions: &[Option<NodeId>]) {
        let mut last = vec![false; graph.values.len()];
        for node in &graph.nodes {
            let Some(result) = node.results.first() else { continue };
            let shape = graph.shape(*result);
            let is_last = |value: &Value| last[value.0 as usize];
            let same_channels = |map: &[Expr]| (0..2).all(|d| map.get(d).and_then(Expr::as_loop) == Some(d));
            let half = matches!(graph.dtype(*result), DType::F16 | DType::BF16);
            let suits = shape.len() >= 3
                && match &node.op {
                    Op::Convolution(_) => half,
                    Op::Move { map, .. } => node.operands.first().is_some_and(is_last) && same_channels(map),
                    Op::Reduce { dims, .. } => {
                        node.operands.first().is_some_and(is_last) && dims.iter().all(|d| *d >= 2)
                    }
                    op => op.is_elementwise() && node.operands.iter().any(|v| is_last(v) && graph.shape(*v) == shape),
                };
            if suits {
                last[result.0 as usize] = true;
                self.strides[result.0 as usize].get_or_insert_with(|| channels_last(shape));
            }
            // Filters that are constants, each read as one value alone, lie as the image does; an output channel's are neighbours.
            if let (Op::Convolution(convolution), [image, filters, ..]) = (&node.op, node.operands.as_slice())
                && let Some(Op::Constant(i)) = definitions[filters.0 as usize].map(|n| &graph.node(n).op)
                && graph.nodes.iter().filter(|n| matches!(&n.op, Op::Constant(other) if other == i)).count() == 1
            {
                let (filters, shape, last) = (filters.0 as usize, graph.shape(*filters), last[image.0 as usize]);
                if convolution.transposed && convolution.groups == 1 {
                    self.strides[filters].get_or_insert_with(|| output_first(shape, last));
                } else if half && last {
                    self.strides[filters].get_or_insert_with(|| channels_last(shape));
                }
            }
        }
    }

    pub fn strides(&self, graph: &Graph, value: Value) -> Vec<Expr> {
        match self.strides.get(value.0 as usize) {
            Some(Some(strides)) => strides.clone(),
            _ => row_major(graph.shape(value)),
        }
    }

    /// The element's place in the buffer of a stored value.
    pub fn linear(&self, graph: &Graph, value: Value, at: &[Expr], ranges: &Ranges) -> Expr {
        let strides = self.strides(graph, value);
        let sum = at.iter().zip(&strides).fold(Expr::int(0), |sum, (i, s)| &sum + &(i * s));
        sum.simplify(ranges)
    }
}

/// Strides of a transposed convolution's filters [in, out, ...] where the output channels are outermost; the input channels come next, or last.
fn output_first(shape: &[Expr], channels_last: bool) -> Vec<Expr> {
    let mut order: Vec<usize> = (2..shape.len()).collect();
    order.insert(if channels_last { order.len() } else { 0 }, 0);
    let mut strides = vec![Expr::int(0); shape.len()];
    let mut apart = Expr::int(1);
    for d in order.into_iter().rev().chain([1]) {
        strides[d] = apart.clone();
        apart = &apart * &shape[d];
    }
    strides
}

/// Strides of a move's result over its operand's strides, where every coordinate counts linearly: (offset, strides).
pub fn affine_move(graph: &Graph, node: NodeId, strides: &[Expr], ranges: &Ranges) -> Option<(Expr, Vec<Expr>)> {
    let node = graph.node(node);
    let Op::Move { map, guard, .. } = &node.op else { return None };
    if guard.as_bool() != Some(true) || node.operands.len() != 1 {
        return None;
    }
    let shape = graph.shape(*node.results.first()?);
    let scope = ranges.with_loops(shape);
    let linear = map.iter().zip(strides).fold(Expr::int(0), |sum, (i, s)| &sum + &(i * s)).simplify(&scope);
    let mut rest = linear;
    let mut result = Vec::with_capacity(shape.len());
    for d in 0..shape.len() {
        let (coefficient, without) = rest.affine(Symbol::Loop(d as u32))?;
        if coefficient.mentions_loops() {
            return None;
        }
        result.push(coefficient);
        rest = without;
    }
    (!rest.mentions_loops()).then_some((rest, result))
}
