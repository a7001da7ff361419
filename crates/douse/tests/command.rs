//! The command line: exit codes and messages.
// Helpers outside of tests, too, fail the test by panicking.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs `douse`; returns exit code, standard output and standard error.
fn douse(arguments: &[&str]) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_douse")).args(arguments).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

/// A folder of the test's own, removed at its end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("douse-command-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn file(&self, name: &str, bytes: &[u8]) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_wrong_command_line_is_2() {
    for arguments in [
        &["frobnicate"][..],
        &["run"],
        &["run", "x.pte", "--device", "tpu"],
        &["run", "x.pte", "--device", "cpu:1"],
        &["run", "x.pte", "--cuda-graph"],
        &["run", "x.pte", "--output", "x.txt"],
        &["run", "x.pte", "--calls", "0"],
        &["run", "x.pte", "--threads", "100000"],
        &["lower", "x.pt2", "-o", "-"],
        &["merge", "a.pte", "b.pte", "-o", "-"],
        &["lower", "x.pt2", "--target", "riscv"],
        &["lower", "x.pt2", "--method", "nameless.pt2"],
        &["lower"],
        &["verify"],
        &["merge", "a.pte", "-o", "c.pte"],
    ] {
        let (code, _, error) = douse(arguments);
        assert_eq!(code, 2, "{arguments:?}: {error}");
        assert!(error.contains("--help"), "{arguments:?}: {error}");
    }
}

#[test]
fn what_is_not_there_yet_says_so() {
    let (code, _, error) = douse(&["run", "x.pte", "--device", "cuda:0"]);
    // There is no driver, or no such program.
    assert!(code == 1 && (error.contains("the CUDA driver is not there") || error.contains("x.pte")), "{error}");
    let (code, _, error) = douse(&["lower", "x.pt2", "--target", "sm_90"]);
    // There is no NVRTC, or no such program.
    assert!(code == 1 && (error.contains("NVRTC is not there") || error.contains("x.pt2")), "{error}");
    assert_eq!(douse(&["devices"]).0, 0);
}

#[test]
fn files_that_are_something_else_are_named() {
    let folder = Folder::new("foreign");
    let files = [
        (folder.file("a.pte", b"\0\0\0\0ET12 and then nothing"), "a.pte"),
        (folder.file("empty.pt2", b""), "empty.pt2"),
        (folder.file("photo.pt2", b"\x89PNG\r\n\x1a\n and so on"), "photo.pt2"),
        (folder.file("w.ptd", b"\0\0\0\0FT01 and then nothing"), "w.ptd"),
        ("/nowhere/model.pt2".to_owned(), "/nowhere/model.pt2"),
    ];
    for (path, name) in &files {
        for command in ["run", "bench", "inspect", "explain"] {
            let (code, output, error) = douse(&[command, path]);
            assert_eq!(code, 1, "{command} {path}: {output} {error}");
            assert!(error.starts_with("error: ") && error.contains(name), "{command} {path}: {error}");
        }
    }
    let (code, _, error) = douse(&["lower", &files[2].0]);
    assert!(code == 1 && error.contains("photo.pt2"), "{error}");
    assert!(!Path::new(&files[2].0).with_extension("pte").exists());
}

#[test]
fn names_of_weights_are_checked_before_anything_is_read() {
    let (code, _, error) = douse(&["lower", "/nowhere/model.pt2", "--data", "a/b"]);
    assert!(code == 1 && error.contains("no name for a file of weights"), "{error}");
}

#[test]
fn verify_without_cases_and_with_damaged_ones() {
    let folder = Folder::new("cases");
    let path = folder.0.to_str().unwrap().to_owned();
    assert_eq!(douse(&["verify", &path]).0, 2);
    folder.file("bad.case.json", b"{");
    folder.file("alone.case.json", b"{\"calls\": []}");
    let (code, output, _) = douse(&["verify", &path]);
    assert_eq!(code, 1);
    assert!(output.contains("refused bad: a case that cannot be read"), "{output}");
    assert!(output.contains("refused alone: ") && output.ends_with("\n0 passed, 2 failed\n"), "{output}");
    let (_, json, summary) = douse(&["verify", &path, "--json", "-"]);
    let report: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&report["failed"], &report["cases"][1]["result"]), (&2.into(), &"refused".into()));
    assert!(summary.ends_with("0 passed, 2 failed\n"));
}

#[test]
fn from_an_exported_program_to_its_answer_and_back() {
    let folder = Folder::new("whole");
    let path = |name: &str| folder.0.join(name).to_str().unwrap().to_owned();

    // Through a file, twice the same bytes; the file runs as the exported program does.
    let (exported, first, second) = (case("tied.pt2"), path("a.pte"), path("b.pte"));
    for program in [&first, &second] {
        let (code, _, error) = douse(&["lower", &exported, "-o", program]);
        assert_eq!(code, 0, "{error}");
    }
    assert_eq!(std::fs::read(&first).unwrap(), std::fs::read(&second).unwrap());
    for option in [&["--tf32"][..], &["--products", "cublaslt"]] {
        let (code, _, error) = douse(&[&["run", &first], option].concat());
        assert!(code == 2 && error.contains("lowered already"), "{option:?}: {error}");
    }
    let header = "{'descr': '<i8', 'fortran_order': False, 'shape': (2, 3), }";
    let mut tokens = [b"\x93NUMPY\x01\0", &(header.len() as u16).to_le_bytes()[..], header.as_bytes()].concat();
    tokens.extend([3i64, 1, 4, 1, 5, 9].iter().flat_map(|token| token.to_le_bytes()));
    let tokens = folder.file("tokens.npy", &tokens);
    let run = |program: &str, more: &[&str]| {
        douse(&[&["run", program, "--calls", "2", "--input", tokens.as_str()], more].concat())
    };
    let runs = [&exported, &first].map(|program| run(program, &[]));
    assert_eq!(runs[0], runs[1]);
    assert!(runs[0].0 == 0 && runs[0].1.contains("output 0"), "{runs:?}");

    // Weights beside the program, and what happens without them.
    let beside = path("c.pte");
    assert_eq!(douse(&["lower", &exported, "-o", &beside, "--data", "weights"]).0, 0);
    assert_eq!(run(&beside, &[]).1, runs[0].1);
    std::fs::remove_file(folder.0.join("weights.ptd")).unwrap();
    let (code, _, error) = douse(&["run", &beside]);
    assert!(code == 1 && error.contains("weights.ptd"), "{error}");

    // Two methods over one set of weights, then joined with a third.
    let (two, joined) = (path("two.pte"), path("joined.pte"));
    let method = format!("again={exported}");
    assert_eq!(douse(&["lower", &exported, "-o", &two, "--method", &method]).0, 0);
    assert!(std::fs::metadata(&two).unwrap().len() < 2 * std::fs::metadata(&first).unwrap().len());
    assert_eq!(douse(&["merge", &first, &two, "-o", &joined]).0, 0);
    let (code, text, _) = douse(&["inspect", &joined]);
    assert!(code == 0 && text.contains("forward") && text.contains("again"), "{text}");
    assert_eq!(run(&joined, &["--method", "again"]).1, runs[0].1);
    let (code, text, _) = douse(&["explain", &joined]);
    assert!(code == 0 && text.contains("kernel launches"), "{text}");
    let (code, text, _) = douse(&["bench", &first, "--calls", "2", "--json", "-"]);
    let figures: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert!(code == 0 && figures["median"].as_f64().unwrap() > 0.0, "{text}");

    // A full disk leaves what was there; a wrong input is named.
    #[cfg(target_os = "linux")]
    {
        let (code, _, error) = douse(&["lower", &exported, "-o", "/dev/full"]);
        assert!(code == 1 && error.contains("/dev/full"), "{error}");
    }
    let (code, _, error) = douse(&["run", &first, "--input", "3"]);
    assert!(code != 0 && error.contains("input"), "{error}");
}

/// A recorded answer that is not what the program computes: the finder runs, and says that fusion is not at fault.
#[test]
fn first_difference_of_a_doctored_case() {
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/cases");
    let folder = Folder::new("doctored");
    for ending in ["pt2", "case.json"] {
        let bytes = std::fs::read(cases.join(format!("row_softmax.{ending}"))).unwrap();
        folder.file(&format!("row_softmax.{ending}"), &bytes);
    }
    let mut tensors = std::fs::read(cases.join("row_softmax.safetensors")).unwrap();
    let header = 8 + u64::from_le_bytes(tensors[..8].try_into().unwrap()) as usize;
    let entries: serde_json::Value = serde_json::from_slice(&tensors[8..header]).unwrap();
    let start = header + entries["c0.o0"]["data_offsets"][0].as_u64().unwrap() as usize;
    tensors[start..start + 4].copy_from_slice(&2f32.to_le_bytes());
    folder.file("row_softmax.safetensors", &tensors);
    let path = folder.0.to_str().unwrap().to_owned();
    for (more, expected) in [(None, false), (Some("--first-difference"), true)] {
        let arguments: Vec<&str> = ["verify", &path].into_iter().chain(more).collect();
        let (code, output, error) = douse(&arguments);
        assert_eq!(code, 1, "{output} {error}");
        assert!(output.contains("wrong row_softmax: "), "{output}");
        assert!(output.ends_with("\n0 passed, 1 failed\n"), "{output}");
        assert_eq!(output.contains("fused and unfused agree at every node"), expected, "{output}");
    }
}

fn case(name: &str) -> String {
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/cases");
    cases.join(name).to_str().unwrap().to_owned()
}

#[test]
fn nothing_is_written_over_what_is_read() {
    let folder = Folder::new("over");
    let bytes = std::fs::read(case("tied.pt2")).unwrap();
    let model = folder.file("m.pt2", &bytes);
    let other = format!("other={}", case("tied.pt2"));
    for arguments in [
        &["lower", &model, "-o", &model][..],
        &["lower", "--method", &other, "-o", &case("tied.pt2")],
        &["bench", &model, "--json", &model],
        &["inspect", &model, "--json", &model],
    ] {
        let (code, _, error) = douse(arguments);
        assert!(code == 2 && error.contains("would be written over"), "{arguments:?}: {error}");
    }
    assert_eq!(std::fs::read(&model).unwrap(), bytes);
}

#[test]
fn numbers_below_zero_are_inputs() {
    let (code, _, error) = douse(&["run", &case("tied.pt2"), "--input", "-3"]);
    assert!(code == 1 && error.contains("is the int -3, expected an int64 tensor"), "{error}");
}

#[cfg(target_os = "linux")]
#[test]
fn an_output_that_is_full_or_closed_ends_the_command() {
    let run = |arguments: &[&str], output: std::process::Stdio| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_douse"));
        let child = command.args(arguments).stdout(output).stderr(std::process::Stdio::piped()).spawn().unwrap();
        let done = child.wait_with_output().unwrap();
        (done.status.code().unwrap(), String::from_utf8(done.stderr).unwrap())
    };
    let model = case("tied.pt2");
    for arguments in [&["explain", &model][..], &["inspect", &model], &["inspect", &model, "--json", "-"], &["devices"]]
    {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let (code, error) = run(arguments, full.into());
        assert!(code == 1 && error.starts_with("error: cannot write to standard output"), "{arguments:?}: {error}");
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        assert_eq!(run(arguments, writer.into()), (0, String::new()), "{arguments:?}");
    }
    // An error that cannot be said is one all the same.
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let status = Command::new(env!("CARGO_BIN_EXE_douse")).args(["run", "missing.pte"]).stderr(full).status();
    assert_eq!(status.unwrap().code(), Some(1));
}
