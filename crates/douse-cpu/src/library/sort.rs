//! Sorting and the largest elements of rows.
//!
//! Elements become numbers that order as they do ([`Element::order_key`]), joined with their index: these are all distinct, so that any
//! sort of them is a stable one.

use douse_core::{Error, Result};
use rayon::prelude::*;

use super::element::Element;
use super::tensor::{Tensor, TensorMut};
use super::work::Work;

/// Rows at least this long are sorted by all threads together where there is only one.
const LONG: usize = 1 << 15;

/// How the elements of a row are ordered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Order {
    Ascending,
    Descending,
}

/// Sorts along the last dimension, stably; NaN is the largest. Descending keeps equal elements in index order too.
pub fn sort<T: Element>(
    input: Tensor<'_, T>,
    values: TensorMut<'_, T>,
    indices: TensorMut<'_, i64>,
    descending: bool,
    work: &Work,
) -> Result<()> {
    if values.sizes() != input.sizes() {
        return Err(Error::internal(format!("sizes {:?} sorted into {:?}", input.sizes(), values.sizes())));
    }
    let order = if descending { Order::Descending } else { Order::Ascending };
    rows(input, values, indices, order, work)
}

/// The `k` largest or smallest along the last dimension, best first, equals in index order; k is the last size of `values`.
pub fn topk<T: Element>(
    input: Tensor<'_, T>,
    values: TensorMut<'_, T>,
    indices: TensorMut<'_, i64>,
    largest: bool,
    work: &Work,
) -> Result<()> {
    let order = if largest { Order::Descending } else { Order::Ascending };
    rows(input, values, indices, order, work)
}

/// The first elements of each row in order, as many as `values` has.
fn rows<T: Element>(
    input: Tensor<'_, T>,
    mut values: TensorMut<'_, T>,
    mut indices: TensorMut<'_, i64>,
    order: Order,
    work: &Work,
) -> Result<()> {
    // A number counts as a row of one.
    let n = input.sizes().last().copied().unwrap_or(1);
    let k = values.sizes().last().copied().unwrap_or(1);
    let lead = |sizes: &[usize]| sizes.split_last().map(|(_, lead)| lead.to_vec());
    if values.sizes() != indices.sizes() || lead(values.sizes()) != lead(input.sizes()) {
        return Err(Error::internal("a sort whose results have other rows than its input"));
    }
    if k > n {
        return Err(Error::invalid_argument(format!("selected index k out of range: {k} of {n} elements")));
    }
    if values.numel() == 0 {
        return Ok(());
    }
    let count = values.numel() / k;
    let group = work.chunk(count, 4096 / n.max(1));
    let input = input.dense(work.scratch);
    values.write(work.scratch, |values| {
        indices.write(work.scratch, |indices| {
            let chunks = values.chunks_mut(group * k).zip(indices.chunks_mut(group * k));
            let tasks: Vec<_> = input.chunks(group * n).zip(chunks).collect();
            work.each_task(tasks, |(input, (values, indices))| {
                let outputs = values.chunks_exact_mut(k).zip(indices.chunks_exact_mut(k));
                // The index takes the lower half of a number where both fit.
                if T::KEY_BITS <= 32 && n <= u32::MAX as usize {
                    let mut keys = work.scratch.take::<u64>(n);
                    let join = |key: u64, i: usize| {
                        let key = if order == Order::Descending { !key & 0xffff_ffff } else { key };
                        key << 32 | i as u64
                    };
                    for (input, (values, indices)) in input.chunks_exact(n).zip(outputs) {
                        one_row(input, values, indices, &mut keys, join, |key| *key as u32 as usize, count, work);
                    }
                } else {
                    let mut keys = work.scratch.take::<[u64; 2]>(n);
                    let join = |key: u64, i: usize| [if order == Order::Descending { !key } else { key }, i as u64];
                    for (input, (values, indices)) in input.chunks_exact(n).zip(outputs) {
                        one_row(input, values, indices, &mut keys, join, |key| key[1] as usize, count, work);
                    }
                }
            });
            Ok(())
        })
    })
}

/// One row; `join` makes a key of an element's order and index, `index` gives the index back.
fn one_row<T: Element, K: Ord + Copy + Send>(
    input: &[T],
    values: &mut [T],
    indices: &mut [i64],
    keys: &mut [K],
    join: impl Fn(u64, usize) -> K,
    index: impl Fn(&K) -> usize,
    rows: usize,
    work: &Work,
) {
    for (i, (key, x)) in keys.iter_mut().zip(input).enumerate() {
        *key = join(x.order_key(), i);
    }
    let k = values.len();
    if k < keys.len() {
        keys.select_nth_unstable(k - 1);
    }
    let keys = &mut keys[..k];
    if rows == 1 && k >= LONG && work.threads() > 1 {
        work.threads.install(|| keys.par_sort_unstable());
    } else {
        keys.sort_unstable();
    }
    for ((key, value), at) in keys.iter().zip(values).zip(indices) {
        let i = index(key);
        *value = input[i];
        *at = i as i64;
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::{Random, strided};
    use super::super::scratch::Scratch;
    use super::*;
    use crate::threads::Threads;
    use half::{bf16, f16};

    /// Compares with the standard library's stable sort.
    fn check<T: Element + std::fmt::Debug>(seed: u64, make: impl Fn(&mut Random) -> T) {
        let mut random = Random::new(seed);
        let scratch = Scratch::default();
        let threads = [Threads::one(), Threads::new(2).unwrap()];
        for round in 0..60 {
            let work = Work { scratch: &scratch, threads: &threads[round % 2] };
            let n = [0, 1, 2, 7, 40][random.below(5)];
            let rows = random.below(4);
            let input = strided(&mut random, &[2, rows, n], &make);
            let first = input.data[0];
            let descending = random.below(2) == 1;
            // All elements as a sort, fewer as a top-k.
            let k = if round % 3 == 0 { n } else { random.below(n + 1) };
            let mut values = strided(&mut random, &[2, rows, k], |_| first);
            let mut indices = strided(&mut random, &[2, rows, k], |_| -1i64);
            let run = if round % 3 == 0 { sort } else { topk };
            run(input.tensor(), values.tensor_mut(), indices.tensor_mut(), descending, &work).unwrap();
            let (dense, values, indices) = (input.dense(), values.dense(), indices.dense());
            for row in 0..if n == 0 { 0 } else { 2 * rows } {
                let input = &dense[row * n..][..n];
                let mut want: Vec<usize> = (0..n).collect();
                want.sort_by(|a, b| {
                    let order = input[*a].order_key().cmp(&input[*b].order_key());
                    if descending { order.reverse() } else { order }
                });
                for (j, want) in want.iter().take(k).enumerate() {
                    assert_eq!(indices[row * k + j], *want as i64, "{input:?} {descending}");
                    assert_eq!(bytemuck::bytes_of(&values[row * k + j]), bytemuck::bytes_of(&input[*want]));
                }
            }
        }
    }

    /// Few values, so that there are ties, among them NaN and both zeros.
    fn float(r: &mut Random) -> f32 {
        [f32::NAN, -f32::NAN, 0.0, -0.0, 1.0, -1.0, f32::INFINITY, f32::NEG_INFINITY, 2.5][r.below(9)]
    }

    #[test]
    fn stable_in_every_dtype() {
        check::<f32>(1, float);
        check::<f64>(2, |r| float(r) as f64);
        check::<f16>(3, |r| f16::from_f32(float(r)));
        check::<bf16>(4, |r| bf16::from_f32(float(r)));
        check::<u8>(5, |r| r.below(5) as u8 * 60);
        check::<i8>(6, |r| r.below(5) as i8 - 2);
        check::<i16>(7, |r| r.below(5) as i16 - 2);
        check::<i32>(8, |r| r.below(5) as i32 - 2);
        check::<i64>(9, |r| [i64::MIN, -1, 0, i64::MAX][r.below(4)]);
        check::<u64>(10, |r| [u64::MAX, 1, 0, 1 << 63][r.below(4)]);
    }

    #[test]
    fn numbers_and_long_rows() {
        let scratch = Scratch::default();
        let threads = Threads::new(2).unwrap();
        let work = Work { scratch: &scratch, threads: &threads };
        let (mut value, mut index) = ([0.0f32], [7i64]);
        let number = [3.5f32];
        sort(
            Tensor::new(&number, 0, &[], &[]).unwrap(),
            TensorMut::new(&mut value, 0, &[], &[]).unwrap(),
            TensorMut::new(&mut index, 0, &[], &[]).unwrap(),
            false,
            &work,
        )
        .unwrap();
        assert_eq!((value, index), ([3.5], [0]));

        let mut random = Random::new(3);
        let n = LONG + 5;
        let long: Vec<i32> = (0..n).map(|_| random.below(1000) as i32).collect();
        let (mut values, mut indices) = (vec![0; n], vec![0; n]);
        sort(
            Tensor::new(&long, 0, &[n], &[1]).unwrap(),
            TensorMut::new(&mut values, 0, &[n], &[1]).unwrap(),
            TensorMut::new(&mut indices, 0, &[n], &[1]).unwrap(),
            true,
            &work,
        )
        .unwrap();
        assert!(values.windows(2).all(|pair| pair[0] >= pair[1]));
        assert!(indices.windows(2).zip(values.windows(2)).all(|(i, v)| v[0] > v[1] || i[0] < i[1]));
    }

    #[test]
    fn more_than_there_are_is_refused() {
        let (scratch, threads) = (Scratch::default(), Threads::one());
        let work = Work { scratch: &scratch, threads: &threads };
        let data = [1u8, 2];
        let (mut values, mut indices) = ([0u8; 3], [0i64; 3]);
        let run = topk(
            Tensor::new(&data, 0, &[2], &[1]).unwrap(),
            TensorMut::new(&mut values, 0, &[3], &[1]).unwrap(),
            TensorMut::new(&mut indices, 0, &[3], &[1]).unwrap(),
            true,
            &work,
        );
        assert!(run.unwrap_err().message.contains("3 of 2"));
    }
}
