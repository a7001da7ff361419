//! Scalar mathematics: the functions behind PyTorch's pointwise operators.
//!
//! Every function takes and gives float64; narrower dtypes compute in float64 and round. Values agree with PyTorch's CPU
//! results to about 1e-7 relative, edges exactly. `vector` has the float32 functions whose speed matters.

pub mod bessel;
pub mod error_function;
pub mod float;
pub mod gamma;
pub mod integer;
pub mod logarithm;
mod oscillating;
pub mod polynomial;
mod table;
pub mod vector;

pub use table::{FUNCTIONS, Function, Row, find};
