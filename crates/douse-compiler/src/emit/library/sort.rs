//! Sorting and the largest elements of rows.

use douse_core::sym::Expr;
use douse_core::{DType, Result};
use douse_program::library::View;
use douse_program::target::LibraryLaunches;

use super::function::{Argument, Draft, Writer};
use super::one;
use super::select::Levels;

pub(super) const TEMPLATES: &[&str] = &[include_str!("../cuda/sort.cuh")];
const RADIX: &[&str] = &[include_str!("../cuda/sort.cuh"), include_str!("../cuda/radix.cuh")];

/// Elements of a row that a block sorts by itself, in shared memory.
const SHORT: i64 = 1024;

/// Sorts rows; where `values` are shorter than `input`, the first are kept.
pub(super) fn emit(
    writer: &mut Writer,
    input: &View,
    values: &View,
    indices: &View,
    descending: bool,
) -> Result<LibraryLaunches> {
    let one = Expr::int(1);
    let rows = Rows {
        input,
        values,
        indices,
        descending,
        n: input.sizes.last().unwrap_or(&one),
        leading: input.sizes.get(..input.sizes.len().saturating_sub(1)).unwrap_or_default(),
    };
    match rows.n.as_int() {
        Some(n) if n <= SHORT => rows.short(writer, n),
        _ => match Levels::of(writer, &rows)? {
            Some(levels) => levels.emit(writer, &rows),
            None => rows.long(writer),
        },
    }
}

/// What is sorted.
pub(super) struct Rows<'a> {
    pub input: &'a View,
    pub values: &'a View,
    indices: &'a View,
    pub descending: bool,
    pub n: &'a Expr,
    pub leading: &'a [Expr],
}

impl<'a> Rows<'a> {
    pub fn arguments(&self) -> Vec<Argument<'a>> {
        vec![
            Argument::read("input", self.input),
            Argument::written("values", self.values),
            Argument::written("indices", self.indices),
        ]
    }

    /// Statements from a row's number, which is `rest`: `in(i)`, the row's elements, and `out(place, from)`, which writes one.
    pub fn accesses(&self, writer: &Writer) -> String {
        let (split, row) = writer.split("rest", "row", self.leading);
        let at = |view: &View, last: &str| {
            let mut at = row.clone();
            at.push(last.to_owned());
            writer.place(view, &at)
        };
        format!(
            "{split}  const auto in = [=](int64 i) {{ return load(input + {}); }};\n  \
             const auto out = [=](int64 i, int64 from) {{ store(values + {}, in(from)); indices[{}] = from; }};\n",
            at(self.input, "i"),
            at(self.values, "i"),
            at(self.indices, "i"),
        )
    }

    fn wanted(&self, writer: &Writer) -> String {
        writer.size(self.values.sizes.last().unwrap_or(&Expr::int(1)))
    }

    /// A block a row.
    fn short(&self, writer: &mut Writer, n: i64) -> Result<LibraryLaunches> {
        let tile = (n.max(64) as u64).next_power_of_two();
        let threads = (tile / 2).min(512) as u32;
        let body = format!(
            "  int64 rest = blockIdx.x;\n{}  sort_row<{threads}, {tile}, {}, {}>({n}, {}, in, out);\n",
            self.accesses(writer),
            self.descending,
            writer.register(self.input)?,
            self.wanted(writer),
        );
        let launch = writer.add(Draft {
            name: "sort",
            templates: TEMPLATES,
            arguments: self.arguments(),
            sizes: vec![],
            body,
            grid: [Expr::product(self.leading), Expr::int(1), Expr::int(1)],
            threads,
            shared: 0,
            scratch: false,
            ..Draft::default()
        })?;
        Ok(one(launch))
    }

    /// Digit by digit, each row by as many blocks as it has tiles. Scratch memory: two lists of keys, two of indices, the digits' counts by
    /// tile, and their totals.
    fn long(&self, writer: &mut Writer) -> Result<LibraryLaunches> {
        const DIGITS: i64 = 256;
        const THREADS: u32 = 256;
        let dtype = writer.dtype(self.input)?;
        let key_bytes = if dtype.size() == 8 { 8 } else { 4 };
        let tile = i64::from(THREADS) * if key_bytes == 8 { 8 } else { 16 };
        let rows = Expr::product(self.leading);
        let (items, tiles) = (&rows * self.n, self.n.ceil_div(&Expr::int(tile)));
        let (blocks, pairs) = (&rows * &tiles, &rows * DIGITS);
        let (n_text, tiles_text, items_text) = (writer.size(self.n), writer.size(&tiles), writer.size(&items));
        let register = writer.register(self.input)?;
        let memory = format!(
            "  typedef SortKey<{register}>::Key Key;\n  Key *const keys = static_cast<Key *>(scratch);\n  \
             uint32 *const order = reinterpret_cast<uint32 *>(keys + 2 * {items_text});\n  \
             uint32 *const counts = order + 2 * {items_text};\n  \
             uint32 *const totals = counts + {} * {tiles_text};\n",
            writer.size(&pairs),
        );
        let turned = if self.descending { "(Key)~" } else { "" };
        let passes = passes(dtype);
        let draft = |name, body, grid: &Expr| Draft {
            name,
            templates: RADIX,
            arguments: self.arguments(),
            sizes: vec![items.clone()],
            body,
            grid: [grid.clone(), Expr::int(1), Expr::int(1)],
            threads: THREADS,
            shared: 0,
            scratch: true,
            ..Draft::default()
        };
        let sum = format!("{memory}  Radix<Key>::sum({}, {tiles_text}, counts, totals);\n", writer.size(&pairs));
        let mut launches = Vec::new();
        for (pass, shift) in passes.clone().enumerate() {
            // Passes take turns with the two lists.
            let list = |of: &str, turn: usize| match turn % 2 {
                0 => format!("{of} + row * {n_text}"),
                _ => format!("{of} + {items_text} + row * {n_text}"),
            };
            let accesses = format!(
                "{memory}  const int64 row = blockIdx.x / {tiles_text};\n  int64 rest = row;\n{}",
                self.accesses(writer)
            );
            let (key, index) = match pass {
                0 => (format!("{turned}SortKey<{register}>::key(in(i))"), "(uint32)i"),
                _ => ("old_keys[i]".to_owned(), "old_order[i]"),
            };
            let old = format!(
                "  const Key *const old_keys = {};\n  const uint32 *const old_order = {};\n  \
                 const auto key = [=](int64 i) -> Key {{ return {key}; }};\n",
                list("keys", pass + 1),
                list("order", pass + 1),
            );
            launches.push(writer.add(draft(
                "radix_count",
                format!("{accesses}{old}  Radix<Key>::count({n_text}, {tiles_text}, {shift}, key, counts);\n"),
                &blocks,
            ))?);
            launches.push(writer.add(draft(
                "radix_sum",
                sum.clone(),
                &pairs.ceil_div(&Expr::int(i64::from(THREADS / 32))),
            ))?);
            let put = if pass + 1 == passes.len() {
                format!("if (place < {}) out(place, index);", self.wanted(writer))
            } else {
                "new_keys[place] = key; new_order[place] = index;".to_owned()
            };
            let place = format!(
                "{accesses}{old}  Key *const new_keys = {};\n  uint32 *const new_order = {};\n  \
                 Radix<Key>::place({n_text}, {tiles_text}, {shift}, key, [=](int64 i) -> uint32 {{ return {index}; }}, \
                 counts, totals,\n    [=](int64 place, Key key, uint32 index) {{ {put} }});\n",
                list("keys", pass),
                list("order", pass),
            );
            launches.push(writer.add(draft("radix_place", place, &blocks))?);
        }
        let bytes = &(&items * (2 * (key_bytes + 4))) + &(&(&pairs * 4) * &(&tiles + &Expr::int(1)));
        Ok(LibraryLaunches { launches, scratch: bytes, count: None })
    }
}

/// Where the digits of a dtype's keys that can differ begin, as shifts.
fn passes(dtype: DType) -> std::iter::StepBy<std::ops::Range<u32>> {
    let bits = match dtype {
        DType::Bool | DType::U8 | DType::I8 => 0..8,
        DType::U16 | DType::I16 => 0..16,
        // They are floats in registers, whose significands are longer.
        DType::BF16 => 16..32,
        DType::F16 => 8..32,
        dtype if dtype.size() == 8 => 0..64,
        _ => 0..32,
    };
    bits.step_by(8)
}
