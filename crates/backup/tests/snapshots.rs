//! What a snapshot saved is what a restore brings back, row for row: into a new directory and into
//! a database that is running, all of it or ranges, under other names, encrypted or not, by both
//! engines.
//!
//! And what a backup is of, which database and which ranges, is held against whatever is done with
//! it.

mod common;

use common::*;
use plinth::backup::agent::{self, Wish};
use plinth::backup::restore::{Goal, Mapping, RestoreControl};
use plinth::backup::{
    Agent, Backup, Directory, Key, SnapshotSettings, everything, expire, take_snapshot,
};
use plinth::{Database, Error, KeyRange, TransactionOption};
use plinth_env::simulated::Simulation;
use plinth_env::sync::{First, race};
use plinth_types::system::{RESTORE_HEAD, SERIES_PREFIX};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

#[test]
fn everything_comes_back_by_both_engines() {
    for (seed, engine) in ["memory", "ssd"].into_iter().cycle().take(6).enumerate() {
        let key = (seed % 3 == 0).then(|| Key::of_file(&[7; 32]).unwrap());
        let simulation = Simulation::new(seed as u64);
        let machine = simulation.process("node");
        simulation.run_until(async {
            let local = open_local(&machine, "/db", engine).await;
            let db = local.database().clone();
            let mut model = Model::default();
            let mut random = Random::new(seed as u64);
            write_some(&db, &mut model, &mut random, 60).await;
            let target = Arc::new(Directory::new(&machine, "/backup"));
            let id = db.endpoint().describe().cluster_id;
            let backup = Backup::open_or_create(&machine, target, key.clone(), &id, &everything())
                .await
                .unwrap();
            let settings =
                SnapshotSettings { file_bytes: 3000, workers: 3, ..SnapshotSettings::default() };
            let report = take_snapshot(&backup, &db, &settings).await.unwrap();
            assert_eq!(report.rows, model.len() as u64, "seed {seed}");
            let expected = model.clone();
            // What comes later is no part of it.
            write_some(&db, &mut model, &mut random, 5).await;
            let backup = Backup::open(&machine, backup_target(&machine), key).await.unwrap();
            restore_dir(&machine, &backup, Goal::Newest, Mapping::default(), "/new", engine)
                .await
                .unwrap();
            let new = open_local(&machine, "/new", engine).await;
            assert!(rows_of(new.database()).await == expected, "seed {seed}");
            // Versions go on.
            let stamp = set(new.database(), b"more", b"").await;
            assert!(stamp > report.version);
            new.close_async().await.unwrap();
            local.close_async().await.unwrap();
        });
    }
}

#[test]
fn ranges_come_back_under_other_names() {
    let simulation = Simulation::new(1);
    let machine = simulation.process("node");
    simulation.run_until(async {
        let db = open(&machine, "/db", "memory").await;
        for n in 0..500 {
            set(&db, format!("a/{n:03}").as_bytes(), b"a").await;
            set(&db, format!("b/{n:03}").as_bytes(), b"b").await;
        }
        let backup = new_backup(&machine, &db).await;
        let settings = SnapshotSettings { file_bytes: 500, ..SnapshotSettings::default() };
        take_snapshot(&backup, &db, &settings).await.unwrap();
        let mapping = Mapping {
            ranges: vec![KeyRange::new("b/100", "b/200")],
            remove_prefix: "b/".into(),
            add_prefix: "copy/".into(),
        };
        restore_dir(&machine, &backup, Goal::Newest, mapping.clone(), "/new", "memory")
            .await
            .unwrap();
        let new = open(&machine, "/new", "memory").await;
        let rows = rows_of(&new).await;
        assert_eq!(rows.len(), 100);
        assert_eq!(rows.keys().next().unwrap(), &b"copy/100"[..]);
        assert_eq!(rows.keys().next_back().unwrap(), &b"copy/199"[..]);
        // And into the database itself, beside what is there.
        let plan = plan(&backup, Goal::Newest, mapping).await.unwrap();
        serve(&backup, &plan, &RestoreControl::default(), &db).await.unwrap();
        assert_eq!(rows_of(&db).await.len(), 1100);
        // Where there is something already nothing is restored.
        let again = serve(&backup, &plan, &RestoreControl::default(), &db).await;
        assert_eq!(again, Err(Error::restore_destination_not_empty()));
        set(&db, b"still open", b"").await;
        let wrong = Mapping {
            remove_prefix: "b/".into(),
            ranges: vec![KeyRange::new("a", "c")],
            ..Mapping::default()
        };
        let refused = self::plan(&backup, Goal::Newest, wrong).await;
        assert_eq!(refused.err(), Some(Error::client_invalid_operation()));
    });
}

/// A server whose listeners take series makes rows of theirs at its start.
#[test]
fn where_series_are_in_the_way_it_says_how_to_start_the_server() {
    let simulation = Simulation::new(1);
    let machine = simulation.process("node");
    simulation.run_until(async {
        let db = open(&machine, "/db", "memory").await;
        set(&db, b"row", b"1").await;
        let backup = new_backup(&machine, &db).await;
        take_snapshot(&backup, &db, &SnapshotSettings::default()).await.unwrap();
        let serving = open(&machine, "/serving", "memory").await;
        let tr = serving.create_transaction();
        tr.set_option(TransactionOption::AccessSystemKeys).unwrap();
        tr.set([SERIES_PREFIX, b"store"].concat(), b"");
        tr.commit().await.unwrap();
        let plan = plan(&backup, Goal::Newest, Mapping::default()).await.unwrap();
        let refused = serve(&backup, &plan, &RestoreControl::default(), &serving).await;
        let refused = refused.unwrap_err();
        assert_eq!(refused, Error::restore_destination_not_empty());
        assert!(refused.to_string().contains("without its listeners of series"), "{refused}");
    });
}

#[test]
fn another_database_and_another_key_are_refused() {
    let simulation = Simulation::new(1);
    let machine = simulation.process("node");
    simulation.run_until(async {
        let db = open(&machine, "/db", "memory").await;
        let key = |byte| Some(Key::of_file(&[byte; 32]).unwrap());
        let id = db.endpoint().describe().cluster_id;
        let target = backup_target(&machine);
        let backup = Backup::open_or_create(&machine, target.clone(), key(1), &id, &everything())
            .await
            .unwrap();
        take_snapshot(&backup, &db, &SnapshotSettings::default()).await.unwrap();
        let refused = Err(Error::client_invalid_operation());
        for (key, id) in [(key(2), &*id), (None, &id), (key(1), "another")] {
            let opened =
                Backup::open_or_create(&machine, target.clone(), key, id, &everything()).await;
            assert_eq!(opened.map(drop), refused);
        }
        // Without the key there is a listing, and nothing else.
        let backup = Backup::open(&machine, target, None).await.unwrap();
        let contents = backup.contents().await.unwrap();
        assert_eq!((contents.snapshots.len(), backup.is_sealed()), (1, true));
        assert_eq!(plan(&backup, Goal::Newest, Mapping::default()).await.map(drop), refused);
        assert_eq!(
            take_snapshot(&backup, &db, &SnapshotSettings::default()).await.map(drop),
            refused
        );
    });
}

/// A database in a directory that only this process has needs no pinned version.
#[test]
fn a_database_of_ones_own_is_read_as_it_is() {
    let simulation = Simulation::new(3);
    let machine = simulation.process("node");
    simulation.run_until(async {
        let db: Database = open(&machine, "/db", "ssd").await;
        let mut model = Model::default();
        write_some(&db, &mut model, &mut Random::new(3), 40).await;
        let backup = new_backup(&machine, &db).await;
        let settings = SnapshotSettings { is_exclusive: true, ..SnapshotSettings::default() };
        let began = machine.now();
        let report = take_snapshot(&backup, &db, &settings).await.unwrap();
        assert_eq!(report.rows, model.len() as u64);
        assert!(machine.now() - began < Duration::from_secs(4), "it doesn't wait for tables");
    });
}

/// Versions go on by the clock, and tables have what was written: a backup of a database that
/// nobody wrote to waited for ever for tables of a version as late as its begin.
#[test]
fn a_database_at_rest_is_backed_up() {
    let simulation = Simulation::new(5);
    let machine = simulation.process("node");
    simulation.run_until(async {
        let mut model = Model::default();
        for turn in 0..3 {
            // At last nothing has been written since the start.
            let local = open_local(&machine, "/db", "ssd").await;
            let db = local.database().clone();
            if turn < 2 {
                write_some(&db, &mut model, &mut Random::new(turn), 40).await;
            }
            machine.sleep(Duration::from_secs(20 * turn)).await;
            let (backup, settings) = (new_backup(&machine, &db).await, SnapshotSettings::default());
            let taken = take_snapshot(&backup, &db, &settings);
            let report = match race(taken, machine.sleep(Duration::from_secs(60))).await {
                First::Left(report) => report.unwrap(),
                First::Right(()) => panic!("turn {turn}: it goes on waiting"),
            };
            assert_eq!(report.rows, model.len() as u64);
            drop(db);
            local.close_async().await.unwrap();
        }
    });
}

/// A snapshot of a part stood for the newest whole one: restores brought a part back and said
/// nothing, and `expire` removed the whole one before it.
#[test]
fn a_part_is_no_whole() {
    let simulation = Simulation::new(4);
    let machine = simulation.process("node");
    simulation.run_until(async {
        let db = open(&machine, "/db", "memory").await;
        for key in ["a/1", "b/1", "b/2", "c/1"] {
            set(&db, key.as_bytes(), b"x").await;
        }
        let refused = |error: Error, words: &str| {
            assert_eq!(error, Error::client_invalid_operation());
            assert!(error.to_string().contains(words), "{error}");
        };
        let id = db.endpoint().describe().cluster_id;
        let part = vec![KeyRange::new("b/", "b0")];
        let settings = |ranges: &[KeyRange]| SnapshotSettings {
            ranges: ranges.to_vec(),
            ..Default::default()
        };
        for key in [None, Some(Key::of_file(&[1; 32]).unwrap())] {
            let place = if key.is_some() { "/sealed" } else { "/clear" };
            let target = || Arc::new(Directory::new(&machine, place));
            let whole = Backup::open_or_create(&machine, target(), key.clone(), &id, &everything())
                .await
                .unwrap();
            take_snapshot(&whole, &db, &settings(&everything())).await.unwrap();
            let taken = take_snapshot(&whole, &db, &settings(&part)).await.unwrap_err();
            refused(
                taken,
                "a backup of everything, not of the keys b/ to b0; take a place of its own",
            );
            let begun = Backup::open_or_create(&machine, target(), key.clone(), &id, &part).await;
            refused(begun.map(drop).unwrap_err(), "not of the keys b/ to b0");
            expire(&whole, Goal::Newest).await.unwrap();
            let plan = plan(&whole, Goal::Newest, Mapping::default()).await.unwrap();
            assert_eq!(plan.rows(), 4);
            // Without the key it isn't known which ranges they are.
            let seen = Backup::open(&machine, target(), None).await.unwrap();
            assert_eq!(seen.ranges().is_none(), key.is_some());
        }
        let target = Arc::new(Directory::new(&machine, "/part"));
        let backup = Backup::open_or_create(&machine, target, None, &id, &part).await.unwrap();
        take_snapshot(&backup, &db, &settings(&part)).await.unwrap();
        assert_eq!(backup.ranges(), Some(&part[..]));
        for (begin, end, lacking) in [("a", "b/1", "a"), ("b/", "c", "b0"), ("x", "y", "x")] {
            let mapping = Mapping { ranges: vec![KeyRange::new(begin, end)], ..Mapping::default() };
            let refusal = plan(&backup, Goal::Newest, mapping).await.map(drop).unwrap_err();
            refused(refusal, &format!("hasn't those from {lacking} on"));
        }
        let plan = plan(&backup, Goal::Newest, Mapping::default()).await.unwrap();
        assert_eq!((plan.rows(), &plan.ranges), (2, &part));
    });
}

/// An older snapshot stood for the newest one without a word, also where the target was away for a
/// moment.
#[test]
fn an_older_snapshot_is_not_taken_for_the_newest() {
    let simulation = Simulation::new(5);
    let machine = simulation.process("node");
    simulation.run_until(async {
        let db = open(&machine, "/db", "memory").await;
        let backup = new_backup(&machine, &db).await;
        let mut taken = Vec::new();
        for n in 0..2 {
            set(&db, b"n", &[n]).await;
            taken.push(take_snapshot(&backup, &db, &SnapshotSettings::default()).await.unwrap());
            machine.sleep(std::time::Duration::from_secs(10)).await;
        }
        let failures = Arc::new(AtomicU32::new(1));
        let hook: Hook = Box::new(move |call, name| {
            let fails = call == "get_begin" && name.ends_with(".manifest");
            let fails = fails && failures.swap(0, Ordering::SeqCst) > 0;
            Box::pin(async move { if fails { Err(Error::connection_failed()) } else { Ok(()) } })
        });
        let target = Hooked { inner: backup_target(&machine), hook, creates_always: false };
        let away = Backup::open(&machine, Arc::new(target), None).await.unwrap();
        assert_eq!(away.contents().await.map(drop), Err(Error::connection_failed()));
        assert_eq!(away.contents().await.unwrap().snapshots.len(), 2);

        let whole = backup.contents().await.unwrap();
        let between = whole.snapshots[0].header.time_to + 1000;
        let path = format!("/backup/{}", whole.snapshots[1].manifest);
        let kept = machine.files().read(&path).await.unwrap();
        let mut bytes = kept.clone();
        bytes[100] ^= 1;
        machine.files().replace(&path, &bytes).await.unwrap();
        assert_eq!(backup.contents().await.unwrap().damaged.len(), 1);
        for goal in [Goal::Newest, Goal::Time(between)] {
            let refused = plan(&backup, goal, Mapping::default()).await.map(drop).unwrap_err();
            assert_eq!(refused, Error::file_corrupt(), "{goal:?}");
            let told = refused.to_string();
            assert!(
                told.contains(&whole.snapshots[1].manifest) && told.contains("--version"),
                "{told}"
            );
        }
        let asked =
            plan(&backup, Goal::Version(taken[0].version), Mapping::default()).await.unwrap();
        assert_eq!(asked.version, taken[0].version);
        machine.files().replace(&path, &kept).await.unwrap();
        let newest = plan(&backup, Goal::Newest, Mapping::default()).await.unwrap();
        assert_eq!(newest.version, taken[1].version);
    });
}

/// A file of a later format, as a later program may leave one.
fn of_a_later_format(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[8] = 2;
    let end = u32::from_le_bytes(bytes[12..16].try_into().unwrap()) as usize - 4;
    let checksum = crc32c::crc32c(&bytes[..end]).to_le_bytes();
    bytes[end..end + 4].copy_from_slice(&checksum);
    bytes
}

#[test]
fn what_a_later_program_wrote_is_refused_in_words() {
    let simulation = Simulation::new(6);
    let machine = simulation.process("node");
    simulation.run_until(async {
        let db = open(&machine, "/db", "memory").await;
        let backup = new_backup(&machine, &db).await;
        set(&db, b"a", b"1").await;
        take_snapshot(&backup, &db, &SnapshotSettings::default()).await.unwrap();
        let target = backup_target(&machine);
        let snapshot = backup.contents().await.unwrap().snapshots.remove(0);
        for name in [snapshot.manifest, "backup.id".to_owned()] {
            let kept = target.get(&name).await.unwrap();
            target.put(&name, of_a_later_format(&kept).into()).await.unwrap();
            let restored = async {
                let backup = Backup::open(&machine, target.clone(), None).await?;
                restore_dir(&machine, &backup, Goal::Newest, Mapping::default(), "/new", "memory")
                    .await
            };
            let told = restored.await.unwrap_err().to_string();
            let words = format!("{name} is of format 2 of backups, this program reads up to 1");
            assert!(told.contains(&words), "{name}: {told}");
            assert!(!machine.files().exists("/new").await.unwrap(), "{name}");
            target.put(&name, kept).await.unwrap();
        }
        restore_dir(&machine, &backup, Goal::Newest, Mapping::default(), "/new", "memory")
            .await
            .unwrap();
    });
}

/// Notes that something is being restored into a database, as a restore does, or that nothing is.
async fn note_restore(db: &Database, is_unfinished: bool) {
    db.transact(async |tr| {
        tr.set_option(plinth::TransactionOption::AccessSystemKeys)?;
        match is_unfinished {
            true => tr.set(RESTORE_HEAD, "a restore"),
            false => tr.clear(RESTORE_HEAD),
        }
        Ok(())
    })
    .await
    .unwrap();
}

/// What is half there isn't backed up: commands looked, and neither the library nor an agent whose
/// backup was there before the restore did.
#[test]
fn a_snapshot_is_of_no_part_of_something() {
    let simulation = Simulation::new(31);
    let machine = simulation.process("node");
    simulation.run_until(async {
        let db = open(&machine, "/db", "memory").await;
        set(&db, b"restored", b"half").await;
        let backup = new_backup(&machine, &db).await;
        note_restore(&db, true).await;
        for is_exclusive in [false, true] {
            let settings = SnapshotSettings { is_exclusive, ..SnapshotSettings::default() };
            let error = take_snapshot(&backup, &db, &settings).await.unwrap_err();
            assert!(error.to_string().contains("a part of what is being restored"), "{error}");
        }
        let wish = Wish { snapshot_interval: Duration::from_secs(20), ..Wish::new("/continuous") };
        let error = agent::start(&db, "default", &wish).await.unwrap_err();
        assert!(error.to_string().contains("a part of what is being restored"), "{error}");
        assert_eq!(agent::tags(&db).await.unwrap(), []);
        note_restore(&db, false).await;
        take_snapshot(&backup, &db, &SnapshotSettings::default()).await.unwrap();
        // One that runs already waits with its snapshots, and goes on with its log.
        agent::start(&db, "default", &wish).await.unwrap();
        let runs = Agent::start(&machine, &db);
        let until = async |is_so: &dyn Fn(&agent::TagStatus) -> bool| {
            while !is_so(&agent::tags(&db).await.unwrap()[0]) {
                machine.sleep(Duration::from_secs(1)).await;
            }
        };
        until(&|tag| tag.snapshots == 1).await;
        note_restore(&db, true).await;
        until(&|tag| tag.error.as_ref().is_some_and(|error| error.contains("restored"))).await;
        let last = set(&db, b"more", b"").await;
        until(&|tag| tag.saved >= Some(last)).await;
        assert_eq!(agent::tags(&db).await.unwrap()[0].snapshots, 1);
        note_restore(&db, false).await;
        until(&|tag| tag.snapshots == 2 && tag.error.is_none()).await;
        runs.stop().await.unwrap();
    });
}

/// Behind a restore new versionstamps could be those of rows that were restored, or come before
/// them, and who caches a layer's metadata, as of directories, went on with what it had.
#[test]
fn versions_go_on_behind_a_restore_into_a_database_and_caches_are_told() {
    for is_ahead in [false, true] {
        let simulation = Simulation::new(32);
        let machine = simulation.process("node");
        simulation.run_until(async {
            let mut to = None;
            if is_ahead {
                to = Some(open(&machine, "/to", "memory").await);
                machine.sleep(Duration::from_secs(200)).await;
            }
            let db = open(&machine, "/db", "memory").await;
            machine.sleep(Duration::from_secs(100)).await;
            set(&db, b"a", b"1").await;
            let backup = new_backup(&machine, &db).await;
            take_snapshot(&backup, &db, &SnapshotSettings::default()).await.unwrap();
            let to = match to {
                Some(to) => to,
                None => open(&machine, "/to", "memory").await,
            };
            let before = set(&to, b"zz", b"mine").await;
            let metadata = async || {
                to.create_transaction().get(plinth_types::system::METADATA_VERSION).await.unwrap()
            };
            let cached = metadata().await;
            let plan = plan(
                &backup,
                Goal::Newest,
                Mapping { add_prefix: "r/".into(), ..Mapping::default() },
            )
            .await
            .unwrap();
            assert_eq!(before > plan.version, is_ahead);
            serve(&backup, &plan, &RestoreControl::default(), &to).await.unwrap();
            assert_ne!(metadata().await, cached);
            let next = set(&to, b"zz", b"").await;
            assert!(next > plan.version, "{next}, {}", plan.version);
            assert!(
                next < before.max(plan.version) + 100_000_000,
                "it goes no further than it has to"
            );
        });
    }
}
