//! Tensors in a device's memory.

use std::sync::Arc;

use douse_core::{Aligned, DType, Error, HostTensor, Result, TensorView, layout};
use douse_cuda::{DeviceMemory, Place, Stream};

use super::device::CudaDevice;
use super::strided::Strided;

/// A tensor in the memory of a CUDA device. Clones are the same tensor.
///
/// As an input it is used where it lies, if it is dense in the layout that the program reads and begins at a multiple of 16 bytes; else it is
/// copied. Work that writes it must be done, or stand on the stream that the method uses ([`Method::set_stream`](crate::Method::set_stream)).
///
/// As an output it is the caller's until the last clone is dropped; a later call may then write its memory. Work of the caller's that reads it
/// must be done by then, or stand on the stream that the method uses. A call that returns before its work is done says so in its outputs: what
/// uses them elsewhere waits for the stream.
#[derive(Clone, Debug)]
pub struct DeviceTensor {
    device: CudaDevice,
    dtype: DType,
    sizes: Vec<usize>,
    strides: Vec<usize>,
    place: Place,
    /// Keeps the place; the caller's own memory is the caller's to keep.
    _memory: Option<Arc<DeviceMemory>>,
    /// The stream that still has to write it.
    on: Option<Arc<Stream>>,
}

impl DeviceTensor {
    /// Copies a tensor to a device, and waits.
    ///
    /// # Errors
    /// `MemoryAllocationFailed`; what the driver says.
    pub fn from_host(device: &CudaDevice, tensor: &TensorView<'_>) -> Result<DeviceTensor> {
        let tensor = tensor.to_tensor()?;
        let memory = device.allocate(tensor.bytes().len(), || "a tensor".to_owned())?;
        device.upload(tensor.bytes(), memory.all())?;
        let memory = Arc::new(memory);
        let (sizes, strides) = (tensor.sizes().to_vec(), tensor.strides().to_vec());
        Ok(DeviceTensor::new(device, tensor.dtype(), sizes, strides, memory.all(), Some(memory)))
    }

    /// A caller's memory as a tensor; see [`Device::borrow_memory`](douse_cuda::Device::borrow_memory). `strides` count elements.
    ///
    /// # Errors
    /// `InvalidArgument` where the tensor is larger than the memory.
    pub fn borrowed(
        device: &CudaDevice,
        dtype: DType,
        sizes: &[usize],
        strides: &[usize],
        place: Place,
    ) -> Result<DeviceTensor> {
        let needed = layout::extent(sizes, strides).and_then(|extent| extent.checked_mul(dtype.size()));
        if sizes.len() != strides.len() || needed.is_none_or(|needed| needed > place.len()) {
            return Err(Error::invalid_argument(format!(
                "a {dtype} tensor of sizes {sizes:?} and strides {strides:?} does not fit {} bytes",
                place.len()
            )));
        }
        Ok(DeviceTensor::new(device, dtype, sizes.to_vec(), strides.to_vec(), place, None))
    }

    pub(super) fn new(
        device: &CudaDevice,
        dtype: DType,
        sizes: Vec<usize>,
        strides: Vec<usize>,
        place: Place,
        memory: Option<Arc<DeviceMemory>>,
    ) -> DeviceTensor {
        DeviceTensor { device: device.clone(), dtype, sizes, strides, place, _memory: memory, on: None }
    }

    /// The same tensor, which work on a stream still has to write.
    pub(super) fn written_on(self, stream: Arc<Stream>) -> DeviceTensor {
        DeviceTensor { on: Some(stream), ..self }
    }

    /// Waits until it is written, unless what uses it stands on the same stream.
    pub(crate) fn wait(&self, user: Option<&Stream>) -> Result<()> {
        match &self.on {
            Some(stream) if user.is_none_or(|user| !std::ptr::eq(user, &raw const **stream)) => stream.synchronize(),
            _ => Ok(()),
        }
    }

    pub fn device(&self) -> &CudaDevice {
        &self.device
    }

    pub fn dtype(&self) -> DType {
        self.dtype
    }

    pub fn sizes(&self) -> &[usize] {
        &self.sizes
    }

    /// In elements.
    pub fn strides(&self) -> &[usize] {
        &self.strides
    }

    /// The address of the first element.
    pub fn address(&self) -> u64 {
        self.place.address()
    }

    /// Copies it to the host, and waits.
    ///
    /// # Errors
    /// What the driver says.
    pub fn to_host(&self) -> Result<HostTensor> {
        let extent =
            layout::extent(&self.sizes, &self.strides).and_then(|extent| extent.checked_mul(self.dtype.size()));
        let bytes = extent.ok_or_else(|| Error::invalid_argument("a tensor beyond memory"))?;
        self.wait(None)?;
        HostTensor::new(self.dtype, &self.sizes, &self.strides, self.device.read(self.place.part(0..bytes)?)?)
    }

    /// Writes elements that are dense in these strides into it, and waits.
    pub(crate) fn write(&self, from: &[u8], strides: &[usize]) -> Result<()> {
        let mut host = self.to_host()?;
        host.view_mut().copy_from(from, strides)?;
        self.device.upload(host.bytes(), self.place.part(0..host.bytes().len())?)
    }

    /// The place of its first bytes, if a program can use it, which it cannot where it is not aligned.
    pub(crate) fn place_of(&self, bytes: usize) -> Option<Place> {
        let suited = self.place.address().is_multiple_of(ALIGNMENT) && self.place.len() >= bytes;
        suited.then(|| self.place.part(0..bytes).ok()).flatten()
    }

    /// How a program that reads these strides gets the elements.
    pub(crate) fn strided_as(&self, strides: &[usize]) -> Option<Strided> {
        Strided::new(self.dtype.size(), &self.sizes, &self.strides, strides, Some(self.place))
    }

    /// Whether the two may share memory.
    pub(crate) fn meets(&self, other: &DeviceTensor) -> bool {
        let range = |place: Place| place.address()..place.address() + place.len() as u64;
        let (a, b) = (range(self.place), range(other.place));
        self.device.same(&other.device) && !a.is_empty() && !b.is_empty() && a.start < b.end && b.start < a.end
    }
}

/// What the widest access of emitted code needs.
const ALIGNMENT: u64 = 16;

/// Copies a host tensor's worth of bytes; used where a program cannot take the tensor as it lies.
pub(crate) fn laid_out(tensor: &DeviceTensor, strides: &[usize], bytes: usize) -> Result<Aligned> {
    let mut copy = Aligned::zeros(bytes)?;
    tensor.to_host()?.view().copy_to(&mut copy, strides)?;
    Ok(copy)
}
