//! Reads every `.pt2` file below the given paths and says which cannot be read: `read_all FOLDER...`.

use douse_pt2::ExportedProgram;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut files = Vec::new();
    for path in std::env::args_os().skip(1) {
        find(Path::new(&path), &mut files);
    }
    files.sort();
    let (mut passed, mut failed, mut examples) = (0, 0, 0);
    for file in &files {
        match ExportedProgram::open(file) {
            Ok(program) => {
                passed += 1;
                examples += usize::from(program.example_inputs.is_some());
            }
            Err(error) => {
                failed += 1;
                println!("{error}");
            }
        }
    }
    println!("{examples} with example inputs");
    println!("{passed} passed, {failed} failed");
    if failed == 0 && passed > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn find(path: &Path, files: &mut Vec<PathBuf>) {
    let Ok(folder) = std::fs::read_dir(path) else {
        files.push(path.to_owned());
        return;
    };
    for entry in folder.flatten() {
        let path = entry.path();
        if path.is_dir() || path.extension().is_some_and(|extension| extension == "pt2") {
            find(&path, files);
        }
    }
}
