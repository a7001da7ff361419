//! Kernels that combine many values into few rows, where rows come from data: parts of the steps are taken apart, each into numbers of its own in
//! shared memory, and the parts are joined in one order.
//!
//! A warp takes 32 neighbouring columns and a part of the steps. Its lanes have a column each, and a number in shared memory for every row of it, in
//! a bank of their own: nothing else changes that, so that changes need be neither atomic nor sorted, and loads of columns are neighbours.
//! Where there are fewer columns, lanes are parts as well. A block's warps are joined in shared memory, blocks through scratch memory by a second
//! launch. How the steps are parted depends on sizes alone, so that every call gives the same bits; they are those of another order than
//! the steps' own.

use douse_core::pointwise::Combine;
use douse_core::sym::{Expr, Ranges, Symbol};
use douse_core::{DType, Error, Result};
use douse_program::kernel::{Effect, Kernel, Op, Stage};

use super::index::Width;
use super::kernel::Writer;
use super::sorted;
use super::{names, strategy};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Bins {
    parallel: Vec<usize>,
    /// Points of the parallel loops, and of the others.
    columns: i64,
    steps: i64,
    /// The place that a step changes is `scale` keys and `rest`, in elements; keys are below `keys`.
    key: Expr,
    scale: Expr,
    rest: Expr,
    keys: i64,
    /// Columns and warps of a block, and blocks that share a group of columns.
    group: i64,
    warps: i64,
    blocks: i64,
    /// Warps that a multiprocessor has at once.
    busy: i64,
    /// Bytes of a number.
    size: i64,
}

/// One launch.
#[derive(Clone, Copy, Debug)]
pub(super) enum Part {
    Combine,
    Join,
}

/// Fewer steps are done in order as soon.
const LEAST_STEPS: i64 = 512;
/// A part has no fewer steps, and one for every so many of its numbers: these are cleared and joined.
const LEAST_SHARE: i64 = 32;
const NUMBERS: i64 = 4;
/// Multiprocessors of a large device, and warps that keep one busy.
const MULTIPROCESSORS: i64 = 132;
const BUSY: i64 = 16;
/// Warps of a block at most.
const WARPS: i64 = 8;
/// Shared memory that a block takes besides its own.
const RESERVED: i64 = 1024;
/// 32-bit registers for what is on its way to a lane of few warps, and steps at most; so many warps are few.
const AHEAD: i64 = 96;
const MOST_AHEAD: i64 = 32;
const FEW_WARPS: i64 = 4;
const THREADS: i64 = 256;

impl Bins {
    /// How a kernel with these `parallel` loops is done where a block has so many bytes of `shared` memory. `None` where sizes are not known, rows are
    /// too many, or steps too few; and where the order of changes shows in more than the last bits: of 16-bit floats each is rounded.
    pub fn of(kernel: &Kernel, ranges: &Ranges, parallel: &[usize], steps: &Expr, shared: i64) -> Option<Bins> {
        let [stage] = kernel.stages.as_slice() else { return None };
        let (op, param, index) = change(stage)?;
        let size = match (op, kernel.params.get(param as usize)?.dtype) {
            (Combine::Sum | Combine::Prod, dtype @ (DType::F32 | DType::F64)) => dtype.size() as i64,
            _ => return None,
        };
        let (key, scale, rest) = sorted::split(index)?;
        let in_order = |s| matches!(s, Symbol::Loop(n) if !parallel.contains(&(n as usize)));
        let ranges = strategy::value_ranges(kernel, stage, ranges);
        let apart = ranges.min(&scale).is_some_and(|least| least > 0) && !rest.mentions(in_order);
        if !apart || !kernel.locals.is_empty() || !ranges.non_negative(&key) {
            return None;
        }
        let keys = ranges.max(&key)?.checked_add(1)?;
        let columns = Expr::product(parallel.iter().filter_map(|number| kernel.outer.get(*number))).as_int()?;
        let steps = steps.as_int().filter(|steps| *steps >= LEAST_STEPS)?;
        let group = (columns.clamp(1, 32) as u64).next_power_of_two() as i64;
        let groups = (columns + group - 1) / group;
        let bytes = keys.checked_add(1)?.checked_mul(32 * size)?;
        let parts = steps / (32 / group) / (keys / NUMBERS).max(LEAST_SHARE);
        let warps = (shared / bytes).min(WARPS).min(parts);
        if warps < 1 || columns < 1 {
            return None;
        }
        let resident = ((shared + RESERVED) / (warps * bytes + RESERVED)).min(BUSY / warps).max(1);
        let blocks = (MULTIPROCESSORS * resident / groups).min(parts / warps).max(1);
        let (parallel, busy) = (parallel.to_vec(), warps * resident);
        Some(Bins { parallel, columns, steps, key, scale, rest, keys, group, warps, blocks, busy, size })
    }

    pub fn launches(&self) -> Vec<Part> {
        if self.blocks > 1 { vec![Part::Combine, Part::Join] } else { vec![Part::Combine] }
    }

    /// What the name of a launch's function ends with.
    pub fn suffix(&self, part: Part) -> &'static str {
        match part {
            Part::Combine if self.blocks > 1 => "_parts",
            Part::Combine | Part::Join => "",
        }
    }

    /// Bytes of dynamic shared memory.
    pub fn shared(&self, part: Part) -> u32 {
        match part {
            Part::Combine => (self.warps * 32 * (self.keys + 1) * self.size) as u32,
            Part::Join => 0,
        }
    }

    /// Bytes of scratch memory: a number for each block, key and column.
    pub fn scratch(&self) -> i64 {
        if self.blocks > 1 { self.blocks * self.numbers() * self.size } else { 0 }
    }

    fn numbers(&self) -> i64 {
        self.keys * self.columns
    }
}

/// The one effect that changes an element: how, its parameter and index; `None` where there are others.
fn change(stage: &Stage) -> Option<(Combine, u32, &Expr)> {
    match stage.effects.as_slice() {
        [Effect::Update { op: Some(op), param, index, .. }] => Some((*op, *param, index)),
        _ => None,
    }
}

/// The loads of a stage that wait for nothing.
fn asked(stage: &Stage) -> Vec<usize> {
    let at_once = |op: &Op| matches!(op, Op::Load { index, guard: None, .. } if !strategy::registers(index));
    stage.body.iter().enumerate().filter(|(_, inst)| at_once(&inst.op)).map(|(number, _)| number).collect()
}

impl Writer<'_> {
    /// One of the launches of a kernel by bins. Returns the number of blocks and threads a block.
    pub fn bins(&mut self, bins: &Bins, part: Part) -> Result<(Expr, u32)> {
        match part {
            Part::Combine => self.combine_in_bins(bins),
            Part::Join => self.join_bins(bins),
        }
    }

    fn combine_in_bins(&mut self, bins: &Bins) -> Result<(Expr, u32)> {
        let Bins { columns, steps, keys, group, warps, blocks, .. } = bins;
        let [stage] = self.kernel.stages.as_slice() else {
            return Err(Error::internal("a kernel of several stages by bins"));
        };
        let [Effect::Update { value, guard, .. }] = stage.effects.as_slice() else {
            return Err(Error::internal("a kernel without updates by bins"));
        };
        let (op, element) = self.combination(stage)?;
        let (apart, steps_loops) = self.split_outer(&bins.parallel);
        // Steps are counted beyond the end.
        let wide = self.outer_indexer().width(&Expr::int(steps.saturating_mul(2))) == Width::Wide;
        let step = if wide { "int64" } else { "int" };
        let share = (steps + blocks * warps - 1) / (blocks * warps);
        self.out.line(format!("typedef Bins<{op}, {element}, {keys}, {warps}, {group}> Rows;"));
        self.out.line(format!("const int64 point = blockIdx.x / {blocks}u * {group}ll + threadIdx.x % {group}u;"));
        self.out.line(format!("const int64 p = smaller<int64>(point, {columns}ll - 1);"));
        self.declare(&apart, "p", 1);
        self.out.line(format!(
            "const {step} begin = ({step})(blockIdx.x % {blocks}u * {warps} + threadIdx.x / 32) * {share};"
        ));
        self.out.line(format!("const {step} end = smaller<{step}>({steps}, begin + {share});"));
        let loads = asked(stage);
        self.out.line("struct Asked {");
        let mut words = 0;
        for load in &loads {
            if let Some(inst) = stage.body.get(*load) {
                self.out.line(format!("{} r{load};", names::register(inst.dtype)?));
                words += (inst.dtype.size() as i64 + 3) / 4;
            }
        }
        self.out.line("};");
        self.out.line(format!("const auto ask = [=]({step} step) {{"));
        self.declare(&steps_loops, "step", 1);
        self.out.line("Asked asked;");
        let body = self.body(stage);
        for load in &loads {
            if let Some(Op::Load { param, index, .. }) = stage.body.get(*load).map(|inst| &inst.op) {
                let place = body.parenthesised(index);
                body.out.line(format!("asked.r{load} = load(a{param} + {place});"));
            }
        }
        self.out.line("return asked;");
        self.out.line("};");
        self.out.line("Fault fault;");
        self.out.line(format!(
            "const auto take = [=, &fault]({step} step, const Asked &asked, uint32 &key, Register<{element}> &value) {{"
        ));
        self.declare(&steps_loops, "step", 1);
        let mut body = self.body(stage);
        body.faults = true;
        body.instructions_from(|number| loads.contains(&number).then(|| format!("asked.r{number}")))?;
        let key = body.indexer.write(&bins.key);
        self.out.line(match guard {
            Some(guard) => format!("key = r{guard} ? (uint32)({key}) : {keys}u;"),
            None => format!("key = (uint32)({key});"),
        });
        self.out.line(format!("value = r{value};"));
        self.out.line("};");
        let ahead = 1 << (AHEAD / words.max(1)).min(MOST_AHEAD).min(MOST_AHEAD * FEW_WARPS / bins.busy).max(1).ilog2();
        self.out.line(format!("{element} *const own = Rows::clear();"));
        self.out.line(format!("Rows::change<Asked, {ahead}, {step}>(own, begin, end, {steps} - 1, ask, take);"));
        if self.needs.flag {
            self.out.line("fault.raise_in(flag);");
        }
        self.out.line(format!("const bool there = point < {columns} && threadIdx.x % 32 < {group};"));
        self.out.line(format!("Rows::join([=](int key, {element} x) {{"));
        self.out.line("if (!there) return;");
        if *blocks > 1 {
            self.needs.scratch = true;
            self.out.line(format!("const int64 row = blockIdx.x % {blocks}u * {keys}ll + key;"));
            self.out.line(format!("static_cast<{element} *>(scratch)[row * {columns} + p] = x;"));
        } else {
            let changed = self.binned(bins, stage)?;
            self.out.line(format!("update<{op}>({changed}, x);"));
        }
        self.out.line("});");
        let groups = (columns + group - 1) / group;
        Ok((Expr::int(groups * blocks), (32 * warps) as u32))
    }

    /// A thread an element.
    fn join_bins(&mut self, bins: &Bins) -> Result<(Expr, u32)> {
        let [stage] = self.kernel.stages.as_slice() else {
            return Err(Error::internal("a kernel of several stages by bins"));
        };
        let (op, element) = self.combination(stage)?;
        let (apart, _) = self.split_outer(&bins.parallel);
        let (numbers, columns, blocks) = (bins.numbers(), bins.columns, bins.blocks);
        self.needs.scratch = true;
        self.out.line(format!("const int64 number = blockIdx.x * {THREADS}ll + threadIdx.x;"));
        self.out.line(format!("if (number >= {numbers}ll) return;"));
        self.out.line(format!("const int64 key = number / {columns}ll, p = number % {columns}ll;"));
        self.declare(&apart, "p", 1);
        let changed = self.binned(bins, stage)?;
        self.out.line(format!("const {element} *const parts = static_cast<const {element} *>(scratch) + number;"));
        self.out.line(format!("{element} x = load({changed});"));
        self.out.line("#pragma unroll 16");
        self.out.line(format!(
            "for (int part = 0; part < {blocks}; ++part) {op}::join(x, load(parts + part * {numbers}ll));"
        ));
        self.out.line(format!("store({changed}, x);"));
        Ok((Expr::int((numbers + THREADS - 1) / THREADS), THREADS as u32))
    }

    /// The element of a `key` at the point.
    fn binned(&self, bins: &Bins, stage: &Stage) -> Result<String> {
        let (_, param, _) = change(stage).ok_or_else(|| Error::internal("a kernel without updates by bins"))?;
        let indexer = self.outer_indexer();
        Ok(format!("a{param} + ((int64)key * ({}) + {})", indexer.wide(&bins.scale), indexer.wide(&bins.rest)))
    }

    /// The class that combines, and what.
    fn combination(&mut self, stage: &Stage) -> Result<(String, &'static str)> {
        let (op, param, _) = change(stage).ok_or_else(|| Error::internal("a kernel without updates by bins"))?;
        let dtype = self.body(stage).param(param)?;
        Ok((names::one_by_one(op, dtype)?, names::element(dtype)?))
    }
}
