//! Gives the program the commit it is built from: `PLINTH_COMMIT` if that is set, else what git
//! says, else `unknown`. And has it linked so that its code has the same place in the file and in
//! memory: perf takes the one for the other where it sets its breakpoints on tracepoints, and would
//! set them a page away.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-env-changed=PLINTH_COMMIT");
    // Each commit and each change of branch adds a line there. Where there is no git, there is
    // nothing to watch.
    if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"]) {
        println!("cargo::rerun-if-changed={log}");
    }
    println!("cargo::rerun-if-changed=build.rs");
    // zig, by which packages are linked for an older C library, doesn't know this.
    let is_zig = std::env::var("RUSTC_LINKER").is_ok_and(|linker| linker.contains("zigcc"));
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|system| system == "linux") && !is_zig {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,separate-loadable-segments");
    }
    let given = std::env::var("PLINTH_COMMIT").ok().filter(|commit| !commit.is_empty());
    let commit = given.or_else(|| git(&["rev-parse", "--short=10", "HEAD"]));
    println!("cargo::rustc-env=PLINTH_COMMIT={}", commit.as_deref().unwrap_or("unknown"));
}

/// What git prints for these arguments; `None` where there is no git, or no repository.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned()).filter(|text| !text.is_empty())
}
