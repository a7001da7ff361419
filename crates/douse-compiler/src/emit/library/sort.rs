//! Sorting and the largest elements of rows.

use douse_core::Result;
use douse_core::sym::Expr;
use douse_program::library::View;
use douse_program::target::LibraryLaunches;

use super::function::{Argument, Draft, Writer};

pub(super) const TEMPLATES: &[&str] = &[include_str!("../cuda/sort.cuh")];

/// Elements that are sorted in shared memory.
const TILE: i64 = 1024;

/// Sorts rows; where `values` are shorter than `input`, the first are kept.
pub(super) fn emit(
    writer: &mut Writer,
    input: &View,
    values: &View,
    indices: &View,
    descending: bool,
) -> Result<LibraryLaunches> {
    let one = Expr::int(1);
    let (n, wanted) = (input.sizes.last().unwrap_or(&one), values.sizes.last().unwrap_or(&one));
    let leading = input.sizes.get(..input.sizes.len().saturating_sub(1)).unwrap_or_default();
    let rows = Expr::product(leading);
    let (tile, scratch) = match n.as_int() {
        Some(n) if n <= TILE => ((n.max(64) as u64).next_power_of_two(), false),
        _ => (TILE as u64, true),
    };
    let threads = (tile / 2).min(512);
    let (split, row) = writer.split("rest", "row", leading);
    let at = |view: &View, last: &str| {
        let mut at = row.clone();
        at.push(last.to_owned());
        writer.place(view, &at)
    };
    let register = writer.register(input)?;
    let item = if writer.dtype(input)?.size() == 8 { 16 } else { 8 };
    let space = if scratch {
        format!("reinterpret_cast<Item *>(scratch) + blockIdx.x * 2ll * {}", writer.size(n))
    } else {
        "static_cast<Item *>(nullptr)".to_owned()
    };
    let body = format!(
        "  typedef Sorted<SortKey<{register}>::Key> Item;\n  int64 rest = blockIdx.x;\n{split}  \
         const auto in = [=](int64 i) {{ return load(input + {}); }};\n  \
         const auto out = [=](int64 i, int64 from) {{ store(values + {}, in(from)); indices[{}] = from; }};\n  \
         sort_row<{threads}, {tile}, {descending}, {register}>({}, {}, in, {space}, out);\n",
        at(input, "i"),
        at(values, "i"),
        at(indices, "i"),
        writer.size(n),
        writer.size(wanted),
    );
    let bytes = if scratch { &(&rows * n) * (2 * item) } else { Expr::int(0) };
    let launch = writer.add(Draft {
        name: "sort",
        templates: TEMPLATES,
        arguments: vec![
            Argument { name: "input".into(), view: input, written: false },
            Argument { name: "values".into(), view: values, written: true },
            Argument { name: "indices".into(), view: indices, written: true },
        ],
        sizes: vec![],
        body,
        grid: [rows, Expr::int(1), Expr::int(1)],
        threads: threads as u32,
        shared: 0,
        scratch,
        special: false,
        cluster: 1,
    })?;
    Ok(LibraryLaunches { launches: vec![launch], scratch: bytes, count: None })
}
