//! Runs a case: lowers its program, makes its calls in order, compares.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use douse::{Code, Error, LoadOptions, LowerOptions, Method, MethodMeta, Program, Refused, Value, lower_methods};

use super::case::{Call, Case, Location};
use super::compare::{compare, holds, other_layout};
use super::report::{Outcome, Verdict};
use super::{first_difference, replay};
use crate::cli::run::run_call;

#[derive(Clone)]
pub struct Options {
    pub lower: LowerOptions,
    pub load: LoadOptions,
    pub through_file: bool,
    pub first_difference: bool,
}

thread_local! {
    /// Where this thread last panicked.
    static PANIC: RefCell<String> = const { RefCell::new(String::new()) };
}

/// A panic becomes a case's result; its place is kept for the report instead of being printed among the progress.
pub fn quiet_panics() {
    std::panic::set_hook(Box::new(|info| {
        let place = info.location().map(|l| {
            // The crate and the file are enough; the folders above are the machine's.
            let parts: Vec<&str> = l.file().rsplit('/').take(4).collect();
            format!("{}:{}", parts.into_iter().rev().collect::<Vec<_>>().join("/"), l.line())
        });
        PANIC.set(place.unwrap_or_default());
    }));
}

/// Runs one case; never panics.
pub fn run(location: &Location, options: &Options) -> Outcome {
    let start = Instant::now();
    let verdict = catch_unwind(AssertUnwindSafe(|| run_case(location, options))).unwrap_or_else(|payload| {
        let message = payload.downcast_ref::<&str>().map(|s| (*s).to_owned());
        let message = message.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_default();
        Verdict::wrong(format!("panicked at {}: {message}", PANIC.take()))
    });
    Outcome { name: location.name.clone(), verdict, seconds: start.elapsed().as_secs_f64() }
}

fn run_case(location: &Location, options: &Options) -> Verdict {
    let case = match location.read() {
        Ok(case) => case,
        Err(error) => return Verdict::refused(&error),
    };
    let loaded = open(location, options).and_then(|program| {
        let plain = LoadOptions { cuda_graph: None, ..options.load.clone() };
        Ok((program.load("forward", &plain)?, program.method_meta("forward")?, program))
    });
    let (mut method, meta, program) = match loaded {
        Ok(loaded) => loaded,
        Err(Refused::Unsupported(missing)) => return Verdict::unsupported(&missing),
        Err(Refused::Error(error)) => return Verdict::refused(&error),
    };
    let mut before: Vec<Value> = Vec::new();
    let mut layouts = 0;
    for (number, call) in case.calls.iter().enumerate() {
        let verdict = run_one(&case, call, &mut method, &meta, &mut before, &mut layouts);
        match verdict {
            Err(error) => return Verdict::refused(&error.at(format!("call {number}"))),
            Ok(Some(verdict)) => {
                let verdict = verdict.in_call(number);
                if !options.first_difference {
                    return verdict;
                }
                return verdict.and(&first_difference::describe(location, &case, options, number));
            }
            Ok(None) => {}
        }
    }
    if options.load.cuda_graph.is_some() {
        match replay::check(&case, &program, &meta, &options.load) {
            Ok(None) => {}
            Ok(Some(verdict)) => return verdict,
            Err(error) => return Verdict::refused(&error.at("with CUDA graphs")),
        }
    }
    Verdict::Passed { calls: case.calls.len(), other_layouts: layouts }
}

/// Lowers a case's program, and loads it from a file where that is asked for.
fn open(location: &Location, options: &Options) -> Result<Program, Refused> {
    let lowered = lower_methods(&[("forward", &location.program())], &options.lower)?;
    if options.through_file {
        let path = std::env::temp_dir().join(format!(
            "douse-verify-{}-{}.pte",
            std::process::id(),
            location.path.to_string_lossy().replace(|c: char| !c.is_ascii_alphanumeric(), "_")
        ));
        lowered.save(&path)?;
        let program = Program::open(&path);
        // The program stays mapped without its name.
        let _ = std::fs::remove_file(&path);
        Ok(program?)
    } else {
        Ok(lowered.into_program()?)
    }
}

/// A case's method, ready to run without graphs.
pub fn load(location: &Location, options: &Options) -> Result<(Method, MethodMeta), Refused> {
    let program = open(location, options)?;
    let load = LoadOptions { cuda_graph: None, ..options.load.clone() };
    Ok((program.load("forward", &load)?, program.method_meta("forward")?))
}

/// Makes one call. `Ok(None)`: right. `Err`: refused though it should not have been.
fn run_one(
    case: &Case,
    call: &Call,
    method: &mut Method,
    meta: &MethodMeta,
    before: &mut Vec<Value>,
    layouts: &mut usize,
) -> Result<Option<Verdict>, Error> {
    let mut inputs = call.inputs.iter().map(|arg| case.value(arg)).collect::<Result<Vec<Value>, Error>>()?;
    let result = run_call(method, meta, &mut inputs);
    if let Some(why) = &call.error {
        return match result {
            Ok(_) => Ok(Some(Verdict::wrong(format!("not refused: {why}")))),
            // A fault of ours is no refusal.
            Err(error) if error.code == Code::Internal => Err(error),
            Err(_) => Ok(None),
        };
    }
    let got = result?;
    let expected = call.outputs.as_ref().map_or_else(|| call.check.as_ref().map_or(0, Vec::len), Vec::len);
    if got.len() != expected {
        return Ok(Some(Verdict::wrong(format!("{} outputs, expected {expected}", got.len()))));
    }
    for (number, arg) in call.outputs.iter().flatten().enumerate() {
        let Some(value) = got.get(number) else { continue };
        if let Some(difference) = compare(case, arg, value)? {
            return Ok(Some(Verdict::different(number, difference)));
        }
        *layouts += usize::from(other_layout(case, arg, value));
    }
    for (number, check) in call.check.iter().flatten().enumerate() {
        let Some(value) = got.get(number) else { continue };
        if let Some(difference) = holds(check, value, before.get(number)) {
            return Ok(Some(Verdict::different(number, difference)));
        }
    }
    *before = got;
    Ok(None)
}
