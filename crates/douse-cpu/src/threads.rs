//! The threads that calls run on.

use douse_core::{Code, Error, Result};
use std::sync::Arc;

/// A set of threads that calls share. Clones are the same set.
#[derive(Clone, Default)]
pub struct Threads {
    /// None: the calling thread alone.
    pool: Option<Arc<rayon::ThreadPool>>,
}

impl Threads {
    /// The most threads that a call may have: more than any machine's, and few enough to start.
    pub const MAX: usize = 1024;

    /// The calling thread alone.
    pub fn one() -> Threads {
        Threads::default()
    }

    /// That many threads; 0 stands for as many as the machine runs at once.
    ///
    /// # Errors
    /// For more than [`Threads::MAX`], and where the system refuses to start a thread.
    pub fn new(count: usize) -> Result<Threads> {
        if count > Threads::MAX {
            return Err(Error::invalid_argument(format!("{count} threads: at most {} can be asked for", Threads::MAX)));
        }
        let count = match count {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            count => count,
        };
        if count == 1 {
            return Ok(Threads::one());
        }
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(count)
            .thread_name(|i| format!("douse-{i}"))
            .build()
            .map_err(|e| Error::new(Code::OutOfResources, format!("{count} threads do not start: {e}")))?;
        Ok(Threads { pool: Some(Arc::new(pool)) })
    }

    pub fn count(&self) -> usize {
        self.pool.as_ref().map_or(1, |pool| pool.current_num_threads())
    }

    /// Runs `f` where rayon's parallel iterators and joins use these threads. With one thread, on the caller's; then `f` must not
    /// use rayon (look at [`Threads::count`]), which would start threads of its own.
    pub fn install<R: Send>(&self, f: impl FnOnce() -> R + Send) -> R {
        match &self.pool {
            Some(pool) => pool.install(f),
            None => f(),
        }
    }

    /// Calls `f` for every number below `count`, in parallel where there are threads.
    pub fn each(&self, count: usize, f: impl Fn(usize) + Sync + Send) {
        match &self.pool {
            Some(pool) if count > 1 => pool.install(|| {
                use rayon::prelude::*;
                (0..count).into_par_iter().with_max_len(1).for_each(&f);
            }),
            _ => (0..count).for_each(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn each_number_is_visited_once() {
        for threads in [Threads::one(), Threads::new(3).unwrap()] {
            let visits: Vec<AtomicUsize> = (0..100).map(|_| AtomicUsize::new(0)).collect();
            threads.each(100, |i| {
                visits[i].fetch_add(1, Ordering::Relaxed);
            });
            assert!(visits.iter().all(|v| v.load(Ordering::Relaxed) == 1));
        }
    }
}
