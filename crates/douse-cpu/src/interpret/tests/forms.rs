//! The forms of kernels that programs are made of.

use douse_core::pointwise::{Binary, Combine, Unary};
use douse_core::sym::{Expr, Symbol};
use douse_core::{DType, Scalar};
use douse_program::kernel::{Access, Effect, Op};

use super::build::{Body, Memory, int, kernel, var};
use super::run;
use crate::threads::Threads;

const F32: DType = DType::F32;
use Access::{Read, Update, Write};

fn one() -> Threads {
    Threads::one()
}

/// `out[i, j] = x[i, j] + y[j]` in every dtype that has addition, over rows of a size that no block divides.
#[test]
fn addition_broadcasts_in_every_dtype() {
    for dtype in DType::ALL {
        if !dtype.is_float() && !dtype.is_int() || dtype == DType::F8E4M3FNUZ || dtype == DType::F8E5M2FNUZ {
            continue;
        }
        let (rows, columns) = (7, 150);
        let mut body = Body::new(&[]);
        let at = &(&var(0) * columns) + &var(1);
        let x = body.load(0, dtype, &at);
        let y = body.load(1, dtype, &var(1));
        let sum = body.binary(Binary::Add, x, y);
        body.store(2, &at, sum);
        let k = kernel(&[(dtype, Read), (dtype, Read), (dtype, Write)], &[int(rows), int(columns)], &[], vec![body]);
        let x = Memory::of(dtype, (0..rows * columns).map(|i| (i % 100) as f64));
        let y = Memory::of(dtype, (0..columns).map(|i| (i % 50) as f64));
        let mut memory = [x.clone(), y.clone(), Memory::zeros(dtype, x.len())];
        run(&k, &mut memory, &[], &one()).unwrap();
        for i in 0..x.len() {
            let exact = x.float(i) + y.float(i % columns as usize);
            let expected = Memory::of(dtype, [exact]).float(0);
            assert_eq!(memory[2].float(i), expected, "{dtype} {i}");
        }
    }
}

#[test]
fn rows_softmax() {
    let (rows, columns) = (9, 700);
    let at = &(&var(0) * columns) + &var(1);
    let inner = [int(columns)];
    let mut largest = Body::new(&inner);
    let x = largest.load(0, F32, &at);
    largest.reduce(Combine::Max, x, 0);
    let mut total = Body::new(&inner);
    let exp = |body: &mut Body| {
        let x = body.load(0, F32, &at);
        let m = body.local(0, F32);
        let d = body.binary(Binary::Sub, x, m);
        body.unary(Unary::Exp, d)
    };
    let e = exp(&mut total);
    total.reduce(Combine::Sum, e, 1);
    let mut divide = Body::new(&inner);
    let e = exp(&mut divide);
    let s = divide.local(1, F32);
    let q = divide.binary(Binary::Div, e, s);
    divide.store(1, &at, q);
    let k = kernel(&[(F32, Read), (F32, Write)], &[int(rows)], &[F32, F32], vec![largest, total, divide]);
    let x: Vec<f32> = (0..rows * columns).map(|i| ((i * 37) % 101) as f32 / 7.0).collect();
    for threads in [one(), Threads::new(3).unwrap()] {
        let mut memory = [Memory::f32(&x), Memory::zeros(F32, x.len())];
        run(&k, &mut memory, &[], &threads).unwrap();
        for (row, out) in x.chunks(columns as usize).zip(memory[1].floats().chunks(columns as usize)) {
            let m = row.iter().copied().fold(f32::MIN, f32::max) as f64;
            let s: f64 = row.iter().map(|x| (*x as f64 - m).exp()).sum();
            for (x, y) in row.iter().zip(out) {
                let expected = (*x as f64 - m).exp() / s;
                assert!((y - expected).abs() <= 1e-6 * expected, "{y} {expected}");
            }
        }
    }
}

#[test]
fn transposing_copy() {
    let (rows, columns) = (300, 200);
    let mut body = Body::new(&[]);
    let x = body.load(0, F32, &(&(&var(1) * rows) + &var(0)));
    body.store(1, &(&(&var(0) * columns) + &var(1)), x);
    let k = kernel(&[(F32, Read), (F32, Write)], &[int(rows), int(columns)], &[], vec![body]);
    let x: Vec<f32> = (0..rows * columns).map(|i| i as f32).collect();
    for threads in [one(), Threads::new(2).unwrap()] {
        let mut memory = [Memory::f32(&x), Memory::zeros(F32, x.len())];
        run(&k, &mut memory, &[], &threads).unwrap();
        for i in 0..rows {
            for j in 0..columns {
                assert_eq!(memory[1].float((i * columns + j) as usize), (j * rows + i) as f64);
            }
        }
    }
}

fn gather(indices: &[i64]) -> (Vec<f64>, Option<String>) {
    let mut body = Body::new(&[]);
    let i = body.load(0, DType::I64, &var(0));
    let checked = Op::Check { index: i, size: int(5), wrap: true, guard: None, message: 0 };
    let i = body.push(checked, DType::I64);
    let row = &Expr::symbol(Symbol::Value(i)) * 2;
    let x = body.load(1, F32, &(&row + &var(1)));
    body.store(2, &(&(&var(0) * 2) + &var(1)), x);
    let params = [(DType::I64, Read), (F32, Read), (F32, Write)];
    let k = kernel(&params, &[int(indices.len() as i64), int(2)], &[], vec![body]);
    let table: Vec<f32> = (0..10).map(|x| x as f32).collect();
    let mut memory = [Memory::i64(indices), Memory::f32(&table), Memory::zeros(F32, indices.len() * 2)];
    let error = run(&k, &mut memory, &[], &one()).err().map(|e| e.message);
    (memory[2].floats(), error)
}

#[test]
fn gathers_wrap_and_refuse() {
    assert_eq!(gather(&[4, -1, 0, -5]), (vec![8., 9., 8., 9., 0., 1., 0., 1.], None));
    let (_, error) = gather(&[1, 7, -6]);
    assert_eq!(error.unwrap(), "index 7 is out of range for a dimension of size 5 (the message)");
    let (_, error) = gather(&[1, -6]);
    assert_eq!(error.unwrap(), "index -6 is out of range for a dimension of size 5 (the message)");
}

#[test]
fn scatters_go_in_order() {
    for (op, expected) in [(None, [6.0, 5.0, 40.0]), (Some(Combine::Sum), [29.0, 27.0, 40.0])] {
        let mut body = Body::new(&[]);
        let i = body.load(0, DType::I32, &var(0));
        let x = body.load(1, F32, &var(0));
        let index = Expr::symbol(Symbol::Value(i));
        body.stage.effects.push(Effect::Update { op, param: 2, index, value: x, guard: None });
        let mut k = kernel(&[(DType::I32, Read), (F32, Read), (F32, Update)], &[int(6)], &[], vec![body]);
        k.ordered = true;
        let mut memory = [
            Memory::of(DType::I32, [0., 1., 0., 1., 1., 0.]),
            Memory::f32(&[1., 2., 3., 4., 5., 6.]),
            Memory::f32(&[19., 16., 40.]),
        ];
        run(&k, &mut memory, &[], &one()).unwrap();
        assert_eq!(memory[2].floats(), expected, "{op:?}");
    }
}

/// Scans run along rows longer than a block, and along columns.
#[test]
fn running_sums_restart_with_each_row() {
    for (rows, columns, by) in [(3, 1300, [1300, 1]), (2, 600, [1, 2])] {
        let mut body = Body::new(&[int(columns)]);
        let at = &(&var(0) * by[0]) + &(&var(1) * by[1]);
        let x = body.load(0, F32, &at);
        body.stage.effects.push(Effect::Scan { op: Combine::Sum, value: x, param: 1, index: at });
        let k = kernel(&[(F32, Read), (F32, Write)], &[int(rows)], &[], vec![body]);
        let x: Vec<f32> = (0..rows * columns).map(|i| (i % 11) as f32 - 4.5).collect();
        let mut memory = [Memory::f32(&x), Memory::zeros(F32, x.len())];
        run(&k, &mut memory, &[], &one()).unwrap();
        for row in 0..rows {
            let mut sum = 0.0;
            for column in 0..columns {
                let at = (row * by[0] + column * by[1]) as usize;
                sum += x[at] as f64;
                assert_eq!(memory[1].float(at), sum as f32 as f64, "{row} {column}");
            }
        }
    }
}

#[test]
fn argmax_takes_the_first_of_equals_and_the_first_nan() {
    let nan = f32::NAN;
    let rows: [[f32; 4]; 4] = [[1., 3., 3., 2.], [nan, 5., nan, 1.], [0., 1., nan, nan], [f32::NEG_INFINITY; 4]];
    let mut body = Body::new(&[int(4)]);
    let x = body.load(0, F32, &(&(&var(0) * 4) + &var(1)));
    let position = body.index(&var(1));
    let effect = Effect::ArgReduce { max: true, value: x, position, local: 0, local_position: 1 };
    body.stage.effects.push(effect);
    let mut store = Body::new(&[]);
    let position = store.local(1, DType::I64);
    store.store(1, &var(0), position);
    let k = kernel(&[(F32, Read), (DType::I64, Write)], &[int(4)], &[F32, DType::I64], vec![body, store]);
    let mut memory = [Memory::f32(rows.as_flattened()), Memory::zeros(DType::I64, 4)];
    run(&k, &mut memory, &[], &one()).unwrap();
    assert_eq!(memory[1].ints(), [1, 0, 2, 0]);
}

#[test]
fn padding_reads_nothing_outside() {
    let mut body = Body::new(&[]);
    let shifted = &var(0) - &int(2);
    let i = body.index(&shifted);
    let (low, high) = (body.constant(Scalar::Int(0), DType::I64), body.constant(Scalar::Int(3), DType::I64));
    let (from, to) = (body.binary(Binary::Ge, i, low), body.binary(Binary::Lt, i, high));
    let guard = body.binary(Binary::And, from, to);
    let x = body.push(Op::Load { param: 0, index: shifted, guard: Some(guard) }, F32);
    body.store(1, &var(0), x);
    let k = kernel(&[(F32, Read), (F32, Write)], &[int(8)], &[], vec![body]);
    let mut memory = [Memory::f32(&[1., 2., 3.]), Memory::f32(&[9.; 8])];
    run(&k, &mut memory, &[], &one()).unwrap();
    assert_eq!(memory[1].floats(), [0., 0., 1., 2., 3., 0., 0., 0.]);
}

/// Sums over the first dimension, of sizes given by symbols; an empty sum is 0.
#[test]
fn columns_sum_at_any_size() {
    let (s0, s1) = (Expr::symbol(Symbol::Size(0)), Expr::symbol(Symbol::Size(1)));
    let mut body = Body::new(std::slice::from_ref(&s0));
    let x = body.load(0, F32, &(&(&var(1) * &s1) + &var(0)));
    body.reduce(Combine::Sum, x, 0);
    let mut store = Body::new(&[]);
    let sum = store.local(0, F32);
    store.store(1, &var(0), sum);
    let k = kernel(&[(F32, Read), (F32, Write)], &[s1], &[F32], vec![body, store]);
    for (rows, columns) in [(1000, 70), (3, 1000), (0, 5), (5, 0)] {
        let x: Vec<f32> = (0..rows * columns).map(|i| (i % 13) as f32 * 0.1).collect();
        let mut memory = [Memory::f32(&x), Memory::f32(&vec![7.0; columns])];
        run(&k, &mut memory, &[rows as i64, columns as i64], &one()).unwrap();
        for column in 0..columns {
            let expected: f64 = (0..rows).map(|row| x[row * columns + column] as f64).sum();
            assert_eq!(memory[1].float(column), expected as f32 as f64);
        }
    }
}

#[test]
fn division_by_zero_is_an_error_and_int_min_wraps() {
    let divide = |b: &[i64]| {
        let mut body = Body::new(&[]);
        let (x, y) = (body.load(0, DType::I64, &var(0)), body.load(1, DType::I64, &var(0)));
        let q = body.binary(Binary::FloorDivide, x, y);
        body.store(2, &var(0), q);
        let params = [(DType::I64, Read), (DType::I64, Read), (DType::I64, Write)];
        let k = kernel(&params, &[int(3)], &[], vec![body]);
        let mut memory = [Memory::i64(&[i64::MIN, -7, 7]), Memory::i64(b), Memory::zeros(DType::I64, 3)];
        run(&k, &mut memory, &[], &one()).map(|()| memory[2].ints())
    };
    assert_eq!(divide(&[-1, 2, -2]).unwrap(), [i64::MIN, -4, -4]);
    assert_eq!(divide(&[1, 0, 1]).unwrap_err().message, "integer division or modulo by zero");
}

/// A guarded load gives 0 where there is nothing; dividing by that is nobody's error.
#[test]
fn lanes_without_a_value_do_not_fail() {
    let mut body = Body::new(&[]);
    let guard = body.load(0, DType::Bool, &var(0));
    let y = body.push(Op::Load { param: 1, index: var(0), guard: Some(guard) }, DType::I32);
    let q = body.binary(Binary::Remainder, y, y);
    let checked = Op::Check { index: q, size: int(0), wrap: false, guard: None, message: 0 };
    let none = body.constant(Scalar::Bool(false), DType::Bool);
    let Op::Check { index, size, wrap, message, .. } = checked else { unreachable!() };
    let q = body.cast(index, DType::I64);
    let q = body.push(Op::Check { index: q, size, wrap, guard: Some(none), message }, DType::I64);
    body.store(2, &var(0), q);
    let k = kernel(&[(DType::Bool, Read), (DType::I32, Read), (DType::I64, Write)], &[int(3)], &[], vec![body]);
    let mut memory =
        [Memory::of(DType::Bool, [1., 0., 1.]), Memory::of(DType::I32, [3., 0., 5.]), Memory::i64(&[9; 3])];
    run(&k, &mut memory, &[], &one()).unwrap();
    assert_eq!(memory[2].ints(), [0; 3]);
}

/// Sums of a million float32 are as exact as float32 can say.
#[test]
fn long_sums_are_exact() {
    let n = 1_000_000;
    let mut body = Body::new(&[int(n)]);
    let x = body.load(0, F32, &var(0));
    body.reduce(Combine::Sum, x, 0);
    let mut store = Body::new(&[]);
    let sum = store.local(0, F32);
    store.store(1, &int(0), sum);
    let k = kernel(&[(F32, Read), (F32, Write)], &[], &[F32], vec![body, store]);
    let mut memory = [Memory::f32(&vec![0.1; n as usize]), Memory::zeros(F32, 1)];
    run(&k, &mut memory, &[], &one()).unwrap();
    assert!((memory[1].float(0) - n as f64 * 0.1f32 as f64).abs() < 0.01, "{}", memory[1].float(0));
}

#[test]
fn random_words_are_those_of_philox() {
    let mut body = Body::new(&[]);
    let word = body.push(Op::Random { draw: 2, index: &var(0) + &int(10), word: 1 }, DType::I64);
    body.store(0, &var(0), word);
    let k = kernel(&[(DType::I64, Write)], &[int(4)], &[], vec![body]);
    let mut memory = [Memory::zeros(DType::I64, 4)];
    run(&k, &mut memory, &[], &one()).unwrap();
    for i in 0..4 {
        let block = douse_core::philox::philox4x32([10 + i, 0, 2, 3], [5, 0]);
        assert_eq!(memory[0].int(i as usize), block[1] as i64);
    }
}
