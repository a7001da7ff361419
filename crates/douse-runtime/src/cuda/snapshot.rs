//! State that a failed call would leave changed, kept while the call runs.

use douse_core::Result;
use douse_cuda::{Place, Stream};
use douse_program::plan::BufferId;

use super::device::CudaDevice;
use super::room::Growing;
use super::state::DeviceState;
use crate::rollback::LIMIT;

/// Copies begin at multiples of this.
const ALIGNMENT: usize = 256;

/// Copies of the state that a failed call would leave changed, on the device.
pub(super) struct Snapshot {
    /// Each buffer's place, and its copy's.
    copied: Vec<(Place, Place)>,
    /// What was not copied, since it is too much, and may be written when a check of the program fails.
    at_risk: Vec<String>,
    /// What was copied.
    names: Vec<String>,
}

impl Snapshot {
    pub fn take(
        at_risk: &[String],
        state: &mut DeviceState,
        room: &mut Growing,
        device: &CudaDevice,
        stream: &Stream,
    ) -> Result<Snapshot> {
        let aligned = |name: &String| state.len(name).unwrap_or(0).next_multiple_of(ALIGNMENT);
        let total: usize = at_risk.iter().map(aligned).sum();
        let (copied, left) = if total > LIMIT { (&[][..], at_risk) } else { (at_risk, &[][..]) };
        let mut snapshot = Snapshot { copied: Vec::new(), at_risk: left.to_vec(), names: copied.to_vec() };
        if copied.is_empty() {
            return Ok(snapshot);
        }
        let copies = room.at_least(total, device, || "copies of state".to_owned())?;
        let mut start = 0;
        for name in copied {
            let Some(place) = state.own(name)? else { continue };
            let copy = copies.part(start..start + place.len())?;
            start += place.len().next_multiple_of(ALIGNMENT);
            device.device().copy(place, copy, stream)?;
            snapshot.copied.push((place, copy));
        }
        Ok(snapshot)
    }

    /// Puts back what was copied, and says what of the state may stay changed: none where no step that writes state was begun.
    pub fn put_back(
        &self,
        all: &[(BufferId, String)],
        stream: &Stream,
        device: &CudaDevice,
        committed: bool,
        refused: bool,
    ) -> Result<Option<String>> {
        for (place, copy) in &self.copied {
            device.device().copy(*copy, *place, stream)?;
        }
        stream.synchronize()?;
        let rest = all.iter().map(|(_, name)| name).filter(|name| !self.names.contains(name));
        let touched = if refused { self.at_risk.clone() } else { rest.cloned().collect() };
        Ok((committed && !touched.is_empty())
            .then(|| format!("the call may have changed the state {}", touched.join(", "))))
    }
}
