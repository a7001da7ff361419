//! A stage with its sizes put in: index expressions split into an affine part and, where there is one, a part that becomes
//! instructions of its own.

use douse_core::pointwise::{Binary, Combine, Unary};
use douse_core::sym::{Atom, Compare, Cond, Expr, Ranges, Symbol, Term};
use douse_core::{DType, Error, Result, Scalar};
use douse_program::kernel::{Effect, Kernel, Op, Reg, Stage};
use std::collections::HashMap;

/// The number of a node of a stage: its instructions, and those of its index expressions.
pub(crate) type NodeId = usize;

/// `base + sum of coefs[k] * loop k`, over the outer and the stage's inner loops.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Affine {
    pub base: i64,
    pub coefs: Vec<i64>,
}

/// An element's place: the affine part plus, where there is one, an int64 node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    pub affine: Affine,
    pub extra: Option<NodeId>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum NodeOp {
    Const(Scalar),
    Affine(Affine),
    Load {
        param: usize,
        place: Place,
        guard: Option<NodeId>,
    },
    Local(usize),
    Unary(Unary, NodeId),
    /// `guards`: raised errors (a division by zero) count only where these are true; `None` raises nothing.
    Binary {
        op: Binary,
        a: NodeId,
        b: NodeId,
        guards: Option<Vec<NodeId>>,
    },
    Select(NodeId, NodeId, NodeId),
    Cast(NodeId),
    Bitcast(NodeId),
    /// Floor of an int64 times a float64, given by its bits.
    Scale(NodeId, u64),
    Check {
        index: NodeId,
        size: i64,
        wrap: bool,
        guard: Option<NodeId>,
        message: u32,
    },
    Random {
        draw: u32,
        index: NodeId,
        word: u8,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Node {
    pub op: NodeOp,
    pub dtype: DType,
}

#[derive(Clone, Debug)]
pub(crate) enum LoweredEffect {
    Store { param: usize, place: Place, value: NodeId, guard: Option<NodeId> },
    Reduce { op: Combine, value: NodeId, local: usize },
    ArgReduce { max: bool, value: NodeId, position: NodeId, local: usize, local_position: usize },
    Scan { op: Combine, value: NodeId, param: usize, place: Place },
    ArgScan { max: bool, value: NodeId, position: NodeId, param: usize, param_position: usize, place: Place },
    Update { op: Option<Combine>, param: usize, place: Place, value: NodeId, guard: Option<NodeId> },
    Assert { value: NodeId, message: u32 },
}

/// A stage whose sizes are numbers.
#[derive(Clone, Debug)]
pub(crate) struct Lowered {
    pub inner: Vec<i64>,
    pub nodes: Vec<Node>,
    pub effects: Vec<LoweredEffect>,
}

impl NodeOp {
    /// Calls `f` for every node that this one uses.
    pub fn operands(&self, f: &mut dyn FnMut(NodeId)) {
        match self {
            NodeOp::Const(_) | NodeOp::Affine(_) | NodeOp::Local(_) => {}
            NodeOp::Load { place, guard, .. } => place.extra.iter().chain(guard).for_each(|n| f(*n)),
            NodeOp::Unary(_, a) | NodeOp::Cast(a) | NodeOp::Bitcast(a) | NodeOp::Scale(a, _) => f(*a),
            NodeOp::Binary { a, b, guards, .. } => [*a, *b].iter().chain(guards.iter().flatten()).for_each(|n| f(*n)),
            NodeOp::Select(c, a, b) => [*c, *a, *b].into_iter().for_each(f),
            NodeOp::Check { index, guard, .. } => [*index].iter().chain(guard).for_each(|n| f(*n)),
            NodeOp::Random { index, .. } => f(*index),
        }
    }
}

impl LoweredEffect {
    /// Calls `f` for every node that this effect uses.
    pub fn operands(&self, f: &mut dyn FnMut(NodeId)) {
        match self {
            LoweredEffect::Store { place, value, guard, .. } | LoweredEffect::Update { place, value, guard, .. } => {
                [*value].iter().chain(&place.extra).chain(guard).for_each(|n| f(*n));
            }
            LoweredEffect::Reduce { value, .. } | LoweredEffect::Assert { value, .. } => f(*value),
            LoweredEffect::ArgReduce { value, position, .. } => [*value, *position].into_iter().for_each(f),
            LoweredEffect::Scan { value, place, .. } => [*value].iter().chain(&place.extra).for_each(|n| f(*n)),
            LoweredEffect::ArgScan { value, position, place, .. } => {
                [*value, *position].iter().chain(&place.extra).for_each(|n| f(*n));
            }
        }
    }

    /// The elements it writes: parameter and place.
    pub fn writes(&self) -> Vec<(usize, &Place)> {
        match self {
            LoweredEffect::Store { param, place, .. }
            | LoweredEffect::Scan { param, place, .. }
            | LoweredEffect::Update { param, place, .. } => vec![(*param, place)],
            LoweredEffect::ArgScan { param, param_position, place, .. } => {
                vec![(*param, place), (*param_position, place)]
            }
            _ => vec![],
        }
    }
}

/// Puts sizes into a stage. `outer` has the sizes of the outer loops.
pub(crate) fn lower(kernel: &Kernel, stage: &Stage, outer: &[i64], symbols: &[Option<i64>]) -> Result<Lowered> {
    let inner = sizes(&stage.inner, symbols)?;
    let loops: Vec<i64> = outer.iter().chain(&inner).copied().collect();
    let mut ranges = Ranges::new();
    ranges.set_loops(&loops.iter().map(|size| Expr::int(*size)).collect::<Vec<_>>());
    let mut lowering = Lowering {
        kernel,
        symbols,
        loops: &loops,
        ranges,
        nodes: Vec::new(),
        numbers: HashMap::new(),
        registers: Vec::with_capacity(stage.body.len()),
    };
    for inst in &stage.body {
        let node = lowering.instruction(&inst.op, inst.dtype)?;
        lowering.registers.push(node);
    }
    let effects = stage.effects.iter().map(|e| lowering.effect(e)).collect::<Result<Vec<_>>>()?;
    Ok(Lowered { nodes: lowering.nodes, effects, inner })
}

/// The values of sizes, none negative, of loops whose points 64 bits can count.
pub(crate) fn sizes(sizes: &[Expr], symbols: &[Option<i64>]) -> Result<Vec<i64>> {
    let values: Vec<i64> = sizes
        .iter()
        .map(|size| match crate::strided::eval(size, symbols)? {
            value if value < 0 => Err(Error::internal(format!("a loop's size {size} is {value}"))),
            value => Ok(value),
        })
        .collect::<Result<_>>()?;
    let points = values.iter().try_fold(1i64, |points, size| points.checked_mul((*size).max(1)));
    match points {
        Some(_) => Ok(values),
        None => Err(Error::internal(format!("loops of {values:?} have more points than can be counted"))),
    }
}

struct Lowering<'a> {
    kernel: &'a Kernel,
    symbols: &'a [Option<i64>],
    loops: &'a [i64],
    ranges: Ranges,
    nodes: Vec<Node>,
    /// Equal nodes are one node.
    numbers: HashMap<Node, NodeId>,
    /// The node of each register.
    registers: Vec<NodeId>,
}

impl Lowering<'_> {
    fn add(&mut self, op: NodeOp, dtype: DType) -> NodeId {
        let node = Node { op, dtype };
        if let Some(number) = self.numbers.get(&node) {
            return *number;
        }
        self.numbers.insert(node.clone(), self.nodes.len());
        self.nodes.push(node);
        self.nodes.len() - 1
    }

    fn register(&self, register: Reg) -> Result<NodeId> {
        let node = self.registers.get(register as usize);
        node.copied().ok_or_else(|| Error::internal(format!("register {register} is used before it is defined")))
    }

    fn guard(&self, guard: Option<Reg>) -> Result<Option<NodeId>> {
        guard.map(|g| self.register(g)).transpose()
    }

    fn param(&self, param: u32) -> Result<usize> {
        match (param as usize) < self.kernel.params.len() {
            true => Ok(param as usize),
            false => Err(Error::internal(format!("parameter {param} is not there"))),
        }
    }

    fn local(&self, local: u32) -> Result<usize> {
        match (local as usize) < self.kernel.locals.len() {
            true => Ok(local as usize),
            false => Err(Error::internal(format!("local {local} is not there"))),
        }
    }

    fn instruction(&mut self, op: &Op, dtype: DType) -> Result<NodeId> {
        let op = match op {
            Op::Const(value) => NodeOp::Const(*value),
            Op::Index(expr) => return self.index(expr),
            Op::Load { param, index, guard } => {
                NodeOp::Load { param: self.param(*param)?, guard: self.guard(*guard)?, place: self.place(index)? }
            }
            Op::Local(local) => NodeOp::Local(self.local(*local)?),
            Op::Unary(op, a) => NodeOp::Unary(*op, self.register(*a)?),
            Op::Binary(op, a, b) => {
                let (a, b) = (self.register(*a)?, self.register(*b)?);
                let divides =
                    matches!(op, Binary::FloorDivide | Binary::TruncDivide | Binary::Remainder | Binary::Fmod);
                let guards = (divides && dtype.is_int()).then(|| self.guards_behind(&[a, b]));
                NodeOp::Binary { op: *op, a, b, guards }
            }
            Op::Select(c, a, b) => NodeOp::Select(self.register(*c)?, self.register(*a)?, self.register(*b)?),
            Op::Cast(a) => NodeOp::Cast(self.register(*a)?),
            Op::Bitcast(a) => NodeOp::Bitcast(self.register(*a)?),
            Op::Check { index, size, wrap, guard, message } => NodeOp::Check {
                index: self.register(*index)?,
                size: crate::strided::eval(size, self.symbols)?,
                wrap: *wrap,
                guard: self.guard(*guard)?,
                message: *message,
            },
            Op::Random { draw, index, word } => NodeOp::Random { draw: *draw, index: self.index(index)?, word: *word },
        };
        Ok(self.add(op, dtype))
    }

    /// The guards of the loads and checks that these nodes come from: where one is false, the values mean nothing.
    fn guards_behind(&self, nodes: &[NodeId]) -> Vec<NodeId> {
        let mut seen = vec![false; self.nodes.len()];
        let mut open = nodes.to_vec();
        let mut guards = Vec::new();
        while let Some(node) = open.pop() {
            if std::mem::replace(&mut seen[node], true) {
                continue;
            }
            let op = &self.nodes[node].op;
            if let NodeOp::Load { guard: Some(guard), .. } | NodeOp::Check { guard: Some(guard), .. } = op {
                guards.push(*guard);
            }
            op.operands(&mut |operand| open.push(operand));
        }
        guards.sort_unstable();
        guards.dedup();
        guards
    }

    fn effect(&mut self, effect: &Effect) -> Result<LoweredEffect> {
        Ok(match effect {
            Effect::Store { param, index, value, guard } => LoweredEffect::Store {
                param: self.param(*param)?,
                place: self.place(index)?,
                value: self.register(*value)?,
                guard: self.guard(*guard)?,
            },
            Effect::Reduce { op, value, local } => {
                LoweredEffect::Reduce { op: *op, value: self.register(*value)?, local: self.local(*local)? }
            }
            Effect::ArgReduce { max, value, position, local, local_position } => LoweredEffect::ArgReduce {
                max: *max,
                value: self.register(*value)?,
                position: self.register(*position)?,
                local: self.local(*local)?,
                local_position: self.local(*local_position)?,
            },
            Effect::Scan { op, value, param, index } => LoweredEffect::Scan {
                op: *op,
                value: self.register(*value)?,
                param: self.param(*param)?,
                place: self.place(index)?,
            },
            Effect::ArgScan { max, value, position, param, param_position, index } => LoweredEffect::ArgScan {
                max: *max,
                value: self.register(*value)?,
                position: self.register(*position)?,
                param: self.param(*param)?,
                param_position: self.param(*param_position)?,
                place: self.place(index)?,
            },
            Effect::Update { op, param, index, value, guard } => LoweredEffect::Update {
                op: *op,
                param: self.param(*param)?,
                place: self.place(index)?,
                value: self.register(*value)?,
                guard: self.guard(*guard)?,
            },
            Effect::Assert { value, message } => {
                LoweredEffect::Assert { value: self.register(*value)?, message: *message }
            }
        })
    }

    /// An index expression as one int64 node.
    fn index(&mut self, expr: &Expr) -> Result<NodeId> {
        let place = self.place(expr)?;
        let varies = place.affine.coefs.iter().any(|c| *c != 0);
        Ok(match place.extra {
            Some(extra) if !varies && place.affine.base == 0 => extra,
            Some(extra) => {
                let affine = self.affine_node(place.affine);
                self.integer(Binary::Add, affine, extra)
            }
            None => self.affine_node(place.affine),
        })
    }

    fn affine_node(&mut self, affine: Affine) -> NodeId {
        if affine.coefs.iter().all(|c| *c == 0) {
            return self.constant(affine.base);
        }
        self.add(NodeOp::Affine(affine), DType::I64)
    }

    fn constant(&mut self, value: i64) -> NodeId {
        self.add(NodeOp::Const(Scalar::Int(value)), DType::I64)
    }

    fn integer(&mut self, op: Binary, a: NodeId, b: NodeId) -> NodeId {
        self.add(NodeOp::Binary { op, a, b, guards: None }, op.result(DType::I64))
    }

    /// Splits an index expression.
    fn place(&mut self, expr: &Expr) -> Result<Place> {
        let simple = |atom: &Atom| matches!(atom, Atom::Symbol(_));
        if expr.terms().iter().flat_map(|t| &t.factors).all(simple) {
            return self.split(expr);
        }
        // Known sizes and loop ranges remove most divisions.
        let expr = expr.substitute(&|symbol| match symbol {
            Symbol::Size(i) => self.symbols.get(i as usize).copied().flatten().map(Expr::int),
            Symbol::Loop(i) if self.loops.get(i as usize) == Some(&1) => Some(Expr::int(0)),
            _ => None,
        });
        self.split(&expr.simplify(&self.ranges))
    }

    fn split(&mut self, expr: &Expr) -> Result<Place> {
        let mut affine = Affine { base: expr.constant(), coefs: vec![0; self.loops.len()] };
        let mut extra = None;
        for term in expr.terms() {
            let (coefficient, varying) = self.coefficient(term)?;
            match varying.as_slice() {
                [] => affine.base = affine.base.checked_add(coefficient).ok_or_else(too_large)?,
                [Atom::Symbol(Symbol::Loop(k))] => {
                    let coef = affine.coefs.get_mut(*k as usize);
                    let coef = coef.ok_or_else(|| Error::internal(format!("loop {k} is not in scope")))?;
                    *coef = coef.checked_add(coefficient).ok_or_else(too_large)?;
                }
                atoms => {
                    let mut product = None;
                    for atom in atoms {
                        let atom = self.atom(atom)?;
                        product = Some(match product {
                            Some(product) => self.integer(Binary::Mul, product, atom),
                            None => atom,
                        });
                    }
                    let Some(mut product) = product else { continue };
                    if coefficient != 1 {
                        let factor = self.constant(coefficient);
                        product = self.integer(Binary::Mul, product, factor);
                    }
                    extra = Some(match extra {
                        Some(sum) => self.integer(Binary::Add, sum, product),
                        None => product,
                    });
                }
            }
        }
        Ok(Place { affine, extra })
    }

    /// A term's known factors multiplied, and the others.
    fn coefficient(&self, term: &Term) -> Result<(i64, Vec<Atom>)> {
        let mut coefficient = term.coefficient;
        let mut varying = Vec::new();
        for factor in &term.factors {
            match factor {
                Atom::Symbol(Symbol::Size(i)) => {
                    let value = self.symbols.get(*i as usize).copied().flatten();
                    let value = value.ok_or_else(|| Error::internal(format!("symbol {i} is not known")))?;
                    coefficient = coefficient.checked_mul(value).ok_or_else(too_large)?;
                }
                other => varying.push(other.clone()),
            }
        }
        Ok((coefficient, varying))
    }

    fn atom(&mut self, atom: &Atom) -> Result<NodeId> {
        Ok(match atom {
            Atom::Symbol(Symbol::Value(register)) => self.register(*register)?,
            Atom::Symbol(symbol) => self.index(&Expr::symbol(*symbol))?,
            Atom::FloorDiv(ab) => self.operation(Binary::FloorDivide, &ab.0, &ab.1)?,
            Atom::Mod(ab) => self.operation(Binary::Remainder, &ab.0, &ab.1)?,
            Atom::Min(ab) => self.operation(Binary::Minimum, &ab.0, &ab.1)?,
            Atom::Max(ab) => self.operation(Binary::Maximum, &ab.0, &ab.1)?,
            Atom::Select(cab) => {
                let cond = self.cond(&cab.0)?;
                let (then, otherwise) = (self.index(&cab.1)?, self.index(&cab.2)?);
                self.add(NodeOp::Select(cond, then, otherwise), DType::I64)
            }
            Atom::Scale(a, bits) => {
                let a = self.index(a)?;
                self.add(NodeOp::Scale(a, *bits), DType::I64)
            }
        })
    }

    fn operation(&mut self, op: Binary, a: &Expr, b: &Expr) -> Result<NodeId> {
        let (a, b) = (self.index(a)?, self.index(b)?);
        Ok(self.integer(op, a, b))
    }

    fn cond(&mut self, cond: &Cond) -> Result<NodeId> {
        Ok(match cond {
            Cond::Bool(value) => self.add(NodeOp::Const(Scalar::Bool(*value)), DType::Bool),
            Cond::Compare(compare, a, b) => {
                let op = match compare {
                    Compare::Eq => Binary::Eq,
                    Compare::Ne => Binary::Ne,
                    Compare::Lt => Binary::Lt,
                    Compare::Le => Binary::Le,
                    Compare::Gt => Binary::Gt,
                    Compare::Ge => Binary::Ge,
                };
                self.operation(op, a, b)?
            }
            Cond::And(ab) => self.junction(Binary::And, &ab.0, &ab.1)?,
            Cond::Or(ab) => self.junction(Binary::Or, &ab.0, &ab.1)?,
        })
    }

    fn junction(&mut self, op: Binary, a: &Cond, b: &Cond) -> Result<NodeId> {
        let (a, b) = (self.cond(a)?, self.cond(b)?);
        Ok(self.add(NodeOp::Binary { op, a, b, guards: None }, DType::Bool))
    }
}

fn too_large() -> Error {
    Error::internal("an index does not fit 64 bits")
}
