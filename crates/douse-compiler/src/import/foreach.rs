//! Operators on lists of tensors (`_foreach_*`): the operator of the same name on each tensor.

use douse_core::Result;

use super::args::{Args, Val};
use super::importer::{Importer, Row};

/// Rows of operators for an overload of theirs, functional and in place.
macro_rules! rows {
    ($overload:literal: $($name:ident)*) => {
        &[$(
            (concat!("aten._foreach_", stringify!($name), ".", $overload), each),
            (concat!("aten._foreach_", stringify!($name), "_.", $overload), each),
        )*]
    };
}

pub const LIST_ROWS: &[Row] = rows!("List": add sub mul div maximum minimum clamp_min clamp_max pow lerp);
pub const SCALAR_ROWS: &[Row] =
    rows!("Scalar": add sub mul div maximum minimum clamp_min clamp_max pow lerp addcmul addcdiv norm);
pub const SCALAR_LIST_ROWS: &[Row] =
    rows!("ScalarList": add sub mul div maximum minimum clamp_min clamp_max pow addcmul addcdiv);
pub const TENSOR_ROWS: &[Row] = rows!("Tensor": add mul div);
pub const OTHER_ROWS: &[Row] = &[("aten._foreach_pow.ScalarAndTensor", each)];
pub const ROWS: &[Row] = rows!("default": abs acos asin atan ceil cos cosh erf erfc exp expm1 floor frac lgamma log log10 log1p log2 max neg
    reciprocal round rsqrt sigmoid sign sin sinh sqrt tan tanh trunc zero);

/// The overload that takes one tensor of the list and its part of the other arguments.
fn single(name: &str, overload: &str) -> String {
    let functional = name.trim_end_matches('_');
    let (operator, overload) = match (functional, overload) {
        ("maximum" | "clamp_min", "Scalar" | "ScalarList") => (name.replacen("maximum", "clamp_min", 1), "default"),
        ("minimum" | "clamp_max", "Scalar" | "ScalarList") => (name.replacen("minimum", "clamp_max", 1), "default"),
        ("clamp_min" | "clamp_max", _) => (name.to_string(), "Tensor"),
        ("maximum" | "minimum", _) => (name.to_string(), "default"),
        ("pow", "ScalarAndTensor") => (name.to_string(), "Scalar"),
        ("norm", _) => ("linalg_vector_norm".to_string(), "default"),
        ("pow", "List") => (name.to_string(), "Tensor_Tensor"),
        ("pow", _) => (name.to_string(), "Tensor_Scalar"),
        ("lerp", "List") => (name.to_string(), "Tensor"),
        ("addcmul" | "addcdiv", _) | (_, "default") => (name.to_string(), "default"),
        // Numbers go the same way as tensors.
        _ => (name.to_string(), "Tensor"),
    };
    format!("aten.{operator}.{overload}")
}

/// What the argument of a list operator is called where it is one tensor's.
fn argument(functional: &str, name: &str) -> String {
    match (functional, name) {
        ("addcmul" | "addcdiv", "scalars") => "value",
        ("lerp", "tensors1") => "end",
        ("lerp", "weights") => "weight",
        ("clamp_min" | "maximum", "scalar" | "scalars") => "min",
        ("clamp_max" | "minimum", "scalar" | "scalars") => "max",
        ("clamp_min", "other") => "min",
        ("clamp_max", "other") => "max",
        ("pow", _) if name != "self" => "exponent",
        (_, "scalar" | "scalars" | "tensor") => "other",
        (_, name) => name,
    }
    .to_string()
}

fn each(imp: &mut Importer, a: &Args) -> Result<Val> {
    let whole = a.target.trim_start_matches("aten._foreach_");
    let Some((name, overload)) = whole.split_once('.') else { return Err(a.unsupported("this name")) };
    let lists = a.values.iter().filter_map(|(_, val)| if let Val::List(list) = val { Some(list.len()) } else { None });
    let count = lists.max().unwrap_or(0);
    let target = single(name, overload);
    let mut results = Vec::with_capacity(count);
    for i in 0..count {
        let mut values = Vec::new();
        for (argument_name, val) in &a.values {
            let val = match val {
                Val::List(list) => match list.get(i) {
                    Some(val) => val.clone(),
                    None => return Err(a.wrong(argument_name, "as long as the list of tensors")),
                },
                other => other.clone(),
            };
            values.push((argument(name.trim_end_matches('_'), argument_name), val));
        }
        results.push(imp.call(&Args { target: target.clone(), values })?);
    }
    Ok(Val::List(results))
}
