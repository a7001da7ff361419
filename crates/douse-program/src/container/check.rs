//! Checks a decoded container: every index, so that it may be followed without looking.

use super::schema::*;
use douse_core::{Code, Error, Result};
use std::collections::BTreeSet;

/// The only version of both schemas.
pub const VERSION: u32 = 0;

/// What a program's parts are checked against. Its segments are known to lie in the file.
struct Checker<'a> {
    program: &'a Program,
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

/// Checks everything in a program but where its segments lie.
///
/// # Errors
/// `InvalidProgram`, with the method and the field.
pub fn program(program: &Program) -> Result<()> {
    check_version(program.version, Code::InvalidProgram)?;
    let checker = Checker { program };
    for s in program.constant_segment.iter() {
        checker.subsegments(s).map_err(|e| e.at("constant_segment"))?;
    }
    for (i, s) in program.mutable_data_segments.iter().enumerate() {
        checker.subsegments(s).map_err(|e| e.at(format!("mutable_data_segments[{i}]")))?;
    }
    named_data(&program.named_data, &program.segments, Code::InvalidProgram)?;
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

/// Checks everything in a flat tensor file but where its segments lie.
///
/// # Errors
/// `InvalidExternalData`, with the key.
pub fn flat_tensor(file: &FlatTensor) -> Result<()> {
    check_version(file.version, Code::InvalidExternalData)?;
    named_data(&file.named_data, &file.segments, Code::InvalidExternalData)
}

fn named_data(entries: &[NamedData], segments: &[DataSegment], code: Code) -> Result<()> {
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
            Some(bytes) if bytes <= segment.size => {}
            _ => return fault(format!("sizes {:?} in {} bytes", layout.sizes, segment.size)),
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
        let Some(segment) = self.program.segments.get(s.segment_index as usize) else {
            return invalid(format!("segment {} of {}", s.segment_index, self.program.segments.len()));
        };
        match s.offsets.iter().find(|&&offset| offset > segment.size) {
            Some(offset) => invalid(format!("offset {offset} in a segment of {} bytes", segment.size)),
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
                DataLocation::Segment => self.program.segments.len(),
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
        let size = self.program.segments.get(s.segment_index as usize).map_or(0, |s| s.size);
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

#[cfg(test)]
mod tests {
    use super::*;
    use douse_core::DType;

    fn tensor(change: impl Fn(&mut Tensor)) -> EValue {
        let mut tensor = Tensor::unplanned(DType::F32, &[2, 4], &[0, 1], Dynamism::Static).unwrap();
        change(&mut tensor);
        EValue::Tensor(Box::new(tensor))
    }

    /// One of each thing that has an index; all of them right.
    fn good() -> Program {
        let call = |i| Instruction::DelegateCall { delegate_index: i, args: vec![0, 1] };
        let plan = ExecutionPlan {
            name: "forward".into(),
            values: vec![
                tensor(|_| ()),
                EValue::Int(2),
                EValue::IntList(vec![1]),
                EValue::TensorList(vec![0]),
                EValue::OptionalTensorList(vec![0, -1]),
                tensor(|t| t.allocation_info = Some(AllocationDetails { memory_id: 1, memory_offset: 32 })),
                tensor(|t| t.data_buffer_idx = 1),
                tensor(|t| {
                    t.data_buffer_idx = 1;
                    t.allocation_info = Some(AllocationDetails { memory_id: 1, memory_offset: 0 });
                    t.extra_tensor_info = Some(ExtraTensorInfo::default());
                }),
                tensor(|t| {
                    let fully_qualified_name = Some("w".into());
                    let location = TensorDataLocation::External;
                    t.extra_tensor_info =
                        Some(ExtraTensorInfo { fully_qualified_name, location, ..Default::default() });
                }),
            ],
            inputs: vec![0],
            outputs: vec![1],
            chains: vec![Chain {
                inputs: vec![0],
                outputs: vec![1],
                instructions: vec![
                    call(0),
                    Instruction::KernelCall { op_index: 0, args: vec![0] },
                    Instruction::MoveCall { move_from: 0, move_to: 1 },
                    Instruction::JumpFalseCall { cond_value_index: 1, destination_instruction: 5 },
                    Instruction::FreeCall { value_index: 0 },
                ],
                stacktrace: vec![],
            }],
            operators: vec![Operator::default()],
            delegates: vec![BackendDelegate::default()],
            non_const_buffer_sizes: vec![0, 64],
            non_const_buffer_device: vec![NonConstBufferDevice { buffer_idx: 1, ..Default::default() }],
            ..Default::default()
        };
        Program {
            execution_plan: vec![plan],
            backend_delegate_data: vec![vec![1].into()],
            segments: vec![DataSegment { offset: 0, size: 64 }],
            constant_segment: Some(SubsegmentOffsets { segment_index: 0, offsets: vec![0, 32] }),
            mutable_data_segments: vec![SubsegmentOffsets { segment_index: 0, offsets: vec![0, 16] }],
            named_data: vec![NamedData { key: "k".into(), ..Default::default() }],
            ..Default::default()
        }
    }

    type Change = fn(&mut Program);

    fn plan(p: &mut Program) -> &mut ExecutionPlan {
        &mut p.execution_plan[0]
    }

    fn instruction(p: &mut Program, at: usize, value: Instruction) {
        plan(p).chains[0].instructions[at] = value;
    }

    fn at(p: &mut Program, value: usize) -> &mut Tensor {
        match &mut plan(p).values[value] {
            EValue::Tensor(tensor) => tensor,
            other => panic!("{other:?}"),
        }
    }

    /// What is broken, and where the error says it is.
    const FAULTS: &[(&str, Change)] = &[
        ("schema version is 1", |p| p.version = 1),
        ("named data \"k\": segment 1 of 1", |p| p.named_data[0].segment_index = 1),
        ("named data \"k\": it is there twice", |p| p.named_data.push(p.named_data[0].clone())),
        ("\"forward\" is there twice", |p| p.execution_plan.push(p.execution_plan[0].clone())),
        ("constant_segment: segment 1", |p| p.constant_segment.as_mut().unwrap().segment_index = 1),
        ("constant_segment: offset 65", |p| p.constant_segment.as_mut().unwrap().offsets[0] = 65),
        ("mutable_data_segments[0]: segment 9", |p| p.mutable_data_segments[0].segment_index = 9),
        ("inputs is 9", |p| plan(p).inputs[0] = 9),
        ("outputs is -1", |p| plan(p).outputs[0] = -1),
        ("chains[0]: inputs is 9", |p| plan(p).chains[0].inputs[0] = 9),
        ("chains[0]: outputs is 9", |p| plan(p).chains[0].outputs[0] = 9),
        ("instructions[0]: delegate_index is 1", |p| {
            instruction(p, 0, Instruction::DelegateCall { delegate_index: 1, args: vec![] });
        }),
        ("instructions[0]: args is -1", |p| {
            instruction(p, 0, Instruction::DelegateCall { delegate_index: 0, args: vec![-1] });
        }),
        ("instructions[1]: op_index is 1", |p| {
            instruction(p, 1, Instruction::KernelCall { op_index: 1, args: vec![] });
        }),
        ("instructions[1]: args is 9", |p| {
            instruction(p, 1, Instruction::KernelCall { op_index: 0, args: vec![9] });
        }),
        ("move_from is 9", |p| instruction(p, 2, Instruction::MoveCall { move_from: 9, move_to: 0 })),
        ("move_to is 9", |p| instruction(p, 2, Instruction::MoveCall { move_from: 0, move_to: 9 })),
        ("cond_value_index is 9", |p| {
            instruction(p, 3, Instruction::JumpFalseCall { cond_value_index: 9, destination_instruction: 0 });
        }),
        ("destination_instruction is 6", |p| {
            instruction(p, 3, Instruction::JumpFalseCall { cond_value_index: 0, destination_instruction: 6 });
        }),
        ("value_index is 9", |p| instruction(p, 4, Instruction::FreeCall { value_index: 9 })),
        ("delegates[0] (): processed is 1", |p| plan(p).delegates[0].processed.index = 1),
        ("memory of -1 bytes", |p| plan(p).non_const_buffer_sizes[0] = -1),
        ("non_const_buffer_device is 2", |p| plan(p).non_const_buffer_device[0].buffer_idx = 2),
        ("values[2]: entry 0 is not the index of an integer", |p| plan(p).values[2] = EValue::IntList(vec![0])),
        ("values[3]: entry 1 is not the index of a tensor", |p| plan(p).values[3] = EValue::TensorList(vec![1])),
        ("values[4]: entry -2 is", |p| plan(p).values[4] = EValue::OptionalTensorList(vec![-2])),
        ("values[0]: impossible sizes", |p| at(p, 0).sizes[0] = -1),
        ("values[0]: impossible sizes", |p| at(p, 0).sizes = vec![i32::MAX; 3]),
        ("values[0]: dim order", |p| at(p, 0).dim_order[0] = 1),
        ("values[0]: dim order", |p| at(p, 0).dim_order.push(2)),
        ("values[5]: memory 0", |p| at(p, 5).allocation_info.as_mut().unwrap().memory_id = 0),
        ("values[5]: memory 2", |p| at(p, 5).allocation_info.as_mut().unwrap().memory_id = 2),
        ("values[5]: 32 bytes at 33", |p| at(p, 5).allocation_info.as_mut().unwrap().memory_offset = 33),
        ("values[6]: constant 2 of 2", |p| at(p, 6).data_buffer_idx = 2),
        ("values[6]: 40 bytes at 32", |p| at(p, 6).sizes = vec![2, 5]),
        ("values[6]: constant 1 of 0", |p| p.constant_segment = None),
        ("values[7]: mutable data segment 1", |p| {
            at(p, 7).extra_tensor_info.as_mut().unwrap().mutable_data_segments_idx = 1;
        }),
        ("values[8]: an external tensor without a name", |p| {
            at(p, 8).extra_tensor_info.as_mut().unwrap().fully_qualified_name = None;
        }),
    ];

    #[test]
    fn every_index_is_checked() {
        assert_eq!(program(&good()), Ok(()));
        for (expected, change) in FAULTS {
            let mut broken = good();
            change(&mut broken);
            let error = program(&broken).unwrap_err();
            assert_eq!(error.code, Code::InvalidProgram);
            assert!(error.message.contains(expected), "{expected}: {error}");
        }
    }
}
