//! Library steps: what a loop nest expresses badly, as one step over strided views.

use douse_core::DType;
use douse_core::pointwise::Combine;
use douse_core::sym::{Expr, Ranges};
use serde::{Deserialize, Serialize};

use crate::plan::BufferId;

/// A strided tensor in a buffer; strides and offset count elements. A stride of 0 repeats.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct View {
    pub buffer: BufferId,
    pub offset: Expr,
    pub sizes: Vec<Expr>,
    pub strides: Vec<Expr>,
}

impl View {
    /// Where an element lies, by a loop for each dimension.
    pub fn at_loops(&self) -> Expr {
        let dims = self.sizes.iter().zip(&self.strides).enumerate().filter(|(_, (size, _))| !size.is_int(1));
        let sum = dims.fold(self.offset.clone(), |sum, (d, (_, stride))| &sum + &(&Expr::loop_var(d) * stride));
        let mut ranges = Ranges::new();
        ranges.set_loops(&self.sizes);
        sum.simplify(&ranges)
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Library {
    /// `out[..., m, n] = sum_k a[..., m, k] * b[..., k, n]`. All three have the same leading sizes, the operands one dtype, and `out` has it too
    /// ([`holds_products`]). float16 and bfloat16 accumulate in float32 and round once; integers wrap.
    MatMul {
        a: View,
        b: View,
        out: View,
    },
    Convolution(Box<Convolution>),
    Attention(Box<Attention>),
    /// Along the last dimension, stable; NaN is the largest. `values` and `indices` (int64) have the input's sizes.
    Sort {
        input: View,
        values: View,
        indices: View,
        descending: bool,
    },
    /// The `k` largest (or smallest) along the last dimension, best first; equals in index order. k is the last size of `values`.
    TopK {
        input: View,
        values: View,
        indices: View,
        largest: bool,
    },
    /// Coordinates of the true elements of a bool `mask` of any rank, in row-major order, as int64 rows of `out` [numel, rank] (its first
    /// `count` rows are written); `symbol` gets the count.
    Nonzero {
        mask: View,
        out: View,
        symbol: u32,
    },
    /// For each value the first position in the sorted last dimension of `sorted` where it could stand (after equals if `right`).
    /// `sorted` has the leading sizes of `values`, or is one row for all. `out` is int64.
    SearchSorted {
        sorted: View,
        values: View,
        out: View,
        right: bool,
    },
    /// Linear algebra on the last two dimensions (float32, float64).
    Linalg {
        kind: Linalg,
        inputs: Vec<View>,
        outputs: Vec<View>,
    },
    /// Attention over packed sequences.
    VarlenAttention(Box<VarlenAttention>),
    /// Sums (or another combination) of the rows of `src` into the rows that `offsets` delimit; kept for segment_reduce.
    SegmentReduce {
        op: Combine,
        src: View,
        offsets: View,
        out: View,
        initial: Option<f64>,
        mean: bool,
    },
}

/// Whether the result of a product of operands of this dtype can be of dtype `out`: of their own, or of the one that 16-bit floats
/// accumulate in.
pub fn holds_products(out: DType, operands: DType) -> bool {
    let wide = out == DType::F32 && matches!(operands, DType::F16 | DType::BF16);
    !operands.is_bool() && (out == operands || wide)
}

impl Library {
    /// The views of the step: those it reads, then those it writes.
    pub fn views(&self) -> (Vec<&View>, Vec<&View>) {
        match self {
            Library::MatMul { a, b, out } => (vec![a, b], vec![out]),
            Library::Convolution(c) => ([&c.input, &c.weight].into_iter().chain(&c.bias).collect(), vec![&c.out]),
            Library::Attention(a) => ([&a.query, &a.key, &a.value].into_iter().chain(&a.mask).collect(), vec![&a.out]),
            Library::Sort { input, values, indices, .. } | Library::TopK { input, values, indices, .. } => {
                (vec![input], vec![values, indices])
            }
            Library::Nonzero { mask, out, .. } => (vec![mask], vec![out]),
            Library::SearchSorted { sorted, values, out, .. } => (vec![sorted, values], vec![out]),
            Library::Linalg { inputs, outputs, .. } => (inputs.iter().collect(), outputs.iter().collect()),
            Library::VarlenAttention(a) => (vec![&a.query, &a.key, &a.value, &a.cu_seq_q, &a.cu_seq_k], vec![&a.out]),
            Library::SegmentReduce { src, offsets, out, .. } => (vec![src, offsets], vec![out]),
        }
    }

    /// The buffers of the step: those it reads, then those it writes.
    pub fn buffers(&self) -> (Vec<BufferId>, Vec<BufferId>) {
        let ids = |views: Vec<&View>| views.into_iter().map(|v| v.buffer).collect();
        let (read, written) = self.views();
        (ids(read), ids(written))
    }
}

/// `out[n, o, y...] = bias[o] + sum over c, k of input[n, c, y*stride - padding + k*dilation] * weight[o, c, k]` in groups, in 1 to
/// 3 spatial dimensions; with `transposed`, its adjoint, and `weight` is [c, o/groups, k...].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Convolution {
    pub input: View,
    pub weight: View,
    pub bias: Option<View>,
    pub out: View,
    pub stride: Vec<i64>,
    /// Zeros before the first element of each spatial dimension. (What stands after the last follows from the sizes.)
    pub padding: Vec<Expr>,
    pub dilation: Vec<i64>,
    pub groups: i64,
    pub transposed: bool,
}

/// `softmax(q @ k^T * scale + mask) @ v` on [batch, heads, length, head size]; keys and values may have fewer heads, which divide
/// the queries'. Softmax in float32 (float64 for float64), minus the row's maximum; a row with no key allowed gives zeros.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Attention {
    pub query: View,
    pub key: View,
    pub value: View,
    /// bool (true: takes part) or of the query's dtype (added), of sizes [batch, heads, queries, keys] with strides of 0 where broadcast.
    pub mask: Option<View>,
    pub out: View,
    pub scale: f64,
    /// Query i sees keys 0..=i.
    pub causal: bool,
}

/// Attention within each of the sequences that `cu_seq_q` and `cu_seq_k` (int32 or int64, [sequences + 1]) delimit, on [tokens, heads, head size].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VarlenAttention {
    pub query: View,
    pub key: View,
    pub value: View,
    pub cu_seq_q: View,
    pub cu_seq_k: View,
    pub out: View,
    pub scale: f64,
    /// Keys seen before and after the diagonal that ends at the last key; -1: all.
    pub window: (i64, i64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Linalg {
    /// [n, n] -> []
    Det,
    /// [n, n] -> sign [], log of the absolute determinant []
    Slogdet,
    /// [n, n] -> [n, n]
    Inverse,
    /// [n, n], [n, k] -> [n, k]
    Solve,
    /// [n, n] -> lower [n, n]
    Cholesky,
    /// symmetric [n, n] (lower part read) -> ascending values [n], vectors [n, n]
    Eigh,
    /// [m, n] -> u [m, min], s [min], vh [min, n]
    Svd,
    /// [m, n] -> q [m, min], r [min, n]
    Qr,
    /// [n, n] -> [n, n]
    MatrixExp,
}
