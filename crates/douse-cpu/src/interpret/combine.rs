//! Combining values: the functions of [`Combine`], and what each starts from.

use douse_core::DType;
use douse_core::math::logarithm::logaddexp;
use douse_core::pointwise::Combine;

use super::pointwise::{maximum_f32, maximum_f64, minimum_f32, minimum_f64};

pub(crate) fn f32(op: Combine, _: DType) -> fn(f32, f32) -> f32 {
    match op {
        Combine::Prod => |a, b| a * b,
        Combine::Min => minimum_f32,
        Combine::Max => maximum_f32,
        Combine::LogAddExp => |a, b| logaddexp(a as f64, b as f64) as f32,
        _ => |a, b| a + b,
    }
}

pub(crate) fn f64(op: Combine, _: DType) -> fn(f64, f64) -> f64 {
    match op {
        Combine::Prod => |a, b| a * b,
        Combine::Min => minimum_f64,
        Combine::Max => maximum_f64,
        Combine::LogAddExp => logaddexp,
        _ => |a, b| a + b,
    }
}

pub(crate) fn i64(op: Combine, dtype: DType) -> fn(i64, i64) -> i64 {
    match op {
        Combine::Prod => i64::wrapping_mul,
        Combine::Min if dtype == DType::U64 => |a, b| (a as u64).min(b as u64) as i64,
        Combine::Max if dtype == DType::U64 => |a, b| (a as u64).max(b as u64) as i64,
        Combine::Min => |a, b| a.min(b),
        Combine::Max => |a, b| a.max(b),
        Combine::Xor => |a, b| a ^ b,
        _ => i64::wrapping_add,
    }
}

pub(crate) fn bool(op: Combine, _: DType) -> fn(u8, u8) -> u8 {
    match op {
        Combine::And | Combine::Min | Combine::Prod => |a, b| a & b,
        Combine::Xor => |a, b| a ^ b,
        _ => |a, b| a | b,
    }
}

/// The value that changes nothing, for floats.
pub(crate) fn neutral_float(op: Combine) -> f64 {
    match op {
        Combine::Prod => 1.0,
        Combine::Min => f64::INFINITY,
        Combine::Max | Combine::LogAddExp => f64::NEG_INFINITY,
        _ => 0.0,
    }
}

/// The value that changes nothing, for an integer dtype.
pub(crate) fn neutral_int(op: Combine, dtype: DType) -> i64 {
    let bits = dtype.size() as u32 * 8;
    match (op, dtype.is_signed()) {
        (Combine::Prod, _) => 1,
        (Combine::Min, true) => i64::MAX >> (64 - bits),
        (Combine::Max, true) => i64::MIN >> (64 - bits),
        // The largest uint64 has the bits of -1.
        (Combine::Min, false) if bits == 64 => -1,
        (Combine::Min, false) => (1 << bits) - 1,
        _ => 0,
    }
}

/// The value that changes nothing, for bool.
pub(crate) fn neutral_bool(op: Combine) -> u8 {
    matches!(op, Combine::And | Combine::Min | Combine::Prod) as u8
}
