//! Where everything lies during calls of one shape.

use douse_core::{Error, Result};
use douse_cuda::{Place, Stream};
use douse_program::arena::{self, Layout};
use douse_program::plan::{BufferId, BufferKind, InputKind, Plan};

use super::executor::Prepared;
use super::room::{Memory, Slots};
use super::state::DeviceState;
use crate::symbols::eval;

/// Places of buffers. They are found anew only where sizes change or memory has moved.
#[derive(Debug, Default)]
pub(super) struct Frame {
    made_for: Option<MadeFor>,
    layout: Layout,
    pub slots: Slots,
    /// By buffer.
    pub places: Vec<Option<Place>>,
    /// Buffers whose size has to be found out during the call.
    pub waits: Vec<bool>,
    /// Where the session's state lies, and what the caller has on the device: places that another call may have elsewhere.
    pub bound: Vec<Place>,
}

#[derive(Debug, PartialEq)]
struct MadeFor {
    symbols: Vec<Option<i64>>,
    /// [`Memory::moves`] then.
    moves: u64,
    /// Buffers that are the caller's.
    direct: Vec<BufferId>,
}

impl Frame {
    /// Makes room for a call on that stream, and finds every place that is known before it begins.
    ///
    /// # Errors
    /// `MemoryAllocationFailed` with what did not fit.
    pub fn update(
        &mut self,
        prepared: &Prepared,
        room: &mut Memory,
        state: &mut DeviceState,
        symbols: &[Option<i64>],
        direct: &[(BufferId, Place)],
        stream: &Stream,
    ) -> Result<()> {
        let current = self.made_for.as_ref().is_some_and(|made| {
            let same = made.direct.iter().eq(direct.iter().map(|(buffer, _)| buffer));
            same && made.symbols == symbols && made.moves == room.moves()
        });
        if !current {
            self.made_for = None;
            self.layout.update(&prepared.plan, &prepared.lives, symbols)?;
            let direct: Vec<BufferId> = direct.iter().map(|(buffer, _)| *buffer).collect();
            self.slots = slots(&prepared.plan, symbols, &direct)?;
            let name = &prepared.plan.name;
            let (values, arena) = room.prepare(&prepared.device, &self.slots, self.layout.total, name)?;
            self.place_all(prepared, values, arena)?;
            // One copy brings all outputs back: what lies between them, or behind one that a call finds to be smaller, is never read, but it
            // is copied.
            let unsure = prepared.plan.buffers.iter().enumerate().filter(|(_, buffer)| {
                matches!(buffer.kind, BufferKind::Output(_)) && eval(&buffer.elements, symbols).is_none()
            });
            let unsure = unsure.filter_map(|(id, _)| self.slots.get(id as BufferId));
            for range in self.slots.gaps().into_iter().chain(unsure) {
                prepared.device.device().fill(values.part(range)?, 0, stream)?;
            }
            self.made_for = Some(MadeFor { symbols: symbols.to_vec(), moves: room.moves(), direct });
        }
        self.bound.clear();
        for (place, buffer) in self.places.iter_mut().zip(&prepared.plan.buffers) {
            if let BufferKind::State { name, .. } = &buffer.kind {
                *place = state.own(name)?;
                self.bound.extend(*place);
            }
        }
        for (buffer, given) in direct {
            if let (Some(place), Some(waits)) =
                (self.places.get_mut(*buffer as usize), self.waits.get_mut(*buffer as usize))
            {
                (*place, *waits) = (Some(*given), false);
            }
            self.bound.push(*given);
        }
        Ok(())
    }

    fn place_all(&mut self, prepared: &Prepared, values: Place, arena: Place) -> Result<()> {
        self.places.clone_from(&prepared.constants);
        self.waits = vec![false; self.places.len()];
        let all = self.places.iter_mut().zip(&mut self.waits).zip(&prepared.plan.buffers).enumerate();
        for (id, ((place, waits), buffer)) in all {
            match &buffer.kind {
                BufferKind::Constant(_) | BufferKind::State { .. } => {}
                BufferKind::Input(_) | BufferKind::Output(_) => {
                    *place = self.slots.get(id as BufferId).map(|range| values.part(range)).transpose()?;
                    *waits = place.is_none() && matches!(buffer.kind, BufferKind::Output(_));
                }
                BufferKind::Temporary => {
                    let range = self.layout.places.get(id).cloned().flatten();
                    *place = range.map(|range| arena.part(range)).transpose()?;
                    *waits = place.is_none();
                }
            }
        }
        Ok(())
    }
}

/// Where a call's inputs and outputs go, but for those that lie elsewhere. An output whose size has no bound gets memory when it is known.
fn slots(plan: &Plan, symbols: &[Option<i64>], elsewhere: &[BufferId]) -> Result<Slots> {
    let mut inputs = Vec::new();
    for input in &plan.inputs {
        let (buffer, written) = match &input.kind {
            InputKind::Tensor { buffer, written, .. } => (*buffer, *written),
            InputKind::Number { buffer, .. } => (*buffer, false),
            InputKind::Int | InputKind::Fixed(_) => continue,
        };
        if elsewhere.contains(&buffer) {
            continue;
        }
        let bytes = arena::bytes(plan, buffer as usize, symbols)?;
        let bytes = bytes.ok_or_else(|| Error::internal(format!("the size of input {:?} is not known", input.name)))?;
        inputs.push((buffer, bytes, written));
    }
    let mut outputs = Vec::new();
    for (id, buffer) in plan.buffers.iter().enumerate() {
        if let (BufferKind::Output(_), Some(bytes)) = (&buffer.kind, arena::bytes(plan, id, symbols)?)
            && !elsewhere.contains(&(id as BufferId))
        {
            outputs.push((id as BufferId, bytes));
        }
    }
    Ok(Slots::new(&inputs, &outputs))
}
