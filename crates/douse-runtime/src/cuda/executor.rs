//! A method on a device: what is prepared when it is loaded, and its calls.

use std::sync::Arc;
use std::time::Duration;

use douse_core::bytes::Bytes;
use douse_core::{Code, Error, Result};
use douse_cpu::{InputValue, Threads};
use douse_cuda::{Attribute, DeviceMemory, Event, Module, Place, Stream};
use douse_program::arena;
use douse_program::payload::Payload;
use douse_program::place::lifetimes;
use douse_program::plan::{BufferId, BufferKind, Data, Plan};
use douse_program::target::Products;
use douse_program::uses::unstored;

use super::action::{Actions, FunctionMeta, actions};
use super::code::choose;
use super::compare::{self, Copies};
use super::device::CudaDevice;
use super::frame::{Bindings, Callers, Frames};
use super::graph::{CudaGraph, CudaGraphReport, Graphs, Shelf};
use super::outputs::{self, Output, Pool, Taken, direct};
use super::product::{ProductsReport, Trials};
use super::room::Room;
use super::snapshot::Snapshot;
use super::state::DeviceState;
use super::strided::Strided;
use super::walk::Walk;

/// What is known of a method on a device before any call; shared by its clones.
pub(super) struct Prepared {
    pub plan: Arc<Plan>,
    pub device: CudaDevice,
    pub actions: Actions,
    /// What became of its products, where they may be cuBLASLt's.
    products: Option<ProductsReport>,
    /// By buffer, of those that are constants.
    pub constants: Vec<Option<Place>>,
    /// Keeps the constants.
    _memory: Vec<Arc<DeviceMemory>>,
    /// State before the first call.
    initial: Vec<(String, Bytes)>,
    /// Of temporaries, by buffer: the first and last step that uses each.
    pub lives: Vec<Option<(u32, u32)>>,
    /// The buffers of state, with its names, in their order.
    pub states: Vec<(BufferId, String)>,
    /// The buffers of outputs.
    pub outputs: Vec<BufferId>,
}

/// A method that is ready to run on a device. A clone shares its code and weights, and has memory and graphs of its own.
pub(crate) struct Executor {
    prepared: Arc<Prepared>,
    // Graphs go before the memory that they use.
    graphs: Option<Graphs>,
    frames: Frames,
    room: Option<Room>,
    outputs: Pool,
    /// The caller's, in place of the room's own.
    stream: Option<Arc<Stream>>,
    timer: Option<Timer>,
    waited: Duration,
    bindings: Bindings,
    /// The stream of a call whose work may not be done.
    pending: Option<Arc<Stream>>,
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
    /// Inputs that are given in another layout than the program reads, by number.
    pub strided: &'a [Option<Strided>],
    /// Those that copy what is large.
    pub threads: &'a Threads,
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
        let multiprocessors = device.device().attribute(Attribute::MultiprocessorCount)?.unsigned_abs();
        let mut trials =
            (target.products.by == Products::CublasLt).then(|| Trials::new(&plan, device, target.products.tf32));
        let actions = actions(&plan, target, &modules, multiprocessors.into(), trials.as_mut())?;
        let products = trials.map(Trials::report);
        let (constants, memory) = upload_constants(&plan, device, data)?;
        let (mut initial, mut states) = (Vec::new(), Vec::new());
        for (id, buffer) in plan.buffers.iter().enumerate() {
            if let BufferKind::State { name, initial: source } = &buffer.kind {
                let bytes = match source {
                    Data::Named(key) => data(key)?,
                    other => inline(other)?,
                };
                check_len(&plan, id, bytes.len(), name)?;
                states.push((id as BufferId, name.clone()));
                initial.push((name.clone(), bytes));
            }
        }
        initial.sort_by(|(a, _), (b, _)| a.cmp(b));
        states.sort_by(|(_, a), (_, b)| a.cmp(b));
        let (mut lives, outputs) = (lifetimes(&plan), outputs::buffers(&plan));
        for buffer in unstored(&plan) {
            if let Some(life) = lives.get_mut(buffer as usize) {
                *life = None;
            }
        }
        let device = device.clone();
        tracing::debug!(method = %plan.name, ?device, arch = %target.arch, "method loaded");
        let prepared =
            Prepared { plan, device, actions, products, constants, _memory: memory, initial, lives, states, outputs };
        let graphs = graphs.map(Graphs::new);
        Ok(Executor::with(Arc::new(prepared), graphs))
    }

    fn with(prepared: Arc<Prepared>, graphs: Option<Graphs>) -> Executor {
        let (frames, outputs) = (Frames::default(), Pool::default());
        Executor {
            prepared,
            graphs,
            frames,
            room: None,
            outputs,
            stream: None,
            timer: None,
            waited: Duration::ZERO,
            bindings: Bindings::default(),
            pending: None,
        }
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

    /// Names and bytes of the state before the first call, by name.
    pub fn initial_state(&self) -> impl Iterator<Item = (&str, &[u8])> + Clone {
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

    /// How long the last call has waited for the device.
    pub fn waited(&self) -> Duration {
        self.waited
    }

    /// How the inputs of the last call came to the device.
    pub fn bindings(&self) -> Bindings {
        self.bindings
    }

    /// The method's functions, each once, as they are launched first.
    ///
    /// # Errors
    /// What the driver says.
    pub fn functions(&self) -> Result<Vec<FunctionMeta>> {
        self.prepared.actions.functions()
    }

    /// What became of the method's products; `None` where it was lowered for its own kernels alone.
    pub fn products(&self) -> Option<&ProductsReport> {
        self.prepared.products.as_ref()
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
        let Executor { prepared, graphs, frames, room, outputs, stream, timer, waited, bindings, pending } = self;
        let prepared = &**prepared;
        let _current = prepared.device.device().enter()?;
        if room.is_none() {
            *room = Some(Room::new(&prepared.device)?);
        }
        let made = room.as_mut().ok_or_else(|| Error::internal("no room"))?;
        let (stream, timer, faulted) = (stream.as_ref(), timer.as_mut(), false);
        let mut run = Run {
            prepared,
            frames,
            room: made,
            pool: outputs,
            stream,
            timer,
            call,
            waited,
            bindings,
            pending,
            faulted,
        };
        let ran = run.with_graphs(graphs.as_mut(), state, &mut inputs);
        if run.faulted {
            // Nothing runs any more on a stream that has failed: others get one of their own, and what belongs to it.
            graphs.iter_mut().for_each(Graphs::forget);
            *frames = Frames::default();
            *room = None;
        }
        ran
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
    frames: &'a mut Frames,
    room: &'a mut Room,
    pool: &'a mut Pool,
    stream: Option<&'a Arc<Stream>>,
    timer: Option<&'a mut Timer>,
    call: &'a Call<'a>,
    waited: &'a mut Duration,
    bindings: &'a mut Bindings,
    pending: &'a mut Option<Arc<Stream>>,
    /// Work that had begun failed on the device.
    faulted: bool,
}

impl Run<'_> {
    /// Runs the plan, by graphs where it is their turn; twice where the two are to be compared.
    fn with_graphs(
        &mut self,
        graphs: Option<&mut Graphs>,
        state: &mut DeviceState,
        inputs: &mut Vec<InputValue<'_>>,
    ) -> Result<Vec<Output>> {
        let (prepared, symbols) = (self.prepared, self.call.symbols);
        let Some(graphs) = graphs else { return Ok(self.once(None, state, inputs)?.outputs) };
        let compares = graphs.compares();
        let Actions { segments, set_condition, .. } = &prepared.actions;
        let shelf = graphs.begin(&prepared.plan, symbols, *segments, set_condition.as_ref())?;
        let plain = match &shelf {
            Some(_) if compares => {
                let mut copies = Copies::of(inputs);
                let mut copied = state.clone();
                let outputs = self.once(None, &mut copied, &mut copies.inputs(inputs))?.outputs;
                Some((outputs, copies, copied))
            }
            _ => None,
        };
        let ran = self.once(shelf, state, inputs);
        graphs.end(ran.as_ref().map_or(0, |ran| ran.host_reads));
        let outputs = ran?.outputs;
        if let Some((expected, copies, copied)) = plain {
            compare::outputs(&prepared.plan, &expected, &outputs)?;
            compare::inputs(&prepared.plan, &copies, inputs)?;
            compare::states(&copied, state)?;
        }
        Ok(outputs)
    }

    /// Runs the plan once, by graphs where there are any.
    fn once(
        &mut self,
        graphs: Option<Shelf<'_>>,
        state: &mut DeviceState,
        inputs: &mut [InputValue<'_>],
    ) -> Result<Ran> {
        let Run { prepared, frames, room, pool, stream, timer, call, pending, .. } = self;
        let (plan, device) = (&prepared.plan, &prepared.device);
        let mut symbols = call.symbols.to_vec();
        symbols.resize(plan.symbols.len(), None);
        let taken =
            if call.outputs_on_device { pool.take(plan, &prepared.outputs, &symbols, device)? } else { Taken::new() };
        let (memory, own, callers_own) = (&mut room.memory, &room.own, *stream);
        // Earlier calls that were not waited for are done before this one, on their own stream or by now.
        let same = pending.as_ref().zip(callers_own).is_some_and(|(pending, own)| Arc::ptr_eq(pending, own));
        if let Some(stream) = pending.take_if(|_| !same) {
            stream.synchronize()?;
        }
        state.wait(callers_own)?;
        let stream = callers_own.map_or(own, |stream| stream);
        let callers = Callers { direct: direct(plan, call.places, &taken), strided: call.strided };
        let frame = frames.frame(prepared, memory, state, &symbols, &callers, stream)?;
        if !frame.stays && pending.take().is_some() {
            // What the host writes now may still be read.
            stream.synchronize()?;
        }
        let snapshot = Snapshot::take(call.at_risk, state, &mut room.snapshot, device, stream)?;
        memory.told.clear()?;
        let mut walk = Walk::new(prepared, memory, stream, frame, symbols, graphs);
        // A caller who has a stream, and leaves everything on the device, waits when it suits.
        let stays = frame.stays && timer.is_none() && outputs::stay(plan, &taken);
        let returns = callers_own.filter(|_| stays);
        let done = prepared
            .upload(&mut walk, inputs, call)
            .and_then(|()| timer.as_ref().map_or(Ok(()), |timer| timer.begin.record(stream)))
            .and_then(|()| walk.actions(&prepared.actions.all))
            .and_then(|()| timer.as_ref().map_or(Ok(()), |timer| timer.end.record(stream)))
            .and_then(|()| if returns.is_some() { Ok(()) } else { walk.settle(frame.tells) });
        let outputs = done.and_then(|()| prepared.collect(&mut walk, inputs, call, &taken));
        let Walk { committed, refused, host_reads, begun, waited, .. } = walk;
        (*self.waited, *self.bindings) = (waited, frame.bindings);
        if let (Some(timer), Ok(_)) = (timer, &outputs) {
            timer.end.synchronize()?;
            timer.milliseconds = Some(timer.end.milliseconds_since(&timer.begin)?);
        }
        let error = match outputs {
            Ok(mut outputs) => {
                if let Some(stream) = returns {
                    *self.pending = Some(stream.clone());
                    state.leave_pending(stream);
                    outputs = outputs.into_iter().map(|output| output.written_on(stream)).collect();
                }
                return Ok(Ran { outputs, host_reads });
            }
            Err(error) => error,
        };
        // Pinned memory is used again by the next call: nothing may be under way. And its flag begins lowered.
        let control = memory.control();
        let settled = stream.synchronize().and_then(|()| device.device().fill(control, 0, stream));
        let restored = match settled {
            Ok(()) => snapshot.put_back(&prepared.states, stream, device, committed, refused),
            Err(fault) if begun => {
                state.break_off(&fault);
                self.faulted = true;
                return Err(Error::new(error.code, format!("{}; {BROKEN}", error.message)));
            }
            Err(fault) => Err(fault),
        };
        Err(match restored {
            Ok(None) => error,
            Ok(Some(touched)) => Error::new(error.code, format!("{}; {touched}", error.message)),
            Err(more) => Error::new(error.code, format!("{}; then {more}", error.message)),
        })
    }
}

/// What a fault of the device does to the session whose call it was.
const BROKEN: &str = "the call had begun on the device, so the session is broken";

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
