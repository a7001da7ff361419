//! Any bytes as a payload: an error, or a plan that has no other form and, once checked, runs to an answer or an error
//! whatever it says. Seeds are payloads of `tests/cases`: lower those, then `cargo run -p douse-program --example payloads --
//! fuzz/corpus/plan FILE.pte...` and `cargo fuzz run plan`.
//!
//! A sound plan may be large, and may loop for ever. So what runs is small: a loop's body once, and before each step it is
//! required that what the step works through is small.
#![no_main]

use std::collections::BTreeMap;
use std::sync::Arc;

use douse_core::bytes::Bytes;
use douse_core::sym::{Compare, Cond, Expr, Symbol};
use douse_core::{HostTensor, Scalar};
use douse_program::check::check;
use douse_program::kernel::Kernel;
use douse_program::library::Library;
use douse_program::payload::Payload;
use douse_program::plan::{BufferId, BufferKind, Data, Fixed, Input, InputKind, Plan, Step, SymbolSource};
use douse_runtime::{Argument, LoadOptions, Program, Value};
use libfuzzer_sys::fuzz_target;

/// Points of a loop nest, and elements of a buffer or a view, at most.
const POINTS: i64 = 4096;
/// Steps of a plan, and instructions of its kernels, at most.
const STEPS: usize = 200;

fuzz_target!(|bytes: &[u8]| {
    let Ok(payload) = Payload::decode(bytes) else { return };
    assert!(payload.encode().is_ok_and(|again| again == bytes), "a payload has two forms");
    if check(&payload.plan).is_ok() {
        let _ = payload.plan.to_string();
        let _ = run(payload);
    }
});

/// Runs a plan twice with inputs of zeros; nothing where it is not small.
fn run(mut payload: Payload) -> Option<()> {
    let plan = Arc::make_mut(&mut payload.plan);
    // The message of what [`require`] adds.
    plan.messages.insert(0, "not small".into());
    plan.steps = small(plan, &plan.steps)?;
    let symbols: Vec<Option<i64>> = plan
        .symbols
        .iter()
        .map(|s| match s.source {
            SymbolSource::Step => None,
            _ => Some(3.max(s.min.unwrap_or(3)).min(s.max.unwrap_or(i64::MAX))),
        })
        .collect();
    let inputs = plan.inputs.iter().enumerate().map(|(i, input)| value(plan, i, input, &symbols));
    let mut inputs = inputs.collect::<Option<Vec<Value>>>()?;
    let mut data = BTreeMap::new();
    for (id, buffer) in plan.buffers.iter().enumerate() {
        let bytes = douse_program::arena::bytes(plan, id, &symbols).ok()?;
        if bytes.is_some_and(|bytes| bytes > 8 * POINTS as usize) {
            return None;
        }
        if let BufferKind::Constant(Data::Named(key)) | BufferKind::State { initial: Data::Named(key), .. } =
            &buffer.kind
        {
            data.insert(key.clone(), Bytes::from(vec![0; bytes?]));
        }
    }
    let name = plan.name.clone();
    payload.targets = vec!["cpu".into()];
    let program = Program::from_parts(vec![payload], data).ok()?;
    let _ = program.method_meta(&name);
    let mut method = program.load(&name, &LoadOptions::default()).ok()?;
    for _ in 0..2 {
        let arguments: Vec<Argument> = inputs.iter_mut().map(Value::argument_mut).collect();
        let _ = method.run(&arguments);
    }
    Some(())
}

fn value(plan: &Plan, number: usize, input: &Input, symbols: &[Option<i64>]) -> Option<Value> {
    Some(match &input.kind {
        InputKind::Tensor { dtype, sizes, .. } => {
            let size = |e: &Expr| {
                e.eval(&|s| match s {
                    Symbol::Size(n) => symbols.get(n as usize).copied().flatten(),
                    _ => None,
                })
                .and_then(|size| usize::try_from(size).ok())
            };
            let sizes: Vec<usize> = sizes.iter().map(size).collect::<Option<_>>()?;
            let elements = sizes.iter().try_fold(1usize, |n, size| n.checked_mul(*size))?;
            if elements > POINTS as usize {
                return None;
            }
            Value::Tensor(HostTensor::zeros(*dtype, &sizes).ok()?)
        }
        InputKind::Int => {
            let own = plan
                .symbols
                .iter()
                .position(|s| matches!(s.source, SymbolSource::Int { input } if input as usize == number));
            Value::Int(own.and_then(|i| symbols[i]).unwrap_or(1))
        }
        InputKind::Number { dtype, .. } if dtype.is_bool() => Value::Bool(true),
        InputKind::Number { .. } => Value::Float(0.5),
        InputKind::Fixed(Fixed::None) => Value::None,
        InputKind::Fixed(Fixed::Str(text)) => Value::Str(text.clone()),
        InputKind::Fixed(Fixed::Scalar(Scalar::Int(v))) => Value::Int(*v),
        InputKind::Fixed(Fixed::Scalar(Scalar::Bool(v))) => Value::Bool(*v),
        InputKind::Fixed(Fixed::Scalar(other)) => Value::Float(other.to_f64()),
    })
}

/// The steps with what makes them small; `None` where that is known not to hold.
fn small(plan: &Plan, steps: &[Step]) -> Option<Vec<Step>> {
    let mut out = Vec::new();
    for step in steps {
        match step {
            Step::Kernel { .. } | Step::Library(_) | Step::Fused { .. } => {
                work(plan, step, &mut out)?;
                out.push(step.clone());
            }
            Step::Together(steps) => {
                steps.iter().try_for_each(|step| work(plan, step, &mut out))?;
                out.push(step.clone());
            }
            Step::If { predicate, then, otherwise } => out.push(Step::If {
                predicate: predicate.clone(),
                then: small(plan, then)?,
                otherwise: small(plan, otherwise)?,
            }),
            Step::While { test, predicate, body } => {
                out.extend(small(plan, test)?);
                out.push(Step::If { predicate: predicate.clone(), then: small(plan, body)?, otherwise: vec![] });
            }
            Step::Copy { from, to } => {
                buffers(plan, &[*from, *to], &mut out)?;
                out.push(step.clone());
            }
            Step::Read { .. } | Step::Set { .. } | Step::Require { .. } => out.push(step.clone()),
        }
    }
    let instructions: usize = plan.kernels.iter().flat_map(|k| &k.stages).map(|s| s.body.len() + s.effects.len()).sum();
    (out.len() <= STEPS && instructions <= STEPS).then_some(out)
}

/// Requires that what a kernel or library step works through is small.
fn work(plan: &Plan, step: &Step, out: &mut Vec<Step>) -> Option<()> {
    let (library, launch) = match step {
        Step::Kernel { kernel, args } => (None, Some((kernel, args))),
        Step::Library(library) => (Some(library), None),
        Step::Fused { library, kernel, args } => (Some(library), Some((kernel, args))),
        _ => return None,
    };
    if let Some(library) = library {
        let (read, written) = library.buffers();
        buffers(plan, &[read, written].concat(), out)?;
        if let Library::Convolution(c) = library {
            // Each element of the result sums over all of the weight.
            require(c.out.sizes.iter().chain(&c.weight.sizes), out)?;
        }
        let (read, written) = library.views();
        for view in read.into_iter().chain(written) {
            require(&view.sizes, out)?;
        }
    }
    if let Some((kernel, args)) = launch {
        let kernel: &Kernel = plan.kernels.get(*kernel as usize)?;
        for stage in &kernel.stages {
            require(kernel.outer.iter().chain(&stage.inner), out)?;
        }
        buffers(plan, args, out)?;
    }
    Some(())
}

fn buffers(plan: &Plan, ids: &[BufferId], out: &mut Vec<Step>) -> Option<()> {
    ids.iter().try_for_each(|id| require([&plan.buffers.get(*id as usize)?.elements], out))
}

/// Requires these sizes to multiply to [`POINTS`] at most: each symbolic one gets an even share of what the others leave.
fn require<'a>(sizes: impl IntoIterator<Item = &'a Expr>, out: &mut Vec<Step>) -> Option<()> {
    let (fixed, open): (Vec<&Expr>, Vec<&Expr>) = sizes.into_iter().partition(|size| size.as_int().is_some());
    let product = fixed.iter().filter_map(|e| e.as_int()).try_fold(1i64, |n, size| n.checked_mul(size.max(1)))?;
    if product > POINTS {
        return None;
    }
    let share = ((POINTS / product) as f64).powf(1.0 / open.len().max(1) as f64) as i64;
    for size in open {
        let cond = Cond::Compare(Compare::Le, size.clone(), Expr::int(share));
        out.push(Step::Require { cond, message: 0 });
    }
    Some(())
}
