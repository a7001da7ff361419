//! The text form of a module, written. [`crate::parse`] reads it and states the grammar.

use std::fmt::{self, Write};

use douse_core::Scalar;
use douse_core::bytes::Bytes;
use douse_core::sym::Expr;
use douse_program::plan::{Fixed, SymbolInfo, SymbolSource};

use crate::build::shape_text;
use crate::graph::{Block, InputKind, Module, Node, OutputKind, Value, WriteTarget};
use crate::op::Op;

/// Data of more bytes than this is not written, only its length and a hash.
const INLINE: usize = 256;

/// Bytes from the beginning of large data that its hash covers.
const HASHED: usize = 1 << 16;

impl fmt::Display for Module {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "method {}", Quoted(&self.name))?;
        for (i, symbol) in self.symbols.iter().enumerate() {
            writeln!(f, "symbol s{i} {}", symbol_text(symbol))?;
        }
        for (i, input) in self.inputs.iter().enumerate() {
            write!(f, "input {i} {} ", Quoted(&input.name))?;
            match &input.kind {
                InputKind::Tensor { dtype, sizes, strides } => {
                    writeln!(f, "{dtype}{} strides {}", shape_text(sizes), shape_text(strides))?;
                }
                InputKind::Int => writeln!(f, "int")?,
                InputKind::Number(dtype) => writeln!(f, "number {dtype}")?,
                InputKind::Fixed(fixed) => writeln!(f, "fixed {}", fixed_text(fixed))?,
            }
        }
        for (i, state) in self.states.iter().enumerate() {
            let (name, data) = (Quoted(&state.name), data_text(&state.initial));
            writeln!(f, "state {i} {name} {}{} {data}", state.dtype, shape_text(&state.sizes))?;
        }
        for (i, constant) in self.constants.iter().enumerate() {
            writeln!(f, "constant {i} {} {}", Quoted(&constant.name), data_text(&constant.bytes))?;
        }
        for (i, message) in self.messages.iter().enumerate() {
            writeln!(f, "message {i} {}", Quoted(message))?;
        }
        if self.draws > 0 {
            writeln!(f, "draws {}", self.draws)?;
        }
        for (name, spec) in [("in_spec", &self.in_spec), ("out_spec", &self.out_spec)] {
            if let Some(spec) = spec {
                writeln!(f, "{name} {}", Quoted(spec))?;
            }
        }
        writeln!(f, "body")?;
        block(f, self, &self.body, 1)?;
        writeln!(f, "end")?;
        for output in &self.outputs {
            write!(f, "output {} ", Quoted(&output.name))?;
            match &output.kind {
                OutputKind::Tensor { value, dtype, strides } => {
                    writeln!(f, "tensor {value} {dtype} strides {}", shape_text(strides))?;
                }
                OutputKind::Int(expr) => writeln!(f, "int ({expr})")?,
                OutputKind::Bool(cond) => writeln!(f, "bool ({cond})")?,
                OutputKind::Number(value) => writeln!(f, "number {value}")?,
                OutputKind::Fixed(fixed) => writeln!(f, "fixed {}", fixed_text(fixed))?,
            }
        }
        for write in &self.writes {
            let (kind, n) = match write.target {
                WriteTarget::State(n) => ("state", n),
                WriteTarget::Input(n) => ("input", n),
            };
            writeln!(f, "write {kind} {n} {}", write.value)?;
        }
        Ok(())
    }
}

fn block(f: &mut fmt::Formatter<'_>, module: &Module, of: &Block, depth: usize) -> fmt::Result {
    for id in &of.nodes {
        let Some(node) = module.graph.nodes.get(id.0 as usize) else { continue };
        write!(f, "{:1$}{2}", "", 2 * depth, node_text(module, node))?;
        if let Some(origin) = module.origin(node.origin) {
            let line = origin.line.as_deref().unwrap_or_default().replace(['\n', '\r'], " ");
            write!(f, "  // {} {line}", origin.node.replace(['\n', '\r'], " "))?;
        }
        writeln!(f)?;
        for (name, inner) in block_names(&node.op).iter().zip(node.op.blocks()) {
            write!(f, "{:1$}{name}", "", 2 * depth + 2)?;
            for param in &inner.params {
                write!(f, " {}", typed(module, *param))?;
            }
            writeln!(f)?;
            block(f, module, inner, depth + 2)?;
            write!(f, "{:1$}yield", "", 2 * depth + 4)?;
            for result in &inner.results {
                write!(f, " {result}")?;
            }
            writeln!(f)?;
        }
    }
    Ok(())
}

/// The words before an operation's blocks.
pub(crate) fn block_names(op: &Op) -> &'static [&'static str] {
    match op {
        Op::If { .. } | Op::IfCond { .. } => &["then", "else"],
        Op::While { .. } => &["test", "body"],
        _ => &[],
    }
}

/// `%3: float32[2, s0]`.
fn typed(module: &Module, value: Value) -> String {
    match module.graph.values.get(value.0 as usize) {
        Some(info) => format!("{value}: {}{}", info.dtype, shape_text(&info.shape)),
        None => format!("{value}: ?"),
    }
}

/// One node without its blocks: `%3: float32[2] = add %1 %2`.
pub fn node_text(module: &Module, node: &Node) -> String {
    let results: Vec<String> = node.results.iter().map(|v| typed(module, *v)).collect();
    let mut text = results.join(", ");
    if !results.is_empty() {
        text += " = ";
    }
    text += node.op.name();
    for operand in &node.operands {
        // Writing to a string cannot fail.
        let _ = write!(text, " {operand}");
    }
    text + &attributes(&node.op)
}

fn flag(set: bool, name: &str) -> String {
    if set { format!(" {name}") } else { String::new() }
}

fn extreme(max: bool) -> &'static str {
    if max { "max" } else { "min" }
}

fn map_text(map: &[Expr]) -> String {
    format!(" map {}", shape_text(map))
}

/// What follows the operands.
fn attributes(op: &Op) -> String {
    match op {
        Op::Input(n) | Op::State(n) | Op::Constant(n) => format!(" {n}"),
        Op::Full(scalar) => format!(" {}", scalar_text(*scalar)),
        Op::Iota(expr) => format!(" ({expr})"),
        Op::Random { draw, word } => format!(" draw {draw} word {word}"),
        Op::Check { size, wrap, message } => format!(" size ({size}){} message {message}", flag(*wrap, "wrap")),
        Op::Move { map, guard, fill } => {
            let guard = match guard.as_bool() {
                Some(true) => String::new(),
                _ => format!(" guard ({guard})"),
            };
            // A fill that nothing can see is the builder's 0.
            let fill = match fill {
                Scalar::Int(0) if guard.is_empty() => String::new(),
                _ => format!(" fill {}", scalar_text(*fill)),
            };
            format!("{}{guard}{fill}", map_text(map))
        }
        Op::Concat { dim } => format!(" dim {dim}"),
        Op::Scatter { map, combine } => {
            let combine = combine.map(|op| format!(" combine {op}")).unwrap_or_default();
            format!("{}{combine}", map_text(map))
        }
        Op::Reduce { op, dims } => format!(" by {op} dims {dims:?}"),
        Op::ArgReduce { max, dims } => format!(" by {} dims {dims:?}", extreme(*max)),
        Op::Scan { op, dim } => format!(" by {op} dim {dim}"),
        Op::ArgScan { max, dim } => format!(" by {} dim {dim}", extreme(*max)),
        Op::Convolution(c) => format!(
            " stride {:?} padding {} padding_end {} dilation {:?} groups {}{} output_padding {:?}",
            c.stride,
            shape_text(&c.padding),
            shape_text(&c.padding_end),
            c.dilation,
            c.groups,
            flag(c.transposed, "transposed"),
            c.output_padding
        ),
        Op::Attention { scale, causal } => {
            format!(" scale {}{}", scalar_text(Scalar::Float(*scale)), flag(*causal, "causal"))
        }
        Op::VarlenAttention { scale, window } => {
            format!(" scale {} window [{}, {}]", scalar_text(Scalar::Float(*scale)), window.0, window.1)
        }
        Op::Sort { descending } => flag(*descending, "descending"),
        Op::TopK { k, largest } => format!(" k ({k}){}", flag(*largest, "largest")),
        Op::SearchSorted { right } => flag(*right, "right"),
        Op::Linalg(kind) => format!(" kind {}", format!("{kind:?}").to_lowercase()),
        Op::SegmentReduce { op, mean, initial } => {
            let initial = initial.map(|f| format!(" initial {}", scalar_text(Scalar::Float(f)))).unwrap_or_default();
            format!(" by {op}{}{initial}", flag(*mean, "mean"))
        }
        Op::Nonzero { symbol } | Op::Item { symbol } => format!(" defines s{symbol}"),
        Op::Assert { message } => format!(" message {message}"),
        Op::Require { cond, message } => format!(" ({cond}) message {message}"),
        Op::IfCond { cond, .. } => format!(" ({cond})"),
        Op::Unary(_) | Op::Binary(_) | Op::Select | Op::Cast | Op::Bitcast | Op::MatMul => String::new(),
        Op::If { .. } | Op::While { .. } => String::new(),
    }
}

fn symbol_text(symbol: &SymbolInfo) -> String {
    let mut text = Quoted(&symbol.name).to_string();
    if let Some(min) = symbol.min {
        text += &format!(" min {min}");
    }
    if let Some(max) = symbol.max {
        text += &format!(" max {max}");
    }
    if let Some(bound) = &symbol.bound {
        text += &format!(" bound ({bound})");
    }
    text += &match symbol.source {
        SymbolSource::Size { input, dim, scale, offset } => {
            format!(" size input {input} dim {dim} scale {scale} offset {offset}")
        }
        SymbolSource::Int { input } => format!(" int input {input}"),
        SymbolSource::Step => " step".to_string(),
    };
    text
}

fn fixed_text(fixed: &Fixed) -> String {
    match fixed {
        Fixed::None => "none".to_string(),
        Fixed::Scalar(scalar) => scalar_text(*scalar),
        Fixed::Str(text) => Quoted(text).to_string(),
    }
}

/// A scalar whose text gives back its bits.
fn scalar_text(scalar: Scalar) -> String {
    let float = |f: f64| match f.is_nan() && f.to_bits() != f64::NAN.to_bits() {
        true => format!("NaN:{:#x}", f.to_bits()),
        false => format!("{f:?}"),
    };
    match scalar {
        Scalar::Bool(_) | Scalar::Int(_) => scalar.to_string(),
        Scalar::Float(f) => float(f),
        Scalar::Complex(re, im) => format!("({}, {})", float(re), float(im)),
    }
}

/// `zeros 4096`, `hex 00ff`, or `4096 bytes hash ...`, which cannot be read back.
fn data_text(bytes: &Bytes) -> String {
    if bytes.len() <= INLINE && bytes.iter().any(|b| *b != 0) {
        return bytes.iter().fold("hex ".to_string(), |text, b| text + &format!("{b:02x}"));
    }
    if bytes.iter().all(|b| *b == 0) {
        return format!("zeros {}", bytes.len());
    }
    // FNV-1a, 64 bits.
    let hash = bytes
        .iter()
        .take(HASHED)
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, b| (hash ^ u64::from(*b)).wrapping_mul(0x0000_0100_0000_01b3));
    format!("{} bytes hash {hash:016x}", bytes.len())
}

/// A string in quotes, on one line.
struct Quoted<'a>(&'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for c in self.0.chars() {
            match c {
                '"' | '\\' => write!(f, "\\{c}")?,
                '\n' => f.write_str("\\n")?,
                c if c.is_control() => write!(f, "\\u{{{:x}}}", u32::from(c))?,
                c => f.write_char(c)?,
            }
        }
        f.write_char('"')
    }
}
