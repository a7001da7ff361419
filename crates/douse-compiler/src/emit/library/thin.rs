//! Products with few rows: bound by reading the other operand.

use douse_core::sym::Expr;
use douse_core::{DType, Result};
use douse_program::target::LibraryLaunches;

use super::function::{Draft, Writer};
use super::one;
use super::product::{BLOCKS, Product};
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
pub(super) const THIN: i64 = 16;
/// Rows for each column of a lane: shared memory and caches bring four times what the memory does.
const ROWS_A_COLUMN: i64 = 4;

/// Whether there are so few rows. The template without tensor cores has their number as a constant.
pub(super) fn few(writer: &Writer, dtype: DType, rows: &Expr) -> bool {
    let most = match uses_tensor_cores(dtype) {
        true => writer.indexer.ranges.max(rows),
        false => rows.as_int(),
    };
    most.is_some_and(|most| (1..=THIN).contains(&most))
}

/// `matrix`: the argument that has many rows.
pub(super) fn emit(writer: &mut Writer, product: Product, matrix: &str) -> Result<LibraryLaunches> {
    let Product {
        name,
        dtype,
        mut arguments,
        scratch,
        sizes,
        batch,
        rows,
        columns,
        depth,
        coordinates,
        operands,
        put,
        ..
    } = product;
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
        // Lanes read the rows for every columns that they have: for many rows, several, lest that take longer than to read the matrix; but not so many that
        // multiprocessors have nothing to do.
        let least = if all_columns >= 4 * 8 * BLOCKS { 2 } else { 1 };
        let wanted = (most_rows as u64).div_ceil(ROWS_A_COLUMN as u64).next_power_of_two() as i64;
        let width = wanted.clamp(least, least.max(1 << (all_columns / BLOCKS).max(1).ilog2()));
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
        name,
        templates: TEMPLATES,
        arguments,
        sizes: [sizes, put.sizes()].concat(),
        body,
        grid: [&batch * &tiles, Expr::int(1), Expr::int(1)],
        threads: threads as u32,
        shared: 0,
        scratch: !scratch.is_int(0),
        special: put.special(),
        together,
        ..Draft::default()
    })?;
    Ok(LibraryLaunches { scratch, ..one(launch) })
}
