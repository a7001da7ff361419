//! NumPy's `.npz`: a zip of `.npy` files.

use std::io::{Cursor, Read, Write};

use douse::{Error, HostTensor, Result};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

use super::{Named, npy};

/// The most that an entry may unpack to, for each of its packed bytes: more than any tensor's bytes pack to.
const RATIO: u64 = 1100;

fn failed(e: impl std::fmt::Display) -> Error {
    Error::invalid_argument(format!("not an .npz file that can be read: {e}"))
}

pub fn read(bytes: &[u8]) -> Result<Named> {
    let mut archive = ZipArchive::new(Cursor::new(bytes)).map_err(failed)?;
    let mut named = Vec::new();
    for i in 0..archive.len() {
        let entry = archive.by_index(i).map_err(failed)?;
        let name = entry.name().map_err(failed)?.into_owned();
        let name = name.strip_suffix(".npy").unwrap_or(&name).to_owned();
        let most = entry.compressed_size().saturating_mul(RATIO).saturating_add(1024);
        let mut elements = Vec::new();
        entry.take(most).read_to_end(&mut elements).map_err(failed)?;
        named.push((Some(name.clone()), npy::read(&elements).map_err(|e| e.at(name))?));
    }
    Ok(named)
}

pub fn write(named: &[(String, HostTensor)]) -> Result<Vec<u8>> {
    let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
    // Stored, as NumPy stores, and with no time of day: the same tensors give the same bytes.
    let options = SimpleFileOptions::default()
        .compression_method(CompressionMethod::Stored)
        .last_modified_time(zip::DateTime::default());
    for (name, tensor) in named {
        let bytes = npy::write(tensor).map_err(|e| e.at(name))?;
        archive.start_file(format!("{name}.npy"), options.large_file(bytes.len() > 1 << 31)).map_err(failed)?;
        archive.write_all(&bytes).map_err(failed)?;
    }
    Ok(archive.finish().map_err(failed)?.into_inner())
}
