//! Tensors that other tensors span: grids, broadcasts, powers.

use douse_core::Result;
use douse_core::sym::Expr;

use super::args::{Args, Val};
use super::importer::{Importer, Row};
use super::tensor::Tensor;
use super::view::reshaped;

pub const ROWS: &[Row] = &[
    ("aten.meshgrid.default", meshgrid),
    ("aten.meshgrid.indexing", meshgrid),
    ("aten.broadcast_tensors.default", broadcast_tensors),
];

/// A view of a tensor under a larger shape.
fn expanded(imp: &mut Importer, t: Tensor, shape: &[Expr]) -> Result<Val> {
    let size = Val::List(shape.iter().cloned().map(Val::Int).collect());
    let values = vec![("self".to_string(), Val::Tensor(t)), ("size".to_string(), size)];
    imp.call(&Args { target: "aten.expand.default".to_string(), values })
}

/// Each vector along its own dimension of a grid that all of them span. With "xy" indexing the first two change places.
fn meshgrid(imp: &mut Importer, a: &Args) -> Result<Val> {
    let tensors = a.tensors("tensors")?;
    let mut sizes = Vec::new();
    for t in &tensors {
        sizes.push(Expr::product(&imp.shape_of(*t)?));
    }
    let swap = a.str_or("indexing", "ij")? == "xy" && sizes.len() >= 2;
    let place = |i: usize| if swap && i < 2 { 1 - i } else { i };
    let shape: Vec<Expr> = (0..sizes.len()).map(|i| sizes[place(i)].clone()).collect();
    let mut grids = Vec::new();
    for (i, t) in tensors.into_iter().enumerate() {
        let mut own = vec![Expr::int(1); sizes.len()];
        own[place(i)] = sizes[i].clone();
        let column = reshaped(imp, t, own)?;
        grids.push(expanded(imp, column, &shape)?);
    }
    Ok(Val::List(grids))
}

fn broadcast_tensors(imp: &mut Importer, a: &Args) -> Result<Val> {
    let tensors = a.tensors("tensors")?;
    let mut shape = Vec::new();
    for t in &tensors {
        let own = imp.shape_of(*t)?;
        shape = imp.b.broadcast_shapes(&shape, &own)?;
    }
    Ok(Val::List(tensors.into_iter().map(|t| expanded(imp, t, &shape)).collect::<Result<_>>()?))
}
