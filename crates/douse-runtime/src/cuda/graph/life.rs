//! When a method records and replays: warm-up, then graphs, until something fails.

use douse_core::Error;

/// How a method uses CUDA graphs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CudaGraph {
    /// Calls that run plainly before the first recording.
    pub warm_up: u32,
    /// What a call does whose input sizes were not recorded.
    pub new_shape: NewShape,
    /// How many sets of input sizes have graphs at a time; the least recently used ones go. At least 1.
    pub cache: usize,
    /// Runs each replayed call plainly as well, and fails where the results differ: for finding out whether a graph is to blame. Slow.
    pub compare: bool,
}

impl Default for CudaGraph {
    fn default() -> CudaGraph {
        CudaGraph { warm_up: 3, new_shape: NewShape::Record, cache: 8, compare: false }
    }
}

/// What a call does whose input sizes were not recorded, once others were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NewShape {
    /// It is refused, with the input and the dimension.
    Refuse,
    /// It runs plainly.
    Eager,
    /// It is recorded.
    #[default]
    Record,
}

/// Where a method is in its life with graphs.
#[derive(Clone, Debug)]
pub(crate) struct Life {
    options: CudaGraph,
    stage: Stage,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Stage {
    /// So many more plain calls.
    WarmingUp(u32),
    On,
    /// For good, and why.
    Off(String),
}

impl Life {
    pub fn new(options: &CudaGraph) -> Life {
        let stage = if options.warm_up == 0 { Stage::On } else { Stage::WarmingUp(options.warm_up) };
        Life { options: options.clone(), stage }
    }

    pub fn options(&self) -> &CudaGraph {
        &self.options
    }

    /// Whether calls record and replay now.
    pub fn records(&self) -> bool {
        self.stage == Stage::On
    }

    /// Counts a plain call.
    pub fn warmed(&mut self) {
        if let Stage::WarmingUp(left) = &mut self.stage {
            *left -= 1;
            if *left == 0 {
                self.stage = Stage::On;
            }
        }
    }

    /// No more graphs: something failed. Said once.
    pub fn fail(&mut self, doing: &str, error: &Error, method: &str) {
        if self.records() {
            tracing::info!(method, "no more CUDA graphs: {doing} one failed: {error}");
            self.stage = Stage::Off(format!("{doing} a graph failed: {error}"));
        }
    }

    /// Why there are no graphs any more.
    pub fn reason(&self) -> Option<&String> {
        match &self.stage {
            Stage::Off(reason) => Some(reason),
            Stage::WarmingUp(_) | Stage::On => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_warm_up_then_record_until_something_fails() {
        let mut life = Life::new(&CudaGraph { warm_up: 2, ..CudaGraph::default() });
        assert!(!life.records());
        life.warmed();
        assert!(!life.records());
        life.warmed();
        assert!(life.records());
        life.warmed();
        assert!(life.records() && life.reason().is_none());
        life.fail("recording", &Error::internal("no room"), "forward");
        life.fail("launching", &Error::internal("too late"), "forward");
        life.warmed();
        assert!(!life.records() && life.reason().unwrap().starts_with("recording a graph failed"));
        assert!(life.reason().unwrap().contains("no room"));
    }

    #[test]
    fn without_warm_up_the_first_call_records() {
        assert!(Life::new(&CudaGraph { warm_up: 0, ..CudaGraph::default() }).records());
    }
}
