//! Reductions and scans over what has one element, or one number everywhere.

use douse_core::Scalar;
use douse_core::pointwise::Combine;
use douse_core::{DType, Result};
use douse_ir::{Builder, Node, Op, Value};

use super::{Rewrite, Rule};
use crate::passes::rebuild::Info;

pub(super) const REDUCE: &[Rule] = &[reduce_ones, reduce_full];
pub(super) const ARG_REDUCE: &[Rule] = &[arg_reduce_one];
pub(super) const SCAN: &[Rule] = &[scan_one];

fn split(b: &Builder, x: Value, dims: &[usize]) -> (Vec<usize>, Vec<usize>) {
    dims.iter().copied().partition(|d| b.shape(x).get(*d).is_some_and(|s| s.is_int(1)))
}

/// `x` without these dimensions, which have size 1.
fn squeeze(b: &mut Builder, x: Value, dims: &[usize]) -> Result<Value> {
    dims.iter().rev().try_fold(x, |x, d| b.squeeze(x, *d))
}

/// reduce(x over dims of size 1 and others) = reduce(x without the first over the others)
fn reduce_ones(b: &mut Builder, node: &Node, _: &[Info]) -> Rewrite {
    let (Op::Reduce { op, dims }, [x]) = (&node.op, node.operands.as_slice()) else { return Ok(None) };
    let (ones, others) = split(b, *x, dims);
    if ones.is_empty() {
        return Ok(None);
    }
    let squeezed = squeeze(b, *x, &ones)?;
    let moved: Vec<usize> = others.iter().map(|d| d - ones.iter().filter(|one| *one < d).count()).collect();
    b.reduce(*op, squeezed, &moved).map(|v| Some(vec![v]))
}

/// max(full(c)) = full(c), and so for min, all and any, of one element or more
fn reduce_full(b: &mut Builder, node: &Node, infos: &[Info]) -> Rewrite {
    let (Op::Reduce { op: Combine::Max | Combine::Min | Combine::And | Combine::Or, dims }, [x], [(dtype, shape)]) =
        (&node.op, node.operands.as_slice(), infos)
    else {
        return Ok(None);
    };
    let some = dims.iter().all(|d| b.shape(*x).get(*d).is_some_and(|s| b.ranges().min(s).is_some_and(|m| m >= 1)));
    match b.constant_scalar(*x) {
        Some(c) if some => Ok(Some(vec![b.full(*dtype, shape.clone(), c)])),
        _ => Ok(None),
    }
}

/// argmax(x over dims of size 1) = (x without them, 0)
fn arg_reduce_one(b: &mut Builder, node: &Node, infos: &[Info]) -> Rewrite {
    let (Op::ArgReduce { dims, .. }, [x], [(_, shape), _]) = (&node.op, node.operands.as_slice(), infos) else {
        return Ok(None);
    };
    if !split(b, *x, dims).1.is_empty() {
        return Ok(None);
    }
    let value = squeeze(b, *x, dims)?;
    let position = b.full(DType::I64, shape.clone(), Scalar::Int(0));
    Ok(Some(vec![value, position]))
}

/// cumsum(x along a dimension of size 1) = x
fn scan_one(b: &mut Builder, node: &Node, _: &[Info]) -> Rewrite {
    let (Op::Scan { dim, .. }, [x]) = (&node.op, node.operands.as_slice()) else { return Ok(None) };
    Ok(b.shape(*x).get(*dim).is_some_and(|s| s.is_int(1)).then(|| vec![*x]))
}
