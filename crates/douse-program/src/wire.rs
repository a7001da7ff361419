//! A compact binary form of serde's data model, for plans.
//!
//! Values stand one after the other with nothing in between: unsigned integers as LEB128, signed ones zigzagged first,
//! floats as eight bytes, strings and sequences after their length, an enum's variant by its number, options after a
//! byte. One value has one form, so equal plans give equal bytes.
//!
//! Reading trusts nothing: nesting is limited to [`DEPTH`], so that a hostile file cannot exhaust the stack, and every
//! element takes at least a byte, so that it cannot ask for more memory than a small multiple of its size.

mod read;
mod write;

use std::fmt;

pub use read::from_bytes;
pub use write::to_bytes;

/// The deepest nesting read: structures, sequences, variants and options each count one. An expression takes six levels
/// inside another, a step three inside another.
pub const DEPTH: usize = 600;

/// What is wrong with the bytes, and where.
#[derive(Debug)]
pub struct WireError(String);

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for WireError {}

impl serde::ser::Error for WireError {
    fn custom<T: fmt::Display>(message: T) -> WireError {
        WireError(message.to_string())
    }
}

impl serde::de::Error for WireError {
    fn custom<T: fmt::Display>(message: T) -> WireError {
        WireError(message.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::{Deserialize, Serialize};

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    enum Sample {
        Unit,
        Newtype(i64),
        Tuple(u8, f64),
        Struct { name: String, list: Vec<Option<bool>>, pair: (u64, i64) },
        Nested(Box<Sample>),
    }

    #[test]
    fn values_survive_the_round_trip() {
        let samples = vec![
            Sample::Unit,
            Sample::Newtype(i64::MIN),
            Sample::Newtype(-1),
            Sample::Tuple(255, f64::NAN),
            Sample::Struct {
                name: "größe".into(),
                list: vec![None, Some(true), Some(false)],
                pair: (u64::MAX, i64::MAX),
            },
            Sample::Nested(Box::new(Sample::Nested(Box::new(Sample::Unit)))),
        ];
        let bytes = to_bytes(&samples).unwrap();
        let back: Vec<Sample> = from_bytes(&bytes).unwrap();
        assert_eq!(format!("{back:?}"), format!("{samples:?}"));
        for end in 0..bytes.len() {
            assert!(from_bytes::<Vec<Sample>>(&bytes[..end]).is_err(), "cut at {end}");
        }
        assert!(from_bytes::<Vec<Sample>>(&[&bytes[..], &[0]].concat()).unwrap_err().0.contains("1 byte is left"));
    }

    #[test]
    fn deep_nesting_and_long_promises_are_refused() {
        let error = from_bytes::<Sample>(&[4; 100_000]).unwrap_err();
        assert!(error.0.contains("nested too deeply"), "{error}");
        // A sequence that says it has 2^63 elements.
        let mut promise = vec![0xff; 9];
        promise.push(0x01);
        assert!(from_bytes::<Vec<u64>>(&promise).is_err());
        assert!(from_bytes::<String>(&promise).is_err());
    }

    #[test]
    fn a_value_has_one_form() {
        assert!(from_bytes::<u64>(&[0x80, 0x00]).is_err(), "an overlong number");
        assert!(from_bytes::<bool>(&[2]).is_err());
        assert!(from_bytes::<u8>(&[0x80, 0x02]).is_err(), "256 is no u8");
        assert!(from_bytes::<Sample>(&[9]).is_err(), "no such variant");
    }
}
