//! A plan's steps with their code: what a call does.
//!
//! A method is cut at its host reads. Between them lie [`Segment`]s: work for the device that is known when the segment begins, so that it
//! can be put on a stream, or recorded as a graph. What the host does between two reads it does first: it depends on nothing that the device
//! is doing meanwhile.

use std::sync::Arc;

use douse_core::sym::{Cond, Expr};
use douse_core::{DType, Error, Result, Scalar};
use douse_cpu::executor::number;
use douse_cuda::{Argument, Function, FunctionAttribute, Module, Overlap};
use douse_program::library::Library;
use douse_program::plan::{Buffer, BufferId, BufferKind, Data, Plan, Predicate, Step};
use douse_program::target::{
    COPY_PARAMETERS, CudaTarget, FINISH_PARAMETERS, FunctionName, GUARDED_COPY_PARAMETERS, Launch,
    REARRANGE_PARAMETERS, SET_CONDITION_PARAMETERS,
};

use super::executor::inline;
use super::launch::parameters;
use super::product::{LibraryProduct, Trials};

/// What a call does, one after the other.
#[derive(Debug)]
pub(super) enum Action {
    Segment(Segment),
    /// Waits for what the segment before [tells](Op::Tell).
    Told {
        dtype: DType,
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
    /// A branch that the host takes.
    If {
        predicate: Predicate,
        then: Vec<Action>,
        otherwise: Vec<Action>,
    },
    /// A loop that the host runs.
    While {
        test: Vec<Action>,
        predicate: Predicate,
        body: Vec<Action>,
    },
}

/// Work for the device without a host read.
#[derive(Debug)]
pub(super) struct Segment {
    /// From 0, in the order of the method.
    pub number: usize,
    pub ops: Vec<Op>,
}

/// Work for the device.
#[derive(Debug)]
pub(super) enum Op {
    /// Brings the call's inputs and its random state to the device, and inputs in other layouts into the program's.
    Upload,
    /// Brings the error flag and outputs back.
    Download,
    /// Brings a number back, as the last of its segment.
    Tell(Source),
    Launches {
        launches: Vec<Launched>,
        /// What does the same in their place, unless it has failed.
        product: Option<Box<LibraryProduct>>,
        /// Bytes of scratch memory that they share.
        scratch: Option<Expr>,
        /// It writes state.
        commits: bool,
    },
    Copy {
        from: BufferId,
        to: BufferId,
        /// The function that copies unless a check has failed.
        guarded: Option<Function>,
        commits: bool,
    },
    If {
        predicate: BufferId,
        then: Vec<Op>,
        otherwise: Vec<Op>,
    },
    While {
        test: Vec<Op>,
        predicate: BufferId,
        body: Vec<Op>,
    },
}

/// Where a number lies that the host reads.
#[derive(Clone, Copy, Debug)]
pub(super) enum Source {
    /// The one element of a buffer.
    Buffer(BufferId),
    /// The int64 at the start of the scratch memory.
    Scratch,
}

/// A launch with its function and the buffers it takes.
#[derive(Debug)]
pub(super) struct Launched {
    pub function: Function,
    pub launch: Launch,
    pub buffers: Vec<BufferId>,
}

/// A method's actions.
#[derive(Debug)]
pub(super) struct Actions {
    pub all: Vec<Action>,
    pub segments: usize,
    /// Copies between the device and pinned memory, where there is little to copy.
    pub copy: Function,
    /// Copies what comes back, and tells the host that it is there.
    pub finish: Function,
    /// Copies from one layout into another.
    pub rearrange: Function,
    /// Sets a condition of a graph: there where a branch or loop is the device's.
    pub set_condition: Option<Function>,
    /// Some function raises the error flag.
    pub raises: bool,
    /// Some function takes the random state.
    pub draws: bool,
    /// How launches of a graph overlap.
    pub overlap: Overlap,
}

/// A function of a method, as the driver has loaded it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionMeta {
    pub name: String,
    /// Of a thread.
    pub registers: u32,
    /// Bytes a block, static and dynamic.
    pub shared: u32,
    /// Bytes of local memory a thread: spilled registers, and arrays that are no registers.
    pub local: u32,
    /// Threads of a block.
    pub threads: u32,
    /// Blocks that a multiprocessor runs at once.
    pub blocks: u32,
}

impl Actions {
    /// The functions of all steps, each once, in the order in which they stand first.
    ///
    /// # Errors
    /// What the driver says.
    pub fn functions(&self) -> Result<Vec<FunctionMeta>> {
        let mut found: Vec<FunctionMeta> = Vec::new();
        for Launched { function, launch, .. } in launches(&self.all) {
            if found.iter().any(|meta| meta.name == function.name()) {
                continue;
            }
            let ask = |attribute| function.attribute(attribute).map(i32::unsigned_abs);
            let threads = launch.block.iter().product();
            found.push(FunctionMeta {
                name: function.name().to_owned(),
                registers: ask(FunctionAttribute::Registers)?,
                shared: ask(FunctionAttribute::StaticSharedMemory)? + launch.shared,
                local: ask(FunctionAttribute::LocalMemory)?,
                threads,
                blocks: function.occupancy(threads, launch.shared)?.unsigned_abs(),
            });
        }
        Ok(found)
    }
}

/// Calls `visit` for all work for the device, that in branches and loops after what holds it.
fn all_ops<'a>(actions: &'a [Action], visit: &mut dyn FnMut(&'a Op)) {
    for action in actions {
        match action {
            Action::Segment(segment) => each_op(&segment.ops, visit),
            Action::If { then, otherwise, .. } => [then, otherwise].into_iter().for_each(|a| all_ops(a, visit)),
            Action::While { test, body, .. } => [test, body].into_iter().for_each(|a| all_ops(a, visit)),
            Action::Told { .. } | Action::Set { .. } | Action::Require { .. } => {}
        }
    }
}

fn each_op<'a>(ops: &'a [Op], visit: &mut dyn FnMut(&'a Op)) {
    for op in ops {
        visit(op);
        match op {
            Op::If { then, otherwise, .. } => [then, otherwise].into_iter().for_each(|ops| each_op(ops, visit)),
            Op::While { test, body, .. } => [test, body].into_iter().for_each(|ops| each_op(ops, visit)),
            Op::Launches { .. } | Op::Copy { .. } | Op::Upload | Op::Download | Op::Tell(_) => {}
        }
    }
}

/// All launches of a method.
fn launches(actions: &[Action]) -> Vec<&Launched> {
    let mut found = Vec::new();
    all_ops(actions, &mut |op| {
        if let Op::Launches { launches, product, .. } = op {
            found.extend(launches);
            found.extend(product.iter().flat_map(|product| &product.epilogue));
        }
    });
    found
}

/// Kernels have few blocks that fill one of so many multiprocessors at most.
const FEW: u64 = 2;

/// Bytes of shared memory that a launch may have without its function asking for more.
const SHARED_WITHOUT_ASKING: u32 = 48 << 10;

/// Joins a plan's steps with their code.
///
/// # Errors
/// `InvalidProgram` where the code is not that of the plan.
pub(super) fn actions(
    plan: &Plan,
    target: &CudaTarget,
    modules: &[Arc<Module>],
    multiprocessors: u64,
    trials: Option<&mut Trials<'_>>,
) -> Result<Actions> {
    let (kernels, code) = (plan.kernels.len(), target.kernels.len());
    if kernels != code {
        return Err(Error::invalid_program(format!("code of {code} kernels for a plan of {kernels}")));
    }
    let mut joiner = Joiner { plan, target, modules, trials, guarded_copy: None, library: 0, segments: 0 };
    let service = |name: &FunctionName, words| joiner.function(name, &vec![Argument::WORD; words]);
    let guarded_copy = target.guarded_copy.as_ref().map(|name| service(name, GUARDED_COPY_PARAMETERS)).transpose()?;
    let copy = service(&target.copy, COPY_PARAMETERS)?;
    let finish = service(&target.finish, FINISH_PARAMETERS)?;
    let rearrange = service(&target.rearrange, REARRANGE_PARAMETERS)?;
    let set_condition =
        target.set_condition.as_ref().map(|name| service(name, SET_CONDITION_PARAMETERS)).transpose()?;
    joiner.guarded_copy = guarded_copy;
    let mut region = Region::default();
    region.ops.push(Op::Upload);
    let mut all = Vec::new();
    joiner.steps(&plan.steps, &mut region, &mut all, false)?;
    region.ops.push(Op::Download);
    joiner.end(&mut region, &mut all);
    match target.library.len() {
        count if count == joiner.library => {
            let segments = joiner.segments;
            let overlap = if target.overlaps { Overlap::Few(multiprocessors / FEW) } else { Overlap::None };
            let (mut raises, mut draws) = (false, false);
            launches(&all).iter().for_each(|launched| {
                raises |= launched.launch.flag;
                draws |= launched.launch.random;
            });
            Ok(Actions { all, segments, copy, finish, rearrange, set_condition, raises, draws, overlap })
        }
        count => Err(Error::invalid_program(format!("code of {count} library steps for a plan of {}", joiner.library))),
    }
}

/// What lies between two host reads.
#[derive(Default)]
struct Region {
    host: Vec<Action>,
    ops: Vec<Op>,
}

struct Joiner<'a, 'b> {
    plan: &'a Plan,
    target: &'a CudaTarget,
    modules: &'a [Arc<Module>],
    /// Where products may be cuBLASLt's.
    trials: Option<&'a mut Trials<'b>>,
    guarded_copy: Option<Function>,
    /// The number of the next library step, in the order of [`douse_program::target::library_steps`].
    library: usize,
    segments: usize,
}

impl Joiner<'_, '_> {
    /// Ends a region: what the host does in it, then the device's part.
    fn end(&mut self, region: &mut Region, out: &mut Vec<Action>) {
        out.append(&mut region.host);
        if !region.ops.is_empty() {
            let number = self.segments;
            self.segments += 1;
            out.push(Action::Segment(Segment { number, ops: std::mem::take(&mut region.ops) }));
        }
    }

    /// Ends a region with a number that the host waits for.
    fn tell(&mut self, source: Source, dtype: DType, symbol: u32, region: &mut Region, out: &mut Vec<Action>) {
        region.ops.push(Op::Tell(source));
        self.end(region, out);
        out.push(Action::Told { dtype, symbol });
    }

    /// Steps of a branch or loop, as actions of their own.
    fn block(&mut self, steps: &[Step], repeated: bool) -> Result<Vec<Action>> {
        let (mut region, mut out) = (Region::default(), Vec::new());
        self.steps(steps, &mut region, &mut out, repeated)?;
        self.end(&mut region, &mut out);
        Ok(out)
    }

    /// `repeated`: in a loop, where a symbol that is set may have an older value that the work before still needs.
    fn steps(&mut self, steps: &[Step], region: &mut Region, out: &mut Vec<Action>, repeated: bool) -> Result<()> {
        for step in steps {
            if let Step::If { predicate: Predicate::Buffer(buffer), then, otherwise } = step
                && let Some(value) = self.known(*buffer)?
            {
                // The other branch is joined too, and forgotten: code of library steps is numbered through the plan.
                if value.to_bool() {
                    self.steps(then, region, out, repeated)?;
                    self.block(otherwise, repeated)?;
                } else {
                    self.block(then, repeated)?;
                    self.steps(otherwise, region, out, repeated)?;
                }
                continue;
            }
            if let Some(op) = self.op(step)? {
                region.ops.push(op);
                let count = match step {
                    Step::Library(_) => self.target.library.get(self.library - 1).and_then(|code| code.count),
                    _ => None,
                };
                if let Some(symbol) = count {
                    self.tell(Source::Scratch, DType::I64, symbol, region, out);
                }
                continue;
            }
            match step {
                Step::Set { symbol, value } => self.set(*symbol, value.clone(), region, out, repeated),
                Step::Require { cond, message } => {
                    region.host.push(Action::Require { cond: cond.clone(), message: *message });
                }
                Step::Read { buffer, symbol } => match self.known(*buffer)? {
                    Some(value) => self.set(*symbol, Expr::int(value.to_i64()), region, out, repeated),
                    None => {
                        let kept = self.plan.buffers.get(*buffer as usize);
                        let missing = || Error::invalid_program(format!("buffer {buffer} is not there"));
                        let dtype = kept.ok_or_else(missing)?.dtype;
                        self.tell(Source::Buffer(*buffer), dtype, *symbol, region, out);
                    }
                },
                Step::If { predicate, then, otherwise } => {
                    self.end(region, out);
                    let (then, otherwise) = (self.block(then, repeated)?, self.block(otherwise, repeated)?);
                    out.push(Action::If { predicate: predicate.clone(), then, otherwise });
                }
                Step::While { test, predicate, body } => {
                    self.end(region, out);
                    let (test, body) = (self.block(test, true)?, self.block(body, true)?);
                    out.push(Action::While { test, predicate: predicate.clone(), body });
                }
                Step::Kernel { .. } | Step::Library(_) | Step::Fused { .. } | Step::Together(_) | Step::Copy { .. } => {
                }
            }
        }
        Ok(())
    }

    fn set(&mut self, symbol: u32, value: Expr, region: &mut Region, out: &mut Vec<Action>, repeated: bool) {
        if repeated {
            self.end(region, out);
        }
        region.host.push(Action::Set { symbol, value });
    }

    /// The value of a constant that stands in the plan: nothing writes it, so that nobody has to read it from the device.
    fn known(&self, buffer: BufferId) -> Result<Option<Scalar>> {
        match self.plan.buffers.get(buffer as usize) {
            Some(Buffer { dtype, kind: BufferKind::Constant(data @ (Data::Inline(_) | Data::Zeros(_))), .. }) => {
                let bytes = inline(data)?;
                let missing = || Error::invalid_program(format!("no element in the constant of buffer {buffer}"));
                number::from_bytes(bytes.get(..dtype.size()).ok_or_else(missing)?, *dtype).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// The device's work of a step; `None` for one that the host has a part in.
    fn op(&mut self, step: &Step) -> Result<Option<Op>> {
        Ok(Some(match step {
            Step::Kernel { kernel, args } => {
                let missing = || Error::invalid_program(format!("kernel {kernel} is not there"));
                let code = self.target.kernels.get(*kernel as usize).filter(|code| !code.launches.is_empty());
                let code = code.ok_or_else(missing)?;
                let commits = self.commits(self.written(*kernel, args));
                let launches = code.launches.iter().map(|launch| self.launched(launch, args.clone()));
                let scratch = code.launches.iter().any(|launch| launch.scratch).then(|| code.scratch.clone());
                Op::Launches { launches: launches.collect::<Result<_>>()?, product: None, scratch, commits }
            }
            Step::Library(library) | Step::Fused { library, .. } => {
                let code = self.target.library.get(self.library);
                let code = code.ok_or_else(|| Error::invalid_program("a library step without code"))?;
                self.library += 1;
                let mut written = library.buffers().1;
                if let Step::Fused { kernel, args, .. } = step {
                    written.extend(self.written(*kernel, args));
                }
                let launch = |l: &douse_program::target::LibraryLaunch| self.launched(&l.launch, l.buffers.clone());
                let launches = code.launches.iter().map(launch).collect::<Result<Vec<_>>>()?;
                let commits = self.commits(written);
                let product = if commits { None } else { self.product(step, library, &launches, &code.scratch)? };
                let more = Expr::int(product.as_ref().map_or(0, |product| product.scratch.total as i64));
                let scratch = Some(code.scratch.maximum(&more));
                Op::Launches { launches, product, scratch, commits }
            }
            Step::Together(steps) => {
                let mut all = Vec::new();
                let mut committed = false;
                let mut scratch_bytes = Expr::int(0);
                for op in self.ops(steps)? {
                    if let Op::Launches { launches, scratch, commits, .. } = op {
                        all.extend(launches);
                        committed |= commits;
                        scratch_bytes = scratch_bytes.maximum(&scratch.unwrap_or_else(|| Expr::int(0)));
                    }
                }
                Op::Launches { launches: all, product: None, scratch: Some(scratch_bytes), commits: committed }
            }
            Step::Copy { from, to } => {
                let commits = self.commits([*to]);
                let guarded = self.guarded_copy.clone().filter(|_| commits);
                Op::Copy { from: *from, to: *to, guarded, commits }
            }
            Step::If { predicate: Predicate::Buffer(predicate), then, otherwise }
                if self.on_device(then) && self.on_device(otherwise) =>
            {
                Op::If { predicate: *predicate, then: self.ops(then)?, otherwise: self.ops(otherwise)? }
            }
            Step::While { test, predicate: Predicate::Buffer(predicate), body }
                if self.on_device(test) && self.on_device(body) =>
            {
                Op::While { test: self.ops(test)?, predicate: *predicate, body: self.ops(body)? }
            }
            _ => return Ok(None),
        }))
    }

    /// Steps within another. Their products stay with the own kernels.
    fn ops(&mut self, steps: &[Step]) -> Result<Vec<Op>> {
        let trials = self.trials.take();
        let op = |step| self.op(step)?.ok_or_else(|| Error::internal("a host read on the device"));
        let ops = steps.iter().map(op).collect();
        self.trials = trials;
        ops
    }

    /// A step's product as cuBLASLt does it, where the program allows that and it is faster.
    fn product(
        &mut self,
        step: &Step,
        library: &Library,
        own: &[Launched],
        scratch: &Expr,
    ) -> Result<Option<Box<LibraryProduct>>> {
        let known = |bytes: &Expr| usize::try_from(bytes.as_int()?).ok();
        let shape = self.trials.as_ref().and_then(|trials| trials.shape(library));
        let (Some(shape), Some(own_scratch), false) = (shape, known(scratch), own.is_empty()) else { return Ok(None) };
        let epilogue = match step {
            Step::Fused { kernel, args, .. } => {
                let code = self.target.kernels.get(*kernel as usize).filter(|code| !code.launches.is_empty());
                let (Some(code), true) = (code, self.is_plain(args)) else { return Ok(None) };
                let Some(scratch) = known(&code.scratch) else { return Ok(None) };
                let launches = code.launches.iter().map(|launch| self.launched(launch, args.clone()));
                Some((launches.collect::<Result<_>>()?, scratch))
            }
            _ => None,
        };
        let trials = self.trials.as_mut();
        Ok(trials.and_then(|trials| trials.choose(shape, (own, own_scratch), epilogue)).map(Box::new))
    }

    /// Whether buffers hold what a trial can make up: floats, and no indices.
    fn is_plain(&self, buffers: &[BufferId]) -> bool {
        let dtype = |id: &BufferId| self.plan.buffers.get(*id as usize).map(|buffer| buffer.dtype);
        buffers.iter().all(|id| dtype(id).is_some_and(|dtype| dtype.is_float() || dtype.is_bool()))
    }

    /// Whether steps are work for the device alone.
    fn on_device(&self, steps: &[Step]) -> bool {
        steps.iter().all(|step| match step {
            Step::Kernel { .. } | Step::Fused { .. } | Step::Together(_) | Step::Copy { .. } => true,
            Step::Library(library) => !matches!(library, Library::Nonzero { .. }),
            Step::If { predicate: Predicate::Buffer(_), then, otherwise } => {
                self.on_device(then) && self.on_device(otherwise)
            }
            Step::While { test, predicate: Predicate::Buffer(_), body } => self.on_device(test) && self.on_device(body),
            _ => false,
        })
    }

    /// The buffers that a kernel writes.
    fn written(&self, kernel: u32, args: &[BufferId]) -> Vec<BufferId> {
        self.plan.kernels.get(kernel as usize).map_or(vec![], |kernel| kernel.written(args).collect())
    }

    fn commits(&self, written: impl IntoIterator<Item = BufferId>) -> bool {
        let kind = |id: BufferId| self.plan.buffers.get(id as usize).map(|buffer| &buffer.kind);
        written.into_iter().any(|id| matches!(kind(id), Some(BufferKind::State { .. })))
    }

    /// A function that takes parameters of these sizes.
    fn function(&self, name: &FunctionName, parameters: &[usize]) -> Result<Function> {
        let module = self.modules.get(name.module as usize);
        let missing = || Error::invalid_program(format!("{} is in a module of no name", name.function));
        let function = module.ok_or_else(missing)?.function(&name.function)?;
        function.expect_parameters(parameters)?;
        Ok(function)
    }

    fn launched(&self, launch: &Launch, buffers: Vec<BufferId>) -> Result<Launched> {
        let name = FunctionName { module: launch.module, function: launch.function.clone() };
        let function = self.function(&name, &parameters(launch, buffers.len()))?;
        if launch.shared > SHARED_WITHOUT_ASKING {
            function.allow_shared(launch.shared).map_err(|e| e.at(&launch.function))?;
        }
        Ok(Launched { function, launch: launch.clone(), buffers })
    }
}
