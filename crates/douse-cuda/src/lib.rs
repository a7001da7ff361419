//! The CUDA driver, NVRTC and cuBLASLt, loaded at run time: owned handles, no policy.
//!
//! ```no_run
//! # fn main() -> douse_core::Result<()> {
//! let device = douse_cuda::Driver::open()?.device(0)?;
//! let stream = device.stream()?;
//! let memory = device.allocate(1024)?;
//! memory.fill(0..1024, 0, &stream)?;
//! stream.synchronize()?;
//! # Ok(())
//! # }
//! ```
//!
//! Nothing of CUDA is linked: without a driver, [`Driver::open`] returns an error that says what was looked for. Handles keep
//! alive what they need, so that they can be dropped in any order, and work on any thread: every call makes the device's primary
//! context current for its own duration and puts back what was current before.
//!
//! What compiles is the feature `compile`: a program that only runs needs nothing of it.
//!
//! Nearly all of the project's `unsafe` is here. What callers must know: work on a stream is asynchronous, and the contents of
//! memory that work under way writes are unspecified until the stream was synchronised; code that is launched is trusted as code
//! that is linked is, and receives addresses.

pub mod arch;
pub mod blas;
#[cfg(feature = "compile")]
mod cache;
mod find;
mod library;

pub mod driver;
#[cfg(feature = "compile")]
pub mod nvrtc;
#[cfg(feature = "compile")]
pub mod soft;

pub use arch::Architecture;
pub use blas::Blas;
#[cfg(feature = "compile")]
pub use cache::Cache;
pub use driver::device::{Attribute, Device};
pub use driver::graph::{Chain, Condition, Exec, Graph, Node, Overlap, Transfer};
pub use driver::memory::{DeviceMemory, PinnedMemory, Place};
pub use driver::module::{Argument, Function, FunctionAttribute, Grid, Module};
pub use driver::stream::{Event, Stream};
pub use driver::tensor_map::TensorMap;
pub use driver::{Driver, Version};
#[cfg(feature = "compile")]
pub use nvrtc::Nvrtc;
