//! Kernels that set elements, each the last of its points in order, where points seldom share one: all are set at once, in any order, and each claims
//! its bit. Only where one was claimed twice are they set again, in order.

use douse_core::sym::{Expr, Ranges, Symbol};
use douse_core::{Error, Result};
use douse_program::kernel::{Effect, Kernel, Stage};

use super::body::Acting;
use super::kernel::{Writer, variable};
use super::strategy::{self, InOrder};
use super::vector::Vectors;
use super::{names, registers};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Claims {
    /// How elements are set again.
    pub in_order: InOrder,
    /// Loops along which points set neighbours that are others' nowhere: the first claims for all.
    along: Vec<usize>,
    bits: i64,
}

/// More bits are not cleared for it.
const MOST_BITS: i64 = 1 << 32;
/// Bytes before the bits: whether one was claimed twice.
const HEAD: i64 = 16;
const THREADS: u32 = 256;

impl Claims {
    /// The claims of a kernel that would be done in order; `None` where it does more than set elements of one parameter, or how many is not known.
    pub fn of(kernel: &Kernel, ranges: &Ranges, in_order: &InOrder) -> Option<Claims> {
        let [stage] = kernel.stages.as_slice() else { return None };
        let (_, index, _, guard) = set(stage)?;
        let along = along(kernel, stage, index, guard, &in_order.parallel);
        let first = index.substitute(&|s| along.iter().any(|l| s == variable(*l)).then(|| Expr::int(0)));
        let ranges = strategy::value_ranges(kernel, stage, ranges);
        let bits = ranges.max(&first)?.checked_add(1)?;
        let sound = ranges.non_negative(&first) && bits <= MOST_BITS;
        sound.then_some(Claims { in_order: in_order.clone(), along, bits })
    }

    pub fn scratch(&self) -> i64 {
        16 * self.chunks()
    }

    /// Pieces of 16 bytes of scratch memory.
    fn chunks(&self) -> i64 {
        HEAD / 16 + (self.bits + 127) / 128
    }
}

/// The one effect that sets an element: the parameter, index, value and guard; `None` where there are others.
fn set(stage: &Stage) -> Option<(u32, &Expr, u32, Option<u32>)> {
    let mut changes = stage.effects.iter().filter(|effect| !matches!(effect, Effect::Assert { .. }));
    match (changes.next(), changes.next()) {
        (Some(Effect::Update { op: None, param, index, value, guard }), None) => Some((*param, index, *value, *guard)),
        _ => None,
    }
}

/// Those of some loops along which the data that an index and its guard depend on is the same, and every step goes equally far.
pub(super) fn along(kernel: &Kernel, stage: &Stage, index: &Expr, guard: Option<u32>, loops: &[usize]) -> Vec<usize> {
    let mut used: Vec<u32> = guard.into_iter().collect();
    index.visit(&mut |symbol| {
        if let Symbol::Value(register) = symbol {
            used.push(register);
        }
    });
    let even = |number: usize| {
        let uniform = registers::uniform(stage, number);
        let same = used.iter().all(|register| uniform.get(*register as usize) == Some(&true));
        let step = index.affine(variable(number)).map(|(step, _)| step);
        same && step.is_some_and(|step| !step.mentions(|s| !matches!(s, Symbol::Size(_))))
    };
    loops.iter().copied().filter(|number| *number < kernel.outer.len() && even(*number)).collect()
}

impl Writer<'_> {
    /// Clears the bits.
    pub fn clear_claims(&mut self, claims: &Claims) -> (Expr, u32) {
        let chunks = Expr::int(claims.chunks());
        self.needs.scratch = true;
        self.out.line(format!("const int64 p = blockIdx.x * {THREADS}ll + threadIdx.x;"));
        self.out.line(format!("if (p < {}) static_cast<uint4 *>(scratch)[p] = uint4{{}};", claims.chunks()));
        (chunks.ceil_div(&Expr::int(i64::from(THREADS))), THREADS)
    }

    /// Sets and claims elements: a thread takes a few points, neighbours where it can.
    pub fn claimed(&mut self, claims: &Claims) -> Result<(Expr, u32)> {
        let kernel = self.kernel;
        let [stage] = kernel.stages.as_slice() else { return Err(Error::internal("claims of several stages")) };
        let Some((param, index, of, _)) = set(stage) else {
            return Err(Error::internal("claims of nothing that is set"));
        };
        let loops = self.outer_loops();
        let vectors = match loops.last() {
            Some((last, size)) => Vectors::along(kernel, stage, *last, size, 1),
            None => Vectors::none(),
        };
        let points = vectors.points();
        let count = strategy::count(&loops, points);
        let text = self.outer_indexer().wide(&count);
        self.needs.scratch = true;
        self.out.line(format!("const int64 p = blockIdx.x * {THREADS}ll + threadIdx.x;"));
        self.out.line(format!("if (p >= {text}) return;"));
        self.declare(&loops, "p", points);
        self.declare_locals()?;
        let mut body = self.body(stage);
        body.note_ranges();
        let place = body.indexer.width(index).name();
        let register = names::register(body.param(param)?)?;
        let rounding = body.rounding(param, of)?.name();
        self.out.line(format!("{place} place[{points}];"));
        self.out.line(format!("{register} value[{points}];"));
        self.out.line("#pragma unroll");
        self.out.line(format!("for (int k = 0; k < {points}; ++k) place[k] = -1;"));
        self.out.line("{");
        self.points(stage, &loops, &vectors, Acting::Noted)?;
        self.out.line("}");
        self.out.line(format!("set_run<{rounding}>(a{param}, place, value);"));
        let last = loops.last().map(|(number, _)| *number);
        let whole = |number: &usize| {
            if points > 1 && Some(*number) == last { "first".to_owned() } else { format!("i{number}") }
        };
        let first: Vec<String> = claims.along.iter().map(|number| format!("{} == 0", whole(number))).collect();
        let claimed = match last.is_some_and(|last| claims.along.contains(&last)) {
            // The neighbours of the first have no bits.
            true => "claim_first(bits, place)".to_owned(),
            false => "claim(bits, place)".to_owned(),
        };
        let first = if first.is_empty() { String::new() } else { format!("{} && ", first.join(" && ")) };
        self.out.line("uint32 *const twice = static_cast<uint32 *>(scratch);");
        self.out.line(format!("uint32 *const bits = twice + {};", HEAD / 4));
        self.out.line(format!("if ({first}{claimed}) *twice = 1;"));
        Ok((count.ceil_div(&Expr::int(i64::from(THREADS))), THREADS))
    }

    /// Sets elements in order where one was claimed twice.
    pub fn settle_claims(&mut self, claims: &Claims) -> Result<(Expr, u32)> {
        self.needs.scratch = true;
        self.out.line("if (*static_cast<const uint32 *>(scratch) == 0) return;");
        self.in_order(&claims.in_order)
    }
}
