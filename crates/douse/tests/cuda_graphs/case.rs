//! The golden cases of `tests/cases`, lowered for softgpu.

use std::collections::BTreeMap;
use std::path::Path;

use douse::{
    Argument, DType, HostTensor, LowerOptions, Method, MethodMeta, ProductOptions, Products, Program, Result, Session,
    Value, ValueKind,
};
use douse_core::element::elements;
use douse_cuda::soft::Compiler;
use safetensors::SafeTensors;
use serde_json::Value as Json;

pub const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/cases");

pub struct Case {
    pub program: Program,
    pub meta: MethodMeta,
    pub calls: Vec<Call>,
}

pub struct Call {
    pub inputs: Vec<Value>,
    /// `None` where the call must be refused.
    pub outputs: Option<Vec<Value>>,
}

/// Whether programs can be compiled for softgpu; says so where not.
pub fn can_compile() -> bool {
    Compiler::find().map_err(|error| println!("skipped: {error}")).is_ok()
}

impl Case {
    /// `None` where there is no C++ compiler.
    pub fn read(name: &str) -> Option<Case> {
        Case::read_for(name, Products::Own)
    }

    /// The same with products that are done so.
    pub fn read_for(name: &str, products: Products) -> Option<Case> {
        if !can_compile() {
            return None;
        }
        let file = |extension: &str| Path::new(FOLDER).join(format!("{name}.{extension}"));
        let lower = LowerOptions {
            targets: vec!["cpu".into(), "soft".into()],
            products: ProductOptions { by: products, tf32: false },
            ..LowerOptions::default()
        };
        let program = douse::lower(file("pt2"), &lower).unwrap().into_program().unwrap();
        let bytes = std::fs::read(file("safetensors")).unwrap();
        let tensors = SafeTensors::deserialize(&bytes).unwrap();
        let tensors = tensors.iter().map(|(name, view)| {
            let dtype = DType::from_safetensors(&view.dtype().to_string()).unwrap();
            (name.to_owned(), HostTensor::from_bytes(dtype, view.shape(), view.data()).unwrap())
        });
        let tensors = tensors.collect();
        let text = std::fs::read_to_string(file("case.json")).unwrap();
        let json: Json = serde_json::from_str(&text).unwrap();
        let values = |list: &Json| list.as_array().map(|list| list.iter().map(|arg| value(arg, &tensors)).collect());
        let call = |call: &Json| Call { inputs: values(&call["inputs"]).unwrap(), outputs: values(&call["outputs"]) };
        let calls = json["calls"].as_array().unwrap().iter().map(call).collect();
        let meta = program.method_meta("forward").unwrap();
        Some(Case { program, meta, calls })
    }

    /// Makes a call, and checks that it answers what PyTorch did.
    pub fn check(&self, number: usize, method: &mut Method) {
        let call = &self.calls[number];
        match (self.run(method, &mut call.inputs.clone()), &call.outputs) {
            (Ok(found), Some(expected)) => {
                assert_eq!(found.len(), expected.len());
                let wrong = expected.iter().zip(&found).position(|(expected, found)| !is_close(expected, found));
                assert!(wrong.is_none(), "output {wrong:?} of call {number} is {found:?}, expected {expected:?}");
            }
            (found, expected) => {
                assert!(found.is_err() && expected.is_none(), "call {number}: {found:?}, expected {expected:?}");
            }
        }
    }

    /// All calls in a new session, so that they answer what PyTorch did again.
    pub fn check_all(&self, method: &mut Method) {
        *method.session() = Session::with_seed(1);
        (0..self.calls.len()).for_each(|number| self.check(number, method));
    }

    /// Calls the method, which may write its inputs where the program does.
    pub fn run(&self, method: &mut Method, inputs: &mut [Value]) -> Result<Vec<Value>> {
        let arguments = inputs.iter_mut().zip(&self.meta.inputs).map(|(value, input)| match input.kind {
            ValueKind::Tensor { written: true, .. } => value.argument_mut(),
            _ => value.argument(),
        });
        method.run(&arguments.collect::<Vec<Argument<'_>>>())
    }
}

/// A recorded value.
fn value(arg: &Json, tensors: &BTreeMap<String, HostTensor>) -> Value {
    if let Some(key) = arg["tensor"].as_str() {
        let strides: Vec<usize> = serde_json::from_value(arg["stride"].clone()).unwrap();
        let tensor = &tensors[key];
        let as_it_is = tensor.sizes().is_empty() || tensor.strides() == strides;
        return Value::Tensor(if as_it_is { tensor.clone() } else { tensor.to_strides(&strides).unwrap() });
    }
    match (arg["int"].as_i64(), arg["float"].as_f64(), arg["bool"].as_bool()) {
        (Some(v), ..) => Value::Int(v),
        (_, Some(v), _) => Value::Float(v),
        (.., Some(v)) => Value::Bool(v),
        _ => panic!("{arg} is not read"),
    }
}

/// The same sizes, and about the same elements.
fn is_close(expected: &Value, found: &Value) -> bool {
    let (Value::Tensor(expected), Value::Tensor(found)) = (expected, found) else {
        return format!("{expected:?}") == format!("{found:?}");
    };
    let same = (expected.dtype(), expected.sizes()) == (found.dtype(), found.sizes());
    let (expected, found) = (elements(expected), elements(found));
    let close = |a: f64, b: f64| a == b || (a - b).abs() <= 1e-5 * (1.0 + a.abs());
    same && expected.iter().zip(&found).all(|(a, b)| a == b || close(a.to_f64(), b.to_f64()))
}

/// What tells a value from any other: bits, sizes, strides.
pub fn bits(value: &Value) -> String {
    match value {
        Value::Tensor(tensor) => {
            format!("{} {:?} {:?} {:?}", tensor.dtype(), tensor.sizes(), tensor.strides(), tensor.bytes())
        }
        other => format!("{other:?}"),
    }
}
