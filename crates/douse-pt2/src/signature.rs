//! What the program's inputs and outputs are: the graph signature.

use crate::argument::{Argument, ConstantValue};

/// What an input of the graph is; in the order of the graph's inputs.
#[derive(Clone, Debug, PartialEq)]
pub enum InputSpec {
    /// What the caller gives: a tensor, a symbolic or a plain number, or nothing (`Argument::None`).
    User {
        /// A readable name, from the signature of the model's `forward`: `states[0]`.
        label: String,
        arg: Argument,
    },
    /// What the caller gives and the program was specialised for: any other value is to be refused.
    Constant {
        label: String,
        /// The name in the graph.
        name: String,
        value: ConstantValue,
    },
    Parameter {
        /// The name in the graph.
        arg: String,
        /// The fully qualified name, key of `ExportedProgram::tensors`.
        fqn: String,
    },
    Buffer {
        arg: String,
        fqn: String,
        /// Whether the buffer is part of the state dict.
        persistent: bool,
    },
    TensorConstant {
        arg: String,
        fqn: String,
    },
    CustomObj {
        arg: String,
        class: String,
        fqn: String,
    },
    Token {
        arg: String,
    },
}

/// What an output of the graph is; in the order of the graph's outputs.
#[derive(Clone, Debug, PartialEq)]
pub enum OutputSpec {
    /// What the caller gets.
    User {
        /// A readable name, from the structure of what `forward` returns: `output[0]`, `logits`.
        label: String,
        arg: Argument,
    },
    Loss {
        arg: String,
    },
    /// The new value of a buffer.
    BufferMutation {
        arg: String,
        fqn: String,
    },
    ParameterMutation {
        arg: String,
        fqn: String,
    },
    /// The new value of a user input.
    UserInputMutation {
        arg: String,
        /// The input's name in the graph.
        input: String,
    },
    GradientToParameter {
        arg: String,
        fqn: String,
    },
    GradientToUserInput {
        arg: String,
        input: String,
    },
    Token {
        arg: String,
    },
}

/// The values a symbol can have, both ends included; `None` is unbounded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Range {
    pub min: Option<i64>,
    pub max: Option<i64>,
}
