//! Licences: every package that a build can take in comes under one of those that deny.toml allows.
//!
//! cargo-deny asks the same and more (advisories, sources), but a fresh machine does not have it,
//! and building it takes longer than building Plinth. So this check reads the same list from
//! deny.toml and needs nothing; `check` starts cargo-deny besides where it is installed.

use crate::Result;
use crate::finding::Finding;
use crate::packages::{self, Licensed};
use crate::repository::Repository;

const LIST: &str = "deny.toml";

/// Compares every package's licence with the list.
pub fn check(repository: &Repository) -> Result<Vec<Finding>> {
    let list = repository.text(LIST).ok_or("deny.toml is missing")?;
    Ok(judge(&allowed(list), &packages::licences()?))
}

fn judge(allowed: &[&str], packages: &[Licensed]) -> Vec<Finding> {
    let refused = packages.iter().filter(|package| !accepts(&package.licence, allowed));
    refused
        .map(|package| {
            let shown =
                if package.licence.is_empty() { "no licence stated" } else { &package.licence };
            let what = format!("{} comes under: {shown}", package.package);
            let remedy =
                format!("do without it, or argue for the licence and add it to `allow` in {LIST}");
            Finding::new("licence", "Cargo.lock", 0, what, remedy)
        })
        .collect()
}

/// The strings of the list `allow` in the section `[licenses]`.
fn allowed(text: &str) -> Vec<&str> {
    let section = text.split_once("[licenses]").map_or("", |(_, rest)| rest);
    let list = section.split_once("allow = [").map_or("", |(_, rest)| rest);
    let list = list.split_once(']').map_or("", |(list, _)| list);
    list.split('"').skip(1).step_by(2).collect()
}

/// Whether an SPDX expression can be met with the allowed licences: one of each `OR`, all of each
/// `AND`.
fn accepts(expression: &str, allowed: &[&str]) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut at = 0;
    let met = any_of(&words, &mut at, allowed);
    met && at == words.len()
}

fn any_of(words: &[&str], at: &mut usize, allowed: &[&str]) -> bool {
    let mut met = all_of(words, at, allowed);
    while words.get(*at) == Some(&"OR") {
        *at += 1;
        met |= all_of(words, at, allowed);
    }
    met
}

fn all_of(words: &[&str], at: &mut usize, allowed: &[&str]) -> bool {
    let mut met = one(words, at, allowed);
    while words.get(*at) == Some(&"AND") {
        *at += 1;
        met &= one(words, at, allowed);
    }
    met
}

fn one(words: &[&str], at: &mut usize, allowed: &[&str]) -> bool {
    let word = words.get(*at);
    *at += 1; // past the end of a broken expression too, which `accepts` notices
    let Some(word) = word else { return false };
    if *word == "(" {
        let met = any_of(words, at, allowed);
        let closed = words.get(*at) == Some(&")");
        *at += 1;
        return met && closed;
    }
    // An exception only adds rights, so the licence before it decides.
    if words.get(*at) == Some(&"WITH") {
        *at += 2;
    }
    allowed.contains(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_judged() {
        let allowed = ["MIT", "Apache-2.0", "Unicode-3.0"];
        let good = [
            "MIT",
            "MIT OR GPL-3.0",
            "GPL-3.0 OR MIT",
            "MIT/GPL-2.0",
            "(MIT OR GPL-3.0) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception OR GPL-3.0",
        ];
        let bad = [
            "",
            "GPL-3.0",
            "MIT AND GPL-3.0",
            "MIT OR",
            "(MIT",
            "MIT)",
            "(GPL-3.0 OR AGPL-3.0) AND MIT",
        ];
        for expression in good {
            assert!(accepts(expression, &allowed), "{expression}");
        }
        for expression in bad {
            assert!(!accepts(expression, &allowed), "{expression}");
        }
    }

    #[test]
    fn the_list_is_read_from_deny_toml() {
        let text = "[bans]\nallow = [\"x\"]\n[licenses]\nconfidence-threshold = 0.9\nallow = [\n  \"MIT\",\n  \"ISC\",\n]\n";
        assert_eq!(allowed(text), ["MIT", "ISC"]);
    }

    #[test]
    fn a_refused_package_is_named() {
        let package =
            |name: &str, licence: &str| Licensed { package: name.into(), licence: licence.into() };
        let found = judge(
            &["MIT"],
            &[package("a v1", "MIT"), package("b v2", "GPL-3.0"), package("c v3", "")],
        );
        let whats: Vec<String> = found.into_iter().map(|finding| finding.what).collect();
        assert_eq!(whats, ["b v2 comes under: GPL-3.0", "c v3 comes under: no licence stated"]);
    }
}
