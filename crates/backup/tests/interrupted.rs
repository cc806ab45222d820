//! Whatever ends a snapshot or a restore in the middle, nothing that is half there is taken for
//! whole: a snapshot without its manifest counts for nothing, a directory has its name only when
//! everything is in it, a database that is being restored stays locked, and the same restore goes
//! on where it was.

mod common;

use common::*;
use plinth::backup::restore::{Goal, Mapping, RestoreControl, abort, status, unfinished};
use plinth::backup::{
    Backup, Lease, LogBuilder, SnapshotSettings, Target, everything, expire, take_snapshot, verify,
};
use plinth::{Error, MutationType};
use plinth_env::Open;
use plinth_env::simulated::Simulation;
use plinth_env::sync::{First, race};
use plinth_types::{MutationList, system};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn small_files() -> SnapshotSettings {
    SnapshotSettings { file_bytes: 400, workers: 2, ..SnapshotSettings::default() }
}

#[test]
fn a_crash_during_a_snapshot_leaves_those_before() {
    let (mut without, mut with) = (0, 0);
    for round in 0..12 {
        let simulation = Simulation::new(round);
        let mut machine = simulation.process("node");
        let model = simulation.run_until(async {
            let local = open_local(&machine, "/db", "memory").await;
            let db = local.database();
            let mut model = Model::default();
            write_some(db, &mut model, &mut Random::new(round), 40).await;
            take_snapshot(&new_backup(&machine, db).await, db, &small_files()).await.unwrap();
            local.close_async().await.unwrap();
            model
        });
        let env = machine.clone();
        drop(machine.spawn("backup", async move {
            let db = open(&env, "/db", "memory").await;
            set(&db, b"second", b"").await;
            let backup = Backup::open(&env, backup_target(&env), None).await.unwrap();
            take_snapshot(&backup, &db, &small_files()).await.unwrap();
        }));
        simulation.run_for(Duration::from_micros(1000 * (1 + round)));
        simulation.crash(&machine);
        machine = simulation.restart(&machine);
        simulation.run_until(async {
            let backup = Backup::open(&machine, backup_target(&machine), None).await.unwrap();
            let contents = backup.contents().await.unwrap();
            let report =
                verify(&backup, &AtomicU64::new(0), &AtomicBool::new(false)).await.unwrap();
            assert_eq!(report.problems, [], "round {round}");
            let restored =
                restore_dir(&machine, &backup, Goal::Newest, Mapping::default(), "/new", "memory");
            restored.await.unwrap();
            let mut rows = rows_of(&open(&machine, "/new", "memory").await).await;
            let has_second = rows.remove(&b"second"[..]).is_some();
            assert_eq!(has_second, contents.snapshots.len() == 2, "round {round}");
            assert!(rows == model, "round {round}");
            without += u32::from(!has_second);
            with += u32::from(has_second);
        });
    }
    assert!(without > 2 && with > 2, "{without} without, {with} with the second snapshot");
}

/// An agent had put a snapshot's manifest, and died before its name was durable. Whoever had what
/// is old expire saw it, and had the snapshot before it go; then the machine lost its power, and
/// there was none.
#[test]
fn what_expires_goes_only_when_what_stays_is_durable() {
    for round in 0..20 {
        let simulation = Simulation::new(round);
        let mut machine = simulation.process("node");
        let model = simulation.run_until(async {
            let db = open(&machine, "/db", "memory").await;
            let backup = new_backup(&machine, &db).await;
            let mut model = Model::default();
            for _ in 0..2 {
                write_some(&db, &mut model, &mut Random::new(round), 10).await;
                take_snapshot(&backup, &db, &small_files()).await.unwrap();
            }
            let newest = backup.contents().await.unwrap().snapshots.pop().unwrap();
            let (files, manifest) = (machine.files(), Path::new("/backup").join(&newest.manifest));
            let (contents, directory) =
                (files.read(&manifest).await.unwrap(), manifest.parent().unwrap());
            files.remove(&manifest).await.unwrap();
            files.sync_dir(directory).await.unwrap();
            let before = manifest.with_extension("new");
            let file = files.open(&before, Open::Create).await.unwrap();
            file.write_all_at(0, &contents).await.unwrap();
            file.sync_all().await.unwrap();
            files.rename(&before, &manifest).await.unwrap();
            let expired = expire(&backup, Goal::Newest).await.unwrap();
            assert_eq!((expired.snapshots, expired.first), (1, Some(newest.header.to)));
            model
        });
        simulation.crash(&machine);
        machine = simulation.restart(&machine);
        simulation.run_until(async {
            let backup = Backup::open(&machine, backup_target(&machine), None).await.unwrap();
            let restored =
                restore_dir(&machine, &backup, Goal::Newest, Mapping::default(), "/new", "memory");
            restored.await.unwrap_or_else(|error| panic!("round {round}: {error}"));
            assert!(
                rows_of(&open(&machine, "/new", "memory").await).await == model,
                "round {round}"
            );
        });
    }
}

#[test]
fn a_crash_during_a_restore_leaves_no_directory_or_a_whole_one() {
    let (mut absent, mut whole) = (0, 0);
    for round in 0..12 {
        let simulation = Simulation::new(round);
        let mut machine = simulation.process("node");
        let model = simulation.run_until(async {
            let db = open(&machine, "/db", "memory").await;
            let mut model = Model::default();
            write_some(&db, &mut model, &mut Random::new(round), 20).await;
            take_snapshot(&new_backup(&machine, &db).await, &db, &small_files()).await.unwrap();
            model
        });
        let restore = async |env: plinth::Env| {
            let backup = Backup::open(&env, backup_target(&env), None).await?;
            restore_dir(&env, &backup, Goal::Newest, Mapping::default(), "/new", "memory").await
        };
        let env = machine.clone();
        drop(machine.spawn("restore", async move {
            let backup = Backup::open(&env, backup_target(&env), None).await.unwrap();
            restore_dir(&env, &backup, Goal::Newest, Mapping::default(), "/new", "memory")
                .await
                .unwrap();
        }));
        simulation.run_for(Duration::from_micros(7_000 * (1 + round)));
        simulation.crash(&machine);
        machine = simulation.restart(&machine);
        simulation.run_until(async {
            if machine.files().exists("/new").await.unwrap() {
                whole += 1;
            } else {
                absent += 1;
                // Begun again over what was left.
                restore(machine.clone()).await.unwrap();
                assert!(!machine.files().exists("/new.restoring").await.unwrap());
            }
            let rows = rows_of(&open(&machine, "/new", "memory").await).await;
            assert!(rows == model, "round {round}");
            assert_eq!(restore(machine.clone()).await, Err(Error::restore_destination_not_empty()));
        });
    }
    assert!(absent > 2 && whole > 2, "{absent} absent, {whole} whole");
}

#[test]
fn a_restore_into_a_database_goes_on_and_locks_it_meanwhile() {
    for round in 0..6_u64 {
        let simulation = Simulation::new(round);
        let machine = simulation.process("node");
        simulation.run_until(async {
            let db = open(&machine, "/db", "memory").await;
            let mut model = Model::default();
            write_some(&db, &mut model, &mut Random::new(round), 60).await;
            let backup = new_backup(&machine, &db).await;
            take_snapshot(&backup, &db, &small_files()).await.unwrap();
            let to = open(&machine, "/to", "memory").await;
            let plan = plan(&backup, Goal::Newest, Mapping::default()).await.unwrap();
            // Stopped when some of it is there.
            let control = RestoreControl::default();
            let (stop, restored) = (control.stop.clone(), control.restored.clone());
            let env = machine.clone();
            let most = 1 + plan.row_bytes() * round / 8;
            drop(machine.spawn("stop", async move {
                while restored.load(Ordering::SeqCst) < most {
                    env.sleep(Duration::from_micros(50)).await;
                }
                stop.store(true, Ordering::SeqCst);
            }));
            let stopped = serve(&backup, &plan, &control, &to).await;
            assert_eq!(stopped, Err(Error::operation_cancelled()), "round {round}");
            let tr = to.create_transaction();
            assert_eq!(tr.get("key001").await.map(drop), Err(Error::database_locked()));
            let shown = status(&to).await.unwrap().unwrap();
            assert_eq!((shown.version, shown.files.0), (plan.version, plan.file_count() as u64));
            if round % 3 == 2 {
                // Given up: everything that was brought in is gone.
                assert!(abort(&to).await.unwrap() && !abort(&to).await.unwrap());
                assert!(rows_of(&to).await.is_empty());
                set(&to, b"free", b"").await;
                return;
            }
            // Another restore may not take its place.
            let mapping = Mapping { add_prefix: "other/".into(), ..Mapping::default() };
            let other = self::plan(&backup, Goal::Newest, mapping).await.unwrap();
            let refused = serve(&backup, &other, &RestoreControl::default(), &to).await;
            assert_eq!(refused, Err(Error::client_invalid_operation()));
            serve(&backup, &plan, &RestoreControl::default(), &to).await.unwrap();
            assert!(status(&to).await.unwrap().is_none());
            assert!(rows_of(&to).await == model, "round {round}");
            set(&to, b"free", b"").await;
        });
    }
}

/// Writes a row of the system, or clears it.
async fn note(db: &plinth::Database, key: &[u8], value: Option<&[u8]>) {
    db.transact(async |tr| {
        tr.set_option(plinth::TransactionOption::AccessSystemKeys)?;
        tr.set_option(plinth::TransactionOption::LockAware)?;
        match value {
            Some(value) => tr.set(key, value),
            None => tr.clear(key),
        }
        Ok(())
    })
    .await
    .unwrap();
}

/// What a second site or a migration has begun is theirs, whoever has taken the lock away: a
/// restore beside it would be there for ever, and nobody would see it.
#[test]
fn a_restore_begins_in_no_database_that_something_else_is_filling() {
    let simulation = Simulation::new(14);
    let machine = simulation.process("node");
    simulation.run_until(async {
        let db = open(&machine, "/db", "memory").await;
        set(&db, b"a", b"1").await;
        let backup = new_backup(&machine, &db).await;
        take_snapshot(&backup, &db, &small_files()).await.unwrap();
        let plan = plan(&backup, Goal::Newest, Mapping::default()).await.unwrap();
        let to = open(&machine, "/to", "memory").await;
        let locked = Error::database_locked();
        for (head, code, words) in [
            (system::SECOND_SITE_HEAD, Error::client_invalid_operation(), "is a second site"),
            (system::MIGRATION_HEAD, locked, "is being migrated into it"),
        ] {
            note(&to, head, Some(b"\x01")).await;
            let error = serve(&backup, &plan, &RestoreControl::default(), &to).await.unwrap_err();
            assert!(error == code && error.to_string().contains(words), "{error}");
            assert!(status(&to).await.unwrap().is_none() && rows_of(&to).await.is_empty());
            note(&to, head, None).await;
        }
        serve(&backup, &plan, &RestoreControl::default(), &to).await.unwrap();
    });
}

/// Two parts of a backup under the same names: the second went on where the first had been cut
/// short, and the rows of both were there.
#[test]
fn a_restore_of_another_part_under_the_same_names_is_another_restore() {
    let simulation = Simulation::new(13);
    let machine = simulation.process("node");
    simulation.run_until(async {
        let db = open(&machine, "/db", "memory").await;
        for part in ["a/", "b/"] {
            for n in 0..40 {
                set(&db, format!("{part}{n:02}").as_bytes(), part.as_bytes()).await;
            }
        }
        let backup = new_backup(&machine, &db).await;
        take_snapshot(&backup, &db, &SnapshotSettings::default()).await.unwrap();
        let to = open(&machine, "/to", "memory").await;
        let plan_of = async |part: &'static str| {
            let ranges =
                vec![plinth::KeyRange::new(part, plinth_types::strinc(part.as_bytes()).unwrap())];
            let mapping = Mapping { ranges, remove_prefix: part.into(), add_prefix: "c/".into() };
            plan(&backup, Goal::Newest, mapping).await.unwrap()
        };
        let (one, other) = (plan_of("a/").await, plan_of("b/").await);
        let control = RestoreControl::default();
        control.stop.store(true, Ordering::SeqCst);
        serve(&backup, &one, &control, &to).await.unwrap_err();
        let refused = serve(&backup, &other, &RestoreControl::default(), &to).await;
        assert_eq!(refused, Err(Error::client_invalid_operation()));
        serve(&backup, &one, &RestoreControl::default(), &to).await.unwrap();
        let rows = rows_of(&to).await;
        assert!(rows.len() == 40 && rows.values().all(|value| value == "a/"));
    });
}

/// Of a part of the keys it locks that part: everybody else goes on beside it.
#[test]
fn a_restore_of_ranges_locks_those_alone() {
    let simulation = Simulation::new(11);
    let machine = simulation.process("node");
    simulation.run_until(async {
        let db = open(&machine, "/db", "memory").await;
        let mut model = Model::default();
        write_some(&db, &mut model, &mut Random::new(11), 60).await;
        let backup = new_backup(&machine, &db).await;
        take_snapshot(&backup, &db, &small_files()).await.unwrap();
        let to = open(&machine, "/to", "memory").await;
        set(&to, b"a", b"mine").await;
        let mapping = Mapping { add_prefix: "restored/".into(), ..Mapping::default() };
        let plan = plan(&backup, Goal::Newest, mapping.clone()).await.unwrap();
        // Nothing of it is there yet, and all of it is locked.
        let control = RestoreControl::default();
        control.stop.store(true, Ordering::SeqCst);
        assert_eq!(serve(&backup, &plan, &control, &to).await, Err(Error::operation_cancelled()));
        let locked = Error::transaction_rejected_range_locked();
        let tr = to.create_transaction();
        assert_eq!(tr.get("restored/key001").await.unwrap_err(), locked);
        assert_eq!(tr.snapshot().range("b".."z").collect().await.unwrap_err(), locked);
        let tr = to.create_transaction();
        tr.set("restored/new", "");
        assert_eq!(tr.commit().await.unwrap_err(), locked);
        set(&to, b"a", b"still mine").await;
        let document: serde_json::Value =
            serde_json::from_str(&to.status_json().await.unwrap()).unwrap();
        let told = &document["cluster"]["plinth"]["locked_ranges"];
        assert_eq!(told, &serde_json::json!([{ "begin": "restored/", "end": "restored/\\xff" }]));
        assert_eq!(document["cluster"]["database_locked"], false);
        // Given up it is free, and so it is when it is whole.
        assert!(abort(&to).await.unwrap());
        set(&to, b"restored/free", b"").await;
        let taken = serve(&backup, &plan, &RestoreControl::default(), &to).await;
        assert_eq!(taken, Err(Error::restore_destination_not_empty()));
        to.transact(async |tr| {
            tr.clear("restored/free");
            Ok(())
        })
        .await
        .unwrap();
        serve(&backup, &plan, &RestoreControl::default(), &to).await.unwrap();
        let mut rows = rows_of(&to).await;
        assert_eq!(rows.remove(&b"a"[..]).as_deref(), Some(&b"still mine"[..]));
        let renamed = model
            .iter()
            .map(|(key, value)| ([b"restored/", &key[..]].concat().into(), value.clone()));
        assert!(rows == renamed.collect::<Model>());
        set(&to, b"restored/free", b"").await;
    });
}

/// The backup goes on while a restore of it is cut short: the same command goes on with it, and
/// another one doesn't.
#[test]
fn a_restore_of_the_newest_goes_on_although_the_backup_has_a_newer_one() {
    let simulation = Simulation::new(15);
    let machine = simulation.process("node");
    simulation.run_until(async {
        let db = open(&machine, "/db", "memory").await;
        let mut model = Model::default();
        write_some(&db, &mut model, &mut Random::new(15), 60).await;
        let backup = new_backup(&machine, &db).await;
        take_snapshot(&backup, &db, &small_files()).await.unwrap();
        let to = open(&machine, "/to", "memory").await;
        let beside = Mapping { add_prefix: "restored/".into(), ..Mapping::default() };
        assert!(unfinished(&to).await.unwrap().is_none());
        let begun = plan(&backup, Goal::Newest, beside.clone()).await.unwrap();
        let control = RestoreControl::default();
        control.stop.store(true, Ordering::SeqCst);
        serve(&backup, &begun, &control, &to).await.unwrap_err();
        set(&db, b"later", b"").await;
        take_snapshot(&backup, &db, &small_files()).await.unwrap();
        let noted = unfinished(&to).await.unwrap().unwrap();
        // Under another name, or of another version, it would be another restore.
        let elsewhere = Mapping { add_prefix: "elsewhere/".into(), ..Mapping::default() };
        assert!(noted.plan(&backup, Goal::Newest, &elsewhere).await.unwrap().is_none());
        let newer = plan(&backup, Goal::Newest, beside.clone()).await.unwrap().version;
        assert!(newer > begun.version);
        assert!(noted.plan(&backup, Goal::Version(newer), &beside).await.unwrap().is_none());
        let again = noted.plan(&backup, Goal::Newest, &beside).await.unwrap().unwrap();
        assert_eq!(again.version, begun.version);
        serve(&backup, &again, &RestoreControl::default(), &to).await.unwrap();
        assert_eq!(rows_of(&to).await.len(), model.len());
    });
}

/// It was told that another restore is unfinished, which invites to give up what is there already.
#[test]
fn a_restore_whose_snapshot_has_gone_says_so() {
    let simulation = Simulation::new(16);
    let machine = simulation.process("node");
    simulation.run_until(async {
        let db = open(&machine, "/db", "memory").await;
        write_some(&db, &mut Model::default(), &mut Random::new(16), 20).await;
        let backup = new_backup(&machine, &db).await;
        take_snapshot(&backup, &db, &small_files()).await.unwrap();
        let to = open(&machine, "/to", "memory").await;
        let begun = plan(&backup, Goal::Newest, Mapping::default()).await.unwrap();
        let control = RestoreControl::default();
        control.stop.store(true, Ordering::SeqCst);
        serve(&backup, &begun, &control, &to).await.unwrap_err();
        set(&db, b"later", b"").await;
        take_snapshot(&backup, &db, &small_files()).await.unwrap();
        let manifest = format!("{}/snapshot.manifest", begun.snapshot.directory);
        backup_target(&machine).delete(&manifest).await.unwrap();
        let noted = unfinished(&to).await.unwrap().unwrap();
        let told = noted.plan(&backup, Goal::Newest, &Mapping::default()).await.map(drop);
        assert!(told.is_err(), "{told:?}");
    });
}

/// Somebody who read the empty range before, and writes by what it saw after, would have seen the
/// restore neither before nor behind it.
#[test]
fn who_read_before_a_restore_of_ranges_conflicts_with_it_behind_its_end() {
    let simulation = Simulation::new(12);
    let machine = simulation.process("node");
    simulation.run_until(async {
        let db = open(&machine, "/db", "memory").await;
        write_some(&db, &mut Model::default(), &mut Random::new(12), 20).await;
        let backup = new_backup(&machine, &db).await;
        take_snapshot(&backup, &db, &small_files()).await.unwrap();
        let mapping = Mapping { add_prefix: "restored/".into(), ..Mapping::default() };
        let plan = plan(&backup, Goal::Newest, mapping).await.unwrap();
        let reads = async |db: &plinth::Database| {
            let tr = db.create_transaction();
            assert_eq!(tr.range("restored/".."restored0").collect().await.unwrap(), []);
            tr.set("empty", "yes");
            tr
        };
        let (during, behind) = (reads(&db).await, reads(&db).await);
        let control = RestoreControl::default();
        control.stop.store(true, Ordering::SeqCst);
        serve(&backup, &plan, &control, &db).await.unwrap_err();
        // It is before the restore, which isn't there for anybody yet.
        during.commit().await.unwrap();
        serve(&backup, &plan, &RestoreControl::default(), &db).await.unwrap();
        assert_eq!(behind.commit().await, Err(Error::not_committed()));
    });
}

/// A restore that dies in the middle of its log, which takes several transactions, and goes on,
/// again and again. The log has additions: none comes twice, and none is left out.
fn dies_in_its_log(seed: u64) {
    let simulation = Simulation::new(seed);
    let machine = simulation.process("node");
    simulation.run_until(async {
        let (db, mut random) = (open(&machine, "/db", "memory").await, Random::new(seed));
        let mut model = Model::default();
        write_some(&db, &mut model, &mut random, 5).await;
        let backup = new_backup(&machine, &db).await;
        take_snapshot(&backup, &db, &small_files()).await.unwrap();
        let (mut log, mut end) = (LogBuilder::new(1), 0);
        for n in 0..100 {
            let (key, value) = (format!("large{n:02}"), vec![n; 90_000]);
            let tr = db.create_transaction();
            tr.add("sum", 1_u64.to_le_bytes());
            tr.set(&key, &value);
            tr.commit().await.unwrap();
            let mut list = MutationList::new();
            list.push(MutationType::Add, b"sum", &1_u64.to_le_bytes());
            list.push(MutationType::Set, key.as_bytes(), &value);
            let version = tr.committed_version().unwrap();
            log.push(version, list.iter());
            end = version + 1;
        }
        backup.put_log(log, end).await.unwrap();
        let expected = rows_of(&db).await;
        let to = open(&machine, "/to", "memory").await;
        let plan = plan(&backup, Goal::Newest, Mapping::default()).await.unwrap();
        let mut before = 0;
        for _ in 0..2 {
            let control = RestoreControl::default();
            // Each gets a third of the way, or about: the transaction that is under way may be
            // committed or not.
            let enough = plan.row_bytes() + plan.log_bytes() * (20 + random.below(7)) / 100;
            let restored = control.restored.clone();
            let is_enough = async {
                while restored.load(Ordering::SeqCst) < enough {
                    machine.sleep(Duration::from_micros(50)).await;
                }
                machine.sleep(Duration::from_micros(random.below(500))).await;
            };
            let First::Right(()) = race(serve(&backup, &plan, &control, &to), is_enough).await
            else {
                panic!("seed {seed}: it came to its end");
            };
            let shown = status(&to).await.unwrap().unwrap();
            let reached = shown.log.unwrap_or_default();
            assert!(before < reached && reached < plan.version, "seed {seed}: {before}, {shown:?}");
            before = reached;
        }
        let told = serve(&backup, &plan, &RestoreControl::default(), &to).await.unwrap();
        let rows = rows_of(&to).await;
        assert_eq!(told.mutations, 200, "seed {seed}");
        assert_eq!(rows.get(&b"sum"[..]), expected.get(&b"sum"[..]), "seed {seed}");
        assert!(rows == expected, "seed {seed}");
    });
}

#[test]
fn a_restore_that_dies_in_its_log_goes_on_behind_what_it_applied() {
    (0..5).for_each(dies_in_its_log);
}

/// The test is tested.
#[test]
fn a_log_that_is_applied_from_its_start_again_is_noticed() {
    plinth_types::marks::plant(Some("a restore that goes on applies its log from the start"));
    let told = std::panic::catch_unwind(|| dies_in_its_log(0));
    plinth_types::marks::plant(None);
    assert!(told.is_err());
}

#[test]
fn damage_is_named_and_nothing_is_restored_from_it() {
    let simulation = Simulation::new(1);
    let machine = simulation.process("node");
    simulation.run_until(async {
        let db = open(&machine, "/db", "memory").await;
        write_some(&db, &mut Model::default(), &mut Random::new(2), 90).await;
        let backup = new_backup(&machine, &db).await;
        take_snapshot(&backup, &db, &small_files()).await.unwrap();
        let target = backup_target(&machine);
        let files = target.list("snapshots/").await.unwrap();
        let rows: Vec<_> = files.iter().filter(|file| file.name.ends_with(".rows")).collect();
        assert!(rows.len() > 2, "{files:?}");
        let [first, second] = [&rows[0].name, &rows[1].name];
        let (one, other) = (target.get(first).await.unwrap(), target.get(second).await.unwrap());
        let flipped = [&one[..200], &[one[200] ^ 1], &one[201..]].concat();
        for (what, contents, code) in [
            ("flipped", Some(flipped), 1522),
            ("swapped", Some(other.to_vec()), 1522),
            ("cut off", Some(one[..one.len() - 1].to_vec()), 1522),
            ("missing", None, 2363),
        ] {
            match contents {
                Some(contents) => target.put(first, contents.into()).await.unwrap(),
                None => target.delete(first).await.unwrap(),
            }
            let report =
                verify(&backup, &AtomicU64::new(0), &AtomicBool::new(false)).await.unwrap();
            assert_eq!(report.problems.len(), 1, "{what}: {:?}", report.problems);
            assert!(
                report.problems[0].to_string().contains(&**first),
                "{what}: {}",
                report.problems[0]
            );
            assert!(report.problems[0].costs.is_some() && report.restorable.is_empty(), "{what}");
            let restored =
                restore_dir(&machine, &backup, Goal::Newest, Mapping::default(), "/new", "memory")
                    .await;
            assert_eq!(restored.unwrap_err().code(), code, "{what}");
            assert!(!machine.files().exists("/new").await.unwrap(), "{what}");
        }
        target.put(first, one).await.unwrap();
        restore_dir(&machine, &backup, Goal::Newest, Mapping::default(), "/new", "memory")
            .await
            .unwrap();
    });
}

#[test]
fn one_backup_at_a_time_has_a_place() {
    let simulation = Simulation::new(1);
    let machine = simulation.process("node");
    simulation.run_until(async {
        let db = open(&machine, "/db", "memory").await;
        let backup = new_backup(&machine, &db).await;
        let lease = Lease::take(&backup, "the first").await.unwrap();
        let renewing = Arc::new(AtomicBool::new(true));
        let (env, renews) = (machine.clone(), renewing.clone());
        let first = machine.spawn("first", async move {
            let mut lease = lease;
            while renews.load(Ordering::SeqCst) {
                lease.renew().await.unwrap();
                env.sleep(Duration::from_secs(1)).await;
            }
            // It sleeps through what it had.
            env.sleep(Duration::from_secs(100)).await;
            assert_eq!(lease.renew().await, Err(Error::backup_duplicate()));
        });
        let refused = Lease::take(&backup, "the second").await.map(drop).unwrap_err();
        assert_eq!(refused, Error::backup_duplicate());
        assert!(refused.to_string().contains("the first"), "{refused}");
        renewing.store(false, Ordering::SeqCst);
        machine.sleep(Duration::from_secs(6)).await;
        let began = machine.now();
        let lease = Lease::take(&backup, "the second").await.unwrap();
        assert!(
            machine.now() - began >= Duration::from_secs(15),
            "nobody knows that the first one is gone"
        );
        first.await.unwrap();
        lease.give_back().await.unwrap();
        Lease::take(&backup, "the third").await.unwrap();
    });
}

/// A backup under `delete` was written on by whoever had waited for its lease, into a place that
/// was no backup any more.
#[test]
fn who_waits_for_a_backup_that_is_deleted_gets_none() {
    let simulation = Simulation::new(1);
    let machine = simulation.process("node");
    simulation.run_until(async {
        let db = open(&machine, "/db", "memory").await;
        let backup = new_backup(&machine, &db).await;
        take_snapshot(&backup, &db, &small_files()).await.unwrap();
        let lease = Lease::take(&backup, "a deletion").await.unwrap();
        let (told, waits) = (Arc::new(AtomicU64::new(0)), backup.clone());
        let code = told.clone();
        let waiting = machine.spawn("waits", async move {
            let refused = Lease::take(&waits, "an agent").await.map(drop).unwrap_err();
            assert!(refused.to_string().contains("was deleted"), "{refused}");
            code.store(refused.code() as u64, Ordering::SeqCst);
        });
        machine.sleep(Duration::from_secs(4)).await;
        // As `delete` ends.
        let target = backup_target(&machine);
        target.delete("backup.id").await.unwrap();
        lease.give_back().await.unwrap();
        waiting.await.unwrap();
        assert_eq!(told.load(Ordering::SeqCst), Error::file_not_found().code() as u64);
        assert_eq!(target.list("lease/").await.unwrap(), [], "it gave back what it took");
        // And the whole of it. What else lies there is somebody's: it was taken away where it was
        // an empty directory, and a file failed it when everything was gone.
        let backup = new_backup(&machine, &db).await;
        let files = machine.files();
        files.create_dir_all("/backup/lost+found").await.unwrap();
        files.open("/backup/README", Open::Create).await.unwrap().sync_all().await.unwrap();
        take_snapshot(&backup, &db, &small_files()).await.unwrap();
        plinth::backup::delete(&backup).await.unwrap();
        assert_eq!(files.list("/backup").await.unwrap(), ["README", "lost+found"]);
    });
}

/// Where a store puts what it should only create, two had one lease and never noticed; nor did one
/// that slept while its number was given out again.
#[test]
fn a_lease_has_one_holder() {
    for creates_always in [true, false] {
        let simulation = Simulation::new(11);
        let machine = simulation.process("node");
        simulation.run_until(async {
            let db = open(&machine, "/db", "memory").await;
            new_backup(&machine, &db).await;
            // Both have seen that there is no lease, and then put it one after the other.
            let (env, calls) = (machine.clone(), AtomicU64::new(0));
            let hook: Hook = Box::new(move |call, _| {
                let is_create = call == "create";
                let waits =
                    if is_create { 1000 + 100 * calls.fetch_add(1, Ordering::SeqCst) } else { 0 };
                let env = env.clone();
                Box::pin(async move {
                    env.sleep(Duration::from_millis(waits)).await;
                    Ok(())
                })
            });
            let target = Hooked { inner: backup_target(&machine), hook, creates_always };
            let backup = Backup::open(&machine, Arc::new(target), None).await.unwrap();
            let (taken, theirs) = (Arc::new(Mutex::new(None)), backup.clone());
            let told = taken.clone();
            let task = machine.spawn("other", async move {
                let lease = Lease::take(&theirs, "it").await;
                *told.lock().unwrap() = Some(lease);
            });
            let one = Lease::take(&backup, "it").await;
            task.await.unwrap();
            let other = taken.lock().unwrap().take().unwrap();
            machine.sleep(Duration::from_secs(4)).await;
            let mut leases: Vec<Lease> = [one, other].into_iter().flatten().collect();
            let mut renewed = Vec::new();
            for lease in &mut leases {
                renewed.push(lease.renew().await);
            }
            let holders = renewed.iter().filter(|renewed| renewed.is_ok()).count();
            assert_eq!(holders, 1, "{creates_always}: {renewed:?}");
            for lease in leases {
                lease.give_back().await.unwrap();
            }

            let mut sleeper = Lease::take(&backup, "a sleeper").await.unwrap();
            machine.files().remove_dir_all("/backup/lease").await.unwrap();
            let mut next = Lease::take(&backup, "the next").await.unwrap();
            machine.sleep(Duration::from_secs(4)).await;
            assert_eq!(sleeper.renew().await, Err(Error::backup_duplicate()));
            sleeper.give_back().await.unwrap();
            next.renew().await.unwrap();
            next.give_back().await.unwrap();
        });
    }
}

/// What was put behind another's `backup.id` is nobody's.
#[test]
fn a_backup_that_is_another_one_now_gets_no_manifest() {
    let simulation = Simulation::new(12);
    let machine = simulation.process("node");
    simulation.run_until(async {
        let db = open(&machine, "/db", "memory").await;
        let backup = new_backup(&machine, &db).await;
        let mut lease = Lease::take(&backup, "the first").await.unwrap();
        machine.files().rename("/backup/backup.id", "/first.id").await.unwrap();
        new_backup(&machine, &db).await;
        let taken = take_snapshot(&backup, &db, &SnapshotSettings::default()).await;
        assert_eq!(taken.map(drop), Err(Error::file_not_found()));
        assert!(backup.contents().await.unwrap().snapshots.is_empty());
        machine.sleep(Duration::from_secs(4)).await;
        assert_eq!(lease.renew().await, Err(Error::file_not_found()));
    });
}

/// Of two that began a backup in one place at once each had put its own identity: who had read its
/// own before the other one came wrote for nobody.
#[test]
fn two_that_begin_at_once_begin_one_backup() {
    let simulation = Simulation::new(21);
    let machine = simulation.process("node");
    simulation.run_until(async {
        let begin = async |target: Arc<dyn Target>| {
            Backup::open_or_create(&machine, target, None, "shop", &everything()).await.unwrap()
        };
        let env = machine.clone();
        let hook: Hook = Box::new(move |call, name| {
            let waits = name == "backup.id" && ["put", "create"].contains(&call);
            let (env, wait) = (env.clone(), Duration::from_secs(u64::from(waits)));
            Box::pin(async move {
                env.sleep(wait).await;
                Ok(())
            })
        });
        let late = Hooked { inner: backup_target(&machine), hook, creates_always: false };
        let (machine, late) = (machine.clone(), Arc::new(late));
        let task = {
            let machine = machine.clone();
            machine.clone().spawn("late", async move {
                let late = Backup::open_or_create(&machine, late, None, "shop", &everything())
                    .await
                    .unwrap();
                Lease::take(&late, "late").await.unwrap().give_back().await.unwrap();
            })
        };
        machine.sleep(Duration::from_millis(500)).await;
        let quick = begin(backup_target(&machine)).await;
        task.await.unwrap();
        // It is the one that is there.
        Lease::take(&quick, "quick").await.unwrap().give_back().await.unwrap();
    });
}

/// A machine that stops while it begins a backup in a directory leaves a part of its identity,
/// which kept everybody from beginning one there.
#[test]
fn a_backup_that_was_begun_in_part_is_begun() {
    let simulation = Simulation::new(22);
    let machine = simulation.process("node");
    simulation.run_until(async {
        let begin = async || {
            Backup::open_or_create(&machine, backup_target(&machine), None, "shop", &everything())
                .await
        };
        begin().await.unwrap();
        let whole = machine.files().read("/backup/backup.id").await.unwrap();
        for len in [0, 1, whole.len() / 2, whole.len() - 1] {
            machine.files().replace("/backup/backup.id", &whole[..len]).await.unwrap();
            let begun = begin().await.unwrap();
            assert_eq!(begun.ranges(), Some(&everything()[..]), "{len}");
        }
        // Where something of a backup is there nothing is guessed.
        machine.files().replace("/backup/backup.id", &whole[..20]).await.unwrap();
        machine.files().create_dir_all("/backup/logs").await.unwrap();
        machine.files().replace("/backup/logs/1-2-3.log", b"x").await.unwrap();
        assert_eq!(begin().await.map(drop), Err(Error::file_corrupt()));
    });
}
