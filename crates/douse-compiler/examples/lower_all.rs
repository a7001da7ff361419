//! Lowers every `.pt2` below the paths given, checks the plans, and says why those fail that do: `lower_all PATH...`. With `--print` the plans
//! are printed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use douse_compiler::import::ImportError;
use douse_compiler::{Options, lower};
use douse_pt2::ExportedProgram;

fn collect(path: &Path, found: &mut Vec<PathBuf>) {
    if path.is_dir() {
        let mut entries: Vec<_> = std::fs::read_dir(path).into_iter().flatten().flatten().map(|e| e.path()).collect();
        entries.sort();
        entries.iter().for_each(|e| collect(e, found));
    } else if path.extension().is_some_and(|e| e == "pt2") {
        found.push(path.to_path_buf());
    }
}

fn main() {
    let mut files = Vec::new();
    let args: Vec<String> = std::env::args().skip(1).collect();
    let print = args.iter().any(|a| a == "--print");
    let options = Options { fuse: !args.iter().any(|a| a == "--unfused"), ..Options::default() };
    args.iter().filter(|a| !a.starts_with("--")).for_each(|a| collect(Path::new(a), &mut files));
    let mut reasons: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in &files {
        let name = file.display().to_string();
        let result = ExportedProgram::open(file).map_err(ImportError::from).and_then(|program| {
            let lowered = lower(&program, "forward", &options)?;
            if print {
                println!("{}", lowered.plan);
            }
            douse_program::check::check(&lowered.plan)?;
            Ok(())
        });
        match result {
            Ok(()) => {}
            Err(ImportError::Unsupported(all)) => {
                all.into_iter().for_each(|u| reasons.entry(u.what).or_default().push(name.clone()));
            }
            Err(ImportError::Fault(error)) => reasons.entry(format!("FAULT {error}")).or_default().push(name),
        }
    }
    let mut failed: Vec<&String> = reasons.values().flatten().collect();
    failed.sort();
    failed.dedup();
    let mut sorted: Vec<_> = reasons.iter().collect();
    sorted.sort_by_key(|(_, files)| std::cmp::Reverse(files.len()));
    for (reason, files) in sorted {
        println!("{:5}  {reason}  [{}]", files.len(), files.first().map_or("", |f| f));
    }
    println!("{} lowered, {} not", files.len() - failed.len(), failed.len());
}
