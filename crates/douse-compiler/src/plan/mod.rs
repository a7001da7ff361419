//! The plan: from a module to steps over buffers.
//!
//! Each block is walked in order and gives a list of *items*: groups of kernel members, which later members may still join, and steps that
//! are ready. At the end of a block its groups are finished into kernels. A value has a buffer once something asks for it; a value of a group that
//! nothing outside the group reads has none.
//!
//! State and written inputs get their new content by copies at the very end, when nothing can fail any more, so that a failed call
//! leaves them as they were. A scatter into state happens in place only where [`in_place`] shows that this is the same.

mod block;
mod build;
mod constant;
mod epilogue;
mod in_place;
mod library;
mod together;

use std::collections::HashMap;

use douse_core::bytes::Bytes;
use douse_core::sym::{Expr, Ranges};
use douse_core::{DType, Result};
use douse_ir::{InputKind, Module, NodeId, Op, OutputKind, Value, WriteTarget};
use douse_program::plan as program;
use douse_program::plan::{Buffer, BufferId, BufferKind, Data, Input, Output, Plan, Step};
use indexmap::IndexMap;

use crate::fuse::fate::{self, Fates};
use crate::fuse::layout::{Layouts, is_dense, real_strides, row_major};

/// A plan and the data that it names.
#[derive(Debug)]
pub struct Planned {
    pub plan: Plan,
    /// Weights and constants by the key of their content.
    pub data: IndexMap<String, Bytes>,
}

/// Constants up to this many bytes stand in the plan itself.
const INLINE: usize = 64;

pub(crate) struct Planner<'a> {
    pub module: &'a Module,
    pub ranges: Ranges,
    pub definitions: Vec<Option<NodeId>>,
    pub layouts: Layouts,
    pub fates: Fates,
    pub fuse: bool,
    buffers: Vec<Buffer>,
    buffer_of: HashMap<Value, BufferId>,
    kernels: Vec<douse_program::kernel::Kernel>,
    messages: Vec<String>,
    data: IndexMap<String, Bytes>,
    key: fn(&[u8]) -> String,
    constants: HashMap<u32, BufferId>,
    state_buffers: Vec<BufferId>,
    input_buffers: HashMap<u32, BufferId>,
    /// The bytes of constants that do not lie in row-major order.
    moved_constants: HashMap<u32, Bytes>,
    /// The output whose buffer a value is computed into.
    output_of: HashMap<Value, u32>,
    /// Scatters that write their base's buffer.
    in_place: in_place::InPlace,
    names: HashMap<String, u32>,
}

/// Plans a module. `key` names data by content; with `fuse` off every node has a kernel of its own.
pub fn plan(module: &Module, fuse: bool, key: fn(&[u8]) -> String) -> Result<Planned> {
    let ranges = module.ranges();
    let definitions = module.graph.definitions();
    let layouts = Layouts::choose(module, &definitions, &ranges);
    let fates = fate::decide(module, &definitions, &layouts, &ranges, fuse);
    let in_place = in_place::find(module, &definitions, &layouts, &fates);
    let moved_constants = constant::moved(module, &layouts)?;
    let planner = Planner {
        module,
        ranges,
        definitions,
        layouts,
        fates,
        fuse,
        buffers: vec![],
        buffer_of: HashMap::new(),
        kernels: vec![],
        messages: module.messages.clone(),
        data: IndexMap::new(),
        key,
        constants: HashMap::new(),
        moved_constants,
        state_buffers: vec![],
        input_buffers: HashMap::new(),
        output_of: HashMap::new(),
        in_place,
        names: HashMap::new(),
    };
    planner.run()
}

impl Planner<'_> {
    fn run(mut self) -> Result<Planned> {
        let inputs = self.inputs();
        for (i, state) in self.module.states.iter().enumerate() {
            let initial = self.data_of(&state.initial.clone());
            let kind = BufferKind::State { name: state.name.clone(), initial };
            let id = self.new_buffer(state.dtype, Expr::product(&state.sizes), kind);
            debug_assert_eq!(self.state_buffers.len(), i);
            self.state_buffers.push(id);
        }
        self.claim_outputs();
        let mut items = self.first_items(&self.module.body);
        items.extend(self.checks_first()?);
        self.block_items(&self.module.body, &mut items)?;
        let checks_first = self.in_place.writes_state();
        let outputs = self.outputs(&mut items)?;
        let last = self.writes(&mut items)?;
        let mut steps = self.finish_items(items)?;
        steps.extend(last);
        let module = self.module;
        let mut plan = Plan {
            name: module.name.clone(),
            symbols: module.symbols.clone(),
            inputs,
            outputs,
            buffers: self.buffers,
            kernels: self.kernels,
            steps,
            messages: self.messages,
            in_spec: module.in_spec.clone(),
            out_spec: module.out_spec.clone(),
            checks_first,
        };
        if self.fuse {
            epilogue::attach(&mut plan, &self.ranges);
            together::gather(&mut plan);
        }
        Ok(Planned { plan, data: self.data })
    }

    fn new_buffer(&mut self, dtype: DType, elements: Expr, kind: BufferKind) -> BufferId {
        self.buffers.push(Buffer { dtype, elements, kind });
        (self.buffers.len() - 1) as BufferId
    }

    fn data_of(&mut self, bytes: &Bytes) -> Data {
        if bytes.iter().all(|b| *b == 0) {
            return Data::Zeros(bytes.len() as u64);
        }
        if bytes.len() <= INLINE {
            return Data::Inline(bytes.to_vec());
        }
        let key = (self.key)(bytes);
        self.data.entry(key.clone()).or_insert_with(|| bytes.clone());
        Data::Named(key)
    }

    fn inputs(&mut self) -> Vec<Input> {
        let module = self.module;
        let written = |i: u32| module.writes.iter().any(|w| w.target == WriteTarget::Input(i));
        let mut inputs = Vec::new();
        for (i, decl) in (0u32..).zip(&module.inputs) {
            let kind = match &decl.kind {
                InputKind::Tensor { dtype, sizes, strides } => {
                    let factor = if dtype.is_complex() { 2 } else { 1 };
                    let elements = extent(sizes, strides) * factor;
                    let buffer = self.new_buffer(dtype.real(), elements, BufferKind::Input(i));
                    self.input_buffers.insert(i, buffer);
                    program::InputKind::Tensor {
                        dtype: *dtype,
                        sizes: sizes.clone(),
                        strides: strides.clone(),
                        buffer,
                        written: written(i),
                    }
                }
                InputKind::Int => program::InputKind::Int,
                InputKind::Number(dtype) => {
                    let buffer = self.new_buffer(*dtype, Expr::int(1), BufferKind::Input(i));
                    self.input_buffers.insert(i, buffer);
                    program::InputKind::Number { dtype: *dtype, buffer }
                }
                InputKind::Fixed(fixed) => program::InputKind::Fixed(fixed.clone()),
            };
            inputs.push(Input { name: decl.name.clone(), kind });
        }
        inputs
    }

    /// Values that are computed straight into an output's buffer: those that a kernel or library step of the body makes, in the first output that is one.
    fn claim_outputs(&mut self) {
        for (i, output) in (0u32..).zip(&self.module.outputs) {
            let OutputKind::Tensor { value, dtype, strides } = &output.kind else { continue };
            let made = self.definitions[value.0 as usize].is_some_and(|n| {
                let op = &self.module.graph.node(n).op;
                !matches!(op, Op::Input(_) | Op::State(_) | Op::Constant(_) | Op::While { .. } | Op::Nonzero { .. })
            });
            let shape = self.module.graph.shape(*value);
            let wanted = real_strides(strides, dtype.is_complex());
            let own = self.layouts.strides(&self.module.graph, *value);
            let fits = !is_dense(shape, &wanted) && own == row_major(shape) || own == wanted;
            if made && fits && !self.in_place.reuses(*value) && !self.output_of.contains_key(value) {
                self.output_of.insert(*value, i);
            }
        }
    }

    /// The buffer of a stored value.
    pub fn buffer(&mut self, value: Value) -> BufferId {
        if let Some(id) = self.buffer_of.get(&value) {
            return *id;
        }
        let graph = &self.module.graph;
        let (dtype, mut elements) = (graph.dtype(value), Expr::product(graph.shape(value)));
        let node = self.definitions[value.0 as usize].map(|n| graph.node(n));
        let op = node.map(|n| &n.op);
        // The count is known only once the step has run: there is room for all.
        if let (Some(Op::Nonzero { .. }), Some(mask)) = (op, node.and_then(|n| n.operands.first())) {
            let shape = graph.shape(*mask);
            elements = &Expr::product(shape) * (shape.len() as i64);
        }
        let id = match op {
            Some(Op::Input(i)) => self.input_buffers.get(i).copied().unwrap_or_default(),
            Some(Op::State(i)) => self.state_buffers[*i as usize],
            Some(Op::Constant(i)) => match self.constants.get(i) {
                Some(id) => *id,
                None => {
                    let bytes = self.moved_constants.get(i).unwrap_or(&self.module.constants[*i as usize].bytes);
                    let data = self.data_of(&bytes.clone());
                    let id = self.new_buffer(dtype, elements, BufferKind::Constant(data));
                    self.constants.insert(*i, id);
                    id
                }
            },
            _ => match self.output_of.get(&value).copied() {
                Some(output) => self.new_buffer(dtype, elements, BufferKind::Output(output)),
                None => self.new_buffer(dtype, elements, BufferKind::Temporary),
            },
        };
        self.buffer_of.insert(value, id);
        id
    }

    fn outputs(&mut self, items: &mut Vec<block::Item>) -> Result<Vec<Output>> {
        let module = self.module;
        let mut outputs = Vec::new();
        for (i, decl) in (0u32..).zip(&module.outputs) {
            let kind = match &decl.kind {
                OutputKind::Tensor { value, dtype, strides } => {
                    let shape = module.graph.shape(*value).to_vec();
                    let wanted = real_strides(strides, dtype.is_complex());
                    let dense = is_dense(&shape, &wanted);
                    let real = if dense { wanted } else { row_major(&shape) };
                    let buffer = if self.output_of.get(value) == Some(&i) {
                        self.buffer(*value)
                    } else {
                        let elements = Expr::product(&shape);
                        let buffer = self.new_buffer(module.graph.dtype(*value), elements, BufferKind::Output(i));
                        let step = self.copy_into(*value, buffer, &real, &Expr::int(0))?;
                        items.push(block::Item::Steps(vec![step]));
                        buffer
                    };
                    let (sizes, strides) = if dtype.is_complex() {
                        let rank = shape.len() - 1;
                        let half = real[..rank].iter().map(|s| s.floor_div(&Expr::int(2))).collect();
                        (shape[..rank].to_vec(), half)
                    } else {
                        (shape, real)
                    };
                    program::OutputKind::Tensor { dtype: *dtype, sizes, strides, buffer }
                }
                OutputKind::Int(e) => program::OutputKind::Int(e.clone()),
                OutputKind::Bool(c) => program::OutputKind::Bool(c.clone()),
                OutputKind::Number(value) => {
                    program::OutputKind::Number { dtype: module.graph.dtype(*value), buffer: self.buffer(*value) }
                }
                OutputKind::Fixed(fixed) => program::OutputKind::Fixed(fixed.clone()),
            };
            outputs.push(Output { name: decl.name.clone(), kind });
        }
        Ok(outputs)
    }

    /// The steps that give state and written inputs their new content. What would read a target that another write has changed goes through a temporary first.
    fn writes(&mut self, items: &mut Vec<block::Item>) -> Result<Vec<Step>> {
        let module = self.module;
        let mut last = Vec::new();
        for write in &module.writes {
            let to = match write.target {
                WriteTarget::State(i) => self.state_buffers[i as usize],
                WriteTarget::Input(i) => self.input_buffers.get(&i).copied().unwrap_or_default(),
            };
            if self.buffer_of.get(&write.value) == Some(&to) {
                continue;
            }
            let shape = module.graph.shape(write.value).to_vec();
            let strides = match write.target {
                WriteTarget::State(_) => row_major(&shape),
                WriteTarget::Input(i) => match module.inputs.get(i as usize).map(|d| &d.kind) {
                    Some(InputKind::Tensor { dtype, strides, .. }) => real_strides(strides, dtype.is_complex()),
                    _ => row_major(&shape),
                },
            };
            let own = self.layouts.strides(&module.graph, write.value);
            let leaf = self.fates.of(write.value) == fate::Fate::Leaf;
            let from = if own == strides && !leaf && !self.output_of.contains_key(&write.value) {
                self.buffer(write.value)
            } else {
                let elements = self.buffers[to as usize].elements.clone();
                let dtype = module.graph.dtype(write.value);
                let temporary = self.new_buffer(dtype, elements, BufferKind::Temporary);
                let step = self.copy_into(write.value, temporary, &strides, &Expr::int(0))?;
                items.push(block::Item::Steps(vec![step]));
                temporary
            };
            last.push(Step::Copy { from, to });
        }
        Ok(last)
    }
}

/// Elements from the first to the last that strides reach.
fn extent(sizes: &[Expr], strides: &[Expr]) -> Expr {
    if is_dense(sizes, strides) {
        return Expr::product(sizes);
    }
    let last = sizes.iter().zip(strides).fold(Expr::int(1), |sum, (n, s)| &sum + &(&(n - 1) * s));
    if sizes.iter().any(|n| n.is_int(0)) { Expr::int(0) } else { last.maximum(&Expr::int(0)) }
}
