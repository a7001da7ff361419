//! Matrix products.

use douse_core::Result;
use douse_core::sym::Expr;
use douse_program::library::View;
use douse_program::target::LibraryLaunches;

use super::function::{Argument, Writer, nth_last};
use super::product::{self, Mapped, Product, Side};
use super::put::{Epilogue, Put};
use super::thin;

pub(super) fn emit(
    writer: &mut Writer,
    a: &View,
    b: &View,
    out: &View,
    epilogue: Option<&Epilogue>,
) -> Result<LibraryLaunches> {
    let dtype = writer.dtype(a)?;
    let (m, n, depth) = (nth_last(&out.sizes, 1)?, nth_last(&out.sizes, 0)?, nth_last(&a.sizes, 0)?);
    let leading = out.sizes.get(..out.sizes.len().saturating_sub(2)).unwrap_or_default();
    let (a_strides, b_strides) =
        ((nth_last(&a.strides, 1)?, nth_last(&a.strides, 0)?), (nth_last(&b.strides, 1)?, nth_last(&b.strides, 0)?));
    let left = (a, "a", Side { rows: m, depth, row_stride: a_strides.0, depth_stride: a_strides.1 });
    let right = (b, "b", Side { rows: n, depth, row_stride: b_strides.1, depth_stride: b_strides.0 });
    let float = dtype.is_float() && dtype.size() > 1;
    let suits =
        |rows: &Side, other: &Side| float && thin::few(writer, dtype, rows.rows) && other.depth_stride.is_int(1);
    let (thin, turned) = match (suits(&left.2, &right.2), suits(&right.2, &left.2)) {
        (true, _) => (true, false),
        (_, true) => (true, true),
        // Results are neighbours along the columns: they should be neighbours in memory.
        _ => (false, !nth_last(&out.strides, 0)?.is_int(1) && nth_last(&out.strides, 1)?.is_int(1)),
    };
    let (left, right) = if turned { (right, left) } else { (left, right) };
    let (coordinates, batch_at) = writer.split("rest", "batch", leading);
    let mut operands = String::new();
    let places = [left.1, right.1].map(|argument| (u32::from(argument == "b"), argument));
    let mapped = Mapped::of(writer, (&left.2, left.0, places[0]), (&right.2, right.0, places[1]), leading, &batch_at);
    for ((view, argument, side), name) in [(&left, "left"), (&right, "right")] {
        let start = format!("{argument} + {}", writer.place(view, &batch_at));
        operands.push_str(&side.loader(writer, view, name, &start)?);
    }
    let mut at = batch_at;
    at.extend(if turned { ["column", "row"] } else { ["row", "column"] }.map(str::to_owned));
    let along = at.iter().position(|at| at == "column");
    let put = Put { setup: String::new(), at, along, columns: right.2.rows.clone(), out, bias: None, epilogue };
    let product = Product {
        name: "matmul",
        dtype,
        arguments: vec![Argument::read("a", a), Argument::read("b", b)],
        scratch: Expr::int(0),
        sizes: vec![],
        batch: Expr::product(leading),
        rows: left.2.rows.clone(),
        columns: right.2.rows.clone(),
        depth: depth.clone(),
        deep: [&left, &right].iter().all(|(_, _, side)| side.is_deep(dtype)),
        coordinates,
        operands,
        mapped,
        put,
    };
    if thin { thin::emit(writer, product, right.1) } else { product::emit(writer, product) }
}
