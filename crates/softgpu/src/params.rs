//! Structures that the driver's functions take.

use std::ffi::{c_int, c_uint, c_void};

use crate::graph::{Body, Choice, Graph, Kind};
use crate::status::{INVALID_VALUE, NOT_SUPPORTED, Outcome, fail};
use crate::stream::{Side, Work};
use crate::world::world;

/// `CUDA_KERNEL_NODE_PARAMS_v2`
#[repr(C)]
pub struct KernelParams {
    pub function: u64,
    pub blocks: [c_uint; 3],
    pub threads: [c_uint; 3],
    pub shared: c_uint,
    pub parameters: *mut *mut c_void,
    pub extra: *mut *mut c_void,
    pub kernel: *mut c_void,
    pub context: u64,
}

/// One side of a `CUDA_MEMCPY3D_v2`.
#[repr(C)]
pub struct CopySide {
    x: usize,
    y: usize,
    z: usize,
    level: usize,
    kind: c_uint,
    host: u64,
    device: u64,
    array: *mut c_void,
    reserved: *mut c_void,
    pitch: usize,
    height: usize,
}

/// `CUDA_MEMCPY3D_v2`
#[repr(C)]
pub struct CopyParams {
    from: CopySide,
    to: CopySide,
    width: usize,
    height: usize,
    depth: usize,
}

/// `CUgraphNodeParams` of a conditional node.
#[repr(C)]
pub struct ConditionalParams {
    pub node: c_int,
    pub reserved: [c_int; 3],
    pub condition: u64,
    pub kind: c_uint,
    pub size: c_uint,
    pub bodies: *mut u64,
    pub context: u64,
    pub rest: [i64; 26],
}

const _: () =
    assert!(size_of::<KernelParams>() == 72 && size_of::<CopyParams>() == 200 && size_of::<ConditionalParams>() == 256);

/// `CU_GRAPH_NODE_TYPE_CONDITIONAL`
pub const CONDITIONAL: c_int = 13;

impl CopyParams {
    /// The copy as work: one row of bytes.
    ///
    /// # Errors
    /// `NOT_SUPPORTED` for more than a row.
    pub fn work(&self) -> Outcome<Work> {
        let plain = |side: &CopySide| side.x == 0 && side.y == 0 && side.z == 0 && side.level == 0;
        if self.height != 1 || self.depth != 1 || !plain(&self.from) || !plain(&self.to) {
            return fail(NOT_SUPPORTED, "a copy of more than one row");
        }
        if self.width == 0 {
            return fail(INVALID_VALUE, "a copy of no bytes");
        }
        Ok(Work::Copy { from: self.from.side()?, to: self.to.side()?, len: self.width })
    }
}

impl CopySide {
    fn side(&self) -> Outcome<Side> {
        match self.kind {
            1 => Ok(Side::Pinned(self.host)),
            2 => Ok(Side::Device(self.device)),
            kind => fail(NOT_SUPPORTED, format!("a copy of the kind of memory {kind}")),
        }
    }
}

/// Adds a conditional node and makes its bodies.
///
/// # Errors
/// `INVALID_VALUE` for a condition that is not the graph's or a size that cannot be; `NOT_SUPPORTED` for other nodes.
///
/// # Safety
/// The structure must be one of the driver's.
pub unsafe fn conditional(graph: u64, after: &[u64], params: *mut ConditionalParams) -> Outcome<u64> {
    // SAFETY: the caller's structure.
    let params = unsafe { &mut *params };
    if params.node != CONDITIONAL {
        return fail(NOT_SUPPORTED, format!("a node of type {}", params.node));
    }
    let choice = match (params.kind, params.size) {
        (0, 1 | 2) => Choice::If,
        (1, 1) => Choice::While,
        (2, 1..) => Choice::Switch,
        (kind, size) => return fail(INVALID_VALUE, format!("a conditional node of kind {kind} with {size} bodies")),
    };
    let mut world = world();
    let mine = &world.graphs.get(graph)?.conditions;
    if !mine.iter().any(|(condition, _)| *condition == params.condition) && !world.is_condition(params.condition) {
        return fail(INVALID_VALUE, format!("{:#x} is no condition", params.condition));
    }
    let bodies: Vec<u64> = (0..params.size).map(|_| world.handle()).collect();
    for body in &bodies {
        world.graphs.insert(*body, Graph { is_body: true, ..Graph::default() });
    }
    let kind = Kind::Conditional {
        condition: params.condition,
        choice,
        bodies: bodies.iter().copied().map(Body::of).collect(),
    };
    let node = world.add_node(graph, after, kind)?;
    // The driver's own array, which lives as long as the graph.
    params.bodies = Vec::leak(bodies).as_mut_ptr();
    Ok(node)
}
