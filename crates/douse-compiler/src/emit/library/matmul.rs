//! Matrix products.

use douse_core::sym::Expr;
use douse_core::{DType, Result};
use douse_program::library::View;
use douse_program::target::LibraryLaunches;

use super::function::{Argument, Draft, Writer, nth_last};
use super::one;

pub(super) const TEMPLATES: &[&str] = &[include_str!("../cuda/product.cuh")];

/// As many rows (or columns) or fewer make a product that is bound by reading the other operand.
const THIN: i64 = 16;
/// Tiles that should at least be there, for every multiprocessor to have one.
const TILES: i64 = 132;

pub(super) fn emit(writer: &mut Writer, a: &View, b: &View, out: &View) -> Result<LibraryLaunches> {
    let dtype = writer.dtype(out)?;
    let (m, n, k) = (nth_last(&out.sizes, 1)?, nth_last(&out.sizes, 0)?, nth_last(&a.sizes, 0)?);
    let leading = out.sizes.get(..out.sizes.len().saturating_sub(2)).unwrap_or_default();
    let batch = Expr::product(leading);
    let element = writer.element(out)?;
    let register = writer.register(out)?;
    let arguments = vec![
        Argument { name: "a", view: a, written: false },
        Argument { name: "b", view: b, written: false },
        Argument { name: "out", view: out, written: true },
    ];
    let (split, coordinates) = writer.split("tile", "batch", leading);
    // [m, k] and [n, k], as templates see their operands.
    let a_text = format!(
        "const Strided<{element}> left{{a + {}, {}, {}, {}, {}}};",
        writer.place(a, &coordinates),
        writer.size(m),
        writer.size(k),
        writer.size(nth_last(&a.strides, 1)?),
        writer.size(nth_last(&a.strides, 0)?)
    );
    let b_text = format!(
        "const Strided<{element}> right{{b + {}, {}, {}, {}, {}}};",
        writer.place(b, &coordinates),
        writer.size(n),
        writer.size(k),
        writer.size(nth_last(&b.strides, 0)?),
        writer.size(nth_last(&b.strides, 1)?)
    );
    let place = |i: &str, j: &str| {
        let mut at = coordinates.clone();
        at.extend([i.to_owned(), j.to_owned()]);
        writer.place(out, &at)
    };
    let store =
        |i: &str, j: &str| format!("[=](int64 i, int64 j, {register} x) {{ store(out + {}, x); }}", place(i, j));
    let float = dtype.is_float() && dtype.size() > 1;
    let few = |size: &Expr| size.as_int().filter(|size| (1..=THIN).contains(size));
    let contiguous = |view: &View, from_end| Ok(nth_last(&view.strides, from_end)?.is_int(1));
    let mut grid = [Expr::int(1), Expr::int(1), Expr::int(1)];
    let (body, threads) = match (few(m), few(n)) {
        (Some(rows), _) if float && contiguous(b, 1)? => {
            let parts = parts(n);
            grid[0] = &batch * n;
            let call = format!("thin_product<{rows}, {parts}>(column, left, right, {});", store("i", "j"));
            (head(writer, n, &split, &a_text, &b_text) + &format!("  {call}\n"), 32 * parts)
        }
        (_, Some(columns)) if float && contiguous(a, 0)? => {
            let parts = parts(m);
            grid[0] = &batch * m;
            let call = format!("thin_product<{columns}, {parts}>(column, right, left, {});", store("j", "i"));
            (head(writer, m, &split, &a_text, &b_text) + &format!("  {call}\n"), 32 * parts)
        }
        _ => {
            let cores = matches!(dtype, DType::F16 | DType::BF16);
            let count = |tile: i64| &(&m.ceil_div(&Expr::int(tile)) * &n.ceil_div(&Expr::int(tile))) * &batch;
            let small = !cores || count(128).as_int().is_some_and(|tiles| tiles < TILES);
            let tile = if small { 64 } else { 128 };
            grid[0] = count(tile);
            let template = if cores { format!("mma_product<{tile}, {tile}>") } else { "tile_product".to_owned() };
            let mut body = String::from("  int64 tile = blockIdx.x;\n");
            for (name, size) in [("m", m), ("n", n)] {
                let tiles = writer.size(&size.ceil_div(&Expr::int(tile)));
                body.push_str(&format!("  const int64 tile_{name} = tile % {tiles};\n  tile /= {tiles};\n"));
            }
            body.push_str(&format!("{split}  {a_text}\n  {b_text}\n"));
            body.push_str(&format!(
                "  {template}(tile_m, tile_n, {}, left, right, {});\n",
                writer.size(k),
                store("i", "j")
            ));
            (body, 256)
        }
    };
    let sizes = vec![];
    let launch = writer.add(Draft {
        name: "matmul",
        templates: TEMPLATES,
        arguments,
        sizes,
        body,
        grid,
        threads,
        shared: 0,
        scratch: false,
    })?;
    Ok(one(launch))
}

/// What a thin product's function begins with: the column and the batch of its block.
fn head(writer: &Writer, columns: &Expr, split: &str, a: &str, b: &str) -> String {
    let columns = writer.size(columns);
    format!(
        "  int64 tile = blockIdx.x;\n  const int64 column = tile % {columns};\n  tile /= {columns};\n{split}  {a}\n  {b}\n"
    )
}

/// Warps that share a column: more where there are few columns.
fn parts(columns: &Expr) -> u32 {
    match columns.as_int() {
        Some(..2048) => 8,
        Some(..8192) | None => 4,
        Some(_) => 2,
    }
}
