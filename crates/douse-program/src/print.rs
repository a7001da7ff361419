//! The text form of kernels and plans, for people: `explain`, dumps and tests.

use std::fmt::{self, Display, Formatter};

use douse_core::DType;
use douse_core::sym::Expr;

use crate::kernel::{Access, Effect, Inst, Kernel, Op, Reg, Stage};
use crate::library::{Library, View};
use crate::plan::{Buffer, BufferKind, Data, Fixed, InputKind, OutputKind, Plan, Predicate, Step, SymbolSource};

/// `f32`, `bool`.
struct Short(DType);

impl Display for Short {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&format!("{:?}", self.0).to_lowercase())
    }
}

/// `[2, s0]`.
struct List<'a, T>(&'a [T]);

impl<T: Display> Display for List<'_, T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (i, item) in self.0.iter().enumerate() {
            write!(f, "{}{item}", if i > 0 { ", " } else { "" })?;
        }
        f.write_str("]")
    }
}

/// ` if r3`, where there is a guard.
struct Guard(Option<Reg>);

impl Display for Guard {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |reg| write!(f, " if r{reg}"))
    }
}

impl Display for Kernel {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for line in &self.comment {
            writeln!(f, "// {line}")?;
        }
        write!(f, "kernel {}(", self.name)?;
        for (i, param) in self.params.iter().enumerate() {
            let access = match param.access {
                Access::Read => "read",
                Access::Write => "write",
                Access::Update => "update",
            };
            write!(f, "{}{access} {} a{i}", if i > 0 { ", " } else { "" }, Short(param.dtype))?;
        }
        write!(f, ")")?;
        if !self.outer.is_empty() {
            write!(f, " outer {}", List(&self.outer))?;
        }
        if !self.locals.is_empty() {
            let locals: Vec<Short> = self.locals.iter().map(|d| Short(*d)).collect();
            write!(f, " locals {}", List(&locals))?;
        }
        writeln!(f, "{} {{", if self.ordered { " ordered" } else { "" })?;
        self.stages.iter().try_for_each(|stage| stage.fmt(f))?;
        writeln!(f, "}}")
    }
}

impl Display for Stage {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("  stage")?;
        if !self.inner.is_empty() {
            write!(f, " inner {}", List(&self.inner))?;
        }
        writeln!(f, " {{")?;
        for (i, inst) in self.body.iter().enumerate() {
            writeln!(f, "    r{i} = {inst}")?;
        }
        for effect in &self.effects {
            writeln!(f, "    {effect}")?;
        }
        writeln!(f, "  }}")
    }
}

impl Display for Inst {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match &self.op {
            Op::Const(value) => write!(f, "const {value}")?,
            Op::Index(index) => write!(f, "index {index}")?,
            Op::Load { param, index, guard } => write!(f, "load a{param}[{index}]{}", Guard(*guard))?,
            Op::Local(local) => write!(f, "local l{local}")?,
            Op::Unary(op, a) => write!(f, "{op} r{a}")?,
            Op::Binary(op, a, b) => write!(f, "{op} r{a}, r{b}")?,
            Op::Select(cond, a, b) => write!(f, "select r{cond}, r{a}, r{b}")?,
            Op::Cast(a) => write!(f, "cast r{a}")?,
            Op::Bitcast(a) => write!(f, "bitcast r{a}")?,
            Op::Check { index, size, wrap, guard, message } => {
                let wrap = if *wrap { " wrap" } else { "" };
                write!(f, "check r{index} < {size}{wrap}{} else m{message}", Guard(*guard))?;
            }
            Op::Random { draw, index, word } => write!(f, "random {draw}[{index}].{word}")?,
        }
        write!(f, " : {}", Short(self.dtype))
    }
}

impl Display for Effect {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let extreme = |max: &bool| if *max { "argmax" } else { "argmin" };
        match self {
            Effect::Store { param, index, value, guard } => {
                write!(f, "store r{value} -> a{param}[{index}]{}", Guard(*guard))
            }
            Effect::Reduce { op, value, local } => write!(f, "reduce {op} r{value} -> l{local}"),
            Effect::ArgReduce { max, value, position, local, local_position } => {
                write!(f, "reduce {} r{value} at r{position} -> l{local}, l{local_position}", extreme(max))
            }
            Effect::Scan { op, value, param, index } => write!(f, "scan {op} r{value} -> a{param}[{index}]"),
            Effect::ArgScan { max, value, position, param, param_position, index } => {
                let op = extreme(max);
                write!(f, "scan {op} r{value} at r{position} -> a{param}[{index}], a{param_position}[{index}]")
            }
            Effect::Update { op, param, index, value, guard } => {
                let op = op.map_or("set", |op| op.name());
                write!(f, "update {op} r{value} -> a{param}[{index}]{}", Guard(*guard))
            }
            Effect::Assert { value, message } => write!(f, "assert r{value} else m{message}"),
        }
    }
}

impl Display for View {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "b{}", self.buffer)?;
        if !self.offset.is_int(0) {
            write!(f, "+{}", self.offset)?;
        }
        write!(f, "{} strides {}", List(&self.sizes), List(&self.strides))
    }
}

impl Display for Library {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Library::MatMul { a, b, out } => write!(f, "matmul {a}, {b} -> {out}"),
            Library::Convolution(c) => {
                let kind = if c.transposed { "transposed_convolution" } else { "convolution" };
                write!(f, "{kind} {}, {}", c.input, c.weight)?;
                if let Some(bias) = &c.bias {
                    write!(f, ", bias {bias}")?;
                }
                let (stride, padding) = (List(&c.stride), List(&c.padding));
                write!(f, " stride {stride} padding {padding} dilation {}", List(&c.dilation))?;
                write!(f, " groups {} -> {}", c.groups, c.out)
            }
            Library::Attention(a) => {
                write!(f, "attention {}, {}, {}", a.query, a.key, a.value)?;
                if let Some(mask) = &a.mask {
                    write!(f, ", mask {mask}")?;
                }
                write!(f, " scale {}{} -> {}", a.scale, if a.causal { " causal" } else { "" }, a.out)
            }
            Library::Sort { input, values, indices, descending } => {
                write!(f, "sort{} {input} -> {values}, {indices}", if *descending { " descending" } else { "" })
            }
            Library::TopK { input, values, indices, largest } => {
                write!(f, "topk {} {input} -> {values}, {indices}", if *largest { "largest" } else { "smallest" })
            }
            Library::Nonzero { mask, out, symbol } => write!(f, "nonzero {mask} -> {out}, s{symbol}"),
            Library::SearchSorted { sorted, values, out, right } => {
                write!(f, "searchsorted{} {sorted}, {values} -> {out}", if *right { " right" } else { "" })
            }
            Library::Linalg { kind, inputs, outputs } => {
                write!(f, "linalg {kind:?} {} -> {}", List(inputs), List(outputs))
            }
            Library::VarlenAttention(a) => {
                write!(f, "varlen_attention {}, {}, {}, {}, {}", a.query, a.key, a.value, a.cu_seq_q, a.cu_seq_k)?;
                write!(f, " scale {} window {:?} -> {}", a.scale, a.window, a.out)
            }
            Library::SegmentReduce { op, src, offsets, out, initial, mean } => {
                write!(f, "segment_reduce {} {src}, {offsets}", if *mean { "mean" } else { op.name() })?;
                if let Some(initial) = initial {
                    write!(f, " initial {initial}")?;
                }
                write!(f, " -> {out}")
            }
        }
    }
}

impl Display for Data {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            // Enough of a hash to tell weights apart.
            Data::Named(key) => write!(f, "data {}", key.get(..12).unwrap_or(key)),
            Data::Inline(bytes) => write!(f, "{} bytes inline", bytes.len()),
            Data::Zeros(bytes) => write!(f, "{bytes} zero bytes"),
        }
    }
}

impl Display for Buffer {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}] ", Short(self.dtype), self.elements)?;
        match &self.kind {
            BufferKind::Input(n) => write!(f, "input {n}"),
            BufferKind::Output(n) => write!(f, "output {n}"),
            BufferKind::State { name, initial } => write!(f, "state {name} from {initial}"),
            BufferKind::Constant(data) => write!(f, "constant {data}"),
            BufferKind::Temporary => write!(f, "temporary"),
        }
    }
}

impl Display for Fixed {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Fixed::None => f.write_str("None"),
            Fixed::Scalar(value) => write!(f, "{value}"),
            Fixed::Str(text) => write!(f, "{text:?}"),
        }
    }
}

fn tensor(f: &mut Formatter<'_>, dtype: DType, sizes: &[Expr], strides: &[Expr], buffer: u32) -> fmt::Result {
    write!(f, "{}{} strides {} in b{buffer}", Short(dtype), List(sizes), List(strides))
}

impl Display for InputKind {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            InputKind::Tensor { dtype, sizes, strides, buffer, written } => {
                tensor(f, *dtype, sizes, strides, *buffer)?;
                f.write_str(if *written { ", written" } else { "" })
            }
            InputKind::Int => f.write_str("int"),
            InputKind::Number { dtype, buffer } => write!(f, "{} number in b{buffer}", Short(*dtype)),
            InputKind::Fixed(value) => write!(f, "always {value}"),
        }
    }
}

impl Display for OutputKind {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            OutputKind::Tensor { dtype, sizes, strides, buffer } => tensor(f, *dtype, sizes, strides, *buffer),
            OutputKind::Int(value) => write!(f, "int {value}"),
            OutputKind::Bool(value) => write!(f, "bool {value}"),
            OutputKind::Number { dtype, buffer } => write!(f, "{} number in b{buffer}", Short(*dtype)),
            OutputKind::Fixed(value) => write!(f, "always {value}"),
        }
    }
}

impl Display for Predicate {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Predicate::Cond(cond) => cond.fmt(f),
            Predicate::Buffer(id) => write!(f, "b{id}"),
        }
    }
}

fn write_steps(f: &mut Formatter<'_>, plan: &Plan, steps: &[Step], depth: usize) -> fmt::Result {
    let pad = "  ".repeat(depth);
    for step in steps {
        f.write_str(&pad)?;
        match step {
            Step::Kernel { kernel, args } => {
                let name = plan.kernels.get(*kernel as usize).map_or("?", |k| k.name.as_str());
                let args: Vec<String> = args.iter().map(|a| format!("b{a}")).collect();
                writeln!(f, "{name}({})", args.join(", "))?;
            }
            Step::Library(library) => writeln!(f, "{library}")?,
            Step::Fused { library, kernel, args } => {
                let name = plan.kernels.get(*kernel as usize).map_or("?", |k| k.name.as_str());
                let args: Vec<String> = args.iter().map(|a| format!("b{a}")).collect();
                writeln!(f, "{library} then {name}({})", args.join(", "))?;
            }
            Step::Together(steps) => {
                writeln!(f, "together {{")?;
                write_steps(f, plan, steps, depth + 1)?;
                writeln!(f, "{pad}}}")?;
            }
            Step::Copy { from, to } => writeln!(f, "copy b{from} -> b{to}")?,
            Step::Read { buffer, symbol } => writeln!(f, "read b{buffer} -> s{symbol}")?,
            Step::Set { symbol, value } => writeln!(f, "s{symbol} = {value}")?,
            Step::Require { cond, message } => writeln!(f, "require {cond} else m{message}")?,
            Step::If { predicate, then, otherwise } => {
                writeln!(f, "if {predicate} {{")?;
                write_steps(f, plan, then, depth + 1)?;
                if !otherwise.is_empty() {
                    writeln!(f, "{pad}}} else {{")?;
                    write_steps(f, plan, otherwise, depth + 1)?;
                }
                writeln!(f, "{pad}}}")?;
            }
            Step::While { test, predicate, body } => {
                writeln!(f, "while {{")?;
                write_steps(f, plan, test, depth + 1)?;
                writeln!(f, "{pad}}} {predicate} {{")?;
                write_steps(f, plan, body, depth + 1)?;
                writeln!(f, "{pad}}}")?;
            }
        }
    }
    Ok(())
}

impl Display for Plan {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "method {}", self.name)?;
        for (i, symbol) in self.symbols.iter().enumerate() {
            write!(f, "  s{i} = {}", symbol.name)?;
            match symbol.source {
                SymbolSource::Size { input, dim, scale, offset } => {
                    write!(f, ", size {dim} of input {input} is ")?;
                    write!(f, "{}", &Expr::symbol(douse_core::sym::Symbol::Size(i as u32)) * scale + offset)?;
                }
                SymbolSource::Int { input } => write!(f, ", input {input}")?,
                SymbolSource::Step => write!(f, ", from data")?,
            }
            let end = |end: Option<i64>| end.map_or("..".to_owned(), |end| end.to_string());
            write!(f, ", from {} to {}", end(symbol.min), end(symbol.max))?;
            match &symbol.bound {
                Some(bound) => writeln!(f, ", at most {bound}")?,
                None => writeln!(f)?,
            }
        }
        for input in &self.inputs {
            writeln!(f, "  input {}: {}", input.name, input.kind)?;
        }
        for output in &self.outputs {
            writeln!(f, "  output {}: {}", output.name, output.kind)?;
        }
        for (i, buffer) in self.buffers.iter().enumerate() {
            writeln!(f, "  b{i}: {buffer}")?;
        }
        for (i, message) in self.messages.iter().enumerate() {
            writeln!(f, "  m{i}: {message:?}")?;
        }
        writeln!(f, "steps")?;
        write_steps(f, self, &self.steps, 1)?;
        for kernel in &self.kernels {
            write!(f, "\n{kernel}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::sample;

    #[test]
    fn a_plan_as_text() {
        let expected = "\
method forward
  s0 = s77, size 0 of input 0 is s0, from 0 to 100
  s1 = u0, from data, from .. to .., at most s0
  input x: f32[s0] strides [1] in b0
  output y: f32[s0] strides [1] in b1
  output n: int s1
  b0: f32[s0] input 0
  b1: f32[s0] output 0
  b2: f32[1] constant 4 bytes inline
  b3: i64[1] state count from 8 zero bytes
  b4: bool[s0] temporary
  b5: i64[s0] temporary
  m0: \"too many\"
steps
  if true {
    sum_add(b0, b2, b1, b3)
  }
  nonzero b4[s0] strides [s0] -> b5[s0, 1] strides [s0, 1], s1
  require s1 <= s0 else m0

// add
kernel sum_add(read f32 a0, read f32 a1, write f32 a2, update i64 a3) outer [1] locals [f32] {
  stage inner [s0] {
    r0 = load a0[i1] : f32
    reduce sum r0 -> l0
  }
  stage inner [s0] {
    r0 = load a0[i1] : f32
    r1 = load a1[0] : f32
    r2 = add r0, r1 : f32
    r3 = local l0 : f32
    r4 = add r2, r3 : f32
    r5 = isnan r4 : bool
    r6 = cast r5 : i64
    store r4 -> a2[i1] if r5
    update sum r6 -> a3[0]
  }
}
";
        assert_eq!(sample::plan().to_string(), expected);
    }
}
