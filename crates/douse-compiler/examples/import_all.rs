//! Imports every `.pt2` below the paths given and says why those fail that do: `import_all PATH...`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use douse_compiler::import::{ImportError, import};
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
    std::env::args().skip(1).for_each(|a| collect(Path::new(&a), &mut files));
    let mut reasons: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in &files {
        let name = file.display().to_string();
        let result = ExportedProgram::open(file).map_err(ImportError::from).and_then(|p| import(&p, "forward"));
        match result {
            Ok(_) => {}
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
    println!("{} imported, {} not", files.len() - failed.len(), failed.len());
}
