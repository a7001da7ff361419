//! The JSON of a program: what is around the graph, and where in it a fault is.

use crate::argument::{Argument, ConstantValue, CustomObjArgument, NamedArgument, Sym};
use crate::graph::{Graph, Node};
use crate::meta::TensorMeta;
use crate::signature::{InputSpec, OutputSpec, Range};
use crate::union::{Named, Union, union};
use douse_core::{Code, Error, Result};
use indexmap::IndexMap;
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess};

/// The major version of the schema that is read.
const SCHEMA: i64 = 8;

#[derive(Deserialize)]
pub(crate) struct Program {
    pub graph_module: GraphModule,
    #[serde(default)]
    pub opset_version: IndexMap<String, i64>,
    #[serde(default)]
    pub range_constraints: IndexMap<String, RangeConstraint>,
    pub schema_version: SchemaVersion,
    #[serde(default)]
    pub verifiers: Vec<String>,
    #[serde(default)]
    pub torch_version: String,
    #[serde(default)]
    pub guards_code: Vec<String>,
}

#[derive(Clone, Copy, Deserialize)]
pub(crate) struct SchemaVersion {
    pub major: i64,
    #[serde(default)]
    pub minor: i64,
}

#[derive(Deserialize)]
pub(crate) struct RangeConstraint {
    min_val: Option<i64>,
    max_val: Option<i64>,
}

impl From<RangeConstraint> for Range {
    fn from(range: RangeConstraint) -> Range {
        Range { min: range.min_val, max: range.max_val }
    }
}

#[derive(Deserialize)]
pub(crate) struct GraphModule {
    pub graph: Graph,
    pub signature: Signature,
    #[serde(default)]
    pub module_call_graph: Vec<ModuleCall>,
    #[serde(default)]
    pub treespec_namedtuple_fields: IndexMap<String, NamedTuple>,
}

#[derive(Deserialize)]
pub(crate) struct Signature {
    pub input_specs: Vec<InputSpec>,
    pub output_specs: Vec<OutputSpec>,
}

#[derive(Deserialize)]
pub(crate) struct ModuleCall {
    pub fqn: String,
    #[serde(default)]
    pub signature: Option<ModuleCallSignature>,
}

#[derive(Deserialize)]
pub(crate) struct ModuleCallSignature {
    pub in_spec: String,
    pub out_spec: String,
    #[serde(default)]
    pub forward_arg_names: Option<Vec<String>>,
}

#[derive(Deserialize)]
pub(crate) struct NamedTuple {
    pub field_names: Vec<String>,
}

/// Reads the JSON of a program.
///
/// # Errors
/// For another major version of the schema, and for JSON that is not as the schema says, with the node it is in.
pub(crate) fn read(json: &[u8]) -> Result<Program> {
    match serde_json::from_slice::<Program>(json) {
        Ok(program) => {
            check_version(program.schema_version)?;
            Ok(program)
        }
        Err(error) => {
            #[derive(Deserialize)]
            struct Version {
                schema_version: SchemaVersion,
            }
            if let Ok(version) = serde_json::from_slice::<Version>(json) {
                check_version(version.schema_version)?;
            }
            let text = error.to_string();
            Err(blame(json).unwrap_or_else(|| Error::invalid_program(format!("not the JSON of a program: {text}"))))
        }
    }
}

fn check_version(version: SchemaVersion) -> Result<()> {
    if version.major == SCHEMA {
        return Ok(());
    }
    Err(Error::new(
        Code::NotSupported,
        format!(
            "the program is written in version {}.{} of the export schema, and only {SCHEMA}.x can be read; export it \
             again with a PyTorch that writes {SCHEMA}.x (2.5 and later)",
            version.major, version.minor
        ),
    ))
}

/// Finds the node, value or specification that does not read, and says what it is. Only for files that did not read.
fn blame(json: &[u8]) -> Option<Error> {
    let file: serde_json::Value = serde_json::from_slice(json).ok()?;
    let module = file.get("graph_module")?;
    blame_graph(module.get("graph")?).or_else(|| blame_signature(module.get("signature")?))
}

fn fault<'a, T: Deserialize<'a>>(value: &'a serde_json::Value) -> Option<Error> {
    let error = T::deserialize(value).err()?;
    Some(Error::new(Code::NotSupported, error.to_string()))
}

fn blame_graph(graph: &serde_json::Value) -> Option<Error> {
    for node in graph.get("nodes")?.as_array()? {
        let Some(error) = fault::<Node>(node) else { continue };
        let target = node.get("target").and_then(|target| target.as_str()).unwrap_or("?");
        let name = node.get("name").and_then(|name| name.as_str()).unwrap_or("without a name");
        return Some(blame_argument(node).unwrap_or(error).at(format!("node `{name}` ({target})")));
    }
    for (name, meta) in graph.get("tensor_values")?.as_object()? {
        if let Some(error) = fault::<TensorMeta>(meta) {
            return Some(error.at(format!("tensor `{name}`")));
        }
    }
    for part in ["inputs", "outputs"] {
        for argument in graph.get(part)?.as_array()? {
            if let Some(error) = fault::<Argument>(argument) {
                return Some(error.at(format!("{part} of the graph")));
            }
        }
    }
    None
}

fn blame_argument(node: &serde_json::Value) -> Option<Error> {
    for input in node.get("inputs")?.as_array()? {
        let Some(error) = fault::<NamedArgument>(input) else { continue };
        let name = input.get("name").and_then(|name| name.as_str()).unwrap_or("?");
        let inner = input.pointer("/arg/as_graph/graph").and_then(blame_graph);
        return Some(inner.unwrap_or(error).at(format!("argument `{name}`")));
    }
    None
}

fn blame_signature(signature: &serde_json::Value) -> Option<Error> {
    let inputs = signature.get("input_specs")?.as_array()?.iter().find_map(fault::<InputSpec>);
    inputs.or_else(|| signature.get("output_specs")?.as_array()?.iter().find_map(fault::<OutputSpec>))
}

#[derive(Deserialize)]
struct Arg<T> {
    arg: T,
}

/// A value and the parameter, buffer, constant or input that it stands for.
#[derive(Deserialize)]
struct Bound<T> {
    arg: T,
    #[serde(
        alias = "parameter_name",
        alias = "buffer_name",
        alias = "tensor_constant_name",
        alias = "custom_obj_name",
        alias = "user_input_name"
    )]
    of: String,
    #[serde(default)]
    persistent: bool,
}

#[derive(Deserialize)]
struct NamedConstant {
    name: String,
    value: ConstantValue,
}

/// What to call an input or output for which the file holds no better name: its name in the graph.
fn graph_name(argument: &Argument) -> String {
    match argument {
        Argument::Tensor(name)
        | Argument::SymInt(Sym::Name(name))
        | Argument::SymFloat(Sym::Name(name))
        | Argument::SymBool(Sym::Name(name))
        | Argument::CustomObj { name, .. } => name.clone(),
        _ => String::new(),
    }
}

impl Union for InputSpec {
    const WHAT: &'static str = "input specification";

    fn read<'de, A: MapAccess<'de>>(kind: &str, map: &mut A) -> Result<Option<Self>, A::Error> {
        Ok(Some(match kind {
            "user_input" => {
                let arg = map.next_value::<Arg<Argument>>()?.arg;
                InputSpec::User { label: graph_name(&arg), arg }
            }
            "constant_input" => {
                let NamedConstant { name, value } = map.next_value()?;
                InputSpec::Constant { label: name.clone(), name, value }
            }
            "parameter" => {
                let Bound { arg: Named { name: arg }, of: fqn, .. } = map.next_value()?;
                InputSpec::Parameter { arg, fqn }
            }
            "buffer" => {
                let Bound { arg: Named { name: arg }, of: fqn, persistent } = map.next_value()?;
                InputSpec::Buffer { arg, fqn, persistent }
            }
            "tensor_constant" => {
                let Bound { arg: Named { name: arg }, of: fqn, .. } = map.next_value()?;
                InputSpec::TensorConstant { arg, fqn }
            }
            "custom_obj" => {
                let Bound { arg: CustomObjArgument { name, class_fqn }, of: fqn, .. } = map.next_value()?;
                InputSpec::CustomObj { arg: name, class: class_fqn, fqn }
            }
            "token" => InputSpec::Token { arg: map.next_value::<Arg<Named>>()?.arg.name },
            _ => return Ok(None),
        }))
    }
}

impl<'de> Deserialize<'de> for InputSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<InputSpec, D::Error> {
        union(deserializer)
    }
}

impl Union for OutputSpec {
    const WHAT: &'static str = "output specification";

    fn read<'de, A: MapAccess<'de>>(kind: &str, map: &mut A) -> Result<Option<Self>, A::Error> {
        let bound = |map: &mut A| -> Result<(String, String), A::Error> {
            let Bound { arg: Named { name }, of, .. } = map.next_value()?;
            Ok((name, of))
        };
        Ok(Some(match kind {
            "user_output" => {
                let arg = map.next_value::<Arg<Argument>>()?.arg;
                OutputSpec::User { label: graph_name(&arg), arg }
            }
            "loss_output" => OutputSpec::Loss { arg: map.next_value::<Arg<Named>>()?.arg.name },
            "buffer_mutation" => {
                let (arg, fqn) = bound(map)?;
                OutputSpec::BufferMutation { arg, fqn }
            }
            "parameter_mutation" => {
                let (arg, fqn) = bound(map)?;
                OutputSpec::ParameterMutation { arg, fqn }
            }
            "user_input_mutation" => {
                let (arg, input) = bound(map)?;
                OutputSpec::UserInputMutation { arg, input }
            }
            "gradient_to_parameter" => {
                let (arg, fqn) = bound(map)?;
                OutputSpec::GradientToParameter { arg, fqn }
            }
            "gradient_to_user_input" => {
                let (arg, input) = bound(map)?;
                OutputSpec::GradientToUserInput { arg, input }
            }
            "token" => OutputSpec::Token { arg: map.next_value::<Arg<Named>>()?.arg.name },
            _ => return Ok(None),
        }))
    }
}

impl<'de> Deserialize<'de> for OutputSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<OutputSpec, D::Error> {
        union(deserializer)
    }
}
