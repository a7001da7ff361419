//! Kernels that are written at once: copies, pieces of concatenations, scatters, checks.

use douse_core::sym::Expr;
use douse_core::{Error, Result};
use douse_ir::{OriginId, Value};
use douse_program::kernel::{Access, Effect, Inst, Kernel, Op, Param, Reg, Stage};
use douse_program::plan::{BufferId, Step};

use super::Planner;
use crate::fuse::finish::Params;
use crate::fuse::member::{Emitter, Proto, ProtoOp, loops_over};

/// A kernel of one stage without inner loops, while its effects are added.
pub(super) struct Single {
    pub loops: Vec<Expr>,
    pub body: Vec<Inst>,
    pub params: Params,
    /// Parameters that are buffers and not values, after those of `params`.
    extra: Vec<(Param, BufferId)>,
    pub effects: Vec<Effect>,
    pub origins: Vec<OriginId>,
    pub ordered: bool,
}

impl Planner<'_> {
    /// Builds the body over loops with `emit`, which returns registers; reads become loads.
    pub(super) fn single<T>(
        &mut self,
        loops: Vec<Expr>,
        emit: impl FnOnce(&mut Emitter) -> Result<T>,
    ) -> Result<(Single, T)> {
        let graph = &self.module.graph;
        let mut emitter = Emitter::new(graph, &self.definitions, &self.fates, &self.ranges, &loops);
        let result = emit(&mut emitter)?;
        let (protos, origins) = (emitter.body, emitter.origins);
        let scope = self.ranges.with_loops(&loops);
        let mut params = Params::default();
        let mut body = Vec::with_capacity(protos.len());
        for Proto { op, dtype } in protos {
            let op = match op {
                ProtoOp::Core(op) => op,
                ProtoOp::Read { value, at, guard } => {
                    let index = self.layouts.linear(graph, value, &at, &scope);
                    let param = params.add(value, graph.dtype(value), Access::Read);
                    Op::Load { param, index, guard }
                }
            };
            body.push(Inst { op, dtype });
        }
        let single = Single { loops, body, params, extra: vec![], effects: vec![], origins, ordered: false };
        Ok((single, result))
    }

    /// Turns what was built into a kernel and its step.
    pub(super) fn finish_single(&mut self, single: Single, verb: &str) -> Step {
        let mut args: Vec<BufferId> = single.params.values.iter().map(|v| self.buffer(*v)).collect();
        let mut params = single.params.params;
        for (param, buffer) in single.extra {
            params.push(param);
            args.push(buffer);
        }
        let kernel = Kernel {
            name: String::new(),
            params,
            outer: single.loops,
            stages: vec![Stage { inner: vec![], body: single.body, effects: single.effects }],
            locals: vec![],
            ordered: single.ordered,
            comment: vec![],
        };
        self.add_kernel(kernel, args, &single.origins, verb)
    }

    /// Names a kernel after its nodes and adds it. A buffer that is several parameters becomes one.
    pub(super) fn add_kernel(
        &mut self,
        mut kernel: Kernel,
        args: Vec<BufferId>,
        origins: &[OriginId],
        verb: &str,
    ) -> Step {
        let args = merge_params(&mut kernel, args);
        let mut words: Vec<&str> = Vec::new();
        for origin in origins.iter().filter_map(|o| self.module.origin(*o)) {
            let word = origin.target.split('.').nth(1).unwrap_or(&origin.target).trim_matches('_');
            if words.last() != Some(&word) && words.len() < 4 && !word.is_empty() {
                words.push(word);
            }
            let line = origin.line.as_deref().map_or(String::new(), |l| format!("  {l}"));
            let comment = format!("{} = {}{line}", origin.node, origin.target);
            if !kernel.comment.contains(&comment) {
                kernel.comment.push(comment);
            }
        }
        if !verb.is_empty() {
            words.push(verb);
        }
        let base = if words.is_empty() { "kernel".to_string() } else { words.join("_") };
        let n = self.names.entry(base.clone()).or_insert(0);
        kernel.name = if *n == 0 { base } else { format!("{base}_{n}") };
        *n += 1;
        self.kernels.push(kernel);
        Step::Kernel { kernel: (self.kernels.len() - 1) as u32, args }
    }

    /// A kernel that writes a value's elements into a buffer with these strides and offset.
    pub(super) fn copy_into(
        &mut self,
        value: Value,
        buffer: BufferId,
        strides: &[Expr],
        offset: &Expr,
    ) -> Result<Step> {
        let mut loops = Vec::new();
        let (at, _) = loops_over(self.module.graph.shape(value), &mut loops);
        let (mut single, reg) = self.single(loops, |e| e.element(value, &at, None))?;
        let index = at.iter().zip(strides).fold(offset.clone(), |sum, (i, s)| &sum + &(i * s));
        self.write_to(&mut single, buffer, index, reg)?;
        Ok(self.finish_single(single, "copy"))
    }

    /// Adds a store into a buffer.
    pub(super) fn write_to(&mut self, single: &mut Single, buffer: BufferId, index: Expr, value: Reg) -> Result<()> {
        let scope = self.ranges.with_loops(&single.loops);
        let param = self.extra_param(single, buffer, Access::Write)?;
        single.effects.push(Effect::Store { param, index: index.simplify(&scope), value, guard: None });
        Ok(())
    }

    pub(super) fn extra_param(&mut self, single: &mut Single, buffer: BufferId, access: Access) -> Result<u32> {
        let dtype = self.buffers.get(buffer as usize).ok_or_else(|| Error::internal("no such buffer"))?.dtype;
        single.extra.push((Param { dtype, access }, buffer));
        Ok((single.params.values.len() + single.extra.len() - 1) as u32)
    }
}

/// One parameter for each buffer.
fn merge_params(kernel: &mut Kernel, args: Vec<BufferId>) -> Vec<BufferId> {
    let mut unique: Vec<BufferId> = Vec::new();
    let mut params: Vec<Param> = Vec::new();
    let mut numbers = Vec::with_capacity(args.len());
    for (arg, param) in args.iter().zip(&kernel.params) {
        match unique.iter().position(|b| b == arg) {
            Some(i) => {
                if params[i].access != param.access {
                    params[i].access = Access::Update;
                }
                numbers.push(i as u32);
            }
            None => {
                numbers.push(unique.len() as u32);
                unique.push(*arg);
                params.push(*param);
            }
        }
    }
    let renumber = |p: &mut u32| *p = numbers.get(*p as usize).copied().unwrap_or(*p);
    for stage in &mut kernel.stages {
        for inst in &mut stage.body {
            if let Op::Load { param, .. } = &mut inst.op {
                renumber(param);
            }
        }
        for effect in &mut stage.effects {
            match effect {
                Effect::Store { param, .. } | Effect::Scan { param, .. } | Effect::Update { param, .. } => {
                    renumber(param)
                }
                Effect::ArgScan { param, param_position, .. } => {
                    renumber(param);
                    renumber(param_position);
                }
                Effect::Reduce { .. } | Effect::ArgReduce { .. } | Effect::Assert { .. } => {}
            }
        }
    }
    kernel.params = params;
    unique
}
