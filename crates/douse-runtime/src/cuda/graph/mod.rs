//! Graphs of a method's segments: recorded from the plan, replayed by later calls.
//!
//! A call whose sizes have been recorded replays: each [segment](super::action::Segment) is one launch of its graph. Recording runs nothing: a
//! graph is built from the very [commands](super::command) that the plain path would put on the stream. So whatever fails (recording, making
//! the instance, changing it, launching it) has changed nothing, and the segment runs plainly in the same call; the method then stays without
//! graphs. [`life`] decides when to record, [`record`] builds and changes graphs.
//!
//! A graph holds for one set of input sizes. What else may differ between calls (sizes read from data, integer arguments, the session's
//! state, tensors on the device, memory that has grown) is compared first, in [`Stamp`]; where it differs, the nodes that it changes get their new arguments.

mod life;
mod record;
mod report;
#[cfg(test)]
mod tests;

use douse_core::{Error, Result};
use douse_cuda::{Function, Place};
use douse_program::plan::{InputKind, Plan, SymbolSource};

use super::action::Segment;
use super::walk::Walk;
use crate::symbols::{eval, place};
pub(crate) use life::Life;
pub use life::{CudaGraph, NewShape};
use record::{Conditions, Recorded};
pub use report::CudaGraphReport;

/// A method's graphs.
#[derive(Debug)]
pub(crate) struct Graphs {
    life: Life,
    /// The least recently used first.
    shapes: Vec<Shape>,
    report: CudaGraphReport,
}

/// The graphs of calls with one set of input sizes.
#[derive(Debug)]
struct Shape {
    /// Values of the symbols that are sizes of inputs; `None` for others.
    sizes: Vec<Option<i64>>,
    /// By number.
    segments: Vec<Option<Recorded>>,
}

/// What a graph was made for, besides its input sizes.
#[derive(Clone, Debug, PartialEq)]
struct Stamp {
    frame: u64,
    moves: u64,
    bound: Vec<Place>,
    symbols: Vec<Option<i64>>,
}

impl Stamp {
    fn of(walk: &Walk<'_>) -> Stamp {
        let (frame, moves) = (walk.frame.number, walk.room.moves());
        Stamp { frame, moves, bound: walk.frame.bound.clone(), symbols: walk.symbols.clone() }
    }

    fn is_of(&self, walk: &Walk<'_>) -> bool {
        self.frame == walk.frame.number
            && self.moves == walk.room.moves()
            && self.bound == walk.frame.bound
            && self.symbols == walk.symbols
    }
}

impl Graphs {
    pub fn new(options: &CudaGraph) -> Graphs {
        Graphs { life: Life::new(options), shapes: Vec::new(), report: CudaGraphReport::default() }
    }

    /// Those of another method loaded alike.
    pub fn fresh(&self) -> Graphs {
        Graphs::new(self.life.options())
    }

    pub fn report(&self) -> CudaGraphReport {
        let bytes = self.shapes.iter().flat_map(|shape| &shape.segments).flatten().map(|recorded| recorded.bytes).sum();
        CudaGraphReport { shapes: self.shapes.len(), bytes, off: self.life.reason().cloned(), ..self.report.clone() }
    }

    /// Whether replayed calls are to be run plainly too.
    pub fn compares(&self) -> bool {
        self.life.options().compare
    }

    /// The graphs for a call with these symbols; `None` where it runs plainly. Nothing has run yet.
    ///
    /// # Errors
    /// `InvalidArgument` for sizes that were not recorded, where the method refuses such calls.
    pub fn begin<'a>(
        &'a mut self,
        plan: &Plan,
        symbols: &[Option<i64>],
        segments: usize,
        set_condition: Option<&'a Function>,
    ) -> Result<Option<Shelf<'a>>> {
        if !self.life.records() {
            self.life.warmed();
            self.report.plain_calls += 1;
            return Ok(None);
        }
        let is_size = |source: &SymbolSource| matches!(source, SymbolSource::Size { .. });
        let all = plan.symbols.iter().zip(symbols);
        let sizes = all.map(|(info, value)| value.filter(|_| is_size(&info.source)));
        let found = self.shapes.iter().rposition(|shape| shape.sizes.iter().copied().eq(sizes.clone()));
        let sizes: Vec<Option<i64>> = if found.is_some() { Vec::new() } else { sizes.collect() };
        match (found, self.shapes.last()) {
            (Some(at), _) if at + 1 == self.shapes.len() => {}
            (Some(at), _) => {
                let shape = self.shapes.remove(at);
                self.shapes.push(shape);
            }
            (None, Some(recorded)) if self.life.options().new_shape == NewShape::Refuse => {
                return Err(refusal(plan, &sizes, &recorded.sizes));
            }
            (None, Some(_)) if self.life.options().new_shape == NewShape::Eager => {
                self.report.plain_calls += 1;
                return Ok(None);
            }
            (None, _) => {
                // The oldest goes before a new one is recorded: both may not fit.
                while self.shapes.len() >= self.life.options().cache.max(1) {
                    self.shapes.remove(0);
                }
                self.shapes.push(Shape { sizes, segments: (0..segments).map(|_| None).collect() });
            }
        }
        let Graphs { life, shapes, report } = self;
        Ok(shapes.last_mut().map(|shape| Shelf { life, report, shape, set_condition }))
    }

    /// Forgets what was recorded: it cannot be used any more.
    pub fn forget(&mut self) {
        self.shapes.clear();
    }

    /// Forgets what was recorded where the method has stopped using graphs, and counts what a call read.
    pub fn end(&mut self, host_reads: u64) {
        self.report.host_reads += host_reads;
        if !self.life.records() {
            self.shapes.clear();
        }
    }
}

/// The graphs that a call may replay and record.
pub(super) struct Shelf<'a> {
    life: &'a mut Life,
    report: &'a mut CudaGraphReport,
    shape: &'a mut Shape,
    set_condition: Option<&'a Function>,
}

impl Shelf<'_> {
    /// Puts a segment on the stream as one launch of its graph; `false` where it has to run plainly, nothing of it having begun.
    ///
    /// # Errors
    /// What would fail plainly as well: memory for a value whose size the call has found out, say.
    pub fn run(&mut self, segment: &Segment, walk: &mut Walk<'_>) -> Result<bool> {
        if !self.life.records() {
            return Ok(false);
        }
        let slot = self.shape.segments.get_mut(segment.number);
        let slot = slot.ok_or_else(|| Error::internal(format!("segment {} is not there", segment.number)))?;
        let current = slot.as_ref().is_some_and(|recorded| recorded.stamp.is_of(walk));
        if !current {
            let commands = walk.resolve(segment)?;
            let stamp = Stamp::of(walk);
            let conditions = Conditions { set: self.set_condition, flag: walk.room.flag()? };
            let patched = match slot {
                Some(recorded) => recorded.patch(&commands, &stamp, walk.room, conditions),
                None => Ok(None),
            };
            let ready = patched.and_then(|patched| match patched {
                Some(nodes) => {
                    self.report.patched_nodes += nodes;
                    Ok(())
                }
                None => {
                    // The old graph goes first: both may not fit.
                    *slot = None;
                    *slot = Some(Recorded::new(commands, stamp, walk, conditions)?);
                    self.report.recordings += 1;
                    Ok(())
                }
            });
            if let Err(error) = ready {
                self.life.fail("recording", &error, &walk.prepared.plan.name);
                return Ok(false);
            }
        }
        let launched = slot.as_ref().map_or(Ok(()), |recorded| recorded.launch(walk.stream));
        match launched {
            Ok(()) => {
                self.report.replays += u64::from(current);
                Ok(true)
            }
            Err(error) => {
                self.life.fail("launching", &error, &walk.prepared.plan.name);
                Ok(false)
            }
        }
    }
}

/// Why a call with these sizes is refused where others were recorded.
fn refusal(plan: &Plan, sizes: &[Option<i64>], recorded: &[Option<i64>]) -> Error {
    for (number, input) in plan.inputs.iter().enumerate() {
        let InputKind::Tensor { sizes: dims, .. } = &input.kind else { continue };
        for (dim, size) in dims.iter().enumerate() {
            if let (Some(found), Some(captured)) = (eval(size, sizes), eval(size, recorded))
                && found != captured
            {
                let name = place(plan, number);
                return Error::invalid_argument(format!(
                    "{name} has size {found} in dim {dim}, captured with {captured}"
                ));
            }
        }
    }
    Error::invalid_argument("the sizes of the inputs are not those that were captured")
}
