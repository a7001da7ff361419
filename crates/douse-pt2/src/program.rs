//! The exported program, opened.

use crate::argument::ConstantValue;
use crate::examples;
use crate::graph::Graph;
use crate::package::Package;
use crate::pytree::TreeSpec;
use crate::signature::{self, InputSpec, OutputSpec, Range};
use crate::tensor::{StorageIds, TensorData};
use crate::{weights, wire};
use douse_core::Result;
use douse_core::bytes::Bytes;
use indexmap::IndexMap;
use std::path::Path;

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

impl ExportedProgram {
    /// Maps a file and reads the program in it: the only one, or the one called `model`.
    ///
    /// # Errors
    /// When the file cannot be read, is something other than a `.pt2` archive, is damaged, or holds what this version
    /// does not know. Messages name the file and the place in it.
    pub fn open(path: &Path) -> Result<ExportedProgram> {
        open(path, |bytes| read(bytes, None))
    }

    /// As [`open`](Self::open), for the model of this name.
    pub fn open_model(path: &Path, model: &str) -> Result<ExportedProgram> {
        open(path, |bytes| read(bytes, Some(model)))
    }

    /// As [`open`](Self::open), for a file that is in memory.
    pub fn from_bytes(bytes: Bytes) -> Result<ExportedProgram> {
        read(bytes, None)
    }

    /// The user inputs among the input specifications, in the order of the caller's flattened arguments.
    pub fn user_inputs(&self) -> impl Iterator<Item = &InputSpec> {
        self.input_specs.iter().filter(|spec| spec.is_user())
    }

    /// The user outputs among the output specifications, in the order of the flattened results.
    pub fn user_outputs(&self) -> impl Iterator<Item = &OutputSpec> {
        self.output_specs.iter().filter(|spec| spec.is_user())
    }
}

/// The names of the models that an archive holds.
///
/// # Errors
/// As [`ExportedProgram::open`].
pub fn model_names(path: &Path) -> Result<Vec<String>> {
    Ok(open(path, Package::open)?.models)
}

/// Maps a file and makes something of it; every error names the file.
fn open<T>(path: &Path, read: impl FnOnce(Bytes) -> Result<T>) -> Result<T> {
    let bytes = Bytes::open(path)?;
    read(bytes).map_err(|error| error.at(path.display()))
}

fn read(bytes: Bytes, model: Option<&str>) -> Result<ExportedProgram> {
    let mut package = Package::open(bytes)?;
    let name = package.choose(model)?;
    let (json, entry) = package.program(&name)?;
    let program = wire::read(&json).map_err(|error| error.at(entry))?;
    let mut ids = StorageIds::default();
    let weights = weights::read(&mut package, &name, &mut ids)?;

    let module = program.graph_module;
    let fields = module.treespec_namedtuple_fields.into_iter().map(|(kind, tuple)| (kind, tuple.field_names));
    let fields: IndexMap<String, Vec<String>> = fields.collect();
    let call = module.module_call_graph.into_iter().find(|call| call.fqn.is_empty()).and_then(|call| call.signature);
    let in_spec = call.as_ref().and_then(|call| TreeSpec::read(&call.in_spec, &fields));
    let out_spec = call.as_ref().and_then(|call| TreeSpec::read(&call.out_spec, &fields));
    let forward_arg_names = call.and_then(|call| call.forward_arg_names);

    let (mut input_specs, mut output_specs) = (module.signature.input_specs, module.signature.output_specs);
    signature::label_inputs(&mut input_specs, in_spec.as_ref(), forward_arg_names.as_deref());
    signature::label_outputs(&mut output_specs, out_spec.as_ref());
    signature::check(&module.graph, &input_specs, &output_specs, &weights.tensors)?;

    let users = input_specs.iter().filter(|spec| spec.is_user()).count();
    let example_inputs = examples::read(&mut package, &name, in_spec.as_ref(), users, &mut ids);
    Ok(ExportedProgram {
        name,
        graph: module.graph,
        input_specs,
        output_specs,
        ranges: program.range_constraints.into_iter().map(|(symbol, range)| (symbol, range.into())).collect(),
        tensors: weights.tensors,
        custom_objects: weights.custom_objects,
        in_spec,
        out_spec,
        forward_arg_names,
        example_inputs,
        guards_code: program.guards_code,
        verifiers: program.verifiers,
        opset_version: program.opset_version,
        schema_version: (program.schema_version.major, program.schema_version.minor),
        torch_version: program.torch_version,
    })
}
