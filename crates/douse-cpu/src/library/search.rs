//! Positions in sorted rows.

use douse_core::{Error, Result};

use super::element::Element;
use super::tensor::{Tensor, TensorMut};
use super::work::Work;

/// For each value the first position in its row of `sorted` where it could stand, after equals if `right`.
/// `sorted` has the leading sizes of `values`, or is one row for all. What happens on the way is PyTorch's: the row is halved, and
/// everything that is not known to stand at or after the value stands before it. So a NaN that is searched for goes last, a NaN of the row
/// counts as small, and rows that are not sorted give the same answers.
pub fn search_sorted<T: Element>(
    sorted: Tensor<'_, T>,
    values: Tensor<'_, T>,
    mut out: TensorMut<'_, i64>,
    right: bool,
    work: &Work,
) -> Result<()> {
    let lead = |sizes: &[usize]| sizes.split_last().map(|(_, lead)| lead.to_vec());
    let one_row = sorted.rank() == 1;
    if values.sizes() != out.sizes() || !(one_row || lead(sorted.sizes()) == lead(values.sizes())) {
        return Err(Error::internal(format!(
            "a search in {:?} for {:?} into {:?}",
            sorted.sizes(),
            values.sizes(),
            out.sizes()
        )));
    }
    if out.numel() == 0 {
        return Ok(());
    }
    let n = sorted.sizes().last().copied().unwrap_or(1);
    // Values that look in one row.
    let each = if one_row { values.numel() } else { values.sizes().last().copied().unwrap_or(1) };
    let (sorted, values) = (sorted.dense(work.scratch), values.dense(work.scratch));
    out.write(work.scratch, |out| {
        let group = work.chunk(out.len(), 1024);
        work.each_chunk(out, group, |i, out| {
            for (j, out) in out.iter_mut().enumerate() {
                let at = i * group + j;
                let row = &sorted[at / each * n..][..n];
                *out = position(row, &values[at], right) as i64;
            }
        });
        Ok(())
    })
}

fn position<T: Element>(row: &[T], value: &T, right: bool) -> usize {
    let nan = |x: &T| x.ne(x);
    let (key, last) = (value.order_key(), nan(value));
    let (mut low, mut high) = (0, row.len());
    while low < high {
        let middle = low + (high - low) / 2;
        let x = &row[middle];
        let before = last || nan(x) || x.order_key() < key || right && x.order_key() == key;
        if before {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::super::check::{Random, strided};
    use super::super::scratch::Scratch;
    use super::*;
    use crate::threads::Threads;

    fn check<T: Element + std::fmt::Debug>(seed: u64, make: impl Fn(&mut Random) -> T) {
        let mut random = Random::new(seed);
        let scratch = Scratch::default();
        let threads = Threads::new(2).unwrap();
        let work = Work { scratch: &scratch, threads: &threads };
        for round in 0..40 {
            let (n, m, right) = (random.below(9), random.below(9), round % 2 == 0);
            let lead = if round % 4 < 2 { vec![] } else { vec![3] };
            let mut sorted = strided(&mut random, &[&lead[..], &[n]].concat(), &make);
            // Sorted in place, row by row.
            for row in 0..lead.iter().product::<usize>() {
                let start = sorted.offset as isize + if lead.is_empty() { 0 } else { row as isize * sorted.strides[0] };
                let step = *sorted.strides.last().unwrap();
                let places: Vec<usize> = (0..n).map(|j| (start + j as isize * step) as usize).collect();
                let mut elements: Vec<T> = places.iter().map(|p| sorted.data[*p]).collect();
                elements.sort_by_key(|x| x.order_key());
                places.iter().zip(elements).for_each(|(p, x)| sorted.data[*p] = x);
            }
            let values = strided(&mut random, &[3, m], &make);
            let mut out = strided(&mut random, &[3, m], |_| -1i64);
            search_sorted(sorted.tensor(), values.tensor(), out.tensor_mut(), right, &work).unwrap();
            let (sorted, values) = (sorted.dense(), values.dense());
            for (i, got) in out.dense().iter().enumerate() {
                let row = if lead.is_empty() { &sorted[..] } else { &sorted[i / m * n..][..n] };
                let key = values[i].order_key();
                let want = row.iter().filter(|x| x.order_key() < key || right && x.order_key() == key).count();
                assert_eq!(*got, want as i64, "{:?} in {row:?}, right {right}", values[i]);
            }
        }
    }

    #[test]
    fn both_sides_in_several_dtypes() {
        check::<f32>(1, |r| [-0.5, 0.0, -0.0, 1.0, -3.0, f32::INFINITY][r.below(6)]);
        check::<i64>(2, |r| r.below(6) as i64 - 3);
        check::<half::f16>(3, |r| half::f16::from_f32(r.below(5) as f32 - 2.0));
        check::<u8>(4, |r| r.below(4) as u8 * 80);
    }

    #[test]
    fn nan_and_disorder_are_treated_as_pytorch_does() {
        let row = [1.0, 3.0, f32::NAN];
        for value in [f32::NAN, 4.0, f32::INFINITY] {
            assert_eq!([position(&row, &value, false), position(&row, &value, true)], [3, 3], "{value}");
        }
        assert_eq!(position(&[5.0f32, 1.0, 4.0, 2.0, 3.0], &2.5, false), 2);
        assert_eq!(position(&[5.0f32, 1.0, 2.0, 4.0, 3.0], &2.5, false), 3);
    }
}
