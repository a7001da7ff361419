//! Whether a case's calls give the same bits by CUDA graphs as without, and whether the graphs stay on.

use douse::{CudaGraph, Error, LoadOptions, Method, MethodMeta, Program, Result, Session, Value};

use super::case::Case;
use super::report::Verdict;
use crate::cli::run::run_call;

/// How often the calls are made: once to warm up, once to record, and three times to replay.
const ROUNDS: usize = 5;
/// Of both sessions, so that random numbers agree.
const SEED: u64 = 1;

/// Makes the case's calls again and again, plainly and by graphs, side by side; state goes on. `None`: all is well.
///
/// # Errors
/// What loading says; why the method has stopped using graphs.
pub fn check(case: &Case, program: &Program, meta: &MethodMeta, load: &LoadOptions) -> Result<Option<Verdict>> {
    let graph = CudaGraph { warm_up: 1, ..load.cuda_graph.clone().unwrap_or_default() };
    let mut plain = program.load("forward", &LoadOptions { cuda_graph: None, ..load.clone() })?;
    let mut replayed = program.load("forward", &LoadOptions { cuda_graph: Some(graph), ..load.clone() })?;
    for method in [&mut plain, &mut replayed] {
        *method.session() = Session::with_seed(SEED);
    }
    for round in 0..ROUNDS {
        for (number, call) in case.calls.iter().enumerate() {
            let inputs = || call.inputs.iter().map(|arg| case.value(arg)).collect::<Result<Vec<Value>>>();
            let place =
                |what: String| Verdict::wrong(format!("{what}, by CUDA graphs, in round {round}")).in_call(number);
            let (mut a, mut b) = (inputs()?, inputs()?);
            let run = |method: &mut Method, inputs: &mut Vec<Value>| run_call(method, meta, inputs);
            match (run(&mut plain, &mut a), run(&mut replayed, &mut b)) {
                (Ok(expected), Ok(found)) => {
                    if let Some(output) = first_difference(&expected, &found) {
                        return Ok(Some(place(format!("output {output} differs"))));
                    }
                    if let Some(input) = first_difference(&a, &b) {
                        return Ok(Some(place(format!("written input {input} differs"))));
                    }
                }
                (Err(expected), Err(found)) if expected.code == found.code => {}
                (Ok(_), Err(error)) => return Ok(Some(place(format!("refused: {error}")))),
                (Err(error), Ok(_)) => return Ok(Some(place(format!("not refused: {error}")))),
                (Err(expected), Err(found)) => return Ok(Some(place(format!("{found} instead of {expected}")))),
            }
        }
    }
    match replayed.cuda_graph_report().and_then(|report| report.off) {
        Some(reason) => Err(Error::internal(reason)),
        None => Ok(None),
    }
}

/// The number of the first value whose bits, sizes or strides differ.
fn first_difference(expected: &[Value], found: &[Value]) -> Option<usize> {
    if expected.len() != found.len() {
        return Some(expected.len().min(found.len()));
    }
    expected.iter().zip(found).position(|pair| match pair {
        (Value::Tensor(a), Value::Tensor(b)) => {
            (a.dtype(), a.sizes(), a.strides(), a.bytes()) != (b.dtype(), b.sizes(), b.strides(), b.bytes())
        }
        (Value::Float(a), Value::Float(b)) => a.to_bits() != b.to_bits(),
        (Value::Int(a), Value::Int(b)) => a != b,
        (Value::Bool(a), Value::Bool(b)) => a != b,
        (Value::Str(a), Value::Str(b)) => a != b,
        (Value::None, Value::None) => false,
        _ => true,
    })
}

#[cfg(test)]
mod tests {
    use super::first_difference;
    use douse::{HostTensor, Value};

    #[test]
    fn bits_count_and_nan_is_itself() {
        let tensor = |values: &[f32]| Value::Tensor(HostTensor::from_f32(&[values.len()], values).unwrap());
        let same = [tensor(&[f32::NAN, 1.0]), Value::Float(f64::NAN), Value::Int(1)];
        assert_eq!(first_difference(&same, &same.clone()), None);
        assert_eq!(first_difference(&[tensor(&[0.0])], &[tensor(&[-0.0])]), Some(0));
        assert_eq!(first_difference(&[Value::Int(1), Value::Int(2)], &[Value::Int(1), Value::Bool(true)]), Some(1));
        assert_eq!(first_difference(&[Value::Int(1)], &[]), Some(0));
    }
}
