//! Conversions: a tensor's elements in another dtype, or seen as one; the parts of complex numbers.

use douse_core::sym::Expr;
use douse_core::{DType, Result, Scalar};
use douse_ir::coordinates;
use douse_pt2::MemoryFormat;

use super::args::{Args, Val};
use super::importer::{Importer, Row};
use super::tensor::{Step, Tensor};
use super::view::{alias, clone, format_strides, strides};

pub const ROWS: &[Row] = &[
    ("aten.view.dtype", view_dtype),
    ("aten.view_as_real.default", view_as_real),
    ("aten.view_as_complex.default", view_as_complex),
    ("aten.real.default", real),
    ("aten.imag.default", imag),
    ("aten.resolve_conj.default", resolve_conj),
    ("prims.convert_element_type.default", |i, a| cast_argument(i, a, "a")),
    ("quantized_decomposed.convert_element_type.no_fuse", |i, a| cast_argument(i, a, "input")),
    ("aten.to.dtype", to),
    ("aten.to.dtype_layout", to),
    ("aten.to.device", to),
    ("aten.to.other", to),
    ("aten._to_copy.default", to),
    ("aten.type_as.default", to),
    ("aten.chalf.default", |i, a| cast_to(i, a, DType::C32)),
];

/// A copy of a conjugate view; of others, the tensor itself.
fn resolve_conj(imp: &mut Importer, a: &Args) -> Result<Val> {
    let t = a.tensor("self")?;
    if imp.is_conjugate(t) { clone(imp, a) } else { alias(imp, a) }
}

fn view_dtype(imp: &mut Importer, a: &Args) -> Result<Val> {
    let t = a.tensor("self")?;
    let dtype = a.dtype("dtype")?.ok_or_else(|| a.wrong("dtype", "given"))?;
    let (from, to) = (imp.dtype_of(t).real(), dtype.real());
    let mut view = t;
    if imp.is_complex(t) {
        // The parts, side by side.
        let mut shape = imp.shape_of(t)?;
        let last = shape.pop().ok_or_else(|| a.wrong("self", "a tensor with a dimension"))?;
        shape.push(&last * 2);
        view = imp.view_as(view, Some(Step::Reshape { shape }), from)?;
    }
    let step = if from.size() == to.size() { Step::Bitcast { dtype: to } } else { Step::Repack { dtype: to } };
    view = imp.view_as(view, Some(step), to)?;
    if dtype.is_complex() {
        let mut shape = imp.shape_of(view)?;
        let last = shape.pop().ok_or_else(|| a.wrong("self", "a tensor with a dimension"))?;
        shape.extend([last.floor_div(&Expr::int(2)), Expr::int(2)]);
        view = imp.view_as(view, Some(Step::Reshape { shape }), dtype)?;
    }
    Ok(Val::Tensor(view))
}

fn view_as_real(imp: &mut Importer, a: &Args) -> Result<Val> {
    let t = a.tensor("self")?;
    let dtype = imp.dtype_of(t).real();
    Ok(Val::Tensor(imp.view_as(t, None, dtype)?))
}

fn view_as_complex(imp: &mut Importer, a: &Args) -> Result<Val> {
    let t = a.tensor("self")?;
    let dtype = imp.dtype_of(t).complex().ok_or_else(|| a.wrong("self", "a float tensor"))?;
    Ok(Val::Tensor(imp.view_as(t, None, dtype)?))
}

/// One part of a complex tensor, as a view.
fn part(imp: &mut Importer, t: Tensor, index: i64) -> Result<Tensor> {
    let shape = imp.shape_of(t)?;
    let mut map = coordinates(shape.len());
    map.push(Expr::int(index));
    let dtype = imp.dtype_of(t).real();
    imp.view_as(t, Some(Step::Move { shape, map }), dtype)
}

fn real(imp: &mut Importer, a: &Args) -> Result<Val> {
    let t = a.tensor("self")?;
    if imp.is_complex(t) { part(imp, t, 0).map(Val::Tensor) } else { alias(imp, a) }
}

fn imag(imp: &mut Importer, a: &Args) -> Result<Val> {
    let t = a.tensor("self")?;
    part(imp, t, 1).map(Val::Tensor)
}

/// A tensor's value in another dtype, real or complex, as a new tensor.
pub fn converted(imp: &mut Importer, t: Tensor, dtype: DType) -> Result<Val> {
    let (value, own) = (imp.read(t)?, imp.dtype_of(t));
    match (own.is_complex(), dtype.is_complex()) {
        (false, false) => Ok(Val::Value(imp.b.cast(value, dtype))),
        (true, true) => Ok(Val::Complex(imp.b.cast(value, dtype.real()))),
        (true, false) => {
            let part = part(imp, t, 0)?;
            let value = imp.read(part)?;
            Ok(Val::Value(imp.b.cast(value, dtype)))
        }
        (false, true) => {
            let value = imp.b.cast(value, dtype.real());
            let rank = imp.b.rank(value);
            let re = imp.b.unsqueeze(value, rank)?;
            let im = imp.b.full_like(re, Scalar::Int(0));
            Ok(Val::Complex(imp.b.concat(&[re, im], rank)?))
        }
    }
}

fn cast_to(imp: &mut Importer, a: &Args, dtype: DType) -> Result<Val> {
    let t = a.tensor("self")?;
    if imp.dtype_of(t) == dtype { alias(imp, a) } else { converted(imp, t, dtype) }
}

/// A new tensor in the dtype that is named.
fn cast_argument(imp: &mut Importer, a: &Args, name: &str) -> Result<Val> {
    let dtype = a.dtype("dtype")?.ok_or_else(|| a.wrong("dtype", "given"))?;
    let t = a.tensor(name)?;
    converted(imp, t, dtype)
}

fn to(imp: &mut Importer, a: &Args) -> Result<Val> {
    let t = a.tensor("self")?;
    let dtype = match (a.dtype("dtype")?, a.opt_tensor("other")?) {
        (Some(dtype), _) => dtype,
        (None, Some(other)) => imp.dtype_of(other),
        (None, None) => imp.dtype_of(t),
    };
    let copy = a.bool_or("copy", false)? || a.target.contains("_to_copy");
    let shape = imp.shape_of(t)?;
    // A memory format that the tensor does not have makes a copy too; the values are the same.
    let reformats = match a.memory_format("memory_format") {
        None | Some(MemoryFormat::Preserve) => false,
        Some(format) => strides(imp, t)? != format_strides(&shape, format),
    };
    if imp.dtype_of(t) == dtype {
        return if copy || reformats { clone(imp, a) } else { alias(imp, a) };
    }
    converted(imp, t, dtype)
}
