//! From a FlatBuffer to the schema's types.

use super::fields::{self, *};
use super::flatbuffer::{Buffer, Field, Table};
use super::schema::*;
use douse_core::bytes::Bytes;
use douse_core::{Code, Result};
use std::ops::Range;

/// The program in `flatbuffer`, the first part of `file`; large byte vectors stay slices of it.
pub fn program(flatbuffer: &Bytes) -> Result<Program> {
    let buffer = Buffer::new(flatbuffer, Code::InvalidProgram);
    let t = buffer.root()?;
    use fields::program as f;
    let storage = |field: Field| move |t: Table<'_>| slice(flatbuffer, t.bytes(field)?);
    Ok(Program {
        version: t.u32(f::VERSION, 0)?,
        execution_plan: t.tables(f::EXECUTION_PLAN, |t| execution_plan(t, flatbuffer))?,
        constant_buffer: t.tables(f::CONSTANT_BUFFER, storage(buffer::STORAGE))?,
        backend_delegate_data: t.tables(f::BACKEND_DELEGATE_DATA, storage(inline_data::DATA))?,
        segments: t.tables(f::SEGMENTS, data_segment)?,
        constant_segment: t.table(f::CONSTANT_SEGMENT, subsegment_offsets)?,
        mutable_data_segments: t.tables(f::MUTABLE_DATA_SEGMENTS, subsegment_offsets)?,
        named_data: t.tables(f::NAMED_DATA, named_data)?,
    })
}

/// The root of a `.ptd`.
pub fn flat_tensor(flatbuffer: &Bytes) -> Result<FlatTensor> {
    let buffer = Buffer::new(flatbuffer, Code::InvalidExternalData);
    let t = buffer.root()?;
    use fields::flat_tensor as f;
    Ok(FlatTensor {
        version: t.u32(f::VERSION, 0)?,
        segments: t.tables(f::SEGMENTS, data_segment)?,
        named_data: t.tables(f::NAMED_DATA, named_data)?,
    })
}

fn data_segment(t: Table) -> Result<DataSegment> {
    use fields::data_segment as f;
    Ok(DataSegment { offset: t.u64(f::OFFSET, 0)?, size: t.u64(f::SIZE, 0)? })
}

fn subsegment_offsets(t: Table) -> Result<SubsegmentOffsets> {
    use fields::subsegment_offsets as f;
    Ok(SubsegmentOffsets { segment_index: t.u32(f::SEGMENT_INDEX, 0)?, offsets: t.u64s(f::OFFSETS)? })
}

fn named_data(t: Table) -> Result<NamedData> {
    use fields::named_data as f;
    Ok(NamedData {
        key: text(t, f::KEY)?,
        segment_index: t.u32(f::SEGMENT_INDEX, 0)?,
        tensor_layout: t.table(f::TENSOR_LAYOUT, tensor_layout)?,
    })
}

fn tensor_layout(t: Table) -> Result<TensorLayout> {
    use fields::tensor_layout as f;
    Ok(TensorLayout {
        scalar_type: scalar_type(t, f::SCALAR_TYPE)?,
        sizes: t.i32s(f::SIZES)?,
        dim_order: t.u8s(f::DIM_ORDER)?,
    })
}

fn execution_plan(t: Table, file: &Bytes) -> Result<ExecutionPlan> {
    use fields::execution_plan as f;
    let name = text(t, f::NAME)?;
    let plan = || {
        Ok(ExecutionPlan {
            name: name.clone(),
            container_meta_type: t.table(f::CONTAINER_META_TYPE, container_metadata)?,
            values: t.tables(f::VALUES, evalue)?,
            inputs: t.i32s(f::INPUTS)?,
            outputs: t.i32s(f::OUTPUTS)?,
            chains: t.tables(f::CHAINS, chain)?,
            operators: t.tables(f::OPERATORS, operator)?,
            delegates: t.tables(f::DELEGATES, |t| backend_delegate(t, file))?,
            non_const_buffer_sizes: t.i64s(f::NON_CONST_BUFFER_SIZES)?,
            non_const_buffer_device: t.tables(f::NON_CONST_BUFFER_DEVICE, non_const_buffer_device)?,
        })
    };
    plan().map_err(|e: douse_core::Error| e.at(format!("method {name:?}")))
}

fn container_metadata(t: Table) -> Result<ContainerMetadata> {
    use fields::container_metadata as f;
    Ok(ContainerMetadata {
        encoded_inp_str: text(t, f::ENCODED_INP_STR)?,
        encoded_out_str: text(t, f::ENCODED_OUT_STR)?,
    })
}

fn non_const_buffer_device(t: Table) -> Result<NonConstBufferDevice> {
    use fields::non_const_buffer_device as f;
    Ok(NonConstBufferDevice {
        buffer_idx: t.i32(f::BUFFER_IDX, 0)?,
        device_type: number(t, f::DEVICE_TYPE, DeviceType::from_number)?,
        device_index: t.i8(f::DEVICE_INDEX, 0)?,
    })
}

fn evalue(t: Table) -> Result<EValue> {
    use fields::kernel_types as k;
    let kind = t.u8(evalue::VAL_TYPE, 0)?;
    let item = kernel_type::ITEM;
    let value = t.table(evalue::VAL, |t| {
        Ok(match kind {
            k::NULL => EValue::Null,
            k::INT => EValue::Int(t.i64(item, 0)?),
            k::BOOL => EValue::Bool(t.bool(item)?),
            k::DOUBLE => EValue::Double(t.f64(item, 0.0)?),
            k::TENSOR => EValue::Tensor(Box::new(tensor(t)?)),
            k::STRING => EValue::String(text(t, item)?),
            k::INT_LIST => EValue::IntList(t.i64s(item)?),
            k::DOUBLE_LIST => EValue::DoubleList(t.f64s(item)?),
            k::BOOL_LIST => EValue::BoolList(t.bools(item)?),
            k::TENSOR_LIST => EValue::TensorList(t.i32s(item)?),
            k::OPTIONAL_TENSOR_LIST => EValue::OptionalTensorList(t.i32s(item)?),
            _ => return Err(t.error(format!("a value of unknown kind {kind}"))),
        })
    })?;
    value.ok_or_else(|| t.error("the value is missing"))
}

fn tensor(t: Table) -> Result<Tensor> {
    use fields::tensor as f;
    t.charge(size_of::<Tensor>())?;
    Ok(Tensor {
        scalar_type: scalar_type(t, f::SCALAR_TYPE)?,
        storage_offset: t.i32(f::STORAGE_OFFSET, 0)?,
        sizes: t.i32s(f::SIZES)?,
        dim_order: t.u8s(f::DIM_ORDER)?,
        requires_grad: t.bool(f::REQUIRES_GRAD)?,
        data_buffer_idx: t.u32(f::DATA_BUFFER_IDX, 0)?,
        allocation_info: t.table(f::ALLOCATION_INFO, allocation_details)?,
        layout: t.i8(f::LAYOUT, 0)?,
        shape_dynamism: number(t, f::SHAPE_DYNAMISM, Dynamism::from_number)?,
        extra_tensor_info: t.table(f::EXTRA_TENSOR_INFO, extra_tensor_info)?,
    })
}

fn allocation_details(t: Table) -> Result<AllocationDetails> {
    use fields::allocation_details as f;
    let (low, high) = (t.u32(f::MEMORY_OFFSET_LOW, 0)?, t.u32(f::MEMORY_OFFSET_HIGH, 0)?);
    Ok(AllocationDetails { memory_id: t.u32(f::MEMORY_ID, 0)?, memory_offset: u64::from(high) << 32 | u64::from(low) })
}

fn extra_tensor_info(t: Table) -> Result<ExtraTensorInfo> {
    use fields::extra_tensor_info as f;
    Ok(ExtraTensorInfo {
        mutable_data_segments_idx: t.u64(f::MUTABLE_DATA_SEGMENTS_IDX, 0)?,
        fully_qualified_name: t.text(f::FULLY_QUALIFIED_NAME)?,
        location: number(t, f::LOCATION, TensorDataLocation::from_number)?,
        device_type: number(t, f::DEVICE_TYPE, DeviceType::from_number)?,
        device_index: t.i8(f::DEVICE_INDEX, 0)?,
    })
}

fn operator(t: Table) -> Result<Operator> {
    Ok(Operator { name: text(t, operator::NAME)?, overload: text(t, operator::OVERLOAD)? })
}

fn chain(t: Table) -> Result<Chain> {
    use fields::chain as f;
    Ok(Chain {
        inputs: t.i32s(f::INPUTS)?,
        outputs: t.i32s(f::OUTPUTS)?,
        instructions: t.tables(f::INSTRUCTIONS, instruction)?,
        stacktrace: t.tables(f::STACKTRACE, |t| t.tables(frame_list::ITEMS, frame))?,
    })
}

fn frame(t: Table) -> Result<Frame> {
    use fields::frame as f;
    Ok(Frame {
        filename: text(t, f::FILENAME)?,
        lineno: t.i32(f::LINENO, 0)?,
        name: text(t, f::NAME)?,
        context: text(t, f::CONTEXT)?,
    })
}

fn instruction(t: Table) -> Result<Instruction> {
    use fields::instruction_arguments as a;
    let kind = t.u8(instruction::INSTR_ARGS_TYPE, 0)?;
    let arguments = t.table(instruction::INSTR_ARGS, |t| {
        Ok(match kind {
            a::KERNEL_CALL => {
                Instruction::KernelCall { op_index: t.i32(kernel_call::OP_INDEX, 0)?, args: t.i32s(kernel_call::ARGS)? }
            }
            a::DELEGATE_CALL => Instruction::DelegateCall {
                delegate_index: t.i32(delegate_call::DELEGATE_INDEX, 0)?,
                args: t.i32s(delegate_call::ARGS)?,
            },
            a::MOVE_CALL => Instruction::MoveCall {
                move_from: t.i32(move_call::MOVE_FROM, 0)?,
                move_to: t.i32(move_call::MOVE_TO, 0)?,
            },
            a::JUMP_FALSE_CALL => Instruction::JumpFalseCall {
                cond_value_index: t.i32(jump_false_call::COND_VALUE_INDEX, 0)?,
                destination_instruction: t.i32(jump_false_call::DESTINATION_INSTRUCTION, 0)?,
            },
            a::FREE_CALL => Instruction::FreeCall { value_index: t.i32(free_call::VALUE_INDEX, 0)? },
            _ => return Err(t.error(format!("an instruction of unknown kind {kind}"))),
        })
    })?;
    arguments.ok_or_else(|| t.error("the instruction is missing"))
}

fn backend_delegate(t: Table, file: &Bytes) -> Result<BackendDelegate> {
    use fields::backend_delegate as f;
    let processed = t.table(f::PROCESSED, |t| {
        Ok(BackendDelegateDataReference {
            location: number(t, data_reference::LOCATION, DataLocation::from_number)?,
            index: t.u32(data_reference::INDEX, 0)?,
        })
    })?;
    Ok(BackendDelegate {
        id: text(t, f::ID)?,
        processed: processed.ok_or_else(|| t.error("the delegate has no payload"))?,
        compile_specs: t.tables(f::COMPILE_SPECS, |t| {
            Ok(CompileSpec { key: text(t, compile_spec::KEY)?, value: slice(file, t.bytes(compile_spec::VALUE)?)? })
        })?,
    })
}

fn slice(file: &Bytes, range: Range<usize>) -> Result<Bytes> {
    file.slice(range.start, range.len())
}

fn text(t: Table, field: Field) -> Result<String> {
    Ok(t.text(field)?.unwrap_or_default())
}

fn number<T>(t: Table, field: Field, known: impl Fn(i8) -> Option<T>) -> Result<T> {
    let number = t.i8(field, 0)?;
    known(number).ok_or_else(|| t.error(format!("an unknown {}, {number}", field.name)))
}

fn scalar_type(t: Table, field: Field) -> Result<ScalarType> {
    number(t, field, ScalarType::from_number)
}
