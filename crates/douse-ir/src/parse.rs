//! The text form of a module, read.
//!
//! A text has one declaration or node a line; what follows `//` is for people, as are indents. Values keep their numbers.
//! ```text
//! method "forward"
//! symbol s0 "s77" min 2 max 64 size input 0 dim 0 scale 1 offset 0
//! input 0 "x" float32[s0, 4] strides [4, 1]
//! body
//!   %0: float32[s0, 4] = input 0
//!   %1: float32[4, s0] = move %0 map [i1, i0]
//!   %2: float32[6, s0] = move %1 map [i0 - 1, i1] guard (and(i0 >= 1, i0 < 5)) fill 0.0
//!   %3: bool[] = full true
//!   %4: float32[6, s0] = if %3
//!     then
//!       yield %2
//!     else
//!       %5: float32[6, s0] = neg %2
//!       yield %5
//! end
//! output "y" tensor %4 float32 strides [s0, 1]
//! write input 0 %0
//! ```
//! Origins and large data are not part of it. Reading checks the grammar; [`crate::verify`] checks what it says.

use std::str::FromStr;

use douse_core::bytes::Bytes;
use douse_core::pointwise::{Binary, Combine, Unary};
use douse_core::sym::Cond;
use douse_core::{DType, Error, Result, Scalar};
use douse_program::library::Linalg;
use douse_program::plan::{Fixed, SymbolInfo, SymbolSource};

use crate::cursor::Cursor;
use crate::graph::{
    Block, Constant, InputDecl, InputKind, Module, Node, NodeId, OriginId, OutputDecl, OutputKind, StateDecl, Value,
    ValueInfo, Write, WriteTarget,
};
use crate::op::{Convolution, Op};
use crate::print::block_names;
use crate::verify::DEPTH;

/// The largest number of a value, and the most zero bytes that a text can ask for.
const LIMIT: usize = 1 << 20;

impl FromStr for Module {
    type Err = Error;

    /// # Errors
    /// A text that is not of the form, with its line and column; data that the text does not hold.
    fn from_str(text: &str) -> Result<Module> {
        let mut parser = Parser { lines: text.lines().collect(), at: 0, zeros: 0, module: Module::default() };
        parser.module()?;
        Ok(parser.module)
    }
}

struct Parser<'a> {
    lines: Vec<&'a str>,
    at: usize,
    /// Zero bytes asked for so far.
    zeros: usize,
    module: Module,
}

impl<'a> Parser<'a> {
    /// The next line that says something.
    fn line(&mut self) -> Option<Cursor<'a>> {
        loop {
            let text = *self.lines.get(self.at)?;
            self.at += 1;
            if !Cursor::new(text, self.at).at_end() {
                return Some(Cursor::new(text, self.at));
            }
        }
    }

    fn expect_line(&mut self, what: &str) -> Result<Cursor<'a>> {
        match self.line() {
            Some(line) => Ok(line),
            None => Err(Error::invalid_program(format!("graph text: it ends where {what} was expected"))),
        }
    }

    fn module(&mut self) -> Result<()> {
        let mut line = self.expect_line("'method'")?;
        line.want_word("method")?;
        self.module.name = line.string()?;
        line.end()?;
        loop {
            let mut line = self.expect_line("'body'")?;
            match line.word() {
                "body" => {
                    line.end()?;
                    break;
                }
                "symbol" => self.symbol(&mut line)?,
                "input" => self.input(&mut line)?,
                "state" => self.state(&mut line)?,
                "constant" => {
                    line.ordinal(self.module.constants.len())?;
                    let (name, bytes) = (line.string()?, self.data(&mut line)?);
                    self.module.constants.push(Constant { name, bytes });
                }
                "message" => {
                    line.ordinal(self.module.messages.len())?;
                    self.module.messages.push(line.string()?);
                }
                "draws" => self.module.draws = line.number()?,
                "in_spec" => self.module.in_spec = Some(line.string()?),
                "out_spec" => self.module.out_spec = Some(line.string()?),
                word => return line.error(format!("'{word}' is not a declaration")),
            }
            line.end()?;
        }
        self.module.body = self.block(Vec::new(), "end", 0)?;
        while let Some(mut line) = self.line() {
            match line.word() {
                "output" => self.output(&mut line)?,
                "write" => {
                    let target = match line.word() {
                        "state" => WriteTarget::State(line.number()?),
                        "input" => WriteTarget::Input(line.number()?),
                        _ => return line.error("expected 'state' or 'input'"),
                    };
                    let value = line.value()?;
                    self.module.writes.push(Write { target, value });
                }
                word => return line.error(format!("'{word}' is neither 'output' nor 'write'")),
            }
            line.end()?;
        }
        Ok(())
    }

    fn symbol(&mut self, line: &mut Cursor<'a>) -> Result<()> {
        line.want("s")?;
        line.ordinal(self.module.symbols.len())?;
        let name = line.string()?;
        let min = if line.take_word("min") { Some(line.number()?) } else { None };
        let max = if line.take_word("max") { Some(line.number()?) } else { None };
        let bound = if line.take_word("bound") { Some(line.expr()?) } else { None };
        let source = match line.word() {
            "size" => {
                line.want_word("input")?;
                let input = line.number()?;
                line.want_word("dim")?;
                let dim = line.number()?;
                line.want_word("scale")?;
                let scale = line.number()?;
                line.want_word("offset")?;
                SymbolSource::Size { input, dim, scale, offset: line.number()? }
            }
            "int" => {
                line.want_word("input")?;
                SymbolSource::Int { input: line.number()? }
            }
            "step" => SymbolSource::Step,
            _ => return line.error("expected 'size', 'int' or 'step'"),
        };
        self.module.symbols.push(SymbolInfo { name, min, max, source, bound });
        Ok(())
    }

    fn input(&mut self, line: &mut Cursor<'a>) -> Result<()> {
        line.ordinal(self.module.inputs.len())?;
        let name = line.string()?;
        let kind = if line.take_word("int") {
            InputKind::Int
        } else if line.take_word("number") {
            InputKind::Number(line.dtype()?)
        } else if line.take_word("fixed") {
            InputKind::Fixed(fixed(line)?)
        } else {
            let (dtype, sizes) = (line.dtype()?, line.exprs()?);
            line.want_word("strides")?;
            InputKind::Tensor { dtype, sizes, strides: line.exprs()? }
        };
        self.module.inputs.push(InputDecl { name, kind });
        Ok(())
    }

    fn state(&mut self, line: &mut Cursor<'a>) -> Result<()> {
        line.ordinal(self.module.states.len())?;
        let (name, dtype, sizes) = (line.string()?, line.dtype()?, line.exprs()?);
        let initial = self.data(line)?;
        self.module.states.push(StateDecl { name, dtype, sizes, initial });
        Ok(())
    }

    fn data(&mut self, line: &mut Cursor<'a>) -> Result<Bytes> {
        if line.take_word("hex") {
            return Ok(Bytes::from(line.hex()?));
        }
        if line.take_word("zeros") {
            let count: usize = line.number()?;
            self.zeros = self.zeros.saturating_add(count);
            if self.zeros > LIMIT {
                return line.error(format!("more than {LIMIT} zero bytes"));
            }
            return Ok(Bytes::from(vec![0; count]));
        }
        line.error("the data is not in the text")
    }

    fn output(&mut self, line: &mut Cursor<'a>) -> Result<()> {
        let name = line.string()?;
        let kind = match line.word() {
            "tensor" => {
                let (value, dtype) = (line.value()?, line.dtype()?);
                line.want_word("strides")?;
                OutputKind::Tensor { value, dtype, strides: line.exprs()? }
            }
            "int" => OutputKind::Int(line.expr()?),
            "bool" => OutputKind::Bool(line.cond()?),
            "number" => OutputKind::Number(line.value()?),
            "fixed" => OutputKind::Fixed(fixed(line)?),
            _ => return line.error("expected 'tensor', 'int', 'bool', 'number' or 'fixed'"),
        };
        self.module.outputs.push(OutputDecl { name, kind });
        Ok(())
    }

    /// `%3: float32[2, s0]`.
    fn typed(&mut self, line: &mut Cursor<'a>) -> Result<Value> {
        let value = line.value()?;
        line.want(":")?;
        let info = ValueInfo { dtype: line.dtype()?, shape: line.exprs()? };
        let at = value.0 as usize;
        if at >= LIMIT {
            return line.error(format!("a value's number is not below {LIMIT}"));
        }
        let values = &mut self.module.graph.values;
        if at >= values.len() {
            // Numbers that the text leaves out belong to values that nothing defines.
            values.resize(at + 1, ValueInfo { dtype: DType::Bool, shape: Vec::new() });
        }
        values[at] = info;
        Ok(value)
    }

    /// Nodes up to a line that begins with `last`; for an inner block, what that line yields.
    fn block(&mut self, params: Vec<Value>, last: &str, depth: usize) -> Result<Block> {
        let mut block = Block { params, ..Block::default() };
        loop {
            let mut line = self.expect_line(last)?;
            if depth > DEPTH {
                return line.error("blocks are nested too deeply");
            }
            if line.take_word(last) {
                if depth > 0 {
                    block.results = line.values()?;
                }
                line.end()?;
                return Ok(block);
            }
            let node = self.node(&mut line, depth)?;
            block.has_effect |= node.op.has_effect();
            block.nodes.push(NodeId(self.module.graph.nodes.len() as u32));
            self.module.graph.nodes.push(node);
        }
    }

    fn node(&mut self, line: &mut Cursor<'a>, depth: usize) -> Result<Node> {
        let mut results = Vec::new();
        if line.is_value() {
            results.push(self.typed(line)?);
            while line.take(",") {
                results.push(self.typed(line)?);
            }
            line.want("=")?;
        }
        let name = line.word();
        let operands = line.values()?;
        let mut op = operation(name, line)?;
        line.end()?;
        let names = block_names(&op);
        let mut blocks = Vec::new();
        for name in names {
            let mut line = self.expect_line(name)?;
            line.want_word(name)?;
            let mut params = Vec::new();
            while line.is_value() {
                params.push(self.typed(&mut line)?);
            }
            line.end()?;
            blocks.push(self.block(params, "yield", depth + 1)?);
        }
        for (slot, block) in op.blocks_mut().into_iter().zip(blocks) {
            *slot = block;
        }
        Ok(Node { op, operands, results, origin: OriginId::default() })
    }
}

fn fixed(line: &mut Cursor<'_>) -> Result<Fixed> {
    if line.take_word("none") {
        return Ok(Fixed::None);
    }
    if line.is_string() {
        return line.string().map(Fixed::Str);
    }
    line.scalar().map(Fixed::Scalar)
}

fn extreme(line: &mut Cursor<'_>) -> Result<bool> {
    line.want_word("by")?;
    line.one_of("'max' or 'min'", |word| match word {
        "max" => Some(true),
        "min" => Some(false),
        _ => None,
    })
}

fn combine(line: &mut Cursor<'_>) -> Result<Combine> {
    line.one_of("a combination", Combine::from_name)
}

fn message(line: &mut Cursor<'_>) -> Result<u32> {
    line.want_word("message")?;
    line.number()
}

fn defines(line: &mut Cursor<'_>) -> Result<u32> {
    line.want_word("defines")?;
    line.size_symbol()
}

fn dim(line: &mut Cursor<'_>) -> Result<usize> {
    line.want_word("dim")?;
    line.number()
}

const LINALG: [Linalg; 9] = [
    Linalg::Det,
    Linalg::Slogdet,
    Linalg::Inverse,
    Linalg::Solve,
    Linalg::Cholesky,
    Linalg::Eigh,
    Linalg::Svd,
    Linalg::Qr,
    Linalg::MatrixExp,
];

/// The operation of that name with what follows the operands; its blocks are still empty.
fn operation(name: &str, line: &mut Cursor<'_>) -> Result<Op> {
    Ok(match name {
        "input" => Op::Input(line.number()?),
        "state" => Op::State(line.number()?),
        "constant" => Op::Constant(line.number()?),
        "full" => Op::Full(line.scalar()?),
        "iota" => Op::Iota(line.expr()?),
        "random" => {
            line.want_word("draw")?;
            let draw = line.number()?;
            line.want_word("word")?;
            Op::Random { draw, word: line.number()? }
        }
        "select" => Op::Select,
        "cast" => Op::Cast,
        "bitcast" => Op::Bitcast,
        "check" => {
            line.want_word("size")?;
            let (size, wrap) = (line.expr()?, line.take_word("wrap"));
            Op::Check { size, wrap, message: message(line)? }
        }
        "move" => {
            line.want_word("map")?;
            let map = line.exprs()?;
            let guard = if line.take_word("guard") { line.cond()? } else { Cond::Bool(true) };
            let fill = if line.take_word("fill") { line.scalar()? } else { Scalar::Int(0) };
            Op::Move { map, guard, fill }
        }
        "concat" => Op::Concat { dim: dim(line)? },
        "scatter" => {
            line.want_word("map")?;
            let map = line.exprs()?;
            let combine = if line.take_word("combine") { Some(combine(line)?) } else { None };
            Op::Scatter { map, combine }
        }
        "reduce" => {
            line.want_word("by")?;
            let op = combine(line)?;
            line.want_word("dims")?;
            Op::Reduce { op, dims: line.numbers()? }
        }
        "argreduce" => {
            let max = extreme(line)?;
            line.want_word("dims")?;
            Op::ArgReduce { max, dims: line.numbers()? }
        }
        "scan" => {
            line.want_word("by")?;
            Op::Scan { op: combine(line)?, dim: dim(line)? }
        }
        "argscan" => Op::ArgScan { max: extreme(line)?, dim: dim(line)? },
        "matmul" => Op::MatMul,
        "convolution" => Op::Convolution(Box::new(convolution(line)?)),
        "attention" => {
            line.want_word("scale")?;
            Op::Attention { scale: line.float()?, causal: line.take_word("causal") }
        }
        "varlen_attention" => {
            line.want_word("scale")?;
            let scale = line.float()?;
            line.want_word("window")?;
            match line.numbers()?.as_slice() {
                [before, after] => Op::VarlenAttention { scale, window: (*before, *after) },
                _ => return line.error("a window is two numbers"),
            }
        }
        "sort" => Op::Sort { descending: line.take_word("descending") },
        "topk" => {
            line.want_word("k")?;
            Op::TopK { k: line.expr()?, largest: line.take_word("largest") }
        }
        "searchsorted" => Op::SearchSorted { right: line.take_word("right") },
        "linalg" => {
            line.want_word("kind")?;
            let find = |word: &str| LINALG.into_iter().find(|k| format!("{k:?}").to_lowercase() == word);
            Op::Linalg(line.one_of("a kind of linear algebra", find)?)
        }
        "segment_reduce" => {
            line.want_word("by")?;
            let (op, mean) = (combine(line)?, line.take_word("mean"));
            let initial = if line.take_word("initial") { Some(line.float()?) } else { None };
            Op::SegmentReduce { op, mean, initial }
        }
        "nonzero" => Op::Nonzero { symbol: defines(line)? },
        "item" => Op::Item { symbol: defines(line)? },
        "assert" => Op::Assert { message: message(line)? },
        "require" => Op::Require { cond: line.cond()?, message: message(line)? },
        "if" => Op::If { then: Block::default(), otherwise: Block::default() },
        "if_cond" => Op::IfCond { cond: line.cond()?, then: Block::default(), otherwise: Block::default() },
        "while" => Op::While { test: Block::default(), body: Block::default() },
        name => match (Unary::from_name(name), Binary::from_name(name)) {
            (Some(op), _) => Op::Unary(op),
            (None, Some(op)) => Op::Binary(op),
            (None, None) => return line.error(format!("'{name}' is not an operation")),
        },
    })
}

fn convolution(line: &mut Cursor<'_>) -> Result<Convolution> {
    line.want_word("stride")?;
    let stride = line.numbers()?;
    line.want_word("padding")?;
    let padding = line.exprs()?;
    line.want_word("padding_end")?;
    let padding_end = line.exprs()?;
    line.want_word("dilation")?;
    let dilation = line.numbers()?;
    line.want_word("groups")?;
    let groups = line.number()?;
    let transposed = line.take_word("transposed");
    line.want_word("output_padding")?;
    let output_padding = line.numbers()?;
    Ok(Convolution { stride, padding, padding_end, dilation, groups, transposed, output_padding })
}
