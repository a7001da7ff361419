//! Which steps mention which buffers, and which kernels write.

use crate::kernel::{Access, Kernel};
use crate::plan::{BufferId, Plan, Predicate, Step};

impl Kernel {
    /// Those of the buffers given to its parameters that it writes.
    pub fn written<'a>(&'a self, args: &'a [BufferId]) -> impl Iterator<Item = BufferId> + 'a {
        args.iter().zip(&self.params).filter(|(_, param)| param.access != Access::Read).map(|(arg, _)| *arg)
    }
}

impl Step {
    /// The buffers that a step mentions itself, those of steps within it left out; one that is mentioned twice stands there twice.
    pub fn buffers(&self) -> Vec<BufferId> {
        match self {
            Step::Kernel { args, .. } => args.clone(),
            Step::Library(library) => {
                let (read, written) = library.buffers();
                read.into_iter().chain(written).collect()
            }
            Step::Fused { library, args, .. } => {
                let (read, written) = library.buffers();
                read.into_iter().chain(written).chain(args.iter().copied()).collect()
            }
            Step::Copy { from, to } => vec![*from, *to],
            Step::Read { buffer, .. } => vec![*buffer],
            Step::If { predicate: Predicate::Buffer(buffer), .. }
            | Step::While { predicate: Predicate::Buffer(buffer), .. } => vec![*buffer],
            Step::Together(_) | Step::If { .. } | Step::While { .. } | Step::Set { .. } | Step::Require { .. } => {
                vec![]
            }
        }
    }

    /// The lists of steps within a step, in the order in which they stand in the plan.
    pub fn within(&self) -> [&[Step]; 2] {
        match self {
            Step::If { then, otherwise, .. } => [then, otherwise],
            Step::While { test, body, .. } => [test, body],
            Step::Together(steps) => [steps, &[]],
            _ => [&[], &[]],
        }
    }
}

/// Calls `visit` with every step, a step before those within it.
pub fn each_step<'a>(steps: &'a [Step], visit: &mut impl FnMut(&'a Step)) {
    for step in steps {
        visit(step);
        step.within().into_iter().for_each(|steps| each_step(steps, visit));
    }
}

/// How often steps mention each buffer of a plan.
pub fn counts(plan: &Plan) -> Vec<u32> {
    let mut counts = vec![0; plan.buffers.len()];
    each_step(&plan.steps, &mut |step| {
        for buffer in step.buffers() {
            if let Some(count) = counts.get_mut(buffer as usize) {
                *count += 1;
            }
        }
    });
    counts
}

/// The results of products that go to an epilogue, which an executor that does both at once never stores.
pub fn unstored(plan: &Plan) -> Vec<BufferId> {
    let mut found = Vec::new();
    each_step(&plan.steps, &mut |step| {
        if let Step::Fused { library, .. } = step {
            found.extend(library.buffers().1);
        }
    });
    found
}
