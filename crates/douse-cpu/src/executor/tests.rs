//! Plans built by hand.

use douse_core::bytes::{Aligned, Bytes};
use douse_core::pointwise::Binary;
use douse_core::sym::{Compare, Cond, Expr, Symbol};
use douse_core::{Code, DType, Scalar};
use douse_program::kernel::{Access, Kernel, Op};
use douse_program::library::{Library, View};
use douse_program::plan::{
    Buffer, BufferKind, Data, Input, InputKind, Output, OutputKind, Plan, Predicate, Step, SymbolInfo, SymbolSource,
};
use std::sync::Arc;

use super::{Executor, InputValue, Options, OutputValue};
use crate::interpret::tests::build::{Body, int, kernel, var};

const F32: DType = DType::F32;

fn s(i: u32) -> Expr {
    Expr::symbol(Symbol::Size(i))
}

fn buffer(dtype: DType, elements: Expr, kind: BufferKind) -> Buffer {
    Buffer { dtype, elements, kind }
}

fn temporary(dtype: DType, elements: Expr) -> Buffer {
    buffer(dtype, elements, BufferKind::Temporary)
}

fn tensor(size: Expr, buffer: u32) -> Output {
    let kind = OutputKind::Tensor { dtype: F32, sizes: vec![size], strides: vec![int(1)], buffer };
    Output { name: format!("out{buffer}"), kind }
}

fn input(size: Expr, buffer: u32) -> Input {
    let kind = InputKind::Tensor { dtype: F32, sizes: vec![size], strides: vec![int(1)], buffer, written: false };
    Input { name: "x".into(), kind }
}

fn plan(buffers: Vec<Buffer>, kernels: Vec<Kernel>, steps: Vec<Step>) -> Plan {
    Plan {
        name: "forward".into(),
        symbols: vec![],
        inputs: vec![],
        outputs: vec![],
        buffers,
        kernels,
        steps,
        messages: vec!["the message".into()],
        in_spec: None,
        out_spec: None,
        checks_first: false,
    }
}

/// `out = a + value` over a size.
fn add(size: Expr, value: f64) -> Kernel {
    let mut body = Body::new(&[]);
    let x = body.load(0, F32, &var(0));
    let y = body.constant(Scalar::Float(value), F32);
    let sum = body.binary(Binary::Add, x, y);
    body.store(1, &var(0), sum);
    kernel(&[(F32, Access::Read), (F32, Access::Write)], &[size], &[], vec![body])
}

fn launch(kernel: u32, args: &[u32]) -> Step {
    Step::Kernel { kernel, args: args.to_vec() }
}

fn executor(plan: Plan) -> Executor {
    Executor::new(Arc::new(plan), &|_| Err(douse_core::Error::internal("no data"))).unwrap()
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|x| x.to_ne_bytes()).collect()
}

fn floats(output: &OutputValue) -> Vec<f32> {
    let OutputValue::Tensor { bytes, sizes, .. } = output else { panic!("{output:?} is no tensor") };
    let values: Vec<f32> = bytes.chunks(4).map(|b| f32::from_ne_bytes(b.try_into().unwrap())).collect();
    assert_eq!(sizes.iter().product::<i64>() as usize, values.len());
    values
}

/// Temporaries share an arena whose layout follows the sizes of each call.
#[test]
fn sizes_change_from_call_to_call() {
    let mut p = plan(
        vec![
            buffer(F32, s(0), BufferKind::Input(0)),
            temporary(F32, s(0)),
            temporary(F32, s(0)),
            buffer(F32, s(0), BufferKind::Output(0)),
        ],
        vec![add(s(0), 1.0)],
        vec![launch(0, &[0, 1]), launch(0, &[1, 2]), launch(0, &[2, 3])],
    );
    let source = SymbolSource::Size { input: 0, dim: 0, scale: 1, offset: 0 };
    p.symbols = vec![SymbolInfo { name: "s0".into(), min: None, max: None, source, bound: None }];
    p.inputs = vec![input(s(0), 0)];
    p.outputs = vec![tensor(s(0), 3), tensor(s(0), 3)];
    let mut executor = executor(p);
    let mut state = executor.initial_state();
    for n in [3usize, 5000, 0, 3] {
        let x: Vec<f32> = (0..n).map(|i| i as f32).collect();
        let given = bytes(&x);
        let out =
            executor.run(&mut state, &[Some(n as i64)], vec![InputValue::Tensor(&given)], &Options::default()).unwrap();
        let expected: Vec<f32> = x.iter().map(|x| x + 3.0).collect();
        // The second output is a copy of its own.
        assert_eq!((floats(&out[0]), floats(&out[1])), (expected.clone(), expected));
    }
    let short = bytes(&[1.0]);
    let error =
        executor.run(&mut state, &[Some(2)], vec![InputValue::Tensor(&short)], &Options::default()).unwrap_err();
    assert_eq!((error.code, error.message.as_str()), (Code::InvalidArgument, "input \"x\" has 4 bytes, expected 8"));
}

/// A counter in the state, doubled until it reaches 100, with the number of rounds read back.
#[test]
fn loops_and_state() {
    let mut test = Body::new(&[]);
    let x = test.load(0, F32, &int(0));
    let limit = test.constant(Scalar::Float(100.0), F32);
    let below = test.binary(Binary::Lt, x, limit);
    test.store(1, &int(0), below);
    let test = kernel(&[(F32, Access::Read), (DType::Bool, Access::Write)], &[], &[], vec![test]);
    let mut double = Body::new(&[]);
    let x = double.load(0, F32, &int(0));
    let sum = double.binary(Binary::Add, x, x);
    double.store(0, &int(0), sum);
    let double = kernel(&[(F32, Access::Update)], &[], &[], vec![double]);
    let initial = Data::Inline(3f32.to_ne_bytes().to_vec());
    let mut p = plan(
        vec![
            buffer(F32, int(1), BufferKind::State { name: "counter".into(), initial }),
            temporary(DType::Bool, int(1)),
            buffer(F32, int(1), BufferKind::Output(0)),
        ],
        vec![test, double],
        vec![
            Step::Set { symbol: 0, value: int(0) },
            Step::While {
                test: vec![launch(0, &[0, 1])],
                predicate: Predicate::Buffer(1),
                body: vec![launch(1, &[0]), Step::Set { symbol: 0, value: &s(0) + 1 }],
            },
            Step::Copy { from: 0, to: 2 },
        ],
    );
    p.symbols = vec![SymbolInfo { name: "u0".into(), min: None, max: None, source: SymbolSource::Step, bound: None }];
    p.outputs = vec![tensor(int(1), 2), Output { name: "rounds".into(), kind: OutputKind::Int(s(0)) }];
    let mut executor = executor(p);
    let mut state = executor.initial_state();
    for rounds in [6, 0] {
        let out = executor.run(&mut state, &[], vec![], &Options::default()).unwrap();
        assert_eq!(floats(&out[0]), [192.0]);
        assert!(matches!(out[1], OutputValue::Number(Scalar::Int(n)) if n == rounds), "{out:?}");
    }
    assert_eq!(state.iter().next().unwrap(), ("counter", 192f32.to_ne_bytes().as_slice()));
    assert_eq!(executor.initial_state().iter().next().unwrap().1, 3f32.to_ne_bytes());
}

/// An output whose size is read from data, with and without a bound known before.
#[test]
fn sizes_read_from_data() {
    for bound in [None, Some(int(8))] {
        let mut count = Body::new(&[]);
        let x = count.load(0, F32, &int(0));
        let n = count.cast(x, DType::I32);
        count.store(1, &int(0), n);
        let count = kernel(&[(F32, Access::Read), (DType::I32, Access::Write)], &[], &[], vec![count]);
        let mut p = plan(
            vec![
                buffer(F32, int(8), BufferKind::Input(0)),
                temporary(DType::I32, int(1)),
                temporary(F32, s(0)),
                buffer(F32, s(0), BufferKind::Output(0)),
            ],
            vec![count, add(s(0), 1.0)],
            vec![
                launch(0, &[0, 1]),
                Step::Read { buffer: 1, symbol: 0 },
                Step::Require { cond: Cond::Compare(Compare::Le, s(0), int(8)), message: 0 },
                launch(1, &[0, 2]),
                Step::If {
                    predicate: Predicate::Cond(Cond::Compare(Compare::Gt, s(0), int(2))),
                    then: vec![launch(1, &[2, 3])],
                    otherwise: vec![Step::Copy { from: 2, to: 3 }],
                },
            ],
        );
        p.symbols = vec![SymbolInfo { name: "u0".into(), min: None, max: None, source: SymbolSource::Step, bound }];
        p.inputs = vec![input(int(8), 0)];
        p.outputs = vec![tensor(s(0), 3)];
        let mut executor = executor(p);
        let mut state = executor.initial_state();
        let mut run = |n: f32| {
            let given = bytes(&[n, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]);
            let options = Options::default();
            executor.run(&mut state, &[], vec![InputValue::Tensor(&given)], &options).map(|out| floats(&out[0]))
        };
        assert_eq!(run(4.0).unwrap(), [6.0, 3.0, 4.0, 5.0]);
        assert_eq!(run(2.0).unwrap(), [3.0, 2.0]);
        assert_eq!(run(0.0).unwrap(), Vec::<f32>::new());
        assert_eq!(run(9.0).unwrap_err().message, "the message");
        assert_eq!(run(5.0).unwrap().len(), 5);
    }
}

/// A check that fails stops the call before later steps, and the next call is as good as new.
#[test]
fn a_failed_check_stops_the_call() {
    let mut check = Body::new(&[]);
    let x = check.load(0, F32, &var(0));
    let i = check.cast(x, DType::I64);
    let i = check.push(Op::Check { index: i, size: int(5), wrap: true, guard: None, message: 0 }, DType::I64);
    check.store(1, &var(0), i);
    let check = kernel(&[(F32, Access::Read), (DType::I64, Access::Write)], &[int(2)], &[], vec![check]);
    let initial = Data::Zeros(8);
    let mut p = plan(
        vec![
            buffer(F32, int(2), BufferKind::Input(0)),
            temporary(DType::I64, int(2)),
            buffer(F32, int(2), BufferKind::State { name: "kept".into(), initial }),
        ],
        vec![check, add(int(2), 1.0)],
        vec![launch(0, &[0, 1]), launch(1, &[0, 2])],
    );
    p.inputs = vec![input(int(2), 0)];
    let mut executor = executor(p);
    let mut state = executor.initial_state();
    let bad = bytes(&[1.0, 5.0]);
    let error = executor.run(&mut state, &[], vec![InputValue::Tensor(&bad)], &Options::default()).unwrap_err();
    assert_eq!(error.message, "index 5 is out of range for a dimension of size 5 (the message)");
    assert_eq!(state.iter().next().unwrap().1, [0; 8]);
    let good = bytes(&[1.0, 4.0]);
    executor.run(&mut state, &[], vec![InputValue::Tensor(&good)], &Options::default()).unwrap();
    assert_eq!(state.iter().next().unwrap().1, bytes(&[2.0, 5.0]));
}

/// Weights may lie anywhere in a file; the executor reads them at addresses that suit their dtype, copying only where it must.
#[test]
fn misaligned_weights() {
    let mut p = plan(
        vec![
            buffer(F32, int(3), BufferKind::Constant(Data::Named("w".into()))),
            buffer(F32, int(3), BufferKind::Output(0)),
        ],
        vec![add(int(3), 1.0)],
        vec![launch(0, &[0, 1])],
    );
    p.outputs = vec![tensor(int(3), 1)];
    let all = Bytes::from(Aligned::copy(&[vec![0; 4], bytes(&[0.0, 1.0, 2.0, 3.0, 4.0])].concat()).unwrap());
    for (start, expected) in [(4, [1.0, 2.0, 3.0]), (8, [2.0, 3.0, 4.0])] {
        let weights = all.slice(start, 12).unwrap();
        let mut executor = Executor::new(Arc::new(p.clone()), &|_| Ok(weights.clone())).unwrap();
        let mut state = executor.initial_state();
        let out = executor.run(&mut state, &[], vec![], &Options::default()).unwrap();
        assert_eq!(floats(&out[0]), expected);
    }
    for start in [1, 2, 3] {
        // The same numbers, moved by a byte or more.
        let moved = [vec![0; start], bytes(&[0.0, 1.0, 2.0])].concat();
        let weights = Bytes::from(Aligned::copy(&moved).unwrap()).slice(start, 12).unwrap();
        assert_ne!(weights.as_ptr().addr() % 4, 0);
        let mut executor = Executor::new(Arc::new(p.clone()), &|_| Ok(weights.clone())).unwrap();
        let constant = executor.prepared.constants[0].as_ref().unwrap();
        assert_eq!(constant.as_ptr().addr() % 4, 0);
        let mut state = executor.initial_state();
        assert_eq!(floats(&executor.run(&mut state, &[], vec![], &Options::default()).unwrap()[0]), [1.0, 2.0, 3.0]);
    }
    let error = Executor::new(Arc::new(p), &|_| Ok(Bytes::from(vec![0; 8]))).err().unwrap();
    assert_eq!(
        (error.code, error.message.as_str()),
        (Code::InvalidProgram, "Named(\"w\") has 8 bytes where the plan needs 12")
    );
}

/// A state larger than any memory is an error, not the end of the process.
#[test]
fn a_state_beyond_memory() {
    let bytes = 1u64 << 62;
    let initial = Data::Zeros(bytes);
    let elements = int(1 << 60);
    let p = plan(vec![buffer(F32, elements, BufferKind::State { name: "s".into(), initial })], vec![], vec![]);
    let error = Executor::new(Arc::new(p), &|_| Err(douse_core::Error::internal("no data"))).err().unwrap();
    assert_eq!(error.code, Code::MemoryAllocationFailed);
}

/// Loops and views of which a plan says too much are errors, whatever their strides.
#[test]
fn more_points_than_can_be_counted() {
    let huge = || vec![int(1 << 40), int(1 << 40), int(0)];
    let view = |sizes: Vec<Expr>| View { buffer: 0, offset: int(0), strides: vec![int(0); sizes.len()], sizes };
    let mut body = Body::new(&[]);
    let x = body.load(0, F32, &int(0));
    body.store(1, &int(0), x);
    let params = [(F32, Access::Read), (F32, Access::Write)];
    let nest = kernel(&params, &huge(), &[], vec![body]);
    let library = Library::MatMul { a: view(huge()), b: view(huge()), out: View { buffer: 1, ..view(huge()) } };
    for step in [launch(0, &[0, 1]), Step::Library(library)] {
        let buffers = vec![buffer(F32, int(1), BufferKind::Input(0)), temporary(F32, int(1))];
        let mut p = plan(buffers, vec![nest.clone()], vec![step]);
        p.inputs = vec![input(int(1), 0)];
        let mut executor = executor(p);
        let mut state = executor.initial_state();
        let given = bytes(&[1.0]);
        let error = executor.run(&mut state, &[], vec![InputValue::Tensor(&given)], &Options::default()).unwrap_err();
        assert!(error.message.contains("than can be counted"), "{error}");
    }
}
