//! What softgpu checks: each test does something wrong, and sees that it shows.

#![allow(clippy::unwrap_used, clippy::panic)]

mod fake;

use douse_core::{Error, Result};
use douse_cuda::{Argument, Device, DeviceMemory, Driver, Grid, Stream};
use fake::Fake;

/// A device with a stream and 64 integers, which are 0 to 63.
struct Bench {
    numbers: DeviceMemory,
    stream: Stream,
    device: Device,
    /// Last: it removes the log.
    fake: Fake,
}

impl Bench {
    fn new(options: &[&str]) -> Option<Bench> {
        let fake = Fake::new(options)?;
        let device = Driver::open_as(&fake.names()).unwrap().device(0).unwrap();
        let (stream, numbers) = (device.stream().unwrap(), device.allocate(256).unwrap());
        let mut pinned = device.pinned(256).unwrap();
        pinned.write(0, &(0..64).flat_map(i32::to_le_bytes).collect::<Vec<u8>>()).unwrap();
        device.upload(&pinned, 0, numbers.all(), &stream).unwrap();
        stream.synchronize().unwrap();
        Some(Bench { fake, device, stream, numbers })
    }

    /// Launches a kernel in blocks of 64.
    fn launch(&self, name: &str, blocks: u32, arguments: &[Argument]) -> Result<()> {
        let function = self.device.load(&fake::code())?.function(name)?;
        function.launch(&Grid { blocks: [blocks, 1, 1], threads: [64, 1, 1], shared: 0 }, arguments, &self.stream)
    }

    fn fails(&self, name: &str, arguments: &[Argument]) -> Error {
        self.launch(name, 1, arguments).and_then(|()| self.stream.synchronize()).unwrap_err()
    }

    fn read(&self, memory: &DeviceMemory) -> Vec<i32> {
        let pinned = self.device.pinned(memory.len()).unwrap();
        self.device.download(memory.all(), &pinned, 0, &self.stream).unwrap();
        self.stream.synchronize().unwrap();
        let mut bytes = vec![0; memory.len()];
        pinned.read(0, &mut bytes).unwrap();
        bytes.chunks(4).map(|b| i32::from_le_bytes(b.try_into().unwrap())).collect()
    }
}

#[test]
fn threads_meet_at_barriers_and_exchange_in_any_order() {
    for options in [&[][..], &["reverse"], &["eager"]] {
        let Some(bench) = Bench::new(options) else { return };
        let out = bench.device.allocate(256).unwrap();
        let arguments = [bench.numbers.all(), out.all()].map(Argument::Place);
        bench.launch("neighbours", 3, &arguments).unwrap();
        assert_eq!(bench.read(&out), (0..64).map(|t| 63 - (t ^ 1)).collect::<Vec<i32>>(), "{options:?}");
    }
}

#[test]
fn a_barrier_that_not_every_thread_reaches_is_an_error() {
    let Some(bench) = Bench::new(&[]) else { return };
    let error = bench.fails("apart", &[Argument::Place(bench.numbers.all())]);
    assert!(error.message.contains("apart: 64 of 64 threads wait for ever; at a barrier: 32 threads"), "{error}");
}

#[test]
fn an_access_outside_of_memory_stops_the_kernel_and_not_the_process() {
    let Some(bench) = Bench::new(&[]) else { return };
    let out = bench.device.allocate(256).unwrap();
    let error = bench.fails("write_at", &[Argument::Place(out.all()), Argument::I64(64)]);
    let told = "write_at: an access to 0 bytes after the end of an allocation of 256 bytes of the device's memory, in thread 0, of block";
    assert!(error.message.contains(told), "{error}");
    // The stream is lost; the device is not.
    assert!(bench.launch("count", 1, &[Argument::Place(out.all())]).is_err());
    let Bench { numbers, stream, device, fake } = bench;
    drop(stream);
    let other = Bench { numbers, stream: device.stream().unwrap(), device, fake };
    assert_eq!(other.read(&other.numbers)[63], 63);
    // Just beside an allocation whose length is no multiple of the driver's alignment: seen when it is freed.
    let small = other.device.allocate(4).unwrap();
    other.launch("write_at", 1, &[Argument::Place(small.all()), Argument::I64(1)]).unwrap();
    other.stream.synchronize().unwrap();
    drop((small, out));
}

#[test]
fn freed_memory_is_known() {
    let Some(bench) = Bench::new(&[]) else { return };
    let gone = bench.device.allocate(256).unwrap();
    let place = gone.all();
    drop(gone);
    let error = bench.device.copy(place, bench.numbers.all(), &bench.stream).unwrap_err();
    assert!(error.message.contains("a copy from: memory that was freed: byte 0 of an allocation of 256"), "{error}");
    let error = bench.fails("count", &[Argument::Place(place)]);
    assert!(error.message.contains("parameter 0 of count: memory that was freed"), "{error}");
}

#[test]
fn what_nobody_wrote_is_full_of_ones() {
    let Some(bench) = Bench::new(&[]) else { return };
    let out = bench.device.allocate(8).unwrap();
    assert_eq!(bench.read(&out), [-1, -1]);
    bench.launch("write_at", 1, &[Argument::Place(out.all()), Argument::I64(0)]).unwrap();
    bench.launch("forgetful", 2, &[Argument::Place(out.all())]).unwrap();
    assert_eq!(bench.read(&out), [-1, -1], "a block sees nothing of the one before");
}

#[test]
fn work_waits_until_somebody_waits_for_it() {
    let Some(bench) = Bench::new(&[]) else { return };
    let (device, stream) = (&bench.device, &bench.stream);
    let mut pinned = device.pinned(8).unwrap();
    let memory = device.allocate(8).unwrap();
    pinned.write(0, &[1; 8]).unwrap();
    device.upload(&pinned, 0, memory.all(), stream).unwrap();
    // Too early: the copy has not begun.
    pinned.write(0, &[2; 8]).unwrap();
    assert!(!stream.is_done().unwrap());
    assert_eq!(bench.read(&memory), [0x0202_0202; 2]);
    // A stream runs what it waits for on another, and no more.
    let other = device.stream().unwrap();
    let event = device.event(false).unwrap();
    memory.fill(0..4, 3, &other).unwrap();
    event.record(&other).unwrap();
    memory.fill(4..8, 4, &other).unwrap();
    stream.wait(&event).unwrap();
    assert_eq!(bench.read(&memory), [0x0303_0303, 0x0202_0202]);
    device.synchronize().unwrap();
    assert_eq!(bench.read(&memory), [0x0303_0303, 0x0404_0404]);
}

#[test]
fn a_division_by_zero_stops_the_kernel() {
    let Some(bench) = Bench::new(&[]) else { return };
    let error = bench.fails("divide", &[Argument::Place(bench.numbers.all()), Argument::I64(1), Argument::I64(0)]);
    assert!(error.message.contains("divide: an integer division by zero"), "{error}");
}

#[test]
fn what_is_not_freed_is_counted() {
    let Some(bench) = Bench::new(&[]) else { return };
    std::mem::forget(bench.device.allocate(100).unwrap());
    let Bench { fake, device, stream, numbers } = bench;
    drop((numbers, stream, device));
    let left = std::panic::catch_unwind(|| fake.assert_clean()).unwrap_err();
    assert!(left.downcast_ref::<String>().unwrap().contains("1 allocations (100 bytes), 1 uses of the context"));
}
