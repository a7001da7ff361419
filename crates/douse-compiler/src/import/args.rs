//! Values of the program at import, and a node's arguments by name.

use douse_core::sym::{Cond, Expr};
use douse_core::{DType, Error, Result, Scalar};
use douse_ir::Value;
use douse_pt2::{Graph, MemoryFormat};

use super::tensor::Tensor;

/// What a name of the exported program stands for, an argument, or a result of a row.
#[derive(Clone, Debug)]
pub enum Val {
    None,
    /// A view of a storage.
    Tensor(Tensor),
    /// A new tensor, of a real dtype: what most rows return.
    Value(Value),
    /// A new complex tensor, as a real value with a last dimension of 2.
    Complex(Value),
    List(Vec<Val>),
    /// A tensor of which this level of `torch.vmap` hides a dimension: its elements along that.
    Batched(i64, Vec<Val>),
    Int(Expr),
    Float(f64),
    /// A float that is known at run time only: 0-d float64.
    SymFloat(Value),
    ComplexScalar(f64, f64),
    Bool(bool),
    SymBool(Cond),
    /// A bool that is known at run time only: 0-d bool.
    BoolValue(Value),
    Str(String),
    DType(DType),
    MemoryFormat(MemoryFormat),
    /// Layout, device and the like, which change nothing here.
    Other,
    Graph(Box<Graph>),
}

impl From<Value> for Val {
    fn from(value: Value) -> Val {
        Val::Value(value)
    }
}

impl From<(Value, Value)> for Val {
    fn from((a, b): (Value, Value)) -> Val {
        Val::List(vec![Val::Value(a), Val::Value(b)])
    }
}

impl From<Vec<Value>> for Val {
    fn from(values: Vec<Value>) -> Val {
        Val::List(values.into_iter().map(Val::Value).collect())
    }
}

/// A number argument.
#[derive(Clone, Debug)]
pub enum Number {
    Scalar(Scalar),
    /// An integer expression over symbols.
    Int(Expr),
    /// A 0-d value that stands for a Python number (float64 or bool).
    Value(Value),
}

/// The arguments of a node, by the names of the operator's schema; what stands at its default is absent.
#[derive(Clone, Debug, Default)]
pub struct Args {
    /// The operator's name with its overload: `aten.add.Tensor`.
    pub target: String,
    pub values: Vec<(String, Val)>,
}

impl Args {
    /// The argument, unless it is absent or None.
    pub fn get(&self, name: &str) -> Option<&Val> {
        self.values.iter().find(|(n, _)| n == name).map(|(_, v)| v).filter(|v| !matches!(v, Val::None))
    }

    pub fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// An error that says which argument is not as it must be.
    pub fn wrong(&self, name: &str, expected: &str) -> Error {
        Error::not_supported(format!("{}: argument {name} is not {expected}", self.target))
    }

    /// An error that says what is not supported.
    pub fn unsupported(&self, what: impl std::fmt::Display) -> Error {
        Error::not_supported(format!("{}: {what} is not supported", self.target))
    }

    fn required(&self, name: &str) -> Result<&Val> {
        self.get(name).ok_or_else(|| self.wrong(name, "given"))
    }

    pub fn tensor(&self, name: &str) -> Result<Tensor> {
        match self.required(name)? {
            Val::Tensor(t) => Ok(*t),
            _ => Err(self.wrong(name, "a tensor")),
        }
    }

    pub fn opt_tensor(&self, name: &str) -> Result<Option<Tensor>> {
        if self.has(name) { self.tensor(name).map(Some) } else { Ok(None) }
    }

    pub fn tensors(&self, name: &str) -> Result<Vec<Tensor>> {
        match self.required(name)? {
            Val::List(list) => list
                .iter()
                .map(|v| match v {
                    Val::Tensor(t) => Ok(*t),
                    _ => Err(self.wrong(name, "a list of tensors")),
                })
                .collect(),
            _ => Err(self.wrong(name, "a list of tensors")),
        }
    }

    /// A list whose elements may be None.
    pub fn opt_tensors(&self, name: &str) -> Result<Vec<Option<Tensor>>> {
        match self.required(name)? {
            Val::List(list) => list
                .iter()
                .map(|v| match v {
                    Val::Tensor(t) => Ok(Some(*t)),
                    Val::None => Ok(None),
                    _ => Err(self.wrong(name, "a list of tensors")),
                })
                .collect(),
            _ => Err(self.wrong(name, "a list of tensors")),
        }
    }

    /// An integer that may be symbolic.
    pub fn expr(&self, name: &str) -> Result<Expr> {
        match self.required(name)? {
            Val::Int(e) => Ok(e.clone()),
            Val::Bool(b) => Ok(Expr::int(*b as i64)),
            _ => Err(self.wrong(name, "an integer")),
        }
    }

    pub fn opt_expr(&self, name: &str) -> Result<Option<Expr>> {
        if self.has(name) { self.expr(name).map(Some) } else { Ok(None) }
    }

    /// An integer that must be known when lowering.
    pub fn int(&self, name: &str) -> Result<i64> {
        self.expr(name)?.as_int().ok_or_else(|| self.unsupported(format!("a size known only at run time as {name}")))
    }

    pub fn int_or(&self, name: &str, default: i64) -> Result<i64> {
        if self.has(name) { self.int(name) } else { Ok(default) }
    }

    pub fn opt_int(&self, name: &str) -> Result<Option<i64>> {
        if self.has(name) { self.int(name).map(Some) } else { Ok(None) }
    }

    /// Integers that may be symbolic; one integer counts as a list of one.
    pub fn exprs(&self, name: &str) -> Result<Vec<Expr>> {
        match self.required(name)? {
            Val::List(list) => list
                .iter()
                .map(|v| match v {
                    Val::Int(e) => Ok(e.clone()),
                    _ => Err(self.wrong(name, "a list of integers")),
                })
                .collect(),
            Val::Int(e) => Ok(vec![e.clone()]),
            _ => Err(self.wrong(name, "a list of integers")),
        }
    }

    pub fn opt_exprs(&self, name: &str) -> Result<Option<Vec<Expr>>> {
        if self.has(name) { self.exprs(name).map(Some) } else { Ok(None) }
    }

    /// Integers that must be known when lowering.
    pub fn ints(&self, name: &str) -> Result<Vec<i64>> {
        let exprs = self.exprs(name)?;
        let known =
            |e: &Expr| e.as_int().ok_or_else(|| self.unsupported(format!("a size known only at run time in {name}")));
        exprs.iter().map(known).collect()
    }

    pub fn opt_ints(&self, name: &str) -> Result<Option<Vec<i64>>> {
        if self.has(name) { self.ints(name).map(Some) } else { Ok(None) }
    }

    /// Integers, the default where absent.
    pub fn ints_or(&self, name: &str, default: &[i64]) -> Result<Vec<i64>> {
        if self.has(name) { self.ints(name) } else { Ok(default.to_vec()) }
    }

    pub fn bool_or(&self, name: &str, default: bool) -> Result<bool> {
        match self.get(name) {
            None => Ok(default),
            Some(Val::Bool(b)) => Ok(*b),
            Some(Val::Int(e)) if e.as_int().is_some() => Ok(!e.is_int(0)),
            Some(_) => Err(self.wrong(name, "a bool known when lowering")),
        }
    }

    pub fn float(&self, name: &str) -> Result<f64> {
        match self.required(name)? {
            Val::Float(f) => Ok(*f),
            Val::Int(e) if e.as_int().is_some() => Ok(e.constant() as f64),
            Val::Bool(b) => Ok(*b as i64 as f64),
            _ => Err(self.wrong(name, "a number known when lowering")),
        }
    }

    pub fn float_or(&self, name: &str, default: f64) -> Result<f64> {
        if self.has(name) { self.float(name) } else { Ok(default) }
    }

    pub fn opt_float(&self, name: &str) -> Result<Option<f64>> {
        if self.has(name) { self.float(name).map(Some) } else { Ok(None) }
    }

    pub fn floats(&self, name: &str) -> Result<Vec<f64>> {
        match self.required(name)? {
            Val::List(list) => list
                .iter()
                .map(|v| match v {
                    Val::Float(f) => Ok(*f),
                    Val::Int(e) if e.as_int().is_some() => Ok(e.constant() as f64),
                    _ => Err(self.wrong(name, "a list of numbers")),
                })
                .collect(),
            _ => Err(self.wrong(name, "a list of numbers")),
        }
    }

    pub fn number(&self, name: &str) -> Result<Number> {
        match self.required(name)? {
            Val::Float(f) => Ok(Number::Scalar(Scalar::Float(*f))),
            Val::Bool(b) => Ok(Number::Scalar(Scalar::Bool(*b))),
            Val::ComplexScalar(re, im) => Ok(Number::Scalar(Scalar::Complex(*re, *im))),
            Val::Int(e) => Ok(match e.as_int() {
                Some(i) => Number::Scalar(Scalar::Int(i)),
                None => Number::Int(e.clone()),
            }),
            Val::SymFloat(v) | Val::BoolValue(v) => Ok(Number::Value(*v)),
            Val::SymBool(c) => Ok(Number::Int(Expr::select(c, &Expr::int(1), &Expr::int(0)))),
            _ => Err(self.wrong(name, "a number")),
        }
    }

    /// A number that must be known when lowering.
    pub fn scalar(&self, name: &str) -> Result<Scalar> {
        match self.number(name)? {
            Number::Scalar(s) => Ok(s),
            _ => Err(self.unsupported(format!("a number known only at run time as {name}"))),
        }
    }

    pub fn scalar_or(&self, name: &str, default: Scalar) -> Result<Scalar> {
        if self.has(name) { self.scalar(name) } else { Ok(default) }
    }

    pub fn opt_scalar(&self, name: &str) -> Result<Option<Scalar>> {
        if self.has(name) { self.scalar(name).map(Some) } else { Ok(None) }
    }

    pub fn dtype(&self, name: &str) -> Result<Option<DType>> {
        match self.get(name) {
            None => Ok(None),
            Some(Val::DType(d)) => Ok(Some(*d)),
            Some(_) => Err(self.wrong(name, "a dtype")),
        }
    }

    pub fn str(&self, name: &str) -> Result<&str> {
        match self.required(name)? {
            Val::Str(s) => Ok(s),
            _ => Err(self.wrong(name, "a string")),
        }
    }

    pub fn str_or<'a>(&'a self, name: &str, default: &'a str) -> Result<&'a str> {
        if self.has(name) { self.str(name) } else { Ok(default) }
    }

    pub fn memory_format(&self, name: &str) -> Option<MemoryFormat> {
        match self.get(name) {
            Some(Val::MemoryFormat(m)) => Some(*m),
            _ => None,
        }
    }
}
