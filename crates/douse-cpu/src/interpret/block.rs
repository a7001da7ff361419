//! The instructions of a stage over the lanes of a block.

use douse_core::philox::philox4x32;
use douse_core::pointwise::Unary;
use douse_core::{DType, Error, Result};

use super::Call;
use super::bind::{Step, StepOp};
use super::convert::{round_all, wrap_all};
use super::element::{self, Extra, Site, Spread, Target};
use super::lanes::{Arg, Class, Lane, Registers, Slot};
use super::pointwise as ops;
use super::scalar;
use super::space::Runs;

/// What a thread works with.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    pub registers: Registers,
    pub spread: Spread,
    pub index: Vec<i64>,
    /// Outer points of the present block.
    pub outer: Runs,
    /// Inner points of the present block of lanes.
    pub inner: Runs,
    pub point: Vec<i64>,
}

/// Where a block of lanes stands.
pub(crate) struct Spot<'a> {
    pub runs: &'a Runs,
    /// Coordinates of the space that lanes do not run through.
    pub fixed: &'a [i64],
    pub n: usize,
    /// The number of the outer point of lane 0; lanes that run through outer points count on from it.
    pub point: usize,
    pub lanes_inner: bool,
    /// With inner lanes: the place of the outer point in its block.
    pub row: usize,
}

/// The parts of a scratch that instructions change.
pub(crate) struct Bench<'a> {
    pub registers: &'a mut Registers,
    pub spread: &'a mut Spread,
    pub index: &'a mut Vec<i64>,
}

impl Spot<'_> {
    /// The number of the outer point of a lane.
    pub fn point_of(&self, lane: usize) -> usize {
        if self.lanes_inner { self.point } else { self.point + lane }
    }
}

impl Call<'_> {
    pub(crate) fn steps(&self, steps: &[Step], spot: &Spot, bench: &mut Bench) -> Result<()> {
        steps.iter().try_for_each(|step| self.step(step, spot, bench))
    }

    fn step(&self, step: &Step, spot: &Spot, bench: &mut Bench) -> Result<()> {
        match Class::of(step.dtype) {
            Class::F32 => {
                let mut out = bench.registers.take::<f32>(step.out);
                let done = self.float(step, spot, bench, &mut out);
                bench.registers.put(step.out, out);
                done
            }
            Class::F64 => {
                let mut out = bench.registers.take::<f64>(step.out);
                let done = self.double(step, spot, bench, &mut out);
                bench.registers.put(step.out, out);
                done
            }
            Class::I64 => {
                let mut out = bench.registers.take::<i64>(step.out);
                let done = self.integer(step, spot, bench, &mut out);
                bench.registers.put(step.out, out);
                done
            }
            Class::Bool => {
                let mut out = bench.registers.take::<u8>(step.out);
                let done = self.boolean(step, spot, bench, &mut out);
                bench.registers.put(step.out, out);
                done
            }
        }
    }

    /// Loads, locals and selections, which all classes have; false: something else.
    fn common<T: Lane>(
        &self,
        step: &Step,
        spot: &Spot,
        bench: &mut Bench,
        out: &mut Slot<T>,
        target: impl Fn(&mut Slot<T>) -> Target<'_>,
    ) -> Result<bool> {
        let n = spot.n;
        match &step.op {
            StepOp::Load { param, at, guard } => {
                let region = self.region(*param)?;
                let site = Site { loops: self.loops, region, runs: spot.runs, fixed: spot.fixed, n };
                let extra = Extra::of(at, bench.registers, n);
                let guard = guard.map(|slot| bench.registers.arg::<u8>(slot, n));
                site.load(step.dtype, &at.walk, extra, guard, &mut target(out), bench.index)
                    .map_err(|e| e.error(*param))?;
            }
            StepOp::Local(slot) => {
                let value = match bench.registers.arg::<T>(*slot, spot.row + 1) {
                    Arg::One(value) => value,
                    Arg::Many(values) => values[spot.row],
                };
                out.set_one(value);
            }
            StepOp::Select { c, a, b } => {
                let registers = &bench.registers;
                self.loops.select(registers.arg(*c, n), registers.arg(*a, n), registers.arg(*b, n), out, n);
            }
            StepOp::Bitcast { a } => {
                let (from, to) = (step.from, step.dtype);
                let registers = &bench.registers;
                match Class::of(from) {
                    Class::F32 => self.bitcast(registers.arg::<f32>(*a, n), out, n, from, to),
                    Class::F64 => self.bitcast(registers.arg::<f64>(*a, n), out, n, from, to),
                    Class::I64 => self.bitcast(registers.arg::<i64>(*a, n), out, n, from, to),
                    Class::Bool => self.bitcast(registers.arg::<u8>(*a, n), out, n, from, to),
                }
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn bitcast<A: Lane, T: Lane>(&self, a: Arg<A>, out: &mut Slot<T>, n: usize, from: DType, to: DType) {
        self.loops.map1(a, out, n, |a| T::of_bits(to, a.bits(from)));
    }

    fn float(&self, step: &Step, spot: &Spot, bench: &mut Bench, out: &mut Slot<f32>) -> Result<()> {
        if self.common(step, spot, bench, out, |slot| Target::F32(slot))? {
            return Ok(());
        }
        let (n, loops, registers) = (spot.n, &self.loops, &*bench.registers);
        match &step.op {
            StepOp::Const(value) => out.set_one(value.to_f64() as f32),
            StepOp::Unary { op, a } => ops::unary_f32(loops, *op, registers.arg(*a, n), out, n),
            StepOp::Binary { op, a, b, .. } => {
                ops::binary_f32(loops, *op, registers.arg(*a, n), registers.arg(*b, n), out, n, step.dtype);
            }
            StepOp::Cast { a } => match Class::of(step.from) {
                Class::F32 => loops.map1(registers.arg::<f32>(*a, n), out, n, |x| x),
                Class::F64 => loops.map1(registers.arg::<f64>(*a, n), out, n, |x| x as f32),
                Class::I64 if step.from == DType::U64 => {
                    loops.map1(registers.arg::<i64>(*a, n), out, n, |x| x as u64 as f32);
                }
                Class::I64 => loops.map1(registers.arg::<i64>(*a, n), out, n, |x| x as f32),
                Class::Bool => loops.map1(registers.arg::<u8>(*a, n), out, n, |x| x as f32),
            },
            _ => return Err(misplaced(step)),
        }
        let exact = matches!(&step.op, StepOp::Unary { op: Unary::Neg | Unary::Abs, .. });
        if step.dtype != DType::F32 && !exact {
            round_all(loops, step.dtype, written(out, n));
        }
        Ok(())
    }

    fn double(&self, step: &Step, spot: &Spot, bench: &mut Bench, out: &mut Slot<f64>) -> Result<()> {
        if self.common(step, spot, bench, out, |slot| Target::F64(slot))? {
            return Ok(());
        }
        let (n, loops, registers) = (spot.n, &self.loops, &*bench.registers);
        match &step.op {
            StepOp::Const(value) => out.set_one(value.to_f64()),
            StepOp::Unary { op, a } => ops::unary_f64(loops, *op, registers.arg(*a, n), out, n),
            StepOp::Binary { op, a, b, .. } => {
                ops::binary_f64(loops, *op, registers.arg(*a, n), registers.arg(*b, n), out, n);
            }
            StepOp::Cast { a } => match Class::of(step.from) {
                Class::F32 => loops.map1(registers.arg::<f32>(*a, n), out, n, |x| x as f64),
                Class::F64 => loops.map1(registers.arg::<f64>(*a, n), out, n, |x| x),
                Class::I64 if step.from == DType::U64 => {
                    loops.map1(registers.arg::<i64>(*a, n), out, n, |x| x as u64 as f64);
                }
                Class::I64 => loops.map1(registers.arg::<i64>(*a, n), out, n, |x| x as f64),
                Class::Bool => loops.map1(registers.arg::<u8>(*a, n), out, n, |x| x as f64),
            },
            _ => return Err(misplaced(step)),
        }
        Ok(())
    }

    fn integer(&self, step: &Step, spot: &Spot, bench: &mut Bench, out: &mut Slot<i64>) -> Result<()> {
        if self.common(step, spot, bench, out, |slot| Target::I64(slot))? {
            return Ok(());
        }
        let (n, loops, registers) = (spot.n, &self.loops, &*bench.registers);
        let dtype = step.dtype;
        match &step.op {
            StepOp::Const(value) => out.set_one(value.to_i64()),
            StepOp::Affine(walk) => {
                if spot.runs.runs.len() == 1 && walk.stride() == 0 {
                    let first = spot.runs.iter().next().map_or(0, |(_, at)| walk.start(spot.fixed, at));
                    out.set_one(first);
                } else {
                    element::affine(loops, walk, spot.fixed, spot.runs, out.many(n));
                }
                return Ok(());
            }
            StepOp::Unary { op: Unary::FrexpExponent, a } => match Class::of(step.from) {
                Class::F64 => loops.map1(registers.arg::<f64>(*a, n), out, n, frexp_exponent),
                _ => loops.map1(registers.arg::<f32>(*a, n), out, n, |x| frexp_exponent(x as f64)),
            },
            StepOp::Unary { op, a } => ops::unary_i64(loops, *op, registers.arg(*a, n), out, n, dtype),
            StepOp::Binary { op, a, b, guards } => {
                let b = registers.arg(*b, n);
                ops::binary_i64(loops, *op, registers.arg(*a, n), b, out, n, dtype);
                if let Some(guards) = guards {
                    self.refuse_zero_divisor(b, guards, spot, registers);
                }
            }
            StepOp::Cast { a } => match Class::of(step.from) {
                Class::F32 => loops.map1(registers.arg::<f32>(*a, n), out, n, |x| scalar::cut(dtype, x as f64)),
                Class::F64 => loops.map1(registers.arg::<f64>(*a, n), out, n, |x| scalar::cut(dtype, x)),
                Class::I64 => loops.map1(registers.arg::<i64>(*a, n), out, n, |x| x),
                Class::Bool => loops.map1(registers.arg::<u8>(*a, n), out, n, |x| x as i64),
            },
            StepOp::Scale { a, factor } => {
                loops.map1(registers.arg::<i64>(*a, n), out, n, |x| (x as f64 * factor).floor() as i64);
            }
            StepOp::Check { index, size, wrap, guard, message } => {
                let guard = guard.map(|slot| registers.arg::<u8>(slot, n));
                self.check(registers.arg(*index, n), *size, *wrap, guard, *message, spot, out);
                return Ok(());
            }
            StepOp::Random { draw, index, word } => {
                let key = [self.seed as u32, (self.seed >> 32) as u32];
                let word = (*word & 3) as usize;
                let random = |i: i64| {
                    let counter = [i as u32, (i as u64 >> 32) as u32, *draw, self.call as u32];
                    philox4x32(counter, key)[word] as i64
                };
                loops.map1(registers.arg::<i64>(*index, n), out, n, random);
                return Ok(());
            }
            _ => return Err(misplaced(step)),
        }
        if dtype.size() < 8 {
            wrap_all(loops, dtype, written(out, n));
        }
        Ok(())
    }

    fn boolean(&self, step: &Step, spot: &Spot, bench: &mut Bench, out: &mut Slot<u8>) -> Result<()> {
        if self.common(step, spot, bench, out, |slot| Target::Bool(slot))? {
            return Ok(());
        }
        let (n, loops, registers) = (spot.n, &self.loops, &*bench.registers);
        let class = Class::of(step.from);
        match &step.op {
            StepOp::Const(value) => out.set_one(value.to_bool() as u8),
            StepOp::Unary { op: Unary::Not, a } => loops.map1(registers.arg::<u8>(*a, n), out, n, |x| x ^ 1),
            StepOp::Unary { op, a } => match class {
                Class::F64 => ops::classify_f64(loops, *op, registers.arg(*a, n), out, n),
                _ => ops::classify_f32(loops, *op, registers.arg(*a, n), out, n),
            },
            StepOp::Binary { op, a, b, .. } => match class {
                Class::F32 => ops::compare_f32(loops, *op, registers.arg(*a, n), registers.arg(*b, n), out, n),
                Class::F64 => ops::compare_f64(loops, *op, registers.arg(*a, n), registers.arg(*b, n), out, n),
                Class::I64 if step.from == DType::U64 => {
                    ops::compare_u64(loops, *op, registers.arg(*a, n), registers.arg(*b, n), out, n);
                }
                Class::I64 => ops::compare_i64(loops, *op, registers.arg(*a, n), registers.arg(*b, n), out, n),
                Class::Bool => ops::binary_bool(loops, *op, registers.arg(*a, n), registers.arg(*b, n), out, n),
            },
            StepOp::Cast { a } => match class {
                Class::F32 => loops.map1(registers.arg::<f32>(*a, n), out, n, |x| (x != 0.0) as u8),
                Class::F64 => loops.map1(registers.arg::<f64>(*a, n), out, n, |x| (x != 0.0) as u8),
                Class::I64 => loops.map1(registers.arg::<i64>(*a, n), out, n, |x| (x != 0) as u8),
                Class::Bool => loops.map1(registers.arg::<u8>(*a, n), out, n, |x| x),
            },
            _ => return Err(misplaced(step)),
        }
        Ok(())
    }

    /// Raises the error flag where a lane divides by zero, unless one of the guards says that the lane means nothing.
    fn refuse_zero_divisor(&self, b: Arg<i64>, guards: &[usize], spot: &Spot, registers: &Registers) {
        let any = match b {
            Arg::One(b) => b == 0,
            Arg::Many(b) => self.loops.fold(b, 0u8, |any, b| any | (b == 0) as u8, |a, b| a | b) != 0,
        };
        if !any {
            return;
        }
        let counts = |lane: usize| guards.iter().all(|g| registers.arg::<u8>(*g, spot.n).at(lane) != 0);
        if let Some(lane) = (0..spot.n).find(|lane| b.at(*lane) == 0 && counts(*lane)) {
            let error = || Error::invalid_argument("integer division or modulo by zero");
            self.flag.raise(spot.point_of(lane), error);
        }
    }

    /// Wraps and checks indices; raises the error flag for those out of range, which become 0.
    fn check(
        &self,
        index: Arg<i64>,
        size: i64,
        wrap: bool,
        guard: Option<Arg<u8>>,
        message: u32,
        spot: &Spot,
        out: &mut Slot<i64>,
    ) {
        let inside = match index {
            Arg::One(i) => (i as u64) < size as u64,
            Arg::Many(index) => {
                let f = |bad: u8, i: i64| bad | ((i as u64) >= size as u64) as u8;
                self.loops.fold(index, 0u8, f, |a, b| a | b) == 0
            }
        };
        if inside && guard.is_none() {
            self.loops.map1(index, out, spot.n, |i| i);
            return;
        }
        let one = matches!((index, guard), (Arg::One(_), None | Some(Arg::One(_))));
        let lanes = if one { 1 } else { spot.n };
        let checked = out.many(lanes);
        for (lane, checked) in checked.iter_mut().enumerate() {
            let i = index.at(lane);
            let wrapped = if wrap && i < 0 { i.wrapping_add(size) } else { i };
            let live = guard.is_none_or(|g| g.at(lane) != 0);
            *checked = if live && (wrapped as u64) < size as u64 { wrapped } else { 0 };
            if live && (wrapped as u64) >= size as u64 {
                self.flag.raise(spot.point_of(lane), || self.out_of_range(i, size, message));
            }
        }
        out.one = one;
    }

    fn out_of_range(&self, index: i64, size: i64, message: u32) -> Error {
        let message = self.messages.get(message as usize).filter(|m| !m.is_empty());
        let place = message.map(|m| format!(" ({m})")).unwrap_or_default();
        Error::invalid_argument(format!("index {index} is out of range for a dimension of size {size}{place}"))
    }
}

/// The lanes that an instruction has just written.
fn written<T: Lane>(out: &mut Slot<T>, n: usize) -> &mut [T] {
    let n = if out.one { 1 } else { n };
    &mut out.data[..n]
}

fn frexp_exponent(x: f64) -> i64 {
    douse_core::math::float::frexp(x).1 as i64
}

fn misplaced(step: &Step) -> Error {
    Error::internal(format!("an instruction has a result of {}: {:?}", step.dtype, step.op))
}
