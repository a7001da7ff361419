//! The importer: walks the nodes of a graph and calls the row of each operator.

use std::collections::HashMap;
use std::fmt;

use douse_core::sym::Expr;
use douse_core::{DType, Error, Result, Scalar};
use douse_ir::{Builder, Origin, OriginId, Value, shape_text};
use douse_pt2::{Argument, Graph, Node, Sym, TensorMeta};
use indexmap::IndexMap;

use super::args::{Args, Number, Val};
use super::promote::ResultType;
use super::symbols::Symbols;
use super::table;
use super::tensor::{Storage, Tensor, TensorInfo};

/// Builds core operations for an operator's node.
pub type Function = fn(&mut Importer, &Args) -> Result<Val>;

/// A line of an operator table: name with overload, and its function.
pub type Row = (&'static str, Function);

/// Something of the program that cannot be lowered, and how often and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsupported {
    /// The operator, or the operator and what of it.
    pub what: String,
    pub count: usize,
    /// The user's lines that call it, each once: `model.py:12: y = op(x)`, or the node's name where there is none.
    pub places: Vec<String>,
}

/// Why a program was not imported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImportError {
    /// Everything in it that is not supported.
    Unsupported(Vec<Unsupported>),
    Fault(Error),
}

impl From<Error> for ImportError {
    fn from(error: Error) -> ImportError {
        ImportError::Fault(error)
    }
}

impl fmt::Display for ImportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ImportError::Fault(error) => error.fmt(f),
            ImportError::Unsupported(all) => {
                f.write_str("the program uses what is not supported:")?;
                for item in all {
                    write!(f, "\n  {} ({} time{})", item.what, item.count, if item.count == 1 { "" } else { "s" })?;
                    for place in item.places.iter().take(5) {
                        write!(f, "\n      {place}")?;
                    }
                }
                Ok(())
            }
        }
    }
}

impl std::error::Error for ImportError {}

pub struct Importer {
    /// Where nodes are built.
    pub b: Builder,
    pub symbols: Symbols,
    pub(super) tensors: Vec<TensorInfo>,
    pub(super) storages: Vec<Storage>,
    /// Names of the graph that is walked.
    pub(super) env: HashMap<String, Val>,
    /// Coordinates and count of the true elements of masks that were looked through.
    pub(super) masks: HashMap<Value, (Value, Expr)>,
    /// Values that blocks defined which are closed: ranges of their numbers.
    closed: Vec<(u32, u32)>,
    unsupported: IndexMap<String, Unsupported>,
    /// The dtype of the autocast region that is imported, if it is in one.
    pub(super) autocast: Option<DType>,
    /// How many results the node that is imported has in the program.
    pub(super) results: usize,
    /// Whether PyTorch is known to describe the rank of the imported node's results wrongly.
    pub(super) misdescribed: bool,
    /// How many operators ran on elements of batches that `torch.vmap` hides.
    pub(super) vmapped: usize,
    /// Text of the place that is imported, for messages of checks: `model.py:12: y = x[i]`.
    pub place: String,
}

impl Importer {
    pub(super) fn new(b: Builder) -> Importer {
        Importer {
            b,
            symbols: Symbols::default(),
            tensors: vec![],
            storages: vec![],
            env: HashMap::new(),
            masks: HashMap::new(),
            closed: vec![],
            unsupported: IndexMap::new(),
            autocast: None,
            results: 0,
            misdescribed: false,
            vmapped: 0,
            place: String::new(),
        }
    }

    // What rows read.

    /// A tensor argument's value; refuses complex ones.
    pub fn value(&mut self, a: &Args, name: &str) -> Result<Value> {
        let t = a.tensor(name)?;
        self.real(a, t)
    }

    pub fn opt_value(&mut self, a: &Args, name: &str) -> Result<Option<Value>> {
        match a.opt_tensor(name)? {
            Some(t) => self.real(a, t).map(Some),
            None => Ok(None),
        }
    }

    /// The values of a list of tensors; refuses complex ones.
    pub fn values(&mut self, a: &Args, name: &str) -> Result<Vec<Value>> {
        a.tensors(name)?.into_iter().map(|t| self.real(a, t)).collect()
    }

    /// A tensor's value; refuses complex ones.
    pub fn real(&mut self, a: &Args, t: Tensor) -> Result<Value> {
        if self.is_complex(t) {
            return Err(a.unsupported("a complex tensor here"));
        }
        self.read(t)
    }

    /// A 0-d value of a number argument, in this dtype.
    pub fn number_value(&mut self, number: &Number, dtype: DType) -> Value {
        match number {
            Number::Scalar(s) => self.b.full(dtype, vec![], *s),
            Number::Int(e) => {
                let v = self.b.size_value(e.clone());
                self.b.cast(v, dtype)
            }
            Number::Value(v) => self.b.cast(*v, dtype),
        }
    }

    /// An argument that is a tensor or a number, in this dtype.
    pub fn operand(&mut self, a: &Args, name: &str, dtype: DType) -> Result<Value> {
        match a.get(name) {
            Some(Val::Tensor(_)) => {
                let v = self.value(a, name)?;
                Ok(self.b.cast(v, dtype))
            }
            _ => {
                let number = a.number(name)?;
                Ok(self.number_value(&number, dtype))
            }
        }
    }

    /// The dtype that these arguments, tensors or numbers, promote to. Absent ones do not count.
    pub fn result_type(&mut self, a: &Args, names: &[&str]) -> Result<DType> {
        let mut result = ResultType::default();
        for name in names {
            match a.get(name) {
                None => {}
                Some(Val::Tensor(t)) => {
                    let rank = self.shape_of(*t)?.len();
                    result.tensor(self.dtype_of(*t), rank);
                }
                Some(_) => {
                    let scalar = match a.number(name)? {
                        Number::Scalar(s) => s,
                        Number::Int(_) => Scalar::Int(0),
                        Number::Value(v) if self.b.dtype(v) == DType::Bool => Scalar::Bool(false),
                        Number::Value(_) => Scalar::Float(0.0),
                    };
                    result.number(scalar);
                }
            };
        }
        Ok(result.dtype())
    }

    /// A dimension argument of a tensor of this rank, not negative; a 0-d tensor counts as of rank 1.
    pub fn dim(&self, a: &Args, dim: i64, rank: usize) -> Result<usize> {
        let limit = rank.max(1) as i64;
        let at = if dim < 0 { dim + limit } else { dim };
        if (0..limit).contains(&at) {
            Ok(at as usize)
        } else {
            Err(Error::invalid_program(format!("{}: dimension {dim} of a tensor of rank {rank}", a.target)))
        }
    }

    /// float32 for half, bfloat16 and float8: the dtype that a composite operator computes in.
    pub fn compute_dtype(&self, dtype: DType) -> DType {
        if dtype.is_reduced_float() { DType::F32 } else { dtype }
    }

    /// The text of a check's message: what is wrong, and where in the user's program.
    pub fn message(&mut self, what: &str) -> u32 {
        let text = if self.place.is_empty() { what.to_string() } else { format!("{what} ({})", self.place) };
        self.b.message(text)
    }

    // Walking.

    pub(super) fn in_scope(&self, value: Value) -> bool {
        !self.closed.iter().any(|(from, to)| (*from..*to).contains(&value.0))
    }

    /// How many values there are: with [`Importer::close_scope`], the values of a block.
    pub(super) fn scope_start(&self) -> u32 {
        self.b.module.graph.values.len() as u32
    }

    pub(super) fn close_scope(&mut self, start: u32) {
        self.closed.push((start, self.scope_start()));
    }

    /// Imports the nodes of a graph; names must be bound for its inputs.
    pub(super) fn nodes(&mut self, graph: &Graph) -> Result<()> {
        for node in &graph.nodes {
            self.enter(node);
            match self.node(graph, node) {
                Ok(()) => {}
                Err(error) if error.code == douse_core::Code::NotSupported => {
                    // Without a word it was noted inside a branch.
                    if !error.message.is_empty() {
                        self.note_unsupported(&error.message, node);
                    }
                    if !self.stand_in(graph, node) {
                        return Err(Error::not_supported(""));
                    }
                }
                Err(error) => {
                    let place = self.place.clone();
                    return Err(error.at(format!("{} ({place})", node.label())));
                }
            }
        }
        Ok(())
    }

    fn enter(&mut self, node: &Node) {
        let line = node.source_line().map(|l| l.to_string());
        self.place = line.clone().unwrap_or_else(|| node.label().to_string());
        let origin = Origin { node: node.label().to_string(), target: operator(node).to_string(), line };
        self.b.module.origins.push(origin);
        self.b.origin = OriginId(self.b.module.origins.len() as u32 - 1);
    }

    pub(super) fn note_unsupported(&mut self, what: &str, node: &Node) {
        let place = node.source_line().map_or_else(|| node.label().to_string(), |l| l.to_string());
        let entry = self.unsupported.entry(what.to_string()).or_insert_with(|| Unsupported {
            what: what.to_string(),
            count: 0,
            places: vec![],
        });
        entry.count += 1;
        if !entry.places.contains(&place) {
            entry.places.push(place);
        }
    }

    pub(super) fn take_unsupported(&mut self) -> Vec<Unsupported> {
        std::mem::take(&mut self.unsupported).into_values().collect()
    }

    fn node(&mut self, graph: &Graph, node: &Node) -> Result<()> {
        let target = operator(node);
        if is_idle(node) {
            return Ok(());
        }
        let mut values = Vec::with_capacity(node.inputs.len());
        for input in &node.inputs {
            values.push((input.name.clone(), self.resolve(&input.arg)?));
        }
        let args = Args { target: target.to_string(), values };
        self.misdescribed = false;
        self.results = node
            .outputs
            .iter()
            .map(|output| match output {
                Argument::Tensors(all) => all.len(),
                _ => 1,
            })
            .sum();
        let args = match self.autocast {
            Some(lower) => self.autocast_arguments(args, lower)?,
            None => args,
        };
        let result = self.call(&args)?;
        self.bind(graph, node, result)
    }

    /// Runs the row of `args.target`, or what stands for it: the functional operator and a write for an in-place one, a view and a copy for
    /// a `_copy`, the operator that returns and a write for one with `out`.
    pub fn call(&mut self, args: &Args) -> Result<Val> {
        if let Some(result) = self.batched(args)? {
            return Ok(result);
        }
        let target = args.target.as_str();
        if let Some(function) = table::find(target) {
            return function(self, args);
        }
        if let Some(functional) = in_place(target).and_then(|name| table::find(&name)) {
            let written = args.tensor("self")?;
            let result = functional(self, args)?;
            // An in-place view operator (`squeeze_`) changes what the name stands for: later uses name the result, which shares the storage.
            if let Val::Tensor(view) = result {
                if self.info(view).storage == self.info(written).storage {
                    return Ok(Val::Tensor(view));
                }
            }
            let value = self.result_value(result)?;
            self.write_cast(written, value)?;
            return Ok(Val::Tensor(written));
        }
        if let Some(view) = copied(target).and_then(|name| table::find(&name)) {
            let result = view(self, args)?;
            return self.copied(result);
        }
        if let (Some(target), Some(Val::Tensor(written))) = (table::returning(target), args.get("out")) {
            let values = args.values.iter().filter(|(name, _)| name != "out").cloned().collect();
            return self.call(&Args { target, values }).and_then(|result| self.write_out(args, *written, result));
        }
        Err(Error::not_supported(format!("operator {target}")))
    }

    /// Writes a result into the tensor given as `out`, which must have the result's shape: another would be resized.
    fn write_out(&mut self, args: &Args, written: Tensor, result: Val) -> Result<Val> {
        let value = self.result_value(result)?;
        let old = self.read(written)?;
        if self.b.shape(old) != self.b.shape(value) {
            return Err(args.unsupported("a tensor of another shape as out"));
        }
        self.write_cast(written, value)?;
        Ok(Val::Tensor(written))
    }

    fn copied(&mut self, result: Val) -> Result<Val> {
        Ok(match result {
            Val::Tensor(t) => {
                let (value, dtype) = (self.read(t)?, self.dtype_of(t));
                Val::Tensor(self.new_tensor(value, dtype))
            }
            Val::List(list) => Val::List(list.into_iter().map(|v| self.copied(v)).collect::<Result<_>>()?),
            other => other,
        })
    }

    /// The one tensor that a row returned, as a real value.
    pub fn result_value(&mut self, result: Val) -> Result<Value> {
        match result {
            Val::Value(v) | Val::Complex(v) => Ok(v),
            Val::Tensor(t) => self.read(t),
            _ => Err(Error::internal("an in-place operator did not return a tensor")),
        }
    }

    /// Writes a value into a tensor, cast and broadcast to it.
    pub fn write_cast(&mut self, t: Tensor, value: Value) -> Result<()> {
        let old = self.read(t)?;
        let (dtype, shape) = (self.b.dtype(old), self.b.shape(old).to_vec());
        let cast = self.b.cast(value, dtype);
        let wide = self.b.expand(cast, shape)?;
        self.write(t, wide)
    }

    /// The value of an argument.
    fn resolve(&mut self, argument: &Argument) -> Result<Val> {
        let unknown = |name: &str| Error::invalid_program(format!("the name {name} is used before it is defined"));
        let named = |name: &str| self.env.get(name).cloned().ok_or_else(|| unknown(name));
        let list = |names: &[String]| names.iter().map(|n| named(n)).collect::<Result<Vec<_>>>().map(Val::List);
        Ok(match argument {
            Argument::None => Val::None,
            Argument::Tensor(name) => named(name)?,
            Argument::Tensors(names) => list(names)?,
            Argument::OptionalTensor(name) => match name {
                Some(name) => named(name)?,
                None => Val::None,
            },
            Argument::OptionalTensors(names) => {
                Val::List(names.iter().map(|n| n.as_deref().map_or(Ok(Val::None), named)).collect::<Result<_>>()?)
            }
            Argument::NestedTensors(lists) => Val::List(lists.iter().map(|l| list(l)).collect::<Result<_>>()?),
            Argument::Int(i) => Val::Int(Expr::int(*i)),
            Argument::Ints(all) => Val::List(all.iter().map(|i| Val::Int(Expr::int(*i))).collect()),
            Argument::IntLists(lists) => Val::List(
                lists.iter().map(|l| Val::List(l.iter().map(|i| Val::Int(Expr::int(*i))).collect())).collect(),
            ),
            Argument::Float(f) => Val::Float(*f),
            Argument::Floats(all) => Val::List(all.iter().map(|f| Val::Float(*f)).collect()),
            Argument::FloatLists(lists) => {
                Val::List(lists.iter().map(|l| Val::List(l.iter().map(|f| Val::Float(*f)).collect())).collect())
            }
            Argument::Complex(c) => Val::ComplexScalar(c.real, c.imag),
            Argument::Bool(b) => Val::Bool(*b),
            Argument::Bools(all) => Val::List(all.iter().map(|b| Val::Bool(*b)).collect()),
            Argument::Str(s) => Val::Str(s.clone()),
            Argument::Strs(all) => Val::List(all.iter().map(|s| Val::Str(s.clone())).collect()),
            Argument::SymInt(s) => self.sym(s, |i| Val::Int(Expr::int(*i)))?,
            Argument::SymInts(all) => {
                Val::List(all.iter().map(|s| self.sym(s, |i| Val::Int(Expr::int(*i)))).collect::<Result<_>>()?)
            }
            Argument::SymFloat(s) => self.sym(s, |f| Val::Float(*f))?,
            Argument::SymFloats(all) => {
                Val::List(all.iter().map(|s| self.sym(s, |f| Val::Float(*f))).collect::<Result<_>>()?)
            }
            Argument::SymBool(s) => self.sym(s, |b| Val::Bool(*b))?,
            Argument::SymBools(all) => {
                Val::List(all.iter().map(|s| self.sym(s, |b| Val::Bool(*b))).collect::<Result<_>>()?)
            }
            Argument::ScalarType(dtype) => Val::DType(*dtype),
            Argument::MemoryFormat(format) => Val::MemoryFormat(*format),
            Argument::Layout(_) | Argument::Device(_) => Val::Other,
            Argument::Graph(_, graph) => Val::Graph(graph.clone()),
            Argument::Operator(name) => Val::Str(name.clone()),
            Argument::CustomObj { name, .. } => {
                return Err(Error::not_supported(format!("the custom object {name}")));
            }
            Argument::StringToArgument(_) => return Err(Error::not_supported("a dict of arguments")),
        })
    }

    fn sym<T>(&self, sym: &Sym<T>, plain: impl Fn(&T) -> Val) -> Result<Val> {
        match sym {
            Sym::Value(value) => Ok(plain(value)),
            Sym::Name(name) => self
                .env
                .get(name)
                .cloned()
                .ok_or_else(|| Error::invalid_program(format!("the name {name} is used before it is defined"))),
        }
    }

    pub(super) fn output(&mut self, argument: &Argument) -> Result<Val> {
        self.resolve(argument)
    }

    /// Binds a node's results to their names.
    fn bind(&mut self, graph: &Graph, node: &Node, result: Val) -> Result<()> {
        let mut names: Vec<Option<&str>> = Vec::new();
        for output in &node.outputs {
            match output {
                Argument::Tensor(n) => names.push(Some(n)),
                Argument::Tensors(all) => names.extend(all.iter().map(|n| Some(n.as_str()))),
                Argument::OptionalTensor(n) => names.push(n.as_deref()),
                Argument::OptionalTensors(all) => names.extend(all.iter().map(|n| n.as_deref())),
                Argument::SymInt(Sym::Name(n)) | Argument::SymFloat(Sym::Name(n)) | Argument::SymBool(Sym::Name(n)) => {
                    names.push(Some(n));
                }
                Argument::SymInts(all) => names.extend(all.iter().map(|s| match s {
                    Sym::Name(n) => Some(n.as_str()),
                    Sym::Value(_) => None,
                })),
                _ => names.push(None),
            }
        }
        if names.is_empty() {
            return Ok(());
        }
        let results = match result {
            Val::List(list) => list,
            other => vec![other],
        };
        let missing = names.get(results.len()..).unwrap_or_default();
        if missing.iter().flatten().any(|name| is_used(graph, name)) {
            let message = format!("{} results where the program has {}", results.len(), names.len());
            return Err(Error::internal(message));
        }
        for (name, value) in names.into_iter().zip(results) {
            let Some(name) = name else { continue };
            let bound = self.as_tensor(graph, name, value)?;
            if let (Val::Int(own), Some(theirs)) = (&bound, graph.sym_int_values.get(name)) {
                self.symbols.learn(theirs, own);
            }
            self.env.insert(name.to_string(), bound);
        }
        Ok(())
    }

    /// New values become tensors; what the program says of the tensor is compared with what was built.
    fn as_tensor(&mut self, graph: &Graph, name: &str, value: Val) -> Result<Val> {
        let meta = graph.tensor_values.get(name);
        let tensor = match value {
            Val::Tensor(t) => self.alias(t),
            Val::Value(v) => {
                let dtype = self.b.dtype(v);
                self.new_tensor(v, dtype)
            }
            Val::Complex(v) => {
                let dtype = self.b.dtype(v);
                let complex = dtype.complex().ok_or_else(|| Error::internal("a complex tensor of integers"))?;
                self.new_tensor(v, complex)
            }
            other => return Ok(other),
        };
        let rank = self.shape_of(tensor)?.len();
        if let Some(meta) = meta.filter(|meta| !self.misdescribed || meta.sizes.len() == rank) {
            self.compare(tensor, meta)?;
            for (own, theirs) in self.shape_of(tensor)?.iter().zip(&meta.sizes) {
                self.symbols.learn(theirs, own);
            }
            let strides: Result<Vec<Expr>> = meta.strides.iter().map(|s| self.symbols.size(s)).collect();
            self.tensors[tensor.0 as usize].strides = strides.ok();
        }
        Ok(Val::Tensor(tensor))
    }

    fn compare(&mut self, tensor: Tensor, meta: &TensorMeta) -> Result<()> {
        let (dtype, shape) = (self.dtype_of(tensor), self.shape_of(tensor)?);
        let same = dtype == meta.dtype && shape.len() == meta.sizes.len();
        let sizes =
            shape.iter().zip(&meta.sizes).all(|(own, theirs)| match (own.as_int(), self.symbols.size(theirs)) {
                (Some(a), Ok(e)) => e.as_int().is_none_or(|b| a == b),
                _ => true,
            });
        if same && sizes {
            return Ok(());
        }
        let sizes: Vec<String> = meta.sizes.iter().map(|s| s.to_string()).collect();
        Err(Error::internal(format!(
            "{dtype} {} was built where the program says {} [{}]",
            shape_text(&shape),
            meta.dtype,
            sizes.join(", ")
        )))
    }

    /// Binds stand-ins to the results of a node that cannot be imported, so that the rest can be looked at.
    fn stand_in(&mut self, graph: &Graph, node: &Node) -> bool {
        let mut names = Vec::new();
        for output in &node.outputs {
            match output {
                Argument::Tensor(n) => names.push(n.clone()),
                Argument::Tensors(all) => names.extend(all.iter().cloned()),
                Argument::None => {}
                _ => return false,
            }
        }
        for name in names {
            let Some(meta) = graph.tensor_values.get(&name) else { return false };
            let sizes: Result<Vec<Expr>> = meta.sizes.iter().map(|s| self.symbols.size(s)).collect();
            let Ok(mut shape) = sizes else { return false };
            if meta.dtype.is_complex() {
                shape.push(Expr::int(2));
            }
            let value = self.b.full(meta.dtype.real(), shape, Scalar::Int(0));
            let tensor = self.new_tensor(value, meta.dtype);
            let strides: Result<Vec<Expr>> = meta.strides.iter().map(|s| self.symbols.size(s)).collect();
            self.tensors[tensor.0 as usize].strides = strides.ok();
            self.env.insert(name, Val::Tensor(tensor));
        }
        true
    }
}

/// Whether anything of a graph reads a tensor of this name.
fn is_used(graph: &Graph, name: &str) -> bool {
    let reads = |argument: &Argument| match argument {
        Argument::Tensor(n) | Argument::OptionalTensor(Some(n)) => n == name,
        Argument::Tensors(all) => all.iter().any(|n| n == name),
        Argument::OptionalTensors(all) => all.iter().flatten().any(|n| n == name),
        Argument::NestedTensors(lists) => lists.iter().flatten().any(|n| n == name),
        _ => false,
    };
    graph.outputs.iter().any(reads) || graph.nodes.iter().any(|node| node.inputs.iter().any(|input| reads(&input.arg)))
}

/// Whether a node takes nothing and gives nothing, and so does nothing to the results: an extension's look at its own version.
pub(super) fn is_idle(node: &Node) -> bool {
    node.inputs.is_empty() && node.outputs.iter().all(|output| matches!(output, Argument::None))
}

/// The operator's name without `torch.ops.`.
pub(super) fn operator(node: &Node) -> &str {
    let target = node.target.as_str();
    target.strip_prefix("torch.ops.").or_else(|| target.strip_prefix("torch._ops.")).unwrap_or(target)
}

/// `aten.add.Tensor` for `aten.add_.Tensor`.
pub(super) fn in_place(target: &str) -> Option<String> {
    let mut parts = target.splitn(3, '.');
    let (namespace, name, overload) = (parts.next()?, parts.next()?, parts.next()?);
    let functional = name.strip_suffix('_').filter(|n| !n.ends_with('_'))?;
    Some(format!("{namespace}.{functional}.{overload}"))
}

/// `aten.t.default` for `aten.t_copy.default`.
pub(super) fn copied(target: &str) -> Option<String> {
    let mut parts = target.splitn(3, '.');
    let (namespace, name, overload) = (parts.next()?, parts.next()?, parts.next()?);
    Some(format!("{namespace}.{}.{overload}", name.strip_suffix("_copy")?))
}
