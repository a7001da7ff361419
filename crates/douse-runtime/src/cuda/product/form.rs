//! Which products cuBLASLt can be asked for.

use douse_core::sym::Expr;
use douse_core::{DType, Result};
use douse_cuda::Place;
use douse_cuda::blas::{Form, Matrix};
use douse_program::library::{Library, View};
use douse_program::plan::{BufferId, Plan};

/// Products of fewer rows or columns are bound by reading the other operand, and their own kernels are made for that.
const THIN: u32 = 16;

/// What every tensor's memory begins at a multiple of, a caller's too.
const ALIGNMENT: usize = 16;

/// An operand of a product: where its matrices begin in a buffer.
#[derive(Clone, Copy, Debug)]
pub struct Operand {
    pub buffer: BufferId,
    /// In bytes.
    start: usize,
}

/// A product of known sizes.
#[derive(Debug)]
pub struct Shape {
    pub form: Form,
    pub a: Operand,
    pub b: Operand,
    pub out: Operand,
}

impl Operand {
    /// The memory from its beginning on.
    ///
    /// # Errors
    /// `Internal` where that is behind the end.
    pub fn within(&self, place: Place) -> Result<Place> {
        place.part(self.start..place.len())
    }
}

impl Shape {
    /// `None` for what is no product, or not of floats, or thin, or whose sizes and strides are not all known and positive.
    pub fn of(plan: &Plan, library: &Library, tf32: bool) -> Option<Shape> {
        let Library::MatMul { a, b, out } = library else { return None };
        let dtype = |view: &View| plan.buffers.get(view.buffer as usize).map(|buffer| buffer.dtype);
        let (kind, out_kind) = (dtype(a)?, dtype(out)?);
        if ![DType::F16, DType::BF16, DType::F32, DType::F64].contains(&kind) {
            return None;
        }
        let ((a, a_at, batch), (b, b_at, _), (out, out_at, _)) =
            (matrix(a, kind)?, matrix(b, kind)?, matrix(out, out_kind)?);
        (out.rows > THIN && out.columns > THIN && a.columns > THIN).then_some(Shape {
            form: Form { dtype: kind, out_dtype: out_kind, tf32, batch, a, b, out },
            a: a_at,
            b: b_at,
            out: out_at,
        })
    }

    /// `12 x 4096x64x4096 bfloat16`.
    pub fn describe(&self) -> String {
        let Form { dtype, batch, a, out, .. } = &self.form;
        let many = if *batch == 1 { String::new() } else { format!("{batch} x ") };
        format!("{many}{}x{}x{} {dtype}", out.rows, out.columns, a.columns)
    }
}

/// The matrices of a view, where they begin, and how many there are.
fn matrix(view: &View, dtype: DType) -> Option<(Matrix, Operand, u32)> {
    let all = |exprs: &[Expr]| exprs.iter().map(Expr::as_int).collect::<Option<Vec<i64>>>();
    let (sizes, strides) = (all(&view.sizes)?, all(&view.strides)?);
    let start = usize::try_from(view.offset.as_int()?).ok()?.checked_mul(dtype.size())?;
    let ([leading @ .., rows, columns], [leading_strides @ .., row_stride, column_stride]) = (&*sizes, &*strides)
    else {
        return None;
    };
    if strides.iter().any(|stride| *stride < 0) {
        return None;
    }
    // Leading dimensions as one.
    let (mut batch, mut batch_stride) = (1i64, 0i64);
    for (size, stride) in leading.iter().zip(leading_strides).rev().filter(|(size, _)| **size != 1) {
        if batch == 1 {
            batch_stride = *stride;
        } else if batch_stride.checked_mul(batch)? != *stride {
            return None;
        }
        batch = batch.checked_mul(*size)?;
    }
    let alignment = if start == 0 { ALIGNMENT } else { ALIGNMENT.min(1 << start.trailing_zeros()) };
    let count = |size: i64| u32::try_from(size).ok().filter(|size| *size > 0 && *size <= i32::MAX as u32);
    let matrix = Matrix {
        rows: count(*rows)?,
        columns: count(*columns)?,
        row_stride: *row_stride,
        column_stride: *column_stride,
        batch_stride,
        alignment: alignment as u32,
    };
    Some((matrix, Operand { buffer: view.buffer, start }, count(batch)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A view of sizes and strides, and what it is as matrices of float16: batch, its stride, their alignment.
    fn seen(offset: i64, sizes: &[i64], strides: &[i64]) -> Option<(u32, i64, u32)> {
        let exprs = |list: &[i64]| list.iter().map(|n| Expr::int(*n)).collect();
        let view = View { buffer: 0, offset: Expr::int(offset), sizes: exprs(sizes), strides: exprs(strides) };
        matrix(&view, DType::F16).map(|(matrix, _, batch)| (batch, matrix.batch_stride, matrix.alignment))
    }

    #[test]
    fn leading_dimensions_become_one_where_they_lie_evenly() {
        assert_eq!(seen(0, &[20, 30], &[30, 1]), Some((1, 0, 16)));
        assert_eq!(seen(4, &[2, 1, 3, 20, 30], &[1800, 7, 600, 30, 1]), Some((6, 600, 8)));
        assert_eq!(seen(0, &[2, 3, 20, 30], &[0, 0, 30, 1]), Some((6, 0, 16)));
        // Heads beside each other in a row, of several sequences.
        assert_eq!(seen(0, &[2, 3, 20, 30], &[1800, 30, 90, 1]), None);
        assert_eq!(seen(0, &[2, 20, 30], &[600, 30, -1]), None);
        assert_eq!(seen(0, &[0, 20, 30], &[600, 30, 1]), None);
    }
}
