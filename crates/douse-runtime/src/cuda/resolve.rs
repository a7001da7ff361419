//! From work as the method has it to work as a call does it: sizes and places filled in.

use douse_core::sym::Expr;
use douse_core::{Error, Result};
use douse_cuda::{Argument, Grid, Place};
use douse_program::arena;
use douse_program::target::COPY_THREADS;

use super::action::{Launched, Op, Segment};
use super::command::Command;
use super::room::{FLAG, RANDOM};
use super::walk::Walk;

/// Bytes that a thread of a guarded copy moves at once.
const COPY_BYTES: usize = 16;
/// Blocks enough to fill any device.
const COPY_BLOCKS: usize = 1024;
/// So few bytes reach the host's memory sooner by a kernel than by the copy engine, which takes longer to start.
const FEW_BYTES: usize = 64 << 10;

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
                Op::Launches { scratch: None, .. } | Op::Upload | Op::Download | Op::Copy { .. } => {}
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
            Op::Upload => {
                let to = self.values(self.frame.slots.uploaded())?;
                commands.push(match to.len() {
                    few if few <= FEW_BYTES => self.copy(Argument::Place(to), self.pinned(0)?, few),
                    _ => Command::Upload { to, pinning: self.room.pinning },
                });
            }
            Op::Download => {
                let range = self.frame.slots.downloaded();
                let (start, pinning, from) = (range.start, self.room.pinning, self.values(range)?);
                commands.push(match from.len() {
                    few if few <= FEW_BYTES => self.copy(self.pinned(start)?, Argument::Place(from), few),
                    _ => Command::Download { start, from, pinning },
                });
            }
            Op::Launches { launches, scratch, .. } => {
                let scratch = scratch.as_ref().map(|bytes| self.scratch(bytes)).transpose()?;
                for launched in launches {
                    commands.extend(self.resolve_launch(launched, scratch)?);
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
                        let flag = Argument::Place(self.control(FLAG)?);
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

    /// A copy by a kernel.
    fn copy(&self, to: Argument, from: Argument, len: usize) -> Command {
        let function = self.prepared.actions.copy.clone();
        Command::Launch { function, grid: copy_grid(len), arguments: vec![to, from, Argument::I64(len as i64)] }
    }

    /// Pinned memory as the device sees it.
    fn pinned(&self, start: usize) -> Result<Argument> {
        Ok(Argument::U64(self.room.pinned.address(start)?))
    }

    /// `None` for a launch without blocks.
    fn resolve_launch(&mut self, launched: &Launched, scratch: Option<Place>) -> Result<Option<Command>> {
        let Launched { function, launch, buffers } = launched;
        let mut blocks = [0; 3];
        for (blocks, size) in blocks.iter_mut().zip(&launch.grid) {
            let size = self.eval(size)?;
            *blocks = u32::try_from(size)
                .map_err(|_| Error::not_supported(format!("{}: a grid of {size} blocks", launch.function)))?;
        }
        if blocks.contains(&0) {
            return Ok(None);
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
        if launch.flag || launch.guard {
            arguments.push(Argument::Place(self.control(FLAG)?));
        }
        if launch.random {
            arguments.push(Argument::Place(self.control(RANDOM)?));
        }
        let grid = Grid { blocks, threads: launch.block, shared: launch.shared };
        Ok(Some(Command::Launch { function: function.clone(), grid, arguments }))
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
