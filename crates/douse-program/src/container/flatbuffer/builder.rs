//! Writes FlatBuffers from front to back.
//!
//! Parents come before their children, so every reference points forward and is filled in once its target's place is
//! known. Equal vtables are written once. The same tree always gives the same bytes.

use super::Field;
use douse_core::{Error, Result};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Something a table refers to.
pub enum Node<'a> {
    Table(TableNode<'a>),
    Tables(Vec<TableNode<'a>>),
    Text(&'a str),
    /// Elements as they lie in the file, aligned to `align` bytes.
    Vector {
        count: usize,
        align: usize,
        bytes: Cow<'a, [u8]>,
    },
}

enum Slot<'a> {
    /// The low `size` bytes of `bits`.
    Scalar {
        size: usize,
        bits: u64,
    },
    Reference(Node<'a>),
}

impl Slot<'_> {
    fn size(&self) -> usize {
        match self {
            Slot::Scalar { size, .. } => *size,
            Slot::Reference(_) => 4,
        }
    }
}

/// A table to be written: its fields in any order.
#[derive(Default)]
pub struct TableNode<'a> {
    slots: Vec<(u16, Slot<'a>)>,
}

/// Setters of scalars. Every field given is written, defaults too: some readers want it there.
macro_rules! scalars {
    ($($type:ident),*) => {
        $(
            pub fn $type(self, field: Field, value: $type) -> Self {
                let mut bits = [0; 8];
                let bytes = value.to_le_bytes();
                bits.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
                self.slot(field, Slot::Scalar { size: bytes.len(), bits: u64::from_le_bytes(bits) })
            }
        )*
    };
}

/// Setters of vectors of scalars.
macro_rules! vectors {
    ($($name:ident $type:ty),*) => {
        $(
            pub fn $name(self, field: Field, values: &[$type]) -> Self {
                let bytes = values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
                self.node(field, Node::Vector { count: values.len(), align: size_of::<$type>(), bytes: bytes.into() })
            }
        )*
    };
}

impl<'a> TableNode<'a> {
    pub fn new() -> Self {
        TableNode::default()
    }

    fn slot(mut self, field: Field, slot: Slot<'a>) -> Self {
        self.slots.push((field.id, slot));
        self
    }

    scalars!(u8, i8, i32, u32, i64, u64, f64);
    vectors!(u8s u8, i32s i32, i64s i64, u64s u64, f64s f64);

    pub fn node(self, field: Field, node: Node<'a>) -> Self {
        self.slot(field, Slot::Reference(node))
    }

    pub fn text(self, field: Field, text: &'a str) -> Self {
        self.node(field, Node::Text(text))
    }

    pub fn table(self, field: Field, table: TableNode<'a>) -> Self {
        self.node(field, Node::Table(table))
    }

    pub fn tables(self, field: Field, tables: Vec<TableNode<'a>>) -> Self {
        self.node(field, Node::Tables(tables))
    }

    /// A `[ubyte]` whose first element is at a multiple of `align`.
    pub fn aligned(self, field: Field, bytes: &'a [u8], align: usize) -> Self {
        self.node(field, Node::Vector { count: bytes.len(), align, bytes: bytes.into() })
    }
}

/// The FlatBuffer of `root`: the root offset, `identifier`, `reserved` zero bytes for a header, the tree.
///
/// # Errors
/// `NotSupported` when it would be 2 GiB or more, the most that a FlatBuffer's offsets reach.
pub fn build(reserved: usize, identifier: &[u8], root: TableNode) -> Result<Vec<u8>> {
    let mut builder = Builder { out: vec![0; 4], vtables: BTreeMap::new() };
    builder.out.extend_from_slice(identifier);
    builder.out.resize(builder.out.len() + reserved, 0);
    let start = builder.table(&root)?;
    builder.refer(0, start)?;
    builder.pad(0, 8);
    if builder.out.len() > i32::MAX as usize {
        return Err(Error::not_supported("the program's tables come to 2 GiB or more, which a FlatBuffer cannot hold"));
    }
    Ok(builder.out)
}

struct Builder {
    out: Vec<u8>,
    vtables: BTreeMap<Vec<u8>, usize>,
}

impl Builder {
    /// Pads so that what is written `ahead` bytes from here is at a multiple of `align`.
    fn pad(&mut self, ahead: usize, align: usize) {
        let end = (self.out.len() + ahead).next_multiple_of(align) - ahead;
        self.out.resize(end, 0);
    }

    fn put(&mut self, at: usize, bytes: &[u8]) -> Result<()> {
        let to = self.out.get_mut(at..at + bytes.len());
        to.ok_or_else(|| Error::internal("a FlatBuffer field before its table"))?.copy_from_slice(bytes);
        Ok(())
    }

    fn refer(&mut self, at: usize, target: usize) -> Result<()> {
        let distance = u32::try_from(target - at);
        let distance = distance.map_err(|_| Error::not_supported("a FlatBuffer of 4 GiB or more"))?;
        self.put(at, &distance.to_le_bytes())
    }

    fn count(&mut self, count: usize) -> Result<()> {
        let count = u32::try_from(count).map_err(|_| Error::not_supported(format!("a vector of {count} elements")))?;
        self.out.extend_from_slice(&count.to_le_bytes());
        Ok(())
    }

    /// Returns where the node was written.
    fn node(&mut self, node: &Node) -> Result<usize> {
        match node {
            Node::Table(table) => self.table(table),
            Node::Tables(tables) => {
                self.pad(0, 4);
                let at = self.out.len();
                self.count(tables.len())?;
                self.out.resize(at + 4 + 4 * tables.len(), 0);
                for (i, table) in tables.iter().enumerate() {
                    let target = self.table(table)?;
                    self.refer(at + 4 + 4 * i, target)?;
                }
                Ok(at)
            }
            Node::Text(text) => {
                self.pad(0, 4);
                let at = self.out.len();
                self.count(text.len())?;
                self.out.extend_from_slice(text.as_bytes());
                self.out.push(0);
                Ok(at)
            }
            Node::Vector { count, align, bytes } => {
                self.pad(4, (*align).max(4));
                let at = self.out.len();
                self.count(*count)?;
                self.out.extend_from_slice(bytes);
                Ok(at)
            }
        }
    }

    fn table(&mut self, table: &TableNode) -> Result<usize> {
        // Largest first, so that no field needs padding.
        let mut order: Vec<&(u16, Slot)> = table.slots.iter().collect();
        order.sort_by_key(|(id, slot)| (std::cmp::Reverse(slot.size()), *id));

        let mut size = 4;
        let slots = order.iter().map(|(id, _)| usize::from(*id) + 1).max().unwrap_or(0);
        let mut offsets = vec![0u16; slots];
        for (id, slot) in &order {
            if let Some(offset) = offsets.get_mut(usize::from(*id)) {
                *offset = size as u16;
            }
            size += slot.size();
        }
        let head = [4 + 2 * slots as u16, size as u16];
        let vtable: Vec<u8> = head.iter().chain(&offsets).flat_map(|v| v.to_le_bytes()).collect();
        let vtable = match self.vtables.get(&vtable) {
            Some(&at) => at,
            None => {
                self.pad(0, 2);
                let at = self.out.len();
                self.out.extend_from_slice(&vtable);
                self.vtables.insert(vtable, at);
                at
            }
        };

        // Eight-byte fields come first, right after the table's own first word.
        let align = order.first().map_or(4, |(_, slot)| slot.size().max(4));
        self.pad(4, align);
        let start = self.out.len();
        let back = i32::try_from(start - vtable).map_err(|_| Error::not_supported("a FlatBuffer of 2 GiB or more"))?;
        self.out.extend_from_slice(&back.to_le_bytes());
        for (_, slot) in &order {
            let bits = if let Slot::Scalar { bits, .. } = slot { *bits } else { 0 };
            self.out.extend(bits.to_le_bytes().iter().take(slot.size()));
        }
        // Children in the order of the schema, whatever the order in the table.
        for (id, slot) in &table.slots {
            if let (Slot::Reference(node), Some(offset)) = (slot, offsets.get(usize::from(*id))) {
                let target = self.node(node)?;
                self.refer(start + usize::from(*offset), target)?;
            }
        }
        Ok(start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Field = Field { id: 0, name: "a" };
    const B: Field = Field { id: 1, name: "b" };

    /// Worked out by hand from the encoding.
    #[test]
    fn bytes_of_a_small_table() {
        let bytes = build(0, b"TEST", TableNode::new().u8(A, 9).text(B, "hi")).unwrap();
        let expected: &[&[u8]] = &[
            &[16, 0, 0, 0],
            b"TEST",
            &[8, 0, 9, 0, 8, 0, 4, 0],
            &[8, 0, 0, 0, 8, 0, 0, 0, 9],
            &[0, 0, 0],
            &[2, 0, 0, 0, b'h', b'i', 0],
            &[0; 5],
        ];
        assert_eq!(bytes, expected.concat());
    }

    #[test]
    fn elements_are_aligned() {
        for reserved in [0, 4, 8, 12] {
            let root = TableNode::new().text(A, "x").aligned(B, &[0xab; 3], 16);
            let bytes = build(reserved, b"", root).unwrap();
            let at = bytes.windows(3).position(|w| w == [0xab; 3]).unwrap();
            assert_eq!(at % 16, 0);
            let bytes = build(reserved, b"", TableNode::new().u64(A, 0x1122_3344_5566_7788)).unwrap();
            let at = bytes.windows(2).position(|w| w == [0x88, 0x77]).unwrap();
            assert_eq!(at % 8, 0);
        }
    }
}
