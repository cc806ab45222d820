//! Backups that earlier commits wrote are restored row for row, whatever has become of the format
//! since.
//!
//! `tests/formats/VERSION/backup-NAME.tar.gz` is a backup as it lay in a directory: two snapshots
//! and the log between and behind them; `backup-NAME.rows` is what was there at some of its
//! versions: `at VERSION`, then `row KEY VALUE` in hexadecimal digits. The sealed one's key is 32
//! times the byte 7. They stay there for good; what is written today is judged in the same way, and
//! left in the directory that `PLINTH_FORMATS` names. `docs/format/README.md` has the promise.

#[path = "../../plinth/tests/formats/archives.rs"]
mod archives;
mod common;

use archives::{KEPT, hex, kept, pack, rows_of_archive, unhex, unpack};
use common::*;
use plinth::backup::agent::{self, State, Wish};
use plinth::backup::restore::{Goal, Mapping};
use plinth::backup::{Agent, Backup, Directory, Key, Target, verify};
use plinth::{Database, Env, MutationType, Version, block_on};
use plinth_env::TemporaryDir;
use plinth_env::simulated::Simulation;
use plinth_types::Bytes;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

const KEY: [u8; 32] = [7; 32];

/// What was there at some versions.
type Known = BTreeMap<Version, Model>;

fn temporary() -> TemporaryDir {
    block_on(Env::real().files().temporary_dir("plinth-backup-formats")).unwrap()
}

fn written(known: &Known) -> String {
    let mut lines = Vec::new();
    for (version, rows) in known {
        lines.push(format!("at {version}"));
        lines.extend(rows.iter().map(|(key, value)| format!("row {} {}", hex(key), hex(value))));
    }
    lines.join("\n") + "\n"
}

fn read(text: &str) -> Known {
    let (mut known, mut at) = (Known::new(), 0);
    for line in text.lines() {
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["at", version] => {
                at = version.parse().unwrap();
                known.insert(at, Model::new());
            }
            ["row", key, value] => {
                drop(known.get_mut(&at).unwrap().insert(unhex(key).into(), unhex(value).into()))
            }
            _ => panic!("{line:?}"),
        }
    }
    known
}

/// Commits with every kind of mutation that a log may have, each noted with its version.
async fn write(db: &Database, known: &mut Known, random: &mut Random, count: usize) {
    use MutationType::*;
    let kinds =
        [Add, BitAndV2, BitOr, BitXor, AppendIfFits, Max, MinV2, ByteMin, ByteMax, CompareAndClear];
    for _ in 0..count {
        let tr = db.create_transaction();
        for _ in 0..4 {
            let key = format!("key{:02}", random.index(40));
            let operand = vec![random.index(250) as u8; 1 + random.index(9)];
            match random.index(3) {
                0 => tr.atomic_op(&key, &operand, kinds[random.index(kinds.len())]),
                1 => tr.clear_range(&key, format!("{key}~")),
                _ => tr.set(&key, &operand),
            }
        }
        tr.atomic_op(b"stamped", [&b"0123456789"[..], &[0; 4]].concat(), SetVersionstampedValue);
        tr.set(format!("\u{0}odd\\x00{}", random.index(9)), "");
        tr.commit().await.unwrap();
        known.insert(tr.committed_version().unwrap(), rows_of(db).await);
        db.endpoint().env().sleep(Duration::from_millis(300)).await;
    }
}

async fn until(db: &Database, is_so: impl Fn(&agent::TagStatus) -> bool) {
    for _ in 0..400 {
        if is_so(&agent::tags(db).await.unwrap()[0]) {
            return;
        }
        db.endpoint().env().sleep(Duration::from_millis(300)).await;
    }
    panic!("{:?}", agent::tags(db).await);
}

/// Writes a backup of today's, below `dir`, and gives what was there.
fn write_backup(dir: &Path, is_sealed: bool) -> Known {
    let simulation = Simulation::new(18);
    let machine = simulation.process("node");
    simulation.run_until(async {
        let (db, mut random) = (open(&machine, "/db", "ssd").await, Random::new(18));
        let mut known = Known::new();
        write(&db, &mut known, &mut random, 20).await;
        let mut wish = Wish { snapshot_interval: Duration::from_secs(15), ..Wish::new("/backup") };
        if is_sealed {
            machine.files().replace("/key", &KEY).await.unwrap();
            wish.key_file = Some("/key".into());
        }
        let runs = Agent::start(&machine, &db);
        agent::start(&db, "default", &wish).await.unwrap();
        until(&db, |tag| tag.is_restorable).await;
        while agent::tags(&db).await.unwrap()[0].snapshots < 2 {
            write(&db, &mut known, &mut random, 2).await;
        }
        write(&db, &mut known, &mut random, 10).await;
        agent::change(&db, "default", State::Discontinuing).await.unwrap();
        until(&db, |tag| tag.ended.is_some()).await;
        runs.stop().await.unwrap();
        let real = Env::real();
        for (name, contents) in files_below(&machine, Path::new("/backup")).await {
            let path = dir.join(&name);
            real.files().create_dir_all(path.parent().unwrap()).await.unwrap();
            real.files().replace(&path, &contents).await.unwrap();
        }
        known
    })
}

/// All files below a directory, by their names in it.
async fn files_below(env: &Env, dir: &Path) -> Vec<(String, Bytes)> {
    let target = Directory::new(env, dir);
    let mut files = Vec::new();
    for object in target.list("").await.unwrap() {
        let contents = target.get(&object.name).await.unwrap();
        files.push((object.name, contents));
    }
    files
}

/// A backup is whole, and each known version that it reaches is restored from it, into a directory.
/// The disk is a simulated one, which is quick.
fn judge(dir: &Path, name: &str, known: &Known) {
    let files = block_on(files_below(&Env::real(), dir));
    let key = name.contains("sealed").then(|| Key::of_file(&KEY).unwrap());
    let simulation = Simulation::new(1);
    let machine = simulation.process("node");
    simulation.run_until(async {
        let target = backup_target(&machine);
        for (file, contents) in files {
            target.put(&file, contents).await.unwrap();
        }
        let backup = Backup::open(&machine, target, key).await;
        let backup = backup.unwrap_or_else(|error| panic!("{name} can't be opened: {error}"));
        assert_eq!(backup.is_sealed(), name.contains("sealed"));
        let report = verify(&backup, &AtomicU64::new(0), &AtomicBool::new(false)).await.unwrap();
        assert!(report.problems.is_empty() && report.is_deep, "{name}: {:?}", report.problems);
        let contents = backup.contents().await.unwrap();
        assert_eq!(contents.snapshots.len(), 2, "{name}");
        let reach = contents.restorable();
        let [(from, to)] = reach[..] else { panic!("{name}: {reach:?}") };
        let reached: Vec<_> = known.range(from..=to).collect();
        let newest = known.keys().next_back();
        assert!(
            reached.len() > 5 && reached.last().map(|(at, _)| *at) == newest,
            "{name}: {reach:?}"
        );
        for (at, rows) in reached {
            let to = format!("/restored-{at}");
            let restored = restore_dir(
                &machine,
                &backup,
                Goal::Version(*at),
                Mapping::default(),
                &to,
                "memory",
            );
            restored.await.unwrap_or_else(|error| panic!("{name} to {at}: {error}"));
            let local = open_local(&machine, &to, "memory").await;
            assert!(rows_of(local.database()).await == *rows, "{name}: version {at}");
            local.close_async().await.unwrap();
        }
    });
}

#[test]
fn backups_of_earlier_commits_are_restored_row_for_row() {
    let kept = kept("backup-");
    assert!(kept.len() >= 2, "{KEPT} has {kept:?}");
    for (name, archive) in kept {
        let place = temporary();
        unpack(&archive, place.path());
        judge(&place.path().join("backup"), &name, &read(&rows_of_archive(&archive)));
    }
}

#[test]
fn todays_backups_are_restored() {
    for name in ["backup-plain", "backup-sealed"] {
        let place = temporary();
        let dir = place.path().join("backup");
        let mut known = write_backup(&dir, name == "backup-sealed");
        // A few of the versions: each is restored by itself.
        let newest = known.keys().next_back().copied();
        let mut number = 0;
        known.retain(|version, _| {
            number += 1;
            number % 4 == 0 || Some(*version) == newest
        });
        assert_eq!(read(&written(&known)), known);
        judge(&dir, name, &known);
        let Some(out) = std::env::var_os("PLINTH_FORMATS").map(PathBuf::from) else { continue };
        pack(place.path(), "backup", &out.join(format!("{name}.tar.gz")));
        block_on(
            Env::real()
                .files()
                .replace(out.join(format!("{name}.rows")), written(&known).as_bytes()),
        )
        .unwrap();
    }
}
