//! The builder: appends nodes to a module and works out their results' dtypes and shapes.
//!
//! Each method is the shape and dtype rule of one core operation, and refuses operands that break it. Moves of moves are
//! composed as they are built, so that chains of views stay one node. What is written here never looks at elements.

use douse_core::pointwise::{Binary, Unary};
use douse_core::sym::{Cond, Expr, Ranges, Symbol};
use douse_core::{DType, Error, Result, Scalar};
use douse_program::plan::{SymbolInfo, SymbolSource};

mod library;
mod moves;
mod reduce;

use crate::graph::{Block, Module, Node, NodeId, OriginId, Value, ValueInfo};
use crate::op::Op;

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

/// An integer as a dtype holds it; uint64 in the bits of an int64.
fn wrapped(number: i64, dtype: DType) -> i64 {
    let unused = 64 - 8 * dtype.size() as u32;
    if dtype.is_signed() { (number << unused) >> unused } else { ((number as u64) << unused >> unused) as i64 }
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

    /// `scalar` converted to `dtype`, everywhere: integers wrap.
    pub fn full(&mut self, dtype: DType, shape: Vec<Expr>, scalar: Scalar) -> Value {
        let scalar = match dtype {
            DType::Bool => Scalar::Bool(scalar.to_bool()),
            _ if dtype.is_int() => Scalar::Int(wrapped(scalar.to_i64(), dtype)),
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
}
