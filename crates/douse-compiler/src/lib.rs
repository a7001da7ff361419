//! Compiles an exported program to a plan.
//!
//! ```text
//! ExportedProgram ──import──▶ Module ──passes──▶ Module ──fuse──▶ kernels ──plan──▶ Plan
//! ```

mod content;
pub mod emit;
mod evaluate;
pub mod fuse;
pub mod import;
mod lower;
pub mod passes;
pub mod plan;

pub use content::content_key;
pub use lower::{Lowered, Options, Watch, lower};
