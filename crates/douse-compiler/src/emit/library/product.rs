//! Products by tiles: the functions that call the templates.

use douse_core::sym::Expr;
use douse_core::{DType, Result};
use douse_program::library::View;
use douse_program::target::{LibraryLaunches, TensorMap};

use super::function::{Argument, Draft, Writer};
use super::put::Put;
use super::tiles::{Slices, choose, uses_tensor_cores};

pub(super) const TEMPLATES: &[&str] =
    &[include_str!("../cuda/operand.cuh"), include_str!("../cuda/cluster.cuh"), include_str!("../cuda/product.cuh")];

/// Blocks that should at least be there, for every multiprocessor of a large device to have one.
pub(super) const BLOCKS: i64 = 132;
/// Dimensions that a tensor map can have.
const MOST_MAPPED: usize = 5;
/// Elements of a dimension that a tensor map can have, somewhat less than coordinates of 32 bits reach.
const LONGEST_MAPPED: i64 = 1 << 30;
/// Elements of depth of a stage in shared memory, as in the template.
pub(super) const STAGE: i64 = 64;
pub(super) const THREADS: i64 = 256;
/// Results that templates without tensor cores, and the sums of slices, put at once.
pub(super) const FOUR: i64 = 4;

/// A product of matrices over a batch of them, as text.
pub(super) struct Product<'a> {
    pub name: &'static str,
    pub dtype: DType,
    pub arguments: Vec<Argument<'a>>,
    /// Bytes at the start of the scratch memory in which operands lie, a multiple of 256.
    pub scratch: Expr,
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
    /// The same by tensor maps, where both have one.
    pub mapped: Option<Mapped>,
    pub put: Put<'a>,
}

/// The operands of a product as the copy engine finds them.
pub(super) struct Mapped {
    pub operands: String,
    /// Their tiles are still to be said.
    pub maps: [TensorMap; 2],
    /// The right operand's elements are neighbours along its rows.
    pub turned: bool,
}

impl Mapped {
    /// Where both operands (a side, the view that it is of, and the argument's place and name) have tensor maps, and warpgroups multiply them.
    pub fn of(
        writer: &Writer,
        left: (&Side, &View, (u32, &str)),
        right: (&Side, &View, (u32, &str)),
        leading: &[Expr],
        batch_at: &[String],
    ) -> Option<Mapped> {
        if !writer.warpgroups() || !uses_tensor_cores(writer.dtype(left.1).ok()?) {
            return None;
        }
        let map = |(side, view, argument): (&Side, &View, (u32, &str)), name, turned| {
            side.mapped(writer, view, argument, name, leading, batch_at, turned)
        };
        let (left, left_map) = map(left, "left", false)?;
        let along_depth = map(right, "right", false);
        let turned = along_depth.is_none();
        let (right, right_map) = along_depth.or_else(|| map(right, "right", true))?;
        Some(Mapped { operands: left + &right, maps: [left_map, right_map], turned })
    }
}

/// The launches of a product: one, or two where blocks share the depth.
pub(super) fn emit(writer: &mut Writer, product: Product) -> Result<LibraryLaunches> {
    let (tiles, template, slices) = choose(writer, &product);
    let Product { name, dtype, mut arguments, sizes, batch, rows, columns, depth, coordinates, put, .. } = product;
    let taken = product.scratch;
    let (operands, maps) = match product.mapped.filter(|_| template.bulk) {
        Some(Mapped { operands, maps: [left, right], turned }) => {
            let lines = if turned { STAGE } else { tiles.columns };
            (operands, vec![left.of_tiles(STAGE, tiles.rows), right.of_tiles(STAGE, lines)])
        }
        None => (product.operands, vec![]),
    };
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
        together: template.together,
        maps: maps.clone(),
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
        let operands_there = !taken.is_int(0);
        let launch = writer.add(draft(name, arguments, body, grid, threads, shared, operands_there, blocks))?;
        return Ok(LibraryLaunches { scratch: taken, ..super::one(launch) });
    }
    let register = super::names::register(dtype)?;
    let (rows_text, columns_text) = (writer.size(&rows), writer.size(&columns));
    let all_rows = &batch * &rows;
    body.push_str(&format!(
        "  const int64 first_row = (blockIdx.y * {} + rest) * {rows_text};\n  \
         {slice_text}{coordinates}{operands}  {register} *parts = reinterpret_cast<{register} *>(static_cast<char *>(scratch) + {});\n  \
         const auto place = [=](int64 row, int64 column) {{ return parts + ((first_row + row) * {columns_text} + column); }};\n  \
         const auto put = stored<true>(place, 1);\n  \
         {}(tile_m, tile_n, begin, end, left, right, put);\n",
        writer.size(&batch),
        writer.size(&taken),
        template.call(dtype, 1)
    ));
    let fours = columns.ceil_div(&Expr::int(4));
    let head = format!("int64 rest = all / {rows_text}; const int64 row = all % {rows_text};\n{coordinates}");
    let sum = format!(
        "{}  const {register} *parts = reinterpret_cast<const {register} *>(static_cast<const char *>(scratch) + {});\n  \
         sum_slices(blockIdx.x * {THREADS}ll + threadIdx.x, {}, {}, {columns_text}, parts, put);\n",
        put.declare(writer, "all", &head, FOUR)?,
        writer.size(&taken),
        writer.size(&count),
        writer.size(&all_rows),
    );
    let parts_grid = [grid, count.clone(), Expr::int(1)];
    let sum_grid = [(&all_rows * &fours).ceil_div(&Expr::int(THREADS)), Expr::int(1), Expr::int(1)];
    let parts = writer.add(draft(name, arguments, body, parts_grid, threads, shared, true, 1))?;
    let sum = draft("sum_slices", put.arguments(), sum, sum_grid, THREADS as u32, 0, true, 1);
    let sum = writer.add(Draft { maps: vec![], together: 0, ..sum })?;
    let bytes = &(&(&count * &all_rows) * &columns) * dtype_size(register);
    Ok(LibraryLaunches { launches: vec![parts, sum], scratch: &taken + &bytes, count: None })
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

    /// The declaration of a loader by a tensor map of an argument (its place and name), and the map, where there can be one: the elements of a view along
    /// the depth (or, `turned`, the rows) are neighbours, and everything else lies multiples of 16 bytes apart.
    pub fn mapped(
        &self,
        writer: &Writer,
        view: &View,
        argument: (u32, &str),
        name: &str,
        leading: &[Expr],
        batch_at: &[String],
        turned: bool,
    ) -> Option<(String, TensorMap)> {
        let dtype = writer.dtype(view).ok()?;
        let chunk = Expr::int(16 / dtype.size().max(1) as i64);
        let whole = |distance: &Expr| distance.modulo(&chunk).is_int(0);
        let mut lines = [(self.depth, self.depth_stride), (self.rows, self.row_stride)];
        if turned {
            lines.reverse();
        }
        let [(inner, neighbour), (outer, apart)] = lines;
        if !neighbour.is_int(1) || apart.is_int(0) || !whole(apart) || !whole(&view.offset) {
            return None;
        }
        let (mut sizes, mut strides) = (vec![inner.clone(), outer.clone()], vec![apart.clone()]);
        let mut at = Vec::new();
        for ((size, stride), own) in leading.iter().zip(&view.strides).zip(batch_at).rev() {
            if size.is_int(1) || stride.is_int(0) {
                continue;
            }
            if !whole(stride) {
                return None;
            }
            sizes.push(size.clone());
            strides.push(stride.clone());
            at.push(format!("(int){own}"));
        }
        if sizes.len() > MOST_MAPPED || sizes.iter().any(|size| size.as_int().is_some_and(|n| n > LONGEST_MAPPED)) {
            return None;
        }
        let declaration = format!(
            "  const Mapped<{}, {}, {turned}> {name}{{&map_{}, {}, {{{}}}}};\n",
            writer.element(view).ok()?,
            at.len(),
            argument.1,
            writer.size(self.rows),
            if at.is_empty() { "0".to_owned() } else { at.join(", ") }
        );
        let tile = vec![1; sizes.len()];
        Some((declaration, TensorMap { buffer: argument.0, offset: view.offset.clone(), sizes, strides, tile }))
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
