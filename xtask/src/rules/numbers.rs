//! Errors of a layer are that layer's: FoundationDB's numbers are made of them in one place.
//!
//! Below the edge to clients nobody reacts to a number, and one that is made there says nothing of
//! what happened. So a crate there has an error of its own in `failure.rs`, whose table of numbers
//! stands beside it, and no other file names one.

use crate::finding::Finding;
use crate::repository::Repository;
use crate::source::words;

/// The crates below that edge.
const BELOW: [&str; 7] = ["env", "format", "log", "storage", "replication", "peers", "pipeline"];

/// The file of such a crate that may name numbers, and what `format` calls it.
const TABLES: [&str; 2] = ["/failure.rs", "/corruption.rs"];

/// `Error::io_error()` and its like stand in `failure.rs` alone.
pub fn at_the_edge(repository: &Repository, findings: &mut Vec<Finding>) {
    for (path, source) in repository.sources() {
        let is_below = BELOW.iter().any(|name| path.starts_with(&format!("crates/{name}/src/")));
        if !is_below || TABLES.iter().any(|table| path.ends_with(table)) {
            continue;
        }
        let code = source.code();
        for at in words(code, "Error").filter(|at| makes_number(code, *at)) {
            findings.push(Finding::new(
                "numbers",
                path,
                source.line_of(at),
                "a layer makes an error with FoundationDB's number",
                "give the layer's own error a variant, and its number a line in `failure.rs`",
            ));
        }
    }
}

/// Whether the word at `at` is the beginning of `Error::some_number()`.
fn makes_number(code: &str, at: usize) -> bool {
    let before = &code[..at];
    let is_ours = !before.ends_with("::") || before.ends_with("plinth_types::");
    let Some(name) = code[at..].strip_prefix("Error::") else { return false };
    let end = name.find(|letter: char| !letter.is_ascii_lowercase() && letter != '_');
    is_ours && end.is_some_and(|end| end > 0 && name[end..].starts_with("()"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::found;

    #[test]
    fn numbers_are_made_in_the_table_of_a_layer_alone() {
        let made = "fn f() -> Error {\n    Error::io_error().with_detail(\"x\")\n}\n";
        let of_types = "fn f() {\n    drop(plinth_types::Error::io_error());\n}\n";
        let others = "fn f() {\n    io::Error::last_os_error();\n    Error::from(\"x\");\n}\n";
        let found = |path: &str, text: &str| found(at_the_edge, &[(path, text)]);
        assert_eq!(found("crates/log/src/log.rs", made), ["crates/log/src/log.rs:2 numbers"]);
        assert_eq!(found("crates/env/src/a.rs", of_types), ["crates/env/src/a.rs:2 numbers"]);
        assert_eq!(found("crates/log/src/failure.rs", made), [""; 0]);
        assert_eq!(found("crates/client/src/lib.rs", made), [""; 0]);
        assert_eq!(found("crates/log/src/log.rs", others), [""; 0]);
    }
}
