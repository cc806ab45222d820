//! What is wrong with a file of rules, and where in it.

use std::fmt;

/// A place in a text, both numbers from 1 on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub struct Place {
    /// The line.
    pub line: usize,
    /// The character of the line.
    pub column: usize,
}

/// Something that is wrong with a file of rules.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// The file, as it was named.
    pub file: String,
    /// Where it begins.
    pub place: Place,
    /// The group in which it is.
    pub group: Option<String>,
    /// The number of the rule in its group, from 1 on, and its name.
    pub rule: Option<(usize, String)>,
    /// What is wrong.
    pub why: String,
}

impl fmt::Display for Fault {
    /// As Prometheus has it: `rules.yml:7:13: group "disks", rule 2, "DiskFull": ...`.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}:{}: ", self.file, self.place.line, self.place.column)?;
        if let Some(group) = &self.group {
            write!(out, "group {group:?}")?;
            if let Some((number, name)) = &self.rule {
                write!(out, ", rule {number}, {name:?}")?;
            }
            out.write_str(": ")?;
        }
        out.write_str(&self.why)
    }
}
