//! Real and imaginary parts: operators that are linear in their operands are written once over parts, for real and complex tensors.

use douse_core::pointwise::{Binary, Combine, Unary};
use douse_core::{DType, Result, Scalar};
use douse_ir::Value;

use super::args::{Args, Val};
use super::importer::Importer;
use super::tensor::Tensor;

/// A tensor by its parts, both of PyTorch's shape; a real one has no imaginary part.
#[derive(Clone, Copy, Debug)]
pub struct Parts {
    pub re: Value,
    pub im: Option<Value>,
}

impl From<Value> for Parts {
    fn from(re: Value) -> Parts {
        Parts { re, im: None }
    }
}

impl Parts {
    pub fn is_complex(&self) -> bool {
        self.im.is_some()
    }

    /// The same function of each part, one that is linear and keeps real what is real.
    pub fn map(self, mut f: impl FnMut(Value) -> Result<Value>) -> Result<Parts> {
        let re = f(self.re)?;
        let im = self.im.map(f).transpose()?;
        Ok(Parts { re, im })
    }

    /// The complex conjugate.
    pub fn conj(self, imp: &mut Importer) -> Result<Parts> {
        let im = self.im.map(|im| imp.b.unary(Unary::Neg, im)).transpose()?;
        Ok(Parts { re: self.re, im })
    }

    /// Both parts in a real dtype.
    pub fn cast(self, imp: &mut Importer, dtype: DType) -> Parts {
        Parts { re: imp.b.cast(self.re, dtype), im: self.im.map(|im| imp.b.cast(im, dtype)) }
    }

    /// The sum or difference, broadcast.
    pub fn add(self, imp: &mut Importer, other: Parts, op: Binary) -> Result<Parts> {
        let re = imp.b.binary(op, self.re, other.re)?;
        let im = match (self.im, other.im) {
            (Some(a), Some(b)) => Some(imp.b.binary(op, a, b)?),
            (None, None) => None,
            (a, b) => {
                let zero = imp.b.full_like(re, Scalar::Int(0));
                let (a, b) = (a.unwrap_or(zero), b.unwrap_or(zero));
                Some(imp.b.binary(op, a, b)?)
            }
        };
        Ok(Parts { re, im })
    }

    /// A product by any bilinear function, in four real ones where both are complex.
    pub fn product(
        self,
        imp: &mut Importer,
        other: Parts,
        mut f: impl FnMut(&mut Importer, Value, Value) -> Result<Value>,
    ) -> Result<Parts> {
        let re = f(imp, self.re, other.re)?;
        Ok(match (self.im, other.im) {
            (None, None) => re.into(),
            (Some(im), None) => Parts { re, im: Some(f(imp, im, other.re)?) },
            (None, Some(im)) => Parts { re, im: Some(f(imp, self.re, im)?) },
            (Some(a), Some(b)) => {
                let both = f(imp, a, b)?;
                let re = imp.b.binary(Binary::Sub, re, both)?;
                let (x, y) = (f(imp, self.re, b)?, f(imp, a, other.re)?);
                Parts { re, im: Some(imp.b.binary(Binary::Add, x, y)?) }
            }
        })
    }

    /// The elementwise product, broadcast.
    pub fn mul(self, imp: &mut Importer, other: Parts) -> Result<Parts> {
        self.product(imp, other, |imp, a, b| {
            let op = if imp.b.dtype(a).is_bool() { Binary::And } else { Binary::Mul };
            imp.b.binary(op, a, b)
        })
    }

    /// Times a number of the program.
    pub fn scale(self, imp: &mut Importer, number: Parts) -> Result<Parts> {
        let one = |v: Value, imp: &Importer| imp.b.constant_scalar(v).is_some_and(|s| s.to_f64() == 1.0);
        if number.im.is_none() && one(number.re, imp) { Ok(self) } else { self.mul(imp, number) }
    }

    pub fn sum(self, imp: &mut Importer, dims: &[usize]) -> Result<Parts> {
        self.map(|v| imp.b.reduce(Combine::Sum, v, dims))
    }

    /// Sums over dimensions, which stay with size 1, in the compute dtype; rounded once.
    pub fn sum_keep(self, imp: &mut Importer, dims: &[usize]) -> Result<Parts> {
        if dims.is_empty() {
            return Ok(self);
        }
        let own = imp.b.dtype(self.re);
        let wide = self.cast(imp, imp.compute_dtype(own));
        Ok(wide.map(|v| imp.b.reduce_keep(Combine::Sum, v, dims))?.cast(imp, own))
    }

    /// As the result of a row.
    pub fn val(self, imp: &mut Importer) -> Result<Val> {
        let Some(im) = self.im else { return Ok(self.re.into()) };
        let rank = imp.b.rank(self.re);
        let (re, im) = (imp.b.unsqueeze(self.re, rank)?, imp.b.unsqueeze(im, rank)?);
        Ok(Val::Complex(imp.b.concat(&[re, im], rank)?))
    }
}

impl Importer {
    /// The parts of a tensor argument.
    pub fn parts(&mut self, a: &Args, name: &str) -> Result<Parts> {
        let t = a.tensor(name)?;
        self.parts_of(t)
    }

    pub fn parts_of(&mut self, t: Tensor) -> Result<Parts> {
        let value = self.read(t)?;
        if !self.is_complex(t) {
            return Ok(value.into());
        }
        let last = self.b.rank(value) - 1;
        let mut part = |i: i64| self.b.select_index(value, last, &douse_core::sym::Expr::int(i));
        let (re, im) = (part(0)?, part(1)?);
        Ok(Parts { re, im: Some(im) })
    }

    /// A number argument as 0-d parts of a real dtype.
    pub fn number_parts(&mut self, a: &Args, name: &str, default: i64, dtype: DType) -> Result<Parts> {
        if !a.has(name) {
            return Ok(self.b.full(dtype, vec![], Scalar::Int(default)).into());
        }
        if let super::args::Number::Scalar(Scalar::Complex(re, im)) = a.number(name)? {
            let re = self.b.full(dtype, vec![], Scalar::Float(re));
            return Ok(Parts { re, im: Some(self.b.full(dtype, vec![], Scalar::Float(im))) });
        }
        let number = a.number(name)?;
        Ok(self.number_value(&number, dtype).into())
    }
}
