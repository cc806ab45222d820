//! A small document of YAML to be shown: what was read, with its secrets left out.
//!
//! Texts that could be taken for something else stand in double quotes, whose escapes are JSON's.
//! Read again by Prometheus' own parser, or by ours, it says what it said.

use plinth_rules::yaml::{Kind, Node};
use std::fmt::Write as _;

/// What Prometheus shows in place of a secret.
const SECRET: &str = "<secret>";

/// A part of a document.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Yaml {
    Null,
    Text(String),
    List(Vec<Self>),
    /// In the order in which they are shown.
    Map(Vec<(String, Self)>),
}

impl Yaml {
    pub(super) fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    pub(super) fn map<const N: usize>(fields: [(&str, Self); N]) -> Self {
        Self::Map(fields.map(|(name, value)| (name.to_owned(), value)).into())
    }

    pub(super) fn texts(texts: impl IntoIterator<Item = String>) -> Self {
        Self::List(texts.into_iter().map(Self::Text).collect())
    }

    /// What was read, without its secrets.
    pub(super) fn shown(node: &Node) -> Self {
        match &node.kind {
            Kind::Null => Self::Null,
            Kind::Text(text) => Self::text(text.as_str()),
            Kind::List(items) => Self::List(items.iter().map(Self::shown).collect()),
            Kind::Map(pairs) => Self::Map(pairs.iter().map(Self::field).collect()),
        }
    }

    fn field((key, value): &(Node, Node)) -> (String, Self) {
        let name = key.name();
        let value = match name {
            "password" | "credentials" => Self::text(SECRET),
            _ => Self::shown(value),
        };
        (name.to_owned(), value)
    }

    /// The document.
    pub(super) fn written(&self) -> String {
        let mut text = String::new();
        self.put(&mut text, 0);
        text.trim_start_matches('\n').to_owned()
    }

    /// Writes it behind a key, or behind the dash of a list, where what it holds stands so far in.
    fn put(&self, text: &mut String, indent: usize) {
        // Strings take whatever is written to them.
        let _ = match self {
            Self::Null => writeln!(text, " null"),
            Self::Text(value) => writeln!(text, " {}", scalar(value)),
            Self::List(items) if items.is_empty() => writeln!(text, " []"),
            Self::Map(fields) if fields.is_empty() => writeln!(text, " {{}}"),
            Self::List(items) => {
                text.push('\n');
                for item in items {
                    let _ = write!(text, "{:indent$}-", "");
                    item.put(text, indent + 2);
                }
                Ok(())
            }
            Self::Map(fields) => {
                // The first field of an item stands behind its dash.
                let mut is_behind_dash = text.ends_with('-');
                text.push(if is_behind_dash { ' ' } else { '\n' });
                for (name, value) in fields {
                    let before = if is_behind_dash { 0 } else { indent };
                    let _ = write!(text, "{:before$}{}:", "", scalar(name));
                    value.put(text, indent + if matches!(value, Self::Map(_)) { 2 } else { 0 });
                    is_behind_dash = false;
                }
                Ok(())
            }
        };
    }
}

/// A text as it stands in a document.
fn scalar(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_./-:<>".contains(c);
    let begins_plainly = text.starts_with(|c: char| c.is_ascii_alphanumeric() || "_/<".contains(c));
    let is_null = text.eq_ignore_ascii_case("null");
    if begins_plainly && text.chars().all(is_plain) && !text.ends_with(':') && !is_null {
        return text.to_owned();
    }
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_rules::yaml::parse;

    fn read(text: &str) -> Yaml {
        Yaml::shown(&parse(text).unwrap().unwrap())
    }

    #[test]
    fn what_is_shown_is_what_was_read() {
        let text = "global:\n  scrape_interval: 15s\nscrape_configs:\n- job_name: \"a b: c\"\n  params:\n    \
                    match[]: ['{x=\"#1\"}', \"tab\\t\", null, '', '~', 'null', '- x', 'a: b', 'é', 'x:']\n  \
                    static_configs:\n  - targets: [\"h:1\", \"[::1]:2\"]\n    labels: {}\n  \
                    - targets: []\n  relabel_configs:\n  - [[1, 2], {a: {b: [c]}}]\n";
        let found = read(text);
        let shown = found.written();
        assert_eq!(read(&shown), found, "{shown}");
        let begin =
            "global:\n  scrape_interval: 15s\nscrape_configs:\n- job_name: \"a b: c\"\n  params:\n";
        assert!(shown.starts_with(begin), "{shown}");
        assert!(shown.contains("  static_configs:\n  - targets:\n    - h:1\n"), "{shown}");
    }

    #[test]
    fn secrets_are_not_shown() {
        let text = "scrape_configs:\n- basic_auth: {username: u, password: pw1}\n\
                    - authorization: {type: Token, credentials: pw2, credentials_file: /f}\n\
                    - x: [{<<: {password: pw3}}, {password: [pw4]}]\n";
        let shown = read(text).written();
        assert!(!shown.contains("pw"), "{shown}");
        assert_eq!(shown.matches(": <secret>\n").count(), 4, "{shown}");
        assert!(shown.contains("username: u\n") && shown.contains("credentials_file: /f\n"));
    }
}
