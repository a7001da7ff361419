//! The program file: plan, kernels, container.

pub mod container;
pub mod kernel;
pub mod library;
pub mod plan;
