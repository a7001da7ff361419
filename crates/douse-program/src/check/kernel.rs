//! Kernels: scopes, types and accesses.

use douse_core::pointwise::Combine;
use douse_core::sym::Expr;
use douse_core::{DType, Result};

use super::scope::Scope;
use super::{RANK, entry, fault};
use crate::kernel::{Access, Effect, Inst, Kernel, Op, Reg, Stage};
use crate::plan::Plan;

pub fn check(plan: &Plan, kernel: &Kernel) -> Result<()> {
    let sizes = vec![true; plan.symbols.len()];
    Scope::of_sizes(&sizes).exprs(&kernel.outer).map_err(|e| e.at("outer"))?;
    if let Some(dtype) =
        kernel.params.iter().map(|p| p.dtype).chain(kernel.locals.iter().copied()).find(|d| d.is_complex())
    {
        return fault(format!("{dtype} in a kernel"));
    }
    let mut defined = vec![false; kernel.locals.len()];
    for (i, stage) in kernel.stages.iter().enumerate() {
        if kernel.outer.len() + stage.inner.len() > RANK {
            return fault(format!("stages[{i}]: more than {RANK} loops"));
        }
        let mut checker = Checker { plan, kernel, stage, sizes: &sizes, defined: &defined, integers: Vec::new() };
        let now = checker.stage().map_err(|e| e.at(format!("stages[{i}]")))?;
        for local in now {
            if let Some(defined) = defined.get_mut(local as usize) {
                *defined = true;
            }
        }
    }
    Ok(())
}

struct Checker<'a> {
    plan: &'a Plan,
    kernel: &'a Kernel,
    stage: &'a Stage,
    sizes: &'a [bool],
    /// Locals that earlier stages define.
    defined: &'a [bool],
    /// For each register so far, whether it is an integer.
    integers: Vec<bool>,
}

impl Checker<'_> {
    /// Checks the stage and returns the locals that it defines.
    fn stage(&mut self) -> Result<Vec<u32>> {
        Scope::of_sizes(self.sizes).exprs(&self.stage.inner).map_err(|e| e.at("inner"))?;
        for (i, inst) in self.stage.body.iter().enumerate() {
            self.inst(inst).map_err(|e| e.at(format!("body[{i}]")))?;
            self.integers.push(inst.dtype.is_int());
        }
        let mut locals = Vec::new();
        for (i, effect) in self.stage.effects.iter().enumerate() {
            self.effect(effect, &mut locals).map_err(|e| e.at(format!("effects[{i}]")))?;
        }
        Ok(locals)
    }

    /// The dtype of a register that is already defined.
    fn reg(&self, reg: Reg) -> Result<DType> {
        match self.stage.body.get(reg as usize) {
            Some(inst) if (reg as usize) < self.integers.len() => Ok(inst.dtype),
            _ => fault(format!("register {reg} is not defined here")),
        }
    }

    fn want(&self, reg: Reg, dtype: DType) -> Result<()> {
        let found = self.reg(reg)?;
        if found == dtype { Ok(()) } else { fault(format!("register {reg} is {found}, expected {dtype}")) }
    }

    fn guard(&self, guard: Option<Reg>) -> Result<()> {
        guard.map_or(Ok(()), |reg| self.want(reg, DType::Bool).map_err(|e| e.at("guard")))
    }

    fn index(&self, index: &Expr) -> Result<()> {
        let loops = self.kernel.outer.len() + self.stage.inner.len();
        Scope { sizes: self.sizes, loops, values: &self.integers }.expr(index).map_err(|e| e.at("index"))
    }

    fn message(&self, message: u32) -> Result<()> {
        entry(&self.plan.messages, message, "message").map(|_| ())
    }

    /// The dtype of a parameter that may be accessed so.
    fn param(&self, number: u32, allowed: &[Access]) -> Result<DType> {
        let param = entry(&self.kernel.params, number, "parameter")?;
        if allowed.contains(&param.access) {
            return Ok(param.dtype);
        }
        fault(format!("parameter {number} is declared {:?}, accessed as {allowed:?}", param.access))
    }

    fn inst(&self, inst: &Inst) -> Result<()> {
        let same = |found: DType| {
            if found == inst.dtype { Ok(()) } else { fault(format!("{found} given, {} declared", inst.dtype)) }
        };
        if inst.dtype.is_complex() {
            return fault(format!("{} in a kernel", inst.dtype));
        }
        match &inst.op {
            Op::Const(_) => Ok(()),
            Op::Index(index) => {
                self.index(index)?;
                same(DType::I64)
            }
            Op::Load { param, index, guard } => {
                self.index(index)?;
                self.guard(*guard)?;
                same(self.param(*param, &[Access::Read, Access::Update])?)
            }
            Op::Local(local) => {
                let dtype = *entry(&self.kernel.locals, *local, "local")?;
                if self.defined.get(*local as usize) != Some(&true) {
                    return fault(format!("local {local} is not defined by an earlier stage"));
                }
                same(dtype)
            }
            Op::Unary(op, a) => {
                let a = self.reg(*a)?;
                if !op.takes().accepts(a) {
                    return fault(format!("{op} of {a}"));
                }
                same(op.result(a))
            }
            Op::Binary(op, a, b) => {
                let dtype = self.reg(*a)?;
                self.want(*b, dtype)?;
                if !op.takes().accepts(dtype) {
                    return fault(format!("{op} of {dtype}"));
                }
                same(op.result(dtype))
            }
            Op::Select(cond, a, b) => {
                self.want(*cond, DType::Bool)?;
                self.want(*a, inst.dtype)?;
                self.want(*b, inst.dtype)
            }
            Op::Cast(a) => self.reg(*a).map(|_| ()),
            Op::Bitcast(a) => {
                let a = self.reg(*a)?;
                if a.size() == inst.dtype.size() { Ok(()) } else { fault(format!("the bits of {a} as {}", inst.dtype)) }
            }
            Op::Check { index, size, guard, message, .. } => {
                self.want(*index, DType::I64)?;
                self.index(size)?;
                self.guard(*guard)?;
                self.message(*message)?;
                same(DType::I64)
            }
            Op::Random { index, word, .. } => {
                self.index(index)?;
                if *word > 3 {
                    return fault(format!("word {word} of a block of 4"));
                }
                same(DType::I64)
            }
        }
    }

    fn combine(&self, op: Combine, value: Reg) -> Result<DType> {
        let dtype = self.reg(value)?;
        if op.takes().accepts(dtype) { Ok(dtype) } else { fault(format!("{op} of {dtype}")) }
    }

    /// A value that goes into a parameter or local of this dtype.
    fn into(&self, dtype: DType, value: Reg) -> Result<()> {
        self.want(value, dtype)
    }

    fn local(&self, local: u32, dtype: DType, defines: &mut Vec<u32>) -> Result<()> {
        let found = *entry(&self.kernel.locals, local, "local")?;
        if found != dtype {
            return fault(format!("local {local} is {found}, expected {dtype}"));
        }
        if defines.contains(&local) {
            return fault(format!("local {local} is defined twice in one stage"));
        }
        defines.push(local);
        Ok(())
    }

    fn effect(&self, effect: &Effect, defines: &mut Vec<u32>) -> Result<()> {
        let written = &[Access::Write, Access::Update];
        match effect {
            Effect::Store { param, index, value, guard } => {
                self.index(index)?;
                self.guard(*guard)?;
                self.into(self.param(*param, written)?, *value)
            }
            Effect::Reduce { op, value, local } => self.local(*local, self.combine(*op, *value)?, defines),
            Effect::ArgReduce { value, position, local, local_position, .. } => {
                self.want(*position, DType::I64)?;
                self.local(*local, self.reg(*value)?, defines)?;
                self.local(*local_position, DType::I64, defines)
            }
            Effect::Scan { op, value, param, index } => {
                self.scan(index)?;
                self.combine(*op, *value)?;
                self.into(self.param(*param, written)?, *value)
            }
            Effect::ArgScan { value, position, param, param_position, index, .. } => {
                self.scan(index)?;
                self.want(*position, DType::I64)?;
                self.into(self.param(*param, written)?, *value)?;
                self.into(self.param(*param_position, written)?, *position)
            }
            Effect::Update { op, param, index, value, guard } => {
                self.index(index)?;
                self.guard(*guard)?;
                if let Some(op) = op {
                    self.combine(*op, *value)?;
                }
                self.into(self.param(*param, &[Access::Update])?, *value)
            }
            Effect::Assert { value, message } => {
                self.message(*message)?;
                self.want(*value, DType::Bool)
            }
        }
    }

    fn scan(&self, index: &Expr) -> Result<()> {
        if self.stage.inner.is_empty() {
            return fault("a scan without an inner loop");
        }
        self.index(index)
    }
}
