//! Inputs that lie in another layout than the program reads: the device brings them into that.

use douse_cuda::{Argument, Place};

/// How elements get from one layout into another, in as few dimensions as it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Strided {
    /// Bytes of an element.
    element: usize,
    /// Of each dimension: how many, and the strides, in elements, that are written and read. The slowest that is written first.
    dims: [(i64, i64, i64); DIMS],
    /// Where the elements are on the device; those of a host's tensor are copied to it first.
    pub place: Option<Place>,
}

/// As many as the function takes.
const DIMS: usize = 4;

impl Strided {
    /// `None` where more dimensions remain than the function takes, or an element is none that it knows.
    pub fn new(element: usize, sizes: &[usize], from: &[usize], to: &[usize], place: Option<Place>) -> Option<Strided> {
        if !matches!(element, 1 | 2 | 4 | 8 | 16) || place.is_some_and(|p| !p.address().is_multiple_of(element as u64))
        {
            return None;
        }
        let number = |n: usize| i64::try_from(n).ok();
        let mut all = Vec::with_capacity(sizes.len());
        for ((size, from), to) in sizes.iter().zip(from).zip(to) {
            if *size != 1 {
                all.push((number(*size)?, number(*to)?, number(*from)?));
            }
        }
        all.sort_by_key(|(_, to, _)| std::cmp::Reverse(*to));
        let mut merged: Vec<(i64, i64, i64)> = Vec::with_capacity(all.len());
        for (size, to, from) in all {
            match merged.last_mut() {
                Some(outer) if outer.1 == to.checked_mul(size)? && outer.2 == from.checked_mul(size)? => {
                    *outer = (outer.0.checked_mul(size)?, to, from);
                }
                _ => merged.push((size, to, from)),
            }
        }
        let mut dims = [(1, 0, 0); DIMS];
        let free = DIMS.checked_sub(merged.len())?;
        dims.iter_mut().skip(free).zip(merged).for_each(|(dim, found)| *dim = found);
        Some(Strided { element, dims, place })
    }

    /// What the function takes besides the two places.
    pub fn arguments(&self) -> impl Iterator<Item = Argument> {
        let [sizes, to, from] = [self.dims.map(|d| d.0), self.dims.map(|d| d.1), self.dims.map(|d| d.2)];
        [self.element as i64].into_iter().chain(sizes).chain(to).chain(from).map(Argument::I64)
    }

    /// How many elements.
    pub fn elements(&self) -> i64 {
        self.dims.iter().map(|(size, ..)| *size).product()
    }

    /// Whether calls with the one have the same memory as with the other; what is on the device may lie elsewhere.
    pub fn is_like(&self, other: &Strided) -> bool {
        (self.element, self.dims, self.place.is_some()) == (other.element, other.dims, other.place.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dimensions_that_follow_each_other_become_one() {
        // [2, 3, 4, 5] contiguous, wanted channels-last.
        let strided = Strided::new(2, &[2, 3, 4, 5], &[60, 20, 5, 1], &[60, 1, 15, 3], None).unwrap();
        assert_eq!(strided.dims, [(1, 0, 0), (2, 60, 60), (20, 3, 1), (3, 1, 20)]);
        assert_eq!(strided.elements(), 120);
        // Five dimensions in the reverse order.
        let reversed = [1, 2, 4, 8, 16];
        assert_eq!(Strided::new(4, &[2; 5], &reversed, &[16, 8, 4, 2, 1], None), None);
        assert!(Strided::new(4, &[2; 5], &reversed, &reversed, None).is_some());
        assert_eq!(Strided::new(3, &[2], &[2], &[1], None), None);
    }
}
