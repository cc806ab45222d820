//! Running cargo: with the terminal attached, or to read what it prints.

use crate::Result;
use std::process::{Command, Stdio};

/// Cargo as this process was started by it, so that a toolchain chosen with `cargo +x xtask` holds
/// throughout.
pub fn command() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    forget_package(&mut command);
    command
}

/// Takes from a command's environment what cargo told this process of its own package. The build
/// script of `ring` asks to be run again when one of these variables changes, and with it go TLS,
/// server, program and C library: a build by `cargo xtask` and one from a shell, which has no such
/// variables, would each undo the other, minutes at a time.
pub fn forget_package(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
}

/// Runs cargo on the terminal; `false` when it ends with a failure.
pub fn run(arguments: &[&str]) -> Result<bool> {
    run_with(arguments, &[])
}

/// The same, with more in the environment.
pub fn run_with(arguments: &[&str], environment: &[(&str, &str)]) -> Result<bool> {
    let status = command().args(arguments).envs(environment.iter().copied()).status();
    status
        .map(|status| status.success())
        .map_err(|e| format!("start cargo {}: {e}", arguments.join(" ")))
}

/// The feature of the program that a release has.
pub const PACKAGED: &str = "plinth-cli/packaged";

/// Builds the program and the C library. A release has [`PACKAGED`]. Tests' profile has them as
/// `cargo test` builds them, with the features of the whole workspace: a choice of packages has
/// others, and most crates would be built once more.
pub fn build_products(profile: &str) -> Result<bool> {
    let what: &[&str] = match profile {
        "checked" => &["--workspace", "--all-features", "--lib", "--bin", "plinth"],
        "release" => {
            &["--package", "plinth-capi", "--package", "plinth-cli", "--features", PACKAGED]
        }
        _ => &["--package", "plinth-capi", "--package", "plinth-cli"],
    };
    run(&[&["build", "--locked", "--profile", profile], what].concat())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargo_is_run_as_from_a_shell() {
        let command = command();
        let removed: Vec<_> =
            command.get_envs().filter(|(_, value)| value.is_none()).map(|(name, _)| name).collect();
        for name in ["CARGO_MANIFEST_DIR", "CARGO_PKG_NAME", "CARGO_PKG_VERSION"] {
            assert!(removed.iter().any(|removed| *removed == name), "{name} stays: {removed:?}");
        }
        assert!(
            !removed
                .iter()
                .any(|removed| *removed == "CARGO_TARGET_DIR" || *removed == "CARGO_HOME")
        );
    }
}
