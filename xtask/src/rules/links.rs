//! Links: in every Markdown file, a link into the repository leads to a file that is there, and to
//! a heading in it.
//!
//! And every page under docs/ is linked from another, so that it can be found.
//!
//! Links to other sites are not followed: a check must not fail because somebody else's server is
//! down. Rust documentation is checked by rustdoc.

use crate::finding::Finding;
use crate::repository::Repository;

/// Every relative link resolves.
pub fn resolve(repository: &Repository, findings: &mut Vec<Finding>) {
    for (path, text) in repository.texts(".md") {
        for (line, target) in targets(text) {
            if let Err(what) = follow(repository, path, target) {
                let remedy = "correct the link, or write what it should lead to";
                findings.push(Finding::new(
                    "link",
                    path,
                    line,
                    format!("link to {target}: {what}"),
                    remedy,
                ));
            }
        }
    }
}

/// Every page under docs/ is the target of a link in another.
pub fn no_orphans(repository: &Repository, findings: &mut Vec<Finding>) {
    let linked = |page: &str| {
        let mut others = repository.texts(".md").filter(|(path, _)| *path != page);
        others.any(|(path, text)| {
            targets(text).iter().any(|(_, target)| leads_to(path, target, page))
        })
    };
    for (path, _) in
        repository.texts(".md").filter(|(path, _)| path.starts_with("docs/") && !linked(path))
    {
        let remedy = "link to it from the README.md of its folder";
        findings.push(Finding::new("orphan", path, 0, "no other page leads here", remedy));
    }
}

fn leads_to(from: &str, target: &str, page: &str) -> bool {
    let file = target.split('#').next().unwrap_or(target);
    join(from, file).is_some_and(|path| path == page || format!("{path}/README.md") == page)
}

/// The targets of a text's inline links with their lines, those in code left out.
pub fn targets(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for (number, line) in prose(text) {
        for (index, part) in line.split('`').enumerate() {
            // Between two backquotes is code; a link whose text is code has its target after the
            // second.
            let links = part.split("](").skip(1).filter(|_| index % 2 == 0);
            found.extend(links.filter_map(|rest| Some((number, rest.split([')', ' ']).next()?))));
        }
    }
    found
}

/// The text of the file `from` with its links to files that a copy of it lacks (not `has`) made
/// ones to `web`, which is asked with their paths in the repository.
pub fn elsewhere(
    from: &str,
    text: &str,
    has: impl Fn(&str) -> bool,
    web: impl Fn(&str) -> String,
) -> String {
    let mut lines: Vec<String> = text.split('\n').map(str::to_owned).collect();
    for (number, target) in targets(text) {
        let (file, heading) = target.split_once('#').unwrap_or((target, ""));
        let path = join(from, file);
        let Some(path) =
            path.filter(|path| !file.is_empty() && !target.contains("://") && !has(path.as_str()))
        else {
            continue;
        };
        let hash = if heading.is_empty() { "" } else { "#" };
        let link = format!("]({}{hash}{heading}", web(&path));
        // With what follows it: another target may begin in the same way.
        for end in [')', ' '] {
            let (old, new) = (format!("]({target}{end}"), format!("{link}{end}"));
            lines[number - 1] = lines[number - 1].replace(&old, &new);
        }
    }
    lines.join("\n")
}

/// The lines of a text that lie outside code fences, counted from 1.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut in_code = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let fence = line.trim_start().starts_with("```");
        in_code ^= fence;
        (!in_code && !fence).then_some((index + 1, line))
    })
}

fn follow(repository: &Repository, from: &str, target: &str) -> Result<(), String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return Ok(());
    }
    let (file, heading) = target.split_once('#').unwrap_or((target, ""));
    let path = if file.is_empty() { Some(from.to_string()) } else { join(from, file) };
    let path = path.ok_or("it leaves the repository")?;
    if !repository.has(&path) {
        return Err(format!("there is no {path}"));
    }
    if heading.is_empty() || !path.ends_with(".md") {
        return Ok(());
    }
    let text = repository.text(&path).unwrap_or_default();
    let known = prose(text)
        .filter(|(_, line)| line.starts_with('#'))
        .any(|(_, line)| anchor(line) == heading);
    if known { Ok(()) } else { Err(format!("{path} has no heading #{heading}")) }
}

/// The path that `link` means in the file `from`; `None` if it leads out of the repository.
pub fn join(from: &str, link: &str) -> Option<String> {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in link.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// The anchor that Markdown hosts make of a heading line.
fn anchor(line: &str) -> String {
    let heading = line.trim_start_matches('#').trim().to_lowercase();
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::found;

    #[test]
    fn links_lead_to_files_and_headings() {
        let good = "\
# Adding a `thing`, quickly
[self](#adding-a-thing-quickly) and [`code`](b.md#two) [folder](../docs/) [up](../README.md) [site](https://x.y/z)
```text
[not a link](nowhere.md)
```
`[nor](this.md)`";
        let files = [
            ("docs/a.md", good),
            ("docs/b.md", "# One\n## Two\n"),
            ("README.md", "[a](docs/a.md \"title\")"),
        ];
        assert_eq!(found(resolve, &files), [""; 0]);
    }

    #[test]
    fn pages_that_nothing_leads_to_are_found() {
        let files = [
            ("README.md", "[docs](docs/) [a](docs/a.md#x)"),
            ("docs/README.md", ""),
            ("docs/a.md", ""),
            ("docs/b.md", "[self](b.md)"),
            ("crates/x/notes.md", ""),
        ];
        assert_eq!(found(no_orphans, &files), ["docs/b.md:0 orphan"]);
    }

    #[test]
    fn links_to_what_a_copy_lacks_lead_to_the_web() {
        let text = "[a](b.md#c) [`x`](../src/x.rs#L1), [y](../src/x.rs)\n[s](https://s) [h](#h)\n";
        let (has, web) = (|path: &str| path == "docs/b.md", |path: &str| format!("web:{path}"));
        let expected =
            "[a](b.md#c) [`x`](web:src/x.rs#L1), [y](web:src/x.rs)\n[s](https://s) [h](#h)\n";
        assert_eq!(elsewhere("docs/a.md", text, has, web), expected);
    }

    #[test]
    fn dead_links_are_found() {
        let bad = "\n[x](b.md) [y](c.md#three)\n[z](../../out.md)\n[self](#none)";
        let files = [("docs/a.md", bad), ("docs/c.md", "# Three and more")];
        let expected =
            ["docs/a.md:2 link", "docs/a.md:2 link", "docs/a.md:3 link", "docs/a.md:4 link"];
        assert_eq!(found(resolve, &files), expected);
    }
}
