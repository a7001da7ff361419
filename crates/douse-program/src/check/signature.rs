//! Symbols, inputs, outputs and buffers.

use std::collections::BTreeSet;

use douse_core::sym::{Expr, Symbol};
use douse_core::{DType, Result};

use super::scope::Scope;
use super::{RANK, entry, fault};
use crate::plan::{Buffer, BufferKind, Data, Input, InputKind, Output, OutputKind, Plan, SymbolInfo, SymbolSource};

/// A bound names earlier symbols, which have bounds of their own. With all of those put in, it has at most this many symbols.
const BOUND: usize = 1000;

pub fn check(plan: &Plan) -> Result<()> {
    let mut expanded = Vec::with_capacity(plan.symbols.len());
    for symbol in &plan.symbols {
        expanded.push(symbol.bound.as_ref().map_or(1, |bound| weight(bound, &expanded)));
    }
    if let Some(i) = expanded.iter().position(|weight| *weight > BOUND) {
        return fault(format!("symbols[{i}]: its bound expands to more than {BOUND} symbols"));
    }
    for (i, symbol) in plan.symbols.iter().enumerate() {
        check_symbol(plan, i, symbol).map_err(|e| e.at(format!("symbols[{i}] ({})", symbol.name)))?;
    }
    let from_inputs = known_at_start(plan);
    for (i, input) in plan.inputs.iter().enumerate() {
        check_input(plan, i, input, &from_inputs).map_err(|e| e.at(format!("inputs[{i}] ({})", input.name)))?;
    }
    let all = vec![true; plan.symbols.len()];
    for (i, output) in plan.outputs.iter().enumerate() {
        check_output(plan, i, output, &all).map_err(|e| e.at(format!("outputs[{i}] ({})", output.name)))?;
    }
    let mut names = BTreeSet::new();
    for (i, buffer) in plan.buffers.iter().enumerate() {
        check_buffer(plan, i, buffer, &all, &mut names).map_err(|e| e.at(format!("buffers[{i}]")))?;
    }
    Ok(())
}

/// The symbols of an expression, where each stands for as many as its own bound expands to.
fn weight(expr: &Expr, symbols: &[usize]) -> usize {
    let mut total = 1usize;
    expr.visit(&mut |symbol| {
        let own = match symbol {
            Symbol::Size(n) => symbols.get(n as usize).copied(),
            _ => None,
        };
        total = total.saturating_add(own.unwrap_or(1));
    });
    total
}

/// The symbols whose values the inputs give, by number.
pub fn known_at_start(plan: &Plan) -> Vec<bool> {
    plan.symbols.iter().map(|s| s.source != SymbolSource::Step).collect()
}

fn check_symbol(plan: &Plan, number: usize, symbol: &SymbolInfo) -> Result<()> {
    match symbol.source {
        SymbolSource::Size { input, dim, scale, .. } => {
            let InputKind::Tensor { sizes, .. } = &entry(&plan.inputs, input, "input")?.kind else {
                return fault(format!("its source, input {input}, is no tensor"));
            };
            entry(sizes, dim, "dimension")?;
            if scale == 0 {
                return fault("a size of 0 times the symbol");
            }
        }
        SymbolSource::Int { input } => {
            if entry(&plan.inputs, input, "input")?.kind != InputKind::Int {
                return fault(format!("its source, input {input}, is no integer"));
            }
        }
        SymbolSource::Step => {}
    }
    if let (Some(min), Some(max)) = (symbol.min, symbol.max)
        && min > max
    {
        return fault(format!("a range from {min} to {max}"));
    }
    let earlier: Vec<bool> = (0..plan.symbols.len()).map(|i| i < number).collect();
    symbol.bound.iter().try_for_each(|bound| Scope::of_sizes(&earlier).expr(bound)).map_err(|e| e.at("bound"))
}

/// Sizes and strides of an input or output, and its buffer, which must be of the kind that refers back to it.
fn check_tensor(
    plan: &Plan,
    dtype: DType,
    sizes: &[Expr],
    strides: &[Expr],
    buffer: u32,
    kind: &BufferKind,
    known: &[bool],
) -> Result<()> {
    if sizes.len() != strides.len() || sizes.len() > RANK {
        return fault(format!("{} sizes and {} strides", sizes.len(), strides.len()));
    }
    Scope::of_sizes(known).exprs(sizes.iter().chain(strides))?;
    check_own_buffer(plan, dtype, buffer, kind)
}

fn check_own_buffer(plan: &Plan, dtype: DType, buffer: u32, kind: &BufferKind) -> Result<()> {
    let own = entry(&plan.buffers, buffer, "buffer")?;
    if own.dtype != dtype.real() {
        return fault(format!("{dtype} in a buffer of {}", own.dtype));
    }
    if own.kind != *kind {
        return fault(format!("buffer {buffer} is not of kind {kind:?}"));
    }
    Ok(())
}

fn check_input(plan: &Plan, number: usize, input: &Input, known: &[bool]) -> Result<()> {
    let own = BufferKind::Input(number as u32);
    match &input.kind {
        InputKind::Tensor { dtype, sizes, strides, buffer, .. } => {
            check_tensor(plan, *dtype, sizes, strides, *buffer, &own, known)
        }
        InputKind::Number { dtype, buffer } => {
            if !matches!(dtype, DType::F64 | DType::Bool) {
                return fault(format!("a number as {dtype}"));
            }
            check_own_buffer(plan, *dtype, *buffer, &own)?;
            check_one_element(plan, *buffer)
        }
        InputKind::Int | InputKind::Fixed(_) => Ok(()),
    }
}

fn check_one_element(plan: &Plan, buffer: u32) -> Result<()> {
    if entry(&plan.buffers, buffer, "buffer")?.elements.is_int(1) {
        return Ok(());
    }
    fault(format!("buffer {buffer} should have one element"))
}

fn check_output(plan: &Plan, number: usize, output: &Output, known: &[bool]) -> Result<()> {
    match &output.kind {
        OutputKind::Tensor { dtype, sizes, strides, buffer } => {
            let own = BufferKind::Output(number as u32);
            check_tensor(plan, *dtype, sizes, strides, *buffer, &own, known)
        }
        OutputKind::Number { dtype, buffer } => {
            if entry(&plan.buffers, *buffer, "buffer")?.dtype != *dtype {
                return fault(format!("{dtype} in a buffer of another dtype"));
            }
            check_one_element(plan, *buffer)
        }
        OutputKind::Int(expr) => Scope::of_sizes(known).expr(expr),
        OutputKind::Bool(cond) => Scope::of_sizes(known).cond(cond),
        OutputKind::Fixed(_) => Ok(()),
    }
}

fn check_buffer<'a>(
    plan: &'a Plan,
    number: usize,
    buffer: &'a Buffer,
    known: &[bool],
    names: &mut BTreeSet<&'a str>,
) -> Result<()> {
    if buffer.dtype.is_complex() {
        return fault(format!("a buffer of {}", buffer.dtype));
    }
    Scope::of_sizes(known).expr(&buffer.elements)?;
    if buffer.elements.as_int().is_some_and(|n| n < 0) {
        return fault(format!("{} elements", buffer.elements));
    }
    match &buffer.kind {
        BufferKind::Input(input) => {
            let own = match &entry(&plan.inputs, *input, "input")?.kind {
                InputKind::Tensor { buffer, .. } | InputKind::Number { buffer, .. } => Some(*buffer as usize),
                InputKind::Int | InputKind::Fixed(_) => None,
            };
            if own != Some(number) {
                return fault(format!("input {input} has another buffer"));
            }
        }
        BufferKind::Output(output) => match &entry(&plan.outputs, *output, "output")?.kind {
            OutputKind::Tensor { buffer, .. } if *buffer as usize == number => {}
            _ => return fault(format!("output {output} has another buffer")),
        },
        BufferKind::State { name, initial } => {
            if !names.insert(name) {
                return fault(format!("the state {name} a second time"));
            }
            check_data(buffer, initial)?;
        }
        BufferKind::Constant(data) => check_data(buffer, data)?,
        BufferKind::Temporary => {}
    }
    Ok(())
}

/// The bytes of a buffer whose size is fixed.
pub fn byte_size(buffer: &Buffer) -> Option<u64> {
    u64::try_from(buffer.elements.as_int()?).ok()?.checked_mul(buffer.dtype.size() as u64)
}

fn check_data(buffer: &Buffer, data: &Data) -> Result<()> {
    let Some(expected) = byte_size(buffer) else {
        return fault(format!("data for {} elements", buffer.elements));
    };
    match data {
        Data::Inline(bytes) if bytes.len() as u64 != expected => {
            fault(format!("{} bytes of data where {expected} are needed", bytes.len()))
        }
        Data::Zeros(bytes) if *bytes != expected => fault(format!("{bytes} zero bytes where {expected} are needed")),
        _ => Ok(()),
    }
}
