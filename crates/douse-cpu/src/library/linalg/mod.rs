//! Linear algebra on the last two dimensions: computed in float64, rounded once.

mod exponential;
mod lu;
mod orthogonal;
mod symmetric;

use douse_core::{Error, Result};
use douse_program::failure::Failure;
use douse_program::library::Linalg;

use super::element::Real;
use super::tensor::{Tensor, TensorMut, numel};
use super::work::Work;
use lu::Lu;

/// An operand of one matrix: its elements and the last two sizes.
type Operand<'a> = (&'a [f64], usize, usize);

/// The numbers of inputs and outputs, and the dimensions that an output has beyond the leading ones.
fn arity(kind: Linalg) -> (usize, &'static [usize]) {
    match kind {
        Linalg::Det => (1, &[0]),
        Linalg::Slogdet => (1, &[0, 0]),
        Linalg::Inverse | Linalg::Cholesky | Linalg::MatrixExp => (1, &[2]),
        Linalg::Solve => (2, &[2]),
        Linalg::Eigh => (1, &[1, 2]),
        Linalg::Svd => (1, &[2, 1, 2]),
        Linalg::Qr => (1, &[2, 2]),
    }
}

/// Runs a function of [`Linalg`] for every matrix of the inputs' leading sizes. Fails where a matrix is singular (inverse, solve) or not
/// positive definite (Cholesky).
pub fn linalg<T: Real>(
    kind: Linalg,
    inputs: &[Tensor<'_, T>],
    outputs: &mut [TensorMut<'_, T>],
    work: &Work,
) -> Result<()> {
    let (input_count, ranks) = arity(kind);
    let fault = || Error::internal(format!("{kind:?} has other operands than expected"));
    let Some(first) = inputs.first() else { return Err(fault()) };
    let rank = first.rank();
    if inputs.len() != input_count || outputs.len() != ranks.len() || rank < 2 {
        return Err(fault());
    }
    let lead = &first.sizes()[..rank - 2];
    let agree = inputs.iter().all(|input| input.rank() == rank && input.sizes()[..rank - 2] == *lead)
        && outputs
            .iter()
            .zip(ranks)
            .all(|(out, more)| out.rank() == rank - 2 + more && out.sizes()[..rank - 2] == *lead);
    if !agree {
        return Err(fault());
    }
    let batch = numel(lead);
    let dense: Vec<_> = inputs.iter().map(|input| input.dense(work.scratch)).collect();
    let lens: Vec<usize> = outputs.iter().map(|out| numel(&out.sizes()[rank - 2..])).collect();
    let mut results: Vec<Vec<T>> = lens.iter().map(|len| Vec::with_capacity(batch * len)).collect();
    for i in 0..batch {
        let wide: Vec<Vec<f64>> = dense
            .iter()
            .zip(inputs)
            .map(|(dense, input)| {
                let len = numel(&input.sizes()[rank - 2..]);
                dense[i * len..][..len].iter().map(|x| x.to_f64()).collect()
            })
            .collect();
        let operands: Vec<Operand> = wide
            .iter()
            .zip(inputs)
            .map(|(wide, input)| (&wide[..], input.sizes()[rank - 2], input.sizes()[rank - 1]))
            .collect();
        let one = one_matrix(kind, &operands).map_err(|e| match batch {
            1 => e,
            _ => Error::new(e.code, format!("(Batch element {i}): {}", e.message)),
        })?;
        for ((result, one), len) in results.iter_mut().zip(one).zip(&lens) {
            if one.len() != *len {
                return Err(fault());
            }
            result.extend(one.into_iter().map(T::from_f64));
        }
    }
    for (out, result) in outputs.iter_mut().zip(&results) {
        out.scatter(result);
    }
    Ok(())
}

/// The outputs for one matrix, in order.
fn one_matrix(kind: Linalg, operands: &[Operand]) -> Result<Vec<Vec<f64>>> {
    let (a, m, n) = match operands.first() {
        Some(operand) => *operand,
        None => return Err(Error::internal("linear algebra of nothing")),
    };
    if !matches!(kind, Linalg::Svd | Linalg::Qr) && m != n {
        return Err(Error::internal(format!("{kind:?} of a matrix of {m} by {n}")));
    }
    Ok(match kind {
        Linalg::Det => vec![vec![Lu::new(n, a).determinant()]],
        Linalg::Slogdet => {
            let (sign, log) = Lu::new(n, a).sign_and_log();
            vec![vec![sign], vec![log]]
        }
        Linalg::Inverse => {
            let lu = Lu::new(n, a);
            if let Some(k) = lu.singular() {
                return Err(Failure::SingularInverse.error(k as i64, n as i64));
            }
            let identity: Vec<f64> = (0..n * n).map(|i| if i / n == i % n { 1.0 } else { 0.0 }).collect();
            vec![lu.solve(&identity, n)]
        }
        Linalg::Solve => {
            let Some((b, rows, k)) = operands.get(1).copied().filter(|b| b.1 == n) else {
                return Err(Error::internal("a system of equations with another number of right-hand sides"));
            };
            debug_assert_eq!(rows, n);
            let lu = Lu::new(n, a);
            if let Some(k) = lu.singular() {
                return Err(Failure::SingularSolve.error(k as i64, n as i64));
            }
            vec![lu.solve(b, k)]
        }
        Linalg::Cholesky => {
            vec![symmetric::cholesky(n, a).map_err(|k| Failure::NotPositiveDefinite.error(k as i64, n as i64))?]
        }
        Linalg::Eigh => {
            let (values, vectors) = symmetric::eigh(n, a);
            vec![values, vectors]
        }
        Linalg::Svd => {
            let (u, s, vh) = orthogonal::svd(m, n, a);
            vec![u, s, vh]
        }
        Linalg::Qr => {
            let (q, r) = orthogonal::qr(m, n, a);
            vec![q, r]
        }
        Linalg::MatrixExp => vec![exponential::exponential(n, a)?],
    })
}

#[cfg(test)]
mod tests {
    use super::super::check::{Owned, Random, close, strided};
    use super::super::scratch::Scratch;
    use super::*;
    use crate::threads::Threads;

    fn run(kind: Linalg, inputs: &[&Owned<f64>], outputs: &[&[usize]]) -> Result<Vec<Vec<f64>>> {
        let (scratch, threads) = (Scratch::default(), Threads::one());
        let work = Work { scratch: &scratch, threads: &threads };
        let mut random = Random::new(9);
        let inputs: Vec<_> = inputs.iter().map(|input| input.tensor()).collect();
        let mut owned: Vec<_> = outputs.iter().map(|sizes| strided(&mut random, sizes, |_| f64::NAN)).collect();
        let mut outputs: Vec<_> = owned.iter_mut().map(|out| out.tensor_mut()).collect();
        linalg(kind, &inputs, &mut outputs, &work)?;
        drop(outputs);
        Ok(owned.iter().map(|out| out.dense()).collect())
    }

    /// Products of [batch] row-major matrices [m, k] and [k, n].
    fn product(m: usize, k: usize, n: usize, a: &[f64], b: &[f64]) -> Vec<f64> {
        let batch = a.len().checked_div(m * k).unwrap_or(0);
        let entry = |i: usize, x: usize| {
            let (batch, row, col) = (i / (m * n), i / n % m, i % n);
            a[(batch * m + row) * k + x] * b[(batch * k + x) * n + col]
        };
        (0..batch * m * n).map(|i| (0..k).map(|x| entry(i, x)).sum()).collect()
    }

    fn transposed(m: usize, n: usize, a: &[f64]) -> Vec<f64> {
        a.chunks_exact(m * n).flat_map(|a| orthogonal::transpose(m, n, a)).collect()
    }

    fn identities(n: usize) -> Vec<f64> {
        (0..2 * n * n).map(|i| if i / n % n == i % n { 1.0 } else { 0.0 }).collect()
    }

    fn random_matrices(random: &mut Random, m: usize, n: usize) -> Owned<f64> {
        strided(random, &[2, m, n], |r| r.float())
    }

    #[test]
    fn inverse_solve_and_determinant() {
        let mut random = Random::new(1);
        for n in [1, 2, 3, 8, 30] {
            let a = random_matrices(&mut random, n, n);
            let b = random_matrices(&mut random, n, 3);
            let inverse = run(Linalg::Inverse, &[&a], &[&[2, n, n]]).unwrap().remove(0);
            close(&product(n, n, n, &a.dense(), &inverse), &identities(n), 1e-9, "a inverse");
            let x = run(Linalg::Solve, &[&a, &b], &[&[2, n, 3]]).unwrap().remove(0);
            close(&product(n, n, 3, &a.dense(), &x), &b.dense(), 1e-9, "a x");
            let det = run(Linalg::Det, &[&a], &[&[2]]).unwrap().remove(0);
            let sign_log = run(Linalg::Slogdet, &[&a], &[&[2], &[2]]).unwrap();
            let from_log: Vec<f64> = sign_log[0].iter().zip(&sign_log[1]).map(|(sign, log)| sign * log.exp()).collect();
            close(&from_log, &det, 1e-10, "slogdet");
        }
        let a = Owned::contiguous(&[3, 3], vec![0.0, 2.0, 1.0, 1.0, 0.0, 0.0, 3.0, 0.0, 4.0]);
        close(&run(Linalg::Det, &[&a], &[&[]]).unwrap()[0], &[-8.0], 1e-14, "det");
        let empty = Owned::contiguous(&[0, 0], vec![]);
        assert_eq!(run(Linalg::Det, &[&empty], &[&[]]).unwrap()[0], [1.0]);
    }

    #[test]
    fn singular_matrices() {
        let a = Owned::contiguous(&[2, 2], vec![1.0, 2.0, 2.0, 4.0]);
        let error = run(Linalg::Inverse, &[&a], &[&[2, 2]]).unwrap_err();
        assert_eq!(
            error.message,
            "The diagonal element 2 is zero, the inversion could not be completed because the input matrix is singular"
        );
        assert!(run(Linalg::Solve, &[&a, &a], &[&[2, 2]]).is_err());
        assert_eq!(run(Linalg::Det, &[&a], &[&[]]).unwrap()[0], [0.0]);
        assert_eq!(run(Linalg::Slogdet, &[&a], &[&[], &[]]).unwrap(), [[0.0], [f64::NEG_INFINITY]]);
        let not_positive = Owned::contiguous(&[2, 2], vec![1.0, 9.0, 2.0, 4.0]);
        assert!(run(Linalg::Cholesky, &[&not_positive], &[&[2, 2]]).unwrap_err().message.contains("order 2"));
    }

    #[test]
    fn cholesky_and_eigh_of_symmetric_matrices() {
        let mut random = Random::new(2);
        for n in [1, 2, 5, 24] {
            let b = random_matrices(&mut random, n, n).dense();
            let mut a = product(n, n, n, &b, &transposed(n, n, &b));
            a.iter_mut().zip(identities(n)).for_each(|(a, i)| *a += 0.1 * i);
            let mut lower = a.clone();
            // The upper part is not read.
            lower.iter_mut().enumerate().for_each(|(i, x)| {
                if i % n > i / n % n {
                    *x = f64::NAN
                }
            });
            let lower = Owned::contiguous(&[2, n, n], lower);
            let l = run(Linalg::Cholesky, &[&lower], &[&[2, n, n]]).unwrap().remove(0);
            close(&product(n, n, n, &l, &transposed(n, n, &l)), &a, 1e-12, "l lt");
            assert!(l.iter().enumerate().all(|(i, x)| i % n <= i / n % n || *x == 0.0));

            let results = run(Linalg::Eigh, &[&lower], &[&[2, n], &[2, n, n]]).unwrap();
            let (values, vectors) = (&results[0], &results[1]);
            assert!(values.chunks_exact(n).all(|values| values.is_sorted()));
            let scaled: Vec<f64> =
                vectors.iter().enumerate().map(|(i, v)| v * values[i / (n * n) * n + i % n]).collect();
            close(&product(n, n, n, &a, vectors), &scaled, 1e-12, "a v = v w");
            close(&product(n, n, n, &transposed(n, n, vectors), vectors), &identities(n), 1e-12, "orthogonal");
        }
    }

    #[test]
    fn svd_and_qr_of_all_shapes() {
        let mut random = Random::new(3);
        for (m, n) in [(1, 1), (4, 4), (7, 3), (3, 7), (20, 12)] {
            let rank = m.min(n);
            let mut a = random_matrices(&mut random, m, n);
            if m == 7 {
                // Two equal columns: a singular value of 0.
                let dense = a.dense();
                a = Owned::contiguous(&[2, m, n], (0..dense.len()).map(|i| dense[i - (i % n == 2) as usize]).collect());
            }
            let svd = run(Linalg::Svd, &[&a], &[&[2, m, rank], &[2, rank], &[2, rank, n]]).unwrap();
            let us: Vec<f64> =
                svd[0].iter().enumerate().map(|(i, u)| u * svd[1][i / (m * rank) * rank + i % rank]).collect();
            close(&product(m, rank, n, &us, &svd[2]), &a.dense(), 1e-12, "u s vh");
            assert!(svd[1].chunks_exact(rank).all(|s| s.iter().rev().is_sorted() && s[rank - 1] >= 0.0));
            let gram = product(rank, m, rank, &transposed(m, rank, &svd[0]), &svd[0]);
            close(&gram, &identities(rank), 1e-12, "ut u");
            let gram = product(rank, n, rank, &svd[2], &transposed(rank, n, &svd[2]));
            close(&gram, &identities(rank), 1e-12, "vh v");

            let qr = run(Linalg::Qr, &[&a], &[&[2, m, rank], &[2, rank, n]]).unwrap();
            close(&product(m, rank, n, &qr[0], &qr[1]), &a.dense(), 1e-12, "q r");
            let gram = product(rank, m, rank, &transposed(m, rank, &qr[0]), &qr[0]);
            close(&gram, &identities(rank), 1e-12, "qt q");
            assert!(qr[1].iter().enumerate().all(|(i, x)| i % n >= i / n % rank || *x == 0.0));
        }
    }

    #[test]
    fn qr_has_the_signs_of_lapack() {
        let a = Owned::contiguous(&[2, 2], vec![3.0, 1.0, 4.0, 2.0]);
        let qr = run(Linalg::Qr, &[&a], &[&[2, 2], &[2, 2]]).unwrap();
        close(&qr[0], &[-0.6, -0.8, -0.8, 0.6], 1e-14, "q");
        close(&qr[1], &[-5.0, -2.2, 0.0, 0.4], 1e-14, "r");
    }

    #[test]
    fn exponentials() {
        // A rotation by an angle, a nilpotent matrix, a large norm.
        let angle = 2.0f64;
        let a = Owned::contiguous(&[2, 2], vec![0.0, -angle, angle, 0.0]);
        let want = [angle.cos(), -angle.sin(), angle.sin(), angle.cos()];
        close(&run(Linalg::MatrixExp, &[&a], &[&[2, 2]]).unwrap()[0], &want, 1e-14, "rotation");
        let a = Owned::contiguous(&[3, 3], vec![0.0, 1.0, 2.0, 0.0, 0.0, 3.0, 0.0, 0.0, 0.0]);
        let want = [1.0, 1.0, 3.5, 0.0, 1.0, 3.0, 0.0, 0.0, 1.0];
        close(&run(Linalg::MatrixExp, &[&a], &[&[3, 3]]).unwrap()[0], &want, 1e-14, "nilpotent");
        let a = Owned::contiguous(&[2, 2], vec![20.0, 0.0, 0.0, -20.0]);
        let got = run(Linalg::MatrixExp, &[&a], &[&[2, 2]]).unwrap().remove(0);
        close(&[got[0] / 20f64.exp(), got[1], got[3]], &[1.0, 0.0, (-20f64).exp()], 1e-12, "diagonal");
    }

    #[test]
    fn float32_rounds_once() {
        let (scratch, threads) = (Scratch::default(), Threads::one());
        let work = Work { scratch: &scratch, threads: &threads };
        let a = Owned::contiguous(&[1, 1], vec![3.0f32]);
        let mut out = Owned::contiguous(&[1, 1], vec![0.0f32]);
        linalg(Linalg::Inverse, &[a.tensor()], &mut [out.tensor_mut()], &work).unwrap();
        assert_eq!(out.data, [1.0f32 / 3.0]);
    }
}
