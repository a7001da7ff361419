//! The whole program: signature in, nodes, signature out.

use std::collections::HashMap;

use douse_core::bytes::Bytes;
use douse_core::sym::{Expr, Symbol};
use douse_core::{DType, Error, Result};
use douse_ir::{
    Builder, Constant, InputDecl, InputKind, Module, Op, OutputDecl, OutputKind, StateDecl, Write, WriteTarget,
};
use douse_program::plan::{Fixed, SymbolInfo, SymbolSource};
use douse_pt2::{
    Argument, ConstantValue, ExportedProgram, Graph, InputSpec, OutputSpec, Sym, SymTree, Symbolic, TensorData,
    TensorMeta,
};

use crate::fuse::layout::is_dense;

use super::args::Val;
use super::guards;
use super::importer::{ImportError, Importer, Unsupported, is_idle, operator};
use super::table;
use super::tensor::Tensor;

/// Imports a program as a module of one method.
///
/// # Errors
/// Every operator and argument that is not supported, or the first thing that is wrong with the program.
pub fn import(program: &ExportedProgram, name: &str) -> Result<Module, ImportError> {
    let missing = missing_operators(program);
    if !missing.is_empty() {
        return Err(ImportError::Unsupported(missing));
    }
    let module = Module { name: name.to_string(), ..Module::default() };
    let mut importer = Importer::new(Builder::new(module));
    let mut signature = Signature::default();
    let result = signature
        .inputs(&mut importer, program)
        .map(|()| guards::require(&mut importer, &program.guards_code))
        .and_then(|()| importer.nodes(&program.graph))
        .and_then(|()| signature.outputs(&mut importer, program));
    let unsupported = importer.take_unsupported();
    if !unsupported.is_empty() {
        return Err(ImportError::Unsupported(unsupported));
    }
    result?;
    Ok(importer.b.finish())
}

/// Every operator of the program, of its branches too, that has no row.
fn missing_operators(program: &ExportedProgram) -> Vec<Unsupported> {
    let mut probe = Importer::new(Builder::new(Module::default()));
    let mut graphs: Vec<&Graph> = vec![&program.graph];
    while let Some(graph) = graphs.pop() {
        for node in &graph.nodes {
            if !table::known(operator(node)) && !is_idle(node) {
                probe.note_unsupported(&format!("operator {}", operator(node)), node);
            }
            graphs.extend(node.inputs.iter().filter_map(|input| match &input.arg {
                Argument::Graph(_, graph) => Some(graph.as_ref()),
                _ => None,
            }));
        }
    }
    probe.take_unsupported()
}

/// What import keeps of the signature between inputs and outputs.
#[derive(Default)]
struct Signature {
    /// Tensors of weights and inputs, by name: fully qualified, or the graph's.
    targets: HashMap<String, Tensor>,
    /// The tensor of each payload that was opened, by storage and layout, for ties.
    tied: Vec<(TensorData, Tensor)>,
}

fn fixed(value: &ConstantValue) -> Fixed {
    use douse_core::Scalar;
    match value {
        ConstantValue::None => Fixed::None,
        ConstantValue::Int(i) => Fixed::Scalar(Scalar::Int(*i)),
        ConstantValue::Float(f) => Fixed::Scalar(Scalar::Float(*f)),
        ConstantValue::Bool(b) => Fixed::Scalar(Scalar::Bool(*b)),
        ConstantValue::Str(s) => Fixed::Str(s.clone()),
    }
}

fn constant_val(value: &ConstantValue) -> Val {
    match value {
        ConstantValue::None => Val::None,
        ConstantValue::Int(i) => Val::Int(Expr::int(*i)),
        ConstantValue::Float(f) => Val::Float(*f),
        ConstantValue::Bool(b) => Val::Bool(*b),
        ConstantValue::Str(s) => Val::Str(s.clone()),
    }
}

impl Signature {
    fn inputs(&mut self, imp: &mut Importer, program: &ExportedProgram) -> Result<()> {
        let users: Vec<(&Argument, &str)> = program
            .input_specs
            .iter()
            .filter_map(|spec| match spec {
                InputSpec::User { label, arg } => Some((arg, label.as_str())),
                InputSpec::Constant { label, .. } => Some((&Argument::None, label.as_str())),
                _ => None,
            })
            .collect();
        self.symbols(imp, program, &users)?;
        let mut number = 0u32;
        for spec in &program.input_specs {
            match spec {
                InputSpec::User { label, arg } => {
                    self.user_input(imp, program, number, label, arg)?;
                    number += 1;
                }
                InputSpec::Constant { label, name, value } => {
                    imp.b.module.inputs.push(InputDecl { name: label.clone(), kind: InputKind::Fixed(fixed(value)) });
                    imp.env.insert(name.clone(), constant_val(value));
                    number += 1;
                }
                InputSpec::Parameter { arg, fqn }
                | InputSpec::TensorConstant { arg, fqn }
                | InputSpec::Buffer { arg, fqn, .. } => self.weight(imp, program, arg, fqn)?,
                InputSpec::CustomObj { fqn, .. } => {
                    return Err(Error::not_supported(format!("the custom object {fqn}")));
                }
                InputSpec::Token { arg } => {
                    imp.env.insert(arg.clone(), Val::None);
                }
            }
        }
        Ok(())
    }

    /// Gives each symbol of the inputs' sizes its source.
    fn symbols(&mut self, imp: &mut Importer, program: &ExportedProgram, users: &[(&Argument, &str)]) -> Result<()> {
        let add = |imp: &mut Importer, name: &str, source: SymbolSource, size: bool| {
            if imp.symbols.names.contains_key(name) {
                return;
            }
            let range = program.ranges.get(name).copied().unwrap_or_default();
            // 2 is how PyTorch says that 0 and 1 were not specialised; such calls are answered.
            let min = match range.min {
                Some(2) if size => Some(0),
                // Of an integer that is a size somewhere, 1 is not specialised either.
                Some(2) => Some(1),
                None if size => Some(0),
                other => other,
            };
            let max = range.max.filter(|m| *m < i64::MAX / 2);
            let id = imp.b.add_symbol(SymbolInfo { name: name.to_string(), min, max, source, bound: None });
            imp.symbols.names.insert(name.to_string(), id);
        };
        let mut composite = Vec::new();
        for (i, (arg, _)) in users.iter().enumerate() {
            let input = i as u32;
            match arg {
                Argument::Tensor(name) => {
                    let meta = meta(&program.graph, name)?;
                    for (d, size) in meta.sizes.iter().enumerate() {
                        match size {
                            Symbolic::Expr { tree: SymTree::Symbol(symbol), .. } => {
                                let source = SymbolSource::Size { input, dim: d as u32, scale: 1, offset: 0 };
                                add(imp, symbol, source, true);
                            }
                            Symbolic::Expr { tree, .. } => composite.push((input, d as u32, tree)),
                            Symbolic::Value(_) => {}
                        }
                    }
                }
                Argument::SymInt(Sym::Name(name)) => {
                    if let Some(Symbolic::Expr { tree: SymTree::Symbol(symbol), .. }) =
                        program.graph.sym_int_values.get(name)
                    {
                        add(imp, symbol, SymbolSource::Int { input }, false);
                    }
                }
                _ => {}
            }
        }
        // Sizes like 2*s0 + 1, whose symbol stands nowhere alone.
        for (input, dim, tree) in composite {
            let mut unknown: Vec<&str> = tree.symbols();
            unknown.retain(|s| !imp.symbols.names.contains_key(*s));
            unknown.dedup();
            let [name] = unknown.as_slice() else {
                if unknown.is_empty() {
                    continue;
                }
                return Err(Error::not_supported(format!("an input size of several unknowns: {tree}")));
            };
            let probe = imp.b.module.symbols.len() as u32;
            imp.symbols.names.insert(name.to_string(), probe);
            let expr = imp.symbols.expr(tree)?;
            imp.symbols.names.shift_remove(*name);
            let solved = expr
                .affine(Symbol::Size(probe))
                .and_then(|(scale, offset)| Some((scale.as_int()?, offset.as_int()?)))
                .filter(|(scale, _)| *scale != 0);
            let Some((scale, offset)) = solved else {
                return Err(Error::not_supported(format!("an input size that is not linear in {name}: {tree}")));
            };
            add(imp, name, SymbolSource::Size { input, dim, scale, offset }, true);
        }
        Ok(())
    }

    fn user_input(
        &mut self,
        imp: &mut Importer,
        program: &ExportedProgram,
        number: u32,
        label: &str,
        arg: &Argument,
    ) -> Result<()> {
        let kind = match arg {
            Argument::Tensor(name) => {
                let meta = meta(&program.graph, name)?;
                let sizes: Vec<Expr> = meta.sizes.iter().map(|s| imp.symbols.size(s)).collect::<Result<_>>()?;
                let strides: Vec<Expr> = meta.strides.iter().map(|s| imp.symbols.size(s)).collect::<Result<_>>()?;
                let mut shape = sizes.clone();
                if meta.dtype.is_complex() {
                    shape.push(Expr::int(2));
                }
                let value = imp.b.input(number, meta.dtype.real(), shape);
                let tensor = imp.new_storage(value, meta.dtype, Some(WriteTarget::Input(number)));
                imp.set_strides(tensor, strides.clone());
                imp.env.insert(name.clone(), Val::Tensor(tensor));
                self.targets.insert(name.clone(), tensor);
                // Elements that share memory in the example, an expanded tensor's, need not be equal in another call.
                let strides =
                    if shares_memory(&sizes, &strides) { super::tensor::contiguous_strides(&sizes) } else { strides };
                InputKind::Tensor { dtype: meta.dtype, sizes, strides }
            }
            Argument::SymInt(Sym::Name(name)) => {
                let size = program.graph.sym_int_values.get(name);
                let expr = match size {
                    Some(size) => imp.symbols.size(size)?,
                    None => return Err(Error::invalid_program(format!("input {label} has no description"))),
                };
                imp.env.insert(name.clone(), Val::Int(expr.clone()));
                match expr.as_int() {
                    Some(i) => InputKind::Fixed(Fixed::Scalar(douse_core::Scalar::Int(i))),
                    None => InputKind::Int,
                }
            }
            Argument::SymFloat(Sym::Name(name)) => {
                let value = imp.b.input(number, DType::F64, vec![]);
                imp.env.insert(name.clone(), Val::SymFloat(value));
                InputKind::Number(DType::F64)
            }
            Argument::SymBool(Sym::Name(name)) => {
                let value = imp.b.input(number, DType::Bool, vec![]);
                imp.env.insert(name.clone(), Val::BoolValue(value));
                InputKind::Number(DType::Bool)
            }
            Argument::None => InputKind::Fixed(Fixed::None),
            Argument::Int(i) => InputKind::Fixed(Fixed::Scalar(douse_core::Scalar::Int(*i))),
            Argument::Float(f) => InputKind::Fixed(Fixed::Scalar(douse_core::Scalar::Float(*f))),
            Argument::Bool(b) => InputKind::Fixed(Fixed::Scalar(douse_core::Scalar::Bool(*b))),
            Argument::Str(s) => InputKind::Fixed(Fixed::Str(s.clone())),
            _ => return Err(Error::not_supported(format!("the kind of input {label}"))),
        };
        imp.b.module.inputs.push(InputDecl { name: label.to_string(), kind });
        Ok(())
    }

    /// A parameter, buffer or constant. All begin as states, since a program may write any of them; those that nothing writes become
    /// constants at the end.
    fn weight(&mut self, imp: &mut Importer, program: &ExportedProgram, arg: &str, fqn: &str) -> Result<()> {
        let data = program
            .tensors
            .get(fqn)
            .ok_or_else(|| Error::invalid_program(format!("the file has no data for {fqn}")))?;
        let same = |(other, _): &&(TensorData, Tensor)| {
            other.storage().id == data.storage().id
                && other.storage_offset() == data.storage_offset()
                && other.sizes() == data.sizes()
                && other.strides() == data.strides()
                && other.dtype() == data.dtype()
        };
        if let Some((_, tensor)) = self.tied.iter().find(same) {
            let tensor = imp.alias(*tensor);
            imp.env.insert(arg.to_string(), Val::Tensor(tensor));
            self.targets.insert(fqn.to_string(), tensor);
            return Ok(());
        }
        let dense = Dense::of(data)?;
        let mut shape: Vec<Expr> = dense.sizes.iter().map(|s| Expr::int(*s as i64)).collect();
        if data.dtype().is_complex() {
            shape.push(Expr::int(2));
        }
        let dtype = data.dtype().real();
        let number = imp.b.module.states.len() as u32;
        let state = StateDecl { name: fqn.to_string(), dtype, sizes: shape.clone(), initial: dense.bytes };
        imp.b.module.states.push(state);
        let root = imp.b.state(number, dtype, shape);
        let mut tensor = imp.new_storage(root, data.dtype(), Some(WriteTarget::State(number)));
        imp.set_storage_start(tensor, data.storage_offset() as i64);
        if let Some(dims) = dense.dims {
            tensor = imp.permuted(tensor, &dims)?;
        }
        imp.set_strides(tensor, data.strides().iter().map(|s| Expr::int(*s as i64)).collect());
        imp.env.insert(arg.to_string(), Val::Tensor(tensor));
        self.targets.insert(fqn.to_string(), tensor);
        self.tied.push((data.clone(), tensor));
        Ok(())
    }

    fn outputs(&mut self, imp: &mut Importer, program: &ExportedProgram) -> Result<()> {
        for spec in &program.output_specs {
            match spec {
                OutputSpec::User { label, arg } => {
                    let kind = self.user_output(imp, arg)?;
                    imp.b.module.outputs.push(OutputDecl { name: label.clone(), kind });
                }
                OutputSpec::BufferMutation { arg, fqn: name }
                | OutputSpec::ParameterMutation { arg, fqn: name }
                | OutputSpec::UserInputMutation { arg, input: name } => {
                    let target = self.targets.get(name).copied();
                    let target =
                        target.ok_or_else(|| Error::invalid_program(format!("{name} is written but unknown")))?;
                    let Val::Tensor(value) = imp.output(&Argument::Tensor(arg.clone()))? else {
                        return Err(Error::invalid_program(format!("the new value of {name} is not a tensor")));
                    };
                    let value = imp.read(value)?;
                    imp.write_cast(target, value)?;
                }
                OutputSpec::Token { .. } => {}
                OutputSpec::Loss { .. }
                | OutputSpec::GradientToParameter { .. }
                | OutputSpec::GradientToUserInput { .. } => {
                    return Err(Error::not_supported("a training program (loss and gradient outputs)"));
                }
            }
        }
        self.writes(imp)
    }

    fn user_output(&mut self, imp: &mut Importer, arg: &Argument) -> Result<OutputKind> {
        use douse_core::Scalar;
        Ok(match imp.output(arg)? {
            Val::Tensor(tensor) => {
                let (value, dtype) = (imp.read(tensor)?, imp.dtype_of(tensor));
                let strides = match imp.strides_of(tensor) {
                    Some(strides) => strides,
                    None => super::tensor::contiguous_strides(&imp.shape_of(tensor)?),
                };
                OutputKind::Tensor { value, dtype, strides }
            }
            Val::Int(e) => OutputKind::Int(e),
            Val::SymBool(c) => OutputKind::Bool(c),
            Val::SymFloat(v) | Val::BoolValue(v) => OutputKind::Number(v),
            Val::Float(f) => OutputKind::Fixed(Fixed::Scalar(Scalar::Float(f))),
            Val::Bool(b) => OutputKind::Fixed(Fixed::Scalar(Scalar::Bool(b))),
            Val::Str(s) => OutputKind::Fixed(Fixed::Str(s)),
            Val::None => OutputKind::Fixed(Fixed::None),
            _ => return Err(Error::not_supported("the kind of an output")),
        })
    }

    /// What was written goes into the module's writes; weights that nothing wrote become constants.
    fn writes(&mut self, imp: &mut Importer) -> Result<()> {
        let mut written = vec![false; imp.b.module.states.len()];
        for storage in imp.storages.clone() {
            let Some(target) = storage.target.filter(|_| storage.version > 0) else { continue };
            if let WriteTarget::State(i) = target {
                written[i as usize] = true;
                self.refuse_shared(imp, i)?;
            }
            imp.b.module.writes.push(Write { target, value: storage.root });
        }
        let module = &mut imp.b.module;
        let mut renumbered = Vec::new();
        let mut kept = Vec::new();
        for (state, written) in std::mem::take(&mut module.states).into_iter().zip(&written) {
            if *written {
                renumbered.push(Op::State(kept.len() as u32));
                kept.push(state);
            } else {
                renumbered.push(Op::Constant(module.constants.len() as u32));
                module.constants.push(Constant { name: state.name, bytes: state.initial });
            }
        }
        module.states = kept;
        let new_state = |op: &Op| match op {
            Op::State(i) => Some(*i),
            _ => None,
        };
        for node in &mut module.graph.nodes {
            if let Some(new) = new_state(&node.op).and_then(|i| renumbered.get(i as usize)) {
                node.op = new.clone();
            }
        }
        for write in &mut module.writes {
            if let WriteTarget::State(i) = write.target {
                if let Some(Op::State(new)) = renumbered.get(i as usize) {
                    write.target = WriteTarget::State(*new);
                }
            }
        }
        Ok(())
    }

    /// A written weight that shares memory with another in a way that is not the very same view.
    fn refuse_shared(&self, imp: &Importer, state: u32) -> Result<()> {
        let name = &imp.b.module.states[state as usize].name;
        let Some(own) = self.targets.get(name) else { return Ok(()) };
        let storage = imp.info(*own).storage;
        let Some((data, _)) = self.tied.iter().find(|(_, t)| imp.info(*t).storage == storage) else {
            return Ok(());
        };
        let shared = self.tied.iter().any(|(other, t)| {
            other.storage().id == data.storage().id && imp.info(*t).storage != storage && other.numel() > 0
        });
        if shared {
            return Err(Error::not_supported(format!(
                "writing the weight {name}, which is a slice of another tensor's memory,"
            )));
        }
        Ok(())
    }
}

fn meta<'a>(graph: &'a Graph, name: &str) -> Result<&'a TensorMeta> {
    let meta = graph.tensor_values.get(name);
    meta.ok_or_else(|| Error::invalid_program(format!("the file does not describe the tensor {name}")))
}

/// A weight's bytes in row-major order of `sizes`; `dims`, if any, permutes them to the weight's own order.
struct Dense {
    bytes: Bytes,
    sizes: Vec<usize>,
    dims: Option<Vec<usize>>,
}

impl Dense {
    /// Without a copy where the strides are those of a permuted dense tensor (channels-last, say).
    fn of(data: &TensorData) -> Result<Dense> {
        let rank = data.sizes().len();
        let mut order: Vec<usize> = (0..rank).collect();
        if !data.is_contiguous() {
            order.sort_by_key(|d| (std::cmp::Reverse(data.strides()[*d]), *d));
        }
        let sizes: Vec<usize> = order.iter().map(|d| data.sizes()[*d]).collect();
        let strides: Vec<usize> = order.iter().map(|d| data.strides()[*d]).collect();
        let permuted =
            TensorData::new(data.dtype(), sizes.clone(), strides, data.storage_offset(), data.storage().clone())?;
        let size = data.dtype().size();
        if permuted.is_contiguous() {
            let bytes = data
                .storage()
                .bytes
                .slice(if data.numel() == 0 { 0 } else { data.storage_offset() * size }, data.numel() * size)?;
            let mut dims = vec![0; rank];
            for (i, d) in order.iter().enumerate() {
                dims[*d] = i;
            }
            let identity = dims.iter().enumerate().all(|(i, d)| i == *d);
            return Ok(Dense { bytes, sizes, dims: (!identity).then_some(dims) });
        }
        let mut bytes = Vec::with_capacity(data.numel() * size);
        let mut at = vec![0usize; rank];
        for _ in 0..data.numel() {
            let offset: usize = at.iter().zip(data.strides()).map(|(i, s)| i * s).sum();
            let start = (offset + data.storage_offset()) * size;
            let element = data.storage().bytes.get(start..start + size);
            bytes.extend_from_slice(element.ok_or_else(|| Error::invalid_program("a weight lies outside its data"))?);
            for d in (0..rank).rev() {
                at[d] += 1;
                if at[d] < data.sizes()[d] {
                    break;
                }
                at[d] = 0;
            }
        }
        Ok(Dense { bytes: bytes.into(), sizes: data.sizes().to_vec(), dims: None })
    }
}

/// Whether elements of a tensor of these strides may lie in one place. Strides that are not known count as if they did, unless the tensor is dense.
fn shares_memory(sizes: &[Expr], strides: &[Expr]) -> bool {
    if is_dense(sizes, strides) {
        return false;
    }
    let known: Option<Vec<(i64, i64)>> = sizes
        .iter()
        .zip(strides)
        .filter(|(n, _)| !n.is_int(1))
        .map(|(n, s)| Some((s.as_int()?, n.as_int()?)))
        .collect();
    let Some(mut dims) = known else { return true };
    dims.sort_unstable();
    let mut reach = 0;
    for (stride, size) in dims {
        if stride <= reach {
            return true;
        }
        reach += stride * (size - 1);
    }
    false
}
