//! The actions of a method, one after the other, on its stream.

use douse_core::sym::{Cond, Expr, Symbol};
use douse_core::{DType, Error, Result, Scalar};
use douse_cpu::executor::number;
use douse_cuda::{Place, Stream};
use douse_program::plan::{BufferId, Predicate};

use super::action::{Action, Op, Segment};
use super::command::Command;
use super::executor::Prepared;
use super::flag;
use super::frame::Frame;
use super::graph::Shelf;
use super::room::{FLAG, Memory, NUMBER};
use crate::symbols::eval;

/// A call under way.
pub(super) struct Walk<'a> {
    pub prepared: &'a Prepared,
    pub room: &'a mut Memory,
    pub stream: &'a Stream,
    pub frame: &'a Frame,
    /// Values of the plan's symbols as far as they are known.
    pub symbols: Vec<Option<i64>>,
    /// The graphs of calls like this one, where it may use any.
    pub graphs: Option<Shelf<'a>>,
    /// A step that writes state was begun.
    pub committed: bool,
    /// A check of the program failed, so that guarded steps have written nothing.
    pub refused: bool,
    /// Values that the host has waited for.
    pub host_reads: u64,
}

impl Walk<'_> {
    pub fn actions(&mut self, actions: &[Action]) -> Result<()> {
        actions.iter().try_for_each(|action| self.action(action))
    }

    fn action(&mut self, action: &Action) -> Result<()> {
        match action {
            Action::Segment(segment) => self.segment(segment),
            Action::Count { symbol } => {
                let scratch = self.room.scratch.place();
                let scratch = scratch.ok_or_else(|| Error::internal("a count without scratch memory"))?;
                let count = self.read(scratch, DType::I64)?.to_i64();
                self.set(*symbol, count)
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
                    self.refused = true;
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

    /// Runs a segment by its graph, or plainly where it has none.
    fn segment(&mut self, segment: &Segment) -> Result<()> {
        if let Some(mut graphs) = self.graphs.take() {
            let replayed = graphs.run(segment, self);
            self.graphs = Some(graphs);
            if replayed? {
                self.committed |= commits(&segment.ops);
                return Ok(());
            }
        }
        self.reserve(&segment.ops)?;
        self.plainly(&segment.ops)
    }

    fn plainly(&mut self, ops: &[Op]) -> Result<()> {
        let mut commands = Vec::new();
        for op in ops {
            match op {
                Op::If { predicate, then, otherwise } => {
                    let taken = self.number(*predicate)?.to_bool();
                    self.plainly(if taken { then } else { otherwise })?;
                }
                Op::While { test, predicate, body } => loop {
                    self.plainly(test)?;
                    if !self.number(*predicate)?.to_bool() {
                        break;
                    }
                    self.plainly(body)?;
                },
                Op::Upload | Op::Download | Op::Launches { .. } | Op::Copy { .. } => {
                    self.resolve_op(op, &mut commands)?;
                    self.committed |= commits(std::slice::from_ref(op));
                    for command in commands.drain(..) {
                        self.issue(command)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Puts work on the stream.
    fn issue(&mut self, command: Command) -> Result<()> {
        let (device, stream) = (self.prepared.device.device(), self.stream);
        match command {
            Command::Launch { function, grid, arguments } => function.launch(&grid, &arguments, stream),
            Command::Copy { from, to } => device.copy(from, to, stream),
            Command::Upload { to, .. } => device.upload(&self.room.pinned, 0, to, stream),
            Command::Download { from, start, .. } => device.download(from, &self.room.pinned, start, stream),
            Command::If { .. } | Command::While { .. } => Err(Error::internal("a branch that nobody has taken")),
        }
    }

    /// A part of the memory for inputs, outputs and the control block.
    pub fn values(&self, range: std::ops::Range<usize>) -> Result<Place> {
        self.room.values.place().ok_or_else(|| Error::internal("no memory for values"))?.part(range)
    }

    /// A part of the control block.
    pub fn control(&self, part: std::ops::Range<usize>) -> Result<Place> {
        self.values(self.frame.slots.control(part))
    }

    fn set(&mut self, symbol: u32, value: i64) -> Result<()> {
        let slot = self.symbols.get_mut(symbol as usize);
        *slot.ok_or_else(|| Error::internal(format!("symbol {symbol} is not there")))? = Some(value);
        Ok(())
    }

    pub fn eval(&self, expr: &Expr) -> Result<i64> {
        eval(expr, &self.symbols).ok_or_else(|| Error::internal(format!("{expr} is not known when it is needed")))
    }

    /// The one element of a buffer, read back.
    fn number(&mut self, buffer: BufferId) -> Result<Scalar> {
        let dtype = self.prepared.plan.buffers.get(buffer as usize).map(|b| b.dtype);
        let dtype = dtype.ok_or_else(|| Error::internal(format!("buffer {buffer} is not there")))?;
        let place = self.place(buffer)?;
        self.read(place, dtype)
    }

    fn read(&mut self, place: Place, dtype: DType) -> Result<Scalar> {
        self.host_reads += 1;
        let device = self.prepared.device.device();
        let mut bytes = [0; NUMBER.end - NUMBER.start];
        let bytes = bytes.get_mut(..dtype.size()).ok_or_else(|| Error::internal(format!("a number of {dtype}")))?;
        let [number, flag] = [NUMBER, FLAG].map(|part| self.frame.slots.control(part).start);
        device.download(place.part(0..bytes.len())?, &self.room.pinned, number, self.stream)?;
        device.download(self.control(FLAG)?, &self.room.pinned, flag, self.stream)?;
        // A value that an earlier check would have refused decides nothing.
        self.settle()?;
        self.room.pinned.read(number, bytes)?;
        number::from_bytes(bytes, dtype)
    }

    /// Waits for all work so far, and looks at the error flag that came back.
    ///
    /// # Errors
    /// What was raised; a fault of the work.
    pub fn settle(&mut self) -> Result<()> {
        self.stream.synchronize()?;
        let mut bytes = [0; flag::BYTES];
        self.room.pinned.read(self.frame.slots.control(FLAG).start, &mut bytes)?;
        let checked = flag::check(&self.prepared.plan, &bytes);
        self.refused |= checked.is_err();
        checked
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

/// Whether any of these writes state.
fn commits(ops: &[Op]) -> bool {
    ops.iter().any(|op| match op {
        Op::Launches { commits, .. } | Op::Copy { commits, .. } => *commits,
        Op::If { then, otherwise, .. } => commits(then) || commits(otherwise),
        Op::While { test, body, .. } => commits(test) || commits(body),
        Op::Upload | Op::Download => false,
    })
}
