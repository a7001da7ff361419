//! Import: from an exported program to the graph.
//!
//! Each operator enters once, as a row of its family's table (`ROWS` in the family's file) with a function that builds core operations.
//! Composite operators are decomposed there. What import removes from the program:
//!
//! - *Mutation and aliasing.* A tensor of the program is a view of a storage ([`tensor`]): a path of view steps from the storage's
//!   root value. Reading goes down the path; writing goes back up and gives the storage a new root. An in-place operator without a
//!   row of its own runs the functional row and writes the result. At the end, roots that changed become the module's writes.
//! - *Complex numbers.* A complex tensor is a real value with a last dimension of 2; only operators that say so accept it.
//! - *Dtype promotion* ([`promote`]): rows cast before they build.
//! - *Default arguments*: rows know PyTorch's.
//!
//! Every result is compared with the dtype and shape that the program itself states; a difference is a fault of ours and refused.
//! An operator that is missing, or an argument that is not supported, does not end import: all of them are listed.

mod activation;
pub mod args;
mod arithmetic;
mod attention;
mod autocast;
mod bits;
mod calculus;
mod checks;
mod comparison;
mod complex;
mod control;
mod convert;
mod convolution;
mod create;
mod data;
mod deformable;
mod detection;
mod distance;
mod einsum;
mod embedding;
mod encoder;
mod fft;
mod foreach;
pub mod formula;
mod function;
mod grid;
mod grid_sample;
mod guards;
mod host;
pub mod importer;
mod index;
mod join;
mod linalg;
mod loss;
mod matmul;
mod norm;
mod normalization;
mod pad;
pub mod parts;
pub mod pointwise;
mod pooling;
mod program;
pub mod promote;
mod quantized;
mod random;
mod rearrange;
mod recurrent;
mod reduce;
mod resize;
mod resize_bytes;
mod resize_nearest;
mod scan;
mod scatter;
mod search;
mod signal;
mod softmax;
mod sort;
mod special;
mod split;
mod statistics;
mod steps;
mod strided;
mod symbols;
mod systems;
mod table;
pub mod tensor;
mod unique;
pub mod view;
mod vmap;

pub use args::{Args, Val};
pub use importer::{ImportError, Importer, Unsupported};
pub use program::import;
