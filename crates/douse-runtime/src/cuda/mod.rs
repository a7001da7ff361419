//! Runs methods on CUDA devices.
//!
//! Loading chooses the code that fits the device ([`code`]), uploads weights, each once a device ([`device`]), and turns the plan's steps
//! into work for the device, in segments between host reads ([`action`]). A call ([`executor`]) finds where everything lies ([`frame`]), brings its
//! inputs there ([`values`]; what is in another layout, by a kernel: [`strided`]), walks
//! the actions on a stream of the method's own ([`walk`]) and returns what came back. A segment's work is filled in with sizes and places
//! ([`resolve`], [`launch`]), which gives [commands](command); they go onto the stream one by one, or a [`graph`] of them does. Some products
//! may be cuBLASLt's ([`product`]). Everything lies in memory that is kept from call to call ([`room`]); state lies on the device, in the
//! session ([`state`]).

mod action;
mod code;
mod command;
mod compare;
mod device;
mod executor;
mod flag;
mod frame;
mod graph;
mod launch;
mod outputs;
mod product;
mod resolve;
mod room;
mod snapshot;
mod state;
mod strided;
mod tensor;
#[cfg(test)]
mod tests;
mod transfer;
mod values;
mod walk;

pub use action::FunctionMeta;
pub use device::CudaDevice;
pub(crate) use device::Devices;
pub(crate) use executor::{Call, Executor};
pub use frame::Bindings;
pub use graph::{CudaGraph, CudaGraphReport, NewShape};
pub(crate) use outputs::Output;
pub use product::{ProductMeta, ProductsReport};
pub(crate) use state::DeviceState;
pub(crate) use strided::Strided;
pub use tensor::DeviceTensor;
pub(crate) use tensor::laid_out;
