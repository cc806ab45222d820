//! Which packages are made, of what, and where they go; and the few things that all of their makers
//! do with files.
//!
//! The same commit gives the same bytes: archives have their files in order, as of nobody, at the
//! time of the commit.

use crate::{Result, command, install};
use std::path::{Path, PathBuf};

/// A kind of package.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Tarball,
    Deb,
    Rpm,
    Wheel,
    Image,
    Chart,
    Formula,
}

const KINDS: [(&str, Kind); 7] = [
    ("tarball", Kind::Tarball),
    ("deb", Kind::Deb),
    ("rpm", Kind::Rpm),
    ("wheel", Kind::Wheel),
    ("image", Kind::Image),
    ("chart", Kind::Chart),
    ("formula", Kind::Formula),
];

/// What is to be made.
#[derive(Debug)]
pub struct Plan {
    /// Cargo's profile. Those of `release` are for people, and held to what they promise; others
    /// try the way there.
    pub profile: String,
    pub kinds: Vec<Kind>,
    /// A directory with program and library that were built elsewhere.
    pub from: Option<PathBuf>,
    /// Where packages go: `target/packages`, in the repository, wherever cargo builds.
    pub out: PathBuf,
    /// The time of the commit, which every file in a package gets, so that one commit gives the
    /// same packages.
    pub epoch: String,
}

impl Plan {
    /// What the command line asks for.
    pub fn new(arguments: &[&str]) -> Result<Plan> {
        let Arguments { profile, kinds, from } = parse(arguments)?;
        let here = std::env::current_dir().map_err(|e| format!("find the repository: {e}"))?;
        let epoch = command::output("git", &["log", "-1", "--format=%ct"])
            .unwrap_or_else(|_| "0".to_owned());
        Ok(Plan {
            profile,
            kinds,
            from,
            out: here.join("target/packages"),
            epoch: epoch.trim().to_owned(),
        })
    }

    /// Whether packages of this kind are asked for.
    pub fn wants(&self, kind: Kind) -> bool {
        self.kinds.contains(&kind)
    }

    /// Whether they are for people.
    pub fn is_release(&self) -> bool {
        self.profile == "release"
    }

    /// A directory for what is on its way, empty.
    pub fn fresh(&self, name: &str) -> Result<PathBuf> {
        let dir = self.out.join("parts").join(name);
        let made = remove(&dir).and_then(|()| std::fs::create_dir_all(&dir));
        made.map_err(|e| format!("make {}: {e}", dir.display()))?;
        Ok(dir)
    }

    /// Where the built program and library are, stripped, with their debugging information beside
    /// them.
    pub fn built(&self) -> PathBuf {
        self.out.join("parts/built")
    }

    /// Where all files lie as in a system's root, its libraries in `usr/lib`.
    pub fn stage(&self) -> PathBuf {
        self.out.join("parts/stage")
    }

    /// `plinth-0.1.0-x86_64-linux`, by which what runs on one kind of machine is called.
    pub fn machine_name(&self) -> String {
        format!("plinth-{}-{}-{}", version(), std::env::consts::ARCH, std::env::consts::OS)
    }

    /// Writes a compressed archive of `what` in `dir`, the same bytes for the same files.
    pub fn tar(&self, archive: &Path, dir: &Path, what: &str) -> Result<()> {
        let plain = archive.with_extension("");
        self.plain_tar(&plain, dir, what)?;
        gzip(&plain, archive)
    }

    /// The same without compression.
    pub fn plain_tar(&self, archive: &Path, dir: &Path, what: &str) -> Result<()> {
        let (archive, dir) = (archive.to_string_lossy(), dir.to_string_lossy());
        let mtime = format!("--mtime=@{}", self.epoch);
        let same =
            ["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--format=gnu", &mtime];
        command::run("tar", &[&same[..], &["-C", &dir, "-cf", &archive, what]].concat())
    }
}

/// Compresses a file, and removes it.
pub fn gzip(plain: &Path, compressed: &Path) -> Result<()> {
    let bytes = std::process::Command::new("gzip").args(["-n", "-c"]).arg(plain).output();
    let bytes = bytes.map_err(|e| format!("start gzip: {e}"))?;
    if !bytes.status.success() {
        return Err(format!("gzip {}: {}", plain.display(), bytes.status));
    }
    write(compressed, &bytes.stdout)?;
    std::fs::remove_file(plain).map_err(|e| format!("remove {}: {e}", plain.display()))
}

/// Writes a file, and its directory if there is none.
pub fn write(path: &Path, content: &[u8]) -> Result<()> {
    let parent = path.parent().unwrap_or(Path::new("."));
    let written = std::fs::create_dir_all(parent).and_then(|()| std::fs::write(path, content));
    written.map_err(|e| format!("write {}: {e}", path.display()))
}

/// Copies a file to where a directory may have to be made.
pub fn copy(from: &Path, to: &Path) -> Result<()> {
    let parent = to.parent().unwrap_or(Path::new("."));
    let copied = std::fs::create_dir_all(parent).and_then(|()| std::fs::copy(from, to).map(drop));
    copied.map_err(|e| format!("copy {} to {}: {e}", from.display(), to.display()))
}

/// What is in a directory, in the order of the names.
pub fn list(dir: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(dir).map_err(|e| format!("list {}: {e}", dir.display()))?;
    let mut paths = Vec::new();
    for entry in entries {
        paths.push(entry.map_err(|e| format!("list {}: {e}", dir.display()))?.path());
    }
    paths.sort();
    Ok(paths)
}

/// Removes a directory with all that is in it, if it is there.
pub fn remove(dir: &Path) -> std::io::Result<()> {
    match std::fs::remove_dir_all(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// The checksum of a file, in hexadecimal digits.
pub fn sha256(path: &Path) -> Result<String> {
    let path = path.to_string_lossy();
    let line = match command::is_there("sha256sum") {
        true => command::output("sha256sum", &["--", &path]),
        false => command::output("shasum", &["-a", "256", "--", &path]),
    }?;
    // A name with a backslash in it puts one before the line.
    let sum = line.trim_start_matches('\\').split(' ').next().unwrap_or_default();
    Ok(sum.to_owned())
}

/// The version of everything.
pub fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

/// Where the C library and what belongs to it is called by its file name.
pub fn library() -> String {
    install::library("fdb_c")
}

#[derive(Debug)]
struct Arguments {
    profile: String,
    kinds: Vec<Kind>,
    from: Option<PathBuf>,
}

fn parse(arguments: &[&str]) -> Result<Arguments> {
    let kinds = KINDS.map(|(_, kind)| kind).to_vec();
    let mut parsed = Arguments { profile: "release".to_owned(), kinds, from: None };
    let mut rest = arguments.iter().copied();
    while let Some(argument) = rest.next() {
        let mut value = || rest.next().ok_or_else(|| format!("{argument} wants a value"));
        match argument {
            "--profile" => value()?.clone_into(&mut parsed.profile),
            "--only" => parsed.kinds = value()?.split(',').map(kind).collect::<Result<_>>()?,
            "--from" => parsed.from = Some(PathBuf::from(value()?)),
            other => {
                return Err(format!("packages knows --profile, --only and --from, not '{other}'"));
            }
        }
    }
    Ok(parsed)
}

fn kind(name: &str) -> Result<Kind> {
    let known: Vec<_> = KINDS.iter().map(|(name, _)| *name).collect();
    let found = KINDS.iter().find(|(known, _)| *known == name);
    found
        .map(|(_, kind)| *kind)
        .ok_or_else(|| format!("there are no packages '{name}'; there are {}", known.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_say_what_is_made() {
        let parsed =
            parse(&["--only", "deb,wheel", "--profile", "checked", "--from", "out"]).unwrap();
        assert_eq!(
            (parsed.profile.as_str(), parsed.kinds),
            ("checked", vec![Kind::Deb, Kind::Wheel])
        );
        assert_eq!(parsed.from, Some(PathBuf::from("out")));
        let usual = parse(&[]).unwrap();
        assert_eq!((usual.profile.as_str(), usual.kinds.len(), usual.from), ("release", 7, None));
        assert!(parse(&["--only", "snap"]).unwrap_err().contains("tarball, deb"));
        assert!(parse(&["--only"]).is_err() && parse(&["--all"]).is_err());
    }

    #[test]
    fn sums_are_those_that_everybody_computes() {
        let dir = std::env::temp_dir().join(format!("plinth-xtask-sum-{}", std::process::id()));
        write(&dir.join("abc"), b"abc").unwrap();
        let sum = sha256(&dir.join("abc")).unwrap();
        remove(&dir).unwrap();
        assert_eq!(sum, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }
}
