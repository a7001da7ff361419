//! What an operation works with besides its operands.

use rayon::prelude::*;

use super::scratch::Scratch;
use crate::threads::Threads;

/// Memory for intermediate results, and threads.
#[derive(Clone, Copy)]
pub struct Work<'a> {
    pub scratch: &'a Scratch,
    pub threads: &'a Threads,
}

impl Work<'_> {
    pub fn threads(&self) -> usize {
        self.threads.count()
    }

    /// Calls `f` with each number and chunk of `len` elements (the last may be shorter), in parallel where there are threads.
    pub fn each_chunk<T: Send>(&self, data: &mut [T], len: usize, f: impl Fn(usize, &mut [T]) + Sync + Send) {
        let len = len.max(1);
        if self.threads() == 1 || data.len() <= len {
            data.chunks_mut(len).enumerate().for_each(|(i, chunk)| f(i, chunk));
        } else {
            self.threads.install(|| {
                data.par_chunks_mut(len).with_max_len(1).enumerate().for_each(|(i, chunk)| f(i, chunk));
            });
        }
    }

    /// Calls `f` with each task, in parallel where there are threads.
    pub fn each_task<T: Send>(&self, tasks: Vec<T>, f: impl Fn(T) + Sync + Send) {
        if self.threads() == 1 || tasks.len() < 2 {
            tasks.into_iter().for_each(f);
        } else {
            self.threads.install(|| tasks.into_par_iter().with_max_len(1).for_each(f));
        }
    }

    /// How many of `total` elements a chunk should have, so that each thread gets several chunks of at least `least` elements.
    pub fn chunk(&self, total: usize, least: usize) -> usize {
        total.div_ceil(self.threads() * 4).max(least).max(1)
    }
}
