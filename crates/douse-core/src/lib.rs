//! Data types, symbolic sizes, random numbers and errors shared by every part of Douse.

pub mod bytes;
pub mod dtype;
pub mod element;
pub mod error;
pub mod float8;
pub mod layout;
pub mod math;
pub mod philox;
pub mod pointwise;
pub mod scalar;
pub mod sym;
pub mod tensor;

pub use bytes::{Aligned, Bytes};
pub use dtype::DType;
pub use error::{Code, Error, Result};
pub use scalar::Scalar;
pub use tensor::{HostTensor, Memory, TensorView};
