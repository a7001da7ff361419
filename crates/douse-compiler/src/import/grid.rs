//! Tensors that other tensors span: grids, broadcasts, powers.

use douse_core::pointwise::Combine;
use douse_core::sym::Expr;
use douse_core::{DType, Error, Result, Scalar};

use super::args::{Args, Val};
use super::importer::{Importer, Row};
use super::tensor::Tensor;
use super::view::reshaped;

pub const ROWS: &[Row] = &[
    ("aten.meshgrid.default", meshgrid),
    ("aten.meshgrid.indexing", meshgrid),
    ("aten.broadcast_tensors.default", broadcast_tensors),
    ("aten.vander.default", vander),
    ("aten.linalg_vander.default", vander),
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

/// The powers 0 to N - 1 of each element; those of `vander` fall unless they are to rise.
fn vander(imp: &mut Importer, a: &Args) -> Result<Val> {
    let x = imp.value(a, "x")?;
    let x = if imp.b.dtype(x).is_float() { x } else { imp.b.cast(x, DType::I64) };
    let rank = imp.b.rank(x);
    let Some(last) = imp.b.shape(x).last().cloned() else {
        return Err(Error::invalid_program("vander of a 0-d tensor"));
    };
    let count = a.opt_expr("N")?.unwrap_or(last);
    let column = imp.b.unsqueeze(x, rank)?;
    let mut shape = imp.b.shape(column).to_vec();
    shape[rank] = Expr::int(1);
    let dtype = imp.b.dtype(x);
    let ones = imp.b.full(dtype, shape.clone(), Scalar::Int(1));
    let powers = if count.is_int(0) {
        shape[rank] = count;
        imp.b.full(dtype, shape, Scalar::Int(1))
    } else if count.is_int(1) {
        ones
    } else {
        shape[rank] = &count - 1;
        let repeated = imp.b.expand(column, shape)?;
        let products = imp.b.scan(Combine::Prod, repeated, rank)?;
        imp.b.concat(&[ones, products], rank)?
    };
    let falls = a.target.starts_with("aten.vander") && !a.bool_or("increasing", false)?;
    Ok(if falls { imp.b.flip(powers, &[rank])? } else { powers }.into())
}
