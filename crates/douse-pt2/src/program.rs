//! The exported program, opened.

use crate::argument::ConstantValue;
use crate::bytes::Bytes;
use crate::graph::Graph;
use crate::pytree::TreeSpec;
use crate::signature::{InputSpec, OutputSpec, Range};
use crate::tensor::TensorData;
use indexmap::IndexMap;

/// A program as `torch.export.save` wrote it.
#[derive(Clone, Debug)]
pub struct ExportedProgram {
    /// The model's name in the archive, `model` unless the file says otherwise.
    pub name: String,
    pub graph: Graph,
    /// One for each input of the graph.
    pub input_specs: Vec<InputSpec>,
    /// One for each output of the graph.
    pub output_specs: Vec<OutputSpec>,
    /// The values that symbols can have, by symbol.
    pub ranges: IndexMap<String, Range>,
    /// Parameters, buffers and constants by fully qualified name; every one that `input_specs` names is there.
    pub tensors: IndexMap<String, TensorData>,
    /// Custom objects (script objects and the like) by fully qualified name, as the pickles of the file.
    pub custom_objects: IndexMap<String, Bytes>,
    /// How the arguments are nested: a tuple of positional arguments and a dict of keyword arguments.
    pub in_spec: Option<TreeSpec>,
    pub out_spec: Option<TreeSpec>,
    /// Names of the arguments of `forward`, positional ones first, where the file has them.
    pub forward_arg_names: Option<Vec<String>>,
    /// The inputs that the program was traced with, in the order of the user inputs; `None` where the file has none
    /// or holds them in a form that only Python can read.
    pub example_inputs: Option<Vec<ExampleInput>>,
    /// Conditions on the inputs that PyTorch checks at each call, as Python expressions.
    pub guards_code: Vec<String>,
    /// The dialects the program was checked against: `TRAINING`, `ATEN`.
    pub verifiers: Vec<String>,
    /// Operator sets by namespace.
    pub opset_version: IndexMap<String, i64>,
    /// Major and minor version of the schema the file is written in.
    pub schema_version: (i64, i64),
    pub torch_version: String,
}

/// A leaf of the example inputs.
#[derive(Clone, Debug)]
pub enum ExampleInput {
    Tensor(TensorData),
    Value(ConstantValue),
}
