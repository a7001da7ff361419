//! Checks a decoded container: every index, so that it may be followed without looking.

use super::Bytes;
use super::schema::*;
use douse_core::{Code, Error, Result};
use std::collections::BTreeSet;

/// The only version of both schemas.
pub const VERSION: u32 = 0;

/// What a program's parts are checked against.
struct Checker<'a> {
    program: &'a Program,
    segments: &'a [Bytes],
}

fn invalid<T>(message: String) -> Result<T> {
    Err(Error::invalid_program(message))
}

fn check_version(version: u32, code: Code) -> Result<()> {
    if version == VERSION {
        return Ok(());
    }
    Err(Error::new(code, format!("its schema version is {version}; only {VERSION} is known")))
}

/// Checks a program whose segments are `segments`.
///
/// # Errors
/// `InvalidProgram`, with the method and the field.
pub fn program(program: &Program, segments: &[Bytes]) -> Result<()> {
    check_version(program.version, Code::InvalidProgram)?;
    let checker = Checker { program, segments };
    for s in program.constant_segment.iter() {
        checker.subsegments(s).map_err(|e| e.at("constant_segment"))?;
    }
    for (i, s) in program.mutable_data_segments.iter().enumerate() {
        checker.subsegments(s).map_err(|e| e.at(format!("mutable_data_segments[{i}]")))?;
    }
    named_data(&program.named_data, segments, Code::InvalidProgram)?;
    let mut names = BTreeSet::new();
    for plan in &program.execution_plan {
        let place = || format!("method {:?}", plan.name);
        if !names.insert(&plan.name) {
            return invalid(format!("{} is there twice", place()));
        }
        checker.plan(plan).map_err(|e| e.at(place()))?;
    }
    Ok(())
}

/// Checks a flat tensor file whose segments are `segments`.
///
/// # Errors
/// `InvalidExternalData`, with the key.
pub fn flat_tensor(file: &FlatTensor, segments: &[Bytes]) -> Result<()> {
    check_version(file.version, Code::InvalidExternalData)?;
    named_data(&file.named_data, segments, Code::InvalidExternalData)
}

fn named_data(entries: &[NamedData], segments: &[Bytes], code: Code) -> Result<()> {
    let mut keys = BTreeSet::new();
    for entry in entries {
        let fault = |message: String| Err(Error::new(code, format!("named data {:?}: {message}", entry.key)));
        if !keys.insert(&entry.key) {
            return fault("it is there twice".to_owned());
        }
        let Some(segment) = segments.get(entry.segment_index as usize) else {
            return fault(format!("segment {} of {}", entry.segment_index, segments.len()));
        };
        let Some(layout) = &entry.tensor_layout else { continue };
        if !is_permutation(&layout.dim_order, layout.sizes.len()) {
            return fault(format!("dim order {:?} for sizes {:?}", layout.dim_order, layout.sizes));
        }
        match layout.bytes() {
            Some(bytes) if bytes <= segment.len() as u64 => {}
            _ => return fault(format!("sizes {:?} in {} bytes", layout.sizes, segment.len())),
        }
    }
    Ok(())
}

impl Checker<'_> {
    fn subsegments(&self, s: &SubsegmentOffsets) -> Result<()> {
        // With no offsets there is nothing in it, and the index is left at its default.
        if s.offsets.is_empty() {
            return Ok(());
        }
        let Some(segment) = self.segments.get(s.segment_index as usize) else {
            return invalid(format!("segment {} of {}", s.segment_index, self.segments.len()));
        };
        match s.offsets.iter().find(|&&offset| offset > segment.len() as u64) {
            Some(offset) => invalid(format!("offset {offset} in a segment of {} bytes", segment.len())),
            None => Ok(()),
        }
    }

    fn plan(&self, plan: &ExecutionPlan) -> Result<()> {
        for (i, value) in plan.values.iter().enumerate() {
            self.value(plan, value).map_err(|e| e.at(format!("values[{i}]")))?;
        }
        let values = plan.values.len();
        indices("inputs", &plan.inputs, values)?;
        indices("outputs", &plan.outputs, values)?;
        for (i, chain) in plan.chains.iter().enumerate() {
            self.chain(plan, chain).map_err(|e| e.at(format!("chains[{i}]")))?;
        }
        for (i, delegate) in plan.delegates.iter().enumerate() {
            let BackendDelegateDataReference { location, index: at } = delegate.processed;
            let count = match location {
                DataLocation::Inline => self.program.backend_delegate_data.len(),
                DataLocation::Segment => self.segments.len(),
            };
            index("processed", at, count).map_err(|e| e.at(format!("delegates[{i}] ({})", delegate.id)))?;
        }
        if let Some(size) = plan.non_const_buffer_sizes.iter().find(|&&size| size < 0) {
            return invalid(format!("a planned memory of {size} bytes"));
        }
        for device in &plan.non_const_buffer_device {
            index("non_const_buffer_device", device.buffer_idx, plan.non_const_buffer_sizes.len())?;
        }
        Ok(())
    }

    fn chain(&self, plan: &ExecutionPlan, chain: &Chain) -> Result<()> {
        let values = plan.values.len();
        indices("inputs", &chain.inputs, values)?;
        indices("outputs", &chain.outputs, values)?;
        let count = chain.instructions.len();
        for (i, instruction) in chain.instructions.iter().enumerate() {
            let checked = match instruction {
                Instruction::KernelCall { op_index, args } => {
                    index("op_index", *op_index, plan.operators.len()).and_then(|()| indices("args", args, values))
                }
                Instruction::DelegateCall { delegate_index, args } => {
                    let delegates = plan.delegates.len();
                    index("delegate_index", *delegate_index, delegates).and_then(|()| indices("args", args, values))
                }
                Instruction::MoveCall { move_from, move_to } => {
                    index("move_from", *move_from, values).and_then(|()| index("move_to", *move_to, values))
                }
                Instruction::JumpFalseCall { cond_value_index, destination_instruction } => {
                    // To the end of the chain is a jump, too.
                    index("cond_value_index", *cond_value_index, values)
                        .and_then(|()| index("destination_instruction", *destination_instruction, count + 1))
                }
                Instruction::FreeCall { value_index } => index("value_index", *value_index, values),
            };
            checked.map_err(|e| e.at(format!("instructions[{i}]")))?;
        }
        Ok(())
    }

    fn value(&self, plan: &ExecutionPlan, value: &EValue) -> Result<()> {
        let is_tensor = |i: &i32| usize::try_from(*i).ok().and_then(|i| plan.values.get(i)?.tensor()).is_some();
        let is_int = |i: &i64| {
            let value = usize::try_from(*i).ok().and_then(|i| plan.values.get(i));
            matches!(value, Some(EValue::Int(_)))
        };
        let fault = |i: i64, what: &str| invalid(format!("entry {i} is not the index of {what}"));
        match value {
            EValue::Tensor(tensor) => self.tensor(plan, tensor),
            EValue::IntList(items) => items.iter().find(|i| !is_int(i)).map_or(Ok(()), |&i| fault(i, "an integer")),
            EValue::TensorList(items) => {
                items.iter().find(|i| !is_tensor(i)).map_or(Ok(()), |&i| fault(i.into(), "a tensor"))
            }
            EValue::OptionalTensorList(items) => {
                let wrong = items.iter().find(|&i| *i != -1 && !is_tensor(i));
                wrong.map_or(Ok(()), |&i| fault(i.into(), "a tensor"))
            }
            _ => Ok(()),
        }
    }

    fn tensor(&self, plan: &ExecutionPlan, tensor: &Tensor) -> Result<()> {
        let Some(bytes) = tensor.bytes() else {
            return invalid(format!("impossible sizes {:?}", tensor.sizes));
        };
        if !is_permutation(&tensor.dim_order, tensor.sizes.len()) {
            return invalid(format!("dim order {:?} for sizes {:?}", tensor.dim_order, tensor.sizes));
        }
        if let Some(place) = &tensor.allocation_info {
            let size = plan.non_const_buffer_sizes.get(place.memory_id as usize).filter(|_| place.memory_id != 0);
            let Some(&size) = size else {
                return invalid(format!("memory {} of {}", place.memory_id, plan.non_const_buffer_sizes.len()));
            };
            if place.memory_offset.checked_add(bytes).is_none_or(|end| end > size as u64) {
                let offset = place.memory_offset;
                return invalid(format!("{bytes} bytes at {offset} in a planned memory of {size} bytes"));
            }
        }
        let default = ExtraTensorInfo::default();
        let extra = tensor.extra_tensor_info.as_ref().unwrap_or(&default);
        if extra.location == TensorDataLocation::External {
            return match extra.fully_qualified_name {
                Some(_) => Ok(()),
                None => invalid("an external tensor without a name".to_owned()),
            };
        }
        match (tensor.data_buffer_idx as usize, &tensor.allocation_info) {
            (0, _) => Ok(()),
            // State with initial values: the index counts within one of the mutable segments.
            (at, Some(_)) => {
                let segment = usize::try_from(extra.mutable_data_segments_idx).ok();
                let Some(s) = segment.and_then(|i| self.program.mutable_data_segments.get(i)) else {
                    return invalid(format!("mutable data segment {}", extra.mutable_data_segments_idx));
                };
                self.constant(s, at, bytes)
            }
            (at, None) => match &self.program.constant_segment {
                Some(s) if !s.offsets.is_empty() => self.constant(s, at, bytes),
                _ => match self.program.constant_buffer.get(at) {
                    Some(buffer) if bytes <= buffer.len() as u64 => Ok(()),
                    Some(buffer) => invalid(format!("{bytes} bytes in a buffer of {} bytes", buffer.len())),
                    None => invalid(format!("constant {at} of {}", self.program.constant_buffer.len())),
                },
            },
        }
    }

    fn constant(&self, s: &SubsegmentOffsets, at: usize, bytes: u64) -> Result<()> {
        let size = self.segments.get(s.segment_index as usize).map_or(0, |s| s.len() as u64);
        match s.offsets.get(at) {
            Some(offset) if offset.checked_add(bytes).is_some_and(|end| end <= size) => Ok(()),
            Some(offset) => invalid(format!("{bytes} bytes at {offset} in a segment of {size} bytes")),
            None => invalid(format!("constant {at} of {}", s.offsets.len())),
        }
    }
}

fn index(what: &str, at: impl TryInto<usize> + Copy + std::fmt::Display, count: usize) -> Result<()> {
    match at.try_into() {
        Ok(i) if i < count => Ok(()),
        _ => invalid(format!("{what} is {at}, of {count}")),
    }
}

fn indices(what: &str, list: &[i32], count: usize) -> Result<()> {
    list.iter().try_for_each(|&i| index(what, i, count))
}
