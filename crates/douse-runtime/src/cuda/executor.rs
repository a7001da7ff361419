//! A method on a device: what is prepared when it is loaded, and its calls.

use std::sync::Arc;

use douse_core::bytes::{Aligned, Bytes};
use douse_core::sym::Expr;
use douse_core::{Code, Error, Result, Scalar};
use douse_cpu::executor::number;
use douse_cpu::{InputValue, OutputValue};
use douse_cuda::{DeviceMemory, Event, Module, Place, Stream};
use douse_program::arena;
use douse_program::payload::Payload;
use douse_program::place::lifetimes;
use douse_program::plan::{BufferId, BufferKind, Data, InputKind, OutputKind, Plan};

use super::action::{Actions, FunctionMeta, actions};
use super::code::choose;
use super::compare::{self, Copies};
use super::device::CudaDevice;
use super::frame::Frame;
use super::graph::{CudaGraph, CudaGraphReport, Graphs, Shelf};
use super::outputs::{Output, Pool, Taken, direct};
use super::room::{CONTROL, Growing, RANDOM, Room};
use super::state::DeviceState;
use super::tensor::DeviceTensor;
use super::walk::Walk;
use crate::rollback::LIMIT;
use crate::symbols::{counts, eval};

/// What is known of a method on a device before any call; shared by its clones.
pub(super) struct Prepared {
    pub plan: Arc<Plan>,
    pub device: CudaDevice,
    pub actions: Actions,
    /// By buffer, of those that are constants.
    pub constants: Vec<Option<Place>>,
    /// Keeps the constants.
    _memory: Vec<Arc<DeviceMemory>>,
    /// State before the first call.
    initial: Vec<(String, Bytes)>,
    /// Of temporaries, by buffer: the first and last step that uses each.
    pub lives: Vec<Option<(u32, u32)>>,
}

/// A method that is ready to run on a device. A clone shares its code and weights, and has memory and graphs of its own.
pub(crate) struct Executor {
    prepared: Arc<Prepared>,
    // Graphs go before the memory that they use.
    graphs: Option<Graphs>,
    frame: Frame,
    room: Option<Room>,
    outputs: Pool,
    /// The caller's, in place of the room's own.
    stream: Option<Arc<Stream>>,
    timer: Option<Timer>,
}

/// Measures how long the device works on a call.
struct Timer {
    begin: Event,
    end: Event,
    milliseconds: Option<f32>,
}

impl Clone for Executor {
    fn clone(&self) -> Executor {
        let graphs = self.graphs.as_ref().map(Graphs::fresh);
        Executor::with(self.prepared.clone(), graphs)
    }
}

/// What a call is given.
pub(crate) struct Call<'a> {
    /// Values of the symbols that come from inputs.
    pub symbols: &'a [Option<i64>],
    /// The session's seed, and the call's number in it.
    pub random: (u64, u64),
    /// The state that a call may have written when a check of it fails: it is put back then, where it is small.
    pub at_risk: &'a [String],
    /// Inputs that are on the device, by number.
    pub places: &'a [Option<Place>],
    /// Tensors are returned on the device.
    pub outputs_on_device: bool,
}

/// Constants that stand in the plan are placed together, at multiples of this.
const CONSTANT_ALIGNMENT: usize = 256;

impl Executor {
    /// Loads the code that fits the device, and uploads the weights that are not there yet. `data` finds named data.
    ///
    /// # Errors
    /// `DelegateInvalidCompatibility` where no code fits, `MemoryAllocationFailed` with what did not fit the device,
    /// `InvalidProgram` where data has the wrong length or the code is not the plan's. Nothing stays on the device then.
    pub fn new(
        payload: &Payload,
        device: &CudaDevice,
        graphs: Option<&CudaGraph>,
        data: &dyn Fn(&str) -> Result<Bytes>,
    ) -> Result<Executor> {
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
        let graphs = graphs.map(Graphs::new);
        Ok(Executor::with(Arc::new(prepared), graphs))
    }

    fn with(prepared: Arc<Prepared>, graphs: Option<Graphs>) -> Executor {
        let (frame, outputs) = (Frame::default(), Pool::default());
        Executor { prepared, graphs, frame, room: None, outputs, stream: None, timer: None }
    }

    /// Runs later calls on a caller's stream; `None`: on one of its own.
    ///
    /// # Errors
    /// `InvalidArgument` for another device's stream.
    pub fn set_stream(&mut self, stream: Option<Arc<Stream>>) -> Result<()> {
        if stream.as_ref().is_some_and(|stream| !stream.device().same(self.prepared.device.device())) {
            return Err(Error::invalid_argument("the stream is another device's"));
        }
        self.stream = stream;
        Ok(())
    }

    pub fn plan(&self) -> &Arc<Plan> {
        &self.prepared.plan
    }

    pub fn device(&self) -> &CudaDevice {
        &self.prepared.device
    }

    /// The caller's stream, where calls run on one.
    pub fn stream(&self) -> Option<&Stream> {
        self.stream.as_deref()
    }

    /// Names and bytes of the state before the first call.
    pub fn initial_state(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.prepared.initial.iter().map(|(name, bytes)| (name.as_str(), &**bytes))
    }

    /// Times later calls on the device.
    ///
    /// # Errors
    /// What the driver says.
    pub fn time_calls(&mut self) -> Result<()> {
        let device = self.prepared.device.device();
        self.timer = Some(Timer { begin: device.event(true)?, end: device.event(true)?, milliseconds: None });
        Ok(())
    }

    /// How long the device took for the last call that was timed, from its first copy to its last.
    pub fn milliseconds(&self) -> Option<f32> {
        self.timer.as_ref().and_then(|timer| timer.milliseconds)
    }

    /// The method's functions, each once, as they are launched first.
    ///
    /// # Errors
    /// What the driver says.
    pub fn functions(&self) -> Result<Vec<FunctionMeta>> {
        self.prepared.actions.functions()
    }

    /// What became of the method's graphs; `None` where it was loaded without.
    pub fn graph_report(&self) -> Option<CudaGraphReport> {
        self.graphs.as_ref().map(Graphs::report)
    }

    /// Runs the plan once.
    ///
    /// # Errors
    /// What failed; a check's own message. Inputs are not written then. State is as before, or the message says what was touched.
    pub fn run(
        &mut self,
        state: &mut DeviceState,
        call: &Call<'_>,
        mut inputs: Vec<InputValue<'_>>,
    ) -> Result<Vec<Output>> {
        let Executor { prepared, graphs, frame, room, outputs, stream, timer } = self;
        let prepared = &**prepared;
        let _current = prepared.device.device().enter()?;
        let room = match room {
            Some(room) => room,
            none => none.insert(Room::new(&prepared.device)?),
        };
        let mut run =
            Run { prepared, frame, room, pool: outputs, stream: stream.as_deref(), timer: timer.as_mut(), call };
        let Some(graphs) = graphs else { return Ok(run.once(None, state, &mut inputs)?.outputs) };
        let compares = graphs.compares();
        let Actions { segments, set_condition, .. } = &prepared.actions;
        let shelf = graphs.begin(&prepared.plan, call.symbols, *segments, set_condition.as_ref())?;
        let plain = match &shelf {
            Some(_) if compares => {
                let mut copies = Copies::of(&inputs);
                let mut copied = state.clone();
                let outputs = run.once(None, &mut copied, &mut copies.inputs(&inputs))?.outputs;
                Some((outputs, copies, copied))
            }
            _ => None,
        };
        let ran = run.once(shelf, state, &mut inputs);
        graphs.end(ran.as_ref().map_or(0, |ran| ran.host_reads));
        let outputs = ran?.outputs;
        if let Some((expected, copies, copied)) = plain {
            compare::outputs(&prepared.plan, &expected, &outputs)?;
            compare::inputs(&prepared.plan, &copies, &inputs)?;
            compare::states(&copied, state)?;
        }
        Ok(outputs)
    }
}

/// What a call gave.
struct Ran {
    outputs: Vec<Output>,
    host_reads: u64,
}

/// What a call runs with.
struct Run<'a> {
    prepared: &'a Prepared,
    frame: &'a mut Frame,
    room: &'a mut Room,
    pool: &'a mut Pool,
    stream: Option<&'a Stream>,
    timer: Option<&'a mut Timer>,
    call: &'a Call<'a>,
}

impl Run<'_> {
    /// Runs the plan once, by graphs where there are any.
    fn once(
        &mut self,
        graphs: Option<Shelf<'_>>,
        state: &mut DeviceState,
        inputs: &mut [InputValue<'_>],
    ) -> Result<Ran> {
        let Run { prepared, frame, room, pool, stream, timer, call } = self;
        let (plan, device) = (&prepared.plan, &prepared.device);
        let mut symbols = call.symbols.to_vec();
        symbols.resize(plan.symbols.len(), None);
        let taken = if call.outputs_on_device { pool.take(plan, &symbols, device)? } else { Taken::new() };
        let (memory, own) = (&mut room.memory, &room.own);
        let stream = stream.unwrap_or(own);
        frame.update(prepared, memory, state, &symbols, &direct(plan, call.places, &taken), stream)?;
        let snapshot = Snapshot::take(&prepared.initial, call.at_risk, state, &mut room.snapshot, device, stream)?;
        let (committed, refused, host_reads) = (false, false, 0);
        let mut walk = Walk { prepared, room: memory, stream, frame, symbols, graphs, committed, refused, host_reads };
        let done = prepared
            .upload(&mut walk, inputs, call.random)
            .and_then(|()| timer.as_ref().map_or(Ok(()), |timer| timer.begin.record(stream)))
            .and_then(|()| walk.actions(&prepared.actions.all))
            .and_then(|()| timer.as_ref().map_or(Ok(()), |timer| timer.end.record(stream)))
            .and_then(|()| walk.settle());
        let outputs = done.and_then(|()| prepared.collect(&mut walk, inputs, call.outputs_on_device, &taken));
        let Walk { committed, refused, host_reads, .. } = walk;
        if let (Some(timer), Ok(_)) = (timer, &outputs) {
            timer.milliseconds = Some(timer.end.milliseconds_since(&timer.begin)?);
        }
        let error = match outputs {
            Ok(outputs) => return Ok(Ran { outputs, host_reads }),
            Err(error) => error,
        };
        // Pinned memory is used again by the next call: nothing may be under way.
        let settled = stream.synchronize();
        let restored = settled.and_then(|()| snapshot.put_back(stream, device, committed, refused));
        Err(match restored {
            Ok(None) => error,
            Ok(Some(touched)) => Error::new(error.code, format!("{}; {touched}", error.message)),
            Err(more) => Error::new(error.code, format!("{}; then {more}", error.message)),
        })
    }
}

/// Bytes of what stands in a plan.
pub(super) fn inline(data: &Data) -> Result<Bytes> {
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

impl Prepared {
    /// Puts the inputs and the control block where the call's first segment takes them from: pinned memory, but for large inputs, which go to
    /// the device right away.
    fn upload(&self, walk: &mut Walk<'_>, inputs: &[InputValue<'_>], (seed, call): (u64, u64)) -> Result<()> {
        let (slots, room) = (&walk.frame.slots, &mut *walk.room);
        let mut control = [0; CONTROL];
        let random = [seed.to_le_bytes(), call.to_le_bytes()].concat();
        if let Some(place) = control.get_mut(RANDOM) {
            place.copy_from_slice(&random);
        }
        room.pinned.write(slots.control(0..CONTROL).start, &control)?;
        if inputs.len() != self.plan.inputs.len() {
            return Err(Error::internal(format!("{} inputs for {}", inputs.len(), self.plan.inputs.len())));
        }
        for (input, value) in self.plan.inputs.iter().zip(inputs) {
            let (InputKind::Tensor { buffer, .. } | InputKind::Number { buffer, .. }) = &input.kind else { continue };
            let Some(len) = slots.get(*buffer).map(|range| range.len()) else { continue };
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
            let bytes = bytes.get(..len).ok_or_else(|| {
                Error::invalid_argument(format!("input {:?} has {} bytes, expected {len}", input.name, bytes.len()))
            })?;
            match slots.staged(*buffer) {
                Some(start) => room.pinned.write(start, bytes)?,
                None => {
                    let place = walk.frame.places.get(*buffer as usize).copied().flatten();
                    let place =
                        place.ok_or_else(|| Error::internal(format!("no memory for input {:?}", input.name)))?;
                    self.device.upload(bytes, place)?;
                }
            }
        }
        Ok(())
    }

    /// The outputs, after everything is done; written inputs get their bytes.
    fn collect(
        &self,
        walk: &mut Walk<'_>,
        inputs: &mut [InputValue<'_>],
        on_device: bool,
        taken: &Taken,
    ) -> Result<Vec<Output>> {
        let mut outputs = Vec::with_capacity(self.plan.outputs.len());
        for output in &self.plan.outputs {
            let integer = |expr: &Expr| {
                eval(expr, &walk.symbols)
                    .ok_or_else(|| Error::internal(format!("output {:?} is not known", output.name)))
            };
            outputs.push(Output::Host(match &output.kind {
                OutputKind::Tensor { dtype, sizes, strides, buffer } => {
                    let sizes = sizes.iter().map(integer).collect::<Result<Vec<_>>>()?;
                    let strides = strides.iter().map(integer).collect::<Result<Vec<_>>>()?;
                    let elements = sizes.iter().try_fold(1i64, |n, size| n.checked_mul(*size));
                    let len = elements.and_then(|n| usize::try_from(n).ok()).and_then(|n| n.checked_mul(dtype.size()));
                    let len = len.ok_or_else(|| Error::internal(format!("output {:?} of {sizes:?}", output.name)))?;
                    if on_device {
                        let memory = match taken.get(buffer) {
                            Some(memory) => memory.clone(),
                            // Its size was found out by the call.
                            None => {
                                let memory = self.device.allocate(len, || format!("output {:?}", output.name))?;
                                self.device.copy(walk.place(*buffer)?.part(0..len)?, memory.all())?;
                                Arc::new(memory)
                            }
                        };
                        let (place, [sizes, strides]) = (memory.part(0..len)?, [counts(&sizes)?, counts(&strides)?]);
                        let tensor = DeviceTensor::new(&self.device, *dtype, sizes, strides, place, Some(memory));
                        outputs.push(Output::Device(tensor));
                        continue;
                    }
                    let mut bytes = Aligned::zeros(len)?;
                    self.fetch(walk, *buffer, &mut bytes)?;
                    OutputValue::Tensor { bytes, dtype: *dtype, sizes, strides }
                }
                OutputKind::Int(expr) => OutputValue::Number(Scalar::Int(integer(expr)?)),
                OutputKind::Bool(cond) => OutputValue::Number(Scalar::Bool(walk.holds(cond)?)),
                OutputKind::Number { dtype, buffer } => {
                    let mut bytes = Aligned::zeros(dtype.size())?;
                    self.fetch(walk, *buffer, &mut bytes)?;
                    OutputValue::Number(number::from_bytes(&bytes, *dtype)?)
                }
                OutputKind::Fixed(fixed) => OutputValue::Fixed(fixed.clone()),
            }));
        }
        for (input, value) in self.plan.inputs.iter().zip(inputs) {
            if let (InputKind::Tensor { buffer, .. }, InputValue::TensorMut(bytes)) = (&input.kind, value) {
                let len = walk.frame.slots.get(*buffer).map_or(0, |range| range.len());
                if let Some(bytes) = bytes.get_mut(..len) {
                    self.fetch(walk, *buffer, bytes)?;
                }
            }
        }
        Ok(outputs)
    }

    /// The first bytes of a buffer: from pinned memory where they were downloaded, else from the device.
    fn fetch(&self, walk: &mut Walk<'_>, buffer: BufferId, bytes: &mut [u8]) -> Result<()> {
        match walk.frame.slots.staged(buffer) {
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
    /// The state that was not copied, which the device may have written when it fails.
    rest: Vec<String>,
    /// Those of them that may be written when a check of the program fails.
    at_risk: Vec<String>,
}

impl Snapshot {
    fn take(
        all: &[(String, Bytes)],
        at_risk: &[String],
        state: &mut DeviceState,
        room: &mut Growing,
        device: &CudaDevice,
        stream: &Stream,
    ) -> Result<Snapshot> {
        let aligned = |name: &String| state.len(name).unwrap_or(0).next_multiple_of(CONSTANT_ALIGNMENT);
        let total: usize = at_risk.iter().map(aligned).sum();
        let (copied, left) = if total > LIMIT { (&[][..], at_risk) } else { (at_risk, &[][..]) };
        let rest = all.iter().map(|(name, _)| name).filter(|name| !copied.contains(name)).cloned().collect();
        let mut snapshot = Snapshot { copied: Vec::new(), rest, at_risk: left.to_vec() };
        if copied.is_empty() {
            return Ok(snapshot);
        }
        let copies = room.at_least(total, device, || "copies of state".to_owned())?;
        let mut start = 0;
        for name in copied {
            let Some(place) = state.own(name)? else { continue };
            let copy = copies.part(start..start + place.len())?;
            start += place.len().next_multiple_of(CONSTANT_ALIGNMENT);
            device.device().copy(place, copy, stream)?;
            snapshot.copied.push((place, copy));
        }
        Ok(snapshot)
    }

    /// Puts back what was copied, and says what of the state may stay changed: none where no step that writes state was begun.
    fn put_back(&self, stream: &Stream, device: &CudaDevice, committed: bool, refused: bool) -> Result<Option<String>> {
        for (place, copy) in &self.copied {
            device.device().copy(*copy, *place, stream)?;
        }
        stream.synchronize()?;
        let touched = if refused { &self.at_risk } else { &self.rest };
        Ok((committed && !touched.is_empty())
            .then(|| format!("the call may have changed the state {}", touched.join(", "))))
    }
}
