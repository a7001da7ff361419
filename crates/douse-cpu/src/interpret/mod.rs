//! The kernel interpreter.
//!
//! A kernel is bound to sizes ([`bind`]): its index expressions become affine walks and integer instructions, its loops
//! become lanes and blocks ([`nest`], [`space`]), its registers get numbers. A call runs it block by block: every instruction
//! over all lanes of a block before the next ([`block`]), then the effects ([`effects`]). A register is a vector of lanes, or one value where
//! all lanes have the same.
//!
//! Lanes run through outer points or, for stages whose inner loops suit better, through the inner points of one outer point
//! after the other. Outer points may be shared among threads only where [`share`] shows from the numbers that nothing one thread
//! writes is touched by another: [`crate::memory`] relies on it.

mod bind;
mod block;
mod combine;
mod convert;
mod effects;
mod element;
mod flag;
mod lanes;
mod lower;
mod nest;
mod pointwise;
mod scalar;
mod share;
mod space;

#[cfg(test)]
pub(crate) mod tests;

use douse_core::{DType, Error, Result};
use douse_program::kernel::Kernel;
use std::ops::Range;
use std::sync::Mutex;

pub(crate) use bind::{Bound, bind};
use block::{Bench, Scratch, Spot};
pub use flag::Flag;
use lanes::{Class, Loops};
use nest::Order;
use space::{Runs, advance};

use crate::memory::Region;
use crate::threads::Threads;

/// Kernels of less work (element operations) run on the calling thread.
const WORTH_SHARING: usize = 32 * 1024;

/// One run of a kernel.
pub(crate) struct Call<'a> {
    pub kernel: &'a Kernel,
    pub bound: &'a Bound,
    /// The memory of each parameter.
    pub regions: &'a [Region<'a>],
    pub messages: &'a [String],
    pub flag: &'a Flag,
    pub seed: u64,
    pub call: u64,
    loops: Loops,
}

/// Scratch memory of threads, kept from kernel to kernel.
#[derive(Debug, Default)]
pub(crate) struct Scratches {
    free: Mutex<Vec<Scratch>>,
}

impl Scratches {
    fn take(&self) -> Scratch {
        self.free.lock().ok().and_then(|mut free| free.pop()).unwrap_or_default()
    }

    fn put(&self, scratch: Scratch) {
        if let Ok(mut free) = self.free.lock() {
            free.push(scratch);
        }
    }
}

impl<'a> Call<'a> {
    pub fn new(
        kernel: &'a Kernel,
        bound: &'a Bound,
        regions: &'a [Region<'a>],
        messages: &'a [String],
        flag: &'a Flag,
        (seed, call): (u64, u64),
    ) -> Call<'a> {
        Call { kernel, bound, regions, messages, flag, seed, call, loops: Loops::new() }
    }

    /// Runs the kernel for all its outer points.
    ///
    /// # Errors
    /// Where the kernel reaches outside of its memory. What its checks find is in the flag.
    pub fn run(&self, threads: &Threads, scratches: &Scratches) -> Result<()> {
        let blocks = self.blocks();
        if blocks == 0 {
            return Ok(());
        }
        let shared = threads.count() > 1
            && blocks > 1
            && self.bound.work >= WORTH_SHARING
            && self.bound.accesses.parallel(self.regions);
        if !shared {
            let mut scratch = scratches.take();
            let done = self.chunk(0..blocks, &mut scratch);
            scratches.put(scratch);
            return done;
        }
        let chunks = blocks.min(threads.count() * 4);
        let failure = Mutex::new(None);
        threads.each(chunks, |i| {
            let mut scratch = scratches.take();
            let done = self.chunk(i * blocks / chunks..(i + 1) * blocks / chunks, &mut scratch);
            scratches.put(scratch);
            if let (Err(error), Ok(mut failure)) = (done, failure.lock()) {
                failure.get_or_insert(error);
            }
        });
        failure.into_inner().ok().flatten().map_or(Ok(()), Err)
    }

    fn region(&self, param: usize) -> Result<Region<'a>> {
        self.regions.get(param).copied().ok_or_else(|| Error::internal(format!("parameter {param} has no memory")))
    }

    fn param_dtype(&self, param: usize) -> Result<DType> {
        let param = self.kernel.params.get(param);
        param.map(|p| p.dtype).ok_or_else(|| Error::internal("a parameter is not there"))
    }

    fn blocks(&self) -> usize {
        let (points, block, last) = (self.bound.outer.points, self.bound.block, self.bound.outer.last());
        match self.bound.order {
            _ if points == 0 => 0,
            Order::Flat => points.div_ceil(block),
            Order::Rows | Order::Tiles => points / last * last.div_ceil(block),
        }
    }

    /// The first point of a block and how many it has.
    fn block(&self, number: usize) -> (usize, usize) {
        let (points, block, last) = (self.bound.outer.points, self.bound.block, self.bound.outer.last());
        let (row, part) = match self.bound.order {
            Order::Flat => return (number * block, block.min(points - number * block)),
            Order::Rows => (number / last.div_ceil(block), number % last.div_ceil(block)),
            Order::Tiles => (number % (points / last), number / (points / last)),
        };
        (row * last + part * block, block.min(last - part * block))
    }

    fn chunk(&self, blocks: Range<usize>, scratch: &mut Scratch) -> Result<()> {
        for class in [Class::F32, Class::F64, Class::I64, Class::Bool] {
            scratch.registers.reserve(class, self.bound.slots.count(class));
        }
        let Scratch { registers, spread, index, outer, inner, point } = scratch;
        let mut bench = Bench { registers, spread, index };
        let nowhere = Runs::one();
        for stage in self.bound.stages.iter().filter(|s| s.inner.points > 0) {
            let spot = Spot { runs: &nowhere, fixed: &[], n: 1, point: 0, lanes_inner: false, row: 0 };
            self.steps(&stage.setup, &spot, &mut bench)?;
        }
        for number in blocks {
            let (first, rows) = self.block(number);
            for (class, slot) in &self.bound.locals {
                bench.registers.spread_out(*class, *slot, rows);
            }
            self.bound.outer.runs(first, rows, outer);
            for stage in &self.bound.stages {
                if stage.lanes_inner {
                    self.inner_lanes(stage, first, rows, outer, inner, point, &mut bench)?;
                } else {
                    self.outer_lanes(stage, first, rows, outer, point, &mut bench)?;
                }
            }
        }
        Ok(())
    }

    /// A stage whose lanes are the outer points of a block.
    fn outer_lanes(
        &self,
        stage: &bind::BoundStage,
        first: usize,
        rows: usize,
        outer: &Runs,
        point: &mut Vec<i64>,
        bench: &mut Bench,
    ) -> Result<()> {
        self.begin(&stage.effects, rows, bench.registers);
        point.clear();
        point.resize(stage.inner.dims.len(), 0);
        for step in 0..stage.inner.points {
            let spot = Spot { runs: outer, fixed: point, n: rows, point: first, lanes_inner: false, row: 0 };
            if step == 0 {
                self.steps(&stage.once, &spot, bench)?;
            }
            self.steps(&stage.body, &spot, bench)?;
            self.apply(&stage.effects, &spot, bench)?;
            advance(point, &stage.inner);
        }
        self.end(&stage.effects, rows, 0, bench.registers);
        Ok(())
    }

    /// A stage whose lanes are the inner points, for one outer point of a block after the other.
    fn inner_lanes(
        &self,
        stage: &bind::BoundStage,
        first: usize,
        rows: usize,
        outer: &Runs,
        inner: &mut Runs,
        point: &mut Vec<i64>,
        bench: &mut Bench,
    ) -> Result<()> {
        let nowhere = Runs::one();
        point.clear();
        point.extend(outer.iter().next().map_or(&[][..], |(_, at)| at));
        for row in 0..rows {
            self.begin(&stage.effects, 1, bench.registers);
            let fixed = &*point;
            if stage.inner.points > 0 {
                let spot = Spot { runs: &nowhere, fixed, n: 1, point: first + row, lanes_inner: true, row };
                self.steps(&stage.once, &spot, bench)?;
            }
            for start in (0..stage.inner.points).step_by(stage.lanes) {
                let n = stage.lanes.min(stage.inner.points - start);
                stage.inner.runs(start, n, inner);
                let spot = Spot { runs: inner, fixed, n, point: first + row, lanes_inner: true, row };
                self.steps(&stage.body, &spot, bench)?;
                self.apply(&stage.effects, &spot, bench)?;
            }
            self.end(&stage.effects, 1, row, bench.registers);
            advance(point, &self.bound.outer);
        }
        Ok(())
    }
}
