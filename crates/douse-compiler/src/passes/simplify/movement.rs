//! Moves, scatters, checks of indices and concatenations.

use douse_core::sym::{Expr, Symbol};
use douse_ir::{Builder, Node, Op, Value};

use super::{Rewrite, Rule, as_expr};
use crate::passes::rebuild::Info;

pub(super) const MOVE: &[Rule] = &[move_by_iota, move_of_iota, move_of_full, move_again];
pub(super) const SCATTER: &[Rule] = &[scatter_by_iota];
pub(super) const CHECK: &[Rule] = &[check_known];

/// Indices that are not known, and what `v0, v1, ...` are in their terms. `None` where no index is known.
fn known_indices(b: &Builder, indices: &[Value]) -> Option<(Vec<Value>, Vec<Expr>)> {
    let (mut unknown, mut values) = (Vec::new(), Vec::new());
    for index in indices {
        values.push(as_expr(b, *index).unwrap_or_else(|| {
            unknown.push(*index);
            Expr::symbol(Symbol::Value(unknown.len() as u32 - 1))
        }));
    }
    (unknown.len() < indices.len()).then_some((unknown, values))
}

fn by(values: &[Expr], symbol: Symbol) -> Option<Expr> {
    match symbol {
        Symbol::Value(n) => values.get(n as usize).cloned(),
        _ => None,
    }
}

/// x[iota(e)] = x[e]
fn move_by_iota(b: &mut Builder, node: &Node, infos: &[Info]) -> Rewrite {
    let (Op::Move { map, guard, fill }, [x, indices @ ..], [(_, shape)]) = (&node.op, node.operands.as_slice(), infos)
    else {
        return Ok(None);
    };
    let Some((unknown, values)) = known_indices(b, indices) else { return Ok(None) };
    let map = map.iter().map(|e| e.substitute(&|s| by(&values, s))).collect();
    let guard = guard.substitute(&|s| by(&values, s));
    b.move_(*x, &unknown, shape.clone(), map, guard, *fill).map(|v| Some(vec![v]))
}

/// base[iota(e)] = source is base[e] = source
fn scatter_by_iota(b: &mut Builder, node: &Node, _: &[Info]) -> Rewrite {
    let (Op::Scatter { map, combine }, [base, source, indices @ ..]) = (&node.op, node.operands.as_slice()) else {
        return Ok(None);
    };
    let Some((unknown, values)) = known_indices(b, indices) else { return Ok(None) };
    let map = map.iter().map(|e| e.substitute(&|s| by(&values, s))).collect();
    b.scatter(*base, *source, &unknown, map, *combine).map(|v| Some(vec![v]))
}

/// Whether a map reads no index.
fn direct(map: &[Expr]) -> bool {
    !map.iter().any(|e| e.mentions(|s| matches!(s, Symbol::Value(_))))
}

/// iota(e)[f] = iota(e after f)
fn move_of_iota(b: &mut Builder, node: &Node, infos: &[Info]) -> Rewrite {
    let (Op::Move { map, guard, .. }, [x], [(_, shape)]) = (&node.op, node.operands.as_slice(), infos) else {
        return Ok(None);
    };
    let Some(Op::Iota(expr)) = b.definition(*x).map(|n| n.op.clone()) else { return Ok(None) };
    if guard.as_bool() != Some(true) || !direct(map) {
        return Ok(None);
    }
    let at = |symbol| match symbol {
        Symbol::Loop(i) => map.get(i as usize).cloned(),
        _ => None,
    };
    let expr = expr.substitute(&at).simplify(&b.ranges().with_loops(shape));
    Ok(Some(vec![b.iota(shape.clone(), expr)]))
}

/// full(c)[f] = full(c), also with a guard that fills with c; x[f] guard false fill c = full(c)
fn move_of_full(b: &mut Builder, node: &Node, infos: &[Info]) -> Rewrite {
    let (Op::Move { guard, fill, .. }, [x, ..], [(dtype, shape)]) = (&node.op, node.operands.as_slice(), infos) else {
        return Ok(None);
    };
    let guard = guard.simplify(&b.ranges().with_loops(shape));
    let c = b.constant_scalar(*x);
    let same = |c: douse_core::Scalar| {
        let (c, fill) = (c.to_f64(), fill.to_f64());
        c == fill && c.is_sign_negative() == fill.is_sign_negative()
    };
    let filled = match guard.as_bool() {
        Some(false) => Some(*fill),
        Some(true) => c,
        None => c.filter(|c| same(*c)),
    };
    Ok(filled.map(|c| vec![b.full(*dtype, shape.clone(), c)]))
}

/// x[f][g] = x[f after g], x[i0, i1, ...] = x, where a rewrite before made this the case
fn move_again(b: &mut Builder, node: &Node, infos: &[Info]) -> Rewrite {
    let (Op::Move { map, guard, fill }, [x, indices @ ..], [(_, shape)]) = (&node.op, node.operands.as_slice(), infos)
    else {
        return Ok(None);
    };
    let ranges = b.ranges().with_loops(shape);
    let simple = guard.simplify(&ranges);
    let changed = simple != *guard || map.iter().any(|e| e.simplify(&ranges) != *e);
    let identity = simple.as_bool() == Some(true)
        && b.shape(*x) == shape.as_slice()
        && map.iter().enumerate().all(|(d, e)| e.as_loop() == Some(d) || shape[d].is_int(1) && e.is_int(0));
    let composes = match b.definition(*x) {
        Some(Node { op: Op::Move { guard: inner, fill: other, .. }, operands, .. }) => {
            let always = [&simple, inner].iter().any(|g| g.as_bool() == Some(true));
            operands.len() == 1 && (always || other == fill)
        }
        _ => false,
    };
    if !(changed || identity || composes) {
        return Ok(None);
    }
    b.move_(*x, indices, shape.clone(), map.clone(), simple, *fill).map(|v| Some(vec![v]))
}

/// check(iota(e)) = iota(e) where 0 <= e < size; with wrap, also check(iota(e)) = iota(e + size) where -size <= e < 0
fn check_known(b: &mut Builder, node: &Node, infos: &[Info]) -> Rewrite {
    let (Op::Check { size, wrap, .. }, [x], [(_, shape)]) = (&node.op, node.operands.as_slice(), infos) else {
        return Ok(None);
    };
    let Some(expr) = as_expr(b, *x) else { return Ok(None) };
    let ranges = b.ranges().with_loops(shape);
    if ranges.non_negative(&expr) && ranges.less(&expr, size) {
        return Ok(Some(vec![*x]));
    }
    let wrapped = &expr + size;
    if *wrap && ranges.less(&expr, &Expr::int(0)) && ranges.non_negative(&wrapped) {
        return Ok(Some(vec![b.iota(shape.clone(), wrapped)]));
    }
    Ok(None)
}
