//! Attributes: what is known of a resource or a point, as tags.
//!
//! An attribute's value may be anything, lists of lists included; it becomes one text, as
//! Prometheus writes it. Keys that become the same label have their values put together in the
//! order of the keys. How many there may be, and how long, is looked at before anything is made of
//! them: names have bounds, so a million attributes cost a look at the first few.

use super::super::MAX_LINE_BYTES;
use super::super::names::escape;
use super::super::protobuf::{Fields, Payload};
use super::names;
use crate::name::MAX_TAGS;
use serde_json::{Map, Number, Value as Json};
use std::collections::BTreeMap;

/// How deep lists and maps may be in each other.
const MAX_DEPTH: usize = 16;

/// Attributes as they were sent, a message each.
#[derive(Default)]
pub(super) struct Attributes<'a> {
    all: Vec<&'a [u8]>,
    bytes: usize,
}

impl<'a> Attributes<'a> {
    /// One more.
    ///
    /// # Errors
    /// If they are too many, or too long, for any name.
    pub(super) fn push(&mut self, attribute: &'a [u8]) -> Result<(), String> {
        self.bytes += attribute.len();
        if self.all.len() == MAX_TAGS {
            return Err(format!("more than {MAX_TAGS} attributes"));
        }
        if self.bytes > MAX_LINE_BYTES {
            return Err(format!("attributes of more than {MAX_LINE_BYTES} bytes"));
        }
        self.all.push(attribute);
        Ok(())
    }

    /// How long they are together.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Each as it was sent.
    pub(super) fn iter(&self) -> impl Iterator<Item = &'a [u8]> {
        self.all.iter().copied()
    }

    /// Keys and values as texts, by key.
    ///
    /// # Errors
    /// If that is no text.
    pub(super) fn texts(&self) -> Result<Vec<(&'a str, String)>, String> {
        let mut texts = self.iter().map(text_of).collect::<Result<Vec<_>, _>>()?;
        texts.sort_by_key(|(key, _)| *key);
        Ok(texts)
    }
}

fn text_of(attribute: &[u8]) -> Result<(&str, String), String> {
    let (mut key, mut value) = ("", String::new());
    for field in Fields::of(attribute) {
        match field? {
            (1, Payload::Bytes(bytes)) => key = utf8(bytes)?,
            (2, Payload::Bytes(bytes)) => value = text(bytes)?,
            _ => {}
        }
    }
    Ok((key, value))
}

pub(super) fn utf8(bytes: &[u8]) -> Result<&str, String> {
    std::str::from_utf8(bytes).map_err(|_| "a text is not UTF-8".to_owned())
}

/// A value as one text.
fn text(value: &[u8]) -> Result<String, String> {
    Ok(match json(value, 0)? {
        Json::Null => String::new(),
        Json::String(text) => text,
        Json::Number(number) if number.is_f64() => {
            number.as_f64().map_or_else(String::new, float_text)
        }
        other => other.to_string(),
    })
}

/// A float as JavaScript would write it.
fn float_text(value: f64) -> String {
    if value != 0.0 && !(1e-6..1e21).contains(&value.abs()) {
        let text = format!("{value:e}");
        return if text.contains("e-") { text } else { text.replace('e', "e+") };
    }
    value.to_string()
}

/// A value of any type.
fn json(value: &[u8], depth: usize) -> Result<Json, String> {
    if depth > MAX_DEPTH {
        return Err(format!("an attribute is deeper than {MAX_DEPTH} levels"));
    }
    let mut json = Json::Null;
    for field in Fields::of(value) {
        json = match field? {
            (1, Payload::Bytes(text)) => Json::String(utf8(text)?.to_owned()),
            (2, Payload::Number(number)) => Json::Bool(number != 0),
            (3, Payload::Number(number)) => Json::Number((number as i64).into()),
            (4, Payload::Eight(bits)) => {
                let float = f64::from_bits(bits);
                let text = || Json::String(float.to_string());
                Number::from_f64(float).map_or_else(text, Json::Number)
            }
            (5, Payload::Bytes(items)) => list(items, depth)?,
            (6, Payload::Bytes(fields)) => map(fields, depth)?,
            (7, Payload::Bytes(bytes)) => Json::String(base64(bytes)),
            _ => continue,
        };
    }
    Ok(json)
}

fn list(items: &[u8], depth: usize) -> Result<Json, String> {
    let mut list = Vec::new();
    for field in Fields::of(items) {
        if let (1, Payload::Bytes(item)) = field? {
            list.push(json(item, depth + 1)?);
        }
    }
    Ok(Json::Array(list))
}

fn map(fields: &[u8], depth: usize) -> Result<Json, String> {
    let mut map = Map::new();
    for field in Fields::of(fields) {
        let (1, Payload::Bytes(pair)) = field? else { continue };
        let (mut key, mut value) = ("", Json::Null);
        for field in Fields::of(pair) {
            match field? {
                (1, Payload::Bytes(bytes)) => key = utf8(bytes)?,
                (2, Payload::Bytes(bytes)) => value = json(bytes, depth + 1)?,
                _ => {}
            }
        }
        map.insert(key.to_owned(), value);
    }
    Ok(Json::Object(map))
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let at = |place: usize| u32::from(three.get(place).copied().unwrap_or(0));
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        for digit in 0..4 {
            let value = (bits >> (18 - 6 * digit) & 63) as usize;
            text.push(if digit <= three.len() { DIGITS[value] as char } else { '=' });
        }
    }
    text
}

/// Labels, each once.
#[derive(Default)]
pub(super) struct Labels(BTreeMap<String, String>);

impl Labels {
    /// Those that attributes mean, which come by their keys.
    ///
    /// # Errors
    /// If a key means none.
    pub(super) fn of(attributes: &[(&str, String)]) -> Result<Self, String> {
        let mut labels = Self::default();
        for (key, value) in attributes {
            let label =
                names::label(key).ok_or_else(|| format!("the attribute {key:?} has no letter"))?;
            let text = labels.0.entry(label).or_default();
            if !text.is_empty() {
                text.push(';');
            }
            text.push_str(value);
        }
        Ok(labels)
    }

    /// Sets one, whatever it was; one that is empty means nothing.
    pub(super) fn set(&mut self, label: &str, value: &str) {
        if !value.is_empty() {
            self.0.insert(label.to_owned(), value.to_owned());
        }
    }

    /// Tags as they are written in a name, with one more.
    pub(super) fn tags(&self, more: Option<(&str, &str)>) -> Vec<u8> {
        let is_other = |(label, value): &(&str, &str)| {
            !value.is_empty() && more.is_none_or(|(other, _)| *label != other)
        };
        let all = self.0.iter().map(|(label, value)| (&label[..], &value[..]));
        let mut tags = Vec::new();
        for (label, value) in all.filter(is_other).chain(more) {
            tags.push(b' ');
            escape(label.as_bytes(), &mut tags);
            tags.push(b'=');
            escape(value.as_bytes(), &mut tags);
        }
        tags
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::protobuf::{put_bytes, put_number};
    use super::*;

    fn value(field: u32, bytes: &[u8]) -> Vec<u8> {
        let mut value = Vec::new();
        put_bytes(field, bytes, &mut value);
        value
    }

    fn double(float: f64) -> Vec<u8> {
        [&[4 << 3 | 1][..], &float.to_le_bytes()].concat()
    }

    fn integer(number: i64) -> Vec<u8> {
        let mut value = vec![3 << 3];
        put_number(number as u64, &mut value);
        value
    }

    #[test]
    fn a_value_of_any_type_is_one_text() {
        let item = |item: &[u8]| value(1, item);
        let pair = value(1, &[value(1, b"k"), value(2, &integer(-2))].concat());
        let list = value(5, &[item(&value(1, b"a\"")), item(&value(6, &pair))].concat());
        for (value, expected) in [
            (value(1, b"plain text"), "plain text"),
            (vec![2 << 3, 1], "true"),
            (vec![2 << 3, 0], "false"),
            (integer(-7), "-7"),
            (double(0.5), "0.5"),
            (double(3.0), "3"),
            (double(1e21), "1e+21"),
            (double(-1.5e-7), "-1.5e-7"),
            (double(f64::NAN), "NaN"),
            (value(7, b"\x00\xff\x10"), "AP8Q"),
            (value(7, b"\xff"), "/w=="),
            (list, r#"["a\"",{"k":-2}]"#),
            (Vec::new(), ""),
        ] {
            assert_eq!(text(&value).as_deref(), Ok(expected));
        }
        let mut deep = value(1, b"x");
        (0..40).for_each(|_| deep = value(5, &item(&deep)));
        assert!(text(&deep).unwrap_err().contains("deeper"));
        assert!(text(&value(1, b"\xff")).is_err() && text(&[1 << 3 | 2, 9]).is_err());
    }

    #[test]
    fn keys_that_mean_one_label_have_their_values_together() {
        let text = |text: &str| text.to_owned();
        let attributes = [("a.b", text("1")), ("a_b", text("2")), ("c", text(""))];
        let mut labels = Labels::of(&attributes).unwrap();
        labels.set("job", "x y");
        labels.set("instance", "");
        assert_eq!(labels.tags(Some(("job", "z"))), b" a_b=1;2 job=z");
        assert_eq!(labels.tags(None), b" a_b=1;2 job=x\\ y");
        assert!(Labels::of(&[("..", text("1"))]).is_err());
    }
}
