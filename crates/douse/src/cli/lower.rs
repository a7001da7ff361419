//! `douse lower`.

use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use douse::{LowerOptions, lower_methods};

use super::device::{ProductArguments, check_targets};
use super::failure::{Done, Failure};
use super::{output, progress, show};

#[derive(Args)]
pub struct Lower {
    /// The exported program that becomes the method `forward`
    #[arg(required_unless_present = "method")]
    model: Option<PathBuf>,
    /// Where the program goes [default: MODEL.pte]
    #[arg(short, long)]
    output: Option<PathBuf>,
    /// What to lower for: cpu, an architecture of GPUs (sm_90), or ptx, for every GPU since sm_80 (may be repeated)
    #[arg(long, default_value = "cpu")]
    target: Vec<String>,
    /// Another method of the program (may be repeated)
    #[arg(long, value_name = "NAME=FILE.pt2")]
    method: Vec<String>,
    /// Put the weights into NAME.ptd beside the program
    #[arg(long, value_name = "NAME")]
    data: Option<String>,
    #[command(flatten)]
    products: ProductArguments,
    /// Remove the program's own checks, with the arithmetic that only feeds them
    #[arg(long)]
    drop_asserts: bool,
    /// Do not join operators into kernels
    #[arg(long)]
    unfused: bool,
}

impl Lower {
    pub fn run(self) -> Done {
        check_targets(&self.target)?;
        let mut methods: Vec<(&str, &Path)> = self.model.iter().map(|m| ("forward", m.as_path())).collect();
        for method in &self.method {
            let Some((name, file)) = method.split_once('=') else {
                return Err(Failure::Usage(format!("--method {method}: expected NAME=FILE.pt2")));
            };
            methods.push((name, Path::new(file)));
        }
        let output = match (&self.output, &self.model) {
            (Some(output), _) => output.clone(),
            (None, Some(model)) => model.with_extension("pte"),
            (None, None) => return Err(Failure::Usage("-o is needed when there is no MODEL".into())),
        };
        if output::is_stdout(&output) {
            return Err(Failure::Usage("-o -: a program goes to a file, give its name".into()));
        }
        let inputs: Vec<PathBuf> = methods.iter().map(|(_, path)| path.to_path_buf()).collect();
        output::keep(&output, &inputs)?;
        let options = LowerOptions {
            fuse: !self.unfused,
            drop_asserts: self.drop_asserts,
            targets: self.target.clone(),
            data_file: self.data.clone(),
            products: self.products.options(),
            ..LowerOptions::default()
        };
        let start = Instant::now();
        let names: Vec<String> = methods.iter().map(|(_, path)| path.display().to_string()).collect();
        let spinner = progress::spinner(format!("lowering {}", names.join(", ")));
        let lowered = lower_methods(&methods, &options)?;
        spinner.set_message(format!("writing {}", output.display()));
        let (program, weights) = lowered.save(&output)?;
        spinner.finish_and_clear();
        let seconds = start.elapsed().as_secs_f64();
        let beside = match (&self.data, weights) {
            (Some(name), Some(weights)) => format!("  and {name}.ptd  {}", show::bytes(weights)),
            _ => String::new(),
        };
        output::line(format_args!("{}  {}{beside}  in {seconds:.2} s", output.display(), show::bytes(program)))
    }
}
