//! Dependencies: each has its line in docs/dependencies.md, and each crate of ours takes the
//! workspace's lints.
//!
//! The page is for the person who asks in a year why a crate is there and what it would take to do
//! without it.

use crate::finding::Finding;
use crate::manifest;
use crate::repository::Repository;
use std::collections::BTreeSet;

const PAGE: &str = "docs/dependencies.md";

/// The page names every dependency, and no other.
pub fn documented(repository: &Repository, findings: &mut Vec<Finding>) {
    let documented = rows(repository.text(PAGE).unwrap_or_default());
    let mut used = BTreeSet::new();
    for (path, text) in repository.texts("Cargo.toml") {
        for declared in manifest::dependencies(text) {
            if declared.name == "plinth" || declared.name.starts_with("plinth-") {
                continue;
            }
            if !documented.iter().any(|(_, name)| *name == declared.name) {
                let what = format!("dependency `{}` has no line in {PAGE}", declared.name);
                let remedy = "add it to the table: what ships it, who uses it, why, and what we would do without it";
                findings.push(Finding::new("dependency", path, declared.line, what, remedy));
            }
            used.insert(declared.name);
        }
        if path != "Cargo.toml" && !manifest::has(text, "lints", "workspace", "true") {
            let remedy = "add `[lints]` with `workspace = true`";
            findings.push(Finding::new(
                "lints",
                path,
                0,
                "does not take the workspace's lints",
                remedy,
            ));
        }
    }
    for (line, name) in documented.into_iter().filter(|(_, name)| !used.contains(*name)) {
        let what = format!("no Cargo.toml names `{name}`");
        findings.push(Finding::new("dependency", PAGE, line, what, "remove the line"));
    }
}

/// The names in the table's first column, with their lines.
fn rows(page: &str) -> Vec<(usize, &str)> {
    let cells = page
        .lines()
        .enumerate()
        .filter_map(|(index, line)| Some((index + 1, line.strip_prefix("| `")?)));
    cells.filter_map(|(line, rest)| Some((line, rest.split_once('`')?.0))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::found;

    const LINTS: &str = "\n[lints]\nworkspace = true\n";

    #[test]
    fn a_documented_dependency_is_fine() {
        let manifest =
            format!("[dependencies]\nbytes = \"1\"\nplinth-env.workspace = true\n{LINTS}");
        let files =
            [(PAGE, "| crate |\n|---|\n| `bytes` | why |\n"), ("crates/a/Cargo.toml", &manifest)];
        assert_eq!(found(documented, &files), [""; 0]);
    }

    #[test]
    fn page_and_manifests_agree_both_ways() {
        let manifest = format!("[dependencies]\nserde = \"1\"\n{LINTS}");
        let files = [(PAGE, "| `bytes` | why |\n"), ("crates/a/Cargo.toml", &manifest)];
        let expected = ["crates/a/Cargo.toml:2 dependency", "docs/dependencies.md:1 dependency"];
        assert_eq!(found(documented, &files), expected);
    }

    #[test]
    fn each_crate_takes_the_lints() {
        let files = [("Cargo.toml", "[workspace]\n"), ("crates/a/Cargo.toml", "[package]\n")];
        assert_eq!(found(documented, &files), ["crates/a/Cargo.toml:0 lints"]);
    }
}
