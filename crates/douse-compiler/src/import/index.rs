//! Indexing by tensors: reads and writes at integer indices and at the true places of masks.

use douse_core::pointwise::{Binary, Combine};
use douse_core::sym::{Compare, Cond, Expr, Symbol};
use douse_core::{DType, Error, Result, Scalar};
use douse_ir::{Value, coordinates};

use super::args::{Args, Val};
use super::data::Data;
use super::importer::{Importer, Row};
use super::scatter::added;

pub const ROWS: &[Row] = &[
    ("aten.index.Tensor", index),
    ("aten._unsafe_index.Tensor", index),
    ("aten._unsafe_masked_index.default", unsafe_masked_index),
    ("aten.index_put.default", index_put),
    ("aten._unsafe_index_put.default", index_put),
    ("aten._index_put_impl.default", index_put),
    ("aten._unsafe_masked_index_put_accumulate.default", unsafe_masked_index_put_accumulate),
    ("aten.index_select.default", index_select),
    ("aten.gather.default", gather),
    ("aten.take.default", take),
    ("aten.put.default", put),
    ("aten.take_along_dim.default", take_along_dim),
    ("aten.masked_select.default", masked_select),
    ("aten.masked_scatter.default", masked_scatter),
];

/// What stands for the element of index `n` in a map.
pub fn element(n: usize) -> Expr {
    Expr::symbol(Symbol::Value(n as u32))
}

/// An index of any integer dtype as int64, checked when run to lie in [0, size); negative ones count from the end if `wrap`.
pub fn checked(imp: &mut Importer, a: &Args, index: Value, size: &Expr, wrap: bool) -> Result<Value> {
    if imp.b.dtype(index).is_float() {
        return Err(Error::invalid_program(format!("{}: an index of {}", a.target, imp.b.dtype(index))));
    }
    let index = imp.b.cast(index, DType::I64);
    // The call that fails says which index, and of what size the dimension is: only the place is kept.
    let name = a.target.split('.').nth(1).unwrap_or(&a.target);
    let place = if imp.place.is_empty() { name.to_owned() } else { format!("{name} at {}", imp.place) };
    let message = imp.b.message(place);
    imp.b.check(index, size.clone(), wrap, message)
}

/// An index kept within its dimension instead of being checked, as the `_unsafe_masked` operators have it.
fn clamped(imp: &mut Importer, index: Value, size: &Expr) -> Result<Value> {
    let index = imp.b.cast(index, DType::I64);
    let (n, last) = (imp.b.size_value(size.clone()), imp.b.size_value(size - 1));
    let first = imp.b.size_value(-size);
    let low = imp.b.binary(Binary::Maximum, index, first)?;
    let index = imp.b.binary(Binary::Minimum, low, last)?;
    let negative = imp.b.binary_scalar(Binary::Lt, index, Scalar::Int(0))?;
    let wrapped = imp.b.binary(Binary::Add, index, n)?;
    imp.b.select(negative, wrapped, index)
}

impl Importer {
    /// Coordinates of a mask's true elements, int64 [count, rank], and their count. One mask is looked through once.
    pub fn nonzero(&mut self, mask: Value) -> Result<(Value, Expr)> {
        if let Some((coordinates, count)) = self.masks.get(&mask) {
            if self.in_scope(*coordinates) {
                return Ok((*coordinates, count.clone()));
            }
        }
        let name = format!("count_{}", self.b.module.symbols.len());
        let found = self.b.nonzero(mask, &name)?;
        self.masks.insert(mask, found.clone());
        Ok(found)
    }
}

/// Where the elements that indices pick stand.
struct Picks {
    /// The indices, all of the result's shape.
    indices: Vec<Value>,
    /// The result's shape.
    shape: Vec<Expr>,
    /// From the result to the indexed tensor; `v0, v1, ...` are the indices.
    map: Vec<Expr>,
}

/// How indices outside their dimension are treated.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outside {
    Checked,
    Clamped,
}

/// The tensors among indices; a mask stands for the coordinates of its true elements. Indexed dimensions that are next to each other
/// are replaced in place by the indices' common shape, others go first.
fn picks(imp: &mut Importer, a: &Args, shape: &[Expr], outside: Outside) -> Result<Picks> {
    let mut indexed: Vec<(usize, Value)> = Vec::new();
    let mut dim = 0;
    let too_many = || Error::invalid_program(format!("{}: too many indices", a.target));
    for index in a.opt_tensors("indices")? {
        let Some(t) = index else {
            dim += 1;
            continue;
        };
        let value = imp.real(a, t)?;
        let dtype = imp.b.dtype(value);
        if !dtype.is_bool() && dtype != DType::U8 {
            let size = shape.get(dim).ok_or_else(too_many)?;
            let index = match outside {
                Outside::Checked => checked(imp, a, value, size, true)?,
                Outside::Clamped => clamped(imp, value, size)?,
            };
            indexed.push((dim, index));
            dim += 1;
            continue;
        }
        let mask = imp.b.cast(value, DType::Bool);
        let rank = imp.b.rank(mask);
        if rank == 0 {
            return Err(a.unsupported("a mask without dimensions"));
        }
        same_sizes(imp, mask, shape.get(dim..dim + rank).ok_or_else(too_many)?);
        let (found, _) = imp.nonzero(mask)?;
        for d in 0..rank {
            let column = imp.b.select_index(found, 1, &Expr::int(d as i64))?;
            indexed.push((dim, column));
            dim += 1;
        }
    }
    if dim > shape.len() {
        return Err(too_many());
    }
    let values: Vec<Value> = indexed.iter().map(|(_, v)| *v).collect();
    let values = imp.b.broadcast_all(&values)?;
    let common = values.first().map_or(vec![], |v| imp.b.shape(*v).to_vec());
    let adjacent = indexed.windows(2).all(|w| w[1].0 == w[0].0 + 1);
    let at = if adjacent { indexed.first().map_or(0, |(d, _)| *d) } else { 0 };
    let place = |d: usize| indexed.iter().position(|(i, _)| *i == d);
    let mut kept: Vec<Expr> = (0..shape.len()).filter(|d| place(*d).is_none()).map(|d| shape[d].clone()).collect();
    kept.splice(at..at, common.iter().cloned());
    let mut next = 0;
    let mut map = Vec::new();
    for d in 0..shape.len() {
        if let Some(n) = place(d) {
            map.push(element(n));
            continue;
        }
        map.push(Expr::loop_var(if next < at { next } else { next + common.len() }));
        next += 1;
    }
    let spread: Vec<Expr> = (0..common.len()).map(|i| Expr::loop_var(at + i)).collect();
    let indices = values.iter().map(|v| imp.b.remap(*v, kept.clone(), spread.clone())).collect::<Result<_>>()?;
    Ok(Picks { indices, shape: kept, map })
}

/// A mask must have the sizes of the dimensions that it stands for.
fn same_sizes(imp: &mut Importer, mask: Value, sizes: &[Expr]) {
    let own = imp.b.shape(mask).to_vec();
    for (own, size) in own.iter().zip(sizes) {
        imp.b.require_equal(own, size, "the sizes of a mask and of what it indexes");
    }
}

fn index(imp: &mut Importer, a: &Args) -> Result<Val> {
    let data = imp.data(a, "self")?;
    let p = picks(imp, a, &data.shape, Outside::Checked)?;
    Ok(data.moved(imp, &p.indices, p.shape, p.map, Cond::Bool(true), Scalar::Int(0))?.val())
}

/// `self[indices]` where `mask` holds, else `fill`.
fn unsafe_masked_index(imp: &mut Importer, a: &Args) -> Result<Val> {
    let data = imp.data(a, "self")?;
    let mask = imp.value(a, "mask")?;
    let mask = imp.b.cast(mask, DType::Bool);
    let p = picks(imp, a, &data.shape, Outside::Clamped)?;
    let fill = imp.operand_data(a, "fill", data.dtype)?;
    if data.numel().is_int(0) {
        return Ok(fill.expand(imp, p.shape)?.val());
    }
    // Nothing is read from a dimension that turns out to be empty.
    let inside = within(imp, &data, &p);
    let mut mask = mask;
    if inside.as_bool() != Some(true) {
        let yes = imp.b.full(DType::Bool, vec![], Scalar::Bool(true));
        let within = imp.b.move_(yes, &p.indices, p.shape.clone(), vec![], inside.clone(), Scalar::Bool(false))?;
        mask = imp.b.binary(Binary::And, mask, within)?;
    }
    let found = data.moved(imp, &p.indices, p.shape, p.map, inside, Scalar::Int(0))?;
    Ok(Data::select(imp, mask, &found, &fill)?.val())
}

/// The condition that indices lie within the dimensions that may be empty.
fn within(imp: &Importer, data: &Data, p: &Picks) -> Cond {
    let mut inside = Cond::Bool(true);
    for (size, at) in data.shape.iter().zip(&p.map) {
        if !imp.b.ranges().non_negative(&(size - 1)) && matches!(at.as_symbol(), Some(Symbol::Value(_))) {
            inside = inside.and(&Cond::compare(Compare::Ge, at, &Expr::int(0)));
        }
    }
    inside
}

fn unsafe_masked_index_put_accumulate(imp: &mut Importer, a: &Args) -> Result<Val> {
    let data = imp.data(a, "self")?;
    if data.numel().is_int(0) {
        return Ok(data.val());
    }
    let mask = imp.value(a, "mask")?;
    let mask = imp.b.cast(mask, DType::Bool);
    let p = picks(imp, a, &data.shape, Outside::Clamped)?;
    let values = imp.data(a, "values")?;
    let zero = Data::full(imp, values.dtype, vec![], Scalar::Int(0))?;
    let values = Data::select(imp, mask, &values, &zero)?.expand(imp, p.shape.clone())?;
    if within(imp, &data, &p).as_bool() == Some(true) {
        return Ok(added(imp, &data, &values, &p.indices, p.map)?.val());
    }
    // In a dimension that may be empty, the index is one too small: everything moves up by one place, which is cut off again.
    let one = |_: &Expr| (Expr::int(1), Expr::int(0));
    let pads: Vec<(Expr, Expr)> = data.shape.iter().map(one).collect();
    let wide = super::pad::constant(imp, &data, &pads, Scalar::Int(0))?;
    let map = p.map.iter().map(|e| e + 1).collect();
    let sum = added(imp, &wide, &values, &p.indices, map)?;
    let map = coordinates(data.rank()).iter().map(|e| e + 1).collect();
    Ok(sum.remap(imp, data.shape.clone(), map)?.val())
}

/// `self` with `self[indices]` set to `values`, or with them added. Of equal indices the last wins.
fn index_put(imp: &mut Importer, a: &Args) -> Result<Val> {
    let data = imp.data(a, "self")?;
    let values = imp.data(a, "values")?.cast(imp, data.dtype)?;
    if a.bool_or("accumulate", false)? {
        let p = picks(imp, a, &data.shape, Outside::Checked)?;
        let values = values.expand(imp, p.shape)?;
        return Ok(added(imp, &data, &values, &p.indices, p.map)?.val());
    }
    if let Some(selected) = put_by_mask(imp, a, &data, &values)? {
        return Ok(selected.val());
    }
    let p = picks(imp, a, &data.shape, Outside::Checked)?;
    let values = values.expand(imp, p.shape)?;
    Ok(data.scattered(imp, &values, &p.indices, p.map, None)?.val())
}

/// x[mask] = v, where v is the same for all places of the mask: select(mask, v, x), which needs no count of the places.
fn put_by_mask(imp: &mut Importer, a: &Args, data: &Data, values: &Data) -> Result<Option<Data>> {
    let indices = a.opt_tensors("indices")?;
    let mut given = indices.iter().enumerate().filter_map(|(d, t)| t.map(|t| (d, t)));
    let (Some((at, t)), None) = (given.next(), given.next()) else { return Ok(None) };
    let mask = imp.real(a, t)?;
    if !matches!(imp.b.dtype(mask), DType::Bool | DType::U8) || imp.b.rank(mask) == 0 {
        return Ok(None);
    }
    let mask = imp.b.cast(mask, DType::Bool);
    let rank = imp.b.rank(mask);
    if at + rank > data.rank() {
        return Err(Error::invalid_program(format!("{}: too many indices", a.target)));
    }
    // The picked elements have the dimensions [before, count, after].
    let Some(added) = (data.rank() - rank + 1).checked_sub(values.rank()) else { return Ok(None) };
    let mut own = vec![Expr::int(1); added];
    own.extend_from_slice(&values.shape);
    if !own[at].is_int(1) {
        return Ok(None);
    }
    same_sizes(imp, mask, &data.shape[at..at + rank]);
    own.splice(at..at + 1, vec![Expr::int(1); rank]);
    let values = values.reshape(imp, own)?.expand(imp, data.shape.clone())?;
    let map = (at..at + rank).map(Expr::loop_var).collect();
    let mask = imp.b.remap(mask, data.shape.clone(), map)?;
    Data::select(imp, mask, &values, data).map(Some)
}

/// Whole slices of a dimension.
fn index_select(imp: &mut Importer, a: &Args) -> Result<Val> {
    let data = imp.data(a, "self")?;
    let index = imp.value(a, "index")?;
    let wide = data.raised(imp)?;
    let dim = imp.dim(a, a.int("dim")?, data.rank())?;
    let index = checked(imp, a, index, &wide.shape[dim], false)?;
    let count = imp.b.numel(index);
    let index = imp.b.reshape(index, vec![count.clone()])?;
    let mut shape = wide.shape.clone();
    shape[dim] = count;
    let index = imp.b.remap(index, shape.clone(), vec![Expr::loop_var(dim)])?;
    let mut map = coordinates(wide.rank());
    map[dim] = element(0);
    let found = wide.moved(imp, &[index], shape, map, Cond::Bool(true), Scalar::Int(0))?;
    Ok(if data.rank() == 0 { found.reshape(imp, vec![])? } else { found }.val())
}

/// `data[..., index[i], ...]` along a dimension, for a checked index of the result's shape.
pub fn gathered(imp: &mut Importer, data: &Data, dim: usize, index: Value) -> Result<Data> {
    let shape = imp.b.shape(index).to_vec();
    let mut map = coordinates(shape.len());
    map[dim] = element(0);
    data.moved(imp, &[index], shape, map, Cond::Bool(true), Scalar::Int(0))
}

/// With one dimension where there is none.
pub fn raised(imp: &mut Importer, value: Value) -> Result<Value> {
    if imp.b.rank(value) == 0 { imp.b.reshape(value, vec![Expr::int(1)]) } else { Ok(value) }
}

fn gather(imp: &mut Importer, a: &Args) -> Result<Val> {
    let data = imp.data(a, "self")?;
    let own = imp.value(a, "index")?;
    let shape = imp.b.shape(own).to_vec();
    let (data, index) = (data.raised(imp)?, raised(imp, own)?);
    let dim = imp.dim(a, a.int("dim")?, data.rank())?;
    if imp.b.rank(index) != data.rank() {
        // Only an empty index may have another rank.
        let empty = Data::full(imp, data.dtype, shape.clone(), Scalar::Int(0))?;
        let message = "gather: index and input have different ranks";
        return if Expr::product(&shape).is_int(0) { Ok(empty.val()) } else { Err(Error::invalid_program(message)) };
    }
    let index = checked(imp, a, index, &data.shape[dim], false)?;
    Ok(gathered(imp, &data, dim, index)?.reshape(imp, shape)?.val())
}

/// Elements of the flattened tensor.
fn take(imp: &mut Importer, a: &Args) -> Result<Val> {
    let data = imp.data(a, "self")?.flat(imp)?;
    let index = imp.value(a, "index")?;
    let index = checked(imp, a, index, &data.shape[0], true)?;
    let shape = imp.b.shape(index).to_vec();
    Ok(data.moved(imp, &[index], shape, vec![element(0)], Cond::Bool(true), Scalar::Int(0))?.val())
}

/// Elements of the flattened tensor set, or added to.
fn put(imp: &mut Importer, a: &Args) -> Result<Val> {
    let data = imp.data(a, "self")?;
    let flat = data.flat(imp)?;
    let index = imp.value(a, "index")?;
    let index = checked(imp, a, index, &flat.shape[0], true)?;
    let shape = imp.b.shape(index).to_vec();
    let source = imp.data(a, "source")?.cast(imp, data.dtype)?.reshape(imp, shape)?;
    let map = vec![element(0)];
    let out = if a.bool_or("accumulate", false)? {
        added(imp, &flat, &source, &[index], map)?
    } else {
        flat.scattered(imp, &source, &[index], map, None)?
    };
    Ok(out.reshape(imp, data.shape)?.val())
}

/// A gather whose index and input are broadcast in the other dimensions.
fn take_along_dim(imp: &mut Importer, a: &Args) -> Result<Val> {
    let data = imp.data(a, "self")?;
    let index = imp.value(a, "indices")?;
    let Some(dim) = a.opt_int("dim")? else {
        let flat = data.flat(imp)?;
        let count = imp.b.numel(index);
        let index = imp.b.reshape(index, vec![count])?;
        let index = checked(imp, a, index, &flat.shape[0], true)?;
        return Ok(gathered(imp, &flat, 0, index)?.val());
    };
    let dim = imp.dim(a, dim, data.rank())?;
    let own = imp.b.shape(index).to_vec();
    if own.len() != data.rank() || own.is_empty() {
        return Err(Error::invalid_program("take_along_dim: index and input have different ranks"));
    }
    let index = checked(imp, a, index, &data.shape[dim], true)?;
    let (mut from, mut to) = (data.shape.clone(), own.clone());
    (from[dim], to[dim]) = (Expr::int(1), Expr::int(1));
    let mut common = imp.b.broadcast_shapes(&from, &to)?;
    common[dim] = data.shape[dim].clone();
    let data = data.expand(imp, common.clone())?;
    common[dim] = own[dim].clone();
    let index = imp.b.expand(index, common)?;
    Ok(gathered(imp, &data, dim, index)?.val())
}

fn masked_select(imp: &mut Importer, a: &Args) -> Result<Val> {
    let data = imp.data(a, "self")?;
    let mask = imp.value(a, "mask")?;
    let mask = imp.b.cast(mask, DType::Bool);
    let own = imp.b.shape(mask).to_vec();
    let shape = imp.b.broadcast_shapes(&data.shape, &own)?;
    let (data, mask) = (data.expand(imp, shape.clone())?, imp.b.expand(mask, shape.clone())?);
    let (data, mask) = (data.raised(imp)?, raised(imp, mask)?);
    let (found, count) = imp.nonzero(mask)?;
    let columns =
        (0..data.rank()).map(|d| imp.b.select_index(found, 1, &Expr::int(d as i64))).collect::<Result<Vec<_>>>()?;
    let map = (0..data.rank()).map(element).collect();
    Ok(data.moved(imp, &columns, vec![count], map, Cond::Bool(true), Scalar::Int(0))?.val())
}

/// The true places of a mask get the first elements of a source, in row-major order: each reads the source at the number of true places
/// before it.
fn masked_scatter(imp: &mut Importer, a: &Args) -> Result<Val> {
    let data = imp.data(a, "self")?;
    let mask = imp.value(a, "mask")?;
    let mask = imp.b.cast(mask, DType::Bool);
    let source = imp.data(a, "source")?.cast(imp, data.dtype)?.flat(imp)?;
    let own = imp.b.shape(mask).to_vec();
    let shape = imp.b.broadcast_shapes(&data.shape, &own)?;
    let (data, mask) = (data.expand(imp, shape.clone())?, imp.b.expand(mask, shape.clone())?);
    let total = data.numel();
    let flat = imp.b.reshape(mask, vec![total])?;
    let ones = imp.b.cast(flat, DType::I64);
    let before = imp.b.scan(Combine::Sum, ones, 0)?;
    let size = source.shape[0].clone();
    let count = imp.b.reduce(Combine::Sum, ones, &[0])?;
    let room = imp.b.size_value(size.clone());
    let fits = imp.b.binary(Binary::Le, count, room)?;
    let text = format!("masked_scatter: the source has fewer elements than the mask has true places ({})", imp.place);
    imp.b.assert(fits, text)?;
    let index = imp.b.binary_scalar(Binary::Sub, before, Scalar::Int(1))?;
    let zero = imp.b.full_like(index, Scalar::Int(0));
    let index = imp.b.select(flat, index, zero)?;
    let index = imp.b.reshape(index, shape.clone())?;
    // The assertion comes back only at the end of the call: until then nothing is read outside the source.
    let inside = Cond::compare(Compare::Lt, &element(0), &size);
    let taken = source.moved(imp, &[index], shape, vec![element(0)], inside, Scalar::Int(0))?;
    Ok(Data::select(imp, mask, &taken, &data)?.val())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::import::tensor::Tensor;
    use douse_ir::{Builder, Module, Op};

    fn importer() -> Importer {
        Importer::new(Builder::new(Module::default()))
    }

    fn input(imp: &mut Importer, number: u32, dtype: DType, sizes: &[i64]) -> Tensor {
        let value = imp.b.input(number, dtype, sizes.iter().map(|n| Expr::int(*n)).collect());
        imp.new_tensor(value, dtype)
    }

    fn call(imp: &mut Importer, target: &str, values: &[(&str, Val)]) -> Value {
        let values = values.iter().map(|(n, v)| (n.to_string(), v.clone())).collect();
        let result = imp.call(&Args { target: target.to_string(), values }).unwrap();
        imp.result_value(result).unwrap()
    }

    fn nonzeros(imp: &Importer) -> usize {
        imp.b.module.graph.nodes.iter().filter(|n| matches!(n.op, Op::Nonzero { .. })).count()
    }

    #[test]
    fn the_same_value_at_every_place_of_a_mask_needs_no_count() {
        let mut imp = importer();
        let x = input(&mut imp, 0, DType::F32, &[4, 3]);
        let mask = input(&mut imp, 1, DType::Bool, &[4]);
        let row = input(&mut imp, 2, DType::F32, &[3]);
        let indices = Val::List(vec![Val::Tensor(mask)]);
        let args = [("self", Val::Tensor(x)), ("indices", indices), ("values", Val::Tensor(row))];
        let out = call(&mut imp, "aten.index_put.default", &args);
        assert!(matches!(imp.b.definition(out).unwrap().op, Op::Select));
        assert_eq!(nonzeros(&imp), 0);
    }

    #[test]
    fn a_masked_copy_scatters_what_the_same_coordinates_gather() {
        let mut imp = importer();
        let (x, src) = (input(&mut imp, 0, DType::F32, &[4, 3]), input(&mut imp, 1, DType::F32, &[4, 3]));
        let mask = input(&mut imp, 2, DType::Bool, &[4, 3]);
        let indices = Val::List(vec![Val::Tensor(mask)]);
        let picked = call(&mut imp, "aten.index.Tensor", &[("self", Val::Tensor(src)), ("indices", indices.clone())]);
        let picked = imp.new_tensor(picked, DType::F32);
        let args = [("self", Val::Tensor(x)), ("indices", indices), ("values", Val::Tensor(picked))];
        let out = call(&mut imp, "aten.index_put.default", &args);
        assert_eq!(nonzeros(&imp), 1);
        let scatter = imp.b.definition(out).unwrap();
        assert!(matches!(scatter.op, Op::Scatter { combine: None, .. }));
        let gather = imp.b.definition(scatter.operands[1]).unwrap();
        assert!(matches!(gather.op, Op::Move { .. }));
        assert_eq!(gather.operands[1..].len(), scatter.operands[2..].len());
    }

    #[test]
    fn indices_apart_from_each_other_go_first() {
        let mut imp = importer();
        let x = input(&mut imp, 0, DType::F32, &[2, 3, 5, 7]);
        let (i, j) = (input(&mut imp, 1, DType::I64, &[4]), input(&mut imp, 2, DType::I32, &[6, 1]));
        let shape = |imp: &mut Importer, indices: Vec<Val>| {
            let args = [("self", Val::Tensor(x)), ("indices", Val::List(indices))];
            let out = call(imp, "aten.index.Tensor", &args);
            imp.b.shape(out).iter().map(|e| e.as_int().unwrap()).collect::<Vec<_>>()
        };
        let (i, j) = (Val::Tensor(i), Val::Tensor(j));
        assert_eq!(shape(&mut imp, vec![Val::None, i.clone(), j.clone()]), [2, 6, 4, 7]);
        assert_eq!(shape(&mut imp, vec![Val::None, i, Val::None, j]), [6, 4, 2, 5]);
    }
}
