//! Compiles an exported program to a plan.
//!
//! ```text
//! ExportedProgram ──import──▶ Module ──passes──▶ Module ──fuse──▶ kernels ──plan──▶ Plan
//! ```

pub mod import;
pub mod passes;
