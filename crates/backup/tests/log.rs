//! A snapshot and the log behind it are the database at every version that they reach: commits are
//! written down as they happen, the log is cut into files anywhere, some of them overlapping, and
//! restores to drawn versions are compared with what was there then.
//!
//! The log is written by hand here; what a stream of changes brings is another test's matter.

mod common;

use common::*;
use plinth::backup::restore::{Goal, Mapping, Plan, RestoreControl, restore_into};
use plinth::backup::target::Doing;
use plinth::backup::{
    Backup, Key, LogBuilder, Moment, Object, SnapshotSettings, everything, expire, show_time,
    take_snapshot, verify,
};
use plinth::{Builder, Database, Env, Error, KeyRange, MutationType, Version};
use plinth_env::simulated::Simulation;
use plinth_types::{Bytes, MutationList, atomic};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A commit that happened: its version, what it did, and the rows behind it.
type Commit = (Version, MutationList, Model);

/// Commits of every kind of mutation, and what was there after each.
async fn commits(
    db: &Database,
    model: &mut Model,
    random: &mut Random,
    count: usize,
) -> Vec<Commit> {
    use MutationType::*;
    let mut commits = Vec::new();
    for _ in 0..count {
        let (tr, mut list) = (db.create_transaction(), MutationList::new());
        for _ in 0..=random.index(5) {
            let key = format!("key{:02}", random.index(40));
            if random.index(4) == 0 {
                let end = format!("key{:02}", random.index(41));
                if key < end {
                    list.push(ClearRange, key.as_bytes(), end.as_bytes());
                    tr.clear_range(&key, &end);
                    model.retain(|row, _| {
                        !(key.as_bytes() <= &row[..] && &row[..] < end.as_bytes())
                    });
                }
                continue;
            }
            let kinds = [Set, Set, Add, ByteMax, AppendIfFits, MinV2, BitAndV2, CompareAndClear];
            let kind = kinds[random.index(kinds.len())];
            let operand = vec![random.index(200) as u8; 1 + random.index(9)];
            list.push(kind, key.as_bytes(), &operand);
            let key = Bytes::from(key);
            if kind == Set {
                tr.set(&key, &operand);
                model.insert(key, operand.into());
                continue;
            }
            tr.atomic_op(&key, &operand, kind);
            match atomic::apply(kind, model.get(&key).map(|value| &value[..]), &operand) {
                Some(value) => drop(model.insert(key, Bytes::copy_from_slice(&value))),
                None => drop(model.remove(&key)),
            }
        }
        tr.set("one more", [random.index(256) as u8]);
        let value = tr.get("one more").await.unwrap().unwrap();
        list.push(Set, b"one more", &value);
        model.insert(Bytes::from_static(b"one more"), value);
        tr.commit().await.unwrap();
        commits.push((tr.committed_version().unwrap(), list, model.clone()));
    }
    commits
}

/// Puts the log of these commits, cut anywhere into files, which overlap now and then.
async fn put_cut_anywhere(backup: &Backup, history: &[Commit], random: &mut Random) {
    let mut begin = 0;
    let mut from = 1;
    while begin < history.len() {
        let end = (begin + 1 + random.index(9)).min(history.len());
        let mut log = LogBuilder::new(from);
        for (version, list, _) in &history[begin..end] {
            log.push(*version, list.iter());
        }
        let to = history[end - 1].0 + 1;
        backup.put_log(log, to).await.unwrap();
        let is_again = random.index(3) == 0 && end < history.len();
        (begin, from) = if is_again { (end - 1, history[end - 1].0) } else { (end, to) };
    }
}

/// Puts the log of these commits from this version on, ten of them to a file.
async fn put_in_files_of_ten(backup: &Backup, history: &[Commit], mut from: Version) {
    for part in history.chunks(10) {
        let mut log = LogBuilder::new(from);
        part.iter().for_each(|(version, list, _)| log.push(*version, list.iter()));
        from = part.last().unwrap().0 + 1;
        backup.put_log(log, from).await.unwrap();
    }
}

/// Restores a version into a running database, under a prefix, and gives what is there then,
/// without it.
async fn moved_into(db: &Database, backup: &Backup, at: Version) -> Model {
    let mapping = Mapping { add_prefix: "p/".into(), ..Mapping::default() };
    let plan = plan(backup, Goal::Version(at), mapping).await.unwrap();
    serve(backup, &plan, &RestoreControl::default(), db).await.unwrap();
    let rows = rows_of(db).await;
    let moved = rows.range(Bytes::from_static(b"p/")..Bytes::from_static(b"p0"));
    moved.map(|(key, value)| (key.slice(2..), value.clone())).collect()
}

#[test]
fn every_version_can_be_restored() {
    for seed in 0..5 {
        let simulation = Simulation::new(seed);
        let machine = simulation.process("node");
        simulation.run_until(async {
            let db = open(&machine, "/db", "memory").await;
            let (mut model, mut random) = (Model::default(), Random::new(seed));
            let mut history = commits(&db, &mut model, &mut random, 15).await;
            let backup = new_backup(&machine, &db).await;
            let settings = SnapshotSettings { file_bytes: 300, ..SnapshotSettings::default() };
            let snapshot = take_snapshot(&backup, &db, &settings).await.unwrap();
            history.extend(commits(&db, &mut model, &mut random, 40).await);
            // The log begins before the snapshot.
            put_cut_anywhere(&backup, &history, &mut random).await;
            let reach = backup.contents().await.unwrap().restorable();
            let newest = history.last().unwrap().0;
            assert_eq!(reach, [(snapshot.version, newest)], "seed {seed}");
            for round in 0..5 {
                let at = match round {
                    0 => snapshot.version,
                    1 => newest,
                    _ => {
                        snapshot.version
                            + random.below((newest - snapshot.version) as u64 + 1) as Version
                    }
                };
                let expected = history.iter().rev().find(|(version, ..)| *version <= at);
                let expected = expected.map(|(.., rows)| rows.clone()).unwrap();
                let (what, dir) = (format!("seed {seed}, version {at}"), format!("/new{round}"));
                let restored = restore_dir(
                    &machine,
                    &backup,
                    Goal::Version(at),
                    Mapping::default(),
                    &dir,
                    "memory",
                );
                restored.await.unwrap();
                let new = open(&machine, &dir, "memory").await;
                assert!(rows_of(&new).await == expected, "{what}");
                assert!(set(&new, b"x", b"").await > at, "{what}");
                // Into a running one too, under another name.
                if round < 2 {
                    assert!(moved_into(&new, &backup, at).await == expected, "{what}");
                }
            }
            let beyond = plan(&backup, Goal::Version(newest + 1), Mapping::default()).await;
            assert_eq!(beyond.map(drop), Err(Error::restore_invalid_version()));
            // A part of the keys.
            let range = KeyRange::new("key10", "key30");
            let mapping = Mapping { ranges: vec![range.clone()], ..Mapping::default() };
            restore_dir(&machine, &backup, Goal::Newest, mapping, "/part", "memory").await.unwrap();
            let mut expected = model.clone();
            expected.retain(|key, _| range.contains(key));
            let part = rows_of(&open(&machine, "/part", "memory").await).await;
            assert!(part == expected, "seed {seed}");
        });
    }
}

/// The target, which notes the names of files that are read whole.
fn noting(machine: &Env) -> (Hooked, Arc<Mutex<Vec<String>>>) {
    let read = Arc::new(Mutex::new(Vec::new()));
    let noted = read.clone();
    let hook: Hook = Box::new(move |call, name| {
        if call == "get" {
            noted.lock().unwrap().push(name.to_owned());
        }
        Box::pin(async { Ok(()) })
    });
    (Hooked { inner: backup_target(machine), hook, creates_always: false }, read)
}

/// Asserts that the files that were read are those that the plan speaks of.
fn check_read(mut names: Vec<String>, sizes: &[Object], plan: &Plan, what: &str) {
    assert_eq!(names.len(), plan.file_count(), "{what}: {names:?}");
    names.sort();
    names.dedup();
    assert_eq!(names.len(), plan.file_count(), "{what}: one twice");
    let len = |name: &String| sizes.iter().find(|object| object.name == *name).unwrap().len;
    assert_eq!(names.iter().map(len).sum::<u64>(), plan.stored_bytes(), "{what}");
    let logs = names.iter().filter(|name| name.starts_with("logs/"));
    assert_eq!(logs.map(len).sum::<u64>(), plan.log_bytes(), "{what}");
}

/// What a plan says of itself, and a dry run of that, is what a restore reads: these files, of that
/// many bytes, once each.
#[test]
fn what_a_plan_tells_is_what_is_read() {
    let simulation = Simulation::new(7);
    let machine = simulation.process("node");
    simulation.run_until(async {
        let db = open(&machine, "/db", "memory").await;
        let (mut model, mut random) = (Model::default(), Random::new(7));
        commits(&db, &mut model, &mut random, 30).await;
        let backup = new_backup(&machine, &db).await;
        let settings = SnapshotSettings { file_bytes: 60, ..SnapshotSettings::default() };
        let first = take_snapshot(&backup, &db, &settings).await.unwrap().version;
        let history = commits(&db, &mut model, &mut random, 40).await;
        put_in_files_of_ten(&backup, &history, first + 1).await;
        let (target, read) = noting(&machine);
        let watched = Backup::open(&machine, Arc::new(target), None).await.unwrap();
        let sizes = backup_target(&machine).list("").await.unwrap();
        let part = Mapping { ranges: vec![KeyRange::new("key10", "key20")], ..Mapping::default() };
        let mut counts = Vec::new();
        for (n, (goal, mapping)) in [
            (Goal::Newest, Mapping::default()),
            (Goal::Version(history[14].0), Mapping::default()),
            (Goal::Version(first), Mapping::default()),
            (Goal::Newest, part),
        ]
        .into_iter()
        .enumerate()
        {
            let plan = plan(&watched, goal, mapping).await.unwrap();
            counts.push((plan.file_count(), plan.log_bytes() > 0));
            for into in ["a directory", "a running database"] {
                let what = format!("{goal:?} into {into}");
                let dir = format!("/{into}{n}");
                let control = RestoreControl::default();
                read.lock().unwrap().clear();
                let report = if into == "a directory" {
                    let mut loader =
                        Builder::new(&dir).env(machine.clone()).loader(plan.version).await.unwrap();
                    restore_into(&watched, &plan, &control, &mut loader).await.unwrap()
                } else {
                    let to = open(&machine, &dir, "memory").await;
                    serve(&watched, &plan, &control, &to).await.unwrap()
                };
                check_read(std::mem::take(&mut *read.lock().unwrap()), &sizes, &plan, &what);
                assert_eq!(report.version, plan.version, "{what}");
                assert_eq!(plan.cuts_files(), plan.ranges != everything(), "{what}");
                if !plan.cuts_files() {
                    assert_eq!(
                        (report.rows, report.bytes),
                        (plan.rows(), plan.row_bytes()),
                        "{what}"
                    );
                }
            }
        }
        let [all, middle, snapshot, part] = counts[..] else { panic!("{counts:?}") };
        assert_eq!(
            (all.0 - middle.0, middle.0 - snapshot.0, snapshot.1),
            (2, 2, false),
            "{counts:?}"
        );
        assert!(part.0 < all.0, "{counts:?}");
    });
}

/// Files without a moment stood for early ones, so that a time was searched for in the wrong ones,
/// and the snapshot was restored; and a clock that was behind another one's ended the merging of
/// files.
#[test]
fn a_time_is_found_among_files_of_which_few_have_a_moment() {
    let simulation = Simulation::new(2);
    let machine = simulation.process("node");
    simulation.run_until(async {
        let db = open(&machine, "/db", "memory").await;
        set(&db, b"a", b"0").await;
        let backup = new_backup(&machine, &db).await;
        let begin =
            take_snapshot(&backup, &db, &SnapshotSettings::default()).await.unwrap().version;
        let (mut from, mut wanted) = (begin + 1, 0);
        for n in 1..=60_u8 {
            machine.sleep(Duration::from_millis(500)).await;
            let version = set(&db, b"a", &[n]).await;
            let mut log = LogBuilder::new(from);
            let mut list = MutationList::new();
            list.push(MutationType::Set, b"a", &[n]);
            log.push(version, list.iter());
            let time = machine.wall_clock().as_millis() as u64;
            if [1, 50].contains(&n) {
                log.moment(Moment { time, version });
                // Another clock's, a second behind.
                log.moment(Moment { time: time - 1000, version });
            }
            if n == 30 {
                wanted = time;
            }
            backup.put_log(log, version + 1).await.unwrap();
            from = version + 1;
        }
        restore_dir(&machine, &backup, Goal::Time(wanted), Mapping::default(), "/at", "memory")
            .await
            .unwrap();
        let rows = rows_of(&open(&machine, "/at", "memory").await).await;
        assert_eq!(rows[&b"a"[..]], [1][..], "the last moment before that is in the first file");
    });
}

/// What a file's own header says of its first version is the time of its first moment, which may be
/// much later.
#[test]
fn damage_in_the_log_is_told_with_the_times_around_it() {
    let simulation = Simulation::new(3);
    let machine = simulation.process("node");
    simulation.run_until(async {
        let db = open(&machine, "/db", "memory").await;
        set(&db, b"a", b"0").await;
        let backup = new_backup(&machine, &db).await;
        let begin =
            take_snapshot(&backup, &db, &SnapshotSettings::default()).await.unwrap().version;
        let mut files = Vec::new();
        let mut from = begin + 1;
        for n in 1..=5_u8 {
            machine.sleep(Duration::from_secs(1)).await;
            let version = set(&db, b"a", &[n]).await;
            let (mut log, mut list) = (LogBuilder::new(from), MutationList::new());
            list.push(MutationType::Set, b"a", &[n]);
            log.push(version, list.iter());
            let time = machine.wall_clock().as_millis() as u64;
            log.moment(Moment { time, version });
            backup.put_log(log, version + 1).await.unwrap();
            files.push(((from, version), time));
            from = version + 1;
        }
        let (target, logs) = (backup_target(&machine), backup.contents().await.unwrap().logs);
        for (damaged, last) in [(2, false), (4, true)] {
            let kept = target.get(&logs[damaged].name).await.unwrap();
            let mut bytes = kept.to_vec();
            *bytes.last_mut().unwrap() ^= 1;
            target.put(&logs[damaged].name, bytes.into()).await.unwrap();
            let report =
                verify(&backup, &AtomicU64::new(0), &AtomicBool::new(false)).await.unwrap();
            let [problem] = &report.problems[..] else { panic!("{report:?}") };
            let (versions, _) = files[damaged];
            assert_eq!(problem.costs, Some(versions));
            let behind = (!last).then(|| files[damaged + 1].1);
            assert_eq!(report.times(versions), (Some(files[damaged - 1].1), behind));
            target.put(&logs[damaged].name, kept).await.unwrap();
        }
    });
}

/// A backup of six commits, a file of the log each, with a snapshot before them and one in the
/// middle.
async fn with_two_snapshots(machine: &Env, key: Option<Key>) -> Backup {
    let db = open(machine, "/db", "memory").await;
    set(&db, b"a", b"0").await;
    let (target, id) = (backup_target(machine), db.endpoint().describe().cluster_id);
    let backup = Backup::open_or_create(machine, target, key, &id, &everything()).await;
    let (backup, settings) = (backup.unwrap(), SnapshotSettings::default());
    let mut from = take_snapshot(&backup, &db, &settings).await.unwrap().version + 1;
    for n in 1..=6_u8 {
        let version = set(&db, b"a", &[n]).await;
        let (mut log, mut list) = (LogBuilder::new(from), MutationList::new());
        list.push(MutationType::Set, b"a", &[n]);
        log.push(version, list.iter());
        backup.put_log(log, version + 1).await.unwrap();
        from = version + 1;
        if n == 3 {
            take_snapshot(&backup, &db, &settings).await.unwrap();
        }
    }
    backup
}

/// The backup as somebody without its key sees it, with something that happens once before an
/// object whose name begins so is asked for by a call.
async fn with_hook(
    machine: &Env,
    (call, name): (&'static str, String),
    happens: impl Fn() -> Doing<'static, ()> + Send + Sync + 'static,
) -> Backup {
    let done = AtomicBool::new(false);
    let hook: Hook = Box::new(move |called, of| {
        let is_it = called == call && of.starts_with(&name);
        match is_it && !done.swap(true, Ordering::SeqCst) {
            true => happens(),
            false => Box::pin(async { Ok(()) }),
        }
    });
    let target = Arc::new(Hooked { inner: backup_target(machine), hook, creates_always: false });
    Backup::open(machine, target, None).await.unwrap()
}

/// What was expired while a backup was verified was told to be missing; without the key a snapshot
/// that had gone was told to be restorable.
#[test]
fn what_is_expired_meanwhile_is_not_missing() {
    // When the first file of the log is read, or the first of a snapshot.
    for (call, first, is_sealed) in
        [("get", "logs/", false), ("get", "snapshots/", false), ("list", "snapshots/0", true)]
    {
        let simulation = Simulation::new(6);
        let machine = simulation.process("node");
        simulation.run_until(async {
            let key = is_sealed.then(|| Key::of_file(&[7; 32]).unwrap());
            let backup = with_two_snapshots(&machine, key).await;
            let expiring = backup.clone();
            let happens = move || -> Doing<'static, ()> {
                let backup = expiring.clone();
                Box::pin(async move {
                    let expired = expire(&backup, Goal::Newest).await?;
                    assert!(expired.snapshots == 1 && expired.logs > 1, "{expired:?}");
                    Ok(())
                })
            };
            let seen = with_hook(&machine, (call, first.to_owned()), happens).await;
            let (read, stop) = (AtomicU64::new(0), AtomicBool::new(false));
            let report = verify(&seen, &read, &stop).await.unwrap();
            assert_eq!(report.problems, [], "{call} {first}");
            assert_eq!(report.restorable, backup.contents().await.unwrap().restorable());
        });
    }
}

/// Nothing was expired that a snapshot needs which is there, nor the last snapshot.
#[test]
fn what_is_lost_meanwhile_is_missing() {
    for is_snapshot in [false, true] {
        let simulation = Simulation::new(7);
        let machine = simulation.process("node");
        simulation.run_until(async {
            let backup = with_two_snapshots(&machine, None).await;
            let contents = backup.contents().await.unwrap();
            let lost = match is_snapshot {
                true => contents.snapshots[1].manifest.clone(),
                // The first snapshot needs it, and the second doesn't.
                false => contents.logs[1].name.clone(),
            };
            let (target, name) = (backup_target(&machine), lost.clone());
            let happens = move || -> Doing<'static, ()> {
                let (target, name) = (target.clone(), name.clone());
                Box::pin(async move { target.delete(&name).await })
            };
            let seen = with_hook(&machine, ("get", lost.clone()), happens).await;
            let (read, stop) = (AtomicU64::new(0), AtomicBool::new(false));
            let problems = verify(&seen, &read, &stop).await.unwrap().problems;
            let [problem] = &problems[..] else { panic!("{problems:?}") };
            assert_eq!(problem.error, Error::file_not_found(), "{lost}");
        });
    }
}

/// Restores to a time, and expiring before one, refused wherever a file of the log was damaged.
#[test]
fn a_time_is_found_beside_damage_of_other_times() {
    let simulation = Simulation::new(4);
    let machine = simulation.process("node");
    simulation.run_until(async {
        let db = open(&machine, "/db", "memory").await;
        set(&db, b"a", b"0").await;
        let backup = new_backup(&machine, &db).await;
        let snapshot = SnapshotSettings::default();
        let begin = take_snapshot(&backup, &db, &snapshot).await.unwrap().version;
        let (mut files, mut from) = (Vec::new(), begin + 1);
        for n in 1..=8_u8 {
            machine.sleep(Duration::from_secs(1)).await;
            let version = set(&db, b"a", &[n]).await;
            let (mut log, mut list) = (LogBuilder::new(from), MutationList::new());
            list.push(MutationType::Set, b"a", &[n]);
            log.push(version, list.iter());
            let time = machine.wall_clock().as_millis() as u64;
            log.moment(Moment { time, version });
            backup.put_log(log, version + 1).await.unwrap();
            files.push((version, time));
            from = version + 1;
        }
        let (target, logs) = (backup_target(&machine), backup.contents().await.unwrap().logs);
        let at = async |time: u64| plan(&backup, Goal::Time(time), Mapping::default()).await;
        // The begin of a file, which has its times, or only its end; of the last one, too.
        for (damaged, is_header) in [(5, true), (5, false), (7, true)] {
            let kept = target.get(&logs[damaged].name).await.unwrap();
            let mut bytes = kept.to_vec();
            let place = if is_header { 20 } else { bytes.len() - 1 };
            bytes[place] ^= 1;
            target.put(&logs[damaged].name, bytes.into()).await.unwrap();
            for (n, (version, time)) in files.iter().enumerate() {
                let found = at(*time).await.map(|plan| plan.version);
                // Where the times are gone, the damaged file may have the one of the file before.
                let is_hidden = n == damaged || (is_header && n + 1 == damaged);
                let expected = if is_hidden { Err(Error::file_corrupt()) } else { Ok(*version) };
                assert_eq!(found, expected, "{n}, damaged: {damaged}, {is_header}");
            }
            assert_eq!(expire(&backup, Goal::Time(files[2].1)).await.map(|gone| gone.logs), Ok(0));
            // What another file has is told by that one, also where it begins earlier, as what the
            // files were merged into: the one before was found, and it was not looked at.
            for first in [damaged, 0] {
                let mut log = LogBuilder::new(logs[first].from);
                for (n, (version, time)) in files.iter().enumerate().take(damaged + 1).skip(first) {
                    let mut list = MutationList::new();
                    list.push(MutationType::Set, b"a", &[n as u8 + 1]);
                    log.push(*version, list.iter());
                    log.moment(Moment { time: *time, version: *version });
                }
                let (version, time) = files[damaged];
                backup.put_log(log, version + 1).await.unwrap();
                let found = at(time).await.map(|plan| plan.version);
                assert_eq!(found, Ok(version), "{damaged}, from {first}");
                let listed = backup.contents().await.unwrap().logs;
                let other = listed.iter().find(|file| !logs.contains(file)).unwrap();
                target.delete(&other.name).await.unwrap();
            }
            target.put(&logs[damaged].name, kept).await.unwrap();
        }
    });
}

#[test]
fn a_gap_ends_what_can_be_restored_and_moments_say_when() {
    let simulation = Simulation::new(1);
    let machine = simulation.process("node");
    simulation.run_until(async {
        let db = open(&machine, "/db", "memory").await;
        set(&db, b"a", b"0").await;
        let backup = new_backup(&machine, &db).await;
        let begin =
            take_snapshot(&backup, &db, &SnapshotSettings::default()).await.unwrap().version;
        let millis = || machine.wall_clock().as_millis() as u64;
        let mut from = begin + 1;
        let mut times = Vec::new();
        for n in 1..=8_u8 {
            machine.sleep(Duration::from_secs(1)).await;
            let version = set(&db, b"a", &[n]).await;
            let mut log = LogBuilder::new(from);
            let mut list = MutationList::new();
            list.push(MutationType::Set, b"a", &[n]);
            log.push(version, list.iter());
            log.moment(Moment { time: millis(), version });
            times.push((millis(), n));
            // The fifth is lost.
            if n != 5 {
                backup.put_log(log, version + 1).await.unwrap();
            }
            from = version + 1;
        }
        let contents = backup.contents().await.unwrap();
        let reach = contents.restorable();
        assert_eq!(reach.len(), 1);
        let noted = times.clone();
        for (time, n) in times {
            for (later, expected) in [(0, n), (900, n), (0, n)] {
                let found = plan(&backup, Goal::Time(time + later), Mapping::default()).await;
                if expected >= 6 {
                    assert_eq!(found.map(drop), Err(Error::restore_invalid_version()), "{n}");
                    continue;
                }
                let dir = format!("/at{n}-{later}");
                if machine.files().exists(&dir).await.unwrap() {
                    continue;
                }
                // Of the fifth there is no moment, so the fourth is the last that is known.
                let expected = expected.min(4);
                let goal = Goal::Time(time + later);
                restore_dir(&machine, &backup, goal, Mapping::default(), &dir, "memory")
                    .await
                    .unwrap();
                let rows = rows_of(&open(&machine, &dir, "memory").await).await;
                assert_eq!(rows[&b"a"[..]], [expected][..], "{n}");
            }
        }
        // A snapshot behind the gap begins another stretch.
        take_snapshot(&backup, &db, &SnapshotSettings::default()).await.unwrap();
        assert_eq!(backup.contents().await.unwrap().restorable().len(), 2);
        let early = plan(&backup, Goal::Time(5), Mapping::default()).await.map(drop).unwrap_err();
        assert_eq!(early, Error::restore_invalid_version());
        // Who asks for a time is told times.
        let (from, to) = reach[0];
        let first = show_time(backup.contents().await.unwrap().snapshots[0].header.time_to);
        let told = format!("versions {from} to {to} ({first} to {}), and ", show_time(noted[3].0));
        let asked = format!("{}, which is before its first snapshot", show_time(5));
        assert!(early.to_string().contains(&told), "{early}");
        assert!(early.to_string().contains(&asked), "{early}");
        let lost = plan(&backup, Goal::Time(noted[5].0), Mapping::default()).await.map(drop);
        let lost = lost.unwrap_err().to_string();
        assert!(lost.contains(&told) && lost.contains("the last one noted at or before"), "{lost}");
    });
}
