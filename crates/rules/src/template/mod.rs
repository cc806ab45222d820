//! Templates in labels and annotations: as much of Go's `text/template` as rules use.
//!
//! ```text
//!   text --lexer--> pieces: text, or tokens between braces --parse--> nodes --run over labels and a value--> text
//! ```
//! A template is read once, when its file is, and refused there if it asks for what isn't known: a
//! function, a variable, another template, a wrong number of arguments. It is carried out for each
//! alert.
//! What it may write, how many steps it may take and how deep it is nested are bounded, and a run
//! never waits: who carries it out answers its queries (`run.rs`).

mod bounded;
mod context;
mod functions;
mod gofmt;
pub(crate) mod human;
mod lexer;
mod parse;
mod pattern;
mod run;
mod value;

#[cfg(test)]
mod tests;

use context::Stop;
use plinth_promql::Labels;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use value::Map;

/// A template, read.
#[derive(Clone)]
pub struct Template {
    text: Arc<str>,
    tree: Arc<parse::Tree>,
}

impl fmt::Debug for Template {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text.fmt(out)
    }
}

/// What templates see of the world around: labels that all alerts of a server get, and where people
/// find it.
#[derive(Clone, Default, Debug)]
pub struct Outside {
    pub(crate) url: String,
    pub(crate) labels: Map,
}

impl Outside {
    /// The address at which people find this server, and the labels that its alerts get unless they
    /// have them.
    pub fn new(url: &str, labels: BTreeMap<String, String>) -> Self {
        Self { url: url.trim_end_matches('/').to_string(), labels: Arc::new(labels) }
    }
}

/// What a template is about.
pub(crate) struct Data {
    labels: Map,
    value: f64,
    /// Of the evaluation, in nanoseconds since 1970.
    time: i64,
}

impl Data {
    pub(crate) fn new(labels: &Labels, value: f64, time: i64) -> Self {
        Self { labels: mapped(labels), value, time }
    }
}

fn mapped(labels: &Labels) -> Map {
    let owned = labels.iter().map(|(name, value)| (name.to_string(), value.to_string()));
    Arc::new(owned.collect())
}

/// The series of a query.
type Series = Arc<[Arc<value::Sample>]>;

/// Answers of queries by their expressions: the series, or why there are none.
#[derive(Default)]
pub(crate) struct Answers(BTreeMap<String, Result<Series, String>>);

impl Answers {
    /// Notes what a query came to.
    pub(crate) fn add(&mut self, query: String, answer: Result<Vec<(Labels, f64)>, String>) {
        let sample = |(labels, value): &(Labels, f64)| {
            Arc::new(value::Sample { labels: mapped(labels), value: *value })
        };
        self.0.insert(query, answer.map(|series| series.iter().map(sample).collect()));
    }
}

/// What came of a template.
#[derive(Debug)]
pub(crate) enum Expanded {
    Text(String),
    /// A query has to be answered first; then it is carried out again.
    Asks(String),
    Failed(String),
}

impl Template {
    /// Reads a template. The error says at which line and character, and what is wrong.
    pub fn parse(text: &str) -> Result<Self, String> {
        let tree = parse::parse(text).map_err(|(at, why)| {
            let before = text.get(..at).unwrap_or(text);
            let begin = before.rfind('\n').map_or(0, |newline| newline + 1);
            let line = before.matches('\n').count() + 1;
            format!("template:{line}:{}: {why}", before[begin..].chars().count() + 1)
        })?;
        Ok(Self { text: text.into(), tree: Arc::new(tree) })
    }

    /// A text that stays what it is.
    pub(crate) fn plain(text: &str) -> Self {
        let nodes = vec![parse::Node::Text(text.to_string())];
        Self { text: text.into(), tree: Arc::new(parse::Tree { nodes, defined: BTreeMap::new() }) }
    }

    /// As it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Carries it out.
    pub(crate) fn expand(&self, data: &Data, outside: &Outside, answers: &Answers) -> Expanded {
        match run::run(&self.tree, data, outside, answers) {
            Ok(text) => Expanded::Text(text),
            Err(Stop::Query(query)) => Expanded::Asks(query),
            Err(Stop::Wrong(why)) => Expanded::Failed(why),
        }
    }
}
