//! Writes at indices along a dimension, with and without combining, and writes into views.

use douse_core::pointwise::{Binary, Combine};
use douse_core::sym::Expr;
use douse_core::{Error, Result, Scalar};
use douse_ir::{Value, coordinates};

use super::args::{Args, Val};
use super::data::Data;
use super::importer::{Importer, Row};
use super::index::{checked, element, raised};
use super::tensor::{Step, Tensor};
use crate::fuse::layout::is_dense;

pub const ROWS: &[Row] = &[
    ("aten.scatter.src", scatter),
    ("aten.scatter.value", scatter),
    ("aten.scatter.reduce", scatter),
    ("aten.scatter.value_reduce", scatter),
    ("aten.scatter_add.default", scatter_add),
    ("aten.scatter_reduce.two", scatter_reduce),
    ("aten.index_add.default", index_add),
    ("aten.index_copy.default", index_copy),
    ("aten.index_fill.int_Scalar", index_fill),
    ("aten.index_fill.int_Tensor", index_fill),
    ("aten.index_reduce.default", index_reduce),
    ("aten.select_scatter.default", |i, a| into_view(i, a, "aten.select.int")),
    ("aten.slice_scatter.default", |i, a| into_view(i, a, "aten.slice.Tensor")),
    ("aten.diagonal_scatter.default", |i, a| into_view(i, a, "aten.diagonal.default")),
    ("aten.as_strided_scatter.default", |i, a| into_view(i, a, "aten.as_strided.default")),
];

/// Where the elements of a source go: the source, the indices of its shape, and the map into the base.
pub struct Targets {
    pub source: Data,
    pub indices: Vec<Value>,
    pub map: Vec<Expr>,
}

/// How elements that go to one place are combined.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Reduce {
    Sum,
    Prod,
    Mean,
    Max,
    Min,
}

impl Reduce {
    fn of(a: &Args) -> Result<Reduce> {
        match a.str("reduce")? {
            "sum" | "add" => Ok(Reduce::Sum),
            "prod" | "multiply" => Ok(Reduce::Prod),
            "mean" => Ok(Reduce::Mean),
            "amax" => Ok(Reduce::Max),
            "amin" => Ok(Reduce::Min),
            other => Err(a.unsupported(format!("the reduction {other}"))),
        }
    }
}

/// `base` with sources added: half and bfloat16 in float32, rounded once; bools by or.
pub fn added(imp: &mut Importer, base: &Data, source: &Data, indices: &[Value], map: Vec<Expr>) -> Result<Data> {
    if base.dtype.is_bool() {
        return base.scattered(imp, source, indices, map, Some(Combine::Or));
    }
    let wide = imp.compute_parts(base.dtype);
    let (from, to) = (source.cast(imp, wide)?, base.cast(imp, wide)?);
    to.scattered(imp, &from, indices, map, Some(Combine::Sum))?.cast(imp, base.dtype)
}

/// `base` with the targets' sources combined into it. Places that no index names keep their value; without `include_self` the others
/// lose it first.
pub fn reduced(
    imp: &mut Importer,
    a: &Args,
    base: &Data,
    t: &Targets,
    reduce: Reduce,
    include_self: bool,
) -> Result<Data> {
    let dtype = base.dtype;
    if dtype.is_complex() && !matches!(reduce, Reduce::Sum | Reduce::Mean) {
        return Err(a.unsupported("this reduction of complex numbers"));
    }
    if dtype.is_bool() && reduce == Reduce::Mean {
        return Err(a.unsupported("a mean of bools"));
    }
    let start = |imp: &mut Importer, scalar: i64| -> Result<Data> {
        if include_self {
            return Ok(base.clone());
        }
        let neutral = Data::full(imp, dtype, vec![], Scalar::Int(scalar))?;
        let source = neutral.expand(imp, t.source.shape.clone())?;
        base.scattered(imp, &source, &t.indices, t.map.clone(), None)
    };
    match reduce {
        Reduce::Sum => {
            let base = start(imp, 0)?;
            added(imp, &base, &t.source, &t.indices, t.map.clone())
        }
        Reduce::Prod => {
            let base = start(imp, 1)?;
            if dtype.is_bool() {
                return base.scattered(imp, &t.source, &t.indices, t.map.clone(), Some(Combine::And));
            }
            // Eager PyTorch multiplies half in float32 where each element has an index, in half where each slice has one.
            let wide = if a.target.contains("index_reduce") { dtype } else { imp.compute_dtype(dtype) };
            let (base, source) = (base.cast(imp, wide)?, t.source.cast(imp, wide)?);
            base.scattered(imp, &source, &t.indices, t.map.clone(), Some(Combine::Prod))?.cast(imp, dtype)
        }
        Reduce::Max | Reduce::Min => {
            // Without the base, any of the sources that go to a place will do as its first value.
            let base = match include_self {
                true => base.clone(),
                false => base.scattered(imp, &t.source, &t.indices, t.map.clone(), None)?,
            };
            let combine = match (reduce, dtype.is_bool()) {
                (Reduce::Max, false) => Combine::Max,
                (Reduce::Max, true) => Combine::Or,
                (_, false) => Combine::Min,
                (_, true) => Combine::And,
            };
            base.scattered(imp, &t.source, &t.indices, t.map.clone(), Some(combine))
        }
        Reduce::Mean => {
            let base = start(imp, 0)?;
            let sum = added(imp, &base, &t.source, &t.indices, t.map.clone())?;
            let count = counted(imp, &sum, t, include_self)?;
            divided(imp, &sum, &count)
        }
    }
}

/// How many elements went to each place, in the tensor's own dtype (so that int8 wraps), at least 1.
fn counted(imp: &mut Importer, base: &Data, t: &Targets, include_self: bool) -> Result<Data> {
    let dtype = base.dtype.real();
    let zero = Data::full(imp, dtype, base.shape.clone(), Scalar::Int(i64::from(include_self)))?;
    let one = Data::full(imp, dtype, t.source.shape.clone(), Scalar::Int(1))?;
    let count = added(imp, &zero, &one, &t.indices, t.map.clone())?;
    let none = imp.b.binary_scalar(Binary::Eq, count.value, Scalar::Int(0))?;
    let one = Data::full(imp, dtype, vec![], Scalar::Int(1))?;
    Data::select(imp, none, &one, &count)
}

fn divided(imp: &mut Importer, sum: &Data, count: &Data) -> Result<Data> {
    let op = if sum.dtype.is_int() { Binary::FloorDivide } else { Binary::Div };
    let mut count = count.value;
    if sum.is_complex() {
        count = imp.b.unsqueeze(count, sum.rank())?;
    }
    let value = imp.b.binary(op, sum.value, count)?;
    Ok(Data { value, dtype: sum.dtype, shape: sum.shape.clone() })
}

/// The targets of `index` along `dim`: source[i] goes to base[i] with coordinate `dim` replaced by index[i]. The source may be larger
/// than the index.
fn along(imp: &mut Importer, a: &Args, base: &Data, source: &Data, index: Value) -> Result<Targets> {
    let index = raised(imp, index)?;
    let dim = imp.dim(a, a.int("dim")?, base.rank())?;
    let shape = imp.b.shape(index).to_vec();
    if shape.len() != base.rank() {
        return Err(Error::invalid_program(format!("{}: index and input have different ranks", a.target)));
    }
    let index = checked(imp, a, index, &base.shape[dim], false)?;
    let map = if source.rank() == 0 { vec![] } else { coordinates(shape.len()) };
    let source = source.remap(imp, shape.clone(), map)?;
    let mut map = coordinates(shape.len());
    map[dim] = element(0);
    Ok(Targets { source, indices: vec![index], map })
}

/// Base, and targets, of the operators that take an index for each element of the source. An empty index of whatever rank changes nothing.
fn scatter_targets(imp: &mut Importer, a: &Args, own: &Data, base: &Data) -> Result<Option<Targets>> {
    let index = imp.value(a, "index")?;
    if imp.b.numel(index).is_int(0) {
        return Ok(None);
    }
    let source = match a.has("src") {
        true => imp.data(a, "src")?.cast(imp, own.dtype)?.raised(imp)?,
        false => imp.operand_data(a, "value", own.dtype)?,
    };
    along(imp, a, base, &source, index).map(Some)
}

fn scatter(imp: &mut Importer, a: &Args) -> Result<Val> {
    let own = imp.data(a, "self")?;
    let base = own.raised(imp)?;
    imp.require_fits(a, "value", own.dtype)?;
    let Some(t) = scatter_targets(imp, a, &own, &base)? else { return Ok(own.val()) };
    let out = match a.has("reduce") {
        true => reduced(imp, a, &base, &t, Reduce::of(a)?, true)?,
        false => base.scattered(imp, &t.source, &t.indices, t.map, None)?,
    };
    Ok(out.reshape(imp, own.shape)?.val())
}

fn scatter_add(imp: &mut Importer, a: &Args) -> Result<Val> {
    let own = imp.data(a, "self")?;
    let base = own.raised(imp)?;
    let Some(t) = scatter_targets(imp, a, &own, &base)? else { return Ok(own.val()) };
    Ok(added(imp, &base, &t.source, &t.indices, t.map)?.reshape(imp, own.shape)?.val())
}

fn scatter_reduce(imp: &mut Importer, a: &Args) -> Result<Val> {
    let own = imp.data(a, "self")?;
    let base = own.raised(imp)?;
    let Some(t) = scatter_targets(imp, a, &own, &base)? else { return Ok(own.val()) };
    let out = reduced(imp, a, &base, &t, Reduce::of(a)?, a.bool_or("include_self", true)?)?;
    Ok(out.reshape(imp, own.shape)?.val())
}

/// The targets of slices: slice i of the source along `dim` goes to slice index[i] of the base.
fn slices(imp: &mut Importer, a: &Args, base: &Data, source: &Data, wrap: bool) -> Result<Targets> {
    let index = imp.value(a, "index")?;
    let dim = imp.dim(a, a.int("dim")?, base.rank())?;
    let index = checked(imp, a, index, &base.shape[dim], wrap)?;
    let count = imp.b.numel(index);
    let index = imp.b.reshape(index, vec![count.clone()])?;
    let mut shape = base.shape.clone();
    shape[dim] = count;
    // A source without dimensions, and for one slice one without the dimension, are taken too.
    let source = match source.rank() {
        0 => source.expand(imp, shape.clone())?,
        r if r + 1 == base.rank() => source.unsqueeze(imp, dim)?.expand(imp, shape.clone())?,
        _ => source.expand(imp, shape.clone())?,
    };
    let index = imp.b.remap(index, shape, vec![Expr::loop_var(dim)])?;
    let mut map = coordinates(base.rank());
    map[dim] = element(0);
    Ok(Targets { source, indices: vec![index], map })
}

fn index_add(imp: &mut Importer, a: &Args) -> Result<Val> {
    let own = imp.data(a, "self")?;
    let base = own.raised(imp)?;
    let mut source = imp.data(a, "source")?.cast(imp, own.dtype)?;
    if a.has("alpha") {
        let alpha = imp.operand_data(a, "alpha", imp.compute_parts(own.dtype))?;
        if alpha.is_complex() && matches!(a.get("alpha"), Some(Val::ComplexScalar(..))) {
            return Err(a.unsupported("a complex alpha"));
        }
        let real = imp.operand(a, "alpha", alpha.dtype.real())?;
        let op = if own.dtype.is_bool() { Binary::And } else { Binary::Mul };
        let wide = source.cast(imp, alpha.dtype)?;
        let value = imp.b.binary(op, wide.value, real)?;
        source = Data { value, ..wide };
    }
    let t = slices(imp, a, &base, &source, false)?;
    let wide = base.cast(imp, t.source.dtype)?;
    Ok(added(imp, &wide, &t.source, &t.indices, t.map)?.cast(imp, own.dtype)?.reshape(imp, own.shape)?.val())
}

fn index_copy(imp: &mut Importer, a: &Args) -> Result<Val> {
    let own = imp.data(a, "self")?;
    let base = own.raised(imp)?;
    let source = imp.data(a, "source")?.cast(imp, own.dtype)?;
    let t = slices(imp, a, &base, &source, false)?;
    Ok(base.scattered(imp, &t.source, &t.indices, t.map, None)?.reshape(imp, own.shape)?.val())
}

/// Negative indices count from the end here, as in PyTorch.
fn index_fill(imp: &mut Importer, a: &Args) -> Result<Val> {
    let own = imp.data(a, "self")?;
    let base = own.raised(imp)?;
    imp.require_fits(a, "value", own.dtype)?;
    let value = imp.operand_data(a, "value", own.dtype)?.reshape(imp, vec![])?;
    let t = slices(imp, a, &base, &value, true)?;
    Ok(base.scattered(imp, &t.source, &t.indices, t.map, None)?.reshape(imp, own.shape)?.val())
}

fn index_reduce(imp: &mut Importer, a: &Args) -> Result<Val> {
    let own = imp.data(a, "self")?;
    let base = own.raised(imp)?;
    let source = imp.data(a, "source")?.cast(imp, own.dtype)?;
    let t = slices(imp, a, &base, &source, false)?;
    let reduce = Reduce::of(a)?;
    let out = reduced(imp, a, &base, &t, reduce, a.bool_or("include_self", true)?)?;
    Ok(out.reshape(imp, own.shape)?.val())
}

/// A tensor in memory of its own with these strides, which leave gaps: zeros that nothing but a view by strides reaches.
fn with_gaps(imp: &mut Importer, value: Value, strides: &[Expr]) -> Result<Tensor> {
    let (dtype, shape) = (imp.b.dtype(value), imp.b.shape(value).to_vec());
    let (mut room, mut place) = (Expr::int(1), Expr::int(0));
    for (d, (size, stride)) in shape.iter().zip(strides).enumerate() {
        room = &room + &(&(size - 1) * stride);
        place = &place + &(&Expr::loop_var(d) * stride);
    }
    let gaps = imp.b.full(dtype, vec![room.maximum(&Expr::int(0))], Scalar::Int(0));
    let memory = imp.b.scatter(gaps, value, &[], vec![place.clone()], None)?;
    let memory = imp.new_tensor(memory, dtype);
    imp.view(memory, Step::Move { shape, map: vec![place] })
}

/// A copy of `self` with `src` written into a view of it.
fn into_view(imp: &mut Importer, a: &Args, view: &str) -> Result<Val> {
    let t = a.tensor("self")?;
    let (value, dtype) = (imp.read(t)?, imp.dtype_of(t));
    let copy = match imp.strides_of(t) {
        Some(strides) if !dtype.is_complex() && !is_dense(imp.b.shape(value), &strides) => {
            with_gaps(imp, value, &strides)?
        }
        strides => {
            let copy = imp.new_tensor(value, dtype);
            strides.into_iter().for_each(|strides| imp.set_strides(copy, strides));
            copy
        }
    };
    let mut args = Args { target: view.to_string(), values: a.values.clone() };
    for (name, value) in &mut args.values {
        if name == "self" {
            *value = Val::Tensor(copy);
        }
    }
    let Val::Tensor(part) = imp.call(&args)? else { return Err(Error::internal("a view is not a tensor")) };
    let source = imp.data(a, "src")?.cast(imp, dtype)?;
    let shape = imp.shape_of(part)?;
    for (own, wanted) in source.shape.iter().zip(&shape) {
        imp.b.require_equal(own, wanted, "the sizes of a source and of the view it is written to");
    }
    let source = source.expand(imp, shape)?;
    imp.write(part, source.value)?;
    Ok(imp.data_of(copy)?.val())
}
