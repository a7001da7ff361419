//! Moves: views, slices, padding, gathers, concatenation, scatters.

use douse_core::pointwise::Combine;
use douse_core::sym::{Cond, Expr, Ranges, Symbol};
use douse_core::{DType, Error, Result, Scalar};

use super::{Builder, coordinates, fault, shape_text};
use crate::graph::{Node, Value};
use crate::op::Op;

impl Builder {
    /// `x[map]` over `shape`.
    pub fn remap(&mut self, x: Value, shape: Vec<Expr>, map: Vec<Expr>) -> Result<Value> {
        self.move_(x, &[], shape, map, Cond::Bool(true), Scalar::Int(0))
    }

    /// `x[map]` over `shape` where `guard` holds, else `fill` (in `x`'s dtype). `v0...` in `map` are elements of `indices`, int64 of
    /// that shape.
    pub fn move_(
        &mut self,
        x: Value,
        indices: &[Value],
        shape: Vec<Expr>,
        map: Vec<Expr>,
        guard: Cond,
        fill: Scalar,
    ) -> Result<Value> {
        if map.len() != self.rank(x) {
            return Err(fault(format!("move of rank {} by a map of {}", self.rank(x), map.len())));
        }
        if indices.iter().any(|i| self.shape(*i) != shape || self.dtype(*i) != DType::I64) {
            return Err(fault("an index of a move has another shape or dtype".to_string()));
        }
        let scope = self.ranges.with_loops(&shape);
        let guard = guard.simplify(&scope);
        let map: Vec<Expr> = map.iter().map(|e| e.simplify(&scope)).collect();
        let unguarded = guard.as_bool() == Some(true);
        if unguarded && self.shape(x) == shape && map.iter().enumerate().all(|(d, e)| self.is_coordinate(e, d, &shape))
        {
            return Ok(x);
        }
        // move(move(x, f), g) = move(x, f after g)
        if let Some(Node { op: Op::Move { map: inner, guard: inner_guard, fill: inner_fill }, operands, .. }) =
            self.definition(x)
        {
            let same_fill = unguarded || inner_guard.as_bool() == Some(true) || *inner_fill == fill;
            if operands.len() == 1 && same_fill {
                let (data, inner, inner_guard, inner_fill) =
                    (operands[0], inner.clone(), inner_guard.clone(), *inner_fill);
                let at = |symbol| match symbol {
                    Symbol::Loop(i) => map.get(i as usize).cloned(),
                    _ => None,
                };
                let composed = inner.iter().map(|e| e.substitute(&at)).collect();
                let both = guard.and(&inner_guard.substitute(&at));
                let fill = if unguarded { inner_fill } else { fill };
                return self.move_(data, indices, shape, composed, both, fill);
            }
        }
        if let (Some(scalar), true) = (self.constant_scalar(x), unguarded) {
            let dtype = self.dtype(x);
            return Ok(self.full(dtype, shape, scalar));
        }
        let dtype = self.dtype(x);
        let operands = std::iter::once(x).chain(indices.iter().copied()).collect();
        Ok(self.push1(Op::Move { map, guard, fill }, operands, dtype, shape))
    }

    /// Whether an expression is the coordinate of dimension `d`; in a dimension of size 1, 0 is.
    fn is_coordinate(&self, expr: &Expr, d: usize, shape: &[Expr]) -> bool {
        expr.as_loop() == Some(d) || (shape[d].is_int(1) && expr.is_int(0))
    }

    pub fn permute(&mut self, x: Value, dims: &[usize]) -> Result<Value> {
        let own = self.shape(x).to_vec();
        let mut map = vec![Expr::int(0); own.len()];
        let mut shape = Vec::with_capacity(own.len());
        for (i, d) in dims.iter().enumerate() {
            let (Some(slot), Some(size)) = (map.get_mut(*d), own.get(*d)) else {
                return Err(fault(format!("permute by {dims:?} of rank {}", own.len())));
            };
            *slot = Expr::loop_var(i);
            shape.push(size.clone());
        }
        self.remap(x, shape, map)
    }

    pub fn transpose(&mut self, x: Value, a: usize, b: usize) -> Result<Value> {
        let mut dims: Vec<usize> = (0..self.rank(x)).collect();
        if a >= dims.len() || b >= dims.len() {
            return Err(fault(format!("transpose of dimensions {a} and {b} of rank {}", dims.len())));
        }
        dims.swap(a, b);
        self.permute(x, &dims)
    }

    /// The same elements in row-major order under other sizes.
    pub fn reshape(&mut self, x: Value, shape: Vec<Expr>) -> Result<Value> {
        let own = self.shape(x).to_vec();
        if own == shape {
            return Ok(x);
        }
        let (before, after) = (Expr::product(&own), Expr::product(&shape));
        if before != after {
            if before.as_int().is_some() && after.as_int().is_some() {
                return Err(Error::invalid_program(format!(
                    "shape {} is invalid for a tensor of shape {}",
                    shape_text(&shape),
                    shape_text(&own)
                )));
            }
            self.require_equal(&before, &after, "the numbers of elements of a reshaped tensor");
        }
        let scope = self.ranges.with_loops(&shape);
        let map = reshape_map(&own, &shape, &scope);
        self.remap(x, shape, map)
    }

    /// Merges dimensions `first..=last` into one.
    pub fn flatten(&mut self, x: Value, first: usize, last: usize) -> Result<Value> {
        let own = self.shape(x).to_vec();
        if own.is_empty() {
            return self.reshape(x, vec![Expr::int(1)]);
        }
        let mut shape = own[..first].to_vec();
        shape.push(Expr::product(&own[first..=last]));
        shape.extend_from_slice(&own[last + 1..]);
        self.reshape(x, shape)
    }

    /// Elements `start, start + step, ...`, `length` of them, along a dimension.
    pub fn slice(&mut self, x: Value, dim: usize, start: &Expr, step: &Expr, length: Expr) -> Result<Value> {
        let mut shape = self.shape(x).to_vec();
        let mut map = coordinates(shape.len());
        shape[dim] = length;
        map[dim] = start + &(&map[dim] * step);
        self.remap(x, shape, map)
    }

    /// `x` at one index of a dimension, which goes.
    pub fn select_index(&mut self, x: Value, dim: usize, index: &Expr) -> Result<Value> {
        let mut shape = self.shape(x).to_vec();
        shape.remove(dim);
        let mut map = coordinates(shape.len());
        map.insert(dim, index.clone());
        self.remap(x, shape, map)
    }

    pub fn unsqueeze(&mut self, x: Value, dim: usize) -> Result<Value> {
        let mut shape = self.shape(x).to_vec();
        shape.insert(dim, Expr::int(1));
        let mut map = coordinates(shape.len());
        map.remove(dim);
        self.remap(x, shape, map)
    }

    /// Without a dimension of size 1.
    pub fn squeeze(&mut self, x: Value, dim: usize) -> Result<Value> {
        self.select_index(x, dim, &Expr::int(0))
    }

    pub fn flip(&mut self, x: Value, dims: &[usize]) -> Result<Value> {
        let shape = self.shape(x).to_vec();
        let mut map = coordinates(shape.len());
        for &d in dims {
            map[d] = &shape[d] - &(&map[d] + 1);
        }
        self.remap(x, shape, map)
    }

    /// `low` and `high` elements of `fill` around each dimension; negative numbers cut.
    pub fn pad(&mut self, x: Value, low: &[Expr], high: &[Expr], fill: Scalar) -> Result<Value> {
        let own = self.shape(x).to_vec();
        let mut guard = Cond::Bool(true);
        let (mut shape, mut map) = (Vec::new(), Vec::new());
        use douse_core::sym::Compare::{Ge, Lt};
        for (d, size) in own.iter().enumerate() {
            shape.push(&(size + &low[d]) + &high[d]);
            let at = &Expr::loop_var(d) - &low[d];
            guard = guard.and(&Cond::compare(Ge, &at, &Expr::int(0))).and(&Cond::compare(Lt, &at, size));
            map.push(at);
        }
        self.move_(x, &[], shape, map, guard, fill)
    }

    /// `x[..., index, ...]` along `dim`, for an index of any shape, which takes the dimension's place. The index is checked before.
    pub fn take(&mut self, x: Value, dim: usize, index: Value) -> Result<Value> {
        let (own, index_shape) = (self.shape(x).to_vec(), self.shape(index).to_vec());
        let mut shape = own[..dim].to_vec();
        shape.extend_from_slice(&index_shape);
        shape.extend_from_slice(&own[dim + 1..]);
        let index_map = (0..index_shape.len()).map(|i| Expr::loop_var(dim + i)).collect();
        let wide = self.remap(index, shape.clone(), index_map)?;
        let mut map = Vec::new();
        for d in 0..own.len() {
            map.push(match d.cmp(&dim) {
                std::cmp::Ordering::Less => Expr::loop_var(d),
                std::cmp::Ordering::Equal => Expr::symbol(Symbol::Value(0)),
                std::cmp::Ordering::Greater => Expr::loop_var(d + index_shape.len() - 1),
            });
        }
        self.move_(x, &[wide], shape, map, Cond::Bool(true), Scalar::Int(0))
    }

    /// `x[..., index[i], ...]` along `dim`, for an index of the result's shape (`torch.gather`). The index is checked before.
    pub fn gather(&mut self, x: Value, dim: usize, index: Value) -> Result<Value> {
        let shape = self.shape(index).to_vec();
        let mut map = coordinates(shape.len());
        map[dim] = Expr::symbol(Symbol::Value(0));
        self.move_(x, &[index], shape, map, Cond::Bool(true), Scalar::Int(0))
    }

    pub fn concat(&mut self, values: &[Value], dim: usize) -> Result<Value> {
        let Some(first) = values.first() else { return Err(fault("concat of nothing".to_string())) };
        if values.len() == 1 {
            return Ok(*first);
        }
        let (dtype, mut shape) = (self.dtype(*first), self.shape(*first).to_vec());
        for value in &values[1..] {
            let other = self.shape(*value).to_vec();
            if self.dtype(*value) != dtype || other.len() != shape.len() {
                return Err(fault(format!("concat of {dtype} {} and {}", shape_text(&shape), shape_text(&other))));
            }
            for d in 0..shape.len() {
                if d == dim {
                    shape[d] = &shape[d] + &other[d];
                } else if shape[d] != other[d] {
                    self.require_equal(&shape[d], &other[d], "sizes of concatenated tensors");
                }
            }
        }
        Ok(self.push1(Op::Concat { dim }, values.to_vec(), dtype, shape))
    }

    /// `base` with `base[map]` set to (or combined with) each element of `source`. The indices are checked before.
    pub fn scatter(
        &mut self,
        base: Value,
        source: Value,
        indices: &[Value],
        map: Vec<Expr>,
        combine: Option<Combine>,
    ) -> Result<Value> {
        let (dtype, shape) = (self.dtype(base), self.shape(base).to_vec());
        let fits = indices.iter().all(|i| self.shape(*i) == self.shape(source) && self.dtype(*i) == DType::I64);
        if self.dtype(source) != dtype || map.len() != shape.len() || !fits {
            return Err(fault(format!("scatter of {} into {dtype} {}", self.dtype(source), shape_text(&shape))));
        }
        let scope = self.ranges.with_loops(self.shape(source));
        let map = map.iter().map(|e| e.simplify(&scope)).collect();
        let operands = [base, source].into_iter().chain(indices.iter().copied()).collect();
        Ok(self.push1(Op::Scatter { map, combine }, operands, dtype, shape))
    }
}

/// For each dimension of `from`, the coordinate of the element that stands at `i0, i1, ...` of `to`, both in row-major order.
fn reshape_map(from: &[Expr], to: &[Expr], scope: &Ranges) -> Vec<Expr> {
    let mut map = vec![Expr::int(0); from.len()];
    let (mut a, mut b) = (0, 0);
    // Groups of dimensions with equal products on both sides, as short as possible.
    while a < from.len() || b < to.len() {
        let (first_a, first_b) = (a, b);
        let (mut product_a, mut product_b) = (Expr::int(1), Expr::int(1));
        if a < from.len() {
            product_a = from[a].clone();
            a += 1;
        }
        if b < to.len() {
            product_b = to[b].clone();
            b += 1;
        }
        while product_a != product_b {
            let grow_a = match (product_a.as_int(), product_b.as_int()) {
                (Some(x), Some(y)) if a < from.len() && b < to.len() => x < y,
                _ => divides(&product_a, &product_b) && a < from.len() || b >= to.len(),
            };
            if grow_a && a < from.len() {
                product_a = &product_a * &from[a];
                a += 1;
            } else if b < to.len() {
                product_b = &product_b * &to[b];
                b += 1;
            } else if a < from.len() {
                product_a = &product_a * &from[a];
                a += 1;
            } else {
                break;
            }
        }
        let mut linear = Expr::int(0);
        for (i, size) in to.iter().enumerate().take(b).skip(first_b) {
            linear = &(&linear * size) + &Expr::loop_var(i);
        }
        let mut stride = Expr::int(1);
        for d in (first_a..a).rev() {
            let quotient = linear.floor_div(&stride).simplify(scope);
            map[d] = if from[d].is_int(1) {
                Expr::int(0)
            } else if d == first_a {
                quotient
            } else {
                quotient.modulo(&from[d]).simplify(scope)
            };
            stride = &stride * &from[d];
        }
    }
    map
}

/// Whether the quotient `b / a` is a polynomial, as far as is easily seen.
fn divides(a: &Expr, b: &Expr) -> bool {
    a != b && b.modulo(a).is_int(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Module;

    fn ints(sizes: &[i64]) -> Vec<Expr> {
        sizes.iter().map(|s| Expr::int(*s)).collect()
    }

    #[test]
    fn a_reshape_keeps_row_major_order() {
        for (from, to) in [
            (vec![2, 3, 4], vec![6, 4]),
            (vec![6, 4], vec![2, 3, 4]),
            (vec![2, 3, 4], vec![4, 6]),
            (vec![24], vec![1, 2, 3, 1, 4]),
            (vec![1, 8, 3], vec![4, 6, 1]),
            (vec![], vec![1, 1]),
            (vec![1], vec![]),
        ] {
            let scope = Ranges::new().with_loops(&ints(&to));
            let map = reshape_map(&ints(&from), &ints(&to), &scope);
            let total: i64 = to.iter().product();
            for n in 0..total {
                let unravel = |sizes: &[i64]| {
                    let mut rest = n;
                    let mut at = vec![0; sizes.len()];
                    for d in (0..sizes.len()).rev() {
                        at[d] = rest % sizes[d];
                        rest /= sizes[d];
                    }
                    at
                };
                let (wanted, at) = (unravel(&from), unravel(&to));
                let got: Vec<i64> = map
                    .iter()
                    .map(|e| {
                        e.eval(&|s| if let Symbol::Loop(i) = s { at.get(i as usize).copied() } else { None }).unwrap()
                    })
                    .collect();
                assert_eq!(got, wanted, "{from:?} -> {to:?} at {n}");
            }
        }
    }

    #[test]
    fn views_of_views_are_one_move() {
        let mut b = Builder::new(Module::default());
        let x = b.input(0, DType::F32, ints(&[2, 6, 4]));
        let y = b.transpose(x, 0, 1).unwrap();
        let z = b.slice(y, 0, &Expr::int(1), &Expr::int(2), Expr::int(2)).unwrap();
        let Some(Node { op: Op::Move { map, .. }, operands, .. }) = b.definition(z) else { panic!("not a move") };
        assert_eq!(operands, &[x]);
        assert_eq!(map.iter().map(Expr::to_string).collect::<Vec<_>>(), ["i1", "2*i0 + 1", "i2"]);
        let back = b.transpose(y, 0, 1).unwrap();
        assert_eq!(back, x);
    }
}
