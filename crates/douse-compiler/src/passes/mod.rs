//! Passes: what is done to a module between import and fusion.
//!
//! [`PIPELINE`] is the list, in the order they run. Each is a function over the module that leaves it valid, which debug builds
//! check. Every single rewrite asks the [`Context`] first, so that a limit on their number bisects a fault to one of them.

mod asserts;
mod cse;
mod dce;
mod fold;
mod join;
mod masked_copy;
mod rebuild;
mod scalar;
mod simplify;
mod symbols;

use std::fmt;
use std::time::{Duration, Instant};

use douse_core::{Error, Result};
use douse_ir::{Module, verified};

pub use fold::Evaluate;

/// A named function over the module.
#[derive(Clone, Copy)]
pub struct Pass {
    pub name: &'static str,
    pub run: fn(&mut Module, &mut Context<'_>) -> Result<()>,
}

/// In the order they run. Dead code goes before the passes that count readers, and sharing before those that compare values.
pub const PIPELINE: &[Pass] = &[
    DROP_ASSERTS,
    DCE,
    SIMPLIFY,
    CSE,
    // Shared host reads make sizes equal, and with them moves the identity.
    SIMPLIFY,
    DCE,
    MASKED_COPY,
    SIMPLIFY,
    CSE,
    DCE,
    FOLD,
    JOIN,
    DEFER_ASSERTS,
    DCE,
];

const DROP_ASSERTS: Pass = Pass { name: "drop_asserts", run: asserts::drop_asserts };
const DCE: Pass = Pass { name: "dce", run: dce::dce };
const SIMPLIFY: Pass = Pass { name: "simplify", run: simplify::simplify };
const CSE: Pass = Pass { name: "cse", run: cse::cse };
const MASKED_COPY: Pass = Pass { name: "masked_copy", run: masked_copy::masked_copy };
const FOLD: Pass = Pass { name: "fold", run: fold::fold };
const JOIN: Pass = Pass { name: "join", run: join::join };
const DEFER_ASSERTS: Pass = Pass { name: "defer_asserts", run: asserts::defer_asserts };

/// Sees the module after a pass of that name.
pub type Dump<'a> = dyn FnMut(&str, &Module) + 'a;

/// What passes may do, and what they did.
#[derive(Default)]
pub struct Context<'a> {
    /// Rewrites after this many are not done.
    pub limit: Option<u64>,
    /// Rewrites done.
    pub count: u64,
    /// Whether tensor asserts go, with what only feeds them.
    pub drop_asserts: bool,
    /// Computes constant values; without it none are folded.
    pub evaluator: Option<&'a dyn Evaluate>,
    /// Called after each pass.
    pub dump: Option<&'a mut Dump<'a>>,
    /// What each pass took and how many rewrites it did, in the order they ran.
    pub report: Vec<Report>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    pub pass: &'static str,
    pub time: Duration,
    pub rewrites: u64,
}

impl fmt::Debug for Context<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("limit", &self.limit).field("count", &self.count).finish_non_exhaustive()
    }
}

impl Context<'_> {
    /// Rewrites that may still be done.
    fn left(&self) -> u64 {
        self.limit.map_or(u64::MAX, |limit| limit.saturating_sub(self.count))
    }

    /// Whether one more rewrite may be done.
    fn may(&self) -> bool {
        self.left() > 0
    }

    /// Counts a rewrite that was done.
    fn done(&mut self) {
        self.count += 1;
    }
}

/// Runs the whole pipeline.
///
/// # Errors
/// A fault of a pass; in debug builds also a module that a pass left invalid.
pub fn run(module: &mut Module, context: &mut Context<'_>) -> Result<()> {
    PIPELINE.iter().try_for_each(|pass| run_pass(*pass, module, context))
}

/// Runs the pass of that name.
///
/// # Errors
/// As [`run`], and where there is no such pass.
pub fn run_named(name: &str, module: &mut Module, context: &mut Context<'_>) -> Result<()> {
    match PIPELINE.iter().find(|pass| pass.name == name) {
        Some(pass) => run_pass(*pass, module, context),
        None => Err(Error::invalid_argument(format!("there is no pass {name}"))),
    }
}

fn run_pass(pass: Pass, module: &mut Module, context: &mut Context<'_>) -> Result<()> {
    let (start, before) = (Instant::now(), context.count);
    (pass.run)(module, context).map_err(|e| e.at(pass.name))?;
    let report = Report { pass: pass.name, time: start.elapsed(), rewrites: context.count - before };
    tracing::debug!(pass = pass.name, rewrites = report.rewrites, time = ?report.time, "pass");
    context.report.push(report);
    if cfg!(debug_assertions) {
        verified(module, pass.name)?;
    }
    if let Some(dump) = &mut context.dump {
        dump(pass.name, module);
    }
    Ok(())
}
