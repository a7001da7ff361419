//! What a program keeps from call to call.

use douse_core::bytes::Aligned;
use std::collections::BTreeMap;

/// Buffers that a program writes and keeps, by name.
#[derive(Clone, Debug, Default)]
pub struct State {
    pub(super) buffers: BTreeMap<String, Aligned>,
}

impl State {
    /// Names and bytes, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.buffers.iter().map(|(name, bytes)| (name.as_str(), &**bytes))
    }

    /// The bytes of a name, to be replaced by as many others.
    pub fn get_mut(&mut self, name: &str) -> Option<&mut [u8]> {
        self.buffers.get_mut(name).map(|bytes| &mut **bytes)
    }

    /// Sets the bytes of a name.
    pub fn insert(&mut self, name: String, bytes: Aligned) {
        self.buffers.insert(name, bytes);
    }

    /// Takes over what `other` has and this one has not: methods of one program share state by name.
    pub fn merge(&mut self, other: State) {
        for (name, bytes) in other.buffers {
            self.buffers.entry(name).or_insert(bytes);
        }
    }
}
