//! The reader of `.pt2` archives: any bytes give a program or an error. Seeds are in `tests/cases`:
//! `cargo +nightly fuzz run pt2 fuzz/corpus/pt2 tests/cases`.

#![no_main]

use douse_pt2::ExportedProgram;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(program) = ExportedProgram::from_bytes(bytes.to_vec().into()) {
        for tensor in program.tensors.values() {
            let _ = tensor.contiguous_bytes();
        }
        for node in &program.graph.nodes {
            let _ = node.source_line();
        }
    }
});
