//! Tensors as operators that only move elements see them: real or complex alike.
//!
//! A complex tensor is a real value with a last dimension of 2. Rows that copy, gather or scatter elements work on the tensor's own
//! dimensions; what is here carries the parts along.

use douse_core::pointwise::{Binary, Combine};
use douse_core::sym::{Compare, Cond, Expr};
use douse_core::{DType, Error, Result, Scalar};
use douse_ir::{Constant, Value, coordinates};

use super::args::{Args, Val};
use super::importer::Importer;
use super::tensor::Tensor;

/// What a tensor holds, with PyTorch's dtype and shape.
#[derive(Clone, Debug)]
pub struct Data {
    /// Real; for a complex tensor with a last dimension of 2.
    pub value: Value,
    /// PyTorch's dtype, perhaps complex.
    pub dtype: DType,
    /// PyTorch's shape, without the last dimension of a complex tensor's value.
    pub shape: Vec<Expr>,
}

impl Data {
    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    pub fn numel(&self) -> Expr {
        Expr::product(&self.shape)
    }

    pub fn is_complex(&self) -> bool {
        self.dtype.is_complex()
    }

    /// A real value as data.
    pub fn real(imp: &Importer, value: Value) -> Data {
        Data { value, dtype: imp.b.dtype(value), shape: imp.b.shape(value).to_vec() }
    }

    /// As a row's result.
    pub fn val(self) -> Val {
        if self.is_complex() { Val::Complex(self.value) } else { Val::Value(self.value) }
    }

    /// A shape of the value for a shape of the tensor.
    fn parts(&self, mut shape: Vec<Expr>) -> Vec<Expr> {
        shape.extend(self.is_complex().then(|| Expr::int(2)));
        shape
    }

    /// A map over the tensor's dimensions, to coordinates of a tensor of `rank`, with the complex parts mapped to themselves.
    fn parts_map(&self, mut map: Vec<Expr>, rank: usize) -> Vec<Expr> {
        map.extend(self.is_complex().then(|| Expr::loop_var(rank)));
        map
    }

    fn with(&self, imp: &Importer, value: Value) -> Data {
        let mut shape = imp.b.shape(value).to_vec();
        if self.is_complex() {
            shape.pop();
        }
        Data { value, dtype: self.dtype, shape }
    }

    /// `self[map]` over `shape`.
    pub fn remap(&self, imp: &mut Importer, shape: Vec<Expr>, map: Vec<Expr>) -> Result<Data> {
        self.moved(imp, &[], shape, map, Cond::Bool(true), Scalar::Int(0))
    }

    /// `self[map]` over `shape` where `guard` holds, else `fill`; `indices` are of that shape. See `Builder::move_`.
    pub fn moved(
        &self,
        imp: &mut Importer,
        indices: &[Value],
        shape: Vec<Expr>,
        map: Vec<Expr>,
        guard: Cond,
        fill: Scalar,
    ) -> Result<Data> {
        let rank = shape.len();
        let indices = self.spread(imp, indices, &shape)?;
        let map = self.parts_map(map, rank);
        let whole = self.parts(shape);
        let value = if self.is_complex() && guard.as_bool() != Some(true) && fill.to_f64() != 0.0 {
            // The fill is a real number: its imaginary part is 0.
            let spread = imp.b.move_(self.value, &indices, whole.clone(), map, guard.clone(), Scalar::Int(0))?;
            let one = imp.b.full(self.dtype.real(), vec![], Scalar::Int(0));
            let imaginary = Cond::compare(Compare::Ne, &Expr::loop_var(rank), &Expr::int(0));
            let pad = imp.b.move_(one, &[], whole, vec![], guard.or(&imaginary), fill)?;
            imp.b.binary(Binary::Add, spread, pad)?
        } else {
            imp.b.move_(self.value, &indices, whole, map, guard, fill)?
        };
        Ok(self.with(imp, value))
    }

    /// Indices of a shape, repeated for the parts of a complex tensor.
    fn spread(&self, imp: &mut Importer, indices: &[Value], shape: &[Expr]) -> Result<Vec<Value>> {
        if !self.is_complex() {
            return Ok(indices.to_vec());
        }
        let whole = self.parts(shape.to_vec());
        indices.iter().map(|i| imp.b.remap(*i, whole.clone(), coordinates(shape.len()))).collect()
    }

    /// `self` with `self[map]` set to, or combined with, each element of `source`. See `Builder::scatter`.
    pub fn scattered(
        &self,
        imp: &mut Importer,
        source: &Data,
        indices: &[Value],
        map: Vec<Expr>,
        combine: Option<Combine>,
    ) -> Result<Data> {
        let indices = self.spread(imp, indices, &source.shape)?;
        let map = self.parts_map(map, source.rank());
        let value = imp.b.scatter(self.value, source.value, &indices, map, combine)?;
        Ok(self.with(imp, value))
    }

    pub fn reshape(&self, imp: &mut Importer, shape: Vec<Expr>) -> Result<Data> {
        let whole = self.parts(shape);
        let value = imp.b.reshape(self.value, whole)?;
        Ok(self.with(imp, value))
    }

    /// All elements in one dimension.
    pub fn flat(&self, imp: &mut Importer) -> Result<Data> {
        self.reshape(imp, vec![self.numel()])
    }

    pub fn expand(&self, imp: &mut Importer, shape: Vec<Expr>) -> Result<Data> {
        if !self.is_complex() {
            let value = imp.b.expand(self.value, shape)?;
            return Ok(self.with(imp, value));
        }
        // Leading dimensions are added before the parts.
        let added = shape.len().checked_sub(self.rank());
        let added = added.ok_or_else(|| Error::invalid_program("a tensor is expanded to fewer dimensions"))?;
        let mut own = vec![Expr::int(1); added];
        own.extend_from_slice(&self.shape);
        let raised = self.reshape(imp, own)?;
        let value = imp.b.expand(raised.value, self.parts(shape))?;
        Ok(self.with(imp, value))
    }

    pub fn permute(&self, imp: &mut Importer, dims: &[usize]) -> Result<Data> {
        let mut dims = dims.to_vec();
        dims.extend(self.is_complex().then_some(self.rank()));
        let value = imp.b.permute(self.value, &dims)?;
        Ok(self.with(imp, value))
    }

    pub fn unsqueeze(&self, imp: &mut Importer, dim: usize) -> Result<Data> {
        let value = imp.b.unsqueeze(self.value, dim)?;
        Ok(self.with(imp, value))
    }

    /// With at least one dimension.
    pub fn raised(&self, imp: &mut Importer) -> Result<Data> {
        if self.rank() == 0 { self.reshape(imp, vec![Expr::int(1)]) } else { Ok(self.clone()) }
    }

    /// In another dtype; complex may become real only by its real part, as in `copy_`.
    pub fn cast(&self, imp: &mut Importer, dtype: DType) -> Result<Data> {
        let value = match (self.is_complex(), dtype.is_complex()) {
            (false, false) | (true, true) => imp.b.cast(self.value, dtype.real()),
            (true, false) => {
                let rank = self.rank();
                let part = imp.b.select_index(self.value, rank, &Expr::int(0))?;
                imp.b.cast(part, dtype)
            }
            (false, true) => {
                let value = imp.b.cast(self.value, dtype.real());
                let re = imp.b.unsqueeze(value, self.rank())?;
                let im = imp.b.full_like(re, Scalar::Int(0));
                imp.b.concat(&[re, im], self.rank())?
            }
        };
        Ok(Data { value, dtype, shape: self.shape.clone() })
    }

    /// Zeros, or another whole number, of a shape.
    pub fn full(imp: &mut Importer, dtype: DType, shape: Vec<Expr>, scalar: Scalar) -> Result<Data> {
        let value = imp.b.full(dtype.real(), shape.clone(), scalar);
        Data { value, dtype: dtype.real(), shape }.cast(imp, dtype)
    }

    /// One after the other along a dimension; all of one dtype.
    pub fn concat(imp: &mut Importer, all: &[Data], dim: usize) -> Result<Data> {
        let first = all.first().ok_or_else(|| Error::invalid_program("concatenation of nothing"))?;
        let values: Vec<Value> = all.iter().map(|d| d.value).collect();
        let value = imp.b.concat(&values, dim)?;
        Ok(first.with(imp, value))
    }

    /// `then` where a bool of the tensor's shape holds, else `otherwise`; both of one dtype, all broadcast.
    pub fn select(imp: &mut Importer, cond: Value, then: &Data, otherwise: &Data) -> Result<Data> {
        let shapes = [imp.b.shape(cond).to_vec(), then.shape.clone(), otherwise.shape.clone()];
        let mut shape = imp.b.broadcast_shapes(&shapes[0], &shapes[1])?;
        shape = imp.b.broadcast_shapes(&shape, &shapes[2])?;
        let then = then.expand(imp, shape.clone())?;
        let otherwise = otherwise.expand(imp, shape.clone())?;
        let mut cond = imp.b.expand(cond, shape.clone())?;
        if then.is_complex() {
            cond = imp.b.unsqueeze(cond, shape.len())?;
        }
        let value = imp.b.select(cond, then.value, otherwise.value)?;
        Ok(then.with(imp, value))
    }
}

impl Importer {
    /// What a tensor holds, complex or not.
    pub fn data_of(&mut self, t: Tensor) -> Result<Data> {
        Ok(Data { value: self.read(t)?, dtype: self.dtype_of(t), shape: self.shape_of(t)? })
    }

    /// What a tensor argument holds, complex or not.
    pub fn data(&mut self, a: &Args, name: &str) -> Result<Data> {
        let t = a.tensor(name)?;
        self.data_of(t)
    }

    pub fn all_data(&mut self, a: &Args, name: &str) -> Result<Vec<Data>> {
        a.tensors(name)?.into_iter().map(|t| self.data_of(t)).collect()
    }

    /// The dtype that sums of a dtype are computed in: parts of at least float32.
    pub fn compute_parts(&self, dtype: DType) -> DType {
        if dtype == DType::C32 { DType::C64 } else { self.compute_dtype(dtype) }
    }

    /// A constant that import makes: little-endian elements in row-major order.
    pub fn literal(&mut self, dtype: DType, shape: Vec<Expr>, bytes: Vec<u8>) -> Value {
        let number = self.b.module.constants.len() as u32;
        self.b.module.constants.push(Constant { name: format!("literal_{number}"), bytes: bytes.into() });
        self.b.constant(number, dtype, shape)
    }

    /// A tensor or number argument, in a dtype that may be complex.
    pub fn operand_data(&mut self, a: &Args, name: &str, dtype: DType) -> Result<Data> {
        if let Some(Val::Tensor(_)) = a.get(name) {
            return self.data(a, name)?.cast(self, dtype);
        }
        if let (Some(Val::ComplexScalar(re, im)), true) = (a.get(name), dtype.is_complex()) {
            let (re, im) = (*re, *im);
            let one = vec![Expr::int(1)];
            let re = self.b.full(dtype.real(), one.clone(), Scalar::Float(re));
            let im = self.b.full(dtype.real(), one, Scalar::Float(im));
            let value = self.b.concat(&[re, im], 0)?;
            return Ok(Data { value, dtype, shape: vec![] });
        }
        let number = a.number(name)?;
        let value = self.number_value(&number, dtype.real());
        Data { value, dtype: dtype.real(), shape: vec![] }.cast(self, dtype)
    }
}
