//! Gives each buffer of a plan its memory for a call.

use douse_core::bytes::{Aligned, Bytes};
use douse_core::{Code, Error, Result};
use douse_program::plan::{BufferId, BufferKind, InputKind, Plan};

use super::{InputValue, State, number};
use crate::memory::{Memory, Owned, Region};
use douse_program::arena::{self, Layout};

pub(super) struct Binder<'a, 'm> {
    plan: &'a Plan,
    symbols: &'a [Option<i64>],
    pub memory: Memory<'m>,
    /// By buffer: memory that the call owns and may return.
    pub late: Vec<Option<Owned>>,
    /// By buffer: whether its size is not known yet.
    pub waits: Vec<bool>,
}

impl<'a, 'm> Binder<'a, 'm> {
    pub fn new(plan: &'a Plan, symbols: &'a [Option<i64>]) -> Binder<'a, 'm> {
        let buffers = plan.buffers.len();
        Binder { plan, symbols, memory: Memory::new(buffers), late: vec![None; buffers], waits: vec![false; buffers] }
    }

    fn expected(&self, id: usize) -> Result<usize> {
        let bytes = arena::bytes(self.plan, id, self.symbols)?;
        bytes.ok_or_else(|| Error::internal(format!("the size of buffer {id} is not known when a call begins")))
    }

    pub fn inputs(&mut self, values: Vec<InputValue<'m>>) -> Result<()> {
        let (given, wanted) = (values.len(), self.plan.inputs.len());
        if given != wanted {
            return Err(Error::invalid_argument(format!("{given} inputs are given where the program takes {wanted}")));
        }
        for (input, value) in self.plan.inputs.iter().zip(values) {
            let name = &input.name;
            let (buffer, region) = match (&input.kind, value) {
                (InputKind::Tensor { buffer, written: true, .. }, InputValue::TensorMut(bytes)) => {
                    (*buffer, Region::writable(bytes))
                }
                (InputKind::Tensor { buffer, written: false, .. }, InputValue::TensorMut(bytes)) => {
                    (*buffer, Region::read_only(bytes))
                }
                (InputKind::Tensor { buffer, written: false, .. }, InputValue::Tensor(bytes)) => {
                    (*buffer, Region::read_only(bytes))
                }
                (InputKind::Number { dtype, buffer }, InputValue::Number(value)) => {
                    (*buffer, self.memory.own(number::write(value, *dtype)?).1)
                }
                (InputKind::Int | InputKind::Fixed(_), _) => continue,
                (InputKind::Tensor { written: true, .. }, InputValue::Tensor(_)) => {
                    let message = format!("input {name:?} is written by the program but may only be read");
                    return Err(Error::invalid_argument(message));
                }
                (InputKind::Tensor { .. }, _) => {
                    return Err(Error::invalid_argument(format!("input {name:?} should be a tensor")));
                }
                (InputKind::Number { .. }, _) => {
                    return Err(Error::invalid_argument(format!("input {name:?} should be a number")));
                }
            };
            let expected = self.expected(buffer as usize)?;
            if region.len() < expected {
                let len = region.len();
                return Err(Error::invalid_argument(format!("input {name:?} has {len} bytes, expected {expected}")));
            }
            self.memory.set(buffer, region);
        }
        Ok(())
    }

    pub fn constants(&mut self, constants: &'m [Option<Bytes>]) -> Result<()> {
        for (id, bytes) in constants.iter().enumerate() {
            if let Some(bytes) = bytes {
                self.memory.set(id as BufferId, Region::read_only(bytes));
            }
        }
        Ok(())
    }

    pub fn state(&mut self, state: &'m mut State) -> Result<()> {
        let mut regions: Vec<(&str, Region<'m>)> = Vec::with_capacity(state.buffers.len());
        for (name, bytes) in &mut state.buffers {
            regions.push((name, Region::writable(bytes)));
        }
        for (id, buffer) in self.plan.buffers.iter().enumerate() {
            let BufferKind::State { name, .. } = &buffer.kind else { continue };
            let expected = self.expected(id)?;
            match regions.iter().find(|(of, _)| of == name) {
                Some((_, region)) if region.len() == expected => self.memory.set(id as BufferId, *region),
                Some((_, region)) => {
                    let message = format!("state {name:?} has {} bytes where {expected} are needed", region.len());
                    return Err(Error::new(Code::InvalidState, message));
                }
                None => return Err(Error::new(Code::InvalidState, format!("there is no state {name:?}"))),
            }
        }
        Ok(())
    }

    /// Memory of outputs whose size, or a bound of it, is known.
    pub fn outputs(&mut self) -> Result<()> {
        for (id, buffer) in self.plan.buffers.iter().enumerate() {
            if !matches!(buffer.kind, BufferKind::Output(_)) {
                continue;
            }
            match arena::bytes(self.plan, id, self.symbols)? {
                Some(bytes) => {
                    let (owned, region) = self.memory.own(Aligned::zeros(bytes)?);
                    self.memory.set(id as BufferId, region);
                    self.late[id] = Some(owned);
                }
                None => self.waits[id] = true,
            }
        }
        Ok(())
    }

    pub fn temporaries(&mut self, arena: Region<'m>, layout: &Layout) -> Result<()> {
        for (id, buffer) in self.plan.buffers.iter().enumerate() {
            if !matches!(buffer.kind, BufferKind::Temporary) {
                continue;
            }
            match layout.places.get(id).cloned().flatten() {
                Some(place) => {
                    let region = arena.part(place).map_err(|_| Error::internal("the arena is too small"))?;
                    self.memory.set(id as BufferId, region);
                }
                None => self.waits[id] = true,
            }
        }
        Ok(())
    }
}
