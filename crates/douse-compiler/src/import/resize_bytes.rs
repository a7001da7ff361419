//! Resizing of uint8 tensors, which eager PyTorch computes in fixed point: weights as 16-bit integers of as many binary places as the
//! largest allows, one dimension after the other, each rounded to uint8.

use douse_core::pointwise::{Binary, Combine};
use douse_core::sym::Expr;
use douse_core::{DType, Result, Scalar};
use douse_ir::Value;

use super::args::Args;
use super::importer::Importer;
use super::resize::Axis;

/// How the weights of a mode follow from a distance.
#[derive(Clone, Copy, PartialEq)]
pub enum Kernel {
    Linear,
    /// Cubic convolution with this factor.
    Cubic(f64),
}

impl Kernel {
    fn taps(self) -> i64 {
        if self == Kernel::Linear { 2 } else { 4 }
    }

    fn weight(self, distance: f64) -> f64 {
        let x = distance.abs();
        match self {
            Kernel::Linear => (1.0 - x).max(0.0),
            Kernel::Cubic(a) if x < 1.0 => ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0,
            Kernel::Cubic(a) if x < 2.0 => ((a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a,
            Kernel::Cubic(_) => 0.0,
        }
    }
}

/// The first element and the weights of the elements from there, for one element of the result.
type Window = (i64, Vec<f64>);

/// An axis of known sizes.
struct Known {
    input: i64,
    output: i64,
    /// The distance of neighbouring elements of the result.
    ratio: f64,
    align_corners: bool,
}

impl Known {
    fn new(a: &Args, axis: &Axis, align_corners: bool) -> Result<Known> {
        let (Some(input), Some(output)) = (axis.input.as_int(), axis.output.as_int()) else {
            return Err(a.unsupported("interpolation of uint8 with a size known only at run time"));
        };
        let ratio = match (align_corners, axis.scale) {
            (true, _) if output > 1 => (input - 1) as f64 / (output - 1) as f64,
            (true, _) => 0.0,
            (false, Some(scale)) => 1.0 / scale,
            (false, None) => input as f64 / output as f64,
        };
        Ok(Known { input, output, ratio, align_corners })
    }

    /// The elements around a place; those past the ends add to the weight of the end.
    fn around(&self, i: i64, kernel: Kernel) -> Window {
        let i = i as f64;
        let place = if self.align_corners { self.ratio * i } else { self.ratio * (i + 0.5) - 0.5 };
        let place = if kernel == Kernel::Linear && !self.align_corners { place.max(0.0) } else { place };
        let below = ((place as f32).floor() as i64).min(self.input - 1);
        let share = (place - below as f64).clamp(0.0, 1.0);
        let half = kernel.taps() / 2;
        let first = below - half + 1;
        let (low, high) = (first.max(0), (below + half + 1).min(self.input));
        let mut weights = vec![0.0; (high - low).max(0) as usize];
        for j in 0..kernel.taps() {
            let at = (first + j).clamp(0, self.input - 1) - low;
            if let Some(weight) = weights.get_mut(at as usize) {
                *weight += kernel.weight((j + 1 - half) as f64 - share);
            }
        }
        (low, weights)
    }

    /// The elements under a filter that is widened where the result is smaller.
    fn under(&self, i: i64, kernel: Kernel) -> Window {
        let widening = self.ratio.max(1.0);
        let support = kernel.taps() as f64 * 0.5 * widening;
        let center = self.ratio * (i as f64 + 0.5);
        let low = ((center - support + 0.5) as i64).max(0);
        let most = support.ceil() as i64 * 2 + 1;
        let count = (((center + support + 0.5) as i64).min(self.input) - low).clamp(0, most);
        let mut weights: Vec<f64> =
            (0..count).map(|j| kernel.weight(((j + low) as f64 - center + 0.5) / widening)).collect();
        let total: f64 = weights.iter().sum();
        if total != 0.0 {
            weights.iter_mut().for_each(|w| *w /= total);
        }
        (low, weights)
    }
}

/// The binary places of the weights: as many as leave the largest below 2^15.
fn places(largest: f64) -> u32 {
    (0..22).find(|p| (0.5 + largest * (1i64 << (p + 1)) as f64) as i64 >= 1 << 15).unwrap_or(22)
}

fn rounded(weight: f64, places: u32) -> i32 {
    let scaled = weight * (1i64 << places) as f64;
    (if weight < 0.0 { scaled - 0.5 } else { scaled + 0.5 }) as i32
}

/// Replaces an axis of a uint8 tensor, of sizes known when lowering.
pub fn resized(
    imp: &mut Importer,
    a: &Args,
    x: Value,
    axis: &Axis,
    kernel: Kernel,
    align_corners: bool,
    antialias: bool,
) -> Result<Value> {
    if axis.input == axis.output {
        return Ok(x);
    }
    let known = Known::new(a, axis, align_corners)?;
    let windows: Vec<Window> =
        (0..known.output).map(|i| if antialias { known.under(i, kernel) } else { known.around(i, kernel) }).collect();
    let largest = windows.iter().flat_map(|(_, w)| w).copied().fold(0.0, f64::max);
    let places = places(largest);
    let width = windows.iter().map(|(_, w)| w.len()).max().unwrap_or(0).max(1);
    let (mut index_bytes, mut weight_bytes) = (Vec::new(), Vec::new());
    for (low, weights) in &windows {
        for j in 0..width {
            let at = (low + j as i64).min(known.input - 1);
            let weight = weights.get(j).map_or(0, |w| rounded(*w, places));
            index_bytes.extend(at.to_le_bytes());
            weight_bytes.extend(weight.to_le_bytes());
        }
    }
    let shape = vec![axis.output.clone(), Expr::int(width as i64)];
    let index = imp.literal(DType::I64, shape.clone(), index_bytes);
    let weight = imp.literal(DType::I32, shape, weight_bytes);
    let taken = imp.b.take(x, axis.dim, index)?;
    let taken = imp.b.cast(taken, DType::I32);
    let mut wide = vec![Expr::int(1); imp.b.rank(taken)];
    wide[axis.dim] = axis.output.clone();
    wide[axis.dim + 1] = Expr::int(width as i64);
    let weight = imp.b.reshape(weight, wide)?;
    let products = imp.b.binary(Binary::Mul, taken, weight)?;
    let total = imp.b.reduce(Combine::Sum, products, &[axis.dim + 1])?;
    let half = if places == 0 { 0 } else { 1 << (places - 1) };
    let total = imp.b.binary_scalar(Binary::Add, total, Scalar::Int(half))?;
    let whole = imp.b.binary_scalar(Binary::ShiftRight, total, Scalar::Int(i64::from(places)))?;
    let whole = imp.b.binary_scalar(Binary::Maximum, whole, Scalar::Int(0))?;
    let whole = imp.b.binary_scalar(Binary::Minimum, whole, Scalar::Int(255))?;
    Ok(imp.b.cast(whole, DType::U8))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_fill_fifteen_bits() {
        assert_eq!((places(1.0), places(0.5), places(0.75)), (14, 15, 15));
        assert_eq!((rounded(0.75, 2), rounded(-0.1, 2), rounded(-0.2, 2)), (3, 0, -1));
    }

    #[test]
    fn weights_past_the_ends_go_to_the_ends() {
        let known = Known { input: 2, output: 4, ratio: 0.5, align_corners: false };
        assert_eq!(known.around(0, Kernel::Linear), (0, vec![1.0, 0.0]));
        assert_eq!(known.around(1, Kernel::Linear), (0, vec![0.75, 0.25]));
        let (low, weights) = known.around(0, Kernel::Cubic(-0.75));
        assert_eq!((low, weights.len()), (0, 2));
        assert!((weights.iter().sum::<f64>() - 1.0).abs() < 1e-12);
    }

    #[test]
    fn a_smaller_result_averages() {
        let known = Known { input: 4, output: 2, ratio: 2.0, align_corners: false };
        let (low, weights) = known.under(0, Kernel::Linear);
        assert_eq!(low, 0);
        let wanted = [3.0 / 7.0, 3.0 / 7.0, 1.0 / 7.0];
        assert!(weights.iter().zip(wanted).all(|(a, b)| (a - b).abs() < 1e-12), "{weights:?}");
    }
}
