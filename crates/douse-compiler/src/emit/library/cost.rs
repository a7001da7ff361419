//! What a product takes on an H200, in microseconds, by its tiles and by the slices that blocks share its depth in: of so many blocks, each of which goes through so
//! many elements of depth. The choice of tiles compares these; what all of them would take besides is left out.

use super::product::{BLOCKS, STAGE};
use super::tiles::Tiles;

/// A model: tiles, blocks, each one's depth, and slices of the depth.
pub(super) type Time = fn(&Tiles, i64, f64, i64) -> f64;

/// Blocks that the busiest multiprocessor has.
fn rounds(blocks: i64) -> f64 {
    (blocks as u64).div_ceil(BLOCKS as u64) as f64
}

/// Where threads copy the operands, by what a multiprocessor of an H200 does in a microsecond.
pub(super) fn copying_time(tiles: &Tiles, blocks: i64, depth: f64, slices: i64) -> f64 {
    /// Bytes from the second-level cache, when all ask.
    const LOADS: f64 = 53e3;
    /// Operations of its tensor cores.
    const OPERATIONS: f64 = 4.2e6;
    /// Bytes of other blocks' sums.
    const SUMS: f64 = 60e3;
    let (rows, columns) = (tiles.rows as f64, tiles.columns as f64);
    let (loads, operations) = ((rows + columns) * depth * 2.0 / LOADS, 2.0 * rows * columns * depth / OPERATIONS);
    let sums = if slices > 1 { 0.5 + rows * columns * 4.0 / SUMS } else { 0.0 };
    rounds(blocks) * (loads.max(operations) + sums)
}

/// Where the copy engine brings them. (Measured with 64 to 6304 rows, 768 to 4096 columns and as much depth.)
pub(super) fn bulk_time(tiles: &Tiles, blocks: i64, depth: f64, slices: i64) -> f64 {
    const LOADS: f64 = 80e3;
    const OPERATIONS: f64 = 7e6;
    /// A stage takes no less than so long.
    const LEAST: f64 = 0.15;
    /// Until the first stage is there.
    const FIRST: f64 = 1.0;
    /// Results that a block puts.
    const RESULTS: f64 = 5e3;
    /// Slices cost so much each: those of clusters that are not all there at once, much more.
    const SLICES: f64 = 0.75;
    if slices > 1 && blocks > BLOCKS {
        return f64::INFINITY;
    }
    let (rows, columns) = (tiles.rows as f64, tiles.columns as f64);
    let (loads, operations) =
        ((rows + columns) * STAGE as f64 * 2.0 / LOADS, 2.0 * rows * columns * STAGE as f64 / OPERATIONS);
    let stages = (depth / STAGE as f64).ceil() * loads.max(operations).max(LEAST);
    let around = FIRST + rows * columns / RESULTS;
    // What a block does besides is hidden by those that share the multiprocessor with it.
    let alone = (rounds(blocks) / tiles.together as f64).ceil();
    rounds(blocks) * stages + alone * around + SLICES * (slices - 1) as f64
}

/// Float32 without tensor cores, slices in clusters. (Measured with 64 to 4096 rows, 49 to 4096 columns and a depth of 64 to 4608.)
pub(super) fn fma_time(tiles: &Tiles, blocks: i64, depth: f64, slices: i64) -> f64 {
    float32_time(12.8e3, tiles, blocks, depth, slices)
}

/// Float32 in TF32, slices in clusters. (Not fitted to measurements: as many products as tensor cores make beside what is loaded for them.)
pub(super) fn tf32_time(tiles: &Tiles, blocks: i64, depth: f64, slices: i64) -> f64 {
    float32_time(50e3, tiles, blocks, depth, slices)
}

/// `products`: of two numbers in the depth of a stage.
fn float32_time(products: f64, tiles: &Tiles, blocks: i64, depth: f64, slices: i64) -> f64 {
    /// A stage's depth (some have twice that).
    const STAGE: f64 = 16.0;
    /// Besides, each row and column takes so long.
    const LINES: f64 = 0.0014;
    /// A stage of a block that is alone takes so much longer.
    const ALONE: f64 = 0.08;
    /// Until the first stage is there.
    const FIRST: f64 = 1.0;
    /// Results that a block puts.
    const RESULTS: f64 = 8e3;
    /// Each slice more.
    const SLICES: f64 = 0.75;
    /// Multiprocessors on which clusters of four and more find their places.
    const CLUSTERED: i64 = 120;
    if slices > 1 && blocks > BLOCKS * tiles.together {
        return f64::INFINITY;
    }
    let (rows, columns) = (tiles.rows as f64, tiles.columns as f64);
    let all = if slices < 4 { BLOCKS } else { CLUSTERED };
    let blocks = (blocks as f64 / all as f64).ceil();
    let rounds = (blocks / tiles.together as f64).ceil();
    let work = rows * columns / products + (rows + columns) * LINES;
    let stages = (depth / STAGE).ceil() * (blocks * work).max(rounds * (work + ALONE));
    stages + rounds * FIRST + blocks * rows * columns / RESULTS + SLICES * (slices - 1) as f64
}

/// The time of one of these where a second launch adds the slices up.
pub(super) fn parts_time(time: Time, tiles: &Tiles, blocks: i64, depth: f64, slices: i64) -> f64 {
    const LAUNCH: f64 = 3.0;
    /// Sums that are stored and loaded again.
    const SUMS: f64 = 400e3;
    let sums = (tiles.rows * tiles.columns * blocks) as f64 / SUMS;
    time(tiles, blocks, depth, 1) + if slices > 1 { LAUNCH + sums } else { 0.0 }
}
