//! Matrix and vector products.

use douse_core::pointwise::{Binary, Combine};
use douse_core::sym::{Cond, Expr, Symbol};
use douse_core::{DType, Error, Result, Scalar};
use douse_ir::{Value, coordinates};
use douse_program::library::holds_products;

use super::args::{Args, Val};
use super::importer::{Importer, Row};
use super::parts::Parts;

pub const ROWS: &[Row] = &[
    ("aten.mm.default", |i, a| of_two(i, a, "self", "mat2")),
    ("aten.bmm.default", |i, a| of_two(i, a, "self", "mat2")),
    ("aten.mm.dtype", |i, a| of_two(i, a, "self", "mat2")),
    ("aten.bmm.dtype", |i, a| of_two(i, a, "self", "mat2")),
    ("aten.matmul.default", |i, a| of_two(i, a, "self", "other")),
    ("aten.linalg_matmul.default", |i, a| of_two(i, a, "self", "other")),
    ("aten.mv.default", |i, a| of_two(i, a, "self", "vec")),
    ("aten.dot.default", |i, a| of_two(i, a, "self", "tensor")),
    ("aten.vdot.default", vdot),
    ("aten.inner.default", inner),
    ("aten.linalg_vecdot.default", vecdot),
    ("aten.outer.default", outer),
    ("aten.ger.default", outer),
    ("aten.addmm.default", |i, a| add_product(i, a, "mat1", "mat2")),
    ("aten.baddbmm.default", |i, a| add_product(i, a, "batch1", "batch2")),
    ("aten.addmm.dtype", |i, a| add_product(i, a, "mat1", "mat2")),
    ("aten.baddbmm.dtype", |i, a| add_product(i, a, "batch1", "batch2")),
    ("aten.addmv.default", |i, a| add_product(i, a, "mat", "vec")),
    ("aten.addr.default", addr),
    ("aten.addbmm.default", addbmm),
    ("aten.linear.default", linear),
    ("aten.bilinear.default", bilinear),
    ("aten._trilinear.default", trilinear),
    ("aten.kron.default", kron),
    ("aten.cross.default", cross),
    ("aten.linalg_cross.default", cross),
    ("aten.tensordot.default", tensordot),
    ("aten.linalg_multi_dot.default", |i, a| chain(i, a, "tensors")),
    ("aten.chain_matmul.default", |i, a| chain(i, a, "matrices")),
    ("aten._grouped_mm.default", grouped),
    ("transformers.grouped_mm_fallback.default", grouped),
];

/// The product of any two tensors of rank 1 and more, as `torch.matmul` has it.
pub fn product(imp: &mut Importer, x: Parts, y: Parts) -> Result<Parts> {
    x.product(imp, y, real_product)
}

fn real_product(imp: &mut Importer, x: Value, y: Value) -> Result<Value> {
    let dtype = imp.b.dtype(x);
    product_into(imp, x, y, dtype)
}

/// The same of real tensors, rounded to `into`: their own dtype, or float32 for 16-bit floats.
fn product_into(imp: &mut Importer, x: Value, y: Value, into: DType) -> Result<Value> {
    let (rx, ry) = (imp.b.rank(x), imp.b.rank(y));
    if rx == 0 || ry == 0 {
        return Err(Error::invalid_program("a matrix product of a 0-d tensor"));
    }
    let left = if rx == 1 { imp.b.unsqueeze(x, 0)? } else { x };
    let right = if ry == 1 { imp.b.unsqueeze(y, 1)? } else { y };
    let (rank_left, rank_right) = (imp.b.rank(left), imp.b.rank(right));
    // Many matrices by one are one tall matrix by one.
    let product = if rank_left > 2 && rank_right == 2 {
        let mut shape = imp.b.shape(left).to_vec();
        let rows = imp.b.flatten(left, 0, rank_left - 2)?;
        let product = imp.b.matmul_into(rows, right, into)?;
        shape[rank_left - 1] = imp.b.shape(product)[1].clone();
        imp.b.reshape(product, shape)?
    } else {
        imp.b.matmul_into(left, right, into)?
    };
    let mut result = product;
    if ry == 1 {
        result = imp.b.squeeze(result, imp.b.rank(result) - 1)?;
    }
    if rx == 1 {
        result = imp.b.squeeze(result, imp.b.rank(result) - if ry == 1 { 1 } else { 2 })?;
    }
    Ok(result)
}

fn of_two(imp: &mut Importer, a: &Args, x: &str, y: &str) -> Result<Val> {
    let (x, y) = (imp.parts(a, x)?, imp.parts(a, y)?);
    match a.dtype("out_dtype")? {
        // The sums are kept in the wider dtype: nothing is rounded to the operands'.
        Some(dtype) => wide_product(imp, x, y, dtype)?.val(imp),
        None => product(imp, x, y)?.val(imp),
    }
}

fn vdot(imp: &mut Importer, a: &Args) -> Result<Val> {
    let (x, y) = (imp.parts(a, "self")?, imp.parts(a, "other")?);
    let x = x.conj(imp)?;
    product(imp, x, y)?.val(imp)
}

/// Over the last dimensions of both; a 0-d tensor scales.
fn inner(imp: &mut Importer, a: &Args) -> Result<Val> {
    let (x, y) = (imp.parts(a, "self")?, imp.parts(a, "other")?);
    let (rx, ry) = (imp.b.rank(x.re), imp.b.rank(y.re));
    if rx == 0 || ry == 0 {
        return x.mul(imp, y)?.val(imp);
    }
    contract(imp, x, y, &[rx - 1], &[ry - 1])?.val(imp)
}

/// conj(x) * y, summed along a dimension, in the compute dtype with one rounding.
fn vecdot(imp: &mut Importer, a: &Args) -> Result<Val> {
    let (x, y) = (imp.parts(a, "x")?, imp.parts(a, "y")?);
    let x = x.conj(imp)?;
    let (dtype, rank) = (imp.b.dtype(x.re), imp.b.rank(x.re).max(imp.b.rank(y.re)));
    let dim = imp.dim(a, a.int_or("dim", -1)?, rank)?;
    let wide = imp.compute_dtype(dtype);
    let (x, y) = (x.cast(imp, wide), y.cast(imp, wide));
    let total = x.mul(imp, y)?.sum(imp, &[dim])?;
    total.cast(imp, dtype).val(imp)
}

/// Two tensors in their common dtype.
fn promoted(imp: &mut Importer, a: &Args, x: &str, y: &str) -> Result<(Parts, Parts)> {
    let dtype = imp.result_type(a, &[x, y])?.real();
    Ok((imp.parts(a, x)?.cast(imp, dtype), imp.parts(a, y)?.cast(imp, dtype)))
}

fn outer_of(imp: &mut Importer, x: Parts, y: Parts) -> Result<Parts> {
    let column = x.map(|v| imp.b.unsqueeze(v, 1))?;
    let row = y.map(|v| imp.b.unsqueeze(v, 0))?;
    column.mul(imp, row)
}

fn outer(imp: &mut Importer, a: &Args) -> Result<Val> {
    let (x, y) = promoted(imp, a, "self", "vec2")?;
    outer_of(imp, x, y)?.val(imp)
}

/// beta * self + alpha * product, rounded once; where beta is 0, self does not count, not even its NaNs.
fn combined(imp: &mut Importer, a: &Args, product: Parts, dtype: DType) -> Result<Val> {
    let wide = imp.b.dtype(product.re);
    let alpha = imp.number_parts(a, "alpha", 1, wide)?;
    let beta = imp.number_parts(a, "beta", 1, wide)?;
    let product = product.scale(imp, alpha)?;
    let ignored = beta.im.is_none() && imp.b.constant_scalar(beta.re).is_some_and(|s| s.to_f64() == 0.0);
    let own = imp.parts(a, "self")?;
    let sum = if ignored {
        let shape = imp.b.shape(own.re).to_vec();
        let to = imp.b.shape(product.re).to_vec();
        let shape = imp.b.broadcast_shapes(&shape, &to)?;
        product.map(|v| imp.b.expand(v, shape.clone()))?
    } else {
        let own = own.cast(imp, wide).scale(imp, beta)?;
        own.add(imp, product, Binary::Add)?
    };
    sum.cast(imp, dtype).val(imp)
}

/// The product of factors of one dtype, in another that holds each of their products exactly.
fn wide_product(imp: &mut Importer, x: Parts, y: Parts, wide: DType) -> Result<Parts> {
    let of = imp.b.dtype(x.re);
    if !x.is_complex() && !y.is_complex() && of == imp.b.dtype(y.re) && holds_products(wide, of) {
        return Ok(product_into(imp, x.re, y.re, wide)?.into());
    }
    let (x, y) = (x.cast(imp, wide), y.cast(imp, wide));
    product(imp, x, y)
}

/// In the compute dtype, float32 for half, so that the sum with `self` rounds once.
fn add_product(imp: &mut Importer, a: &Args, x: &str, y: &str) -> Result<Val> {
    let (x, y) = (imp.parts(a, x)?, imp.parts(a, y)?);
    let dtype = imp.b.dtype(x.re);
    let wide = imp.compute_dtype(dtype);
    let product = wide_product(imp, x, y, wide)?;
    combined(imp, a, product, a.dtype("out_dtype")?.unwrap_or(dtype))
}

/// The outer product; of bools, logic.
fn addr(imp: &mut Importer, a: &Args) -> Result<Val> {
    let dtype = imp.result_type(a, &["self", "vec1", "vec2"])?.real();
    if dtype.is_bool() {
        let (x, y, own) = (imp.parts(a, "vec1")?, imp.parts(a, "vec2")?, imp.value(a, "self")?);
        let yes = |name: &str| Ok::<_, Error>(a.opt_scalar(name)?.is_none_or(Scalar::to_bool));
        let outer = outer_of(imp, x, y)?.re;
        let no = imp.b.full_like(outer, Scalar::Bool(false));
        let product = if yes("alpha")? { outer } else { no };
        let own = if yes("beta")? { own } else { no };
        return Ok(imp.b.binary(Binary::Or, own, product)?.into());
    }
    let wide = imp.compute_dtype(dtype);
    let (x, y) = (imp.parts(a, "vec1")?.cast(imp, wide), imp.parts(a, "vec2")?.cast(imp, wide));
    let product = outer_of(imp, x, y)?;
    combined(imp, a, product, dtype)
}

/// The sum of a batch of products: one product over a longer inner dimension.
fn addbmm(imp: &mut Importer, a: &Args) -> Result<Val> {
    let (x, y) = (imp.parts(a, "batch1")?, imp.parts(a, "batch2")?);
    let dtype = imp.b.dtype(x.re);
    let wide = imp.compute_dtype(dtype);
    let (x, y) = (x.cast(imp, wide), y.cast(imp, wide));
    let product = contract(imp, x, y, &[0, 2], &[0, 1])?;
    combined(imp, a, product, dtype)
}

/// x @ weight^T + bias over the last dimension; leading dimensions are one.
fn linear(imp: &mut Importer, a: &Args) -> Result<Val> {
    let (x, weight) = (imp.parts(a, "input")?, imp.parts(a, "weight")?);
    if x.is_complex() || weight.is_complex() {
        let rank = imp.b.rank(weight.re);
        let weight = if rank == 1 { weight } else { weight.map(|w| imp.b.transpose(w, 0, 1))? };
        let mut y = product(imp, x, weight)?;
        if a.has("bias") {
            let bias = imp.parts(a, "bias")?;
            y = y.add(imp, bias, Binary::Add)?;
        }
        return y.val(imp);
    }
    let bias = imp.opt_value(a, "bias")?;
    Ok(affine(imp, x.re, weight.re, bias)?.into())
}

/// x [..., k] @ weight [n, k]^T + bias [n], rounded once.
pub fn affine(imp: &mut Importer, x: Value, weight: Value, bias: Option<Value>) -> Result<Value> {
    let shape = imp.b.shape(x).to_vec();
    let one_dim = imp.b.rank(weight) == 1;
    let weight = if one_dim { imp.b.unsqueeze(weight, 0)? } else { weight };
    let rank = shape.len();
    let rows = match rank {
        1 => imp.b.unsqueeze(x, 0)?,
        2 => x,
        _ => imp.b.flatten(x, 0, rank - 2)?,
    };
    let turned = imp.b.transpose(weight, 0, 1)?;
    let dtype = imp.b.dtype(x);
    let wide = imp.compute_dtype(dtype);
    let into = if bias.is_some() && holds_products(wide, dtype) { wide } else { dtype };
    let product = imp.b.matmul_into(rows, turned, into)?;
    let mut to = shape[..rank.saturating_sub(1)].to_vec();
    if !one_dim {
        to.push(imp.b.shape(product)[1].clone());
    }
    let y = imp.b.reshape(product, to)?;
    match bias {
        Some(bias) => {
            let bias = imp.b.cast(bias, into);
            let y = imp.b.binary(Binary::Add, y, bias)?;
            Ok(imp.b.cast(y, dtype))
        }
        None => Ok(y),
    }
}

/// out[..., o] = sum over i, j of x[..., i] * weight[o, i, j] * y[..., j] + bias[o].
fn bilinear(imp: &mut Importer, a: &Args) -> Result<Val> {
    let (x, y) = (imp.value(a, "input1")?, imp.value(a, "input2")?);
    let (weight, bias) = (imp.value(a, "weight")?, imp.opt_value(a, "bias")?);
    let dtype = imp.b.dtype(x);
    let wide = imp.compute_dtype(dtype);
    let [x, y, weight] = [x, y, weight].map(|v| imp.b.cast(v, wide));
    let shape = imp.b.shape(weight).to_vec();
    let [o, i, j] = shape.as_slice() else { return Err(a.wrong("weight", "of rank 3")) };
    // x @ weight as [i, o * j], then with y along j.
    let turned = imp.b.permute(weight, &[1, 0, 2])?;
    let flat = imp.b.reshape(turned, vec![i.clone(), o * j])?;
    let product = real_product(imp, x, flat)?;
    let mut to = imp.b.shape(x).to_vec();
    to.pop();
    to.extend([o.clone(), j.clone()]);
    let product = imp.b.reshape(product, to)?;
    let rank = imp.b.rank(product);
    let y = imp.b.unsqueeze(y, rank - 2)?;
    let scaled = imp.b.binary(Binary::Mul, product, y)?;
    let mut out = imp.b.reduce(Combine::Sum, scaled, &[rank - 1])?;
    if let Some(bias) = bias {
        let bias = imp.b.cast(bias, wide);
        out = imp.b.binary(Binary::Add, out, bias)?;
    }
    Ok(imp.b.cast(out, dtype).into())
}

/// A product of three tensors, each with new dimensions of size 1 at its places, summed over some of the dimensions.
fn trilinear(imp: &mut Importer, a: &Args) -> Result<Val> {
    let mut product: Option<Value> = None;
    let dtype = imp.value(a, "i1")?;
    let dtype = imp.b.dtype(dtype);
    for (name, places) in [("i1", "expand1"), ("i2", "expand2"), ("i3", "expand3")] {
        let x = imp.value(a, name)?;
        let mut x = imp.b.cast(x, imp.compute_dtype(dtype));
        for place in a.ints(places)? {
            let place = imp.dim(a, place, imp.b.rank(x) + 1)?;
            x = imp.b.unsqueeze(x, place)?;
        }
        product = Some(match product {
            Some(product) => imp.b.binary(Binary::Mul, product, x)?,
            None => x,
        });
    }
    let product = product.ok_or_else(|| Error::internal("a product of nothing"))?;
    let rank = imp.b.rank(product);
    let dims: Vec<usize> = a.ints("sumdim")?.iter().map(|d| imp.dim(a, *d, rank)).collect::<Result<_>>()?;
    let sum = imp.b.reduce(Combine::Sum, product, &dims)?;
    Ok(imp.b.cast(sum, dtype).into())
}

/// Every element of x times all of y: dimension d of the result has the product of both sizes.
fn kron(imp: &mut Importer, a: &Args) -> Result<Val> {
    let (x, y) = promoted(imp, a, "self", "other")?;
    let rank = imp.b.rank(x.re).max(imp.b.rank(y.re));
    let padded = |imp: &Importer, v: Value| {
        let own = imp.b.shape(v);
        let mut shape = vec![Expr::int(1); rank - own.len()];
        shape.extend_from_slice(own);
        shape
    };
    let (sx, sy) = (padded(imp, x.re), padded(imp, y.re));
    let one = Expr::int(1);
    let to_x: Vec<Expr> = sx.iter().flat_map(|s| [s.clone(), one.clone()]).collect();
    let to_y: Vec<Expr> = sy.iter().flat_map(|s| [one.clone(), s.clone()]).collect();
    let x = x.map(|v| imp.b.reshape(v, to_x.clone()))?;
    let y = y.map(|v| imp.b.reshape(v, to_y.clone()))?;
    let all = x.mul(imp, y)?;
    let to: Vec<Expr> = sx.iter().zip(&sy).map(|(a, b)| a * b).collect();
    all.map(|v| imp.b.reshape(v, to.clone()))?.val(imp)
}

/// The cross product along a dimension of size 3: without `dim` the first such (`torch.cross`).
fn cross(imp: &mut Importer, a: &Args) -> Result<Val> {
    let (x, y) = promoted(imp, a, "self", "other")?;
    let shape = imp.b.shape(x.re).to_vec();
    let other = imp.b.shape(y.re).to_vec();
    let shape = imp.b.broadcast_shapes(&shape, &other)?;
    let rank = shape.len();
    let dim = if a.has("dim") || a.target.contains("linalg") {
        imp.dim(a, a.int_or("dim", -1)?, rank)?
    } else {
        shape.iter().position(|s| s.is_int(3)).ok_or_else(|| a.wrong("self", "of a dimension of size 3"))?
    };
    let mut turned = |v: Value, by: i64| {
        let v = imp.b.expand(v, shape.clone())?;
        let mut map = coordinates(rank);
        map[dim] = (&map[dim] + by).modulo(&Expr::int(3));
        imp.b.remap(v, shape.clone(), map)
    };
    let (x1, x2) = (x.map(|v| turned(v, 1))?, x.map(|v| turned(v, 2))?);
    let (y1, y2) = (y.map(|v| turned(v, 1))?, y.map(|v| turned(v, 2))?);
    let dtype = imp.b.dtype(x1.re);
    let wide = imp.compute_dtype(dtype);
    let [x1, x2, y1, y2] = [x1, x2, y1, y2].map(|p| p.cast(imp, wide));
    let (first, second) = (x1.mul(imp, y2)?, x2.mul(imp, y1)?);
    first.add(imp, second, Binary::Sub)?.cast(imp, dtype).val(imp)
}

/// Sums over `dx` of x and `dy` of y, in pairs; the other dimensions of x, then those of y.
pub fn contract(imp: &mut Importer, x: Parts, y: Parts, dx: &[usize], dy: &[usize]) -> Result<Parts> {
    let (sx, sy) = (imp.b.shape(x.re).to_vec(), imp.b.shape(y.re).to_vec());
    // A summed size of 1 is broadcast: the other tensor is summed alone.
    let alone = |own: &[Expr], other: &[Expr], own_dims: &[usize], other_dims: &[usize]| -> Vec<usize> {
        let pairs = own_dims.iter().zip(other_dims);
        pairs.filter(|(d, e)| other[**e].is_int(1) && !own[**d].is_int(1)).map(|(d, _)| *d).collect()
    };
    let (ax, ay) = (alone(&sx, &sy, dx, dy), alone(&sy, &sx, dy, dx));
    let (x, y) = (x.sum_keep(imp, &ax)?, y.sum_keep(imp, &ay)?);
    let free = |shape: &[Expr], dims: &[usize]| (0..shape.len()).filter(|d| !dims.contains(d)).collect::<Vec<_>>();
    let (fx, fy) = (free(&sx, dx), free(&sy, dy));
    let sizes = |shape: &[Expr], dims: &[usize]| dims.iter().map(|d| shape[*d].clone()).collect::<Vec<_>>();
    let inner = Expr::product(&dx.iter().map(|d| imp.b.shape(x.re)[*d].clone()).collect::<Vec<_>>());
    let (rows, columns) = (sizes(&sx, &fx), sizes(&sy, &fy));
    let left = x.map(|v| {
        let v = imp.b.permute(v, &[fx.as_slice(), dx].concat())?;
        imp.b.reshape(v, vec![Expr::product(&rows), inner.clone()])
    })?;
    let right = y.map(|v| {
        let v = imp.b.permute(v, &[dy, fy.as_slice()].concat())?;
        imp.b.reshape(v, vec![inner.clone(), Expr::product(&columns)])
    })?;
    let product = left.product(imp, right, |imp, a, b| imp.b.matmul(a, b))?;
    let to = [rows, columns].concat();
    product.map(|v| imp.b.reshape(v, to.clone()))
}

fn tensordot(imp: &mut Importer, a: &Args) -> Result<Val> {
    let (x, y) = (imp.parts(a, "self")?, imp.parts(a, "other")?);
    let list = |imp: &Importer, name: &str, rank: usize| {
        a.ints(name)?.iter().map(|d| imp.dim(a, *d, rank)).collect::<Result<Vec<_>>>()
    };
    let (rx, ry) = (imp.b.rank(x.re), imp.b.rank(y.re));
    let (dx, dy) = (list(imp, "dims_self", rx)?, list(imp, "dims_other", ry)?);
    contract(imp, x, y, &dx, &dy)?.val(imp)
}

/// A product of several matrices in the order that takes the fewest multiplications; the first and last may be vectors.
fn chain(imp: &mut Importer, a: &Args, name: &str) -> Result<Val> {
    let tensors = a.tensors(name)?;
    let mut all = Vec::with_capacity(tensors.len());
    for t in tensors {
        all.push(imp.parts_of(t)?);
    }
    let sizes: Option<Vec<i64>> = match all.first() {
        None => return Err(a.wrong(name, "a list of matrices")),
        Some(first) => {
            let rows = imp.b.shape(first.re);
            let rows = if rows.len() == 1 { Some(1) } else { rows.first().and_then(Expr::as_int) };
            let mut last = |p: &Parts| match imp.b.shape(p.re) {
                [_] => Some(1),
                shape => shape.last().and_then(Expr::as_int),
            };
            let inner = imp.b.shape(first.re).last().and_then(Expr::as_int);
            let tail = all.iter().skip(1).map(&mut last);
            [rows, inner].into_iter().chain(tail).collect()
        }
    };
    let splits = sizes.map(|sizes| best_splits(&sizes));
    chained(imp, &all, 0, splits.as_deref())?.val(imp)
}

/// The product of matrices `first..first + all.len()` of the chain; without splits from the left.
fn chained(imp: &mut Importer, all: &[Parts], first: usize, splits: Option<&[Vec<usize>]>) -> Result<Parts> {
    if let [one] = all {
        return Ok(*one);
    }
    let last = first + all.len() - 1;
    let split = splits.and_then(|s| s.get(first)?.get(last).copied()).unwrap_or(last - 1);
    let (left, right) = all.split_at(split + 1 - first);
    let (left, right) = (chained(imp, left, first, splits)?, chained(imp, right, split + 1, splits)?);
    product(imp, left, right)
}

/// For matrices of `sizes[i]` by `sizes[i + 1]`: after which matrix the chain `i..=j` is best split
/// (Cormen, Leiserson, Rivest, Stein: Introduction to Algorithms, 15.2).
fn best_splits(sizes: &[i64]) -> Vec<Vec<usize>> {
    let n = sizes.len() - 1;
    let mut cost = vec![vec![0.0_f64; n]; n];
    let mut split = vec![vec![0; n]; n];
    for length in 1..n {
        for i in 0..n - length {
            let j = i + length;
            cost[i][j] = f64::INFINITY;
            for k in i..j {
                let both = sizes[i] as f64 * sizes[k + 1] as f64 * sizes[j + 1] as f64;
                let total = cost[i][k] + cost[k + 1][j] + both;
                if total < cost[i][j] {
                    cost[i][j] = total;
                    split[i][j] = k;
                }
            }
        }
    }
    split
}

/// The main diagonal of a square matrix.
pub fn diagonal(imp: &mut Importer, matrix: Value) -> Result<Value> {
    let n = imp.b.shape(matrix)[0].clone();
    imp.b.remap(matrix, vec![n], vec![Expr::loop_var(0), Expr::loop_var(0)])
}

/// Rows in groups, each times the matrix of its group: rows below `offs[0]` by `weight[0]`, then those below `offs[1]` by `weight[1]`, and so on.
/// Rows past the last offset give zeros.
fn grouped(imp: &mut Importer, a: &Args) -> Result<Val> {
    let fallback = a.target.starts_with("transformers");
    let (x, weight) = if fallback { ("input", "weight") } else { ("self", "mat2") };
    let (x, weight) = (imp.value(a, x)?, imp.value(a, weight)?);
    if imp.b.rank(x) != 2 || imp.b.rank(weight) != 3 || a.has("bias") {
        return Err(a.unsupported("grouping of anything but the rows of the left matrix"));
    }
    let dtype = match a.dtype("out_dtype")? {
        Some(dtype) if dtype != imp.b.dtype(x) => return Err(a.unsupported(format!("a result of {dtype}"))),
        _ => imp.b.dtype(x),
    };
    let offs = imp.value(a, "offs")?;
    let offs = imp.b.cast(offs, DType::I64);
    let (rows, groups) = (imp.b.shape(x)[0].clone(), imp.b.shape(weight)[0].clone());
    // The group of a row: how many offsets are not above it.
    let row = imp.b.iota(vec![rows.clone()], Expr::loop_var(0));
    let group = imp.b.search_sorted(offs, row, true)?;
    // Each group's product of all rows; of these, each row's own.
    let all = imp.b.matmul(x, weight)?;
    let columns = imp.b.shape(all)[2].clone();
    let shape = vec![rows, columns];
    let last = &groups - 1;
    let bound = imp.b.size_value(last);
    let own = imp.b.binary(Binary::Minimum, group, bound)?;
    let own = imp.b.unsqueeze(own, 1)?;
    let own = imp.b.expand(own, shape.clone())?;
    let map = vec![Expr::symbol(Symbol::Value(0)), Expr::loop_var(0), Expr::loop_var(1)];
    let chosen = imp.b.move_(all, &[own], shape.clone(), map, Cond::Bool(true), Scalar::Int(0))?;
    let count = imp.b.size_value(groups);
    let inside = imp.b.binary(Binary::Lt, group, count)?;
    let inside = imp.b.unsqueeze(inside, 1)?;
    let zero = imp.b.full(dtype, vec![], Scalar::Int(0));
    Ok(imp.b.select(inside, chosen, zero)?.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_is_split_where_it_costs_least() {
        // The book's example: ((a (b c)) ((d e) f)).
        let split = best_splits(&[30, 35, 15, 5, 10, 20, 25]);
        assert_eq!(split[0][5], 2);
        assert_eq!(split[0][2], 0);
        assert_eq!(split[3][5], 4);
    }
}
