//! The graph that Douse compiles.
//!
//! A [`Module`] is one method: its inputs, outputs, state and constants, and a graph of [`Node`]s in the order they run. Each node
//! applies one core operation ([`Op`]) to values and defines new ones. The graph is functional: no value changes, views are
//! pure operations, and what the program writes stands in [`Module::writes`], to happen at the end.
//!
//! Shapes are [`Expr`]essions over the module's symbols. No value is complex: a complex tensor is a real one with a last
//! dimension of 2. Operations never promote or broadcast; import makes dtypes and shapes equal with `cast` and `move`.
//!
//! [`Expr`]: douse_core::sym::Expr

pub mod build;
mod cursor;
pub mod graph;
pub mod op;
mod parse;
mod print;
mod rules;
pub mod verify;

pub use build::{Builder, coordinates, shape_text};
pub use graph::{
    Block, Constant, Graph, InputDecl, InputKind, Module, Node, NodeId, Origin, OriginId, OutputDecl, OutputKind,
    StateDecl, Value, ValueInfo, Write, WriteTarget,
};
pub use op::{Convolution, Op};
pub use print::node_text;
pub use verify::{Fault, verified, verify};
