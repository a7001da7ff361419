//! One kernel as a CUDA C++ function.

use douse_core::sym::{Expr, Ranges, Symbol};
use douse_core::{Error, Result};
use douse_program::kernel::{Access, Effect, Kernel, Op, Stage};
use douse_program::target::Launch;

use super::body::{Acting, Body, Needs, Text};
use super::index::{Indexer, Width};
use super::names;
use super::row::Row;
use super::strategy::{self, Lanes, Strategy};
use super::vector::Vectors;

/// A kernel's text and how it is launched.
pub(super) struct EmittedKernel {
    pub text: String,
    pub launch: Launch,
    /// Uses the special functions.
    pub special: bool,
}

/// Writes a kernel; `ranges` are those of the plan's symbols, `private` the parameters whose contents nothing but this kernel looks at. A guarded
/// one does nothing where the error flag is raised.
///
/// # Errors
/// `Internal` for a kernel that is not well formed.
pub(super) fn emit(kernel: &Kernel, ranges: &Ranges, private: &[u32], guarded: bool) -> Result<EmittedKernel> {
    let strategy = Strategy::of(kernel, ranges);
    let mut writer = Writer {
        kernel,
        ranges: ranges.with_loops(&kernel.outer),
        needs: Needs::default(),
        out: Text::default(),
        lanes: Lanes::Thread,
        row: None,
        private,
    };
    writer.out.line("{");
    if guarded {
        writer.out.line(GUARD);
    }
    let (points, threads) = match &strategy {
        Strategy::Pointwise => writer.pointwise()?,
        Strategy::Staged(lanes) => writer.staged(*lanes)?,
        Strategy::Ordered { parallel, owners } => writer.ordered(parallel, *owners)?,
    };
    writer.out.line("}");
    Ok(writer.finish(points, threads, guarded))
}

/// How a function begins that does nothing where the error flag is raised.
pub(super) const GUARD: &str = "if (flag->code != 0) return;";

pub(super) struct Writer<'a> {
    pub kernel: &'a Kernel,
    ranges: Ranges,
    needs: Needs,
    pub out: Text,
    pub lanes: Lanes,
    /// What several stages load of the row, once it is in registers.
    pub row: Option<Row>,
    private: &'a [u32],
}

/// Threads of a block of a kernel in which each thread works alone.
const THREADS: u32 = 256;

impl Writer<'_> {
    fn finish(self, blocks: Expr, threads: u32, guarded: bool) -> EmittedKernel {
        let Writer { kernel, needs, out, .. } = self;
        let symbols: Vec<u32> = kernel.symbols().into_iter().collect();
        let function = names::function(&kernel.name);
        let mut arguments = Vec::new();
        for (i, param) in kernel.params.iter().enumerate() {
            let constant = if param.access == Access::Read { "const " } else { "" };
            arguments.push(format!("{constant}{} *a{i}", names::element(param.dtype).unwrap_or("void")));
        }
        arguments.extend(symbols.iter().map(|s| format!("int64 s{s}")));
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
            scratch: false,
            flag: needs.flag,
            guard: guarded,
            random: needs.random,
        };
        EmittedKernel { text, launch, special: needs.special }
    }

    /// The writer of expressions in a stage.
    pub fn indexer(&self, stage: &Stage) -> Indexer {
        let loops: Vec<Expr> = self.kernel.outer.iter().chain(&stage.inner).cloned().collect();
        let ranges = self.ranges.with_loops(&loops);
        Indexer { ranges }
    }

    fn outer_indexer(&self) -> Indexer {
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

    fn outer_loops(&self) -> Vec<(usize, Expr)> {
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
        Body { kernel: self.kernel, stage, indexer, needs: &mut self.needs, out: &mut self.out }
    }

    /// The body and effects of a stage for the points that `declare` has begun.
    fn points(&mut self, stage: &Stage, loops: &[(usize, Expr)], vectors: &Vectors, acting: Acting) -> Result<()> {
        let points = vectors.points();
        let (Some((last, size)), true) = (loops.last(), points > 1) else {
            let mut body = self.body(stage);
            body.instructions(vectors)?;
            if acting == Acting::First && stores(stage) {
                body.out.line("Lanes::sync();");
            }
            return body.effects(vectors, acting);
        };
        let loop_type = self.indexer(stage).loop_width(*last).name();
        let whole = size.as_int().is_some_and(|size| size % points == 0);
        let (kernel, row, private) = (self.kernel, self.row.clone(), self.private);
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
        for number in vectors.loads() {
            if let Some(Op::Load { param, index, .. }) = stage.body.get(*number).map(|i| &i.op) {
                let held = row.as_ref().filter(|row| row.is_for(stage)).and_then(|row| row.held(*param, index));
                let value = match held {
                    Some((held, _)) => format!("held{held}[n]"),
                    None => format!("load_vector<{points}>(a{param} + {}, {count})", body.parenthesised(index)),
                };
                body.out.line(format!("const auto v{number} = {value};"));
            }
        }
        for number in vectors.stores() {
            if let Some(Effect::Store { param, .. }) = stage.effects.get(*number) {
                let dtype = kernel.params.get(*param as usize).map(|p| p.dtype);
                let dtype = dtype.ok_or_else(|| Error::internal("a parameter is not there"))?;
                body.out.line(format!("Vector<{}, {points}> w{number};", names::element(dtype)?));
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
            if let Some(Effect::Store { param, index, .. }) = stage.effects.get(*number) {
                let held = row.as_ref().filter(|row| row.is_for(stage)).and_then(|row| row.held(*param, index));
                if let Some((held, value)) = held {
                    body.out.line(format!("held{held}[n] = w{number};"));
                    // Nobody else would see it in memory.
                    if value.alone && private.contains(param) {
                        continue;
                    }
                }
                // Its registers belong to single points, and no vector's index mentions any.
                let at = body.parenthesised(index);
                body.out.line(format!("store_vector(a{param} + {at}, w{number}, {count});"));
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
        self.out.line(format!("const int64 p = blockIdx.x * {THREADS}ll + threadIdx.x;"));
        self.out.line(format!("if (p >= {text}) return;"));
        self.declare(&loops, "p", vectors.points());
        self.declare_locals()?;
        for stage in &kernel.stages {
            self.out.line("{");
            self.points(stage, &loops, &vectors, Acting::All)?;
            self.out.line("}");
        }
        Ok((count.ceil_div(&Expr::int(i64::from(THREADS))), THREADS))
    }

    fn declare_locals(&mut self) -> Result<()> {
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
        self.out.line(format!("typedef {} Lanes;", lanes.name()));
        self.out.line(match lanes {
            Lanes::Thread => format!("const int64 p = blockIdx.x * {THREADS}ll + threadIdx.x;"),
            Lanes::Warp => format!("const int64 p = blockIdx.x * {}ll + threadIdx.x / 32;", THREADS / 32),
            Lanes::Block(_) => "const int64 p = blockIdx.x;".to_owned(),
            // Lanes beyond the last point do its work again: every one must reach the barriers.
            Lanes::Column(_) => {
                format!("const int64 p = smaller<int64>(blockIdx.x * 32ll + threadIdx.x % 32, {points} - 1);")
            }
        });
        if !matches!(lanes, Lanes::Column(_)) {
            self.out.line(format!("if (p >= {points}) return;"));
        }
        self.declare(&loops, "p", 1);
        self.declare_locals()?;
        self.load_row()?;
        for (number, stage) in kernel.stages.iter().enumerate() {
            self.stage(number, stage)?;
            if number + 1 < kernel.stages.len() && lanes != Lanes::Thread {
                self.out.line("Lanes::sync();");
            }
        }
        Ok(match lanes {
            Lanes::Thread => (count.ceil_div(&Expr::int(i64::from(THREADS))), THREADS),
            Lanes::Warp => (count.ceil_div(&Expr::int(i64::from(THREADS / 32))), THREADS),
            Lanes::Block(threads) => (count, threads),
            Lanes::Column(lanes) => (count.ceil_div(&Expr::int(32)), 32 * lanes),
        })
    }

    /// One stage at one outer point, shared among lanes.
    fn stage(&mut self, number: usize, stage: &Stage) -> Result<()> {
        self.out.line("{");
        self.out.line(format!("// stage {number}"));
        self.accumulators(stage)?;
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
            match self.row.as_ref().filter(|row| row.is_for(stage)).map(|row| row.steps) {
                Some(steps) => self.begin_step(stage, &inner, &vectors, steps),
                None => {
                    let count = strategy::count(&inner, vectors.points());
                    let indexer = self.indexer(stage);
                    // The last step of the loop goes beyond the count.
                    let width = indexer.width(&(&count + self.lanes.count())).name();
                    let count = indexer.write(&count);
                    self.out.line(format!("for ({width} q = Lanes::lane(); q < {count}; q += Lanes::COUNT) {{"));
                    self.declare(&inner, "q", vectors.points());
                }
            }
            self.points(stage, &inner, &vectors, Acting::All)?;
            self.out.line("}");
            self.locals(stage, true)?;
        }
        self.out.line("}");
        Ok(())
    }

    /// Declares what reductions accumulate in.
    fn accumulators(&mut self, stage: &Stage) -> Result<()> {
        for effect in &stage.effects {
            let (local, class) = match effect {
                Effect::Reduce { op, value, local } => {
                    let dtype = self.body(stage).dtype(*value)?;
                    (local, names::combine(*op, dtype, false)?)
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

    /// Gives locals what was accumulated; `across`: over all lanes.
    fn locals(&mut self, stage: &Stage, across: bool) -> Result<()> {
        for effect in &stage.effects {
            let (Effect::Reduce { local, .. } | Effect::ArgReduce { local, .. }) = effect else { continue };
            let total = match across {
                true => format!("Across<Reduce{local}, Lanes>::reduce(sum{local})"),
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

    /// In order: a thread a point of the parallel loops and a share of the elements, which takes the other loops one by one.
    fn ordered(&mut self, parallel: &[usize], owners: u32) -> Result<(Expr, u32)> {
        const THREADS: u32 = 128;
        let (apart, in_order): (Vec<_>, Vec<_>) =
            self.outer_loops().into_iter().partition(|(number, _)| parallel.contains(number));
        let (count, steps) = (strategy::count(&apart, 1), strategy::count(&in_order, 1));
        let all = &count * i64::from(owners);
        let indexer = self.outer_indexer();
        self.out.line("typedef ThreadLanes Lanes;");
        self.out.line(format!("const int64 thread = blockIdx.x * {THREADS}ll + threadIdx.x;"));
        self.out.line(format!("if (thread >= {}) return;", indexer.wide(&all)));
        let acting = if owners > 1 {
            self.out.line(format!("const uint32 owner = (uint32)(thread / {});", indexer.wide(&count)));
            self.out.line(format!("const int64 p = thread % {};", indexer.wide(&count)));
            Acting::Owner(owners)
        } else {
            self.out.line("const int64 p = thread;");
            Acting::All
        };
        self.declare(&apart, "p", 1);
        let step_type = indexer.width(&steps).name();
        self.out.line(format!("for ({step_type} step = 0; step < {}; ++step) {{", indexer.write(&steps)));
        self.declare(&in_order, "step", 1);
        self.declare_locals()?;
        let kernel = self.kernel;
        for (number, stage) in kernel.stages.iter().enumerate() {
            match acting {
                Acting::Owner(_) => self.points(stage, &[], &Vectors::none(), acting)?,
                _ => self.stage(number, stage)?,
            }
        }
        self.out.line("}");
        Ok((all.ceil_div(&Expr::int(i64::from(THREADS))), THREADS))
    }
}

/// Whether a stage changes memory.
fn stores(stage: &Stage) -> bool {
    stage.effects.iter().any(|e| matches!(e, Effect::Store { .. } | Effect::Update { .. }))
}

/// A loop's variable.
pub(super) fn variable(number: usize) -> Symbol {
    Symbol::Loop(number as u32)
}
