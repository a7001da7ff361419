//! Deformable convolution: each tap of the kernel reads at a place of its own, which data moves away from the regular grid.
//!
//! The input's channels are divided into as many parts as there are groups of offsets. What the taps read, [batch, channels, taps, places], is
//! sampled as `grid_sample` samples (bilinear, zeros outside) with the parts as part of the batch. The rest is a convolution whose kernel is
//! one column of taps and never moves along it.

use douse_core::Result;
use douse_core::sym::Expr;
use douse_ir::{Convolution, Value};

use super::args::{Args, Val};
use super::formula::Formula;
use super::grid_sample::bilinear;
use super::importer::{Importer, Row};

pub const ROWS: &[Row] = &[("torchvision.deform_conv2d.default", deformable)];

/// One spatial dimension: which component of an offset moves it, and how its regular places lie.
struct Axis {
    component: i64,
    /// The loop variable of the result's places along it.
    place: usize,
    stride: i64,
    padding: i64,
    dilation: i64,
}

impl Axis {
    fn new(a: &Args, component: i64, place: usize, suffix: &str) -> Result<Axis> {
        let number = |name: &str| a.int(&format!("{name}_{suffix}"));
        Ok(Axis { component, place, stride: number("stride")?, padding: number("pad")?, dilation: number("dilation")? })
    }

    /// Where each tap reads along this axis, in elements: [batch and groups, taps, rows, columns]. `offsets` has the components as its dimension 2.
    fn places(&self, imp: &mut Importer, offsets: Value, tap: &Expr) -> Result<Formula> {
        let moved = imp.b.select_index(offsets, 2, &Expr::int(self.component))?;
        let (shape, dtype) = (imp.b.shape(moved).to_vec(), imp.b.dtype(moved));
        let regular = &(&(&Expr::loop_var(self.place) * self.stride) + &(tap * self.dilation)) - self.padding;
        let regular = imp.b.iota(shape, regular);
        Ok(Formula::from(imp.b.cast(regular, dtype)) + Formula::from(moved))
    }
}

/// Offsets are [batch, groups * taps * 2, rows, columns], down before across; the mask, one factor for each tap, is [batch, groups * taps, rows, columns].
fn deformable(imp: &mut Importer, a: &Args) -> Result<Val> {
    let (input, weight, offset) = (imp.value(a, "input")?, imp.value(a, "weight")?, imp.value(a, "offset")?);
    let own = imp.b.dtype(input);
    let dtype = imp.compute_dtype(own);
    let [input, weight, offset] = [input, weight, offset].map(|v| imp.b.cast(v, dtype));
    let rank_4 = |imp: &Importer, name: &str, v: Value| -> Result<[Expr; 4]> {
        imp.b.shape(v).to_vec().try_into().map_err(|_| a.wrong(name, "of rank 4"))
    };
    let [batch, channels, height, width] = rank_4(imp, "input", input)?;
    let [outputs, own_channels, tall, wide] = rank_4(imp, "weight", weight)?;
    let [_, _, rows, columns] = rank_4(imp, "offset", offset)?;
    let (groups, parts) = (a.int("groups")?, a.int("offset_groups")?);
    if groups < 1 || parts < 1 {
        return Err(a.wrong(if groups < 1 { "groups" } else { "offset_groups" }, "positive"));
    }
    let taps = &tall * &wide;
    let (lists, part) = (&batch * parts, channels.floor_div(&Expr::int(parts)));
    imp.require_filled(&[height.clone(), width.clone()], "deform_conv2d");
    let sampled = imp.b.reshape(input, vec![lists.clone(), part.clone(), height, width])?;
    let two = Expr::int(2);
    let offset = imp.b.reshape(offset, vec![lists.clone(), taps.clone(), two, rows.clone(), columns.clone()])?;
    let tap = Expr::loop_var(1);
    let down = Axis::new(a, 0, 2, "h")?.places(imp, offset, &tap.floor_div(&wide))?;
    let across = Axis::new(a, 1, 3, "w")?.places(imp, offset, &tap.modulo(&wide))?;
    let mut read = bilinear(imp, sampled, vec![down, across])?;
    if a.bool_or("use_mask", false)? {
        let mask = imp.value(a, "mask")?;
        let mask = imp.b.cast(mask, dtype);
        let mask = imp.b.reshape(mask, vec![lists, Expr::int(1), taps.clone(), rows.clone(), columns.clone()])?;
        let shape = imp.b.shape(read).to_vec();
        let mask = imp.b.expand(mask, shape)?;
        read = (Formula::from(read) * Formula::from(mask)).build(&mut imp.b)?;
    }
    let places = &rows * &columns;
    let read = imp.b.reshape(read, vec![batch.clone(), channels, taps.clone(), places])?;
    let kernel = imp.b.reshape(weight, vec![outputs.clone(), own_channels, taps, Expr::int(1)])?;
    let bias = imp.opt_value(a, "bias")?.map(|bias| imp.b.cast(bias, dtype));
    let none = vec![Expr::int(0); 2];
    let conv = Convolution {
        stride: vec![1; 2],
        padding: none.clone(),
        padding_end: none,
        dilation: vec![1; 2],
        groups,
        transposed: false,
        output_padding: vec![0; 2],
    };
    let result = imp.b.convolution(read, kernel, bias, conv)?;
    let result = imp.b.reshape(result, vec![batch, outputs, rows, columns])?;
    Ok(imp.b.cast(result, own).into())
}
