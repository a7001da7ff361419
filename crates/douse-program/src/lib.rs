//! The program file: plan, kernels, container.

pub mod arena;
pub mod bounds;
pub mod check;
pub mod container;
pub mod failure;
pub mod file;
pub mod kernel;
pub mod library;
pub mod payload;
pub mod place;
pub mod plan;
mod print;
#[cfg(test)]
mod sample;
pub mod target;
pub mod uses;
mod wire;
