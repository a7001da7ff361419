//! CUDA graphs of exported programs, on softgpu: what a method does call after call, with every driver call of a recording failing, and for long.
// Helpers outside of tests, too, fail the test by panicking.
#![allow(clippy::unwrap_used, clippy::panic)]

mod behaviour;
mod case;
#[path = "../../../douse-cuda/tests/fake/mod.rs"]
mod fake;
mod faults;
mod products;
mod soak;

use douse::{CudaDevice, CudaGraph, LoadOptions, Method};

use case::Case;
use fake::Fake;

/// A simulated device.
struct Bench {
    device: CudaDevice,
    /// Last: it removes the driver.
    fake: Fake,
}

impl Bench {
    fn new() -> Bench {
        let fake = Fake::bare();
        Bench { device: open(&fake), fake }
    }

    fn load(&self, case: &Case, graph: Option<CudaGraph>) -> Method {
        let load = LoadOptions { cuda_graph: graph, ..LoadOptions::on(&self.device) };
        case.program.load("forward", &load).unwrap()
    }

    /// Checks that the device is as it was before; methods and sessions must be gone.
    fn close(self) {
        let Bench { device, fake } = self;
        drop(device);
        fake.assert_clean();
    }
}

fn open(fake: &Fake) -> CudaDevice {
    CudaDevice::open_with(&fake.names(), 0).unwrap()
}

/// Graphs after so many plain calls.
fn after(warm_up: u32) -> CudaGraph {
    CudaGraph { warm_up, ..CudaGraph::default() }
}
