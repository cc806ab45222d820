//! What a restore of ranges tells: the rows that it brought in, cut to the ranges, wherever they
//! went and however often it was cut short; and how far it is, which comes to the whole. And what
//! is told of a backup of which something is damaged or missing: what that costs, what stands in
//! for it, and never that something old is the newest.

mod common;

use common::*;
use plinth::backup::restore::{
    Choice, Goal, Mapping, Plan, RestoreControl, RestoreReport, abort, is_whole, restore_into,
    status,
};
use plinth::backup::{Backup, Gap, Help, LogBuilder, SnapshotSettings, take_snapshot, verify};
use plinth::{Builder, Env, Error, KeyRange, MutationType};
use plinth_env::simulated::Simulation;
use plinth_env::sync::{First, race};
use plinth_types::MutationList;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// A backup with a snapshot in files of some rows each and 40 changes behind it, and what there
/// was.
async fn backed_up(machine: &Env) -> (Backup, Model) {
    let local = open_local(machine, "/db", "memory").await;
    let db = local.database().clone();
    for n in 0..300 {
        set(&db, format!("row/{n:03}").as_bytes(), &[n as u8; 20]).await;
    }
    let saved = rows_of(&db).await;
    let backup = new_backup(machine, &db).await;
    let settings = SnapshotSettings { file_bytes: 500, workers: 2, ..SnapshotSettings::default() };
    let taken = take_snapshot(&backup, &db, &settings).await.unwrap();
    assert!(taken.files > 10, "{taken:?}");
    let (mut log, mut end) = (LogBuilder::new(1), 0);
    for n in 0..40 {
        // Half of them are in no range that is restored.
        let key = format!("{}/{n:03}", if n % 2 == 0 { "row" } else { "other" });
        end = set(&db, key.as_bytes(), b"later").await + 1;
        let mut list = MutationList::new();
        list.push(MutationType::Set, key.as_bytes(), b"later");
        log.push(end - 1, list.iter());
    }
    backup.put_log(log, end).await.unwrap();
    local.close_async().await.unwrap();
    (backup, saved)
}

/// Ranges that begin and end in the middle of files, two of them in the same one.
fn mapping() -> Mapping {
    let range = |begin: &'static str, end: &'static str| KeyRange::new(begin, end);
    let ranges =
        vec![range("row/003", "row/005"), range("row/007", "row/120"), range("row/200", "row/203")];
    Mapping { ranges, ..Mapping::default() }
}

/// What a restore of these ranges has to tell, all of whose changes lie below `row/040`.
fn expected(plan: &Plan, saved: &Model, mutations: u64) -> RestoreReport {
    let inside = |key: &[u8]| plan.ranges.iter().any(|range| range.contains(key));
    let rows: Vec<_> = saved.iter().filter(|(key, _)| inside(key)).collect();
    let bytes = rows.iter().map(|(key, value)| (key.len() + value.len()) as u64).sum();
    RestoreReport { version: plan.version, rows: rows.len() as u64, bytes, mutations }
}

fn done(control: &RestoreControl) -> u64 {
    control.restored.load(Ordering::SeqCst)
}

/// It told the rows of whole files, of which ranges took a part.
#[test]
fn a_restore_tells_the_rows_that_it_brought_in() {
    let simulation = Simulation::new(1);
    let machine = simulation.process("node");
    simulation.run_until(async {
        let (backup, saved) = backed_up(&machine).await;
        for (n, (mapping, mutations)) in
            [(mapping(), 17), (Mapping::default(), 40)].into_iter().enumerate()
        {
            let is_cut = !mapping.ranges.is_empty();
            let plan = plan(&backup, Goal::Newest, mapping).await.unwrap();
            let expected = expected(&plan, &saved, mutations);
            assert_eq!((plan.cuts_files(), plan.rows() > expected.rows), (is_cut, is_cut));
            let whole = plan.row_bytes() + plan.log_bytes();
            let control = RestoreControl::default();
            let builder = Builder::new(format!("/new{n}")).env(machine.clone());
            let mut loader = builder.loader(plan.version).await.unwrap();
            let told = restore_into(&backup, &plan, &control, &mut loader).await.unwrap();
            assert_eq!((told, done(&control)), (expected.clone(), whole));
            let control = RestoreControl::default();
            let to = open(&machine, &format!("/to{n}"), "memory").await;
            let told = serve(&backup, &plan, &control, &to).await.unwrap();
            assert_eq!((told, done(&control)), (expected, whole));
        }
    });
}

#[test]
fn a_restore_that_goes_on_tells_what_earlier_runs_brought_in() {
    let simulation = Simulation::new(2);
    let machine = simulation.process("node");
    simulation.run_until(async {
        let (backup, saved) = backed_up(&machine).await;
        let plan = plan(&backup, Goal::Newest, mapping()).await.unwrap();
        let whole = plan.row_bytes() + plan.log_bytes();
        for part in [1, 3, 5, 8, 10] {
            let to = open(&machine, &format!("/to{part}"), "memory").await;
            let control = RestoreControl::default();
            let is_enough = async {
                while done(&control) < plan.row_bytes() * part / 10 {
                    machine.sleep(Duration::from_micros(50)).await;
                }
            };
            let First::Right(()) = race(serve(&backup, &plan, &control, &to), is_enough).await
            else {
                panic!("{part}: it came to its end");
            };
            let control = RestoreControl::default();
            let told = serve(&backup, &plan, &control, &to).await.unwrap();
            assert_eq!((told, done(&control)), (expected(&plan, &saved, 17), whole), "{part}");
        }
    });
}

/// The newest that can be restored was taken for the newest that there is, and nothing said that a
/// file of the log is missing.
#[test]
fn a_gap_in_the_log_is_told_and_what_lies_before_it_is_not_taken_for_the_newest() {
    let simulation = Simulation::new(6);
    let machine = simulation.process("node");
    simulation.run_until(async {
        let (backup, _) = backed_up(&machine).await;
        let whole = plan(&backup, Goal::Newest, Mapping::default()).await.unwrap();
        assert_eq!((whole.gap, whole.older), (None, None));
        let (from, to) = (whole.version + 1, whole.version + 100);
        for begins in [true, false] {
            let mut log = LogBuilder::new(to + 1).that_begins(begins);
            log.push(to + 1, MutationList::new().iter());
            backup.put_log(log, to + 100).await.unwrap();
            let refused = plan(&backup, Goal::Newest, Mapping::default()).await.unwrap_err();
            assert_eq!(refused, Error::restore_missing_data());
            let words = format!("versions {from} to {to}");
            assert!(refused.detail().is_some_and(|detail| detail.contains(&words)), "{refused}");
            let before =
                plan(&backup, Goal::Version(whole.version), Mapping::default()).await.unwrap();
            let gap = Gap { from, to, is_missing: !begins };
            assert_eq!(before.gap, Some(gap));
            // A stream that began there is no file that is missing.
            let report =
                verify(&backup, &AtomicU64::new(0), &AtomicBool::new(false)).await.unwrap();
            if begins {
                assert_eq!((report.problems, report.gaps), (vec![], vec![gap]));
                let name = backup.contents().await.unwrap().logs.last().unwrap().name.clone();
                backup_target(&machine).delete(&name).await.unwrap();
                continue;
            }
            let [problem] = &report.problems[..] else { panic!("{report:?}") };
            assert_eq!((problem.costs, report.gaps.len()), (Some((from, to + 99)), 0));
            assert!(problem.to_string().contains(&words), "{problem}");
        }
    });
}

/// A snapshot that is damaged costs nothing that an older one reaches, which can be asked for.
#[test]
fn an_older_snapshot_stands_in_for_one_that_is_damaged() {
    let simulation = Simulation::new(7);
    let machine = simulation.process("node");
    simulation.run_until(async {
        let (backup, saved) = backed_up(&machine).await;
        let newest = plan(&backup, Goal::Newest, Mapping::default()).await.unwrap();
        let target = backup_target(&machine);
        let db = open(&machine, "/db", "memory").await;
        let settings = SnapshotSettings::default();
        let second = take_snapshot(&backup, &db, &settings).await.unwrap().version;
        let mut log = LogBuilder::new(newest.version + 1);
        log.push(second, MutationList::new().iter());
        backup.put_log(log, second + 1).await.unwrap();
        let chosen = plan(&backup, Goal::Newest, Mapping::default()).await.unwrap();
        assert_eq!(
            (chosen.snapshot.header.to, chosen.older),
            (second, Some(newest.snapshot.header.to))
        );
        let name = format!("{}00000000.rows", chosen.snapshot.directory);
        let mut bytes = target.get(&name).await.unwrap().to_vec();
        *bytes.last_mut().unwrap() ^= 1;
        target.put(&name, bytes.into()).await.unwrap();
        let report = verify(&backup, &AtomicU64::new(0), &AtomicBool::new(false)).await.unwrap();
        let [problem] = &report.problems[..] else { panic!("{report:?}") };
        assert_eq!((problem.costs, &problem.help), (None, &Some(Help::OlderThan(second))));
        assert_eq!(report.restorable, [(newest.snapshot.header.to, second)]);
        let choice = Choice::Before(second);
        let plan =
            Plan::make_from(&backup, Goal::Newest, Mapping::default(), &choice).await.unwrap();
        assert_eq!(plan.snapshot.directory, newest.snapshot.directory);
        let to = open(&machine, "/to", "memory").await;
        serve(&backup, &plan, &RestoreControl::default(), &to).await.unwrap();
        assert!(rows_of(&to).await.len() >= saved.len());
    });
}

/// Where the only manifest had gone every file was said to be whole, and where a later one had, the
/// older snapshot was restored without a word.
#[test]
fn a_manifest_that_is_gone_is_told() {
    let simulation = Simulation::new(10);
    let machine = simulation.process("node");
    simulation.run_until(async {
        let (backup, _) = backed_up(&machine).await;
        let (target, stop) = (backup_target(&machine), AtomicBool::new(false));
        let first = plan(&backup, Goal::Newest, Mapping::default()).await.unwrap();
        assert_eq!((first.unfinished, first.ends), (None, None));
        let db = open(&machine, "/db", "memory").await;
        set(&db, b"newer", b"").await;
        take_snapshot(&backup, &db, &SnapshotSettings::default()).await.unwrap();
        let second = plan(&backup, Goal::Newest, Mapping::default()).await.unwrap().snapshot;
        assert_ne!(second.directory, first.snapshot.directory);
        target.delete(&second.manifest).await.unwrap();
        let report = verify(&backup, &AtomicU64::new(0), &stop).await.unwrap();
        assert_eq!((report.problems, report.unfinished), (vec![], vec![second.directory]));
        let older = plan(&backup, Goal::Newest, Mapping::default()).await.unwrap();
        assert_eq!(older.version, first.version);
        assert!(older.unfinished.is_some_and(|begun| begun > older.version), "{older:?}");
        // Nothing is noted of so late a time.
        let at = plan(&backup, Goal::Time(u64::MAX), Mapping::default()).await.unwrap();
        assert!(at.ends.is_some() && at.unfinished.is_some(), "{at:?}");
        target.delete(&first.snapshot.manifest).await.unwrap();
        let report = verify(&backup, &AtomicU64::new(0), &stop).await.unwrap();
        let [problem] = &report.problems[..] else { panic!("{report:?}") };
        assert!(problem.to_string().starts_with("nothing can be restored"), "{problem}");
    });
}

/// A damaged file of the log whose versions others have costs nothing, once it is gone.
#[test]
fn a_damaged_file_of_the_log_that_others_stand_in_for_can_be_removed() {
    let simulation = Simulation::new(8);
    let machine = simulation.process("node");
    simulation.run_until(async {
        let (backup, _) = backed_up(&machine).await;
        let logs = backup.contents().await.unwrap().logs;
        let (from, to) = (logs[0].from, logs[0].to);
        let mut again = LogBuilder::new(from);
        again.push(from, MutationList::new().iter());
        backup.put_log(again, to).await.unwrap();
        let target = backup_target(&machine);
        let mut bytes = target.get(&logs[0].name).await.unwrap().to_vec();
        *bytes.last_mut().unwrap() ^= 1;
        target.put(&logs[0].name, bytes.into()).await.unwrap();
        let report = verify(&backup, &AtomicU64::new(0), &AtomicBool::new(false)).await.unwrap();
        let [problem] = &report.problems[..] else { panic!("{report:?}") };
        assert_eq!((problem.costs, &problem.help), (None, &Some(Help::Remove)));
    });
}

/// Whoever waits for a restore that is given up is not told that it is whole.
#[test]
fn how_a_restore_ended_is_known_behind_its_end() {
    let simulation = Simulation::new(9);
    let machine = simulation.process("node");
    simulation.run_until(async {
        let (backup, _) = backed_up(&machine).await;
        let plan = plan(&backup, Goal::Newest, mapping()).await.unwrap();
        let to = open(&machine, "/to", "memory").await;
        let control = RestoreControl::default();
        for gives_up in [true, false] {
            control.stop.store(true, Ordering::SeqCst);
            serve(&backup, &plan, &control, &to).await.unwrap_err();
            let found = status(&to).await.unwrap().unwrap();
            assert!(found.version == plan.version && found.ranges.contains("row/003"), "{found:?}");
            assert_ne!(is_whole(&to, &found.id).await, Ok(Some(true)));
            if gives_up {
                abort(&to).await.unwrap();
            } else {
                serve(&backup, &plan, &RestoreControl::default(), &to).await.unwrap();
            }
            assert_eq!(is_whole(&to, &found.id).await, Ok(Some(!gives_up)));
            assert_eq!(is_whole(&to, "another").await, Ok(None));
        }
    });
}
