//! The nodes of a block, in order, to items and then to steps.

use std::collections::{HashMap, HashSet};

use douse_core::sym::{Expr, Symbol};
use douse_core::{Error, Result};
use douse_ir::{Block, Node, NodeId, Op, Value};
use douse_program::kernel::{Access, Effect};
use douse_program::plan::{BufferKind, Predicate, Step, SymbolSource};

use super::Planner;
use crate::fuse::fate::Fate;
use crate::fuse::finish::finish;
use crate::fuse::group::{Apart, Group};
use crate::fuse::layout::row_major;
use crate::fuse::member::{Member, loops_over, member};

pub(super) enum Item {
    Group(Box<Group>),
    Steps(Vec<Step>),
}

/// Where the items of a block make what later members read.
#[derive(Default)]
struct Made {
    /// The item that makes each value of this block.
    values: HashMap<Value, usize>,
    /// The item that sets each symbol, or the last that makes the call fail for some of its values: what mentions it comes after.
    symbols: HashMap<u32, usize>,
}

impl Planner<'_> {
    /// Appends a block's items. Conditions that the inputs decide are checked first, so that nothing waits for them.
    pub(super) fn block_items(&mut self, block: &Block, items: &mut Vec<Item>) -> Result<()> {
        let mut made = Made::default();
        for id in &block.nodes {
            let node = self.module.graph.node(*id);
            if self.checked_first(&node.op)
                || node.op.is_elementwise() && self.fates.of(node.results[0]) != Fate::Stored
            {
                continue;
            }
            let found = member(&self.module.graph, &self.definitions, &self.fates, &self.ranges, *id)?;
            match found {
                Some(member) => self.place(member, items, &mut made),
                None => {
                    let steps = self.node_steps(*id, node)?;
                    // What is there before the call has no step.
                    if steps.is_empty() {
                        continue;
                    }
                    items.push(Item::Steps(steps));
                    let last = items.len() - 1;
                    made.values.extend(node.results.iter().map(|r| (*r, last)));
                    made.symbols.extend(self.decided(node).into_iter().map(|symbol| (symbol, last)));
                }
            }
        }
        Ok(())
    }

    /// The checks of a block that depend on nothing but the inputs' sizes and numbers.
    pub(super) fn first_items(&self, block: &Block) -> Vec<Item> {
        let requires = block.nodes.iter().filter_map(|id| match &self.module.graph.node(*id).op {
            op @ Op::Require { cond, message } if self.checked_first(op) => {
                Some(Step::Require { cond: cond.clone(), message: *message })
            }
            _ => None,
        });
        let requires: Vec<Step> = requires.collect();
        if requires.is_empty() { vec![] } else { vec![Item::Steps(requires)] }
    }

    fn checked_first(&self, op: &Op) -> bool {
        let Op::Require { cond, .. } = op else { return false };
        let mut known = true;
        cond.visit(&mut |symbol| known &= !self.is_set_by_step(symbol));
        known
    }

    fn is_set_by_step(&self, symbol: Symbol) -> bool {
        let Symbol::Size(n) = symbol else { return false };
        self.module.symbols.get(n as usize).is_none_or(|info| info.source == SymbolSource::Step)
    }

    /// The symbols that a node sets or whose values it checks.
    fn decided(&self, node: &Node) -> Vec<u32> {
        let mut found = Vec::new();
        let mut note = |symbol: Symbol| {
            if let (Symbol::Size(n), true) = (symbol, self.is_set_by_step(symbol)) {
                found.push(n);
            }
        };
        match &node.op {
            Op::Item { symbol } | Op::Nonzero { symbol } => note(Symbol::Size(*symbol)),
            Op::Require { cond, .. } => cond.visit(&mut note),
            Op::If { .. } | Op::IfCond { .. } => {
                let shapes = node.results.iter().flat_map(|r| self.module.graph.shape(*r));
                shapes.for_each(|size| size.visit(&mut note));
            }
            _ => {}
        }
        found
    }

    /// Puts a member into the last group that it reads from, if everything else it needs is there before that group, else into one of its own.
    fn place(&mut self, member: Member, items: &mut Vec<Item>, made: &mut Made) {
        let values = member.values.clone();
        let product = values.first().and_then(|v| self.fates.product(*v));
        let last = member.reads().filter_map(|(v, _)| made.values.get(&v).copied()).max();
        let mut apart = None;
        if let (Some(at), true) = (last, self.fuse) {
            if let Some(Item::Group(group)) = items.get_mut(at) {
                let before = |item: Option<&usize>| item.is_none_or(|i| *i < at);
                let early = member.reads().all(|(v, _)| group.defines(v).is_some() || before(made.values.get(&v)))
                    && member.symbols().iter().all(|s| before(made.symbols.get(s)));
                // An epilogue is nothing but that.
                let reason = match (early, group.product == product, group.fit(&member, &self.ranges)) {
                    (true, true, Some(fit)) => {
                        group.join(member, fit);
                        made.values.extend(values.iter().map(|v| (*v, at)));
                        return;
                    }
                    (false, ..) => Apart::Later,
                    (_, false, _) => Apart::Epilogue,
                    (.., None) => Apart::Loops,
                };
                let result = group.members.last().and_then(|member| member.values.last());
                apart = result.map(|result| (reason, *result));
            }
        }
        items.push(Item::Group(Box::new(Group { apart, ..Group::new(member, product) })));
        made.values.extend(values.iter().map(|v| (*v, items.len() - 1)));
    }

    /// Finishes groups into kernels.
    pub(super) fn finish_items(&mut self, items: Vec<Item>) -> Result<Vec<Step>> {
        // What one group reads of another must have a buffer before the other is finished.
        for item in &items {
            if let Item::Group(group) = item {
                let mut outside: Vec<Value> = Vec::new();
                for member in &group.members {
                    outside.extend(member.reads().map(|(v, _)| v).filter(|v| group.defines(*v).is_none()));
                }
                for value in outside {
                    self.buffer(value);
                }
            }
        }
        for write in &self.module.writes {
            if self.fates.of(write.value) == Fate::Stored && !self.in_place.reuses(write.value) {
                self.buffer(write.value);
            }
        }
        let mut steps = Vec::new();
        for item in items {
            match item {
                Item::Steps(ready) => steps.extend(ready),
                Item::Group(group) => {
                    let stored: HashSet<Value> = group
                        .members
                        .iter()
                        .flat_map(|m| &m.values)
                        .filter(|v| self.buffer_of.contains_key(v) || self.output_of.contains_key(v))
                        .copied()
                        .collect();
                    let finished =
                        finish(&self.module.graph, &self.layouts, &self.ranges, &group, &|v| stored.contains(&v))?;
                    if finished.kernel.stages.iter().all(|s| s.effects.is_empty()) {
                        continue;
                    }
                    let args = finished.params.iter().map(|v| self.buffer(*v)).collect();
                    let origins: Vec<_> = group.members.iter().flat_map(|m| m.origins.iter().copied()).collect();
                    let step = self.add_kernel(finished.kernel, args, &origins, "");
                    if let (Some((reason, result)), Some(kernel)) = (group.apart, self.kernels.last_mut()) {
                        let by = self.definitions[result.0 as usize].map(|node| self.module.graph.node(node).origin);
                        let name =
                            by.and_then(|origin| self.module.origin(origin)).map_or("a kernel", |origin| &origin.node);
                        kernel.comment.push(format!("apart from {name}: {}", reason.reason()));
                    }
                    steps.push(step);
                }
            }
        }
        Ok(steps)
    }

    fn node_steps(&mut self, id: NodeId, node: &Node) -> Result<Vec<Step>> {
        match &node.op {
            Op::Input(_) | Op::State(_) | Op::Constant(_) => Ok(vec![]),
            Op::Concat { dim } => self.concat(node, *dim),
            Op::Scatter { map, combine } => self.scatter(id, node, map, *combine),
            Op::Item { symbol } => {
                let buffer = self.buffer(node.operands[0]);
                Ok(vec![Step::Read { buffer, symbol: *symbol }])
            }
            Op::Require { cond, message } => Ok(vec![Step::Require { cond: cond.clone(), message: *message }]),
            Op::Assert { message } => {
                let operand = node.operands[0];
                let (mut single, value) = self.single(vec![], |e| e.element(operand, &[], None))?;
                single.effects.push(Effect::Assert { value, message: *message });
                single.origins.push(node.origin);
                Ok(vec![self.finish_single(single, "")])
            }
            Op::If { then, otherwise } => {
                let predicate = Predicate::Buffer(self.buffer(node.operands[0]));
                self.branches(node, predicate, then, otherwise)
            }
            Op::IfCond { cond, then, otherwise } => self.branches(node, Predicate::Cond(cond.clone()), then, otherwise),
            Op::While { test, body } => self.repeat(node, test, body),
            _ => Ok(vec![Step::Library(self.library(node)?)]),
        }
    }

    /// Each operand is written into its place by a kernel of its own.
    fn concat(&mut self, node: &Node, dim: usize) -> Result<Vec<Step>> {
        let result = node.results[0];
        let strides = self.layouts.strides(&self.module.graph, result);
        let buffer = self.buffer(result);
        let mut start = Expr::int(0);
        let mut steps = Vec::new();
        for operand in &node.operands {
            let shape = self.module.graph.shape(*operand);
            let offset = &start * &strides[dim];
            start = &start + &shape[dim];
            if shape.iter().any(|n| n.is_int(0)) {
                continue;
            }
            steps.push(self.copy_into(*operand, buffer, &strides, &offset)?);
        }
        Ok(steps)
    }

    /// The base is copied, unless it is written in place; then every element of the source updates the result, in order.
    fn scatter(
        &mut self,
        id: NodeId,
        node: &Node,
        map: &[Expr],
        combine: Option<douse_core::pointwise::Combine>,
    ) -> Result<Vec<Step>> {
        let graph = &self.module.graph;
        let (base, source, result) = (node.operands[0], node.operands[1], node.results[0]);
        let strides = self.layouts.strides(graph, result);
        let mut steps = Vec::new();
        let buffer = if self.in_place.is(id) {
            let buffer = self.buffer(base);
            self.buffer_of.insert(result, buffer);
            buffer
        } else {
            let buffer = self.buffer(result);
            steps.push(self.copy_into(base, buffer, &strides, &Expr::int(0))?);
            buffer
        };
        let mut loops = Vec::new();
        let (at, _) = loops_over(graph.shape(source), &mut loops);
        let indices = node.operands[2..].to_vec();
        let (mut single, (value, regs)) = self.single(loops, |e| {
            let regs = indices.iter().map(|i| e.element(*i, &at, None)).collect::<Result<Vec<_>>>()?;
            Ok((e.element(source, &at, None)?, regs))
        })?;
        let place = |s: Symbol| match s {
            Symbol::Loop(i) => at.get(i as usize).cloned(),
            Symbol::Value(k) => regs.get(k as usize).map(|r| Expr::symbol(Symbol::Value(*r))),
            Symbol::Size(_) => None,
        };
        let scope = self.ranges.with_loops(&single.loops);
        let index = map.iter().zip(&strides).fold(Expr::int(0), |sum, (e, s)| &sum + &(&e.substitute(&place) * s));
        let param = self.extra_param(&mut single, buffer, Access::Update)?;
        single.effects.push(Effect::Update { op: combine, param, index: index.simplify(&scope), value, guard: None });
        single.ordered = true;
        single.origins.push(node.origin);
        steps.push(self.finish_single(single, ""));
        Ok(steps)
    }

    fn branches(&mut self, node: &Node, predicate: Predicate, then: &Block, otherwise: &Block) -> Result<Vec<Step>> {
        let mut sides = Vec::new();
        for block in [then, otherwise] {
            let mut items = self.first_items(block);
            self.block_items(block, &mut items)?;
            let mut steps = Vec::new();
            for (result, value) in node.results.iter().zip(&block.results) {
                // Sizes that the branch decides.
                let (wanted, own) = (self.module.graph.shape(*result), self.module.graph.shape(*value));
                for (w, o) in wanted.iter().zip(own) {
                    if w != o {
                        match w.as_symbol() {
                            Some(Symbol::Size(symbol)) => steps.push(Step::Set { symbol, value: o.clone() }),
                            _ => return Err(Error::internal("a branch whose result has another shape")),
                        }
                    }
                }
            }
            for (result, value) in node.results.iter().zip(&block.results) {
                let strides = self.layouts.strides(&self.module.graph, *result);
                let buffer = self.buffer(*result);
                steps.push(self.copy_into(*value, buffer, &strides, &Expr::int(0))?);
            }
            items.push(Item::Steps(steps));
            sides.push(self.finish_items(items)?);
        }
        let otherwise = sides.pop().unwrap_or_default();
        let then = sides.pop().unwrap_or_default();
        Ok(vec![Step::If { predicate, then, otherwise }])
    }

    /// The carried values live in the results' buffers; the body's are computed aside and copied when all are there.
    fn repeat(&mut self, node: &Node, test: &Block, body: &Block) -> Result<Vec<Step>> {
        let graph = &self.module.graph;
        let mut before = Vec::new();
        for (i, (result, initial)) in node.results.iter().zip(&node.operands).enumerate() {
            let shape = graph.shape(*result).to_vec();
            let buffer = self.buffer(*result);
            before.push(self.copy_into(*initial, buffer, &row_major(&shape), &Expr::int(0))?);
            for block in [test, body] {
                if let Some(param) = block.params.get(i) {
                    self.buffer_of.insert(*param, buffer);
                }
            }
        }
        let mut items = self.first_items(test);
        self.block_items(test, &mut items)?;
        let predicate = test.results.first().ok_or_else(|| Error::internal("a loop without a test"))?;
        let predicate = Predicate::Buffer(self.buffer(*predicate));
        let test_steps = self.finish_items(items)?;
        let mut items = self.first_items(body);
        self.block_items(body, &mut items)?;
        let (mut aside, mut back) = (Vec::new(), Vec::new());
        for (result, next) in node.results.iter().zip(&body.results) {
            let shape = graph.shape(*result).to_vec();
            let (to, elements) = (self.buffer(*result), Expr::product(&shape));
            let kind = BufferKind::Temporary;
            let from = self.new_buffer(graph.dtype(*result), elements, kind);
            aside.push(self.copy_into(*next, from, &row_major(&shape), &Expr::int(0))?);
            back.push(Step::Copy { from, to });
        }
        aside.extend(back);
        items.push(Item::Steps(aside));
        let body_steps = self.finish_items(items)?;
        before.push(Step::While { test: test_steps, predicate, body: body_steps });
        Ok(before)
    }
}
