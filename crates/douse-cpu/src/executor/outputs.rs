//! What a call returns.

use douse_core::bytes::Aligned;
use douse_core::sym::Expr;
use douse_core::{DType, Error, Result, Scalar};
use douse_program::plan::{Fixed, OutputKind, Plan};

use super::OutputValue;
use super::walk::Walk;
use crate::memory::{Outside, Owned};
use crate::strided::eval;

/// An output whose memory, if it has any of its own, is still with the call.
pub(super) enum Described {
    Tensor { dtype: DType, sizes: Vec<i64>, strides: Vec<i64>, bytes: usize, from: From },
    Number(Scalar),
    Fixed(Fixed),
}

/// Where a tensor's bytes are.
pub(super) enum From {
    /// In the buffer of that output, which goes to the caller.
    Buffer(u32),
    /// Copied: the buffer is not this output's own.
    Copy(Aligned),
}

/// Sizes, strides and numbers of all outputs.
pub(super) fn describe(walk: &mut Walk) -> Result<Vec<Described>> {
    let plan = walk.plan;
    let mut taken: Vec<u32> = Vec::new();
    let mut outputs = Vec::with_capacity(plan.outputs.len());
    for output in &plan.outputs {
        outputs.push(match &output.kind {
            OutputKind::Tensor { dtype, sizes, strides, buffer } => {
                let values = |exprs: &[Expr]| exprs.iter().map(|e| eval(e, &walk.symbols)).collect::<Result<Vec<_>>>();
                let (sizes, strides) = (values(sizes)?, values(strides)?);
                let region = walk.region(*buffer)?;
                let elements = sizes.iter().try_fold(1i64, |n, size| n.checked_mul(*size));
                let bytes = elements.and_then(|n| usize::try_from(n).ok()).and_then(|n| n.checked_mul(dtype.size()));
                let bytes = bytes.filter(|bytes| *bytes <= region.len()).ok_or_else(|| {
                    Error::internal(format!("output {:?} of sizes {sizes:?} has {} bytes", output.name, region.len()))
                })?;
                let own = walk.late.get(*buffer as usize).is_some_and(Option::is_some) && !taken.contains(buffer);
                let from = if own {
                    taken.push(*buffer);
                    From::Buffer(*buffer)
                } else {
                    let mut copy = Aligned::zeros(bytes)?;
                    let read = region.read(0, 1, &mut copy, |byte: u8| byte);
                    read.map_err(|Outside| Error::internal("an output lies outside of its buffer"))?;
                    From::Copy(copy)
                };
                Described::Tensor { dtype: *dtype, sizes, strides, bytes, from }
            }
            OutputKind::Int(expr) => Described::Number(Scalar::Int(eval(expr, &walk.symbols)?)),
            OutputKind::Bool(cond) => Described::Number(Scalar::Bool(walk.holds(cond)?)),
            OutputKind::Number { buffer, .. } => Described::Number(walk.number(*buffer)?),
            OutputKind::Fixed(fixed) => Described::Fixed(fixed.clone()),
        });
    }
    Ok(outputs)
}

/// The outputs with their memory.
pub(super) fn collect(
    plan: &Plan,
    outputs: Vec<Described>,
    late: &[Option<Owned>],
    mut owned: Vec<Aligned>,
) -> Result<Vec<OutputValue>> {
    let mut values = Vec::with_capacity(outputs.len());
    for output in outputs {
        values.push(match output {
            Described::Number(number) => OutputValue::Number(number),
            Described::Fixed(fixed) => OutputValue::Fixed(fixed),
            Described::Tensor { dtype, sizes, strides, bytes, from } => {
                let mut memory = match from {
                    From::Copy(copy) => copy,
                    From::Buffer(buffer) => {
                        let owned = late.get(buffer as usize).copied().flatten().and_then(|o| owned.get_mut(o));
                        owned
                            .map(std::mem::take)
                            .ok_or_else(|| Error::internal(format!("{}: an output's memory is gone", plan.name)))?
                    }
                };
                memory.truncate(bytes);
                OutputValue::Tensor { bytes: memory, dtype, sizes, strides }
            }
        });
    }
    Ok(values)
}
