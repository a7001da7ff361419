//! Linear algebra: a block a matrix, in float64, rounded once.

use douse_core::sym::Expr;
use douse_core::{Error, Result};
use douse_program::failure::Failure;
use douse_program::library::{Library, Linalg, View};
use douse_program::target::LibraryLaunches;

use super::function::{Argument, Draft, Writer, nth_last};
use crate::emit::names;

const MATRIX: &str = include_str!("../cuda/matrix.cuh");
const LU: &str = include_str!("../cuda/lu.cuh");
const SYMMETRIC: &str = include_str!("../cuda/symmetric.cuh");
const ORTHOGONAL: &str = include_str!("../cuda/orthogonal.cuh");
const EXPONENTIAL: &str = include_str!("../cuda/exponential.cuh");

/// Blocks at most: each has scratch memory of its own, and takes matrices in turns.
const BLOCKS: i64 = 1024;
/// Rows and columns up to which a warp is enough.
const SMALL: i64 = 12;
const THREADS: u32 = 256;

/// How a kind is called.
struct Call {
    /// The template, which takes the sizes, the inputs, the scratch memory, the flag if it raises it, and the outputs.
    function: &'static str,
    templates: &'static [&'static str],
    sizes: Vec<Expr>,
    /// Numbers of scratch memory for a matrix.
    scratch: Expr,
}

fn call(kind: Linalg, inputs: &[View]) -> Result<Call> {
    let first = inputs.first().ok_or_else(|| Error::internal("linear algebra of nothing"))?;
    let (m, n) = (nth_last(&first.sizes, 1)?, nth_last(&first.sizes, 0)?);
    let square = n * n;
    let rank = m.minimum(n);
    let call = |function, templates, sizes: &[&Expr], scratch| Call {
        function,
        templates,
        sizes: sizes.iter().map(|size| (*size).clone()).collect(),
        scratch,
    };
    Ok(match kind {
        Linalg::Det => call("linalg_det", &[MATRIX, LU], &[n], square),
        Linalg::Slogdet => call("linalg_slogdet", &[MATRIX, LU], &[n], square),
        Linalg::Inverse => call("linalg_inverse", &[MATRIX, LU], &[n], &square * 2),
        Linalg::Solve => {
            let sides = match inputs.get(1) {
                Some(right) => nth_last(&right.sizes, 0)?,
                None => return Err(Error::internal("a system of equations without a right-hand side")),
            };
            call("linalg_solve", &[MATRIX, LU], &[n, sides], &square + &(n * sides))
        }
        Linalg::Cholesky => call("linalg_cholesky", &[MATRIX, SYMMETRIC], &[n], square),
        Linalg::Eigh => call("linalg_eigh", &[MATRIX, SYMMETRIC], &[n], &(&square * 2) + n),
        Linalg::Svd => {
            let scratch = &(&(&(m * n) * 2) + &(&rank * &rank)) + &(&rank * 2);
            call("linalg_svd", &[MATRIX, SYMMETRIC, ORTHOGONAL], &[m, n], scratch)
        }
        Linalg::Qr => {
            let scratch = &(&(m * n) + &(&(m * &rank) * 2)) + &rank;
            call("linalg_qr", &[MATRIX, SYMMETRIC, ORTHOGONAL], &[m, n], scratch)
        }
        Linalg::MatrixExp => call("linalg_matrix_exp", &[MATRIX, LU, EXPONENTIAL], &[n], &square * 9),
    })
}

/// Names of the views' arguments.
const INPUTS: [&str; 2] = ["a", "b"];
const OUTPUTS: [&str; 3] = ["x", "y", "z"];

pub(super) fn emit(writer: &mut Writer, step: &Library) -> Result<LibraryLaunches> {
    let Library::Linalg { kind, inputs, outputs } = step else {
        return Err(Error::internal("a step that is not linear algebra"));
    };
    let Call { function, templates, sizes, scratch } = call(*kind, inputs)?;
    let first = inputs.first().ok_or_else(|| Error::internal("linear algebra of nothing"))?;
    let leading = first.sizes.get(..first.sizes.len().saturating_sub(2)).unwrap_or_default();
    let small = sizes.iter().all(|size| size.as_int().is_some_and(|size| size <= SMALL));
    let threads = if small { 32 } else { THREADS };
    let (split, lead) = writer.split("rest", "lead", leading);
    let split = split.replace("\n  ", "\n    ");
    let place = |view: &View, own: &[&str]| {
        let mut at = lead.clone();
        at.extend(own.iter().map(|name| (*name).to_owned()));
        writer.place(view, &at)
    };
    let failure: &[Failure] = step.failures();
    let mut parameters = vec![threads.to_string()];
    parameters.extend(failure.iter().map(|failure| failure.code().to_string()));
    let mut passed: Vec<String> = sizes.iter().map(|size| writer.size(size)).collect();
    let mut arguments = Vec::new();
    for (name, view) in INPUTS.into_iter().zip(inputs) {
        passed.push(format!("[=](int64 i, int64 j) {{ return (double)load({name} + {}); }}", place(view, &["i", "j"])));
        arguments.push(Argument::read(name, view));
    }
    passed.push("work".to_owned());
    if !failure.is_empty() {
        passed.push("flag".to_owned());
    }
    for (name, view) in OUTPUTS.into_iter().zip(outputs) {
        let own: &[&str] = match view.sizes.len().saturating_sub(leading.len()) {
            0 => &[],
            1 => &["i"],
            _ => &["i", "j"],
        };
        let coordinates: String = own.iter().map(|name| format!("int64 {name}, ")).collect();
        let register = names::register(writer.dtype(view)?)?;
        passed.push(format!(
            "[=]({coordinates}double value) {{ store({name} + {}, ({register})value); }}",
            place(view, own)
        ));
        arguments.push(Argument::written(name, view));
    }
    let batch = Expr::product(leading);
    let blocks = batch.minimum(&Expr::int(BLOCKS));
    let body = format!(
        "  double *work = static_cast<double *>(scratch) + blockIdx.x * {};\n  \
         for (int64 matrix = blockIdx.x; matrix < {}; matrix += gridDim.x) {{\n    int64 rest = matrix;\n  {split}    \
         {function}<{}>(\n      {});\n    __syncthreads();\n  }}\n",
        writer.size(&scratch),
        writer.size(&batch),
        parameters.join(", "),
        passed.join(",\n      "),
    );
    let draft = Draft {
        name: function,
        templates,
        arguments,
        sizes: vec![],
        body,
        grid: [blocks.clone(), Expr::int(1), Expr::int(1)],
        threads,
        shared: 0,
        scratch: true,
        ..Draft::default()
    };
    let launch = if failure.is_empty() { writer.add(draft)? } else { writer.add_raising(draft)? };
    Ok(LibraryLaunches { launches: vec![launch], scratch: &(&blocks * &scratch) * 8, count: None })
}
