//! No circle of modules: within a crate, and within each module that has modules, those use each
//! other in one direction.
//!
//! Modules that use each other in a circle are one module in several files: none of them can be
//! read, changed or tested without the others. So the modules below one parent are compared: an
//! edge goes from the one in which a path stands to the one that the path leads to, whatever lies
//! below both. A name that the parent passes on (`pub use`) leads to where it comes from. What the
//! parent itself holds is no edge: it is what its modules have in common. Tests are left out.

use crate::finding::Finding;
use crate::repository::Repository;
use crate::source::{Source, words};
use std::collections::{BTreeMap, BTreeSet};

/// A module's place: the crate's folder, then the names of the modules on the way.
type Place = Vec<String>;

/// Finds the circles.
pub fn of_modules(repository: &Repository, findings: &mut Vec<Finding>) {
    let mut crates: BTreeMap<&str, Vec<(Place, &str, &Source)>> = BTreeMap::new();
    for (path, source) in repository.sources() {
        let Some((folder, within)) = path.split_once("/src/") else { continue };
        if let Some(place) = place(within) {
            crates.entry(folder).or_default().push((place, path, source));
        }
    }
    for files in crates.values() {
        findings.extend(circles(files));
    }
}

/// The module in a file below `src`; `None` for tests and programs of their own.
fn place(within: &str) -> Option<Place> {
    let parts: Vec<&str> = within.strip_suffix(".rs")?.split('/').collect();
    let is_apart = parts.contains(&"tests") || parts[0] == "bin";
    let (last, before) = parts.split_last()?;
    let own = match *last {
        "mod" | "lib" | "main" => None,
        name => Some(name),
    };
    (!is_apart).then(|| before.iter().copied().chain(own).map(str::to_string).collect())
}

/// The circles among the modules of one crate.
fn circles(files: &[(Place, &str, &Source)]) -> Vec<Finding> {
    let modules: BTreeSet<&Place> = files.iter().map(|(place, ..)| place).collect();
    let passed_on = passed_on(files, &modules);
    // By parent: which of its modules uses which.
    let mut edges: BTreeMap<Place, BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
    for (from, _, source) in files {
        for to in paths(source, from) {
            let to = follow(to, &passed_on);
            let common = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
            let (Some(user), Some(used)) = (from.get(common), to.get(common)) else { continue };
            if modules.contains(&to[..=common].to_vec()) {
                let of_parent = edges.entry(from[..common].to_vec()).or_default();
                of_parent.entry(user.clone()).or_default().insert(used.clone());
            }
        }
    }
    let mut findings = Vec::new();
    for (parent, uses) in &edges {
        let path = files.iter().find(|(place, ..)| place == parent).map_or("", |(_, path, _)| path);
        for circle in connected(uses) {
            let what = format!(
                "{} modules use each other in a circle: {}",
                circle.len(),
                ways(&circle, uses)
            );
            let remedy = "move what two of them share into a module below both, or turn one direction around";
            let finding = Finding::new("module-circle", path, 0, what, remedy);
            findings.push(finding.with_size(&circle.join("+"), circle.len()));
        }
    }
    findings
}

/// Who uses whom in a circle.
fn ways(circle: &[String], uses: &BTreeMap<String, BTreeSet<String>>) -> String {
    let within = |user: &String| -> Vec<&str> {
        let used = uses.get(user).into_iter().flatten();
        used.filter(|used| circle.contains(used) && *used != user).map(String::as_str).collect()
    };
    let each: Vec<_> =
        circle.iter().map(|user| format!("{user} -> {}", within(user).join(", "))).collect();
    each.join("; ")
}

/// Names that modules pass on from below or beside them, and where those come from.
fn passed_on(
    files: &[(Place, &str, &Source)],
    modules: &BTreeSet<&Place>,
) -> BTreeMap<Place, Place> {
    let mut passed = BTreeMap::new();
    for (place, _, source) in files {
        for (from, name) in imports(source, place) {
            let known = [place.clone(), vec![name]].concat();
            if !modules.contains(&known) && known != from {
                passed.insert(known, from);
            }
        }
    }
    passed
}

/// Where a path leads that goes by names that are passed on.
fn follow(mut path: Place, passed_on: &BTreeMap<Place, Place>) -> Place {
    for _ in 0..8 {
        let Some(len) = (1..=path.len()).find(|len| passed_on.contains_key(&path[..*len])) else {
            break;
        };
        let rest = path.split_off(len);
        path = [passed_on[&path].clone(), rest].concat();
    }
    path
}

/// Every path of this crate that stands in a source.
fn paths(source: &Source, from: &Place) -> Vec<Place> {
    let mut found: Vec<Place> = imports(source, from).into_iter().map(|(path, _)| path).collect();
    let tests = source.test_items();
    for start in ["crate", "super", "self"] {
        for at in
            words(source.code(), start).filter(|at| !tests.iter().any(|test| test.contains(at)))
        {
            let end =
                source.code()[at..].find(|c: char| !c.is_alphanumeric() && c != '_' && c != ':');
            let text = &source.code()[at..end.map_or(source.code().len(), |end| at + end)];
            let segments: Vec<&str> =
                text.split("::").filter(|segment| !segment.is_empty()).collect();
            found.extend(absolute(&segments, from));
        }
    }
    found
}

/// What a source imports from its own crate, as whole paths, and under which name.
fn imports(source: &Source, from: &Place) -> Vec<(Place, String)> {
    let tests = source.test_items();
    let mut found = Vec::new();
    for at in words(source.code(), "use").filter(|at| !tests.iter().any(|test| test.contains(at))) {
        let Some(len) = source.code()[at..].find(';') else { continue };
        let mut leaves = Vec::new();
        spread("", source.code()[at + 3..at + len].trim(), &mut leaves);
        for leaf in leaves {
            let (path, alias) = leaf
                .split_once(" as ")
                .map_or((&leaf[..], None), |(path, name)| (path, Some(name)));
            let mut segments: Vec<&str> =
                path.split("::").map(str::trim).filter(|part| !part.is_empty()).collect();
            if segments.len() > 1 && segments.last() == Some(&"self") {
                segments.pop();
            }
            let Some(name) = alias.or(segments.last().copied()).map(str::trim) else { continue };
            // A path that begins with none of these may begin with a module beside it:
            // `pub use names::Name`.
            let is_ours = ["crate", "super", "self"].contains(&segments[0]);
            let beside = [&["self"][..], &segments].concat();
            found.extend(
                absolute(if is_ours { &segments } else { &beside }, from)
                    .map(|path| (path, name.to_string())),
            );
        }
    }
    found
}

/// Each path of a tree such as `a::{b, c::{d, e}}`.
fn spread(prefix: &str, tree: &str, leaves: &mut Vec<String>) {
    let Some(open) = tree.find('{') else {
        leaves.push(format!("{prefix}{}", tree.trim()));
        return;
    };
    let prefix = format!("{prefix}{}", tree[..open].trim());
    let inner = tree[open + 1..].trim_end().strip_suffix('}').unwrap_or(&tree[open + 1..]);
    let (mut depth, mut begin) = (0, 0);
    for (at, byte) in inner.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            b',' if depth == 0 => {
                spread(&prefix, inner[begin..at].trim(), leaves);
                begin = at + 1;
            }
            _ => {}
        }
    }
    if !inner[begin..].trim().is_empty() {
        spread(&prefix, inner[begin..].trim(), leaves);
    }
}

/// The place that a path names, seen from the module that it stands in.
fn absolute(segments: &[&str], from: &Place) -> Option<Place> {
    let mut place = from.clone();
    let mut rest = segments;
    while let Some((first, behind)) = rest.split_first() {
        match *first {
            "crate" => place.clear(),
            "super" => drop(place.pop()?),
            "self" => {}
            _ => break,
        }
        rest = behind;
    }
    let begins = segments.first().is_some_and(|first| ["crate", "super", "self"].contains(first));
    begins.then(|| place.into_iter().chain(rest.iter().map(|part| part.to_string())).collect())
}

/// The groups of modules of which each reaches each other one.
fn connected(uses: &BTreeMap<String, BTreeSet<String>>) -> Vec<Vec<String>> {
    let reached = |from: &String| {
        let mut seen = BTreeSet::new();
        let mut left = vec![from];
        while let Some(next) = left.pop() {
            left.extend(
                uses.get(next).into_iter().flatten().filter(|used| seen.insert((*used).clone())),
            );
        }
        seen
    };
    let all: BTreeMap<&String, BTreeSet<String>> =
        uses.keys().map(|from| (from, reached(from))).collect();
    let mut groups = BTreeSet::new();
    for (from, reached) in &all {
        let group: Vec<String> = all
            .iter()
            .filter(|(to, back)| reached.contains(**to) && back.contains(*from))
            .map(|(to, _)| (*to).clone())
            .collect();
        if group.len() > 1 {
            groups.insert(group);
        }
    }
    groups.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::super::found;
    use super::*;

    fn circles_in(files: &[(&str, &str)]) -> Vec<String> {
        let mut findings = Vec::new();
        of_modules(&Repository::of(files), &mut findings);
        findings
            .into_iter()
            .map(|finding| finding.size.map(|(names, _)| names).unwrap_or_default())
            .collect()
    }

    #[test]
    fn one_direction_is_fine_and_what_the_parent_holds_is_everybodys() {
        let files = [
            ("crates/x/src/lib.rs", "mod a;\nmod b;\npub use a::A;\npub struct Shared;"),
            (
                "crates/x/src/a.rs",
                "use crate::Shared;\npub struct A;\n#[cfg(test)]\nmod tests { use crate::b::B; }",
            ),
            (
                "crates/x/src/b.rs",
                "// crate::c\nuse crate::a::A;\nuse super::Shared;\npub struct B(A);",
            ),
            ("crates/x/src/b/tests.rs", "use crate::c::C;"),
        ];
        assert_eq!(circles_in(&files), [""; 0]);
    }

    #[test]
    fn circles_are_found_by_imports_paths_and_names_that_are_passed_on() {
        let direct = [
            ("crates/x/src/lib.rs", "mod a;\nmod b;\nmod c;"),
            ("crates/x/src/a.rs", "use crate::{b::{self, B}, c as other};"),
            ("crates/x/src/b.rs", "fn f() { super::c::g() }"),
            ("crates/x/src/c.rs", "fn f(_: crate::a::A) {}"),
        ];
        assert_eq!(circles_in(&direct), ["a+b+c"]);
        assert_eq!(found(of_modules, &direct), ["crates/x/src/lib.rs:0 module-circle"]);
        let passed_on = [
            ("crates/x/src/lib.rs", "mod a;\nmod b;\npub use b::{B, C};"),
            ("crates/x/src/a.rs", "use crate::B;"),
            ("crates/x/src/b/mod.rs", "mod deep;\npub use deep::B;"),
            ("crates/x/src/b/deep.rs", "use crate::a;"),
        ];
        assert_eq!(circles_in(&passed_on), ["a+b"]);
        let below = [
            ("crates/x/src/lib.rs", "mod a;"),
            ("crates/x/src/a/mod.rs", "mod one;\nmod two;"),
            ("crates/x/src/a/one.rs", "use super::two::Two;"),
            ("crates/x/src/a/two.rs", "use crate::a::one::One;"),
        ];
        assert_eq!(found(of_modules, &below), ["crates/x/src/a/mod.rs:0 module-circle"]);
    }
}
