//! `cargo deny`: whether what comes in from registries may, and whether any of it was withdrawn or
//! is known to be broken.
//!
//! cargo-deny is installed into `target/tools` where this machine has none. What is known to be
//! broken stands in a repository on the web. Where that can't be reached, a database that knows of
//! nobody takes its place, since withdrawn versions are looked for only beside one; and it is said
//! that advisories weren't looked at.

use crate::dist::plan::write;
use crate::dist::tools;
use crate::{Result, cargo, command};
use std::path::PathBuf;
use std::process::Command;

/// What cargo-deny says when the repository of advisories can't be reached.
const UNREACHED: &str = "failed to fetch advisory database";
/// How cargo-deny of our version names the directory of that repository.
const DATABASE: &str = "advisory-db-3157b0e258782691";
const NOBODY: &str = r#"```toml
[advisory]
id = "RUSTSEC-2000-0001"
package = "nobody"
date = "2000-01-01"

[versions]
patched = [">= 0.0.0"]
```

# Nothing

A database without advisories is refused.
"#;

/// Checks everything that can be checked here, and says what can't.
pub fn check() -> Result<bool> {
    let program = program()?;
    let rules = ["--all-features", "check", "--hide-inclusion-graph"];
    let mut known = Command::new(&program);
    cargo::forget_package(&mut known);
    known.args(rules).args(["bans", "licenses", "sources", "advisories"]);
    let output = known.output().map_err(|e| format!("start {}: {e}", program.display()))?;
    if output.status.success() {
        return Ok(true);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    if !said.contains(UNREACHED) {
        println!("{said}");
        return Ok(false);
    }
    println!(
        "the repository of advisories can't be reached: withdrawn versions, licences, sources and \
         bans are checked, advisories are not"
    );
    let config = without_advisories()?;
    let mut rest = Command::new(&program);
    cargo::forget_package(&mut rest);
    rest.args(["--offline", "--log-level", "error", "--config"]).arg(config).args(rules);
    rest.args(["--allow", "unknown-advisory", "--allow", "advisory-not-detected"]);
    let output = rest.output().map_err(|e| format!("start {}: {e}", program.display()))?;
    if !output.status.success() {
        println!("{}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(output.status.success())
}

/// The one that is installed, or else one of ours.
fn program() -> Result<PathBuf> {
    match command::is_there("cargo-deny") {
        true => Ok("cargo-deny".into()),
        false => tools::of_cargo(tools::CARGO_DENY),
    }
}

/// Our rules, with a database of advisories that knows of nobody.
fn without_advisories() -> Result<PathBuf> {
    let home = tools::home()?.join("advisories");
    let database = home.join(DATABASE);
    let about = database.join("crates/nobody/RUSTSEC-2000-0001.md");
    if !about.is_file() {
        write(&about, NOBODY.as_bytes())?;
        let git = |arguments: &[&str]| {
            let mut git = Command::new("git");
            git.args(["-c", "user.name=plinth", "-c", "user.email=nobody@localhost"]);
            command::finish(git.arg("-C").arg(&database).args(arguments))
        };
        git(&["init", "--quiet", "--initial-branch", "main"])?;
        git(&["add", "--all"])?;
        git(&["commit", "--quiet", "--message", "Know of nobody"])?;
        // It is asked how old the database is.
        write(&database.join(".git/FETCH_HEAD"), b"")?;
    }
    let rules = std::fs::read_to_string("deny.toml").map_err(|e| format!("read deny.toml: {e}"))?;
    let place = format!("[advisories]\ndb-path = {:?}\n", home.to_string_lossy());
    let config = home.join("deny.toml");
    write(&config, rules.replacen("[advisories]\n", &place, 1).as_bytes())?;
    Ok(config)
}
