//! Any bytes as a flat tensor file: an error, or a file whose every tensor lies in it.
//! Start from `tests/formats`: `cargo fuzz run ptd fuzz/corpus/ptd tests/formats`.
#![no_main]

use douse_program::container::ptd::File;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(file) = File::from_bytes(data.to_vec()) else { return };
    for key in file.keys() {
        let bytes = file.data(key).expect("a key of the file").len() as u64;
        if let Some(layout) = file.layout(key).expect("a key of the file") {
            assert!(layout.bytes().is_some_and(|tensor| tensor <= bytes));
        }
    }
});
