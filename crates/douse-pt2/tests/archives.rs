//! Archives in all their forms, and what is refused with which words.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use common::*;
use douse_core::{Code, DType};
use douse_pt2::{Argument, ExportedProgram, InputSpec, Sym, model_names};
use zip::CompressionMethod;

#[test]
fn folder_layout() {
    let program = read(archive(&program()));
    assert_eq!(program.name, "model");
    assert_eq!(program.schema_version, (8, 20));
    let weight = &program.tensors["w"];
    assert_eq!((weight.dtype(), weight.sizes()), (DType::F32, &[2][..]));
    assert_eq!(weight.contiguous_bytes(), Some(&[0, 0, 128, 63, 0, 0, 0, 64][..]));
    let node = &program.graph.nodes[0];
    assert_eq!(node.input("alpha"), Some(&Argument::Float(2.5)));
    assert_eq!(program.user_inputs().count(), 1);
    assert!(program.example_inputs.is_none());
}

#[test]
fn weights_are_not_copied() {
    let bytes: std::sync::Arc<[u8]> = archive(&program()).into();
    let program = ExportedProgram::from_bytes(bytes.clone().into()).unwrap();
    assert!(bytes.as_ptr_range().contains(&program.tensors["w"].storage().bytes.as_ptr()));
    let bytes: std::sync::Arc<[u8]> = older_tied().into();
    let program = ExportedProgram::from_bytes(bytes.clone().into()).unwrap();
    assert!(bytes.as_ptr_range().contains(&program.tensors["w"].storage().bytes.as_ptr()));
}

fn older_tied() -> Vec<u8> {
    let tensors =
        [("w", pickled_tensor("0", 3, 1)), ("tied", pickled_tensor("0", 3, 0)), ("own", pickled_tensor("1", 2, 0))];
    older(&program(), &saved(&pickled_dict(&tensors), &[("0", &[9; 12]), ("1", &[8; 8])]))
}

#[test]
fn older_layout_keeps_ties_and_slices() {
    let program = read(older_tied());
    let [w, tied, own] = ["w", "tied", "own"].map(|name| &program.tensors[name]);
    assert_eq!(w.storage().id, tied.storage().id);
    assert_ne!(w.storage().id, own.storage().id);
    assert_eq!((w.storage_offset(), tied.storage_offset()), (1, 0));
    assert_eq!(own.contiguous_bytes(), Some(&[8; 8][..]));
}

#[test]
fn compressed_entries() {
    let json = program();
    let config = config(&[("w", "weight_0", META)]);
    let entries: [(&str, &[u8]); 3] = [
        ("models/model.json", json.as_bytes()),
        ("data/weights/model_weights_config.json", config.as_bytes()),
        ("data/weights/weight_0", &[7; 8]),
    ];
    let program = read(zip_as(&entries, CompressionMethod::Deflated));
    assert_eq!(program.tensors["w"].contiguous_bytes(), Some(&[7; 8][..]));
}

#[test]
fn one_payload_for_several_names() {
    let json = program();
    let row = META.replace(r#""storage_offset": {"as_int": 0}"#, r#""storage_offset": {"as_int": 2}"#);
    let config = config(&[("w", "weight_0", META), ("row", "weight_0", &row), ("other", "weight_1", META)]);
    let program = read(zip(&[
        ("m/models/model.json", json.as_bytes()),
        ("m/data/weights/model_weights_config.json", config.as_bytes()),
        ("m/data/weights/weight_0", &[1; 16]),
        ("m/data/weights/weight_1", &[1; 8]),
    ]));
    let id = |name: &str| program.tensors[name].storage().id;
    assert_eq!(id("w"), id("row"));
    assert_ne!(id("w"), id("other"));
}

#[test]
fn pickled_payload() {
    let json = program();
    let config = config(&[("w", "weight_0", META)]).replace(r#""is_param""#, r#""use_pickle": true, "is_param""#);
    let mut pickle = b"\x80\x02".to_vec();
    pickle.extend(pickled_tensor("0", 2, 0));
    pickle.push(b'.');
    let program = read(zip(&[
        ("m/models/model.json", json.as_bytes()),
        ("m/data/weights/model_weights_config.json", config.as_bytes()),
        ("m/data/weights/weight_0", &saved(&pickle, &[("0", &[5; 8])])),
    ]));
    assert_eq!(program.tensors["w"].contiguous_bytes(), Some(&[5; 8][..]));
}

#[test]
fn several_models() {
    let json = program();
    let config = config(&[("w", "weight_0", META)]);
    let bytes = zip(&[
        ("m/models/encode.json", json.as_bytes()),
        ("m/models/decode.json", json.as_bytes()),
        ("m/data/weights/encode_weights_config.json", config.as_bytes()),
        ("m/data/weights/decode_weights_config.json", config.as_bytes()),
        ("m/data/weights/weight_0", &[1; 8]),
    ]);
    let path = std::env::temp_dir().join(format!("douse-pt2-{}.pt2", std::process::id()));
    std::fs::write(&path, bytes).unwrap();
    assert_eq!(model_names(&path).unwrap(), ["encode", "decode"]);
    assert_eq!(ExportedProgram::open_model(&path, "decode").unwrap().name, "decode");
    let error = ExportedProgram::open(&path).unwrap_err();
    assert!(error.message.contains("name one of them: `encode`, `decode`"), "{error}");
    let error = ExportedProgram::open_model(&path, "other").unwrap_err();
    assert!(error.code == Code::NotFound && error.message.contains("no model `other`"), "{error}");
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn every_kind_of_argument() {
    let kinds: [(&str, Argument); 18] = [
        (r#"{"as_none": true}"#, Argument::None),
        (r#"{"as_float": "-Infinity"}"#, Argument::Float(f64::NEG_INFINITY)),
        (r#"{"as_float": 3}"#, Argument::Float(3.0)),
        (r#"{"as_floats": [0.1, "Infinity"]}"#, Argument::Floats(vec![0.1, f64::INFINITY])),
        (r#"{"as_int_lists": [[1], []]}"#, Argument::IntLists(vec![vec![1], vec![]])),
        (r#"{"as_nested_tensors": [[{"name": "a"}]]}"#, Argument::NestedTensors(vec![vec!["a".into()]])),
        (r#"{"as_optional_tensor": {"as_none": true}}"#, Argument::OptionalTensor(None)),
        (
            r#"{"as_optional_tensors": [{"as_tensor": {"name": "a"}}, {"as_none": true}]}"#,
            Argument::OptionalTensors(vec![Some("a".into()), None]),
        ),
        (
            r#"{"as_sym_ints": [{"as_int": -1}, {"as_name": "s"}]}"#,
            Argument::SymInts(vec![Sym::Value(-1), Sym::Name("s".into())]),
        ),
        (r#"{"as_sym_bool": {"as_bool": true}}"#, Argument::SymBool(Sym::Value(true))),
        (r#"{"as_sym_float": {"as_float": "Infinity"}}"#, Argument::SymFloat(Sym::Value(f64::INFINITY))),
        (r#"{"as_scalar_type": 13}"#, Argument::ScalarType(DType::BF16)),
        (r#"{"as_memory_format": 2}"#, Argument::MemoryFormat(douse_pt2::MemoryFormat::ChannelsLast)),
        (r#"{"as_layout": 7}"#, Argument::Layout(douse_pt2::Layout::Strided)),
        (
            r#"{"as_device": {"type": "cuda", "index": 1}}"#,
            Argument::Device(douse_pt2::Device { kind: "cuda".into(), index: Some(1) }),
        ),
        (
            r#"{"as_complex": {"real": 1.0, "imag": "-Infinity"}}"#,
            Argument::Complex(douse_pt2::Complex { real: 1.0, imag: f64::NEG_INFINITY }),
        ),
        (
            r#"{"as_custom_obj": {"name": "o", "class_fqn": "C"}}"#,
            Argument::CustomObj { name: "o".into(), class: "C".into() },
        ),
        (
            r#"{"as_string_to_argument": {"k": {"as_operator": "f"}}}"#,
            Argument::StringToArgument([("k".into(), Argument::Operator("f".into()))].into_iter().collect()),
        ),
    ];
    for (json, argument) in kinds {
        let program = read(archive(&program().replace(r#"{"as_float": 2.5}"#, json)));
        assert_eq!(program.graph.nodes[0].input("alpha"), Some(&argument), "{json}");
    }
}

#[test]
fn what_the_schema_adds_is_ignored_and_what_it_changes_is_refused() {
    let added = program().replace(r#""torch_version""#, r#""new_field": {"x": [1]}, "torch_version""#);
    assert_eq!(read(archive(&added.replace(r#""minor": 20"#, r#""minor": 99"#))).schema_version, (8, 99));
    let other = refusal(archive(&program().replace(r#""major": 8"#, r#""major": 9"#)));
    assert!(other.contains("version 9.20 of the export schema"), "{other}");
    // Also when the rest of the file has changed with it.
    let other = r#"{"schema_version": {"major": 7, "minor": 3}, "graph_module": []}"#;
    assert!(refusal(archive(other)).contains("version 7.3 of the export schema"));
}

#[test]
fn faults_name_their_place() {
    let faults = [
        (
            r#"{"as_float": 2.5}"#,
            r#"{"as_quaternion": 2.5}"#,
            "node `add` (torch.ops.aten.add.Tensor): argument `alpha`: unknown kind of argument, `as_quaternion`",
        ),
        (r#"{"as_float": 2.5}"#, r#"{"as_int": 1, "as_float": 2.5}"#, "two kinds"),
        (r#"{"as_float": 2.5}"#, r#"{"as_scalar_type": 33}"#, "argument `alpha`: unknown dtype number 33"),
        (r#""dtype": 7"#, r#""dtype": 0"#, "`: unknown dtype number 0"),
        (r#"{"user_input""#, r#"{"user_hint""#, "unknown kind of input specification, `user_hint`"),
        (r#"[{"user_output""#, r#"[{"output""#, "unknown kind of output specification, `output`"),
        (r#""parameter_name": "w""#, r#""parameter_name": "v""#, "does not hold the weights `v`"),
        (
            r#""outputs": [{"as_tensor": {"name": "add"}}],"#,
            r#""outputs": [],"#,
            "0 outputs and its signature describes 1",
        ),
        (
            r#"{"as_int": 2}"#,
            r#"{"as_int": 3}"#,
            "the file holds `w` as float32 of sizes [2] where the graph says float32 of sizes [3]",
        ),
        (r#"{"as_int": 2}"#, r#"{"as_expr": {"expr_str": "Add("}}"#, "`: cannot read the symbolic expression `Add(`"),
    ];
    for (from, to, words) in faults {
        let json = program();
        assert!(json.contains(from), "{from}");
        let message = refusal(archive(&json.replace(from, to)));
        assert!(message.contains(words), "{to}: {message}");
        assert!(!message.contains('\n'), "{message}");
    }
}

#[test]
fn a_fault_in_a_subgraph_names_both_nodes() {
    let graph = r#"{"inputs": [], "outputs": [], "tensor_values": {}, "sym_int_values": {}, "sym_bool_values": {},
        "nodes": [{"target": "inner", "name": "deep", "inputs": [{"name": "a", "arg": {"as_x": 1}}], "outputs": []}]}"#;
    let argument = format!(r#"{{"as_graph": {{"name": "g", "graph": {graph}}}}}"#);
    let message = refusal(archive(&program().replace(r#"{"as_float": 2.5}"#, &argument)));
    assert!(
        message.contains("node `add` (torch.ops.aten.add.Tensor): argument `alpha`: node `deep` (inner)"),
        "{message}"
    );
}

#[test]
fn tensors_must_lie_in_their_payloads() {
    let json = program();
    let with = |config: &str, weight: &[u8]| {
        refusal(zip(&[
            ("m/models/model.json", json.as_bytes()),
            ("m/data/weights/model_weights_config.json", config.as_bytes()),
            ("m/data/weights/weight_0", weight),
        ]))
    };
    let config = config(&[("w", "weight_0", META)]);
    assert!(with(&config, &[0; 7]).contains("w: a float32 tensor of sizes [2]"));
    assert!(with(&config, b"").contains("w: the file describes the tensor and holds no values for it"));
    assert!(with(&config.replace("weight_0", "weight_9"), &[0; 8]).contains("in `weight_9`, which the archive lacks"));
    assert!(with(&config.replace(r#""as_int": 1"#, r#""as_int": -1"#), &[0; 8]).contains("stride or offset -1"));
    assert!(with(&config.replace(r#""layout": 7"#, r#""layout": 1"#), &[0; 8]).contains("SparseCoo"));
    let huge = config.replace(r#""as_int": 2"#, r#""as_int": 9223372036854775807"#);
    assert!(with(&huge, &[0; 8]).contains("reaches beyond the 8 bytes"));
}

#[test]
fn pickles_that_need_python_are_refused_by_name() {
    let json = program();
    let message = refusal(older(&json, &saved(b"\x80\x02cposix\nsystem\n.", &[])));
    assert!(message.contains("serialized_state_dict.pt: the pickle needs `posix.system`"), "{message}");
    let message = refusal(older(&json, &saved(&pickled_dict(&[("w", b"K\x05".to_vec())]), &[])));
    assert!(message.contains("`w` is no tensor but a number"), "{message}");
    let short = saved(&pickled_dict(&[("w", pickled_tensor("0", 4, 0))]), &[("0", &[0; 8])]);
    assert!(refusal(older(&json, &short)).contains("has 8 bytes where the pickle says 16"));
    let big = zip(&[("archive/data.pkl", b"\x80\x02}."), ("archive/byteorder", b"big")]);
    assert!(refusal(older(&json, &big)).contains("big-endian"));
}

#[test]
fn pickles_that_grow_without_end_are_refused() {
    // A list that holds itself, and a list of two of a list of two of ... a hundred deep.
    let own = saved(b"\x80\x02]q\0h\0a.", &[]);
    assert!(refusal(older(&program(), &own)).contains("nests deeper"));
    let mut pickle = b"\x80\x02]q\0".to_vec();
    for _ in 0..90 {
        pickle.extend(b"0](h\0h\0eq\0");
    }
    pickle.push(b'.');
    assert!(refusal(older(&program(), &saved(&pickle, &[]))).contains("repeats itself"));
}

#[test]
fn other_files_are_refused_by_what_they_are() {
    let entry = |name| refusal(zip(&[(name, b"x")]));
    assert!(entry("m/data/aotinductor/model/a.so").contains("AOTInductor"));
    assert!(entry("m/constants.pkl").contains("TorchScript"));
    assert!(entry("archive/data.pkl").contains("torch.save"));
    assert!(entry("other").contains("holds no exported program"));
    assert!(refusal(zip(&[("m/archive_format", b"pt2"), ("m/byteorder", b"big")])).contains("byteorder is `big`"));
    assert!(refusal(zip(&[("m/archive_format", b"pt9")])).contains("archive_format is `pt9`"));
    assert!(refusal(Vec::new()).contains("empty"));
    let folder = ExportedProgram::open(&std::env::temp_dir()).unwrap_err();
    assert!(folder.message.contains("directory"), "{folder}");
    let missing = ExportedProgram::open(&std::env::temp_dir().join("no such file.pt2")).unwrap_err();
    assert_eq!(missing.code, Code::AccessFailed);
}

#[test]
fn truncated_archives_are_said_to_be() {
    // The older layout holds whole archives, whose directories a reader may find instead of the one that is gone.
    for bytes in [archive(&program()), older_tied()] {
        for len in 30..bytes.len() {
            let message = refusal(bytes[..len].to_vec());
            assert!(message.contains("truncated"), "{len} of {}: {message}", bytes.len());
        }
    }
}

#[test]
fn a_long_directory_entry_is_not_skipped() {
    // 46 bytes and a name of 30 are as long as the zip64 records.
    let json = program();
    let name = "m/data/weights/weight_00000000";
    assert_eq!(name.len(), 30);
    let config = config(&[("w", "weight_00000000", META)]);
    let mut bytes = zip(&[
        (name, &[1; 8]),
        ("m/models/model.json", json.as_bytes()),
        ("m/data/weights/model_weights_config.json", config.as_bytes()),
    ]);
    // The zip64 records that PyTorch always writes: the end of the directory, and where that stands.
    let end = bytes.len() - 22;
    let mut records = b"PK\x06\x06".to_vec();
    records.extend(44u64.to_le_bytes());
    records.extend([45, 0, 45, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    records.extend([3u64.to_le_bytes(), 3u64.to_le_bytes()].concat());
    let number = |at: usize| u64::from(u32::from_le_bytes(bytes[end + at..end + at + 4].try_into().unwrap()));
    records.extend([number(12).to_le_bytes(), number(16).to_le_bytes()].concat());
    records.extend(b"PK\x06\x07\0\0\0\0");
    records.extend((end as u64).to_le_bytes());
    records.extend([1, 0, 0, 0]);
    assert_eq!(records.len(), 76);
    bytes.splice(end..end, records);
    assert!(matches!(read(bytes).input_specs[0], InputSpec::Parameter { .. }));
}

#[test]
fn checksums_of_the_program_are_verified() {
    let mut bytes = archive(&program());
    let at = bytes.windows(5).position(|window| window == b": 2.5").unwrap();
    bytes[at + 2] = b'3';
    assert!(refusal(bytes).contains("m/models/model.json: the zip archive is truncated or damaged"));
}
