//! Names with values, by which a series is told from all others.
//!
//! They are ordered by name and no value is empty, so two sets are equal where Prometheus takes
//! them for equal. A set is shared, not copied: it goes through every operator of an expression.

use std::fmt;
use std::sync::Arc;

/// The label that has the metric.
pub const NAME: &str = "__name__";
/// What Prometheus drops where a value is no longer of the metric.
const OF_THE_METRIC: [&str; 3] = [NAME, "__type__", "__unit__"];

type Pair = (Arc<str>, Arc<str>);

/// The labels of a series.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Labels(Arc<[Pair]>);

impl Default for Labels {
    fn default() -> Self {
        Self(Arc::new([]))
    }
}

impl<N: Into<Arc<str>>, V: Into<Arc<str>>> FromIterator<(N, V)> for Labels {
    /// Of names that are there twice the last one stays; an empty value is no label.
    fn from_iter<I: IntoIterator<Item = (N, V)>>(pairs: I) -> Self {
        let mut all: Vec<Pair> =
            pairs.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        all.reverse();
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all.dedup_by(|later, kept| later.0 == kept.0);
        all.retain(|(_, value)| !value.is_empty());
        Self(all.into())
    }
}

impl Labels {
    /// The value of a label, which is empty if it isn't there.
    pub fn get(&self, name: &str) -> &str {
        self.0.iter().find(|(found, _)| &**found == name).map_or("", |(_, value)| value)
    }

    /// The metric, which may be empty.
    pub fn metric(&self) -> &str {
        self.get(NAME)
    }

    /// All names and values, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (&**name, &**value))
    }

    /// Those of which a condition on the name holds.
    pub fn only(&self, keeps: impl Fn(&str) -> bool) -> Self {
        if self.0.iter().all(|(name, _)| keeps(name)) {
            return self.clone();
        }
        Self(self.0.iter().filter(|(name, _)| keeps(name)).cloned().collect())
    }

    /// Without the metric, its type and its unit.
    pub fn without_metric(&self) -> Self {
        self.only(|name| !OF_THE_METRIC.contains(&name))
    }

    /// With one label set, or dropped if the value is empty.
    pub fn with(&self, name: &str, value: &str) -> Self {
        let others = self.0.iter().filter(|(found, _)| &**found != name).cloned();
        others.chain([(Arc::from(name), Arc::from(value))]).collect()
    }

    /// An expression that selects the series: `up{job="a"}`, or `{"a b", job="a"}`.
    pub fn selector(&self) -> String {
        let (metric, others) = (self.metric(), self.only(|name| name != NAME).to_string());
        match others.as_str() {
            "{}" if is_plain_metric(metric) => metric.to_owned(),
            _ if metric.is_empty() => others,
            _ if is_plain_metric(metric) => format!("{metric}{others}"),
            "{}" => format!("{{{}}}", quoted(metric)),
            _ => format!("{{{}, {}", quoted(metric), &others[1..]),
        }
    }
}

impl fmt::Display for Labels {
    /// As Prometheus writes them: `{__name__="up", job="a"}`.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("{")?;
        for (place, (name, value)) in self.iter().enumerate() {
            let comma = if place > 0 { ", " } else { "" };
            match is_plain_label(name) {
                true => write!(out, "{comma}{name}={}", quoted(value))?,
                false => write!(out, "{comma}{}={}", quoted(name), quoted(value))?,
            }
        }
        out.write_str("}")
    }
}

/// Whether a name of a label stands without quotes.
pub fn is_plain_label(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Whether a metric stands without quotes: with colons, and with dots, which names have here.
pub fn is_plain_metric(name: &str) -> bool {
    is_plain_label(&name.replace([':', '.'], "_")) && !name.starts_with('.')
}

/// A text in quotes, with what has to be escaped.
pub fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for character in text.chars() {
        match character {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            '\r' => quoted.push_str("\\r"),
            other if other.is_control() => quoted.push_str(&format!("\\u{:04x}", other as u32)),
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse_selector;

    #[test]
    fn a_selector_selects_what_it_was_made_of() {
        for (pairs, text) in [
            (&[(NAME, "up")][..], "up"),
            (&[(NAME, "cpu.load"), ("host", "a\"b")], r#"cpu.load{host="a\"b"}"#),
            (&[(NAME, "!note"), ("a", "1"), ("7", "x")], r#"{"!note", "7"="x", a="1"}"#),
            (&[(NAME, "a b")], r#"{"a b"}"#),
            (&[("a.b", "c")], r#"{"a.b"="c"}"#),
        ] {
            let labels: Labels = pairs.iter().copied().collect();
            assert_eq!(labels.selector(), text);
            let matchers = parse_selector(text).unwrap();
            let again = matchers.iter().map(|matcher| (&*matcher.label, &*matcher.value));
            assert_eq!(again.collect::<Labels>(), labels, "{text}");
        }
        assert_eq!(Labels::default().selector(), "{}");
    }
}
