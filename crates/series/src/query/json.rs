//! JSON as a query needs it: fields in their order, none twice, and what is found named in errors.
//!
//! The text is bounded by whoever took it in, the depth by the reader; so a document that is all
//! brackets costs some memory and an error. Numbers keep the type they are written in, since a time
//! in nanoseconds does not fit into a float.

use super::error::{QueryError, QueryResult};
use crate::value::Value;
use serde_core::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use std::fmt;

/// Longest query, in bytes.
pub const MAX_QUERY_BYTES: usize = 1 << 20;

/// A value of JSON.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Json {
    Null,
    Bool(bool),
    Integer(i128),
    Float(f64),
    Text(String),
    List(Vec<Self>),
    Object(Vec<(String, Self)>),
}

impl Json {
    /// The document of these bytes.
    pub(crate) fn parse(text: &[u8]) -> QueryResult<Self> {
        if text.len() > MAX_QUERY_BYTES {
            return Err(QueryError::Query(format!("it is longer than {MAX_QUERY_BYTES} bytes")));
        }
        serde_json::from_slice(text).map_err(|error| QueryError::Query(format!("no JSON: {error}")))
    }

    /// What it is, for an error.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "true or false",
            Self::Integer(_) | Self::Float(_) => "a number",
            Self::Text(_) => "a text",
            Self::List(_) => "a list",
            Self::Object(_) => "an object",
        }
    }

    fn wrong<T>(&self, field: &str, expected: &str) -> QueryResult<T> {
        Err(QueryError::field(field, format_args!("{expected} expected, {} found", self.kind())))
    }

    pub(crate) fn object(&self, field: &str, expected: &str) -> QueryResult<&[(String, Self)]> {
        match self {
            Self::Object(fields) => Ok(fields),
            other => other.wrong(field, expected),
        }
    }

    pub(crate) fn text(&self, field: &str, expected: &str) -> QueryResult<&str> {
        match self {
            Self::Text(text) => Ok(text),
            other => other.wrong(field, expected),
        }
    }

    /// A text, or a list of texts, of which there is at least one.
    pub(crate) fn texts(&self, field: &str, expected: &str) -> QueryResult<Vec<String>> {
        match self {
            Self::Text(text) => Ok(vec![text.clone()]),
            Self::List(items) if !items.is_empty() => {
                items.iter().map(|item| item.text(field, expected).map(String::from)).collect()
            }
            Self::List(_) => {
                Err(QueryError::field(field, format_args!("{expected} expected, it is empty")))
            }
            other => other.wrong(field, expected),
        }
    }

    pub(crate) fn list(&self, field: &str, expected: &str) -> QueryResult<&[Self]> {
        match self {
            Self::List(items) => Ok(items),
            other => other.wrong(field, expected),
        }
    }

    pub(crate) fn bool(&self, field: &str) -> QueryResult<bool> {
        match self {
            Self::Bool(value) => Ok(*value),
            Self::Text(text) if text == "true" || text == "false" => Ok(text == "true"),
            other => other.wrong(field, "true or false"),
        }
    }

    /// A number, which may be written as a text.
    pub(crate) fn number(&self, field: &str, expected: &str) -> QueryResult<Value> {
        match self {
            Self::Integer(number) => {
                Ok(i64::try_from(*number).map_or(Value::Float(*number as f64), Value::Integer))
            }
            Self::Float(number) => Ok(Value::Float(*number)),
            Self::Text(text) => {
                let integer = text.parse().map(Value::Integer);
                let number = integer.or_else(|_| text.parse().map(Value::Float));
                number.or_else(|_| self.wrong(field, expected))
            }
            other => other.wrong(field, expected),
        }
    }

    /// A count, which may be written as a text.
    pub(crate) fn count(&self, field: &str) -> QueryResult<u64> {
        const EXPECTED: &str = "an integer from 0 on";
        match self {
            Self::Integer(number) => {
                u64::try_from(*number).or_else(|_| self.wrong(field, EXPECTED))
            }
            Self::Text(text) => text.parse().or_else(|_| self.wrong(field, EXPECTED)),
            other => other.wrong(field, EXPECTED),
        }
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Json, E> {
        Ok(Json::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Json, E> {
        Ok(Json::Integer(i128::from(value)))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Json, E> {
        Ok(Json::Integer(i128::from(value)))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Json, E> {
        Ok(Json::Float(value))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Json, E> {
        Ok(Json::Text(value.to_string()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Json, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Json::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Json, A::Error> {
        let mut object = Vec::new();
        let mut names = std::collections::BTreeSet::new();
        while let Some((name, value)) = fields.next_entry::<String, Json>()? {
            if !names.insert(name.clone()) {
                return Err(A::Error::custom(format_args!("field `{name}` is there twice")));
            }
            object.push((name, value));
        }
        Ok(Json::Object(object))
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Reader)
    }
}

/// A number as it is used in functions.
pub(crate) fn float(field: &str, json: &Json) -> QueryResult<f64> {
    let number = json.number(field, "a number").map(Value::as_f64)?;
    match number.is_finite() {
        true => Ok(number),
        false => Err(QueryError::field(field, "a finite number expected")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_come_in_whole_or_with_an_error() {
        let json = Json::parse(br#"{"b": [1, -2.5, "x", null, true], "a": 18446744073709551615}"#)
            .unwrap();
        let fields = json.object("", "").unwrap();
        assert_eq!(fields[0].0, "b");
        assert_eq!(fields[1].1, Json::Integer(u64::MAX.into()));
        for text in ["", "{", "nope", "{} x", r#"{"a": 1, "a": 2}"#, "\u{0}"] {
            assert!(Json::parse(text.as_bytes()).is_err(), "{text}");
        }
        let deep = "[".repeat(1 << 19);
        assert!(Json::parse(deep.as_bytes()).unwrap_err().to_string().contains("recursion"));
        assert!(Json::parse(&vec![b' '; MAX_QUERY_BYTES + 1]).is_err());
        assert!(Json::parse(b"\xff").is_err());
    }
}
