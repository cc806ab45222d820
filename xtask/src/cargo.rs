//! Running cargo: with the terminal attached, or to read what it prints.

use crate::Result;
use std::process::{Command, Stdio};

/// Cargo as this process was started by it, so that a toolchain chosen with `cargo +x xtask` holds throughout.
pub fn command() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// Runs cargo on the terminal; `false` when it ends with a failure.
pub fn run(arguments: &[&str]) -> Result<bool> {
    run_with(arguments, &[])
}

/// The same, with more in the environment.
pub fn run_with(arguments: &[&str], environment: &[(&str, &str)]) -> Result<bool> {
    let status = command().args(arguments).envs(environment.iter().copied()).status();
    status.map(|status| status.success()).map_err(|e| format!("start cargo {}: {e}", arguments.join(" ")))
}

/// Runs cargo and gives back what it wrote to standard output; its messages go to the terminal.
pub fn output(arguments: &[&str]) -> Result<String> {
    let output = command().args(arguments).stderr(Stdio::inherit()).output();
    let output = output.map_err(|e| format!("start cargo {}: {e}", arguments.join(" ")))?;
    if !output.status.success() {
        return Err(format!("cargo {} failed", arguments.join(" ")));
    }
    String::from_utf8(output.stdout)
        .map_err(|e| format!("cargo {} printed no text: {e}", arguments.join(" ")))
}
