//! The tables of probes and of planted bugs have what stands in the sources.

use plinth_env::{Env, block_on};
use plinth_sim::{Bug, probes};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The text of every source file of the crates.
fn sources() -> Vec<(PathBuf, String)> {
    let (env, mut found) = (Env::real(), Vec::new());
    let mut left = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("..")];
    while let Some(path) = left.pop() {
        if path.extension().is_some_and(|extension| extension == "rs") {
            let text = block_on(env.files().read(&path)).unwrap();
            found.push((path, String::from_utf8(text).unwrap()));
        } else if let Ok(names) = block_on(env.files().list(&path)) {
            left.extend(
                names.iter().filter(|name| !name.starts_with('.')).map(|name| path.join(name)),
            );
        }
    }
    found
}

/// The names between `begin` and the quote that ends them.
fn names(begin: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for (path, text) in sources() {
        if path.ends_with("types/src/marks.rs") || path.ends_with("sim/tests/probes.rs") {
            continue;
        }
        for after in text.split(begin).skip(1) {
            names.insert(after.split('"').next().unwrap_or_default().to_string());
        }
    }
    names
}

#[test]
fn every_probe_in_the_product_has_a_line() {
    let in_product = names("probe!(\"");
    assert!(in_product.len() > 10, "{in_product:?}");
    for name in &in_product {
        assert!(probes::ALL.contains(&name.as_str()), "{name} has no line in the table");
    }
    assert!(probes::ALL.is_sorted(), "the table is sorted");
    for name in probes::ALL {
        assert_eq!(probes::is_of_product(name), in_product.contains(*name), "{name}");
    }
}

#[test]
fn every_planted_mistake_belongs_to_a_bug_or_is_planted_by_a_test() {
    let planted = names("planted!(\"");
    assert!(planted.len() >= 8, "{planted:?}");
    let is_test = |path: &Path| path.components().any(|part| part.as_os_str() == "tests");
    let tests: Vec<String> =
        sources().into_iter().filter(|(path, _)| is_test(path)).map(|(_, text)| text).collect();
    for name in planted {
        let quoted = format!("\"{name}\"");
        let is_planted =
            Bug::named(&name).is_some() || tests.iter().any(|text| text.contains(&quoted));
        assert!(is_planted, "{name} is no bug that a test plants");
    }
}
