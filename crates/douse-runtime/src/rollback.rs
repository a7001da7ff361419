//! What a failed call does to state: put back where that is cheap, reported where it is not.

use std::collections::BTreeSet;

use douse_cpu::State;
use douse_program::kernel::{Effect, Kernel, Op};
use douse_program::library::Library;
use douse_program::plan::{BufferId, BufferKind, Plan, Step};

/// State of up to this many bytes is copied before a call that could fail after writing it, and put back when it does.
/// More would cost a call of a decoder with a large cache more than it is worth; such a failure says what was touched.
pub(crate) const LIMIT: usize = 4 << 20;

/// The state that a call may have written when it fails.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rollback {
    at_risk: Vec<String>,
}

/// What was copied before a call.
pub(crate) struct Snapshot {
    copies: Option<Vec<(String, Vec<u8>)>>,
}

impl Rollback {
    /// Finds the state that some step writes before, or in, a step that can fail.
    pub fn new(plan: &Plan) -> Rollback {
        if plan.checks_first {
            return Rollback::default();
        }
        let mut walk = Walk { plan, written: BTreeSet::new(), at_risk: BTreeSet::new() };
        walk.steps(&plan.steps);
        let name = |id: &BufferId| match &plan.buffers.get(*id as usize)?.kind {
            BufferKind::State { name, .. } => Some(name.clone()),
            _ => None,
        };
        Rollback { at_risk: walk.at_risk.iter().filter_map(name).collect() }
    }

    /// Names of the state that a call may have written when it fails.
    pub fn at_risk(&self) -> &[String] {
        &self.at_risk
    }

    /// Copies the state at risk, where it is not too large.
    pub fn before(&self, state: &State) -> Snapshot {
        let at_risk = || state.iter().filter(|(name, _)| self.at_risk.iter().any(|n| n == name));
        if at_risk().map(|(_, bytes)| bytes.len()).sum::<usize>() > LIMIT {
            return Snapshot { copies: None };
        }
        Snapshot { copies: Some(at_risk().map(|(name, bytes)| (name.to_owned(), bytes.to_vec())).collect()) }
    }

    /// Puts back what was copied, and says what of the state a failed call leaves changed.
    pub fn after_failure(&self, state: &mut State, snapshot: Snapshot) -> Option<String> {
        match snapshot.copies {
            Some(copies) => {
                for (name, copy) in copies {
                    if let Some(bytes) = state.get_mut(&name)
                        && bytes.len() == copy.len()
                    {
                        bytes.copy_from_slice(&copy);
                    }
                }
                None
            }
            None => Some(format!("the call may have changed the state {}", self.at_risk.join(", "))),
        }
    }
}

struct Walk<'a> {
    plan: &'a Plan,
    /// State that was written so far.
    written: BTreeSet<BufferId>,
    at_risk: BTreeSet<BufferId>,
}

impl Walk<'_> {
    fn is_state(&self, id: BufferId) -> bool {
        self.plan.buffers.get(id as usize).is_some_and(|b| matches!(b.kind, BufferKind::State { .. }))
    }

    fn step(&mut self, writes: impl IntoIterator<Item = BufferId>, fails: bool) {
        let writes: Vec<BufferId> = writes.into_iter().filter(|id| self.is_state(*id)).collect();
        self.written.extend(writes);
        if fails {
            self.at_risk.extend(&self.written);
        }
    }

    fn kernel(&mut self, number: u32, args: &[BufferId]) {
        let Some(kernel) = self.plan.kernels.get(number as usize) else { return };
        self.step(kernel.written(args), can_fail(kernel));
    }

    fn library(&mut self, library: &Library) {
        let fails = !library.failures().is_empty() || matches!(library, Library::Nonzero { .. });
        self.step(library.buffers().1, fails);
    }

    fn steps(&mut self, steps: &[Step]) {
        for step in steps {
            match step {
                Step::Kernel { kernel, args } => self.kernel(*kernel, args),
                Step::Library(library) => self.library(library),
                Step::Together(steps) => self.steps(steps),
                Step::Fused { library, kernel, args } => {
                    self.library(library);
                    self.kernel(*kernel, args);
                }
                Step::Copy { to, .. } => self.step([*to], false),
                Step::Read { .. } | Step::Set { .. } | Step::Require { .. } => self.step([], true),
                Step::If { then, otherwise, .. } => {
                    self.steps(then);
                    self.steps(otherwise);
                }
                Step::While { test, body, .. } => {
                    // Twice: what the body writes is written before its second run can fail.
                    for _ in 0..2 {
                        self.steps(test);
                        self.steps(body);
                    }
                }
            }
        }
    }
}

fn can_fail(kernel: &Kernel) -> bool {
    kernel.stages.iter().any(|stage| {
        stage.body.iter().any(|inst| matches!(inst.op, Op::Check { .. }))
            || stage.effects.iter().any(|effect| matches!(effect, Effect::Assert { .. }))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;
    use douse_core::Aligned;

    #[test]
    fn state_written_before_a_check_is_at_risk() {
        let plan = (*sample::counter().plan).clone();
        assert_eq!(Rollback::new(&plan).at_risk, ["count"]);
        let mut checked_first = plan.clone();
        checked_first.steps.rotate_right(1);
        assert!(Rollback::new(&checked_first).at_risk.is_empty());
        let checks_first = Plan { checks_first: true, ..plan };
        assert!(Rollback::new(&checks_first).at_risk.is_empty());
    }

    #[test]
    fn small_state_is_put_back_and_large_state_is_reported() {
        let rollback = Rollback { at_risk: vec!["count".into()] };
        let state = |len: usize| {
            let mut state = State::default();
            state.insert("count".into(), Aligned::zeros(len).unwrap());
            state
        };
        let mut small = state(8);
        let snapshot = rollback.before(&small);
        small.get_mut("count").unwrap()[0] = 1;
        assert_eq!(rollback.after_failure(&mut small, snapshot), None);
        assert_eq!(small.get_mut("count").unwrap()[0], 0);
        let mut large = state(LIMIT + 1);
        let snapshot = rollback.before(&large);
        assert!(rollback.after_failure(&mut large, snapshot).unwrap().contains("state count"));
    }
}
