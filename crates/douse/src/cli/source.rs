//! The programs that commands take: a `.pte`, or a `.pt2` that is lowered in memory.

use std::path::Path;

use douse::{LowerOptions, ProductOptions, Program, Result, lower_exported};
use douse_core::bytes::Bytes;
use douse_pt2::{ConstantValue, ExampleInput, ExportedProgram, TensorData};

use super::failure::{Done, Failure};
use super::progress;

/// A program, and the inputs it was exported with, where the file has them.
pub struct Source {
    pub program: Program,
    pub examples: Option<Vec<ExampleInput>>,
}

/// What a file is, by its first bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Program,
    Weights,
    /// An exported program, or something that is none: its reader tells.
    Exported,
}

pub fn kind(path: &Path) -> Result<Kind> {
    Ok(match Bytes::open(path)?.get(4..6) {
        Some(b"ET") => Kind::Program,
        Some(b"FT") => Kind::Weights,
        _ => Kind::Exported,
    })
}

impl Source {
    /// Opens a program file, or lowers an exported program.
    pub fn open(path: &Path, options: &LowerOptions) -> Done<Source> {
        match kind(path)? {
            Kind::Program if options.products != ProductOptions::default() => Err(Failure::Usage(format!(
                "--products and --tf32 say how a program is lowered, and {} was lowered already: give them to lower",
                path.display()
            ))),
            Kind::Program => Ok(Source { program: Program::open(path)?, examples: None }),
            Kind::Weights => {
                Err(Failure::No(format!("{}: weights (.ptd); give the program they belong to", path.display())))
            }
            Kind::Exported => {
                let spinner = progress::spinner(format!("lowering {}", path.display()));
                let exported = ExportedProgram::open(path)?;
                let lowered = lower_exported(&exported, "forward", options)
                    .map_err(|refused| Failure::No(format!("{}: {refused}", path.display())))?;
                spinner.finish_and_clear();
                Ok(Source { program: lowered.into_program()?, examples: exported.example_inputs })
            }
        }
    }

    /// The method asked for, or the only one, or `forward`.
    pub fn method_name(&self, asked: Option<&str>) -> Done<String> {
        let names: Vec<&str> = self.program.method_names().collect();
        let name = match (asked, names.as_slice()) {
            (Some(name), _) => name,
            (None, [only]) => only,
            (None, names) if names.contains(&"forward") => "forward",
            (None, names) => {
                return Err(Failure::Usage(format!("there are several methods, name one: {}", names.join(", "))));
            }
        };
        Ok(name.to_owned())
    }
}

/// An example input as a value of the library.
pub fn example_value(example: &ExampleInput) -> Result<douse::Value> {
    use douse::Value;
    Ok(match example {
        ExampleInput::Tensor(data) => Value::Tensor(host_tensor(data)?),
        ExampleInput::Value(ConstantValue::None) => Value::None,
        ExampleInput::Value(ConstantValue::Int(v)) => Value::Int(*v),
        ExampleInput::Value(ConstantValue::Float(v)) => Value::Float(*v),
        ExampleInput::Value(ConstantValue::Bool(v)) => Value::Bool(*v),
        ExampleInput::Value(ConstantValue::Str(v)) => Value::Str(v.clone()),
    })
}

fn host_tensor(data: &TensorData) -> Result<douse::HostTensor> {
    let start = data.storage_offset() * data.dtype().size();
    let memory = data.storage().bytes.get(start..).unwrap_or_default();
    let view = douse::TensorView::new(data.dtype(), data.sizes(), data.strides(), douse::Memory::Read(memory))?;
    view.to_tensor()
}
