//! Reading the wire form.

use serde::de::{self, DeserializeOwned, DeserializeSeed, Visitor};

use super::{DEPTH, WireError};

/// # Errors
/// Where the bytes end early, nest too deeply, are no form of the value, or go on after it.
pub fn from_bytes<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, WireError> {
    let mut reader = Reader { rest: bytes, len: bytes.len(), depth: 0 };
    let value = T::deserialize(&mut reader).map_err(|e| WireError(format!("byte {}: {e}", reader.at())))?;
    match reader.rest.len() {
        0 => Ok(value),
        1 => Err(WireError("1 byte is left at the end".into())),
        n => Err(WireError(format!("{n} bytes are left at the end"))),
    }
}

struct Reader<'a> {
    rest: &'a [u8],
    len: usize,
    depth: usize,
}

impl<'a> Reader<'a> {
    fn at(&self) -> usize {
        self.len - self.rest.len()
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], WireError> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or_else(|| WireError("the bytes end early".into()))?;
        self.rest = rest;
        Ok(taken)
    }

    fn byte(&mut self) -> Result<u8, WireError> {
        Ok(self.take(1)?.first().copied().unwrap_or_default())
    }

    fn unsigned(&mut self) -> Result<u64, WireError> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            value |= bits << shift;
            if byte < 0x80 {
                // A last byte of nothing but zeros is a second form of the same number.
                return if byte == 0 && shift > 0 { Err(WireError("an overlong number".into())) } else { Ok(value) };
            }
        }
        Err(WireError("a number beyond 64 bits".into()))
    }

    fn narrow<T: TryFrom<u64>>(&mut self) -> Result<T, WireError> {
        let value = self.unsigned()?;
        T::try_from(value).map_err(|_| WireError(format!("{value} is out of range")))
    }

    fn signed(&mut self) -> Result<i64, WireError> {
        let value = self.unsigned()?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    fn flag(&mut self) -> Result<bool, WireError> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(WireError(format!("{other} is neither false nor true"))),
        }
    }

    /// A length whose elements the rest may hold: each takes at least a byte.
    fn length(&mut self) -> Result<usize, WireError> {
        let len = self.unsigned()?;
        usize::try_from(len)
            .ok()
            .filter(|len| *len <= self.rest.len())
            .ok_or_else(|| WireError(format!("a length of {len} where {} bytes are left", self.rest.len())))
    }

    fn deeper<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T, WireError>) -> Result<T, WireError> {
        if self.depth >= DEPTH {
            return Err(WireError("nested too deeply".into()));
        }
        self.depth += 1;
        let value = read(self);
        self.depth -= 1;
        value
    }
}

fn absent<T>() -> Result<T, WireError> {
    Err(WireError("the type has no wire form".into()))
}

macro_rules! scalars {
    ($($method:ident $visit:ident $read:ident;)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, WireError> {
            visitor.$visit(self.$read()?)
        }
    )*};
}

macro_rules! absent {
    ($($method:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, _: V) -> Result<V::Value, WireError> {
            absent()
        }
    )*};
}

impl<'de> de::Deserializer<'de> for &mut Reader<'de> {
    type Error = WireError;

    scalars! {
        deserialize_bool visit_bool flag;
        deserialize_u8 visit_u8 narrow;
        deserialize_u16 visit_u16 narrow;
        deserialize_u32 visit_u32 narrow;
        deserialize_u64 visit_u64 unsigned;
        deserialize_i8 visit_i64 signed;
        deserialize_i16 visit_i64 signed;
        deserialize_i32 visit_i64 signed;
        deserialize_i64 visit_i64 signed;
    }

    absent! { deserialize_any deserialize_ignored_any deserialize_f32 deserialize_char deserialize_unit deserialize_map }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, WireError> {
        let bytes = self.take(8)?.try_into().map_err(|_| WireError("the bytes end early".into()))?;
        visitor.visit_f64(f64::from_bits(u64::from_le_bytes(bytes)))
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, WireError> {
        let len = self.length()?;
        let text = std::str::from_utf8(self.take(len)?).map_err(|_| WireError("a text that is not UTF-8".into()))?;
        visitor.visit_borrowed_str(text)
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, WireError> {
        self.deserialize_str(visitor)
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, _: V) -> Result<V::Value, WireError> {
        absent()
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, WireError> {
        let len = self.length()?;
        visitor.visit_borrowed_bytes(self.take(len)?)
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, WireError> {
        self.deserialize_bytes(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, WireError> {
        if self.flag()? { self.deeper(|r| visitor.visit_some(r)) } else { visitor.visit_none() }
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(self, _: &'static str, _: V) -> Result<V::Value, WireError> {
        absent()
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, WireError> {
        self.deeper(|r| visitor.visit_newtype_struct(r))
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, WireError> {
        let left = self.length()?;
        self.deeper(|reader| visitor.visit_seq(Elements { reader, left }))
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, left: usize, visitor: V) -> Result<V::Value, WireError> {
        self.deeper(|reader| visitor.visit_seq(Elements { reader, left }))
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        left: usize,
        visitor: V,
    ) -> Result<V::Value, WireError> {
        self.deserialize_tuple(left, visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, WireError> {
        self.deserialize_tuple(fields.len(), visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, WireError> {
        self.deeper(|reader| visitor.visit_enum(Variant { reader, variants: variants.len() }))
    }

    fn is_human_readable(&self) -> bool {
        false
    }
}

struct Elements<'a, 'de> {
    reader: &'a mut Reader<'de>,
    left: usize,
}

impl<'de> de::SeqAccess<'de> for Elements<'_, 'de> {
    type Error = WireError;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, WireError> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        seed.deserialize(&mut *self.reader).map(Some)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left)
    }
}

struct Variant<'a, 'de> {
    reader: &'a mut Reader<'de>,
    variants: usize,
}

impl<'de> de::EnumAccess<'de> for Variant<'_, 'de> {
    type Error = WireError;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), WireError> {
        let index: u32 = self.reader.narrow()?;
        if index as usize >= self.variants {
            return Err(WireError(format!("variant {index} of {}", self.variants)));
        }
        let number: de::value::U32Deserializer<WireError> = de::IntoDeserializer::into_deserializer(index);
        Ok((seed.deserialize(number)?, self))
    }
}

impl<'de> de::VariantAccess<'de> for Variant<'_, 'de> {
    type Error = WireError;

    fn unit_variant(self) -> Result<(), WireError> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, WireError> {
        seed.deserialize(self.reader)
    }

    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, WireError> {
        de::Deserializer::deserialize_tuple(self.reader, len, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, WireError> {
        de::Deserializer::deserialize_tuple(self.reader, fields.len(), visitor)
    }
}
