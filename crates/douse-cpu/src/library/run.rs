//! From a step of a plan to an operation: views become tensors, dtypes become types.

use bytemuck::Pod;
use douse_core::{DType, Error, Result};
use douse_program::library::{self as step, Library, View};
use half::{bf16, f16};

use super::attention::{self, AttentionMask, varlen};
use super::convolution::{Operands, Steps, convolve_float, convolve_int};
use super::linalg::linalg;
use super::matmul::{matmul_float, matmul_int};
use super::nonzero::nonzero;
use super::scratch::Scratch;
use super::search::search_sorted;
use super::segment::{Reduction, segment_reduce};
use super::sort::{sort, topk};
use super::tensor::{Offsets, Tensor, TensorMut};
use super::work::Work;
use crate::strided::{Context, Strided, StridedMut};

/// Runs `$body` with `$t` as the type of a dtype out of the given table; other dtypes are refused.
macro_rules! by_dtype {
    ($dtype:expr, $what:literal, $t:ident, [$($d:ident $type:ty),*], $body:expr) => {
        match $dtype {
            $(DType::$d => { type $t = $type; $body })*
            other => Err(Error::not_supported(format!("{} of {other} is not supported on the CPU", $what))),
        }
    };
}

/// `$body` with a type for every floating dtype that computes.
macro_rules! by_float {
    ($dtype:expr, $what:literal, $t:ident, $body:expr) => {
        by_dtype!($dtype, $what, $t, [F32 f32, F64 f64, F16 f16, BF16 bf16], $body)
    };
}

/// `$float` or `$int` with a type for every dtype that has arithmetic.
macro_rules! by_number {
    ($dtype:expr, $what:literal, $t:ident, $float:expr, $int:expr) => {
        match $dtype {
            d if d.is_float() => by_float!(d, $what, $t, $float),
            d => by_dtype!(d, $what, $t, [U8 u8, I8 i8, I16 i16, I32 i32, I64 i64, U16 u16, U32 u32, U64 u64], $int),
        }
    };
}

/// `$body` with a type for every dtype that has an order.
macro_rules! by_order {
    ($dtype:expr, $what:literal, $t:ident, $body:expr) => {
        match $dtype {
            DType::Bool => {
                type $t = u8;
                $body
            }
            d => by_number!(d, $what, $t, $body, $body),
        }
    };
}

fn tensor<'a, T: Pod>(strided: &'a Strided<'_>) -> Result<Tensor<'a, T>> {
    Tensor::new(strided.slice()?, strided.shape.offset, &strided.shape.sizes, &strided.shape.strides)
}

fn tensor_mut<'a, T: Pod>(strided: &'a mut StridedMut<'_>) -> Result<TensorMut<'a, T>> {
    // The shape is borrowed beside the memory.
    let (shape, data) = strided.parts()?;
    TensorMut::new(data, shape.offset, &shape.sizes, &shape.strides)
}

/// The elements of an int32 or int64 tensor in row-major order.
fn integers(strided: &Strided) -> Result<Vec<i64>> {
    let shape = &strided.shape;
    let places = Offsets::new(&shape.sizes, &shape.strides, shape.offset);
    match shape.dtype {
        DType::I64 => strided.slice::<i64>().map(|data| places.map(|i| data[i]).collect()),
        DType::I32 => strided.slice::<i32>().map(|data| places.map(|i| data[i] as i64).collect()),
        other => Err(Error::internal(format!("offsets of {other}"))),
    }
}

/// As many views as were asked for.
fn exactly<T, const N: usize>(views: Vec<T>) -> Result<[T; N]> {
    views.try_into().map_err(|_| Error::internal("a library step with another number of views"))
}

fn same_dtype(dtype: DType, others: &[DType]) -> Result<()> {
    match others.iter().find(|other| **other != dtype) {
        Some(other) => Err(Error::internal(format!("a library step with operands of {dtype} and {other}"))),
        None => Ok(()),
    }
}

/// Runs a library step. `scratch` is kept from call to call.
///
/// # Errors
/// Where operands do not fit together, where the operation does not have the dtype, or where values make it impossible (a singular matrix).
pub fn run(library: &Library, context: &mut Context<'_, '_>, scratch: &Scratch) -> Result<()> {
    let threads = context.threads;
    let work = &Work { scratch, threads };
    match library {
        Library::MatMul { a, b, out } => matmul(context, a, b, out, work),
        Library::Convolution(step) => convolution(context, step, work),
        Library::Attention(step) => attention(context, step, work),
        Library::VarlenAttention(step) => varlen_attention(context, step, work),
        Library::Sort { input, values, indices, descending } => {
            order(context, [input, values, indices], work, false, *descending)
        }
        Library::TopK { input, values, indices, largest } => {
            order(context, [input, values, indices], work, true, *largest)
        }
        Library::Nonzero { mask, out, symbol } => {
            let (read, written) = context.views(&[mask], &[out])?;
            let ([mask], [mut out]) = (exactly(read)?, exactly(written)?);
            same_dtype(DType::Bool, &[mask.shape.dtype])?;
            same_dtype(DType::I64, &[out.shape.dtype])?;
            let count = nonzero(tensor(&mask)?, tensor_mut(&mut out)?)?;
            context.set(*symbol, count as i64)
        }
        Library::SearchSorted { sorted, values, out, right } => {
            let (read, written) = context.views(&[sorted, values], &[out])?;
            let ([sorted, values], [mut out]) = (exactly(read)?, exactly(written)?);
            same_dtype(sorted.shape.dtype, &[values.shape.dtype])?;
            same_dtype(DType::I64, &[out.shape.dtype])?;
            by_order!(sorted.shape.dtype, "searchsorted", T, {
                search_sorted::<T>(tensor(&sorted)?, tensor(&values)?, tensor_mut(&mut out)?, *right, work)
            })
        }
        Library::Linalg { kind, inputs, outputs } => linear_algebra(context, *kind, inputs, outputs, work),
        Library::SegmentReduce { op, src, offsets, out, initial, mean } => {
            let (read, written) = context.views(&[src, offsets], &[out])?;
            let ([src, offsets], [mut out]) = (exactly(read)?, exactly(written)?);
            same_dtype(src.shape.dtype, &[out.shape.dtype])?;
            let bounds = integers(&offsets)?;
            let reduction = Reduction { op: *op, initial: *initial, mean: *mean };
            by_float!(src.shape.dtype, "segment_reduce", T, {
                let out = tensor_mut(&mut out)?;
                segment_reduce::<T>(tensor(&src)?, &bounds, &offsets.shape.sizes, out, reduction, work)
            })
        }
    }
}

fn matmul(context: &mut Context<'_, '_>, a: &View, b: &View, out: &View, work: &Work) -> Result<()> {
    let (read, written) = context.views(&[a, b], &[out])?;
    let ([a, b], [mut out]) = (exactly(read)?, exactly(written)?);
    same_dtype(a.shape.dtype, &[b.shape.dtype])?;
    match (a.shape.dtype, out.shape.dtype) {
        (DType::F16, DType::F32) => {
            return matmul_float::<half::f16, f32>(tensor(&a)?, tensor(&b)?, tensor_mut(&mut out)?, work);
        }
        (DType::BF16, DType::F32) => {
            return matmul_float::<half::bf16, f32>(tensor(&a)?, tensor(&b)?, tensor_mut(&mut out)?, work);
        }
        (dtype, out) => same_dtype(dtype, &[out])?,
    }
    by_number!(
        a.shape.dtype,
        "a matrix product",
        T,
        matmul_float::<T, T>(tensor(&a)?, tensor(&b)?, tensor_mut(&mut out)?, work),
        matmul_int::<T>(tensor(&a)?, tensor(&b)?, tensor_mut(&mut out)?, work)
    )
}

fn convolution(context: &mut Context<'_, '_>, step: &step::Convolution, work: &Work) -> Result<()> {
    let padding = step.padding.iter().map(|p| context.eval(p)).collect::<Result<Vec<i64>>>()?;
    let steps = &Steps {
        stride: &step.stride,
        padding: &padding,
        dilation: &step.dilation,
        groups: step.groups,
        transposed: step.transposed,
    };
    let read: Vec<&View> = [&step.input, &step.weight].into_iter().chain(&step.bias).collect();
    let (read, written) = context.views(&read, &[&step.out])?;
    let [mut out] = exactly(written)?;
    let (input, weight, bias) = match &read[..] {
        [input, weight] => (input, weight, None),
        [input, weight, bias] => (input, weight, Some(bias)),
        _ => return Err(Error::internal("a convolution with another number of views")),
    };
    let dtype = input.shape.dtype;
    same_dtype(dtype, &[weight.shape.dtype, out.shape.dtype, bias.map_or(dtype, |bias| bias.shape.dtype)])?;
    macro_rules! operands {
        () => {
            Operands {
                input: tensor(input)?,
                weight: tensor(weight)?,
                bias: bias.map(tensor).transpose()?,
                out: tensor_mut(&mut out)?,
            }
        };
    }
    by_number!(
        dtype,
        "a convolution",
        T,
        convolve_float::<T>(operands!(), steps, work),
        convolve_int::<T>(operands!(), steps, work)
    )
}

fn attention(context: &mut Context<'_, '_>, step: &step::Attention, work: &Work) -> Result<()> {
    let read: Vec<&View> = [&step.query, &step.key, &step.value].into_iter().chain(&step.mask).collect();
    let (read, written) = context.views(&read, &[&step.out])?;
    let [mut out] = exactly(written)?;
    let (query, key, value, mask) = match &read[..] {
        [query, key, value] => (query, key, value, None),
        [query, key, value, mask] => (query, key, value, Some(mask)),
        _ => return Err(Error::internal("attention with another number of views")),
    };
    let dtype = query.shape.dtype;
    same_dtype(dtype, &[key.shape.dtype, value.shape.dtype, out.shape.dtype])?;
    by_float!(dtype, "attention", T, {
        let mask = match mask {
            None => None,
            Some(mask) if mask.shape.dtype.is_bool() => Some(AttentionMask::Allow(tensor(mask)?)),
            Some(mask) => {
                same_dtype(dtype, &[mask.shape.dtype])?;
                Some(AttentionMask::Add(tensor(mask)?))
            }
        };
        let operands = attention::Attention::<T> {
            query: tensor(query)?,
            key: tensor(key)?,
            value: tensor(value)?,
            mask,
            out: tensor_mut(&mut out)?,
            scale: step.scale,
            causal: step.causal,
        };
        attention::attention(operands, work)
    })
}

fn varlen_attention(context: &mut Context<'_, '_>, step: &step::VarlenAttention, work: &Work) -> Result<()> {
    let read = [&step.query, &step.key, &step.value, &step.cu_seq_q, &step.cu_seq_k];
    let (read, written) = context.views(&read, &[&step.out])?;
    let ([query, key, value, query_bounds, key_bounds], [mut out]) = (exactly(read)?, exactly(written)?);
    let dtype = query.shape.dtype;
    same_dtype(dtype, &[key.shape.dtype, value.shape.dtype, out.shape.dtype])?;
    let (query_bounds, key_bounds) = (integers(&query_bounds)?, integers(&key_bounds)?);
    by_float!(dtype, "varlen_attn", T, {
        let packed = varlen::Packed::<T> {
            query: tensor(&query)?,
            key: tensor(&key)?,
            value: tensor(&value)?,
            query_bounds: &query_bounds,
            key_bounds: &key_bounds,
            out: tensor_mut(&mut out)?,
            scale: step.scale,
            window: step.window,
        };
        varlen::attention(packed, work)
    })
}

/// Sort (with `flag` descending) or top-k (with `flag` largest) of input, values and indices.
fn order(context: &mut Context<'_, '_>, views: [&View; 3], work: &Work, top: bool, flag: bool) -> Result<()> {
    let (read, written) = context.views(&views[..1], &views[1..])?;
    let ([input], [mut values, mut indices]) = (exactly(read)?, exactly(written)?);
    same_dtype(input.shape.dtype, &[values.shape.dtype])?;
    same_dtype(DType::I64, &[indices.shape.dtype])?;
    by_order!(input.shape.dtype, "sorting", T, {
        let run = if top { topk::<T> } else { sort::<T> };
        run(tensor(&input)?, tensor_mut(&mut values)?, tensor_mut(&mut indices)?, flag, work)
    })
}

fn linear_algebra(
    context: &mut Context<'_, '_>,
    kind: step::Linalg,
    inputs: &[View],
    outputs: &[View],
    work: &Work,
) -> Result<()> {
    let (read, mut written) = context.views(&inputs.iter().collect::<Vec<_>>(), &outputs.iter().collect::<Vec<_>>())?;
    let dtype =
        read.first().map(|input| input.shape.dtype).ok_or_else(|| Error::internal("linear algebra of nothing"))?;
    let others = read.iter().map(|x| x.shape.dtype).chain(written.iter().map(|x| x.shape.dtype));
    same_dtype(dtype, &others.collect::<Vec<_>>())?;
    by_dtype!(dtype, "linear algebra", T, [F32 f32, F64 f64], {
        let inputs = read.iter().map(tensor).collect::<Result<Vec<Tensor<T>>>>()?;
        let mut outputs = written.iter_mut().map(tensor_mut).collect::<Result<Vec<TensorMut<T>>>>()?;
        linalg(kind, &inputs, &mut outputs, work)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Memory, Region};
    use crate::threads::Threads;
    use douse_core::sym::Expr;
    use douse_program::plan::{Buffer, BufferKind, Plan};

    fn view(buffer: u32, sizes: &[i64], strides: &[i64]) -> View {
        let exprs = |x: &[i64]| x.iter().map(|x| Expr::int(*x)).collect();
        View { buffer, offset: Expr::int(0), sizes: exprs(sizes), strides: exprs(strides) }
    }

    /// Runs a step over buffers given as dtype and bytes; returns the first symbol.
    fn run_over(library: &Library, buffers: &mut [(DType, Vec<u8>)]) -> Result<Option<i64>> {
        let plan = Plan {
            name: "forward".into(),
            symbols: vec![],
            inputs: vec![],
            outputs: vec![],
            buffers: buffers
                .iter()
                .map(|(dtype, bytes)| Buffer {
                    dtype: *dtype,
                    elements: Expr::int((bytes.len() / dtype.size()) as i64),
                    kind: BufferKind::Temporary,
                })
                .collect(),
            kernels: vec![],
            steps: vec![],
            messages: vec![],
            in_spec: None,
            out_spec: None,
            checks_first: false,
        };
        let mut memory = Memory::new(buffers.len());
        for (i, (_, bytes)) in buffers.iter_mut().enumerate() {
            memory.set(i as u32, Region::writable(bytes));
        }
        let mut symbols = [None];
        let threads = Threads::one();
        let mut context = Context { plan: &plan, memory: &mut memory, symbols: &mut symbols, threads: &threads };
        run(library, &mut context, &Scratch::default())?;
        Ok(symbols[0])
    }

    fn bytes<T: Pod>(values: &[T]) -> Vec<u8> {
        bytemuck::cast_slice(values).to_vec()
    }

    #[test]
    fn steps_find_their_buffers_and_dtypes() {
        let a = view(0, &[2, 2], &[2, 1]);
        let step = Library::MatMul { a: a.clone(), b: view(1, &[2, 2], &[1, 2]), out: view(2, &[2, 2], &[2, 1]) };
        let mut buffers = [
            (DType::I16, bytes(&[1i16, 2, 3, 4])),
            (DType::I16, bytes(&[1i16, 0, 1, 1])),
            (DType::I16, bytes(&[0i16; 4])),
        ];
        run_over(&step, &mut buffers).unwrap();
        assert_eq!(buffers[2].1, bytes(&[1i16, 3, 3, 7]));

        let step = Library::Nonzero { mask: a, out: view(1, &[4, 2], &[2, 1]), symbol: 0 };
        let mut buffers = [(DType::Bool, vec![0, 1, 1, 0]), (DType::I64, bytes(&[0i64; 8]))];
        assert_eq!(run_over(&step, &mut buffers).unwrap(), Some(2));
        assert_eq!(buffers[1].1[..32], bytes(&[0i64, 1, 1, 0]));
    }

    #[test]
    fn other_dtypes_are_refused() {
        let step = Library::MatMul {
            a: view(0, &[1, 1], &[1, 1]),
            b: view(1, &[1, 1], &[1, 1]),
            out: view(2, &[1, 1], &[1, 1]),
        };
        let mut float8 = [(); 3].map(|()| (DType::F8E5M2, vec![0u8]));
        let error = run_over(&step, &mut float8).unwrap_err();
        assert_eq!(error.message, "a matrix product of float8_e5m2 is not supported on the CPU");
        let mut mixed = [(DType::F32, vec![0u8; 4]), (DType::F64, vec![0; 8]), (DType::F32, vec![0; 4])];
        assert!(run_over(&step, &mut mixed).is_err());
    }
}
