//! The rule of each operation, worked out again from its operands: what the verifier holds a node's results against.

use douse_core::DType;
use douse_core::sym::{Cond, Expr, Symbol};
use douse_program::library::{Linalg, holds_products};

use crate::build::shape_text;
use crate::graph::{InputKind, Module, Node, ValueInfo};
use crate::op::{Convolution, Op};

/// The most operands an operation that takes a list may have.
const MANY: usize = usize::MAX;

/// (fewest operands, most operands, results); no number of results where the node's blocks decide it.
fn arity(op: &Op) -> (usize, usize, Option<usize>) {
    match op {
        Op::Input(_) | Op::State(_) | Op::Constant(_) | Op::Full(_) | Op::Iota(_) | Op::Random { .. } => {
            (0, 0, Some(1))
        }
        Op::Unary(_) | Op::Cast | Op::Bitcast | Op::Check { .. } => (1, 1, Some(1)),
        Op::Binary(_) | Op::MatMul | Op::SearchSorted { .. } | Op::SegmentReduce { .. } => (2, 2, Some(1)),
        Op::Select => (3, 3, Some(1)),
        Op::Move { .. } | Op::Concat { .. } => (1, MANY, Some(1)),
        Op::Scatter { .. } => (2, MANY, Some(1)),
        Op::Reduce { .. } | Op::Scan { .. } | Op::Nonzero { .. } => (1, 1, Some(1)),
        Op::ArgReduce { .. } | Op::ArgScan { .. } | Op::Sort { .. } | Op::TopK { .. } => (1, 1, Some(2)),
        Op::Convolution(_) => (2, 3, Some(1)),
        Op::Attention { .. } => (3, 4, Some(1)),
        Op::VarlenAttention { .. } => (5, 5, Some(1)),
        Op::Linalg(Linalg::Solve) => (2, 2, Some(1)),
        Op::Linalg(Linalg::Svd) => (1, 1, Some(3)),
        Op::Linalg(Linalg::Slogdet | Linalg::Eigh | Linalg::Qr) => (1, 1, Some(2)),
        Op::Linalg(_) => (1, 1, Some(1)),
        Op::Item { .. } | Op::Assert { .. } => (1, 1, Some(0)),
        Op::Require { .. } => (0, 0, Some(0)),
        Op::If { .. } => (1, 1, None),
        Op::IfCond { .. } => (0, 0, None),
        Op::While { .. } => (0, MANY, None),
    }
}

/// Whether two sizes may be equal. Import takes sizes that are not known to be equal as such where the call checks it.
pub(crate) fn compatible(a: &Expr, b: &Expr) -> bool {
    (a - b).as_int().is_none_or(|d| d == 0)
}

pub(crate) fn compatible_shapes(a: &[Expr], b: &[Expr]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| compatible(a, b))
}

fn text(info: &ValueInfo) -> String {
    format!("{}{}", info.dtype, shape_text(&info.shape))
}

/// What one node is checked with. Operands and results exist.
pub(crate) struct Rule<'a> {
    pub module: &'a Module,
    pub node: &'a Node,
    pub faults: Vec<String>,
}

impl<'a> Rule<'a> {
    fn say(&mut self, message: impl Into<String>) {
        self.faults.push(message.into());
    }

    fn want(&mut self, holds: bool, message: impl FnOnce() -> String) -> bool {
        if !holds {
            self.faults.push(message());
        }
        holds
    }

    fn operand(&self, i: usize) -> &'a ValueInfo {
        self.module.graph.info(self.node.operands[i])
    }

    fn operands(&self) -> impl Iterator<Item = &'a ValueInfo> + use<'a> {
        let graph = &self.module.graph;
        self.node.operands.iter().map(|v| graph.info(*v))
    }

    /// The results must have exactly these dtypes and shapes.
    fn exactly(&mut self, wanted: &[(DType, Vec<Expr>)]) {
        for (value, (dtype, shape)) in self.node.results.iter().zip(wanted) {
            let info = self.module.graph.info(*value);
            if info.dtype != *dtype || info.shape != *shape {
                self.faults.push(format!("{value} is {}, its rule gives {dtype}{}", text(info), shape_text(shape)));
            }
        }
    }

    /// As [`Rule::exactly`], but sizes may differ where they could be equal.
    fn about(&mut self, wanted: &[(DType, Vec<Expr>)]) {
        for (value, (dtype, shape)) in self.node.results.iter().zip(wanted) {
            let info = self.module.graph.info(*value);
            if info.dtype != *dtype || !compatible_shapes(&info.shape, shape) {
                self.faults.push(format!("{value} is {}, its rule gives {dtype}{}", text(info), shape_text(shape)));
            }
        }
    }

    /// The result has the shape that it is declared with, and this dtype.
    fn declared(&mut self, dtype: DType) {
        let shape = self.module.graph.shape(self.node.results[0]).to_vec();
        self.exactly(&[(dtype, shape)]);
    }

    /// An expression may mention sizes, `loops` coordinates and `values` index elements.
    fn mentions(&mut self, what: &str, expr: &Expr, loops: usize, values: usize) {
        let mut bad = None;
        expr.visit(&mut |s| bad = bad.or(out_of_scope(s, loops, values)));
        if let Some(symbol) = bad {
            self.say(format!("{what} {expr} mentions {symbol}, which does not exist there"));
        }
    }

    fn mentions_cond(&mut self, what: &str, cond: &Cond, loops: usize, values: usize) {
        let mut bad = None;
        cond.visit(&mut |s| bad = bad.or(out_of_scope(s, loops, values)));
        if let Some(symbol) = bad {
            self.say(format!("{what} {cond} mentions {symbol}, which does not exist there"));
        }
    }

    fn message(&mut self, message: u32) {
        let known = self.module.messages.len();
        self.want((message as usize) < known, || format!("message {message} of {known}"));
    }

    fn indices(&mut self, first: usize, shape: &[Expr]) -> usize {
        let indices = self.node.operands.get(first..).unwrap_or_default();
        for value in indices {
            let info = self.module.graph.info(*value);
            if info.dtype != DType::I64 || info.shape != shape {
                self.faults.push(format!("index {value} is {}, not int64{}", text(info), shape_text(shape)));
            }
        }
        indices.len()
    }

    fn dims(&mut self, dims: &[usize], rank: usize) {
        let ascending = dims.windows(2).all(|w| w[0] < w[1]);
        self.want(ascending && dims.iter().all(|d| *d < rank), || format!("dimensions {dims:?} of rank {rank}"));
    }

    pub(crate) fn check(&mut self) {
        let node = self.node;
        let (least, most, results) = arity(&node.op);
        let count = node.operands.len();
        if !self.want(count >= least && count <= most, || format!("{count} operands")) {
            return;
        }
        if let Some(results) = results {
            if !self.want(node.results.len() == results, || format!("{} results, not {results}", node.results.len())) {
                return;
            }
        }
        match &node.op {
            Op::Input(n) => self.input(*n),
            Op::State(n) => match self.module.states.get(*n as usize) {
                Some(state) => self.exactly(&[(state.dtype, state.sizes.clone())]),
                None => self.say(format!("there is no state {n}")),
            },
            Op::Constant(n) => self.constant(*n),
            Op::Full(scalar) => self.full(*scalar),
            Op::Iota(expr) => {
                let rank = self.module.graph.shape(node.results[0]).len();
                self.mentions("the expression", expr, rank, 0);
                self.declared(DType::I64);
            }
            Op::Random { draw, word } => {
                let draws = self.module.draws;
                self.want(*draw < draws && *word < 4, || format!("word {word} of draw {draw} of {draws}"));
                self.declared(DType::I64);
            }
            Op::Unary(op) => {
                let x = self.operand(0);
                self.want(op.takes().accepts(x.dtype), || format!("{op} of {}", x.dtype));
                self.exactly(&[(op.result(x.dtype), x.shape.clone())]);
            }
            Op::Binary(op) => {
                let (a, b) = (self.operand(0), self.operand(1));
                self.want(a == b, || format!("{op} of {} and {}", text(a), text(b)));
                self.want(op.takes().accepts(a.dtype), || format!("{op} of {}", a.dtype));
                self.exactly(&[(op.result(a.dtype), a.shape.clone())]);
            }
            Op::Select => {
                let (c, a, b) = (self.operand(0), self.operand(1), self.operand(2));
                self.want(c.dtype.is_bool() && c.shape == a.shape && a == b, || {
                    format!("select by {} of {} and {}", text(c), text(a), text(b))
                });
                self.exactly(&[(a.dtype, a.shape.clone())]);
            }
            Op::Cast => {
                let (x, to) = (self.operand(0), self.module.graph.dtype(node.results[0]));
                self.exactly(&[(to, x.shape.clone())]);
            }
            Op::Bitcast => {
                let (x, to) = (self.operand(0), self.module.graph.dtype(node.results[0]));
                self.want(x.dtype.size() == to.size(), || format!("bitcast of {} to {to}", x.dtype));
                self.exactly(&[(to, x.shape.clone())]);
            }
            Op::Check { size, message, .. } => {
                let x = self.operand(0);
                self.want(x.dtype == DType::I64, || format!("check of {}", x.dtype));
                self.mentions("the size", size, 0, 0);
                self.message(*message);
                self.exactly(&[(DType::I64, x.shape.clone())]);
            }
            Op::Move { map, guard, .. } => {
                let (x, shape) = (self.operand(0), self.module.graph.shape(node.results[0]));
                let values = self.indices(1, shape);
                self.map(map, x.shape.len(), shape.len(), values);
                self.mentions_cond("the guard", guard, shape.len(), values);
                self.declared(x.dtype);
            }
            Op::Concat { dim } => self.concat(*dim),
            Op::Scatter { map, combine } => {
                let (base, source) = (self.operand(0), self.operand(1));
                self.want(base.dtype == source.dtype, || format!("{} into {}", text(source), text(base)));
                if let Some(op) = combine {
                    let accepts = op.takes().accepts(base.dtype) || base.dtype.is_bool();
                    self.want(accepts, || format!("{op} of {}", base.dtype));
                }
                let values = self.indices(2, &source.shape);
                self.map(map, base.shape.len(), source.shape.len(), values);
                self.exactly(&[(base.dtype, base.shape.clone())]);
            }
            Op::Reduce { op, dims } => {
                let x = self.operand(0);
                self.want(op.takes().accepts(x.dtype), || format!("{op} of {}", x.dtype));
                self.dims(dims, x.shape.len());
                self.exactly(&[(x.dtype, without(&x.shape, dims))]);
            }
            Op::ArgReduce { dims, .. } => {
                let x = self.operand(0);
                self.dims(dims, x.shape.len());
                let shape = without(&x.shape, dims);
                self.exactly(&[(x.dtype, shape.clone()), (DType::I64, shape)]);
            }
            Op::Scan { op, dim } => {
                let x = self.operand(0);
                self.want(op.takes().accepts(x.dtype), || format!("{op} of {}", x.dtype));
                self.dims(&[*dim], x.shape.len());
                self.exactly(&[(x.dtype, x.shape.clone())]);
            }
            Op::ArgScan { dim, .. } => {
                let x = self.operand(0);
                self.dims(&[*dim], x.shape.len());
                self.exactly(&[(x.dtype, x.shape.clone()), (DType::I64, x.shape.clone())]);
            }
            Op::MatMul => self.matmul(),
            Op::Convolution(conv) => self.convolution(conv),
            Op::Attention { .. } => self.attention(),
            Op::VarlenAttention { .. } => self.varlen_attention(),
            Op::Sort { .. } => {
                let x = self.operand(0);
                self.exactly(&[(x.dtype, x.shape.clone()), (DType::I64, x.shape.clone())]);
            }
            Op::TopK { k, .. } => {
                let x = self.operand(0);
                let mut shape = x.shape.clone();
                self.mentions("k", k, 0, 0);
                match shape.last_mut() {
                    Some(last) => *last = k.clone(),
                    None => return self.say("topk of rank 0"),
                }
                self.exactly(&[(x.dtype, shape.clone()), (DType::I64, shape)]);
            }
            Op::SearchSorted { .. } => {
                let (sorted, values) = (self.operand(0), self.operand(1));
                self.want(sorted.dtype == values.dtype && !sorted.shape.is_empty(), || {
                    format!("searchsorted of {} in {}", text(values), text(sorted))
                });
                self.exactly(&[(DType::I64, values.shape.clone())]);
            }
            Op::Linalg(kind) => self.linalg(*kind),
            Op::SegmentReduce { .. } => {
                let (rows, offsets) = (self.operand(0), self.operand(1));
                let fits = offsets.dtype == DType::I64 && offsets.shape.len() == 1 && !rows.shape.is_empty();
                if self.want(fits, || format!("segments of {} at {}", text(rows), text(offsets))) {
                    let mut shape = rows.shape.clone();
                    shape[0] = &offsets.shape[0] - 1;
                    self.about(&[(rows.dtype, shape)]);
                }
            }
            Op::Nonzero { symbol } => {
                let mask = self.operand(0);
                self.want(mask.dtype.is_bool(), || format!("nonzero of {}", mask.dtype));
                let count = Expr::symbol(Symbol::Size(*symbol));
                self.exactly(&[(DType::I64, vec![count, Expr::int(mask.shape.len() as i64)])]);
            }
            Op::Item { .. } => {
                let x = self.operand(0);
                self.want(!x.dtype.is_float() && x.shape.is_empty(), || format!("item of {}", text(x)));
            }
            Op::Assert { message } => {
                let x = self.operand(0);
                self.want(x.dtype.is_bool() && x.shape.is_empty(), || format!("assert of {}", text(x)));
                self.message(*message);
            }
            Op::Require { cond, message } => {
                self.mentions_cond("the condition", cond, 0, 0);
                self.message(*message);
            }
            Op::If { .. } => {
                let x = self.operand(0);
                self.want(x.dtype.is_bool() && x.shape.is_empty(), || format!("if of {}", text(x)));
            }
            Op::IfCond { cond, .. } => self.mentions_cond("the condition", cond, 0, 0),
            // Its carried values are those of its blocks, which the verifier compares.
            Op::While { .. } => {}
        }
    }

    fn input(&mut self, n: u32) {
        match self.module.inputs.get(n as usize).map(|i| &i.kind) {
            Some(InputKind::Tensor { dtype, sizes, .. }) => {
                let mut shape = sizes.clone();
                shape.extend(dtype.is_complex().then(|| Expr::int(2)));
                self.exactly(&[(dtype.real(), shape)]);
            }
            Some(InputKind::Number(dtype)) => self.exactly(&[(*dtype, vec![])]),
            Some(_) => self.say(format!("input {n} is not a tensor")),
            None => self.say(format!("there is no input {n}")),
        }
    }

    fn constant(&mut self, n: u32) {
        let info = self.module.graph.info(self.node.results[0]);
        let Some(constant) = self.module.constants.get(n as usize) else {
            return self.say(format!("there is no constant {n}"));
        };
        let bytes = (&Expr::product(&info.shape) * info.dtype.size() as i64).as_int();
        self.want(bytes == Some(constant.bytes.len() as i64), || {
            format!("constant {n} has {} bytes, which is not {}", constant.bytes.len(), text(info))
        });
    }

    fn full(&mut self, scalar: douse_core::Scalar) {
        use douse_core::Scalar;
        let dtype = self.module.graph.dtype(self.node.results[0]);
        let fits = match scalar {
            Scalar::Bool(_) => dtype.is_bool(),
            Scalar::Int(_) => dtype.is_int(),
            Scalar::Float(_) => dtype.is_float(),
            Scalar::Complex(..) => false,
        };
        self.want(fits, || format!("{scalar} in {dtype}"));
    }

    fn map(&mut self, map: &[Expr], dims: usize, loops: usize, values: usize) {
        self.want(map.len() == dims, || format!("a map of {} expressions for rank {dims}", map.len()));
        for expr in map {
            self.mentions("the map", expr, loops, values);
        }
    }

    fn concat(&mut self, dim: usize) {
        let first = self.operand(0);
        let mut shape = first.shape.clone();
        if !self.want(dim < shape.len(), || format!("dimension {dim} of rank {}", shape.len())) {
            return;
        }
        for other in self.operands().skip(1) {
            let mut own = other.shape.clone();
            let Some(size) = own.get(dim).cloned() else {
                return self.say(format!("concat of {} and {}", text(first), text(other)));
            };
            own[dim] = first.shape[dim].clone();
            self.want(other.dtype == first.dtype && compatible_shapes(&own, &first.shape), || {
                format!("concat of {} and {}", text(first), text(other))
            });
            shape[dim] = &shape[dim] + &size;
        }
        self.exactly(&[(first.dtype, shape)]);
    }

    fn matmul(&mut self) {
        let (a, b) = (self.operand(0), self.operand(1));
        let rank = a.shape.len();
        let dtype = self.module.graph.dtype(self.node.results[0]);
        let fits = a.dtype == b.dtype
            && holds_products(dtype, a.dtype)
            && rank >= 2
            && b.shape.len() == rank
            && a.shape[..rank - 2] == b.shape[..rank - 2]
            && compatible(&a.shape[rank - 1], &b.shape[rank - 2]);
        if self.want(fits, || format!("matmul of {} and {}", text(a), text(b))) {
            let mut shape = a.shape.clone();
            shape[rank - 1] = b.shape[rank - 1].clone();
            self.exactly(&[(dtype, shape)]);
        }
    }

    fn convolution(&mut self, conv: &Convolution) {
        let (input, weight) = (self.operand(0), self.operand(1));
        let spatial = conv.stride.len();
        let lists = [conv.padding.len(), conv.padding_end.len(), conv.dilation.len(), conv.output_padding.len()];
        let fits = (1..=3).contains(&spatial)
            && lists.iter().all(|n| *n == spatial)
            && input.shape.len() == spatial + 2
            && weight.shape.len() == spatial + 2
            && input.dtype == weight.dtype
            && conv.groups >= 1
            && conv.stride.iter().chain(&conv.dilation).all(|n| *n >= 1);
        if !self.want(fits, || format!("convolution of {} by {}: {conv:?}", text(input), text(weight))) {
            return;
        }
        for padding in conv.padding.iter().chain(&conv.padding_end) {
            self.mentions("the padding", padding, 0, 0);
        }
        let (channels, taken) = match conv.transposed {
            true => (&weight.shape[1] * conv.groups, weight.shape[0].clone()),
            false => (weight.shape[0].clone(), &weight.shape[1] * conv.groups),
        };
        self.want(compatible(&taken, &input.shape[1]), || {
            format!("convolution of {} by {} in {} groups", text(input), text(weight), conv.groups)
        });
        if let Some(bias) = self.operands().nth(2) {
            let fits = bias.dtype == input.dtype && compatible_shapes(&bias.shape, std::slice::from_ref(&channels));
            self.want(fits, || format!("a bias of {} for {channels} channels", text(bias)));
        }
        let mut shape = vec![input.shape[0].clone(), channels];
        shape.extend((0..spatial).map(|d| conv.out_size(d, &input.shape[d + 2], &weight.shape[d + 2])));
        self.about(&[(input.dtype, shape)]);
    }

    fn attention(&mut self) {
        let (query, key, value) = (self.operand(0), self.operand(1), self.operand(2));
        let fits = self.operands().all(|x| x.shape.len() == 4)
            && query.dtype.is_float()
            && [key, value].iter().all(|x| x.dtype == query.dtype)
            && compatible(&query.shape[3], &key.shape[3])
            && compatible_shapes(&key.shape[..3], &value.shape[..3]);
        if !self.want(fits, || format!("attention of {}, {} and {}", text(query), text(key), text(value))) {
            return;
        }
        if let Some(mask) = self.operands().nth(3) {
            let full = [&query.shape[0], &query.shape[1], &query.shape[2], &key.shape[2]];
            let sizes = mask.shape.iter().zip(full).all(|(m, n)| m.is_int(1) || compatible(m, n));
            let fits = sizes && (mask.dtype.is_bool() || mask.dtype == query.dtype);
            self.want(fits, || format!("a mask of {} for {} and {}", text(mask), text(query), text(key)));
        }
        let mut shape = query.shape.clone();
        shape[3] = value.shape[3].clone();
        self.about(&[(query.dtype, shape)]);
    }

    fn varlen_attention(&mut self) {
        let (query, key, value) = (self.operand(0), self.operand(1), self.operand(2));
        let packed = [query, key, value].iter().all(|x| x.shape.len() == 3 && x.dtype == query.dtype);
        let bounds = self.operands().skip(3).all(|x| x.shape.len() == 1 && x.dtype.is_int());
        if self.want(packed && bounds && query.dtype.is_float(), || "varlen_attention of other ranks or dtypes".into())
        {
            let mut shape = query.shape.clone();
            shape[2] = value.shape[2].clone();
            self.about(&[(query.dtype, shape)]);
        }
    }

    fn linalg(&mut self, kind: Linalg) {
        let a = self.operand(0);
        let rank = a.shape.len();
        let square = !matches!(kind, Linalg::Svd | Linalg::Qr);
        let fits = rank >= 2
            && matches!(a.dtype, DType::F32 | DType::F64)
            && (!square || compatible(&a.shape[rank - 2], &a.shape[rank - 1]));
        if !self.want(fits, || format!("{kind:?} of {}", text(a))) {
            return;
        }
        let (m, n) = (a.shape[rank - 2].clone(), a.shape[rank - 1].clone());
        let least = m.minimum(&n);
        let with = |tail: &[&Expr]| {
            let shape = a.shape[..rank - 2].iter().chain(tail.iter().copied()).cloned().collect::<Vec<_>>();
            (a.dtype, shape)
        };
        match kind {
            Linalg::Det => self.about(&[with(&[])]),
            Linalg::Slogdet => self.about(&[with(&[]), with(&[])]),
            Linalg::Inverse | Linalg::Cholesky | Linalg::MatrixExp => self.about(&[with(&[&m, &n])]),
            Linalg::Eigh => self.about(&[with(&[&n]), with(&[&m, &n])]),
            // The full forms of u, vh and q have other sizes; only ranks are certain.
            Linalg::Svd => self.ranks(&[rank, rank - 1, rank]),
            Linalg::Qr => self.about(&[with(&[&m, &least]), with(&[&least, &n])]),
            Linalg::Solve => {
                let b = self.operand(1);
                let fits = b.dtype == a.dtype && b.shape.len() == rank && compatible(&b.shape[rank - 2], &n);
                if self.want(fits, || format!("solve of {} for {}", text(a), text(b))) {
                    self.about(&[(b.dtype, b.shape.clone())]);
                }
            }
        }
    }

    fn ranks(&mut self, ranks: &[usize]) {
        for (value, rank) in self.node.results.iter().zip(ranks) {
            let own = self.module.graph.shape(*value).len();
            self.want(own == *rank, || format!("{value} has rank {own}, its rule gives {rank}"));
        }
    }
}

fn without(shape: &[Expr], dims: &[usize]) -> Vec<Expr> {
    shape.iter().enumerate().filter(|(d, _)| !dims.contains(d)).map(|(_, s)| s.clone()).collect()
}

/// The symbol, where it is a coordinate or an index that does not exist. Sizes are the verifier's.
fn out_of_scope(symbol: Symbol, loops: usize, values: usize) -> Option<Symbol> {
    let exists = match symbol {
        Symbol::Size(_) => true,
        Symbol::Loop(i) => (i as usize) < loops,
        Symbol::Value(i) => (i as usize) < values,
    };
    (!exists).then_some(symbol)
}
