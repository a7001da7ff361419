//! The largest elements of rows, without sorting the rows.

use douse_core::Result;
use douse_core::sym::Expr;
use douse_program::target::LibraryLaunches;

use super::function::{Draft, Writer};
use super::sort::Rows;

const TEMPLATES: &[&str] = &[include_str!("../cuda/sort.cuh"), include_str!("../cuda/select.cuh")];
const THREADS: u32 = 256;
/// A tile leaves no more than this share of it.
const SHARE: i64 = 4;

/// Blocks take tiles of a row and leave the wanted ones of each, level by level, until one tile is left, which is sorted.
pub(super) struct Levels {
    wanted: i64,
    tile: i64,
    key_bytes: i64,
    /// Candidates of a row that each level begins with.
    candidates: Vec<Expr>,
}

impl Levels {
    /// The levels of rows; `None` where it is not known how many there are, or too many elements are wanted.
    pub fn of(writer: &Writer, rows: &Rows) -> Result<Option<Levels>> {
        let key_bytes = if writer.dtype(rows.input)?.size() == 8 { 8 } else { 4 };
        let tile = i64::from(THREADS) * if key_bytes == 8 { 8 } else { 16 };
        let wanted = rows.values.sizes.last().and_then(Expr::as_int);
        let (Some(wanted), Some(mut most)) = (wanted, writer.indexer.ranges.max(rows.n)) else { return Ok(None) };
        if wanted < 1 || wanted > tile / SHARE || most > i64::from(u32::MAX) {
            return Ok(None);
        }
        let mut candidates = vec![rows.n.clone()];
        let mut left = rows.n.clone();
        while most > tile {
            // Every tile but the last is whole.
            let before = &left.ceil_div(&Expr::int(tile)) - &Expr::int(1);
            let last = (&left - &(&before * tile)).minimum(&Expr::int(wanted));
            left = &(&before * wanted) + &last;
            most = (most + tile - 1) / tile * wanted;
            candidates.push(left.clone());
        }
        Ok(Some(Levels { wanted, tile, key_bytes, candidates }))
    }

    /// Scratch memory: two lists of keys, and two of indices.
    pub fn emit(&self, writer: &mut Writer, rows: &Rows) -> Result<LibraryLaunches> {
        let register = writer.register(rows.input)?;
        let count = Expr::product(rows.leading);
        let (first, none) = (Expr::int(1), Expr::int(0));
        let listed = &count * self.candidates.get(1).unwrap_or(&none);
        let listed_text = writer.size(&listed);
        let turned = if rows.descending { "(Key)~" } else { "" };
        let last = self.candidates.len() - 1;
        let mut launches = Vec::with_capacity(self.candidates.len());
        for (level, candidates) in self.candidates.iter().enumerate() {
            let tiles = if level == last { first.clone() } else { candidates.ceil_div(&Expr::int(self.tile)) };
            let (n, tiles_text) = (writer.size(candidates), writer.size(&tiles));
            let mut body = format!(
                "  typedef SortKey<{register}>::Key Key;\n  const int64 row = blockIdx.x / {tiles_text};\n  int64 rest = row;\n{}",
                rows.accesses(writer)
            );
            if last > 0 {
                body.push_str(&format!(
                    "  Key *const keys = static_cast<Key *>(scratch);\n  \
                     uint32 *const order = reinterpret_cast<uint32 *>(keys + 2 * {listed_text});\n"
                ));
            }
            // Levels take turns with the two lists.
            let list = |of: &str, level: usize, n: &str| format!("{of} + {} * {listed_text} + row * {n}", level % 2);
            body.push_str(&match level {
                0 => format!(
                    "  const auto key = [=](int64 i) -> Key {{ return {turned}SortKey<{register}>::key(in(i)); }};\n  \
                     const auto index = [=](int64 i) -> uint32 {{ return (uint32)i; }};\n"
                ),
                _ => format!(
                    "  const Key *const old_keys = {};\n  const uint32 *const old_order = {};\n  \
                     const auto key = [=](int64 i) -> Key {{ return old_keys[i]; }};\n  \
                     const auto index = [=](int64 i) -> uint32 {{ return old_order[i]; }};\n",
                    list("keys", level + 1, &n),
                    list("order", level + 1, &n),
                ),
            });
            let wanted = self.wanted;
            body.push_str(&if level == last {
                let most = (wanted as u64).next_power_of_two().max(2);
                format!("  Select<Key>::sorted<{most}>({n}, {wanted}, key, index, out);\n")
            } else {
                let next = self.candidates.get(level + 1).map_or_else(String::new, |next| writer.size(next));
                format!(
                    "  const int64 tile = blockIdx.x % {tiles_text};\n  Key *const new_keys = {} + tile * {wanted};\n  \
                     uint32 *const new_order = {} + tile * {wanted};\n  \
                     Select<Key>::select({n}, tile * {}, {wanted}, key, index,\n    \
                     [=](int place, Key key, uint32 index) {{ new_keys[place] = key; new_order[place] = index; }});\n",
                    list("keys", level, &next),
                    list("order", level, &next),
                    self.tile,
                )
            });
            launches.push(writer.add(Draft {
                name: "select",
                templates: TEMPLATES,
                arguments: rows.arguments(),
                sizes: vec![candidates.clone(), listed.clone()],
                body,
                grid: [&count * &tiles, first.clone(), first.clone()],
                threads: THREADS,
                shared: 0,
                scratch: last > 0,
                ..Draft::default()
            })?);
        }
        Ok(LibraryLaunches { launches, scratch: &listed * (2 * (self.key_bytes + 4)), count: None })
    }
}
