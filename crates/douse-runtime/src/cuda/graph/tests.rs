//! Methods with graphs, on the driver of `douse-cuda/tests/fake`.

use std::sync::Arc;

use douse_core::DType;
use douse_program::kernel::{Access, Effect, Inst, Op, Param};
use douse_program::payload::Payload;
use douse_program::plan::{Buffer, BufferKind, Predicate, Step};
use douse_program::target::FunctionName;

use super::{CudaGraph, NewShape};
use crate::cuda::tests::fake::Fake;
use crate::cuda::tests::{counter, device, launch, program, values, x};
use crate::sample::expr;
use crate::{Code, LoadOptions, Method, Session};

fn with(fake: &Fake, payload: Payload, options: CudaGraph) -> Method {
    let load = LoadOptions { cuda_graph: Some(options), ..LoadOptions::on(&device(fake)) };
    program(payload).load("forward", &load).unwrap()
}

fn method(fake: &Fake, options: CudaGraph) -> Method {
    with(fake, counter(&["sm_90"]), options)
}

/// The counter's answer to `[1.0; len]` in its `call`-th call, from 1.
fn answer(len: usize, call: usize) -> Vec<f64> {
    vec![1.0 + call as f64; len]
}

#[test]
fn calls_warm_up_then_one_is_recorded_and_later_ones_replay() {
    let Some(fake) = Fake::new(&[]) else { return };
    let mut method = method(&fake, CudaGraph::default());
    for call in 1..=7 {
        assert_eq!(values(&method.run(&[x(&[1.0; 3]).view()]).unwrap()), answer(3, call));
    }
    let report = method.cuda_graph_report().unwrap();
    assert_eq!((report.plain_calls, report.recordings, report.replays), (3, 1, 3));
    assert_eq!((report.shapes, report.patched_nodes, report.host_reads, report.off), (1, 0, 0, None));
    // A plain call launches its three kernels, the copy of its inputs, and the one that tells the host that all is done; a
    // replayed one is one launch. Each waits once at most.
    assert_eq!((fake.count("launch"), fake.count("replay")), (15, 4));
    assert!(fake.count("synchronize") <= 7 + fake_loads());
    drop(method);
    fake.assert_clean();
}

/// Waits that loading makes.
fn fake_loads() -> usize {
    // The state's first value is uploaded, and the error flag is lowered.
    2
}

#[test]
fn a_failed_check_is_an_error_of_its_call_and_replays_go_on() {
    let Some(fake) = Fake::new(&[]) else { return };
    let mut method = method(&fake, CudaGraph { warm_up: 1, ..CudaGraph::default() });
    for call in 1..=3 {
        assert_eq!(values(&method.run(&[x(&[1.0]).view()]).unwrap()), answer(1, call));
    }
    let error = method.run(&[x(&[-1.0]).view()]).unwrap_err();
    assert_eq!((error.code, error.message.as_str()), (Code::InvalidArgument, "x must be positive"));
    assert_eq!(values(&method.run(&[x(&[1.0]).view()]).unwrap()), answer(1, 4));
    assert_eq!(method.cuda_graph_report().unwrap().off, None);
}

#[test]
fn new_shapes_are_recorded_run_plainly_or_refused() {
    let Some(fake) = Fake::new(&[]) else { return };
    let options = |new_shape| CudaGraph { warm_up: 1, new_shape, cache: 2, compare: false };
    for (new_shape, recordings, shapes) in [(NewShape::Record, 4, 2), (NewShape::Eager, 1, 1)] {
        let mut method = method(&fake, options(new_shape));
        // The first of a new size returns that size; the cache holds two, so that the size of 3 is recorded twice.
        for (call, len) in [3, 3, 5, 2, 3, 3].into_iter().enumerate() {
            let outputs = method.run(&[x(&vec![1.0; len]).view()]).unwrap();
            assert_eq!(values(&outputs), answer(len, call + 1), "{new_shape:?}");
        }
        let report = method.cuda_graph_report().unwrap();
        assert_eq!((report.recordings, report.shapes), (recordings, shapes), "{new_shape:?}");
    }
    let mut method = method(&fake, options(NewShape::Refuse));
    for call in 1..=3 {
        assert_eq!(values(&method.run(&[x(&[1.0; 3]).view()]).unwrap()), answer(3, call));
    }
    let error = method.run(&[x(&[1.0; 4]).view()]).unwrap_err();
    assert_eq!(error.code, Code::InvalidArgument);
    assert!(error.message.contains("has size 4 in dim 0, captured with 3"), "{error}");
    assert_eq!(values(&method.run(&[x(&[1.0; 3]).view()]).unwrap()), answer(3, 4));
    drop(method);
    fake.assert_clean();
}

#[test]
fn sessions_take_turns_with_one_graph() {
    let Some(fake) = Fake::new(&[]) else { return };
    let mut method = method(&fake, CudaGraph { warm_up: 1, ..CudaGraph::default() });
    let (mut a, mut b) = (Session::new(), Session::new());
    for call in 1..=4 {
        for session in [&mut a, &mut b] {
            assert_eq!(values(&method.run_in(session, &[x(&[1.0]).view()]).unwrap()), answer(1, call));
        }
    }
    let report = method.cuda_graph_report().unwrap();
    assert_eq!((report.recordings, report.off), (1, None));
    // Each turn changes the nodes that name the state: count and add.
    assert_eq!(report.patched_nodes, 2 * 6);
}

#[test]
fn whatever_fails_the_call_answers_and_state_is_updated_once() {
    let calls = [
        "cuGraphCreate",
        "cuGraphAddKernelNode_v2",
        "cuGraphAddMemcpyNode",
        "cuGraphInstantiateWithFlags",
        "cuGraphUpload",
        "cuGraphLaunch",
        "cuGraphExecKernelNodeSetParams_v2",
        "cuMemGetInfo_v2",
    ];
    for call in calls {
        for at in 1..=4 {
            let Some(fake) = Fake::new(&[&format!("fail={call}:{at}:999")]) else { return };
            let mut method = method(&fake, CudaGraph { warm_up: 1, ..CudaGraph::default() });
            let mut other = Session::new();
            for number in 1..=6 {
                let len = number % 2 + 1;
                let outputs = method.run(&[x(&vec![1.0; len]).view()]).unwrap();
                assert_eq!(values(&outputs), answer(len, number), "{call} {at}");
                let outputs = method.run_in(&mut other, &[x(&[1.0]).view()]).unwrap();
                assert_eq!(values(&outputs), answer(1, number), "{call} {at}");
            }
            let off = method.cuda_graph_report().unwrap().off;
            assert!(off.is_none_or(|off| off.contains("(999)")), "{call} {at}");
            drop((method, other));
            fake.assert_clean();
        }
    }
}

#[test]
fn compared_calls_answer_and_state_goes_on() {
    let Some(fake) = Fake::new(&[]) else { return };
    let mut method = method(&fake, CudaGraph { warm_up: 1, compare: true, ..CudaGraph::default() });
    for call in 1..=4 {
        assert_eq!(values(&method.run(&[x(&[1.0; 2]).view()]).unwrap()), answer(2, call));
    }
    assert_eq!(method.cuda_graph_report().unwrap().replays, 2);
}

/// The counter as a program with a predicate of the device: `p = count < x[0]`, then these steps, then `y = x + count`.
fn deciding(steps: Vec<Step>) -> Payload {
    let mut payload = counter(&["sm_90"]);
    let plan = Arc::make_mut(&mut payload.plan);
    let kind = BufferKind::Temporary;
    plan.buffers.push(Buffer { dtype: DType::Bool, elements: expr("1"), kind });
    // In place of the check.
    let kernel = &mut plan.kernels[2];
    kernel.name = "less".into();
    kernel.params = [(DType::F32, Access::Read), (DType::F32, Access::Read), (DType::Bool, Access::Write)]
        .map(|(dtype, access)| Param { dtype, access })
        .to_vec();
    let load = |param| Inst { op: Op::Load { param, index: expr("0"), guard: None }, dtype: DType::F32 };
    let less = Inst { op: Op::Binary(douse_core::pointwise::Binary::Lt, 0, 1), dtype: DType::Bool };
    kernel.stages[0].body = vec![load(0), load(1), less];
    kernel.stages[0].effects = vec![Effect::Store { param: 2, index: expr("0"), value: 2, guard: None }];
    plan.steps = steps;
    plan.steps.push(Step::Kernel { kernel: 1, args: vec![0, 2, 1] });
    plan.messages.clear();
    payload.cuda[0].kernels[2] = launch("less", &[], false).into();
    payload.cuda[0].set_condition = Some(FunctionName { module: 0, function: "condition".into() });
    payload
}

fn less() -> Step {
    Step::Kernel { kernel: 2, args: vec![2, 0, 3] }
}

fn count() -> Step {
    Step::Kernel { kernel: 0, args: vec![2] }
}

#[test]
fn a_branch_on_the_device_is_part_of_the_graph_and_is_taken_anew_each_call() {
    let Some(fake) = Fake::new(&[]) else { return };
    let branch = Step::If { predicate: Predicate::Buffer(3), then: vec![count(), count()], otherwise: vec![count()] };
    let mut method = with(&fake, deciding(vec![less(), branch]), CudaGraph { warm_up: 2, ..CudaGraph::default() });
    // The counter goes by 2 while it is below x, then by 1.
    let counts = [2.0, 4.0, 6.0, 7.0, 8.0, 10.0];
    for (limit, count) in [5.0, 5.0, 5.0, 5.0, 5.0, 9.0].into_iter().zip(counts) {
        assert_eq!(values(&method.run(&[x(&[limit]).view()]).unwrap()), [f64::from(limit) + count]);
    }
    let report = method.cuda_graph_report().unwrap();
    // Only the two plain calls have read the predicate.
    assert_eq!((report.host_reads, report.recordings, report.replays, report.off), (2, 1, 3, None));
    assert!(fake.count("synchronize") <= 6 + 2 + fake_loads());
    drop(method);
    fake.assert_clean();
}

#[test]
fn a_loop_on_the_device_is_part_of_the_graph() {
    let Some(fake) = Fake::new(&[]) else { return };
    let again = Step::While { test: vec![less()], predicate: Predicate::Buffer(3), body: vec![count()] };
    let mut method = with(&fake, deciding(vec![again]), CudaGraph { warm_up: 1, ..CudaGraph::default() });
    for limit in [2.0, 5.0, 5.0, 40.0] {
        assert_eq!(values(&method.run(&[x(&[limit]).view()]).unwrap()), [2.0 * f64::from(limit)]);
    }
    assert_eq!(method.cuda_graph_report().unwrap().replays, 2);
}

#[test]
fn a_host_read_cuts_a_method_into_segments_with_graphs_of_their_own() {
    let Some(fake) = Fake::new(&[]) else { return };
    // The predicate is read by the host here: a branch that sets a symbol is not the device's alone.
    let mut payload = deciding(vec![]);
    let plan = Arc::make_mut(&mut payload.plan);
    plan.symbols.push(douse_program::plan::SymbolInfo {
        name: "u0".into(),
        min: None,
        max: None,
        source: douse_program::plan::SymbolSource::Step,
        bound: None,
    });
    let set = |value| Step::Set { symbol: 1, value: expr(value) };
    let branch = Step::If {
        predicate: Predicate::Buffer(3),
        then: vec![set("1"), count(), count()],
        otherwise: vec![set("2"), count()],
    };
    plan.steps.splice(0..0, [less(), branch]);
    let mut method = with(&fake, payload, CudaGraph { warm_up: 1, ..CudaGraph::default() });
    for (limit, count) in [(5.0, 2.0), (5.0, 4.0), (5.0, 6.0), (5.0, 7.0), (5.0, 8.0), (9.0, 10.0)] {
        assert_eq!(values(&method.run(&[x(&[limit]).view()]).unwrap()), [limit as f64 + count]);
    }
    let report = method.cuda_graph_report().unwrap();
    // Before the read, each of the branches, after it.
    assert_eq!((report.recordings, report.host_reads, report.off), (4, 6, None));
}
