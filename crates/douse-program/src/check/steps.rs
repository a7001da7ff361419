//! Steps: arguments, writes, and symbols that are known when they are used.

use std::collections::BTreeSet;

use douse_core::{DType, Result};

use super::library::Checker as LibraryChecker;
use super::scope::Scope;
use super::signature::known_at_start;
use super::{NESTING, entry, fault};
use crate::kernel::{Access, Effect, Kernel, Op};
use crate::library::Library;
use crate::plan::{BufferId, BufferKind, InputKind, OutputKind, Plan, Predicate, Step, SymbolSource};

pub fn check(plan: &Plan) -> Result<()> {
    let mentioned = plan.kernels.iter().map(Kernel::symbols).collect();
    let mut checker = Checker { plan, known: known_at_start(plan), mentioned };
    checker.steps(&plan.steps, 0).map_err(|e| e.at("steps"))?;
    // What is returned is computed from symbols that the whole run has set.
    for (i, output) in plan.outputs.iter().enumerate() {
        let scope = Scope::of_sizes(&checker.known);
        let checked = match &output.kind {
            OutputKind::Tensor { sizes, strides, buffer, .. } => {
                scope.exprs(sizes.iter().chain(strides)).and_then(|()| checker.buffer(*buffer))
            }
            OutputKind::Int(expr) => scope.expr(expr),
            OutputKind::Bool(cond) => scope.cond(cond),
            OutputKind::Number { buffer, .. } => checker.buffer(*buffer),
            OutputKind::Fixed(_) => Ok(()),
        };
        checked.map_err(|e| e.at(format!("outputs[{i}] ({})", output.name)))?;
    }
    Ok(())
}

struct Checker<'a> {
    plan: &'a Plan,
    /// The symbols that have a value by now. A symbol set in one branch counts as set after it: which branch is
    /// taken is known only when running, and an executor refuses to read what has no value.
    known: Vec<bool>,
    /// The sizes that each kernel mentions.
    mentioned: Vec<BTreeSet<u32>>,
}

impl Checker<'_> {
    fn steps(&mut self, steps: &[Step], depth: usize) -> Result<()> {
        if depth >= NESTING {
            return fault(format!("nested {NESTING} deep"));
        }
        for (i, step) in steps.iter().enumerate() {
            self.step(step, depth).map_err(|e| e.at(format!("[{i}]")))?;
        }
        Ok(())
    }

    /// A buffer in use: its size must be known by now.
    fn buffer(&self, id: BufferId) -> Result<()> {
        let buffer = entry(&self.plan.buffers, id, "buffer")?;
        Scope::of_sizes(&self.known).expr(&buffer.elements).map_err(|e| e.at(format!("size of buffer {id}")))
    }

    fn written(&self, id: BufferId) -> Result<()> {
        self.buffer(id)?;
        match &entry(&self.plan.buffers, id, "buffer")?.kind {
            BufferKind::Constant(_) => fault(format!("buffer {id}, a constant, is written")),
            BufferKind::Input(input) => match self.plan.inputs.get(*input as usize).map(|i| &i.kind) {
                Some(InputKind::Tensor { written: true, .. }) => Ok(()),
                _ => fault(format!("buffer {id}, input {input}, is written though it should only be read")),
            },
            BufferKind::Output(_) | BufferKind::State { .. } | BufferKind::Temporary => Ok(()),
        }
    }

    fn set(&mut self, symbol: u32) -> Result<()> {
        if entry(&self.plan.symbols, symbol, "symbol")?.source != SymbolSource::Step {
            return fault(format!("symbol {symbol} comes from an input and is set by a step"));
        }
        if let Some(known) = self.known.get_mut(symbol as usize) {
            *known = true;
        }
        Ok(())
    }

    fn step(&mut self, step: &Step, depth: usize) -> Result<()> {
        match step {
            Step::Kernel { kernel, args } => self.launch(*kernel, args),
            Step::Library(library) => {
                let (read, written) = library.buffers();
                read.iter().try_for_each(|id| self.buffer(*id))?;
                written.iter().try_for_each(|id| self.written(*id))?;
                LibraryChecker { plan: self.plan, scope: Scope::of_sizes(&self.known) }.check(library)?;
                if let crate::library::Library::Nonzero { symbol, .. } = library {
                    self.set(*symbol)?;
                }
                Ok(())
            }
            Step::Fused { library, kernel, args } => {
                self.step(&Step::Library(library.clone()), depth)?;
                self.launch(*kernel, args)?;
                self.epilogue(library, *kernel, args).map_err(|e| e.at("epilogue"))
            }
            Step::Together(steps) => {
                for (i, step) in steps.iter().enumerate() {
                    if !matches!(
                        step,
                        Step::Library(Library::MatMul { .. } | Library::Convolution(_)) | Step::Fused { .. }
                    ) {
                        return fault("a step that is no product or convolution stands together with others");
                    }
                    self.step(step, depth + 1).map_err(|e| e.at(format!("[{i}]")))?;
                    let (_, written) = self.touched(step)?;
                    for (other, step) in steps.iter().enumerate().filter(|(other, _)| *other != i) {
                        let (used, _) = self.touched(step)?;
                        if written.iter().any(|id| used.contains(id)) {
                            return fault(format!("[{i}] writes what [{other}] uses"));
                        }
                    }
                }
                Ok(())
            }
            Step::Copy { from, to } => {
                self.buffer(*from)?;
                self.written(*to)?;
                let (from, to) =
                    (entry(&self.plan.buffers, *from, "buffer")?, entry(&self.plan.buffers, *to, "buffer")?);
                if from.dtype != to.dtype {
                    return fault(format!("a copy of {} to {}", from.dtype, to.dtype));
                }
                Ok(())
            }
            Step::Read { buffer, symbol } => {
                self.buffer(*buffer)?;
                let dtype = entry(&self.plan.buffers, *buffer, "buffer")?.dtype;
                if !dtype.is_int() && !dtype.is_bool() {
                    return fault(format!("a symbol read from {dtype}"));
                }
                self.set(*symbol)
            }
            Step::Set { symbol, value } => {
                Scope::of_sizes(&self.known).expr(value)?;
                self.set(*symbol)
            }
            Step::Require { cond, message } => {
                entry(&self.plan.messages, *message, "message")?;
                Scope::of_sizes(&self.known).cond(cond)
            }
            Step::If { predicate, then, otherwise } => {
                self.predicate(predicate)?;
                let before = self.known.clone();
                self.steps(then, depth + 1).map_err(|e| e.at("then"))?;
                let after = std::mem::replace(&mut self.known, before);
                self.steps(otherwise, depth + 1).map_err(|e| e.at("otherwise"))?;
                self.known.iter_mut().zip(after).for_each(|(known, then)| *known |= then);
                Ok(())
            }
            Step::While { test, predicate, body } => {
                self.steps(test, depth + 1).map_err(|e| e.at("test"))?;
                self.predicate(predicate)?;
                self.steps(body, depth + 1).map_err(|e| e.at("body"))
            }
        }
    }

    fn predicate(&self, predicate: &Predicate) -> Result<()> {
        match predicate {
            Predicate::Cond(cond) => Scope::of_sizes(&self.known).cond(cond),
            Predicate::Buffer(id) => {
                self.buffer(*id)?;
                let dtype = entry(&self.plan.buffers, *id, "buffer")?.dtype;
                if dtype == DType::Bool { Ok(()) } else { fault(format!("a predicate of {dtype}")) }
            }
        }
    }

    fn launch(&self, number: u32, args: &[BufferId]) -> Result<()> {
        let kernel = entry(&self.plan.kernels, number, "kernel")?;
        if args.len() != kernel.params.len() {
            return fault(format!("{} arguments for {} parameters", args.len(), kernel.params.len()));
        }
        if let Some(unknown) =
            entry(&self.mentioned, number, "kernel")?.iter().find(|n| self.known.get(**n as usize) != Some(&true))
        {
            return fault(format!("kernel {} needs s{unknown}, which is not known here", kernel.name));
        }
        for (i, (arg, param)) in args.iter().zip(&kernel.params).enumerate() {
            let check = || {
                if param.access == Access::Read {
                    self.buffer(*arg)?
                } else {
                    self.written(*arg)?
                }
                let dtype = entry(&self.plan.buffers, *arg, "buffer")?.dtype;
                if dtype == param.dtype { Ok(()) } else { fault(format!("{dtype} given, {} declared", param.dtype)) }
            };
            check().map_err(|e| e.at(format!("argument {i} of {}", kernel.name)))?;
        }
        Ok(())
    }

    /// What a product uses, and what of that it writes.
    fn touched(&self, step: &Step) -> Result<(Vec<BufferId>, Vec<BufferId>)> {
        let (mut used, mut written) = (step.buffers(), Vec::new());
        match step {
            Step::Library(library) => written = library.buffers().1,
            Step::Fused { library, kernel, args } => {
                written = library.buffers().1;
                written.extend(entry(&self.plan.kernels, *kernel, "kernel")?.written(args));
            }
            _ => used.clear(),
        }
        Ok((used, written))
    }

    /// What [`Step::Fused`] says of its parts.
    fn epilogue(&self, library: &Library, number: u32, args: &[BufferId]) -> Result<()> {
        let out = match library {
            Library::MatMul { out, .. } => out,
            Library::Convolution(convolution) => &convolution.out,
            _ => return fault("a library step that has no epilogues"),
        };
        let kernel = entry(&self.plan.kernels, number, "kernel")?;
        let [stage] = kernel.stages.as_slice() else { return fault("several stages") };
        if kernel.outer != out.sizes || !stage.inner.is_empty() || kernel.ordered {
            return fault("loops that are not the dimensions of the result");
        }
        let read = library.buffers().0;
        let mut result = None;
        for (number, (arg, param)) in (0u32..).zip(args.iter().zip(&kernel.params)) {
            match param.access {
                Access::Read if *arg == out.buffer && result.is_some() => return fault("the result is given twice"),
                Access::Read if *arg == out.buffer => result = Some(number),
                Access::Read => {}
                _ if *arg == out.buffer || read.contains(arg) => {
                    return fault(format!("buffer {arg} of the product is written"));
                }
                _ => {}
            }
        }
        let place = out.at_loops();
        let others = stage.body.iter().any(|inst| match &inst.op {
            Op::Load { param, index, guard, .. } => Some(*param) == result && (*index != place || guard.is_some()),
            Op::Check { .. } | Op::Random { .. } => true,
            _ => false,
        });
        let stores = stage.effects.iter().all(|effect| matches!(effect, Effect::Store { .. }));
        if result.is_none() || others || !stores {
            return fault("a kernel that does more than to read each element of the result and to store");
        }
        Ok(())
    }
}
