//! Tests that are built as one program are all in it.
//!
//! A crate with `autotests = false` says itself which programs its tests make. A file beside them
//! that no suite names would be compiled by nobody, and its tests would never fail.

use crate::finding::Finding;
use crate::manifest;
use crate::repository::Repository;

/// Each file of tests is a program that the manifest names, or part of one.
pub fn whole(repository: &Repository, findings: &mut Vec<Finding>) {
    for (path, text) in repository.texts("Cargo.toml") {
        if !manifest::has(text, "package", "autotests", "false") {
            continue;
        }
        let folder = path.replace("Cargo.toml", "tests/");
        let file_of = |file: &str| {
            file.strip_prefix(&folder).filter(|name| !name.contains('/')).map(str::to_owned)
        };
        let files: Vec<_> = repository.files().filter_map(|file| file_of(&file.path)).collect();
        let is_program = |name: &str| {
            let stem = name.trim_end_matches(".rs");
            manifest::has(text, "test", "name", &format!("\"{stem}\""))
        };
        let (programs, parts): (Vec<_>, Vec<_>) = files
            .into_iter()
            .filter(|name| name.ends_with(".rs"))
            .partition(|name| is_program(name));
        for part in parts {
            let names_it = |program: &String| {
                let suite = repository.text(&format!("{folder}{program}")).unwrap_or_default();
                suite.contains(&format!("#[path = \"{part}\"]"))
            };
            if !programs.iter().any(names_it) {
                let what = "no suite names this file of tests, so nobody runs them";
                let remedy = format!("name it in {folder}suite.rs, or as a [[test]] in {path}");
                findings.push(Finding::new("suite", &format!("{folder}{part}"), 0, what, &remedy));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::found;

    const MANIFEST: (&str, &str) =
        ("crates/a/Cargo.toml", "[package]\nautotests = false\n[[test]]\nname = \"suite\"\n");

    #[test]
    fn files_in_a_suite_are_fine_and_so_is_what_they_share() {
        let suite = ("crates/a/tests/suite.rs", "#[path = \"one.rs\"]\nmod one;\n");
        let files =
            [MANIFEST, suite, ("crates/a/tests/one.rs", ""), ("crates/a/tests/common/mod.rs", "")];
        assert_eq!(found(whole, &files), [""; 0]);
    }

    #[test]
    fn a_file_in_no_suite_is_found() {
        let files = [MANIFEST, ("crates/a/tests/suite.rs", ""), ("crates/a/tests/two.rs", "")];
        assert_eq!(found(whole, &files), ["crates/a/tests/two.rs:0 suite"]);
    }

    #[test]
    fn a_crate_whose_tests_cargo_finds_needs_none() {
        let files = [("crates/a/Cargo.toml", "[package]\n"), ("crates/a/tests/two.rs", "")];
        assert_eq!(found(whole, &files), [""; 0]);
    }
}
