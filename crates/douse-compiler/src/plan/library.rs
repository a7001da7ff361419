//! Library steps: operands as strided views.

use douse_core::sym::Expr;
use douse_core::{Error, Result};
use douse_ir::{Node, Op, Value};
use douse_program::library::{Attention, Convolution, Library, VarlenAttention, View};

use super::Planner;
use crate::fuse::fate::Fate;
use crate::fuse::layout::affine_move;

impl Planner<'_> {
    /// A value as a view of its buffer, or of the buffer of what it moves.
    fn view(&mut self, value: Value) -> Result<View> {
        let graph = &self.module.graph;
        let sizes = graph.shape(value).to_vec();
        if self.fates.of(value) != Fate::Inline {
            let strides = self.layouts.strides(graph, value);
            return Ok(View { buffer: self.buffer(value), offset: Expr::int(0), sizes, strides });
        }
        let id = self.definitions[value.0 as usize].ok_or_else(|| Error::internal("a view of nothing"))?;
        let data = *graph.node(id).operands.first().ok_or_else(|| Error::internal("a view of nothing"))?;
        let strides = self.layouts.strides(graph, data);
        let (offset, strides) = affine_move(graph, id, &strides, &self.ranges)
            .ok_or_else(|| Error::internal(format!("{value} is neither stored nor a view")))?;
        Ok(View { buffer: self.buffer(data), offset, sizes, strides })
    }

    pub(super) fn library(&mut self, node: &Node) -> Result<Library> {
        let mut inputs = Vec::with_capacity(node.operands.len());
        for operand in &node.operands {
            inputs.push(self.view(*operand)?);
        }
        let mut outputs = Vec::with_capacity(node.results.len());
        for result in &node.results {
            let strides = self.layouts.strides(&self.module.graph, *result);
            let sizes = self.module.graph.shape(*result).to_vec();
            outputs.push(View { buffer: self.buffer(*result), offset: Expr::int(0), sizes, strides });
        }
        let mut inputs = inputs.into_iter();
        let mut outputs = outputs.into_iter();
        let missing = || Error::internal(format!("{} lacks an operand", node.op.name()));
        let mut input = || inputs.next().ok_or_else(missing);
        let mut output = || outputs.next().ok_or_else(missing);
        Ok(match &node.op {
            Op::MatMul => Library::MatMul { a: input()?, b: input()?, out: output()? },
            Op::Convolution(conv) => Library::Convolution(Box::new(Convolution {
                input: input()?,
                weight: input()?,
                bias: input().ok(),
                out: output()?,
                stride: conv.stride.clone(),
                padding: conv.padding.clone(),
                dilation: conv.dilation.clone(),
                groups: conv.groups,
                transposed: conv.transposed,
            })),
            Op::Attention { scale, causal } => {
                let (query, key, value, mask, out) = (input()?, input()?, input()?, input().ok(), output()?);
                // Mask sizes of 1 repeat.
                let wanted = [&query.sizes[0], &query.sizes[1], &query.sizes[2], &key.sizes[2]];
                let mask = mask.map(|mut mask| {
                    for (d, size) in wanted.into_iter().enumerate() {
                        if mask.sizes[d].is_int(1) && !size.is_int(1) {
                            mask.sizes[d] = size.clone();
                            mask.strides[d] = Expr::int(0);
                        }
                    }
                    mask
                });
                Library::Attention(Box::new(Attention { query, key, value, mask, out, scale: *scale, causal: *causal }))
            }
            Op::VarlenAttention { scale, window } => Library::VarlenAttention(Box::new(VarlenAttention {
                query: input()?,
                key: input()?,
                value: input()?,
                cu_seq_q: input()?,
                cu_seq_k: input()?,
                out: output()?,
                scale: *scale,
                window: *window,
            })),
            Op::Sort { descending } => {
                Library::Sort { input: input()?, values: output()?, indices: output()?, descending: *descending }
            }
            Op::TopK { largest, .. } => {
                Library::TopK { input: input()?, values: output()?, indices: output()?, largest: *largest }
            }
            Op::SearchSorted { right } => {
                Library::SearchSorted { sorted: input()?, values: input()?, out: output()?, right: *right }
            }
            Op::Nonzero { symbol } => {
                let mask = input()?;
                let mut out = output()?;
                out.sizes[0] = Expr::product(&mask.sizes);
                Library::Nonzero { mask, out, symbol: *symbol }
            }
            Op::Linalg(kind) => Library::Linalg {
                kind: *kind,
                inputs: std::iter::from_fn(|| input().ok()).collect(),
                outputs: std::iter::from_fn(|| output().ok()).collect(),
            },
            Op::SegmentReduce { op, mean, initial } => Library::SegmentReduce {
                op: *op,
                src: input()?,
                offsets: input()?,
                out: output()?,
                initial: *initial,
                mean: *mean,
            },
            other => return Err(Error::internal(format!("{} is not a library operation", other.name()))),
        })
    }
}
