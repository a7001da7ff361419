//! Which values are stored, and which are computed where they are read.
//!
//! A value is inlined if all that needs it is one root, or if it is cheap enough to be computed again for each. Readers come later in the
//! order than what they read, so the nodes are walked backwards, and each value knows the roots that need it by then.

use std::collections::HashMap;

use douse_core::pointwise::{Binary, Unary};
use douse_core::sym::{Expr, Ranges};
use douse_ir::{Block, Graph, Module, Node, NodeId, Op, Value};

use super::layout::{Layouts, affine_move};
use super::points::Points;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Computed where it is read.
    Inline,
    /// In memory, put there by a kernel or library step.
    Stored,
    /// In memory before the call: inputs, state, constants, parameters of blocks.
    Leaf,
}

#[derive(Debug)]
pub struct Fates {
    fates: Vec<Fate>,
    points: Points,
}

impl Fates {
    pub fn of(&self, value: Value) -> Fate {
        self.fates[value.0 as usize]
    }

    /// The result of the product at whose points a value is computed, if it is.
    pub fn product(&self, value: Value) -> Option<Value> {
        self.points.of(value)
    }
}

/// Costs in additions of float32. A value is cheap when computing it again costs no more than storing and loading it.
const CHEAP: u32 = 4;
/// From this cost on a value is not computed again for each place it is repeated to.
const EXPENSIVE: u32 = 6;
/// One kernel's body is kept below this.
const BODY: u32 = 160;

/// The roots that need a value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Homes {
    None,
    One(u32),
    Many,
}

impl Homes {
    fn and(self, other: Homes) -> Homes {
        match (self, other) {
            (Homes::None, h) | (h, Homes::None) => h,
            (Homes::One(a), Homes::One(b)) if a == b => self,
            _ => Homes::Many,
        }
    }
}

struct Walk<'a> {
    module: &'a Module,
    layouts: &'a Layouts,
    definitions: &'a [Option<NodeId>],
    ranges: &'a Ranges,
    fates: Vec<Fate>,
    homes: Vec<Homes>,
    /// Must be stored.
    needed: Vec<bool>,
    /// Read more often than it has elements.
    repeated: Vec<bool>,
    cost: Vec<u32>,
    /// Cost of what is inlined into each root.
    bodies: HashMap<u32, u32>,
    next_home: u32,
    fuse: bool,
    points: Points,
}

/// Decides for every value. With `fuse` off, only what costs nothing is inlined.
pub fn decide(
    module: &Module,
    definitions: &[Option<NodeId>],
    layouts: &Layouts,
    ranges: &Ranges,
    fuse: bool,
) -> Fates {
    let n = module.graph.values.len();
    let mut walk = Walk {
        module,
        layouts,
        definitions,
        ranges,
        fates: vec![Fate::Stored; n],
        homes: vec![Homes::None; n],
        needed: vec![false; n],
        repeated: vec![false; n],
        cost: costs(module, ranges),
        bodies: HashMap::new(),
        next_home: n as u32,
        fuse,
        points: match fuse {
            true => Points::find(&module.graph, definitions, ranges, module.roots()),
            false => Points::none(&module.graph),
        },
    };
    for root in module.roots() {
        walk.needed[root.0 as usize] = true;
    }
    walk.block(&module.body);
    Fates { fates: walk.fates, points: walk.points }
}

/// Whether a node's result is the operand in a wider type: it is never worth the memory.
pub(super) fn widens(graph: &Graph, node: &Node) -> bool {
    let size = |v: Option<&Value>| v.map_or(0, |v| graph.dtype(*v).size());
    matches!(node.op, Op::Cast) && size(node.operands.first()) < size(node.results.first())
}

/// What one element costs, computed from loaded ones.
fn weight(op: &Op) -> u32 {
    match op {
        Op::Full(_) | Op::Iota(_) | Op::Bitcast => 0,
        Op::Move { map, guard, .. } => {
            u32::from(guard.as_bool().is_none()) + u32::from(map.iter().any(|e| e.terms().len() > 2))
        }
        Op::Cast | Op::Select | Op::Check { .. } => 1,
        Op::Random { .. } => 12,
        Op::Unary(op) => match op {
            Unary::Neg | Unary::Abs | Unary::Not | Unary::BitwiseNot | Unary::IsNan | Unary::IsInf | Unary::Signbit => {
                1
            }
            Unary::Floor | Unary::Ceil | Unary::Round | Unary::Trunc | Unary::Sign => 1,
            Unary::Sqrt | Unary::Rsqrt | Unary::Reciprocal => 3,
            _ => 8,
        },
        Op::Binary(op) => match op {
            Binary::Add | Binary::Sub | Binary::Mul | Binary::Minimum | Binary::Maximum => 1,
            Binary::And | Binary::Or | Binary::Xor | Binary::Eq | Binary::Ne => 1,
            Binary::Lt | Binary::Le | Binary::Gt | Binary::Ge => 1,
            Binary::Div => 2,
            _ => 8,
        },
        _ => 0,
    }
}

/// The cost of each value, if what is used once or is cheap is inlined into it, and the rest loaded. What is repeated, as a mean along its row,
/// does not change from element to element: it costs what a load does.
fn costs(module: &Module, ranges: &Ranges) -> Vec<u32> {
    let graph = &module.graph;
    let mut uses = vec![0u32; graph.values.len()];
    for node in &graph.nodes {
        node.operands.iter().for_each(|o| uses[o.0 as usize] += 1);
    }
    let mut cost = vec![1u32; graph.values.len()];
    // Nodes are numbered in the order they were built, so operands come first.
    for node in &graph.nodes {
        if !node.op.is_elementwise() {
            continue;
        }
        let mut total = weight(&node.op);
        for operand in &node.operands {
            let own = cost[operand.0 as usize];
            let inlined = uses[operand.0 as usize] == 1 || own <= CHEAP;
            let along = node.operands.len() == 1 && repeats(graph, ranges, node, *operand);
            total += if inlined && !along { own } else { 1 };
        }
        for result in &node.results {
            cost[result.0 as usize] = total.min(10_000);
        }
    }
    cost
}

/// Whether a node reads an operand more often than it has elements.
fn repeats(graph: &Graph, ranges: &Ranges, node: &Node, operand: Value) -> bool {
    let Op::Move { .. } = &node.op else { return false };
    if node.operands.len() > 1 && operand == node.operands[0] {
        return true;
    }
    let numel = |v: Value| Expr::product(graph.shape(v));
    let (own, theirs) = (numel(node.results[0]), numel(operand));
    match ((&own - &theirs).as_int(), own.as_int(), theirs.as_int()) {
        (Some(d), ..) => d > 0,
        // A symbolic size more than in the operand is a repetition; one less is not.
        _ => !ranges.non_negative(&(&theirs - &own)),
    }
}

impl Walk<'_> {
    fn unique(&mut self) -> Homes {
        self.next_home += 1;
        Homes::One(self.next_home)
    }

    fn block(&mut self, block: &Block) {
        for param in &block.params {
            self.fates[param.0 as usize] = Fate::Leaf;
        }
        for id in block.nodes.iter().rev() {
            let node = self.module.graph.node(*id);
            self.node(node);
        }
    }

    fn node(&mut self, node: &Node) {
        match &node.op {
            Op::Input(_) | Op::State(_) | Op::Constant(_) => self.set(node, Fate::Leaf),
            op if op.is_elementwise() => self.elementwise(node),
            Op::Reduce { .. } | Op::ArgReduce { .. } | Op::Scan { .. } | Op::ArgScan { .. } | Op::Scatter { .. } => {
                let home = Homes::One(node.results[0].0);
                node.operands.iter().for_each(|o| self.add(*o, home, false));
            }
            Op::Concat { .. } | Op::Assert { .. } => {
                for operand in &node.operands {
                    let home = self.unique();
                    self.add(*operand, home, false);
                }
            }
            Op::Item { .. } => self.needed[node.operands[0].0 as usize] = true,
            Op::Require { .. } => {}
            Op::If { then, otherwise } | Op::IfCond { then, otherwise, .. } => {
                node.operands.iter().for_each(|o| self.needed[o.0 as usize] = true);
                for block in [then, otherwise] {
                    self.results(&block.results);
                    self.block(block);
                }
            }
            Op::While { test, body } => {
                self.results(&node.operands);
                self.results(&body.results);
                test.results.iter().for_each(|r| self.needed[r.0 as usize] = true);
                self.block(body);
                self.block(test);
            }
            // Library operations look at stored values.
            _ => node.operands.iter().for_each(|o| self.look_at(*o)),
        }
    }

    /// Values that are copied elsewhere by a kernel each.
    fn results(&mut self, values: &[Value]) {
        for value in values {
            let home = self.unique();
            self.add(*value, home, false);
        }
    }

    fn set(&mut self, node: &Node, fate: Fate) {
        node.results.iter().for_each(|r| self.fates[r.0 as usize] = fate);
    }

    fn add(&mut self, value: Value, homes: Homes, repeats: bool) {
        let slot = &mut self.homes[value.0 as usize];
        *slot = slot.and(homes);
        self.repeated[value.0 as usize] |= repeats;
    }

    fn elementwise(&mut self, node: &Node) {
        let v = node.results[0];
        let i = v.0 as usize;
        let free = matches!(node.op, Op::Full(_) | Op::Iota(_))
            || (matches!(node.op, Op::Move { .. }) && self.views_only(node));
        let body = match self.homes[i] {
            Homes::One(home) => self.bodies.get(&home).copied().unwrap_or(0),
            _ => 0,
        };
        let own = weight(&node.op) + 1;
        let alone = match self.homes[i] {
            Homes::None => true,
            Homes::One(_) => body + own <= BODY,
            // What is at a product's points is computed while its results are in registers, and by nobody else.
            Homes::Many => self.cost[i] <= CHEAP && self.points.of(v).is_none(),
        };
        let again = self.repeated[i] && self.cost[i] >= EXPENSIVE;
        let inline = !self.needed[i]
            && !self.points.is_end(v)
            && (free || self.fuse && (widens(&self.module.graph, node) || alone && !again));
        if !inline {
            self.fates[i] = Fate::Stored;
            node.operands.iter().for_each(|o| self.add(*o, Homes::One(v.0), self.repeats(node, *o)));
            return;
        }
        self.fates[i] = Fate::Inline;
        let homes = self.homes[i];
        if let Homes::One(home) = homes {
            *self.bodies.entry(home).or_insert(0) += own;
        }
        let repeated = self.repeated[i];
        for operand in &node.operands {
            self.add(*operand, homes, repeated || self.repeats(node, *operand));
        }
    }

    /// A move that nothing but views read, which costs nothing where it is affine.
    fn views_only(&self, node: &Node) -> bool {
        self.homes[node.results[0].0 as usize] == Homes::None
    }

    fn repeats(&self, node: &Node, operand: Value) -> bool {
        repeats(&self.module.graph, self.ranges, node, operand)
    }

    /// A library operation reads the value through strides: it is stored, or an affine move of a stored one.
    fn look_at(&mut self, value: Value) {
        if let Some(id) = self.definitions[value.0 as usize] {
            let node = self.module.graph.node(id);
            if let (Op::Move { .. }, Some(data)) = (&node.op, node.operands.first()) {
                let strides = self.layouts.strides(&self.module.graph, *data);
                if self.fuse && affine_move(&self.module.graph, id, &strides, self.ranges).is_some() {
                    self.needed[data.0 as usize] = true;
                    return;
                }
            }
        }
        self.needed[value.0 as usize] = true;
    }
}
