//! A kernel made ready for sizes: loops merged, lanes chosen, registers assigned.

use douse_core::pointwise::{Binary, Combine, Unary};
use douse_core::{DType, Error, Result, Scalar};
use douse_program::kernel::{Access, Kernel};

use super::lanes::Class;
use super::lower::{Affine, Lowered, LoweredEffect, NodeId, NodeOp, Place, lower, sizes};
use super::nest::{self, Order, bring_best_last};
use super::share::Accesses;
use super::space::{Space, Walk};

/// Index of a register in its class's bank.
pub(crate) type SlotId = usize;

/// An element's place: an affine walk plus, where there is one, an int64 register.
#[derive(Clone, Debug)]
pub(crate) struct At {
    pub walk: Walk,
    pub extra: Option<ExtraSlot>,
}

/// An int64 register that is added to an affine index.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExtraSlot {
    pub slot: SlotId,
    /// Whether it changes along a run of lanes.
    pub along: bool,
}

#[derive(Clone, Debug)]
pub(crate) enum StepOp {
    Const(Scalar),
    Affine(Walk),
    Load {
        param: usize,
        at: At,
        guard: Option<SlotId>,
    },
    /// Where lanes run through the inner space: a local of the present point.
    Local(SlotId),
    Unary {
        op: Unary,
        a: SlotId,
    },
    Binary {
        op: Binary,
        a: SlotId,
        b: SlotId,
        guards: Option<Vec<SlotId>>,
    },
    Select {
        c: SlotId,
        a: SlotId,
        b: SlotId,
    },
    Cast {
        a: SlotId,
    },
    Bitcast {
        a: SlotId,
    },
    Scale {
        a: SlotId,
        factor: f64,
    },
    Check {
        index: SlotId,
        size: i64,
        wrap: bool,
        guard: Option<SlotId>,
        message: u32,
    },
    Random {
        draw: u32,
        index: SlotId,
        word: u8,
    },
}

/// An instruction over lanes.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub op: StepOp,
    /// Dtype of the result.
    pub dtype: DType,
    /// Dtype of the first operand (of Select: of the second), where there is one.
    pub from: DType,
    pub out: SlotId,
}

#[derive(Clone, Debug)]
pub(crate) enum BoundEffect {
    Store {
        param: usize,
        at: At,
        value: SlotId,
        guard: Option<SlotId>,
    },
    Reduce {
        op: Combine,
        dtype: DType,
        value: SlotId,
        sum: SlotId,
        rest: SlotId,
        local: SlotId,
    },
    ArgReduce {
        max: bool,
        dtype: DType,
        value: SlotId,
        position: SlotId,
        best: SlotId,
        best_position: SlotId,
        local: SlotId,
        local_position: SlotId,
    },
    Scan {
        op: Combine,
        dtype: DType,
        value: SlotId,
        sum: SlotId,
        param: usize,
        at: At,
    },
    ArgScan {
        max: bool,
        dtype: DType,
        value: SlotId,
        position: SlotId,
        best: SlotId,
        best_position: SlotId,
        param: usize,
        param_position: usize,
        at: At,
    },
    Update {
        op: Option<Combine>,
        param: usize,
        at: At,
        value: SlotId,
        guard: Option<SlotId>,
    },
    Assert {
        value: SlotId,
        message: u32,
    },
}

#[derive(Clone, Debug)]
pub(crate) struct BoundStage {
    /// Lanes run through the inner space, one outer point after the other; otherwise through the outer points of a block.
    pub lanes_inner: bool,
    pub inner: Space,
    /// Inner points at once, where lanes run through them.
    pub lanes: usize,
    /// What depends on no loop, computed once a chunk.
    pub setup: Vec<Step>,
    /// What depends on no inner loop, computed once a block (with inner lanes: a point).
    pub once: Vec<Step>,
    pub body: Vec<Step>,
    pub effects: Vec<BoundEffect>,
}

/// A kernel with sizes put in.
#[derive(Clone, Debug)]
pub(crate) struct Bound {
    pub outer: Space,
    /// Outer points of a block.
    pub block: usize,
    pub order: Order,
    pub stages: Vec<BoundStage>,
    /// Class and register of each local.
    pub locals: Vec<(Class, SlotId)>,
    /// Registers of each class.
    pub slots: Slots,
    pub accesses: Accesses,
    /// Element operations, roughly.
    pub work: usize,
}

/// How many registers of each class.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Slots {
    counts: [usize; 4],
}

impl Slots {
    fn add(&mut self, class: Class) -> SlotId {
        let count = &mut self.counts[class as usize];
        *count += 1;
        *count - 1
    }

    pub fn count(&self, class: Class) -> usize {
        self.counts[class as usize]
    }

    /// Bytes that a lane takes in all registers.
    pub fn bytes(&self) -> usize {
        [Class::F32, Class::F64, Class::I64, Class::Bool].iter().map(|c| self.count(*c) * c.size()).sum()
    }

    fn most(&mut self, other: Slots) {
        for (a, b) in self.counts.iter_mut().zip(other.counts) {
            *a = (*a).max(b);
        }
    }
}

/// Puts sizes into a kernel.
pub(crate) fn bind(kernel: &Kernel, symbols: &[Option<i64>]) -> Result<Bound> {
    let outer_sizes = sizes(&kernel.outer, symbols)?;
    let stages =
        kernel.stages.iter().map(|s| lower(kernel, s, &outer_sizes, symbols)).collect::<Result<Vec<Lowered>>>()?;
    let outer_loops = outer_sizes.len();
    let all: Vec<&Affine> = stages.iter().flat_map(affines).collect();
    let mut outer = Space::merged(0..outer_loops, &outer_sizes, &all, false);
    let inners: Vec<Space> = stages.iter().map(|stage| inner_space(stage, outer_loops)).collect();
    if !kernel.ordered {
        bring_best_last(&mut outer, &stages);
    }
    let lanes_inner = nest::lanes_inner(kernel, &outer, &inners, &stages);

    let mut slots = Slots::default();
    let locals: Vec<(Class, SlotId)> = kernel
        .locals
        .iter()
        .map(|dtype| {
            let class = Class::of(*dtype);
            (class, slots.add(class))
        })
        .collect();
    // Whatever is set up once a chunk keeps its register through all stages.
    let mut assigned: Vec<Vec<Option<SlotId>>> = Vec::new();
    let depends: Vec<Vec<Depends>> = stages.iter().map(|s| depends(kernel, &stages, s, outer_loops)).collect();
    for (stage, depends) in stages.iter().zip(&depends) {
        let setup = stage.nodes.iter().zip(depends);
        assigned.push(
            setup.map(|(node, d)| (*d == Depends::default()).then(|| slots.add(Class::of(node.dtype)))).collect(),
        );
    }
    let shared = slots;
    let mut bound = Vec::new();
    let mut work = 0;
    for (i, (stage, inner)) in stages.iter().zip(inners).enumerate() {
        let own = outer.points.saturating_mul(inner.points).saturating_mul(stage.nodes.len().max(1));
        work = own.saturating_add(work);
        let mut assignment = Assignment {
            stage,
            depends: &depends[i],
            outer: &outer,
            inner: &inner,
            lanes_inner: lanes_inner[i],
            along: along(stage, if lanes_inner[i] { &inner } else { &outer }, lanes_inner[i]),
            locals: &locals,
            slots: shared,
            of: std::mem::take(&mut assigned[i]),
        };
        let steps = assignment.steps()?;
        slots.most(assignment.slots);
        bound.push(BoundStage { inner, ..steps });
    }
    let lanes = nest::lanes(kernel, &stages, slots.bytes());
    for stage in &mut bound {
        stage.lanes = nest::even(stage.inner.points, lanes);
    }
    let (order, block) = nest::blocks(kernel, &outer, &stages, &bound, lanes);
    let accesses = Accesses::of(kernel, &stages, outer_loops, &outer);
    Ok(Bound { outer, block, order, stages: bound, locals, slots, accesses, work })
}

/// Every affine index of a stage.
fn affines(stage: &Lowered) -> impl Iterator<Item = &Affine> {
    let nodes = stage.nodes.iter().filter_map(|node| match &node.op {
        NodeOp::Affine(affine) => Some(affine),
        NodeOp::Load { place, .. } => Some(&place.affine),
        _ => None,
    });
    nodes.chain(stage.effects.iter().flat_map(LoweredEffect::writes).map(|(_, place)| &place.affine))
}

fn inner_space(stage: &Lowered, outer_loops: usize) -> Space {
    let scans = |e: &LoweredEffect| matches!(e, LoweredEffect::Scan { .. } | LoweredEffect::ArgScan { .. });
    let indices: Vec<&Affine> = affines(stage).collect();
    let loops = outer_loops..outer_loops + stage.inner.len();
    Space::merged(loops, &stage.inner, &indices, stage.effects.iter().any(scans))
}

/// What a node's value changes with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Depends {
    outer: bool,
    inner: bool,
}

fn depends(kernel: &Kernel, stages: &[Lowered], stage: &Lowered, outer_loops: usize) -> Vec<Depends> {
    let mut found: Vec<Depends> = Vec::with_capacity(stage.nodes.len());
    let of_affine = |affine: &Affine| Depends {
        outer: affine.coefs.iter().take(outer_loops).any(|c| *c != 0),
        inner: affine.coefs.iter().skip(outer_loops).any(|c| *c != 0),
    };
    let writes = |stage: &Lowered, wanted: usize| {
        stage.effects.iter().flat_map(LoweredEffect::writes).any(|(param, _)| param == wanted)
    };
    for node in &stage.nodes {
        let mut d = match &node.op {
            NodeOp::Affine(affine) => of_affine(affine),
            NodeOp::Load { param, place, .. } => {
                let mut d = of_affine(&place.affine);
                let written = kernel.params.get(*param).is_some_and(|p| p.access != Access::Read);
                d.outer |= written && stages.iter().any(|s| writes(s, *param));
                d.inner |= written && writes(stage, *param);
                d
            }
            NodeOp::Local(_) => Depends { outer: true, inner: false },
            _ => Depends::default(),
        };
        node.op.operands(&mut |operand| {
            let of = found.get(operand).copied().unwrap_or_default();
            d = Depends { outer: d.outer | of.outer, inner: d.inner | of.inner };
        });
        found.push(d);
    }
    found
}

/// Which nodes of a stage change along a run of lanes, for certain or maybe.
fn along(stage: &Lowered, lanes: &Space, lanes_inner: bool) -> Vec<bool> {
    let mut found: Vec<bool> = Vec::with_capacity(stage.nodes.len());
    let last = lanes.dims.last().map(|d| d.of);
    let varies = |affine: &Affine| last.is_some_and(|of| affine.coefs.get(of) != Some(&0));
    for node in &stage.nodes {
        let mut changes = match &node.op {
            NodeOp::Affine(affine) => varies(affine),
            NodeOp::Load { place, .. } => varies(&place.affine),
            NodeOp::Local(_) => !lanes_inner,
            _ => false,
        };
        node.op.operands(&mut |operand| changes |= found.get(operand) != Some(&false));
        found.push(changes);
    }
    found
}

struct Assignment<'a> {
    stage: &'a Lowered,
    depends: &'a [Depends],
    outer: &'a Space,
    inner: &'a Space,
    lanes_inner: bool,
    /// By node: whether it changes along a run of lanes.
    along: Vec<bool>,
    locals: &'a [(Class, SlotId)],
    slots: Slots,
    /// The register of each node, once it has one.
    of: Vec<Option<SlotId>>,
}

impl Assignment<'_> {
    fn walk(&self, affine: &Affine) -> Walk {
        let (outer, inner) = (self.outer.coefs(affine), self.inner.coefs(affine));
        let (lanes, fixed) = if self.lanes_inner { (inner, outer) } else { (outer, inner) };
        Walk { base: affine.base, lanes, fixed }
    }

    fn slot(&self, node: NodeId) -> Result<SlotId> {
        self.of.get(node).copied().flatten().ok_or_else(|| Error::internal("a node has no register"))
    }

    fn slot_of(&self, node: Option<NodeId>) -> Result<Option<SlotId>> {
        node.map(|n| self.slot(n)).transpose()
    }

    fn at(&self, place: &Place) -> Result<At> {
        let extra = place.extra.map(|node| {
            let along = self.along.get(node) != Some(&false);
            self.slot(node).map(|slot| ExtraSlot { slot, along })
        });
        Ok(At { walk: self.walk(&place.affine), extra: extra.transpose()? })
    }

    fn dtype(&self, node: NodeId) -> Result<DType> {
        self.stage.nodes.get(node).map(|n| n.dtype).ok_or_else(|| Error::internal("a node is not there"))
    }

    fn steps(&mut self) -> Result<BoundStage> {
        let mut stage = BoundStage {
            lanes_inner: self.lanes_inner,
            inner: Space::default(),
            lanes: 1,
            setup: vec![],
            once: vec![],
            body: vec![],
            effects: vec![],
        };
        let nodes = &self.stage.nodes;
        for (number, depends) in self.depends.iter().enumerate() {
            if let (NodeOp::Local(local), false) = (&nodes[number].op, self.lanes_inner) {
                self.of[number] = self.locals.get(*local).map(|(_, slot)| *slot);
            } else if *depends == Depends::default() {
                stage.setup.push(self.step(number)?);
            } else if !depends.inner {
                self.of[number] = Some(self.slots.add(Class::of(nodes[number].dtype)));
                stage.once.push(self.step(number)?);
            }
        }
        let mut last_use = vec![0usize; nodes.len()];
        for (number, node) in nodes.iter().enumerate() {
            node.op.operands(&mut |operand| last_use[operand] = last_use[operand].max(number));
        }
        for effect in &self.stage.effects {
            effect.operands(&mut |operand| last_use[operand] = usize::MAX);
        }
        let mut free: [Vec<SlotId>; 4] = Default::default();
        for number in 0..nodes.len() {
            if !self.depends[number].inner {
                continue;
            }
            let class = Class::of(nodes[number].dtype);
            let slot = free[class as usize].pop().unwrap_or_else(|| self.slots.add(class));
            self.of[number] = Some(slot);
            stage.body.push(self.step(number)?);
            let mut ended = Vec::new();
            nodes[number].op.operands(&mut |operand| {
                if last_use[operand] == number && self.depends[operand].inner && !ended.contains(&operand) {
                    ended.push(operand);
                }
            });
            for operand in ended {
                free[Class::of(nodes[operand].dtype) as usize].push(self.slot(operand)?);
            }
        }
        stage.effects = self.stage.effects.iter().map(|e| self.effect(e)).collect::<Result<_>>()?;
        Ok(stage)
    }

    fn step(&self, number: NodeId) -> Result<Step> {
        let node = &self.stage.nodes[number];
        let mut from = node.dtype;
        let op = match &node.op {
            NodeOp::Const(value) => StepOp::Const(*value),
            NodeOp::Affine(affine) => StepOp::Affine(self.walk(affine)),
            NodeOp::Load { param, place, guard } => {
                StepOp::Load { param: *param, at: self.at(place)?, guard: self.slot_of(*guard)? }
            }
            NodeOp::Local(local) => {
                let slot = self.locals.get(*local).map(|(_, slot)| *slot);
                StepOp::Local(slot.ok_or_else(|| Error::internal("a local is not there"))?)
            }
            NodeOp::Unary(op, a) => {
                from = self.dtype(*a)?;
                StepOp::Unary { op: *op, a: self.slot(*a)? }
            }
            NodeOp::Binary { op, a, b, guards } => {
                from = self.dtype(*a)?;
                let guards = guards.as_ref().map(|g| g.iter().map(|g| self.slot(*g)).collect::<Result<Vec<_>>>());
                StepOp::Binary { op: *op, a: self.slot(*a)?, b: self.slot(*b)?, guards: guards.transpose()? }
            }
            NodeOp::Select(c, a, b) => StepOp::Select { c: self.slot(*c)?, a: self.slot(*a)?, b: self.slot(*b)? },
            NodeOp::Cast(a) => {
                from = self.dtype(*a)?;
                StepOp::Cast { a: self.slot(*a)? }
            }
            NodeOp::Bitcast(a) => {
                from = self.dtype(*a)?;
                StepOp::Bitcast { a: self.slot(*a)? }
            }
            NodeOp::Scale(a, bits) => StepOp::Scale { a: self.slot(*a)?, factor: f64::from_bits(*bits) },
            NodeOp::Check { index, size, wrap, guard, message } => StepOp::Check {
                index: self.slot(*index)?,
                size: *size,
                wrap: *wrap,
                guard: self.slot_of(*guard)?,
                message: *message,
            },
            NodeOp::Random { draw, index, word } => {
                StepOp::Random { draw: *draw, index: self.slot(*index)?, word: *word }
            }
        };
        Ok(Step { op, dtype: node.dtype, from, out: self.slot(number)? })
    }

    fn effect(&mut self, effect: &LoweredEffect) -> Result<BoundEffect> {
        let locals = self.locals;
        let local = |local: usize| {
            locals.get(local).map(|(_, slot)| *slot).ok_or_else(|| Error::internal("a local is not there"))
        };
        Ok(match effect {
            LoweredEffect::Store { param, place, value, guard } => BoundEffect::Store {
                param: *param,
                at: self.at(place)?,
                value: self.slot(*value)?,
                guard: self.slot_of(*guard)?,
            },
            LoweredEffect::Update { op, param, place, value, guard } => BoundEffect::Update {
                op: *op,
                param: *param,
                at: self.at(place)?,
                value: self.slot(*value)?,
                guard: self.slot_of(*guard)?,
            },
            LoweredEffect::Reduce { op, value, local: to } => {
                let dtype = self.dtype(*value)?;
                let class = accumulator(*op, dtype);
                let (sum, rest) = (self.slots.add(class), self.slots.add(class));
                BoundEffect::Reduce { op: *op, dtype, value: self.slot(*value)?, sum, rest, local: local(*to)? }
            }
            LoweredEffect::ArgReduce { max, value, position, local: to, local_position } => {
                let dtype = self.dtype(*value)?;
                BoundEffect::ArgReduce {
                    max: *max,
                    dtype,
                    value: self.slot(*value)?,
                    position: self.slot(*position)?,
                    best: self.slots.add(Class::of(dtype)),
                    best_position: self.slots.add(Class::I64),
                    local: local(*to)?,
                    local_position: local(*local_position)?,
                }
            }
            LoweredEffect::Scan { op, value, param, place } => {
                let dtype = self.dtype(*value)?;
                let sum = self.slots.add(accumulator(*op, dtype));
                BoundEffect::Scan { op: *op, dtype, value: self.slot(*value)?, sum, param: *param, at: self.at(place)? }
            }
            LoweredEffect::ArgScan { max, value, position, param, param_position, place } => {
                let dtype = self.dtype(*value)?;
                BoundEffect::ArgScan {
                    max: *max,
                    dtype,
                    value: self.slot(*value)?,
                    position: self.slot(*position)?,
                    best: self.slots.add(Class::of(dtype)),
                    best_position: self.slots.add(Class::I64),
                    param: *param,
                    param_position: *param_position,
                    at: self.at(place)?,
                }
            }
            LoweredEffect::Assert { value, message } => {
                BoundEffect::Assert { value: self.slot(*value)?, message: *message }
            }
        })
    }
}

/// The class in which values combine: sums of float32 in float64.
pub(crate) fn accumulator(op: Combine, dtype: DType) -> Class {
    match (op, Class::of(dtype)) {
        (Combine::Sum | Combine::LogAddExp, Class::F32) => Class::F64,
        (_, class) => class,
    }
}
