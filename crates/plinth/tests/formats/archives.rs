//! The archives of `tests/formats`: directories, backups, and directories of a cluster's members
//! that earlier commits wrote, and what was in them.

use plinth_env::{Env, block_on};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Where the repository keeps them.
pub const KEPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/formats");

/// What is below a directory, by its names.
pub fn list(dir: &Path) -> Vec<PathBuf> {
    let names = block_on(Env::real().files().list(dir)).unwrap();
    names.into_iter().map(|name| dir.join(name)).collect()
}

/// How often a directory that is open is packed anew.
const TRIES: usize = 100;

/// Runs `tar`, and gives its exit code, which is 0 or 1.
fn tar(arguments: &[&str], paths: &[&Path]) -> i32 {
    let status = Command::new("tar").args(arguments).args(paths).status();
    let code = status.expect("there is a tar").code();
    code.filter(|code| *code < 2).unwrap_or_else(|| panic!("tar {arguments:?} {paths:?}: {code:?}"))
}

/// Puts a directory below `outside` into an archive; zeros take no room in it. A database that was
/// just filled still notes what is durable and makes room for its log: until it rests, `tar` finds
/// that files change under it, and says so by its exit code.
pub fn pack(outside: &Path, name: &str, archive: &Path) {
    let outside = outside.to_str().unwrap();
    let arguments = ["--owner=0", "--group=0", "-C", outside, "-czf"];
    for _ in 0..TRIES {
        if tar(&arguments, &[archive, Path::new(name)]) == 0 {
            return;
        }
        block_on(Env::real().sleep(Duration::from_millis(20)));
    }
    panic!("{name} never rests");
}

/// Takes a directory out of an archive.
pub fn unpack(archive: &Path, outside: &Path) {
    assert_eq!(tar(&["-C", outside.to_str().unwrap(), "-xzf"], &[archive]), 0, "{archive:?}");
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub fn unhex(text: &str) -> Vec<u8> {
    let byte = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
    (0..text.len()).step_by(2).map(byte).collect()
}

/// What the names of archives begin with that are of something else than a database of its own.
const OTHERS: [&str; 2] = ["backup-", "member-"];

/// What is kept of a kind: backups (`backup-`), directories of members (`member-`), or those of
/// databases of their own (nothing). Their names, as `0.1.0/ssd-closed`, and archives.
pub fn kept(begin: &str) -> Vec<(String, PathBuf)> {
    let folders = list(Path::new(KEPT))
        .into_iter()
        .filter(|path| path.extension().is_none_or(|end| end != "md"));
    let mut named: Vec<_> = folders
        .flat_map(|dir| list(&dir))
        .filter_map(|path| {
            let file = path.file_name()?.to_str()?.strip_suffix(".tar.gz")?;
            let folder = path.parent()?.file_name()?.to_str()?;
            let kind = OTHERS.into_iter().find(|other| file.starts_with(other));
            (kind.unwrap_or_default() == begin).then(|| (format!("{folder}/{file}"), path.clone()))
        })
        .collect();
    named.sort();
    named
}

/// What was in it when it was written.
pub fn rows_of_archive(archive: &Path) -> String {
    let path = archive.to_str().unwrap().replace(".tar.gz", ".rows");
    let text =
        block_on(Env::real().files().read(&path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    String::from_utf8(text).unwrap()
}
