//! Attention on tensor cores: which rows and keys a block takes, and the functions that call the templates.

use douse_core::Result;
use douse_core::sym::Expr;
use douse_program::library::{Attention, View};
use douse_program::target::{LibraryLaunches, TensorMap};

use super::attention::{SHARED, TEMPLATES};
use super::function::{Argument, Draft, Writer, nth_last};
use super::one;
use super::product::{BLOCKS, STAGE, Side};
use super::put::Put;
use super::tiles::CLUSTER;
use crate::emit::names;

const BULK_TEMPLATES: &[&str] = &[
    include_str!("../cuda/operand.cuh"),
    include_str!("../cuda/cluster.cuh"),
    include_str!("../cuda/product.cuh"),
    include_str!("../cuda/attention.cuh"),
    include_str!("../cuda/warpgroup.cuh"),
    include_str!("../cuda/bulk.cuh"),
    include_str!("../cuda/bulk_attention.cuh"),
];

/// How an attention is laid out for tensor cores. Its rows are the queries of all heads that share keys: row r is query r / `group` of head
/// r % `group` among them.
pub(super) struct Form {
    head: i64,
    value: i64,
    group: i64,
    /// Warps along the rows, 16 each, and warps that share a step's keys.
    row_warps: i64,
    key_warps: i64,
    /// Keys of a step, and how many steps' keys and values are there or on their way.
    keys: i64,
    stages: i64,
    /// Blocks that each take a part of the keys.
    parts: i64,
    /// Where the copy engine brings keys and values: the declarations of their loaders, and their tensor maps.
    bulk: Option<(String, Vec<TensorMap>)>,
    shared: i64,
}

/// Sums of longer values would take too many registers.
const LONGEST_VALUE: i64 = 256;
/// Keys that a block should at least have, and into how many parts they are cut at most.
const PART: i64 = 128;
const MOST_PARTS: i64 = 64;
/// What lengths that are known only at run time are taken for.
const UNKNOWN: i64 = 1024;
const THREADS: i64 = 256;
/// Steps of which it is remembered what a mask lets through, a byte each.
const MOST_SIGHTS: i64 = 1024;
/// Bytes of the barriers of a stage, by which the copy engine says what is there.
const BARRIERS: i64 = 4 * 8;

impl Form {
    /// `None` for what does not fit.
    pub fn of(writer: &Writer, attention: &Attention, head: i64, value: i64) -> Result<Option<Form>> {
        let Attention { query, key, .. } = attention;
        let (heads, key_heads) = (nth_last(&query.sizes, 2)?, nth_last(&key.sizes, 2)?);
        let Some(group) = heads.floor_div(key_heads).as_int().filter(|group| *group > 0) else { return Ok(None) };
        let guess = |size: &Expr| size.as_int().or(writer.indexer.ranges.max(size)).unwrap_or(UNKNOWN).max(1);
        let matrices = guess(key_heads).saturating_mul(guess(nth_last(&query.sizes, 3)?));
        let rows = guess(nth_last(&query.sizes, 1)?).saturating_mul(group);
        let lengths = guess(nth_last(&key.sizes, 1)?);
        let blocks = |warps: i64| ((rows as u64).div_ceil(16 * warps as u64) as i64).saturating_mul(matrices);
        let sights = if attention.mask.is_some() { MOST_SIGHTS } else { 0 };
        if blocks(8) >= BLOCKS
            && let Some(bulk) = Form::bulk(writer, attention, head, value)?
        {
            let (keys, stages) = (128, 2);
            let shared = 128 * head * 2 + stages * (keys * (head + value) * 2 + BARRIERS) + sights;
            let form = Form {
                head,
                value,
                group,
                row_warps: 8,
                key_warps: 1,
                keys,
                stages,
                parts: 1,
                bulk: Some(bulk),
                shared,
            };
            return Ok(Some(form));
        }
        let keys = if head.max(value) <= 128 { 64 } else { 32 };
        let (row_warps, key_warps) = match () {
            () if keys == 64 && blocks(8) >= 2 * BLOCKS => (8, 1),
            () if blocks(4) >= BLOCKS => (4, 1),
            () => (1, keys / 16),
        };
        let splittable = key_warps > 1 && blocks(1) <= BLOCKS;
        let parts = if splittable { (2 * BLOCKS / blocks(1)).min(lengths / PART).clamp(1, MOST_PARTS) } else { 1 };
        // No part is empty.
        let part = (lengths as u64).div_ceil((parts * keys) as u64) as i64 * keys;
        let parts = ((lengths as u64).div_ceil(part as u64) as i64).clamp(1, parts);
        let line = |size: i64| (size + 63) / 64 * 64;
        let shared =
            |stages: i64| (16 * row_warps * line(head) + stages * keys * (line(head) + line(value))) * 2 + sights;
        // Where blocks have few steps each, all should be on their way at once, in two blocks of a multiprocessor and the lines that they leave.
        let lines = 16 * row_warps * (value + 2) * 4;
        let room = (writer.shared_limit() / 2 - 1024 - lines).min(SHARED);
        let stages = [4, 3].into_iter().find(|stages| key_warps > 1 && shared(*stages) <= room).unwrap_or(2);
        let shared = shared(stages);
        let fits = value <= LONGEST_VALUE && shared <= SHARED;
        Ok(fits.then_some(Form { head, value, group, row_warps, key_warps, keys, stages, parts, bulk: None, shared }))
    }

    /// The loaders and tensor maps of keys and values, where there can be some and warpgroups multiply them.
    fn bulk(writer: &Writer, attention: &Attention, head: i64, value: i64) -> Result<Option<(String, Vec<TensorMap>)>> {
        if !writer.warpgroups() || !matches!(head, 64 | 128) || !matches!(value, 64 | 128) {
            return Ok(None);
        }
        let (mut loaders, mut maps) = (String::new(), Vec::new());
        let at = ["batch", "key_head"].map(str::to_owned);
        for (view, argument, name, depth) in
            [(&attention.key, (1, "key"), "keys", head), (&attention.value, (2, "value"), "values", value)]
        {
            let (row_stride, depth_stride) = (nth_last(&view.strides, 1)?, nth_last(&view.strides, 0)?);
            let side = Side { rows: nth_last(&view.sizes, 1)?, depth: &Expr::int(depth), row_stride, depth_stride };
            let leading = [nth_last(&view.sizes, 3)?, nth_last(&view.sizes, 2)?].map(Expr::clone);
            let Some((loader, map)) = side.mapped(writer, view, argument, name, &leading, &at, false) else {
                return Ok(None);
            };
            loaders.push_str(&loader);
            maps.push(map.of_tiles(STAGE, 128));
        }
        Ok(Some((loaders, maps)))
    }

    pub fn emit(&self, writer: &mut Writer, attention: &Attention) -> Result<LibraryLaunches> {
        let Attention { query, key, value, mask, out, causal, .. } = attention;
        let Form { head, value: head_value, group, row_warps, key_warps, keys, stages, parts, shared, .. } = *self;
        let element = writer.element(query)?;
        let (queries, length) = (nth_last(&query.sizes, 1)?, nth_last(&key.sizes, 1)?);
        let (key_heads, batch) = (nth_last(&key.sizes, 2)?, nth_last(&query.sizes, 3)?);
        let rows = queries * group;
        let tiles = rows.ceil_div(&Expr::int(16 * row_warps));
        let matrices = key_heads * batch;
        let (rows_text, tiles_text) = (writer.size(&rows), writer.size(&tiles));
        let at_row = |last: &str| {
            let head = format!("(key_head * {group} + row % {group})");
            let query = if group == 1 { "row".to_owned() } else { format!("(row / {group})") };
            ["batch".to_owned(), head, query, last.to_owned()]
        };
        let at = |view: &View, last: &str| writer.place(view, &at_row(last));
        let coordinates = format!("  const int64 key_head = rest % {0}, batch = rest / {0};\n", writer.size(key_heads));
        let mut loaders = format!(
            "  const auto row_at = [=](int64 row, int64 d) -> const {element} * {{ return query + ({}); }};\n  \
             const auto rows = gathered<{element}, {}, false>(row_at, query + ({}), {rows_text}, {head});\n",
            at(query, "d"),
            row_chunks(query, head),
            writer.size(&query.offset)
        );
        let sides = [(key, "keys", "key", head), (value, "values", "value", head_value)];
        if let Some((bulk, _)) = &self.bulk {
            loaders.push_str(bulk);
        }
        for (view, name, argument, depth) in sides.into_iter().filter(|_| self.bulk.is_none()) {
            let (row_stride, depth_stride) = (nth_last(&view.strides, 1)?, nth_last(&view.strides, 0)?);
            let place = |at: &[&str]| {
                let at: Vec<String> = ["batch", "key_head"].iter().chain(at).map(|s| (*s).to_owned()).collect();
                writer.place(view, &at)
            };
            if depth_stride.is_int(1) {
                let side = Side { rows: length, depth: &Expr::int(depth), row_stride, depth_stride };
                loaders.push_str(&side.loader(writer, view, name, &format!("{argument} + {}", place(&[])))?);
            } else {
                loaders.push_str(&format!(
                    "  const auto {name}_at = [=](int64 i, int64 d) -> const {element} * {{ return {argument} + ({}); }};\n  \
                     const auto {name} = gathered<{element}, SCATTERED, false>({name}_at, {argument}, {}, {depth});\n",
                    place(&["i", "d"]),
                    writer.size(length)
                ));
            }
        }
        let (scores, look) = self.scores(writer, attention, &at_row)?;
        // The longest rows of a causal product first.
        let tile =
            if *causal { format!("{tiles_text} - 1 - rest % {tiles_text}") } else { format!("rest % {tiles_text}") };
        let mut body = format!(
            "  int64 rest = blockIdx.x;\n  const int64 tile = {tile};\n  rest /= {tiles_text};\n{coordinates}{loaders}{scores}"
        );
        let put = Put {
            setup: String::new(),
            at: at_row("column").to_vec(),
            along: Some(3),
            columns: Expr::int(head_value),
            out,
            bias: None,
            epilogue: None,
        };
        let call = |begin: &str, end: &str, out: &str| {
            if self.bulk.is_some() {
                return format!(
                    "  bulk_attention<{element}, {head}, {head_value}, {stages}, {causal}, {group}>(tile * 128, {end}, rows, keys, values, \
                     {look}, score, {out});\n"
                );
            }
            format!(
                "  mma_attention<{element}, {head}, {head_value}, {row_warps}, {key_warps}, {keys}, {stages}, {causal}, {group}>(tile * {}, {begin}, \
                 {end}, rows, keys, values, {look}, score, {out});\n",
                16 * row_warps
            )
        };
        let mut arguments =
            vec![Argument::read("query", query), Argument::read("key", key), Argument::read("value", value)];
        arguments.extend(mask.iter().map(|mask| Argument::read("mask", mask)));
        let maps = self.bulk.as_ref().map(|(_, maps)| maps.clone()).unwrap_or_default();
        let draft = |name, arguments, body, grid, threads: i64, shared: i64| Draft {
            name,
            templates: if self.bulk.is_some() { BULK_TEMPLATES } else { TEMPLATES },
            arguments,
            sizes: vec![],
            body,
            grid,
            threads: threads as u32,
            shared: shared as u32,
            scratch: parts > 1,
            maps: if name == "attention" { maps.clone() } else { vec![] },
            together: i64::from(self.bulk.is_some()),
            ..Draft::default()
        };
        let threads = 32 * self.warps();
        let length_text = writer.size(length);
        if parts == 1 {
            arguments.extend(put.arguments());
            body.push_str(&put.declare(writer, "row", "", 1)?);
            body.push_str(&call("0", &length_text, "divided(put)"));
            let grid = [&tiles * &matrices, Expr::int(1), Expr::int(1)];
            return Ok(one(writer.add(draft("attention", arguments, body, grid, threads, shared))?));
        }
        // Whole steps a part.
        let part = (&length.ceil_div(&Expr::int(parts * keys))) * keys;
        let begin_end = format!(
            "  const int64 begin = blockIdx.y * {0}, end = smaller<int64>(begin + {0}, {length_text});\n",
            writer.size(&part)
        );
        if writer.clusters() && parts <= CLUSTER && head_value % 2 == 0 {
            // The blocks of a cluster join their parts without another launch.
            body.push_str(&format!(
                "{begin_end}  float *lines = reinterpret_cast<float *>(dynamic_shared() + {shared});\n{}{}  \
                 join_cluster<{head_value}, {parts}, {}, {threads}>(lines, tile * {2}, rows.rows, put);\n",
                put.declare(writer, "row", "", 2)?,
                call("begin", "end", &format!("Own<{head_value}>{{lines, tile * {}}}", 16 * row_warps)),
                16 * row_warps,
            ));
            arguments.extend(put.arguments());
            let grid = [&tiles * &matrices, Expr::int(parts), Expr::int(1)];
            let shared = shared + 16 * row_warps * (head_value + 2) * 4;
            let draft =
                Draft { scratch: false, cluster: parts, ..draft("attention", arguments, body, grid, threads, shared) };
            return Ok(one(writer.add(draft)?));
        }
        let all_rows = &matrices * &rows;
        let all_rows_text = writer.size(&all_rows);
        body.push_str(&format!(
            "{begin_end}  float *lines = static_cast<float *>(scratch) + (blockIdx.y * {all_rows_text} + rest * {rows_text}) * {line};\n{}",
            call("begin", "end", &format!("Part<{head_value}>{{lines}}")),
            line = head_value + 2,
        ));
        let head = format!("const int64 rest = all / {rows_text}, row = all % {rows_text};\n{coordinates}");
        let join = format!(
            "{}  join_parts<{head_value}, {parts}>(blockIdx.x * {THREADS}ll + threadIdx.x, {all_rows_text}, \
             static_cast<const float *>(scratch), put);\n",
            put.declare(writer, "all", &head, 1)?
        );
        let pairs = (head_value + 1) / 2;
        let grid = [&tiles * &matrices, Expr::int(parts), Expr::int(1)];
        let join_grid = [(&all_rows * pairs).ceil_div(&Expr::int(THREADS)), Expr::int(1), Expr::int(1)];
        let launches = vec![
            writer.add(draft("attention", arguments, body, grid, threads, shared))?,
            writer.add(draft("join_parts", put.arguments(), join, join_grid, THREADS, 0))?,
        ];
        Ok(LibraryLaunches { launches, scratch: &all_rows * (parts * (head_value + 2) * 4), count: None })
    }

    /// Warps of a block. A warpgroup more asks the copy engine.
    fn warps(&self) -> i64 {
        self.row_warps * self.key_warps + if self.bulk.is_some() { 4 } else { 0 }
    }

    /// Statements that declare `score`, which makes scores of products, and what looks at the mask. `at_row` are the coordinates of an element of
    /// a row.
    fn scores(
        &self,
        writer: &Writer,
        attention: &Attention,
        at_row: &dyn Fn(&str) -> [String; 4],
    ) -> Result<(String, String)> {
        let Form { group, row_warps, key_warps, keys, .. } = *self;
        // In powers of 2.
        let scale = attention.scale * std::f64::consts::LOG2_E;
        let scaled = format!("s * (float){}", names::float64(scale));
        let place = |mask: &View, j: &str| writer.place(mask, &at_row(j));
        let (factor, plain, see) = match &attention.mask {
            // The scale of scores that are only hidden goes into the exponent's.
            None if scale > 0.0 => (scale, "s".to_owned(), "s".to_owned()),
            None => (1.0, scaled.clone(), scaled),
            Some(mask) if writer.dtype(mask)?.is_bool() && scale > 0.0 => {
                (scale, "s".to_owned(), format!("load(mask + {}) ? s : -INFINITY_F", place(mask, "j")))
            }
            Some(mask) if writer.dtype(mask)?.is_bool() => {
                (1.0, scaled.clone(), format!("load(mask + {}) ? {scaled} : -INFINITY_F", place(mask, "j")))
            }
            Some(mask) => (1.0, scaled.clone(), format!("{scaled} + load(mask + {}) * LOG2_E", place(mask, "j"))),
        };
        let mut text = format!(
            "  const auto score = scores((float){}, [=](float s) {{ return {plain}; }}, [=](int64 row, int64 j, float s) {{ return {see}; }});\n",
            names::float64(factor)
        );
        let Some(mask) = &attention.mask else { return Ok((text, "Unlooked<false>{}".to_owned())) };
        if key_warps > 1 || !nth_last(&mask.strides, 0)?.is_int(1) {
            return Ok((text, "Unlooked<true>{}".to_owned()));
        }
        // So many rows have one row of the mask.
        let unit = match (nth_last(&mask.strides, 1)?.is_int(0), nth_last(&mask.strides, 2)?.is_int(0)) {
            (true, true) => i64::from(i32::MAX),
            (false, true) => group,
            _ => 1,
        };
        let element = writer.element(mask)?;
        let warps = self.warps();
        let wait = if self.bulk.is_some() { "" } else { " __syncthreads();" };
        text.push_str(&format!(
            "  const auto mask_row = [=](int64 row) -> const {element} * {{ return mask + ({}); }};\n  \
             const auto look_at = [=](unsigned char *room, int64 rows, int64 end) {{ const Sights sights = look<{unit}, {keys}, {element}>(room, \
             {MOST_SIGHTS}, {warps}, tile * {}, rows, end, mask_row);{wait} return sights; }};\n",
            place(mask, "0"),
            16 * row_warps
        ));
        Ok((text, "look_at".to_owned()))
    }
}

/// How the elements of query rows lie, in the templates' words.
fn row_chunks(query: &View, head: i64) -> &'static str {
    let mut strides = query.strides.iter().rev();
    let adjacent = strides.next().is_some_and(|stride| stride.is_int(1));
    let aligned = strides.all(|stride| stride.modulo(&Expr::int(8)).is_int(0));
    if adjacent && aligned && head % 8 == 0 { "WHOLE" } else { "SCATTERED" }
}
