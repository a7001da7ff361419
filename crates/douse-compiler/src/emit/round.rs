//! Rounds: a few steps of a loop whose loads are all under way before the first is waited for.
//!
//! The compiler unrolls plain loops and moves loads to the front as it sees fit, which where much is computed with each is too seldom to keep memory
//! busy: it would rather save registers. So a round's values are loaded at the end of the round before it, where nothing can put a load off. Steps beyond
//! the end of a lane's points load what the last step does, without a branch.

use douse_core::Result;
use douse_core::sym::{Expr, Symbol};
use douse_program::kernel::{Op, Stage};

use super::kernel::Writer;
use super::names;
use super::vector::{Vectors, is_aligned};

/// The loads of a stage that are made for all steps of a round at once, by instruction.
#[derive(Clone, Debug, Default)]
pub(super) struct Round {
    loads: Vec<usize>,
    pub steps: i64,
}

/// Steps of 16 bytes, and of one element.
const WIDE: i64 = 4;
const NARROW: i64 = 8;

impl Round {
    /// The round of a stage: its loads that need nothing but loops' variables.
    pub fn of(stage: &Stage, vectors: &Vectors) -> Round {
        let early = |number: &usize| match stage.body.get(*number).map(|inst| &inst.op) {
            Some(Op::Load { index, guard: None, .. }) => {
                let known = !index.mentions(|s| matches!(s, Symbol::Value(_)));
                known && (vectors.points() == 1 || vectors.load(*number).is_some())
            }
            _ => false,
        };
        let loads: Vec<usize> = (0..stage.body.len()).filter(early).collect();
        let most = if vectors.points() > 1 { WIDE } else { NARROW };
        let steps = match loads.len() {
            1 | 2 => most,
            3 | 4 => most / 2,
            _ => return Round { loads: vec![], steps: 1 },
        };
        Round { loads, steps }
    }

    /// What an instruction has loaded in the step `n`.
    pub fn loaded(&self, instruction: usize) -> Option<String> {
        self.loads.contains(&instruction).then(|| format!("early{instruction}[n]"))
    }
}

impl Writer<'_> {
    /// Loads for the round that begins at `from`, for points before `end`, of which there are some.
    pub fn load_round(
        &mut self,
        stage: &Stage,
        inner: &[(usize, Expr)],
        vectors: &Vectors,
        round: &Round,
        [width, from]: [&str; 2],
    ) {
        if round.loads.is_empty() {
            return;
        }
        let points = vectors.points();
        self.out.line("#pragma unroll");
        self.out.line(format!("for (int n = 0; n < {}; ++n) {{", round.steps));
        self.out.line(format!("const {width} at = smaller<{width}>({from} + n * Lanes::COUNT, end - 1);"));
        self.declare(inner, "at", points);
        let indexer = self.indexer(stage);
        let mut count = points.to_string();
        if let (Some((last, size)), true) = (inner.last(), points > 1) {
            let loop_type = indexer.loop_width(*last).name();
            self.out.line(format!("const {loop_type} i{last} = first;"));
            if size.as_int().is_none_or(|size| size % points != 0) {
                count = format!("(int)smaller<{loop_type}>({points}, {} - first)", indexer.write(size));
            }
        }
        let whole = count == points.to_string();
        for number in &round.loads {
            let Some(Op::Load { param, index, .. }) = stage.body.get(*number).map(|inst| &inst.op) else { continue };
            let at = indexer.write(index);
            let aligned = whole && inner.last().is_some_and(|(last, _)| is_aligned(index, *last, points));
            self.out.line(match points {
                1 => format!("early{number}[n] = load(a{param} + ({at}));"),
                _ if aligned => format!("early{number}[n] = load_aligned<{points}>(a{param} + ({at}));"),
                _ => format!("early{number}[n] = load_vector<{points}>(a{param} + ({at}), {count});"),
            });
        }
        self.out.line("}");
    }

    /// Declares what a round loads.
    pub fn declare_round(&mut self, stage: &Stage, vectors: &Vectors, round: &Round) -> Result<()> {
        for number in &round.loads {
            let Some(Op::Load { param, .. }) = stage.body.get(*number).map(|inst| &inst.op) else { continue };
            let dtype = self.body(stage).param(*param)?;
            let held = match vectors.points() {
                1 => names::register(dtype)?.to_owned(),
                points => format!("Vector<{}, {points}>", names::element(dtype)?),
            };
            self.out.line(format!("{held} early{number}[{}];", round.steps));
        }
        Ok(())
    }

    /// Begins the steps of rounds from `q` on, for points before `until`. Two loops are open then.
    pub fn begin_round(&mut self, inner: &[(usize, Expr)], vectors: &Vectors, round: &Round, width: &str) {
        let steps = round.steps;
        self.out.line(format!("for (; q < until; q += {steps} * Lanes::COUNT) {{"));
        self.out.line("#pragma unroll");
        self.out.line(format!("for (int n = 0; n < {steps}; ++n) {{"));
        self.out.line(format!("const {width} at = q + n * Lanes::COUNT;"));
        self.out.line("if (at >= until) break;");
        self.declare(inner, "at", vectors.points());
    }

    /// Ends them, with the loads of the next.
    pub fn end_round(&mut self, stage: &Stage, inner: &[(usize, Expr)], vectors: &Vectors, round: &Round, width: &str) {
        self.out.line("}");
        let next = format!("q + {} * Lanes::COUNT", round.steps);
        self.load_round(stage, inner, vectors, round, [width, &next]);
        self.out.line("}");
    }
}
