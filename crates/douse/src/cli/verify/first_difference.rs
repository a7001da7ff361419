//! The first node whose value is another one when nodes are fused: where to look for a fault of fusion.
//!
//! The unfused program returns the value of every node; the fused one is lowered once for each, to return that value alone, since more outputs would
//! change what is fused.

use douse::{DType, Error, LowerOptions, Refused, Value, Watch};

use super::case::Case;
use super::case::Location;
use super::compare::{Difference, alike};
use super::runner::{Options, load};
use crate::cli::run::run_call;

/// What was found, as the end of a sentence.
pub fn describe(location: &Location, case: &Case, options: &Options, call: usize) -> String {
    match find(location, case, options, call) {
        Ok(Some((node, difference))) => format!("fused and unfused first differ at {node}: {}", difference.message),
        Ok(None) => "fused and unfused agree at every node".to_owned(),
        Err(error) => format!("where fused and unfused differ was not found: {}", error.message),
    }
}

fn find(
    location: &Location,
    case: &Case,
    options: &Options,
    call: usize,
) -> Result<Option<(String, Difference)>, Error> {
    let (reference, names) = values(location, case, options, call, false, Watch::Nodes)?;
    let nodes: Vec<(String, Value)> = names.into_iter().zip(reference).collect();
    first(&nodes, |number| {
        let (fused, _) = values(location, case, options, call, true, Watch::Node(number))?;
        Ok(fused.into_iter().next())
    })
}

/// The first of these nodes that `fused` gives another value, and how they differ.
///
/// # Errors
/// Where `fused` has no value for a node: its program has other nodes.
fn first(
    nodes: &[(String, Value)],
    mut fused: impl FnMut(usize) -> Result<Option<Value>, Error>,
) -> Result<Option<(String, Difference)>, Error> {
    for (number, (name, want)) in nodes.iter().enumerate() {
        let Value::Tensor(want) = want else { continue };
        let Some(Value::Tensor(got)) = fused(number)? else {
            return Err(Error::internal(format!("the fused program has no {name}")));
        };
        if let Some(difference) = alike(want, &got, tolerance(want.dtype())) {
            return Ok(Some((name.clone(), difference)));
        }
    }
    Ok(None)
}

/// How far apart, relatively, two ways to the same value may come out.
fn tolerance(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => 1e-10,
        DType::F32 => 1e-4,
        _ if dtype.is_float() => 0.05,
        _ => 0.0,
    }
}

/// What a program returns in that call, after those before it, and the names of the outputs.
fn values(
    location: &Location,
    case: &Case,
    options: &Options,
    call: usize,
    fuse: bool,
    watch: Watch,
) -> Result<(Vec<Value>, Vec<String>), Error> {
    let lower = LowerOptions { fuse, watch, ..options.lower.clone() };
    let options = Options { lower, ..options.clone() };
    let (mut method, meta) = load(location, &options).map_err(|refused: Refused| Error::from(refused))?;
    let mut results = Vec::new();
    for call in case.calls.iter().take(call + 1) {
        let mut inputs = call.inputs.iter().map(|arg| case.value(arg)).collect::<Result<Vec<_>, _>>()?;
        match run_call(&mut method, &meta, &mut inputs) {
            Ok(outputs) => results = outputs,
            Err(_) if call.error.is_some() => {}
            Err(error) => return Err(error),
        }
    }
    Ok((results, meta.outputs.iter().map(|o| o.name.clone()).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use douse::HostTensor;

    fn nodes(values: &[&[f32]]) -> Vec<(String, Value)> {
        let tensor = |v: &&[f32]| Value::Tensor(HostTensor::from_f32(&[v.len()], v).unwrap());
        values.iter().enumerate().map(|(i, v)| (format!("node {i}"), tensor(v))).collect()
    }

    /// The node that is found, and how many fused values were asked for.
    fn search(unfused: &[&[f32]], fused: &[&[f32]]) -> (Result<Option<String>, Error>, usize) {
        let (unfused, fused) = (nodes(unfused), nodes(fused));
        let mut asked = 0;
        let found = first(&unfused, |number| {
            asked += 1;
            Ok(fused.get(number).map(|(_, value)| value.clone()))
        });
        (found.map(|found| found.map(|(name, _)| name)), asked)
    }

    #[test]
    fn the_first_node_that_differs_is_named_and_the_search_ends_there() {
        let unfused: &[&[f32]] = &[&[1.0, 2.0], &[3.0], &[f32::NAN, 5.0], &[6.0]];
        assert_eq!(search(unfused, unfused), (Ok(None), 4));
        // Rounding is no difference; a later one that follows from the first is not asked for.
        let perturbed: &[&[f32]] = &[&[1.00001, 2.0], &[3.0], &[f32::NAN, 5.01], &[7.0]];
        assert_eq!(search(unfused, perturbed), (Ok(Some("node 2".into())), 3));
        assert_eq!(search(unfused, &[&[1.0, 2.0], &[3.0], &[4.0, 5.0], &[6.0]]).0, Ok(Some("node 2".into())));
        assert_eq!(search(unfused, &[&[1.0], &[3.0]]).0, Ok(Some("node 0".into())), "other sizes");
    }

    #[test]
    fn a_missing_node_is_not_taken_for_an_equal_one() {
        let (found, _) = search(&[&[1.0], &[2.0]], &[&[1.0]]);
        assert!(found.unwrap_err().message.contains("no node 1"));
    }
}
