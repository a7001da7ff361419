//! One segment's graph: built from commands, given other arguments later.

use douse_core::{Error, Result};
use douse_cuda::{Argument, Chain, Condition, Exec, Function, Graph, Grid, Node, Place, Stream, Transfer};

use super::Stamp;
use crate::cuda::command::Command;
use crate::cuda::room::Memory;
use crate::cuda::walk::Walk;

/// A graph that can be launched, and what it does.
#[derive(Debug)]
pub(super) struct Recorded {
    /// `None` where there is nothing to do.
    exec: Option<Exec>,
    commands: Vec<Command>,
    /// The node of each command; none for branches and loops.
    nodes: Vec<Option<Node>>,
    pub stamp: Stamp,
    /// Bytes of the device's memory that making the instance took.
    pub bytes: usize,
}

impl Recorded {
    /// Records commands. Nothing runs.
    ///
    /// # Errors
    /// What the driver says; `Internal` for a branch where the method has no function that decides it.
    pub fn new(commands: Vec<Command>, stamp: Stamp, walk: &Walk<'_>, conditions: Conditions<'_>) -> Result<Recorded> {
        let device = walk.prepared.device.device();
        if commands.is_empty() {
            return Ok(Recorded { exec: None, commands, nodes: Vec::new(), stamp, bytes: 0 });
        }
        let free = device.free_memory()?;
        let graph = device.graph()?;
        let mut chain = graph.chain();
        let mut builder = Builder { graph, room: walk.room, conditions, overlaps: walk.prepared.actions.overlaps };
        let nodes = builder.all(&mut chain, &commands)?;
        let exec = builder.graph.instantiate()?;
        exec.upload(walk.stream)?;
        let bytes = free.saturating_sub(device.free_memory()?);
        Ok(Recorded { exec: Some(exec), commands, nodes, stamp, bytes })
    }

    /// Gives the nodes what differs in these commands, and says how many did; `None` where the graph has to be made anew.
    ///
    /// # Errors
    /// What the driver says. The graph may be half changed then, and must not be launched.
    pub fn patch(&mut self, commands: &[Command], stamp: &Stamp, room: &Memory) -> Result<Option<u64>> {
        if !alike(&self.commands, commands) {
            return Ok(None);
        }
        let mut changed = 0;
        for ((old, new), node) in self.commands.iter_mut().zip(commands).zip(&self.nodes) {
            if old == new {
                continue;
            }
            let (Some(exec), Some(node)) = (&mut self.exec, node) else { return Ok(None) };
            match new {
                Command::Launch { function, grid, arguments } => exec.set_launch(*node, function, grid, arguments)?,
                Command::Copy { from, to } => exec.set_transfer(*node, Transfer::Within { from: *from, to: *to })?,
                Command::Upload { to, start, .. } => {
                    exec.set_transfer(*node, Transfer::Upload { from: &room.pinned, start: *start, to: *to })?;
                }
                Command::Download { from, start, .. } => {
                    let transfer = Transfer::Download { from: *from, to: &room.pinned, start: *start };
                    exec.set_transfer(*node, transfer)?;
                }
                Command::If { .. } | Command::While { .. } => return Ok(None),
            }
            old.clone_from(new);
            changed += 1;
        }
        self.stamp = stamp.clone();
        Ok(Some(changed))
    }

    pub fn launch(&self, stream: &Stream) -> Result<()> {
        self.exec.as_ref().map_or(Ok(()), |exec| exec.launch(stream))
    }
}

/// Whether a graph of one can become one of the other: nodes that follow each other stay what they are. Branches and loops must be equal.
fn alike(old: &[Command], new: &[Command]) -> bool {
    old.len() == new.len()
        && old.iter().zip(new).all(|(old, new)| match (old, new) {
            (Command::If { .. } | Command::While { .. }, _) => old == new,
            _ => std::mem::discriminant(old) == std::mem::discriminant(new),
        })
}

/// What decides branches and loops.
#[derive(Clone, Copy)]
pub(super) struct Conditions<'a> {
    /// The method's function that sets a condition, where it has one.
    pub set: Option<&'a Function>,
    /// The call's error flag.
    pub flag: Place,
}

/// A graph being built.
struct Builder<'a> {
    graph: Graph,
    room: &'a Memory,
    conditions: Conditions<'a>,
    /// Launches may overlap here.
    overlaps: bool,
}

impl Builder<'_> {
    fn all(&mut self, chain: &mut Chain, commands: &[Command]) -> Result<Vec<Option<Node>>> {
        commands.iter().map(|command| self.one(chain, command)).collect()
    }

    /// In a branch or loop launches do not overlap.
    fn inside(&mut self, chain: &mut Chain, commands: &[Command]) -> Result<Vec<Option<Node>>> {
        let overlaps = std::mem::replace(&mut self.overlaps, false);
        let nodes = self.all(chain, commands);
        self.overlaps = overlaps;
        nodes
    }

    fn one(&mut self, chain: &mut Chain, command: &Command) -> Result<Option<Node>> {
        let pinned = &self.room.pinned;
        let node = match command {
            Command::Launch { function, grid, arguments } => {
                self.graph.launch(chain, function, grid, arguments, self.overlaps)?
            }
            Command::Copy { from, to } => self.graph.transfer(chain, Transfer::Within { from: *from, to: *to })?,
            Command::Upload { to, start, .. } => {
                self.graph.transfer(chain, Transfer::Upload { from: pinned, start: *start, to: *to })?
            }
            Command::Download { from, start, .. } => {
                let transfer = Transfer::Download { from: *from, to: pinned, start: *start };
                self.graph.transfer(chain, transfer)?
            }
            Command::If { predicate, then, otherwise } => {
                let condition = self.graph.condition(chain)?;
                self.decide(chain, condition, *predicate)?;
                let [mut taken, mut other] = self.graph.branch(chain, condition)?;
                self.inside(&mut taken, then)?;
                self.inside(&mut other, otherwise)?;
                return Ok(None);
            }
            Command::While { test, predicate, body } => {
                let condition = self.graph.condition(chain)?;
                self.all(chain, test)?;
                self.decide(chain, condition, *predicate)?;
                let mut inside = self.graph.repeat(chain, condition)?;
                self.inside(&mut inside, body)?;
                self.inside(&mut inside, test)?;
                self.decide(&mut inside, condition, *predicate)?;
                return Ok(None);
            }
        };
        Ok(Some(node))
    }

    /// Sets a condition to a predicate, a bool.
    fn decide(&mut self, chain: &mut Chain, condition: Condition, predicate: Place) -> Result<()> {
        let missing = || Error::internal("a branch without a function that decides it");
        let set = self.conditions.set.ok_or_else(missing)?;
        let grid = Grid { blocks: [1; 3], threads: [1; 3], shared: 0 };
        let flag = Argument::Place(self.conditions.flag);
        self.graph.launch(chain, set, &grid, &[Argument::Place(predicate), condition.argument(), flag], self.overlaps)?;
        Ok(())
    }
}
