//! Checks a call's inputs before anything runs, and lays them out as the plan reads them.

use douse_core::sym::Expr;
use douse_core::{Aligned, DType, Error, Result, Scalar, TensorView, layout};
use douse_cpu::InputValue;
use douse_cuda::{Place, Stream};
use douse_program::plan::{Fixed, InputKind, Plan};

use crate::cuda::{CudaDevice, DeviceTensor, Strided, laid_out};
use crate::overlap::overlap;
use crate::symbols::{eval, place, solve};
use crate::value::{Argument, tensor_of};

/// Inputs that were checked, in the layouts of the plan.
pub(crate) struct Bound<'a> {
    /// By number; those that steps set are `None`.
    pub symbols: Vec<Option<i64>>,
    inputs: Vec<Laid<'a>>,
    /// How many inputs had to be copied.
    pub copies: usize,
}

/// The device that a method runs on, and the caller's stream that it uses, if it does.
#[derive(Clone, Copy)]
pub(crate) struct On<'a> {
    pub device: &'a CudaDevice,
    pub stream: Option<&'a Stream>,
}

/// So many bytes are sooner brought into another layout by the device than by the host.
const LARGE: usize = 64 << 10;

enum Laid<'a> {
    Borrowed(&'a [u8]),
    Copied(Aligned),
    /// Of an input that the program writes: the caller's tensor changes after the call succeeded.
    Written {
        copy: Aligned,
        caller: TensorView<'a>,
        strides: Vec<usize>,
    },
    /// On the device that the method runs on, and used there.
    Device(Place),
    /// In another layout, into which the method's device brings it: bytes of the host, all of which are elements, or none where it is on the device.
    Strided(&'a [u8], Strided),
    /// On a device, and written by the program.
    WrittenDevice {
        copy: Aligned,
        tensor: &'a DeviceTensor,
        strides: Vec<usize>,
    },
    Number(Scalar),
    None,
}

impl<'a> Bound<'a> {
    /// Checks everything about the inputs, then copies those that need it. Tensors on the method's device stay where they are.
    ///
    /// # Errors
    /// `InvalidArgument` with the input's number and name. Nothing has changed then.
    pub fn new(plan: &Plan, arguments: &[Argument<'a>], on: Option<On<'_>>) -> Result<Bound<'a>> {
        if arguments.len() != plan.inputs.len() {
            let names: Vec<&str> = plan.inputs.iter().map(|i| i.name.as_str()).collect();
            return Err(Error::invalid_argument(format!(
                "{} takes {} inputs ({}), {} given",
                plan.name,
                plan.inputs.len(),
                names.join(", "),
                arguments.len()
            )));
        }
        for (number, argument) in arguments.iter().enumerate() {
            check_kind(plan, number, argument)?;
        }
        let symbols = solve(plan, arguments)?;
        check_writes(plan, arguments)?;
        let mut bound = Bound { symbols, inputs: Vec::with_capacity(arguments.len()), copies: 0 };
        for (number, (input, argument)) in plan.inputs.iter().zip(arguments).enumerate() {
            let laid = bound.lay_out(plan, &input.kind, argument, on).map_err(|e| e.at(place(plan, number)))?;
            bound.inputs.push(laid);
        }
        Ok(bound)
    }

    fn lay_out(
        &mut self,
        plan: &Plan,
        kind: &InputKind,
        argument: &Argument<'a>,
        on: Option<On<'_>>,
    ) -> Result<Laid<'a>> {
        let (strides, buffer, written) = match (kind, argument) {
            (InputKind::Tensor { strides, buffer, written, .. }, Argument::Tensor(_) | Argument::Device(_)) => {
                (strides, *buffer, *written)
            }
            (InputKind::Number { dtype: DType::Bool, .. }, Argument::Bool(value)) => {
                return Ok(Laid::Number(Scalar::Bool(*value)));
            }
            (InputKind::Number { .. }, Argument::Float(value)) => return Ok(Laid::Number(Scalar::Float(*value))),
            (InputKind::Number { .. }, Argument::Int(value)) => return Ok(Laid::Number(Scalar::Float(*value as f64))),
            _ => return Ok(Laid::None),
        };
        let size = |expr| {
            let value = eval(expr, &self.symbols).and_then(|v| usize::try_from(v).ok());
            value.ok_or_else(|| Error::internal(format!("the size {expr} cannot be computed")))
        };
        let buffer = plan.buffers.get(buffer as usize).ok_or_else(|| Error::internal("an input without a buffer"))?;
        let bytes = size(&buffer.elements)?
            .checked_mul(buffer.dtype.size())
            .ok_or_else(|| Error::invalid_argument("the tensor is too large"))?;
        if let Argument::Device(tensor) = argument {
            tensor.wait(on.and_then(|on| on.stream))?;
        }
        if !written && let Some(laid) = self.as_it_lies(strides, bytes, argument, on) {
            return Ok(laid);
        }
        let strides = strides.iter().map(size).collect::<Result<Vec<usize>>>()?;
        match argument {
            Argument::Tensor(view) => {
                self.copies += 1;
                if !written
                    && on.is_some()
                    && bytes >= LARGE
                    && let Some(memory) = view.borrow_as(view.strides())
                    && memory.len() == bytes
                    && let Some(strided) =
                        Strided::new(view.dtype().size(), view.sizes(), view.strides(), &strides, None)
                {
                    return Ok(Laid::Strided(memory, strided));
                }
                let mut copy = Aligned::zeros(bytes)?;
                view.copy_to(&mut copy, &strides).map_err(|e| Error::internal(e.message))?;
                Ok(if written { Laid::Written { copy, caller: *view, strides } } else { Laid::Copied(copy) })
            }
            Argument::Device(tensor) => {
                self.copies += 1;
                if !written
                    && on.is_some_and(|on| on.device.same(tensor.device()))
                    && let Some(strided) = tensor.strided_as(&strides)
                {
                    return Ok(Laid::Strided(&[], strided));
                }
                if let Some(stream) = on.and_then(|on| on.stream) {
                    // What fills the tensor may stand there still, and copies to the host are made on another stream.
                    stream.synchronize()?;
                }
                let copy = laid_out(tensor, &strides, bytes)?;
                Ok(if written { Laid::WrittenDevice { copy, tensor, strides } } else { Laid::Copied(copy) })
            }
            _ => Ok(Laid::None),
        }
    }

    /// A tensor that has the strides that the program reads, and can be used so.
    fn as_it_lies(
        &self,
        strides: &[Expr],
        bytes: usize,
        argument: &Argument<'a>,
        on: Option<On<'_>>,
    ) -> Option<Laid<'a>> {
        let same = |sizes: &[usize], found: &[usize]| {
            let mut dims = strides.iter().zip(sizes).zip(found);
            dims.all(|((stride, size), found)| {
                *size == 1 || eval(stride, &self.symbols).and_then(|v| usize::try_from(v).ok()) == Some(*found)
            })
        };
        match argument {
            Argument::Tensor(view) if same(view.sizes(), view.strides()) => {
                let memory = view.borrow_as(view.strides())?;
                (memory.len() == bytes).then_some(Laid::Borrowed(memory))
            }
            Argument::Device(tensor) if same(tensor.sizes(), tensor.strides()) => {
                let here = on.is_some_and(|on| on.device.same(tensor.device()));
                tensor.place_of(bytes).filter(|_| here).map(Laid::Device)
            }
            _ => None,
        }
    }

    /// Inputs that are used where they lie on the device, by number.
    pub fn places(&self) -> Vec<Option<Place>> {
        let each = self.inputs.iter().map(|laid| match laid {
            Laid::Device(place) => Some(*place),
            _ => None,
        });
        each.collect()
    }

    /// Inputs in other layouts, which the device brings into the program's, by number.
    pub fn strided(&self) -> Vec<Option<Strided>> {
        let each = self.inputs.iter().map(|laid| match laid {
            Laid::Strided(_, strided) => Some(*strided),
            _ => None,
        });
        each.collect()
    }

    /// The inputs as the executor takes them.
    pub fn inputs(&mut self) -> Vec<InputValue<'_>> {
        let each = self.inputs.iter_mut().map(|laid| match laid {
            Laid::Borrowed(bytes) => InputValue::Tensor(bytes),
            Laid::Strided(bytes, strided) if strided.place.is_none() => InputValue::Tensor(bytes),
            Laid::Copied(copy) => InputValue::Tensor(copy),
            Laid::Written { copy, .. } | Laid::WrittenDevice { copy, .. } => InputValue::TensorMut(copy),
            Laid::Number(value) => InputValue::Number(*value),
            Laid::Strided(..) | Laid::Device(_) | Laid::None => InputValue::None,
        });
        each.collect()
    }

    /// Copies what the program wrote to the caller's tensors.
    pub fn write_back(&self) -> Result<()> {
        for laid in &self.inputs {
            match laid {
                Laid::Written { copy, caller, strides } => caller.copy_from(copy, strides)?,
                Laid::WrittenDevice { copy, tensor, strides } => tensor.write(copy, strides)?,
                _ => {}
            }
        }
        Ok(())
    }
}

/// Checks the kind, dtype and rank of an input.
fn check_kind(plan: &Plan, number: usize, argument: &Argument<'_>) -> Result<()> {
    let Some(input) = plan.inputs.get(number) else { return Ok(()) };
    let refuse = |expected: &str| {
        let found = argument.describe();
        Err(Error::invalid_argument(format!("{} is {found}, expected {expected}", place(plan, number))))
    };
    if let (InputKind::Tensor { dtype, sizes, .. }, Some((found_dtype, found_sizes))) = (&input.kind, argument.shape())
    {
        if found_dtype != *dtype {
            return refuse(&tensor_of(*dtype));
        }
        let (found, expected) = (found_sizes.len(), sizes.len());
        if found != expected {
            return Err(Error::invalid_argument(format!(
                "{} has {found} dimension{} (sizes {found_sizes:?}), expected {expected}",
                place(plan, number),
                if found == 1 { "" } else { "s" }
            )));
        }
        return Ok(());
    }
    match (&input.kind, argument) {
        (InputKind::Tensor { dtype, .. }, _) => refuse(&tensor_of(*dtype)),
        (InputKind::Int, Argument::Int(_)) => Ok(()),
        (InputKind::Int, _) => refuse("an int"),
        (InputKind::Number { dtype: DType::Bool, .. }, Argument::Bool(_)) => Ok(()),
        (InputKind::Number { dtype: DType::Bool, .. }, _) => refuse("a bool"),
        (InputKind::Number { .. }, Argument::Float(_) | Argument::Int(_)) => Ok(()),
        (InputKind::Number { .. }, _) => refuse("a float"),
        (InputKind::Fixed(fixed), _) => {
            if is_fixed(fixed, argument) {
                Ok(())
            } else {
                refuse(&format!("{fixed}, as when the program was exported"))
            }
        }
    }
}

fn is_fixed(fixed: &Fixed, argument: &Argument<'_>) -> bool {
    match (fixed, argument) {
        (Fixed::None, Argument::None) => true,
        (Fixed::Str(expected), Argument::Str(found)) => expected == found,
        (Fixed::Scalar(Scalar::Int(expected)), Argument::Int(found)) => expected == found,
        (Fixed::Scalar(Scalar::Bool(expected)), Argument::Bool(found)) => expected == found,
        (Fixed::Scalar(Scalar::Float(expected)), Argument::Float(found)) => {
            expected == found || (expected.is_nan() && found.is_nan())
        }
        _ => false,
    }
}

/// Checks that written inputs can be written, and that nothing else sees their memory.
fn check_writes(plan: &Plan, arguments: &[Argument<'_>]) -> Result<()> {
    for (number, (input, argument)) in plan.inputs.iter().zip(arguments).enumerate() {
        let InputKind::Tensor { written: true, .. } = &input.kind else { continue };
        let name = place(plan, number);
        let (sizes, strides) = match argument {
            Argument::Tensor(view) if !view.is_writable() => {
                return Err(Error::invalid_argument(format!(
                    "{name} is written by the program, and is given as a tensor that may only be read"
                )));
            }
            Argument::Tensor(view) => (view.sizes(), view.strides()),
            Argument::Device(tensor) => (tensor.sizes(), tensor.strides()),
            _ => continue,
        };
        if layout::overlaps_itself(sizes, strides) {
            let message =
                format!("{name} is written by the program, and elements of it share memory (strides {strides:?})");
            return Err(Error::invalid_argument(message));
        }
        for (other_number, other) in arguments.iter().enumerate() {
            let meets = match (argument, other) {
                (Argument::Tensor(view), Argument::Tensor(other)) => overlap(view, other),
                (Argument::Device(tensor), Argument::Device(other)) => tensor.meets(other),
                _ => false,
            };
            if meets && other_number != number {
                return Err(Error::invalid_argument(format!(
                    "{name} and {} overlap in memory, and the program writes {name}",
                    place(plan, other_number)
                )));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
