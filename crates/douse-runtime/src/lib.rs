//! Loads and runs program files.
//!
//! A [`Program`] is immutable and shared; a [`Method`] is loaded from it for a device and belongs to one caller at a time;
//! a [`Session`] holds what a program keeps from call to call. All can be sent between threads, and nothing is global.
//!
//! ```no_run
//! # fn main() -> douse_core::Result<()> {
//! use douse_runtime::{HostTensor, LoadOptions, Program};
//!
//! let program = Program::open("policy.pte")?;
//! let mut forward = program.load("forward", &LoadOptions::default())?;
//! let observation = HostTensor::from_f32(&[1, 3], &[0.1, 0.2, 0.3])?;
//! let outputs = forward.run(&[observation.view()])?;
//! # Ok(())
//! # }
//! ```

mod bind;
mod cuda;
mod meta;
mod method;
mod overlap;
mod program;
mod rollback;
#[cfg(test)]
mod sample;
mod session;
mod symbols;
mod value;

pub use cuda::{
    Bindings, CudaDevice, CudaGraph, CudaGraphReport, DeviceTensor, FunctionMeta, NewShape, ProductMeta, ProductsReport,
};
pub use douse_core::{Aligned, Code, DType, Error, HostTensor, Memory, Result, TensorView};
pub use douse_cpu::Threads;
pub use meta::{MethodMeta, Size, StateMeta, ValueKind, ValueMeta};
pub use method::Method;
pub use program::{Device, LoadOptions, Program};
pub use session::Session;
pub use value::{Argument, Value};
