//! What a command runs on, and what programs are lowered for.

use std::ffi::OsString;

use clap::Args;
use douse::{
    Bindings, CudaDevice, CudaGraph, CudaGraphReport, LoadOptions, LowerOptions, NewShape, ProductOptions, Products,
    ProductsReport, Threads,
};
use douse_cuda::Architecture;

use super::failure::{Done, Failure};

#[derive(Args)]
pub struct DeviceArguments {
    /// What to run on: cpu, cuda[:N], or soft, a GPU that is simulated, for tests
    #[arg(long, default_value = "cpu")]
    device: String,
    /// Record calls as CUDA graphs and replay them
    #[arg(long)]
    cuda_graph: bool,
    /// With --cuda-graph, what a call does whose input sizes were not recorded
    #[arg(long, value_enum, default_value = "record", requires = "cuda_graph")]
    new_shape: Shapes,
    /// With --cuda-graph, run each replayed call plainly too, and fail where the results differ
    #[arg(long, requires = "cuda_graph")]
    compare_graph: bool,
    /// Threads of a call, on a GPU for copying large tensors; 0 for as many as the machine runs at once
    #[arg(long, default_value_t = 0, value_parser = threads)]
    pub threads: usize,
}

/// [`NewShape`] on the command line.
#[derive(Clone, Copy, clap::ValueEnum)]
enum Shapes {
    /// Is refused
    Refuse,
    /// Runs plainly
    Eager,
    /// Is recorded
    Record,
}

/// Who does matrix products on GPUs.
#[derive(Clone, Copy, Default, clap::ValueEnum)]
enum ProductsBy {
    /// The program's own kernels
    #[default]
    Own,
    /// cuBLASLt, where it is installed and measured faster when the program is loaded
    Cublaslt,
}

/// How a program that is lowered does products on GPUs; one that was lowered already has its own way.
#[derive(Args)]
pub struct ProductArguments {
    /// Who does matrix products on GPUs, in a program that is lowered here
    #[arg(long, value_enum, default_value = "own", value_name = "BY")]
    products: ProductsBy,
    /// On GPUs, in a program that is lowered here, round operands of float32 products and convolutions to TF32, which tensor cores multiply
    #[arg(long)]
    tf32: bool,
}

impl ProductArguments {
    pub fn options(&self) -> ProductOptions {
        let by = match self.products {
            ProductsBy::Own => Products::Own,
            ProductsBy::Cublaslt => Products::CublasLt,
        };
        ProductOptions { by, tf32: self.tf32 }
    }
}

/// A number of threads that can be.
fn threads(text: &str) -> Result<usize, String> {
    let count = text.parse().map_err(|_| "expected a number".to_owned())?;
    if count > Threads::MAX { Err(format!("at most {} threads", Threads::MAX)) } else { Ok(count) }
}

/// What a command runs on, ready.
pub enum Device {
    Cpu,
    Cuda { device: CudaDevice, graph: Option<CudaGraph> },
}

impl DeviceArguments {
    /// Opens what to run on.
    pub fn open(&self) -> Done<Device> {
        let graph = self.graph();
        if graph.is_some() && self.device == "cpu" {
            return Err(Failure::Usage("--cuda-graph needs --device cuda".into()));
        }
        Device::named(&self.device, graph)
    }

    fn graph(&self) -> Option<CudaGraph> {
        let new_shape = match self.new_shape {
            Shapes::Refuse => NewShape::Refuse,
            Shapes::Eager => NewShape::Eager,
            Shapes::Record => NewShape::Record,
        };
        self.cuda_graph.then(|| CudaGraph { new_shape, compare: self.compare_graph, ..CudaGraph::default() })
    }
}

impl Device {
    /// Opens the device of that name, on which methods use graphs like this.
    pub fn named(name: &str, graph: Option<CudaGraph>) -> Done<Device> {
        let (kind, index) = name.split_once(':').unwrap_or((name, "0"));
        match (kind, index.parse::<u32>()) {
            ("cpu", _) if kind != name => Err(Failure::Usage("--device cpu takes no number".into())),
            ("cpu", _) => Ok(Device::Cpu),
            ("cuda", Ok(ordinal)) => Ok(Device::Cuda { device: CudaDevice::open(ordinal)?, graph }),
            ("soft", _) if kind != name => Err(Failure::Usage("--device soft takes no number".into())),
            ("soft", _) => Ok(Device::Cuda { device: CudaDevice::open_with(&[softgpu()], 0)?, graph }),
            _ => Err(Failure::Usage(format!("--device {name}: expected cpu, cuda[:N] or soft"))),
        }
    }

    /// Loads onto the device; calls use that many threads, 0 for as many as the machine runs at once.
    pub fn load(&self, threads: usize) -> Done<LoadOptions> {
        match self {
            Device::Cpu => Ok(LoadOptions::cpu(threads)?),
            // On a GPU they copy large tensors to pinned memory and back.
            Device::Cuda { device, graph } => {
                let threads = Threads::new(threads)?;
                Ok(LoadOptions { cuda_graph: graph.clone(), threads, ..LoadOptions::on(device) })
            }
        }
    }

    /// Lowers for the device alone.
    pub fn lower(&self) -> LowerOptions {
        let target = match self {
            Device::Cpu => "cpu".to_owned(),
            Device::Cuda { device, .. } => Architecture::of(device.device().compute_capability()).to_string(),
        };
        LowerOptions { targets: vec![target], ..LowerOptions::default() }
    }
}

/// How the inputs of a call came to the device, in a line.
pub fn describe_bindings(bindings: &Bindings) -> String {
    let Bindings { in_place, copied, rearranged } = bindings;
    format!("inputs: {in_place} used where they lay, {copied} copied, {rearranged} brought into another layout")
}

/// What became of a method's products, a line each.
pub fn describe_products(report: &ProductsReport) -> String {
    let mut text = "products that cuBLASLt may do: ".to_owned();
    match &report.missing {
        Some(missing) => text.push_str(&format!("own kernels do all: {missing}")),
        None => text.push_str(&report.products.len().to_string()),
    }
    for product in &report.products {
        text.push_str(&format!("\n  {product}"));
    }
    for untried in &report.untried {
        text.push_str(&format!("\n  own, not tried: {untried}"));
    }
    text
}

/// What became of a method's graphs, in a line.
pub fn describe_graphs(report: &CudaGraphReport) -> String {
    let mut text = format!(
        "CUDA graphs: {} recorded, {} replayed, {} nodes changed, {} plain calls, {} host reads, {} bytes on the device",
        report.recordings, report.replays, report.patched_nodes, report.plain_calls, report.host_reads, report.bytes
    );
    if let Some(reason) = &report.off {
        text.push_str(&format!("; off: {reason}"));
    }
    text
}

/// The driver that simulates a GPU: the file that `DOUSE_SOFTGPU` names, else the one beside the program, where the crate softgpu is built to.
fn softgpu() -> OsString {
    let named = std::env::var_os("DOUSE_SOFTGPU").filter(|name| !name.is_empty());
    let beside = || Some(std::env::current_exe().ok()?.parent()?.join("libcuda.so").into_os_string());
    named.or_else(beside).unwrap_or_else(|| "libcuda.so".into())
}

/// Checks the names of targets.
pub fn check_targets(targets: &[String]) -> Done {
    for target in targets.iter().filter(|target| !["cpu", "ptx"].contains(&target.as_str())) {
        if target.parse::<Architecture>().is_err() {
            return Err(Failure::Usage(format!("--target {target}: expected cpu, sm_NN or ptx")));
        }
    }
    Ok(())
}
