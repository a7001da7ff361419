//! The schema's unions: objects with a single key, which says the kind.

use serde::de::{Deserialize, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};
use std::fmt;
use std::marker::PhantomData;

/// A type the file writes as `{"kind": value}`.
pub(crate) trait Union: Sized {
    /// What to call it in errors: `argument`.
    const WHAT: &'static str;

    /// Reads the value of a known kind; `None` for a kind that is not known.
    fn read<'de, A: MapAccess<'de>>(kind: &str, map: &mut A) -> Result<Option<Self>, A::Error>;
}

/// Reads a union, refusing unknown kinds by name.
pub(crate) fn union<'de, D: Deserializer<'de>, U: Union>(deserializer: D) -> Result<U, D::Error> {
    deserializer.deserialize_map(UnionVisitor(PhantomData))
}

struct UnionVisitor<U>(PhantomData<U>);

impl<'de, U: Union> Visitor<'de> for UnionVisitor<U> {
    type Value = U;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an object with one key that says the kind of {}", U::WHAT)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<U, A::Error> {
        let Some(kind) = map.next_key::<String>()? else {
            return Err(A::Error::custom(format!("{} of no kind", U::WHAT)));
        };
        let Some(value) = U::read(&kind, &mut map)? else {
            return Err(A::Error::custom(format!("unknown kind of {}, `{kind}`", U::WHAT)));
        };
        match map.next_key::<String>()? {
            None => Ok(value),
            Some(second) => Err(A::Error::custom(format!("{} of two kinds, `{kind}` and `{second}`", U::WHAT))),
        }
    }
}

/// `{"name": "x"}`, which is how the file refers to a value of the graph.
#[derive(serde::Deserialize)]
pub(crate) struct Named {
    pub name: String,
}

/// A float, which the file writes as a string where JSON has no number for it.
pub(crate) struct Float(pub f64);

impl<'de> Deserialize<'de> for Float {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Float, D::Error> {
        deserializer.deserialize_any(FloatVisitor).map(Float)
    }
}

struct FloatVisitor;

impl Visitor<'_> for FloatVisitor {
    type Value = f64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number, or \"Infinity\", \"-Infinity\" or \"NaN\"")
    }

    fn visit_f64<E>(self, value: f64) -> Result<f64, E> {
        Ok(value)
    }

    fn visit_i64<E>(self, value: i64) -> Result<f64, E> {
        Ok(value as f64)
    }

    fn visit_u64<E>(self, value: u64) -> Result<f64, E> {
        Ok(value as f64)
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<f64, E> {
        match value {
            "Infinity" => Ok(f64::INFINITY),
            "-Infinity" => Ok(f64::NEG_INFINITY),
            "NaN" => Ok(f64::NAN),
            other => Err(E::invalid_value(serde::de::Unexpected::Str(other), &self)),
        }
    }
}

/// For a field that holds a [`Float`].
pub(crate) fn float<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Float::deserialize(deserializer)?.0)
}

/// Skips the value of a kind that has none worth reading: `{"as_none": true}`.
pub(crate) fn skip<'de, A: MapAccess<'de>>(map: &mut A) -> Result<(), A::Error> {
    map.next_value::<IgnoredAny>().map(|_| ())
}
