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
    RawGraph: "`CUgraph`";
    RawNode: "`CUgraphNode`";
    RawExec: "`CUgraphExec`";
}

/// `CUgraphConditionalHandle`: what a kernel sets to decide a conditional node.
pub(crate) type RawCondition = u64;

/// `CUDA_KERNEL_NODE_PARAMS_v2`
#[repr(C)]
pub(crate) struct KernelParams {
    pub function: RawFunction,
    pub blocks: [c_uint; 3],
    pub threads: [c_uint; 3],
    pub shared: c_uint,
    pub arguments: *mut *mut c_void,
    pub extra: *mut *mut c_void,
    pub kernel: *mut c_void,
    pub context: RawContext,
}

/// `CU_MEMORYTYPE_HOST`, `CU_MEMORYTYPE_DEVICE`
pub(crate) const HOST: c_uint = 1;
pub(crate) const DEVICE: c_uint = 2;

/// One side of a copy, as it stands in `CUDA_MEMCPY3D_v2`.
#[repr(C)]
pub(crate) struct CopySide {
    pub x: usize,
    pub y: usize,
    pub z: usize,
    pub level: usize,
    pub kind: c_uint,
    pub host: *mut c_void,
    pub device: Address,
    pub array: *mut c_void,
    pub reserved: *mut c_void,
    pub pitch: usize,
    pub height: usize,
}

/// `CUDA_MEMCPY3D_v2`
#[repr(C)]
pub(crate) struct CopyParams {
    pub from: CopySide,
    pub to: CopySide,
    pub width: usize,
    pub height: usize,
    pub depth: usize,
}

/// `CUgraphEdgeData`
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct EdgeData {
    pub from_port: u8,
    pub to_port: u8,
    pub kind: u8,
    pub reserved: [u8; 5],
}

/// `CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC` from `CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC`: launched once all blocks have ended.
pub(crate) const AFTER_END: EdgeData = EdgeData { from_port: 1, to_port: 0, kind: 1, reserved: [0; 5] };
/// The same from `CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER`: launched once all blocks have begun.
pub(crate) const AFTER_BEGIN: EdgeData = EdgeData { from_port: 2, to_port: 0, kind: 1, reserved: [0; 5] };

/// `CU_GRAPH_NODE_TYPE_CONDITIONAL`
pub(crate) const CONDITIONAL: c_int = 13;
/// `CU_GRAPH_COND_TYPE_IF`, `CU_GRAPH_COND_TYPE_WHILE`
pub(crate) const IF: c_uint = 0;
pub(crate) const WHILE: c_uint = 1;

/// `CUgraphNodeParams` of a conditional node.
#[repr(C)]
pub(crate) struct ConditionalParams {
    pub node: c_int,
    pub reserved: [c_int; 3],
    pub condition: RawCondition,
    pub kind: c_uint,
    pub size: c_uint,
    /// Set by the driver: as many graphs as `size`.
    pub bodies: *mut RawGraph,
    pub context: RawContext,
    /// The rest of the union, and `reserved2`.
    pub rest: [i64; 26],
}

#[cfg(target_pointer_width = "64")]
const _: () =
    assert!(size_of::<KernelParams>() == 72 && size_of::<CopyParams>() == 200 && size_of::<ConditionalParams>() == 256);

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
    cuStreamBeginCapture = "cuStreamBeginCapture_v2"(RawStream, c_uint);
    cuStreamEndCapture = "cuStreamEndCapture"(RawStream, *mut RawGraph);
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

    cuTensorMapEncodeTiled = "cuTensorMapEncodeTiled"(
        *mut u64, c_int, c_uint, Address, *const u64, *const u64, *const c_uint, *const c_uint, c_int, c_int, c_int, c_int
    );

    cuGraphCreate = "cuGraphCreate"(*mut RawGraph, c_uint);
    cuGraphDestroy = "cuGraphDestroy"(RawGraph);
    cuGraphAddKernelNode =
        "cuGraphAddKernelNode_v2"(*mut RawNode, RawGraph, *const RawNode, usize, *const KernelParams);
    cuGraphAddDependencies =
        "cuGraphAddDependencies_v2"(RawGraph, *const RawNode, *const RawNode, *const EdgeData, usize);
    cuGraphAddMemcpyNode =
        "cuGraphAddMemcpyNode"(*mut RawNode, RawGraph, *const RawNode, usize, *const CopyParams, RawContext);
    cuGraphAddChildGraphNode =
        "cuGraphAddChildGraphNode"(*mut RawNode, RawGraph, *const RawNode, usize, RawGraph);
    cuGraphAddNode = "cuGraphAddNode_v2"(
        *mut RawNode, RawGraph, *const RawNode, *const c_void, usize, *mut ConditionalParams
    );
    cuGraphConditionalHandleCreate =
        "cuGraphConditionalHandleCreate"(*mut RawCondition, RawGraph, RawContext, c_uint, c_uint);
    cuGraphInstantiateWithFlags = "cuGraphInstantiateWithFlags"(*mut RawExec, RawGraph, u64);
    cuGraphExecDestroy = "cuGraphExecDestroy"(RawExec);
    cuGraphUpload = "cuGraphUpload"(RawExec, RawStream);
    cuGraphLaunch = "cuGraphLaunch"(RawExec, RawStream);
    cuGraphExecKernelNodeSetParams =
        "cuGraphExecKernelNodeSetParams_v2"(RawExec, RawNode, *const KernelParams);
    cuGraphExecMemcpyNodeSetParams =
        "cuGraphExecMemcpyNodeSetParams"(RawExec, RawNode, *const CopyParams, RawContext);
    cuGraphExecChildGraphNodeSetParams = "cuGraphExecChildGraphNodeSetParams"(RawExec, RawNode, RawGraph);

    // Since CUDA 12.4.
    [optional] cuFuncGetParamInfo = "cuFuncGetParamInfo"(RawFunction, usize, *mut usize, *mut usize);
}
