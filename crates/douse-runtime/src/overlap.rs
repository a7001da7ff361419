//! Whether two tensors of a caller share memory.

use std::collections::BTreeSet;

use douse_core::{TensorView, layout};

/// Whether an element of one shares a byte with an element of the other.
pub(crate) fn overlap(a: &TensorView<'_>, b: &TensorView<'_>) -> bool {
    let (x, y) = (a.span(), b.span());
    if x.is_empty() || y.is_empty() || x.end <= y.start || y.end <= x.start {
        return false;
    }
    if dense(a) && dense(b) {
        return true;
    }
    // The spans meet but may interleave, as two columns of one matrix do: compare element by element.
    let bytes: BTreeSet<usize> = addresses(a).into_iter().filter(|at| y.contains(at)).collect();
    addresses(b).iter().any(|at| bytes.contains(at))
}

fn dense(view: &TensorView<'_>) -> bool {
    layout::extent(view.sizes(), view.strides()) == Some(view.numel())
}

/// The address of every byte of every element.
fn addresses(view: &TensorView<'_>) -> Vec<usize> {
    let (start, size) = (view.span().start, view.dtype().size());
    let mut addresses = Vec::new();
    layout::for_each_run(view.sizes(), view.strides(), view.strides(), &mut |at, _, count, step, _| {
        for i in 0..count {
            let first = start + (at + i * step) * size;
            addresses.extend(first..first + size);
        }
    });
    addresses
}

#[cfg(test)]
mod tests {
    use super::*;
    use douse_core::{DType, Memory};

    #[test]
    fn columns_of_one_matrix_do_not_overlap() {
        let memory = [0u8; 24];
        let part =
            |from: usize, sizes, strides| TensorView::new(DType::F32, sizes, strides, Memory::Read(&memory[from..]));
        let left = part(0, &[3, 1], &[2, 1]).unwrap();
        let right = part(4, &[3, 1], &[2, 1]).unwrap();
        assert!(!overlap(&left, &right));
        assert!(overlap(&left, &left));
        assert!(overlap(&left, &part(0, &[6], &[1]).unwrap()));
        let halves = (part(0, &[3], &[1]).unwrap(), part(12, &[3], &[1]).unwrap());
        assert!(!overlap(&halves.0, &halves.1));
        assert!(!overlap(&left, &part(0, &[0], &[1]).unwrap()));
    }
}
