//! Reductions and scans.

use douse_core::pointwise::Combine;
use douse_core::sym::Expr;
use douse_core::{DType, Result, Scalar};

use super::{Builder, fault};
use crate::graph::Value;
use crate::op::Op;

impl Builder {
    fn without(&self, x: Value, dims: &[usize]) -> Vec<Expr> {
        self.shape(x).iter().enumerate().filter(|(d, _)| !dims.contains(d)).map(|(_, s)| s.clone()).collect()
    }

    /// Combines over `dims`, which the result lacks.
    pub fn reduce(&mut self, op: Combine, x: Value, dims: &[usize]) -> Result<Value> {
        let mut dims = dims.to_vec();
        dims.sort_unstable();
        dims.dedup();
        let dtype = self.dtype(x);
        if !op.takes().accepts(dtype) || dims.iter().any(|d| *d >= self.rank(x)) {
            return Err(fault(format!("{op} of {dtype} over {dims:?} of rank {}", self.rank(x))));
        }
        if dims.is_empty() {
            return Ok(x);
        }
        let shape = self.without(x, &dims);
        Ok(self.push1(Op::Reduce { op, dims }, vec![x], dtype, shape))
    }

    /// Combines over `dims`, which stay with size 1.
    pub fn reduce_keep(&mut self, op: Combine, x: Value, dims: &[usize]) -> Result<Value> {
        let mut shape = self.shape(x).to_vec();
        let reduced = self.reduce(op, x, dims)?;
        for d in dims {
            shape[*d] = Expr::int(1);
        }
        self.reshape(reduced, shape)
    }

    /// (extreme, int64 position) over `dims`.
    pub fn arg_reduce(&mut self, max: bool, x: Value, dims: &[usize]) -> Result<(Value, Value)> {
        let mut dims = dims.to_vec();
        dims.sort_unstable();
        let (dtype, shape) = (self.dtype(x), self.without(x, &dims));
        let results =
            self.push(Op::ArgReduce { max, dims }, vec![x], vec![(dtype, shape.clone()), (DType::I64, shape)]);
        Ok((results[0], results[1]))
    }

    pub fn scan(&mut self, op: Combine, x: Value, dim: usize) -> Result<Value> {
        let (dtype, shape) = (self.dtype(x), self.shape(x).to_vec());
        if !op.takes().accepts(dtype) || dim >= shape.len() {
            return Err(fault(format!("scan by {op} of {dtype} along {dim}")));
        }
        if shape[dim].is_int(1) {
            return Ok(x);
        }
        Ok(self.push1(Op::Scan { op, dim }, vec![x], dtype, shape))
    }

    /// (running extreme, its int64 position along `dim`).
    pub fn arg_scan(&mut self, max: bool, x: Value, dim: usize) -> Result<(Value, Value)> {
        let (dtype, shape) = (self.dtype(x), self.shape(x).to_vec());
        if shape.get(dim).is_some_and(|n| n.is_int(1)) {
            return Ok((x, self.full(DType::I64, shape, Scalar::Int(0))));
        }
        let results = self.push(Op::ArgScan { max, dim }, vec![x], vec![(dtype, shape.clone()), (DType::I64, shape)]);
        Ok((results[0], results[1]))
    }
}
