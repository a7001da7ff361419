//! What goes into a call and what comes out.

use std::fmt;

use douse_core::{DType, HostTensor, Result, TensorView};
use douse_program::plan::Fixed;

use crate::cuda::DeviceTensor;

/// An input of a call: a caller's tensor or a Python value.
#[derive(Clone, Copy, Debug)]
pub enum Argument<'a> {
    Tensor(TensorView<'a>),
    /// A tensor that is on a CUDA device. One that the program writes is written there.
    Device(&'a DeviceTensor),
    Int(i64),
    Float(f64),
    Bool(bool),
    Str(&'a str),
    None,
}

/// An output of a call, or an input kept for one.
#[derive(Clone, Debug)]
pub enum Value {
    Tensor(HostTensor),
    /// A tensor on a CUDA device: outputs of a method that was loaded with [`outputs_on_device`](crate::LoadOptions::outputs_on_device).
    Device(DeviceTensor),
    Int(i64),
    Float(f64),
    Bool(bool),
    Str(String),
    None,
}

impl Value {
    /// The value as an input that is only read.
    pub fn argument(&self) -> Argument<'_> {
        match self {
            Value::Tensor(tensor) => Argument::Tensor(tensor.view()),
            Value::Device(tensor) => Argument::Device(tensor),
            Value::Int(v) => Argument::Int(*v),
            Value::Float(v) => Argument::Float(*v),
            Value::Bool(v) => Argument::Bool(*v),
            Value::Str(v) => Argument::Str(v),
            Value::None => Argument::None,
        }
    }

    /// The value as an input that the program may write, where it is a tensor.
    pub fn argument_mut(&mut self) -> Argument<'_> {
        match self {
            Value::Tensor(tensor) => Argument::Tensor(tensor.view_mut()),
            other => other.argument(),
        }
    }

    pub fn tensor(&self) -> Option<&HostTensor> {
        match self {
            Value::Tensor(tensor) => Some(tensor),
            _ => None,
        }
    }

    pub fn device_tensor(&self) -> Option<&DeviceTensor> {
        match self {
            Value::Device(tensor) => Some(tensor),
            _ => None,
        }
    }

    /// A value that a program always gives.
    pub(crate) fn fixed(value: &Fixed) -> Result<Value> {
        use douse_core::{Error, Scalar};
        Ok(match value {
            Fixed::None => Value::None,
            Fixed::Str(text) => Value::Str(text.clone()),
            Fixed::Scalar(Scalar::Bool(v)) => Value::Bool(*v),
            Fixed::Scalar(Scalar::Int(v)) => Value::Int(*v),
            Fixed::Scalar(Scalar::Float(v)) => Value::Float(*v),
            Fixed::Scalar(Scalar::Complex(..)) => return Err(Error::not_supported("a complex number as an output")),
        })
    }
}

/// `a float32 tensor`, `an int64 tensor`.
pub(crate) fn tensor_of(dtype: DType) -> String {
    let name = dtype.to_string();
    format!("a{} {name} tensor", if name.starts_with('i') { "n" } else { "" })
}

impl Argument<'_> {
    /// The dtype and sizes of a tensor, wherever it is.
    pub(crate) fn shape(&self) -> Option<(DType, &[usize])> {
        match self {
            Argument::Tensor(view) => Some((view.dtype(), view.sizes())),
            Argument::Device(tensor) => Some((tensor.dtype(), tensor.sizes())),
            _ => None,
        }
    }

    /// What the argument is, for messages: `a float32 tensor`, `the int 3`.
    pub(crate) fn describe(&self) -> String {
        match self {
            Argument::Tensor(view) => tensor_of(view.dtype()),
            Argument::Device(tensor) => tensor_of(tensor.dtype()),
            Argument::Int(v) => format!("the int {v}"),
            Argument::Float(v) => format!("the float {v:?}"),
            Argument::Bool(v) => format!("the bool {v}"),
            Argument::Str(v) => format!("the string {v:?}"),
            Argument::None => "None".to_owned(),
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Tensor(tensor) => write!(f, "{} {:?}", tensor.dtype(), tensor.sizes()),
            Value::Device(tensor) => {
                write!(f, "{} {:?} on {:?}", tensor.dtype(), tensor.sizes(), tensor.device().device())
            }
            Value::Int(v) => write!(f, "{v}"),
            Value::Float(v) => write!(f, "{v:?}"),
            Value::Bool(v) => write!(f, "{v}"),
            Value::Str(v) => write!(f, "{v:?}"),
            Value::None => f.write_str("None"),
        }
    }
}

macro_rules! from {
    ($($type:ty => $variant:ident;)*) => {$(
        impl<'a> From<$type> for Argument<'a> {
            fn from(value: $type) -> Argument<'a> {
                Argument::$variant(value)
            }
        }
    )*};
}
from! {
    TensorView<'a> => Tensor;
    &'a DeviceTensor => Device;
    i64 => Int;
    f64 => Float;
    bool => Bool;
    &'a str => Str;
}
