//! `douse verify`: programs against recorded PyTorch answers.

mod case;
mod compare;
mod first_difference;
mod replay;
mod report;
mod runner;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use clap::Args;
use douse::LowerOptions;
use rayon::prelude::*;

use super::device::{DeviceArguments, ProductArguments};
use super::failure::{Done, Failure};
use super::{output, progress};
use report::{Outcome, Report};

#[derive(Args)]
pub struct Verify {
    /// Cases (NAME.case.json) or folders of them
    #[arg(required = true)]
    paths: Vec<PathBuf>,
    #[command(flatten)]
    device: DeviceArguments,
    /// Write every result as JSON; - is standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Do not join operators into kernels
    #[arg(long)]
    unfused: bool,
    #[command(flatten)]
    products: ProductArguments,
    /// Write each program to a file and run that, to test the file too
    #[arg(long)]
    through_file: bool,
    /// For wrong answers, name the first node whose value differs between the fused and the unfused program
    #[arg(long)]
    first_difference: bool,
    /// A file of names of cases, one a line, that may be refused: they do not count as failed (may be repeated)
    #[arg(long, value_name = "FILE")]
    refusals: Vec<PathBuf>,
    /// Only cases whose name contains this
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Only one case of every N, chosen by their names alone: the same on every machine, of every family
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    sample: u64,
}

/// A large model's lowering recurses deeper than a thread's usual stack allows.
const STACK: usize = 64 << 20;

impl Verify {
    pub fn run(self) -> Done {
        if let Some(json) = &self.json {
            output::keep(json, &self.paths)?;
        }
        let device = self.device.open()?;
        let mut cases = case::find(&self.paths)?;
        if let Some(only) = &self.only {
            cases.retain(|case| case.name.contains(only.as_str()));
        }
        cases.retain(|case| case.is_in_sample(self.sample));
        if cases.is_empty() {
            return Err(Failure::Usage("there is no .case.json among what was given".into()));
        }
        let mut known = BTreeSet::new();
        for path in &self.refusals {
            let text = std::fs::read_to_string(path);
            let text = text.map_err(|e| Failure::No(format!("{}: {e}", path.display())))?;
            let names = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
            known.extend(names.map(str::to_owned));
        }
        let lower = LowerOptions { fuse: !self.unfused, products: self.products.options(), ..device.lower() };
        let threads = match self.device.threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            threads => threads,
        };
        // Many cases run side by side, each on one thread; a few have all threads each, one after the other.
        let many = cases.len() >= 2 * threads;
        let load = device.load(if many { 1 } else { threads })?;
        let workers = if many { threads } else { 1 };
        let pool = rayon::ThreadPoolBuilder::new().num_threads(workers).stack_size(STACK).build();
        let pool = pool.map_err(|e| Failure::No(format!("{workers} threads do not start: {e}")))?;
        let options =
            runner::Options { lower, load, through_file: self.through_file, first_difference: self.first_difference };
        let bar = progress::bar(cases.len());
        let failed = AtomicUsize::new(0);
        runner::quiet_panics();
        let outcomes: Vec<Outcome> = pool.install(|| {
            let run = |case: &case::Location| {
                let outcome = runner::run(case, &options);
                if !outcome.passed() {
                    let failed = failed.fetch_add(1, Ordering::Relaxed) + 1;
                    bar.set_message(format!("{failed} failed"));
                }
                bar.inc(1);
                outcome
            };
            // One case at a time: they differ by orders of magnitude.
            cases.par_iter().with_max_len(1).map(run).collect()
        });
        bar.finish_and_clear();
        let report = Report::new(outcomes, &known);
        if let Some(path) = &self.json {
            output::json(path, &report)?;
        }
        let text = report.text();
        let text = text.trim_end();
        if self.json.as_deref().is_some_and(output::is_stdout) {
            output::note(text);
        } else {
            match output::line(text) {
                // The exit code still says what was found.
                Ok(()) | Err(Failure::Closed) => {}
                failed => return failed,
            }
        }
        if report.failed == 0 { Ok(()) } else { Err(Failure::Silent) }
    }
}
