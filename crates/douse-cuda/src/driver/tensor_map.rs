//! Tensor maps: how the copy engine finds tiles of a matrix (Hopper and later).

use std::ffi::{c_int, c_uint};

use douse_core::{DType, Error, Result};

use super::device::Device;
use super::memory::Place;

/// `CUtensorMap`: 128 opaque bytes that a kernel takes as a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorMap([u64; 16]);

/// As the driver writes it.
#[repr(C, align(64))]
struct Encoded([u64; 16]);

/// `CU_TENSOR_MAP_INTERLEAVE_NONE`, `CU_TENSOR_MAP_SWIZZLE_128B`, `CU_TENSOR_MAP_L2_PROMOTION_L2_256B`, `CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE` (zeros)
const NOT_INTERLEAVED: c_int = 0;
const SWIZZLED: c_int = 3;
const PROMOTED: c_int = 3;
const ZEROS: c_int = 0;
/// What starts and strides are multiples of, in bytes.
const ALIGNMENT: u64 = 16;
/// The most dimensions that the engine knows.
const MOST: usize = 5;
/// The longest dimension: coordinates are 32-bit numbers with a sign, and tiles, of 256 elements at most, reach beyond the last one.
const LONGEST: u64 = i32::MAX as u64 - 256;

impl TensorMap {
    pub(super) fn words(&self) -> [u64; 16] {
        self.0
    }
}

impl Device {
    /// The map of the elements from `place` on: `sizes` along each dimension, the innermost first, `strides` elements apart along each but that
    /// one, brought in tiles.
    ///
    /// # Errors
    /// `Internal` where elements lie beyond the place, or the numbers of dimensions do not agree; `NotSupported` for a dimension that coordinates do not
    /// reach; what the driver says, of strides that are no multiples of 16 bytes, say.
    pub fn tensor_map(
        &self,
        place: Place,
        dtype: DType,
        sizes: &[u64],
        strides: &[u64],
        tile: &[u32],
    ) -> Result<TensorMap> {
        let (rank, width) = (sizes.len(), dtype.size() as u64);
        if !(2..=MOST).contains(&rank) || strides.len() + 1 != rank || tile.len() != rank {
            return Err(Error::internal(format!(
                "a tensor map of sizes {sizes:?}, strides {strides:?}, tiles {tile:?}"
            )));
        }
        if sizes.iter().any(|size| *size > LONGEST) {
            return Err(Error::not_supported(format!(
                "tiles of a tensor of sizes {sizes:?}: none may exceed {LONGEST}"
            )));
        }
        let all = [1].into_iter().chain(strides.iter().copied()).zip(sizes);
        let last =
            all.fold(0u64, |last, (stride, size)| last.saturating_add(stride.saturating_mul(size.saturating_sub(1))));
        let empty = sizes.contains(&0);
        if !empty && last.saturating_add(1).saturating_mul(width) > place.len() as u64 {
            let len = place.len();
            return Err(Error::internal(format!(
                "a tensor map of sizes {sizes:?}, strides {strides:?} over {len} bytes"
            )));
        }
        // The engine knows no empty dimension; nothing asks for any of it.
        let sizes: Vec<u64> = sizes.iter().map(|size| if empty { 1 } else { *size }).collect();
        let bytes: Vec<u64> =
            strides.iter().map(|stride| if empty { ALIGNMENT } else { stride.saturating_mul(width) }).collect();
        let kind = match dtype {
            DType::F16 => 6,
            DType::BF16 => 9,
            other => return Err(Error::internal(format!("a tensor map of {other}"))),
        };
        let neighbours: [c_uint; MOST] = [1; MOST];
        let mut encoded = Encoded([0; 16]);
        let _current = self.enter()?;
        // SAFETY: the pointers are to arrays of as many elements as the rank, or one less for the strides; the map is aligned to 64 bytes. No memory is
        // read; kernels read what lies in the place alone.
        let status = unsafe {
            (self.table().cuTensorMapEncodeTiled)(
                encoded.0.as_mut_ptr(),
                kind,
                rank as c_uint,
                place.address(),
                sizes.as_ptr(),
                bytes.as_ptr(),
                tile.as_ptr(),
                neighbours.as_ptr(),
                NOT_INTERLEAVED,
                SWIZZLED,
                PROMOTED,
                ZEROS,
            )
        };
        self.check("cuTensorMapEncodeTiled", status)?;
        Ok(TensorMap(encoded.0))
    }
}
