//! Stages with scans.

use douse_core::Result;
use douse_core::sym::Expr;
use douse_program::kernel::{Effect, Stage};

use super::body::Acting;
use super::kernel::Writer;
use super::vector::Vectors;
use super::{names, strategy};

impl Writer<'_> {
    /// A stage with scans: for each row of its inner space, chunks of as many elements as there are lanes, and a carry.
    pub fn scan(&mut self, stage: &Stage, inner: &[(usize, Expr)]) -> Result<()> {
        let Some(((last, size), rows)) = inner.split_last() else { return Ok(()) };
        let indexer = self.indexer(stage);
        let loop_type = indexer.loop_width(*last).name();
        let row_count = strategy::count(rows, 1);
        let scans: Vec<(usize, &Effect)> = stage.effects.iter().enumerate().collect();
        let mut classes = Vec::new();
        for (number, effect) in scans {
            match effect {
                Effect::Scan { op, value, .. } => {
                    let dtype = self.body(stage).dtype(*value)?;
                    classes.push((number, effect, dtype, names::combine(*op, dtype, true)?));
                }
                Effect::ArgScan { max, value, .. } => {
                    let dtype = self.body(stage).dtype(*value)?;
                    classes.push((
                        number,
                        effect,
                        dtype,
                        format!("ArgExtreme<{}, {max}, true>", names::register(dtype)?),
                    ));
                }
                _ => {}
            }
        }
        let (row_type, row_count) = (indexer.width(&row_count).name(), indexer.write(&row_count));
        self.out.line(format!("for ({row_type} row = 0; row < {row_count}; ++row) {{"));
        self.declare(rows, "row", 1);
        for (n, _, _, class) in &classes {
            self.out.line(format!("typedef {class} Scan{n};"));
            self.out.line(format!("auto carry{n} = Scan{n}::neutral();"));
        }
        let size = indexer.wide(size);
        self.out.line(format!("for (int64 base = 0; base < {size}; base += Lanes::COUNT) {{"));
        self.out.line(format!("const {loop_type} i{last} = ({loop_type})(base + Lanes::lane());"));
        self.out.line(format!("const bool active = base + Lanes::lane() < {size};"));
        for (n, ..) in &classes {
            self.out.line(format!("auto x{n} = Scan{n}::neutral();"));
            self.out.line(format!("int64 at{n} = 0;"));
        }
        self.out.line("if (active) {");
        let mut body = self.body(stage);
        body.instructions(&Vectors::none())?;
        body.effects(&Vectors::none(), Acting::All)?;
        for (n, effect, dtype, _) in &classes {
            match effect {
                Effect::Scan { value, index, .. } => {
                    body.out.line(format!("Scan{n}::take(x{n}, r{value});"));
                    let at = body.indexer.wide(index);
                    body.out.line(format!("at{n} = {at};"));
                }
                Effect::ArgScan { value, position, index, .. } => {
                    let register = names::register(*dtype)?;
                    body.out.line(format!("x{n} = Extreme<{register}>{{r{value}, r{position}}};"));
                    let at = body.indexer.wide(index);
                    body.out.line(format!("at{n} = {at};"));
                }
                _ => {}
            }
        }
        body.out.line("}");
        for (n, ..) in &classes {
            self.out.line(format!("x{n} = Across<Scan{n}, Lanes>::scan(x{n});"));
            self.out.line(format!("Scan{n}::join(carry{n}, x{n});"));
            self.out.line(format!("x{n} = carry{n};"));
        }
        self.out.line("if (active) {");
        for (n, effect, _, _) in &classes {
            match effect {
                // What is stored is rounded by the store.
                Effect::Scan { param, .. } => {
                    self.out.line(format!("store(a{param} + at{n}, Scan{n}::result(x{n}));"));
                }
                Effect::ArgScan { param, param_position, .. } => {
                    self.out.line(format!("store(a{param} + at{n}, x{n}.value);"));
                    self.out.line(format!("store(a{param_position} + at{n}, x{n}.position);"));
                }
                _ => {}
            }
        }
        self.out.line("}");
        for (n, ..) in &classes {
            self.out.line(format!("carry{n} = Across<Scan{n}, Lanes>::last(x{n});"));
        }
        self.out.line("}");
        self.out.line("}");
        Ok(())
    }
}
