//! What is known of a method's sizes before it runs.

use douse_core::sym::{Expr, Ranges, Symbol};

use crate::plan::Plan;

/// The least and the greatest value of a size; both are included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeBounds {
    pub min: i64,
    /// `None`: unbounded.
    pub max: Option<i64>,
}

impl SizeBounds {
    /// The one value that the size has.
    pub fn fixed(self) -> Option<i64> {
        self.max.filter(|max| *max == self.min)
    }
}

/// The ranges of a plan's symbols.
pub fn ranges(plan: &Plan) -> Ranges {
    let mut ranges = Ranges::new();
    for (i, symbol) in plan.symbols.iter().enumerate() {
        let max = symbol.max.map(Expr::int);
        // A bound over other symbols and a number: the tighter one cannot be told, so the number wins if there is one.
        ranges.set(Symbol::Size(i as u32), symbol.min, max.or_else(|| symbol.bound.clone()));
    }
    ranges
}

/// The bounds of a size, which is never negative.
pub fn size_bounds(ranges: &Ranges, size: &Expr) -> SizeBounds {
    SizeBounds { min: ranges.min(size).unwrap_or(0).max(0), max: ranges.max(size).map(|max| max.max(0)) }
}
