//! Singular values and QR decomposition.

use super::super::simd::{axpy, dot, vectorised};
use super::symmetric::{rotate_rows, rotation};

/// Sweeps after which the method stops whatever it has.
const SWEEPS: usize = 60;

/// `A = U diag(s) Vh` of a row-major [m, n] matrix: U [m, min], s in descending order, Vh [min, n]; by one-sided Jacobi rotations
/// (Hestenes, 1958).
pub fn svd(m: usize, n: usize, a: &[f64]) -> (Vec<f64>, Vec<f64>, Vec<f64>) {
    if m < n {
        // The transpose's, with the factors exchanged.
        let (u, s, vh) = svd(n, m, &transpose(m, n, a));
        return (transpose(m, m, &vh), s, transpose(n, m, &u));
    }
    // Columns of A, as rows, are rotated until they are orthogonal: then they are U diag(s), and the rotations are V.
    let mut columns = transpose(m, n, a);
    let mut v: Vec<f64> = (0..n * n).map(|i| if i / n == i % n { 1.0 } else { 0.0 }).collect();
    for _ in 0..SWEEPS {
        let mut rotated = false;
        for p in 0..n {
            for q in p + 1..n {
                let (x, y) = (&columns[p * m..][..m], &columns[q * m..][..m]);
                let (xx, yy, xy) = vectorised!((dot(x, x), dot(y, y), dot(x, y)));
                if xy == 0.0 || xy.abs() <= f64::EPSILON * (xx * yy).sqrt() || !xy.is_finite() {
                    continue;
                }
                rotated = true;
                let (c, s) = rotation(xx, yy, xy);
                rotate_rows(&mut columns, m, p, q, c, s);
                rotate_rows(&mut v, n, p, q, c, s);
            }
        }
        if !rotated {
            break;
        }
    }
    let norms: Vec<f64> = columns.chunks(m.max(1)).map(|x| dot(x, x).sqrt()).collect();
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by(|i, j| norms[*j].total_cmp(&norms[*i]));
    let s: Vec<f64> = order.iter().map(|i| norms[*i]).collect();
    let vh: Vec<f64> = order.iter().flat_map(|i| v[i * n..][..n].iter().copied()).collect();
    let least = s.first().copied().unwrap_or(0.0) * f64::EPSILON * m as f64;
    let mut u: Vec<f64> = Vec::with_capacity(n * m);
    for (i, s) in order.iter().zip(&s) {
        let column = if *s > least || s.is_nan() {
            columns[i * m..][..m].iter().map(|x| x / s).collect()
        } else {
            // Any direction will do that is orthogonal to the others.
            another_direction(m, &u)
        };
        u.extend(column);
    }
    (transpose(n, m, &u), s, vh)
}

/// A unit vector orthogonal to the rows of `basis`, of which there are fewer than `m`.
fn another_direction(m: usize, basis: &[f64]) -> Vec<f64> {
    let mut best = vec![0.0; m];
    for axis in 0..m {
        let mut x = vec![0.0; m];
        x[axis] = 1.0;
        // Twice, against cancellation.
        for _ in 0..2 {
            for row in basis.chunks_exact(m) {
                let along = dot(row, &x);
                axpy(-along, row, &mut x);
            }
        }
        let norm = dot(&x, &x).sqrt();
        // Of the axes at least one keeps this much.
        if norm * norm * (m as f64) >= 0.5 {
            x.iter_mut().for_each(|x| *x /= norm);
            return x;
        }
        best = x;
    }
    best
}

/// The row-major [n, m] transpose of a row-major [m, n] matrix.
pub fn transpose(m: usize, n: usize, a: &[f64]) -> Vec<f64> {
    (0..m * n).map(|i| a[i % m * n + i / m]).collect()
}

/// `A = Q R` of a row-major [m, n] matrix: Q [m, min], R [min, n], by Householder reflections with LAPACK's signs: an element of R's
/// diagonal is negative where the reflected column began with a positive number.
pub fn qr(m: usize, n: usize, a: &[f64]) -> (Vec<f64>, Vec<f64>) {
    let rank = m.min(n);
    // Columns as rows.
    let mut r = transpose(m, n, a);
    let mut reflections: Vec<(Vec<f64>, f64)> = Vec::with_capacity(rank);
    for k in 0..rank {
        let column = &mut r[k * m..][..m];
        let rest = dot(&column[k + 1..], &column[k + 1..]).sqrt();
        let alpha = column[k];
        let (v, tau) = if rest == 0.0 {
            (vec![0.0; m - k], 0.0)
        } else {
            let beta = -alpha.hypot(rest).copysign(alpha);
            let mut v: Vec<f64> = column[k..].iter().map(|x| x / (alpha - beta)).collect();
            v[0] = 1.0;
            column[k] = beta;
            (v, (beta - alpha) / beta)
        };
        column[k + 1..].fill(0.0);
        for column in r[(k + 1) * m..].chunks_exact_mut(m) {
            reflect(&v, tau, &mut column[k..]);
        }
        reflections.push((v, tau));
    }
    let mut q = vec![0.0; rank * m];
    for (i, column) in q.chunks_exact_mut(m.max(1)).enumerate() {
        column[i] = 1.0;
        for (k, (v, tau)) in reflections.iter().enumerate().rev() {
            reflect(v, *tau, &mut column[k..]);
        }
    }
    let r = (0..rank * n).map(|i| r[i % n * m + i / n]).collect();
    (transpose(rank, m, &q), r)
}

/// `x -= tau v (v . x)`
fn reflect(v: &[f64], tau: f64, x: &mut [f64]) {
    vectorised!({
        let along = dot(v, x);
        axpy(-tau * along, v, x);
    });
}
