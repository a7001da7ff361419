//! Places for temporaries in one arena: buffers that are needed at different times share bytes.

use crate::plan::{BufferId, OutputKind, Plan, Step};

/// Places are multiples of this many bytes.
pub const ALIGNMENT: u64 = 64;

/// When a buffer is needed, by step numbers as [`lifetimes`] counts them, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    pub first: u32,
    pub last: u32,
    pub bytes: u64,
}

/// Where each buffer begins, and the size of the arena.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    pub offsets: Vec<u64>,
    pub total: u64,
}

/// Places buffers so that no two that are needed at one time overlap: the largest first, each into the smallest gap that it fits.
pub fn place(intervals: &[Interval]) -> Placement {
    let mut order: Vec<usize> = (0..intervals.len()).collect();
    order.sort_by_key(|&i| (std::cmp::Reverse(intervals[i].bytes), intervals[i].first, i));
    let mut placement = Placement { offsets: vec![0; intervals.len()], total: 0 };
    // In order of offset.
    let mut placed: Vec<usize> = Vec::new();
    for i in order {
        let interval = intervals[i];
        let size = interval.bytes.next_multiple_of(ALIGNMENT);
        if size == 0 {
            continue;
        }
        let (mut free_from, mut best) = (0, None::<(u64, u64)>);
        for other in &placed {
            let (taken, offset) = (intervals[*other], placement.offsets[*other]);
            if taken.last < interval.first || interval.last < taken.first {
                continue;
            }
            if offset >= free_from + size && best.is_none_or(|(gap, _)| offset - free_from < gap) {
                best = Some((offset - free_from, free_from));
            }
            free_from = free_from.max(offset + taken.bytes.next_multiple_of(ALIGNMENT));
        }
        let offset = best.map_or(free_from, |(_, offset)| offset);
        placement.offsets[i] = offset;
        placement.total = placement.total.max(offset + size);
        let at = placed.partition_point(|other| placement.offsets[*other] <= offset);
        placed.insert(at, i);
    }
    placement
}

/// The steps between which each buffer is needed, by buffer; `None` for those no step uses. Steps count through, branches and
/// bodies included. A buffer used in a loop is needed throughout it, one that is returned until the end.
pub fn lifetimes(plan: &Plan) -> Vec<Option<(u32, u32)>> {
    let mut uses = Uses { lives: vec![None; plan.buffers.len()], now: 0, used: Vec::new() };
    uses.steps(&plan.steps);
    for output in &plan.outputs {
        if let OutputKind::Tensor { buffer, .. } | OutputKind::Number { buffer, .. } = &output.kind {
            uses.touch(*buffer);
        }
    }
    uses.lives
}

struct Uses {
    lives: Vec<Option<(u32, u32)>>,
    now: u32,
    /// Every buffer touched so far, repeats included.
    used: Vec<BufferId>,
}

impl Uses {
    fn touch(&mut self, buffer: BufferId) {
        self.used.push(buffer);
        if let Some(life) = self.lives.get_mut(buffer as usize) {
            let first = life.map_or(self.now, |(first, _)| first);
            *life = Some((first, self.now));
        }
    }

    fn steps(&mut self, steps: &[Step]) {
        for step in steps {
            let (before, start) = (self.used.len(), self.now);
            step.buffers().into_iter().for_each(|b| self.touch(b));
            if let Step::Together(steps) = step {
                steps.iter().flat_map(Step::buffers).for_each(|b| self.touch(b));
            } else {
                step.within().into_iter().for_each(|steps| self.steps(steps));
            }
            if let Step::While { .. } = step {
                let inside = self.used.split_off(before);
                for buffer in &inside {
                    if let Some(Some((first, last))) = self.lives.get_mut(*buffer as usize) {
                        (*first, *last) = ((*first).min(start), self.now);
                    }
                }
                self.used.extend(inside);
            }
            self.now += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Predicate;

    /// A small generator of pseudo-random numbers, so that the test needs nothing else.
    fn random(state: &mut u64) -> u64 {
        *state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        *state >> 33
    }

    #[test]
    fn buffers_needed_at_one_time_never_overlap() {
        let mut state = 1;
        for _ in 0..200 {
            let intervals: Vec<Interval> = (0..random(&mut state) % 40)
                .map(|_| {
                    let first = (random(&mut state) % 30) as u32;
                    let last = first + (random(&mut state) % 10) as u32;
                    Interval { first, last, bytes: random(&mut state) % 1000 }
                })
                .collect();
            let placement = place(&intervals);
            for (i, a) in intervals.iter().enumerate() {
                let start = placement.offsets[i];
                assert!(start.is_multiple_of(ALIGNMENT) && start + a.bytes <= placement.total);
                for (b, other) in intervals.iter().zip(&placement.offsets).skip(i + 1) {
                    let together = a.first <= b.last && b.first <= a.last;
                    let overlap = start < other + b.bytes && *other < start + a.bytes;
                    assert!(!(together && overlap && a.bytes > 0 && b.bytes > 0), "{a:?} {b:?}");
                }
            }
        }
    }

    #[test]
    fn a_chain_of_buffers_needs_two_places() {
        let chain: Vec<Interval> = (0..10).map(|i| Interval { first: i, last: i + 1, bytes: 640 }).collect();
        assert_eq!(place(&chain).total, 1280);
    }

    #[test]
    fn a_loop_keeps_what_it_uses() {
        let kernel = |buffer| Step::Copy { from: buffer, to: buffer };
        let mut plan = crate::sample::plan();
        plan.outputs.clear();
        plan.steps = vec![
            kernel(0),
            Step::While { test: vec![kernel(1)], predicate: Predicate::Buffer(0), body: vec![kernel(2)] },
            kernel(1),
        ];
        let lives = lifetimes(&plan);
        assert_eq!(&lives[..3], [Some((0, 3)), Some((1, 4)), Some((1, 3))]);
    }
}
