//! Kernels drawn at random: the blocked interpreter and the plain one agree.

use douse_core::pointwise::{Binary, Combine, Unary};
use douse_core::sym::{Compare, Cond, Expr, Symbol};
use douse_core::{DType, Scalar};
use douse_program::kernel::{Access, Effect, Kernel, Op, Param, Reg};

use super::build::{Body, Memory, int, var};
use super::{naive, run};
use crate::threads::Threads;

/// Xorshift, so that a failure can be repeated from its seed.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % n.max(1)
    }

    fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    fn pick<T: Clone>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())].clone()
    }
}

const DTYPES: [DType; 11] = [
    DType::F32,
    DType::F32,
    DType::F64,
    DType::F16,
    DType::BF16,
    DType::I64,
    DType::I32,
    DType::I16,
    DType::I8,
    DType::U8,
    DType::Bool,
];

/// A kernel and the memory of its parameters.
struct Case {
    kernel: Kernel,
    memory: Vec<Memory>,
}

struct Draw<'a> {
    random: &'a mut Random,
    case: Case,
    outer: Vec<i64>,
}

fn sizes(random: &mut Random, most: usize) -> Vec<i64> {
    (0..random.below(most + 1)).map(|_| random.pick(&[0, 1, 1, 2, 3, 3, 4, 5, 7, 16, 33, 70, 600])).collect()
}

fn numel(sizes: &[i64]) -> i64 {
    sizes.iter().product()
}

impl Draw<'_> {
    fn param(&mut self, memory: Memory, access: Access) -> u32 {
        self.case.kernel.params.push(Param { dtype: memory.dtype, access });
        self.case.memory.push(memory);
        self.case.memory.len() as u32 - 1
    }

    fn values(&mut self, dtype: DType, len: usize) -> Memory {
        let special = [f64::NAN, f64::INFINITY, -0.0, 1e30, 60000.0];
        let random = &mut *self.random;
        let values: Vec<f64> = (0..len)
            .map(|_| match dtype {
                d if d.is_float() && random.chance(3) => random.pick(&special),
                d if d.is_float() => random.below(2000) as f64 / 64.0 - 15.0,
                DType::U8 | DType::Bool => random.below(256) as f64 * random.below(2) as f64,
                _ => random.below(200) as f64 - 100.0,
            })
            .collect();
        Memory::of(dtype, values)
    }

    /// An index over loops of these sizes, and the number of elements it needs.
    fn index(&mut self, loops: &[i64]) -> (Expr, i64) {
        let random = &mut *self.random;
        let (mut index, mut most) = (int(random.below(3) as i64), 2);
        let mut dense = 1;
        for (k, size) in loops.iter().enumerate().rev() {
            let coefficient = if random.chance(60) { dense } else { random.pick(&[0, 1, 2, 3]) };
            dense *= (*size).max(1);
            let along = match random.below(12) {
                0 => var(k).floor_div(&int(2)),
                1 => var(k).modulo(&int(3)),
                2 => {
                    let cond = Cond::compare(Compare::Lt, &var(k), &int(2));
                    Expr::select(&cond, &var(k), &int(1))
                }
                3 => var(k).minimum(&int(2)),
                4 if k > 0 => {
                    // Both loops at once, split anew.
                    let both = &(&var(k - 1) * *size) + &var(k);
                    most += coefficient * (loops[k - 1] * size).max(0);
                    index = index + &both.floor_div(&int(3)) * coefficient;
                    continue;
                }
                _ => var(k),
            };
            most += coefficient * size.max(&3);
            index = index + &along * coefficient;
        }
        (index, most + 1)
    }

    fn load(&mut self, body: &mut Body, loops: &[i64], dtype: DType) -> Reg {
        let (index, len) = self.index(loops);
        let reads: Vec<u32> = (0..self.case.memory.len() as u32)
            .filter(|p| {
                let p = *p as usize;
                let memory = &self.case.memory[p];
                self.case.kernel.params[p].access == Access::Read && memory.dtype == dtype && memory.len() as i64 >= len
            })
            .collect();
        let param = if !reads.is_empty() && self.random.chance(30) {
            self.random.pick(&reads)
        } else {
            let memory = self.values(dtype, len as usize);
            self.param(memory, Access::Read)
        };
        let (mut index, mut guard) = (index, None);
        if !loops.is_empty() && self.random.chance(25) {
            // Shifted out of the parameter, and guarded back into it.
            let shift = self.random.below(4) as i64;
            index = index - &int(shift);
            let i = body.index(&index);
            let zero = body.constant(Scalar::Int(0), DType::I64);
            let mut inside = body.binary(Binary::Ge, i, zero);
            if self.random.chance(50) {
                let bound = body.constant(Scalar::Int(self.random.below(len as usize) as i64), DType::I64);
                let below = body.binary(Binary::Lt, i, bound);
                inside = body.binary(Binary::And, inside, below);
            }
            guard = Some(inside);
        } else if self.random.chance(15) {
            // An index from memory.
            let table: Vec<i64> = (0..len).map(|_| self.random.below(2 * len as usize) as i64 - len).collect();
            let table = self.param(Memory::i64(&table), Access::Read);
            let i = body.load(table, DType::I64, &index);
            let check = Op::Check { index: i, size: int(len), wrap: true, guard: None, message: 0 };
            let i = body.push(check, DType::I64);
            index = Expr::symbol(Symbol::Value(i));
        }
        body.push(Op::Load { param, index, guard }, dtype)
    }

    fn value(&mut self, body: &mut Body, loops: &[i64], locals: &[DType]) -> Reg {
        let dtype = self.random.pick(&DTYPES);
        for _ in 0..1 + self.random.below(2) {
            self.load(body, loops, dtype);
        }
        if self.random.chance(40) && !locals.is_empty() {
            let local = self.random.below(locals.len());
            body.local(local as u32, locals[local]);
        }
        if self.random.chance(20) && !loops.is_empty() {
            let (index, _) = self.index(loops);
            body.index(&index);
        }
        for _ in 0..self.random.below(7) {
            self.instruction(body);
        }
        body.stage.body.len() as Reg - 1
    }

    fn instruction(&mut self, body: &mut Body) {
        let a = self.random.below(body.stage.body.len()) as Reg;
        let dtype = body.dtype(a);
        let same: Vec<Reg> = (0..body.stage.body.len() as Reg).filter(|r| body.dtype(*r) == dtype).collect();
        let b = self.random.pick(&same);
        match self.random.below(10) {
            0 => {
                let to = self.random.pick(&DTYPES);
                // What floats beyond an integer's range become is not the subject.
                if !(dtype.is_float() && to.is_int()) {
                    body.cast(a, to);
                }
            }
            1 => {
                let c: Vec<Reg> = (0..body.stage.body.len() as Reg).filter(|r| body.dtype(*r) == DType::Bool).collect();
                if !c.is_empty() {
                    let c = self.random.pick(&c);
                    body.push(Op::Select(c, a, b), dtype);
                }
            }
            2 => {
                let value = if dtype.is_float() { Scalar::Float(1.5) } else { Scalar::Int(1) };
                body.constant(value, dtype);
            }
            3 | 4 => {
                let ops: &[Unary] = match dtype {
                    DType::Bool => &[Unary::Not],
                    d if d.is_float() => {
                        &[Unary::Neg, Unary::Abs, Unary::Exp, Unary::Tanh, Unary::Sqrt, Unary::Floor, Unary::IsNan]
                    }
                    _ => &[Unary::Neg, Unary::Abs, Unary::BitwiseNot],
                };
                body.unary(self.random.pick(ops), a);
            }
            _ => {
                use Binary::*;
                let ops: &[Binary] = match dtype {
                    DType::Bool => &[And, Xor, Maximum, Eq, Lt],
                    d if d.is_float() => &[Add, Sub, Mul, Maximum, Minimum, Lt, Eq, Ge],
                    _ => &[Add, Sub, Mul, Maximum, Minimum, Lt, Eq, And, Xor],
                };
                body.binary(self.random.pick(ops), a, b);
            }
        }
    }

    /// A dense row-major index over loops of these sizes.
    fn dense(loops: &[i64]) -> Expr {
        loops.iter().enumerate().fold(int(0), |index, (k, size)| &(&index * *size) + &var(k))
    }

    fn stage(&mut self, last: bool) {
        let random = &mut *self.random;
        let inner = match (last, random.below(4)) {
            (true, 0 | 1) => vec![],
            _ => sizes(random, 2),
        };
        let points = numel(&self.outer).max(1) * numel(&inner).max(1);
        let inner = if points > 20_000 { vec![] } else { inner };
        let loops = [self.outer.as_slice(), &inner].concat();
        let mut body = Body::new(&inner.iter().map(|s| int(*s)).collect::<Vec<_>>());
        let known = self.case.kernel.locals.clone();
        for _ in 0..1 + self.random.below(2) {
            let value = self.value(&mut body, &loops, &known);
            let dtype = body.dtype(value);
            let len = numel(&loops) as usize;
            match self.random.below(6) {
                0 | 1 if !last => {
                    let op = match dtype {
                        DType::Bool => self.random.pick(&[Combine::Or, Combine::Max]),
                        _ => self.random.pick(&[Combine::Sum, Combine::Max, Combine::Min]),
                    };
                    self.case.kernel.locals.push(dtype);
                    body.reduce(op, value, self.case.kernel.locals.len() as u32 - 1);
                }
                2 if !last => {
                    self.case.kernel.locals.extend([dtype, DType::I64]);
                    let local = self.case.kernel.locals.len() as u32 - 2;
                    let position = body.index(&Self::dense(&loops));
                    let max = self.random.chance(50);
                    let effect = Effect::ArgReduce { max, value, position, local, local_position: local + 1 };
                    body.stage.effects.push(effect);
                }
                3 if !inner.is_empty() && !dtype.is_reduced_float() => {
                    let param = self.param(Memory::zeros(dtype, len), Access::Write);
                    let index = Self::dense(&loops);
                    if self.random.chance(50) && dtype != DType::Bool {
                        body.stage.effects.push(Effect::Scan { op: Combine::Sum, value, param, index });
                    } else {
                        let param_position = self.param(Memory::zeros(DType::I64, len), Access::Write);
                        let position = body.index(&var(loops.len() - 1));
                        let max = self.random.chance(50);
                        let effect = Effect::ArgScan { max, value, position, param, param_position, index };
                        body.stage.effects.push(effect);
                    }
                }
                _ => {
                    let param = self.param(Memory::zeros(dtype, len), Access::Write);
                    let mut order: Vec<usize> = (0..loops.len()).collect();
                    if self.random.chance(30) {
                        order.reverse();
                    }
                    let index = order.iter().fold(int(0), |index, k| &(&index * loops[*k]) + &var(*k));
                    body.store(param, &index, value);
                }
            }
        }
        self.case.kernel.stages.push(body.stage);
    }
}

fn draw(random: &mut Random) -> Case {
    let outer = sizes(random, 3);
    let outer = if numel(&outer) > 8000 { vec![600] } else { outer };
    let kernel = Kernel {
        name: "drawn".into(),
        params: vec![],
        outer: outer.iter().map(|s| int(*s)).collect(),
        stages: vec![],
        locals: vec![],
        ordered: false,
        comment: vec![],
    };
    let stages = 1 + random.below(3);
    let mut draw = Draw { random, case: Case { kernel, memory: vec![] }, outer };
    for stage in 0..stages {
        draw.stage(stage + 1 == stages);
    }
    draw.case
}

/// Scatters into few elements, in order.
fn draw_scatter(random: &mut Random) -> Case {
    let outer = vec![random.pick(&[1, 5, 700]), random.pick(&[1, 3, 40])];
    let len = 1 + random.below(9);
    let dtype = random.pick(&[DType::F32, DType::F64, DType::I32, DType::F16, DType::Bool, DType::I8]);
    let kernel = Kernel {
        name: "scatter".into(),
        params: vec![],
        outer: outer.iter().map(|s| int(*s)).collect(),
        stages: vec![],
        locals: vec![],
        ordered: true,
        comment: vec![],
    };
    let mut draw = Draw { random, case: Case { kernel, memory: vec![] }, outer: outer.clone() };
    let mut body = Body::new(&[]);
    let points = numel(&outer) as usize;
    let indices: Vec<i64> = (0..points).map(|_| draw.random.below(len) as i64).collect();
    let indices = draw.param(Memory::i64(&indices), Access::Read);
    let i = body.load(indices, DType::I64, &Draw::dense(&outer));
    let value = draw.load(&mut body, &outer, dtype);
    let guard = draw.random.chance(30).then(|| draw.load(&mut body, &outer, DType::Bool));
    let target = draw.values(dtype, len);
    let param = draw.param(target, Access::Update);
    let op = draw.random.pick(&[None, Some(Combine::Sum), Some(Combine::Max)]);
    let index = Expr::symbol(Symbol::Value(i));
    body.stage.effects.push(Effect::Update { op, param, index, value, guard });
    draw.case.kernel.stages.push(body.stage);
    draw.case
}

fn close(dtype: DType, a: f64, b: f64) -> bool {
    let tolerance = match dtype {
        DType::F64 => 1e-12,
        DType::F32 => 1e-5,
        DType::F16 => 4e-3,
        _ => 4e-2,
    };
    a == b || a.is_nan() && b.is_nan() || (a - b).abs() <= tolerance * (1.0 + a.abs().max(b.abs()))
}

fn compare(seed: u64, case: Case) {
    let (mut expected, mut single, mut shared) = (case.memory.clone(), case.memory.clone(), case.memory);
    naive::run(&case.kernel, &mut expected);
    run(&case.kernel, &mut single, &[], &Threads::one()).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    run(&case.kernel, &mut shared, &[], &Threads::new(2).unwrap()).unwrap();
    assert!(single == shared, "seed {seed}: threads change the result");
    for (p, (found, expected)) in single.iter().zip(&expected).enumerate() {
        if found == expected {
            continue;
        }
        for i in 0..found.len() {
            let equal = match found.dtype.is_float() {
                true => close(found.dtype, found.float(i), expected.float(i)),
                false => found.int(i) == expected.int(i),
            };
            let (x, y, kernel) = (found.float(i), expected.float(i), &case.kernel);
            assert!(equal, "seed {seed}: parameter {p}, element {i}: {x} instead of {y} in {kernel:#?}");
        }
    }
}

fn seeds() -> std::ops::Range<u64> {
    match std::env::var("DOUSE_SEED").ok().and_then(|s| s.parse().ok()) {
        Some(seed) => seed..seed + 1,
        None => 0..400,
    }
}

/// Floats near a jump (a comparison, a cast) can fall on either side of it, so values are drawn where both agree exactly.
#[test]
fn drawn_kernels_give_what_their_meaning_says() {
    for seed in seeds() {
        let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) + 1);
        compare(seed, draw(&mut random));
    }
}

#[test]
fn drawn_scatters_give_what_their_meaning_says() {
    for seed in seeds() {
        let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) + 1);
        compare(seed, draw_scatter(&mut random));
    }
}
