//! Scans: cumulative sums, products and extremes.

use douse_core::pointwise::Combine;
use douse_core::{DType, Result, Scalar};

use super::args::{Args, Val};
use super::convert::converted;
use super::importer::{Importer, Row};
use super::reduce::running_product;

pub const ROWS: &[Row] = &[
    ("aten.cumsum.default", |i, a| accumulate(i, a, Combine::Sum)),
    ("aten.cumprod.default", |i, a| accumulate(i, a, Combine::Prod)),
    ("aten.logcumsumexp.default", |i, a| accumulate(i, a, Combine::LogAddExp)),
    ("aten.cummax.default", |i, a| extreme(i, a, true)),
    ("aten.cummin.default", |i, a| extreme(i, a, false)),
];

/// Bools and integers accumulate in int64, half and bfloat16 in float32.
fn accumulate(imp: &mut Importer, a: &Args, op: Combine) -> Result<Val> {
    let t = a.tensor("self")?;
    let own = imp.dtype_of(t);
    let default = if own.is_int() || own.is_bool() { DType::I64 } else { own };
    let dtype = a.dtype("dtype")?.unwrap_or(default);
    let rank = imp.shape_of(t)?.len();
    let dim = imp.dim(a, a.int("dim")?, rank)?;
    let x = converted(imp, t, dtype)?;
    if dtype.is_complex() && op != Combine::Sum {
        let value = imp.result_value(x)?;
        let n = if rank == 0 { Some(1) } else { imp.b.shape(value)[dim].as_int() };
        let (Combine::Prod, Some(n)) = (op, n) else { return Err(a.unsupported("a complex tensor here")) };
        let t = imp.new_tensor(value, dtype);
        let parts = imp.parts_of(t)?;
        return running_product(imp, parts, dim, n)?.val(imp);
    }
    let x = imp.result_value(x)?;
    let result = if rank == 0 {
        x
    } else if dtype.is_bool() {
        let any = if op == Combine::Sum { Combine::Or } else { Combine::And };
        imp.b.scan(any, x, dim)?
    } else {
        let wide = imp.b.cast(x, imp.compute_dtype(dtype.real()));
        let scan = imp.b.scan(op, wide, dim)?;
        imp.b.cast(scan, dtype.real())
    };
    Ok(if dtype.is_complex() { Val::Complex(result) } else { result.into() })
}

/// The running extreme and where it stands.
fn extreme(imp: &mut Importer, a: &Args, max: bool) -> Result<Val> {
    let x = imp.value(a, "self")?;
    let (rank, dtype) = (imp.b.rank(x), imp.b.dtype(x));
    let dim = imp.dim(a, a.int("dim")?, rank)?;
    if rank == 0 {
        let first = imp.b.full(DType::I64, vec![], Scalar::Int(0));
        return Ok((x, first).into());
    }
    // Bools are ordered as 0 and 1.
    let ordered = if dtype.is_bool() { imp.b.cast(x, DType::U8) } else { x };
    let (value, at) = imp.b.arg_scan(max, ordered, dim)?;
    Ok((imp.b.cast(value, dtype), at).into())
}
