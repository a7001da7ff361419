//! The exponential of a matrix.

use douse_core::Result;

use super::super::gemm::{Matrix, MatrixMut, gemm};
use super::lu::Lu;
use crate::threads::Threads;

/// Numerator's coefficients of the Padé approximant of degree 13, relative to the last one.
const PADE: [f64; 14] = [
    64764752532480000.0,
    32382376266240000.0,
    7771770303897600.0,
    1187353796428800.0,
    129060195264000.0,
    10559470521600.0,
    670442572800.0,
    33522128640.0,
    1323241920.0,
    40840800.0,
    960960.0,
    16380.0,
    182.0,
    1.0,
];

/// The norm up to which the approximant is exact to float64.
const THETA: f64 = 5.371920351148152;

/// exp(A) of a row-major square matrix by scaling and squaring (Higham, "The scaling and squaring method for the matrix exponential
/// revisited", 2005).
pub fn exponential(n: usize, a: &[f64]) -> Result<Vec<f64>> {
    let norm = (0..n).map(|j| (0..n).map(|i| a[i * n + j].abs()).sum::<f64>()).fold(0.0, f64::max);
    if !norm.is_finite() || a.iter().any(|x| x.is_nan()) {
        return Ok(vec![f64::NAN; n * n]);
    }
    let squarings = if norm > THETA { (norm / THETA).log2().ceil() as i32 } else { 0 };
    let a: Vec<f64> = a.iter().map(|x| x / 2f64.powi(squarings)).collect();
    let a2 = product(n, &a, &a)?;
    let a4 = product(n, &a2, &a2)?;
    let a6 = product(n, &a2, &a4)?;
    // Powers 8 to 12 are a6 times the lower ones.
    let combine = |c: [f64; 7]| -> Result<Vec<f64>> {
        let high: Vec<f64> = (0..n * n).map(|i| c[4] * a2[i] + c[5] * a4[i] + c[6] * a6[i]).collect();
        let mut sum = product(n, &a6, &high)?;
        for (i, x) in sum.iter_mut().enumerate() {
            let one = if n > 0 && i / n == i % n { c[0] } else { 0.0 };
            *x += one + c[1] * a2[i] + c[2] * a4[i] + c[3] * a6[i];
        }
        Ok(sum)
    };
    let odd = combine(std::array::from_fn(|i| PADE[2 * i + 1]))?;
    let even = combine(std::array::from_fn(|i| PADE[2 * i]))?;
    let odd = product(n, &a, &odd)?;
    let numerator: Vec<f64> = even.iter().zip(&odd).map(|(v, u)| v + u).collect();
    let denominator: Vec<f64> = even.iter().zip(&odd).map(|(v, u)| v - u).collect();
    let mut result = Lu::new(n, &denominator).solve(&numerator, n);
    for _ in 0..squarings {
        result = product(n, &result, &result)?;
    }
    Ok(result)
}

/// The product of two square matrices.
fn product(n: usize, a: &[f64], b: &[f64]) -> Result<Vec<f64>> {
    let mut out = vec![0.0; n * n];
    gemm(
        Matrix::rows(a, n, n, n),
        Matrix::rows(b, n, n, n),
        MatrixMut::rows(&mut out, n, n, n),
        1.0,
        false,
        &Threads::one(),
    )?;
    Ok(out)
}
