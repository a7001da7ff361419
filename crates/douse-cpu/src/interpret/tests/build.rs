//! Short ways to write kernels and their memory.

use douse_core::pointwise::{Binary, Combine, Unary};
use douse_core::sym::Expr;
use douse_core::{DType, Scalar};
use douse_program::kernel::{Access, Effect, Inst, Kernel, Op, Param, Reg, Stage};
use half::{bf16, f16};

/// Elements of a parameter.
#[derive(Clone, Debug, PartialEq)]
pub struct Memory {
    pub dtype: DType,
    pub bytes: Vec<u8>,
}

impl Memory {
    pub fn of(dtype: DType, values: impl IntoIterator<Item = f64>) -> Memory {
        let mut memory = Memory { dtype, bytes: Vec::new() };
        for value in values {
            let bytes = match dtype {
                DType::F32 => (value as f32).to_ne_bytes().to_vec(),
                DType::F64 => value.to_ne_bytes().to_vec(),
                DType::F16 => f16::from_f64(value).to_ne_bytes().to_vec(),
                DType::BF16 => bf16::from_f64(value).to_ne_bytes().to_vec(),
                DType::Bool => vec![(value != 0.0) as u8],
                DType::F8E5M2 => vec![douse_core::float8::e5m2_from_f32(value as f32)],
                DType::F8E4M3FN => vec![douse_core::float8::e4m3fn_from_f32(value as f32)],
                other => (value as i64).to_ne_bytes()[..other.size()].to_vec(),
            };
            memory.bytes.extend(bytes);
        }
        memory
    }

    pub fn zeros(dtype: DType, len: usize) -> Memory {
        Memory { dtype, bytes: vec![0; len * dtype.size()] }
    }

    pub fn f32(values: &[f32]) -> Memory {
        Memory::of(DType::F32, values.iter().map(|x| *x as f64))
    }

    pub fn i64(values: &[i64]) -> Memory {
        Memory { dtype: DType::I64, bytes: values.iter().flat_map(|x| x.to_ne_bytes()).collect() }
    }

    pub fn len(&self) -> usize {
        self.bytes.len() / self.dtype.size()
    }

    pub fn floats(&self) -> Vec<f64> {
        (0..self.len()).map(|i| self.float(i)).collect()
    }

    pub fn ints(&self) -> Vec<i64> {
        (0..self.len()).map(|i| self.int(i)).collect()
    }

    fn element(&self, i: usize) -> &[u8] {
        &self.bytes[i * self.dtype.size()..][..self.dtype.size()]
    }

    pub fn float(&self, i: usize) -> f64 {
        let bytes = self.element(i);
        match self.dtype {
            DType::F32 => f32::from_ne_bytes(bytes.try_into().unwrap()) as f64,
            DType::F64 => f64::from_ne_bytes(bytes.try_into().unwrap()),
            DType::F16 => f16::from_ne_bytes(bytes.try_into().unwrap()).to_f64(),
            DType::BF16 => bf16::from_ne_bytes(bytes.try_into().unwrap()).to_f64(),
            DType::F8E5M2 => douse_core::float8::e5m2_to_f32(bytes[0]) as f64,
            DType::F8E4M3FN => douse_core::float8::e4m3fn_to_f32(bytes[0]) as f64,
            _ => self.int(i) as f64,
        }
    }

    pub fn int(&self, i: usize) -> i64 {
        let bytes = self.element(i);
        match self.dtype {
            DType::I8 => bytes[0] as i8 as i64,
            DType::U8 | DType::Bool => bytes[0] as i64,
            DType::I16 => i16::from_ne_bytes(bytes.try_into().unwrap()) as i64,
            DType::U16 => u16::from_ne_bytes(bytes.try_into().unwrap()) as i64,
            DType::I32 => i32::from_ne_bytes(bytes.try_into().unwrap()) as i64,
            DType::U32 => u32::from_ne_bytes(bytes.try_into().unwrap()) as i64,
            _ => i64::from_ne_bytes(bytes.try_into().unwrap()),
        }
    }
}

/// A stage being written.
#[derive(Clone)]
pub struct Body {
    pub stage: Stage,
}

impl Body {
    pub fn new(inner: &[Expr]) -> Body {
        Body { stage: Stage { inner: inner.to_vec(), body: vec![], effects: vec![] } }
    }

    pub fn push(&mut self, op: Op, dtype: DType) -> Reg {
        self.stage.body.push(Inst { op, dtype });
        self.stage.body.len() as Reg - 1
    }

    pub fn dtype(&self, reg: Reg) -> DType {
        self.stage.body[reg as usize].dtype
    }

    pub fn constant(&mut self, value: Scalar, dtype: DType) -> Reg {
        self.push(Op::Const(value), dtype)
    }

    pub fn load(&mut self, param: u32, dtype: DType, index: &Expr) -> Reg {
        self.push(Op::Load { param, index: index.clone(), guard: None }, dtype)
    }

    pub fn index(&mut self, index: &Expr) -> Reg {
        self.push(Op::Index(index.clone()), DType::I64)
    }

    pub fn local(&mut self, local: u32, dtype: DType) -> Reg {
        self.push(Op::Local(local), dtype)
    }

    pub fn unary(&mut self, op: Unary, a: Reg) -> Reg {
        self.push(Op::Unary(op, a), op.result(self.dtype(a)))
    }

    pub fn binary(&mut self, op: Binary, a: Reg, b: Reg) -> Reg {
        self.push(Op::Binary(op, a, b), op.result(self.dtype(a)))
    }

    pub fn cast(&mut self, a: Reg, dtype: DType) -> Reg {
        self.push(Op::Cast(a), dtype)
    }

    pub fn store(&mut self, param: u32, index: &Expr, value: Reg) {
        self.stage.effects.push(Effect::Store { param, index: index.clone(), value, guard: None });
    }

    pub fn reduce(&mut self, op: Combine, value: Reg, local: u32) {
        self.stage.effects.push(Effect::Reduce { op, value, local });
    }
}

pub fn int(value: i64) -> Expr {
    Expr::int(value)
}

pub fn var(i: usize) -> Expr {
    Expr::loop_var(i)
}

pub fn kernel(params: &[(DType, Access)], outer: &[Expr], locals: &[DType], stages: Vec<Body>) -> Kernel {
    Kernel {
        name: "test".into(),
        params: params.iter().map(|(dtype, access)| Param { dtype: *dtype, access: *access }).collect(),
        outer: outer.to_vec(),
        stages: stages.into_iter().map(|b| b.stage).collect(),
        locals: locals.to_vec(),
        ordered: false,
        comment: vec![],
    }
}
