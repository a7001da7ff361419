//! Times kernels that programs are made of, on one thread: `cargo run --release -p douse-cpu --example kernel_bench [PART OF A NAME]`.

use douse_core::bytes::Aligned;
use douse_core::pointwise::{Binary, Combine, Unary};
use douse_core::sym::{Expr, Symbol};
use douse_core::{DType, Error, Result, Scalar};
use douse_cpu::{Executor, InputValue, Options, State, Threads};
use douse_program::kernel::{Access, Effect, Inst, Kernel, Op, Param, Reg, Stage};
use douse_program::plan::{Buffer, BufferKind, Input, InputKind, Output, OutputKind, Plan, Step};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A stage being written.
struct Body(Stage);

impl Body {
    fn new(inner: &[i64]) -> Body {
        Body(Stage { inner: inner.iter().map(|s| Expr::int(*s)).collect(), body: vec![], effects: vec![] })
    }

    fn push(&mut self, op: Op, dtype: DType) -> Reg {
        self.0.body.push(Inst { op, dtype });
        self.0.body.len() as Reg - 1
    }

    fn load(&mut self, param: u32, dtype: DType, index: &Expr) -> Reg {
        self.push(Op::Load { param, index: index.clone(), guard: None }, dtype)
    }

    fn unary(&mut self, op: Unary, a: Reg) -> Reg {
        self.push(Op::Unary(op, a), DType::F32)
    }

    fn binary(&mut self, op: Binary, a: Reg, b: Reg) -> Reg {
        let dtype = self.0.body[a as usize].dtype;
        self.push(Op::Binary(op, a, b), dtype)
    }

    fn constant(&mut self, value: f64) -> Reg {
        self.push(Op::Const(Scalar::Float(value)), DType::F32)
    }

    fn store(&mut self, param: u32, index: &Expr, value: Reg) {
        self.0.effects.push(Effect::Store { param, index: index.clone(), value, guard: None });
    }

    fn reduce(&mut self, op: Combine, value: Reg, local: u32) {
        self.0.effects.push(Effect::Reduce { op, value, local });
    }
}

fn v(i: usize) -> Expr {
    Expr::loop_var(i)
}

/// A kernel over inputs (dtype and elements) and one output.
struct Case {
    name: &'static str,
    inputs: Vec<(DType, i64)>,
    output: (DType, i64),
    outer: Vec<i64>,
    locals: usize,
    stages: Vec<Body>,
}

fn add(n: i64, dtype: DType) -> Case {
    let mut body = Body::new(&[]);
    let (x, y) = (body.load(0, dtype, &v(0)), body.load(1, dtype, &v(0)));
    let sum = body.binary(Binary::Add, x, y);
    body.store(2, &v(0), sum);
    let name = match (dtype, n) {
        (DType::F32, 0..1_000_000) => "add float32 [64K]",
        (DType::F32, _) => "add float32 [16M]",
        _ => "add float16 [64K]",
    };
    Case { name, inputs: vec![(dtype, n); 2], output: (dtype, n), outer: vec![n], locals: 0, stages: vec![body] }
}

fn gelu(n: i64) -> Case {
    let mut body = Body::new(&[]);
    let x = body.load(0, DType::F32, &v(0));
    let (half, root, one) = (body.constant(0.5), body.constant(std::f64::consts::FRAC_1_SQRT_2), body.constant(1.0));
    let scaled = body.binary(Binary::Mul, x, root);
    let erf = body.unary(Unary::Erf, scaled);
    let above = body.binary(Binary::Add, erf, one);
    let halved = body.binary(Binary::Mul, x, half);
    let out = body.binary(Binary::Mul, halved, above);
    body.store(1, &v(0), out);
    let f = DType::F32;
    Case { name: "gelu [256K]", inputs: vec![(f, n)], output: (f, n), outer: vec![n], locals: 0, stages: vec![body] }
}

fn softmax(rows: i64, columns: i64) -> Case {
    let at = &(&v(0) * columns) + &v(1);
    let f = DType::F32;
    let mut largest = Body::new(&[columns]);
    let x = largest.load(0, f, &at);
    largest.reduce(Combine::Max, x, 0);
    let exp = |body: &mut Body| {
        let (x, m) = (body.load(0, f, &at), body.push(Op::Local(0), f));
        let d = body.binary(Binary::Sub, x, m);
        body.unary(Unary::Exp, d)
    };
    let mut total = Body::new(&[columns]);
    let e = exp(&mut total);
    total.reduce(Combine::Sum, e, 1);
    let mut divide = Body::new(&[columns]);
    let e = exp(&mut divide);
    let s = divide.push(Op::Local(1), f);
    let q = divide.binary(Binary::Div, e, s);
    divide.store(1, &at, q);
    let n = rows * columns;
    let stages = vec![largest, total, divide];
    let name = "softmax [197, 768]";
    Case { name, inputs: vec![(f, n)], output: (f, n), outer: vec![rows], locals: 2, stages }
}

fn layer_norm(rows: i64, columns: i64) -> Case {
    let at = &(&v(0) * columns) + &v(1);
    let f = DType::F32;
    let sum = |body: &mut Body| {
        let (x, r) = (body.load(0, f, &at), body.load(1, f, &at));
        body.binary(Binary::Add, x, r)
    };
    let centred = |body: &mut Body| {
        let s = sum(body);
        let (total, scale) = (body.push(Op::Local(0), f), body.constant(1.0 / columns as f64));
        let mean = body.binary(Binary::Mul, total, scale);
        body.binary(Binary::Sub, s, mean)
    };
    let mut first = Body::new(&[columns]);
    let s = sum(&mut first);
    first.reduce(Combine::Sum, s, 0);
    let mut second = Body::new(&[columns]);
    let d = centred(&mut second);
    let square = second.binary(Binary::Mul, d, d);
    second.reduce(Combine::Sum, square, 1);
    let mut third = Body::new(&[columns]);
    let d = centred(&mut third);
    let (total, scale, epsilon) =
        (third.push(Op::Local(1), f), third.constant(1.0 / columns as f64), third.constant(1e-5));
    let variance = third.binary(Binary::Mul, total, scale);
    let variance = third.binary(Binary::Add, variance, epsilon);
    let r = third.unary(Unary::Rsqrt, variance);
    let normal = third.binary(Binary::Mul, d, r);
    let (w, b) = (third.load(2, f, &v(1)), third.load(3, f, &v(1)));
    let scaled = third.binary(Binary::Mul, normal, w);
    let out = third.binary(Binary::Add, scaled, b);
    third.store(4, &at, out);
    let n = rows * columns;
    let inputs = vec![(f, n), (f, n), (f, columns), (f, columns)];
    let name = "residual + layer norm [197, 768]";
    Case { name, inputs, output: (f, n), outer: vec![rows], locals: 2, stages: vec![first, second, third] }
}

fn transpose(rows: i64, columns: i64) -> Case {
    let f = DType::F32;
    let mut body = Body::new(&[]);
    let x = body.load(0, f, &(&(&v(1) * rows) + &v(0)));
    body.store(1, &(&(&v(0) * columns) + &v(1)), x);
    let n = rows * columns;
    let name = "transpose [512, 512]";
    Case { name, inputs: vec![(f, n)], output: (f, n), outer: vec![rows, columns], locals: 0, stages: vec![body] }
}

/// [batch, length, heads, size] to [batch, heads, length, size].
fn heads(batch: i64, length: i64, heads: i64, size: i64) -> Case {
    let f = DType::F32;
    let mut body = Body::new(&[]);
    let row = &(&(&v(0) * length) + &v(2)) * heads;
    let x = body.load(0, f, &(&(&(&row + &v(1)) * size) + &v(3)));
    let row = &(&(&v(0) * heads) + &v(1)) * length;
    body.store(1, &(&(&(&row + &v(2)) * size) + &v(3)), x);
    let n = batch * length * heads * size;
    let outer = vec![batch, heads, length, size];
    Case {
        name: "split heads [8, 197, 12, 64]",
        inputs: vec![(f, n)],
        output: (f, n),
        outer,
        locals: 0,
        stages: vec![body],
    }
}

/// The columns of an image for a 3 x 3 convolution with padding, by division and remainder.
fn windows(channels: i64, side: i64) -> Case {
    let f = DType::F32;
    let mut body = Body::new(&[]);
    let (row, column) = (v(1).floor_div(&Expr::int(side)), v(1).modulo(&Expr::int(side)));
    let (ky, kx) = (v(0).modulo(&Expr::int(9)).floor_div(&Expr::int(3)), v(0).modulo(&Expr::int(3)));
    let (y, x) = (&(&row + &ky) - &Expr::int(1), &(&column + &kx) - &Expr::int(1));
    let (zero, end) =
        (body.push(Op::Const(Scalar::Int(0)), DType::I64), body.push(Op::Const(Scalar::Int(side)), DType::I64));
    let mut guard = None;
    for at in [&y, &x] {
        let i = body.push(Op::Index(at.clone()), DType::I64);
        let low = body.push(Op::Binary(Binary::Ge, i, zero), DType::Bool);
        let high = body.push(Op::Binary(Binary::Lt, i, end), DType::Bool);
        let both = body.binary(Binary::And, low, high);
        guard = Some(match guard {
            Some(guard) => body.binary(Binary::And, guard, both),
            None => both,
        });
    }
    let plane = &v(0).floor_div(&Expr::int(9)) * (side * side);
    let index = &(&plane + &(&y * side)) + &x;
    let x = body.push(Op::Load { param: 0, index, guard }, f);
    let points = side * side;
    body.store(1, &(&(&v(0) * points) + &v(1)), x);
    let name = "windows 3 x 3 [8, 56, 56]";
    let (inputs, output) = (vec![(f, channels * points)], (f, channels * 9 * points));
    Case { name, inputs, output, outer: vec![channels * 9, points], locals: 0, stages: vec![body] }
}

fn column_sum(rows: i64, columns: i64) -> Case {
    let f = DType::F32;
    let mut body = Body::new(&[rows]);
    let x = body.load(0, f, &(&(&v(1) * columns) + &v(0)));
    body.reduce(Combine::Sum, x, 0);
    let mut store = Body::new(&[]);
    let s = store.push(Op::Local(0), f);
    store.store(1, &v(0), s);
    let name = "sum over rows [197, 768]";
    let inputs = vec![(f, rows * columns)];
    Case { name, inputs, output: (f, columns), outer: vec![columns], locals: 1, stages: vec![body, store] }
}

fn max_pool(planes: i64, side: i64) -> Case {
    let f = DType::F32;
    let half = side / 2;
    let mut body = Body::new(&[2, 2]);
    let y = &(&v(1) * 2) + &v(3);
    let x = &(&v(2) * 2) + &v(4);
    let x = body.load(0, f, &(&(&(&(&v(0) * side) + &y) * side) + &x));
    body.reduce(Combine::Max, x, 0);
    let mut store = Body::new(&[]);
    let m = store.push(Op::Local(0), f);
    store.store(1, &(&(&(&(&v(0) * half) + &v(1)) * half) + &v(2)), m);
    let (inputs, output) = (vec![(f, planes * side * side)], (f, planes * half * half));
    let outer = vec![planes, half, half];
    Case { name: "max pool 2 x 2 [256, 56, 56]", inputs, output, outer, locals: 1, stages: vec![body, store] }
}

fn embedding(tokens: i64, vocabulary: i64, width: i64) -> Case {
    let f = DType::F32;
    let mut body = Body::new(&[]);
    let i = body.load(0, DType::I64, &v(0));
    let check = Op::Check { index: i, size: Expr::int(vocabulary), wrap: false, guard: None, message: 0 };
    let i = body.push(check, DType::I64);
    let x = body.load(1, f, &(&(&Expr::symbol(Symbol::Value(i)) * width) + &v(1)));
    body.store(2, &(&(&v(0) * width) + &v(1)), x);
    let inputs = vec![(DType::I64, tokens), (f, vocabulary * width)];
    let outer = vec![tokens, width];
    let name = "embedding [512] of [1000, 768]";
    Case { name, inputs, output: (f, tokens * width), outer, locals: 0, stages: vec![body] }
}

fn plan(case: Case) -> Plan {
    let tensor = |i: usize, dtype, n: i64| Input {
        name: format!("x{i}"),
        kind: InputKind::Tensor {
            dtype,
            sizes: vec![Expr::int(n)],
            strides: vec![Expr::int(1)],
            buffer: i as u32,
            written: false,
        },
    };
    let count = case.inputs.len();
    let inputs: Vec<Input> = case.inputs.iter().enumerate().map(|(i, (dtype, n))| tensor(i, *dtype, *n)).collect();
    let mut params: Vec<Param> =
        case.inputs.iter().map(|(dtype, _)| Param { dtype: *dtype, access: Access::Read }).collect();
    params.push(Param { dtype: case.output.0, access: Access::Write });
    let mut buffers: Vec<Buffer> = case
        .inputs
        .iter()
        .enumerate()
        .map(|(i, (dtype, n))| Buffer { dtype: *dtype, elements: Expr::int(*n), kind: BufferKind::Input(i as u32) })
        .collect();
    let elements = Expr::int(case.output.1);
    // The output stays in the arena, so that what is timed is the kernel and not the system's fresh pages.
    buffers.push(Buffer { dtype: case.output.0, elements, kind: BufferKind::Temporary });
    let kernel = Kernel {
        name: case.name.into(),
        params,
        outer: case.outer.iter().map(|s| Expr::int(*s)).collect(),
        stages: case.stages.into_iter().map(|b| b.0).collect(),
        locals: vec![DType::F32; case.locals],
        ordered: false,
        comment: vec![],
    };
    Plan {
        name: case.name.into(),
        symbols: vec![],
        inputs,
        outputs: vec![Output { name: "done".into(), kind: OutputKind::Int(Expr::int(1)) }],
        buffers,
        kernels: vec![kernel],
        steps: vec![Step::Kernel { kernel: 0, args: (0..=count as u32).collect() }],
        messages: vec![String::new()],
        in_spec: None,
        out_spec: None,
        checks_first: false,
    }
}

fn time(case: Case) -> Result<()> {
    if std::env::args().nth(1).is_some_and(|part| !case.name.contains(&part)) {
        return Ok(());
    }
    let (name, inputs, output) = (case.name, case.inputs.clone(), case.output);
    let mut executor = Executor::new(Arc::new(plan(case)), &|_| Err(Error::internal("no data")))?;
    let mut memory = Vec::new();
    for (dtype, n) in &inputs {
        let mut bytes = Aligned::zeros(*n as usize * dtype.size())?;
        for (i, element) in bytes.chunks_exact_mut(dtype.size()).enumerate() {
            match dtype {
                DType::F32 => element.copy_from_slice(&((i % 1000) as f32 / 250.0 - 2.0).to_ne_bytes()),
                DType::I64 => element.copy_from_slice(&((i * 7 % 1000) as i64).to_ne_bytes()),
                _ => element.copy_from_slice(&(0x3c00u16 + (i % 64) as u16).to_ne_bytes()),
            }
        }
        memory.push(bytes);
    }
    let mut state = State::default();
    let options = Options { threads: Threads::one(), ..Options::default() };
    let mut run = || {
        let given = memory.iter().map(|bytes| InputValue::Tensor(bytes)).collect();
        executor.run(&mut state, &[], given, &options)
    };
    run()?;
    let (start, mut best) = (Instant::now(), Duration::MAX);
    while start.elapsed() < Duration::from_millis(500) {
        let before = Instant::now();
        run()?;
        best = best.min(before.elapsed());
    }
    let bytes: usize = inputs.iter().chain([&output]).map(|(dtype, n)| *n as usize * dtype.size()).sum();
    let seconds = best.as_secs_f64();
    println!("{name:36} {:9.3} ms {:8.2} GB/s", seconds * 1e3, bytes as f64 / seconds / 1e9);
    Ok(())
}

fn main() -> Result<()> {
    time(add(1 << 24, DType::F32))?;
    time(add(1 << 16, DType::F32))?;
    time(add(1 << 16, DType::F16))?;
    time(gelu(1 << 18))?;
    time(softmax(197, 768))?;
    time(layer_norm(197, 768))?;
    time(column_sum(197, 768))?;
    time(transpose(512, 512))?;
    time(heads(8, 197, 12, 64))?;
    time(max_pool(256, 56))?;
    time(windows(8, 56))?;
    time(embedding(512, 1000, 768))
}
