//! The driver's functions.

#![allow(non_snake_case, unused_unsafe)]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::Arc;

use crate::block::Shape;
use crate::capture::Mode;
use crate::exports::{functions, give, slice};
use crate::memory::Kind as Memory;
use crate::module::Module;
use crate::status::{
    self, INVALID_CONTEXT, INVALID_DEVICE, INVALID_VALUE, NOT_READY, NOT_SUPPORTED, OUT_OF_MEMORY, Outcome, Status,
    UNKNOWN, fail,
};
use crate::stream::{Event, Launch, Recorded, Side, Stream, Work};
use crate::tensor_map::TensorMap;
use crate::world::{CONTEXT, CURRENT, world};

/// `CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES`'s limit on the newest devices, and what a launch may have without asking.
const SHARED_OPTIN: c_int = 227 << 10;
const SHARED: usize = 48 << 10;
const THREADS: u32 = 1024;

/// Puts work on a stream, or into the graph that it captures.
pub(crate) fn put(stream: u64, work: Work) -> Outcome {
    let (found, work, eager) = {
        let mut world = world();
        let found = world.stream(stream)?;
        (found, world.capture(stream, work)?, world.config.eager)
    };
    let Some(work) = work else { return Ok(()) };
    let number = found.put(work)?;
    if eager { found.run_to(number) } else { Ok(()) }
}

/// Runs all work of all streams.
fn synchronize_all() -> Outcome {
    let streams: Vec<Arc<Stream>> = world().streams.values().cloned().collect();
    streams.iter().try_for_each(|stream| stream.synchronize())
}

/// The same where what goes wrong is somebody else's.
fn finish_all() {
    let streams: Vec<Arc<Stream>> = world().streams.values().cloned().collect();
    for stream in streams {
        let _ = stream.synchronize();
    }
}

fn shape(blocks: [u32; 3], threads: [u32; 3]) -> Outcome<Shape> {
    let count = threads.iter().try_fold(1u32, |n, size| n.checked_mul(*size));
    if blocks.contains(&0)
        || threads.contains(&0)
        || blocks[1] > 65535
        || blocks[2] > 65535
        || blocks[0] > i32::MAX as u32
    {
        return fail(INVALID_VALUE, format!("a grid of {blocks:?} blocks of {threads:?} threads"));
    }
    match count {
        Some(..=THREADS) => Ok(Shape { blocks, threads }),
        _ => fail(INVALID_VALUE, format!("a block of {threads:?} threads")),
    }
}

/// A launch as it is asked for, with the values that its parameters have now.
pub(crate) unsafe fn launch(
    function: u64,
    blocks: [u32; 3],
    threads: [u32; 3],
    shared: u32,
    parameters: *mut *mut c_void,
) -> Outcome<Launch> {
    let shape = shape(blocks, threads)?;
    let world = world();
    let function = world.functions.get(function)?;
    let module = world.modules.get(function.module)?.clone();
    if shared as usize > function.allowed_shared.max(SHARED) {
        return fail(INVALID_VALUE, format!("{} bytes of shared memory for {}", shared, function.kernel.name));
    }
    let mut values = Vec::new();
    for (number, (size, _)) in function.kernel.parameters.iter().enumerate() {
        let mut words = vec![0u64; size.div_ceil(8)];
        if parameters.is_null() {
            return fail(INVALID_VALUE, format!("no parameters for {}", function.kernel.name));
        }
        // SAFETY: there is a pointer to a value of its size for each parameter.
        unsafe {
            let from: *const u8 = (*parameters.add(number)).cast();
            std::ptr::copy_nonoverlapping(from, words.as_mut_ptr().cast(), *size);
        }
        values.extend(words);
    }
    let launch = Launch { module, kernel: function.kernel.clone(), shape, shared: shared as usize, values };
    launch.check(&world.memory)?;
    Ok(launch)
}

/// Launches are checked when they are asked for; copies too, as far as the device's memory goes.
pub(crate) fn check_copy(work: &Work) -> Outcome {
    let world = world();
    match work {
        Work::Copy { from, to, len } => {
            [(from, "a copy from"), (to, "a copy to")].into_iter().try_for_each(|(side, what)| match side {
                Side::Device(address) => world.memory.check(*address, *len, what),
                _ => Ok(()),
            })
        }
        Work::Fill { to, len, .. } => world.memory.check(*to, *len, "a fill"),
        _ => Ok(()),
    }
}

// Handles are numbers, as softgpu has them.
pub(crate) type Context = u64;
pub(crate) type Handle = u64;
type Address = u64;
type Parameters = *mut *mut c_void;

functions! {
    plain fn cuInit(flags: c_uint) {
        crate::fault::install();
        if flags == 0 { Ok(()) } else { fail(INVALID_VALUE, "flags of cuInit") }
    }

    plain fn cuDriverGetVersion(version: *mut c_int) { give(version, world().config.version) }

    plain fn cuDeviceGetCount(count: *mut c_int) { give(count, 1) }

    plain fn cuDeviceGet(device: *mut c_int, ordinal: c_int) {
        if ordinal == 0 { give(device, 0) } else { fail(INVALID_DEVICE, format!("device {ordinal}")) }
    }

    plain fn cuDeviceGetName(name: *mut c_char, len: c_int, device: c_int) {
        const NAME: &CStr = c"Test GPU (softgpu)";
        let bytes = NAME.to_bytes_with_nul();
        if device != 0 || (len as usize) < bytes.len() {
            return fail(INVALID_VALUE, "the name of a device");
        }
        std::ptr::copy_nonoverlapping(bytes.as_ptr().cast(), name, bytes.len());
        Ok(())
    }

    plain fn cuDeviceGetAttribute(value: *mut c_int, attribute: c_int, device: c_int) {
        if device != 0 {
            return fail(INVALID_DEVICE, format!("device {device}"));
        }
        let (major, minor) = world().config.capability;
        give(value, match attribute {
            // MAX_THREADS_PER_BLOCK, MAX_BLOCK_DIM_X and Y, Z
            1..=3 => THREADS as c_int,
            4 => 64,
            // MAX_GRID_DIM_X, Y and Z
            5 => c_int::MAX,
            6 | 7 => 65535,
            // MAX_SHARED_MEMORY_PER_BLOCK, WARP_SIZE, MULTIPROCESSOR_COUNT, L2_CACHE_SIZE
            8 => SHARED as c_int,
            10 => 32,
            16 => 4,
            38 => 1 << 20,
            75 => major,
            76 => minor,
            // MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
            97 => SHARED_OPTIN,
            other => return fail(INVALID_VALUE, format!("attribute {other} of a device")),
        })
    }

    plain fn cuDeviceTotalMem_v2(bytes: *mut usize, device: c_int) {
        if device == 0 { give(bytes, world().config.memory as usize) } else { fail(INVALID_DEVICE, "") }
    }

    plain fn cuDevicePrimaryCtxRetain(context: *mut Context, device: c_int) {
        if device != 0 {
            return fail(INVALID_DEVICE, format!("device {device}"));
        }
        let mut world = world();
        world.retained += 1;
        world.note("retain");
        give(context, CONTEXT)
    }

    plain fn cuDevicePrimaryCtxRelease_v2(device: c_int) {
        let mut world = world();
        if device != 0 || world.retained == 0 {
            return fail(INVALID_CONTEXT, "the context is not retained");
        }
        world.retained -= 1;
        world.note("release");
        Ok(())
    }

    plain fn cuCtxGetCurrent(context: *mut Context) {
        give(context, CURRENT.with_borrow(|all| all.last().copied().unwrap_or(0)))
    }

    plain fn cuCtxPushCurrent_v2(context: Context) {
        if context != CONTEXT || world().retained == 0 {
            return fail(INVALID_CONTEXT, format!("{context:#x} is no context"));
        }
        CURRENT.with_borrow_mut(|all| all.push(context));
        Ok(())
    }

    context fn cuCtxPopCurrent_v2(context: *mut Context) {
        let popped = CURRENT.with_borrow_mut(Vec::pop).unwrap_or(0);
        if context.is_null() { Ok(()) } else { give(context, popped) }
    }

    context fn cuCtxSynchronize() {
        world().refuse_unsafe()?;
        synchronize_all()
    }

    context fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) {
        let world = world();
        give(free, (world.config.memory - world.memory.used) as usize)?;
        give(total, world.config.memory as usize)
    }

    context fn cuMemAlloc_v2(address: *mut Address, len: usize) {
        let mut world = world();
        world.refuse_unsafe()?;
        if world.memory.used + len as u64 > world.config.memory {
            return fail(OUT_OF_MEMORY, "");
        }
        let allocated = world.memory.allocate(Memory::Device, len)?;
        world.note(&format!("alloc {len}"));
        give(address, allocated)
    }

    context fn cuMemFree_v2(address: Address) {
        world().refuse_unsafe()?;
        // The driver waits for work that may use it.
        finish_all();
        let mut world = world();
        let freed = world.memory.free(Memory::Device, address);
        if let Ok(len) = &freed {
            world.note(&format!("free {len}"));
        }
        freed.map(|_| ())
    }

    context fn cuMemHostAlloc(start: *mut Address, len: usize, _flags: c_uint) {
        let mut world = world();
        world.refuse_unsafe()?;
        let allocated = world.memory.allocate(Memory::Pinned, len)?;
        world.note("pin");
        give(start, allocated)
    }

    context fn cuMemFreeHost(start: Address) {
        let mut world = world();
        world.refuse_unsafe()?;
        if let Some(range) = world.memory.range(start)
            && world.streams.values().any(|stream| stream.uses(&range))
        {
            return fail(INVALID_VALUE, "pinned memory is freed while a copy from or to it waits");
        }
        world.memory.free(Memory::Pinned, start)?;
        world.note("unpin");
        Ok(())
    }

    context fn cuMemcpyHtoDAsync_v2(to: Address, from: Address, len: usize, stream: Handle) {
        let pinned = world().memory.is_pinned(from, len);
        // Pageable memory is read before the call returns.
        let from = match pinned {
            true => Side::Pinned(from),
            false => Side::Bytes(std::slice::from_raw_parts(from as *const u8, len).to_vec()),
        };
        let work = Work::Copy { from, to: Side::Device(to), len };
        check_copy(&work)?;
        world().note(&format!("upload {len}"));
        put(stream, work)
    }

    context fn cuMemcpyDtoHAsync_v2(to: Address, from: Address, len: usize, stream: Handle) {
        let pinned = world().memory.is_pinned(to, len);
        let work = Work::Copy { from: Side::Device(from), to: Side::Pinned(to), len };
        check_copy(&work)?;
        world().note(&format!("download {len}"));
        if pinned {
            return put(stream, work);
        }
        // Pageable memory is written before the call returns.
        world().refuse_captured(stream)?;
        let found = world().stream(stream)?;
        found.synchronize()?;
        world().memory.check(from, len, "a copy from")?;
        std::ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, len);
        Ok(())
    }

    context fn cuMemcpyDtoDAsync_v2(to: Address, from: Address, len: usize, stream: Handle) {
        let work = Work::Copy { from: Side::Device(from), to: Side::Device(to), len };
        check_copy(&work)?;
        put(stream, work)
    }

    context fn cuMemsetD8Async(to: Address, value: u8, len: usize, stream: Handle) {
        let work = Work::Fill { to, value, len };
        check_copy(&work)?;
        put(stream, work)
    }

    context fn cuPointerGetAttribute(value: *mut c_int, attribute: c_int, address: Address) {
        // MEMORY_TYPE: of the host, pinned, or of the device.
        if attribute == 2 {
            let world = world();
            let kind = match world.memory.check(address, 0, "a pointer") {
                _ if world.memory.is_pinned(address, 1) => 1,
                Ok(()) => 2,
                Err(failure) => return fail(INVALID_VALUE, failure.detail),
            };
            drop(world);
            return give(value, kind);
        }
        // DEVICE_ORDINAL
        if attribute != 9 {
            return fail(INVALID_VALUE, format!("attribute {attribute} of a pointer"));
        }
        match world().memory.check(address, 0, "a pointer") {
            Ok(()) => give(value, 0),
            Err(failure) => fail(INVALID_VALUE, failure.detail),
        }
    }

    context fn cuStreamCreate(stream: *mut Handle, _flags: c_uint) {
        let mut world = world();
        let handle = world.handle();
        world.streams.insert(handle, Arc::new(Stream::default()));
        world.note("stream");
        give(stream, handle)
    }

    context fn cuStreamDestroy_v2(stream: Handle) {
        world().refuse_captured(stream)?;
        let mut world = world();
        let removed = world.streams.remove(stream)?;
        world.note("unstream");
        drop(world);
        // The work goes on without its handle.
        let _ = removed.synchronize();
        Ok(())
    }

    context fn cuStreamSynchronize(stream: Handle) {
        world().refuse_captured(stream)?;
        let found = world().stream(stream)?;
        world().note("synchronize");
        found.synchronize()
    }

    context fn cuStreamQuery(stream: Handle) {
        world().refuse_captured(stream)?;
        let found = world().stream(stream)?;
        let last = found.last();
        if found.is_done(last)? {
            return Ok(());
        }
        // Asking often enough is waiting.
        found.step(last);
        fail(NOT_READY, "")
    }

    context fn cuStreamWaitEvent(stream: Handle, event: Handle, _flags: c_uint) {
        let mut locked = world();
        locked.stream(stream)?;
        let event = locked.events.get(event)?.clone();
        if let Some((graph, nodes)) = event.captured {
            return locked.join_capture(stream, graph, &nodes);
        }
        drop(locked);
        match event.recorded {
            None => Ok(()),
            Some(recorded) => put(stream, Work::Wait(recorded.stream, recorded.number)),
        }
    }

    context fn cuEventCreate(event: *mut Handle, flags: c_uint) {
        let mut world = world();
        let handle = world.handle();
        world.events.insert(handle, Event { timed: flags & 2 == 0, ..Event::default() });
        world.note("event");
        give(event, handle)
    }

    context fn cuEventDestroy_v2(event: Handle) {
        let mut world = world();
        world.events.remove(event)?;
        world.note("unevent");
        Ok(())
    }

    context fn cuEventRecord(event: Handle, stream: Handle) {
        let mut locked = world();
        let found = locked.stream(stream)?;
        let captured = locked.captured_place(stream);
        let eager = locked.config.eager;
        let event = locked.events.get_mut(event)?;
        event.captured = captured;
        if event.captured.is_some() {
            event.recorded = None;
            return Ok(());
        }
        let time = Arc::default();
        let number = found.put(Work::Record(Arc::clone(&time)))?;
        event.recorded = Some(Recorded { stream: Arc::clone(&found), number, time });
        drop(locked);
        if eager { found.run_to(number) } else { Ok(()) }
    }

    context fn cuEventQuery(event: Handle) {
        let event = world().events.get(event)?.clone();
        if event.captured.is_some() {
            return world().refuse_unsafe();
        }
        let Some(Recorded { stream, number, .. }) = event.recorded else { return Ok(()) };
        if stream.is_done(number)? {
            return Ok(());
        }
        stream.step(number);
        fail(NOT_READY, "")
    }

    context fn cuEventSynchronize(event: Handle) {
        let event = world().events.get(event)?.clone();
        if event.captured.is_some() {
            return world().refuse_unsafe();
        }
        event.recorded.map_or(Ok(()), |recorded| recorded.stream.run_to(recorded.number))
    }

    context fn cuEventElapsedTime(milliseconds: *mut f32, from: Handle, to: Handle) {
        let world = world();
        let mut times = Vec::new();
        for event in [from, to] {
            let event = world.events.get(event)?;
            let time = event.recorded.as_ref().map(|recorded| recorded.time.lock().map_or(None, |time| *time));
            match time {
                Some(Some(time)) if event.timed => times.push(time),
                Some(None) if event.timed => return fail(NOT_READY, "an event that was not reached"),
                _ => return fail(status::INVALID_HANDLE, "an event without a time"),
            }
        }
        let [from, to] = times.as_slice() else { return fail(UNKNOWN, "") };
        give(milliseconds, to.saturating_duration_since(*from).as_secs_f32() * 1e3)
    }

    context fn cuModuleLoadDataEx(
        module: *mut Handle, image: *const u8, count: c_uint, options: *mut c_int, values: *mut *mut c_void,
    ) {
        world().refuse_unsafe()?;
        let loaded = Module::load(image);
        let loaded = match loaded {
            Ok(loaded) => loaded,
            Err(failure) => {
                write_log(&failure.detail, count, options, values);
                return Err(failure);
            }
        };
        let mut world = world();
        let handle = world.handle();
        world.modules.insert(handle, Arc::new(loaded));
        world.note("module");
        give(module, handle)
    }

    context fn cuModuleUnload(module: Handle) {
        world().refuse_unsafe()?;
        finish_all();
        let mut world = world();
        let removed = world.modules.remove(module)?;
        world.functions.retain(|function| function.module != module);
        world.note("unmodule");
        drop(world);
        drop(removed);
        Ok(())
    }

    context fn cuModuleGetFunction(function: *mut Handle, module: Handle, name: *const c_char) {
        let mut world = world();
        let kernel = world.modules.get(module)?.kernel(CStr::from_ptr(name))?;
        let handle = world.handle();
        world.functions.insert(handle, crate::world::Function { module, kernel, allowed_shared: 0 });
        give(function, handle)
    }

    context fn cuFuncGetAttribute(value: *mut c_int, attribute: c_int, function: Handle) {
        let world = world();
        let found = world.functions.get(function)?;
        give(value, match attribute {
            // MAX_THREADS_PER_BLOCK, SHARED_SIZE_BYTES, LOCAL_SIZE_BYTES, NUM_REGS, MAX_DYNAMIC_SHARED_SIZE_BYTES
            0 => THREADS as c_int,
            1 => world.modules.get(found.module)?.shared() as c_int,
            3 => 0,
            4 => 32,
            8 => found.allowed_shared.max(SHARED) as c_int,
            other => return fail(INVALID_VALUE, format!("attribute {other} of a function")),
        })
    }

    context fn cuFuncGetParamInfo(function: Handle, index: usize, offset: *mut usize, size: *mut usize) {
        let world = world();
        let kernel = &world.functions.get(function)?.kernel;
        let Some((at, bytes)) = kernel.parameter(index) else {
            return fail(INVALID_VALUE, format!("{} has no parameter {index}", kernel.name));
        };
        give(offset, at)?;
        // The size may be left out.
        if size.is_null() { Ok(()) } else { give(size, bytes) }
    }

    plain fn cuTensorMapEncodeTiled(
        map: *mut TensorMap, kind: c_int, rank: c_uint, start: u64, sizes: *const u64, strides: *const u64, tile: *const c_uint,
        apart: *const c_uint, interleave: c_int, swizzle: c_int, _promotion: c_int, fill: c_int
    ) {
        // SAFETY: the caller's lists, as long as the rank says.
        let encoded = unsafe {
            let rank = rank as usize;
            let tile = std::slice::from_raw_parts(tile, rank);
            let neighbours = std::slice::from_raw_parts(apart, rank).iter().all(|step| *step == 1);
            if !neighbours || (interleave, swizzle, fill) != (0, 3, 0) {
                return fail(NOT_SUPPORTED, "a tensor map of another kind than elements side by side, in the 128-byte swizzle");
            }
            TensorMap::new(kind, start, slice(sizes, rank), slice(strides, rank.saturating_sub(1)), tile)?
        };
        give(map, encoded)
    }

    context fn cuFuncSetAttribute(function: Handle, attribute: c_int, value: c_int) {
        let mut world = world();
        let found = world.functions.get_mut(function)?;
        // MAX_DYNAMIC_SHARED_SIZE_BYTES
        if attribute != 8 || !(0..=SHARED_OPTIN).contains(&value) {
            return fail(INVALID_VALUE, format!("attribute {attribute} of a function set to {value}"));
        }
        found.allowed_shared = value as usize;
        Ok(())
    }

    context fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
        blocks: *mut c_int, function: Handle, threads: c_int, shared: usize,
    ) {
        world().functions.get(function)?;
        let by_shared = SHARED_OPTIN as usize / (shared + 1024);
        give(blocks, (2048 / threads.max(1)).min(32).min(by_shared as c_int))
    }

    context fn cuLaunchKernel(
        function: Handle, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint, bz: c_uint, shared: c_uint,
        stream: Handle, parameters: Parameters, extra: Parameters,
    ) {
        if !extra.is_null() {
            return fail(INVALID_VALUE, "parameters in a buffer");
        }
        let launch = launch(function, [gx, gy, gz], [bx, by, bz], shared, parameters)?;
        world().note(&format!("launch {gx} x {bx}"));
        put(stream, Work::Launch(launch))
    }

    context fn cuStreamBeginCapture_v2(stream: Handle, mode: c_uint) {
        let mode = match mode {
            0 => Mode::Global,
            1 => Mode::ThreadLocal,
            2 => Mode::Relaxed,
            _ => return fail(INVALID_VALUE, format!("a mode of capture {mode}")),
        };
        world().begin_capture(stream, mode)
    }

    context fn cuStreamEndCapture(stream: Handle, graph: *mut Handle) {
        let captured = world().end_capture(stream)?;
        give(graph, captured)
    }

    context fn cuStreamIsCapturing(stream: Handle, status: *mut c_uint) {
        let world = world();
        world.stream(stream)?;
        give(status, world.capture_status(stream))
    }
}

/// Writes the driver's log, where the caller has room for it.
unsafe fn write_log(text: &str, count: c_uint, options: *mut c_int, values: *mut *mut c_void) {
    // CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES
    let (mut buffer, mut size) = (std::ptr::null_mut::<u8>(), 0);
    for i in 0..count as usize {
        // SAFETY: there are as many options and values.
        unsafe {
            match *options.add(i) {
                5 => buffer = (*values.add(i)).cast(),
                6 => size = *values.add(i) as usize,
                _ => {}
            }
        }
    }
    if !buffer.is_null() && size > 0 {
        let len = text.len().min(size - 1);
        // SAFETY: the caller's buffer, as long as it says.
        unsafe {
            std::ptr::copy_nonoverlapping(text.as_ptr(), buffer, len);
            buffer.add(len).write(0);
        }
    }
}

/// The name of a status.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorName(status: Status, text: *mut *const c_char) -> Status {
    // SAFETY: the caller's pointer.
    status::name(status).map_or(INVALID_VALUE, |name| unsafe { give(text, name) }.map_or(INVALID_VALUE, |()| 0))
}

/// What a status means, and what the last call of this thread that returned it said.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorString(status: Status, text: *mut *const c_char) -> Status {
    // SAFETY: the caller's pointer.
    status::text(status).map_or(INVALID_VALUE, |name| unsafe { give(text, name) }.map_or(INVALID_VALUE, |()| 0))
}

/// Changes what the driver is, in the words of [`crate::config`]. Returns `CUDA_ERROR_INVALID_VALUE` for words that mean nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn softgpu_configure(words: *const c_char) -> Status {
    // SAFETY: the caller's text, which ends in 0.
    let words = unsafe { CStr::from_ptr(words) }.to_string_lossy();
    world().config.apply(&words).map_or(INVALID_VALUE, |()| 0)
}

/// Writes what is not freed into a buffer of `len` bytes, as text that ends in 0: empty where nothing is left. Returns the text's length.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn softgpu_left(text: *mut u8, len: usize) -> usize {
    let left = world().left();
    // SAFETY: the caller's buffer.
    unsafe { write(&left, text, len) }
}

/// The same for how often each function was called: a line each, of its name and the number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn softgpu_calls(text: *mut u8, len: usize) -> usize {
    let lines: Vec<String> = world().calls.iter().map(|(call, count)| format!("{call} {count}\n")).collect();
    // SAFETY: the caller's buffer.
    unsafe { write(&lines.concat(), text, len) }
}

/// Writes as much of a text as fits, and a 0; returns the text's length.
unsafe fn write(from: &str, text: *mut u8, len: usize) -> usize {
    let kept = from.len().min(len.saturating_sub(1));
    if len > 0 {
        // SAFETY: the caller's buffer.
        unsafe {
            std::ptr::copy_nonoverlapping(from.as_ptr(), text, kept);
            text.add(kept).write(0);
        }
    }
    from.len()
}
