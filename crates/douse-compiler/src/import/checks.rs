//! Conditions on sizes without which a call has no answer.

use std::fmt::Display;

use douse_core::sym::{Compare, Cond, Expr};

use super::importer::Importer;

impl Importer {
    /// Makes the call fail unless a condition holds; `what` says what is wrong then.
    pub fn require(&mut self, cond: Cond, what: impl Display) {
        let cond = cond.simplify(self.b.ranges());
        if cond.as_bool() != Some(true) {
            let text = format!("{what} ({})", self.place);
            self.b.require(cond, text);
        }
    }

    /// Makes the call fail where one of the sizes is 0.
    pub fn require_filled(&mut self, sizes: &[Expr], what: impl Display) {
        for (d, size) in sizes.iter().enumerate() {
            let some = Cond::compare(Compare::Ge, size, &Expr::int(1));
            self.require(some, format_args!("{what}: dimension {d} of {} is empty", douse_ir::shape_text(sizes)));
        }
    }

    /// Whether none of the sizes can be 0.
    pub fn is_filled(&self, sizes: &[Expr]) -> bool {
        sizes.iter().all(|size| self.b.ranges().min(size).is_some_and(|least| least >= 1))
    }
}
