//! A plan's steps with their code: what the walk does.

use std::sync::Arc;

use douse_core::sym::{Cond, Expr};
use douse_core::{Error, Result};
use douse_cuda::{Function, Module};
use douse_program::kernel::Access;
use douse_program::plan::{BufferId, BufferKind, Plan, Predicate, Step};
use douse_program::target::{CudaTarget, Launch};

#[derive(Debug)]
pub(super) enum Action {
    Launches {
        launches: Vec<Launched>,
        /// Bytes of scratch memory that they share.
        scratch: Option<Expr>,
        /// The symbol that gets the int64 at the start of the scratch memory.
        count: Option<u32>,
        /// It writes state.
        commits: bool,
    },
    Copy {
        from: BufferId,
        to: BufferId,
        commits: bool,
    },
    Read {
        buffer: BufferId,
        symbol: u32,
    },
    Set {
        symbol: u32,
        value: Expr,
    },
    Require {
        cond: Cond,
        message: u32,
    },
    If {
        predicate: Predicate,
        then: Vec<Action>,
        otherwise: Vec<Action>,
    },
    While {
        test: Vec<Action>,
        predicate: Predicate,
        body: Vec<Action>,
    },
}

/// A launch with its function and the buffers it takes.
#[derive(Debug)]
pub(super) struct Launched {
    pub function: Function,
    pub launch: Launch,
    pub buffers: Vec<BufferId>,
}

/// Bytes of shared memory that a launch may have without its function asking for more.
const SHARED_WITHOUT_ASKING: u32 = 48 << 10;

/// Joins a plan's steps with their code.
///
/// # Errors
/// `InvalidProgram` where the code is not that of the plan.
pub(super) fn actions(plan: &Plan, target: &CudaTarget, modules: &[Arc<Module>]) -> Result<Vec<Action>> {
    let (kernels, code) = (plan.kernels.len(), target.kernels.len());
    if kernels != code {
        return Err(Error::invalid_program(format!("code of {code} kernels for a plan of {kernels}")));
    }
    let mut joiner = Joiner { plan, target, modules, library: 0 };
    let actions = joiner.steps(&plan.steps)?;
    match target.library.len() {
        all if all == joiner.library => Ok(actions),
        all => Err(Error::invalid_program(format!("code of {all} library steps for a plan of {}", joiner.library))),
    }
}

struct Joiner<'a> {
    plan: &'a Plan,
    target: &'a CudaTarget,
    modules: &'a [Arc<Module>],
    /// The number of the next library step, in the order of [`douse_program::target::library_steps`].
    library: usize,
}

impl Joiner<'_> {
    fn steps(&mut self, steps: &[Step]) -> Result<Vec<Action>> {
        steps.iter().map(|step| self.step(step)).collect()
    }

    fn step(&mut self, step: &Step) -> Result<Action> {
        Ok(match step {
            Step::Kernel { kernel, args } => {
                let number = *kernel as usize;
                let missing = || Error::invalid_program(format!("kernel {number} is not there"));
                let kernel = self.plan.kernels.get(number).ok_or_else(missing)?;
                let launch = self.target.kernels.get(number).ok_or_else(missing)?;
                let written = args.iter().zip(&kernel.params).filter(|(_, param)| param.access != Access::Read);
                let commits = self.commits(written.map(|(buffer, _)| *buffer));
                let launches = vec![self.launched(launch, args.clone())?];
                Action::Launches { launches, scratch: None, count: None, commits }
            }
            Step::Library(library) => {
                let code = self.target.library.get(self.library);
                let code = code.ok_or_else(|| Error::invalid_program("a library step without code"))?;
                self.library += 1;
                let launch = |l: &douse_program::target::LibraryLaunch| self.launched(&l.launch, l.buffers.clone());
                Action::Launches {
                    launches: code.launches.iter().map(launch).collect::<Result<_>>()?,
                    scratch: Some(code.scratch.clone()),
                    count: code.count,
                    commits: self.commits(library.buffers().1),
                }
            }
            Step::Copy { from, to } => Action::Copy { from: *from, to: *to, commits: self.commits([*to]) },
            Step::Read { buffer, symbol } => Action::Read { buffer: *buffer, symbol: *symbol },
            Step::Set { symbol, value } => Action::Set { symbol: *symbol, value: value.clone() },
            Step::Require { cond, message } => Action::Require { cond: cond.clone(), message: *message },
            Step::If { predicate, then, otherwise } => {
                Action::If { predicate: predicate.clone(), then: self.steps(then)?, otherwise: self.steps(otherwise)? }
            }
            Step::While { test, predicate, body } => {
                Action::While { test: self.steps(test)?, predicate: predicate.clone(), body: self.steps(body)? }
            }
        })
    }

    fn commits(&self, written: impl IntoIterator<Item = BufferId>) -> bool {
        let kind = |id: BufferId| self.plan.buffers.get(id as usize).map(|buffer| &buffer.kind);
        written.into_iter().any(|id| matches!(kind(id), Some(BufferKind::State { .. })))
    }

    fn launched(&self, launch: &Launch, buffers: Vec<BufferId>) -> Result<Launched> {
        let module = self.modules.get(launch.module as usize);
        let module =
            module.ok_or_else(|| Error::invalid_program(format!("{} is in a module of no name", launch.function)))?;
        let function = module.function(&launch.function)?;
        if launch.shared > SHARED_WITHOUT_ASKING {
            function.allow_shared(launch.shared).map_err(|e| e.at(&launch.function))?;
        }
        Ok(Launched { function, launch: launch.clone(), buffers })
    }
}
