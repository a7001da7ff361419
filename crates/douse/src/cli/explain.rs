//! `douse explain`.

use std::path::PathBuf;

use clap::Args;
use douse::{FunctionMeta, LowerOptions, Products};
use douse_core::sym::{Expr, Ranges, Symbol};
use douse_program::arena::Layout;
use douse_program::bounds::{ranges, size_bounds};
use douse_program::library::Library;
use douse_program::place::lifetimes;
use douse_program::plan::{BufferId, BufferKind, Data, InputKind, Plan, Predicate, Step};
use douse_program::uses::each_step;

use super::device::{Device, ProductArguments, describe_products};
use super::failure::Done;
use super::source::Source;
use super::{output, show, traffic};

#[derive(Args)]
pub struct Explain {
    /// A program (.pte), or an exported one (.pt2), which is lowered first
    file: PathBuf,
    /// Only this method
    #[arg(long)]
    method: Option<String>,
    /// Do not join operators into kernels (of a .pt2)
    #[arg(long)]
    unfused: bool,
    #[command(flatten)]
    products: ProductArguments,
    /// Only the summary, not the plan and its kernels
    #[arg(long)]
    summary: bool,
    /// Show the functions as this GPU has loaded them, and what each step moves: cuda[:N]
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,
}

impl Explain {
    pub fn run(self) -> Done {
        let device = self.device.as_deref().map(|name| Device::named(name, None)).transpose()?;
        let lower = device.as_ref().map_or_else(LowerOptions::default, Device::lower);
        let options = LowerOptions { fuse: !self.unfused, products: self.products.options(), ..lower };
        let program = Source::open(&self.file, &options)?.program;
        if let Some(name) = &self.method {
            program.method_meta(name)?;
        }
        for payload in program.methods() {
            if self.method.as_ref().is_none_or(|name| *name == payload.plan.name) {
                output::line(summary(&payload.plan))?;
                if payload.cuda.iter().any(|target| target.products.by == Products::CublasLt) {
                    output::line(
                        "  products on GPUs: by cuBLASLt where it is installed and faster, else by own kernels\n",
                    )?;
                }
                if payload.cuda.iter().any(|target| target.products.tf32) {
                    output::line(
                        "  float32 products and convolutions on GPUs: on tensor cores, operands rounded to TF32\n",
                    )?;
                }
                if let Some(device) = &device {
                    let method = program.load(&payload.plan.name, &device.load(1)?)?;
                    output::line(functions(&method.device_functions()?))?;
                    if let Some(report) = method.products() {
                        output::line(describe_products(report))?;
                    }
                    if let Device::Cuda { device, .. } = device {
                        output::line(traffic::table(&payload.plan, device.copy_bandwidth()?))?;
                    }
                }
                if !self.summary {
                    output::line(&payload.plan)?;
                }
            }
        }
        Ok(())
    }
}

/// A table of functions.
fn functions(all: &[FunctionMeta]) -> String {
    let mut text =
        format!("{:>9} {:>8} {:>8} {:>7} {:>9}  function\n", "registers", "shared", "local", "threads", "blocks/SM");
    for FunctionMeta { name, registers, shared, local, threads, blocks } in all {
        text.push_str(&format!("{registers:>9} {shared:>8} {local:>8} {threads:>7} {blocks:>9}  {name}\n"));
    }
    text
}

/// How many steps of each kind a plan has, its memory, and the reads that the host waits for.
fn summary(plan: &Plan) -> String {
    let counts = Counts::of(plan);
    let ranges = ranges(plan);
    let mut memory = [("inputs", 0u64, true), ("outputs", 0, true), ("state", 0, true), ("constants", 0, true)];
    for buffer in &plan.buffers {
        let bytes = |elements: &Expr| {
            let max = size_bounds(&ranges, elements).max?;
            u64::try_from(max).ok()?.checked_mul(buffer.dtype.size() as u64)
        };
        let bytes = bytes(&buffer.elements);
        let slot = match &buffer.kind {
            BufferKind::Input(_) => memory.get_mut(0),
            BufferKind::Output(_) => memory.get_mut(1),
            BufferKind::State { .. } => memory.get_mut(2),
            BufferKind::Constant(_) => memory.get_mut(3),
            BufferKind::Temporary => None,
        };
        if let Some((_, total, bounded)) = slot {
            *total = total.saturating_add(bytes.unwrap_or(0));
            *bounded &= bytes.is_some();
        }
    }
    let memory: Vec<String> = memory
        .iter()
        .map(|(name, bytes, bounded)| {
            format!("{name} {}{}", show::bytes(*bytes), if *bounded { "" } else { " and more" })
        })
        .collect();
    format!(
        "{}: {} kernel launches ({} kernels), {} library steps ({} with an epilogue), {} copies, {} branches, {} loops, {} host reads\n  memory: {}, {}\n{}",
        plan.name,
        counts.kernels,
        plan.kernels.len(),
        counts.library,
        counts.epilogues,
        counts.copies,
        counts.branches,
        counts.loops,
        counts.reads,
        memory.join(", "),
        arena(plan, &ranges),
        copied(plan),
    )
}

/// A line with the inputs that are copied even where they are on the device already; empty where there are none.
fn copied(plan: &Plan) -> String {
    let written = plan.inputs.iter().filter(|input| matches!(input.kind, InputKind::Tensor { written: true, .. }));
    let names: Vec<&str> = written.map(|input| input.name.as_str()).collect();
    if names.is_empty() {
        return String::new();
    }
    format!("  copied wherever they are, since the program writes them: {}\n", names.join(", "))
}

/// The arena at the greatest values of all symbols.
fn arena(plan: &Plan, ranges: &Ranges) -> String {
    let greatest = |i: usize| ranges.max(&Expr::symbol(Symbol::Size(i as u32)));
    let symbols: Vec<Option<i64>> = (0..plan.symbols.len()).map(greatest).collect();
    let (lives, mut layout) = (lifetimes(plan), Layout::default());
    if layout.update(plan, &lives, &symbols).is_err() {
        return "an arena whose size follows the inputs".to_owned();
    }
    let temporaries = plan.buffers.iter().map(|b| b.kind == BufferKind::Temporary);
    let bounded =
        temporaries.zip(&lives).zip(&layout.places).all(|((own, life), at)| !own || life.is_none() || at.is_some());
    format!("arena {}{}", show::bytes(layout.total as u64), if bounded { "" } else { " and more" })
}

#[derive(Default)]
struct Counts {
    kernels: usize,
    library: usize,
    epilogues: usize,
    copies: usize,
    branches: usize,
    loops: usize,
    reads: usize,
}

impl Counts {
    fn of(plan: &Plan) -> Counts {
        let mut counts = Counts::default();
        // What stands in the plan is known when the method is loaded.
        let read = |buffer: BufferId| {
            let kind = plan.buffers.get(buffer as usize).map(|buffer| &buffer.kind);
            usize::from(!matches!(kind, Some(BufferKind::Constant(Data::Inline(_) | Data::Zeros(_)))))
        };
        let decided = |predicate: &Predicate| match predicate {
            Predicate::Buffer(buffer) => read(*buffer),
            Predicate::Cond(_) => 0,
        };
        each_step(&plan.steps, &mut |step| match step {
            Step::Kernel { .. } => counts.kernels += 1,
            Step::Library(library) | Step::Fused { library, .. } => {
                counts.library += 1;
                counts.epilogues += usize::from(matches!(step, Step::Fused { .. }));
                counts.reads += usize::from(matches!(library, Library::Nonzero { .. }));
            }
            Step::Copy { .. } => counts.copies += 1,
            Step::Read { buffer, .. } => counts.reads += read(*buffer),
            Step::Together(_) | Step::Set { .. } | Step::Require { .. } => {}
            Step::If { predicate, .. } => {
                counts.branches += 1;
                counts.reads += decided(predicate);
            }
            Step::While { predicate, .. } => {
                counts.loops += 1;
                counts.reads += decided(predicate);
            }
        });
        counts
    }
}
