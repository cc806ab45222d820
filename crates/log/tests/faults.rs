//! Disks that fill up, fail and stall; and what two syncs in flight are worth.
//!
//! Times are simulated, and therefore exact: that two syncs overlap can be seen from the clock.

mod support;

use std::time::Duration;

use plinth_env::Env;
use plinth_env::simulated::{CallKind, Simulation, Unsynced};
use plinth_log::{LocalLog, LogConfig, LogError};
use plinth_types::Error;
use support::{DIR, body, check, commit, create_leased, keys_of_life, open, read, small};

fn start(seed: u64) -> (Simulation, Env) {
    let sim = Simulation::new(seed);
    let env = sim.process("node");
    (sim, env)
}

/// Lets every sync take this long, neither more nor less.
fn slow_syncs(sim: &Simulation, env: &Env, duration: Duration) {
    sim.update_faults(env, |faults| {
        (faults.sync.latency_min, faults.sync.latency_max) = (duration, duration);
    });
}

#[test]
fn a_full_disk_fails_appends_and_room_mends_it() {
    for seed in 0..20 {
        let (sim, env) = start(seed);
        let config = small(8192, 16_384);
        let (mut log, mut version) = sim.run_until(async {
            let mut log = create_leased(&env, config.clone()).await;
            commit(&mut log, 1, &body(1, 400)).await;
            (log, 1)
        });
        sim.update_faults(&env, |faults| faults.capacity = Some(50_000));
        let error = sim.run_until(async {
            loop {
                version += 1;
                match log.append(version, &[&body(version, 400)]).await {
                    Ok(position) => log.syncer().sync(position).await.unwrap(),
                    Err(error) => break error,
                }
            }
        });
        assert!(error.is_disk_full(), "{error}");
        assert_eq!(Error::from(&error), Error::file_not_writable());
        let before = log.written();
        sim.run_until(async {
            // The same again, for as long as there is no room; reads go on.
            for _ in 0..3 {
                let refused = log.append(version, &[&body(version, 400)]).await.unwrap_err();
                assert!(refused.is_disk_full(), "{refused}");
                assert_eq!(log.written(), before);
                assert_eq!(read(&log, 1).await.unwrap().len() as i64, version - 1);
            }
        });
        sim.update_faults(&env, |faults| faults.capacity = None);
        sim.run_until(async {
            for version in version..version + 50 {
                commit(&mut log, version, &body(version, 400)).await;
            }
            let entries = read(&log, 1).await.unwrap();
            check(&entries).unwrap();
            assert_eq!(entries.len() as i64, version + 49);
        });
        sim.crash(&env);
        let env = sim.restart(&env);
        sim.run_until(async {
            let (log, recovery) = open(&env, config.clone()).await.unwrap();
            assert_eq!(recovery.last_version, version + 49);
            check(&read(&log, 1).await.unwrap()).unwrap();
        });
    }
}

#[test]
fn a_log_on_a_full_disk_can_be_opened_and_read() {
    let (sim, env) = start(1);
    let config = small(65_536, 65_536);
    let mut log = sim.run_until(create_leased(&env, config.clone()));
    sim.update_faults(&env, |faults| faults.capacity = Some(70_000));
    let mut version = 0;
    sim.run_until(async {
        loop {
            version += 1;
            match log.append(version, &[&body(version, 50)]).await {
                Ok(position) => log.syncer().sync(position).await.unwrap(),
                Err(error) => break assert!(error.is_disk_full()),
            }
        }
    });
    drop(log);
    for _ in 0..5 {
        sim.run_until(async {
            let (log, recovery) = open(&env, config.clone()).await.unwrap();
            assert_eq!(recovery.last_version, version - 1);
            assert_eq!(read(&log, 1).await.unwrap().len() as i64, version - 1);
        });
    }
}

#[test]
fn a_failed_sync_poisons_the_log_for_good() {
    let (sim, env) = start(2);
    let config = small(8192, 8192);
    let mut log = sim.run_until(create_leased(&env, config.clone()));
    sim.run_until(commit(&mut log, 1, &body(1, 100)));
    sim.update_faults(&env, |faults| faults.sync.fail = 1.0);
    let position = sim.run_until(log.append(2, &[&body(2, 100)])).unwrap();
    let syncer = log.syncer();
    let failed = sim.run_until(syncer.sync(position)).unwrap_err();
    assert_eq!(Error::from(&failed), Error::io_error());

    sim.update_faults(&env, |faults| faults.sync.fail = 0.0);
    let syncs = sim.call_count(&env, CallKind::Sync);
    sim.run_until(async {
        assert_eq!(syncer.sync(position).await, Err(LogError::Poisoned(String::new())));
        assert_eq!(log.append(3, &[b"x"]).await, Err(LogError::Poisoned(String::new())));
        assert_eq!(log.extend_lease(2_000_000).await, Err(LogError::Poisoned(String::new())));
        assert_eq!(log.mark_durable().await, Err(LogError::Poisoned(String::new())));
        assert!(log.check().unwrap_err().to_string().contains("segment-"));
        // What was durable can still be read.
        assert_eq!(read(&log, 0).await.unwrap().len(), 1);
    });
    assert_eq!(sim.call_count(&env, CallKind::Sync), syncs, "a failed sync is not tried again");
    assert_eq!(log.known_durable(), 1);
    sim.run_until(log.close()).unwrap_err();

    sim.kill(&env);
    let env = sim.restart(&env);
    sim.run_until(async {
        let (log, recovery) = open(&env, config).await.unwrap();
        assert!(recovery.last_version == 1 || recovery.last_version == 2);
        check(&read(&log, 0).await.unwrap()).unwrap();
    });
}

/// After a failed sync the operating system may hold records in memory that are not on the disk and
/// that it will never write again. A restart that finds them must not take them for durable.
#[test]
fn what_a_failed_sync_left_in_memory_is_durable_after_a_restart_or_gone() {
    for seed in 0..100 {
        let (sim, env) = start(seed);
        let config = small(65_536, 65_536);
        let mut log = sim.run_until(create_leased(&env, config.clone()));
        sim.update_faults(&env, |faults| faults.sync.fail = 1.0);
        for version in 1..6 {
            sim.run_until(log.append(version, &[&body(version, 900)])).unwrap();
        }
        sim.run_until(log.syncer().sync(log.written())).unwrap_err();
        sim.update_faults(&env, |faults| faults.sync.fail = 0.0);
        sim.kill(&env);
        let env = sim.restart(&env);
        let (_log, found) = sim.run_until(open(&env, config.clone())).unwrap();
        sim.crash(&env);
        let env = sim.restart(&env);
        let (log, again) = sim.run_until(open(&env, config)).unwrap();
        assert!(again.last_version >= found.last_version, "seed {seed}: {found:?} then {again:?}");
        check(&sim.run_until(read(&log, 0)).unwrap()).unwrap();
    }
}

#[test]
fn two_syncs_are_in_flight_at_the_same_time() {
    let (sim, env) = start(3);
    let log = sim.run_until(create_leased(&env, small(65_536, 65_536)));
    let sync = Duration::from_millis(10);
    slow_syncs(&sim, &env, sync);
    let took = |syncs: u32| {
        let (sim, env) = (&sim, &env);
        move |log: &mut LocalLog, first: i64| {
            let began = sim.now();
            let tasks: Vec<_> = (0..syncs)
                .map(|number| {
                    let version = first + i64::from(number);
                    let position = sim.run_until(log.append(version, &[b"x"])).unwrap();
                    let syncer = log.syncer();
                    let task =
                        env.spawn("sync", async move { syncer.sync(position).await.unwrap() });
                    // Begun before the next append.
                    sim.run_for(Duration::from_millis(1));
                    task
                })
                .collect();
            sim.run_until(async {
                for task in tasks {
                    task.await.unwrap();
                }
            });
            sim.now() - began
        }
    };
    let mut log = log;
    let one = took(1)(&mut log, 1);
    let two = took(2)(&mut log, 10);
    let three = took(3)(&mut log, 20);
    assert!(one >= sync && one < sync * 3 / 2, "{one:?}");
    assert!(two < sync * 3 / 2, "two syncs overlap: {two:?}");
    // There are two lanes: the third begins when the first ends.
    assert!(three >= sync * 2 && three < sync * 5 / 2, "{three:?}");
    assert_eq!(log.known_durable(), 22);
}

#[test]
fn callers_that_anothers_sync_covers_do_not_sync() {
    let (sim, env) = start(4);
    let mut log = sim.run_until(create_leased(&env, small(65_536, 65_536)));
    let mut positions = Vec::new();
    for version in 1..=10 {
        positions.push(sim.run_until(log.append(version, &[b"x"])).unwrap());
    }
    let before = sim.call_count(&env, CallKind::Sync);
    let tasks: Vec<_> = positions
        .iter()
        .map(|position| {
            let (syncer, position) = (log.syncer(), *position);
            env.spawn("sync", async move { syncer.sync(position).await.unwrap() })
        })
        .collect();
    sim.run_until(async {
        for task in tasks {
            task.await.unwrap();
        }
    });
    sim.run_until(log.syncer().sync(positions[3])).unwrap();
    assert_eq!(sim.call_count(&env, CallKind::Sync), before + 1);
}

#[test]
fn a_stalled_sync_holds_up_nobody_but_those_who_need_it() {
    let (sim, env) = start(5);
    let mut log = sim.run_until(create_leased(&env, small(65_536, 65_536)));
    slow_syncs(&sim, &env, Duration::from_secs(5));
    let first = sim.run_until(log.append(1, &[b"x"])).unwrap();
    let syncer = log.syncer();
    let stalled = env.spawn("stalled", async move { syncer.sync(first).await.unwrap() });
    sim.run_for(Duration::from_millis(1));
    slow_syncs(&sim, &env, Duration::from_millis(1));
    let began = sim.now();
    sim.run_until(commit(&mut log, 2, b"x"));
    // A later sync covers the stalled one's record too: it is durable whatever becomes of that one.
    assert!(sim.now() - began < Duration::from_millis(100));
    assert_eq!(log.known_durable(), 2);
    sim.run_until(stalled).unwrap();
}

#[test]
fn a_sync_given_up_half_way_blocks_nobody() {
    let (sim, env) = start(6);
    let mut log = sim.run_until(create_leased(&env, small(65_536, 65_536)));
    slow_syncs(&sim, &env, Duration::from_millis(10));
    let position = sim.run_until(log.append(1, &[b"x"])).unwrap();
    for _ in 0..5 {
        let given_up = sim.run_until_within(Duration::from_millis(2), log.syncer().sync(position));
        assert!(given_up.is_none());
    }
    assert_eq!(log.known_durable(), 0);
    sim.run_until(log.syncer().sync(position)).unwrap();
    assert_eq!(log.known_durable(), 1);
}

#[test]
fn an_append_waits_for_its_segment_and_fails_with_it() {
    let (sim, env) = start(7);
    let mut log = sim.run_until(create_leased(&env, small(8192, 8192)));
    sim.update_faults(&env, |faults| faults.rename.fail = 1.0);
    let mut version = 0;
    let error = sim.run_until(async {
        loop {
            version += 1;
            match log.append(version, &[&body(version, 500)]).await {
                Ok(position) => log.syncer().sync(position).await.unwrap(),
                Err(error) => break error,
            }
        }
    });
    assert_eq!(Error::from(&error), Error::io_error());
    assert!(error.to_string().contains("rename"), "{error}");
    sim.update_faults(&env, |faults| faults.rename.fail = 0.0);
    sim.run_until(async {
        commit(&mut log, version, &body(version, 500)).await;
        check(&read(&log, 0).await.unwrap()).unwrap();
        log.close().await.unwrap();
    });
    assert_eq!(
        sim.run_until(plinth_log::verify(&env, DIR, &plinth_format::Keys::none()))
            .unwrap()
            .problems,
        []
    );
}

/// Found by the crash model: a process was killed when the next segment had its name but the
/// directory had not been synced. The next process used the segment, and a power failure took it
/// away with all that had been acknowledged since.
#[test]
fn a_segment_with_a_name_that_was_not_durable_is_not_lost() {
    let (sim, env) = start(8);
    let config = small(65_536, 65_536);
    let mut log = sim.run_until(create_leased(&env, config.clone()));
    slow_syncs(&sim, &env, Duration::from_millis(50));
    for version in 1..=5 {
        sim.run_until(log.append(version, &[&body(version, 4000)])).unwrap();
    }
    let second = format!("{DIR}/segment-0000000000000002.log");
    while !sim.files(&env).iter().any(|(path, _)| path.as_os_str() == second.as_str()) {
        sim.run_for(Duration::from_millis(1));
    }
    sim.kill(&env);
    let env = sim.restart(&env);
    slow_syncs(&sim, &env, Duration::from_millis(1));
    sim.run_until(async {
        let (mut log, recovery) = open(&env, config.clone()).await.unwrap();
        assert_eq!(recovery.last_version, 5);
        for version in 6..=17 {
            commit(&mut log, version, &body(version, 4000)).await;
        }
    });
    sim.crash_with(&env, Unsynced::Lost);
    let env = sim.restart(&env);
    let (_, recovery) = sim.run_until(open(&env, config)).unwrap();
    assert_eq!(recovery.last_version, 17);
}

#[test]
fn an_append_given_up_half_way_leaves_no_gap() {
    for seed in 0..50 {
        let (sim, env) = start(seed);
        let config = small(8192, 8192);
        let mut log = sim.run_until(create_leased(&env, config.clone()));
        let mut version = 0;
        for _ in 0..30 {
            version += 1;
            let limit = Duration::from_micros(sim.random().below(40));
            let long = body(version, 300);
            if sim.run_until_within(limit, log.append(version, &[&long])).is_none() {
                // The same version again with another body: whichever is found must be whole.
                sim.run_until(log.append(version, &[&body(version, 200)])).unwrap();
            }
        }
        sim.run_until(log.syncer().sync(log.written())).unwrap();
        log.check_invariants();
        sim.crash(&env);
        let env = sim.restart(&env);
        let (log, recovery) = sim.run_until(open(&env, config)).unwrap();
        assert_eq!((recovery.last_version, recovery.last_index), (version, 31), "seed {seed}");
        check(&sim.run_until(read(&log, 0)).unwrap()).unwrap();
    }
}

/// A write may fail although all of its record has arrived: what the caller was told must stay true
/// after a crash.
#[test]
fn an_entry_whose_append_failed_is_never_found() {
    let mut tried = 0;
    for seed in 0..400 {
        let (sim, env) = start(seed);
        let config = small(65_536, 65_536);
        let mut log = sim.run_until(create_leased(&env, config.clone()));
        sim.run_until(commit(&mut log, 1, &body(1, 100)));
        sim.update_faults(&env, |faults| faults.write.fail = 0.5);
        // Long enough to enter the next block, so that zeros are written after it.
        let appended = sim.run_until(log.append(2, &[&body(2, 4000)]));
        sim.update_faults(&env, |faults| faults.write.fail = 0.0);
        if appended.is_ok() || log.check().is_err() {
            continue;
        }
        tried += 1;
        sim.crash_with(&env, Unsynced::Kept);
        let env = sim.restart(&env);
        let (_, recovery) = sim.run_until(open(&env, config)).unwrap();
        assert_eq!(recovery.last_version, 1, "seed {seed}");
    }
    assert!(tried > 50, "{tried}");
}

/// A segment was being taken away when an opening failed at its first record: the next opening
/// found the segment among the names of the directory, then no such file, and called that damage.
#[test]
fn an_opening_that_fails_leaves_nobody_at_the_files() {
    let (mut failed, mut gone) = (0, 0);
    for seed in 0..60 {
        let (sim, mut env) = start(seed);
        let config = |life| LogConfig { keys: keys_of_life(life), ..small(8192, 8192) };
        let mut life = 0;
        let mut log = sim.run_until(async {
            let mut log = create_leased(&env, config(life)).await;
            log.register("reader", 1, None).unwrap();
            for version in 1..80 {
                commit(&mut log, version, &body(version, 400)).await;
            }
            log
        });
        // The log knows what may go, and loses with the power that it went.
        sim.run_until(async {
            log.pop("reader", 70).unwrap();
            log.mark_durable().await.unwrap();
        });
        let before = sim.run_until(env.files().list(DIR)).unwrap().len();
        sim.crash_with(&env, Unsynced::Lost);
        env = sim.restart(&env);
        sim.update_faults(&env, |faults| faults.sync.fail = 0.2);
        for _ in 0..30 {
            life += 1;
            match sim.run_until(open(&env, config(life))) {
                Ok((log, _)) => drop(sim.run_until(log.close())),
                Err(LogError::Io(error)) if !error.is_not_found() => failed += 1,
                Err(LogError::Poisoned(_)) => failed += 1,
                Err(error) => panic!("seed {seed}, life {life}: {error}"),
            }
        }
        gone += usize::from(sim.run_until(env.files().list(DIR)).unwrap().len() < before);
    }
    assert!(failed > 100 && gone > 10, "{failed} failed, of {gone} logs segments have gone");
}
