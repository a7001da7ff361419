//! Library steps as functions that call the templates in `cuda/`.

mod attention;
mod attention_tiles;
mod convolution;
mod cost;
mod few_channels;
mod few_positions;
mod function;
mod linalg;
mod matmul;
mod packed;
mod part;
mod product;
mod put;
mod search;
mod segment;
mod select;
mod sort;
mod thin;
mod tiles;
mod window;

use douse_core::Result;
use douse_core::sym::{Expr, Ranges};
use douse_program::library::Library;
use douse_program::plan::Plan;
use douse_program::target::{LibraryLaunches, LibraryStep, library_steps};

use super::guard::Guards;
use super::{Modules, names};
pub(super) use function::Target;
use function::Writer;
pub(super) use function::shared_limit;
use put::Epilogue;

/// The launches of every library step.
///
/// # Errors
/// `NotSupported` for a step whose dtype or sizes its code does not take.
pub(super) fn emit(
    plan: &Plan,
    ranges: &Ranges,
    target: Target,
    guards: &Guards<'_>,
    modules: &mut Modules,
) -> Result<Vec<LibraryLaunches>> {
    let mut writer = Writer::new(plan, ranges, target, guards, modules);
    let steps = library_steps(plan);
    let mut launches = Vec::with_capacity(steps.len());
    for steps in steps.chunk_by(|a, b| a.together.is_some() && a.together == b.together) {
        if let [step] = steps {
            launches.push(emit_step(plan, &mut writer, *step)?);
            continue;
        }
        let sizes = steps.iter().map(|step| columns(step.library));
        let all: f64 = sizes.clone().sum();
        let (mut own, mut parts) = (Vec::with_capacity(steps.len()), Vec::with_capacity(steps.len()));
        for (step, size) in steps.iter().zip(sizes) {
            (writer.parts, writer.beside) = (Some(vec![]), all / size);
            own.push(emit_step(plan, &mut writer, *step)?);
            parts.push(writer.parts.take().unwrap_or_default());
        }
        writer.beside = 1.0;
        writer.join(&mut own, parts);
        launches.extend(own);
    }
    Ok(launches)
}

/// Columns of a product's result, to compare it with others of as many rows.
fn columns(library: &Library) -> f64 {
    let columns = match library {
        Library::MatMul { out, .. } => out.sizes.last().and_then(Expr::as_int),
        _ => None,
    };
    columns.unwrap_or(1).max(1) as f64
}

fn emit_step(plan: &Plan, writer: &mut Writer, step: LibraryStep) -> Result<LibraryLaunches> {
    match step.library {
        Library::MatMul { a, b, out } => {
            let epilogue = Epilogue::of(plan, writer, step, out.buffer)?;
            matmul::emit(writer, a, b, out, epilogue.as_ref())
        }
        Library::Convolution(convolution) => {
            let epilogue = Epilogue::of(plan, writer, step, convolution.out.buffer)?;
            convolution::emit(writer, convolution, epilogue.as_ref())
        }
        Library::Attention(attention) => attention::emit(writer, attention),
        Library::Sort { input, values, indices, descending } => sort::emit(writer, input, values, indices, *descending),
        Library::TopK { input, values, indices, largest } => sort::emit(writer, input, values, indices, *largest),
        Library::Nonzero { mask, out, symbol } => search::nonzero(writer, mask, out, *symbol),
        Library::SearchSorted { sorted, values, out, right } => {
            search::search_sorted(writer, sorted, values, out, *right)
        }
        step @ Library::Linalg { .. } => linalg::emit(writer, step),
        Library::VarlenAttention(attention) => packed::emit(writer, attention),
        Library::SegmentReduce { op, src, offsets, out, initial, mean } => {
            let reduction = segment::Reduction { op: *op, initial: *initial, mean: *mean };
            segment::emit(writer, src, offsets, out, &reduction)
        }
    }
}

/// A step of one launch that needs no scratch memory.
fn one(launch: douse_program::target::LibraryLaunch) -> LibraryLaunches {
    LibraryLaunches { launches: vec![launch], scratch: Expr::int(0), count: None }
}
