//! The error flag of a call: what checks inside kernels raise.

use douse_core::{Error, Result};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// Holds the failed check that comes first in the order of a kernel's points, whatever thread found it.
#[derive(Debug, Default)]
pub struct Flag {
    raised: AtomicBool,
    first: Mutex<Option<(usize, Error)>>,
}

impl Flag {
    /// Raises the flag for a point of the running kernel.
    pub(crate) fn raise(&self, point: usize, error: impl FnOnce() -> Error) {
        let mut first = match self.first.lock() {
            Ok(first) => first,
            Err(poisoned) => poisoned.into_inner(),
        };
        if first.as_ref().is_none_or(|(earlier, _)| point < *earlier) {
            *first = Some((point, error()));
        }
        self.raised.store(true, Ordering::Release);
    }

    /// Lowers the flag.
    ///
    /// # Errors
    /// What was raised.
    pub fn take(&self) -> Result<()> {
        if !self.raised.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        let taken = match self.first.lock() {
            Ok(mut first) => first.take(),
            Err(poisoned) => poisoned.into_inner().take(),
        };
        taken.map_or(Ok(()), |(_, error)| Err(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_point_wins_and_the_flag_is_lowered() {
        let flag = Flag::default();
        for point in [7, 3, 5] {
            flag.raise(point, || Error::invalid_argument(format!("at {point}")));
        }
        assert_eq!(flag.take().unwrap_err().message, "at 3");
        assert!(flag.take().is_ok());
    }
}
