//! Dtype promotion, as `torch.result_type` has it.

use douse_core::dtype::Class;
use douse_core::{DType, Scalar};

/// The dtype that two tensors of these dtypes are brought to (`torch.promote_types`).
pub fn promote_types(a: DType, b: DType) -> DType {
    if a == b {
        return a;
    }
    let (low, high) = if a.class() <= b.class() { (a, b) } else { (b, a) };
    match (low.class(), high.class()) {
        (Class::Bool, _) => high,
        (Class::Int, Class::Int) => integers(low, high),
        (Class::Int, _) => high,
        (Class::Float, Class::Float) => floats(low, high),
        (Class::Float, Class::Complex) => floats(low, high.real()).complex().unwrap_or(DType::C64),
        (Class::Complex, Class::Complex) => floats(low.real(), high.real()).complex().unwrap_or(DType::C64),
        _ => high,
    }
}

fn integers(a: DType, b: DType) -> DType {
    if a.is_signed() == b.is_signed() {
        return if a.size() >= b.size() { a } else { b };
    }
    let (signed, unsigned) = if a.is_signed() { (a, b) } else { (b, a) };
    if signed.size() > unsigned.size() {
        return signed;
    }
    match unsigned.size() {
        1 => DType::I16,
        2 => DType::I32,
        _ => DType::I64,
    }
}

fn floats(a: DType, b: DType) -> DType {
    match (a.size(), b.size()) {
        _ if a == b => a,
        (x, y) if x > y => a,
        (x, y) if x < y => b,
        // float16 with bfloat16; two kinds of float8 have no common dtype in PyTorch either.
        _ => DType::F32,
    }
}

/// What takes part in a promotion: tensors with dimensions weigh more than 0-d tensors, those more than Python numbers.
#[derive(Clone, Copy, Debug, Default)]
pub struct ResultType {
    dims: Option<DType>,
    zero_dims: Option<DType>,
    numbers: Option<DType>,
}

fn join(slot: &mut Option<DType>, dtype: DType) {
    *slot = Some(slot.map_or(dtype, |d| promote_types(d, dtype)));
}

/// The heavier dtype, unless the lighter one is of a higher class.
fn weigh(heavy: Option<DType>, light: Option<DType>) -> Option<DType> {
    let (Some(h), Some(l)) = (heavy, light) else { return heavy.or(light) };
    Some(match (h.class(), l.class()) {
        (Class::Float, Class::Complex) => h.complex().unwrap_or(l),
        (hc, lc) if lc > hc => promote_types(h, l),
        _ => h,
    })
}

impl ResultType {
    pub fn tensor(&mut self, dtype: DType, rank: usize) -> &mut ResultType {
        join(if rank == 0 { &mut self.zero_dims } else { &mut self.dims }, dtype);
        self
    }

    pub fn number(&mut self, scalar: Scalar) -> &mut ResultType {
        let dtype = match scalar {
            Scalar::Bool(_) => DType::Bool,
            Scalar::Int(_) => DType::I64,
            Scalar::Float(_) => DType::F32,
            Scalar::Complex(..) => DType::C64,
        };
        join(&mut self.numbers, dtype);
        self
    }

    pub fn dtype(&self) -> DType {
        weigh(weigh(self.dims, self.zero_dims), self.numbers).unwrap_or(DType::F32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use DType::*;

    #[test]
    fn types_promote_as_in_pytorch() {
        for (a, b, wanted) in [
            (U8, I8, I16),
            (I8, I64, I64),
            (U8, I16, I16),
            (I64, F16, F16),
            (F16, BF16, F32),
            (Bool, U8, U8),
            (F64, C64, C128),
            (F16, C32, C32),
            (I32, C64, C64),
        ] {
            assert_eq!(promote_types(a, b), wanted, "{a} {b}");
            assert_eq!(promote_types(b, a), wanted, "{b} {a}");
        }
    }

    #[test]
    fn dimensions_weigh_more() {
        assert_eq!(ResultType::default().tensor(F32, 1).tensor(F64, 0).dtype(), F32);
        assert_eq!(ResultType::default().tensor(I32, 1).tensor(F64, 0).dtype(), F64);
        assert_eq!(ResultType::default().tensor(I32, 1).number(Scalar::Float(0.5)).dtype(), F32);
        assert_eq!(ResultType::default().tensor(I8, 1).number(Scalar::Int(1000)).dtype(), I8);
        assert_eq!(ResultType::default().tensor(F16, 2).number(Scalar::Complex(0.0, 1.0)).dtype(), C32);
        assert_eq!(ResultType::default().tensor(Bool, 1).number(Scalar::Int(1)).dtype(), I64);
    }
}
