//! Other people's tools that packages are made with, each by its version from its own registry, in
//! `target/tools`. What is there already, in that version, is taken.
//!
//! Always: a tool's version is noted last, so what was interrupted is done again. Cargo's are built
//! unoptimised, but for what compresses and computes checksums: the packages are the same, byte for
//! byte, and a clean build has them sooner.

use crate::dist::plan::{remove, write};
use crate::{Result, cargo, command};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// The linker for an older C library than this machine's: from PyPI, since that has it built.
const ZIG: [&str; 2] = ["ziglang==0.15.2", "cargo-zigbuild==0.24.1"];
/// Cargo's packages of these names.
pub const CARGO_DEB: (&str, &str) = ("cargo-deb", "3.8.0");
pub const CARGO_RPM: (&str, &str) = ("cargo-generate-rpm", "0.21.1");
/// The check of what comes in, which `make check` needs.
pub const CARGO_DENY: (&str, &str) = ("cargo-deny", "0.20.2");
/// What compresses and what computes checksums in these tools.
const OPTIMISED: [&str; 7] = ["keccak", "lzma-sys", "md-5", "sha1", "sha2", "sha3", "zstd-sys"];
/// Helm, as a Go module.
const HELM: (&str, &str) = ("helm.sh/helm/v3/cmd/helm", "v3.20.2");
/// What compares Kubernetes' objects with schemas, as a Go module; and the schemas, which PyPI has
/// in a package.
const KUBECONFORM: (&str, &str) = ("github.com/yannh/kubeconform/cmd/kubeconform", "v0.8.0");
const SCHEMAS: &str = "kubernetes-validate==1.37.0";
/// The versions of Kubernetes whose schemas are taken: the oldest that the chart is for, and the
/// newest that the package has.
pub const KUBERNETES: [&str; 2] = ["1.30.0", "1.37.0"];
/// Takes them out of the package. Its files name each other by addresses on the web, where
/// kubeconform would look for them.
const UNPACK: &str = r#"
import json, pathlib, sys, zipfile
wheel, into, *versions = sys.argv[1:]
with zipfile.ZipFile(wheel) as package:
    for version in versions:
        inside = f"kubernetes_validate/kubernetes-json-schema/v{version}-local-strict/"
        schemas = [name for name in package.namelist() if name.startswith(inside) and name.endswith(".json")]
        if not schemas:
            sys.exit(f"{wheel} has no schemas of Kubernetes {version}")
        home = pathlib.Path(into, version)
        home.mkdir(parents=True, exist_ok=True)
        for name in schemas:
            schema = json.loads(package.read(name))
            schema.pop("$id", None)
            text = json.dumps(schema).replace("/api/_definitions.json", "_definitions.json")
            (home / name.removeprefix(inside)).write_text(text)
"#;

/// Where they are.
pub fn home() -> Result<PathBuf> {
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
    let begun = Instant::now();
    let target = root.join("build");
    let (root, target) = (root.to_string_lossy(), target.to_string_lossy());
    let install = ["install", "--quiet", "--locked", "--debug", "--root", &root];
    let what = ["--target-dir", &target, "--version", version, name];
    // Away from the repository, whose settings for cargo are not meant for it.
    let mut cargo = cargo::command();
    cargo.args(install).args(what).env("CARGO_PROFILE_DEV_DEBUG", "0");
    for package in OPTIMISED {
        cargo.args(["--config", &format!("profile.dev.package.{package}.opt-level=3")]);
    }
    command::finish(&mut cargo)
        .map_err(|e| format!("cargo can't install {name} {version}: {e}"))?;
    told(name, begun);
    write(&noted, version.as_bytes())?;
    Ok(program)
}

fn told(tool: &str, begun: Instant) {
    println!("built {tool} in {:.1} s", begun.elapsed().as_secs_f64());
}

/// Helm, where there is Go.
pub fn helm() -> Result<Option<PathBuf>> {
    if helm_if_there()?.is_none() && command::is_there("go") {
        let begun = Instant::now();
        of_go(HELM)?;
        told("helm", begun);
        write(&home()?.join("helm.version"), HELM.1.as_bytes())?;
    }
    helm_if_there()
}

/// A program of a Go module, among the tools.
fn of_go((module, version): (&str, &str)) -> Result<()> {
    let wanted = format!("{module}@{version}");
    let mut install = Command::new("go");
    install.args(["install", &wanted]).env("GOBIN", home()?.join("bin")).env("CGO_ENABLED", "0");
    command::finish(&mut install)
}

/// Helm, if it was built before.
fn helm_if_there() -> Result<Option<PathBuf>> {
    let (program, noted) = (home()?.join("bin/helm"), home()?.join("helm.version"));
    let is_that = std::fs::read_to_string(&noted).is_ok_and(|text| text == HELM.1);
    Ok(Some(program).filter(|program| is_that && program.is_file()))
}

/// kubeconform and the directory of its schemas, by version, where there are Go and Python.
pub fn kubeconform() -> Result<Option<(PathBuf, PathBuf)>> {
    if kubeconform_if_there()?.is_none() && command::is_there("go") && command::is_there("python3")
    {
        let begun = Instant::now();
        of_go(KUBECONFORM)?;
        let (wheels, schemas) = (home()?.join("kubernetes"), home()?.join("schemas"));
        for stale in [&wheels, &schemas] {
            remove(stale).map_err(|e| format!("remove {}: {e}", stale.display()))?;
        }
        let venv = home()?.join("python");
        if !venv.join("bin/pip").is_file() {
            command::run("python3", &["-m", "venv", &venv.to_string_lossy()])?;
        }
        let options = ["download", "--quiet", "--disable-pip-version-check", "--no-deps", "--dest"];
        let into = wheels.to_string_lossy();
        command::run(venv.join("bin/pip"), &[&options[..], &[&into, SCHEMAS]].concat())?;
        let there = wheels.read_dir().map_err(|e| format!("read {into}: {e}"))?;
        let wheel = there.flatten().next().ok_or("pip has downloaded nothing")?.path();
        let (wheel, to) = (wheel.to_string_lossy(), schemas.to_string_lossy());
        command::run("python3", &[&["-c", UNPACK, &wheel, &to][..], &KUBERNETES].concat())?;
        told("kubeconform, with its schemas,", begun);
        write(&home()?.join("kubeconform.version"), kubeconform_version().as_bytes())?;
    }
    kubeconform_if_there()
}

/// kubeconform and its schemas, if they were made before.
fn kubeconform_if_there() -> Result<Option<(PathBuf, PathBuf)>> {
    let (program, schemas) = (home()?.join("bin/kubeconform"), home()?.join("schemas"));
    let noted = std::fs::read_to_string(home()?.join("kubeconform.version"));
    let is_that = noted.is_ok_and(|text| text == kubeconform_version());
    Ok(Some((program, schemas)).filter(|(program, _)| is_that && program.is_file()))
}

fn kubeconform_version() -> String {
    format!("{} {SCHEMAS} {}", KUBECONFORM.1, KUBERNETES.join(" "))
}
