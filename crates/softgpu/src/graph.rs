//! Graphs: nodes in the order in which they were added, which is one that their dependencies allow.

use std::ops::Range;
use std::sync::Arc;

use crate::status::{INVALID_VALUE, NOT_SUPPORTED, Outcome, fail};
use crate::stream::{self, Work};
use crate::world::{World, world};

/// A graph that is being built.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    pub nodes: Vec<Node>,
    /// Conditions, with the value they have at every launch; `None`: the one they have from the launch before.
    pub conditions: Vec<(u64, Option<u32>)>,
    /// The body of a conditional node, which its graph destroys.
    pub is_body: bool,
}

#[derive(Clone, Debug)]
pub struct Node {
    pub handle: u64,
    /// Nodes that it waits for; all stand before it.
    pub after: Vec<u64>,
    pub kind: Kind,
}

#[derive(Clone, Debug)]
pub enum Kind {
    Empty,
    Work(Work),
    Child(Nodes),
    Conditional { condition: u64, choice: Choice, bodies: Vec<Body> },
}

/// How a condition chooses among bodies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    If,
    While,
    Switch,
}

/// A body: the graph that is being built, and its nodes once it is instantiated.
#[derive(Clone, Debug)]
pub struct Body {
    pub graph: u64,
    nodes: Nodes,
}

impl Body {
    pub fn of(graph: u64) -> Body {
        Body { graph, nodes: Arc::default() }
    }
}

type Nodes = Arc<Vec<Node>>;

/// An instance.
#[derive(Clone, Debug)]
pub struct Exec {
    nodes: Nodes,
    conditions: Vec<(u64, Option<u32>)>,
}

/// A launch of an instance, as it was then.
pub type Launched = Exec;

impl World {
    /// Adds a node.
    ///
    /// # Errors
    /// `INVALID_VALUE` where it waits for what is no node of the graph.
    pub fn add_node(&mut self, graph: u64, after: &[u64], kind: Kind) -> Outcome<u64> {
        let handle = self.handle();
        let graph = self.graphs.get_mut(graph)?;
        if let Some(other) = after.iter().find(|other| !graph.nodes.iter().any(|node| node.handle == **other)) {
            return fail(INVALID_VALUE, format!("a dependency on {other:#x}, which is no node of the graph"));
        }
        graph.nodes.push(Node { handle, after: after.to_vec(), kind });
        Ok(handle)
    }

    /// Makes a node wait for another, which must stand before it. (A programmatic edge, of two kernels, is kept like any other.)
    ///
    /// # Errors
    /// `INVALID_VALUE` for what is no node of the graph, for the wrong order, and for a programmatic edge of what is no kernel.
    pub fn add_edge(&mut self, graph: u64, from: u64, to: u64, programmatic: bool) -> Outcome {
        let graph = self.graphs.get_mut(graph)?;
        let place = |handle: u64| graph.nodes.iter().position(|node| node.handle == handle);
        let (Some(a), Some(b)) = (place(from), place(to)) else {
            return fail(
                INVALID_VALUE,
                format!("an edge from {from:#x} to {to:#x}, one of which is no node of the graph"),
            );
        };
        let kernels = [a, b].iter().all(|at| matches!(graph.nodes[*at].kind, Kind::Work(Work::Launch(_))));
        if a >= b || programmatic && !kernels {
            return fail(INVALID_VALUE, format!("an edge from {from:#x} to {to:#x}"));
        }
        graph.nodes[b].after.push(from);
        Ok(())
    }

    /// The nodes of a graph with everything inside.
    fn flatten(&self, graph: &Graph, conditions: &mut Vec<(u64, Option<u32>)>) -> Outcome<Nodes> {
        conditions.extend(&graph.conditions);
        let mut nodes = graph.nodes.clone();
        for node in &mut nodes {
            if let Kind::Conditional { bodies, .. } = &mut node.kind {
                for body in bodies {
                    body.nodes = self.flatten(self.graphs.get(body.graph)?, conditions)?;
                }
            }
        }
        Ok(Arc::new(nodes))
    }

    /// Whether any graph has the condition.
    pub fn is_condition(&self, condition: u64) -> bool {
        self.graphs.values().any(|graph| graph.conditions.iter().any(|(other, _)| *other == condition))
    }

    /// An instance of a graph.
    ///
    /// # Errors
    /// `INVALID_VALUE` for parameters that are no memory of the device.
    pub fn instantiate(&self, graph: u64) -> Outcome<Exec> {
        let mut conditions = Vec::new();
        let nodes = self.flatten(self.graphs.get(graph)?, &mut conditions)?;
        Ok(Exec { nodes, conditions })
    }

    /// A node for a child graph.
    ///
    /// # Errors
    /// `NOT_SUPPORTED` for one with conditions.
    pub fn child(&self, graph: u64) -> Outcome<Kind> {
        let mut conditions = Vec::new();
        let nodes = self.flatten(self.graphs.get(graph)?, &mut conditions)?;
        match conditions.is_empty() {
            true => Ok(Kind::Child(nodes)),
            false => fail(NOT_SUPPORTED, "a child graph with conditions"),
        }
    }

    /// Destroys a graph with its bodies and conditions.
    ///
    /// # Errors
    /// `INVALID_VALUE` for the body of a conditional node.
    pub fn destroy_graph(&mut self, handle: u64) -> Outcome {
        if self.graphs.get(handle)?.is_body {
            return fail(INVALID_VALUE, "the body of a conditional node is destroyed with its graph");
        }
        self.remove_graph(handle)
    }

    fn remove_graph(&mut self, handle: u64) -> Outcome {
        let graph = self.graphs.remove(handle)?;
        for node in &graph.nodes {
            if let Kind::Conditional { bodies, .. } = &node.kind {
                bodies.iter().try_for_each(|body| self.remove_graph(body.graph))?;
            }
        }
        Ok(())
    }
}

impl Node {
    fn inside(&self) -> Vec<&Nodes> {
        match &self.kind {
            Kind::Child(nodes) => vec![nodes],
            Kind::Conditional { bodies, .. } => bodies.iter().map(|body| &body.nodes).collect(),
            Kind::Empty | Kind::Work(_) => Vec::new(),
        }
    }

    fn uses(&self, range: &Range<u64>) -> bool {
        let inside = || self.inside().into_iter().flat_map(|nodes| nodes.iter()).any(|node| node.uses(range));
        matches!(&self.kind, Kind::Work(work) if work.uses(range)) || inside()
    }
}

impl Exec {
    /// Whether a node copies from or to these bytes of the host.
    pub fn uses(&self, range: &Range<u64>) -> bool {
        self.nodes.iter().any(|node| node.uses(range))
    }

    /// Changes a node of the instance, wherever it is.
    ///
    /// # Errors
    /// `INVALID_VALUE` where there is no such node; what `change` says.
    pub fn change(&mut self, handle: u64, change: impl FnOnce(&mut Node) -> Outcome) -> Outcome {
        match find(&mut self.nodes, handle) {
            Some(node) => change(node),
            None => fail(INVALID_VALUE, format!("{handle:#x} is no node of the graph that was instantiated")),
        }
    }

    /// Takes the parameters of another instance of the same nodes.
    ///
    /// # Errors
    /// The node that differs in kind or dependencies.
    pub fn update(&mut self, other: Exec) -> Result<(), Option<u64>> {
        fn place(nodes: &[Node], handle: u64) -> Option<usize> {
            nodes.iter().position(|node| node.handle == handle)
        }
        fn same(a: &Kind, b: &Kind) -> bool {
            match (a, b) {
                (Kind::Work(a), Kind::Work(b)) => std::mem::discriminant(a) == std::mem::discriminant(b),
                _ => std::mem::discriminant(a) == std::mem::discriminant(b),
            }
        }
        if self.nodes.len() != other.nodes.len() {
            return Err(None);
        }
        let mut updated = Vec::new();
        for (mine, new) in self.nodes.iter().zip(other.nodes.iter()) {
            let before = |nodes: &[Node], after: &[u64]| after.iter().map(|h| place(nodes, *h)).collect::<Vec<_>>();
            if !same(&mine.kind, &new.kind) || before(&self.nodes, &mine.after) != before(&other.nodes, &new.after) {
                return Err(Some(new.handle));
            }
            updated.push(Node { kind: new.kind.clone(), ..mine.clone() });
        }
        self.nodes = Arc::new(updated);
        Ok(())
    }
}

/// A node, in a copy of its own of the list where another launch holds it.
fn find(nodes: &mut Nodes, handle: u64) -> Option<&mut Node> {
    fn holds(nodes: &[Node], handle: u64) -> bool {
        nodes.iter().any(|node| node.handle == handle || node.inside().iter().any(|nodes| holds(nodes, handle)))
    }
    if !holds(nodes, handle) {
        return None;
    }
    for node in Arc::make_mut(nodes) {
        if node.handle == handle {
            return Some(node);
        }
        match &mut node.kind {
            Kind::Child(nodes) if holds(nodes, handle) => return find(nodes, handle),
            Kind::Conditional { bodies, .. } => {
                if let Some(body) = bodies.iter_mut().find(|body| holds(&body.nodes, handle)) {
                    return find(&mut body.nodes, handle);
                }
            }
            _ => {}
        }
    }
    None
}

/// Runs a launch.
///
/// # Errors
/// What went wrong in a node.
pub fn perform(launched: &Launched) -> Outcome {
    for (condition, first) in &launched.conditions {
        let mut world = world();
        let kept = world.conditions.entry(*condition).or_insert(0);
        *kept = first.unwrap_or(*kept);
    }
    run(&launched.nodes)
}

fn run(nodes: &[Node]) -> Outcome {
    nodes.iter().try_for_each(|node| match &node.kind {
        Kind::Empty => Ok(()),
        Kind::Work(work) => stream::perform(work),
        Kind::Child(nodes) => run(nodes),
        Kind::Conditional { condition, choice, bodies } => {
            let value = || world().conditions.get(condition).copied().unwrap_or(0);
            let body = |number: usize| bodies.get(number).map_or(Ok(()), |body| run(&body.nodes));
            match choice {
                Choice::If => body(usize::from(value() == 0)),
                Choice::Switch => body(value() as usize),
                Choice::While => {
                    while value() != 0 {
                        body(0)?;
                    }
                    Ok(())
                }
            }
        }
    })
}
