//! The scope of metrics: which meter of a program they are of. Two meters may have metrics of one
//! name, so what is known of the scope stands in each series, in the labels that Prometheus
//! promotes it to: `otel_scope_name`, `otel_scope_version`, `otel_scope_schema_url`, and
//! `otel_scope_` before each of its attributes.

use super::attributes::{Attributes, Labels, utf8};
use super::head::ScopeHead;
use super::names;
use std::collections::BTreeMap;

/// Which meter metrics are of.
#[derive(Debug, Default)]
pub(super) struct Scope {
    labels: Vec<(String, String)>,
    /// The labels as bytes that can't be those of others.
    pub(super) key: Vec<u8>,
    /// Why nothing of it is taken.
    pub(super) refused: Option<String>,
}

impl Scope {
    /// That of a head.
    ///
    /// # Errors
    /// If a text is none.
    pub(super) fn of(bytes: &[u8], head: &ScopeHead) -> Result<Self, String> {
        let mut attributes = Attributes::default();
        let pushed = head.attributes.0.iter();
        let pushed = pushed.map(|place| attributes.push(&bytes[place.clone()]));
        if let Err(why) = pushed.collect::<Result<(), _>>() {
            return Ok(Self { refused: Some(format!("a scope has {why}")), ..Self::default() });
        }
        let texts = match attributes.texts() {
            Ok(texts) => texts,
            Err(why) => {
                return Ok(Self { refused: Some(format!("a scope has {why}")), ..Self::default() });
            }
        };
        let mut labels = BTreeMap::new();
        for (key, value) in texts {
            if let Some(label) = names::label(&format!("otel_scope_{key}")) {
                labels.insert(label, value);
            }
        }
        // Behind them, as in Prometheus: an attribute `name` is not what the scope is called.
        for (label, place) in [
            ("otel_scope_name", &head.name),
            ("otel_scope_version", &head.version),
            ("otel_scope_schema_url", &head.schema_url),
        ] {
            labels.insert(label.to_owned(), utf8(&bytes[place.clone()])?.to_owned());
        }
        let labels: Vec<_> = labels.into_iter().filter(|(_, value)| !value.is_empty()).collect();
        let mut key = Vec::new();
        for text in labels.iter().flat_map(|(label, value)| [label, value]) {
            key.extend_from_slice(&(text.len() as u32).to_le_bytes());
            key.extend_from_slice(text.as_bytes());
        }
        Ok(Self { labels, key, refused: None })
    }

    /// Sets the labels that each of its series has.
    pub(super) fn label(&self, labels: &mut Labels) {
        self.labels.iter().for_each(|(label, value)| labels.set(label, value));
    }
}
