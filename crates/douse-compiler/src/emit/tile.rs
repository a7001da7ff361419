//! Kernels whose loads run along one loop and whose stores along another: through tiles in shared memory, so that both touch neighbours.

use douse_core::sym::Expr;
use douse_core::{Error, Result};
use douse_program::kernel::{Effect, Kernel, Op, Stage};

use super::body::Acting;
use super::kernel::{Writer, variable};
use super::vector::{Vectors, is_aligned};
use super::{names, strategy};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tiling {
    /// The loop that loads run along, and the one that stores run along.
    along_loads: usize,
    along_stores: usize,
    /// Elements of a tile in each direction.
    side: i64,
    /// The loads that go through tiles.
    loads: Vec<usize>,
    /// Elements that a thread moves at once: two, where they have 16 bits and always lie in one word.
    points: i64,
}

const THREADS: i64 = 256;
/// Shorter loops are not worth it.
const SHORT: i64 = 16;
const SIDE: i64 = 32;
const LARGE_SIDE: i64 = 64;
/// Bytes of shared memory.
const SHARED: i64 = 48 << 10;

impl Tiling {
    /// The tiling of a kernel of one stage without inner loops.
    pub fn of(kernel: &Kernel, stage: &Stage) -> Option<Tiling> {
        let order = strategy::in_memory_order(kernel.outer.len(), 0, strategy::stored(kernel));
        let along_stores = *order.last()?;
        strategy::stored(kernel).any(|index| strategy::runs_along(index, along_stores)).then_some(())?;
        let plain = |op: &Op| match op {
            Op::Load { index, guard: None, .. } if !strategy::registers(index) => Some(index.clone()),
            _ => None,
        };
        let across = |index: &Expr, number: usize| {
            number != along_stores
                && strategy::runs_along(index, number)
                && !strategy::runs_along(index, along_stores)
                && index.mentions(|s| s == variable(along_stores))
        };
        let found = stage.body.iter().find_map(|inst| {
            let index = plain(&inst.op)?;
            (0..kernel.outer.len()).find(|number| across(&index, *number))
        });
        let along_loads = found?;
        let sizes = [along_loads, along_stores].map(|number| kernel.outer.get(number).and_then(Expr::as_int));
        if sizes.iter().flatten().any(|size| *size < SHORT) {
            return None;
        }
        let loads: Vec<usize> = stage
            .body
            .iter()
            .enumerate()
            .filter_map(|(number, inst)| across(&plain(&inst.op)?, along_loads).then_some(number))
            .collect();
        let bytes = |number: &usize| stage.body.get(*number).map_or(8, |inst| inst.dtype.size() as i64);
        let (all, most) = (loads.iter().map(bytes).sum::<i64>(), loads.iter().map(bytes).max()?);
        let large = most <= 4 && sizes.iter().flatten().all(|size| *size >= LARGE_SIDE);
        let mut side = if large { LARGE_SIDE } else { SIDE };
        let fits = |side: i64| all * side * (side + 4) <= SHARED;
        if !fits(side) {
            side = SIDE;
        }
        let paired = |number: &usize| match stage.body.get(*number).map(|inst| &inst.op) {
            Some(Op::Load { param, index, .. }) => {
                kernel.params.get(*param as usize).is_some_and(|p| p.dtype.size() == 2)
                    && is_aligned(index, along_loads, 2)
            }
            _ => false,
        };
        let even = sizes.iter().all(|size| size.is_some_and(|size| size % 2 == 0));
        let points = if side == LARGE_SIDE && even && loads.iter().all(paired) { 2 } else { 1 };
        fits(side).then_some(Tiling { along_loads, along_stores, side, loads, points })
    }
}

impl Writer<'_> {
    /// A block takes a tile. Returns the number of blocks and threads a block.
    pub fn tiled(&mut self, tiling: &Tiling) -> Result<(Expr, u32)> {
        let Tiling { along_loads, along_stores, side, loads, points } = tiling;
        let [stage] = self.kernel.stages.as_slice() else {
            return Err(Error::internal("tiles of several stages"));
        };
        let outer = &self.kernel.outer;
        let size = |number: usize| outer.get(number).cloned().ok_or_else(|| Error::internal("a loop is not there"));
        let (rows, columns) = (size(*along_loads)?, size(*along_stores)?);
        let tiles = |size: &Expr| size.ceil_div(&Expr::int(*side));
        let others: Vec<(usize, Expr)> = self.outer_loops();
        let others: Vec<_> = others.into_iter().filter(|(n, _)| n != along_loads && n != along_stores).collect();
        let indexer = self.outer_indexer();
        let loop_type = |number: usize| indexer.loop_width(number).name();
        for number in loads {
            if let Some(Op::Load { param, .. }) = stage.body.get(*number).map(|inst| &inst.op) {
                let dtype = self.body(stage).param(*param)?;
                // Neighbours in either direction lie in banks of their own.
                let pitch = side + (4 / dtype.size() as i64).max(1);
                self.out
                    .line(format!("__shared__ __align__(4) {} tile{number}[{side}][{pitch}];", names::element(dtype)?));
            }
        }
        self.out.line("const int x = threadIdx.x % 32, y = threadIdx.x / 32;");
        self.out.line("int64 block = blockIdx.x;");
        for (name, size) in [("from", &columns), ("to", &rows)] {
            let tiles = indexer.wide(&tiles(size));
            self.out.line(format!("const int64 {name} = block % ({tiles}) * {side};"));
            self.out.line(format!("block /= {tiles};"));
        }
        self.declare(&others, "block", 1);
        let (bound, other_bound) = (indexer.wide(&rows), indexer.wide(&columns));
        let vectors = Vectors::across(stage, *along_stores, *points);
        // Along loads first, then along stores.
        for storing in [false, true] {
            self.out.line("#pragma unroll");
            self.out.line(format!("for (int step = 0; step < {}; ++step) {{", side * side / THREADS / points));
            let lanes = side / 32 / points;
            let (along, step) =
                (format!("(x + step % {lanes} * 32) * {points}"), format!("y + step / {lanes} * {}", THREADS / 32));
            let (row, column) = if storing { (step, along) } else { (along, step) };
            self.out.line(format!("const int row = {row}, column = {column};"));
            self.out.line(format!("if (to + row < {bound} && from + column < {other_bound}) {{"));
            for (number, start, at) in [(along_loads, "to", "row"), (along_stores, "from", "column")] {
                let width = loop_type(*number);
                self.out.line(format!("const {width} i{number} = ({width})({start} + {at});"));
            }
            if storing {
                self.store_tile(stage, tiling, &vectors)?;
            } else {
                let body = self.body(stage);
                for number in loads {
                    if let Some(Op::Load { param, index, .. }) = stage.body.get(*number).map(|inst| &inst.op) {
                        let at = body.parenthesised(index);
                        body.out.line(match points {
                            1 => format!("tile{number}[column][row] = a{param}[{at}];"),
                            n => format!(
                                "store_aligned(&tile{number}[column][row], load_aligned<{n}>(a{param} + {at}));"
                            ),
                        });
                    }
                }
            }
            self.out.line("}");
            self.out.line("}");
            if !storing {
                self.out.line("__syncthreads();");
            }
        }
        let others = Expr::product(others.iter().map(|(_, size)| size));
        Ok((&(&tiles(&rows) * &tiles(&columns)) * &others, THREADS as u32))
    }

    /// The body and effects at a point of a tile, or at two neighbours along the stores.
    fn store_tile(&mut self, stage: &Stage, tiling: &Tiling, vectors: &Vectors) -> Result<()> {
        let (number, points) = (tiling.along_stores, tiling.points);
        let tiled = |at: &'static str| {
            move |number: usize| {
                let (inst, tiled) = (stage.body.get(number)?, tiling.loads.contains(&number));
                let dtype = names::element(inst.dtype).ok()?;
                tiled.then(|| format!("Element<{dtype}>::load(tile{number}[{at}][row])"))
            }
        };
        let width = self.indexer(stage).loop_width(number).name();
        let mut body = self.body(stage);
        if points == 1 {
            body.instructions_from(tiled("column"))?;
            return body.effects(vectors, Acting::All);
        }
        let stores = |effect: &usize| match stage.effects.get(*effect) {
            Some(Effect::Store { param, index, value, .. }) => Some((*param, index, *value)),
            _ => None,
        };
        for effect in vectors.stores() {
            if let Some((param, ..)) = stores(effect) {
                let register = names::register(body.param(param)?)?;
                body.out.line(format!("{register} w{effect}[{points}];"));
            }
        }
        body.out.line(format!("const {width} first = i{number};"));
        body.out.line("#pragma unroll");
        body.out.line(format!("for (int k = 0; k < {points}; ++k) {{"));
        body.out.line(format!("const {width} i{number} = first + k;"));
        body.instructions_from(tiled("column + k"))?;
        body.effects(vectors, Acting::All)?;
        body.out.line("}");
        for effect in vectors.stores() {
            if let Some((param, index, value)) = stores(effect) {
                let (rounding, element) = (body.rounding(param, value)?, names::element(body.param(param)?)?);
                let at = body.parenthesised(index);
                let packed = format!("pack<{}, {element}>(w{effect})", rounding.name());
                body.out.line(match is_aligned(index, number, points) {
                    true => format!("store_aligned(a{param} + {at}, {packed});"),
                    false => format!("store_vector(a{param} + {at}, {packed}, {points});"),
                });
            }
        }
        Ok(())
    }
}
