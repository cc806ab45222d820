//! The repository's own tools: what the Makefile's targets do stands here, in Rust, with tests.
//!
//! ## Role
//! `cargo xtask check` reads the tree and changes nothing; `fix` repairs what a program can repair;
//! `test` runs every suite and adds up the results; `demo`, `bench`, `sim` and `install` build and
//! start the product. No dependencies, so that the first `make` on a fresh machine waits a moment
//! and not a minute.
//!
//! ## Data structure
//! ```text
//!   files on disk -> Repository -> rules/*   -> Vec<Finding>  (file:line, what, what to do)
//!   cargo tree    -> Packages   -> layering, licences -> Vec<Finding>
//!                                                 |
//!                  exceptions.txt --- takes off --+--> printed; any left over fails the check
//! ```
//!
//! ## Invariants
//! 1. `check` writes nothing outside the target directory.
//! 2. Each rule has a sample that passes and one that fails, in its own tests.
//! 3. A finding always says what to do about it.
//!
//! ## Not here
//! Anything about the store. Read next: `check.rs`, then `rules/mod.rs`, then one rule;
//! `layering.rs` has the table of which crate may use which.
#![forbid(unsafe_code)]
#![expect(clippy::disallowed_methods, reason = "a tool of the repository: nothing simulates it")]

mod cargo;
mod check;
mod command;
mod deny;
mod dist;
mod elf;
mod exceptions;
mod finding;
mod install;
mod layering;
mod licences;
mod manifest;
mod packages;
mod repository;
mod rules;
mod source;
mod test;

use std::process::ExitCode;

/// What a command of ours ends with: a failure is one sentence for the person at the terminal.
type Result<T> = std::result::Result<T, String>;

const USAGE: &str = "\
cargo xtask COMMAND [ARGUMENTS]

  check [STEP...]        format, tidy, layering, licences, clippy, docs; changes nothing
  fix                    format, and let clippy repair what it can
  test [--skip NAME=REASON]... [FILTER...]
                         every test of the workspace and the binding suites, with a sum at the end
  demo                   build the plinth program and take its guided tour
  bench [ARGUMENTS]      plinth bench, release build
  sim [ARGUMENTS]        the simulation, any number of seeds
  model FROM..TO         what Raft promises, with these seeds beside those of every test run
  siege [ARGUMENTS]      a thousand hostile clients beside good ones, with each engine, release build
  install [--prefix DIRECTORY] [--destdir DIRECTORY] [--profile NAME]
                         the plinth program, the C library, headers, pkg-config and CMake files, man pages, completions
  packages [--profile NAME] [--only NAME,...] [--from DIRECTORY]
                         everything that can be handed to people, in target/packages: deb, rpm, tarball, wheel, container
                         image, Helm chart, Homebrew formula, sources, checksums; of program and library in DIRECTORY, if
                         one is named, which are held to the same
  packages-test [the same]
                         the same, and then installs and tries what this machine can
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("xtask: {message}");
            ExitCode::FAILURE
        }
    }
}

/// Runs one command; `false` means that it ran and what it looked at failed.
fn run(arguments: &[String]) -> Result<bool> {
    let Some((command, rest)) = arguments.split_first() else {
        return Err(format!("no command given\n\n{USAGE}"));
    };
    let rest: Vec<&str> = rest.iter().map(String::as_str).collect();
    std::env::set_current_dir(repository::root()?)
        .map_err(|e| format!("enter the repository: {e}"))?;
    match command.as_str() {
        "check" => check::run(&rest),
        "test" => test::run(&rest),
        "fix" => fix(),
        "demo" => cargo::run(
            &[&["run", "--profile", "quick", "--package", "plinth-cli", "--", "demo"], &rest[..]]
                .concat(),
        ),
        "bench" => cargo::run(
            &[&["run", "--release", "--package", "plinth-cli", "--", "bench"], &rest[..]].concat(),
        ),
        "sim" => cargo::run(
            &[
                &["run", "--profile", "checked", "--package", "plinth-sim", "--all-features", "--"],
                &rest[..],
            ]
            .concat(),
        ),
        "model" => model(&rest),
        "siege" => siege(&rest),
        "install" => install::run(&rest),
        "packages" => dist::run(&rest),
        "packages-test" => dist::test(&rest),
        "help" | "--help" | "-h" => {
            print!("{USAGE}");
            Ok(true)
        }
        other => Err(format!("there is no command '{other}'\n\n{USAGE}")),
    }
}

/// The seeds are handed on by the environment: cargo's tests take no arguments of their own.
fn model(arguments: &[&str]) -> Result<bool> {
    let [seeds] = arguments else {
        return Err("cargo xtask model wants seeds, for instance 1000..11000".to_owned());
    };
    let test = ["test", "--profile", "checked", "--package", "plinth-replication"];
    let one = ["--test", "cluster", "what_raft_promises_holds_with_other_seeds"];
    cargo::run_with(&[&test[..], &one].concat(), &[("PLINTH_SEEDS", seeds)])
}

/// Good clients may wait ten times as long as undisturbed, and twice from a second after.
fn siege(arguments: &[&str]) -> Result<bool> {
    let program = ["run", "--release", "--package", "plinth-cli", "--", "sim"];
    let hostile = ["--hostile", "1000", "--seconds", "600", "--at-most", "10,2"];
    let mut held = true;
    for engine in ["memory", "ssd"] {
        let all = [&program[..], &hostile, &["--engine", engine], arguments].concat();
        held &= cargo::run(&all)?;
    }
    Ok(held)
}

fn fix() -> Result<bool> {
    let repaired = cargo::run(&[
        "clippy",
        "--fix",
        "--workspace",
        "--all-targets",
        "--allow-dirty",
        "--allow-staged",
    ])?;
    let mut formatted = cargo::run(&["fmt", "--all"])?;
    for example in check::examples_of(&repository::Repository::read()?) {
        formatted &= cargo::run(&["fmt", "--manifest-path", example])?;
    }
    Ok(formatted && repaired)
}
