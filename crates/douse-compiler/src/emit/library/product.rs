//! Products by tiles: their sizes, how blocks share the depth, and the functions that call the templates.

use douse_core::sym::Expr;
use douse_core::{DType, Result};
use douse_program::library::View;
use douse_program::target::LibraryLaunches;

use super::function::{Argument, Draft, Writer};
use super::put::Put;

pub(super) const TEMPLATES: &[&str] = &[include_str!("../cuda/operand.cuh"), include_str!("../cuda/product.cuh")];
const WARPGROUP_TEMPLATES: &[&str] =
    &[include_str!("../cuda/operand.cuh"), include_str!("../cuda/product.cuh"), include_str!("../cuda/warpgroup.cuh")];

/// Blocks that should at least be there, for every multiprocessor of a large device to have one.
pub(super) const BLOCKS: i64 = 132;
/// Elements of depth of a stage in shared memory, as in the template.
const STAGE: i64 = 64;
/// A block whose share of the depth is shorter does not pay for adding the shares up.
const SLICE: i64 = 256;
const MOST_SLICES: i64 = 32;
/// What sizes that are known only at run time are taken for.
const UNKNOWN: i64 = 1024;
const THREADS: i64 = 256;

/// A product of matrices over a batch of them, as text.
pub(super) struct Product<'a> {
    pub name: &'static str,
    pub dtype: DType,
    pub arguments: Vec<Argument<'a>>,
    /// Expressions of sizes that the texts mention.
    pub sizes: Vec<Expr>,
    pub batch: Expr,
    pub rows: Expr,
    pub columns: Expr,
    pub depth: Expr,
    /// Both operands' rows lie in chunks along the depth.
    pub deep: bool,
    /// Statements that make what the others need from `rest`, the number of the matrix in the batch.
    pub coordinates: String,
    /// Statements that declare the loaders `left` and `right`.
    pub operands: String,
    pub put: Put<'a>,
}

/// One kind of tiles.
struct Tiles {
    rows: i64,
    columns: i64,
    template: String,
    templates: &'static [&'static str],
    threads: i64,
    /// Bytes of dynamic shared memory.
    shared: i64,
}

/// Tiles of tensor cores: rows, columns, warps along each, blocks that should share a multiprocessor.
const MMA_TILES: [(i64, i64, i64, i64, i64); 3] = [(128, 256, 2, 4, 1), (128, 128, 2, 2, 2), (64, 64, 2, 2, 3)];
/// Elements between rows of results in shared memory, as in the template.
const RESULTS_APART: i64 = 8;
/// Stages that are worth having.
const MOST_STAGES: i64 = 4;

fn candidates(product: &Product, writer: &Writer) -> Vec<Tiles> {
    let dtype = product.dtype;
    if !uses_tensor_cores(dtype) {
        let tile = |size: i64| Tiles {
            rows: size,
            columns: size,
            template: format!("tile_product<{size}>"),
            templates: TEMPLATES,
            threads: THREADS,
            shared: 0,
        };
        return if dtype == DType::F32 { vec![tile(128), tile(64)] } else { vec![tile(64)] };
    }
    let limit = writer.shared_limit() - 1024;
    let tiles = MMA_TILES.into_iter().map(|(rows, columns, warps_m, warps_n, blocks)| {
        let stage = (rows + columns) * STAGE * dtype.size() as i64;
        // What the driver keeps of each block's share.
        let share = writer.shared_limit() / blocks - 1024;
        let stages = (share / stage).clamp(2, MOST_STAGES);
        let warpgroups = writer.warpgroups() && product.deep && rows == 128;
        let (template, templates, threads) = match warpgroups {
            true => (format!("warpgroup_product<{}, {stages}>", columns / 128), WARPGROUP_TEMPLATES, 256),
            false => {
                let template = format!("mma_product<{rows}, {columns}, {warps_m}, {warps_n}, {stages}>");
                (template, TEMPLATES, 32 * warps_m * warps_n)
            }
        };
        // Results pass through the same memory, in float32.
        let results = rows * (columns + RESULTS_APART) * 4;
        Tiles { rows, columns, template, templates, threads, shared: results.max(stages * stage) }
    });
    tiles.filter(|tiles| tiles.shared <= limit).collect()
}

pub(super) fn uses_tensor_cores(dtype: DType) -> bool {
    matches!(dtype, DType::F16 | DType::BF16)
}

/// The largest tiles that occupy the device well, and how many slices the depth is cut into where even the smallest ones do not.
fn choose(writer: &Writer, product: &Product) -> Result<(Tiles, i64)> {
    let guess = |size: &Expr| size.as_int().or(writer.indexer.ranges.max(size)).unwrap_or(UNKNOWN).max(1);
    let (rows, columns, batch) = (guess(&product.rows), guess(&product.columns), guess(&product.batch));
    let mut tiles = candidates(product, writer);
    let blocks = |t: &Tiles| {
        (rows as u64).div_ceil(t.rows as u64).saturating_mul((columns as u64).div_ceil(t.columns as u64)) as i64
    };
    let blocks = |t: &Tiles| blocks(t).saturating_mul(batch);
    // A last round of few blocks costs as much as a full one.
    let busy = |t: &Tiles| {
        let rounds = (blocks(t) as u64).div_ceil(BLOCKS as u64) as i64;
        let useful = (rows * columns).saturating_mul(batch) as f64 / (t.rows * t.columns) as f64;
        useful / (rounds * BLOCKS) as f64
    };
    let last = tiles.len().saturating_sub(1);
    let chosen = tiles.iter().position(|t| blocks(t) >= BLOCKS && busy(t) >= 0.7).unwrap_or(last);
    let tiles = tiles.swap_remove(chosen);
    let splittable = product.dtype.is_float() && blocks(&tiles) <= BLOCKS / 2;
    let slices = match product.depth.as_int() {
        Some(depth) if splittable => (2 * BLOCKS / blocks(&tiles)).min(depth / SLICE).clamp(1, MOST_SLICES),
        _ => 1,
    };
    Ok((tiles, slices))
}

/// The launches of a product: one, or two where blocks share the depth.
pub(super) fn emit(writer: &mut Writer, product: Product) -> Result<LibraryLaunches> {
    let (tiles, slices) = choose(writer, &product)?;
    let Product { name, dtype, mut arguments, sizes, batch, rows, columns, depth, coordinates, operands, put, .. } =
        product;
    let tile = |size: &Expr, tile: i64| size.ceil_div(&Expr::int(tile));
    let (tiles_m, tiles_n) = (tile(&rows, tiles.rows), tile(&columns, tiles.columns));
    let depth_text = writer.size(&depth);
    let mut body = format!(
        "  int64 rest = blockIdx.x, tile_m, tile_n;\n  const int64 tiles_m = {}, tiles_n = {};\n  \
         tile_at((uint32)(rest % (tiles_m * tiles_n)), (uint32)tiles_m, (uint32)tiles_n, tile_m, tile_n);\n  \
         rest /= tiles_m * tiles_n;\n",
        writer.size(&tiles_m),
        writer.size(&tiles_n)
    );
    let grid = &(&tiles_m * &tiles_n) * &batch;
    let (all_sizes, special) = ([sizes.clone(), put.sizes()].concat(), put.special());
    let draft = |name, arguments, body, grid, threads, shared, scratch| Draft {
        name,
        templates: tiles.templates,
        arguments,
        sizes: all_sizes.clone(),
        body,
        grid,
        threads,
        shared,
        scratch,
        special,
    };
    let (threads, shared) = (tiles.threads as u32, tiles.shared as u32);
    if slices == 1 {
        body.push_str(&format!(
            "{coordinates}{operands}{}  {}(tile_m, tile_n, 0, {depth_text}, left, right, put);\n",
            put.declare(writer, "row", "")?,
            tiles.template
        ));
        arguments.extend(put.arguments());
        let grid = [grid, Expr::int(1), Expr::int(1)];
        let launch = writer.add(draft(name, arguments, body, grid, threads, shared, false))?;
        return Ok(super::one(launch));
    }
    // Whole stages a slice.
    let slice = depth.as_int().map_or(STAGE, |depth| (depth as u64).div_ceil((slices * STAGE) as u64) as i64 * STAGE);
    let slices = depth.ceil_div(&Expr::int(slice));
    let register = super::names::register(dtype)?;
    let (rows_text, columns_text) = (writer.size(&rows), writer.size(&columns));
    let all_rows = &batch * &rows;
    body.push_str(&format!(
        "  const int64 first_row = (blockIdx.y * {} + rest) * {rows_text};\n  \
         const int64 begin = blockIdx.y * {slice}ll, end = smaller<int64>(begin + {slice}, {depth_text});\n\
         {coordinates}{operands}  {register} *parts = static_cast<{register} *>(scratch);\n  \
         const auto place = [=](int64 row, int64 column) {{ return parts + ((first_row + row) * {columns_text} + column); }};\n  \
         const auto put = stored<true>(place, 1);\n  \
         {}(tile_m, tile_n, begin, end, left, right, put);\n",
        writer.size(&batch),
        tiles.template
    ));
    let fours = columns.ceil_div(&Expr::int(4));
    let head = format!("int64 rest = all / {rows_text}; const int64 row = all % {rows_text};\n{coordinates}");
    let sum = format!(
        "{}  sum_slices(blockIdx.x * {THREADS}ll + threadIdx.x, {}, {}, {columns_text}, static_cast<const {register} *>(scratch), put);\n",
        put.declare(writer, "all", &head)?,
        writer.size(&slices),
        writer.size(&all_rows),
    );
    let parts_grid = [grid, slices.clone(), Expr::int(1)];
    let sum_grid = [(&all_rows * &fours).ceil_div(&Expr::int(THREADS)), Expr::int(1), Expr::int(1)];
    let parts = writer.add(draft(name, arguments, body, parts_grid, threads, shared, true))?;
    let sum = writer.add(draft("sum_slices", put.arguments(), sum, sum_grid, THREADS as u32, 0, true))?;
    let bytes = &(&(&slices * &all_rows) * &columns) * dtype_size(register);
    Ok(LibraryLaunches { launches: vec![parts, sum], scratch: bytes, count: None })
}

/// Bytes of what sums are held in.
fn dtype_size(register: &str) -> i64 {
    if register == "double" { 8 } else { 4 }
}

/// One side of a product: its rows lie along `row_stride`, the depth along `depth_stride`.
pub(super) struct Side<'a> {
    pub rows: &'a Expr,
    pub depth: &'a Expr,
    pub row_stride: &'a Expr,
    pub depth_stride: &'a Expr,
}

impl Side<'_> {
    /// How the elements lie, in the templates' words.
    pub fn chunks(&self, dtype: DType) -> &'static str {
        let n = Expr::int(match dtype.size() {
            2 if dtype.is_float() => 8,
            8 => 2,
            _ => 4,
        });
        let (other, extent) = if self.depth_stride.is_int(1) {
            (self.row_stride, self.depth)
        } else if self.row_stride.is_int(1) {
            (self.depth_stride, self.rows)
        } else {
            return "SCATTERED";
        };
        let single = self.depth_stride.is_int(1) && self.rows.is_int(1);
        // A stride that is known only at run time may fit.
        let fits = single || other.modulo(&n).as_int().is_none_or(|rest| rest == 0);
        match (fits, extent.modulo(&n).is_int(0)) {
            (false, _) => "SCATTERED",
            (true, false) => "CHUNKED",
            (true, true) => "WHOLE",
        }
    }

    /// Whether rows lie in chunks along the depth.
    pub fn is_deep(&self, dtype: DType) -> bool {
        self.depth_stride.is_int(1) && self.chunks(dtype) != "SCATTERED"
    }

    /// A declaration of a loader over memory from `start`, a text.
    pub fn loader(&self, writer: &Writer, view: &View, name: &str, start: &str) -> Result<String> {
        let single = self.depth_stride.is_int(1) && self.rows.is_int(1);
        let row_stride = if single { "0".to_owned() } else { writer.size(self.row_stride) };
        Ok(format!(
            "  const Strided<{}, {}> {name}{{{start}, {}, {}, {row_stride}, {}}};\n",
            writer.element(view)?,
            self.chunks(writer.dtype(view)?),
            writer.size(self.rows),
            writer.size(self.depth),
            writer.size(self.depth_stride)
        ))
    }
}
