//! What the checks need to know of a Cargo.toml: the names of its dependencies, and the lines they
//! stand on.
//!
//! Read line by line, which is enough for manifests as people write them: a section header, then
//! one key to a line, whose value may go on over several lines in brackets.

/// A dependency as it is declared.
#[derive(Debug, PartialEq, Eq)]
pub struct Declared {
    /// The package's own name, if the manifest renames it.
    pub name: String,
    /// The line, from 1.
    pub line: usize,
}

/// Every dependency of a manifest: normal, for tests, for build scripts, for single platforms, of
/// the workspace.
pub fn dependencies(text: &str) -> Vec<Declared> {
    let mut found: Vec<Declared> = Vec::new();
    let mut section = String::new();
    for (line, key, value) in entries(text) {
        match key {
            "[]" => {
                section = value.to_string();
                if let Some((_, name)) = section.split_once("dependencies.") {
                    found.push(Declared { name: unquoted(name).to_string(), line });
                }
            }
            key if section.ends_with("dependencies") => {
                let name = key.split('.').next().unwrap_or(key);
                found.push(Declared {
                    name: renamed(value).unwrap_or(unquoted(name)).to_string(),
                    line,
                });
            }
            "package" if section.contains("dependencies.") => {
                if let Some(declared) = found.last_mut() {
                    declared.name = unquoted(value).to_string();
                }
            }
            _ => {}
        }
    }
    found
}

/// Whether `section` has `key = value`.
pub fn has(text: &str, section: &str, key: &str, value: &str) -> bool {
    let mut current = String::new();
    entries(text).into_iter().any(|(_, found, content)| {
        if found == "[]" {
            current = content.to_string();
        }
        current == section && found == key && content == value
    })
}

/// The lines that begin something: a section (with the key `[]` and its name as value), or a key
/// with the rest of its line.
fn entries(text: &str) -> Vec<(usize, &str, &str)> {
    let mut found = Vec::new();
    let mut depth = 0i32;
    for (index, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        let inside = depth > 0;
        if !inside && line.starts_with('[') {
            found.push((index + 1, "[]", line.trim_matches(['[', ']', ' '])));
            continue;
        }
        depth += line.matches(['[', '{']).count() as i32 - line.matches([']', '}']).count() as i32;
        if let Some((key, value)) = line.split_once('=').filter(|_| !inside) {
            found.push((index + 1, key.trim(), value.trim()));
        }
    }
    found
}

/// The name behind `package = "..."` in an inline table.
fn renamed(value: &str) -> Option<&str> {
    let (_, rest) = value.split_once("package")?;
    rest.split('"').nth(1)
}

fn unquoted(text: &str) -> &str {
    text.trim().trim_matches('"')
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &str = r#"
[package]
name = "x"
[dependencies]   # what we use
bytes.workspace = true
short = "1"
alias = { package = "real", version = "1" }
long = { version = "1", features = [
    "one",
    "two",
] }
[dev-dependencies]
tested = "1"
[target.'cfg(unix)'.dependencies]
libc = "0.2"
[dependencies.table]
version = "1"
[build-dependencies.other]
package = "own"
[features]
net = ["dep:short"]
[lints]
workspace = true
"#;

    #[test]
    fn every_kind_of_dependency_is_seen() {
        let names: Vec<String> =
            dependencies(SAMPLE).into_iter().map(|declared| declared.name).collect();
        assert_eq!(names, ["bytes", "short", "real", "long", "tested", "libc", "table", "own"]);
        assert_eq!(dependencies(SAMPLE)[3].line, 8);
    }

    #[test]
    fn keys_are_found_in_their_section_only() {
        assert!(has(SAMPLE, "lints", "workspace", "true"));
        assert!(!has(SAMPLE, "package", "workspace", "true"));
    }
}
