//! What was picked at a mask's coordinates, as a function of all coordinates of the base.

use std::collections::HashMap;

use douse_core::sym::{Cond, Expr, Symbol};
use douse_core::{DType, Scalar};
use douse_ir::{Op, Value};

use super::{Copy, NO_FILL, ROW, View, column, coordinate, mentions_row};

/// Operations deeper than this below the scatter are not followed.
const DEPTH: usize = 64;

/// A value of the base's shape. Later ones read earlier ones by their number.
pub(super) enum Piece {
    Read { data: Value, map: Vec<Expr>, guard: Cond, fill: Scalar },
    Apply { op: Op, dtype: DType, operands: Vec<usize> },
}

pub(super) struct Planner<'a> {
    view: &'a dyn View,
    copy: &'a Copy,
    pieces: Vec<Piece>,
    /// What a value is at coordinates, where that was asked before.
    known: HashMap<(Value, Vec<Expr>), usize>,
}

impl<'a> Planner<'a> {
    /// The source of a copy at the base's coordinates, which matters where the mask is true only; `None` where it cannot be had
    /// without the mask's coordinates.
    pub fn plan(view: &'a dyn View, copy: &'a Copy) -> Option<(Vec<Piece>, usize)> {
        let mut planner = Planner { view, copy, pieces: Vec::new(), known: HashMap::new() };
        let root = planner.value(copy.source, &copy.at, 0)?;
        Some((planner.pieces, root))
    }

    fn push(&mut self, piece: Piece) -> usize {
        self.pieces.push(piece);
        self.pieces.len() - 1
    }

    /// `value` at `at`, expressions over the base's coordinates and [`ROW`].
    fn value(&mut self, value: Value, at: &[Expr], depth: usize) -> Option<usize> {
        let key = (value, at.to_vec());
        if let Some(known) = self.known.get(&key) {
            return Some(*known);
        }
        if depth > DEPTH {
            return None;
        }
        let found = match self.readable(value, at) {
            true => self.push(Piece::Read { data: value, map: at.to_vec(), guard: Cond::Bool(true), fill: NO_FILL }),
            false => self.computed(value, at, depth)?,
        };
        self.known.insert(key, found);
        Some(found)
    }

    /// Whether a value can be read at `at` for every coordinate, also where the mask is false. Along the mask's dimensions the
    /// base's coordinate itself must be read, and the value must be as large as the base.
    fn readable(&self, value: Value, at: &[Expr]) -> bool {
        let shape = self.view.shape(value);
        let inside = |(e, size): (&Expr, &Expr)| {
            let masked = |d: usize| self.copy.dims.contains(&d);
            match e.as_loop() {
                Some(d) if masked(d) => self.copy.shape[d] == *size,
                _ => !e.mentions(|s| matches!(s, Symbol::Loop(d) if masked(d as usize))),
            }
        };
        !self.view.depends(value) && !at.iter().any(mentions_row) && at.iter().zip(shape).all(inside)
    }

    fn computed(&mut self, value: Value, at: &[Expr], depth: usize) -> Option<usize> {
        let node = self.view.definition(value)?;
        let dtype = self.view.dtype(value);
        match &node.op {
            Op::Full(_) => Some(self.push(Piece::Apply { op: node.op.clone(), dtype, operands: Vec::new() })),
            Op::Iota(expr) => {
                let expr = expr.substitute(&|s| coordinate(at, s));
                if mentions_row(&expr) {
                    return None;
                }
                Some(self.push(Piece::Apply { op: Op::Iota(expr), dtype, operands: Vec::new() }))
            }
            Op::Unary(_) | Op::Binary(_) | Op::Select | Op::Cast | Op::Bitcast => {
                let (op, operands) = (node.op.clone(), node.operands.clone());
                let operands = operands.iter().map(|x| self.value(*x, at, depth + 1)).collect::<Option<_>>()?;
                Some(self.push(Piece::Apply { op, dtype, operands }))
            }
            Op::Move { map, guard, fill } => {
                let (data, indices) = node.operands.split_first()?;
                let elements: Vec<Expr> =
                    indices.iter().map(|index| self.element(*index, at)).collect::<Option<_>>()?;
                let with = |symbol| match symbol {
                    // The row is not an index of this node.
                    ROW => None,
                    Symbol::Value(j) => elements.get(j as usize).cloned(),
                    other => coordinate(at, other),
                };
                let map: Vec<Expr> = map.iter().map(|e| e.substitute(&with)).collect();
                let (data, guard, fill) = (*data, guard.substitute(&with), *fill);
                if guard.as_bool() == Some(true) {
                    return self.value(data, &map, depth + 1);
                }
                let mut row = false;
                guard.visit(&mut |s| row |= s == ROW);
                let direct = !row && self.readable(data, &map);
                direct.then(|| self.push(Piece::Read { data, map, guard, fill }))
            }
            _ => None,
        }
    }

    /// The element of an index, which is the base's coordinate where it is a coordinate of the mask in the scatter's own row.
    fn element(&self, index: Value, at: &[Expr]) -> Option<Expr> {
        let found = column(self.view, index, at.to_vec())?;
        let own = found.mask == self.copy.mask && found.row == Expr::symbol(ROW);
        own.then(|| Expr::loop_var(self.copy.dims[found.number]))
    }
}
