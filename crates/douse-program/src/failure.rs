//! What data can make a library step fail with: one table for the CPU, which returns the error, and for GPUs, whose code raises the flag.

use douse_core::{Code, Error};

use crate::library::{Library, Linalg};

/// What a step refuses. Its two numbers, and what they mean, are in the texts of [`Failure::error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    SingularInverse,
    SingularSolve,
    NotPositiveDefinite,
    SegmentOffsets,
    QueryBounds,
    KeyBounds,
    Window,
}

impl Failure {
    const ALL: [Failure; 7] = [
        Failure::SingularInverse,
        Failure::SingularSolve,
        Failure::NotPositiveDefinite,
        Failure::SegmentOffsets,
        Failure::QueryBounds,
        Failure::KeyBounds,
        Failure::Window,
    ];

    /// The code of the first in an [error flag](crate::target::Launch::flag): those before it are the kernels'.
    const FIRST: i32 = 3;

    /// Its code in an [error flag](crate::target::Launch::flag).
    pub fn code(self) -> i32 {
        Failure::FIRST + self as i32
    }

    pub fn of_code(code: i32) -> Option<Failure> {
        Failure::ALL.into_iter().find(|failure| failure.code() == code)
    }

    /// The error, with the numbers that the flag's `value` and `size` hold.
    pub fn error(self, value: i64, size: i64) -> Error {
        let singular = |what: &str| {
            format!(
                "The diagonal element {value} is zero, the {what} could not be completed because the input matrix is singular"
            )
        };
        let rising =
            |name: &str| format!("varlen_attn: {name} must rise from 0 or more to at most the {size} tokens there are");
        let (code, message) = match self {
            Failure::SingularInverse => (Code::InvalidArgument, singular("inversion")),
            Failure::SingularSolve => (Code::InvalidArgument, singular("solve")),
            Failure::NotPositiveDefinite => (
                Code::InvalidArgument,
                format!(
                    "The factorization could not be completed because the input is not positive-definite (the leading minor of order {value} is not positive-definite)"
                ),
            ),
            Failure::SegmentOffsets => (
                Code::InvalidArgument,
                format!(
                    "segment_reduce: offsets {value} to {size} do not delimit a segment of the rows that there are"
                ),
            ),
            Failure::QueryBounds => (Code::InvalidArgument, rising("cu_seq_q")),
            Failure::KeyBounds => (Code::InvalidArgument, rising("cu_seq_k")),
            Failure::Window => (
                Code::NotSupported,
                format!(
                    "varlen_attn with window ({value}, {size}) and a query longer than the longest key sequence plus one, on which PyTorch's own kernels disagree"
                ),
            ),
        };
        Error::new(code, message)
    }
}

impl Library {
    /// What data can make the step fail with. (Sizes that do not fit are checked before it runs.)
    pub fn failures(&self) -> &'static [Failure] {
        match self {
            Library::Linalg { kind: Linalg::Inverse, .. } => &[Failure::SingularInverse],
            Library::Linalg { kind: Linalg::Solve, .. } => &[Failure::SingularSolve],
            Library::Linalg { kind: Linalg::Cholesky, .. } => &[Failure::NotPositiveDefinite],
            Library::VarlenAttention(_) => &[Failure::QueryBounds, Failure::KeyBounds, Failure::Window],
            Library::SegmentReduce { .. } => &[Failure::SegmentOffsets],
            Library::Linalg { .. }
            | Library::MatMul { .. }
            | Library::Convolution(_)
            | Library::Attention(_)
            | Library::Sort { .. }
            | Library::TopK { .. }
            | Library::Nonzero { .. }
            | Library::SearchSorted { .. } => &[],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_means_one_failure() {
        for (place, failure) in Failure::ALL.into_iter().enumerate() {
            assert_eq!(failure as usize, place);
            assert_eq!(Failure::of_code(failure.code()), Some(failure));
        }
        for kernels in [0, 1, 2, Failure::FIRST + Failure::ALL.len() as i32] {
            assert_eq!(Failure::of_code(kernels), None);
        }
    }
}
