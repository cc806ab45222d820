//! What a template works with, as Go has it: what is true, and how a value is printed.
//!
//! Values are texts, numbers, series with their labels, and what functions make of those. Clones
//! share what is large. What `args` makes lies in itself a few levels deep at most, so that to
//! print it, or to let go of it, takes no more of the stack than that.

use super::human;
use crate::digits;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Names with values.
pub(super) type Map = Arc<BTreeMap<String, String>>;

/// A series' labels and value, as `query` gives them.
#[derive(Debug)]
pub(super) struct Sample {
    pub(super) labels: Map,
    pub(super) value: f64,
}

/// A value.
#[derive(Clone, Debug)]
pub(super) enum Value {
    Nil,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(Arc<str>),
    Map(Map),
    Sample(Arc<Sample>),
    List(Arc<[Arc<Sample>]>),
    /// What `args` makes of values: `arg0`, `arg1`, ...; and how deep such lie in each other.
    Arguments(Arc<BTreeMap<String, Value>>, usize),
    /// Milliseconds since 1970.
    Time(i64),
    /// Nanoseconds.
    Duration(i64),
    /// What the dot is at the beginning: labels, value and what is outside.
    Data,
}

impl Value {
    pub(super) fn text(text: impl Into<Arc<str>>) -> Self {
        Self::Text(text.into())
    }

    /// The bytes of a text.
    pub(super) fn text_len(&self) -> usize {
        if let Self::Text(text) = self { text.len() } else { 0 }
    }

    /// What kind of value it is, as errors say.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Nil => "nil",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Float(_) => "float64",
            Self::Text(_) => "string",
            Self::Map(_) => "map[string]string",
            Self::Sample(_) => "sample",
            Self::List(_) => "queryResult",
            Self::Arguments(..) => "map[string]interface {}",
            Self::Time(_) => "*time.Time",
            Self::Duration(_) => "*time.Duration",
            Self::Data => "data",
        }
    }

    /// Whether `if` takes it for true: it is not empty.
    pub(super) fn is_true(&self) -> bool {
        match self {
            Self::Nil => false,
            Self::Bool(is_true) => *is_true,
            Self::Int(number) => *number != 0,
            Self::Float(number) => *number != 0.0,
            Self::Text(text) => !text.is_empty(),
            Self::Map(map) => !map.is_empty(),
            Self::List(list) => !list.is_empty(),
            Self::Arguments(values, _) => !values.is_empty(),
            Self::Sample(_) | Self::Time(_) | Self::Duration(_) | Self::Data => true,
        }
    }

    /// What a method of Go's types of times says that takes no arguments.
    pub(super) fn method(&self, name: &str) -> Option<Self> {
        let value = match (self, name) {
            (Self::Time(_) | Self::Duration(_), "String") => Self::text(self.to_string()),
            (Self::Time(time), "Unix") => Self::Int(time.div_euclid(1000)),
            (Self::Time(time), "UnixMilli") => Self::Int(*time),
            (Self::Duration(time), "Hours") => Self::Float(*time as f64 / 3.6e12),
            (Self::Duration(time), "Minutes") => Self::Float(*time as f64 / 6e10),
            (Self::Duration(time), "Seconds") => Self::Float(*time as f64 / 1e9),
            (Self::Duration(time), "Milliseconds") => Self::Int(time / 1_000_000),
            (Self::Duration(time), "Microseconds") => Self::Int(time / 1000),
            (Self::Duration(time), "Nanoseconds") => Self::Int(*time),
            _ => return None,
        };
        Some(value)
    }

    /// How it stands to another value of the same kind.
    pub(super) fn compared(&self, other: &Self) -> Result<Option<Ordering>, String> {
        match (self, other) {
            (Self::Bool(one), Self::Bool(other)) => Ok(Some(one.cmp(other))),
            (Self::Int(one), Self::Int(other)) => Ok(Some(one.cmp(other))),
            (Self::Float(one), Self::Float(other)) => Ok(one.partial_cmp(other)),
            (Self::Text(one), Self::Text(other)) => Ok(Some(one.cmp(other))),
            (Self::Nil, Self::Nil) => Ok(Some(Ordering::Equal)),
            _ if matches!((self.is_basic(), other.is_basic()), (true, true)) => Err(format!(
                "incompatible types for comparison: {} and {}",
                self.kind(),
                other.kind()
            )),
            _ => Err(format!("invalid type for comparison: {}", self.kind())),
        }
    }

    fn is_basic(&self) -> bool {
        matches!(self, Self::Bool(_) | Self::Int(_) | Self::Float(_) | Self::Text(_) | Self::Nil)
    }

    /// As a number, where a function takes texts for numbers too.
    pub(super) fn number(&self) -> Result<f64, String> {
        match self {
            Self::Float(number) => Ok(*number),
            Self::Int(number) => Ok(*number as f64),
            Self::Text(text) => digits::parse_float(text)
                .ok_or_else(|| format!("strconv.ParseFloat: parsing {text:?}: invalid syntax")),
            other => Err(format!("can't convert {} to float", other.kind())),
        }
    }
}

/// As `{{ }}` prints it. A list may be long: what it is written to says how far it goes.
impl fmt::Display for Value {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nil => out.write_str("<no value>"),
            Self::Bool(is_true) => write!(out, "{is_true}"),
            Self::Int(number) => write!(out, "{number}"),
            Self::Float(number) => out.write_str(&digits::shortest(*number)),
            Self::Text(text) => out.write_str(text),
            Self::Map(map) => write_map(out, map),
            Self::Sample(sample) => write_sample(out, sample),
            Self::List(list) => {
                out.write_str("[")?;
                for (place, sample) in list.iter().enumerate() {
                    out.write_str(if place > 0 { " " } else { "" })?;
                    write_sample(out, sample)?;
                }
                out.write_str("]")
            }
            Self::Arguments(values, _) => {
                out.write_str("map[")?;
                for (place, (name, value)) in values.iter().enumerate() {
                    write!(out, "{}{name}:{value}", if place > 0 { " " } else { "" })?;
                }
                out.write_str("]")
            }
            Self::Time(time) => out.write_str(&human::moment(*time)),
            Self::Duration(time) => out.write_str(&human::go_duration(*time)),
            Self::Data => out.write_str("data"),
        }
    }
}

fn write_sample(out: &mut fmt::Formatter<'_>, sample: &Sample) -> fmt::Result {
    out.write_str("&{")?;
    write_map(out, &sample.labels)?;
    write!(out, " {}}}", digits::shortest(sample.value))
}

fn write_map(out: &mut fmt::Formatter<'_>, map: &BTreeMap<String, String>) -> fmt::Result {
    out.write_str("map[")?;
    for (place, (name, value)) in map.iter().enumerate() {
        write!(out, "{}{name}:{value}", if place > 0 { " " } else { "" })?;
    }
    out.write_str("]")
}
