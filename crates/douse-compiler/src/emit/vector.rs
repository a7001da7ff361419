//! Which accesses of a stage can be made for several elements at once.

use douse_core::DType;
use douse_core::sym::{Expr, Symbol};
use douse_program::kernel::{Effect, Kernel, Op, Stage};

use super::body::is_special;
use super::registers;

/// The accesses that run along the last loop with stride 1, and how many points a thread takes of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Vectors {
    /// Points a thread; 0 and 1: no vectors.
    pub width: u32,
    /// Instructions that load.
    loads: Vec<usize>,
    /// Effects that store.
    stores: Vec<usize>,
    /// Instructions whose results are the same at all points of the last loop.
    uniform: Vec<bool>,
    /// The loop that a scan goes along.
    last: Option<usize>,
}

/// Bytes of the widest access.
const BYTES: u32 = 16;
/// More points a thread cost more registers than they save.
const POINTS: u32 = 8;
/// Bodies of more instructions take fewer points a thread, or one.
const LONG: usize = 48;
const VERY_LONG: usize = 160;

impl Vectors {
    pub fn none() -> Vectors {
        Vectors::default()
    }

    /// One point, where instructions that are `uniform` are written by themselves.
    pub fn uniform_only(uniform: Vec<bool>) -> Vectors {
        Vectors { uniform, ..Vectors::default() }
    }

    /// The vectors along a loop of this size, whose points so many threads share.
    pub fn along(kernel: &Kernel, stage: &Stage, last: usize, size: &Expr, threads: i64) -> Vectors {
        let uniform = registers::uniform(stage, last);
        let contiguous = |index: &Expr| is_contiguous(index, last, &uniform);
        let dtype = |param: u32| kernel.params.get(param as usize).map_or(DType::F64, |p| p.dtype);
        let mut vectors = Vectors::default();
        let mut least = BYTES;
        for (number, inst) in stage.body.iter().enumerate() {
            match &inst.op {
                Op::Load { param, index, guard: None } if contiguous(index) => {
                    vectors.loads.push(number);
                    least = least.min(dtype(*param).size() as u32);
                }
                _ => {}
            }
        }
        for (number, effect) in stage.effects.iter().enumerate() {
            match effect {
                Effect::Store { param, index, guard: None, .. } if contiguous(index) => {
                    vectors.stores.push(number);
                    least = least.min(dtype(*param).size() as u32);
                }
                Effect::Scan { .. } | Effect::ArgScan { .. } => return Vectors::none(),
                _ => {}
            }
        }
        let special = stage.body.iter().any(|inst| match &inst.op {
            Op::Unary(op, _) => is_special(op.name()),
            Op::Binary(op, _, _) => is_special(op.name()),
            _ => false,
        });
        vectors.width = match stage.body.len() {
            _ if special || vectors.loads.is_empty() && vectors.stores.is_empty() => 1,
            VERY_LONG.. => 1,
            LONG.. => (BYTES / least).min(POINTS / 2),
            _ => (BYTES / least).min(POINTS),
        };
        // A short loop would leave threads idle, and one that does not divide most of a thread.
        if let Some(size) = size.as_int() {
            let all = if stage.inner.is_empty() { None } else { Expr::product(&stage.inner).as_int() };
            let all = all.unwrap_or(size);
            let wasteful = |width: i64| all < threads * width || size % width != 0 && size < 4 * width;
            while vectors.width > 1 && wasteful(i64::from(vectors.width)) {
                vectors.width /= 2;
            }
        }
        if vectors.width <= 1 {
            return Vectors::none();
        }
        vectors.uniform = uniform;
        vectors
    }

    /// The neighbouring points that each lane takes of a loop that is scanned; only loads are vectors.
    pub fn of_scan(kernel: &Kernel, stage: &Stage, last: usize, size: &Expr, lanes: i64) -> Vectors {
        let widest = stage.body.iter().map(|inst| inst.dtype.size()).max().unwrap_or(1) as u32;
        let most = if stage.body.len() >= LONG { 2 } else { (2 * BYTES / widest.max(2)).min(POINTS) };
        let share = size.as_int().map_or(i64::from(most), |size| size / lanes);
        let width = i64::from(most).min((share.max(1) as u64).next_power_of_two() as i64) as u32;
        if width <= 1 {
            return Vectors::none();
        }
        let uniform = registers::uniform(stage, last);
        let mut vectors = Vectors { width, uniform, last: Some(last), ..Vectors::default() };
        for (number, inst) in stage.body.iter().enumerate() {
            if let Op::Load { param, index, guard: None } = &inst.op
                && vectors.runs(index)
                && kernel.params.get(*param as usize).is_some()
            {
                vectors.loads.push(number);
            }
        }
        vectors
    }

    /// Whether an index counts the points of the loop that a scan goes along, and is known where the vector begins.
    pub fn runs(&self, index: &Expr) -> bool {
        self.last.is_some_and(|last| is_contiguous(index, last, &self.uniform))
    }

    /// Those of a run of points along the dimension `along`, if there is one, that hold a product's result, parameter `result`.
    pub fn of_run(stage: &Stage, along: Option<usize>, result: u32) -> Vectors {
        let contiguous = |index: &Expr| along.is_some_and(|number| is_contiguous(index, number, &[]));
        let loads = stage.body.iter().enumerate().filter(|(_, inst)| match &inst.op {
            Op::Load { param, .. } if *param == result => true,
            Op::Load { index, guard: None, .. } => contiguous(index),
            _ => false,
        });
        let stores = stage.effects.iter().enumerate().filter(|(_, effect)| match effect {
            Effect::Store { index, guard: None, .. } => contiguous(index),
            _ => false,
        });
        let (loads, stores) = (loads.map(|(n, _)| n).collect(), stores.map(|(n, _)| n).collect());
        Vectors { width: 1, loads, stores, ..Vectors::default() }
    }

    /// Those of so many points along a loop whose loads are made elsewhere; none for one point.
    pub fn across(stage: &Stage, last: usize, points: i64) -> Vectors {
        if points <= 1 {
            return Vectors::none();
        }
        let stores = stage.effects.iter().enumerate().filter(|(_, effect)| match effect {
            Effect::Store { index, guard: None, .. } => is_contiguous(index, last, &[]),
            _ => false,
        });
        Vectors { width: points as u32, stores: stores.map(|(n, _)| n).collect(), ..Vectors::default() }
    }

    pub fn points(&self) -> i64 {
        i64::from(self.width.max(1))
    }

    /// The vector that an instruction's value is in.
    pub fn load(&self, instruction: usize) -> Option<String> {
        self.loads.contains(&instruction).then(|| format!("v{instruction}"))
    }

    /// The vector that an effect stores into.
    pub fn store(&self, effect: usize) -> Option<String> {
        self.stores.contains(&effect).then(|| format!("w{effect}"))
    }

    /// Whether an instruction is written once for all points of a vector, before its loads.
    pub fn is_uniform(&self, instruction: usize) -> bool {
        self.uniform.get(instruction) == Some(&true)
    }

    pub fn loads(&self) -> &[usize] {
        &self.loads
    }

    pub fn stores(&self) -> &[usize] {
        &self.stores
    }
}

/// Whether an index counts the points of a loop one by one, from a place that is known before all registers but the `uniform` ones are.
fn is_contiguous(index: &Expr, number: usize, uniform: &[bool]) -> bool {
    let varies = |symbol| matches!(symbol, Symbol::Value(register) if uniform.get(register as usize) != Some(&true));
    let affine = index.affine(Symbol::Loop(number as u32));
    affine.is_some_and(|(step, rest)| step.is_int(1) && !rest.mentions(varies))
}

/// Whether an index stands at a multiple of `points` wherever the loop's variable does.
pub(super) fn is_aligned(index: &Expr, number: usize, points: i64) -> bool {
    let rest = index.substitute(&|s| (s == Symbol::Loop(number as u32)).then(|| Expr::int(0)));
    let multiple = |expr: &Expr| expr.modulo(&Expr::int(points)).is_int(0);
    rest.constant() % points == 0 && rest.terms().iter().all(|term| multiple(&term.to_expr()))
}
