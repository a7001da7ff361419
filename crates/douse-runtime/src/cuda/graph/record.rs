//! One segment's graph: built from commands, given other arguments later.

use std::sync::Arc;

use douse_core::{Code, Error, Result};
use douse_cuda::{Argument, Chain, Condition, Exec, Function, Graph, Grid, Node, Overlap, Place, Stream, Transfer};

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
    /// Of each command.
    nodes: Vec<Made>,
    pub stamp: Stamp,
    /// Bytes of the device's memory that making the instance took.
    pub bytes: usize,
}

/// The nodes of a command.
#[derive(Debug)]
enum Made {
    Node(Node),
    If {
        decided: Decided,
        then: Vec<Made>,
        otherwise: Vec<Made>,
    },
    While {
        test: Vec<Made>,
        decided: Decided,
        body: Vec<Made>,
        /// The test in the loop, behind its body.
        again: Vec<Made>,
        decided_again: Decided,
    },
}

/// The node that sets a condition.
#[derive(Clone, Copy, Debug)]
struct Decided {
    node: Node,
    condition: Condition,
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
        let mut builder = Builder { graph, room: walk.room, conditions, overlap: walk.prepared.actions.overlap };
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
    pub fn patch(
        &mut self,
        commands: &[Command],
        stamp: &Stamp,
        room: &Memory,
        conditions: Conditions<'_>,
    ) -> Result<Option<u64>> {
        if !alike(&self.commands, commands) {
            return Ok(None);
        }
        if let Some(exec) = &mut self.exec {
            let mut patcher = Patcher { exec, room, conditions, inside: false, changed: 0 };
            match patcher.all(&self.commands, commands, &self.nodes) {
                Ok(()) => {}
                // A driver need not change what is inside a branch or loop.
                Err(error) if patcher.inside && matches!(error.code, Code::Internal | Code::NotSupported) => {
                    return Ok(None);
                }
                Err(error) => return Err(error),
            }
            let changed = patcher.changed;
            self.commands = commands.to_vec();
            self.stamp = stamp.clone();
            return Ok(Some(changed));
        }
        self.stamp = stamp.clone();
        Ok(Some(0))
    }

    pub fn launch(&self, stream: &Stream) -> Result<()> {
        self.exec.as_ref().map_or(Ok(()), |exec| exec.launch(stream))
    }
}

/// Whether a graph of one can become one of the other: nodes that follow each other stay what they are, in branches and loops, too.
fn alike(old: &[Command], new: &[Command]) -> bool {
    old.len() == new.len()
        && old.iter().zip(new).all(|(old, new)| match (old, new) {
            (Command::If { then: a, otherwise: b, .. }, Command::If { then: c, otherwise: d, .. })
            | (Command::While { test: a, body: b, .. }, Command::While { test: c, body: d, .. }) => {
                alike(a, c) && alike(b, d)
            }
            (Command::Product(old), Command::Product(new)) => Arc::ptr_eq(&old.product, &new.product),
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

impl Conditions<'_> {
    /// The launch that sets a condition to a predicate, a bool.
    fn launch(&self, predicate: Place, condition: Condition) -> Result<(&Function, Grid, [Argument; 3])> {
        let missing = || Error::internal("a branch without a function that decides it");
        let grid = Grid { blocks: [1; 3], threads: [1; 3], shared: 0 };
        let arguments = [Argument::Place(predicate), condition.argument(), Argument::Place(self.flag)];
        Ok((self.set.ok_or_else(missing)?, grid, arguments))
    }
}

/// A graph whose nodes are being changed.
struct Patcher<'a> {
    exec: &'a mut Exec,
    room: &'a Memory,
    conditions: Conditions<'a>,
    /// The node that is being changed is one in a branch or loop.
    inside: bool,
    changed: u64,
}

impl Patcher<'_> {
    fn all(&mut self, old: &[Command], new: &[Command], made: &[Made]) -> Result<()> {
        old.iter().zip(new).zip(made).filter(|((old, new), _)| old != new).try_for_each(|((old, new), made)| {
            let parts = (old, new, made);
            match parts {
                (
                    Command::If { predicate: before, then: a, otherwise: b },
                    Command::If { predicate, then: c, otherwise: d },
                    Made::If { decided, then, otherwise },
                ) => {
                    self.decide(*before, *predicate, *decided)?;
                    self.within(a, c, then)?;
                    self.within(b, d, otherwise)
                }
                (
                    Command::While { test: a, predicate: before, body: b },
                    Command::While { test: c, predicate, body: d },
                    Made::While { test, decided, body, again, decided_again },
                ) => {
                    self.all(a, c, test)?;
                    self.decide(*before, *predicate, *decided)?;
                    self.within(b, d, body)?;
                    self.within(a, c, again)?;
                    let outside = std::mem::replace(&mut self.inside, true);
                    self.decide(*before, *predicate, *decided_again)?;
                    self.inside = outside;
                    Ok(())
                }
                (_, new, Made::Node(node)) => self.one(new, *node),
                _ => Err(Error::internal("a command that is not what was recorded")),
            }
        })
    }

    /// Inside a branch or loop. `inside` stays where this fails.
    fn within(&mut self, old: &[Command], new: &[Command], made: &[Made]) -> Result<()> {
        let outside = std::mem::replace(&mut self.inside, true);
        self.all(old, new, made)?;
        self.inside = outside;
        Ok(())
    }

    fn one(&mut self, command: &Command, node: Node) -> Result<()> {
        let pinned = &self.room.pinned;
        self.changed += 1;
        let transfer = match command {
            Command::Launch { function, grid, arguments } => {
                return self.exec.set_launch(node, function, grid, arguments);
            }
            Command::Product(call) => {
                let stream = self.exec.device().stream()?;
                let child = stream.device().capture(&stream, |stream| call.run(stream))?;
                return self.exec.set_child(node, &child);
            }
            Command::Copy { from, to } => Transfer::Within { from: *from, to: *to },
            Command::Upload { to, start, .. } => Transfer::Upload { from: pinned, start: *start, to: *to },
            Command::Download { from, start, .. } => Transfer::Download { from: *from, to: pinned, start: *start },
            Command::If { .. } | Command::While { .. } => return Err(Error::internal("a branch that is one node")),
        };
        self.exec.set_transfer(node, transfer)
    }

    fn decide(&mut self, before: Place, predicate: Place, decided: Decided) -> Result<()> {
        if before == predicate {
            return Ok(());
        }
        self.changed += 1;
        let (function, grid, arguments) = self.conditions.launch(predicate, decided.condition)?;
        self.exec.set_launch(decided.node, function, &grid, &arguments)
    }
}

/// A graph being built.
struct Builder<'a> {
    graph: Graph,
    room: &'a Memory,
    conditions: Conditions<'a>,
    /// How launches overlap here.
    overlap: Overlap,
}

impl Builder<'_> {
    fn all(&mut self, chain: &mut Chain, commands: &[Command]) -> Result<Vec<Made>> {
        commands.iter().map(|command| self.one(chain, command)).collect()
    }

    /// In a branch or loop launches do not overlap.
    fn inside<T>(&mut self, build: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let overlap = std::mem::replace(&mut self.overlap, Overlap::None);
        let built = build(self);
        self.overlap = overlap;
        built
    }

    fn one(&mut self, chain: &mut Chain, command: &Command) -> Result<Made> {
        let pinned = &self.room.pinned;
        let transfer = match command {
            Command::Launch { function, grid, arguments } => {
                return Ok(Made::Node(self.graph.launch(chain, function, grid, arguments, self.overlap)?));
            }
            Command::Product(call) => {
                let stream = self.graph.device().stream()?;
                let child = stream.device().capture(&stream, |stream| call.run(stream))?;
                return Ok(Made::Node(self.graph.child(chain, &child)?));
            }
            Command::Copy { from, to } => Transfer::Within { from: *from, to: *to },
            Command::Upload { to, start, .. } => Transfer::Upload { from: pinned, start: *start, to: *to },
            Command::Download { from, start, .. } => Transfer::Download { from: *from, to: pinned, start: *start },
            Command::If { predicate, then, otherwise } => {
                let condition = self.graph.condition(chain)?;
                let decided = self.decide(chain, condition, *predicate)?;
                let [mut taken, mut other] = self.graph.branch(chain, condition)?;
                return self.inside(|inside| {
                    let (then, otherwise) = (inside.all(&mut taken, then)?, inside.all(&mut other, otherwise)?);
                    Ok(Made::If { decided, then, otherwise })
                });
            }
            Command::While { test, predicate, body } => {
                let condition = self.graph.condition(chain)?;
                let first = self.all(chain, test)?;
                let decided = self.decide(chain, condition, *predicate)?;
                let mut chain = self.graph.repeat(chain, condition)?;
                return self.inside(|inside| {
                    let (body, again) = (inside.all(&mut chain, body)?, inside.all(&mut chain, test)?);
                    let decided_again = inside.decide(&mut chain, condition, *predicate)?;
                    Ok(Made::While { test: first, decided, body, again, decided_again })
                });
            }
        };
        Ok(Made::Node(self.graph.transfer(chain, transfer)?))
    }

    /// Sets a condition to a predicate.
    fn decide(&mut self, chain: &mut Chain, condition: Condition, predicate: Place) -> Result<Decided> {
        let (function, grid, arguments) = self.conditions.launch(predicate, condition)?;
        let node = self.graph.launch(chain, function, &grid, &arguments, self.overlap)?;
        Ok(Decided { node, condition })
    }
}
