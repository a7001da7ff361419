//! Code compiled for each set of vector instructions, and run for the best that the processor has.

use fearless_simd::{Level, Simd};

/// What is compiled for each set of instructions. What it calls must be `#[inline(always)]`: what is not inlined is compiled for the least of
/// processors.
pub(crate) trait WithSimd {
    type Output;

    /// Implementations are `#[inline(always)]`, too.
    fn with_simd<S: Simd>(self, simd: S) -> Self::Output;
}

/// Runs the code that was compiled for the instructions of `level`.
#[inline(always)]
pub(crate) fn dispatch<W: WithSimd>(level: Level, code: W) -> W::Output {
    fearless_simd::dispatch!(level, simd => code.with_simd(simd))
}

/// The same for the best instructions that this processor has.
#[inline(always)]
pub(crate) fn dispatch_best<W: WithSimd>(code: W) -> W::Output {
    dispatch(Level::new(), code)
}
