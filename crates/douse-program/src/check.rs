//! Checks a plan completely, once, when it is loaded: what an executor may rely on without looking again.
//!
//! - every number of a buffer, kernel, symbol, message, parameter, local, register and input lies in its table;
//! - dtypes agree wherever two things meet, and registers are typed as the tables of [`douse_core::pointwise`] say;
//! - registers, locals and symbols are defined before they are used; index expressions mention only loops in scope;
//! - parameters are accessed as declared, and nothing writes a constant or an input that is not said to be written;
//! - the views of a library step have the ranks and dtypes that it asks for;
//! - expressions are canonical, bounds of symbols expand to few symbols, and steps nest less than [`NESTING`] deep.
//!
//! Not checked here, as it depends on sizes or data known only when running: that an index lies in its buffer.

mod kernel;
mod library;
mod scope;
mod signature;
mod steps;

use douse_core::{Error, Result};

use crate::plan::Plan;

/// Steps nest less deep than this.
pub const NESTING: usize = 64;

/// More dimensions than any tensor has.
pub const RANK: usize = 64;

/// Checks a whole plan.
///
/// # Errors
/// `InvalidProgram` with the place of the first fault: `kernels[3] (softmax): stages[0].body[2]: ...`.
pub fn check(plan: &Plan) -> Result<()> {
    signature::check(plan)?;
    for (i, kernel) in plan.kernels.iter().enumerate() {
        kernel::check(plan, kernel).map_err(|e| e.at(format!("kernels[{i}] ({})", kernel.name)))?;
    }
    steps::check(plan)
}

/// A fault, to which its callers add the place.
fn fault<T>(message: impl Into<String>) -> Result<T> {
    Err(Error::invalid_program(message))
}

/// Entry `number` of a table, or a fault that names the table.
fn entry<'a, T>(table: &'a [T], number: u32, name: &str) -> Result<&'a T> {
    table.get(number as usize).ok_or_else(|| Error::invalid_program(format!("{name} {number} of {}", table.len())))
}

#[cfg(test)]
mod tests;
