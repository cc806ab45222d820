//! First pages: each crate explains itself in its `lib.rs`, each longer file in its first lines.
//!
//! A reader who opens a crate should learn in one page what it is for, how its data lies, what
//! always holds, what it leaves to others and where to go on. CONTRIBUTING.md has the template.

use crate::finding::Finding;
use crate::repository::Repository;

/// From this length on a file needs a header.
const HEADER_FROM: usize = 150;
const HEADER_LINES: usize = 3;

/// What the first page of a crate has: how its heading or phrase begins, and how it is called in
/// the message.
const PARTS: [(&str, &str); 5] = [
    ("## Role", "## Role"),
    ("## Data structure", "## Data structure(s)"),
    ("## Invariants", "## Invariants"),
    ("## Not here", "## Not here"),
    ("Read next", "Read next: ..."),
];

/// `lib.rs` has its first page, other files over 150 lines a header of three lines or more.
pub fn first_pages(repository: &Repository, findings: &mut Vec<Finding>) {
    for (path, source) in repository.sources() {
        let header = header(source.text());
        if path.starts_with("crates/") && path.ends_with("/src/lib.rs") {
            let missing: Vec<&str> = PARTS
                .iter()
                .filter(|(part, _)| !has(&header, part))
                .map(|(_, name)| *name)
                .collect();
            if !missing.is_empty() {
                let what = format!("the crate's first page lacks {}", missing.join(", "));
                let remedy =
                    "write them as `//!` lines at the top; the template is in CONTRIBUTING.md";
                findings.push(Finding::new("first-page", path, 1, what, remedy));
            }
        } else if source.text().lines().count() > HEADER_FROM && header.len() < HEADER_LINES {
            let what = format!(
                "more than {HEADER_FROM} lines and no header of {HEADER_LINES} `//!` lines"
            );
            let remedy =
                "say at the top what problem the file solves, how, and what always holds in it";
            findings.push(Finding::new("header", path, 1, what, remedy));
        }
    }
}

/// The `//!` lines a file begins with, without their marks.
fn header(text: &str) -> Vec<&str> {
    let lines = text.lines().skip_while(|line| line.trim().is_empty());
    lines.map_while(|line| line.strip_prefix("//!")).map(str::trim).collect()
}

fn has(header: &[&str], part: &str) -> bool {
    if part.starts_with('#') {
        header.iter().any(|line| line.starts_with(part))
    } else {
        header.iter().any(|line| line.contains(part))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::found;

    const PAGE: &str = "//! What.\n//!\n//! ## Role\n//! ## Data structures\n//! ## Invariants (checked)\n//! ## Not here\n//! x. Read next: `y`.\n";

    #[test]
    fn a_crate_has_its_first_page() {
        let lacking = PAGE.replace("//! ## Not here\n", "").replace("## Role", "Role");
        let late = format!("use x;\n{PAGE}");
        let files = [
            ("crates/good/src/lib.rs", PAGE),
            ("crates/lacking/src/lib.rs", &lacking),
            ("crates/late/src/lib.rs", &late),
        ];
        let expected =
            ["crates/lacking/src/lib.rs:1 first-page", "crates/late/src/lib.rs:1 first-page"];
        assert_eq!(found(first_pages, &files), expected);
    }

    #[test]
    fn a_long_file_has_a_header() {
        let long = "\n".repeat(151);
        let good = format!("//! a\n//!\n//! b\n{long}");
        let thin = format!("//! a\n//! b\n{long}");
        let files =
            [("short.rs", "fn f() {}"), ("good.rs", &good), ("thin.rs", &thin), ("none.rs", &long)];
        assert_eq!(found(first_pages, &files), ["thin.rs:1 header", "none.rs:1 header"]);
    }
}
