//! What a label has to be for a series to be selected.
//!
//! A regular expression is matched in time linear in the text. Lists of texts, as dashboards make
//! them of their variables, and prefixes are compared without it: a list of a hundred thousand
//! costs a look-up.

use crate::labels::quoted;
use crate::pattern;
use regex_lite::Regex;
use std::collections::BTreeSet;
use std::fmt;

/// What a compiled regular expression may take in bytes.
const MAX_REGEX: usize = 4 << 20;

/// How a value is compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MatchOp {
    /// `=`
    Equal,
    /// `!=`
    NotEqual,
    /// `=~`
    Matches,
    /// `!~`
    MatchesNot,
}

impl MatchOp {
    /// How it is written.
    pub fn text(self) -> &'static str {
        match self {
            Self::Equal => "=",
            Self::NotEqual => "!=",
            Self::Matches => "=~",
            Self::MatchesNot => "!~",
        }
    }
}

/// A condition on one label.
#[derive(Clone, Debug)]
pub struct Matcher {
    /// The label's name.
    pub label: String,
    /// How it is compared.
    pub op: MatchOp,
    /// The text, or the pattern as it was written.
    pub value: String,
    test: Test,
}

#[derive(Clone, Debug)]
enum Test {
    Is,
    OneOf(BTreeSet<String>),
    /// Any text that begins so; of these characters at least one more if the flag is set.
    Begins(String, bool),
    Fits(Regex),
}

impl Matcher {
    /// A condition; fails where the pattern is none.
    pub fn new(label: &str, op: MatchOp, value: &str) -> Result<Self, String> {
        let test = match op {
            MatchOp::Equal | MatchOp::NotEqual => Test::Is,
            MatchOp::Matches | MatchOp::MatchesNot => test(value)?,
        };
        Ok(Self { label: label.to_string(), op, value: value.to_string(), test })
    }

    /// Whether a label's value is as it has to be; a label that isn't there is empty.
    pub fn matches(&self, value: &str) -> bool {
        let is = match &self.test {
            Test::Is => self.value == value,
            Test::OneOf(all) => all.contains(value),
            Test::Begins(prefix, more) => {
                value.starts_with(prefix.as_str()) && (!more || value.len() > prefix.len())
            }
            Test::Fits(regex) => regex.is_match(value),
        };
        is == matches!(self.op, MatchOp::Equal | MatchOp::Matches)
    }

    /// The values that alone let a series through, if they are known: those of `=`, and of a list.
    pub fn only_values(&self) -> Option<Vec<&str>> {
        match (&self.test, self.op) {
            (Test::Is, MatchOp::Equal) => Some(vec![&self.value]),
            (Test::OneOf(all), MatchOp::Matches) => Some(all.iter().map(String::as_str).collect()),
            _ => None,
        }
    }
}

impl fmt::Display for Matcher {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match crate::labels::is_plain_label(&self.label) {
            true => write!(out, "{}{}{}", self.label, self.op.text(), quoted(&self.value)),
            false => {
                write!(out, "{}{}{}", quoted(&self.label), self.op.text(), quoted(&self.value))
            }
        }
    }
}

fn test(text: &str) -> Result<Test, String> {
    let is_plain = |text: &str| !text.contains(|c| r"\.+*?()[]{}^$|".contains(c));
    // A newline is a character like all others: Prometheus compiles with `s`.
    for (end, more) in [(".*", false), (".+", true)] {
        if let Some(prefix) = text.strip_suffix(end)
            && is_plain(prefix)
        {
            return Ok(Test::Begins(prefix.to_string(), more));
        }
    }
    let inner = text.strip_prefix('(').and_then(|text| text.strip_suffix(')')).unwrap_or(text);
    if inner.split('|').all(is_plain) {
        return Ok(Test::OneOf(inner.split('|').map(str::to_string).collect()));
    }
    compile(text).map(Test::Fits)
}

/// A regular expression that the whole of a text has to fit.
pub(crate) fn compile(text: &str) -> Result<Regex, String> {
    pattern::compiled(&format!("^(?s:{text})$"), MAX_REGEX)
}
