//! Panels: blocks of columns of a matrix product's right side, packed for [`super::tile`].

use super::gemm::Matrix;
use std::ops::Range;

/// Columns of a panel: three AVX-512 registers of float32.
pub const WIDTH: usize = 48;

/// A panel has a multiple of this many columns, padded with zeros.
pub const STEP: usize = 16;

/// Rows packed at a time: with [`WIDTH`] columns they stay in the second-level cache.
pub const DEPTH: usize = 1024;

/// Packs the columns and rows of a matrix.
pub fn pack(from: Matrix<'_, f32>, columns: Range<usize>, rows: Range<usize>, panel: &mut [f32]) {
    let width = columns.len().next_multiple_of(STEP);
    let at = |row: usize, column: usize| {
        from.offset.wrapping_add_signed(row as isize * from.row_stride + column as isize * from.col_stride)
    };
    if from.col_stride == 1 {
        for (row, to) in rows.zip(panel.chunks_exact_mut(width)) {
            let start = at(row, columns.start);
            to[..columns.len()].copy_from_slice(&from.data[start..start + columns.len()]);
            to[columns.len()..].fill(0.0);
        }
        return;
    }
    let count = rows.len();
    for (j, column) in columns.clone().enumerate() {
        let to = panel.chunks_exact_mut(width).map(|row| &mut row[j]);
        let start = at(rows.start, column);
        if from.row_stride == 1 {
            to.zip(&from.data[start..start + count]).for_each(|(to, x)| *to = *x);
        } else {
            to.zip(rows.clone()).for_each(|(to, row)| *to = from.data[at(row, column)]);
        }
    }
    if columns.len() < width {
        panel.chunks_exact_mut(width).take(count).for_each(|row| row[columns.len()..].fill(0.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_strides_pack_alike() {
        let data: Vec<f32> = (0..60).map(|i| i as f32).collect();
        let rows = Matrix { data: &data, offset: 1, rows: 4, cols: 5, row_stride: 7, col_stride: 1 };
        let transposed: Vec<f32> = (0..20).map(|i| data[1 + i % 4 * 7 + i / 4]).collect();
        let spread: Vec<f32> = (0..40).map(|i| transposed[i / 2]).collect();
        let columns = Matrix { data: &transposed, offset: 0, rows: 4, cols: 5, row_stride: 1, col_stride: 4 };
        let gaps = Matrix { data: &spread, offset: 0, rows: 4, cols: 5, row_stride: 2, col_stride: 8 };
        let packed = [rows, columns, gaps].map(|matrix| {
            let mut panel = vec![f32::NAN; 2 * STEP];
            pack(matrix, 1..4, 2..4, &mut panel);
            panel
        });
        assert_eq!(packed[0][..4], [data[16], data[17], data[18], 0.0]);
        assert_eq!(packed[0][STEP..STEP + 3], data[23..26]);
        assert!(packed[0] == packed[1] && packed[1] == packed[2]);
    }
}
