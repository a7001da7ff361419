//! Kernels whose threads each take points of the outer space, and the points of a stage.

use douse_core::Result;
use douse_core::sym::{Expr, Symbol};
use douse_program::kernel::{Effect, Op, Stage};

use super::body::Acting;
use super::kernel::{THREADS, Writer};
use super::vector::{Vectors, is_aligned};
use super::{names, strategy};

/// Threads whose loads wait for each other from which they take points several times, in bodies of no more instructions than this.
const MANY_GATHERS: i64 = 1 << 20;
const FEW_INSTRUCTIONS: usize = 12;

impl Writer<'_> {
    /// The body and effects of a stage for the points that `declare` has begun.
    pub fn points(&mut self, stage: &Stage, loops: &[(usize, Expr)], vectors: &Vectors, acting: Acting) -> Result<()> {
        let points = vectors.points();
        let (Some((last, size)), true) = (loops.last(), points > 1) else {
            let round = self.round.clone().unwrap_or_default();
            let mut body = self.body(stage);
            body.instructions_from(|number| round.loaded(number))?;
            if matches!(acting, Acting::First | Acting::FirstOfAll) && loads_what_it_stores(stage) {
                body.out.line("Lanes::sync();");
            }
            return body.effects(vectors, acting);
        };
        let loop_type = self.indexer(stage).loop_width(*last).name();
        let whole = size.as_int().is_some_and(|size| size % points == 0);
        let (row, round, private) = (self.row.clone(), self.round.clone().unwrap_or_default(), self.private);
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
                let value = match (held, round.loaded(*number)) {
                    (Some((held, _)), _) => format!("held{held}[n]"),
                    (None, Some(early)) => early,
                    _ if whole && is_aligned(index, *last, points) => {
                        format!("load_aligned<{points}>(a{param} + {})", body.parenthesised(index))
                    }
                    _ => format!("load_vector<{points}>(a{param} + {}, {count})", body.parenthesised(index)),
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
        body.sums(vectors, false, &count)?;
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
        body.sums(vectors, true, &count)?;
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
    pub fn pointwise(&mut self) -> Result<(Expr, u32)> {
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
}

/// Whether a stage loads from a parameter that it stores to.
fn loads_what_it_stores(stage: &Stage) -> bool {
    let stored: Vec<u32> =
        stage.effects.iter().filter_map(|e| strategy::destination(e).map(|(param, _)| param)).collect();
    stage.body.iter().any(|inst| matches!(&inst.op, Op::Load { param, .. } if stored.contains(param)))
}
