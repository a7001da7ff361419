//! As much of FlatBuffers as the containers need: a checked reader, a deterministic builder.
//!
//! The encoding is that of the FlatBuffers documentation ("FlatBuffer Internals"): a table begins with the signed
//! distance back to its vtable, a vtable holds its own size, the table's size and one 16-bit offset a slot (0: absent);
//! strings, vectors and tables are referred to by unsigned 32-bit distances forward.

mod builder;
mod reader;

pub use builder::{TableNode, build};
pub use reader::{Buffer, Table};

/// A field of a table: its id in the schema, and its name for messages.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    pub id: u16,
    pub name: &'static str,
}

/// Declares the fields of tables: one module of constants a table.
macro_rules! fields {
    ($($table:ident { $($constant:ident $name:literal $id:literal),* $(,)? })*) => {
        $(pub mod $table {
            use super::super::flatbuffer::Field;
            $(pub const $constant: Field = Field { id: $id, name: $name };)*
        })*
    };
}
pub(super) use fields;
