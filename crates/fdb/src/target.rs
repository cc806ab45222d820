//! How a FoundationDB database is named: `fdb:CLUSTER_FILE[?lib=PATH]`.
//!
//! The cluster file is what the C library is given: a path, or nothing for the default one. With
//! our own library it may be a directory or `:memory:` as well. The library is the system's unless
//! its path is given.

use plinth_types::{Error, Result};

/// A database to be reached through a C library.
///
/// ```
/// let target: plinth_fdb::Target = "fdb:/etc/foundationdb/fdb.cluster?lib=/usr/lib/libfdb_c.so".parse()?;
/// assert_eq!(target.cluster_file, "/etc/foundationdb/fdb.cluster");
/// assert_eq!(target.library.as_deref(), Some("/usr/lib/libfdb_c.so"));
/// # Ok::<(), plinth_types::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    /// The cluster file argument; empty for the default cluster file.
    pub cluster_file: String,
    /// The library's path; `None` for the system's `libfdb_c`.
    pub library: Option<String>,
}

/// What such a name begins with.
const SCHEME: &str = "fdb:";

impl Target {
    /// Whether a text is meant as such a name.
    pub fn is_one(text: &str) -> bool {
        text.starts_with(SCHEME)
    }
}

impl std::str::FromStr for Target {
    type Err = Error;

    /// # Errors
    /// `connection_string_invalid` if the text doesn't begin with `fdb:` or has a parameter other
    /// than `lib`.
    fn from_str(text: &str) -> Result<Self> {
        let invalid = |what: String| {
            let detail =
                format!("{text:?}: {what}; write fdb:CLUSTER_FILE or fdb:CLUSTER_FILE?lib=PATH");
            Error::connection_string_invalid().with_detail(detail)
        };
        let rest = text
            .strip_prefix(SCHEME)
            .ok_or_else(|| invalid(format!("it does not begin with {SCHEME}")))?;
        let (cluster_file, parameters) = rest.split_once('?').unwrap_or((rest, ""));
        let mut library = None;
        for parameter in parameters.split('&').filter(|parameter| !parameter.is_empty()) {
            match parameter.split_once('=') {
                Some(("lib", path)) if !path.is_empty() => library = Some(path.to_owned()),
                _ => return Err(invalid(format!("there is no parameter {parameter:?}"))),
            }
        }
        Ok(Self { cluster_file: cluster_file.to_owned(), library })
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{SCHEME}{}", self.cluster_file)?;
        self.library.as_ref().map_or(Ok(()), |path| write!(f, "?lib={path}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_and_written() {
        for text in ["fdb:", "fdb:./fdb.cluster", "fdb:/a b/c?lib=/x/libfdb_c.so"] {
            assert_eq!(text.parse::<Target>().unwrap().to_string(), text);
        }
        for text in ["", "./dir", "fdb:a?lib=", "fdb:a?library=b", "fdb:a?lib"] {
            let error = text.parse::<Target>().unwrap_err();
            assert_eq!(error, Error::connection_string_invalid(), "{text}");
        }
        assert!(Target::is_one("fdb:") && !Target::is_one("./fdb"));
    }
}
