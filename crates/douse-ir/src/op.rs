//! The core operations: a closed set, each with its meaning here, its shape and dtype rule in `build/`.

use douse_core::Scalar;
use douse_core::pointwise::{Binary, Combine, Unary};
use douse_core::sym::{Cond, Expr};
use douse_program::library::Linalg;

use crate::graph::Block;

/// In the rules, `x[i]` is the element of `x` at coordinates `i0, i1, ...` of the result.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    // Sources. No operands.
    /// The method's input of that number, dense in row-major order of its sizes (the plan knows the layout it really has).
    Input(u32),
    /// The value that the state of that number has when the call begins.
    State(u32),
    Constant(u32),
    /// One number everywhere.
    Full(Scalar),
    /// The int64 value of an expression over the coordinates and the symbols.
    Iota(Expr),
    /// 32 random bits as int64: word `word` of the Philox block that belongs to draw `draw` and the element's number.
    Random {
        draw: u32,
        word: u8,
    },

    // Pointwise. Operands have the result's shape.
    Unary(Unary),
    Binary(Binary),
    /// Operands: condition (bool), then, otherwise.
    Select,
    /// To the result's dtype, by value.
    Cast,
    /// To the result's dtype, of the same size, by bits.
    Bitcast,
    /// An int64 index, wrapped if negative (where `wrap`) and checked to lie in [0, size): outside, the call fails with that message.
    Check {
        size: Expr,
        wrap: bool,
        message: u32,
    },

    // Moves. The first operand is data of any shape, the others are int64 indices of the result's shape.
    /// `x[map]` where `guard` holds, else `fill`. `map` has an expression for each dimension of the data, over the coordinates, the
    /// symbols, and `v0, v1, ...`: the elements of the first, second, ... index at the coordinates.
    Move {
        map: Vec<Expr>,
        guard: Cond,
        fill: Scalar,
    },
    /// Operands one after the other along a dimension.
    Concat {
        dim: usize,
    },

    /// Operands: base, source, indices of the source's shape. The base, with `base[map]` set to (or combined with) `source[i]` for every i
    /// in row-major order. `map` as in `Move`, over the source's coordinates; always within the base.
    Scatter {
        map: Vec<Expr>,
        combine: Option<Combine>,
    },

    // Reductions over the dimensions `dims` (ascending), which the result lacks.
    Reduce {
        op: Combine,
        dims: Vec<usize>,
    },
    /// Two results: the extreme, and its int64 position in row-major order of the reduced dimensions. First of equals; NaN wins.
    ArgReduce {
        max: bool,
        dims: Vec<usize>,
    },

    // Scans along a dimension, each element including itself.
    Scan {
        op: Combine,
        dim: usize,
    },
    /// Two results: running extreme and its int64 position along the dimension. Of equals the last; NaN wins.
    ArgScan {
        max: bool,
        dim: usize,
    },

    // Contractions.
    /// `[..., m, k] x [..., k, n] -> [..., m, n]` with equal leading sizes. float16 and bfloat16 accumulate in float32,
    /// and the result is of the operands' dtype, or float32.
    MatMul,
    /// Operands: input, weight, and perhaps a bias.
    Convolution(Box<Convolution>),
    /// Operands: query, key, value, and perhaps a mask: [batch, heads, length, head size], mask [batch, heads, queries, keys], sizes 1 broadcast.
    Attention {
        scale: f64,
        causal: bool,
    },
    /// Operands: query, key, value, cu_seq_q, cu_seq_k.
    VarlenAttention {
        scale: f64,
        window: (i64, i64),
    },

    // Order and search along the last dimension.
    /// Two results: values, int64 positions. Stable, NaN the largest.
    Sort {
        descending: bool,
    },
    /// Two results, of `k` along the last dimension: the largest or smallest, best first, and their positions.
    TopK {
        k: Expr,
        largest: bool,
    },
    /// Operands: sorted sequences, values.
    SearchSorted {
        right: bool,
    },

    Linalg(Linalg),
    /// Operands: rows, int64 offsets [segments + 1].
    SegmentReduce {
        op: Combine,
        mean: bool,
        initial: Option<f64>,
    },

    // Host. What these define or check is known to the host only after the device has computed the operand.
    /// Rows of coordinates of a mask's true elements, int64 [symbol, rank]; defines the symbol.
    Nonzero {
        symbol: u32,
    },
    /// Reads the one element of an integer or bool operand into a symbol. No result.
    Item {
        symbol: u32,
    },
    /// The call fails with that message unless the operand, one bool, is true. No result.
    Assert {
        message: u32,
    },
    /// The call fails with that message unless the condition on symbols holds. Neither operand nor result.
    Require {
        cond: Cond,
        message: u32,
    },

    // Control. Blocks see all values before them.
    /// Operand: one bool. The results of the block that is chosen, which have equal dtypes and ranks. Where the blocks' sizes differ, the results'
    /// are symbols that the node defines.
    If {
        then: Block,
        otherwise: Block,
    },
    /// As `If`, by a condition on symbols. No operand.
    IfCond {
        cond: Cond,
        then: Block,
        otherwise: Block,
    },
    /// Operands: initial values of the carried ones. `test` and `body` take the carried values as parameters; `test` gives one bool, `body` the
    /// next values. Results: the last values.
    While {
        test: Block,
        body: Block,
    },
}

/// See [`douse_program::library::Convolution`].
#[derive(Clone, Debug, PartialEq)]
pub struct Convolution {
    pub stride: Vec<i64>,
    pub padding: Vec<Expr>,
    /// Zeros after the last element of each spatial dimension.
    pub padding_end: Vec<Expr>,
    pub dilation: Vec<i64>,
    pub groups: i64,
    pub transposed: bool,
    pub output_padding: Vec<i64>,
}

impl Convolution {
    /// The size of the result's spatial dimension `d`, for the sizes of the input and of the weight.
    pub fn out_size(&self, d: usize, input: &Expr, kernel: &Expr) -> Expr {
        let reach = &(kernel - 1) * self.dilation[d];
        let pads = &self.padding[d] + &self.padding_end[d];
        if self.transposed {
            &(&(&(&(input - 1) * self.stride[d]) - &pads) + &reach) + (self.output_padding[d] + 1)
        } else {
            (&(input + &pads) - &(&reach + 1)).floor_div(&Expr::int(self.stride[d])) + 1
        }
    }
}

impl Op {
    /// The first word of the text form.
    pub fn name(&self) -> &'static str {
        match self {
            Op::Input(_) => "input",
            Op::State(_) => "state",
            Op::Constant(_) => "constant",
            Op::Full(_) => "full",
            Op::Iota(_) => "iota",
            Op::Random { .. } => "random",
            Op::Unary(op) => op.name(),
            Op::Binary(op) => op.name(),
            Op::Select => "select",
            Op::Cast => "cast",
            Op::Bitcast => "bitcast",
            Op::Check { .. } => "check",
            Op::Move { .. } => "move",
            Op::Concat { .. } => "concat",
            Op::Scatter { .. } => "scatter",
            Op::Reduce { .. } => "reduce",
            Op::ArgReduce { .. } => "argreduce",
            Op::Scan { .. } => "scan",
            Op::ArgScan { .. } => "argscan",
            Op::MatMul => "matmul",
            Op::Convolution(_) => "convolution",
            Op::Attention { .. } => "attention",
            Op::VarlenAttention { .. } => "varlen_attention",
            Op::Sort { .. } => "sort",
            Op::TopK { .. } => "topk",
            Op::SearchSorted { .. } => "searchsorted",
            Op::Linalg(_) => "linalg",
            Op::SegmentReduce { .. } => "segment_reduce",
            Op::Nonzero { .. } => "nonzero",
            Op::Item { .. } => "item",
            Op::Assert { .. } => "assert",
            Op::Require { .. } => "require",
            Op::If { .. } => "if",
            Op::IfCond { .. } => "if_cond",
            Op::While { .. } => "while",
        }
    }

    /// Whether it can make a call fail or defines a symbol, so that it stays where no value of it is used.
    pub fn has_effect(&self) -> bool {
        match self {
            Op::Assert { .. } | Op::Require { .. } | Op::Item { .. } | Op::Nonzero { .. } => true,
            Op::If { then, otherwise, .. } | Op::IfCond { then, otherwise, .. } => {
                then.has_effect || otherwise.has_effect
            }
            Op::While { test, body } => test.has_effect || body.has_effect,
            _ => false,
        }
    }

    /// Whether an element of the result is a scalar function of elements of the operands at known places: what fusion can compute on the fly.
    pub fn is_elementwise(&self) -> bool {
        matches!(
            self,
            Op::Full(_)
                | Op::Iota(_)
                | Op::Random { .. }
                | Op::Unary(_)
                | Op::Binary(_)
                | Op::Select
                | Op::Cast
                | Op::Bitcast
                | Op::Check { .. }
                | Op::Move { .. }
        )
    }

    pub fn blocks(&self) -> Vec<&Block> {
        match self {
            Op::If { then, otherwise } | Op::IfCond { then, otherwise, .. } => vec![then, otherwise],
            Op::While { test, body } => vec![test, body],
            _ => Vec::new(),
        }
    }

    pub fn blocks_mut(&mut self) -> Vec<&mut Block> {
        match self {
            Op::If { then, otherwise } | Op::IfCond { then, otherwise, .. } => vec![then, otherwise],
            Op::While { test, body } => vec![test, body],
            _ => Vec::new(),
        }
    }
}
