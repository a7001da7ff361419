//! Zip archives over shared bytes: entries that are stored are looked at where they lie.

use douse_core::bytes::Bytes;
use douse_core::{Code, Error, Result};
use std::io::{Cursor, Read};
use zip::read::{ArchiveOffset, Config};
use zip::result::ZipError;
use zip::{CompressionMethod, ZipArchive};

/// The most that deflate can expand: a longer claim is a damaged entry.
const MAX_INFLATION: u64 = 1032;

/// An open archive.
pub(crate) struct Archive {
    bytes: Bytes,
    zip: ZipArchive<Cursor<Bytes>>,
    names: Vec<String>,
}

impl Archive {
    /// Reads the directory of an archive.
    pub(crate) fn open(bytes: Bytes) -> Result<Archive> {
        // The archive is the whole file. Searching for where it begins would take the directory's second header for
        // its first where that one is as long as the zip64 records, 76 bytes, as a name of 30 bytes makes it.
        let config = Config { archive_offset: ArchiveOffset::Known(0) };
        let zip = ZipArchive::with_config(config, Cursor::new(bytes.clone())).map_err(|error| damaged(&error))?;
        // A truncated archive that holds archives ends in what may look like a directory of its own.
        if zip.offset() != 0 {
            return Err(Error::invalid_program(
                "the zip archive is truncated or damaged: its directory is not its own",
            ));
        }
        // Names that are no text are none of those that are looked for.
        let names = zip.file_names().filter_map(|name| Some(name.ok()?.into_owned())).collect();
        Ok(Archive { bytes, zip, names })
    }

    /// The names of the entries, in the order of the directory.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> + Clone {
        self.names.iter().map(String::as_str)
    }

    /// An entry's bytes, mapped where it is stored and inflated where it is compressed; `None` if there is none.
    pub(crate) fn entry(&mut self, name: &str) -> Result<Option<Bytes>> {
        let file = match self.zip.by_name(name) {
            Ok(file) => file,
            Err(ZipError::FileNotFound) => return Ok(None),
            Err(error) => return Err(damaged(&error).at(name)),
        };
        match file.compression() {
            CompressionMethod::Stored => {
                let start = file.data_start().unwrap_or(u64::MAX);
                let start = usize::try_from(start).unwrap_or(usize::MAX);
                let len = usize::try_from(file.size()).unwrap_or(usize::MAX);
                self.bytes.slice(start, len).map_err(|error| error.at(name)).map(Some)
            }
            _ => {
                let size = file.size();
                if size > file.compressed_size().saturating_mul(MAX_INFLATION).saturating_add(64) {
                    return Err(Error::invalid_program("the compressed entry claims an impossible size").at(name));
                }
                // Grows with what is really there, whatever the entry claims.
                let mut data = Vec::new();
                let read = file.take(size).read_to_end(&mut data).map_err(|error| damaged(&error.into()).at(name))?;
                if read as u64 != size {
                    return Err(Error::invalid_program("the compressed entry is shorter than it claims").at(name));
                }
                Ok(Some(data.into()))
            }
        }
    }

    /// As `entry`, with the checksum verified; for what is read whole anyhow.
    pub(crate) fn checked_entry(&mut self, name: &str) -> Result<Option<Bytes>> {
        let bytes = self.entry(name)?;
        // A fuzzer's changes shall reach what reads the bytes.
        if bytes.is_some() && !cfg!(fuzzing) {
            let mut file = self.zip.by_name(name).map_err(|error| damaged(&error).at(name))?;
            std::io::copy(&mut file, &mut std::io::sink()).map_err(|error| damaged(&error.into()).at(name))?;
        }
        Ok(bytes)
    }
}

fn damaged(error: &ZipError) -> Error {
    match error {
        ZipError::UnsupportedArchive(what) => {
            Error::new(Code::NotSupported, format!("the zip archive cannot be read: {what}"))
        }
        other => Error::invalid_program(format!("the zip archive is truncated or damaged: {other}")),
    }
}
