//! Sums of squares about a mean, found in the pass over the data that finds the mean.
//!
//! A variance is two stages over one inner space: the first sums x; the second sums (x - m)^2, and perhaps x - m, where m is the same at all points,
//! since it comes from the first sum. Where a row does not stay in registers, the second stage would read it from memory again. But what it sums follows from
//! three numbers that the first can find: how many x there are, and what x - p and (x - p)^2 add up to for some p, the *pivot* (`cuda/moments.cuh` has the
//! algebra). So the first stage accumulates these beside its sum, and the second becomes a few operations of an outer point.
//!
//! In exact arithmetic any pivot serves. In floats, what is subtracted in the end should be small: a pivot of 0 would be the mean of squares less the square
//! of the mean. A lane takes its values in *segments*. The pivot of the first, a round of loads, is the mean of the first vector; that of each later one is the
//! mean of all values before it, which are at least a third of what there is with it; the sums are moved to each new pivot. With p the mean of n
//! of N values, N (p - mean)^2 is at most N / n times the sum of squares about the mean, whatever the values are (Cauchy and Schwarz): what is subtracted is
//! at most a few times what is left, and with an offset of a million nothing at all is lost. Lanes are added up about the mean of all, and the parts of a row
//! that blocks share about the mean of both (Chan, Golub, LeVeque), in the one order in which sums are. A segment has no more values than are added up
//! plainly elsewhere.
//!
//! The kernel stays as it is, in two stages: the CPU, whose caches hold what it reads twice, runs these, and so do GPUs where a row is in registers.
//! The sum itself is not touched: means keep their bits. Numbers that are infinite or no numbers give what the two stages give.

use douse_core::pointwise::{Binary, Combine};
use douse_core::sym::{Expr, Ranges, Symbol};
use douse_core::{DType, Result};
use douse_program::kernel::{Access, Effect, Inst, Kernel, Op, Reg, Stage};

use super::body::Acting;
use super::kernel::Writer;
use super::names;
use super::registers::{operands, renamed};
use super::round::Round;
use super::strategy::{self, Lanes};
use super::vector::Vectors;

/// The stages of a kernel that need no pass of their own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Moments {
    stages: Vec<About>,
}

/// A stage that sums deviations of what earlier stages sum.
#[derive(Clone, Debug, PartialEq, Eq)]
struct About {
    stage: usize,
    deviations: Vec<Deviation>,
    /// Which of its instructions are the same at all points.
    uniform: Vec<bool>,
}

/// A reduction of x - m, or of its square, into `local`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Deviation {
    /// The stage that sums x, and the local of its sum, by which the moments are named.
    from: usize,
    sum: u32,
    dtype: DType,
    /// m
    about: Reg,
    local: u32,
    squared: bool,
}

pub(super) const MOMENTS: &str = include_str!("cuda/moments.cuh");

/// Values that a segment adds up plainly.
const SEGMENT: i64 = 64;
/// A lane that has no more points finds them in registers, or in the nearest cache.
const SHARE: i64 = 32;

impl Moments {
    pub fn of(kernel: &Kernel) -> Moments {
        let mut moments = Moments::default();
        for (number, stage) in kernel.stages.iter().enumerate() {
            let before = kernel.stages.iter().enumerate().take(number);
            let sums: Vec<(usize, &Stage)> =
                before.filter(|(n, first)| first.inner == stage.inner && !moments.replace(*n)).collect();
            if let (false, Some(about)) = (stage.inner.is_empty(), About::of(kernel, number, &sums)) {
                moments.stages.push(about);
            }
        }
        moments
    }

    /// Those that are worth it where such lanes share inner loops, and rows are not in registers where `held`.
    pub fn of_long(kernel: &Kernel, ranges: &Ranges, lanes: Lanes, held: impl Fn(&Stage) -> bool) -> Moments {
        let mut moments = Moments::of(kernel);
        moments.stages.retain(|about| {
            let Some(stage) = kernel.stages.get(about.stage) else { return false };
            let points = ranges.max(&Expr::product(&stage.inner));
            points.is_none_or(|most| most > SHARE * lanes.count()) && !held(stage)
        });
        moments
    }

    /// Whether a stage is replaced: it needs no loop.
    pub fn replace(&self, stage: usize) -> bool {
        self.stages.iter().any(|about| about.stage == stage)
    }

    pub fn is_empty(&self) -> bool {
        self.stages.is_empty()
    }

    /// The sums of a stage that are accumulated with their moments: local and dtype, and a local in whose place parts keep them.
    pub fn beside(&self, stage: usize) -> Vec<(u32, DType, u32)> {
        let mut beside: Vec<(u32, DType, u32)> = Vec::new();
        for deviation in self.stages.iter().flat_map(|about| &about.deviations).filter(|d| d.from == stage) {
            if beside.iter().all(|(sum, ..)| *sum != deviation.sum) {
                beside.push((deviation.sum, deviation.dtype, deviation.local));
            }
        }
        beside
    }
}

impl About {
    /// What a stage needs of `sums`, earlier stages over the same space; `None` where it does anything else.
    fn of(kernel: &Kernel, number: usize, sums: &[(usize, &Stage)]) -> Option<About> {
        let stage = kernel.stages.get(number).filter(|stage| stage.body.iter().all(|inst| computes(&inst.op)))?;
        let uniform = uniform(kernel, stage);
        let same: Vec<Vec<Option<Reg>>> = sums.iter().map(|(_, first)| same(kernel, first, stage)).collect();
        let inst = |register: Reg| stage.body.get(register as usize);
        let deviation = |effect: &Effect| {
            let Effect::Reduce { op: Combine::Sum, value, local } = effect else { return None };
            let (centred, squared) = match &inst(*value)?.op {
                Op::Binary(Binary::Mul, a, b) if a == b => (*a, true),
                _ => (*value, false),
            };
            let Inst { op: Op::Binary(Binary::Sub, x, about), dtype } = inst(centred)? else { return None };
            let of_sum = |((from, first), same): (&(usize, &Stage), &Vec<Option<Reg>>)| {
                let x = (*same.get(*x as usize)?)?;
                first.effects.iter().find_map(|effect| match effect {
                    Effect::Reduce { op: Combine::Sum, value, local } if *value == x => Some((*from, *local)),
                    _ => None,
                })
            };
            let (from, sum) = sums.iter().zip(&same).find_map(of_sum)?;
            let fits = matches!(dtype, DType::F32 | DType::F64) && uniform.get(*about as usize) == Some(&true);
            fits.then_some(Deviation { from, sum, dtype: *dtype, about: *about, local: *local, squared })
        };
        let deviations = stage.effects.iter().map(deviation).collect::<Option<Vec<_>>>()?;
        // Deviations alone are as quickly summed as their squares.
        deviations.iter().any(|d| d.squared).then_some(About { stage: number, deviations, uniform })
    }
}

/// Whether an instruction does nothing but compute.
fn computes(op: &Op) -> bool {
    !matches!(op, Op::Check { .. } | Op::Random { .. })
}

/// Which registers of a stage are computed without its inner loops.
fn uniform(kernel: &Kernel, stage: &Stage) -> Vec<bool> {
    let outer = kernel.outer.len() as u32;
    let mut uniform: Vec<bool> = Vec::with_capacity(stage.body.len());
    for inst in &stage.body {
        let inner = |expr: &Expr| expr.mentions(|s| matches!(s, Symbol::Loop(number) if number >= outer));
        let still = computes(&inst.op) && !inst.op.expr().is_some_and(inner);
        uniform.push(still && operands(&inst.op).iter().all(|register| uniform.get(*register as usize) == Some(&true)));
    }
    uniform
}

/// For each register of a stage the one of an earlier stage that has the same value at each point: computed there in the same way from what nobody
/// writes, or stored there and loaded here.
fn same(kernel: &Kernel, first: &Stage, stage: &Stage) -> Vec<Option<Reg>> {
    let mut same: Vec<Option<Reg>> = Vec::with_capacity(stage.body.len());
    for inst in &stage.body {
        let there = |register: Reg| same.get(register as usize).copied().flatten();
        let found = match &inst.op {
            Op::Load { param, index, guard: None } if !is_read(kernel, *param) => stored(kernel, first, *param, index),
            Op::Load { param, .. } if !is_read(kernel, *param) => None,
            op if computes(op) => renamed(op, &there).and_then(|op| {
                let equal = |other: &Inst| other.op == op && other.dtype == inst.dtype;
                first.body.iter().position(equal).map(|register| register as Reg)
            }),
            _ => None,
        };
        same.push(found);
    }
    same
}

fn is_read(kernel: &Kernel, param: u32) -> bool {
    kernel.params.get(param as usize).is_some_and(|param| param.access == Access::Read)
}

/// What a stage stores to an element that nothing else in the kernel changes.
fn stored(kernel: &Kernel, stage: &Stage, param: u32, index: &Expr) -> Option<Reg> {
    let changes = kernel.stages.iter().flat_map(|stage| &stage.effects).flat_map(strategy::destinations);
    if changes.filter(|(changed, _)| *changed == param).count() != 1 {
        return None;
    }
    stage.effects.iter().find_map(|effect| match effect {
        Effect::Store { param: to, index: at, value, guard: None } if *to == param && at == index => Some(*value),
        _ => None,
    })
}

impl Writer<'_> {
    /// Declares the moments that stages accumulate.
    pub fn declare_moments(&mut self) -> Result<()> {
        self.needs.moments |= !self.moments.is_empty();
        for stage in 0..self.kernel.stages.len() {
            for (sum, dtype, _) in self.moments.beside(stage) {
                self.out.line(format!("typedef Moments<{}> Moments{sum};", names::register(dtype)?));
                self.out.line(format!("auto moments{sum} = Moments{sum}::neutral();"));
            }
        }
        Ok(())
    }

    /// Joins the moments of all lanes.
    pub fn join_moments(&mut self, beside: &[(u32, DType, u32)]) {
        for (sum, ..) in beside {
            self.out.line(format!("moments{sum} = Moments{sum}::across<Lanes, {sum}>(moments{sum});"));
        }
    }

    /// A stage whose deviations follow from the moments.
    pub fn about(&mut self, number: usize, stage: &Stage) -> Result<()> {
        let Some(about) = self.moments.stages.iter().find(|about| about.stage == number).cloned() else {
            return Ok(());
        };
        self.out.line("{");
        self.out.line(format!("// stage {number}, from the moments"));
        self.divisors(stage)?;
        self.body(stage).uniform_instructions(&Vectors::uniform_only(about.uniform))?;
        for Deviation { sum, about, local, squared, .. } in about.deviations {
            let what = if squared { "squares" } else { "deviations" };
            self.out.line(format!("l{local} = Moments{sum}::{what}(moments{sum}, r{about});"));
        }
        self.out.line("}");
        Ok(())
    }

    /// The loops over a stage's points, by segments.
    pub fn segments(
        &mut self,
        stage: &Stage,
        inner: &[(usize, Expr)],
        vectors: &Vectors,
        beside: &[(u32, DType, u32)],
    ) -> Result<()> {
        let round = Round::of(stage, vectors);
        let (points, least) = (vectors.points(), round.steps);
        let most = (SEGMENT / points).max(least);
        let count = strategy::count(inner, points);
        // Lanes look beyond the count by a segment.
        let width = self.indexer(stage).width(&(&count + self.lanes.count() * SEGMENT)).name();
        let (from, end) = self.range(stage, &count, width);
        self.out.line(format!("const {width} end = {end};"));
        self.out.line(format!("{width} q = {from};"));
        self.declare_round(stage, vectors, &round)?;
        self.out.line("if (q < end) {");
        self.load_round(stage, inner, vectors, &round, [width, "q"]);
        self.out.line("}");
        self.out.line(format!("for (int steps = {least}; q < end; steps = smaller<int>(2 * steps, {most})) {{"));
        self.out.line(format!("const {width} until = smaller<{width}>(end, q + steps * Lanes::COUNT);"));
        for (sum, ..) in beside {
            self.out.line(format!("auto near{sum} = Moments{sum}::near(moments{sum});"));
        }
        self.begin_round(inner, vectors, &round, width);
        self.beside = beside.iter().map(|(sum, ..)| *sum).collect();
        self.round = Some(round.clone());
        self.points(stage, inner, vectors, Acting::All)?;
        self.round = None;
        self.beside.clear();
        self.end_round(stage, inner, vectors, &round, width);
        for (sum, ..) in beside {
            self.out.line(format!("Moments{sum}::settle(moments{sum}, near{sum});"));
        }
        self.out.line("}");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use douse_core::Scalar;
    use douse_program::kernel::Param;

    const ROW: i64 = 100;

    /// Rows of a0: their sum into l0, and the sum of (x - l0 / 100)^2 into l1, changed by `change`.
    fn found(change: impl Fn(&mut Kernel)) -> Moments {
        let inst = |op: Op| Inst { op, dtype: DType::F32 };
        let index = &(&Expr::loop_var(0) * &Expr::int(ROW)) + &Expr::loop_var(1);
        let load = || inst(Op::Load { param: 0, index: index.clone(), guard: None });
        let sum = |value: Reg, local: u32| Effect::Reduce { op: Combine::Sum, value, local };
        let stage = |body: Vec<Inst>, effects| Stage { inner: vec![Expr::int(ROW)], body, effects };
        let second = vec![
            inst(Op::Local(0)),
            inst(Op::Const(Scalar::Float(ROW as f64))),
            inst(Op::Binary(Binary::Div, 0, 1)),
            load(),
            inst(Op::Binary(Binary::Sub, 3, 2)),
            inst(Op::Binary(Binary::Mul, 4, 4)),
        ];
        let mut kernel = Kernel {
            name: "var".to_owned(),
            params: vec![Param { dtype: DType::F32, access: Access::Read }; 2],
            outer: vec![Expr::int(8)],
            stages: vec![stage(vec![load()], vec![sum(0, 0)]), stage(second, vec![sum(5, 1)])],
            locals: vec![DType::F32; 3],
            ordered: false,
            comment: vec![],
        };
        change(&mut kernel);
        Moments::of(&kernel)
    }

    fn store(kernel: &mut Kernel, stage: usize, value: Reg) {
        let index = &(&Expr::loop_var(0) * &Expr::int(ROW)) + &Expr::loop_var(1);
        kernel.params[1].access = Access::Update;
        kernel.stages[stage].effects.push(Effect::Store { param: 1, index, value, guard: None });
    }

    #[test]
    fn squares_about_what_is_the_same_all_along_a_row_follow_from_its_moments() {
        assert_eq!(found(|_| ()).beside(0), [(0, DType::F32, 1)]);
        // Deviations beside them, and about another number than the mean.
        let both = found(|kernel| {
            kernel.stages[1].effects.push(Effect::Reduce { op: Combine::Sum, value: 4, local: 2 });
            kernel.stages[1].body[2].op = Op::Const(Scalar::Float(3.0));
        });
        assert!(both.replace(1) && both.stages[0].deviations.len() == 2);
        // Of what the first stage makes and the second loads again.
        let made = found(|kernel| {
            kernel.stages[0].body.push(Inst { op: Op::Unary(douse_core::pointwise::Unary::Abs, 0), dtype: DType::F32 });
            kernel.stages[0].effects[0] = Effect::Reduce { op: Combine::Sum, value: 1, local: 0 };
            store(kernel, 0, 1);
            if let Op::Load { param, .. } = &mut kernel.stages[1].body[3].op {
                *param = 1;
            }
        });
        assert!(made.replace(1));
    }

    #[test]
    fn other_stages_keep_their_loops() {
        let kept = |change: &dyn Fn(&mut Kernel)| found(change).is_empty();
        // It stores; its row is another; what is subtracted changes along it; it sums other numbers, or not in full.
        assert!(kept(&|kernel| store(kernel, 1, 4)));
        assert!(kept(&|kernel| kernel.stages[1].inner = vec![Expr::int(ROW - 1)]));
        assert!(kept(&|kernel| kernel.stages[1].body[0].op = Op::Index(Expr::loop_var(1))));
        assert!(kept(&|kernel| kernel.stages[1].body[4].op = Op::Binary(Binary::Add, 3, 2)));
        assert!(kept(&|kernel| kernel.stages[1].body[5].op = Op::Binary(Binary::Mul, 4, 3)));
        assert!(kept(&|kernel| kernel.stages[0].effects[0] = Effect::Reduce { op: Combine::Max, value: 0, local: 0 }));
        assert!(kept(&|kernel| kernel.stages[1].body.iter_mut().for_each(|inst| inst.dtype = DType::F16)));
        // Deviations alone; and what is loaded may have changed in between.
        assert!(kept(&|kernel| kernel.stages[1].effects[0] = Effect::Reduce { op: Combine::Sum, value: 4, local: 1 }));
        assert!(kept(&|kernel| kernel.params[0].access = Access::Update));
    }
}
