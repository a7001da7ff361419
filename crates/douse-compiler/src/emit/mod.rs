//! CUDA C++ from plans.
//!
//! Each kernel becomes a function ([`kernel`]), by a [`strategy`] that says which threads take which points; where blocks share a point, it becomes
//! several ([`split`]). Its [`body`] is the kernel's instructions one by one. Library steps become functions too ([`library`]), which call the
//! templates in `cuda/` and have their epilogues written into them. Functions are put together into modules, each of which begins with the prelude
//! and compiles by itself, without headers. They are meant to be compiled with [`OPTIONS`]: an operation rounds by itself, as in eager PyTorch.

mod bins;
mod body;
mod claim;
mod guard;
mod index;
mod kernel;
mod library;
mod moments;
mod names;
mod ordered;
mod overlap;
mod pointwise;
mod private;
mod registers;
mod round;
mod row;
mod scan;
mod service;
mod sorted;
mod split;
mod stages;
mod strategy;
mod tile;
mod vector;

use std::collections::BTreeSet;

use douse_core::Result;
use douse_core::sym::Expr;
use douse_program::bounds;
use douse_program::library::Library;
use douse_program::plan::{Plan, Step};
use douse_program::target::{FunctionName, KernelLaunches, Launch, LibraryLaunches, ProductOptions, Products};
use douse_program::uses::each_step;
use guard::Guards;
use kernel::EmittedFunction;

/// Options of NVRTC that the code needs.
pub const OPTIONS: &[&str] = &["--std=c++17", "--fmad=false"];

/// The line between what every module has and the functions of the program.
pub const FUNCTIONS_FOLLOW: &str = "// ==== The program's functions ====";

const PRELUDE: &str = include_str!("cuda/prelude.cuh");
const MATH: &str = include_str!("cuda/math.cuh");
const COMBINE: &str = include_str!("cuda/combine.cuh");
const OVERLAP: &str = include_str!("cuda/overlap.cuh");
const SPECIAL: &str = include_str!("cuda/special.cuh");

/// Functions of a module: few enough that modules compile in parallel, enough that the prelude is not compiled too often.
const FUNCTIONS: usize = 16;

/// The code of a plan, before it is compiled.
#[derive(Clone, Debug, PartialEq)]
pub struct Emitted {
    /// Source texts, each a module of its own.
    pub modules: Vec<String>,
    /// How each of the plan's kernels is launched; without launches, those that are epilogues alone.
    pub kernels: Vec<KernelLaunches>,
    /// How each library step is run, in the order of [`douse_program::target::library_steps`].
    pub library: Vec<LibraryLaunches>,
    /// See [`CudaTarget`](douse_program::target::CudaTarget) for these.
    pub copy: FunctionName,
    pub guarded_copy: Option<FunctionName>,
    pub finish: FunctionName,
    pub rearrange: FunctionName,
    pub set_condition: Option<FunctionName>,
}

/// One function and what it stands on.
struct Function {
    text: String,
    special: bool,
    /// Texts of the library that it calls, in order.
    templates: &'static [&'static str],
}

/// Functions put together into modules.
#[derive(Default)]
struct Modules {
    functions: Vec<Function>,
}

impl Modules {
    /// Adds a function and says which module it is in.
    fn add(&mut self, function: Function) -> u32 {
        self.functions.push(Function { text: overlap::begin(&function.text), ..function });
        ((self.functions.len() - 1) / FUNCTIONS) as u32
    }

    fn texts(&self) -> Vec<String> {
        self.functions
            .chunks(FUNCTIONS)
            .map(|functions| {
                let mut text = [PRELUDE, OVERLAP, MATH, COMBINE].join("\n");
                if functions.iter().any(|f| f.special) {
                    text.push('\n');
                    text.push_str(SPECIAL);
                }
                let mut templates: Vec<&str> = Vec::new();
                for template in functions.iter().flat_map(|f| f.templates) {
                    if !templates.contains(template) {
                        templates.push(template);
                    }
                }
                templates.push(FUNCTIONS_FOLLOW);
                for part in templates.into_iter().chain(functions.iter().map(|f| f.text.as_str())) {
                    text.push('\n');
                    text.push_str(part);
                }
                text
            })
            .collect()
    }
}

/// Writes the code of a plan for an architecture (`sm_90`), whose products are done as `products` says.
///
/// # Errors
/// `NotSupported`, with its name, for a library step that has no code for GPUs; `Internal` for a plan that is not well formed.
pub fn emit(plan: &Plan, arch: &str, products: ProductOptions) -> Result<Emitted> {
    let ranges = bounds::ranges(plan);
    let mut modules = Modules::default();
    let mut kernels = Vec::with_capacity(plan.kernels.len());
    let (private, apart, guards) = (private::params(plan), private::apart(plan), Guards::of(plan));
    let launched = launched(plan, products.by);
    let shared = library::shared_limit(arch);
    for (number, kernel) in plan.kernels.iter().enumerate() {
        if !launched.contains(&number) {
            kernels.push(KernelLaunches { launches: vec![], scratch: Expr::int(0) });
            continue;
        }
        let private = private.get(number).map_or(&[][..], Vec::as_slice);
        let apart = apart.get(number).map_or(&[][..], Vec::as_slice);
        let emitted = kernel::emit(kernel, &ranges, shared, private, apart, guards.kernel(number))?;
        let launches = emitted.functions.into_iter().map(|EmittedFunction { text, special, templates, launch }| {
            let module = modules.add(Function { text, special, templates });
            Launch { module, ..launch }
        });
        kernels.push(KernelLaunches { launches: launches.collect(), scratch: emitted.scratch });
    }
    let library = library::emit(plan, &ranges, library::Target { arch, tf32: products.tf32 }, &guards, &mut modules)?;
    let copy = service::copy(&mut modules);
    let guarded_copy = guards.copies().then(|| service::guarded_copy(&mut modules));
    let (finish, rearrange) = (service::finish(&mut modules), service::rearrange(&mut modules));
    let set_condition = service::branches_on_device(plan).then(|| service::set_condition(&mut modules));
    let modules = modules.texts();
    Ok(Emitted { modules, kernels, library, copy, guarded_copy, finish, rearrange, set_condition })
}

/// The kernels that some step launches, and the epilogues that may be launched by themselves.
fn launched(plan: &Plan, products: Products) -> BTreeSet<usize> {
    let mut launched = BTreeSet::new();
    each_step(&plan.steps, &mut |step| {
        match step {
            Step::Kernel { kernel, .. } => launched.insert(*kernel as usize),
            Step::Fused { library: Library::MatMul { .. }, kernel, .. } if products == Products::CublasLt => {
                launched.insert(*kernel as usize)
            }
            _ => false,
        };
    });
    launched
}
