use douse_core::pointwise::{Binary, Combine};
use douse_core::sym::Expr;
use douse_core::{Code, DType};

use super::check;
use crate::kernel::{Access, Effect, Inst, Kernel, Op, Param, Stage};
use crate::library::{Library, View};
use crate::payload::Payload;
use crate::plan::*;
use crate::sample::{expr, plan, s, tensor};

#[test]
fn a_sound_plan_passes_and_survives_the_round_trip() {
    let payload = Payload { targets: vec!["cpu".into()], data_files: vec![], plan: plan().into(), cuda: vec![] };
    check(&payload.plan).unwrap();
    let bytes = payload.encode().unwrap();
    assert_eq!(bytes, payload.encode().unwrap());
    assert_eq!(Payload::decode(&bytes).unwrap(), payload);
}

#[test]
fn other_payloads_and_versions_are_told_apart() {
    let bytes = Payload { targets: vec![], data_files: vec![], plan: plan().into(), cuda: vec![] }.encode().unwrap();
    let mut newer = bytes.clone();
    newer[8] = 200;
    let error = Payload::decode(&newer).unwrap_err();
    assert_eq!(error.code, Code::DelegateInvalidCompatibility);
    assert!(error.message.contains("newer version"), "{error}");
    assert_eq!(Payload::decode(&bytes[..40]).unwrap_err().code, Code::InvalidProgram);
    assert!(Payload::decode(b"something else").unwrap_err().message.contains("not one of Douse's"));
}

/// A change to a sound plan, and what the check says of it.
type Fault = (fn(&mut Plan), &'static str);

fn stage(plan: &mut Plan, stage: usize) -> &mut Stage {
    &mut plan.kernels[0].stages[stage]
}

const FAULTS: &[Fault] = &[
    (|p| p.symbols[0].max = Some(-1), "symbols[0] (s77): a range from 0 to -1"),
    (
        |p| p.symbols[0].source = SymbolSource::Size { input: 0, dim: 1, scale: 1, offset: 0 },
        "symbols[0] (s77): dimension 1 of 1",
    ),
    (|p| p.symbols[0].source = SymbolSource::Int { input: 0 }, "symbols[0] (s77): its source, input 0, is no integer"),
    (|p| p.symbols[1].bound = Some(s(1)), "symbols[1] (u0): bound: s1 is not known here"),
    (
        |p| {
            for i in 2..40 {
                let twice = s(i - 1).modulo(&(s(i - 1) + 1));
                p.symbols.push(SymbolInfo { bound: Some(twice), ..p.symbols[1].clone() });
            }
        },
        "symbols[10]: its bound expands to more than 1000 symbols",
    ),
    (|p| p.inputs[0].kind = tensor(vec![s(1)], 0), "inputs[0] (x): s1 is not known here"),
    (|p| p.inputs[0].kind = tensor(vec![s(0)], 9), "inputs[0] (x): buffer 9 of 6"),
    (|p| p.inputs[0].kind = tensor(vec![s(0)], 2), "inputs[0] (x): buffer 2 is not of kind Input(0)"),
    (|p| p.buffers[0].dtype = DType::F16, "inputs[0] (x): float32 in a buffer of float16"),
    (|p| p.buffers[4].kind = BufferKind::Input(0), "buffers[4]: input 0 has another buffer"),
    (|p| p.buffers[4].kind = BufferKind::Output(1), "buffers[4]: output 1 has another buffer"),
    (|p| p.buffers[2].kind = BufferKind::Constant(Data::Zeros(5)), "buffers[2]: 5 zero bytes where 4 are needed"),
    (|p| p.buffers[4].dtype = DType::C64, "buffers[4]: a buffer of complex64"),
    (|p| stage(p, 0).inner = vec![expr("v0")], "kernels[0] (sum_add): stages[0]: inner: register v0"),
    (
        |p| stage(p, 0).body[0].op = Op::Load { param: 0, index: expr("i2"), guard: None },
        "stages[0]: body[0]: index: loop i2 of 2",
    ),
    (
        |p| stage(p, 0).body[0].op = Op::Load { param: 2, index: expr("i1"), guard: None },
        "body[0]: parameter 2 is declared Write",
    ),
    (|p| stage(p, 0).body[0].dtype = DType::F64, "body[0]: float32 given, float64 declared"),
    (|p| stage(p, 0).body[0].op = Op::Local(0), "body[0]: local 0 is not defined by an earlier stage"),
    (|p| stage(p, 1).body[2].op = Op::Binary(Binary::Add, 0, 2), "body[2]: register 2 is not defined here"),
    (|p| stage(p, 1).body[2].op = Op::Binary(Binary::Gcd, 0, 1), "body[2]: gcd of float32"),
    (|p| stage(p, 1).body[6].op = Op::Select(0, 1, 2), "body[6]: register 0 is float32, expected bool"),
    (|p| stage(p, 1).body[6].op = Op::Bitcast(0), "body[6]: the bits of float32 as int64"),
    (
        |p| {
            let zero = Op::Check { index: 6, size: s(0), wrap: true, guard: None, message: 7 };
            stage(p, 1).body.push(Inst { op: zero, dtype: DType::I64 });
        },
        "body[7]: message 7 of 1",
    ),
    (
        |p| stage(p, 0).effects[0] = Effect::Reduce { op: Combine::And, value: 0, local: 0 },
        "effects[0]: all of float32",
    ),
    (
        |p| stage(p, 1).effects[0] = Effect::Store { param: 2, index: expr("v4"), value: 4, guard: None },
        "effects[0]: index: register v4 is no integer",
    ),
    (
        |p| stage(p, 1).effects[0] = Effect::Store { param: 0, index: expr("i1"), value: 4, guard: None },
        "effects[0]: parameter 0 is declared Read",
    ),
    (|p| p.steps.insert(0, Step::Kernel { kernel: 1, args: vec![] }), "steps: [0]: kernel 1 of 1"),
    (|p| p.steps.insert(0, Step::Kernel { kernel: 0, args: vec![0, 2] }), "steps: [0]: 2 arguments for 4 parameters"),
    (
        |p| p.steps.insert(0, Step::Kernel { kernel: 0, args: vec![0, 1, 2, 3] }),
        "argument 2 of sum_add: buffer 2, a constant, is written",
    ),
    (
        |p| p.steps.insert(0, Step::Kernel { kernel: 0, args: vec![1, 2, 0, 3] }),
        "argument 2 of sum_add: buffer 0, input 0, is written",
    ),
    (
        |p| p.steps.insert(0, Step::Kernel { kernel: 0, args: vec![0, 3, 1, 3] }),
        "argument 1 of sum_add: int64 given, float32 declared",
    ),
    (|p| p.steps.truncate(1), "outputs[1] (n): s1 is not known here"),
    (|p| p.steps.swap(1, 2), "steps: [1]: s1 is not known here"),
    (|p| p.steps.push(Step::Set { symbol: 0, value: s(0) }), "symbol 0 comes from an input"),
    (|p| p.steps.push(Step::Read { buffer: 0, symbol: 1 }), "a symbol read from float32"),
    (|p| p.steps.push(Step::Copy { from: 0, to: 3 }), "a copy of float32 to int64"),
    (
        |p| {
            let view = View { buffer: 0, offset: Expr::int(0), sizes: vec![s(0)], strides: vec![] };
            let values = view.clone();
            let indices = view.clone();
            p.steps.push(Step::Library(Library::Sort { input: view, values, indices, descending: true }));
        },
        "buffer 0, input 0, is written",
    ),
    (
        |p| {
            let view = View { buffer: 1, offset: Expr::int(0), sizes: vec![s(0)], strides: vec![] };
            p.steps.push(Step::Library(Library::MatMul { a: view.clone(), b: view.clone(), out: view }));
        },
        "a: 1 sizes and 0 strides",
    ),
    (
        |p| {
            let Step::Library(library) = p.steps.remove(1) else { return };
            p.steps.insert(1, Step::Fused { library, kernel: 0, args: vec![0, 2, 1, 3] });
        },
        "steps: [1]: epilogue: a library step that has no epilogues",
    ),
    (
        |p| p.steps.insert(0, Step::Together(vec![Step::Copy { from: 0, to: 1 }])),
        "steps: [0]: a step that is no product or convolution stands together with others",
    ),
    (
        |p| {
            for _ in 0..80 {
                let then = std::mem::take(&mut p.steps);
                p.steps = vec![Step::If {
                    predicate: Predicate::Cond(douse_core::sym::Cond::Bool(true)),
                    then,
                    otherwise: vec![],
                }];
            }
        },
        "nested 64 deep",
    ),
];

/// A product of 2 x 2 matrices with a kernel over its result (buffer 8) that reads it twice; `other` is given to the second parameter.
fn with_epilogue(other: BufferId) -> Plan {
    let mut plan = plan();
    let buffer = Buffer { dtype: DType::F32, elements: Expr::int(4), kind: BufferKind::Temporary };
    plan.buffers.extend(std::iter::repeat_n(buffer, 4));
    let view = |buffer| {
        let sizes = vec![Expr::int(2); 2];
        View { buffer, offset: Expr::int(0), sizes, strides: vec![Expr::int(2), Expr::int(1)] }
    };
    let load = |param, index: &str| Op::Load { param, index: expr(index), guard: None };
    let inst = |op| Inst { op, dtype: DType::F32 };
    let body = vec![inst(load(0, "2*i0 + i1")), inst(load(1, "i0 + 2*i1")), inst(Op::Binary(Binary::Add, 0, 1))];
    let effects = vec![Effect::Store { param: 2, index: expr("2*i0 + i1"), value: 2, guard: None }];
    let param = |access| Param { dtype: DType::F32, access };
    plan.kernels.push(Kernel {
        name: "add".into(),
        params: vec![param(Access::Read), param(Access::Read), param(Access::Write)],
        outer: vec![Expr::int(2); 2],
        stages: vec![Stage { inner: vec![], body, effects }],
        locals: vec![],
        ordered: false,
        comment: vec![],
    });
    let library = Library::MatMul { a: view(6), b: view(7), out: view(8) };
    plan.steps.push(Step::Fused { library, kernel: 1, args: vec![8, other, 9] });
    plan
}

#[test]
fn an_epilogue_reads_each_element_of_the_result_at_its_own_point() {
    check(&with_epilogue(6)).unwrap();
    let error = check(&with_epilogue(8)).unwrap_err();
    assert!(error.message.contains("epilogue: the result is given twice"), "{error}");
}

#[test]
fn each_fault_is_named_with_its_place() {
    for (i, (change, expected)) in FAULTS.iter().enumerate() {
        let mut plan = plan();
        change(&mut plan);
        match check(&plan) {
            Ok(()) => panic!("fault {i} passes, expected {expected}"),
            Err(error) => {
                assert_eq!(error.code, Code::InvalidProgram);
                assert!(error.message.contains(expected), "fault {i}: {error}, expected {expected}");
            }
        }
    }
}

#[test]
fn the_deepest_payload_fits_the_stack_and_a_deeper_one_is_refused() {
    let nested = |levels: usize| {
        let mut plan = plan();
        let deep = (0..levels).fold(s(0), |e, i| e.minimum(&(Expr::int(i as i64) + s(0).floor_div(&Expr::int(7)))));
        plan.symbols[1].bound = Some(deep);
        Payload { targets: vec![], data_files: vec![], plan: plan.into(), cuda: vec![] }.encode().unwrap()
    };
    check(&Payload::decode(&nested(80)).unwrap().plan).unwrap();
    assert!(Payload::decode(&nested(2000)).unwrap_err().message.contains("nested too deeply"));
    let steps =
        (0..2000).fold(vec![], |then, _| vec![Step::If { predicate: Predicate::Buffer(4), then, otherwise: vec![] }]);
    let bytes = Payload { targets: vec![], data_files: vec![], plan: Plan { steps, ..plan() }.into(), cuda: vec![] }
        .encode()
        .unwrap();
    assert!(Payload::decode(&bytes).unwrap_err().message.contains("nested too deeply"));
}

/// A small generator: the test is to be the same every time.
fn random(state: &mut u64) -> usize {
    *state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
    (*state >> 33) as usize
}

#[test]
fn damaged_payloads_never_panic() {
    let bytes = Payload { targets: vec!["cpu".into()], data_files: vec![], plan: plan().into(), cuda: vec![] }
        .encode()
        .unwrap();
    let (mut decoded, mut sound, mut seed) = (0, 0, 7);
    for _ in 0..60_000 {
        let mut damaged = bytes.clone();
        for _ in 0..1 + random(&mut seed) % 3 {
            // Past the magic and version, which would hide everything else.
            let at = 12 + random(&mut seed) % (damaged.len() - 12);
            match random(&mut seed) % 4 {
                0 => damaged[at] = random(&mut seed) as u8,
                1 => damaged[at] = damaged[at].wrapping_add(1),
                2 => drop(damaged.remove(at)),
                _ => damaged.insert(at, random(&mut seed) as u8),
            }
        }
        if let Ok(payload) = Payload::decode(&damaged) {
            decoded += 1;
            sound += usize::from(check(&payload.plan).is_ok());
        }
    }
    // Otherwise the damage would only ever test the decoder.
    assert!(decoded > 3_000 && sound > 100 && sound < decoded, "{decoded} decoded, {sound} sound");
}
