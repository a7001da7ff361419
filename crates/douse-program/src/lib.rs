//! The program file: plan, kernels, container.

pub mod check;
pub mod container;
pub mod kernel;
pub mod library;
pub mod payload;
pub mod plan;
mod wire;
