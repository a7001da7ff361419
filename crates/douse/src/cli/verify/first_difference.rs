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
    for (number, (want, name)) in reference.iter().zip(names).enumerate() {
        let (got, _) = values(location, case, options, call, true, Watch::Node(number))?;
        let (Value::Tensor(want), Some(Value::Tensor(got))) = (want, got.first()) else { continue };
        if let Some(difference) = alike(want, got, tolerance(want.dtype())) {
            return Ok(Some((name, difference)));
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
