//! Damaged files of both kinds: an error or a checked file, never a panic.

use super::{ptd, pte};
use douse_core::Code;
use std::path::Path;

const FILES: &[&str] =
    &["add_portable.pte", "net_portable.pte", "net_xnnpack.pte", "net_external.pte", "_default_external_constant.ptd"];

fn files() -> impl Iterator<Item = (&'static str, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/formats");
    FILES.iter().map(move |name| (*name, std::fs::read(folder.join(name)).unwrap()))
}

/// Opens the file and follows everything in it.
fn visit(name: &str, bytes: Vec<u8>) -> bool {
    if name.ends_with(".ptd") {
        return match ptd::File::from_bytes(bytes) {
            Ok(file) => {
                for key in file.keys() {
                    let tensor = file.layout(key).unwrap().map_or(0, |l| l.bytes().unwrap());
                    assert!(tensor <= file.data(key).unwrap().len() as u64);
                }
                true
            }
            Err(error) => {
                assert_eq!(error.code, Code::InvalidExternalData, "{error}");
                false
            }
        };
    }
    match pte::File::from_bytes(bytes) {
        Ok(file) => {
            file.summary();
            for method in file.methods() {
                assert_eq!(method.inputs().count(), method.plan().inputs.len());
                assert_eq!(method.outputs().count(), method.plan().outputs.len());
                assert_eq!(method.delegates().count(), method.plan().delegates.len());
            }
            assert!(file.named_keys().all(|key| file.named_data(key).is_ok()));
            true
        }
        Err(error) => {
            assert_eq!(error.code, Code::InvalidProgram, "{error}");
            false
        }
    }
}

#[test]
fn every_byte_changed() {
    for (name, good) in files() {
        let mut refused = 0;
        for at in 0..good.len() {
            for change in [0xff, 0x01, 0x80] {
                let mut bytes = good.clone();
                bytes[at] ^= change;
                refused += usize::from(!visit(name, bytes));
            }
        }
        assert!(refused > good.len() / 4, "{name}: only {refused} changes were noticed");
    }
}

#[test]
fn every_length() {
    for (name, good) in files() {
        assert!(visit(name, good.clone()));
        // The padding at a FlatBuffer's end means nothing, so a program without segments may lose it.
        let needed = good.len() - 16;
        for length in 0..needed {
            assert!(!visit(name, good[..length].to_vec()), "{name} of {length} bytes");
        }
        for length in needed..good.len() {
            visit(name, good[..length].to_vec());
        }
    }
}

#[test]
fn several_words_changed() {
    // The linear congruential generator of Knuth's MMIX.
    let mut state = 20260101u64;
    let mut random = |below: usize| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as usize % below
    };
    const WORDS: [u32; 8] = [0, 1, 4, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff, 0xffff_fffc, 0x1000_0000];
    for (name, good) in files() {
        for _ in 0..3000 {
            let mut bytes = good.clone();
            for _ in 0..1 + random(4) {
                let at = 4 * random(good.len() / 4);
                let word = match random(3) {
                    0 => WORDS[random(WORDS.len())],
                    1 => random(good.len()) as u32,
                    _ => u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
                        .wrapping_add(random(64) as u32)
                        .wrapping_sub(32),
                };
                bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
            }
            visit(name, bytes);
        }
    }
}
