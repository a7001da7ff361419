//! Random draws: words of the Philox generator made into numbers, as cuRAND and PyTorch's CUDA kernels make them.

use std::f64::consts::PI;

use douse_core::pointwise::Binary;
use douse_core::sym::Expr;
use douse_core::{DType, Error, Result, Scalar};
use douse_ir::Value;

use super::args::{Args, Val};
use super::formula::Formula;
use super::importer::{Importer, Row};
use super::tensor::Tensor;

pub const ROWS: &[Row] = &[
    ("aten.rand.default", |i, a| created(i, a, Draw::Unit)),
    ("aten.rand.generator", |i, a| created(i, a, Draw::Unit)),
    ("aten.rand_like.default", |i, a| like(i, a, Draw::Unit)),
    ("aten.rand_like.generator", |i, a| like(i, a, Draw::Unit)),
    ("aten.randn.default", |i, a| created(i, a, Draw::Normal)),
    ("aten.randn.generator", |i, a| created(i, a, Draw::Normal)),
    ("aten.randn_like.default", |i, a| like(i, a, Draw::Normal)),
    ("aten.randn_like.generator", |i, a| like(i, a, Draw::Normal)),
    ("aten.randint.default", randint),
    ("aten.randint.generator", randint),
    ("aten.randint.low", randint),
    ("aten.randint.low_generator", randint),
    ("aten.randint_like.default", randint),
    ("aten.randint_like.low_dtype", randint),
    ("aten.randint_like.generator", randint),
    ("aten.randint_like.low_generator_dtype", randint),
    ("aten.randperm.default", randperm),
    ("aten.randperm.generator", randperm),
    ("aten.random.default", random),
    ("aten.random.to", random),
    ("aten.random.from", random),
    ("aten.uniform.default", uniform),
    ("aten.normal.float_float", normal_of),
    ("aten.normal.Tensor_float", normal_of),
    ("aten.normal.float_Tensor", normal_of),
    ("aten.normal.Tensor_Tensor", normal_of),
    ("aten.normal_functional.default", normal_of),
    ("aten.normal_.default", |i, a| normal_of(i, a).and_then(|v| write(i, a, v))),
    ("aten.log_normal.default", |i, a| {
        let (mean, std) = (a.float_or("mean", 1.0)?, a.float_or("std", 2.0)?);
        of_draw(i, a, Draw::Normal, |z| (z * std + mean).exp())
    }),
    ("aten.exponential.default", |i, a| {
        let rate = a.float_or("lambd", 1.0)?;
        of_draw(i, a, Draw::OpenUnit, |u| -u.log() / rate)
    }),
    ("aten.geometric.default", |i, a| {
        let scale = 1.0 / (-a.float("p")?).ln_1p();
        // A draw of 1 would give 0 trials.
        of_draw(i, a, Draw::OpenUnit, |u| (u.log() * scale).ceil().maximum(1.0))
    }),
    ("aten.cauchy.default", |i, a| {
        let (median, sigma) = (a.float_or("median", 0.0)?, a.float_or("sigma", 1.0)?);
        of_draw(i, a, Draw::OpenUnit, |u| ((u - 0.5) * PI).tan() * sigma + median)
    }),
    ("aten.bernoulli.default", bernoulli),
    ("aten.bernoulli.p", bernoulli),
    ("aten.bernoulli.Tensor", bernoulli),
    ("aten.bernoulli_.float", |i, a| bernoulli(i, a).and_then(|v| write(i, a, v))),
    ("aten.multinomial.default", multinomial),
    ("aten.dropout.default", |i, a| dropout(i, a, false)),
    ("aten.dropout_.default", |i, a| dropout(i, a, false).and_then(|v| write_input(i, a, v))),
    ("aten.feature_dropout.default", |i, a| dropout(i, a, true)),
    ("aten.feature_dropout_.default", |i, a| dropout(i, a, true).and_then(|v| write_input(i, a, v))),
    ("aten.alpha_dropout.default", |i, a| alpha_dropout(i, a, false)),
    ("aten.alpha_dropout_.default", |i, a| alpha_dropout(i, a, false).and_then(|v| write(i, a, v))),
    ("aten.feature_alpha_dropout.default", |i, a| alpha_dropout(i, a, true)),
    ("aten.feature_alpha_dropout_.default", |i, a| alpha_dropout(i, a, true).and_then(|v| write_input(i, a, v))),
    ("aten.native_dropout.default", native_dropout),
    ("aten.rrelu.default", rrelu),
    ("aten.rrelu_with_noise_functional.default", rrelu_in_use),
];

/// 2^-32 and 2^-53: what a word, or 53 bits, are scaled by.
const UNIT_32: f64 = 1.0 / 4_294_967_296.0;
const UNIT_53: f64 = 1.0 / 9_007_199_254_740_992.0;

/// What is drawn: values of a shape, in float32 or float64.
#[derive(Clone, Copy, PartialEq)]
enum Draw {
    /// Uniform in [0, 1).
    Unit,
    /// Uniform in (0, 1].
    OpenUnit,
    /// Mean 0 and deviation 1.
    Normal,
}

fn draw(imp: &mut Importer, draw: Draw, shape: Vec<Expr>, dtype: DType) -> Result<Value> {
    match draw {
        Draw::Unit => unit(imp, shape, dtype),
        Draw::OpenUnit => open_unit(imp, shape, dtype),
        Draw::Normal => normal(imp, shape, dtype),
    }
}

/// The dtype that draws for a dtype are made in.
fn drawn(dtype: DType) -> DType {
    if dtype == DType::F64 { DType::F64 } else { DType::F32 }
}

/// In (0, 1], from one word or two.
fn half_open(imp: &mut Importer, words: &[Value], dtype: DType) -> Result<Formula> {
    if dtype != DType::F64 {
        return Ok(Formula::from(words[0]).cast(DType::F32) * UNIT_32 + UNIT_32 / 2.0);
    }
    let high = imp.b.binary_scalar(Binary::ShiftLeft, words[1], Scalar::Int(21))?;
    Ok(Formula::from(words[0]).xor(Formula::from(high)).cast(DType::F64) * UNIT_53 + UNIT_53 / 2.0)
}

/// Uniform in (0, 1].
fn open_unit(imp: &mut Importer, shape: Vec<Expr>, dtype: DType) -> Result<Value> {
    let words = imp.b.random(shape, if dtype == DType::F64 { 2 } else { 1 });
    half_open(imp, &words, dtype)?.build(&mut imp.b)
}

/// Uniform in [0, 1): 1 becomes 0.
fn unit(imp: &mut Importer, shape: Vec<Expr>, dtype: DType) -> Result<Value> {
    let u = Formula::from(open_unit(imp, shape, dtype)?);
    u.eq(1.0).select(0.0, &u).build(&mut imp.b)
}

/// Mean 0 and deviation 1, by Box and Muller's transform.
fn normal(imp: &mut Importer, shape: Vec<Expr>, dtype: DType) -> Result<Value> {
    let (radius, angle) = if dtype == DType::F64 {
        let words = imp.b.random(shape, 4);
        (half_open(imp, &words[..2], dtype)?, half_open(imp, &words[2..], dtype)? * (2.0 * PI))
    } else {
        let words = imp.b.random(shape, 2);
        let turn = f64::from(UNIT_32 as f32 * (2.0 * std::f32::consts::PI));
        (half_open(imp, &words[..1], dtype)?, Formula::from(words[1]).cast(dtype) * turn + turn / 2.0)
    };
    ((radius.log() * -2.0).sqrt() * angle.sin()).build(&mut imp.b)
}

fn made(imp: &mut Importer, a: &Args, kind: Draw, shape: Vec<Expr>, dtype: DType) -> Result<Val> {
    if !dtype.is_float() {
        return Err(a.unsupported(format!("{dtype}")));
    }
    let value = draw(imp, kind, shape, drawn(dtype))?;
    if drawn(dtype) == dtype {
        return Ok(value.into());
    }
    // What rounds up to the end of [0, 1) becomes its begin.
    let narrow = Formula::from(imp.b.cast(value, dtype));
    let result = if kind == Draw::Unit { narrow.eq(1.0).select(0.0, &narrow) } else { narrow };
    Ok(result.build(&mut imp.b)?.into())
}

fn created(imp: &mut Importer, a: &Args, kind: Draw) -> Result<Val> {
    let dtype = a.dtype("dtype")?.unwrap_or(DType::F32);
    made(imp, a, kind, a.exprs("size")?, dtype)
}

fn like(imp: &mut Importer, a: &Args, kind: Draw) -> Result<Val> {
    let t = a.tensor("self")?;
    let dtype = a.dtype("dtype")?.unwrap_or(imp.dtype_of(t));
    let shape = imp.shape_of(t)?;
    made(imp, a, kind, shape, dtype)
}

/// A formula of a draw of the tensor's shape and dtype.
fn of_draw(imp: &mut Importer, a: &Args, kind: Draw, f: impl Fn(&Formula) -> Formula) -> Result<Val> {
    let t = a.tensor("self")?;
    let (shape, dtype) = (imp.shape_of(t)?, imp.dtype_of(t));
    if dtype.is_complex() || dtype.is_bool() {
        return Err(a.unsupported(format!("{dtype}")));
    }
    let x = Formula::from(draw(imp, kind, shape, drawn(dtype))?);
    imp.rounded(&f(&x), dtype)
}

fn write_to(imp: &mut Importer, t: Tensor, result: Val) -> Result<Val> {
    if let Val::Tensor(same) = result {
        if same == t {
            return Ok(Val::Tensor(t));
        }
    }
    let value = imp.result_value(result)?;
    imp.write_cast(t, value)?;
    Ok(Val::Tensor(t))
}

fn write(imp: &mut Importer, a: &Args, result: Val) -> Result<Val> {
    let t = a.tensor("self")?;
    write_to(imp, t, result)
}

/// As the in-place dropouts name the tensor they are given.
fn write_input(imp: &mut Importer, a: &Args, result: Val) -> Result<Val> {
    let t = a.tensor(if a.has("self") { "self" } else { "input" })?;
    write_to(imp, t, result)
}

/// In [from, to): what rounds up to the end becomes the begin.
fn uniform(imp: &mut Importer, a: &Args) -> Result<Val> {
    let t = a.tensor("self")?;
    let (from, to) = (a.float_or("from", 0.0)?, a.float_or("to", 1.0)?);
    let (shape, dtype) = (imp.shape_of(t)?, imp.dtype_of(t));
    if !dtype.is_float() {
        return Err(a.unsupported(format!("{dtype}")));
    }
    let u = Formula::from(unit(imp, shape, drawn(dtype))?);
    let x = (u * (to - from) + from).cast(dtype);
    Ok(x.ge(to).select(from, &x).build(&mut imp.b)?.into())
}

/// mean + std * z. Each is a number or a tensor.
fn normal_of(imp: &mut Importer, a: &Args) -> Result<Val> {
    let tensors = [a.get("mean"), a.get("std")];
    let mut shape: Option<Vec<Expr>> = None;
    let mut dtype = None;
    for tensor in tensors.into_iter().flatten() {
        if let Val::Tensor(t) = tensor {
            let own = imp.shape_of(*t)?;
            shape = Some(match shape {
                Some(shape) => imp.b.broadcast_shapes(&shape, &own)?,
                None => own,
            });
            dtype = dtype.or(Some(imp.dtype_of(*t)));
        }
    }
    if let Some(t) = a.opt_tensor("self")? {
        (shape, dtype) = (Some(imp.shape_of(t)?), Some(imp.dtype_of(t)));
    }
    let shape = match shape {
        Some(shape) => shape,
        None => a.exprs("size")?,
    };
    let dtype = a.dtype("dtype")?.or(dtype).unwrap_or(DType::F32);
    if !dtype.is_float() {
        return Err(a.unsupported(format!("{dtype}")));
    }
    let compute = drawn(dtype);
    let z = normal(imp, shape, compute)?;
    let mut operand = |name: &str, default: i64| -> Result<Formula> {
        if a.has(name) {
            return Ok(imp.operand(a, name, compute)?.into());
        }
        Ok(imp.b.full(compute, vec![], Scalar::Int(default)).into())
    };
    let (mean, std) = (operand("mean", 0)?, operand("std", 1)?);
    imp.rounded(&(Formula::from(z) * std + mean), dtype)
}

/// 63 random bits as int64.
fn bits(imp: &mut Importer, shape: Vec<Expr>) -> Result<Value> {
    let words = imp.b.random(shape, 2);
    let high = imp.b.binary_scalar(Binary::And, words[0], Scalar::Int(0x7FFF_FFFF))?;
    let high = imp.b.binary_scalar(Binary::ShiftLeft, high, Scalar::Int(32))?;
    imp.b.binary(Binary::Or, high, words[1])
}

/// Whole numbers in [low, high).
fn between(imp: &mut Importer, shape: Vec<Expr>, low: &Expr, high: &Expr) -> Result<Value> {
    let draw = bits(imp, shape)?;
    let range = imp.b.size_value(high - low);
    let rest = imp.b.binary(Binary::Remainder, draw, range)?;
    let low = imp.b.size_value(low.clone());
    imp.b.binary(Binary::Add, rest, low)
}

fn randint(imp: &mut Importer, a: &Args) -> Result<Val> {
    let (own, shape) = match a.opt_tensor("self")? {
        Some(t) => (imp.dtype_of(t), imp.shape_of(t)?),
        None => (DType::I64, a.exprs("size")?),
    };
    let low = a.opt_expr("low")?.unwrap_or_else(|| Expr::int(0));
    let value = between(imp, shape, &low, &a.expr("high")?)?;
    Ok(imp.b.cast(value, a.dtype("dtype")?.unwrap_or(own)).into())
}

/// The order of random keys.
fn randperm(imp: &mut Importer, a: &Args) -> Result<Val> {
    let keys = bits(imp, vec![a.expr("n")?])?;
    let (_, order) = imp.b.sort(keys, false);
    Ok(imp.b.cast(order, a.dtype("dtype")?.unwrap_or(DType::I64)).into())
}

/// Whole numbers in [from, to); without bounds, those that the dtype holds exactly, from 0.
fn random(imp: &mut Importer, a: &Args) -> Result<Val> {
    let t = a.tensor("self")?;
    let (dtype, shape) = (imp.dtype_of(t), imp.shape_of(t)?);
    let digits = match dtype {
        DType::Bool => 1,
        DType::F16 => 11,
        DType::BF16 => 8,
        DType::F32 => 24,
        DType::F64 => 53,
        _ if dtype.is_int() => (8 * dtype.size() as u32 - u32::from(dtype.is_signed())).min(62),
        _ => return Err(a.unsupported(format!("{dtype}"))),
    };
    let to = if dtype == DType::I64 && !a.has("to") { Expr::int(i64::MAX) } else { Expr::int(1 << digits) };
    let from = a.opt_expr("from")?.unwrap_or_else(|| Expr::int(0));
    let value = between(imp, shape, &from, &a.opt_expr("to")?.unwrap_or(to))?;
    Ok(imp.b.cast(value, dtype).into())
}

/// 1 with probability p, of the tensor itself where p is not given.
fn bernoulli(imp: &mut Importer, a: &Args) -> Result<Val> {
    let t = a.tensor("self")?;
    let (dtype, shape) = (imp.dtype_of(t), imp.shape_of(t)?);
    let name = if a.has("p") { "p" } else { "self" };
    let compute = match a.get(name) {
        Some(Val::Tensor(p)) => drawn(imp.dtype_of(*p)),
        _ if a.target.contains(".p") || a.has("p") => drawn(dtype),
        _ => DType::F32,
    };
    let p = if a.target.contains("bernoulli_") && !a.has("p") {
        // The in-place form's own default.
        imp.b.full(compute, vec![], Scalar::Float(0.5))
    } else {
        imp.operand(a, name, compute)?
    };
    let u = unit(imp, shape, compute)?;
    let hit = imp.b.binary(Binary::Lt, u, p)?;
    Ok(imp.b.cast(hit, dtype).into())
}

/// Positions drawn by weight along the last dimension. Without replacement: the first of exponential races, whose rates are the weights
/// (Efraimidis and Spirakis, "Weighted random sampling with a reservoir", 2006).
fn multinomial(imp: &mut Importer, a: &Args) -> Result<Val> {
    let weights = imp.value(a, "self")?;
    let (rank, shape) = (imp.b.rank(weights), imp.b.shape(weights).to_vec());
    let Some(last) = rank.checked_sub(1) else {
        return Err(Error::invalid_program("multinomial of a 0-d tensor"));
    };
    let count = a.expr("num_samples")?;
    let compute = drawn(imp.b.dtype(weights));
    let weights = imp.b.cast(weights, compute);
    if !a.bool_or("replacement", false)? || count.is_int(1) {
        let u = open_unit(imp, shape, compute)?;
        // A draw of 1 would end the race at once, with weight 0 too.
        let races = Formula::from(weights) / Formula::from(u).log().abs().maximum(1e-20);
        let races = races.build(&mut imp.b)?;
        let (_, positions) = imp.b.topk(races, count, true)?;
        return Ok(positions.into());
    }
    let sums = imp.b.scan(douse_core::pointwise::Combine::Sum, weights, last)?;
    let total = imp.b.slice(sums, last, &(&shape[last] - 1), &Expr::int(1), Expr::int(1))?;
    let mut drawn_shape = shape.clone();
    drawn_shape[last] = count;
    let u = unit(imp, drawn_shape, compute)?;
    let at = imp.b.binary(Binary::Mul, u, total)?;
    let positions = imp.b.search_sorted(sums, at, true)?;
    // A product that rounds up to the total would lie past the end.
    let end = imp.b.size_value(&shape[last] - 1);
    Ok(imp.b.binary(Binary::Minimum, positions, end)?.into())
}

/// The mask of what is kept: for each element, or for each feature map (the first two dimensions).
fn kept(imp: &mut Importer, a: &Args, x: Value, p: f64, features: bool) -> Result<Value> {
    let mut shape = imp.b.shape(x).to_vec();
    if features {
        if shape.len() < 2 {
            return Err(a.unsupported("features of fewer than 2 dimensions"));
        }
        shape.iter_mut().skip(2).for_each(|s| *s = Expr::int(1));
    }
    let u = unit(imp, shape, DType::F32)?;
    imp.b.binary_scalar(Binary::Lt, u, Scalar::Float(1.0 - p))
}

fn dropout_input(a: &Args) -> Result<Tensor> {
    a.tensor(if a.has("input") { "input" } else { "self" })
}

/// Zeros with probability p, and the rest scaled so that the mean stays. Outside training, the tensor itself.
fn dropout(imp: &mut Importer, a: &Args, features: bool) -> Result<Val> {
    let t = dropout_input(a)?;
    let p = a.float("p")?;
    if !a.bool_or("train", true)? || p == 0.0 {
        return Ok(Val::Tensor(t));
    }
    let x = imp.real(a, t)?;
    let mask = kept(imp, a, x, p, features)?;
    Ok(scaled(imp, x, mask, p)?.into())
}

/// x * mask / (1 - p); 0 where nothing is kept.
fn scaled(imp: &mut Importer, x: Value, mask: Value, p: f64) -> Result<Value> {
    let dtype = imp.b.dtype(x);
    let compute = imp.compute_dtype(dtype);
    let factor = if p >= 1.0 { 0.0 } else { 1.0 / (1.0 - p) };
    let x = Formula::from(x).cast(compute);
    let noise = Formula::from(mask).cast(compute) * factor;
    let value = (x * noise).build(&mut imp.b)?;
    Ok(imp.b.cast(value, dtype))
}

/// Dropout for `selu`, which keeps mean and deviation (Klambauer and others, "Self-normalizing neural networks", 2017).
fn alpha_dropout(imp: &mut Importer, a: &Args, features: bool) -> Result<Val> {
    const ALPHA: f64 = 1.758_099_340_847_376_6;
    let t = dropout_input(a)?;
    let p = a.float("p")?;
    if !a.bool_or("train", true)? || p == 0.0 {
        return Ok(Val::Tensor(t));
    }
    let x = imp.real(a, t)?;
    let dtype = imp.b.dtype(x);
    let compute = imp.compute_dtype(dtype);
    let mask = kept(imp, a, x, p, features)?;
    let (mask, x) = (Formula::from(mask).cast(compute), Formula::from(x).cast(compute));
    if p >= 1.0 {
        return imp.rounded(&(x * 0.0), dtype);
    }
    let scale = 1.0 / ((ALPHA * ALPHA * p + 1.0) * (1.0 - p)).sqrt();
    let shift = (&mask - 1.0) * (ALPHA * scale) + ALPHA * scale * p;
    imp.rounded(&(x * (mask * scale) + shift), dtype)
}

/// The result and the mask.
fn native_dropout(imp: &mut Importer, a: &Args) -> Result<Val> {
    let x = imp.value(a, "input")?;
    let p = a.float("p")?;
    if !a.bool_or("train", true)? {
        let shape = imp.b.shape(x).to_vec();
        let mask = imp.b.full(DType::Bool, shape, Scalar::Bool(true));
        return Ok((x, mask).into());
    }
    let mask = kept(imp, a, x, p, false)?;
    Ok((scaled(imp, x, mask, p)?, mask).into())
}

/// The form that also gives the slopes drawn in training; in use there are none, and what was given for them comes back.
fn rrelu_in_use(imp: &mut Importer, a: &Args) -> Result<Val> {
    if a.bool_or("training", false)? {
        return Err(a.unsupported("training"));
    }
    let noise = a.tensor("noise")?;
    Ok(Val::List(vec![rrelu(imp, a)?, Val::Tensor(noise)]))
}

/// A leaky relu; in training with slopes drawn between the bounds.
fn rrelu(imp: &mut Importer, a: &Args) -> Result<Val> {
    let (lower, upper) = (a.float_or("lower", 0.125)?, a.float_or("upper", 1.0 / 3.0)?);
    let ([x], dtype) = imp.wide(a, ["self"])?;
    if !a.bool_or("training", false)? {
        let slope = (lower + upper) / 2.0;
        return imp.rounded(&x.gt(0.0).select(&x, &x * slope), dtype);
    }
    let shape = imp.shape_of(a.tensor("self")?)?;
    let u = unit(imp, shape, drawn(dtype))?;
    let slope = Formula::from(u) * (upper - lower) + lower;
    imp.rounded(&x.gt(0.0).select(&x, &x * slope), dtype)
}
