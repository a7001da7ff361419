//! Any text as a graph: an error, or a module that the verifier can judge and that prints as it parses again.
//! Start from `crates/douse-ir/tests`: `cargo fuzz run graph_text fuzz/corpus/graph_text crates/douse-ir/tests`.
#![no_main]

use douse_ir::{Module, verify};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(module) = text.parse::<Module>() else { return };
    let _ = verify(&module);
    let printed = module.to_string();
    let again: Module = printed.parse().unwrap_or_else(|e| panic!("{e}\n{printed}"));
    assert_eq!(again.to_string(), printed);
});
