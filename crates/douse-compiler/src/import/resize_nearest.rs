//! Resizing by the nearest element.

use douse_core::sym::Expr;
use douse_core::{DType, Result};
use douse_ir::coordinates;

use super::args::{Args, Val};
use super::formula::Formula;
use super::importer::Importer;
use super::resize::{Axis, floor, operand, places, positions, ratio, where_equal};

/// Each element of the result is the element of the tensor next to its place: `exact` at its center, else at its lower edge.
pub fn nearest(imp: &mut Importer, a: &Args, exact: bool) -> Result<Val> {
    let (mut x, axes) = operand(imp, a)?;
    let keeps = !exact && keeps_whole_factors(imp, a, axes.len())?;
    let dtype = match imp.b.dtype(x) {
        DType::F64 => DType::F64,
        _ => DType::F32,
    };
    for axis in axes.iter().rev() {
        let mut shape = imp.b.shape(x).to_vec();
        shape[axis.dim] = axis.output.clone();
        if let Some(at) = nearest_map(axis, exact, keeps, dtype) {
            let mut map = coordinates(shape.len());
            map[axis.dim] = at.substitute(&|_| Some(Expr::loop_var(axis.dim)));
            x = imp.b.remap(x, shape, map)?;
            continue;
        }
        let position = match exact {
            true => positions(imp, axis, false, dtype)?.maximum(0.0) + 0.5,
            false => ratio(imp, axis, false, dtype)? * places(imp, axis, dtype),
        };
        let mut index = floor(imp, &position, &(&axis.input - 1), dtype).cast(DType::I64);
        if keeps && axis.scale.is_some() {
            let at = |imp: &mut Importer, expr: Expr| Formula::from(imp.b.iota(vec![axis.output.clone()], expr));
            let half = at(imp, Expr::loop_var(0).floor_div(&Expr::int(2)));
            index = where_equal(imp, &(&axis.input * 2), &axis.output, half, index);
            let same = at(imp, Expr::loop_var(0));
            index = where_equal(imp, &axis.input, &axis.output, same, index);
        }
        let index = index.build(&mut imp.b)?;
        x = imp.b.take(x, axis.dim, index)?;
    }
    Ok(x.into())
}

/// Whether a result of the same or twice the size takes each element once or twice whatever the scale factor is: PyTorch's kernels for images do,
/// and that for channels-last volumes of more than three channels.
fn keeps_whole_factors(imp: &mut Importer, a: &Args, spatial: usize) -> Result<bool> {
    if spatial != 3 {
        return Ok(spatial == 2);
    }
    let x = a.tensor(if a.has("input") { "input" } else { "self" })?;
    let shape = imp.shape_of(x)?;
    let Some(strides) = imp.strides_of(x) else { return Ok(false) };
    let mut wanted = Expr::int(1);
    for d in [1, 4, 3, 2, 0] {
        if !shape[d].is_int(1) && strides[d] != wanted {
            return Ok(false);
        }
        wanted = &wanted * &shape[d];
    }
    Ok(shape[1].as_int().is_some_and(|channels| channels > 3))
}

/// The nearest element as an integer expression over `i0`, where that gives what PyTorch's floats do.
fn nearest_map(axis: &Axis, exact: bool, keeps: bool, dtype: DType) -> Option<Expr> {
    let at = Expr::loop_var(0);
    let (Some(input), Some(output)) = (axis.input.as_int(), axis.output.as_int()) else {
        // A power of two has no rounding.
        let factor = match axis.scale {
            Some(scale) => scale as i64,
            None if axis.input == axis.output => 1,
            None => (1..=6).map(|k| 1 << k).find(|k| &axis.input * *k == axis.output)?,
        };
        let whole = axis.scale.is_none_or(|s| s == factor as f64) && factor > 0 && factor & (factor - 1) == 0;
        return whole.then(|| at.floor_div(&Expr::int(factor)));
    };
    if keeps && output == input {
        return Some(at);
    }
    if keeps && output == 2 * input {
        return Some(at.floor_div(&Expr::int(2)));
    }
    let narrow = |x: f64| if dtype == DType::F64 { x } else { x as f32 as f64 };
    let ratio = narrow(axis.scale.map_or(input as f64 / output as f64, |s| 1.0 / s));
    let float_index = |i: i64| {
        let position = match exact {
            true => narrow(narrow(ratio * (i as f64 + 0.5)) - 0.5).max(0.0) + 0.5,
            false => narrow(ratio * i as f64),
        };
        ((position as f32).floor() as i64).min(input - 1)
    };
    // The whole numbers behind the ratio: those of the sizes, or of the factor.
    let whole = |x: f64| (x.round() >= 1.0 && (x - x.round()).abs() < 1e-6).then(|| x.round() as i64);
    let fractions = [Some((input, output)), whole(1.0 / ratio).map(|n| (1, n)), whole(ratio).map(|n| (n, 1))];
    fractions.into_iter().flatten().find_map(|(over, under)| {
        let numerator = if exact { &(&at * (2 * over)) + over } else { &at * over };
        let under = if exact { 2 * under } else { under };
        let map = numerator.floor_div(&Expr::int(under));
        let same = (0..output).all(|i| map.eval(&|_| Some(i)) == Some(float_index(i)));
        same.then_some(map)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(input: i64, output: i64, scale: Option<f64>) -> Axis {
        Axis { dim: 2, input: Expr::int(input), output: Expr::int(output), scale }
    }

    fn indices(map: Option<Expr>, count: i64) -> Vec<i64> {
        let map = map.unwrap();
        (0..count).map(|i| map.eval(&|_| Some(i)).unwrap()).collect()
    }

    #[test]
    fn sizes_give_an_integer_expression() {
        let map = nearest_map(&known(4, 6, None), false, false, DType::F32);
        assert_eq!(indices(map, 6), [0, 0, 1, 2, 2, 3]);
        let map = nearest_map(&known(4, 6, None), true, false, DType::F32);
        assert_eq!(indices(map, 6), [0, 1, 1, 2, 3, 3]);
    }

    #[test]
    fn a_factor_counts_where_the_size_stays() {
        assert_eq!(nearest_map(&known(5, 5, Some(1.1)), false, false, DType::F32), None);
        let map = nearest_map(&known(5, 5, Some(1.1)), false, true, DType::F32);
        assert_eq!(indices(map, 5), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn sizes_known_at_run_time_only_by_powers_of_two() {
        let size = Expr::symbol(douse_core::sym::Symbol::Size(0));
        let axis = |scale| Axis { dim: 2, input: size.clone(), output: size.scale(scale), scale: Some(scale) };
        assert_eq!(indices(nearest_map(&axis(2.0), false, true, DType::F32), 4), [0, 0, 1, 1]);
        assert_eq!(nearest_map(&axis(3.0), false, true, DType::F32), None);
    }
}
