//! Products and convolutions that do not depend on each other as one step, so that one launch does them at once: the projections of an attention layer,
//! or the same network over several cameras.
//!
//! A step is joined by later ones that multiply the same left operand, or that are alike in everything but their buffers and too small to occupy a device.
//! What those need of the steps between goes before the step as well; everything else keeps its order. Nothing that writes state or an input is moved:
//! that has to come after the checks before it.

use std::collections::HashSet;

use douse_program::kernel::{Access, Kernel};
use douse_program::library::{Library, View};
use douse_program::plan::{Buffer, BufferId, BufferKind, Plan, Step};

/// Steps after a product that are looked at for others.
const AHEAD: usize = 256;
/// Steps that stand together at most.
const MOST: usize = 8;
/// A result of more elements occupies a device by itself: so many are two or three rounds of its multiprocessors with tiles of 64 x 64.
const MOST_ELEMENTS: i64 = 1 << 21;

/// Moves products to others that they can be done with.
pub(super) fn gather(plan: &mut Plan) {
    let mut steps = std::mem::take(&mut plan.steps);
    Gatherer { kernels: &plan.kernels, buffers: &plan.buffers }.gather(&mut steps);
    plan.steps = steps;
}

struct Gatherer<'a> {
    kernels: &'a [Kernel],
    buffers: &'a [Buffer],
}

/// Steps after a product, by their numbers, ascending.
#[derive(Default)]
struct Beside {
    /// Those that can be done with it.
    together: Vec<usize>,
    /// Those that have to be done before.
    before: Vec<usize>,
}

impl Gatherer<'_> {
    fn gather(&self, steps: &mut Vec<Step>) {
        let mut at = 0;
        while at < steps.len() {
            match &mut steps[at] {
                Step::If { then, otherwise, .. } => {
                    self.gather(then);
                    self.gather(otherwise);
                }
                Step::While { test, body, .. } => {
                    self.gather(test);
                    self.gather(body);
                }
                _ => {}
            }
            let beside = self.beside(&steps[at..]);
            if let Some(last) = beside.together.last() {
                at += beside.before.len();
                let (mut before, mut together, mut after) = (Vec::new(), Vec::new(), Vec::new());
                let start = at - beside.before.len();
                for (number, step) in steps.drain(start..=start + last).enumerate() {
                    let place = match number {
                        0 => &mut together,
                        _ if beside.together.binary_search(&number).is_ok() => &mut together,
                        _ if beside.before.binary_search(&number).is_ok() => &mut before,
                        _ => &mut after,
                    };
                    place.push(step);
                }
                before.push(Step::Together(together));
                before.append(&mut after);
                steps.splice(start..start, before);
            }
            at += 1;
        }
    }

    /// What can stand beside the first of these steps.
    fn beside(&self, steps: &[Step]) -> Beside {
        let mut beside = Beside::default();
        let Some((first, touched)) = steps.first().and_then(|s| Some((product(s)?, self.touched(s)?))) else {
            return beside;
        };
        // What must stay behind the first: it, those that stand with it, and all that depends on one of these.
        let mut behind = Union::default();
        behind.add(&touched);
        // The rest: those before that later ones may need.
        let mut free: Vec<(usize, Touched)> = Vec::new();
        for (number, step) in steps.iter().enumerate().skip(1).take(AHEAD) {
            let Some(touched) = self.touched(step) else { break };
            let fixed = touched.written.iter().any(|id| self.is_kept(*id));
            if fixed || !behind.is_apart(&touched) {
                behind.add(&touched);
                continue;
            }
            let joins = product(step).is_some_and(|other| self.join(first, other));
            if joins && beside.together.len() + 1 < MOST {
                // Of those before, what it depends on, the last first.
                let mut needed = Union::default();
                needed.add(&touched);
                for (ahead, between) in free.iter().rev() {
                    if beside.before.binary_search(ahead).is_err() && !needed.is_apart(between) {
                        needed.add(between);
                        beside.before.push(*ahead);
                    }
                }
                beside.before.sort_unstable();
                beside.together.push(number);
                behind.add(&touched);
            } else {
                free.push((number, touched));
            }
        }
        beside
    }

    /// Whether a buffer outlives the call or is the caller's.
    fn is_kept(&self, id: BufferId) -> bool {
        let kind = self.buffers.get(id as usize).map(|buffer| &buffer.kind);
        matches!(kind, Some(BufferKind::State { .. } | BufferKind::Input(_)))
    }

    /// Whether two products gain from standing together.
    fn join(&self, first: &Library, other: &Library) -> bool {
        if let (Library::MatMul { a, .. }, Library::MatMul { a: left, .. }) = (first, other)
            && a == left
        {
            return true;
        }
        let (_, results) = first.views();
        let elements = |view: &&View| view.sizes.iter().map(|size| size.as_int()).product::<Option<i64>>();
        let small = results.first().and_then(elements).is_some_and(|count| count <= MOST_ELEMENTS);
        small && self.alike(first, other)
    }

    /// Whether two steps differ in nothing but their buffers, of the same dtypes.
    fn alike(&self, one: &Library, other: &Library) -> bool {
        let same = |a: &View, b: &View| {
            let dtype = |view: &View| self.buffers.get(view.buffer as usize).map(|buffer| buffer.dtype);
            (&a.offset, &a.sizes, &a.strides, dtype(a)) == (&b.offset, &b.sizes, &b.strides, dtype(b))
        };
        let views = |library: &Library| {
            let (read, written) = library.views();
            read.into_iter().chain(written).cloned().collect::<Vec<View>>()
        };
        let (ours, theirs) = (views(one), views(other));
        let all = ours.len() == theirs.len() && ours.iter().zip(&theirs).all(|(a, b)| same(a, b));
        all && match (one, other) {
            (Library::MatMul { .. }, Library::MatMul { .. }) => true,
            (Library::Convolution(a), Library::Convolution(b)) => {
                (&a.stride, &a.padding, &a.dilation, a.groups) == (&b.stride, &b.padding, &b.dilation, b.groups)
            }
            _ => false,
        }
    }

    /// `None` for a step that is more than work for a device.
    fn touched(&self, step: &Step) -> Option<Touched> {
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
            let kernel = self.kernels.get(*number as usize)?;
            let read = args.iter().zip(&kernel.params).filter(|(_, param)| param.access != Access::Write);
            touched.read.extend(read.map(|(arg, _)| *arg));
            touched.written.extend(kernel.written(args));
        }
        Some(touched)
    }
}

/// A step's product or convolution.
fn product(step: &Step) -> Option<&Library> {
    match step {
        Step::Library(library) | Step::Fused { library, .. } => {
            matches!(library, Library::MatMul { .. } | Library::Convolution(_)).then_some(library)
        }
        _ => None,
    }
}

/// What a step reads and writes.
#[derive(Default)]
struct Touched {
    read: Vec<BufferId>,
    written: Vec<BufferId>,
}

/// What several steps read and write.
#[derive(Default)]
struct Union {
    read: HashSet<BufferId>,
    written: HashSet<BufferId>,
}

impl Union {
    /// Whether neither side writes what the other reads or writes.
    fn is_apart(&self, step: &Touched) -> bool {
        !step.read.iter().any(|id| self.written.contains(id))
            && !step.written.iter().any(|id| self.read.contains(id) || self.written.contains(id))
    }

    fn add(&mut self, step: &Touched) {
        self.read.extend(&step.read);
        self.written.extend(&step.written);
    }
}
