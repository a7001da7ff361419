//! What a program file holds, at a glance.

use super::pte::File;
use super::schema::*;
use std::collections::BTreeSet;

/// For `inspect`, and for saying what a program that is not ours would need.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    pub methods: Vec<MethodSummary>,
    /// Key and bytes, sorted by key.
    pub named_data: Vec<(String, u64)>,
    /// Keys of the tensors that the program expects in a `.ptd` file, sorted.
    pub external: Vec<String>,
    /// Bytes of constants, in the constant segment or in buffers of the FlatBuffer.
    pub constant_bytes: u64,
    /// Bytes of the initial values of mutable buffers.
    pub mutable_bytes: u64,
    pub segments: usize,
}

/// One method of a [`Summary`].
#[derive(Clone, Debug, PartialEq)]
pub struct MethodSummary {
    pub name: String,
    /// `Tensor float32 [4, 8] (bound)`, `Int`.
    pub inputs: Vec<String>,
    pub outputs: Vec<String>,
    /// `aten::add.out`, in the order of the file.
    pub operators: Vec<String>,
    /// Backend and bytes of payload.
    pub delegates: Vec<(String, u64)>,
    pub instructions: usize,
    /// Bytes of each planned memory.
    pub planned: Vec<i64>,
}

impl Summary {
    pub(super) fn new(file: &File) -> Summary {
        let program = file.program();
        let segment = |s: &SubsegmentOffsets| match s.offsets.is_empty() {
            true => 0,
            false => file.segment(s.segment_index).map_or(0, |s| s.len() as u64),
        };
        let buffers = program.constant_buffer.iter().map(|b| b.len() as u64).sum::<u64>();
        let external: BTreeSet<&str> = program.execution_plan.iter().flat_map(external_names).collect();
        let size = |key: &str| file.named_data(key).map_or(0, |b| b.len() as u64);
        Summary {
            methods: file.methods().map(|m| MethodSummary::new(&m)).collect(),
            named_data: file.named_keys().map(|key| (key.to_owned(), size(key))).collect(),
            external: external.into_iter().filter(|key| file.named_data(key).is_err()).map(str::to_owned).collect(),
            constant_bytes: buffers + program.constant_segment.as_ref().map_or(0, segment),
            mutable_bytes: program.mutable_data_segments.iter().map(segment).fold(0, u64::saturating_add),
            segments: program.segments.len(),
        }
    }
}

fn external_names(plan: &ExecutionPlan) -> impl Iterator<Item = &str> {
    let extra = plan.values.iter().filter_map(|v| v.tensor()?.extra_tensor_info.as_ref());
    extra.filter(|e| e.location == TensorDataLocation::External).filter_map(|e| e.fully_qualified_name.as_deref())
}

impl MethodSummary {
    fn new(method: &super::pte::Method) -> MethodSummary {
        let plan = method.plan();
        let operator = |o: &Operator| match o.overload.is_empty() {
            true => o.name.clone(),
            false => format!("{}.{}", o.name, o.overload),
        };
        MethodSummary {
            name: plan.name.clone(),
            inputs: method.inputs().map(describe).collect(),
            outputs: method.outputs().map(describe).collect(),
            operators: plan.operators.iter().map(operator).collect(),
            delegates: method.delegates().map(|d| (d.id.to_owned(), d.payload.len() as u64)).collect(),
            instructions: plan.chains.iter().map(|c| c.instructions.len()).sum(),
            planned: plan.non_const_buffer_sizes.iter().skip(1).copied().collect(),
        }
    }
}

fn describe(value: &EValue) -> String {
    let Some(tensor) = value.tensor() else { return value.kind().to_owned() };
    let dynamism = match tensor.shape_dynamism {
        Dynamism::Static => "",
        Dynamism::Bound => " (bound)",
        Dynamism::Unbound => " (unbound)",
    };
    format!("Tensor {} {:?}{dynamism}", tensor.scalar_type, tensor.sizes)
}
