//! A method that is ready to run.

use std::sync::Arc;
use std::time::Duration;

use douse_core::{Aligned, Code, Error, HostTensor, Result};
use douse_cpu::{Executor, InputValue, Options, OutputValue};
use douse_cuda::{Place, Stream};
use douse_program::bounds::{ranges, size_bounds};
use douse_program::plan::{BufferKind, OutputKind, Plan};

use crate::bind::{Bound, On};
use crate::cuda::{self, Bindings, CudaGraphReport, FunctionMeta, Output, ProductsReport};
use crate::program::LoadOptions;
use crate::rollback::Rollback;
use crate::session::Session;
use crate::symbols::counts;
use crate::value::{Argument, Value};

/// A loaded method with a session of its own. It belongs to one caller at a time; [`clone`](Clone::clone) it, or load it again, for others:
/// weights are shared.
///
/// A call that fails leaves the method usable, and the state as it was, or says what it touched.
#[derive(Clone)]
pub struct Method {
    engine: Engine,
    plan: Arc<Plan>,
    threads: douse_cpu::Threads,
    session: Session,
    /// Names and bytes of the method's state.
    states: Vec<(String, usize)>,
    rollback: Rollback,
    /// What [`set_input`](Method::set_input) was given.
    inputs: Vec<Option<Value>>,
    /// What [`set_output`](Method::set_output) was given.
    buffers: Vec<Option<Aligned>>,
    outputs: Vec<Value>,
    outputs_on_device: bool,
}

/// What runs the plan.
#[derive(Clone)]
pub(crate) enum Engine {
    Cpu(Box<Executor>),
    Cuda(Box<cuda::Executor>),
}

impl Method {
    pub(crate) fn new(engine: Engine, options: &LoadOptions) -> Method {
        let plan = match &engine {
            Engine::Cpu(executor) => executor.plan().clone(),
            Engine::Cuda(executor) => executor.plan().clone(),
        };
        let states = plan.buffers.iter().filter_map(|buffer| match &buffer.kind {
            BufferKind::State { name, .. } => {
                let elements = usize::try_from(buffer.elements.as_int()?).ok()?;
                Some((name.clone(), elements.checked_mul(buffer.dtype.size())?))
            }
            _ => None,
        });
        Method {
            states: states.collect(),
            rollback: Rollback::new(&plan),
            inputs: vec![None; plan.inputs.len()],
            buffers: vec![None; plan.outputs.len()],
            outputs: Vec::new(),
            outputs_on_device: options.outputs_on_device,
            threads: options.threads.clone(),
            session: Session::new(),
            engine,
            plan,
        }
    }

    pub fn name(&self) -> &str {
        &self.plan.name
    }

    /// The session that [`run`](Method::run) uses.
    pub fn session(&mut self) -> &mut Session {
        &mut self.session
    }

    /// Runs the method in its own session. Inputs are in the order of [`MethodMeta::inputs`](crate::MethodMeta::inputs).
    ///
    /// # Errors
    /// `InvalidArgument` for wrong inputs, before anything has run; otherwise what failed, with the program's own message
    /// where a check of the program did.
    pub fn run<'a, A: Copy + Into<Argument<'a>>>(&mut self, inputs: &[A]) -> Result<Vec<Value>> {
        let inputs: Vec<Argument<'a>> = inputs.iter().map(|input| (*input).into()).collect();
        let mut session = std::mem::take(&mut self.session);
        let outputs = self.call(&mut session, &inputs);
        self.session = session;
        outputs
    }

    /// The same in another session.
    ///
    /// # Errors
    /// As [`run`](Method::run), and `InvalidState` where the session's state does not fit the method.
    pub fn run_in<'a, A: Copy + Into<Argument<'a>>>(
        &mut self,
        session: &mut Session,
        inputs: &[A],
    ) -> Result<Vec<Value>> {
        let inputs: Vec<Argument<'a>> = inputs.iter().map(|input| (*input).into()).collect();
        self.call(session, &inputs)
    }

    fn call(&mut self, session: &mut Session, arguments: &[Argument<'_>]) -> Result<Vec<Value>> {
        let mut bound = Bound::new(&self.plan, arguments, self.on())?;
        if bound.copies > 0 {
            tracing::debug!(method = %self.plan.name, copies = bound.copies, "inputs copied into the plan's layout");
        }
        let symbols = std::mem::take(&mut bound.symbols);
        let (places, strided) = (bound.places(), bound.strided());
        let outputs = self.run_engine(session, &symbols, (&places, &strided), bound.inputs())?;
        session.advance();
        bound.write_back()?;
        outputs.into_iter().map(value).collect()
    }

    /// Runs the plan in a session. A failure leaves its state as it was, or says what it touched.
    fn run_engine(
        &mut self,
        session: &mut Session,
        symbols: &[Option<i64>],
        (places, strided): (&[Option<Place>], &[Option<cuda::Strided>]),
        inputs: Vec<InputValue<'_>>,
    ) -> Result<Vec<Output>> {
        match &mut self.engine {
            Engine::Cpu(executor) => {
                session.move_to_host()?;
                session.adopt(|| executor.initial_state(), &self.states)?;
                let (seed, call) = session.random();
                let options = Options { threads: self.threads.clone(), seed, call };
                let snapshot = self.rollback.before(&session.state);
                let outputs = executor.run(&mut session.state, symbols, inputs, &options).map_err(|mut error| {
                    if let Some(touched) = self.rollback.after_failure(&mut session.state, snapshot) {
                        error.message = format!("{}; {touched}", error.message);
                    }
                    error
                })?;
                Ok(outputs.into_iter().map(Output::Host).collect())
            }
            Engine::Cuda(executor) => {
                let (random, at_risk) = (session.random(), self.rollback.at_risk());
                let (outputs_on_device, threads) = (self.outputs_on_device, &self.threads);
                let call = cuda::Call { symbols, random, at_risk, places, strided, threads, outputs_on_device };
                let state = session.move_to_device(executor.device(), executor.initial_state())?;
                executor.run(state, &call, inputs)
            }
        }
    }

    fn on(&self) -> Option<On<'_>> {
        match &self.engine {
            Engine::Cpu(_) => None,
            Engine::Cuda(executor) => Some(On { device: executor.device(), stream: executor.stream() }),
        }
    }

    /// Runs later calls on a caller's stream (see [`Device::borrow_stream`](douse_cuda::Device::borrow_stream)), so that they begin after what
    /// stands on it; `None`: on one of the method's own.
    ///
    /// A call then returns before its work is done if nobody has to hear of its end: inputs are on the device and used there, outputs stay there
    /// ([`LoadOptions::with_outputs_on_device`]), and the program has no checks that could fail. Its outputs and state are waited for where they
    /// are read; a fault of the device comes back with what waits. All other calls return when their results are there.
    ///
    /// # Errors
    /// `InvalidArgument` for another device's stream; `NotSupported` on the CPU.
    pub fn set_stream(&mut self, stream: Option<Arc<Stream>>) -> Result<()> {
        match &mut self.engine {
            Engine::Cpu(_) => Err(Error::not_supported("a method on the CPU uses no stream")),
            Engine::Cuda(executor) => executor.set_stream(stream),
        }
    }

    /// Times later calls on the device, for [`device_milliseconds`](Method::device_milliseconds). Nothing on the CPU.
    ///
    /// # Errors
    /// What the driver says.
    pub fn time_calls(&mut self) -> Result<()> {
        match &mut self.engine {
            Engine::Cpu(_) => Ok(()),
            Engine::Cuda(executor) => executor.time_calls(),
        }
    }

    /// How long the device took for the last call, from its first copy to its last; `None` where calls are not timed.
    pub fn device_milliseconds(&self) -> Option<f32> {
        match &self.engine {
            Engine::Cpu(_) => None,
            Engine::Cuda(executor) => executor.milliseconds(),
        }
    }

    /// How long the host has waited for the device in the last call: the rest of the call is the host's own work. Zero on the CPU.
    pub fn waited(&self) -> Duration {
        match &self.engine {
            Engine::Cpu(_) => Duration::ZERO,
            Engine::Cuda(executor) => executor.waited(),
        }
    }

    /// How the inputs of the last call came to the device; `None` on the CPU.
    pub fn bindings(&self) -> Option<Bindings> {
        match &self.engine {
            Engine::Cpu(_) => None,
            Engine::Cuda(executor) => Some(executor.bindings()),
        }
    }

    /// The functions that a method on a CUDA device launches, each once; none on the CPU.
    ///
    /// # Errors
    /// What the driver says.
    pub fn device_functions(&self) -> Result<Vec<FunctionMeta>> {
        match &self.engine {
            Engine::Cpu(_) => Ok(Vec::new()),
            Engine::Cuda(executor) => executor.functions(),
        }
    }

    /// What became of the products of a method that was lowered to use cuBLASLt; `None` where it was not, and on the CPU.
    pub fn products(&self) -> Option<&ProductsReport> {
        match &self.engine {
            Engine::Cpu(_) => None,
            Engine::Cuda(executor) => executor.products(),
        }
    }

    /// What became of the method's CUDA graphs; `None` where it was loaded without, or for the CPU.
    pub fn cuda_graph_report(&self) -> Option<CudaGraphReport> {
        match &self.engine {
            Engine::Cpu(_) => None,
            Engine::Cuda(executor) => executor.graph_report(),
        }
    }

    /// Keeps an input for [`execute`](Method::execute). Only its number is checked now: sizes depend on each other.
    ///
    /// # Errors
    /// `InvalidArgument` when there is no such input.
    pub fn set_input(&mut self, index: usize, value: Value) -> Result<()> {
        let count = self.inputs.len();
        let slot = self.inputs.get_mut(index);
        *slot.ok_or_else(|| Error::invalid_argument(format!("input {index} of {count}")))? = Some(value);
        Ok(())
    }

    /// The input that was kept; after a call, with what the program wrote.
    pub fn input(&self, index: usize) -> Option<&Value> {
        self.inputs.get(index)?.as_ref()
    }

    /// Gives the memory that the next [`execute`](Method::execute) puts an output into; [`take_outputs`](Method::take_outputs) gives it back.
    ///
    /// # Errors
    /// `InvalidArgument` when there is no such output, it is no tensor, or the buffer is smaller than the output may become,
    /// whatever its last size was; `NotSupported` for an output without a bound.
    pub fn set_output(&mut self, index: usize, buffer: Aligned) -> Result<()> {
        let count = self.plan.outputs.len();
        let output = self.plan.outputs.get(index);
        let output = output.ok_or_else(|| Error::invalid_argument(format!("output {index} of {count}")))?;
        let place = format!("output {index} ({})", output.name);
        let OutputKind::Tensor { dtype, sizes, .. } = &output.kind else {
            return Err(Error::invalid_argument(format!("{place} is no tensor")));
        };
        let ranges = ranges(&self.plan);
        let bound = sizes.iter().try_fold(dtype.size(), |bytes, size| {
            bytes.checked_mul(usize::try_from(size_bounds(&ranges, size).max?).ok()?)
        });
        let Some(bound) = bound else {
            return Err(Error::not_supported(format!("{place} has no upper bound, so no buffer is large enough")));
        };
        if buffer.len() < bound {
            let given = buffer.len();
            return Err(Error::invalid_argument(format!("{place} may take {bound} bytes, the buffer has {given}")));
        }
        if let Some(slot) = self.buffers.get_mut(index) {
            *slot = Some(buffer);
        }
        Ok(())
    }

    /// Runs the method on the inputs that were set; [`outputs`](Method::outputs) then has the results.
    ///
    /// # Errors
    /// As [`run`](Method::run), and `InvalidState` when an input was not set.
    pub fn execute(&mut self) -> Result<()> {
        if let Some(index) = self.inputs.iter().position(Option::is_none) {
            let name = self.plan.inputs.get(index).map_or("", |i| i.name.as_str());
            return Err(Error::new(Code::InvalidState, format!("input {index} ({name}) was not set")));
        }
        let mut inputs = std::mem::take(&mut self.inputs);
        let mut session = std::mem::take(&mut self.session);
        let arguments: Vec<Argument<'_>> = inputs.iter_mut().flatten().map(Value::argument_mut).collect();
        let outputs = self.call(&mut session, &arguments);
        drop(arguments);
        (self.inputs, self.session) = (inputs, session);
        let mut outputs = outputs?;
        for (slot, output) in self.buffers.iter_mut().zip(&mut outputs) {
            if let (Some(buffer), Value::Tensor(tensor)) = (slot.take(), &mut *output) {
                *output = Value::Tensor(place_in(buffer, tensor)?);
            }
        }
        self.outputs = outputs;
        Ok(())
    }

    /// The results of the last [`execute`](Method::execute).
    pub fn outputs(&self) -> &[Value] {
        &self.outputs
    }

    /// The results of the last [`execute`](Method::execute), moved out; a buffer that was set for one comes back with it.
    pub fn take_outputs(&mut self) -> Vec<Value> {
        std::mem::take(&mut self.outputs)
    }
}

fn place_in(mut buffer: Aligned, tensor: &HostTensor) -> Result<HostTensor> {
    let bytes = tensor.bytes();
    match buffer.get_mut(..bytes.len()) {
        Some(place) => place.copy_from_slice(bytes),
        None => return Err(Error::internal("an output beyond its upper bound")),
    }
    HostTensor::new(tensor.dtype(), tensor.sizes(), tensor.strides(), buffer)
}

fn value(output: Output) -> Result<Value> {
    use douse_core::Scalar;
    let output = match output {
        Output::Device(tensor) => return Ok(Value::Device(tensor)),
        Output::Tensor(tensor) => return Ok(Value::Tensor(tensor)),
        Output::Host(output) => output,
    };
    Ok(match output {
        OutputValue::Tensor { bytes, dtype, sizes, strides } => {
            let sizes = counts(&sizes)?;
            Value::Tensor(HostTensor::new(dtype, &sizes, &counts(&strides)?, bytes)?)
        }
        OutputValue::Number(Scalar::Bool(v)) => Value::Bool(v),
        OutputValue::Number(Scalar::Int(v)) => Value::Int(v),
        OutputValue::Number(other) => Value::Float(other.to_f64()),
        OutputValue::Fixed(fixed) => Value::fixed(&fixed)?,
    })
}

#[cfg(test)]
mod tests;
