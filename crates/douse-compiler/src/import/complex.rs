//! Complex numbers: a complex tensor is a real value with a last dimension of 2; formulas work on its parts.

use douse_core::pointwise::{Binary, Unary};
use douse_core::sym::Expr;
use douse_core::{DType, Result, Scalar};
use douse_ir::Value;

use super::args::{Args, Number, Val};
use super::formula::Formula;
use super::importer::{Importer, Row};
use super::pointwise::{as_float, float_dtype};
use super::tensor::Step;

pub const ROWS: &[Row] = &[
    ("aten.complex.default", complex),
    ("aten.polar.default", polar),
    ("aten.angle.default", angle),
    ("aten.conj.default", conj),
    ("aten._conj.default", conj),
    ("aten.conj_physical.default", conj_physical),
    ("aten._conj_physical.default", conj_physical),
];

/// The parts of a complex tensor, each in the dtype that formulas compute in.
#[derive(Clone, Debug)]
pub struct Complex {
    pub re: Formula,
    pub im: Formula,
}

impl Importer {
    /// An argument, real or complex, tensor or number, as parts of a complex dtype.
    pub fn complex_operand(&mut self, a: &Args, name: &str, dtype: DType) -> Result<Complex> {
        let compute = self.compute_dtype(dtype.real());
        match a.get(name) {
            Some(Val::Tensor(t)) => {
                let value = self.read(*t)?;
                let value = self.b.cast(value, dtype.real());
                let value = self.b.cast(value, compute);
                if self.is_complex(*t) {
                    self.split_parts(value)
                } else {
                    let zero = self.b.full_like(value, Scalar::Int(0));
                    Ok(Complex { re: value.into(), im: zero.into() })
                }
            }
            _ => match a.number(name)? {
                Number::Scalar(scalar) => {
                    let (re, im) = scalar.to_complex();
                    let re = self.b.full(compute, vec![], Scalar::Float(re));
                    let im = self.b.full(compute, vec![], Scalar::Float(im));
                    Ok(Complex { re: re.into(), im: im.into() })
                }
                number => {
                    let re = self.number_value(&number, compute);
                    let im = self.b.full(compute, vec![], Scalar::Int(0));
                    Ok(Complex { re: re.into(), im: im.into() })
                }
            },
        }
    }

    /// The two parts of a real value with a last dimension of 2.
    fn split_parts(&mut self, value: Value) -> Result<Complex> {
        let last = self.b.rank(value) - 1;
        let re = self.b.select_index(value, last, &Expr::int(0))?;
        let im = self.b.select_index(value, last, &Expr::int(1))?;
        Ok(Complex { re: re.into(), im: im.into() })
    }

    /// A real value with a last dimension of 2, its second part negated.
    pub fn conjugate(&mut self, value: Value) -> Result<Value> {
        let z = self.split_parts(value)?;
        let (re, im) = (z.re.build(&mut self.b)?, (-z.im).build(&mut self.b)?);
        self.joined(re, im)
    }

    /// A complex tensor of two real values of one dtype.
    pub fn joined(&mut self, re: Value, im: Value) -> Result<Value> {
        let (re, im) = self.b.broadcast(re, im)?;
        let rank = self.b.rank(re);
        let (re, im) = (self.b.unsqueeze(re, rank)?, self.b.unsqueeze(im, rank)?);
        self.b.concat(&[re, im], rank)
    }

    /// Parts as a new tensor of a complex dtype.
    pub fn complex_result(&mut self, z: &Complex, dtype: DType) -> Result<Val> {
        let (re, im) = (z.re.build(&mut self.b)?, z.im.build(&mut self.b)?);
        let (re, im) = (self.b.cast(re, dtype.real()), self.b.cast(im, dtype.real()));
        Ok(Val::Complex(self.joined(re, im)?))
    }
}

impl Complex {
    pub fn add(&self, other: &Complex) -> Complex {
        Complex { re: &self.re + &other.re, im: &self.im + &other.im }
    }

    pub fn sub(&self, other: &Complex) -> Complex {
        Complex { re: &self.re - &other.re, im: &self.im - &other.im }
    }

    pub fn mul(&self, other: &Complex) -> Complex {
        Complex { re: &self.re * &other.re - &self.im * &other.im, im: &self.re * &other.im + &self.im * &other.re }
    }

    pub fn scale(&self, factor: impl Into<Formula>) -> Complex {
        let factor = factor.into();
        Complex { re: &self.re * &factor, im: &self.im * &factor }
    }

    pub fn neg(&self) -> Complex {
        Complex { re: -&self.re, im: -&self.im }
    }

    /// Smith's division ("Algorithm 116", 1962): by the ratio of the divisor's smaller to its larger part, so that squares do not overflow.
    pub fn div(&self, other: &Complex) -> Complex {
        let (a, b, c, d) = (&self.re, &self.im, &other.re, &other.im);
        let wide = c.abs().ge(d.abs());
        let zero = c.eq(0.0).and(d.eq(0.0));
        let (large, small) = (wide.select(c, d), wide.select(d, c));
        let ratio = zero.select(0.0, &small / &large);
        let scale = 1.0 / (&large + &small * &ratio);
        let re = wide.select(a + b * &ratio, a * &ratio + b) * &scale;
        let im = wide.select(b - a * &ratio, b * &ratio - a) * &scale;
        let length = c.abs();
        Complex { re: zero.select(a / &length, re), im: zero.select(b / &length, im) }
    }

    pub fn abs(&self) -> Formula {
        self.re.hypot(&self.im)
    }

    pub fn angle(&self) -> Formula {
        self.im.atan2(&self.re)
    }

    /// From length and angle.
    pub fn from_polar(length: &Formula, angle: &Formula) -> Complex {
        Complex { re: length * angle.cos(), im: length * angle.sin() }
    }

    pub fn exp(&self) -> Complex {
        Complex::from_polar(&self.re.exp(), &self.im)
    }

    pub fn log(&self) -> Complex {
        Complex { re: self.abs().log(), im: self.angle() }
    }

    /// The root with a positive real part: from the part of it that does not cancel.
    pub fn sqrt(&self) -> Complex {
        let length = ((self.abs() + self.re.abs()) * 0.5).sqrt();
        let other = length.eq(0.0).select(0.0, self.im.abs() * 0.5 / &length);
        let right = self.re.ge(0.0);
        let im = right.select(&other, &length);
        Complex { re: right.select(&length, &other), im: im.binary(Binary::Copysign, &self.im) }
    }

    /// `self` where the condition holds, else `other`.
    pub fn chosen_over(&self, other: &Complex, cond: &Formula) -> Complex {
        Complex { re: cond.select(&self.re, &other.re), im: cond.select(&self.im, &other.im) }
    }
}

/// The function of complex numbers that a float operation is, where there is one here.
fn function(op: Unary) -> Option<fn(&Complex) -> Complex> {
    Some(match op {
        Unary::Exp => Complex::exp,
        Unary::Log => Complex::log,
        Unary::Log2 => |z| z.log().scale(std::f64::consts::LOG2_E),
        Unary::Log10 => |z| z.log().scale(std::f64::consts::LOG10_E),
        Unary::Sqrt => Complex::sqrt,
        Unary::Rsqrt => |z| one_over(&z.sqrt()),
        Unary::Reciprocal => one_over,
        Unary::Sigmoid => |z| {
            let e = z.neg().exp();
            one_over(&Complex { re: 1.0 + &e.re, im: e.im })
        },
        Unary::Sin => |z| Complex { re: z.re.sin() * z.im.cosh(), im: z.re.cos() * z.im.sinh() },
        Unary::Cos => |z| Complex { re: z.re.cos() * z.im.cosh(), im: -(z.re.sin() * z.im.sinh()) },
        Unary::Sinh => |z| Complex { re: z.re.sinh() * z.im.cos(), im: z.re.cosh() * z.im.sin() },
        Unary::Tanh => tanh,
        // tan z = -i tanh iz.
        Unary::Tan => |z| {
            let turned = tanh(&Complex { re: -&z.im, im: z.re.clone() });
            Complex { im: -&turned.re, re: turned.im }
        },
        Unary::Cosh => |z| Complex { re: z.re.cosh() * z.im.cos(), im: z.re.sinh() * z.im.sin() },
        _ => return None,
    })
}

/// (t + i u) / (1 + i t u) with t = tanh(re) and u = tan(im): no step of it overflows.
fn tanh(z: &Complex) -> Complex {
    let (t, u) = (z.re.tanh(), z.im.tan());
    let under = 1.0 + (&t * &u).square();
    Complex { re: &t * (1.0 + u.square()) / &under, im: &u * (1.0 - t.square()) / under }
}

/// A float operation on a complex tensor.
pub fn unary(imp: &mut Importer, a: &Args, op: Unary) -> Result<Val> {
    let Some(function) = function(op) else { return Err(a.unsupported("a complex tensor here")) };
    let dtype = imp.dtype_of(a.tensor("self")?);
    let z = imp.complex_operand(a, "self", dtype)?;
    imp.complex_result(&function(&z), dtype)
}

fn one_over(z: &Complex) -> Complex {
    Complex { re: z.re.like(1.0), im: z.re.like(0.0) }.div(z)
}

/// self op alpha * other.
pub fn arithmetic(imp: &mut Importer, a: &Args, op: Binary, dtype: DType) -> Result<Val> {
    let (x, mut y) = (imp.complex_operand(a, "self", dtype)?, imp.complex_operand(a, "other", dtype)?);
    if a.has("alpha") {
        y = imp.complex_operand(a, "alpha", dtype)?.mul(&y);
    }
    let z = match op {
        Binary::Add => x.add(&y),
        Binary::Sub => x.sub(&y),
        Binary::Mul => x.mul(&y),
        Binary::Div => x.div(&y),
        _ => return Err(a.unsupported("a complex tensor here")),
    };
    imp.complex_result(&z, dtype)
}

/// self + value * tensor1 * tensor2, or over tensor2.
pub fn add_scaled(imp: &mut Importer, a: &Args, op: Binary, dtype: DType) -> Result<Val> {
    let x = imp.complex_operand(a, "self", dtype)?;
    let (mut one, two) = (imp.complex_operand(a, "tensor1", dtype)?, imp.complex_operand(a, "tensor2", dtype)?);
    if a.has("value") {
        one = imp.complex_operand(a, "value", dtype)?.mul(&one);
    }
    let term = if op == Binary::Div { one.div(&two) } else { one.mul(&two) };
    imp.complex_result(&x.add(&term), dtype)
}

/// exp(exponent * log(self)); small whole exponents as products.
pub fn pow(imp: &mut Importer, a: &Args, dtype: DType) -> Result<Val> {
    let z = imp.complex_operand(a, "self", dtype)?;
    let constant = match a.get("exponent") {
        Some(Val::Tensor(_)) => None,
        _ => a.scalar("exponent").ok(),
    };
    let power = match constant {
        Some(n @ (Scalar::Int(_) | Scalar::Float(_))) if n.to_f64() == 1.0 => z,
        Some(n @ (Scalar::Int(_) | Scalar::Float(_))) if n.to_f64() == 2.0 => z.mul(&z),
        Some(n @ (Scalar::Int(_) | Scalar::Float(_))) if n.to_f64() == 3.0 => z.mul(&z).mul(&z),
        Some(n @ (Scalar::Int(_) | Scalar::Float(_))) if n.to_f64() == 0.5 => z.sqrt(),
        _ => {
            let y = imp.complex_operand(a, "exponent", dtype)?;
            let power = z.log().mul(&y).exp();
            // 0^y is 0, and 1 where y is 0.
            let base_zero = z.re.eq(0.0).and(z.im.eq(0.0));
            let y_zero = y.re.eq(0.0).and(y.im.eq(0.0));
            let one = y_zero.select(1.0, y.re.like(0.0));
            Complex { im: one.like(0.0), re: one }.chosen_over(&power, &base_zero.or(y_zero))
        }
    };
    imp.complex_result(&power, dtype)
}

/// Equality of both parts; complex numbers have no order.
pub fn equal(imp: &mut Importer, a: &Args, op: Binary, dtype: DType) -> Result<Val> {
    let (x, y) = (imp.complex_operand(a, "self", dtype)?, imp.complex_operand(a, "other", dtype)?);
    let answer = match op {
        Binary::Eq => x.re.eq(&y.re).and(x.im.eq(&y.im)),
        Binary::Ne => x.re.ne(&y.re).or(x.im.ne(&y.im)),
        _ => return Err(a.unsupported("an order of complex numbers")),
    };
    Ok(answer.build(&mut imp.b)?.into())
}

fn complex(imp: &mut Importer, a: &Args) -> Result<Val> {
    let (re, im) = (imp.value(a, "real")?, imp.value(a, "imag")?);
    Ok(Val::Complex(imp.joined(re, im)?))
}

fn polar(imp: &mut Importer, a: &Args) -> Result<Val> {
    let ([length, angle], dtype) = imp.wide(a, ["abs", "angle"])?;
    let dtype = dtype.complex().ok_or_else(|| a.unsupported(format!("{dtype}")))?;
    imp.complex_result(&Complex::from_polar(&length, &angle), dtype)
}

/// Of a real number: 0, or pi below 0; NaN stays.
fn angle(imp: &mut Importer, a: &Args) -> Result<Val> {
    let t = a.tensor("self")?;
    let dtype = float_dtype(imp.dtype_of(t));
    if dtype.is_complex() {
        let z = imp.complex_operand(a, "self", dtype)?;
        return imp.rounded(&z.angle(), dtype.real());
    }
    let x = imp.value(a, "self")?;
    let x = Formula::from(as_float(imp, x));
    let result = x.is_nan().select(&x, x.lt(0.0).select(x.like(std::f64::consts::PI), 0.0));
    imp.rounded(&result, dtype)
}

/// A view; of a real tensor, the tensor itself.
fn conj(imp: &mut Importer, a: &Args) -> Result<Val> {
    let t = a.tensor("self")?;
    if imp.is_complex(t) { imp.view(t, Step::Conjugate).map(Val::Tensor) } else { Ok(Val::Tensor(t)) }
}

/// A new tensor; of a real one, the tensor itself.
fn conj_physical(imp: &mut Importer, a: &Args) -> Result<Val> {
    let t = a.tensor("self")?;
    if !imp.is_complex(t) {
        return Ok(Val::Tensor(t));
    }
    let value = imp.read(t)?;
    Ok(Val::Complex(imp.conjugate(value)?))
}
