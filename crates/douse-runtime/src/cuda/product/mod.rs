//! Matrix products that cuBLASLt does in place of the program's own kernels.
//!
//! A program may have been lowered so that cuBLASLt is used where it is installed and faster. Its own kernels are there all the same: both are
//! [tried](trial) when a method is loaded, for each product of known sizes outside of branches and loops of the device, and the faster one is
//! kept for as long as the device is held. A kernel that is a product's epilogue runs by itself then, over a result in the scratch memory. A
//! call of the library that fails leaves the product to the own kernels from then on.

mod form;
mod trial;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use douse_core::{Error, Result};
use douse_cuda::blas::Product;
use douse_cuda::{Place, Stream};
use douse_program::plan::BufferId;

use super::action::Launched;
pub(super) use form::{Operand, Shape};
pub(super) use trial::{Trials, Tried};

/// The scratch memory's parts begin at multiples of this.
const ALIGNMENT: usize = 256;

/// A product as the library does it.
#[derive(Debug)]
pub(super) struct LibraryProduct {
    pub product: Arc<Product>,
    pub a: Operand,
    pub b: Operand,
    pub out: Operand,
    /// Over the result, which lies in the scratch memory then.
    pub epilogue: Vec<Launched>,
    pub scratch: Scratch,
    /// A call of the library failed.
    failed: AtomicBool,
}

/// The parts of a product's scratch memory, by where they begin: the result where it is not stored, the epilogue's, the workspace.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scratch {
    /// Bytes of the result, where it goes to an epilogue.
    result: Option<usize>,
    epilogue: usize,
    workspace: usize,
    pub total: usize,
}

/// A product with its places.
#[derive(Clone, Debug)]
pub(super) struct ProductCall {
    pub product: Arc<Product>,
    pub a: Place,
    pub b: Place,
    pub out: Place,
    pub workspace: Place,
}

/// What became of a product that cuBLASLt might do.
#[derive(Clone, Debug, PartialEq)]
pub struct ProductMeta {
    /// `4096x1024x1024 bfloat16`: rows, columns, depth; before them the number of products, where it is not one.
    pub shape: String,
    /// A kernel takes its result.
    pub epilogue: bool,
    /// Microseconds that the program's own kernels took, and the library with the epilogue by itself. `None` where it cannot do the product.
    pub own: f32,
    pub library: Option<f32>,
    pub by_library: bool,
}

/// What became of the products of a method that was lowered to use cuBLASLt.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProductsReport {
    /// Why the program's own kernels do all of them.
    pub missing: Option<String>,
    /// In the order of the plan.
    pub products: Vec<ProductMeta>,
    /// Those that could not be tried, with the reason.
    pub untried: Vec<String>,
}

impl Scratch {
    /// `None` for more bytes than there are numbers.
    fn new(result: Option<usize>, epilogue: usize, workspace: usize) -> Option<Scratch> {
        let after = result.unwrap_or(0).checked_next_multiple_of(ALIGNMENT)?;
        let behind = after.checked_add(epilogue)?.checked_next_multiple_of(ALIGNMENT)?;
        Some(Scratch { result, epilogue: after, workspace: behind, total: behind.checked_add(workspace)? })
    }

    /// The result, where it lies here.
    pub fn result(&self, all: Place) -> Result<Option<Place>> {
        self.result.map(|bytes| all.part(0..bytes)).transpose()
    }

    /// What the epilogue's launches share.
    pub fn epilogue(&self, all: Place) -> Result<Place> {
        all.part(self.epilogue..self.workspace)
    }

    pub fn workspace(&self, all: Place) -> Result<Place> {
        all.part(self.workspace..self.total)
    }
}

impl LibraryProduct {
    /// Whether the own kernels do it.
    pub fn is_left(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// Leaves it to the own kernels from now on.
    pub fn leave(&self, error: &Error) {
        self.failed.store(true, Ordering::Relaxed);
        tracing::info!("a product goes back to the program's own kernels: {error}");
    }

    /// The call, where the buffers lie so.
    ///
    /// # Errors
    /// Those of `place`; `Internal` where an operand leaves its memory.
    pub fn call(&self, mut place: impl FnMut(BufferId) -> Result<Place>, scratch: Place) -> Result<ProductCall> {
        let mut operand = |operand: &Operand| operand.within(place(operand.buffer)?);
        let (a, b) = (operand(&self.a)?, operand(&self.b)?);
        let out = match self.scratch.result(scratch)? {
            Some(result) => self.out.within(result)?,
            None => operand(&self.out)?,
        };
        Ok(ProductCall { product: self.product.clone(), a, b, out, workspace: self.scratch.workspace(scratch)? })
    }
}

impl ProductCall {
    /// # Errors
    /// What the library says, nothing having begun.
    pub fn run(&self, stream: &Stream) -> Result<()> {
        self.product.run(self.a, self.b, self.out, self.workspace, stream)
    }
}

impl PartialEq for ProductCall {
    fn eq(&self, other: &ProductCall) -> bool {
        let places = |call: &ProductCall| [call.a, call.b, call.out, call.workspace];
        Arc::ptr_eq(&self.product, &other.product) && places(self) == places(other)
    }
}

impl fmt::Display for ProductMeta {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by = if self.by_library { "cuBLASLt" } else { "own" };
        let with = if self.epilogue { " with an epilogue" } else { "" };
        write!(f, "{by}: {}{with}: own {:.1} us, cuBLASLt ", self.shape, self.own)?;
        match self.library {
            Some(time) => write!(f, "{time:.1} us"),
            None => f.write_str("cannot"),
        }
    }
}
