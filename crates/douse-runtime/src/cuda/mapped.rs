//! Small inputs that kernels read from the host's memory themselves, without a copy before them.
//!
//! A copy is a kernel of its own in the chain, about a microsecond. Reading across the bus costs a kernel less than that as long as little is
//! read in all: the same bytes are fetched anew by every block.

use super::action::{Action, Actions, Launched, Op, SHARED_WITHOUT_ASKING, all_ops};
use crate::symbols::eval;
use douse_program::plan::BufferId;

/// Bytes that all blocks together may read, if each reads all of an input.
const READ: i64 = 64 << 10;

/// Whether kernels read this input, of so many bytes, from the host's memory.
pub(super) fn is_mapped(actions: &Actions, buffer: BufferId, bytes: usize, symbols: &[Option<i64>]) -> bool {
    let mut read = 0i64;
    let mut suits = true;
    all_ops(&actions.all, &mut |op| match op {
        Op::Launches { launches, .. } => {
            for launched in launches.iter().filter(|launched| launched.buffers.contains(&buffer)) {
                match reads(launched, bytes, symbols) {
                    Some(bytes) => read = read.saturating_add(bytes),
                    None => suits = false,
                }
            }
        }
        Op::Copy { from, .. } => suits &= *from != buffer,
        Op::If { predicate, .. } | Op::While { predicate, .. } => suits &= *predicate != buffer,
        Op::Upload | Op::Download => {}
    });
    suits && read <= READ && !is_read(&actions.all, buffer)
}

/// Bytes at most; `None` where that cannot be said, or for a kernel that moves tiles by hardware that is made for the device's memory.
fn reads(launched: &Launched, bytes: usize, symbols: &[Option<i64>]) -> Option<i64> {
    let bytes = i64::try_from(bytes).ok()?;
    let blocks = launched.launch.grid.iter().try_fold(1i64, |n, size| n.checked_mul(eval(size, symbols)?))?;
    (launched.launch.shared <= SHARED_WITHOUT_ASKING).then(|| blocks.checked_mul(bytes))?
}

/// Whether the host reads the buffer back, or chooses a branch by it.
fn is_read(actions: &[Action], buffer: BufferId) -> bool {
    use douse_program::plan::Predicate;
    let by = |predicate: &Predicate| matches!(predicate, Predicate::Buffer(read) if *read == buffer);
    actions.iter().any(|action| match action {
        Action::Read { buffer: read, .. } => *read == buffer,
        Action::If { predicate, then, otherwise } => {
            by(predicate) || is_read(then, buffer) || is_read(otherwise, buffer)
        }
        Action::While { test, predicate, body } => by(predicate) || is_read(test, buffer) || is_read(body, buffer),
        Action::Segment(_) | Action::Count { .. } | Action::Set { .. } | Action::Require { .. } => false,
    })
}
