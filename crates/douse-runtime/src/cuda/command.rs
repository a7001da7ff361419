//! Work for the device with everything known: which function, which places.

use douse_cuda::{Argument, Function, Grid, Place};

use super::product::ProductCall;

/// One piece of work.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Command {
    Launch {
        function: Function,
        grid: Grid,
        arguments: Vec<Argument>,
    },
    /// cuBLASLt's.
    Product(ProductCall),
    /// Both of one length.
    Copy {
        from: Place,
        to: Place,
    },
    /// From pinned memory, of which this is the `pinning`-th.
    Upload {
        to: Place,
        start: usize,
        pinning: u64,
    },
    /// To pinned memory.
    Download {
        from: Place,
        start: usize,
        pinning: u64,
    },
    If {
        predicate: Place,
        then: Vec<Command>,
        otherwise: Vec<Command>,
    },
    While {
        test: Vec<Command>,
        predicate: Place,
        body: Vec<Command>,
    },
}
