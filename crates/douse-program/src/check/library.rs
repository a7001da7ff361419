//! Library steps: ranks and dtypes of their views.

use douse_core::{DType, Result};

use super::scope::Scope;
use super::{RANK, entry, fault};
use crate::library::{Attention, Convolution, Library, Linalg, VarlenAttention, View, holds_products};
use crate::plan::Plan;

/// The view's dtype and rank, once it is known to be sound.
type Shape = (DType, usize);

pub struct Checker<'a> {
    pub plan: &'a Plan,
    pub scope: Scope<'a>,
}

impl Checker<'_> {
    fn view(&self, name: &str, view: &View) -> Result<Shape> {
        let check = || {
            let buffer = entry(&self.plan.buffers, view.buffer, "buffer")?;
            if view.sizes.len() != view.strides.len() || view.sizes.len() > RANK {
                return fault(format!("{} sizes and {} strides", view.sizes.len(), view.strides.len()));
            }
            self.scope.expr(&view.offset)?;
            self.scope.exprs(view.sizes.iter().chain(&view.strides))?;
            Ok((buffer.dtype, view.sizes.len()))
        };
        check().map_err(|e| e.at(name))
    }

    fn want(&self, name: &str, view: &View, expected: Shape) -> Result<()> {
        let (dtype, rank) = self.view(name, view)?;
        if (dtype, rank) == expected {
            return Ok(());
        }
        fault(format!("{name}: {dtype} of rank {rank}, expected {} of rank {}", expected.0, expected.1))
    }

    fn at_least(&self, name: &str, shape: Shape, rank: usize) -> Result<()> {
        if shape.1 >= rank { Ok(()) } else { fault(format!("{name}: rank {}, expected at least {rank}", shape.1)) }
    }

    pub fn check(&self, step: &Library) -> Result<()> {
        match step {
            Library::MatMul { a, b, out } => {
                let shape = self.view("a", a)?;
                self.at_least("a", shape, 2)?;
                self.want("b", b, shape)?;
                let out_shape = self.view("out", out)?;
                if holds_products(out_shape.0, shape.0) && out_shape.1 == shape.1 {
                    return Ok(());
                }
                self.want("out", out, shape)
            }
            Library::Convolution(convolution) => self.convolution(convolution),
            Library::Attention(attention) => self.attention(attention),
            Library::Sort { input, values, indices, .. } | Library::TopK { input, values, indices, .. } => {
                let shape = self.view("input", input)?;
                self.at_least("input", shape, 1)?;
                self.want("values", values, shape)?;
                self.want("indices", indices, (DType::I64, shape.1))
            }
            Library::Nonzero { mask, out, symbol } => {
                let (dtype, _) = self.view("mask", mask)?;
                if dtype != DType::Bool {
                    return fault(format!("mask: {dtype}, expected bool"));
                }
                entry(&self.plan.symbols, *symbol, "symbol")?;
                self.want("out", out, (DType::I64, 2))
            }
            Library::SearchSorted { sorted, values, out, .. } => {
                let shape = self.view("values", values)?;
                let (dtype, rank) = self.view("sorted", sorted)?;
                if dtype != shape.0 || (rank != 1 && rank != shape.1) {
                    return fault(format!(
                        "sorted: {dtype} of rank {rank} for values of {} of rank {}",
                        shape.0, shape.1
                    ));
                }
                self.want("out", out, (DType::I64, shape.1))
            }
            Library::Linalg { kind, inputs, outputs } => self.linalg(*kind, inputs, outputs),
            Library::VarlenAttention(attention) => self.varlen(attention),
            Library::SegmentReduce { src, offsets, out, .. } => {
                let shape = self.view("src", src)?;
                self.at_least("src", shape, 1)?;
                let lengths = self.view("offsets", offsets)?;
                self.at_least("offsets", lengths, 1)?;
                if !lengths.0.is_int() {
                    return fault(format!("offsets: {}, expected an integer dtype", lengths.0));
                }
                self.want("out", out, shape)
            }
        }
    }

    fn convolution(&self, c: &Convolution) -> Result<()> {
        let shape = self.view("input", &c.input)?;
        if !(3..=5).contains(&shape.1) {
            return fault(format!("input: rank {}, expected 3 to 5", shape.1));
        }
        let spatial = shape.1 - 2;
        self.want("weight", &c.weight, shape)?;
        self.want("out", &c.out, shape)?;
        if let Some(bias) = &c.bias {
            self.want("bias", bias, (shape.0, 1))?;
        }
        if [c.stride.len(), c.padding.len(), c.dilation.len()] != [spatial; 3] {
            return fault(format!("stride, padding and dilation should be {spatial} each"));
        }
        if c.groups < 1 || c.stride.iter().chain(&c.dilation).any(|n| *n < 1) {
            return fault("groups, stride and dilation should be at least 1");
        }
        self.scope.exprs(&c.padding).map_err(|e| e.at("padding"))
    }

    fn attention(&self, a: &Attention) -> Result<()> {
        let shape = self.view("query", &a.query)?;
        if shape.1 != 4 || !shape.0.is_float() {
            return fault(format!("query: {} of rank {}, expected floats of rank 4", shape.0, shape.1));
        }
        self.want("key", &a.key, shape)?;
        self.want("value", &a.value, shape)?;
        self.want("out", &a.out, shape)?;
        let Some(mask) = &a.mask else { return Ok(()) };
        let (dtype, rank) = self.view("mask", mask)?;
        if rank != 4 || (dtype != DType::Bool && dtype != shape.0) {
            return fault(format!("mask: {dtype} of rank {rank}"));
        }
        Ok(())
    }

    fn varlen(&self, a: &VarlenAttention) -> Result<()> {
        let shape = self.view("query", &a.query)?;
        if shape.1 != 3 || !shape.0.is_float() {
            return fault(format!("query: {} of rank {}, expected floats of rank 3", shape.0, shape.1));
        }
        self.want("key", &a.key, shape)?;
        self.want("value", &a.value, shape)?;
        self.want("out", &a.out, shape)?;
        for (name, view) in [("cu_seq_q", &a.cu_seq_q), ("cu_seq_k", &a.cu_seq_k)] {
            let (dtype, rank) = self.view(name, view)?;
            if rank != 1 || !matches!(dtype, DType::I32 | DType::I64) {
                return fault(format!("{name}: {dtype} of rank {rank}, expected int32 or int64 of rank 1"));
            }
        }
        Ok(())
    }

    fn linalg(&self, kind: Linalg, inputs: &[View], outputs: &[View]) -> Result<()> {
        // How many of the last dimensions each view has beyond the leading ones.
        let (takes, gives): (&[usize], &[usize]) = match kind {
            Linalg::Det => (&[2], &[0]),
            Linalg::Slogdet => (&[2], &[0, 0]),
            Linalg::Inverse | Linalg::Cholesky | Linalg::MatrixExp => (&[2], &[2]),
            Linalg::Solve => (&[2, 2], &[2]),
            Linalg::Eigh => (&[2], &[1, 2]),
            Linalg::Svd => (&[2], &[2, 1, 2]),
            Linalg::Qr => (&[2], &[2, 2]),
        };
        if inputs.len() != takes.len() || outputs.len() != gives.len() {
            return fault(format!("{kind:?} of {} inputs and {} outputs", inputs.len(), outputs.len()));
        }
        let mut leading = None;
        let views =
            inputs.iter().zip(takes).map(|v| ("input", v)).chain(outputs.iter().zip(gives).map(|v| ("output", v)));
        for (name, (view, own)) in views {
            let (dtype, rank) = self.view(name, view)?;
            if !matches!(dtype, DType::F32 | DType::F64) {
                return fault(format!("{name}: {dtype}"));
            }
            let found = (dtype, rank.checked_sub(*own));
            if found.1.is_none() || *leading.get_or_insert(found) != found {
                return fault(format!("{name}: {dtype} of rank {rank} does not go with the others"));
            }
        }
        Ok(())
    }
}
