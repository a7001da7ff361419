//! Rows in registers: what several stages load of a row is loaded once, before the first of them.

use douse_core::sym::Expr;
use douse_program::kernel::{Access, Kernel, Op, Stage};

use super::strategy::{self, Lanes};
use super::vector::Vectors;

/// The row of an outer point: the points of the inner loops that several stages share.
#[derive(Clone, Debug)]
pub(super) struct Row {
    /// Parameters and indices of the loads.
    pub loads: Vec<(u32, Expr)>,
    /// How a lane takes it: so many vectors, one in a step.
    pub steps: i64,
    pub vectors: Vectors,
    sizes: Vec<Expr>,
    order: Vec<usize>,
    stages: Vec<Stage>,
}

/// Registers of 32 bits that a row may take in a lane.
const REGISTERS: i64 = 48;
const STEPS: i64 = 8;

impl Row {
    /// The row of a kernel whose lanes share inner loops; `None` where it would not fit, or no two stages load the same.
    pub fn of(kernel: &Kernel, lanes: Lanes) -> Option<Row> {
        if lanes == Lanes::Thread {
            return None;
        }
        let candidates = kernel.stages.iter().filter(|stage| !stage.inner.is_empty() && !strategy::scans(stage));
        let mut row: Option<Row> = None;
        let mut loads: Vec<(u32, Expr, usize)> = Vec::new();
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
                    row.insert(Row { loads: vec![], steps, vectors: vectors.clone(), sizes, order, stages: vec![] })
                }
                None => continue,
            };
            row.stages.push(stage.clone());
            for number in vectors.loads() {
                let Some(Op::Load { param, index, .. }) = stage.body.get(*number).map(|inst| &inst.op) else {
                    continue;
                };
                match loads.iter_mut().find(|(p, i, _)| p == param && i == index) {
                    Some((_, _, times)) => *times += 1,
                    None => loads.push((*param, index.clone(), 1)),
                }
            }
        }
        let mut row = row?;
        let read = |param: u32| kernel.params.get(param as usize).filter(|p| p.access == Access::Read);
        let mut registers = 0;
        for (param, index, _) in loads.into_iter().filter(|(_, _, times)| *times > 1) {
            let Some(size) = read(param).map(|p| p.dtype.size() as i64) else { continue };
            registers += row.steps * row.vectors.points() * size / 4;
            row.loads.push((param, index));
        }
        (!row.loads.is_empty() && row.steps <= STEPS && registers <= REGISTERS).then_some(row)
    }

    /// Whether a stage goes over the row.
    pub fn is_for(&self, stage: &Stage) -> bool {
        self.stages.contains(stage)
    }

    /// Which of the row's loads this is.
    pub fn held(&self, param: u32, index: &Expr) -> Option<usize> {
        self.loads.iter().position(|(p, i)| *p == param && i == index)
    }
}
