//! Where everything lies during calls of one shape.

use douse_core::{Error, Result};
use douse_cuda::{Place, Stream};
use douse_program::arena::{self, Layout};
use douse_program::plan::{BufferId, BufferKind, InputKind, OutputKind, Plan};

use super::executor::Prepared;
use super::room::{Given, Memory, Slots, Way};
use super::state::DeviceState;
use super::strided::Strided;
use super::values::Shape;
use crate::symbols::eval;

/// The frames of the last few shapes, so that a caller who alternates between them does not lay anything out again.
#[derive(Debug, Default)]
pub(super) struct Frames {
    /// The least recently used first.
    all: Vec<Frame>,
    made: u64,
}

/// How many frames are kept.
const KEPT: usize = 16;

/// Places of buffers.
#[derive(Debug)]
pub(super) struct Frame {
    made_for: MadeFor,
    /// No two frames of a method have the same.
    pub number: u64,
    pub slots: Slots,
    /// By buffer.
    pub places: Vec<Option<Place>>,
    /// Buffers whose size has to be found out during the call.
    pub waits: Vec<bool>,
    /// Where the session's state lies, and what the caller has on the device: places that another call may have elsewhere.
    pub bound: Vec<Place>,
    /// Inputs that the device brings into the program's layout.
    pub strided: Vec<(BufferId, Strided)>,
    /// The last kernel of a call tells the host that it is done: something comes back, be it the error flag.
    pub tells: bool,
    /// Nothing goes to the device or comes back: a call's work is on the device alone.
    pub stays: bool,
    /// How the inputs come to the device.
    pub bindings: Bindings,
    /// Of outputs, by number, where it is known before the call.
    pub shapes: Vec<Option<Shape>>,
}

/// How the tensors and numbers that a call was given came to the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bindings {
    /// They lay there, and were used where they lay.
    pub in_place: usize,
    /// They were copied to the device.
    pub copied: usize,
    /// The device brought them into the program's layout.
    pub rearranged: usize,
}

impl Bindings {
    fn of(in_place: usize, inputs: &[Given]) -> Bindings {
        let mut bindings = Bindings { in_place, ..Bindings::default() };
        for (_, _, way) in inputs {
            *match way {
                Way::Copied | Way::Written => &mut bindings.copied,
                Way::Rearranged(_) | Way::OnDevice => &mut bindings.rearranged,
            } += 1;
        }
        bindings
    }
}

#[derive(Debug)]
struct MadeFor {
    symbols: Vec<Option<i64>>,
    /// [`Memory::laid`] then.
    laid: u64,
    /// Buffers that are the caller's.
    direct: Vec<BufferId>,
}

/// What a call has where the frame does not decide.
pub(super) struct Callers<'a> {
    /// Buffers that are the caller's.
    pub direct: Vec<(BufferId, Place)>,
    /// Inputs in other layouts, by number.
    pub strided: &'a [Option<Strided>],
}

impl Frame {
    fn is_for(&self, prepared: &Prepared, symbols: &[Option<i64>], callers: &Callers<'_>, laid: u64) -> bool {
        let given = strided(&prepared.plan, callers.strided);
        self.made_for.laid == laid
            && self.made_for.symbols == symbols
            && self.made_for.direct.iter().eq(callers.direct.iter().map(|(buffer, _)| buffer))
            && given.clone().count() == self.strided.len()
            && given.zip(&self.strided).all(|((a, x), (b, y))| a == *b && x.is_like(y))
    }

    /// Fills in what another call may have elsewhere.
    fn bind(&mut self, prepared: &Prepared, state: &mut DeviceState, callers: &Callers<'_>) -> Result<()> {
        self.bound.clear();
        state.own_all(&prepared.states, |id, place| {
            if let Some(slot) = self.places.get_mut(id as usize) {
                *slot = Some(place);
            }
            self.bound.push(place);
        })?;
        for (buffer, given) in &callers.direct {
            let at = *buffer as usize;
            if let (Some(place), Some(waits)) = (self.places.get_mut(at), self.waits.get_mut(at)) {
                (*place, *waits) = (Some(*given), false);
            }
            self.bound.push(*given);
        }
        for ((_, mine), (_, given)) in self.strided.iter_mut().zip(strided(&prepared.plan, callers.strided)) {
            *mine = *given;
            self.bound.extend(given.place);
        }
        Ok(())
    }
}

/// The buffers of inputs in other layouts.
fn strided<'a>(
    plan: &'a Plan,
    given: &'a [Option<Strided>],
) -> impl Iterator<Item = (BufferId, &'a Strided)> + Clone + 'a {
    plan.inputs.iter().zip(given).filter_map(|(input, strided)| match (&input.kind, strided) {
        (InputKind::Tensor { buffer, .. }, Some(strided)) => Some((*buffer, strided)),
        _ => None,
    })
}

impl Frames {
    /// The frame of a call on that stream: room for it, and every place that is known before it begins.
    ///
    /// # Errors
    /// `MemoryAllocationFailed` with what did not fit.
    pub fn frame(
        &mut self,
        prepared: &Prepared,
        room: &mut Memory,
        state: &mut DeviceState,
        symbols: &[Option<i64>],
        callers: &Callers<'_>,
        stream: &Stream,
    ) -> Result<&Frame> {
        let laid = room.laid();
        match self.all.iter().position(|frame| frame.is_for(prepared, symbols, callers, laid)) {
            Some(at) if at + 1 == self.all.len() => {}
            Some(at) => {
                let frame = self.all.remove(at);
                self.all.push(frame);
            }
            None => {
                self.made += 1;
                let frame = make(prepared, room, symbols, callers, stream, self.made)?;
                // What was laid out before memory moved is of no use.
                self.all.retain(|frame| frame.made_for.laid == room.laid());
                if self.all.len() >= KEPT {
                    self.all.remove(0);
                }
                self.all.push(frame);
            }
        }
        let frame = self.all.last_mut().ok_or_else(|| Error::internal("a frame that is not there"))?;
        frame.bind(prepared, state, callers)?;
        Ok(frame)
    }
}

fn make(
    prepared: &Prepared,
    room: &mut Memory,
    symbols: &[Option<i64>],
    callers: &Callers<'_>,
    stream: &Stream,
    number: u64,
) -> Result<Frame> {
    let (plan, name) = (&prepared.plan, &prepared.plan.name);
    let mut layout = Layout::default();
    layout.update(plan, &prepared.lives, symbols)?;
    let (slots, bindings) = slots(prepared, symbols, callers)?;
    let (values, arena) = room.prepare(&prepared.device, &slots, layout.total, name)?;
    let (mut places, mut waits) = (prepared.constants.clone(), vec![false; plan.buffers.len()]);
    for (id, ((place, waits), buffer)) in places.iter_mut().zip(&mut waits).zip(&plan.buffers).enumerate() {
        match &buffer.kind {
            BufferKind::Constant(_) | BufferKind::State { .. } => {}
            BufferKind::Input(_) | BufferKind::Output(_) => {
                let range = slots.get(id as BufferId);
                *place = range.map(|range| values.part(range)).transpose()?;
                *waits = place.is_none() && matches!(buffer.kind, BufferKind::Output(_));
            }
            BufferKind::Temporary => {
                let range = layout.places.get(id).cloned().flatten();
                *place = range.map(|range| arena.part(range)).transpose()?;
                *waits = place.is_none();
            }
        }
    }
    // One copy brings all outputs back: what lies between them, or behind one that a call finds to be smaller, is never read, but it
    // is copied.
    let unsure = plan.buffers.iter().enumerate().filter(|(_, buffer)| {
        matches!(buffer.kind, BufferKind::Output(_)) && eval(&buffer.elements, symbols).is_none()
    });
    let unsure = unsure.filter_map(|(id, _)| slots.get(id as BufferId));
    for range in slots.gaps().into_iter().chain(unsure) {
        prepared.device.device().fill(values.part(range)?, 0, stream)?;
    }
    let tells = prepared.actions.raises || !slots.downloaded().is_empty();
    let strided: Vec<_> = strided(plan, callers.strided).map(|(buffer, strided)| (buffer, *strided)).collect();
    let all_there = bindings.copied == 0 && strided.iter().all(|(_, strided)| strided.place.is_some());
    let stays = !tells && all_there && slots.uploaded().is_empty();
    let direct = callers.direct.iter().map(|(buffer, _)| *buffer).collect();
    let shapes = plan.outputs.iter().map(|output| match &output.kind {
        OutputKind::Tensor { dtype, sizes, strides, .. } => Shape::new(sizes, strides, *dtype, symbols),
        _ => None,
    });
    let shapes = shapes.collect();
    let made_for = MadeFor { symbols: symbols.to_vec(), laid: room.laid(), direct };
    Ok(Frame { made_for, number, slots, places, waits, bound: Vec::new(), strided, tells, stays, bindings, shapes })
}

/// Where a call's inputs and outputs go, but for those that lie elsewhere. An output whose size has no bound gets memory when it is known.
fn slots(prepared: &Prepared, symbols: &[Option<i64>], callers: &Callers<'_>) -> Result<(Slots, Bindings)> {
    let plan = &prepared.plan;
    let elsewhere = |buffer: BufferId| callers.direct.iter().any(|(direct, _)| *direct == buffer);
    let (mut inputs, mut in_place): (Vec<Given>, usize) = (Vec::new(), 0);
    for (number, input) in plan.inputs.iter().enumerate() {
        let (buffer, written) = match &input.kind {
            InputKind::Tensor { buffer, written, .. } => (*buffer, *written),
            InputKind::Number { buffer, .. } => (*buffer, false),
            InputKind::Int | InputKind::Fixed(_) => continue,
        };
        if elsewhere(buffer) {
            in_place += 1;
            continue;
        }
        let bytes = arena::bytes(plan, buffer as usize, symbols)?;
        let bytes = bytes.ok_or_else(|| Error::internal(format!("the size of input {:?} is not known", input.name)))?;
        let way = match callers.strided.get(number) {
            _ if written => Way::Written,
            Some(Some(strided)) if strided.place.is_some() => Way::OnDevice,
            // The host's tensor is dense, so it has as many bytes.
            Some(Some(_)) => Way::Rearranged(bytes),
            _ => Way::Copied,
        };
        inputs.push((buffer, bytes, way));
    }
    let mut outputs = Vec::new();
    for (id, buffer) in plan.buffers.iter().enumerate() {
        if let (BufferKind::Output(_), Some(bytes)) = (&buffer.kind, arena::bytes(plan, id, symbols)?)
            && !elsewhere(id as BufferId)
        {
            outputs.push((id as BufferId, bytes));
        }
    }
    let slots = Slots::new(plan.buffers.len(), &inputs, &outputs, prepared.actions.draws);
    Ok((slots, Bindings::of(in_place, &inputs)))
}
