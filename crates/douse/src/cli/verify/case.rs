//! Cases as they are on disk: `NAME.case.json`, `NAME.pt2` and `NAME.safetensors`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use douse::{Code, Error, HostTensor, Result, Value};
use serde::Deserialize;
use serde_json::Value as Json;

use crate::cli::tensors;

const SUFFIX: &str = ".case.json";

/// Where a case is, and what it is called.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Location {
    /// Relative to the folder that was given, without the suffix.
    pub name: String,
    /// With the suffix.
    pub path: PathBuf,
}

/// A case, read.
pub struct Case {
    pub calls: Vec<Call>,
    pub tensors: BTreeMap<String, HostTensor>,
}

#[derive(Deserialize)]
struct File {
    calls: Vec<Call>,
}

#[derive(Deserialize)]
pub struct Call {
    pub inputs: Vec<Arg>,
    #[serde(default)]
    pub outputs: Option<Vec<Arg>>,
    /// Of a program that draws random numbers: what holds of each output.
    #[serde(default)]
    pub check: Option<Vec<Check>>,
    /// Why the call must be refused.
    #[serde(default)]
    pub error: Option<String>,
}

/// A value: a tensor by its key, or a plain value under its kind.
#[derive(Deserialize)]
pub struct Arg {
    pub tensor: Option<String>,
    #[serde(default)]
    pub stride: Vec<usize>,
    pub rtol: Option<f64>,
    #[serde(default)]
    pub atol: f64,
    pub truth: Option<String>,
    int: Option<i64>,
    float: Option<Json>,
    bool: Option<bool>,
    str: Option<String>,
    none: Option<bool>,
}

/// What holds of an output that is drawn at random.
#[derive(Deserialize)]
pub struct Check {
    pub dtype: String,
    pub shape: Vec<usize>,
    pub low: Option<f64>,
    pub high: Option<f64>,
    pub values: Option<Vec<f64>>,
    /// The value, and how far off it may be.
    pub mean: Option<(f64, f64)>,
    pub std: Option<(f64, f64)>,
    /// Not what the call before gave.
    #[serde(default)]
    pub differs: bool,
}

fn damaged(what: impl std::fmt::Display) -> Error {
    Error::invalid_argument(format!("a case that cannot be read: {what}"))
}

impl Location {
    pub fn program(&self) -> PathBuf {
        self.beside("pt2")
    }

    /// Whether the case is one of those that stand for `every` of them, by a hash of its name (FNV-1a).
    pub fn is_in_sample(&self, every: u64) -> bool {
        let hash = self
            .name
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
        // Names that differ in their last letters differ in few bits of the hash: these steps (of MurmurHash3) spread them.
        let spread = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        (spread >> 33) % every == 0
    }

    fn beside(&self, extension: &str) -> PathBuf {
        let text = self.path.to_string_lossy();
        PathBuf::from(format!("{}.{extension}", text.strip_suffix(SUFFIX).unwrap_or(&text)))
    }

    pub fn read(&self) -> Result<Case> {
        let text = std::fs::read_to_string(&self.path).map_err(damaged)?;
        let file: File = serde_json::from_str(&text).map_err(damaged)?;
        if file.calls.is_empty() {
            return Err(damaged("it has no calls"));
        }
        let path = self.beside("safetensors");
        let named = if path.exists() { tensors::read(&path)? } else { Vec::new() };
        let tensors = named.into_iter().map(|(name, tensor)| (name.unwrap_or_default(), tensor)).collect();
        Ok(Case { calls: file.calls, tensors })
    }
}

impl Case {
    pub fn tensor(&self, key: &str) -> Result<&HostTensor> {
        self.tensors.get(key).ok_or_else(|| damaged(format!("no tensor {key}")))
    }

    /// The value of an argument; a tensor in the layout that the case gives it.
    pub fn value(&self, arg: &Arg) -> Result<Value> {
        if let Some(key) = &arg.tensor {
            let stored = self.tensor(key)?;
            let as_it_is = stored.sizes().is_empty() || stored.strides() == arg.stride;
            return Ok(Value::Tensor(if as_it_is { stored.clone() } else { stored.to_strides(&arg.stride)? }));
        }
        if let Some(v) = &arg.float {
            return Ok(Value::Float(match v {
                Json::String(s) => s.parse().map_err(damaged)?,
                other => other.as_f64().ok_or_else(|| damaged("a float that is no number"))?,
            }));
        }
        Ok(match arg {
            Arg { int: Some(v), .. } => Value::Int(*v),
            Arg { bool: Some(v), .. } => Value::Bool(*v),
            Arg { str: Some(v), .. } => Value::Str(v.clone()),
            Arg { none: Some(_), .. } => Value::None,
            _ => return Err(damaged("an argument of no kind")),
        })
    }
}

/// The cases that the paths name: files, and folders with what is below them, sorted by name.
pub fn find(paths: &[PathBuf]) -> Result<Vec<Location>> {
    let mut found = Vec::new();
    for path in paths {
        if path.is_dir() {
            walk(path, path, &mut found)?;
            continue;
        }
        let text = path.to_string_lossy();
        let path = match text.strip_suffix(SUFFIX) {
            Some(_) => path.clone(),
            // The name without its suffix, or one of the case's other files.
            None => {
                PathBuf::from(format!("{}{SUFFIX}", text.trim_end_matches(".pt2").trim_end_matches(".safetensors")))
            }
        };
        if !path.is_file() {
            return Err(Error::new(Code::AccessFailed, format!("there is no case {}", path.display())));
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        found.push(Location { name: name.trim_end_matches(SUFFIX).to_owned(), path });
    }
    found.sort();
    Ok(found)
}

fn walk(root: &Path, folder: &Path, found: &mut Vec<Location>) -> Result<()> {
    let failed = |e: std::io::Error| Error::new(Code::AccessFailed, format!("cannot read {}: {e}", folder.display()));
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.is_dir() {
            walk(root, &path, found)?;
        } else if path.to_string_lossy().ends_with(SUFFIX) {
            let name = path.strip_prefix(root).unwrap_or(&path).to_string_lossy();
            found.push(Location { name: name.trim_end_matches(SUFFIX).to_owned(), path });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_a_share_of_every_family_and_always_the_same() {
        let case = |name: String| Location { path: PathBuf::from(&name), name };
        let all: Vec<Location> =
            ["add", "conv2d"].iter().flat_map(|op| (0..500).map(move |i| case(format!("{op}/float32.{i}")))).collect();
        let sample = |op: &str| all.iter().filter(|c| c.name.starts_with(op) && c.is_in_sample(10)).count();
        for op in ["add", "conv2d"] {
            assert!((30..70).contains(&sample(op)), "{op}: {}", sample(op));
        }
        assert!(all.iter().all(|case| case.is_in_sample(1)));
        assert!(case("add/float32.0".into()).is_in_sample(10) && !case("add/float32.1".into()).is_in_sample(10));
    }
}
