//! Strided tensors over the memory of a call, as library steps see them.

use bytemuck::Pod;
use douse_core::sym::{Expr, Symbol};
use douse_core::{DType, Error, Result};
use douse_program::library::View;
use douse_program::plan::{BufferId, Plan};
use std::ops::Range;

use crate::memory::Memory;
use crate::threads::Threads;

/// Sizes and strides of a view, as numbers. Strides and offset count elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    pub dtype: DType,
    /// Of the element at index 0 of every dimension, from the start of the bytes the shape comes with.
    pub offset: usize,
    pub sizes: Vec<usize>,
    pub strides: Vec<isize>,
}

impl Shape {
    pub fn rank(&self) -> usize {
        self.sizes.len()
    }

    pub fn numel(&self) -> usize {
        self.sizes.iter().product()
    }

    /// Whether the elements lie in row-major order without gaps.
    pub fn is_contiguous(&self) -> bool {
        let mut expected = 1;
        self.sizes.iter().zip(&self.strides).rev().all(|(&size, &stride)| {
            let fits = size == 1 || stride == expected;
            expected *= size as isize;
            fits
        }) || self.numel() == 0
    }
}

/// A tensor that is read. Every element that its shape can name lies within its bytes.
#[derive(Clone, Debug)]
pub struct Strided<'a> {
    pub shape: Shape,
    bytes: &'a [u8],
}

impl<'a> Strided<'a> {
    /// All elements in memory from the first to the last that the shape names.
    ///
    /// # Errors
    /// Where the memory is not aligned for the type.
    pub fn slice<T: Pod>(&self) -> Result<&'a [T]> {
        bytemuck::try_cast_slice(self.bytes).map_err(|e| misfit(self.shape.dtype, e))
    }
}

/// A tensor that is written. Every element that its shape can name lies within its bytes.
#[derive(Debug)]
pub struct StridedMut<'a> {
    pub shape: Shape,
    bytes: &'a mut [u8],
}

impl StridedMut<'_> {
    /// All elements in memory from the first to the last that the shape names.
    ///
    /// # Errors
    /// Where the memory is not aligned for the type.
    pub fn slice<T: Pod>(&mut self) -> Result<&mut [T]> {
        bytemuck::try_cast_slice_mut(self.bytes).map_err(|e| misfit(self.shape.dtype, e))
    }

    /// The shape, and the elements as [`StridedMut::slice`] gives them.
    ///
    /// # Errors
    /// Where the memory is not aligned for the type.
    pub fn parts<T: Pod>(&mut self) -> Result<(&Shape, &mut [T])> {
        let data = bytemuck::try_cast_slice_mut(self.bytes).map_err(|e| misfit(self.shape.dtype, e))?;
        Ok((&self.shape, data))
    }
}

fn misfit(dtype: DType, e: bytemuck::PodCastError) -> Error {
    Error::internal(format!("memory of {dtype} is not aligned: {e}"))
}

/// What a library step works with: the memory of the call, the values of its symbols, its threads.
pub struct Context<'a, 'm> {
    pub(crate) plan: &'a Plan,
    pub(crate) memory: &'a mut Memory<'m>,
    /// By number; a step sets those of [`douse_program::plan::SymbolSource::Step`].
    pub symbols: &'a mut [Option<i64>],
    pub threads: &'a Threads,
}

impl Context<'_, '_> {
    /// The value of an expression over the plan's symbols.
    ///
    /// # Errors
    /// Where a symbol is not known yet, or the value does not fit 64 bits.
    pub fn eval(&self, expr: &Expr) -> Result<i64> {
        eval(expr, self.symbols)
    }

    /// Gives a symbol its value.
    ///
    /// # Errors
    /// Where there is no such symbol.
    pub fn set(&mut self, symbol: u32, value: i64) -> Result<()> {
        *self
            .symbols
            .get_mut(symbol as usize)
            .ok_or_else(|| Error::internal(format!("symbol {symbol} is not there")))? = Some(value);
        Ok(())
    }

    /// The dtype of a buffer.
    ///
    /// # Errors
    /// Where there is no such buffer.
    pub fn dtype(&self, buffer: BufferId) -> Result<DType> {
        let buffer = self.plan.buffers.get(buffer as usize);
        buffer.map(|b| b.dtype).ok_or_else(|| Error::internal("a view is of no buffer"))
    }

    /// Resolves views to numbers and memory: those that are read, those that are written. What is written must overlap nothing else.
    ///
    /// # Errors
    /// Where a view reaches outside of its buffer, or a written one overlaps another.
    pub fn views(&mut self, read: &[&View], written: &[&View]) -> Result<(Vec<Strided<'_>>, Vec<StridedMut<'_>>)> {
        let read_shapes = read.iter().map(|v| self.shape(v)).collect::<Result<Vec<_>>>()?;
        let written_shapes = written.iter().map(|v| self.shape(v)).collect::<Result<Vec<_>>>()?;
        let ranges = |views: &[&View], shapes: &[(Shape, Range<usize>)]| -> Vec<(BufferId, Range<usize>)> {
            views.iter().zip(shapes).map(|(v, (_, range))| (v.buffer, range.clone())).collect()
        };
        let (inputs, outputs) = self.memory.split(&ranges(read, &read_shapes), &ranges(written, &written_shapes))?;
        Ok((
            read_shapes.into_iter().zip(inputs).map(|((shape, _), bytes)| Strided { shape, bytes }).collect(),
            written_shapes.into_iter().zip(outputs).map(|((shape, _), bytes)| StridedMut { shape, bytes }).collect(),
        ))
    }

    /// The view's shape, its offset counted from the first byte of the range of the buffer that it can name.
    fn shape(&self, view: &View) -> Result<(Shape, Range<usize>)> {
        let dtype = self.dtype(view.buffer)?;
        let outside = || Error::internal("a view reaches outside of its buffer");
        let sizes = view
            .sizes
            .iter()
            .map(|e| usize::try_from(self.eval(e)?).map_err(|_| Error::internal("a view has a negative size")))
            .collect::<Result<Vec<usize>>>()?;
        let strides = view.strides.iter().map(|e| Ok(self.eval(e)? as isize)).collect::<Result<Vec<isize>>>()?;
        let offset = self.eval(&view.offset)?;
        // Strides of 0 repeat elements without end.
        if sizes.iter().try_fold(1isize, |n, size| n.checked_mul(isize::try_from(*size).ok()?.max(1))).is_none() {
            return Err(Error::internal(format!("a view of sizes {sizes:?} has more elements than can be counted")));
        }
        if sizes.contains(&0) {
            return Ok((Shape { dtype, offset: 0, sizes, strides }, 0..0));
        }
        let (mut first, mut last) = (offset, offset);
        for (&size, &stride) in sizes.iter().zip(&strides) {
            let reach = (size as i64 - 1).checked_mul(stride as i64).ok_or_else(outside)?;
            let end = if reach < 0 { &mut first } else { &mut last };
            *end = end.checked_add(reach).ok_or_else(outside)?;
        }
        let byte = |element: i64| usize::try_from(element).ok().and_then(|e| e.checked_mul(dtype.size()));
        let start = byte(first).ok_or_else(outside)?;
        let end = last.checked_add(1).and_then(byte).ok_or_else(outside)?;
        Ok((Shape { dtype, offset: (offset - first) as usize, sizes, strides }, start..end))
    }
}

/// The value of an expression over symbols given by number.
///
/// # Errors
/// Where a symbol is not known yet, or the value does not fit 64 bits.
pub(crate) fn eval(expr: &Expr, symbols: &[Option<i64>]) -> Result<i64> {
    if let Some(value) = expr.as_int() {
        return Ok(value);
    }
    let value = |symbol| match symbol {
        Symbol::Size(i) => symbols.get(i as usize).copied().flatten(),
        _ => None,
    };
    expr.eval(&value).ok_or_else(|| Error::internal(format!("the value of {expr} is not known when it is needed")))
}
