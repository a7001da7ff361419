//! Methods on softgpu, with the kernels of `douse-cuda/tests/fake`.

use std::collections::BTreeMap;
use std::sync::Arc;

use douse_core::bytes::Bytes;
use douse_core::element::elements;
use douse_core::sym::Expr;
use douse_core::{Code, DType, HostTensor};
use douse_program::payload::Payload;
use douse_program::plan::{Buffer, BufferKind, Data, Plan};
use douse_program::target::{CudaTarget, FunctionName, Launch, ProductOptions};

use super::{CudaDevice, CudaGraph, DeviceTensor};
use crate::{LoadOptions, Method, Program, Session, Threads, Value, sample};

#[path = "../../../douse-cuda/tests/fake/mod.rs"]
pub(super) mod fake;
use fake::Fake;

pub(super) fn launch(function: &str, symbols: &[u32], flag: bool) -> Launch {
    Launch {
        module: 0,
        function: function.into(),
        grid: [Expr::int(1), Expr::int(1), Expr::int(1)],
        block: [32, 1, 1],
        shared: 0,
        symbols: symbols.to_vec(),
        scratch: false,
        flag,
        guard: false,
        random: false,
        maps: vec![],
    }
}

pub(super) fn target(arch: &str) -> CudaTarget {
    CudaTarget {
        arch: arch.into(),
        modules: vec!["code".into()],
        kernels: [launch("count", &[], false), launch("add", &[0], false), launch("check", &[], true)]
            .map(Into::into)
            .into(),
        library: vec![],
        copy: FunctionName { module: 0, function: "copy".into() },
        guarded_copy: None,
        finish: FunctionName { module: 0, function: "finish".into() },
        rearrange: FunctionName { module: 0, function: "rearrange".into() },
        set_condition: None,
        products: ProductOptions::default(),
        overlaps: true,
    }
}

/// The counter of [`sample`], with code for these architectures.
pub(super) fn counter(archs: &[&str]) -> Payload {
    let mut payload = sample::counter();
    payload.targets.extend(archs.iter().map(|arch| arch.to_string()));
    payload.cuda = archs.iter().map(|arch| target(arch)).collect();
    payload
}

pub(super) fn program(payload: Payload) -> Program {
    let data = [("code", fake::code()), ("weights", vec![7; 4000])];
    let data: BTreeMap<String, Bytes> = data.into_iter().map(|(key, bytes)| (key.into(), bytes.into())).collect();
    Program::from_parts(vec![payload], data).unwrap()
}

pub(super) fn device(fake: &Fake) -> CudaDevice {
    CudaDevice::open_with(&fake.names(), 0).unwrap()
}

pub(super) fn method(fake: &Fake) -> Method {
    program(counter(&["sm_90"])).load("forward", &LoadOptions::on(&device(fake))).unwrap()
}

pub(super) fn x(values: &[f32]) -> HostTensor {
    HostTensor::from_f32(&[values.len()], values).unwrap()
}

pub(super) fn values(outputs: &[Value]) -> Vec<f64> {
    elements(outputs[0].tensor().unwrap()).iter().map(|element| element.to_f64()).collect()
}

#[test]
fn state_goes_on_from_call_to_call_and_nothing_stays() {
    let Some(fake) = Fake::new(&[]) else { return };
    let mut method = method(&fake);
    assert_eq!(values(&method.run(&[x(&[1.0]).view()]).unwrap()), [2.0]);
    assert_eq!(values(&method.run(&[x(&[1.0, 5.0]).view()]).unwrap()), [3.0, 7.0]);
    let mut clone = method.clone();
    assert_eq!(values(&clone.run(&[x(&[1.0]).view()]).unwrap()), [4.0]);
    assert_eq!(values(&method.run(&[x(&[1.0]).view()]).unwrap()), [4.0]);
    method.session().reset();
    assert_eq!(values(&method.run(&[x(&[1.0]).view()]).unwrap()), [2.0]);
    drop((method, clone));
    fake.assert_clean();
}

#[test]
fn code_that_is_not_the_plans_is_refused_when_it_is_loaded() {
    let Some(fake) = Fake::new(&[]) else { return };
    type Doctor = fn(&mut CudaTarget);
    let load = |fake: &Fake, doctor: Doctor| {
        let mut payload = counter(&["sm_90"]);
        doctor(&mut payload.cuda[0]);
        program(payload).load("forward", &LoadOptions::on(&device(fake)))
    };
    let too_many: Doctor = |target| target.kernels[0].launches[0].random = true;
    let too_few: Doctor = |target| target.kernels[1].launches[0].symbols.clear();
    let mixed_up: Doctor = |target| target.finish = target.copy.clone();
    let doctored = [
        (too_many, ["count", "passes 2 parameters (8, 8 bytes)", "takes 1 parameter (8 bytes)"]),
        (too_few, ["add", "passes 3 parameters (8, 8, 8 bytes)", "takes 4 parameters"]),
        (mixed_up, ["copy", "passes 5 parameters", "takes 3 parameters"]),
    ];
    for (doctor, told) in doctored {
        let Err(error) = load(&fake, doctor) else { panic!("{told:?} was loaded") };
        assert_eq!(error.code, Code::InvalidProgram, "{error}");
        assert!(told.iter().all(|part| error.to_string().contains(part)), "{error}");
    }
    fake.assert_clean();
    // A driver that cannot be asked runs what is right.
    let old = Fake::bare().without("cuFuncGetParamInfo");
    old.configure("capability=90");
    let mut method = load(&old, |_| {}).unwrap();
    assert_eq!(values(&method.run(&[x(&[1.0]).view()]).unwrap()), [2.0]);
    load(&old, too_many).unwrap();
    assert!(!old.calls().contains_key("cuFuncGetParamInfo"));
}

#[test]
fn a_call_allocates_nothing_once_it_has_run() {
    let Some(fake) = Fake::new(&[]) else { return };
    let mut method = method(&fake);
    method.run(&[x(&[1.0; 8]).view()]).unwrap();
    let (before, waits) = (fake.count("alloc") + fake.count("pin"), fake.count("synchronize"));
    for _ in 0..3 {
        method.run(&[x(&[1.0; 4]).view()]).unwrap();
    }
    assert_eq!(fake.count("alloc") + fake.count("pin"), before);
    // One wait a call at most: the last kernel says that all is done, and nothing is read back in between.
    assert!(fake.count("synchronize") - waits <= 3);
    assert_eq!(fake.calls().get("cuMemcpyDtoHAsync_v2"), None);
}

#[test]
fn a_failed_check_puts_state_back_and_the_next_call_works() {
    let Some(fake) = Fake::new(&[]) else { return };
    let mut method = method(&fake);
    method.run(&[x(&[1.0]).view()]).unwrap();
    let error = method.run(&[x(&[-1.0]).view()]).unwrap_err();
    assert_eq!((error.code, error.message.as_str()), (Code::InvalidArgument, "x must be positive"));
    assert_eq!(values(&method.run(&[x(&[1.0]).view()]).unwrap()), [3.0]);
}

#[test]
fn a_fault_of_the_device_says_that_state_was_touched() {
    let Some(fake) = Fake::new(&["fail=cuLaunchKernel:3:719"]) else { return };
    let mut payload = counter(&["sm_90"]);
    // Without the check, no copy of the state is kept.
    Arc::make_mut(&mut payload.plan).steps.pop();
    let mut method = program(payload).load("forward", &LoadOptions::on(&device(&fake))).unwrap();
    let error = method.run(&[x(&[1.0]).view()]).unwrap_err();
    assert!(error.message.contains("add: cuLaunchKernel failed with"), "{error}");
    assert!(error.message.ends_with("the call may have changed the state count"), "{error}");
}

#[test]
fn a_launch_that_began_and_failed_breaks_its_session_and_others_go_on() {
    for graph in [None, Some(CudaGraph { warm_up: 0, ..CudaGraph::default() })] {
        let Some(fake) = Fake::new(&[]) else { return };
        let mut payload = counter(&["sm_90"]);
        payload.cuda[0].kernels[2] = launch("stray", &[], false).into();
        let on = LoadOptions { cuda_graph: graph, ..LoadOptions::on(&device(&fake)) };
        let mut method = program(payload).load("forward", &on).unwrap();
        let (mut first, mut second) = (Session::new(), Session::new());
        let small = x(&[1.0]);
        assert_eq!(values(&method.run_in(&mut first, &[small.view()]).unwrap())[0], 2.0);
        assert_eq!(values(&method.run_in(&mut second, &[small.view()]).unwrap())[0], 2.0);
        let error = method.run_in(&mut first, &[x(&[-1.0]).view()]).unwrap_err();
        assert!(error.message.contains("stray"), "{error}");
        assert!(error.message.ends_with("so the session is broken"), "{error}");
        for error in [
            method.run_in(&mut first, &[small.view()]).unwrap_err(),
            first.states().unwrap_err(),
            method.run_in(&mut first.clone(), &[small.view()]).unwrap_err(),
        ] {
            assert_eq!(error.code, Code::InvalidState, "{error}");
            assert!(error.message.contains("reset or restore it"), "{error}");
        }
        assert_eq!(values(&method.run_in(&mut second, &[small.view()]).unwrap())[0], 3.0);
        first.reset();
        assert_eq!(values(&method.run_in(&mut first, &[small.view()]).unwrap())[0], 2.0);
        assert_eq!(values(&method.run_in(&mut second, &[small.view()]).unwrap())[0], 4.0);
    }
}

#[test]
fn copies_of_any_length_arrive_whole() {
    let Some(fake) = Fake::new(&[]) else { return };
    let device = device(&fake);
    // Parts, chunks and pieces of pinned memory, and a little more and less.
    for len in [1, (256 << 10) + 1, (512 << 10) - 1, (16 << 20) + 3, (33 << 20) + 7] {
        let bytes: Vec<u8> = (0..len as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let memory = device.allocate(len, || "a test".to_owned()).unwrap();
        for threads in [Threads::one(), Threads::new(3).unwrap()] {
            device.upload_with(&bytes, memory.all(), &threads).unwrap();
            let mut back = vec![0; len];
            device.download_with(memory.all(), &mut back, &threads).unwrap();
            assert!(back == bytes, "{len}");
            device.upload_with(&vec![0; len], memory.all(), &threads).unwrap();
        }
    }
    drop(device);
    fake.assert_clean();
}

#[test]
fn shapes_that_alternate_are_laid_out_once() {
    let Some(fake) = Fake::new(&[]) else { return };
    let mut method = method(&fake);
    let mut run = |lens: &[usize]| lens.iter().for_each(|len| drop(method.run(&[x(&vec![1.0; *len]).view()]).unwrap()));
    run(&[8, 3, 8, 3]);
    // A frame fills the gaps between what comes back.
    let fills = |fake: &Fake| fake.calls().get("cuMemsetD8Async").copied();
    let before = fills(&fake);
    run(&[8, 3, 8, 3, 8]);
    assert_eq!(fills(&fake), before);
    run(&[5]);
    assert!(fills(&fake) > before);
}

#[test]
fn an_index_out_of_range_is_an_error_of_its_call() {
    let Some(fake) = Fake::new(&[]) else { return };
    let mut payload = counter(&["sm_90"]);
    payload.cuda[0].kernels[2].launches[0].function = "range".into();
    let mut method = program(payload).load("forward", &LoadOptions::on(&device(&fake))).unwrap();
    let error = method.run(&[x(&[9.0]).view()]).unwrap_err();
    assert!(error.message.starts_with("index 9 is out of range for a dimension of size 7"), "{error}");
    assert_eq!(values(&method.run(&[x(&[1.0]).view()]).unwrap()), [2.0]);
}

#[test]
fn state_is_not_written_after_a_failed_check() {
    let Some(fake) = Fake::new(&[]) else { return };
    let mut payload = counter(&["sm_90"]);
    Arc::make_mut(&mut payload.plan).steps.rotate_right(1);
    payload.cuda[0].kernels[0] = Launch { guard: true, ..launch("count_guarded", &[], false) }.into();
    let mut method = program(payload).load("forward", &LoadOptions::on(&device(&fake))).unwrap();
    let error = method.run(&[x(&[-1.0]).view()]).unwrap_err();
    assert_eq!(error.message, "x must be positive");
    // Nobody waited for the check: all kernels were launched, and the copies of inputs and outputs.
    assert_eq!(fake.count("launch"), 3 + 2);
    assert_eq!(values(&method.run(&[x(&[1.0]).view()]).unwrap()), [2.0]);
}

#[test]
fn code_is_chosen_by_architecture_and_its_lack_is_explained() {
    let Some(fake) = Fake::new(&["capability=89"]) else { return };
    let on = LoadOptions::on(&device(&fake));
    for archs in [&["sm_80"][..], &["compute_80"], &["sm_90", "sm_89"]] {
        program(counter(archs)).load("forward", &on).unwrap();
    }
    let error = program(counter(&["sm_90", "compute_90"])).load("forward", &on).err().unwrap();
    assert_eq!(error.code, Code::DelegateInvalidCompatibility);
    for part in ["cpu, sm_90, compute_90", "needs sm_89", "--target sm_89"] {
        assert!(error.message.contains(part), "{error}");
    }
    let mut payload = counter(&["sm_89"]);
    payload.cuda[0].kernels.pop();
    let error = program(payload).load("forward", &on).err().unwrap();
    assert!(error.code == Code::InvalidProgram && error.message.contains("2 kernels for a plan of 3"), "{error}");
}

/// The counter with 4000 bytes of weights that nothing reads.
fn weighty() -> Payload {
    let mut payload = counter(&["sm_90"]);
    let plan: &mut Plan = Arc::make_mut(&mut payload.plan);
    let kind = BufferKind::Constant(Data::Named("weights".into()));
    plan.buffers.push(Buffer { dtype: DType::U8, elements: Expr::int(4000), kind });
    payload
}

#[test]
fn weights_are_on_a_device_once_and_go_with_the_last_method() {
    let Some(fake) = Fake::new(&[]) else { return };
    let (program, on) = (program(weighty()), LoadOptions::on(&device(&fake)));
    let methods = [(); 3].map(|()| program.load("forward", &on).unwrap());
    let uploads = |fake: &Fake| fake.log().iter().filter(|line| *line == "upload 4000").count();
    assert_eq!(uploads(&fake), 1);
    drop(methods);
    program.load("forward", &on).unwrap();
    assert_eq!(uploads(&fake), 2);
    drop(on);
    fake.assert_clean();
}

#[test]
fn too_little_memory_says_for_what_and_the_device_goes_on() {
    let Some(fake) = Fake::new(&["memory=4096"]) else { return };
    let on = LoadOptions::on(&device(&fake));
    let kept = program(weighty()).load("forward", &on).unwrap();
    let mut other = counter(&["sm_90"]);
    let kind = BufferKind::Constant(Data::Zeros(300));
    Arc::make_mut(&mut other.plan).buffers.push(Buffer { dtype: DType::U8, elements: Expr::int(300), kind });
    let error = program(other).load("forward", &on).err().unwrap();
    assert_eq!(error.code, Code::MemoryAllocationFailed);
    assert!(error.message.contains("the constants of \"forward\": cuda:0 (Test GPU (softgpu))"), "{error}");
    // Too little for a call: the method stays usable, and works when there is memory.
    let mut method = program(counter(&["sm_90"])).load("forward", &on).unwrap();
    let error = method.run(&[x(&[1.0]).view()]).unwrap_err();
    assert!(error.message.contains("the inputs and outputs of \"forward\""), "{error}");
    drop(kept);
    assert_eq!(values(&method.run(&[x(&[1.0]).view()]).unwrap()), [2.0]);
}

#[test]
fn any_call_of_the_driver_may_fail_and_the_next_call_of_the_method_works() {
    for call in [
        "cuMemAlloc_v2",
        "cuMemHostAlloc",
        "cuMemcpyHtoDAsync_v2",
        "cuMemcpyDtoHAsync_v2",
        "cuStreamSynchronize",
        "cuLaunchKernel",
        "cuMemcpyDtoDAsync_v2",
        "cuStreamCreate",
        "cuModuleLoadDataEx",
    ] {
        for at in 1..6 {
            let Some(fake) = Fake::new(&[&format!("fail={call}:{at}:999")]) else { return };
            let (program, on) = (program(counter(&["sm_90"])), LoadOptions::on(&device(&fake)));
            let mut method = program.load("forward", &on).or_else(|_| program.load("forward", &on)).unwrap();
            let mut done = 0.0;
            for _ in 0..6 {
                match method.run(&[x(&[1.0]).view()]) {
                    Ok(outputs) => {
                        done += 1.0;
                        assert_eq!(values(&outputs), [1.0 + done], "{call} {at}");
                    }
                    Err(error) => assert!(error.message.contains("(999)"), "{error}"),
                }
            }
            assert!(done >= 5.0, "{call} {at}");
            drop((method, on));
            fake.assert_clean();
        }
    }
}

#[test]
fn sessions_move_between_devices_and_files() {
    let Some(fake) = Fake::new(&[]) else { return };
    let program = program(counter(&["sm_90"]));
    let mut on_gpu = program.load("forward", &LoadOptions::on(&device(&fake))).unwrap();
    let mut on_cpu = program.load("forward", &LoadOptions::default()).unwrap();
    let mut session = Session::new();
    let tensor = x(&[1.0]);
    assert_eq!(values(&on_gpu.run_in(&mut session, &[tensor.view()]).unwrap()), [2.0]);
    assert_eq!(values(&on_cpu.run_in(&mut session, &[tensor.view()]).unwrap()), [3.0]);
    assert_eq!(values(&on_gpu.run_in(&mut session, &[tensor.view()]).unwrap()), [4.0]);
    let path = std::env::temp_dir().join(format!("douse-gpu-session-{}.ptd", std::process::id()));
    session.save(&path).unwrap();
    let mut restored = Session::restore(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(values(&on_gpu.run_in(&mut restored, &[tensor.view()]).unwrap()), [5.0]);
}

#[test]
fn kernels_get_the_seed_and_the_number_of_the_call() {
    let Some(fake) = Fake::new(&[]) else { return };
    let mut payload = counter(&["sm_90"]);
    // In place of the last check: `draw` takes the output instead of the input.
    let plan = Arc::make_mut(&mut payload.plan);
    plan.kernels[2].params[0].access = douse_program::kernel::Access::Write;
    plan.steps[2] = douse_program::plan::Step::Kernel { kernel: 2, args: vec![1] };
    let index = "0".parse().unwrap();
    let body = plan.kernels[0].stages[0].body.clone();
    let effects = vec![douse_program::kernel::Effect::Store { param: 0, index, value: 0, guard: None }];
    plan.kernels[2].stages[0] = douse_program::kernel::Stage { inner: vec![], body, effects };
    let launch = &mut payload.cuda[0].kernels[2].launches[0];
    (launch.function, launch.flag, launch.random) = ("draw".into(), false, true);
    let mut method = program(payload).load("forward", &LoadOptions::on(&device(&fake))).unwrap();
    let mut session = Session::with_seed(5);
    for call in [0.0, 1.0] {
        assert_eq!(values(&method.run_in(&mut session, &[x(&[1.0, 1.0]).view()]).unwrap()), [5.0, call]);
    }
}

/// `x` [n] on the device, each element `start`, `start + 1`, ...
fn on_device(device: &CudaDevice, values: &[f32]) -> DeviceTensor {
    DeviceTensor::from_host(device, &x(values).view()).unwrap()
}

fn on_host(value: &Value) -> Vec<f64> {
    elements(&value.device_tensor().unwrap().to_host().unwrap()).iter().map(|element| element.to_f64()).collect()
}

#[test]
fn tensors_on_the_device_are_used_where_they_lie_with_and_without_graphs() {
    let Some(fake) = Fake::new(&[]) else { return };
    let device = device(&fake);
    for graphs in [None, Some(CudaGraph { warm_up: 1, ..CudaGraph::default() })] {
        let load = LoadOptions { cuda_graph: graphs.clone(), ..LoadOptions::on(&device).with_outputs_on_device() };
        let mut method = program(counter(&["sm_90"])).load("forward", &load).unwrap();
        let input = on_device(&device, &[1.0, 5.0]);
        for call in 1..=3 {
            let outputs = method.run(&[&input]).unwrap();
            assert_eq!(on_host(&outputs[0]), [1.0 + f64::from(call), 5.0 + f64::from(call)]);
        }
        let report = method.cuda_graph_report();
        assert!(report.is_none_or(|report| (report.replays, report.patched_nodes, report.off) == (1, 0, None)));
        // Outputs that are kept stay what they are, and another input lies elsewhere.
        let other = on_device(&device, &[2.0, 7.0]);
        let kept: Vec<Vec<Value>> = [&input, &other, &input].map(|x| method.run(&[x]).unwrap()).into();
        let kept: Vec<Vec<f64>> = kept.iter().map(|outputs| on_host(&outputs[0])).collect();
        assert_eq!(kept, [[5.0, 9.0], [7.0, 12.0], [7.0, 11.0]]);
        let report = method.cuda_graph_report();
        assert!(report.is_none_or(|report| report.recordings == 1 && report.patched_nodes > 0 && report.off.is_none()));
        // A host tensor after one of the device.
        assert_eq!(on_host(&method.run(&[x(&[1.0, 1.0]).view()]).unwrap()[0]), [8.0, 8.0]);
    }
    drop(device);
    fake.assert_clean();
}

#[test]
fn strided_and_misaligned_tensors_on_the_device_are_copied() {
    let Some(fake) = Fake::new(&[]) else { return };
    let device = device(&fake);
    let mut method = method(&fake);
    let memory = device.device().allocate(64).unwrap();
    let values: Vec<u8> = (1..=16u8).flat_map(|value| f32::from(value).to_le_bytes()).collect();
    device.upload(&values, memory.all()).unwrap();
    let view = |range, strides: &[usize]| {
        DeviceTensor::borrowed(&device, DType::F32, &[2], strides, memory.part(range).unwrap())
    };
    let strided = view(0..64, &[3]).unwrap();
    assert_eq!(values_of(&mut method, &strided), [2.0, 5.0]);
    let misaligned = view(4..64, &[1]).unwrap();
    assert_eq!(values_of(&mut method, &misaligned), [4.0, 5.0]);
    assert_eq!(view(56..64, &[3]).unwrap_err().code, Code::InvalidArgument);
    let bytes = DeviceTensor::borrowed(&device, DType::U8, &[2], &[1], memory.all()).unwrap();
    let error = method.run(&[&bytes]).unwrap_err();
    assert!(error.message.contains("is a uint8 tensor, expected a float32 tensor"), "{error}");
    // On the CPU they are brought to the host.
    let mut on_cpu = program(counter(&["sm_90"])).load("forward", &LoadOptions::default()).unwrap();
    assert_eq!(values_of(&mut on_cpu, &strided), [2.0, 5.0]);
}

fn values_of(method: &mut Method, input: &DeviceTensor) -> Vec<f64> {
    values(&method.run(&[input]).unwrap())
}

#[test]
fn a_call_runs_on_the_callers_stream() {
    let Some(fake) = Fake::new(&[]) else { return };
    let device = device(&fake);
    for graphs in [None, Some(CudaGraph { warm_up: 1, ..CudaGraph::default() })] {
        let load = LoadOptions { cuda_graph: graphs, ..LoadOptions::on(&device) };
        let mut method = program(counter(&["sm_90"])).load("forward", &load).unwrap();
        // The stream still has to fill the input when the call is made.
        let stream = Arc::new(device.device().stream().unwrap());
        let memory = device.device().allocate(16).unwrap();
        let mut pinned = device.device().pinned(8).unwrap();
        let input = DeviceTensor::borrowed(&device, DType::F32, &[2], &[1], memory.all()).unwrap();
        method.set_stream(Some(stream.clone())).unwrap();
        for call in 1..=4u8 {
            pinned.write(0, &[f32::from(call), 1.0].map(f32::to_le_bytes).concat()).unwrap();
            device.device().upload(&pinned, 0, memory.part(0..8).unwrap(), &stream).unwrap();
            assert_eq!(values_of(&mut method, &input), [2.0 * f64::from(call), 1.0 + f64::from(call)]);
        }
        // One that has to be copied is waited for.
        let strided = DeviceTensor::borrowed(&device, DType::F32, &[2], &[2], memory.all()).unwrap();
        pinned.write(0, &[3f32, 0.0].map(f32::to_le_bytes).concat()).unwrap();
        device.device().upload(&pinned, 0, memory.part(0..8).unwrap(), &stream).unwrap();
        device.device().upload(&pinned, 0, memory.part(8..16).unwrap(), &stream).unwrap();
        assert_eq!(values_of(&mut method, &strided), [3.0 + 5.0, 3.0 + 5.0]);
    }
    drop(device);
    fake.assert_clean();
}

#[test]
fn calls_are_timed_and_functions_described() {
    let Some(fake) = Fake::new(&[]) else { return };
    let mut method = method(&fake);
    method.run(&[x(&[1.0]).view()]).unwrap();
    assert_eq!(method.device_milliseconds(), None);
    method.time_calls().unwrap();
    method.run(&[x(&[1.0]).view()]).unwrap();
    assert!(method.device_milliseconds().is_some_and(|time| time >= 0.0));
    let functions = method.device_functions().unwrap();
    let names: Vec<&str> = functions.iter().map(|function| function.name.as_str()).collect();
    assert_eq!(names, ["count", "add", "check"]);
    assert!(functions.iter().all(|function| function.threads == 32 && function.blocks > 0));
    drop(method);
    fake.assert_clean();
}
