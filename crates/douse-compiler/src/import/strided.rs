//! Views by strides, which count in the memory of a tensor's storage rather than in its dimensions.

use douse_core::Result;
use douse_core::sym::{Expr, Symbol};

use super::args::{Args, Val};
use super::importer::{Importer, Row};
use super::tensor::{Step, Tensor, contiguous_strides};
use super::view::{mapped, require_within, reshaped};

pub const ROWS: &[Row] = &[("aten.as_strided.default", as_strided)];

/// `as_strided` looks at the storage's memory: the root is seen as one row in the order it lies in, then indexed. Without an offset, from
/// the tensor's own.
fn as_strided(imp: &mut Importer, a: &Args) -> Result<Val> {
    let t = a.tensor("self")?;
    let (size, stride) = (a.exprs("size")?, a.exprs("stride")?);
    let start = match a.opt_expr("storage_offset")? {
        Some(offset) => &offset - imp.storage_start(t),
        None => offset_in_root(imp, a, t)?,
    };
    let whole =
        imp.whole_storage(t).ok_or_else(|| a.unsupported("a tensor that is itself a view of unknown layout"))?;
    let total = Expr::product(&imp.shape_of(whole)?);
    if !size.iter().any(|n| n.is_int(0)) {
        let end = size.iter().zip(&stride).fold(&start + 1, |end, (n, s)| &end + &(&(n - 1) * s));
        require_within(imp, &start, &end, &total, "as_strided");
    }
    let row = reshaped(imp, whole, vec![total])?;
    let linear = stride.iter().enumerate().fold(start, |sum, (d, s)| &sum + &(&Expr::loop_var(d) * s));
    Ok(Val::Tensor(mapped(imp, row, size, vec![linear])?))
}

/// The place of a tensor's first element in its storage, as the program counts them.
pub fn storage_offset(imp: &mut Importer, a: &Args, t: Tensor) -> Result<Expr> {
    Ok(&offset_in_root(imp, a, t)? + imp.storage_start(t))
}

/// The place of a tensor's first element in the memory of its storage's root.
fn offset_in_root(imp: &mut Importer, a: &Args, t: Tensor) -> Result<Expr> {
    let info = imp.info(t).clone();
    let root = imp.storages[info.storage].root;
    let mut shapes = vec![imp.b.shape(root).to_vec()];
    for step in &info.path {
        shapes.push(match step {
            Step::Move { shape, .. } | Step::Reshape { shape } => shape.clone(),
            Step::Bitcast { .. } | Step::Conjugate => shapes[shapes.len() - 1].clone(),
            Step::Repack { .. } => return Err(a.unsupported("the place of a view as a dtype of another size")),
        });
    }
    // The first element's coordinates, from the tensor up to the root.
    let mut at = vec![Expr::int(0); shapes[shapes.len() - 1].len()];
    for (step, parent) in info.path.iter().zip(&shapes).rev() {
        at = match step {
            Step::Move { map, .. } => map.iter().map(|e| e.substitute(&|s| coordinate(&at, s))).collect(),
            Step::Reshape { shape } => unravelled(ravelled(&at, shape), parent),
            Step::Bitcast { .. } | Step::Conjugate | Step::Repack { .. } => at,
        };
    }
    if at.iter().all(|e| e.is_int(0)) {
        return Ok(Expr::int(0));
    }
    if imp.is_complex(t) {
        return Err(a.unsupported("the storage offset of a complex tensor"));
    }
    let whole = imp.tensors.iter().find(|other| other.storage == info.storage && other.path.is_empty());
    let strides = whole.and_then(|w| w.strides.clone());
    let strides = strides.unwrap_or_else(|| contiguous_strides(imp.b.shape(root)));
    Ok(at.iter().zip(&strides).fold(Expr::int(0), |sum, (e, stride)| &sum + &(e * stride)))
}

fn coordinate(at: &[Expr], symbol: Symbol) -> Option<Expr> {
    match symbol {
        Symbol::Loop(i) => at.get(i as usize).cloned(),
        _ => None,
    }
}

/// The number of an element in row-major order.
fn ravelled(at: &[Expr], shape: &[Expr]) -> Expr {
    at.iter().zip(shape).fold(Expr::int(0), |sum, (i, n)| &(&sum * n) + i)
}

/// The coordinates of the element of that number.
fn unravelled(number: Expr, shape: &[Expr]) -> Vec<Expr> {
    let (mut rest, mut at) = (number, vec![Expr::int(0); shape.len()]);
    for (at, size) in at.iter_mut().zip(shape).rev() {
        (*at, rest) = (rest.modulo(size), rest.floor_div(size));
    }
    at
}
