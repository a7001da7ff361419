//! Arguments of nodes, inputs and outputs of graphs: the schema's union, one variant a kind.

use crate::graph::Graph;
use crate::meta::{self, Device, Layout, MemoryFormat};
use crate::symbolic::Hint;
use crate::union::{Float, Named, Union, float, skip, union};
use douse_core::DType;
use indexmap::IndexMap;
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess};

/// A value that a node takes or gives. Strings in `Tensor`, `SymInt` and the like are names of values of the graph.
#[derive(Clone, Debug, PartialEq)]
pub enum Argument {
    None,
    Tensor(String),
    Tensors(Vec<String>),
    OptionalTensor(Option<String>),
    OptionalTensors(Vec<Option<String>>),
    NestedTensors(Vec<Vec<String>>),
    Int(i64),
    Ints(Vec<i64>),
    IntLists(Vec<Vec<i64>>),
    Float(f64),
    Floats(Vec<f64>),
    FloatLists(Vec<Vec<f64>>),
    Complex(Complex),
    Bool(bool),
    Bools(Vec<bool>),
    Str(String),
    Strs(Vec<String>),
    SymInt(Sym<i64>),
    SymInts(Vec<Sym<i64>>),
    SymFloat(Sym<f64>),
    SymFloats(Vec<Sym<f64>>),
    SymBool(Sym<bool>),
    SymBools(Vec<Sym<bool>>),
    ScalarType(DType),
    MemoryFormat(MemoryFormat),
    Layout(Layout),
    Device(Device),
    /// A subgraph and the name it has in the module.
    Graph(String, Box<Graph>),
    /// The name of an operator.
    Operator(String),
    CustomObj {
        name: String,
        class: String,
    },
    StringToArgument(IndexMap<String, Argument>),
}

/// A symbolic argument: the name of a value of the graph, or a plain number.
#[derive(Clone, Debug, PartialEq)]
pub enum Sym<T> {
    Name(String),
    Value(T),
}

/// A type of [`Sym`], with the kind that its plain values have in the file.
pub(crate) trait Plain: Sized {
    const KIND: &'static str;

    fn read<'de, A: MapAccess<'de>>(map: &mut A) -> Result<Self, A::Error>;

    /// The hint as this type, if it is one.
    fn from_hint(hint: Hint) -> Option<Self>;
}

impl Plain for i64 {
    const KIND: &'static str = "as_int";

    fn read<'de, A: MapAccess<'de>>(map: &mut A) -> Result<i64, A::Error> {
        map.next_value()
    }

    fn from_hint(hint: Hint) -> Option<i64> {
        if let Hint::Int(value) = hint { Some(value) } else { None }
    }
}

impl Plain for f64 {
    const KIND: &'static str = "as_float";

    fn read<'de, A: MapAccess<'de>>(map: &mut A) -> Result<f64, A::Error> {
        Ok(map.next_value::<Float>()?.0)
    }

    fn from_hint(hint: Hint) -> Option<f64> {
        if let Hint::Float(value) = hint { Some(value) } else { None }
    }
}

impl Plain for bool {
    const KIND: &'static str = "as_bool";

    fn read<'de, A: MapAccess<'de>>(map: &mut A) -> Result<bool, A::Error> {
        map.next_value()
    }

    fn from_hint(hint: Hint) -> Option<bool> {
        if let Hint::Bool(value) = hint { Some(value) } else { None }
    }
}

impl<T: Plain> Union for Sym<T> {
    const WHAT: &'static str = "symbolic argument";

    fn read<'de, A: MapAccess<'de>>(kind: &str, map: &mut A) -> Result<Option<Self>, A::Error> {
        match kind {
            "as_name" => Ok(Some(Sym::Name(map.next_value()?))),
            kind if kind == T::KIND => Ok(Some(Sym::Value(T::read(map)?))),
            _ => Ok(None),
        }
    }
}

impl<'de, T: Plain> Deserialize<'de> for Sym<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Sym<T>, D::Error> {
        union(deserializer)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, serde::Deserialize)]
pub struct Complex {
    #[serde(deserialize_with = "float")]
    pub real: f64,
    #[serde(deserialize_with = "float")]
    pub imag: f64,
}

/// A user input or example that is not a tensor: part of the program, to be checked at each call.
#[derive(Clone, Debug, PartialEq)]
pub enum ConstantValue {
    None,
    Int(i64),
    Float(f64),
    Str(String),
    Bool(bool),
}

impl Union for ConstantValue {
    const WHAT: &'static str = "constant";

    fn read<'de, A: MapAccess<'de>>(kind: &str, map: &mut A) -> Result<Option<Self>, A::Error> {
        Ok(Some(match kind {
            "as_none" => {
                skip(map)?;
                ConstantValue::None
            }
            "as_int" => ConstantValue::Int(map.next_value()?),
            "as_float" => ConstantValue::Float(map.next_value::<Float>()?.0),
            "as_string" => ConstantValue::Str(map.next_value()?),
            "as_bool" => ConstantValue::Bool(map.next_value()?),
            _ => return Ok(None),
        }))
    }
}

impl<'de> Deserialize<'de> for ConstantValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ConstantValue, D::Error> {
        union(deserializer)
    }
}

/// An argument of a node, under its name in the operator's schema.
#[derive(Clone, Debug, PartialEq, serde::Deserialize)]
pub struct NamedArgument {
    pub name: String,
    pub arg: Argument,
    #[serde(default)]
    pub kind: ArgumentKind,
}

/// Whether an argument was passed by position or by keyword.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ArgumentKind {
    /// Files before schema 8.3 do not say.
    #[default]
    Unknown,
    Positional,
    Keyword,
}

/// A tensor that may be absent.
struct OptionalTensor(Option<String>);

impl Union for OptionalTensor {
    const WHAT: &'static str = "optional tensor";

    fn read<'de, A: MapAccess<'de>>(kind: &str, map: &mut A) -> Result<Option<Self>, A::Error> {
        match kind {
            "as_tensor" => Ok(Some(OptionalTensor(Some(map.next_value::<Named>()?.name)))),
            "as_none" => {
                skip(map)?;
                Ok(Some(OptionalTensor(None)))
            }
            _ => Ok(None),
        }
    }
}

impl<'de> Deserialize<'de> for OptionalTensor {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<OptionalTensor, D::Error> {
        union(deserializer)
    }
}

#[derive(serde::Deserialize)]
struct GraphArgument {
    name: String,
    graph: Graph,
}

#[derive(serde::Deserialize)]
pub(crate) struct CustomObjArgument {
    pub name: String,
    #[serde(default)]
    pub class_fqn: String,
}

#[derive(serde::Deserialize)]
struct ScalarType(#[serde(deserialize_with = "meta::dtype")] DType);

fn names(tensors: Vec<Named>) -> Vec<String> {
    tensors.into_iter().map(|tensor| tensor.name).collect()
}

fn floats(floats: Vec<Float>) -> Vec<f64> {
    floats.into_iter().map(|float| float.0).collect()
}

impl Union for Argument {
    const WHAT: &'static str = "argument";

    fn read<'de, A: MapAccess<'de>>(kind: &str, map: &mut A) -> Result<Option<Self>, A::Error> {
        Ok(Some(match kind {
            "as_none" => {
                skip(map)?;
                Argument::None
            }
            "as_tensor" => Argument::Tensor(map.next_value::<Named>()?.name),
            "as_tensors" => Argument::Tensors(names(map.next_value()?)),
            "as_optional_tensor" => Argument::OptionalTensor(map.next_value::<OptionalTensor>()?.0),
            "as_optional_tensors" => {
                let tensors: Vec<OptionalTensor> = map.next_value()?;
                Argument::OptionalTensors(tensors.into_iter().map(|tensor| tensor.0).collect())
            }
            "as_nested_tensors" => {
                let lists: Vec<Vec<Named>> = map.next_value()?;
                Argument::NestedTensors(lists.into_iter().map(names).collect())
            }
            "as_int" => Argument::Int(map.next_value()?),
            "as_ints" => Argument::Ints(map.next_value()?),
            "as_int_lists" => Argument::IntLists(map.next_value()?),
            "as_float" => Argument::Float(map.next_value::<Float>()?.0),
            "as_floats" => Argument::Floats(floats(map.next_value()?)),
            "as_float_lists" => {
                let lists: Vec<Vec<Float>> = map.next_value()?;
                Argument::FloatLists(lists.into_iter().map(floats).collect())
            }
            "as_complex" => Argument::Complex(map.next_value()?),
            "as_bool" => Argument::Bool(map.next_value()?),
            "as_bools" => Argument::Bools(map.next_value()?),
            "as_string" => Argument::Str(map.next_value()?),
            "as_strings" => Argument::Strs(map.next_value()?),
            "as_sym_int" => Argument::SymInt(map.next_value()?),
            "as_sym_ints" => Argument::SymInts(map.next_value()?),
            "as_sym_float" => Argument::SymFloat(map.next_value()?),
            "as_sym_floats" => Argument::SymFloats(map.next_value()?),
            "as_sym_bool" => Argument::SymBool(map.next_value()?),
            "as_sym_bools" => Argument::SymBools(map.next_value()?),
            "as_scalar_type" => Argument::ScalarType(map.next_value::<ScalarType>()?.0),
            "as_memory_format" => Argument::MemoryFormat(map.next_value()?),
            "as_layout" => Argument::Layout(map.next_value()?),
            "as_device" => Argument::Device(map.next_value()?),
            "as_graph" => {
                let argument: GraphArgument = map.next_value()?;
                Argument::Graph(argument.name, Box::new(argument.graph))
            }
            "as_operator" => Argument::Operator(map.next_value()?),
            "as_custom_obj" => {
                let argument: CustomObjArgument = map.next_value()?;
                Argument::CustomObj { name: argument.name, class: argument.class_fqn }
            }
            "as_string_to_argument" => Argument::StringToArgument(map.next_value()?),
            _ => return Ok(None),
        }))
    }
}

impl<'de> Deserialize<'de> for Argument {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Argument, D::Error> {
        union(deserializer)
    }
}

impl<'de> Deserialize<'de> for ArgumentKind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ArgumentKind, D::Error> {
        match Option::<i64>::deserialize(deserializer)? {
            Some(1) => Ok(ArgumentKind::Positional),
            Some(2) => Ok(ArgumentKind::Keyword),
            None | Some(0) => Ok(ArgumentKind::Unknown),
            Some(other) => Err(D::Error::custom(format!("unknown way of passing an argument: number {other}"))),
        }
    }
}
