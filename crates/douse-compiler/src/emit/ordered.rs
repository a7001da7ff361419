//! Kernels whose points are taken in order, those apart that never write one element.

use douse_core::sym::Expr;
use douse_core::{Error, Result};
use douse_program::kernel::{Effect, Stage};

use super::index::Width;
use super::kernel::Writer;
use super::strategy::InOrder;
use super::vector::Vectors;
use super::{names, strategy};

/// Loops by number and size.
type Loops = Vec<(usize, Expr)>;

/// An element that a point changes.
struct Change {
    effect: usize,
    /// How it is made, as a class.
    class: String,
    param: u32,
    register: &'static str,
    place: &'static str,
    /// Bytes of both.
    bytes: u32,
}

/// Bytes of shared memory, and the slots by which a warp's lanes find those that change the same element.
const SHARED: u32 = 48 << 10;
const SLOTS: u32 = 256;

/// Elements of shared memory from a column to the next: neighbours in two directions lie in banks of their own.
fn pitch(columns: u32, shares: u32) -> u32 {
    32 * shares + 32 / columns
}

/// Bytes of shared memory of a block whose points change so many bytes.
fn shared(columns: u32, shares: u32, bytes: u32) -> u32 {
    columns * (bytes * pitch(columns, shares) + 64 * shares + 4 * shares * shares + 4 * SLOTS * shares)
}

impl Writer<'_> {
    /// A thread takes a point of the parallel loops, and the others one by one.
    pub fn one_by_one(&mut self, parallel: &[usize]) -> Result<(Expr, u32)> {
        const THREADS: u32 = 128;
        let (apart, in_order) = self.split_outer(parallel);
        let (count, steps) = (strategy::count(&apart, 1), strategy::count(&in_order, 1));
        let indexer = self.outer_indexer();
        self.out.line("typedef ThreadLanes Lanes;");
        self.out.line(format!("const int64 p = blockIdx.x * {THREADS}ll + threadIdx.x;"));
        self.out.line(format!("if (p >= {}) return;", indexer.wide(&count)));
        self.declare(&apart, "p", 1);
        let step_type = indexer.width(&steps).name();
        self.out.line(format!("for ({step_type} step = 0; step < {}; ++step) {{", indexer.write(&steps)));
        self.declare(&in_order, "step", 1);
        self.declare_locals()?;
        let kernel = self.kernel;
        for (number, stage) in kernel.stages.iter().enumerate() {
            self.stage(number, stage)?;
        }
        self.out.line("}");
        Ok((count.ceil_div(&Expr::int(i64::from(THREADS))), THREADS))
    }

    /// A block takes `columns` points of the parallel loops. Its threads compute a tile of points of the other loops for each, and leave what
    /// they change in shared memory; then `shares` warps a column make the changes, each those of its share of the elements, in order. While they
    /// wait for the elements, the next points are on their way.
    pub fn in_order(&mut self, in_order: &InOrder) -> Result<(Expr, u32)> {
        let InOrder { parallel, columns, owners } = in_order;
        let (columns, owners) = (*columns, *owners);
        let [stage] = self.kernel.stages.as_slice() else {
            return Err(Error::internal("an ordered kernel of several stages is shared"));
        };
        let (apart, steps_loops) = self.split_outer(parallel);
        let (count, steps) = (strategy::count(&apart, 1), strategy::count(&steps_loops, 1));
        let changes = self.changes(stage)?;
        let indexer = self.outer_indexer();
        let (total, steps) = (indexer.wide(&count), indexer.wide(&steps));
        let bytes = changes.iter().map(|change| change.bytes).sum::<u32>();
        let shares = [8, 4, 2].into_iter().find(|shares| shared(columns, *shares, bytes) <= SHARED).unwrap_or(1);
        let (tile, pitch) = (32 * shares, pitch(columns, shares));
        self.out.line(format!("const int row = threadIdx.x / {columns}, column = threadIdx.x % {columns};"));
        self.out.line(format!("const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, own = warp / {shares};"));
        for Change { effect, register, place, .. } in &changes {
            self.out.line(format!("__shared__ {place} places{effect}[{columns}][{pitch}];"));
            self.out.line(format!("__shared__ {register} values{effect}[{columns}][{pitch}];"));
        }
        self.out.line(format!("__shared__ uint16 order[{columns}][{tile}];"));
        self.out.line(format!("__shared__ uint32 counts[{columns}][{}];", shares * shares));
        self.out.line(format!("__shared__ uint32 slots[{}][{SLOTS}];", columns * shares));
        self.out.line(format!("clear_slots<{SLOTS}>(slots[warp]);"));
        self.out.line("uint32 turn = FIRST_TURN;");
        if owners > 1 {
            self.out.line(format!("const uint32 owner = blockIdx.x % {owners}u;"));
        }
        self.out.line(format!("const int64 point = blockIdx.x / {owners}u * {columns}ll + column;"));
        self.out.line(format!("const int64 p = smaller<int64>(point, {total} - 1);"));
        self.out.line(format!("const int64 steps = {steps}, end = steps > 0 ? steps + {tile} : 0;"));
        self.declare(&apart, "p", 1);
        self.out.line(format!("for (int64 base = 0; base < end; base += {tile}) {{"));
        for Change { effect, register, place, .. } in &changes {
            self.out.line(format!("{place} place{effect};"));
            self.out.line(format!("{register} value{effect};"));
        }
        self.out.line("Fault fault;");
        self.out.line("{");
        // Without branches, all loads are under way at once: beyond the end, the last point stands in.
        self.out.line("const int64 wanted = base + row, step = smaller<int64>(wanted, steps - 1);");
        self.out.line(format!("const bool there = point < {total} && wanted < steps;"));
        self.declare(&steps_loops, "step", 1);
        self.declare_locals()?;
        let mut body = self.body(stage);
        body.faults = true;
        body.instructions(&Vectors::none())?;
        for (effect, written) in stage.effects.iter().enumerate() {
            match written {
                Effect::Update { index, value, guard, .. } | Effect::Store { index, value, guard, .. } => {
                    let mut conditions = vec!["there".to_owned()];
                    conditions.extend(guard.iter().map(|g| format!("r{g}")));
                    if owners > 1 {
                        conditions.push(format!("owner_of<{owners}>({}) == owner", body.indexer.wide(index)));
                    }
                    let place = body.parenthesised(index);
                    body.out.line(format!("place{effect} = {} ? {place} : -1;", conditions.join(" && ")));
                    body.out.line(format!("value{effect} = r{value};"));
                }
                other => body.other_effect(other),
            }
        }
        self.out.line("}");
        self.out.line("if (base > 0) {");
        for Change { effect, class, param, .. } in &changes {
            self.out.line("{");
            self.out.line("int q, until;");
            self.out.line(format!("Queues<{shares}>::share(places{effect}[own], counts[own], order[own], q, until);"));
            self.out.line("for (; q < until; q += 32) {");
            self.out.line("const bool waits = q + lane < until;");
            self.out.line("const int from = waits ? order[own][q + lane] : 0;");
            self.out.line(format!(
                "change_in_order<{class}, {SLOTS}>(a{param}, waits ? places{effect}[own][from] : -1, values{effect}[own][from], slots[warp], turn);"
            ));
            self.out.line("}");
            self.out.line("}");
            self.out.line("__syncthreads();");
        }
        self.out.line("}");
        if self.needs.flag {
            self.out.line("fault.raise_in(flag);");
        }
        for Change { effect, .. } in &changes {
            self.out.line(format!("places{effect}[column][row] = place{effect};"));
            self.out.line(format!("values{effect}[column][row] = value{effect};"));
        }
        self.out.line("__syncthreads();");
        self.out.line("}");
        let blocks = &count.ceil_div(&Expr::int(i64::from(columns))) * i64::from(owners);
        Ok((blocks, 32 * columns * shares))
    }

    /// The outer loops that are taken apart, and those that are taken in order.
    pub fn split_outer(&self, parallel: &[usize]) -> (Loops, Loops) {
        self.outer_loops().into_iter().partition(|(number, _)| parallel.contains(number))
    }

    fn changes(&mut self, stage: &Stage) -> Result<Vec<Change>> {
        let mut body = self.body(stage);
        body.note_ranges();
        let mut changes = Vec::new();
        for (effect, written) in stage.effects.iter().enumerate() {
            let (op, param, index) = match written {
                Effect::Update { op, param, index, .. } => (*op, *param, index),
                Effect::Store { param, index, .. } => (None, *param, index),
                _ => continue,
            };
            let dtype = body.param(param)?;
            let class = match op {
                None => format!("Set<{}>", names::element(dtype)?),
                Some(op) => format!("Update<{}, {}>", names::one_by_one(op, dtype)?, names::element(dtype)?),
            };
            let (register, width) = (names::register(dtype)?, body.indexer.width(index));
            let bytes = (dtype.size() as u32).max(4) + if width == Width::Wide { 8 } else { 4 };
            changes.push(Change { effect, class, param, register, place: width.name(), bytes });
        }
        Ok(changes)
    }
}
