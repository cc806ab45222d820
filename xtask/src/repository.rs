//! The files of the repository, read once, as the rules see them.
//!
//! Git says which files belong to it: those committed and those that would be (so that a check
//! before the first commit of a new file sees it). Where there is no git, as in an unpacked
//! archive, everything below the root does, build output aside.

use crate::Result;
use crate::source::Source;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The files of the repository.
#[derive(Default)]
pub struct Repository {
    files: Vec<File>,
}

/// One file: a path from the root with `/` between its parts, its length, and its text if it is
/// text.
pub struct File {
    pub path: String,
    pub bytes: u64,
    pub text: Option<String>,
    /// Rust sources only: the text with comments and literals blanked out.
    pub source: Option<Source>,
}

impl File {
    pub fn new(path: &str, content: Vec<u8>) -> File {
        let bytes = content.len() as u64;
        let text = String::from_utf8(content).ok().filter(|text| !text.contains('\0'));
        let source = text.as_deref().filter(|_| path.ends_with(".rs")).map(Source::new);
        File { path: path.to_string(), bytes, text, source }
    }
}

impl Repository {
    /// Reads the repository whose root is the current directory.
    pub fn read() -> Result<Repository> {
        let mut files = Vec::new();
        for path in paths()? {
            let content = std::fs::read(&path).map_err(|e| format!("read {path}: {e}"))?;
            files.push(File::new(&path, content));
        }
        Ok(Repository { files })
    }

    /// A repository of the given files, for the rules' tests.
    #[cfg(test)]
    pub fn of(files: &[(&str, &str)]) -> Repository {
        Repository {
            files: files
                .iter()
                .map(|(path, text)| File::new(path, text.as_bytes().to_vec()))
                .collect(),
        }
    }

    /// Every file.
    pub fn files(&self) -> impl Iterator<Item = &File> {
        self.files.iter()
    }

    /// Path and text of every text file whose name ends with `ending`.
    pub fn texts<'a>(&'a self, ending: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.files
            .iter()
            .filter(move |file| file.path.ends_with(ending))
            .filter_map(|file| Some((file.path.as_str(), file.text.as_deref()?)))
    }

    /// Path and source of every Rust file.
    pub fn sources(&self) -> impl Iterator<Item = (&str, &Source)> {
        self.files.iter().filter_map(|file| Some((file.path.as_str(), file.source.as_ref()?)))
    }

    /// The text of one file, if it is there and is text.
    pub fn text(&self, path: &str) -> Option<&str> {
        self.files.iter().find(|file| file.path == path)?.text.as_deref()
    }

    /// Whether a file or a folder has this path.
    pub fn has(&self, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        path.is_empty()
            || self.files.iter().any(|file| {
                file.path
                    .strip_prefix(path)
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            })
    }
}

/// The directory that holds the workspace's Cargo.toml: the parent of xtask's own.
pub fn root() -> Result<PathBuf> {
    let own = std::env::var_os("CARGO_MANIFEST_DIR")
        .ok_or("start this with `cargo xtask`, not by its path")?;
    Path::new(&own)
        .parent()
        .map(Path::to_path_buf)
        .ok_or_else(|| "xtask has no parent directory".to_string())
}

fn paths() -> Result<Vec<String>> {
    let git = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .output();
    let mut paths: Vec<String> = match git {
        Ok(output) if output.status.success() => {
            let listed = String::from_utf8(output.stdout)
                .map_err(|e| format!("a path is not UTF-8: {e}"))?;
            listed
                .split('\0')
                .filter(|path| Path::new(path).is_file())
                .map(str::to_string)
                .collect()
        }
        _ => {
            let mut found = Vec::new();
            walk(Path::new(""), &mut found)?;
            found
        }
    };
    paths.sort();
    paths.dedup();
    Ok(paths)
}

fn walk(directory: &Path, found: &mut Vec<String>) -> Result<()> {
    let shown = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
    let failed = |e: std::io::Error| format!("list {}: {e}", shown.display());
    for entry in std::fs::read_dir(shown).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = directory.join(&name);
        let kind = entry.file_type().map_err(failed)?;
        if kind.is_dir() && !name.starts_with("target") && name != ".git" && name != "__pycache__" {
            walk(&path, found)?;
        } else if kind.is_file() {
            found.push(path.to_string_lossy().into_owned());
        }
    }
    Ok(())
}
