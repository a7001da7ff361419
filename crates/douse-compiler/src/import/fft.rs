//! Discrete Fourier transforms, as products with matrices of roots of unity.
//!
//! A known size is split into factors (Cooley and Tukey, 1965), so that the work and the rounding of long transforms grow with the factors'
//! sizes, not with the product; a large prime factor is a convolution of a size that splits (Bluestein, 1970). What is not done in short
//! products is done in float64. Angles are reduced before they are taken, so that every root is right to the last place.

use douse_core::pointwise::{Binary, Unary};
use douse_core::sym::{Compare, Cond, Expr};
use douse_core::{DType, Result, Scalar};
use douse_ir::{Value, coordinates};

use super::args::{Args, Val};
use super::importer::{Importer, Row};
use super::parts::Parts;
use super::reduce::size_as;

pub const ROWS: &[Row] = &[
    ("aten.fft_fft.default", |i, a| complex(i, a, true)),
    ("aten.fft_fft2.default", |i, a| complex(i, a, true)),
    ("aten.fft_fftn.default", |i, a| complex(i, a, true)),
    ("aten.fft_ifft.default", |i, a| complex(i, a, false)),
    ("aten.fft_ifft2.default", |i, a| complex(i, a, false)),
    ("aten.fft_ifftn.default", |i, a| complex(i, a, false)),
    ("aten.fft_rfft.default", |i, a| from_real(i, a, true)),
    ("aten.fft_rfft2.default", |i, a| from_real(i, a, true)),
    ("aten.fft_rfftn.default", |i, a| from_real(i, a, true)),
    ("aten.fft_ihfft.default", |i, a| from_real(i, a, false)),
    ("aten.fft_ihfft2.default", |i, a| from_real(i, a, false)),
    ("aten.fft_ihfftn.default", |i, a| from_real(i, a, false)),
    ("aten.fft_irfft.default", |i, a| to_real(i, a, false)),
    ("aten.fft_irfft2.default", |i, a| to_real(i, a, false)),
    ("aten.fft_irfftn.default", |i, a| to_real(i, a, false)),
    ("aten.fft_hfft.default", |i, a| to_real(i, a, true)),
    ("aten.fft_hfft2.default", |i, a| to_real(i, a, true)),
    ("aten.fft_hfftn.default", |i, a| to_real(i, a, true)),
    ("aten.fft_fftshift.default", |i, a| shift(i, a, false)),
    ("aten.fft_ifftshift.default", |i, a| shift(i, a, true)),
    ("aten._fft_c2c.default", c2c),
    ("aten._fft_r2c.default", r2c),
    ("aten._fft_c2r.default", c2r),
    ("aten.fft_fftfreq.default", |i, a| frequencies(i, a, false)),
    ("aten.fft_rfftfreq.default", |i, a| frequencies(i, a, true)),
];

/// Sizes up to this are one matrix product; larger ones are split where they have a divisor.
const WHOLE: i64 = 64;
/// Matrices of roots up to this size are constants; larger ones are computed.
const STORED: i64 = 256;
/// The largest prime factor that is transformed by one matrix.
const LARGEST: i64 = 256;

/// cos and sin of 2 pi k / n, exact at the eighths of the circle.
fn root(k: i64, n: i64) -> (f64, f64) {
    let k = k.rem_euclid(n);
    let (quarter, rest) = (4 * k / n, 4 * k % n);
    // Within a quarter, the angle from the nearer axis: at most an eighth of the circle.
    let swap = 2 * rest > n;
    let near = if swap { n - rest } else { rest };
    let angle = std::f64::consts::FRAC_PI_2 * near as f64 / n as f64;
    let (sin, cos) = if 2 * near == n {
        (std::f64::consts::FRAC_1_SQRT_2, std::f64::consts::FRAC_1_SQRT_2)
    } else {
        (angle.sin(), angle.cos())
    };
    let (cos, sin) = if swap { (sin, cos) } else { (cos, sin) };
    match quarter {
        0 => (cos, sin),
        1 => (-sin, cos),
        2 => (-cos, -sin),
        _ => (sin, -cos),
    }
}

fn bytes(dtype: DType, values: impl Iterator<Item = f64>) -> Vec<u8> {
    match dtype {
        DType::F64 => values.flat_map(f64::to_le_bytes).collect(),
        _ => values.flat_map(|v| (v as f32).to_le_bytes()).collect(),
    }
}

/// exp(-2 pi i j k / n) (forward) or its conjugate, over `rows` j and `columns` k, in float32 or float64.
fn roots(imp: &mut Importer, n: &Expr, rows: Expr, columns: Expr, forward: bool, dtype: DType) -> Result<Parts> {
    let shape = vec![rows, columns];
    if let (Some(size), Some(r), Some(c)) = (n.as_int(), shape[0].as_int(), shape[1].as_int()) {
        if size <= STORED * STORED && r * c <= STORED * STORED {
            let all = || (0..r).flat_map(move |j| (0..c).map(move |k| root(j * k % size, size)));
            let re = bytes(dtype, all().map(|(cos, _)| cos));
            let im = bytes(dtype, all().map(|(_, sin)| if forward { -sin } else { sin }));
            let re = imp.literal(dtype, shape.clone(), re);
            return Ok(Parts { re, im: Some(imp.literal(dtype, shape, im)) });
        }
    }
    // Products of indices are reduced as integers, angles taken in float64.
    let k = (&Expr::loop_var(0) * &Expr::loop_var(1)).modulo(n);
    let k = imp.b.iota(shape, k);
    let k = imp.b.cast(k, DType::F64);
    let n = size_as(imp, n, DType::F64);
    let turns = imp.b.binary(Binary::Div, k, n)?;
    let angle = imp.b.binary_scalar(Binary::Mul, turns, Scalar::Float(std::f64::consts::TAU))?;
    let (cos, sin) = (imp.b.unary(Unary::Cos, angle)?, imp.b.unary(Unary::Sin, angle)?);
    let sin = if forward { imp.b.unary(Unary::Neg, sin)? } else { sin };
    Ok(Parts { re: imp.b.cast(cos, dtype), im: Some(imp.b.cast(sin, dtype)) })
}

/// The largest divisor of n that is at most its root, or 1.
fn divisor(n: i64) -> i64 {
    let mut d = (n as f64).sqrt() as i64;
    while d > 1 && n % d != 0 {
        d -= 1;
    }
    d.max(1)
}

/// The first `columns` of the transforms of rows, [rows, n] to [rows, columns], not scaled.
fn rows_transformed(imp: &mut Importer, a: &Args, x: Parts, n: &Expr, columns: &Expr, forward: bool) -> Result<Parts> {
    let dtype = imp.b.dtype(x.re);
    let split = match n.as_int() {
        Some(1) => {
            return if columns.is_int(1) { Ok(x) } else { Err(a.unsupported("more columns than it has")) };
        }
        Some(size) if size > WHOLE => divisor(size),
        _ => 1,
    };
    if split == 1 {
        // Long sums in float32 would be worse than a fast transform's.
        let short = n.as_int().is_some_and(|n| n <= WHOLE);
        let x = if short { x } else { x.cast(imp, DType::F64) };
        let y = match n.as_int() {
            Some(size) if size > LARGEST => {
                let y = convolved(imp, a, x, size, forward)?;
                y.map(|v| imp.b.slice(v, 1, &Expr::int(0), &Expr::int(1), columns.clone()))?
            }
            _ => {
                let wide = imp.b.dtype(x.re);
                let roots = roots(imp, n, n.clone(), columns.clone(), forward, wide)?;
                x.product(imp, roots, |imp, a, b| imp.b.matmul(a, b))?
            }
        };
        return Ok(y.cast(imp, dtype));
    }
    // With j = j1 n2 + j2 and k = k1 + k2 n1: transforms over j1, turned by w^(j2 k1), then transforms over j2.
    let (n1, n2) = (Expr::int(split), n.floor_div(&Expr::int(split)));
    let rows = imp.b.shape(x.re)[0].clone();
    let reshaped = |imp: &mut Importer, x: Parts, to: &[&Expr]| {
        let to: Vec<Expr> = to.iter().map(|e| (*e).clone()).collect();
        x.map(|v| imp.b.reshape(v, to.clone()))
    };
    let swapped = |imp: &mut Importer, x: Parts| x.map(|v| imp.b.transpose(v, 1, 2));
    let x = reshaped(imp, x, &[&rows, &n1, &n2])?;
    let x = swapped(imp, x)?;
    let x = reshaped(imp, x, &[&(&rows * &n2), &n1])?;
    let x = rows_transformed(imp, a, x, &n1, &n1, forward)?;
    let x = reshaped(imp, x, &[&rows, &n2, &n1])?;
    let turn = roots(imp, n, n2.clone(), n1.clone(), forward, dtype)?;
    let x = x.mul(imp, turn)?;
    let x = swapped(imp, x)?;
    let x = reshaped(imp, x, &[&(&rows * &n1), &n2])?;
    let x = rows_transformed(imp, a, x, &n2, &n2, forward)?;
    let x = reshaped(imp, x, &[&rows, &n1, &n2])?;
    let x = swapped(imp, x)?;
    let x = reshaped(imp, x, &[&rows, n])?;
    x.map(|v| imp.b.slice(v, 1, &Expr::int(0), &Expr::int(1), columns.clone()))
}

/// The transforms of float64 rows of n elements, as a convolution with a chirp over a power of two of elements.
fn convolved(imp: &mut Importer, a: &Args, x: Parts, n: i64, forward: bool) -> Result<Parts> {
    // jk = (j^2 + k^2 - (k - j)^2) / 2, so y[k] = c[k] * sum of (x[j] c[j]) / c[k - j] with c[k] = w^(k^2 / 2).
    let size = (2 * n - 1).unsigned_abs().next_power_of_two() as i64;
    let chirp = |k: i64| {
        let (cos, sin) = root(k * k % (2 * n), 2 * n);
        (cos, if forward { -sin } else { sin })
    };
    let literal = |imp: &mut Importer, all: &[(f64, f64)]| {
        let shape = vec![Expr::int(all.len() as i64)];
        let re = imp.literal(DType::F64, shape.clone(), bytes(DType::F64, all.iter().map(|z| z.0)));
        let im = imp.literal(DType::F64, shape, bytes(DType::F64, all.iter().map(|z| z.1)));
        Parts { re, im: Some(im) }
    };
    let own: Vec<(f64, f64)> = (0..n).map(chirp).collect();
    let mut inverse = vec![(0.0, 0.0); size as usize];
    for (k, (cos, sin)) in own.iter().enumerate() {
        let at = [k, if k == 0 { 0 } else { size as usize - k }];
        for i in at {
            inverse[i] = (*cos, -sin);
        }
    }
    let (own, inverse) = (literal(imp, &own), literal(imp, &inverse));
    let whole = Expr::int(size);
    let x = x.mul(imp, own)?;
    let x = resized(imp, x, 1, &whole)?;
    let x = rows_transformed(imp, a, x, &whole, &whole, true)?;
    let inverse = inverse.map(|v| imp.b.unsqueeze(v, 0))?;
    let filter = rows_transformed(imp, a, inverse, &whole, &whole, true)?;
    let y = x.mul(imp, filter)?;
    let y = rows_transformed(imp, a, y, &whole, &whole, false)?;
    let y = scaled_by(imp, y, &whole, 1.0)?;
    let y = resized(imp, y, 1, &Expr::int(n))?;
    y.mul(imp, own)
}

/// The first `columns` of the transform along a dimension, not scaled.
pub fn transform(
    imp: &mut Importer,
    a: &Args,
    x: Parts,
    dim: usize,
    columns: Option<&Expr>,
    forward: bool,
) -> Result<Parts> {
    let rank = imp.b.rank(x.re);
    let mut order: Vec<usize> = (0..rank).filter(|d| *d != dim).collect();
    order.push(dim);
    let turned = x.map(|v| imp.b.permute(v, &order))?;
    let mut shape = imp.b.shape(turned.re).to_vec();
    let n = shape[rank - 1].clone();
    let some = Cond::compare(Compare::Ge, &n, &Expr::int(1));
    imp.require(some, "a Fourier transform of nothing");
    let columns = columns.unwrap_or(&n);
    let flat = turned.map(|v| imp.b.reshape(v, vec![Expr::product(&shape[..rank - 1]), n.clone()]))?;
    let done = rows_transformed(imp, a, flat, &n, columns, forward)?;
    shape[rank - 1] = columns.clone();
    let mut back = vec![0; rank];
    for (i, d) in order.iter().enumerate() {
        back[*d] = i;
    }
    done.map(|v| {
        let v = imp.b.reshape(v, shape.clone())?;
        imp.b.permute(v, &back)
    })
}

/// The real signal of n samples along a dimension whose transform begins with these n / 2 + 1 values, not scaled. The imaginary parts of
/// the first and, for an even n, the last are not looked at.
pub fn real_inverse(imp: &mut Importer, a: &Args, x: Parts, dim: usize, n: &Expr) -> Result<Value> {
    let mut shape = imp.b.shape(x.re).to_vec();
    shape[dim] = n.clone();
    let at = Expr::loop_var(dim);
    let mirrored = n - &at;
    let first_half = Cond::compare(Compare::Le, &(&at * 2), n);
    let mut map = coordinates(shape.len());
    map[dim] = Expr::select(&first_half, &at, &mirrored);
    let re = imp.b.remap(x.re, shape.clone(), map.clone())?;
    let im = match x.im {
        None => None,
        Some(im) => {
            let zero = Expr::int(0);
            let twice = &at * 2;
            let below = Cond::compare(Compare::Gt, &at, &zero).and(&Cond::compare(Compare::Lt, &twice, n));
            let above = Cond::compare(Compare::Gt, &twice, n);
            let own = imp.b.move_(im, &[], shape.clone(), coordinates(shape.len()), below, Scalar::Int(0))?;
            let mut map = coordinates(shape.len());
            map[dim] = mirrored;
            let other = imp.b.move_(im, &[], shape, map, above, Scalar::Int(0))?;
            Some(imp.b.binary(Binary::Sub, own, other)?)
        }
    };
    // Only the real part is used; what the imaginary one would take is dead.
    transform(imp, a, Parts { re, im }, dim, None, false).map(|y| y.re)
}

/// The first n elements along a dimension, zeros where there are fewer.
pub fn resized(imp: &mut Importer, x: Parts, dim: usize, n: &Expr) -> Result<Parts> {
    let rank = imp.b.rank(x.re);
    let more = n - &imp.b.shape(x.re)[dim];
    let low = vec![Expr::int(0); rank];
    let mut high = low.clone();
    high[dim] = more;
    x.map(|v| imp.b.pad(v, &low, &high, Scalar::Int(0)))
}

/// Scales by 1/n, 1/sqrt(n) or nothing, for a transform of n elements.
fn scaled(imp: &mut Importer, a: &Args, x: Parts, n: &Expr, forward: bool) -> Result<Parts> {
    let norm = a.str_or("norm", "backward")?;
    let power = match (norm, forward) {
        ("ortho", _) => 0.5,
        ("backward", true) | ("forward", false) => return Ok(x),
        ("backward", false) | ("forward", true) => 1.0,
        _ => return Err(a.wrong("norm", "backward, ortho or forward")),
    };
    scaled_by(imp, x, n, power)
}

/// Times n to the power of -1 or -1/2.
pub fn scaled_by(imp: &mut Importer, x: Parts, n: &Expr, power: f64) -> Result<Parts> {
    let dtype = imp.b.dtype(x.re);
    let factor = match n.as_int() {
        Some(n) => {
            let factor = if power == 0.5 { 1.0 / (n as f64).sqrt() } else { 1.0 / n as f64 };
            imp.b.full(dtype, vec![], Scalar::Float(factor))
        }
        None => {
            let n = size_as(imp, n, DType::F64);
            let n = if power == 0.5 { imp.b.unary(Unary::Sqrt, n)? } else { n };
            let factor = imp.b.unary(Unary::Reciprocal, n)?;
            imp.b.cast(factor, dtype)
        }
    };
    x.map(|v| imp.b.binary(Binary::Mul, v, factor))
}

/// The operand in float32 or float64.
fn operand(imp: &mut Importer, a: &Args) -> Result<Parts> {
    let x = imp.parts(a, "self")?;
    let dtype = match imp.b.dtype(x.re) {
        DType::F64 => DType::F64,
        dtype if dtype == DType::F32 || !dtype.is_float() => DType::F32,
        dtype => return Err(a.unsupported(format!("a transform of {dtype}"))),
    };
    Ok(x.cast(imp, dtype))
}

/// The dimensions to transform, in order, and the size that each is given.
fn plan(imp: &Importer, a: &Args, shape: &[Expr]) -> Result<(Vec<usize>, Vec<Option<Expr>>)> {
    let rank = shape.len();
    let two = a.target.ends_with("2.default");
    if !two && !a.target.ends_with("n.default") {
        let n = a.opt_expr("n")?;
        return Ok((vec![imp.dim(a, a.int_or("dim", -1)?, rank)?], vec![n]));
    }
    let sizes = a.opt_exprs("s")?;
    let named = match (a.opt_ints("dim")?, &sizes) {
        (Some(dims), _) => Some(dims),
        (None, _) if two => Some(vec![-2, -1]),
        (None, Some(sizes)) => Some((0..sizes.len() as i64).map(|i| i - sizes.len() as i64).collect()),
        (None, None) => None,
    };
    let dims: Vec<usize> = match named {
        Some(dims) => dims.iter().map(|d| imp.dim(a, *d, rank)).collect::<Result<_>>()?,
        None => (0..rank).collect(),
    };
    let sizes = match sizes {
        None => vec![None; dims.len()],
        Some(sizes) if sizes.len() == dims.len() => {
            sizes.into_iter().map(|s| if s.is_int(-1) { None } else { Some(s) }).collect()
        }
        Some(_) => return Err(a.wrong("s", "one size for each dimension")),
    };
    Ok((dims, sizes))
}

/// Brings the dimensions to their sizes; the number of elements of one transform.
fn prepared(imp: &mut Importer, mut x: Parts, dims: &[usize], sizes: &[Option<Expr>]) -> Result<(Parts, Expr)> {
    let mut n = Expr::int(1);
    for (d, size) in dims.iter().zip(sizes) {
        if let Some(size) = size {
            x = resized(imp, x, *d, size)?;
        }
        n = &n * &imp.b.shape(x.re)[*d];
    }
    Ok((x, n))
}

fn complex(imp: &mut Importer, a: &Args, forward: bool) -> Result<Val> {
    let x = operand(imp, a)?;
    let shape = imp.b.shape(x.re).to_vec();
    let (dims, sizes) = plan(imp, a, &shape)?;
    let (mut x, n) = prepared(imp, x, &dims, &sizes)?;
    for d in dims {
        x = transform(imp, a, x, d, None, forward)?;
    }
    let y = scaled(imp, a, x, &n, forward)?;
    complex_val(imp, y)
}

/// A complex result, also where the imaginary part is all zero.
fn complex_val(imp: &mut Importer, y: Parts) -> Result<Val> {
    let im = match y.im {
        Some(im) => im,
        None => imp.b.full_like(y.re, Scalar::Int(0)),
    };
    Parts { re: y.re, im: Some(im) }.val(imp)
}

/// n / 2 + 1
fn half(n: &Expr) -> Expr {
    n.floor_div(&Expr::int(2)) + 1
}

/// Half of the transform of a real signal (`rfft`); the inverse one (`ihfft`) is its conjugate.
fn from_real(imp: &mut Importer, a: &Args, forward: bool) -> Result<Val> {
    let x = operand(imp, a)?;
    if x.is_complex() {
        return Err(a.wrong("self", "a real tensor"));
    }
    let shape = imp.b.shape(x.re).to_vec();
    let (dims, sizes) = plan(imp, a, &shape)?;
    let (mut x, n) = prepared(imp, x, &dims, &sizes)?;
    let Some((last, others)) = dims.split_last() else { return Err(a.wrong("dim", "a list of dimensions")) };
    let columns = half(&imp.b.shape(x.re)[*last]);
    x = transform(imp, a, x, *last, Some(&columns), forward)?;
    for d in others {
        x = transform(imp, a, x, *d, None, forward)?;
    }
    let y = scaled(imp, a, x, &n, forward)?;
    complex_val(imp, y)
}

/// The real signal of half a transform (`irfft`); the forward one (`hfft`) takes the signal's conjugate.
fn to_real(imp: &mut Importer, a: &Args, forward: bool) -> Result<Val> {
    let x = operand(imp, a)?;
    let shape = imp.b.shape(x.re).to_vec();
    let (dims, mut sizes) = plan(imp, a, &shape)?;
    let Some((last, others)) = dims.split_last() else { return Err(a.wrong("dim", "a list of dimensions")) };
    let n = match sizes.pop().flatten() {
        Some(n) => n,
        None => &(&shape[*last] - 1) * 2,
    };
    sizes.push(Some(half(&n)));
    let (mut x, _) = prepared(imp, x, &dims, &sizes)?;
    let mut total = n.clone();
    for d in others {
        total = &total * &imp.b.shape(x.re)[*d];
        x = transform(imp, a, x, *d, None, forward)?;
    }
    let x = if forward { x.conj(imp)? } else { x };
    let y = real_inverse(imp, a, x, *last, &n)?;
    scaled(imp, a, y.into(), &total, forward)?.val(imp)
}

/// Turns dimensions so that the zero frequency stands in the middle, or back.
fn shift(imp: &mut Importer, a: &Args, back: bool) -> Result<Val> {
    let x = imp.parts(a, "self")?;
    let shape = imp.b.shape(x.re).to_vec();
    let dims = match a.opt_ints("dim")? {
        Some(dims) => dims.iter().map(|d| imp.dim(a, *d, shape.len())).collect::<Result<_>>()?,
        None => (0..shape.len()).collect::<Vec<_>>(),
    };
    let mut map = coordinates(shape.len());
    for d in dims.into_iter().filter(|d| *d < shape.len()) {
        let n = &shape[d];
        let by = if back { n.floor_div(&Expr::int(2)) } else { n.ceil_div(&Expr::int(2)) };
        map[d] = (&map[d] + &by).modulo(n);
    }
    x.map(|v| imp.b.remap(v, shape.clone(), map.clone()))?.val(imp)
}

/// The scale of the inner operators: 0 none, 1 by the root of n, 2 by n.
fn scaled_by_mode(imp: &mut Importer, a: &Args, x: Parts, n: &Expr) -> Result<Parts> {
    match a.int_or("normalization", 0)? {
        0 => Ok(x),
        1 => scaled_by(imp, x, n, 0.5),
        2 => scaled_by(imp, x, n, 1.0),
        _ => Err(a.wrong("normalization", "0, 1 or 2")),
    }
}

fn inner_dims(imp: &Importer, a: &Args, x: Parts) -> Result<Vec<usize>> {
    let rank = imp.b.rank(x.re);
    a.ints("dim")?.iter().map(|d| imp.dim(a, *d, rank)).collect()
}

fn c2c(imp: &mut Importer, a: &Args) -> Result<Val> {
    let mut x = operand(imp, a)?;
    let (dims, forward) = (inner_dims(imp, a, x)?, a.bool_or("forward", true)?);
    let n = Expr::product(dims.iter().map(|d| &imp.b.shape(x.re)[*d]));
    for d in dims {
        x = transform(imp, a, x, d, None, forward)?;
    }
    let y = scaled_by_mode(imp, a, x, &n)?;
    complex_val(imp, y)
}

fn r2c(imp: &mut Importer, a: &Args) -> Result<Val> {
    let mut x = operand(imp, a)?;
    let dims = inner_dims(imp, a, x)?;
    let n = Expr::product(dims.iter().map(|d| &imp.b.shape(x.re)[*d]));
    let Some((last, others)) = dims.split_last() else { return Err(a.wrong("dim", "a list of dimensions")) };
    let columns = a.bool_or("onesided", true)?.then(|| half(&imp.b.shape(x.re)[*last]));
    x = transform(imp, a, x, *last, columns.as_ref(), true)?;
    for d in others {
        x = transform(imp, a, x, *d, None, true)?;
    }
    let y = scaled_by_mode(imp, a, x, &n)?;
    complex_val(imp, y)
}

fn c2r(imp: &mut Importer, a: &Args) -> Result<Val> {
    let mut x = operand(imp, a)?;
    let (dims, last_size) = (inner_dims(imp, a, x)?, a.expr("last_dim_size")?);
    let Some((last, others)) = dims.split_last() else { return Err(a.wrong("dim", "a list of dimensions")) };
    let mut n = last_size.clone();
    for d in others {
        n = &n * &imp.b.shape(x.re)[*d];
        x = transform(imp, a, x, *d, None, false)?;
    }
    let y = real_inverse(imp, a, x, *last, &last_size)?;
    scaled_by_mode(imp, a, y.into(), &n)?.val(imp)
}

/// k / (n d) for the frequencies k of a transform of n samples: 0, 1, ..., then the negative ones, unless only half is asked for.
fn frequencies(imp: &mut Importer, a: &Args, one_sided: bool) -> Result<Val> {
    let (n, step) = (a.expr("n")?, a.float_or("d", 1.0)?);
    let dtype = a.dtype("dtype")?.unwrap_or(DType::F32);
    let k = Expr::loop_var(0);
    let (length, k) = if one_sided {
        (half(&n), k)
    } else {
        let positive = Cond::compare(Compare::Lt, &(&k * 2), &n);
        (n.clone(), Expr::select(&positive, &k, &(&k - &n)))
    };
    let k = imp.b.iota(vec![length], k);
    let k = imp.b.cast(k, dtype);
    let factor = match n.as_int() {
        Some(n) => Scalar::Float(1.0 / (n as f64 * step)),
        None => return Err(a.unsupported("a size known only at run time")),
    };
    Ok(imp.b.binary_scalar(Binary::Mul, k, factor)?.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roots_are_exact_on_the_axes_and_diagonals() {
        assert_eq!(root(0, 12), (1.0, 0.0));
        assert_eq!(root(3, 12), (0.0, 1.0));
        assert_eq!(root(6, 12), (-1.0, -0.0));
        assert_eq!(root(9, 12), (0.0, -1.0));
        let (cos, sin) = root(3, 8);
        assert_eq!((-cos, sin), (std::f64::consts::FRAC_1_SQRT_2, std::f64::consts::FRAC_1_SQRT_2));
    }

    #[test]
    fn roots_lie_on_the_circle_at_their_angle() {
        for n in [3, 5, 7, 64, 97, 1000] {
            for k in -n..2 * n {
                let (cos, sin) = root(k, n);
                let angle = std::f64::consts::TAU * k as f64 / n as f64;
                assert!((cos - angle.cos()).abs() < 1e-14 && (sin - angle.sin()).abs() < 1e-14, "{k}/{n}");
            }
        }
    }

    #[test]
    fn sizes_split_near_their_root() {
        assert_eq!([96, 400, 97, 1024].map(divisor), [8, 20, 1, 32]);
    }
}
