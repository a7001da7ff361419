//! `douse bench`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use douse::{DeviceTensor, LowerOptions, Method, MethodMeta, Value};
use douse_program::bounds::{ranges, size_bounds};
use douse_program::plan::{BufferKind, Plan};
use serde::Serialize;

use super::device::{Device, DeviceArguments, ProductArguments, describe_bindings, describe_graphs, describe_products};
use super::failure::{Done, Failure};
use super::run::{make_inputs, run_call};
use super::source::Source;
use super::{output, progress};

#[derive(Args)]
pub struct Bench {
    /// A program (.pte), or an exported one (.pt2), which is lowered first
    model: PathBuf,
    /// The method to measure [default: the only one, or forward]
    #[arg(long)]
    method: Option<String>,
    #[command(flatten)]
    device: DeviceArguments,
    /// An input, as for `run` (may be repeated)
    #[arg(long, value_name = "FILE", allow_negative_numbers = true)]
    input: Vec<OsString>,
    /// How many calls to measure, after the warm-up
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..))]
    calls: u32,
    /// Calls before the measured ones
    #[arg(long, default_value_t = 3)]
    warm_up: u32,
    /// Inputs are on the GPU, and outputs stay there
    #[arg(long)]
    resident: bool,
    /// Do not join operators into kernels (of a .pt2)
    #[arg(long)]
    unfused: bool,
    #[command(flatten)]
    products: ProductArguments,
    /// Write the figures as JSON; - is standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// All times in milliseconds.
#[derive(Serialize)]
struct Figures {
    method: String,
    calls: u32,
    threads: usize,
    /// Opening the file, or lowering it.
    open: f64,
    load: f64,
    first_call: f64,
    median: f64,
    min: f64,
    p90: f64,
    mean: f64,
    /// Of the host's own work in a call: all of it, but for waiting for the device; on a GPU.
    host_median: Option<f64>,
    /// Of the device's part of a call, copies of inputs and outputs included; on a GPU.
    device_median: Option<f64>,
    /// The least that the device can take: weights, state, inputs and outputs once, at the bandwidth of copies.
    device_floor: Option<f64>,
    /// How the inputs came to the device.
    inputs: Option<String>,
    /// What became of the products, where they may be cuBLASLt's.
    products: Option<String>,
    /// Where the method was loaded with graphs.
    cuda_graph: Option<String>,
}

/// At most so many calls are timed on the device.
const TIMED: u32 = 200;

/// Calls before graphs are replayed: those that warm up, and the one that records.
const RECORDED: u32 = 4;

fn milliseconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}

/// Bytes of what a call has to touch: constants, state, outputs of bounded size, and these inputs.
fn touched(plan: &Plan, inputs: &[Value]) -> u64 {
    let ranges = ranges(plan);
    let kept = plan.buffers.iter().filter(|buffer| {
        matches!(buffer.kind, BufferKind::Constant(_) | BufferKind::State { .. } | BufferKind::Output(_))
    });
    let bytes = kept.filter_map(|buffer| {
        let elements = u64::try_from(size_bounds(&ranges, &buffer.elements).max?).ok()?;
        elements.checked_mul(buffer.dtype.size() as u64)
    });
    let inputs = inputs.iter().filter_map(Value::tensor).map(|tensor| tensor.bytes().len() as u64);
    bytes.chain(inputs).fold(0, u64::saturating_add)
}

/// Brings tensors to the GPU.
fn make_resident(device: &Device, values: &mut [Value]) -> Done {
    let Device::Cuda { device, .. } = device else {
        return Err(Failure::Usage("--resident needs --device cuda".into()));
    };
    for value in values {
        if let Value::Tensor(tensor) = value {
            *value = Value::Device(DeviceTensor::from_host(device, &tensor.view())?);
        }
    }
    Ok(())
}

/// The value below which that part of the sorted times lies.
fn quantile(sorted: &[f64], part: f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    sorted.get((part * last as f64).round() as usize).copied().unwrap_or(f64::NAN)
}

impl Figures {
    fn show(&self) -> Done {
        output::line(format_args!(
            "{}: median {:.4} ms  min {:.4} ms  p90 {:.4} ms  ({} calls, {} threads; open {:.1} ms, load {:.1} ms, \
             first call {:.1} ms)",
            self.method,
            self.median,
            self.min,
            self.p90,
            self.calls,
            self.threads,
            self.open,
            self.load,
            self.first_call
        ))?;
        if let (Some(median), Some(floor)) = (self.device_median, self.device_floor) {
            output::line(format_args!(
                "on the device: median {median:.4} ms, its inputs, outputs, weights and state once: {floor:.4} ms"
            ))?;
        }
        if let (Some(host), Some(inputs)) = (self.host_median, &self.inputs) {
            output::line(format_args!("the host's own work: median {host:.4} ms; {inputs}"))?;
        }
        if let Some(products) = &self.products {
            output::line(products)?;
        }
        if let Some(graphs) = &self.cuda_graph {
            output::line(format_args!("{graphs}"))?;
        }
        Ok(())
    }
}

/// Milliseconds of each measured call, sorted.
struct Times {
    all: Vec<f64>,
    /// Without waiting for the device.
    host: Vec<f64>,
    /// The device's part; none on the CPU.
    device: Vec<f64>,
}

impl Times {
    fn measure(calls: u32, method: &mut Method, meta: &MethodMeta, values: &mut [Value]) -> Done<Times> {
        let bar = progress::bar(calls as usize);
        let mut times = Times { all: Vec::with_capacity(calls as usize), host: Vec::new(), device: Vec::new() };
        for _ in 0..calls {
            let start = Instant::now();
            run_call(method, meta, values)?;
            let all = milliseconds(start);
            times.all.push(all);
            times.host.push(all - method.waited().as_secs_f64() * 1e3);
            bar.inc(1);
        }
        bar.finish_and_clear();
        // Apart from the others: the events that time the device cost the host more than a launch.
        method.time_calls()?;
        for _ in 0..calls.min(TIMED) {
            run_call(method, meta, values)?;
            times.device.extend(method.device_milliseconds().map(f64::from));
        }
        [&mut times.all, &mut times.host, &mut times.device].into_iter().for_each(|t| t.sort_by(f64::total_cmp));
        Ok(times)
    }
}

impl Bench {
    pub fn run(self) -> Done {
        if let Some(json) = &self.json {
            output::keep(json, std::slice::from_ref(&self.model))?;
        }
        let device = self.device.open()?;
        let mut options = device.load(self.device.threads)?;
        options.outputs_on_device = self.resident;
        let start = Instant::now();
        let lower = LowerOptions { fuse: !self.unfused, products: self.products.options(), ..device.lower() };
        let source = Source::open(&self.model, &lower)?;
        let open = milliseconds(start);
        let name = source.method_name(self.method.as_deref())?;
        let meta = source.program.method_meta(&name)?;
        let mut values = make_inputs(&source, &meta, &self.input)?;
        let plan = source.program.methods().iter().map(|m| &m.plan).find(|plan| plan.name == name);
        let touched = plan.map_or(0, |plan| touched(plan, &values));
        if self.resident {
            make_resident(&device, &mut values)?;
        }
        let start = Instant::now();
        let mut method = source.program.load(&name, &options)?;
        let load = milliseconds(start);
        let start = Instant::now();
        run_call(&mut method, &meta, &mut values)?;
        let first_call = milliseconds(start);
        let warm_up = self.warm_up.max(if options.cuda_graph.is_some() { RECORDED } else { 1 });
        for _ in 1..warm_up {
            run_call(&mut method, &meta, &mut values)?;
        }
        let Times { all, host, device: on_device } = Times::measure(self.calls, &mut method, &meta, &mut values)?;
        let device_floor = match &device {
            Device::Cpu => None,
            Device::Cuda { device, .. } => Some(touched as f64 / device.copy_bandwidth()? * 1e3),
        };
        let figures = Figures {
            method: name,
            calls: self.calls,
            threads: options.threads.count(),
            open,
            load,
            first_call,
            median: quantile(&all, 0.5),
            min: quantile(&all, 0.0),
            p90: quantile(&all, 0.9),
            mean: all.iter().sum::<f64>() / all.len() as f64,
            host_median: device_floor.map(|_| quantile(&host, 0.5)),
            device_median: (!on_device.is_empty()).then(|| quantile(&on_device, 0.5)),
            device_floor,
            inputs: method.bindings().as_ref().map(describe_bindings),
            products: method.products().map(describe_products),
            cuda_graph: method.cuda_graph_report().as_ref().map(describe_graphs),
        };
        if !self.json.as_deref().is_some_and(output::is_stdout) {
            figures.show()?;
        }
        if let Some(path) = &self.json {
            output::json(path, &figures)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::quantile;

    #[test]
    fn quantiles_of_sorted_times() {
        let times: Vec<f64> = (1..=11).map(f64::from).collect();
        assert_eq!([quantile(&times, 0.0), quantile(&times, 0.5), quantile(&times, 0.9)], [1.0, 6.0, 10.0]);
        assert_eq!(quantile(&[7.0], 0.9), 7.0);
    }
}
