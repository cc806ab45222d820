//! Conditions on values: bounds from below and above.
//!
//! What is not a number meets no condition. A summary tells without a look at its points whether
//! any of them may; what it rules out is not read.

use super::error::{QueryError, QueryResult};
use super::json::Json;
use crate::tree::Summary;
use crate::value::Value;
use std::cmp::Ordering;

/// Bounds that a value has to keep, all of them.
#[derive(Clone, Default, PartialEq, Debug)]
pub(crate) struct ValueFilter {
    bounds: Vec<(Bound, Value)>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Bound {
    Gt,
    Ge,
    Lt,
    Le,
}

impl Bound {
    fn holds(self, ordering: Option<Ordering>) -> bool {
        match self {
            Self::Gt => ordering == Some(Ordering::Greater),
            Self::Ge => matches!(ordering, Some(Ordering::Greater | Ordering::Equal)),
            Self::Lt => ordering == Some(Ordering::Less),
            Self::Le => matches!(ordering, Some(Ordering::Less | Ordering::Equal)),
        }
    }
}

impl ValueFilter {
    /// The filter of `{"gt": 1, "le": 2}`.
    pub(crate) fn parse(field: &str, json: &Json) -> QueryResult<Self> {
        let fields = json.object(field, "an object such as {\"gt\": 10}")?;
        let mut bounds = Vec::new();
        for (name, value) in fields {
            let bound = match name.as_str() {
                "gt" => Bound::Gt,
                "ge" => Bound::Ge,
                "lt" => Bound::Lt,
                "le" => Bound::Le,
                other => {
                    let why = format_args!("gt, ge, lt or le expected, `{other}` found");
                    return Err(QueryError::field(field, why));
                }
            };
            let value = value.number(&format!("{field}.{name}"), "a number")?;
            if value.is_nan() {
                return Err(QueryError::field(field, "a bound has to be a number, it is nan"));
            }
            bounds.push((bound, value));
        }
        if bounds.is_empty() {
            return Err(QueryError::field(field, "gt, ge, lt or le expected, it is empty"));
        }
        Ok(Self { bounds })
    }

    pub(crate) fn is_any(&self) -> bool {
        self.bounds.is_empty()
    }

    /// Whether the value keeps all bounds.
    pub(crate) fn matches(&self, value: Value) -> bool {
        self.bounds.iter().all(|(bound, than)| bound.holds(value.compare(*than)))
    }

    /// Whether one of the points may.
    pub(crate) fn may_match(&self, summary: &Summary) -> bool {
        self.bounds.iter().all(|(bound, than)| {
            let best = match bound {
                Bound::Gt | Bound::Ge => summary.max,
                Bound::Lt | Bound::Le => summary.min,
            };
            best.is_some_and(|best| bound.holds(best.value.compare(*than)))
        })
    }
}
