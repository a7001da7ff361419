//! The library steps: what a loop nest expresses badly, one file an operation.
//!
//! Operations take tensors as slices with offset, sizes and strides ([`tensor`]) and a [`work::Work`]: memory for intermediate
//! results, and threads. What the steps mean is said at [`douse_program::library::Library`].

pub mod attention;
#[cfg(test)]
pub(crate) mod check;
pub mod convolution;
pub mod element;
pub mod gemm;
pub mod linalg;
pub mod matmul;
mod matvec;
pub mod nonzero;
mod panel;
mod product;
pub mod run;
pub mod scratch;
pub mod search;
pub mod segment;
mod simd;
pub mod sort;
pub mod tensor;
mod tile;
pub mod work;

pub use run::run;
pub use scratch::Scratch;
