//! Elements in other places: repeated, rolled, flipped, shuffled, on diagonals, in triangles, in patches.

use douse_core::sym::{Compare, Cond, Expr};
use douse_core::{DType, Error, Result, Scalar};
use douse_ir::coordinates;

use super::args::{Args, Val};
use super::data::Data;
use super::importer::{Importer, Row};
use super::view::diagonal_of;

pub const ROWS: &[Row] = &[
    ("aten.repeat.default", |i, a| repeat(i, a, "repeats")),
    ("aten.tile.default", |i, a| repeat(i, a, "dims")),
    ("aten.repeat_interleave.self_int", repeat_interleave),
    ("aten.roll.default", roll),
    ("aten.flip.default", flip),
    ("aten.fliplr.default", |i, a| flip_dim(i, a, 1)),
    ("aten.flipud.default", |i, a| flip_dim(i, a, 0)),
    ("aten.rot90.default", rot90),
    ("aten.diag.default", diag),
    ("aten.diag_embed.default", diag_embed),
    ("aten.diagflat.default", diagflat),
    ("aten.fill_diagonal.default", fill_diagonal),
    ("aten.tril.default", |i, a| triangle(i, a, true)),
    ("aten.triu.default", |i, a| triangle(i, a, false)),
    ("aten.channel_shuffle.default", channel_shuffle),
    ("aten.native_channel_shuffle.default", channel_shuffle),
    ("aten.pixel_shuffle.default", pixel_shuffle),
    ("aten.pixel_unshuffle.default", pixel_unshuffle),
    ("aten.im2col.default", im2col),
    ("aten.col2im.default", col2im),
];

/// The whole tensor several times over in each dimension.
fn repeat(imp: &mut Importer, a: &Args, name: &str) -> Result<Val> {
    let data = imp.data(a, "self")?;
    let mut times = a.exprs(name)?;
    while times.len() < data.rank() && name == "dims" {
        times.insert(0, Expr::int(1));
    }
    let added = times.len().checked_sub(data.rank());
    let added = added.ok_or_else(|| a.wrong(name, "at least as long as there are dimensions"))?;
    let (mut shape, mut map) = (Vec::new(), Vec::new());
    for (d, n) in times.iter().enumerate() {
        let Some(own) = d.checked_sub(added).and_then(|d| data.shape.get(d)) else {
            shape.push(n.clone());
            continue;
        };
        shape.push(n * own);
        let at = Expr::loop_var(d);
        map.push(if n.is_int(1) || own.is_int(0) { at } else { at.modulo(own) });
    }
    Ok(data.remap(imp, shape, map)?.val())
}

/// Each element several times in a row, along one dimension or of all elements.
fn repeat_interleave(imp: &mut Importer, a: &Args) -> Result<Val> {
    let mut data = imp.data(a, "self")?;
    let times = a.expr("repeats")?;
    let dim = match a.opt_int("dim")? {
        Some(dim) => {
            data = data.raised(imp)?;
            imp.dim(a, dim, data.rank())?
        }
        None => {
            data = data.flat(imp)?;
            0
        }
    };
    let (mut shape, mut map) = (data.shape.clone(), coordinates(data.rank()));
    shape[dim] = &shape[dim] * &times;
    if !times.is_int(0) {
        map[dim] = map[dim].floor_div(&times);
    }
    Ok(data.remap(imp, shape, map)?.val())
}

/// Element i moves to i + shift, around the end.
fn roll(imp: &mut Importer, a: &Args) -> Result<Val> {
    let data = imp.data(a, "self")?;
    let (shifts, dims) = (a.exprs("shifts")?, a.ints_or("dims", &[])?);
    if dims.is_empty() {
        let flat = data.flat(imp)?;
        let shift = shifts.first().cloned().unwrap_or_default();
        return Ok(rolled(imp, &flat, 0, &shift)?.reshape(imp, data.shape.clone())?.val());
    }
    let mut out = data;
    for (shift, dim) in shifts.iter().zip(dims) {
        let dim = imp.dim(a, dim, out.rank())?;
        if out.rank() > 0 {
            out = rolled(imp, &out, dim, shift)?;
        }
    }
    Ok(out.val())
}

fn rolled(imp: &mut Importer, data: &Data, dim: usize, shift: &Expr) -> Result<Data> {
    let size = data.shape[dim].clone();
    if size.is_int(0) {
        return Ok(data.clone());
    }
    let mut map = coordinates(data.rank());
    map[dim] = (&map[dim] - shift).modulo(&size);
    data.remap(imp, data.shape.clone(), map)
}

fn flipped(imp: &mut Importer, data: &Data, dims: &[usize]) -> Result<Data> {
    let mut map = coordinates(data.rank());
    for d in dims.iter().copied().filter(|d| *d < data.rank()) {
        map[d] = &data.shape[d] - &(&map[d] + 1);
    }
    data.remap(imp, data.shape.clone(), map)
}

fn flip(imp: &mut Importer, a: &Args) -> Result<Val> {
    let data = imp.data(a, "self")?;
    let dims = a.ints("dims")?.iter().map(|d| imp.dim(a, *d, data.rank())).collect::<Result<Vec<_>>>()?;
    Ok(flipped(imp, &data, &dims)?.val())
}

fn flip_dim(imp: &mut Importer, a: &Args, dim: usize) -> Result<Val> {
    let data = imp.data(a, "self")?;
    Ok(flipped(imp, &data, &[dim])?.val())
}

/// A quarter turn from the first of two dimensions towards the second, `k` times.
fn rot90(imp: &mut Importer, a: &Args) -> Result<Val> {
    let data = imp.data(a, "self")?;
    let dims = a.ints_or("dims", &[0, 1])?;
    let [first, second] = dims.as_slice() else { return Err(a.wrong("dims", "two dimensions")) };
    let (first, second) = (imp.dim(a, *first, data.rank())?, imp.dim(a, *second, data.rank())?);
    let mut order: Vec<usize> = (0..data.rank()).collect();
    order.swap(first, second);
    let turned = match a.int_or("k", 1)?.rem_euclid(4) {
        1 => flipped(imp, &data, &[second])?.permute(imp, &order)?,
        2 => flipped(imp, &data, &[first, second])?,
        3 => flipped(imp, &data, &[first])?.permute(imp, &order)?,
        _ => data,
    };
    Ok(turned.val())
}

/// A square matrix with a vector on a diagonal.
fn diag(imp: &mut Importer, a: &Args) -> Result<Val> {
    let t = a.tensor("self")?;
    let data = imp.data_of(t)?;
    let offset = a.int_or("diagonal", 0)?;
    match data.rank() {
        1 => Ok(embedded(imp, &data, offset, 0, 1)?.val()),
        2 => {
            let diagonal = diagonal_of(imp, t, offset, 0, 1)?;
            Ok(imp.data_of(diagonal)?.val())
        }
        rank => Err(Error::invalid_program(format!("diag of a tensor of rank {rank}"))),
    }
}

fn diagflat(imp: &mut Importer, a: &Args) -> Result<Val> {
    let data = imp.data(a, "self")?.flat(imp)?;
    Ok(embedded(imp, &data, a.int_or("offset", 0)?, 0, 1)?.val())
}

fn diag_embed(imp: &mut Importer, a: &Args) -> Result<Val> {
    let data = imp.data(a, "self")?;
    let rank = data.rank() + 1;
    let (d1, d2) = (imp.dim(a, a.int_or("dim1", -2)?, rank)?, imp.dim(a, a.int_or("dim2", -1)?, rank)?);
    if d1 == d2 {
        return Err(Error::invalid_program("diag_embed: the two dimensions are one"));
    }
    Ok(embedded(imp, &data, a.int_or("offset", 0)?, d1, d2)?.val())
}

/// The last dimension as the diagonal `offset` above the main one in two new dimensions, zeros elsewhere.
fn embedded(imp: &mut Importer, data: &Data, offset: i64, d1: usize, d2: usize) -> Result<Data> {
    let last = data.rank() - 1;
    let size = &data.shape[last] + offset.abs();
    let mut rest = data.shape[..last].iter();
    let (mut shape, mut map) = (Vec::new(), Vec::new());
    for d in 0..=data.rank() {
        if d == d1 || d == d2 {
            shape.push(size.clone());
        } else if let Some(size) = rest.next() {
            map.push(Expr::loop_var(d));
            shape.push(size.clone());
        }
    }
    let (row, column) = (Expr::loop_var(d1), Expr::loop_var(d2));
    map.push(&row - (-offset).max(0));
    let mut guard = Cond::compare(Compare::Eq, &(&row + offset), &column);
    // The guard alone keeps both coordinates within the diagonal but for its first and last |offset| places.
    let along = &row - (-offset).max(0);
    guard = guard.and(&Cond::compare(Compare::Ge, &along, &Expr::int(0)));
    guard = guard.and(&Cond::compare(Compare::Lt, &along, &data.shape[last]));
    data.moved(imp, &[], shape, map, guard, Scalar::Int(0))
}

/// A number on the main diagonal, [i, i, ...]; with `wrap` the diagonal of a tall matrix starts again below its end, one row left out.
fn fill_diagonal(imp: &mut Importer, a: &Args) -> Result<Val> {
    let data = imp.data(a, "self")?;
    let Some(columns) = data.shape.get(1) else {
        return Err(Error::invalid_program("fill_diagonal_ of a tensor of rank below 2"));
    };
    let first = Expr::loop_var(0);
    let row = if a.bool_or("wrap", false)? && data.rank() == 2 { first.modulo(&(columns + 1)) } else { first };
    let on = |d: usize| Cond::compare(Compare::Eq, &row, &Expr::loop_var(d));
    let guard = (1..data.rank()).fold(Cond::Bool(true), |all, d| all.and(&on(d)));
    let yes = imp.b.full(DType::Bool, vec![], Scalar::Bool(true));
    let diagonal = imp.b.move_(yes, &[], data.shape.clone(), vec![], guard, Scalar::Bool(false))?;
    let fill = imp.operand_data(a, "fill_value", data.dtype)?;
    Ok(Data::select(imp, diagonal, &fill, &data)?.val())
}

/// Elements on and below (or above) a diagonal of the last two dimensions, zeros elsewhere.
fn triangle(imp: &mut Importer, a: &Args, lower: bool) -> Result<Val> {
    let data = imp.data(a, "self")?;
    let offset = a.opt_expr("diagonal")?.unwrap_or_default();
    let Some(row) = data.rank().checked_sub(2) else {
        return Err(Error::invalid_program(format!("{} of a tensor of rank {}", a.target, data.rank())));
    };
    let edge = &Expr::loop_var(row) + &offset;
    let compare = if lower { Compare::Le } else { Compare::Ge };
    let guard = Cond::compare(compare, &Expr::loop_var(row + 1), &edge);
    let map = coordinates(data.rank());
    Ok(data.moved(imp, &[], data.shape.clone(), map, guard, Scalar::Int(0))?.val())
}

fn divided(a: &Args, size: &Expr, by: &Expr) -> Result<Expr> {
    if by.as_int().is_some_and(|n| n <= 0) || size.modulo(by).as_int().is_some_and(|rest| rest != 0) {
        return Err(Error::invalid_program(format!("{}: {size} is not divided by {by}", a.target)));
    }
    Ok(size.floor_div(by))
}

/// Channels [groups, each] transposed.
fn channel_shuffle(imp: &mut Importer, a: &Args) -> Result<Val> {
    let data = imp.data(a, "self")?;
    let groups = a.expr("groups")?;
    if data.rank() < 3 {
        return Err(Error::invalid_program("channel_shuffle of a tensor of rank below 3"));
    }
    let each = divided(a, &data.shape[1], &groups)?;
    let mut map = coordinates(data.rank());
    map[1] = &(&map[1].modulo(&groups) * &each) + &map[1].floor_div(&groups);
    Ok(data.remap(imp, data.shape.clone(), map)?.val())
}

/// [..., c * r * r, h, w] as [..., c, h * r, w * r].
fn pixel_shuffle(imp: &mut Importer, a: &Args) -> Result<Val> {
    let data = imp.data(a, "self")?;
    let r = Expr::int(a.int("upscale_factor")?);
    let Some(c) = data.rank().checked_sub(3) else {
        return Err(Error::invalid_program("pixel_shuffle of a tensor of rank below 3"));
    };
    let (h, w) = (c + 1, c + 2);
    let mut shape = data.shape.clone();
    shape[c] = divided(a, &shape[c], &(&r * &r))?;
    shape[h] = &shape[h] * &r;
    shape[w] = &shape[w] * &r;
    let mut map = coordinates(data.rank());
    let (y, x) = (map[h].clone(), map[w].clone());
    map[c] = &(&(&map[c] * &(&r * &r)) + &(&y.modulo(&r) * &r)) + &x.modulo(&r);
    map[h] = y.floor_div(&r);
    map[w] = x.floor_div(&r);
    Ok(data.remap(imp, shape, map)?.val())
}

/// [..., c, h * r, w * r] as [..., c * r * r, h, w].
fn pixel_unshuffle(imp: &mut Importer, a: &Args) -> Result<Val> {
    let data = imp.data(a, "self")?;
    let r = Expr::int(a.int("downscale_factor")?);
    let Some(c) = data.rank().checked_sub(3) else {
        return Err(Error::invalid_program("pixel_unshuffle of a tensor of rank below 3"));
    };
    let (h, w) = (c + 1, c + 2);
    let mut shape = data.shape.clone();
    shape[c] = &shape[c] * &(&r * &r);
    shape[h] = divided(a, &shape[h], &r)?;
    shape[w] = divided(a, &shape[w], &r)?;
    let mut map = coordinates(data.rank());
    let within = map[c].modulo(&(&r * &r));
    map[c] = map[c].floor_div(&(&r * &r));
    map[h] = &(&map[h] * &r) + &within.floor_div(&r);
    map[w] = &(&map[w] * &r) + &within.modulo(&r);
    Ok(data.remap(imp, shape, map)?.val())
}

/// Two numbers for height and width; one counts for both.
fn pair(a: &Args, name: &str) -> Result<[i64; 2]> {
    match a.ints(name)?.as_slice() {
        [both] => Ok([*both; 2]),
        [y, x] => Ok([*y, *x]),
        _ => Err(a.wrong(name, "two integers")),
    }
}

/// Kernel, dilation, padding and stride of patches, and the number of patches in each direction.
struct Patches {
    kernel: [i64; 2],
    dilation: [i64; 2],
    padding: [i64; 2],
    stride: [i64; 2],
    count: [Expr; 2],
}

impl Patches {
    fn of(a: &Args, image: &[Expr]) -> Result<Patches> {
        let (kernel, dilation) = (pair(a, "kernel_size")?, pair(a, "dilation")?);
        let (padding, stride) = (pair(a, "padding")?, pair(a, "stride")?);
        let count = [0, 1].map(|d| {
            let room = &image[d] + (2 * padding[d] - dilation[d] * (kernel[d] - 1) - 1);
            room.floor_div(&Expr::int(stride[d])) + 1
        });
        Ok(Patches { kernel, dilation, padding, stride, count })
    }

    /// The place in the image of element `k` of patch `p`, in direction `d`.
    fn at(&self, d: usize, p: &Expr, k: &Expr) -> Expr {
        &(&(p * self.stride[d]) + &(k * self.dilation[d])) - self.padding[d]
    }
}

/// [n, c, h, w] (or without n) as [n, c * kernel, patches].
fn im2col(imp: &mut Importer, a: &Args) -> Result<Val> {
    let data = imp.data(a, "self")?;
    let batched = data.rank() == 4;
    let data = if batched { data } else { data.unsqueeze(imp, 0)? };
    let [n, c, h, w] = data.shape.as_slice() else {
        return Err(Error::invalid_program("im2col of a tensor of rank other than 3 and 4"));
    };
    let (n, c, image) = (n.clone(), c.clone(), [h.clone(), w.clone()]);
    imp.require_filled(&[c.clone(), image[0].clone(), image[1].clone()], "im2col");
    let patches = Patches::of(a, &image)?;
    imp.require_filled(&patches.count, "patches of im2col");
    // Over [n, c, ky, kx, py, px].
    let shape = vec![
        n.clone(),
        c.clone(),
        Expr::int(patches.kernel[0]),
        Expr::int(patches.kernel[1]),
        patches.count[0].clone(),
        patches.count[1].clone(),
    ];
    let mut map = vec![Expr::loop_var(0), Expr::loop_var(1)];
    let mut guard = Cond::Bool(true);
    for (d, size) in image.iter().enumerate() {
        let at = patches.at(d, &Expr::loop_var(4 + d), &Expr::loop_var(2 + d));
        guard = guard.and(&Cond::compare(Compare::Ge, &at, &Expr::int(0)));
        guard = guard.and(&Cond::compare(Compare::Lt, &at, size));
        map.push(at);
    }
    let columns = data.moved(imp, &[], shape, map, guard, Scalar::Int(0))?;
    let rows = &c * (patches.kernel[0] * patches.kernel[1]);
    let mut to = vec![n, rows, &patches.count[0] * &patches.count[1]];
    if !batched {
        to.remove(0);
    }
    Ok(columns.reshape(imp, to)?.val())
}

/// The adjoint of [`im2col`]: patches added up where they overlap.
fn col2im(imp: &mut Importer, a: &Args) -> Result<Val> {
    let data = imp.data(a, "self")?;
    let batched = data.rank() == 3;
    let data = if batched { data } else { data.unsqueeze(imp, 0)? };
    let [n, rows, _] = data.shape.as_slice() else {
        return Err(Error::invalid_program("col2im of a tensor of rank other than 2 and 3"));
    };
    let image = a.exprs("output_size")?;
    let [h, w] = image.as_slice() else { return Err(a.wrong("output_size", "two integers")) };
    let patches = Patches::of(a, &image)?;
    let channels = divided(a, rows, &Expr::int(patches.kernel[0] * patches.kernel[1]))?;
    let n = n.clone();
    let grid = vec![
        n.clone(),
        channels.clone(),
        Expr::int(patches.kernel[0]),
        Expr::int(patches.kernel[1]),
        patches.count[0].clone(),
        patches.count[1].clone(),
    ];
    let wide = data.cast(imp, imp.compute_parts(data.dtype))?.reshape(imp, grid)?;
    // Into an image with room for the padding, which is cut off after.
    let padded = [&image[0] + 2 * patches.padding[0], &image[1] + 2 * patches.padding[1]];
    let shape = vec![n.clone(), channels, padded[0].clone(), padded[1].clone()];
    let base = Data::full(imp, wide.dtype, shape, Scalar::Int(0))?;
    let at = |d: usize| patches.at(d, &Expr::loop_var(4 + d), &Expr::loop_var(2 + d)) + patches.padding[d];
    let map = vec![Expr::loop_var(0), Expr::loop_var(1), at(0), at(1)];
    let sum = base.scattered(imp, &wide, &[], map, Some(douse_core::pointwise::Combine::Sum))?;
    let mut to = sum.shape.clone();
    (to[2], to[3]) = (h.clone(), w.clone());
    let mut map = coordinates(4);
    map[2] = &map[2] + patches.padding[0];
    map[3] = &map[3] + patches.padding[1];
    let cut = sum.remap(imp, to, map)?.cast(imp, data.dtype)?;
    if batched {
        return Ok(cut.val());
    }
    let squeezed = cut.shape[1..].to_vec();
    Ok(cut.reshape(imp, squeezed)?.val())
}
