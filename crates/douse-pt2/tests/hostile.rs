//! Damaged input gives an error or a program, never a panic. What is changed is drawn from a seeded generator.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use common::*;
use douse_pt2::ExportedProgram;

/// SplitMix64 (Steele, Lea and Flood, 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    /// Flips bits, overwrites, cuts out, repeats or truncates.
    fn damage(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..=self.below(3) {
            let at = self.below(bytes.len());
            let len = self.below(16).min(bytes.len() - at);
            match self.below(6) {
                0 | 1 => bytes[at] ^= 1 << self.below(8),
                2 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff, b'9', b'{', b'('][self.below(8)],
                3 => drop(bytes.drain(at..at + len)),
                4 => {
                    let part = bytes[at..at + len].to_vec();
                    bytes.splice(at..at, part);
                }
                _ => bytes.truncate(bytes.len() - self.below(bytes.len() / 8)),
            }
            if bytes.is_empty() {
                return;
            }
        }
    }
}

/// Reads many damaged copies of `bytes`, put in place by `wrap`, and gives how many still read.
fn survive(seed: u64, times: usize, bytes: &[u8], wrap: impl Fn(Vec<u8>) -> Vec<u8>) -> usize {
    let mut random = Random(seed);
    let mut read = 0;
    for _ in 0..times {
        let mut damaged = bytes.to_vec();
        random.damage(&mut damaged);
        match ExportedProgram::from_bytes(wrap(damaged).into()) {
            Ok(program) => {
                read += 1;
                // What reads can be used.
                for tensor in program.tensors.values() {
                    let _ = tensor.contiguous_bytes();
                }
            }
            Err(error) => assert!(!error.message.is_empty()),
        }
    }
    read
}

#[test]
fn damaged_archives() {
    for (seed, name) in ["tied", "cond_on_size", "item_mixed"].into_iter().enumerate() {
        let bytes = std::fs::read(case(name)).unwrap();
        survive(seed as u64, 1500, &bytes, |bytes| bytes);
    }
}

#[test]
fn damaged_programs() {
    let read = survive(7, 3000, program().as_bytes(), |json| archive(&String::from_utf8_lossy(&json)));
    // Were none to read, the changes would not reach past the first check.
    assert!(read > 0);
}

#[test]
fn damaged_pickles() {
    let tensors = [("w", pickled_tensor("0", 3, 1)), ("tied", pickled_tensor("0", 3, 0))];
    let pickle = pickled_dict(&tensors);
    let read = survive(8, 5000, &pickle, |pickle| older(&program(), &saved(&pickle, &[("0", &[9; 12])])));
    assert!(read > 0);
}

#[test]
fn nesting_does_not_exhaust_the_stack() {
    for (open, close) in [("[", "]"), (r#"{"as_string_to_argument": {"a": "#, "}}")] {
        let deep = format!("{}{}", open.repeat(50_000), close.repeat(50_000));
        refusal(archive(&program().replace(r#"{"as_float": 2.5}"#, &deep)));
    }
    let mut pickle = b"\x80\x02".to_vec();
    pickle.extend(b"]".repeat(100_000));
    pickle.extend(b"a".repeat(99_999));
    pickle.push(b'.');
    assert!(refusal(older(&program(), &saved(&pickle, &[]))).contains("nests deeper"));
}
