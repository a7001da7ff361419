//! Masked copies: `out[mask] = src[mask]` without a count.
//!
//! Import writes a mask index as the coordinates of the mask's true elements, whose number only a host read gives. Where all
//! that is done with the coordinates of a mask is to pick at them and to put what was picked back at them, the whole is a select.

mod lift;
mod readers;

use douse_core::Result;
use douse_core::sym::{Expr, Symbol};
use douse_core::{DType, Scalar};
use douse_ir::{Builder, Graph, Module, Node, NodeId, Op, Value};

use self::lift::{Piece, Planner};
use super::Context;
use super::rebuild::{Action, Place, Visit, rebuild};

/// scatter(base, f(src[nonzero(mask)]) at nonzero(mask)) = select(mask, f(src), base)
///
/// where `f` is pointwise, nothing is accumulated, and nothing else reads the coordinates, their number or what was picked.
pub(super) fn masked_copy(module: &mut Module, context: &mut Context<'_>) -> Result<()> {
    let scatters = readers::convertible(module);
    if scatters.is_empty() {
        return Ok(());
    }
    rebuild(module, &mut State { scatters, context })
}

struct State<'a, 'b> {
    /// By the old module's numbers, ascending.
    scatters: Vec<NodeId>,
    context: &'a mut Context<'b>,
}

impl Visit for State<'_, '_> {
    fn node(&mut self, builder: &mut Builder, node: &Node, place: &Place) -> Result<Action> {
        if self.scatters.binary_search(&place.id).is_err() || !self.context.may() {
            return Ok(Action::Keep);
        }
        let Some(copy) = Copy::of(&*builder, node) else { return Ok(Action::Keep) };
        let Some((pieces, root)) = Planner::plan(&*builder, &copy) else { return Ok(Action::Keep) };
        let shape = copy.shape.clone();
        let mut values: Vec<Value> = Vec::with_capacity(pieces.len());
        for piece in pieces {
            let value = match piece {
                Piece::Read { data, map, guard, fill } => builder.move_(data, &[], shape.clone(), map, guard, fill)?,
                Piece::Apply { op, dtype, operands } => {
                    let operands = operands.iter().filter_map(|i| values.get(*i).copied()).collect();
                    builder.push(op, operands, vec![(dtype, shape.clone())])[0]
                }
            };
            values.push(value);
        }
        let map = copy.dims.iter().map(|d| Expr::loop_var(*d)).collect();
        let mask = builder.remap(copy.mask, shape, map)?;
        let select = builder.select(mask, values[root], copy.base)?;
        self.context.done();
        Ok(Action::Replace(vec![select]))
    }
}

/// A graph that values can be looked up in.
trait View {
    fn definition(&self, value: Value) -> Option<&Node>;
    fn shape(&self, value: Value) -> &[Expr];
    fn dtype(&self, value: Value) -> DType;

    /// Whether the value depends on the coordinates or on the count of a mask.
    fn depends(&self, value: Value) -> bool;
}

impl View for Builder {
    fn definition(&self, value: Value) -> Option<&Node> {
        Builder::definition(self, value)
    }

    fn shape(&self, value: Value) -> &[Expr] {
        Builder::shape(self, value)
    }

    fn dtype(&self, value: Value) -> DType {
        Builder::dtype(self, value)
    }

    /// What was found convertible reads no such value.
    fn depends(&self, _: Value) -> bool {
        false
    }
}

/// A finished module's graph.
struct Finished<'a> {
    graph: &'a Graph,
    definitions: Vec<Option<NodeId>>,
    depends: Vec<Vec<NodeId>>,
}

impl View for Finished<'_> {
    fn definition(&self, value: Value) -> Option<&Node> {
        Some(self.graph.node(self.definitions[value.0 as usize]?))
    }

    fn shape(&self, value: Value) -> &[Expr] {
        self.graph.shape(value)
    }

    fn dtype(&self, value: Value) -> DType {
        self.graph.dtype(value)
    }

    fn depends(&self, value: Value) -> bool {
        !self.depends[value.0 as usize].is_empty()
    }
}

/// Stands for the number of a row of coordinates.
const ROW: Symbol = Symbol::Value(u32::MAX);

fn mentions_row(expr: &Expr) -> bool {
    expr.mentions(|s| s == ROW)
}

/// A scatter at the coordinates of a mask.
struct Copy {
    mask: Value,
    base: Value,
    source: Value,
    /// The base's.
    shape: Vec<Expr>,
    /// For each dimension of the mask, the base's dimension that it indexes.
    dims: Vec<usize>,
    /// The source's coordinates, over the base's coordinates and [`ROW`].
    at: Vec<Expr>,
}

impl Copy {
    fn of(view: &dyn View, node: &Node) -> Option<Copy> {
        let (Op::Scatter { map, combine: None }, [base, source, indices @ ..]) = (&node.op, node.operands.as_slice())
        else {
            return None;
        };
        let (shape, own) = (view.shape(*base).to_vec(), view.shape(*source).to_vec());
        let columns: Vec<Column> = indices
            .iter()
            .map(|index| column(view, *index, (0..own.len()).map(Expr::loop_var).collect()))
            .collect::<Option<_>>()?;
        let first = columns.first()?;
        let row = first.row.as_loop()?;
        if columns.iter().any(|c| c.mask != first.mask || c.row != first.row) {
            return None;
        }
        let mask = view.shape(first.mask);
        let mut dims = vec![None; mask.len()];
        let mut at: Vec<Option<Expr>> = own.iter().map(|size| size.is_int(1).then(|| Expr::int(0))).collect();
        at[row] = Some(Expr::symbol(ROW));
        let mut placed = vec![false; own.len()];
        placed[row] = true;
        for (d, e) in map.iter().enumerate() {
            match e.as_symbol() {
                Some(Symbol::Value(j)) => {
                    let k = columns.get(j as usize)?.number;
                    if dims[k].replace(d).is_some() || mask[k] != shape[d] {
                        return None;
                    }
                }
                // Each of the base's other dimensions has one of the source's to itself.
                Some(Symbol::Loop(p)) => {
                    let p = p as usize;
                    if std::mem::replace(&mut placed[p], true) || own[p] != shape[d] {
                        return None;
                    }
                    at[p] = Some(Expr::loop_var(d));
                }
                _ if e.is_int(0) && shape[d].is_int(1) => {}
                _ => return None,
            }
        }
        Some(Copy {
            mask: first.mask,
            base: *base,
            source: *source,
            shape,
            dims: dims.into_iter().collect::<Option<_>>()?,
            at: at.into_iter().collect::<Option<_>>()?,
        })
    }
}

/// An element of the coordinates of a mask.
struct Column {
    mask: Value,
    row: Expr,
    /// The mask's dimension.
    number: usize,
}

/// What an index is at `at`, where that is an element of the coordinates of a mask, through views and checks.
fn column(view: &dyn View, index: Value, at: Vec<Expr>) -> Option<Column> {
    let (mut value, mut at) = (index, at);
    loop {
        let node = view.definition(value)?;
        match (&node.op, node.operands.as_slice()) {
            (Op::Check { .. }, [x]) => value = *x,
            (Op::Move { map, guard, .. }, [x]) if guard.as_bool() == Some(true) => {
                at = map.iter().map(|e| e.substitute(&|s| coordinate(&at, s))).collect();
                value = *x;
            }
            (Op::Nonzero { .. }, [mask]) => {
                let [row, number] = at.as_slice() else { return None };
                let number = usize::try_from(number.as_int()?).ok()?;
                let known = number < view.shape(*mask).len();
                return known.then(|| Column { mask: *mask, row: row.clone(), number });
            }
            _ => return None,
        }
    }
}

fn coordinate(at: &[Expr], symbol: Symbol) -> Option<Expr> {
    match symbol {
        Symbol::Loop(i) => at.get(i as usize).cloned(),
        _ => None,
    }
}

/// What a move that always reads fills with.
const NO_FILL: Scalar = Scalar::Int(0);
