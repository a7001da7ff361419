//! Thousands of calls.

use std::thread;

use douse::{CudaGraph, HostTensor, Method};

use super::case::Case;
use super::{Bench, after};

/// Calls of each of the two threads: 3,000 in all, after whose first 300 memory stays what it is.
const CALLS: u64 = 1500;
const WARM: u64 = 150;
/// Inputs have 1 to that many elements.
const SHAPES: u64 = 20;
const CACHE: usize = 8;

/// One thread's method, in its own session.
struct Caller {
    method: Method,
    random: u64,
    done: u64,
}

impl Caller {
    fn new(bench: &Bench, case: &Case, seed: u64) -> Caller {
        let method = bench.load(case, Some(CudaGraph { cache: CACHE, ..after(3) }));
        Caller { method, random: seed, done: 0 }
    }

    /// A number below the limit: a linear congruential generator, with the constants of Knuth's MMIX.
    fn below(&mut self, limit: u64) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % limit
    }

    /// Calls until so many are done. The program counts in threes, reads its count back, and multiplies by it.
    fn call_until(&mut self, count: u64) {
        while self.done < count {
            self.done += 1;
            // The first call takes the most memory that any may take.
            let len = if self.done == 1 { SHAPES } else { 1 + self.below(SHAPES) };
            let values: Vec<f32> = (0..len).map(|_| self.below(1000) as f32).collect();
            let x = HostTensor::from_f32(&[values.len()], &values).unwrap();
            let outputs = self.method.run(&[x.view()]).unwrap();
            let expected: Vec<f32> = values.iter().map(|x| x * (3 * self.done) as f32).collect();
            assert_eq!(outputs[0].tensor().unwrap().f32_values().unwrap(), expected, "call {}", self.done);
        }
    }
}

#[test]
fn three_thousand_calls_of_twenty_shapes_in_two_threads_keep_memory_flat() {
    let Some(case) = Case::read("state_item") else { return };
    let bench = Bench::new();
    let mut callers = [7, 8].map(|seed| Caller::new(&bench, &case, seed));
    let mut left = Vec::new();
    for count in [WARM, CALLS / 2, CALLS] {
        thread::scope(|scope| {
            for caller in &mut callers {
                scope.spawn(|| caller.call_until(count));
            }
        });
        left.push((bench.fake.left(), bench.device.device().free_memory().unwrap()));
    }
    assert!(left.iter().all(|then| *then == left[0]), "{left:?}");
    for caller in &callers {
        let report = caller.method.cuda_graph_report().unwrap();
        assert_eq!((report.shapes, report.off), (CACHE, None));
        // Of 20 sizes, 8 have graphs: three of five calls record.
        assert!(report.recordings > CALLS && report.recordings < 2 * CALLS, "{}", report.recordings);
    }
    drop(callers);
    bench.close();
}
