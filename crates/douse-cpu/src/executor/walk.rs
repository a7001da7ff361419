//! The steps of a plan, one after the other.

use douse_core::bytes::Aligned;
use douse_core::sym::{Cond, Symbol};
use douse_core::{Error, Result, Scalar};
use douse_program::library::Library;
use douse_program::plan::{BufferId, Plan, Predicate, Step};
use std::sync::Arc;

use douse_program::arena;

use super::{Options, Prepared, number};
use crate::interpret::{Bound, Call, Flag, Scratches, bind};
use crate::memory::{Memory, Outside, Owned, Region};
use crate::strided::{Context, eval};

/// A kernel bound to the values of the symbols that it mentions.
pub(super) type Binding = Option<(Vec<Option<i64>>, Arc<Bound>)>;

/// A run of a plan under way.
pub(super) struct Walk<'a, 'm> {
    pub plan: &'a Plan,
    pub prepared: &'a Prepared,
    pub memory: Memory<'m>,
    pub symbols: Vec<Option<i64>>,
    pub options: &'a Options,
    /// By kernel.
    pub bindings: &'a mut Vec<Binding>,
    pub scratches: &'a Scratches,
    pub library_scratch: &'a crate::library::Scratch,
    pub flag: Flag,
    /// By buffer: the memory of those whose size was not known when the call began.
    pub late: Vec<Option<Owned>>,
    /// By buffer: whether its size had to wait.
    pub waits: Vec<bool>,
}

impl<'m> Walk<'_, 'm> {
    pub fn steps(&mut self, steps: &[Step]) -> Result<()> {
        steps.iter().try_for_each(|step| self.step(step))
    }

    fn step(&mut self, step: &Step) -> Result<()> {
        match step {
            Step::Kernel { kernel, args } => self.kernel(*kernel, args),
            Step::Library(library) => self.library(library),
            Step::Together(steps) => self.steps(steps),
            // The result is in the caches when the kernel comes.
            Step::Fused { library, kernel, args } => {
                self.library(library)?;
                self.kernel(*kernel, args)
            }
            Step::Copy { from, to } => self.copy(*from, *to),
            Step::Read { buffer, symbol } => {
                let value = self.number(*buffer)?.to_i64();
                self.set(*symbol, value)
            }
            Step::Set { symbol, value } => {
                let value = eval(value, &self.symbols)?;
                self.set(*symbol, value)
            }
            Step::Require { cond, message } => match self.holds(cond)? {
                true => Ok(()),
                false => Err(Error::invalid_argument(
                    self.plan.messages.get(*message as usize).map_or("a check of the program failed", |m| m.as_str()),
                )),
            },
            Step::If { predicate, then, otherwise } => {
                if self.predicate(predicate)? {
                    self.steps(then)
                } else {
                    self.steps(otherwise)
                }
            }
            Step::While { test, predicate, body } => loop {
                self.steps(test)?;
                if !self.predicate(predicate)? {
                    return Ok(());
                }
                self.steps(body)?;
            },
        }
    }

    fn kernel(&mut self, number: u32, args: &[BufferId]) -> Result<()> {
        let kernel = self.plan.kernels.get(number as usize);
        let kernel = kernel.ok_or_else(|| Error::internal(format!("kernel {number} is not there")))?;
        if kernel.params.len() != args.len() {
            return Err(Error::internal(format!("{} gets {} arguments", kernel.name, args.len())));
        }
        let regions = args.iter().map(|b| self.region(*b)).collect::<Result<Vec<_>>>()?;
        let bound = self.bound(number as usize)?;
        let state = (self.options.seed, self.options.call);
        let done = Call::new(kernel, &bound, &regions, &self.plan.messages, &self.flag, state)
            .run(&self.options.threads, self.scratches);
        // What a check refused is the cause where memory without any element is read afterwards.
        self.flag
            .take()
            .and(done)
            .map_err(|e| if e.code == douse_core::Code::Internal { e.at(&kernel.name) } else { e })
    }

    fn bound(&mut self, number: usize) -> Result<Arc<Bound>> {
        let mentioned = self.prepared.symbols.get(number).map_or(&[][..], |m| m);
        let values: Vec<Option<i64>> =
            mentioned.iter().map(|s| self.symbols.get(*s as usize).copied().flatten()).collect();
        match self.bindings.get(number) {
            Some(Some((known, bound))) if *known == values => return Ok(bound.clone()),
            _ => {}
        }
        let Some(kernel) = self.plan.kernels.get(number) else { return Err(Error::internal("no such kernel")) };
        let bound = Arc::new(bind(kernel, &self.symbols).map_err(|e| e.at(&kernel.name))?);
        if let Some(binding) = self.bindings.get_mut(number) {
            *binding = Some((values, bound.clone()));
        }
        Ok(bound)
    }

    fn library(&mut self, library: &Library) -> Result<()> {
        let (read, written) = library.buffers();
        for buffer in read.into_iter().chain(written) {
            self.region(buffer)?;
        }
        let threads = &self.options.threads;
        let (memory, symbols) = (&mut self.memory, &mut self.symbols[..]);
        let mut context = Context { plan: self.plan, memory, symbols, threads };
        crate::library::run(library, &mut context, self.library_scratch)
    }

    fn copy(&mut self, from: BufferId, to: BufferId) -> Result<()> {
        let fault = |Outside| Error::internal("a copy between buffers of different sizes");
        let (from, to) = (self.region(from)?, self.region(to)?);
        let bytes = from.len().min(to.len());
        to.part(0..bytes).and_then(|to| to.copy_from(&from.part(0..bytes)?)).map_err(fault)
    }

    /// The memory of a buffer; one whose size had to wait gets its memory now, or more of it.
    pub fn region(&mut self, buffer: BufferId) -> Result<Region<'m>> {
        if !self.waits.get(buffer as usize).is_some_and(|waits| *waits) {
            return self.memory.get(buffer);
        }
        let bytes = arena::bytes(self.plan, buffer as usize, &self.symbols)?
            .ok_or_else(|| Error::internal(format!("the size of buffer {buffer} is not known when a step uses it")))?;
        if let Some(region) = self.memory.try_get(buffer).filter(|region| region.len() >= bytes) {
            return Ok(region);
        }
        let (owned, region) = self.memory.own(Aligned::zeros(bytes)?);
        self.memory.set(buffer, region);
        if let Some(late) = self.late.get_mut(buffer as usize) {
            *late = Some(owned);
        }
        Ok(region)
    }

    fn set(&mut self, symbol: u32, value: i64) -> Result<()> {
        let slot = self.symbols.get_mut(symbol as usize);
        *slot.ok_or_else(|| Error::internal(format!("symbol {symbol} is not there")))? = Some(value);
        Ok(())
    }

    /// The one element of a buffer.
    pub fn number(&mut self, buffer: BufferId) -> Result<Scalar> {
        let dtype = self.plan.buffers.get(buffer as usize).map(|b| b.dtype);
        let dtype = dtype.ok_or_else(|| Error::internal(format!("buffer {buffer} is not there")))?;
        number::read(&self.region(buffer)?, dtype)
    }

    fn predicate(&mut self, predicate: &Predicate) -> Result<bool> {
        match predicate {
            Predicate::Cond(cond) => self.holds(cond),
            Predicate::Buffer(buffer) => Ok(self.number(*buffer)?.to_bool()),
        }
    }

    /// Whether a condition over symbols holds.
    pub fn holds(&self, cond: &Cond) -> Result<bool> {
        let value = |symbol| match symbol {
            Symbol::Size(i) => self.symbols.get(i as usize).copied().flatten(),
            _ => None,
        };
        cond.eval(&value).ok_or_else(|| Error::internal("a condition is not known when it is needed"))
    }
}
