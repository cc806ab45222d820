//! Archives: of the program for any Linux, of what debuggers want, of the sources; Helm's chart and
//! Homebrew's formula.

use crate::dist::plan::{Plan, copy, gzip, list, sha256, version, write};
use crate::dist::stage;
use crate::{Result, command, install};
use std::path::Path;

/// Where the chart and the formula stand in the repository.
pub const CHART: &str = "packaging/helm/plinth";
const FORMULA: &str = "packaging/homebrew/plinth.rb";

/// `plinth-0.1.0-x86_64-linux.tar.gz`, which runs from wherever it is unpacked, and the same with
/// `-debug`.
pub fn tarball(plan: &Plan) -> Result<()> {
    let (work, name) = (plan.fresh("tarball")?, plan.machine_name());
    let inside = work.join(&name);
    // What is found from its own place needs no prefix.
    install::lay_out("/", &inside.to_string_lossy(), &plan.built())?;
    for (package, link) in install::PKG_CONFIG {
        let text = install::pkg_config("${pcfiledir}/../..", "lib", package, link);
        write(&inside.join(format!("lib/pkgconfig/{package}.pc")), text.as_bytes())?;
    }
    for (from, to) in [
        ("packaging/plinth.service", "share/plinth/plinth.service"),
        ("packaging/plinth.toml", "share/plinth/plinth.toml"),
    ] {
        copy(Path::new(from), &inside.join(to))?;
    }
    stage::documents(&inside)?;
    plan.tar(&plan.out.join(format!("{name}.tar.gz")), &work, &name)?;
    let debug = format!("{name}-debug");
    let is_split = |path: &Path| path.extension().is_some_and(|end| end == "debug");
    for file in list(&plan.built())?.iter().filter(|path| is_split(path)) {
        copy(file, &work.join(&debug).join(file.file_name().unwrap_or_default()))?;
    }
    if work.join(&debug).is_dir() {
        plan.tar(&plan.out.join(format!("{debug}.tar.gz")), &work, &debug)?;
    }
    Ok(())
}

/// The chart, as `helm package` would pack it.
pub fn chart(plan: &Plan) -> Result<()> {
    let archive = plan.out.join(format!("plinth-chart-{}.tgz", version()));
    let plain = archive.with_extension("tar");
    plan.plain_tar(&plain, Path::new(CHART).parent().unwrap_or(Path::new(".")), "plinth")?;
    gzip(&plain, &archive)
}

/// The sources of the commit, and the formula that builds from them.
pub fn formula(plan: &Plan) -> Result<()> {
    let name = format!("plinth-{}", version());
    let archive = plan.out.join(format!("{name}-source.tar.gz"));
    let plain = archive.with_extension("");
    let (output, prefix) = (format!("--output={}", plain.display()), format!("--prefix={name}/"));
    command::run("git", &["archive", "--format=tar", &output, &prefix, "HEAD"])?;
    gzip(&plain, &archive)?;
    let template = std::fs::read_to_string(FORMULA).map_err(|e| format!("read {FORMULA}: {e}"))?;
    let filled = fill(&template, version(), &sha256(&archive)?)?;
    write(&plan.out.join("plinth.rb"), filled.as_bytes())
}

/// Puts version and checksum into the formula.
fn fill(template: &str, version: &str, sum: &str) -> Result<String> {
    for place in ["@VERSION@", "@SHA256@"] {
        if !template.contains(place) {
            return Err(format!("{FORMULA} has no {place}"));
        }
    }
    Ok(template.replace("@VERSION@", version).replace("@SHA256@", sum))
}

/// `SHA256SUMS` of every package.
pub fn sums(plan: &Plan) -> Result<()> {
    let mut text = String::new();
    for file in
        list(&plan.out)?.iter().filter(|path| path.is_file() && !path.ends_with("SHA256SUMS"))
    {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        text += &format!("{}  {name}\n", sha256(file)?);
    }
    write(&plan.out.join("SHA256SUMS"), text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repository(path: &str) -> String {
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path))
            .unwrap()
    }

    #[test]
    fn the_formula_names_version_and_checksum() {
        let filled = fill(&repository(FORMULA), "1.2.3", "00ff").unwrap();
        assert!(
            filled.contains("1.2.3") && filled.contains("sha256 \"00ff\"") && !filled.contains('@'),
            "{filled}"
        );
        assert!(fill("nothing", "1", "2").is_err());
    }

    #[test]
    fn everything_has_the_workspaces_version() {
        let chart = repository(&format!("{CHART}/Chart.yaml"));
        assert!(chart.contains(&format!("\nversion: {}\n", version())), "{chart}");
        assert!(chart.contains(&format!("\nappVersion: \"{}\"\n", version())), "{chart}");
        let wheel = repository("bindings/python/pyproject.toml");
        assert!(wheel.contains(&format!("\nversion = \"{}\"\n", version())), "{wheel}");
    }
}
