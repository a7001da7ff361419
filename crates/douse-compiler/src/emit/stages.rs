//! Kernels whose lanes share the inner loops of an outer point, stage by stage.

use douse_core::Result;
use douse_core::pointwise::Combine;
use douse_core::sym::Expr;
use douse_program::kernel::{Effect, Op, Stage};

use super::body::{self, Acting};
use super::kernel::{THREADS, Writer};
use super::moments::Moments;
use super::names;
use super::strategy::{self, Lanes};
use super::vector::Vectors;

/// So many values a lane are added up plainly: with the tree of the lanes above them that is as exact as sums in pairs.
const SHORT: i64 = 64;

impl Writer<'_> {
    pub fn declare_locals(&mut self) -> Result<()> {
        for (number, dtype) in self.kernel.locals.iter().enumerate() {
            self.out.line(format!("{} l{number} = 0;", names::register(*dtype)?));
        }
        Ok(())
    }

    /// Lanes share the inner loops of an outer point.
    pub fn staged(&mut self, lanes: Lanes) -> Result<(Expr, u32)> {
        self.lanes = lanes;
        let loops = self.outer_loops();
        let kernel = self.kernel;
        let count = strategy::count(&loops, 1);
        let points = self.outer_indexer().wide(&count);
        self.point(lanes, &points, "blockIdx.x");
        self.declare(&loops, "p", 1);
        self.declare_locals()?;
        self.load_row()?;
        let held = |stage: &Stage| self.row.as_ref().is_some_and(|row| row.is_for(stage));
        self.moments = Moments::of_long(kernel, &self.ranges, lanes, held);
        self.declare_moments()?;
        for (number, stage) in kernel.stages.iter().enumerate() {
            if self.moments.replace(number) {
                self.about(number, stage)?;
                continue;
            }
            self.stage(number, stage)?;
            if lanes != Lanes::Thread && self.meets(number) {
                self.out.line("Lanes::sync();");
            }
        }
        Ok(match lanes {
            Lanes::Thread => (count.ceil_div(&Expr::int(i64::from(THREADS))), THREADS),
            Lanes::Part(lanes) => (count.ceil_div(&Expr::int(i64::from(THREADS / lanes))), THREADS),
            Lanes::Warp => (count.ceil_div(&Expr::int(i64::from(THREADS / 32))), THREADS),
            Lanes::Block(threads) => (count, threads),
            Lanes::Column(lanes) => (count.ceil_div(&Expr::int(32)), 32 * lanes),
        })
    }

    /// Declares `p`, the number of the outer point that lanes of a block have.
    pub fn point(&mut self, lanes: Lanes, points: &str, block: &str) {
        self.out.line(format!("typedef {} Lanes;", lanes.name()));
        self.out.line(match lanes {
            Lanes::Thread => format!("const int64 p = {block} * {THREADS}ll + threadIdx.x;"),
            // There are no warps of which only some lanes have a point.
            Lanes::Part(lanes) => format!("const int64 p = {block} * {}ll + threadIdx.x / {lanes};", THREADS / lanes),
            Lanes::Warp => format!("const int64 p = {block} * {}ll + threadIdx.x / 32;", THREADS / 32),
            Lanes::Block(_) => format!("const int64 p = {block};"),
            // Lanes beyond the last point do its work again: every one must reach the barriers.
            Lanes::Column(_) => {
                format!("const int64 p = smaller<int64>({block} * 32ll + threadIdx.x % 32, {points} - 1);")
            }
        });
        if !matches!(lanes, Lanes::Column(_)) {
            self.out.line(format!("if (p >= {points}) return;"));
        }
    }

    /// Whether stages after this one touch memory that the stages up to it have written, so that lanes have to wait for each other.
    fn meets(&self, number: usize) -> bool {
        let held = |stage: &Stage, param: u32, index: &Expr| {
            let row = self.row.as_ref().filter(|row| row.is_for(stage));
            row.and_then(|row| row.held(param, index)).map(|(_, value)| value)
        };
        let written = |stage: &Stage| -> Vec<u32> {
            let effects = stage.effects.iter().flat_map(strategy::destinations);
            let kept = |param: u32, index: &Expr| {
                held(stage, param, index).is_some_and(|value| value.alone && self.private.contains(&param))
            };
            effects.filter(|(param, index)| !kept(*param, index)).map(|(param, _)| param).collect()
        };
        let (before, after) = self.kernel.stages.split_at((number + 1).min(self.kernel.stages.len()));
        let before: Vec<u32> = before.iter().flat_map(written).collect();
        after.iter().any(|stage| {
            let loads = stage.body.iter().any(|inst| match &inst.op {
                Op::Load { param, index, .. } => before.contains(param) && held(stage, *param, index).is_none(),
                _ => false,
            });
            loads || written(stage).iter().any(|param| before.contains(param))
        })
    }

    /// One stage at one outer point, shared among lanes.
    pub fn stage(&mut self, number: usize, stage: &Stage) -> Result<()> {
        self.out.line("{");
        self.out.line(format!("// stage {number}"));
        self.accumulators(stage)?;
        self.divisors(stage)?;
        let inner = self.inner_loops(stage);
        if stage.inner.is_empty() {
            let acting = if self.lanes == Lanes::Thread { Acting::All } else { Acting::First };
            self.points(stage, &[], &Vectors::none(), acting)?;
            // Every lane has the value already.
            self.locals(stage, false)?;
        } else if strategy::scans(stage) {
            self.scan(stage, &inner)?;
            self.locals(stage, true)?;
        } else {
            let vectors = match inner.last() {
                Some((last, size)) => Vectors::along(self.kernel, stage, *last, size, self.lanes.count()),
                None => Vectors::none(),
            };
            let late = self.late_stores(stage, &inner, &vectors);
            let beside = self.moments.beside(number);
            self.declare_late(stage, &vectors, &late)?;
            let count = strategy::count(&inner, vectors.points());
            match self.row.as_ref().filter(|row| row.is_for(stage)).map(|row| row.steps) {
                Some(steps) => self.begin_step(stage, &inner, &vectors, steps),
                None if !beside.is_empty() => self.segments(stage, &inner, &vectors, &beside)?,
                None => {
                    // The last step of the loop goes beyond the count.
                    let width = self.indexer(stage).width(&(&count + self.lanes.count())).name();
                    let (from, end) = self.range(stage, &count, width);
                    self.out.line(match &self.split {
                        None => format!("for ({width} q = {from}; q < {end}; q += Lanes::COUNT) {{"),
                        Some(_) => format!("for ({width} q = {from}, end = {end}; q < end; q += Lanes::COUNT) {{"),
                    });
                    self.declare(&inner, "q", vectors.points());
                }
            }
            if beside.is_empty() {
                self.points(stage, &inner, &vectors, Acting::All)?;
                self.out.line("}");
            }
            self.store_late(stage, &inner, &vectors, &late);
            match self.split.clone() {
                None => {
                    self.join_moments(&beside);
                    self.locals(stage, true)?;
                }
                Some(split) => self.keep_parts(number, stage, &split),
            }
        }
        self.out.line("}");
        Ok(())
    }

    /// Where the count of a lane's points begins and ends, of so many.
    pub fn range(&self, stage: &Stage, count: &Expr, width: &str) -> (String, String) {
        let indexer = self.indexer(stage);
        let all = indexer.write(count);
        match &self.split {
            None => ("Lanes::lane()".to_owned(), all),
            Some(split) => {
                let share = indexer.write(&count.ceil_div(&Expr::int(split.parts)));
                let end = format!("smaller<{width}>({all}, ({width})(part + 1) * {share})");
                (format!("({width})part * {share} + Lanes::lane()"), end)
            }
        }
    }

    /// Declares what reductions accumulate in.
    pub fn accumulators(&mut self, stage: &Stage) -> Result<()> {
        let parts = self.split.as_ref().map_or(1, |split| split.parts);
        let share = Expr::product(&stage.inner).ceil_div(&Expr::int(self.lanes.count() * parts));
        let short = self.indexer(stage).ranges.max(&share).is_some_and(|most| most <= SHORT);
        for effect in &stage.effects {
            let (local, class) = match effect {
                Effect::Reduce { op, value, local } => {
                    let dtype = self.body(stage).dtype(*value)?;
                    (
                        local,
                        match op {
                            Combine::Sum if short && names::register(dtype)? == "float" => "PlainSum<float>".to_owned(),
                            op => names::combine(*op, dtype, false)?,
                        },
                    )
                }
                Effect::ArgReduce { max, value, local, .. } => {
                    let dtype = self.body(stage).dtype(*value)?;
                    (local, format!("ArgExtreme<{}, {max}, false>", names::register(dtype)?))
                }
                _ => continue,
            };
            self.out.line(format!("typedef {class} Reduce{local};"));
            self.out.line(format!("auto sum{local} = Reduce{local}::neutral();"));
        }
        Ok(())
    }

    /// Declares what a stage divides all of its points by.
    pub fn divisors(&mut self, stage: &Stage) -> Result<()> {
        let mut locals: Vec<u32> = stage.body.iter().filter_map(|inst| body::divisor(stage, &inst.op)).collect();
        locals.sort_unstable();
        locals.dedup();
        for local in locals {
            self.out.line(format!("const Divisor divisor{local}(l{local});"));
        }
        Ok(())
    }

    /// Gives locals what was accumulated; `across`: over all lanes.
    pub fn locals(&mut self, stage: &Stage, across: bool) -> Result<()> {
        for effect in &stage.effects {
            let (Effect::Reduce { local, .. } | Effect::ArgReduce { local, .. }) = effect else { continue };
            let total = match across {
                true => format!("Across<Reduce{local}, Lanes>::reduce<{local}>(sum{local})"),
                false => format!("sum{local}"),
            };
            match effect {
                Effect::Reduce { value, .. } => {
                    let dtype = self.body(stage).dtype(*value)?;
                    let result = names::rounded(dtype, format!("Reduce{local}::result({total})"))?;
                    self.out.line(format!("l{local} = {result};"));
                }
                Effect::ArgReduce { local_position, .. } => {
                    self.out.line(format!("sum{local} = {total};"));
                    self.out.line(format!("l{local} = sum{local}.value;"));
                    self.out.line(format!("l{local_position} = larger<int64>(sum{local}.position, 0);"));
                }
                _ => {}
            }
        }
        Ok(())
    }
}
