//! Few outer points with long inner loops: several blocks share each, launch by launch.
//!
//! Every stage with inner loops is a launch of its own, in which each block takes its part of them and leaves what it accumulated in scratch
//! memory. The launches after it combine the parts, all in one order, so that the same bits come out of every call.

use douse_core::Result;
use douse_core::sym::{Expr, Ranges};
use douse_program::kernel::{Effect, Kernel, Op, Stage};

use super::body::Acting;
use super::kernel::Writer;
use super::moments::Moments;
use super::strategy::{self, Lanes};
use super::vector::Vectors;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Split {
    /// The threads of a block, and how they share the inner loops.
    pub lanes: Lanes,
    /// Blocks that share the inner loops of a stage.
    pub parts: i64,
    /// Outer points.
    rows: i64,
    /// Stages that follow from the moments of others.
    moments: Moments,
}

/// One launch: the stages it does for the first time, of which only the last can have inner loops.
pub(super) struct Part {
    from: usize,
    to: usize,
    long: bool,
    /// Only the totals of its scans.
    totals: bool,
}

/// Blocks from which it is not worth it, and how many there should be at most: four for each of 132 multiprocessors, which have room for them at once.
const ENOUGH: i64 = 96;
const BLOCKS: i64 = 528;
/// Points of inner loops that a block should have.
const SHARE: i64 = 8192;
/// Bytes of any accumulator, and of one of moments.
const ACCUMULATOR: i64 = 16;
const MOMENTS: i64 = 32;

impl Split {
    /// The split of a kernel whose lanes would be these; `None` where it has blocks enough, or its stages cannot be launches of their own.
    pub fn of(kernel: &Kernel, ranges: &Ranges, lanes: Lanes) -> Option<Split> {
        let rows = Expr::product(&kernel.outer).as_int()?;
        let (lanes, blocks) = match lanes {
            Lanes::Block(_) | Lanes::Warp => (Lanes::Block(256), rows),
            Lanes::Column(_) => (Lanes::Column(8), (rows + 31) / 32),
            Lanes::Thread | Lanes::Part(_) => return None,
        };
        let longest = kernel.stages.iter().map(|s| ranges.max(&Expr::product(&s.inner)));
        let longest = longest.collect::<Option<Vec<i64>>>()?.into_iter().max()?;
        let parts = (BLOCKS / blocks.max(1)).min(longest / SHARE);
        let updates = |effect: &Effect| matches!(effect, Effect::Update { .. });
        let plain = !kernel.stages.iter().flat_map(|s| &s.effects).any(updates);
        // Its body runs twice.
        let scans_alone = |stage: &Stage| {
            let one_row = stage.inner.len() == 1 && kernel.stages.len() == 1;
            let scans = |e: &Effect| matches!(e, Effect::Scan { .. } | Effect::ArgScan { .. } | Effect::Assert { .. });
            one_row && stage.effects.iter().all(scans) && !loads(stage).any(|param| stores(stage).any(|p| p == param))
        };
        let plain = plain && kernel.stages.iter().all(|stage| !strategy::scans(stage) || scans_alone(stage));
        let split = Split { lanes, parts, rows, moments: Moments::of(kernel) };
        (rows > 0 && blocks <= ENOUGH && parts > 1 && plain && split.is_sound(kernel)).then_some(split)
    }

    /// Whether the blocks of a launch do not need each other, and stages without inner loops can be done again by later launches: those load
    /// nothing that the kernel stores, and what they store no other stage of their launch touches.
    fn is_sound(&self, kernel: &Kernel) -> bool {
        let stored: Vec<u32> = kernel.stages.iter().flat_map(stores).collect();
        self.launches(kernel).iter().filter(|part| part.long).all(|part| {
            let stages = kernel.stages.get(part.from..part.to).unwrap_or_default();
            let Some((last, before)) = stages.split_last() else { return true };
            let here: Vec<u32> = before.iter().flat_map(stores).collect();
            let again = before.iter().flat_map(loads).all(|param| !stored.contains(&param));
            again && !loads(last).chain(stores(last)).any(|param| here.contains(&param))
        })
    }

    /// Whether a stage has loops that blocks share.
    fn is_long(&self, number: usize, stage: &Stage) -> bool {
        !stage.inner.is_empty() && !self.moments.replace(number)
    }

    fn accumulator(&self) -> i64 {
        if self.moments.is_empty() { ACCUMULATOR } else { MOMENTS }
    }

    pub fn launches(&self, kernel: &Kernel) -> Vec<Part> {
        let mut parts = Vec::new();
        let mut from = 0;
        for (number, stage) in kernel.stages.iter().enumerate() {
            if self.is_long(number, stage) {
                if strategy::scans(stage) {
                    parts.push(Part { from, to: number + 1, long: true, totals: true });
                }
                parts.push(Part { from, to: number + 1, long: true, totals: false });
                from = number + 1;
            }
        }
        if from < kernel.stages.len() {
            parts.push(Part { from, to: kernel.stages.len(), long: false, totals: false });
        }
        parts
    }

    /// Bytes of scratch memory: for each local or scan, the accumulators of all parts of a point, by part, then by point.
    pub fn scratch(&self, kernel: &Kernel) -> i64 {
        let effects = kernel.stages.iter().map(|stage| stage.effects.len()).max().unwrap_or(0);
        kernel.locals.len().max(effects) as i64 * self.parts * self.rows * self.accumulator()
    }

    /// The accumulator of a part of the point `p`.
    fn place(&self, local: u32, part: &str) -> String {
        self.place_of(&format!("Reduce{local}"), local as usize, part)
    }

    /// The same of a class, in the place of that number.
    pub fn place_of(&self, class: &str, number: usize, part: &str) -> String {
        let start = number as i64 * self.parts * self.rows * self.accumulator();
        let base = format!("static_cast<unsigned char *>(scratch) + {start}ll");
        format!("reinterpret_cast<{class}::Accumulator *>({base})[{part} * {}ll + p]", self.rows)
    }

    /// The first point of a part of a loop, and where it ends.
    pub fn range(&self, size: &str) -> (String, String) {
        let share = format!("(({size} + {}ll - 1) / {}ll)", self.parts, self.parts);
        (format!("part * {share}"), format!("smaller<int64>({size}, (part + 1) * {share})"))
    }
}

fn stores(stage: &Stage) -> impl Iterator<Item = u32> {
    stage.effects.iter().flat_map(strategy::destinations).map(|(param, _)| param)
}

fn loads(stage: &Stage) -> impl Iterator<Item = u32> {
    stage.body.iter().filter_map(|inst| match inst.op {
        Op::Load { param, .. } => Some(param),
        _ => None,
    })
}

fn reduced(stage: &Stage) -> impl Iterator<Item = u32> {
    stage.effects.iter().filter_map(|effect| match effect {
        Effect::Reduce { local, .. } | Effect::ArgReduce { local, .. } => Some(*local),
        _ => None,
    })
}

impl Writer<'_> {
    /// One of the launches of a split kernel. Returns the number of blocks and threads a block.
    pub fn part(&mut self, split: &Split, part: &Part) -> Result<(Expr, u32)> {
        let (lanes, parts) = (split.lanes, if part.long { split.parts } else { 1 });
        self.lanes = lanes;
        let kernel = self.kernel;
        let loops = self.outer_loops();
        let points = split.rows.to_string();
        self.out.line(format!("const int part = blockIdx.x % {parts}u;"));
        self.point(lanes, &points, &format!("blockIdx.x / {parts}u"));
        self.declare(&loops, "p", 1);
        self.declare_locals()?;
        self.moments = split.moments.clone();
        self.declare_moments()?;
        for (number, stage) in kernel.stages.iter().enumerate().take(part.to) {
            let fresh = number >= part.from;
            if self.moments.replace(number) {
                self.about(number, stage)?;
                continue;
            }
            self.out.line("{");
            if stage.inner.is_empty() {
                self.accumulators(stage)?;
                let acting = if fresh { Acting::FirstOfAll } else { Acting::Nobody };
                self.points(stage, &[], &Vectors::none(), acting)?;
                self.locals(stage, false)?;
            } else if part.totals {
                self.scan_parts(stage, split)?;
            } else if fresh {
                self.split = Some(split.clone());
                self.stage(number, stage)?;
            } else {
                self.join_parts(number, stage, split)?;
            }
            self.out.line("}");
        }
        let threads = match lanes {
            Lanes::Column(warps) => 32 * warps,
            lanes => lanes.count() as u32,
        };
        let groups = match lanes {
            Lanes::Column(_) => (split.rows + 31) / 32,
            _ => split.rows,
        };
        Ok((Expr::int(groups * parts), threads))
    }

    /// Combines what the parts of an earlier launch have left.
    fn join_parts(&mut self, number: usize, stage: &Stage, split: &Split) -> Result<()> {
        self.split = Some(split.clone());
        self.accumulators(stage)?;
        self.split = None;
        self.needs.scratch = true;
        self.out.line(format!("for (int q = Lanes::lane(); q < {}; q += Lanes::COUNT) {{", split.parts));
        for local in reduced(stage) {
            self.out.line(format!("Reduce{local}::join(sum{local}, {});", split.place(local, "q")));
        }
        let beside = self.moments.beside(number);
        for (sum, _, place) in &beside {
            let place = split.place_of(&format!("Moments{sum}"), *place as usize, "q");
            self.out.line(format!("Moments{sum}::join(moments{sum}, {place});"));
        }
        self.out.line("}");
        self.join_moments(&beside);
        self.locals(stage, true)
    }

    /// Leaves what a part has accumulated.
    pub fn keep_parts(&mut self, number: usize, stage: &Stage, split: &Split) {
        for local in reduced(stage) {
            self.needs.scratch = true;
            self.out.line(format!("sum{local} = Across<Reduce{local}, Lanes>::reduce<{local}>(sum{local});"));
            self.out.line(format!("if (Lanes::lane() == 0) {} = sum{local};", split.place(local, "part")));
        }
        let beside = self.moments.beside(number);
        self.join_moments(&beside);
        for (sum, _, place) in beside {
            let place = split.place_of(&format!("Moments{sum}"), place as usize, "part");
            self.out.line(format!("if (Lanes::lane() == 0) {place} = moments{sum};"));
        }
    }
}
