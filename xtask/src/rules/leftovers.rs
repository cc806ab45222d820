//! Leftovers: words that mean "not finished" or "not checked", and paths of somebody's machine.
//!
//! The forbidden words are put together from halves here, or this file would find itself.

use crate::finding::Finding;
use crate::repository::Repository;
use crate::source::words as whole_words;

/// Looked for in code: what, and what to do instead.
const IN_CODE: [(&str, &str); 5] = [
    (concat!("todo", "!"), "finish it, or return an error"),
    (concat!("unimplemented", "!"), "finish it, or return an error"),
    (concat!("dbg", "!"), "remove it"),
    (concat!("#[ig", "nore"), "mend the test or delete it; a test nobody runs proves nothing"),
    (concat!("assert!(", "true)"), "assert what the test is about"),
];

/// Looked for everywhere in a source file, comments too: what, and what to do instead.
const IN_TEXT: [(&str, &str); 4] = [
    (concat!("FIX", "ME"), "mend it now, or open an issue and say in the comment what is so"),
    (concat!("XX", "X"), "mend it now, or open an issue and say in the comment what is so"),
    (concat!("TO", "DO"), "do it now, or open an issue and say in the comment what is so"),
    (concat!("```ig", "nore"), "make the example compile, or mark it `text`"),
];

/// Paths that exist on one machine only.
const MACHINE_PATHS: [&str; 2] = [concat!("/wo", "rk/"), concat!("/tmp/pl", "inth")];

/// No word that marks unfinished work or a test that is not run.
pub fn words(repository: &Repository, findings: &mut Vec<Finding>) {
    for (path, source) in repository.sources() {
        for (word, remedy) in IN_CODE {
            for at in starts(source.code(), word) {
                findings.push(Finding::new(
                    "leftover",
                    path,
                    source.line_of(at),
                    format!("`{word}`"),
                    remedy,
                ));
            }
        }
        for (word, remedy) in IN_TEXT {
            for at in whole_words(source.text(), word) {
                findings.push(Finding::new(
                    "leftover",
                    path,
                    source.line_of(at),
                    format!("`{word}`"),
                    remedy,
                ));
            }
        }
    }
}

/// No `unwrap` outside tests: it says neither why it can't fail nor what to do when it does.
pub fn unwraps(repository: &Repository, findings: &mut Vec<Finding>) {
    for (path, source) in repository.sources().filter(|(path, _)| !is_test(path)) {
        let tests = source.test_items();
        let calls = source.code().match_indices(".unwrap()").map(|(at, _)| at);
        for at in calls.filter(|at| !tests.iter().any(|item| item.contains(at))) {
            let remedy =
                "return the error, or say by `expect(\"...\")` what guarantees that there is none";
            findings.push(Finding::new(
                "unwrap",
                path,
                source.line_of(at),
                "`unwrap()` outside tests",
                remedy,
            ));
        }
    }
}

/// Whether a whole file is test code, by its path.
fn is_test(path: &str) -> bool {
    let mut parts = path.split('/');
    let name = parts.next_back().unwrap_or_default();
    name == "tests.rs" || name.ends_with("_tests.rs") || parts.any(|part| part == "tests")
}

/// No path of a machine in any text.
pub fn machine_paths(repository: &Repository, findings: &mut Vec<Finding>) {
    for (path, text) in repository.texts("") {
        for (number, line) in text.lines().enumerate() {
            for machine in MACHINE_PATHS.iter().filter(|machine| line.contains(**machine)) {
                let remedy =
                    "write it relative to the repository, or take a fresh temporary directory";
                let what = format!("a path of one machine: {machine}");
                findings.push(Finding::new("machine-path", path, number + 1, what, remedy));
            }
        }
    }
}

/// Where `word` begins without a letter before it.
fn starts<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    code.match_indices(word).map(|(at, _)| at).filter(move |at| {
        let before = at.checked_sub(1).map(|before| code.as_bytes()[before]);
        !before.is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::found;

    #[test]
    fn unfinished_work_is_found_in_code() {
        for (word, _) in IN_CODE {
            let bad = format!("fn f() {{\n    {word}\n}}");
            let good = format!("// {word} is banned\nfn f() {{ let s = \"{word}\"; my_{word} }}");
            assert_eq!(
                found(words, &[("bad.rs", &bad), ("notes.md", &bad)]),
                ["bad.rs:2 leftover"],
                "{word}"
            );
            if !word.starts_with('#') {
                assert_eq!(found(words, &[("good.rs", &good)]), [""; 0], "{word}");
            }
        }
    }

    #[test]
    fn unfinished_work_is_found_in_comments() {
        for (word, _) in IN_TEXT {
            let bad = format!("//\n// {word}: later");
            assert_eq!(found(words, &[("bad.rs", &bad)]), ["bad.rs:2 leftover"], "{word}");
            assert_eq!(found(words, &[("good.rs", &format!("// {word}ED"))]), [""; 0], "{word}");
        }
    }

    #[test]
    fn unwraps_belong_into_tests() {
        let test = "/// x.unwrap()\nfn f() { x.unwrap_or(1) }\n#[cfg(test)]\nmod tests {\n    fn g() { x.unwrap() }\n}\n";
        let bad = format!("{test}fn f() {{ x.unwrap() }}");
        let files = [
            ("crates/a/src/good.rs", test),
            ("crates/a/src/bad.rs", &bad),
            ("crates/a/src/tests.rs", "fn f() { x.unwrap() }"),
            ("crates/a/tests/model/mod.rs", "fn f() { x.unwrap() }"),
        ];
        assert_eq!(found(unwraps, &files), ["crates/a/src/bad.rs:7 unwrap"]);
    }

    #[test]
    fn machine_paths_are_found_in_every_text() {
        for path in MACHINE_PATHS {
            let bad = format!("one\ncd {path}x");
            assert_eq!(
                found(machine_paths, &[("a.md", &bad), ("b.toml", "/tmp")]),
                ["a.md:2 machine-path"]
            );
        }
    }
}
