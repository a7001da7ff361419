//! How a container lies in its file: the header after the identifier, and the segments after the FlatBuffer.

use super::schema::DataSegment;
use douse_core::bytes::Bytes;
use douse_core::{Code, Error, Result};
use std::io::Write;
use std::ops::Range;

/// Every segment begins at a multiple of this, relative to the segment base, whatever its own alignment.
pub const MIN_SEGMENT_ALIGNMENT: u64 = 128;

/// Where a header begins: after the root offset and the identifier.
const HEADER_AT: usize = 8;

/// One of the two containers.
pub struct Kind {
    /// Of the FlatBuffer, at offset 4.
    pub identifier: [u8; 4],
    header_magic: [u8; 4],
    /// As the header states it.
    header_length: u32,
    /// The least that older writers state.
    least_header_length: u32,
    /// For messages.
    what: &'static str,
    code: Code,
}

pub const PROGRAM: Kind = Kind {
    identifier: *b"ET12",
    header_magic: *b"eh00",
    header_length: 32,
    least_header_length: 24,
    what: "a .pte program",
    code: Code::InvalidProgram,
};

pub const FLAT_TENSOR: Kind = Kind {
    identifier: *b"FT01",
    header_magic: *b"FH01",
    header_length: 40,
    least_header_length: 40,
    what: "a .ptd file",
    code: Code::InvalidExternalData,
};

/// First bytes of files that are commonly given by mistake.
const OTHER_FILES: &[(usize, &[u8], &str)] = &[
    (0, b"PK\x03\x04", "a zip archive, as .pt2 and .pt files are"),
    (4, b"ET", "an ExecuTorch program (.pte)"),
    (4, b"FT", "a flat tensor file (.ptd)"),
    (0, b"\x7fELF", "an ELF binary"),
    (8, b"{\"", "a safetensors file"),
    (0, b"{", "JSON"),
    (0, b"\x80\x02", "a pickle"),
    (0, b"version https://git-lfs", "a Git LFS pointer: fetch the file itself"),
];

/// The parts of a container's file.
#[derive(Debug)]
pub struct Layout {
    /// Where the FlatBuffer ends; it begins with the file and the header is in it.
    pub flatbuffer: usize,
    /// All segments; empty where there is no header.
    pub segments: Range<usize>,
}

impl Kind {
    fn error(&self, message: impl Into<String>) -> Error {
        Error::new(self.code, message)
    }

    /// The header without padding, rounded up to 16 bytes, the largest alignment inside the FlatBuffer.
    pub fn reserved(&self) -> usize {
        (self.header_length as usize).next_multiple_of(16)
    }

    /// Finds the parts of `file`.
    ///
    /// # Errors
    /// The kind's code, for a file that is something else or whose header contradicts its length.
    pub fn parse(&self, file: &[u8]) -> Result<Layout> {
        if file.get(4..8) != Some(&self.identifier[..]) {
            let identifier = String::from_utf8_lossy(&self.identifier);
            let found = OTHER_FILES.iter().find(|(at, magic, _)| file.get(*at..).is_some_and(|f| f.starts_with(magic)));
            let found = match (found, file.get(4..8)) {
                (_, Some(other)) if other.starts_with(&self.identifier[..2]) => {
                    format!("its version is {:?}", String::from_utf8_lossy(other))
                }
                (Some((_, _, what)), _) => format!("it is {what}"),
                (None, Some(_)) => "it is something else".to_owned(),
                (None, None) => format!("it is only {} bytes long", file.len()),
            };
            return Err(self.error(format!("not {} ({identifier:?} at offset 4): {found}", self.what)));
        }
        let whole = Layout { flatbuffer: file.len(), segments: file.len()..file.len() };
        if file.get(HEADER_AT..HEADER_AT + 4) != Some(&self.header_magic[..]) {
            // Without segments there is nothing for a header to say, except in a `.ptd`, which always has one.
            return match self.identifier == PROGRAM.identifier {
                true => Ok(whole),
                false => {
                    Err(self.error(format!("no {:?} header at offset 8", String::from_utf8_lossy(&self.header_magic))))
                }
            };
        }
        self.parse_header(file)
    }

    fn parse_header(&self, file: &[u8]) -> Result<Layout> {
        let truncated = || self.error(format!("the file ends inside its header ({} bytes)", file.len()));
        let length: [u8; 4] = file.get(12..16).and_then(|b| b.try_into().ok()).ok_or_else(truncated)?;
        let length = u32::from_le_bytes(length);
        if length < self.least_header_length {
            let least = self.least_header_length;
            return Err(self.error(format!("the header's length is {length}, less than {least}")));
        }
        let word = |i: usize| -> Result<u64> {
            let at = 16 + 8 * i;
            let bytes = file.get(at..at + 8).and_then(|b| b.try_into().ok());
            bytes.map(u64::from_le_bytes).ok_or_else(truncated)
        };
        let (flatbuffer_size, base, data_size) = if self.identifier == PROGRAM.identifier {
            let data_size = if length >= self.header_length { Some(word(2)?) } else { None };
            (word(0)?, word(1)?, data_size)
        } else {
            let (offset, size) = (word(0)?, word(1)?);
            let least = HEADER_AT as u64 + u64::from(length);
            if offset < least {
                return Err(self.error(format!("the FlatBuffer's offset is {offset}, inside the header")));
            }
            let end = offset.checked_add(size);
            (end.ok_or_else(|| self.error(format!("a FlatBuffer of {size} bytes")))?, word(2)?, Some(word(3)?))
        };
        let file_size = file.len() as u64;
        if flatbuffer_size > file_size || flatbuffer_size < HEADER_AT as u64 + u64::from(length) {
            return Err(self.error(format!(
                "the header says the FlatBuffer ends at {flatbuffer_size}, the file is {file_size} bytes long"
            )));
        }
        let flatbuffer = flatbuffer_size as usize;
        // A writer with no segments may leave the base at zero.
        if base == 0 && data_size.unwrap_or(0) == 0 {
            return Ok(Layout { flatbuffer, segments: flatbuffer..flatbuffer });
        }
        let end = data_size.map_or(Some(file_size), |size| base.checked_add(size));
        match end {
            Some(end) if base >= flatbuffer_size && base <= end && end <= file_size => {
                Ok(Layout { flatbuffer, segments: base as usize..end as usize })
            }
            _ => {
                let size = data_size.map_or("unstated".to_owned(), |s| s.to_string());
                Err(self.error(format!(
                    "the header places the segments at {base} (size {size}) in a file of {file_size} bytes whose \
                     FlatBuffer ends at {flatbuffer_size}"
                )))
            }
        }
    }

    /// Fills in the header of `flatbuffer`, which has [`reserved`](Kind::reserved) bytes for it, and pads it so that
    /// the segment base, too, is a multiple of `alignment`. Returns the segment base.
    fn finish_header(&self, flatbuffer: &mut Vec<u8>, alignment: u64, data_size: u64) -> Result<u64> {
        let padded = flatbuffer.len().next_multiple_of(alignment as usize);
        flatbuffer.resize(padded, 0);
        let size = flatbuffer.len() as u64;
        let base = size.next_multiple_of(MIN_SEGMENT_ALIGNMENT);
        let mut header = [self.header_magic, self.header_length.to_le_bytes()].concat();
        let words = if self.identifier == PROGRAM.identifier {
            vec![size, base, data_size]
        } else {
            let offset = self.reserved() as u64;
            vec![offset, size - offset, base, data_size]
        };
        header.extend(words.iter().flat_map(|w| w.to_le_bytes()));
        let place = flatbuffer.get_mut(HEADER_AT..HEADER_AT + header.len());
        place.ok_or_else(|| Error::internal("a container without room for its header"))?.copy_from_slice(&header);
        Ok(base)
    }
}

/// Checks each segment against the part of the file that holds them, and gives their bytes.
pub fn slice_segments(kind: &Kind, file: &Bytes, layout: &Layout, segments: &[DataSegment]) -> Result<Vec<Bytes>> {
    let all = layout.segments.clone();
    let slice = |(i, s): (usize, &DataSegment)| {
        let start = (all.start as u64).checked_add(s.offset);
        let end = start.and_then(|start| start.checked_add(s.size)).filter(|&end| end <= all.end as u64);
        let range = start.zip(end).map(|(start, end)| start as usize..end as usize);
        range.and_then(|range| file.slice(range.start, range.len()).ok()).ok_or_else(|| {
            kind.error(format!(
                "segments[{i}]: {} bytes at {} run past the end of the segments ({} bytes)",
                s.size,
                s.offset,
                all.len()
            ))
        })
    };
    segments.iter().enumerate().map(slice).collect()
}

/// Bytes to become a segment, and the alignment they need.
#[derive(Clone, Copy)]
pub struct Segment<'a> {
    pub bytes: &'a [u8],
    /// A power of two.
    pub alignment: u64,
}

/// Where each segment goes, relative to the base.
pub fn place(segments: &[Segment]) -> Vec<DataSegment> {
    let mut end = 0u64;
    let next = |s: &Segment| {
        let offset = end.next_multiple_of(s.alignment.max(MIN_SEGMENT_ALIGNMENT));
        end = offset + s.bytes.len() as u64;
        DataSegment { offset, size: s.bytes.len() as u64 }
    };
    segments.iter().map(next).collect()
}

/// Writes a container: the FlatBuffer, then the segments straight from where they lie. Returns the file's size.
pub fn write(kind: &Kind, mut flatbuffer: Vec<u8>, segments: &[Segment], out: &mut dyn Write) -> Result<u64> {
    let failed = |e: std::io::Error| Error::new(Code::AccessFailed, e.to_string());
    let places = place(segments);
    let data_size = places.last().map_or(0, |s| s.offset + s.size);
    // A mapped file begins on a page, so a base at the largest alignment makes every segment's address aligned.
    let alignment = segments.iter().map(|s| s.alignment).max().unwrap_or(1);
    let base = kind.finish_header(&mut flatbuffer, alignment, data_size)?;
    out.write_all(&flatbuffer).map_err(failed)?;
    let mut at = flatbuffer.len() as u64;
    for (segment, place) in segments.iter().zip(&places) {
        let mut padding = base + place.offset - at;
        while padding > 0 {
            let zeros = [0; 256];
            let n = zeros.len().min(padding as usize);
            out.write_all(zeros.get(..n).unwrap_or_default()).map_err(failed)?;
            padding -= n as u64;
        }
        out.write_all(segment.bytes).map_err(failed)?;
        at = base + place.offset + place.size;
    }
    Ok(at)
}
