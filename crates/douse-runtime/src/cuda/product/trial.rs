//! Both ways of doing a product, timed on the device.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use douse_core::sym::Expr;
use douse_core::{Error, Result};
use douse_cuda::blas::{Form, Product};
use douse_cuda::{Argument, Blas, Device, DeviceMemory, Function, Grid, Place, Stream};
use douse_program::arena;
use douse_program::library::Library;
use douse_program::plan::{BufferId, Plan};
use douse_program::target::CONTROL_BYTES;

use super::{LibraryProduct, ProductMeta, ProductsReport, Scratch, Shape};
use crate::cuda::action::Launched;
use crate::cuda::device::CudaDevice;
use crate::cuda::launch::{Operands, fill};

/// Bytes of workspace that an algorithm may take: what cuBLAS takes by itself on Hopper.
const WORKSPACE: usize = 32 << 20;

/// A time is the least of so many, each over so many runs.
const ROUNDS: usize = 3;
const RUNS: usize = 5;

/// The library is used where it takes less than this part of the own kernels' time: they need no launch by a library.
const FASTER: f32 = 0.97;

/// What operands are full of: 0.011 as bfloat16 and float32, 1.06 as float16. (Zeros would be faster than what comes.)
const FILL: u8 = 0x3c;

/// What a trial gave. A device remembers it by what was tried, so that methods that are loaded again do alike.
#[derive(Clone, Debug)]
pub(in crate::cuda) struct Tried {
    own: f32,
    library: Option<f32>,
    product: Option<Arc<Product>>,
}

/// The trials of a method that is being loaded.
pub(in crate::cuda) struct Trials<'a> {
    plan: &'a Plan,
    device: &'a CudaDevice,
    /// Operands of float32 may be rounded to TF32.
    tf32: bool,
    report: ProductsReport,
}

/// A product, its step's own launches, and those of its epilogue as a kernel by itself.
struct Step<'a> {
    shape: Shape,
    own: &'a [Launched],
    epilogue: &'a [Launched],
    /// Bytes of scratch memory of the own launches, and of the epilogue's.
    scratch: [usize; 2],
}

impl<'a> Trials<'a> {
    pub fn new(plan: &'a Plan, device: &'a CudaDevice, tf32: bool) -> Trials<'a> {
        Trials { plan, device, tf32, report: ProductsReport::default() }
    }

    pub fn report(self) -> ProductsReport {
        self.report
    }

    /// Whether a step's product can be tried at all.
    pub fn shape(&self, library: &Library) -> Option<Shape> {
        if self.report.missing.is_some() { None } else { Shape::of(self.plan, library, self.tf32) }
    }

    /// The product as the library does it, where it can and is faster. `own` are the launches that do it otherwise, with the epilogue's work;
    /// `epilogue` those of its epilogue alone. Each with its bytes of scratch memory. What goes wrong is logged: the own launches do it then.
    pub fn choose(
        &mut self,
        shape: Shape,
        own: (&[Launched], usize),
        epilogue: Option<(Vec<Launched>, usize)>,
    ) -> Option<LibraryProduct> {
        let blas = match self.device.blas() {
            Ok(blas) => blas,
            Err(missing) => {
                tracing::info!(method = %self.plan.name, "products are done by the program's own kernels: {missing}");
                self.report.missing = Some(missing);
                return None;
            }
        };
        let fused = epilogue.is_some();
        let (epilogue, epilogue_scratch) = epilogue.unwrap_or_default();
        let step = Step { shape, own: own.0, epilogue: &epilogue, scratch: [own.1, epilogue_scratch] };
        let name = format!("{:?} {:?} {:?}", step.shape.form, self.describe(step.own), self.describe(step.epilogue));
        let tried = self.device.tried(&name, || self.trial(&step, &blas, fused));
        let Tried { own, library, product } = match tried {
            Ok(tried) => tried,
            Err(error) => {
                let untried = format!("{}: {error}", step.shape.describe());
                tracing::info!(method = %self.plan.name, "a product that is not tried: {untried}");
                self.report.untried.push(untried);
                return None;
            }
        };
        let product = product.filter(|_| library.is_some_and(|time| time < own * FASTER));
        let shape = step.shape.describe();
        let meta = ProductMeta { shape, epilogue: fused, own, library, by_library: product.is_some() };
        tracing::debug!(method = %self.plan.name, "{meta}");
        self.report.products.push(meta);
        let product = product?;
        let scratch = self.scratch(&step.shape, &product, fused, epilogue_scratch)?;
        let Shape { a, b, out, .. } = step.shape;
        Some(LibraryProduct { product, a, b, out, epilogue, scratch, failed: AtomicBool::new(false) })
    }

    /// What launches are like, by which alike ones of other layers are known: their grids, and dtypes and sizes of their buffers.
    fn describe(&self, launches: &[Launched]) -> String {
        let mut text = String::new();
        for Launched { launch, buffers, .. } in launches {
            let kinds: Vec<_> = buffers
                .iter()
                .map(|id| self.plan.buffers.get(*id as usize).map(|buffer| (buffer.dtype, self.bytes(*id))))
                .collect();
            text.push_str(&format!("{:?} {:?} {} {kinds:?}; ", launch.grid, launch.block, launch.shared));
        }
        text
    }

    fn scratch(&self, shape: &Shape, product: &Product, fused: bool, epilogue: usize) -> Option<Scratch> {
        let result = if fused { Some(self.bytes(shape.out.buffer)?) } else { None };
        Scratch::new(result, epilogue, product.workspace())
    }

    /// Bytes of a buffer of known size.
    fn bytes(&self, buffer: BufferId) -> Option<usize> {
        self.plan.buffers.get(buffer as usize)?.elements.as_int()?;
        arena::bytes(self.plan, buffer as usize, &[]).ok().flatten()
    }

    fn trial(&self, step: &Step<'_>, blas: &Blas, fused: bool) -> Result<Tried> {
        let device = self.device.device();
        let form: &Form = &step.shape.form;
        let stream = device.stream()?;
        let product = blas.product(form, WORKSPACE).unwrap_or_else(|error| {
            tracing::debug!("{}: {error}", step.shape.describe());
            None
        });
        let [own_scratch, epilogue_scratch] = step.scratch;
        let unsized_ = || Error::internal("a product whose buffers have no known size");
        let parts = product
            .as_ref()
            .map(|product| self.scratch(&step.shape, product, fused, epilogue_scratch).ok_or_else(unsized_));
        let parts = parts.transpose()?;
        let room = own_scratch.max(parts.map_or(0, |parts| parts.total));
        let what = || format!("trying a product of {:?}", self.plan.name);
        let allocate = |bytes: usize, fill: u8| -> Result<DeviceMemory> {
            let memory = self.device.allocate(bytes, what)?;
            device.fill(memory.all(), fill, &stream)?;
            Ok(memory)
        };
        let scratch = allocate(room.max(1), FILL)?;
        let flag = allocate(CONTROL_BYTES, 0)?;
        let mut memory: BTreeMap<BufferId, DeviceMemory> = BTreeMap::new();
        for buffer in step.buffers() {
            let stored = !fused || buffer != step.shape.out.buffer;
            if stored && !memory.contains_key(&buffer) {
                memory.insert(buffer, allocate(self.bytes(buffer).ok_or_else(unsized_)?, FILL)?);
            }
        }
        let place = |buffer: BufferId| {
            let missing = || Error::internal(format!("buffer {buffer} is none of the product's"));
            memory.get(&buffer).map(DeviceMemory::all).ok_or_else(missing)
        };
        let (plan, flag) = (self.plan, flag.all());
        let own = Trying { plan, device, place, scratch: scratch.all(), flag }.launches(step.own)?;
        let library = match (&product, parts) {
            (Some(product), Some(scratch_parts)) => {
                let Shape { a, b, out, .. } = step.shape;
                let failed = AtomicBool::new(false);
                let call = LibraryProduct {
                    product: product.clone(),
                    a,
                    b,
                    out,
                    epilogue: Vec::new(),
                    scratch: scratch_parts,
                    failed,
                }
                .call(place, scratch.all())?;
                let result = scratch_parts.result(scratch.all())?;
                let place = |buffer| match result {
                    Some(result) if buffer == out.buffer => Ok(result),
                    _ => place(buffer),
                };
                let scratch = scratch_parts.epilogue(scratch.all())?;
                let epilogue = Trying { plan, device, place, scratch, flag }.launches(step.epilogue)?;
                Some((call, epilogue))
            }
            _ => None,
        };
        let mut run_own = || launch_all(&own, &stream);
        let mut times = [f32::INFINITY; 2];
        for _ in 0..ROUNDS {
            times[0] = times[0].min(self.time(&stream, &mut run_own)?);
            if let Some((call, epilogue)) = &library {
                let mut run = || call.run(&stream).and_then(|()| launch_all(epilogue, &stream));
                match self.time(&stream, &mut run) {
                    Ok(time) => times[1] = times[1].min(time),
                    // The library may fail; the own kernels may not, as the next round shows.
                    Err(error) => {
                        tracing::info!("{}: {error}", step.shape.describe());
                        return Ok(Tried { own: times[0], library: None, product: None });
                    }
                }
            }
        }
        let [own, time] = times;
        Ok(Tried { own, library: library.is_some().then_some(time), product })
    }

    /// Microseconds of one run.
    fn time(&self, stream: &Stream, run: &mut dyn FnMut() -> Result<()>) -> Result<f32> {
        let device = self.device.device();
        let (begin, end) = (device.event(true)?, device.event(true)?);
        // The first warms up.
        run()?;
        begin.record(stream)?;
        (0..RUNS).try_for_each(|_| run())?;
        end.record(stream)?;
        stream.synchronize()?;
        Ok(end.milliseconds_since(&begin)? * 1e3 / RUNS as f32)
    }
}

impl Step<'_> {
    fn buffers(&self) -> impl Iterator<Item = BufferId> {
        let Shape { a, b, out, .. } = &self.shape;
        let launches = self.own.iter().chain(self.epilogue).flat_map(|launched| launched.buffers.iter().copied());
        [a.buffer, b.buffer, out.buffer].into_iter().chain(launches)
    }
}

type Ready = (Function, Grid, Vec<Argument>);

/// What the launches of a trial take: buffers, scratch memory and the flag, and no values of a call.
struct Trying<'a, P> {
    plan: &'a Plan,
    device: &'a Device,
    place: P,
    scratch: Place,
    flag: Place,
}

impl<P: Fn(BufferId) -> Result<Place>> Trying<'_, P> {
    fn launches(mut self, all: &[Launched]) -> Result<Vec<Ready>> {
        let ready = all.iter().map(|launched| {
            let filled = fill(launched, &mut self)?;
            Ok(filled.map(|(grid, arguments)| (launched.function.clone(), grid, arguments)))
        });
        ready.filter_map(Result::transpose).collect()
    }
}

fn value_of_call<T>() -> Result<T> {
    Err(Error::not_supported("a launch that takes values of the call"))
}

impl<P: Fn(BufferId) -> Result<Place>> Operands for Trying<'_, P> {
    fn plan(&self) -> &Plan {
        self.plan
    }

    fn device(&self) -> &Device {
        self.device
    }

    fn place(&mut self, buffer: BufferId) -> Result<Place> {
        (self.place)(buffer)
    }

    fn value(&self, expr: &Expr) -> Result<i64> {
        expr.as_int().map_or_else(value_of_call, Ok)
    }

    fn symbol(&self, _: u32) -> Result<i64> {
        value_of_call()
    }

    fn scratch(&self) -> Result<Place> {
        Ok(self.scratch)
    }

    fn flag(&self) -> Result<Place> {
        Ok(self.flag)
    }

    fn random(&self) -> Result<Place> {
        value_of_call()
    }
}

fn launch_all(all: &[Ready], stream: &Stream) -> Result<()> {
    all.iter().try_for_each(|(function, grid, arguments)| function.launch(grid, arguments, stream))
}
