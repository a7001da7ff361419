//! Attention over packed sequences.

use douse_core::{Error, Result};
use douse_program::failure::Failure;

use super::super::element::{Float, Number, Real};
use super::super::gemm::Matrix;
use super::super::simd::vectorised;
use super::super::tensor::{Tensor, TensorMut};
use super::super::work::Work;
use super::rows::{ROWS, Row, Rows};
use super::{attend_all, place};

/// The operands of [`attention`].
pub struct Packed<'a, T> {
    /// [tokens, heads, head size]
    pub query: Tensor<'a, T>,
    /// [key tokens, key heads, head size]; the number of heads is a multiple of that of key heads.
    pub key: Tensor<'a, T>,
    /// [key tokens, key heads, value size]
    pub value: Tensor<'a, T>,
    /// Where each sequence starts and the last one ends.
    pub query_bounds: &'a [i64],
    pub key_bounds: &'a [i64],
    /// [tokens, heads, value size]
    pub out: TensorMut<'a, T>,
    pub scale: f64,
    /// Keys seen before and after the diagonal that ends at the last key; -1: all.
    pub window: (i64, i64),
}

/// Sequence bounds as indices, which must rise and stay within the tokens.
fn bounds(failure: Failure, bounds: &[i64], tokens: usize) -> Result<Vec<usize>> {
    let rising = bounds.windows(2).all(|pair| pair[0] <= pair[1]);
    let inside = bounds.iter().all(|b| (0..=tokens as i64).contains(b));
    if bounds.is_empty() || !rising || !inside {
        return Err(failure.error(0, tokens as i64));
    }
    Ok(bounds.iter().map(|b| *b as usize).collect())
}

/// The keys that query `i` of a sequence sees.
fn seen(i: usize, queries: usize, keys: usize, (left, right): (i64, i64)) -> std::ops::Range<usize> {
    // The diagonal ends at the last query and the last key.
    let diagonal = i as i64 + keys as i64 - queries as i64;
    let clamp = |x: i64| x.clamp(0, keys as i64) as usize;
    let start = if left < 0 { 0 } else { clamp(diagonal.saturating_sub(left)) };
    let end = if right < 0 { keys } else { clamp(diagonal.saturating_add(right).saturating_add(1)) };
    start..end.max(start)
}

/// Attention within each sequence. Tokens outside of all sequences are not read; their results are zeros.
pub fn attention<T: Float>(step: Packed<'_, T>, work: &Work) -> Result<()> {
    let Packed { query, key, value, query_bounds, key_bounds, mut out, scale, window } = step;
    let ([tokens, heads, size], [key_tokens, key_heads, key_size], [value_tokens, value_heads, value_size]) =
        (three(query.sizes())?, three(key.sizes())?, three(value.sizes())?);
    let agree = key_size == size
        && (value_tokens, value_heads) == (key_tokens, key_heads)
        && out.sizes() == [tokens, heads, value_size]
        && query_bounds.len() == key_bounds.len()
        && key_heads > 0
        && heads % key_heads == 0;
    if !agree {
        return Err(Error::internal(format!(
            "packed attention of {:?} over {:?} and {:?}",
            query.sizes(),
            key.sizes(),
            value.sizes()
        )));
    }
    let query_bounds = bounds(Failure::QueryBounds, query_bounds, tokens)?;
    let key_bounds = bounds(Failure::KeyBounds, key_bounds, key_tokens)?;
    let lengths = |bounds: &[usize]| bounds.windows(2).map(|b| b[1] - b[0]).max().unwrap_or(0);
    if window.1 != 0 && window != (-1, -1) && lengths(&query_bounds) > lengths(&key_bounds) + 1 {
        return Err(Failure::Window.error(window.0, window.1));
    }
    if out.numel() == 0 {
        return Ok(());
    }
    // Head by head, so that each task's rows lie together.
    let mut wide = work.scratch.take::<T::Wide>(heads * tokens * value_size);
    wide.fill(T::Wide::ZERO);
    let mut tasks = Vec::new();
    for (head, wide) in wide.chunks_mut(tokens * value_size).enumerate() {
        let key_head = head / (heads / key_heads);
        let (mut rest, mut done) = (wide, 0);
        for (q, k) in query_bounds.windows(2).zip(key_bounds.windows(2)) {
            let (sequence, after) = rest.split_at_mut((q[1] - done) * value_size);
            let sequence = &mut sequence[(q[0] - done) * value_size..];
            (rest, done) = (after, q[1]);
            let (queries, keys) = (q[1] - q[0], k[1] - k[0]);
            for (block, out) in sequence.chunks_mut(ROWS * value_size).enumerate() {
                let first = block * ROWS;
                let rows = (first..first + out.len() / value_size).map(|i| Row {
                    query: place(query.offset(), query.strides(), &[q[0] + i, head]),
                    keys: seen(i, queries, keys, window),
                    mask: 0,
                });
                let rows = Rows {
                    query: query.data(),
                    query_stride: query.strides()[2],
                    rows: rows.collect(),
                    key: tokens_of(&key, k[0], keys, key_head),
                    value: tokens_of(&value, k[0], keys, key_head),
                    mask: None,
                    scale: T::Wide::from_f64(scale),
                };
                tasks.push((rows, out));
            }
        }
    }
    attend_all(tasks, work)?;
    let mut narrow = work.scratch.take::<T>(wide.len());
    vectorised!(T::narrow(&wide, &mut narrow));
    let (sizes, strides) = (out.sizes(), out.strides());
    let offset = out.offset();
    let sizes = [sizes[1], sizes[0], sizes[2]];
    let strides = [strides[1], strides[0], strides[2]];
    TensorMut::new(out.data(), offset, &sizes, &strides)?.scatter(&narrow);
    Ok(())
}

fn three(sizes: &[usize]) -> Result<[usize; 3]> {
    sizes.try_into().map_err(|_| Error::internal("packed attention takes tensors of three dimensions"))
}

/// Tokens `first..first + count` of one head as rows.
fn tokens_of<'a, T>(tensor: &Tensor<'a, T>, first: usize, count: usize, head: usize) -> Matrix<'a, T> {
    let strides = tensor.strides();
    Matrix {
        data: tensor.data(),
        offset: place(tensor.offset(), strides, &[first, head]),
        rows: count,
        cols: tensor.sizes()[2],
        row_stride: strides[0],
        col_stride: strides[2],
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::check::{Owned, Random, close, strided};
    use super::super::super::scratch::Scratch;
    use super::*;
    use crate::threads::Threads;

    const HEADS: usize = 4;
    const KEY_HEADS: usize = 2;
    const SIZE: usize = 10;

    struct Inputs {
        query: Owned<f32>,
        key: Owned<f32>,
        value: Owned<f32>,
    }

    impl Inputs {
        fn new(random: &mut Random, tokens: usize, key_tokens: usize) -> Inputs {
            Inputs {
                query: strided(random, &[tokens, HEADS, SIZE], |r| r.float() as f32),
                key: strided(random, &[key_tokens, KEY_HEADS, SIZE], |r| r.float() as f32),
                value: strided(random, &[key_tokens, KEY_HEADS, SIZE], |r| r.float() as f32),
            }
        }

        fn run(&self, random: &mut Random, q: &[i64], k: &[i64], window: (i64, i64)) -> Result<Vec<f64>> {
            let (scratch, threads) = (Scratch::default(), Threads::new(2).unwrap());
            let work = Work { scratch: &scratch, threads: &threads };
            let mut out = strided(random, &self.query.sizes, |_| f32::NAN);
            let step = Packed {
                query: self.query.tensor(),
                key: self.key.tensor(),
                value: self.value.tensor(),
                query_bounds: q,
                key_bounds: k,
                out: out.tensor_mut(),
                scale: 1.5,
                window,
            };
            attention(step, &work)?;
            Ok(out.dense().into_iter().map(f64::from).collect())
        }

        /// All pairs of tokens, in float64.
        fn naive(&self, q: &[i64], k: &[i64], (left, right): (i64, i64)) -> Vec<f64> {
            let (query, key, value) = (self.query.dense(), self.key.dense(), self.value.dense());
            let mut out = vec![0.0; query.len()];
            for (q, k) in q.windows(2).zip(k.windows(2)) {
                for i in q[0]..q[1] {
                    for head in 0..HEADS {
                        let at = (i as usize * HEADS + head) * SIZE;
                        let diagonal = (i - q[0]) + (k[1] - k[0]) - (q[1] - q[0]);
                        let mut weights = Vec::new();
                        for j in k[0]..k[1] {
                            let place = (j as usize * KEY_HEADS + head / 2) * SIZE;
                            let dot: f64 = (0..SIZE).map(|d| query[at + d] as f64 * key[place + d] as f64).sum();
                            let far = j - k[0] - diagonal;
                            if (left < 0 || far >= -left) && (right < 0 || far <= right) {
                                weights.push(((dot * 1.5).exp(), place));
                            }
                        }
                        let sum: f64 = weights.iter().map(|w| w.0).sum();
                        for d in 0..SIZE {
                            out[at + d] = weights.iter().map(|(w, place)| w / sum * value[place + d] as f64).sum();
                        }
                    }
                }
            }
            out
        }
    }

    #[test]
    fn sequences_and_windows() {
        let mut random = Random::new(1);
        let inputs = Inputs::new(&mut random, 160, 330);
        let (q, k) = ([0, 3, 3, 10, 11, 160], [0, 5, 9, 9, 20, 330]);
        for window in [(-1, -1), (-1, 0), (2, 0), (0, 0), (3, 2), (1, -1), (-1, 4)] {
            let got = inputs.run(&mut random, &q, &k, window).unwrap();
            close(&got, &inputs.naive(&q, &k, window), 1e-5, &format!("{window:?}"));
        }
    }

    #[test]
    fn tokens_outside_of_sequences_change_nothing() {
        let mut random = Random::new(2);
        let mut inputs = Inputs::new(&mut random, 12, 12);
        let (q, k) = ([2, 5, 9], [1, 6, 10]);
        let want = inputs.run(&mut random, &q, &k, (-1, 0)).unwrap();
        for (tensor, outside) in [(&mut inputs.query, [0, 1, 9, 11]), (&mut inputs.key, [0, 10, 11, 11])] {
            for token in outside {
                for head in 0..tensor.sizes[1] {
                    for d in 0..SIZE {
                        let at = place(tensor.offset, &tensor.strides, &[token, head, d]);
                        tensor.data[at] = f32::NAN;
                    }
                }
            }
        }
        assert_eq!(inputs.run(&mut random, &q, &k, (-1, 0)).unwrap(), want);
        assert!(want[..2 * HEADS * SIZE].iter().all(|x| *x == 0.0));
    }

    #[test]
    fn bad_bounds_and_windows_are_refused() {
        let mut random = Random::new(3);
        let inputs = Inputs::new(&mut random, 6, 3);
        let mut run = |q: &[i64], k: &[i64], window| inputs.run(&mut random, q, k, window);
        assert!(run(&[0, 7], &[0, 3], (-1, -1)).is_err());
        assert!(run(&[0, 4, 2], &[0, 1, 3], (-1, -1)).is_err());
        assert!(run(&[-1, 4], &[0, 3], (-1, -1)).is_err());
        assert!(run(&[0, 6], &[0, 3], (1, 1)).is_err());
        assert!(run(&[0, 6], &[0, 3], (1, 0)).is_ok());
    }
}
