//! What a caller sees of graphs, each by an exported program.

use std::collections::BTreeMap;
use std::sync::Arc;

use douse::{Aligned, Code, CudaGraph, DeviceTensor, HostTensor, LoadOptions, NewShape, Session, Value};

use super::case::{Case, bits};
use super::{Bench, after};

#[test]
fn shape_change_with_equal_byte_count() {
    let Some(case) = Case::read("equal_byte_counts") else { return };
    for (new_shape, recordings, replays, plain) in
        [(NewShape::Record, 2, 2 + 1 + 1, 1), (NewShape::Eager, 1, 2 + 1, 1 + 2), (NewShape::Refuse, 1, 2 + 1, 1)]
    {
        let bench = Bench::new();
        let mut method = bench.load(&case, Some(CudaGraph { new_shape, ..after(1) }));
        // Warms up, is recorded, is replayed.
        (0..4).for_each(|_| case.check(0, &mut method));
        for _ in 0..2 {
            if new_shape != NewShape::Refuse {
                case.check(1, &mut method);
                continue;
            }
            let error = case.run(&mut method, &mut case.calls[1].inputs.clone()).unwrap_err();
            assert_eq!(error.code, Code::InvalidArgument);
            assert!(error.message.contains("has size 4 in dim 1, captured with 3"), "{error}");
        }
        case.check(0, &mut method);
        let report = method.cuda_graph_report().unwrap();
        let counts = (report.recordings, report.replays, report.plain_calls, report.off);
        assert_eq!(counts, (recordings, replays, plain, None), "{new_shape:?}");
        drop(method);
        bench.close();
    }
}

#[test]
fn rank_change() {
    let Some(case) = Case::read("equal_byte_counts") else { return };
    let bench = Bench::new();
    for new_shape in [NewShape::Record, NewShape::Eager, NewShape::Refuse] {
        let mut method = bench.load(&case, Some(CudaGraph { new_shape, ..after(1) }));
        (0..3).for_each(|_| case.check(0, &mut method));
        let Value::Tensor(x) = &case.calls[0].inputs[0] else { panic!() };
        let flat = HostTensor::from_bytes(x.dtype(), &[2, 12, 4], x.bytes()).unwrap();
        let error = method.run(&[flat.view()]).unwrap_err();
        assert_eq!(error.code, Code::InvalidArgument);
        assert!(error.message.contains("has 3 dimensions") && error.message.contains("expected 4"), "{error}");
        case.check(0, &mut method);
        assert_eq!(method.cuda_graph_report().unwrap().replays, 2);
    }
    bench.close();
}

#[test]
fn first_recording_with_a_new_batch_size() {
    let Some(case) = Case::read("pointwise_chain") else { return };
    let bench = Bench::new();
    let mut method = bench.load(&case, Some(after(2)));
    // The call that is recorded has another size than those before and after it.
    for call in [0, 0, 1, 0, 1, 2, 2, 0] {
        case.check(call, &mut method);
    }
    let report = method.cuda_graph_report().unwrap();
    assert_eq!((report.recordings, report.replays, report.off), (3, 3, None));
}

#[test]
fn channels_last_output() {
    for name in ["channels_last", "state_channels_last"] {
        let Some(case) = Case::read(name) else { return };
        let bench = Bench::new();
        let mut method = bench.load(&case, Some(after(1)));
        *method.session() = Session::with_seed(1);
        for call in [&case.calls[0]; 4] {
            let outputs = case.run(&mut method, &mut call.inputs.clone()).unwrap();
            let strides = |values: &[Value]| values[0].tensor().unwrap().strides().to_vec();
            assert_eq!(strides(&outputs), strides(call.outputs.as_ref().unwrap()));
        }
        case.check_all(&mut method);
        let report = method.cuda_graph_report().unwrap();
        assert!(report.off.is_none() && report.replays >= 2 && report.recordings == 1, "{report:?}");
    }
}

#[test]
fn counter_plus_mask_count() {
    let Some(case) = Case::read("state_mask_count") else { return };
    let bench = Bench::new();
    let mut method = bench.load(&case, Some(after(1)));
    (0..5).for_each(|_| case.check_all(&mut method));
    // Four sizes, with a segment on both sides of the count, which every call reads.
    let report = method.cuda_graph_report().unwrap();
    assert_eq!((report.recordings, report.host_reads, report.off), (4 * 2, 4 * 5, None));
    drop(method);
    bench.close();
}

#[test]
fn flag_set_on_the_first_call_and_read_by_cond() {
    let Some(case) = Case::read("state_flag") else { return };
    let bench = Bench::new();
    // The first call, which takes the other branch, is recorded, or the second.
    for warm_up in 0..=1 {
        let mut method = bench.load(&case, Some(after(warm_up)));
        (0..3).for_each(|_| case.check_all(&mut method));
        let report = method.cuda_graph_report().unwrap();
        assert!(report.replays > 0 && report.off.is_none(), "{report:?}");
        // Only a plain call reads the flag back. Another session's state is put into the nodes, those of the branches too.
        assert_eq!((report.recordings, report.host_reads), (1, u64::from(warm_up)));
        assert!(report.patched_nodes > 0, "{report:?}");
    }
    bench.close();
}

#[test]
fn host_side_constant_that_nothing_writes() {
    let Some(case) = Case::read("reads_a_constant") else { return };
    let bench = Bench::new();
    let mut method = bench.load(&case, Some(after(1)));
    (0..3).for_each(|_| case.check_all(&mut method));
    // One segment, and nothing is read back, not even by the plain call.
    let report = method.cuda_graph_report().unwrap();
    assert_eq!((report.recordings, report.plain_calls, report.host_reads, report.off), (1, 1, 0, None));
    drop(method);
    bench.close();
}

#[test]
fn callers_stream() {
    let Some(case) = Case::read("state_item") else { return };
    let bench = Bench::new();
    let device = bench.device.device();
    let memory = device.allocate(16).unwrap();
    for graph in [None, Some(after(1))] {
        let mut method = bench.load(&case, graph);
        let stream = Arc::new(device.stream().unwrap());
        method.set_stream(Some(stream.clone())).unwrap();
        let Value::Tensor(example) = &case.calls[0].inputs[0] else { panic!() };
        let (dtype, mut pinned) = (example.dtype(), device.pinned(12).unwrap());
        let input = DeviceTensor::borrowed(&bench.device, dtype, &[3], &[1], memory.all()).unwrap();
        for call in 1..=5 {
            // The stream still has to fill the input when the call is made.
            let values = [call as f32, 2.0, 3.0];
            pinned.write(0, &values.map(f32::to_le_bytes).concat()).unwrap();
            device.upload(&pinned, 0, memory.part(0..12).unwrap(), &stream).unwrap();
            let outputs = method.run(&[&input]).unwrap();
            // The program's count goes by 3, and is a factor.
            let expected = values.map(|value| value * 3.0 * call as f32);
            assert_eq!(outputs[0].tensor().unwrap().f32_values().unwrap(), expected);
        }
        if let Some(report) = method.cuda_graph_report() {
            assert!(report.off.is_none() && report.replays > 0, "{report:?}");
        }
    }
    drop(memory);
    bench.close();
}

#[test]
fn output_buffer_given_by_the_caller_and_too_small_for_the_bound() {
    let Some(case) = Case::read("bounded_rows") else { return };
    let bench = Bench::new();
    let mut method = bench.load(&case, Some(after(1)));
    for call in [0, 0, 2, 1, 0, 1] {
        // Up to 8 rows of 8 bytes: that the last output had fewer does not count.
        let error = method.set_output(0, Aligned::zeros(63).unwrap()).unwrap_err();
        assert_eq!(error.code, Code::InvalidArgument);
        assert!(error.message.contains("may take 64 bytes, the buffer has 63"), "{error}");
        method.set_output(0, Aligned::zeros(64).unwrap()).unwrap();
        method.set_input(0, case.calls[call].inputs[0].clone()).unwrap();
        method.execute().unwrap();
        let expected = case.calls[call].outputs.as_ref().unwrap();
        let (expected, found) = (expected[0].tensor().unwrap(), method.outputs()[0].tensor().unwrap());
        assert_eq!((found.sizes(), found.f32_values().unwrap()), (expected.sizes(), expected.f32_values().unwrap()));
    }
    let report = method.cuda_graph_report().unwrap();
    assert!(report.off.is_none() && report.replays > 0, "{report:?}");
}

#[test]
fn cond_on_a_device_predicate_brings_nothing_back() {
    let Some(case) = Case::read("state_flag") else { return };
    let bench = Bench::new();
    let mut method = bench.load(&case, Some(after(1)));
    (0..2).for_each(|_| case.check_all(&mut method));
    let before = bench.fake.calls();
    for _ in 0..100 {
        case.run(&mut method, &mut case.calls[0].inputs.clone()).unwrap();
    }
    let calls = |all: &BTreeMap<String, u64>, call: &str| all.get(call).copied().unwrap_or(0);
    let now = bench.fake.calls();
    let made = |call: &str| calls(&now, call) - calls(&before, call);
    // One launch a call, no copy, and no node that was changed to make one.
    assert_eq!((made("cuGraphLaunch"), made("cuLaunchKernel"), made("cuMemcpyDtoHAsync_v2")), (100, 0, 0));
    assert_eq!((made("cuMemcpyHtoDAsync_v2"), made("cuGraphExecMemcpyNodeSetParams")), (0, 0));
    drop(method);
    bench.close();
}

#[test]
fn inputs_in_another_layout_are_rearranged_on_the_device() {
    let Some(case) = Case::read("channels_last") else { return };
    let bench = Bench::new();
    let expected = bench.load(&case, None);
    for graph in [None, Some(after(1))] {
        let (mut method, mut expected) = (bench.load(&case, graph), expected.clone());
        for call in &case.calls {
            let Value::Tensor(input) = &call.inputs[0] else { panic!() };
            let contiguous = input.clone().into_contiguous().unwrap();
            let rest = |values: &[Value]| values.iter().skip(1).cloned().collect::<Vec<_>>();
            let device = DeviceTensor::from_host(&bench.device, &contiguous.view()).unwrap();
            let mut inputs = [vec![Value::Device(device)], rest(&call.inputs)].concat();
            let found = case.run(&mut method, &mut inputs).unwrap();
            assert_eq!(method.bindings().unwrap().rearranged, usize::from(input.strides() != contiguous.strides()));
            let wanted = case.run(&mut expected, &mut call.inputs.clone()).unwrap();
            assert_eq!(found.iter().map(bits).collect::<Vec<_>>(), wanted.iter().map(bits).collect::<Vec<_>>());
        }
    }
    drop(expected);
    bench.close();
}

#[test]
fn callers_stream_is_not_waited_for() {
    let Some(case) = Case::read("state_flag") else { return };
    let bench = Bench::new();
    let expected = {
        let mut method = bench.load(&case, None);
        case.calls
            .iter()
            .map(|call| bits(&case.run(&mut method, &mut call.inputs.clone()).unwrap()[0]))
            .collect::<Vec<_>>()
    };
    let load = LoadOptions { cuda_graph: Some(after(0)), ..LoadOptions::on(&bench.device) };
    let mut method = case.program.load("forward", &load.with_outputs_on_device()).unwrap();
    method.set_stream(Some(Arc::new(bench.device.device().stream().unwrap()))).unwrap();
    for _ in 0..2 {
        *method.session() = Session::with_seed(1);
        let inputs: Vec<Value> = case
            .calls
            .iter()
            .map(|call| {
                let Value::Tensor(input) = &call.inputs[0] else { panic!() };
                Value::Device(DeviceTensor::from_host(&bench.device, &input.view()).unwrap())
            })
            .collect();
        // The first call uploads the session's state.
        let mut outputs = vec![case.run(&mut method, &mut [inputs[0].clone()]).unwrap().remove(0)];
        let waits =
            |all: BTreeMap<String, u64>| ["cuStreamSynchronize", "cuStreamQuery"].map(|call| all.get(call).copied());
        let before = waits(bench.fake.calls());
        for input in &inputs[1..] {
            outputs.push(case.run(&mut method, &mut [input.clone()]).unwrap().remove(0));
        }
        assert_eq!(waits(bench.fake.calls()), before);
        // Nothing has run yet: what reads an output waits.
        let found =
            outputs.iter().map(|output| bits(&Value::Tensor(output.device_tensor().unwrap().to_host().unwrap())));
        assert_eq!(found.collect::<Vec<_>>(), expected);
    }
    drop(method);
    bench.close();
}
