//! The inputs of a call, from what `--input` names.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use douse::{MethodMeta, Value, ValueKind};

use super::failure::{Done, Failure};
use super::tensors;

/// Reads every `--input` and puts each value in its place: by its name where an input has that name, else by position
/// among those that are not yet given.
pub fn read(arguments: &[OsString], meta: &MethodMeta) -> Done<Vec<Value>> {
    let mut slots: Vec<Option<Value>> = vec![None; meta.inputs.len()];
    let mut rest = Vec::new();
    for argument in arguments {
        for (name, value) in parse(argument, meta)? {
            let place = name.as_deref().and_then(|name| meta.inputs.iter().position(|i| i.name == name));
            match place.and_then(|i| slots.get_mut(i)) {
                Some(slot) if slot.is_some() => {
                    return Err(Failure::Usage(format!("input {:?} is given twice", name.unwrap_or_default())));
                }
                Some(slot) => *slot = Some(value),
                None => rest.push((name, value)),
            }
        }
    }
    let given = slots.iter().flatten().count() + rest.len();
    let mut rest = rest.into_iter();
    for (slot, input) in slots.iter_mut().zip(&meta.inputs) {
        // A value that never changes need not be given.
        if slot.is_none() {
            *slot = match &input.kind {
                ValueKind::Fixed(value) if given < meta.inputs.len() => Some(value.clone()),
                _ => rest.next().map(|(_, value)| value),
            };
        }
    }
    if let Some((name, _)) = rest.next() {
        let what = name.map_or("a value".to_owned(), |name| format!("{name:?}"));
        return Err(Failure::Usage(format!("{what} is given beyond the method's inputs: {}", names(meta))));
    }
    let missing: Vec<&str> =
        slots.iter().zip(&meta.inputs).filter(|(slot, _)| slot.is_none()).map(|(_, i)| i.name.as_str()).collect();
    if !missing.is_empty() {
        return Err(Failure::Usage(format!("inputs are missing: {} (of {})", missing.join(", "), names(meta))));
    }
    Ok(slots.into_iter().flatten().collect())
}

fn names(meta: &MethodMeta) -> String {
    meta.inputs.iter().map(|i| i.name.as_str()).collect::<Vec<_>>().join(", ")
}

/// `FILE`, `NAME=FILE`, a JSON scalar, or `NAME=SCALAR`.
fn parse(argument: &OsStr, meta: &MethodMeta) -> Done<Vec<(Option<String>, Value)>> {
    // Names of inputs and scalars are text; a path may be any bytes.
    let Some(argument) = argument.to_str() else { return parse_file(Path::new(argument)) };
    let named = argument.split_once('=');
    let Some((name, rest)) = named.filter(|(name, _)| meta.inputs.iter().any(|input| input.name == *name)) else {
        return parse_value(argument).map_err(|failure| match named {
            // An equals sign may also stand in the name of a file.
            Some((name, _)) if !Path::new(argument).exists() => {
                Failure::Usage(format!("--input {argument}: there is no input {name:?}; there are {}", names(meta)))
            }
            _ => failure,
        });
    };
    let mut values = parse_value(rest)?;
    match (values.pop(), values.is_empty()) {
        (Some((_, value)), true) => Ok(vec![(Some(name.to_owned()), value)]),
        _ => Err(Failure::Usage(format!("{rest} holds several tensors, {name} takes one"))),
    }
}

fn parse_file(path: &Path) -> Done<Vec<(Option<String>, Value)>> {
    Ok(tensors::read(path)?.into_iter().map(|(name, tensor)| (name, Value::Tensor(tensor))).collect())
}

fn parse_value(text: &str) -> Done<Vec<(Option<String>, Value)>> {
    if tensors::is_tensor_file(Path::new(text)) {
        return parse_file(Path::new(text));
    }
    use serde_json::Value as Json;
    let value = match serde_json::from_str::<Json>(text) {
        Ok(Json::Null) => Value::None,
        Ok(Json::Bool(v)) => Value::Bool(v),
        Ok(Json::Number(n)) => match n.as_i64() {
            Some(v) => Value::Int(v),
            None => Value::Float(n.as_f64().unwrap_or(f64::NAN)),
        },
        Ok(Json::String(v)) => Value::Str(v),
        _ => {
            return Err(Failure::Usage(format!(
                "--input {text}: expected a .npy, .npz or .safetensors file, or a JSON scalar (3, 1.5, true, null, \"text\")"
            )));
        }
    };
    Ok(vec![(None, value)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use douse::ValueMeta;

    fn meta() -> MethodMeta {
        let input = |name: &str, kind| ValueMeta { name: name.into(), kind };
        MethodMeta {
            name: "forward".into(),
            targets: vec![],
            inputs: vec![
                input("n", ValueKind::Int),
                input("scale", ValueKind::Float),
                input("mode", ValueKind::Fixed(Value::Str("fast".into()))),
            ],
            outputs: vec![],
            states: vec![],
            in_spec: None,
            out_spec: None,
        }
    }

    fn given(arguments: &[&str]) -> Result<Vec<String>, String> {
        let arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
        match read(&arguments, &meta()) {
            Ok(values) => Ok(values.iter().map(Value::to_string).collect()),
            Err(Failure::Usage(message) | Failure::No(message)) => Err(message),
            Err(Failure::Silent | Failure::Closed) => Err(String::new()),
        }
    }

    #[test]
    fn values_by_position_and_by_name() {
        assert_eq!(given(&["3", "1.5"]).unwrap(), ["3", "1.5", "\"fast\""]);
        assert_eq!(given(&["scale=1.5", "3"]).unwrap(), ["3", "1.5", "\"fast\""]);
        assert_eq!(given(&["3", "1.5", "\"a=b\""]).unwrap(), ["3", "1.5", "\"a=b\""]);
    }

    #[test]
    fn what_does_not_fit_is_named() {
        assert_eq!(given(&["3"]).unwrap_err(), "inputs are missing: scale (of n, scale, mode)");
        assert!(given(&["3", "1.5", "\"fast\"", "4"]).unwrap_err().contains("beyond the method's inputs"));
        assert!(given(&["n=3", "n=4"]).unwrap_err().contains("\"n\" is given twice"));
        assert!(given(&["m=3"]).unwrap_err().contains("no input \"m\"; there are n, scale, mode"));
        assert!(given(&["photo.jpg"]).unwrap_err().contains("--input photo.jpg: expected"));
        assert!(given(&["missing.npy"]).unwrap_err().contains("cannot read missing.npy"));
    }
}
