//! A cuBLASLt in the same library: products that the host computes when their turn on the stream comes.
//!
//! It is strict where the real one trusts: places must lie in memory, and have the alignment that was promised when the algorithm was asked for.
//! The workspace is written over.

#![allow(non_snake_case, unused_unsafe)]

use std::ffi::{c_int, c_void};

use half::{bf16, f16};

use crate::entry::put;
use crate::exports::functions;
use crate::status::{INVALID_VALUE, Outcome, fail};
use crate::stream::Work;
use crate::world::world;

/// What every algorithm takes.
const WORKSPACE: usize = 1000;
/// In the first word of an algorithm, so that another one's is known.
const MARK: u64 = 0xb1a5;

/// `cublasLtMatmulDesc_t`
#[derive(Clone, Copy, Default)]
pub struct Description {
    scale: c_int,
    turned: [bool; 2],
}

/// `cublasLtMatrixLayout_t`
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    kind: c_int,
    rows: u64,
    columns: u64,
    step: i64,
    batch: c_int,
    batch_stride: i64,
}

/// `cublasLtMatmulPreference_t`: bytes of workspace, the alignments of A, B, C and D.
#[derive(Clone, Copy, Default)]
pub struct Preference {
    workspace: u64,
    alignments: [u32; 4],
}

/// `cublasLtMatmulHeuristicResult_t`, in words.
type Heuristic = [u64; 12];

/// A product on a stream.
#[derive(Clone, Debug)]
pub struct Product {
    turned: [bool; 2],
    layouts: [Layout; 3],
    places: [u64; 3],
    workspace: u64,
}

impl Layout {
    fn size(&self) -> usize {
        match self.kind {
            0 => 4,
            1 => 8,
            _ => 2,
        }
    }

    fn bytes(&self) -> usize {
        let last = (self.columns as i64 - 1) * self.step + (i64::from(self.batch) - 1) * self.batch_stride;
        (last + self.rows as i64) as usize * self.size()
    }

    fn at(&self, batch: i64, row: i64, column: i64) -> usize {
        (batch * self.batch_stride + row + column * self.step) as usize * self.size()
    }

    /// Whether it is a layout of some type.
    fn is_sound(&self) -> bool {
        [0, 1, 2, 14].contains(&self.kind) && self.step >= self.rows as i64 && self.batch > 0 && self.batch_stride >= 0
    }

    /// # Safety
    /// The element lies in memory.
    unsafe fn read(&self, address: *const u8) -> f64 {
        // SAFETY: the caller's.
        unsafe {
            match self.kind {
                0 => f64::from(address.cast::<f32>().read_unaligned()),
                1 => address.cast::<f64>().read_unaligned(),
                2 => address.cast::<f16>().read_unaligned().to_f64(),
                _ => address.cast::<bf16>().read_unaligned().to_f64(),
            }
        }
    }

    /// # Safety
    /// As [`Layout::read`].
    unsafe fn write(&self, address: *mut u8, value: f64) {
        // SAFETY: the caller's.
        unsafe {
            match self.kind {
                0 => address.cast::<f32>().write_unaligned(value as f32),
                1 => address.cast::<f64>().write_unaligned(value),
                2 => address.cast::<f16>().write_unaligned(f16::from_f32(value as f32)),
                _ => address.cast::<bf16>().write_unaligned(bf16::from_f32(value as f32)),
            }
        }
    }
}

impl Product {
    /// Computes it.
    ///
    /// # Errors
    /// `ILLEGAL_ADDRESS` for a place that is no memory.
    pub fn perform(&self) -> Outcome {
        let [a, _, out] = &self.layouts;
        {
            let world = world();
            for (layout, place) in self.layouts.iter().zip(self.places) {
                world.memory.check(place, layout.bytes(), "a matrix of a product")?;
            }
            world.memory.check(self.workspace, WORKSPACE, "the workspace of a product")?;
        }
        // SAFETY: checked; memory is freed only when no work waits.
        unsafe { std::ptr::write_bytes(self.workspace as *mut u8, 0xab, WORKSPACE) };
        let depth = if self.turned[0] { a.rows } else { a.columns } as i64;
        for batch in 0..i64::from(out.batch) {
            let element = |side: usize, row: i64, column: i64| {
                let layout = &self.layouts[side];
                let (row, column) = if self.turned[side] { (column, row) } else { (row, column) };
                // SAFETY: it lies in what was checked.
                unsafe { layout.read((self.places[side] as usize + layout.at(batch, row, column)) as *const u8) }
            };
            let columns = out.columns as i64;
            let right: Vec<Vec<f64>> =
                (0..depth).map(|k| (0..columns).map(|column| element(1, k, column)).collect()).collect();
            for row in 0..out.rows as i64 {
                let mut sums = vec![0f64; columns as usize];
                for (k, right) in (0i64..).zip(&right) {
                    let left = element(0, row, k);
                    sums.iter_mut().zip(right).for_each(|(sum, right)| *sum += left * right);
                }
                for (column, sum) in (0i64..).zip(sums) {
                    let place = self.places[2] as usize + out.at(batch, row, column);
                    // SAFETY: it lies in what was checked.
                    unsafe { out.write(place as *mut u8, sum) };
                }
            }
        }
        Ok(())
    }
}

/// Gives a new object away.
unsafe fn give<T>(to: *mut *mut T, value: T) -> Outcome {
    // SAFETY: the caller's pointer.
    unsafe { to.write(Box::into_raw(Box::new(value))) };
    Ok(())
}

/// Takes an object back.
unsafe fn take<T>(object: *mut T) -> Outcome {
    // SAFETY: given by `give`, and to be used no more.
    drop(unsafe { Box::from_raw(object) });
    Ok(())
}

functions! {
    context fn cublasLtCreate(handle: *mut *mut u64) {
        give(handle, MARK)
    }

    context fn cublasLtDestroy(handle: *mut u64) {
        take(handle)
    }

    plain fn cublasLtMatmulDescCreate(description: *mut *mut Description, compute: c_int, scale: c_int) {
        // Sums in float64 of float64, in float32 of others.
        if ![(68, 0), (70, 1), (77, 0)].contains(&(compute, scale)) {
            return fail(INVALID_VALUE, format!("sums of type {compute}, scaled by {scale}"));
        }
        give(description, Description { scale, ..Description::default() })
    }

    plain fn cublasLtMatmulDescDestroy(description: *mut Description) {
        take(description)
    }

    plain fn cublasLtMatmulDescSetAttribute(
        description: *mut Description, attribute: c_int, value: *const c_int, size: usize,
    ) {
        if size != 4 || !(3..=4).contains(&attribute) {
            return fail(INVALID_VALUE, format!("attribute {attribute} of {size} bytes"));
        }
        (*description).turned[attribute as usize - 3] = value.read() == 1;
        Ok(())
    }

    plain fn cublasLtMatrixLayoutCreate(layout: *mut *mut Layout, kind: c_int, rows: u64, columns: u64, step: i64) {
        give(layout, Layout { kind, rows, columns, step, batch: 1, batch_stride: 0 })
    }

    plain fn cublasLtMatrixLayoutDestroy(layout: *mut Layout) {
        take(layout)
    }

    plain fn cublasLtMatrixLayoutSetAttribute(layout: *mut Layout, attribute: c_int, value: *const c_void, size: usize) {
        match (attribute, size) {
            (5, 4) => (*layout).batch = value.cast::<c_int>().read(),
            (6, 8) => (*layout).batch_stride = value.cast::<i64>().read(),
            _ => return fail(INVALID_VALUE, format!("attribute {attribute} of {size} bytes")),
        }
        Ok(())
    }

    plain fn cublasLtMatmulPreferenceCreate(preference: *mut *mut Preference) {
        give(preference, Preference::default())
    }

    plain fn cublasLtMatmulPreferenceDestroy(preference: *mut Preference) {
        take(preference)
    }

    plain fn cublasLtMatmulPreferenceSetAttribute(
        preference: *mut Preference, attribute: c_int, value: *const c_void, size: usize,
    ) {
        match (attribute, size) {
            (1, 8) => (*preference).workspace = value.cast::<u64>().read(),
            // Sums of parts in the type of sums alone.
            (3, 4) if value.cast::<u32>().read() == 2 => {}
            (5..=8, 4) => (*preference).alignments[attribute as usize - 5] = value.cast::<u32>().read(),
            _ => return fail(INVALID_VALUE, format!("attribute {attribute} of {size} bytes")),
        }
        Ok(())
    }

    context fn cublasLtMatmulAlgoGetHeuristic(
        handle: *mut u64, description: *mut Description, a: *mut Layout, b: *mut Layout, c: *mut Layout, d: *mut Layout,
        preference: *mut Preference, wanted: c_int, results: *mut Heuristic, found: *mut c_int,
    ) {
        if *handle != MARK || wanted < 1 || c != d || ![a, b, d].iter().all(|layout| (**layout).is_sound()) {
            return fail(INVALID_VALUE, "layouts that are none");
        }
        let sides = |layout: &Layout, turned| if turned { (layout.columns, layout.rows) } else { (layout.rows, layout.columns) };
        let ((m, k), (depth, n)) = (sides(&*a, (*description).turned[0]), sides(&*b, (*description).turned[1]));
        let kinds = (*a).kind == (*b).kind && ((*description).scale == 1) == ((*a).kind == 1);
        if (m, n, k) != ((*d).rows, (*d).columns, depth) || !kinds {
            return fail(INVALID_VALUE, "matrices that do not fit each other");
        }
        let enough = (*preference).workspace >= WORKSPACE as u64;
        found.write(c_int::from(enough));
        let [left, right, _, out] = (*preference).alignments.map(u64::from);
        results.write([MARK, left, right, out, 0, 0, 0, 0, WORKSPACE as u64, 0, 0, 0]);
        Ok(())
    }

    context fn cublasLtMatmul(
        handle: *mut u64, description: *const Description, _alpha: *const c_void, a: u64, a_layout: *const Layout, b: u64,
        b_layout: *const Layout, _beta: *const c_void, c: u64, c_layout: *const Layout, d: u64, d_layout: *const Layout,
        algorithm: *const [u64; 8], workspace: u64, workspace_size: usize, stream: u64,
    ) {
        let [mark, alignments @ .., _, _, _, _] = algorithm.read();
        let places = [a, b, d];
        if *handle != MARK || mark != MARK || c != d || c_layout != d_layout || workspace_size < WORKSPACE {
            return fail(INVALID_VALUE, "a product that was not asked for");
        }
        if places.iter().zip(alignments).any(|(place, alignment)| place % alignment != 0) {
            return fail(INVALID_VALUE, "a matrix that is not aligned as was promised");
        }
        let layouts = [*a_layout, *b_layout, *d_layout];
        world().note("product");
        put(stream, Work::Product(Product { turned: (*description).turned, layouts, places, workspace }))
    }
}
