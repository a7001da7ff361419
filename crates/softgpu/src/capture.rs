//! Capture: what is put on a stream becomes a graph.

use std::thread::ThreadId;

use crate::graph::{Graph, Kind};
use crate::status::{
    INVALID_VALUE, NOT_SUPPORTED, Outcome, STREAM_CAPTURE_INVALIDATED, STREAM_CAPTURE_UNSUPPORTED, fail,
};
use crate::stream::Work;
use crate::world::World;

/// Which calls a capture forbids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Those that are not safe, to every thread.
    Global,
    /// To the thread that captures.
    ThreadLocal,
    Relaxed,
}

/// A capture on one stream.
#[derive(Clone, Debug)]
pub struct Capture {
    graph: u64,
    /// What the next node waits for.
    last: Vec<u64>,
    mode: Mode,
    thread: ThreadId,
    invalid: bool,
    /// It began here; others have joined through an event.
    origin: bool,
}

impl World {
    /// # Errors
    /// `INVALID_VALUE` where the stream is capturing.
    pub fn begin_capture(&mut self, stream: u64, mode: Mode) -> Outcome {
        self.stream(stream)?;
        if self.captures.contains_key(&stream) {
            return fail(INVALID_VALUE, "the stream is capturing");
        }
        let graph = self.handle();
        self.graphs.insert(graph, Graph::default());
        let thread = std::thread::current().id();
        self.captures.insert(stream, Capture { graph, last: Vec::new(), mode, thread, invalid: false, origin: true });
        Ok(())
    }

    /// The graph of what was captured.
    ///
    /// # Errors
    /// `STREAM_CAPTURE_INVALIDATED` where a call in between was not allowed; `INVALID_VALUE` where nothing is captured, or work of another
    /// stream was not joined.
    pub fn end_capture(&mut self, stream: u64) -> Outcome<u64> {
        let Some(capture) = self.captures.remove(&stream).filter(|capture| capture.origin) else {
            return fail(INVALID_VALUE, "no capture began on the stream");
        };
        let others: Vec<Capture> = self.captures.values().filter(|c| c.graph == capture.graph).cloned().collect();
        self.captures.retain(|_, other| other.graph != capture.graph);
        if capture.invalid {
            self.destroy_graph(capture.graph)?;
            return fail(STREAM_CAPTURE_INVALIDATED, "a call during the capture was not allowed");
        }
        let joined = |node: u64| capture.last.iter().any(|last| self.waits_for(capture.graph, *last, node));
        if others.iter().flat_map(|other| &other.last).any(|node| !joined(*node)) {
            self.destroy_graph(capture.graph)?;
            return fail(STREAM_CAPTURE_INVALIDATED, "work of another stream was not joined");
        }
        Ok(capture.graph)
    }

    fn waits_for(&self, graph: u64, node: u64, other: u64) -> bool {
        let Ok(graph) = self.graphs.get(graph) else { return false };
        let mut open = vec![node];
        while let Some(node) = open.pop() {
            if node == other {
                return true;
            }
            open.extend(graph.nodes.iter().filter(|n| n.handle == node).flat_map(|n| &n.after));
        }
        false
    }

    /// 0: not capturing, 1: capturing, 2: in vain.
    pub fn capture_status(&self, stream: u64) -> u32 {
        self.captures.get(&stream).map_or(0, |capture| if capture.invalid { 2 } else { 1 })
    }

    /// Takes work as a node where the stream is capturing; gives it back where not.
    ///
    /// # Errors
    /// `STREAM_CAPTURE_INVALIDATED` where an earlier call was not allowed.
    pub fn capture(&mut self, stream: u64, work: Work) -> Outcome<Option<Work>> {
        let Some(capture) = self.captures.get(&stream).cloned() else { return Ok(Some(work)) };
        if capture.invalid {
            return fail(STREAM_CAPTURE_INVALIDATED, "a call during the capture was not allowed");
        }
        let kind = match work {
            Work::Launch(_) | Work::Copy { .. } | Work::Fill { .. } | Work::Product(_) => Kind::Work(work),
            _ => return fail(NOT_SUPPORTED, "this work cannot be captured"),
        };
        let node = self.add_node(capture.graph, &capture.last, kind)?;
        if let Some(capture) = self.captures.get_mut(&stream) {
            capture.last = vec![node];
        }
        Ok(None)
    }

    /// Where an event that is recorded on a capturing stream stands.
    pub fn captured_place(&self, stream: u64) -> Option<(u64, Vec<u64>)> {
        self.captures.get(&stream).map(|capture| (capture.graph, capture.last.clone()))
    }

    /// A stream waits for a place in a capture, and takes part in it from then on.
    ///
    /// # Errors
    /// `INVALID_VALUE` where the capture is over, or the stream takes part in another.
    pub fn join_capture(&mut self, stream: u64, graph: u64, nodes: &[u64]) -> Outcome {
        let Some(origin) = self.captures.values().find(|capture| capture.graph == graph).cloned() else {
            return fail(INVALID_VALUE, "the capture that the event was recorded in is over");
        };
        let capture = self.captures.entry(stream).or_insert(Capture { last: Vec::new(), origin: false, ..origin });
        if capture.graph != graph {
            return fail(INVALID_VALUE, "the stream takes part in another capture");
        }
        let new: Vec<u64> = nodes.iter().filter(|node| !capture.last.contains(node)).copied().collect();
        capture.last.extend(new);
        Ok(())
    }

    /// Refuses a call that waits for, or asks about, a stream that is capturing, and spoils its capture.
    ///
    /// # Errors
    /// `STREAM_CAPTURE_UNSUPPORTED`.
    pub fn refuse_captured(&mut self, stream: u64) -> Outcome {
        match self.captures.get(&stream).map(|capture| capture.graph) {
            None => Ok(()),
            Some(graph) => self.spoil(|capture| capture.graph == graph),
        }
    }

    /// Refuses a call that is not safe while anything is captured, and spoils the captures that forbid it.
    ///
    /// # Errors
    /// `STREAM_CAPTURE_UNSUPPORTED`.
    pub fn refuse_unsafe(&mut self) -> Outcome {
        let here = std::thread::current().id();
        let forbids = move |capture: &Capture| match capture.mode {
            Mode::Global => true,
            Mode::ThreadLocal => capture.thread == here,
            Mode::Relaxed => false,
        };
        if self.captures.values().any(forbids) { self.spoil(forbids) } else { Ok(()) }
    }

    fn spoil(&mut self, which: impl Fn(&Capture) -> bool) -> Outcome {
        self.captures.values_mut().filter(|capture| which(capture)).for_each(|capture| capture.invalid = true);
        fail(STREAM_CAPTURE_UNSUPPORTED, "a stream is capturing")
    }
}

#[cfg(test)]
#[allow(unused_unsafe)]
mod tests {
    use std::ptr::null;

    use super::*;
    use crate::entry::*;
    use crate::graph_entry::*;
    use crate::status::GRAPH_EXEC_UPDATE_FAILURE;

    macro_rules! ok {
        ($call:expr) => {
            // SAFETY: pointers to variables, and handles that softgpu gave.
            assert_eq!(unsafe { $call }, 0, stringify!($call))
        };
    }

    struct Bench {
        memory: u64,
        streams: [u64; 2],
    }

    impl Bench {
        /// Sixteen bytes and two streams.
        fn new() -> Bench {
            let (mut context, mut memory, mut streams) = (0, 0, [0; 2]);
            ok!(cuDevicePrimaryCtxRetain(&raw mut context, 0));
            ok!(cuCtxPushCurrent_v2(context));
            ok!(cuMemAlloc_v2(&raw mut memory, 16));
            streams.iter_mut().for_each(|stream| ok!(cuStreamCreate(stream, 1)));
            ok!(cuMemsetD8Async(memory, 0, 16, streams[0]));
            ok!(cuStreamSynchronize(streams[0]));
            Bench { memory, streams }
        }

        fn bytes(&self) -> Vec<u8> {
            let mut bytes = vec![0u8; 16];
            ok!(cuMemcpyDtoHAsync_v2(bytes.as_mut_ptr() as u64, self.memory, 16, self.streams[0]));
            bytes
        }

        fn capture(&self, values: [u8; 2]) -> u64 {
            let [one, two] = self.streams;
            let (mut event, mut graph) = (0, 0);
            ok!(cuEventCreate(&raw mut event, 2));
            ok!(cuStreamBeginCapture_v2(one, 1));
            ok!(cuMemsetD8Async(self.memory, values[0], 8, one));
            ok!(cuEventRecord(event, one));
            ok!(cuStreamWaitEvent(two, event, 0));
            ok!(cuMemsetD8Async(self.memory + 4, values[1], 8, two));
            ok!(cuEventRecord(event, two));
            ok!(cuStreamWaitEvent(one, event, 0));
            ok!(cuStreamEndCapture(one, &raw mut graph));
            ok!(cuEventDestroy_v2(event));
            graph
        }

        fn launch(&self, exec: u64) {
            ok!(cuGraphLaunch(exec, self.streams[0]));
            ok!(cuStreamSynchronize(self.streams[0]));
        }
    }

    /// One test: the streams that capture are seen by every call of the process.
    #[test]
    fn work_of_two_streams_becomes_one_graph_that_can_be_launched_and_updated() {
        let bench = Bench::new();
        let graph = bench.capture([1, 2]);
        assert_eq!(bench.bytes(), [0; 16], "nothing ran");
        let mut exec = 0;
        ok!(cuGraphInstantiateWithFlags(&raw mut exec, graph, 0));
        bench.launch(exec);
        assert_eq!(bench.bytes()[..12], [1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2]);

        let other = bench.capture([3, 4]);
        let mut result = [9; 3];
        ok!(cuGraphExecUpdate_v2(exec, other, &raw mut result));
        bench.launch(exec);
        assert_eq!(bench.bytes()[..5], [3, 3, 3, 3, 4]);
        let (mut parent, mut child, mut empty) = (0, 0, 0);
        ok!(cuGraphCreate(&raw mut parent, 0));
        ok!(cuGraphAddEmptyNode(&raw mut empty, parent, null(), 0));
        ok!(cuGraphAddChildGraphNode(&raw mut child, parent, &raw const empty, 1, graph));
        // SAFETY: as above.
        let status = unsafe { cuGraphExecUpdate_v2(exec, parent, &raw mut result) };
        assert_eq!((status, result), (GRAPH_EXEC_UPDATE_FAILURE, [2, empty, empty]));
        let mut second = 0;
        ok!(cuGraphInstantiateWithFlags(&raw mut second, parent, 0));
        bench.launch(second);
        assert_eq!(bench.bytes()[..5], [1, 1, 1, 1, 2]);

        // What is not allowed in between spoils the capture.
        let [one, two] = bench.streams;
        let (mut status, mut memory, mut spoilt) = (9, 0, 0);
        ok!(cuStreamBeginCapture_v2(one, 0));
        // SAFETY: as above.
        unsafe {
            assert_eq!(cuStreamSynchronize(one), STREAM_CAPTURE_UNSUPPORTED);
            assert_eq!(cuMemAlloc_v2(&raw mut memory, 16), STREAM_CAPTURE_UNSUPPORTED);
            assert_eq!(cuMemsetD8Async(bench.memory, 0, 1, one), STREAM_CAPTURE_INVALIDATED);
            assert_eq!(cuStreamIsCapturing(one, &raw mut status), 0);
            assert_eq!(status, 2);
            assert_eq!(cuStreamEndCapture(one, &raw mut spoilt), STREAM_CAPTURE_INVALIDATED);
            // Work of another stream that was not joined.
            let mut event = 0;
            ok!(cuEventCreate(&raw mut event, 2));
            ok!(cuStreamBeginCapture_v2(one, 1));
            ok!(cuEventRecord(event, one));
            ok!(cuStreamWaitEvent(two, event, 0));
            ok!(cuMemsetD8Async(bench.memory, 9, 16, two));
            assert_eq!(cuStreamEndCapture(one, &raw mut spoilt), STREAM_CAPTURE_INVALIDATED);
            ok!(cuEventDestroy_v2(event));
        }
        ok!(cuStreamIsCapturing(two, &raw mut status));
        assert_eq!(status, 0);
        for exec in [exec, second] {
            ok!(cuGraphExecDestroy(exec));
        }
        for graph in [graph, other, parent] {
            ok!(cuGraphDestroy(graph));
        }
        bench.streams.iter().for_each(|stream| ok!(cuStreamDestroy_v2(*stream)));
        ok!(cuMemFree_v2(bench.memory));
        // SAFETY: as above.
        assert_ne!(unsafe { cuMemFree_v2(bench.memory) }, 0, "freed twice");
        assert_eq!(crate::world::world().left(), "1 uses of the context");
    }
}
