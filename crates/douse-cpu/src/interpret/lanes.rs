//! Registers as vectors of lanes, and loops over them compiled for the processor's vector instructions.

use douse_core::DType;
use fearless_simd::{Level, Simd};

use super::scalar::Bits;
use crate::simd::{WithSimd, dispatch};

/// Most lanes of a block.
pub(crate) const LANES: usize = 1024;

/// The type that holds a register's lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Class {
    /// float32, and the narrower floats, rounded after each operation.
    F32,
    F64,
    /// Every integer, wrapped to its width after each operation. uint64 by its bits.
    I64,
    /// 0 or 1.
    Bool,
}

impl Class {
    /// Bytes of a lane.
    pub fn size(self) -> usize {
        match self {
            Class::F32 => 4,
            Class::F64 | Class::I64 => 8,
            Class::Bool => 1,
        }
    }

    pub fn of(dtype: DType) -> Class {
        match dtype {
            DType::F64 => Class::F64,
            d if d.is_bool() => Class::Bool,
            d if d.is_int() => Class::I64,
            _ => Class::F32,
        }
    }
}

/// A register: a value a lane, or one value for all lanes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slot<T> {
    pub data: Vec<T>,
    pub one: bool,
}

/// An operand.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Arg<'a, T> {
    One(T),
    Many(&'a [T]),
}

impl<T: Copy> Arg<'_, T> {
    #[inline(always)]
    pub fn at(&self, lane: usize) -> T {
        match self {
            Arg::One(x) => *x,
            Arg::Many(xs) => xs[lane],
        }
    }
}

impl<T: Lane> Slot<T> {
    /// All lanes get one value.
    #[inline]
    pub fn set_one(&mut self, value: T) {
        if self.data.is_empty() {
            self.data.resize(LANES, T::default());
        }
        self.data[0] = value;
        self.one = true;
    }

    /// The first `n` lanes, each to be given its own value.
    #[inline]
    pub fn many(&mut self, n: usize) -> &mut [T] {
        if self.data.len() < n {
            self.data.resize(n.max(LANES), T::default());
        }
        self.one = false;
        &mut self.data[..n]
    }

    #[inline]
    pub fn arg(&self, n: usize) -> Arg<'_, T> {
        if self.one { Arg::One(self.data[0]) } else { Arg::Many(&self.data[..n]) }
    }
}

/// The registers of a class.
pub(crate) type Bank<T> = Vec<Slot<T>>;

/// All registers of a thread.
#[derive(Debug, Default)]
pub(crate) struct Registers {
    f32: Bank<f32>,
    f64: Bank<f64>,
    i64: Bank<i64>,
    bool: Bank<u8>,
}

/// A type of lanes.
pub(crate) trait Lane: bytemuck::Pod + Default + PartialOrd + Bits {
    fn bank(registers: &Registers) -> &Bank<Self>;
    fn bank_mut(registers: &mut Registers) -> &mut Bank<Self>;
}

macro_rules! lane {
    ($($t:ty, $field:ident;)*) => {$(
        impl Lane for $t {
            fn bank(registers: &Registers) -> &Bank<$t> { &registers.$field }
            fn bank_mut(registers: &mut Registers) -> &mut Bank<$t> { &mut registers.$field }
        }
    )*};
}
lane! { f32, f32; f64, f64; i64, i64; u8, bool; }

impl Registers {
    /// Makes room for that many registers of a class.
    pub fn reserve(&mut self, class: Class, count: usize) {
        fn grow<T: Lane>(bank: &mut Bank<T>, count: usize) {
            if bank.len() < count {
                bank.resize_with(count, Slot::default);
            }
        }
        match class {
            Class::F32 => grow(&mut self.f32, count),
            Class::F64 => grow(&mut self.f64, count),
            Class::I64 => grow(&mut self.i64, count),
            Class::Bool => grow(&mut self.bool, count),
        }
    }

    /// Makes a register hold `n` values of its own.
    pub fn spread_out(&mut self, class: Class, slot: usize, n: usize) {
        match class {
            Class::F32 => drop(self.f32[slot].many(n)),
            Class::F64 => drop(self.f64[slot].many(n)),
            Class::I64 => drop(self.i64[slot].many(n)),
            Class::Bool => drop(self.bool[slot].many(n)),
        }
    }

    #[inline]
    pub fn arg<T: Lane>(&self, slot: usize, n: usize) -> Arg<'_, T> {
        T::bank(self)[slot].arg(n)
    }

    /// Takes a register out, to be written while others are read; [`Registers::put`] brings it back.
    #[inline]
    pub fn take<T: Lane>(&mut self, slot: usize) -> Slot<T> {
        std::mem::take(&mut T::bank_mut(self)[slot])
    }

    #[inline]
    pub fn put<T: Lane>(&mut self, slot: usize, register: Slot<T>) {
        T::bank_mut(self)[slot] = register;
    }
}

/// Loops over lanes, for the instructions this processor has. They run over indices: an iterator's constructor, left as a call by the
/// compiler in code for other instructions than its own, costs as much as a block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Loops {
    pub level: Level,
}

struct Map1<'a, A, R, F> {
    a: &'a [A],
    out: &'a mut [R],
    f: F,
}

impl<A: Copy, R, F: Fn(A) -> R> WithSimd for Map1<'_, A, R, F> {
    type Output = ();
    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let a = &self.a[..self.out.len()];
        for (i, out) in self.out.iter_mut().enumerate() {
            *out = (self.f)(a[i]);
        }
    }
}

struct Map2<'a, A, B, R, F> {
    a: &'a [A],
    b: &'a [B],
    out: &'a mut [R],
    f: F,
}

impl<A: Copy, B: Copy, R, F: Fn(A, B) -> R> WithSimd for Map2<'_, A, B, R, F> {
    type Output = ();
    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let n = self.out.len();
        let (a, b) = (&self.a[..n], &self.b[..n]);
        for (i, out) in self.out.iter_mut().enumerate() {
            *out = (self.f)(a[i], b[i]);
        }
    }
}

struct Map3<'a, A, B, C, R, F> {
    a: &'a [A],
    b: &'a [B],
    c: &'a [C],
    out: &'a mut [R],
    f: F,
}

impl<A: Copy, B: Copy, C: Copy, R, F: Fn(A, B, C) -> R> WithSimd for Map3<'_, A, B, C, R, F> {
    type Output = ();
    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let n = self.out.len();
        let (a, b, c) = (&self.a[..n], &self.b[..n], &self.c[..n]);
        for (i, out) in self.out.iter_mut().enumerate() {
            *out = (self.f)(a[i], b[i], c[i]);
        }
    }
}

struct Each<'a, A, F> {
    a: &'a mut [A],
    f: F,
}

impl<A: Copy, F: Fn(A) -> A> WithSimd for Each<'_, A, F> {
    type Output = ();
    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        for a in self.a.iter_mut() {
            *a = (self.f)(*a);
        }
    }
}

struct Join<'a, A, B, F> {
    a: &'a mut [A],
    b: &'a [B],
    f: F,
}

impl<A: Copy, B: Copy, F: Fn(A, B) -> A> WithSimd for Join<'_, A, B, F> {
    type Output = ();
    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let b = &self.b[..self.a.len()];
        for (i, a) in self.a.iter_mut().enumerate() {
            *a = (self.f)(*a, b[i]);
        }
    }
}

/// Number of partial results in [`Loops::fold`]: enough for the additions of a vector register not to wait for each other.
const PARTIALS: usize = 64;

struct Fold<'a, A, R, F> {
    a: &'a [A],
    start: R,
    f: F,
}

impl<A: Copy, R: Copy, F: Fn(R, A) -> R> WithSimd for Fold<'_, A, R, F> {
    type Output = [R; PARTIALS];
    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> [R; PARTIALS] {
        let mut partial = [self.start; PARTIALS];
        let mut blocks = self.a.chunks_exact(PARTIALS);
        for block in &mut blocks {
            let block = &block[..PARTIALS];
            for (i, p) in partial.iter_mut().enumerate() {
                *p = (self.f)(*p, block[i]);
            }
        }
        for (p, a) in partial.iter_mut().zip(blocks.remainder()) {
            *p = (self.f)(*p, *a);
        }
        partial
    }
}

impl Loops {
    pub fn new() -> Loops {
        Loops { level: Level::new() }
    }

    #[inline(always)]
    pub fn map1<A: Lane, R: Lane>(&self, a: Arg<A>, out: &mut Slot<R>, n: usize, f: impl Fn(A) -> R) {
        match a {
            Arg::One(a) => out.set_one(f(a)),
            Arg::Many(a) => dispatch(self.level, Map1 { a, out: out.many(n), f }),
        }
    }

    #[inline(always)]
    pub fn map2<A: Lane, B: Lane, R: Lane>(
        &self,
        a: Arg<A>,
        b: Arg<B>,
        out: &mut Slot<R>,
        n: usize,
        f: impl Fn(A, B) -> R,
    ) {
        match (a, b) {
            (Arg::One(a), Arg::One(b)) => out.set_one(f(a, b)),
            (Arg::Many(a), Arg::One(b)) => dispatch(self.level, Map1 { a, out: out.many(n), f: |a| f(a, b) }),
            (Arg::One(a), Arg::Many(b)) => dispatch(self.level, Map1 { a: b, out: out.many(n), f: |b| f(a, b) }),
            (Arg::Many(a), Arg::Many(b)) => dispatch(self.level, Map2 { a, b, out: out.many(n), f }),
        }
    }

    /// `out = c ? a : b`.
    pub fn select<T: Lane>(&self, c: Arg<u8>, a: Arg<T>, b: Arg<T>, out: &mut Slot<T>, n: usize) {
        match (c, a, b) {
            (Arg::One(c), a, b) => self.map1(if c != 0 { a } else { b }, out, n, |x| x),
            (c, Arg::One(a), Arg::One(b)) => self.map1(c, out, n, |c| if c != 0 { a } else { b }),
            (c, Arg::One(a), b) => self.map2(c, b, out, n, |c, b| if c != 0 { a } else { b }),
            (c, a, Arg::One(b)) => self.map2(c, a, out, n, |c, a| if c != 0 { a } else { b }),
            (Arg::Many(c), Arg::Many(a), Arg::Many(b)) => {
                let f = |c: u8, a: T, b: T| if c != 0 { a } else { b };
                dispatch(self.level, Map3 { a: c, b: a, c: b, out: out.many(n), f });
            }
        }
    }

    /// `a = f(a)` in every lane.
    #[inline(always)]
    pub fn each<T: Lane>(&self, a: &mut [T], f: impl Fn(T) -> T) {
        dispatch(self.level, Each { a, f });
    }

    /// `a = f(a, b)` in every lane.
    #[inline(always)]
    pub fn join<A: Lane, B: Lane>(&self, a: &mut [A], b: &[B], f: impl Fn(A, B) -> A) {
        dispatch(self.level, Join { a, b, f });
    }

    /// All lanes combined: in `PARTIALS` strands, which are then combined pairwise.
    #[inline(always)]
    pub fn fold<A: Lane, R: Lane>(&self, a: &[A], start: R, f: impl Fn(R, A) -> R, combine: impl Fn(R, R) -> R) -> R {
        let mut partial = dispatch(self.level, Fold { a, start, f });
        let mut width = PARTIALS / 2;
        while width > 0 {
            for i in 0..width {
                partial[i] = combine(partial[i], partial[i + width]);
            }
            width /= 2;
        }
        partial[0]
    }
}

struct Slices<'a, A, R, F> {
    a: &'a [A],
    out: &'a mut [R],
    f: F,
}

impl<A, R, F: Fn(&[A], &mut [R])> WithSimd for Slices<'_, A, R, F> {
    type Output = ();
    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        (self.f)(self.a, self.out);
    }
}

impl Loops {
    /// A function of whole slices.
    #[inline(always)]
    pub fn slices<A: Lane, R: Lane>(&self, a: Arg<A>, out: &mut Slot<R>, n: usize, f: impl Fn(&[A], &mut [R])) {
        match a {
            Arg::One(a) => {
                let mut value = [R::default()];
                f(&[a], &mut value);
                out.set_one(value[0]);
            }
            Arg::Many(a) => dispatch(self.level, Slices { a, out: out.many(n), f }),
        }
    }
}
