//! Convolutions whose output has few positions: bound by reading the filters. They are products with few rows, the windows, which are copied out of the
//! image first: that is little, and every column of the product reads all of it. A window that is the whole image, point by point, is read where it lies.

use douse_core::sym::Expr;
use douse_core::{Error, Result};
use douse_program::library::{Convolution, View};
use douse_program::target::{LibraryLaunch, LibraryLaunches};

use super::convolution::{Shape, Source, dense, filters, put, row_stride};
use super::function::{Argument, Draft, Writer};
use super::product::{Product, Side, TEMPLATES};
use super::put::Epilogue;
use super::thin;
use super::window::window;

const THREADS: i64 = 256;
/// Elements of a chunk: rows of windows are so many, or a multiple.
const CHUNK: i64 = 8;
/// Bytes of filters from which a launch more, which copies the windows, is worth it.
const LEAST_BYTES: i64 = 1 << 19;
/// Bytes from whose multiples on what follows in scratch memory lies.
const ALIGNMENT: i64 = 256;

/// Whether a convolution is better off so.
pub(super) fn are_few(writer: &Writer, convolution: &Convolution) -> Result<bool> {
    let Convolution { input, weight, groups, .. } = convolution;
    let (dtype, shape) = (writer.dtype(weight)?, Shape::of(writer, convolution)?);
    let plain = *groups == 1 && dtype.is_float() && dtype.size() > 1 && dense(convolution, &shape);
    let positions = shape.positions();
    if !plain || !positions.as_int().is_some_and(|count| (1..=thin::THIN).contains(&count)) {
        return Ok(false);
    }
    let depth = shape.depth(weight);
    let (none, unit) = (Expr::int(0), Expr::int(1));
    let row_stride = row_stride(convolution).unwrap_or(&none);
    let filters = Side { rows: &shape.group_out, depth: &depth, row_stride, depth_stride: &unit };
    let bytes = (&(&depth * &shape.group_out) * dtype.size() as i64).as_int();
    let large = bytes.is_some_and(|bytes| bytes >= LEAST_BYTES);
    Ok(filters.is_deep(dtype) && (large || is_whole(convolution, &shape)) && input.sizes.len() == weight.sizes.len())
}

/// Whether each window is an image of one point.
fn is_whole(convolution: &Convolution, shape: &Shape) -> bool {
    let one = |sizes: &[Expr]| sizes.iter().all(|size| size.is_int(1));
    let points = |view: &View| one(view.sizes.get(2..).unwrap_or_default());
    !convolution.transposed
        && points(&convolution.weight)
        && points(&convolution.input)
        && one(shape.spatial)
        && convolution.padding.iter().all(|size| size.is_int(0))
}

pub(super) fn emit(
    writer: &mut Writer,
    convolution: &Convolution,
    epilogue: Option<&Epilogue>,
) -> Result<LibraryLaunches> {
    let Convolution { input, weight, padding, .. } = convolution;
    let shape = Shape::of(writer, convolution)?;
    let (dtype, element) = (writer.dtype(weight)?, writer.element(weight)?);
    let (rows, depth) = (shape.positions(), shape.depth(weight));
    let (row_stride, depth_stride) = match input.strides.as_slice() {
        [rows, channels, ..] => (rows, channels),
        _ => return Err(Error::internal("a convolution of too few dimensions")),
    };
    let filter = Argument::read("weight", weight);
    let source =
        Source { input: "input", weight: "weight", arguments: vec![], declared: String::new(), scratch: Expr::int(0) };
    let right = filters(writer, convolution, &shape, &depth, "right", &source)?;
    let (apart, unit) = (&depth.ceil_div(&Expr::int(CHUNK)) * CHUNK, Expr::int(1));
    let (copy, windows) = match is_whole(convolution, &shape) {
        true => {
            let side = Side { rows: &rows, depth: &depth, row_stride, depth_stride };
            (None, side.loader(writer, input, "left", &format!("input + {}", writer.size(&input.offset)))?)
        }
        false => {
            let side = Side { rows: &rows, depth: &depth, row_stride: &apart, depth_stride: &unit };
            let start = format!("static_cast<const {element} *>(scratch)");
            (Some(unfold(writer, convolution, &shape, &apart)?), side.loader(writer, weight, "left", &start)?)
        }
    };
    let bytes = &(&rows * &apart) * dtype.size() as i64;
    let scratch = match copy {
        Some(_) => &bytes.ceil_div(&Expr::int(ALIGNMENT)) * ALIGNMENT,
        None => Expr::int(0),
    };
    let arguments = if copy.is_some() { vec![filter] } else { vec![filter, Argument::read("input", input)] };
    let product = Product {
        name: "convolution",
        dtype,
        arguments,
        scratch,
        sizes: [padding, &input.sizes, &input.strides].into_iter().flatten().cloned().collect(),
        batch: Expr::int(1),
        rows,
        columns: shape.group_out.clone(),
        depth,
        deep: false,
        coordinates: String::new(),
        operands: windows + &right,
        mapped: None,
        put: put(writer, convolution, &shape, true, epilogue)?,
    };
    let mut launches = thin::emit(writer, product, "weight")?;
    launches.launches.splice(0..0, copy);
    Ok(launches)
}

/// The copy of the windows to scratch memory, their rows `apart` elements apart: a thread an element.
fn unfold(writer: &mut Writer, convolution: &Convolution, shape: &Shape, apart: &Expr) -> Result<LibraryLaunch> {
    let Convolution { input, weight, padding, .. } = convolution;
    let (element, depth) = (writer.element(input)?, shape.depth(weight));
    let all = &shape.positions() * &depth;
    let body = format!(
        "  const int64 rest = 0;\n{}  const int64 at = blockIdx.x * {THREADS}ll + threadIdx.x;\n  if (at >= {}) return;\n  \
         const int64 row = at / {depth}, k = at % {depth};\n  const {element} *from = window(row, k);\n  \
         static_cast<{element} *>(scratch)[row * {} + k] = from ? *from : {element}{{}};\n",
        window(writer, convolution, shape, "input")?,
        writer.size(&all),
        writer.size(apart),
        depth = writer.size(&depth),
    );
    writer.add(Draft {
        name: "unfold",
        templates: TEMPLATES,
        arguments: vec![Argument::read("input", input)],
        sizes: padding.clone(),
        body,
        grid: [all.ceil_div(&Expr::int(THREADS)), Expr::int(1), Expr::int(1)],
        threads: THREADS as u32,
        scratch: true,
        ..Draft::default()
    })
}
