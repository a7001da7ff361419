//! Sizes of buffers, and places of temporaries.

use crate::bounds::ranges;
use crate::place::{Interval, place};
use crate::plan::{BufferKind, Plan};
use douse_core::sym::{Expr, Symbol};
use douse_core::{Code, Error, Result};
use std::ops::Range;

/// Where temporaries lie while the symbols known at a call's beginning have these values.
#[derive(Clone, Debug, Default)]
pub struct Layout {
    /// The values that it was made for.
    symbols: Option<Vec<Option<i64>>>,
    /// By buffer, of those in the arena.
    pub places: Vec<Option<Range<usize>>>,
    /// Bytes of the arena.
    pub total: usize,
}

impl Layout {
    /// Places temporaries, unless the values are those of the call before. `lives` is of [`crate::place::lifetimes`].
    ///
    /// # Errors
    /// `InvalidArgument` for a negative size, `MemoryAllocationFailed` for sizes beyond the address space.
    pub fn update(&mut self, plan: &Plan, lives: &[Option<(u32, u32)>], symbols: &[Option<i64>]) -> Result<()> {
        if self.symbols.as_deref() == Some(symbols) {
            return Ok(());
        }
        let mut intervals = Vec::new();
        let mut buffers = Vec::new();
        for (id, (buffer, life)) in plan.buffers.iter().zip(lives).enumerate() {
            if let (BufferKind::Temporary, Some((first, last))) = (&buffer.kind, life)
                && let Some(bytes) = bytes(plan, id, symbols)?
            {
                intervals.push(Interval { first: *first, last: *last, bytes: bytes as u64 });
                buffers.push(id);
            }
        }
        let placement = place(&intervals);
        self.places = vec![None; plan.buffers.len()];
        for ((id, interval), offset) in buffers.into_iter().zip(&intervals).zip(&placement.offsets) {
            self.places[id] = Some(*offset as usize..(*offset + interval.bytes) as usize);
        }
        self.total = usize::try_from(placement.total).map_err(|_| too_large())?;
        self.symbols = Some(symbols.to_vec());
        Ok(())
    }
}

/// Bytes of a buffer, the most that there can be while some of its symbols are not known yet; `None` where there is no bound.
///
/// # Errors
/// As [`Layout::update`].
pub fn bytes(plan: &Plan, buffer: usize, symbols: &[Option<i64>]) -> Result<Option<usize>> {
    let Some(buffer) = plan.buffers.get(buffer) else { return Ok(None) };
    let Some(elements) = most(plan, &buffer.elements, symbols) else { return Ok(None) };
    let elements = usize::try_from(elements)
        .map_err(|_| Error::invalid_argument(format!("a tensor would have {elements} elements")))?;
    elements.checked_mul(buffer.dtype.size()).map(Some).ok_or_else(too_large)
}

/// The value of an expression, or the most it can be. A size may fall as a count grows (what a mask leaves out), so that the greatest
/// values of the symbols do not give it.
fn most(plan: &Plan, expr: &Expr, symbols: &[Option<i64>]) -> Option<i64> {
    let known = |n: u32| symbols.get(n as usize).copied().flatten();
    let value = expr.eval(&|symbol| match symbol {
        Symbol::Size(n) => known(n),
        _ => None,
    });
    value.or_else(|| {
        let mut ranges = ranges(plan);
        for n in 0..plan.symbols.len() as u32 {
            if let Some(value) = known(n) {
                ranges.set(Symbol::Size(n), Some(value), Some(Expr::int(value)));
            }
        }
        ranges.max(expr)
    })
}

fn too_large() -> Error {
    Error::new(Code::MemoryAllocationFailed, "a tensor would not fit the address space")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{self, expr};

    #[test]
    fn a_size_that_falls_as_a_count_grows_gets_room_for_all() {
        // Of the sample's symbols, s1 is set by a step.
        let mut plan = sample::plan();
        let (unknown, known) = (&[Some(12), None], &[Some(12), Some(5)]);
        plan.symbols[1].min = Some(0);
        plan.symbols[1].max = None;
        plan.symbols[1].bound = Some(expr("s0"));
        for (elements, most, exactly) in
            [("s1", 12, 5), ("s0 - s1", 12, 7), ("mod(s1, 5)", 4, 0), ("3*s1 + 1", 37, 16), ("max(s1, s0 - s1)", 12, 7)]
        {
            plan.buffers[0].elements = expr(elements);
            let size = plan.buffers[0].dtype.size();
            assert_eq!(bytes(&plan, 0, unknown).unwrap(), Some(most * size), "{elements}");
            assert_eq!(bytes(&plan, 0, known).unwrap(), Some(exactly * size), "{elements}");
        }
        plan.symbols[1].min = None;
        plan.buffers[0].elements = expr("s0 - s1");
        assert_eq!(bytes(&plan, 0, unknown).unwrap(), None);
    }
}
