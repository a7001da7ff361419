//! Files that are something other than a `.pt2` archive: what they are, and what to do instead.

use douse_core::Error;

const EXPORT: &str = "export the model with `torch.export.save(torch.export.export(model, args), \"model.pt2\")`";

/// A kind of file that is known by bytes at a fixed place.
struct Magic {
    at: usize,
    bytes: &'static [u8],
    what: &'static str,
    advice: &'static str,
}

const fn magic(at: usize, bytes: &'static [u8], what: &'static str, advice: &'static str) -> Magic {
    Magic { at, bytes, what, advice }
}

const MAGICS: [Magic; 12] = [
    magic(4, b"ET12", "a lowered program (.pte)", "it needs no lowering: run it as it is"),
    magic(4, b"FT01", "weights of a lowered program (.ptd)", "give the program (.pte) they belong to"),
    magic(4, b"TFL3", "a TensorFlow Lite model", EXPORT),
    magic(0, b"\x80\x02", "a pickle (`torch.save` before PyTorch 1.6), which holds no exported program", EXPORT),
    magic(0, b"\x80\x03", "a pickle, which holds no exported program", EXPORT),
    magic(0, b"\x80\x04", "a pickle, which holds no exported program", EXPORT),
    magic(0, b"\x80\x05", "a pickle, which holds no exported program", EXPORT),
    magic(0, b"GGUF", "a GGUF model", EXPORT),
    magic(0, b"\x89HDF", "an HDF5 file", EXPORT),
    magic(0, b"\x7fELF", "a compiled library or program (ELF)", EXPORT),
    magic(0, b"\x93NUMPY", "a NumPy array", EXPORT),
    magic(0, b"\x1f\x8b", "a gzip file", "unpack it first"),
];

/// A kind of zip archive that is known by the name of an entry, in any folder.
struct Entry {
    part: &'static str,
    what: &'static str,
    advice: &'static str,
}

/// In the order of asking: a TorchScript archive also holds a `data.pkl`.
const ENTRIES: [Entry; 5] = [
    Entry {
        part: "data/aotinductor/",
        what: "an AOTInductor package, which holds compiled code and no program",
        advice: EXPORT,
    },
    Entry { part: "constants.pkl", what: "a TorchScript archive (`torch.jit.save`)", advice: EXPORT },
    Entry { part: ".data/extern_modules", what: "a `torch.package` archive", advice: EXPORT },
    Entry { part: "data.pkl", what: "a pickle (`torch.save`), which holds no exported program", advice: EXPORT },
    Entry { part: ".npy", what: "an archive of NumPy arrays", advice: EXPORT },
];

/// What a file that is no zip archive is.
pub(crate) fn not_a_zip(bytes: &[u8]) -> Error {
    let starts_with = |at: usize, magic: &[u8]| bytes.get(at..).is_some_and(|rest| rest.starts_with(magic));
    if bytes.is_empty() {
        return refusal("empty", "the export or the copy of it failed; make it again");
    }
    if let Some(magic) = MAGICS.iter().find(|magic| starts_with(magic.at, magic.bytes)) {
        return refusal(magic.what, magic.advice);
    }
    if is_safetensors(bytes) {
        return refusal("a safetensors file, which holds weights and no program", EXPORT);
    }
    if is_onnx(bytes) {
        return refusal("an ONNX model", EXPORT);
    }
    if b"PK\x03\x04".starts_with(bytes.get(..4).unwrap_or(bytes)) {
        return refusal("a truncated zip archive", "make it or copy it again");
    }
    if is_text(bytes.get(..512).unwrap_or(bytes)) {
        return refusal("a text file", EXPORT);
    }
    refusal("of a kind that is not known", EXPORT)
}

/// What a zip archive with these entries is.
pub(crate) fn not_a_pt2<'a>(names: impl Iterator<Item = &'a str> + Clone) -> Error {
    let found = ENTRIES.iter().find(|entry| names.clone().any(|name| name.contains(entry.part)));
    match found {
        Some(entry) => refusal(entry.what, entry.advice),
        None => refusal("a zip archive that holds no exported program", EXPORT),
    }
}

fn refusal(what: &str, advice: &str) -> Error {
    Error::invalid_program(format!("the file is not a .pt2 archive, it is {what}; {advice}"))
}

/// UTF-8 without control characters; the last character may be cut.
fn is_text(head: &[u8]) -> bool {
    let text = match std::str::from_utf8(head) {
        Ok(text) => text,
        Err(error) if error.error_len().is_none() => {
            std::str::from_utf8(head.get(..error.valid_up_to()).unwrap_or_default()).unwrap_or_default()
        }
        Err(_) => return false,
    };
    !text.is_empty() && text.chars().all(|c| !c.is_control() || c.is_whitespace())
}

/// A length, then a JSON object of that length.
fn is_safetensors(bytes: &[u8]) -> bool {
    let Some((length, rest)) = bytes.split_first_chunk::<8>() else {
        return false;
    };
    rest.first() == Some(&b'{') && usize::try_from(u64::from_le_bytes(*length)).is_ok_and(|n| n >= 2 && n <= rest.len())
}

/// A protocol buffer that begins as ONNX models do: the version of the format, then the name of the producer.
fn is_onnx(bytes: &[u8]) -> bool {
    match bytes {
        [0x08, version, 0x12, length, rest @ ..] => {
            *version < 0x40 && rest.get(..usize::from(*length)).is_some_and(|name| name.is_ascii())
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_called_what_they_are() {
        let cases: [(&[u8], &str); 13] = [
            (b"", "empty"),
            (b"P", "truncated zip"),
            (b"PK\x03\x04rest", "truncated zip"),
            (b"\x20\0\0\0ET12rest", ".pte"),
            (b"\x20\0\0\0FT01rest", ".ptd"),
            (b"\x80\x02}q\0.", "pickle"),
            (b"\x02\0\0\0\0\0\0\0{}", "safetensors"),
            (b"\x08\x08\x12\x07pytorch\x1a", "ONNX"),
            (b"import torch\n", "text"),
            ("d\u{e9}j\u{e0} vu".as_bytes(), "text"),
            ("d\u{e9}".as_bytes().split_last().unwrap().1, "text"),
            (b"\x7fELF\x02", "ELF"),
            (b"\xff\xfe\x00\x01\x02", "not known"),
        ];
        for (bytes, what) in cases {
            let message = not_a_zip(bytes).message;
            assert!(message.contains(what), "{bytes:?}: {message}");
        }
    }

    #[test]
    fn archives_are_called_what_they_are() {
        let cases: [(&[&str], &str); 5] = [
            (&["m/code/__torch__.py", "m/constants.pkl", "m/data.pkl"], "TorchScript"),
            (&["archive/data.pkl", "archive/data/0"], "torch.save"),
            (&["m/data/aotinductor/model/x.so"], "AOTInductor"),
            (&["a.npy"], "NumPy"),
            (&["word/document.xml"], "holds no exported program"),
        ];
        for (names, what) in cases {
            let message = not_a_pt2(names.iter().copied()).message;
            assert!(message.contains(what), "{names:?}: {message}");
        }
    }
}
