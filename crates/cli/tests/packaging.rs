//! What is packaged is what its readers understand: systemd the unit. (The settings file has its
//! tests beside the settings.)

use plinth_env::{Env, block_on};
use std::io::ErrorKind;
use std::process::Command;

const UNIT: &str = include_str!("../../../packaging/plinth.service");

#[test]
fn systemd_has_nothing_to_say_about_the_unit() {
    let env = Env::real();
    let dir = block_on(env.files().temporary_dir("plinth-unit")).unwrap();
    let path = dir.path().join("plinth.service");
    // The program stands where this machine has it; systemd looks whether it is there.
    let unit = UNIT.replace("/usr/bin/plinth", env!("CARGO_BIN_EXE_plinth"));
    assert_ne!(unit, UNIT);
    block_on(env.files().replace(&path, unit.as_bytes())).unwrap();
    let verify = Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&path).output();
    let output = match verify {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            println!("skipped: there is no systemd-analyze on this machine");
            return;
        }
        output => output.unwrap(),
    };
    // It looks at the units that this one names, too, which are this machine's own business; and it
    // succeeds in spite of most of what it finds.
    let text = String::from_utf8_lossy(&output.stderr);
    let about_it: Vec<_> = text.lines().filter(|line| line.contains("plinth.service")).collect();
    assert!(about_it.is_empty(), "{text}");
    if !output.status.success() {
        println!("skipped: systemd-analyze fails without a word about the unit: {text}");
    }
}

/// Nobody else on the machine reads what the server writes, however it was told to write it.
#[test]
fn the_units_keep_others_away() {
    const BACKUPS: [&str; 2] = [
        include_str!("../../../packaging/plinth-backup.service"),
        include_str!("../../../packaging/plinth-backup-expire.service"),
    ];
    let has = |unit: &str, line: &str| unit.lines().any(|other| other == line);
    for line in ["StateDirectory=plinth", "StateDirectoryMode=0700", "NoNewPrivileges=yes"] {
        assert!(has(UNIT, line), "{line}");
    }
    for unit in BACKUPS.into_iter().chain([UNIT]) {
        assert!(has(unit, "UMask=0077"), "{unit}");
    }
}
