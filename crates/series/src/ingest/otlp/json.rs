//! JSON of OpenTelemetry, turned into the message in protocol buffers that means the same, while it
//! is read: so there is one way to take it, and nothing in memory besides the text and the bytes.
//!
//! What that takes is asked for before it is taken: `0,` is eight bytes and their number.
//!
//! The length of a message stands before it, and is known behind it: five bytes are kept for it,
//! which a number of variable length may always take. What the JSON has more than the schema is
//! passed over. Integers may be texts, as the mapping of protocol buffers has it, and doubles may
//! be `"NaN"` and `"Infinity"`.

use super::super::protobuf::{put_bytes, put_number};
use super::schema::{Field, Kind, REQUEST};
use crate::codec::reader::zigzag;
use serde_core::de::{
    DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
use std::fmt;

/// Largest message.
const MAX_BYTES: usize = 64 << 20;
/// Bytes of the length of a message in it.
const LENGTH: usize = 5;
/// Bytes that anything but a text takes, at most; and how many are asked for at a time, at least.
const SHORT: usize = 32;
const PIECE: usize = 64 << 10;

/// Why a text is no request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NoRequest {
    /// It makes none, for this reason.
    Wrong(String),
    /// There was no room for it.
    NoRoom,
}

/// The bytes of a message, and the room that there is for them.
struct Out<'c> {
    bytes: Vec<u8>,
    charge: &'c mut dyn FnMut(usize) -> bool,
    is_refused: bool,
}

impl Out<'_> {
    /// Makes room for so many bytes more.
    fn room<E: Error>(&mut self, bytes: usize) -> Result<(), E> {
        let needed = self.bytes.len() + bytes;
        if needed > MAX_BYTES {
            return Err(E::custom(format_args!("the message has more than {MAX_BYTES} bytes")));
        }
        if needed <= self.bytes.capacity() {
            return Ok(());
        }
        let more = bytes.max(PIECE).max(self.bytes.len() / 2);
        // Where it has to move it is there twice for a moment.
        if !(self.charge)(more) {
            self.is_refused = true;
            return Err(E::custom("there is no room"));
        }
        self.bytes.reserve_exact(more);
        Ok(())
    }
}

/// The message that a text means.
///
/// # Errors
/// Why it means none, or that `charge` gave no room.
pub(super) fn transcoded(
    text: &[u8],
    charge: &mut dyn FnMut(usize) -> bool,
) -> Result<Vec<u8>, NoRequest> {
    let mut out = Out { bytes: Vec::new(), charge, is_refused: false };
    let mut reader = serde_json::Deserializer::from_slice(text);
    let message = Message { fields: &REQUEST, out: &mut out };
    match message.deserialize(&mut reader).and_then(|()| reader.end()) {
        Ok(()) => Ok(out.bytes),
        Err(_) if out.is_refused => Err(NoRequest::NoRoom),
        Err(why) => Err(NoRequest::Wrong(why.to_string())),
    }
}

/// A message that is read into its bytes.
struct Message<'o, 'c> {
    fields: &'static [Field],
    out: &'o mut Out<'c>,
}

impl<'de> DeserializeSeed<'de> for Message<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Message<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        while let Some(found) = fields.next_key_seed(Known(self.fields))? {
            match found {
                Some(field) if field.is_list => {
                    fields.next_value_seed(List { field, out: &mut *self.out })?;
                }
                Some(field) => fields.next_value_seed(One { field, out: &mut *self.out })?,
                None => drop(fields.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

/// The name of a field, looked up.
struct Known(&'static [Field]);

impl<'de> DeserializeSeed<'de> for Known {
    type Value = Option<&'static Field>;

    fn deserialize<D: Deserializer<'de>>(self, name: D) -> Result<Self::Value, D::Error> {
        name.deserialize_str(self)
    }
}

impl Visitor<'_> for Known {
    type Value = Option<&'static Field>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a field")
    }

    fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
        Ok(self.0.iter().find(|field| field.name == name))
    }
}

/// All values of a field.
struct List<'o, 'c> {
    field: &'static Field,
    out: &'o mut Out<'c>,
}

impl<'de> DeserializeSeed<'de> for List<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for List<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list as `{}`", self.field.name)
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while items.next_element_seed(One { field: self.field, out: &mut *self.out })?.is_some() {}
        Ok(())
    }
}

/// A value of a field.
struct One<'o, 'c> {
    field: &'static Field,
    out: &'o mut Out<'c>,
}

impl<'de> DeserializeSeed<'de> for One<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        self.out.room(SHORT)?;
        let Kind::Message(fields) = self.field.kind else {
            return deserializer.deserialize_any(self);
        };
        put_number(u64::from(self.field.number) << 3 | 2, &mut self.out.bytes);
        let begin = self.out.bytes.len();
        self.out.bytes.extend_from_slice(&[0; LENGTH]);
        Message { fields, out: &mut *self.out }.deserialize(deserializer)?;
        let len = self.out.bytes.len() - begin - LENGTH;
        for (at, byte) in self.out.bytes[begin..begin + LENGTH].iter_mut().enumerate() {
            let goes_on = if at + 1 < LENGTH { 0x80 } else { 0 };
            *byte = (len >> (7 * at) & 0x7f) as u8 | goes_on;
        }
        Ok(())
    }
}

impl One<'_, '_> {
    fn wrong<T, E: Error>(&self) -> Result<T, E> {
        Err(E::custom(format_args!("`{}` has a value of another type", self.field.name)))
    }

    fn integer<E: Error>(self, value: i128) -> Result<(), E> {
        // Whichever of the two types it has: the bytes are the same.
        let bits = u64::try_from(value).or_else(|_| i64::try_from(value).map(|value| value as u64));
        let Ok(bits) = bits else { return self.wrong() };
        match self.field.kind {
            Kind::Number => {
                put_number(u64::from(self.field.number) << 3, &mut self.out.bytes);
                put_number(bits, &mut self.out.bytes);
            }
            Kind::Signed => {
                put_number(u64::from(self.field.number) << 3, &mut self.out.bytes);
                put_number(zigzag(bits as i64), &mut self.out.bytes);
            }
            Kind::Eight => self.eight(bits),
            Kind::Double => self.eight((value as f64).to_bits()),
            _ => return self.wrong(),
        }
        Ok(())
    }

    fn text<E: Error>(self, bytes: &[u8]) -> Result<(), E> {
        self.out.room(bytes.len() + SHORT)?;
        put_bytes(self.field.number, bytes, &mut self.out.bytes);
        Ok(())
    }

    fn eight(self, bits: u64) {
        put_number(u64::from(self.field.number) << 3 | 1, &mut self.out.bytes);
        self.out.bytes.extend_from_slice(&bits.to_le_bytes());
    }
}

impl Visitor<'_> for One<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a value of `{}`", self.field.name)
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        let Kind::Bool = self.field.kind else { return self.wrong() };
        put_number(u64::from(self.field.number) << 3, &mut self.out.bytes);
        self.out.bytes.push(u8::from(value));
        Ok(())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        self.integer(value.into())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        self.integer(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<(), E> {
        let Kind::Double = self.field.kind else { return self.wrong() };
        self.eight(value.to_bits());
        Ok(())
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        match self.field.kind {
            Kind::Text => self.text(text.as_bytes())?,
            Kind::Bytes => match of_base64(text) {
                Some(bytes) => self.text(&bytes)?,
                None => return self.wrong(),
            },
            Kind::Hex => match of_hex(text) {
                Some(bytes) => self.text(&bytes)?,
                None => return self.wrong(),
            },
            Kind::Number | Kind::Signed | Kind::Eight => match text.parse() {
                Ok(value) => return self.integer(value),
                Err(_) => return self.wrong(),
            },
            // Among them `NaN` and `Infinity`.
            Kind::Double => match text.parse::<f64>() {
                Ok(value) => self.eight(value.to_bits()),
                Err(_) => return self.wrong(),
            },
            Kind::Bool | Kind::Message(_) => return self.wrong(),
        }
        Ok(())
    }
}

/// The bytes of a text of hexadecimal digits.
fn of_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| (byte as char).to_digit(16).map(|digit| digit as u8);
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let bytes = pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?));
    if rest.is_empty() { bytes.collect() } else { None }
}

/// The bytes of a text in base64, of either alphabet, padded or not.
fn of_base64(text: &str) -> Option<Vec<u8>> {
    let text = text.trim_end_matches('=');
    let (mut bytes, mut bits, mut count) = (Vec::with_capacity(text.len() * 3 / 4), 0_u32, 0);
    for digit in text.bytes() {
        let value = match digit {
            b'A'..=b'Z' => digit - b'A',
            b'a'..=b'z' => digit - b'a' + 26,
            b'0'..=b'9' => digit - b'0' + 52,
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_read_from_base64() {
        for (text, expected) in
            [("AP8Q", &b"\x00\xff\x10"[..]), ("/w==", b"\xff"), ("_w", b"\xff"), ("", b"")]
        {
            assert_eq!(of_base64(text).as_deref(), Some(expected), "{text}");
        }
        assert_eq!(of_base64("a b"), None);
        assert_eq!(of_hex("00fF10").as_deref(), Some(&b"\x00\xff\x10"[..]));
        assert_eq!((of_hex("0"), of_hex("0g")), (None, None));
    }
}
