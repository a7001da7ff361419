//! Epilogues: a kernel that computes, at each point of a product's result, from that result, becomes one step with the product.
//!
//! The product's result is read by that kernel alone. The product moves down to the kernel; what stands between does not write what it reads.
//! The kernel writes nothing that the product reads: no element of it may be there before the whole product is. Its loops become
//! the dimensions of the result.

use douse_core::sym::{Expr, Ranges, Symbol};
use douse_program::kernel::{Effect, Kernel, Op};
use douse_program::library::{Library, View};
use douse_program::plan::{BufferId, BufferKind, OutputKind, Plan, Step};
use douse_program::uses;

/// Makes one step of each product and its epilogue.
pub(super) fn attach(plan: &mut Plan, ranges: &Ranges) {
    let counts = uses::counts(plan);
    let returned = |id: BufferId| {
        plan.outputs.iter().any(|output| matches!(output.kind, OutputKind::Number { buffer, .. } if buffer == id))
    };
    let single = |id: BufferId| {
        let temporary = plan.buffers.get(id as usize).is_some_and(|b| matches!(b.kind, BufferKind::Temporary));
        temporary && counts.get(id as usize) == Some(&2) && !returned(id)
    };
    let mut steps = std::mem::take(&mut plan.steps);
    Attach { kernels: &mut plan.kernels, single: &single, ranges }.steps(&mut steps);
    plan.steps = steps;
}

struct Attach<'a> {
    kernels: &'a mut Vec<Kernel>,
    /// Whether a buffer is a temporary that two steps mention: who writes it and who reads it.
    single: &'a dyn Fn(BufferId) -> bool,
    ranges: &'a Ranges,
}

impl Attach<'_> {
    fn steps(&mut self, steps: &mut Vec<Step>) {
        let mut at = 0;
        while at < steps.len() {
            match &mut steps[at] {
                Step::If { then, otherwise, .. } => {
                    self.steps(then);
                    self.steps(otherwise);
                }
                Step::While { test, body, .. } => {
                    self.steps(test);
                    self.steps(body);
                }
                Step::Kernel { kernel, args } => {
                    let (kernel, args) = (*kernel, std::mem::take(args));
                    let product = self.product(&steps[..at], kernel, &args);
                    match product {
                        Some((product, respaced)) => {
                            if let Some(slot) = self.kernels.get_mut(kernel as usize) {
                                *slot = respaced;
                            }
                            if let Step::Library(library) = steps.remove(product) {
                                at -= 1;
                                steps[at] = Step::Fused { library, kernel, args };
                            }
                        }
                        None => steps[at] = Step::Kernel { kernel, args },
                    }
                }
                _ => {}
            }
            at += 1;
        }
    }

    /// The last of the steps before a kernel that is a product whose epilogue it can be, and the kernel in the result's dimensions.
    fn product(&self, before: &[Step], kernel: u32, args: &[BufferId]) -> Option<(usize, Kernel)> {
        let kernel = self.kernels.get(kernel as usize)?;
        let written: Vec<BufferId> = kernel.written(args).collect();
        for (at, step) in before.iter().enumerate().rev() {
            let Step::Library(library @ (Library::MatMul { .. } | Library::Convolution(_))) = step else { continue };
            let (read, made) = library.buffers();
            let views = library.views().1;
            let ([out], [result]) = (made.as_slice(), views.as_slice()) else { continue };
            let Some(param) = args.iter().position(|arg| arg == out) else { continue };
            let between = before.get(at + 1..)?;
            if (self.single)(*out)
                && !written.iter().any(|id| read.contains(id))
                && between.iter().all(|step| self.passes(step, &read))
            {
                return Some((at, respaced(kernel, param as u32, result, self.ranges)?));
            }
        }
        None
    }

    /// Whether a step can as well stand before a product that reads these buffers.
    fn passes(&self, step: &Step, read: &[BufferId]) -> bool {
        let kernel = |number: u32, args: &[BufferId]| {
            let kernel = self.kernels.get(number as usize);
            kernel.is_some_and(|kernel| kernel.written(args).all(|id| !read.contains(&id)))
        };
        let library = |library: &Library| library.buffers().1.iter().all(|id| !read.contains(id));
        match step {
            Step::Kernel { kernel: number, args } => kernel(*number, args),
            Step::Library(step) => library(step),
            Step::Fused { library: step, kernel: number, args } => library(step) && kernel(*number, args),
            Step::Copy { to, .. } => !read.contains(to),
            _ => false,
        }
    }
}

/// A kernel that reads each element of a result, parameter `param`, once, with the result's dimensions as its loops.
fn respaced(kernel: &Kernel, param: u32, result: &View, ranges: &Ranges) -> Option<Kernel> {
    let [stage] = kernel.stages.as_slice() else { return None };
    let plain = !kernel.ordered && kernel.locals.is_empty() && stage.inner.is_empty();
    let effects = stage.effects.iter().all(|effect| matches!(effect, Effect::Store { param: p, .. } if *p != param));
    let body = stage.body.iter().all(|inst| !matches!(inst.op, Op::Check { .. } | Op::Random { .. }));
    if !plain || !effects || !body {
        return None;
    }
    let mut loads = stage.body.iter().filter_map(|inst| match &inst.op {
        Op::Load { param: p, index, guard } if *p == param => Some((index, guard)),
        _ => None,
    });
    let (index, guard) = loads.next()?;
    // Everywhere, at one place: in registers it is there for all points.
    if guard.is_some() || loads.any(|(other, guard)| other != index || guard.is_some()) {
        return None;
    }
    let loops = loops_of(&kernel.outer, index, result)?;
    let scope = ranges.with_loops(&result.sizes);
    let place = |symbol: Symbol| match symbol {
        Symbol::Loop(number) => loops.get(number as usize).cloned(),
        _ => None,
    };
    let mut kernel = kernel.clone();
    kernel.outer = result.sizes.clone();
    for stage in &mut kernel.stages {
        let body = stage.body.iter_mut().filter_map(|inst| match &mut inst.op {
            Op::Load { index, .. } | Op::Index(index) => Some(index),
            _ => None,
        });
        let effects = stage.effects.iter_mut().filter_map(|effect| match effect {
            Effect::Store { index, .. } => Some(index),
            _ => None,
        });
        body.chain(effects).for_each(|index| *index = index.substitute(&place).simplify(&scope));
    }
    // The result is read where it lies: this is what an executor that has it in registers relies on.
    let expected = result.at_loops();
    let reads_in_place = kernel.stages.iter().flat_map(|s| &s.body).all(|inst| match &inst.op {
        Op::Load { param: p, index, .. } => *p != param || *index == expected,
        _ => true,
    });
    reads_in_place.then_some(kernel)
}

/// Each of the loops as an expression of the result's coordinates, where `index`, over the loops, goes once through the result's memory.
fn loops_of(outer: &[Expr], index: &Expr, result: &View) -> Option<Vec<Expr>> {
    let mut rest = index - &result.offset;
    let mut steps = Vec::with_capacity(outer.len());
    for number in 0..outer.len() {
        let (step, without) = rest.affine(Symbol::Loop(number as u32))?;
        steps.push(step);
        rest = without;
    }
    if !rest.is_int(0) {
        return None;
    }
    let loops = in_memory_order(outer, &steps)?;
    let dims = in_memory_order(&result.sizes, &result.strides)?;
    let mut found = vec![Expr::int(0); outer.len()];
    let (mut loops, mut dims) = (loops.into_iter().peekable(), dims.into_iter().peekable());
    while loops.peek().is_some() {
        // A loop without a dimension repeats the result, or reads only part of its passes from it.
        let (inner, dim) = (loops.next()?, dims.next()?);
        let coordinate = Expr::loop_var(dim);
        let (size, extent) = (&outer[inner], &result.sizes[dim]);
        if size == extent {
            found[inner] = coordinate;
        } else if let Some(split) = several(size, extent, outer, &mut loops) {
            // Several loops are one dimension.
            let mut below = Expr::int(1);
            let last = split.len();
            for (k, number) in std::iter::once(inner).chain(split).enumerate() {
                let digit = coordinate.floor_div(&below);
                found[number] = if k == last { digit } else { digit.modulo(&outer[number]) };
                below = &below * &outer[number];
            }
        } else if let Some(joined) = several(extent, size, &result.sizes, &mut dims) {
            // One loop is several dimensions.
            let (mut below, mut sum) = (extent.clone(), coordinate);
            for number in joined {
                sum = &sum + &(&Expr::loop_var(number) * &below);
                below = &below * &result.sizes[number];
            }
            found[inner] = sum;
        } else {
            return None;
        }
    }
    dims.next().is_none().then_some(found)
}

/// The further numbers whose sizes, with `first`, multiply to `whole`; taken only if they do.
fn several<I: Iterator<Item = usize> + Clone>(
    first: &Expr,
    whole: &Expr,
    sizes: &[Expr],
    numbers: &mut std::iter::Peekable<I>,
) -> Option<Vec<usize>> {
    let mut ahead = numbers.clone();
    let (mut product, mut taken) = (first.clone(), Vec::new());
    while product != *whole {
        let number = ahead.next()?;
        product = &product * &sizes[number];
        taken.push(number);
    }
    *numbers = ahead;
    Some(taken)
}

/// The numbers of the sizes that are not 1, from the innermost in memory outwards; `None` where they leave gaps.
fn in_memory_order(sizes: &[Expr], strides: &[Expr]) -> Option<Vec<usize>> {
    let mut left: Vec<usize> = (0..sizes.len()).filter(|d| !sizes[*d].is_int(1)).collect();
    let (mut order, mut expected) = (Vec::new(), Expr::int(1));
    while !left.is_empty() {
        let next = left.iter().position(|d| strides.get(*d) == Some(&expected))?;
        let dim = left.remove(next);
        expected = &expected * &sizes[dim];
        order.push(dim);
    }
    Some(order)
}
