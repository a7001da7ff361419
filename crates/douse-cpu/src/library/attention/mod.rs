//! Scaled dot-product attention, and attention over packed sequences.

mod rows;
pub mod varlen;

use douse_core::{Error, Result};
use std::sync::{Mutex, PoisonError};

use super::element::{Float, Real};
use super::gemm::Matrix;
use super::simd::vectorised;
use super::tensor::{Tensor, TensorMut};
use super::work::Work;
use crate::threads::Threads;
use rows::{Mask, ROWS, Row, Rows};

/// The mask of an attention, [batch, heads, queries, keys] with strides of 0 where it is broadcast.
#[derive(Clone, Copy, Debug)]
pub enum AttentionMask<'a, T> {
    /// Bool: keys take part where true.
    Allow(Tensor<'a, u8>),
    /// Added to the scores.
    Add(Tensor<'a, T>),
}

impl<T> AttentionMask<'_, T> {
    fn layout(&self) -> (usize, &[usize], &[isize]) {
        match self {
            AttentionMask::Allow(mask) => (mask.offset(), mask.sizes(), mask.strides()),
            AttentionMask::Add(mask) => (mask.offset(), mask.sizes(), mask.strides()),
        }
    }
}

/// The operands of [`attention`].
pub struct Attention<'a, T> {
    /// [batch, heads, queries, head size]
    pub query: Tensor<'a, T>,
    /// [batch, key heads, keys, head size]; the number of heads is a multiple of that of key heads.
    pub key: Tensor<'a, T>,
    /// [batch, key heads, keys, value size]
    pub value: Tensor<'a, T>,
    pub mask: Option<AttentionMask<'a, T>>,
    /// [batch, heads, queries, value size]
    pub out: TensorMut<'a, T>,
    pub scale: f64,
    /// Query i sees keys 0..=i.
    pub causal: bool,
}

/// Four sizes or strides.
fn four<T: Copy>(of: &[T]) -> Result<[T; 4]> {
    of.try_into().map_err(|_| Error::internal("attention takes tensors of four dimensions"))
}

/// The offset of the element at the first indices, 0 at the others.
fn place(offset: usize, strides: &[isize], index: &[usize]) -> usize {
    index.iter().zip(strides).fold(offset, |at, (i, stride)| at.wrapping_add_signed(*i as isize * stride))
}

/// The rows from head `first` of a tensor [.., rows, elements].
fn matrix<'a, T>(tensor: &Tensor<'a, T>, lead: &[usize]) -> Matrix<'a, T> {
    let at = lead.len();
    Matrix {
        data: tensor.data(),
        offset: place(tensor.offset(), tensor.strides(), lead),
        rows: tensor.sizes()[at],
        cols: tensor.sizes()[at + 1],
        row_stride: tensor.strides()[at],
        col_stride: tensor.strides()[at + 1],
    }
}

/// Runs tasks of rows on all threads; the first error of any is returned.
fn attend_all<T: Float>(tasks: Vec<(Rows<'_, T>, &mut [T::Wide])>, work: &Work) -> Result<()> {
    let failed = Mutex::new(None);
    let alone = Threads::one();
    let single = Work { threads: &alone, ..*work };
    work.each_task(tasks, |(rows, out)| {
        if let Err(e) = rows.attend(out, &single) {
            *failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(e);
        }
    });
    failed.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
}

/// `softmax(query @ key^T * scale + mask) @ value`, computed in float32 (float64 for float64). A row with no key allowed gives zeros.
pub fn attention<T: Float>(step: Attention<'_, T>, work: &Work) -> Result<()> {
    let Attention { query, key, value, mask, mut out, scale, causal } = step;
    let [batch, heads, queries, size] = four(query.sizes())?;
    let [_, key_heads, keys, _] = four(key.sizes())?;
    let [.., value_size] = four(value.sizes())?;
    let agree = four(key.sizes())? == [batch, key_heads, keys, size]
        && four(value.sizes())? == [batch, key_heads, keys, value_size]
        && four(out.sizes())? == [batch, heads, queries, value_size]
        && mask.as_ref().is_none_or(|mask| mask.layout().1 == [batch, heads, queries, keys])
        && key_heads > 0
        && heads % key_heads == 0;
    if !agree {
        return Err(Error::internal(format!(
            "attention of {:?} over {:?} and {:?}",
            query.sizes(),
            key.sizes(),
            value.sizes()
        )));
    }
    if out.numel() == 0 {
        return Ok(());
    }
    let group = heads / key_heads;
    // The rows of the query heads that share a key head, in the order they have in the result.
    let row = |b: usize, h: usize, r: usize| {
        let (head, q) = (h * group + r / queries, r % queries);
        Row {
            query: place(query.offset(), query.strides(), &[b, head, q]),
            keys: 0..if causal { keys.min(q + 1) } else { keys },
            mask: mask.as_ref().map_or(0, |mask| place(mask.layout().0, mask.layout().2, &[b, head, q])),
        }
    };
    let scale = T::Wide::from_f64(scale);
    let run = |out: &mut [T::Wide]| {
        let mut tasks = Vec::new();
        for (i, out) in out.chunks_mut(group * queries * value_size).enumerate() {
            let (b, h) = (i / key_heads, i % key_heads);
            for (block, out) in out.chunks_mut(ROWS * value_size).enumerate() {
                let count = out.len() / value_size;
                let rows = Rows {
                    query: query.data(),
                    query_stride: query.strides()[3],
                    rows: (0..count).map(|r| row(b, h, block * ROWS + r)).collect(),
                    key: matrix(&key, &[b, h]),
                    value: matrix(&value, &[b, h]),
                    mask: mask.map(|mask| match mask {
                        AttentionMask::Allow(mask) => Mask::Allow { data: mask.data(), stride: mask.strides()[3] },
                        AttentionMask::Add(mask) => Mask::Add { data: mask.data(), stride: mask.strides()[3] },
                    }),
                    scale,
                };
                tasks.push((rows, out));
            }
        }
        attend_all(tasks, work)
    };
    out.write(work.scratch, |out| match T::as_wide_mut(out) {
        Some(out) => run(out),
        None => {
            let mut wide = work.scratch.take(out.len());
            run(&mut wide)?;
            vectorised!(T::narrow(&wide, out));
            Ok(())
        }
    })
}

#[cfg(test)]
mod tests {
    use super::super::check::{Owned, Random, close, strided};
    use super::super::scratch::Scratch;
    use super::*;
    use half::{bf16, f16};

    /// All scores at once, in float64. `mask` is what is added.
    fn naive(
        sizes: [usize; 7],
        query: &[f64],
        key: &[f64],
        value: &[f64],
        mask: Option<&[f64]>,
        scale: f64,
        causal: bool,
    ) -> Vec<f64> {
        let [batch, heads, key_heads, queries, keys, size, value_size] = sizes;
        let mut out = vec![0.0; batch * heads * queries * value_size];
        for (i, out) in out.chunks_exact_mut(value_size).enumerate() {
            let (b, h, q) = (i / queries / heads, i / queries % heads, i % queries);
            let head = b * key_heads + h / (heads / key_heads);
            let scores: Vec<f64> = (0..keys)
                .map(|k| {
                    let dot: f64 = (0..size).map(|d| query[i * size + d] * key[(head * keys + k) * size + d]).sum();
                    let hidden = causal && k > q;
                    if hidden { f64::NEG_INFINITY } else { dot * scale + mask.map_or(0.0, |mask| mask[i * keys + k]) }
                })
                .collect();
            let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            if max == f64::NEG_INFINITY {
                continue;
            }
            let weights: Vec<f64> = scores.iter().map(|s| (s - max).exp()).collect();
            let sum: f64 = weights.iter().sum();
            for (d, out) in out.iter_mut().enumerate() {
                *out = (0..keys).map(|k| weights[k] / sum * value[(head * keys + k) * value_size + d]).sum();
            }
        }
        out
    }

    /// A broadcasting mask: dimensions of stride 0 as `which` says.
    fn broadcast<T: Copy>(
        random: &mut Random,
        sizes: &[usize; 4],
        which: usize,
        fill: impl FnMut(&mut Random) -> T,
    ) -> Owned<T> {
        let small: Vec<usize> = (0..4).map(|d| if which >> d & 1 == 1 { 1 } else { sizes[d] }).collect();
        let mut mask = strided(random, &small, fill);
        for d in 0..4 {
            if which >> d & 1 == 1 {
                mask.strides[d] = 0;
            }
        }
        mask.sizes = sizes.to_vec();
        mask
    }

    fn check<T: Float>(seed: u64, tolerance: f64) {
        let mut random = Random::new(seed);
        let scratch = Scratch::default();
        let threads = [Threads::one(), Threads::new(2).unwrap()];
        let make = |x: f64| T::from_wide(T::Wide::from_f64(x));
        let wide = |x: Vec<T>| -> Vec<f64> { x.iter().map(|x| x.to_wide().to_f64()).collect() };
        for round in 0..60 {
            let work = Work { scratch: &scratch, threads: &threads[round % 2] };
            let (batch, key_heads, group) = (1 + random.below(2), 1 + random.below(2), 1 + random.below(3));
            let heads = key_heads * group;
            let queries = [0, 1, 2, 7, 150][random.below(5)];
            let keys = [0, 1, 33, 80, 300][random.below(5)];
            let (size, value_size) = ([1, 8, 24, 65][random.below(4)], [1, 8, 40][random.below(3)]);
            let query = strided(&mut random, &[batch, heads, queries, size], |r| make(2.0 * r.float()));
            let key = strided(&mut random, &[batch, key_heads, keys, size], |r| make(2.0 * r.float()));
            let value = strided(&mut random, &[batch, key_heads, keys, value_size], |r| make(r.float()));
            let mut out = strided(&mut random, &[batch, heads, queries, value_size], |_| make(9.0));
            let mask_sizes = [batch, heads, queries, keys];
            let which = random.below(16);
            // One allowed key in three, so that some rows have none.
            let allow = broadcast(&mut random, &mask_sizes, which, |r| (r.below(3) == 0) as u8);
            let add = broadcast(&mut random, &mask_sizes, which, |r| {
                if r.below(3) == 0 { make(f64::NEG_INFINITY) } else { make(r.float()) }
            });
            let (mask, added) = match random.below(3) {
                0 => (None, None),
                1 => {
                    let added = allow.dense().iter().map(|a| if *a == 0 { f64::NEG_INFINITY } else { 0.0 }).collect();
                    (Some(AttentionMask::Allow(allow.tensor())), Some(added))
                }
                _ => (Some(AttentionMask::Add(add.tensor())), Some(wide(add.dense()))),
            };
            let causal = random.below(3) == 0;
            let step = Attention {
                query: query.tensor(),
                key: key.tensor(),
                value: value.tensor(),
                mask,
                out: out.tensor_mut(),
                scale: 0.3,
                causal,
            };
            attention(step, &work).unwrap();
            let sizes = [batch, heads, key_heads, queries, keys, size, value_size];
            let added: Option<&Vec<f64>> = added.as_ref();
            let (q, k, v) = (wide(query.dense()), wide(key.dense()), wide(value.dense()));
            let want = naive(sizes, &q, &k, &v, added.map(|x| &x[..]), 0.3, causal);
            close(&wide(out.dense()), &want, tolerance, &format!("round {round} {sizes:?} causal {causal}"));
        }
    }

    #[test]
    fn masks_heads_and_strides() {
        check::<f32>(1, 2e-5);
        check::<f64>(2, 1e-12);
        check::<f16>(3, 2e-3);
        check::<bf16>(4, 1e-2);
    }

    fn plain(query: Vec<f32>, key: Vec<f32>, value: Vec<f32>, size: usize) -> Vec<f32> {
        let (scratch, threads) = (Scratch::default(), Threads::one());
        let work = Work { scratch: &scratch, threads: &threads };
        let (queries, keys) = (query.len() / size, key.len() / size);
        let query = Owned::contiguous(&[1, 1, queries, size], query);
        let key = Owned::contiguous(&[1, 1, keys, size], key);
        let value = Owned::contiguous(&[1, 1, keys, size], value);
        let mut out = Owned::contiguous(&[1, 1, queries, size], vec![7.0; queries * size]);
        let step = Attention {
            query: query.tensor(),
            key: key.tensor(),
            value: value.tensor(),
            mask: None,
            out: out.tensor_mut(),
            scale: 1.0,
            causal: false,
        };
        attention(step, &work).unwrap();
        out.data
    }

    #[test]
    fn equal_weights_give_the_value_exactly() {
        for keys in [1, 33, 80, 1000] {
            for queries in [1, 20] {
                let out = plain(vec![0.0; 8 * queries], vec![1.0; 8 * keys], vec![1.0; 8 * keys], 8);
                assert!(out.iter().all(|x| *x == 1.0), "{keys} keys, {queries} queries");
            }
        }
    }

    #[test]
    fn large_scores_and_nan() {
        // Scores of 1024, and one of NaN in a key that a row sees.
        let out = plain(vec![32.0; 2], vec![16.0; 2 * 40], vec![1.0; 2 * 40], 2);
        assert_eq!(out, [1.0, 1.0]);
        let out = plain(vec![1.0; 2], vec![f32::NAN; 2], vec![1.0; 2], 2);
        assert!(out.iter().all(|x| x.is_nan()));
    }
}
