//! From work as the method has it to work as a call does it: sizes and places filled in.

use douse_core::sym::Expr;
use douse_core::{Error, Result};
use douse_cuda::{Argument, Device, Function, Grid, Place};
use douse_program::arena;
use douse_program::plan::{BufferId, Plan};
use douse_program::target::COPY_THREADS;

use super::action::{Launched, Op, Segment, Source};
use super::command::Command;
use super::launch::{Operands, fill};
use super::product::LibraryProduct;
use super::room::NUMBER;
use super::walk::Walk;

/// Bytes that a thread of a guarded copy moves at once.
const COPY_BYTES: usize = 16;
/// Blocks enough to fill any device.
const COPY_BLOCKS: usize = 1024;
/// So few bytes reach the host's memory sooner by a kernel than by the copy engine, which takes longer to start.
const FEW_BYTES: usize = 256 << 10;
/// A thread that rearranges moves one element where one that copies moves so many bytes.
const ELEMENTS: usize = COPY_BYTES;

fn copy_grid(len: usize) -> Grid {
    let blocks = len.div_ceil(COPY_BYTES * COPY_THREADS as usize).clamp(1, COPY_BLOCKS);
    Grid { blocks: [blocks as u32, 1, 1], threads: [COPY_THREADS, 1, 1], shared: 0 }
}

impl Walk<'_> {
    /// Everything that a segment does now.
    ///
    /// # Errors
    /// `MemoryAllocationFailed` for scratch memory or a value whose size was just found out; `NotSupported` for a grid that is too large.
    pub fn resolve(&mut self, segment: &Segment) -> Result<Vec<Command>> {
        loop {
            self.reserve(&segment.ops)?;
            let moves = self.room.moves();
            let mut commands = Vec::new();
            for op in &segment.ops {
                self.resolve_op(op, &mut commands)?;
            }
            // What was found before something moved lies elsewhere now; sizes are known, so nothing moves again.
            if self.room.moves() == moves {
                return Ok(commands);
            }
        }
    }

    /// Makes the scratch memory as large as any of these needs, so that it does not move between them.
    pub fn reserve(&mut self, ops: &[Op]) -> Result<()> {
        for op in ops {
            match op {
                Op::Launches { scratch: Some(bytes), .. } => {
                    self.scratch(bytes)?;
                }
                Op::If { then, otherwise, .. } => {
                    self.reserve(then)?;
                    self.reserve(otherwise)?;
                }
                Op::While { test, body, .. } => {
                    self.reserve(test)?;
                    self.reserve(body)?;
                }
                Op::Launches { scratch: None, .. } | Op::Upload | Op::Download | Op::Tell(_) | Op::Copy { .. } => {}
            }
        }
        Ok(())
    }

    fn scratch(&mut self, bytes: &Expr) -> Result<Place> {
        let bytes = self.eval(bytes)?;
        let bytes = usize::try_from(bytes).map_err(|_| Error::internal("scratch memory of a negative size"))?;
        let what = || format!("the scratch memory of {:?}", self.prepared.plan.name);
        self.room.scratch.at_least(bytes, &self.prepared.device, what)
    }

    fn resolve_all(&mut self, ops: &[Op]) -> Result<Vec<Command>> {
        let mut commands = Vec::with_capacity(ops.len());
        ops.iter().try_for_each(|op| self.resolve_op(op, &mut commands))?;
        Ok(commands)
    }

    /// Appends what an operation does; nothing where it has nothing to do.
    pub fn resolve_op(&mut self, op: &Op, commands: &mut Vec<Command>) -> Result<()> {
        match op {
            Op::Upload => self.resolve_upload(commands)?,
            Op::Download => self.resolve_download(commands)?,
            Op::Tell(source) => commands.push(self.resolve_tell(*source)?),
            Op::Launches { launches, product, scratch, .. } => {
                let scratch = scratch.as_ref().map(|bytes| self.scratch(bytes)).transpose()?;
                if let (Some(product), Some(scratch)) = (product.as_ref().filter(|product| !product.is_left()), scratch)
                {
                    return self.resolve_product(product, scratch, commands);
                }
                for launched in launches {
                    commands.extend(self.resolve_launch(launched, scratch, None)?);
                }
            }
            Op::Copy { from, to, guarded, .. } => {
                let (from, to) = (self.place(*from)?, self.place(*to)?);
                let len = from.len().min(to.len());
                if len == 0 || from.address() == to.address() {
                    return Ok(());
                }
                let (from, to) = (from.part(0..len)?, to.part(0..len)?);
                commands.push(match guarded {
                    None => Command::Copy { from, to },
                    Some(function) => {
                        let grid = copy_grid(len);
                        let flag = Argument::Place(self.room.flag()?);
                        let places = [Argument::Place(to), Argument::Place(from)];
                        let arguments = places.into_iter().chain([Argument::I64(len as i64), flag]).collect();
                        Command::Launch { function: function.clone(), grid, arguments }
                    }
                });
            }
            Op::If { predicate, then, otherwise } => commands.push(Command::If {
                predicate: self.place(*predicate)?,
                then: self.resolve_all(then)?,
                otherwise: self.resolve_all(otherwise)?,
            }),
            Op::While { test, predicate, body } => commands.push(Command::While {
                test: self.resolve_all(test)?,
                predicate: self.place(*predicate)?,
                body: self.resolve_all(body)?,
            }),
        }
        Ok(())
    }

    /// What goes to the device, and what brings inputs into the program's layout then.
    fn resolve_upload(&mut self, commands: &mut Vec<Command>) -> Result<()> {
        let range = self.frame.slots.uploaded();
        let start = range.start;
        let to = self.values(range)?;
        match to.len() {
            0 => {}
            few if few <= FEW_BYTES => {
                let arguments = vec![Argument::Place(to), self.pinned(start)?, Argument::I64(few as i64)];
                commands.push(self.service(&self.prepared.actions.copy, copy_grid(few), arguments));
            }
            _ => commands.push(Command::Upload { to, start, pinning: self.room.pinning }),
        }
        for (buffer, strided) in &self.frame.strided {
            let raw = || self.values(self.frame.slots.raw(*buffer).unwrap_or_default());
            let from = strided.place.map_or_else(raw, Ok)?;
            let to = self.frame.places.get(*buffer as usize).copied().flatten();
            let to = to.ok_or_else(|| Error::internal("no memory for an input in another layout"))?;
            if !to.is_empty() {
                let arguments = [Argument::Place(to), Argument::Place(from)].into_iter().chain(strided.arguments());
                let grid = copy_grid(strided.elements().unsigned_abs() as usize * ELEMENTS);
                commands.push(self.service(&self.prepared.actions.rearrange, grid, arguments.collect()));
            }
        }
        Ok(())
    }

    /// What comes back, and the kernel that says so.
    fn resolve_download(&mut self, commands: &mut Vec<Command>) -> Result<()> {
        if !self.frame.tells {
            return Ok(());
        }
        let range = self.frame.slots.downloaded();
        let (start, pinning, mut from) = (range.start, self.room.pinning, self.values(range)?);
        if from.len() > FEW_BYTES {
            commands.push(Command::Download { start, from, pinning });
            from = from.part(0..0)?;
        }
        commands.push(self.finish(self.pinned(start)?, from)?);
        Ok(())
    }

    /// Brings a number back.
    fn resolve_tell(&mut self, source: Source) -> Result<Command> {
        let place = match source {
            Source::Buffer(buffer) => {
                let size = self.prepared.plan.buffers.get(buffer as usize).map_or(0, |buffer| buffer.dtype.size());
                self.place(buffer)?.part(0..size)?
            }
            Source::Scratch => {
                let scratch = self.room.scratch.place();
                scratch.ok_or_else(|| Error::internal("a count without scratch memory"))?.part(0..size_of::<i64>())?
            }
        };
        self.tell(place)
    }

    /// Brings a number back from that place.
    ///
    /// # Errors
    /// `Internal` where it is too long for one.
    pub fn tell(&self, place: Place) -> Result<Command> {
        if place.len() > NUMBER.len() {
            return Err(Error::internal(format!("a number of {} bytes", place.len())));
        }
        self.finish(self.room.told.argument(NUMBER.start)?, place)
    }

    /// Copies to pinned memory, and tells the host the error flag, and that all work so far is done.
    fn finish(&self, to: Argument, from: Place) -> Result<Command> {
        let len = from.len();
        let control = [Argument::Place(self.room.control()), self.room.told.argument(0)?];
        let arguments = [to, Argument::Place(from), Argument::I64(len as i64)].into_iter().chain(control).collect();
        Ok(self.service(&self.prepared.actions.finish, copy_grid(len), arguments))
    }

    fn service(&self, function: &Function, grid: Grid, arguments: Vec<Argument>) -> Command {
        Command::Launch { function: function.clone(), grid, arguments }
    }

    /// Pinned memory as the device sees it.
    fn pinned(&self, start: usize) -> Result<Argument> {
        Ok(Argument::U64(self.room.pinned.address(start)?))
    }

    /// A product of cuBLASLt's, and what is done with its result.
    fn resolve_product(&mut self, product: &LibraryProduct, scratch: Place, commands: &mut Vec<Command>) -> Result<()> {
        let call = product.call(|buffer| self.place(buffer), scratch)?;
        let result = product.scratch.result(scratch)?.map(|place| (product.out.buffer, place));
        commands.push(Command::Product(call));
        let scratch = product.scratch.epilogue(scratch)?;
        for launched in &product.epilogue {
            commands.extend(self.resolve_launch(launched, Some(scratch), result)?);
        }
        Ok(())
    }

    /// `None` for a launch without blocks.
    ///
    /// `result`: a buffer that lies there, in the scratch memory.
    fn resolve_launch(
        &mut self,
        launched: &Launched,
        scratch: Option<Place>,
        result: Option<(BufferId, Place)>,
    ) -> Result<Option<Command>> {
        let filled = fill(launched, &mut Resolving { walk: self, scratch, result })?;
        let function = launched.function.clone();
        Ok(filled.map(|(grid, arguments)| Command::Launch { function, grid, arguments }))
    }

    /// The memory of a buffer; one whose size had to wait gets its memory now, or more of it.
    pub fn place(&mut self, buffer: u32) -> Result<Place> {
        if !self.frame.waits.get(buffer as usize).is_some_and(|waits| *waits) {
            let place = self.frame.places.get(buffer as usize).copied().flatten();
            return place.ok_or_else(|| Error::internal(format!("buffer {buffer} has no memory when a step uses it")));
        }
        let (plan, device) = (&self.prepared.plan, &self.prepared.device);
        let bytes = arena::bytes(plan, buffer as usize, &self.symbols)?
            .ok_or_else(|| Error::internal(format!("the size of buffer {buffer} is not known when a step uses it")))?;
        let what = || format!("{bytes} bytes of {:?} whose size depends on data", plan.name);
        let place = self.room.late.entry(buffer).or_default().at_least(bytes, device, what)?;
        place.part(0..bytes)
    }
}

/// A call's launches.
struct Resolving<'a, 'w> {
    walk: &'a mut Walk<'w>,
    scratch: Option<Place>,
    result: Option<(BufferId, Place)>,
}

impl Operands for Resolving<'_, '_> {
    fn plan(&self) -> &Plan {
        &self.walk.prepared.plan
    }

    fn device(&self) -> &Device {
        self.walk.prepared.device.device()
    }

    fn place(&mut self, buffer: BufferId) -> Result<Place> {
        match self.result {
            Some((id, place)) if id == buffer => Ok(place),
            _ => self.walk.place(buffer),
        }
    }

    fn value(&self, expr: &Expr) -> Result<i64> {
        self.walk.eval(expr)
    }

    fn symbol(&self, symbol: u32) -> Result<i64> {
        let value = self.walk.symbols.get(symbol as usize).copied().flatten();
        value.ok_or_else(|| Error::internal(format!("symbol {symbol} is not known")))
    }

    fn scratch(&self) -> Result<Place> {
        self.scratch.ok_or_else(|| Error::internal("no scratch memory"))
    }

    fn flag(&self) -> Result<Place> {
        self.walk.room.flag()
    }

    fn random(&self) -> Result<Place> {
        let range = self.walk.frame.slots.random().ok_or_else(|| Error::internal("no random state"))?;
        self.walk.values(range)
    }
}
