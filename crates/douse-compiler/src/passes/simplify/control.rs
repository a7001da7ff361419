//! Checks and branches whose condition is known.

use douse_ir::{Builder, Node, Op};

use crate::passes::rebuild::{Action, Place};

/// What a known condition makes of a node.
pub(super) fn decide(builder: &Builder, node: &Node, place: &Place) -> Option<Action> {
    let known = match &node.op {
        Op::Require { cond, .. } | Op::IfCond { cond, .. } => cond.simplify(builder.ranges()).as_bool()?,
        Op::Assert { .. } | Op::If { .. } => builder.constant_scalar(*node.operands.first()?)?.to_bool(),
        _ => return None,
    };
    match node.op {
        // require true =
        // assert true =
        Op::Require { .. } | Op::Assert { .. } => known.then_some(Action::Drop),
        // if true { a } else { b } = a, unless the node gives a's sizes names of their own
        _ => {
            let chosen = usize::from(!known);
            (*place.given.get(chosen)? == place.infos).then_some(Action::Inline(chosen))
        }
    }
}
