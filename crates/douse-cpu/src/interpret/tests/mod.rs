//! Kernels built by hand and at random, against a plain evaluation point by point.

pub(crate) mod build;
mod forms;
mod naive;
mod random;

use build::Memory;
use douse_core::Result;
use douse_program::kernel::Kernel;

use super::{Call, Flag, Scratches, bind};
use crate::memory::Region;
use crate::threads::Threads;

/// Runs a kernel over one piece of memory a parameter.
fn run(kernel: &Kernel, memory: &mut [Memory], symbols: &[i64], threads: &Threads) -> Result<()> {
    let symbols: Vec<Option<i64>> = symbols.iter().map(|s| Some(*s)).collect();
    let bound = bind(kernel, &symbols)?;
    let regions: Vec<Region> = memory.iter_mut().map(|m| Region::writable(&mut m.bytes)).collect();
    let flag = Flag::default();
    let messages = ["the message".to_string()];
    Call::new(kernel, &bound, &regions, &messages, &flag, (5, 3)).run(threads, &Scratches::default())?;
    flag.take()
}
