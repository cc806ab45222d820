//! Damage, as it is told to people: file, offset, what was expected and what was found.

use plinth_types::Error;
use std::fmt;

/// One place where a file is not what it should be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Corruption {
    /// Path of the file.
    pub file: String,
    /// Bytes from the beginning of the file.
    pub offset: u64,
    /// Which rule is broken.
    pub what: String,
    /// What should be there.
    pub expected: String,
    /// What is there.
    pub found: String,
}

impl fmt::Display for Corruption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, offset, what, expected, found } = self;
        write!(f, "{file} at offset {offset}: {what}: expected {expected}, found {found}")
    }
}

impl std::error::Error for Corruption {}

impl From<&Corruption> for Error {
    fn from(corruption: &Corruption) -> Self {
        Self::file_corrupt().with_detail(corruption.to_string())
    }
}

impl From<Corruption> for Error {
    fn from(corruption: Corruption) -> Self {
        Self::from(&corruption)
    }
}

/// What is wrong, before it is known in which file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Flaw {
    /// Which rule is broken.
    pub what: &'static str,
    /// What should be there.
    pub expected: String,
    /// What is there.
    pub found: String,
}

impl Flaw {
    /// A flaw in what is named by `what`.
    pub fn new(what: &'static str, expected: impl fmt::Display, found: impl fmt::Display) -> Self {
        Self { what, expected: expected.to_string(), found: found.to_string() }
    }

    /// A flaw in two numbers that are best read in hexadecimal.
    pub fn hex(what: &'static str, expected: u32, found: u32) -> Self {
        Self::new(what, format_args!("{expected:#010x}"), format_args!("{found:#010x}"))
    }

    /// The same, in this place.
    pub fn at(self, file: &str, offset: u64) -> Corruption {
        let Self { what, expected, found } = self;
        Corruption { file: file.to_string(), offset, what: what.to_string(), expected, found }
    }
}
