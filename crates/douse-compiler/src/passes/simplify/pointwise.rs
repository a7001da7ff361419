//! Pointwise operations.

use douse_core::DType;
use douse_core::Scalar;
use douse_core::pointwise::{Binary, Unary};
use douse_ir::{Builder, Node, Op, Value};

use super::{Rewrite, Rule, as_expr, operand_of};
use crate::passes::rebuild::Info;
use crate::passes::scalar;

pub(super) const UNARY: &[Rule] = &[fold_unary, double_unary, not_equal];
pub(super) const BINARY: &[Rule] = &[fold_binary, neutral, absorbing, itself, square, iota_binary];
pub(super) const SELECT: &[Rule] = &[select_known, select_same, select_bool, select_not];
pub(super) const CAST: &[Rule] = &[fold_cast, cast_of_cast];

fn keep(value: Value) -> Rewrite {
    Ok(Some(vec![value]))
}

/// A constant of the dtype and shape of the node's result.
fn full(builder: &mut Builder, dtype: DType, like: Value, scalar: Scalar) -> Rewrite {
    let shape = builder.shape(like).to_vec();
    keep(builder.full(dtype, shape, scalar))
}

/// op(full(c)) = full(op(c))
fn fold_unary(b: &mut Builder, node: &Node, _: &[Info]) -> Rewrite {
    let (Op::Unary(op), [x]) = (&node.op, node.operands.as_slice()) else { return Ok(None) };
    let dtype = b.dtype(*x);
    let Some(c) = b.constant_scalar(*x).and_then(|c| scalar::unary(*op, dtype, c)) else { return Ok(None) };
    full(b, op.result(dtype), *x, c)
}

/// not(not(x)) = x, -(-x) = x, ~(~x) = x
fn double_unary(b: &mut Builder, node: &Node, _: &[Info]) -> Rewrite {
    let (Op::Unary(op @ (Unary::Not | Unary::Neg | Unary::BitwiseNot)), [x]) = (&node.op, node.operands.as_slice())
    else {
        return Ok(None);
    };
    Ok(operand_of(b, *x, |inner| *inner == Op::Unary(*op)).map(|x| vec![x]))
}

/// not(a == b) = a != b, not(a != b) = a == b; the others differ for NaN
fn not_equal(b: &mut Builder, node: &Node, _: &[Info]) -> Rewrite {
    let (Op::Unary(Unary::Not), [x]) = (&node.op, node.operands.as_slice()) else { return Ok(None) };
    let other = match b.definition(*x) {
        Some(Node { op: Op::Binary(Binary::Eq), operands, .. }) => (Binary::Ne, operands.clone()),
        Some(Node { op: Op::Binary(Binary::Ne), operands, .. }) => (Binary::Eq, operands.clone()),
        _ => return Ok(None),
    };
    match other.1.as_slice() {
        [l, r] => b.binary(other.0, *l, *r).map(|v| Some(vec![v])),
        _ => Ok(None),
    }
}

/// op(full(c), full(d)) = full(op(c, d))
fn fold_binary(b: &mut Builder, node: &Node, _: &[Info]) -> Rewrite {
    let (Op::Binary(op), [x, y]) = (&node.op, node.operands.as_slice()) else { return Ok(None) };
    let dtype = b.dtype(*x);
    let (Some(c), Some(d)) = (b.constant_scalar(*x), b.constant_scalar(*y)) else { return Ok(None) };
    match scalar::binary(*op, dtype, c, d) {
        Some(c) => full(b, op.result(dtype), *x, c),
        None => Ok(None),
    }
}

/// Whether a constant is this number, of this sign.
fn is(c: Option<Scalar>, number: f64) -> bool {
    c.is_some_and(|c| c.to_f64() == number && c.to_f64().is_sign_negative() == number.is_sign_negative())
}

/// x*1 = x, x/1 = x, x^1 = x; x + 0 = x, x | 0 = x, ... for integers;
/// for floats x - 0 = x and x + -0 = x, but not x + 0, which makes 0 of -0
fn neutral(b: &mut Builder, node: &Node, _: &[Info]) -> Rewrite {
    let (Op::Binary(op), [x, y]) = (&node.op, node.operands.as_slice()) else { return Ok(None) };
    let (float, bool) = (b.dtype(*x).is_float(), b.dtype(*x).is_bool());
    let (c, d) = (b.constant_scalar(*x), b.constant_scalar(*y));
    let right = match op {
        Binary::Mul | Binary::Div | Binary::TruncDivide | Binary::Pow => is(d, 1.0),
        Binary::FloorDivide => !float && is(d, 1.0),
        Binary::Sub | Binary::ShiftLeft | Binary::ShiftRight => is(d, 0.0),
        Binary::Add => is(d, if float { -0.0 } else { 0.0 }),
        Binary::Or | Binary::Xor => is(d, 0.0),
        Binary::And => bool && is(d, 1.0),
        _ => false,
    };
    let left = match op {
        Binary::Mul => is(c, 1.0),
        Binary::Add => is(c, if float { -0.0 } else { 0.0 }),
        Binary::Or | Binary::Xor => is(c, 0.0),
        Binary::And => bool && is(c, 1.0),
        _ => false,
    };
    Ok(if right {
        Some(vec![*x])
    } else if left {
        Some(vec![*y])
    } else {
        None
    })
}

/// x*0 = 0, x & 0 = 0 for integers and bool; x | true = true
fn absorbing(b: &mut Builder, node: &Node, _: &[Info]) -> Rewrite {
    let (Op::Binary(op), [x, y]) = (&node.op, node.operands.as_slice()) else { return Ok(None) };
    let dtype = b.dtype(*x);
    for value in [*x, *y] {
        let c = b.constant_scalar(value);
        let absorbs = match op {
            Binary::Mul => dtype.is_int() && is(c, 0.0),
            Binary::And => is(c, 0.0),
            Binary::Or => dtype.is_bool() && is(c, 1.0),
            _ => false,
        };
        if absorbs {
            return keep(value);
        }
    }
    Ok(None)
}

/// min(x, x) = x & x = x | x = x; for integers and bool x == x, x <= x, x - x = 0, ...
fn itself(b: &mut Builder, node: &Node, _: &[Info]) -> Rewrite {
    let (Op::Binary(op), [x, y]) = (&node.op, node.operands.as_slice()) else { return Ok(None) };
    if x != y {
        return Ok(None);
    }
    let dtype = b.dtype(*x);
    match op {
        Binary::Minimum | Binary::Maximum | Binary::Fmin | Binary::Fmax | Binary::And | Binary::Or => keep(*x),
        // NaN differs from itself, and NaN - NaN is NaN.
        _ if dtype.is_float() => Ok(None),
        Binary::Eq | Binary::Le | Binary::Ge => full(b, DType::Bool, *x, Scalar::Bool(true)),
        Binary::Ne | Binary::Lt | Binary::Gt => full(b, DType::Bool, *x, Scalar::Bool(false)),
        Binary::Sub | Binary::Xor => full(b, dtype, *x, Scalar::Int(0)),
        _ => Ok(None),
    }
}

/// x^2 = x*x
fn square(b: &mut Builder, node: &Node, _: &[Info]) -> Rewrite {
    let (Op::Binary(Binary::Pow), [x, y]) = (&node.op, node.operands.as_slice()) else { return Ok(None) };
    if is(b.constant_scalar(*y), 2.0) {
        return b.binary(Binary::Mul, *x, *x).map(|v| Some(vec![v]));
    }
    Ok(None)
}

/// iota(e) + iota(f) = iota(e + f), and so for - and *
fn iota_binary(b: &mut Builder, node: &Node, _: &[Info]) -> Rewrite {
    let (Op::Binary(op), [x, y]) = (&node.op, node.operands.as_slice()) else { return Ok(None) };
    let (Some(e), Some(f)) = (as_expr(b, *x), as_expr(b, *y)) else { return Ok(None) };
    let expr = match op {
        Binary::Add => e + f,
        Binary::Sub => e - f,
        // A product of sums has many terms.
        Binary::Mul if e.as_int().is_some() || f.as_int().is_some() => e * f,
        _ => return Ok(None),
    };
    let shape = b.shape(*x).to_vec();
    keep(b.iota(shape, expr))
}

/// select(true, a, b) = a, select(false, a, b) = b
fn select_known(b: &mut Builder, node: &Node, _: &[Info]) -> Rewrite {
    let [c, x, y] = node.operands.as_slice() else { return Ok(None) };
    Ok(b.constant_scalar(*c).map(|c| vec![if c.to_bool() { *x } else { *y }]))
}

/// select(c, x, x) = x
fn select_same(_: &mut Builder, node: &Node, _: &[Info]) -> Rewrite {
    Ok(match node.operands.as_slice() {
        [_, x, y] if x == y => Some(vec![*x]),
        _ => None,
    })
}

/// select(c, true, false) = c, select(c, false, true) = not(c)
fn select_bool(b: &mut Builder, node: &Node, _: &[Info]) -> Rewrite {
    let [c, x, y] = node.operands.as_slice() else { return Ok(None) };
    match (b.constant_scalar(*x), b.constant_scalar(*y)) {
        (Some(Scalar::Bool(true)), Some(Scalar::Bool(false))) => keep(*c),
        (Some(Scalar::Bool(false)), Some(Scalar::Bool(true))) => b.unary(Unary::Not, *c).map(|v| Some(vec![v])),
        _ => Ok(None),
    }
}

/// select(not(c), a, b) = select(c, b, a)
fn select_not(b: &mut Builder, node: &Node, _: &[Info]) -> Rewrite {
    let [c, x, y] = node.operands.as_slice() else { return Ok(None) };
    match operand_of(b, *c, |op| *op == Op::Unary(Unary::Not)) {
        Some(c) => b.select(c, *y, *x).map(|v| Some(vec![v])),
        None => Ok(None),
    }
}

/// cast(full(c)) = full(cast(c))
fn fold_cast(b: &mut Builder, node: &Node, infos: &[Info]) -> Rewrite {
    let ([x], [(to, _)]) = (node.operands.as_slice(), infos) else { return Ok(None) };
    let from = b.dtype(*x);
    match b.constant_scalar(*x).and_then(|c| scalar::cast(from, *to, c)) {
        Some(c) => full(b, *to, *x, c),
        None => Ok(None),
    }
}

/// cast(cast(x, a), b) = cast(x, b) where a holds every value of x
fn cast_of_cast(b: &mut Builder, node: &Node, infos: &[Info]) -> Rewrite {
    let ([x], [(to, _)]) = (node.operands.as_slice(), infos) else { return Ok(None) };
    let Some(inner) = operand_of(b, *x, |op| *op == Op::Cast) else { return Ok(None) };
    let (from, middle) = (b.dtype(inner), b.dtype(*x));
    // Negative floats have no defined value in unsigned dtypes, negative integers have.
    let turns = from.is_int() && middle.is_float() && to.is_int() && from != *to;
    if scalar::lossless(from, middle) && !turns {
        return keep(b.cast(inner, *to));
    }
    Ok(None)
}
