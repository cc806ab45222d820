//! `cargo xtask check`: every step that looks at the tree, none of which changes it.
//!
//! All steps run, also after one has failed, so that one run tells everything; the quickest come
//! first. Each prints one line, and what it found above it.

use crate::finding::Finding;
use crate::repository::Repository;
use crate::{Result, cargo, deny, exceptions, layering, licences, rules};
use std::time::Instant;

/// A step: its name, what it asks, and how it is done.
struct Step {
    name: &'static str,
    about: &'static str,
    run: fn(&Repository) -> Result<bool>,
}

const STEPS: [Step; 8] = [
    Step { name: "format", about: "cargo fmt; repaired by `make fix`", run: format },
    Step {
        name: "tidy",
        about: "sizes, first pages, leftovers, links, dependencies' lines",
        run: tidy,
    },
    Step {
        name: "layering",
        about: "crates use only what the table allows",
        run: |r| report(layering::check(r)?),
    },
    Step {
        name: "licences",
        about: "every package comes under an allowed licence",
        run: |r| report(licences::check(r)?),
    },
    Step {
        name: "examples",
        about: "workspaces of their own: formatted, their locks as they should be",
        run: examples,
    },
    Step {
        name: "deny",
        about: "cargo-deny: withdrawn versions, sources, advisories",
        run: |_| deny::check(),
    },
    Step { name: "clippy", about: "the workspace's lints, every target, no warning", run: clippy },
    Step { name: "docs", about: "rustdoc, private items too, no warning", run: docs },
];

/// Runs the named steps, or all.
pub fn run(names: &[&str]) -> Result<bool> {
    if let Some(unknown) = names.iter().find(|name| !STEPS.iter().any(|step| step.name == **name)) {
        let known: Vec<&str> = STEPS.iter().map(|step| step.name).collect();
        return Err(format!("there is no step '{unknown}'; there are {}", known.join(", ")));
    }
    let repository = Repository::read()?;
    let mut failed = Vec::new();
    for step in STEPS.iter().filter(|step| names.is_empty() || names.contains(&step.name)) {
        let begun = Instant::now();
        let passed = (step.run)(&repository).unwrap_or_else(|message| {
            println!("{message}");
            false
        });
        let verdict = if passed { "ok    " } else { "FAILED" };
        println!(
            "check {verdict} {:<9} {:>6.1} s  {}",
            step.name,
            begun.elapsed().as_secs_f64(),
            step.about
        );
        if !passed {
            failed.push(step.name);
        }
    }
    match failed.is_empty() {
        true => println!("check: passed"),
        false => println!("check: failed: {}", failed.join(", ")),
    }
    Ok(failed.is_empty())
}

fn report(findings: Vec<Finding>) -> Result<bool> {
    for finding in &findings {
        println!("{finding}");
    }
    Ok(findings.is_empty())
}

fn tidy(repository: &Repository) -> Result<bool> {
    let mut findings = rules::all(repository);
    exceptions::apply(repository.text(exceptions::LIST).unwrap_or_default(), &mut findings);
    report(findings)
}

fn format(_: &Repository) -> Result<bool> {
    cargo::run(&["fmt", "--all", "--check"])
}

/// The manifests of examples that are workspaces of their own.
pub fn examples_of(repository: &Repository) -> impl Iterator<Item = &str> {
    repository
        .texts("Cargo.toml")
        .map(|(path, _)| path)
        .filter(|path| path.starts_with("examples/"))
}

/// Nobody who builds the workspace builds these, so what a crate needs more gets into their locks
/// only when somebody looks.
fn examples(repository: &Repository) -> Result<bool> {
    let mut is_well = true;
    for path in examples_of(repository) {
        is_well &= cargo::run(&["fmt", "--manifest-path", path, "--check"])?;
        let read = cargo::output(&[
            "metadata",
            "--locked",
            "--format-version",
            "1",
            "--manifest-path",
            path,
        ]);
        if let Err(why) = read {
            println!("{path}: {why}");
            is_well = false;
        }
    }
    Ok(is_well)
}

fn clippy(_: &Repository) -> Result<bool> {
    let arguments = [
        "clippy",
        "--quiet",
        "--keep-going",
        "--locked",
        "--workspace",
        "--all-targets",
        "--all-features",
    ];
    // What a feature takes along has to be gone without it.
    let without_series =
        ["clippy", "--quiet", "--locked", "-p", "plinth-server", "--lib", "--no-default-features"];
    let mut passed = true;
    for arguments in [&arguments[..], &without_series] {
        passed &= cargo::run(&[arguments, &["--", "--deny", "warnings"]].concat())?;
    }
    Ok(passed)
}

fn docs(_: &Repository) -> Result<bool> {
    let arguments = [
        "doc",
        "--quiet",
        "--locked",
        "--workspace",
        "--no-deps",
        "--all-features",
        "--document-private-items",
    ];
    cargo::run_with(&arguments, &[("RUSTDOCFLAGS", "--deny warnings")])
}
