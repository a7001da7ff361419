//! The actions of a method, one after the other, on its stream.

use std::time::{Duration, Instant};

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
use super::product::LibraryProduct;
use super::room::{Memory, NUMBER};
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
    /// Work was put on the stream.
    pub begun: bool,
    /// How long the host has waited for the device.
    pub waited: Duration,
}

/// How often the host looks whether it was told, before it asks the driver whether something went wrong: some ten microseconds.
const LOOKS: usize = 256;
/// After so long, the host lets the driver wait, which knows how to do other things meanwhile.
const PATIENCE: Duration = Duration::from_millis(2);

impl<'a> Walk<'a> {
    /// A call that is about to begin.
    pub fn new(
        prepared: &'a Prepared,
        room: &'a mut Memory,
        stream: &'a Stream,
        frame: &'a Frame,
        symbols: Vec<Option<i64>>,
        graphs: Option<Shelf<'a>>,
    ) -> Walk<'a> {
        let (committed, refused, begun) = (false, false, false);
        let (host_reads, waited) = (0, Duration::ZERO);
        Walk { prepared, room, stream, frame, symbols, graphs, committed, refused, host_reads, begun, waited }
    }

    pub fn actions(&mut self, actions: &[Action]) -> Result<()> {
        actions.iter().try_for_each(|action| self.action(action))
    }

    fn action(&mut self, action: &Action) -> Result<()> {
        match action {
            Action::Segment(segment) => self.segment(segment),
            Action::Told { dtype, symbol } => {
                let value = self.told(*dtype)?.to_i64();
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
                self.begun = true;
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
                Op::Upload | Op::Download | Op::Tell(_) | Op::Launches { .. } | Op::Copy { .. } => {
                    self.resolve_op(op, &mut commands)?;
                    self.committed |= commits(std::slice::from_ref(op));
                    if let Op::Launches { product: Some(product), .. } = op {
                        self.begun = true;
                        self.library_first(op, product, &mut commands)?;
                    }
                    for command in commands.drain(..) {
                        self.begun = true;
                        self.issue(command)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Puts a product that is cuBLASLt's on the stream, and takes it from the commands of its step. Where that fails, nothing of it has begun: the
    /// commands become those of the step's own kernels.
    fn library_first(&mut self, op: &Op, product: &LibraryProduct, commands: &mut Vec<Command>) -> Result<()> {
        let Some(Command::Product(call)) = commands.first() else { return Ok(()) };
        let ran = call.run(self.stream);
        match ran {
            Ok(()) => drop(commands.remove(0)),
            Err(error) => {
                product.leave(&error);
                commands.clear();
                self.resolve_op(op, commands)?;
            }
        }
        Ok(())
    }

    /// Puts work on the stream.
    fn issue(&mut self, command: Command) -> Result<()> {
        let (device, stream) = (self.prepared.device.device(), self.stream);
        match command {
            Command::Launch { function, grid, arguments } => function.launch(&grid, &arguments, stream),
            Command::Product(call) => call.run(stream),
            Command::Copy { from, to } => device.copy(from, to, stream),
            Command::Upload { to, start, .. } => device.upload(&self.room.pinned, start, to, stream),
            Command::Download { from, start, .. } => device.download(from, &self.room.pinned, start, stream),
            Command::If { .. } | Command::While { .. } => Err(Error::internal("a branch that nobody has taken")),
        }
    }

    /// A part of the memory for inputs and outputs.
    pub fn values(&self, range: std::ops::Range<usize>) -> Result<Place> {
        self.room.values.place().ok_or_else(|| Error::internal("no memory for values"))?.part(range)
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
        let place = self.place(buffer)?.part(0..dtype.size())?;
        self.issue(self.tell(place)?)?;
        self.told(dtype)
    }

    /// Waits for a number that comes back.
    fn told(&mut self, dtype: DType) -> Result<Scalar> {
        self.host_reads += 1;
        // A value that an earlier check would have refused decides nothing.
        self.settle(true)?;
        let mut bytes = [0; NUMBER.end - NUMBER.start];
        let bytes = bytes.get_mut(..dtype.size()).ok_or_else(|| Error::internal(format!("a number of {dtype}")))?;
        self.room.told.number(bytes)?;
        number::from_bytes(bytes, dtype)
    }

    /// Waits for all work so far, and, where its last kernel tells the host, looks at the error flag that came back.
    ///
    /// # Errors
    /// What was raised; a fault of the work.
    pub fn settle(&mut self, tells: bool) -> Result<()> {
        let start = Instant::now();
        let done = if tells { self.listen(start) } else { self.stream.synchronize() };
        self.waited += start.elapsed();
        done?;
        if !tells {
            return Ok(());
        }
        self.room.told.clear()?;
        let checked = flag::check(&self.prepared.plan, &self.room.told.flag()?);
        self.refused |= checked.is_err();
        checked
    }

    /// Waits until the host is told. What the device writes there arrives about two microseconds before the driver knows that it is done.
    fn listen(&self, start: Instant) -> Result<()> {
        loop {
            for _ in 0..LOOKS {
                if self.room.told.is_done()? {
                    return Ok(());
                }
                std::hint::spin_loop();
            }
            // A fault never tells anything.
            if self.stream.is_done()? {
                return Ok(());
            }
            if start.elapsed() > PATIENCE {
                return self.stream.synchronize();
            }
        }
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
        Op::Upload | Op::Download | Op::Tell(_) => false,
    })
}
