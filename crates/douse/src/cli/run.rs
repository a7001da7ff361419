//! `douse run`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use douse::{Argument, HostTensor, LowerOptions, Method, MethodMeta, Result, Value, ValueKind};

use super::device::{DeviceArguments, ProductArguments, describe_graphs};
use super::failure::{Done, Failure};
use super::source::{Source, example_value};
use super::{inputs, output, random, show, tensors};

#[derive(Args)]
pub struct Run {
    /// A program (.pte), or an exported one (.pt2), which is lowered first
    model: PathBuf,
    /// The method to run [default: the only one, or forward]
    #[arg(long)]
    method: Option<String>,
    #[command(flatten)]
    device: DeviceArguments,
    /// An input: a .npy, .npz or .safetensors file or a JSON scalar, by position or as NAME=... (may be repeated);
    /// without any, random inputs of the exported example shapes
    #[arg(long, value_name = "FILE", allow_negative_numbers = true)]
    input: Vec<OsString>,
    #[command(flatten)]
    products: ProductArguments,
    /// Write the outputs of the last call to a .safetensors or .npz file
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// How often to call; state goes on from call to call
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    calls: u32,
}

impl Run {
    pub fn run(self) -> Done {
        let device = self.device.open()?;
        let options = device.load(self.device.threads)?;
        if let Some(output) = self.output.as_ref().filter(|path| !tensors::is_tensor_file(path)) {
            return Err(Failure::Usage(format!("--output {}: expected .safetensors or .npz", output.display())));
        }
        let source = Source::open(&self.model, &LowerOptions { products: self.products.options(), ..device.lower() })?;
        let name = source.method_name(self.method.as_deref())?;
        let meta = source.program.method_meta(&name)?;
        let mut values = make_inputs(&source, &meta, &self.input)?;
        let mut method = source.program.load(&name, &options)?;
        let mut outputs = Vec::new();
        for call in 0..self.calls {
            outputs = run_call(&mut method, &meta, &mut values)?;
            if self.calls > 1 {
                output::line(format_args!("call {call}"))?;
            }
            for (i, (value, output)) in outputs.iter().zip(&meta.outputs).enumerate() {
                output::line(format_args!("output {i} ({}): {}", output.name, show::value(value)))?;
            }
            for (i, (value, input)) in values.iter().zip(&meta.inputs).enumerate() {
                if matches!(input.kind, ValueKind::Tensor { written: true, .. }) {
                    output::line(format_args!("input {i} ({}), written: {}", input.name, show::value(value)))?;
                }
            }
        }
        if let Some(report) = method.cuda_graph_report() {
            output::line(format_args!("{}", describe_graphs(&report)))?;
        }
        if let Some(path) = &self.output {
            tensors::write(path, named_outputs(&meta, outputs)?)?;
        }
        Ok(())
    }
}

/// The inputs that were named, or random ones.
pub fn make_inputs(source: &Source, meta: &MethodMeta, given: &[OsString]) -> Done<Vec<Value>> {
    if !given.is_empty() {
        return inputs::read(given, meta);
    }
    let examples = source.examples.as_ref().map(|all| all.iter().map(example_value).collect::<Result<Vec<Value>>>());
    let examples = examples.transpose()?.filter(|examples| examples.len() == meta.inputs.len());
    let plan = source.program.methods().iter().map(|m| &m.plan).find(|plan| plan.name == meta.name);
    let Some(plan) = plan else { return Ok(Vec::new()) };
    Ok(random::inputs(plan, &meta.inputs, examples.as_deref())?)
}

/// Calls a method, with the inputs that it writes given so that it can.
pub fn run_call(method: &mut Method, meta: &MethodMeta, values: &mut [Value]) -> Result<Vec<Value>> {
    let kinds = meta.inputs.iter().map(|input| &input.kind).map(Some).chain(std::iter::repeat(None));
    let arguments = values.iter_mut().zip(kinds).map(|(value, kind)| match kind {
        Some(ValueKind::Tensor { written: true, .. }) => value.argument_mut(),
        _ => value.argument(),
    });
    let arguments: Vec<Argument<'_>> = arguments.collect();
    method.run(&arguments)
}

/// The outputs by name, numbers as tensors of no dimensions; a name that occurs twice gets the output's number.
fn named_outputs(meta: &MethodMeta, outputs: Vec<Value>) -> Result<Vec<(String, HostTensor)>> {
    let mut named: Vec<(String, HostTensor)> = Vec::new();
    for (i, (value, output)) in outputs.into_iter().zip(&meta.outputs).enumerate() {
        let tensor = match value {
            Value::Tensor(tensor) => tensor,
            Value::Device(tensor) => tensor.to_host()?,
            Value::Int(v) => HostTensor::from_i64(&[], &[v])?,
            Value::Float(v) => HostTensor::from_f64(&[], &[v])?,
            Value::Bool(v) => HostTensor::from_bytes(douse::DType::Bool, &[], &[v.into()])?,
            Value::Str(_) | Value::None => {
                output::note(format_args!("output {i} ({}) is {value}, which is not written", output.name));
                continue;
            }
        };
        let taken = output.name.is_empty() || named.iter().any(|(name, _)| *name == output.name);
        named.push((if taken { format!("output_{i}") } else { output.name.clone() }, tensor));
    }
    Ok(named)
}
