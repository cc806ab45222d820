//! All files as they lie in a system's root: what `make install` puts there, the server's unit and
//! settings, documents, licence.

use crate::dist::plan::{Plan, copy, gzip, list, remove, version, write};
use crate::{Result, install};
use std::path::Path;

/// What people find in `share/doc/plinth`, as it lies in the repository, so that links between
/// documents lead somewhere. Packages of systems name these directories, too.
const DOCUMENTS: [&str; 4] = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE"];
const DIRECTORIES: [&str; 5] =
    ["docs", "docs/decisions", "docs/format", "docs/measurements", "docs/pictures"];

/// Lays documents out below a directory.
pub fn documents(to: &Path) -> Result<()> {
    for document in DOCUMENTS {
        copy(Path::new(document), &to.join(document))?;
    }
    for dir in DIRECTORIES {
        for file in list(Path::new(dir))?.iter().filter(|file| file.is_file()) {
            copy(file, &to.join(file))?;
        }
    }
    Ok(())
}

/// Lays them out below [`Plan::stage`].
pub fn lay_out(plan: &Plan) -> Result<()> {
    let stage = plan.stage();
    remove(&stage).map_err(|e| format!("remove {}: {e}", stage.display()))?;
    install::lay_out("/usr", &stage.to_string_lossy(), &plan.built())?;
    documents(&stage.join("usr/share/doc/plinth"))?;
    copy(Path::new("packaging/plinth.toml"), &stage.join("etc/plinth/plinth.toml"))?;
    copy(
        Path::new("packaging/plinth.service"),
        &stage.join("usr/lib/systemd/system/plinth.service"),
    )?;
    debian(plan, &stage)?;
    // Where libraries are in another directory.
    for (package, link) in install::PKG_CONFIG {
        let text = install::pkg_config("/usr", "lib64", package, link);
        write(&stage.join("fedora").join(format!("{package}.pc")), text.as_bytes())?;
    }
    // Distributions have man pages compressed.
    let pages = stage.join("usr/share/man/man1");
    for page in std::fs::read_dir(&pages).map_err(|e| format!("list {}: {e}", pages.display()))? {
        let page = page.map_err(|e| format!("list {}: {e}", pages.display()))?.path();
        let mut compressed = page.clone().into_os_string();
        compressed.push(".gz");
        gzip(&page, Path::new(&compressed))?;
    }
    Ok(())
}

/// What Debian wants to know of versions and of licences.
fn debian(plan: &Plan, stage: &Path) -> Result<()> {
    let date = crate::command::output("date", &["-u", "-R", "-d", &format!("@{}", plan.epoch)]);
    let date = date.unwrap_or_else(|_| "Thu, 01 Jan 1970 00:00:00 +0000".to_owned());
    let text = changelog(version(), date.trim());
    for package in ["plinth", "libplinth", "libplinth-dev"] {
        let dir = stage.join("debian").join(package);
        write(
            &dir.join("changelog.Debian"),
            text.replace("plinth (", &format!("{package} (")).as_bytes(),
        )?;
        gzip(&dir.join("changelog.Debian"), &dir.join("changelog.Debian.gz"))?;
    }
    Ok(())
}

fn changelog(version: &str, date: &str) -> String {
    format!(
        "plinth ({version}-1) unstable; urgency=medium\n\n  * Version {version}; CHANGELOG.md beside this file says what is new.\n\n \
         -- The Plinth developers <plinth@localhost>  {date}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debian_is_told_the_version() {
        let text = changelog("1.2.3", "Thu, 01 Jan 1970 00:00:00 +0000");
        assert!(text.starts_with("plinth (1.2.3-1) unstable; urgency=medium\n\n  * "), "{text}");
        assert!(text.ends_with(
            "\n\n -- The Plinth developers <plinth@localhost>  Thu, 01 Jan 1970 00:00:00 +0000\n"
        ));
    }
}
