//! Graphs: work that is described once and launched many times.
//!
//! A [`Graph`] is built node by node, as a chain: each node begins when the one before it is done, as on a stream. Branches and loops are
//! nodes with chains of their own inside, decided by kernels that set a [`Condition`]. [`Graph::instantiate`] gives an [`Exec`], whose nodes
//! can be given other arguments and places. Nothing here runs anything but [`Exec::launch`].
//!
//! A graph keeps the functions and the pinned memory that its nodes name. Memory of the device it does not keep: a launch, like any other
//! work, uses what its places say.

use std::ffi::c_void;
use std::sync::Arc;

use douse_core::{Error, Result};

use super::device::Device;
use super::entry::{
    AFTER_BEGIN, AFTER_END, CONDITIONAL, ConditionalParams, CopyParams, CopySide, DEVICE, EdgeData, HOST, IF,
    KernelParams, RawCondition, RawContext, RawExec, RawGraph, RawNode, WHILE,
};
use super::memory::{PinnedBytes, PinnedMemory, Place};
use super::module::{Argument, Function, Grid, Module, Values};
use super::stream::Stream;

/// `CU_STREAM_CAPTURE_MODE_RELAXED`: forbids nothing, to no thread. What is captured has run before.
const RELAXED: u32 = 2;

/// `CU_GRAPH_COND_ASSIGN_DEFAULT`: the condition has its first value at every launch.
const ASSIGN_DEFAULT: u32 = 1;

/// What the nodes of a graph need.
#[derive(Debug, Default)]
struct Kept {
    modules: Vec<Arc<Module>>,
    pinned: Vec<Arc<PinnedBytes>>,
}

/// Keeps one more, unless it is kept already.
fn keep<T>(kept: &mut Vec<Arc<T>>, one: &Arc<T>) {
    if !kept.iter().any(|other| Arc::ptr_eq(other, one)) {
        kept.push(one.clone());
    }
}

/// A graph that is being built.
#[derive(Debug)]
pub struct Graph {
    device: Device,
    raw: RawGraph,
    kept: Kept,
}

/// The end of a chain of nodes: of a graph, or of a branch or loop in it.
#[derive(Clone, Copy, Debug)]
pub struct Chain {
    raw: RawGraph,
    last: Option<RawNode>,
    /// Blocks of the last node, if it is a kernel's.
    blocks: Option<u64>,
}

/// When a launch may begin, where the node before it is a kernel's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overlap {
    /// When that is done.
    None,
    /// While it ends: the function first waits for the work before it (`griddepcontrol.wait`), as all on the chain do. Where that has at most so
    /// many blocks, it leaves room: then the function's blocks come onto the device while those work, and can ask for constants meanwhile.
    Few(u64),
}

impl Overlap {
    fn edge(self, before: Option<u64>) -> Option<EdgeData> {
        match (self, before?) {
            (Overlap::None, _) => None,
            (Overlap::Few(few), before) if before <= few => Some(AFTER_BEGIN),
            (Overlap::Few(_), _) => Some(AFTER_END),
        }
    }
}

/// A node, for changing it in the graph's instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node(RawNode);

/// What decides a branch or loop: a kernel passes it to `cudaGraphSetConditional`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Condition(RawCondition);

impl Condition {
    /// The number that the kernel takes.
    pub fn argument(self) -> Argument {
        Argument::U64(self.0)
    }
}

/// A copy, of one length on both sides.
#[derive(Clone, Copy, Debug)]
pub enum Transfer<'a> {
    Within { from: Place, to: Place },
    Upload { from: &'a PinnedMemory, start: usize, to: Place },
    Download { from: Place, to: &'a PinnedMemory, start: usize },
}

impl Device {
    /// An empty graph.
    ///
    /// # Errors
    /// What the driver says.
    pub fn graph(&self) -> Result<Graph> {
        let _current = self.enter()?;
        let mut raw = RawGraph::NULL;
        // SAFETY: the pointer is to a variable; destroyed when the graph is dropped.
        self.check("cuGraphCreate", unsafe { (self.table().cuGraphCreate)(&raw mut raw, 0) })?;
        Ok(Graph { device: self.clone(), raw, kept: Kept::default() })
    }

    /// A graph of what `work` puts on a stream, which does not run. The stream must have no work, and is as before then.
    ///
    /// # Errors
    /// Those of `work`; what the driver says.
    pub fn capture(&self, stream: &Stream, work: impl FnOnce(&Stream) -> Result<()>) -> Result<Graph> {
        let _current = self.enter()?;
        let table = self.table();
        // SAFETY: the stream lives.
        self.check("cuStreamBeginCapture", unsafe { (table.cuStreamBeginCapture)(stream.raw(), RELAXED) })?;
        let worked = work(stream);
        let mut raw = RawGraph::NULL;
        // SAFETY: the pointer is to a variable; what it gets is destroyed when the graph is dropped.
        let ended = unsafe { (table.cuStreamEndCapture)(stream.raw(), &raw mut raw) };
        let graph = (raw != RawGraph::NULL).then(|| Graph { device: self.clone(), raw, kept: Kept::default() });
        worked?;
        self.check("cuStreamEndCapture", ended)?;
        graph.ok_or_else(|| Error::internal("the driver gave no graph of what was captured"))
    }
}

impl Graph {
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The graph's own chain, empty.
    pub fn chain(&self) -> Chain {
        Chain { raw: self.raw, last: None, blocks: None }
    }

    /// Adds a launch. The arguments must be those the kernel declares.
    ///
    /// # Errors
    /// What the driver says.
    pub fn launch(
        &mut self,
        chain: &mut Chain,
        function: &Function,
        grid: &Grid,
        arguments: &[Argument],
        overlap: Overlap,
    ) -> Result<Node> {
        let _current = self.device.enter()?;
        let add = self.device.table().cuGraphAddKernelNode;
        let mut node = RawNode::NULL;
        let blocks = grid.blocks.iter().map(|n| u64::from(*n)).product();
        let overlaps = chain.last.zip(overlap.edge(chain.blocks));
        let before = if overlaps.is_some() { Vec::new() } else { chain.before() };
        let status = with_params(function, grid, arguments, |params| {
            // SAFETY: the pointers are to variables and slices of the lengths given, whose contents the driver copies; the function lives
            // as long as the graph, which keeps it.
            unsafe { add(&raw mut node, chain.raw, before.as_ptr(), before.len(), params) }
        });
        self.device.check("cuGraphAddKernelNode", status).map_err(|e| e.at(function.name()))?;
        if let Some((before, edge)) = overlaps {
            // SAFETY: the pointers are to variables; both nodes are of the graph, and of kernels.
            let status = unsafe {
                let add = self.device.table().cuGraphAddDependencies;
                add(chain.raw, &raw const before, &raw const node, &raw const edge, 1)
            };
            self.device.check("cuGraphAddDependencies", status).map_err(|e| e.at(function.name()))?;
        }
        keep(&mut self.kept.modules, function.module());
        Ok(chain.extend(node, Some(blocks)))
    }

    /// Adds a copy.
    ///
    /// # Errors
    /// What the driver says; `Internal` where the two sides differ in length, or there is nothing to copy.
    pub fn transfer(&mut self, chain: &mut Chain, transfer: Transfer<'_>) -> Result<Node> {
        let params = copy_params(transfer)?;
        let _current = self.device.enter()?;
        let mut node = RawNode::NULL;
        let before = chain.before();
        // SAFETY: the pointers are to variables and slices of the lengths given, whose contents the driver copies; the context is current.
        let status = unsafe {
            let add = self.device.table().cuGraphAddMemcpyNode;
            add(&raw mut node, chain.raw, before.as_ptr(), before.len(), &raw const params, self.device.context())
        };
        self.device.check("cuGraphAddMemcpyNode", status)?;
        transfer.pinned().iter().for_each(|pinned| keep(&mut self.kept.pinned, pinned));
        Ok(chain.extend(node, None))
    }

    /// Adds all work of another graph, which the driver copies.
    ///
    /// # Errors
    /// What the driver says.
    pub fn child(&mut self, chain: &mut Chain, child: &Graph) -> Result<Node> {
        let _current = self.device.enter()?;
        let mut node = RawNode::NULL;
        let before = chain.before();
        // SAFETY: the pointers are to variables and slices of the lengths given; both graphs live.
        let status = unsafe {
            let add = self.device.table().cuGraphAddChildGraphNode;
            add(&raw mut node, chain.raw, before.as_ptr(), before.len(), child.raw)
        };
        self.device.check("cuGraphAddChildGraphNode", status)?;
        Ok(chain.extend(node, None))
    }

    /// A condition for a branch or loop on that chain; false at every launch until a kernel sets it.
    ///
    /// # Errors
    /// What the driver says.
    pub fn condition(&mut self, chain: &Chain) -> Result<Condition> {
        let _current = self.device.enter()?;
        let mut raw = 0;
        // SAFETY: the pointer is to a variable; the condition lives as long as the graph.
        let status = unsafe {
            let create = self.device.table().cuGraphConditionalHandleCreate;
            create(&raw mut raw, chain.raw, self.device.context(), 0, ASSIGN_DEFAULT)
        };
        self.device.check("cuGraphConditionalHandleCreate", status)?;
        Ok(Condition(raw))
    }

    /// Adds a branch: the first of the chains that it returns runs where the condition is true, the second where it is false.
    ///
    /// # Errors
    /// What the driver says.
    pub fn branch(&mut self, chain: &mut Chain, condition: Condition) -> Result<[Chain; 2]> {
        self.conditional::<2>(chain, condition, IF)
    }

    /// Adds a loop: the chain that it returns runs again and again while the condition is true.
    ///
    /// # Errors
    /// What the driver says.
    pub fn repeat(&mut self, chain: &mut Chain, condition: Condition) -> Result<Chain> {
        let [body] = self.conditional::<1>(chain, condition, WHILE)?;
        Ok(body)
    }

    fn conditional<const N: usize>(
        &mut self,
        chain: &mut Chain,
        condition: Condition,
        kind: u32,
    ) -> Result<[Chain; N]> {
        let _current = self.device.enter()?;
        let mut params = ConditionalParams {
            node: CONDITIONAL,
            reserved: [0; 3],
            condition: condition.0,
            kind,
            size: N as u32,
            bodies: std::ptr::null_mut(),
            context: self.device.context(),
            rest: [0; 26],
        };
        let mut node = RawNode::NULL;
        let before = chain.before();
        // SAFETY: the pointers are to variables and slices of the lengths given; no edge has data.
        let status = unsafe {
            let add = self.device.table().cuGraphAddNode;
            add(&raw mut node, chain.raw, before.as_ptr(), std::ptr::null(), before.len(), &raw mut params)
        };
        self.device.check("cuGraphAddNode", status)?;
        chain.extend(node, None);
        if params.bodies.is_null() {
            return Err(Error::internal("the driver gave a conditional node without bodies"));
        }
        // SAFETY: the driver has set `bodies` to as many graphs as `size`; they live as long as the graph.
        Ok(std::array::from_fn(|i| Chain { raw: unsafe { *params.bodies.add(i) }, last: None, blocks: None }))
    }

    /// Makes the graph ready to be launched.
    ///
    /// # Errors
    /// What the driver says.
    pub fn instantiate(self) -> Result<Exec> {
        let current = self.device.enter()?;
        let mut raw = RawExec::NULL;
        // SAFETY: the pointer is to a variable; destroyed when the instance is dropped.
        let status = unsafe { (self.device.table().cuGraphInstantiateWithFlags)(&raw mut raw, self.raw, 0) };
        self.device.check("cuGraphInstantiateWithFlags", status)?;
        drop(current);
        Ok(Exec { raw, graph: self })
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: created by us; its instance is gone, or holds its own copy.
        self.device.release("cuGraphDestroy", || unsafe { (self.device.table().cuGraphDestroy)(self.raw) });
    }
}

impl Chain {
    fn before(&self) -> Vec<RawNode> {
        self.last.into_iter().collect()
    }

    fn extend(&mut self, node: RawNode, blocks: Option<u64>) -> Node {
        (self.last, self.blocks) = (Some(node), blocks);
        Node(node)
    }
}

/// A graph that can be launched.
#[derive(Debug)]
pub struct Exec {
    raw: RawExec,
    /// The nodes' names live as long as it.
    graph: Graph,
}

impl Exec {
    pub fn device(&self) -> &Device {
        &self.graph.device
    }

    /// Gives a launch other arguments, or another grid, from the next launch of the graph on.
    ///
    /// # Errors
    /// What the driver says; nodes inside a branch or loop may be refused.
    pub fn set_launch(&mut self, node: Node, function: &Function, grid: &Grid, arguments: &[Argument]) -> Result<()> {
        let device = &self.graph.device;
        let _current = device.enter()?;
        let set = device.table().cuGraphExecKernelNodeSetParams;
        let status = with_params(function, grid, arguments, |params| {
            // SAFETY: the node is one of the graph's; the driver copies what the parameters point to.
            unsafe { set(self.raw, node.0, params) }
        });
        device.check("cuGraphExecKernelNodeSetParams", status).map_err(|e| e.at(function.name()))?;
        keep(&mut self.graph.kept.modules, function.module());
        Ok(())
    }

    /// Gives a copy other places, from the next launch of the graph on.
    ///
    /// # Errors
    /// What the driver says; `Internal` as [`Graph::transfer`].
    pub fn set_transfer(&mut self, node: Node, transfer: Transfer<'_>) -> Result<()> {
        let params = copy_params(transfer)?;
        let device = &self.graph.device;
        let _current = device.enter()?;
        // SAFETY: the node is one of the graph's; the driver copies the parameters.
        let status = unsafe {
            let set = device.table().cuGraphExecMemcpyNodeSetParams;
            set(self.raw, node.0, &raw const params, device.context())
        };
        device.check("cuGraphExecMemcpyNodeSetParams", status)?;
        transfer.pinned().iter().for_each(|pinned| keep(&mut self.graph.kept.pinned, pinned));
        Ok(())
    }

    /// Gives a node that is a graph the work of another graph, whose nodes are of the same kinds, from the next launch on.
    ///
    /// # Errors
    /// What the driver says.
    pub fn set_child(&mut self, node: Node, child: &Graph) -> Result<()> {
        let device = &self.graph.device;
        let _current = device.enter()?;
        // SAFETY: the node is one of the graph's; the driver copies the child.
        let status = unsafe { (device.table().cuGraphExecChildGraphNodeSetParams)(self.raw, node.0, child.raw) };
        device.check("cuGraphExecChildGraphNodeSetParams", status)
    }

    /// Brings to the device what a launch needs there, so that the first one is not slower.
    ///
    /// # Errors
    /// What the driver says.
    pub fn upload(&self, stream: &Stream) -> Result<()> {
        let device = &self.graph.device;
        let _current = device.enter()?;
        // SAFETY: the instance and the stream live.
        device.check("cuGraphUpload", unsafe { (device.table().cuGraphUpload)(self.raw, stream.raw()) })
    }

    /// Puts the graph's work on a stream.
    ///
    /// # Errors
    /// What the driver says: where this fails, no work of the graph has begun, unless it is a fault of earlier work.
    pub fn launch(&self, stream: &Stream) -> Result<()> {
        let device = &self.graph.device;
        let _current = device.enter()?;
        // SAFETY: the instance and the stream live.
        device.check("cuGraphLaunch", unsafe { (device.table().cuGraphLaunch)(self.raw, stream.raw()) })
    }
}

impl Drop for Exec {
    fn drop(&mut self) {
        let device = &self.graph.device;
        // SAFETY: created by us; the driver waits for a launch that is under way.
        device.release("cuGraphExecDestroy", || unsafe { (device.table().cuGraphExecDestroy)(self.raw) });
    }
}

impl Transfer<'_> {
    fn pinned(&self) -> Option<Arc<PinnedBytes>> {
        match self {
            Transfer::Within { .. } => None,
            Transfer::Upload { from: pinned, .. } | Transfer::Download { to: pinned, .. } => Some(pinned.bytes()),
        }
    }
}

/// Runs `call` with the parameters of a kernel node.
fn with_params<R>(
    function: &Function,
    grid: &Grid,
    arguments: &[Argument],
    call: impl FnOnce(*const KernelParams) -> R,
) -> R {
    let mut values = Values::of(arguments);
    let mut pointers = values.pointers();
    let params = KernelParams {
        function: function.raw(),
        blocks: grid.blocks,
        threads: grid.threads,
        shared: grid.shared,
        arguments: pointers.as_mut_ptr(),
        extra: std::ptr::null_mut(),
        kernel: std::ptr::null_mut(),
        context: RawContext::NULL,
    };
    call(&raw const params)
}

fn copy_params(transfer: Transfer<'_>) -> Result<CopyParams> {
    let on_host = |pinned: &PinnedMemory, start, len| -> Result<CopySide> {
        Ok(side(HOST, pinned.part(start, len)?.cast(), 0, len))
    };
    let on_device = |place: Place| side(DEVICE, std::ptr::null_mut(), place.address(), place.len());
    let (from, to) = match transfer {
        Transfer::Within { from, to } => (on_device(from), on_device(to)),
        Transfer::Upload { from, start, to } => (on_host(from, start, to.len())?, on_device(to)),
        Transfer::Download { from, to, start } => (on_device(from), on_host(to, start, from.len())?),
    };
    if from.pitch != to.pitch || from.pitch == 0 {
        return Err(Error::internal(format!("a graph's copy of {} bytes to {}", from.pitch, to.pitch)));
    }
    let width = from.pitch;
    Ok(CopyParams { from, to, width, height: 1, depth: 1 })
}

fn side(kind: u32, host: *mut c_void, device: u64, len: usize) -> CopySide {
    let none = std::ptr::null_mut();
    CopySide { x: 0, y: 0, z: 0, level: 0, kind, host, device, array: none, reserved: none, pitch: len, height: 1 }
}
