//! Regular expressions, with a bound of all that they take.
//!
//! `regex-lite` bounds what is compiled. A search takes two tables besides, with room for each
//! group in each state: a pattern of a hundred kilobytes, `()()()` and so on, which is within the
//! limit, would make them a hundred gigabytes.

/// A regular expression that was compiled.
pub use regex_lite::Regex as Pattern;
use regex_lite::{Regex, RegexBuilder};

/// What the tables of a search may take in bytes.
const MAX_TABLES: usize = 64 << 20;

/// A regular expression that takes at most so many bytes when it is compiled, and some mebibytes
/// when it is searched for.
///
/// # Errors
/// What is wrong with it.
pub fn compiled(pattern: &str, most: usize) -> Result<Regex, String> {
    let build = |most| RegexBuilder::new(pattern).size_limit(most).build();
    let regex = build(most).map_err(|error| error.to_string())?;
    // A state has 32 bytes, and a group in it 16 in each table: as much as the state for both.
    let fits = MAX_TABLES / regex.captures_len();
    match fits < most {
        true => build(fits).map_err(|_| "too many groups in so large a pattern".to_string()),
        false => Ok(regex),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Any client could ask for such a pattern, and the server was out of memory.
    #[test]
    fn a_pattern_of_nothing_but_groups_is_refused() {
        let groups = "()".repeat(10_000);
        let why = compiled(&groups, 4 << 20).unwrap_err();
        assert!(why.contains("too many groups"), "{why}");
        assert!(compiled(&"(?:)".repeat(10_000), 4 << 20).unwrap().is_match("a"));
        assert!(compiled(&"(a)".repeat(100), 4 << 20).unwrap().is_match(&"a".repeat(100)));
        assert!(compiled("a{5000}", 1 << 10).unwrap_err().contains("limit"));
    }
}
