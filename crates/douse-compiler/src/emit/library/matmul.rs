//! Matrix products.

use douse_core::sym::Expr;
use douse_core::{DType, Result};
use douse_program::library::View;
use douse_program::target::LibraryLaunches;

use super::function::{Argument, Draft, Writer, nth_last};
use super::one;
use super::product::{self, BLOCKS, Mapped, Product, Side};
use super::put::{Epilogue, Put};
use super::tiles::uses_tensor_cores;
use crate::emit::overlap::BEGIN_LATER;

/// Those of products with few rows.
const TEMPLATES: &[&str] = &[
    include_str!("../cuda/operand.cuh"),
    include_str!("../cuda/cluster.cuh"),
    include_str!("../cuda/product.cuh"),
    include_str!("../cuda/thin.cuh"),
];

/// Threads that read a matrix on a multiprocessor at once: 32 warps ask for more than the memory brings.
const MOST_THREADS: i64 = 1024;

/// As many rows (or columns) or fewer make a product that is bound by reading the other operand.
const THIN: i64 = 16;

pub(super) fn emit(
    writer: &mut Writer,
    a: &View,
    b: &View,
    out: &View,
    epilogue: Option<&Epilogue>,
) -> Result<LibraryLaunches> {
    let dtype = writer.dtype(a)?;
    let (m, n, depth) = (nth_last(&out.sizes, 1)?, nth_last(&out.sizes, 0)?, nth_last(&a.sizes, 0)?);
    let leading = out.sizes.get(..out.sizes.len().saturating_sub(2)).unwrap_or_default();
    let (a_strides, b_strides) =
        ((nth_last(&a.strides, 1)?, nth_last(&a.strides, 0)?), (nth_last(&b.strides, 1)?, nth_last(&b.strides, 0)?));
    let left = (a, "a", Side { rows: m, depth, row_stride: a_strides.0, depth_stride: a_strides.1 });
    let right = (b, "b", Side { rows: n, depth, row_stride: b_strides.1, depth_stride: b_strides.0 });
    let float = dtype.is_float() && dtype.size() > 1;
    let thin = |rows: &Side, other: &Side| float && few(writer, dtype, rows.rows) && other.depth_stride.is_int(1);
    let (thin, turned) = match (thin(&left.2, &right.2), thin(&right.2, &left.2)) {
        (true, _) => (true, false),
        (_, true) => (true, true),
        // Results are neighbours along the columns: they should be neighbours in memory.
        _ => (false, !nth_last(&out.strides, 0)?.is_int(1) && nth_last(&out.strides, 1)?.is_int(1)),
    };
    let (left, right) = if turned { (right, left) } else { (left, right) };
    let (coordinates, batch_at) = writer.split("rest", "batch", leading);
    let mut operands = String::new();
    let places = [left.1, right.1].map(|argument| (u32::from(argument == "b"), argument));
    let mapped = Mapped::of(writer, (&left.2, left.0, places[0]), (&right.2, right.0, places[1]), leading, &batch_at);
    for ((view, argument, side), name) in [(&left, "left"), (&right, "right")] {
        let start = format!("{argument} + {}", writer.place(view, &batch_at));
        operands.push_str(&side.loader(writer, view, name, &start)?);
    }
    let mut at = batch_at;
    at.extend(if turned { ["column", "row"] } else { ["row", "column"] }.map(str::to_owned));
    let along = at.iter().position(|at| at == "column");
    let put = Put { setup: String::new(), at, along, columns: right.2.rows.clone(), out, bias: None, epilogue };
    let product = Product {
        name: "matmul",
        dtype,
        arguments: vec![Argument::read("a", a), Argument::read("b", b)],
        scratch: Expr::int(0),
        sizes: vec![],
        batch: Expr::product(leading),
        rows: left.2.rows.clone(),
        columns: right.2.rows.clone(),
        depth: depth.clone(),
        deep: [&left, &right].iter().all(|(_, _, side)| side.is_deep(dtype)),
        coordinates,
        operands,
        mapped,
        put,
    };
    if thin { emit_thin(writer, product, right.1) } else { product::emit(writer, product) }
}

/// Whether there are so few rows. The template without tensor cores has their number as a constant.
fn few(writer: &Writer, dtype: DType, rows: &Expr) -> bool {
    let most = match uses_tensor_cores(dtype) {
        true => writer.indexer.ranges.max(rows),
        false => rows.as_int(),
    };
    most.is_some_and(|most| (1..=THIN).contains(&most))
}

/// `matrix`: the argument that has many rows.
fn emit_thin(writer: &mut Writer, product: Product, matrix: &str) -> Result<LibraryLaunches> {
    let Product { dtype, mut arguments, batch, rows, columns, depth, coordinates, operands, put, .. } = product;
    // The matrix that is read needs no wait.
    let early = arguments.iter().any(|argument| argument.name == matrix && writer.is_constant(argument));
    let most_rows = writer.indexer.ranges.max(&rows).unwrap_or(THIN);
    // Those of products beside this one share the device with it.
    let all_columns = ((&batch * &columns).as_int().unwrap_or(0) as f64 * writer.beside) as i64;
    let depth = depth.as_int().unwrap_or(1024);
    let warps = |step: i64, most: i64| (depth / step).clamp(2, most).ilog2();
    let (template, width, threads) = if uses_tensor_cores(dtype) {
        // So many warps that each multiprocessor has its 32.
        let warps = 1 << warps(128, (32 * 8 * BLOCKS / all_columns.max(1)).clamp(4, 16));
        let row_sets = if most_rows > 8 { 2 } else { 1 };
        (format!("thin_mma_product<{row_sets}, 1, {warps}, {early}>"), 8, 32 * warps)
    } else {
        let width = if all_columns >= 4 * 8 * BLOCKS { 2 } else { 1 };
        let warps = 1 << warps(512, 8);
        (format!("thin_product<{most_rows}, {width}, {warps}, {early}>"), width, 32 * warps)
    };
    // As many blocks as there are share a multiprocessor: registers beyond that would keep some out.
    let blocks = (all_columns.max(1) as u64).div_ceil(width as u64).div_ceil(BLOCKS as u64) as i64;
    let together = blocks.min((MOST_THREADS / threads).max(1));
    let tiles = columns.ceil_div(&Expr::int(width));
    let tiles_text = writer.size(&tiles);
    let body = format!(
        "{}  int64 rest = blockIdx.x;\n  const int64 first = rest % {tiles_text} * {width};\n  rest /= {tiles_text};\n\
         {coordinates}{operands}{}  {template}(first, left, right, put);\n",
        if early { BEGIN_LATER } else { "" },
        put.declare(writer, "row", "", 1)?
    );
    arguments.extend(put.arguments());
    let launch = writer.add(Draft {
        name: "matmul",
        templates: TEMPLATES,
        arguments,
        sizes: put.sizes(),
        body,
        grid: [&batch * &tiles, Expr::int(1), Expr::int(1)],
        threads: threads as u32,
        shared: 0,
        scratch: false,
        special: put.special(),
        together,
        ..Draft::default()
    })?;
    Ok(one(launch))
}
