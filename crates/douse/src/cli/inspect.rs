//! `douse inspect`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args;
use douse::{MethodMeta, Program, Value, ValueKind, ValueMeta};
use douse_program::container::{MethodSummary, ptd, pte};
use douse_pt2::{Argument, ConstantValue, ExportedProgram, InputSpec, OutputSpec, Sym};
use serde_json::{Value as Json, json};

use super::failure::Done;
use super::source::{Kind, kind};
use super::{output, show};

#[derive(Args)]
pub struct Inspect {
    /// A .pt2, .pte or .ptd file, ExecuTorch's own among them
    file: PathBuf,
    /// Print JSON to a file; - is standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

impl Inspect {
    pub fn run(self) -> Done {
        if let Some(json) = &self.json {
            output::keep(json, std::slice::from_ref(&self.file))?;
        }
        let report = match kind(&self.file)? {
            Kind::Program => program(&self.file)?,
            Kind::Weights => weights(&self.file)?,
            Kind::Exported => exported(&self.file)?,
        };
        match &self.json {
            Some(path) => output::json(path, &report),
            None => output::line(text(&report, 0).trim_end()),
        }
    }
}

/// The report as indented lines: objects as `key: value`, lists one entry a line.
fn text(value: &Json, depth: usize) -> String {
    let pad = "  ".repeat(depth);
    match value {
        Json::Object(map) => map
            .iter()
            .map(|(key, value)| match value {
                Json::Object(inner) if !inner.is_empty() => format!("{pad}{key}\n{}", text(value, depth + 1)),
                Json::Array(list) if !list.is_empty() => format!("{pad}{key}\n{}", text(value, depth + 1)),
                Json::Object(_) | Json::Array(_) => format!("{pad}{key}: none\n"),
                Json::String(s) => format!("{pad}{key}: {s}\n"),
                other => format!("{pad}{key}: {other}\n"),
            })
            .collect(),
        Json::Array(list) => list
            .iter()
            .map(|entry| match entry {
                Json::String(s) => format!("{pad}{s}\n"),
                Json::Object(_) => text(entry, depth),
                other => format!("{pad}{other}\n"),
            })
            .collect(),
        other => format!("{pad}{other}\n"),
    }
}

fn program(path: &Path) -> Done<Json> {
    let container = pte::File::open(path)?;
    let summary = container.summary();
    let ours = container.methods().all(|m| m.douse_payload().is_some()) && container.methods().len() > 0;
    let methods: serde_json::Map<String, Json> = if ours {
        let program = Program::open(path)?;
        let metas = program.method_names().map(|name| program.method_meta(name));
        metas.map(|meta| meta.map(|m| (m.name.clone(), method(&m)))).collect::<douse::Result<_>>()?
    } else {
        summary.methods.iter().map(|m| (m.name.clone(), foreign(m))).collect()
    };
    let data: Vec<String> =
        summary.named_data.iter().map(|(key, size)| format!("{key}  {}", show::bytes(*size))).collect();
    let written_by = if ours { "Douse" } else { "ExecuTorch" };
    Ok(json!({
        "file": format!("{written_by} program (.pte), {}", file_size(path)),
        "methods": methods,
        "named data": data,
        "expected in a .ptd file": summary.external,
        // Douse keeps weights as named data; its constant segment is a form that ExecuTorch's runtime asks for.
        "constants": show::bytes(if ours { 0 } else { summary.constant_bytes }),
    }))
}

fn file_size(path: &Path) -> String {
    show::bytes(std::fs::metadata(path).map_or(0, |m| m.len()))
}

fn method(meta: &MethodMeta) -> Json {
    let states = meta.states.iter().map(|s| format!("{}: {} elements of {}", s.name, s.elements, s.dtype));
    json!({
        "targets": meta.targets.join(", "),
        "inputs": meta.inputs.iter().map(value).collect::<Vec<_>>(),
        "outputs": meta.outputs.iter().map(value).collect::<Vec<_>>(),
        "state": states.collect::<Vec<_>>(),
    })
}

/// `x: float32 [s77 (0 to 10), 3]`.
fn value(meta: &ValueMeta) -> String {
    let kind = match &meta.kind {
        ValueKind::Tensor { dtype, sizes, strides, written } => {
            let sizes = sizes.iter().map(|size| match size.max {
                _ if size.is_fixed() => size.text.clone(),
                Some(max) => format!("{} ({} to {max})", size.text, size.min),
                None => format!("{} ({} or more)", size.text, size.min),
            });
            let sizes: Vec<String> = sizes.collect();
            let written = if *written { ", written" } else { "" };
            format!("{dtype} [{}] strides [{}]{written}", sizes.join(", "), strides.join(", "))
        }
        ValueKind::Int => "int".into(),
        ValueKind::Float => "float".into(),
        ValueKind::Bool => "bool".into(),
        ValueKind::Fixed(Value::None) => "None".into(),
        ValueKind::Fixed(value) => format!("always {value}"),
    };
    format!("{}: {kind}", meta.name)
}

fn foreign(summary: &MethodSummary) -> Json {
    let delegates = summary.delegates.iter().map(|(id, size)| format!("{id}  {}", show::bytes(*size)));
    json!({
        "inputs": summary.inputs,
        "outputs": summary.outputs,
        "operators": summary.operators,
        "backends": delegates.collect::<Vec<_>>(),
        "instructions": summary.instructions,
        "planned memory": summary.planned.iter().map(|size| show::bytes(u64::try_from(*size).unwrap_or(0))).collect::<Vec<_>>(),
    })
}

fn weights(path: &Path) -> Done<Json> {
    let file = ptd::File::open(path)?;
    let mut entries = Vec::new();
    for key in file.keys() {
        let size = show::bytes(file.data(key)?.len() as u64);
        entries.push(match file.layout(key)? {
            Some(layout) => format!("{key}: {} {:?}, {size}", layout.scalar_type, layout.sizes),
            None => format!("{key}: {size}"),
        });
    }
    Ok(json!({ "file": format!("weights (.ptd), {}", file_size(path)), "data": entries }))
}

fn exported(path: &Path) -> Done<Json> {
    let program = ExportedProgram::open(path)?;
    let mut operators: BTreeMap<&str, usize> = BTreeMap::new();
    for node in &program.graph.nodes {
        let name = node.target.strip_prefix("torch.ops.").unwrap_or(&node.target);
        *operators.entry(name).or_default() += 1;
    }
    let inputs: Vec<String> = program.user_inputs().map(|spec| input(&program, spec)).collect();
    let (mut parameters, mut buffers) = (Sum::default(), Sum::default());
    for spec in &program.input_specs {
        match spec {
            InputSpec::Parameter { fqn, .. } => parameters.add(&program, fqn),
            InputSpec::Buffer { fqn, .. } => buffers.add(&program, fqn),
            _ => {}
        }
    }
    let outputs = program.user_outputs().map(|spec| match spec {
        OutputSpec::User { label, arg } => argument(&program, label, arg),
        other => format!("{other:?}"),
    });
    let ranges = program.ranges.iter().map(|(symbol, range)| {
        // PyTorch writes the largest integers for what has no bound.
        let max = range.max.filter(|max| *max < i64::MAX - 1);
        let end = |end: Option<i64>| end.map_or("unbounded".to_owned(), |end| end.to_string());
        format!("{symbol}: {} to {}", end(range.min), end(max))
    });
    Ok(json!({
        "file": format!("exported program (.pt2) of PyTorch {}, {}", program.torch_version, file_size(path)),
        "models": douse_pt2::model_names(path)?,
        "inputs": inputs,
        "outputs": outputs.collect::<Vec<_>>(),
        "sizes": ranges.collect::<Vec<_>>(),
        "parameters": parameters.to_string(),
        "buffers": buffers.to_string(),
        "operators": operators.iter().map(|(name, count)| format!("{name}  {count}")).collect::<Vec<_>>(),
    }))
}

fn input(program: &ExportedProgram, spec: &InputSpec) -> String {
    match spec {
        InputSpec::User { label, arg } => argument(program, label, arg),
        InputSpec::Constant { label, value, .. } => format!("{label}: {}", constant(value)),
        other => format!("{other:?}"),
    }
}

fn argument(program: &ExportedProgram, label: &str, arg: &Argument) -> String {
    let meta = match arg {
        Argument::Tensor(name) => program.graph.tensor_values.get(name),
        _ => None,
    };
    match meta {
        Some(meta) => {
            let sizes: Vec<String> = meta.sizes.iter().map(|s| s.formula()).collect();
            format!("{label}: {} [{}]", meta.dtype, sizes.join(", "))
        }
        None => format!("{label}: {}", plain(arg)),
    }
}

/// An input or output that is no tensor: its kind, or its value where that never changes.
fn plain(arg: &Argument) -> String {
    match arg {
        Argument::None | Argument::OptionalTensor(None) => "None".into(),
        Argument::SymInt(Sym::Name(_)) => "int".into(),
        Argument::SymFloat(Sym::Name(_)) => "float".into(),
        Argument::SymBool(Sym::Name(_)) => "bool".into(),
        Argument::Int(v) | Argument::SymInt(Sym::Value(v)) => format!("always {v}"),
        Argument::Float(v) | Argument::SymFloat(Sym::Value(v)) => format!("always {v:?}"),
        Argument::Bool(v) | Argument::SymBool(Sym::Value(v)) => format!("always {v}"),
        Argument::Str(v) => format!("always {v:?}"),
        other => format!("{other:?}"),
    }
}

/// A value that the program was exported with and is bound to.
fn constant(value: &ConstantValue) -> String {
    match value {
        ConstantValue::None => "None".into(),
        ConstantValue::Int(v) => format!("always {v}"),
        ConstantValue::Float(v) => format!("always {v:?}"),
        ConstantValue::Bool(v) => format!("always {v}"),
        ConstantValue::Str(v) => format!("always {v:?}"),
    }
}

/// A number of tensors and their bytes.
#[derive(Default)]
struct Sum {
    tensors: usize,
    elements: usize,
    bytes: u64,
}

impl Sum {
    fn add(&mut self, program: &ExportedProgram, fqn: &str) {
        if let Some(tensor) = program.tensors.get(fqn) {
            self.tensors += 1;
            self.elements += tensor.numel();
            self.bytes += (tensor.numel() * tensor.dtype().size()) as u64;
        }
    }
}

impl std::fmt::Display for Sum {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} tensors, {} elements, {}", self.tensors, self.elements, show::bytes(self.bytes))
    }
}
