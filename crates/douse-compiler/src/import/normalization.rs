//! Normalisations: layer, root mean square, group, batch and instance norm.

use douse_core::pointwise::{Binary, Combine, Unary};
use douse_core::sym::{Compare, Cond, Expr};
use douse_core::{DType, Result, Scalar};
use douse_ir::Value;

use super::args::{Args, Val};
use super::importer::{Importer, Row};
use super::promote::promote_types;
use super::reduce::{count, size_as};
use super::statistics::{Moments, drop, mean_and_variance, moments};

pub const ROWS: &[Row] = &[
    ("aten.layer_norm.default", |i, a| layer_norm(i, a).map(|[y, ..]| y.into())),
    ("aten.native_layer_norm.default", |i, a| layer_norm(i, a).map(|all| all.to_vec().into())),
    ("aten.rms_norm.default", |i, a| rms_norm(i, a).map(|(y, _)| y.into())),
    ("aten._fused_rms_norm.default", |i, a| rms_norm(i, a).map(Val::from)),
    ("aten.group_norm.default", |i, a| group_norm(i, a, "num_groups").map(|[y, ..]| y.into())),
    ("aten.native_group_norm.default", |i, a| group_norm(i, a, "group").map(|all| all.to_vec().into())),
    ("aten.batch_norm.default", |i, a| batch_norm(i, a, Mode::Given).map(|[y, ..]| y.into())),
    ("aten.native_batch_norm.default", |i, a| batch_norm(i, a, Mode::Given).map(|all| all.to_vec().into())),
    ("aten._native_batch_norm_legit.default", |i, a| batch_norm(i, a, Mode::Given).map(|all| all.to_vec().into())),
    ("aten._native_batch_norm_legit.no_stats", |i, a| batch_norm(i, a, Mode::Given).map(|all| all.to_vec().into())),
    ("aten._native_batch_norm_legit_no_training.default", |i, a| {
        batch_norm(i, a, Mode::Eval).map(|all| all.to_vec().into())
    }),
    ("aten._native_batch_norm_legit_functional.default", |i, a| functional(i, a, Mode::Given)),
    ("aten._batch_norm_with_update_functional.default", |i, a| functional(i, a, Mode::Training)),
    ("aten._batch_norm_with_update.default", |i, a| batch_norm(i, a, Mode::Training).and_then(|all| reserved(i, all))),
    ("aten._batch_norm_no_update.default", |i, a| batch_norm(i, a, Mode::Eval).and_then(|all| reserved(i, all))),
    ("aten.instance_norm.default", instance_norm),
];

/// 1 / sqrt(x + eps)
fn inverse_root(imp: &mut Importer, x: Value, eps: f64) -> Result<Value> {
    let x = imp.b.binary_scalar(Binary::Add, x, Scalar::Float(eps))?;
    imp.b.unary(Unary::Rsqrt, x)
}

/// (x - mean) * scale, then times weight and plus bias where there are any, all in one dtype and broadcast.
fn normalised(
    imp: &mut Importer,
    x: Value,
    mean: Value,
    scale: Value,
    weight: Option<Value>,
    bias: Option<Value>,
) -> Result<Value> {
    let centred = imp.b.binary(Binary::Sub, x, mean)?;
    let mut y = imp.b.binary(Binary::Mul, centred, scale)?;
    if let Some(weight) = weight {
        y = imp.b.binary(Binary::Mul, y, weight)?;
    }
    match bias {
        Some(bias) => imp.b.binary(Binary::Add, y, bias),
        None => Ok(y),
    }
}

/// Weight and bias in the dtype that is computed in.
fn affine(imp: &mut Importer, a: &Args, dtype: DType) -> Result<(Option<Value>, Option<Value>)> {
    let weight = imp.opt_value(a, "weight")?.map(|v| imp.b.cast(v, dtype));
    let bias = imp.opt_value(a, "bias")?.map(|v| imp.b.cast(v, dtype));
    Ok((weight, bias))
}

/// The dtype of saved statistics: that of the parameters, where they are wider than the input.
fn statistics_dtype(imp: &mut Importer, a: &Args, own: DType) -> Result<DType> {
    let mut dtype = own;
    for name in ["weight", "bias", "running_mean"] {
        if let Some(t) = a.opt_tensor(name)? {
            dtype = promote_types(dtype, imp.dtype_of(t));
        }
    }
    Ok(dtype)
}

/// The result, the mean and the inverse deviation over the last dimensions, which stay with size 1.
fn layer_norm(imp: &mut Importer, a: &Args) -> Result<[Value; 3]> {
    let input = imp.value(a, "input")?;
    let own = imp.b.dtype(input);
    let x = imp.b.cast(input, imp.compute_dtype(own));
    let over = last_dims(imp, a, x)?;
    let (mean, variance) = mean_and_variance(imp, x, &over)?;
    let scale = inverse_root(imp, variance, a.float_or("eps", 1e-5)?)?;
    let (weight, bias) = affine(imp, a, imp.b.dtype(x))?;
    let y = normalised(imp, x, mean, scale, weight, bias)?;
    let saved = statistics_dtype(imp, a, own)?;
    Ok([imp.b.cast(y, own), imp.b.cast(mean, saved), imp.b.cast(scale, saved)])
}

/// As many last dimensions as `normalized_shape` names.
fn last_dims(imp: &Importer, a: &Args, x: Value) -> Result<Vec<usize>> {
    let (rank, named) = (imp.b.rank(x), a.exprs("normalized_shape")?.len());
    let from = rank.checked_sub(named).ok_or_else(|| a.wrong("normalized_shape", "of the input's rank or less"))?;
    Ok((from..rank).collect())
}

/// x / sqrt(mean(x^2) + eps) * weight, without eps with that of the dtype computed in; and 1 / sqrt(...) in that dtype, over the last
/// dimensions, which stay with size 1.
fn rms_norm(imp: &mut Importer, a: &Args) -> Result<(Value, Value)> {
    let input = imp.value(a, "input")?;
    let own = imp.b.dtype(input);
    let x = imp.b.cast(input, imp.compute_dtype(own));
    let dtype = imp.b.dtype(x);
    let epsilon = if dtype == DType::F64 { f64::EPSILON } else { f64::from(f32::EPSILON) };
    let eps = a.opt_float("eps")?.unwrap_or(epsilon);
    let over = last_dims(imp, a, x)?;
    let square = imp.b.binary(Binary::Mul, x, x)?;
    let total = imp.b.reduce_keep(Combine::Sum, square, &over)?;
    let n = count(imp, x, &over, dtype);
    let mean = imp.b.binary(Binary::Div, total, n)?;
    let scale = inverse_root(imp, mean, eps)?;
    let mut y = imp.b.binary(Binary::Mul, x, scale)?;
    if let Some(weight) = imp.opt_value(a, "weight")? {
        let weight = imp.b.cast(weight, dtype);
        y = imp.b.binary(Binary::Mul, y, weight)?;
    }
    Ok((imp.b.cast(y, own), scale))
}

/// The result, and the mean and inverse deviation of each group, [n, groups].
fn group_norm(imp: &mut Importer, a: &Args, groups: &str) -> Result<[Value; 3]> {
    let input = imp.value(a, "input")?;
    let (own, shape, groups) = (imp.b.dtype(input), imp.b.shape(input).to_vec(), a.int(groups)?);
    let [n, channels, spatial @ ..] = shape.as_slice() else { return Err(a.wrong("input", "of rank 2 or more")) };
    imp.require_filled(&shape[1..], "group_norm");
    let whole = Cond::compare(Compare::Eq, &channels.modulo(&Expr::int(groups)), &Expr::int(0));
    imp.require(whole, format_args!("group_norm: {groups} groups of {channels} channels"));
    let group = channels.floor_div(&Expr::int(groups)).simplify(imp.b.ranges());
    let grouped = vec![n.clone(), Expr::int(groups), group, Expr::product(spatial)];
    let x = imp.b.cast(input, imp.compute_dtype(own));
    let x = imp.b.reshape(x, grouped.clone())?;
    let (mean, variance) = mean_and_variance(imp, x, &[2, 3])?;
    let scale = inverse_root(imp, variance, a.float_or("eps", 1e-5)?)?;
    let dtype = imp.b.dtype(x);
    let channel = vec![Expr::int(1), grouped[1].clone(), grouped[2].clone(), Expr::int(1)];
    let (weight, bias) = affine(imp, a, dtype)?;
    let mut shaped = |v: Option<Value>| v.map(|v| imp.b.reshape(v, channel.clone())).transpose();
    let (weight, bias) = (shaped(weight)?, shaped(bias)?);
    let y = normalised(imp, x, mean, scale, weight, bias)?;
    let y = imp.b.reshape(y, shape.clone())?;
    let saved = statistics_dtype(imp, a, own)?;
    let (mean, scale) = (drop(imp, mean, &[2, 3])?, drop(imp, scale, &[2, 3])?);
    Ok([imp.b.cast(y, own), imp.b.cast(mean, saved), imp.b.cast(scale, saved)])
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Training,
    Eval,
    /// As the argument `training` says.
    Given,
}

/// [n, channels, ...] shapes of what has one element a channel.
fn per_channel(imp: &mut Importer, v: Value, rank: usize) -> Result<Value> {
    let mut shape = vec![Expr::int(1); rank];
    shape[1] = imp.b.shape(v)[0].clone();
    imp.b.reshape(v, shape)
}

/// The result, and the mean and inverse deviation of each channel that were used; when not training, these are empty.
fn batch_norm(imp: &mut Importer, a: &Args, mode: Mode) -> Result<[Value; 3]> {
    let input = imp.value(a, "input")?;
    let (own, rank) = (imp.b.dtype(input), imp.b.rank(input));
    if imp.b.numel(input).is_int(0) {
        // Of nothing, whatever its rank.
        let empty = imp.b.full(own, vec![Expr::int(0)], Scalar::Int(0));
        return Ok([input, empty, empty]);
    }
    if rank < 2 {
        return Err(a.wrong("input", "of rank 2 or more"));
    }
    let eps = a.float("eps")?;
    let x = imp.b.cast(input, imp.compute_dtype(own));
    let dtype = imp.b.dtype(x);
    let (weight, bias) = affine(imp, a, dtype)?;
    let mut shaped = |v: Option<Value>| v.map(|v| per_channel(imp, v, rank)).transpose();
    let (weight, bias) = (shaped(weight)?, shaped(bias)?);
    let training = match mode {
        Mode::Training => true,
        Mode::Eval => false,
        Mode::Given => a.bool_or("training", true)?,
    };
    let saved = statistics_dtype(imp, a, own)?;
    if !training {
        let (mean, variance) = (imp.value(a, "running_mean")?, imp.value(a, "running_var")?);
        let (mean, variance) = (imp.b.cast(mean, dtype), imp.b.cast(variance, dtype));
        let scale = inverse_root(imp, variance, eps)?;
        let (mean, scale) = (per_channel(imp, mean, rank)?, per_channel(imp, scale, rank)?);
        let y = normalised(imp, x, mean, scale, weight, bias)?;
        let empty = imp.b.full(saved, vec![Expr::int(0)], Scalar::Int(0));
        return Ok([imp.b.cast(y, own), empty, empty]);
    }
    let over: Vec<usize> = (0..rank).filter(|d| *d != 1).collect();
    // Corrected, for running statistics of what is far from 0.
    let n = count(imp, x, &over, dtype);
    let Moments { mean, squares } = moments(imp, x, &over)?;
    let variance = imp.b.binary(Binary::Div, squares, n)?;
    let scale = inverse_root(imp, variance, eps)?;
    let y = normalised(imp, x, mean, scale, weight, bias)?;
    let (mean, scale, variance) = (drop(imp, mean, &over)?, drop(imp, scale, &over)?, drop(imp, variance, &over)?);
    let elements = imp.b.numel(x);
    track(imp, a, mean, variance, n, &elements)?;
    Ok([imp.b.cast(y, own), imp.b.cast(mean, saved), imp.b.cast(scale, saved)])
}

/// Moves the running statistics, where there are any, towards a batch's mean and its variance without bias; a batch without elements leaves
/// them as they are.
fn track(imp: &mut Importer, a: &Args, mean: Value, variance: Value, n: Value, elements: &Expr) -> Result<()> {
    let dtype = imp.b.dtype(mean);
    let momentum = a.float("momentum")?;
    let less = imp.b.binary_scalar(Binary::Sub, n, Scalar::Int(1))?;
    let factor = imp.b.binary(Binary::Div, n, less)?;
    let unbiased = imp.b.binary(Binary::Mul, variance, factor)?;
    for (name, new) in [("running_mean", mean), ("running_var", unbiased)] {
        let Some(t) = a.opt_tensor(name)? else { continue };
        let stored = imp.read(t)?;
        let old = imp.b.cast(stored, dtype);
        let kept = imp.b.binary_scalar(Binary::Mul, old, Scalar::Float(1.0 - momentum))?;
        let added = imp.b.binary_scalar(Binary::Mul, new, Scalar::Float(momentum))?;
        let mut updated = imp.b.binary(Binary::Add, kept, added)?;
        if imp.b.ranges().min(elements).is_none_or(|n| n <= 0) {
            let elements = imp.b.size_value(elements.clone());
            let some = imp.b.cast(elements, DType::Bool);
            updated = imp.b.select(some, updated, old)?;
        }
        imp.write_cast(t, updated)?;
    }
    Ok(())
}

/// With the new running statistics as results, where others write them.
fn functional(imp: &mut Importer, a: &Args, mode: Mode) -> Result<Val> {
    let mut own = a.clone();
    let mut statistics = Vec::new();
    for (name, val) in &mut own.values {
        if let ("running_mean" | "running_var", Val::Tensor(t)) = (name.as_str(), &val) {
            // These forms leave the rounding to the copy that the program makes.
            let value = imp.read(*t)?;
            let dtype = imp.compute_dtype(imp.b.dtype(value));
            let value = imp.b.cast(value, dtype);
            let copy = imp.new_tensor(value, dtype);
            statistics.push(copy);
            *val = Val::Tensor(copy);
        }
    }
    let saved = statistics_dtype(imp, a, imp.dtype_of(a.tensor("input")?))?;
    let [y, mean, scale] = batch_norm(imp, &own, mode)?;
    let (mean, scale) = (imp.b.cast(mean, saved), imp.b.cast(scale, saved));
    let mut results: Vec<Val> = [y, mean, scale].map(Val::Value).to_vec();
    if mode == Mode::Training {
        results.push(Val::Value(imp.b.full(DType::U8, vec![Expr::int(0)], Scalar::Int(0))));
    }
    results.extend(statistics.into_iter().map(Val::Tensor));
    Ok(Val::List(results))
}

/// With the empty tensor that the fused forms return for backward.
fn reserved(imp: &mut Importer, all: [Value; 3]) -> Result<Val> {
    let empty = imp.b.full(DType::U8, vec![Expr::int(0)], Scalar::Int(0));
    Ok(all.into_iter().chain([empty]).collect::<Vec<_>>().into())
}

/// Batch norm of each instance by itself; running statistics move by the mean over the instances.
fn instance_norm(imp: &mut Importer, a: &Args) -> Result<Val> {
    if !a.bool_or("use_input_stats", true)? {
        return batch_norm(imp, a, Mode::Eval).map(|[y, ..]| y.into());
    }
    let input = imp.value(a, "input")?;
    let (own, shape, rank) = (imp.b.dtype(input), imp.b.shape(input).to_vec(), imp.b.rank(input));
    if rank < 3 {
        return Err(a.wrong("input", "of rank 3 or more"));
    }
    let x = imp.b.cast(input, imp.compute_dtype(own));
    let dtype = imp.b.dtype(x);
    let over: Vec<usize> = (2..rank).collect();
    let (mean, variance) = mean_and_variance(imp, x, &over)?;
    let scale = inverse_root(imp, variance, a.float("eps")?)?;
    let (weight, bias) = affine(imp, a, dtype)?;
    let mut shaped = |v: Option<Value>| v.map(|v| per_channel(imp, v, rank)).transpose();
    let (weight, bias) = (shaped(weight)?, shaped(bias)?);
    let y = normalised(imp, x, mean, scale, weight, bias)?;
    if a.has("running_mean") || a.has("running_var") {
        let n = count(imp, x, &over, dtype);
        let batch = size_as(imp, &shape[0], dtype);
        let mut averaged = |v: Value| {
            let v = drop(imp, v, &over)?;
            let total = imp.b.reduce(Combine::Sum, v, &[0])?;
            imp.b.binary(Binary::Div, total, batch)
        };
        let (mean, variance) = (averaged(mean)?, averaged(variance)?);
        let elements = imp.b.numel(x);
        track(imp, a, mean, variance, n, &elements)?;
    }
    Ok(imp.b.cast(y, own).into())
}
