//! Coordinates of the true elements of a mask.

use douse_core::{Error, Result};

use super::tensor::{Offsets, Tensor, TensorMut};

/// Writes the coordinates of the true elements of a bool `mask` in row-major order to the first rows of `out` [numel, rank],
/// and returns how many there are.
pub fn nonzero(mask: Tensor<'_, u8>, mut out: TensorMut<'_, i64>) -> Result<usize> {
    let rank = mask.rank();
    let (&[rows, columns], &[row_stride, column_stride]) = (out.sizes(), out.strides()) else {
        return Err(Error::internal("nonzero writes a matrix"));
    };
    let mut index = vec![0usize; rank];
    let mut count = 0;
    let start = out.offset();
    for offset in Offsets::new(mask.sizes(), mask.strides(), mask.offset()) {
        if mask.data()[offset] != 0 {
            if count == rows || columns != rank {
                return Err(Error::internal("nonzero finds more elements than its result has rows"));
            }
            for (j, i) in index.iter().enumerate() {
                let at = count as isize * row_stride + j as isize * column_stride;
                out.data()[start.wrapping_add_signed(at)] = *i as i64;
            }
            count += 1;
        }
        for (i, size) in index.iter_mut().zip(mask.sizes()).rev() {
            *i += 1;
            if *i < *size {
                break;
            }
            *i = 0;
        }
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::super::check::{Random, strided};
    use super::*;

    #[test]
    fn coordinates_in_row_major_order() {
        let mut random = Random::new(1);
        for sizes in [vec![], vec![5], vec![3, 4], vec![2, 3, 4], vec![2, 0, 4]] {
            let mask = strided(&mut random, &sizes, |r| r.below(2) as u8);
            let numel = sizes.iter().product::<usize>();
            let mut out = strided(&mut random, &[numel, sizes.len()], |_| -1i64);
            let count = nonzero(mask.tensor(), out.tensor_mut()).unwrap();
            let got = out.dense();
            let mut want = Vec::new();
            for (i, _) in mask.dense().iter().enumerate().filter(|(_, x)| **x != 0) {
                let mut rest = i;
                let mut row: Vec<i64> = sizes
                    .iter()
                    .rev()
                    .map(|n| {
                        let x = rest % n;
                        rest /= n;
                        x as i64
                    })
                    .collect();
                row.reverse();
                want.push(row);
            }
            assert_eq!(count, want.len());
            assert_eq!(got[..count * sizes.len()], want.concat());
            assert!(got[count * sizes.len()..].iter().all(|x| *x == -1), "rows past the count are left alone");
        }
    }

    #[test]
    fn a_result_too_small_is_refused() {
        let mask = [1u8; 3];
        let mut out = [0i64; 2];
        let run =
            nonzero(Tensor::new(&mask, 0, &[3], &[1]).unwrap(), TensorMut::new(&mut out, 0, &[2, 1], &[1, 1]).unwrap());
        assert!(run.is_err());
    }
}
