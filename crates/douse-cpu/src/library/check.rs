//! What the tests of operations share: seeded numbers, tensors in arbitrary strides, comparison.

use super::tensor::{Offsets, Tensor, TensorMut, numel};

/// A seeded sequence of numbers (splitmix64).
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    /// In [-1, 1).
    pub fn float(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }
}

/// A tensor that owns its memory.
pub struct Owned<T> {
    pub data: Vec<T>,
    pub offset: usize,
    pub sizes: Vec<usize>,
    pub strides: Vec<isize>,
}

impl<T: Copy> Owned<T> {
    pub fn contiguous(sizes: &[usize], data: Vec<T>) -> Owned<T> {
        Owned { data, offset: 0, sizes: sizes.to_vec(), strides: super::tensor::contiguous_strides(sizes) }
    }

    pub fn tensor(&self) -> Tensor<'_, T> {
        Tensor::new(&self.data, self.offset, &self.sizes, &self.strides).unwrap()
    }

    pub fn tensor_mut(&mut self) -> TensorMut<'_, T> {
        TensorMut::new(&mut self.data, self.offset, &self.sizes, &self.strides).unwrap()
    }

    /// The elements in row-major order.
    pub fn dense(&self) -> Vec<T> {
        Offsets::new(&self.sizes, &self.strides, self.offset).map(|i| self.data[i]).collect()
    }
}

/// A tensor of these sizes whose dimensions lie in memory in any order, with gaps at times, filled in memory order.
pub fn strided<T: Copy>(random: &mut Random, sizes: &[usize], mut fill: impl FnMut(&mut Random) -> T) -> Owned<T> {
    let mut order: Vec<usize> = (0..sizes.len()).collect();
    if random.below(2) == 0 {
        for i in (1..order.len()).rev() {
            order.swap(i, random.below(i + 1));
        }
    }
    let mut strides = vec![1; sizes.len()];
    let mut step = if random.below(4) == 0 { 2 } else { 1 };
    for &d in order.iter().rev() {
        strides[d] = step as isize;
        step *= sizes[d].max(1);
        step += random.below(2);
    }
    let offset = random.below(5);
    let len = offset + step * numel(sizes).min(1) + 1;
    let data = (0..len).map(|_| fill(random)).collect();
    Owned { data, offset, sizes: sizes.to_vec(), strides }
}

/// Asserts that every element is within `tolerance` of what was wanted, relative to the largest one wanted (and to 1).
#[track_caller]
pub fn close(got: &[f64], want: &[f64], tolerance: f64, what: &str) {
    assert_eq!(got.len(), want.len(), "{what}");
    let scale = want.iter().filter(|x| x.is_finite()).fold(1.0f64, |m, x| m.max(x.abs()));
    for (i, (got, want)) in got.iter().zip(want).enumerate() {
        let same = got == want || (got.is_nan() && want.is_nan()) || (got - want).abs() <= tolerance * scale;
        assert!(same, "{what}: element {i} is {got}, not {want}");
    }
}
