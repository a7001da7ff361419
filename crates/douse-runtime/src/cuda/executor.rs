//! A method on a device: what is prepared when it is loaded, and its calls.

use std::sync::Arc;

use douse_core::bytes::{Aligned, Bytes};
use douse_core::sym::Expr;
use douse_core::{Code, Error, Result, Scalar};
use douse_cpu::executor::number;
use douse_cpu::{InputValue, OutputValue};
use douse_cuda::{DeviceMemory, Module, Place};
use douse_program::arena::{self, Layout};
use douse_program::payload::Payload;
use douse_program::place::lifetimes;
use douse_program::plan::{BufferId, BufferKind, Data, InputKind, OutputKind, Plan};

use super::action::{Action, actions};
use super::code::choose;
use super::device::CudaDevice;
use super::room::{CONTROL, RANDOM, Room, Slots};
use super::state::DeviceState;
use super::walk::Walk;
use crate::rollback::LIMIT;
use crate::symbols::eval;

/// What is known of a method on a device before any call; shared by its clones.
pub(super) struct Prepared {
    pub plan: Arc<Plan>,
    pub device: CudaDevice,
    pub actions: Vec<Action>,
    /// By buffer, of those that are constants.
    constants: Vec<Option<Place>>,
    /// Keeps the constants.
    _memory: Vec<Arc<DeviceMemory>>,
    /// State before the first call.
    initial: Vec<(String, Bytes)>,
    lives: Vec<Option<(u32, u32)>>,
}

/// A method that is ready to run on a device. A clone shares its code and weights, and has memory of its own.
pub(crate) struct Executor {
    prepared: Arc<Prepared>,
    layout: Layout,
    room: Option<Room>,
}

impl Clone for Executor {
    fn clone(&self) -> Executor {
        Executor { prepared: self.prepared.clone(), layout: Layout::default(), room: None }
    }
}

/// Constants that stand in the plan are placed together, at multiples of this.
const CONSTANT_ALIGNMENT: usize = 256;

impl Executor {
    /// Loads the code that fits the device, and uploads the weights that are not there yet. `data` finds named data.
    ///
    /// # Errors
    /// `DelegateInvalidCompatibility` where no code fits, `MemoryAllocationFailed` with what did not fit the device,
    /// `InvalidProgram` where data has the wrong length or the code is not the plan's. Nothing stays on the device then.
    pub fn new(payload: &Payload, device: &CudaDevice, data: &dyn Fn(&str) -> Result<Bytes>) -> Result<Executor> {
        let plan = payload.plan.clone();
        let target = choose(payload, device)?;
        let load = |key: &String| {
            let module = device.device().load(&data(key)?);
            module.map_err(|mut error| {
                if error.code == Code::DelegateInvalidCompatibility {
                    // PTX of a newer NVRTC, or a cubin of a newer major version.
                    let version = device.device().driver().version();
                    error.message.push_str(&format!(
                        "; the driver supports CUDA {version}: update it, or lower with an NVRTC of that version"
                    ));
                }
                error.at(format!("the code for {} on {:?}", target.arch, device.device()))
            })
        };
        let modules = target.modules.iter().map(load).collect::<Result<Vec<Arc<Module>>>>()?;
        let actions = actions(&plan, target, &modules)?;
        let (constants, memory) = upload_constants(&plan, device, data)?;
        let mut initial = Vec::new();
        for (id, buffer) in plan.buffers.iter().enumerate() {
            if let BufferKind::State { name, initial: source } = &buffer.kind {
                let bytes = match source {
                    Data::Named(key) => data(key)?,
                    other => inline(other)?,
                };
                check_len(&plan, id, bytes.len(), name)?;
                initial.push((name.clone(), bytes));
            }
        }
        let lives = lifetimes(&plan);
        let device = device.clone();
        tracing::debug!(method = %plan.name, ?device, arch = %target.arch, "method loaded");
        let prepared = Prepared { plan, device, actions, constants, _memory: memory, initial, lives };
        Ok(Executor { prepared: Arc::new(prepared), layout: Layout::default(), room: None })
    }

    pub fn plan(&self) -> &Arc<Plan> {
        &self.prepared.plan
    }

    pub fn device(&self) -> &CudaDevice {
        &self.prepared.device
    }

    /// Names and bytes of the state before the first call.
    pub fn initial_state(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.prepared.initial.iter().map(|(name, bytes)| (name.as_str(), &**bytes))
    }

    /// Runs the plan once. `symbols` has the values of those that come from inputs. `at_risk` names the state that a call may have written
    /// when it fails: it is put back then, where it is small.
    ///
    /// # Errors
    /// What failed; a check's own message. Inputs are not written then. State is as before, or the message says what was touched.
    pub fn run(
        &mut self,
        state: &mut DeviceState,
        symbols: &[Option<i64>],
        mut inputs: Vec<InputValue<'_>>,
        (seed, call): (u64, u64),
        at_risk: &[String],
    ) -> Result<Vec<OutputValue>> {
        let prepared = self.prepared.clone();
        let (plan, device) = (&prepared.plan, &prepared.device);
        let mut symbols = symbols.to_vec();
        symbols.resize(plan.symbols.len(), None);
        let _current = device.device().enter()?;
        self.layout.update(plan, &prepared.lives, &symbols)?;
        let slots = slots(plan, &symbols)?;
        let room = match &mut self.room {
            Some(room) => room,
            none => none.insert(Room::new(device)?),
        };
        let (values, arena) = room.prepare(device, &slots, self.layout.total, &plan.name)?;
        let (places, waits) = prepared.places(state, &slots, values, &self.layout, arena)?;
        let snapshot = Snapshot::take(&prepared.initial, at_risk, state, room, device)?;
        let mut walk = Walk::new(&prepared, room, places, waits, symbols);
        let done = prepared
            .upload(&mut walk, &slots, &inputs, (seed, call))
            .and_then(|()| walk.actions(&prepared.actions))
            .and_then(|()| prepared.download(&mut walk, &slots, &inputs));
        let outputs = done.and_then(|()| prepared.collect(&mut walk, &slots, &mut inputs));
        let committed = walk.committed;
        outputs.map_err(|error| {
            // Pinned memory is used again by the next call: nothing may be under way.
            let settled = room.stream.synchronize();
            let restored = settled.and_then(|()| snapshot.put_back(room, device, committed));
            match restored {
                Ok(None) => error,
                Ok(Some(touched)) => Error::new(error.code, format!("{}; {touched}", error.message)),
                Err(more) => Error::new(error.code, format!("{}; then {more}", error.message)),
            }
        })
    }
}

/// Bytes of what stands in a plan.
fn inline(data: &Data) -> Result<Bytes> {
    match data {
        Data::Inline(bytes) => Ok(bytes.clone().into()),
        Data::Zeros(len) => Bytes::zeros(*len),
        Data::Named(key) => Err(Error::internal(format!("{key} does not stand in the plan"))),
    }
}

fn check_len(plan: &Plan, buffer: usize, len: usize, what: &str) -> Result<()> {
    match arena::bytes(plan, buffer, &[])? {
        Some(expected) if expected == len => Ok(()),
        expected => {
            let expected = expected.unwrap_or(0);
            Err(Error::invalid_program(format!("{what} has {len} bytes where the plan needs {expected}")))
        }
    }
}

/// Places of constants by buffer, and the memory that they are in.
type Constants = (Vec<Option<Place>>, Vec<Arc<DeviceMemory>>);

fn upload_constants(plan: &Plan, device: &CudaDevice, data: &dyn Fn(&str) -> Result<Bytes>) -> Result<Constants> {
    let (mut places, mut memory) = (vec![None; plan.buffers.len()], Vec::new());
    // Those that stand in the plan are small and many: they get one piece of memory.
    let (mut packed, mut inside) = (Vec::new(), Vec::new());
    for (id, buffer) in plan.buffers.iter().enumerate() {
        match &buffer.kind {
            BufferKind::Constant(Data::Named(key)) => {
                let weight = device.weight(key, || data(key))?;
                check_len(plan, id, weight.len(), key)?;
                if let Some(place) = places.get_mut(id) {
                    *place = Some(weight.all());
                }
                memory.push(weight);
            }
            BufferKind::Constant(source) => {
                let bytes = inline(source)?;
                check_len(plan, id, bytes.len(), "a constant")?;
                packed.resize(packed.len().next_multiple_of(CONSTANT_ALIGNMENT), 0);
                inside.push((id, packed.len()..packed.len() + bytes.len()));
                packed.extend_from_slice(&bytes);
            }
            _ => {}
        }
    }
    if !inside.is_empty() {
        let all = device.allocate(packed.len(), || format!("the constants of {:?}", plan.name))?;
        device.upload(&packed, all.all())?;
        for (id, range) in inside {
            if let Some(place) = places.get_mut(id) {
                *place = Some(all.part(range)?);
            }
        }
        memory.push(Arc::new(all));
    }
    Ok((places, memory))
}

/// Where a call's inputs and outputs go. An output whose size has no bound gets memory when it is known.
fn slots(plan: &Plan, symbols: &[Option<i64>]) -> Result<Slots> {
    let mut inputs = Vec::new();
    for input in &plan.inputs {
        let (InputKind::Tensor { buffer, .. } | InputKind::Number { buffer, .. }) = &input.kind else { continue };
        let bytes = arena::bytes(plan, *buffer as usize, symbols)?;
        let bytes = bytes.ok_or_else(|| Error::internal(format!("the size of input {:?} is not known", input.name)))?;
        inputs.push((*buffer, bytes));
    }
    let mut outputs = Vec::new();
    for (id, buffer) in plan.buffers.iter().enumerate() {
        if let (BufferKind::Output(_), Some(bytes)) = (&buffer.kind, arena::bytes(plan, id, symbols)?) {
            outputs.push((id as BufferId, bytes));
        }
    }
    Ok(Slots::new(&inputs, &outputs))
}

impl Prepared {
    /// Where each buffer lies, and which have to wait for their size.
    fn places(
        &self,
        state: &mut DeviceState,
        slots: &Slots,
        values: Place,
        layout: &Layout,
        arena: Place,
    ) -> Result<(Vec<Option<Place>>, Vec<bool>)> {
        let mut places = self.constants.clone();
        let mut waits = vec![false; places.len()];
        for (id, ((place, waits), buffer)) in places.iter_mut().zip(&mut waits).zip(&self.plan.buffers).enumerate() {
            match &buffer.kind {
                BufferKind::Constant(_) => {}
                BufferKind::Input(_) | BufferKind::Output(_) => {
                    *place = slots.get(id as BufferId).map(|range| values.part(range)).transpose()?;
                    *waits = place.is_none() && matches!(buffer.kind, BufferKind::Output(_));
                }
                BufferKind::State { name, .. } => *place = state.own(name)?,
                BufferKind::Temporary => {
                    let range = layout.places.get(id).cloned().flatten();
                    *place = range.map(|range| arena.part(range)).transpose()?;
                    *waits = place.is_none();
                }
            }
        }
        Ok((places, waits))
    }

    /// Puts the inputs and the control block onto the device.
    fn upload(
        &self,
        walk: &mut Walk<'_>,
        slots: &Slots,
        inputs: &[InputValue<'_>],
        (seed, call): (u64, u64),
    ) -> Result<()> {
        let room = &mut *walk.room;
        let mut control = [0; CONTROL.end];
        let random = [seed.to_le_bytes(), call.to_le_bytes()].concat();
        if let Some(place) = control.get_mut(RANDOM) {
            place.copy_from_slice(&random);
        }
        room.pinned.write(0, &control)?;
        if inputs.len() != self.plan.inputs.len() {
            return Err(Error::internal(format!("{} inputs for {}", inputs.len(), self.plan.inputs.len())));
        }
        for (input, value) in self.plan.inputs.iter().zip(inputs) {
            let (InputKind::Tensor { buffer, .. } | InputKind::Number { buffer, .. }) = &input.kind else { continue };
            let number;
            let bytes: &[u8] = match (value, &input.kind) {
                (InputValue::Tensor(bytes), _) => bytes,
                (InputValue::TensorMut(bytes), _) => bytes,
                (InputValue::Number(value), InputKind::Number { dtype, .. }) => {
                    number = number::write(*value, *dtype)?;
                    &number
                }
                _ => return Err(Error::internal(format!("input {:?} is no tensor", input.name))),
            };
            let len = slots.get(*buffer).map_or(0, |range| range.len());
            let bytes = bytes.get(..len).ok_or_else(|| {
                Error::invalid_argument(format!("input {:?} has {} bytes, expected {len}", input.name, bytes.len()))
            })?;
            match slots.staged(*buffer) {
                Some(start) => room.pinned.write(start, bytes)?,
                None => self.device.upload(bytes, walk.places.get(*buffer)?)?,
            }
        }
        let values = room.values.place().ok_or_else(|| Error::internal("no memory for inputs"))?;
        self.device.device().upload(&room.pinned, 0, values.part(0..slots.uploaded)?, &room.stream)
    }

    /// Reads back the flag, outputs and written inputs, and waits.
    fn download(&self, walk: &mut Walk<'_>, slots: &Slots, inputs: &[InputValue<'_>]) -> Result<()> {
        let mut wanted: Vec<BufferId> = Vec::new();
        for output in &self.plan.outputs {
            if let OutputKind::Tensor { buffer, .. } | OutputKind::Number { buffer, .. } = &output.kind {
                wanted.push(*buffer);
            }
        }
        for (input, value) in self.plan.inputs.iter().zip(inputs) {
            if let (InputKind::Tensor { buffer, .. }, InputValue::TensorMut(_)) = (&input.kind, value) {
                wanted.push(*buffer);
            }
        }
        wanted.sort_unstable();
        wanted.dedup();
        for buffer in wanted {
            if let Some(start) = slots.staged(buffer) {
                let place = walk.place(buffer)?;
                self.device.device().download(place, &walk.room.pinned, start, &walk.room.stream)?;
            }
        }
        walk.settle()
    }

    /// The outputs, after everything is done; written inputs get their bytes.
    fn collect(&self, walk: &mut Walk<'_>, slots: &Slots, inputs: &mut [InputValue<'_>]) -> Result<Vec<OutputValue>> {
        let mut outputs = Vec::with_capacity(self.plan.outputs.len());
        for output in &self.plan.outputs {
            let integer = |expr: &Expr| {
                eval(expr, &walk.symbols)
                    .ok_or_else(|| Error::internal(format!("output {:?} is not known", output.name)))
            };
            outputs.push(match &output.kind {
                OutputKind::Tensor { dtype, sizes, strides, buffer } => {
                    let sizes = sizes.iter().map(integer).collect::<Result<Vec<_>>>()?;
                    let strides = strides.iter().map(integer).collect::<Result<Vec<_>>>()?;
                    let elements = sizes.iter().try_fold(1i64, |n, size| n.checked_mul(*size));
                    let len = elements.and_then(|n| usize::try_from(n).ok()).and_then(|n| n.checked_mul(dtype.size()));
                    let len = len.ok_or_else(|| Error::internal(format!("output {:?} of {sizes:?}", output.name)))?;
                    let mut bytes = Aligned::zeros(len)?;
                    self.fetch(walk, slots, *buffer, &mut bytes)?;
                    OutputValue::Tensor { bytes, dtype: *dtype, sizes, strides }
                }
                OutputKind::Int(expr) => OutputValue::Number(Scalar::Int(integer(expr)?)),
                OutputKind::Bool(cond) => OutputValue::Number(Scalar::Bool(walk.holds(cond)?)),
                OutputKind::Number { dtype, buffer } => {
                    let mut bytes = Aligned::zeros(dtype.size())?;
                    self.fetch(walk, slots, *buffer, &mut bytes)?;
                    OutputValue::Number(number::from_bytes(&bytes, *dtype)?)
                }
                OutputKind::Fixed(fixed) => OutputValue::Fixed(fixed.clone()),
            });
        }
        for (input, value) in self.plan.inputs.iter().zip(inputs) {
            if let (InputKind::Tensor { buffer, .. }, InputValue::TensorMut(bytes)) = (&input.kind, value) {
                let len = slots.get(*buffer).map_or(0, |range| range.len());
                if let Some(bytes) = bytes.get_mut(..len) {
                    self.fetch(walk, slots, *buffer, bytes)?;
                }
            }
        }
        Ok(outputs)
    }

    /// The first bytes of a buffer: from pinned memory where they were downloaded, else from the device.
    fn fetch(&self, walk: &mut Walk<'_>, slots: &Slots, buffer: BufferId, bytes: &mut [u8]) -> Result<()> {
        match slots.staged(buffer) {
            Some(start) => walk.room.pinned.read(start, bytes),
            None => {
                let place = walk.place(buffer)?.part(0..bytes.len())?;
                self.device.download(place, bytes)
            }
        }
    }
}

/// Copies of the state that a failed call would leave changed, on the device.
struct Snapshot {
    copied: Vec<(Place, Place)>,
    /// What to say of the state that was not copied.
    touched: Option<String>,
}

impl Snapshot {
    fn take(
        all: &[(String, Bytes)],
        at_risk: &[String],
        state: &mut DeviceState,
        room: &mut Room,
        device: &CudaDevice,
    ) -> Result<Snapshot> {
        let mut snapshot = Snapshot { copied: Vec::new(), touched: None };
        let aligned = |name: &String| state.len(name).unwrap_or(0).next_multiple_of(CONSTANT_ALIGNMENT);
        let total: usize = at_risk.iter().map(aligned).sum();
        let copied = if total > LIMIT { &[][..] } else { at_risk };
        // A check cannot leave other state changed, but the device can fail at any step.
        let rest: Vec<&str> = all
            .iter()
            .map(|(name, _)| name.as_str())
            .filter(|name| copied.iter().all(|copied| copied != name))
            .collect();
        if !rest.is_empty() {
            snapshot.touched = Some(format!("the call may have changed the state {}", rest.join(", ")));
        }
        if copied.is_empty() {
            return Ok(snapshot);
        }
        let copies = room.snapshot.at_least(total, device, || "copies of state".to_owned())?;
        let mut start = 0;
        for name in at_risk {
            let Some(place) = state.own(name)? else { continue };
            let copy = copies.part(start..start + place.len())?;
            start += place.len().next_multiple_of(CONSTANT_ALIGNMENT);
            device.device().copy(place, copy, &room.stream)?;
            snapshot.copied.push((place, copy));
        }
        Ok(snapshot)
    }

    /// Puts back what was copied, and says what of the state stays changed, where a step that writes state was begun.
    fn put_back(&self, room: &Room, device: &CudaDevice, committed: bool) -> Result<Option<String>> {
        for (place, copy) in &self.copied {
            device.device().copy(*copy, *place, &room.stream)?;
        }
        room.stream.synchronize()?;
        Ok(self.touched.clone().filter(|_| committed))
    }
}
