//! Running other people's programs: with the terminal attached, or to read what they print.

use crate::Result;
use std::path::Path;
use std::process::{Command, Stdio};

/// Whether a program of this name can be started.
pub fn is_there(program: &str) -> bool {
    let started =
        Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    started.is_ok()
}

/// Runs a program; fails unless it ends well.
pub fn run(program: impl AsRef<Path>, arguments: &[&str]) -> Result<()> {
    finish(Command::new(program.as_ref()).args(arguments))
}

/// Runs what was put together; fails unless it ends well.
pub fn finish(command: &mut Command) -> Result<()> {
    let shown = shown(command);
    let status = command.status().map_err(|e| format!("start {shown}: {e}"))?;
    if status.success() { Ok(()) } else { Err(format!("{shown}: {status}")) }
}

/// What a program prints on standard output.
pub fn output(program: impl AsRef<Path>, arguments: &[&str]) -> Result<String> {
    text(Command::new(program.as_ref()).args(arguments))
}

/// The same of what was put together. What it says on standard error is in the error, if it fails;
/// if it says nothing there, what it printed.
pub fn text(command: &mut Command) -> Result<String> {
    let shown = shown(command);
    let output = command.output().map_err(|e| format!("start {shown}: {e}"))?;
    if !output.status.success() {
        let said = if output.stderr.is_empty() { &output.stdout } else { &output.stderr };
        let said = String::from_utf8_lossy(said);
        return Err(format!("{shown}: {}: {}", output.status, said.trim()));
    }
    String::from_utf8(output.stdout).map_err(|e| format!("{shown} printed no text: {e}"))
}

fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_says_what_was_run_and_what_it_said() {
        assert_eq!(output("sh", &["-c", "echo well"]), Ok("well\n".to_owned()));
        let told = output("sh", &["-c", "echo no room >&2; exit 3"]).unwrap_err();
        assert!(
            told.starts_with("sh -c echo") && told.ends_with("exit status: 3: no room"),
            "{told}"
        );
        let told = output("sh", &["-c", "echo line 3: no; exit 1"]).unwrap_err();
        assert!(told.ends_with("exit status: 1: line 3: no"), "{told}");
        assert!(run("sh", &["-c", "exit 1"]).is_err());
        assert!(is_there("sh") && !is_there("no-such-program"));
    }
}
