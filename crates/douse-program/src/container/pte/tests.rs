use super::*;
use crate::container::MethodSummary;
use douse_core::DType;
use std::path::PathBuf;

fn formats(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/formats").join(name)
}

fn tensor(sizes: &[u64], dynamism: Dynamism) -> EValue {
    let order: Vec<u8> = (0..sizes.len() as u8).collect();
    EValue::Tensor(Box::new(Tensor::unplanned(DType::F32, sizes, &order, dynamism).unwrap()))
}

/// Two methods, dynamic sizes, other values, named data of both alignments.
fn sample() -> Writer<'static> {
    let mut writer = Writer::new();
    let forward = MethodSpec {
        name: "forward".into(),
        inputs: vec![tensor(&[8, 16], Dynamism::Bound), EValue::Int(3), EValue::Null],
        outputs: vec![tensor(&[8, 4], Dynamism::Bound), EValue::Bool(true)],
        compile_specs: vec![CompileSpec { key: "target".into(), value: b"cuda".to_vec().into() }],
    };
    writer.method(forward, &b"first payload"[..]).unwrap();
    let encode = MethodSpec {
        name: "encode".into(),
        inputs: vec![tensor(&[], Dynamism::Static), EValue::String("mean".into()), EValue::Double(0.5)],
        outputs: vec![tensor(&[2, 3, 4], Dynamism::Static)],
        compile_specs: vec![],
    };
    writer.method(encode, &b"second payload, a little longer"[..]).unwrap();
    writer.named_data("code".into(), &b"a kernel"[..], 16).unwrap();
    writer.named_data("weights".into(), vec![7; 1000], 256).unwrap();
    writer.named_data("empty".into(), &b""[..], 1).unwrap();
    writer
}

fn written(writer: Writer) -> Vec<u8> {
    let mut out = Vec::new();
    let size = writer.write(&mut out).unwrap();
    assert_eq!(size, out.len() as u64);
    out
}

#[test]
fn what_was_written_is_read() {
    let bytes = written(sample());
    let file = File::from_bytes(bytes).unwrap();
    let names: Vec<&str> = file.methods().map(|m| m.name()).collect();
    assert_eq!(names, ["forward", "encode"]);

    let forward = file.method("forward").unwrap();
    let inputs: Vec<&EValue> = forward.inputs().collect();
    assert_eq!(inputs, [&tensor(&[8, 16], Dynamism::Bound), &EValue::Int(3), &EValue::Null]);
    let outputs: Vec<&EValue> = forward.outputs().collect();
    assert_eq!(outputs, [&tensor(&[8, 4], Dynamism::Bound), &EValue::Bool(true)]);
    let delegates: Vec<Delegate> = forward.delegates().collect();
    assert_eq!(delegates.len(), 1);
    assert_eq!(delegates[0].id, BACKEND);
    assert_eq!(&**delegates[0].payload, b"first payload");
    assert_eq!(delegates[0].compile_specs[0].key, "target");
    assert_eq!(&*delegates[0].compile_specs[0].value, b"cuda");

    let encode = file.method("encode").unwrap();
    assert_eq!(&**encode.douse_payload().unwrap(), b"second payload, a little longer");
    let inputs: Vec<&EValue> = encode.inputs().collect();
    assert_eq!(inputs[1..], [&EValue::String("mean".into()), &EValue::Double(0.5)]);

    assert_eq!(&**file.named_data("weights").unwrap(), &[7; 1000]);
    assert_eq!(&**file.named_data("empty").unwrap(), b"");
    assert_eq!(file.named_keys().len(), 3);
    assert_eq!(file.named_data("missing").unwrap_err().code, Code::NotFound);
    assert_eq!(file.method("backward").unwrap_err().code, Code::InvalidArgument);
}

#[test]
fn the_same_input_gives_the_same_bytes() {
    assert_eq!(written(sample()), written(sample()));
}

#[test]
fn a_file_that_is_open_survives_its_replacement() {
    let path = std::env::temp_dir().join(format!("douse-pte-{}.pte", std::process::id()));
    let size = sample().save(&path).unwrap();
    assert_eq!(size, std::fs::metadata(&path).unwrap().len());
    let file = File::open(&path).unwrap();
    Writer::new().save(&path).unwrap();
    assert_eq!(&**file.named_data("weights").unwrap(), &[7; 1000]);
    assert_eq!(File::open(&path).unwrap().methods().len(), 0);
    std::fs::remove_file(&path).unwrap();
    let error = File::open(&path).unwrap_err();
    assert!(error.message.contains(path.to_str().unwrap()), "{error}");
}

/// ExecuTorch's runtime refuses a program whose constant segment has not at least the reserved entry.
#[test]
fn the_constant_segment_says_there_are_no_constants() {
    let file = File::from_bytes(written(sample())).unwrap();
    let expected = SubsegmentOffsets { segment_index: 0, offsets: vec![0] };
    assert_eq!(file.program().constant_segment, Some(expected));
}

#[test]
fn the_header_is_where_and_what_it_should_be() {
    let bytes = written(sample());
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    assert_eq!(&bytes[4..16], b"ET12eh00\x20\0\0\0");
    let (size, base, data) = (word(16), word(24), word(32));
    assert_eq!(base, size.next_multiple_of(128));
    assert_eq!(base % 256, 0, "weights are 256-byte aligned in the file");
    assert_eq!(base + data, bytes.len() as u64, "nothing is padded after the last segment");
    let file = File::from_bytes(bytes).unwrap();
    let segments = &file.program().segments;
    assert_eq!(segments[0].offset, 0);
    assert_eq!(segments[1].offset, 128);
    assert_eq!(segments[3].offset % 256, 0);
}

#[test]
fn header_fields_are_checked() {
    let good = written(sample());
    let with = |at: usize, value: u64| {
        let mut bytes = good.clone();
        bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        File::from_bytes(bytes).map(|_| ()).map_err(|e| (e.code, e.message))
    };
    let program_size = u64::from_le_bytes(good[16..24].try_into().unwrap());
    let base = u64::from_le_bytes(good[24..32].try_into().unwrap());
    for (at, value) in [
        (16, good.len() as u64 + 1),
        (16, u64::MAX),
        (16, 0),
        (16, 39),
        (24, program_size - 1),
        (24, u64::MAX),
        (24, 0),
        (24, base + 128),
        (32, u64::MAX),
        (32, 1),
        (32, good.len() as u64),
    ] {
        let (code, message) = with(at, value).unwrap_err();
        assert_eq!(code, Code::InvalidProgram, "{message}");
    }
    let mut short = good.clone();
    short[12] = 23;
    assert!(File::from_bytes(short).unwrap_err().message.contains("length is 23"));
}

/// The header of older writers has no size of the segments.
#[test]
fn an_older_header_is_read() {
    let mut bytes = written(sample());
    bytes[12] = 24;
    bytes[32..40].fill(0);
    let file = File::from_bytes(bytes).unwrap();
    assert_eq!(&**file.named_data("code").unwrap(), b"a kernel");
}

#[test]
fn other_files_are_named() {
    for (bytes, expected) in [
        (&b"PK\x03\x04........"[..], "zip"),
        (b"\0\0\0\0FT01....", ".ptd"),
        (b"\0\0\0\0ET13....", "its version is \"ET13\""),
        (b"\x7fELF", "only 4 bytes"),
        (b"", "only 0 bytes"),
    ] {
        let error = File::from_bytes(bytes.to_vec()).unwrap_err();
        assert_eq!(error.code, Code::InvalidProgram);
        let found = error.message.contains(expected) || expected.starts_with("only") && error.message.contains("ELF");
        assert!(found, "{}", error.message);
    }
}

#[test]
fn a_wrong_call_is_refused() {
    let mut writer = Writer::new();
    writer.method(MethodSpec { name: "forward".into(), ..Default::default() }, &b""[..]).unwrap();
    let again = writer.method(MethodSpec { name: "forward".into(), ..Default::default() }, &b""[..]);
    assert_eq!(again.unwrap_err().code, Code::InvalidArgument);
    assert_eq!(writer.named_data("x".into(), &b"x"[..], 3).unwrap_err().code, Code::InvalidArgument);
    writer.named_data("k".into(), &b""[..], 1).unwrap();
    assert_eq!(writer.named_data("k".into(), &b""[..], 1).unwrap_err().code, Code::InvalidArgument);
    let inputs = vec![EValue::IntList(vec![1])];
    writer.method(MethodSpec { name: "lists".into(), inputs, ..Default::default() }, &b""[..]).unwrap();
    let error = writer.write(&mut Vec::new()).unwrap_err();
    assert!(error.message.contains("\"lists\": values[0]: entry 1"), "{error}");
    assert!(Tensor::unplanned(DType::F32, &[2, 3], &[0, 0], Dynamism::Static).is_err());
    assert!(Tensor::unplanned(DType::F32, &[1 << 31], &[0], Dynamism::Static).is_err());
}

fn summary(name: &str) -> (Summary, MethodSummary) {
    let summary = File::open(&formats(name)).unwrap().summary();
    let [method] = &summary.methods[..] else { panic!("{summary:?}") };
    let method = method.clone();
    (summary, method)
}

#[test]
fn a_portable_program_of_executorch_opens() {
    let (_, add) = summary("add_portable.pte");
    assert_eq!(add.name, "forward");
    assert_eq!(add.inputs, ["Tensor float32 [8, 3] (bound)", "Tensor float32 [8, 3] (bound)"]);
    assert_eq!(add.outputs, ["Tensor float32 [8, 3] (bound)", "Tensor float32 [8] (bound)"]);
    assert_eq!(add.operators, ["aten::add.out", "aten::sum.IntList_out"]);
    assert_eq!((add.instructions, add.planned), (2, vec![288]));
}

/// One with constants in a segment: a weight of 3 x 4, a bias of 3 and a buffer.
#[test]
fn a_program_of_executorch_with_constants_opens() {
    let (net, forward) = summary("net_portable.pte");
    assert_eq!(net.constant_bytes, 72);
    assert_eq!(forward.operators.last().map(String::as_str), Some("aten::copy_"));
}

#[test]
fn a_delegated_program_of_executorch_opens() {
    let file = File::open(&formats("net_xnnpack.pte")).unwrap();
    let forward = file.method("forward").unwrap();
    let delegates: Vec<_> = forward.delegates().map(|d| (d.id, d.payload.len())).collect();
    assert_eq!(delegates, [("XnnpackBackend", 1088)]);
    assert!(forward.douse_payload().is_none());
    // XNNPACK, too, names what it stores after a hash of 32 bytes.
    assert_eq!(file.named_keys().map(str::len).collect::<Vec<_>>(), [64, 64]);
}

#[test]
fn an_external_program_of_executorch_opens() {
    let (net, _) = summary("net_external.pte");
    assert_eq!(net.external, ["l.bias", "l.weight"]);
}
