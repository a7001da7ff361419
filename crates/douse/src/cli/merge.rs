//! `douse merge`.

use std::path::PathBuf;

use clap::Args;
use douse_program::file::{ProgramFile, write};
use douse_program::payload::Payload;

use super::failure::{Done, Failure};
use super::{output, show};

#[derive(Args)]
pub struct Merge {
    /// The programs to join
    #[arg(required = true, num_args = 2..)]
    programs: Vec<PathBuf>,
    /// Where the joined program goes
    #[arg(short, long)]
    output: PathBuf,
}

/// Adds the targets that a method has not yet.
fn join(present: &mut Payload, other: &Payload) {
    for target in &other.targets {
        if !present.targets.contains(target) {
            present.targets.push(target.clone());
        }
    }
    for code in &other.cuda {
        if present.cuda.iter().all(|known| known.arch != code.arch) {
            present.cuda.push(code.clone());
        }
    }
}

impl Merge {
    pub fn run(self) -> Done {
        if output::is_stdout(&self.output) {
            return Err(Failure::Usage("-o -: a program goes to a file, give its name".into()));
        }
        let files = self.programs.iter().map(|path| ProgramFile::open(path, &[])).collect::<douse::Result<Vec<_>>>()?;
        let mut methods: Vec<Payload> = Vec::new();
        let mut conflicts = Vec::new();
        for (file, path) in files.iter().zip(&self.programs) {
            for method in file.methods() {
                let name = &method.plan.name;
                match methods.iter_mut().find(|m| m.plan.name == *name) {
                    // The same method twice is no conflict: it is kept once.
                    Some(present) if present == method => {}
                    Some(present) if present.plan == method.plan && present.data_files == method.data_files => {
                        join(present, method);
                    }
                    Some(_) => {
                        let targets = method.targets.join(", ");
                        conflicts.push(format!(
                            "method {name:?} of {} is another one than before, for {targets}: lower it under a name of its own \
                             (--method NAME=FILE.pt2)",
                            path.display()
                        ));
                    }
                    None => methods.push(method.clone()),
                }
            }
        }
        let data_files: std::collections::BTreeSet<Vec<String>> =
            methods.iter().map(|m| m.data_files.clone()).collect();
        if data_files.len() > 1 {
            let list: Vec<String> = data_files
                .iter()
                .map(|names| if names.is_empty() { "the program itself".to_owned() } else { names.join(", ") })
                .collect();
            conflicts.push(format!("the weights are in different places: {}", list.join("; ")));
        }
        if !conflicts.is_empty() {
            return Err(Failure::No(format!("the programs do not go together:\n  {}", conflicts.join("\n  "))));
        }
        let find = |key: &str| files.iter().find_map(|file| file.data(key).ok());
        let (size, _) = write(&self.output, &methods, &find)?;
        let names: Vec<&str> = methods.iter().map(|m| m.plan.name.as_str()).collect();
        output::line(format_args!("{}  {}  methods {}", self.output.display(), show::bytes(size), names.join(", ")))
    }
}
