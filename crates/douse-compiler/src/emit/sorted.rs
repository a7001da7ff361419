//! Kernels that change rows in order, where rows come from data: points are sorted by their rows, stably, and each row's are taken one after the
//! other.

use douse_core::sym::{Atom, Expr, Ranges, Symbol};
use douse_core::{Error, Result};
use douse_program::kernel::{Effect, Kernel, Stage};

use super::claim::along;
use super::kernel::Writer;
use super::names;
use super::strategy;
use super::vector::Vectors;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sorted {
    parallel: Vec<usize>,
    /// Points of the other loops, the steps.
    steps: Expr,
    /// What steps are sorted by; the place that they change is `scale` keys and `rest`.
    key: Expr,
    scale: Expr,
    rest: Expr,
    /// Keys are below this. It is the key of steps that change nothing.
    keys: i64,
    /// Steps that a thread sorts at once.
    items: i64,
}

/// One launch.
#[derive(Clone, Copy, Debug)]
pub(super) enum Part {
    Count(u32),
    Sum(u32),
    Place(u32),
    Change,
}

/// Fewer steps are done in order sooner.
const LEAST_STEPS: i64 = 1024;
const MOST_KEYS: i64 = 1 << 31;
/// Up to so many steps have small tiles, to be enough blocks.
const SMALL: i64 = 1 << 18;
const THREADS: i64 = 256;
const DIGITS: i64 = 256;
/// Fewer neighbours than this are not a warp's.
const NARROW: i64 = 16;

impl Part {
    /// What its function's name ends with.
    pub fn suffix(self) -> String {
        match self {
            Part::Count(pass) => format!("_count_{pass}"),
            Part::Sum(pass) => format!("_sum_{pass}"),
            Part::Place(pass) => format!("_place_{pass}"),
            Part::Change => String::new(),
        }
    }
}

impl Sorted {
    /// How a kernel with these `parallel` loops, and so many steps, is sorted; `None` where the data that its places depend on is not the same
    /// along all of them, or it changes more than one parameter.
    pub fn of(kernel: &Kernel, ranges: &Ranges, parallel: &[usize], steps: &Expr) -> Option<Sorted> {
        let [stage] = kernel.stages.as_slice() else { return None };
        let (_, index, guard) = change(stage)?;
        if along(kernel, stage, index, guard, parallel) != parallel {
            return None;
        }
        let (key, scale, rest) = split(index)?;
        let steps_loops = |s| matches!(s, Symbol::Loop(n) if !parallel.contains(&(n as usize)));
        if rest.mentions(steps_loops) {
            return None;
        }
        let ranges = strategy::value_ranges(kernel, stage, ranges);
        let keys = ranges.max(&key)?.checked_add(1)?;
        let most = ranges.max(steps);
        let sound = ranges.non_negative(&key) && keys <= MOST_KEYS && most.is_none_or(|most| most >= LEAST_STEPS);
        let items = if most.is_some_and(|most| most <= SMALL) { 4 } else { 16 };
        let (parallel, steps) = (parallel.to_vec(), steps.clone());
        sound.then_some(Sorted { parallel, steps, key, scale, rest, keys, items })
    }

    fn passes(&self) -> u32 {
        (i64::BITS - self.keys.leading_zeros()).div_ceil(8)
    }

    fn tiles(&self) -> Expr {
        self.steps.ceil_div(&Expr::int(THREADS * self.items))
    }

    pub fn launches(&self) -> Vec<Part> {
        let sort = (0..self.passes()).flat_map(|pass| [Part::Count(pass), Part::Sum(pass), Part::Place(pass)]);
        sort.chain([Part::Change]).collect()
    }

    /// Bytes of scratch memory: two lists of keys, two of steps, the digits' counts by tile, and their totals.
    pub fn scratch(&self) -> Expr {
        &(&self.steps * 16) + &(&(&self.tiles() + &Expr::int(1)) * (4 * DIGITS))
    }
}

/// The one effect that changes an element, its index and guard; `None` where there are others.
fn change(stage: &Stage) -> Option<(usize, &Expr, Option<u32>)> {
    match stage.effects.as_slice() {
        [Effect::Update { op: Some(_), index, guard, .. }] => Some((0, index, *guard)),
        _ => None,
    }
}

/// An index as `scale * key + rest`, where registers stand in the key alone.
fn split(index: &Expr) -> Option<(Expr, Expr, Expr)> {
    let is_value = |s| matches!(s, Symbol::Value(_));
    let mut values = Vec::new();
    index.visit(&mut |symbol| {
        if is_value(symbol) && !values.contains(&symbol) {
            values.push(symbol);
        }
    });
    if let [value] = values.as_slice() {
        let (scale, rest) = index.affine(*value)?;
        return Some((Expr::symbol(*value), scale, rest)).filter(|(_, scale, _)| !scale.mentions_loops());
    }
    let (of_values, others): (Vec<_>, Vec<_>) =
        index.terms().iter().partition(|term| term.to_expr().mentions(is_value));
    let plain = |atom: &Atom| matches!(atom, Atom::Symbol(Symbol::Value(_)));
    if !of_values.iter().all(|term| term.coefficient > 0 && matches!(term.factors.as_slice(), [one] if plain(one))) {
        return None;
    }
    let scale = of_values.iter().fold(0, |divisor, term| greatest_common_divisor(divisor, term.coefficient));
    let sum = |start: i64, terms: Vec<Expr>| terms.iter().fold(Expr::int(start), |sum, term| &sum + term);
    let whole = sum(0, of_values.iter().map(|term| term.to_expr()).collect());
    let rest = sum(index.constant(), others.iter().map(|term| term.to_expr()).collect());
    (scale > 0).then(|| (whole.floor_div(&Expr::int(scale)), Expr::int(scale), rest))
}

fn greatest_common_divisor(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

impl Writer<'_> {
    /// One of the launches of a sorted kernel. Returns the number of blocks and threads a block.
    pub fn sorted(&mut self, sorted: &Sorted, part: &Part) -> Result<(Expr, u32)> {
        self.needs.scratch = true;
        let tiles = sorted.tiles();
        let steps = self.outer_indexer().wide(&sorted.steps);
        let tiles_text = self.outer_indexer().wide(&tiles);
        self.out.line(format!("typedef Radix<uint32, {}> Sort;", sorted.items));
        self.out.line(format!("const int64 steps = {steps}, tiles = {tiles_text};"));
        self.out.line("uint32 *const keys = static_cast<uint32 *>(scratch), *const order = keys + 2 * steps;");
        self.out.line(format!("uint32 *const counts = order + 2 * steps, *const totals = counts + {DIGITS} * tiles;"));
        // Passes take turns with the two lists.
        let list = |of: &str, turn: u32| format!("{of} + {} * steps", turn % 2);
        match *part {
            Part::Sum(_) => {
                self.out.line(format!("Sort::sum({DIGITS}, tiles, counts, totals);"));
                return Ok((Expr::int(DIGITS * 32 / THREADS), THREADS as u32));
            }
            Part::Change => {
                self.out.line(format!("const uint32 *const sorted = {};", list("keys", sorted.passes() + 1)));
                self.out.line(format!("const uint32 *const step_of = {};", list("order", sorted.passes() + 1)));
                return self.change_by_row(sorted);
            }
            Part::Count(pass) | Part::Place(pass) => match pass {
                0 => self.key_of_step(sorted)?,
                _ => {
                    self.out.line(format!("const uint32 *const old = {};", list("keys", pass + 1)));
                    self.out.line("const auto key = [=](int64 i) -> uint32 { return old[i]; };");
                }
            },
        }
        let (Part::Count(pass) | Part::Place(pass) | Part::Sum(pass)) = *part else {
            return Err(Error::internal("a part"));
        };
        let shift = 8 * pass;
        if let Part::Count(_) = part {
            self.out.line(format!("Sort::count(steps, tiles, {shift}, key, counts);"));
        } else {
            let index = match pass {
                0 => "(uint32)i".to_owned(),
                _ => format!("({})[i]", list("order", pass + 1)),
            };
            self.out.line(format!("uint32 *const new_keys = {};", list("keys", pass)));
            self.out.line(format!("uint32 *const new_order = {};", list("order", pass)));
            self.out.line(format!("const auto index = [=](int64 i) -> uint32 {{ return {index}; }};"));
            self.out.line("const auto put = [=](int64 place, uint32 key, uint32 index) { new_keys[place] = key; new_order[place] = index; };");
            self.out.line(format!("Sort::place(steps, tiles, {shift}, key, index, counts, totals, put);"));
        }
        Ok((tiles, THREADS as u32))
    }

    /// Declares `key`, the key of a step.
    fn key_of_step(&mut self, sorted: &Sorted) -> Result<()> {
        let kernel = self.kernel;
        let [stage] = kernel.stages.as_slice() else {
            return Err(Error::internal("a sorted kernel of several stages"));
        };
        let Some((_, _, guard)) = change(stage) else { return Err(Error::internal("a sorted kernel without updates")) };
        let (apart, steps) = self.split_outer(&sorted.parallel);
        self.out.line("const auto key = [=](int64 step) -> uint32 {");
        for (number, _) in &apart {
            self.out.line(format!("const int i{number} = 0;"));
        }
        self.declare(&steps, "step", 1);
        let mut body = self.body(stage);
        body.instructions(&Vectors::none())?;
        let key = body.indexer.write(&sorted.key);
        self.out.line(match guard {
            Some(guard) => format!("return r{guard} ? (uint32)({key}) : {}u;", sorted.keys),
            None => format!("return (uint32)({key});"),
        });
        self.out.line("};");
        Ok(())
    }

    /// Changes rows. A warp takes neighbours in the rows of 32 sorted steps; where there are few, a thread takes one of a row.
    fn change_by_row(&mut self, sorted: &Sorted) -> Result<(Expr, u32)> {
        let kernel = self.kernel;
        let [stage] = kernel.stages.as_slice() else {
            return Err(Error::internal("a sorted kernel of several stages"));
        };
        let Some(Effect::Update { op: Some(op), param, value, .. }) = stage.effects.first() else {
            return Err(Error::internal("a sorted kernel without updates"));
        };
        let (apart, steps_loops) = self.split_outer(&sorted.parallel);
        let columns = strategy::count(&apart, 1);
        let narrow = self.outer_indexer().ranges.max(&columns).is_some_and(|most| most < NARROW);
        let columns_text = self.outer_indexer().wide(&columns);
        let blocks = if narrow {
            self.out.line(format!("const int64 number = blockIdx.x * {THREADS}ll + threadIdx.x;"));
            self.out.line(format!("const int64 q = number / {columns_text}, p = number % {columns_text};"));
            self.out.line("if (q >= steps) return;");
            self.out.line("const bool there = true;");
            (&sorted.steps * &columns).ceil_div(&Expr::int(THREADS))
        } else {
            let slabs = columns.ceil_div(&Expr::int(32));
            let slabs_text = self.outer_indexer().wide(&slabs);
            self.out.line("const int lane = threadIdx.x % 32;");
            self.out.line(format!("const int64 number = blockIdx.x * {}ll + threadIdx.x / 32;", THREADS / 32));
            self.out.line(format!(
                "const int64 window = number / {slabs_text} * 32, point = number % {slabs_text} * 32 + lane;"
            ));
            self.out.line("if (window >= steps) return;");
            self.out.line(format!("const bool there = point < {columns_text};"));
            self.out.line(format!("const int64 p = there ? point : {columns_text} - 1;"));
            (&sorted.steps.ceil_div(&Expr::int(32)) * &slabs).ceil_div(&Expr::int(THREADS / 32))
        };
        self.declare(&apart, "p", 1);
        self.out.line("const auto value = [=](int64 step) {");
        self.declare(&steps_loops, "step", 1);
        let mut body = self.body(stage);
        // They were raised before.
        body.out.line("Fault fault;");
        body.faults = true;
        body.instructions(&Vectors::none())?;
        let op = names::one_by_one(*op, body.param(*param)?)?;
        let (scale, rest) = (body.indexer.wide(&sorted.scale), body.indexer.wide(&sorted.rest));
        self.out.line(format!("return r{value};"));
        self.out.line("};");
        let lanes = if narrow { 1 } else { 32 };
        let changed = format!("a{param} + ((int64)sorted[q] * ({scale}) + {rest})");
        let update = format!(
            "update_by_run<{op}, {}, {lanes}>({changed}, there, q, steps, sorted, step_of, value);",
            names::element(
                kernel
                    .params
                    .get(*param as usize)
                    .map(|p| p.dtype)
                    .ok_or_else(|| Error::internal("a parameter is not there"))?
            )?
        );
        if narrow {
            self.out.line(format!("if (sorted[q] == {}u || q > 0 && sorted[q - 1] == sorted[q]) return;", sorted.keys));
            self.out.line(update);
        } else {
            self.out.line("const int64 own = window + lane;");
            self.out.line("const uint32 own_key = own < steps ? sorted[own] : 0;");
            self.out.line(format!(
                "const bool begins = own < steps && own_key != {}u && (own == 0 || sorted[own - 1] != own_key);",
                sorted.keys
            ));
            self.out.line("for (uint32 rest = __ballot_sync(0xffffffffu, begins); rest != 0; rest &= rest - 1) {");
            self.out.line("const int64 q = window + __ffs(rest) - 1;");
            self.out.line(update);
            self.out.line("}");
        }
        Ok((blocks, THREADS as u32))
    }
}
