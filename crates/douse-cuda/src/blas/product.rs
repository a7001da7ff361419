//! A product of matrices of known sizes, with the algorithm that cuBLASLt has chosen for it.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use douse_core::{DType, Error, Result};

use super::entry::{
    ALIGNMENTS, Algorithm, BATCH, BATCH_STRIDE, Heuristic, MOST_WORKSPACE, Opaque, REDUCES_WIDE, REDUCTIONS, Status,
    TRANSPOSED, Table,
};
use super::{Blas, check};
use crate::driver::memory::Place;
use crate::driver::stream::Stream;

/// How a batch of matrices lies in memory, in elements; all strides at least 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Matrix {
    pub rows: u32,
    pub columns: u32,
    pub row_stride: i64,
    pub column_stride: i64,
    pub batch_stride: i64,
    /// Bytes that its place is always a multiple of.
    pub alignment: u32,
}

/// `out = a @ b`, `batch` times. float16 and bfloat16 are added up in float32, and `out` may be float32 then; others in their own type, which is
/// that of `out`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Form {
    pub dtype: DType,
    pub out_dtype: DType,
    /// Operands of float32 may be rounded to TF32.
    pub tf32: bool,
    pub batch: u32,
    pub a: Matrix,
    pub b: Matrix,
    pub out: Matrix,
}

/// A matrix as the library sees it: by columns, each `step` elements after the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Columns {
    rows: u32,
    columns: u32,
    step: i64,
    /// It is the transpose of what the product takes.
    turned: bool,
}

/// A product that is ready to run.
#[derive(Debug)]
pub struct Product {
    blas: Blas,
    form: Form,
    description: Owned,
    /// Of the library's left and right operand, and its result.
    layouts: [Owned; 3],
    /// The library's operands are `b` and `a`: it makes the transpose of `out`, whose rows are its columns.
    swapped: bool,
    algorithm: Algorithm,
    workspace: usize,
}

/// One of the library's descriptions.
struct Owned {
    blas: Blas,
    raw: Opaque,
    destroy: unsafe extern "C" fn(Opaque) -> Status,
}

// SAFETY: a description is memory of the host that nobody changes once it is made; the library may read it on any thread.
unsafe impl Send for Owned {}
// SAFETY: as above.
unsafe impl Sync for Owned {}

impl Matrix {
    fn transposed(self) -> Matrix {
        let Matrix { rows, columns, row_stride, column_stride, .. } = self;
        Matrix { rows: columns, columns: rows, row_stride: column_stride, column_stride: row_stride, ..self }
    }

    /// `None` where neither rows nor columns are without gaps, or they overlap.
    fn columns(self) -> Option<Columns> {
        let own = |matrix: Matrix, turned| {
            let Matrix { rows, columns, row_stride, column_stride: step, .. } = matrix;
            (row_stride == 1 && step >= i64::from(rows)).then_some(Columns { rows, columns, step, turned })
        };
        own(self, false).or_else(|| own(self.transposed(), true))
    }

    /// Elements from the first to behind the last.
    fn span(&self, batch: u32) -> Option<i64> {
        let last = |count: u32, stride: i64| i64::from(count).checked_sub(1)?.checked_mul(stride);
        let rows = last(self.rows, self.row_stride)?.checked_add(last(self.columns, self.column_stride)?)?;
        rows.checked_add(last(batch, self.batch_stride)?)?.checked_add(1)
    }
}

/// `cudaDataType` of a dtype.
fn kind(dtype: DType) -> Option<c_int> {
    match dtype {
        DType::F32 => Some(0),
        DType::F64 => Some(1),
        DType::F16 => Some(2),
        DType::BF16 => Some(14),
        _ => None,
    }
}

impl Blas {
    /// The product in this form, by the algorithm that the library thinks fastest with so many bytes of workspace; `None` where its layouts cannot
    /// say the form, or it has no algorithm.
    ///
    /// # Errors
    /// What the library says.
    pub fn product(&self, form: &Form, most_workspace: usize) -> Result<Option<Arc<Product>>> {
        let (Some(kind), Some(out_kind)) = (kind(form.dtype), kind(form.out_dtype)) else { return Ok(None) };
        let wide = matches!(form.dtype, DType::F16 | DType::BF16) && form.out_dtype == DType::F32;
        if !wide && form.dtype != form.out_dtype {
            return Ok(None);
        }
        // `CUBLAS_COMPUTE_64F`, `CUBLAS_COMPUTE_32F`: in full precision; `CUBLAS_COMPUTE_32F_FAST_TF32`.
        let (compute, scale) = match form.dtype {
            DType::F64 => (70, 1),
            DType::F32 if form.tf32 => (77, 0),
            _ => (68, 0),
        };
        let swapped = form.out.column_stride == 1;
        let (left, right, out) = match swapped {
            true => (form.b.transposed(), form.a.transposed(), form.out.transposed()),
            false => (form.a, form.b, form.out),
        };
        let (Some(l), Some(r), Some(o)) = (left.columns(), right.columns(), out.columns()) else { return Ok(None) };
        if o.turned {
            return Ok(None);
        }
        let _current = self.0.device.enter()?;
        let table = &self.0.table;
        let description = self.owned("cublasLtMatmulDescCreate", table.cublasLtMatmulDescDestroy, |raw| {
            // SAFETY: the pointer is to a variable; the numbers are those of types.
            unsafe { (table.cublasLtMatmulDescCreate)(raw, compute, scale) }
        })?;
        for (attribute, operand) in TRANSPOSED.into_iter().zip([l, r]) {
            description.set(table.cublasLtMatmulDescSetAttribute, attribute, c_int::from(operand.turned))?;
        }
        let layout = |kind, matrix: &Matrix, columns: &Columns| -> Result<Owned> {
            let layout = self.owned("cublasLtMatrixLayoutCreate", table.cublasLtMatrixLayoutDestroy, |raw| {
                let (rows, count) = (u64::from(columns.rows), u64::from(columns.columns));
                // SAFETY: the pointer is to a variable.
                unsafe { (table.cublasLtMatrixLayoutCreate)(raw, kind, rows, count, columns.step) }
            })?;
            layout.set(table.cublasLtMatrixLayoutSetAttribute, BATCH, form.batch as c_int)?;
            layout.set(table.cublasLtMatrixLayoutSetAttribute, BATCH_STRIDE, matrix.batch_stride)?;
            Ok(layout)
        };
        let layouts = [layout(kind, &left, &l)?, layout(kind, &right, &r)?, layout(out_kind, &out, &o)?];
        let preference =
            self.owned("cublasLtMatmulPreferenceCreate", table.cublasLtMatmulPreferenceDestroy, |raw| {
                // SAFETY: the pointer is to a variable.
                unsafe { (table.cublasLtMatmulPreferenceCreate)(raw) }
            })?;
        let prefer = table.cublasLtMatmulPreferenceSetAttribute;
        preference.set(prefer, MOST_WORKSPACE, most_workspace as u64)?;
        preference.set(prefer, REDUCTIONS, REDUCES_WIDE)?;
        for (attribute, matrix) in ALIGNMENTS.into_iter().zip([left, right, out, out]) {
            preference.set(prefer, attribute, matrix.alignment)?;
        }
        let [l, r, o] = layouts.each_ref().map(|layout| layout.raw);
        let mut best = Heuristic { algorithm: Algorithm([0; 8]), workspace: 0, state: 0, waves: 0.0, reserved: [0; 4] };
        let mut found = 0;
        // SAFETY: the descriptions live; there is room for the one result that is asked for.
        let status = unsafe {
            let ask = table.cublasLtMatmulAlgoGetHeuristic;
            ask(self.0.handle, description.raw, l, r, o, o, preference.raw, 1, &raw mut best, &raw mut found)
        };
        // 15: no algorithm.
        if status == 15 || status == 0 && (found < 1 || best.state != 0 || best.workspace > most_workspace) {
            return Ok(None);
        }
        check("cublasLtMatmulAlgoGetHeuristic", status)?;
        let (algorithm, workspace) = (best.algorithm, best.workspace);
        Ok(Some(Arc::new(Product {
            blas: self.clone(),
            form: *form,
            description,
            layouts,
            swapped,
            algorithm,
            workspace,
        })))
    }

    fn owned(
        &self,
        call: &str,
        destroy: unsafe extern "C" fn(Opaque) -> Status,
        create: impl FnOnce(*mut Opaque) -> Status,
    ) -> Result<Owned> {
        let mut raw = std::ptr::null_mut();
        check(call, create(&raw mut raw))?;
        Ok(Owned { blas: self.clone(), raw, destroy })
    }
}

impl Product {
    pub fn form(&self) -> &Form {
        &self.form
    }

    /// Bytes of workspace that it takes.
    pub fn workspace(&self) -> usize {
        self.workspace
    }

    /// Puts the product on a stream; also on one that captures.
    ///
    /// # Errors
    /// What the library says, nothing having begun; `Internal` where a matrix is larger than its place, or there is too little workspace.
    pub fn run(&self, a: Place, b: Place, out: Place, workspace: Place, stream: &Stream) -> Result<()> {
        let Form { dtype, out_dtype, batch, .. } = self.form;
        let fits = |place: Place, matrix: &Matrix, dtype: DType| {
            let bytes = matrix.span(batch).and_then(|span| span.checked_mul(dtype.size() as i64));
            bytes.is_some_and(|bytes| usize::try_from(bytes).is_ok_and(|bytes| bytes <= place.len()))
        };
        let inside =
            fits(a, &self.form.a, dtype) && fits(b, &self.form.b, dtype) && fits(out, &self.form.out, out_dtype);
        if !inside || workspace.len() < self.workspace {
            return Err(Error::internal("a matrix of a product leaves its memory"));
        }
        let _current = self.blas.0.device.enter()?;
        let (left, right) = if self.swapped { (b, a) } else { (a, b) };
        let [l, r, o] = self.layouts.each_ref().map(|layout| layout.raw);
        // Read by the host while the call is made, as the type that the description says.
        let (wide, narrow) = ([1f64, 0.0], [1f32, 0.0]);
        let [one, zero]: [*const c_void; 2] = match dtype {
            DType::F64 => [(&raw const wide[0]).cast(), (&raw const wide[1]).cast()],
            _ => [(&raw const narrow[0]).cast(), (&raw const narrow[1]).cast()],
        };
        let table: &Table = &self.blas.0.table;
        // SAFETY: the descriptions live, and the places hold what they describe, as was checked; the stream lives and is the device's.
        let status = unsafe {
            (table.cublasLtMatmul)(
                self.blas.0.handle,
                self.description.raw,
                one,
                left.address(),
                l,
                right.address(),
                r,
                zero,
                out.address(),
                o,
                out.address(),
                o,
                &raw const self.algorithm,
                workspace.address(),
                workspace.len(),
                stream.raw().0,
            )
        };
        check("cublasLtMatmul", status)
    }
}

impl Owned {
    fn set<T>(
        &self,
        set: unsafe extern "C" fn(Opaque, c_int, *const c_void, usize) -> Status,
        attribute: c_int,
        value: T,
    ) -> Result<()> {
        // SAFETY: the value is of the size given, which is that of the attribute; the library copies it.
        let status = unsafe { set(self.raw, attribute, (&raw const value).cast(), size_of::<T>()) };
        check("setting an attribute of cuBLASLt", status)
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: created by us, and used no more.
        if let Err(error) = check("destroying a description of cuBLASLt", unsafe { (self.destroy)(self.raw) }) {
            tracing::warn!("{error}");
        }
    }
}

impl std::fmt::Debug for Owned {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} of {:?}", self.raw, self.blas)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matrices_are_seen_by_columns_where_they_have_no_gaps() {
        let matrix = |rows, columns, row_stride, column_stride| {
            Matrix { rows, columns, row_stride, column_stride, batch_stride: 0, alignment: 16 }.columns()
        };
        assert_eq!(matrix(3, 5, 1, 4), Some(Columns { rows: 3, columns: 5, step: 4, turned: false }));
        assert_eq!(matrix(3, 5, 7, 1), Some(Columns { rows: 5, columns: 3, step: 7, turned: true }));
        // Rows that overlap, repeated ones, and gaps both ways.
        for (row_stride, column_stride) in [(4, 1), (0, 1), (1, 0), (10, 2)] {
            assert_eq!(matrix(3, 5, row_stride, column_stride), None);
        }
    }
}
