//! All operators, by name.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::importer::{Function, Row, copied, in_place};
use super::{
    activation, arithmetic, attention, calculus, comparison, complex, control, convert, convolution, create,
    deformable, detection, distance, einsum, embedding, encoder, fft, foreach, function, grid, grid_sample, host,
    index, join, linalg, loss, matmul, norm, normalization, pad, pooling, quantized, random, rearrange, recurrent,
    reduce, resize, scan, scatter, search, signal, softmax, sort, special, split, statistics, steps, strided, systems,
    unique, view, vmap,
};

/// The families' tables.
const FAMILIES: &[&[Row]] = &[
    activation::ROWS,
    arithmetic::ROWS,
    attention::ROWS,
    calculus::ROWS,
    comparison::ROWS,
    comparison::SCALAR_ROWS,
    comparison::TENSOR_ROWS,
    complex::ROWS,
    control::ROWS,
    convert::ROWS,
    convolution::ROWS,
    create::ROWS,
    deformable::ROWS,
    detection::ROWS,
    distance::ROWS,
    einsum::ROWS,
    embedding::ROWS,
    encoder::ROWS,
    fft::ROWS,
    foreach::LIST_ROWS,
    foreach::OTHER_ROWS,
    foreach::ROWS,
    foreach::SCALAR_LIST_ROWS,
    foreach::SCALAR_ROWS,
    foreach::TENSOR_ROWS,
    function::FUNCTIONS,
    function::ROWS,
    grid::ROWS,
    grid_sample::ROWS,
    host::ROWS,
    index::ROWS,
    join::ROWS,
    linalg::ROWS,
    loss::ROWS,
    matmul::ROWS,
    norm::ROWS,
    normalization::ROWS,
    pad::ROWS,
    pooling::ROWS,
    quantized::ROWS,
    random::ROWS,
    rearrange::ROWS,
    recurrent::ROWS,
    reduce::ROWS,
    resize::ROWS,
    scan::ROWS,
    scatter::ROWS,
    search::ROWS,
    signal::ROWS,
    softmax::ROWS,
    sort::ROWS,
    special::POLYNOMIAL_N_ROWS,
    special::POLYNOMIAL_ROWS,
    special::POLYNOMIAL_X_ROWS,
    special::ROWS,
    split::ROWS,
    statistics::ROWS,
    steps::ROWS,
    strided::ROWS,
    systems::ROWS,
    unique::ROWS,
    view::ROWS,
    vmap::ROWS,
];

/// An index of constant tables; it holds no state.
static INDEX: LazyLock<HashMap<&'static str, Function>> =
    LazyLock::new(|| FAMILIES.iter().flat_map(|rows| rows.iter().copied()).collect());

pub(super) fn find(target: &str) -> Option<Function> {
    INDEX.get(target).copied()
}

/// The operator that returns what this one writes to `out`: `aten.sum.dim_IntList` for `aten.sum.IntList_out`.
pub(super) fn returning(target: &str) -> Option<String> {
    let (name, overload) = target.rsplit_once('.')?;
    let candidates = match overload.strip_suffix("_out") {
        Some(own) => vec![own.to_string(), format!("dim_{own}")],
        None if overload == "out" => ["default", "Tensor", "dim"].map(String::from).to_vec(),
        None => return None,
    };
    candidates.into_iter().map(|overload| format!("{name}.{overload}")).find(|target| find(target).is_some())
}

/// Whether an operator can be run: by a row of its own, or as the in-place or copying form of one, or one with `out`.
pub(super) fn known(target: &str) -> bool {
    find(target).is_some()
        || in_place(target).is_some_and(|name| find(&name).is_some())
        || copied(target).is_some_and(|name| find(&name).is_some())
        || returning(target).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operator_with_out_is_found_by_the_one_that_returns() {
        assert_eq!(returning("aten.mm.out").as_deref(), Some("aten.mm.default"));
        assert_eq!(returning("aten.add.out").as_deref(), Some("aten.add.Tensor"));
        assert_eq!(returning("aten.sum.IntList_out").as_deref(), Some("aten.sum.dim_IntList"));
        assert_eq!(returning("aten.eq.Scalar_out").as_deref(), Some("aten.eq.Scalar"));
        assert_eq!(returning("aten.mm.default"), None);
    }

    #[test]
    fn no_operator_has_two_rows() {
        assert_eq!(INDEX.len(), FAMILIES.iter().map(|rows| rows.len()).sum::<usize>());
    }
}
