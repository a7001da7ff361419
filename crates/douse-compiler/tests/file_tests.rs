//! Runs the passes on small graphs: `tests/passes/*.txt` hold a line `pass NAME...`, a graph, `----`, and the graph that the passes
//! make of it. `BLESS=1 cargo test` writes what they make now.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::{Path, PathBuf};

use douse_compiler::passes::{Context, Evaluate, run_named};
use douse_core::Result;
use douse_core::bytes::Bytes;
use douse_core::sym::Expr;
use douse_ir::{Module, Value, verified};

/// Gives each value bytes of 1, so that a test sees what was asked for.
struct Ones;

impl Evaluate for Ones {
    fn evaluate(&self, module: &Module, values: &[Value]) -> Result<Vec<Bytes>> {
        let size = |value: &Value| {
            let info = module.graph.info(*value);
            Expr::product(&info.shape).as_int().unwrap() as usize * info.dtype.size()
        };
        Ok(values.iter().map(|v| Bytes::from(vec![1; size(v)])).collect())
    }
}

fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/passes");
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|e| e == "txt"));
    files.sort();
    files
}

/// The comment and the passes that a file begins with, its graph, and what is expected.
fn parts(text: &str) -> (&str, Vec<&str>, &str, &str) {
    let start = text.find("pass ").unwrap();
    let (line, rest) = text[start..].split_once('\n').unwrap();
    let (input, expected) = rest.split_once("----\n").unwrap_or((rest, ""));
    (&text[..start + line.len() + 1], line.split(' ').skip(1).collect(), input, expected)
}

fn transform(passes: &[&str], input: &str, limit: Option<u64>) -> Result<(Module, u64)> {
    let mut module: Module = input.parse()?;
    verified(&module, "the test's own graph")?;
    let mut context = Context { limit, drop_asserts: true, evaluator: Some(&Ones), ..Context::default() };
    for pass in passes {
        run_named(pass, &mut module, &mut context)?;
        verified(&module, pass)?;
    }
    Ok((module, context.count))
}

#[test]
fn graphs_become_what_is_expected() {
    let bless = std::env::var_os("BLESS").is_some();
    let mut wrong = Vec::new();
    let files = files();
    assert!(files.len() >= 20, "files are missing");
    for path in files {
        let text = std::fs::read_to_string(&path).unwrap();
        let (head, passes, input, expected) = parts(&text);
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let found = match transform(&passes, input, None) {
            Ok((module, _)) => module.to_string(),
            Err(error) => panic!("{name}: {error}"),
        };
        if bless {
            std::fs::write(&path, format!("{head}{input}----\n{found}")).unwrap();
        } else if found != expected {
            wrong.push(format!("{name}: expected\n{expected}\nfound\n{found}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// Every limit leaves a valid graph, none does more rewrites than it says, and none at all changes nothing.
#[test]
fn a_limit_stops_after_that_many_rewrites() {
    for path in files() {
        let text = std::fs::read_to_string(&path).unwrap();
        let (_, passes, input, _) = parts(&text);
        let (_, all) = transform(&passes, input, None).unwrap();
        for limit in 0..=all {
            let (module, count) = transform(&passes, input, Some(limit)).unwrap_or_else(|e| panic!("{path:?}: {e}"));
            assert_eq!(count, limit, "{path:?}");
            if limit == 0 {
                let untouched: Module = input.parse().unwrap();
                assert_eq!(module.graph.nodes.len(), untouched.graph.nodes.len(), "{path:?}");
            }
        }
    }
}

/// What the passes made is not made anew by a second run.
#[test]
fn passes_settle() {
    for path in files() {
        let text = std::fs::read_to_string(&path).unwrap();
        let (_, passes, input, _) = parts(&text);
        let (module, _) = transform(&passes, input, None).unwrap();
        let once = module.to_string();
        let (again, _) = transform(&passes, &once, None).unwrap();
        assert_eq!(again.to_string(), once, "{path:?}");
    }
}
