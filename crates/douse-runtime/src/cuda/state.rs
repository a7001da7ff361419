//! State on a device.

use std::collections::BTreeMap;
use std::sync::Arc;

use douse_core::{Code, Error, Result};
use douse_cpu::State;
use douse_cuda::{DeviceMemory, Place, Stream};
use douse_program::plan::BufferId;

use super::device::CudaDevice;

/// Buffers that a program writes and keeps, on a device. Clones share them until one of the two is called.
#[derive(Clone, Debug)]
pub(crate) struct DeviceState {
    device: CudaDevice,
    buffers: BTreeMap<String, Arc<DeviceMemory>>,
    /// What went wrong on the device in a call that had begun: nobody knows what it has written.
    broken: Option<String>,
    /// The stream of calls whose work may not be done.
    pending: Option<Arc<Stream>>,
}

impl DeviceState {
    pub fn new(device: &CudaDevice) -> DeviceState {
        DeviceState { device: device.clone(), buffers: BTreeMap::new(), broken: None, pending: None }
    }

    pub fn is_on(&self, device: &CudaDevice) -> bool {
        self.device.same(device)
    }

    /// Bytes of a buffer.
    pub fn len(&self, name: &str) -> Option<usize> {
        self.buffers.get(name).map(|memory| memory.len())
    }

    /// Adds a buffer with these bytes.
    pub fn insert(&mut self, name: &str, bytes: &[u8]) -> Result<()> {
        let memory = self.device.allocate(bytes.len(), || format!("the state {name}"))?;
        self.device.upload(bytes, memory.all())?;
        self.buffers.insert(name.to_owned(), Arc::new(memory));
        Ok(())
    }

    /// Where a buffer lies, for a call that may write it: it is this session's alone from now on.
    pub fn own(&mut self, name: &str) -> Result<Option<Place>> {
        let Some(memory) = self.buffers.get_mut(name) else { return Ok(None) };
        own(&self.device, name, memory, self.pending.as_deref()).map(Some)
    }

    /// A call was made whose work may not be done.
    pub fn leave_pending(&mut self, stream: &Arc<Stream>) {
        self.pending = Some(stream.clone());
    }

    /// Waits for calls that were not waited for, unless what comes stands on their stream.
    pub fn wait(&mut self, user: Option<&Arc<Stream>>) -> Result<()> {
        if user.is_some() && self.pending.as_ref().zip(user).is_some_and(|(pending, user)| Arc::ptr_eq(pending, user)) {
            return Ok(());
        }
        self.pending.take().map_or(Ok(()), |stream| stream.synchronize())
    }

    /// A call that had begun failed on the device.
    pub fn break_off(&mut self, fault: &Error) {
        self.broken = Some(fault.message.clone());
    }

    /// # Errors
    /// `InvalidState` where a call has failed on the device.
    pub fn check(&self) -> Result<()> {
        let Some(fault) = &self.broken else { return Ok(()) };
        let message =
            format!("the session is broken: a call in it failed on the device ({fault}); reset or restore it");
        Err(Error::new(Code::InvalidState, message))
    }

    /// Whether it has all of these, in these sizes; names are in order.
    pub fn holds<'a>(&self, all: impl Iterator<Item = (&'a str, &'a [u8])>) -> bool {
        let mut mine = self.buffers.iter();
        let mut all = all;
        all.all(|(name, bytes)| {
            mine.find(|(other, _)| *other == name).is_some_and(|(_, memory)| memory.len() == bytes.len())
        })
    }

    /// [`own`](DeviceState::own) for each of these buffers, whose names are in order, and calls `each` with the places.
    ///
    /// # Errors
    /// `Internal` for one that is not there.
    pub fn own_all(&mut self, all: &[(BufferId, String)], mut each: impl FnMut(BufferId, Place)) -> Result<()> {
        let DeviceState { device, buffers, pending, .. } = self;
        let mut mine = buffers.iter_mut();
        for (id, name) in all {
            let missing = || Error::internal(format!("no state {name}"));
            let (_, memory) = mine.find(|(other, _)| *other == name).ok_or_else(missing)?;
            each(*id, own(device, name, memory, pending.as_deref())?);
        }
        Ok(())
    }

    /// Copies all buffers to the host.
    pub fn to_host(&self, state: &mut State) -> Result<()> {
        self.check()?;
        if let Some(stream) = &self.pending {
            stream.synchronize()?;
        }
        for (name, memory) in &self.buffers {
            state.insert(name.clone(), self.device.read(memory.all())?);
        }
        Ok(())
    }
}

fn own(device: &CudaDevice, name: &str, memory: &mut Arc<DeviceMemory>, pending: Option<&Stream>) -> Result<Place> {
    if Arc::get_mut(memory).is_none() {
        pending.map_or(Ok(()), Stream::synchronize)?;
        let copy = device.allocate(memory.len(), || format!("a copy of the state {name}"))?;
        device.copy(memory.all(), copy.all())?;
        *memory = Arc::new(copy);
    }
    Ok(memory.all())
}
