//! Reductions: sums, products, extremes, logic, counts.

use douse_core::pointwise::{Binary, Combine, Unary};
use douse_core::sym::{Compare, Cond, Expr};
use douse_core::{DType, Result, Scalar};
use douse_ir::Value;

use super::args::{Args, Val};
use super::convert::converted;
use super::importer::{Importer, Row};
use super::parts::Parts;
use super::tensor::Tensor;

pub const ROWS: &[Row] = &[
    ("aten.sum.default", sum),
    ("aten.sum.dim_IntList", sum),
    ("aten.sum_to_size.default", sum_to_size),
    ("aten.nansum.default", nansum),
    ("aten.mean.default", mean),
    ("aten.mean.dim", mean),
    ("aten.nanmean.default", nanmean),
    ("aten.prod.default", prod),
    ("aten.prod.dim_int", prod),
    ("aten.amax.default", |i, a| extreme(i, a, Combine::Max)),
    ("aten.amin.default", |i, a| extreme(i, a, Combine::Min)),
    ("aten.max.default", |i, a| extreme(i, a, Combine::Max)),
    ("aten.min.default", |i, a| extreme(i, a, Combine::Min)),
    ("aten.aminmax.default", aminmax),
    ("aten.max.dim", |i, a| arg_extreme(i, a, true).map(|(v, at)| (v, at).into())),
    ("aten.min.dim", |i, a| arg_extreme(i, a, false).map(|(v, at)| (v, at).into())),
    ("aten.argmax.default", |i, a| arg_extreme(i, a, true).map(|(_, at)| at.into())),
    ("aten.argmin.default", |i, a| arg_extreme(i, a, false).map(|(_, at)| at.into())),
    ("aten.all.default", |i, a| logic(i, a, Combine::And)),
    ("aten.all.dim", |i, a| logic(i, a, Combine::And)),
    ("aten.all.dims", |i, a| logic(i, a, Combine::And)),
    ("aten._is_all_true.default", |i, a| logic(i, a, Combine::And)),
    ("aten.any.default", |i, a| logic(i, a, Combine::Or)),
    ("aten.any.dim", |i, a| logic(i, a, Combine::Or)),
    ("aten.any.dims", |i, a| logic(i, a, Combine::Or)),
    ("aten._is_any_true.default", |i, a| logic(i, a, Combine::Or)),
    ("aten.count_nonzero.default", count_nonzero),
    ("aten.count_nonzero.dim_IntList", count_nonzero),
    ("aten.logsumexp.default", log_sum_exp),
    ("aten.special_logsumexp.default", log_sum_exp),
    ("aten.hash_tensor.default", hash_tensor),
    ("aten.trace.default", trace),
];

/// The dimensions that an argument names; all where it is absent or empty.
pub fn dims(imp: &Importer, a: &Args, name: &str, rank: usize) -> Result<Vec<usize>> {
    let named = a.opt_ints(name)?.unwrap_or_default();
    if named.is_empty() || rank == 0 {
        return Ok((0..rank).collect());
    }
    named.iter().map(|d| imp.dim(a, *d, rank)).collect()
}

/// Combines over dimensions, kept with size 1 if `keepdim` says so.
pub fn reduced(imp: &mut Importer, a: &Args, op: Combine, x: Value, dims: &[usize]) -> Result<Value> {
    if a.bool_or("keepdim", false)? { imp.b.reduce_keep(op, x, dims) } else { imp.b.reduce(op, x, dims) }
}

/// int64 for bools and integers.
fn sum_dtype(own: DType) -> DType {
    if own.is_int() || own.is_bool() { DType::I64 } else { own }
}

/// A tensor in a dtype that may be complex: its value (parts last), its rank without the parts, and whether it is complex.
fn in_dtype(imp: &mut Importer, t: Tensor, dtype: DType) -> Result<(Value, usize, bool)> {
    let rank = imp.shape_of(t)?.len();
    let converted = converted(imp, t, dtype)?;
    Ok((imp.result_value(converted)?, rank, dtype.is_complex()))
}

fn of_kind(value: Value, complex: bool) -> Val {
    if complex { Val::Complex(value) } else { Val::Value(value) }
}

/// A sum in the dtype's compute dtype, not rounded yet; of bools, or.
fn wide_sum(imp: &mut Importer, a: &Args, x: Value, dims: &[usize]) -> Result<Value> {
    if imp.b.dtype(x).is_bool() {
        return reduced(imp, a, Combine::Or, x, dims);
    }
    let wide = imp.b.cast(x, imp.compute_dtype(imp.b.dtype(x)));
    reduced(imp, a, Combine::Sum, wide, dims)
}

fn sum(imp: &mut Importer, a: &Args) -> Result<Val> {
    let t = a.tensor("self")?;
    let dtype = a.dtype("dtype")?.unwrap_or(sum_dtype(imp.dtype_of(t)));
    let (x, rank, complex) = in_dtype(imp, t, dtype)?;
    let dims = dims(imp, a, "dim", rank)?;
    let total = wide_sum(imp, a, x, &dims)?;
    Ok(of_kind(imp.b.cast(total, dtype.real()), complex))
}

/// The sum over the dimensions that broadcasting to the tensor's shape would have added or repeated; where there are none, the tensor as it is,
/// unless it is asked for as a 0-d one, which is a sum always.
fn sum_to_size(imp: &mut Importer, a: &Args) -> Result<Val> {
    let t = a.tensor("self")?;
    let (shape, size) = (imp.shape_of(t)?, a.exprs("size")?);
    let added = shape.len().checked_sub(size.len()).ok_or_else(|| a.wrong("size", "of the tensor's rank or less"))?;
    let repeated = |d: &usize| *d < added || (size[d - added].is_int(1) && !shape[*d].is_int(1));
    let dims: Vec<usize> = (0..shape.len()).filter(repeated).collect();
    let summed = size.is_empty() || !dims.is_empty();
    let dtype = if summed { sum_dtype(imp.dtype_of(t)) } else { imp.dtype_of(t) };
    let (x, _, complex) = in_dtype(imp, t, dtype)?;
    let total = wide_sum(imp, a, x, &dims)?;
    let mut to = size;
    if complex {
        to.push(Expr::int(2));
    }
    let total = imp.b.reshape(total, to)?;
    Ok(of_kind(imp.b.cast(total, dtype.real()), complex))
}

/// The tensor with zeros for NaN, in a dtype.
fn without_nan(imp: &mut Importer, a: &Args) -> Result<(Value, DType)> {
    let x = imp.value(a, "self")?;
    let dtype = a.dtype("dtype")?.unwrap_or(sum_dtype(imp.b.dtype(x)));
    let x = imp.b.cast(x, dtype);
    if !dtype.is_float() {
        return Ok((x, dtype));
    }
    let nan = imp.b.unary(Unary::IsNan, x)?;
    let zero = imp.b.full_like(x, Scalar::Int(0));
    Ok((imp.b.select(nan, zero, x)?, dtype))
}

fn nansum(imp: &mut Importer, a: &Args) -> Result<Val> {
    let (x, dtype) = without_nan(imp, a)?;
    let dims = dims(imp, a, "dim", imp.b.rank(x))?;
    let total = wide_sum(imp, a, x, &dims)?;
    Ok(imp.b.cast(total, dtype).into())
}

/// The sum of what is not NaN, rounded to the dtype, over its count in that dtype.
fn nanmean(imp: &mut Importer, a: &Args) -> Result<Val> {
    let (x, dtype) = without_nan(imp, a)?;
    let dims = dims(imp, a, "dim", imp.b.rank(x))?;
    let total = wide_sum(imp, a, x, &dims)?;
    let total = imp.b.cast(total, dtype);
    let own = imp.value(a, "self")?;
    let own = super::pointwise::as_float(imp, own);
    let nan = imp.b.unary(Unary::IsNan, own)?;
    let valid = imp.b.unary(Unary::Not, nan)?;
    let valid = imp.b.cast(valid, DType::I64);
    let count = reduced(imp, a, Combine::Sum, valid, &dims)?;
    let count = imp.b.cast(count, dtype);
    Ok(imp.b.binary(Binary::Div, total, count)?.into())
}

/// The number of elements in dimensions, as a 0-d value of a dtype.
pub fn count(imp: &mut Importer, x: Value, dims: &[usize], dtype: DType) -> Value {
    let shape = imp.b.shape(x).to_vec();
    size_as(imp, &Expr::product(dims.iter().map(|d| &shape[*d])), dtype)
}

/// A size as a 0-d value of a dtype.
pub fn size_as(imp: &mut Importer, size: &Expr, dtype: DType) -> Value {
    match size.as_int() {
        Some(n) => imp.b.full(dtype, vec![], Scalar::Int(n)),
        None => {
            let n = imp.b.size_value(size.clone());
            imp.b.cast(n, dtype)
        }
    }
}

fn mean(imp: &mut Importer, a: &Args) -> Result<Val> {
    let t = a.tensor("self")?;
    let dtype = a.dtype("dtype")?.unwrap_or(imp.dtype_of(t));
    let (x, rank, complex) = in_dtype(imp, t, dtype)?;
    let dims = dims(imp, a, "dim", rank)?;
    let total = wide_sum(imp, a, x, &dims)?;
    let n = count(imp, x, &dims, imp.compute_dtype(dtype.real()));
    let mean = imp.b.binary(Binary::Div, total, n)?;
    Ok(of_kind(imp.b.cast(mean, dtype.real()), complex))
}

/// Products of half and bfloat16 are taken in float32.
fn prod(imp: &mut Importer, a: &Args) -> Result<Val> {
    let t = a.tensor("self")?;
    let dtype = a.dtype("dtype")?.unwrap_or(sum_dtype(imp.dtype_of(t)));
    if dtype.is_complex() {
        return complex_prod(imp, a, t, dtype);
    }
    let x = imp.value(a, "self")?;
    let x = imp.b.cast(x, dtype);
    let dims = dims(imp, a, "dim", imp.b.rank(x))?;
    if dtype.is_bool() {
        return Ok(reduced(imp, a, Combine::And, x, &dims)?.into());
    }
    let wide = imp.b.cast(x, imp.compute_dtype(dtype));
    let product = reduced(imp, a, Combine::Prod, wide, &dims)?;
    Ok(imp.b.cast(product, dtype).into())
}

/// The last of the running products, along one dimension or over all elements.
fn complex_prod(imp: &mut Importer, a: &Args, t: Tensor, dtype: DType) -> Result<Val> {
    let (value, rank, _) = in_dtype(imp, t, dtype)?;
    let t = imp.new_tensor(value, dtype);
    let mut x = imp.parts_of(t)?;
    let mut shape = imp.b.shape(x.re).to_vec();
    let mut over = dims(imp, a, "dim", rank)?;
    if over.len() != 1 {
        shape = vec![Expr::product(&shape)];
        x = x.map(|v| imp.b.reshape(v, shape.clone()))?;
        over = vec![0];
    }
    let (dim, n) = (over[0], shape[over[0]].as_int());
    let n = n.ok_or_else(|| a.unsupported("a complex product of a size known only at run time"))?;
    shape[dim] = 1.into();
    let product = if n == 0 {
        let one = imp.b.full(dtype.real(), shape.clone(), Scalar::Int(1));
        Parts { re: one, im: Some(imp.b.full(dtype.real(), shape.clone(), Scalar::Int(0))) }
    } else {
        let running = running_product(imp, x, dim, n)?;
        running.map(|v| imp.b.slice(v, dim, &Expr::int(n - 1), &Expr::int(1), 1.into()))?
    };
    if rank == 0 || !a.has("dim") {
        shape.clear();
    } else if !a.bool_or("keepdim", false)? {
        shape.remove(dim);
    }
    product.map(|v| imp.b.reshape(v, shape.clone()))?.val(imp)
}

/// Running products of complex numbers along a dimension of n elements: in log n rounds, each element takes that of `step` before it
/// (Hillis and Steele, 1986).
pub fn running_product(imp: &mut Importer, x: Parts, dim: usize, n: i64) -> Result<Parts> {
    let own = imp.b.dtype(x.re);
    let mut x = x.cast(imp, imp.compute_dtype(own));
    let shape = imp.b.shape(x.re).to_vec();
    let mut step = 1;
    while step < n {
        let mut map = douse_ir::coordinates(shape.len());
        let inside = Cond::compare(Compare::Ge, &map[dim], &Expr::int(step));
        map[dim] = &map[dim] - step;
        let mut earlier =
            |v: Value, fill: i64| imp.b.move_(v, &[], shape.clone(), map.clone(), inside.clone(), Scalar::Int(fill));
        let before = Parts { re: earlier(x.re, 1)?, im: x.im.map(|im| earlier(im, 0)).transpose()? };
        x = x.mul(imp, before)?;
        step *= 2;
    }
    Ok(x.cast(imp, own))
}

/// Makes the call fail where a dimension that is reduced has no element: nothing has no extreme.
pub fn require_elements(imp: &mut Importer, a: &Args, x: Value, dims: &[usize]) {
    for d in dims {
        let some = Cond::compare(Compare::Ge, &imp.b.shape(x)[*d], &Expr::int(1));
        imp.require(some, format_args!("{}: dimension {d} has no element", a.target));
    }
}

fn extreme(imp: &mut Importer, a: &Args, op: Combine) -> Result<Val> {
    let x = imp.value(a, "self")?;
    let dims = dims(imp, a, "dim", imp.b.rank(x))?;
    require_elements(imp, a, x, &dims);
    Ok(reduced(imp, a, op, x, &dims)?.into())
}

fn aminmax(imp: &mut Importer, a: &Args) -> Result<Val> {
    let x = imp.value(a, "self")?;
    let dims = dims(imp, a, "dim", imp.b.rank(x))?;
    require_elements(imp, a, x, &dims);
    let min = reduced(imp, a, Combine::Min, x, &dims)?;
    let max = reduced(imp, a, Combine::Max, x, &dims)?;
    Ok((min, max).into())
}

/// The extreme of a dimension, or of the whole tensor, and its place.
fn arg_extreme(imp: &mut Importer, a: &Args, max: bool) -> Result<(Value, Value)> {
    let x = imp.value(a, "self")?;
    if imp.b.dtype(x).is_bool() && a.target.starts_with("aten.arg") {
        imp.require(Cond::Bool(false), format_args!("{} of bools", a.target));
    }
    if imp.b.rank(x) == 0 {
        return Ok((x, imp.b.full(DType::I64, vec![], Scalar::Int(0))));
    }
    let dims = dims(imp, a, "dim", imp.b.rank(x))?;
    require_elements(imp, a, x, &dims);
    let dtype = imp.b.dtype(x);
    // Bools are ordered as 0 and 1.
    let ordered = if dtype.is_bool() { imp.b.cast(x, DType::U8) } else { x };
    let (value, at) = imp.b.arg_reduce(max, ordered, &dims)?;
    let value = imp.b.cast(value, dtype);
    if !a.bool_or("keepdim", false)? {
        return Ok((value, at));
    }
    let mut shape = imp.b.shape(x).to_vec();
    for d in dims {
        shape[d] = Expr::int(1);
    }
    Ok((imp.b.reshape(value, shape.clone())?, imp.b.reshape(at, shape)?))
}

/// Whether each element is not zero; NaN is not.
pub fn nonzero_mask(imp: &mut Importer, t: Tensor) -> Result<Value> {
    let (x, complex) = (imp.read(t)?, imp.is_complex(t));
    let mask = imp.b.cast(x, DType::Bool);
    if complex { imp.b.reduce(Combine::Or, mask, &[imp.b.rank(mask) - 1]) } else { Ok(mask) }
}

/// `all` and `any`: bool, but of uint8 uint8. An empty list of dimensions reduces nothing.
fn logic(imp: &mut Importer, a: &Args, op: Combine) -> Result<Val> {
    let t = a.tensor("self")?;
    let mask = nonzero_mask(imp, t)?;
    let none = a.target.ends_with(".dims") && a.opt_ints("dim")?.is_some_and(|dims| dims.is_empty());
    let dims = if none { vec![] } else { dims(imp, a, "dim", imp.b.rank(mask))? };
    let result = reduced(imp, a, op, mask, &dims)?;
    let dtype = if imp.dtype_of(t) == DType::U8 { DType::U8 } else { DType::Bool };
    Ok(imp.b.cast(result, dtype).into())
}

fn count_nonzero(imp: &mut Importer, a: &Args) -> Result<Val> {
    let t = a.tensor("self")?;
    let mask = nonzero_mask(imp, t)?;
    let dims = dims(imp, a, "dim", imp.b.rank(mask))?;
    let ones = imp.b.cast(mask, DType::I64);
    Ok(imp.b.reduce(Combine::Sum, ones, &dims)?.into())
}

fn log_sum_exp(imp: &mut Importer, a: &Args) -> Result<Val> {
    let x = imp.value(a, "self")?;
    let x = super::pointwise::as_float(imp, x);
    let dtype = imp.b.dtype(x);
    let dims = dims(imp, a, "dim", imp.b.rank(x))?;
    let wide = imp.b.cast(x, imp.compute_dtype(dtype));
    let max = imp.b.reduce_keep(Combine::Max, wide, &dims)?;
    // An infinite maximum is not subtracted: inf - inf is no number.
    let magnitude = imp.b.unary(Unary::Abs, max)?;
    let infinite = imp.b.unary(Unary::IsInf, magnitude)?;
    let zero = imp.b.full_like(max, Scalar::Int(0));
    let shift = imp.b.select(infinite, zero, max)?;
    let shifted = imp.b.binary(Binary::Sub, wide, shift)?;
    let exp = imp.b.unary(Unary::Exp, shifted)?;
    let total = reduced(imp, a, Combine::Sum, exp, &dims)?;
    let log = imp.b.unary(Unary::Log, total)?;
    let shape = imp.b.shape(log).to_vec();
    let shift = imp.b.reshape(shift, shape)?;
    let result = imp.b.binary(Binary::Add, log, shift)?;
    Ok(imp.b.cast(result, dtype).into())
}

/// The exclusive or of the elements as 64-bit patterns: floats as float64, integers extended.
fn hash_tensor(imp: &mut Importer, a: &Args) -> Result<Val> {
    if a.int_or("mode", 0)? != 0 {
        return Err(a.unsupported("another mode than 0"));
    }
    let x = imp.value(a, "self")?;
    let bits = if imp.b.dtype(x).is_float() {
        let wide = imp.b.cast(x, DType::F64);
        imp.b.bitcast(wide, DType::I64)?
    } else {
        imp.b.cast(x, DType::I64)
    };
    let dims = dims(imp, a, "dim", imp.b.rank(x))?;
    let hash = reduced(imp, a, Combine::Xor, bits, &dims)?;
    Ok(imp.b.bitcast(hash, DType::U64)?.into())
}

/// The sum of the main diagonal.
fn trace(imp: &mut Importer, a: &Args) -> Result<Val> {
    let t = a.tensor("self")?;
    let diagonal = super::view::diagonal_of(imp, t, 0, 0, 1)?;
    let dtype = sum_dtype(imp.dtype_of(t));
    let (x, rank, complex) = in_dtype(imp, diagonal, dtype)?;
    let dims: Vec<usize> = (0..rank).collect();
    let total = wide_sum(imp, a, x, &dims)?;
    Ok(of_kind(imp.b.cast(total, dtype.real()), complex))
}

#[cfg(test)]
mod tests {
    use douse_ir::{Builder, Module};

    use super::*;

    fn importer() -> Importer {
        Importer::new(Builder::new(Module::default()))
    }

    /// The dtype and shape of an operator's result on an input of [2, 3].
    fn result(target: &str, dtype: DType, more: Vec<(&str, Val)>) -> (DType, Vec<Expr>) {
        let mut imp = importer();
        let value = imp.b.input(0, dtype, vec![Expr::int(2), Expr::int(3)]);
        let mut values = vec![("self".to_string(), Val::Tensor(imp.new_tensor(value, dtype)))];
        values.extend(more.into_iter().map(|(name, v)| (name.to_string(), v)));
        let result = imp.call(&Args { target: target.to_string(), values }).unwrap();
        let value = imp.result_value(result).unwrap();
        (imp.b.dtype(value), imp.b.shape(value).to_vec())
    }

    fn ints(all: &[i64]) -> Val {
        Val::List(all.iter().map(|i| Val::Int(Expr::int(*i))).collect())
    }

    #[test]
    fn integers_are_added_in_int64() {
        assert_eq!(result("aten.sum.default", DType::Bool, vec![]), (DType::I64, vec![]));
        assert_eq!(result("aten.sum.dim_IntList", DType::I8, vec![("dim", ints(&[-1]))]), (DType::I64, vec![2.into()]));
        assert_eq!(result("aten.sum.default", DType::F16, vec![]), (DType::F16, vec![]));
    }

    #[test]
    fn logic_of_uint8_stays_uint8() {
        assert_eq!(result("aten.all.default", DType::U8, vec![]), (DType::U8, vec![]));
        assert_eq!(result("aten.any.default", DType::F32, vec![]), (DType::Bool, vec![]));
    }

    #[test]
    fn an_empty_list_of_dimensions_is_none_for_logic_and_all_for_sums() {
        assert_eq!(result("aten.any.dims", DType::F32, vec![("dim", ints(&[]))]).1, [2.into(), 3.into()]);
        assert_eq!(result("aten.sum.dim_IntList", DType::F32, vec![("dim", ints(&[]))]).1, []);
    }

    #[test]
    fn a_tensor_that_has_the_size_keeps_its_dtype() {
        assert_eq!(result("aten.sum_to_size.default", DType::I8, vec![("size", ints(&[2, 3]))]).0, DType::I8);
        assert_eq!(result("aten.sum_to_size.default", DType::I8, vec![("size", ints(&[3]))]).0, DType::I64);
    }
}
