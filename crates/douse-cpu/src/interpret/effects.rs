//! What a block of lanes does to locals and memory.

use douse_core::math::logarithm::logaddexp;
use douse_core::pointwise::Combine;
use douse_core::{DType, Error, Result};

use super::Call;
use super::bind::{BoundEffect, accumulator};
use super::block::{Bench, Spot};
use super::combine;
use super::element::{Extra, Lanes, Site, spread};
use super::lanes::{Arg, Class, Lane, Loops, Registers};
use super::pointwise::{maximum_f32, maximum_f64, minimum_f32, minimum_f64};

/// A type that values accumulate in.
trait Accumulate: Lane {
    fn neutral(op: Combine, dtype: DType) -> Self;
    fn is_nan(self) -> bool;
}

impl Accumulate for f32 {
    fn neutral(op: Combine, _: DType) -> f32 {
        combine::neutral_float(op) as f32
    }
    fn is_nan(self) -> bool {
        self.is_nan()
    }
}

impl Accumulate for f64 {
    fn neutral(op: Combine, _: DType) -> f64 {
        combine::neutral_float(op)
    }
    fn is_nan(self) -> bool {
        self.is_nan()
    }
}

impl Accumulate for i64 {
    fn neutral(op: Combine, dtype: DType) -> i64 {
        combine::neutral_int(op, dtype)
    }
    fn is_nan(self) -> bool {
        false
    }
}

impl Accumulate for u8 {
    fn neutral(op: Combine, _: DType) -> u8 {
        combine::neutral_bool(op)
    }
    fn is_nan(self) -> bool {
        false
    }
}

/// Sets `n` lanes of an accumulator.
fn fill<T: Lane>(registers: &mut Registers, slot: usize, n: usize, value: T) {
    let mut register = registers.take::<T>(slot);
    register.many(n).fill(value);
    registers.put(slot, register);
}

fn fill_neutral(registers: &mut Registers, class: Class, slot: usize, n: usize, op: Combine, dtype: DType) {
    match class {
        Class::F32 => fill(registers, slot, n, f32::neutral(op, dtype)),
        Class::F64 => fill(registers, slot, n, f64::neutral(op, dtype)),
        Class::I64 => fill(registers, slot, n, i64::neutral(op, dtype)),
        Class::Bool => fill(registers, slot, n, u8::neutral(op, dtype)),
    }
}

impl Call<'_> {
    /// Prepares what effects accumulate in, for `n` outer points.
    pub(crate) fn begin(&self, effects: &[BoundEffect], n: usize, registers: &mut Registers) {
        for effect in effects {
            match effect {
                BoundEffect::Reduce { op, dtype, sum, rest, .. } => {
                    let class = accumulator(*op, *dtype);
                    fill_neutral(registers, class, *sum, n, *op, *dtype);
                    if class == Class::F64 {
                        fill(registers, *rest, n, 0f64);
                    }
                }
                BoundEffect::ArgReduce { max, dtype, best, best_position, .. }
                | BoundEffect::ArgScan { max, dtype, best, best_position, .. } => {
                    let op = if *max { Combine::Max } else { Combine::Min };
                    fill_neutral(registers, Class::of(*dtype), *best, n, op, *dtype);
                    fill(registers, *best_position, n, -1i64);
                }
                BoundEffect::Scan { op, dtype, sum, .. } => {
                    fill_neutral(registers, accumulator(*op, *dtype), *sum, n, *op, *dtype);
                }
                BoundEffect::Store { .. } | BoundEffect::Update { .. } | BoundEffect::Assert { .. } => {}
            }
        }
    }

    /// Gives locals what was accumulated: of lanes `0..n`, to rows `row..row + n` of the block.
    pub(crate) fn end(&self, effects: &[BoundEffect], n: usize, row: usize, registers: &mut Registers) {
        for effect in effects {
            match effect {
                BoundEffect::Reduce { op, dtype, sum, rest, local, .. } => {
                    let (from, to) = (accumulator(*op, *dtype), Class::of(*dtype));
                    match (from, to) {
                        (Class::F64, _) => {
                            let (sums, rests) = (registers.take::<f64>(*sum), registers.take::<f64>(*rest));
                            let total = |k: usize| total(sums.data[k], rests.data[k]);
                            if to == Class::F32 {
                                let round = |x: f64| super::convert::round(*dtype, x as f32);
                                give(registers, *local, row, (0..n).map(|k| round(total(k))));
                            } else {
                                give(registers, *local, row, (0..n).map(total));
                            }
                            registers.put(*sum, sums);
                            registers.put(*rest, rests);
                        }
                        (Class::F32, _) => {
                            let round = |x: f32| super::convert::round(*dtype, x);
                            hand_over(registers, *sum, *local, row, n, round);
                        }
                        (Class::I64, _) => {
                            hand_over(registers, *sum, *local, row, n, |x: i64| super::convert::wrap(*dtype, x));
                        }
                        (Class::Bool, _) => hand_over(registers, *sum, *local, row, n, |x: u8| x),
                    }
                }
                BoundEffect::ArgReduce { dtype, best, best_position, local, local_position, .. } => {
                    match Class::of(*dtype) {
                        Class::F32 => hand_over(registers, *best, *local, row, n, |x: f32| x),
                        Class::F64 => hand_over(registers, *best, *local, row, n, |x: f64| x),
                        Class::I64 => hand_over(registers, *best, *local, row, n, |x: i64| x),
                        Class::Bool => hand_over(registers, *best, *local, row, n, |x: u8| x),
                    }
                    hand_over(registers, *best_position, *local_position, row, n, |x: i64| x.max(0));
                }
                _ => {}
            }
        }
    }

    /// Applies a stage's effects to a block of lanes.
    pub(crate) fn apply(&self, effects: &[BoundEffect], spot: &Spot, bench: &mut Bench) -> Result<()> {
        effects.iter().try_for_each(|effect| self.effect(effect, spot, bench))
    }

    fn effect(&self, effect: &BoundEffect, spot: &Spot, bench: &mut Bench) -> Result<()> {
        let n = spot.n;
        match effect {
            BoundEffect::Store { param, at, value, guard }
            | BoundEffect::Update { op: None, param, at, value, guard } => {
                let site = self.site(*param, spot)?;
                let dtype = self.param_dtype(*param)?;
                let registers = &*bench.registers;
                let extra = Extra::of(at, registers, n);
                let guard = guard.map(|slot| registers.arg::<u8>(slot, n));
                let values = bench.spread.lanes(registers, dtype, *value, n);
                site.store(dtype, &at.walk, extra, guard, &values, bench.index).map_err(|e| e.error(*param))
            }
            BoundEffect::Update { op: Some(op), param, at, value, guard } => {
                let site = self.site(*param, spot)?;
                let dtype = self.param_dtype(*param)?;
                let registers = &*bench.registers;
                let extra = Extra::of(at, registers, n);
                let guard = guard.map(|slot| registers.arg::<u8>(slot, n));
                let values = bench.spread.lanes(registers, dtype, *value, n);
                let done = site.update(dtype, *op, &at.walk, extra, guard, &values, bench.index);
                done.map_err(|e| e.error(*param))
            }
            BoundEffect::Assert { value, message } => {
                let value = bench.registers.arg::<u8>(*value, n);
                if let Some(lane) = (0..n).find(|lane| value.at(*lane) == 0) {
                    self.flag.raise(spot.point_of(lane), || {
                        let message = self.messages.get(*message as usize);
                        Error::invalid_argument(message.map_or("a check of the program failed", |m| m.as_str()))
                    });
                }
                Ok(())
            }
            BoundEffect::Reduce { op, dtype, value, sum, rest, .. } => {
                self.reduce(*op, *dtype, (*value, *sum, *rest), spot, bench);
                Ok(())
            }
            BoundEffect::ArgReduce { max, dtype, value, position, best, best_position, .. } => {
                let slots = (*value, *position, *best, *best_position);
                match Class::of(*dtype) {
                    Class::F32 => arg_reduce::<f32>(*max, slots, spot, bench.registers, |a, b| a > b),
                    Class::F64 => arg_reduce::<f64>(*max, slots, spot, bench.registers, |a, b| a > b),
                    Class::I64 if *dtype == DType::U64 => {
                        arg_reduce::<i64>(*max, slots, spot, bench.registers, |a, b| (a as u64) > b as u64);
                    }
                    Class::I64 => arg_reduce::<i64>(*max, slots, spot, bench.registers, |a, b| a > b),
                    Class::Bool => arg_reduce::<u8>(*max, slots, spot, bench.registers, |a, b| a > b),
                }
                Ok(())
            }
            BoundEffect::Scan { op, dtype, value, sum, param, at } => {
                self.scan(*op, *dtype, *value, *sum, spot, bench);
                self.store_spread(*param, at, *dtype, spot, bench)
            }
            BoundEffect::ArgScan { max, dtype, value, position, best, best_position, param, param_position, at } => {
                let slots = (*value, *position, *best, *best_position);
                let spread = &mut *bench.spread;
                let (registers, positions) = (&mut *bench.registers, &mut spread.i64);
                // Int64 values and their positions need two vectors of one type.
                let mut values = std::mem::take(bench.index);
                match Class::of(*dtype) {
                    Class::F32 => {
                        arg_scan(*max, slots, spot, registers, &mut spread.f32, positions, |a, b| a >= b);
                    }
                    Class::F64 => {
                        arg_scan(*max, slots, spot, registers, &mut spread.f64, positions, |a, b| a >= b);
                    }
                    Class::I64 if *dtype == DType::U64 => {
                        let not_less = |a: i64, b: i64| a as u64 >= b as u64;
                        arg_scan(*max, slots, spot, registers, &mut values, positions, not_less);
                    }
                    Class::I64 => arg_scan(*max, slots, spot, registers, &mut values, positions, |a, b| a >= b),
                    Class::Bool => {
                        arg_scan(*max, slots, spot, registers, &mut spread.bool, positions, |a, b| a >= b);
                    }
                }
                let mut index = Vec::new();
                let site = self.site(*param_position, spot)?;
                let extra = Extra::of(at, bench.registers, n);
                let lanes = Lanes::I64(&bench.spread.i64);
                site.store(DType::I64, &at.walk, extra, None, &lanes, &mut index)
                    .map_err(|e| e.error(*param_position))?;
                if Class::of(*dtype) == Class::I64 {
                    bench.spread.i64.clone_from(&values);
                }
                *bench.index = values;
                self.store_spread(*param, at, *dtype, spot, bench)
            }
        }
    }

    fn site<'s>(&'s self, param: usize, spot: &'s Spot) -> Result<Site<'s>> {
        let region = self.region(param)?;
        Ok(Site { loops: self.loops, region, runs: spot.runs, fixed: spot.fixed, n: spot.n })
    }

    /// Stores the lanes that stand in the scratch of a class.
    fn store_spread(
        &self,
        param: usize,
        at: &super::bind::At,
        dtype: DType,
        spot: &Spot,
        bench: &mut Bench,
    ) -> Result<()> {
        let site = self.site(param, spot)?;
        let extra = Extra::of(at, bench.registers, spot.n);
        let lanes = match Class::of(dtype) {
            Class::F32 => Lanes::F32(&bench.spread.f32),
            Class::F64 => Lanes::F64(&bench.spread.f64),
            Class::I64 => Lanes::I64(&bench.spread.i64),
            Class::Bool => Lanes::Bool(&bench.spread.bool),
        };
        let done = site.store(self.param_dtype(param)?, &at.walk, extra, None, &lanes, bench.index);
        done.map_err(|e| e.error(param))
    }

    fn reduce(&self, op: Combine, dtype: DType, slots: (usize, usize, usize), spot: &Spot, bench: &mut Bench) {
        let (value, sum, rest) = slots;
        let (loops, n) = (&self.loops, spot.n);
        let (registers, spread_to) = (&mut *bench.registers, &mut *bench.spread);
        match (Class::of(dtype), op) {
            (Class::F32, Combine::Sum) => {
                let mut sums = registers.take::<f64>(sum);
                let values = spread(registers.arg::<f32>(value, n), n, &mut spread_to.f32);
                if spot.lanes_inner {
                    sums.data[0] += loops.fold(values, 0f64, |s, x| s + x as f64, |a, b| a + b);
                } else {
                    loops.join(&mut sums.data[..n], values, |s, x| s + x as f64);
                }
                registers.put(sum, sums);
            }
            (Class::F64, Combine::Sum) => {
                let (mut sums, mut rests) = (registers.take::<f64>(sum), registers.take::<f64>(rest));
                let values = spread(registers.arg::<f64>(value, n), n, &mut spread_to.f64);
                if spot.lanes_inner {
                    let part = loops.fold(values, 0f64, |s, x| s + x, |a, b| a + b);
                    (sums.data[0], rests.data[0]) = add_exactly(sums.data[0], rests.data[0], part);
                } else {
                    let lanes = sums.data[..n].iter_mut().zip(&mut rests.data[..n]).zip(values);
                    lanes.for_each(|((s, r), x)| (*s, *r) = add_exactly(*s, *r, *x));
                }
                registers.put(sum, sums);
                registers.put(rest, rests);
            }
            (Class::F32, Combine::LogAddExp) => {
                let values = registers.arg::<f32>(value, n);
                let lanes: Vec<f64> = (0..n).map(|k| values.at(k) as f64).collect();
                log_add(registers, sum, spot, &lanes);
            }
            (Class::F64, Combine::LogAddExp) => {
                let values = registers.arg::<f64>(value, n);
                let lanes: Vec<f64> = (0..n).map(|k| values.at(k)).collect();
                log_add(registers, sum, spot, &lanes);
            }
            (Class::F32, op) => {
                let to = &mut spread_to.f32;
                match op {
                    Combine::Prod => accumulate(loops, registers, value, sum, spot, 1.0, to, |a: f32, b| a * b),
                    Combine::Min => {
                        accumulate(loops, registers, value, sum, spot, f32::INFINITY, to, minimum_f32);
                    }
                    _ => accumulate(loops, registers, value, sum, spot, f32::NEG_INFINITY, to, maximum_f32),
                }
            }
            (Class::F64, op) => {
                let to = &mut spread_to.f64;
                match op {
                    Combine::Prod => accumulate(loops, registers, value, sum, spot, 1.0, to, |a: f64, b| a * b),
                    Combine::Min => {
                        accumulate(loops, registers, value, sum, spot, f64::INFINITY, to, minimum_f64);
                    }
                    _ => accumulate(loops, registers, value, sum, spot, f64::NEG_INFINITY, to, maximum_f64),
                }
            }
            (Class::I64, Combine::Sum) => {
                accumulate(loops, registers, value, sum, spot, 0, &mut spread_to.i64, i64::wrapping_add);
            }
            (Class::I64, Combine::Max) if dtype != DType::U64 => {
                let start = combine::neutral_int(op, dtype);
                accumulate(loops, registers, value, sum, spot, start, &mut spread_to.i64, |a, b| a.max(b));
            }
            (Class::I64, Combine::Min) if dtype != DType::U64 => {
                let start = combine::neutral_int(op, dtype);
                accumulate(loops, registers, value, sum, spot, start, &mut spread_to.i64, |a, b| a.min(b));
            }
            (Class::I64, op) => {
                let f = combine::i64(op, dtype);
                let start = combine::neutral_int(op, dtype);
                accumulate(loops, registers, value, sum, spot, start, &mut spread_to.i64, f);
            }
            (Class::Bool, Combine::Or | Combine::Max | Combine::Sum) => {
                accumulate(loops, registers, value, sum, spot, 0, &mut spread_to.bool, |a, b| a | b);
            }
            (Class::Bool, op) => {
                let f = combine::bool(op, dtype);
                let start = combine::neutral_bool(op);
                accumulate(loops, registers, value, sum, spot, start, &mut spread_to.bool, f);
            }
        }
    }

    /// Runs along the last inner loop; the running values go to the scratch of their class.
    fn scan(&self, op: Combine, dtype: DType, value: usize, sum: usize, spot: &Spot, bench: &mut Bench) {
        let (registers, to) = (&mut *bench.registers, &mut *bench.spread);
        match (Class::of(dtype), accumulator(op, dtype)) {
            (Class::F32, Class::F64) => {
                let f = combine::f64(op, dtype);
                let step = |s: &mut f64, x: f32| {
                    *s = f(*s, x as f64);
                    super::convert::round(dtype, *s as f32)
                };
                scan_lanes(registers, (value, sum), spot, f64::neutral(op, dtype), &mut to.f32, step);
            }
            (Class::F32, _) => {
                let step = running(combine::f32(op, dtype), |x| super::convert::round(dtype, x));
                scan_lanes(registers, (value, sum), spot, f32::neutral(op, dtype), &mut to.f32, step);
            }
            (Class::F64, _) => {
                let step = running(combine::f64(op, dtype), |x| x);
                scan_lanes(registers, (value, sum), spot, f64::neutral(op, dtype), &mut to.f64, step);
            }
            (Class::I64, _) => {
                let step = running(combine::i64(op, dtype), |x| super::convert::wrap(dtype, x));
                scan_lanes(registers, (value, sum), spot, i64::neutral(op, dtype), &mut to.i64, step);
            }
            (Class::Bool, _) => {
                let step = running(combine::bool(op, dtype), |x| x);
                scan_lanes(registers, (value, sum), spot, u8::neutral(op, dtype), &mut to.bool, step);
            }
        }
    }
}

/// The step of a scan whose running value is also what it gives, rounded.
fn running<T: Copy>(f: impl Fn(T, T) -> T, round: impl Fn(T) -> T) -> impl Fn(&mut T, T) -> T {
    move |running, x| {
        *running = round(f(*running, x));
        *running
    }
}

/// Adds to a sum kept as a number and what its roundings lost (Knuth's two-sum).
#[inline(always)]
fn add_exactly(sum: f64, rest: f64, x: f64) -> (f64, f64) {
    let total = sum + x;
    let of_x = total - sum;
    let lost = (sum - (total - of_x)) + (x - of_x);
    (total, rest + lost)
}

fn total(sum: f64, rest: f64) -> f64 {
    // Beyond the finite numbers the lost part means nothing.
    if sum.is_finite() && rest.is_finite() { sum + rest } else { sum }
}

fn give<T: Lane>(registers: &mut Registers, local: usize, row: usize, values: impl Iterator<Item = T>) {
    let mut to = registers.take::<T>(local);
    for (to, value) in to.data[row..].iter_mut().zip(values) {
        *to = value;
    }
    to.one = false;
    registers.put(local, to);
}

fn hand_over<T: Lane>(registers: &mut Registers, from: usize, local: usize, row: usize, n: usize, f: impl Fn(T) -> T) {
    let values = registers.take::<T>(from);
    give(registers, local, row, values.data[..n].iter().map(|x| f(*x)));
    registers.put(from, values);
}

#[inline(always)]
fn accumulate<T: Lane>(
    loops: &Loops,
    registers: &mut Registers,
    value: usize,
    sum: usize,
    spot: &Spot,
    start: T,
    temporary: &mut Vec<T>,
    f: impl Fn(T, T) -> T + Copy,
) {
    let n = spot.n;
    let mut sums = registers.take::<T>(sum);
    let values = spread(registers.arg::<T>(value, n), n, temporary);
    if spot.lanes_inner {
        let part = loops.fold(values, start, f, f);
        sums.data[0] = f(sums.data[0], part);
    } else {
        loops.join(&mut sums.data[..n], values, f);
    }
    registers.put(sum, sums);
}

fn log_add(registers: &mut Registers, sum: usize, spot: &Spot, values: &[f64]) {
    let mut sums = registers.take::<f64>(sum);
    for (lane, x) in values.iter().enumerate() {
        let to = &mut sums.data[if spot.lanes_inner { 0 } else { lane }];
        *to = logaddexp(*to, *x);
    }
    registers.put(sum, sums);
}

fn arg_reduce<T: Accumulate>(
    max: bool,
    (value, position, best, best_position): (usize, usize, usize, usize),
    spot: &Spot,
    registers: &mut Registers,
    greater: impl Fn(T, T) -> bool,
) {
    let n = spot.n;
    let (mut bests, mut found) = (registers.take::<T>(best), registers.take::<i64>(best_position));
    let (values, positions): (Arg<T>, Arg<i64>) = (registers.arg(value, n), registers.arg(position, n));
    for lane in 0..n {
        let to = if spot.lanes_inner { 0 } else { lane };
        let (x, b) = (values.at(lane), bests.data[to]);
        let better = if max { greater(x, b) } else { greater(b, x) };
        if found.data[to] < 0 || !b.is_nan() && (x.is_nan() || better) {
            bests.data[to] = x;
            found.data[to] = positions.at(lane);
        }
    }
    registers.put(best, bests);
    registers.put(best_position, found);
}

/// Whether a scan starts anew at the first lane of a run (inner lanes) or at this step (outer lanes).
fn restarts(coordinates: &[i64]) -> bool {
    coordinates.last().is_none_or(|at| *at == 0)
}

fn scan_lanes<S: Lane, T: Lane>(
    registers: &mut Registers,
    (value, sum): (usize, usize),
    spot: &Spot,
    neutral: S,
    out: &mut Vec<T>,
    step: impl Fn(&mut S, T) -> T,
) {
    let n = spot.n;
    out.clear();
    let mut sums = registers.take::<S>(sum);
    let values = registers.arg::<T>(value, n);
    if spot.lanes_inner {
        for (run, at) in spot.runs.iter() {
            if restarts(at) {
                sums.data[0] = neutral;
            }
            out.extend((run.lane..run.lane + run.len).map(|lane| step(&mut sums.data[0], values.at(lane))));
        }
    } else {
        if restarts(spot.fixed) {
            sums.data[..n].fill(neutral);
        }
        out.extend(sums.data[..n].iter_mut().enumerate().map(|(lane, s)| step(s, values.at(lane))));
    }
    registers.put(sum, sums);
}

fn arg_scan<T: Accumulate>(
    max: bool,
    (value, position, best, best_position): (usize, usize, usize, usize),
    spot: &Spot,
    registers: &mut Registers,
    values_out: &mut Vec<T>,
    positions_out: &mut Vec<i64>,
    not_less: impl Fn(T, T) -> bool,
) {
    let n = spot.n;
    values_out.clear();
    positions_out.clear();
    let (mut bests, mut found) = (registers.take::<T>(best), registers.take::<i64>(best_position));
    let (values, positions): (Arg<T>, Arg<i64>) = (registers.arg(value, n), registers.arg(position, n));
    if !spot.lanes_inner && restarts(spot.fixed) {
        found.data[..n].fill(-1);
    }
    for (run, at) in spot.runs.iter() {
        if spot.lanes_inner && restarts(at) {
            found.data[0] = -1;
        }
        for lane in run.lane..run.lane + run.len {
            let to = if spot.lanes_inner { 0 } else { lane };
            let (x, b) = (values.at(lane), bests.data[to]);
            let better = if max { not_less(x, b) } else { not_less(b, x) };
            if found.data[to] < 0 || x.is_nan() || !b.is_nan() && better {
                bests.data[to] = x;
                found.data[to] = positions.at(lane);
            }
            values_out.push(bests.data[to]);
            positions_out.push(found.data[to]);
        }
    }
    registers.put(best, bests);
    registers.put(best_position, found);
}
