//! NumPy's `.npy`: a magic, a version, a Python dict as text, and the elements.
//!
//! <https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html>

use douse::{DType, Error, HostTensor, Result};
use douse_core::layout;

const MAGIC: &[u8] = b"\x93NUMPY";

/// The most dimensions that NumPy's arrays have.
const DIMENSIONS: usize = 64;

/// The elements begin at a multiple of this.
const ALIGNMENT: usize = 64;

/// NumPy's dtypes without the byte order.
const DTYPES: &[(&str, DType)] = &[
    ("b1", DType::Bool),
    ("i1", DType::I8),
    ("i2", DType::I16),
    ("i4", DType::I32),
    ("i8", DType::I64),
    ("u1", DType::U8),
    ("u2", DType::U16),
    ("u4", DType::U32),
    ("u8", DType::U64),
    ("f2", DType::F16),
    ("f4", DType::F32),
    ("f8", DType::F64),
    ("c8", DType::C64),
    ("c16", DType::C128),
];

fn damaged(what: impl Into<String>) -> Error {
    Error::invalid_argument(format!("not a NumPy array that can be read: {}", what.into()))
}

pub fn read(bytes: &[u8]) -> Result<HostTensor> {
    let ends = || damaged("the file ends inside its header");
    let rest = bytes.strip_prefix(MAGIC).ok_or_else(|| damaged("it does not begin with NumPy's magic"))?;
    let (&[major, _], rest) = rest.split_first_chunk::<2>().ok_or_else(ends)?;
    let (len, rest) = match major {
        1 => rest.split_first_chunk::<2>().map(|(len, rest)| (u16::from_le_bytes(*len) as usize, rest)),
        2 | 3 => rest.split_first_chunk::<4>().map(|(len, rest)| (u32::from_le_bytes(*len) as usize, rest)),
        other => return Err(damaged(format!("version {other} of the format"))),
    }
    .ok_or_else(ends)?;
    let (header, elements) = rest.split_at_checked(len).ok_or_else(ends)?;
    let header = std::str::from_utf8(header).map_err(|_| damaged("its header is not UTF-8"))?;
    let Header { dtype, fortran, sizes } = Header::parse(header)?;
    let expected = layout::numel(&sizes).and_then(|n| n.checked_mul(dtype.size()));
    if expected != Some(elements.len()) {
        let found = elements.len();
        return Err(damaged(format!("{found} bytes of elements for {dtype} of shape {sizes:?}")));
    }
    if fortran {
        // Column by column: the transpose of the reversed shape.
        let reversed: Vec<usize> = sizes.iter().rev().copied().collect();
        let strides: Vec<usize> = layout::contiguous_strides(&reversed).into_iter().rev().collect();
        return HostTensor::new(dtype, &sizes, &strides, douse::Aligned::copy(elements)?)?.into_contiguous();
    }
    HostTensor::from_bytes(dtype, &sizes, elements)
}

struct Header {
    dtype: DType,
    fortran: bool,
    sizes: Vec<usize>,
}

impl Header {
    /// Reads `{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }`, the keys in any order.
    fn parse(text: &str) -> Result<Header> {
        let after = |key: &str| {
            let quoted = [format!("'{key}':"), format!("\"{key}\":")];
            let rest = quoted.iter().find_map(|q| text.split_once(q.as_str())).map(|(_, rest)| rest.trim_start());
            rest.ok_or_else(|| damaged(format!("its header has no {key}")))
        };
        let descr = after("descr")?;
        let descr = descr.strip_prefix(['\'', '"']).and_then(|d| d.split(['\'', '"']).next());
        let descr = descr.ok_or_else(|| damaged("a structured dtype"))?;
        let (order, name) = descr.split_at_checked(1).unwrap_or(("", descr));
        if order == ">" {
            return Err(damaged("its elements are big-endian"));
        }
        let dtype = DTYPES.iter().find(|(n, _)| *n == name).map(|(_, dtype)| *dtype);
        let dtype = dtype.ok_or_else(|| damaged(format!("elements of dtype {descr:?}")))?;
        let fortran = match after("fortran_order")? {
            text if text.starts_with("False") => false,
            text if text.starts_with("True") => true,
            _ => return Err(damaged("fortran_order is neither True nor False")),
        };
        let shape = after("shape")?.strip_prefix('(').and_then(|s| s.split_once(')'));
        let (shape, _) = shape.ok_or_else(|| damaged("its shape is no tuple"))?;
        let size = |s: &str| s.trim().parse().map_err(|_| damaged(format!("a size of {:?}", s.trim())));
        let sizes: Vec<usize> = shape.split(',').filter(|s| !s.trim().is_empty()).map(size).collect::<Result<_>>()?;
        if sizes.len() > DIMENSIONS {
            return Err(damaged(format!("{} dimensions", sizes.len())));
        }
        Ok(Header { dtype, fortran, sizes })
    }
}

/// The bytes of a file with a row-major tensor.
pub fn write(tensor: &HostTensor) -> Result<Vec<u8>> {
    let dtype = tensor.dtype();
    let name = DTYPES.iter().find(|(_, d)| *d == dtype).map(|(name, _)| *name);
    let name = name.ok_or_else(|| Error::not_supported(format!("NumPy has no {dtype}: write a .safetensors file")))?;
    let order = if dtype.size() == 1 { '|' } else { '<' };
    let sizes: Vec<String> = tensor.sizes().iter().map(|s| format!("{s},")).collect();
    let mut header = format!("{{'descr': '{order}{name}', 'fortran_order': False, 'shape': ({}), }}", sizes.join(" "));
    // Magic, version and length take ten bytes; the newline that ends the header one more.
    let total = (MAGIC.len() + 4 + header.len() + 1).next_multiple_of(ALIGNMENT);
    header.extend(std::iter::repeat_n(' ', total - MAGIC.len() - 4 - header.len() - 1));
    header.push('\n');
    let len = u16::try_from(header.len()).map_err(|_| Error::not_supported("more dimensions than NumPy has"))?;
    let mut bytes = MAGIC.to_vec();
    bytes.extend([1, 0]);
    bytes.extend(len.to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend(tensor.bytes());
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(header: &str, elements: &[u8]) -> Vec<u8> {
        [MAGIC, &[1, 0], &(header.len() as u16).to_le_bytes(), header.as_bytes(), elements].concat()
    }

    #[test]
    fn column_order_is_turned() {
        let bytes = file("{'descr': '|u1', 'fortran_order': True, 'shape': (2, 3), }", &[1, 4, 2, 5, 3, 6]);
        assert_eq!(read(&bytes).unwrap().bytes(), [1, 2, 3, 4, 5, 6]);
    }

    #[test]
    fn headers_are_padded_as_numpy_pads_them() {
        let bytes = write(&HostTensor::from_f32(&[1, 2], &[1.0, 2.0]).unwrap()).unwrap();
        assert_eq!(bytes.len() % ALIGNMENT, 8);
        assert!(bytes.windows(6).any(|w| w == b"(1, 2,"));
        assert_eq!(read(&bytes).unwrap().sizes(), [1, 2]);
    }

    #[test]
    fn other_files_are_refused() {
        let good = "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }";
        assert!(read(&file(good, &[0; 4])).is_ok());
        let bad: &[(Vec<u8>, &str)] = &[
            (b"PK\x03\x04".to_vec(), "magic"),
            (file(good, &[0; 3]), "3 bytes of elements"),
            (file(&good.replace('<', ">"), &[0; 4]), "big-endian"),
            (file(&good.replace("f4", "V2"), &[0; 4]), "dtype \"<V2\""),
            (file(&good.replace("(1,)", "(-1,)"), &[0; 4]), "size of \"-1\""),
            (file(&good.replace("(1,)", "(99999999999, 99999999999)"), &[0; 4]), "4 bytes of elements"),
            (file(&good.replace("(1,)", "(0, 18446744073709551615)"), &[]), "0 bytes of elements"),
            (file(&good.replace("(1,)", &format!("({})", "1,".repeat(65))), &[0; 4]), "65 dimensions"),
            (file(&good.replace("'<f4'", "[('a', '<f4')]"), &[0; 4]), "structured"),
            (file(&good.replace("shape", "size"), &[0; 4]), "no shape"),
        ];
        for (bytes, expected) in bad {
            let error = read(bytes).unwrap_err();
            assert!(error.message.contains(expected), "{error}, expected {expected}");
        }
        let whole = file(good, &[0; 4]);
        for end in 0..whole.len() {
            assert!(read(&whole[..end]).is_err());
        }
    }
}
