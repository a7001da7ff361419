//! The builder: appends nodes to a module and works out their results' dtypes and shapes.
//!
//! Each method is the shape and dtype rule of one core operation, and refuses operands that break it. Moves of moves are
//! composed as they are built, so that chains of views stay one node. What is written here never looks at elements.

use douse_core::pointwise::{Binary, Combine, Unary};
use douse_core::sym::{Cond, Expr, Ranges, Symbol};
use douse_core::{DType, Error, Result, Scalar};
use douse_program::library::Linalg;
use douse_program::plan::{SymbolInfo, SymbolSource};

use crate::graph::{Block, Module, Node, NodeId, OriginId, Value, ValueInfo};
use crate::op::{Convolution, Op};

/// Appends nodes to a module, in its body or in the innermost open block.
#[derive(Debug)]
pub struct Builder {
    pub module: Module,
    /// What nodes that are appended come from.
    pub origin: OriginId,
    open: Vec<Block>,
    ranges: Ranges,
    /// The defining node of each value.
    definitions: Vec<Option<NodeId>>,
}

fn fault(message: String) -> Error {
    Error::internal(message)
}

/// A shape as text: `[2, s0]`.
pub fn shape_text(shape: &[Expr]) -> String {
    format!("[{}]", shape.iter().map(Expr::to_string).collect::<Vec<_>>().join(", "))
}

/// The coordinates `i0, i1, ...` of a shape of this rank.
pub fn coordinates(rank: usize) -> Vec<Expr> {
    (0..rank).map(Expr::loop_var).collect()
}

impl Builder {
    pub fn new(module: Module) -> Builder {
        let ranges = module.ranges();
        let definitions = module.graph.definitions();
        Builder { module, origin: OriginId::default(), open: vec![Block::default()], ranges, definitions }
    }

    /// The module, with what was built as the end of its body.
    pub fn finish(mut self) -> Module {
        while let Some(block) = self.open.pop() {
            self.module.body.nodes.extend(block.nodes);
            self.module.body.has_effect |= block.has_effect;
        }
        self.module
    }

    pub fn shape(&self, value: Value) -> &[Expr] {
        self.module.graph.shape(value)
    }

    pub fn dtype(&self, value: Value) -> DType {
        self.module.graph.dtype(value)
    }

    pub fn rank(&self, value: Value) -> usize {
        self.shape(value).len()
    }

    pub fn numel(&self, value: Value) -> Expr {
        Expr::product(self.shape(value))
    }

    /// What is known of the symbols.
    pub fn ranges(&self) -> &Ranges {
        &self.ranges
    }

    /// The node that defines a value.
    pub fn definition(&self, value: Value) -> Option<&Node> {
        let id = self.definitions.get(value.0 as usize).copied().flatten()?;
        Some(self.module.graph.node(id))
    }

    /// The number that every element of the value is, where the graph says so.
    pub fn constant_scalar(&self, value: Value) -> Option<Scalar> {
        match &self.definition(value)?.op {
            Op::Full(scalar) => Some(*scalar),
            _ => None,
        }
    }

    /// A new symbol that a step of the program sets, between these bounds.
    pub fn new_symbol(&mut self, name: &str, min: Option<i64>, max: Option<i64>, bound: Option<Expr>) -> u32 {
        self.add_symbol(SymbolInfo { name: name.to_string(), min, max, source: SymbolSource::Step, bound })
    }

    pub fn add_symbol(&mut self, info: SymbolInfo) -> u32 {
        let id = self.module.symbols.len() as u32;
        let max = info.max.map(Expr::int).or_else(|| info.bound.clone());
        self.ranges.set(Symbol::Size(id), info.min, max);
        self.module.symbols.push(info);
        id
    }

    pub fn message(&mut self, text: impl Into<String>) -> u32 {
        let text = text.into();
        if let Some(i) = self.module.messages.iter().position(|m| *m == text) {
            return i as u32;
        }
        self.module.messages.push(text);
        (self.module.messages.len() - 1) as u32
    }

    // Blocks.

    /// Nodes go into a new block until [`Builder::close_block`].
    pub fn open_block(&mut self, params: &[(DType, Vec<Expr>)]) -> Vec<Value> {
        let params: Vec<Value> = params.iter().map(|(dtype, shape)| self.define(*dtype, shape.clone())).collect();
        self.open.push(Block { params: params.clone(), ..Block::default() });
        params
    }

    pub fn close_block(&mut self, results: Vec<Value>) -> Block {
        let mut block = if self.open.len() > 1 { self.open.pop().unwrap_or_default() } else { Block::default() };
        block.results = results;
        block
    }

    /// How many blocks are open around what is built now.
    pub fn depth(&self) -> usize {
        self.open.len() - 1
    }

    fn define(&mut self, dtype: DType, shape: Vec<Expr>) -> Value {
        let value = Value(self.module.graph.values.len() as u32);
        self.module.graph.values.push(ValueInfo { dtype, shape });
        self.definitions.push(None);
        value
    }

    /// Appends a node with results of these dtypes and shapes. The other methods are the rules; this one checks nothing.
    pub fn push(&mut self, op: Op, operands: Vec<Value>, results: Vec<(DType, Vec<Expr>)>) -> Vec<Value> {
        let effect = op.has_effect();
        let id = NodeId(self.module.graph.nodes.len() as u32);
        let results: Vec<Value> = results.into_iter().map(|(dtype, shape)| self.define(dtype, shape)).collect();
        for result in &results {
            self.definitions[result.0 as usize] = Some(id);
        }
        self.module.graph.nodes.push(Node { op, operands, results: results.clone(), origin: self.origin });
        if let Some(block) = self.open.last_mut() {
            block.nodes.push(id);
            block.has_effect |= effect;
        }
        results
    }

    fn push1(&mut self, op: Op, operands: Vec<Value>, dtype: DType, shape: Vec<Expr>) -> Value {
        self.push(op, operands, vec![(dtype, shape)])[0]
    }

    // Sources.

    pub fn input(&mut self, number: u32, dtype: DType, shape: Vec<Expr>) -> Value {
        self.push1(Op::Input(number), vec![], dtype, shape)
    }

    pub fn state(&mut self, number: u32, dtype: DType, shape: Vec<Expr>) -> Value {
        self.push1(Op::State(number), vec![], dtype, shape)
    }

    pub fn constant(&mut self, number: u32, dtype: DType, shape: Vec<Expr>) -> Value {
        self.push1(Op::Constant(number), vec![], dtype, shape)
    }

    /// `scalar` converted to `dtype`, everywhere.
    pub fn full(&mut self, dtype: DType, shape: Vec<Expr>, scalar: Scalar) -> Value {
        let scalar = match dtype {
            DType::Bool => Scalar::Bool(scalar.to_bool()),
            _ if dtype.is_int() => Scalar::Int(scalar.to_i64()),
            _ => Scalar::Float(scalar.to_f64()),
        };
        self.push1(Op::Full(scalar), vec![], dtype, shape)
    }

    pub fn full_like(&mut self, value: Value, scalar: Scalar) -> Value {
        let (dtype, shape) = (self.dtype(value), self.shape(value).to_vec());
        self.full(dtype, shape, scalar)
    }

    /// int64 `expr` of the coordinates.
    pub fn iota(&mut self, shape: Vec<Expr>, expr: Expr) -> Value {
        if let Some(c) = expr.as_int() {
            return self.full(DType::I64, shape, Scalar::Int(c));
        }
        self.push1(Op::Iota(expr), vec![], DType::I64, shape)
    }

    /// A 0-d int64 of this value.
    pub fn size_value(&mut self, expr: Expr) -> Value {
        self.iota(vec![], expr)
    }

    /// 32 random bits an element, as int64; a new draw each time it is called, `words` tensors of it.
    pub fn random(&mut self, shape: Vec<Expr>, words: u8) -> Vec<Value> {
        let draw = self.module.draws;
        self.module.draws += 1;
        (0..words.min(4)).map(|word| self.push1(Op::Random { draw, word }, vec![], DType::I64, shape.clone())).collect()
    }

    // Pointwise.

    pub fn unary(&mut self, op: Unary, x: Value) -> Result<Value> {
        let dtype = self.dtype(x);
        if !op.takes().accepts(dtype) {
            return Err(fault(format!("{op} of {dtype}")));
        }
        let shape = self.shape(x).to_vec();
        Ok(self.push1(Op::Unary(op), vec![x], op.result(dtype), shape))
    }

    pub fn binary(&mut self, op: Binary, a: Value, b: Value) -> Result<Value> {
        let dtype = self.dtype(a);
        if dtype != self.dtype(b) || !op.takes().accepts(dtype) {
            return Err(fault(format!("{op} of {dtype} and {}", self.dtype(b))));
        }
        let (a, b) = self.broadcast(a, b)?;
        let shape = self.shape(a).to_vec();
        Ok(self.push1(Op::Binary(op), vec![a, b], op.result(dtype), shape))
    }

    /// `a op scalar`, the scalar in `a`'s dtype.
    pub fn binary_scalar(&mut self, op: Binary, a: Value, scalar: Scalar) -> Result<Value> {
        let b = self.full_like(a, scalar);
        self.binary(op, a, b)
    }

    /// `then` where `cond`, else `otherwise`; all are broadcast.
    pub fn select(&mut self, cond: Value, then: Value, otherwise: Value) -> Result<Value> {
        let dtype = self.dtype(then);
        if self.dtype(cond) != DType::Bool || dtype != self.dtype(otherwise) {
            return Err(fault(format!("select by {} of {dtype} and {}", self.dtype(cond), self.dtype(otherwise))));
        }
        let all = self.broadcast_all(&[cond, then, otherwise])?;
        let shape = self.shape(all[0]).to_vec();
        Ok(self.push1(Op::Select, all, dtype, shape))
    }

    pub fn cast(&mut self, x: Value, dtype: DType) -> Value {
        if self.dtype(x) == dtype {
            return x;
        }
        if let Some(scalar) = self.constant_scalar(x) {
            // A float constant is cut to its own dtype first, which only values that every dtype holds survive unchanged.
            let exact = scalar.to_f64().fract() == 0.0 && scalar.to_f64().abs() <= 127.0 && scalar.to_f64() >= 0.0;
            if exact {
                let shape = self.shape(x).to_vec();
                return self.full(dtype, shape, scalar);
            }
        }
        let shape = self.shape(x).to_vec();
        self.push1(Op::Cast, vec![x], dtype, shape)
    }

    pub fn bitcast(&mut self, x: Value, dtype: DType) -> Result<Value> {
        if self.dtype(x) == dtype {
            return Ok(x);
        }
        if self.dtype(x).size() != dtype.size() {
            return Err(fault(format!("bitcast of {} to {dtype}", self.dtype(x))));
        }
        let shape = self.shape(x).to_vec();
        Ok(self.push1(Op::Bitcast, vec![x], dtype, shape))
    }

    /// int64 indices, wrapped where negative if `wrap`, checked against a size when run.
    pub fn check(&mut self, index: Value, size: Expr, wrap: bool, message: u32) -> Result<Value> {
        if self.dtype(index) != DType::I64 {
            return Err(fault(format!("check of {}", self.dtype(index))));
        }
        let shape = self.shape(index).to_vec();
        Ok(self.push1(Op::Check { size, wrap, message }, vec![index], DType::I64, shape))
    }

    // Broadcasting.

    /// The shape that two broadcast to. Where two sizes are different symbols they are taken to be equal, and the call checks it.
    pub fn broadcast_shapes(&mut self, a: &[Expr], b: &[Expr]) -> Result<Vec<Expr>> {
        let rank = a.len().max(b.len());
        let mut shape = Vec::with_capacity(rank);
        for i in 0..rank {
            let of = |s: &[Expr]| (i + s.len()).checked_sub(rank).map(|j| s[j].clone());
            let size = match (of(a), of(b)) {
                (Some(x), Some(y)) if x == y || y.is_int(1) => x,
                (Some(x), Some(y)) if x.is_int(1) => y,
                (Some(x), Some(y)) => {
                    if x.as_int().is_some() && y.as_int().is_some() {
                        let (a, b) = (shape_text(a), shape_text(b));
                        return Err(Error::invalid_program(format!("shapes {a} and {b} cannot be broadcast together")));
                    }
                    self.require_equal(&x, &y, "sizes that are combined elementwise");
                    if x.as_int().is_some() { x } else { y }
                }
                (Some(x), None) | (None, Some(x)) => x,
                (None, None) => Expr::int(1),
            };
            shape.push(size);
        }
        Ok(shape)
    }

    /// Takes a comparison of a symbol with a number for granted from here on, as the call has checked it. Only outside blocks: what is
    /// checked in one says nothing of what comes after it.
    pub fn assume(&mut self, cond: &Cond) {
        use douse_core::sym::Compare::{Ge, Gt, Le, Lt};
        let Cond::Compare(op, a, b) = cond else { return };
        let (Some(symbol @ Symbol::Size(_)), Some(c), 0) = (a.as_symbol(), b.as_int(), self.depth()) else { return };
        let (mut min, mut max) = self.ranges.get(symbol).map_or((None, None), |b| (b.min, b.max.clone()));
        match op {
            Ge => min = Some(min.map_or(c, |m| m.max(c))),
            Gt => min = Some(min.map_or(c + 1, |m| m.max(c + 1))),
            Le if max.is_none() => max = Some(Expr::int(c)),
            Lt if max.is_none() => max = Some(Expr::int(c - 1)),
            _ => {}
        }
        self.ranges.set(symbol, min, max);
    }

    /// Makes the call fail unless two sizes are equal.
    pub fn require_equal(&mut self, a: &Expr, b: &Expr, what: &str) {
        let cond = Cond::compare(douse_core::sym::Compare::Eq, a, b);
        if cond.as_bool() != Some(true) {
            let text = format!("{what} must be equal: {a} and {b}");
            self.require(cond, text);
        }
    }

    /// Makes the call fail with a message unless a condition on symbols holds.
    pub fn require(&mut self, cond: Cond, text: impl Into<String>) {
        let message = self.message(text);
        self.push(Op::Require { cond, message }, vec![], vec![]);
    }

    /// Makes the call fail with a message unless the one element, a bool, is true.
    pub fn assert(&mut self, value: Value, text: impl Into<String>) -> Result<()> {
        if self.dtype(value) != DType::Bool {
            return Err(fault(format!("assert of {}", self.dtype(value))));
        }
        let message = self.message(text);
        let value = self.reshape(value, vec![])?;
        self.push(Op::Assert { message }, vec![value], vec![]);
        Ok(())
    }

    pub fn broadcast(&mut self, a: Value, b: Value) -> Result<(Value, Value)> {
        let all = self.broadcast_all(&[a, b])?;
        Ok((all[0], all[1]))
    }

    pub fn broadcast_all(&mut self, values: &[Value]) -> Result<Vec<Value>> {
        let Some(first) = values.first() else { return Ok(Vec::new()) };
        let mut shape = self.shape(*first).to_vec();
        for value in values {
            let other = self.shape(*value).to_vec();
            if other != shape {
                shape = self.broadcast_shapes(&shape, &other)?;
            }
        }
        values.iter().map(|v| self.expand(*v, shape.clone())).collect()
    }

    /// Repeats dimensions of size 1, and adds leading ones, up to `shape`.
    pub fn expand(&mut self, x: Value, shape: Vec<Expr>) -> Result<Value> {
        let own = self.shape(x).to_vec();
        if own == shape {
            return Ok(x);
        }
        let Some(added) = shape.len().checked_sub(own.len()) else {
            return Err(Error::invalid_program(format!(
                "a tensor of shape {} cannot be expanded to {}",
                shape_text(&own),
                shape_text(&shape)
            )));
        };
        let mut map = Vec::with_capacity(own.len());
        for (d, size) in own.iter().enumerate() {
            let wanted = &shape[added + d];
            if size == wanted {
                map.push(Expr::loop_var(added + d));
            } else if size.is_int(1) {
                map.push(Expr::int(0));
            } else if size.as_int().is_some() && wanted.as_int().is_some() {
                return Err(Error::invalid_program(format!(
                    "a tensor of shape {} cannot be expanded to {}",
                    shape_text(&own),
                    shape_text(&shape)
                )));
            } else {
                // Equal on every call, as the program was traced, or the call is refused.
                self.require_equal(size, wanted, "sizes that are combined elementwise");
                map.push(Expr::loop_var(added + d));
            }
        }
        self.remap(x, shape, map)
    }

    // Moves.

    /// `x[map]` over `shape`.
    pub fn remap(&mut self, x: Value, shape: Vec<Expr>, map: Vec<Expr>) -> Result<Value> {
        self.move_(x, &[], shape, map, Cond::Bool(true), Scalar::Int(0))
    }

    /// `x[map]` over `shape` where `guard` holds, else `fill` (in `x`'s dtype). `v0...` in `map` are elements of `indices`, int64 of
    /// that shape.
    pub fn move_(
        &mut self,
        x: Value,
        indices: &[Value],
        shape: Vec<Expr>,
        map: Vec<Expr>,
        guard: Cond,
        fill: Scalar,
    ) -> Result<Value> {
        if map.len() != self.rank(x) {
            return Err(fault(format!("move of rank {} by a map of {}", self.rank(x), map.len())));
        }
        if indices.iter().any(|i| self.shape(*i) != shape || self.dtype(*i) != DType::I64) {
            return Err(fault("an index of a move has another shape or dtype".to_string()));
        }
        let scope = self.ranges.with_loops(&shape);
        let guard = guard.simplify(&scope);
        let map: Vec<Expr> = map.iter().map(|e| e.simplify(&scope)).collect();
        let unguarded = guard.as_bool() == Some(true);
        if unguarded && self.shape(x) == shape && map.iter().enumerate().all(|(d, e)| self.is_coordinate(e, d, &shape))
        {
            return Ok(x);
        }
        // move(move(x, f), g) = move(x, f after g)
        if let Some(Node { op: Op::Move { map: inner, guard: inner_guard, fill: inner_fill }, operands, .. }) =
            self.definition(x)
        {
            let same_fill = unguarded || inner_guard.as_bool() == Some(true) || *inner_fill == fill;
            if operands.len() == 1 && same_fill {
                let (data, inner, inner_guard, inner_fill) =
                    (operands[0], inner.clone(), inner_guard.clone(), *inner_fill);
                let at = |symbol| match symbol {
                    Symbol::Loop(i) => map.get(i as usize).cloned(),
                    _ => None,
                };
                let composed = inner.iter().map(|e| e.substitute(&at)).collect();
                let both = guard.and(&inner_guard.substitute(&at));
                let fill = if unguarded { inner_fill } else { fill };
                return self.move_(data, indices, shape, composed, both, fill);
            }
        }
        if let (Some(scalar), true) = (self.constant_scalar(x), unguarded) {
            let dtype = self.dtype(x);
            return Ok(self.full(dtype, shape, scalar));
        }
        let dtype = self.dtype(x);
        let operands = std::iter::once(x).chain(indices.iter().copied()).collect();
        Ok(self.push1(Op::Move { map, guard, fill }, operands, dtype, shape))
    }

    /// Whether an expression is the coordinate of dimension `d`; in a dimension of size 1, 0 is.
    fn is_coordinate(&self, expr: &Expr, d: usize, shape: &[Expr]) -> bool {
        expr.as_loop() == Some(d) || (shape[d].is_int(1) && expr.is_int(0))
    }

    pub fn permute(&mut self, x: Value, dims: &[usize]) -> Result<Value> {
        let own = self.shape(x).to_vec();
        let mut map = vec![Expr::int(0); own.len()];
        let mut shape = Vec::with_capacity(own.len());
        for (i, d) in dims.iter().enumerate() {
            let (Some(slot), Some(size)) = (map.get_mut(*d), own.get(*d)) else {
                return Err(fault(format!("permute by {dims:?} of rank {}", own.len())));
            };
            *slot = Expr::loop_var(i);
            shape.push(size.clone());
        }
        self.remap(x, shape, map)
    }

    pub fn transpose(&mut self, x: Value, a: usize, b: usize) -> Result<Value> {
        let mut dims: Vec<usize> = (0..self.rank(x)).collect();
        if a >= dims.len() || b >= dims.len() {
            return Err(fault(format!("transpose of dimensions {a} and {b} of rank {}", dims.len())));
        }
        dims.swap(a, b);
        self.permute(x, &dims)
    }

    /// The same elements in row-major order under other sizes.
    pub fn reshape(&mut self, x: Value, shape: Vec<Expr>) -> Result<Value> {
        let own = self.shape(x).to_vec();
        if own == shape {
            return Ok(x);
        }
        let (before, after) = (Expr::product(&own), Expr::product(&shape));
        if before != after {
            if before.as_int().is_some() && after.as_int().is_some() {
                return Err(Error::invalid_program(format!(
                    "shape {} is invalid for a tensor of shape {}",
                    shape_text(&shape),
                    shape_text(&own)
                )));
            }
            self.require_equal(&before, &after, "the numbers of elements of a reshaped tensor");
        }
        let scope = self.ranges.with_loops(&shape);
        let map = reshape_map(&own, &shape, &scope);
        self.remap(x, shape, map)
    }

    /// Merges dimensions `first..=last` into one.
    pub fn flatten(&mut self, x: Value, first: usize, last: usize) -> Result<Value> {
        let own = self.shape(x).to_vec();
        if own.is_empty() {
            return self.reshape(x, vec![Expr::int(1)]);
        }
        let mut shape = own[..first].to_vec();
        shape.push(Expr::product(&own[first..=last]));
        shape.extend_from_slice(&own[last + 1..]);
        self.reshape(x, shape)
    }

    /// Elements `start, start + step, ...`, `length` of them, along a dimension.
    pub fn slice(&mut self, x: Value, dim: usize, start: &Expr, step: &Expr, length: Expr) -> Result<Value> {
        let mut shape = self.shape(x).to_vec();
        let mut map = coordinates(shape.len());
        shape[dim] = length;
        map[dim] = start + &(&map[dim] * step);
        self.remap(x, shape, map)
    }

    /// `x` at one index of a dimension, which goes.
    pub fn select_index(&mut self, x: Value, dim: usize, index: &Expr) -> Result<Value> {
        let mut shape = self.shape(x).to_vec();
        shape.remove(dim);
        let mut map = coordinates(shape.len());
        map.insert(dim, index.clone());
        self.remap(x, shape, map)
    }

    pub fn unsqueeze(&mut self, x: Value, dim: usize) -> Result<Value> {
        let mut shape = self.shape(x).to_vec();
        shape.insert(dim, Expr::int(1));
        let mut map = coordinates(shape.len());
        map.remove(dim);
        self.remap(x, shape, map)
    }

    /// Without a dimension of size 1.
    pub fn squeeze(&mut self, x: Value, dim: usize) -> Result<Value> {
        self.select_index(x, dim, &Expr::int(0))
    }

    pub fn flip(&mut self, x: Value, dims: &[usize]) -> Result<Value> {
        let shape = self.shape(x).to_vec();
        let mut map = coordinates(shape.len());
        for &d in dims {
            map[d] = &shape[d] - &(&map[d] + 1);
        }
        self.remap(x, shape, map)
    }

    /// `low` and `high` elements of `fill` around each dimension; negative numbers cut.
    pub fn pad(&mut self, x: Value, low: &[Expr], high: &[Expr], fill: Scalar) -> Result<Value> {
        let own = self.shape(x).to_vec();
        let mut guard = Cond::Bool(true);
        let (mut shape, mut map) = (Vec::new(), Vec::new());
        use douse_core::sym::Compare::{Ge, Lt};
        for (d, size) in own.iter().enumerate() {
            shape.push(&(size + &low[d]) + &high[d]);
            let at = &Expr::loop_var(d) - &low[d];
            guard = guard.and(&Cond::compare(Ge, &at, &Expr::int(0))).and(&Cond::compare(Lt, &at, size));
            map.push(at);
        }
        self.move_(x, &[], shape, map, guard, fill)
    }

    /// `x[..., index, ...]` along `dim`, for an index of any shape, which takes the dimension's place. The index is checked before.
    pub fn take(&mut self, x: Value, dim: usize, index: Value) -> Result<Value> {
        let (own, index_shape) = (self.shape(x).to_vec(), self.shape(index).to_vec());
        let mut shape = own[..dim].to_vec();
        shape.extend_from_slice(&index_shape);
        shape.extend_from_slice(&own[dim + 1..]);
        let index_map = (0..index_shape.len()).map(|i| Expr::loop_var(dim + i)).collect();
        let wide = self.remap(index, shape.clone(), index_map)?;
        let mut map = Vec::new();
        for d in 0..own.len() {
            map.push(match d.cmp(&dim) {
                std::cmp::Ordering::Less => Expr::loop_var(d),
                std::cmp::Ordering::Equal => Expr::symbol(Symbol::Value(0)),
                std::cmp::Ordering::Greater => Expr::loop_var(d + index_shape.len() - 1),
            });
        }
        self.move_(x, &[wide], shape, map, Cond::Bool(true), Scalar::Int(0))
    }

    /// `x[..., index[i], ...]` along `dim`, for an index of the result's shape (`torch.gather`). The index is checked before.
    pub fn gather(&mut self, x: Value, dim: usize, index: Value) -> Result<Value> {
        let shape = self.shape(index).to_vec();
        let mut map = coordinates(shape.len());
        map[dim] = Expr::symbol(Symbol::Value(0));
        self.move_(x, &[index], shape, map, Cond::Bool(true), Scalar::Int(0))
    }

    pub fn concat(&mut self, values: &[Value], dim: usize) -> Result<Value> {
        let Some(first) = values.first() else { return Err(fault("concat of nothing".to_string())) };
        if values.len() == 1 {
            return Ok(*first);
        }
        let (dtype, mut shape) = (self.dtype(*first), self.shape(*first).to_vec());
        for value in &values[1..] {
            let other = self.shape(*value).to_vec();
            if self.dtype(*value) != dtype || other.len() != shape.len() {
                return Err(fault(format!("concat of {dtype} {} and {}", shape_text(&shape), shape_text(&other))));
            }
            for d in 0..shape.len() {
                if d == dim {
                    shape[d] = &shape[d] + &other[d];
                } else if shape[d] != other[d] {
                    self.require_equal(&shape[d], &other[d], "sizes of concatenated tensors");
                }
            }
        }
        Ok(self.push1(Op::Concat { dim }, values.to_vec(), dtype, shape))
    }

    /// `base` with `base[map]` set to (or combined with) each element of `source`. The indices are checked before.
    pub fn scatter(
        &mut self,
        base: Value,
        source: Value,
        indices: &[Value],
        map: Vec<Expr>,
        combine: Option<Combine>,
    ) -> Result<Value> {
        let (dtype, shape) = (self.dtype(base), self.shape(base).to_vec());
        let fits = indices.iter().all(|i| self.shape(*i) == self.shape(source) && self.dtype(*i) == DType::I64);
        if self.dtype(source) != dtype || map.len() != shape.len() || !fits {
            return Err(fault(format!("scatter of {} into {dtype} {}", self.dtype(source), shape_text(&shape))));
        }
        let scope = self.ranges.with_loops(self.shape(source));
        let map = map.iter().map(|e| e.simplify(&scope)).collect();
        let operands = [base, source].into_iter().chain(indices.iter().copied()).collect();
        Ok(self.push1(Op::Scatter { map, combine }, operands, dtype, shape))
    }

    // Reductions and scans.

    fn without(&self, x: Value, dims: &[usize]) -> Vec<Expr> {
        self.shape(x).iter().enumerate().filter(|(d, _)| !dims.contains(d)).map(|(_, s)| s.clone()).collect()
    }

    /// Combines over `dims`, which the result lacks.
    pub fn reduce(&mut self, op: Combine, x: Value, dims: &[usize]) -> Result<Value> {
        let mut dims = dims.to_vec();
        dims.sort_unstable();
        dims.dedup();
        let dtype = self.dtype(x);
        if !op.takes().accepts(dtype) || dims.iter().any(|d| *d >= self.rank(x)) {
            return Err(fault(format!("{op} of {dtype} over {dims:?} of rank {}", self.rank(x))));
        }
        if dims.is_empty() {
            return Ok(x);
        }
        let shape = self.without(x, &dims);
        Ok(self.push1(Op::Reduce { op, dims }, vec![x], dtype, shape))
    }

    /// Combines over `dims`, which stay with size 1.
    pub fn reduce_keep(&mut self, op: Combine, x: Value, dims: &[usize]) -> Result<Value> {
        let mut shape = self.shape(x).to_vec();
        let reduced = self.reduce(op, x, dims)?;
        for d in dims {
            shape[*d] = Expr::int(1);
        }
        self.reshape(reduced, shape)
    }

    /// (extreme, int64 position) over `dims`.
    pub fn arg_reduce(&mut self, max: bool, x: Value, dims: &[usize]) -> Result<(Value, Value)> {
        let mut dims = dims.to_vec();
        dims.sort_unstable();
        let (dtype, shape) = (self.dtype(x), self.without(x, &dims));
        let results =
            self.push(Op::ArgReduce { max, dims }, vec![x], vec![(dtype, shape.clone()), (DType::I64, shape)]);
        Ok((results[0], results[1]))
    }

    pub fn scan(&mut self, op: Combine, x: Value, dim: usize) -> Result<Value> {
        let (dtype, shape) = (self.dtype(x), self.shape(x).to_vec());
        if !op.takes().accepts(dtype) || dim >= shape.len() {
            return Err(fault(format!("scan by {op} of {dtype} along {dim}")));
        }
        if shape[dim].is_int(1) {
            return Ok(x);
        }
        Ok(self.push1(Op::Scan { op, dim }, vec![x], dtype, shape))
    }

    /// (running extreme, its int64 position along `dim`).
    pub fn arg_scan(&mut self, max: bool, x: Value, dim: usize) -> Result<(Value, Value)> {
        let (dtype, shape) = (self.dtype(x), self.shape(x).to_vec());
        if shape.get(dim).is_some_and(|n| n.is_int(1)) {
            return Ok((x, self.full(DType::I64, shape, Scalar::Int(0))));
        }
        let results = self.push(Op::ArgScan { max, dim }, vec![x], vec![(dtype, shape.clone()), (DType::I64, shape)]);
        Ok((results[0], results[1]))
    }

    // Contractions.

    /// `[..., m, k] x [..., k, n]`; leading dimensions are broadcast.
    pub fn matmul(&mut self, a: Value, b: Value) -> Result<Value> {
        let (dtype, ra, rb) = (self.dtype(a), self.rank(a), self.rank(b));
        if dtype != self.dtype(b) || ra < 2 || rb < 2 || dtype.is_bool() {
            return Err(fault(format!("matmul of {dtype} rank {ra} and {} rank {rb}", self.dtype(b))));
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
        Ok(self.push1(Op::MatMul, vec![a, b], dtype, shape))
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

    // Order and search.

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

/// For each dimension of `from`, the coordinate of the element that stands at `i0, i1, ...` of `to`, both in row-major order.
fn reshape_map(from: &[Expr], to: &[Expr], scope: &Ranges) -> Vec<Expr> {
    let mut map = vec![Expr::int(0); from.len()];
    let (mut a, mut b) = (0, 0);
    // Groups of dimensions with equal products on both sides, as short as possible.
    while a < from.len() || b < to.len() {
        let (first_a, first_b) = (a, b);
        let (mut product_a, mut product_b) = (Expr::int(1), Expr::int(1));
        if a < from.len() {
            product_a = from[a].clone();
            a += 1;
        }
        if b < to.len() {
            product_b = to[b].clone();
            b += 1;
        }
        while product_a != product_b {
            let grow_a = match (product_a.as_int(), product_b.as_int()) {
                (Some(x), Some(y)) if a < from.len() && b < to.len() => x < y,
                _ => divides(&product_a, &product_b) && a < from.len() || b >= to.len(),
            };
            if grow_a && a < from.len() {
                product_a = &product_a * &from[a];
                a += 1;
            } else if b < to.len() {
                product_b = &product_b * &to[b];
                b += 1;
            } else if a < from.len() {
                product_a = &product_a * &from[a];
                a += 1;
            } else {
                break;
            }
        }
        let mut linear = Expr::int(0);
        for (i, size) in to.iter().enumerate().take(b).skip(first_b) {
            linear = &(&linear * size) + &Expr::loop_var(i);
        }
        let mut stride = Expr::int(1);
        for d in (first_a..a).rev() {
            let quotient = linear.floor_div(&stride).simplify(scope);
            map[d] = if from[d].is_int(1) {
                Expr::int(0)
            } else if d == first_a {
                quotient
            } else {
                quotient.modulo(&from[d]).simplify(scope)
            };
            stride = &stride * &from[d];
        }
    }
    map
}

/// Whether the quotient `b / a` is a polynomial, as far as is easily seen.
fn divides(a: &Expr, b: &Expr) -> bool {
    a != b && b.modulo(a).is_int(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ints(sizes: &[i64]) -> Vec<Expr> {
        sizes.iter().map(|s| Expr::int(*s)).collect()
    }

    #[test]
    fn a_reshape_keeps_row_major_order() {
        for (from, to) in [
            (vec![2, 3, 4], vec![6, 4]),
            (vec![6, 4], vec![2, 3, 4]),
            (vec![2, 3, 4], vec![4, 6]),
            (vec![24], vec![1, 2, 3, 1, 4]),
            (vec![1, 8, 3], vec![4, 6, 1]),
            (vec![], vec![1, 1]),
            (vec![1], vec![]),
        ] {
            let scope = Ranges::new().with_loops(&ints(&to));
            let map = reshape_map(&ints(&from), &ints(&to), &scope);
            let total: i64 = to.iter().product();
            for n in 0..total {
                let unravel = |sizes: &[i64]| {
                    let mut rest = n;
                    let mut at = vec![0; sizes.len()];
                    for d in (0..sizes.len()).rev() {
                        at[d] = rest % sizes[d];
                        rest /= sizes[d];
                    }
                    at
                };
                let (wanted, at) = (unravel(&from), unravel(&to));
                let got: Vec<i64> = map
                    .iter()
                    .map(|e| {
                        e.eval(&|s| if let Symbol::Loop(i) = s { at.get(i as usize).copied() } else { None }).unwrap()
                    })
                    .collect();
                assert_eq!(got, wanted, "{from:?} -> {to:?} at {n}");
            }
        }
    }

    #[test]
    fn views_of_views_are_one_move() {
        let mut b = Builder::new(Module::default());
        let x = b.input(0, DType::F32, ints(&[2, 6, 4]));
        let y = b.transpose(x, 0, 1).unwrap();
        let z = b.slice(y, 0, &Expr::int(1), &Expr::int(2), Expr::int(2)).unwrap();
        let Some(Node { op: Op::Move { map, .. }, operands, .. }) = b.definition(z) else { panic!("not a move") };
        assert_eq!(operands, &[x]);
        assert_eq!(map.iter().map(Expr::to_string).collect::<Vec<_>>(), ["i1", "2*i0 + 1", "i2"]);
        let back = b.transpose(y, 0, 1).unwrap();
        assert_eq!(back, x);
    }
}
