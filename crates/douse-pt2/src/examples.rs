//! The inputs that a program was traced with. They are a help, never needed: what cannot be read is done without.

use crate::argument::ConstantValue;
use crate::package::Package;
use crate::pickle::Value;
use crate::program::ExampleInput;
use crate::pytree::TreeSpec;
use crate::tensor::StorageIds;
use crate::torch_save;
use indexmap::IndexMap;

/// The example inputs in the order of the user inputs, of which there are `users`.
pub(crate) fn read(
    package: &mut Package,
    model: &str,
    spec: Option<&TreeSpec>,
    users: usize,
    ids: &mut StorageIds,
) -> Option<Vec<ExampleInput>> {
    let bytes = package.example_inputs(model).ok()??;
    let value = torch_save::read(&bytes, ids).ok()?;
    let mut leaves = Vec::new();
    flatten(value, spec, &mut leaves)?;
    (leaves.len() == users).then_some(leaves)
}

/// Appends the leaves of `value`; `None` if one is no argument of a program.
fn flatten(value: Value, spec: Option<&TreeSpec>, leaves: &mut Vec<ExampleInput>) -> Option<()> {
    let child = |i: usize| match spec {
        Some(TreeSpec::Node { children, .. }) => children.get(i),
        _ => None,
    };
    match value {
        Value::Tensor(tensor) => leaves.push(ExampleInput::Tensor(tensor)),
        Value::None => leaves.push(ExampleInput::Value(ConstantValue::None)),
        Value::Bool(value) => leaves.push(ExampleInput::Value(ConstantValue::Bool(value))),
        Value::Int(value) => leaves.push(ExampleInput::Value(ConstantValue::Int(value))),
        Value::Float(value) => leaves.push(ExampleInput::Value(ConstantValue::Float(value))),
        Value::Str(value) => leaves.push(ExampleInput::Value(ConstantValue::Str(value))),
        Value::List(items) => {
            for (i, item) in items.into_iter().enumerate() {
                flatten(item, child(i), leaves)?;
            }
        }
        Value::Dict(mut items) => {
            // Arguments stand in the order of the signature, which need not be that of the example.
            if let Some(TreeSpec::Node { keys: Some(keys), .. }) = spec {
                let places: IndexMap<&str, ()> = keys.iter().map(|key| (key.as_str(), ())).collect();
                items.sort_by_key(|(key, _)| match key {
                    Value::Str(name) => places.get_index_of(name.as_str()),
                    _ => None,
                });
            }
            for (i, (_, item)) in items.into_iter().enumerate() {
                flatten(item, child(i), leaves)?;
            }
        }
        Value::Other(_) => return None,
    }
    Some(())
}
