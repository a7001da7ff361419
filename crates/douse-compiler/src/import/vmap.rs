//! `torch.vmap`: what stands between adding a batch dimension and removing it runs once for each element of the batch.
//!
//! A tensor of which one level of vmap hides a dimension is a list of tensors, one for each element ([`Val::Batched`]); of several levels, the
//! outermost is the outer list. An operator that is given such a list runs on each element ([`Importer::call`]).
//!
//! A batch of no elements (the last step of an associative scan, say) runs on one of zeros, for the shapes and dtypes of its results; it is left out where
//! the batch ends.

use douse_core::sym::Expr;
use douse_core::{Error, Result};

use super::args::{Args, Val};
use super::importer::{Importer, Row};
use super::view::selected;

pub const ROWS: &[Row] = &[
    ("torch._functorch.predispatch._vmap_increment_nesting", enter),
    ("torch._functorch.predispatch._add_batch_dim", add),
    (REMOVE, remove),
];

const REMOVE: &str = "torch._functorch.predispatch._remove_batch_dim";

/// How many operators on elements a program may become.
const MOST: usize = 100_000;

/// The outermost level that hides a dimension of an argument.
fn outermost(val: &Val) -> Option<i64> {
    match val {
        Val::Batched(level, _) => Some(*level),
        Val::List(list) => list.iter().filter_map(outermost).min(),
        _ => None,
    }
}

/// The number of elements of a level.
fn count(val: &Val, level: i64) -> Option<usize> {
    match val {
        Val::Batched(own, all) if *own == level => Some(all.len()),
        Val::List(list) => list.iter().find_map(|val| count(val, level)),
        _ => None,
    }
}

/// An argument for the `i`-th element of a level.
fn element(val: &Val, level: i64, i: usize) -> Val {
    match val {
        Val::Batched(own, all) if *own == level => all.get(i).cloned().unwrap_or(Val::None),
        Val::List(list) => Val::List(list.iter().map(|val| element(val, level, i)).collect()),
        other => other.clone(),
    }
}

impl Importer {
    /// The results of an operator on each element of the outermost level among its arguments; `None` where there is no such level, or where the
    /// operator ends it.
    pub(super) fn batched(&mut self, a: &Args) -> Result<Option<Val>> {
        let Some(level) = a.values.iter().filter_map(|(_, val)| outermost(val)).min() else { return Ok(None) };
        if a.target == REMOVE && matches!(a.values.get(1), Some((_, Val::Int(own))) if own.is_int(level)) {
            return Ok(None);
        }
        let count = a.values.iter().find_map(|(_, val)| count(val, level)).unwrap_or(0);
        let mut results = Vec::with_capacity(count);
        for i in 0..count {
            self.vmapped += 1;
            if self.vmapped > MOST {
                return Err(a.unsupported("vmap over so many elements"));
            }
            let values = a.values.iter().map(|(name, val)| (name.clone(), element(val, level, i))).collect();
            let result = self.call(&Args { target: a.target.clone(), values })?;
            results.push(self.named(result)?);
        }
        joined(a, level, results).map(Some)
    }

    /// New values as tensors of the program.
    pub(super) fn named(&mut self, val: Val) -> Result<Val> {
        Ok(match val {
            Val::Value(v) => {
                let dtype = self.b.dtype(v);
                Val::Tensor(self.new_tensor(v, dtype))
            }
            Val::Complex(v) => {
                let dtype = self.b.dtype(v);
                let dtype = dtype.complex().ok_or_else(|| Error::internal("a complex tensor of integers"))?;
                Val::Tensor(self.new_tensor(v, dtype))
            }
            Val::List(list) => Val::List(list.into_iter().map(|v| self.named(v)).collect::<Result<_>>()?),
            other => other,
        })
    }
}

/// The results of all elements as one.
fn joined(a: &Args, level: i64, results: Vec<Val>) -> Result<Val> {
    match results.first() {
        Some(Val::List(first)) => {
            let column = |i: usize| {
                let all = results.iter().map(|result| match result {
                    Val::List(list) => list.get(i).cloned().unwrap_or(Val::None),
                    _ => Val::None,
                });
                joined(a, level, all.collect())
            };
            (0..first.len()).map(column).collect::<Result<_>>().map(Val::List)
        }
        Some(Val::Tensor(_) | Val::Batched(..)) => Ok(Val::Batched(level, results)),
        // Sizes are the same for all.
        Some(Val::Int(first)) if results.iter().all(|r| matches!(r, Val::Int(e) if e == first)) => {
            Ok(Val::Int(first.clone()))
        }
        Some(Val::None) | None => Ok(Val::None),
        _ => Err(a.unsupported("a number of each element of vmap")),
    }
}

fn argument(a: &Args, at: usize) -> Result<&Val> {
    a.values.get(at).map(|(_, val)| val).ok_or_else(|| a.unsupported("another number of arguments"))
}

fn integer(a: &Args, at: usize) -> Result<i64> {
    match argument(a, at)? {
        Val::Int(e) => e.as_int().ok_or_else(|| a.unsupported("a size known only at run time")),
        _ => Err(a.unsupported("other arguments")),
    }
}

/// The elements of a batch of this size.
fn elements(a: &Args, size: i64) -> Result<usize> {
    let size = usize::try_from(size).ok().filter(|size| *size <= MOST);
    size.ok_or_else(|| a.unsupported("vmap over so many elements"))
}

/// The size of the batch, and what random operators do.
fn enter(_: &mut Importer, a: &Args) -> Result<Val> {
    match argument(a, 1)? {
        Val::Str(randomness) if randomness == "error" => Ok(Val::None),
        _ => Err(a.unsupported("vmap with random numbers")),
    }
}

/// A tensor, the dimension to hide, and the level that hides it.
fn add(imp: &mut Importer, a: &Args) -> Result<Val> {
    let Val::Tensor(t) = *argument(a, 0)? else { return Err(a.unsupported("what is not a tensor")) };
    let shape = imp.shape_of(t)?;
    let dim = imp.dim(a, integer(a, 1)?, shape.len())?;
    let size = shape.get(dim).and_then(Expr::as_int);
    let size = size.ok_or_else(|| a.unsupported("vmap over a size known only at run time"))?;
    if size == 0 {
        let rest = shape.into_iter().enumerate().filter(|(d, _)| *d != dim).map(|(_, size)| Val::Int(size)).collect();
        let values = vec![("self".to_string(), Val::Tensor(t)), ("size".to_string(), Val::List(rest))];
        let zeros = imp.call(&Args { target: "aten.new_zeros.default".to_string(), values })?;
        return Ok(Val::Batched(integer(a, 2)?, vec![imp.named(zeros)?]));
    }
    let all = (0..elements(a, size)? as i64)
        .map(|i| selected(imp, t, dim, &Expr::int(i)).map(Val::Tensor))
        .collect::<Result<_>>()?;
    Ok(Val::Batched(integer(a, 2)?, all))
}

/// A tensor, the level that ends, its size, and the dimension that the elements go along. What has no such dimension is repeated.
fn remove(imp: &mut Importer, a: &Args) -> Result<Val> {
    let (size, dim) = (integer(a, 2)?, integer(a, 3)?);
    let all = match argument(a, 0)? {
        Val::Batched(_, all) => all.clone(),
        other => vec![other.clone(); elements(a, size)?.max(1)],
    };
    let stack = vec![("tensors".to_string(), Val::List(all)), ("dim".to_string(), Val::Int(Expr::int(dim)))];
    let stacked = imp.call(&Args { target: "aten.stack.default".to_string(), values: stack })?;
    if size > 0 {
        return Ok(stacked);
    }
    let values = vec![
        ("self".to_string(), imp.named(stacked)?),
        ("dim".to_string(), Val::Int(Expr::int(dim))),
        ("start".to_string(), Val::Int(Expr::int(0))),
        ("length".to_string(), Val::Int(Expr::int(0))),
    ];
    imp.call(&Args { target: "aten.narrow.default".to_string(), values })
}
