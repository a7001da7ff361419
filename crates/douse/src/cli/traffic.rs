//! What the steps of a plan move through a device's memory, and the least time that takes.

use douse_core::sym::{Expr, Ranges};
use douse_program::bounds::{ranges, size_bounds};
use douse_program::kernel::{Effect, Kernel, Op};
use douse_program::library::Library;
use douse_program::plan::{BufferId, Plan, Step};
use douse_program::uses::each_step;

use super::show;

/// A line for each step, at the greatest sizes: bytes read and written, their time at a bandwidth (bytes a second) in microseconds, what it is.
pub fn table(plan: &Plan, bandwidth: f64) -> String {
    let traffic = Traffic { plan, ranges: ranges(plan) };
    let mut text = format!("{:>10} {:>11}  step\n", "bytes", "floor in us");
    let mut total = Some(0u64);
    each_step(&plan.steps, &mut |step| {
        let Some((bytes, name)) = traffic.step(step) else { return };
        total = total.zip(bytes).map(|(total, bytes)| total.saturating_add(bytes));
        text.push_str(&line(bytes, bandwidth, &name));
    });
    text.push_str(&line(total, bandwidth, "all steps once"));
    text
}

fn line(bytes: Option<u64>, bandwidth: f64, name: &str) -> String {
    match bytes {
        Some(bytes) => format!("{:>10} {:>11.2}  {name}\n", show::bytes(bytes), bytes as f64 / bandwidth * 1e6),
        None => format!("{:>10} {:>11}  {name}\n", "unbounded", "-"),
    }
}

struct Traffic<'a> {
    plan: &'a Plan,
    ranges: Ranges,
}

impl Traffic<'_> {
    /// The bytes of a step and its name; `None` for one that moves none. The bytes are `None` where a size has no bound.
    fn step(&self, step: &Step) -> Option<(Option<u64>, String)> {
        match step {
            Step::Kernel { kernel, args } => {
                let kernel = self.plan.kernels.get(*kernel as usize)?;
                Some((self.kernel(kernel, args), kernel.name.clone()))
            }
            Step::Library(library) => Some((self.library(library), name(library))),
            Step::Fused { library, kernel, args } => {
                let kernel = self.plan.kernels.get(*kernel as usize)?;
                // The result goes from one to the other in registers.
                let result = library.buffers().1;
                let (read, _) = library.buffers();
                let rest: Vec<(usize, BufferId)> =
                    args.iter().copied().enumerate().filter(|(_, buffer)| !result.contains(buffer)).collect();
                let kernel_bytes = rest.iter().map(|(param, buffer)| self.param(kernel, *param, *buffer));
                let bytes = self.whole(&read).zip(kernel_bytes.sum::<Option<u64>>()).map(|(a, b)| a.saturating_add(b));
                Some((bytes, format!("{} with {}", name(library), kernel.name)))
            }
            Step::Copy { from, to } => Some((self.whole(&[*from, *to]), "copy".to_owned())),
            _ => None,
        }
    }

    fn kernel(&self, kernel: &Kernel, args: &[BufferId]) -> Option<u64> {
        args.iter().enumerate().map(|(param, buffer)| self.param(kernel, param, *buffer)).sum()
    }

    /// What a kernel moves of a buffer: all of it, or as many elements as it has accesses, where those are fewer; twice where it reads and
    /// writes.
    fn param(&self, kernel: &Kernel, param: usize, buffer: BufferId) -> Option<u64> {
        let whole = self.whole(&[buffer])?;
        let element = self.plan.buffers.get(buffer as usize)?.dtype.size() as u64;
        let (mut loads, mut stores) = (0u64, 0u64);
        for stage in &kernel.stages {
            let points = Expr::product(kernel.outer.iter().chain(&stage.inner));
            let bytes =
                size_bounds(&self.ranges, &points).max.map_or(u64::MAX, |max| max as u64).saturating_mul(element);
            let reads = |op: &Op| matches!(op, Op::Load { param: p, .. } if *p as usize == param);
            if stage.body.iter().any(|inst| reads(&inst.op)) {
                loads = loads.max(bytes);
            }
            for effect in &stage.effects {
                let (stored, updated) = match effect {
                    Effect::Store { param: p, .. } | Effect::Scan { param: p, .. } => (*p as usize == param, false),
                    Effect::ArgScan { param: p, param_position, .. } => {
                        (*p as usize == param || *param_position as usize == param, false)
                    }
                    Effect::Update { param: p, op, .. } => (*p as usize == param, *p as usize == param && op.is_some()),
                    Effect::Reduce { .. } | Effect::ArgReduce { .. } | Effect::Assert { .. } => (false, false),
                };
                if stored {
                    stores = stores.max(bytes);
                }
                if updated {
                    loads = loads.max(bytes);
                }
            }
        }
        Some(loads.min(whole).saturating_add(stores.min(whole)))
    }

    fn library(&self, library: &Library) -> Option<u64> {
        let (read, written) = library.buffers();
        Some(self.whole(&read)?.saturating_add(self.whole(&written)?))
    }

    fn whole(&self, buffers: &[BufferId]) -> Option<u64> {
        let bytes = |buffer: &BufferId| {
            let buffer = self.plan.buffers.get(*buffer as usize)?;
            let elements = size_bounds(&self.ranges, &buffer.elements).max?;
            u64::try_from(elements).ok()?.checked_mul(buffer.dtype.size() as u64)
        };
        buffers.iter().map(bytes).sum()
    }
}

/// What a library step is: the first word of its text form.
fn name(library: &Library) -> String {
    library.to_string().split(' ').next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use douse::LowerOptions;

    #[test]
    fn a_copy_moves_its_input_and_its_output_once() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/cases/transpose_copy.pt2");
        let lowered = douse::lower(path, &LowerOptions::default()).unwrap();
        let table = super::table(&lowered.methods[0].plan, 728e6);
        // 91 floats in, as many out, twice: at 728 bytes a microsecond.
        let line = |name: &str| table.lines().find(|line| line.ends_with(name)).unwrap().trim();
        assert_eq!(line("  reshape"), "728 B        1.00  reshape");
        assert_eq!(line("all steps once"), "1.5 kB        2.00  all steps once");
    }
}
