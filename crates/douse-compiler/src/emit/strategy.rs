//! How the points of a kernel are shared among threads.

use douse_core::DType;
use douse_core::pointwise::Combine;
use douse_core::sym::{Expr, Ranges, Symbol};
use douse_program::kernel::{Effect, Kernel, Op, Stage};

use super::claim::Claims;
use super::kernel::variable;
use super::sorted::Sorted;
use super::split::Split;
use super::tile::Tiling;

/// The threads that share the inner loops of one outer point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lanes {
    Thread,
    /// So many neighbouring lanes of a warp; the others have points of their own.
    Part(u32),
    Warp,
    Block(u32),
    /// So many warps of a block share 32 outer points: where neighbouring points read neighbouring elements.
    Column(u32),
}

impl Lanes {
    pub fn count(self) -> i64 {
        match self {
            Lanes::Thread => 1,
            Lanes::Warp => 32,
            Lanes::Part(lanes) | Lanes::Block(lanes) | Lanes::Column(lanes) => i64::from(lanes),
        }
    }

    pub fn name(self) -> String {
        match self {
            Lanes::Thread => "ThreadLanes".to_owned(),
            Lanes::Part(lanes) => format!("PartLanes<{lanes}>"),
            Lanes::Warp => "WarpLanes".to_owned(),
            Lanes::Block(threads) => format!("BlockLanes<{threads}>"),
            Lanes::Column(lanes) => format!("ColumnLanes<{lanes}>"),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Strategy {
    /// A thread takes a few outer points.
    Pointwise,
    /// A block takes a tile of them.
    Tiled(Tiling),
    Staged(Lanes),
    /// Several blocks share an outer point.
    Split(Split),
    /// Sequential but for the outer loops `parallel`, whose points never write one element: a thread each.
    OneByOne {
        parallel: Vec<usize>,
    },
    /// The same with a few warps each, whose lanes take 32 points of the other loops at once and change elements in order. A block has so many
    /// `columns`, which are neighbours; of several `owners`, which see all points, each makes the changes of its share of the elements.
    InOrder(InOrder),
    /// In any order at first, and in order where it matters.
    Claimed(Claims),
    /// In order of the elements that are changed.
    Sorted(Sorted),
}

/// How a block takes points in order, see [`Strategy::InOrder`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct InOrder {
    pub parallel: Vec<usize>,
    pub columns: u32,
    pub owners: u32,
}

const ORDERED: &str = include_str!("cuda/ordered.cuh");
const RADIX: &str = include_str!("cuda/radix.cuh");

/// Inner loops of so few points are one thread's.
const FEW: i64 = 16;
/// So many each lane takes where there are enough outer points to fill the device: in 32 registers, and what lanes do together is little beside.
const SHARE: i64 = 32;
const MANY_ROWS: i64 = 512;
/// Of so many rows, those of no more points than this share warps: 4 points a lane.
const SHORT_ROWS: i64 = 1 << 14;
const SHORT_ROW: i64 = 64;
/// Where threads of consecutive outer points read consecutive elements, this many fill the device.
const MANY_COLUMNS: i64 = 8192;
/// Threads that fill the device, and outer points from which warps that share 32 of them are enough blocks.
const THREADS: i64 = 1 << 18;
const SHARED_COLUMNS: i64 = 1024;
/// Warps that an ordered kernel should have.
const WARPS: i64 = 1024;
const MOST_OWNERS: i64 = 64;
/// Neighbours that a block takes, and warps that it has for each at most.
const COLUMNS: i64 = 4;
const SHARES: i64 = 8;

impl Strategy {
    /// Whether threads wait for each other.
    pub fn cooperates(&self) -> bool {
        match self {
            Strategy::Pointwise | Strategy::Staged(Lanes::Thread) | Strategy::OneByOne { .. } => false,
            Strategy::Tiled(_) | Strategy::Staged(_) | Strategy::Split(_) | Strategy::InOrder(_) => true,
            // Threads of the launches that claim do not, which matters to none.
            Strategy::Claimed(_) | Strategy::Sorted(_) => true,
        }
    }

    /// Texts of the library that the kernel's functions call.
    pub fn templates(&self) -> &'static [&'static str] {
        match self {
            Strategy::InOrder(_) | Strategy::Claimed(_) => &[ORDERED],
            Strategy::Sorted(_) => &[ORDERED, RADIX],
            _ => &[],
        }
    }

    pub fn of(kernel: &Kernel, ranges: &Ranges) -> Strategy {
        if kernel.ordered {
            let ranges = ranges.with_loops(&kernel.outer);
            let parallel = parallel_loops(kernel, &ranges);
            let points = Expr::product(parallel.iter().filter_map(|k| kernel.outer.get(*k)));
            let steps = (0..kernel.outer.len()).filter(|k| !parallel.contains(k));
            let steps = Expr::product(steps.filter_map(|k| kernel.outer.get(k)));
            if !shareable(kernel) || ranges.max(&steps).is_some_and(|most| most <= FEW) {
                return Strategy::OneByOne { parallel };
            }
            if commutes(kernel) {
                return Strategy::Pointwise;
            }
            let points = points.as_int().unwrap_or(WARPS).max(1);
            let columns = (points.min(COLUMNS) as u64).next_power_of_two() as u32;
            let in_order =
                InOrder { parallel, columns, owners: (WARPS / points / SHARES).clamp(1, MOST_OWNERS) as u32 };
            if let Some(claims) = Claims::of(kernel, &ranges, &in_order) {
                return Strategy::Claimed(claims);
            }
            let sorted = Sorted::of(kernel, &ranges, &in_order.parallel, &steps);
            return sorted.map_or(Strategy::InOrder(in_order), Strategy::Sorted);
        }
        if let [stage] = kernel.stages.as_slice() {
            let accumulates = stage.effects.iter().any(|e| {
                matches!(
                    e,
                    Effect::Reduce { .. } | Effect::ArgReduce { .. } | Effect::Scan { .. } | Effect::ArgScan { .. }
                )
            });
            if stage.inner.is_empty() && !accumulates {
                return Tiling::of(kernel, stage).map_or(Strategy::Pointwise, Strategy::Tiled);
            }
        }
        let lanes = lanes(kernel, ranges);
        Split::of(kernel, ranges, lanes).map_or(Strategy::Staged(lanes), Strategy::Split)
    }
}

fn lanes(kernel: &Kernel, ranges: &Ranges) -> Lanes {
    // Updates of one outer point may meet in one element: their order is that of the inner loops.
    let updates = |s: &Stage| !s.inner.is_empty() && s.effects.iter().any(|e| matches!(e, Effect::Update { .. }));
    if kernel.stages.iter().any(updates) {
        return Lanes::Thread;
    }
    let rows = ranges.min(&Expr::product(&kernel.outer)).unwrap_or(0);
    let most_rows = ranges.max(&Expr::product(&kernel.outer)).unwrap_or(i64::MAX);
    let sizes: Vec<Option<i64>> = kernel.stages.iter().map(|s| ranges.max(&Expr::product(&s.inner))).collect();
    let longest = sizes.iter().copied().try_fold(1i64, |most, size| size.map(|s| most.max(s)));
    let by_columns = by_columns(kernel);
    let scanned = kernel.stages.iter().any(scans);
    match longest {
        Some(longest) if longest <= FEW => Lanes::Thread,
        Some(longest) if by_columns && most_rows >= SHARED_COLUMNS => {
            match (THREADS / most_rows).min(longest / 8).clamp(1, 16) {
                1 => Lanes::Thread,
                lanes => Lanes::Column(1 << lanes.ilog2()),
            }
        }
        Some(longest) if by_columns && most_rows >= FEW && longest >= THREADS / 8 => Lanes::Column(8),
        Some(longest) if by_columns && (most_rows >= MANY_COLUMNS || longest <= 4 * FEW) => Lanes::Thread,
        None if by_columns && rows >= MANY_COLUMNS => Lanes::Thread,
        Some(longest)
            if longest <= SHORT_ROW && rows == most_rows && rows >= SHORT_ROWS && rows % 32 == 0 && !scanned =>
        {
            Lanes::Part(((longest / 4) as u64).next_power_of_two() as u32)
        }
        Some(longest) => {
            let share = if most_rows >= MANY_ROWS { SHARE } else { FEW / 2 };
            match ((longest / share) as u64).next_power_of_two() {
                ..=32 => Lanes::Warp,
                lanes => Lanes::Block(lanes.min(1024) as u32),
            }
        }
        None if most_rows < MANY_ROWS => Lanes::Block(1024),
        None => Lanes::Block(256),
    }
}

/// Whether the loads of inner loops run along the last outer loop rather than along an inner one.
fn by_columns(kernel: &Kernel) -> bool {
    let outer = in_memory_order(kernel.outer.len(), 0, stored(kernel));
    let Some(column) = outer.last() else { return false };
    let (mut columns, mut rows) = (0, 0);
    for stage in kernel.stages.iter().filter(|s| !s.inner.is_empty()) {
        let inner = kernel.outer.len()..kernel.outer.len() + stage.inner.len();
        for index in loaded(stage) {
            columns += u32::from(runs_along(index, *column));
            rows += u32::from(inner.clone().any(|number| runs_along(index, number)));
        }
    }
    columns > 0 && rows == 0
}

pub(super) fn runs_along(index: &Expr, number: usize) -> bool {
    index.affine(variable(number)).is_some_and(|(step, _)| step.is_int(1))
}

/// The indices of a kernel's stores.
pub(super) fn stored(kernel: &Kernel) -> impl Iterator<Item = &Expr> {
    kernel.stages.iter().flat_map(|s| &s.effects).filter_map(destination).map(|(_, index)| index)
}

/// The indices of a stage's loads.
pub(super) fn loaded(stage: &Stage) -> impl Iterator<Item = &Expr> {
    stage.body.iter().filter_map(|inst| match &inst.op {
        Op::Load { index, .. } => Some(index),
        _ => None,
    })
}

/// The numbers of `count` loops from `first` on, in the order in which lanes take them: the last is one along which the first of these
/// accesses that has neighbours finds them, so that lanes that are neighbours touch elements that are.
pub(super) fn in_memory_order<'a>(count: usize, first: usize, indices: impl Iterator<Item = &'a Expr>) -> Vec<usize> {
    let mut numbers: Vec<usize> = (first..first + count).collect();
    let mut accesses = indices.filter_map(|index| numbers.iter().rposition(|number| runs_along(index, *number)));
    if let Some(neighbours) = accesses.next() {
        let number = numbers.remove(neighbours);
        numbers.push(number);
    }
    numbers
}

/// The inner loops of a stage, by number and size, in the order in which lanes take them. Scans and updates go through their elements in the
/// order in which they are.
pub(super) fn inner_loops(kernel: &Kernel, stage: &Stage) -> Vec<(usize, Expr)> {
    let first = kernel.outer.len();
    let updates = stage.effects.iter().any(|e| matches!(e, Effect::Update { .. }));
    let numbers = match scans(stage) || updates {
        true => (first..first + stage.inner.len()).collect(),
        false => in_memory_order(stage.inner.len(), first, loaded(stage)),
    };
    numbers.into_iter().filter_map(|number| Some((number, stage.inner.get(number - first)?.clone()))).collect()
}

/// How many threads' worth of points loops have, `points` at a time along the last.
pub(super) fn count(loops: &[(usize, Expr)], points: i64) -> Expr {
    let last = loops.len().saturating_sub(1);
    let sizes = loops.iter().enumerate().map(|(k, (_, size))| match k == last {
        true => size.ceil_div(&Expr::int(points)),
        false => size.clone(),
    });
    sizes.fold(Expr::int(1), |product, size| &product * &size)
}

pub(super) fn scans(stage: &Stage) -> bool {
    stage.effects.iter().any(|e| matches!(e, Effect::Scan { .. } | Effect::ArgScan { .. }))
}

/// Whether the changes an ordered kernel makes can be shared out by element: each point is one body, and nothing it loads is changed.
fn shareable(kernel: &Kernel) -> bool {
    let [stage] = kernel.stages.as_slice() else { return false };
    let written: Vec<u32> = stage.effects.iter().filter_map(|e| destination(e).map(|(param, _)| param)).collect();
    let loads_written = stage.body.iter().any(|i| matches!(&i.op, Op::Load { param, .. } if written.contains(param)));
    let effects =
        stage.effects.iter().all(|e| matches!(e, Effect::Update { .. } | Effect::Store { .. } | Effect::Assert { .. }));
    stage.inner.is_empty() && effects && !loads_written
}

/// Whether the changes that an ordered kernel makes come to the same bits in any order, and there are atomic operations for them.
fn commutes(kernel: &Kernel) -> bool {
    let commutes = |effect: &Effect| match effect {
        Effect::Update { op: Some(op), param, .. } => match kernel.params.get(*param as usize).map(|p| p.dtype) {
            Some(DType::I32 | DType::I64) => matches!(op, Combine::Sum | Combine::Min | Combine::Max),
            Some(DType::F32 | DType::F64) => matches!(op, Combine::Min | Combine::Max),
            _ => false,
        },
        Effect::Assert { .. } => true,
        _ => false,
    };
    kernel.stages.iter().flat_map(|stage| &stage.effects).all(commutes)
}

/// The elements that an effect changes.
pub(super) fn destinations(effect: &Effect) -> Vec<(u32, &Expr)> {
    let second = match effect {
        Effect::ArgScan { param_position, index, .. } => Some((*param_position, index)),
        _ => None,
    };
    destination(effect).into_iter().chain(second).collect()
}

/// The element that an effect changes.
pub(super) fn destination(effect: &Effect) -> Option<(u32, &Expr)> {
    match effect {
        Effect::Store { param, index, .. }
        | Effect::Update { param, index, .. }
        | Effect::Scan { param, index, .. }
        | Effect::ArgScan { param, index, .. } => Some((*param, index)),
        Effect::Reduce { .. } | Effect::ArgReduce { .. } | Effect::Assert { .. } => None,
    }
}

/// The outer loops of an ordered kernel whose different values never reach one element.
fn parallel_loops(kernel: &Kernel, ranges: &Ranges) -> Vec<usize> {
    let changed: Vec<(usize, &Stage, u32, &Expr)> = kernel
        .stages
        .iter()
        .enumerate()
        .flat_map(|(n, s)| s.effects.iter().filter_map(destination).map(move |(p, e)| (n, s, p, e)))
        .collect();
    let several = changed.iter().any(|(n, _, param, index)| {
        changed.iter().any(|(m, _, other, at)| param == other && (index != at || n != m && registers(index)))
    });
    let arg_scans = kernel.stages.iter().flat_map(|s| &s.effects).any(|e| matches!(e, Effect::ArgScan { .. }));
    // What is loaded from a parameter that is changed must be the very element.
    let loads_other = kernel.stages.iter().flat_map(|s| &s.body).any(|inst| match &inst.op {
        Op::Load { param, index, .. } => {
            changed.iter().any(|(_, _, changed, at)| changed == param && (*at != index || registers(index)))
        }
        _ => false,
    });
    if several || arg_scans || loads_other {
        return Vec::new();
    }
    let apart =
        |number: usize| changed.iter().all(|(_, stage, _, index)| separates(kernel, stage, number, index, ranges));
    (0..kernel.outer.len()).filter(|number| apart(*number)).collect()
}

pub(super) fn registers(index: &Expr) -> bool {
    index.mentions(|s| matches!(s, Symbol::Value(_)))
}

/// Whether an index is different wherever the loop's variable is: it is a digit of the index, in a number system in which what is below the
/// digit never carries into it, and what is above is a multiple of its range.
fn separates(kernel: &Kernel, stage: &Stage, number: usize, index: &Expr, ranges: &Ranges) -> bool {
    let ranges = value_ranges(kernel, stage, ranges);
    let (Some((step, rest)), Some(size)) = (index.affine(variable(number)), kernel.outer.get(number)) else {
        return false;
    };
    let range = &step * size;
    let mut below = Expr::int(0);
    for term in rest.terms() {
        let alone = term.to_expr();
        if !alone.modulo(&range).is_int(0) {
            below = &below + &alone;
        }
    }
    ranges.min(&step).is_some_and(|least| least > 0) && ranges.non_negative(&below) && ranges.less(&below, &step)
}

/// The ranges of a stage's loops, and of the registers that were checked.
pub(super) fn value_ranges(kernel: &Kernel, stage: &Stage, ranges: &Ranges) -> Ranges {
    let loops: Vec<Expr> = kernel.outer.iter().chain(&stage.inner).cloned().collect();
    let mut ranges = ranges.with_loops(&loops);
    for (register, inst) in stage.body.iter().enumerate() {
        if let Op::Check { size, .. } = &inst.op {
            ranges.set(Symbol::Value(register as u32), Some(0), Some(size - 1));
        }
    }
    ranges
}
