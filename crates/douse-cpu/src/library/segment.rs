//! Reductions of rows by segments.

use douse_core::pointwise::Combine;
use douse_core::{Error, Result};
use douse_program::failure::Failure;

use super::element::{Float, Real};
use super::simd::vectorised;
use super::tensor::{Tensor, TensorMut, numel};
use super::work::Work;

/// What is done with the rows of a segment.
#[derive(Clone, Copy, Debug)]
pub struct Reduction {
    pub op: Combine,
    /// What each segment starts with; without it, what changes nothing.
    pub initial: Option<f64>,
    /// The sum is divided by the number of rows; of an empty segment without `initial` it is NaN.
    pub mean: bool,
}

/// Combines the rows `offsets[i]..offsets[i + 1]` of `src` into row i of `out`. Rows are along the dimension that is the last of
/// `offsets`, whose leading sizes `src` and `out` have too. 16-bit floats are combined in float32 and rounded once.
pub fn segment_reduce<T: Float>(
    src: Tensor<'_, T>,
    offsets: &[i64],
    offsets_sizes: &[usize],
    mut out: TensorMut<'_, T>,
    reduction: Reduction,
    work: &Work,
) -> Result<()> {
    let fault = || {
        Error::internal(format!("a segment reduction of {:?} by {offsets_sizes:?} into {:?}", src.sizes(), out.sizes()))
    };
    let (&bounds, lead) = offsets_sizes.split_last().ok_or_else(fault)?;
    let axis = lead.len();
    if src.rank() <= axis || out.rank() != src.rank() || bounds == 0 || offsets.len() != numel(offsets_sizes) {
        return Err(fault());
    }
    let (rows, inner) = (src.sizes()[axis], numel(&src.sizes()[axis + 1..]));
    let segments = bounds - 1;
    let expected = [lead, &[segments], &src.sizes()[axis + 1..]].concat();
    if src.sizes()[..axis] != *lead || out.sizes() != expected {
        return Err(fault());
    }
    for pair in offsets.chunks_exact(bounds).flat_map(|offsets| offsets.windows(2)) {
        if pair[0] < 0 || pair[0] > pair[1] || pair[1] > rows as i64 {
            return Err(Failure::SegmentOffsets.error(pair[0], pair[1]));
        }
    }
    let (start, combine) = rule::<T::Wide>(reduction.op)?;
    let start = reduction.initial.map_or(start, T::Wide::from_f64);
    if out.numel() == 0 {
        return Ok(());
    }
    let src = src.dense(work.scratch);
    out.write(work.scratch, |out| {
        work.each_chunk(out, inner, |i, out| {
            let (batch, segment) = (i / segments, i % segments);
            let bounds = &offsets[batch * bounds + segment..][..2];
            let (first, last) = (bounds[0] as usize, bounds[1] as usize);
            let empty_mean = reduction.mean && first == last && reduction.initial.is_none();
            let start = if empty_mean { T::Wide::from_f64(f64::NAN) } else { start };
            let mut sums = work.scratch.take::<T::Wide>(inner);
            vectorised!({
                sums.fill(start);
                for row in src[(batch * rows + first) * inner..(batch * rows + last) * inner].chunks_exact(inner) {
                    for (sum, x) in sums.iter_mut().zip(row) {
                        *sum = combine(*sum, x.to_wide());
                    }
                }
                if reduction.mean && last > first {
                    let count = T::Wide::from_f64((last - first) as f64);
                    sums.iter_mut().for_each(|sum| *sum = *sum / count);
                }
                T::narrow(&sums, out);
            });
        });
        Ok(())
    })
}

/// What changes nothing, and how two elements combine.
#[allow(clippy::type_complexity, reason = "a value and its function")]
fn rule<R: Real>(op: Combine) -> Result<(R, fn(R, R) -> R)> {
    // NaN wins in both: an element that does not compare as inside is taken.
    Ok(match op {
        Combine::Sum => (R::ZERO, |a, b| a.plus(b)),
        Combine::Prod => (R::ONE, |a, b| a * b),
        Combine::Min => (R::from_f64(f64::INFINITY), |a, b| if a <= b || a.to_f64().is_nan() { a } else { b }),
        Combine::Max => (R::NEG_INFINITY, |a, b| if a >= b || a.to_f64().is_nan() { a } else { b }),
        other => return Err(Error::not_supported(format!("segment_reduce with {other}"))),
    })
}

#[cfg(test)]
mod tests {
    use super::super::check::{Owned, Random, strided};
    use super::super::scratch::Scratch;
    use super::*;
    use crate::threads::Threads;

    fn run(src: &[f32], offsets: &[i64], reduction: Reduction) -> Result<Vec<f32>> {
        let (scratch, threads) = (Scratch::default(), Threads::new(2).unwrap());
        let work = Work { scratch: &scratch, threads: &threads };
        let src = Owned::contiguous(&[src.len()], src.to_vec());
        let mut out = Owned::contiguous(&[offsets.len() - 1], vec![-1.0; offsets.len() - 1]);
        segment_reduce(src.tensor(), offsets, &[offsets.len()], out.tensor_mut(), reduction, &work)?;
        Ok(out.data)
    }

    #[test]
    fn each_reduction_with_empty_segments_and_nan() {
        let src = [1.0, 5.0, -2.0, 4.0, f32::NAN];
        let offsets = [0, 3, 3, 4, 5];
        let case = |op, initial, mean| run(&src, &offsets, Reduction { op, initial, mean }).unwrap();
        let same = |got: Vec<f32>, want: [f32; 4]| {
            assert!(got.iter().zip(want).all(|(a, b)| *a == b || a.is_nan() && b.is_nan()), "{got:?} {want:?}");
        };
        let nan = f32::NAN;
        same(case(Combine::Sum, None, false), [4.0, 0.0, 4.0, nan]);
        same(case(Combine::Prod, None, false), [-10.0, 1.0, 4.0, nan]);
        same(case(Combine::Max, None, false), [5.0, f32::NEG_INFINITY, 4.0, nan]);
        same(case(Combine::Min, Some(-1.0), false), [-2.0, -1.0, -1.0, nan]);
        same(case(Combine::Sum, None, true), [4.0 / 3.0, nan, 4.0, nan]);
        same(case(Combine::Sum, Some(2.0), true), [2.0, 2.0, 6.0, nan]);
    }

    #[test]
    fn rows_of_several_elements_in_batches() {
        let mut random = Random::new(4);
        let (scratch, threads) = (Scratch::default(), Threads::new(2).unwrap());
        let work = Work { scratch: &scratch, threads: &threads };
        let src = strided(&mut random, &[2, 5, 3], |r| half::bf16::from_f64(r.float()));
        let mut out = strided(&mut random, &[2, 2, 3], |_| half::bf16::NAN);
        let offsets = [0, 2, 5, 1, 1, 4];
        let reduction = Reduction { op: Combine::Sum, initial: None, mean: false };
        segment_reduce(src.tensor(), &offsets, &[2, 3], out.tensor_mut(), reduction, &work).unwrap();
        let (src, out) = (src.dense(), out.dense());
        for (i, got) in out.iter().enumerate() {
            let (batch, segment, column) = (i / 6, i / 3 % 2, i % 3);
            let bounds = offsets[batch * 3 + segment] as usize..offsets[batch * 3 + segment + 1] as usize;
            let sum: f32 = bounds.map(|row| src[(batch * 5 + row) * 3 + column].to_f32()).sum();
            assert_eq!(*got, half::bf16::from_f32(sum));
        }
    }

    #[test]
    fn bad_offsets_are_refused() {
        let reduction = Reduction { op: Combine::Sum, initial: None, mean: false };
        assert!(run(&[1.0, 2.0], &[0, 3], reduction).is_err());
        assert!(run(&[1.0, 2.0], &[1, 0], reduction).is_err());
        assert!(run(&[1.0, 2.0], &[-1, 1], reduction).is_err());
        assert!(run(&[1.0], &[0, 1], Reduction { op: Combine::LogAddExp, ..reduction }).is_err());
    }
}
