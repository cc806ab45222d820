//! What a rule found: where, what, and what to do about it.

use std::fmt;

/// One thing that is wrong at one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The rule's name, as it stands in `exceptions.txt`.
    pub rule: &'static str,
    /// Path from the repository's root.
    pub path: String,
    /// Line from 1; 0 when the finding is about the whole file.
    pub line: usize,
    /// What is wrong.
    pub what: String,
    /// What to do about it.
    pub remedy: String,
    /// For rules about size: the function or struct (empty for a file) and the measured size.
    pub size: Option<(String, usize)>,
}

impl Finding {
    /// A finding about one line.
    pub fn new(
        rule: &'static str,
        path: &str,
        line: usize,
        what: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Finding {
        Finding {
            rule,
            path: path.to_string(),
            line,
            what: what.into(),
            remedy: remedy.into(),
            size: None,
        }
    }

    /// The same, as a finding about the size of `item` which an exception can name.
    pub fn with_size(mut self, item: &str, size: usize) -> Finding {
        self.size = Some((item.to_string(), size));
        self
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.what)?,
            line => write!(f, "{}:{line}: {}", self.path, self.what)?,
        }
        write!(f, " [{}]\n    {}", self.rule, self.remedy)
    }
}
