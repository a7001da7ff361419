//! One kernel as a CUDA C++ function.

use douse_core::Result;
use douse_core::pointwise::Combine;
use douse_core::sym::{Expr, Ranges, Symbol};
use douse_program::kernel::{Access, Effect, Kernel, Op, Stage};
use douse_program::target::Launch;

use super::body::{self, Acting, Body, Needs, Text};
use super::index::{Indexer, Width};
use super::names;
use super::row::Row;
use super::split::{Part, Split};
use super::strategy::{self, Lanes, Strategy};
use super::vector::{Vectors, is_aligned};

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

/// Writes a kernel; `ranges` are those of the plan's symbols, `private` the parameters whose contents nothing but this kernel looks at,
/// `apart` those it writes and reaches in no other way. A guarded one does nothing where the error flag is raised.
///
/// # Errors
/// `Internal` for a kernel that is not well formed.
pub(super) fn emit(
    kernel: &Kernel,
    ranges: &Ranges,
    private: &[u32],
    apart: &[u32],
    guarded: bool,
) -> Result<EmittedKernel> {
    let strategy = Strategy::of(kernel, ranges);
    let writer = || {
        let mut writer = Writer {
            kernel,
            ranges: ranges.with_loops(&kernel.outer),
            needs: Needs::default(),
            out: Text::default(),
            lanes: Lanes::Thread,
            row: None,
            split: None,
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
        _ => Expr::int(0),
    };
    let templates = strategy.templates();
    let functions = functions.into_iter().map(|function| EmittedFunction { templates, ..function }).collect();
    Ok(EmittedKernel { functions, scratch })
}

/// How a function begins that does nothing where the error flag is raised.
pub(super) const GUARD: &str = "if (flag->code != 0) return;";
/// The same where threads wait for each other: the flag may be raised meanwhile.
const GUARD_OF_BLOCKS: &str = "if (__syncthreads_or(flag->code != 0)) return;";

pub(super) struct Writer<'a> {
    pub kernel: &'a Kernel,
    ranges: Ranges,
    pub needs: Needs,
    pub out: Text,
    pub lanes: Lanes,
    /// What several stages load of the row, once it is in registers.
    pub row: Option<Row>,
    /// How blocks share an outer point, where they do.
    pub split: Option<Split>,
    pub private: &'a [u32],
    apart: &'a [u32],
    /// Checks that fail are noted in `fault`.
    pub faults: bool,
}

/// So many values a lane are added up plainly: with the tree of the lanes above them that is as exact as sums in pairs.
const SHORT: i64 = 64;
/// Threads of a block of a kernel in which each thread works alone.
const THREADS: u32 = 256;
/// Threads whose loads wait for each other from which they take points several times, in bodies of no more instructions than this.
const MANY_GATHERS: i64 = 1 << 20;
const FEW_INSTRUCTIONS: usize = 12;

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
        EmittedFunction { text, launch, special: needs.special, templates: &[] }
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
        Body { kernel: self.kernel, stage, indexer, needs: &mut self.needs, out: &mut self.out, faults: self.faults }
    }

    /// The body and effects of a stage for the points that `declare` has begun.
    pub fn points(&mut self, stage: &Stage, loops: &[(usize, Expr)], vectors: &Vectors, acting: Acting) -> Result<()> {
        let points = vectors.points();
        let (Some((last, size)), true) = (loops.last(), points > 1) else {
            let mut body = self.body(stage);
            body.instructions(vectors)?;
            if matches!(acting, Acting::First | Acting::FirstOfAll) && loads_what_it_stores(stage) {
                body.out.line("Lanes::sync();");
            }
            return body.effects(vectors, acting);
        };
        let loop_type = self.indexer(stage).loop_width(*last).name();
        let whole = size.as_int().is_some_and(|size| size % points == 0);
        let (row, private) = (self.row.clone(), self.private);
        let late = self.late_stores(stage, loops, vectors);
        let mut body = self.body(stage);
        let count = if whole {
            points.to_string()
        } else {
            let size = body.indexer.write(size);
            body.out.line(format!("const int count = (int)smaller<{loop_type}>({points}, {size} - first);"));
            "count".to_owned()
        };
        // The index at the first point: the loop's variable is shadowed by each point's own below.
        body.out.line(format!("const {loop_type} i{last} = first;"));
        body.uniform_instructions(vectors)?;
        for number in vectors.loads() {
            if let Some(Op::Load { param, index, .. }) = stage.body.get(*number).map(|i| &i.op) {
                let held = row.as_ref().filter(|row| row.is_for(stage)).and_then(|row| row.held(*param, index));
                let value = match held {
                    Some((held, _)) => format!("held{held}[n]"),
                    None if whole && is_aligned(index, *last, points) => {
                        format!("load_aligned<{points}>(a{param} + {})", body.parenthesised(index))
                    }
                    None => format!("load_vector<{points}>(a{param} + {}, {count})", body.parenthesised(index)),
                };
                body.out.line(format!("const auto v{number} = {value};"));
            }
        }
        for number in vectors.stores() {
            if let Some(Effect::Store { param, .. }) = stage.effects.get(*number) {
                let dtype = body.param(*param)?;
                body.out.line(format!("{} w{number}[{points}] = {{}};", names::register(dtype)?));
            }
        }
        body.sums(vectors, false)?;
        body.out.line("#pragma unroll");
        body.out.line(format!("for (int k = 0; k < {points}; ++k) {{"));
        if !whole {
            body.out.line("if (k < count) {");
        }
        body.out.line(format!("const {loop_type} i{last} = first + k;"));
        body.instructions(vectors)?;
        body.effects(vectors, acting)?;
        if !whole {
            body.out.line("}");
        }
        body.out.line("}");
        body.sums(vectors, true)?;
        for number in vectors.stores() {
            if let Some(Effect::Store { param, index, value, .. }) = stage.effects.get(*number) {
                let dtype = body.param(*param)?;
                let (rounding, element) = (body.rounding(*param, *value)?, names::element(dtype)?);
                body.out.line(format!("const auto p{number} = pack<{}, {element}>(w{number});", rounding.name()));
                let held = row.as_ref().filter(|row| row.is_for(stage)).and_then(|row| row.held(*param, index));
                if let Some((held, value)) = held {
                    body.out.line(format!("held{held}[n] = p{number};"));
                    // Nobody else would see it in memory.
                    if value.alone && private.contains(param) {
                        continue;
                    }
                }
                if late.contains(number) {
                    body.out.line(format!("late{number}[n] = p{number};"));
                    continue;
                }
                let at = body.parenthesised(index);
                body.out.line(match whole && is_aligned(index, *last, points) {
                    true => format!("store_aligned(a{param} + {at}, p{number});"),
                    false => format!("store_vector(a{param} + {at}, p{number}, {count});"),
                });
            }
        }
        Ok(())
    }

    /// One thread takes a few points of the outer space. Returns the number of blocks and threads a block.
    fn pointwise(&mut self) -> Result<(Expr, u32)> {
        let loops = self.outer_loops();
        let kernel = self.kernel;
        let vectors = match (loops.last(), kernel.stages.as_slice()) {
            (Some((last, size)), [stage]) => Vectors::along(kernel, stage, *last, size, 1),
            _ => Vectors::none(),
        };
        let count = strategy::count(&loops, vectors.points());
        let text = self.outer_indexer().wide(&count);
        if let Some((threads, turns)) = self.gathers(&loops, &count) {
            // Without branches, the loads of all turns are under way at once.
            let share = i64::from(threads) * turns;
            self.faults = true;
            self.out.line("Fault fault;");
            self.out.line("#pragma unroll");
            self.out.line(format!("for (int turn = 0; turn < {turns}; ++turn) {{"));
            self.out.line(format!("const int64 wanted = blockIdx.x * {share}ll + turn * {threads} + threadIdx.x;"));
            self.out.line(match count.as_int() {
                Some(count) if count % share == 0 => "const int64 p = wanted;".to_owned(),
                // The last point stands in beyond the end: it is computed again.
                _ => format!("const int64 p = smaller<int64>(wanted, {text} - 1);"),
            });
            self.declare(&loops, "p", vectors.points());
            self.declare_locals()?;
            for stage in &kernel.stages {
                self.points(stage, &loops, &vectors, Acting::All)?;
            }
            self.out.line("}");
            if self.needs.flag {
                self.out.line("fault.raise_in(flag);");
            }
            return Ok((count.ceil_div(&Expr::int(share)), threads));
        }
        self.out.line(format!("const int64 p = blockIdx.x * {THREADS}ll + threadIdx.x;"));
        self.out.line(format!("if (p >= {text}) return;"));
        self.declare(&loops, "p", vectors.points());
        self.declare_locals()?;
        for stage in &kernel.stages {
            self.out.line("{");
            let acting = if kernel.ordered { Acting::Atomic } else { Acting::All };
            self.points(stage, &loops, &vectors, acting)?;
            self.out.line("}");
        }
        Ok((count.ceil_div(&Expr::int(i64::from(THREADS))), THREADS))
    }

    /// For kernels of many points whose loads wait for other loads that say where: threads of a block, and how often each takes points, the
    /// loads of all of them at once. Where such loads are apart along the last loop, large blocks find rows in the first-level cache.
    fn gathers(&self, loops: &[(usize, Expr)], count: &Expr) -> Option<(u32, i64)> {
        let [stage] = self.kernel.stages.as_slice() else { return None };
        let (last, _) = loops.last()?;
        let plain = stage.effects.iter().all(|effect| matches!(effect, Effect::Store { .. }));
        let many = count.as_int().is_some_and(|count| count >= MANY_GATHERS);
        let stored: Vec<u32> = stage.effects.iter().filter_map(strategy::destination).map(|(param, _)| param).collect();
        let mut values = Vec::new();
        for inst in &stage.body {
            if let Op::Load { param, index, .. } = &inst.op {
                if stored.contains(param) {
                    return None;
                }
                index.visit(&mut |symbol| {
                    if let Symbol::Value(register) = symbol {
                        values.push(register);
                    }
                });
            }
        }
        if self.kernel.ordered || !plain || !many || values.is_empty() || stage.body.len() > FEW_INSTRUCTIONS {
            return None;
        }
        let uniform = super::registers::uniform(stage, *last);
        let along = values.iter().all(|register| uniform.get(*register as usize) == Some(&true));
        Some(if along { (THREADS, 4) } else { (1024, 2) })
    }

    pub fn declare_locals(&mut self) -> Result<()> {
        for (number, dtype) in self.kernel.locals.iter().enumerate() {
            self.out.line(format!("{} l{number} = 0;", names::register(*dtype)?));
        }
        Ok(())
    }

    /// Lanes share the inner loops of an outer point.
    fn staged(&mut self, lanes: Lanes) -> Result<(Expr, u32)> {
        self.lanes = lanes;
        let loops = self.outer_loops();
        let kernel = self.kernel;
        let count = strategy::count(&loops, 1);
        let points = self.outer_indexer().wide(&count);
        self.point(lanes, &points, "blockIdx.x");
        self.declare(&loops, "p", 1);
        self.declare_locals()?;
        self.load_row()?;
        for (number, stage) in kernel.stages.iter().enumerate() {
            self.stage(number, stage)?;
            if lanes != Lanes::Thread && self.meets(number) {
                self.out.line("Lanes::sync();");
            }
        }
        Ok(match lanes {
            Lanes::Thread => (count.ceil_div(&Expr::int(i64::from(THREADS))), THREADS),
            Lanes::Part(lanes) => (count.ceil_div(&Expr::int(i64::from(THREADS / lanes))), THREADS),
            Lanes::Warp => (count.ceil_div(&Expr::int(i64::from(THREADS / 32))), THREADS),
            Lanes::Block(threads) => (count, threads),
            Lanes::Column(lanes) => (count.ceil_div(&Expr::int(32)), 32 * lanes),
        })
    }

    /// Declares `p`, the number of the outer point that lanes of a block have.
    pub fn point(&mut self, lanes: Lanes, points: &str, block: &str) {
        self.out.line(format!("typedef {} Lanes;", lanes.name()));
        self.out.line(match lanes {
            Lanes::Thread => format!("const int64 p = {block} * {THREADS}ll + threadIdx.x;"),
            // There are no warps of which only some lanes have a point.
            Lanes::Part(lanes) => format!("const int64 p = {block} * {}ll + threadIdx.x / {lanes};", THREADS / lanes),
            Lanes::Warp => format!("const int64 p = {block} * {}ll + threadIdx.x / 32;", THREADS / 32),
            Lanes::Block(_) => format!("const int64 p = {block};"),
            // Lanes beyond the last point do its work again: every one must reach the barriers.
            Lanes::Column(_) => {
                format!("const int64 p = smaller<int64>({block} * 32ll + threadIdx.x % 32, {points} - 1);")
            }
        });
        if !matches!(lanes, Lanes::Column(_)) {
            self.out.line(format!("if (p >= {points}) return;"));
        }
    }

    /// Whether stages after this one touch memory that the stages up to it have written, so that lanes have to wait for each other.
    fn meets(&self, number: usize) -> bool {
        let held = |stage: &Stage, param: u32, index: &Expr| {
            let row = self.row.as_ref().filter(|row| row.is_for(stage));
            row.and_then(|row| row.held(param, index)).map(|(_, value)| value)
        };
        let written = |stage: &Stage| -> Vec<u32> {
            let effects = stage.effects.iter().flat_map(strategy::destinations);
            let kept = |param: u32, index: &Expr| {
                held(stage, param, index).is_some_and(|value| value.alone && self.private.contains(&param))
            };
            effects.filter(|(param, index)| !kept(*param, index)).map(|(param, _)| param).collect()
        };
        let (before, after) = self.kernel.stages.split_at((number + 1).min(self.kernel.stages.len()));
        let before: Vec<u32> = before.iter().flat_map(written).collect();
        after.iter().any(|stage| {
            let loads = stage.body.iter().any(|inst| match &inst.op {
                Op::Load { param, index, .. } => before.contains(param) && held(stage, *param, index).is_none(),
                _ => false,
            });
            loads || written(stage).iter().any(|param| before.contains(param))
        })
    }

    /// One stage at one outer point, shared among lanes.
    pub fn stage(&mut self, number: usize, stage: &Stage) -> Result<()> {
        self.out.line("{");
        self.out.line(format!("// stage {number}"));
        self.accumulators(stage)?;
        self.divisors(stage)?;
        let inner = self.inner_loops(stage);
        if stage.inner.is_empty() {
            let acting = if self.lanes == Lanes::Thread { Acting::All } else { Acting::First };
            self.points(stage, &[], &Vectors::none(), acting)?;
            // Every lane has the value already.
            self.locals(stage, false)?;
        } else if strategy::scans(stage) {
            self.scan(stage, &inner)?;
            self.locals(stage, true)?;
        } else {
            let vectors = match inner.last() {
                Some((last, size)) => Vectors::along(self.kernel, stage, *last, size, self.lanes.count()),
                None => Vectors::none(),
            };
            let late = self.late_stores(stage, &inner, &vectors);
            self.declare_late(stage, &vectors, &late)?;
            match self.row.as_ref().filter(|row| row.is_for(stage)).map(|row| row.steps) {
                Some(steps) => self.begin_step(stage, &inner, &vectors, steps),
                None => {
                    let count = strategy::count(&inner, vectors.points());
                    let indexer = self.indexer(stage);
                    // The last step of the loop goes beyond the count.
                    let width = indexer.width(&(&count + self.lanes.count())).name();
                    let count_text = indexer.write(&count);
                    self.out.line(match &self.split {
                        None => format!("for ({width} q = Lanes::lane(); q < {count_text}; q += Lanes::COUNT) {{"),
                        Some(split) => {
                            let share = indexer.write(&count.ceil_div(&Expr::int(split.parts)));
                            let end = format!("smaller<{width}>({count_text}, ({width})(part + 1) * {share})");
                            format!("for ({width} q = ({width})part * {share} + Lanes::lane(), end = {end}; q < end; q += Lanes::COUNT) {{")
                        }
                    });
                    self.declare(&inner, "q", vectors.points());
                }
            }
            self.points(stage, &inner, &vectors, Acting::All)?;
            self.out.line("}");
            self.store_late(stage, &inner, &vectors, &late);
            match self.split.clone() {
                None => self.locals(stage, true)?,
                Some(split) => self.keep_parts(stage, &split),
            }
        }
        self.out.line("}");
        Ok(())
    }

    /// Declares what reductions accumulate in.
    pub fn accumulators(&mut self, stage: &Stage) -> Result<()> {
        let parts = self.split.as_ref().map_or(1, |split| split.parts);
        let share = Expr::product(&stage.inner).ceil_div(&Expr::int(self.lanes.count() * parts));
        let short = self.indexer(stage).ranges.max(&share).is_some_and(|most| most <= SHORT);
        for effect in &stage.effects {
            let (local, class) = match effect {
                Effect::Reduce { op, value, local } => {
                    let dtype = self.body(stage).dtype(*value)?;
                    (
                        local,
                        match op {
                            Combine::Sum if short && names::register(dtype)? == "float" => "PlainSum<float>".to_owned(),
                            op => names::combine(*op, dtype, false)?,
                        },
                    )
                }
                Effect::ArgReduce { max, value, local, .. } => {
                    let dtype = self.body(stage).dtype(*value)?;
                    (local, format!("ArgExtreme<{}, {max}, false>", names::register(dtype)?))
                }
                _ => continue,
            };
            self.out.line(format!("typedef {class} Reduce{local};"));
            self.out.line(format!("auto sum{local} = Reduce{local}::neutral();"));
        }
        Ok(())
    }

    /// Declares what a stage divides all of its points by.
    fn divisors(&mut self, stage: &Stage) -> Result<()> {
        let mut locals: Vec<u32> = stage.body.iter().filter_map(|inst| body::divisor(stage, &inst.op)).collect();
        locals.sort_unstable();
        locals.dedup();
        for local in locals {
            self.out.line(format!("const Divisor divisor{local}(l{local});"));
        }
        Ok(())
    }

    /// Gives locals what was accumulated; `across`: over all lanes.
    pub fn locals(&mut self, stage: &Stage, across: bool) -> Result<()> {
        for effect in &stage.effects {
            let (Effect::Reduce { local, .. } | Effect::ArgReduce { local, .. }) = effect else { continue };
            let total = match across {
                true => format!("Across<Reduce{local}, Lanes>::reduce<{local}>(sum{local})"),
                false => format!("sum{local}"),
            };
            match effect {
                Effect::Reduce { value, .. } => {
                    let dtype = self.body(stage).dtype(*value)?;
                    let result = names::rounded(dtype, format!("Reduce{local}::result({total})"))?;
                    self.out.line(format!("l{local} = {result};"));
                }
                Effect::ArgReduce { local_position, .. } => {
                    self.out.line(format!("sum{local} = {total};"));
                    self.out.line(format!("l{local} = sum{local}.value;"));
                    self.out.line(format!("l{local_position} = larger<int64>(sum{local}.position, 0);"));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Whether a stage loads from a parameter that it stores to.
fn loads_what_it_stores(stage: &Stage) -> bool {
    let stored: Vec<u32> =
        stage.effects.iter().filter_map(|e| strategy::destination(e).map(|(param, _)| param)).collect();
    stage.body.iter().any(|inst| matches!(&inst.op, Op::Load { param, .. } if stored.contains(param)))
}

/// A loop's variable.
pub(super) fn variable(number: usize) -> Symbol {
    Symbol::Loop(number as u32)
}
