//! The coordinates of a mask, and places in sorted rows.

use douse_core::Result;
use douse_core::sym::Expr;
use douse_program::library::View;
use douse_program::target::LibraryLaunches;

use super::function::{Argument, Draft, Writer};
use super::one;
use super::sort::TEMPLATES;

/// Blocks that share a mask of unknown size, the most, and elements that each should have.
const BLOCKS: i64 = 256;
const MOST_BLOCKS: i64 = 1024;
const SHARE: i64 = 8192;
const THREADS: u32 = 256;

pub(super) fn nonzero(writer: &mut Writer, mask: &View, out: &View, symbol: u32) -> Result<LibraryLaunches> {
    let elements = Expr::product(&mask.sizes);
    let most = writer.indexer.ranges.max(&elements);
    let blocks = most.map_or(BLOCKS, |most| ((most + SHARE - 1) / SHARE).clamp(1, MOST_BLOCKS));
    let total = writer.size(&elements);
    let (split, at) = writer.split("i", "at", &mask.sizes);
    let split = split.replace("\n  ", " ").trim().to_owned();
    let set =
        format!("  const auto set = [=](int64 i) {{ {split} return load(mask + {}); }};\n", writer.place(mask, &at));
    let stores: Vec<String> = at
        .iter()
        .enumerate()
        .map(|(d, at)| {
            let place = writer.place(out, &["place".to_owned(), d.to_string()]);
            format!("out[{place}] = {at};")
        })
        .collect();
    let counts = "  int64 *counts = static_cast<int64 *>(scratch);\n";
    let count = format!("{counts}{set}  count_true<{blocks}>({total}, set, counts);\n");
    let place = format!(
        "{counts}{set}  const auto put = [=](int64 place, int64 i) {{ {split} {} }};\n  \
         place_true<{blocks}>({total}, set, counts, put);\n",
        stores.join(" ")
    );
    let mut launches = Vec::new();
    for (name, body) in [("count_true", count), ("place_true", place)] {
        launches.push(writer.add(Draft {
            name,
            templates: TEMPLATES,
            arguments: vec![Argument::read("mask", mask), Argument::written("out", out)],
            sizes: vec![],
            body,
            grid: [Expr::int(blocks), Expr::int(1), Expr::int(1)],
            threads: THREADS,
            shared: 0,
            scratch: true,
            ..Draft::default()
        })?);
    }
    Ok(LibraryLaunches { launches, scratch: Expr::int(8 * (1 + blocks)), count: Some(symbol) })
}

pub(super) fn search_sorted(
    writer: &mut Writer,
    sorted: &View,
    values: &View,
    out: &View,
    right: bool,
) -> Result<LibraryLaunches> {
    let count = Expr::product(&values.sizes);
    let (split, at) = writer.split("rest", "at", &values.sizes);
    // The row of the sorted values: the leading coordinates, or none where there is one row for all.
    let leading = sorted.sizes.len().saturating_sub(1);
    let mut row: Vec<String> = at.iter().take(leading).cloned().collect();
    row.push("i".to_owned());
    let row_size = sorted.sizes.last().cloned().unwrap_or_else(|| Expr::int(1));
    let body = format!(
        "  int64 rest = blockIdx.x * {THREADS}ll + threadIdx.x;\n  if (rest >= {}) return;\n{split}  \
         out[{}] = search_sorted<{right}>({}, load(values + {}), [=](int64 i) {{ return load(sorted + {}); }});\n",
        writer.size(&count),
        writer.place(out, &at),
        writer.size(&row_size),
        writer.place(values, &at),
        writer.place(sorted, &row),
    );
    let launch = writer.add(Draft {
        name: "search_sorted",
        templates: TEMPLATES,
        arguments: vec![
            Argument::read("sorted", sorted),
            Argument::read("values", values),
            Argument::written("out", out),
        ],
        sizes: vec![],
        body,
        grid: [count.ceil_div(&Expr::int(i64::from(THREADS))), Expr::int(1), Expr::int(1)],
        threads: THREADS,
        shared: 0,
        scratch: false,
        ..Draft::default()
    })?;
    Ok(one(launch))
}
