//! Writes the CUDA C++ of every `.pt2` below the paths given, for an architecture, into a folder, a file a module: `emit_all ARCH FOLDER PATH...`. What
//! differs where float32 may be rounded to TF32 follows.
//! Says why those fail that do.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use douse_compiler::emit::emit;
use douse_compiler::import::ImportError;
use douse_compiler::{Options, lower};
use douse_core::Result;
use douse_program::target::ProductOptions;
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

/// The modules of a file's program; `None` for what cannot be lowered for any target.
fn modules(file: &Path, arch: &str) -> Result<Option<Vec<String>>> {
    let program = ExportedProgram::open(file)?;
    match lower(&program, "forward", &Options::default()) {
        Ok(lowered) => {
            let mut modules = emit(&lowered.plan, arch, ProductOptions::default())?.modules;
            let rounded =
                emit(&lowered.plan, arch, ProductOptions { tf32: true, ..ProductOptions::default() })?.modules;
            let others = rounded.into_iter().filter(|text| !modules.contains(text)).collect::<Vec<_>>();
            modules.extend(others);
            Ok(Some(modules))
        }
        Err(ImportError::Unsupported(_)) => Ok(None),
        Err(ImportError::Fault(error)) => Err(error),
    }
}

fn main() -> std::io::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [arch, folder, paths @ ..] = args.as_slice() else {
        println!("emit_all ARCH FOLDER PATH...");
        return Ok(());
    };
    std::fs::create_dir_all(folder)?;
    let mut files = Vec::new();
    paths.iter().for_each(|path| collect(Path::new(path), &mut files));
    let mut reasons: BTreeMap<String, Vec<&PathBuf>> = BTreeMap::new();
    let (mut emitted, mut not_lowered) = (0, 0);
    for file in &files {
        match modules(file, arch) {
            Ok(Some(texts)) => {
                emitted += 1;
                let name = file.with_extension("").display().to_string().replace(['/', '\\'], "_");
                for (i, text) in texts.iter().enumerate() {
                    std::fs::write(Path::new(folder).join(format!("{name}.{i}.cu")), text)?;
                }
            }
            Ok(None) => not_lowered += 1,
            Err(error) => reasons.entry(error.to_string()).or_default().push(file),
        }
    }
    for (reason, files) in &reasons {
        println!("{:5}  {reason}  [{}]", files.len(), files.first().map_or(String::new(), |f| f.display().to_string()));
    }
    println!("{emitted} emitted, {not_lowered} not lowered, {} refused", files.len() - emitted - not_lowered);
    Ok(())
}
