//! The README's example is compiled and run: the facade takes the file in as a doctest.

use crate::finding::Finding;
use crate::repository::Repository;

const FACADE: &str = "crates/plinth/src/lib.rs";
const TAKEN_IN: &str = "include_str!(\"../../../README.md\")";

/// Rust in the README is a doctest of the facade.
pub fn is_run(repository: &Repository, findings: &mut Vec<Finding>) {
    let example = |text: &str| text.lines().position(|line| line.starts_with("```rust"));
    let Some(index) = repository.text("README.md").and_then(example) else { return };
    if !repository.text(FACADE).is_some_and(|text| text.contains(TAKEN_IN)) {
        let remedy = format!("in {FACADE}: #[cfg(doctest)] #[doc = {TAKEN_IN}] struct Readme;");
        findings.push(Finding::new(
            "readme",
            "README.md",
            index + 1,
            "an example that nothing compiles",
            remedy,
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::found;

    #[test]
    fn an_example_is_taken_in_by_the_facade() {
        let readme = ("README.md", "# P\n```rust\nfn main() {}\n```\n");
        assert_eq!(found(is_run, &[readme, (FACADE, "//! P")]), ["README.md:2 readme"]);
        assert_eq!(found(is_run, &[readme, (FACADE, TAKEN_IN)]), [""; 0]);
        assert_eq!(found(is_run, &[("README.md", "# P\n```sh\nmake\n```\n")]), [""; 0]);
    }
}
