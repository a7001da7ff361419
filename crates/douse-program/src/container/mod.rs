//! ExecuTorch's containers: the program file (`.pte`) and the flat tensor file (`.ptd`).
//!
//! Both are a FlatBuffer with a header inserted after its identifier, followed by aligned segments. This module knows
//! the whole schema and nothing of what Douse puts into it: payloads and named data are opaque bytes.
//!
//! Readers trust nothing. Decoding checks every offset, size and count against the file and charges what it allocates
//! to a budget proportional to the file; `check` then checks every index, so that whoever holds a
//! [`pte::File`] or [`ptd::File`] may follow them without looking. The schema has no recursive table, so the depth of
//! a file is bounded by the schema.
//!
//! Writers are deterministic and stream: segment bytes go from where they lie (usually a mapped file) to the output,
//! and the destination is replaced only once all of it is on disk.

mod atomic;
mod check;
mod decode;
mod encode;
mod fields;
mod flatbuffer;
#[cfg(test)]
mod hostile;
mod layout;
pub mod ptd;
pub mod pte;
pub mod schema;
mod summary;

pub use atomic::replace;
pub use layout::MIN_SEGMENT_ALIGNMENT;
pub use summary::{MethodSummary, Summary};
