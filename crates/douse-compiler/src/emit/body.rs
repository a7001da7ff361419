//! A stage's body and effects as C++ statements.

use douse_core::pointwise::{Binary, Combine, Unary};
use douse_core::sym::{Expr, Symbol};
use douse_core::{DType, Error, Result};
use douse_program::kernel::{Effect, Inst, Kernel, Op, Reg, Stage};

use super::index::Indexer;
use super::names;
use super::registers::{self, Rounding};
use super::vector::Vectors;

/// What a kernel's text turned out to need.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Needs {
    pub flag: bool,
    pub random: bool,
    /// The scratch memory.
    pub scratch: bool,
    /// The special functions.
    pub special: bool,
    /// Moments beside sums.
    pub moments: bool,
}

/// Text with indentation.
#[derive(Clone, Debug, Default)]
pub(super) struct Text {
    pub text: String,
    depth: usize,
}

impl Text {
    pub fn line(&mut self, line: impl AsRef<str>) {
        let line = line.as_ref();
        if line.starts_with('}') {
            self.depth = self.depth.saturating_sub(1);
        }
        let indent = if line.starts_with('#') { 0 } else { 2 * self.depth };
        self.text.extend(std::iter::repeat_n(' ', indent));
        self.text.push_str(line);
        self.text.push('\n');
        if line.ends_with('{') {
            self.depth += 1;
        }
    }
}

/// How the effects of a stage act on memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Acting {
    /// Every lane for itself.
    All,
    /// The first lane alone: all lanes compute the same.
    First,
    /// The first lane of the first of the blocks that share a point.
    FirstOfAll,
    /// Nobody: it was done before.
    Nobody,
    /// Nobody yet: the element and value of an update stand in `place` and `value`.
    Noted,
    /// Every lane for itself, and elements that several change at once in any order: the result is the same.
    Atomic,
}

/// Writes one stage's body.
pub(super) struct Body<'a> {
    pub kernel: &'a Kernel,
    pub stage: &'a Stage,
    pub indexer: Indexer,
    pub needs: &'a mut Needs,
    pub out: &'a mut Text,
    /// Checks that fail are noted in `fault`, so that no loads wait for them.
    pub faults: bool,
    /// Locals whose sums are accumulated with their moments.
    pub moments: &'a [u32],
}

impl Body<'_> {
    pub fn dtype(&self, register: Reg) -> Result<DType> {
        let inst = self.stage.body.get(register as usize);
        inst.map(|i| i.dtype).ok_or_else(|| Error::internal(format!("register {register} is not there")))
    }

    pub fn param(&self, param: u32) -> Result<DType> {
        let param = self.kernel.params.get(param as usize);
        param.map(|p| p.dtype).ok_or_else(|| Error::internal("a parameter is not there"))
    }

    /// The instructions that are the same for all points of a vector.
    pub fn uniform_instructions(&mut self, vectors: &Vectors) -> Result<()> {
        let stage = self.stage;
        let uniform = stage.body.iter().enumerate().filter(|(number, _)| vectors.is_uniform(*number));
        uniform.into_iter().try_for_each(|(number, inst)| self.instruction(number, inst, None))
    }

    /// The other instructions; loads in `vectors` have been made before.
    pub fn instructions(&mut self, vectors: &Vectors) -> Result<()> {
        let stage = self.stage;
        let others = stage.body.iter().enumerate().filter(|(number, _)| !vectors.is_uniform(*number));
        others.into_iter().try_for_each(|(number, inst)| {
            self.instruction(number, inst, vectors.load(number).map(|vector| vector + "[k]"))
        })
    }

    /// All instructions; `given` has the values of those that are not computed.
    pub fn instructions_from(&mut self, given: impl Fn(usize) -> Option<String>) -> Result<()> {
        let stage = self.stage;
        stage.body.iter().enumerate().try_for_each(|(number, inst)| self.instruction(number, inst, given(number)))
    }

    fn instruction(&mut self, number: usize, inst: &Inst, given: Option<String>) -> Result<()> {
        let register = number as Reg;
        let value = match given {
            Some(given) => given,
            None => self.value(register, &inst.op, inst.dtype)?,
        };
        self.out.line(format!("const {} r{number} = {value};", names::register(inst.dtype)?));
        self.note_range(register, &inst.op);
        Ok(())
    }

    /// The result of an instruction, rounded to its dtype unless its store does that.
    fn rounded(&self, register: Reg, dtype: DType, value: String) -> Result<String> {
        if registers::rounds_when_stored(self.kernel, self.stage, register) {
            return Ok(value);
        }
        match Rounding::of(self.stage, register) {
            Rounding::Exact => Ok(value),
            Rounding::Result if dtype == DType::BF16 => Ok(format!("round_result({value})")),
            _ => names::rounded(dtype, value),
        }
    }

    /// How the value of a store becomes an element.
    pub fn rounding(&self, param: u32, value: Reg) -> Result<Rounding> {
        let exact =
            self.dtype(value)? == self.param(param)? && !registers::rounds_when_stored(self.kernel, self.stage, value);
        Ok(if exact { Rounding::Exact } else { Rounding::of(self.stage, value) })
    }

    /// What a register's own operation says of its values.
    fn note_range(&mut self, register: Reg, op: &Op) {
        match op {
            Op::Check { size, .. } => {
                self.indexer.ranges.set(Symbol::Value(register), Some(0), Some((size - 1).maximum(&Expr::int(0))));
            }
            Op::Index(expr) => {
                let (min, max) = (self.indexer.ranges.min(expr), self.indexer.ranges.max(expr));
                if max.is_some() {
                    self.indexer.ranges.set(Symbol::Value(register), min, max.map(Expr::int));
                }
            }
            _ => {}
        }
    }

    fn value(&mut self, register: Reg, op: &Op, dtype: DType) -> Result<String> {
        Ok(match op {
            Op::Const(value) => names::constant(dtype, *value)?,
            Op::Index(expr) => self.indexer.wide(expr),
            Op::Load { param, index, guard } => {
                let load = format!("load(a{param} + {})", self.parenthesised(index));
                match guard {
                    None => load,
                    Some(guard) => format!("r{guard} ? {load} : ({})0", names::register(dtype)?),
                }
            }
            Op::Local(local) => format!("l{local}"),
            Op::Unary(op, a) => self.unary(register, *op, *a, dtype)?,
            Op::Binary(op, a, b) => self.binary(register, *op, *a, *b, dtype)?,
            Op::Select(c, a, b) => format!("r{c} ? r{a} : r{b}"),
            Op::Cast(a) => {
                let (from, to) = (names::register(self.dtype(*a)?)?, names::register(dtype)?);
                let value = if from == to { format!("r{a}") } else { format!("convert<{to}>(r{a})") };
                self.rounded(register, dtype, value)?
            }
            Op::Bitcast(a) => {
                format!("bitcast<{}, {}>(r{a})", names::element(dtype)?, names::element(self.dtype(*a)?)?)
            }
            Op::Check { index, size, wrap, guard, message } => {
                self.needs.flag = true;
                let flag = if self.faults { "fault" } else { "flag" };
                let check = format!("check<{wrap}>({flag}, r{index}, {}, {message})", self.indexer.wide(size));
                match guard {
                    None => check,
                    Some(guard) => format!("r{guard} ? {check} : 0ll"),
                }
            }
            Op::Random { draw, index, word } => {
                self.needs.random = true;
                format!("random_word<{}>(random, {draw}u, {})", word & 3, self.indexer.wide(index))
            }
        })
    }

    fn unary(&mut self, register: Reg, op: Unary, a: Reg, dtype: DType) -> Result<String> {
        self.needs.special |= is_special(op.name());
        let value = match op {
            Unary::Neg if dtype.is_float() => return Ok(format!("-r{a}")),
            Unary::Not => return Ok(format!("!r{a}")),
            op => format!("op_{}(r{a})", op.name()),
        };
        self.rounded(register, dtype, value)
    }

    fn binary(&mut self, register: Reg, op: Binary, a: Reg, b: Reg, dtype: DType) -> Result<String> {
        self.needs.special |= is_special(op.name());
        let of = self.dtype(a)?;
        if let Some(local) = divisor(self.stage, &Op::Binary(op, a, b)) {
            let how = if registers::only_rounded(self.stage, register) { "roughly" } else { "divide" };
            return self.rounded(register, dtype, format!("divisor{local}.{how}(r{a})"));
        }
        if let Some(x) = registers::gelu(self.stage, register) {
            let short = registers::only_rounded(self.stage, register);
            return Ok(format!("gelu<{short}>(r{x})"));
        }
        let sign = match op {
            Binary::Add if of.is_float() => Some("+"),
            Binary::Sub if of.is_float() => Some("-"),
            Binary::Mul if of.is_float() => Some("*"),
            Binary::Div => Some("/"),
            Binary::Eq => Some("=="),
            Binary::Ne => Some("!="),
            Binary::Lt => Some("<"),
            Binary::Le => Some("<="),
            Binary::Gt => Some(">"),
            Binary::Ge => Some(">="),
            _ => None,
        };
        let value = match (sign, op) {
            (Some(sign), _) => format!("r{a} {sign} r{b}"),
            (None, Binary::Nextafter) if matches!(of, DType::F16 | DType::BF16) => {
                return Ok(format!("next_after_16<{}>(r{a}, r{b})", names::element(of)?));
            }
            (None, op) => format!("op_{}(r{a}, r{b})", op.name()),
        };
        self.rounded(register, dtype, value)
    }

    pub fn parenthesised(&self, index: &Expr) -> String {
        let text = self.indexer.write(index);
        if text.contains(' ') { format!("({text})") } else { text }
    }

    /// The effects on memory and accumulators, but for scans.
    pub fn effects(&mut self, vectors: &Vectors, acting: Acting) -> Result<()> {
        for (number, effect) in self.stage.effects.iter().enumerate() {
            match effect {
                Effect::Store { param, index, value, guard } => match vectors.store(number) {
                    Some(vector) => self.out.line(format!("{vector}[k] = r{value};")),
                    None => {
                        let store = match self.param(*param)? {
                            DType::BF16 => format!("store_as<{}>", self.rounding(*param, *value)?.name()),
                            _ => "store".to_owned(),
                        };
                        let line = format!("{store}(a{param} + {}, r{value});", self.parenthesised(index));
                        self.act(*guard, acting, line);
                    }
                },
                Effect::Update { index, value, guard, .. } if acting == Acting::Noted => {
                    let k = if vectors.points() > 1 { "k" } else { "0" };
                    let at = self.indexer.write(index);
                    let at = guard.map_or(at.clone(), |guard| format!("r{guard} ? {at} : -1"));
                    self.out.line(format!("place[{k}] = {at};"));
                    self.out.line(format!("value[{k}] = r{value};"));
                }
                Effect::Update { op, param, index, value, guard } => {
                    let at = self.parenthesised(index);
                    let line = match op {
                        None => format!("store(a{param} + {at}, r{value});"),
                        Some(op) => {
                            let op = names::one_by_one(*op, self.param(*param)?)?;
                            let update = if acting == Acting::Atomic { "atomic_update" } else { "update" };
                            format!("{update}<{op}>(a{param} + {at}, r{value});")
                        }
                    };
                    self.act(*guard, acting, line);
                }
                Effect::Reduce { op, value, local } => {
                    self.out.line(match self.few(vectors, *op, *value)? {
                        Some(_) => format!("few{local} += r{value};"),
                        None => format!("Reduce{local}::take(sum{local}, r{value});"),
                    });
                    if self.moments.contains(local) {
                        self.out.line(match vectors.points() {
                            1 => format!("Moments{local}::take(near{local}, r{value});"),
                            _ => format!("each{local}[k] = r{value};"),
                        });
                    }
                }
                Effect::ArgReduce { value, position, local, .. } => {
                    let extreme =
                        format!("Extreme<{}>{{r{value}, r{position}}}", names::register(self.dtype(*value)?)?);
                    self.out.line(format!("Reduce{local}::join(sum{local}, {extreme});"));
                }
                Effect::Assert { .. } | Effect::Scan { .. } | Effect::ArgScan { .. } => self.other_effect(effect),
            }
        }
        Ok(())
    }

    /// An effect that changes nothing but the error flag; the others are written elsewhere.
    pub fn other_effect(&mut self, effect: &Effect) {
        if let Effect::Assert { value, message } = effect {
            self.needs.flag = true;
            self.out.line(format!("if (!r{value}) raise(flag, 2, {message}, 0, 0);"));
        }
    }

    /// Learns what the instructions say of their values, before they are written.
    pub fn note_ranges(&mut self) {
        let stage = self.stage;
        stage.body.iter().enumerate().for_each(|(number, inst)| self.note_range(number as Reg, &inst.op));
    }

    /// The type in which the points of a vector are added up before the sum, which is exact and slow, takes them: of sums of floats.
    fn few(&self, vectors: &Vectors, op: Combine, value: Reg) -> Result<Option<&'static str>> {
        let dtype = self.dtype(value)?;
        Ok(if vectors.points() > 1 && op == Combine::Sum && dtype.is_float() {
            Some(names::register(dtype)?)
        } else {
            None
        })
    }

    /// Statements around the `count` points of a vector for its sums: before, and (`after`) behind them.
    pub fn sums(&mut self, vectors: &Vectors, after: bool, count: &str) -> Result<()> {
        for effect in &self.stage.effects {
            let Effect::Reduce { op, value, local } = effect else { continue };
            if self.moments.contains(local) {
                let register = names::register(self.dtype(*value)?)?;
                self.out.line(match after {
                    false => format!("{register} each{local}[{}] = {{}};", vectors.points()),
                    true => format!("Moments{local}::take(near{local}, each{local}, {count});"),
                });
            }
            if let Some(register) = self.few(vectors, *op, *value)? {
                self.out.line(match after {
                    false => format!("{register} few{local} = 0;"),
                    true => format!("Reduce{local}::take(sum{local}, few{local});"),
                });
            }
        }
        Ok(())
    }

    fn act(&mut self, guard: Option<Reg>, acting: Acting, line: String) {
        let mut conditions: Vec<String> = guard.iter().map(|g| format!("r{g}")).collect();
        match acting {
            Acting::All | Acting::Atomic | Acting::Noted => {}
            Acting::First => conditions.push("Lanes::lane() == 0".to_owned()),
            Acting::FirstOfAll => conditions.push("part == 0 && Lanes::lane() == 0".to_owned()),
            Acting::Nobody => return,
        }
        self.out.line(match conditions.as_slice() {
            [] => line,
            conditions => format!("if ({}) {line}", conditions.join(" && ")),
        });
    }
}

/// The local that an instruction divides every point of a stage's inner loops by, in float32.
pub(super) fn divisor(stage: &Stage, op: &Op) -> Option<u32> {
    let Op::Binary(Binary::Div, _, by) = op else { return None };
    let by = stage.body.get(*by as usize)?;
    let float = matches!(by.dtype, DType::F32 | DType::F16 | DType::BF16);
    match by.op {
        Op::Local(local) if float && !stage.inner.is_empty() => Some(local),
        _ => None,
    }
}

/// Whether an operation is one of `special.cuh`.
pub(super) fn is_special(name: &str) -> bool {
    const ORDINARY: [&str; 2] = ["erf", "erfc"];
    let function = douse_core::math::find(name).map(|row| row.function);
    let special = match function {
        Some(douse_core::math::Function::Unary(_)) => !matches!(name, "round" | "sign" | "frac"),
        Some(douse_core::math::Function::Binary(_)) => {
            matches!(name, "igamma" | "igammac" | "zeta" | "polygamma")
        }
        Some(douse_core::math::Function::Degree(_)) => true,
        None => false,
    };
    special && !ORDINARY.contains(&name)
}
