//! Named data from everywhere a method may find it: its program, and the `.ptd` files loaded with it.

use super::{ptd, pte};
use douse_core::bytes::Bytes;
use douse_core::{Code, Error, Result};
use std::collections::BTreeMap;

/// Key to bytes, over a program and its external files. The bytes stay mapped where they are.
#[derive(Clone, Debug, Default)]
pub struct NamedData {
    /// The bytes, and the name of the file they are from.
    entries: BTreeMap<String, (Bytes, String)>,
}

impl NamedData {
    /// The named data of a program; `name` is the file's, for messages.
    ///
    /// # Errors
    /// As [`add`](NamedData::add).
    pub fn of_program(name: &str, program: &pte::File) -> Result<NamedData> {
        let mut data = NamedData::default();
        for key in program.named_keys() {
            data.add(name, key, program.named_data(key)?)?;
        }
        Ok(data)
    }

    /// Adds what a `.ptd` file holds; `name` is the file's, for messages.
    ///
    /// # Errors
    /// As [`add`](NamedData::add).
    pub fn add_external(&mut self, name: &str, file: &ptd::File) -> Result<()> {
        file.keys().try_for_each(|key| self.add(name, key, file.data(key)?))
    }

    /// Adds one entry.
    ///
    /// # Errors
    /// `InvalidArgument` when another file defines the key, with both files' names: which one is meant cannot be known.
    pub fn add(&mut self, name: &str, key: &str, bytes: &Bytes) -> Result<()> {
        if let Some((_, other)) = self.entries.get(key) {
            return Err(Error::invalid_argument(format!("both {other} and {name} define {key:?}")));
        }
        self.entries.insert(key.to_owned(), (bytes.clone(), name.to_owned()));
        Ok(())
    }

    /// The bytes under a key.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn get(&self, key: &str) -> Result<&Bytes> {
        let entry = self.entries.get(key).map(|(bytes, _)| bytes);
        entry.ok_or_else(|| {
            Error::new(Code::NotFound, format!("neither the program nor its external data files hold {key:?}"))
        })
    }

    /// All keys, sorted.
    pub fn keys(&self) -> impl ExactSizeIterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn external(key: &str) -> ptd::File {
        let mut writer = ptd::Writer::new();
        writer.data(key, None, &b"outside"[..], 1).unwrap();
        let mut out = Vec::new();
        writer.write(&mut out).unwrap();
        ptd::File::from_bytes(out).unwrap()
    }

    #[test]
    fn files_complement_each_other_and_may_not_clash() {
        let mut writer = pte::Writer::new();
        writer.named_data("a".into(), &b"inside"[..], 1).unwrap();
        let mut out = Vec::new();
        writer.write(&mut out).unwrap();
        let program = pte::File::from_bytes(out).unwrap();

        let mut data = NamedData::of_program("model.pte", &program).unwrap();
        data.add_external("first.ptd", &external("b")).unwrap();
        assert_eq!(&**data.get("a").unwrap(), b"inside");
        assert_eq!(&**data.get("b").unwrap(), b"outside");
        assert_eq!(data.keys().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(data.get("c").unwrap_err().code, Code::NotFound);

        let error = data.add_external("second.ptd", &external("a")).unwrap_err();
        assert_eq!(error.code, Code::InvalidArgument);
        assert_eq!(error.message, "both model.pte and second.ptd define \"a\"");
    }
}
