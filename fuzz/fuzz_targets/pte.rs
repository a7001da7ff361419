//! Any bytes as a program file: an error, or a file whose every index can be followed.
//! Start from `tests/formats`: `cargo fuzz run pte fuzz/corpus/pte tests/formats`.
#![no_main]

use douse_program::container::pte::File;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(file) = File::from_bytes(data.to_vec()) else { return };
    file.summary();
    for method in file.methods() {
        assert_eq!(method.inputs().count(), method.plan().inputs.len());
        assert_eq!(method.outputs().count(), method.plan().outputs.len());
        assert_eq!(method.delegates().count(), method.plan().delegates.len());
        method.douse_payload();
    }
    assert!(file.named_keys().all(|key| file.named_data(key).is_ok()));
});
