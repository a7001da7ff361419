//! What loop nests express badly: products, convolution, attention, order and search, sizes from data.

use douse_core::sym::{Expr, Symbol};
use douse_core::{DType, Result};
use douse_program::library::{Linalg, holds_products};

use super::{Builder, fault, shape_text};
use crate::graph::Value;
use crate::op::{Convolution, Op};

impl Builder {
    /// `[..., m, k] x [..., k, n]`; leading dimensions are broadcast.
    pub fn matmul(&mut self, a: Value, b: Value) -> Result<Value> {
        self.matmul_into(a, b, self.dtype(a))
    }

    /// The same with sums that are rounded to `into`: the operands' dtype, or float32 for 16-bit floats.
    pub fn matmul_into(&mut self, a: Value, b: Value, into: DType) -> Result<Value> {
        let (dtype, ra, rb) = (self.dtype(a), self.rank(a), self.rank(b));
        if dtype != self.dtype(b) || ra < 2 || rb < 2 || !holds_products(into, dtype) {
            return Err(fault(format!("matmul of {dtype} rank {ra} and {} rank {rb} into {into}", self.dtype(b))));
        }
        let (sa, sb) = (self.shape(a).to_vec(), self.shape(b).to_vec());
        if sa[ra - 1] != sb[rb - 2] {
            self.require_equal(&sa[ra - 1], &sb[rb - 2], "the inner sizes of a matrix product");
        }
        let batch = self.broadcast_shapes(&sa[..ra - 2], &sb[..rb - 2])?;
        let with = |tail: &[Expr]| batch.iter().chain(tail).cloned().collect::<Vec<_>>();
        let a = self.expand(a, with(&sa[ra - 2..]))?;
        let b = self.expand(b, with(&[sa[ra - 1].clone(), sb[rb - 1].clone()]))?;
        let shape = with(&[sa[ra - 2].clone(), sb[rb - 1].clone()]);
        Ok(self.push1(Op::MatMul, vec![a, b], into, shape))
    }

    /// Input [n, c, spatial...], weight [o, c/groups, k...] (transposed: [c, o/groups, k...]), bias [o].
    pub fn convolution(
        &mut self,
        input: Value,
        weight: Value,
        bias: Option<Value>,
        conv: Convolution,
    ) -> Result<Value> {
        let (si, sw) = (self.shape(input).to_vec(), self.shape(weight).to_vec());
        let spatial = conv.stride.len();
        let dtype = self.dtype(input);
        if si.len() != spatial + 2 || sw.len() != spatial + 2 || self.dtype(weight) != dtype {
            return Err(fault(format!("convolution of {} by {}", shape_text(&si), shape_text(&sw))));
        }
        let channels = if conv.transposed { &sw[1] * conv.groups } else { sw[0].clone() };
        let mut shape = vec![si[0].clone(), channels];
        for d in 0..spatial {
            shape.push(conv.out_size(d, &si[d + 2], &sw[d + 2]));
        }
        let operands = [input, weight].into_iter().chain(bias).collect();
        Ok(self.push1(Op::Convolution(Box::new(conv)), operands, dtype, shape))
    }

    /// Query [batch, heads, queries, d], key [batch, kv heads, keys, d], value [batch, kv heads, keys, dv].
    pub fn attention(
        &mut self,
        query: Value,
        key: Value,
        value: Value,
        mask: Option<Value>,
        scale: f64,
        causal: bool,
    ) -> Result<Value> {
        let (dtype, mut shape) = (self.dtype(query), self.shape(query).to_vec());
        let ranks = [query, key, value].iter().chain(&mask).all(|v| self.rank(*v) == 4);
        if !ranks || self.dtype(key) != dtype || self.dtype(value) != dtype {
            return Err(fault("attention of other ranks or dtypes".to_string()));
        }
        shape[3] = self.shape(value)[3].clone();
        let operands = [query, key, value].into_iter().chain(mask).collect();
        Ok(self.push1(Op::Attention { scale, causal }, operands, dtype, shape))
    }

    /// A step of linear algebra on the last two dimensions (float32, float64); its results as [`Linalg`] lists them, each with the leading
    /// dimensions of the operands.
    pub fn linalg(&mut self, kind: Linalg, operands: &[Value]) -> Result<Vec<Value>> {
        let Some(first) = operands.first() else { return Err(fault("linalg of nothing".to_string())) };
        let (dtype, shape) = (self.dtype(*first), self.shape(*first).to_vec());
        let [batch @ .., rows, columns] = shape.as_slice() else {
            return Err(fault(format!("linalg of {}", shape_text(&shape))));
        };
        let wanted = if kind == Linalg::Solve { 2 } else { 1 };
        let fits = operands.iter().all(|v| {
            let own = self.shape(*v);
            self.dtype(*v) == dtype && own.len() == shape.len() && own[..batch.len()] == *batch
        });
        if operands.len() != wanted || !fits || !matches!(dtype, DType::F32 | DType::F64) {
            return Err(fault(format!("linalg of {} operands of {dtype} {}", operands.len(), shape_text(&shape))));
        }
        if !matches!(kind, Linalg::Svd | Linalg::Qr) && rows != columns {
            self.require_equal(&rows.clone(), &columns.clone(), "the sizes of a square matrix");
        }
        let least = rows.minimum(columns);
        let with = |tail: &[&Expr]| batch.iter().chain(tail.iter().copied()).cloned().collect::<Vec<_>>();
        let shapes = match kind {
            Linalg::Det => vec![with(&[])],
            Linalg::Slogdet => vec![with(&[]), with(&[])],
            Linalg::Inverse | Linalg::Cholesky | Linalg::MatrixExp => vec![shape.clone()],
            Linalg::Solve => vec![self.shape(operands[1]).to_vec()],
            Linalg::Eigh => vec![with(&[rows]), shape.clone()],
            Linalg::Svd => vec![with(&[rows, &least]), with(&[&least]), with(&[&least, columns])],
            Linalg::Qr => vec![with(&[rows, &least]), with(&[&least, columns])],
        };
        let results = shapes.into_iter().map(|shape| (dtype, shape)).collect();
        Ok(self.push(Op::Linalg(kind), operands.to_vec(), results))
    }

    /// Packed query [tokens, heads, d], key [tokens, kv heads, d], value [tokens, kv heads, dv]; the bounds of the sequences among the
    /// queries and among the keys, integers [sequences + 1].
    pub fn varlen_attention(
        &mut self,
        packed: [Value; 3],
        bounds: [Value; 2],
        scale: f64,
        window: (i64, i64),
    ) -> Result<Value> {
        let (dtype, mut shape) = (self.dtype(packed[0]), self.shape(packed[0]).to_vec());
        let fits = packed.iter().all(|v| self.rank(*v) == 3 && self.dtype(*v) == dtype)
            && bounds.iter().all(|v| self.rank(*v) == 1 && self.dtype(*v).is_int());
        if !fits {
            return Err(fault("attention over packed sequences of other ranks or dtypes".to_string()));
        }
        shape[2] = self.shape(packed[2])[2].clone();
        let operands = packed.into_iter().chain(bounds).collect();
        Ok(self.push1(Op::VarlenAttention { scale, window }, operands, dtype, shape))
    }

    /// (values, int64 positions) along the last dimension, stable.
    pub fn sort(&mut self, x: Value, descending: bool) -> (Value, Value) {
        let (dtype, shape) = (self.dtype(x), self.shape(x).to_vec());
        let results = self.push(Op::Sort { descending }, vec![x], vec![(dtype, shape.clone()), (DType::I64, shape)]);
        (results[0], results[1])
    }

    /// (values, int64 positions), the `k` best along the last dimension.
    pub fn topk(&mut self, x: Value, k: Expr, largest: bool) -> Result<(Value, Value)> {
        let (dtype, mut shape) = (self.dtype(x), self.shape(x).to_vec());
        match shape.last_mut() {
            Some(last) => *last = k.clone(),
            None => return Err(fault("topk of rank 0".to_string())),
        }
        let results = self.push(Op::TopK { k, largest }, vec![x], vec![(dtype, shape.clone()), (DType::I64, shape)]);
        Ok((results[0], results[1]))
    }

    /// Positions (int64, of the values' shape) in sorted sequences: of the values' leading sizes, or one sequence.
    pub fn search_sorted(&mut self, sorted: Value, values: Value, right: bool) -> Result<Value> {
        if self.dtype(sorted) != self.dtype(values) || self.rank(sorted) == 0 {
            return Err(fault("searchsorted of other dtypes".to_string()));
        }
        let shape = self.shape(values).to_vec();
        Ok(self.push1(Op::SearchSorted { right }, vec![sorted, values], DType::I64, shape))
    }

    /// Coordinates of the true elements, int64 [count, rank], and the symbol of the count.
    pub fn nonzero(&mut self, mask: Value, name: &str) -> Result<(Value, Expr)> {
        if self.dtype(mask) != DType::Bool {
            return Err(fault(format!("nonzero of {}", self.dtype(mask))));
        }
        let (numel, rank) = (self.numel(mask), self.rank(mask));
        let symbol = self.new_symbol(name, Some(0), None, Some(numel));
        let count = Expr::symbol(Symbol::Size(symbol));
        let shape = vec![count.clone(), Expr::int(rank as i64)];
        Ok((self.push1(Op::Nonzero { symbol }, vec![mask], DType::I64, shape), count))
    }

    /// The one element of an integer or bool value, as a symbol.
    pub fn item(&mut self, value: Value, symbol: u32) -> Result<()> {
        if self.dtype(value).is_float() {
            return Err(fault("item of a float".to_string()));
        }
        let value = self.reshape(value, vec![])?;
        self.push(Op::Item { symbol }, vec![value], vec![]);
        Ok(())
    }
}
