//! The functions of the CUDA driver that Douse uses.

use std::ffi::{c_char, c_int, c_uint, c_void};

use crate::library::entry_points;

/// `CUresult`; 0 is success.
pub(crate) type Status = c_int;
/// `CUdevice`: a device's number.
pub(crate) type DeviceNumber = c_int;
/// `CUdeviceptr`: an address on a device.
pub(crate) type Address = u64;

/// The driver's opaque handles.
macro_rules! handles {
    ($($name:ident: $doc:literal;)*) => {$(
        #[doc = $doc]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(transparent)]
        pub(crate) struct $name(pub *mut c_void);

        impl $name {
            pub const NULL: $name = $name(std::ptr::null_mut());
        }

        // SAFETY: the driver's handles are numbers to the process; the driver may be called with them from any thread.
        unsafe impl Send for $name {}
        // SAFETY: as above.
        unsafe impl Sync for $name {}
    )*};
}
handles! {
    RawContext: "`CUcontext`";
    RawStream: "`CUstream`";
    RawEvent: "`CUevent`";
    RawModule: "`CUmodule`";
    RawFunction: "`CUfunction`";
}

entry_points! {
    /// The driver's functions, by the names that CUDA's documentation uses; symbols carry the version of the interface.
    #[allow(non_snake_case)]
    Table -> Status;

    cuInit = "cuInit"(c_uint);
    cuDriverGetVersion = "cuDriverGetVersion"(*mut c_int);
    cuGetErrorName = "cuGetErrorName"(Status, *mut *const c_char);
    cuGetErrorString = "cuGetErrorString"(Status, *mut *const c_char);

    cuDeviceGetCount = "cuDeviceGetCount"(*mut c_int);
    cuDeviceGet = "cuDeviceGet"(*mut DeviceNumber, c_int);
    cuDeviceGetName = "cuDeviceGetName"(*mut c_char, c_int, DeviceNumber);
    cuDeviceGetAttribute = "cuDeviceGetAttribute"(*mut c_int, c_int, DeviceNumber);
    cuDeviceTotalMem = "cuDeviceTotalMem_v2"(*mut usize, DeviceNumber);
    cuDevicePrimaryCtxRetain = "cuDevicePrimaryCtxRetain"(*mut RawContext, DeviceNumber);
    cuDevicePrimaryCtxRelease = "cuDevicePrimaryCtxRelease_v2"(DeviceNumber);

    cuCtxGetCurrent = "cuCtxGetCurrent"(*mut RawContext);
    cuCtxPushCurrent = "cuCtxPushCurrent_v2"(RawContext);
    cuCtxPopCurrent = "cuCtxPopCurrent_v2"(*mut RawContext);
    cuCtxSynchronize = "cuCtxSynchronize"();

    cuMemGetInfo = "cuMemGetInfo_v2"(*mut usize, *mut usize);
    cuMemAlloc = "cuMemAlloc_v2"(*mut Address, usize);
    cuMemFree = "cuMemFree_v2"(Address);
    cuMemHostAlloc = "cuMemHostAlloc"(*mut *mut c_void, usize, c_uint);
    cuMemFreeHost = "cuMemFreeHost"(*mut c_void);
    cuMemcpyHtoDAsync = "cuMemcpyHtoDAsync_v2"(Address, *const c_void, usize, RawStream);
    cuMemcpyDtoHAsync = "cuMemcpyDtoHAsync_v2"(*mut c_void, Address, usize, RawStream);
    cuMemcpyDtoDAsync = "cuMemcpyDtoDAsync_v2"(Address, Address, usize, RawStream);
    cuMemsetD8Async = "cuMemsetD8Async"(Address, u8, usize, RawStream);
    cuPointerGetAttribute = "cuPointerGetAttribute"(*mut c_void, c_int, Address);

    cuStreamCreate = "cuStreamCreate"(*mut RawStream, c_uint);
    cuStreamDestroy = "cuStreamDestroy_v2"(RawStream);
    cuStreamSynchronize = "cuStreamSynchronize"(RawStream);
    cuStreamQuery = "cuStreamQuery"(RawStream);
    cuStreamWaitEvent = "cuStreamWaitEvent"(RawStream, RawEvent, c_uint);

    cuEventCreate = "cuEventCreate"(*mut RawEvent, c_uint);
    cuEventDestroy = "cuEventDestroy_v2"(RawEvent);
    cuEventRecord = "cuEventRecord"(RawEvent, RawStream);
    cuEventQuery = "cuEventQuery"(RawEvent);
    cuEventSynchronize = "cuEventSynchronize"(RawEvent);
    cuEventElapsedTime = "cuEventElapsedTime"(*mut f32, RawEvent, RawEvent);

    cuModuleLoadDataEx = "cuModuleLoadDataEx"(*mut RawModule, *const c_void, c_uint, *mut c_int, *mut *mut c_void);
    cuModuleUnload = "cuModuleUnload"(RawModule);
    cuModuleGetFunction = "cuModuleGetFunction"(*mut RawFunction, RawModule, *const c_char);
    cuFuncGetAttribute = "cuFuncGetAttribute"(*mut c_int, c_int, RawFunction);
    cuFuncSetAttribute = "cuFuncSetAttribute"(RawFunction, c_int, c_int);
    cuOccupancyMaxActiveBlocksPerMultiprocessor =
        "cuOccupancyMaxActiveBlocksPerMultiprocessor"(*mut c_int, RawFunction, c_int, usize);
    cuLaunchKernel = "cuLaunchKernel"(
        RawFunction, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, RawStream, *mut *mut c_void, *mut *mut c_void
    );
}
