//! Maps and scans: a graph run on each element of tensors, one step after the other. Short ones are unrolled, others are loops.

use douse_core::pointwise::Binary;
use douse_core::sym::{Compare, Cond, Expr, Symbol};
use douse_core::{DType, Error, Result, Scalar};
use douse_ir::{Value, coordinates};

use super::args::{Args, Val};
use super::control::{Kind, beginning, finished, graph_at, iteration, list_at, next_round, run, types_of};
use super::importer::{Importer, Row};
use super::view::selected;

pub const ROWS: &[Row] =
    &[("higher_order.map_impl", map), ("higher_order.scan", scan), ("higher_order.associative_scan", associative_scan)];

/// The length of the first dimension that several tensors share, at least 1.
fn length(imp: &mut Importer, a: &Args, xs: &[Val]) -> Result<Expr> {
    let Some(Val::Tensor(t)) = xs.first() else { return Err(a.unsupported("a scan over no tensor")) };
    let size = imp.shape_of(*t)?.first().cloned().ok_or_else(|| a.unsupported("a scan over a number"))?;
    imp.require(Cond::compare(Compare::Ge, &size, &Expr::int(1)), format_args!("{} over nothing", a.target));
    Ok(size)
}

/// Maps and scans are unrolled up to this length.
const MOST: i64 = 4096;

/// Element `i` of each of the tensors.
fn elements(imp: &mut Importer, a: &Args, xs: &[Val], i: i64) -> Result<Vec<Val>> {
    xs.iter()
        .map(|x| match x {
            Val::Tensor(t) => selected(imp, *t, 0, &Expr::int(i)).map(Val::Tensor),
            _ => Err(a.unsupported("a scan over what is not a tensor")),
        })
        .collect()
}

/// The element of each of the tensors that a 0-d integer names.
fn elements_at(imp: &mut Importer, a: &Args, xs: &[Val], at: Value) -> Result<Vec<Val>> {
    xs.iter()
        .map(|x| match x {
            Val::Tensor(t) => {
                let (value, dtype) = (imp.read(*t)?, imp.dtype_of(*t));
                let element = imp.b.take(value, 0, at)?;
                Ok(Val::Tensor(imp.new_tensor(element, dtype)))
            }
            _ => Err(a.unsupported("a scan over what is not a tensor")),
        })
        .collect()
}

/// Results of all steps, each stacked along a new first dimension.
fn stacked(imp: &mut Importer, a: &Args, steps: &[Vec<Val>]) -> Result<Vec<Val>> {
    let width = steps.first().map_or(0, Vec::len);
    let mut results = Vec::new();
    for i in 0..width {
        let column: Vec<Val> = steps.iter().filter_map(|step| step.get(i).cloned()).collect();
        let stack =
            Args { target: "aten.stack.default".to_string(), values: vec![("tensors".to_string(), Val::List(column))] };
        results.push(imp.call(&stack).map_err(|e| e.at(a.target.clone()))?);
    }
    Ok(results)
}

/// What a step carries on, and what it gives.
type Step = (Vec<Val>, Vec<Val>);

/// A step, from what is carried and the tensors' elements.
type Function<'a> = &'a dyn Fn(&mut Importer, Vec<Val>, Vec<Val>) -> Result<Step>;

/// The steps over the tensors' elements after the first one, whose outcome is given: what the last carries, then all results, stacked.
fn steps(imp: &mut Importer, a: &Args, xs: &[Val], first: Step, step: Function) -> Result<Vec<Val>> {
    let length = length(imp, a, xs)?;
    let (mut carry, first) = first;
    let Some(known) = length.as_int().filter(|n| *n <= MOST) else {
        return looped(imp, a, xs, &length, carry, &first, step);
    };
    let mut all = vec![first];
    for i in 1..known {
        let elements = elements(imp, a, xs, i)?;
        let (next, results) = step(imp, carry, elements)?;
        carry = next;
        all.push(results);
    }
    carry.extend(stacked(imp, a, &all)?);
    Ok(carry)
}

/// As a loop, which carries the step's number, what the steps carry, and the results so far.
fn looped(
    imp: &mut Importer,
    a: &Args,
    xs: &[Val],
    length: &Expr,
    carry: Vec<Val>,
    first: &[Val],
    step: Function,
) -> Result<Vec<Val>> {
    let count = carry.len();
    let one = imp.b.full(DType::I64, vec![], Scalar::Int(1));
    let mut initial = vec![(Kind::Tensor(DType::I64), one)];
    initial.extend(beginning(imp, a, &carry)?);
    for (kind, value) in beginning(imp, a, first)? {
        let row = imp.b.unsqueeze(value, 0)?;
        let mut high = vec![Expr::int(0); imp.b.rank(row)];
        let low = high.clone();
        high[0] = length - 1;
        initial.push((kind, imp.b.pad(row, &low, &high, Scalar::Int(0))?));
    }
    let types = types_of(imp, &initial);
    let kinds: Vec<Kind> = initial.iter().map(|(k, _)| *k).collect();
    let number = |imp: &mut Importer, inputs: &[Val]| match inputs.first() {
        Some(Val::Tensor(t)) => imp.read(*t),
        _ => Err(Error::internal("a loop without its number")),
    };
    let test = iteration(imp, a, &kinds, &types, |imp, inputs| {
        let at = number(imp, &inputs)?;
        let end = imp.b.size_value(length.clone());
        Ok(vec![imp.b.binary(Binary::Lt, at, end)?])
    })?;
    let body = iteration(imp, a, &kinds, &types, |imp, mut inputs| {
        let at = number(imp, &inputs)?;
        let elements = elements_at(imp, a, xs, at)?;
        let so_far = inputs.split_off(1 + count);
        let (next, results) = step(imp, inputs.split_off(1), elements)?;
        let mut values = vec![imp.b.binary_scalar(Binary::Add, at, Scalar::Int(1))?];
        values.extend(next_round(imp, a, &next, &types[1..1 + count])?);
        let shapes: Vec<_> = types[1 + count..].iter().map(|(d, s)| (*d, s[1..].to_vec())).collect();
        let results = next_round(imp, a, &results, &shapes)?;
        for (all, result) in so_far.iter().zip(results) {
            let Val::Tensor(all) = all else { return Err(a.unsupported("a result that is not a tensor")) };
            let (all, shape) = (imp.read(*all)?, imp.b.shape(result).to_vec());
            let at = imp.b.expand(at, shape.clone())?;
            let mut map = vec![Expr::symbol(Symbol::Value(0))];
            map.extend(coordinates(shape.len()));
            values.push(imp.b.scatter(all, result, &[at], map, None)?);
        }
        Ok(values)
    })?;
    let mut values = finished(imp, (test, body), &initial, types)?;
    values.remove(0);
    Ok(values)
}

fn map(imp: &mut Importer, a: &Args) -> Result<Val> {
    let graph = graph_at(a, 0)?.clone();
    let (xs, extra) = (list_at(a, 1), list_at(a, 2));
    let step = |imp: &mut Importer, _: Vec<Val>, elements: Vec<Val>| {
        Ok((vec![], run(imp, a, &graph, &[elements, extra.clone()].concat())?))
    };
    let first = elements(imp, a, &xs, 0)?;
    let first = step(imp, vec![], first)?;
    steps(imp, a, &xs, first, &step).map(Val::List)
}

/// Operands: the function, initial carries, tensors to scan, what it only reads. The function gives the next carries and a step's results.
fn scan(imp: &mut Importer, a: &Args) -> Result<Val> {
    let graph = graph_at(a, 0)?.clone();
    let (carry, xs, extra) = (list_at(a, 1), list_at(a, 2), list_at(a, 3));
    let step = |imp: &mut Importer, carry: Vec<Val>, elements: Vec<Val>| {
        let count = carry.len();
        let mut outputs = run(imp, a, &graph, &[carry, elements, extra.clone()].concat())?;
        if outputs.len() < count {
            return Err(Error::invalid_program("scan: the function gives fewer results than it carries"));
        }
        let results = outputs.split_off(count);
        Ok((outputs, results))
    };
    let first = elements(imp, a, &xs, 0)?;
    let first = step(imp, carry, first)?;
    steps(imp, a, &xs, first, &step).map(Val::List)
}

/// Every prefix of the tensors, combined from the left.
fn associative_scan(imp: &mut Importer, a: &Args) -> Result<Val> {
    let graph = graph_at(a, 0)?.clone();
    let (xs, extra) = (list_at(a, 1), list_at(a, 2));
    let step = |imp: &mut Importer, before: Vec<Val>, elements: Vec<Val>| {
        let outputs = run(imp, a, &graph, &[before, elements, extra.clone()].concat())?;
        Ok((outputs.clone(), outputs))
    };
    let first = elements(imp, a, &xs, 0)?;
    let mut all = steps(imp, a, &xs, (first.clone(), first), &step)?;
    Ok(Val::List(all.split_off(xs.len())))
}
