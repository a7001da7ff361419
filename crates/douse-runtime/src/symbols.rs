//! The values of a call's symbols, solved from the inputs, and the checks of every size against them.

use douse_core::sym::{Expr, Symbol};
use douse_core::{Error, Result};
use douse_program::plan::{InputKind, Plan, SymbolInfo, SymbolSource};

use crate::meta::named;
use crate::value::Argument;

/// `input 0 (x)`.
pub(crate) fn place(plan: &Plan, input: usize) -> String {
    let name = plan.inputs.get(input).map_or("", |i| i.name.as_str());
    format!("input {input} ({name})")
}

pub(crate) fn eval(expr: &Expr, symbols: &[Option<i64>]) -> Option<i64> {
    expr.eval(&|symbol| match symbol {
        Symbol::Size(n) => symbols.get(n as usize).copied().flatten(),
        Symbol::Loop(_) | Symbol::Value(_) => None,
    })
}

/// Sizes or strides of an output.
pub(crate) fn counts(values: &[i64]) -> Result<Vec<usize>> {
    let count = |v: &i64| usize::try_from(*v).map_err(|_| Error::internal(format!("an output's size is {v}")));
    values.iter().map(count).collect()
}

/// Solves the symbols and checks every size, after kinds, dtypes and ranks were checked. Symbols that steps set stay `None`.
///
/// # Errors
/// `InvalidArgument`, naming the input, the dimension and both sizes.
pub(crate) fn solve(plan: &Plan, arguments: &[Argument<'_>]) -> Result<Vec<Option<i64>>> {
    let mut symbols = vec![None; plan.symbols.len()];
    for (value, info) in symbols.iter_mut().zip(&plan.symbols) {
        *value = solve_one(plan, info, arguments)?;
    }
    check_sizes(plan, arguments, &symbols)?;
    Ok(symbols)
}

fn solve_one(plan: &Plan, info: &SymbolInfo, arguments: &[Argument<'_>]) -> Result<Option<i64>> {
    match info.source {
        SymbolSource::Size { input, dim, scale, offset } => {
            let Some((_, sizes)) = arguments.get(input as usize).and_then(Argument::shape) else {
                return Err(Error::internal("a symbol's input is no tensor"));
            };
            let Some(size) = sizes.get(dim as usize).and_then(|s| i64::try_from(*s).ok()) else {
                return Err(Error::internal("a symbol's dimension is not there"));
            };
            let place = || format!("{} has size {size} in dim {dim}", place(plan, input as usize));
            let value = size.checked_sub(offset).filter(|rest| rest.checked_rem(scale) == Some(0)).map(|r| r / scale);
            let form = |value: i64| value.saturating_mul(scale).saturating_add(offset);
            let Some(value) = value else {
                let form = if offset == 0 { String::new() } else { format!(" plus {offset}") };
                return Err(Error::invalid_argument(format!("{}, expected a multiple of {scale}{form}", place())));
            };
            // A symbol's range is a range of sizes, but for the other way round where the scale is negative.
            if let Some(min) = info.min.filter(|min| value < *min) {
                let limit = if scale > 0 { "least" } else { "most" };
                return Err(Error::invalid_argument(format!("{}, expected at {limit} {}", place(), form(min))));
            }
            if let Some(max) = info.max.filter(|max| value > *max) {
                let limit = if scale > 0 { "most" } else { "least" };
                return Err(Error::invalid_argument(format!("{}, expected at {limit} {}", place(), form(max))));
            }
            Ok(Some(value))
        }
        SymbolSource::Int { input } => {
            let Some(Argument::Int(value)) = arguments.get(input as usize) else {
                return Err(Error::internal("a symbol's input is no integer"));
            };
            let place = || format!("{} is {value}", place(plan, input as usize));
            if let Some(min) = info.min.filter(|min| value < min) {
                return Err(Error::invalid_argument(format!("{}, expected at least {min}", place())));
            }
            if let Some(max) = info.max.filter(|max| value > max) {
                return Err(Error::invalid_argument(format!("{}, expected at most {max}", place())));
            }
            Ok(Some(*value))
        }
        SymbolSource::Step => Ok(None),
    }
}

fn check_sizes(plan: &Plan, arguments: &[Argument<'_>], symbols: &[Option<i64>]) -> Result<()> {
    for (number, (input, argument)) in plan.inputs.iter().zip(arguments).enumerate() {
        let (InputKind::Tensor { sizes, .. }, Some((_, found))) = (&input.kind, argument.shape()) else { continue };
        for (dim, (expected, size)) in sizes.iter().zip(found).enumerate() {
            let value = eval(expected, symbols);
            if value.is_some() && value == i64::try_from(*size).ok() {
                continue;
            }
            let place = place(plan, number);
            let wanted = match value {
                Some(value) => format!("expected {value}{}", reason(plan, expected, symbols)),
                None => format!("and the size expected there cannot be computed{}", reason(plan, expected, symbols)),
            };
            return Err(Error::invalid_argument(format!("{place} has size {size} in dim {dim}, {wanted}")));
        }
    }
    Ok(())
}

/// Where an expected size comes from: ` (2*s77 where s77 is 4, by input 0 (x))`; nothing for a constant.
fn reason(plan: &Plan, expected: &Expr, symbols: &[Option<i64>]) -> String {
    let mut mentioned = Vec::new();
    expected.visit(&mut |symbol| {
        if let Symbol::Size(n) = symbol
            && !mentioned.contains(&n)
        {
            mentioned.push(n);
        }
    });
    let sources = mentioned.iter().filter_map(|n| {
        let info = plan.symbols.get(*n as usize)?;
        let value = symbols.get(*n as usize).copied().flatten()?;
        let by = match info.source {
            SymbolSource::Size { input, dim, .. } => format!("by dim {dim} of {}", place(plan, input as usize)),
            SymbolSource::Int { input } => format!("by {}", place(plan, input as usize)),
            SymbolSource::Step => return None,
        };
        Some(format!("{} is {value}, {by}", info.name))
    });
    let sources: Vec<String> = sources.collect();
    if sources.is_empty() {
        return String::new();
    }
    let names: Vec<&str> = plan.symbols.iter().map(|s| s.name.as_str()).collect();
    format!(" ({} where {})", named(expected, &names), sources.join(", "))
}
