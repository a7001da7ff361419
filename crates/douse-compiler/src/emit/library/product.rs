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
/// The same for the blocks of a cluster, and how many it has on every device that has clusters.
const CLUSTER_SLICE: i64 = 128;
const CLUSTER: i64 = 8;
/// What sizes that are known only at run time are taken for.
const UNKNOWN: i64 = 1024;
const THREADS: i64 = 256;
/// Results that templates without tensor cores, and the sums of slices, put at once.
const FOUR: i64 = 4;

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

/// What a block computes of a product at once.
struct Tiles {
    rows: i64,
    columns: i64,
    /// Warps along each.
    warps: (i64, i64),
    /// Blocks that should share a multiprocessor, if there are so many.
    together: i64,
}

/// Tiles of tensor cores, the largest first.
const MMA_TILES: [Tiles; 3] = [
    Tiles { rows: 128, columns: 256, warps: (2, 4), together: 1 },
    Tiles { rows: 128, columns: 128, warps: (2, 2), together: 2 },
    Tiles { rows: 64, columns: 64, warps: (2, 2), together: 3 },
];
/// Without tensor cores; those of 128 for float32 alone.
const PLAIN_TILES: [Tiles; 2] = [
    Tiles { rows: 128, columns: 128, warps: (8, 1), together: 1 },
    Tiles { rows: 64, columns: 64, warps: (8, 1), together: 1 },
];
/// Elements between rows of results in shared memory, as in the template.
const RESULTS_APART: i64 = 8;
/// Stages from which on more bytes are on their way than a multiprocessor's share of the memory's latency takes.
const MOST_STAGES: i64 = 8;

/// How a template is called.
struct Template {
    /// Without the number of slices, which those of tensor cores take last.
    name: String,
    texts: &'static [&'static str],
    threads: i64,
    /// Bytes of dynamic shared memory.
    shared: i64,
    /// Results that it puts at once.
    run: i64,
}

impl Tiles {
    /// Bytes of dynamic shared memory that so many stages take: results pass through the same memory, in float32.
    fn shared(&self, stages: i64) -> i64 {
        (self.rows * (self.columns + RESULTS_APART) * 4).max(stages * self.stage())
    }

    /// Bytes of a stage of 16-bit elements.
    fn stage(&self) -> i64 {
        (self.rows + self.columns) * STAGE * 2
    }

    /// The template for this many blocks, each of which goes through so many stages.
    fn template(&self, writer: &Writer, product: &Product, blocks: i64, steps: i64) -> Template {
        let Tiles { rows, columns, warps, together } = self;
        if !uses_tensor_cores(product.dtype) {
            let name = format!("tile_product<{rows}");
            return Template { name, texts: TEMPLATES, threads: THREADS, shared: 0, run: FOUR };
        }
        let together = ((blocks as u64).div_ceil(BLOCKS as u64) as i64).clamp(1, *together);
        // The driver keeps some of each block's share.
        let share = writer.shared_limit() / together - 1024;
        let warpgroups = writer.warpgroups() && product.deep;
        // Warpgroups still multiply one stage when the next but one is asked for.
        let useful = (steps + if warpgroups { 2 } else { 1 }).clamp(3, MOST_STAGES);
        let stages = (share / self.stage()).min(useful).max(2);
        let shared = self.shared(stages);
        if warpgroups {
            let groups = rows / 64;
            let name = format!("warpgroup_product<{groups}, {columns}, {}", stages.max(3));
            let shared = self.shared(stages.max(3));
            return Template { name, texts: WARPGROUP_TEMPLATES, threads: 128 * groups, shared, run: 8 };
        }
        let name = format!("mma_product<{rows}, {columns}, {}, {}, {stages}", warps.0, warps.1);
        Template { name, texts: TEMPLATES, threads: 32 * warps.0 * warps.1, shared, run: 8 }
    }
}

impl Template {
    /// The call by which so many blocks of a cluster sum slices.
    fn call(&self, dtype: DType, slices: i64) -> String {
        match uses_tensor_cores(dtype) {
            true => format!("{}, {slices}>", self.name),
            false => format!("{}>", self.name),
        }
    }
}

/// The tiles that a product can be cut into, the largest first.
fn candidates(product: &Product, writer: &Writer) -> Vec<&'static Tiles> {
    match product.dtype {
        dtype if uses_tensor_cores(dtype) => {
            MMA_TILES.iter().filter(|tiles| tiles.shared(2) <= writer.shared_limit() - 1024).collect()
        }
        DType::F32 => PLAIN_TILES.iter().collect(),
        _ => PLAIN_TILES.iter().filter(|tiles| tiles.rows == 64).collect(),
    }
}

pub(super) fn uses_tensor_cores(dtype: DType) -> bool {
    matches!(dtype, DType::F16 | DType::BF16)
}

/// How blocks share the depth.
struct Slices {
    count: Expr,
    /// Elements of depth of one.
    slice: i64,
    /// Those of a tile are a cluster.
    cluster: bool,
}

/// The largest tiles that occupy the device well, and how many slices the depth is cut into where even the smallest ones do not.
fn choose(writer: &Writer, product: &Product) -> (&'static Tiles, Template, Slices) {
    let guess = |size: &Expr| size.as_int().or(writer.indexer.ranges.max(size)).unwrap_or(UNKNOWN).max(1);
    let (rows, columns, batch) = (guess(&product.rows), guess(&product.columns), guess(&product.batch));
    let tiles = candidates(product, writer);
    let blocks = |t: &Tiles| {
        (rows as u64).div_ceil(t.rows as u64).saturating_mul((columns as u64).div_ceil(t.columns as u64)) as i64
    };
    // Those of products beside this one share the device with it.
    let blocks = |t: &Tiles| (blocks(t).saturating_mul(batch) as f64 * writer.beside) as i64;
    // A last round of few blocks costs as much as a full one.
    let busy = |t: &Tiles| {
        let rounds = (blocks(t) as u64).div_ceil(BLOCKS as u64) as i64;
        let useful = (rows * columns).saturating_mul(batch) as f64 * writer.beside / (t.rows * t.columns) as f64;
        useful / (rounds * BLOCKS) as f64
    };
    let last = tiles.len().saturating_sub(1);
    let chosen = tiles.iter().position(|t| blocks(t) >= BLOCKS && busy(t) >= 0.7).unwrap_or(last);
    let tiles = tiles[chosen];
    // Clusters add up without another launch.
    let cluster = writer.clusters() && uses_tensor_cores(product.dtype);
    let (least, most) = if cluster { (CLUSTER_SLICE, CLUSTER) } else { (SLICE, MOST_SLICES) };
    let splittable = product.dtype.is_float() && blocks(tiles) <= BLOCKS / 2;
    let count = match product.depth.as_int() {
        Some(depth) if splittable => (2 * BLOCKS / blocks(tiles)).min(depth / least).clamp(1, most),
        _ => 1,
    };
    // Whole stages a slice.
    let whole = |depth: i64| (depth as u64).div_ceil(STAGE as u64) as i64;
    let steps = product.depth.as_int().map_or(i64::MAX, |depth| (whole(depth) as u64).div_ceil(count as u64) as i64);
    let slice = steps.saturating_mul(STAGE);
    let template = tiles.template(writer, product, blocks(tiles).saturating_mul(count), steps.min(MOST_STAGES));
    let count = if count == 1 { Expr::int(1) } else { product.depth.ceil_div(&Expr::int(slice)) };
    (tiles, template, Slices { count, slice, cluster })
}

/// The launches of a product: one, or two where blocks share the depth.
pub(super) fn emit(writer: &mut Writer, product: Product) -> Result<LibraryLaunches> {
    let (tiles, template, slices) = choose(writer, &product);
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
    let draft = |name, arguments, body, grid, threads, shared, scratch, cluster| Draft {
        name,
        templates: template.texts,
        arguments,
        sizes: all_sizes.clone(),
        body,
        grid,
        threads,
        shared,
        scratch,
        special,
        cluster,
    };
    let (threads, shared) = (template.threads as u32, template.shared as u32);
    let Slices { count, slice, cluster } = slices;
    let slice_text =
        format!("  const int64 begin = blockIdx.y * {slice}ll, end = smaller<int64>(begin + {slice}, {depth_text});\n");
    let blocks = count.as_int().filter(|blocks| cluster || *blocks == 1);
    if let Some(blocks) = blocks {
        let (range, slice_text) = match blocks {
            1 => (format!("0, {depth_text}"), ""),
            _ => ("begin, end".to_owned(), slice_text.as_str()),
        };
        body.push_str(&format!(
            "{slice_text}{coordinates}{operands}{}  {}(tile_m, tile_n, {range}, left, right, put);\n",
            put.declare(writer, "row", "", template.run)?,
            template.call(dtype, blocks)
        ));
        arguments.extend(put.arguments());
        let grid = [grid, count, Expr::int(1)];
        let launch = writer.add(draft(name, arguments, body, grid, threads, shared, false, blocks))?;
        return Ok(super::one(launch));
    }
    let register = super::names::register(dtype)?;
    let (rows_text, columns_text) = (writer.size(&rows), writer.size(&columns));
    let all_rows = &batch * &rows;
    body.push_str(&format!(
        "  const int64 first_row = (blockIdx.y * {} + rest) * {rows_text};\n  \
         {slice_text}{coordinates}{operands}  {register} *parts = static_cast<{register} *>(scratch);\n  \
         const auto place = [=](int64 row, int64 column) {{ return parts + ((first_row + row) * {columns_text} + column); }};\n  \
         const auto put = stored<true>(place, 1);\n  \
         {}(tile_m, tile_n, begin, end, left, right, put);\n",
        writer.size(&batch),
        template.call(dtype, 1)
    ));
    let fours = columns.ceil_div(&Expr::int(4));
    let head = format!("int64 rest = all / {rows_text}; const int64 row = all % {rows_text};\n{coordinates}");
    let sum = format!(
        "{}  sum_slices(blockIdx.x * {THREADS}ll + threadIdx.x, {}, {}, {columns_text}, static_cast<const {register} *>(scratch), put);\n",
        put.declare(writer, "all", &head, FOUR)?,
        writer.size(&count),
        writer.size(&all_rows),
    );
    let parts_grid = [grid, count.clone(), Expr::int(1)];
    let sum_grid = [(&all_rows * &fours).ceil_div(&Expr::int(THREADS)), Expr::int(1), Expr::int(1)];
    let parts = writer.add(draft(name, arguments, body, parts_grid, threads, shared, true, 1))?;
    let sum = writer.add(draft("sum_slices", put.arguments(), sum, sum_grid, THREADS as u32, 0, true, 1))?;
    let bytes = &(&(&count * &all_rows) * &columns) * dtype_size(register);
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
