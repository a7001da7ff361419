//! The error flag of a call, as kernels raise it.

use douse_core::{Error, Result};
use douse_program::failure::Failure;
use douse_program::plan::Plan;

/// Bytes of the flag: `{int code, message; long long value, size}`.
pub(super) const BYTES: usize = 24;

/// # Errors
/// What was raised.
pub(super) fn check(plan: &Plan, flag: &[u8; BYTES]) -> Result<()> {
    let int = |at: usize| flag.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, i32::from_le_bytes);
    let long = |at: usize| flag.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, i64::from_le_bytes);
    let (code, number, value, size) = (int(0), int(4), long(8), long(16));
    let message = usize::try_from(number).ok().and_then(|number| plan.messages.get(number)).map(String::as_str);
    match code {
        0 => Ok(()),
        1 => {
            let place = message.filter(|m| !m.is_empty()).map(|m| format!(" ({m})")).unwrap_or_default();
            let message = format!("index {value} is out of range for a dimension of size {size}{place}");
            Err(Error::invalid_argument(message))
        }
        2 => Err(Error::invalid_argument(message.unwrap_or("a check of the program failed"))),
        other => Err(match Failure::of_code(other) {
            Some(failure) => failure.error(value, size),
            None => Error::internal(format!("a kernel raised the unknown error {other}")),
        }),
    }
}
