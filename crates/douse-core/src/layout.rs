//! Sizes and strides: where the elements of a tensor lie. Both count elements.

/// The strides of a tensor whose elements lie row by row without gaps.
pub fn contiguous_strides(sizes: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; sizes.len()];
    let mut next = 1usize;
    for (stride, size) in strides.iter_mut().zip(sizes).rev() {
        *stride = next;
        next = next.saturating_mul((*size).max(1));
    }
    strides
}

/// The number of elements; `None` where it cannot be counted, or a size cannot: sizes are int64 in programs.
pub fn numel(sizes: &[usize]) -> Option<usize> {
    if sizes.iter().any(|size| i64::try_from(*size).is_err()) {
        return None;
    }
    if sizes.contains(&0) {
        return Some(0);
    }
    sizes.iter().try_fold(1usize, |n, &size| n.checked_mul(size))
}

/// One past the farthest element, counted from the first; 0 where there are none, `None` where it cannot be counted.
pub fn extent(sizes: &[usize], strides: &[usize]) -> Option<usize> {
    if sizes.contains(&0) {
        return Some(0);
    }
    let mut last = 0usize;
    for (size, stride) in sizes.iter().zip(strides) {
        last = last.checked_add((size - 1).checked_mul(*stride)?)?;
    }
    last.checked_add(1)
}

/// Whether two layouts put every element of a tensor of these sizes in the same place. The stride of a dimension of
/// size 1 means nothing.
pub fn same(sizes: &[usize], a: &[usize], b: &[usize]) -> bool {
    sizes.contains(&0) || sizes.iter().zip(a.iter().zip(b)).all(|(&size, (a, b))| size == 1 || a == b)
}

/// Whether the elements lie row by row without gaps.
pub fn is_contiguous(sizes: &[usize], strides: &[usize]) -> bool {
    same(sizes, strides, &contiguous_strides(sizes))
}

/// Whether two different elements share memory, or may: a dimension is repeated, or steps less than the ones below it reach.
pub fn overlaps_itself(sizes: &[usize], strides: &[usize]) -> bool {
    if sizes.contains(&0) {
        return false;
    }
    let mut dims: Vec<(usize, usize)> =
        strides.iter().zip(sizes).filter(|(_, size)| **size > 1).map(|(stride, size)| (*stride, *size)).collect();
    dims.sort_unstable();
    let mut reach = 0usize;
    for (stride, size) in dims {
        if stride <= reach {
            return true;
        }
        reach = reach.saturating_add(stride.saturating_mul(size - 1));
    }
    false
}

/// Pairs of places of the same element in two layouts of one shape, run by run.
///
/// `visit(a, b, count, step_a, step_b)` is called for runs of `count` elements that begin at `a` and `b` and step by
/// `step_a` and `step_b`.
pub fn for_each_run(
    sizes: &[usize],
    a: &[usize],
    b: &[usize],
    visit: &mut dyn FnMut(usize, usize, usize, usize, usize),
) {
    if sizes.contains(&0) {
        return;
    }
    let dims = merge(sizes, a, b);
    let Some((&inner, outer)) = dims.split_last() else {
        visit(0, 0, 1, 1, 1);
        return;
    };
    let mut index = vec![0usize; outer.len()];
    let (mut at_a, mut at_b) = (0usize, 0usize);
    loop {
        visit(at_a, at_b, inner.size, inner.a, inner.b);
        // The next row: count up from the innermost outer dimension, carrying.
        let mut carry = true;
        for (i, dim) in index.iter_mut().zip(outer).rev() {
            *i += 1;
            at_a += dim.a;
            at_b += dim.b;
            if *i < dim.size {
                carry = false;
                break;
            }
            at_a -= dim.a * dim.size;
            at_b -= dim.b * dim.size;
            *i = 0;
        }
        if carry {
            return;
        }
    }
}

#[derive(Clone, Copy)]
struct Dim {
    size: usize,
    a: usize,
    b: usize,
}

/// The dimensions without those of size 1, and with neighbours joined that both layouts step through as one.
fn merge(sizes: &[usize], a: &[usize], b: &[usize]) -> Vec<Dim> {
    let mut dims: Vec<Dim> = Vec::new();
    for ((&size, &a), &b) in sizes.iter().zip(a).zip(b) {
        if size == 1 {
            continue;
        }
        match dims.last_mut() {
            Some(last) if size.checked_mul(a) == Some(last.a) && size.checked_mul(b) == Some(last.b) => {
                *last = Dim { size: last.size * size, a, b };
            }
            _ => dims.push(Dim { size, a, b }),
        }
    }
    dims
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_cover_every_element_once_in_both_layouts() {
        // Sizes, the two layouts, and how many runs there should be.
        type Case = (&'static [usize], &'static [usize], &'static [usize], usize);
        let cases: &[Case] = &[
            (&[2, 3, 4], &[12, 4, 1], &[12, 4, 1], 1),
            (&[2, 3, 4], &[12, 4, 1], &[1, 2, 6], 6),
            (&[2, 1, 4], &[4, 99, 1], &[4, 4, 1], 1),
            (&[3, 2], &[0, 1], &[2, 1], 3),
            (&[], &[], &[], 1),
            (&[0, 3], &[3, 1], &[3, 1], 0),
        ];
        for (sizes, a, b, expected_runs) in cases {
            let (mut runs, mut seen) = (0, Vec::new());
            for_each_run(sizes, a, b, &mut |at_a, at_b, count, step_a, step_b| {
                runs += 1;
                seen.extend((0..count).map(|i| (at_a + i * step_a, at_b + i * step_b)));
            });
            let mut expected = vec![(0, 0)];
            for ((size, a), b) in sizes.iter().zip(*a).zip(*b) {
                expected = expected.iter().flat_map(|(x, y)| (0..*size).map(move |i| (x + i * a, y + i * b))).collect();
            }
            assert_eq!(seen, expected, "{sizes:?} {a:?} {b:?}");
            assert_eq!(runs, *expected_runs, "{sizes:?} {a:?} {b:?}");
        }
    }

    #[test]
    fn overlap_and_contiguity() {
        assert!(overlaps_itself(&[3, 2], &[0, 1]));
        assert!(overlaps_itself(&[3, 2], &[1, 1]));
        assert!(!overlaps_itself(&[3, 2], &[1, 3]));
        assert!(!overlaps_itself(&[3, 1], &[1, 0]));
        assert!(is_contiguous(&[2, 1, 3], &[3, 77, 1]));
        assert!(!is_contiguous(&[2, 3], &[1, 2]));
        assert!(is_contiguous(&[2, 0], &[5, 5]));
        assert_eq!(extent(&[2, 3], &[10, 2]), Some(15));
        assert_eq!(extent(&[2, usize::MAX], &[1, usize::MAX]), None);
    }
}
