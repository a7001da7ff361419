//! Runs PyTorch programs without PyTorch.
//!
//! What `torch.export` saved is compiled with [`lower`] into a program, which runs here or is written to a file for later:
//!
//! ```no_run
//! # fn main() -> douse::Result<()> {
//! use douse::{HostTensor, LoadOptions, LowerOptions, Program};
//!
//! let lowered = douse::lower("policy.pt2", &LowerOptions::default())?;
//! lowered.save("policy.pte")?;
//!
//! let program = Program::open("policy.pte")?;
//! let mut forward = program.load("forward", &LoadOptions::default())?;
//! let observation = HostTensor::from_f32(&[1, 3], &[0.1, 0.2, 0.3])?;
//! let outputs = forward.run(&[observation.view()])?;
//! let action = outputs[0].tensor().map(HostTensor::f32_values).transpose()?;
//! # Ok(())
//! # }
//! ```

mod code;
mod lower;

pub use douse_runtime::{
    Aligned, Argument, Bindings, Code, CudaDevice, CudaGraph, CudaGraphReport, DType, Device, DeviceTensor, Error,
    FunctionMeta, HostTensor, LoadOptions, Memory, Method, MethodMeta, NewShape, ProductMeta, ProductsReport, Program,
    Result, Session, Size, StateMeta, TensorView, Threads, Value, ValueKind, ValueMeta,
};
pub use lower::{
    LowerOptions, Lowered, ProductOptions, Products, Refused, Unsupported, Watch, lower, lower_exported, lower_methods,
};
