//! What is wrong with a text, and where in it.

use std::fmt;

/// What is wrong with a text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParseError {
    /// The line, from 1 on.
    pub line: usize,
    /// The character of the line, from 1 on.
    pub column: usize,
    /// What is wrong.
    pub why: String,
}

impl ParseError {
    pub(crate) fn new(text: &str, at: usize, why: &str) -> Self {
        let (line, column) = place(text, at);
        Self { line, column, why: why.to_string() }
    }
}

/// The line and the column of a byte.
pub(crate) fn place(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let begin = before.rfind('\n').map_or(0, |newline| newline + 1);
    (line, before[begin..].chars().count() + 1)
}

impl fmt::Display for ParseError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}: parse error: {}", self.line, self.column, self.why)
    }
}
