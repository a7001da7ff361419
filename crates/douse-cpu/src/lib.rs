//! Runs kernels and library operations on the CPU.
//!
//! An [`Executor`] is made once from a plan; each call binds memory to the plan's buffers ([`memory`]) and walks its steps.
//! Kernels are interpreted in blocks of lanes ([`interpret`]); library steps run over strided views ([`strided`]).

pub mod executor;
mod interpret;
pub mod library;
pub mod memory;
mod simd;
pub mod strided;
pub mod threads;

pub use executor::{Executor, InputValue, Options, OutputValue, State};
pub use threads::Threads;
