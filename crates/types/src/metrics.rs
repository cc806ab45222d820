//! Which metrics a rule or a right is about: one, or all whose names begin alike.

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

    /// Whether all that another text stands for are among them.
    fn covers(&self, other: &Self) -> bool {
        self.fits(&other.name) && (self.is_beginning || !other.is_beginning)
    }
}

impl fmt::Display for Metrics {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}{}", self.name, if self.is_beginning { "*" } else { "" })
    }
}

/// The metrics of several such texts.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct MetricSet(Vec<Metrics>);

impl MetricSet {
    /// All of these.
    pub fn of(metrics: impl IntoIterator<Item = Metrics>) -> Self {
        let mut metrics: Vec<_> = metrics.into_iter().collect();
        metrics.sort();
        metrics.dedup();
        Self(metrics)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a metric is among them.
    pub fn has(&self, metric: &str) -> bool {
        self.0.iter().any(|metrics| metrics.fits(metric))
    }

    /// Whether each of another set's texts stands for nothing that one of these doesn't stand for.
    pub fn covers(&self, other: &Self) -> bool {
        other.0.iter().all(|other| self.0.iter().any(|metrics| metrics.covers(other)))
    }

    /// The texts.
    pub fn iter(&self) -> impl Iterator<Item = &Metrics> {
        self.0.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_what_any_of_its_texts_stands_for() {
        let set =
            |texts: &[&str]| MetricSet::of(texts.iter().map(|text| Metrics::parse(text).unwrap()));
        let some = set(&["cpu.*", "mem", "cpu.*"]);
        for (metric, is_in) in [
            ("cpu.", true),
            ("cpu.user", true),
            ("cpu", false),
            ("xcpu.user", false),
            ("mem", true),
            ("memory", false),
        ] {
            assert_eq!(some.has(metric), is_in, "{metric}");
        }
        assert_eq!(some, set(&["mem", "cpu.*"]));
        assert!(set(&["*"]).has("") && !MetricSet::default().has(""));
        for (others, are_covered) in [
            (&["cpu.user*", "cpu.", "mem"][..], true),
            (&["cpu.*"], true),
            (&[], true),
            (&["cpu*"], false),
            (&["mem*"], false),
            (&["mem", "cpu"], false),
            (&["*"], false),
        ] {
            assert_eq!(some.covers(&set(others)), are_covered, "{others:?}");
        }
    }
}
