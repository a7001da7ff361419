//! The meaning of kernels, point by point and element by element, with nothing clever.

use douse_core::DType;
use douse_core::math;
use douse_core::pointwise::{Binary, Combine, Unary};
use douse_core::sym::{Expr, Symbol};
use douse_program::kernel::{Effect, Kernel, Op, Reg, Stage};

use super::build::Memory;

/// A value: floats exactly as their dtype holds them, integers as numbers (uint64 as its bits), bool as 0 or 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    Float(f64),
    Int(i64),
}
use Value::{Float, Int};

impl Value {
    fn float(self) -> f64 {
        match self {
            Float(x) => x,
            Int(i) => i as f64,
        }
    }

    pub fn int(self) -> i64 {
        match self {
            Float(x) => x as i64,
            Int(i) => i,
        }
    }

    fn is_nan(self) -> bool {
        matches!(self, Float(x) if x.is_nan())
    }
}

/// Rounds or wraps to a dtype.
fn fit(dtype: DType, value: Value) -> Value {
    match value {
        Float(x) if dtype == DType::F64 => Float(x),
        Float(x) => {
            let as_f32 = x as f32 as f64;
            Float(if dtype == DType::F32 { as_f32 } else { Memory::of(dtype, [as_f32]).float(0) })
        }
        Int(i) if dtype == DType::Bool => Int((i != 0) as i64),
        Int(i) => {
            let memory = Memory { dtype, bytes: i.to_ne_bytes()[..dtype.size()].to_vec() };
            Int(memory.int(0))
        }
    }
}

fn element(memory: &Memory, index: i64) -> Value {
    let index = usize::try_from(index).expect("a negative index");
    if memory.dtype.is_float() { Float(memory.float(index)) } else { Int(memory.int(index)) }
}

fn set(memory: &mut Memory, index: i64, value: Value) {
    let bytes = match value {
        Float(x) => Memory::of(memory.dtype, [x]).bytes,
        Int(i) => i.to_ne_bytes()[..memory.dtype.size()].to_vec(),
    };
    let at = usize::try_from(index).expect("a negative index") * memory.dtype.size();
    memory.bytes[at..at + bytes.len()].copy_from_slice(&bytes);
}

fn unary(op: Unary, dtype: DType, a: Value) -> Value {
    match (op, a) {
        (Unary::Neg, Float(x)) => Float(-x),
        (Unary::Neg, Int(x)) => Int(x.wrapping_neg()),
        (Unary::Abs, Float(x)) => Float(x.abs()),
        (Unary::Abs, Int(x)) => Int(if dtype.is_signed() { x.wrapping_abs() } else { x }),
        (Unary::Not, Int(x)) => Int(1 - x),
        (Unary::BitwiseNot, Int(x)) => Int(!x),
        (Unary::Exp, Float(x)) => Float(x.exp()),
        (Unary::Tanh, Float(x)) => Float(x.tanh()),
        (Unary::Sqrt, Float(x)) => Float(x.sqrt()),
        (Unary::Floor, Float(x)) => Float(x.floor()),
        (Unary::IsNan, Float(x)) => Int(x.is_nan() as i64),
        _ => panic!("{op} is not drawn"),
    }
}

fn extreme(max: bool, a: Value, b: Value) -> Value {
    match (a, b) {
        _ if a.is_nan() => a,
        _ if b.is_nan() => b,
        (Float(x), Float(y)) => Float(if max { x.max(y) } else { x.min(y) }),
        _ => Int(if max { a.int().max(b.int()) } else { a.int().min(b.int()) }),
    }
}

fn binary(op: Binary, a: Value, b: Value) -> Value {
    match (op, a, b) {
        (Binary::Add, Float(x), Float(y)) => Float(x + y),
        (Binary::Sub, Float(x), Float(y)) => Float(x - y),
        (Binary::Mul, Float(x), Float(y)) => Float(x * y),
        (Binary::Add, Int(x), Int(y)) => Int(x.wrapping_add(y)),
        (Binary::Sub, Int(x), Int(y)) => Int(x.wrapping_sub(y)),
        (Binary::Mul, Int(x), Int(y)) => Int(x.wrapping_mul(y)),
        (Binary::FloorDivide, Int(x), Int(y)) => Int(math::integer::floor_divide(x, y)),
        (Binary::Remainder, Int(x), Int(y)) => Int(math::integer::remainder(x, y)),
        (Binary::Maximum, ..) => extreme(true, a, b),
        (Binary::Minimum, ..) => extreme(false, a, b),
        (Binary::Lt, Float(x), Float(y)) => Int((x < y) as i64),
        (Binary::Lt, Int(x), Int(y)) => Int((x < y) as i64),
        (Binary::Eq, Float(x), Float(y)) => Int((x == y) as i64),
        (Binary::Eq, Int(x), Int(y)) => Int((x == y) as i64),
        (Binary::Ge, Float(x), Float(y)) => Int((x >= y) as i64),
        (Binary::Ge, Int(x), Int(y)) => Int((x >= y) as i64),
        (Binary::And, Int(x), Int(y)) => Int(x & y),
        (Binary::Xor, Int(x), Int(y)) => Int(x ^ y),
        _ => panic!("{op} is not drawn"),
    }
}

/// The running value of a combination, wider than its dtype where that is said.
fn combine(op: Combine, dtype: DType, a: Value, b: Value) -> Value {
    match (op, a, b) {
        (Combine::Sum, Float(x), Float(y)) => Float(x + y),
        (Combine::Sum, ..) if dtype.is_bool() => Int(a.int() | b.int()),
        (Combine::Sum, ..) => Int(a.int().wrapping_add(b.int())),
        (Combine::Max, ..) => extreme(true, a, b),
        (Combine::Min, ..) => extreme(false, a, b),
        (Combine::Or, ..) => Int(a.int() | b.int()),
        _ => panic!("{op} is not drawn"),
    }
}

struct Point<'a> {
    kernel: &'a Kernel,
    loops: Vec<i64>,
    locals: Vec<Value>,
    values: Vec<Value>,
}

impl Point<'_> {
    fn eval(&self, expr: &Expr) -> i64 {
        let value = |symbol| match symbol {
            Symbol::Loop(i) => self.loops.get(i as usize).copied(),
            Symbol::Value(v) => Some(self.values[v as usize].int()),
            Symbol::Size(_) => None,
        };
        expr.eval(&value).expect("an index without a value")
    }

    fn live(&self, guard: &Option<Reg>) -> bool {
        guard.is_none_or(|g| self.values[g as usize].int() != 0)
    }

    fn body(&mut self, stage: &Stage, memory: &[Memory]) {
        self.values.clear();
        for inst in &stage.body {
            let value = |r: &Reg| self.values[*r as usize];
            let dtype_of = |r: &Reg| stage.body[*r as usize].dtype;
            let result = match &inst.op {
                Op::Const(scalar) if inst.dtype.is_float() => Float(scalar.to_f64()),
                Op::Const(scalar) => Int(scalar.to_i64()),
                Op::Index(expr) => Int(self.eval(expr)),
                Op::Load { param, index, guard } => match self.live(guard) {
                    true => element(&memory[*param as usize], self.eval(index)),
                    false if inst.dtype.is_float() => Float(0.0),
                    false => Int(0),
                },
                Op::Local(local) => self.locals[*local as usize],
                Op::Unary(op, a) => unary(*op, dtype_of(a), value(a)),
                Op::Binary(op, a, b) => binary(*op, value(a), value(b)),
                Op::Select(c, a, b) => {
                    if value(c).int() != 0 {
                        value(a)
                    } else {
                        value(b)
                    }
                }
                Op::Cast(a) => match (inst.dtype, value(a)) {
                    (DType::Bool, Float(x)) => Int((x != 0.0) as i64),
                    (to, Int(i)) if to.is_float() => Float(i as f64),
                    (to, Float(x)) if !to.is_float() => Int(x as i64),
                    (_, other) => other,
                },
                Op::Check { index, size, wrap, guard, .. } => {
                    let (i, size) = (value(index).int(), self.eval(size));
                    match self.live(guard) {
                        true if *wrap && i < 0 => Int(i + size),
                        true => Int(i),
                        false => Int(0),
                    }
                }
                other => panic!("{other:?} is not drawn"),
            };
            self.values.push(fit(inst.dtype, result));
        }
    }

    fn neutral(&self, op: Combine, dtype: DType) -> Value {
        let bits = dtype.size() as u32 * 8;
        match (op, dtype.is_float()) {
            (Combine::Max, true) => Float(f64::NEG_INFINITY),
            (Combine::Min, true) => Float(f64::INFINITY),
            (_, true) => Float(0.0),
            (Combine::Min, _) if dtype.is_bool() => Int(1),
            (Combine::Max, _) if dtype.is_signed() => Int(-1 << (bits - 1)),
            (Combine::Min, _) if dtype.is_signed() => Int(!(-1 << (bits - 1))),
            (Combine::Min, _) => Int((1i64 << bits) - 1),
            _ => Int(0),
        }
    }

    fn stage(&mut self, stage: &Stage, memory: &mut [Memory]) {
        let outer = self.loops.len();
        let sizes: Vec<i64> = stage.inner.iter().map(|s| s.as_int().unwrap()).collect();
        // Running values of effects, and whether the effect saw a value.
        let mut running: Vec<Option<(Value, Value)>> = vec![None; stage.effects.len()];
        for point in points(&sizes) {
            self.loops.truncate(outer);
            self.loops.extend(&point);
            self.body(stage, memory);
            for (effect, running) in stage.effects.iter().zip(&mut running) {
                let value = |r: &Reg| self.values[*r as usize];
                let dtype = |r: &Reg| stage.body[*r as usize].dtype;
                match effect {
                    Effect::Store { param, index, value: v, guard } => {
                        if self.live(guard) {
                            set(&mut memory[*param as usize], self.eval(index), value(v));
                        }
                    }
                    Effect::Reduce { op, value: v, .. } => {
                        let so_far = running.map_or(self.neutral(*op, dtype(v)), |(value, _)| value);
                        *running = Some((combine(*op, dtype(v), so_far, value(v)), Int(0)));
                    }
                    Effect::ArgReduce { max, value: v, position, .. } => {
                        let x = value(v);
                        let better = |(best, _): (Value, Value)| {
                            let ahead = if *max { x.float() > best.float() } else { x.float() < best.float() };
                            !best.is_nan() && (x.is_nan() || ahead)
                        };
                        if running.is_none_or(better) {
                            *running = Some((x, value(position)));
                        }
                    }
                    Effect::Scan { op, value: v, param, index } => {
                        if point.last() == Some(&0) {
                            *running = None;
                        }
                        let so_far = running.map_or(self.neutral(*op, dtype(v)), |(value, _)| value);
                        let mut next = combine(*op, dtype(v), so_far, value(v));
                        if !dtype(v).is_float() {
                            next = fit(dtype(v), next);
                        }
                        *running = Some((next, Int(0)));
                        set(&mut memory[*param as usize], self.eval(index), fit(dtype(v), next));
                    }
                    Effect::ArgScan { max, value: v, position, param, param_position, index } => {
                        if point.last() == Some(&0) {
                            *running = None;
                        }
                        let x = value(v);
                        let better = |(best, _): (Value, Value)| {
                            let level = if *max { x.float() >= best.float() } else { x.float() <= best.float() };
                            x.is_nan() || !best.is_nan() && level
                        };
                        if running.is_none_or(better) {
                            *running = Some((x, value(position)));
                        }
                        let (best, at) = running.unwrap();
                        set(&mut memory[*param as usize], self.eval(index), best);
                        set(&mut memory[*param_position as usize], self.eval(index), at);
                    }
                    Effect::Update { op, param, index, value: v, guard } => {
                        if self.live(guard) {
                            let (memory, index) = (&mut memory[*param as usize], self.eval(index));
                            let new = match op {
                                Some(op) => combine(*op, dtype(v), element(memory, index), value(v)),
                                None => value(v),
                            };
                            set(memory, index, fit(dtype(v), new));
                        }
                    }
                    Effect::Assert { .. } => {}
                }
            }
        }
        self.loops.truncate(outer);
        for (effect, running) in stage.effects.iter().zip(running) {
            match effect {
                Effect::Reduce { op, local, .. } => {
                    let dtype = self.kernel.locals[*local as usize];
                    let value = running.map_or(self.neutral(*op, dtype), |(value, _)| value);
                    self.locals[*local as usize] = fit(dtype, value);
                }
                Effect::ArgReduce { max, local, local_position, .. } => {
                    let dtype = self.kernel.locals[*local as usize];
                    let op = if *max { Combine::Max } else { Combine::Min };
                    let (value, position) = running.unwrap_or((self.neutral(op, dtype), Int(0)));
                    self.locals[*local as usize] = value;
                    self.locals[*local_position as usize] = position;
                }
                _ => {}
            }
        }
    }
}

/// All points of a space, in row-major order.
fn points(sizes: &[i64]) -> Vec<Vec<i64>> {
    sizes.iter().fold(vec![vec![]], |points, size| {
        points.iter().flat_map(|p| (0..*size).map(move |i| [p.as_slice(), &[i]].concat())).collect()
    })
}

/// Runs a kernel whose sizes are constants.
pub fn run(kernel: &Kernel, memory: &mut [Memory]) {
    let outer: Vec<i64> = kernel.outer.iter().map(|s| s.as_int().unwrap()).collect();
    for loops in points(&outer) {
        let mut point = Point { kernel, loops, locals: vec![Int(0); kernel.locals.len()], values: vec![] };
        for stage in &kernel.stages {
            point.stage(stage, memory);
        }
    }
}
