//! The same bits under a dtype of another size: each element split into several, or several joined, the lowest bits first.

use douse_core::pointwise::Binary;
use douse_core::sym::{Compare, Cond, Expr};
use douse_core::{DType, Error, Result, Scalar};
use douse_ir::{Value, coordinates};

use super::importer::Importer;

/// The signed integers of a dtype's size.
fn integer(dtype: DType) -> DType {
    match dtype.size() {
        1 => DType::I8,
        2 => DType::I16,
        4 => DType::I32,
        _ => DType::I64,
    }
}

impl Importer {
    /// `x` seen as another dtype, along its last dimension, which grows or shrinks by the sizes' ratio.
    pub fn repack(&mut self, x: Value, dtype: DType) -> Result<Value> {
        if self.b.rank(x) == 0 {
            return Err(Error::invalid_program("a number seen as a dtype of another size"));
        }
        let (own, wanted) = (self.b.dtype(x).size(), dtype.size());
        if own > wanted { self.split_bits(x, dtype, own / wanted) } else { self.join_bits(x, dtype, wanted / own) }
    }

    fn as_integer(&mut self, x: Value) -> Result<Value> {
        let bits = self.b.bitcast(x, integer(self.b.dtype(x)))?;
        Ok(self.b.cast(bits, DType::I64))
    }

    fn of_integer(&mut self, x: Value, dtype: DType) -> Result<Value> {
        let bits = self.b.cast(x, integer(dtype));
        self.b.bitcast(bits, dtype)
    }

    fn split_bits(&mut self, x: Value, dtype: DType, parts: usize) -> Result<Value> {
        let bits = self.as_integer(x)?;
        let mut shape = self.b.shape(x).to_vec();
        let last = shape.len() - 1;
        let parts = Expr::int(parts as i64);
        shape[last] = (&shape[last] * &parts).simplify(self.b.ranges());
        let mut map = coordinates(shape.len());
        let part = map[last].modulo(&parts);
        map[last] = map[last].floor_div(&parts);
        let spread = self.b.remap(bits, shape.clone(), map)?;
        let shift = self.b.iota(shape, &part * (8 * dtype.size() as i64));
        let shifted = self.b.binary(Binary::ShiftRight, spread, shift)?;
        self.of_integer(shifted, dtype)
    }

    fn join_bits(&mut self, x: Value, dtype: DType, parts: usize) -> Result<Value> {
        let width = 8 * self.b.dtype(x).size() as i64;
        let bits = self.as_integer(x)?;
        let mut shape = self.b.shape(x).to_vec();
        let last = shape.len() - 1;
        let ratio = Expr::int(parts as i64);
        let whole = Cond::compare(Compare::Eq, &shape[last].modulo(&ratio), &Expr::int(0));
        self.require(whole, format_args!("a last dimension of {} is no whole number of {dtype}", shape[last]));
        shape[last] = shape[last].floor_div(&ratio).simplify(self.b.ranges());
        let mut joined = None;
        for part in 0..parts as i64 {
            let mut map = coordinates(shape.len());
            map[last] = &(&map[last] * &ratio) + part;
            let piece = self.b.remap(bits, shape.clone(), map)?;
            let piece = self.b.binary_scalar(Binary::And, piece, Scalar::Int((1 << width) - 1))?;
            let piece = self.b.binary_scalar(Binary::ShiftLeft, piece, Scalar::Int(part * width))?;
            joined = Some(match joined {
                Some(joined) => self.b.binary(Binary::Or, joined, piece)?,
                None => piece,
            });
        }
        let joined = joined.ok_or_else(|| Error::internal("no parts to join"))?;
        self.of_integer(joined, dtype)
    }
}
