//! Program files (`.pte`).

use super::layout::{self, PROGRAM, Segment};
use super::schema::*;
use super::{Summary, atomic, check, decode, encode, flatbuffer};
use douse_core::bytes::Bytes;
use douse_core::{Code, Error, Result};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

/// The id of Douse's delegate.
pub const BACKEND: &str = "DouseBackend";

/// A checked program: its tables decoded, its segments mapped. Cloning shares the bytes.
#[derive(Clone, Debug)]
pub struct File {
    program: Program,
    segments: Vec<Bytes>,
    /// Key to index of `program.named_data`.
    named: BTreeMap<String, usize>,
}

impl File {
    /// Maps and checks a program file.
    ///
    /// # Errors
    /// `AccessFailed` when it cannot be read, `InvalidProgram` when it is malformed; both with the path.
    pub fn open(path: &Path) -> Result<File> {
        File::from_bytes(Bytes::open(path)?).map_err(|e| e.at(path.display()))
    }

    /// # Errors
    /// `InvalidProgram`, saying what is wrong and where.
    pub fn from_bytes(file: impl Into<Bytes>) -> Result<File> {
        let file = file.into();
        let layout = PROGRAM.parse(&file)?;
        let program = decode::program(&file.slice(0, layout.flatbuffer)?)?;
        let segments = layout::slice_segments(&PROGRAM, &file, &layout, &program.segments)?;
        check::program(&program)?;
        let named = program.named_data.iter().enumerate().map(|(i, n)| (n.key.clone(), i)).collect();
        Ok(File { program, segments, named })
    }

    /// Everything in the FlatBuffer; its indices are all valid.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// The bytes of a segment.
    pub fn segment(&self, index: u32) -> Option<&Bytes> {
        self.segments.get(index as usize)
    }

    /// In the order of the file.
    pub fn methods(&self) -> impl ExactSizeIterator<Item = Method<'_>> {
        self.program.execution_plan.iter().map(|plan| Method { file: self, plan })
    }

    /// # Errors
    /// `InvalidArgument` when there is no such method; the message lists those there are.
    pub fn method(&self, name: &str) -> Result<Method<'_>> {
        self.methods().find(|m| m.name() == name).ok_or_else(|| {
            let names: Vec<&str> = self.methods().map(|m| m.plan.name.as_str()).collect();
            Error::invalid_argument(format!("no method {name:?}; there are {names:?}"))
        })
    }

    /// The bytes under a key.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn named_data(&self, key: &str) -> Result<&Bytes> {
        let entry = self.named.get(key).and_then(|&i| self.program.named_data.get(i));
        let bytes = entry.and_then(|n| self.segment(n.segment_index));
        bytes.ok_or_else(|| Error::new(Code::NotFound, format!("no named data {key:?} in the program")))
    }

    /// The keys of the named data, sorted.
    pub fn named_keys(&self) -> impl ExactSizeIterator<Item = &str> {
        self.named.keys().map(String::as_str)
    }

    pub fn summary(&self) -> Summary {
        Summary::new(self)
    }
}

/// A method of a program file.
#[derive(Clone, Copy, Debug)]
pub struct Method<'a> {
    file: &'a File,
    plan: &'a ExecutionPlan,
}

/// A delegate of a method.
#[derive(Clone, Copy, Debug)]
pub struct Delegate<'a> {
    pub id: &'a str,
    /// What its backend compiled.
    pub payload: &'a Bytes,
    pub compile_specs: &'a [CompileSpec],
}

impl<'a> Method<'a> {
    pub fn name(&self) -> &'a str {
        &self.plan.name
    }

    /// All of the method, as it is in the file.
    pub fn plan(&self) -> &'a ExecutionPlan {
        self.plan
    }

    fn values(&self, indices: &'a [i32]) -> impl Iterator<Item = &'a EValue> + use<'a> {
        let values = &self.plan.values;
        indices.iter().filter_map(move |&i| values.get(usize::try_from(i).ok()?))
    }

    pub fn inputs(&self) -> impl Iterator<Item = &'a EValue> + use<'a> {
        self.values(&self.plan.inputs)
    }

    pub fn outputs(&self) -> impl Iterator<Item = &'a EValue> + use<'a> {
        self.values(&self.plan.outputs)
    }

    pub fn delegates(&self) -> impl Iterator<Item = Delegate<'a>> + use<'a> {
        let file = self.file;
        self.plan.delegates.iter().filter_map(move |d| {
            let index = d.processed.index as usize;
            let payload = match d.processed.location {
                DataLocation::Inline => file.program.backend_delegate_data.get(index),
                DataLocation::Segment => file.segments.get(index),
            };
            Some(Delegate { id: &d.id, payload: payload?, compile_specs: &d.compile_specs })
        })
    }

    /// The payload, where the method is Douse's: all it does is one call of a [`BACKEND`] delegate.
    pub fn douse_payload(&self) -> Option<&'a Bytes> {
        let [chain] = &self.plan.chains[..] else { return None };
        let [Instruction::DelegateCall { delegate_index, .. }] = &chain.instructions[..] else { return None };
        let delegate = self.delegates().nth(usize::try_from(*delegate_index).ok()?)?;
        (delegate.id == BACKEND).then_some(delegate.payload)
    }
}

/// A method to be written: what it takes and gives. What it does is its payload.
#[derive(Clone, Debug, Default)]
pub struct MethodSpec {
    pub name: String,
    /// Tensors by [`Tensor::unplanned`]; other values say the kind, and what they were when the program was exported.
    pub inputs: Vec<EValue>,
    pub outputs: Vec<EValue>,
    pub compile_specs: Vec<CompileSpec>,
}

impl MethodSpec {
    /// A plan whose only instruction gives its inputs and outputs to Douse's delegate.
    fn plan(self, payload_segment: u32) -> ExecutionPlan {
        let (inputs, outputs) = (self.inputs.len() as i32, self.outputs.len() as i32);
        let args: Vec<i32> = (0..inputs + outputs).collect();
        let call = Instruction::DelegateCall { delegate_index: 0, args };
        let inputs_at: Vec<i32> = (0..inputs).collect();
        let outputs_at: Vec<i32> = (inputs..inputs + outputs).collect();
        ExecutionPlan {
            name: self.name,
            container_meta_type: Some(ContainerMetadata::default()),
            values: self.inputs.into_iter().chain(self.outputs).collect(),
            chains: vec![Chain {
                inputs: inputs_at.clone(),
                outputs: outputs_at.clone(),
                instructions: vec![call],
                stacktrace: Vec::new(),
            }],
            inputs: inputs_at,
            outputs: outputs_at,
            operators: Vec::new(),
            delegates: vec![BackendDelegate {
                id: BACKEND.to_owned(),
                processed: BackendDelegateDataReference { location: DataLocation::Segment, index: payload_segment },
                compile_specs: self.compile_specs,
            }],
            non_const_buffer_sizes: vec![0],
            non_const_buffer_device: Vec::new(),
        }
    }
}

/// Collects a program and writes it. Payloads and named data may be borrowed from mapped files; they are never copied.
///
/// Segments are in the order given, payloads and named data alike; the same calls write the same bytes.
#[derive(Default)]
pub struct Writer<'a> {
    plans: Vec<ExecutionPlan>,
    segments: Vec<(Cow<'a, [u8]>, u64)>,
    named: Vec<NamedData>,
    /// Key to index of `segments`.
    keys: BTreeMap<String, u32>,
}

impl<'a> Writer<'a> {
    pub fn new() -> Writer<'a> {
        Writer::default()
    }

    /// Adds a method and what Douse's delegate is given for it.
    ///
    /// # Errors
    /// `InvalidArgument` when there is a method of this name already.
    pub fn method(&mut self, spec: MethodSpec, payload: impl Into<Cow<'a, [u8]>>) -> Result<()> {
        if self.plans.iter().any(|p| p.name == spec.name) {
            return Err(Error::invalid_argument(format!("two methods are named {:?}", spec.name)));
        }
        let segment = self.segment(payload.into(), 16)?;
        self.plans.push(spec.plan(segment));
        Ok(())
    }

    /// Adds bytes under a key, aligned to `alignment` bytes both in the file and where it is mapped.
    ///
    /// # Errors
    /// `InvalidArgument` when the key is taken or `alignment` is not a power of two.
    pub fn named_data(&mut self, key: String, bytes: impl Into<Cow<'a, [u8]>>, alignment: u64) -> Result<()> {
        if self.keys.contains_key(&key) {
            return Err(Error::invalid_argument(format!("named data {key:?} is there twice")));
        }
        let segment_index = self.segment(bytes.into(), alignment)?;
        self.keys.insert(key.clone(), segment_index);
        self.named.push(NamedData { key, segment_index, tensor_layout: None });
        Ok(())
    }

    fn segment(&mut self, bytes: Cow<'a, [u8]>, alignment: u64) -> Result<u32> {
        check_alignment(alignment)?;
        let index = u32::try_from(self.segments.len());
        self.segments.push((bytes, alignment));
        index.map_err(|_| Error::not_supported("more than 2^32 segments"))
    }

    /// Writes the file to `path`, replacing what is there only once all of it is on disk. Returns its size in bytes.
    ///
    /// # Errors
    /// `AccessFailed` with the path; what was at `path` is untouched then.
    pub fn save(self, path: &Path) -> Result<u64> {
        atomic::replace(path, |out| self.write(out))
    }

    /// # Errors
    /// `AccessFailed` when `out` fails, `InvalidProgram` when an index among the values given is wrong.
    pub fn write(self, out: &mut dyn Write) -> Result<u64> {
        let segments: Vec<Segment> =
            self.segments.iter().map(|(bytes, alignment)| Segment { bytes, alignment: *alignment }).collect();
        let program = Program {
            version: check::VERSION,
            execution_plan: self.plans,
            // ExecuTorch's runtime takes a program without a constant segment for one of the old kind, with constants in
            // the FlatBuffer, and refuses it. One entry, that of the reserved constant 0, says there are no constants.
            constant_segment: (!segments.is_empty()).then(|| SubsegmentOffsets { segment_index: 0, offsets: vec![0] }),
            segments: layout::place(&segments),
            named_data: self.named,
            ..Program::default()
        };
        write(&program, &segments, out)
    }
}

pub(super) fn check_alignment(alignment: u64) -> Result<()> {
    /// The largest page in use where files are mapped; a mapping promises no more.
    const MOST: u64 = 1 << 16;
    if alignment.is_power_of_two() && alignment <= MOST {
        return Ok(());
    }
    Err(Error::invalid_argument(format!("an alignment of {alignment} bytes: powers of two up to {MOST} can be met")))
}

/// Writes any program with the segments its table places.
fn write(program: &Program, segments: &[Segment], out: &mut dyn Write) -> Result<u64> {
    check::program(program)?;
    let tables = encode::program(program);
    if segments.is_empty() {
        let flatbuffer = flatbuffer::build(0, &PROGRAM.identifier, tables)?;
        out.write_all(&flatbuffer).map_err(|e| Error::new(Code::AccessFailed, e.to_string()))?;
        return Ok(flatbuffer.len() as u64);
    }
    let flatbuffer = flatbuffer::build(PROGRAM.reserved(), &PROGRAM.identifier, tables)?;
    layout::write(&PROGRAM, flatbuffer, segments, out)
}

#[cfg(test)]
mod tests;
