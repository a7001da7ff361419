//! Elements in memory to lanes and back.

use bytemuck::Pod;
use douse_core::pointwise::Combine;
use douse_core::{DType, Error, Result};
use fearless_simd::Simd;

use super::bind::At;
use super::combine;
use super::convert::{self, float8_functions};
use super::lanes::{Arg, Class, Lane, Loops, Registers, Slot};
use super::space::{Runs, Walk};
use crate::memory::{Outside, Region};
use crate::simd::{WithSimd, dispatch};

/// Runs `$body` with `$T`, the type of an element of a dtype in memory, `$L`, that of its lanes, and the functions between them.
macro_rules! with_element {
    ($dtype:expr, |$T:ident, $L:ident, $from:ident, $to:ident| $body:expr) => {
        with_element!(@arms $dtype, $T, $L, $from, $to, $body,
            F32 f32 f32 (|x: f32| x) (|x: f32| x);
            F64 f64 f64 (|x: f64| x) (|x: f64| x);
            F16 u16 f32 (convert::f32_from_f16) (convert::f16_from_f32);
            BF16 u16 f32 (convert::f32_from_bf16) (convert::bf16_from_f32);
            Bool u8 u8 (|x: u8| (x != 0) as u8) (|x: u8| x);
            I8 i8 i64 (|x: i8| x as i64) (|x: i64| x as i8);
            U8 u8 i64 (|x: u8| x as i64) (|x: i64| x as u8);
            I16 i16 i64 (|x: i16| x as i64) (|x: i64| x as i16);
            U16 u16 i64 (|x: u16| x as i64) (|x: i64| x as u16);
            I32 i32 i64 (|x: i32| x as i64) (|x: i64| x as i32);
            U32 u32 i64 (|x: u32| x as i64) (|x: i64| x as u32);
            I64 i64 i64 (|x: i64| x) (|x: i64| x);
            U64 i64 i64 (|x: i64| x) (|x: i64| x);
            F8E4M3FN u8 f32 (float8_functions(DType::F8E4M3FN).0) (float8_functions(DType::F8E4M3FN).1);
            F8E5M2 u8 f32 (float8_functions(DType::F8E5M2).0) (float8_functions(DType::F8E5M2).1);
            F8E4M3FNUZ u8 f32 (float8_functions(DType::F8E4M3FNUZ).0) (float8_functions(DType::F8E4M3FNUZ).1);
            F8E5M2FNUZ u8 f32 (float8_functions(DType::F8E5M2FNUZ).0) (float8_functions(DType::F8E5M2FNUZ).1);
        )
    };
    (@arms $dtype:expr, $T:ident, $L:ident, $from:ident, $to:ident, $body:expr,
        $($variant:ident $t:ident $l:ident ($f:expr) ($g:expr);)*) => {
        match $dtype {
            $(DType::$variant => {
                #[allow(dead_code)]
                type $T = $t;
                #[allow(dead_code)]
                type $L = $l;
                #[allow(unused_variables)]
                let ($from, $to) = ($f, $g);
                $body
            })*
            DType::C32 | DType::C64 | DType::C128 => Err(Access::Complex),
        }
    };
}

/// Why an access failed: always a fault of ours.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Access {
    Outside,
    Complex,
}

impl From<Outside> for Access {
    fn from(_: Outside) -> Access {
        Access::Outside
    }
}

impl Access {
    pub fn error(self, param: usize) -> Error {
        Error::internal(match self {
            Access::Outside => format!("parameter {param} is accessed outside of its memory"),
            Access::Complex => format!("parameter {param} is complex"),
        })
    }
}

/// Where lanes stand, and scratch for their indices.
pub(crate) struct Site<'a> {
    pub loops: Loops,
    pub region: Region<'a>,
    pub runs: &'a Runs,
    /// Coordinates of the other space.
    pub fixed: &'a [i64],
    pub n: usize,
}

struct Read<'a, T, L, F> {
    region: Region<'a>,
    first: i64,
    stride: i64,
    out: &'a mut [L],
    f: F,
    element: std::marker::PhantomData<T>,
}

impl<T: Pod, L, F: Fn(T) -> L> WithSimd for Read<'_, T, L, F> {
    type Output = Result<(), Outside>;
    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> Result<(), Outside> {
        self.region.read(self.first, self.stride, self.out, self.f)
    }
}

struct Write<'a, T, L, F> {
    region: Region<'a>,
    first: i64,
    stride: i64,
    values: &'a [L],
    f: F,
    element: std::marker::PhantomData<T>,
}

impl<T: Pod, L: Copy, F: Fn(L) -> T> WithSimd for Write<'_, T, L, F> {
    type Output = Result<(), Outside>;
    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> Result<(), Outside> {
        self.region.write(self.first, self.stride, self.values, self.f)
    }
}

struct Gather<'a, T, L, F> {
    region: Region<'a>,
    index: &'a [i64],
    out: &'a mut [L],
    f: F,
    element: std::marker::PhantomData<T>,
}

impl<T: Pod, L, F: Fn(T) -> L> WithSimd for Gather<'_, T, L, F> {
    type Output = Result<(), Outside>;
    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> Result<(), Outside> {
        self.region.gather(self.index, self.out, self.f)
    }
}

/// What is added to an affine index.
#[derive(Clone, Copy)]
pub(crate) enum Extra<'a> {
    /// The same for all lanes.
    One(i64),
    /// The same for all lanes of a run; the first counts.
    Run(&'a [i64]),
    Lane(&'a [i64]),
}

impl<'a> Extra<'a> {
    pub fn of(at: &At, registers: &'a Registers, n: usize) -> Extra<'a> {
        match at.extra {
            None => Extra::One(0),
            Some(extra) => match registers.arg::<i64>(extra.slot, n) {
                Arg::One(value) => Extra::One(value),
                Arg::Many(values) if extra.along => Extra::Lane(values),
                Arg::Many(values) => Extra::Run(values),
            },
        }
    }

    /// What is added for a run that begins at a lane.
    #[inline(always)]
    fn at(&self, lane: usize) -> i64 {
        match self {
            Extra::One(value) => *value,
            Extra::Run(values) | Extra::Lane(values) => values[lane],
        }
    }
}

impl Site<'_> {
    /// The index of every lane.
    fn indices(&self, walk: &Walk, extra: Extra, out: &mut Vec<i64>) {
        out.resize(self.n, 0);
        affine(&self.loops, walk, self.fixed, self.runs, out);
        match extra {
            Extra::One(0) => {}
            Extra::One(e) => self.loops.each(out, |i| i.wrapping_add(e)),
            Extra::Run(e) | Extra::Lane(e) => self.loops.join(out, e, i64::wrapping_add),
        }
    }

    fn read_runs<T: Pod, L: Lane>(
        &self,
        walk: &Walk,
        extra: Extra,
        out: &mut [L],
        f: impl Fn(T) -> L + Copy,
    ) -> Result<(), Outside> {
        let stride = walk.stride();
        for (run, at) in self.runs.iter() {
            let out = &mut out[run.lane..run.lane + run.len];
            let first = walk.start(self.fixed, at).wrapping_add(extra.at(run.lane));
            if run.len < 16 {
                self.region.read(first, stride, out, f)?;
            } else {
                let element = std::marker::PhantomData::<T>;
                dispatch(self.loops.level, Read { region: self.region, first, stride, out, f, element })?;
            }
        }
        Ok(())
    }

    fn load_as<T: Pod, L: Lane>(
        &self,
        walk: &Walk,
        extra: Extra,
        guard: Option<Arg<u8>>,
        out: &mut Slot<L>,
        index: &mut Vec<i64>,
        f: impl Fn(T) -> L + Copy,
    ) -> Result<(), Outside> {
        let guard = match guard {
            Some(Arg::One(0)) => {
                out.set_one(L::default());
                return Ok(());
            }
            Some(Arg::Many(guard)) => Some(guard),
            _ => None,
        };
        let constant = self.runs.runs.len() == 1 && walk.stride() == 0;
        match (extra, guard) {
            (Extra::One(extra), None) if constant => {
                let first = self.runs.iter().next().map_or(0, |(_, at)| walk.start(self.fixed, at));
                let mut value = [L::default()];
                self.region.read(first.wrapping_add(extra), 0, &mut value, f)?;
                out.set_one(value[0]);
                Ok(())
            }
            (Extra::Lane(_), None) => {
                self.indices(walk, extra, index);
                self.gather(index, out.many(self.n), f)
            }
            (_, None) => self.read_runs(walk, extra, out.many(self.n), f),
            (_, Some(guard)) => {
                let out = out.many(self.n);
                let whole = !matches!(extra, Extra::Lane(_)) && self.read_runs(walk, extra, out, f).is_ok();
                if !whole {
                    self.indices(walk, extra, index);
                    // Guarded lanes read the first element instead, where there is one.
                    self.loops.join(index, guard, |i, g| if g != 0 { i } else { 0 });
                    if self.region.len() < size_of::<T>() && guard.iter().all(|g| *g == 0) {
                        out.fill(L::default());
                        return Ok(());
                    }
                    self.gather(index, out, f)?;
                }
                self.loops.join(out, guard, |x, g| if g != 0 { x } else { L::default() });
                Ok(())
            }
        }
    }

    fn gather<T: Pod, L: Lane>(&self, index: &[i64], out: &mut [L], f: impl Fn(T) -> L) -> Result<(), Outside> {
        let element = std::marker::PhantomData::<T>;
        dispatch(self.loops.level, Gather { region: self.region, index, out, f, element })
    }

    /// Loads into a register. A lane whose guard is false gets 0.
    pub fn load(
        &self,
        dtype: DType,
        walk: &Walk,
        extra: Extra,
        guard: Option<Arg<u8>>,
        out: &mut Target<'_>,
        index: &mut Vec<i64>,
    ) -> Result<(), Access> {
        with_element!(dtype, |T, L, from, to| {
            let out = out.slot::<L>().ok_or(Access::Complex)?;
            Ok(self.load_as::<T, L>(walk, extra, guard, out, index, from)?)
        })
    }

    /// Stores a value a lane, where the guard is true.
    pub fn store(
        &self,
        dtype: DType,
        walk: &Walk,
        extra: Extra,
        guard: Option<Arg<u8>>,
        values: &Lanes<'_>,
        index: &mut Vec<i64>,
    ) -> Result<(), Access> {
        let guard = match guard {
            Some(Arg::One(0)) => return Ok(()),
            Some(Arg::Many(guard)) => Some(guard),
            _ => None,
        };
        with_element!(dtype, |T, L, from, to| {
            let values = values.slice::<L>().ok_or(Access::Complex)?;
            match (extra, guard) {
                (Extra::One(_) | Extra::Run(_), None) => {
                    let stride = walk.stride();
                    for (run, at) in self.runs.iter() {
                        let values = &values[run.lane..run.lane + run.len];
                        let first = walk.start(self.fixed, at).wrapping_add(extra.at(run.lane));
                        if run.len < 16 {
                            self.region.write::<T, L>(first, stride, values, to)?;
                        } else {
                            let element = std::marker::PhantomData::<T>;
                            let write = Write { region: self.region, first, stride, values, f: to, element };
                            dispatch(self.loops.level, write)?;
                        }
                    }
                }
                (extra, None) => {
                    self.indices(walk, extra, index);
                    self.region.scatter::<T, L>(index, values, to)?;
                }
                (extra, Some(guard)) => {
                    self.indices(walk, extra, index);
                    for ((i, value), guard) in index.iter().zip(values).zip(guard) {
                        if *guard != 0 {
                            self.region.scatter::<T, L>(&[*i], &[*value], to)?;
                        }
                    }
                }
            }
            Ok(())
        })
    }

    /// Combines a value a lane into elements, in order, where the guard is true.
    pub fn update(
        &self,
        dtype: DType,
        op: Combine,
        walk: &Walk,
        extra: Extra,
        guard: Option<Arg<u8>>,
        values: &Lanes<'_>,
        index: &mut Vec<i64>,
    ) -> Result<(), Access> {
        self.indices(walk, extra, index);
        with_element!(dtype, |T, L, from, to| {
            let values = values.slice::<L>().ok_or(Access::Complex)?;
            let f = L::combine(op, dtype);
            for (lane, (i, value)) in index.iter().zip(values).enumerate() {
                if guard.is_none_or(|g| g.at(lane) != 0) {
                    self.region.update::<T, L>(&[*i], &[*value], |old, new| to(f(from(old), new)))?;
                }
            }
            Ok(())
        })
    }
}

struct Iota<'a> {
    first: i64,
    stride: i64,
    out: &'a mut [i64],
}

impl WithSimd for Iota<'_> {
    type Output = ();
    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        for (k, out) in self.out.iter_mut().enumerate() {
            *out = self.first.wrapping_add(self.stride.wrapping_mul(k as i64));
        }
    }
}

/// Values of an affine index, a lane each.
pub(crate) fn affine(loops: &Loops, walk: &Walk, fixed: &[i64], runs: &Runs, out: &mut [i64]) {
    let stride = walk.stride();
    for (run, at) in runs.iter() {
        let first = walk.start(fixed, at);
        let out = &mut out[run.lane..run.lane + run.len];
        if stride == 0 {
            out.fill(first);
        } else {
            dispatch(loops.level, Iota { first, stride, out });
        }
    }
}

/// A register to be written, of whichever class.
pub(crate) enum Target<'a> {
    F32(&'a mut Slot<f32>),
    F64(&'a mut Slot<f64>),
    I64(&'a mut Slot<i64>),
    Bool(&'a mut Slot<u8>),
}

/// Lanes of whichever class.
pub(crate) enum Lanes<'a> {
    F32(&'a [f32]),
    F64(&'a [f64]),
    I64(&'a [i64]),
    Bool(&'a [u8]),
}

/// What lanes can do besides being stored: be picked from a class, and combine.
pub(crate) trait Element: Lane {
    fn of_target<'a>(target: &'a mut Target<'_>) -> Option<&'a mut Slot<Self>>;
    fn of_lanes<'a>(lanes: &Lanes<'a>) -> Option<&'a [Self]>;
    /// The function that combines two values of a dtype, one step at a time.
    fn combine(op: Combine, dtype: DType) -> fn(Self, Self) -> Self;
}

impl Target<'_> {
    fn slot<L: Element>(&mut self) -> Option<&mut Slot<L>> {
        L::of_target(self)
    }
}

impl<'a> Lanes<'a> {
    fn slice<L: Element>(&self) -> Option<&'a [L]> {
        L::of_lanes(self)
    }
}

macro_rules! element {
    ($($variant:ident $t:ty, $combine:path;)*) => {$(
        impl Element for $t {
            fn of_target<'a>(target: &'a mut Target<'_>) -> Option<&'a mut Slot<$t>> {
                if let Target::$variant(slot) = target { Some(slot) } else { None }
            }
            fn of_lanes<'a>(lanes: &Lanes<'a>) -> Option<&'a [$t]> {
                if let Lanes::$variant(slice) = lanes { Some(slice) } else { None }
            }
            fn combine(op: Combine, dtype: DType) -> fn($t, $t) -> $t {
                $combine(op, dtype)
            }
        }
    )*};
}
element! {
    F32 f32, combine::f32;
    F64 f64, combine::f64;
    I64 i64, combine::i64;
    Bool u8, combine::bool;
}

/// One value for all lanes becomes one a lane.
pub(crate) fn spread<'a, T: Lane>(arg: Arg<'a, T>, n: usize, temporary: &'a mut Vec<T>) -> &'a [T] {
    match arg {
        Arg::Many(lanes) => lanes,
        Arg::One(value) => {
            temporary.clear();
            temporary.resize(n, value);
            temporary
        }
    }
}

/// Scratch to [`spread`] into.
#[derive(Debug, Default)]
pub(crate) struct Spread {
    pub f32: Vec<f32>,
    pub f64: Vec<f64>,
    pub i64: Vec<i64>,
    pub bool: Vec<u8>,
}

impl Spread {
    /// The lanes of a register of a dtype.
    pub fn lanes<'a>(&'a mut self, registers: &'a Registers, dtype: DType, slot: usize, n: usize) -> Lanes<'a> {
        match Class::of(dtype) {
            Class::F32 => Lanes::F32(spread(registers.arg(slot, n), n, &mut self.f32)),
            Class::F64 => Lanes::F64(spread(registers.arg(slot, n), n, &mut self.f64)),
            Class::I64 => Lanes::I64(spread(registers.arg(slot, n), n, &mut self.i64)),
            Class::Bool => Lanes::Bool(spread(registers.arg(slot, n), n, &mut self.bool)),
        }
    }
}
