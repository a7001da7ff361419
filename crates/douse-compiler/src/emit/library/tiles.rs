//! Which tiles a product is cut into, how blocks share its depth, and the template that does it.

use douse_core::DType;
use douse_core::sym::Expr;

use super::cost::{Time, bulk_time, copying_time, fma_time, parts_time, tf32_time};
use super::function::Writer;
use super::product::{BLOCKS, FOUR, Product, STAGE, TEMPLATES, THREADS};

const WARPGROUP_TEMPLATES: &[&str] = &[
    include_str!("../cuda/operand.cuh"),
    include_str!("../cuda/cluster.cuh"),
    include_str!("../cuda/product.cuh"),
    include_str!("../cuda/warpgroup.cuh"),
];

const BULK_TEMPLATES: &[&str] = &[
    include_str!("../cuda/operand.cuh"),
    include_str!("../cuda/cluster.cuh"),
    include_str!("../cuda/product.cuh"),
    include_str!("../cuda/warpgroup.cuh"),
    include_str!("../cuda/bulk.cuh"),
];

/// Of float32, without tensor cores.
const FMA_TEMPLATES: &[&str] = &[
    include_str!("../cuda/operand.cuh"),
    include_str!("../cuda/cluster.cuh"),
    include_str!("../cuda/product.cuh"),
    include_str!("../cuda/lines.cuh"),
    include_str!("../cuda/fma.cuh"),
];

/// Of float32, rounded to TF32.
const TF32_TEMPLATES: &[&str] = &[
    include_str!("../cuda/operand.cuh"),
    include_str!("../cuda/cluster.cuh"),
    include_str!("../cuda/product.cuh"),
    include_str!("../cuda/lines.cuh"),
    include_str!("../cuda/tf32.cuh"),
];

/// Bytes of shared memory that hold the barriers of all stages.
const BARRIERS: i64 = 16 * MOST_STAGES;
/// Threads of a warp.
const WARP: i64 = 32;
/// A block whose share of the depth is shorter does not pay for adding the shares up.
const SLICE: i64 = 256;
const MOST_SLICES: i64 = 32;
/// The same for the blocks of a cluster, and how many it has on every device that has clusters.
const CLUSTER_SLICE: i64 = 128;
pub(super) const CLUSTER: i64 = 8;
/// What sizes that are known only at run time are taken for.
const UNKNOWN: i64 = 1024;

/// What a block computes of a product at once.
pub(super) struct Tiles {
    pub rows: i64,
    pub columns: i64,
    /// Warps along each.
    warps: (i64, i64),
    /// Blocks that should share a multiprocessor, if there are so many.
    pub together: i64,
}

/// Tiles of tensor cores, the largest first.
const MMA_TILES: [Tiles; 3] = [
    Tiles { rows: 128, columns: 256, warps: (2, 4), together: 1 },
    Tiles { rows: 128, columns: 128, warps: (2, 2), together: 2 },
    Tiles { rows: 64, columns: 64, warps: (2, 2), together: 3 },
];
/// Tiles of warpgroups, of 64 rows each.
const WARPGROUP_TILES: [Tiles; 6] = [
    Tiles { rows: 128, columns: 256, warps: (8, 1), together: 1 },
    Tiles { rows: 128, columns: 192, warps: (8, 1), together: 1 },
    Tiles { rows: 128, columns: 128, warps: (8, 1), together: 2 },
    Tiles { rows: 64, columns: 256, warps: (4, 1), together: 1 },
    Tiles { rows: 64, columns: 128, warps: (4, 1), together: 2 },
    Tiles { rows: 64, columns: 64, warps: (4, 1), together: 3 },
];
/// Of float32.
const FMA_TILES: [Tiles; 6] = [
    Tiles { rows: 128, columns: 128, warps: (4, 2), together: 2 },
    Tiles { rows: 64, columns: 128, warps: (2, 2), together: 3 },
    Tiles { rows: 128, columns: 64, warps: (4, 1), together: 3 },
    Tiles { rows: 64, columns: 64, warps: (2, 2), together: 4 },
    Tiles { rows: 32, columns: 64, warps: (2, 2), together: 4 },
    Tiles { rows: 64, columns: 32, warps: (4, 1), together: 4 },
];
/// Of float32 in TF32.
const TF32_TILES: [Tiles; 6] = [
    Tiles { rows: 128, columns: 128, warps: (2, 4), together: 2 },
    Tiles { rows: 64, columns: 128, warps: (1, 4), together: 3 },
    Tiles { rows: 128, columns: 64, warps: (2, 2), together: 3 },
    Tiles { rows: 64, columns: 64, warps: (2, 2), together: 4 },
    Tiles { rows: 32, columns: 64, warps: (2, 2), together: 4 },
    Tiles { rows: 64, columns: 32, warps: (2, 2), together: 4 },
];
/// Bytes of the offsets of a depth of an image's windows, of which two stages are held: 64-bit numbers of a place and three coordinates at most.
const OFFSETS: i64 = 2 * 32;
/// Of everything else, one by one.
const PLAIN_TILES: [Tiles; 1] = [Tiles { rows: 64, columns: 64, warps: (8, 1), together: 1 }];
/// Elements of depth that two stages of them each hold of both operands, as in the template.
const PLAIN_STAGE: i64 = 16;
/// Elements between rows of results in shared memory, as in the template.
const RESULTS_APART: i64 = 8;
/// Stages from which on more bytes are on their way than a multiprocessor's share of the memory's latency takes.
const MOST_STAGES: i64 = 8;
/// One that is multiplied, and two on their way.
const LEAST_STAGES: i64 = 3;

/// How a template is called.
pub(super) struct Template {
    /// Without the number of slices, which those of tensor cores take last.
    name: String,
    pub texts: &'static [&'static str],
    pub threads: i64,
    /// Bytes of dynamic shared memory.
    pub shared: i64,
    /// Results that it puts at once.
    pub run: i64,
    /// It takes operands by tensor maps.
    pub bulk: bool,
    /// Blocks that share a multiprocessor, if the function has to be told.
    pub together: i64,
}

impl Tiles {
    /// Bytes of dynamic shared memory that so many stages take: results pass through the same memory, in float32.
    fn shared(&self, stages: i64) -> i64 {
        self.results().max(stages * self.stage())
    }

    /// Bytes of results in shared memory.
    fn results(&self) -> i64 {
        self.rows * (self.columns + RESULTS_APART) * 4
    }

    /// Bytes of a stage of 16-bit elements.
    fn stage(&self) -> i64 {
        (self.rows + self.columns) * STAGE * 2
    }

    /// How many blocks share a multiprocessor, and the shared memory that each then has.
    fn share(&self, writer: &Writer, blocks: i64, slices: i64) -> (i64, i64) {
        let together = ((blocks as u64).div_ceil(BLOCKS as u64) as i64).clamp(1, self.together);
        // Larger clusters find their place only where multiprocessors have room for several blocks.
        let together = if slices >= 4 { together.max(2) } else { together };
        // The driver keeps some of each block's share.
        (together, writer.shared_limit() / together - 1024)
    }

    /// Stages that the copy engine may fill at once.
    fn bulk_stages(&self, share: i64) -> i64 {
        (share - BARRIERS) / self.stage()
    }

    /// The template for this many blocks, each of which goes through so many stages.
    fn template(&self, writer: &Writer, product: &Product, blocks: i64, slices: i64, steps: i64) -> Template {
        let Tiles { rows, columns, warps, .. } = self;
        if product.dtype == DType::F32 {
            return if writer.tf32() {
                self.lines_template("tf32_product", TF32_TEMPLATES, (8, 16), (2, 6), writer.shared_limit())
            } else {
                // Where few blocks share a multiprocessor, they should seldom wait for their warps.
                let (depth, most) = if self.together > 2 { (16, 4) } else { (32, 2) };
                self.lines_template("fma_product", FMA_TEMPLATES, (4, depth), (2, most), writer.shared_limit())
            };
        }
        if !uses_tensor_cores(product.dtype) {
            let name = format!("tile_product<{rows}");
            let shared = 4 * PLAIN_STAGE * (rows + FOUR) * product.dtype.size().max(4) as i64;
            return Template { name, texts: TEMPLATES, threads: THREADS, shared, run: FOUR, bulk: false, together: 0 };
        }
        let (together, share) = self.share(writer, blocks, slices);
        let warpgroups = writer.warpgroups() && product.deep;
        if product.mapped.is_some() {
            let groups = rows / 64;
            let stages = self.bulk_stages(share).min(steps.clamp(2, MOST_STAGES)).max(2);
            let name = format!("bulk_product<{groups}, {columns}, {stages}");
            let (threads, shared) = (128 * groups + WARP, self.shared(stages) + BARRIERS);
            let together = together.min(self.together);
            return Template { name, texts: BULK_TEMPLATES, threads, shared, run: 8, bulk: true, together };
        }
        // Warpgroups still multiply one stage when the next but one is asked for.
        let useful = (steps + if warpgroups { 2 } else { 1 }).clamp(3, MOST_STAGES);
        let stages = (share / self.stage()).min(useful).max(2);
        let shared = self.shared(stages);
        if warpgroups {
            let groups = rows / 64;
            let name = format!("warpgroup_product<{groups}, {columns}, {}", stages.max(3));
            let shared = self.shared(stages.max(3));
            let threads = 128 * groups;
            return Template { name, texts: WARPGROUP_TEMPLATES, threads, shared, run: 8, bulk: false, together: 0 };
        }
        let name = format!("mma_product<{rows}, {columns}, {}, {}, {stages}", warps.0, warps.1);
        let threads = WARP * warps.0 * warps.1;
        Template { name, texts: TEMPLATES, threads, shared, run: 8, bulk: false, together: 0 }
    }
}

impl Tiles {
    /// A template for float32, whose lines in shared memory are longer by so many elements than what lies at a depth, and whose stages are so deep; at
    /// least and at most so many of them are held.
    fn lines_template(
        &self,
        name: &str,
        texts: &'static [&'static str],
        (longer, depth): (i64, i64),
        (least, most): (i64, i64),
        shared_limit: i64,
    ) -> Template {
        let Tiles { rows, columns, warps, together } = self;
        let (stage, offsets) = (depth * (rows + columns + 2 * longer) * 4, depth * OFFSETS);
        let stages = ((shared_limit / together - 1024 - offsets) / stage).clamp(least, most);
        let name = format!("{name}<{rows}, {columns}, {}, {}, {depth}, {stages}", warps.0, warps.1);
        let (threads, shared) = (WARP * warps.0 * warps.1, self.results().max(stages * stage + offsets));
        Template { name, texts, threads, shared, run: 8, bulk: false, together: *together }
    }
}

impl Template {
    /// The call by which so many blocks of a cluster sum slices.
    pub fn call(&self, dtype: DType, slices: i64) -> String {
        match makes_clusters(dtype) {
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
        _ => PLAIN_TILES.iter().collect(),
    }
}

pub(super) fn uses_tensor_cores(dtype: DType) -> bool {
    matches!(dtype, DType::F16 | DType::BF16)
}

/// Whether the blocks of a cluster can share the depth.
fn makes_clusters(dtype: DType) -> bool {
    uses_tensor_cores(dtype) || dtype == DType::F32
}

/// How blocks share the depth.
pub(super) struct Slices {
    pub count: Expr,
    /// Elements of depth of one.
    pub slice: i64,
    /// Those of a tile are a cluster.
    pub cluster: bool,
}

/// Sizes as numbers, those of products that stand beside this one counted in.
struct Sizes {
    rows: i64,
    columns: i64,
    /// Matrices, times the share of this product's columns in all.
    batch: f64,
    depth: Option<i64>,
}

impl Sizes {
    fn of(writer: &Writer, product: &Product) -> Sizes {
        let guess = |size: &Expr| size.as_int().or(writer.indexer.ranges.max(size)).unwrap_or(UNKNOWN).max(1);
        let batch = guess(&product.batch) as f64 * writer.beside;
        Sizes { rows: guess(&product.rows), columns: guess(&product.columns), batch, depth: product.depth.as_int() }
    }

    /// Blocks, if none share a tile.
    fn blocks(&self, tiles: &Tiles) -> i64 {
        let down = (self.rows as u64).div_ceil(tiles.rows as u64);
        let across = (self.columns as u64).div_ceil(tiles.columns as u64);
        (down.saturating_mul(across) as f64 * self.batch) as i64
    }
}

/// The tiles, how they are computed, and how many slices the depth is cut into.
pub(super) fn choose(writer: &Writer, product: &Product) -> (&'static Tiles, Template, Slices) {
    let sizes = Sizes::of(writer, product);
    // Clusters add up without another launch.
    let cluster = writer.clusters() && makes_clusters(product.dtype);
    let warpgroups = writer.warpgroups() && uses_tensor_cores(product.dtype);
    let (tiles, count) = match (warpgroups, &product.mapped) {
        _ if product.dtype == DType::F32 => {
            let (all, time) =
                if writer.tf32() { (&TF32_TILES, tf32_time as Time) } else { (&FMA_TILES, fma_time as Time) };
            match cluster {
                true => fastest(&sizes, all, &[1, 2, 4, 8], CLUSTER_SLICE, time),
                false => fastest(&sizes, all, &[1, 2, 4, 8, 16, MOST_SLICES], SLICE, |tiles, blocks, depth, slices| {
                    parts_time(time, tiles, blocks, depth, slices)
                }),
            }
        }
        // Clusters of eight blocks, which take half of a group of multiprocessors each, were measured to be slower than four.
        (true, Some(_)) => {
            fastest(&sizes, &WARPGROUP_TILES, &[1, 2, 4], CLUSTER_SLICE, |tiles, blocks, depth, slices| {
                let stages = tiles.bulk_stages(tiles.share(writer, blocks, slices).1);
                // (With two, a product of 512 x 2048 x 8192 took 94 us.)
                if stages < LEAST_STAGES { f64::INFINITY } else { bulk_time(tiles, blocks, depth, slices) }
            })
        }
        (true, None) if product.deep => fastest(&sizes, &WARPGROUP_TILES, &[1, 2, 4], CLUSTER_SLICE, copying_time),
        _ => {
            let tiles = largest(&sizes, &candidates(product, writer));
            let (least, most) = if cluster { (CLUSTER_SLICE, CLUSTER) } else { (SLICE, MOST_SLICES) };
            let blocks = sizes.blocks(tiles);
            let splittable = product.dtype.is_float() && blocks <= BLOCKS / 2;
            let count = match sizes.depth {
                Some(depth) if splittable => (2 * BLOCKS / blocks.max(1)).min(depth / least).clamp(1, most),
                _ => 1,
            };
            (tiles, count)
        }
    };
    // Whole stages a slice.
    let whole = |depth: i64| (depth as u64).div_ceil(STAGE as u64) as i64;
    let steps = sizes.depth.map_or(i64::MAX, |depth| (whole(depth) as u64).div_ceil(count as u64) as i64);
    let slice = steps.saturating_mul(STAGE);
    let blocks = sizes.blocks(tiles).saturating_mul(count);
    let template = tiles.template(writer, product, blocks, count, steps.min(MOST_STAGES));
    let count = if count == 1 { Expr::int(1) } else { product.depth.ceil_div(&Expr::int(slice)) };
    (tiles, template, Slices { count, slice, cluster })
}

/// The largest tiles that occupy the device well, or the smallest.
fn largest(sizes: &Sizes, tiles: &[&'static Tiles]) -> &'static Tiles {
    // A last round of few blocks costs as much as a full one.
    let busy = |t: &Tiles| {
        let rounds = (sizes.blocks(t) as u64).div_ceil(BLOCKS as u64) as i64;
        let useful = sizes.rows as f64 * sizes.columns as f64 * sizes.batch / (t.rows * t.columns) as f64;
        useful / (rounds.max(1) * BLOCKS) as f64
    };
    let well = tiles.iter().find(|t| sizes.blocks(t) >= BLOCKS && busy(t) >= 0.7);
    well.or(tiles.last()).copied().unwrap_or(&PLAIN_TILES[0])
}

/// The tiles and slices, of at least so many elements of depth, that should take the least time. `time`: of tiles, of which so many blocks each go through so many
/// elements of depth, in so many slices, in microseconds.
fn fastest<const N: usize>(
    sizes: &Sizes,
    tiles: &'static [Tiles; N],
    slices: &[i64],
    least: i64,
    time: impl Fn(&Tiles, i64, f64, i64) -> f64,
) -> (&'static Tiles, i64) {
    let mut best = (&tiles[0], 1, f64::INFINITY);
    for tiles in tiles {
        for &slices in slices {
            let depth = match sizes.depth {
                Some(depth) if slices > 1 && depth / slices < least => continue,
                Some(depth) => depth as f64 / slices as f64,
                None if slices > 1 => continue,
                None => UNKNOWN as f64,
            };
            let time = time(tiles, sizes.blocks(tiles).saturating_mul(slices), depth, slices);
            if time < best.2 {
                best = (tiles, slices, time);
            }
        }
    }
    (best.0, best.1)
}
