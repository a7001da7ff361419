//! Decompositions of symmetric matrices.

use super::super::simd::dot;

/// The lower Cholesky factor of a row-major matrix, of which the lower part is read. Fails with the order (from 1) of the leading
/// minor that is not positive.
pub fn cholesky(n: usize, a: &[f64]) -> Result<Vec<f64>, usize> {
    let mut l = vec![0.0; n * n];
    for i in 0..n {
        for j in 0..=i {
            let rest = a[i * n + j] - dot(&l[i * n..i * n + j], &l[j * n..j * n + j]);
            if i == j {
                if rest <= 0.0 || rest.is_nan() {
                    return Err(i + 1);
                }
                l[i * n + i] = rest.sqrt();
            } else {
                l[i * n + j] = rest / l[j * n + j];
            }
        }
    }
    Ok(l)
}

/// Sweeps after which Jacobi's method stops whatever it has; it converges in fewer than 10 in practice.
const SWEEPS: usize = 60;

/// Eigenvalues in ascending order, and eigenvectors as the columns of a row-major matrix, of a symmetric matrix of which the lower part is
/// read; by Jacobi's cyclic method (Golub and Van Loan, "Matrix Computations", 8.5).
pub fn eigh(n: usize, a: &[f64]) -> (Vec<f64>, Vec<f64>) {
    let mut a: Vec<f64> = (0..n * n).map(|i| a[(i / n).max(i % n) * n + (i / n).min(i % n)]).collect();
    // Rows of `v` are the vectors while they are computed.
    let mut v: Vec<f64> = (0..n * n).map(|i| if i / n == i % n { 1.0 } else { 0.0 }).collect();
    for _ in 0..SWEEPS {
        let mut rotated = false;
        for p in 0..n {
            for q in p + 1..n {
                let off = a[p * n + q];
                let (app, aqq) = (a[p * n + p], a[q * n + q]);
                // Elements that are lost in the rounding of the diagonal count as zero.
                if off == 0.0 || off.abs() <= f64::EPSILON * 1e-3 * (app.abs() * aqq.abs()).sqrt() || !off.is_finite() {
                    continue;
                }
                rotated = true;
                let (c, s) = rotation(app, aqq, off);
                rotate_rows(&mut a, n, p, q, c, s);
                rotate_columns(&mut a, n, p, q, c, s);
                rotate_rows(&mut v, n, p, q, c, s);
                a[p * n + q] = 0.0;
                a[q * n + p] = 0.0;
            }
        }
        if !rotated {
            break;
        }
    }
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by(|i, j| a[i * n + i].total_cmp(&a[j * n + j]));
    let values = order.iter().map(|i| a[i * n + i]).collect();
    let vectors = (0..n * n).map(|i| v[order[i % n] * n + i / n]).collect();
    (values, vectors)
}

/// Cosine and sine of the rotation that makes the off-diagonal element zero.
pub fn rotation(app: f64, aqq: f64, off: f64) -> (f64, f64) {
    let tau = (aqq - app) / (2.0 * off);
    let t = if tau >= 0.0 { 1.0 / (tau + tau.hypot(1.0)) } else { -1.0 / (-tau + tau.hypot(1.0)) };
    let c = 1.0 / t.hypot(1.0);
    (c, t * c)
}

/// Rows p and q of a matrix become `c p - s q` and `s p + c q`.
pub fn rotate_rows(a: &mut [f64], n: usize, p: usize, q: usize, c: f64, s: f64) {
    let (above, below) = a.split_at_mut(q * n);
    for (x, y) in above[p * n..][..n].iter_mut().zip(&mut below[..n]) {
        (*x, *y) = (c * *x - s * *y, s * *x + c * *y);
    }
}

fn rotate_columns(a: &mut [f64], n: usize, p: usize, q: usize, c: f64, s: f64) {
    for row in a.chunks_exact_mut(n) {
        (row[p], row[q]) = (c * row[p] - s * row[q], s * row[p] + c * row[q]);
    }
}
