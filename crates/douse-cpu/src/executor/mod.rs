//! Runs a plan: binds memory to its buffers and walks its steps.

mod binder;
pub mod number;
mod outputs;
mod state;
#[cfg(test)]
mod tests;
mod walk;

use douse_core::bytes::{Aligned, Bytes};
use douse_core::{DType, Error, Result, Scalar};
use douse_program::place::lifetimes;
use douse_program::plan::{BufferKind, Data, Fixed, Plan};
use std::sync::Arc;

use crate::interpret::{Flag, Scratches};
use crate::threads::Threads;
use binder::Binder;
use douse_program::arena::{self, Layout};
pub use state::State;
use walk::{Binding, Walk};

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

/// What is known of a plan before any call.
#[derive(Debug)]
struct Prepared {
    /// By buffer, of those that are constants.
    constants: Vec<Option<Bytes>>,
    initial: State,
    lives: Vec<Option<(u32, u32)>>,
    /// By kernel: the symbols that it mentions.
    symbols: Vec<Vec<u32>>,
}

/// A plan that is ready to run. A clone shares the plan, its kernels and its constants, and has temporaries of its own.
pub struct Executor {
    plan: Arc<Plan>,
    prepared: Arc<Prepared>,
    layout: Layout,
    arena: Aligned,
    bindings: Vec<Binding>,
    scratches: Scratches,
    library_scratch: crate::library::Scratch,
}

impl Clone for Executor {
    fn clone(&self) -> Executor {
        Executor::with(self.plan.clone(), self.prepared.clone())
    }
}

impl Executor {
    /// Prepares a plan that [`douse_program`] has checked. `data` finds the bytes of [`Data::Named`] by their key.
    ///
    /// # Errors
    /// Where data is missing or of the wrong length; where there is no memory for the state.
    pub fn new(plan: Arc<Plan>, data: &dyn Fn(&str) -> Result<Bytes>) -> Result<Executor> {
        let mut constants = Vec::with_capacity(plan.buffers.len());
        let mut initial = State::default();
        for (id, buffer) in plan.buffers.iter().enumerate() {
            let expected = || Ok::<usize, Error>(arena::bytes(&plan, id, &[])?.unwrap_or(0));
            let bytes = |source: &Data| {
                let bytes = match source {
                    Data::Named(key) => data(key)?,
                    Data::Inline(bytes) => Bytes::from(bytes.clone()),
                    Data::Zeros(len) => Bytes::zeros(*len)?,
                };
                let (len, expected) = (bytes.len(), expected()?);
                if len != expected {
                    let message = format!("{source:?} has {len} bytes where the plan needs {expected}");
                    return Err(Error::invalid_program(message));
                }
                // Archives of older PyTorch do not align their tensors.
                let aligned = bytes.as_ptr().align_offset(buffer.dtype.size()) == 0;
                Ok(if aligned { bytes } else { Bytes::from(Aligned::copy(&bytes)?) })
            };
            constants.push(match &buffer.kind {
                BufferKind::Constant(source) => Some(bytes(source)?),
                BufferKind::State { name, initial: source } => {
                    // Zeros take no memory until they are written.
                    let own = match source {
                        Data::Zeros(_) => Aligned::zeros(expected()?)?,
                        _ => Aligned::copy(&bytes(source)?)?,
                    };
                    initial.buffers.insert(name.clone(), own);
                    None
                }
                _ => None,
            });
        }
        let lives = lifetimes(&plan);
        let symbols = plan.kernels.iter().map(|k| k.symbols().into_iter().collect()).collect();
        Ok(Executor::with(plan, Arc::new(Prepared { constants, initial, lives, symbols })))
    }

    fn with(plan: Arc<Plan>, prepared: Arc<Prepared>) -> Executor {
        let bindings = vec![None; plan.kernels.len()];
        Executor {
            plan,
            prepared,
            layout: Layout::default(),
            arena: Aligned::default(),
            bindings,
            scratches: Scratches::default(),
            library_scratch: crate::library::Scratch::default(),
        }
    }

    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// A copy of the state as it is before the first call.
    pub fn initial_state(&self) -> State {
        self.prepared.initial.clone()
    }

    /// Runs the plan once. `symbols` has the values of those that come from inputs, by number, and nothing for those that steps set.
    ///
    /// # Errors
    /// Where an input does not fit, a check of the program fails (with its message), or memory is short. The state is then
    /// as it was before the call, as far as the plan orders its writes after its checks.
    pub fn run(
        &mut self,
        state: &mut State,
        symbols: &[Option<i64>],
        inputs: Vec<InputValue<'_>>,
        options: &Options,
    ) -> Result<Vec<OutputValue>> {
        let (plan, prepared) = (self.plan.clone(), self.prepared.clone());
        let mut symbols = symbols.to_vec();
        symbols.resize(plan.symbols.len(), None);
        self.layout.update(&plan, &prepared.lives, &symbols)?;
        if self.arena.len() < self.layout.total {
            self.arena = Aligned::default();
            self.arena = Aligned::zeros(self.layout.total)?;
        }
        let mut binder = Binder::new(&plan, &symbols);
        let (arena, region) = binder.memory.own(std::mem::take(&mut self.arena));
        let placed = binder
            .inputs(inputs)
            .and_then(|()| binder.constants(&prepared.constants))
            .and_then(|()| binder.state(state))
            .and_then(|()| binder.outputs())
            .and_then(|()| binder.temporaries(region, &self.layout));
        let Binder { memory, late, waits, .. } = binder;
        let mut walk = Walk {
            plan: &plan,
            prepared: &prepared,
            memory,
            symbols,
            options,
            bindings: &mut self.bindings,
            scratches: &self.scratches,
            library_scratch: &self.library_scratch,
            flag: Flag::default(),
            late,
            waits,
        };
        let done = placed.and_then(|()| walk.steps(&plan.steps)).and_then(|()| outputs::describe(&mut walk));
        let (late, mut owned) = (walk.late, walk.memory.release());
        self.arena = owned.get_mut(arena).map(std::mem::take).unwrap_or_default();
        outputs::collect(&plan, done?, &late, owned)
    }
}
