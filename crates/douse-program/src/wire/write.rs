//! Writing the wire form.

use serde::ser::{self, Serialize, Serializer};

use super::WireError;

/// # Errors
/// For types the form does not have: floats of 32 bits, characters, maps, sequences of unknown length.
pub fn to_bytes<T: Serialize + ?Sized>(value: &T) -> Result<Vec<u8>, WireError> {
    let mut writer = Writer { out: Vec::new() };
    value.serialize(&mut writer)?;
    Ok(writer.out)
}

struct Writer {
    out: Vec<u8>,
}

impl Writer {
    fn unsigned(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.out.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.out.push(value as u8);
    }

    fn length(&mut self, len: Option<usize>) -> Result<(), WireError> {
        let len = len.ok_or_else(|| WireError("a sequence of unknown length".into()))?;
        self.unsigned(len as u64);
        Ok(())
    }
}

fn absent<T>(what: &str) -> Result<T, WireError> {
    Err(WireError(format!("the wire form has no {what}")))
}

macro_rules! numbers {
    ($($method:ident $type:ty => $writer:ident $value:ident $body:expr;)*) => {$(
        fn $method(self, $value: $type) -> Result<(), WireError> {
            let $writer = self;
            $body;
            Ok(())
        }
    )*};
}

impl Serializer for &mut Writer {
    type Ok = ();
    type Error = WireError;
    type SerializeSeq = Self;
    type SerializeTuple = Self;
    type SerializeTupleStruct = Self;
    type SerializeTupleVariant = Self;
    type SerializeMap = ser::Impossible<(), WireError>;
    type SerializeStruct = Self;
    type SerializeStructVariant = Self;

    numbers! {
        serialize_bool bool => w v w.out.push(v.into());
        serialize_u8 u8 => w v w.unsigned(v.into());
        serialize_u16 u16 => w v w.unsigned(v.into());
        serialize_u32 u32 => w v w.unsigned(v.into());
        serialize_u64 u64 => w v w.unsigned(v);
        serialize_i8 i8 => w v w.serialize_i64(v.into())?;
        serialize_i16 i16 => w v w.serialize_i64(v.into())?;
        serialize_i32 i32 => w v w.serialize_i64(v.into())?;
        serialize_i64 i64 => w v w.unsigned(((v << 1) ^ (v >> 63)) as u64);
        serialize_f64 f64 => w v w.out.extend(v.to_bits().to_le_bytes());
    }

    fn serialize_f32(self, _: f32) -> Result<(), WireError> {
        absent("float32")
    }

    fn serialize_char(self, _: char) -> Result<(), WireError> {
        absent("characters")
    }

    fn serialize_str(self, v: &str) -> Result<(), WireError> {
        self.serialize_bytes(v.as_bytes())
    }

    fn serialize_bytes(self, v: &[u8]) -> Result<(), WireError> {
        self.unsigned(v.len() as u64);
        self.out.extend(v);
        Ok(())
    }

    fn serialize_none(self) -> Result<(), WireError> {
        self.serialize_bool(false)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), WireError> {
        self.out.push(1);
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<(), WireError> {
        absent("unit")
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<(), WireError> {
        absent("unit")
    }

    fn serialize_unit_variant(self, _: &'static str, index: u32, _: &'static str) -> Result<(), WireError> {
        self.serialize_u32(index)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Result<(), WireError> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        index: u32,
        _: &'static str,
        value: &T,
    ) -> Result<(), WireError> {
        self.unsigned(index.into());
        value.serialize(self)
    }

    fn serialize_seq(self, len: Option<usize>) -> Result<Self, WireError> {
        self.length(len)?;
        Ok(self)
    }

    fn serialize_tuple(self, _: usize) -> Result<Self, WireError> {
        Ok(self)
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Self, WireError> {
        Ok(self)
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        index: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self, WireError> {
        self.unsigned(index.into());
        Ok(self)
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Self::SerializeMap, WireError> {
        absent("maps")
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Self, WireError> {
        Ok(self)
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        index: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self, WireError> {
        self.unsigned(index.into());
        Ok(self)
    }

    fn is_human_readable(&self) -> bool {
        false
    }
}

macro_rules! compounds {
    ($($trait:ident $method:ident($($name:ident)?);)*) => {$(
        impl ser::$trait for &mut Writer {
            type Ok = ();
            type Error = WireError;

            fn $method<T: Serialize + ?Sized>(&mut self, $($name: &'static str,)? value: &T) -> Result<(), WireError> {
                value.serialize(&mut **self)
            }

            fn end(self) -> Result<(), WireError> {
                Ok(())
            }
        }
    )*};
}
compounds! {
    SerializeSeq serialize_element();
    SerializeTuple serialize_element();
    SerializeTupleStruct serialize_field();
    SerializeTupleVariant serialize_field();
    SerializeStruct serialize_field(_name);
    SerializeStructVariant serialize_field(_name);
}
