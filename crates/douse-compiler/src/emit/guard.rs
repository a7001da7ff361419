//! Which functions look at the error flag before they write.
//!
//! State stays as it was where a check of the call failed. On a GPU nobody waits for the checks: what writes state does nothing once the flag
//! is raised.

use std::collections::BTreeSet;

use douse_program::kernel::{Effect, Op};
use douse_program::plan::{BufferId, BufferKind, Plan, Step};
use douse_program::target::library_steps;

/// The guards that a plan needs: none where neither a kernel nor a library step of it raises the flag.
pub(super) struct Guards<'a> {
    plan: &'a Plan,
    raises: bool,
    /// Kernels that some step gives state to write.
    kernels: BTreeSet<usize>,
    /// A step copies to state.
    copies: bool,
}

impl<'a> Guards<'a> {
    pub fn of(plan: &'a Plan) -> Guards<'a> {
        let raises = plan.kernels.iter().flat_map(|kernel| &kernel.stages).any(|stage| {
            stage.body.iter().any(|inst| matches!(inst.op, Op::Check { .. }))
                || stage.effects.iter().any(|effect| matches!(effect, Effect::Assert { .. }))
        });
        let raises = raises || library_steps(plan).iter().any(|step| !step.library.failures().is_empty());
        let mut guards = Guards { plan, raises, kernels: BTreeSet::new(), copies: false };
        guards.steps(&plan.steps);
        guards
    }

    fn steps(&mut self, steps: &[Step]) {
        for step in steps {
            match step {
                Step::Kernel { kernel, args } => {
                    let number = *kernel as usize;
                    if self.plan.kernels.get(number).is_some_and(|kernel| self.needed(kernel.written(args))) {
                        self.kernels.insert(number);
                    }
                }
                Step::Copy { to, .. } => self.copies |= self.needed([*to]),
                Step::If { then, otherwise, .. } => {
                    self.steps(then);
                    self.steps(otherwise);
                }
                Step::While { test, body, .. } => {
                    self.steps(test);
                    self.steps(body);
                }
                Step::Library(_)
                | Step::Fused { .. }
                | Step::Together(_)
                | Step::Read { .. }
                | Step::Set { .. }
                | Step::Require { .. } => {}
            }
        }
    }

    /// Whether what writes these buffers has to look at the flag.
    pub fn needed(&self, written: impl IntoIterator<Item = BufferId>) -> bool {
        let kind = |id: BufferId| self.plan.buffers.get(id as usize).map(|buffer| &buffer.kind);
        self.raises && written.into_iter().any(|id| matches!(kind(id), Some(BufferKind::State { .. })))
    }

    pub fn kernel(&self, number: usize) -> bool {
        self.kernels.contains(&number)
    }

    pub fn copies(&self) -> bool {
        self.copies
    }
}
