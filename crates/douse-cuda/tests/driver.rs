//! The driver's binding, against a driver that runs on the host.

#![allow(clippy::unwrap_used, clippy::panic)]

mod fake;

use douse_core::{Code, DType};
use douse_cuda::{Argument, Blas, Chain, Condition, Driver, Exec, Graph, Grid, Overlap, Transfer};
use fake::Fake;

#[test]
fn memory_streams_and_launches_work_and_nothing_stays() {
    let Some(fake) = Fake::new(&[]) else { return };
    let device = Driver::open_as(&fake.names()).unwrap().device(0).unwrap();
    assert_eq!((device.name(), device.compute_capability()), ("Test GPU (softgpu)", (9, 0)));
    // On another thread than the one that opened it.
    std::thread::spawn(move || {
        let stream = device.stream().unwrap();
        let module = device.load(&fake::code()).unwrap();
        let function = module.function("add").unwrap();
        let (x, y) = (device.allocate(8).unwrap(), device.allocate(4).unwrap());
        let mut pinned = device.pinned(64).unwrap();
        pinned.write(0, &[1f32, 2.0, 10.0].map(f32::to_le_bytes).concat()).unwrap();
        device.upload(&pinned, 0, x.all(), &stream).unwrap();
        device.upload(&pinned, 8, y.all(), &stream).unwrap();
        let places = [x.all(), y.all(), x.all()].map(Argument::Place);
        let arguments: Vec<Argument> = places.into_iter().chain([Argument::I64(2)]).collect();
        let grid = Grid { blocks: [1, 1, 1], threads: [32, 1, 1], shared: 0 };
        function.launch(&grid, &arguments, &stream).unwrap();
        device.download(x.all(), &pinned, 16, &stream).unwrap();
        stream.synchronize().unwrap();
        let mut out = [0; 8];
        pinned.read(16, &mut out).unwrap();
        assert_eq!(out.to_vec(), [11f32, 12.0].map(f32::to_le_bytes).concat());
        assert!(pinned.read(60, &mut out).is_err());
        // The function outlives the module's handle, and everything its device's.
        drop(module);
        function.launch(&grid, &arguments, &stream).unwrap();
    })
    .join()
    .unwrap();
    fake.assert_clean();
}

#[test]
fn graphs_run_branches_and_loops_and_take_other_arguments() {
    let Some(fake) = Fake::new(&[]) else { return };
    let device = Driver::open_as(&fake.names()).unwrap().device(0).unwrap();
    let stream = device.stream().unwrap();
    let module = device.load(&fake::code()).unwrap();
    let function = |name: &str| module.function(name).unwrap();
    // Floats: a counter, its limit, and another counter; then a predicate and the error flag.
    let memory = device.allocate(64).unwrap();
    let part = |range: std::ops::Range<usize>| memory.part(range).unwrap();
    let [counter, limit, other] = [part(0..4), part(4..8), part(8..12)];
    let (predicate, flag) = (part(12..13), part(16..40));
    let mut pinned = device.pinned(64).unwrap();
    pinned.write(4, &3f32.to_le_bytes()).unwrap();
    let grid = Grid { blocks: [1; 3], threads: [1; 3], shared: 0 };
    let places = |places: &[douse_cuda::Place]| places.iter().copied().map(Argument::Place).collect::<Vec<_>>();

    // while counter < limit { counter += 1 }; if counter < limit { other += 1 } else { other += 1; other += 1 }
    let mut graph = device.graph().unwrap();
    let mut chain = graph.chain();
    graph.transfer(&mut chain, Transfer::Upload { from: &pinned, start: 0, to: part(0..40) }).unwrap();
    let less = places(&[counter, limit, predicate]);
    let decide = |graph: &mut Graph, chain: &mut Chain, condition: Condition| {
        graph.launch(chain, &function("less"), &grid, &less, Overlap::None).unwrap();
        let arguments = [Argument::Place(predicate), condition.argument(), Argument::Place(flag)];
        graph.launch(chain, &function("condition"), &grid, &arguments, Overlap::None).unwrap();
    };
    let again = graph.condition(&chain).unwrap();
    decide(&mut graph, &mut chain, again);
    let mut body = graph.repeat(&mut chain, again).unwrap();
    graph.launch(&mut body, &function("count"), &grid, &places(&[counter]), Overlap::None).unwrap();
    decide(&mut graph, &mut body, again);
    let condition = graph.condition(&chain).unwrap();
    decide(&mut graph, &mut chain, condition);
    let [mut then, mut otherwise] = graph.branch(&mut chain, condition).unwrap();
    graph.launch(&mut then, &function("count"), &grid, &places(&[other]), Overlap::None).unwrap();
    graph.launch(&mut otherwise, &function("count"), &grid, &places(&[other]), Overlap::None).unwrap();
    let last = graph.launch(&mut otherwise, &function("count"), &grid, &places(&[other]), Overlap::None).unwrap();
    let download = Transfer::Download { from: part(0..12), to: &pinned, start: 40 };
    let copied = graph.transfer(&mut chain, download).unwrap();
    let nothing = Transfer::Within { from: part(0..0), to: part(4..4) };
    assert!(graph.transfer(&mut chain, nothing).is_err());

    let mut exec = graph.instantiate().unwrap();
    exec.upload(&stream).unwrap();
    let results = |exec: &Exec| {
        exec.launch(&stream).unwrap();
        stream.synchronize().unwrap();
        let mut bytes = [0; 12];
        pinned.read(40, &mut bytes).unwrap();
        [0, 4, 8].map(|at| f32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()))
    };
    assert_eq!(results(&exec), [3.0, 3.0, 2.0]);
    assert_eq!(results(&exec), [3.0, 3.0, 2.0]);
    exec.set_launch(last, &function("count"), &grid, &places(&[limit])).unwrap();
    assert_eq!(results(&exec), [3.0, 4.0, 1.0]);
    let elsewhere = Transfer::Download { from: part(0..12), to: &pinned, start: 20 };
    exec.set_transfer(copied, elsewhere).unwrap();
    assert_eq!(results(&exec), [3.0, 4.0, 1.0], "the old bytes stay");
    // The graph keeps what its nodes name.
    drop((module, pinned));
    exec.launch(&stream).unwrap();
    drop((exec, memory, stream, device));
    fake.assert_clean();
}

#[test]
fn functions_tell_their_parameters_where_the_driver_can_be_asked() {
    let Some(fake) = Fake::new(&[]) else { return };
    let device = Driver::open_as(&fake.names()).unwrap().device(0).unwrap();
    let function = device.load(&fake::code()).unwrap().function("add").unwrap();
    assert_eq!(function.parameters().unwrap(), Some(vec![8; 4]));
    function.expect_parameters(&[8; 4]).unwrap();
    for (expected, told) in
        [(&[8; 5][..], "5 parameters (8, 8, 8, 8, 8 bytes)"), (&[8], "1 parameter (8 bytes)"), (&[], "no parameters")]
    {
        let error = function.expect_parameters(expected).unwrap_err();
        assert_eq!(error.code, Code::InvalidProgram);
        let told = format!("the plan passes {told}, and the kernel takes 4 parameters (8, 8, 8, 8 bytes)");
        assert!(error.message.contains(&told) && error.message.contains("add"), "{error}");
    }
    assert!(function.expect_parameters(&[8, 8, 8, 4]).is_err());

    // One before CUDA 12.4.
    let old = Fake::bare().without("cuFuncGetParamInfo");
    old.configure("capability=90");
    let device = Driver::open_as(&old.names()).unwrap().device(0).unwrap();
    let function = device.load(&fake::code()).unwrap().function("add").unwrap();
    assert_eq!(function.parameters().unwrap(), None);
    function.expect_parameters(&[]).unwrap();
}

#[test]
fn tensor_maps_stay_in_their_memory() {
    let Some(fake) = Fake::new(&[]) else { return };
    let device = Driver::open_as(&fake.names()).unwrap().device(0).unwrap();
    let memory = device.allocate(4096).unwrap();
    let map = |start: usize, sizes: &[u64], strides: &[u64]| {
        let tile = vec![8; sizes.len()];
        let made = device.tensor_map(memory.part(start..4096).unwrap(), DType::F16, sizes, strides, &tile);
        made.map_err(|error| error.code)
    };
    // 32 lines of 64 elements; the last line may end where the memory does.
    assert!(map(0, &[64, 32], &[64]).is_ok());
    assert!(map(16, &[56, 32], &[64]).is_ok());
    assert!(map(0, &[0, 1 << 20], &[64]).is_ok());
    for (start, sizes, strides, code) in [
        (16, &[64, 32][..], &[64][..], Code::Internal),
        (0, &[64, 33], &[64], Code::Internal),
        (0, &[64, 2, 2], &[64, u64::MAX], Code::Internal),
        (0, &[64, 32], &[64, 64], Code::Internal),
        // What the driver refuses: strides and places that are no multiples of 16 bytes.
        (0, &[8, 32], &[12], Code::Internal),
        (8, &[8, 31], &[64], Code::Internal),
        // Coordinates are 32-bit numbers.
        (0, &[8, 1 << 31], &[0], Code::NotSupported),
    ] {
        assert_eq!(map(start, sizes, strides).unwrap_err(), code, "{start} {sizes:?} {strides:?}");
    }
    drop((memory, device));
    fake.assert_clean();
}

#[test]
fn a_cublaslt_that_is_missing_or_is_none_says_so() {
    let Some(fake) = Fake::new(&["fail=cublasLtCreate:1:1"]) else { return };
    let device = Driver::open_as(&fake.names()).unwrap().device(0).unwrap();
    let error = Blas::open_as(&device, &["libnowhere.so.13".into()]).unwrap_err();
    assert_eq!(error.code, Code::NotFound);
    for part in ["libnowhere.so.13", "pip install nvidia-cublas", "DOUSE_CUBLASLT"] {
        assert!(error.message.contains(part), "{error}");
    }
    let error = Blas::open_as(&device, &["libc.so.6".into()]).unwrap_err();
    assert!(error.message.starts_with("libc.so.6 has no cublasLtCreate"), "{error}");
    let error = Blas::open_as(&device, &fake.names()).unwrap_err();
    assert_eq!(error.message, "cublasLtCreate failed with cublasStatus_t 1");
    drop((Blas::open_as(&device, &fake.names()).unwrap(), device));
    fake.assert_clean();
}

#[test]
fn errors_carry_the_call_the_code_and_the_text() {
    let Some(fake) = Fake::new(&["fail=cuStreamCreate:1:719"]) else { return };
    let device = Driver::open_as(&fake.names()).unwrap().device(0).unwrap();
    let error = device.stream().unwrap_err();
    assert_eq!(
        error.message,
        "cuStreamCreate failed with CUDA_ERROR_LAUNCH_FAILED (719): unspecified launch failure (cuStreamCreate was to fail)"
    );
    device.stream().unwrap();
}

#[test]
fn too_little_memory_says_how_much_there_is() {
    let Some(fake) = Fake::new(&["memory=1000"]) else { return };
    let device = Driver::open_as(&fake.names()).unwrap().device(0).unwrap();
    let kept = device.allocate(600).unwrap();
    let error = device.allocate(500).unwrap_err();
    assert_eq!(error.code, Code::MemoryAllocationFailed);
    assert!(error.message.contains("500 bytes: 400 of its 1000 bytes are free"), "{error}");
    drop(kept);
    device.allocate(500).unwrap();
}

#[test]
fn code_that_does_not_load_shows_the_drivers_log() {
    let Some(fake) = Fake::new(&[]) else { return };
    let device = Driver::open_as(&fake.names()).unwrap().device(0).unwrap();
    let error = device.load(b"what").unwrap_err();
    assert!(
        error.code == Code::InvalidProgram && error.message.contains("no shared object for the target soft"),
        "{error}"
    );
    let module = device.load(&fake::code()).unwrap();
    assert!(module.function("missing").unwrap_err().message.contains("missing: cuModuleGetFunction"));
}

#[test]
fn a_missing_or_old_driver_says_what_to_do() {
    let error = Driver::open_as(&["/nowhere/libcuda.so.1".into()]).unwrap_err();
    assert_eq!(error.code, Code::NotFound);
    assert!(error.message.contains("/nowhere/libcuda.so.1") && error.message.contains("NVIDIA driver"), "{error}");
    let Some(fake) = Fake::new(&["version=12020"]) else { return };
    let error = Driver::open_as(&fake.names()).unwrap_err();
    assert!(error.code == Code::NotSupported && error.message.contains("supports CUDA 12.2"), "{error}");
    // A library without the driver's functions.
    let error = Driver::open_as(&["libm.so.6".into()]).unwrap_err();
    assert!(error.code == Code::NotSupported && error.message.contains("it has no cuInit"), "{error}");
}

#[test]
fn a_device_that_is_not_there_is_refused() {
    let Some(fake) = Fake::new(&[]) else { return };
    let error = Driver::open_as(&fake.names()).unwrap().device(3).unwrap_err();
    assert_eq!(error.message, "there is no CUDA device 3: this machine has 1 CUDA device");
}
