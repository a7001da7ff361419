//! Code of a method for a CUDA architecture: how each kernel and library step of its plan is launched.
//!
//! A launch passes, in this order: each of its [tensor maps](TensorMap), of 128 bytes; a device pointer for each buffer; each symbol's value as
//! a signed 64-bit integer; if the launch says so, a pointer to the step's scratch memory, to the call's [error flag](Launch::flag) (once, if
//! it raises it or looks at it), and to its [random state](Launch::random). A launch whose grid has an empty dimension is left out: it has
//! nothing to do.
//!
//! Whether the code takes that is checked when a method is loaded, by the number and sizes of each function's parameters, with a driver that knows them
//! (CUDA 12.4 and later).

use douse_core::sym::Expr;
use serde::{Deserialize, Serialize};

use crate::library::Library;
use crate::plan::{BufferId, Plan, Step};

/// A method's code for one architecture.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CudaTarget {
    /// `sm_90`.
    pub arch: String,
    /// Keys of the named data that hold the modules' binaries.
    pub modules: Vec<String>,
    /// How each of [`Plan::kernels`] is run; without launches, those that are epilogues alone.
    pub kernels: Vec<KernelLaunches>,
    /// How each library step is run, in the order of [`library_steps`]. The launches do the work of its epilogue too. Of steps that stand
    /// together, the first may do the work of others, which have no launches then.
    pub library: Vec<LibraryLaunches>,
    /// `(void *to, const void *from, int64 bytes)`: copies, as `guarded_copy` does; either place may be pinned memory of the host.
    pub copy: FunctionName,
    /// `(void *to, const void *from, int64 bytes, const ErrorFlag *flag)`: copies unless the flag is raised, by any grid of
    /// [`COPY_THREADS`] threads a block; both places are aligned to 16 bytes. There where a step copies to state and a check can fail.
    pub guarded_copy: Option<FunctionName>,
    /// `(void *to, const void *from, int64 bytes, Control *control, Told *told)`: copies as `copy` does, and, when everything is there, tells
    /// the host so, as [`CONTROL_BYTES`] and [`TOLD_BYTES`] say.
    pub finish: FunctionName,
    /// `(void *to, const void *from, int64 bytes, int64 sizes[4], int64 to_strides[4], int64 from_strides[4])`, the arrays as four parameters
    /// each: copies elements of that many bytes (1, 2, 4, 8 or 16) between places that are strided in elements, by any grid of
    /// [`COPY_THREADS`] threads a block.
    pub rearrange: FunctionName,
    /// `(const bool *predicate, cudaGraphConditionalHandle condition, const ErrorFlag *flag)`: sets the condition to the predicate, or to
    /// false where the flag is raised, by one thread. There where a branch or loop depends on a value of the device.
    pub set_condition: Option<FunctionName>,
    /// How its products are done.
    pub products: ProductOptions,
    /// Every function first waits for the work before it (`griddepcontrol.wait`), so that its launch may begin while that work ends: edges of
    /// a graph between two of them may be programmatic.
    pub overlaps: bool,
}

/// How matrix products, and convolutions, are done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProductOptions {
    pub by: Products,
    /// Operands of float32 products and convolutions may be rounded to TF32, which tensor cores multiply: 10 bits of mantissa, to nearest. Sums are in
    /// float32. (PyTorch's `torch.backends.cuda.matmul.allow_tf32` and `torch.backends.cudnn.allow_tf32`, of which exported programs say nothing.)
    pub tf32: bool,
}

/// Who does matrix products.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Products {
    /// The program's own kernels.
    #[default]
    Own,
    /// cuBLASLt, where it is installed and measured faster when the method is loaded; the own kernels, which are there all the same, otherwise.
    /// [`CudaTarget::kernels`] has launches for the epilogues of products too, which run by themselves over results of cuBLASLt's.
    CublasLt,
}

/// Bytes of a call's control block on the device: `{ErrorFlag flag; uint32 tickets}`, all zero before and after a call.
pub const CONTROL_BYTES: usize = 32;

/// Bytes of what the host is told: `{ErrorFlag flag; uint32 done}`, the flag as it was, and `done` 1 once everything that was copied is there.
pub const TOLD_BYTES: usize = 32;

/// Threads of a block of the functions that copy.
pub const COPY_THREADS: u32 = 256;

/// Parameters of [`CudaTarget::copy`], [`guarded_copy`](CudaTarget::guarded_copy), [`finish`](CudaTarget::finish),
/// [`rearrange`](CudaTarget::rearrange) and [`set_condition`](CudaTarget::set_condition), of 8 bytes each.
pub const COPY_PARAMETERS: usize = 3;
pub const GUARDED_COPY_PARAMETERS: usize = 4;
pub const FINISH_PARAMETERS: usize = 5;
pub const REARRANGE_PARAMETERS: usize = 15;
pub const SET_CONDITION_PARAMETERS: usize = 3;

/// A function of a module.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FunctionName {
    /// By its place in [`CudaTarget::modules`].
    pub module: u32,
    pub function: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Launch {
    /// The module that has the function, by its place in [`CudaTarget::modules`].
    pub module: u32,
    /// The function's name in the module.
    pub function: String,
    /// Blocks, over the plan's symbols.
    pub grid: [Expr; 3],
    /// Threads a block.
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub shared: u32,
    /// The symbols whose values it takes, by number.
    pub symbols: Vec<u32>,
    /// Takes the step's scratch memory.
    pub scratch: bool,
    /// Takes the call's error flag: `{int code, message; long long value, size}`, all zero at the start of the call. Code 1 is an index out of
    /// range (`value` is the index, `size` what it must be below), code 2 a failed assertion; `message` is a number in [`Plan::messages`].
    /// Codes from 3 are the [failures](crate::failure::Failure) of library steps.
    pub flag: bool,
    /// Takes the error flag too, and does nothing where it is raised: it writes state, in a method whose checks can fail.
    pub guard: bool,
    /// Takes the random state: `{unsigned long long seed, call}`.
    pub random: bool,
    /// Takes these tensor maps.
    pub maps: Vec<TensorMap>,
}

/// How the copy engine of Hopper and later finds tiles of a buffer, which lie in shared memory in the 128-byte swizzle then; what lies outside is zero.
/// (CUDA Driver API, `cuTensorMapEncodeTiled`.)
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TensorMap {
    /// By its place among the launch's buffers.
    pub buffer: u32,
    /// Elements before the first.
    pub offset: Expr,
    /// Elements along each dimension, the innermost first, whose elements are neighbours; two to five.
    pub sizes: Vec<Expr>,
    /// Elements between neighbours along each dimension but the innermost; in bytes, multiples of 16.
    pub strides: Vec<Expr>,
    /// Elements of a tile along each dimension, at most 256.
    pub tile: Vec<u32>,
}

impl TensorMap {
    /// The same in tiles of so many elements along the first two dimensions, one along the others.
    pub fn of_tiles(mut self, depth: i64, rows: i64) -> TensorMap {
        self.tile.iter_mut().zip([depth, rows]).for_each(|(tile, size)| *tile = size as u32);
        self
    }
}

/// The launches of a kernel, one after the other. Each takes the buffers of all of its parameters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KernelLaunches {
    pub launches: Vec<Launch>,
    /// Bytes of scratch memory that they share, aligned to 256; contents are arbitrary.
    pub scratch: Expr,
}

impl From<Launch> for KernelLaunches {
    fn from(launch: Launch) -> KernelLaunches {
        KernelLaunches { launches: vec![launch], scratch: Expr::int(0) }
    }
}

/// The launches of a library step, one after the other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LibraryLaunches {
    pub launches: Vec<LibraryLaunch>,
    /// Bytes of scratch memory that the launches share, aligned to 256; contents are arbitrary.
    pub scratch: Expr,
    /// A symbol that gets the int64 that stands at the start of the scratch memory afterwards.
    pub count: Option<u32>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LibraryLaunch {
    pub launch: Launch,
    /// The buffers it takes.
    pub buffers: Vec<BufferId>,
}

/// A library step, and the kernel that is its epilogue with the buffers of its parameters.
#[derive(Clone, Copy, Debug)]
pub struct LibraryStep<'a> {
    pub library: &'a Library,
    pub epilogue: Option<(u32, &'a [BufferId])>,
    /// The number of the [`Step::Together`] that it is in.
    pub together: Option<u32>,
}

/// The library steps of a plan, those in branches and loops where they stand: an `If`'s `then` before its `otherwise`, a `While`'s `test`
/// before its `body`.
pub fn library_steps(plan: &Plan) -> Vec<LibraryStep<'_>> {
    fn own<'a>(step: &'a Step, together: Option<u32>) -> Option<LibraryStep<'a>> {
        match step {
            Step::Library(library) => Some(LibraryStep { library, epilogue: None, together }),
            Step::Fused { library, kernel, args } => {
                Some(LibraryStep { library, epilogue: Some((*kernel, args)), together })
            }
            _ => None,
        }
    }
    fn collect<'a>(steps: &'a [Step], found: &mut Vec<LibraryStep<'a>>, groups: &mut u32) {
        for step in steps {
            if let Step::Together(steps) = step {
                found.extend(steps.iter().filter_map(|step| own(step, Some(*groups))));
                *groups += 1;
            } else {
                found.extend(own(step, None));
                step.within().into_iter().for_each(|steps| collect(steps, found, groups));
            }
        }
    }
    let mut found = Vec::new();
    collect(&plan.steps, &mut found, &mut 0);
    found
}
