//! Losses: formulas of input and target, in float32 or wider, then their mean, sum, or each.

use douse_core::pointwise::{Binary, Combine};
use douse_core::sym::Expr;
use douse_core::{DType, Result, Scalar};
use douse_ir::Value;

use super::args::{Args, Val};
use super::formula::Formula;
use super::importer::{Importer, Row};
use super::pointwise::float_dtype;
use super::reduce::size_as;
use super::softmax::log_softmax_of;

pub const ROWS: &[Row] = &[
    ("aten.mse_loss.default", |i, a| of_pair(i, a, |x, t| (x - t).square())),
    ("aten.l1_loss.default", l1),
    ("aten.smooth_l1_loss.default", smooth_l1),
    ("aten.huber_loss.default", huber),
    ("aten.kl_div.default", kl_div),
    ("aten.poisson_nll_loss.default", poisson_nll),
    ("aten.soft_margin_loss.default", |i, a| of_pair(i, a, |x, t| (-t * x).exp().log1p())),
    ("aten.hinge_embedding_loss.default", hinge_embedding),
    ("aten.margin_ranking_loss.default", margin_ranking),
    ("aten.cosine_embedding_loss.default", cosine_embedding),
    ("aten.triplet_margin_loss.default", triplet_margin),
    ("aten.binary_cross_entropy.default", binary_cross_entropy),
    ("aten.binary_cross_entropy_with_logits.default", binary_cross_entropy_with_logits),
    ("aten.multi_margin_loss.default", multi_margin),
    ("aten.multilabel_margin_loss.default", multilabel_margin),
    ("aten.nll_loss.default", nll),
    ("aten.nll_loss2d.default", nll),
    ("aten.nll_loss_nd.default", nll),
    ("aten.nll_loss_forward.default", nll_forward),
    ("aten.nll_loss2d_forward.default", nll_forward),
    ("aten.cross_entropy_loss.default", cross_entropy),
];

#[derive(Clone, Copy, PartialEq)]
enum Reduction {
    Each,
    Mean,
    Sum,
}

fn reduction(a: &Args) -> Result<Reduction> {
    Ok(match a.int_or("reduction", 1)? {
        0 => Reduction::Each,
        1 => Reduction::Mean,
        2 => Reduction::Sum,
        _ => return Err(a.wrong("reduction", "none, mean or sum")),
    })
}

/// The sum of all elements.
fn total(imp: &mut Importer, x: Value) -> Result<Value> {
    let dims: Vec<usize> = (0..imp.b.rank(x)).collect();
    imp.b.reduce(Combine::Sum, x, &dims)
}

/// Losses of elements, reduced as the operator asks, in a dtype.
fn finish(imp: &mut Importer, a: &Args, losses: &Formula, dtype: DType) -> Result<Val> {
    let mut x = losses.build(&mut imp.b)?;
    let reduction = reduction(a)?;
    if reduction != Reduction::Each {
        let numel = imp.b.numel(x);
        x = total(imp, x)?;
        if reduction == Reduction::Mean {
            let count = size_as(imp, &numel, imp.b.dtype(x));
            x = imp.b.binary(Binary::Div, x, count)?;
        }
    }
    Ok(imp.b.cast(x, dtype).into())
}

fn of_pair(imp: &mut Importer, a: &Args, f: impl Fn(&Formula, &Formula) -> Formula) -> Result<Val> {
    let ([x, target], dtype) = imp.wide(a, ["self", "target"])?;
    finish(imp, a, &f(&x, &target), dtype)
}

/// Of integers, in their dtype; their sum is int64, and they have no mean.
fn l1(imp: &mut Importer, a: &Args) -> Result<Val> {
    let ([x, target], dtype, _) = imp.exact(a, ["self", "target"])?;
    let difference = x - target;
    if dtype.is_float() {
        return finish(imp, a, &difference.abs(), dtype);
    }
    if !dtype.is_int() {
        return Err(a.unsupported(format!("{dtype}")));
    }
    let distance = if dtype.is_signed() { difference.abs() } else { difference };
    match reduction(a)? {
        Reduction::Each => finish(imp, a, &distance, dtype),
        Reduction::Sum => finish(imp, a, &distance.cast(DType::I64), DType::I64),
        Reduction::Mean => Err(a.unsupported("a mean of integers")),
    }
}

/// A square within beta of the target, and a line beyond.
fn smooth_l1(imp: &mut Importer, a: &Args) -> Result<Val> {
    let beta = a.float_or("beta", 1.0)?;
    of_pair(imp, a, |x, t| {
        let d = (x - t).abs();
        if beta == 0.0 { d } else { d.lt(beta).select(&d * 0.5 * &d / beta, &d - 0.5 * beta) }
    })
}

fn huber(imp: &mut Importer, a: &Args) -> Result<Val> {
    let delta = a.float_or("delta", 1.0)?;
    of_pair(imp, a, |x, t| {
        let d = (x - t).abs();
        d.le(delta).select(&d * 0.5 * &d, (&d - 0.5 * delta) * delta)
    })
}

fn kl_div(imp: &mut Importer, a: &Args) -> Result<Val> {
    let log_target = a.bool_or("log_target", false)?;
    of_pair(imp, a, |x, t| {
        if log_target {
            t.exp() * (t - x)
        } else {
            let entropy = t.is_nan().select(t, t.eq(0.0).select(0.0, t * t.log()));
            entropy - t * x
        }
    })
}

/// With Stirling's approximation of the target's factorial, for targets above 1, where `full` asks for it.
fn poisson_nll(imp: &mut Importer, a: &Args) -> Result<Val> {
    let ([x, t], dtype, compute) = imp.exact(a, ["input", "target"])?;
    let product = (&t * &x).cast(compute);
    let (x, t) = (x.cast(compute), t.cast(compute));
    let mut loss =
        if a.bool_or("log_input", true)? { x.exp() - product } else { &x - &t * (&x + a.float_or("eps", 1e-8)?).log() };
    if a.bool_or("full", false)? {
        let stirling = &t * t.log() - &t + (&t * (2.0 * std::f64::consts::PI)).log() * 0.5;
        loss = loss + t.le(1.0).select(0.0, stirling);
    }
    finish(imp, a, &loss, float_dtype(dtype))
}

/// x where the target is 1, the rest of the margin where it is -1.
fn hinge_embedding(imp: &mut Importer, a: &Args) -> Result<Val> {
    let margin = a.float_or("margin", 1.0)?;
    let dtype = imp.result_type(a, &["self", "target"])?;
    if !dtype.is_float() {
        return Err(a.unsupported(format!("{dtype}")));
    }
    of_pair(imp, a, |x, t| {
        let rest = (margin - x).maximum(0.0);
        t.ne(1.0).select(rest, 0.0) + t.ne(-1.0).select(x, 0.0)
    })
}

fn margin_ranking(imp: &mut Importer, a: &Args) -> Result<Val> {
    let ([x, y, t], dtype, compute) = imp.exact(a, ["input1", "input2", "target"])?;
    let product = (-t * (x - y)).cast(compute);
    let loss = (product + a.float_or("margin", 0.0)?).maximum(0.0);
    finish(imp, a, &loss, float_dtype(dtype))
}

fn cosine_embedding(imp: &mut Importer, a: &Args) -> Result<Val> {
    /// Keeps the cosine of zeros finite.
    const EPSILON: f64 = 1e-12;
    let margin = a.float_or("margin", 0.0)?;
    let ([x, y], dtype, compute) = imp.exact(a, ["input1", "input2"])?;
    let [x, y] = if dtype.is_bool() { [x, y].map(|f| f.cast(DType::I64)) } else { [x, y] };
    // Sums of integers are int64.
    let summed = if dtype.is_float() { compute } else { DType::I64 };
    let rows = imp.shape_of(a.tensor("target")?)?.len();
    let mut sum = |f: Formula| -> Result<Formula> {
        let value = f.cast(summed).build(&mut imp.b)?;
        Ok(Formula::from(imp.b.reduce(Combine::Sum, value, &[rows.min(1)])?).cast(compute))
    };
    let (dot, xx, yy) = (sum(&x * &y)?, sum(x.square())?, sum(y.square())?);
    let cosine = dot / ((xx + EPSILON) * (yy + EPSILON)).sqrt();
    let target = imp.value(a, "target")?;
    let zero = cosine.like(0.0);
    let target = Formula::from(target).cast(compute);
    let loss =
        target.eq(1.0).select(1.0 - &cosine, &zero) + target.eq(-1.0).select((&cosine - margin).maximum(0.0), &zero);
    finish(imp, a, &loss, float_dtype(dtype))
}

/// The p-norm of x - y + eps along the last dimension, in a float dtype.
fn distance(imp: &mut Importer, x: &Formula, y: &Formula, p: f64, eps: f64, compute: DType) -> Result<Formula> {
    let d = (x - y).cast(compute) + eps;
    let powers = match p {
        1.0 => d.abs(),
        2.0 => d.square(),
        p if p.is_infinite() => d.abs(),
        p => d.abs().pow(p),
    };
    let powers = powers.build(&mut imp.b)?;
    let last = imp.b.rank(powers).saturating_sub(1);
    let combine = if p == f64::INFINITY { Combine::Max } else { Combine::Sum };
    let sum = Formula::from(imp.b.reduce(combine, powers, &[last])?);
    Ok(match p {
        1.0 => sum,
        2.0 => sum.sqrt(),
        p if p.is_infinite() => sum,
        p => sum.pow(1.0 / p),
    })
}

fn triplet_margin(imp: &mut Importer, a: &Args) -> Result<Val> {
    let ([anchor, positive, negative], dtype, compute) = imp.exact(a, ["anchor", "positive", "negative"])?;
    let (margin, p, eps) = (a.float_or("margin", 1.0)?, a.float_or("p", 2.0)?, a.float_or("eps", 1e-6)?);
    if p == 0.0 || p == f64::NEG_INFINITY {
        return Err(a.unsupported(format!("a norm of order {p}")));
    }
    let near = distance(imp, &anchor, &positive, p, eps, compute)?;
    let mut far = distance(imp, &anchor, &negative, p, eps, compute)?;
    if a.bool_or("swap", false)? {
        let other = distance(imp, &positive, &negative, p, eps, compute)?;
        far = far.minimum(other);
    }
    finish(imp, a, &(near - far + margin).maximum(0.0), float_dtype(dtype))
}

/// A `weight` argument as a factor.
fn weighted(imp: &mut Importer, a: &Args, losses: Formula, dtype: DType) -> Result<Formula> {
    if !a.has("weight") {
        return Ok(losses);
    }
    Ok(losses * Formula::from(imp.wide_operand(a, "weight", dtype)?))
}

/// Logarithms are cut at -100. The inputs must be probabilities.
fn binary_cross_entropy(imp: &mut Importer, a: &Args) -> Result<Val> {
    let ([x, t], dtype) = imp.wide(a, ["self", "target"])?;
    let valid = x.ge(0.0).and(x.le(1.0)).build(&mut imp.b)?;
    let dims: Vec<usize> = (0..imp.b.rank(valid)).collect();
    let valid = imp.b.reduce(Combine::And, valid, &dims)?;
    imp.b.assert(valid, "all elements of input should be between 0 and 1")?;
    let loss = (&t - 1.0) * (-&x).log1p().maximum(-100.0) - &t * x.log().maximum(-100.0);
    let loss = weighted(imp, a, loss, dtype)?;
    finish(imp, a, &loss, dtype)
}

fn binary_cross_entropy_with_logits(imp: &mut Importer, a: &Args) -> Result<Val> {
    let ([x, t], dtype) = imp.wide(a, ["self", "target"])?;
    let mut log_sigmoid = x.minimum(0.0) - (-x.abs()).exp().log1p();
    if a.has("pos_weight") {
        let pos_weight = Formula::from(imp.wide_operand(a, "pos_weight", dtype)?);
        log_sigmoid = ((pos_weight - 1.0) * &t + 1.0) * log_sigmoid;
    }
    let loss = weighted(imp, a, (1.0 - &t) * &x - log_sigmoid, dtype)?;
    finish(imp, a, &loss, dtype)
}

/// The dimension of the classes.
fn class_dim(rank: usize) -> usize {
    usize::from(rank > 1)
}

/// Targets as indices of `x`'s shape, with size 1 in the dimension of the classes.
fn checked_target(imp: &mut Importer, target: Value, classes: &Expr, dim: usize) -> Result<Value> {
    let message = imp.message("a target is out of bounds");
    let index = imp.b.check(target, classes.clone(), false, message)?;
    imp.b.unsqueeze(index, dim)
}

/// Losses of elements, and their weights: 0 where the target is `ignore_index`.
fn picked(imp: &mut Importer, a: &Args, x: Value) -> Result<(Value, Value)> {
    let target = imp.value(a, "target")?;
    let target = imp.b.cast(target, DType::I64);
    let dim = class_dim(imp.b.rank(x));
    let classes = imp.b.shape(x)[dim].clone();
    let ignored = match a.opt_expr("ignore_index")? {
        Some(index) => imp.b.size_value(index),
        None => imp.b.full(DType::I64, vec![], Scalar::Int(-100)),
    };
    let ignored = imp.b.binary(Binary::Eq, target, ignored)?;
    let zero = imp.b.full_like(target, Scalar::Int(0));
    let target = imp.b.select(ignored, zero, target)?;
    let index = checked_target(imp, target, &classes, dim)?;
    let chosen = imp.b.gather(x, dim, index)?;
    let chosen = imp.b.squeeze(chosen, dim)?;
    let compute = imp.b.dtype(x);
    let weight = match imp.opt_value(a, "weight")? {
        None => imp.b.full_like(chosen, Scalar::Int(1)),
        Some(weight) => {
            let weight = imp.b.cast(weight, compute);
            let flat = imp.b.squeeze(index, dim)?;
            imp.b.take(weight, 0, flat)?
        }
    };
    let ignored = Formula::from(ignored);
    let weight = ignored.select(0.0, Formula::from(weight)).build(&mut imp.b)?;
    // Ignored elements do not count, even where the input is infinite.
    let chosen = Formula::from(chosen);
    let loss = ignored.select(0.0, -chosen * Formula::from(weight)).build(&mut imp.b)?;
    Ok((loss, weight))
}

/// The loss in the input's dtype, and the weight that a mean divides by.
fn nll_of(imp: &mut Importer, a: &Args, x: Value) -> Result<(Value, Value)> {
    let (loss, weight) = picked(imp, a, x)?;
    let weight = total(imp, weight)?;
    let loss = match reduction(a)? {
        Reduction::Each => loss,
        Reduction::Sum => total(imp, loss)?,
        Reduction::Mean => {
            let sum = total(imp, loss)?;
            imp.b.binary(Binary::Div, sum, weight)?
        }
    };
    Ok((loss, weight))
}

/// The input, widened; a 0-d tensor counts as a vector of one.
fn wide_input(imp: &mut Importer, a: &Args) -> Result<(Value, DType)> {
    let mut x = imp.value(a, "self")?;
    let dtype = imp.b.dtype(x);
    if imp.b.rank(x) == 0 {
        x = imp.b.reshape(x, vec![Expr::int(1)])?;
    }
    Ok((imp.b.cast(x, imp.compute_dtype(dtype)), dtype))
}

fn nll(imp: &mut Importer, a: &Args) -> Result<Val> {
    let (x, dtype) = wide_input(imp, a)?;
    let (loss, _) = nll_of(imp, a, x)?;
    Ok(imp.b.cast(loss, dtype).into())
}

fn nll_forward(imp: &mut Importer, a: &Args) -> Result<Val> {
    let (x, dtype) = wide_input(imp, a)?;
    if reduction(a)? == Reduction::Each {
        // PyTorch leaves the total weight as it happens to be.
        return Err(a.unsupported("the weight of losses that are not reduced"));
    }
    let (loss, weight) = nll_of(imp, a, x)?;
    Ok((imp.b.cast(loss, dtype), imp.b.cast(weight, dtype)).into())
}

/// A weight for each class, in the shape that broadcasts over an input.
fn class_weights(imp: &mut Importer, a: &Args, x: Value) -> Result<Option<Formula>> {
    let Some(weight) = imp.opt_value(a, "weight")? else { return Ok(None) };
    let weight = imp.b.cast(weight, imp.b.dtype(x));
    let mut shape = vec![Expr::int(1); imp.b.rank(x)];
    shape[class_dim(imp.b.rank(x))] = imp.b.numel(weight);
    Ok(Some(imp.b.reshape(weight, shape)?.into()))
}

fn cross_entropy(imp: &mut Importer, a: &Args) -> Result<Val> {
    let (x, dtype) = wide_input(imp, a)?;
    let dim = class_dim(imp.b.rank(x));
    let logs = log_softmax_of(imp, x, dim)?;
    let smoothing = a.float_or("label_smoothing", 0.0)?;
    let target = a.tensor("target")?;
    if imp.dtype_of(target).is_float() {
        return probabilities(imp, a, logs, smoothing, dtype);
    }
    let (loss, weight) = nll_of(imp, a, logs)?;
    if smoothing == 0.0 {
        return Ok(imp.b.cast(loss, dtype).into());
    }
    let weights = class_weights(imp, a, logs)?;
    let all = weights.map_or_else(|| Formula::from(logs), |w| Formula::from(logs) * w).build(&mut imp.b)?;
    let all = imp.b.reduce(Combine::Sum, all, &[dim])?;
    let target = imp.value(a, "target")?;
    let index = Scalar::Int(a.int_or("ignore_index", -100)?);
    let smooth = Formula::from(target).eq(index).select(0.0, -Formula::from(all)).build(&mut imp.b)?;
    let smooth = match reduction(a)? {
        Reduction::Each => smooth,
        Reduction::Sum => total(imp, smooth)?,
        Reduction::Mean => {
            let sum = total(imp, smooth)?;
            imp.b.binary(Binary::Div, sum, weight)?
        }
    };
    let classes = size_as(imp, &imp.b.shape(logs)[dim].clone(), imp.b.dtype(logs));
    let share = smoothing / Formula::from(classes);
    imp.rounded(&(Formula::from(loss) * (1.0 - smoothing) + Formula::from(smooth) * share), dtype)
}

/// Cross entropy with a probability for each class.
fn probabilities(imp: &mut Importer, a: &Args, logs: Value, smoothing: f64, dtype: DType) -> Result<Val> {
    let dim = class_dim(imp.b.rank(logs));
    let compute = imp.b.dtype(logs);
    let target = imp.value(a, "target")?;
    let mut target = Formula::from(imp.b.cast(target, compute));
    let classes = imp.b.shape(logs)[dim].clone();
    if smoothing > 0.0 {
        let classes = Formula::from(size_as(imp, &classes, compute));
        target = target * (1.0 - smoothing) + smoothing / classes;
    }
    let mut product = Formula::from(logs) * target;
    if let Some(weights) = class_weights(imp, a, logs)? {
        product = product * weights;
    }
    let product = product.build(&mut imp.b)?;
    let result = match reduction(a)? {
        Reduction::Each => -Formula::from(imp.b.reduce(Combine::Sum, product, &[dim])?),
        Reduction::Sum => -Formula::from(total(imp, product)?),
        Reduction::Mean => {
            let rows = imp.b.numel(logs).floor_div(&classes);
            let rows = Formula::from(size_as(imp, &rows, compute));
            -Formula::from(total(imp, product)?) / rows
        }
    };
    imp.rounded(&result, dtype)
}

/// For each row the sum, over the other classes, of what they come within the margin of the target; over the number of classes.
fn multi_margin(imp: &mut Importer, a: &Args) -> Result<Val> {
    let (x, dtype) = wide_input(imp, a)?;
    let (p, margin) = (a.float_or("p", 1.0)?, a.float_or("margin", 1.0)?);
    let dim = imp.b.rank(x) - 1;
    let classes = imp.b.shape(x)[dim].clone();
    let target = imp.value(a, "target")?;
    let given = imp.b.shape(target).to_vec();
    let mut rows = imp.b.shape(x).to_vec();
    rows.pop();
    let target = imp.b.cast(target, DType::I64);
    let target = imp.b.reshape(target, rows)?;
    let index = checked_target(imp, target, &classes, dim)?;
    let own = imp.b.gather(x, dim, index)?;
    let at = imp.b.iota(vec![classes.clone()], Expr::loop_var(0));
    let other = imp.b.binary(Binary::Ne, index, at)?;
    let short = (margin - Formula::from(own) + Formula::from(x)).maximum(0.0);
    let mut losses = match p {
        1.0 => short,
        2.0 => short.square(),
        _ => return Err(a.wrong("p", "1 or 2")),
    };
    if let Some(weight) = imp.opt_value(a, "weight")? {
        let weight = imp.b.cast(weight, imp.b.dtype(x));
        let flat = imp.b.squeeze(index, dim)?;
        let own = imp.b.take(weight, 0, flat)?;
        losses = losses * Formula::from(imp.b.unsqueeze(own, dim)?);
    }
    let losses = Formula::from(other).select(losses, 0.0).build(&mut imp.b)?;
    let sum = imp.b.reduce(Combine::Sum, losses, &[dim])?;
    let sum = imp.b.reshape(sum, given)?;
    let count = size_as(imp, &classes, imp.b.dtype(sum));
    finish(imp, a, &(Formula::from(sum) / Formula::from(count)), dtype)
}

/// Targets are lists of classes, ended by the first -1. The sum, over pairs of a target and a class that is none, of what the class comes within
/// 1 of the target; over the number of classes.
fn multilabel_margin(imp: &mut Importer, a: &Args) -> Result<Val> {
    let (x, dtype) = wide_input(imp, a)?;
    let dim = imp.b.rank(x) - 1;
    let classes = imp.b.shape(x)[dim].clone();
    let target = imp.value(a, "target")?;
    let target = imp.b.cast(target, DType::I64);
    let target = imp.b.reshape(target, imp.b.shape(x).to_vec())?;
    let listed = Formula::from(target).ne(Scalar::Int(-1)).build(&mut imp.b)?;
    let listed = imp.b.cast(listed, DType::I64);
    let listed = imp.b.scan(Combine::Prod, listed, dim)?;
    let listed = imp.b.cast(listed, DType::Bool);
    let zero = imp.b.full_like(target, Scalar::Int(0));
    let safe = imp.b.select(listed, target, zero)?;
    let message = imp.message("a target is out of bounds");
    let index = imp.b.check(safe, classes.clone(), false, message)?;
    let own = imp.b.gather(x, dim, index)?;
    // Pairs: the place in the list before the class.
    let (own, index, listed) =
        (imp.b.unsqueeze(own, dim + 1)?, imp.b.unsqueeze(index, dim + 1)?, imp.b.unsqueeze(listed, dim + 1)?);
    let class = imp.b.iota(vec![classes.clone()], Expr::loop_var(0));
    let named = Formula::from(index).eq(Formula::from(class)).and(Formula::from(listed)).build(&mut imp.b)?;
    let is_target = imp.b.reduce_keep(Combine::Or, named, &[dim])?;
    let each = imp.b.unsqueeze(x, dim)?;
    let counts = Formula::from(listed).and(Formula::from(is_target).not());
    let short = (1.0 - Formula::from(own) + Formula::from(each)).maximum(0.0);
    let losses = counts.select(short, 0.0).build(&mut imp.b)?;
    let sum = imp.b.reduce(Combine::Sum, losses, &[dim, dim + 1])?;
    let count = size_as(imp, &classes, imp.b.dtype(sum));
    finish(imp, a, &(Formula::from(sum) / Formula::from(count)), dtype)
}
