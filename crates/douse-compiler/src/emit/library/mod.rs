//! Library steps as functions that call the templates in `cuda/`.

mod attention;
mod convolution;
mod function;
mod linalg;
mod matmul;
mod packed;
mod product;
mod put;
mod search;
mod segment;
mod sort;

use douse_core::Result;
use douse_core::sym::{Expr, Ranges};
use douse_program::library::Library;
use douse_program::plan::Plan;
use douse_program::target::{LibraryLaunches, library_steps};

use super::guard::Guards;
use super::{Modules, names};
use function::Writer;
use put::Epilogue;

/// The launches of every library step.
///
/// # Errors
/// `NotSupported` for a step whose dtype or sizes its code does not take.
pub(super) fn emit(
    plan: &Plan,
    ranges: &Ranges,
    arch: &str,
    guards: &Guards<'_>,
    modules: &mut Modules,
) -> Result<Vec<LibraryLaunches>> {
    let mut writer = Writer::new(plan, ranges, arch, guards, modules);
    library_steps(plan)
        .into_iter()
        .map(|step| match step.library {
            Library::MatMul { a, b, out } => {
                let epilogue = Epilogue::of(plan, &writer, step, out.buffer)?;
                matmul::emit(&mut writer, a, b, out, epilogue.as_ref())
            }
            Library::Convolution(convolution) => {
                let epilogue = Epilogue::of(plan, &writer, step, convolution.out.buffer)?;
                convolution::emit(&mut writer, convolution, epilogue.as_ref())
            }
            Library::Attention(attention) => attention::emit(&mut writer, attention),
            Library::Sort { input, values, indices, descending } => {
                sort::emit(&mut writer, input, values, indices, *descending)
            }
            Library::TopK { input, values, indices, largest } => {
                sort::emit(&mut writer, input, values, indices, *largest)
            }
            Library::Nonzero { mask, out, symbol } => search::nonzero(&mut writer, mask, out, *symbol),
            Library::SearchSorted { sorted, values, out, right } => {
                search::search_sorted(&mut writer, sorted, values, out, *right)
            }
            step @ Library::Linalg { .. } => linalg::emit(&mut writer, step),
            Library::VarlenAttention(attention) => packed::emit(&mut writer, attention),
            Library::SegmentReduce { op, src, offsets, out, initial, mean } => {
                let reduction = segment::Reduction { op: *op, initial: *initial, mean: *mean };
                segment::emit(&mut writer, src, offsets, out, &reduction)
            }
        })
        .collect()
}

/// A step of one launch that needs no scratch memory.
fn one(launch: douse_program::target::LibraryLaunch) -> LibraryLaunches {
    LibraryLaunches { launches: vec![launch], scratch: Expr::int(0), count: None }
}
