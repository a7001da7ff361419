//! Products of one matrix by several, which do not depend on each other, as one step: the projections of an attention layer, for instance.

use douse_program::kernel::{Access, Kernel};
use douse_program::library::{Library, View};
use douse_program::plan::{BufferId, Plan, Step};

/// Steps after a product that are looked at for others.
const AHEAD: usize = 16;
/// Products that stand together at most.
const MOST: usize = 4;

/// Moves products that share their left operand up to the first of them.
pub(super) fn gather(plan: &mut Plan) {
    let mut steps = std::mem::take(&mut plan.steps);
    gather_in(&plan.kernels, &mut steps);
    plan.steps = steps;
}

fn gather_in(kernels: &[Kernel], steps: &mut Vec<Step>) {
    let mut at = 0;
    while at < steps.len() {
        match &mut steps[at] {
            Step::If { then, otherwise, .. } => {
                gather_in(kernels, then);
                gather_in(kernels, otherwise);
            }
            Step::While { test, body, .. } => {
                gather_in(kernels, test);
                gather_in(kernels, body);
            }
            _ => {}
        }
        let others = others(kernels, &steps[at..]);
        if !others.is_empty() {
            let mut together: Vec<Step> = others.iter().rev().map(|ahead| steps.remove(at + ahead)).collect();
            together.reverse();
            let first = std::mem::replace(&mut steps[at], Step::Together(vec![]));
            together.insert(0, first);
            steps[at] = Step::Together(together);
        }
        at += 1;
    }
}

/// The steps after the first of these, by number, that can stand beside it.
fn others(kernels: &[Kernel], steps: &[Step]) -> Vec<usize> {
    let Some((left, mut beside)) = steps.first().and_then(|s| Some((left(s)?, Touched::of(kernels, s)?))) else {
        return vec![];
    };
    let mut between = Touched::default();
    let mut found = Vec::new();
    for (number, step) in steps.iter().enumerate().skip(1).take(AHEAD) {
        let Some(touched) = Touched::of(kernels, step) else { break };
        let same = self::left(step) == Some(left);
        if same && touched.is_apart(&beside) && touched.is_apart(&between) && found.len() + 1 < MOST {
            found.push(number);
            beside.add(touched);
        } else {
            between.add(touched);
        }
    }
    found
}

/// The left operand of a product.
fn left(step: &Step) -> Option<&View> {
    match step {
        Step::Library(Library::MatMul { a, .. }) | Step::Fused { library: Library::MatMul { a, .. }, .. } => Some(a),
        _ => None,
    }
}

/// What steps read and write.
#[derive(Default)]
struct Touched {
    read: Vec<BufferId>,
    written: Vec<BufferId>,
}

impl Touched {
    /// `None` for a step that is more than work for a device.
    fn of(kernels: &[Kernel], step: &Step) -> Option<Touched> {
        let mut touched = Touched::default();
        let (library, launch) = match step {
            Step::Library(library) => (Some(library), None),
            Step::Fused { library, kernel, args } => (Some(library), Some((kernel, args))),
            Step::Kernel { kernel, args } => (None, Some((kernel, args))),
            Step::Copy { from, to } => {
                (touched.read, touched.written) = (vec![*from], vec![*to]);
                (None, None)
            }
            _ => return None,
        };
        match library {
            Some(Library::Nonzero { .. }) => return None,
            Some(library) => (touched.read, touched.written) = library.buffers(),
            None => {}
        }
        if let Some((number, args)) = launch {
            let kernel = kernels.get(*number as usize)?;
            let read = args.iter().zip(&kernel.params).filter(|(_, param)| param.access != Access::Write);
            touched.read.extend(read.map(|(arg, _)| *arg));
            touched.written.extend(kernel.written(args));
        }
        Some(touched)
    }

    /// Whether neither writes what the other reads or writes.
    fn is_apart(&self, other: &Touched) -> bool {
        let meet = |a: &[BufferId], b: &[BufferId]| a.iter().any(|id| b.contains(id));
        !meet(&self.written, &other.read) && !meet(&self.written, &other.written) && !meet(&self.read, &other.written)
    }

    fn add(&mut self, other: Touched) {
        self.read.extend(other.read);
        self.written.extend(other.written);
    }
}
