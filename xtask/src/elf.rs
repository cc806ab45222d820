//! What is asked of a program or a library of ours before it is handed to people, by binutils: no
//! debugging information inside but beside it, a size, and no newer C library than where it is to
//! run.
//!
//! A C library numbers its symbols by the version that brought them (`GLIBC_2.34`). A program runs
//! where the C library is at least as new as the newest number in it, whatever machine it was built
//! on. Python's wheels say this number in their names.

use crate::{Result, command};
use std::path::Path;

/// The largest that a program or library may be, in bytes. The aim is 25 MB, and the program is
/// above it: 28.2 MB, of which 20 are code (crates in several units, and inlined between them: one
/// unit and LTO over all of them is what to try next).
pub const MAX_BYTES: u64 = 32 << 20;
/// The C library that packages are built for: Debian 10, RHEL 8, Ubuntu 18.10 and everything later
/// have it.
pub const GLIBC: (u32, u32) = (2, 28);
/// What else of the system's libraries a wheel that says so may use.
const OF_THE_SYSTEM: [&str; 8] = [
    "libc.so.6",
    "libm.so.6",
    "libdl.so.2",
    "librt.so.1",
    "libpthread.so.0",
    "libgcc_s.so.1",
    "ld-linux-x86-64.so.2",
    "ld-linux-aarch64.so.1",
];

/// Copies a program or library without what only debuggers want, and puts that into `debug` beside;
/// debuggers find it by the name of the file, in its directory or in `.debug/` there.
pub fn split(from: &Path, to: &Path, debug: &Path) -> Result<()> {
    let (from, to, debug) = (text(from)?, text(to)?, text(debug)?);
    command::run("objcopy", &["--only-keep-debug", "--compress-debug-sections", from, debug])?;
    command::run("objcopy", &["--strip-all", &format!("--add-gnu-debuglink={debug}"), from, to])
}

/// Whether this machine can do so.
pub fn can_split() -> bool {
    cfg!(target_os = "linux") && command::is_there("objcopy")
}

/// Complains of a file that is larger than it may be.
pub fn check_size(file: &Path) -> Result<()> {
    let bytes =
        std::fs::metadata(file).map_err(|e| format!("look at {}: {e}", file.display()))?.len();
    judge_size(&file.display().to_string(), bytes)
}

fn judge_size(name: &str, bytes: u64) -> Result<()> {
    if bytes <= MAX_BYTES {
        return Ok(());
    }
    Err(format!(
        "{name} has {bytes} bytes stripped, and may have {MAX_BYTES}: leave something out of the default features, or raise \
         MAX_BYTES in a commit that says what it is worth"
    ))
}

/// Complains of a program that wants a newer C library than [`GLIBC`], or libraries that not every
/// system has.
pub fn check_portable(file: &Path) -> Result<()> {
    let symbols = command::output("objdump", &["-T", text(file)?])?;
    let headers = command::output("objdump", &["-p", text(file)?])?;
    judge_symbols(&file.display().to_string(), &symbols)?;
    judge_libraries(&file.display().to_string(), &headers)
}

fn judge_symbols(name: &str, symbols: &str) -> Result<()> {
    let newer: Vec<&str> = symbols
        .lines()
        .filter(|line| glibc_of(line).is_some_and(|version| version > GLIBC))
        .filter_map(|line| line.split_whitespace().last())
        .collect();
    let Some(first) = newer.first() else { return Ok(()) };
    let (major, minor) = GLIBC;
    Err(format!(
        "{name} wants a newer C library than {major}.{minor}, for {} symbols such as {first}: it was linked against this machine's \
         own, or uses what that one lacks",
        newer.len()
    ))
}

/// The version of the C library that a line of `objdump -T` wants, if it wants one.
fn glibc_of(line: &str) -> Option<(u32, u32)> {
    let (_, behind) = line.split_once("*UND*")?.1.split_once("GLIBC_")?;
    let number = behind.split(|c: char| !c.is_ascii_digit() && c != '.').next()?;
    let mut parts = number.split('.').map(|part| part.parse().ok());
    Some((parts.next()??, parts.next()??))
}

fn judge_libraries(name: &str, headers: &str) -> Result<()> {
    let needed = headers.lines().filter_map(|line| line.trim().strip_prefix("NEEDED"));
    match needed.map(str::trim).find(|library| !OF_THE_SYSTEM.contains(library)) {
        None => Ok(()),
        Some(library) => {
            Err(format!("{name} needs {library}, which not every system has: link it statically"))
        }
    }
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().ok_or_else(|| format!("{} is no text", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SYMBOLS: &str = "
DYNAMIC SYMBOL TABLE:
0000000000000000      DF *UND*\t0000000000000000 (GLIBC_2.2.5) memcpy
0000000000000000      DF *UND*\t0000000000000000  GLIBC_2.28  fcntl64
0000000000000000  w   D  *UND*\t0000000000000000  Base        __cxa_finalize
0000000000a1b2c3 g    DF .text\t0000000000000010  Base        fdb_get_error
";

    #[test]
    fn a_newer_c_library_is_told() {
        assert_eq!(judge_symbols("x", SYMBOLS), Ok(()));
        let newer = format!(
            "{SYMBOLS}0000000000000000      DF *UND*\t0000000000000000 (GLIBC_2.34) pthread_create\n"
        );
        let told = judge_symbols("x", &newer).unwrap_err();
        assert!(told.contains("for 1 symbols such as pthread_create"), "{told}");
        assert!(
            judge_symbols("x", &newer.replace("2.34", "2.9")).is_ok(),
            "numbers, not texts, are compared"
        );
    }

    #[test]
    fn only_libraries_of_the_system_are_needed() {
        let headers = "Dynamic Section:\n  NEEDED               libc.so.6\n  NEEDED               libm.so.6\n";
        assert_eq!(judge_libraries("x", headers), Ok(()));
        let told = judge_libraries("x", &format!("{headers}  NEEDED               libzstd.so.1\n"))
            .unwrap_err();
        assert!(told.contains("libzstd.so.1"), "{told}");
    }

    #[test]
    fn a_program_that_grew_is_told() {
        assert_eq!(judge_size("x", MAX_BYTES), Ok(()));
        assert!(judge_size("x", MAX_BYTES + 1).unwrap_err().contains("may have 33554432"));
    }
}
