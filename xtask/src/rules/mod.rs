//! The rules that need nothing but the files: each takes the repository and gives back what it
//! found.
//!
//! A rule is one small file with a doc that says what it asks and why, and a test with a good and a
//! bad sample. What an existing tool can prove (format, lints, broken links in rustdoc) is left to
//! that tool.

mod circles;
mod columns;
mod dependencies;
mod headers;
mod leftovers;
pub mod links;
mod numbers;
mod readme;
mod size;
mod suites;

use crate::finding::Finding;
use crate::repository::Repository;

/// Every rule, in the order in which its findings are printed.
pub fn all(repository: &Repository) -> Vec<Finding> {
    let rules: [fn(&Repository, &mut Vec<Finding>); 15] = [
        size::files,
        size::functions_and_structs,
        size::weight,
        columns::of_prose,
        headers::first_pages,
        leftovers::words,
        leftovers::unwraps,
        leftovers::machine_paths,
        dependencies::documented,
        links::resolve,
        links::no_orphans,
        readme::is_run,
        circles::of_modules,
        suites::whole,
        numbers::at_the_edge,
    ];
    let mut findings = Vec::new();
    for rule in rules {
        rule(repository, &mut findings);
    }
    findings
}

/// What the given rule finds in the given files, each finding as `path:line rule`.
#[cfg(test)]
fn found(rule: fn(&Repository, &mut Vec<Finding>), files: &[(&str, &str)]) -> Vec<String> {
    let mut findings = Vec::new();
    rule(&Repository::of(files), &mut findings);
    findings
        .iter()
        .map(|finding| format!("{}:{} {}", finding.path, finding.line, finding.rule))
        .collect()
}
