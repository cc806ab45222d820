//! Other people's tools that packages are made with, each by its version from its own registry, in `target/tools`. What is there
//! already, in that version, is taken.

use crate::dist::plan::write;
use crate::{Result, cargo, command};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The linker for an older C library than this machine's: from PyPI, since that has it built.
const ZIG: [&str; 2] = ["ziglang==0.15.2", "cargo-zigbuild==0.24.1"];
/// Cargo's packages of these names.
pub const CARGO_DEB: (&str, &str) = ("cargo-deb", "3.8.0");
pub const CARGO_RPM: (&str, &str) = ("cargo-generate-rpm", "0.21.1");
/// Helm, as a Go module.
const HELM: (&str, &str) = ("helm.sh/helm/v3/cmd/helm", "v3.20.2");

fn home() -> Result<PathBuf> {
    let here = std::env::current_dir().map_err(|e| format!("find the repository: {e}"))?;
    Ok(here.join("target/tools"))
}

/// Adds the directory of a tool to the front of a command's search path.
pub fn search_first(command: &mut Command, dir: &Path) {
    let rest = std::env::var_os("PATH").unwrap_or_default();
    let all = std::iter::once(dir.to_path_buf()).chain(std::env::split_paths(&rest));
    if let Ok(joined) = std::env::join_paths(all) {
        command.env("PATH", joined);
    }
}

/// The directory with `cargo-zigbuild`, and the Python that it finds zig in.
pub fn zig() -> Result<PathBuf> {
    let venv = home()?.join("python");
    let (bin, noted) = (venv.join("bin"), venv.join("installed"));
    let wanted = ZIG.join(" ");
    if std::fs::read_to_string(&noted).is_ok_and(|text| text == wanted) {
        return Ok(bin);
    }
    command::run("python3", &["-m", "venv", &venv.to_string_lossy()])?;
    command::run(
        bin.join("pip"),
        &[&["install", "--quiet", "--disable-pip-version-check"], &ZIG[..]].concat(),
    )?;
    write(&noted, wanted.as_bytes())?;
    Ok(bin)
}

/// A program of a cargo package.
pub fn of_cargo((name, version): (&str, &str)) -> Result<PathBuf> {
    let root = home()?;
    let program = root.join("bin").join(name);
    let noted = root.join(format!("{name}.version"));
    if program.is_file() && std::fs::read_to_string(&noted).is_ok_and(|text| text == version) {
        return Ok(program);
    }
    let target = root.join("build");
    let (root, target) = (root.to_string_lossy(), target.to_string_lossy());
    let install = [
        "install",
        "--quiet",
        "--locked",
        "--root",
        &root,
        "--target-dir",
        &target,
        "--version",
        version,
        name,
    ];
    // Away from the repository, whose settings for cargo are not meant for it.
    if !cargo::run_with(&install, &[])? {
        return Err(format!("cargo can't install {name} {version}"));
    }
    write(&noted, version.as_bytes())?;
    Ok(program)
}

/// Helm, where there is Go.
pub fn helm() -> Result<Option<PathBuf>> {
    if helm_if_there()?.is_none() && command::is_there("go") {
        let (module, version) = HELM;
        let wanted = format!("{module}@{version}");
        let mut install = Command::new("go");
        install.args(["install", &wanted]).env("GOBIN", home()?.join("bin")).env("CGO_ENABLED", "0");
        command::finish(&mut install)?;
        write(&home()?.join("helm.version"), version.as_bytes())?;
    }
    helm_if_there()
}

/// Helm, if it was built before.
pub fn helm_if_there() -> Result<Option<PathBuf>> {
    let (program, noted) = (home()?.join("bin/helm"), home()?.join("helm.version"));
    let is_that = std::fs::read_to_string(&noted).is_ok_and(|text| text == HELM.1);
    Ok(Some(program).filter(|program| is_that && program.is_file()))
}
