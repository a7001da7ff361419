//! One kernel as a CUDA C++ function.

use douse_core::Result;
use douse_core::sym::{Expr, Ranges, Symbol};
use douse_program::kernel::{Access, Kernel, Stage};
use douse_program::target::Launch;

use super::bins;
use super::body::{Body, Needs, Text};
use super::index::{Indexer, Width};
use super::moments::{MOMENTS, Moments};
use super::names;
use super::round::Round;
use super::row::Row;
use super::split::{Part, Split};
use super::strategy::{self, Lanes, Strategy};

/// A kernel's functions, in the order in which they are launched.
pub(super) struct EmittedKernel {
    pub functions: Vec<EmittedFunction>,
    /// Bytes of scratch memory.
    pub scratch: Expr,
}

/// A function's text and how it is launched.
pub(super) struct EmittedFunction {
    pub text: String,
    pub launch: Launch,
    /// Uses the special functions.
    pub special: bool,
    /// Texts of the library that it calls.
    pub templates: &'static [&'static str],
}

/// Writes a kernel; `ranges` are those of the plan's symbols, `shared` the bytes of shared memory that a block can have, `private` the parameters whose contents nothing but this kernel looks at,
/// `apart` those it writes and reaches in no other way. A guarded one does nothing where the error flag is raised.
///
/// # Errors
/// `Internal` for a kernel that is not well formed.
pub(super) fn emit(
    kernel: &Kernel,
    ranges: &Ranges,
    shared: i64,
    private: &[u32],
    apart: &[u32],
    guarded: bool,
) -> Result<EmittedKernel> {
    let strategy = Strategy::of(kernel, ranges, shared);
    let writer = || {
        let mut writer = Writer {
            kernel,
            ranges: ranges.with_loops(&kernel.outer),
            needs: Needs::default(),
            out: Text::default(),
            lanes: Lanes::Thread,
            row: None,
            split: None,
            moments: Moments::default(),
            beside: vec![],
            round: None,
            private,
            apart,
            faults: false,
        };
        writer.out.line("{");
        if guarded {
            writer.out.line(if strategy.cooperates() { GUARD_OF_BLOCKS } else { GUARD });
        }
        writer
    };
    let one = |suffix: &str, write: &dyn Fn(&mut Writer<'_>) -> Result<(Expr, u32)>| {
        let mut writer = writer();
        let (blocks, threads) = write(&mut writer)?;
        Ok(writer.finish(suffix, blocks, threads, guarded))
    };
    let functions = match &strategy {
        Strategy::Split(split) => {
            let parts = split.launches(kernel);
            let last = parts.len().saturating_sub(1);
            let function = |(number, part): (usize, &Part)| {
                let suffix = if number == last { String::new() } else { format!("_part_{number}") };
                one(&suffix, &|writer| writer.part(split, part))
            };
            parts.iter().enumerate().map(function).collect::<Result<Vec<_>>>()?
        }
        Strategy::Claimed(claims) => vec![
            one("_clear", &|writer| Ok(writer.clear_claims(claims)))?,
            one("_claim", &|writer| writer.claimed(claims))?,
            one("", &|writer| writer.settle_claims(claims))?,
        ],
        Strategy::Sorted(sorted) => {
            let parts = sorted.launches();
            parts
                .iter()
                .map(|part| one(&part.suffix(), &|writer| writer.sorted(sorted, part)))
                .collect::<Result<_>>()?
        }
        Strategy::Binned(bins) => {
            let function = |part: bins::Part| -> Result<EmittedFunction> {
                let mut function = one(bins.suffix(part), &|writer| writer.bins(bins, part))?;
                function.launch.shared = bins.shared(part);
                Ok(function)
            };
            bins.launches().into_iter().map(function).collect::<Result<_>>()?
        }
        Strategy::Staged(lanes) => vec![one("", &|writer| writer.staged(*lanes))?],
        Strategy::Tiled(tiling) => vec![one("", &|writer| writer.tiled(tiling))?],
        Strategy::OneByOne { parallel } => vec![one("", &|writer| writer.one_by_one(parallel))?],
        Strategy::InOrder(in_order) => vec![one("", &|writer| writer.in_order(in_order))?],
        Strategy::Pointwise => vec![one("", &|writer| writer.pointwise())?],
    };
    let scratch = match &strategy {
        Strategy::Split(split) => Expr::int(split.scratch(kernel)),
        Strategy::Claimed(claims) => Expr::int(claims.scratch()),
        Strategy::Sorted(sorted) => sorted.scratch(),
        Strategy::Binned(bins) => Expr::int(bins.scratch()),
        _ => Expr::int(0),
    };
    let templates = strategy.templates();
    let functions = functions.into_iter().map(|function| match templates {
        [] => function,
        templates => EmittedFunction { templates, ..function },
    });
    let functions = functions.collect();
    Ok(EmittedKernel { functions, scratch })
}

/// How a function begins that does nothing where the error flag is raised.
pub(super) const GUARD: &str = "if (flag->code != 0) return;";
/// The same where threads wait for each other: the flag may be raised meanwhile.
const GUARD_OF_BLOCKS: &str = "if (__syncthreads_or(flag->code != 0)) return;";

pub(super) struct Writer<'a> {
    pub kernel: &'a Kernel,
    pub ranges: Ranges,
    pub needs: Needs,
    pub out: Text,
    pub lanes: Lanes,
    /// What several stages load of the row, once it is in registers.
    pub row: Option<Row>,
    /// How blocks share an outer point, where they do.
    pub split: Option<Split>,
    /// Stages that follow from the moments of others, and the locals whose moments the stage that is written accumulates.
    pub moments: Moments,
    pub beside: Vec<u32>,
    /// The round whose steps are written.
    pub round: Option<Round>,
    pub private: &'a [u32],
    apart: &'a [u32],
    /// Checks that fail are noted in `fault`.
    pub faults: bool,
}

/// Threads of a block of a kernel in which each thread works alone.
pub(super) const THREADS: u32 = 256;

impl Writer<'_> {
    fn finish(mut self, suffix: &str, blocks: Expr, threads: u32, guarded: bool) -> EmittedFunction {
        self.out.line("}");
        let Writer { kernel, needs, out, apart, .. } = self;
        let symbols: Vec<u32> = kernel.symbols().into_iter().collect();
        let function = names::function(&kernel.name) + suffix;
        let mut arguments = Vec::new();
        for (i, param) in kernel.params.iter().enumerate() {
            let constant = if param.access == Access::Read { "const " } else { "" };
            // Not on what it reads: that may be written until the kernel has waited for the one before.
            let restrict = if apart.contains(&(i as u32)) { "__restrict__ " } else { "" };
            arguments.push(format!("{constant}{} *{restrict}a{i}", names::element(param.dtype).unwrap_or("void")));
        }
        arguments.extend(symbols.iter().map(|s| format!("int64 s{s}")));
        if needs.scratch {
            arguments.push("void *scratch".to_owned());
        }
        if needs.flag || guarded {
            arguments.push("ErrorFlag *flag".to_owned());
        }
        if needs.random {
            arguments.push("const RandomState *random".to_owned());
        }
        let mut text = String::new();
        let mut last = "";
        for line in kernel.comment.iter().flat_map(|c| c.lines()) {
            // A backslash at the end would continue the comment.
            let line = line.trim_end().trim_end_matches('\\');
            if line != last {
                text.push_str(&format!("// {line}\n"));
            }
            last = line;
        }
        let bounds = format!("__launch_bounds__({threads})");
        text.push_str(&format!(
            "extern \"C\" __global__ void {bounds} {function}({}) {}",
            arguments.join(", "),
            out.text
        ));
        let launch = Launch {
            module: 0,
            function,
            grid: [blocks, Expr::int(1), Expr::int(1)],
            block: [threads, 1, 1],
            shared: 0,
            symbols,
            scratch: needs.scratch,
            flag: needs.flag,
            guard: guarded,
            random: needs.random,
            maps: vec![],
        };
        EmittedFunction {
            text,
            launch,
            special: needs.special,
            templates: if needs.moments { &[MOMENTS] } else { &[] },
        }
    }

    /// The writer of expressions in a stage.
    pub fn indexer(&self, stage: &Stage) -> Indexer {
        let loops: Vec<Expr> = self.kernel.outer.iter().chain(&stage.inner).cloned().collect();
        let ranges = self.ranges.with_loops(&loops);
        Indexer { ranges }
    }

    pub fn outer_indexer(&self) -> Indexer {
        Indexer { ranges: self.ranges.clone() }
    }

    /// Declares loops from a linear count `from` of their points. Of the last loop, `points` at a time are one: `first` is the first of them.
    pub fn declare(&mut self, loops: &[(usize, Expr)], from: &str, points: i64) {
        let Some((name, _)) = loops.first() else { return };
        let mut indexer = self.outer_indexer();
        for (number, size) in loops {
            indexer.ranges.set(variable(*number), Some(0), Some(size - 1));
        }
        let last = loops.len() - 1;
        let counts: Vec<Expr> = loops
            .iter()
            .enumerate()
            .map(|(k, (_, size))| if k == last { size.ceil_div(&Expr::int(points)) } else { size.clone() })
            .collect();
        let narrow = indexer.width(&Expr::product(&counts)) == Width::Narrow;
        let linear = if narrow { "uint32" } else { "uint64" };
        let mut rest = format!("({linear}){from}");
        if last > 0 {
            self.out.line(format!("{linear} rest{name} = {rest};"));
            rest = format!("rest{name}");
        }
        for (k, ((number, _), count)) in loops.iter().zip(&counts).enumerate().rev() {
            let width = indexer.loop_width(*number).name();
            let count = indexer.write(count);
            let value = if k == 0 { rest.clone() } else { format!("{rest} % ({linear})({count})") };
            self.out.line(if k == last && points > 1 {
                format!("const {width} first = ({width})({value}) * {points};")
            } else {
                format!("const {width} i{number} = ({width})({value});")
            });
            if k > 0 {
                self.out.line(format!("{rest} /= ({linear})({count});"));
            }
        }
    }

    pub fn outer_loops(&self) -> Vec<(usize, Expr)> {
        let outer = &self.kernel.outer;
        let numbers = match self.kernel.ordered {
            true => (0..outer.len()).collect(),
            false => strategy::in_memory_order(outer.len(), 0, strategy::stored(self.kernel)),
        };
        numbers.into_iter().filter_map(|number| Some((number, outer.get(number)?.clone()))).collect()
    }

    pub fn inner_loops(&self, stage: &Stage) -> Vec<(usize, Expr)> {
        strategy::inner_loops(self.kernel, stage)
    }

    pub fn body<'b>(&'b mut self, stage: &'b Stage) -> Body<'b> {
        let indexer = self.indexer(stage);
        Body {
            kernel: self.kernel,
            stage,
            indexer,
            needs: &mut self.needs,
            out: &mut self.out,
            faults: self.faults,
            moments: &self.beside,
        }
    }
}

/// A loop's variable.
pub(super) fn variable(number: usize) -> Symbol {
    Symbol::Loop(number as u32)
}
