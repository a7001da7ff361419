//! LU decomposition with partial pivoting, and what follows from it.

use super::super::simd::{axpy, vectorised};

/// `P A = L U` of a square matrix: L (with a diagonal of ones) and U in one matrix, and the rows' order.
pub struct Lu {
    n: usize,
    lu: Vec<f64>,
    order: Vec<usize>,
    /// Whether the order is an odd permutation.
    odd: bool,
}

impl Lu {
    /// Of a row-major matrix.
    pub fn new(n: usize, a: &[f64]) -> Lu {
        let mut lu = a.to_vec();
        let mut order: Vec<usize> = (0..n).collect();
        let mut odd = false;
        for k in 0..n {
            let mut pivot = k;
            for row in k + 1..n {
                if lu[row * n + k].abs() > lu[pivot * n + k].abs() {
                    pivot = row;
                }
            }
            if pivot != k {
                for j in 0..n {
                    lu.swap(k * n + j, pivot * n + j);
                }
                order.swap(k, pivot);
                odd = !odd;
            }
            let (above, below) = lu.split_at_mut((k + 1) * n);
            let row = &above[k * n..];
            if row[k] == 0.0 {
                continue;
            }
            vectorised!({
                for other in below.chunks_exact_mut(n) {
                    let factor = other[k] / row[k];
                    other[k] = factor;
                    axpy(-factor, &row[k + 1..], &mut other[k + 1..]);
                }
            });
        }
        Lu { n, lu, order, odd }
    }

    fn diagonal(&self) -> impl Iterator<Item = f64> + '_ {
        (0..self.n).map(|i| self.lu[i * self.n + i])
    }

    /// The first zero on the diagonal of U, counted from 1: the matrix is singular.
    pub fn singular(&self) -> Option<usize> {
        self.diagonal().position(|x| x == 0.0).map(|i| i + 1)
    }

    pub fn determinant(&self) -> f64 {
        self.diagonal().fold(if self.odd { -1.0 } else { 1.0 }, |det, x| det * x)
    }

    /// Sign and logarithm of the absolute value of the determinant; 0 and negative infinity where it is 0.
    pub fn sign_and_log(&self) -> (f64, f64) {
        let start = if self.odd { -1.0 } else { 1.0 };
        self.diagonal().fold((start, 0.0), |(sign, log), x| {
            let of_x = if x == 0.0 { 0.0 } else { x.signum() };
            (sign * of_x, log + x.abs().ln())
        })
    }

    /// The solution X of `A X = B` for a row-major B of `k` columns.
    pub fn solve(&self, b: &[f64], k: usize) -> Vec<f64> {
        let n = self.n;
        if k == 0 {
            return Vec::new();
        }
        let mut x: Vec<f64> = self.order.iter().flat_map(|row| b[row * k..][..k].iter().copied()).collect();
        vectorised!({
            for i in 0..n {
                let (solved, rest) = x.split_at_mut(i * k);
                for (j, row) in solved.chunks_exact(k).enumerate() {
                    axpy(-self.lu[i * n + j], row, &mut rest[..k]);
                }
            }
            for i in (0..n).rev() {
                let (rest, solved) = x.split_at_mut((i + 1) * k);
                let row = &mut rest[i * k..];
                for (j, other) in solved.chunks_exact(k).enumerate() {
                    axpy(-self.lu[i * n + i + 1 + j], other, row);
                }
                row.iter_mut().for_each(|x| *x /= self.lu[i * n + i]);
            }
        });
        x
    }
}
