//! Streams and events: work waits in its stream until somebody waits for it.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::block::{self, Shape};
use crate::graph::{self, Launched};
use crate::module::{Kernel, Module};
use crate::status::{LAUNCH_FAILED, Outcome, fail};
use crate::world;

/// A launch, with the values of its parameters.
#[derive(Clone, Debug)]
pub struct Launch {
    pub module: Arc<Module>,
    pub kernel: Kernel,
    pub shape: Shape,
    pub shared: usize,
    /// Each in as many words as it takes.
    pub values: Vec<u64>,
}

/// A side of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Side {
    Device(u64),
    Pinned(u64),
    /// What pageable memory held when the copy was asked for.
    Bytes(Vec<u8>),
}

#[derive(Clone, Debug)]
pub enum Work {
    Launch(Launch),
    Copy { from: Side, to: Side, len: usize },
    Fill { to: u64, value: u8, len: usize },
    Product(crate::blas::Product),
    Record(Arc<Mutex<Option<Instant>>>),
    Wait(Arc<Stream>, u64),
    Graph(Arc<Launched>),
}

#[derive(Debug, Default)]
pub struct Stream {
    queue: Mutex<Queue>,
    done: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    work: VecDeque<Work>,
    put: u64,
    done: u64,
    busy: bool,
    /// What went wrong first. Nothing runs after it.
    failed: Option<crate::status::Failure>,
}

#[derive(Clone, Debug, Default)]
pub struct Event {
    pub timed: bool,
    pub recorded: Option<Recorded>,
    /// The capture and its nodes, where it was recorded in one.
    pub captured: Option<(u64, Vec<u64>)>,
}

/// A place in a stream, and when it was reached.
#[derive(Clone, Debug)]
pub struct Recorded {
    pub stream: Arc<Stream>,
    pub number: u64,
    pub time: Arc<Mutex<Option<Instant>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Stream {
    /// Puts work at the end, and says its number.
    ///
    /// # Errors
    /// What went wrong in earlier work.
    pub fn put(&self, work: Work) -> Outcome<u64> {
        let mut queue = lock(&self.queue);
        if let Some(failed) = &queue.failed {
            return Err(failed.clone());
        }
        queue.work.push_back(work);
        queue.put += 1;
        Ok(queue.put)
    }

    /// Runs all work so far, or waits for who runs it.
    ///
    /// # Errors
    /// What went wrong in it.
    pub fn synchronize(&self) -> Outcome {
        let all = lock(&self.queue).put;
        self.run_to(all)
    }

    /// The same up to a piece of work.
    ///
    /// # Errors
    /// As [`Stream::synchronize`].
    pub fn run_to(&self, number: u64) -> Outcome {
        while !self.is_done(number)? {
            self.step(number);
        }
        Ok(())
    }

    /// Whether a piece of work is done.
    ///
    /// # Errors
    /// As [`Stream::synchronize`].
    pub fn is_done(&self, number: u64) -> Outcome<bool> {
        let queue = lock(&self.queue);
        match &queue.failed {
            Some(failed) => Err(failed.clone()),
            None => Ok(queue.done >= number),
        }
    }

    pub fn last(&self) -> u64 {
        lock(&self.queue).put
    }

    /// Runs the next piece of work, where it is not after `number`; or waits until whoever runs one is done.
    pub fn step(&self, number: u64) {
        let mut queue = lock(&self.queue);
        if queue.busy {
            drop(self.done.wait(queue).unwrap_or_else(PoisonError::into_inner));
            return;
        }
        if queue.done >= number || queue.failed.is_some() {
            return;
        }
        let Some(work) = queue.work.pop_front() else { return };
        queue.busy = true;
        drop(queue);
        let outcome = perform(&work);
        let mut queue = lock(&self.queue);
        queue.busy = false;
        queue.done += 1;
        if let Err(failure) = outcome {
            queue.failed = Some(failure);
            queue.work.clear();
        }
        drop(queue);
        self.done.notify_all();
    }

    /// Whether work that waits copies from or to these bytes of the host.
    pub fn uses(&self, range: &std::ops::Range<u64>) -> bool {
        let queue = lock(&self.queue);
        queue.work.iter().any(|work| work.uses(range))
    }
}

impl Work {
    /// Whether it copies from or to these bytes of the host.
    pub fn uses(&self, range: &std::ops::Range<u64>) -> bool {
        let within = |side: &Side| matches!(side, Side::Pinned(address) if range.contains(address));
        match self {
            Work::Copy { from, to, .. } => within(from) || within(to),
            Work::Graph(graph) => graph.uses(range),
            _ => false,
        }
    }
}

/// Runs one piece of work.
///
/// # Errors
/// What went wrong in it.
pub fn perform(work: &Work) -> Outcome {
    match work {
        Work::Launch(launch) => launch.perform(),
        Work::Copy { from, to, len } => copy(from, to, *len),
        Work::Fill { to, value, len } => {
            world::world().memory.check(*to, *len, "a fill")?;
            // SAFETY: checked; memory is freed only when no work waits.
            unsafe { std::ptr::write_bytes(*to as *mut u8, *value, *len) };
            Ok(())
        }
        Work::Product(product) => product.perform(),
        Work::Record(time) => {
            *lock(time) = Some(Instant::now());
            Ok(())
        }
        Work::Wait(stream, number) => stream.run_to(*number),
        Work::Graph(graph) => graph::perform(graph),
    }
}

fn copy(from: &Side, to: &Side, len: usize) -> Outcome {
    {
        let world = world::world();
        for (side, what) in [(from, "a copy from"), (to, "a copy to")] {
            match side {
                Side::Device(address) => world.memory.check(*address, len, what)?,
                Side::Pinned(address) if world.memory.is_pinned(*address, len) => {}
                Side::Pinned(address) => {
                    return fail(LAUNCH_FAILED, format!("{what} pinned memory: {}", world.memory.describe(*address)));
                }
                Side::Bytes(_) => {}
            }
        }
    }
    let from = match from {
        Side::Device(address) | Side::Pinned(address) => *address as *const u8,
        Side::Bytes(bytes) => bytes.as_ptr(),
    };
    if let Side::Device(to) | Side::Pinned(to) = to {
        // SAFETY: both were checked; they may overlap.
        unsafe { std::ptr::copy(from, *to as *mut u8, len) };
    }
    Ok(())
}

impl Launch {
    /// Checks the pointers among the parameters.
    ///
    /// # Errors
    /// `ILLEGAL_ADDRESS`, with the parameter and what it is.
    pub fn check(&self, memory: &crate::memory::Memory) -> Outcome {
        let mut word = 0;
        for (number, (size, pointer)) in self.kernel.parameters.iter().enumerate() {
            if *pointer
                && let Some(address) = self.values.get(word)
                && *address != 0
                // The device sees pinned memory at the host's address.
                && !memory.is_pinned(*address, 0)
            {
                memory.check(*address, 0, &format!("parameter {number} of {}", self.kernel.name))?;
            }
            word += size.div_ceil(8);
        }
        Ok(())
    }

    fn perform(&self) -> Outcome {
        self.check(&world::world().memory)?;
        let reverse = world::world().config.reverse;
        let mut values = self.values.clone();
        let mut parameters: Vec<*mut c_void> = Vec::new();
        let mut word = 0;
        for (size, _) in &self.kernel.parameters {
            parameters.push(values.as_mut_ptr().wrapping_add(word).cast());
            word += size.div_ceil(8);
        }
        let _running = self.module.running();
        // SAFETY: there are as many words as the parameters take; the module's lock is held.
        let outcome = unsafe { block::run(&self.kernel, self.shape, self.shared, reverse, &mut parameters) };
        outcome.or_else(|what| fail(crate::status::ILLEGAL_ADDRESS, format!("{}: {what}", self.kernel.name)))
    }
}
