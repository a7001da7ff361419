//! Small plans for tests.

use douse_core::DType;
use douse_core::pointwise::{Binary, Combine};
use douse_core::sym::{Expr, Symbol};
use douse_program::kernel::{Access, Effect, Inst, Kernel, Op, Param, Stage};
use douse_program::payload::Payload;
use douse_program::plan::*;

pub fn expr(text: &str) -> Expr {
    text.parse().unwrap()
}

pub fn exprs(texts: &[&str]) -> Vec<Expr> {
    texts.iter().map(|t| expr(t)).collect()
}

pub fn symbol(
    name: &str,
    min: Option<i64>,
    max: Option<i64>,
    input: u32,
    dim: u32,
    scale: i64,
    offset: i64,
) -> SymbolInfo {
    SymbolInfo { name: name.into(), min, max, source: SymbolSource::Size { input, dim, scale, offset }, bound: None }
}

fn tensor(name: &str, sizes: &[&str], strides: &[&str], buffer: u32, written: bool) -> Input {
    let (sizes, strides) = (exprs(sizes), exprs(strides));
    Input { name: name.into(), kind: InputKind::Tensor { dtype: DType::F32, sizes, strides, buffer, written } }
}

fn buffer(elements: &str, kind: BufferKind) -> Buffer {
    Buffer { dtype: DType::F32, elements: expr(elements), kind }
}

/// Inputs `x` [s0, 3], `y` [2*s0, 3], which is written, and `n`, a float; fixed `mode`.
pub fn signature() -> Plan {
    Plan {
        name: "forward".into(),
        symbols: vec![symbol("s77", Some(1), Some(10), 0, 0, 1, 0)],
        inputs: vec![
            tensor("x", &["s0", "3"], &["3", "1"], 0, false),
            tensor("y", &["2*s0", "3"], &["3", "1"], 1, true),
            Input { name: "n".into(), kind: InputKind::Number { dtype: DType::F64, buffer: 2 } },
            Input { name: "mode".into(), kind: InputKind::Fixed(Fixed::Str("fast".into())) },
        ],
        outputs: vec![],
        buffers: vec![
            buffer("3*s0", BufferKind::Input(0)),
            buffer("6*s0", BufferKind::Input(1)),
            Buffer { dtype: DType::F64, elements: Expr::int(1), kind: BufferKind::Input(2) },
        ],
        kernels: vec![],
        steps: vec![],
        messages: vec![],
        in_spec: None,
        out_spec: None,
        checks_first: false,
    }
}

/// `count += 1; y = x + count`, for `x` [s0] of at most 8 elements; refuses where `x[0]` is not positive, which is checked last.
pub fn counter() -> Payload {
    let inst = |op, dtype| Inst { op, dtype };
    let load = |param: u32, index: &str| Op::Load { param, index: expr(index), guard: None };
    let param = |access| Param { dtype: DType::F32, access };
    let kernel = |name: &str, params: Vec<Param>, inner: Vec<Expr>, body, effects| Kernel {
        name: name.into(),
        params,
        outer: vec![],
        stages: vec![Stage { inner, body, effects }],
        locals: vec![],
        ordered: false,
        comment: vec![],
    };
    let kernels = vec![
        kernel(
            "count",
            vec![param(Access::Update)],
            vec![],
            vec![inst(Op::Const(douse_core::Scalar::Float(1.0)), DType::F32)],
            vec![Effect::Update { op: Some(Combine::Sum), param: 0, index: expr("0"), value: 0, guard: None }],
        ),
        kernel(
            "add",
            vec![param(Access::Read), param(Access::Read), param(Access::Write)],
            vec![Expr::symbol(Symbol::Size(0))],
            vec![
                inst(load(0, "i0"), DType::F32),
                inst(load(1, "0"), DType::F32),
                inst(Op::Binary(Binary::Add, 0, 1), DType::F32),
            ],
            vec![Effect::Store { param: 2, index: expr("i0"), value: 2, guard: None }],
        ),
        kernel(
            "check",
            vec![param(Access::Read)],
            vec![],
            vec![
                inst(load(0, "0"), DType::F32),
                inst(Op::Const(douse_core::Scalar::Float(0.0)), DType::F32),
                inst(Op::Binary(Binary::Gt, 0, 1), DType::Bool),
            ],
            vec![Effect::Assert { value: 2, message: 0 }],
        ),
    ];
    let state = BufferKind::State { name: "count".into(), initial: Data::Zeros(4) };
    let plan = Plan {
        name: "forward".into(),
        symbols: vec![symbol("s0", Some(1), Some(8), 0, 0, 1, 0)],
        inputs: vec![tensor("x", &["s0"], &["1"], 0, false)],
        outputs: vec![Output {
            name: "y".into(),
            kind: OutputKind::Tensor { dtype: DType::F32, sizes: exprs(&["s0"]), strides: exprs(&["1"]), buffer: 1 },
        }],
        buffers: vec![buffer("s0", BufferKind::Input(0)), buffer("s0", BufferKind::Output(0)), buffer("1", state)],
        kernels,
        steps: vec![
            Step::Kernel { kernel: 0, args: vec![2] },
            Step::Kernel { kernel: 1, args: vec![0, 2, 1] },
            Step::Kernel { kernel: 2, args: vec![0] },
        ],
        messages: vec!["x must be positive".into()],
        in_spec: None,
        out_spec: None,
        checks_first: false,
    };
    Payload { targets: vec!["cpu".into()], data_files: vec![], plan: plan.into(), cuda: vec![] }
}
