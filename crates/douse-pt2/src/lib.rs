//! Reads the `.pt2` archives that `torch.export.save` writes into a typed, faithful [`ExportedProgram`].
//!
//! Both generations of archives are read: the folder layout of PyTorch 2.8 and later, and the flat one before it.
//! Nothing is interpreted here: operators keep the names of the file, shape expressions stay trees, and weights stay
//! where they are in the mapped file. Everything in a file is checked before it is used: a damaged or hostile file
//! gives an error, never a panic or an allocation that the file's size does not justify.

mod archive;
pub mod argument;
mod examples;
mod foreign;
pub mod graph;
pub mod meta;
mod package;
mod pickle;
mod pickle_global;
pub mod program;
pub mod pytree;
pub mod signature;
pub mod symbolic;
mod sympy;
pub mod tensor;
mod torch_save;
mod union;
mod weights;
mod wire;

pub use argument::{Argument, Complex, ConstantValue, NamedArgument, Sym};
pub use douse_core::bytes::Bytes;
pub use graph::{Graph, Node, SourceLine};
pub use meta::{Device, Layout, MemoryFormat, TensorMeta};
pub use program::{ExampleInput, ExportedProgram, model_names};
pub use pytree::TreeSpec;
pub use signature::{InputSpec, OutputSpec, Range};
pub use symbolic::{SymBool, SymFloat, SymInt, SymTree, Symbolic};
pub use tensor::{Storage, TensorData};
