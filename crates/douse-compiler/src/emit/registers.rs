//! What is known about a stage's registers before it is written: where rounding can wait, what does not change along a loop.

use douse_core::DType;
use douse_core::pointwise::{Binary, Unary};
use douse_core::sym::{Expr, Symbol};
use douse_program::kernel::{Effect, Inst, Kernel, Op, Reg, Stage};

/// How a value becomes an element, by the name that `prelude.cuh` has for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rounding {
    /// It is one already.
    Exact,
    /// It is the result of arithmetic, whose NaNs have no sign to keep.
    Result,
    Any,
}

impl Rounding {
    pub fn name(self) -> &'static str {
        match self {
            Rounding::Exact => "EXACT",
            Rounding::Result => "RESULT",
            Rounding::Any => "ANY",
        }
    }

    /// How the result of an instruction is rounded to its dtype.
    pub fn of(stage: &Stage, register: Reg) -> Rounding {
        let Some(inst) = stage.body.get(register as usize) else { return Rounding::Any };
        if !matches!(inst.dtype, DType::F16 | DType::BF16) {
            return Rounding::Any;
        }
        match &inst.op {
            Op::Unary(op, _) => match op {
                Unary::Neg | Unary::Abs | Unary::Sign => Rounding::Exact,
                Unary::Floor | Unary::Ceil | Unary::Round | Unary::Trunc => Rounding::Exact,
                _ => Rounding::Result,
            },
            Op::Binary(op, ..) => match op {
                Binary::Minimum | Binary::Maximum | Binary::Fmin | Binary::Fmax | Binary::Copysign => Rounding::Exact,
                _ => Rounding::Result,
            },
            Op::Cast(from) => match stage.body.get(*from as usize) {
                Some(from) if from.dtype == inst.dtype => Rounding::Exact,
                Some(Inst { op, dtype: DType::F32 }) if computes(op) => Rounding::Result,
                _ => Rounding::Any,
            },
            _ => Rounding::Any,
        }
    }
}

/// Whether an operation's NaNs are its own.
fn computes(op: &Op) -> bool {
    match op {
        Op::Unary(op, _) => {
            !matches!(op, Unary::Neg | Unary::Abs | Unary::Floor | Unary::Ceil | Unary::Round | Unary::Trunc)
        }
        Op::Binary(op, ..) => matches!(op, Binary::Add | Binary::Sub | Binary::Mul | Binary::Div),
        _ => false,
    }
}

/// The registers that an operation reads.
pub(super) fn operands(op: &Op) -> Vec<Reg> {
    let mut read = match op {
        Op::Unary(_, a) | Op::Cast(a) | Op::Bitcast(a) => vec![*a],
        Op::Binary(_, a, b) => vec![*a, *b],
        Op::Select(a, b, c) => vec![*a, *b, *c],
        Op::Check { index, guard, .. } => guard.iter().copied().chain([*index]).collect(),
        Op::Load { guard, .. } => guard.iter().copied().collect(),
        Op::Const(_) | Op::Index(_) | Op::Local(_) | Op::Random { .. } => vec![],
    };
    if let Some(expr) = op.expr() {
        expr.visit(&mut |symbol| {
            if let Symbol::Value(register) = symbol {
                read.push(register);
            }
        });
    }
    read
}

/// An operation with the registers that it reads under other names; `None` where one has none.
pub(super) fn renamed(op: &Op, name: &dyn Fn(Reg) -> Option<Reg>) -> Option<Op> {
    let guarded = |guard: &Option<Reg>| match guard {
        Some(guard) => name(*guard).map(Some),
        None => Some(None),
    };
    let expr = |expr: &Expr| {
        let known = |s: Symbol| !matches!(s, Symbol::Value(register) if name(register).is_none());
        let all = !expr.mentions(|s| !known(s));
        all.then(|| {
            expr.substitute(&|s| match s {
                Symbol::Value(register) => name(register).map(|r| Expr::symbol(Symbol::Value(r))),
                _ => None,
            })
        })
    };
    Some(match op {
        Op::Const(_) | Op::Local(_) => op.clone(),
        Op::Index(e) => Op::Index(expr(e)?),
        Op::Load { param, index, guard } => Op::Load { param: *param, index: expr(index)?, guard: guarded(guard)? },
        Op::Unary(op, a) => Op::Unary(*op, name(*a)?),
        Op::Binary(op, a, b) => Op::Binary(*op, name(*a)?, name(*b)?),
        Op::Select(c, a, b) => Op::Select(name(*c)?, name(*a)?, name(*b)?),
        Op::Cast(a) => Op::Cast(name(*a)?),
        Op::Bitcast(a) => Op::Bitcast(name(*a)?),
        Op::Check { index, size, wrap, guard, message } => Op::Check {
            index: name(*index)?,
            size: size.clone(),
            wrap: *wrap,
            guard: guarded(guard)?,
            message: *message,
        },
        Op::Random { draw, index, word } => Op::Random { draw: *draw, index: expr(index)?, word: *word },
    })
}

/// Whether nothing but stores to parameters of the same dtype reads a register: they round it.
pub(super) fn rounds_when_stored(kernel: &Kernel, stage: &Stage, register: Reg) -> bool {
    let Some(inst) = stage.body.get(register as usize) else { return false };
    let stores = |effect: &Effect| match effect {
        Effect::Store { param, index, value, guard } => {
            let dtype = kernel.params.get(*param as usize).map(|param| param.dtype);
            *value != register || dtype == Some(inst.dtype) && *guard != Some(register) && !mentions(index, register)
        }
        Effect::Reduce { value, .. } => *value != register,
        Effect::Update { value, guard, index, .. } => {
            *value != register && *guard != Some(register) && !mentions(index, register)
        }
        Effect::ArgReduce { value, position, .. } => *value != register && *position != register,
        Effect::Scan { .. } | Effect::ArgScan { .. } => false,
        Effect::Assert { value, .. } => *value != register,
    };
    matches!(inst.dtype, DType::F16 | DType::BF16)
        && matches!(inst.op, Op::Unary(..) | Op::Binary(..) | Op::Cast(_))
        && stage.effects.iter().all(stores)
        && !stage.body.iter().any(|inst| operands(&inst.op).contains(&register))
}

/// Whether nothing but rounding to 16 bits reads a register, so that its last bits are lost.
pub(super) fn only_rounded(stage: &Stage, register: Reg) -> bool {
    let short = |inst: &Inst| matches!(inst.op, Op::Cast(_)) && matches!(inst.dtype, DType::F16 | DType::BF16);
    let mut readers = stage.body.iter().filter(|inst| operands(&inst.op).contains(&register)).peekable();
    let effects = stage.effects.iter().any(|effect| match effect {
        Effect::Store { value, guard, .. } | Effect::Update { value, guard, .. } => {
            *value == register || *guard == Some(register)
        }
        Effect::Reduce { value, .. } | Effect::Assert { value, .. } | Effect::Scan { value, .. } => *value == register,
        Effect::ArgReduce { value, position, .. } | Effect::ArgScan { value, position, .. } => {
            *value == register || *position == register
        }
    });
    let dtype = stage.body.get(register as usize).map(|inst| inst.dtype);
    match dtype {
        Some(DType::F16 | DType::BF16) => true,
        _ => readers.peek().is_some() && readers.all(short) && !effects,
    }
}

/// The x of x * 0.5 * (1 + erf(x / sqrt 2)) in float32, where a register is that.
pub(super) fn gelu(stage: &Stage, register: Reg) -> Option<Reg> {
    let binary = |register: Reg, wanted: Binary| match stage.body.get(register as usize) {
        Some(Inst { op: Op::Binary(op, a, b), dtype: DType::F32 }) if *op == wanted => Some((*a, *b)),
        _ => None,
    };
    let is = |register: Reg, wanted: f64| match stage.body.get(register as usize) {
        Some(Inst { op: Op::Const(value), dtype: DType::F32 }) => (value.to_f64() as f32) == wanted as f32,
        _ => false,
    };
    // The other factor or term beside a constant.
    let beside = |(a, b): (Reg, Reg), value: f64| match (is(a, value), is(b, value)) {
        (true, _) => Some(b),
        (_, true) => Some(a),
        _ => None,
    };
    let of = |half: Reg, cdf: Reg| {
        let x = beside(binary(half, Binary::Mul)?, 0.5)?;
        let erf = beside(binary(cdf, Binary::Add)?, 1.0)?;
        let Op::Unary(Unary::Erf, scaled) = stage.body.get(erf as usize)?.op else { return None };
        (beside(binary(scaled, Binary::Mul)?, std::f64::consts::FRAC_1_SQRT_2)? == x).then_some(x)
    };
    let (a, b) = binary(register, Binary::Mul)?;
    of(a, b).or_else(|| of(b, a))
}

fn mentions(index: &Expr, register: Reg) -> bool {
    index.mentions(|symbol| symbol == Symbol::Value(register))
}

/// Which registers of a stage are the same at every point of a loop.
pub(super) fn uniform(stage: &Stage, number: usize) -> Vec<bool> {
    let along = Symbol::Loop(number as u32);
    let mut uniform: Vec<bool> = Vec::with_capacity(stage.body.len());
    for inst in &stage.body {
        let still = !inst.op.expr().is_some_and(|expr| expr.mentions(|symbol| symbol == along));
        let operands = operands(&inst.op);
        let same = still && operands.iter().all(|register| uniform.get(*register as usize) == Some(&true));
        uniform.push(same);
    }
    uniform
}
