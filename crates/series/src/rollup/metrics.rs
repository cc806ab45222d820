//! Which metrics a rule is about: one, or all whose names begin alike.

use std::fmt;

/// A metric, or `cpu.*`, which stands for all that begin so.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Metrics {
    /// The whole metric, or what it begins with.
    name: String,
    is_beginning: bool,
}

impl Metrics {
    /// The metrics that a text stands for; `None` for one that stands for none: an empty one, and
    /// one with a `*` that is not at its end.
    pub fn parse(text: &str) -> Option<Self> {
        let beginning = text.strip_suffix('*');
        let name = beginning.unwrap_or(text);
        let is_none = name.contains('*') || (name.is_empty() && beginning.is_none());
        (!is_none).then(|| Self { name: name.to_string(), is_beginning: beginning.is_some() })
    }

    /// Whether a metric is one of them.
    pub fn fits(&self, metric: &str) -> bool {
        if self.is_beginning { metric.starts_with(&self.name) } else { metric == self.name }
    }
}

impl fmt::Display for Metrics {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}{}", self.name, if self.is_beginning { "*" } else { "" })
    }
}
