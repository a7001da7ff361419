//! Where each field of the schema stands: its name and id, for the decoder and the encoder alike.

use super::flatbuffer::fields;

fields! {
    program {
        VERSION "version" 0, EXECUTION_PLAN "execution_plan" 1, CONSTANT_BUFFER "constant_buffer" 2,
        BACKEND_DELEGATE_DATA "backend_delegate_data" 3, SEGMENTS "segments" 4, CONSTANT_SEGMENT "constant_segment" 5,
        MUTABLE_DATA_SEGMENTS "mutable_data_segments" 6, NAMED_DATA "named_data" 7,
    }
    execution_plan {
        NAME "name" 0, CONTAINER_META_TYPE "container_meta_type" 1, VALUES "values" 2, INPUTS "inputs" 3,
        OUTPUTS "outputs" 4, CHAINS "chains" 5, OPERATORS "operators" 6, DELEGATES "delegates" 7,
        NON_CONST_BUFFER_SIZES "non_const_buffer_sizes" 8, NON_CONST_BUFFER_DEVICE "non_const_buffer_device" 9,
    }
    container_metadata { ENCODED_INP_STR "encoded_inp_str" 0, ENCODED_OUT_STR "encoded_out_str" 1 }
    buffer { STORAGE "storage" 0 }
    inline_data { DATA "data" 0 }
    tensor {
        SCALAR_TYPE "scalar_type" 0, STORAGE_OFFSET "storage_offset" 1, SIZES "sizes" 2, DIM_ORDER "dim_order" 3,
        REQUIRES_GRAD "requires_grad" 4, DATA_BUFFER_IDX "data_buffer_idx" 5, ALLOCATION_INFO "allocation_info" 6,
        LAYOUT "layout" 7, SHAPE_DYNAMISM "shape_dynamism" 8, EXTRA_TENSOR_INFO "extra_tensor_info" 9,
    }
    extra_tensor_info {
        MUTABLE_DATA_SEGMENTS_IDX "mutable_data_segments_idx" 0, FULLY_QUALIFIED_NAME "fully_qualified_name" 1,
        LOCATION "location" 2, DEVICE_TYPE "device_type" 3, DEVICE_INDEX "device_index" 4,
    }
    allocation_details {
        MEMORY_ID "memory_id" 0, MEMORY_OFFSET_LOW "memory_offset_low" 1, MEMORY_OFFSET_HIGH "memory_offset_high" 2,
    }
    evalue { VAL_TYPE "val_type" 0, VAL "val" 1 }
    // The one field of each table of the `KernelTypes` union but `Tensor`.
    kernel_type { ITEM "val" 0 }
    operator { NAME "name" 0, OVERLOAD "overload" 1 }
    chain { INPUTS "inputs" 0, OUTPUTS "outputs" 1, INSTRUCTIONS "instructions" 2, STACKTRACE "stacktrace" 3 }
    frame_list { ITEMS "items" 0 }
    frame { FILENAME "filename" 0, LINENO "lineno" 1, NAME "name" 2, CONTEXT "context" 3 }
    instruction { INSTR_ARGS_TYPE "instr_args_type" 0, INSTR_ARGS "instr_args" 1 }
    kernel_call { OP_INDEX "op_index" 0, ARGS "args" 1 }
    delegate_call { DELEGATE_INDEX "delegate_index" 0, ARGS "args" 1 }
    move_call { MOVE_FROM "move_from" 0, MOVE_TO "move_to" 1 }
    jump_false_call { COND_VALUE_INDEX "cond_value_index" 0, DESTINATION_INSTRUCTION "destination_instruction" 1 }
    free_call { VALUE_INDEX "value_index" 0 }
    backend_delegate { ID "id" 0, PROCESSED "processed" 1, COMPILE_SPECS "compile_specs" 2 }
    data_reference { LOCATION "location" 0, INDEX "index" 1 }
    compile_spec { KEY "key" 0, VALUE "value" 1 }
    non_const_buffer_device { BUFFER_IDX "buffer_idx" 0, DEVICE_TYPE "device_type" 1, DEVICE_INDEX "device_index" 2 }
    data_segment { OFFSET "offset" 0, SIZE "size" 1 }
    subsegment_offsets { SEGMENT_INDEX "segment_index" 0, OFFSETS "offsets" 1 }
    named_data { KEY "key" 0, SEGMENT_INDEX "segment_index" 1, TENSOR_LAYOUT "tensor_layout" 2 }
    tensor_layout { SCALAR_TYPE "scalar_type" 0, SIZES "sizes" 1, DIM_ORDER "dim_order" 2 }
    flat_tensor { VERSION "version" 0, SEGMENTS "segments" 1, NAMED_DATA "named_data" 2 }
}

/// Members of the `KernelTypes` union.
pub mod kernel_types {
    pub const NULL: u8 = 1;
    pub const INT: u8 = 2;
    pub const BOOL: u8 = 3;
    pub const DOUBLE: u8 = 4;
    pub const TENSOR: u8 = 5;
    pub const STRING: u8 = 6;
    pub const INT_LIST: u8 = 7;
    pub const DOUBLE_LIST: u8 = 8;
    pub const BOOL_LIST: u8 = 9;
    pub const TENSOR_LIST: u8 = 10;
    pub const OPTIONAL_TENSOR_LIST: u8 = 11;
}

/// Members of the `InstructionArguments` union.
pub mod instruction_arguments {
    pub const KERNEL_CALL: u8 = 1;
    pub const DELEGATE_CALL: u8 = 2;
    pub const MOVE_CALL: u8 = 3;
    pub const JUMP_FALSE_CALL: u8 = 4;
    pub const FREE_CALL: u8 = 5;
}
