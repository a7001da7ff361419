//! Short-time Fourier transforms, and windows.

use douse_core::pointwise::{Binary, Combine, Unary};
use douse_core::sym::Expr;
use douse_core::{DType, Result, Scalar};
use douse_ir::{Value, coordinates};

use super::args::{Args, Val};
use super::fft::{real_inverse, resized, scaled_by, transform};
use super::importer::{Importer, Row};
use super::parts::Parts;

pub const ROWS: &[Row] = &[
    ("aten.stft.default", stft),
    ("aten.istft.default", istft),
    ("aten.hann_window.default", |i, a| cosine_window(i, a, &[0.5, -0.5])),
    ("aten.hann_window.periodic", |i, a| cosine_window(i, a, &[0.5, -0.5])),
    ("aten.hamming_window.default", |i, a| cosine_window(i, a, &[0.54, -0.46])),
    ("aten.hamming_window.periodic", |i, a| cosine_window(i, a, &[0.54, -0.46])),
    ("aten.hamming_window.periodic_alpha", |i, a| cosine_window(i, a, &[a.float("alpha")?, -0.46])),
    ("aten.hamming_window.periodic_alpha_beta", |i, a| cosine_window(i, a, &[a.float("alpha")?, -a.float("beta")?])),
    ("aten.blackman_window.default", |i, a| cosine_window(i, a, &[0.42, -0.5, 0.08])),
    ("aten.blackman_window.periodic", |i, a| cosine_window(i, a, &[0.42, -0.5, 0.08])),
    ("aten.kaiser_window.default", kaiser_window),
    ("aten.kaiser_window.periodic", kaiser_window),
    ("aten.kaiser_window.beta", kaiser_window),
    ("aten.bartlett_window.default", bartlett_window),
    ("aten.bartlett_window.periodic", bartlett_window),
];

/// The window, in the middle of `n_fft` elements, the rest zeros; `None` for one that is 1 everywhere.
fn window(imp: &mut Importer, a: &Args, n_fft: i64, dtype: DType) -> Result<Option<Parts>> {
    let length = a.int_or("win_length", n_fft)?;
    let window = match a.opt_tensor("window")? {
        Some(t) => imp.parts_of(t)?.cast(imp, dtype),
        None if length == n_fft => return Ok(None),
        None => imp.b.full(dtype, vec![Expr::int(length)], Scalar::Int(1)).into(),
    };
    let low = (n_fft - length).div_euclid(2);
    let high = n_fft - length - low;
    Ok(Some(window.map(|v| imp.b.pad(v, &[Expr::int(low)], &[Expr::int(high)], Scalar::Int(0)))?))
}

fn hop(a: &Args, n_fft: i64) -> Result<i64> {
    let hop = a.int_or("hop_length", n_fft / 4)?;
    if hop > 0 { Ok(hop) } else { Err(a.wrong("hop_length", "positive")) }
}

/// The transforms of windowed frames `hop_length` apart: [batch, frequencies, frames].
fn stft(imp: &mut Importer, a: &Args) -> Result<Val> {
    if a.has("align_to_window") {
        return Err(a.unsupported("align_to_window"));
    }
    let x = imp.parts(a, "self")?;
    let dtype = imp.b.dtype(x.re);
    if !matches!(dtype, DType::F32 | DType::F64) {
        return Err(a.unsupported(format!("a transform of {dtype}")));
    }
    let one_dim = imp.b.rank(x.re) == 1;
    let x = if one_dim { x.map(|v| imp.b.unsqueeze(v, 0))? } else { x };
    let shape = imp.b.shape(x.re).to_vec();
    let [batch, length] = shape.as_slice() else { return Err(a.wrong("self", "of rank 1 or 2")) };
    let n_fft = a.int("n_fft")?;
    let hop = hop(a, n_fft)?;
    let frames = ((length - n_fft).floor_div(&Expr::int(hop)) + 1).simplify(imp.b.ranges());
    let cut = vec![batch.clone(), frames, Expr::int(n_fft)];
    let mut map = coordinates(2);
    map[1] = &(&Expr::loop_var(1) * hop) + &Expr::loop_var(2);
    let mut x = x.map(|v| imp.b.remap(v, cut.clone(), map.clone()))?;
    if let Some(window) = window(imp, a, n_fft, dtype)? {
        x = x.mul(imp, window)?;
    }
    let one_sided = a.bool_or("onesided", !x.is_complex())?;
    if one_sided && x.is_complex() {
        return Err(a.wrong("onesided", "false for a complex signal"));
    }
    let columns = one_sided.then(|| Expr::int(n_fft / 2 + 1));
    let mut y = transform(imp, a, x, 2, columns.as_ref(), true)?;
    if a.bool_or("normalized", false)? {
        y = scaled_by(imp, y, &Expr::int(n_fft), 0.5)?;
    }
    let y = y.map(|v| imp.b.transpose(v, 1, 2))?;
    let y = if one_dim { y.map(|v| imp.b.squeeze(v, 0))? } else { y };
    let im = match y.im {
        Some(im) => im,
        None => imp.b.full_like(y.re, Scalar::Int(0)),
    };
    let y = Parts { re: y.re, im: Some(im) }.val(imp)?;
    Ok(match y {
        // As a real tensor with a last dimension of 2, for programs of before complex tensors.
        Val::Complex(v) if !a.bool_or("return_complex", true)? => v.into(),
        y => y,
    })
}

/// Frames [batch, frames, n] added where they lie in the signal: [batch, length].
fn overlapped(imp: &mut Importer, frames: Value, hop: i64, length: &Expr) -> Result<Value> {
    let batch = imp.b.shape(frames)[0].clone();
    let base = imp.b.full(imp.b.dtype(frames), vec![batch, length.clone()], Scalar::Int(0));
    let at = &(&Expr::loop_var(1) * hop) + &Expr::loop_var(2);
    imp.b.scatter(base, frames, &[], vec![Expr::loop_var(0), at], Some(Combine::Sum))
}

/// The signal whose short-time transform this is: frames added where they overlap, over the sum of squared windows.
fn istft(imp: &mut Importer, a: &Args) -> Result<Val> {
    let x = imp.parts(a, "self")?;
    let dtype = imp.b.dtype(x.re);
    if !x.is_complex() {
        return Err(a.wrong("self", "a complex tensor"));
    }
    let one = imp.b.rank(x.re) == 2;
    let x = if one { x.map(|v| imp.b.unsqueeze(v, 0))? } else { x };
    let x = x.map(|v| imp.b.transpose(v, 1, 2))?;
    let shape = imp.b.shape(x.re).to_vec();
    let [_, frames, columns] = shape.as_slice() else { return Err(a.wrong("self", "of rank 2 or 3")) };
    let n_fft = a.int("n_fft")?;
    let (n, hop) = (Expr::int(n_fft), hop(a, n_fft)?);
    let complex = a.bool_or("return_complex", false)?;
    let mut y = if complex {
        transform(imp, a, x, 2, None, false)?
    } else {
        let two_sided = !a.bool_or("onesided", !columns.is_int(n_fft))?;
        let half = Expr::int(n_fft / 2 + 1);
        let x = if two_sided { resized(imp, x, 2, &half)? } else { x };
        real_inverse(imp, a, x, 2, &n)?.into()
    };
    let power = if a.bool_or("normalized", false)? { 0.5 } else { 1.0 };
    y = scaled_by(imp, y, &n, power)?;
    let window = match window(imp, a, n_fft, dtype)? {
        Some(window) if window.is_complex() && !complex => return Err(a.wrong("window", "real for a real result")),
        Some(window) => window,
        None => imp.b.full(dtype, vec![n.clone()], Scalar::Int(1)).into(),
    };
    y = y.mul(imp, window)?;
    let whole = &n + &(&(frames - 1) * hop);
    let signal = y.map(|v| overlapped(imp, v, hop, &whole))?;
    let squares = vec![Expr::int(1), frames.clone(), n];
    let squares = window.mul(imp, window)?.map(|v| imp.b.expand(v, squares.clone()))?;
    let envelope = squares.map(|v| overlapped(imp, v, hop, &whole))?;
    // Centred frames reach half a frame beyond both ends.
    let centred = a.bool_or("center", true)?;
    let start = Expr::int(if centred { n_fft / 2 } else { 0 });
    let end = match a.opt_expr("length")? {
        Some(length) => &start + &length,
        None if centred => &whole - n_fft / 2,
        None => whole.clone(),
    };
    let kept = end.minimum(&whole).simplify(imp.b.ranges());
    let cut = |imp: &mut Importer, v: Value| imp.b.slice(v, 1, &start, &Expr::int(1), &kept - &start);
    let envelope = envelope.map(|v| cut(imp, v))?;
    let size = super::norm::magnitude(imp, envelope)?;
    let least = imp.b.reduce(Combine::Min, size, &[0, 1])?;
    let enough = imp.b.full(dtype, vec![], Scalar::Float(1e-11));
    let covered = imp.b.binary(Binary::Gt, least, enough)?;
    imp.b.assert(covered, format!("istft: the windows leave a gap in the signal ({})", imp.place))?;
    let signal = signal.map(|v| cut(imp, v))?;
    // Over a complex number: times its conjugate, over its square.
    let (signal, over) = match envelope.im {
        None => (signal, envelope.re),
        Some(_) => {
            let turned = envelope.conj(imp)?;
            (signal.mul(imp, turned)?, envelope.mul(imp, turned)?.re)
        }
    };
    let signal = signal.map(|v| imp.b.binary(Binary::Div, v, over))?;
    let signal = resized(imp, signal, 1, &(&end - &start))?;
    let signal = if one { signal.map(|v| imp.b.squeeze(v, 0))? } else { signal };
    signal.val(imp)
}

/// Length and period of a window, or a window of one element.
fn window_sizes(imp: &mut Importer, a: &Args) -> Result<(Expr, Expr, DType)> {
    let length = a.expr("window_length")?;
    let periodic = a.bool_or("periodic", true)?;
    let period = if periodic { length.clone() } else { &length - 1 };
    // A window of one element is 1: its only angle is that of the middle.
    let dtype = a.dtype("dtype")?.unwrap_or(DType::F32);
    if imp.b.ranges().min(&length).is_none_or(|n| n < 2) && !length.is_int(1) && !length.is_int(0) {
        return Err(a.unsupported("a size known only at run time"));
    }
    Ok((length, period, dtype))
}

/// The sum of terms `factors[i] * cos(2 pi i k / period)`.
fn cosine_window(imp: &mut Importer, a: &Args, factors: &[f64]) -> Result<Val> {
    let (length, period, dtype) = window_sizes(imp, a)?;
    if length.is_int(1) {
        return Ok(imp.b.full(dtype, vec![length], Scalar::Int(1)).into());
    }
    let k = imp.b.iota(vec![length], Expr::loop_var(0));
    let k = imp.b.cast(k, DType::F64);
    let period = super::reduce::size_as(imp, &period, DType::F64);
    let turns = imp.b.binary(Binary::Div, k, period)?;
    let mut total = imp.b.full_like(turns, Scalar::Int(0));
    for (i, factor) in factors.iter().enumerate() {
        let angle = imp.b.binary_scalar(Binary::Mul, turns, Scalar::Float(std::f64::consts::TAU * i as f64))?;
        let cos = imp.b.unary(Unary::Cos, angle)?;
        let term = imp.b.binary_scalar(Binary::Mul, cos, Scalar::Float(*factor))?;
        total = imp.b.binary(Binary::Add, total, term)?;
    }
    Ok(imp.b.cast(total, dtype).into())
}

/// 1 - |2k / period - 1|
fn bartlett_window(imp: &mut Importer, a: &Args) -> Result<Val> {
    let (length, period, dtype) = window_sizes(imp, a)?;
    if length.is_int(1) {
        return Ok(imp.b.full(dtype, vec![length], Scalar::Int(1)).into());
    }
    let centred = centred(imp, length, &period)?;
    let distance = imp.b.unary(Unary::Abs, centred)?;
    let one = imp.b.full_like(distance, Scalar::Int(1));
    let value = imp.b.binary(Binary::Sub, one, distance)?;
    Ok(imp.b.cast(value, dtype).into())
}

/// I0(beta sqrt(1 - (2k / period - 1)^2)) / I0(beta)
fn kaiser_window(imp: &mut Importer, a: &Args) -> Result<Val> {
    let (length, period, dtype) = window_sizes(imp, a)?;
    if length.is_int(1) {
        return Ok(imp.b.full(dtype, vec![length], Scalar::Int(1)).into());
    }
    let beta = Scalar::Float(a.float_or("beta", 12.0)?);
    let centred = centred(imp, length, &period)?;
    let square = imp.b.binary(Binary::Mul, centred, centred)?;
    let one = imp.b.full_like(square, Scalar::Int(1));
    let rest = imp.b.binary(Binary::Sub, one, square)?;
    let zero = imp.b.full_like(rest, Scalar::Int(0));
    let rest = imp.b.binary(Binary::Maximum, rest, zero)?;
    let root = imp.b.unary(Unary::Sqrt, rest)?;
    let at = imp.b.binary_scalar(Binary::Mul, root, beta)?;
    let most = imp.b.full(DType::F64, vec![], beta);
    let (value, most) = (imp.b.unary(Unary::I0, at)?, imp.b.unary(Unary::I0, most)?);
    let value = imp.b.binary(Binary::Div, value, most)?;
    Ok(imp.b.cast(value, dtype).into())
}

/// 2k / period - 1, in float64: from -1 to 1 over a period.
fn centred(imp: &mut Importer, length: Expr, period: &Expr) -> Result<Value> {
    let k = imp.b.iota(vec![length], Expr::loop_var(0));
    let k = imp.b.cast(k, DType::F64);
    let period = super::reduce::size_as(imp, period, DType::F64);
    let part = imp.b.binary(Binary::Div, k, period)?;
    let twice = imp.b.binary_scalar(Binary::Mul, part, Scalar::Int(2))?;
    imp.b.binary_scalar(Binary::Sub, twice, Scalar::Int(1))
}
