//! The actions of a method, one after the other, on its stream.

use douse_core::sym::{Cond, Expr, Symbol};
use douse_core::{Error, Result, Scalar};
use douse_cpu::executor::number;
use douse_cuda::{Argument, Grid, Place};
use douse_program::arena;
use douse_program::plan::{BufferId, Predicate};

use super::action::{Action, Launched};
use super::executor::Prepared;
use super::room::{FLAG, NUMBER, RANDOM, Room};
use super::{flag, room};
use crate::symbols::eval;

/// A call under way.
pub(super) struct Walk<'a> {
    prepared: &'a Prepared,
    pub room: &'a mut Room,
    pub places: Places,
    pub symbols: Vec<Option<i64>>,
    /// A kernel that may have raised the flag was launched since the flag was read.
    unchecked: bool,
    /// A step that writes state was begun.
    pub committed: bool,
}

/// Where each buffer lies.
pub(super) struct Places {
    places: Vec<Option<Place>>,
    /// Those whose size has to be found out first.
    waits: Vec<bool>,
}

impl Places {
    pub fn get(&self, buffer: BufferId) -> Result<Place> {
        let place = self.places.get(buffer as usize).copied().flatten();
        place.ok_or_else(|| Error::internal(format!("buffer {buffer} has no memory when a step uses it")))
    }
}

impl<'a> Walk<'a> {
    pub fn new(
        prepared: &'a Prepared,
        room: &'a mut Room,
        places: Vec<Option<Place>>,
        waits: Vec<bool>,
        symbols: Vec<Option<i64>>,
    ) -> Walk<'a> {
        Walk { prepared, room, places: Places { places, waits }, symbols, unchecked: false, committed: false }
    }

    pub fn actions(&mut self, actions: &[Action]) -> Result<()> {
        actions.iter().try_for_each(|action| self.action(action))
    }

    fn action(&mut self, action: &Action) -> Result<()> {
        match action {
            Action::Launches { launches, scratch, count, commits } => {
                self.before_commit(*commits)?;
                let scratch = scratch.as_ref().map(|bytes| self.scratch(bytes)).transpose()?;
                launches.iter().try_for_each(|launched| self.launch(launched, scratch))?;
                match (count, scratch) {
                    (Some(symbol), Some(scratch)) => {
                        let count = self.read(scratch, douse_core::DType::I64)?.to_i64();
                        self.set(*symbol, count)
                    }
                    (Some(_), None) => Err(Error::internal("a count without scratch memory")),
                    (None, _) => Ok(()),
                }
            }
            Action::Copy { from, to, commits } => {
                self.before_commit(*commits)?;
                let (from, to) = (self.place(*from)?, self.place(*to)?);
                let len = from.len().min(to.len());
                self.prepared.device.device().copy(from.part(0..len)?, to.part(0..len)?, &self.room.stream)
            }
            Action::Read { buffer, symbol } => {
                let value = self.number(*buffer)?.to_i64();
                self.set(*symbol, value)
            }
            Action::Set { symbol, value } => {
                let value = self.eval(value)?;
                self.set(*symbol, value)
            }
            Action::Require { cond, message } => match self.holds(cond)? {
                true => Ok(()),
                false => {
                    let message = self.prepared.plan.messages.get(*message as usize);
                    Err(Error::invalid_argument(message.map_or("a check of the program failed", |m| m.as_str())))
                }
            },
            Action::If { predicate, then, otherwise } => {
                let taken = self.predicate(predicate)?;
                self.actions(if taken { then } else { otherwise })
            }
            Action::While { test, predicate, body } => loop {
                self.actions(test)?;
                if !self.predicate(predicate)? {
                    return Ok(());
                }
                self.actions(body)?;
            },
        }
    }

    /// State is written only after every check before it has passed.
    fn before_commit(&mut self, commits: bool) -> Result<()> {
        if commits && self.unchecked {
            self.settle()?;
        }
        self.committed |= commits;
        Ok(())
    }

    fn scratch(&mut self, bytes: &Expr) -> Result<Place> {
        let bytes =
            usize::try_from(self.eval(bytes)?).map_err(|_| Error::internal("scratch memory of a negative size"))?;
        let what = || format!("the scratch memory of {:?}", self.prepared.plan.name);
        self.room.scratch.at_least(bytes, &self.prepared.device, what)
    }

    fn launch(&mut self, launched: &Launched, scratch: Option<Place>) -> Result<()> {
        let Launched { function, launch, buffers } = launched;
        let mut blocks = [0; 3];
        for (blocks, size) in blocks.iter_mut().zip(&launch.grid) {
            let size = self.eval(size)?;
            *blocks = u32::try_from(size)
                .map_err(|_| Error::not_supported(format!("{}: a grid of {size} blocks", launch.function)))?;
        }
        if blocks.contains(&0) {
            return Ok(());
        }
        let mut arguments = Vec::with_capacity(buffers.len() + launch.symbols.len() + 3);
        for buffer in buffers {
            arguments.push(Argument::Place(self.place(*buffer)?));
        }
        for symbol in &launch.symbols {
            let value = self.symbols.get(*symbol as usize).copied().flatten();
            let missing = || Error::internal(format!("{}: symbol {symbol} is not known", launch.function));
            arguments.push(Argument::I64(value.ok_or_else(missing)?));
        }
        if launch.scratch {
            let missing = || Error::internal(format!("{}: no scratch memory", launch.function));
            arguments.push(Argument::Place(scratch.ok_or_else(missing)?));
        }
        if launch.flag {
            arguments.push(Argument::Place(self.control()?.part(FLAG)?));
            self.unchecked = true;
        }
        if launch.random {
            arguments.push(Argument::Place(self.control()?.part(RANDOM)?));
        }
        let grid = Grid { blocks, threads: launch.block, shared: launch.shared };
        function.launch(&grid, &arguments, &self.room.stream).map_err(|e| e.at(&launch.function))
    }

    fn control(&self) -> Result<Place> {
        self.room.values.place().ok_or_else(|| Error::internal("no control block"))
    }

    /// The memory of a buffer; one whose size had to wait gets its memory now, or more of it.
    pub fn place(&mut self, buffer: BufferId) -> Result<Place> {
        if !self.places.waits.get(buffer as usize).is_some_and(|waits| *waits) {
            return self.places.get(buffer);
        }
        let (plan, device) = (&self.prepared.plan, &self.prepared.device);
        let bytes = arena::bytes(plan, buffer as usize, &self.symbols)?
            .ok_or_else(|| Error::internal(format!("the size of buffer {buffer} is not known when a step uses it")))?;
        let memory = self.room.late.entry(buffer).or_default();
        let what = || format!("{bytes} bytes of {:?} whose size depends on data", plan.name);
        let place = memory.at_least(bytes, device, what)?;
        if let Some(known) = self.places.places.get_mut(buffer as usize) {
            *known = Some(place);
        }
        Ok(place)
    }

    fn set(&mut self, symbol: u32, value: i64) -> Result<()> {
        let slot = self.symbols.get_mut(symbol as usize);
        *slot.ok_or_else(|| Error::internal(format!("symbol {symbol} is not there")))? = Some(value);
        Ok(())
    }

    fn eval(&self, expr: &Expr) -> Result<i64> {
        eval(expr, &self.symbols).ok_or_else(|| Error::internal(format!("{expr} is not known when it is needed")))
    }

    /// The one element of a buffer, read back.
    fn number(&mut self, buffer: BufferId) -> Result<Scalar> {
        let dtype = self.prepared.plan.buffers.get(buffer as usize).map(|b| b.dtype);
        let dtype = dtype.ok_or_else(|| Error::internal(format!("buffer {buffer} is not there")))?;
        let place = self.place(buffer)?;
        self.read(place, dtype)
    }

    fn read(&mut self, place: Place, dtype: douse_core::DType) -> Result<Scalar> {
        let device = self.prepared.device.device();
        let mut bytes = [0; NUMBER.end - NUMBER.start];
        let bytes = bytes.get_mut(..dtype.size()).ok_or_else(|| Error::internal(format!("a number of {dtype}")))?;
        device.download(place.part(0..bytes.len())?, &self.room.pinned, NUMBER.start, &self.room.stream)?;
        // A value that an earlier check would have refused decides nothing.
        self.settle()?;
        self.room.pinned.read(NUMBER.start, bytes)?;
        number::from_bytes(bytes, dtype)
    }

    /// Waits for all work so far, and reads the error flag.
    ///
    /// # Errors
    /// What was raised; a fault of the work.
    pub fn settle(&mut self) -> Result<()> {
        let flag = self.control()?.part(FLAG)?;
        self.prepared.device.device().download(flag, &self.room.pinned, FLAG.start, &self.room.stream)?;
        self.room.stream.synchronize()?;
        let mut bytes = [0; flag::BYTES];
        self.room.pinned.read(room::FLAG.start, &mut bytes)?;
        self.unchecked = false;
        flag::check(&self.prepared.plan, &bytes)
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
