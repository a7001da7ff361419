//! Program files as Douse uses them: plans as payloads, weights as named data by content.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use douse_core::bytes::Bytes;
use douse_core::sym::{Expr, Ranges, Symbol};
use douse_core::{Code, DType, Error, Result};

use crate::bounds::{ranges, size_bounds};
use crate::check::check;
use crate::container::schema::{Dynamism, EValue, Tensor};
use crate::container::{ptd, pte, replace};
use crate::payload::Payload;
use crate::plan::{BufferKind, Data, Fixed, InputKind, OutputKind, Plan};

/// Weights begin at multiples of this, in the file and where it is mapped: what any device copies or reads in place.
const WEIGHT_ALIGNMENT: u64 = 256;

/// A program file of Douse's: every plan checked, weights mapped.
#[derive(Clone, Debug)]
pub struct ProgramFile {
    container: pte::File,
    external: Vec<ptd::File>,
    methods: Vec<Payload>,
}

impl ProgramFile {
    /// Opens a program and the files of weights it names, which are looked for beside it, but for those in `data`. One that is
    /// not there is missed only by the methods that need it.
    ///
    /// # Errors
    /// `AccessFailed` when a file cannot be read, `InvalidProgram` and `InvalidExternalData` when one is damaged,
    /// `InvalidArgument` when two files define one key, `NotSupported` for a program that is not Douse's.
    pub fn open(path: &Path, data: &[&Path]) -> Result<ProgramFile> {
        let container = pte::File::open(path)?;
        let methods = decode(&container).map_err(|e| e.at(path.display()))?;
        let mut external = data.iter().map(|path| ptd::File::open(path)).collect::<Result<Vec<_>>>()?;
        if data.is_empty() {
            let names: BTreeSet<&str> = methods.iter().flat_map(|m| m.data_files.iter().map(String::as_str)).collect();
            for name in names {
                let beside = path.with_file_name(format!("{name}.ptd"));
                if beside.exists() {
                    external.push(ptd::File::open(&beside)?);
                }
            }
        }
        let mut keys: BTreeSet<&str> = container.named_keys().collect();
        for key in external.iter().flat_map(ptd::File::keys) {
            if !keys.insert(key) {
                return Err(Error::invalid_argument(format!("two files define the data {key:?}")));
            }
        }
        drop(keys);
        Ok(ProgramFile { container, external, methods })
    }

    /// In the order of the file.
    pub fn methods(&self) -> &[Payload] {
        &self.methods
    }

    /// The container itself, for its sizes.
    pub fn container(&self) -> &pte::File {
        &self.container
    }

    /// The bytes of named data, of the program or of the files of weights.
    ///
    /// # Errors
    /// `NotFound`, naming the files that may have it.
    pub fn data(&self, key: &str) -> Result<Bytes> {
        if let Ok(bytes) = self.container.named_data(key) {
            return Ok(bytes.clone());
        }
        if let Some(bytes) = self.external.iter().find_map(|file| file.data(key).ok()) {
            return Ok(bytes.clone());
        }
        let names: BTreeSet<&String> = self.methods.iter().flat_map(|m| &m.data_files).collect();
        let names: Vec<String> = names.into_iter().map(|name| format!("{name}.ptd")).collect();
        let place = match names.as_slice() {
            [] => "the program".to_owned(),
            names => format!("{}, beside the program", names.join(" or ")),
        };
        Err(Error::new(Code::NotFound, format!("the weights {key} are missing: they should be in {place}")))
    }
}

/// Whether a file of weights can have this name, without `.ptd`: it stands beside the program and nowhere else.
pub fn is_data_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(['/', '\\', '\0']) && name != "." && name != ".."
}

fn decode(container: &pte::File) -> Result<Vec<Payload>> {
    let mut methods = Vec::new();
    for method in container.methods() {
        let Some(payload) = method.douse_payload() else {
            return Err(foreign(container));
        };
        let decode = || {
            let payload = Payload::decode(payload)?;
            check(&payload.plan)?;
            if let Some(name) = payload.data_files.iter().find(|name| !is_data_name(name)) {
                return Err(Error::invalid_program(format!("{name:?} is no name for a file of weights")));
            }
            if payload.plan.name != method.name() {
                return Err(Error::invalid_program(format!("its plan is that of {:?}", payload.plan.name)));
            }
            Ok(payload)
        };
        methods.push(decode().map_err(|e| e.at(format!("method {:?}", method.name())))?);
    }
    if methods.is_empty() {
        return Err(Error::invalid_program("the program has no methods"));
    }
    Ok(methods)
}

/// Says what a program that is not Douse's would need.
fn foreign(container: &pte::File) -> Error {
    let summary = container.summary();
    let list = |names: BTreeSet<&str>| names.into_iter().collect::<Vec<_>>().join(", ");
    let backends = list(summary.methods.iter().flat_map(|m| m.delegates.iter().map(|d| d.0.as_str())).collect());
    let operators = list(summary.methods.iter().flat_map(|m| m.operators.iter().map(String::as_str)).collect());
    let mut needs = Vec::new();
    if !backends.is_empty() {
        needs.push(format!("the backends {backends}"));
    }
    if !operators.is_empty() {
        needs.push(format!("the operators {operators}"));
    }
    Error::not_supported(format!(
        "an ExecuTorch program that Douse did not write; to run, it needs {}",
        if needs.is_empty() { "ExecuTorch".to_owned() } else { needs.join(" and ") }
    ))
}

/// The keys of the named data that plans use, in the order of first use.
pub fn data_keys<'a>(plans: impl IntoIterator<Item = &'a Plan>) -> Vec<&'a str> {
    let mut seen = BTreeSet::new();
    let buffers = plans.into_iter().flat_map(|plan| &plan.buffers);
    let keys = buffers.filter_map(|buffer| match &buffer.kind {
        BufferKind::State { initial: Data::Named(key), .. } | BufferKind::Constant(Data::Named(key)) => {
            Some(key.as_str())
        }
        _ => None,
    });
    keys.filter(|key| seen.insert(*key)).collect()
}

/// Writes a program; its weights go into the file of weights that the payloads name, where they name one.
///
/// Only data that a plan uses is written. Both files appear whole or not at all, the weights first. Returns the size of the program
/// file and, where there is one, of the file of weights, in bytes.
///
/// # Errors
/// `AccessFailed` when a file cannot be written: what was there before stays. `Internal` for a plan that does not pass
/// [`check`], `NotFound` for data that `find` has not.
pub fn write(path: &Path, methods: &[Payload], find: &dyn Fn(&str) -> Option<Bytes>) -> Result<(u64, Option<u64>)> {
    for method in methods {
        check(&method.plan).map_err(|e| Error::internal(format!("{}: {e}", method.plan.name)))?;
    }
    let data = data_keys(methods.iter().map(|m| &*m.plan))
        .into_iter()
        .map(|key| {
            let bytes = find(key);
            bytes.map(|b| (key, b)).ok_or_else(|| Error::new(Code::NotFound, format!("no data {key} to write")))
        })
        .collect::<Result<BTreeMap<_, _>>>()?;
    // Code stays with the program, wherever its weights are.
    let keys: BTreeSet<&String> = methods.iter().flat_map(|m| &m.cuda).flat_map(|target| &target.modules).collect();
    let code = keys
        .into_iter()
        .map(|key| {
            find(key).map(|b| (key, b)).ok_or_else(|| Error::new(Code::NotFound, format!("no code {key} to write")))
        })
        .collect::<Result<Vec<_>>>()?;
    let external = methods.iter().flat_map(|m| &m.data_files).next();
    let mut program = pte::Writer::new();
    for method in methods {
        program.method(spec(&method.plan)?, method.encode()?)?;
    }
    for (key, bytes) in &code {
        program.named_data((*key).clone(), &**bytes, WEIGHT_ALIGNMENT)?;
    }
    let Some(name) = external else {
        for (key, bytes) in &data {
            program.named_data((*key).to_owned(), &**bytes, WEIGHT_ALIGNMENT)?;
        }
        return Ok((program.save(path)?, None));
    };
    let mut weights = ptd::Writer::new();
    for (key, bytes) in &data {
        weights.data(*key, None, &**bytes, WEIGHT_ALIGNMENT)?;
    }
    // The program is replaced after its weights, but on disk before them: a full disk leaves both old files.
    replace(path, |out| {
        let size = program.write(out)?;
        out.flush().map_err(|e| Error::new(Code::AccessFailed, e.to_string()))?;
        Ok((size, Some(weights.save(&path.with_file_name(format!("{name}.ptd")))?)))
    })
}

/// What ExecuTorch's tools see of a method.
fn spec(plan: &Plan) -> Result<pte::MethodSpec> {
    let ranges = ranges(plan);
    let input = |kind: &InputKind| match kind {
        InputKind::Tensor { dtype, sizes, strides, .. } => tensor(&ranges, *dtype, sizes, strides),
        InputKind::Int => Ok(EValue::Int(0)),
        InputKind::Number { dtype: DType::Bool, .. } => Ok(EValue::Bool(false)),
        InputKind::Number { .. } => Ok(EValue::Double(0.0)),
        InputKind::Fixed(value) => Ok(fixed(value)),
    };
    let output = |kind: &OutputKind| match kind {
        OutputKind::Tensor { dtype, sizes, strides, .. } => tensor(&ranges, *dtype, sizes, strides),
        OutputKind::Int(value) => Ok(EValue::Int(value.as_int().unwrap_or(0))),
        OutputKind::Bool(value) => Ok(EValue::Bool(value.as_bool().unwrap_or(false))),
        OutputKind::Number { dtype, .. } if dtype.is_bool() => Ok(EValue::Bool(false)),
        OutputKind::Number { dtype, .. } if dtype.is_int() => Ok(EValue::Int(0)),
        OutputKind::Number { .. } => Ok(EValue::Double(0.0)),
        OutputKind::Fixed(value) => Ok(fixed(value)),
    };
    Ok(pte::MethodSpec {
        name: plan.name.clone(),
        inputs: plan.inputs.iter().map(|i| input(&i.kind)).collect::<Result<_>>()?,
        outputs: plan.outputs.iter().map(|o| output(&o.kind)).collect::<Result<_>>()?,
        compile_specs: Vec::new(),
    })
}

fn fixed(value: &Fixed) -> EValue {
    use douse_core::Scalar;
    match value {
        Fixed::None => EValue::Null,
        Fixed::Str(text) => EValue::String(text.clone()),
        Fixed::Scalar(Scalar::Bool(b)) => EValue::Bool(*b),
        Fixed::Scalar(Scalar::Int(i)) => EValue::Int(*i),
        Fixed::Scalar(other) => EValue::Double(other.to_f64()),
    }
}

/// A tensor at its greatest sizes; where one has no bound, at its least.
fn tensor(ranges: &Ranges, dtype: DType, sizes: &[Expr], strides: &[Expr]) -> Result<EValue> {
    let bounds: Vec<_> = sizes.iter().map(|size| size_bounds(ranges, size)).collect();
    let most = |max: Option<i64>| max.filter(|max| *max <= i64::from(i32::MAX));
    let fits = bounds.iter().try_fold(dtype.size() as i64, |n, b| n.checked_mul(most(b.max)?));
    let dynamism = match fits {
        _ if bounds.iter().all(|b| b.fixed().is_some()) => Dynamism::Static,
        Some(_) => Dynamism::Bound,
        None => Dynamism::Unbound,
    };
    let shown = bounds.iter().map(|b| match dynamism {
        Dynamism::Unbound => b.min as u64,
        Dynamism::Static | Dynamism::Bound => b.max.unwrap_or(b.min) as u64,
    });
    let shown: Vec<u64> = shown.collect();
    Ok(EValue::Tensor(Box::new(Tensor::unplanned(dtype, &shown, &dim_order(sizes, strides), dynamism)?)))
}

/// The dimensions from the one that steps farthest to the one that steps least.
fn dim_order(sizes: &[Expr], strides: &[Expr]) -> Vec<u8> {
    // Any sizes tell the order, as long as none is 1.
    let value = |symbol| match symbol {
        Symbol::Size(n) => Some(1009 + i64::from(n)),
        _ => None,
    };
    let steps: Vec<i64> = strides.iter().map(|stride| stride.eval(&value).unwrap_or(0)).collect();
    let mut order: Vec<u8> = (0..sizes.len() as u8).collect();
    order.sort_by_key(|dim| std::cmp::Reverse(steps.get(*dim as usize).copied().unwrap_or(0)));
    order
}

#[cfg(test)]
mod tests;
