//! Stages with scans.

use douse_core::sym::{Expr, Symbol};
use douse_core::{Error, Result};
use douse_program::kernel::{Effect, Op, Reg, Stage};

use super::body::Acting;
use super::kernel::Writer;
use super::split::Split;
use super::vector::Vectors;
use super::{names, strategy};

/// A scan of a stage.
struct Scan<'a> {
    /// Its place among the effects.
    number: usize,
    class: String,
    value: Reg,
    /// The position that goes with the value, and the parameter that positions are stored to.
    position: Option<(Reg, u32)>,
    param: u32,
    index: &'a Expr,
}

impl Writer<'_> {
    /// A stage with scans: for each row of its inner space, chunks of a few neighbouring elements a lane. A lane scans its own, lanes scan
    /// what all have, and chunks are carried over.
    pub fn scan(&mut self, stage: &Stage, inner: &[(usize, Expr)]) -> Result<()> {
        let Some(((last, size), rows)) = inner.split_last() else { return Ok(()) };
        let scans = self.scans(stage)?;
        let vectors = Vectors::of_scan(self.kernel, stage, *last, size, self.lanes.count());
        let points = vectors.points();
        let row_count = strategy::count(rows, 1);
        let indexer = self.indexer(stage);
        let (row_type, row_count) = (indexer.width(&row_count).name(), indexer.write(&row_count));
        self.out.line(format!("for ({row_type} row = 0; row < {row_count}; ++row) {{"));
        self.declare(rows, "row", 1);
        for Scan { number, class, .. } in &scans {
            self.out.line(format!("typedef {class} Scan{number};"));
            self.out.line(format!("auto carry{number} = Scan{number}::neutral();"));
        }
        let (begin, end) = match self.split.clone() {
            None => ("0".to_owned(), indexer.wide(size)),
            Some(split) => {
                for scan in &scans {
                    self.carry_parts(&split, scan.number);
                }
                split.range(&indexer.wide(size))
            }
        };
        self.out
            .line(format!("for (int64 base = {begin}, end = {end}; base < end; base += Lanes::COUNT * {points}) {{"));
        let loop_type = self.values_of_chunk(stage, *last, &scans, &vectors, true)?;
        for Scan { number, .. } in &scans {
            self.out.line(format!("auto total{number} = Scan{number}::neutral();"));
            self.out.line(format!(
                "auto before{number} = Across<Scan{number}, Lanes>::before(x{number}[{points} - 1], total{number});"
            ));
            self.out.line(format!("auto start{number} = carry{number};"));
            self.out.line(format!("Scan{number}::join(start{number}, before{number});"));
            self.out.line(format!("Scan{number}::join(carry{number}, total{number});"));
        }
        for scan in &scans {
            self.store_scan(stage, scan, &vectors, *last, loop_type)?;
        }
        self.out.line("}");
        self.out.line("}");
        Ok(())
    }

    /// The total of each scan over a part of the row, left for the launch that scans it.
    pub fn scan_parts(&mut self, stage: &Stage, split: &Split) -> Result<()> {
        let inner = self.inner_loops(stage);
        let [(last, size)] = inner.as_slice() else {
            return Err(Error::internal("parts of scans of several rows"));
        };
        let scans = self.scans(stage)?;
        let vectors = Vectors::of_scan(self.kernel, stage, *last, size, self.lanes.count());
        for Scan { number, class, .. } in &scans {
            self.out.line(format!("typedef {class} Scan{number};"));
            self.out.line(format!("auto sum{number} = Scan{number}::neutral();"));
        }
        let (begin, end) = split.range(&self.indexer(stage).wide(size));
        let points = vectors.points();
        self.out
            .line(format!("for (int64 base = {begin}, end = {end}; base < end; base += Lanes::COUNT * {points}) {{"));
        self.values_of_chunk(stage, *last, &scans, &vectors, false)?;
        for Scan { number, .. } in &scans {
            self.out.line(format!("x{number}[0] = Across<Scan{number}, Lanes>::reduce(x{number}[{points} - 1]);"));
            self.out.line(format!("Scan{number}::join(sum{number}, x{number}[0]);"));
        }
        self.out.line("}");
        for Scan { number, .. } in &scans {
            self.needs.scratch = true;
            let place = split.place_of(&format!("Scan{number}"), *number, "part");
            self.out.line(format!("if (Lanes::lane() == 0) {place} = sum{number};"));
        }
        Ok(())
    }

    /// Starts a part with what the parts before it came to: lanes take neighbouring parts, and are combined in their order.
    fn carry_parts(&mut self, split: &Split, number: usize) {
        self.needs.scratch = true;
        let place = split.place_of(&format!("Scan{number}"), number, "q");
        self.out.line("{");
        self.out.line("const int share = (part + Lanes::COUNT - 1) / Lanes::COUNT;");
        self.out.line("const int until = smaller<int>(part, (Lanes::lane() + 1) * share);");
        self.out.line(format!(
            "for (int q = Lanes::lane() * share; q < until; ++q) Scan{number}::join(carry{number}, {place});"
        ));
        self.out.line(format!("carry{number} = Across<Scan{number}, Lanes>::reduce(carry{number});"));
        self.out.line("}");
    }

    fn scans<'a>(&mut self, stage: &'a Stage) -> Result<Vec<Scan<'a>>> {
        let mut scans = Vec::new();
        for (number, effect) in stage.effects.iter().enumerate() {
            match effect {
                Effect::Scan { op, value, param, index } => {
                    let class = names::combine(*op, self.body(stage).dtype(*value)?, true)?;
                    scans.push(Scan { number, class, value: *value, position: None, param: *param, index });
                }
                Effect::ArgScan { max, value, position, param, param_position, index } => {
                    let register = names::register(self.body(stage).dtype(*value)?)?;
                    let class = format!("ArgExtreme<{register}, {max}, true>");
                    let position = Some((*position, *param_position));
                    scans.push(Scan { number, class, value: *value, position, param: *param, index });
                }
                _ => {}
            }
        }
        Ok(scans)
    }

    /// The values of a lane's elements, scanned by itself; with the stage's other effects where `all`.
    fn values_of_chunk(
        &mut self,
        stage: &Stage,
        last: usize,
        scans: &[Scan],
        vectors: &Vectors,
        all: bool,
    ) -> Result<&'static str> {
        let points = vectors.points();
        let loop_type = self.indexer(stage).loop_width(last).name();
        self.out.line(format!("const {loop_type} first = ({loop_type})(base + Lanes::lane() * {points});"));
        self.out.line(format!("const int count = (int)larger<int64>(smaller<int64>({points}, end - first), 0);"));
        for Scan { number, index, .. } in scans {
            self.out.line(format!("Scan{number}::Accumulator x{number}[{points}];"));
            if strategy::registers(index) {
                self.out.line(format!("int64 at{number}[{points}] = {{}};"));
            }
        }
        let mut body = self.body(stage);
        body.uniform_instructions(vectors)?;
        for number in vectors.loads() {
            if let Some(Op::Load { param, index, .. }) = stage.body.get(*number).map(|inst| &inst.op) {
                let index = index.substitute(&|s| (s == Symbol::Loop(last as u32)).then(|| Expr::int(0)));
                let at = body.parenthesised(&index);
                body.out.line(format!("const auto v{number} = load_vector<{points}>(a{param} + {at} + first, count);"));
            }
        }
        body.out.line("#pragma unroll");
        body.out.line(format!("for (int k = 0; k < {points}; ++k) {{"));
        for Scan { number, .. } in scans {
            body.out.line(format!("x{number}[k] = Scan{number}::neutral();"));
        }
        body.out.line("if (k < count) {");
        body.out.line(format!("const {loop_type} i{last} = first + k;"));
        body.instructions(vectors)?;
        if all {
            body.effects(vectors, Acting::All)?;
        }
        for Scan { number, value, position, index, .. } in scans {
            match position {
                None => body.out.line(format!("Scan{number}::take(x{number}[k], r{value});")),
                Some((position, _)) => {
                    let extreme = names::register(body.dtype(*value)?)?;
                    body.out.line(format!("x{number}[k] = Extreme<{extreme}>{{r{value}, r{position}}};"));
                }
            }
            if strategy::registers(index) {
                let at = body.indexer.wide(index);
                body.out.line(format!("at{number}[k] = {at};"));
            }
        }
        body.out.line("}");
        body.out.line("if (k > 0) {");
        for Scan { number, .. } in scans {
            body.out.line(format!("auto before{number} = x{number}[k > 0 ? k - 1 : 0];"));
            body.out.line(format!("Scan{number}::join(before{number}, x{number}[k]);"));
            body.out.line(format!("x{number}[k] = before{number};"));
        }
        body.out.line("}");
        body.out.line("}");
        Ok(loop_type)
    }

    /// Stores what a lane's elements come to, several at once where they are neighbours.
    fn store_scan(
        &mut self,
        stage: &Stage,
        scan: &Scan,
        vectors: &Vectors,
        last: usize,
        loop_type: &str,
    ) -> Result<()> {
        let (Scan { number, index, .. }, points) = (scan, vectors.points());
        let wide = points > 1 && vectors.runs(index);
        let mut body = self.body(stage);
        body.note_ranges();
        let mut outputs = vec![(scan.param, if scan.position.is_some() { "y.value" } else { "" })];
        outputs.extend(scan.position.map(|(_, param)| (param, "y.position")));
        // What is stored is rounded by the store.
        let value = |field: &str| match field {
            "" => format!("Scan{number}::result(y)"),
            field => field.to_owned(),
        };
        if wide {
            for (param, _) in &outputs {
                let register = names::register(body.param(*param)?)?;
                body.out.line(format!("{register} w{number}_{param}[{points}] = {{}};"));
            }
        }
        body.out.line("#pragma unroll");
        body.out.line(format!("for (int k = 0; k < {points}; ++k) {{"));
        body.out.line("if (k < count) {");
        body.out.line(format!("const {loop_type} i{last} = first + k;"));
        body.out.line(format!("auto y = start{number};"));
        body.out.line(format!("Scan{number}::join(y, x{number}[k]);"));
        for (param, field) in &outputs {
            let value = value(field);
            body.out.line(match (wide, strategy::registers(index)) {
                (true, _) => format!("w{number}_{param}[k] = {value};"),
                (false, true) => format!("store(a{param} + at{number}[k], {value});"),
                (false, false) => format!("store(a{param} + {}, {value});", body.parenthesised(index)),
            });
        }
        body.out.line("}");
        body.out.line("}");
        if wide {
            let index = index.substitute(&|s| (s == Symbol::Loop(last as u32)).then(|| Expr::int(0)));
            let at = body.parenthesised(&index);
            for (param, _) in &outputs {
                let element = names::element(body.param(*param)?)?;
                body.out.line(format!(
                    "store_vector(a{param} + {at} + first, pack<ANY, {element}>(w{number}_{param}), count);"
                ));
            }
        }
        Ok(())
    }
}
