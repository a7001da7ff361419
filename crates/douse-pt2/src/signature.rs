//! What the program's inputs and outputs are: the graph signature.

use crate::argument::{Argument, ConstantValue};
use crate::graph::Graph;
use crate::pytree::TreeSpec;
use crate::symbolic::Symbolic;
use crate::tensor::TensorData;
use douse_core::{Error, Result};
use indexmap::IndexMap;

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

impl InputSpec {
    /// Whether the caller gives this input.
    pub fn is_user(&self) -> bool {
        matches!(self, InputSpec::User { .. } | InputSpec::Constant { .. })
    }

    fn label_mut(&mut self) -> Option<&mut String> {
        match self {
            InputSpec::User { label, .. } | InputSpec::Constant { label, .. } => Some(label),
            _ => None,
        }
    }

    /// The value's name in the graph and the name of the tensor that it is, for inputs that the file holds.
    fn stored(&self) -> Option<(&str, &str)> {
        match self {
            InputSpec::Parameter { arg, fqn }
            | InputSpec::Buffer { arg, fqn, .. }
            | InputSpec::TensorConstant { arg, fqn } => Some((arg, fqn)),
            _ => None,
        }
    }
}

impl OutputSpec {
    /// Whether the caller gets this output.
    pub fn is_user(&self) -> bool {
        matches!(self, OutputSpec::User { .. } | OutputSpec::Loss { .. })
    }
}

/// Names the user inputs after the arguments of `forward`, where these fit them in number.
pub(crate) fn label_inputs(specs: &mut [InputSpec], tree: Option<&TreeSpec>, forward: Option<&[String]>) {
    let labels: Vec<&mut String> = specs.iter_mut().filter_map(InputSpec::label_mut).collect();
    give(labels, tree, |tree| tree.input_labels(forward), "input");
}

/// Names the user outputs after the structure of the results, where it fits them in number.
pub(crate) fn label_outputs(specs: &mut [OutputSpec], tree: Option<&TreeSpec>) {
    let label = |spec| if let &mut OutputSpec::User { ref mut label, .. } = spec { Some(label) } else { None };
    let labels: Vec<&mut String> = specs.iter_mut().filter_map(label).collect();
    give(labels, tree, TreeSpec::output_labels, "output");
}

fn give(labels: Vec<&mut String>, tree: Option<&TreeSpec>, names: impl Fn(&TreeSpec) -> Vec<String>, kind: &str) {
    let names = tree.filter(|tree| tree.leaves() == labels.len()).map(names).unwrap_or_default();
    let mut names = names.into_iter();
    for (i, label) in labels.into_iter().enumerate() {
        match names.next() {
            Some(name) => *label = name,
            // A plain number has no name in the graph either.
            None if label.is_empty() => *label = format!("{kind}[{i}]"),
            None => {}
        }
    }
}

/// Checks that the specifications, the graph and the tensors of the file fit each other.
pub(crate) fn check(
    graph: &Graph,
    inputs: &[InputSpec],
    outputs: &[OutputSpec],
    tensors: &IndexMap<String, TensorData>,
) -> Result<()> {
    for (what, values, specs) in
        [("inputs", graph.inputs.len(), inputs.len()), ("outputs", graph.outputs.len(), outputs.len())]
    {
        if values != specs {
            let message = format!("the graph has {values} {what} and its signature describes {specs}");
            return Err(Error::invalid_program(message));
        }
    }
    for (arg, fqn) in inputs.iter().filter_map(InputSpec::stored) {
        let Some(tensor) = tensors.get(fqn) else {
            let message = format!("the file does not hold the weights `{fqn}`; export the model with its weights");
            return Err(Error::invalid_program(message));
        };
        let Some(meta) = graph.tensor_values.get(arg) else {
            return Err(Error::invalid_program(format!("the graph does not describe its input `{arg}`")));
        };
        let fits = |size: &usize, meta: &Symbolic<i64>| match meta {
            Symbolic::Value(value) => i64::try_from(*size) == Ok(*value),
            Symbolic::Expr { .. } => true,
        };
        let sizes_fit = tensor.sizes().len() == meta.sizes.len()
            && tensor.sizes().iter().zip(&meta.sizes).all(|(size, meta)| fits(size, meta));
        if tensor.dtype() != meta.dtype || !sizes_fit {
            let sizes: Vec<String> = meta.sizes.iter().map(ToString::to_string).collect();
            return Err(Error::invalid_program(format!(
                "the file holds `{fqn}` as {} of sizes {:?} where the graph says {} of sizes [{}]",
                tensor.dtype(),
                tensor.sizes(),
                meta.dtype,
                sizes.join(", ")
            )));
        }
    }
    Ok(())
}
