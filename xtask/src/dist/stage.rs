//! All files as they lie in a system's root: what `make install` puts there, the server's unit and
//! settings, documents, licence.

use crate::dist::plan::{Plan, copy, gzip, list, remove, version, write};
use crate::rules::links;
use crate::{Result, install};
use std::collections::BTreeSet;
use std::path::Path;

/// Where the repository is, for links to what packages don't have.
const REPOSITORY: &str = "https://github.com/plinth-db/plinth";
/// What people find in `share/doc/plinth`, as it lies in the repository, so that links between
/// documents lead somewhere. Packages of systems name these directories, too.
const DOCUMENTS: [&str; 4] = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE"];
const DIRECTORIES: [&str; 5] =
    ["docs", "docs/decisions", "docs/format", "docs/measurements", "docs/pictures"];

/// Lays documents out below a directory. Their links to other files of the repository lead to where
/// that is on the web.
pub fn documents(to: &Path) -> Result<()> {
    let all = documents_of(Path::new("."))?;
    for document in &all {
        if !document.ends_with(".md") {
            copy(Path::new(document), &to.join(document))?;
            continue;
        }
        let text =
            std::fs::read_to_string(document).map_err(|e| format!("read {document}: {e}"))?;
        let has = |path: &str| all.contains(path) || DIRECTORIES.contains(&path);
        let text = links::elsewhere(document, &text, has, |path| on_the_web(Path::new("."), path));
        write(&to.join(document), text.as_bytes())?;
    }
    Ok(())
}

/// The paths of all documents in the repository at `root`.
fn documents_of(root: &Path) -> Result<BTreeSet<String>> {
    let mut all: BTreeSet<String> = DOCUMENTS.iter().map(|&document| document.into()).collect();
    for dir in DIRECTORIES {
        for file in list(&root.join(dir))?.iter().filter(|file| file.is_file()) {
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            all.insert(format!("{dir}/{name}"));
        }
    }
    Ok(all)
}

/// Where a file or directory of the repository at `root` is on the web, as of this version.
fn on_the_web(root: &Path, path: &str) -> String {
    let kind = if root.join(path).is_dir() { "tree" } else { "blob" };
    format!("{REPOSITORY}/{kind}/v{}/{path}", version())
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

    /// Two dozen links of pages below docs/ led out of the packages, into nothing.
    #[test]
    fn every_link_of_a_document_leads_into_the_package_or_onto_the_web() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let all = documents_of(&root).unwrap();
        let has = |path: &str| all.contains(path) || DIRECTORIES.contains(&path);
        let mut moved = 0;
        for document in all.iter().filter(|document| document.ends_with(".md")) {
            let text = std::fs::read_to_string(root.join(document)).unwrap();
            let packed = links::elsewhere(document, &text, has, |path| on_the_web(&root, path));
            for (line, target) in links::targets(&packed) {
                let file = target.split('#').next().unwrap();
                let path = links::join(document, file);
                let is_inside = file.is_empty() || path.is_some_and(|path| has(&path));
                assert!(is_inside || target.contains("://"), "{document}:{line} {target}");
                moved += usize::from(target.starts_with(REPOSITORY));
            }
        }
        assert!(moved > 20, "{moved}");
        let formula = std::fs::read_to_string(root.join("packaging/homebrew/plinth.rb")).unwrap();
        assert!(formula.contains(&format!("homepage \"{REPOSITORY}\"")), "{formula}");
        assert_eq!(
            on_the_web(&root, "packaging"),
            format!("{REPOSITORY}/tree/v{}/packaging", version())
        );
    }

    #[test]
    fn debian_is_told_the_version() {
        let text = changelog("1.2.3", "Thu, 01 Jan 1970 00:00:00 +0000");
        assert!(text.starts_with("plinth (1.2.3-1) unstable; urgency=medium\n\n  * "), "{text}");
        assert!(text.ends_with(
            "\n\n -- The Plinth developers <plinth@localhost>  Thu, 01 Jan 1970 00:00:00 +0000\n"
        ));
    }
}
