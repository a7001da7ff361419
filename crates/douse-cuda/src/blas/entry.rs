//! The functions of cuBLASLt that Douse uses, by the names and numbers of `cublasLt.h`.

use std::ffi::{c_int, c_void};

use crate::library::entry_points;

/// `cublasStatus_t`; 0 is success.
pub(super) type Status = c_int;

/// An opaque handle: `cublasLtHandle_t`, `cublasLtMatmulDesc_t`, `cublasLtMatrixLayout_t`, `cublasLtMatmulPreference_t`, `CUstream`.
pub(super) type Opaque = *mut c_void;

/// `cublasLtMatmulAlgo_t`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct Algorithm(pub [u64; 8]);

/// `cublasLtMatmulHeuristicResult_t`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct Heuristic {
    pub algorithm: Algorithm,
    pub workspace: usize,
    pub state: Status,
    pub waves: f32,
    pub reserved: [c_int; 4],
}

/// `CUBLASLT_MATMUL_DESC_TRANSA`, `_TRANSB`
pub(super) const TRANSPOSED: [c_int; 2] = [3, 4];
/// `CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT`, `_STRIDED_BATCH_OFFSET`
pub(super) const BATCH: c_int = 5;
pub(super) const BATCH_STRIDE: c_int = 6;
/// `CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES`, `_REDUCTION_SCHEME_MASK`
pub(super) const MOST_WORKSPACE: c_int = 1;
pub(super) const REDUCTIONS: c_int = 3;
/// `CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES`, `_B_`, `_C_`, `_D_`
pub(super) const ALIGNMENTS: [c_int; 4] = [5, 6, 7, 8];
/// `CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE`: parts of a sum are added in the type that sums are made in, so that results round once.
pub(super) const REDUCES_WIDE: u32 = 2;

entry_points! {
    #[allow(non_snake_case)]
    Table -> Status;

    cublasLtCreate = "cublasLtCreate"(*mut Opaque);
    cublasLtDestroy = "cublasLtDestroy"(Opaque);
    cublasLtMatmulDescCreate = "cublasLtMatmulDescCreate"(*mut Opaque, c_int, c_int);
    cublasLtMatmulDescSetAttribute = "cublasLtMatmulDescSetAttribute"(Opaque, c_int, *const c_void, usize);
    cublasLtMatmulDescDestroy = "cublasLtMatmulDescDestroy"(Opaque);
    cublasLtMatrixLayoutCreate = "cublasLtMatrixLayoutCreate"(*mut Opaque, c_int, u64, u64, i64);
    cublasLtMatrixLayoutSetAttribute = "cublasLtMatrixLayoutSetAttribute"(Opaque, c_int, *const c_void, usize);
    cublasLtMatrixLayoutDestroy = "cublasLtMatrixLayoutDestroy"(Opaque);
    cublasLtMatmulPreferenceCreate = "cublasLtMatmulPreferenceCreate"(*mut Opaque);
    cublasLtMatmulPreferenceSetAttribute = "cublasLtMatmulPreferenceSetAttribute"(Opaque, c_int, *const c_void, usize);
    cublasLtMatmulPreferenceDestroy = "cublasLtMatmulPreferenceDestroy"(Opaque);
    cublasLtMatmulAlgoGetHeuristic = "cublasLtMatmulAlgoGetHeuristic"(
        Opaque, Opaque, Opaque, Opaque, Opaque, Opaque, Opaque, c_int, *mut Heuristic, *mut c_int
    );
    cublasLtMatmul = "cublasLtMatmul"(
        Opaque, Opaque, *const c_void, u64, Opaque, u64, Opaque, *const c_void, u64, Opaque, u64, Opaque,
        *const Algorithm, u64, usize, Opaque
    );
}

#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<Heuristic>() == 96);
