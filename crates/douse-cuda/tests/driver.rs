//! The driver's binding, against a driver that runs on the host.

#![allow(clippy::unwrap_used, clippy::panic)]

mod fake;

use douse_core::Code;
use douse_cuda::{Argument, Driver, Grid};
use fake::Fake;

#[test]
fn memory_streams_and_launches_work_and_nothing_stays() {
    let Some(fake) = Fake::new(&[]) else { return };
    let device = Driver::open_as(&fake.names()).unwrap().device(0).unwrap();
    assert_eq!((device.name(), device.compute_capability()), ("Test GPU", (9, 0)));
    // On another thread than the one that opened it.
    std::thread::spawn(move || {
        let stream = device.stream().unwrap();
        let module = device.load(b"code").unwrap();
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
fn errors_carry_the_call_the_code_and_the_text() {
    let Some(fake) = Fake::new(&["FAIL=cuStreamCreate", "AT=1", "STATUS=719"]) else { return };
    let device = Driver::open_as(&fake.names()).unwrap().device(0).unwrap();
    let error = device.stream().unwrap_err();
    assert_eq!(error.message, "cuStreamCreate failed with CUDA_ERROR_OF_A_TEST (719): an error of a test");
    device.stream().unwrap();
}

#[test]
fn too_little_memory_says_how_much_there_is() {
    let Some(fake) = Fake::new(&["MEMORY=1000"]) else { return };
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
    assert!(error.code == Code::InvalidProgram && error.message.contains("no code of a test"), "{error}");
    let module = device.load(b"code").unwrap();
    assert!(module.function("missing").unwrap_err().message.contains("missing: cuModuleGetFunction"));
}

#[test]
fn a_missing_or_old_driver_says_what_to_do() {
    let error = Driver::open_as(&["/nowhere/libcuda.so.1".into()]).unwrap_err();
    assert_eq!(error.code, Code::NotFound);
    assert!(error.message.contains("/nowhere/libcuda.so.1") && error.message.contains("NVIDIA driver"), "{error}");
    let Some(fake) = Fake::new(&["VERSION=12020"]) else { return };
    let error = Driver::open_as(&fake.names()).unwrap_err();
    assert!(error.code == Code::NotSupported && error.message.contains("supports CUDA 12.2"), "{error}");
    // A library without the driver's functions: any will do.
    let Some(fake) = Fake::new(&["cuMemAlloc_v2=cuMemAlloc_v0"]) else { return };
    let error = Driver::open_as(&fake.names()).unwrap_err();
    assert!(error.code == Code::NotSupported && error.message.contains("it has no cuMemAlloc_v2"), "{error}");
}

#[test]
fn a_device_that_is_not_there_is_refused() {
    let Some(fake) = Fake::new(&[]) else { return };
    let error = Driver::open_as(&fake.names()).unwrap().device(3).unwrap_err();
    assert_eq!(error.message, "there is no CUDA device 3: this machine has 1 CUDA device");
}
