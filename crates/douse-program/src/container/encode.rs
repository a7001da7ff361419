//! From the schema's types to a FlatBuffer's tree.
//!
//! Vectors are written even when empty: ExecuTorch's Python reader wants most of them present.

use super::fields::*;
use super::flatbuffer::{Field, TableNode};
use super::schema::*;
use douse_core::bytes::Bytes;

/// What the schema's `force_align` asks of inline bytes.
const INLINE_ALIGNMENT: usize = 16;

fn inline(field: Field, bytes: &Bytes) -> TableNode<'_> {
    TableNode::new().aligned(field, bytes, INLINE_ALIGNMENT)
}

fn many<'a, T>(items: &'a [T], encode: impl Fn(&'a T) -> TableNode<'a>) -> Vec<TableNode<'a>> {
    items.iter().map(encode).collect()
}

pub fn program(p: &Program) -> TableNode<'_> {
    use program as f;
    let mut t = TableNode::new()
        .u32(f::VERSION, p.version)
        .tables(f::EXECUTION_PLAN, many(&p.execution_plan, execution_plan))
        .tables(f::CONSTANT_BUFFER, many(&p.constant_buffer, |b| inline(buffer::STORAGE, b)))
        .tables(f::BACKEND_DELEGATE_DATA, many(&p.backend_delegate_data, |b| inline(inline_data::DATA, b)))
        .tables(f::SEGMENTS, many(&p.segments, data_segment));
    if let Some(constants) = &p.constant_segment {
        t = t.table(f::CONSTANT_SEGMENT, subsegment_offsets(constants));
    }
    t.tables(f::MUTABLE_DATA_SEGMENTS, many(&p.mutable_data_segments, subsegment_offsets))
        .tables(f::NAMED_DATA, many(&p.named_data, named_data))
}

pub fn flat_tensor(p: &FlatTensor) -> TableNode<'_> {
    use flat_tensor as f;
    TableNode::new()
        .u32(f::VERSION, p.version)
        .tables(f::SEGMENTS, many(&p.segments, data_segment))
        .tables(f::NAMED_DATA, many(&p.named_data, named_data))
}

fn data_segment(s: &DataSegment) -> TableNode<'_> {
    TableNode::new().u64(data_segment::OFFSET, s.offset).u64(data_segment::SIZE, s.size)
}

fn subsegment_offsets(s: &SubsegmentOffsets) -> TableNode<'_> {
    use subsegment_offsets as f;
    TableNode::new().u32(f::SEGMENT_INDEX, s.segment_index).u64s(f::OFFSETS, &s.offsets)
}

fn named_data(n: &NamedData) -> TableNode<'_> {
    use named_data as f;
    let t = TableNode::new().text(f::KEY, &n.key).u32(f::SEGMENT_INDEX, n.segment_index);
    match &n.tensor_layout {
        Some(layout) => t.table(f::TENSOR_LAYOUT, tensor_layout(layout)),
        None => t,
    }
}

fn tensor_layout(l: &TensorLayout) -> TableNode<'_> {
    use tensor_layout as f;
    TableNode::new().i8(f::SCALAR_TYPE, l.scalar_type.number()).i32s(f::SIZES, &l.sizes).u8s(f::DIM_ORDER, &l.dim_order)
}

fn execution_plan(p: &ExecutionPlan) -> TableNode<'_> {
    use execution_plan as f;
    let mut t = TableNode::new().text(f::NAME, &p.name);
    if let Some(m) = &p.container_meta_type {
        use container_metadata as f;
        let table =
            TableNode::new().text(f::ENCODED_INP_STR, &m.encoded_inp_str).text(f::ENCODED_OUT_STR, &m.encoded_out_str);
        t = t.table(execution_plan::CONTAINER_META_TYPE, table);
    }
    t = t
        .tables(f::VALUES, many(&p.values, evalue))
        .i32s(f::INPUTS, &p.inputs)
        .i32s(f::OUTPUTS, &p.outputs)
        .tables(f::CHAINS, many(&p.chains, chain))
        .tables(f::OPERATORS, many(&p.operators, operator))
        .tables(f::DELEGATES, many(&p.delegates, backend_delegate))
        .i64s(f::NON_CONST_BUFFER_SIZES, &p.non_const_buffer_sizes);
    // Newer than most readers, so present only where it says something.
    if p.non_const_buffer_device.is_empty() {
        return t;
    }
    t.tables(f::NON_CONST_BUFFER_DEVICE, many(&p.non_const_buffer_device, non_const_buffer_device))
}

fn non_const_buffer_device(d: &NonConstBufferDevice) -> TableNode<'_> {
    use non_const_buffer_device as f;
    TableNode::new()
        .i32(f::BUFFER_IDX, d.buffer_idx)
        .i8(f::DEVICE_TYPE, d.device_type.number())
        .i8(f::DEVICE_INDEX, d.device_index)
}

fn evalue(v: &EValue) -> TableNode<'_> {
    use kernel_types as k;
    let t = TableNode::new();
    let item = kernel_type::ITEM;
    let (kind, table) = match v {
        EValue::Null => (k::NULL, t),
        EValue::Int(value) => (k::INT, t.i64(item, *value)),
        EValue::Bool(value) => (k::BOOL, t.u8(item, (*value).into())),
        EValue::Double(value) => (k::DOUBLE, t.f64(item, *value)),
        EValue::Tensor(value) => (k::TENSOR, tensor(value)),
        EValue::String(value) => (k::STRING, t.text(item, value)),
        EValue::IntList(values) => (k::INT_LIST, t.i64s(item, values)),
        EValue::DoubleList(values) => (k::DOUBLE_LIST, t.f64s(item, values)),
        EValue::BoolList(values) => (k::BOOL_LIST, t.u8s(item, &values.iter().map(|&b| b.into()).collect::<Vec<u8>>())),
        EValue::TensorList(values) => (k::TENSOR_LIST, t.i32s(item, values)),
        EValue::OptionalTensorList(values) => (k::OPTIONAL_TENSOR_LIST, t.i32s(item, values)),
    };
    TableNode::new().u8(evalue::VAL_TYPE, kind).table(evalue::VAL, table)
}

fn tensor(v: &Tensor) -> TableNode<'_> {
    use tensor as f;
    let mut t = TableNode::new()
        .i8(f::SCALAR_TYPE, v.scalar_type.number())
        .i32(f::STORAGE_OFFSET, v.storage_offset)
        .i32s(f::SIZES, &v.sizes)
        .u8s(f::DIM_ORDER, &v.dim_order)
        .u8(f::REQUIRES_GRAD, v.requires_grad.into())
        .u32(f::DATA_BUFFER_IDX, v.data_buffer_idx)
        .i8(f::LAYOUT, v.layout)
        .i8(f::SHAPE_DYNAMISM, v.shape_dynamism.number());
    if let Some(a) = &v.allocation_info {
        use allocation_details as f;
        let table = TableNode::new()
            .u32(f::MEMORY_ID, a.memory_id)
            .u32(f::MEMORY_OFFSET_LOW, a.memory_offset as u32)
            .u32(f::MEMORY_OFFSET_HIGH, (a.memory_offset >> 32) as u32);
        t = t.table(tensor::ALLOCATION_INFO, table);
    }
    if let Some(e) = &v.extra_tensor_info {
        use extra_tensor_info as f;
        let mut table = TableNode::new().u64(f::MUTABLE_DATA_SEGMENTS_IDX, e.mutable_data_segments_idx);
        if let Some(name) = &e.fully_qualified_name {
            table = table.text(f::FULLY_QUALIFIED_NAME, name);
        }
        table = table
            .i8(f::LOCATION, e.location.number())
            .i8(f::DEVICE_TYPE, e.device_type.number())
            .i8(f::DEVICE_INDEX, e.device_index);
        t = t.table(tensor::EXTRA_TENSOR_INFO, table);
    }
    t
}

fn operator(o: &Operator) -> TableNode<'_> {
    TableNode::new().text(operator::NAME, &o.name).text(operator::OVERLOAD, &o.overload)
}

fn chain(c: &Chain) -> TableNode<'_> {
    use chain as f;
    let t = TableNode::new()
        .i32s(f::INPUTS, &c.inputs)
        .i32s(f::OUTPUTS, &c.outputs)
        .tables(f::INSTRUCTIONS, many(&c.instructions, instruction));
    // Absent rather than empty: a reader may take a present one to have an entry an instruction.
    if c.stacktrace.is_empty() {
        return t;
    }
    let frames = |list| TableNode::new().tables(frame_list::ITEMS, many(list, frame));
    t.tables(f::STACKTRACE, c.stacktrace.iter().map(|list| frames(list)).collect())
}

fn frame(v: &Frame) -> TableNode<'_> {
    use frame as f;
    TableNode::new()
        .text(f::FILENAME, &v.filename)
        .i32(f::LINENO, v.lineno)
        .text(f::NAME, &v.name)
        .text(f::CONTEXT, &v.context)
}

fn instruction(i: &Instruction) -> TableNode<'_> {
    use instruction_arguments as a;
    let t = TableNode::new();
    let (kind, table) = match i {
        Instruction::KernelCall { op_index, args } => {
            (a::KERNEL_CALL, t.i32(kernel_call::OP_INDEX, *op_index).i32s(kernel_call::ARGS, args))
        }
        Instruction::DelegateCall { delegate_index, args } => {
            (a::DELEGATE_CALL, t.i32(delegate_call::DELEGATE_INDEX, *delegate_index).i32s(delegate_call::ARGS, args))
        }
        Instruction::MoveCall { move_from, move_to } => {
            (a::MOVE_CALL, t.i32(move_call::MOVE_FROM, *move_from).i32(move_call::MOVE_TO, *move_to))
        }
        Instruction::JumpFalseCall { cond_value_index, destination_instruction } => {
            use jump_false_call as f;
            let table = t.i32(f::COND_VALUE_INDEX, *cond_value_index);
            (a::JUMP_FALSE_CALL, table.i32(f::DESTINATION_INSTRUCTION, *destination_instruction))
        }
        Instruction::FreeCall { value_index } => (a::FREE_CALL, t.i32(free_call::VALUE_INDEX, *value_index)),
    };
    TableNode::new().u8(instruction::INSTR_ARGS_TYPE, kind).table(instruction::INSTR_ARGS, table)
}

fn backend_delegate(d: &BackendDelegate) -> TableNode<'_> {
    use backend_delegate as f;
    let processed = TableNode::new()
        .i8(data_reference::LOCATION, d.processed.location.number())
        .u32(data_reference::INDEX, d.processed.index);
    TableNode::new()
        .text(f::ID, &d.id)
        .table(f::PROCESSED, processed)
        .tables(f::COMPILE_SPECS, many(&d.compile_specs, compile_spec))
}

fn compile_spec(s: &CompileSpec) -> TableNode<'_> {
    TableNode::new().text(compile_spec::KEY, &s.key).aligned(compile_spec::VALUE, &s.value, 1)
}

#[cfg(test)]
mod tests {
    use super::super::{decode, flatbuffer};
    use super::*;
    use douse_core::DType;

    fn bytes(of: &[u8]) -> Bytes {
        of.to_vec().into()
    }

    fn text(of: &str) -> String {
        of.to_owned()
    }

    /// Every field of the schema, none at its default.
    fn everything() -> Program {
        let tensor = Tensor {
            scalar_type: ScalarType::from_dtype(DType::BF16).unwrap(),
            storage_offset: 5,
            sizes: vec![2, 3],
            dim_order: vec![1, 0],
            requires_grad: true,
            data_buffer_idx: 6,
            allocation_info: Some(AllocationDetails { memory_id: 1, memory_offset: 0x1_2345_6789 }),
            layout: 7,
            shape_dynamism: Dynamism::Unbound,
            extra_tensor_info: Some(ExtraTensorInfo {
                mutable_data_segments_idx: 8,
                fully_qualified_name: Some(text("layer.weight")),
                location: TensorDataLocation::External,
                device_type: DeviceType::Cuda,
                device_index: -1,
            }),
        };
        let values = vec![
            EValue::Null,
            EValue::Int(-1),
            EValue::Bool(true),
            EValue::Double(1.5),
            EValue::Tensor(Box::new(tensor)),
            EValue::String(text("\u{e9}")),
            EValue::IntList(vec![1, 2]),
            EValue::DoubleList(vec![0.5, f64::INFINITY]),
            EValue::BoolList(vec![true, false]),
            EValue::TensorList(vec![4]),
            EValue::OptionalTensorList(vec![-1, 4]),
        ];
        let instructions = vec![
            Instruction::KernelCall { op_index: 1, args: vec![2, 3] },
            Instruction::DelegateCall { delegate_index: 4, args: vec![5] },
            Instruction::MoveCall { move_from: 6, move_to: 7 },
            Instruction::JumpFalseCall { cond_value_index: 8, destination_instruction: 9 },
            Instruction::FreeCall { value_index: 10 },
        ];
        let frame = Frame { filename: text("a.py"), lineno: 3, name: text("forward"), context: text("x + 1") };
        let chain = Chain { inputs: vec![1], outputs: vec![2, 3], instructions, stacktrace: vec![vec![frame], vec![]] };
        let delegate = BackendDelegate {
            id: text("backend"),
            processed: BackendDelegateDataReference { location: DataLocation::Segment, index: 2 },
            compile_specs: vec![CompileSpec { key: text("k"), value: bytes(b"v") }],
        };
        let plan = ExecutionPlan {
            name: text("forward"),
            container_meta_type: Some(ContainerMetadata { encoded_inp_str: text("in"), encoded_out_str: text("out") }),
            values,
            inputs: vec![0],
            outputs: vec![4, 1],
            chains: vec![chain],
            operators: vec![Operator { name: text("aten::add"), overload: text("out") }],
            delegates: vec![delegate],
            non_const_buffer_sizes: vec![0, 1 << 40],
            non_const_buffer_device: vec![NonConstBufferDevice {
                buffer_idx: 1,
                device_type: DeviceType::Cuda,
                device_index: 2,
            }],
        };
        Program {
            version: 3,
            execution_plan: vec![plan],
            constant_buffer: vec![bytes(b""), bytes(b"constant")],
            backend_delegate_data: vec![bytes(b"inline")],
            segments: vec![DataSegment { offset: 1 << 33, size: 2 }],
            constant_segment: Some(SubsegmentOffsets { segment_index: 1, offsets: vec![0, 16] }),
            mutable_data_segments: vec![SubsegmentOffsets { segment_index: 2, offsets: vec![1] }],
            named_data: vec![NamedData {
                key: text("key"),
                segment_index: 1,
                tensor_layout: Some(TensorLayout {
                    scalar_type: ScalarType::from_number(14).unwrap(),
                    sizes: vec![4],
                    dim_order: vec![0],
                }),
            }],
        }
    }

    #[test]
    fn every_field_survives() {
        let flatbuffer = flatbuffer::build(32, b"ET12", program(&everything())).unwrap();
        assert_eq!(decode::program(&flatbuffer.into()), Ok(everything()));
    }

    #[test]
    fn every_field_of_a_flat_tensor_file_survives() {
        let Program { version, segments, named_data, .. } = everything();
        let file = FlatTensor { version, segments, named_data };
        let flatbuffer = flatbuffer::build(48, b"FT01", flat_tensor(&file)).unwrap();
        assert_eq!(decode::flat_tensor(&flatbuffer.into()), Ok(file));
    }
}
