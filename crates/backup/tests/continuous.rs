//! Continuous backups of a database that is written all the while: every version that a backup says
//! it reaches can be restored, and is what the model had then, whatever happened to the agent and
//! to the database's machine on the way.
//!
//! The last test is of the others: mistakes are made on purpose, and have to be noticed.

#[path = "continuous/behind.rs"]
mod behind;
mod common;
#[path = "continuous/damaged.rs"]
mod damaged;
#[path = "continuous/tenants.rs"]
mod tenants;

use common::*;
use plinth::backup::agent::{self, State, Wish};
use plinth::backup::restore::{Goal, Mapping, Plan, RestoreControl, restore_into};
use plinth::backup::{Agent, Backup, SnapshotSettings, everything, expire, take_snapshot, verify};
use plinth::{Builder, Database, EngineKind, Env, Error, Version};
use plinth_env::simulated::Simulation;
use plinth_types::system::{SERIES_END, SERIES_PREFIX};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// What was there after each commit.
type History = Vec<(Version, Model)>;

/// Commits for a while, one each few milliseconds.
async fn write_for(db: &Database, history: &mut History, random: &mut Random, commits: usize) {
    let mut model = history.last().map(|(_, rows)| rows.clone()).unwrap_or_default();
    for _ in 0..commits {
        write_some(db, &mut model, random, 1).await;
        // The version of what was committed last: nobody else writes keys.
        let version = set(db, b"last", &history.len().to_be_bytes()).await;
        model.insert("last".into(), history.len().to_be_bytes().to_vec().into());
        history.push((version, model.clone()));
        db.endpoint().env().sleep(Duration::from_millis(20 + random.below(100))).await;
    }
}

async fn status(db: &Database) -> agent::TagStatus {
    agent::tags(db).await.unwrap().remove(0)
}

async fn until(db: &Database, what: &str, is_so: impl Fn(&agent::TagStatus) -> bool) {
    for _ in 0..200 {
        if is_so(&status(db).await) {
            return;
        }
        db.endpoint().env().sleep(Duration::from_millis(500)).await;
    }
    panic!("never {what}: {:?}", status(db).await);
}

/// Restores to drawn versions and compares.
async fn compare(machine: &Env, history: &History, random: &mut Random, name: &str, rounds: u64) {
    let backup = Backup::open(machine, backup_target(machine), None).await.unwrap();
    let reach = backup.contents().await.unwrap().restorable();
    assert!(!reach.is_empty(), "{name}");
    for round in 0..rounds {
        let (from, to) = reach[random.index(reach.len())];
        let at = match round {
            0 => to,
            1 => from,
            _ => from + random.below((to - from) as u64 + 1) as Version,
        };
        let dir = format!("/restored-{name}-{round}");
        restore_dir(machine, &backup, Goal::Version(at), Mapping::default(), &dir, "memory")
            .await
            .unwrap();
        let rows = rows_of(&open(machine, &dir, "memory").await).await;
        // Between the two commits of a step the model has the one before, but for what the first
        // did.
        let stamp = rows
            .get(&b"last"[..])
            .map(|value| usize::from_be_bytes((&value[..]).try_into().unwrap()));
        let before = history.iter().rposition(|(version, _)| *version <= at);
        assert_eq!(stamp, before, "{name}: version {at} of {from} to {to}");
        if let Some(before) = before.filter(|before| history[*before].0 == at) {
            assert!(rows == history[before].1, "{name}: version {at}");
        }
        let exact = before.map_or(at, |before| history[before].0);
        if exact >= from {
            let dir = format!("/exact-{name}-{round}");
            restore_dir(machine, &backup, Goal::Version(exact), Mapping::default(), &dir, "memory")
                .await
                .unwrap();
            let rows = rows_of(&open(machine, &dir, "memory").await).await;
            let expected = before.map(|before| history[before].1.clone()).unwrap_or_default();
            assert!(rows == expected, "{name}: version {exact} of {from} to {to}");
        }
    }
}

fn wish() -> Wish {
    Wish { snapshot_interval: Duration::from_secs(20), ..Wish::new("/backup") }
}

/// A database whose backup takes one snapshot and follows the log from there on, and the agent that
/// does it.
async fn begun(machine: &Env) -> (Database, Agent) {
    let db = open(machine, "/db", "memory").await;
    let runs = Agent::start(machine, &db);
    let wish = Wish { snapshot_interval: Duration::from_secs(100_000), ..wish() };
    agent::start(&db, "default", &wish).await.unwrap();
    (db, runs)
}

/// Where nothing was mounted for a while, whatever was put there meanwhile, the backup is again.
async fn mount_again(machine: &Env) {
    let files = machine.files();
    if files.exists("/backup").await.unwrap() {
        files.remove_dir_all("/backup").await.unwrap();
    }
    files.rename("/mounted", "/backup").await.unwrap();
}

#[test]
fn a_backup_runs_and_ends_with_everything_in_it() {
    let simulation = Simulation::new(1);
    let machine = simulation.process("node");
    simulation.run_until(async {
        let (db, mut random) = (open(&machine, "/db", "memory").await, Random::new(1));
        let mut history = History::new();
        write_for(&db, &mut history, &mut random, 30).await;
        let runs = Agent::start(&machine, &db);
        agent::start(&db, "default", &wish()).await.unwrap();
        assert_eq!(agent::start(&db, "default", &wish()).await, Err(Error::backup_duplicate()));
        write_for(&db, &mut history, &mut random, 30).await;
        until(&db, "restorable", |tag| tag.is_restorable).await;
        write_for(&db, &mut history, &mut random, 120).await;
        assert!(status(&db).await.behind_seconds < 3.0, "{:?}", status(&db).await);
        // What servers show of it, once the agent has looked again.
        machine.sleep(Duration::from_secs(5)).await;
        let (shown, measured) = (runs.layer()(), runs.metrics()());
        let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
        for field in [
            "current_container",
            "current_status",
            "last_restorable_seconds_behind",
            "last_restorable_version",
            "mutation_log_bytes_written",
            "range_bytes_written",
            "running_backup",
            "running_backup_is_restorable",
        ] {
            assert!(!shown["tags"]["default"][field].is_null(), "{field}: {shown:#}");
        }
        for name in ["behind_seconds", "behind_versions", "broken_total", "failing", "restorable"] {
            let line = format!("\nplinth_backup_{name}{{tag=\"default\"}} ");
            assert!(measured.contains(&line), "{name}: {measured}");
        }
        // Paused, it falls behind, and nothing is lost.
        agent::change(&db, "default", State::Paused).await.unwrap();
        write_for(&db, &mut history, &mut random, 60).await;
        agent::change(&db, "default", State::Running).await.unwrap();
        until(&db, "two snapshots", |tag| tag.snapshots >= 2).await;
        write_for(&db, &mut history, &mut random, 20).await;
        agent::change(&db, "default", State::Discontinuing).await.unwrap();
        until(&db, "ended", |tag| tag.ended.is_some()).await;
        assert_eq!(status(&db).await.ended.as_deref(), Some("completed"));
        assert!(db.list_changes().await.unwrap().is_empty(), "no stream is left");
        assert_eq!(agent::change(&db, "default", State::Paused).await, Err(Error::backup_error()));
        let backup = Backup::open(&machine, backup_target(&machine), None).await.unwrap();
        let reach = backup.contents().await.unwrap().restorable();
        assert_eq!(reach.len(), 1);
        assert!(reach[0].1 >= history.last().unwrap().0, "the last commit is in it");
        compare(&machine, &history, &mut random, "whole", 4).await;
        // What is old goes, and what is left can be restored.
        let middle = reach[0].0.midpoint(reach[0].1);
        expire(&backup, Goal::Version(middle)).await.unwrap();
        let left = backup.contents().await.unwrap().restorable();
        assert!(left[0].0 <= middle && left[0].1 == reach[0].1, "{left:?}, {reach:?}, {middle}");
        compare(&machine, &history, &mut random, "expired", 3).await;
        expire(&backup, Goal::Newest).await.unwrap();
        let contents = backup.contents().await.unwrap();
        assert_eq!((contents.snapshots.len(), contents.restorable()[0].1), (1, reach[0].1));
        compare(&machine, &history, &mut random, "newest", 2).await;
        runs.stop().await.unwrap();
    });
}

/// Nobody could tell: the log of a backup that goes on ends somewhere, too.
#[test]
fn newest_files_of_an_ended_log_that_are_gone_are_missed() {
    let simulation = Simulation::new(3);
    let machine = simulation.process("node");
    simulation.run_until(async {
        let (db, runs) = begun(&machine).await;
        let (mut history, mut random) = (History::new(), Random::new(3));
        until(&db, "restorable", |tag| tag.is_restorable).await;
        write_for(&db, &mut history, &mut random, 40).await;
        agent::change(&db, "default", State::Discontinuing).await.unwrap();
        until(&db, "ended", |tag| tag.ended.is_some()).await;
        runs.stop().await.unwrap();

        let backup = Backup::open(&machine, backup_target(&machine), None).await.unwrap();
        let (read, stop) = (AtomicU64::new(0), AtomicBool::new(false));
        assert_eq!(verify(&backup, &read, &stop).await.unwrap().problems, []);
        let whole = backup.contents().await.unwrap();
        let end = whole.restorable()[0].1;
        assert!(end >= history.last().unwrap().0 && whole.ends == [end], "{:?}", whole.ends);
        let newest = |goal| Plan::make(&backup, goal, Mapping::default());
        assert_eq!(newest(Goal::Newest).await.unwrap().version, end);

        let last = whole.logs.last().unwrap();
        machine.files().remove(format!("/backup/{}", last.name)).await.unwrap();
        let report = verify(&backup, &read, &stop).await.unwrap();
        let costs: Vec<_> = report.problems.iter().map(|problem| problem.costs).collect();
        assert_eq!(costs, [Some((last.from, end))], "{:?}", report.problems);
        let refused = newest(Goal::Newest).await.unwrap_err();
        assert_eq!(refused, Error::restore_missing_data());
        assert!(refused.to_string().contains(&(last.from - 1).to_string()), "{refused}");
        let earlier = newest(Goal::Version(last.from - 1)).await.unwrap();
        assert_eq!(earlier.gap.map(|gap| (gap.from, gap.to)), Some((last.from, end)));
    });
}

/// Writes rows to the place of time series; gives the version.
async fn write_series(db: &plinth_client::Database, round: u8) -> Version {
    let tr = db.clone().with_system_keys().create_transaction();
    for number in 0..100_u8 {
        tr.set([SERIES_PREFIX, &[0x15, number, round]].concat(), [round; 50]);
    }
    tr.clear_range(
        [SERIES_PREFIX, &[0x15, 5 * round]].concat(),
        [SERIES_PREFIX, &[0x15, 5 * round + 3]].concat(),
    );
    tr.add([SERIES_PREFIX, b"sum"].concat(), [1]);
    tr.set([b'u', round], "beside");
    tr.commit().await.unwrap();
    tr.committed_version().unwrap()
}

/// All that users and series have.
async fn rows_with_series(db: &plinth_client::Database) -> Vec<plinth::KeyValue> {
    let db = db.clone().with_system_keys();
    db.transact(|tr| async move {
        let mut rows = tr.range(&b""[..]..&b"\xff"[..]).collect().await?;
        rows.extend(tr.range(SERIES_PREFIX..SERIES_END).collect().await?);
        Ok(rows)
    })
    .await
    .unwrap()
}

/// Series lie beside users' keys, and are saved and brought back with those: by snapshots, by the
/// log, by a backup that was begun before they had that place.
#[test]
fn series_are_saved_and_come_back_in_their_place() {
    for is_old in [false, true] {
        let simulation = Simulation::new(5);
        let machine = simulation.process("node");
        simulation.run_until(async {
            let db = open(&machine, "/db", "memory").await;
            let mut wish = Wish { snapshot_interval: Duration::from_secs(100_000), ..wish() };
            if is_old {
                wish.ranges.remove(1);
                let (target, id) = (backup_target(&machine), db.endpoint().describe().cluster_id);
                Backup::open_or_create(&machine, target, None, &id, &wish.ranges).await.unwrap();
            }
            write_series(&db, 1).await;
            let runs = Agent::start(&machine, &db);
            agent::start(&db, "default", &wish).await.unwrap();
            until(&db, "restorable", |tag| tag.is_restorable).await;
            let between = write_series(&db, 2).await;
            let then = rows_with_series(&db).await;
            write_series(&db, 3).await;
            agent::change(&db, "default", State::Discontinuing).await.unwrap();
            until(&db, "ended", |tag| tag.ended.is_some()).await;
            runs.stop().await.unwrap();
            let backup = Backup::open(&machine, backup_target(&machine), None).await.unwrap();
            let now = rows_with_series(&db).await;
            for (goal, expected) in [(Goal::Version(between), &then), (Goal::Newest, &now)] {
                for engine in ["memory", "ssd"] {
                    let dir = format!("/restored-{engine}-{}", expected.len());
                    restore_dir(&machine, &backup, goal, Mapping::default(), &dir, engine)
                        .await
                        .unwrap();
                    let restored = open(&machine, &dir, engine).await;
                    assert_eq!(rows_with_series(&restored).await, *expected, "{dir}");
                }
                let served = open(&machine, &format!("/served-{}", expected.len()), "memory").await;
                let plan = plan(&backup, goal, Mapping::default()).await.unwrap();
                serve(&backup, &plan, &RestoreControl::default(), &served).await.unwrap();
                assert_eq!(rows_with_series(&served).await, *expected);
            }
            assert!(now.iter().filter(|row| row.key.starts_with(SERIES_PREFIX)).count() > 250);
        });
    }
}

/// A snapshot from before there was a place of series has no file of it. What the log had set there
/// behind it, as when they were moved, was dropped, and the restore said that all was well.
#[test]
fn series_that_came_behind_an_older_snapshot_come_back() {
    let simulation = Simulation::new(5);
    let machine = simulation.process("node");
    simulation.run_until(async {
        let (db, runs) = begun(&machine).await;
        until(&db, "restorable", |tag| tag.is_restorable).await;
        let backup = Backup::open(&machine, backup_target(&machine), None).await.unwrap();
        let mut ranges = everything();
        ranges.remove(1);
        let older = SnapshotSettings { ranges, ..SnapshotSettings::default() };
        let report = take_snapshot(&backup, &db, &older).await.unwrap();
        let version = write_series(&db, 1).await;
        let expected = rows_with_series(&db).await;
        agent::change(&db, "default", State::Discontinuing).await.unwrap();
        until(&db, "ended", |tag| tag.ended.is_some()).await;
        runs.stop().await.unwrap();
        let backup = Backup::open(&machine, backup_target(&machine), None).await.unwrap();
        let plan = plan(&backup, Goal::Version(version), Mapping::default()).await.unwrap();
        assert_eq!(plan.snapshot.header.to, report.version, "it begins with the older one");
        let served = open(&machine, "/served", "memory").await;
        serve(&backup, &plan, &RestoreControl::default(), &served).await.unwrap();
        assert_eq!(rows_with_series(&served).await, expected);
        for engine in ["memory", "ssd"] {
            let (goal, dir) = (Goal::Version(version), format!("/restored-{engine}"));
            restore_dir(&machine, &backup, goal, Mapping::default(), &dir, engine).await.unwrap();
            assert_eq!(rows_with_series(&open(&machine, &dir, engine).await).await, expected);
        }
    });
}

#[test]
fn agents_and_machines_die_and_the_backup_goes_on() {
    for seed in 0..3 {
        let simulation = Simulation::new(seed);
        let mut machine = simulation.process("node");
        let mut random = Random::new(seed);
        let mut history = History::new();
        simulation.run_until(async {
            let local = open_local(&machine, "/db", "memory").await;
            agent::start(local.database(), "default", &wish()).await.unwrap();
            local.close_async().await.unwrap();
        });
        for _ in 0..3 {
            simulation.run_until(async {
                let db = open(&machine, "/db", "memory").await;
                let runs = Agent::start(&machine, &db);
                write_for(&db, &mut history, &mut random, 60 + seed as usize * 40).await;
                // Let go of without an end, as by a kill, or ended.
                if seed == 1 {
                    runs.stop().await.unwrap();
                }
            });
            simulation.crash(&machine);
            machine = simulation.restart(&machine);
        }
        simulation.run_until(async {
            let db = open(&machine, "/db", "memory").await;
            let _runs = Agent::start(&machine, &db);
            write_for(&db, &mut history, &mut random, 10).await;
            let newest = history.last().unwrap().0;
            until(&db, "caught up", |tag| tag.is_restorable && tag.saved >= Some(newest)).await;
            assert_eq!(status(&db).await.broken, 0);
            compare(&machine, &history, &mut random, &format!("seed{seed}"), 3).await;
        });
    }
}

/// A stream that was let go of: the backup says so, and goes on behind a gap with another snapshot.
#[test]
fn a_broken_backup_begins_anew_by_itself() {
    let simulation = Simulation::new(5);
    let machine = simulation.process("node");
    simulation.run_until(async {
        let (db, mut random) = (open(&machine, "/db", "memory").await, Random::new(5));
        let mut history = History::new();
        let runs = Agent::start(&machine, &db);
        agent::start(&db, "default", &Wish { log_bytes: Some(1 << 20), ..wish() }).await.unwrap();
        write_for(&db, &mut history, &mut random, 20).await;
        until(&db, "restorable", |tag| tag.is_restorable).await;
        runs.stop().await.unwrap();
        let saved = status(&db).await.saved;
        let mut n = 0;
        while n < 400 && status(&db).await.broken == 0 {
            let tr = db.create_transaction();
            tr.set("large", vec![n as u8; 90_000]);
            tr.commit().await.unwrap();
            n += 1;
        }
        let tr = db.create_transaction();
        tr.clear("large");
        tr.commit().await.unwrap();
        let lost = tr.committed_version().unwrap();
        let runs = Agent::start(&machine, &db);
        until(&db, "broken", |tag| tag.broken > 0).await;
        // What was lost is not taken for nothing while nothing comes behind it.
        for _ in 0..30 {
            machine.sleep(Duration::from_millis(200)).await;
            let told = status(&db).await;
            assert!(told.saved > saved || told.complete < Some(lost), "{told:?}");
        }
        write_for(&db, &mut history, &mut random, 20).await;
        let newest = history.last().unwrap().0;
        until(&db, "restorable again", |tag| tag.is_restorable && tag.saved >= Some(newest)).await;
        agent::change(&db, "default", State::Aborting).await.unwrap();
        until(&db, "aborted", |tag| tag.ended.as_deref() == Some("aborted")).await;
        let backup = Backup::open(&machine, backup_target(&machine), None).await.unwrap();
        let contents = backup.contents().await.unwrap();
        assert_eq!(contents.restorable().len(), 2, "a stretch before the gap, and one behind it");
        // No file is missing, and where one is taken away that is told.
        let report = verify(&backup, &AtomicU64::new(0), &AtomicBool::new(false)).await.unwrap();
        assert_eq!((report.problems, report.gaps.len()), (vec![], 1));
        let last = contents.restorable()[1].1;
        let between = contents.logs.iter().rev().nth(1).unwrap();
        assert!(between.from > report.gaps[0].to && between.to <= last, "{between:?}");
        backup_target(&machine).delete(&between.name).await.unwrap();
        let report = verify(&backup, &AtomicU64::new(0), &AtomicBool::new(false)).await.unwrap();
        let [problem] = &report.problems[..] else { panic!("{report:?}") };
        assert_eq!(problem.costs, Some((between.from, last)));
        runs.stop().await.unwrap();
    });
}

/// An agent took the word of a node that lacked what came next of the stream for the end of it: a
/// backup of a cluster of which another node had everything was broken, and that node's log was let
/// go of.
#[test]
fn what_one_node_lacks_breaks_no_backup() {
    for has_others in [true, false] {
        let simulation = Simulation::new(11);
        let machine = simulation.process("node");
        simulation.run_until(async {
            let (db, mut random) = (open(&machine, "/db", "memory").await, Random::new(11));
            let (mut history, lacks) = (History::new(), Arc::new(AtomicBool::new(false)));
            let own = Lacking { inner: db.endpoint().clone(), lacks: lacks.clone() };
            let own = plinth_client::Database::new(Arc::new(own));
            let runs = match has_others {
                true => Agent::start_in_cluster(&machine, &own, &db),
                false => Agent::start(&machine, &own),
            };
            agent::start(&db, "default", &wish()).await.unwrap();
            until(&db, "restorable", |tag| tag.is_restorable).await;
            lacks.store(true, Ordering::SeqCst);
            write_for(&db, &mut history, &mut random, 100).await;
            // The other nodes are away, and come back.
            lacks.store(has_others, Ordering::SeqCst);
            let newest = history.last().unwrap().0;
            until(&db, "caught up", |tag| tag.saved >= Some(newest)).await;
            assert_eq!(status(&db).await.broken, 0, "others: {has_others}");
            compare(&machine, &history, &mut random, "lacking", 2).await;
            runs.stop().await.unwrap();
        });
    }
}

/// An agent that died between the end of the stream and the note of it left the next one a backup
/// whose stream was gone, which counted as broken.
#[test]
fn an_end_that_is_cut_off_is_no_break() {
    // The first run tells when it ends, the others are cut off before.
    let mut ended = Duration::ZERO;
    for cut in 0..24 {
        let simulation = Simulation::new(12);
        let (machine, agents) = (simulation.process("node"), simulation.process("agents"));
        let end = |env: &Env, db: &Database| {
            let (env, db) = (env.clone(), db.clone());
            async move {
                let runs = Agent::start(&env, &db);
                until(&db, "restorable", |tag| tag.is_restorable).await;
                agent::change(&db, "default", State::Discontinuing).await.unwrap();
                std::future::pending::<()>().await;
                drop(runs);
            }
        };
        let db = simulation.run_until(async {
            let db = open(&machine, "/db", "memory").await;
            let mut history = History::new();
            write_for(&db, &mut history, &mut Random::new(12), 10).await;
            agent::start(&db, "default", &wish()).await.unwrap();
            db
        });
        let task = machine.spawn("end", end(&agents, &db));
        if cut == 0 {
            while simulation.run_until(status(&db)).ended.is_none() {
                simulation.run_for(Duration::from_micros(50));
            }
            ended = simulation.now();
            continue;
        }
        let until_cut =
            ended.saturating_sub(simulation.now() + Duration::from_micros(100 * (cut - 1)));
        simulation.run_for(until_cut);
        simulation.kill(&agents);
        let agents = simulation.restart(&agents);
        drop(task);
        simulation.run_until(async {
            let runs = Agent::start(&agents, &db);
            until(&db, "ended", |tag| tag.ended.is_some()).await;
            let told = status(&db).await;
            assert_eq!((told.ended.as_deref(), told.broken), (Some("completed"), 0), "cut {cut}");
            assert_eq!(db.list_changes().await.unwrap(), []);
            runs.stop().await.unwrap();
        });
    }
}

/// It ended as completed with nothing in it that could be restored.
#[test]
fn a_backup_that_is_discontinued_at_once_ends_with_a_snapshot() {
    let simulation = Simulation::new(6);
    let machine = simulation.process("node");
    simulation.run_until(async {
        let (db, mut random) = (open(&machine, "/db", "memory").await, Random::new(6));
        let mut history = History::new();
        write_for(&db, &mut history, &mut random, 10).await;
        agent::start(&db, "default", &wish()).await.unwrap();
        agent::change(&db, "default", State::Discontinuing).await.unwrap();
        let runs = Agent::start(&machine, &db);
        write_for(&db, &mut history, &mut random, 5).await;
        until(&db, "ended", |tag| tag.ended.is_some()).await;
        assert_eq!(status(&db).await.ended.as_deref(), Some("completed"));
        assert!(status(&db).await.is_restorable);
        compare(&machine, &history, &mut random, "discontinued", 3).await;
        runs.stop().await.unwrap();
    });
}

/// One that failed was tried again after a whole interval, ten days if nobody said otherwise.
#[test]
fn a_snapshot_that_fails_is_tried_again_soon() {
    let simulation = Simulation::new(7);
    let machine = simulation.process("node");
    simulation.run_until(async {
        let (db, mut random) = (open(&machine, "/db", "memory").await, Random::new(7));
        let mut history = History::new();
        write_for(&db, &mut history, &mut random, 10).await;
        let runs = Agent::start(&machine, &db);
        let wish = Wish { snapshot_interval: Duration::from_secs(1000), ..wish() };
        agent::start(&db, "default", &wish).await.unwrap();
        until(&db, "restorable", |tag| tag.is_restorable).await;
        // Snapshots have no place; the log goes on.
        let files = machine.files();
        files.rename("/backup/snapshots", "/backup/kept").await.unwrap();
        files.replace("/backup/snapshots", b"").await.unwrap();
        machine.sleep(Duration::from_secs(1000)).await;
        until(&db, "failing", |tag| tag.error.is_some()).await;
        write_for(&db, &mut history, &mut random, 10).await;
        let newest = history.last().unwrap().0;
        until(&db, "saved", |tag| tag.saved >= Some(newest)).await;
        assert_eq!((status(&db).await.snapshots, status(&db).await.broken), (1, 0));
        files.remove("/backup/snapshots").await.unwrap();
        files.rename("/backup/kept", "/backup/snapshots").await.unwrap();
        until(&db, "two snapshots", |tag| tag.snapshots == 2 && tag.error.is_none()).await;
        compare(&machine, &history, &mut random, "again", 2).await;
        runs.stop().await.unwrap();
    });
}

/// It began another backup in an empty place, without a snapshot, and had the database let go of
/// the log.
#[test]
fn a_place_that_was_emptied_gets_nothing() {
    let simulation = Simulation::new(8);
    let machine = simulation.process("node");
    simulation.run_until(async {
        let (db, runs) = begun(&machine).await;
        let (mut random, mut history) = (Random::new(8), History::new());
        write_for(&db, &mut history, &mut random, 20).await;
        until(&db, "restorable", |tag| tag.is_restorable && tag.saved.is_some()).await;
        // While the agent is away, and while it writes.
        let mut runs = Some(runs);
        for is_away in [true, false] {
            if is_away {
                runs.take().unwrap().stop().await.unwrap();
            }
            let files = machine.files();
            files.rename("/backup", "/mounted").await.unwrap();
            runs = Some(runs.unwrap_or_else(|| Agent::start(&machine, &db)));
            let saved = status(&db).await.saved;
            write_for(&db, &mut history, &mut random, 60).await;
            until(&db, "failing", |tag| tag.error.is_some()).await;
            write_for(&db, &mut history, &mut random, 60).await;
            let told = status(&db).await;
            assert!(
                told.error.as_ref().is_some_and(|error| error.contains("the backup")),
                "{told:?}"
            );
            assert_eq!((told.saved, told.broken), (saved, 0));
            // It is mounted again, and nothing is missing.
            mount_again(&machine).await;
            let newest = history.last().unwrap().0;
            until(&db, "caught up", |tag| tag.saved >= Some(newest) && tag.error.is_none()).await;
            compare(&machine, &history, &mut random, &format!("mounted-{is_away}"), 3).await;
        }
        // Another backup is none either.
        machine.files().rename("/backup", "/mounted").await.unwrap();
        new_backup(&machine, &db).await;
        until(&db, "failing", |tag| {
            tag.error.as_ref().is_some_and(|error| error.contains("another"))
        })
        .await;
        assert_eq!(status(&db).await.snapshots, 1);
        runs.unwrap().stop().await.unwrap();
    });
}

/// Without its key nothing of an encrypted backup was ever old enough, nor where the target was
/// away.
#[test]
fn an_encrypted_backup_expires_by_time() {
    let simulation = Simulation::new(9);
    let machine = simulation.process("node");
    simulation.run_until(async {
        let (db, mut random) = (open(&machine, "/db", "memory").await, Random::new(9));
        let mut history = History::new();
        machine.files().replace("/key", &[7; 32]).await.unwrap();
        let runs = Agent::start(&machine, &db);
        agent::start(&db, "default", &Wish { key_file: Some("/key".into()), ..wish() })
            .await
            .unwrap();
        write_for(&db, &mut history, &mut random, 20).await;
        until(&db, "restorable", |tag| tag.is_restorable).await;
        let before = machine.wall_clock().as_millis() as u64 - 1_000_000;
        until(&db, "two snapshots", |tag| tag.snapshots == 2).await;
        write_for(&db, &mut history, &mut random, 40).await;
        let after = machine.wall_clock().as_millis() as u64;
        let newest = history.last().unwrap().0;
        until(&db, "saved", |tag| tag.saved >= Some(newest)).await;
        agent::change(&db, "default", State::Aborting).await.unwrap();
        until(&db, "ended", |tag| tag.ended.is_some()).await;
        let hook: Hook = Box::new(|call, name| {
            let fails = call != "list" && name.starts_with("logs/");
            Box::pin(async move { if fails { Err(Error::connection_failed()) } else { Ok(()) } })
        });
        let away = Hooked { inner: backup_target(&machine), hook, creates_always: false };
        let away = Backup::open(&machine, Arc::new(away), None).await.unwrap();
        assert_eq!(expire(&away, Goal::Time(after)).await, Err(Error::connection_failed()));
        let backup = Backup::open(&machine, backup_target(&machine), None).await.unwrap();
        assert_eq!(expire(&backup, Goal::Time(before)).await, Err(Error::backup_cannot_expire()));
        let expired = expire(&backup, Goal::Time(after)).await.unwrap();
        assert_eq!((expired.snapshots, backup.contents().await.unwrap().snapshots.len()), (1, 1));
        runs.stop().await.unwrap();
    });
}

/// Files of the log that the agent merged meanwhile were missing to a restore and damaged to
/// `verify`.
#[test]
fn what_is_merged_meanwhile_is_read_all_the_same() {
    let simulation = Simulation::new(10);
    let machine = simulation.process("node");
    simulation.run_until(async {
        let (db, runs) = begun(&machine).await;
        let (mut random, mut history) = (Random::new(10), History::new());
        until(&db, "restorable", |tag| tag.is_restorable).await;
        write_for(&db, &mut history, &mut random, 60).await;
        let newest = history.last().unwrap().0;
        until(&db, "saved", |tag| tag.saved >= Some(newest)).await;
        let backup = Backup::open(&machine, backup_target(&machine), None).await.unwrap();
        let plan = plan(&backup, Goal::Newest, Mapping::default()).await.unwrap();
        let before = backup.contents().await.unwrap();
        // One file that is read takes until the agent has merged what there is.
        let slow = async |which: u64| {
            let (env, calls) = (machine.clone(), AtomicU64::new(0));
            let hook: Hook = Box::new(move |call, name| {
                let is_log = call.starts_with("get") && name.starts_with("logs/");
                let waits = is_log && calls.fetch_add(1, Ordering::SeqCst) == which;
                let (env, wait) = (env.clone(), Duration::from_secs(if waits { 2_000 } else { 0 }));
                Box::pin(async move {
                    env.sleep(wait).await;
                    Ok(())
                })
            });
            let target = Hooked { inner: backup_target(&machine), hook, creates_always: false };
            Backup::open(&machine, Arc::new(target), None).await.unwrap()
        };
        let restore = async |backup: &Backup, dir: &str| {
            let builder = Builder::new(dir).env(machine.clone()).engine(EngineKind::Memory);
            let mut loader = builder.loader(plan.version).await.unwrap();
            restore_into(backup, &plan, &RestoreControl::default(), &mut loader).await
        };
        assert!(before.logs.len() > 6, "{before:?}");
        for (which, dir) in [(5, "/middle"), (0, "/begin")] {
            restore(&slow(which).await, dir).await.unwrap();
            let rows = rows_of(&open(&machine, dir, "memory").await).await;
            assert!(rows == history.last().unwrap().1, "{dir}");
        }
        let before = backup.contents().await.unwrap();
        let report =
            verify(&slow(0).await, &AtomicU64::new(0), &AtomicBool::new(false)).await.unwrap();
        assert_eq!(report.problems, []);
        assert!(report.restorable[0].1 >= plan.version, "{report:?}");
        let logs = backup.contents().await.unwrap().logs;
        assert!(!before.logs.iter().any(|file| logs.contains(file)), "{} files", before.logs.len());
        let time = machine.wall_clock().as_millis() as u64;
        let at = Plan::make(&slow(0).await, Goal::Time(time), Mapping::default()).await.unwrap();
        assert!(at.version > report.restorable[0].1, "{at:?}");
        let logs = backup.contents().await.unwrap().logs;
        runs.stop().await.unwrap();
        // What is missing for good is told.
        for file in &logs {
            machine.files().remove(format!("/backup/{}", file.name)).await.unwrap();
        }
        assert_eq!(restore(&backup, "/no").await, Err(Error::restore_missing_data()));
    });
}

/// Between two pages of a listing the agent put a merged file before what was still to come, and
/// took the small ones away: the listing had neither.
#[test]
fn a_listing_in_the_middle_of_a_merge_has_no_gap() {
    let simulation = Simulation::new(13);
    let machine = simulation.process("node");
    simulation.run_until(async {
        let (db, runs) = begun(&machine).await;
        let (mut random, mut history) = (Random::new(13), History::new());
        until(&db, "restorable", |tag| tag.is_restorable).await;
        write_for(&db, &mut history, &mut random, 150).await;
        let backup = Backup::open(&machine, backup_target(&machine), None).await.unwrap();
        let before = backup.contents().await.unwrap();
        let last = before.logs.last().unwrap().clone();
        assert!(before.logs.len() > 10 && before.restorable().len() == 1, "{before:?}");
        // The second page comes when the agent has merged what the first one was cut off from.
        let (tail, env) = (last.name.clone(), machine.clone());
        let is_merged = move |all: &[plinth::backup::Object]| {
            let spans = |name: &str| {
                name.split(['/', '-'])
                    .nth(2)
                    .is_some_and(|to| to >= tail.split('-').nth(1).unwrap())
            };
            all.iter().any(|object| spans(&object.name) && object.name < tail)
        };
        let target = Paged { inner: backup_target(&machine), env, is_time: Box::new(is_merged) };
        let slow = Backup::open(&machine, Arc::new(target), None).await.unwrap();
        let writing = machine.spawn("writing", {
            let (db, mut history, mut random) = (db.clone(), history.clone(), Random::new(14));
            async move { write_for(&db, &mut history, &mut random, 1000).await }
        });
        let listed = slow.contents().await.unwrap();
        let reach = listed.restorable();
        assert!(
            reach.len() == 1 && reach[0].1 >= last.to - 1,
            "{reach:?}, the log went up to {}",
            last.to
        );
        writing.await.unwrap();
        runs.stop().await.unwrap();
    });
}

/// A backup that runs through a snapshot in the middle of writes, a pause and an end, and is
/// restored to drawn versions, before and after what is old was removed.
fn story(seed: u64) {
    let simulation = Simulation::new(seed);
    let machine = simulation.process("node");
    simulation.run_until(async {
        let (db, mut random) = (open(&machine, "/db", "memory").await, Random::new(seed));
        let mut history = History::new();
        write_for(&db, &mut history, &mut random, 5).await;
        let runs = Agent::start(&machine, &db);
        let wish = Wish { snapshot_interval: Duration::from_secs(4), ..wish() };
        agent::start(&db, "default", &wish).await.unwrap();
        until(&db, "restorable", |tag| tag.is_restorable).await;
        write_for(&db, &mut history, &mut random, 80).await;
        let last = history.last().unwrap().0;
        agent::change(&db, "default", State::Discontinuing).await.unwrap();
        // It is written on until somebody sees that.
        write_for(&db, &mut history, &mut random, 20).await;
        until(&db, "ended", |tag| tag.ended.is_some()).await;
        let backup = Backup::open(&machine, backup_target(&machine), None).await.unwrap();
        let reach = backup.contents().await.unwrap().restorable();
        assert!(reach.len() == 1 && reach[0].1 >= last, "{reach:?} {last}");
        compare(&machine, &history, &mut random, "before", 3).await;
        let middle = reach[0].0 + random.below((reach[0].1 - reach[0].0) as u64) as Version;
        expire(&backup, Goal::Version(middle)).await.unwrap();
        let left = backup.contents().await.unwrap().restorable();
        assert!(left.len() == 1 && left[0].0 <= middle && left[0].1 == reach[0].1, "{left:?}");
        compare(&machine, &history, &mut random, "after", 3).await;
        runs.stop().await.unwrap();
    });
}

/// The test is tested: each of these mistakes is noticed within so many seeds.
#[test]
fn planted_bugs_are_caught() {
    for (bug, seeds) in [
        ("a file of the log begins one version late", 1),
        ("the last batch of a backup isn't put when it ends", 6),
        ("expire removes a log that is needed", 2),
        ("a restore applies what its snapshot has", 4),
    ] {
        let caught = (1..=seeds).any(|seed| {
            plinth_types::marks::plant(Some(bug));
            let told = std::panic::catch_unwind(|| story(seed));
            plinth_types::marks::plant(None);
            told.is_err()
        });
        assert!(caught, "{bug}, {seeds} seeds");
    }
}
