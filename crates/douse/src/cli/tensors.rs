//! Files of tensors: `.npy`, `.npz` and `.safetensors`, by their extension.

mod npy;
mod npz;
pub mod safetensors;

use std::path::Path;

use douse::{Error, HostTensor, Result};
use douse_core::bytes::Bytes;

/// Named tensors in the order of the file; the one of a `.npy` has no name.
pub type Named = Vec<(Option<String>, HostTensor)>;

enum Format {
    Npy,
    Npz,
    Safetensors,
}

fn format(path: &Path) -> Option<Format> {
    match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
        "npy" => Some(Format::Npy),
        "npz" => Some(Format::Npz),
        "safetensors" => Some(Format::Safetensors),
        _ => None,
    }
}

/// Whether a path has the extension of a file of tensors.
pub fn is_tensor_file(path: &Path) -> bool {
    format(path).is_some()
}

pub fn read(path: &Path) -> Result<Named> {
    let bytes = Bytes::open(path)?;
    let named = match format(path) {
        Some(Format::Npy) => npy::read(&bytes).map(|tensor| vec![(None, tensor)]),
        Some(Format::Npz) => npz::read(&bytes),
        Some(Format::Safetensors) => safetensors::read(&bytes),
        None => Err(Error::invalid_argument("expected a .npy, .npz or .safetensors file")),
    };
    named.map_err(|e| e.at(path.display()))
}

/// Writes named tensors to a `.npz` or `.safetensors` file, whole or not at all.
pub fn write(path: &Path, named: Vec<(String, HostTensor)>) -> Result<()> {
    let named: Vec<(String, HostTensor)> =
        named.into_iter().map(|(name, t)| Ok((name, t.into_contiguous()?))).collect::<Result<_>>()?;
    let bytes = match format(path) {
        Some(Format::Npz) => npz::write(&named),
        Some(Format::Safetensors) => safetensors::write(&named),
        _ => Err(Error::invalid_argument("outputs are written to a .safetensors or .npz file")),
    };
    super::output::bytes(path, &bytes.map_err(|e| e.at(path.display()))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use douse::DType;

    #[test]
    fn tensors_survive_every_format() {
        let folder = std::env::temp_dir().join(format!("douse-tensors-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let named = vec![
            ("x".to_owned(), HostTensor::from_f32(&[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, f32::NAN]).unwrap()),
            ("n".to_owned(), HostTensor::from_i64(&[], &[-7]).unwrap()),
            ("c".to_owned(), HostTensor::from_bytes(DType::C64, &[1], &[1; 8]).unwrap()),
            ("empty".to_owned(), HostTensor::zeros(DType::Bool, &[0, 2]).unwrap()),
            ("turned".to_owned(), HostTensor::from_u8(&[2, 2], &[1, 2, 3, 4]).unwrap().to_strides(&[1, 2]).unwrap()),
        ];
        for name in ["t.npz", "t.safetensors"] {
            let path = folder.join(name);
            write(&path, named.clone()).unwrap();
            let mut back = read(&path).unwrap();
            assert_eq!(back.len(), named.len());
            for (name, tensor) in &named {
                let at = back.iter().position(|(n, _)| n.as_deref() == Some(name)).unwrap();
                let found = back.remove(at).1;
                assert_eq!((found.dtype(), found.sizes()), (tensor.dtype(), tensor.sizes()), "{name}");
                assert_eq!(found.bytes(), tensor.clone().into_contiguous().unwrap().bytes(), "{name}");
            }
        }
        let error = write(&folder.join("t.txt"), named).unwrap_err();
        assert!(error.message.contains(".safetensors or .npz"), "{error}");
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn bfloat16_goes_to_safetensors_only() {
        let named = [("b".to_owned(), HostTensor::zeros(DType::BF16, &[2]).unwrap())];
        assert!(npz::write(&named).unwrap_err().message.contains("bfloat16"));
        assert_eq!(safetensors::read(&safetensors::write(&named).unwrap()).unwrap()[0].1.dtype(), DType::BF16);
    }
}
