//! The names of stored bytes.

use sha2::{Digest, Sha256};

/// The key of bytes that are stored by content: their SHA-256 in hexadecimal.
pub fn content_key(bytes: &[u8]) -> String {
    let digits = |byte: u8| [byte >> 4, byte & 15].map(|d| char::from_digit(d.into(), 16).unwrap_or('0'));
    Sha256::digest(bytes).into_iter().flat_map(digits).collect()
}

#[cfg(test)]
mod tests {
    use super::content_key;

    /// The published test vector of SHA-256 for "abc".
    #[test]
    fn keys_are_sha256() {
        assert_eq!(content_key(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }
}
