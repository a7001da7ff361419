//! Rows in registers: what several stages load of a row is loaded once, before the first of them, and what one stage stores and a later one loads
//! stays there.

use douse_core::sym::{Expr, Symbol};
use douse_core::{Error, Result};
use douse_program::kernel::{Access, Effect, Kernel, Op, Stage};

use super::kernel::Writer;
use super::names;
use super::strategy::{self, Lanes};
use super::vector::{Vectors, is_aligned};

/// The row of an outer point: the points of the inner loops that several stages share.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub values: Vec<Held>,
    /// How a lane takes it: so many vectors, one in a step.
    pub steps: i64,
    pub vectors: Vectors,
    sizes: Vec<Expr>,
    order: Vec<usize>,
    stages: Vec<Stage>,
}

/// An element of a parameter at each point of the row.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub param: u32,
    pub index: Expr,
    /// A stage makes it; else it is loaded before the first.
    pub made: bool,
    /// No other access than those of the row touches the parameter in this kernel.
    pub alone: bool,
}

/// Registers of 32 bits that a row may take in a lane.
const REGISTERS: i64 = 64;
const STEPS: i64 = 8;

/// The threads of a large block have few registers each.
fn most_registers(lanes: Lanes) -> i64 {
    REGISTERS.min(65536 / lanes.count() - 24)
}

impl Row {
    /// The row of a kernel whose lanes share inner loops; `None` where it would not fit, or no two stages load the same.
    pub fn of(kernel: &Kernel, lanes: Lanes) -> Option<Row> {
        if lanes == Lanes::Thread {
            return None;
        }
        let candidates = kernel.stages.iter().filter(|stage| !stage.inner.is_empty() && !strategy::scans(stage));
        let mut row: Option<Row> = None;
        let mut accesses: Vec<Accesses> = Vec::new();
        for stage in candidates {
            let inner = strategy::inner_loops(kernel, stage);
            let (last, size) = inner.last()?;
            let vectors = Vectors::along(kernel, stage, *last, size, lanes.count());
            let order: Vec<usize> = inner.iter().map(|(number, _)| *number).collect();
            let points = vectors.points();
            let row = match &mut row {
                Some(row) if row.sizes == stage.inner && row.order == order && row.vectors.points() == points => row,
                Some(_) => continue,
                None if points > 1 => {
                    let vectors_in_row = strategy::count(&inner, points).as_int()?;
                    let steps = (vectors_in_row as u64).div_ceil(lanes.count() as u64) as i64;
                    let sizes = stage.inner.clone();
                    row.insert(Row { values: vec![], steps, vectors: vectors.clone(), sizes, order, stages: vec![] })
                }
                None => continue,
            };
            row.stages.push(stage.clone());
            for number in vectors.loads() {
                let Some(Op::Load { param, index, .. }) = stage.body.get(*number).map(|inst| &inst.op) else {
                    continue;
                };
                // It depends on registers of its stage.
                if index.mentions(|symbol| matches!(symbol, Symbol::Value(_))) {
                    continue;
                }
                Accesses::of(&mut accesses, *param, index).loads += 1;
            }
            for number in vectors.stores() {
                let Some(Effect::Store { param, index, .. }) = stage.effects.get(*number) else { continue };
                Accesses::of(&mut accesses, *param, index).store();
            }
        }
        let mut row = row?;
        let mut registers = 0;
        for Accesses { param, index, loads, stores, loaded_first } in accesses {
            let Some(known) = kernel.params.get(param as usize) else { continue };
            let made = match known.access {
                Access::Read if loads > 1 => false,
                Access::Update if stores == 1 && loads > 0 && !loaded_first => true,
                _ => continue,
            };
            registers += row.steps * row.vectors.points() * known.dtype.size() as i64 / 4;
            let alone = touches(kernel, param) == loads + stores;
            row.values.push(Held { param, index, made, alone });
        }
        (!row.values.is_empty() && row.steps <= STEPS && registers <= most_registers(lanes)).then_some(row)
    }

    /// Whether a stage goes over the row.
    pub fn is_for(&self, stage: &Stage) -> bool {
        self.stages.contains(stage)
    }

    /// Which of the row's values this is.
    pub fn held(&self, param: u32, index: &Expr) -> Option<(usize, &Held)> {
        self.values.iter().enumerate().find(|(_, held)| held.param == param && held.index == *index)
    }
}

/// What the stages of a row do with an element.
struct Accesses {
    param: u32,
    index: Expr,
    loads: usize,
    stores: usize,
    /// A load stands before the store, or in its stage.
    loaded_first: bool,
}

impl Accesses {
    fn of<'a>(all: &'a mut Vec<Accesses>, param: u32, index: &Expr) -> &'a mut Accesses {
        let at = all.iter().position(|a| a.param == param && a.index == *index).unwrap_or(all.len());
        if at == all.len() {
            all.push(Accesses { param, index: index.clone(), loads: 0, stores: 0, loaded_first: false });
        }
        &mut all[at]
    }

    fn store(&mut self) {
        self.stores += 1;
        self.loaded_first |= self.loads > 0;
    }
}

/// How many accesses of a kernel touch a parameter.
fn touches(kernel: &Kernel, param: u32) -> usize {
    let loads = kernel.stages.iter().flat_map(|s| &s.body);
    let loads = loads.filter(|inst| matches!(inst.op, Op::Load { param: p, .. } if p == param));
    let effects = kernel.stages.iter().flat_map(|s| &s.effects).filter(|effect| match effect {
        Effect::Store { param: p, .. } | Effect::Update { param: p, .. } | Effect::Scan { param: p, .. } => *p == param,
        Effect::ArgScan { param: p, param_position, .. } => *p == param || *param_position == param,
        Effect::Reduce { .. } | Effect::ArgReduce { .. } | Effect::Assert { .. } => false,
    });
    loads.count() + effects.count()
}

impl Writer<'_> {
    /// Begins a step of the loop over the row, which is written out.
    pub fn begin_step(&mut self, stage: &Stage, inner: &[(usize, Expr)], vectors: &Vectors, steps: i64) {
        let all = strategy::count(inner, vectors.points());
        let count = self.indexer(stage).write(&all);
        self.out.line("#pragma unroll");
        self.out.line(format!("for (int n = 0; n < {steps}; ++n) {{"));
        self.out.line("const int q = Lanes::lane() + n * Lanes::COUNT;");
        if all.as_int() != Some(steps * self.lanes.count()) {
            self.out.line(format!("if (q >= {count}) break;"));
        }
        self.declare(inner, "q", vectors.points());
    }

    /// Loads what several stages read of the row before the first of them.
    pub fn load_row(&mut self) -> Result<()> {
        let Some(row) = Row::of(self.kernel, self.lanes) else { return Ok(()) };
        let Some(stage) = self.kernel.stages.iter().find(|stage| row.is_for(stage)) else { return Ok(()) };
        let (inner, points) = (self.inner_loops(stage), row.vectors.points());
        let Some((last, size)) = inner.last() else { return Ok(()) };
        for (held, value) in row.values.iter().enumerate() {
            let dtype = self.kernel.params.get(value.param as usize).map(|p| p.dtype);
            let dtype = dtype.ok_or_else(|| Error::internal("a parameter is not there"))?;
            self.out.line(format!("Vector<{}, {points}> held{held}[{}];", names::element(dtype)?, row.steps));
        }
        if row.values.iter().all(|value| value.made) {
            self.row = Some(row);
            return Ok(());
        }
        self.begin_step(stage, &inner, &row.vectors, row.steps);
        let indexer = self.indexer(stage);
        self.out.line(format!("const {} i{last} = first;", indexer.loop_width(*last).name()));
        let count = format!("(int)smaller<int64>({points}, {} - first)", indexer.write(size));
        for (held, value) in row.values.iter().enumerate().filter(|(_, value)| !value.made) {
            let (param, at) = (value.param, indexer.write(&value.index));
            let whole = size.as_int().is_some_and(|size| size % points == 0);
            self.out.line(match whole && is_aligned(&value.index, *last, points) {
                true => format!("held{held}[n] = load_aligned<{points}>(a{param} + ({at}));"),
                false => format!("held{held}[n] = load_vector<{points}>(a{param} + ({at}), {count});"),
            });
        }
        self.out.line("}");
        self.row = Some(row);
        Ok(())
    }

    /// The vectors that a stage over the row stores when all of its steps are done: no later step's loads wait for them.
    pub fn late_stores(&self, stage: &Stage, inner: &[(usize, Expr)], vectors: &Vectors) -> Vec<usize> {
        let Some(row) = self.row.as_ref().filter(|row| row.is_for(stage) && row.steps > 1) else { return vec![] };
        let Some((last, size)) = inner.last() else { return vec![] };
        let points = vectors.points();
        let whole = size.as_int().is_some_and(|size| size % points == 0);
        let late = |number: &usize| match stage.effects.get(*number) {
            Some(Effect::Store { param, index, .. }) => {
                let kept = row.held(*param, index).is_some_and(|(_, held)| held.alone && self.private.contains(param));
                !kept && !strategy::registers(index) && is_aligned(index, *last, points)
            }
            _ => false,
        };
        if whole { vectors.stores().iter().copied().filter(late).collect() } else { vec![] }
    }

    pub fn declare_late(&mut self, stage: &Stage, vectors: &Vectors, late: &[usize]) -> Result<()> {
        let steps = self.row.as_ref().map_or(1, |row| row.steps);
        for number in late {
            let Some(Effect::Store { param, .. }) = stage.effects.get(*number) else { continue };
            let element = names::element(self.body(stage).param(*param)?)?;
            self.out.line(format!("Vector<{element}, {}> late{number}[{steps}];", vectors.points()));
        }
        Ok(())
    }

    pub fn store_late(&mut self, stage: &Stage, inner: &[(usize, Expr)], vectors: &Vectors, late: &[usize]) {
        let (Some(steps), Some((last, _)), false) =
            (self.row.as_ref().map(|row| row.steps), inner.last(), late.is_empty())
        else {
            return;
        };
        self.begin_step(stage, inner, vectors, steps);
        let indexer = self.indexer(stage);
        self.out.line(format!("const {} i{last} = first;", indexer.loop_width(*last).name()));
        for number in late {
            let Some(Effect::Store { param, index, .. }) = stage.effects.get(*number) else { continue };
            self.out.line(format!("store_aligned(a{param} + ({}), late{number}[n]);", indexer.write(index)));
        }
        self.out.line("}");
    }
}
