//! Archives made in the tests.

#![allow(dead_code, reason = "each test file uses some of these")]

use douse_pt2::ExportedProgram;
use std::io::{Cursor, Write};
use std::path::PathBuf;
use zip::CompressionMethod;
use zip::write::SimpleFileOptions;

/// A small program: `y = x.add(w, alpha=2.5)` with a weight `w` of two float32.
pub const PROGRAM: &str = r#"{
  "graph_module": {
    "graph": {
      "inputs": [{"as_tensor": {"name": "p_w"}}, {"as_tensor": {"name": "x"}}],
      "outputs": [{"as_tensor": {"name": "add"}}],
      "nodes": [{"target": "torch.ops.aten.add.Tensor", "name": "add", "metadata": {},
        "inputs": [{"name": "self", "arg": {"as_tensor": {"name": "x"}}, "kind": 1},
                   {"name": "other", "arg": {"as_tensor": {"name": "p_w"}}, "kind": 1},
                   {"name": "alpha", "arg": {"as_float": 2.5}, "kind": 2}],
        "outputs": [{"as_tensor": {"name": "add"}}]}],
      "tensor_values": {"p_w": META, "x": META, "add": META},
      "sym_int_values": {}, "sym_bool_values": {}
    },
    "signature": {
      "input_specs": [{"parameter": {"arg": {"name": "p_w"}, "parameter_name": "w"}},
                      {"user_input": {"arg": {"as_tensor": {"name": "x"}}}}],
      "output_specs": [{"user_output": {"arg": {"as_tensor": {"name": "add"}}}}]
    },
    "module_call_graph": []
  },
  "opset_version": {"aten": 10},
  "range_constraints": {},
  "schema_version": {"major": 8, "minor": 20},
  "torch_version": "2.15.0"
}"#;

/// Two contiguous float32.
pub const META: &str = r#"{"dtype": 7, "sizes": [{"as_int": 2}], "requires_grad": false, "device": {"type": "cpu"},
  "strides": [{"as_int": 1}], "storage_offset": {"as_int": 0}, "layout": 7}"#;

pub fn program() -> String {
    PROGRAM.replace("META", META)
}

/// A list of tensors: name, payload file, description.
pub fn config(tensors: &[(&str, &str, &str)]) -> String {
    let rows: Vec<String> = tensors
        .iter()
        .map(|(name, path, meta)| {
            format!(r#""{name}": {{"path_name": "{path}", "is_param": true, "tensor_meta": {meta}}}"#)
        })
        .collect();
    format!(r#"{{"config": {{{}}}}}"#, rows.join(", "))
}

pub fn zip(entries: &[(&str, &[u8])]) -> Vec<u8> {
    zip_as(entries, CompressionMethod::Stored)
}

pub fn zip_as(entries: &[(&str, &[u8])], method: CompressionMethod) -> Vec<u8> {
    let mut writer = zip::ZipWriter::new(Cursor::new(Vec::new()));
    for (name, bytes) in entries {
        writer.start_file(*name, SimpleFileOptions::default().compression_method(method)).unwrap();
        writer.write_all(bytes).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

/// The archive of `json`, with the weight `w`.
pub fn archive(json: &str) -> Vec<u8> {
    zip(&[
        ("m/archive_format", b"pt2"),
        ("m/archive_version", b"0"),
        ("m/byteorder", b"little"),
        ("m/models/model.json", json.as_bytes()),
        ("m/data/weights/model_weights_config.json", config(&[("w", "weight_0", META)]).as_bytes()),
        ("m/data/weights/weight_0", &[0, 0, 128, 63, 0, 0, 0, 64]),
        ("m/data/constants/model_constants_config.json", br#"{"config": {}}"#),
    ])
}

pub fn read(bytes: Vec<u8>) -> ExportedProgram {
    ExportedProgram::from_bytes(bytes.into()).unwrap()
}

/// The message with which the bytes are refused.
pub fn refusal(bytes: Vec<u8>) -> String {
    ExportedProgram::from_bytes(bytes.into()).unwrap_err().message
}

pub fn case(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/cases").join(format!("{name}.pt2"))
}

/// What `torch.save` writes: this pickle, and storages by key.
pub fn saved(pickle: &[u8], storages: &[(&str, &[u8])]) -> Vec<u8> {
    let names: Vec<String> = storages.iter().map(|(key, _)| format!("archive/data/{key}")).collect();
    let mut entries: Vec<(&str, &[u8])> = vec![("archive/data.pkl", pickle), ("archive/byteorder", b"little")];
    entries.extend(names.iter().zip(storages).map(|(name, (_, bytes))| (name.as_str(), *bytes)));
    zip(&entries)
}

fn text(text: &str) -> Vec<u8> {
    let mut bytes = vec![b'X'];
    bytes.extend((text.len() as u32).to_le_bytes());
    bytes.extend(text.as_bytes());
    bytes
}

/// The pickle instructions of a float32 tensor of two elements, in storage `key` from `offset`.
pub fn pickled_tensor(key: &str, storage_len: u8, offset: u8) -> Vec<u8> {
    let mut bytes = b"ctorch._utils\n_rebuild_tensor_v2\n((".to_vec();
    bytes.extend(text("storage"));
    bytes.extend(b"ctorch\nFloatStorage\n");
    bytes.extend(text(key));
    bytes.extend(text("cpu"));
    bytes.extend([b'K', storage_len, b't', b'Q', b'K', offset, b'K', 2, 0x85, b'K', 1, 0x85, 0x89]);
    bytes.extend(b"ccollections\nOrderedDict\n)RtR");
    bytes
}

/// The pickle of a dict of such values.
pub fn pickled_dict(items: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = b"\x80\x02}(".to_vec();
    for (key, value) in items {
        bytes.extend(text(key));
        bytes.extend(value);
    }
    bytes.extend(b"u.");
    bytes
}

/// An archive in the layout before PyTorch 2.8.
pub fn older(json: &str, state_dict: &[u8]) -> Vec<u8> {
    zip(&[
        ("serialized_exported_program.json", json.as_bytes()),
        ("serialized_state_dict.pt", state_dict),
        ("serialized_constants.pt", b""),
        ("serialized_example_inputs.pt", b""),
        ("version", b"8"),
    ])
}
