//! What cargo knows of the workspace: which package uses which, and under which licence each comes.
//!
//! Taken from `cargo tree`, whose output is made to order by `--format`, so that no JSON has to be
//! read.

use crate::{Result, cargo};

/// One package of ours, and what it uses directly.
#[derive(Debug, PartialEq, Eq)]
pub struct Member {
    pub name: String,
    pub uses: Vec<String>,
}

/// A package of anybody's with its licence expression, as its manifest states it.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Licensed {
    pub package: String,
    pub licence: String,
}

const EVERYTHING: [&str; 6] =
    ["tree", "--workspace", "--locked", "--all-features", "--target", "all"];

/// The members and what each uses through edges of the given kinds (`normal,build` or `dev`).
pub fn members(kinds: &str) -> Result<Vec<Member>> {
    let shape =
        ["--no-dedupe", "--depth", "1", "--prefix", "depth", "--edges", kinds, "--format", "{p}"];
    Ok(parse_members(&cargo::output(&[&EVERYTHING[..], &shape].concat())?))
}

/// Every package that a build of anything here could take in.
pub fn licences() -> Result<Vec<Licensed>> {
    let shape = ["--prefix", "none", "--edges", "normal,build,dev", "--format", "{p}\t{l}"];
    Ok(parse_licences(&cargo::output(&[&EVERYTHING[..], &shape].concat())?))
}

fn parse_members(tree: &str) -> Vec<Member> {
    let mut members: Vec<Member> = Vec::new();
    for line in tree.lines() {
        let name = line.get(1..).and_then(|rest| rest.split(' ').next()).unwrap_or_default();
        match (line.as_bytes().first(), members.last_mut()) {
            (Some(b'0'), _) => members.push(Member { name: name.to_string(), uses: Vec::new() }),
            (Some(b'1'), Some(member)) if !member.uses.iter().any(|used| used == name) => {
                member.uses.push(name.to_string());
            }
            _ => {}
        }
    }
    members
}

fn parse_licences(tree: &str) -> Vec<Licensed> {
    // A package that was printed before ends with a mark.
    let lines = tree.lines().filter_map(|line| line.trim_end_matches(" (*)").split_once('\t'));
    let mut packages: Vec<Licensed> = lines
        .map(|(package, licence)| Licensed {
            package: package.split(' ').take(2).collect::<Vec<_>>().join(" "),
            licence: licence.trim().to_string(),
        })
        .collect();
    packages.sort();
    packages.dedup();
    packages
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_and_their_edges_are_read() {
        let tree = "0plinth-env v0.1.0 (/a b/env)\n1libc v0.2.1\n1plinth-types v0.1.0 (/a b/types)\n1libc v0.2.1\n\n0plinth-types v0.1.0 (/x)\n[dev-dependencies]\n1bytes v1.0.0\n";
        let read: Vec<(String, Vec<String>)> =
            parse_members(tree).into_iter().map(|member| (member.name, member.uses)).collect();
        let expected =
            [("plinth-env", vec!["libc", "plinth-types"]), ("plinth-types", vec!["bytes"])];
        let expected = expected
            .map(|(name, uses)| (name.to_string(), uses.into_iter().map(String::from).collect()));
        assert_eq!(read, expected);
    }

    #[test]
    fn licences_are_read_once_for_each_package() {
        let tree = "a v1.0.0 (/p)\tMIT OR Apache-2.0\n\nb v2.0.0 (proc-macro)\tMIT\na v1.0.0 (/p)\tMIT OR Apache-2.0\na v1.0.0 (/p)\tMIT OR Apache-2.0 (*)\nc v3.0.0\t\nc v3.0.0\t (*)\n";
        let read: Vec<String> = parse_licences(tree)
            .into_iter()
            .map(|l| format!("{}: {}", l.package, l.licence))
            .collect();
        assert_eq!(read, ["a v1.0.0: MIT OR Apache-2.0", "b v2.0.0: MIT", "c v3.0.0: "]);
    }
}
