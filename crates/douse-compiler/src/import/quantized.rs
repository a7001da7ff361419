//! Quantisation: integers for floats by scale and zero point, a pair of them for the whole tensor, each channel, token or block.

use douse_core::pointwise::{Binary, Combine, Unary};
use douse_core::sym::Expr;
use douse_core::{DType, Result, Scalar};
use douse_ir::Value;

use super::args::{Args, Val};
use super::formula::Formula;
use super::importer::{Importer, Row};
use super::matmul;
use super::promote::promote_types;

pub const ROWS: &[Row] = &[
    ("quantized_decomposed.quantize_per_tensor.default", quantize_tensor),
    ("quantized_decomposed.quantize_per_tensor.tensor", quantize_tensor),
    ("quantized_decomposed.quantize_per_tensor.tensor2", quantize_tensor),
    ("quantized_decomposed.dequantize_per_tensor.default", dequantize_tensor),
    ("quantized_decomposed.dequantize_per_tensor.tensor", dequantize_tensor),
    ("quantized_decomposed.dequantize_per_tensor.tensor2", dequantize_tensor),
    ("quantized_decomposed.quantize_per_channel.default", quantize_channels),
    ("quantized_decomposed.dequantize_per_channel.default", dequantize_channels),
    ("quantized_decomposed.quantize_per_token.default", quantize_tokens),
    ("quantized_decomposed.dequantize_per_token.default", dequantize_tokens),
    ("quantized_decomposed.quantize_per_channel_group.default", quantize_groups),
    ("quantized_decomposed.dequantize_per_channel_group.default", dequantize_groups),
    ("quantized_decomposed.choose_qparams.tensor", |i, a| choose_for_tensor(i, a, false)),
    ("quantized_decomposed.choose_qparams_symmetric.tensor", |i, a| choose_for_tensor(i, a, true)),
    ("quantized_decomposed.choose_qparams_per_token_asymmetric.default", choose_for_tokens),
    ("quantized_decomposed._choose_qparams_per_token_asymmetric_impl.default", choose_for_tokens),
    ("torchao.quantize_affine.default", quantize_blocks),
    ("torchao.dequantize_affine.default", dequantize_blocks),
    ("torchao.choose_qparams_affine.default", choose_for_blocks),
    ("aten.fake_quantize_per_tensor_affine.default", |i, a| fake_quantize(i, a).map(|(y, _)| y.into())),
    ("aten.fake_quantize_per_tensor_affine.tensor_qparams", |i, a| fake_quantize(i, a).map(|(y, _)| y.into())),
    ("aten.fake_quantize_per_channel_affine.default", |i, a| fake_quantize(i, a).map(|(y, _)| y.into())),
    ("aten.fake_quantize_per_tensor_affine_cachemask.default", |i, a| fake_quantize(i, a).map(Val::from)),
    ("aten.fake_quantize_per_channel_affine_cachemask.default", |i, a| fake_quantize(i, a).map(Val::from)),
    ("aten._int_mm.default", integer_product),
    ("aten._scaled_mm.default", scaled_product),
    ("aten._weight_int8pack_mm.default", rows_of_bytes),
];

/// An operation on two tensors in their common dtype.
fn promoted(imp: &mut Importer, op: Binary, x: Value, y: Value) -> Result<Value> {
    let dtype = promote_types(imp.b.dtype(x), imp.b.dtype(y));
    let (x, y) = (imp.b.cast(x, dtype), imp.b.cast(y, dtype));
    imp.b.binary(op, x, y)
}

/// One number, given as such or as a tensor of one element, 0-d.
fn number(imp: &mut Importer, a: &Args, name: &str, dtype: DType) -> Result<Value> {
    let value = imp.operand(a, name, dtype)?;
    imp.b.reshape(value, vec![])
}

/// The least and the greatest quantised value, in this dtype.
fn limits(imp: &mut Importer, a: &Args, dtype: DType) -> Result<(Value, Value)> {
    Ok((number(imp, a, "quant_min", dtype)?, number(imp, a, "quant_max", dtype)?))
}

fn clamp(imp: &mut Importer, x: Value, (low, high): (Value, Value)) -> Result<Value> {
    let x = imp.b.binary(Binary::Maximum, x, low)?;
    imp.b.binary(Binary::Minimum, x, high)
}

/// clamp(round(x / scale) + zero) as `dtype`; where `round_last`, round(x / scale + zero).
fn quantized(imp: &mut Importer, a: &Args, x: Value, scale: Value, zero: Value, round_last: bool) -> Result<Value> {
    let inverse = imp.b.unary(Unary::Reciprocal, scale)?;
    let mut y = promoted(imp, Binary::Mul, x, inverse)?;
    if !round_last {
        y = imp.b.unary(Unary::Round, y)?;
    }
    y = promoted(imp, Binary::Add, y, zero)?;
    if round_last {
        y = imp.b.unary(Unary::Round, y)?;
    }
    let limits = limits(imp, a, imp.b.dtype(y))?;
    clamp(imp, y, limits)
}

/// The argument `name`, which must be there, as a dtype.
fn target(a: &Args, name: &str) -> Result<DType> {
    a.dtype(name)?.ok_or_else(|| a.wrong(name, "given"))
}

/// One pair for the whole tensor, as Python numbers: 1 / scale is taken in float64.
fn quantize_tensor(imp: &mut Importer, a: &Args) -> Result<Val> {
    let x = imp.value(a, "input")?;
    let x = imp.b.cast(x, DType::F32);
    let scale = number(imp, a, "scale", DType::F64)?;
    let inverse = imp.b.unary(Unary::Reciprocal, scale)?;
    let inverse = imp.b.cast(inverse, DType::F32);
    let scaled = imp.b.binary(Binary::Mul, x, inverse)?;
    let whole = imp.b.unary(Unary::Round, scaled)?;
    let zero = number(imp, a, "zero_point", DType::F32)?;
    let shifted = imp.b.binary(Binary::Add, whole, zero)?;
    let limits = limits(imp, a, DType::F32)?;
    let y = clamp(imp, shifted, limits)?;
    Ok(imp.b.cast(y, target(a, "dtype")?).into())
}

fn dequantize_tensor(imp: &mut Importer, a: &Args) -> Result<Val> {
    let x = imp.value(a, "input")?;
    let dtype = a.dtype("out_dtype")?.unwrap_or(DType::F32);
    let wide = imp.compute_dtype(dtype);
    let (scale, zero) = (number(imp, a, "scale", wide)?, number(imp, a, "zero_point", wide)?);
    let x = imp.b.cast(x, wide);
    let shifted = imp.b.binary(Binary::Sub, x, zero)?;
    // Each step rounds to the result's dtype.
    let shifted = imp.b.cast(shifted, dtype);
    let shifted = imp.b.cast(shifted, wide);
    let y = imp.b.binary(Binary::Mul, shifted, scale)?;
    Ok(imp.b.cast(y, dtype).into())
}

/// A vector along the channels of a tensor of this rank.
fn along(imp: &mut Importer, a: &Args, vector: Value, rank: usize) -> Result<Value> {
    let axis = imp.dim(a, a.int("axis")?, rank)?;
    let mut shape = vec![Expr::int(1); rank];
    shape[axis] = imp.b.numel(vector);
    imp.b.reshape(vector, shape)
}

/// A vector argument along the channels, if there is one.
fn channels(imp: &mut Importer, a: &Args, name: &str, rank: usize) -> Result<Option<Value>> {
    imp.opt_value(a, name)?.map(|v| along(imp, a, v, rank)).transpose()
}

fn quantize_channels(imp: &mut Importer, a: &Args) -> Result<Val> {
    let x = imp.value(a, "input")?;
    let x = imp.b.cast(x, DType::F32);
    let rank = imp.b.rank(x);
    let scale = channels(imp, a, "scales", rank)?.ok_or_else(|| a.wrong("scales", "given"))?;
    let zero = channels(imp, a, "zero_points", rank)?.ok_or_else(|| a.wrong("zero_points", "given"))?;
    let y = quantized(imp, a, x, scale, zero, false)?;
    Ok(imp.b.cast(y, target(a, "dtype")?).into())
}

/// (x - zero) * scale, in the dtypes that these promote to, then cast.
fn dequantized(imp: &mut Importer, x: Value, scale: Value, zero: Option<Value>, dtype: DType) -> Result<Value> {
    let x = match zero {
        Some(zero) => promoted(imp, Binary::Sub, x, zero)?,
        None => x,
    };
    let y = promoted(imp, Binary::Mul, x, scale)?;
    Ok(imp.b.cast(y, dtype))
}

fn dequantize_channels(imp: &mut Importer, a: &Args) -> Result<Val> {
    let x = imp.value(a, "input")?;
    let rank = imp.b.rank(x);
    let scale = channels(imp, a, "scales", rank)?.ok_or_else(|| a.wrong("scales", "given"))?;
    let zero = channels(imp, a, "zero_points", rank)?;
    Ok(dequantized(imp, x, scale, zero, a.dtype("out_dtype")?.unwrap_or(DType::F32))?.into())
}

fn quantize_tokens(imp: &mut Importer, a: &Args) -> Result<Val> {
    let (x, scale, zero) = (imp.value(a, "input")?, imp.value(a, "scales")?, imp.value(a, "zero_points")?);
    let y = quantized(imp, a, x, scale, zero, true)?;
    Ok(imp.b.cast(y, target(a, "dtype")?).into())
}

fn dequantize_tokens(imp: &mut Importer, a: &Args) -> Result<Val> {
    let (x, scale, zero) = (imp.value(a, "input")?, imp.value(a, "scales")?, imp.value(a, "zero_points")?);
    Ok(dequantized(imp, x, scale, Some(zero), target(a, "output_dtype")?)?.into())
}

/// A matrix with its rows cut into groups, [groups, size], and a pair's parts as [groups, 1].
fn grouped(imp: &mut Importer, a: &Args) -> Result<(Value, Value, Option<Value>)> {
    let (x, scale, zero) = (imp.value(a, "input")?, imp.value(a, "scales")?, imp.opt_value(a, "zero_points")?);
    let columns = imp.b.shape(x).last().cloned().unwrap_or_else(|| Expr::int(1));
    let mut size = Expr::int(a.int("group_size")?);
    let one_group = imp.b.shape(scale).last().is_some_and(|n| n.is_int(1));
    if let (true, Some(n), Some(columns)) = (one_group, size.as_int(), columns.as_int()) {
        size = Expr::int(n.min(columns));
    }
    let groups = imp.b.numel(x).floor_div(&size).simplify(imp.b.ranges());
    let x = imp.b.reshape(x, vec![groups, size])?;
    let mut column = |v: Value| {
        let n = imp.b.numel(v);
        imp.b.reshape(v, vec![n, Expr::int(1)])
    };
    Ok((x, column(scale)?, zero.map(column).transpose()?))
}

fn quantize_groups(imp: &mut Importer, a: &Args) -> Result<Val> {
    let shape = imp.value(a, "input")?;
    let shape = imp.b.shape(shape).to_vec();
    let (x, scale, zero) = grouped(imp, a)?;
    let zero = zero.ok_or_else(|| a.wrong("zero_points", "given"))?;
    let y = quantized(imp, a, x, scale, zero, true)?;
    let y = imp.b.cast(y, target(a, "dtype")?);
    Ok(imp.b.reshape(y, shape)?.into())
}

fn dequantize_groups(imp: &mut Importer, a: &Args) -> Result<Val> {
    let shape = imp.value(a, "input")?;
    let shape = imp.b.shape(shape).to_vec();
    let (x, scale, zero) = grouped(imp, a)?;
    let y = dequantized(imp, x, scale, zero, target(a, "output_dtype")?)?;
    Ok(imp.b.reshape(y, shape)?.into())
}

/// The least element or zero, and the greatest or zero.
fn span(imp: &mut Importer, x: Value, dims: &[usize]) -> Result<(Value, Value)> {
    let (min, max) = (imp.b.reduce_keep(Combine::Min, x, dims)?, imp.b.reduce_keep(Combine::Max, x, dims)?);
    let zero = imp.b.full_like(min, Scalar::Int(0));
    Ok((imp.b.binary(Binary::Minimum, min, zero)?, imp.b.binary(Binary::Maximum, max, zero)?))
}

/// A pair of one element each, float64 and int64, from the span of the whole tensor.
fn choose_for_tensor(imp: &mut Importer, a: &Args, symmetric: bool) -> Result<Val> {
    let x = imp.value(a, "input")?;
    let dims: Vec<usize> = (0..imp.b.rank(x)).collect();
    let (low, high) = (a.float("quant_min")?, a.float("quant_max")?);
    let (min, max) = span(imp, x, &dims)?;
    let (min, max) = (imp.b.reshape(min, vec![Expr::int(1)])?, imp.b.reshape(max, vec![Expr::int(1)])?);
    let (min, max) = (Formula::from(min), Formula::from(max));
    let eps = a.float("eps")?;
    let (scale, zero) = if symmetric {
        let scale = ((-&min).maximum(&max) / ((high - low) / 2.0)).cast(DType::F32).maximum(eps);
        (scale.clone(), scale.like(if target(a, "dtype")? == DType::U8 { 128.0 } else { 0.0 }))
    } else {
        let scale = ((&max - &min) / (high - low)).cast(DType::F32).maximum(eps);
        let zero = low - (min.cast(DType::F32) / &scale).round();
        (scale, zero.maximum(low).minimum(high))
    };
    let (scale, zero) = (scale.build(&mut imp.b)?, zero.build(&mut imp.b)?);
    Ok((imp.b.cast(scale, DType::F64), imp.b.cast(zero, DType::I64)).into())
}

/// A pair for each row of the last dimension, for int8: float64 and int64, [..., 1].
fn choose_for_tokens(imp: &mut Importer, a: &Args) -> Result<Val> {
    let x = imp.value(a, "input")?;
    let last = imp.dim(a, -1, imp.b.rank(x))?;
    let (low, high) = (-128.0, 127.0);
    let (min, max) = span(imp, x, &[last])?;
    let (min, max) = (Formula::from(min), Formula::from(max));
    let scale = ((&max - &min) / (high - low)).maximum(f64::from(f32::EPSILON));
    let (below, above) = (&min / &scale, &max / &scale);
    // Whichever end of the range loses less.
    let error = (low + &below) + (high + &above);
    let zero = error.gt(0.0).select(low - &below, high - &above).maximum(low).minimum(high).round();
    let (scale, zero) = (scale.build(&mut imp.b)?, zero.build(&mut imp.b)?);
    Ok((imp.b.cast(scale, DType::F64), imp.b.cast(zero, DType::I64)).into())
}

/// A tensor cut into blocks: the shape with cut dimensions in two, the dimensions within a block, and that shape with these of size 1.
struct Blocks {
    shape: Vec<Expr>,
    within: Vec<usize>,
    pairs: Vec<Expr>,
}

fn blocks(imp: &Importer, a: &Args, shape: &[Expr]) -> Result<Blocks> {
    let sizes = a.exprs("block_size")?;
    if sizes.len() != shape.len() {
        return Err(a.wrong("block_size", "of the input's rank"));
    }
    let (mut split, mut within) = (Vec::new(), Vec::new());
    for (size, block) in shape.iter().zip(&sizes) {
        if block.is_int(1) {
            split.push(size.clone());
            continue;
        }
        if block != size {
            split.push(size.floor_div(block).simplify(imp.b.ranges()));
        }
        within.push(split.len());
        split.push(block.clone());
    }
    let mut pairs = split.clone();
    for d in &within {
        pairs[*d] = Expr::int(1);
    }
    Ok(Blocks { shape: split, within, pairs })
}

/// The zero points, unless they are left out or none.
fn zero_points(imp: &mut Importer, a: &Args, blocks: &Blocks) -> Result<Option<Value>> {
    let zero = imp.opt_value(a, "zero_point")?.filter(|z| !imp.b.numel(*z).is_int(0));
    zero.map(|z| imp.b.reshape(z, blocks.pairs.clone())).transpose()
}

/// The least and greatest value of a quantised dtype, where an argument does not narrow them.
fn range(a: &Args, dtype: DType) -> Result<(f64, f64)> {
    if !dtype.is_int() {
        return Err(a.unsupported(format!("quantisation to {dtype}")));
    }
    let bits = 8 * dtype.size() as i32;
    let (low, high) = match dtype.is_signed() {
        true => (-(2f64.powi(bits - 1)), 2f64.powi(bits - 1) - 1.0),
        false => (0.0, 2f64.powi(bits) - 1.0),
    };
    Ok((a.float_or("quant_min", low)?, a.float_or("quant_max", high)?))
}

fn quantize_blocks(imp: &mut Importer, a: &Args) -> Result<Val> {
    let x = imp.value(a, "input")?;
    let (own, dtype) = (imp.b.shape(x).to_vec(), target(a, "output_dtype")?);
    let (low, high) = range(a, dtype)?;
    let blocks = blocks(imp, a, &own)?;
    let x = imp.b.reshape(x, blocks.shape.clone())?;
    let scale = imp.value(a, "scale")?;
    let scale = imp.b.reshape(scale, blocks.pairs.clone())?;
    let inverse = imp.b.unary(Unary::Reciprocal, scale)?;
    let scaled = promoted(imp, Binary::Mul, x, inverse)?;
    let whole = imp.b.unary(Unary::Round, scaled)?;
    let zero = zero_points(imp, a, &blocks)?.ok_or_else(|| a.wrong("zero_point", "given"))?;
    let shifted = promoted(imp, Binary::Add, whole, zero)?;
    let y = Formula::from(shifted).maximum(low).minimum(high).build(&mut imp.b)?;
    let y = imp.b.reshape(y, own)?;
    Ok(imp.b.cast(y, dtype).into())
}

fn dequantize_blocks(imp: &mut Importer, a: &Args) -> Result<Val> {
    let x = imp.value(a, "input")?;
    let (own, dtype) = (imp.b.shape(x).to_vec(), a.dtype("output_dtype")?.unwrap_or(DType::F32));
    let blocks = blocks(imp, a, &own)?;
    let x = imp.b.reshape(x, blocks.shape.clone())?;
    let x = imp.b.cast(x, dtype);
    let scale = imp.value(a, "scale")?;
    let scale = imp.b.reshape(scale, blocks.pairs.clone())?;
    let zero = zero_points(imp, a, &blocks)?.map(|z| imp.b.cast(z, dtype));
    let y = dequantized(imp, x, scale, zero, dtype)?;
    Ok(imp.b.reshape(y, own)?.into())
}

/// The smallest normal number of a float dtype.
fn smallest_normal(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 2f64.powi(-14),
        DType::F64 => f64::MIN_POSITIVE,
        _ => f64::from(f32::MIN_POSITIVE),
    }
}

/// A pair for each block, from its span.
fn choose_for_blocks(imp: &mut Importer, a: &Args) -> Result<Val> {
    let x = imp.value(a, "input")?;
    let (own, dtype) = (imp.b.shape(x).to_vec(), imp.b.dtype(x));
    let (low, high) = range(a, target(a, "target_dtype")?)?;
    let blocks = blocks(imp, a, &own)?;
    if blocks.within.is_empty() {
        return Err(a.unsupported("blocks of one element"));
    }
    let x = imp.b.reshape(x, blocks.shape.clone())?;
    let (min, max) = span(imp, x, &blocks.within)?;
    let (min, max) = (Formula::from(min), Formula::from(max));
    let eps = a.float_or("eps", smallest_normal(dtype))?;
    let middle = ((high + low + 1.0) / 2.0).trunc();
    let (scale, zero) = match a.str("mapping_type")? {
        "SYMMETRIC" => {
            let scale = ((-&min).maximum(&max) / ((high - low) / 2.0)).maximum(eps);
            (scale.clone(), scale.like(middle))
        }
        "SYMMETRIC_NO_CLIPPING_ERR" => {
            let (down, up) = (&min / low, &max / high);
            let scale = down.gt(&up).select(&down, &up).maximum(eps);
            (scale.clone(), scale.like(middle))
        }
        "ASYMMETRIC" => {
            let scale = ((&max - &min) / (high - low)).maximum(eps);
            let zero = (low - (&min / &scale).round()).maximum(low).minimum(high);
            (scale, zero)
        }
        other => return Err(a.unsupported(format!("mapping {other}"))),
    };
    let default = if a.str("mapping_type")? == "ASYMMETRIC" { DType::I32 } else { dtype };
    let zero_dtype = a.dtype("zero_point_dtype")?.unwrap_or(default);
    let kept: Vec<Expr> = if a.bool_or("keepdim", false)? {
        // One for each block, in the input's rank.
        let sizes = a.exprs("block_size")?;
        own.iter().zip(&sizes).map(|(n, block)| n.floor_div(block).simplify(imp.b.ranges())).collect()
    } else {
        (0..blocks.shape.len()).filter(|d| !blocks.within.contains(d)).map(|d| blocks.shape[d].clone()).collect()
    };
    let mut result = |formula: Formula, dtype: DType| {
        let value = formula.build(&mut imp.b)?;
        let value = imp.b.cast(value, dtype);
        imp.b.reshape(value, kept.clone())
    };
    Ok((result(scale, a.dtype("scale_dtype")?.unwrap_or(dtype))?, result(zero, zero_dtype)?).into())
}

/// Quantised and dequantised again, in float32, and where no element was clamped.
fn fake_quantize(imp: &mut Importer, a: &Args) -> Result<(Value, Value)> {
    let x = imp.value(a, "self")?;
    let (own, rank) = (imp.b.dtype(x), imp.b.rank(x));
    let (scale, zero) = if a.has("axis") {
        let (scale, zero) = (imp.value(a, "scale")?, imp.value(a, "zero_point")?);
        let (scale, zero) = (imp.b.cast(scale, DType::F32), imp.b.cast(zero, DType::F32));
        (along(imp, a, scale, rank)?, along(imp, a, zero, rank)?)
    } else {
        (number(imp, a, "scale", DType::F32)?, number(imp, a, "zero_point", DType::F32)?)
    };
    let (low, high) = (a.float("quant_min")?, a.float("quant_max")?);
    let (x, scale, zero) = (Formula::from(x).cast(DType::F32), Formula::from(scale), Formula::from(zero));
    let whole = (x * scale.reciprocal()).round() + &zero;
    let y = (whole.maximum(low).minimum(high) - &zero) * &scale;
    let inside = whole.ge(low).and(whole.le(high));
    let (y, inside) = (y.build(&mut imp.b)?, inside.build(&mut imp.b)?);
    Ok((imp.b.cast(y, own), inside))
}

/// A product of int8 matrices, exact in int32.
fn integer_product(imp: &mut Importer, a: &Args) -> Result<Val> {
    let (x, y) = (imp.value(a, "self")?, imp.value(a, "mat2")?);
    let (x, y) = (imp.b.cast(x, DType::I32), imp.b.cast(y, DType::I32));
    Ok(imp.b.matmul(x, y)?.into())
}

/// A product with the rows of an int8 matrix in float32, times the scales of these rows.
fn rows_of_bytes(imp: &mut Importer, a: &Args) -> Result<Val> {
    let (x, rows, scales) = (imp.value(a, "self")?, imp.value(a, "mat2")?, imp.value(a, "scales")?);
    let own = imp.b.dtype(x);
    let (x, rows) = (imp.b.cast(x, DType::F32), imp.b.cast(rows, DType::F32));
    let rows = imp.b.permute(rows, &[1, 0])?;
    let product = matmul::product(imp, x.into(), rows.into())?.re;
    let scales = imp.b.cast(scales, DType::F32);
    let scaled = imp.b.binary(Binary::Mul, product, scales)?;
    Ok(imp.b.cast(scaled, own).into())
}

/// A product of float8 matrices in float32, times the scales of rows and of columns, or of all.
fn scaled_product(imp: &mut Importer, a: &Args) -> Result<Val> {
    let (x, y) = (imp.value(a, "self")?, imp.value(a, "mat2")?);
    let dtype = a.dtype("out_dtype")?.unwrap_or(imp.b.dtype(x));
    if a.has("scale_result") || dtype.size() == 1 {
        return Err(a.unsupported("a float8 result"));
    }
    let (m, n) = (imp.b.shape(x)[0].clone(), imp.b.shape(y)[1].clone());
    let (x, y) = (imp.b.cast(x, DType::F32), imp.b.cast(y, DType::F32));
    let mut product = matmul::product(imp, x.into(), y.into())?.re;
    let one = Expr::int(1);
    for (name, rows) in [("scale_a", [m, one.clone()]), ("scale_b", [one.clone(), n])] {
        let scale = imp.value(a, name)?;
        let shape = imp.b.shape(scale).to_vec();
        let shape = match imp.b.numel(scale) {
            all if all.is_int(1) => vec![one.clone(); 2],
            _ if shape == rows => shape,
            _ => return Err(a.unsupported(format!("a scale for each block in {name}"))),
        };
        let scale = imp.b.cast(scale, DType::F32);
        let scale = imp.b.reshape(scale, shape)?;
        product = imp.b.binary(Binary::Mul, product, scale)?;
    }
    if let Some(bias) = imp.opt_value(a, "bias")? {
        let bias = imp.b.cast(bias, DType::F32);
        product = imp.b.binary(Binary::Add, product, bias)?;
    }
    Ok(imp.b.cast(product, dtype).into())
}
