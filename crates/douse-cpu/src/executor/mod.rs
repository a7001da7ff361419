//! Runs a plan: binds memory to its buffers and walks its steps.

use douse_core::bytes::{Aligned, Bytes};
use douse_core::{DType, Error, Result, Scalar};
use douse_program::plan::{BufferKind, Data, Fixed, Plan};
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::strided::eval;
use crate::threads::Threads;

/// What a call is given besides its inputs.
#[derive(Clone, Default)]
pub struct Options {
    pub threads: Threads,
    /// Seed of the random numbers.
    pub seed: u64,
    /// Number of the call since the seed was set: each call draws fresh numbers.
    pub call: u64,
}

/// An input of a call, in the order of [`Plan::inputs`].
#[derive(Debug)]
pub enum InputValue<'a> {
    /// A tensor's elements in the strides that the plan asks for.
    Tensor(&'a [u8]),
    /// The same, of an input that the program writes.
    TensorMut(&'a mut [u8]),
    /// A float or bool ([`douse_program::plan::InputKind::Number`]).
    Number(Scalar),
    /// Of inputs that have no memory: integers (given as symbols) and fixed values.
    None,
}

/// An output of a call, in the order of [`Plan::outputs`].
#[derive(Clone, Debug)]
pub enum OutputValue {
    /// Elements, dense in these strides (which count elements).
    Tensor {
        bytes: Aligned,
        dtype: DType,
        sizes: Vec<i64>,
        strides: Vec<i64>,
    },
    Number(Scalar),
    Fixed(Fixed),
}

/// What a program keeps from call to call, by name.
#[derive(Clone, Debug, Default)]
pub struct State {
    buffers: BTreeMap<String, Aligned>,
}

impl State {
    /// Names and bytes, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.buffers.iter().map(|(name, bytes)| (name.as_str(), &**bytes))
    }

    /// The bytes of a name, to be replaced by as many others.
    pub fn get_mut(&mut self, name: &str) -> Option<&mut [u8]> {
        self.buffers.get_mut(name).map(|bytes| &mut **bytes)
    }

    /// Sets the bytes of a name.
    pub fn insert(&mut self, name: String, bytes: Aligned) {
        self.buffers.insert(name, bytes);
    }

    /// Takes over what `other` has and this one has not: methods of one program share state by name.
    pub fn merge(&mut self, other: State) {
        for (name, bytes) in other.buffers {
            self.buffers.entry(name).or_insert(bytes);
        }
    }
}

/// A plan that is ready to run. A clone shares the plan, its kernels and its constants, and has temporaries of its own.
#[derive(Clone)]
pub struct Executor {
    plan: Arc<Plan>,
    /// By buffer, of those that are constants.
    constants: Arc<Vec<Option<Bytes>>>,
    initial: Arc<State>,
}

impl Executor {
    /// Prepares a plan that [`douse_program`] has checked. `data` finds the bytes of [`Data::Named`].
    ///
    /// # Errors
    /// Where data is missing or of the wrong length, or the plan holds what this executor cannot run.
    pub fn new(plan: Arc<Plan>, data: &dyn Fn(&Data) -> Result<Bytes>) -> Result<Executor> {
        let mut constants = Vec::with_capacity(plan.buffers.len());
        let mut initial = State::default();
        for buffer in &plan.buffers {
            let bytes = |source: &Data| {
                let bytes = match source {
                    Data::Named(_) => data(source)?,
                    Data::Inline(bytes) => Bytes::from(bytes.clone()),
                    Data::Zeros(len) => Bytes::from(vec![0; *len as usize]),
                };
                let expected = eval(&buffer.elements, &[])? as usize * buffer.dtype.size();
                if bytes.len() == expected {
                    return Ok(bytes);
                }
                let len = bytes.len();
                Err(Error::invalid_program(format!("{source:?} has {len} bytes where the plan needs {expected}")))
            };
            constants.push(match &buffer.kind {
                BufferKind::Constant(source) => Some(bytes(source)?),
                BufferKind::State { name, initial: source } => {
                    initial.buffers.insert(name.clone(), Aligned::copy(&bytes(source)?)?);
                    None
                }
                _ => None,
            });
        }
        Ok(Executor { plan, constants: Arc::new(constants), initial: Arc::new(initial) })
    }

    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// A copy of the state as it is before the first call.
    pub fn initial_state(&self) -> State {
        (*self.initial).clone()
    }

    /// Runs the plan once. `symbols` has the values of those that come from inputs, by number, and nothing for those that steps set.
    ///
    /// # Errors
    /// Where an input does not fit, a check of the program fails (with its message), or memory is short. The state is then
    /// as it was before the call, as far as the plan orders its writes after its checks.
    pub fn run(
        &mut self,
        _state: &mut State,
        _symbols: &[Option<i64>],
        _inputs: Vec<InputValue<'_>>,
        _options: &Options,
    ) -> Result<Vec<OutputValue>> {
        let name = &self.plan.name;
        Err(Error::not_supported(format!(
            "{name}: running on the CPU is not there yet ({} constants)",
            self.constants.len()
        )))
    }
}
