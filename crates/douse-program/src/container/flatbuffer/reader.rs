//! Reads FlatBuffers that nobody vouches for.

use super::Field;
use douse_core::{Code, Error, Result};
use std::cell::Cell;
use std::ops::Range;

/// What decoding may allocate, in bytes for each byte of the buffer.
///
/// Offsets may share their target, so a small file could describe a large tree. Writers share strings at most; the
/// largest honest ratio is that of tables that are all defaults, some 12 bytes in the file and under 200 in memory.
const BUDGET_PER_BYTE: usize = 24;

/// A FlatBuffer being read.
pub struct Buffer<'a> {
    bytes: &'a [u8],
    budget: Cell<usize>,
    code: Code,
}

/// A table whose vtable was checked.
#[derive(Clone, Copy)]
pub struct Table<'a> {
    buffer: &'a Buffer<'a>,
    start: usize,
    size: usize,
    vtable: usize,
    vtable_size: usize,
}

impl<'a> Buffer<'a> {
    /// Faults are reported with `code`.
    pub fn new(bytes: &'a [u8], code: Code) -> Buffer<'a> {
        let budget = Cell::new(bytes.len().saturating_mul(BUDGET_PER_BYTE));
        Buffer { bytes, budget, code }
    }

    /// The table the first word refers to.
    pub fn root(&'a self) -> Result<Table<'a>> {
        let start = self.follow(0)?;
        self.table(start)
    }

    pub fn error(&self, message: impl Into<String>) -> Error {
        Error::new(self.code, message)
    }

    fn get<const N: usize>(&self, at: usize) -> Result<[u8; N]> {
        let bytes = at.checked_add(N).and_then(|end| self.bytes.get(at..end));
        bytes.and_then(|b| b.try_into().ok()).ok_or_else(|| {
            self.error(format!(
                "{N} bytes at offset {at} run past the end of the FlatBuffer ({} bytes)",
                self.bytes.len()
            ))
        })
    }

    fn follow(&self, at: usize) -> Result<usize> {
        let distance = u32::from_le_bytes(self.get(at)?) as usize;
        match at.checked_add(distance) {
            Some(target) if distance != 0 && target < self.bytes.len() => Ok(target),
            _ => Err(self.error(format!(
                "the reference at offset {at} (distance {distance}) leaves the FlatBuffer ({} bytes)",
                self.bytes.len()
            ))),
        }
    }

    fn table(&'a self, start: usize) -> Result<Table<'a>> {
        let back = i64::from(i32::from_le_bytes(self.get(start)?));
        let vtable = (start as i64)
            .checked_sub(back)
            .and_then(|v| usize::try_from(v).ok())
            .ok_or_else(|| self.error(format!("the table at offset {start} has a vtable outside the FlatBuffer")))?;
        let vtable_size = usize::from(u16::from_le_bytes(self.get(vtable)?));
        let size = usize::from(u16::from_le_bytes(self.get(vtable.saturating_add(2))?));
        let fits = |at: usize, size: usize| at.checked_add(size).is_some_and(|end| end <= self.bytes.len());
        if vtable_size < 4 || vtable_size % 2 != 0 || !fits(vtable, vtable_size) {
            return Err(self.error(format!("the vtable at offset {vtable} has an impossible size, {vtable_size}")));
        }
        if size < 4 || !fits(start, size) {
            return Err(self.error(format!("the table at offset {start} has an impossible size, {size}")));
        }
        Ok(Table { buffer: self, start, size, vtable, vtable_size })
    }

    /// Where the elements of the vector at `at` begin, and how many there are.
    fn vector(&self, at: usize, element: usize) -> Result<(usize, usize)> {
        let count = u32::from_le_bytes(self.get(at)?) as usize;
        let start = at.saturating_add(4);
        let end = count.checked_mul(element).and_then(|size| start.checked_add(size));
        match end {
            Some(end) if end <= self.bytes.len() => Ok((start, count)),
            _ => Err(self.error(format!(
                "the vector at offset {at} has {count} elements of {element} bytes and runs past the end of the \
                 FlatBuffer ({} bytes)",
                self.bytes.len()
            ))),
        }
    }

    fn charge(&self, bytes: usize) -> Result<()> {
        match self.budget.get().checked_sub(bytes) {
            Some(rest) => {
                self.budget.set(rest);
                Ok(())
            }
            None => Err(self.error(format!("it describes far more than its {} bytes can hold", self.bytes.len()))),
        }
    }
}

/// Accessors of scalars.
macro_rules! scalars {
    ($($type:ident),*) => {
        $(
            pub fn $type(&self, field: Field, default: $type) -> Result<$type> {
                let read = || {
                    let Some(at) = self.field(field, size_of::<$type>())? else { return Ok(default) };
                    Ok(<$type>::from_le_bytes(self.buffer.get(at)?))
                };
                read().map_err(|e: Error| e.at(field.name))
            }
        )*
    };
}

/// Accessors of vectors of scalars.
macro_rules! vectors {
    ($($name:ident $type:ty),*) => {
        $(
            pub fn $name(&self, field: Field) -> Result<Vec<$type>> {
                const SIZE: usize = size_of::<$type>();
                let read = || {
                    let Some((start, count)) = self.elements(field, SIZE)? else { return Ok(Vec::new()) };
                    self.buffer.charge(count.saturating_mul(SIZE))?;
                    (0..count).map(|i| Ok(<$type>::from_le_bytes(self.buffer.get(start + SIZE * i)?))).collect()
                };
                read().map_err(|e: Error| e.at(field.name))
            }
        )*
    };
}

impl<'a> Table<'a> {
    /// Counts memory that [`table`](Table::table) and [`tables`](Table::tables) cannot see: what is boxed.
    pub fn charge(&self, bytes: usize) -> Result<()> {
        self.buffer.charge(bytes)
    }

    pub fn error(&self, message: impl Into<String>) -> Error {
        self.buffer.error(message)
    }

    /// Where the field's `size` inline bytes are; nothing when it is absent.
    fn field(&self, field: Field, size: usize) -> Result<Option<usize>> {
        let slot = 4 + 2 * usize::from(field.id);
        if slot + 2 > self.vtable_size {
            return Ok(None);
        }
        let offset = usize::from(u16::from_le_bytes(self.buffer.get(self.vtable + slot)?));
        if offset == 0 {
            return Ok(None);
        }
        if offset < 4 || offset + size > self.size {
            return Err(self.error(format!("the field lies outside its table at offset {}", self.start)));
        }
        Ok(Some(self.start + offset))
    }

    fn target(&self, field: Field) -> Result<Option<usize>> {
        self.field(field, 4)?.map(|at| self.buffer.follow(at)).transpose()
    }

    fn elements(&self, field: Field, element: usize) -> Result<Option<(usize, usize)>> {
        self.target(field)?.map(|at| self.buffer.vector(at, element)).transpose()
    }

    scalars!(u8, i8, i32, u32, i64, u64, f64);
    vectors!(u8s u8, i32s i32, i64s i64, u64s u64, f64s f64);

    pub fn bool(&self, field: Field) -> Result<bool> {
        Ok(self.u8(field, 0)? != 0)
    }

    pub fn bools(&self, field: Field) -> Result<Vec<bool>> {
        Ok(self.u8s(field)?.into_iter().map(|b| b != 0).collect())
    }

    /// Where the bytes of a `[ubyte]` are in the buffer; an absent one is empty.
    pub fn bytes(&self, field: Field) -> Result<Range<usize>> {
        let elements = self.elements(field, 1).map_err(|e| e.at(field.name))?;
        Ok(elements.map_or(0..0, |(start, count)| start..start + count))
    }

    pub fn text(&self, field: Field) -> Result<Option<String>> {
        let read = || {
            let Some((start, count)) = self.elements(field, 1)? else { return Ok(None) };
            let bytes = self.buffer.bytes.get(start..start + count).unwrap_or_default();
            if self.buffer.get::<1>(start + count)? != [0] {
                return Err(self.error(format!("the string at offset {start} does not end in a zero")));
            }
            let text = std::str::from_utf8(bytes)
                .map_err(|_| self.error(format!("the string at offset {start} is not UTF-8")))?;
            self.buffer.charge(count)?;
            Ok(Some(text.to_owned()))
        };
        read().map_err(|e: Error| e.at(field.name))
    }

    /// The table a field refers to, decoded.
    pub fn table<T>(&self, field: Field, decode: impl FnOnce(Table<'a>) -> Result<T>) -> Result<Option<T>> {
        let read = || {
            let Some(at) = self.target(field)? else { return Ok(None) };
            self.buffer.charge(size_of::<T>())?;
            decode(self.buffer.table(at)?).map(Some)
        };
        read().map_err(|e: Error| e.at(field.name))
    }

    /// The tables of a vector, each decoded.
    pub fn tables<T>(&self, field: Field, decode: impl Fn(Table<'a>) -> Result<T>) -> Result<Vec<T>> {
        let Some((start, count)) = self.elements(field, 4).map_err(|e| e.at(field.name))? else {
            return Ok(Vec::new());
        };
        self.buffer.charge(count.saturating_mul(size_of::<T>())).map_err(|e| e.at(field.name))?;
        let one = |i: usize| {
            let read = || decode(self.buffer.table(self.buffer.follow(start + 4 * i)?)?);
            read().map_err(|e| e.at(format!("{}[{i}]", field.name)))
        };
        (0..count).map(one).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{TableNode, build};
    use super::*;

    const A: Field = Field { id: 0, name: "a" };
    const B: Field = Field { id: 1, name: "b" };

    fn read<T>(bytes: &[u8], f: impl Fn(Table) -> Result<T>) -> Result<T> {
        f(Buffer::new(bytes, Code::InvalidProgram).root()?)
    }

    #[test]
    fn absent_fields_have_their_defaults() {
        let bytes = build(0, b"", TableNode::new().i32(B, 7)).unwrap();
        assert_eq!(read(&bytes, |t| t.i32(A, -3)), Ok(-3));
        assert_eq!(read(&bytes, |t| t.i32(B, -3)), Ok(7));
        assert_eq!(read(&bytes, |t| t.i64s(A)), Ok(vec![]));
        assert_eq!(read(&bytes, |t| t.text(A)), Ok(None));
    }

    #[test]
    fn an_error_says_where() {
        let mut bytes = build(0, b"", TableNode::new().i64s(A, &[1, 2, 3])).unwrap();
        let count = bytes.len() - 28;
        bytes[count] = 4;
        let error = read(&bytes, |t| t.i64s(A)).unwrap_err();
        assert_eq!(error.code, Code::InvalidProgram);
        let place = format!("a: the vector at offset {count} has 4 elements of 8 bytes");
        assert!(error.message.starts_with(&place), "{}", error.message);
    }

    /// A vector whose thousand entries all refer to one table with a large vector would decode to a million elements.
    #[test]
    fn shared_targets_exhaust_the_budget() {
        let leaf = || TableNode::new().i64s(A, &[0; 1000]);
        let tables = (0..1000).map(|i| if i == 999 { leaf() } else { TableNode::new() }).collect();
        let mut bytes = build(0, b"", TableNode::new().tables(B, tables)).unwrap();
        let (start, last) = {
            let buffer = Buffer::new(&bytes, Code::InvalidProgram);
            let start = buffer.root().unwrap().elements(B, 4).unwrap().unwrap().0;
            (start, buffer.follow(start + 4 * 999).unwrap())
        };
        assert!(read(&bytes, |t| t.tables(B, |t| t.i64s(A))).is_ok());
        for i in 0..1000 {
            let at = start + 4 * i;
            bytes[at..at + 4].copy_from_slice(&((last - at) as u32).to_le_bytes());
        }
        let error = read(&bytes, |t| t.tables(B, |t| t.i64s(A))).unwrap_err();
        assert!(error.message.contains("far more than"), "{}", error.message);
    }
}
