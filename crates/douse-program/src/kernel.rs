//! Kernels: loop nests over an iteration space, as data.
//!
//! ```text
//! kernel softmax(read f32 a0, write f32 a1) outer [s0, 12] locals [f32, f32] {
//!   stage inner [197] {
//!     r0 = load a0[2364*i0 + 197*i1 + i2] : f32
//!     reduce amax r0 -> l0
//!   }
//!   ...
//! }
//! ```
//!
//! For every point of the *outer* space, in any order unless `ordered`, the stages run one after the other.
//! A stage runs its body for every point of its *inner* space (no inner loops: once), then its effects apply:
//! stores, reductions over the inner space into *locals* (scalars of the outer point), scans along the last inner
//! loop, scatter updates, checks. Loop variables are numbered through: `i0..` the outer ones, then the inner ones of the
//! stage. The body is a list of instructions in which each uses only earlier ones; a register is the number of an instruction.
//!
//! Three readers: the CPU executor interprets it in blocks, the emitter writes CUDA C++, the printer shows it.
//!
//! Invariants, checked by [`crate::check`]: registers and locals are defined before use and of the right dtype;
//! parameters are accessed as declared; index expressions mention only loops in scope, sizes, and integer registers
//! (`v3` is register 3). Deliberately absent: control flow within a body (a guard on a load or store is all), calls, and any notion of threads.

use douse_core::pointwise::{Binary, Combine, Unary};
use douse_core::sym::{Expr, Symbol};
use douse_core::{DType, Scalar};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// The number of an instruction in its stage's body: the register that it defines.
pub type Reg = u32;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Kernel {
    /// A name from the nodes it computes, unique in the program: `mul_add_softmax_3`.
    pub name: String,
    pub params: Vec<Param>,
    /// Sizes of the outer loops.
    pub outer: Vec<Expr>,
    pub stages: Vec<Stage>,
    /// Dtypes of the locals.
    pub locals: Vec<DType>,
    /// The outer points must be taken in order: a later update of an element wins.
    pub ordered: bool,
    /// The nodes it computes and the user's lines they come from, for people.
    pub comment: Vec<String>,
}

impl Kernel {
    /// The numbers of the sizes ([`Symbol::Size`]) that it mentions.
    pub fn symbols(&self) -> BTreeSet<u32> {
        let mut sizes = BTreeSet::new();
        let mut note = |symbol| {
            if let Symbol::Size(n) = symbol {
                sizes.insert(n);
            }
        };
        self.outer.iter().for_each(|e| e.visit(&mut note));
        for stage in &self.stages {
            stage.inner.iter().for_each(|e| e.visit(&mut note));
            for inst in &stage.body {
                if let Some(expr) = inst.op.expr() {
                    expr.visit(&mut note);
                }
            }
            for effect in &stage.effects {
                match effect {
                    Effect::Store { index, .. }
                    | Effect::Scan { index, .. }
                    | Effect::ArgScan { index, .. }
                    | Effect::Update { index, .. } => index.visit(&mut note),
                    Effect::Reduce { .. } | Effect::ArgReduce { .. } | Effect::Assert { .. } => {}
                }
            }
        }
        sizes
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Param {
    pub dtype: DType,
    pub access: Access,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Access {
    Read,
    /// Only stored to.
    Write,
    /// Loaded and stored, or updated.
    Update,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stage {
    /// Sizes of the inner loops.
    pub inner: Vec<Expr>,
    pub body: Vec<Inst>,
    pub effects: Vec<Effect>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Inst {
    pub op: Op,
    /// Dtype of the result.
    pub dtype: DType,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Op {
    Const(Scalar),
    /// The value of an index expression, as int64.
    Index(Expr),
    /// An element of a parameter, counted in elements from its start; where the guard is false, 0, and memory is not touched.
    Load {
        param: u32,
        index: Expr,
        guard: Option<Reg>,
    },
    /// The result of an earlier stage's reduction.
    Local(u32),
    Unary(Unary, Reg),
    Binary(Binary, Reg, Reg),
    /// Second operand where the first (bool) is true, else third.
    Select(Reg, Reg, Reg),
    /// Conversion by value, as `Tensor.to`: floats to integers cut towards zero; to bool: not equal to 0.
    Cast(Reg),
    /// The same bits as another dtype of the same size.
    Bitcast(Reg),
    /// An int64 index wrapped if negative (where `wrap`), and checked to lie in [0, size). Outside: the call's error flag is raised with the
    /// message of that number, and the result is 0. Not checked, and 0, where the guard is false.
    Check {
        index: Reg,
        size: Expr,
        wrap: bool,
        guard: Option<Reg>,
        message: u32,
    },
    /// 32 random bits as an int64: word `word` (0 to 3) of the Philox block of (seed, draw, call, `index`).
    Random {
        draw: u32,
        index: Expr,
        word: u8,
    },
}

impl Op {
    /// The expression over loops and sizes that is part of it.
    pub fn expr(&self) -> Option<&Expr> {
        match self {
            Op::Index(expr)
            | Op::Load { index: expr, .. }
            | Op::Check { size: expr, .. }
            | Op::Random { index: expr, .. } => Some(expr),
            _ => None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Effect {
    Store {
        param: u32,
        index: Expr,
        value: Reg,
        guard: Option<Reg>,
    },
    /// Combines the value over the inner space into a local of the value's dtype, starting from the operation's neutral value.
    Reduce {
        op: Combine,
        value: Reg,
        local: u32,
    },
    /// The extreme value and its position: the first of equals, and the first NaN before any number. `position` is an int64
    /// register; positions grow along the inner space in loop order. Starts from position 0 if the inner space is empty.
    ArgReduce {
        max: bool,
        value: Reg,
        position: Reg,
        local: u32,
        local_position: u32,
    },
    /// Running combination along the last inner loop, restarted for every other point; each stores the value so far, itself included.
    Scan {
        op: Combine,
        value: Reg,
        param: u32,
        index: Expr,
    },
    /// Running extreme and its position (cummax, cummin): ties take the later position, NaN wins.
    ArgScan {
        max: bool,
        value: Reg,
        position: Reg,
        param: u32,
        param_position: u32,
        index: Expr,
    },
    /// Scatter: combines the value into an element of an updated parameter; `None` sets it.
    Update {
        op: Option<Combine>,
        param: u32,
        index: Expr,
        value: Reg,
        guard: Option<Reg>,
    },
    /// Raises the call's error flag with the message of that number where the value (bool) is false.
    Assert {
        value: Reg,
        message: u32,
    },
}
