//! Sizes of buffers, and places of temporaries.

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

/// Bytes of a buffer, by the bounds of symbols that are not known yet; `None` where there is no bound.
///
/// # Errors
/// As [`Layout::update`].
pub fn bytes(plan: &Plan, buffer: usize, symbols: &[Option<i64>]) -> Result<Option<usize>> {
    let Some(buffer) = plan.buffers.get(buffer) else { return Ok(None) };
    let Some(elements) = bounded(plan, &buffer.elements, symbols, 0) else { return Ok(None) };
    let elements = usize::try_from(elements)
        .map_err(|_| Error::invalid_argument(format!("a tensor would have {elements} elements")))?;
    elements.checked_mul(buffer.dtype.size()).map(Some).ok_or_else(too_large)
}

/// The value of an expression, or the most it can be. A size grows with its symbols, so a bound takes a symbol's place.
fn bounded(plan: &Plan, expr: &Expr, symbols: &[Option<i64>], depth: usize) -> Option<i64> {
    expr.eval(&|symbol| match symbol {
        Symbol::Size(i) => symbols.get(i as usize).copied().flatten().or_else(|| {
            // A bound is over earlier symbols, so this ends; the depth is for files that say otherwise.
            let bound = plan.symbols.get(i as usize)?.bound.as_ref()?;
            (depth < plan.symbols.len()).then(|| bounded(plan, bound, symbols, depth + 1)).flatten()
        }),
        _ => None,
    })
}

fn too_large() -> Error {
    Error::new(Code::MemoryAllocationFailed, "a tensor would not fit the address space")
}
