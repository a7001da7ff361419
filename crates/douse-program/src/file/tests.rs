use std::path::PathBuf;
use std::sync::Arc;

use douse_core::sym::Expr;

use super::*;
use crate::plan::{Buffer, SymbolSource};
use crate::sample;

/// A folder of the test's own, removed at its end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("douse-file-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const KEY: &str = "weights";
const WEIGHTS: [u8; 8] = [0, 0, 128, 63, 0, 0, 0, 64];

fn payload(name: &str, data_files: &[&str]) -> Payload {
    let mut plan = sample::plan();
    plan.name = name.into();
    plan.buffers.push(Buffer {
        dtype: DType::F32,
        elements: Expr::int(2),
        kind: BufferKind::Constant(Data::Named(KEY.into())),
    });
    Payload {
        targets: vec!["cpu".into()],
        data_files: data_files.iter().map(|s| s.to_string()).collect(),
        plan: plan.into(),
        cuda: vec![],
    }
}

fn find(key: &str) -> Option<Bytes> {
    (key == KEY).then(|| Bytes::from(WEIGHTS.to_vec()))
}

#[test]
fn methods_share_weights_and_survive_the_round_trip() {
    let folder = Folder::new("round");
    let path = folder.join("a.pte");
    let methods = [payload("forward", &[]), payload("decode", &[])];
    write(&path, &methods, &find).unwrap();
    let first = std::fs::read(&path).unwrap();
    write(&path, &methods, &find).unwrap();
    assert_eq!(first, std::fs::read(&path).unwrap());
    let file = ProgramFile::open(&path, &[]).unwrap();
    assert_eq!(file.methods(), methods);
    let weights = file.data(KEY).unwrap();
    assert_eq!(&*weights, WEIGHTS);
    assert!(weights.as_ptr().addr().is_multiple_of(WEIGHT_ALIGNMENT as usize));
    assert_eq!(file.container().named_keys().len(), 1);
    assert_eq!(file.data("other").unwrap_err().code, Code::NotFound);
}

#[test]
fn tools_see_bounded_and_unbounded_sizes() {
    let folder = Folder::new("spec");
    let path = folder.join("a.pte");
    let mut unbounded = payload("unbounded", &[]);
    Arc::make_mut(&mut unbounded.plan).symbols[0].max = None;
    write(&path, &[payload("forward", &[]), unbounded], &find).unwrap();
    let summary = pte::File::open(&path).unwrap().summary();
    assert_eq!(summary.methods[0].inputs, ["Tensor float32 [100] (bound)"]);
    assert_eq!(summary.methods[0].outputs, ["Tensor float32 [100] (bound)", "Int"]);
    assert_eq!(summary.methods[1].inputs, ["Tensor float32 [0] (unbound)"]);
}

#[test]
fn dim_order_follows_the_strides() {
    let exprs = |texts: &[&str]| texts.iter().map(|t| t.parse().unwrap()).collect::<Vec<Expr>>();
    let sizes = exprs(&["s0", "3", "s1", "s2"]);
    assert_eq!(dim_order(&sizes, &exprs(&["3*s1*s2", "s1*s2", "s2", "1"])), [0, 1, 2, 3]);
    assert_eq!(dim_order(&sizes, &exprs(&["3*s1*s2", "1", "3*s2", "3"])), [0, 2, 3, 1]);
}

#[test]
fn weights_beside_the_program() {
    let folder = Folder::new("beside");
    let path = folder.join("a.pte");
    let (_, weights) = write(&path, &[payload("forward", &["big"])], &find).unwrap();
    assert!(weights.is_some());
    assert_eq!(&*ProgramFile::open(&path, &[]).unwrap().data(KEY).unwrap(), WEIGHTS);
    let moved = folder.join("moved.ptd");
    std::fs::rename(folder.join("big.ptd"), &moved).unwrap();
    let error = ProgramFile::open(&path, &[]).unwrap().data(KEY).unwrap_err();
    assert!(error.code == Code::NotFound && error.message.contains("should be in big.ptd"), "{error}");
    assert!(ProgramFile::open(&path, &[&moved]).unwrap().data(KEY).is_ok());
    let error = ProgramFile::open(&path, &[&moved, &moved]).unwrap_err();
    assert!(error.code == Code::InvalidArgument && error.message.contains("two files define"), "{error}");
}

#[test]
fn faulty_plans_and_missing_data_are_not_written() {
    let folder = Folder::new("faulty");
    let path = folder.join("a.pte");
    std::fs::write(&path, "old").unwrap();
    let mut faulty = payload("forward", &[]);
    Arc::make_mut(&mut faulty.plan).symbols[0].source = SymbolSource::Int { input: 3 };
    assert_eq!(write(&path, &[faulty], &find).unwrap_err().code, Code::Internal);
    assert_eq!(write(&path, &[payload("forward", &[])], &|_| None).unwrap_err().code, Code::NotFound);
    assert_eq!(std::fs::read(&path).unwrap(), b"old");
}

#[test]
fn a_program_names_no_weights_elsewhere() {
    let folder = Folder::new("elsewhere");
    let path = folder.join("a.pte");
    std::fs::create_dir(folder.join("inner")).unwrap();
    for name in ["inner/big", "../big", "/tmp/big", ".."] {
        let mut program = pte::Writer::new();
        let payload = payload("forward", &[name]).encode().unwrap();
        program.method(pte::MethodSpec { name: "forward".into(), ..Default::default() }, payload).unwrap();
        program.save(&path).unwrap();
        let error = ProgramFile::open(&path, &[]).unwrap_err();
        assert!(error.code == Code::InvalidProgram && error.message.contains("no name for a file"), "{error}");
    }
}

#[test]
fn a_program_and_its_weights_are_replaced_together_or_not_at_all() {
    let folder = Folder::new("together");
    let path = folder.join("a.pte");
    std::fs::write(&path, "old").unwrap();
    std::fs::create_dir(folder.join("big.ptd")).unwrap();
    let error = write(&path, &[payload("forward", &["big"])], &find).unwrap_err();
    assert!(error.code == Code::AccessFailed && error.message.contains("big.ptd"), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), b"old");
    std::fs::remove_dir(folder.join("big.ptd")).unwrap();
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    assert!(write(&path, &[payload("forward", &["big"])], &find).is_err());
    assert!(!folder.join("big.ptd").exists());
}

#[test]
fn damaged_and_foreign_files_are_refused() {
    let folder = Folder::new("damaged");
    let path = folder.join("a.pte");
    write(&path, &[payload("forward", &[])], &find).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    for end in (0..bytes.len()).step_by(7) {
        std::fs::write(&path, &bytes[..end]).unwrap();
        assert!(ProgramFile::open(&path, &[]).is_err(), "cut at {end}");
    }
    let mut foreign = pte::Writer::new();
    foreign.method(pte::MethodSpec { name: "forward".into(), ..Default::default() }, b"payload".to_vec()).unwrap();
    foreign.save(&path).unwrap();
    let error = ProgramFile::open(&path, &[]).unwrap_err();
    assert!(error.message.contains("not one of Douse's"), "{error}");
}
