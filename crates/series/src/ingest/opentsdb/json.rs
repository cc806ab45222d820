//! OpenTSDB's points as JSON, which `/api/put` takes: an object, or a list of them.
//!
//! They are turned into the lines that mean the same, so there is one way to take a point:
//! `{"metric": "cpu", "timestamp": 1767225600, "value": 7, "tags": {"host": "a"}}` is
//! `put cpu 1767225600 7 host=a`. A blank in a tag is marked as its own.

use super::super::names::escape;
use serde_core::de::{
    Deserialize, DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
use std::borrow::Cow;
use std::fmt;

/// The lines that a body means, one for each of its points.
///
/// # Errors
/// Why it means none.
pub fn put_lines(body: &[u8]) -> Result<Vec<u8>, String> {
    let mut lines = Vec::with_capacity(body.len());
    let mut reader = serde_json::Deserializer::from_slice(body);
    let points = Points(&mut lines);
    points.deserialize(&mut reader).and_then(|()| reader.end()).map_err(|why| why.to_string())?;
    Ok(lines)
}

/// Points that become lines.
struct Points<'o>(&'o mut Vec<u8>);

impl<'de> DeserializeSeed<'de> for Points<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Points<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a point, or a list of points")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut points: A) -> Result<(), A::Error> {
        while points.next_element_seed(Points(&mut *self.0))?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        let mut parts = [Vec::new(), Vec::new(), Vec::new(), Vec::new()];
        while let Some(name) = fields.next_key::<Cow<'_, str>>()? {
            match &*name {
                "metric" => word(&fields.next_value::<Word>()?.0, &mut parts[0])?,
                "timestamp" => word(&fields.next_value::<Word>()?.0, &mut parts[1])?,
                "value" => word(&fields.next_value::<Word>()?.0, &mut parts[2])?,
                "tags" => fields.next_value_seed(Tags(&mut parts[3]))?,
                _ => drop(fields.next_value::<IgnoredAny>()?),
            }
        }
        self.0.extend_from_slice(b"put ");
        self.0.extend(parts[..3].join(&b' '));
        self.0.extend_from_slice(&parts[3]);
        self.0.push(b'\n');
        Ok(())
    }
}

/// Appends a word of a line.
fn word<E: Error>(text: &str, out: &mut Vec<u8>) -> Result<(), E> {
    if text.is_empty() || text.bytes().any(|byte| byte.is_ascii_control()) {
        return Err(E::custom(format_args!("{text:?} can be no part of a point")));
    }
    escape(text.as_bytes(), out);
    Ok(())
}

/// Tags, each behind a blank.
struct Tags<'o>(&'o mut Vec<u8>);

impl<'de> DeserializeSeed<'de> for Tags<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Tags<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of tags")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut tags: A) -> Result<(), A::Error> {
        while let Some((key, value)) = tags.next_entry::<Cow<'_, str>, Word>()? {
            self.0.push(b' ');
            word(&key, self.0)?;
            self.0.push(b'=');
            word(&value.0, self.0)?;
        }
        Ok(())
    }
}

/// A text or a number, as it is written.
struct Word(String);

impl<'de> Deserialize<'de> for Word {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;
        impl Visitor<'_> for Any {
            type Value = Word;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text or a number")
            }

            fn visit_str<E>(self, text: &str) -> Result<Word, E> {
                Ok(Word(text.to_owned()))
            }

            fn visit_u64<E>(self, number: u64) -> Result<Word, E> {
                Ok(Word(number.to_string()))
            }

            fn visit_i64<E>(self, number: i64) -> Result<Word, E> {
                Ok(Word(number.to_string()))
            }

            fn visit_f64<E>(self, number: f64) -> Result<Word, E> {
                // A few bytes stay a few.
                Ok(Word(format!("{number:e}")))
            }
        }
        deserializer.deserialize_any(Any)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(body: &str) -> Result<String, String> {
        put_lines(body.as_bytes()).map(|lines| String::from_utf8(lines).unwrap())
    }

    #[test]
    fn each_point_is_a_line() {
        let one = r#"{"metric": "sys.cpu", "timestamp": 1767225600, "value": 18.5, "tags": {"host": "a b", "dc": "lga"}}"#;
        let line = "put sys.cpu 1767225600 1.85e1 host=a\\ b dc=lga\n";
        assert_eq!(lines(one).as_deref(), Ok(line));
        let other = r#"{"tags": {"n": 1}, "value": "7", "timestamp": "1767225600123", "more": [], "metric": "m"}"#;
        let both = format!("[{one}, {other}]");
        assert_eq!(lines(&both), Ok(format!("{line}put m 1767225600123 7 n=1\n")));
        assert_eq!(lines("[]").as_deref(), Ok(""));
        assert_eq!(lines(r#"{"value": -0.5e300}"#).as_deref(), Ok("put   -5e299\n"));
        let injected = r#"{"metric": "a\nput b 1 1 c=d"}"#;
        let empty = r#"{"tags": {"a": ""}}"#;
        for wrong in
            ["", "7", "[7]", "{} x", r#"{"metric": {}}"#, r#"{"tags": []}"#, injected, empty]
        {
            assert!(lines(wrong).is_err(), "{wrong}");
        }
        // A list in a list is a list of points, however deep; deeper than is read, it is refused.
        assert!(lines(&"[".repeat(1 << 12)).unwrap_err().contains("recursion limit"));
    }
}
