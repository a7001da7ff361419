//! A root's loop nest, before it shares a kernel with others.

use std::collections::HashMap;

use douse_core::pointwise::{Binary, Combine};
use douse_core::sym::{Compare, Cond, Expr, Ranges, Symbol};
use douse_core::{DType, Error, Result, Scalar};
use douse_ir::{Graph, NodeId, Op, OriginId, Value};
use douse_program::kernel::{self, Reg};

use super::fate::{Fate, Fates};

/// An instruction whose loads are still reads of values.
#[derive(Clone, Debug, PartialEq)]
pub struct Proto {
    pub op: ProtoOp,
    pub dtype: DType,
}

#[derive(Clone, Debug, PartialEq)]
pub enum ProtoOp {
    Read { value: Value, at: Vec<Expr>, guard: Option<Reg> },
    Core(kernel::Op),
}

/// What a member does with its body's result.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// Each point of the loops is an element.
    Point {
        value: Reg,
    },
    Reduce {
        op: Combine,
        value: Reg,
    },
    ArgReduce {
        max: bool,
        value: Reg,
        position: Reg,
    },
    Scan {
        op: Combine,
        value: Reg,
    },
    ArgScan {
        max: bool,
        value: Reg,
        position: Reg,
    },
}

/// A root of a kernel: its own loops, one body.
#[derive(Clone, Debug)]
pub struct Member {
    /// What it defines.
    pub values: Vec<Value>,
    /// Sizes of its loops, none of them 1.
    pub loops: Vec<Expr>,
    /// Loops that cannot be outer ones: what is reduced or scanned.
    pub inner: Vec<bool>,
    /// The loop of each dimension of the values; `None` for size 1.
    pub dims: Vec<Option<usize>>,
    pub kind: Kind,
    pub body: Vec<Proto>,
    pub origins: Vec<OriginId>,
}

impl Member {
    /// The stored values it reads, and where.
    pub fn reads(&self) -> impl Iterator<Item = (Value, &[Expr])> {
        self.body.iter().filter_map(|p| match &p.op {
            ProtoOp::Read { value, at, .. } => Some((*value, at.as_slice())),
            ProtoOp::Core(_) => None,
        })
    }

    /// Numbers of the sizes that it mentions, repeats included.
    pub fn symbols(&self) -> Vec<u32> {
        let mut found = Vec::new();
        let mut note = |symbol| {
            if let Symbol::Size(n) = symbol {
                found.push(n);
            }
        };
        self.loops.iter().for_each(|e| e.visit(&mut note));
        for proto in &self.body {
            match &proto.op {
                ProtoOp::Read { at, .. } => at.iter().for_each(|e| e.visit(&mut note)),
                ProtoOp::Core(op) => op.expr().into_iter().for_each(|e| e.visit(&mut note)),
            }
        }
        found
    }
}

/// Builds bodies.
pub struct Emitter<'a> {
    pub graph: &'a Graph,
    pub definitions: &'a [Option<NodeId>],
    pub fates: &'a Fates,
    ranges: Ranges,
    pub body: Vec<Proto>,
    pub origins: Vec<OriginId>,
    /// Computes stored elementwise values again instead of reading them: for what runs before they are there.
    pub deep: bool,
    made: HashMap<(Value, Vec<Expr>, Option<Reg>), Reg>,
}

/// Loops over a shape: sizes that are not 1, and the coordinate of each dimension (0 where the size is 1).
pub fn loops_over(shape: &[Expr], loops: &mut Vec<Expr>) -> (Vec<Expr>, Vec<Option<usize>>) {
    let mut at = Vec::with_capacity(shape.len());
    let mut dims = Vec::with_capacity(shape.len());
    for size in shape {
        if size.is_int(1) {
            at.push(Expr::int(0));
            dims.push(None);
        } else {
            at.push(Expr::loop_var(loops.len()));
            dims.push(Some(loops.len()));
            loops.push(size.clone());
        }
    }
    (at, dims)
}

impl<'a> Emitter<'a> {
    pub fn new(
        graph: &'a Graph,
        definitions: &'a [Option<NodeId>],
        fates: &'a Fates,
        ranges: &Ranges,
        loops: &[Expr],
    ) -> Emitter<'a> {
        let ranges = ranges.with_loops(loops);
        Emitter { graph, definitions, fates, ranges, body: vec![], origins: vec![], deep: false, made: HashMap::new() }
    }

    pub fn push(&mut self, op: kernel::Op, dtype: DType) -> Reg {
        let proto = Proto { op: ProtoOp::Core(op), dtype };
        // Constants and index expressions repeat often.
        if matches!(proto.op, ProtoOp::Core(kernel::Op::Const(_) | kernel::Op::Index(_))) {
            if let Some(i) = self.body.iter().position(|p| *p == proto) {
                return i as Reg;
            }
        }
        self.body.push(proto);
        (self.body.len() - 1) as Reg
    }

    /// The register with the value of an index expression, int64.
    pub fn index(&mut self, expr: &Expr) -> Reg {
        let expr = expr.simplify(&self.ranges);
        match expr.as_int() {
            Some(c) => self.push(kernel::Op::Const(Scalar::Int(c)), DType::I64),
            None => self.push(kernel::Op::Index(expr), DType::I64),
        }
    }

    fn cond(&mut self, cond: &Cond) -> Reg {
        match cond {
            Cond::Bool(b) => self.push(kernel::Op::Const(Scalar::Bool(*b)), DType::Bool),
            Cond::Compare(op, a, b) => {
                let (a, b) = (self.index(a), self.index(b));
                let op = match op {
                    Compare::Eq => Binary::Eq,
                    Compare::Ne => Binary::Ne,
                    Compare::Lt => Binary::Lt,
                    Compare::Le => Binary::Le,
                    Compare::Gt => Binary::Gt,
                    Compare::Ge => Binary::Ge,
                };
                self.push(kernel::Op::Binary(op, a, b), DType::Bool)
            }
            Cond::And(ab) | Cond::Or(ab) => {
                let (a, b) = (self.cond(&ab.0), self.cond(&ab.1));
                let op = if matches!(cond, Cond::And(_)) { Binary::And } else { Binary::Or };
                self.push(kernel::Op::Binary(op, a, b), DType::Bool)
            }
        }
    }

    /// The register with element `at` of a value. Where the guard is false, nothing is read or checked, and the result means nothing.
    pub fn element(&mut self, value: Value, at: &[Expr], guard: Option<Reg>) -> Result<Reg> {
        let at: Vec<Expr> = at.iter().map(|e| e.simplify(&self.ranges)).collect();
        let key = (value, at, guard);
        if let Some(reg) = self.made.get(&key) {
            return Ok(*reg);
        }
        let again =
            self.deep && self.definitions[value.0 as usize].is_some_and(|d| self.graph.node(d).op.is_elementwise());
        let reg = if again || self.fates.of(value) == Fate::Inline {
            self.compute(value, &key.1, guard)?
        } else {
            let dtype = self.graph.dtype(value);
            self.body.push(Proto { op: ProtoOp::Read { value, at: key.1.clone(), guard }, dtype });
            (self.body.len() - 1) as Reg
        };
        self.made.insert(key, reg);
        Ok(reg)
    }

    /// The register with element `at` of an elementwise value, computed from its operands.
    pub fn compute(&mut self, value: Value, at: &[Expr], guard: Option<Reg>) -> Result<Reg> {
        let id = self.definitions.get(value.0 as usize).copied().flatten();
        let id = id.ok_or_else(|| Error::internal(format!("{value} has no definition")))?;
        let node = self.graph.node(id);
        if !self.origins.contains(&node.origin) {
            self.origins.push(node.origin);
        }
        let dtype = self.graph.dtype(value);
        match &node.op {
            Op::Full(scalar) => Ok(self.push(kernel::Op::Const(*scalar), dtype)),
            Op::Iota(expr) => {
                let expr = expr.substitute(&|s| match s {
                    Symbol::Loop(i) => at.get(i as usize).cloned(),
                    _ => None,
                });
                Ok(self.index(&expr))
            }
            Op::Random { draw, word } => {
                let shape = self.graph.shape(value);
                let index = at.iter().zip(shape).fold(Expr::int(0), |sum, (i, n)| &(&sum * n) + i);
                let index = index.simplify(&self.ranges);
                Ok(self.push(kernel::Op::Random { draw: *draw, index, word: *word }, dtype))
            }
            Op::Move { map, guard: inside, fill } => self.moved(&node.operands, map, inside, *fill, at, guard, dtype),
            op => {
                let mut regs = Vec::with_capacity(3);
                for operand in &node.operands {
                    regs.push(self.element(*operand, at, guard)?);
                }
                let op = match (op, regs.as_slice()) {
                    (Op::Unary(op), [a]) => kernel::Op::Unary(*op, *a),
                    (Op::Binary(op), [a, b]) => kernel::Op::Binary(*op, *a, *b),
                    (Op::Select, [c, a, b]) => kernel::Op::Select(*c, *a, *b),
                    (Op::Cast, [a]) => kernel::Op::Cast(*a),
                    (Op::Bitcast, [a]) => kernel::Op::Bitcast(*a),
                    (Op::Check { size, wrap, message }, [a]) => {
                        kernel::Op::Check { index: *a, size: size.clone(), wrap: *wrap, guard, message: *message }
                    }
                    _ => return Err(Error::internal(format!("{} is not elementwise", op.name()))),
                };
                Ok(self.push(op, dtype))
            }
        }
    }

    fn moved(
        &mut self,
        operands: &[Value],
        map: &[Expr],
        inside: &Cond,
        fill: Scalar,
        at: &[Expr],
        guard: Option<Reg>,
        dtype: DType,
    ) -> Result<Reg> {
        let Some((data, indices)) = operands.split_first() else {
            return Err(Error::internal("a move without data"));
        };
        let mut regs = Vec::with_capacity(indices.len());
        for index in indices {
            regs.push(self.element(*index, at, guard)?);
        }
        let place = |s: Symbol| match s {
            Symbol::Loop(i) => at.get(i as usize).cloned(),
            Symbol::Value(k) => regs.get(k as usize).map(|r| Expr::symbol(Symbol::Value(*r))),
            Symbol::Size(_) => None,
        };
        let there: Vec<Expr> = map.iter().map(|e| e.substitute(&place)).collect();
        let inside = inside.substitute(&place).simplify(&self.ranges);
        match inside.as_bool() {
            Some(true) => self.element(*data, &there, guard),
            Some(false) => Ok(self.push(kernel::Op::Const(fill), dtype)),
            None => {
                let own = self.cond(&inside);
                let both = match guard {
                    Some(outer) => self.push(kernel::Op::Binary(Binary::And, outer, own), DType::Bool),
                    None => own,
                };
                let element = self.element(*data, &there, Some(both))?;
                let fill = self.push(kernel::Op::Const(fill), dtype);
                Ok(self.push(kernel::Op::Select(own, element, fill), dtype))
            }
        }
    }
}

/// The member of a kernel that computes a node; `None` if the node is not one for a kernel of this form.
pub fn member(
    graph: &Graph,
    definitions: &[Option<NodeId>],
    fates: &Fates,
    ranges: &Ranges,
    id: NodeId,
) -> Result<Option<Member>> {
    let node = graph.node(id);
    let values = node.results.clone();
    let Some(first) = values.first() else { return Ok(None) };
    let shape = graph.shape(*first).to_vec();
    let mut loops = Vec::new();
    let member = |e: Emitter, loops: Vec<Expr>, inner: Vec<bool>, dims, kind| {
        let mut origins = e.origins;
        if !origins.contains(&node.origin) {
            origins.push(node.origin);
        }
        Ok(Some(Member { values: values.clone(), loops, inner, dims, kind, body: e.body, origins }))
    };
    match &node.op {
        op if op.is_elementwise() => {
            let (at, dims) = loops_over(&shape, &mut loops);
            let mut e = Emitter::new(graph, definitions, fates, ranges, &loops);
            let value = e.compute(*first, &at, None)?;
            let inner = vec![false; loops.len()];
            member(e, loops, inner, dims, Kind::Point { value })
        }
        Op::Reduce { dims: reduced, .. } | Op::ArgReduce { dims: reduced, .. } => {
            let operand = node.operands[0];
            let (kept_at, dims) = loops_over(&shape, &mut loops);
            let kept = loops.len();
            let whole = graph.shape(operand).to_vec();
            let reduced_shape: Vec<Expr> = reduced.iter().map(|d| whole[*d].clone()).collect();
            let (reduced_at, _) = loops_over(&reduced_shape, &mut loops);
            let (mut k, mut r) = (kept_at.iter(), reduced_at.iter());
            let at: Vec<Expr> = (0..whole.len())
                .filter_map(|d| if reduced.contains(&d) { r.next() } else { k.next() })
                .cloned()
                .collect();
            let mut e = Emitter::new(graph, definitions, fates, ranges, &loops);
            let value = e.element(operand, &at, None)?;
            let kind = match &node.op {
                Op::Reduce { op, .. } => Kind::Reduce { op: *op, value },
                Op::ArgReduce { max, .. } => {
                    let linear =
                        reduced_at.iter().zip(&reduced_shape).fold(Expr::int(0), |sum, (i, n)| &(&sum * n) + i);
                    Kind::ArgReduce { max: *max, value, position: e.index(&linear) }
                }
                _ => return Ok(None),
            };
            let inner = (0..loops.len()).map(|l| l >= kept).collect();
            member(e, loops, inner, dims, kind)
        }
        Op::Scan { dim, .. } | Op::ArgScan { dim, .. } => {
            let (at, dims) = loops_over(&shape, &mut loops);
            let mut e = Emitter::new(graph, definitions, fates, ranges, &loops);
            let value = e.element(node.operands[0], &at, None)?;
            let inner: Vec<bool> = (0..loops.len()).map(|l| dims[*dim] == Some(l)).collect();
            let kind = match &node.op {
                Op::Scan { op, .. } => Kind::Scan { op: *op, value },
                Op::ArgScan { max, .. } => Kind::ArgScan { max: *max, value, position: e.index(&at[*dim]) },
                _ => return Ok(None),
            };
            member(e, loops, inner, dims, kind)
        }
        _ => Ok(None),
    }
}
