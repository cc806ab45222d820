//! Debian's packages as dpkg itself takes them: unpacked, set up, removed and purged, in a root of
//! their own.
//!
//! ```text
//!   dpkg --root=ROOT ──▶ files go there
//!          └──▶ scripts, not in a chroot (there is no system in ROOT): PATH begins with stand-ins
//!               for what would make users and start servers; they write down what they were told
//! ```

use super::Outcome::{self, Passed, Skipped};
use super::{find, must_be};
use crate::dist::plan::Plan;
use crate::{Result, command};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Which packages there are.
const PACKAGES: [&str; 3] = ["plinth", "libplinth", "libplinth-dev"];
const SCRIPTS: [&str; 3] = ["plinth.postinst", "plinth.prerm", "plinth.postrm"];
/// What scripts call by name, or could come to call, that changes a system.
const STAND_INS: [&str; 17] = [
    "adduser",
    "addgroup",
    "chmod",
    "chown",
    "deb-systemd-helper",
    "deb-systemd-invoke",
    "deluser",
    "delgroup",
    "getent",
    "install",
    "invoke-rc.d",
    "systemctl",
    "systemd-sysusers",
    "systemd-tmpfiles",
    "update-rc.d",
    "useradd",
    "usermod",
];
/// Without it the package's last script has nothing to undo.
const HELPER: &str = "/usr/bin/deb-systemd-helper";
const SETTINGS: &str = "etc/plinth/plinth.toml";
const DATA: &str = "var/lib/plinth/data";

/// One of Debian's packages.
pub(super) fn package(plan: &Plan, name: &str) -> Result<PathBuf> {
    let begin = format!("{name}_");
    find(plan, |file| file.starts_with(&begin) && file.ends_with(".deb"))
}

/// A root that dpkg installs into.
struct Root {
    dir: PathBuf,
    /// Where the stand-ins are, and what they were told.
    stand_ins: PathBuf,
}

impl Root {
    /// With data in it, and no package.
    fn new(plan: &Plan, name: &str) -> Result<Self> {
        let root = Self { dir: plan.fresh(name)?, stand_ins: plan.fresh("try-stand-ins")? };
        for dir in ["var/lib/dpkg/info", "var/lib/dpkg/updates", "var/lib/plinth", "var/log"] {
            std::fs::create_dir_all(root.dir.join(dir)).map_err(|e| format!("make {dir}: {e}"))?;
        }
        for file in ["var/lib/dpkg/status", "var/lib/dpkg/available", DATA] {
            write(&root.dir.join(file), "")?;
        }
        for name in STAND_INS {
            let file = root.stand_ins.join(name);
            // Nobody is called plinth yet; all else is well.
            let status = if name == "getent" { 2 } else { 0 };
            let log = root.told_file();
            let text =
                format!("#!/bin/sh\necho \"{name} $*\" >>'{}'\nexit {status}\n", log.display());
            write(&file, &text)?;
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755))
                .map_err(|e| format!("make {} a program: {e}", file.display()))?;
        }
        Ok(root)
    }

    fn told_file(&self) -> PathBuf {
        self.stand_ins.join("told")
    }

    /// What the stand-ins were told since this was asked last.
    fn told(&self) -> String {
        let told = std::fs::read_to_string(self.told_file()).unwrap_or_default();
        let _ = std::fs::remove_file(self.told_file());
        told
    }

    fn dpkg(&self, arguments: &[&str]) -> Result<String> {
        let mut dpkg = Command::new("dpkg");
        let root = format!("--root={}", self.dir.display());
        let apart = [
            "--force-not-root",
            "--force-bad-path",
            "--force-depends",
            "--force-script-chrootless",
            "--log=/dev/null",
        ];
        let path = std::env::var("PATH").unwrap_or_default();
        dpkg.env("PATH", format!("{}:{path}", self.stand_ins.display()));
        command::text(dpkg.arg(root).args(apart).args(arguments))
    }

    fn unpack(&self, plan: &Plan, name: &str) -> Result<String> {
        self.dpkg(&["--unpack", &package(plan, name)?.to_string_lossy()])
    }

    fn must_have(&self, files: &[&str]) -> Result<()> {
        files.iter().try_for_each(|file| must_be(&self.dir.join(file)))
    }

    fn must_lack(&self, file: &str) -> Result<()> {
        match self.dir.join(file).exists() {
            true => Err(format!("{file} is still there")),
            false => Ok(()),
        }
    }
}

fn write(file: &Path, text: &str) -> Result<()> {
    std::fs::write(file, text).map_err(|e| format!("write {}: {e}", file.display()))
}

/// What dpkg itself says: that one package wants what the others bring, and what its scripts say.
pub(super) fn installed(plan: &Plan) -> Result<Outcome> {
    if !command::is_there("dpkg") {
        return Ok(Skipped("there is no dpkg"));
    }
    let root = Root::new(plan, "try-dpkg")?;
    for name in PACKAGES {
        root.unpack(plan, name)?;
    }
    let listed = root.dpkg(&["--list"])?;
    if listed.lines().filter(|line| line.contains("plinth")).count() != PACKAGES.len() {
        return Err(format!("dpkg lists\n{listed}"));
    }
    let scripts = root.dir.join("var/lib/dpkg/info");
    for script in SCRIPTS {
        let text = std::fs::read_to_string(scripts.join(script))
            .map_err(|e| format!("read {script}: {e}"))?;
        if text.contains("#DEBHELPER#") {
            return Err(format!("{script} has a place that was not filled"));
        }
        command::run("sh", &["-n", &scripts.join(script).to_string_lossy()])?;
        if text.contains("rm -rf /var/lib/plinth") {
            return Err(format!("{script} removes data"));
        }
    }
    root.must_have(&[DATA])?;
    Ok(Passed)
}

/// Its scripts run: they make the user and have the server start, and neither removing nor purging
/// takes data along.
pub(super) fn set_up(plan: &Plan) -> Result<Outcome> {
    if !command::is_there("dpkg") {
        return Ok(Skipped("there is no dpkg"));
    }
    if !Path::new(HELPER).exists() {
        return Ok(Skipped("there is no deb-systemd-helper"));
    }
    let root = Root::new(plan, "try-set-up")?;
    root.unpack(plan, "plinth")?;
    root.told();
    root.dpkg(&["--configure", "plinth"])?;
    let told = root.told();
    for said in ["adduser --system --group", "deb-systemd-helper enable plinth.service"] {
        if !told.contains(said) {
            return Err(format!("setting up says no {said:?}, but\n{told}"));
        }
    }
    let status = root.dpkg(&["--status", "plinth"])?;
    if !status.contains("Status: install ok installed") {
        return Err(format!("dpkg says\n{status}"));
    }
    // An operator's own settings outlive the package, up to the purge.
    write(&root.dir.join(SETTINGS), "# mine\n")?;
    root.dpkg(&["--remove", "plinth"])?;
    root.must_lack("usr/bin/plinth")?;
    root.must_have(&[SETTINGS, DATA])?;
    root.dpkg(&["--purge", "plinth"])?;
    root.must_lack(SETTINGS)?;
    root.must_have(&[DATA])?;
    let told = root.told();
    if told.contains("deluser") || !told.contains("deb-systemd-helper purge plinth.service") {
        return Err(format!("removing and purging say\n{told}"));
    }
    Ok(Passed)
}
