//! Tensor maps: what `cuTensorMapEncodeTiled` writes here, and `soft.cuh` reads.

use std::ffi::c_int;

use crate::status::{INVALID_VALUE, Outcome, fail};

const MOST: usize = 5;
/// Bytes that a line of a tile takes in the 128-byte swizzle, at most.
const LINE: u64 = 128;
/// Elements of a tile along a dimension, at most.
const TILE: u32 = 256;

/// `SoftTensorMap`, in the room of a `CUtensorMap`.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub struct TensorMap {
    start: u64,
    sizes: [u64; MOST],
    /// In bytes, from the second dimension on.
    strides: [u64; MOST - 1],
    tile: [u32; MOST],
    rank: u32,
    /// Bytes of an element.
    width: u32,
}

const _: () = assert!(size_of::<TensorMap>() == 128);

impl TensorMap {
    /// As the driver's documentation has it: starts and strides are multiples of 16 bytes, sizes are not 0, tiles fit.
    pub fn new(kind: c_int, start: u64, sizes: &[u64], strides: &[u64], tile: &[u32]) -> Outcome<TensorMap> {
        // CU_TENSOR_MAP_DATA_TYPE_FLOAT16, BFLOAT16
        let width = if [6, 9].contains(&kind) {
            2
        } else {
            return fail(INVALID_VALUE, format!("a tensor map of type {kind}"));
        };
        let rank = sizes.len();
        let aligned = start.is_multiple_of(16) && strides.iter().all(|s| s.is_multiple_of(16) && *s < 1 << 40);
        let sized = sizes.iter().all(|size| (1..=1 << 32).contains(size));
        let fits =
            tile.iter().all(|n| (1..=TILE).contains(n)) && tile.first().is_some_and(|n| u64::from(n * width) <= LINE);
        if !(2..=MOST).contains(&rank) || !aligned || !sized || !fits {
            return fail(
                INVALID_VALUE,
                format!("a tensor map from {start:#x}, {sizes:?} by {strides:?}, in tiles of {tile:?}"),
            );
        }
        let mut map =
            TensorMap { start, sizes: [1; MOST], strides: [0; MOST - 1], tile: [1; MOST], rank: rank as u32, width };
        map.sizes[..rank].copy_from_slice(sizes);
        map.strides[..strides.len()].copy_from_slice(strides);
        map.tile[..rank].copy_from_slice(tile);
        Ok(map)
    }
}
