//! A small plan with a bit of everything, for tests.

use douse_core::DType;
use douse_core::pointwise::{Binary, Combine, Unary};
use douse_core::sym::{Expr, Symbol};

use crate::kernel::{Access, Effect, Inst, Kernel, Op, Param, Stage};
use crate::library::{Library, View};
use crate::plan::*;

pub fn s(n: u32) -> Expr {
    Expr::symbol(Symbol::Size(n))
}

pub fn expr(text: &str) -> Expr {
    text.parse().unwrap()
}

pub fn tensor(sizes: Vec<Expr>, buffer: BufferId) -> InputKind {
    InputKind::Tensor { dtype: DType::F32, strides: vec![Expr::int(1); sizes.len()], sizes, buffer, written: false }
}

/// `out[i] = x[i] + w[0] + sum of (x)` for x of s0 elements; counts its calls; s1 is read from data.
pub fn plan() -> Plan {
    let f32 = |elements: Expr, kind| Buffer { dtype: DType::F32, elements, kind };
    let i64 = |elements: Expr, kind| Buffer { dtype: DType::I64, elements, kind };
    let state = BufferKind::State { name: "count".into(), initial: Data::Zeros(8) };
    let param = |dtype, access| Param { dtype, access };
    let inst = |op, dtype| Inst { op, dtype };
    let load = |param, index: &str| Op::Load { param, index: expr(index), guard: None };
    let sum = Kernel {
        name: "sum_add".into(),
        params: vec![
            param(DType::F32, Access::Read),
            param(DType::F32, Access::Read),
            param(DType::F32, Access::Write),
            param(DType::I64, Access::Update),
        ],
        outer: vec![Expr::int(1)],
        locals: vec![DType::F32],
        stages: vec![
            Stage {
                inner: vec![s(0)],
                body: vec![inst(load(0, "i1"), DType::F32)],
                effects: vec![Effect::Reduce { op: Combine::Sum, value: 0, local: 0 }],
            },
            Stage {
                inner: vec![s(0)],
                body: vec![
                    inst(load(0, "i1"), DType::F32),
                    inst(load(1, "0"), DType::F32),
                    inst(Op::Binary(Binary::Add, 0, 1), DType::F32),
                    inst(Op::Local(0), DType::F32),
                    inst(Op::Binary(Binary::Add, 2, 3), DType::F32),
                    inst(Op::Unary(Unary::IsNan, 4), DType::Bool),
                    inst(Op::Cast(5), DType::I64),
                ],
                effects: vec![
                    Effect::Store { param: 2, index: expr("i1"), value: 4, guard: Some(5) },
                    Effect::Update { op: Some(Combine::Sum), param: 3, index: expr("0"), value: 6, guard: None },
                ],
            },
        ],
        ordered: false,
        comment: vec!["add".into()],
    };
    let view = |buffer, sizes: Vec<Expr>| View { buffer, offset: Expr::int(0), strides: sizes.clone(), sizes };
    Plan {
        name: "forward".into(),
        symbols: vec![
            SymbolInfo {
                name: "s77".into(),
                min: Some(0),
                max: Some(100),
                source: SymbolSource::Size { input: 0, dim: 0, scale: 1, offset: 0 },
                bound: None,
            },
            SymbolInfo { name: "u0".into(), min: None, max: None, source: SymbolSource::Step, bound: Some(s(0)) },
        ],
        inputs: vec![Input { name: "x".into(), kind: tensor(vec![s(0)], 0) }],
        outputs: vec![
            Output {
                name: "y".into(),
                kind: OutputKind::Tensor {
                    dtype: DType::F32,
                    sizes: vec![s(0)],
                    strides: vec![Expr::int(1)],
                    buffer: 1,
                },
            },
            Output { name: "n".into(), kind: OutputKind::Int(s(1)) },
        ],
        buffers: vec![
            f32(s(0), BufferKind::Input(0)),
            f32(s(0), BufferKind::Output(0)),
            f32(Expr::int(1), BufferKind::Constant(Data::Inline(vec![0, 0, 128, 63]))),
            i64(Expr::int(1), state),
            Buffer { dtype: DType::Bool, elements: s(0), kind: BufferKind::Temporary },
            i64(s(0), BufferKind::Temporary),
        ],
        kernels: vec![sum],
        steps: vec![
            Step::If {
                predicate: Predicate::Cond(douse_core::sym::Cond::Bool(true)),
                then: vec![Step::Kernel { kernel: 0, args: vec![0, 2, 1, 3] }],
                otherwise: vec![],
            },
            Step::Library(Library::Nonzero {
                mask: view(4, vec![s(0)]),
                out: view(5, vec![s(0), Expr::int(1)]),
                symbol: 1,
            }),
            Step::Require { cond: "s1 <= s0".parse().unwrap(), message: 0 },
        ],
        messages: vec!["too many".into()],
        in_spec: None,
        out_spec: None,
        checks_first: false,
    }
}
