//! What became of a method's graphs.

/// Counts since the method was loaded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CudaGraphReport {
    /// Graphs that were recorded: one a segment and set of input sizes, again where one could not be changed.
    pub recordings: u64,
    /// Launches of a graph that was there, unchanged.
    pub replays: u64,
    /// Calls that ran without graphs.
    pub plain_calls: u64,
    /// Nodes that were given other arguments before a launch.
    pub patched_nodes: u64,
    /// Values that calls waited for.
    pub host_reads: u64,
    /// Sets of input sizes that have graphs now.
    pub shapes: usize,
    /// Bytes of the device's memory that its graphs took when they were made.
    pub bytes: usize,
    /// Why the method uses no graphs any more.
    pub off: Option<String>,
}
