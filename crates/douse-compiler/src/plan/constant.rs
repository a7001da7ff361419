//! The bytes of constants that do not lie in row-major order.

use std::collections::HashMap;

use douse_core::bytes::Bytes;
use douse_core::sym::Expr;
use douse_core::{Error, Result};
use douse_ir::{Module, Op};

use crate::fuse::layout::{Layouts, row_major};

/// The constants whose layout is another than row-major, by number.
pub(super) fn moved(module: &Module, layouts: &Layouts) -> Result<HashMap<u32, Bytes>> {
    let graph = &module.graph;
    let mut moved = HashMap::new();
    for node in &graph.nodes {
        let (Op::Constant(i), Some(value)) = (&node.op, node.results.first()) else { continue };
        let (shape, strides) = (graph.shape(*value), layouts.strides(graph, *value));
        if let (true, Some(constant)) = (strides != row_major(shape), module.constants.get(*i as usize)) {
            moved.insert(*i, in_layout(&constant.bytes, shape, &strides, graph.dtype(*value).size())?);
        }
    }
    Ok(moved)
}

/// A row-major tensor's bytes in the order of other dense strides; `size` is that of an element.
///
/// # Errors
/// `Internal` where the shape is not known or the bytes are not those of it.
fn in_layout(bytes: &Bytes, shape: &[Expr], strides: &[Expr], size: usize) -> Result<Bytes> {
    let numbers = |list: &[Expr]| -> Option<Vec<usize>> {
        list.iter().map(|e| e.as_int().and_then(|n| usize::try_from(n).ok())).collect()
    };
    let wrong = || Error::internal("a constant's layout does not fit it");
    let (shape, strides) = (numbers(shape).ok_or_else(wrong)?, numbers(strides).ok_or_else(wrong)?);
    let mut out = vec![0; bytes.len()];
    let mut at = vec![0; shape.len()];
    for element in bytes.chunks_exact(size) {
        let place: usize = at.iter().zip(&strides).map(|(i, s)| i * s).sum();
        out.get_mut(place * size..(place + 1) * size).ok_or_else(wrong)?.copy_from_slice(element);
        for (i, n) in at.iter_mut().zip(&shape).rev() {
            *i += 1;
            if *i < *n {
                break;
            }
            *i = 0;
        }
    }
    Ok(Bytes::from(out))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn elements_move_to_their_strides() {
        let sizes = |list: &[i64]| list.iter().map(|n| Expr::int(*n)).collect::<Vec<_>>();
        let bytes = Bytes::from((0u8..12).collect::<Vec<_>>());
        let moved = in_layout(&bytes, &sizes(&[1, 3, 2]), &sizes(&[6, 1, 3]), 2).unwrap();
        assert_eq!(&moved[..], [0, 1, 4, 5, 8, 9, 2, 3, 6, 7, 10, 11]);
        assert!(in_layout(&bytes, &sizes(&[1, 3, 2]), &sizes(&[6, 1, 30]), 2).is_err());
    }
}
