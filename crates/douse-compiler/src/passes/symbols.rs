//! The expressions inside operations.

use douse_core::sym::{Cond, Expr, Symbol};
use douse_ir::Op;

/// Calls `f` for every symbol in the operation's own expressions (not in its blocks).
pub(crate) fn visit(op: &Op, f: &mut dyn FnMut(Symbol)) {
    match op {
        Op::Iota(expr) => expr.visit(f),
        Op::Check { size, .. } => size.visit(f),
        Op::Move { map, guard, .. } => {
            map.iter().for_each(|e| e.visit(f));
            guard.visit(f);
        }
        Op::Scatter { map, .. } => map.iter().for_each(|e| e.visit(f)),
        Op::Convolution(conv) => conv.padding.iter().chain(&conv.padding_end).for_each(|e| e.visit(f)),
        Op::TopK { k, .. } => k.visit(f),
        Op::Require { cond, .. } | Op::IfCond { cond, .. } => cond.visit(f),
        _ => {}
    }
}

/// Replaces symbols in the operation's own expressions.
pub(crate) fn substitute(op: &mut Op, with: &dyn Fn(Symbol) -> Option<Expr>) {
    let expr = |e: &mut Expr| *e = e.substitute(with);
    let cond = |c: &mut Cond| *c = c.substitute(with);
    match op {
        Op::Iota(e) => expr(e),
        Op::Check { size, .. } => expr(size),
        Op::Move { map, guard, .. } => {
            map.iter_mut().for_each(expr);
            cond(guard);
        }
        Op::Scatter { map, .. } => map.iter_mut().for_each(expr),
        Op::Convolution(conv) => conv.padding.iter_mut().chain(&mut conv.padding_end).for_each(expr),
        Op::TopK { k, .. } => expr(k),
        Op::Require { cond: c, .. } | Op::IfCond { cond: c, .. } => cond(c),
        _ => {}
    }
}
