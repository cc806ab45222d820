//! Lines of prose of at most 100 columns: comments in Rust, and paragraphs in Markdown.
//!
//! Code is rustfmt's to break, and what it leaves longer is a literal. A drawing or a command
//! between fences, a row of a table, and a line in which a link or a piece of code leaves no place
//! to break stay as they are.

use crate::finding::Finding;
use crate::repository::Repository;

const COLUMNS: usize = 100;

/// Every line of prose fits.
pub fn of_prose(repository: &Repository, findings: &mut Vec<Finding>) {
    for (path, text) in repository.texts(".rs").chain(repository.texts(".md")) {
        let is_code = path.ends_with(".rs");
        let mut is_fenced = false;
        for (index, line) in text.lines().enumerate() {
            let Some(prose) = (if is_code { comment(line) } else { Some(line) }) else {
                is_fenced = false;
                continue;
            };
            is_fenced ^= prose.trim_start().starts_with("```");
            let columns = line.chars().count();
            if !is_fenced && columns > COLUMNS && can_be_broken(line, prose) {
                let what = format!("{columns} columns of prose; the limit is {COLUMNS}");
                let remedy = "break the line";
                findings.push(Finding::new("columns", path, index + 1, what, remedy));
            }
        }
    }
}

/// What a line that is a comment says.
fn comment(line: &str) -> Option<&str> {
    let text = line.trim_start().strip_prefix("//")?;
    Some(text.trim_start_matches(['/', '!']))
}

/// Whether there is a blank between two words before the limit, outside of links and code.
fn can_be_broken(line: &str, prose: &str) -> bool {
    let text = prose.trim_start();
    if text.starts_with(['|', '#']) || prose.starts_with("    ") {
        return false;
    }
    let before = line.len() - text.len();
    let first = text.find(|c: char| !"-*0123456789. ".contains(c)).unwrap_or(0);
    let (mut is_code, mut depth, mut column) = (false, 0_u32, line[..before].chars().count());
    let mut last = ' ';
    for (at, c) in text.char_indices() {
        match c {
            '`' => is_code = !is_code,
            '[' if !is_code => depth += 1,
            // What is in parentheses is a link's target behind its text alone.
            '(' if !is_code && last == ']' => depth += 1,
            ']' | ')' if !is_code => depth = depth.saturating_sub(1),
            ' ' if !is_code && depth == 0 && at > first && column <= COLUMNS => return true,
            _ => {}
        }
        (last, column) = (c, column + 1);
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::found;

    #[test]
    fn prose_fits_and_what_cannot_be_broken_stays() {
        let words = "word ".repeat(20);
        let long = format!("{words}longer");
        let link = format!("[{}](page.md) ends", "x".repeat(100));
        let good =
            format!("{words}\n\n```text\n{long}\n```\n\n| {long} |\n\n# {long}\n\n- {link}\n");
        let bad = format!("a\n{long}\n- {long}\n({words}longer) and so on\n");
        let code =
            format!("//! ok\n    // {}\nlet x = \"{long}\"; // {long}\n", words[..90].trim_end());
        assert_eq!(
            found(
                of_prose,
                &[
                    ("good.md", &good),
                    ("bad.md", &bad),
                    ("good.rs", &code[..]),
                    ("bad.rs", &format!("/// {long}\n/// ```text\n/// {long}\n/// ```\n")),
                ]
            ),
            ["bad.rs:1 columns", "bad.md:2 columns", "bad.md:3 columns", "bad.md:4 columns"]
        );
    }
}
