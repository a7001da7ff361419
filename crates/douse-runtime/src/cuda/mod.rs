//! Runs methods on CUDA devices.
//!
//! Loading chooses the code that fits the device ([`code`]), uploads weights, each once a device ([`device`]), and turns the plan's steps
//! into launches ([`action`]). A call ([`executor`]) uploads its inputs, walks the actions on a stream of the method's own ([`walk`]), reads
//! back the error flag with the outputs, and returns. Everything lies in memory that is kept from call to call ([`room`]); state lies on
//! the device, in the session ([`state`]).

mod action;
mod code;
mod device;
mod executor;
mod flag;
mod room;
mod state;
#[cfg(test)]
mod tests;
mod transfer;
mod walk;

pub use device::CudaDevice;
pub(crate) use device::Devices;
pub(crate) use executor::Executor;
pub(crate) use state::DeviceState;
