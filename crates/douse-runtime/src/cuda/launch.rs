//! A launch with everything filled in: the one place that knows the order of its arguments, which `douse_program::target` gives.

use douse_core::sym::Expr;
use douse_core::{Error, Result};
use douse_cuda::{Argument, Device, Grid, Place};
use douse_program::plan::{BufferId, Plan};
use douse_program::target::{Launch, TensorMap};

use super::action::Launched;

/// What launches are filled in from.
pub(super) trait Operands {
    fn plan(&self) -> &Plan;
    fn device(&self) -> &Device;
    /// The memory of a buffer.
    fn place(&mut self, buffer: BufferId) -> Result<Place>;
    fn value(&self, expr: &Expr) -> Result<i64>;
    /// The value of a symbol.
    fn symbol(&self, symbol: u32) -> Result<i64>;
    fn scratch(&self) -> Result<Place>;
    /// The error flag.
    fn flag(&self) -> Result<Place>;
    /// The random state.
    fn random(&self) -> Result<Place>;
}

/// The bytes of each argument that a launch of so many buffers passes, in the order in which [`fill`] puts them.
pub(super) fn parameters(launch: &Launch, buffers: usize) -> Vec<usize> {
    let pointers = [launch.scratch, launch.flag || launch.guard, launch.random].map(usize::from);
    let words = buffers + launch.symbols.len() + pointers.iter().sum::<usize>();
    let maps = std::iter::repeat_n(Argument::MAP, launch.maps.len());
    maps.chain(std::iter::repeat_n(Argument::WORD, words)).collect()
}

/// The grid and arguments of a launch; `None` for one without blocks.
///
/// # Errors
/// Those of `operands`; `NotSupported` for a grid that is too large; `InvalidProgram` for tensor maps that are not of the launch's buffers.
pub(super) fn fill(launched: &Launched, operands: &mut impl Operands) -> Result<Option<(Grid, Vec<Argument>)>> {
    let Launched { launch, buffers, .. } = launched;
    let mut blocks = [0; 3];
    for (blocks, size) in blocks.iter_mut().zip(&launch.grid) {
        let size = operands.value(size)?;
        *blocks = u32::try_from(size)
            .map_err(|_| Error::not_supported(format!("{}: a grid of {size} blocks", launch.function)))?;
    }
    if blocks.contains(&0) {
        return Ok(None);
    }
    let mut arguments = Vec::with_capacity(launch.maps.len() + buffers.len() + launch.symbols.len() + 3);
    for map in &launch.maps {
        arguments.push(Argument::Map(tensor_map(map, buffers, operands).map_err(|e| e.at(&launch.function))?));
    }
    for buffer in buffers {
        arguments.push(Argument::Place(operands.place(*buffer)?));
    }
    for symbol in &launch.symbols {
        arguments.push(Argument::I64(operands.symbol(*symbol).map_err(|e| e.at(&launch.function))?));
    }
    if launch.scratch {
        arguments.push(Argument::Place(operands.scratch().map_err(|e| e.at(&launch.function))?));
    }
    if launch.flag || launch.guard {
        arguments.push(Argument::Place(operands.flag()?));
    }
    if launch.random {
        arguments.push(Argument::Place(operands.random()?));
    }
    debug_assert!(arguments.iter().map(|a| a.size()).eq(parameters(launch, buffers.len())));
    Ok(Some((Grid { blocks, threads: launch.block, shared: launch.shared }, arguments)))
}

fn tensor_map(map: &TensorMap, buffers: &[BufferId], operands: &mut impl Operands) -> Result<douse_cuda::TensorMap> {
    let buffer = buffers.get(map.buffer as usize);
    let buffer =
        *buffer.ok_or_else(|| Error::invalid_program("a tensor map of a buffer that the launch does not take"))?;
    let missing = || Error::invalid_program(format!("buffer {buffer} is not there"));
    let dtype = operands.plan().buffers.get(buffer as usize).ok_or_else(missing)?.dtype;
    let number = |expr: &Expr| {
        let value = operands.value(expr)?;
        u64::try_from(value).map_err(|_| Error::invalid_program(format!("a tensor map with {value} elements")))
    };
    let sizes = map.sizes.iter().map(number).collect::<Result<Vec<_>>>()?;
    let strides = map.strides.iter().map(number).collect::<Result<Vec<_>>>()?;
    let start = number(&map.offset)?.saturating_mul(dtype.size() as u64) as usize;
    let place = operands.place(buffer)?;
    let place = place.part(start.min(place.len())..place.len())?;
    operands.device().tensor_map(place, dtype, &sizes, &strides, &map.tile)
}
