//! The plan of a method: steps over buffers, everything decided ahead of time.
//!
//! Sizes are expressions over the method's symbols ([`Symbol::Size`]), which get their values from the inputs when a call begins
//! and from steps that read data during it. Buffers are owned by who their kind says. Temporaries live in one arena, where
//! [`crate::arena`] places them before a call begins, anew only when the symbols' values changed.
//!
//! [`crate::check`] checks a plan once, when a file is read; executors trust it afterwards.

use douse_core::sym::{Cond, Expr};
use douse_core::{DType, Scalar};
use serde::{Deserialize, Serialize};

use crate::kernel::Kernel;
use crate::library::Library;

/// A buffer's number in [`Plan::buffers`].
pub type BufferId = u32;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The method's name.
    pub name: String,
    pub symbols: Vec<SymbolInfo>,
    pub inputs: Vec<Input>,
    pub outputs: Vec<Output>,
    pub buffers: Vec<Buffer>,
    pub kernels: Vec<Kernel>,
    pub steps: Vec<Step>,
    /// Every check of a call is made before the first step that writes state, and again where it stands: once state is written, none can fail.
    pub checks_first: bool,
    /// Texts of checks, by number: what failed and the user's line.
    pub messages: Vec<String>,
    /// The argument and result structure, as PyTorch's pytree specification writes it (JSON), for people and language bindings.
    pub in_spec: Option<String>,
    pub out_spec: Option<String>,
}

/// An integer that is known only at run time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SymbolInfo {
    /// The name in the exported program: `s77`, `u0`.
    pub name: String,
    pub min: Option<i64>,
    pub max: Option<i64>,
    pub source: SymbolSource,
    /// An upper bound over earlier symbols, known before the value is: the elements of a mask for the count of its trues.
    pub bound: Option<Expr>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum SymbolSource {
    /// `size = scale * symbol + offset` of an input's dimension, solved for the symbol.
    Size { input: u32, dim: u32, scale: i64, offset: i64 },
    /// An integer input.
    Int { input: u32 },
    /// Set by a step.
    Step,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Input {
    /// The argument's name as the user wrote it: `x`, `states[0]`.
    pub name: String,
    pub kind: InputKind,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum InputKind {
    Tensor {
        dtype: DType,
        sizes: Vec<Expr>,
        /// The layout the program reads; a caller's tensor of another layout is copied into it.
        strides: Vec<Expr>,
        buffer: BufferId,
        /// The program writes it: the caller's tensor changes.
        written: bool,
    },
    /// An integer, value of a symbol.
    Int,
    /// A float or bool that the program uses, as a buffer of one float64 or bool.
    Number { dtype: DType, buffer: BufferId },
    /// A value that was fixed when the program was exported: another one is refused.
    Fixed(Fixed),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Fixed {
    None,
    Scalar(Scalar),
    Str(String),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Output {
    pub name: String,
    pub kind: OutputKind,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum OutputKind {
    /// A buffer of kind [`BufferKind::Output`], dense in these strides.
    Tensor {
        dtype: DType,
        sizes: Vec<Expr>,
        strides: Vec<Expr>,
        buffer: BufferId,
    },
    Int(Expr),
    Bool(Cond),
    /// One element of a buffer, read back as a Python number.
    Number {
        dtype: DType,
        buffer: BufferId,
    },
    Fixed(Fixed),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Buffer {
    /// Never complex: a complex tensor is a real one with a last dimension of 2.
    pub dtype: DType,
    /// Number of elements.
    pub elements: Expr,
    pub kind: BufferKind,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum BufferKind {
    /// The caller's tensor, input of that number.
    Input(u32),
    /// What is returned, output of that number.
    Output(u32),
    /// Kept from call to call under a name; begins as the data of that key.
    State {
        name: String,
        initial: Data,
    },
    Constant(Data),
    /// In the arena, where [`crate::arena::Layout`] places it.
    Temporary,
}

/// Bytes of a weight or constant, dense in row-major order.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Data {
    /// Named data of the program file or of the files of weights beside it.
    Named(String),
    /// Small values in place.
    Inline(Vec<u8>),
    /// That many zero bytes.
    Zeros(u64),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Step {
    Kernel {
        kernel: u32,
        args: Vec<BufferId>,
    },
    Library(Library),
    /// A matrix product or convolution, then a kernel over its result: what both of these do as steps, in this order. At each point of
    /// its outer loops, which are the dimensions of the result, the kernel reads that element of the result; nothing else reads the result, and
    /// the kernel writes nothing that the product reads. So an executor may do both at once, and leave the result's buffer as it is.
    Fused {
        library: Library,
        kernel: u32,
        args: Vec<BufferId>,
    },
    /// Products and convolutions, with their epilogues or without, none of which writes what another reads or writes: they can be done at once. Their buffers
    /// are all needed throughout.
    Together(Vec<Step>),
    /// Copies all elements; both buffers have as many and one dtype.
    Copy {
        from: BufferId,
        to: BufferId,
    },
    /// Reads the one element of an integer or bool buffer into a symbol.
    Read {
        buffer: BufferId,
        symbol: u32,
    },
    /// Sets a symbol to the value of an expression (sizes of a branch's results).
    Set {
        symbol: u32,
        value: Expr,
    },
    /// The call fails with a message unless the condition holds.
    Require {
        cond: Cond,
        message: u32,
    },
    If {
        predicate: Predicate,
        then: Vec<Step>,
        otherwise: Vec<Step>,
    },
    /// Runs `test`, then, while the predicate holds, `body` and `test` again.
    While {
        test: Vec<Step>,
        predicate: Predicate,
        body: Vec<Step>,
    },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Predicate {
    /// Of symbols.
    Cond(Cond),
    /// The one element of a bool buffer.
    Buffer(BufferId),
}
