use super::*;
use douse_core::DType;
use std::path::PathBuf;

fn example() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/formats/_default_external_constant.ptd")
}

fn layout(sizes: &[i32]) -> TensorLayout {
    let scalar_type = ScalarType::from_dtype(DType::F32).unwrap();
    TensorLayout { scalar_type, sizes: sizes.to_vec(), dim_order: (0..sizes.len() as u8).collect() }
}

fn written(writer: Writer) -> Vec<u8> {
    let mut out = Vec::new();
    writer.write(&mut out).unwrap();
    out
}

#[test]
fn a_file_of_executorch_opens() {
    let file = File::open(&example()).unwrap();
    assert_eq!(file.keys().collect::<Vec<_>>(), ["l.bias", "l.weight"]);
    assert_eq!(file.layout("l.weight").unwrap(), Some(&layout(&[3, 4])));
    assert_eq!(file.data("l.bias").unwrap().len(), 12);
    assert_eq!(file.data("l.scale").unwrap_err().code, Code::NotFound);
}

#[test]
fn what_was_written_is_read() {
    let weight: Vec<u8> = (0..48).collect();
    let sample = || {
        let mut writer = Writer::new();
        writer.data("l.weight", Some(layout(&[3, 4])), &weight[..], 256).unwrap();
        writer.data("note", None, &b"plain bytes"[..], 1).unwrap();
        writer
    };
    let bytes = written(sample());
    assert_eq!(bytes, written(sample()));
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    assert_eq!(&bytes[4..16], b"FT01FH01\x28\0\0\0");
    assert_eq!(word(16), 48);
    let (size, base, data) = (word(24), word(32), word(40));
    assert_eq!(base, (48 + size).next_multiple_of(128));
    assert_eq!(base % 256, 0);
    assert_eq!(base + data, bytes.len() as u64);

    let file = File::from_bytes(bytes).unwrap();
    assert_eq!(&**file.data("l.weight").unwrap(), &weight[..]);
    assert_eq!(file.layout("l.weight").unwrap(), Some(&layout(&[3, 4])));
    assert_eq!(&**file.data("note").unwrap(), b"plain bytes");
    assert_eq!(file.layout("note").unwrap(), None);
}

#[test]
fn a_layout_that_does_not_fit_is_refused() {
    let mut writer = Writer::new();
    let short = writer.data("w", Some(layout(&[3, 4])), vec![0; 47], 16);
    assert_eq!(short.unwrap_err().code, Code::InvalidArgument);
    let mut file = std::fs::read(example()).unwrap();
    // The first size of `l.weight`, found by its bytes: two sizes, 3 and 4.
    let sizes = [2u32, 3, 4].map(u32::to_le_bytes).concat();
    let at = file.windows(12).position(|w| w == sizes).unwrap();
    file[at + 4] = 5;
    let error = File::from_bytes(file).unwrap_err();
    assert_eq!(error.code, Code::InvalidExternalData);
    assert!(error.message.contains("l.weight"), "{error}");
}

#[test]
fn a_program_is_not_a_flat_tensor_file() {
    let error = File::open(&example().with_file_name("add_portable.pte")).unwrap_err();
    assert_eq!(error.code, Code::InvalidExternalData);
    assert!(error.message.contains("an ExecuTorch program"), "{error}");
}
