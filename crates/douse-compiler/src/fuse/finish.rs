//! From a group to a kernel.

use std::collections::HashMap;

use douse_core::DType;
use douse_core::pointwise::Combine;
use douse_core::sym::{Expr, Ranges, Symbol};
use douse_core::{Error, Result};
use douse_ir::{Graph, Value};
use douse_program::kernel::{self, Access, Effect, Inst, Kernel, Param, Reg, Stage};

use super::group::Group;
use super::layout::Layouts;
use super::member::{Kind, Member, Proto, ProtoOp};

/// A kernel and the values that its parameters are.
#[derive(Debug)]
pub struct Finished {
    pub kernel: Kernel,
    pub params: Vec<Value>,
}

/// Parameters by value, with how they are accessed.
#[derive(Debug, Default)]
pub struct Params {
    pub values: Vec<Value>,
    pub params: Vec<Param>,
}

impl Params {
    pub fn add(&mut self, value: Value, dtype: DType, access: Access) -> u32 {
        if let Some(i) = self.values.iter().position(|v| *v == value) {
            if self.params[i].access != access {
                self.params[i].access = Access::Update;
            }
            return i as u32;
        }
        self.values.push(value);
        self.params.push(Param { dtype, access });
        (self.values.len() - 1) as u32
    }
}

struct Finish<'a> {
    graph: &'a Graph,
    layouts: &'a Layouts,
    ranges: Ranges,
    group: &'a Group,
    params: Params,
    stages: Vec<Stage>,
    locals: Vec<DType>,
    /// Where each value of the group is computed: member, stage, and register if it is one of the stage.
    places: HashMap<Value, Place>,
}

#[derive(Clone, Copy)]
struct Place {
    member: usize,
    stage: usize,
    /// The register, for members that compute an element at each point of their stage.
    reg: Option<Reg>,
    local: Option<u32>,
    in_memory: bool,
}

/// Writes a group as a kernel. `stored` says which of its values are read elsewhere.
pub fn finish(
    graph: &Graph,
    layouts: &Layouts,
    ranges: &Ranges,
    group: &Group,
    stored: &dyn Fn(Value) -> bool,
) -> Result<Finished> {
    let mut f = Finish {
        graph,
        layouts,
        ranges: ranges.clone(),
        group,
        params: Params::default(),
        stages: Vec::new(),
        locals: Vec::new(),
        places: HashMap::new(),
    };
    for (i, member) in group.members.iter().enumerate() {
        f.member(i, member, stored)?;
    }
    let kernel = Kernel {
        name: String::new(),
        params: f.params.params,
        outer: group.outer.clone(),
        stages: f.stages,
        locals: f.locals,
        ordered: false,
        comment: Vec::new(),
    };
    Ok(Finished { kernel, params: f.params.values })
}

impl Finish<'_> {
    /// The member's inner loops, in order.
    fn inner(&self, i: usize) -> Vec<usize> {
        let member = &self.group.members[i];
        let mut inner: Vec<usize> = (0..member.loops.len()).filter(|l| !self.group.maps[i].contains(l)).collect();
        // What is scanned runs innermost.
        if matches!(member.kind, Kind::Scan { .. } | Kind::ArgScan { .. }) {
            inner.sort_by_key(|l| member.inner[*l]);
        }
        inner
    }

    /// For each loop of a member, the kernel's loop.
    fn renumbering(&self, i: usize) -> Vec<usize> {
        let outer = self.group.outer.len();
        let mut numbers = vec![0; self.group.members[i].loops.len()];
        for (k, l) in self.group.maps[i].iter().enumerate() {
            numbers[*l] = k;
        }
        for (n, l) in self.inner(i).into_iter().enumerate() {
            numbers[l] = outer + n;
        }
        numbers
    }

    /// Whether a read is of the element that the owner computes at the same point of a stage with the same inner loops.
    fn same_point(&self, reader: usize, owner: usize, at: &[Expr]) -> bool {
        let (r, o) = (self.renumbering(reader), self.renumbering(owner));
        let member = &self.group.members[owner];
        at.iter().zip(&member.dims).all(|(e, dim)| match dim {
            None => e.is_int(0),
            Some(l) => e.as_loop().is_some_and(|mine| r.get(mine) == o.get(*l)),
        })
    }

    fn sizes(&self, i: usize) -> Vec<Expr> {
        self.inner(i).into_iter().map(|l| self.group.members[i].loops[l].clone()).collect()
    }

    fn member(&mut self, i: usize, member: &Member, stored: &dyn Fn(Value) -> bool) -> Result<()> {
        let inner = self.sizes(i);
        // The first stage that everything it reads allows.
        let mut earliest = 0;
        for (value, at) in member.reads() {
            if let Some(place) = self.places.get(&value).copied() {
                let shared =
                    place.reg.is_some() && self.sizes(place.member) == inner && self.same_point(i, place.member, at);
                earliest = earliest.max(if shared { place.stage } else { place.stage + 1 });
            }
        }
        let stage = match (earliest..self.stages.len()).find(|s| self.stages[*s].inner == inner) {
            Some(stage) => stage,
            None => {
                self.stages.push(Stage { inner: inner.clone(), body: vec![], effects: vec![] });
                self.stages.len() - 1
            }
        };
        let numbers = self.renumbering(i);
        let mut regs: Vec<Reg> = Vec::with_capacity(member.body.len());
        for proto in &member.body {
            let reg = self.instruction(i, stage, proto, &numbers, &regs)?;
            regs.push(reg);
        }
        let reg = |r: Reg| regs[r as usize];
        let (first, dtype) = (member.values[0], self.graph.dtype(member.values[0]));
        let at: Vec<Expr> =
            member.dims.iter().map(|d| d.map_or(Expr::int(0), |l| Expr::loop_var(numbers[l]))).collect();
        let scope = self.scope(stage);
        match &member.kind {
            Kind::Point { value } => {
                let value = reg(*value);
                self.places.insert(first, Place { member: i, stage, reg: Some(value), local: None, in_memory: false });
                if stored(first) {
                    self.store(first)?;
                }
            }
            Kind::Reduce { op, value } => {
                let local = self.local(dtype);
                self.stages[stage].effects.push(Effect::Reduce { op: *op, value: reg(*value), local });
                self.reduced(i, stage, first, local, &at, stored)?;
            }
            Kind::ArgReduce { max, value, position } => {
                let (local, local_position) = (self.local(dtype), self.local(DType::I64));
                let (value, position) = (reg(*value), reg(*position));
                let effect = Effect::ArgReduce { max: *max, value, position, local, local_position };
                self.stages[stage].effects.push(effect);
                self.reduced(i, stage, first, local, &at, stored)?;
                if let Some(second) = member.values.get(1) {
                    self.reduced(i, stage, *second, local_position, &at, stored)?;
                }
            }
            Kind::Scan { op, value } => {
                let index = self.layouts.linear(self.graph, first, &at, &scope);
                let param = self.params.add(first, dtype, Access::Write);
                self.stages[stage].effects.push(Effect::Scan { op: *op, value: reg(*value), param, index });
                self.places.insert(first, Place { member: i, stage, reg: None, local: None, in_memory: true });
            }
            Kind::ArgScan { max, value, position } => {
                let second = *member.values.get(1).ok_or_else(|| Error::internal("a scan with one result"))?;
                let index = self.layouts.linear(self.graph, first, &at, &scope);
                if self.layouts.strides(self.graph, first) != self.layouts.strides(self.graph, second) {
                    return Err(Error::internal("results of a scan with different layouts"));
                }
                let param = self.params.add(first, dtype, Access::Write);
                let param_position = self.params.add(second, DType::I64, Access::Write);
                let (value, position) = (reg(*value), reg(*position));
                let effect = Effect::ArgScan { max: *max, value, position, param, param_position, index };
                self.stages[stage].effects.push(effect);
                for value in [first, second] {
                    self.places.insert(value, Place { member: i, stage, reg: None, local: None, in_memory: true });
                }
            }
        }
        Ok(())
    }

    fn scope(&self, stage: usize) -> Ranges {
        let sizes: Vec<Expr> = self.group.outer.iter().chain(&self.stages[stage].inner).cloned().collect();
        self.ranges.with_loops(&sizes)
    }

    fn local(&mut self, dtype: DType) -> u32 {
        self.locals.push(dtype);
        (self.locals.len() - 1) as u32
    }

    /// A reduction's result: a local, stored by a stage without inner loops where others read it.
    fn reduced(
        &mut self,
        member: usize,
        stage: usize,
        value: Value,
        local: u32,
        at: &[Expr],
        stored: &dyn Fn(Value) -> bool,
    ) -> Result<()> {
        self.places.insert(value, Place { member, stage, reg: None, local: Some(local), in_memory: false });
        if !stored(value) {
            return Ok(());
        }
        let dtype = self.graph.dtype(value);
        let last = self.stages.len() - 1;
        if last == stage || !self.stages[last].inner.is_empty() {
            self.stages.push(Stage { inner: vec![], body: vec![], effects: vec![] });
        }
        let last = self.stages.len() - 1;
        let scope = self.scope(last);
        let index = self.layouts.linear(self.graph, value, at, &scope);
        let param = self.params.add(value, dtype, Access::Write);
        let to = &mut self.stages[last];
        to.body.push(Inst { op: kernel::Op::Local(local), dtype });
        let reg = (to.body.len() - 1) as Reg;
        to.effects.push(Effect::Store { param, index, value: reg, guard: None });
        Ok(())
    }

    /// Where an element of a member's values stands, in the kernel's loops.
    fn at(&self, member: usize) -> Vec<Expr> {
        let numbers = self.renumbering(member);
        let dims = &self.group.members[member].dims;
        dims.iter().map(|d| d.map_or(Expr::int(0), |l| Expr::loop_var(numbers[l]))).collect()
    }

    /// Adds the store of a value that is computed at each point of its stage.
    fn store(&mut self, value: Value) -> Result<()> {
        let Some(place) = self.places.get_mut(&value) else { return Ok(()) };
        if place.in_memory {
            return Ok(());
        }
        place.in_memory = true;
        let place = *place;
        let reg = place.reg.ok_or_else(|| Error::internal("a value of a kernel that is nowhere"))?;
        let (at, scope, dtype) = (self.at(place.member), self.scope(place.stage), self.graph.dtype(value));
        let index = self.layouts.linear(self.graph, value, &at, &scope);
        let param = self.params.add(value, dtype, Access::Write);
        self.stages[place.stage].effects.push(Effect::Store { param, index, value: reg, guard: None });
        Ok(())
    }

    /// Makes a value of an earlier stage readable in a later one: through a local where it is one scalar for an outer point, else through memory.
    fn hand_on(&mut self, value: Value, place: Place) -> Result<Option<u32>> {
        if place.local.is_some() {
            return Ok(place.local);
        }
        if let (Some(reg), true) = (place.reg, self.stages[place.stage].inner.is_empty()) {
            // A reduction over one point keeps the value as it is.
            let dtype = self.graph.dtype(value);
            let local = self.local(dtype);
            let op = if dtype == DType::Bool { Combine::Or } else { Combine::Max };
            self.stages[place.stage].effects.push(Effect::Reduce { op, value: reg, local });
            if let Some(place) = self.places.get_mut(&value) {
                place.local = Some(local);
            }
            return Ok(Some(local));
        }
        self.store(value)?;
        Ok(None)
    }

    fn instruction(&mut self, i: usize, stage: usize, proto: &Proto, numbers: &[usize], regs: &[Reg]) -> Result<Reg> {
        let reg = |r: &Reg| regs[*r as usize];
        let renumber = |e: &Expr| {
            e.substitute(&|s| match s {
                Symbol::Loop(l) => numbers.get(l as usize).map(|n| Expr::loop_var(*n)),
                Symbol::Value(r) => regs.get(r as usize).map(|r| Expr::symbol(Symbol::Value(*r))),
                Symbol::Size(_) => None,
            })
        };
        let op = match &proto.op {
            ProtoOp::Read { value, at, guard } => {
                if let Some(place) = self.places.get(value).copied() {
                    let point =
                        self.sizes(place.member) == self.stages[stage].inner && self.same_point(i, place.member, at);
                    if let (Some(r), true, true) = (place.reg, place.stage == stage, point) {
                        return Ok(r);
                    }
                    if let Some(local) = self.hand_on(*value, place)? {
                        return Ok(self.append(stage, kernel::Op::Local(local), proto.dtype));
                    }
                }
                let at: Vec<Expr> = at.iter().map(renumber).collect();
                let scope = self.scope(stage);
                let index = self.layouts.linear(self.graph, *value, &at, &scope);
                let param = self.params.add(*value, self.graph.dtype(*value), Access::Read);
                kernel::Op::Load { param, index, guard: guard.as_ref().map(reg) }
            }
            ProtoOp::Core(op) => match op {
                kernel::Op::Const(s) => kernel::Op::Const(*s),
                kernel::Op::Index(e) => kernel::Op::Index(renumber(e)),
                kernel::Op::Unary(op, a) => kernel::Op::Unary(*op, reg(a)),
                kernel::Op::Binary(op, a, b) => kernel::Op::Binary(*op, reg(a), reg(b)),
                kernel::Op::Select(c, a, b) => kernel::Op::Select(reg(c), reg(a), reg(b)),
                kernel::Op::Cast(a) => kernel::Op::Cast(reg(a)),
                kernel::Op::Bitcast(a) => kernel::Op::Bitcast(reg(a)),
                kernel::Op::Check { index, size, wrap, guard, message } => kernel::Op::Check {
                    index: reg(index),
                    size: size.clone(),
                    wrap: *wrap,
                    guard: guard.as_ref().map(reg),
                    message: *message,
                },
                kernel::Op::Random { draw, index, word } => {
                    kernel::Op::Random { draw: *draw, index: renumber(index), word: *word }
                }
                kernel::Op::Load { .. } | kernel::Op::Local(_) => {
                    return Err(Error::internal("a load before loads are made"));
                }
            },
        };
        Ok(self.append(stage, op, proto.dtype))
    }

    /// Adds an instruction, unless the stage has it already.
    fn append(&mut self, stage: usize, op: kernel::Op, dtype: DType) -> Reg {
        let inst = Inst { op, dtype };
        // A load of what the kernel itself writes can differ from an earlier one; nothing writes within a stage's body.
        let body = &mut self.stages[stage].body;
        if let Some(i) = body.iter().position(|other| *other == inst) {
            return i as Reg;
        }
        body.push(inst);
        (body.len() - 1) as Reg
    }
}
